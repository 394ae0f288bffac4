//! The monitor of an interface that nobody shapes: its largest protocols and hosts, without any
//! configuration, as in TTT (K. Cho, "Tele Traffic Tapper").
//!
//! It is fed with the key of every packet ([`headers`](altq_engine::headers)) and the packet's
//! time, from an interface or from a file. Time is that of the packets: a window ends when a packet
//! comes after it.
//!
//! A packet counts for both of its hosts, sender and receiver. So all hosts together have twice the
//! bytes of the IP packets. A protocol is a transport protocol with the lower of the two ports; see
//! [`service`].

use std::collections::VecDeque;

use altq_engine::classify::Mix;
use altq_engine::headers::Key;
use altq_engine::units::{Nanos, SECOND};

use crate::amount::Amount;
use crate::flow::{FlowKey, address};
use crate::fold::{Label, service};
use crate::space_saving::SpaceSaving;
use crate::steps::{Steps, Window};
use crate::summary::{Counted, Summary};

/// Counters for hosts, and for protocols. What has more than 1/1024 of its list's total is listed.
/// The total of protocols is the bytes of all packets, that of hosts twice the bytes of the IP
/// packets.
pub const COUNTERS: usize = 1024;
/// The seconds that a line has.
pub const LINE: usize = 60;
/// How many of the largest of each second are kept for lines.
const DRAWN: usize = 32;

/// A host or a protocol as three numbers. Host: family and the halves of the address. Protocol: 1
/// if it is IP, protocol number and port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Thing([u64; 3]);

impl Thing {
    fn host(family: u8, bits: u128) -> Thing {
        Thing([u64::from(family), (bits >> 64) as u64, bits as u64])
    }

    fn protocol(flow: &FlowKey) -> Thing {
        Thing([u64::from(flow.family() != 0), u64::from(flow.protocol()), u64::from(service(flow))])
    }

    fn hash(&self, mix: &Mix) -> u32 {
        let [a, b, c] = self.0;
        let hash = mix.hash(&[a, b, c, 0]);
        (hash ^ hash >> 32) as u32
    }

    fn host_label(&self) -> Label {
        let bits = u128::from(self.0[1]) << 64 | u128::from(self.0[2]);
        address(self.0[0] as u8, bits).map_or(Label::NotIp, Label::Host)
    }

    fn protocol_label(&self) -> Label {
        match self.0 {
            [0, ..] => Label::NotIp,
            [_, protocol, port] => Label::Port(protocol as u8, port as u16),
        }
    }
}

/// What is kept about hosts, or about protocols.
#[derive(Debug)]
struct Board {
    counters: SpaceSaving<Thing>,
    windows: Steps<Summary<Thing>>,
    /// The largest of each of the last seconds, the oldest first.
    line: VecDeque<Summary<Thing>>,
    /// All seconds that are over.
    overall: Summary<Thing>,
}

impl Board {
    fn new() -> Board {
        Board {
            counters: SpaceSaving::new(COUNTERS),
            windows: Steps::default(),
            line: VecDeque::new(),
            overall: Summary::default(),
        }
    }

    fn end_second(&mut self, now: u64) {
        let summary = self.counters.summary();
        self.counters.clear();
        self.push_line(summary.shortened(DRAWN));
        self.overall = Summary::merged([&self.overall, &summary], COUNTERS);
        self.windows.push(now, summary, |pieces| Summary::merged(pieces.iter().map(|(_, piece)| piece), COUNTERS));
    }

    fn push_line(&mut self, summary: Summary<Thing>) {
        while self.line.len() >= LINE {
            self.line.pop_front();
        }
        self.line.push_back(summary);
    }
}

/// Which of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Addresses, as sender or receiver.
    Hosts,
    /// Protocols with their service ports.
    Protocols,
}

/// The largest hosts or protocols of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Largest {
    /// Those that are known to be large, the largest first.
    pub listed: Vec<Counted<Label>>,
    /// The sum of all, also of those that are not listed.
    pub total: Amount,
    /// What is not certain to belong to a listed one.
    pub others: Amount,
    /// The number of seconds in the window.
    pub seconds: u64,
}

impl Largest {
    fn of(summary: &Summary<Thing>, label: fn(&Thing) -> Label, seconds: u64) -> Largest {
        let listed = summary.listed().iter().map(|counted| Counted {
            key: label(&counted.key),
            at_least: counted.at_least,
            error: counted.error,
        });
        Largest { listed: listed.collect(), total: summary.total(), others: summary.others(), seconds }
    }
}

/// The monitor of an interface.
#[derive(Debug)]
pub struct Watch {
    mix: Mix,
    hosts: Board,
    protocols: Board,
    /// When the current second began; `None` before the first packet, unless the watch was begun.
    began: Option<Nanos>,
    /// The number of the current second.
    second: u64,
    all: Amount,
}

impl Watch {
    /// A watch that has seen nothing. `seed` should be secret if packets come from strangers.
    pub fn new(seed: u64) -> Watch {
        Watch {
            mix: Mix::new(seed),
            hosts: Board::new(),
            protocols: Board::new(),
            began: None,
            second: 0,
            all: Amount::default(),
        }
    }

    /// The watch begins now, and not with the first packet.
    pub fn begin(&mut self, now: Nanos) {
        self.began.get_or_insert(now);
    }

    /// A packet with these headers, and `bytes` bytes, was seen at `now`. An earlier time than
    /// before counts as the latest.
    pub fn packet(&mut self, now: Nanos, key: &Key, bytes: u32) {
        let began = *self.began.get_or_insert(now);
        if now.saturating_sub(began) >= SECOND {
            self.advance(now);
        }
        let flow = FlowKey::of(key);
        self.all += Amount::new(u64::from(bytes), 1);
        let protocol = Thing::protocol(&flow);
        self.protocols.counters.add(&protocol, protocol.hash(&self.mix), bytes);
        if flow.family() != 0 {
            for bits in [flow.src_bits(), flow.dst_bits()] {
                let host = Thing::host(flow.family(), bits);
                self.hosts.counters.add(&host, host.hash(&self.mix), bytes);
            }
        }
    }

    /// Ends all seconds that are over at `now`. The next packet does so as well; a view calls this
    /// because no packet may come.
    pub fn advance(&mut self, now: Nanos) {
        let over = self.began.map_or(0, |began| now.saturating_sub(began) / SECOND);
        if over > 0 {
            self.end_seconds(over);
        }
    }

    /// Ends the current second, and `over - 1` seconds without a packet.
    fn end_seconds(&mut self, over: u64) {
        self.hosts.end_second(self.second);
        self.protocols.end_second(self.second);
        // Seconds without a packet. More than a line holds would change nothing.
        for _ in 0..(over - 1).min(LINE as u64) {
            self.hosts.push_line(Summary::default());
            self.protocols.push_line(Summary::default());
        }
        self.second += over;
        self.began = self.began.map(|began| began.saturating_add(over.saturating_mul(SECOND)));
    }

    /// Everything that was seen.
    pub fn total(&self) -> Amount {
        self.all
    }

    /// The largest of a window that ends with the last second that is over; `None` before the first
    /// second is over.
    pub fn largest(&self, what: What, window: Window) -> Option<Largest> {
        let now = self.second.checked_sub(1)?;
        let (board, label) = self.board(what);
        let summary = Summary::merged(board.windows.since(window.first(now)), COUNTERS);
        Some(Largest::of(&summary, label, window.seconds(now)))
    }

    /// The largest of all seconds that are over.
    pub fn overall(&self, what: What) -> Largest {
        let (board, label) = self.board(what);
        Largest::of(&board.overall, label, self.second)
    }

    /// What one host or protocol had for certain in each of the last seconds (at most 60), the
    /// oldest first. A second in which it was not among the 32 largest counts as 0.
    pub fn line(&self, what: What, of: Label) -> Vec<Amount> {
        let (board, label) = self.board(what);
        let in_second = |second: &Summary<Thing>| {
            let found = second.listed().iter().find(|counted| label(&counted.key) == of);
            found.map_or(Amount::default(), |counted| counted.at_least)
        };
        board.line.iter().map(in_second).collect()
    }

    fn board(&self, what: What) -> (&Board, fn(&Thing) -> Label) {
        match what {
            What::Hosts => (&self.hosts, Thing::host_label),
            What::Protocols => (&self.protocols, Thing::protocol_label),
        }
    }

    /// Ends the current second early, so that [`overall`](Watch::overall) has everything of a file.
    pub fn finish(&mut self) {
        if self.began.is_some() {
            self.end_seconds(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(src: u128, dst: u128, sport: u16, dport: u16) -> Key {
        Key { src, dst, proto: 6, family: 4, ..Key::default() }.with_ports(sport, dport)
    }

    /// A watch that was begun counts the seconds before the first packet.
    #[test]
    fn seconds_without_packets_count() {
        let packet = key(1, 2, 3, 4);
        for (begins, seconds) in [(false, 1), (true, 10)] {
            let mut watch = Watch::new(1);
            if begins {
                watch.begin(5);
            }
            watch.packet(9 * SECOND + SECOND / 2, &packet, 100);
            watch.finish();
            let hosts = watch.overall(What::Hosts);
            assert_eq!((hosts.seconds, hosts.total.bytes), (seconds, 200), "{begins}");
        }
    }

    fn short(largest: &Largest) -> Vec<(String, u64)> {
        largest.listed.iter().map(|counted| (counted.key.to_string(), counted.at_least.bytes)).collect()
    }

    fn named(list: &[(&str, u64)]) -> Vec<(String, u64)> {
        list.iter().map(|(name, bytes)| (name.to_string(), *bytes)).collect()
    }

    #[test]
    fn hosts_and_protocols_of_three_seconds() {
        let mut watch = Watch::new(1);
        assert_eq!(watch.largest(What::Hosts, Window::Second), None);
        let start = 5 * SECOND;
        // Second 0: 300 bytes of https and 50 of ARP. Second 1: nothing. Second 2: 40 bytes of ssh.
        watch.packet(start, &key(1, 2, 50_000, 443), 100);
        watch.packet(start + SECOND / 2, &key(2, 1, 443, 50_000), 200);
        watch.packet(start + SECOND / 2, &Key::default(), 50);
        watch.packet(start + 2 * SECOND, &key(1, 3, 22, 50_001), 40);
        // The first two seconds are over.
        let second = watch.largest(What::Protocols, Window::Second).unwrap();
        assert_eq!((short(&second), second.seconds), (named(&[]), 1));
        let ten = watch.largest(What::Protocols, Window::Ten).unwrap();
        assert_eq!(short(&ten), named(&[("tcp 443", 300), ("not IP", 50)]));
        assert_eq!((ten.total, ten.others, ten.seconds), (Amount::new(350, 3), Amount::default(), 2));
        watch.finish();
        assert_eq!(short(&watch.largest(What::Protocols, Window::Second).unwrap()), named(&[("tcp 22", 40)]));
        let hosts = watch.overall(What::Hosts);
        assert_eq!(short(&hosts), named(&[("0.0.0.1", 340), ("0.0.0.2", 300), ("0.0.0.3", 40)]));
        // Each IP packet counts for both hosts.
        assert_eq!((hosts.total, hosts.seconds, watch.total()), (Amount::new(680, 6), 3, Amount::new(390, 4)));
        let line: Vec<u64> = watch.line(What::Hosts, hosts.listed[0].key).iter().map(|amount| amount.bytes).collect();
        assert_eq!(line, [300, 0, 40]);
    }

    #[test]
    fn times_that_go_back_and_long_breaks_are_no_matter() {
        let mut watch = Watch::new(1);
        for now in [u64::MAX / 2, 0, u64::MAX / 2 + 1, u64::MAX, 3] {
            watch.packet(now, &key(1, 2, 1, 2), 10);
        }
        watch.finish();
        assert_eq!(watch.overall(What::Protocols).total, Amount::new(50, 5));
        assert_eq!(watch.line(What::Hosts, Label::NotIp).len(), LINE);
    }
}
