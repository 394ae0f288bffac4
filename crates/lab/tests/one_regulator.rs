//! `regulator auto` means one thing: `altq replay`, the simulator and the live loop send the same
//! packets at the same times, whatever ring the device has.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use altq_cases::case::Case;
use altq_config::{Language, Link, parse_str};
use altq_dataplane::channel::{Channel, Timed};
use altq_dataplane::shaper::{Shaper, Tuning};
use altq_dataplane::vnet::Vnet;
use altq_engine::random::SplitMix64;
use altq_engine::units::{Nanos, SECOND};
use altq_engine::{Departure, Drop};
use altq_simulator::replay::{self, Arrivals, Observer, Options};
use altq_simulator::sim::{self, Capture, Recorder};

/// A packet: when it comes, its destination port, its length at layer 3. Its source port is its
/// number.
type Packet = (Nanos, u16, usize);

/// What left: when, and its number.
type Left = Vec<(Nanos, u16)>;

const POLICIES: [&str; 6] = [
    "rate 2Mbit/s scheduler cbq class a { share 20% borrow } class b { share 80% borrow default }",
    "rate 3333kbit/s overhead pppoe-llcsnap scheduler cbq class a { share 30% } class b { share 60% default }",
    "rate 20Mbit/s overhead ethernet scheduler priq class a { priority 5 } class b { default }",
    "rate 7Mbit/s scheduler htb class a { rate 1Mbit/s ceil 2Mbit/s } class b { rate 5Mbit/s default }",
    "rate 5Mbit/s scheduler hfsc class a { linkshare 1Mbit/s upperlimit 3Mbit/s } \
     class b { linkshare 4Mbit/s default }",
    "rate 1Mbit/s scheduler drr class a { queue codel } class b { default }",
];

fn policy(words: &str) -> String {
    format!("link wan {{ {words}\n match dport 2000 -> a }}")
}

fn link(text: &str) -> Link {
    parse_str(text, "test.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}")).links.remove(0)
}

/// A UDP frame over IPv4 and Ethernet.
fn frame(number: usize, dport: u16, length: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    bytes.extend((length as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend((number as u16).to_be_bytes());
    bytes.extend(dport.to_be_bytes());
    bytes.extend(((length - 20) as u16).to_be_bytes());
    bytes.resize(14 + length, 0);
    bytes
}

fn number(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[34], bytes[35]])
}

#[derive(Default)]
struct Sends(Left);

impl Observer for Sends {
    fn sent(&mut self, now: Nanos, at: usize, _: &Departure, _: Nanos) -> io::Result<()> {
        self.0.push((now, at as u16));
        Ok(())
    }

    fn dropped(&mut self, _: usize, _: &Drop) -> io::Result<()> {
        Ok(())
    }
}

fn replayed(link: &Link, packets: &[Packet], ring: usize) -> Left {
    let mut arrivals = Arrivals::default();
    for (number, (at, dport, length)) in packets.iter().enumerate() {
        let class = link.class(if *dport == 2000 { "a" } else { "b" }).unwrap();
        assert!(arrivals.push(*at, class, *length as u32, number as u64));
    }
    let mut sends = Sends::default();
    replay::run(link, &arrivals, &Options { tx_ring: ring, ..Options::default() }, &mut sends).unwrap();
    sends.0
}

fn simulated(folder: &Path, policy: &str, packets: &[Packet], ring: usize) -> Left {
    let mut pcap = Recorder::new(Vec::new()).unwrap();
    for (number, (at, dport, length)) in packets.iter().enumerate() {
        let frame = frame(number, *dport, *length);
        pcap.write(*at, &frame, frame.len() as u32).unwrap();
    }
    std::fs::write(folder.join("in.pcap"), pcap.finish().unwrap()).unwrap();
    let case = format!(
        "name = 't'\ndescription = 'd'\nduration = '60s'\npolicy = '''{policy}'''\n\
         hosts = [{{ name = 'a' }}, {{ name = 'b' }}]\n\
         links = [{{ name = 'wan', from = 'a', to = 'b', policy = 'wan', tx_ring = {ring} }}]\n\
         [[flows]]\nname = 'f'\nkind = 'pcap'\nfrom = 'a'\nto = 'b'\nfile = 'in.pcap'\n"
    );
    let case = Case::parse(&case, &folder.join("t.toml")).unwrap_or_else(|error| panic!("{error}"));
    let mut out = Vec::new();
    sim::run(&case, 1, Some(&mut out)).unwrap_or_else(|error| panic!("{error}"));
    // A capture's times count from its first packet, which leaves at 0, when it comes.
    let capture = Capture::read(out).unwrap();
    capture.frames.iter().map(|frame| (frame.time, frame.key.sport().unwrap())).collect()
}

fn looped(link: &Link, packets: &[Packet]) -> Left {
    let mut channel = Channel::new(60 * SECOND);
    for (number, (at, dport, length)) in packets.iter().enumerate() {
        channel.arrive(Timed { at: *at, bytes: frame(number, *dport, *length), vnet: Vnet::default() });
    }
    let tuning = Tuning { memory: 16 << 20, interval: None, ..Tuning::default() };
    let mut shaper = Shaper::new(link, "inside", channel, tuning).unwrap();
    shaper.run(|_| ()).unwrap();
    shaper.edge().departed().iter().map(|frame| (frame.at, number(&frame.bytes))).collect()
}

#[test]
fn replay_simulator_and_live_loop_send_the_same_packets_at_the_same_times() {
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = SplitMix64::new(seed);
    let mut below = move |n: u64| random.bits() % n;
    let folder = std::env::temp_dir().join(format!("altq-one-regulator-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (mut compared, mut differs) = (0, 0);
    for round in 0..60 {
        let words = POLICIES[round % POLICIES.len()];
        let text = policy(words);
        let link = link(&text);
        // Bursts and pauses, from half the rate to twice.
        let byte = 8 * SECOND / link.spec.rate.as_bit_s() + 1;
        let load = 50 + below(150);
        let (mut packets, mut at): (Vec<Packet>, Nanos) = (Vec::new(), 0);
        while packets.len() < 400 {
            for _ in 0..1 + below(6) {
                let length = [40, 300, 576, 1500][below(4) as usize];
                packets.push((at, if below(3) == 0 { 2000 } else { 3000 }, length));
                at += 1 + below(2 * byte * length as u64 * 100 / load);
            }
            at += below(40_000_000) * below(2);
        }
        let expected = replayed(&link, &packets, 64);
        // At one instant the loop before a device sees what has come before it sends; the others
        // send first.
        let left: HashMap<Nanos, u16> = expected.iter().copied().collect();
        if packets.iter().enumerate().any(|(number, (at, ..))| left.get(at).is_some_and(|n| usize::from(*n) != number))
        {
            continue;
        }
        for ring in [1, 2, 1000] {
            assert_eq!(replayed(&link, &packets, ring), expected, "round {round}, ring {ring}: {text}");
        }
        for ring in [1, 64] {
            assert_eq!(simulated(&folder, &text, &packets, ring), expected, "round {round}, ring {ring}: {text}");
        }
        assert_eq!(looped(&link, &packets), expected, "round {round}: {text}");
        let unregulated = self::link(&policy(&format!("regulator none {words}")));
        differs += u32::from(replayed(&unregulated, &packets, 64) != expected);
        compared += 1;
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(compared > 40 && differs > compared / 2, "{compared} {differs}");
}
