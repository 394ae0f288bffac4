//! The settings of one end of a connection.

use altq_engine::units::{Nanos, SECOND};

const MILLI: Nanos = SECOND / 1000;

/// Congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// After every loss slow start begins again at one segment (Jacobson, "Congestion Avoidance and
    /// Control", SIGCOMM 1988).
    Tahoe,
    /// Fast recovery ends with the first new acknowledgement (RFC 5681 3.2; 4.3BSD Reno).
    Reno,
    /// Fast recovery ends when all that was in flight at its start is acknowledged (RFC 6582 3.2).
    NewReno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00). It always paces, and
    /// ignores ECN marks.
    Bbr,
}

/// When slow start ends without a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HyStart {
    /// Never.
    Off,
    /// HyStart++ (RFC 9406).
    Plus,
    /// The first HyStart as in Linux: slow start ends when a train of acknowledgements is as long
    /// as half the round-trip time, or when the delay has grown by an eighth, clamped to 4 to 16 ms
    /// (Ha and Rhee, "Taming the elephants", Computer Networks 55, 2011).
    Classic,
}

/// When received data is acknowledged, unless something else makes the acknowledgement urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayedAck {
    /// At once.
    Off,
    /// With every second full segment, or after `wait`; the first `quick` acknowledgements at once
    /// (RFC 5681 4.2). Linux: TCP_DELACK_MIN, a 25th of a second, and TCP_MAX_QUICKACKS, 16, of
    /// include/net/tcp.h. Its wait adapts up to 200 ms, ours does not.
    Modern {
        /// The longest wait.
        wait: Nanos,
        /// How many acknowledgements are sent at once, at the start and after a pause.
        quick: u8,
    },
    /// With every second segment, or at the next multiple of `tick` on the clock (4.4BSD: one timer
    /// of 200 ms for all connections).
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
    /// The term of the timeout that stands for the variance: the timeout is never below the
    /// round-trip time plus the bound. That term rises at once to the widest deviation measured
    /// within a round trip. If a round's widest is smaller, it falls at the end of that round by a
    /// quarter of the difference (Linux: tcp_rtt_estimator of net/ipv4/tcp_input.c).
    Variance,
}

/// The settings of one end of a connection. MSS, SACK, timestamps, window scale and ECN are offered
/// in the SYN, and used if both ends offer them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Payload of a full segment in bytes, without the options; 1 to 65,535.
    pub mss: u16,
    /// IP and TCP headers without options: 40 with IPv4, 60 with IPv6. Timestamps add 12.
    pub headers: u16,
    /// Congestion control.
    pub congestion: Algorithm,
    /// Congestion window at the start, in segments (RFC 6928: 10; RFC 5681 3.1: 2 to 4; before: 1).
    pub initial_window: u32,
    /// The most bytes that may be sent and not acknowledged.
    pub send_buffer: u32,
    /// The receive buffer in bytes. The application reads at once, so the window offered is always
    /// the whole buffer.
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
    /// With ECN, two segments are acknowledged one by one from a first mark on, and the segment
    /// that says CWR at once, so that the sender learns early that its window may move again
    /// (Linux: tcp_ecn_check_ce since 3.7 and tcp_ecn_accept_cwr since 4.18, net/ipv4/tcp_input.c).
    /// Else only the marked segment is acknowledged at once.
    pub marks_hurry: bool,
    /// The end that opens acknowledges the answer to its SYN by a segment without data, because its
    /// application can write only when the connection is open (Linux: tcp_rcv_synsent_state_process
    /// of net/ipv4/tcp_input.c). Otherwise the first data carries that acknowledgement, as RFC 9293
    /// 3.10.7.3 allows.
    pub data_after_ack: bool,
    /// The end of slow start. Linux ties it to CUBIC.
    pub hystart: HyStart,
    /// In CUBIC's Reno-friendly region the window grows by a segment a round trip once it is back
    /// at the window before the loss (RFC 9438 4.3, a SHOULD: alpha = 1). Linux keeps the slower
    /// growth of RFC 8312 4.2.
    pub cubic_catches_up: bool,
    /// Losses are found by time, with loss probes (RACK-TLP, RFC 8985); without it by three
    /// duplicates (RFC 6675 4, RFC 5681 3.2). Needs `sack`.
    pub rack: bool,
    /// Proportional rate reduction (RFC 6937); without it the window is halved at once.
    pub prr: bool,
    /// F-RTO: needless timeouts are detected (RFC 5682), and the reduction that they made is undone
    /// (RFC 4015).
    pub frto: bool,
    /// Each of the first two duplicates lets a new segment be sent (RFC 3042). Always so with
    /// `sack`.
    pub limited_transmit: bool,
    /// Nagle's algorithm: a segment that is not full waits until all data is acknowledged (RFC 896;
    /// RFC 9293 3.7.4).
    pub nagle: bool,
    /// The window grows by what an acknowledgement covers (RFC 3465), not by one for each
    /// acknowledgement.
    pub byte_counting: bool,
    /// Segments are paced: at twice the window per round-trip time in slow start, at 1.2 times it
    /// later (Linux: tcp_pacing_ss_ratio, tcp_pacing_ca_ratio, with the `fq` queue). Without it
    /// they are sent when acknowledgements come.
    pub pacing: bool,
    /// So many segments of a connection are sent without pacing at its start (Linux: the first ten
    /// with payload, tcp_update_skb_after_send of net/ipv4/tcp_output.c).
    pub first_burst: u32,
    /// Timeout before a round-trip time is known (RFC 6298 2.1).
    pub rto_initial: Nanos,
    /// Lower bound of the timeout.
    pub rto_min: Nanos,
    /// What `rto_min` bounds.
    pub rto_floor: RtoFloor,
    /// Upper bound of the timeout (RFC 6298 2.5: at least 60 s).
    pub rto_max: Nanos,
    /// Granularity of the timeout's clock: round-trip times are whole ticks, timeouts fall on
    /// ticks; 0 is exact (4.4BSD: 500 ms).
    pub rto_tick: Nanos,
    /// The granularity of timers: they fire on a timer wheel with slots of this length, as in Linux
    /// ([`Config::linux`]: 4 ms, CONFIG_HZ=250); 0: to the nanosecond.
    pub jiffy: Nanos,
    /// How often a SYN is retransmitted before the connection is given up (Linux: tcp_syn_retries,
    /// 6, plus tcp_syn_linear_timeouts, 4: Documentation/networking/ip-sysctl.rst).
    pub syn_retries: u8,
    /// How many of these retransmissions come without doubling the timeout (Linux:
    /// tcp_syn_linear_timeouts).
    pub syn_linear: u8,
    /// How often the answer to a SYN is retransmitted, each time after twice the timeout (Linux:
    /// tcp_synack_retries, 5).
    pub answer_retries: u8,
    /// How often in a row the timeout may expire before the connection is given up, which is not
    /// before 100 s have passed (Linux: tcp_retries2, 15; 4.4BSD: TCP_MAXRXTSHIFT, 12).
    pub retries: u8,
    /// How long the end that closed first remembers the connection: two maximum segment lifetimes
    /// (RFC 9293 3.6.1).
    pub time_wait: Nanos,
}

impl Config {
    /// An end that follows the RFCs of today, on Ethernet with IPv4: CUBIC (RFC 9438) with
    /// HyStart++, SACK, RACK-TLP, PRR, F-RTO, timestamps, an initial window of 10, delayed
    /// acknowledgements of 40 ms, and timeouts of at least 200 ms (RFC 6298 2.4 says a second).
    /// Buffers are 4 MB. TIME_WAIT is 2 s (Linux: 60 s), which makes a difference only to a port
    /// that is used again.
    pub fn rfc() -> Config {
        Config {
            hystart: HyStart::Plus,
            cubic_catches_up: true,
            rto_floor: RtoFloor::Total,
            jiffy: 0,
            first_burst: 0,
            marks_hurry: false,
            data_after_ack: false,
            syn_retries: 6,
            syn_linear: 0,
            ..Config::linux()
        }
    }

    /// The same as in a Linux of today (6.18): the first HyStart; CUBIC without the faster growth
    /// of RFC 9438 4.3 (`cubic_catches_up`); a timeout that is never below the round-trip time plus
    /// 200 ms; the first SYNs a second apart; timers on a wheel of 4 ms.
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
            marks_hurry: true,
            data_after_ack: true,
            hystart: HyStart::Classic,
            cubic_catches_up: false,
            rack: true,
            prr: true,
            frto: true,
            limited_transmit: true,
            nagle: true,
            byte_counting: true,
            pacing: false,
            first_burst: 10,
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

    /// A BSD of 1997 on Ethernet with both socket buffers of `buffer` bytes: Reno without SACK, an
    /// initial window of 1, acknowledgements for every second segment or at the next multiple of
    /// 200 ms, timeouts of at least a second on a clock of 500 ms, and a window that grows once per
    /// acknowledgement (Wright and Stevens, TCP/IP Illustrated 2, chapters 24 to 28). It uses
    /// timestamps, because FreeBSD 2.2 had the extensions of RFC 1323 on by default; so headers
    /// take 52 bytes. A SYN is retransmitted after 6, 18 and 42 s and given up at 90 s (BSD: after
    /// 6 and 30 s, and TCPTV_KEEP_INIT, 75 s; Stevens, TCP/IP Illustrated 1, 18.3).
    pub fn bsd_1997(buffer: u32) -> Config {
        Config {
            congestion: Algorithm::Reno,
            initial_window: 1,
            send_buffer: buffer,
            receive_buffer: buffer,
            sack: false,
            delayed_ack: DelayedAck::Bsd { tick: 200 * MILLI },
            marks_hurry: false,
            data_after_ack: false,
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

    /// The same settings with the MSS for packets of `mtu` bytes.
    pub fn with_mtu(self, mtu: u16) -> Config {
        let options = if self.timestamps { 12 } else { 0 };
        Config { mss: mtu.saturating_sub(self.headers).saturating_sub(options).max(1), ..self }
    }

    /// Length at layer 3 of a packet that carries `len` bytes of payload and `blocks` SACK blocks,
    /// with timestamps if `stamps`.
    pub(super) fn bytes(&self, stamps: bool, blocks: usize, len: u32) -> u32 {
        // Options are padded to words (RFC 7323 appendix A, RFC 2018 3): 12 bytes, 4 + 8 a block.
        let options = if stamps { 12 } else { 0 } + if blocks > 0 { 4 + 8 * blocks as u32 } else { 0 };
        u32::from(self.headers) + options + len
    }
}
