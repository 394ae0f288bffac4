//! RED (Floyd and Jacobson 1993): a queue that drops a few packets, at random, before it is full.
//!
//! RED measures congestion by a moving average of the queue length. A short burst hardly moves the
//! average; a standing queue does. Below `min` no packet is dropped. From `min` to `max` the drop
//! probability grows from 0 to `probability`. Drops are spread evenly over the arriving packets:
//! the more packets have passed since the last drop, the more likely is the next one. From `max` on
//! every packet is dropped. With `gentle` (Floyd 2000) the probability grows on instead, from
//! `probability` at `max` to 1 at twice `max`. With `ecn`, packets of ECN-capable transports are
//! marked instead of dropped.
//!
//! `variant altq` does what ALTQ's RED does (docs/reference/altq.md 7.1):
//! - half as many drops for the same probability;
//! - no drop of the first packet that finds the average at `min` or above, nor of one that finds at
//!   most one packet waiting;
//! - from `max` on packets are dropped, never marked;
//! - the average does not decay while a class is idle: idle time begins when a dequeue finds the
//!   queue empty, and ALTQ's classes never dequeue from an empty queue.
//!
//! `variant altq-interface` is ALTQ's RED of a whole interface. There the average decays while the
//! interface is idle, as if a packet took 800 µs, whatever the interface's rate
//! (docs/reference/altq.md 7.1).
//!
//! With `flowvalve`, flows that do not give way are dropped before RED sees them ([`flowvalve`]).
//!
//! [`Thresholds`] and [`Average`] are the algorithm without a queue: rio has three of each, sfq one
//! average for each flow.

mod flowvalve;

use self::flowvalve::Flowvalve;
use super::aqm::{self, Aqm, ECN};
use super::{Context, Entry, Form, List, Store, Taken};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::random::SplitMix64;
use crate::settings::{Kind, Limit, ONE, Settings, Word};
use crate::spec::{QueueSpec, SpecError};
use crate::units::{Nanos, Rate, SECOND};

/// The registry's entry. Defaults are ALTQ's (docs/reference/altq.md 7.1), except `max`: three
/// times `min`, as Floyd advises and as ALTQ's classes have it.
pub const ENTRY: Entry = Entry {
    words: &[
        Word {
            name: "min",
            kind: Kind::Limit,
            help: "average length from which on some packets are dropped, in the unit of the limit",
            default: "a tenth of the limit",
        },
        Word {
            name: "max",
            kind: Kind::Limit,
            help: "average length from which on all packets are dropped",
            default: "three times min",
        },
        Word { name: "probability", kind: Kind::Fraction, help: "drop probability just below max", default: "0.1" },
        WEIGHT,
        PACKETSIZE,
        Word {
            name: "gentle",
            kind: Kind::Flag,
            help: "from max to twice max the drop probability grows on to 1",
            default: "off",
        },
        ECN,
        Word {
            name: "harddrop",
            kind: Kind::Flag,
            help: "with ecn: from max on packets are dropped, not marked",
            default: "off",
        },
        Word {
            name: "variant",
            kind: Kind::Choice(VARIANTS),
            help: "as Floyd and Jacobson published it, or as ALTQ has it for a class or for an interface",
            default: "paper",
        },
        Word {
            name: "flowvalve",
            kind: Kind::Flag,
            help: "drops all packets of flows that do not give way when RED drops some (a penalty box)",
            default: "off",
        },
    ],
    in_order: true,
    form: Form::Average,
    ..Entry::new(
        "red",
        "drops some at random before it is full, by the average length (RED)",
        Limit::Packets(60),
        aqm::build::<Red>,
    )
};

/// The word for how fast the average follows the length.
pub(super) const WEIGHT: Word = Word {
    name: "weight",
    kind: Kind::Int { min: 1, max: 1 << 16 },
    help: "N, a power of two: a new length enters the average with a weight of 1/N",
    default: "512; 128 below 300 packets/s, 64 below 50",
};

/// The word for the packet length that turns idle time into a number of packets.
pub(super) const PACKETSIZE: Word = Word {
    name: "packetsize",
    kind: Kind::Bytes { min: 1, max: 65_535 },
    help: "usual packet length, by which idle time counts as packets when the average decays",
    default: "1000",
};

/// The values of `variant`: as published; as in ALTQ's classes; as in ALTQ's interfaces.
pub(super) const VARIANTS: &[&str] = &["paper", "altq", "altq-interface"];

/// What `variant` says: whether it is ALTQ's, and whether it is that of an interface.
pub(super) fn variant(settings: &Settings) -> (bool, bool) {
    let variant = settings.choice("variant");
    let interface = variant == Some("altq-interface");
    (interface || variant == Some("altq"), interface)
}

/// How long a packet takes in ALTQ's RED and RIO of an interface: its word `packetsize` never
/// reached the kernel, which took this instead (docs/reference/altq.md 7.1).
const INTERFACE_PACKET_TIME: Nanos = 800_000;
/// Beyond this idle time ALTQ sets the average to 0.
const LONG_IDLE: Nanos = 60 * SECOND;

/// Bits of an average behind the binary point: its unit is 2^-24 packets or bytes.
const BITS: u32 = 24;

/// The parameters of the moving average (EWMA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ewma {
    /// n, where a new length enters the average with a weight of 1/2^n.
    weight: u32,
    /// The weight that the policy states, if it does.
    written: Option<u32>,
    /// The charged length of a usual packet, in bytes. 0 if `packet_time` does not depend on the
    /// rate.
    packet: u32,
    /// How long a usual packet takes at the class's rate; at least 1.
    packet_time: Nanos,
}

impl Ewma {
    /// A weight of 1/2^`log`, for averages that do not decay in idle time.
    pub fn of_weight(log: u32) -> Ewma {
        Ewma { weight: log.min(31), written: Some(log.min(31)), packet: 0, packet_time: 1 }
    }

    /// n, where a new length enters the average with a weight of 1/2^n.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Reads `weight` and `packetsize`.
    pub fn read(context: &Context, settings: &Settings) -> Result<Ewma, SpecError> {
        // docs/reference/altq.md 7.1: packets of 1000 bytes, and other weights on slow links.
        let size = settings.bytes("packetsize").unwrap_or(1000) as u32;
        let written = match settings.int("weight") {
            Some(weight) if weight.is_power_of_two() => Some(weight.ilog2()),
            Some(weight) => {
                let above = weight.next_power_of_two();
                let message = format!("the weight {weight} is no power of two");
                return Err(SpecError::word("weight", message).help(format!("write weight {} or {above}", above / 2)));
            }
            None => None,
        };
        if variant(settings).1 {
            if settings.bytes("packetsize").is_some() {
                let message = "`packetsize` has no effect on ALTQ's average of an interface: a packet counts as 800us";
                return Err(SpecError::word("packetsize", message).help("leave it out"));
            }
            // 1250 packets a second: a fast link, whose weight is 1/512.
            let weight = written.unwrap_or(9);
            return Ok(Ewma { weight, written: Some(weight), packet: 0, packet_time: INTERFACE_PACKET_TIME });
        }
        let mut ewma = Ewma { weight: 0, written, packet: context.overhead.charge(size), packet_time: 1 };
        ewma.set_rate(context.rate);
        Ok(ewma)
    }

    /// Follows a change of the class's rate. A weight that the policy does not state changes with
    /// the rate.
    pub fn set_rate(&mut self, rate: Rate) {
        if self.packet == 0 {
            return;
        }
        self.packet_time = rate.time_for(u64::from(self.packet)).max(1);
        self.weight = self.written.unwrap_or(match SECOND / self.packet_time {
            0..50 => 6,
            50..300 => 7,
            _ => 9,
        });
    }
}

/// The averages from which on some and all packets are dropped, and the drop probability between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thresholds {
    /// From this average on some packets are dropped; in 2^-24 packets or bytes, as `max`.
    min: u64,
    max: u64,
    /// By how much the probability (in 2^-64) grows for each unit of the average above `min`, times
    /// 2^32.
    slope: u128,
    /// With `gentle`: the probability at `max`, and its slope from there to twice `max`.
    gentle: Option<(u64, u128)>,
}

impl Thresholds {
    /// `min` and `max` are in packets or bytes, `probability` in billionths. `min` is below `max`.
    pub fn new(min: u32, max: u32, probability: u32, gentle: bool) -> Thresholds {
        let slope =
            |part: u32, over: u32| (u128::from(part) << (64 + 32 - BITS)) / (u128::from(ONE) * u128::from(over.max(1)));
        let at_max = u64::try_from((u128::from(probability) << 64) / u128::from(ONE)).unwrap_or(u64::MAX);
        Thresholds {
            min: u64::from(min) << BITS,
            max: u64::from(max) << BITS,
            slope: slope(probability, max.saturating_sub(min)),
            gentle: gentle.then(|| (at_max, slope(ONE.saturating_sub(probability), max))),
        }
    }

    /// The drop probability, in 2^-64, at an average of at least `min`; `None` where every packet
    /// is dropped.
    fn probability(&self, average: u64) -> Option<u64> {
        // A slope times its span is a probability of at most 1, that is 2^96: no overflow.
        let on = |slope: u128, above: u64| u64::try_from((u128::from(above) * slope) >> 32).unwrap_or(u64::MAX);
        if average < self.max {
            return Some(on(self.slope, average.saturating_sub(self.min)));
        }
        let (at_max, slope) = self.gentle?;
        (average < 2 * self.max).then(|| at_max.saturating_add(on(slope, average - self.max)))
    }
}

/// What RED decides about an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is queued.
    Pass,
    /// It is dropped or marked at random, below `max`.
    Early,
    /// It is dropped or marked because the average is too long for any packet to pass.
    Forced,
}

/// The moving average of the length, and the packets that have passed since the last drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Average {
    /// The average, in 2^-24 packets or bytes.
    average: u64,
    /// Packets since the last drop; -1 below `min` (Floyd and Jacobson, figure 2).
    count: i32,
    /// For `variant altq`: the last packet found the average at `min` or above.
    above: bool,
}

impl Average {
    /// The average of a queue that has always been empty.
    pub const NEW: Average = Average { average: 0, count: -1, above: false };

    /// An average that equals `length`, in packets or bytes.
    pub fn of(length: u32) -> Average {
        Average { average: u64::from(length) << BITS, ..Average::NEW }
    }

    /// The average, in packets or bytes, times 1000.
    pub fn thousandths(&self) -> u64 {
        ((u128::from(self.average) * 1000) >> BITS) as u64
    }

    /// Follows one sample of the length: an arriving packet finds `length` packets or bytes.
    pub fn sample(&mut self, ewma: &Ewma, length: u32) {
        let length = u64::from(length) << BITS;
        if length >= self.average {
            self.average += (length - self.average) >> ewma.weight;
        } else {
            self.average -= (self.average - length) >> ewma.weight;
        }
    }

    /// Decays after the queue was empty for `time`, as if every packet that the link could have
    /// sent in it had found the queue empty (Floyd and Jacobson, section 4). The arriving packet
    /// counts at least; otherwise many pauses, each shorter than a packet, would never lower the
    /// average. Returns the rest of `time` that is less than a packet's.
    pub fn idle(&mut self, ewma: &Ewma, time: Nanos) -> Nanos {
        // An average of 0 does not decay, so the rest of the time does not matter.
        if self.average == 0 {
            return 0;
        }
        if time < ewma.packet_time {
            self.sample(ewma, 0);
            return 0;
        }
        self.decay(ewma, time / ewma.packet_time);
        time % ewma.packet_time
    }

    /// [`idle`](Average::idle) as in ALTQ: one packet less, because the arriving packet is sampled
    /// as well; and 0 after a minute (docs/reference/altq.md 7.1).
    pub fn idle_altq(&mut self, ewma: &Ewma, time: Nanos) {
        if time > LONG_IDLE {
            self.average = 0;
        }
        self.decay(ewma, (time / ewma.packet_time).saturating_sub(1));
    }

    /// Follows `n` samples of an empty queue: (1 - 2^-weight)^n, by squaring, in 2^-63.
    fn decay(&mut self, ewma: &Ewma, mut n: u64) {
        let mut base: u64 = (1 << 63) - (1 << (63 - ewma.weight));
        let times = |a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 63) as u64;
        while n > 0 && self.average > 0 {
            if n & 1 == 1 {
                self.average = times(self.average, base);
            }
            base = times(base, base);
            n >>= 1;
        }
    }

    /// Decides about an arriving packet (Floyd and Jacobson, figure 2).
    pub fn judge(&mut self, thresholds: &Thresholds, random: &mut SplitMix64) -> Verdict {
        if self.average < thresholds.min {
            self.count = -1;
            return Verdict::Pass;
        }
        let Some(probability) = thresholds.probability(self.average) else {
            self.count = 0;
            return Verdict::Forced;
        };
        self.count = self.count.saturating_add(1);
        self.draw(probability, 1, random)
    }

    /// [`judge`](Average::judge) as in ALTQ (docs/reference/altq.md 7.1). `packets` wait.
    pub fn judge_altq(&mut self, thresholds: &Thresholds, packets: u32, random: &mut SplitMix64) -> Verdict {
        self.count = self.count.saturating_add(1);
        if self.average < thresholds.min || packets <= 1 {
            self.above = false;
            return Verdict::Pass;
        }
        let Some(probability) = thresholds.probability(self.average) else {
            self.count = 0;
            return Verdict::Forced;
        };
        if !self.above {
            (self.count, self.above) = (1, true);
            return Verdict::Pass;
        }
        self.draw(probability, 2, random)
    }

    /// Counts an arriving packet about which another average decides.
    pub fn pass(&mut self, thresholds: &Thresholds) {
        self.count = if self.average < thresholds.min { -1 } else { self.count.saturating_add(1) };
    }

    /// Drops with a probability of p / (whole - count p). So the number of packets from one drop to
    /// the next is uniform from 1 to whole/p (Floyd and Jacobson, section 7).
    fn draw(&mut self, probability: u64, whole: u64, random: &mut SplitMix64) -> Verdict {
        let passed = u128::from(self.count.max(0) as u32) * u128::from(probability);
        let left = (u128::from(whole) << 64).saturating_sub(passed);
        let drawn = (u128::from(random.bits()) * (left >> 1)) >> 63;
        if drawn < u128::from(probability) {
            self.count = 0;
            return Verdict::Early;
        }
        Verdict::Pass
    }

    /// A packet was dropped by another average, or because the queue is full.
    pub fn dropped(&mut self) {
        self.count = 0;
    }
}

/// Drops and marks by cause: at random, or because the average was too long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub prob_drop: u64,
    pub prob_mark: u64,
    pub forced_drop: u64,
    pub forced_mark: u64,
}

impl Tally {
    /// Marks the packet if the verdict and `(ecn, harddrop)` ask for it, and counts. False: the
    /// packet is to be dropped.
    pub fn carry_out(
        &mut self,
        verdict: Verdict,
        (ecn, harddrop): (bool, bool),
        packet: &mut Packet,
        store: &mut Store<'_>,
    ) -> bool {
        let (marks, drops, may_mark) = match verdict {
            Verdict::Pass => return true,
            Verdict::Early => (&mut self.prob_mark, &mut self.prob_drop, ecn),
            Verdict::Forced => (&mut self.forced_mark, &mut self.forced_drop, ecn && !harddrop),
        };
        let marked = may_mark && store.mark(packet);
        *(if marked { marks } else { drops }) += 1;
        marked
    }

    pub fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        counter("prob_mark", self.prob_mark);
        counter("prob_drop", self.prob_drop);
        counter("forced_mark", self.forced_mark);
        counter("forced_drop", self.forced_drop);
    }
}

/// What the policy's words say.
#[derive(Clone)]
struct Words {
    limit: Limit,
    ewma: Ewma,
    thresholds: Thresholds,
    altq: bool,
    /// ALTQ's RED of an interface.
    interface: bool,
    ecn: bool,
    harddrop: bool,
    /// Of flowvalve: the greatest threshold, and the greatest probability in billionths.
    flowvalve: Option<(u32, u32)>,
}

impl Words {
    fn read(context: &Context, spec: &QueueSpec) -> Result<Words, SpecError> {
        let settings = &spec.settings;
        let (limit, unit) = match spec.limit {
            Limit::Packets(limit) => (limit, "packets"),
            Limit::Bytes(limit) => (limit, "bytes"),
        };
        let (altq, interface) = variant(settings);
        let length = |word: &'static str| match (settings.limit(word), spec.limit) {
            (None, _) => Ok(None),
            (Some(Limit::Packets(n)), Limit::Packets(_)) | (Some(Limit::Bytes(n)), Limit::Bytes(_))
                if n <= limit || altq =>
            {
                Ok(Some(n))
            }
            (Some(Limit::Packets(n)), Limit::Packets(_)) | (Some(Limit::Bytes(n)), Limit::Bytes(_)) => {
                let message = format!("the average never reaches {n}{unit}: the queue holds at most {limit}{unit}");
                Err(SpecError::word(word, message).help("raise limit, or lower this"))
            }
            (Some(_), _) => Err(SpecError::word(word, format!("the limit is in {unit}, so {word} must be as well"))
                .help(format!("write {word} {}{unit}", limit / 10))),
        };
        let (min, max) = match (length("min")?, length("max")?) {
            // A tenth and three tenths of the limit, or 5 and 15 where these are 0
            // (docs/reference/altq.md 2.10). ALTQ does not check them against each other or the
            // limit: with max below min, all are dropped from min on; with min above the limit,
            // none ever is.
            (min, max) if altq => {
                let tenths =
                    |n: u64, or: u32| Some((u64::from(limit) * n / 10) as u32).filter(|n| *n > 0).unwrap_or(or);
                (min.unwrap_or(tenths(1, 5)), max.unwrap_or(tenths(3, 15)))
            }
            (min, max) => {
                let min = min.unwrap_or((limit / 10).max(1));
                (min, max.unwrap_or(min.saturating_mul(3)))
            }
        };
        if min == 0 {
            return Err(SpecError::word("min", "min is at least 1").help(format!("write min 1{unit}")));
        }
        if min >= max && !altq {
            let message = format!("min {min}{unit} is not below max {max}{unit}");
            let word = if settings.get("max").is_some() { "max" } else { "min" };
            return Err(SpecError::word(word, message).help("max is best three times min"));
        }
        let probability = settings.fraction("probability").unwrap_or(ONE / 10);
        if probability == 0 {
            return Err(
                SpecError::word("probability", "with 0 nothing is dropped below max").help("write probability 0.1")
            );
        }
        let (ecn, harddrop, gentle) = (settings.flag("ecn"), settings.flag("harddrop"), settings.flag("gentle"));
        if gentle && altq {
            return Err(
                SpecError::word("gentle", "ALTQ's RED is not gentle").help("leave it out, or write variant paper")
            );
        }
        if harddrop && !ecn {
            return Err(SpecError::word("harddrop", "without ecn no packet is marked, so harddrop changes nothing")
                .help("write ecn, or leave it out"));
        }
        let thresholds = Thresholds::new(min, max, probability, gentle);
        let ewma = Ewma::read(context, settings)?;
        let flowvalve = settings.flag("flowvalve").then_some((max, probability));
        if flowvalve.is_some() && matches!(spec.limit, Limit::Bytes(_)) {
            let message = "flowvalve takes max as the packets that the link carries in a round trip";
            return Err(SpecError::word("flowvalve", message).help("write limit, min and max in packets"));
        }
        let harddrop = harddrop || altq;
        Ok(Words { limit: spec.limit, ewma, thresholds, altq, interface, ecn, harddrop, flowvalve })
    }
}

struct Red {
    words: Words,
    average: Average,
    idle_since: Option<Nanos>,
    random: SplitMix64,
    tally: Tally,
    flowvalve: Option<Box<Flowvalve>>,
}

impl Red {
    /// The length of a list, in the unit of the limit.
    fn length(&self, list: &List) -> u32 {
        if matches!(self.words.limit, Limit::Bytes(_)) { list.bytes() } else { list.packets() }
    }

    /// Notes that packets have left the list: idle time begins when it is empty.
    fn left(&mut self, now: Nanos, list: &List) {
        if list.is_empty() {
            self.idle_since = Some(now);
        }
    }
}

impl Aqm for Red {
    fn new(context: &Context, spec: &QueueSpec) -> Result<Red, SpecError> {
        let words = Words::read(context, spec)?;
        Ok(Red {
            flowvalve: words.flowvalve.map(|(max, probability)| Box::new(Flowvalve::new(max, probability))),
            words,
            average: Average::NEW,
            idle_since: None,
            random: SplitMix64::new(context.seed),
            tally: Tally::default(),
        })
    }

    #[inline(always)]
    fn admit(
        &mut self,
        now: Nanos,
        packet: &mut Packet,
        list: &mut List,
        store: &mut Store<'_>,
    ) -> Result<(), DropReason> {
        if self.flowvalve.as_mut().is_some_and(|valve| valve.arrival(now, packet.hosts)) {
            return Err(DropReason::Early);
        }
        let words = &self.words;
        let verdict = if words.altq {
            if let Some(since) = self.idle_since.take().filter(|_| words.interface) {
                self.average.idle_altq(&words.ewma, now.saturating_sub(since));
            }
            self.average.sample(&words.ewma, self.length(list));
            self.average.judge_altq(&words.thresholds, list.packets(), &mut self.random)
        } else {
            match self.idle_since {
                // If this packet is dropped, idle time goes on from the end of the last whole
                // packet time.
                Some(since) if list.is_empty() => {
                    self.idle_since = Some(now - self.average.idle(&words.ewma, now.saturating_sub(since)));
                }
                _ => self.average.sample(&words.ewma, self.length(list)),
            }
            self.average.judge(&words.thresholds, &mut self.random)
        };
        let reason = if !self.tally.carry_out(verdict, (words.ecn, words.harddrop), packet, store) {
            DropReason::Early
        } else if !list.fits(words.limit, packet.len) {
            self.average.dropped();
            DropReason::QueueFull
        } else {
            return Ok(());
        };
        if let Some(valve) = &mut self.flowvalve {
            valve.dropped(now, packet.hosts);
        }
        Err(reason)
    }

    fn dequeue(&mut self, now: Nanos, list: &mut List, store: &mut Store<'_>) -> Option<Taken> {
        let packet = store.pop(list);
        self.left(now, list);
        packet
    }

    fn change(&mut self, now: Nanos, new: Red, list: &mut List, store: &mut Store<'_>) {
        let same_unit = new.words.limit.same_unit(self.words.limit);
        self.words = new.words;
        match (&mut self.flowvalve, new.flowvalve) {
            (Some(valve), Some(new)) => valve.change(&new),
            (valve, new) => *valve = new,
        }
        if store.cut(list, self.words.limit) {
            self.left(now, list);
        }
        if !same_unit {
            self.average = Average::of(self.length(list));
        }
    }

    fn set_rate(&mut self, rate: Rate) {
        self.words.ewma.set_rate(rate);
    }

    fn seed(&mut self, seed: u64) {
        self.random = SplitMix64::new(seed);
    }

    fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        counter("average_thousandths", self.average.thousandths());
        self.tally.report_counters(counter);
        if let Some(valve) = &self.flowvalve {
            valve.report_counters(counter);
        }
    }

    fn keeps_flows(&self) -> bool {
        self.flowvalve.is_some()
    }

    fn memory(&self) -> usize {
        self.flowvalve.as_ref().map_or(0, |_| size_of::<Flowvalve>())
    }
}
