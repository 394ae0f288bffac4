//! The counts of a link with many classes, of which the loop counts a few in each turn.

use altq_config::{Language, Link, parse_str};
use altq_dataplane::channel::{Channel, Timed};
use altq_dataplane::shaper::{Shaper, Tuning};
use altq_dataplane::stats::{Report, Snapshot, Totals};
use altq_dataplane::vnet::Vnet;

const MS: u64 = 1_000_000;
/// Inner classes, and classes below each.
const INNER: u16 = 5;
const EACH: u16 = 300;

/// Inner classes with leaves, each leaf for one port: more classes than are counted in one turn.
fn many() -> Link {
    let mut text = "link wan { device bridge a b  rate 100Mbit/s  scheduler htb\n".to_owned();
    for inner in 0..INNER {
        text += &format!("class i{inner} {{ rate 20Mbit/s ceil 100Mbit/s\n");
        for leaf in 0..EACH {
            text += &format!("class c{} {{ rate 60kbit/s ceil 100Mbit/s }}\n", inner * EACH + leaf);
        }
        text += "}\n";
    }
    for port in 0..INNER * EACH {
        text += &format!("match dport {} -> c{port}\n", 1000 + port);
    }
    text += "}\n";
    parse_str(&text, "many.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}")).links.remove(0)
}

/// A UDP datagram of 500 bytes to a port.
fn frame(port: u16) -> Vec<u8> {
    let mut bytes = vec![0u8; 14 + 500];
    bytes[12..14].copy_from_slice(&[0x08, 0x00]);
    bytes[14..24].copy_from_slice(&[0x45, 0, 0x01, 0xf4, 0, 0, 0, 0, 64, 17]);
    bytes[36..38].copy_from_slice(&port.to_be_bytes());
    bytes[38..40].copy_from_slice(&480u16.to_be_bytes());
    bytes
}

/// Runs a loop that gets frames for 100 ms.
fn shaper(link: &Link, end: u64, tuning: Tuning) -> Shaper<Channel> {
    let mut channel = Channel::new(end);
    for n in 0..2000u64 {
        // Every class gets a packet, and the first five hundred a second one.
        let port = 1000 + (n % u64::from(INNER * EACH)) as u16;
        channel.arrive(Timed { at: n * 50_000, bytes: frame(port), vnet: Vnet::default() });
    }
    Shaper::new(link, "a", channel, Tuning { memory: 64 << 20, ..tuning }).unwrap()
}

/// Every snapshot while they come.
fn snapshots(link: &Link, interval: u64) -> Vec<Snapshot> {
    let mut shaper = shaper(link, 200 * MS, Tuning { interval: Some(interval), ..Tuning::default() });
    let (mut totals, mut all) = (Totals::default(), Vec::new());
    shaper.run(|report| all.push(totals.sum(report))).unwrap();
    all
}

#[test]
fn sums_hold_in_every_snapshot_of_many_classes() {
    let link = many();
    let all = snapshots(&link, 10 * MS);
    assert!(all.len() >= 15, "{}", all.len());
    for snapshot in &all {
        assert_eq!(snapshot.classes.len(), 1 + usize::from(INNER + INNER * EACH));
        let mut below = vec![(0, 0, 0, 0); snapshot.classes.len()];
        for (class, stat) in snapshot.classes.iter().enumerate() {
            let counters = &stat.counters;
            assert_eq!(
                counters.received_packets(),
                counters.sent_packets + counters.dropped_packets + counters.queued_packets
            );
            assert_eq!(stat.sojourn_total.count(), counters.sent_packets, "class {class}");
            assert_eq!(stat.waited.counts().iter().sum::<u64>(), counters.sent_packets, "class {class}");
            assert_eq!(stat.waited.sum(), stat.sojourn_total.sum(), "class {class}");
            if class > 0 {
                let sum = &mut below[link.spec.classes[class].parent as usize];
                sum.0 += counters.sent_packets;
                sum.1 += counters.sent_bytes;
                sum.2 += counters.queued_packets;
                sum.3 += stat.sojourn.count();
            }
        }
        for (class, sum) in below.iter().enumerate().filter(|(class, _)| !link.children()[*class].is_empty()) {
            let stat = &snapshot.classes[class];
            let counters = &stat.counters;
            let own = (counters.sent_packets, counters.sent_bytes, counters.queued_packets, stat.sojourn.count());
            assert_eq!(own, *sum, "class {class} at {}", snapshot.at);
        }
    }
    let last = all.last().unwrap();
    assert!(last.last && all.iter().filter(|snapshot| snapshot.last).count() == 1);
    // All packets left: two of each of five hundred classes, one of each other class.
    assert_eq!(last.classes[0].counters.sent_packets, 2000);
    let leaf = |port: usize| &last.classes[link.class(&format!("c{port}")).unwrap() as usize];
    assert_eq!([0, 499, 500, 1499].map(|port| leaf(port).counters.sent_packets), [2, 2, 1, 1]);
}

#[test]
fn a_rate_is_that_of_the_time_between_two_counts() {
    let link = many();
    let all = snapshots(&link, 10 * MS);
    // A datagram of 500 bytes every 50 µs: 80 Mbit/s, the link's rate.
    for pair in all.windows(2).filter(|pair| pair[0].at >= 20 * MS && pair[1].at <= 90 * MS) {
        assert_eq!(pair[1].since, pair[0].at);
        let rate = pair[1].classes[0].rate_bit_s as f64;
        assert!((rate / 80e6 - 1.0).abs() < 0.02, "{rate} at {}", pair[1].at);
    }
}

#[test]
fn flows_and_waits_are_those_of_the_packets_that_a_class_has_sent() {
    let link = many();
    let mut shaper = shaper(&link, 200 * MS, Tuning { interval: Some(10 * MS), flows: 1000, ..Tuning::default() });
    let mut before = vec![0; link.spec.classes.len()];
    let (mut counts, mut largest) = (0, 0);
    shaper
        .run(|report| {
            let Report::Counts(mut report) = report else { panic!("the loop counts") };
            let mut flows = vec![0; before.len()];
            for (class, summary) in report.flows.summaries() {
                flows[class as usize] = summary.total().bytes;
                // All packets of a class are of one flow: to its port, from port 0.
                let listed = summary.listed();
                assert_eq!((listed.len(), summary.others().bytes), (1, 0), "class {class}");
                let name = link.class_name(class);
                assert_eq!(format!("c{}", listed[0].key.dport() - 1000), name);
                largest = largest.max(listed[0].at_least.packets);
            }
            for (class, own) in report.classes.iter().enumerate() {
                let sent = own.counters.sent_bytes - before[class];
                assert_eq!((flows[class], own.sojourn.count() * 500), (sent, sent), "class {class} of count {counts}");
                before[class] = own.counters.sent_bytes;
            }
            counts += 1;
        })
        .unwrap();
    assert!(counts > 15 && largest >= 1, "{counts} {largest}");
    assert_eq!(before.iter().sum::<u64>(), 2000 * 500);
}

#[test]
fn those_who_watch_have_seconds_between_snapshots() {
    let link = many();
    let s = 1000 * MS;
    let mut shaper = shaper(&link, 4 * s, Tuning { interval: Some(3 * s), flows: 1000, ..Tuning::default() });
    let (mut totals, mut times, mut snapshots) = (Totals::default(), Vec::new(), Vec::new());
    shaper
        .run(|report| {
            let Report::Counts(counts) = &report else { panic!("the loop counts") };
            times.push((counts.at / (s / 10), counts.shown));
            match report {
                Report::Counts(counts) if !counts.shown => totals.hold(&counts),
                report => snapshots.push(totals.sum(report)),
            }
        })
        .unwrap();
    assert_eq!(times[..3], [(10, false), (20, false), (30, true)], "{times:?}");
    assert!(times.last().is_some_and(|(_, shown)| *shown));
    // What was counted in the first second belongs to the snapshot of three.
    let first = &snapshots[0];
    assert_eq!((first.since, first.at / s, first.classes[0].sojourn.count()), (first.began, 3, 2000));
    assert!(first.work.timers > 0 && first.late.count() == first.work.timers, "{:?}", first.work);
    assert_eq!((snapshots.len(), snapshots[1].classes[0].sojourn.count()), (2, 0));
    assert_eq!(snapshots[1].classes[0].sojourn_total.count(), 2000);
}
