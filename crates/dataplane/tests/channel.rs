//! The loop on an edge in memory, whose clock moves only by events: every run is the same, to the
//! nanosecond.

use altq_config::{Language, Link, parse_str};
use altq_dataplane::channel::{Channel, Timed};
use altq_dataplane::shaper::{Shaper, Tuning};
use altq_dataplane::stats::{Report, Snapshot, Totals};
use altq_dataplane::vnet::{GSO_NONE, GSO_TCPV4, NEEDS_CSUM, Vnet};
use altq_engine::Change;
use altq_engine::settings::Value;
use altq_engine::shape::pacer;
use altq_engine::spec::ROOT;
use altq_engine::units::Rate;
use altq_monitor::promise::{Claim, Promises};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn link(text: &str) -> Link {
    let policy = parse_str(text, "test.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
    policy.links.into_iter().next().unwrap()
}

const SHARES: &str = "link wan { device bridge a b  rate 100Mbit/s  scheduler cbq
    class low  { share 20% borrow }
    class high { share 80% borrow default }
    match dport 5001 -> low }";

/// A UDP or TCP frame over IPv4 with `length` bytes at layer 3. Its last two bytes count frames.
fn frame(proto: u8, dport: u16, length: usize, number: u16) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    bytes.extend((length as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([0x9c, 0x40]);
    bytes.extend(dport.to_be_bytes());
    if proto == 17 {
        bytes.extend(((length - 20) as u16).to_be_bytes());
        bytes.extend([0, 0]);
    } else {
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
    }
    bytes.resize(14 + length, 0);
    let end = bytes.len();
    bytes[end - 2..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn dport(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[36], frame[37]])
}

/// Bytes at layer 3.
fn length(frame: &Timed) -> u64 {
    frame.bytes.len() as u64 - 14
}

/// Runs a link over frames in order of time; returns what left, and the last snapshot.
fn run(link: &Link, frames: Vec<Timed>, end: u64, prepare: impl FnOnce(&mut Channel)) -> (Vec<Timed>, Snapshot) {
    let mut channel = Channel::new(end);
    frames.into_iter().for_each(|frame| channel.arrive(frame));
    prepare(&mut channel);
    let mut shaper = Shaper::new(link, "a", channel, Tuning { memory: 64 << 20, ..Tuning::default() }).unwrap();
    let (mut totals, mut last) = (Totals::default(), None);
    shaper.run(|report| last = Some(totals.sum(report))).unwrap();
    (shaper.edge().departed(), last.unwrap())
}

/// Both classes are offered more than the link carries: `low` gets small frames, `high` large ones.
fn overload(until: u64) -> Vec<Timed> {
    let mut frames = Vec::new();
    let (mut low, mut high) = (0, 40_000);
    let mut number = 0u16;
    while low.min(high) < until {
        number = number.wrapping_add(1);
        let (at, port, size) = if low <= high { (low, 5001, 300) } else { (high, 80, 1500) };
        frames.push(Timed { at, bytes: frame(17, port, size, number), vnet: Vnet::default() });
        // 60 Mbit/s for `low`, 120 Mbit/s for `high`.
        if port == 5001 { low += 40_000 } else { high += 100_000 }
    }
    frames
}

#[test]
fn a_link_changes_while_it_runs() {
    // There is a snapshot every 100 ms. At the one at 1 s the link's rate is halved, and the
    // classes get other shares.
    let mut channel = Channel::new(2 * SECOND);
    overload(2 * SECOND).into_iter().for_each(|frame| channel.arrive(frame));
    let tuning = Tuning { memory: 64 << 20, interval: Some(100 * MS), ..Tuning::default() };
    let link = link(SHARES);
    let mut shaper = Shaper::new(&link, "a", channel, tuning).unwrap();
    let (changes, listener) = std::sync::mpsc::channel();
    shaper.listen(listener);
    let class = |name: &str, share: u64| {
        let id = link.class(name).unwrap();
        let mut settings = link.spec.classes[id as usize].settings.clone();
        settings.set("rate", Value::Rate(Rate::mbit_s(share)));
        Change::SetClass { class: id, parent: ROOT, settings }
    };
    let list = [Change::SetRate(Rate::mbit_s(50)), class("high", 15), class("low", 35)];
    let (mut totals, mut last) = (Totals::default(), None);
    shaper
        .run(|report| {
            let snapshot = totals.sum(report);
            if snapshot.at == SECOND {
                changes.send(list.to_vec()).unwrap();
                // A class that does not exist: the change is refused and counted.
                changes.send(vec![Change::RemoveClass { class: 77, heir: None }]).unwrap();
            }
            last = Some(snapshot);
        })
        .unwrap();
    assert_eq!(last.unwrap().work.unchanged, 1);
    let left = shaper.edge().departed();
    let rate = |port: u16, from: u64, to: u64| {
        let bytes: u64 =
            left.iter().filter(|f| (from..to).contains(&f.at) && dport(&f.bytes) == port).map(length).sum();
        bytes as f64 * 8e9 / (to - from) as f64 / 1e6
    };
    for (port, from, to, wanted) in [
        (5001, 200 * MS, SECOND, 20.0),
        (80, 200 * MS, SECOND, 80.0),
        (5001, 1_200 * MS, 2 * SECOND, 35.0),
        (80, 1_200 * MS, 2 * SECOND, 15.0),
    ] {
        let measured = rate(port, from, to);
        assert!((measured / wanted - 1.0).abs() < 0.02, "{port} from {from}: {measured} of {wanted}");
    }
}

/// Runs a link for four seconds with more than it carries, and somebody who watches: for each
/// count, for how long packets of `low` have waited, and the bytes that the link has charged for it
/// by then.
fn watched(text: &str) -> Vec<(u64, u64)> {
    let link = link(text);
    let low = link.class("low").unwrap() as usize;
    let mut channel = Channel::new(4 * SECOND);
    overload(4 * SECOND).into_iter().for_each(|frame| channel.arrive(frame));
    let tuning = Tuning { memory: 64 << 20, interval: Some(SECOND), flows: 10, ..Tuning::default() };
    let mut shaper = Shaper::new(&link, "a", channel, tuning).unwrap();
    let (mut rows, mut late) = (Vec::new(), (0, 0));
    shaper
        .run(|report| {
            let Report::Counts(counts) = report else { panic!("the loop counts") };
            let own = &counts.classes[low];
            rows.push((own.backlogged, own.counters.sent_wire_bytes));
            late = (late.0 + counts.late.count(), late.1.max(counts.late.max()));
            assert_eq!(late, (counts.work.timers, counts.work.latest));
        })
        .unwrap();
    rows
}

#[test]
fn who_waits_and_gets_a_guarantee_is_told_from_who_does_not() {
    let rows = watched(SHARES);
    let kept = |rate: u64| {
        let mut promises = Promises::default();
        let claim = |backlogged| Claim { backlogged, rate: Rate::mbit_s(rate), latency: Some(10 * MS) };
        let pairs = rows.windows(2).take(3);
        let kept = pairs.map(|pair| promises.second(1, SECOND, claim(pair[1].0), pair[1].1 - pair[0].1));
        kept.fold((0, 0), |(promised, missed), kept| (promised + kept.promised, missed + kept.missed))
    };
    // The first count begins to look; a tenth of the next second claims nothing.
    assert_eq!(rows[0].0, 0);
    assert!((890 * MS..920 * MS).contains(&rows[1].0), "{rows:?}");
    assert!((990 * MS..=1010 * MS).contains(&rows[2].0), "{rows:?}");
    // 20 Mbit/s for some 2.9 s are 7.25 MB, all of which it got. Of 30 Mbit/s, 10.9 MB, it did not
    // get a third; a tenth of a second of it, 375 kB, may be late.
    let (promised, missed) = kept(20);
    assert!((7_100_000..7_400_000).contains(&promised) && missed == 0, "{promised} {missed}");
    let (promised, missed) = kept(30);
    assert!((10_700_000..11_000_000).contains(&promised), "{promised}");
    assert!((2_800_000..3_300_000).contains(&missed), "{missed}");
    // A class that never gets anything waits all the time: seen at the first count and from then
    // on.
    let starved = "link wan { device bridge a b  rate 100Mbit/s  scheduler priq
        class low { priority 1 }  class high { priority 2 default }  match dport 5001 -> low }";
    let rows = watched(starved);
    let waited: Vec<u64> = rows.iter().map(|(waited, _)| waited / MS).collect();
    assert_eq!(waited[..3], [0, 900, 1000], "{rows:?}");
    assert_eq!(rows[2].1, rows[0].1);
}

#[test]
fn shares_of_twenty_and_eighty_to_the_packet() {
    let (left, last) = run(&link(SHARES), overload(3 * SECOND), 3 * SECOND, |_| {});
    let sent =
        |port: u16| left.iter().filter(|f| f.at >= SECOND && dport(&f.bytes) == port).map(length).sum::<u64>() as f64;
    let (low, high) = (sent(5001), sent(80));
    // 100 Mbit/s for two seconds are 25 MB; a large packet may be missing at either end.
    assert!((low + high - 25e6).abs() <= 3000.0, "{}", low + high);
    assert!((low / (low + high) - 0.2).abs() <= 0.2 * 0.005, "{low} {high}");
    // Everything that is lost is counted.
    let root = &last.classes[0].counters;
    assert_eq!(root.received_packets(), last.edge.received);
    assert_eq!(root.sent_packets, last.edge.sent);
    assert_eq!(root.received_packets(), root.sent_packets + root.dropped_packets + root.queued_packets);
    assert_eq!(
        last.classes[0].counters.sent_bytes,
        last.classes[1].counters.sent_bytes + last.classes[2].counters.sent_bytes
    );
}

#[test]
fn every_run_is_the_same() {
    let once = || run(&link(SHARES), overload(SECOND / 2), SECOND / 2, |channel| channel.gulp(3));
    assert_eq!(once().0, once().0);
}

#[test]
fn the_wire_is_never_faster_than_its_rate() {
    // Everything arrives at once after 100 ms of silence, and more while the first packets are
    // leaving.
    let mut frames = Vec::new();
    for (at, count) in [(100 * MS, 48), (102 * MS, 24)] {
        frames.extend((0..count).map(|n| Timed { at, bytes: frame(17, 80, 1500, n), vnet: Vnet::default() }));
    }
    let (left, _) = run(&link(SHARES), frames, SECOND, |channel| channel.seen_late(pacer::SEEN_LATE));
    assert_eq!(left.len(), 72);
    let numbers: Vec<&[u8]> = left.iter().map(|f| &f.bytes[1512..]).collect();
    assert!(numbers[..48].is_sorted() && numbers[48..].is_sorted(), "packets of a flow stay in order");
    for from in 0..left.len() {
        let mut bytes = 0;
        for to in &left[from..] {
            bytes += length(to);
            // 100 Mbit/s are 80 ns per byte. After idle time, what the link carries in 1 ms may
            // leave at once, plus one packet, because the loop may see frames 1 ms late.
            assert!(bytes * 80 <= to.at - left[from].at + MS + 120_000, "{from}");
        }
    }
    // It is not slower either: everything leaves in the time that it takes on the wire.
    assert!(left[71].at <= 100 * MS + 72 * 120_000);
}

#[test]
fn a_full_device_holds_and_loses_nothing() {
    let frames: Vec<Timed> =
        (0..1000).map(|n| Timed { at: n * MS, bytes: frame(17, 80, 1000, n as u16), vnet: Vnet::default() }).collect();
    let (left, last) = run(&link(SHARES), frames, 2 * SECOND, |channel| {
        channel.gulp(2);
        channel.block(300 * MS, 340 * MS);
        channel.block(700 * MS, 701 * MS);
    });
    let numbers: Vec<u16> = left.iter().map(|f| u16::from_be_bytes([f.bytes[1012], f.bytes[1013]])).collect();
    assert_eq!(numbers, (0..1000).collect::<Vec<u16>>());
    assert!(left.iter().all(|f| !(300 * MS..340 * MS).contains(&f.at)));
    assert!(last.edge.blocked > 0 && last.edge.dropped() == 0);
}

/// A TCP super-packet as the kernel hands it over: `payload` bytes in segments of 1460.
fn super_packet(at: u64, dport: u16, payload: usize) -> Timed {
    let vnet =
        Vnet { flags: NEEDS_CSUM, gso_type: GSO_TCPV4, hdr_len: 54, gso_size: 1460, csum_start: 34, csum_offset: 16 };
    Timed { at, bytes: frame(6, dport, 40 + payload, 7), vnet }
}

#[test]
fn super_packets_are_charged_as_they_are_on_the_wire_and_cut_to_a_millisecond() {
    for (rate, segments) in [("1Mbit/s", 1), ("100Mbit/s", 8), ("10Gbit/s", 44)] {
        let text = format!(
            "link wan {{ device bridge a b  rate {rate}  scheduler fifo  \
             class all {{ default  queue drop_tail {{ limit 500packets }} }} }}"
        );
        let (left, last) = run(&link(&text), vec![super_packet(0, 80, 64_000)], 2 * SECOND, |_| {});
        // 64,000 bytes are 43 full segments and one of 1,220 bytes; each carries 40 bytes of
        // headers.
        assert_eq!(last.classes[0].counters.sent_bytes, 64_000 + 44 * 40, "{rate}");
        assert_eq!(left.len(), 44usize.div_ceil(segments), "{rate}");
        // At 100 Mbit/s 1 ms is 12,500 bytes: eight segments of 1,500. At 1 Mbit/s a single segment
        // takes 12 ms.
        let payload: u64 = left.iter().map(|f| length(f) - 40).sum();
        assert_eq!(payload, 64_000, "{rate}");
        assert!(left.iter().all(|f| (length(f) - 40).div_ceil(1460) <= segments as u64), "{rate}");
    }
}

/// Where super-packets are cut, pieces of few of them wait with the memory in which they came: the
/// others are cut into single packets. Nothing is lost.
#[test]
fn a_long_queue_of_super_packets_is_one_of_single_packets() {
    let link = link(
        "link wan { device bridge a b  rate 100Mbit/s  scheduler fifo
            class all { default  queue drop_tail { limit 10000packets } } }",
    );
    let (left, last) = run(&link, (0..200).map(|_| super_packet(0, 80, 64_000)).collect(), 2 * SECOND, |_| {});
    assert_eq!((last.work.supers, last.work.uncut), (200, 0));
    assert_eq!(left.iter().map(|f| length(f) - 40).sum::<u64>(), 200 * 64_000);
    // Six pieces each of at most two batches of 64 super-packets.
    let pieces = left.iter().filter(|f| length(f) > 1500).count();
    assert!((6..=6 * 128).contains(&pieces), "{pieces} of {}", left.len());
}

/// Each packet on the wire has its own colour (RFC 2697 3), at every rate: of 43 packets of 1,500
/// bytes and one of 1,260 that come at once, bucket C of 15,000 bytes has tokens for ten, and
/// bucket E of 7,500 for five.
#[test]
fn a_meter_colours_the_packets_of_a_super_packet_one_by_one() {
    let text = "link wan { device bridge a b  rate 10Gbit/s  scheduler fifo
        class all { default  queue drop_tail { limit 500packets }
            meter srtcm { cir 1Mbit/s  cbs 15000bytes  ebs 7500bytes  yellow dscp af12  red drop } } }";
    let (left, last) = run(&link(text), vec![super_packet(0, 80, 64_000)], SECOND, |_| {});
    let dscps: Vec<u8> = left.iter().map(|frame| frame.bytes[15] >> 2).collect();
    assert_eq!(dscps, [[0_u8; 10].as_slice(), &[12; 5]].concat());
    assert_eq!(last.classes[0].counters.dropped_packets, 29);
    // A meter that comes with a change counts as well.
    let plain = text.split_once("meter").unwrap().0.to_owned() + "} }";
    let (from, to) = (link(&plain), link(text));
    let mut channel = Channel::new(SECOND);
    channel.arrive(super_packet(MS, 80, 64_000));
    let mut shaper = Shaper::new(&from, "a", channel, Tuning { memory: 64 << 20, ..Tuning::default() }).unwrap();
    let (changes, listener) = std::sync::mpsc::channel();
    shaper.listen(listener);
    let class = to.class("all").unwrap();
    let settings = to.spec.classes[class as usize].settings.clone();
    changes.send(vec![Change::SetClass { class, parent: ROOT, settings }]).unwrap();
    shaper.run(|_| {}).unwrap();
    assert_eq!(shaper.edge().departed().len(), 15);
}

/// The kernel cannot segment packets inside PPPoE or MPLS, so single packets leave. Their class is
/// found by the inner header, and they are charged as the inner packets.
#[test]
fn super_packets_in_sessions_and_behind_labels_leave_as_single_packets() {
    let session = |length: usize| {
        let [high, low] = ((length + 2) as u16).to_be_bytes();
        vec![0x88, 0x64, 0x11, 0, 0, 1, high, low, 0, 0x21]
    };
    let labels = |_: usize| vec![0x88, 0x47, 0, 6, 0x40, 64, 0, 1, 1, 64];
    let wraps: [&dyn Fn(usize) -> Vec<u8>; 2] = [&session, &labels];
    let link = link(&SHARES.replace("100Mbit", "10Gbit"));
    for wrap in wraps {
        for (payload, packets) in [(64_000, 44), (1460, 1), (100, 1)] {
            let mut whole = super_packet(0, 5001, payload);
            whole.bytes.splice(12..14, wrap(40 + payload));
            whole.vnet = Vnet { hdr_len: 62, csum_start: 42, ..whole.vnet };
            let (left, last) = run(&link, vec![whole], SECOND, |_| {});
            let low = &last.classes[link.class("low").unwrap() as usize].counters;
            assert_eq!(low.sent_bytes as usize, payload + packets * 40);
            assert_eq!(left.len(), packets);
            for frame in &left {
                let vnet = &frame.vnet;
                assert_eq!((vnet.flags, vnet.gso_type, vnet.gso_size), (0, GSO_NONE, 0), "nothing left to do");
                let length = frame.bytes.len() - 22;
                assert_eq!(frame.bytes[12..22], wrap(length), "length of {length}");
                assert_eq!(frame.bytes[24..26], (length as u16).to_be_bytes());
            }
            assert_eq!(left.iter().map(|f| f.bytes.len() - 62).sum::<usize>(), payload);
        }
    }
}

#[test]
fn super_packets_take_no_more_than_their_share() {
    // `low` sends super-packets and `high` single packets, each more than the whole link carries.
    let mut frames: Vec<Timed> = (0..600).map(|n| super_packet(n * 5 * MS, 5001, 64_000)).collect();
    frames.extend((0..30_000).map(|n| Timed {
        at: n * 100_000,
        bytes: frame(17, 80, 1500, n as u16),
        vnet: Vnet::default(),
    }));
    frames.sort_by_key(|frame| frame.at);
    let (left, last) = run(&link(SHARES), frames, 3 * SECOND, |_| {});
    assert_eq!((last.work.supers, last.work.uncut), (600, 0));
    // On the wire every segment has its own 40 bytes of headers.
    let wire =
        |f: &Timed| if dport(&f.bytes) == 80 { 1500 } else { length(f) - 40 + (length(f) - 40).div_ceil(1460) * 40 };
    let sent =
        |port: u16| left.iter().filter(|f| f.at >= SECOND && dport(&f.bytes) == port).map(wire).sum::<u64>() as f64;
    let (low, high) = (sent(5001), sent(80));
    assert!((low / (low + high) - 0.2).abs() <= 0.2 * 0.005 + 12_000.0 / 25e6, "{low} {high}");
    assert!((low + high - 25e6).abs() <= 24_000.0, "{}", low + high);
}

#[test]
fn a_packet_without_a_class_is_counted() {
    let text = "link wan { device bridge a b  rate 100Mbit/s  scheduler fifo  class web { }  match dport 80 -> web }";
    let frames = [80, 81, 80].iter().enumerate();
    let frames = frames
        .map(|(n, port)| Timed { at: n as u64, bytes: frame(17, *port, 500, 0), vnet: Vnet::default() })
        .collect();
    let (left, last) = run(&link(text), frames, MS, |_| {});
    assert_eq!((left.len(), last.unclassified), (2, (1, 500)));
}

/// Frames leave with the meter's DSCP and a corrected header checksum. Frames that the meter drops
/// do not leave.
#[test]
fn frames_leave_as_a_meter_marks_them() {
    use altq_dataplane::checksum::Sum;
    // 8 Mbit/s bring 1000 bytes per ms. Three packets at once find 2000 bytes of committed burst
    // and 1000 of excess burst; after that one packet per ms is green.
    let link = link(
        "link wan { device bridge a b  rate 100Mbit/s  scheduler fifo
            class a { default  meter srtcm { cir 8Mbit/s  cbs 2000  ebs 1000  green dscp af11  yellow dscp af12  red \
            drop } } }",
    );
    let mut frames = Vec::new();
    for (at, count) in [(0, 4u16), (MS, 2)] {
        for number in 0..count {
            let mut bytes = frame(17, 80, 1000, number);
            bytes[15] = 46 << 2 | 2;
            let sum = Sum::default().add(&bytes[14..34]).finish();
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
            frames.push(Timed { at, bytes, vnet: Vnet::default() });
        }
    }
    let (left, last) = run(&link, frames, SECOND, |_| {});
    let octets: Vec<u8> = left.iter().map(|frame| frame.bytes[15]).collect();
    // ECT(0) stays as it was.
    assert_eq!(octets, [10, 10, 12, 10].map(|dscp| dscp << 2 | 2));
    assert!(left.iter().all(|frame| Sum::default().add(&frame.bytes[14..34]).folded() == 0xffff));
    assert_eq!(last.classes[1].counters.dropped_packets, 2);
}
