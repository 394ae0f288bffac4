//! What an acknowledgement, a timeout and an ECN mark do to the sending half: RFC 5681, 6582, 6675,
//! 5682, 8985, 3168, 4015.
//!
//! Windows are in segments. A segment that is lost or has arrived does not count as in flight. So
//! during recovery without PRR the window is simply the threshold, and need not be inflated as in
//! RFC 5681 3.2 to let as much be sent.

use altq_engine::units::Nanos;

use super::config::{Algorithm, Config};
use super::congestion::{Ack, Progress};
use super::prr::Prr;
use super::rack;
use super::rto::{Rto, slack};
use super::scoreboard::{AckReport, RETRANSMITTED};
use super::segment::{Flags, Options, Segment};
use super::sender::{Sender, State, Timer};

/// The number of duplicate acknowledgements that means a loss (RFC 5681 3.2).
const DUPLICATES: u32 = 3;

impl Sender {
    /// An acknowledgement has arrived.
    #[inline(always)]
    pub fn acknowledged(&mut self, config: &Config, now: Nanos, segment: &Segment) {
        // RFC 9293 3.10.7.4: an acknowledgement of what was never sent is ignored, and so is an old
        // one.
        if segment.ack > self.next || segment.ack < self.una {
            return;
        }
        let edge = segment.ack + u64::from(segment.window);
        let advanced = segment.ack > self.una;
        let echo = self.ecn && segment.flags.has(Flags::ECE);
        let widest = self.widest.max(segment.window);
        if !advanced && !echo && segment.sack.is_empty() && self.rests() && !self.control.is_model_based() {
            // The acknowledgement can only have moved the edge of the peer's window. So it is with
            // every segment that comes to an end that only receives.
            (self.edge, self.widest) = (edge, widest);
            (self.high, self.resent_at, self.timer, self.only_new) = (self.next, None, None, false);
            return;
        }
        self.acknowledged_more(config, now, segment, echo);
    }

    /// The part of [`acknowledged`](Sender::acknowledged) that is not about the peer's window only.
    #[inline(never)]
    fn acknowledged_more(&mut self, config: &Config, now: Nanos, segment: &Segment, echo: bool) {
        let edge = segment.ack + u64::from(segment.window);
        let advanced = segment.ack > self.una;
        // RFC 5681 2: a duplicate acknowledges nothing new, carries no data, SYN or FIN, and offers
        // the same window.
        let duplicate = !advanced
            && segment.len == 0
            && !segment.flags.has(Flags::SYN)
            && !segment.flags.has(Flags::FIN)
            && edge == self.edge
            && self.board.len() > 0;
        self.edge = edge;
        self.widest = self.widest.max(segment.window);
        let model_based = self.control.is_model_based();
        let before = if model_based { self.in_flight(config) } else { 0 };
        let mut report = AckReport { highest: self.board.highest(), ..AckReport::default() };
        let shortest = self.rto.min();
        let mut rack = self.rack;
        if self.sack && !segment.sack.is_empty() {
            self.board.sack(segment, self.una, self.high, &mut report, |sent| rack.arrived(now, shortest, sent));
        }
        if advanced {
            self.board.acked(segment.ack, self.high, &mut report, |sent| {
                if !rack::resent_needlessly(segment, sent) {
                    rack.arrived(now, shortest, sent);
                }
            });
            self.una = segment.ack;
            self.expired = 0;
        }
        self.rack = rack;
        self.rack.reordered |= report.reordered;
        if let Some((from, to)) = report.duplicate {
            self.duplicate_report(from, to);
        }
        let measured = self.measure(config, now, segment, advanced, &report);
        if !self.sack {
            self.count_duplicates(advanced, duplicate, &mut report);
        }
        // RFC 6298 5.3: an acknowledgement of new data restarts the timer. A SACK block does so
        // only for a segment that was sent before the first unacknowledged one was sent last
        // (Linux: tcp_clean_rtx_queue). There are only so many of these, whereas new segments may
        // be sent and SACKed without end above a hole, and the timer would never expire.
        let mut rearm =
            advanced || report.sacked.is_some_and(|sent| self.board.head().is_some_and(|head| sent < head.sent));

        let lost = self.update_state(config, now, segment, advanced, duplicate, echo, &report, &mut rearm);
        if self.board.len() == 0 {
            self.timer = None;
        } else if rearm && !self.schedule_probe(config, now, true) {
            self.restart(config, now);
        }

        // Now the window: set by the model, or by PRR during a reduction, or else grown by slow
        // start or congestion avoidance.
        if model_based {
            self.model(config, now, before, measured, lost, &report);
        } else if matches!(self.state, State::Recovery | State::Reduced) {
            if config.prr {
                let in_flight = self.in_flight(config);
                self.prr.acked(&mut self.window, report.delivered, in_flight, advanced && lost == 0);
            }
        } else if advanced && self.may_grow() {
            let acked = if config.byte_counting { report.delivered } else { 1 };
            let ack = Ack {
                now,
                acked,
                una: self.una,
                next: self.next,
                rtt: measured,
                srtt: self.rto.srtt(),
                min_rtt: self.rto.min(),
            };
            self.control.acked(&mut self.window, &ack);
        }
    }

    /// Whether nothing is in flight, and nothing is to be repaired or found out.
    #[inline(always)]
    fn rests(&self) -> bool {
        self.board.len() == 0 && self.state == State::Open && self.probe.is_none()
    }

    /// Hands an acknowledgement to congestion control that models the path (BBR).
    fn model(&mut self, config: &Config, now: Nanos, before: u32, rtt: Option<Nanos>, lost: u32, report: &AckReport) {
        let in_flight = self.in_flight(config);
        let shortest = self.rto.min().unwrap_or(0);
        let Some(rate) = &mut self.board.rate else { return };
        let sample = rate.sample(now, shortest);
        let (delivered, acked, state) = (rate.delivered, report.delivered, self.state);
        let release = self.pacer.as_ref().map_or(now, |pacer| pacer.release());
        let progress = Progress { now, sample, rtt, delivered, acked, lost, before, in_flight, state, release };
        if self.control.acked_by_model(&mut self.window, &progress) {
            rate.limit(in_flight);
        }
    }

    /// Measures the round-trip time, by segments that were sent once, else by the echoed timestamp
    /// (RFC 7323 4). Returns that of the latest segment. An acknowledgement that covers a
    /// retransmission tells nothing of the others that it covers: they may have waited for it at
    /// the receiver (Karn's rule, RFC 6298 3).
    fn measure(
        &mut self,
        config: &Config,
        now: Nanos,
        segment: &Segment,
        advanced: bool,
        report: &AckReport,
    ) -> Option<Nanos> {
        let stamp = (advanced && segment.options.has(Options::STAMPS)).then_some(segment.echo);
        // (The old stack, whose clock has ticks, takes the first segment that was sent once.)
        let told = !report.resent || config.rto_tick > 0;
        let (first, last) = if told { (report.first, report.last) } else { (None, None) };
        // The latest segment's is the shortest: the first one's includes the time for which the
        // receiver delayed its acknowledgement.
        let latest = report.last_sacked.or(last).or(stamp).map(|sent| now.saturating_sub(sent));
        if let Some(rtt) = latest {
            self.rto.note_min(rtt);
        }
        if let Some(sent) = first.or(report.sacked).or(stamp) {
            self.rto.sample(config, now.saturating_sub(sent), self.una, self.next);
        }
        latest
    }

    /// Without SACK a duplicate means that one more segment has arrived (RFC 5681 3.2 step 4).
    fn count_duplicates(&mut self, advanced: bool, duplicate: bool, report: &mut AckReport) {
        if advanced {
            // What the duplicates stood for is now acknowledged by number.
            let known = self.duplicates.min(report.acked.saturating_sub(1));
            self.duplicates -= known;
            report.delivered = report.acked.saturating_sub(known).max(1);
            if self.state == State::Loss {
                self.duplicates = 0;
            }
        } else if duplicate && (self.state != State::Loss || self.next > self.high) {
            let holes = self.board.lost().max(1).min(self.board.len());
            if self.duplicates + holes < self.board.len() {
                self.duplicates += 1;
            }
            report.delivered = 1;
        }
    }

    /// The receiver reports that `[from, to)` arrived twice (RFC 2883 4, RFC 8985 6.2 step 4).
    fn duplicate_report(&mut self, from: u64, to: u64) {
        if let Some((end, true)) = self.probe {
            // It is the loss probe itself, so nothing was lost (RFC 8985 7.4.2).
            if from < end && to >= end {
                self.probe = None;
            }
        }
        // RFC 3708 3: only what was retransmitted since the reduction counts.
        if let Some(resent) = self.undo_resent.as_mut().filter(|_| to > self.undo_from) {
            *resent = resent.saturating_sub(1);
        }
        self.rack.needless(self.una, self.next);
    }

    /// Finds losses and changes the state. Returns how many segments are newly lost.
    #[allow(clippy::too_many_arguments)]
    fn update_state(
        &mut self,
        config: &Config,
        now: Nanos,
        segment: &Segment,
        advanced: bool,
        duplicate: bool,
        echo: bool,
        report: &AckReport,
        rearm: &mut bool,
    ) -> u32 {
        self.probe_answered(config, segment, advanced, duplicate, report);
        self.only_new = false;
        let mut lost = 0;
        match self.state {
            State::Loss => {
                self.repair_loss(segment, advanced, duplicate, report);
                let resent = self.board.resent();
                lost = self.find_losses(config, now, advanced, rearm);
                // If a retransmission is lost again, a recovery of its own begins. If the timeout
                // was needless, one may begin for losses that are found apart from it.
                if self.state == State::Loss && (self.board.resent() >= resent || lost == 0) {
                    return lost;
                }
            }
            State::Recovery if self.recovered(config, advanced) => {
                if !self.take_back(segment, advanced) {
                    self.end_reduction();
                }
                self.duplicates = 0;
                self.open();
            }
            State::Recovery => {
                // RFC 3522 3.2: what is acknowledged was delayed, not lost.
                if advanced && self.undo.is_some() && self.was_delayed(segment) {
                    // It arrived after the segments that made it count as lost.
                    self.rack.reordered = true;
                    // While retransmissions are in flight, a later acknowledgement tells whether
                    // they were needless too. Until then nothing more is taken for lost or
                    // retransmitted (Linux: tcp_try_undo_partial).
                    if self.board.resent() > 0 {
                        self.only_new = true;
                        return 0;
                    }
                    self.board.unlose();
                    self.restore();
                    self.open();
                } else if self.undo_resent == Some(0) && self.restore() {
                    // RFC 3708 3: all that was retransmitted had arrived before. What is taken for
                    // lost and not yet retransmitted stays so.
                    self.open();
                }
                lost = self.find_losses(config, now, advanced, rearm);
                if self.state == State::Recovery {
                    return lost;
                }
            }
            // RFC 3168 6.1.2: not before what carried CWR has arrived: until then the echo is that
            // of the old mark.
            State::Reduced if self.una > self.high => {
                self.end_reduction();
                self.open();
            }
            _ => {}
        }
        if advanced && self.state <= State::Disorder && !self.sack {
            self.duplicates = 0;
        }
        if self.state <= State::Disorder && report.duplicate.is_some() {
            self.take_back(segment, advanced);
        }
        lost += self.find_losses(config, now, advanced, rearm);
        if self.board.lost() > 0 {
            self.enter_recovery(config, now, echo);
        } else if echo && self.state < State::Reduced {
            self.reduce(State::Reduced, config);
            self.counters.marks += 1;
        } else if self.state != State::Reduced {
            self.open();
        }
        lost
    }

    /// Open, or Disorder if something has arrived out of order.
    fn open(&mut self) {
        let amiss = self.board.sacked() > 0 || self.duplicates > 0 || self.board.lost() > 0 || self.board.resent() > 0;
        self.state = if amiss { State::Disorder } else { State::Open };
        self.high = self.next;
        self.forget_resent();
    }

    /// Forgets when the first retransmission was sent, unless one is in flight or the first segment
    /// was retransmitted: its acknowledgement would be compared with the wrong time (Linux:
    /// tcp_any_retrans_done).
    fn forget_resent(&mut self) {
        let first = self.board.head().is_some_and(|head| head.flags & RETRANSMITTED != 0);
        if self.board.resent() == 0 && !first {
            self.resent_at = None;
        }
    }

    /// Finds losses by RFC 8985 6.2, RFC 6675 4 or RFC 5681 3.2, as configured. Returns how many
    /// segments are newly lost. Clears `rearm` if it has set the timer itself.
    fn find_losses(&mut self, config: &Config, now: Nanos, advanced: bool, rearm: &mut bool) -> u32 {
        if !self.sack {
            // RFC 6582 3.2 step 3: a partial acknowledgement shows the next loss.
            let partial = self.state == State::Recovery && advanced;
            // RFC 6582 3.2 step 2: below the last recovery's end, duplicates may be due to its own
            // retransmissions.
            let newer = matches!(config.congestion, Algorithm::Tahoe | Algorithm::Reno) || self.una > self.recover;
            if (self.state < State::Recovery && self.duplicates >= DUPLICATES && newer) || partial {
                self.urgent = !config.prr;
                return self.board.lose_head();
            }
            return 0;
        }
        if !config.rack {
            return self.board.lose_by_count();
        }
        let recovering = self.state >= State::Recovery;
        let (lost, due) = self.rack.detect(now, &mut self.board, &self.rto, recovering);
        if let Some(at) = due {
            self.set_timer(Timer::Reorder, now, at.saturating_add(slack(config)));
            *rearm = false;
        }
        lost
    }

    /// RACK's reordering timer has expired (RFC 8985 6.2).
    pub fn reorder_expired(&mut self, config: &Config, now: Nanos) {
        let mut rearm = true;
        self.only_new = false;
        let lost = self.find_losses(config, now, false, &mut rearm);
        if lost > 0 && self.state != State::Recovery {
            self.enter_recovery(config, now, false);
            // Tahoe has no fast recovery.
            if config.prr && self.state == State::Recovery && !self.control.is_model_based() {
                let in_flight = self.in_flight(config);
                self.prr.acked(&mut self.window, 1, in_flight, false);
            }
        }
        if rearm {
            self.restart(config, now);
        }
    }

    /// Whether recovery is over: all that was in flight at its start is acknowledged (RFC 6582 3.2,
    /// RFC 6675 5 step A).
    fn recovered(&self, config: &Config, advanced: bool) -> bool {
        match config.congestion {
            // RFC 5681 3.2 step 6: the first new acknowledgement ends it.
            Algorithm::Tahoe | Algorithm::Reno if !self.sack => advanced,
            _ => self.una >= self.high,
        }
    }

    /// Begins a reduction of the window: sets the threshold, and what else depends on it.
    fn reduce(&mut self, state: State, config: &Config) {
        self.state = state;
        (self.high, self.recover) = (self.next, self.next);
        self.probe = None;
        self.prr = Prr::begin(&self.window);
        self.window.count = 0;
        self.window.ssthresh = self.control.reduced(&self.window);
        self.cwr = self.ecn;
        if !config.prr && !self.control.is_model_based() {
            self.window.cwnd = self.window.ssthresh;
        }
    }

    /// Begins a recovery (RFC 6675 5, RFC 5681 3.2 step 2). `echo`: the acknowledgement also echoes
    /// a mark, so that the reduction would be due without a loss.
    fn enter_recovery(&mut self, config: &Config, now: Nanos, echo: bool) {
        self.counters.recoveries += 1;
        if config.congestion == Algorithm::Tahoe {
            // Tahoe (Jacobson 1988) starts over as after a timeout.
            return self.start_over(config, now, true);
        }
        self.urgent = !config.prr;
        self.forget_resent();
        if !matches!(self.state, State::Reduced | State::Recovery) {
            self.remember(!echo);
            self.reduce(State::Recovery, config);
        } else {
            // A reduction is under way already.
            self.state = State::Recovery;
            self.high = self.next;
        }
    }

    /// Remembers the window before a reduction, if the reduction `may_be_undone`, and what was
    /// retransmitted before it and may still be reported as a duplicate.
    fn remember(&mut self, may_be_undone: bool) {
        let resent = self.board.resent() + u32::from(self.probe.is_some_and(|(_, resent)| resent));
        self.undo = may_be_undone.then_some(self.window);
        (self.undo_from, self.undo_resent) = (self.una, (resent > 0).then_some(resent));
    }

    /// Ends a reduction: the window is the threshold (RFC 6937 3).
    fn end_reduction(&mut self) {
        if !self.control.is_model_based() {
            self.window.cwnd = self.window.ssthresh;
        }
        self.undo = None;
        self.rack.recovered();
    }

    /// The timeout has expired (RFC 6298 5.4 to 5.6).
    pub fn expire(&mut self, config: &Config, now: Nanos) {
        self.counters.timeouts += 1;
        let first = self.expired == 0;
        if first {
            self.expired_since = now;
        }
        self.expired = self.expired.saturating_add(1);
        // RFC 5682 2.1 step 1: not while in a recovery that began before the timeout, unless the
        // timeout is a repeated one.
        self.frto = config.frto && self.sack && (self.state < State::Recovery || !first);
        self.start_over(config, now, first);
        self.rto.back_off(config);
        self.set_timer(Timer::Timeout, now, Rto::deadline(config, now, self.rto.timeout()));
    }

    /// Takes segments for lost, with RACK not those that were sent just now (RFC 8985 6.3), and
    /// sets the window to one segment more than is then in flight (RFC 5681 3.1: one segment).
    /// `first`: it is the first timeout since something was acknowledged.
    fn start_over(&mut self, config: &Config, now: Nanos, first: bool) {
        // The threshold is reduced only by the first of several timeouts in a row (RFC 5681 3.1),
        // and once per window, as in Linux (tcp_enter_loss of net/ipv4/tcp_input.c).
        let reduce = self.state <= State::Disorder || self.una >= self.high || (self.state == State::Loss && first);
        let (rack, rto) = (self.rack, &self.rto);
        let by_time = self.by_time(config);
        let sacked = self.board.sacked();
        // RFC 8985 6.3: segments that were sent just now are not lost yet.
        self.board.lose_all(|sent| by_time && !rack.overdue(now, sent, rto, sacked));
        self.duplicates = 0;
        if reduce {
            self.remember(true);
            self.window.ssthresh = self.control.reduced(&self.window);
            self.cwr = self.ecn;
        }
        self.control.timed_out();
        self.state = State::Loss;
        self.window.count = 0;
        self.window.cwnd = self.in_flight(config) + 1;
        (self.high, self.recover) = (self.next, self.next);
        (self.probe, self.probing, self.frto_new, self.only_new, self.urgent) = (None, false, false, false, false);
    }

    /// An acknowledgement after a timeout: checks whether the timeout was needless (RFC 5682), and
    /// whether all that was in flight then is acknowledged.
    fn repair_loss(&mut self, segment: &Segment, advanced: bool, duplicate: bool, report: &AckReport) {
        let recovered = self.una >= self.high;
        self.frto_new = false;
        // RFC 3522 3.2 (Eifel): the echoed timestamp is older than the first retransmission, so the
        // original has arrived.
        if advanced && self.take_back(segment, advanced) {
            self.board.unlose();
            self.open();
            return;
        }
        if self.frto {
            // RFC 5682 3.1 step 3b: a segment that was never retransmitted is acknowledged, so the
            // timeout was needless.
            if report.original && self.restore() {
                self.board.unlose();
                self.open();
                return;
            }
            if self.next > self.high {
                if report.sacked.is_some() || duplicate {
                    self.frto = false;
                }
            } else if advanced && !recovered {
                // RFC 5682 2.1 step 2b: two new segments are sent; their acknowledgements will show
                // whether the timeout was needless.
                self.high = self.next;
                self.frto_new = self.unsent() && self.edge > self.next;
                self.frto = self.frto_new;
                if self.frto_new {
                    return;
                }
            }
        }
        if recovered {
            self.undo = None;
            self.open();
            self.duplicates = 0;
        }
    }

    /// Undoes a reduction that was needless: everything that was retransmitted has arrived twice
    /// (RFC 3708 3), or what is acknowledged was not a retransmission (RFC 3522 3.2). True if it
    /// did.
    fn take_back(&mut self, segment: &Segment, advanced: bool) -> bool {
        (self.undo_resent == Some(0) || (advanced && self.was_delayed(segment))) && self.restore()
    }

    /// Whether what an acknowledgement covers arrived late, and was not repaired by a
    /// retransmission: it echoes a timestamp from before the first one (RFC 3522 3.2).
    fn was_delayed(&self, segment: &Segment) -> bool {
        segment.options.has(Options::STAMPS) && self.resent_at.is_some_and(|at| segment.echo < at)
    }

    /// Restores window and threshold from before the reduction, if they are remembered.
    fn restore(&mut self) -> bool {
        let Some(before) = self.undo.take() else { return false };
        self.window.cwnd = self.window.cwnd.max(before.cwnd);
        self.window.ssthresh = self.window.ssthresh.max(before.ssthresh);
        self.control.undo();
        self.cwr = false;
        (self.frto, self.frto_new) = (false, false);
        self.counters.undone += 1;
        true
    }

    /// The acknowledgement of a loss probe shows whether the probe repaired a loss (RFC 8985 7.4).
    fn probe_answered(
        &mut self,
        config: &Config,
        segment: &Segment,
        advanced: bool,
        duplicate: bool,
        report: &AckReport,
    ) {
        let Some((end, resent)) = self.probe.filter(|(end, _)| segment.ack >= *end) else { return };
        if !resent || report.duplicate.is_some() {
            self.probe = None;
        } else if segment.ack > end {
            // The probe repaired a loss, so the window is reduced as for any loss.
            self.reduce(State::Reduced, config);
            self.end_reduction();
            self.open();
        } else if !advanced && duplicate && report.delivered == 0 {
            self.probe = None;
        }
    }
}
