//! The sending half: which segment is sent next, and the timers. `recovery.rs` handles what
//! arrives.

use altq_engine::units::Nanos;

use super::config::{Algorithm, Config};
use super::congestion::{Control, Window};
use super::pacer::Pacer;
use super::prr::Prr;
use super::rack::Rack;
use super::rto::{Rto, slack, wheel};
use super::scoreboard::{FIN, Scoreboard, Sent};

/// Counts of what a connection has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments with payload, SYN or FIN sent, retransmissions included.
    pub segments: u64,
    /// Of these, retransmissions.
    pub retransmitted: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Recoveries that began without a timeout.
    pub recoveries: u64,
    /// Loss probes (RFC 8985 7).
    pub probes: u64,
    /// Reductions of the window that were undone because they were needless.
    pub undone: u64,
    /// Reductions because of ECN marks (RFC 3168 6.1.2).
    pub marks: u64,
    /// Segments sent that carry only an acknowledgement.
    pub acks: u64,
}

/// The state of loss recovery; the names are those of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Nothing has arrived out of order.
    Open,
    /// Duplicates or SACK blocks have come.
    Disorder,
    /// The window is being reduced because of a mark or a loss that a probe repaired.
    Reduced,
    /// Fast recovery.
    Recovery,
    /// After a timeout.
    Loss,
}

/// What the retransmission timer is set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The timeout of RFC 6298.
    Timeout,
    /// RACK looks again (RFC 8985 6.2).
    Reorder,
    /// A loss probe (RFC 8985 7).
    Probe,
}

/// A segment to be sent: its record, and whether it is a retransmission.
pub type Outgoing = (Sent, bool);

/// The sending half of a connection.
#[derive(Debug)]
pub struct Sender {
    /// The first sequence number that is not acknowledged.
    pub una: u64,
    /// The next sequence number to be sent.
    pub next: u64,
    /// The sequence number after the last byte that the application has written.
    pub written: u64,
    /// A FIN follows the last byte.
    pub closing: bool,
    /// The FIN was sent.
    pub fin_sent: bool,
    /// The FIN was sent before the peer's FIN arrived.
    pub fin_early: bool,
    /// The end of the peer's window: it accepts sequence numbers below this.
    pub edge: u64,
    /// The widest window that the peer has offered, in bytes.
    pub widest: u32,
    /// Payload of a full segment in bytes.
    pub mss: u32,
    /// SACK is in use.
    pub sack: bool,
    pub board: Scoreboard,
    pub window: Window,
    pub control: Control,
    pub state: State,
    /// The recovery point: `recover` of RFC 6582 3.2, RecoveryPoint of RFC 6675 5.
    pub high: u64,
    /// The recovery point of the last recovery. Without SACK the next recovery begins only above it
    /// (RFC 6582 3.2).
    pub recover: u64,
    /// Without SACK, the number of duplicate acknowledgements: each means that a segment has
    /// arrived out of order.
    pub duplicates: u32,
    pub prr: Prr,
    pub rack: Rack,
    pub rto: Rto,
    pub timer: Option<(Timer, Nanos)>,
    /// When the timer was set; `None` once its slot on the timer wheel is known ([`wheel`]).
    timer_set: Option<Nanos>,
    /// How often the timeout has expired in a row.
    pub expired: u8,
    /// When it expired the first time in that row.
    pub expired_since: Nanos,
    /// The end of the loss probe (RFC 8985 7.1: TLP.end_seq), and whether the probe was a
    /// retransmission.
    pub probe: Option<(u64, bool)>,
    /// A loss probe is due.
    pub probing: bool,
    /// F-RTO is finding out whether a timeout was needless (RFC 5682).
    pub frto: bool,
    /// F-RTO sends new data before it retransmits what is lost.
    pub frto_new: bool,
    /// Until the next acknowledgement nothing is retransmitted: what is taken for lost seems to be
    /// delayed only.
    pub only_new: bool,
    /// Window and threshold from before the reduction, restored if it turns out needless.
    pub undo: Option<Window>,
    /// The first sequence number that was not acknowledged when the reduction began.
    pub undo_from: u64,
    /// Retransmissions since the reduction, less those that the receiver reports as duplicates. At
    /// 0 the reduction was needless.
    pub undo_resent: Option<u32>,
    /// When the first retransmission of this recovery was sent.
    pub resent_at: Option<Nanos>,
    /// The window held sending back lately, so it may grow (Linux: is_cwnd_limited; RFC 7661 gives
    /// reasons).
    pub limited: bool,
    /// The most segments not acknowledged while `limited` was as it is.
    pub most_out: u32,
    /// `limited` holds until this sequence number is acknowledged.
    pub limited_until: u64,
    /// The next retransmission is sent whatever the window says (RFC 5681 3.2 step 3, RFC 6582 3.2
    /// step 3, RFC 6675 5 step 4.3). Not used with PRR, which allows for it itself.
    pub urgent: bool,
    /// The next new segment carries CWR (RFC 3168 6.1.2).
    pub cwr: bool,
    /// ECN is in use.
    pub ecn: bool,
    /// When the last segment was sent.
    pub last_sent: Nanos,
    /// The pacer, if segments are paced.
    pub pacer: Option<Pacer>,
    pub counters: Counters,
}

impl Sender {
    /// The state before the SYN.
    pub fn new(config: &Config) -> Sender {
        Sender {
            una: 0,
            next: 0,
            written: 1,
            closing: false,
            fin_sent: false,
            fin_early: false,
            edge: 1,
            widest: 0,
            mss: u32::from(config.mss),
            sack: config.sack,
            board: Scoreboard::new(config.congestion == Algorithm::Bbr),
            window: Window { cwnd: config.initial_window.max(1), ssthresh: u32::MAX, count: 0 },
            control: Control::new(config),
            state: State::Open,
            high: 0,
            recover: 0,
            duplicates: 0,
            prr: Prr::default(),
            rack: Rack::default(),
            rto: Rto::new(config),
            timer: None,
            timer_set: None,
            expired: 0,
            expired_since: 0,
            probe: None,
            probing: false,
            frto: false,
            frto_new: false,
            undo: None,
            undo_from: 0,
            undo_resent: None,
            only_new: false,
            resent_at: None,
            limited: false,
            most_out: 0,
            limited_until: 0,
            urgent: false,
            cwr: false,
            ecn: false,
            last_sent: 0,
            pacer: (config.pacing || config.congestion == Algorithm::Bbr).then(|| Pacer::new(config.first_burst)),
            counters: Counters::default(),
        }
    }

    /// Segments in flight (RFC 6675 4: pipe, counted in segments).
    pub fn in_flight(&self, config: &Config) -> u32 {
        let arrived = if self.sack {
            self.board.sacked()
        } else if config.limited_transmit || self.state >= State::Recovery {
            self.duplicates
        } else {
            0
        };
        (self.board.len() + self.board.resent()).saturating_sub(arrived + self.board.lost())
    }

    /// Whether losses are found by time: RACK and loss probes need SACK (RFC 8985 4).
    pub fn by_time(&self, config: &Config) -> bool {
        config.rack && self.sack
    }

    /// The next segment to be sent, if one may be sent now.
    #[inline(always)]
    pub fn transmit(&mut self, config: &Config, now: Nanos) -> Option<Outgoing> {
        if std::mem::take(&mut self.probing)
            && let Some(sent) = self.send_probe(config, now)
        {
            return Some(sent);
        }
        if self.pacer.is_some() {
            return self.transmit_paced(config, now);
        }
        if self.is_silent() {
            self.note_window_use(false);
            return None;
        }
        self.next_outgoing(config, now)
    }

    /// Nothing is in flight and nothing waits to be sent. So it is with every segment that comes to
    /// an end that only receives; [`next_outgoing`](Sender::next_outgoing) would find that out step
    /// by step.
    #[inline]
    fn is_silent(&self) -> bool {
        self.board.len() == 0 && !self.unsent() && !self.frto_new && self.window.cwnd > 0
    }

    /// The same for a sender that paces.
    #[inline(never)]
    fn transmit_paced(&mut self, config: &Config, now: Nanos) -> Option<Outgoing> {
        let mut pacer = self.pacer?;
        let bytes = config.bytes(config.timestamps, 0, self.mss);
        let pace = self.control.pace(&self.window, self.rto.srtt(), bytes);
        let open = pacer.may_send(now, &pace);
        let room = self.in_flight(config) < self.window.cwnd;
        // The pacer names a deadline only if there is something to send then.
        pacer.has_waiting = !open && room && (self.board.waiting() || self.unsent());
        let sent = if open { self.next_outgoing(config, now) } else { None };
        if let Some((sent, _)) = &sent {
            pacer.sent(&pace, f64::from(config.bytes(config.timestamps, 0, sent.len)) / f64::from(bytes));
        }
        self.pacer = Some(pacer);
        sent
    }

    /// The next segment that windows and recovery let be sent, whatever the pacer says.
    #[inline(always)]
    fn next_outgoing(&mut self, config: &Config, now: Nanos) -> Option<Outgoing> {
        let in_flight = self.in_flight(config);
        let room = in_flight < self.window.cwnd;
        if self.frto_new {
            if room && let Some(sent) = self.send_new(config, now) {
                return Some((sent, false));
            }
            // RFC 5682 2.1 step 2b: no new segment can be sent, so lost ones are retransmitted.
            if self.next > self.high {
                return None;
            }
            (self.frto, self.frto_new) = (false, false);
        }
        if self.board.waiting() && !self.only_new {
            let urgent = std::mem::take(&mut self.urgent);
            return if room || urgent { self.retransmit(config, now).map(|sent| (sent, true)) } else { None };
        }
        if room {
            if self.board.len() == 0 {
                self.restart_after_idle(config, now);
            }
            let sent = if self.unsent() { self.send_new(config, now) } else { None };
            if sent.is_none() {
                self.note_window_use(false);
                if !self.unsent()
                    && let Some(rate) = &mut self.board.rate
                {
                    rate.limit(in_flight);
                }
            }
            return sent.map(|sent| (sent, false));
        }
        self.note_window_use(true);
        None
    }

    /// Whether data or a FIN waits to be sent for the first time.
    pub fn unsent(&self) -> bool {
        self.next < self.written || (self.closing && !self.fin_sent)
    }

    /// Notes whether the window held sending back, because it may grow only then.
    fn note_window_use(&mut self, limited: bool) {
        let out = self.board.len();
        if self.una >= self.limited_until || limited || (!self.limited && out > self.most_out) {
            (self.limited, self.most_out, self.limited_until) = (limited, out, self.next);
        }
    }

    /// Whether the window may grow: it was used to the full, or half of it was in slow start.
    pub fn may_grow(&self) -> bool {
        self.limited || (self.window.slow_start() && self.window.cwnd < 2 * self.most_out)
    }

    /// After a pause of a timeout or more the window is out of date (RFC 5681 4.1). It is halved
    /// for every timeout that has passed (RFC 2861 3.1), down to the initial window.
    fn restart_after_idle(&mut self, config: &Config, now: Nanos) {
        if let Some(rate) = &self.board.rate {
            if rate.is_limited() {
                self.control.resumed(0);
            }
            return;
        }
        let silence = now.saturating_sub(self.last_sent);
        if self.next <= 1 || !self.unsent() || silence <= self.rto.timeout() {
            return;
        }
        let halvings = ((silence - 1) / self.rto.timeout().max(1)).min(31) as u32;
        let floor = config.initial_window.max(1).min(self.window.cwnd);
        // RFC 2861 3.1: the threshold keeps three quarters of the window from before the pause.
        if self.window.ssthresh < u32::MAX {
            self.window.ssthresh = self.window.ssthresh.max(self.window.cwnd / 4 * 3);
        }
        self.window.cwnd = (self.window.cwnd >> halvings).max(floor);
        self.control.resumed(silence);
    }

    /// Sends the next new segment, if the peer's window, the avoidance of silly windows (RFC 9293
    /// 3.8.6.2.1) and Nagle's algorithm allow it.
    fn send_new(&mut self, config: &Config, now: Nanos) -> Option<Sent> {
        if self.fin_sent || !self.unsent() {
            return None;
        }
        let left = self.written - self.next.min(self.written);
        let edge = self.edge.min(self.una.saturating_add(u64::from(config.send_buffer)));
        let usable = edge.saturating_sub(self.next);
        let len = left.min(usable).min(u64::from(self.mss));
        let last = len == left;
        let fin = last && self.closing;
        if len < u64::from(self.mss) {
            let widest = u64::from(self.widest.min(config.send_buffer));
            let worth = if last { fin || !config.nagle || self.una == self.next } else { len * 2 >= widest };
            if (len == 0 && !fin) || !worth {
                return None;
            }
        }
        let sent = Sent { seq: self.next, sent: now, len: len as u32, flags: if fin { FIN } else { 0 } };
        let first = self.board.len() == 0;
        self.board.push(sent);
        self.next = sent.end();
        self.fin_sent |= fin;
        self.count_sent(now);
        // A timer for a loss probe is set anew. Without one, RFC 6298 5.1: the timer is started.
        let starts = first || !matches!(self.timer, Some((Timer::Timeout | Timer::Reorder, _)));
        if !self.schedule_probe(config, now, false) && starts {
            self.restart(config, now);
        }
        Some(sent)
    }

    /// Retransmits the first lost segment.
    fn retransmit(&mut self, config: &Config, now: Nanos) -> Option<Sent> {
        let head = self.board.head().map(|head| head.seq);
        let sent = self.board.resend(now)?;
        self.resent(now);
        // Retransmitting the first segment restarts the timer: after a timeout by RFC 6298 5.6, in
        // recovery as RFC 6675 6 allows.
        if head == Some(sent.seq) && !matches!(self.timer, Some((Timer::Reorder, _))) {
            self.set_timer(Timer::Timeout, now, Rto::deadline(config, now, self.rto.timeout()));
        }
        Some(sent)
    }

    /// Counts a retransmission.
    fn resent(&mut self, now: Nanos) {
        self.resent_at = self.resent_at.or(Some(now));
        self.undo_resent = Some(self.undo_resent.map_or(1, |n| n.saturating_add(1)));
        self.counters.retransmitted += 1;
        self.count_sent(now);
    }

    /// Counts a segment that is sent.
    fn count_sent(&mut self, now: Nanos) {
        self.counters.segments += 1;
        self.prr.sent();
        self.last_sent = now;
    }

    /// Sets the timer to `at`.
    pub fn set_timer(&mut self, timer: Timer, now: Nanos, at: Nanos) {
        (self.timer, self.timer_set) = (Some((timer, at)), Some(now));
    }

    /// Starts the timeout from now (RFC 6298 5.1 to 5.3). If the timer was set for RACK or a loss
    /// probe, the timeout counts from when the first segment was sent.
    pub fn restart(&mut self, config: &Config, now: Nanos) {
        let Some(head) = self.board.head() else {
            self.timer = None;
            return;
        };
        let at = match self.timer {
            Some((Timer::Reorder | Timer::Probe, _)) => head.sent.saturating_add(self.rto.timeout()).max(now + 1),
            _ => now.saturating_add(self.rto.timeout()),
        };
        self.set_timer(Timer::Timeout, now, Rto::deadline(config, at, 0));
    }

    /// Sets the timer for a loss probe (RFC 8985 7.2). `moved`: an acknowledgement would have
    /// restarted the timeout. False if no probe is to be sent.
    pub fn schedule_probe(&mut self, config: &Config, now: Nanos, moved: bool) -> bool {
        let Some(head) = self.board.head() else { return false };
        if !self.by_time(config) || !matches!(self.state, State::Open | State::Reduced) {
            return false;
        }
        let wait = match self.rto.srtt() {
            // With one segment in flight its acknowledgement may be delayed (RFC 8985 7.2:
            // TLP.max_ack_delay). As in Linux (tcp_schedule_loss_probe of net/ipv4/tcp_output.c)
            // the shortest timeout stands for that delay.
            Some(srtt) => 2 * srtt + if self.board.len() == 1 { config.rto_min } else { slack(config) },
            None => config.rto_initial,
        };
        let start = if moved { now } else { head.sent };
        let timeout = start.saturating_add(self.rto.timeout());
        let at = now.saturating_add(wait);
        self.set_timer(Timer::Probe, now, if timeout > now { at.min(timeout) } else { at });
        true
    }

    /// Sends a loss probe: a new segment if there is one, else the last one again (RFC 8985 7.3).
    fn send_probe(&mut self, config: &Config, now: Nanos) -> Option<Outgoing> {
        let sent = match self.send_new(config, now) {
            Some(sent) => (sent, false),
            None => {
                let sent = self.board.resend_last(now)?;
                self.resent(now);
                (sent, true)
            }
        };
        self.probe = Some((self.next, sent.1));
        self.counters.probes += 1;
        self.timer = None;
        self.restart(config, now);
        Some(sent)
    }

    /// Does what the timer was set for, if its time has come.
    pub fn timeout(&mut self, config: &Config, now: Nanos) {
        let Some((timer, at)) = self.timer.filter(|(_, at)| *at <= now) else { return };
        // Most timers are set anew before they expire. So the slot on the timer wheel is only
        // computed now.
        if let Some(set) = self.timer_set.take() {
            let at = wheel(config, set, at);
            if at > now {
                self.timer = Some((timer, at));
                return;
            }
        }
        if self.board.len() == 0 {
            self.timer = None;
            return;
        }
        match timer {
            Timer::Timeout => self.expire(config, now),
            Timer::Probe => {
                // RFC 8985 7.3: one probe at a time.
                if self.probe.is_some() {
                    self.restart(config, now);
                } else {
                    self.probing = true;
                    self.timer = None;
                    self.restart(config, now);
                }
            }
            Timer::Reorder => self.reorder_expired(config, now),
        }
    }
}
