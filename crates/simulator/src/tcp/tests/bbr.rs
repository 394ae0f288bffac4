//! BBR by what its draft (draft-cardwell-iccrg-bbr-congestion-control-00) says must be seen on a
//! path.

use altq_engine::units::{Nanos, Rate};

use super::link::{MS, Net, S};
use crate::tcp::congestion::Mode;
use crate::tcp::{Algorithm, Config};

fn bbr() -> Config {
    Config { congestion: Algorithm::Bbr, ..Config::linux() }
}

/// One flow over 10 Mbit/s and 20 ms (17 segments), a buffer of `limit` packets; looked at every
/// millisecond.
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
    // 4.3.5: ProbeRTT takes 200 ms and a little of ten seconds: 98 % is left; 4.3.4: the rest at
    // the link's rate.
    let goodput = (net.pairs[0].1.delivered() - before) as f64 * 8.0 / 28e6;
    assert!(goodput > 0.96 * 9.653, "{goodput}");
    // 4.2.3.1, 4.3.3, 4.3.4.3: what drains goes on until a product and three bursts of two are on
    // their way (made even), so seven wait besides the one on the wire; a phase of 1.25 adds a
    // quarter of a product (4.4), which the next one takes away: an eighth over these two. The
    // window is two products, six, and two to be even and to probe.
    let mean = f64::from(sum as u32) / f64::from(looks);
    assert!(most <= 18 + 8 && mean < 8.0 + 2.2, "{most} {mean}");
    assert_eq!((net.pairs[0].0.counters().retransmitted, net.ways[0].dropped), (0, 0));
}

#[test]
fn startup_doubles_and_drain_empties() {
    // 4.3.2.1: 2/ln 2 doubles the rate each round trip: ten segments, then 20, 40 ... until the
    // pipe of 100 Mbit/s and 100 ms (833) is full.
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
    // While the pipe is not full yet (sums of 10 + 20 + ... up to 640); counted every 100 ms, a
    // little less than a round trip.
    let early: Vec<f64> = growth.iter().copied().filter(|g| *g < 100.0).take(4).collect();
    let mean = early.iter().product::<f64>().powf(1.0 / early.len() as f64);
    assert!(early.len() == 4 && (1.8..2.1).contains(&mean), "{early:?}");
    // 4.3.2.2: seven rounds of 100 ms fill the pipe, four of up to 289 ms do not make it faster;
    // 4.3.3: 1.885 products go at 1 - 1/2.885 of the rate, 289 ms. Together 2.2 s; then a product
    // and three bursts are on their way.
    let (at, in_flight) = drained.unwrap();
    assert!(at < 24 && in_flight < 833 + 60, "{at} {in_flight}");
    // 4.2.3.2: the window of startup is 2.885 products, and three bursts of a millisecond at 2.885
    // times the rate (4.2.2).
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
    // 4.1.2.3: the minimum holds for ten seconds. (A path that is empty in between shows it before,
    // so the first may come later.)
    assert!(starts.len() >= 4, "{starts:?}");
    assert!(starts.windows(2).all(|two| two[1] - two[0] >= 10 * S && two[1] - two[0] < 12 * S), "{starts:?}");
    // 4.3.5: four segments, for 200 ms and a round trip more to come down to these, and one to see
    // the end.
    assert!(spans.iter().all(|(span, least)| (200 * MS..=300 * MS).contains(span) && *least <= 4), "{spans:?}");
}

#[test]
fn losses_at_random_do_not_slow_it() {
    // 1 % at random: Reno's rate by Mathis is 1.2 MSS/(RTT sqrt(p)) = 1.22 * 1448 * 8/(0.0212 *
    // 0.1) = 6.7 Mbit/s at most; the draft's section 1: the rate does not depend on losses.
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
    // Five packets: startup and probing lose some; the rate stays.
    let net = alone(5, 30 * S, |_, _, _| ());
    let goodput = net.pairs[0].1.delivered() as f64 * 8.0 / 30e6;
    assert!(goodput > 0.93 * 9.653, "{goodput} {:?}", net.pairs[0].0.counters());
    assert_eq!(net.pairs[0].0.counters().timeouts, 0);
}

#[test]
fn an_application_that_sends_little_says_little_of_the_path() {
    // 4.1.1.4: 20 segments every 200 ms are 1.2 Mbit/s, but the estimate comes from how fast they
    // arrive, and is not lowered by the silences: when it sends all it can, the link is full within
    // a few round trips.
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
    // Linux' ratios: in avoidance 1.2 x cwnd/srtt, 12 Mbit/s here, so no more than two segments at
    // a time; without a pace a heap of acknowledgements lets as many go.
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
