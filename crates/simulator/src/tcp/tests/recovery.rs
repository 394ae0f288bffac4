//! Recovery, by what the RFCs say must follow a given loss.

use altq_engine::units::Rate;

use super::link::{MS, Net, S, lose_first};
use crate::tcp::{Algorithm, Config, Counters};

/// Sends `segments` full ones of which those with these numbers (from 0) are lost once; what came of it, and when all was acknowledged.
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
    // RFC 6675 5: no timeout, no segment sent twice that has arrived.
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
    // RFC 8985 7: the last two segments are lost and nothing follows. Without a probe only the timeout of at least 200 ms helps.
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

#[test]
fn a_mark_halves_and_loses_nothing() {
    // RFC 3168 6.1.2: as a loss would, once a round trip, without a retransmission.
    let config = Config { ecn: true, congestion: Algorithm::NewReno, ..Config::linux() };
    let mut net = Net::new(Rate::mbit_s(10), 10 * MS, 1000);
    net.ways[0].mark = 20;
    net.pair(&config, 0);
    net.pairs[0].0.write(u64::MAX);
    net.run(20 * S);
    let c = net.pairs[0].0.counters();
    assert_eq!((c.retransmitted, net.ways[0].dropped), (0, 0));
    assert!(c.marks > 5, "{c:?}");
    // A window halved at a full link without any queue carries three quarters of it on average. A queue that marks by its present length still marks what
    // carries CWR now and then, so the window may be halved twice; it never does worse.
    let goodput = net.pairs[0].1.delivered() as f64 * 8.0 / 20e6;
    assert!(goodput > 0.75 * 9.653, "{goodput} {c:?}");
}

#[test]
fn the_same_twice() {
    let run = || {
        let (goodput, loss, net) = super::bulk::bulk(&Config::linux(), 10, 17);
        (goodput, loss, net.pairs.iter().map(|(c, s)| (c.counters(), s.delivered())).collect::<Vec<_>>())
    };
    assert_eq!(run(), run());
}
