//! Compares filters with the engine's own classifier: for any rules, each packet comes to the class
//! that the policy names. The filters are tried as in the manual pages tc-u32(8), tc-flower(8) and
//! tc-fw(8), on packets whose bytes are laid out by hand (RFC 791, RFC 8200, RFC 9293, RFC 768).

use altq_config::{Language, Link, parse_str};
use altq_engine::classify::Classifier;
use altq_engine::headers::parse_ip;
use altq_engine::spec::ClassId;
use altq_kernel::{
    Filter, FlowerKeys, Handle, Host, Match, Place, Protocol, Qdisc, QdiscWords, Target, Tree, translate,
};

/// Numbers that look random (splitmix64: Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// A packet that is not a fragment and has no options or extension headers.
#[derive(Clone, Copy, Debug)]
struct Packet {
    v6: bool,
    src: u128,
    dst: u128,
    proto: u8,
    sport: u16,
    dport: u16,
    tos: u8,
    tcp_flags: u8,
    length: u16,
    mark: u32,
}

const V4: [u128; 5] = [0x0a01_0203, 0x0a01_0003, 0x0a02_0003, 0x0b01_0203, 0xc000_0201];
const V6: [u128; 3] = [
    0x2001_0db8_0001_0000_0000_0000_0000_0001,
    0x2001_0db8_0002_0000_0000_0000_0000_0001,
    0x2001_0db9_0000_0000_0000_0000_0000_0005,
];

impl Packet {
    fn any(random: &mut Random) -> Packet {
        let v6 = random.below(3) == 0;
        let hosts: &[u128] = if v6 { &V6 } else { &V4 };
        Packet {
            v6,
            src: random.pick(hosts),
            dst: random.pick(hosts),
            proto: random.pick(&[1, 6, 6, 17, 17, 132]),
            sport: random.pick(&[0, 53, 80, 1000, 40_000]),
            dport: random.pick(&[22, 53, 80, 443, 1500, 2000]),
            tos: random.pick(&[0, 0, 1, 3, 0x28, 0x30, 0xb8, 0xba]),
            tcp_flags: random.pick(&[0x02, 0x10, 0x12, 0x18]),
            length: random.pick(&[60, 100, 128, 129, 576, 1500]),
            mark: random.pick(&[0, 0, 1, 3, 0x15, 0x25]),
        }
    }

    fn has_ports(&self) -> bool {
        matches!(self.proto, 6 | 17 | 132)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.v6 {
            let first = 6 << 28 | u32::from(self.tos) << 20;
            bytes.extend(first.to_be_bytes());
            bytes.extend((self.length - 40).to_be_bytes());
            bytes.extend([self.proto, 64]);
            bytes.extend(self.src.to_be_bytes());
            bytes.extend(self.dst.to_be_bytes());
        } else {
            bytes.extend([0x45, self.tos]);
            bytes.extend(self.length.to_be_bytes());
            bytes.extend([0, 0, 0, 0, 64, self.proto, 0, 0]);
            bytes.extend((self.src as u32).to_be_bytes());
            bytes.extend((self.dst as u32).to_be_bytes());
        }
        let start = bytes.len();
        bytes.extend(self.sport.to_be_bytes());
        bytes.extend(self.dport.to_be_bytes());
        bytes.resize(start + 20, 0);
        if self.proto == 6 {
            bytes[start + 12] = 0x50;
            bytes[start + 13] = self.tcp_flags;
        }
        bytes
    }
}

/// Whether a filter matches a packet.
fn takes(filter: &Filter, packet: &Packet, bytes: &[u8]) -> bool {
    let family = match filter.protocol {
        Protocol::All => true,
        Protocol::Ip => !packet.v6,
        Protocol::Ipv6 => packet.v6,
        Protocol::Vlan => false,
    };
    family
        && match &filter.matches {
            Match::Mark { value, mask } => packet.mark & mask == *value,
            Match::Flower(keys) => flower(keys, packet),
            Match::U32 { keys, mark, indev } => {
                assert_eq!(*indev, None);
                let word = |at: u16| {
                    let at = usize::from(at);
                    bytes.get(at..at + 4).map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
                };
                mark.is_none_or(|(value, mask)| packet.mark & mask == value)
                    && keys
                        .iter()
                        .all(|key| word(key.offset).is_some_and(|word| word & key.mask == key.value & key.mask))
            }
        }
}

fn flower(keys: &FlowerKeys, packet: &Packet) -> bool {
    let width = if packet.v6 { 128 } else { 32 };
    let within = |prefix: Option<(u128, u8)>, address: u128| {
        prefix.is_none_or(|(bits, len)| (bits ^ address).checked_shr(width - u32::from(len)).unwrap_or(0) == 0)
    };
    let port = |range: Option<(u16, u16)>, port: u16| {
        range.is_none_or(|(from, to)| packet.has_ports() && (from..=to).contains(&port))
    };
    keys.proto.is_none_or(|proto| proto == packet.proto)
        && within(keys.src, packet.src)
        && within(keys.dst, packet.dst)
        && port(keys.sport, packet.sport)
        && port(keys.dport, packet.dport)
        && keys.tos.is_none_or(|(value, mask)| packet.tos & mask == value)
        && keys.tcp_flags.is_none_or(|(value, mask)| packet.proto == 6 && packet.tcp_flags & mask == value)
        && keys.vlan.is_none()
        && keys.inner_v6.is_none()
}

/// Where the filters of a table, or with 0 those that are tried by themselves, send a packet. Where
/// no filter of a table matches, the one behind the filter that led there is tried.
fn chosen(filters: &[&Filter], table: u16, packet: &Packet, bytes: &[u8]) -> Option<Target> {
    let own = filters.iter().filter(|filter| filter.table == table && takes(filter, packet, bytes));
    own.map(|filter| filter.to).find_map(|to| match to {
        Target::Table(inner) => chosen(filters, inner, packet, bytes),
        to => Some(to),
    })
}

/// The class in whose queue a packet lands; `None` if it is dropped.
fn lands(tree: &Tree, packet: &Packet) -> Option<ClassId> {
    let bytes = packet.bytes();
    let mut at: &Qdisc = &tree.qdiscs[0];
    loop {
        if at.holds.is_some() {
            return at.holds;
        }
        let mut filters: Vec<&Filter> = at.filters.iter().collect();
        filters.sort_by_key(|filter| filter.prio);
        let own = |minor: u16| Handle::new(at.handle.major(), minor);
        let to = match chosen(&filters, 0, packet, &bytes) {
            Some(Target::Drop) => return None,
            Some(Target::Class(class)) => class,
            Some(Target::Table(table)) => panic!("table {table} is no place for a packet"),
            None => match at.words {
                QdiscWords::Htb { default: 0 } => panic!("it passes unshaped"),
                QdiscWords::Hfsc { default: 0 } | QdiscWords::Drr => return None,
                QdiscWords::Htb { default } | QdiscWords::Hfsc { default } => own(default),
                QdiscWords::Prio { default, .. } => own(u16::from(default) + 1),
                _ => panic!("{:?} has classes", at.words),
            },
        };
        at = tree.qdiscs.iter().find(|qdisc| qdisc.parent == to).expect("each class has a qdisc");
    }
}

/// Links with the classes a to d: side by side and inside each other.
const LINKS: [&str; 5] = [
    "scheduler htb
        class a { rate 1Mbit/s } class b { rate 1Mbit/s } class c { rate 1Mbit/s } class d { rate 1Mbit/s  default }",
    "scheduler htb
        class site { rate 4Mbit/s  scheduler drr
            class a { quantum 1600 } class b { quantum 1600  default } }
        class c { rate 1Mbit/s } class d { rate 1Mbit/s }",
    "scheduler priq
        class a { priority 1 } class b { priority 4 } class c { priority 2  default } class d { priority 3 }",
    "scheduler hfsc
        class site { linkshare 4Mbit/s  scheduler priq
            class a { priority 1 } class b { priority 2  scheduler drr
                class c { quantum 1600 } class other { quantum 1600 } } }
        class d { linkshare 1Mbit/s  default }",
    "scheduler drr
        class a { quantum 1600 } class b { quantum 1600 } class c { quantum 1600 } class d { quantum 1600  default }",
];

const TERMS: [&[&str]; 13] = [
    &["src 10.0.0.0/8", "src 10.1.0.0/16", "src !10.1.0.0/16", "src 10.0.0.0/8,!10.1.0.0/16", "src 2001:db8:1::/48"],
    &["dst 10.1.2.3", "dst 2001:db8::/32", "dst 10.0.0.3/255.0.0.255", "dst !2001:db8::/32", "dst 192.0.2.0/24"],
    &["host 10.1.2.3", "host 10.0.0.0/8", "host !10.1.2.3"],
    &["proto tcp", "proto udp", "proto 1", "proto 6,17", "proto 1-17"],
    &["dport 80", "dport 80,443", "dport 1000-1999", "dport 20-79"],
    &["sport 53", "sport 0-1000", "sport 1000-60000"],
    &["port 53", "port 80-500"],
    &["dscp ef", "dscp !ef", "dscp af11-af12", "dscp 0,46"],
    &["ecn ce", "ecn 1-2", "ecn !0"],
    &["tos 0xb8/0xfc", "tos 0"],
    &["tcp-flags syn", "tcp-flags syn/syn+ack", "tcp-flags syn+ack"],
    &["length 0-128", "length 129-1500", "length !0-575"],
    &["mark 1", "mark 0x10/0xf0", "mark 0", "mark !1", "mark 1-3", "family ipv4", "family ipv6"],
];

/// A link with random rules; `None` if a rule can match nothing.
fn made_up(random: &mut Random) -> Option<(String, Link)> {
    let mut text = format!("link wan {{ device eth0  rate 10Mbit/s  {}\n", random.pick(&LINKS));
    for _ in 0..1 + random.below(8) {
        let mut terms: Vec<usize> = (0..1 + random.below(3)).map(|_| random.below(TERMS.len())).collect();
        terms.sort_unstable();
        terms.dedup();
        let words: Vec<&str> = terms.into_iter().map(|term| random.pick(TERMS[term])).collect();
        text += &format!("match {} -> {}\n", words.join(" "), random.pick(&["a", "b", "c", "d"]));
    }
    text += "}";
    // If `b` has classes below it, it has no packets of its own.
    let text = if text.contains("class other") { text.replace("-> b", "-> other") } else { text };
    let policy = parse_str(&text, "test.altq", Language::Native).ok()?;
    Some((text, policy.links.into_iter().next()?))
}

#[test]
fn each_packet_comes_to_the_class_that_the_policy_names() {
    let mut random = Random(1);
    let (mut links, mut packets, mut named) = (0, 0, 0);
    for _ in 0..400 {
        let Some((text, link)) = made_up(&mut random) else { continue };
        let mut classifier = Classifier::new(&link.spec.rules, link.spec.default);
        let variants = Host::default().variants();
        let mut trees: Vec<(Host, Tree)> = Vec::new();
        for host in variants {
            match translate(&link, &host, Place::ROOT) {
                Ok(tree) => trees.push((host, tree)),
                Err(errors) => assert!(errors[0].message.contains("more than 4096 filters"), "{errors:?}\n{text}"),
            }
        }
        links += usize::from(!trees.is_empty());
        for _ in 0..40 {
            let packet = Packet::any(&mut random);
            let bytes = packet.bytes();
            let mut key = parse_ip(&bytes, u32::from(packet.length)).key;
            key.mark = packet.mark;
            let wanted = classifier.classify(&key);
            packets += 1;
            named += usize::from(wanted != link.spec.default);
            for (host, tree) in &trees {
                assert_eq!(lands(tree, &packet), wanted, "{host:?}\n{packet:?}\n{text}");
            }
        }
    }
    assert!(links > 200 && named > packets / 5, "{links} links, {named} of {packets} packets by a rule");
}
