//! Recovery, by what the RFCs say must follow a given loss.

use altq_engine::units::Rate;

use super::link::{MS, Mark, Net, lose_first};
use crate::tcp::{Algorithm, Config, Counters, HyStart};

/// Sends `segments` full segments, of which those with the numbers `lost` (from 0) are lost once
/// for each mention. Returns the counters, when all was acknowledged, and the network.
fn lossy(config: &Config, segments: u64, lost: &[u64]) -> (Counters, u64, Net) {
    let mut net = Net::new(Rate::mbit_s(10), 10 * MS, 1000);
    net.ways[0].lose = lose_first(lost.iter().map(|n| 1 + n * 1448).collect());
    net.pair(config, 0);
    net.pairs[0].0.write(segments * 1448);
    let mut done = 0;
    for t in 1..20_000 {
        net.run(t * MS);
        if net.pairs[0].0.unacked() == 0 {
            done = t * MS;
            break;
        }
    }
    assert_eq!(net.pairs[0].1.delivered(), segments * 1448);
    (net.pairs[0].0.counters(), done, net)
}

fn old(congestion: Algorithm) -> Config {
    Config { congestion, sack: false, rack: false, prr: false, frto: false, ..Config::linux() }
}

#[test]
fn newreno_repairs_three_losses_of_a_window_without_a_timeout() {
    // RFC 6582 3.2: a partial acknowledgement shows the next loss; one retransmission a round trip.
    let (c, _, _) = lossy(&old(Algorithm::NewReno), 60, &[20, 22, 24]);
    assert_eq!((c.retransmitted, c.timeouts, c.recoveries), (3, 0, 1));
}

#[test]
fn one_loss_is_one_retransmission_whoever_finds_it() {
    let six = Config { rack: false, ..Config::linux() };
    for config in [old(Algorithm::Reno), old(Algorithm::NewReno), six, Config::linux(), Config::rfc()] {
        let (c, _, _) = lossy(&config, 60, &[20]);
        assert_eq!((c.retransmitted, c.timeouts, c.recoveries), (1, 0, 1), "{config:?}");
    }
}

#[test]
fn sack_repairs_ten_losses_of_a_window_in_one_recovery() {
    // RFC 6675 5: there is no timeout, and no segment that arrived is sent again.
    for rack in [false, true] {
        let lost = [20, 22, 24, 26, 28, 30, 32, 34, 36, 38];
        let (c, _, _) = lossy(&Config { rack, ..Config::linux() }, 100, &lost);
        assert_eq!((c.retransmitted, c.timeouts, c.recoveries), (10, 0, 1));
    }
}

#[test]
fn tahoe_starts_over() {
    let mut net = Net::new(Rate::mbit_s(10), 10 * MS, 1000);
    net.ways[0].lose = lose_first(vec![1 + 20 * 1448]);
    net.pair(&old(Algorithm::Tahoe), 0);
    net.pairs[0].0.write(u64::MAX);
    let mut least = u64::MAX;
    for t in 1..400 {
        net.run(t * MS);
        if net.pairs[0].0.counters().recoveries > 0 {
            least = least.min(net.pairs[0].0.cwnd());
        }
    }
    // Jacobson 1988: one segment after any loss.
    assert!(least <= 2 * 1448, "{least}");
}

#[test]
fn a_probe_repairs_the_tail() {
    // RFC 8985 7: the last two segments are lost and nothing follows. Without a probe only the
    // timeout of at least 200 ms helps.
    let (c, fast, _) = lossy(&Config::rfc(), 20, &[18, 19]);
    assert_eq!((c.timeouts, c.retransmitted), (0, 2));
    assert!(c.probes >= 1);
    let (c, slow, _) = lossy(&Config { rack: false, ..Config::rfc() }, 20, &[18, 19]);
    assert_eq!((c.timeouts, c.probes), (1, 0));
    assert!(fast < slow, "{fast} {slow}");
}

#[test]
fn rack_finds_a_lost_retransmission() {
    // RFC 8985 1: the retransmission is lost too. RFC 6675 must wait for the timeout.
    let (c, _, _) = lossy(&Config::linux(), 200, &[20, 20]);
    assert_eq!((c.timeouts, c.retransmitted), (0, 2));
    let (c, _, _) = lossy(&Config { rack: false, ..Config::linux() }, 200, &[20, 20]);
    assert_eq!(c.timeouts, 1);
}

/// Runs NewReno with ECN for 20 s over 10 Mbit/s and 20 ms. Returns the goodput as a part of what
/// the link can carry, the counters, the window and the new threshold of each reduction in
/// segments, and the shortest time between two reductions.
fn marked(mark: Mark) -> (f64, Counters, Vec<(u64, u64)>, u64) {
    let config = Config { ecn: true, congestion: Algorithm::NewReno, hystart: HyStart::Off, ..Config::linux() };
    let mut net = Net::new(Rate::mbit_s(10), 10 * MS, 1000);
    net.ways[0].mark = Some(mark);
    net.pair(&config, 0);
    net.pairs[0].0.write(u64::MAX);
    let (mut seen, mut last, mut shortest, mut before, mut windows) = (0, 0, u64::MAX, 0, Vec::new());
    for t in 1..20_000 {
        net.run(t * MS);
        let socket = &net.pairs[0].0;
        if socket.counters().marks > seen {
            (seen, shortest, last) = (socket.counters().marks, shortest.min(t * MS - last), t * MS);
            windows.push((before, socket.ssthresh().unwrap() / 1448));
        }
        before = socket.cwnd() / 1448;
    }
    let c = net.pairs[0].0.counters();
    assert_eq!((c.retransmitted, net.ways[0].dropped), (0, 0));
    (net.pairs[0].1.delivered() as f64 * 8.0 / 20e6 / 9.6533, c, windows, shortest)
}

#[test]
fn a_mark_halves_once_and_loses_nothing() {
    // RFC 3168 6.1.2: a mark halves the window as a loss does. The queue marks a packet that finds
    // 20, and then none of the next 200, so there is one mark per window.
    let mut since = 200;
    let (part, c, windows, _) = marked(Box::new(move |_, found| {
        since += 1;
        let marks = found >= 20 && since > 200;
        since = if marks { 0 } else { since };
        marks
    }));
    assert!(c.marks > 10, "{c:?}");
    // RFC 5681 equation 4. (A window grown between two looks may be one more.)
    assert!(windows.iter().all(|(before, after)| *after == before / 2 || *after == before.div_ceil(2)), "{windows:?}");
    // With a queue of at least the bandwidth-delay product (17), half the window keeps the link
    // busy (Villamizar and Song 1994) at all times but the start.
    assert!(part > 0.99, "{part}");
}

#[test]
fn marks_on_what_follows_a_reduction_reduce_again() {
    // The queue marks every packet that finds 20, so the window is 17 + 20 at a reduction. After it
    // the queue stays long for half a round trip, because PRR sends one segment for two delivered,
    // and marks the segment with CWR and those after it. They belong to the next window of data, so
    // the window is halved once more (RFC 3168 6.1.2: once per window).
    let (part, c, windows, shortest) = marked(Box::new(|_, found| found >= 20));
    assert!(c.marks > 10 && shortest >= 20 * MS, "{shortest} {c:?}");
    assert!(windows.iter().skip(2).filter(|(before, _)| *before >= 36).count() >= 10, "{windows:?}");
    // By hand: from a quarter of P = 37 segments to P, one more each round trip of 20 ms and three
    // segments (two that share an acknowledgement, one on the wire) or of W segments of 1.2 ms,
    // whichever is longer. The first halving costs nothing, the second a round trip at (P/2 +
    // P/4)/2.
    let (tx, trip, peak): (f64, f64, u32) = (1.2, 20.0 + 3.0 * 1.2, 37);
    let rounds = peak / 4..=peak;
    let packets: f64 = rounds.clone().map(f64::from).sum::<f64>() + 13.5;
    let time: f64 = rounds.map(|w| trip.max(f64::from(w) * tx)).sum::<f64>() + trip;
    let expected = packets * tx / time;
    assert!((part - expected).abs() < 0.02, "{part} {expected} {c:?}");
}

#[test]
fn the_same_twice() {
    let run = || {
        let (goodput, loss, net) = super::bulk::bulk(&Config::linux(), 10, 17);
        (goodput, loss, net.pairs.iter().map(|(c, s)| (c.counters(), s.delivered())).collect::<Vec<_>>())
    };
    assert_eq!(run(), run());
}
