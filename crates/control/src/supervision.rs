//! Decides when a worker is started and when it counts as dead, and knows since when and why
//! packets pass unshaped.
//!
//! A worker sends regular signs of life (beats). If a beat is late, the worker is stuck or stopped,
//! but still holds packets. So it is killed, and the kernel lets packets pass unshaped. Then a
//! worker is started again: at once the first time, and later and later if workers keep ending.
//! There is no clock here: times are arguments, in nanoseconds that never decrease.

use altq_engine::units::Nanos;

const MS: Nanos = 1_000_000;
/// How long a worker may take from its start to its first beat.
const START: Nanos = 30_000 * MS;
/// The wait before the second start in a row; it doubles with each further one.
const FIRST: Nanos = 100 * MS;
/// The longest wait.
const LONGEST: Nanos = 10_000 * MS;
/// After a worker has shaped for so long, the next start counts as the first again.
const WELL: Nanos = 60_000 * MS;

/// A caller that wakes later than it wanted, by this part of the patience or more, was held up by
/// the host, and the worker probably as well.
const HELD_UP: Nanos = 8;

/// What the caller must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nothing.
    Nothing,
    /// Start a worker.
    Start,
    /// Kill the worker, wait for its end, and report that with this reason.
    Kill(String),
}

/// Since when packets pass unshaped, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bypass {
    /// Since when.
    pub since: Nanos,
    /// Why.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No worker; the next one is started at this time.
    Waiting(Nanos),
    /// A worker was started at this time and has not sent a beat yet.
    Starting(Nanos),
    /// A worker has shaped since then, and sent its last beat at `beat`.
    Shaping { since: Nanos, beat: Nanos },
}

/// The supervision of a worker.
#[derive(Clone, Debug)]
pub struct Supervision {
    patience: Nanos,
    state: State,
    /// How many workers have ended in a row without having shaped for long.
    ended: u32,
    bypass: Option<Bypass>,
    /// Since the last beat the host held the caller up, until this time.
    held_up: Option<Nanos>,
}

impl Supervision {
    /// No worker runs yet, and the first one is due now. `patience`: how late a beat may be.
    pub fn new(now: Nanos, patience: Nanos) -> Supervision {
        let bypass = Some(Bypass { since: now, reason: "altq starts".to_owned() });
        Supervision { patience, state: State::Waiting(now), ended: 0, bypass, held_up: None }
    }

    /// Since when packets pass unshaped, and why; `None` while a worker shapes.
    pub fn bypass(&self) -> Option<&Bypass> {
        self.bypass.as_ref()
    }

    /// Since when a worker shapes.
    pub fn shaping_since(&self) -> Option<Nanos> {
        match self.state {
            State::Shaping { since, .. } => Some(since),
            _ => None,
        }
    }

    /// True if there is no worker and none is due now.
    pub fn waits(&self, now: Nanos) -> bool {
        matches!(self.state, State::Waiting(until) if until > now)
    }

    /// When [`due`](Supervision::due) has something to do if nothing happens before.
    pub fn deadline(&self) -> Nanos {
        match self.state {
            State::Waiting(until) => until,
            State::Starting(since) => since.saturating_add(START),
            State::Shaping { beat, .. } => self.held_up.unwrap_or(beat).saturating_add(self.patience),
        }
    }

    /// The caller woke so much later than it wanted, such as after its virtual machine stood still.
    /// What it sees then says nothing about the worker, which had no chance to send a beat. So the
    /// worker gets its whole patience again, once between two beats.
    pub fn woke(&mut self, now: Nanos, late: Nanos) {
        if matches!(self.state, State::Shaping { .. }) && late >= (self.patience / HELD_UP).max(1) {
            self.held_up.get_or_insert(now);
        }
    }

    /// What the caller must do now.
    pub fn due(&mut self, now: Nanos) -> Act {
        if now < self.deadline() {
            return Act::Nothing;
        }
        match self.state {
            State::Waiting(_) => {
                self.state = State::Starting(now);
                Act::Start
            }
            State::Starting(_) => Act::Kill(format!("the worker did not begin within {} s", START / (1000 * MS))),
            State::Shaping { beat, .. } => {
                Act::Kill(format!("the worker was silent for {} ms", now.saturating_sub(beat) / MS))
            }
        }
    }

    /// The worker has sent a beat. True if it is its first one.
    pub fn beat(&mut self, now: Nanos) -> bool {
        self.held_up = None;
        match &mut self.state {
            State::Waiting(_) => false,
            State::Starting(_) => {
                self.state = State::Shaping { since: now, beat: now };
                self.bypass = None;
                true
            }
            State::Shaping { since, beat } => {
                *beat = now;
                if now.saturating_sub(*since) >= WELL {
                    self.ended = 0;
                }
                false
            }
        }
    }

    /// The worker has ended, for this reason. Returns how long to wait before the next one starts.
    pub fn ended(&mut self, now: Nanos, reason: &str) -> Nanos {
        let wait = match self.ended {
            0 => 0,
            count => FIRST.saturating_mul(1 << (count - 1).min(20)).min(LONGEST),
        };
        self.ended = self.ended.saturating_add(1);
        self.held_up = None;
        self.state = State::Waiting(now.saturating_add(wait));
        // If packets pass unshaped already, that time stays.
        let since = self.bypass.as_ref().map_or(now, |bypass| bypass.since);
        self.bypass = Some(Bypass { since, reason: reason.to_owned() });
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = 1000 * MS;

    fn shaping(now: Nanos) -> Supervision {
        let mut supervision = Supervision::new(now, 150 * MS);
        assert_eq!(supervision.due(now), Act::Start);
        assert!(supervision.beat(now));
        supervision
    }

    #[test]
    fn a_worker_that_beats_is_left_alone() {
        let mut supervision = shaping(0);
        for n in 1..100 {
            assert_eq!(supervision.due(n * 149 * MS), Act::Nothing);
            assert!(!supervision.beat(n * 149 * MS));
        }
        assert_eq!((supervision.bypass(), supervision.shaping_since()), (None, Some(0)));
    }

    /// A host that stood still for 300 ms: the worker has 150 ms from then on, but not twice.
    #[test]
    fn a_worker_is_not_blamed_for_a_host_that_stood_still() {
        let mut supervision = shaping(S);
        supervision.woke(S + 300 * MS, 150 * MS);
        assert_eq!(supervision.due(S + 300 * MS), Act::Nothing);
        assert!(!supervision.beat(S + 310 * MS));
        assert_eq!(supervision.deadline(), S + 460 * MS);
        supervision.woke(S + 480 * MS, 20 * MS);
        supervision.woke(S + 600 * MS, 120 * MS);
        assert_eq!(supervision.deadline(), S + 630 * MS);
        assert_eq!(supervision.due(S + 630 * MS), Act::Kill("the worker was silent for 320 ms".into()));
        // A timer that is a little late is no reason to wait.
        let mut supervision = shaping(S);
        supervision.woke(S + 160 * MS, 10 * MS);
        assert_eq!(supervision.due(S + 160 * MS), Act::Kill("the worker was silent for 160 ms".into()));
    }

    #[test]
    fn a_silent_worker_is_killed_and_the_next_one_starts_at_once() {
        let mut supervision = shaping(0);
        supervision.beat(S);
        assert_eq!(supervision.deadline(), S + 150 * MS);
        assert_eq!(supervision.due(S + 149 * MS), Act::Nothing);
        assert_eq!(supervision.due(S + 150 * MS), Act::Kill("the worker was silent for 150 ms".into()));
        assert_eq!(supervision.ended(S + 152 * MS, "it was silent"), 0);
        let bypass = Bypass { since: S + 152 * MS, reason: "it was silent".into() };
        assert_eq!(supervision.bypass(), Some(&bypass));
        assert!(!supervision.waits(S + 152 * MS));
        assert_eq!(supervision.due(S + 152 * MS), Act::Start);
        // A beat left by the dead worker does not count; one of the new worker does.
        assert_eq!(supervision.bypass(), Some(&bypass));
        assert!(supervision.beat(S + 200 * MS) && supervision.bypass().is_none());
    }

    #[test]
    fn a_worker_that_keeps_ending_is_started_later_and_later() {
        let (mut supervision, mut now) = (shaping(0), 0);
        let mut waits = Vec::new();
        for _ in 0..10 {
            let wait = supervision.ended(now, "it was killed");
            waits.push(wait / MS);
            assert_eq!(supervision.waits(now), wait > 0);
            now += wait;
            assert_eq!(supervision.due(now), Act::Start);
            now += MS;
        }
        assert_eq!(waits, [0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(supervision.bypass().map(|bypass| bypass.since), Some(0), "since the first end");
        // After a minute of shaping the next start counts as the first.
        supervision.beat(now);
        supervision.beat(now + 60 * S);
        assert_eq!(supervision.ended(now + 61 * S, "it was killed"), 0);
    }

    #[test]
    fn a_worker_that_does_not_begin_is_killed() {
        let mut supervision = Supervision::new(0, 150 * MS);
        assert_eq!(supervision.bypass().map(|bypass| bypass.reason.as_str()), Some("altq starts"));
        assert_eq!(supervision.due(0), Act::Start);
        assert_eq!(supervision.due(29 * S), Act::Nothing);
        assert!(matches!(supervision.due(30 * S), Act::Kill(_)));
    }
}
