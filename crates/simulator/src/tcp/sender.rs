//! The sending half: what goes next, and the timers. What an acknowledgement does stands in
//! `recovery.rs`.

use altq_engine::units::Nanos;

use super::config::{Algorithm, Config};
use super::congestion::{Control, Window};
use super::pacer::Pacer;
use super::prr::Prr;
use super::rack::Rack;
use super::rto::{Rto, slack, wheel};
use super::scoreboard::{FIN, Scoreboard, Sent};

/// What a connection has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments with payload, SYN or FIN sent, retransmissions included.
    pub segments: u64,
    /// Of these, retransmissions.
    pub retransmitted: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Recoveries without a timeout.
    pub recoveries: u64,
    /// Loss probes (RFC 8985 7).
    pub probes: u64,
    /// Reductions that were taken back.
    pub undone: u64,
    /// Reductions because of marks (RFC 3168).
    pub marks: u64,
    /// Segments sent that carry nothing but an acknowledgement.
    pub acks: u64,
}

/// What state recovery is in; the names are those of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Nothing is amiss.
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

/// A segment to be sent: its record, and whether it goes again.
pub type Outgoing = (Sent, bool);

/// The sending half of a connection.
#[derive(Debug)]
pub struct Sender {
    /// The first number not acknowledged, and the next to be sent.
    pub una: u64,
    /// See `una`.
    pub next: u64,
    /// The number after the last byte that the application has written.
    pub written: u64,
    /// A FIN follows the last byte.
    pub closing: bool,
    /// It is on its way.
    pub fin_sent: bool,
    /// It went before the peer's was seen.
    pub fin_early: bool,
    /// The peer takes numbers below this; the widest window it has offered.
    pub edge: u64,
    /// See `edge`.
    pub widest: u32,
    /// Payload of a full segment.
    pub mss: u32,
    /// SACK is in use.
    pub sack: bool,
    pub board: Scoreboard,
    pub window: Window,
    pub control: Control,
    pub state: State,
    /// The recovery point: `recover` of RFC 6582 and 6675.
    pub high: u64,
    /// The recovery point of the last recovery, without SACK the bar for the next (RFC 6582 3.2).
    pub recover: u64,
    /// Duplicate acknowledgements without SACK: so many segments have arrived somewhere.
    pub duplicates: u32,
    pub prr: Prr,
    pub rack: Rack,
    pub rto: Rto,
    pub timer: Option<(Timer, Nanos)>,
    /// When it was set, until its place on the wheel is known ([`wheel`]).
    timer_set: Option<Nanos>,
    /// How often the timeout has expired in a row.
    pub expired: u8,
    /// The probe's end (RFC 8985 7: TLP.end_seq), and whether it was a retransmission.
    pub probe: Option<(u64, bool)>,
    /// A probe is due.
    pub probing: bool,
    /// F-RTO looks for a needless timeout (RFC 5682); at present new data goes before what is lost.
    pub frto: bool,
    pub frto_new: bool,
    /// What a needless reduction is taken back to: window and threshold; and what was retransmitted
    /// since less what arrived twice.
    pub undo: Option<Window>,
    pub undo_resent: Option<u32>,
    /// When the first retransmission of this recovery went.
    pub resent_at: Option<Nanos>,
    /// The window has been in use: it may grow (RFC 7661 motivates; Linux' rule).
    pub limited: bool,
    pub most_out: u32,
    pub limited_until: u64,
    /// A retransmission goes whatever the window says (RFC 5681 3.2 step 2, RFC 6582 3.2 step 5,
    /// RFC 6675 5 step 4.3); PRR counts it itself.
    pub urgent: bool,
    /// A CWR stands in the next new segment (RFC 3168 6.1.2); ECN is in use.
    pub cwr: bool,
    pub ecn: bool,
    pub last_sent: Nanos,
    /// When it may send, if it is paced.
    pub pacer: Option<Pacer>,
    pub counters: Counters,
}

impl Sender {
    /// Before the SYN.
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
            probe: None,
            probing: false,
            frto: false,
            frto_new: false,
            undo: None,
            undo_resent: None,
            resent_at: None,
            limited: false,
            most_out: 0,
            limited_until: 0,
            urgent: false,
            cwr: false,
            ecn: false,
            last_sent: 0,
            pacer: (config.pacing || config.congestion == Algorithm::Bbr).then(Pacer::default),
            counters: Counters::default(),
        }
    }

    /// Segments on their way (RFC 6675 3: pipe, counted in segments).
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

    /// RACK and probes need SACK (RFC 8985 4).
    pub fn by_time(&self, config: &Config) -> bool {
        config.rack && self.sack
    }

    /// The segment that goes next, if one may go.
    pub fn transmit(&mut self, config: &Config, now: Nanos) -> Option<Outgoing> {
        if std::mem::take(&mut self.probing)
            && let Some(sent) = self.send_probe(config, now)
        {
            return Some(sent);
        }
        if self.pacer.is_some() {
            return self.transmit_paced(config, now);
        }
        self.next_outgoing(config, now)
    }

    /// The same at a pace.
    #[inline(never)]
    fn transmit_paced(&mut self, config: &Config, now: Nanos) -> Option<Outgoing> {
        let mut pacer = self.pacer?;
        let bytes = config.bytes(config.timestamps, 0, self.mss);
        let pace = self.control.pace(&self.window, self.rto.srtt(), bytes);
        let open = pacer.may_send(now, &pace);
        let room = self.in_flight(config) < self.window.cwnd;
        // It wants to be called when the time has come, if there is something to send then.
        pacer.has_waiting = !open && room && (self.board.waiting() || self.unsent());
        let sent = if open { self.next_outgoing(config, now) } else { None };
        if let Some((sent, _)) = &sent {
            pacer.sent(&pace, f64::from(config.bytes(config.timestamps, 0, sent.len)) / f64::from(bytes));
        }
        self.pacer = Some(pacer);
        sent
    }

    /// What goes as far as windows and recovery are concerned.
    #[inline(always)]
    fn next_outgoing(&mut self, config: &Config, now: Nanos) -> Option<Outgoing> {
        let in_flight = self.in_flight(config);
        let room = in_flight < self.window.cwnd;
        if self.frto_new {
            if room && let Some(sent) = self.send_new(config, now) {
                return Some((sent, false));
            }
            // RFC 5682 2.1 step 2b: nothing new could go, so what is lost goes.
            if self.next > self.high {
                return None;
            }
            (self.frto, self.frto_new) = (false, false);
        }
        if self.board.waiting() {
            let urgent = std::mem::take(&mut self.urgent);
            return if room || urgent { self.retransmit(config, now).map(|sent| (sent, true)) } else { None };
        }
        if room {
            if self.board.len() == 0 {
                self.restart_after_idle(config, now);
            }
            let sent = self.send_new(config, now);
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

    /// Something waits to be sent for the first time.
    pub fn unsent(&self) -> bool {
        self.next < self.written || (self.closing && !self.fin_sent)
    }

    /// Whether the window held sending back. It may only grow then.
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

    /// RFC 5681 4.1: after a silence of a timeout the window says nothing any more. It is halved
    /// for every timeout (RFC 2861 3.1), down to the initial one.
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
        // RFC 2861 3.1: the threshold remembers.
        if self.window.ssthresh < u32::MAX {
            self.window.ssthresh = self.window.ssthresh.max(self.window.cwnd / 4 * 3);
        }
        self.window.cwnd = (self.window.cwnd >> halvings).max(floor);
        self.control.resumed(silence);
    }

    /// The next new segment, if window and RFC 9293 3.8.6.2.1 (silly windows) and Nagle let it go.
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
        // RFC 6298 5.1; a probe makes way for what it would have probed.
        if first || !matches!(self.timer, Some((Timer::Timeout | Timer::Reorder, _))) {
            self.restart(config, now);
        }
        self.schedule_probe(config, now, false);
        Some(sent)
    }

    /// The first lost segment, again.
    fn retransmit(&mut self, config: &Config, now: Nanos) -> Option<Sent> {
        let head = self.board.head().map(|head| head.seq);
        let sent = self.board.resend(now)?;
        self.resent(now);
        // RFC 6298 5.1, 5.5: the timer runs anew for the first one.
        if head == Some(sent.seq) && !matches!(self.timer, Some((Timer::Reorder, _))) {
            self.set_timer(Timer::Timeout, now, Rto::deadline(config, now, self.rto.timeout()));
        }
        Some(sent)
    }

    fn resent(&mut self, now: Nanos) {
        self.resent_at = self.resent_at.or(Some(now));
        self.undo_resent = Some(self.undo_resent.map_or(1, |n| n.saturating_add(1)));
        self.counters.retransmitted += 1;
        self.count_sent(now);
    }

    fn count_sent(&mut self, now: Nanos) {
        self.counters.segments += 1;
        self.prr.sent();
        self.last_sent = now;
    }

    /// Sets the timer.
    pub fn set_timer(&mut self, timer: Timer, now: Nanos, at: Nanos) {
        (self.timer, self.timer_set) = (Some((timer, at)), Some(now));
    }

    /// RFC 6298 5.1 to 5.3: the timeout runs from now; if the timer was set for something else,
    /// from when the first segment was sent.
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

    /// RFC 8985 7.2: sets the timer for a loss probe. `moved`: the acknowledgement would have
    /// restarted the timeout.
    pub fn schedule_probe(&mut self, config: &Config, now: Nanos, moved: bool) -> bool {
        let Some(head) = self.board.head() else { return false };
        if !self.by_time(config) || !matches!(self.state, State::Open | State::Reduced) {
            return false;
        }
        let wait = match self.rto.srtt() {
            // With one segment out its acknowledgement may be delayed (RFC 8985 7.2:
            // TLP.max_ack_delay; the least timeout, as tcp_schedule_loss_probe of
            // net/ipv4/tcp_output.c has it).
            Some(srtt) => 2 * srtt + if self.board.len() == 1 { config.rto_min } else { slack(config) },
            None => config.rto_initial,
        };
        let start = if moved { now } else { head.sent };
        let timeout = start.saturating_add(self.rto.timeout());
        let at = now.saturating_add(wait);
        self.set_timer(Timer::Probe, now, if timeout > now { at.min(timeout) } else { at });
        true
    }

    /// RFC 8985 7.3: a new segment if there is one, else the last one again.
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

    /// The timer's time has come.
    pub fn timeout(&mut self, config: &Config, now: Nanos) {
        let Some((timer, at)) = self.timer.filter(|(_, at)| *at <= now) else { return };
        // Most timers are set anew before their time: only then is it looked up where on the wheel
        // one is.
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
