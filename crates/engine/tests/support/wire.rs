//! A wire and its driver in virtual time, as `altq replay` has them: one packet at a time; the engine is asked at every arrival,
//! when a transmission is complete, and at the times that `next_wakeup` gave, rounded up to the next tick. At equal times:
//! complete, timers, arrivals.

#![allow(dead_code)]

use altq_engine::spec::Timer;
use altq_engine::units::{Nanos, Rate, SECOND};
use altq_engine::{Engine, Packet};

/// A packet to come: when, for which class, how many bytes.
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
    /// The number of its arrival.
    pub id: u32,
    /// When the wire was done with it.
    pub end: Nanos,
    pub arrived: Nanos,
}

/// The wire: packet k of a busy period ends at the period's start plus the time of all its bits so far, rounded up.
pub struct Wire {
    rate: Rate,
    start: Nanos,
    bytes: u64,
    end: Option<Nanos>,
}

impl Wire {
    pub fn new(rate: Rate) -> Wire {
        Wire { rate, start: 0, bytes: 0, end: None }
    }

    /// Sends a packet from `now` on, the wire being idle; when it is done.
    pub fn send(&mut self, now: Nanos, bytes: u32) -> Nanos {
        let last = self.start + self.rate.time_for(self.bytes);
        if last != now {
            (self.start, self.bytes) = (now, 0);
        }
        self.bytes += u64::from(bytes);
        let end = self.start + self.rate.time_for(self.bytes);
        self.end = Some(end);
        end
    }

    pub fn busy_until(&self) -> Option<Nanos> {
        self.end
    }
}

/// Rounds a wake-up up to where the caller's timer can fire.
pub fn rounded(at: Nanos, timer: Timer) -> Nanos {
    match timer {
        Timer::Exact => at,
        Timer::Tick(tick) => at.div_ceil(tick) * tick,
    }
}

/// Something done to the engine besides packets.
pub type Action<'a> = (Nanos, &'a mut dyn FnMut(&mut Engine));

/// Runs packets through an engine until `until`, or until nothing is left to do.
pub fn run(
    engine: &mut Engine,
    rate: Rate,
    timer: Timer,
    until: Nanos,
    arrivals: impl IntoIterator<Item = Arrival>,
) -> Vec<Departure> {
    let mut wire = Wire::new(rate);
    let mut arrivals = arrivals.into_iter().enumerate().peekable();
    let mut out = Vec::new();
    let mut wake: Option<Nanos> = None;
    loop {
        let complete = wire.end;
        let timer_at = if complete.is_none() { wake } else { None };
        let arrival = arrivals.peek().map(|(_, a)| a.at);
        let Some(now) = [complete, timer_at, arrival].into_iter().flatten().min() else { break };
        if now > until {
            break;
        }
        if complete == Some(now) {
            wire.end = None;
        } else if timer_at != Some(now)
            && let Some((id, a)) = arrivals.next()
        {
            engine.enqueue(now, a.class, Packet::new(id as u32, a.bytes));
            engine.drops().for_each(drop);
        }
        if wire.end.is_some() {
            continue;
        }
        match engine.dequeue(now) {
            Some(d) => {
                let end = wire.send(now, d.packet.wire);
                out.push(Departure {
                    at: now,
                    class: d.class,
                    bytes: d.packet.len,
                    id: d.packet.handle,
                    end,
                    arrived: d.packet.arrived,
                });
            }
            None => {
                wake = engine.next_wakeup().map(|at| rounded(at, timer));
                assert!(wake.is_none_or(|at| at > now), "asked at {now}, nothing, and told to ask again at {wake:?}");
            }
        }
    }
    out
}

/// The rate of a class over a window, bit/s: what was handed over in it.
pub fn rate_of(departures: &[Departure], class: u32, from: Nanos, to: Nanos) -> f64 {
    let bytes: u64 = departures.iter().filter(|d| d.class == class && (from..to).contains(&d.at)).map(|d| u64::from(d.bytes)).sum();
    bytes as f64 * 8.0 / ((to - from) as f64 / SECOND as f64)
}
