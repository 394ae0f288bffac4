//! altq tells by bits of a packet's mark which DSCP and ECN the rules behind its queue must write.
//! Other programs use other bits.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use altq_dataplane::netns::Namespace;
use rustix::net::sockopt::{set_ip_tos, set_ipv6_tclass};

use crate::supervised::{Running, until};
use crate::world::World;
use crate::{counter, router, sh};

/// Both links write a DSCP into every packet of `marked`, and CE into some. Those of `plain` stay
/// as they are.
fn policy() -> String {
    let link = |device: &str| {
        format!(
            "device {device}  rate 5Mbit/s  scheduler priq
             class plain {{ priority 7 }}
             class marked {{ priority 1  queue codel {{ target 1ms  interval 5ms  ecn }}
                 meter trtcm {{ cir 1Mbit/s  cbs 5000  pir 2Mbit/s  pbs 5000
                     green dscp af11  yellow dscp af12  red dscp af13 }} }}
             class other {{ priority 7  default }}
             match dport 5001 -> marked
             match dport 5002 -> plain"
        )
    };
    format!("link up {{ {} }}\nlink down {{ {} }}", link("wan"), link("wan ingress"))
}

/// Another program's table. Before altq's queue it gives each packet a mark, some with the bits
/// that altq uses. Behind it, it counts what has passed: how many packets have the mark without
/// these bits, and how many have which DSCP and ECN.
const TABLE: &str = "table inet house {
    counter passed { }
    counter kept { }
    counter af { }
    counter ce { }
    counter ef { }
    chain first {
        type filter hook prerouting priority -180;
        udp dport 5001 meta mark set 0x00a5c3e1
        udp dport 5002 meta mark set 0xffa5c3e1
    }
    chain own {
        type filter hook output priority -180;
        udp dport 5001 meta mark set 0x00a5c3e1
        udp dport 5002 meta mark set 0xffa5c3e1
    }
    chain count {
        counter name passed
        meta mark 0x00a5c3e1 counter name kept
        ip dscp af11 counter name af
        ip dscp af12 counter name af
        ip dscp af13 counter name af
        ip6 dscp af11 counter name af
        ip6 dscp af12 counter name af
        ip6 dscp af13 counter name af
        ip ecn ce counter name ce
        ip6 ecn ce counter name ce
        ip dscp ef counter name ef
        ip6 dscp ef counter name ef
    }
    chain left { type filter hook postrouting priority 0; udp dport 5001-5002 jump count; }
    chain came { type filter hook input priority 0; udp dport 5001-5002 jump count; }
}";

/// Packets by counter of the table.
fn counts(world: &World) -> BTreeMap<String, u64> {
    let listed = sh(&world.middle, "nft list counters table inet house").unwrap();
    // `counter passed {`, and in the next line `packets 3 bytes 84`.
    let words: Vec<&str> = listed.split_whitespace().collect();
    let packets = |at: usize| words[at..].iter().skip_while(|word| **word != "packets").nth(1)?.parse().ok();
    let named = words.iter().enumerate().filter(|(_, word)| **word == "counter");
    named.map(|(at, _)| (words[at + 1].to_owned(), packets(at).unwrap())).collect()
}

/// Sends datagrams with this octet of DSCP and ECN, about a thousand a second. Nobody reads them.
fn send(from: &Namespace, at: &Namespace, to: &str, octet: u8, count: usize) {
    let _sink = at.run(|| UdpSocket::bind(to).unwrap()).unwrap();
    let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = from.run(|| UdpSocket::bind(any).unwrap()).unwrap();
    socket.connect(to).unwrap();
    let set = if to.starts_with('[') { set_ipv6_tclass(&socket, u32::from(octet)) } else { set_ip_tos(&socket, octet) };
    set.unwrap();
    for _ in 0..count {
        // The first ones may wait for the neighbour's address.
        let _ = socket.send(&[7; 1400]);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn other_bits_of_a_mark_are_kept_where_dscp_and_ecn_are_written() {
    let Some(world) = router() else { return };
    if let Err(error) = sh(&world.middle, &format!("nft '{TABLE}'")) {
        return eprintln!("SKIPPED: this test needs nft ({error})");
    }
    let Some(running) = Running::start(&world, "marks", &policy(), &[]) else { return };
    for (what, link, from, at, address) in [
        ("out, forwarded, IPv4", 0, &world.left, &world.right, "10.9.2.2"),
        ("out, local, IPv6", 0, &world.middle, &world.right, "[fd09:2::2]"),
        ("in, local, IPv4", 1, &world.right, &world.middle, "10.9.2.9"),
        ("in, forwarded, IPv6", 1, &world.right, &world.left, "[fd09:1::1]"),
    ] {
        let sent = |class: &str, word: &str| counter(&running, link, class, word);
        let quiet = || {
            until("nothing waits", Duration::from_secs(10), || sent("marked", "backlog_packets") == 0);
            thread::sleep(Duration::from_millis(150));
        };
        let words = ["sent_packets", "marked_packets"];
        let before = (counts(&world), words.map(|word| sent("marked", word)), sent("plain", "sent_packets"));
        // ECT(0) at twice the link's rate; then EF with ECT(1), which has altq's bits in its mark.
        send(from, at, &format!("{address}:5001"), 2, 600);
        quiet();
        send(from, at, &format!("{address}:5002"), 46 << 2 | 1, 50);
        quiet();
        let after = counts(&world);
        let of = |name: &str| after[name] - before.0[name];
        let [written, marked] = [0, 1].map(|at| sent("marked", words[at]) - before.1[at]);
        let plain = sent("plain", "sent_packets") - before.2;
        eprintln!("{what}: {written} written, {marked} of them marked, {plain} plain; {after:?}");
        assert!(written > 100 && marked > 5 && plain > 40, "{what}: there is something to see");
        assert_eq!(of("passed"), written + plain, "{what}");
        assert_eq!(of("kept"), of("passed"), "{what}: all have the mark, without altq's bits");
        assert_eq!([of("af"), of("ce"), of("ef")], [written, marked, plain], "{what}: what is written");
    }
    running.end();
}
