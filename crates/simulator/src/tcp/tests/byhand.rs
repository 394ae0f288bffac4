//! What goes on each acknowledgement, against sequences that the RFCs give or that follow from
//! their rules by hand.

use std::collections::VecDeque;

use altq_engine::units::Nanos;

use super::link::{MS, S};
use super::script::{MSS, RTT, Script, rfc, trip};
use crate::tcp::congestion::Mode;
use crate::tcp::{Algorithm, Config, Flags};

/// A window of `window` segments, all of them on their way (numbers from `first` on), more to send,
/// nothing lost yet.
fn full(config: Config, window: u32) -> Script {
    let mut s = Script::new(Config { initial_window: window, ..config }, RTT);
    assert_eq!(s.write(1000).len(), window as usize);
    s.now += RTT;
    s
}

#[test]
fn prr_of_rfc_6937() {
    // RFC 6937 3.1, first example: 20 on their way, the first is lost, the threshold 10. Two new
    // ones by limited transmit, the retransmission, then a segment for every second
    // acknowledgement, until 10 are on their way.
    let mut s = full(rfc(), 20);
    let mut counts = Vec::new();
    for n in 1..20 {
        counts.push(s.ack(0, &[(1, n + 1)]).len());
    }
    // The k-th duplicate from the third on: ceil((k - 2) 10/20) have gone; at the last one 10 are
    // on their way, which is the threshold.
    assert_eq!(counts, [1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0]);
    assert_eq!(s.ssthresh(), Some(10));
    assert_eq!(s.socket.counters().retransmitted, 1);
    assert_eq!(s.socket.in_flight(), 10);
    s.now += RTT;
    s.ack(22, &[]);
    assert_eq!(s.cwnd(), 10);
}

#[test]
fn prr_after_a_burst_of_losses() {
    // RFC 6937 3.1, second example, PRR-CRB, which RFC 9937 6.2 takes when nothing is acknowledged
    // by number: the first 15 of 20 are lost; pipe falls to 4, far below the threshold, and one
    // segment goes for each one that arrives.
    let mut s = full(rfc(), 20);
    let sent: Vec<_> = (15..20).map(|n| s.ack(0, &[(15, n + 1)])).collect();
    assert_eq!(sent, [vec![20], vec![21], vec![0], vec![1], vec![2]]);
    assert_eq!(s.ssthresh(), Some(10));
    // SSRB when one advances the number and no further loss shows: one more than was delivered (RFC
    // 9937 6.2).
    s.now += RTT;
    assert_eq!(s.ack(1, &[(15, 20)]), [3, 4]);
}

/// Neither SACK nor any of what came after RFC 6582.
fn old(congestion: Algorithm) -> Config {
    Config {
        congestion,
        sack: false,
        rack: false,
        prr: false,
        frto: false,
        limited_transmit: false,
        byte_counting: false,
        ..rfc()
    }
}

#[test]
fn newreno_by_hand() {
    // RFC 6582 3.2. Window 8, segments 0 and 3 lost, 1, 2, 4 to 7 come: six duplicates. The third
    // brings the retransmission and a threshold of 4; the window of RFC 5681 is then 4 + 3, and
    // each further duplicate adds one: 10 after the sixth, of which 8 are out: segments 8 and 9.
    let mut s = full(old(Algorithm::NewReno), 8);
    let sent: Vec<_> = (0..6).map(|_| s.ack(0, &[])).collect();
    assert_eq!(sent, [vec![], vec![], vec![0], vec![], vec![8], vec![9]]);
    assert_eq!(s.ssthresh(), Some(4));
    // A partial acknowledgement: 0 to 2 have come. The next lost one goes at once; the window is
    // deflated by the three and one is added back (step 3b).
    s.now += RTT;
    assert_eq!(s.ack(3, &[])[0], 3);
    // Two duplicates by 8 and 9, then the full acknowledgement: the window is the threshold (3a),
    // recovery is over.
    s.ack(3, &[]);
    s.ack(3, &[]);
    s.now += RTT;
    s.ack(10, &[]);
    assert_eq!((s.cwnd(), s.socket.counters().recoveries, s.socket.counters().timeouts), (4, 1, 0));
}

#[test]
fn reno_by_hand() {
    // RFC 5681 3.2: the same, but the first new acknowledgement ends recovery, so the second loss
    // needs three duplicates of its own: there are none, and the timeout repairs it. This is the
    // first of the two problems with Reno that RFC 6582 1 names.
    let mut s = full(old(Algorithm::Reno), 8);
    for _ in 0..6 {
        s.ack(0, &[]);
    }
    s.now += RTT;
    assert!(!s.ack(3, &[]).contains(&3));
    assert_eq!(s.cwnd(), 4);
    s.ack(3, &[]);
    assert!(!s.ack(3, &[]).contains(&3));
    // RFC 6298: one sample of 100 ms at the handshake and the like since: no less than 200 ms.
    let (due, sent) = s.until(s.now + S);
    assert!(due && sent == [3], "{sent:?}");
    assert_eq!((s.cwnd(), s.socket.counters().timeouts), (1, 1));
}

#[test]
fn tahoe_by_hand() {
    // Jacobson 1988: the third duplicate starts slow start from one segment, up to half the window.
    let mut s = full(old(Algorithm::Tahoe), 8);
    let sent: Vec<_> = (0..3).map(|_| s.ack(0, &[])).collect();
    assert_eq!(sent, [vec![], vec![], vec![0]]);
    assert_eq!((s.cwnd(), s.ssthresh()), (1, Some(4)));
    s.now += RTT;
    s.ack(8, &[]);
    assert_eq!(s.cwnd(), 2, "one more for the first acknowledgement");
}

#[test]
fn slow_start_and_avoidance_by_hand() {
    // RFC 5681 3.1: one more for each segment acknowledged below the threshold, above it one a
    // window.
    let mut s = full(rfc(), 4);
    assert_eq!(trip(&mut s, 0, 4, 0).len(), 8);
    assert_eq!(trip(&mut s, 4, 12, RTT).len(), 16);
    assert_eq!(s.cwnd(), 16);
    // A mark: 8. 16 acknowledgements let 8 go; then eight new ones make it 9.
    s.now += RTT;
    s.acknowledge(13, &[], Flags::ACK);
    assert_eq!(s.cwnd(), 17);
}

#[test]
fn a_needless_timeout_is_found_by_new_data() {
    // RFC 5682 3.1 (SACK). Ten segments are held up, not lost. The timeout sends the first again
    // (1); the acknowledgement of the original (2b) lets two new ones go instead of
    // retransmissions; the next one acknowledges what was never sent again: needless (3b).
    let mut s = full(rfc(), 10);
    let (due, sent) = s.until(s.now + 60 * S);
    // The probe of RFC 8985 7 is first: a new segment (11th).
    assert!(due && sent == [10], "{sent:?}");
    let (due, sent) = s.until(s.now + 60 * S);
    assert!(due && sent == [0], "{sent:?}");
    assert_eq!((s.cwnd(), s.ssthresh()), (1, Some(5)));
    s.now += 10 * MS;
    assert_eq!(s.ack(1, &[]), [11, 12]);
    s.now += MS;
    s.ack(2, &[]);
    let c = s.socket.counters();
    assert_eq!((c.timeouts, c.retransmitted, c.undone), (1, 1, 1));
    assert!(s.cwnd() >= 10 && s.ssthresh().is_none(), "{} {:?}", s.cwnd(), s.ssthresh());
}

#[test]
fn a_real_timeout_stands() {
    // RFC 5682 3.1: after the two new ones a duplicate comes (3a): the rest was lost, and slow
    // start sends it again.
    let mut s = full(rfc(), 10);
    s.until(s.now + 60 * S);
    s.until(s.now + 60 * S);
    s.now += RTT;
    assert_eq!(s.ack(1, &[]), [11, 12]);
    s.now += RTT;
    let sent = s.ack(1, &[(11, 12)]);
    assert_eq!(sent.first(), Some(&1), "{sent:?}");
    s.ack(1, &[(11, 13)]);
    let c = s.socket.counters();
    assert_eq!((c.timeouts, c.undone), (1, 0));
    assert_eq!(s.ssthresh(), Some(5));
}

#[test]
fn a_probe_goes_after_two_round_trips() {
    // RFC 8985 7.2: PTO = 2 SRTT from the last acknowledgement on.
    let mut s = Script::new(Config { initial_window: 4, ..rfc() }, RTT);
    assert_eq!(s.write(4).len(), 4);
    trip(&mut s, 0, 2, RTT);
    // SRTT is 100 ms by every sample. Segments 2 and 3 have no answer, nothing new is there: the
    // last one goes again (7.3).
    let at = s.now;
    let (due, sent) = s.until(at + S);
    assert!(due && sent == [3], "{sent:?}");
    assert_eq!(s.now - at, 2 * RTT);
    assert_eq!(s.socket.counters().timeouts, 0);
    // 7.4: both had come, and the duplicate is reported: nothing was lost.
    s.now += RTT;
    s.ack(4, &[(3, 4)]);
    assert_eq!((s.ssthresh(), s.socket.counters().recoveries), (None, 0));
    // The same, and the probe repairs a loss: acknowledged without a report of a duplicate, and
    // beyond: the window is reduced.
    let mut s = Script::new(Config { initial_window: 4, ..rfc() }, RTT);
    s.write(4);
    trip(&mut s, 0, 3, RTT);
    let at = s.now;
    let (_, sent) = s.until(at + S);
    // One segment out: its acknowledgement may be delayed, but the probe is no later than the
    // timeout would be (7.2), 200 ms here.
    assert!(sent == [3] && s.now - at == 200 * MS, "{sent:?}");
    assert_eq!(s.socket.counters().timeouts, 0);
    s.now += RTT;
    s.write(1);
    s.ack(5, &[]);
    assert_eq!(s.ssthresh(), Some(s.cwnd()));
}

#[test]
fn reordering_is_waited_for() {
    // RFC 8985 6.2. At first three later ones are enough (step 4: reo_wnd 0 with DupThresh
    // SACKed)...
    let mut s = full(rfc(), 10);
    assert!(s.ack(0, &[(1, 2)]).iter().all(|n| *n >= 10));
    assert!(s.ack(0, &[(1, 3)]).iter().all(|n| *n >= 10));
    assert_eq!(s.ack(0, &[(1, 4)])[0], 0);
    // ... once segments are known to overtake, it is a quarter of the least round-trip time (100
    // ms) that a late one has. Segment 0 comes late here, sent once.
    let mut s = full(rfc(), 10);
    s.ack(0, &[(1, 2)]);
    s.ack(2, &[]);
    for n in 4..8 {
        assert!(s.ack(2, &[(3, n)]).iter().all(|n| *n >= 10), "{n}");
    }
    let at = s.now;
    let (due, sent) = s.until(at + S);
    assert!(due && sent == [2], "{sent:?}");
    // What was sent at 100 ms and came at 200 ms: lost at 200 + 25.
    assert_eq!(s.now - at, 25 * MS);
}

#[test]
fn small_segments_wait_for_acknowledgements() {
    // RFC 896, RFC 9293 3.7.4.
    for nagle in [true, false] {
        let mut s = Script::new(Config { nagle, ..rfc() }, RTT);
        s.socket.write(100);
        assert_eq!(s.segments().len(), 1, "nothing is out: it goes");
        s.socket.write(100);
        assert_eq!(s.segments().len(), usize::from(!nagle));
        // A full one never waits.
        s.socket.write(MSS);
        assert_eq!(s.segments().first().map(|segment| u64::from(segment.len)), Some(MSS), "nagle {nagle}");
    }
    // What waited goes with the acknowledgement, as one segment.
    let mut s = Script::new(rfc(), RTT);
    for _ in 0..3 {
        s.socket.write(100);
        s.segments();
    }
    s.now += RTT;
    let ack = crate::tcp::Segment { seq: 1, ack: 101, window: 100_000, flags: Flags::ACK, ..Default::default() };
    s.socket.received(s.now, &ack, false);
    let sent = s.segments();
    assert_eq!(sent.iter().map(|segment| segment.len).collect::<Vec<_>>(), [200]);
}

#[test]
fn a_silence_takes_the_window_back() {
    // RFC 5681 4.1: after a timeout without sending not more than the initial window; RFC 2861 3.1:
    // halved for every timeout, so 40 is 20 after one.
    for (timeouts, expected) in [(0.5, 40), (1.5, 20), (2.5, 10), (3.5, 10), (100.0, 10)] {
        let mut s = Script::new(rfc(), RTT);
        s.write(10 + 20);
        trip(&mut s, 0, 10, RTT);
        trip(&mut s, 10, 30, RTT);
        assert_eq!(s.cwnd(), 40);
        s.now += (s.socket.rto() as f64 * timeouts) as u64;
        assert_eq!(s.write(100).len(), expected, "{timeouts}");
    }
}

#[test]
fn what_the_peer_offers_is_not_exceeded() {
    // RFC 9293 3.8.6: 10,500 bytes are ten segments and a rest, which waits (3.8.6.2.1: no silly
    // window). RFC 7323 2.3: without the scale 65,535.
    let mut s = Script::new(Config { initial_window: 100, ..rfc() }, RTT);
    s.window = 10_500;
    s.ack(0, &[]);
    assert_eq!(s.write(1000).len(), 10);
    s.now += RTT;
    // The window moves on with what is acknowledged, and opens.
    s.window = 12_500;
    assert_eq!(s.ack(4, &[]), [10, 11, 12, 13, 14, 15]);
    let mut s = Script::new(Config { window_scaling: false, initial_window: 100, ..rfc() }, RTT);
    s.window = 65_535;
    s.ack(0, &[]);
    assert_eq!(s.write(1000).len(), 65);
}

#[test]
fn a_needless_retransmission_is_found_by_its_timestamp() {
    // RFC 3522 3.2 (Eifel): three later ones came first, so segment 0 went again; the
    // acknowledgement echoes the original's timestamp: it had only been late.
    let mut s = full(Config { timestamps: true, ..rfc() }, 10);
    let original = s.now - RTT;
    for n in 2..5 {
        s.ack_of(original, 0, &[(1, n)]);
    }
    assert_eq!((s.ssthresh(), s.socket.counters().retransmitted), (Some(5), 1));
    s.now += MS;
    s.ack_of(original, 4, &[]);
    assert_eq!((s.ssthresh(), s.socket.counters().undone), (None, 1));
    assert!(s.cwnd() >= 10);
}

#[test]
fn what_is_no_longer_taken_for_lost_is_judged_again() {
    // RFC 8985 6.2: three of 4 to 6 came, so 0 to 3 are taken for lost, and 0 goes again. Then the
    // original of 0 comes (RFC 3522 3.2), so the recovery was needless; but 1 to 3 are lost in
    // truth. They are judged again: a quarter of the least round-trip time later they are lost (RFC
    // 8985 6.2 step 4), and go at half the rate at which others arrive (RFC 6937 3.1), one of them
    // every 10 ms.
    let mut s = full(Config { timestamps: true, ..rfc() }, 10);
    let original = s.now - RTT;
    for n in 5..8 {
        s.ack_of(original, 0, &[(4, n)]);
    }
    assert_eq!(s.socket.counters().retransmitted, 1);
    s.now += MS;
    s.ack_of(original, 1, &[(4, 7)]);
    assert!(s.socket.counters().undone == 1 && s.cwnd() >= 10, "{}", s.cwnd());
    let (at, mut again, mut n) = (s.now, Vec::new(), 8);
    while s.now < at + 200 * MS {
        again.extend(s.ack_of(s.now - RTT, 1, &[(4, n)]).into_iter().filter(|segment| *segment < 4));
        n += 1;
        let next = s.now + 10 * MS;
        while s.now < next {
            again.extend(s.until(next).1.into_iter().filter(|segment| *segment < 4));
        }
    }
    assert!([1, 2, 3].iter().all(|lost| again.contains(lost)), "{again:?}");
    assert_eq!(s.socket.counters().timeouts, 0);
}

#[test]
fn new_data_that_arrives_above_a_hole_does_not_hold_the_timeout_up() {
    // RFC 6298 5.3: only what acknowledges new data restarts the timer. Segment 0 is lost and its
    // retransmission too, which without RACK only the timeout finds. SACK reports the others of the
    // first window at once and then a new segment every 10 ms.
    let mut s = full(Config { rack: false, ..rfc() }, 10);
    let mut again = Vec::new();
    for n in 1..100 {
        let sent = s.ack(0, &[(1, n + 1)]);
        if n < 9 {
            again.extend(sent.into_iter().filter(|segment| *segment == 0).map(|_| s.now));
            continue;
        }
        again.extend(sent.into_iter().filter(|segment| *segment == 0).map(|_| s.now));
        let next = s.now + 10 * MS;
        while s.now < next {
            let (_, sent) = s.until(next);
            again.extend(sent.into_iter().filter(|segment| *segment == 0).map(|_| s.now));
        }
    }
    // Round-trip times of 100 ms each give the shortest timeout, 200 ms.
    assert_eq!(again[1] - again[0], 200 * MS, "{again:?}");
}

#[test]
fn cubic_follows_its_function() {
    // RFC 9438 4.2: W(t) = C (t - K)^3 + W_max, K = cbrt(W_max (1 - beta)/C), C = 0.4, beta = 0.7;
    // here by a whole connection, W_max = 400, round trips of 100 ms: after the recovery the window
    // is 280, K = cbrt(300) = 6.694 s.
    let mut s =
        full(Config { congestion: Algorithm::Cubic, sack: false, rack: false, prr: false, frto: false, ..rfc() }, 400);
    s.socket.write(u64::MAX / 2);
    for _ in 0..3 {
        s.ack(0, &[]);
    }
    s.now += RTT;
    let begin = s.now;
    let mut acked = s.ack(400, &[]).last().map_or(400, |n| n + 1);
    assert_eq!((s.cwnd(), s.ssthresh()), (280, Some(280)));
    let (mut first, k) = (400, 300f64.cbrt());
    while s.now < begin + 12 * S {
        // A whole window, acknowledged segment by segment over the round trip.
        let span = RTT / (acked - first).max(1);
        let mut next = acked;
        for n in first..acked {
            s.now += span;
            next = s.ack(n + 1, &[]).last().map_or(next, |n| n + 1);
        }
        (first, acked) = (acked, next);
        let t = (s.now - begin) as f64 / 1e9;
        let expected = 0.4 * (t - k).powi(3) + 400.0;
        // The window follows by up to a round trip and a segment: the epoch begins with the first
        // acknowledgement after the recovery.
        let slack = 0.4 * 3.0 * (t - k).powi(2) * 0.25 + 2.0;
        assert!((s.cwnd() as f64 - expected).abs() < slack, "{t} {} {expected}", s.cwnd());
    }
    assert!(s.cwnd() > 440, "{}", s.cwnd());
}

#[test]
fn a_timeout_falls_on_the_wheel() {
    // kernel/time/timer.c of Linux, jiffies of 4 ms: set at 100 ms (jiffy 25) for 300 ms (75
    // jiffies, the second level) it fires on the next multiple of eight after 100: 416 ms.
    let linux = Config { congestion: Algorithm::NewReno, timestamps: false, rack: false, ..Config::linux() };
    let mut s = Script::new(linux.clone(), RTT);
    assert_eq!((s.write(1), s.socket.rto()), (vec![0], 300 * MS));
    let mut calls = Vec::new();
    loop {
        let (due, sent) = s.until(S);
        calls.push(s.now);
        if !due || !sent.is_empty() {
            break;
        }
    }
    assert_eq!(calls.last(), Some(&(416 * MS)), "{calls:?}");
    // Set anew by an acknowledgement before that, it counts from there: 100 ms later, 108 + 72 ..
    // is the level below 504 jiffies again.
    let mut s = Script::new(linux, RTT);
    s.write(2);
    s.now += RTT;
    s.ack(1, &[]);
    let rto = s.socket.rto();
    assert!(rto >= 300 * MS);
    let expires = 50 + rto.div_ceil(4 * MS);
    while s.until(S).1.is_empty() {}
    assert_eq!(s.now, ((expires >> 3) + 1) * 32 * MS);
}

#[test]
fn a_needless_retransmission_tells_rack_nothing() {
    // RFC 8985 6.2 step 2: the acknowledgement echoes a timestamp from before the retransmission,
    // so the first sending has arrived, late. When the retransmission was sent then says nothing of
    // the segments between them. They are as late, and are not sent again.
    let mut s = full(rfc(), 10);
    let sent_at = s.now - RTT;
    while !s.until(s.now + 10 * S).1.contains(&0) {}
    s.now += 3 * RTT;
    for n in 0..9 {
        let sent = s.ack_of(sent_at, n + 1, &[]);
        assert!(sent.iter().all(|segment| *segment > 9), "{sent:?}");
    }
    let counters = s.socket.counters();
    assert_eq!((counters.timeouts, counters.undone, counters.recoveries, counters.retransmitted), (1, 1, 0, 1));
}

#[test]
fn a_late_round_trip_moves_racks_clock() {
    // RFC 8985 6.2 step 2: RACK.rtt is that of the segment that arrived last, even if another that
    // was sent later had arrived before. Segment 0 is overtaken and takes 150 ms, the others
    // 100 ms; so segment 1, sent with it, has until 150 ms after it was sent.
    let mut s = full(rfc(), 4);
    s.ack(0, &[(2, 3)]);
    s.now += RTT / 2;
    assert!(!s.ack(1, &[(2, 3)]).contains(&1));
}

#[test]
fn bbr_retransmits_only_what_its_window_has_room_for() {
    // Linux: tcp_xmit_retransmit_queue sends nothing while the window is full, and BBR's is four
    // segments while it looks at the round-trip time (BBR draft 4.3.5). A link of a segment each 10
    // ms, and a round trip of 100 ms that later is 200 ms and more, so that the shortest one runs
    // out after 10 s.
    let mut s = Script::new(Config { congestion: Algorithm::Bbr, initial_window: 20, ..rfc() }, RTT);
    let mut out: VecDeque<(Nanos, u64)> = s.write(1_000_000).iter().map(|n| (s.now, *n)).collect();
    let mut free = s.now;
    while s.socket.mode() != Some(Mode::ProbeRtt) {
        let due = free.max(out[0].0 + 2 * RTT);
        let mut sent = s.until(due).1;
        if s.now >= due {
            free = due + 10 * MS;
            let (_, first) = out.pop_front().unwrap();
            sent.extend(s.ack(first + 1, &[]));
        }
        out.extend(sent.iter().map(|n| (s.now, *n)));
    }
    let first = out[0].1;
    assert!(s.cwnd() == 4 && s.socket.in_flight() > 10);
    // The first one is lost, the next ones arrive: it is sent again when fewer than four are in
    // flight.
    let mut resent = false;
    for n in 1..out.len() as u64 {
        s.now += 10 * MS;
        let sent = s.ack(first, &[(first + 1, first + n + 1)]);
        assert!(sent.is_empty() || s.socket.in_flight() <= 4, "{sent:?} {}", s.socket.in_flight());
        resent |= sent.contains(&first);
    }
    assert!(resent && s.socket.counters().recoveries == 1);
}
