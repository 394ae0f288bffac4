//! BBR on a path of known rate and delay must behave as its draft says.
//!
//! "BBR draft" is draft-cardwell-iccrg-bbr-congestion-control-00; the number after it is the
//! section there.

use altq_engine::units::{Nanos, Rate};

use super::link::{MS, Net, S};
use crate::tcp::congestion::Mode;
use crate::tcp::{Algorithm, Config};

fn bbr() -> Config {
    Config { congestion: Algorithm::Bbr, ..Config::linux() }
}

/// Runs one flow over 10 Mbit/s and 20 ms (17 segments) with a buffer of `limit` packets, and calls
/// `look` every millisecond.
fn alone(limit: usize, end: Nanos, mut look: impl FnMut(Nanos, Mode, &Net)) -> Net {
    let mut net = Net::new(Rate::mbit_s(10), 10 * MS, limit);
    net.pair(&bbr(), 0);
    net.pairs[0].0.write(u64::MAX);
    for t in 1..=end / MS {
        net.run(t * MS);
        let mode = net.pairs[0].0.mode().unwrap();
        look(t * MS, mode, &net);
    }
    net
}

#[test]
fn the_pipe_is_full_and_the_queue_is_not() {
    let (mut most, mut sum, mut looks, mut before) = (0, 0, 0, 0);
    let net = alone(1000, 30 * S, |t, mode, net| {
        if t == 2 * S {
            before = net.pairs[0].1.delivered();
        }
        if t > 2 * S && mode == Mode::ProbeBw {
            (most, sum, looks) = (most.max(net.ways[0].len()), sum + net.ways[0].len(), looks + 1);
        }
    });
    // BBR draft 4.3.5: ProbeRTT takes a little more than 200 ms of every ten seconds, so 98 % is
    // left. BBR draft 4.3.4: the rest of the time the link is full.
    let goodput = (net.pairs[0].1.delivered() - before) as f64 * 8.0 / 28e6;
    assert!(goodput > 0.96 * 9.653, "{goodput}");
    // BBR draft 4.2.3.1, 4.3.3, 4.3.4.3: draining goes on until a bandwidth-delay product and three
    // bursts of two segments are in flight (rounded to an even number), so seven wait besides the
    // one on the wire. The phase with gain 1.25 adds a quarter of a product (4.4 segments), which
    // the next phase takes away: on average an eighth over these two. The window is two products,
    // six segments for bursts, and two to be even and to probe.
    let mean = f64::from(sum as u32) / f64::from(looks);
    assert!(most <= 18 + 8 && mean < 8.0 + 2.2, "{most} {mean}");
    assert_eq!((net.pairs[0].0.counters().retransmitted, net.ways[0].dropped), (0, 0));
}

#[test]
fn startup_doubles_and_drain_empties() {
    // BBR draft 4.3.2.1: a gain of 2/ln 2 doubles the rate each round trip: ten segments, then 20,
    // 40 and so on, until the path of 100 Mbit/s and 100 ms (833 segments) is full.
    let mut net = Net::new(Rate::mbit_s(100), 50 * MS, 10_000);
    net.pair(&bbr(), 0);
    net.pairs[0].0.write(u64::MAX);
    let (mut delivered, mut growth, mut drained, mut peak) = (Vec::new(), Vec::new(), None, 0);
    for t in 1..=40 {
        net.run(t * 100 * MS + 90 * MS);
        let mode = net.pairs[0].0.mode().unwrap();
        peak = peak.max(net.pairs[0].0.in_flight());
        if mode == Mode::Startup {
            delivered.push(net.pairs[0].0.acked() as f64);
        } else if mode == Mode::ProbeBw && drained.is_none() {
            drained = Some((t, net.pairs[0].0.in_flight()));
        }
    }
    for three in delivered.windows(3) {
        growth.push((three[2] - three[1]) / (three[1] - three[0]).max(1.0));
    }
    // The growth while the path is not full yet (10 + 20 + ... up to 640 segments), counted every
    // 100 ms, which is a little less than a round trip.
    let early: Vec<f64> = growth.iter().copied().filter(|g| *g < 100.0).take(4).collect();
    let mean = early.iter().product::<f64>().powf(1.0 / early.len() as f64);
    assert!(early.len() == 4 && (1.8..2.1).contains(&mean), "{early:?}");
    // BBR draft 4.3.2.2: seven rounds of 100 ms fill the path, and four more of up to 289 ms do not
    // raise the rate. BBR draft 4.3.3: a queue of 1.885 products drains at 1 - 1/2.885 of the rate,
    // in 289 ms. Together this takes 2.2 s; then a product and three bursts are in flight.
    let (at, in_flight) = drained.unwrap();
    assert!(at < 24 && in_flight < 833 + 60, "{at} {in_flight}");
    // BBR draft 4.2.3.2: the window of startup is 2.885 products, and three bursts of a millisecond
    // at 2.885 times the rate (4.2.2 there).
    assert!(f64::from(peak) < 2.886 * 836.0 + 3.0 * 24.1 + 2.0, "{peak}");
}

#[test]
fn the_round_trip_is_looked_at_every_ten_seconds() {
    let (mut starts, mut last, mut least, mut spans, mut begin) = (Vec::new(), Mode::Startup, u32::MAX, Vec::new(), 0);
    alone(1000, 60 * S, |t, mode, net| {
        if mode == Mode::ProbeRtt {
            if last != Mode::ProbeRtt {
                (begin, least) = (t, u32::MAX);
                starts.push(t);
            }
            least = least.min(net.pairs[0].0.in_flight());
        } else if last == Mode::ProbeRtt {
            spans.push((t - begin, least));
        }
        last = mode;
    });
    // BBR draft 4.1.2.3: the shortest round-trip time is valid for ten seconds. (If the path
    // empties by itself the minimum is renewed, so the first ProbeRTT may come later.)
    assert!(starts.len() >= 4, "{starts:?}");
    assert!(starts.windows(2).all(|two| two[1] - two[0] >= 10 * S && two[1] - two[0] < 12 * S), "{starts:?}");
    // BBR draft 4.3.5: four segments in flight for 200 ms. Getting down to four takes up to a round
    // trip, and noticing the end another one.
    assert!(spans.iter().all(|(span, least)| (200 * MS..=300 * MS).contains(span) && *least <= 4), "{spans:?}");
}

#[test]
fn losses_at_random_do_not_slow_it() {
    // 1 % of the segments are lost at random. Reno's rate is at most 1.22 MSS/(RTT sqrt(p)) =
    // 1.22 * 1448 * 8/(0.0212 * 0.1) = 6.7 Mbit/s (Mathis and others, "The Macroscopic Behavior of
    // the TCP Congestion Avoidance Algorithm", 1997). BBR draft 1: BBR's rate does not depend on
    // losses.
    let mut seed = 1u64;
    let mut run = |congestion| {
        let mut net = Net::new(Rate::mbit_s(10), 10 * MS, 1000);
        seed = 1;
        net.ways[0].lose = Some(Box::new(move |_, segment| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            segment.len > 0 && (seed >> 33).is_multiple_of(100)
        }));
        net.pair(&Config { congestion, ..Config::linux() }, 0);
        net.pairs[0].0.write(u64::MAX);
        net.run(30 * S);
        net.pairs[0].1.delivered() as f64 * 8.0 / 30e6
    };
    let (model, reno) = (run(Algorithm::Bbr), run(Algorithm::NewReno));
    assert!(model > 0.94 * 9.653 * 0.99 && reno < 6.7, "{model} {reno}");
}

#[test]
fn a_shallow_buffer_is_kept_full_and_the_link_too() {
    // With a buffer of five packets startup and probing lose some, but the rate stays.
    let net = alone(5, 30 * S, |_, _, _| ());
    let goodput = net.pairs[0].1.delivered() as f64 * 8.0 / 30e6;
    assert!(goodput > 0.93 * 9.653, "{goodput} {:?}", net.pairs[0].0.counters());
    assert_eq!(net.pairs[0].0.counters().timeouts, 0);
}

#[test]
fn an_application_that_sends_little_says_little_of_the_path() {
    // BBR draft 4.1.1.4: the application sends 20 segments every 200 ms, 1.2 Mbit/s. The estimate
    // follows from how fast these arrive, and the pauses do not lower it. So when the application
    // sends all it can, the link is full within a few round trips.
    let mut net = Net::new(Rate::mbit_s(10), 10 * MS, 1000);
    net.pair(&bbr(), 0);
    for n in 0..100 {
        net.pairs[0].0.write(20 * 1448);
        net.poll(0, false);
        net.run((n + 1) * 200 * MS);
    }
    assert_eq!(net.pairs[0].1.delivered(), 2000 * 1448);
    net.pairs[0].0.write(u64::MAX);
    net.poll(0, false);
    net.run(20 * S + 500 * MS);
    let before = net.pairs[0].1.delivered();
    net.run(25 * S);
    let goodput = (net.pairs[0].1.delivered() - before) as f64 * 8.0 / 4.5e6;
    assert!(goodput > 0.9 * 9.653, "{goodput}");
}

#[test]
fn cubic_can_be_paced() {
    // Linux paces at 1.2 x cwnd/srtt in congestion avoidance, 12 Mbit/s here, so at most two
    // segments are sent at a time. Without pacing a burst of acknowledgements lets as many segments
    // be sent.
    let mut net = Net::new(Rate::mbit_s(10), 10 * MS, 50);
    net.log = Some(Vec::new());
    net.pair(&Config { pacing: true, ..Config::linux() }, 0);
    net.pairs[0].0.write(u64::MAX);
    net.run(20 * S);
    let (mut last, mut burst, mut most) = (0, 0, 0);
    for (at, _, _) in net.log.unwrap().iter().filter(|(_, up, segment)| *up && segment.len > 0) {
        if *at < 2 * S {
            continue;
        }
        burst = if *at == last { burst + 1 } else { 1 };
        (last, most) = (*at, most.max(burst));
    }
    assert!(most <= 2, "{most}");
    let goodput = net.pairs[0].1.delivered() as f64 * 8.0 / 20e6;
    assert!(goodput > 0.97 * 9.653, "{goodput}");
}
