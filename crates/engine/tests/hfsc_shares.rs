//! HFSC: what classes get (shares, agencies, the cheating case of docs/reference/altq.md
//! 14.11, upper limits).

use crate::support;
use crate::support::hfsc;

use hfsc::{MBIT, bent, line, link, share};
use support::{Cbr, MS, S, Wire};

#[track_caller]
fn within(got: f64, want: f64, tolerance: f64) {
    assert!((got - want).abs() <= want * tolerance, "{got} bit/s, {want} expected");
}

/// 10/30/60 of 100 Mbit/s: all backlogged, some, and one.
#[test]
fn shares_of_ten_thirty_and_sixty() {
    for (active, expected) in [
        (&[1, 2, 3][..], &[10.0, 30.0, 60.0][..]),
        (&[1, 2], &[25.0, 75.0]),
        (&[1, 3], &[100.0 / 7.0, 600.0 / 7.0]),
        (&[2, 3], &[100.0 / 3.0, 200.0 / 3.0]),
        (&[1], &[100.0]),
        (&[2], &[100.0]),
        (&[3], &[100.0]),
    ] {
        let mut wire = Wire::new(&link(100 * MBIT, &[share(0, 10 * MBIT), share(0, 30 * MBIT), share(0, 60 * MBIT)]));
        for class in active {
            wire.greedy(*class, &[1500]);
        }
        wire.run(S / 10);
        let got = wire.rates(S / 10 + 2 * S);
        for (class, expected) in active.iter().zip(expected) {
            within(got[*class as usize], expected * 1e6, 0.001);
        }
    }
}

/// Two agencies, 70 and 30, with leaves of their own: totals, and division inside, whoever is
/// active.
#[test]
fn agencies_of_seventy_and_thirty() {
    let classes = [
        share(0, 70 * MBIT),
        share(0, 30 * MBIT),
        share(1, 50 * MBIT),
        share(1, 20 * MBIT),
        share(2, 20 * MBIT),
        share(2, 10 * MBIT),
    ];
    for (active, expected) in [
        (&[3, 4, 5, 6][..], &[50.0, 20.0, 20.0, 10.0][..]),
        (&[3, 5, 6], &[70.0, 20.0, 10.0]),
        (&[4, 6], &[70.0, 30.0]),
        (&[3, 4], &[500.0 / 7.0, 200.0 / 7.0]),
        (&[5, 6], &[200.0 / 3.0, 100.0 / 3.0]),
    ] {
        let mut wire = Wire::new(&link(100 * MBIT, &classes));
        for (n, class) in active.iter().enumerate() {
            // Different sizes: shares are of bytes, not of packets.
            wire.greedy(*class, [&[1500][..], &[64, 1500], &[700], &[1500, 40, 40]][n]);
        }
        wire.run(S / 10);
        let got = wire.rates(S / 10 + 2 * S);
        for (class, expected) in active.iter().zip(expected) {
            within(got[*class as usize], expected * 1e6, 0.002);
        }
    }
}

/// docs/reference/altq.md 14.11: a 10 % class fed smoothly at 60 Mbit/s, so that it never has two
/// packets queued while it is served at once, beside a backlogged 90 % class. The BSD code gives
/// it 60. Below the root, and below an inner class.
#[test]
fn a_smooth_class_gets_no_more_than_its_share() {
    for size in [1500, 300] {
        for fed in [20, 60, 90, 100] {
            let interval = size * 8 * 1000 / fed;
            let flat = [share(0, 10 * MBIT).packets(20), share(0, 90 * MBIT)];
            let deep = [share(0, 100 * MBIT), share(1, 10 * MBIT).packets(20), share(1, 90 * MBIT)];
            // Of an agency of 10 % the only class; the other agency is backlogged.
            let far = [share(0, 10 * MBIT), share(0, 90 * MBIT), share(1, 10 * MBIT).packets(20), share(2, 90 * MBIT)];
            for (classes, smooth, greedy) in [(&flat[..], 1, 2), (&deep, 2, 3), (&far, 3, 4)] {
                let mut wire = Wire::new(&link(100 * MBIT, classes));
                wire.greedy(greedy, &[1500]);
                wire.cbr(Cbr { class: smooth, size: size as u32, interval, start: 0, end: u64::MAX });
                wire.run(S / 2);
                let got = wire.rates(S / 2 + 2 * S);
                within(got[smooth as usize], 10e6, 0.002);
                within(got[greedy as usize], 90e6, 0.002);
            }
        }
    }
}

/// The same with queues of one packet: the class is idle after every packet that it sends.
#[test]
fn nor_one_that_never_has_two_packets() {
    let mut wire = Wire::new(&link(100 * MBIT, &[share(0, 10 * MBIT).packets(1), share(0, 90 * MBIT)]));
    wire.greedy(2, &[1500]);
    wire.cbr(Cbr { class: 1, size: 1500, interval: 200_000, start: 0, end: u64::MAX });
    wire.run(S / 2);
    let got = wire.rates(S / 2 + 4 * S);
    // Between two packets of its share 1.2 ms pass; the next arrival is up to 0.2 ms away.
    assert!(got[1] <= 10.01e6 && got[1] >= 10e6 * 1.2 / 1.4, "{}", got[1]);
}

/// An upper limit holds to the byte, and the class wakes by itself: nobody else sends, nothing
/// arrives between.
#[test]
fn an_upper_limit_wakes_by_itself() {
    for rate in [64_000, MBIT, 7 * MBIT, 40 * MBIT, 99 * MBIT] {
        for nested in [false, true] {
            let flat = [share(0, 10 * MBIT).limit(rate), share(0, 90 * MBIT)];
            let deep = [share(0, 10 * MBIT).limit(rate), share(0, 90 * MBIT), share(1, 10 * MBIT)];
            let (classes, class) = if nested { (&deep[..], 3) } else { (&flat[..], 1) };
            let mut wire = Wire::new(&link(100 * MBIT, classes));
            wire.log = Some(Vec::new());
            wire.extra = 2;
            wire.greedy(class, &[1500]);
            wire.run(10 * S);
            // Packet n goes when n packets have passed at the limit, rounded up to a nanosecond.
            for (n, sent) in wire.log.take().unwrap_or_default().iter().enumerate() {
                assert_eq!(sent.at, (n as u64 * 12_000 * S).div_ceil(rate), "packet {n} at {rate} bit/s");
            }
            assert_eq!(
                u128::from(wire.bytes[class as usize] / 1500),
                (10 * u128::from(S) * u128::from(rate) / (12_000 * u128::from(S))) + 1
            );
        }
    }
}

/// A limited class beside backlogged ones has its limit, and they have the rest, whether the limit
/// is more or less than its share.
#[test]
fn upper_limits_beside_others() {
    // share of a, limit of a, share of b, then what a and b get of 100 Mbit/s.
    for (a, limit, b, expected) in [
        (50, 30, 50, [30.0, 70.0]),
        (10, 50, 90, [10.0, 90.0]),
        (50, 51, 50, [50.0, 50.0]),
        (50, 49, 50, [49.0, 51.0]),
        (90, 5, 10, [5.0, 95.0]),
    ] {
        let classes = [share(0, a * MBIT).limit(limit * MBIT), share(0, b * MBIT)];
        let mut wire = Wire::new(&link(100 * MBIT, &classes));
        wire.greedy(1, &[1500, 500]);
        wire.greedy(2, &[1500]);
        wire.run(S / 5);
        let got = wire.rates(S / 5 + 2 * S);
        within(got[1], expected[0] * 1e6, 0.003);
        within(got[2], expected[1] * 1e6, 0.003);
    }
    // Ten limits that add up to the link: all are kept at the same time.
    let mut classes: Vec<_> = (0..9).map(|_| share(0, 10 * MBIT).limit(MBIT)).collect();
    classes.push(share(0, 10 * MBIT).limit(91 * MBIT));
    let mut wire = Wire::new(&link(100 * MBIT, &classes));
    (1..=10).for_each(|class| wire.greedy(class, &[1500]));
    wire.run(S / 5);
    let got = wire.rates(S / 5 + 4 * S);
    (1..10).for_each(|class| within(got[class], 1e6, 0.005));
    within(got[10], 91e6, 0.002);
}

/// 2 Mbit/s for 5 ms, then 64 kbit/s: a burst of 1250 bytes leaves by the curve's deadlines and at
/// most one packet of the link later, under full load of others; in the long run the class has 64
/// kbit/s by deadline, and its share.
#[test]
fn a_real_time_curve_is_kept_under_full_load() {
    for rate in [3 * MBIT, 10 * MBIT, 100 * MBIT] {
        let voice = bent(2 * MBIT, 5 * MS, 64_000);
        let classes = [share(0, rate / 1000).realtime(voice), share(0, rate / 2), share(0, rate / 2)];
        let mut wire = Wire::new(&link(rate, &classes));
        wire.log = Some(Vec::new());
        wire.greedy(2, &[1500]);
        wire.greedy(3, &[1500, 64]);
        // Bursts of 5 packets of 250 bytes, far enough apart for the curve to begin anew each time.
        for n in 0..5 {
            wire.cbr(Cbr { class: 1, size: 250, interval: 997 * MS, start: 3 * MS + n, end: u64::MAX });
        }
        wire.run(30 * S);
        let packet = 1500 * 8 * S / rate;
        let (mut burst, mut n, mut worst) = (0, 0, 0);
        for sent in wire.log.take().unwrap_or_default().iter().filter(|sent| sent.departure.class == 1) {
            let arrived = sent.departure.packet.arrived;
            if arrived > burst + 900 * MS || n == 0 {
                (burst, n) = (arrived, 0);
            }
            n += 1;
            // n packets of 250 bytes at 2 Mbit/s: one each ms.
            let end = sent.at + 250 * 8 * S / rate;
            assert!(end <= burst + n * MS + packet, "packet {n} at {rate}: {} ns late", end - burst - n * MS);
            worst = worst.max(end.saturating_sub(burst));
        }
        assert!(worst > 3 * MS, "the burst went by its deadlines, not at once: {worst}");
    }
}

/// A class without a share has its deadlines' rate and not more, on an idle link too, and wakes by
/// itself.
#[test]
fn real_time_alone_is_no_more_than_its_curve() {
    let mut classes = [share(0, 0).realtime(line(3 * MBIT)), share(0, 90 * MBIT)];
    classes[0].share = None;
    for greedy in [false, true] {
        let mut wire = Wire::new(&link(100 * MBIT, &classes));
        wire.greedy(1, &[1500]);
        if greedy {
            wire.greedy(2, &[1500]);
        }
        wire.run(S / 10);
        let got = wire.rates(S / 10 + 4 * S);
        within(got[1], 3e6, 0.001);
        within(got[2], if greedy { 97e6 } else { 0.0 }, 0.001);
    }
}
