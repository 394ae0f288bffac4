//! What the RSVP daemon knows, as people read it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use altq_engine::units::Rate;
use altq_rsvpd::document::{Destination, Neighbours, Path, Paths, Reservation, Reservations, Source, Tspec};

use crate::output;

/// A table of paths, at most `width` columns wide if that is possible.
pub fn paths(found: &Paths, width: Option<usize>) -> String {
    let heads = ["session", "sender", "rate", "burst", "previous hop", "comes by", "leaves by", "ends in"];
    let row = |path: &Path| {
        vec![
            session(&path.session),
            sender(&path.sender),
            rate(&path.tspec),
            format!("{} B", path.tspec.burst_bytes),
            path.previous_hop.map_or_else(|| "here".to_owned(), |hop| hop.to_string()),
            text(path.incoming.as_ref()),
            text(path.outgoing.as_ref()),
            ends(path.expires_s),
        ]
    };
    table(&heads, found.paths.iter().map(row), width)
}

/// A table of reservations, at most `width` columns wide if that is possible.
pub fn reservations(found: &Reservations, width: Option<usize>) -> String {
    let heads = ["session", "style", "senders", "asked", "reserved", "class", "next hop", "leaves by", "ends in"];
    let row = |there: &Reservation| {
        vec![
            session(&there.session),
            there.style.clone(),
            there.senders.iter().map(sender).collect::<Vec<String>>().join(" "),
            rate(&there.asked),
            there.reserved.as_ref().map_or_else(|| "-".to_owned(), rate),
            text(there.class.as_ref()),
            there.next_hop.map_or_else(|| "here".to_owned(), |hop| hop.to_string()),
            text(there.interface.as_ref()),
            ends(there.expires_s),
        ]
    };
    table(&heads, found.reservations.iter().map(row), width)
}

/// A table of neighbours, and a line for each kind of counter.
pub fn neighbours(found: &Neighbours, width: Option<usize>) -> String {
    let heads = ["interface", "neighbour", "heard before", "reservations"];
    let row = |there: &altq_rsvpd::document::Neighbour| {
        vec![
            there.interface.clone(),
            there.address.to_string(),
            format!("{:.1} s", there.heard_s),
            there.reservations.to_string(),
        ]
    };
    let mut all = table(&heads, found.neighbours.iter().map(row), width);
    all += &format!("{} sessions\n", found.sessions);
    all += &counted("received", &found.received);
    all += &counted("sent", &found.sent);
    all += &counted("refused", &found.refused);
    for (count, what) in [(found.passed_on, "passed on"), (found.unsent, "could not be sent")] {
        if count > 0 {
            all += &format!("{count} messages {what}\n");
        }
    }
    all
}

fn counted(what: &str, counts: &BTreeMap<String, u64>) -> String {
    let all: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    format!("{what}: {}\n", if all.is_empty() { "none".to_owned() } else { all.join(", ") })
}

fn table(heads: &[&str], rows: impl Iterator<Item = Vec<String>>, width: Option<usize>) -> String {
    let mut all = vec![heads.iter().map(|head| (*head).to_owned()).collect()];
    all.extend(rows);
    output::table_within(&all, width)
}

fn session(to: &Destination) -> String {
    format!("{}/{}", SocketAddr::new(to.dst, to.dport), to.proto)
}

fn sender(from: &Source) -> String {
    SocketAddr::new(from.src, from.sport).to_string()
}

fn rate(tspec: &Tspec) -> String {
    Rate::bit_s(tspec.rate_bit_s).to_string()
}

fn text(name: Option<&String>) -> String {
    name.map_or_else(|| "-".to_owned(), |name| name.escape_debug().to_string())
}

fn ends(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_row() {
        let found: Paths = serde_json::from_str(
            r#"{"schema":"altq.rsvp-paths/1","paths":[{"dst":"10.0.2.2","dport":5004,"proto":"udp","src":"10.0.1.1",
            "sport":4000,"tspec":{"rate_bit_s":500000,"burst_bytes":10000,"peak_bit_s":null,"min_unit_bytes":128,
            "max_packet_bytes":1500},"previous_hop":"10.0.12.1","incoming":"eth0","outgoing":null,"gap":false,
            "hops":1,"bandwidth_bit_s":8000000,"latency_us":null,"mtu":1500,"expires_s":157.26}]}"#,
        )
        .unwrap();
        let shown = paths(&found, None);
        let cells: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
        let expected = ["10.0.2.2:5004/udp", "10.0.1.1:4000", "500kbit/s", "10000", "B", "10.0.12.1", "eth0", "-"];
        assert_eq!(cells[..8], expected);
    }

    #[test]
    fn counters_are_lines() {
        let found: Neighbours = serde_json::from_str(
            r#"{"schema":"altq.rsvp-neighbours/1","sessions":1,"neighbours":[{"interface":"eth0",
            "address":"10.0.12.1","heard_s":0.25,"reservations":1}],"received":{"Path":3},"sent":{},"passed_on":0,
            "unsent":2,"refused":{"wrong INTEGRITY":4,"no INTEGRITY":1}}"#,
        )
        .unwrap();
        let shown = neighbours(&found, None);
        assert!(shown.contains("\nreceived: Path 3\nsent: none\n"), "{shown}");
        assert!(
            shown.contains("refused: no INTEGRITY 1, wrong INTEGRITY 4\n2 messages could not be sent\n"),
            "{shown}"
        );
    }
}
