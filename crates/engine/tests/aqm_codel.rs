//! CoDel against the pseudo-code of RFC 8289, section 5, implemented here a second time with a
//! deque and floating point. Both drop the same packets at the same times.

use crate::support::queue as support;

use std::collections::VecDeque;

use altq_engine::Packet;
use altq_engine::settings::{Limit, Value};
use support::{Fate, Step, fates, link, queue, traffic};

/// The state (RFC 8289, 5.2) and the constants (5.3). Times are in ns.
struct Reference {
    target: f64,
    interval: f64,
    maxpacket: u32,
    limit: usize,
    ecn: bool,
    queue: VecDeque<(f64, Packet)>,
    bytes: u32,
    first_above_time: f64,
    drop_next: f64,
    count: u32,
    lastcount: u32,
    dropping: bool,
    fates: Vec<Fate>,
}

impl Reference {
    fn enqueue(&mut self, now: u64, packet: Packet) {
        if self.queue.len() >= self.limit {
            self.fates.push((now, packet.handle, 'd'));
        } else {
            self.queue.push_back((now as f64, packet));
            self.bytes += packet.len;
        }
    }

    /// RFC 8289, 5.6; rounded down to nanoseconds, the engine's unit.
    fn control_law(&self, t: f64, count: u32) -> f64 {
        t + (self.interval / f64::from(count).sqrt()).floor()
    }

    /// RFC 8289, 5.6.
    fn dodequeue(&mut self, now: f64) -> (Option<Packet>, bool) {
        let Some((arrived, packet)) = self.queue.pop_front() else {
            self.first_above_time = 0.0;
            return (None, false);
        };
        self.bytes -= packet.len;
        if now - arrived < self.target || self.bytes <= self.maxpacket {
            self.first_above_time = 0.0;
        } else if self.first_above_time == 0.0 {
            self.first_above_time = now + self.interval;
        } else if now >= self.first_above_time {
            return (Some(packet), true);
        }
        (Some(packet), false)
    }

    fn drop(&mut self, now: f64, packet: Option<Packet>) {
        self.fates.extend(packet.map(|packet| (now as u64, packet.handle, 'd')));
    }

    /// RFC 8289, 5.5. With ECN a packet is marked instead of dropped. The RFC does not say how; as
    /// in Linux, a marked packet is sent at once.
    fn deque(&mut self, time: u64) {
        let now = time as f64;
        let (mut packet, mut ok_to_drop) = self.dodequeue(now);
        let ecn = self.ecn;
        let marks = |packet: &Option<Packet>| ecn && packet.is_some_and(|packet| packet.ecn != 0);
        let mut marked = false;
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                if marks(&packet) {
                    marked = true;
                    self.count += 1;
                    self.drop_next = self.control_law(self.drop_next, self.count);
                    break;
                }
                self.drop(now, packet);
                self.count += 1;
                (packet, ok_to_drop) = self.dodequeue(now);
                if ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next, self.count);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            if marks(&packet) {
                marked = true;
            } else {
                self.drop(now, packet);
                (packet, _) = self.dodequeue(now);
            }
            self.dropping = true;
            let delta = self.count - self.lastcount;
            self.count = 1;
            if delta > 1 && now - self.drop_next < 16.0 * self.interval {
                self.count = delta;
            }
            self.drop_next = self.control_law(now, self.count);
            self.lastcount = self.count;
        }
        // A packet that arrived with the mark leaves with it.
        self.fates
            .extend(packet.map(|packet| (time, packet.handle, if marked || packet.ecn == 3 { 'm' } else { 's' })));
    }
}

fn reference(traffic: &[Step], target: u64, interval: u64, limit: usize, ecn: bool) -> Vec<Fate> {
    let mut queue = Reference {
        target: target as f64,
        interval: interval as f64,
        maxpacket: 1500,
        limit,
        ecn,
        queue: VecDeque::new(),
        bytes: 0,
        first_above_time: 0.0,
        drop_next: 0.0,
        count: 0,
        lastcount: 0,
        dropping: false,
        fates: Vec::new(),
    };
    for step in traffic {
        match *step {
            Step::Arrival(now, packet) => queue.enqueue(now, packet),
            Step::Departure(now) => queue.deque(now),
        }
    }
    queue.fates.sort_unstable();
    queue.fates
}

fn codel(target: u64, interval: u64, limit: u32, ecn: bool) -> altq_engine::Engine {
    let mut words = vec![("target", Value::Time(target)), ("interval", Value::Time(interval))];
    if ecn {
        words.push(("ecn", Value::Flag));
    }
    link(10_000_000, queue("codel", Limit::Packets(limit), &words)).unwrap()
}

#[track_caller]
fn same(traffic: &[Step], target: u64, interval: u64, limit: u32, ecn: bool) -> usize {
    let seen = fates(&mut codel(target, interval, limit, ecn), traffic);
    let expected = reference(traffic, target, interval, limit as usize, ecn);
    let differs = seen.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(
        differs,
        None,
        "{:?} instead of {:?}",
        seen.get(differs.unwrap_or(0)),
        expected.get(differs.unwrap_or(0))
    );
    assert_eq!(seen.len(), expected.len());
    seen.iter().filter(|(_, _, fate)| *fate != 's').count()
}

#[test]
fn the_same_drops_on_random_traffic() {
    let mut hits = 0;
    for seed in 1..=60 {
        let traffic = traffic(seed, 4000);
        for (target, interval) in [(5_000_000, 100_000_000), (1_000_000, 20_000_000), (20_000_000, 300_000_000)] {
            hits += same(&traffic, target, interval, 200, seed % 2 == 0);
        }
    }
    assert!(hits > 20_000, "{hits} drops and marks");
}

/// For a minute a packet of 1000 bytes arrives every 900 us, and one leaves every millisecond. The
/// queue stands, and CoDel drops ever faster, until it drops one packet in ten.
#[test]
fn the_same_drops_on_a_standing_queue() {
    let mut traffic: Vec<Step> = (0..66_000).map(|n| Step::Arrival(n * 900_000, Packet::new(n as u32, 1000))).collect();
    traffic.extend((0..60_000).map(|n| Step::Departure(n * 1_000_000 + 1)));
    traffic.sort_by_key(|step| match step {
        Step::Arrival(now, _) | Step::Departure(now) => *now,
    });
    let hits = same(&traffic, 5_000_000, 100_000_000, 10_000, false);
    // To hold the queue one packet in ten must be dropped, about 100 a second. The interval between
    // drops, 100 ms / sqrt(n), is 10 ms after n = 100 drops, that is after about 2 sqrt(100) * 100
    // ms = 2 s.
    assert!(hits > 4000 && hits < 7000, "{hits}");
}

/// More than 2^16 drops without a pause, then a pause, after which dropping starts again at the
/// rate that the RFC says. Three times.
#[test]
fn a_hundred_thousand_drops_in_a_row() {
    let mut traffic = Vec::new();
    for round in 0..3u64 {
        let start = 1 + round * 1_405_000_000;
        // For 1.4 s a packet of 100 bytes arrives every 2 us, and one leaves for every 8 that
        // arrive. Then the queue empties.
        for n in 0..700_000 {
            let now = start + 2000 * n;
            traffic.push(Step::Arrival(now, Packet::new((round * 700_000 + n) as u32, 100)));
            if n % 8 == 7 {
                traffic.push(Step::Departure(now));
            }
        }
        traffic.extend((0..2001).map(|n| Step::Departure(start + 1_400_000_000 + n * 2000)));
    }
    let hits = same(&traffic, 10_000, 1_000_000, 2000, false);
    assert!(hits > 1_000_000, "{hits}");
    let mut engine = codel(10_000, 1_000_000, 2000, false);
    let most = traffic.chunks(10_000).map(|part| {
        fates(&mut engine, part);
        support::counter(&engine, "count")
    });
    let most = most.max();
    assert!(most > Some(1 << 16), "{most:?}");
}
