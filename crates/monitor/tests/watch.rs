//! The monitor of unshaped traffic, on a million packets, compared with a full count.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use altq_engine::headers::parse_ethernet;
use altq_engine::random::SplitMix64;
use altq_engine::units::SECOND;
use altq_monitor::fold::Label;
use altq_monitor::watch::{COUNTERS, Largest, Watch, What};
use altq_monitor::{Amount, Window};

const PACKETS: u64 = 1_000_000;
/// 20 seconds.
const PER_SECOND: u64 = 50_000;

/// A packet before it has bytes.
#[derive(Clone, Copy)]
struct Packet {
    src: IpAddr,
    dst: IpAddr,
    proto: u8,
    sport: u16,
    dport: u16,
    /// Length at layer 3.
    len: u16,
}

impl Packet {
    /// The beginning of its frame: Ethernet (IEEE 802.3), IPv4 (RFC 791 3.1) or IPv6 (RFC 8200 3),
    /// and eight bytes of a transport header.
    fn frame(&self) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                bytes.extend([8, 0, 0x45, 0]);
                bytes.extend(self.len.to_be_bytes());
                bytes.extend([0, 0, 0, 0, 64, self.proto, 0, 0]);
                bytes.extend(src.octets());
                bytes.extend(dst.octets());
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                bytes.extend((self.len - 40).to_be_bytes());
                bytes.extend([self.proto, 64]);
                bytes.extend(src.octets());
                bytes.extend(dst.octets());
            }
            _ => unreachable!("both ends are of one family"),
        }
        bytes.extend(self.sport.to_be_bytes());
        bytes.extend(self.dport.to_be_bytes());
        bytes.extend([0; 4]);
        bytes
    }
}

/// A random rank, from 1, by Zipf's law: rank n is 1/n as frequent as rank 1.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(count: usize) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=count).map(|n| {
            sum += 1.0 / n as f64;
            sum
        });
        Zipf(sums.collect())
    }

    fn pick(&self, random: &mut SplitMix64) -> usize {
        let all = self.0.last().copied().unwrap_or(0.0);
        let at = (random.bits() >> 11) as f64 / (1u64 << 53) as f64 * all;
        self.0.partition_point(|sum| *sum <= at).min(self.0.len() - 1) + 1
    }
}

fn host(rank: usize, v6: bool) -> IpAddr {
    if v6 {
        IpAddr::V6(Ipv6Addr::from(0x2001_0db8_u128 << 96 | rank as u128))
    } else {
        IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + rank as u32))
    }
}

/// Packets between few large and many small hosts, of few large and many small services. Every
/// fourth host speaks IPv6.
fn packets() -> impl Iterator<Item = Packet> {
    let mut random = SplitMix64::new(11);
    let (hosts, services) = (Zipf::new(5000), Zipf::new(200));
    (0..PACKETS).map(move |_| {
        let (server, service) = (hosts.pick(&mut random), services.pick(&mut random) as u16);
        let v6 = server % 4 == 0;
        let client = host(10_000 + (random.bits() % 50_000) as usize, v6);
        let (server, port) = (host(server, v6), 40_000 + (random.bits() % 20_000) as u16);
        let len = 100 + (random.bits() % 1401) as u16;
        let proto = if service.is_multiple_of(2) { 6 } else { 17 };
        if random.chance(2, 3) {
            Packet { src: server, dst: client, proto, sport: service, dport: port, len }
        } else {
            Packet { src: client, dst: server, proto, sport: port, dport: service, len }
        }
    })
}

/// The largest of a full count.
fn top<K: Hash + Eq + Ord + Copy>(all: &HashMap<K, Amount>, count: usize) -> Vec<K> {
    let mut all: Vec<(K, Amount)> = all.iter().map(|(key, amount)| (*key, *amount)).collect();
    all.sort_unstable_by_key(|(key, amount)| (Reverse(amount.bytes), *key));
    all.into_iter().take(count).map(|(key, _)| key).collect()
}

/// Checks that every label is within its bounds, and that everything larger than 1/counters of the
/// total is listed.
fn check(largest: &Largest, exact: &HashMap<Label, Amount>) {
    let total: Amount = exact.values().copied().sum();
    assert_eq!(largest.total, total);
    let listed: Amount = largest.listed.iter().map(|counted| counted.at_least).sum();
    assert_eq!(listed + largest.others, total);
    for counted in &largest.listed {
        let true_amount = exact[&counted.key];
        assert!(counted.at_least.bytes <= true_amount.bytes, "{counted:?} {true_amount:?}");
        assert!(counted.at_most().bytes >= true_amount.bytes, "{counted:?} {true_amount:?}");
        assert!(counted.at_most().packets >= true_amount.packets, "{counted:?} {true_amount:?}");
    }
    let large = exact.iter().filter(|(_, amount)| amount.bytes * COUNTERS as u64 > total.bytes);
    for (label, amount) in large {
        assert!(largest.listed.iter().any(|counted| counted.key == *label), "{label} has {amount:?} of {total:?}");
    }
}

#[test]
fn the_top_five_of_a_million_packets_are_those_of_a_full_count() {
    let mut watch = Watch::new(3);
    let (mut hosts, mut protocols): (HashMap<Label, Amount>, HashMap<Label, Amount>) = Default::default();
    // The same for the last second alone.
    let mut last: HashMap<Label, Amount> = HashMap::new();
    for (at, packet) in (0..).zip(packets()) {
        let now = at * (SECOND / PER_SECOND);
        let frame = packet.frame();
        let found = parse_ethernet(&frame, 14 + u32::from(packet.len));
        watch.packet(now, &found.key, found.key.length);
        let amount = Amount::new(u64::from(packet.len), 1);
        let protocol = Label::Port(packet.proto, packet.sport.min(packet.dport));
        *protocols.entry(protocol).or_default() += amount;
        for host in [packet.src, packet.dst] {
            *hosts.entry(Label::Host(host)).or_default() += amount;
        }
        if now >= 19 * SECOND {
            *last.entry(protocol).or_default() += amount;
        }
    }
    watch.finish();
    let names = |largest: &Largest| largest.listed.iter().take(5).map(|counted| counted.key).collect::<Vec<_>>();
    for (what, exact) in [(What::Hosts, &hosts), (What::Protocols, &protocols)] {
        let overall = watch.overall(what);
        assert_eq!(overall.seconds, 20);
        check(&overall, exact);
        assert_eq!(names(&overall), top(exact, 5), "{what:?}");
    }
    // 200 protocols fit into the counters, so everything about them is exact.
    let second = watch.largest(What::Protocols, Window::Second).unwrap();
    check(&second, &last);
    assert_eq!((second.others, names(&second)), (Amount::default(), top(&last, 5)));
    // The first service has an even or odd number like any other: port 1 is the largest, of UDP.
    assert_eq!(top(&protocols, 1), [Label::Port(17, 1)]);
    let line = watch.line(What::Protocols, Label::Port(17, 1));
    assert_eq!((line.len(), line.iter().copied().sum::<Amount>()), (20, protocols[&Label::Port(17, 1)]));
}
