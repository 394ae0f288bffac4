//! The loop that fills whatever takes packets: a wire, the rings of a card, a station on a shared
//! medium, a live device.
//!
//! ```text
//! while the transmitter has room:
//!     dequeue a packet     ─►  the transmitter takes it
//!     no packet may leave  ─►  ask again at next_wakeup, rounded up to the timer's tick
//! the transmitter is full  ─►  ask again when it has room
//! ```
//!
//! Whoever owns an engine calls [`fill`], or [`step`] until it ends, when a packet has arrived,
//! when the transmitter has room again, and when the timer fires for which [`Filled::wakeup`] gave
//! the time. Things that happen at the same instant happen in the order of [`first`]. `replay`, the
//! simulator, the lab and the live loop all go through here, so that a link does the same in each
//! of them.

use crate::engine::{Departure, Engine};
use crate::spec::Timer;
use crate::units::{Nanos, SECOND};

/// What takes packets from an engine.
pub trait Transmitter {
    /// Why it cannot take a packet for which it has room.
    type Error;

    /// True if it takes another packet now.
    fn has_room(&self, now: Nanos) -> bool;

    /// Takes a packet. Called only while there is room.
    ///
    /// # Errors
    /// As the kind of transmitter defines them.
    fn take(&mut self, now: Nanos, departure: &Departure) -> Result<Taken, Self::Error>;

    /// Tells the transmitter that it has room, but no packet may leave now.
    fn rest(&mut self, now: Nanos) {
        let _ = now;
    }
}

/// What a transmitter says of a packet that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// When its last bit will have left, where that is known already.
    pub end: Option<Nanos>,
    /// Its bytes on the wire.
    pub bytes: u32,
}

/// Why [`fill`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Filled {
    /// The transmitter has no room.
    Full,
    /// No packet may leave now.
    Waiting,
}

impl Filled {
    /// The time for which the caller is to set its timer after a [`fill`] from `engine` at `now`.
    /// `timer` says when the timer can fire. `None`: no timer is needed, because the transmitter is
    /// full, or because no packet can leave before an arrival or a change.
    #[inline]
    pub fn wakeup(self, engine: &mut Engine, now: Nanos, timer: Timer) -> Option<Nanos> {
        if self == Filled::Full {
            return None;
        }
        let at = engine.next_wakeup().filter(|at| *at < Nanos::MAX && at.saturating_sub(now) < NEVER)?;
        // The engine has just said that no packet leaves at `now`, so asking again then is no use.
        round_up(at.max(now.saturating_add(1)), timer)
    }
}

/// No timer is set for a time that is 100 years ahead of the present or more.
const NEVER: Nanos = 3_155_760_000 * SECOND;

/// What [`step`] did.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub enum Step {
    /// The transmitter took a packet.
    Sent(Departure, Taken),
    /// It took none.
    Ended(Filled),
}

/// One turn of the loop: hands at most one packet from the engine to the transmitter.
///
/// # Errors
/// The error of the transmitter. The packet at fault has left the engine.
#[inline]
pub fn step<T: Transmitter>(engine: &mut Engine, now: Nanos, transmitter: &mut T) -> Result<Step, T::Error> {
    if !transmitter.has_room(now) {
        return Ok(Step::Ended(Filled::Full));
    }
    let Some(departure) = engine.dequeue(now) else {
        transmitter.rest(now);
        return Ok(Step::Ended(Filled::Waiting));
    };
    let taken = transmitter.take(now, &departure)?;
    Ok(Step::Sent(departure, taken))
}

/// Hands packets from the engine to the transmitter until the transmitter is full or no packet may
/// leave now. Calls `sent` for each.
///
/// # Errors
/// The first error of the transmitter or of `sent`. The packet at fault has left the engine.
#[inline]
pub fn fill<T: Transmitter, E: From<T::Error>>(
    engine: &mut Engine,
    now: Nanos,
    transmitter: &mut T,
    mut sent: impl FnMut(Departure, Taken) -> Result<(), E>,
) -> Result<Filled, E> {
    loop {
        match step(engine, now, transmitter)? {
            Step::Sent(departure, taken) => sent(departure, taken)?,
            Step::Ended(filled) => return Ok(filled),
        }
    }
}

/// The first time at or after `at` at which a timer can fire; `None` if it does not fit into 64
/// bits of nanoseconds.
#[inline]
pub fn round_up(at: Nanos, timer: Timer) -> Option<Nanos> {
    match timer {
        Timer::Exact => Some(at),
        Timer::Tick(tick) => at.checked_next_multiple_of(tick),
    }
}

/// Events of a link, in the order in which those of one instant take place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The transmitter has sent a packet.
    Complete,
    /// The timer fires for which [`Filled::wakeup`] gave the time.
    Timer,
    /// A packet arrives.
    Arrival,
}

/// The first of three events, and its time; each is `None` if it is not expected.
#[inline]
pub fn first(complete: Option<Nanos>, timer: Option<Nanos>, arrival: Option<Nanos>) -> Option<(Nanos, Event)> {
    let at = [complete, timer, arrival].into_iter().flatten().min()?;
    Some((
        at,
        if complete == Some(at) {
            Event::Complete
        } else if timer == Some(at) {
            Event::Timer
        } else {
            Event::Arrival
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Overhead;
    use crate::packet::Packet;
    use crate::settings::{Limit, Settings};
    use crate::spec::{ClassSpec, LinkSpec, QueueSpec, ROOT, Regulator, SchedulerSpec};
    use crate::units::Rate;

    /// A FIFO of 1 Mbit/s: 125 bytes a millisecond.
    fn fifo(regulator: Regulator) -> Engine {
        let queue = QueueSpec { name: "drop_tail", limit: Limit::Packets(100), settings: Settings::new() };
        let spec = LinkSpec {
            rate: Rate::mbit_s(1),
            mtu: 1500,
            overhead: Overhead::NONE,
            regulator,
            timer: Timer::Exact,
            scheduler: SchedulerSpec { name: "fifo", settings: Settings::new() },
            classes: vec![ClassSpec { parent: ROOT, settings: Settings::new(), queue: Some(queue), scheduler: None }],
            rules: Default::default(),
            default: Some(ROOT),
        };
        Engine::new(&spec).unwrap()
    }

    /// Takes `room` packets, and refuses one of 666 bytes.
    #[derive(Default)]
    struct Fake {
        room: usize,
        taken: Vec<u32>,
        rests: Vec<Nanos>,
    }

    impl Transmitter for Fake {
        type Error = String;

        fn has_room(&self, _: Nanos) -> bool {
            self.taken.len() < self.room
        }

        fn take(&mut self, now: Nanos, Departure { packet, .. }: &Departure) -> Result<Taken, String> {
            if packet.len == 666 {
                return Err("666 bytes".into());
            }
            self.taken.push(packet.handle);
            Ok(Taken { end: Some(now + 7), bytes: packet.wire })
        }

        fn rest(&mut self, now: Nanos) {
            self.rests.push(now);
        }
    }

    /// The result of [`fill`], and the handles of the packets sent.
    type Seen = (Result<Filled, String>, Vec<u32>);

    fn filled(engine: &mut Engine, now: Nanos, fake: &mut Fake) -> Seen {
        let mut seen = Vec::new();
        let filled = fill(engine, now, fake, |departure, taken| {
            assert_eq!(taken, Taken { end: Some(now + 7), bytes: departure.packet.len });
            seen.push(departure.packet.handle);
            Ok(())
        });
        (filled, seen)
    }

    #[test]
    fn it_fills_until_full_or_empty() {
        let mut engine = fifo(Regulator::None);
        (0..3).for_each(|handle| engine.enqueue(0, ROOT, Packet::new(handle, 100)));
        // No room: the engine is not asked, and `rest` is not called.
        let mut fake = Fake::default();
        assert_eq!(filled(&mut engine, 1, &mut fake), (Ok(Filled::Full), vec![]));
        fake.room = 2;
        assert_eq!(filled(&mut engine, 2, &mut fake), (Ok(Filled::Full), vec![0, 1]));
        assert_eq!((engine.backlog(), fake.rests.len()), (1, 0));
        fake.room = 4;
        assert_eq!(filled(&mut engine, 3, &mut fake), (Ok(Filled::Waiting), vec![2]));
        assert_eq!((fake.taken, fake.rests), (vec![0, 1, 2], vec![3]));
        assert_eq!(Filled::Waiting.wakeup(&mut engine, 3, Timer::Exact), None);
    }

    #[test]
    fn the_first_error_ends_it() {
        let mut engine = fifo(Regulator::None);
        [100, 666, 100, 100].into_iter().for_each(|len| engine.enqueue(0, ROOT, Packet::new(len, len)));
        let mut fake = Fake { room: 9, ..Fake::default() };
        assert_eq!(filled(&mut engine, 0, &mut fake), (Err("666 bytes".into()), vec![100]));
        let stop = fill(&mut engine, 0, &mut fake, |_, _| Err("stop".to_string()));
        assert_eq!((stop, fake.taken.len(), engine.backlog()), (Err("stop".into()), 2, 1));
    }

    #[test]
    fn it_waits_for_the_engine_and_the_tick() {
        // A bucket of 125 bytes. A packet of 250 empties it, and it is full again after 1 ms.
        let timers = [(Timer::Exact, 1_000_000), (Timer::Tick(400_000), 1_200_000), (Timer::Tick(500_000), 1_000_000)];
        for (timer, at) in timers {
            let mut engine = fifo(Regulator::Depth(125));
            (0..2).for_each(|handle| engine.enqueue(0, ROOT, Packet::new(handle, 250)));
            let mut fake = Fake { room: 9, ..Fake::default() };
            assert_eq!(filled(&mut engine, 0, &mut fake), (Ok(Filled::Waiting), vec![0]));
            assert_eq!(fake.rests, [0]);
            assert_eq!(Filled::Waiting.wakeup(&mut engine, 0, timer), Some(at));
            assert_eq!(Filled::Full.wakeup(&mut engine, 0, timer), None);
            // A wakeup in the past becomes the next nanosecond.
            assert_eq!(Filled::Waiting.wakeup(&mut engine, 5_000_000, Timer::Exact), Some(5_000_001));
            assert_eq!(filled(&mut engine, at, &mut fake), (Ok(Filled::Waiting), vec![1]));
            assert_eq!(Filled::Waiting.wakeup(&mut engine, at, timer), None);
        }
    }

    #[test]
    fn ticks_end_where_64_bits_do() {
        assert_eq!(round_up(u64::MAX, Timer::Exact), Some(u64::MAX));
        assert_eq!(round_up(u64::MAX, Timer::Tick(1)), Some(u64::MAX));
        // 2^64 - 1 is a multiple of 5: 5 · 3689348814741910323.
        assert_eq!(round_up(u64::MAX - 4, Timer::Tick(5)), Some(u64::MAX));
        assert_eq!(round_up(u64::MAX - 4, Timer::Tick(10)), None);
        assert_eq!(round_up(0, Timer::Tick(10)), Some(0));
        assert_eq!([1, 9, 10, 11].map(|at| round_up(at, Timer::Tick(10))), [10, 10, 10, 20].map(Some));
        // Nothing overflows at the largest times.
        let mut engine = fifo(Regulator::None);
        engine.enqueue(0, ROOT, Packet::new(0, 100));
        assert_eq!(Filled::Waiting.wakeup(&mut engine, u64::MAX, Timer::Exact), Some(u64::MAX));
        assert_eq!(Filled::Waiting.wakeup(&mut engine, u64::MAX - 4, Timer::Tick(10)), None);
    }

    #[test]
    fn nothing_is_waited_for_that_is_a_century_ahead() {
        // At 1 bit/s a bucket of 500 MB needs 127 years to be full again, one of 250 MB 63.
        for (depth, waits) in [(500_000_000u32, false), (250_000_000, true)] {
            let mut engine = fifo(Regulator::Depth(depth));
            engine.apply(0, &crate::Change::SetRate(Rate::bit_s(1))).unwrap();
            (0..2).for_each(|handle| engine.enqueue(0, ROOT, Packet::new(handle, 2 * depth)));
            let mut fake = Fake { room: 9, ..Fake::default() };
            let (filled, _) = filled(&mut engine, 0, &mut fake);
            assert_eq!(filled.unwrap().wakeup(&mut engine, 0, Timer::Exact).is_some(), waits, "{depth}");
        }
    }

    #[test]
    fn a_century_is_counted_from_the_present() {
        // A Unix time of 2026, and one of 2200, in nanoseconds. What was left in the bucket lets
        // one packet pass, and a full bucket the next. 1 ms later it is full again.
        for now in [1_795_000_000 * SECOND, 7_258_118_400 * SECOND] {
            let mut engine = fifo(Regulator::Depth(125));
            (0..3).for_each(|handle| engine.enqueue(now, ROOT, Packet::new(handle, 250)));
            let mut fake = Fake { room: 9, ..Fake::default() };
            assert_eq!(filled(&mut engine, now, &mut fake), (Ok(Filled::Waiting), vec![0, 1]));
            assert_eq!(Filled::Waiting.wakeup(&mut engine, now, Timer::Exact), Some(now + 1_000_000));
        }
    }

    #[test]
    fn at_one_instant_packets_leave_first_and_arrive_last() {
        assert_eq!(first(Some(5), Some(5), Some(5)), Some((5, Event::Complete)));
        assert_eq!(first(Some(6), Some(5), Some(5)), Some((5, Event::Timer)));
        assert_eq!(first(Some(6), None, Some(5)), Some((5, Event::Arrival)));
        assert_eq!(first(None, Some(4), Some(5)), Some((4, Event::Timer)));
        assert_eq!(first(None, None, None), None);
    }
}
