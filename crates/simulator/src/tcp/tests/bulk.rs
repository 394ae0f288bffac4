//! Bulk transfer over 10 Mbit/s and 10 ms each way, against what the link can carry.

use altq_engine::units::Rate;

use super::link::{MS, Net, S};
use crate::tcp::{Algorithm, Config, HyStart};

/// Goodput in Mbit/s of all flows, and the part of packets dropped, over 20 s.
pub fn bulk(config: &Config, flows: usize, limit: usize) -> (f64, f64, Net) {
    let mut net = Net::new(Rate::mbit_s(10), 10 * MS, limit);
    for n in 0..flows {
        let flow = net.pair(config, 100 * MS * n as u64 / flows as u64);
        net.pairs[flow].0.write(u64::MAX);
    }
    net.run(20 * S);
    let bytes: u64 = net.pairs.iter().map(|(_, server)| server.delivered()).sum();
    let way = &net.ways[0];
    (bytes as f64 * 8.0 / 20e6, way.dropped as f64 / way.sent as f64, net)
}

#[test]
#[ignore = "prints a table to be compared with the kernel's TCP"]
fn table() {
    for flows in [1, 10, 100] {
        for limit in [17, 50] {
            for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
                for base in [Config::linux(), Config::rfc()] {
                    let hystart = if algorithm == Algorithm::Cubic { base.hystart } else { HyStart::Off };
                    let config = Config {
                        congestion: algorithm,
                        hystart,
                        receive_buffer: 256 << 10,
                        send_buffer: 256 << 10,
                        ..base
                    };
                    let (goodput, loss, net) = bulk(&config, flows, limit);
                    let mut sum = [0u64; 6];
                    for (client, _) in &net.pairs {
                        let c = client.counters();
                        for (at, n) in [c.segments, c.retransmitted, c.timeouts, c.recoveries, c.probes, c.undone]
                            .into_iter()
                            .enumerate()
                        {
                            sum[at] += n;
                        }
                    }
                    let bytes: Vec<f64> = net.pairs.iter().map(|(_, server)| server.delivered() as f64).collect();
                    let open = net.pairs.iter().filter(|(_, server)| server.is_established()).count();
                    let (one, two): (f64, f64) = (bytes.iter().sum(), bytes.iter().map(|x| x * x).sum());
                    println!(
                        "{flows:3} q{limit} {algorithm:?} {hystart:?} {goodput:.3} {:.2}% {sum:?} open {open} jain \
                         {:.3}",
                        loss * 100.0,
                        one * one / two / open as f64
                    );
                }
            }
        }
    }
}

#[test]
fn one_flow_fills_a_link_with_a_buffer_of_three_times_the_product() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let (goodput, loss, _) = bulk(&Config { congestion: algorithm, ..Config::linux() }, 1, 50);
        // 1448 of 1500 bytes are payload: 9.653 Mbit/s. With a buffer of the product and more,
        // halving leaves no gap (Villamizar and Song, "High performance TCP in ANSNET", 1994); the
        // start takes 20 ms and a few round trips.
        assert!(goodput > 0.97 * 9.653 && goodput < 9.654, "{algorithm:?} {goodput}");
        assert!(loss < 0.02, "{loss}");
    }
}

#[test]
fn a_window_bounds_the_rate() {
    // The rate is the window over the round-trip time: a buffer of 14,480 bytes, and 20 ms plus the
    // time of a segment and its acknowledgement.
    let config = Config { receive_buffer: 14_480, window_scaling: false, ..Config::linux() };
    let mut net = Net::new(Rate::mbit_s(1000), 10 * MS, 1000);
    let flow = net.pair(&config, 0);
    net.pairs[flow].0.write(u64::MAX);
    net.run(20 * S);
    let rate = net.pairs[0].1.delivered() as f64 * 8.0 / 20.0;
    let most = 14_480.0 * 8.0 / 0.020;
    assert!(rate < most && rate > 0.98 * most, "{rate} {most}");
    assert_eq!(net.pairs[0].0.counters().retransmitted, 0);
}

#[test]
fn ten_flows_through_a_deep_queue_on_a_slow_link_all_go_on() {
    // The queue of 100 packets takes 1.2 s to drain, and ten first windows fill it: every flow has
    // needless timeouts at first. No flow waits longer than a few times that; together they fill
    // the link, 1448 of 1500 bytes of which are payload.
    for congestion in [Algorithm::Reno, Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr] {
        let mut net = Net::new(Rate::mbit_s(1), 20 * MS, 100);
        for _ in 0..10 {
            let flow = net.pair(&Config { congestion, ..Config::linux() }, 0);
            net.pairs[flow].0.write(u64::MAX);
        }
        let mut before = [0; 10];
        let mut at_five = 0;
        for t in 1..=6 {
            net.run(10 * t * S);
            for (flow, (_, server)) in net.pairs.iter().enumerate() {
                assert!(server.delivered() > before[flow], "{congestion:?}: flow {flow} stands at {t}0 s");
                before[flow] = server.delivered();
            }
            at_five = if t == 1 { before.iter().sum() } else { at_five };
        }
        let rate = (before.iter().sum::<u64>() - at_five) as f64 * 8.0 / 50.0;
        assert!(rate > 0.95 * 965_333.0, "{congestion:?} {rate}");
    }
}
