//! Opening and closing (RFC 9293 3.5, 3.6; RFC 6298 2.1, 5.5).

use altq_engine::units::Rate;

use super::link::{MS, Net, S};
use crate::tcp::{Config, Flags, Segment};

fn net() -> Net {
    let mut net = Net::new(Rate::mbit_s(1000), 10 * MS, 1000);
    net.log = Some(Vec::new());
    net
}

fn flags(segment: &Segment) -> u8 {
    segment.flags.0 & !Flags::PSH.0
}

const SYN: u8 = Flags::SYN.0;
const ACK: u8 = Flags::ACK.0;
const FIN: u8 = Flags::FIN.0;

#[test]
fn three_segments_open_and_four_close() {
    let mut net = net();
    let flow = net.pair(&Config { time_wait: 20 * MS, ..Config::linux() }, 0);
    net.run(50 * MS);
    assert!(net.pairs[flow].0.is_established() && net.pairs[flow].1.is_established());
    net.pairs[flow].0.close();
    net.poll(flow, false);
    net.run(100 * MS);
    assert!(net.pairs[flow].1.peer_closed());
    net.pairs[flow].1.close();
    net.poll(flow, true);
    net.run(111 * MS);
    // RFC 9293 3.6: who closed first waits two segment lifetimes; the other is done with the last
    // acknowledgement.
    assert!(net.pairs[flow].0.is_done() && !net.pairs[flow].0.is_closed());
    net.run(S);
    assert!(net.pairs[flow].0.is_closed() && net.pairs[flow].1.is_closed());
    assert!(!net.pairs[flow].0.has_failed());
    let log: Vec<(bool, u8)> = net.log.unwrap().iter().map(|(_, up, segment)| (*up, flags(segment))).collect();
    assert_eq!(
        log,
        [
            (true, SYN),
            (false, SYN | ACK),
            (true, ACK),
            (true, FIN | ACK),
            (false, ACK),
            (false, FIN | ACK),
            (true, ACK)
        ]
    );
    let end = net.pairs[flow].0.counters();
    assert_eq!((end.segments, end.retransmitted), (2, 0));
}

#[test]
fn the_answer_to_a_syn_is_acknowledged_before_data_is_sent() {
    // Linux: the application can write only when the connection is open, and by then the kernel has
    // acknowledged the answer. RFC 9293 3.10.7.3 allows for data with that acknowledgement.
    for (config, lengths) in [(Config::linux(), vec![0, 1448, 1448]), (Config::rfc(), vec![1448, 1448])] {
        let mut net = net();
        let flow = net.pair(&config, 0);
        net.pairs[flow].0.write(2896);
        net.run(25 * MS);
        let log = net.log.unwrap();
        let up = log.iter().filter(|(_, up, segment)| *up && !segment.flags.has(Flags::SYN));
        assert_eq!(up.map(|(_, _, segment)| segment.len).collect::<Vec<_>>(), lengths);
    }
}

#[test]
fn a_request_and_its_answer() {
    let mut net = net();
    let flow = net.pair(&Config::linux(), 0);
    net.pairs[flow].0.write(100);
    net.run(25 * MS);
    assert_eq!(net.pairs[flow].1.delivered(), 0);
    net.run(35 * MS);
    assert_eq!(net.pairs[flow].1.delivered(), 100);
    net.pairs[flow].1.write(5_000);
    net.pairs[flow].1.close();
    net.poll(flow, true);
    net.run(50 * MS);
    // RFC 9293 3.9.1: all that was written comes before the end does.
    assert_eq!(net.pairs[flow].0.delivered(), 5_000);
    assert!(net.pairs[flow].0.peer_closed());
}

#[test]
fn a_syn_goes_again_after_a_second_and_the_window_is_one() {
    // RFC 6298 2.1: 1 s; 5.5: twice as long each time.
    let mut net = net();
    let mut n = 0;
    net.ways[0].lose = Some(Box::new(move |_, _| {
        n += 1;
        n <= 3
    }));
    let flow = net.pair(&Config { syn_linear: 0, jiffy: 0, ..Config::linux() }, 0);
    net.pairs[flow].0.write(u64::MAX);
    net.run(7 * S + 30 * MS);
    let at: Vec<u64> = net
        .log
        .as_ref()
        .unwrap()
        .iter()
        .filter(|(_, _, segment)| flags(segment) == SYN)
        .map(|(at, _, _)| at / S)
        .collect();
    assert_eq!(at, [0, 1, 3, 7]);
    // RFC 5681 3.1: one segment after a lost SYN.
    let data = net.log.unwrap().iter().filter(|(_, up, segment)| *up && segment.len > 0).count();
    assert_eq!(data, 1);
}

#[test]
fn a_syn_that_was_only_late_leaves_the_window() {
    // The answers take 2.5 s, so the SYN goes twice; but they echo the first one's timestamp
    // (RFC 3522 3.2), which was not lost.
    let mut net = net();
    net.ways[1].fate = Some(Box::new(|_, _| vec![2500 * MS]));
    let flow = net.pair(&Config { syn_linear: 0, jiffy: 0, ..Config::linux() }, MS);
    net.pairs[flow].0.write(u64::MAX);
    net.run(2600 * MS);
    let log = net.log.unwrap();
    assert_eq!(log.iter().filter(|(_, _, segment)| flags(segment) == SYN).count(), 2);
    assert_eq!(log.iter().filter(|(_, up, segment)| *up && segment.len > 0).count(), 10);
}

#[test]
fn linear_syns() {
    let mut net = net();
    net.ways[0].lose = Some(Box::new(|_, _| true));
    let flow = net.pair(&Config { jiffy: 0, ..Config::linux() }, 0);
    net.run(130 * S);
    let at: Vec<u64> = net.log.as_ref().unwrap().iter().map(|(at, _, _)| at / S).collect();
    // Documentation/networking/ip-sysctl.rst of Linux: spans of 1, 1, 1, 1, 1, 2, 4 ... s, the last
    // retransmission after 67 s, the end after 131 s.
    assert_eq!(at, [0, 1, 2, 3, 4, 5, 7, 11, 19, 35, 67]);
    assert!(!net.pairs[flow].0.has_failed());
    net.run(132 * S);
    assert!(net.pairs[flow].0.has_failed());
}

#[test]
fn a_lost_last_acknowledgement_and_a_lost_fin_are_made_good() {
    let mut net = net();
    // The third segment forward is the handshake's end; the server's answer goes again and is
    // acknowledged then.
    let mut n = 0;
    net.ways[0].lose = Some(Box::new(move |_, _| {
        n += 1;
        n == 2
    }));
    let flow = net.pair(&Config::linux(), 0);
    net.run(S);
    assert!(net.pairs[flow].0.is_established() && !net.pairs[flow].1.is_established());
    net.run(3 * S);
    assert!(net.pairs[flow].1.is_established());
    let mut fins = 0;
    net.ways[0].lose = Some(Box::new(move |_, segment| {
        fins += u32::from(segment.flags.has(Flags::FIN));
        segment.flags.has(Flags::FIN) && fins == 1
    }));
    net.pairs[flow].0.close();
    net.poll(flow, false);
    net.run(6 * S);
    assert!(net.pairs[flow].1.peer_closed());
}

#[test]
fn what_a_closed_end_hears_it_answers_with_a_reset() {
    let mut net = net();
    let flow = net.pair(&Config::linux(), 0);
    net.run(S);
    net.pairs[flow].1.abort();
    net.poll(flow, true);
    net.run(2 * S);
    assert!(net.pairs[flow].0.has_failed() && net.pairs[flow].0.is_closed());
}

#[test]
fn what_one_end_cannot_is_not_used() {
    let plain = Config { sack: false, timestamps: false, window_scaling: false, mss: 1000, ..Config::linux() };
    let mut net = net();
    net.pair_of(&Config::linux().into(), &plain.into(), 0);
    net.pairs[0].0.write(10_000);
    net.run(S);
    assert_eq!(net.pairs[0].1.delivered(), 10_000);
    for (_, _, segment) in net.log.unwrap().iter().filter(|(_, _, segment)| !segment.flags.has(Flags::SYN)) {
        assert_eq!((segment.options.0, segment.bytes), (0, 40 + segment.len));
        // RFC 7323 2.3: without the scale 65,535 bytes at most; RFC 9293 3.7.1: the peer's MSS.
        assert!(segment.window <= 65_535 && segment.len <= 1000);
    }
}
