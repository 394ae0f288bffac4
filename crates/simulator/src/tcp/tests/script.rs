//! One end of a connection, and acknowledgements written by hand.

use std::sync::Arc;

use altq_engine::units::Nanos;

use super::link::MS;
use crate::tcp::{Config, Flags, Options, Segment, Socket};

/// Payload of a segment here: segment n is [1 + 1000 n, 1001 + 1000 n).
pub const MSS: u64 = 1000;

/// The end that sends. Its peer is the test.
pub struct Script {
    pub socket: Socket,
    pub now: Nanos,
    /// The window that acknowledgements offer.
    pub window: u32,
    echo: Nanos,
}

impl Script {
    /// Opened; the handshake took `rtt`, or nothing where there are no timestamps.
    pub fn new(config: Config, rtt: Nanos) -> Script {
        let config = Arc::new(Config { mss: MSS as u16, ..config });
        let mut socket = Socket::connect(config);
        let (syn, _) = socket.poll_transmit(0).unwrap();
        let flags = Flags::SYN.with(Flags::ACK);
        let answer =
            Segment { ack: 1, window: 65_535, mss: MSS as u16, flags, options: syn.options, ..Segment::default() };
        socket.received(rtt, &answer, false);
        let mut script = Script { socket, now: rtt, window: 10_000_000, echo: 0 };
        assert!(script.sent().is_empty());
        // The window of a SYN is not scaled.
        script.ack(0, &[]);
        script
    }

    /// Segments that it sends now, by number: new ones and retransmissions alike.
    pub fn sent(&mut self) -> Vec<u64> {
        self.segments().iter().map(|segment| (segment.seq - 1) / MSS).collect()
    }

    /// The same as they are, those that only acknowledge left out.
    pub fn segments(&mut self) -> Vec<Segment> {
        let mut all = Vec::new();
        while let Some((segment, _)) = self.socket.poll_transmit(self.now) {
            all.extend((segment.len > 0).then_some(segment));
        }
        all
    }

    /// The application writes so many segments; what goes.
    pub fn write(&mut self, segments: u64) -> Vec<u64> {
        self.socket.write(segments * MSS);
        self.sent()
    }

    /// All before segment `next` has come, and of what follows these, `[from, to)`, the latest
    /// first; what goes.
    pub fn ack(&mut self, next: u64, blocks: &[(u64, u64)]) -> Vec<u64> {
        self.acknowledge(next, blocks, Flags::ACK)
    }

    /// The same with flags.
    pub fn acknowledge(&mut self, next: u64, blocks: &[(u64, u64)], flags: Flags) -> Vec<u64> {
        let number = |segment: u64| 1 + segment * MSS;
        let mut segment = Segment { seq: 1, ack: number(next), window: self.window, flags, ..Segment::default() };
        segment.options = Options(Options::SACK);
        if self.echo > 0 {
            (segment.options, segment.echo) = (Options(Options::SACK | Options::STAMPS), self.echo);
        }
        for (from, to) in blocks {
            segment.sack.push(segment.ack, number(*from), number(*to));
        }
        self.socket.received(self.now, &segment, false);
        self.sent()
    }

    /// The same, with the timestamp of what was sent at `echo` in it.
    pub fn ack_of(&mut self, echo: Nanos, next: u64, blocks: &[(u64, u64)]) -> Vec<u64> {
        self.echo = echo;
        let sent = self.ack(next, blocks);
        self.echo = 0;
        sent
    }

    /// Goes on to `now`, or to when the socket wants to be called, whichever is first; what goes
    /// then. False: no call was due.
    pub fn until(&mut self, now: Nanos) -> (bool, Vec<u64>) {
        match self.socket.poll_timeout().filter(|at| *at <= now) {
            Some(at) => {
                self.now = self.now.max(at);
                self.socket.timeout(self.now);
                (true, self.sent())
            }
            None => {
                self.now = now;
                (false, Vec::new())
            }
        }
    }

    /// The window in segments.
    pub fn cwnd(&self) -> u64 {
        self.socket.cwnd() / MSS
    }

    /// The threshold in segments.
    pub fn ssthresh(&self) -> Option<u64> {
        self.socket.ssthresh().map(|bytes| bytes / MSS)
    }
}

/// All by the RFCs, acknowledged segment by segment, without timestamps.
pub fn rfc() -> Config {
    Config {
        timestamps: false,
        hystart: crate::tcp::HyStart::Off,
        congestion: crate::tcp::Algorithm::NewReno,
        ..Config::rfc()
    }
}

/// What `segment n` is acknowledged by when it has come in order.
pub fn trip(script: &mut Script, from: u64, to: u64, span: Nanos) -> Vec<u64> {
    script.now += span;
    let mut sent = Vec::new();
    for n in from..to {
        sent.extend(script.ack(n + 1, &[]));
    }
    sent
}

/// 100 ms.
pub const RTT: Nanos = 100 * MS;
