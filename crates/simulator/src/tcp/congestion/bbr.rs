//! BBR, version 1 (Cardwell and others, "BBR: Congestion-Based Congestion Control", ACM Queue
//! 14(5), 2016). The congestion window and the pacing rate follow from a model of the path: the
//! highest delivery rate and the shortest round-trip time of the last seconds.
//!
//! "BBR draft" in this file is draft-cardwell-iccrg-bbr-congestion-control-00; the number after it
//! is the section there. "Linux" is net/ipv4/tcp_bbr.c, which adds to the draft:
//!
//! - The pacing rate is 1 % below the estimated rate.
//! - The window is an even number of segments, with two more in the phase that probes for more
//!   rate.
//! - The window has room for acknowledgements that arrive in bursts (`extra_acked`).
//! - Segments in flight are counted as of the time at which pacing releases the next one.
//! - A token-bucket policer on the path is detected, and its rate is used (`policer.rs`).

use altq_engine::random;
use altq_engine::units::{Nanos, SECOND};

use super::Window;
use super::policer::{Observation, Policer};
use crate::tcp::pacer::Pace;
use crate::tcp::rate::Sample;
use crate::tcp::sender::State;

/// BBR draft 4.1.1.1: 2/ln(2) is the smallest gain that doubles the rate each round trip.
const HIGH_GAIN: f64 = 2.0 / std::f64::consts::LN_2;
/// BBR draft 4.3.3.2: with this gain the queue that startup built drains within a round trip.
const DRAIN_GAIN: f64 = 1.0 / HIGH_GAIN;
/// BBR draft 4.3.4.1: the pacing gains of a probing cycle; each phase lasts about a round trip.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// BBR draft 4.2.3.2: one bandwidth-delay product in flight, and one for late acknowledgements.
const CWND_GAIN: f64 = 2.0;
/// BBR draft 4.1.1.3: the estimated rate is the maximum over this many round trips.
const ROUNDS: usize = 10;
/// BBR draft 4.1.2.3: the shortest round-trip time is valid for this long.
const MIN_RTT_SPAN: Nanos = 10 * SECOND;
/// BBR draft 4.1.2.3: the time for which a small window is kept to measure it again.
const PROBE_RTT_SPAN: Nanos = SECOND / 5;
/// BBR draft 4.2.3.4: the smallest window, in segments.
const MIN_WINDOW: u32 = 4;
/// BBR draft 4.3.2.2: startup ends after three rounds in which the rate grew by less than a
/// quarter.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Linux: the pacing rate as a part of the estimated rate. It is below 1 so that queues drain.
const MARGIN: f64 = 0.99;
/// Linux: the window before the first round-trip time is measured, in segments.
const INITIAL: u32 = 10;
/// Linux: the largest burst of acknowledgements is remembered for five to ten rounds.
const EXTRA_ACKED_ROUNDS: u32 = 5;
/// Linux: such a burst counts for at most what the estimated rate delivers in 100 ms (in seconds).
const EXTRA_ACKED_SPAN: f64 = 0.1;

/// The states of BBR draft 4.3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Doubles the sending rate each round trip until the delivery rate stops growing.
    Startup,
    /// Sends below the estimated rate until the queue that startup built is gone.
    Drain,
    /// Sends at the estimated rate, and probes for more once a cycle.
    ProbeBw,
    /// Keeps the window small, so that the path's queues empty and its round-trip time shows.
    ProbeRtt,
}

/// What BBR needs to know of one acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The time.
    pub now: Nanos,
    /// The sample of the delivery rate, if the acknowledgement gave one.
    pub sample: Option<Sample>,
    /// The round-trip time of the latest segment that it acknowledges.
    pub rtt: Option<Nanos>,
    /// Segments delivered since the connection began.
    pub delivered: u64,
    /// Segments delivered by this acknowledgement.
    pub acked: u32,
    /// Segments newly found lost.
    pub lost: u32,
    /// Segments in flight before the acknowledgement came.
    pub before: u32,
    /// Segments in flight now.
    pub in_flight: u32,
    /// The state of loss recovery.
    pub state: State,
    /// When pacing releases the next segment.
    pub release: Nanos,
}

/// The model of the path and the state of BBR. Rates are in segments a second.
#[derive(Debug)]
pub struct Bbr {
    mode: Mode,
    /// The highest delivery rate of each of the last [`ROUNDS`] rounds, at the round's number
    /// modulo [`ROUNDS`].
    rates: [f64; ROUNDS],
    round: usize,
    /// The round ends when a segment is acknowledged that was sent after this many segments had
    /// been delivered.
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
    /// The window before a recovery or before [`Mode::ProbeRtt`], to be restored afterwards.
    prior: u32,
    /// The first round of a recovery: a segment is sent for each that is delivered.
    conserves: bool,
    last_state: State,
    idle: bool,
    policer: Policer,
    lost: u64,
    /// Linux: when the count of acknowledged segments began, and the count. It begins anew whenever
    /// the count falls to what the estimated rate delivers.
    ack_epoch: (Nanos, u64),
    /// The most that the count exceeded the estimated rate by: in the span of
    /// [`EXTRA_ACKED_ROUNDS`] before this one, and in this one.
    extra_acked: [u32; 2],
    extra_acked_rounds: u32,
    /// The pacing rate; `None` before the first round-trip time.
    pace: Option<Pace>,
    /// Length of a full segment's packet in bytes.
    bytes: u32,
}

impl Bbr {
    /// The state before the first segment. A full segment's packet has `bytes`.
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
            ack_epoch: (0, 0),
            extra_acked: [0; 2],
            extra_acked_rounds: 0,
            pace: None,
            bytes,
        }
    }

    /// The present state.
    #[cfg(test)]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The estimated rate: the highest of the last rounds.
    fn rate(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    /// The rate that window and pace follow: the policer's if one was detected, else the estimated
    /// one.
    fn rate_to_keep(&self) -> f64 {
        self.policer.rate().unwrap_or_else(|| self.rate())
    }

    /// The pacing rate. Before there is an estimate it is the window over the round-trip time,
    /// times the gain of startup (BBR draft 4.2.1).
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

    /// The segments in flight for `gain` times the bandwidth-delay product, with room for bursts
    /// (BBR draft 4.2.3.1).
    fn inflight(&self, gain: f64) -> u32 {
        self.window_for(gain, self.rate(), 0)
    }

    /// The window for `gain` times the product of `rate` and the shortest round-trip time, with
    /// room for bursts and for `extra` segments.
    fn window_for(&self, gain: f64, rate: f64, extra: u32) -> u32 {
        if self.min_rtt == Nanos::MAX {
            return INITIAL;
        }
        let product = (gain * rate * self.min_rtt as f64 / SECOND as f64).ceil().min(1e9) as u32;
        let room = product + extra + 3 * self.pace.map_or(1, |pace| pace.quantum);
        // Linux: an even window, because a receiver acknowledges every second segment and one that
        // is left over would wait; two more while probing, so that a small window can grow at all.
        room.next_multiple_of(2) + if self.mode == Mode::ProbeBw && self.phase == 0 { 2 } else { 0 }
    }

    /// Updates model, state, pace and window for an acknowledgement. True in [`Mode::ProbeRtt`]:
    /// the window is small on purpose, and rate samples must be marked as limited.
    pub fn acked(&mut self, window: &mut Window, progress: &Progress) -> bool {
        self.update_rate(progress);
        self.update_extra_acked(window, progress);
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

    /// Updates the round and its highest delivery rate (BBR draft 4.1.1.3).
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
        self.update_policer(progress, sample.limited, progress.lost > 0);
        let rate = sample.delivered as f64 * SECOND as f64 / sample.interval as f64;
        // A sample that the application limited is only a lower bound of the path's rate.
        if !sample.limited || rate >= self.rate() {
            let slot = &mut self.rates[self.round % ROUNDS];
            *slot = slot.max(rate);
        }
    }

    fn update_policer(&mut self, progress: &Progress, limited: bool, losing: bool) {
        let observation = Observation {
            now: progress.now,
            delivered: progress.delivered,
            lost: self.lost,
            round_start: self.round_start,
            losing,
            limited,
            probing: self.mode == Mode::ProbeBw,
            bytes: self.bytes,
        };
        if self.policer.acked(&observation) {
            self.probe_rate(progress.now, progress.delivered);
        }
    }

    /// Linux (bbr_update_ack_aggregation): by how much acknowledgements run ahead of the estimated
    /// rate. Links and receivers gather packets and acknowledge them in bursts.
    fn update_extra_acked(&mut self, window: &Window, progress: &Progress) {
        if progress.sample.is_none() || progress.acked == 0 {
            return;
        }
        if self.round_start {
            self.extra_acked_rounds += 1;
            if self.extra_acked_rounds >= EXTRA_ACKED_ROUNDS {
                self.extra_acked_rounds = 0;
                self.extra_acked = [self.extra_acked[1], 0];
            }
        }
        let (since, acked) = self.ack_epoch;
        let mut expected = (self.rate_to_keep() * progress.now.saturating_sub(since) as f64 / SECOND as f64) as u64;
        if acked <= expected || acked >= 1 << 20 {
            (self.ack_epoch, expected) = ((progress.now, 0), 0);
        }
        self.ack_epoch.1 += u64::from(progress.acked);
        let extra = self.ack_epoch.1.saturating_sub(expected).min(u64::from(window.cwnd)) as u32;
        self.extra_acked[1] = self.extra_acked[1].max(extra);
    }

    /// Linux (bbr_packets_in_net_at_edt): segments in flight at the time when pacing releases the
    /// next one.
    fn in_flight_at_release(&self, progress: &Progress, in_flight: u32) -> u32 {
        let wait = progress.release.saturating_sub(progress.now);
        let leave = (self.rate_to_keep() * wait as f64 / SECOND as f64) as u32;
        let sent = if self.pacing_gain > 1.0 { self.pace.map_or(0, |pace| pace.quantum) } else { 0 };
        (in_flight + sent).saturating_sub(leave)
    }

    /// Begins the next phase of the probing cycle if this one is over (BBR draft 4.3.4.3).
    fn update_phase(&mut self, progress: &Progress) {
        if self.mode != Mode::ProbeBw {
            return;
        }
        let whole = progress.now.saturating_sub(self.phase_at) > self.min_rtt;
        let next = if self.pacing_gain > 1.0 {
            // The probe for more ends when the larger window is in flight, or with a loss.
            whole
                && (progress.lost > 0
                    || self.in_flight_at_release(progress, progress.before) >= self.inflight(self.pacing_gain))
        } else if self.pacing_gain < 1.0 {
            // The phase after it ends when the queue that the probe built is gone.
            whole || self.in_flight_at_release(progress, progress.before) <= self.inflight(1.0)
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

    /// Enters [`Mode::ProbeBw`] at a phase chosen at random, but never the one that drains (BBR
    /// draft 4.3.4.2). A socket has no random numbers, so a hash of the time and the delivered
    /// segments, which differ between flows, chooses.
    fn probe_rate(&mut self, now: Nanos, delivered: u64) {
        self.mode = Mode::ProbeBw;
        let x = random::mix(now ^ delivered.rotate_left(32) ^ random::GOLDEN_GAMMA);
        // This sets the phase before the chosen one (0, or 2 to 7); `advance` moves on to it.
        self.phase = CYCLE.len() - 1 - ((x >> 33) % 7) as usize;
        self.advance(now);
    }

    /// Notes that the path is full if the rate has not grown for three rounds (BBR draft 4.3.2.2).
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

    /// Goes from startup to drain, and from drain to probing (BBR draft 4.3.3).
    fn check_drain(&mut self, progress: &Progress) {
        if self.mode == Mode::Startup && self.full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && self.in_flight_at_release(progress, progress.in_flight) <= self.inflight(1.0) {
            self.probe_rate(progress.now, progress.delivered);
        }
    }

    /// Updates the shortest round-trip time (BBR draft 4.1.2.3), and enters and leaves
    /// [`Mode::ProbeRtt`] (4.3.5 there). True in that state.
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
            self.save_window(window);
            self.probe_end = None;
        }
        let probing = self.mode == Mode::ProbeRtt;
        if probing {
            match self.probe_end {
                // No more than four in flight: now for 200 ms and at least a round trip.
                None if progress.in_flight <= MIN_WINDOW => {
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

    /// Sets the pacing rate to `gain` times the rate. It never falls before the path is known to be
    /// full (BBR draft 4.2.1).
    fn set_pace(&mut self, gain: f64) {
        let rate = gain * self.rate_to_keep() * MARGIN;
        if rate > 0.0 && (self.full || self.pace.is_none_or(|pace| rate > pace.rate)) {
            self.pace = Some(Pace::new(rate, self.bytes));
        }
    }

    /// Sets the window (BBR draft 4.2.3).
    fn set_window(&mut self, window: &mut Window, progress: &Progress) {
        if progress.acked > 0 && !self.recovers(window, progress) {
            let rate = self.rate_to_keep();
            let extra = self.extra_acked[0].max(self.extra_acked[1]).min((rate * EXTRA_ACKED_SPAN) as u32);
            let target = self.window_for(self.cwnd_gain, rate, if self.full { extra } else { 0 });
            if self.full {
                window.cwnd = window.cwnd.saturating_add(progress.acked).min(target);
            } else if window.cwnd < target || progress.delivered < u64::from(INITIAL) {
                window.cwnd = window.cwnd.saturating_add(progress.acked);
            }
            window.cwnd = window.cwnd.max(MIN_WINDOW);
        }
        if self.mode == Mode::ProbeRtt {
            window.cwnd = window.cwnd.min(MIN_WINDOW);
        }
    }

    /// The window in recovery: for its first round trip one segment is sent for each that is
    /// delivered, and at its end the window from before it returns (BBR draft 4.2.3.3). True if
    /// this has set the window.
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

    /// Remembers the window, to restore it after a recovery or [`Mode::ProbeRtt`].
    fn save_window(&mut self, window: &Window) {
        self.prior = if self.last_state < State::Recovery && self.mode != Mode::ProbeRtt {
            window.cwnd
        } else {
            self.prior.max(window.cwnd)
        };
    }

    /// A loss: remembers the window. BBR leaves the slow start threshold as it is, and returns it.
    pub fn reduced(&mut self, window: &Window) -> u32 {
        self.save_window(window);
        window.ssthresh
    }

    /// A timeout counts as the end of a round, and the search for the path's full rate begins anew.
    pub fn timed_out(&mut self) {
        (self.last_state, self.full_rate, self.round_start) = (State::Loss, 0.0, true);
    }

    /// A reduction was found needless: the searches for the full rate and for a policer begin anew.
    pub fn undo(&mut self) {
        (self.full_rate, self.full_rounds, self.policer) = (0.0, 0, Policer::default());
    }

    /// The application sends again after a pause: pacing restarts at the estimated rate (BBR draft
    /// 4.3.4.4).
    pub fn resumed(&mut self) {
        self.idle = true;
        if self.mode == Mode::ProbeBw {
            self.set_pace(1.0);
        }
    }
}
