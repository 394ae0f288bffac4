//! What an end of a connection is like.

use altq_engine::units::{Nanos, SECOND};

const MILLI: Nanos = SECOND / 1000;

/// Congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Jacobson 1988: every loss starts over at one segment.
    Tahoe,
    /// Fast recovery that the first new acknowledgement ends (RFC 5681 3.2; 4.3BSD Reno).
    Reno,
    /// Fast recovery until all that was out at its start has come (RFC 6582).
    NewReno,
    /// RFC 9438.
    Cubic,
    /// BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00). Paced always; marks do not
    /// count.
    Bbr,
}

/// When slow start ends without a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HyStart {
    /// Never.
    Off,
    /// HyStart++ (RFC 9406).
    Plus,
    /// The first HyStart as Linux has it: a train of acknowledgements as long as half the
    /// round-trip time, or a delay that has grown by an eighth, within 4 to 16 ms (Ha and Rhee,
    /// "Taming the elephants", Computer Networks 55, 2011).
    Classic,
}

/// When data is acknowledged that nothing else makes urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayedAck {
    /// At once.
    Off,
    /// Every second full segment, or after `wait`; the first `quick` acknowledgements at once (RFC
    /// 5681 4.2; Linux: TCP_DELACK_MIN, a 25th of a second, and TCP_MAX_QUICKACKS, 16, of
    /// include/net/tcp.h; its wait adapts up to 200 ms, ours does not).
    Modern {
        /// The longest wait.
        wait: Nanos,
        /// Acknowledgements at once, at the start and after a silence.
        quick: u8,
    },
    /// Every second segment, or at the next multiple of `tick` on the clock (4.4BSD: one timer of
    /// 200 ms for all connections).
    Bsd {
        /// The timer's period.
        tick: Nanos,
    },
}

/// What the lower bound of the retransmission timeout bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtoFloor {
    /// The whole timeout (RFC 6298 2.4).
    Total,
    /// Its part for the variance: the timeout is never below the round-trip time plus the bound
    /// (Linux: tcp_rtt_estimator of net/ipv4/tcp_input.c).
    Variance,
}

/// What an end of a connection is like. Offered in the SYN what both must know: MSS, SACK,
/// timestamps, window scale, ECN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Payload of a full segment in bytes, options already taken off; 1 to 65,535.
    pub mss: u16,
    /// IP and TCP headers without options: 40 with IPv4, 60 with IPv6. Timestamps add 12.
    pub headers: u16,
    /// Congestion control.
    pub congestion: Algorithm,
    /// Congestion window at the start, in segments (RFC 6928: 10; RFC 5681 3.1: 2 to 4; before: 1).
    pub initial_window: u32,
    /// The most bytes sent and not acknowledged.
    pub send_buffer: u32,
    /// The window offered: the application reads at once, so it is the buffer.
    pub receive_buffer: u32,
    /// Windows above 65,535 bytes (RFC 7323 2).
    pub window_scaling: bool,
    /// Timestamps (RFC 7323 3): 12 bytes a segment, and round-trip times of retransmissions too.
    pub timestamps: bool,
    /// Selective acknowledgements (RFC 2018, 2883).
    pub sack: bool,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// When data is acknowledged.
    pub delayed_ack: DelayedAck,
    /// The end of slow start. Linux ties it to CUBIC.
    pub hystart: HyStart,
    /// CUBIC grows by a segment a round trip once it is back at the window before the loss (RFC
    /// 9438 4.3, a SHOULD: alpha = 1). Linux keeps the slower rate of RFC 8312.
    pub cubic_catches_up: bool,
    /// Losses are found by time (RFC 8985), with loss probes; without it by three duplicates (RFC
    /// 6675, RFC 5681). Needs `sack`.
    pub rack: bool,
    /// Proportional rate reduction (RFC 6937); without it the window is halved at once.
    pub prr: bool,
    /// Timeouts are checked for having been needless (RFC 5682), and what they did is taken back
    /// (RFC 4015).
    pub frto: bool,
    /// The first two duplicates let new segments out (RFC 3042). With `sack` always.
    pub limited_transmit: bool,
    /// A segment that is not full waits for acknowledgements (RFC 896; RFC 9293 3.7.4).
    pub nagle: bool,
    /// The window grows by what an acknowledgement covers (RFC 3465), not by one for each
    /// acknowledgement.
    pub byte_counting: bool,
    /// Segments go at twice the window a round-trip time in slow start, 1.2 times it later (Linux:
    /// tcp_pacing_ss_ratio, tcp_pacing_ca_ratio, with the `fq` queue), not as acknowledgements
    /// come.
    pub pacing: bool,
    /// Timeout before a round-trip time is known (RFC 6298 2.1).
    pub rto_initial: Nanos,
    /// Lower bound of the timeout.
    pub rto_min: Nanos,
    /// What it bounds.
    pub rto_floor: RtoFloor,
    /// Upper bound of the timeout (RFC 6298 2.5: at least 60 s).
    pub rto_max: Nanos,
    /// Granularity of the timeout's clock: round-trip times are whole ticks, timeouts fall on
    /// ticks; 0 is exact (4.4BSD: 500 ms).
    pub rto_tick: Nanos,
    /// Timers fire on a wheel with slots of so long, as Linux' do ([`Config::linux`]: 4 ms,
    /// CONFIG_HZ=250); 0: to the nanosecond.
    pub jiffy: Nanos,
    /// How often a SYN is sent again before it is given up, and how many of these wait no longer
    /// than the first (Linux: tcp_syn_retries, 6, besides tcp_syn_linear_timeouts, 4:
    /// Documentation/networking/ip-sysctl.rst).
    pub syn_retries: u8,
    /// See `syn_retries`.
    pub syn_linear: u8,
    /// The same of the answer to a SYN, each time twice as long (Linux: tcp_synack_retries, 5).
    pub answer_retries: u8,
    /// How often data is sent again before the connection is given up (Linux: tcp_retries2, 15;
    /// 4.4BSD: TCP_MAXRXTSHIFT, 12).
    pub retries: u8,
    /// How long the end that closed first remembers the connection: two maximum segment lifetimes
    /// (RFC 9293 3.6.1).
    pub time_wait: Nanos,
}

impl Config {
    /// What the RFCs of today say, on Ethernet with IPv4: CUBIC (RFC 9438) with HyStart++, SACK,
    /// RACK-TLP, PRR, F-RTO, timestamps, initial window 10, delayed acknowledgements of 40 ms, at
    /// least 200 ms of timeout (where RFC 6298 2.4 has a second). 4 MB of buffers; TIME_WAIT of 2
    /// s, which nothing but a port that is used again sees (Linux: 60 s).
    pub fn rfc() -> Config {
        Config {
            hystart: HyStart::Plus,
            cubic_catches_up: true,
            rto_floor: RtoFloor::Total,
            jiffy: 0,
            syn_retries: 6,
            syn_linear: 0,
            ..Config::linux()
        }
    }

    /// The same as a Linux of today (6.18) does it: the first HyStart, CUBIC without RFC 9438's
    /// faster Reno, a timeout never below the round-trip time plus 200 ms, the first SYNs a second
    /// apart, timers on a wheel of 4 ms.
    pub fn linux() -> Config {
        Config {
            mss: 1448,
            headers: 40,
            congestion: Algorithm::Cubic,
            initial_window: 10,
            send_buffer: 4 << 20,
            receive_buffer: 4 << 20,
            window_scaling: true,
            timestamps: true,
            sack: true,
            ecn: false,
            delayed_ack: DelayedAck::Modern { wait: 40 * MILLI, quick: 16 },
            hystart: HyStart::Classic,
            cubic_catches_up: false,
            rack: true,
            prr: true,
            frto: true,
            limited_transmit: true,
            nagle: true,
            byte_counting: true,
            pacing: false,
            rto_initial: SECOND,
            rto_min: 200 * MILLI,
            rto_floor: RtoFloor::Variance,
            rto_max: 120 * SECOND,
            rto_tick: 0,
            jiffy: 4 * MILLI,
            syn_retries: 10,
            syn_linear: 4,
            answer_retries: 5,
            retries: 15,
            time_wait: 2 * SECOND,
        }
    }

    /// A BSD of 1997 on Ethernet with both socket buffers of `buffer` bytes: Reno without SACK,
    /// initial window 1, acknowledgements for every second segment or at the next multiple of 200
    /// ms, timeouts of at least a second on a clock of 500 ms, the window grown once an
    /// acknowledgement (Wright and Stevens, TCP/IP Illustrated 2, chapters 24 to 28). Timestamps as
    /// RFC 1323's extensions were FreeBSD 2.2's default: 52 bytes of headers. A SYN goes again
    /// after 6, 18 and 42 s and is given up at 90 (there: 6, 30 s, and TCPTV_KEEP_INIT, 75 s;
    /// Stevens, TCP/IP Illustrated 1, 18.3).
    pub fn bsd_1997(buffer: u32) -> Config {
        Config {
            congestion: Algorithm::Reno,
            initial_window: 1,
            send_buffer: buffer,
            receive_buffer: buffer,
            sack: false,
            delayed_ack: DelayedAck::Bsd { tick: 200 * MILLI },
            hystart: HyStart::Off,
            rack: false,
            prr: false,
            frto: false,
            limited_transmit: false,
            byte_counting: false,
            rto_initial: 6 * SECOND,
            rto_min: SECOND,
            rto_floor: RtoFloor::Total,
            rto_max: 64 * SECOND,
            rto_tick: 500 * MILLI,
            jiffy: 0,
            syn_retries: 3,
            syn_linear: 0,
            answer_retries: 3,
            retries: 12,
            time_wait: 60 * SECOND,
            ..Config::linux()
        }
    }

    /// The same with the segments that fit packets of `mtu` bytes.
    pub fn with_mtu(self, mtu: u16) -> Config {
        let options = if self.timestamps { 12 } else { 0 };
        Config { mss: mtu.saturating_sub(self.headers).saturating_sub(options).max(1), ..self }
    }

    /// Length of a packet at layer 3 that carries `len` bytes and `blocks` SACK blocks.
    pub(super) fn bytes(&self, stamps: bool, blocks: usize, len: u32) -> u32 {
        // Options are padded to words (RFC 7323 appendix A, RFC 2018 3): 12 bytes, 4 + 8 a block.
        let options = if stamps { 12 } else { 0 } + if blocks > 0 { 4 + 8 * blocks as u32 } else { 0 };
        u32::from(self.headers) + options + len
    }
}
