//! A wire and its driver in virtual time, as in `altq replay`. The wire sends one packet at a time.
//! The engine is asked at every arrival, when a transmission is complete, and at the times of
//! `next_wakeup`, rounded up to the next tick. At one time: first completions, then timers, then
//! arrivals.

use std::collections::VecDeque;

use altq_engine::spec::Timer;
use altq_engine::units::{Nanos, Rate, SECOND};
use altq_engine::{Engine, Packet};

/// An arriving packet: when, for which class, how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub at: Nanos,
    pub class: u32,
    pub bytes: u32,
}

/// A packet that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    pub at: Nanos,
    pub class: u32,
    pub bytes: u32,
    /// Its index in the list of arrivals.
    pub id: u32,
    /// When its last bit had left.
    pub end: Nanos,
    pub arrived: Nanos,
}

/// The wire and the driver in front of it. A packet's last bit leaves at the start of the busy
/// period plus the time of all bits sent in it so far, rounded up.
pub struct Wire {
    rate: Rate,
    start: Nanos,
    bytes: u64,
    /// When the last bit of each packet in the driver will have left; the one on the wire first.
    ends: VecDeque<Nanos>,
}

impl Wire {
    pub fn new(rate: Rate) -> Wire {
        Wire { rate, start: 0, bytes: 0, ends: VecDeque::new() }
    }

    /// Takes a packet at `now`. Returns when its last bit will have left.
    pub fn send(&mut self, now: Nanos, bytes: u32) -> Nanos {
        if self.start + self.rate.time_for(self.bytes) < now {
            (self.start, self.bytes) = (now, 0);
        }
        self.bytes += u64::from(bytes);
        let end = self.start + self.rate.time_for(self.bytes);
        self.ends.push_back(end);
        end
    }

    pub fn held(&self) -> usize {
        self.ends.len()
    }

    /// When the last bit of the packet on the wire will have left.
    pub fn next_end(&self) -> Option<Nanos> {
        self.ends.front().copied()
    }

    pub fn complete(&mut self) {
        self.ends.pop_front();
    }
}

/// Rounds a time up to the next one at which the caller's timer can fire.
pub fn rounded(at: Nanos, timer: Timer) -> Nanos {
    match timer {
        Timer::Exact => at,
        Timer::Tick(tick) => at.div_ceil(tick).saturating_mul(tick),
    }
}

/// The caller of the engine: the wire's rate, the timer, and how many packets the driver holds,
/// including the one on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub rate: Rate,
    pub timer: Timer,
    pub ring: usize,
}

/// Runs packets through an engine until `until`, or until nothing is left to do.
pub fn run(
    engine: &mut Engine,
    caller: Caller,
    until: Nanos,
    arrivals: impl IntoIterator<Item = Arrival>,
) -> Vec<Departure> {
    run_with(engine, caller, until, arrivals, |_, _| None)
}

/// [`run`], with other calls to the engine: `act` is called at time 0, and then at the time that it
/// returned last, before everything else of that time.
pub fn run_with(
    engine: &mut Engine,
    caller: Caller,
    until: Nanos,
    arrivals: impl IntoIterator<Item = Arrival>,
    mut act: impl FnMut(&mut Engine, Nanos) -> Option<Nanos>,
) -> Vec<Departure> {
    let mut wire = Wire::new(caller.rate);
    let mut arrivals = arrivals.into_iter().enumerate().peekable();
    let mut out = Vec::new();
    let mut wake: Option<Nanos> = None;
    let mut action = Some(0);
    loop {
        let complete = wire.next_end();
        let timer_at = wake.filter(|_| wire.held() < caller.ring);
        let arrival = arrivals.peek().map(|(_, a)| a.at);
        let Some(now) = [action, complete, timer_at, arrival].into_iter().flatten().min() else { break };
        if now > until {
            break;
        }
        if action == Some(now) {
            action = act(engine, now);
            assert!(action.is_none_or(|at| at > now));
            wake = Some(wake.map_or(now, |wake| wake.min(now)));
            continue;
        }
        if complete == Some(now) {
            wire.complete();
        } else if timer_at != Some(now)
            && let Some((id, a)) = arrivals.next()
        {
            engine.enqueue(now, a.class, Packet::new(id as u32, a.bytes));
            engine.drops().for_each(drop);
        }
        while wire.held() < caller.ring {
            let Some(d) = engine.dequeue(now) else {
                wake = engine.next_wakeup().map(|at| rounded(at, caller.timer));
                assert!(wake.is_some() || engine.backlog() == 0, "packets wait, but next_wakeup is None");
                assert!(wake.is_none_or(|at| at > now), "dequeue at {now} sends nothing, but next_wakeup is {wake:?}");
                break;
            };
            let end = wire.send(now, d.packet.wire);
            let (bytes, id, arrived) = (d.packet.len, d.packet.handle, d.packet.arrived);
            out.push(Departure { at: now, class: d.class, bytes, id, end, arrived });
        }
    }
    out
}

/// The rate of a class over a time window in bit/s, counting packets handed to the wire in it.
pub fn rate_of(departures: &[Departure], class: u32, from: Nanos, to: Nanos) -> f64 {
    let bytes: u64 =
        departures.iter().filter(|d| d.class == class && (from..to).contains(&d.at)).map(|d| u64::from(d.bytes)).sum();
    bytes as f64 * 8.0 / ((to - from) as f64 / SECOND as f64)
}
