//! A half-duplex medium that two stations share: CSMA/CD (IEEE 802.3 clause 4), as described in
//! docs/reference/published-models.md 1.
//!
//! A station with a frame starts once its backoff is over and the medium has been idle for 96 bit
//! times. Two stations collide if they start within the time that a signal takes from one to the
//! other. Both then jam for 96 bit times, and wait 96 more and a number of slots of 512 bit times.
//! That number is random, from 0 to 2^min(n, 10) - 1 after n collisions in a row. The station that
//! has just sent begins with n = 0 and tends to win again: the capture effect. At the 16th
//! collision of a frame, station 1 (`to` in a case) gives it up. Station 0 (`from`), which has a
//! queue, keeps it and counts from 0.

use altq_cases::random::Random;
use altq_engine::units::{Nanos, Rate};

/// Bit times of the gap between frames (IEEE 802.3 4.4.2, interPacketGap).
const GAP: u64 = 96;
/// Bit times of a jam, after which the medium is idle again.
const JAM: u64 = 96;
/// Bit times of a slot of backoff (slotTime).
const SLOT: u64 = 512;
/// Bit times that a signal takes from one station to the other: 3 µs at 10 Mbit/s.
const AWAY: u64 = 30;
/// Collisions after which a frame is given up (attemptLimit).
const ATTEMPTS: u32 = 16;

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing that concerns a station.
    Nothing,
    /// The station's frame has been sent.
    Sent(usize),
    /// The station's frame has been given up.
    GivenUp(usize),
}

#[derive(Clone, Copy, Debug, Default)]
struct Station {
    /// The time from which on it may start its frame; `None` if it has no frame.
    ready: Option<Nanos>,
    /// The time that its frame takes.
    takes: Nanos,
    /// Number of collisions of its frame.
    collisions: u32,
}

/// The medium.
#[derive(Clone, Debug)]
pub struct Csma {
    rate: Rate,
    random: Random,
    stations: [Station; 2],
    /// The time since which no station sends.
    idle: Nanos,
    /// The station that sends, and the time at which it ends.
    sending: Option<(usize, Nanos)>,
    /// Number of collisions so far.
    pub collisions: u64,
}

impl Csma {
    /// An idle medium.
    pub fn new(rate: Rate, random: Random) -> Csma {
        Csma { rate, random, stations: [Station::default(); 2], idle: 0, sending: None, collisions: 0 }
    }

    fn bits(&self, bits: u64) -> Nanos {
        u64::try_from(u128::from(bits) * 1_000_000_000 / u128::from(self.rate.as_bit_s().max(1))).unwrap_or(Nanos::MAX)
    }

    /// Gives a station a frame of `bytes` bytes, counted from the preamble to the checksum. A
    /// station has one frame at a time.
    pub fn offer(&mut self, now: Nanos, station: usize, bytes: u32) {
        let takes = self.bits(u64::from(bytes) * 8);
        if let Some(s) = self.stations.get_mut(station) {
            *s = Station { ready: Some(now), takes, collisions: 0 };
        }
    }

    /// Sets the rate for transmissions that begin from now on.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// When a station starts if the other one does not start earlier.
    fn start(&self, station: usize) -> Option<Nanos> {
        let gap = self.bits(GAP);
        let first = self.idle.saturating_add(gap);
        // At time 0 nobody has sent yet, so there is no gap.
        let first = if self.idle == 0 { 0 } else { first };
        self.stations.get(station)?.ready.map(|ready| ready.max(first))
    }

    /// When [`step`](Csma::step) must be called, and whether a transmission is complete then.
    /// `None`: not before another frame is offered.
    pub fn next(&self) -> Option<(Nanos, bool)> {
        if let Some((_, end)) = self.sending {
            return Some((end, true));
        }
        // The station that starts first knows whether there is a collision only when its signal has
        // reached the other one.
        let first = [self.start(0), self.start(1)].into_iter().flatten().min()?;
        Some((first.saturating_add(self.bits(AWAY)), false))
    }

    /// Handles what is due at the time that [`next`](Csma::next) returned.
    pub fn step(&mut self, now: Nanos) -> Outcome {
        if let Some((station, end)) = self.sending {
            if end > now {
                return Outcome::Nothing;
            }
            (self.sending, self.idle) = (None, end);
            self.stations[station & 1] = Station::default();
            return Outcome::Sent(station);
        }
        let away = self.bits(AWAY);
        let starts = [self.start(0), self.start(1)];
        let Some(first) = starts.iter().flatten().min().copied().filter(|first| first.saturating_add(away) <= now)
        else {
            return Outcome::Nothing;
        };
        match starts {
            [Some(a), Some(b)] if a.abs_diff(b) < away => self.collide(a.max(b)),
            _ => {
                let station = usize::from(starts[0] != Some(first));
                self.sending = Some((station, first.saturating_add(self.stations[station].takes)));
                Outcome::Nothing
            }
        }
    }

    /// A collision: both stations jam and choose a backoff.
    fn collide(&mut self, at: Nanos) -> Outcome {
        self.collisions += 1;
        self.idle = at.saturating_add(self.bits(JAM));
        let again = self.idle.saturating_add(self.bits(GAP));
        let mut outcome = Outcome::Nothing;
        for station in 0..2 {
            let slot = self.bits(SLOT);
            let s = &mut self.stations[station];
            s.collisions += 1;
            if s.collisions >= ATTEMPTS {
                if station == 1 {
                    *s = Station::default();
                    outcome = Outcome::GivenUp(1);
                    continue;
                }
                s.collisions = 0;
            }
            let slots = self.random.below(1 << s.collisions.min(10));
            s.ready = Some(again.saturating_add(u64::from(slots) * slot));
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps until no station has a frame. Returns the outcomes with their times.
    fn drain(medium: &mut Csma) -> Vec<(Nanos, Outcome)> {
        let mut seen = Vec::new();
        while let Some((at, _)) = medium.next() {
            let outcome = medium.step(at);
            if outcome != Outcome::Nothing {
                seen.push((at, outcome));
            }
        }
        seen
    }

    fn medium(seed: u64) -> Csma {
        Csma::new(Rate::mbit_s(10), Random::new(seed, 0))
    }

    #[test]
    fn one_alone_waits_for_the_gap_only() {
        let mut medium = medium(1);
        // 1526 bytes at 10 Mbit/s take 1220.8 µs; the next frame may begin 9.6 µs later.
        medium.offer(5_000, 0, 1526);
        assert_eq!(drain(&mut medium), [(1_225_800, Outcome::Sent(0))]);
        medium.offer(1_225_800, 0, 72);
        assert_eq!(drain(&mut medium), [(1_225_800 + 9_600 + 57_600, Outcome::Sent(0))]);
        assert_eq!(medium.collisions, 0);
    }

    #[test]
    fn who_hears_the_other_waits() {
        // The second frame comes 3 µs after the first has begun. Its station hears the first, and
        // starts 9.6 µs after the end of it.
        let mut medium = medium(1);
        medium.offer(1_000, 0, 1526);
        medium.offer(4_000, 1, 72);
        assert_eq!(drain(&mut medium), [(1_221_800, Outcome::Sent(0)), (1_221_800 + 9_600 + 57_600, Outcome::Sent(1))]);
        assert_eq!(medium.collisions, 0);
    }

    #[test]
    fn a_collision_by_hand() {
        // The stations start at 1 and 3.9 µs: 2.9 µs apart, so they do not hear each other. From
        // 3.9 µs on there are 9.6 µs of jam, 9.6 µs of gap, and then slots of 51.2 µs; the first
        // backoff of each station is 0 or 1 slots. With 0 against 1 the one with 0 starts at 23.1
        // µs, and the other 9.6 µs after the end of that frame if its slot is over by then. With
        // equal numbers they collide again.
        let mut kinds = [0; 3];
        for seed in 0..64 {
            let mut medium = medium(seed);
            medium.offer(1_000, 0, 1526);
            medium.offer(3_900, 1, 72);
            let seen = drain(&mut medium);
            assert!(medium.collisions >= 1);
            let again = 3_900 + 9_600 + 9_600;
            let (long, short) = (1_220_800, 57_600);
            match medium.collisions {
                1 if seen[0].1 == Outcome::Sent(0) => {
                    assert_eq!(
                        seen,
                        [(again + long, Outcome::Sent(0)), (again + long + 9_600 + short, Outcome::Sent(1))]
                    );
                    kinds[0] += 1;
                }
                1 => {
                    // Station 1's frame of 72 bytes takes 57.6 µs, longer than one slot (51.2 µs).
                    // So station 0 starts 9.6 µs after its end.
                    assert_eq!(
                        seen,
                        [(again + short, Outcome::Sent(1)), (again + short + 9_600 + long, Outcome::Sent(0))]
                    );
                    kinds[1] += 1;
                }
                _ => kinds[2] += 1,
            }
        }
        // Expected are a quarter, a quarter and a half of 64, with five standard deviations of
        // tolerance.
        assert!((1..=33).contains(&kinds[0]) && (1..=33).contains(&kinds[1]) && kinds[2] >= 12, "{kinds:?}");
    }

    #[test]
    fn the_sixteenth_collision_of_an_answer_is_its_last() {
        let mut medium = medium(3);
        medium.offer(0, 0, 1526);
        medium.offer(0, 1, 72);
        medium.stations.iter_mut().for_each(|s| s.collisions = 15);
        let seen = drain(&mut medium);
        // The data frame has begun counting anew, and is alone now: it starts with 0 slots (2^0 -
        // 1) after 9.6 µs of jam and 9.6 µs of gap.
        assert_eq!(seen, [(3_000, Outcome::GivenUp(1)), (19_200 + 1_220_800, Outcome::Sent(0))]);
    }

    #[test]
    fn who_has_won_tends_to_win_again() {
        // Both always have a frame. A station that lost n times in a row chooses among 2^n slots,
        // the last winner among 2. So one station sends more frames in a row than the 2 that a fair
        // coin would give.
        let mut medium = medium(9);
        let (mut order, mut now) = (Vec::new(), 0);
        (0..2).for_each(|station| medium.offer(0, station, 1526));
        while order.len() < 4_000 {
            let (at, _) = medium.next().unwrap();
            now = at.max(now);
            if let Outcome::Sent(station) | Outcome::GivenUp(station) = medium.step(now) {
                order.push(station);
                medium.offer(now, station, 1526);
            }
        }
        let runs = 1 + order.windows(2).filter(|w| w[0] != w[1]).count();
        assert!(order.len() / runs >= 4, "{runs}");
    }
}
