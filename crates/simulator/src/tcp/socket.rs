//! One end of a connection: opening, closing, and the segments that it sends (RFC 9293).

use std::sync::Arc;

use altq_engine::units::{Nanos, SECOND};

use super::config::Config;
use super::pacer::Pacer;
use super::receiver::Receiver;
use super::rto::{Rto, wheel};
use super::scoreboard::FIN;
use super::segment::{Flags, Options, Sack, Segment};
use super::sender::{Counters, Sender};

/// ECT(0): the packet's queue may mark it (RFC 3168 5).
const ECT: u8 = 2;

/// The states of RFC 9293 3.3.2. Those that differ only in which FINs were sent, received and
/// acknowledged are one here, because sender and receiver know that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Listen,
    SynSent,
    SynReceived,
    /// ESTABLISHED, and all states between it and TIME_WAIT or CLOSED.
    Open,
    /// The end that closed first remembers the connection until this time.
    TimeWait(Nanos),
    Closed,
}

/// What is to be sent before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Nothing,
    /// The acknowledgement of the answer to the SYN ([`Config::data_after_ack`]).
    Acknowledgement,
    /// A reset with this sequence number.
    Reset(u64),
}

/// One end of a TCP connection: a state machine without clock, I/O and payload.
///
/// Every method that takes `now` (nanoseconds, never decreasing) may change what
/// [`Socket::poll_transmit`] and [`Socket::poll_timeout`] say; so do [`Socket::write`] and
/// [`Socket::close`]. Poll after each. A late or spurious [`Socket::timeout`] is harmless.
#[derive(Debug)]
pub struct Socket {
    config: Arc<Config>,
    phase: Phase,
    sender: Sender,
    receiver: Receiver,
    /// The options in use: those that both ends offered.
    options: Options,
    /// The window scale: windows are offered in units of 2 to this power.
    scale: u8,
    /// When the SYN is sent or retransmitted.
    syn_at: Option<Nanos>,
    /// How often the SYN was sent.
    syns: u8,
    /// When it was sent first.
    first_syn: Nanos,
    /// The application has closed.
    closing: bool,
    /// What is to be sent before anything else.
    first: First,
    failed: bool,
}

impl Socket {
    fn new(config: Arc<Config>, phase: Phase) -> Socket {
        let sender = Sender::new(&config);
        let receiver = Receiver::new(&config);
        let mut scale = 0;
        // RFC 7323 2.2, 2.3: the smallest scale with which the window can cover the buffer, 14 at
        // most.
        while config.window_scaling && scale < 14 && config.receive_buffer >> scale > 65_535 {
            scale += 1;
        }
        let options = Options::default();
        Socket {
            config,
            phase,
            sender,
            receiver,
            options,
            scale,
            syn_at: None,
            syns: 0,
            first_syn: 0,
            closing: false,
            first: First::Nothing,
            failed: false,
        }
    }

    /// The end that opens the connection: the next [`Socket::poll_transmit`] gives its SYN.
    pub fn connect(config: Arc<Config>) -> Socket {
        let mut socket = Socket::new(config, Phase::SynSent);
        socket.syn_at = Some(0);
        socket
    }

    /// The end that waits for a SYN.
    pub fn listen(config: Arc<Config>) -> Socket {
        Socket::new(config, Phase::Listen)
    }

    /// The application writes `bytes` more; `u64::MAX`: it writes without end. After
    /// [`Socket::close`] this does nothing.
    pub fn write(&mut self, bytes: u64) {
        if !self.closing {
            self.sender.written = self.sender.written.saturating_add(bytes);
        }
    }

    /// The application closes: a FIN follows what it has written. If it wrote without end, the FIN
    /// follows what has been sent by now.
    pub fn close(&mut self) {
        if self.closing {
            return;
        }
        self.closing = true;
        if self.sender.written == u64::MAX {
            self.sender.written = self.sender.next.max(1);
        }
        self.sender.closing = true;
        if matches!(self.phase, Phase::Listen) || (self.phase == Phase::SynSent && self.syns == 0) {
            self.phase = Phase::Closed;
        }
    }

    /// The application gives up: a reset is sent, and the connection is over.
    pub fn abort(&mut self) {
        if matches!(self.phase, Phase::SynReceived | Phase::Open) {
            self.first = First::Reset(self.sender.next);
        }
        self.phase = Phase::Closed;
        (self.syn_at, self.sender.timer) = (None, None);
    }

    /// A segment has arrived; `marked`: its packet carried the ECN codepoint CE (RFC 3168 5).
    #[inline(always)]
    pub fn received(&mut self, now: Nanos, segment: &Segment, marked: bool) {
        let flags = segment.flags;
        if flags.has(Flags::RST) {
            // RFC 9293 3.5.3
            if !matches!(self.phase, Phase::Listen | Phase::Closed | Phase::TimeWait(_)) {
                self.fail();
            }
            return;
        }
        match self.phase {
            Phase::Closed => {
                // RFC 9293 3.5.2: group 1.
                self.first = First::Reset(segment.ack);
                return;
            }
            Phase::Listen if flags.has(Flags::SYN) => {
                self.negotiate(segment);
                self.sender.ecn = self.config.ecn && flags.has(Flags::ECE.with(Flags::CWR));
                self.receiver.opened(now, segment);
                self.phase = Phase::SynReceived;
                self.syn_at = Some(now);
                return;
            }
            Phase::Listen => return,
            Phase::SynSent => {
                if !flags.has(Flags::SYN.with(Flags::ACK)) || segment.ack != 1 {
                    return;
                }
                self.negotiate(segment);
                // RFC 3168 6.1.1
                self.sender.ecn = self.config.ecn && flags.has(Flags::ECE) && !flags.has(Flags::CWR);
                self.receiver.opened(now, segment);
                self.open(now, segment);
                self.receiver.acknowledge_now();
                if self.config.data_after_ack {
                    self.first = First::Acknowledgement;
                }
                return;
            }
            Phase::SynReceived => {
                if flags.has(Flags::SYN) {
                    // The peer has not received the answer to its SYN.
                    self.syn_at = Some(now);
                    return;
                }
                if !flags.has(Flags::ACK) || segment.ack == 0 {
                    return;
                }
                self.open(now, segment);
            }
            Phase::Open | Phase::TimeWait(_) => {
                if flags.has(Flags::SYN) {
                    // The last part of the handshake was lost.
                    return self.receiver.acknowledge_now();
                }
            }
        }
        if flags.has(Flags::ACK) {
            self.sender.acknowledged(&self.config, now, segment);
        }
        if segment.len > 0 || flags.has(Flags::FIN) {
            let stamps = self.options.has(Options::STAMPS);
            let rto = self.sender.rto.timeout();
            self.receiver.received(&self.config, now, segment, marked && self.sender.ecn, stamps, rto);
        }
        self.finish(now, flags.has(Flags::FIN));
    }

    /// Settles the options: those are in use that both ends offer.
    fn negotiate(&mut self, segment: &Segment) {
        self.options = Options(self.offer().0 & segment.options.0);
        self.sender.sack = self.options.has(Options::SACK);
        self.sender.mss = self.sender.mss.min(u32::from(segment.mss)).max(1);
        if !self.options.has(Options::SCALE) {
            self.scale = 0;
        }
    }

    fn offer(&self) -> Options {
        let bit = |on: bool, bit: u8| if on { bit } else { 0 };
        let config = &self.config;
        Options(
            bit(config.sack, Options::SACK)
                | bit(config.timestamps, Options::STAMPS)
                | bit(config.window_scaling, Options::SCALE),
        )
    }

    /// The handshake is done: data may be sent.
    fn open(&mut self, now: Nanos, segment: &Segment) {
        self.phase = Phase::Open;
        let sender = &mut self.sender;
        (sender.una, sender.next, sender.high, self.syn_at) = (1, 1, 1, None);
        sender.edge = segment.ack + u64::from(segment.window);
        sender.widest = segment.window;
        if self.options.has(Options::STAMPS) {
            sender.rto.note_min(now.saturating_sub(segment.echo));
            sender.rto.sample(&self.config, now.saturating_sub(segment.echo), 1, 1);
        } else if self.syns == 1 {
            sender.rto.note_min(now.saturating_sub(sender.last_sent));
            sender.rto.sample(&self.config, now.saturating_sub(sender.last_sent), 1, 1);
        }
        // RFC 5681 3.1: a window of one segment if a SYN was lost. It was not if the answer echoes
        // the timestamp of the first one (RFC 3522 3.2). Linux allows for one that is lost
        // (tcp_init_transfer of net/ipv4/tcp_input.c).
        let late = self.options.has(Options::STAMPS) && segment.echo == self.first_syn;
        let allowed = if self.config.jiffy > 0 { 2 } else { 1 };
        if self.syns > allowed && !late {
            sender.window.cwnd = 1;
        }
        sender.last_sent = now;
    }

    /// Goes to TIME_WAIT or CLOSED if both ends have closed and all is acknowledged.
    fn finish(&mut self, now: Nanos, fin: bool) {
        let acknowledged = self.sender.fin_sent && self.sender.una == self.sender.next;
        match self.phase {
            Phase::Open if acknowledged && self.receiver.closed() => {
                // RFC 9293 3.6: an end that sent its FIN before it received the peer's waits in
                // TIME_WAIT. The other end's FIN acknowledged the peer's, so it need not wait.
                self.phase = if self.sender.fin_early {
                    Phase::TimeWait(now.saturating_add(self.config.time_wait))
                } else {
                    Phase::Closed
                };
                self.sender.timer = None;
            }
            // RFC 9293 3.10.7.4: the peer has not received the last acknowledgement.
            Phase::TimeWait(_) if fin => self.phase = Phase::TimeWait(now.saturating_add(self.config.time_wait)),
            _ => {}
        }
    }

    fn fail(&mut self) {
        self.phase = Phase::Closed;
        self.failed = true;
        (self.syn_at, self.sender.timer) = (None, None);
    }

    /// To be called at the time that [`Socket::poll_timeout`] named; harmless at any other.
    pub fn timeout(&mut self, now: Nanos) {
        match self.phase {
            Phase::TimeWait(at) if at <= now => self.phase = Phase::Closed,
            Phase::Open => {
                self.sender.timeout(&self.config, now);
                // RFC 9293 3.8.3: R2, at least 100 s. (Timeouts are not doubled while SACK reports
                // what arrives above a segment that is lost again and again.)
                let long = now.saturating_sub(self.sender.expired_since) >= 100 * SECOND;
                if self.sender.expired > self.config.retries && long {
                    self.fail();
                }
            }
            _ => {}
        }
    }

    /// The next segment to send now, and the ECN bits of its packet (0: Not-ECT, 2: ECT(0));
    /// `None`: nothing more for now.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<(Segment, u8)> {
        let mut segment = Segment::default();
        self.transmit(now, &mut segment).map(|ecn| (segment, ecn))
    }

    /// As [`poll_transmit`](Socket::poll_transmit), but writes the segment where the caller wants
    /// it: copying a segment takes as long as to make one.
    #[inline(always)]
    pub(crate) fn transmit(&mut self, now: Nanos, segment: &mut Segment) -> Option<u8> {
        if self.first != First::Nothing {
            return self.first(now, segment);
        }
        match self.phase {
            Phase::SynSent | Phase::SynReceived => return self.syn(now, segment),
            Phase::Open => {}
            Phase::Listen => return None,
            Phase::TimeWait(_) | Phase::Closed => return self.acknowledgement(now, segment),
        }
        match self.sender.transmit(&self.config, now) {
            Some((sent, again)) => {
                self.segment(now, segment);
                segment.seq = sent.seq;
                segment.len = sent.len;
                if sent.flags & FIN != 0 {
                    segment.flags = segment.flags.with(Flags::FIN);
                    if !again {
                        self.sender.fin_early = !self.receiver.closed();
                    }
                }
                if !self.sender.unsent() {
                    segment.flags = segment.flags.with(Flags::PSH);
                }
                // RFC 3168 6.1.2: the first new segment says that the window was reduced. RFC 3168
                // 6.1.5: retransmissions are not ECN-capable.
                let mut ecn = 0;
                if self.sender.ecn && !again && sent.len > 0 {
                    ecn = ECT;
                    if std::mem::take(&mut self.sender.cwr) {
                        segment.flags = segment.flags.with(Flags::CWR);
                    }
                }
                segment.bytes += sent.len;
                self.receiver.acknowledged();
                Some(ecn)
            }
            None => self.acknowledgement(now, segment),
        }
    }

    /// The segment that is to be sent before anything else.
    #[cold]
    fn first(&mut self, now: Nanos, segment: &mut Segment) -> Option<u8> {
        let First::Reset(seq) = std::mem::replace(&mut self.first, First::Nothing) else {
            return self.acknowledgement(now, segment);
        };
        let flags = Flags::RST.with(Flags::ACK);
        let bytes = u32::from(self.config.headers);
        *segment = Segment { seq, ack: self.receiver.next(), flags, bytes, ..Segment::default() };
        Some(0)
    }

    /// A segment that only acknowledges, if one is due.
    #[inline(always)]
    fn acknowledgement(&mut self, now: Nanos, segment: &mut Segment) -> Option<u8> {
        if self.receiver.urgent(now) { self.acknowledge(now, segment) } else { None }
    }

    /// A segment that only acknowledges.
    #[inline(never)]
    fn acknowledge(&mut self, now: Nanos, segment: &mut Segment) -> Option<u8> {
        self.segment(now, segment);
        self.receiver.acknowledged();
        self.sender.counters.acks += 1;
        Some(0)
    }

    /// A segment without payload, with all other fields set.
    #[inline]
    fn segment(&self, now: Nanos, segment: &mut Segment) {
        let stamps = self.options.has(Options::STAMPS);
        if !segment.sack.is_empty() {
            segment.sack = Sack::default();
        }
        if self.options.has(Options::SACK) && self.receiver.has_sack() {
            segment.sack = self.receiver.sack(stamps);
        }
        let echo = if self.receiver.marked() { Flags::ECE } else { Flags::default() };
        segment.seq = self.sender.next;
        segment.ack = self.receiver.next();
        (segment.stamp, segment.echo) = if stamps { (now, self.receiver.stamp()) } else { (0, 0) };
        segment.len = 0;
        segment.bytes = self.config.bytes(stamps, segment.sack.len(), 0);
        segment.window = self.offered();
        segment.mss = 0;
        segment.flags = Flags::ACK.with(echo);
        segment.options = self.options;
    }

    /// The window offered, in bytes: the receive buffer, rounded down to a unit of the window
    /// scale. (The application reads at once.)
    fn offered(&self) -> u32 {
        (self.config.receive_buffer >> self.scale).min(65_535) << self.scale
    }

    /// The SYN, or the answer to one, if it is due.
    #[cold]
    fn syn(&mut self, now: Nanos, segment: &mut Segment) -> Option<u8> {
        if self.syn_at.is_none_or(|at| at > now) {
            return None;
        }
        let answer = self.phase == Phase::SynReceived;
        let (retries, linear) =
            if answer { (self.config.answer_retries, 0) } else { (self.config.syn_retries, self.config.syn_linear) };
        if self.syns > retries {
            self.fail();
            return None;
        }
        // RFC 6298 5.5
        let span = self.sender.rto.timeout();
        if self.syns >= linear {
            self.sender.rto.back_off(&self.config);
        }
        self.syn_at = Some(wheel(&self.config, now, Rto::deadline(&self.config, now, span)));
        if self.syns == 0 {
            self.first_syn = now;
        }
        self.syns = self.syns.saturating_add(1);
        self.sender.last_sent = now;
        self.sender.counters.segments += 1;
        self.sender.counters.retransmitted += u64::from(self.syns > 1);
        let options = if answer { self.options } else { self.offer() };
        let mut flags = Flags::SYN;
        if answer {
            flags = flags.with(Flags::ACK);
            if self.sender.ecn {
                flags = flags.with(Flags::ECE);
            }
        } else if self.config.ecn {
            // RFC 3168 6.1.1
            flags = flags.with(Flags::ECE).with(Flags::CWR);
        }
        // RFC 9293 3.2: MSS 4 bytes; SACK permitted 2, with timestamps 12; window scale 3; padded.
        let (sack, stamps) = (options.has(Options::SACK), options.has(Options::STAMPS));
        let bytes = 4 + if stamps { 12 } else { 4 * u32::from(sack) } + 4 * u32::from(options.has(Options::SCALE));
        *segment = Segment {
            seq: 0,
            ack: self.receiver.next(),
            stamp: now,
            echo: self.receiver.stamp(),
            len: 0,
            bytes: u32::from(self.config.headers) + bytes,
            // RFC 7323 2.2: never scaled.
            window: self.config.receive_buffer.min(65_535),
            sack: Default::default(),
            mss: self.config.mss,
            flags,
            options,
        };
        Some(0)
    }

    /// When to call [`Socket::timeout`] and then [`Socket::poll_transmit`] next if nothing else
    /// happens.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let acknowledgement = self.receiver.deadline();
        match self.phase {
            Phase::Listen => None,
            Phase::SynSent | Phase::SynReceived => self.syn_at,
            Phase::Open => {
                let paced = self.sender.pacer.as_ref().and_then(Pacer::deadline);
                earlier(earlier(self.sender.timer.map(|(_, at)| at), paced), acknowledgement)
            }
            Phase::TimeWait(at) => earlier(Some(at), acknowledgement),
            Phase::Closed => acknowledgement,
        }
    }

    /// Bytes delivered to the application.
    pub fn delivered(&self) -> u64 {
        self.receiver.delivered()
    }

    /// Bytes of the application that the peer has acknowledged.
    pub fn acked(&self) -> u64 {
        let fin = u64::from(self.sender.fin_sent && self.sender.una == self.sender.next);
        self.sender.una.saturating_sub(1 + fin)
    }

    /// Bytes written and not acknowledged.
    pub fn unacked(&self) -> u64 {
        self.sender.written.saturating_sub(1 + self.acked())
    }

    /// Whether the handshake is done and the connection is not over.
    pub fn is_established(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether the peer has closed and all that it sent has been delivered.
    pub fn peer_closed(&self) -> bool {
        self.receiver.closed()
    }

    /// Whether both ends have closed and all is acknowledged; this end may still be in TIME_WAIT.
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::TimeWait(_) | Phase::Closed)
    }

    /// Whether the connection is over, TIME_WAIT included.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Whether the connection ended by a reset or because the peer did not answer.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Congestion window in bytes.
    pub fn cwnd(&self) -> u64 {
        u64::from(self.sender.window.cwnd) * u64::from(self.sender.mss)
    }

    /// The window at which slow start ends, in bytes; `None` before the first loss.
    pub fn ssthresh(&self) -> Option<u64> {
        let ssthresh = self.sender.window.ssthresh;
        (ssthresh < u32::MAX).then(|| u64::from(ssthresh) * u64::from(self.sender.mss))
    }

    /// BBR's state; `None` with other congestion control.
    #[cfg(test)]
    pub(super) fn mode(&self) -> Option<super::congestion::Mode> {
        self.sender.control.mode()
    }

    /// When the first segment that is not acknowledged was sent last.
    #[cfg(test)]
    pub(super) fn head_sent(&self) -> Option<Nanos> {
        self.sender.board.head().map(|head| head.sent)
    }

    /// Segments in flight.
    pub fn in_flight(&self) -> u32 {
        self.sender.in_flight(&self.config)
    }

    /// The smoothed round-trip time; `None` before the first measurement.
    pub fn srtt(&self) -> Option<Nanos> {
        self.sender.rto.srtt()
    }

    /// The present retransmission timeout (RFC 6298 2).
    pub fn rto(&self) -> Nanos {
        self.sender.rto.timeout()
    }

    /// Counts of what the connection has done.
    pub fn counters(&self) -> Counters {
        self.sender.counters
    }

    /// Memory of the socket in bytes: with its lists, without its settings.
    pub fn memory(&self) -> usize {
        size_of::<Socket>() + self.sender.board.memory() + self.receiver.memory()
    }
}

fn earlier(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
