//! Prints answers about reservations for people.

use altq_engine::units::Rate;
use altq_reserve::{Excess, Flow, Op, Tspec};
use serde::Deserialize;

use crate::output;

/// An answer (`altq.reserve/1`).
#[derive(Debug, Deserialize)]
pub struct Answered {
    pub granted: bool,
    id: Option<u64>,
    key: Option<String>,
    class: Option<String>,
    rate_bit_s: Option<u64>,
    charged_bit_s: Option<u64>,
    expires_s: Option<f64>,
    reason: Option<String>,
    bottleneck: Option<String>,
    would_fit_bit_s: Option<u64>,
}

impl Answered {
    /// A line for a granted request.
    pub fn granted_text(&self, op: Op) -> String {
        let mut line = format!("reservation {}", self.id.unwrap_or_default());
        if let Some(key) = &self.key {
            line += &format!(" ({})", key.escape_debug());
        }
        if op == Op::Del {
            return line + ": given up\n";
        }
        if let Some(rate) = self.rate_bit_s {
            line += &format!(": {}", Rate::bit_s(rate));
        }
        if let Some(charged) = self.charged_bit_s {
            line += &format!(", {} on the wire", Rate::bit_s(charged));
        }
        if let Some(class) = &self.class {
            line += &format!(", class {class}");
        }
        line + &format!(", {}\n", ends(self.expires_s))
    }

    /// A line for a refused request: why, what is in the way, and what would fit.
    pub fn refused_text(&self) -> String {
        let mut line = format!("refused: {}", self.reason.as_deref().unwrap_or("no reason is given"));
        if let Some(bottleneck) = &self.bottleneck {
            line += &format!("; {} is in the way", bottleneck.escape_debug());
        }
        match self.would_fit_bit_s {
            Some(0) => line += "; no rate would fit",
            Some(fits) => line += &format!("; {} would fit", Rate::bit_s(fits)),
            None => {}
        }
        if let Some(id) = self.id {
            line += &format!("; reservation {id} stands as it was");
        }
        line
    }
}

/// How long something lasts.
fn ends(seconds: Option<f64>) -> String {
    match seconds {
        None => "without an end".to_owned(),
        Some(seconds) => format!("ends in {seconds:.1} s"),
    }
}

/// The reservations of all classes for reservations.
#[derive(Debug, Deserialize)]
pub struct Listed {
    pub places: Vec<Place>,
}

/// The reservations below one class (`altq.reservations/1`).
#[derive(Debug, Deserialize)]
pub struct Place {
    link: String,
    class: String,
    reservable_bit_s: u64,
    charged_bit_s: u64,
    buffer_bytes: u64,
    burst_bytes: u64,
    reservations: Vec<Reservation>,
}

#[derive(Debug, Deserialize)]
struct Reservation {
    id: u64,
    key: Option<String>,
    owner: Option<String>,
    class: String,
    tspec: Tspec,
    charged_bit_s: u64,
    excess: Excess,
    expires_s: Option<f64>,
    flows: Vec<Flow>,
}

impl Listed {
    /// The token buckets of the reservations that a key or a number names.
    pub fn tspecs(&self, key: Option<&str>, id: Option<u64>) -> Vec<Tspec> {
        let is_meant = |there: &&Reservation| match key {
            Some(key) => there.key.as_deref() == Some(key),
            None => Some(there.id) == id,
        };
        let all = self.places.iter().flat_map(|place| &place.reservations);
        all.filter(is_meant).map(|there| there.tspec).collect()
    }

    /// A table for each class, at most `width` columns wide if that is possible.
    pub fn text(&self, width: Option<usize>) -> String {
        self.places.iter().map(|place| place.text(width)).collect::<Vec<String>>().join("\n")
    }
}

impl Place {
    fn text(&self, width: Option<usize>) -> String {
        let mut text = format!(
            "{}/{}: {} of {} reserved, bursts of {} of {} bytes\n",
            self.link,
            self.class,
            Rate::bit_s(self.charged_bit_s),
            Rate::bit_s(self.reservable_bit_s),
            self.burst_bytes,
            self.buffer_bytes
        );
        if self.reservations.is_empty() {
            return text;
        }
        let heads = ["class", "id", "rate", "on the wire", "burst", "excess", "ends in", "key", "owner"];
        let mut rows = vec![heads.map(String::from).to_vec()];
        for there in &self.reservations {
            let named =
                |name: &Option<String>| name.as_ref().map_or("-".to_owned(), |name| name.escape_debug().to_string());
            rows.push(vec![
                there.class.clone(),
                there.id.to_string(),
                Rate::bit_s(there.tspec.rate_bit_s).to_string(),
                Rate::bit_s(there.charged_bit_s).to_string(),
                format!("{} B", there.tspec.burst_bytes),
                match there.excess {
                    Excess::Borrow => "borrow".to_owned(),
                    Excess::Default => "default".to_owned(),
                },
                there.expires_s.map_or("-".to_owned(), |seconds| format!("{seconds:.1} s")),
                named(&there.key),
                named(&there.owner),
            ]);
        }
        text += &output::table_within(&rows, width);
        for there in &self.reservations {
            for flow in &there.flows {
                text += &format!("  {}: {flow}\n", there.class);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_a_line() {
        let granted = r#"{"schema":"altq.reserve/1","granted":true,"id":1,"key":"call\n4","owner":"uid:0",
            "class":"res.1","rate_bit_s":500000,"charged_bit_s":648438,"expires_s":157.5,"reason":null,
            "bottleneck":null,"would_fit_bit_s":null,"rsvp_code":null,"rsvp_value":null}"#;
        let answer: Answered = serde_json::from_str(granted).unwrap();
        let expected = "reservation 1 (call\\n4): 500kbit/s, 648438bit/s on the wire, class res.1, ends in 157.5 s\n";
        assert_eq!(answer.granted_text(Op::Add), expected);
        assert_eq!(answer.granted_text(Op::Del), "reservation 1 (call\\n4): given up\n");
        // docs/reserve.md.
        let refused = r#"{"granted":false,"id":null,"key":"call4","owner":null,"class":null,"rate_bit_s":500000,
            "charged_bit_s":648438,"expires_s":null,"reason":"too much","bottleneck":"res","would_fit_bit_s":42167,
            "rsvp_code":1,"rsvp_value":2}"#;
        let answer: Answered = serde_json::from_str(refused).unwrap();
        assert_eq!(answer.refused_text(), "refused: too much; res is in the way; 42167bit/s would fit");
    }

    #[test]
    fn a_list_is_a_table_with_its_flows() {
        let list = r#"{"places":[{"schema":"altq.reservations/1","link":"wan","class":"res",
            "reservable_bit_s":4000000,"charged_bit_s":648438,"buffer_bytes":75000,"burst_bytes":10000,
            "reservations":[{"id":1,"key":"a","owner":null,"class":"res.1",
            "tspec":{"rate_bit_s":500000,"burst_bytes":10000},"charged_bit_s":648438,"excess":"borrow",
            "delay_ns":null,"expires_s":100.04,"flows":[{"dst":"10.0.2.2","dport":5004,"proto":"udp"}]}]}]}"#;
        let listed: Listed = serde_json::from_str(list).unwrap();
        for (key, id, rates) in [
            (Some("a"), None, vec![500_000]),
            (None, Some(1), vec![500_000]),
            (Some("b"), None, vec![]),
            (None, Some(2), vec![]),
        ] {
            let found = listed.tspecs(key, id);
            assert_eq!(found.iter().map(|tspec| tspec.rate_bit_s).collect::<Vec<u64>>(), rates, "{key:?} {id:?}");
        }
        let text = listed.text(None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "wan/res: 648438bit/s of 4Mbit/s reserved, bursts of 10000 of 75000 bytes");
        let cells: Vec<&str> = lines[2].split_whitespace().collect();
        let expected = ["res.1", "1", "500kbit/s", "648438bit/s", "10000", "B", "borrow", "100.0", "s", "a", "-"];
        assert_eq!(cells, expected);
        assert_eq!(lines[3], "  res.1: dst=10.0.2.2 dport=5004 proto=udp");
    }
}
