//! Timeout, acknowledgements and SACK blocks, by the examples of their RFCs.

use super::link::{MS, S};
use crate::tcp::receiver::Receiver;
use crate::tcp::rto::Rto;
use crate::tcp::{Config, DelayedAck, Flags, RtoFloor, Segment};

#[test]
fn the_timeout() {
    let config = Config { rto_floor: RtoFloor::Total, ..Config::linux() };
    let mut rto = Rto::new(&config);
    assert_eq!(rto.timeout(), S);
    // RFC 6298 2.2: SRTT = R, RTTVAR = R / 2, RTO = SRTT + 4 RTTVAR.
    rto.sample(&config, 400 * MS, 1, 1);
    assert_eq!(rto.timeout(), 1200 * MS);
    // RFC 6298 2.3: RTTVAR = 3/4 * 200 + 1/4 * |400 - 800| = 250; SRTT = 7/8 * 400 + 1/8 * 800
    // = 450.
    rto.sample(&config, 800 * MS, 1, 1);
    assert_eq!((rto.srtt(), rto.timeout()), (Some(450 * MS), 1450 * MS));
    // RFC 6298 5.5; the note after 5.7: a sample takes it back.
    rto.back_off(&config);
    assert_eq!(rto.timeout(), 2900 * MS);
    for _ in 0..200 {
        rto.sample(&config, 10 * MS, 1, 1);
    }
    // RFC 6298 2.4, with the 200 ms that Linux and others use.
    assert_eq!(rto.timeout(), 200 * MS);
}

#[test]
fn the_timeout_of_linux() {
    // tcp_rtt_estimator of net/ipv4/tcp_input.c by hand, in ms. First 100: the deviation counts
    // four times 50.
    let config = Config::linux();
    let mut rto = Rto::new(&config);
    rto.sample(&config, 100 * MS, 1, 1001);
    assert_eq!(rto.timeout(), 300 * MS);
    // 500: SRTT 100 + 400/8 = 150; deviation 200 + (400 - 50) = 550, taken at once; the round ends,
    // so the widest of the next one starts at 200.
    rto.sample(&config, 500 * MS, 1002, 3001);
    assert_eq!(rto.timeout(), 700 * MS);
    // 70 within the round: SRTT 150 - 80/8 = 140; 80 is less than 550/4 = 137.5, so the deviation
    // falls by 57.5 to 492.5. Nothing of that shows before the round ends.
    rto.sample(&config, 70 * MS, 2001, 4001);
    assert_eq!(rto.timeout(), 690 * MS);
    // 140 when it ends: SRTT 140; deviation 492.5 - 123.125 = 369.375. The widest of the round was
    // 492.5, so 550 falls by a quarter of 57.5.
    rto.sample(&config, 140 * MS, 3002, 5001);
    assert_eq!(rto.timeout(), 140 * MS + 550 * MS - 14_375_000);
}

fn data(seq: u64, len: u32) -> Segment {
    Segment { seq, len, flags: Flags::ACK, ..Segment::default() }
}

/// What the receiver says after a segment: number and SACK blocks.
fn hear(receiver: &mut Receiver, config: &Config, seq: u64, len: u32) -> (u64, Vec<(u64, u64)>) {
    receiver.received(config, 0, &data(seq, len), false, false, S);
    let segment = Segment { ack: receiver.next(), sack: receiver.sack(false), ..Segment::default() };
    receiver.acknowledged();
    (segment.ack, segment.sack_blocks().collect())
}

/// A receiver that expects byte 5000.
fn at_5000(config: &Config) -> Receiver {
    let mut receiver = Receiver::new(config);
    receiver.opened(0, &Segment::default());
    hear(&mut receiver, config, 1, 4999);
    receiver
}

#[test]
fn sack_blocks_of_rfc_2018() {
    let config = Config::linux();
    // RFC 2018 7, case 2: the first of eight segments of 500 bytes is lost.
    let mut receiver = at_5000(&config);
    for n in 1..8 {
        assert_eq!(hear(&mut receiver, &config, 5000 + 500 * n, 500), (5000, vec![(5500, 5500 + 500 * n)]));
    }
    // Case 3: the second, fourth, sixth and eighth are lost.
    let mut receiver = at_5000(&config);
    assert_eq!(hear(&mut receiver, &config, 5000, 500), (5500, vec![]));
    assert_eq!(hear(&mut receiver, &config, 6000, 500), (5500, vec![(6000, 6500)]));
    assert_eq!(hear(&mut receiver, &config, 7000, 500), (5500, vec![(7000, 7500), (6000, 6500)]));
    assert_eq!(hear(&mut receiver, &config, 8000, 500), (5500, vec![(8000, 8500), (7000, 7500), (6000, 6500)]));
    // Then the fourth comes, and the second.
    assert_eq!(hear(&mut receiver, &config, 6500, 500), (5500, vec![(6000, 7500), (8000, 8500)]));
    assert_eq!(hear(&mut receiver, &config, 5500, 500), (7500, vec![(8000, 8500)]));
}

#[test]
fn duplicates_of_rfc_2883() {
    // RFC 2883 4.1.1: 3000 to 3499 comes twice.
    let config = Config::linux();
    let mut receiver = Receiver::new(&config);
    receiver.opened(0, &Segment::default());
    hear(&mut receiver, &config, 1, 2999);
    assert_eq!(hear(&mut receiver, &config, 3000, 500), (3500, vec![]));
    assert_eq!(hear(&mut receiver, &config, 3500, 500), (4000, vec![]));
    assert_eq!(hear(&mut receiver, &config, 3000, 500), (4000, vec![(3000, 3500)]));
    // 4.1.2: the same with a gap; the block of what is held follows.
    assert_eq!(hear(&mut receiver, &config, 4500, 500), (4000, vec![(4500, 5000)]));
    assert_eq!(hear(&mut receiver, &config, 3000, 500), (4000, vec![(3000, 3500), (4500, 5000)]));
}

#[test]
fn acknowledgements_are_delayed() {
    // RFC 5681 4.2: at once for every second full segment, and for what is out of order or fills a
    // gap.
    let config = Config { delayed_ack: DelayedAck::Modern { wait: 40 * MS, quick: 0 }, ..Config::rfc() };
    let mut receiver = Receiver::new(&config);
    receiver.opened(0, &Segment::default());
    let mut now = 7 * MS;
    let mut hear = |receiver: &mut Receiver, seq| {
        now += MS;
        receiver.received(&config, now, &data(seq, 1448), false, false, S);
        let urgent = receiver.urgent(now);
        let deadline = receiver.deadline();
        if urgent {
            receiver.acknowledged();
        }
        (urgent, deadline)
    };
    assert_eq!(hear(&mut receiver, 1), (false, Some(48 * MS)));
    assert!(hear(&mut receiver, 1449).0);
    assert!(hear(&mut receiver, 1 + 3 * 1448).0);
    assert!(hear(&mut receiver, 1 + 2 * 1448).0);
    // Linux: the first 16 at once (TCP_MAX_QUICKACKS), so that slow start is not held up.
    let config = Config::linux();
    let mut receiver = Receiver::new(&config);
    receiver.opened(0, &Segment::default());
    let mut at_once = 0;
    for n in 0..20 {
        receiver.received(&config, MS, &data(1 + n * 1448, 1448), false, false, S);
        if !receiver.urgent(MS) {
            break;
        }
        receiver.acknowledged();
        at_once += 1;
    }
    assert_eq!(at_once, 16);
    // 4.4BSD: every second segment, or the next multiple of 200 ms (TCP/IP Illustrated 2,
    // chapters 25 and 26).
    let config = Config::bsd_1997(32 << 10);
    let mut receiver = Receiver::new(&config);
    receiver.opened(0, &Segment::default());
    receiver.received(&config, 730 * MS, &data(1, 100), false, false, S);
    assert_eq!((receiver.urgent(730 * MS), receiver.deadline()), (false, Some(800 * MS)));
    receiver.received(&config, 740 * MS, &data(101, 100), false, false, S);
    assert!(receiver.urgent(740 * MS));
}

#[test]
fn marks_hurry_acknowledgements() {
    // Linux, net/ipv4/tcp_input.c: tcp_ecn_check_ce asks for two quick acknowledgements with a
    // first mark (f4c9f85f3b2c), tcp_ecn_accept_cwr for one with CWR (9aee40006190). Segments 1
    // and 2 of each row would be acknowledged together, as would 3 and 4, and so on.
    for (hurry, expected) in
        [(true, [false, true, true, true, false, true, true]), (false, [false, true, true, false, true, false, true])]
    {
        let config = Config {
            delayed_ack: DelayedAck::Modern { wait: 40 * MS, quick: 0 },
            marks_hurry: hurry,
            ecn: true,
            ..Config::linux()
        };
        let mut receiver = Receiver::new(&config);
        receiver.opened(0, &Segment::default());
        let at_once: Vec<bool> = (0..7)
            .map(|n| {
                let mut segment = data(1 + n * 1448, 1448);
                if n == 6 {
                    segment.flags = segment.flags.with(Flags::CWR);
                }
                receiver.received(&config, MS, &segment, n == 2, false, S);
                let urgent = receiver.urgent(MS);
                if urgent {
                    receiver.acknowledged();
                }
                urgent
            })
            .collect();
        assert_eq!(at_once, expected, "hurry {hurry}");
    }
}
