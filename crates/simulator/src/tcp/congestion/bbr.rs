//! BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00; Cardwell and others, "BBR:
//! Congestion-Based Congestion Control", ACM Queue 14(5), 2016): the window and the pace follow
//! from the highest rate of delivery and the shortest round-trip time that were seen lately.
//!
//! As in Linux (net/ipv4/tcp_bbr.c), which has more than the draft: the pace is 1 % below the rate,
//! the window even, with two more in the phase that probes and room for acknowledgements that come
//! in heaps; what is on its way is counted for the time when the pace lets the next one go;
//! policers are kept to (`policer.rs`).

use altq_engine::random;
use altq_engine::units::{Nanos, SECOND};

use super::Window;
use super::policer::{Policer, Standing};
use crate::tcp::pacer::Pace;
use crate::tcp::rate::Sample;
use crate::tcp::sender::State;

/// 4.1.1.1 there: 2/ln(2), the least gain that doubles the rate each round trip.
const HIGH_GAIN: f64 = 2.0 / std::f64::consts::LN_2;
/// 4.3.3.2: the queue that startup made goes in a round trip.
const DRAIN_GAIN: f64 = 1.0 / HIGH_GAIN;
/// 4.3.4.1: the gains of a cycle, a phase a round trip.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// 4.2.3.2: one product on its way, and one for acknowledgements that come late.
const CWND_GAIN: f64 = 2.0;
/// 4.1.1.3: round trips that the rate's maximum is taken over.
const ROUNDS: usize = 10;
/// 4.1.2.3: time that the round-trip time's minimum holds, and how long it is looked for then.
const MIN_RTT_SPAN: Nanos = 10 * SECOND;
const PROBE_RTT_SPAN: Nanos = SECOND / 5;
/// 4.2.3.4: the least window.
const LEAST: u32 = 4;
/// 4.3.2.2: startup ends after three rounds without a quarter more.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Linux: below the rate, so that queues go down.
const MARGIN: f64 = 0.99;
/// Linux: the window before anything is known.
const INITIAL: u32 = 10;
/// Linux: acknowledgements in heaps are remembered for five to ten rounds, and count for what comes
/// in 100 ms at most.
const HEAP_ROUNDS: u32 = 5;
const HEAP_SPAN: f64 = 0.1;

/// 4.3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Doubles the rate each round trip, until it does not grow.
    Startup,
    /// Takes away the queue that this made.
    Drain,
    /// Cruises, and probes for more now and then.
    ProbeBw,
    /// Empties the path to see its round-trip time.
    ProbeRtt,
}

/// An acknowledgement as this sees it.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The time.
    pub now: Nanos,
    /// The rate of delivery.
    pub sample: Option<Sample>,
    /// The round-trip time of the last segment that it acknowledges.
    pub rtt: Option<Nanos>,
    /// Segments delivered so far, and by this acknowledgement.
    pub delivered: u64,
    /// See `delivered`.
    pub acked: u32,
    /// Segments newly found lost.
    pub lost: u32,
    /// On their way before it came, and now.
    pub before: u32,
    /// See `before`.
    pub in_flight: u32,
    /// What recovery is doing.
    pub state: State,
    /// When the pace lets the next segment go.
    pub release: Nanos,
}

/// The model of the path, and what follows from it. Rates are segments a second.
#[derive(Debug)]
pub struct Bbr {
    mode: Mode,
    /// The highest rate of each of the last rounds.
    rates: [f64; ROUNDS],
    round: usize,
    /// A round ends when this much had been delivered as the segment was sent that is acknowledged.
    round_end: u64,
    round_start: bool,
    min_rtt: Nanos,
    min_rtt_at: Nanos,
    full_rate: f64,
    full_rounds: u32,
    full: bool,
    pacing_gain: f64,
    cwnd_gain: f64,
    phase: usize,
    phase_at: Nanos,
    probe_end: Option<Nanos>,
    probe_round: bool,
    /// The window before a recovery or a look at the round-trip time.
    prior: u32,
    conserves: bool,
    last_state: State,
    idle: bool,
    policer: Policer,
    lost: u64,
    /// Linux: what was acknowledged beyond the rate since this time; the most of it in the rounds
    /// before and in these.
    heap: (Nanos, u64),
    heaps: [u32; 2],
    heap_rounds: u32,
    /// What it paces at; `None` before the first round-trip time.
    pace: Option<Pace>,
    /// Bytes of a full segment's packet.
    bytes: u32,
}

impl Bbr {
    /// Before the first segment, of packets of `bytes`.
    pub fn new(bytes: u32) -> Bbr {
        Bbr {
            mode: Mode::Startup,
            rates: [0.0; ROUNDS],
            round: 0,
            round_end: 0,
            round_start: false,
            min_rtt: Nanos::MAX,
            min_rtt_at: 0,
            full_rate: 0.0,
            full_rounds: 0,
            full: false,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            phase: 0,
            phase_at: 0,
            probe_end: None,
            probe_round: false,
            prior: 0,
            conserves: false,
            last_state: State::Open,
            idle: false,
            policer: Policer::default(),
            lost: 0,
            heap: (0, 0),
            heaps: [0; 2],
            heap_rounds: 0,
            pace: None,
            bytes,
        }
    }

    /// What it is doing.
    #[cfg(test)]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The highest rate of late.
    fn rate(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    /// The rate to go by: the same, or the policer's.
    fn rate_to_keep(&self) -> f64 {
        self.policer.rate().unwrap_or_else(|| self.rate())
    }

    /// The pace, by the window over the round-trip time before anything is known (4.2.1).
    pub fn pace(&mut self, window: &Window, srtt: Option<Nanos>) -> Pace {
        if let Some(pace) = self.pace {
            return pace;
        }
        let rtt = srtt.unwrap_or(SECOND / 1000).max(1000);
        let pace = Pace::new(HIGH_GAIN * f64::from(window.cwnd) * SECOND as f64 / rtt as f64, self.bytes);
        if srtt.is_some() {
            self.pace = Some(pace);
        }
        pace
    }

    /// 4.2.3.1: `gain` times the product of the highest rate and the round-trip time, with room for
    /// bursts.
    fn inflight(&self, gain: f64) -> u32 {
        self.room(gain, self.rate(), 0)
    }

    /// The same of a rate, with room for `heap` more.
    fn room(&self, gain: f64, rate: f64, heap: u32) -> u32 {
        if self.min_rtt == Nanos::MAX {
            return INITIAL;
        }
        let product = (gain * rate * self.min_rtt as f64 / SECOND as f64).ceil().min(1e9) as u32;
        let room = product + heap + 3 * self.pace.map_or(1, |pace| pace.quantum);
        // Linux: even, so that acknowledgements of two do not leave one waiting; and room to probe
        // with small products.
        room.next_multiple_of(2) + if self.mode == Mode::ProbeBw && self.phase == 0 { 2 } else { 0 }
    }

    /// An acknowledgement came. True: the window is small on purpose, so samples are to be marked.
    pub fn acked(&mut self, window: &mut Window, progress: &Progress) -> bool {
        self.update_rate(progress);
        self.update_heap(window, progress);
        self.update_phase(progress);
        self.check_full(progress);
        self.check_drain(progress);
        let limited = self.update_min_rtt(window, progress);
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBw if self.policer.rate().is_some() => (1.0, CWND_GAIN),
            Mode::ProbeBw => (CYCLE[self.phase % CYCLE.len()], CWND_GAIN),
            Mode::ProbeRtt => (1.0, 1.0),
        };
        self.set_pace(self.pacing_gain);
        self.set_window(window, progress);
        limited
    }

    /// 4.1.1.3.
    fn update_rate(&mut self, progress: &Progress) {
        self.round_start = false;
        self.lost += u64::from(progress.lost);
        let Some(sample) = progress.sample else { return };
        if sample.prior >= self.round_end {
            self.round_end = progress.delivered;
            self.round += 1;
            self.rates[self.round % ROUNDS] = 0.0;
            self.round_start = true;
            self.conserves = false;
        }
        self.look_for_policer(progress, sample.limited, progress.lost > 0);
        let rate = sample.delivered as f64 * SECOND as f64 / sample.interval as f64;
        // What the application held back says only how fast the path is at least.
        if !sample.limited || rate >= self.rate() {
            let slot = &mut self.rates[self.round % ROUNDS];
            *slot = slot.max(rate);
        }
    }

    fn look_for_policer(&mut self, progress: &Progress, limited: bool, losing: bool) {
        let standing = Standing {
            now: progress.now,
            delivered: progress.delivered,
            lost: self.lost,
            round_start: self.round_start,
            losing,
            limited,
            probing: self.mode == Mode::ProbeBw,
            bytes: self.bytes,
        };
        if self.policer.look(&standing) {
            self.probe_rate(progress.now, progress.delivered);
        }
    }

    /// Linux: how much more than the rate is acknowledged at times; links gather packets, receivers
    /// acknowledgements.
    fn update_heap(&mut self, window: &Window, progress: &Progress) {
        if progress.sample.is_none() || progress.acked == 0 {
            return;
        }
        if self.round_start {
            self.heap_rounds += 1;
            if self.heap_rounds >= HEAP_ROUNDS {
                self.heap_rounds = 0;
                self.heaps = [self.heaps[1], 0];
            }
        }
        let (since, acked) = self.heap;
        let mut expected = (self.rate_to_keep() * progress.now.saturating_sub(since) as f64 / SECOND as f64) as u64;
        if acked <= expected || acked >= 1 << 20 {
            (self.heap, expected) = ((progress.now, 0), 0);
        }
        self.heap.1 += u64::from(progress.acked);
        let extra = self.heap.1.saturating_sub(expected).min(u64::from(window.cwnd)) as u32;
        self.heaps[1] = self.heaps[1].max(extra);
    }

    /// Linux: segments on their way when the pace lets the next one go.
    fn later(&self, progress: &Progress, in_flight: u32) -> u32 {
        let wait = progress.release.saturating_sub(progress.now);
        let leave = (self.rate_to_keep() * wait as f64 / SECOND as f64) as u32;
        let more = if self.pacing_gain > 1.0 { self.pace.map_or(0, |pace| pace.quantum) } else { 0 };
        (in_flight + more).saturating_sub(leave)
    }

    /// 4.3.4.3: the next phase of the cycle.
    fn update_phase(&mut self, progress: &Progress) {
        if self.mode != Mode::ProbeBw {
            return;
        }
        let whole = progress.now.saturating_sub(self.phase_at) > self.min_rtt;
        let next = if self.pacing_gain > 1.0 {
            // Until it is that much that is on its way, or losses say that there is no room.
            whole && (progress.lost > 0 || self.later(progress, progress.before) >= self.inflight(self.pacing_gain))
        } else if self.pacing_gain < 1.0 {
            // Until the queue of the phase before has gone.
            whole || self.later(progress, progress.before) <= self.inflight(1.0)
        } else {
            whole
        };
        if next {
            self.advance(progress.now);
        }
    }

    fn advance(&mut self, now: Nanos) {
        self.phase = (self.phase + 1) % CYCLE.len();
        self.phase_at = now;
    }

    /// 4.3.4.2: a phase by chance, but not the one that drains. A socket has no source of chance:
    /// the time decides, which differs between flows.
    fn probe_rate(&mut self, now: Nanos, delivered: u64) {
        self.mode = Mode::ProbeBw;
        let x = random::mix(now ^ delivered.rotate_left(32) ^ random::GOLDEN_GAMMA);
        // The one before 0 or 2 to 7; the next one is begun.
        self.phase = CYCLE.len() - 1 - ((x >> 33) % 7) as usize;
        self.advance(now);
    }

    /// 4.3.2.2.
    fn check_full(&mut self, progress: &Progress) {
        if self.full || !self.round_start || progress.sample.is_some_and(|sample| sample.limited) {
            return;
        }
        let rate = self.rate();
        if rate >= self.full_rate * FULL_GROWTH {
            (self.full_rate, self.full_rounds) = (rate, 0);
            return;
        }
        self.full_rounds += 1;
        self.full = self.full_rounds >= FULL_ROUNDS;
    }

    /// 4.3.3.
    fn check_drain(&mut self, progress: &Progress) {
        if self.mode == Mode::Startup && self.full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && self.later(progress, progress.in_flight) <= self.inflight(1.0) {
            self.probe_rate(progress.now, progress.delivered);
        }
    }

    /// 4.1.2.3, 4.3.5.
    fn update_min_rtt(&mut self, window: &mut Window, progress: &Progress) -> bool {
        let now = progress.now;
        let expired = self.min_rtt < Nanos::MAX && now > self.min_rtt_at.saturating_add(MIN_RTT_SPAN);
        if let Some(rtt) = progress.rtt
            && (rtt <= self.min_rtt || expired)
        {
            (self.min_rtt, self.min_rtt_at) = (rtt, now);
        }
        if expired && !self.idle && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.save(window);
            self.probe_end = None;
        }
        let probing = self.mode == Mode::ProbeRtt;
        if probing {
            match self.probe_end {
                // Four on their way, for 200 ms and a round trip.
                None if progress.in_flight <= LEAST => {
                    self.probe_end = Some(now.saturating_add(PROBE_RTT_SPAN));
                    self.probe_round = false;
                    self.round_end = progress.delivered;
                }
                None => {}
                Some(end) => {
                    self.probe_round |= self.round_start;
                    if self.probe_round && now > end {
                        self.min_rtt_at = now;
                        window.cwnd = window.cwnd.max(self.prior);
                        match self.full {
                            true => self.probe_rate(now, progress.delivered),
                            false => self.mode = Mode::Startup,
                        }
                    }
                }
            }
        }
        if progress.sample.is_some_and(|sample| sample.delivered > 0) {
            self.idle = false;
        }
        probing
    }

    /// 4.2.1: before the pipe is known to be full the pace never falls.
    fn set_pace(&mut self, gain: f64) {
        let rate = gain * self.rate_to_keep() * MARGIN;
        if rate > 0.0 && (self.full || self.pace.is_none_or(|pace| rate > pace.rate)) {
            self.pace = Some(Pace::new(rate, self.bytes));
        }
    }

    /// 4.2.3.
    fn set_window(&mut self, window: &mut Window, progress: &Progress) {
        if progress.acked > 0 && !self.recovers(window, progress) {
            let rate = self.rate_to_keep();
            let heap = self.heaps[0].max(self.heaps[1]).min((rate * HEAP_SPAN) as u32);
            let target = self.room(self.cwnd_gain, rate, if self.full { heap } else { 0 });
            if self.full {
                window.cwnd = window.cwnd.saturating_add(progress.acked).min(target);
            } else if window.cwnd < target || progress.delivered < u64::from(INITIAL) {
                window.cwnd = window.cwnd.saturating_add(progress.acked);
            }
            window.cwnd = window.cwnd.max(LEAST);
        }
        if self.mode == Mode::ProbeRtt {
            window.cwnd = window.cwnd.min(LEAST);
        }
    }

    /// 4.2.3.3: for the first round trip of a recovery one goes for each that arrives, and after it
    /// the window is what it was. True: the window is set.
    fn recovers(&mut self, window: &mut Window, progress: &Progress) -> bool {
        if progress.lost > 0 {
            window.cwnd = window.cwnd.saturating_sub(progress.lost).max(1);
        }
        let (last, state) = (std::mem::replace(&mut self.last_state, progress.state), progress.state);
        if state == State::Recovery && last != State::Recovery {
            self.conserves = true;
            self.round_end = progress.delivered;
            window.cwnd = progress.in_flight + progress.acked;
        } else if last >= State::Recovery && state < State::Recovery {
            window.cwnd = window.cwnd.max(self.prior);
            self.conserves = false;
        }
        if self.conserves {
            window.cwnd = window.cwnd.max(progress.in_flight + progress.acked);
        }
        self.conserves
    }

    fn save(&mut self, window: &Window) {
        self.prior = if self.last_state < State::Recovery && self.mode != Mode::ProbeRtt {
            window.cwnd
        } else {
            self.prior.max(window.cwnd)
        };
    }

    /// A loss: the window before it is kept in mind, the threshold stays.
    pub fn reduced(&mut self, window: &Window) -> u32 {
        self.save(window);
        window.ssthresh
    }

    /// A timeout: as the end of a round, and the rate may grow anew.
    pub fn timed_out(&mut self) {
        (self.last_state, self.full_rate, self.round_start) = (State::Loss, 0.0, true);
    }

    /// A reduction was needless.
    pub fn undo(&mut self) {
        (self.full_rate, self.full_rounds, self.policer) = (0.0, 0, Policer::default());
    }

    /// 4.3.4.4: sending begins again after a silence of the application: at the rate known.
    pub fn resumed(&mut self) {
        self.idle = true;
        if self.mode == Mode::ProbeBw {
            self.set_pace(1.0);
        }
    }
}
