//! The blocks that altqstat and tbrconfig print. A value that is not known, `None`, is printed as
//! `-`.

use std::fmt::{self, Display, Formatter};

/// A rate as altqstat has it: `9.98M`, `64.00K`, `0`.
pub fn rate(bit_s: f64) -> String {
    match bit_s {
        0.0 => "0".into(),
        1e6.. => format!("{:.2}M", bit_s / 1e6),
        _ => format!("{:.2}K", bit_s / 1e3),
    }
}

/// A number in C's `%#x`: `0x1f`, and `0`.
pub fn hex(n: u64) -> String {
    if n == 0 { "0".into() } else { format!("{n:#x}") }
}

fn or_dash<T: Display>(figure: Option<T>) -> String {
    figure.map_or("-".into(), |figure| figure.to_string())
}

/// The kind of class that a block of CBQ is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The link itself.
    Root,
    /// The class for packets that no filter matches.
    Default,
    /// The class for control traffic.
    Control,
    /// Any other class, by its handle.
    Class(usize),
}

/// A class of CBQ.
#[derive(Clone, Debug, PartialEq)]
pub struct Cbq {
    /// The kind of class.
    pub which: Which,
    /// The interface.
    pub interface: String,
    /// Its name.
    pub name: String,
    /// Priority 0 to 7; 7 is served first.
    pub priority: i64,
    /// Its height in the tree; that of a leaf is 0.
    pub depth: i64,
    /// Time for which it sleeps when it is over its limit, in microseconds.
    pub offtime: Option<i64>,
    /// Bytes per round.
    pub wrr_allot: Option<i64>,
    /// Time of a byte at its rate, in nanoseconds.
    pub ns_per_byte: Option<i64>,
    /// The rate that follows from it, in bit/s.
    pub rate: f64,
    /// The rate that it got, in bit/s.
    pub measured: u64,
    /// Packets sent.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number of packets after which it was over its limit.
    pub over: Option<i64>,
    /// How often it could not send.
    pub overactions: Option<i64>,
    /// Packets sent on the bandwidth of another class.
    pub borrows: Option<i64>,
    /// How often it was put to sleep.
    pub delays: Option<i64>,
    /// Packets dropped, and their bytes.
    pub drops: (u64, u64),
    /// The counters of RED, if its queue has one.
    pub red: Option<Red>,
    /// Packets waiting.
    pub queued: u64,
    /// The most packets that may wait; `None` if the queue counts bytes.
    pub limit: Option<u32>,
    /// Average, largest and smallest idleness, in microseconds times 32.
    pub idle: Option<(i64, i64, i64)>,
}

impl Display for Cbq {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (interface, name) = (&self.interface, &self.name);
        match self.which {
            Which::Root => writeln!(f, "Root Class for Interface {interface}: {name}")?,
            Which::Default => writeln!(f, "Default Class for Interface {interface}: {name}")?,
            Which::Control => writeln!(f, "Ctl Class for Interface {interface}: {name}")?,
            Which::Class(n) => writeln!(f, "Class {n} on Interface {interface}: {name}")?,
        }
        let (offtime, allot) = (or_dash(self.offtime), or_dash(self.wrr_allot));
        let (priority, depth) = (self.priority, self.depth);
        writeln!(f, "\tpriority: {priority} depth: {depth} offtime: {offtime} [us] wrr_allot: {allot} bytes")?;
        let (cost, had) = (or_dash(self.ns_per_byte), rate(self.measured as f64));
        writeln!(f, "\tnsPerByte: {cost}\t({}bps),\tMeasured: {had} [bps]", rate(self.rate))?;
        writeln!(f, "\tpkts: {},\tbytes: {}", self.packets, self.bytes)?;
        writeln!(f, "\tovers: {},\toveractions: {}", or_dash(self.over), or_dash(self.overactions))?;
        writeln!(f, "\tborrows: {},\tdelays: {}", or_dash(self.borrows), or_dash(self.delays))?;
        writeln!(f, "\tdrops: {},\tdrop_bytes: {}", self.drops.0, self.drops.1)?;
        if let Some(red) = &self.red {
            red.fmt(f)?;
        }
        writeln!(f, "\tQCount: {},\t(qmax: {})", self.queued, or_dash(self.limit))?;
        // The kernel's values are times 32. altqstat shifts the first two, and divides the last,
        // which rounds towards 0.
        let [average, most, least] = match self.idle {
            Some((average, most, least)) => [Some(average >> 5), Some(most >> 5), Some(least / 32)],
            None => [None; 3],
        }
        .map(or_dash);
        writeln!(f, "\tAvgIdle: {average} [us],\t(maxidle: {most} minidle: {least} [us])")
    }
}

/// The counters of RED in a class's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Red {
    /// Average length of the queue, in packets (or bytes) times 1000.
    pub average_thousandths: Option<i64>,
    /// Packets sent.
    pub sent: u64,
    /// Packets dropped because the average, or the queue, was over its maximum.
    pub forced: Option<u64>,
    /// Packets dropped at random.
    pub early: Option<u64>,
    /// Packets marked.
    pub marked: u64,
}

impl Display for Red {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let average = or_dash(self.average_thousandths.map(|average| format!("{:.2}", average as f64 / 1e3)));
        let (forced, early) = (or_dash(self.forced), or_dash(self.early));
        writeln!(
            f,
            "     RED q_avg:{average} xmit:{} (forced:{forced} early:{early} marked:{})",
            self.sent, self.marked
        )
    }
}

/// A service curve in two pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    /// First slope, in bit/s.
    pub m1: u64,
    /// Length of the first piece, in milliseconds.
    pub d_ms: u64,
    /// Second slope, in bit/s.
    pub m2: u64,
}

impl Curve {
    fn is_none(&self) -> bool {
        self.m1 == 0 && self.m2 == 0
    }
}

impl Display for Curve {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}ms {}", rate(self.m1 as f64), self.d_ms, rate(self.m2 as f64))
    }
}

/// A class of HFSC. Values that only ALTQ's own computation of virtual times has (e, d, f, vt and
/// the like) are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hfsc {
    /// Its number, and its handle.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// The real-time curve.
    pub real_time: Curve,
    /// The curve by which it shares the link.
    pub link_share: Curve,
    /// The curve that limits it.
    pub upper_limit: Curve,
    /// The rate that it got, in bit/s.
    pub measured: u64,
    /// The part of that rate by its real-time curve.
    pub measured_real_time: Option<u64>,
    /// Packets waiting.
    pub queued: u64,
    /// How often it had packets after having had none.
    pub period: Option<i64>,
    /// Packets sent.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets dropped, and their bytes.
    pub drops: (u64, u64),
    /// Bytes sent by the real-time curve.
    pub cumul: Option<i64>,
    /// Bytes sent.
    pub total: Option<i64>,
    /// The counters of RED, if its queue has one.
    pub red: Option<Red>,
}

impl Display for Hfsc {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Hfsc { number, name, real_time, link_share, upper_limit, .. } = self;
        write!(f, "[{number:2} {name}] handle:{} [rt {real_time}][ls {link_share}]", hex(*number as u64))?;
        if upper_limit.is_none() {
            writeln!(f)?;
        } else {
            writeln!(f, "[ul {upper_limit}]")?;
        }
        let (had, real_time) = (rate(self.measured as f64), self.measured_real_time);
        let link_share = real_time.map(|real_time| rate(self.measured.saturating_sub(real_time) as f64));
        let real_time = real_time.map(|real_time| rate(real_time as f64));
        let (real_time, link_share, period) = (or_dash(real_time), or_dash(link_share), or_dash(self.period));
        writeln!(f, "  measured: {had}bps [rt:{real_time} ls:{link_share}] qlen:{:2} period:{period}", self.queued)?;
        let (dropped, dropped_bytes) = self.drops;
        writeln!(f, "     packets:{} ({} bytes) drops:{dropped} ({dropped_bytes} bytes) ", self.packets, self.bytes)?;
        let bytes = |figure: Option<i64>| or_dash(figure.map(|n| hex(n.unsigned_abs())));
        writeln!(f, "     cumul:{} total:{}", bytes(self.cumul), bytes(self.total))?;
        match &self.red {
            Some(red) => red.fmt(f),
            None => Ok(()),
        }
    }
}

/// A class of PRIQ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Priq {
    /// Its handle.
    pub handle: usize,
    /// Its name.
    pub name: String,
    /// Priority 0 to 15; 15 is served first.
    pub priority: u64,
    /// The rate that it got, in bit/s.
    pub measured: u64,
    /// Packets waiting.
    pub queued: u64,
    /// How often its queue ran empty.
    pub period: Option<i64>,
    /// Packets sent.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets dropped.
    pub drops: u64,
    /// The counters of RED, if its queue has one.
    pub red: Option<Red>,
}

impl Display for Priq {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "[{}] handle:{} pri:{}", self.name, hex(self.handle as u64), self.priority)?;
        let (had, period) = (rate(self.measured as f64), or_dash(self.period));
        writeln!(f, "  measured: {had}bps qlen:{:2} period:{period}", self.queued)?;
        writeln!(f, "     packets:{} ({} bytes) drops:{}", self.packets, self.bytes, self.drops)?;
        match &self.red {
            Some(red) => red.fmt(f),
            None => Ok(()),
        }
    }
}

/// A FIFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fifoq {
    /// Packets waiting.
    pub queued: u64,
    /// The most packets that may wait; `None` if it counts bytes.
    pub limit: Option<u64>,
    /// How often it ran empty.
    pub period: Option<i64>,
    /// Packets sent, and their bytes.
    pub sent: (u64, u64),
    /// Packets dropped, and their bytes.
    pub dropped: (u64, u64),
    /// Its rate, bit/s.
    pub bit_s: u64,
}

impl Display for Fifoq {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (sent, dropped) = (self.sent, self.dropped);
        writeln!(f, " q_len:{} q_limit:{} period:{}", self.queued, or_dash(self.limit), or_dash(self.period))?;
        writeln!(f, " xmit:{} pkts ({} bytes) drop:{} pkts ({} bytes)", sent.0, sent.1, dropped.0, dropped.1)?;
        writeln!(f, " throughput: {}bps", rate(self.bit_s as f64))
    }
}

/// The head of WFQ's table.
pub fn wfq_head(interface: &str, queues: usize) -> String {
    let columns = "[QID] WEIGHT QSIZE(KB) SENT(pkts)     (KB)       DROP(pkts)     (KB)     bps";
    format!("wfq on {interface}: {queues} queues are used\n{columns}\n")
}

/// Number of queues in WFQ's table.
pub const WFQ_TOP: usize = 10;

/// A queue in WFQ's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WfqQueue {
    /// Its number.
    pub number: usize,
    /// Its weight.
    pub weight: Option<u64>,
    /// Bytes waiting.
    pub queued_bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets dropped, and their bytes.
    pub drops: (u64, u64),
    /// Its rate, bit/s.
    pub bit_s: u64,
}

impl Display for WfqQueue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (weight, waiting) = (or_dash(self.weight), self.queued_bytes / 1024);
        let (kbytes, dropped, lost) = (self.bytes / 1024, self.drops.0, self.drops.1 / 1024);
        let (number, packets, had) = (self.number, self.packets, rate(self.bit_s as f64));
        writeln!(f, "[{number:4}] {weight:>4} {waiting:4} {packets:10} {kbytes:14} {dropped:10} {lost:14} {had:>9}")
    }
}

/// tbrconfig's line about the token bucket regulator: its rate in bit/s and its depth in bytes, if
/// there is one.
pub fn tbrconfig(interface: &str, bucket: Option<(u64, u32)>) -> String {
    let Some((rate, depth)) = bucket else {
        // This is tbrconfig's own spelling.
        return format!("no token bucket regulater found on {interface}\n");
    };
    let rate = if rate < 999_999 { format!("{:.2}K", rate as f64 / 1e3) } else { format!("{:.2}M", rate as f64 / 1e6) };
    let depth = if depth < 10_240 { depth.to_string() } else { format!("{:.2}K", f64::from(depth) / 1024.0) };
    format!("{interface}: tokenrate {rate}(bps)  bucketsize {depth}(bytes)\n")
}
