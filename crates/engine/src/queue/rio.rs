//! RIO, "RED with In and Out" (Clark and Fang 1998): a RED that drops packets out of their traffic
//! profile before those within it.
//!
//! The drop precedence in the DSCP (RFC 2597, 6) has three levels, each with a RED of its own. A
//! level's average counts the packets of its own and of lower precedence. So a packet of high
//! precedence, which is to be dropped first, is judged by the whole queue, and one of low
//! precedence by the packets of low precedence alone: these are dropped only when they alone make a
//! queue.
//!
//! Defaults and rules are ALTQ's (docs/reference/altq.md 7.2). `variant altq` has ALTQ's formula of
//! RED (see `red.rs`), `variant paper` that of RED's paper, `variant altq-interface` that of ALTQ
//! and the decay of its interfaces. ALTQ's rio never marks; here `ecn` asks for marks.

use super::aqm::{self, Aqm, ECN};
use super::red::{Average, Ewma, PACKETSIZE, Tally, Thresholds, VARIANTS, Verdict, WEIGHT, variant};
use super::{Context, Entry, List, Store, Taken};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::random::SplitMix64;
use crate::settings::{Kind, Limit, ONE, Word};
use crate::spec::{QueueSpec, SpecError};
use crate::units::{Nanos, Rate};

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    words: &[
        threshold("low-min", "35/60 of the limit"),
        threshold("low-max", "45/60 of the limit"),
        part("low-probability"),
        threshold("medium-min", "20/60 of the limit"),
        threshold("medium-max", "30/60 of the limit"),
        part("medium-probability"),
        threshold("high-min", "5/60 of the limit"),
        threshold("high-max", "15/60 of the limit"),
        part("high-probability"),
        WEIGHT,
        PACKETSIZE,
        ECN,
        Word {
            name: "variant",
            kind: Kind::Choice(VARIANTS),
            help: "the formula of RED's paper, or ALTQ's for a class or for an interface",
            default: "paper",
        },
        Word {
            name: "cleardscp",
            kind: Kind::Flag,
            help: "packets leave with DSCP 0, so that those behind do not see the precedence",
            default: "off",
        },
    ],
    in_order: true,
    ..Entry::new(
        "rio",
        "a RED for each drop precedence: drops packets out of profile first (RIO)",
        Limit::Packets(60),
        aqm::build::<Rio>,
    )
};

const fn threshold(name: &'static str, default: &'static str) -> Word {
    Word {
        name,
        kind: Kind::Limit,
        help: "average length from which on some (min) or all (max) packets of this precedence are dropped",
        default,
    }
}

const fn part(name: &'static str) -> Word {
    Word { name, kind: Kind::Fraction, help: "drop probability just below max", default: "0.1" }
}

/// Levels of drop precedence.
const LEVELS: usize = 3;

/// The words of each level, and ALTQ's thresholds in sixtieths of the limit.
const NAMES: [(&str, &str, &str, [u64; 2]); LEVELS] = [
    ("low-min", "low-max", "low-probability", [35, 45]),
    ("medium-min", "medium-max", "medium-probability", [20, 30]),
    ("high-min", "high-max", "high-probability", [5, 15]),
];

/// The drop precedence of a DSCP: AFx1 is low, AFx2 medium, AFx3 high. Of any other DSCP the same
/// two bits decide; 00 is low (docs/reference/altq.md 7.2).
fn level(dscp: u8) -> usize {
    usize::from((dscp >> 1) & 3).saturating_sub(1)
}

#[derive(Clone)]
struct Words {
    limit: Limit,
    ewma: Ewma,
    thresholds: [Thresholds; LEVELS],
    altq: bool,
    /// ALTQ's RIO of an interface.
    interface: bool,
    ecn: bool,
    cleardscp: bool,
}

impl Words {
    fn read(context: &Context, spec: &QueueSpec) -> Result<Words, SpecError> {
        let settings = &spec.settings;
        let (limit, unit) = match spec.limit {
            Limit::Packets(limit) => (limit, "packets"),
            Limit::Bytes(limit) => (limit, "bytes"),
        };
        let length = |word: &'static str| match (settings.limit(word), spec.limit) {
            (None, _) => Ok(None),
            (Some(Limit::Packets(n)), Limit::Packets(_)) | (Some(Limit::Bytes(n)), Limit::Bytes(_)) => Ok(Some(n)),
            (Some(_), _) => Err(SpecError::word(word, format!("the limit is in {unit}, so {word} must be as well"))
                .help(format!("write {word} {}{unit}", limit / 10))),
        };
        let (altq, interface) = variant(settings);
        let mut thresholds = [Thresholds::new(1, 2, 1, false); LEVELS];
        for (made, (min_word, max_word, part_word, sixtieths)) in thresholds.iter_mut().zip(NAMES) {
            let default = sixtieths.map(|n| (u64::from(limit) * n / 60) as u32);
            let min = length(min_word)?.unwrap_or(default[0].max(1));
            let max = length(max_word)?.unwrap_or(default[1].max(min.saturating_add(1)));
            if min == 0 {
                let message = format!("{min_word} is at least 1");
                return Err(SpecError::word(min_word, message).help(format!("write {min_word} 1{unit}")));
            }
            if min >= max {
                let message = format!("{min_word} {min}{unit} is not below {max_word} {max}{unit}");
                let word = if settings.get(max_word).is_some() { max_word } else { min_word };
                return Err(SpecError::word(word, message).help("max is best three times min"));
            }
            if max > limit && settings.get(max_word).is_some() && !altq {
                let message = format!("the average never reaches {max}{unit}: the queue holds at most {limit}{unit}");
                return Err(SpecError::word(max_word, message).help("raise limit, or lower this"));
            }
            let probability = settings.fraction(part_word).unwrap_or(ONE / 10);
            if probability == 0 {
                let message = "with 0 nothing is dropped below max";
                return Err(SpecError::word(part_word, message).help(format!("write {part_word} 0.1")));
            }
            *made = Thresholds::new(min, max, probability, false);
        }
        Ok(Words {
            limit: spec.limit,
            ewma: Ewma::read(context, settings)?,
            thresholds,
            altq,
            interface,
            ecn: settings.flag("ecn"),
            cleardscp: settings.flag("cleardscp"),
        })
    }
}

/// The state of a level. It counts the packets of this precedence and of those below it.
#[derive(Clone, Copy)]
struct Level {
    average: Average,
    packets: u32,
    bytes: u32,
    idle_since: Option<Nanos>,
    tally: Tally,
}

struct Rio {
    words: Words,
    levels: [Level; LEVELS],
    random: SplitMix64,
}

impl Rio {
    /// Updates the averages of all levels that count a packet of level `at`, and decides about the
    /// packet by the average of its own level.
    fn judge(&mut self, now: Nanos, at: usize) -> Verdict {
        let words = &self.words;
        let in_bytes = matches!(words.limit, Limit::Bytes(_));
        let mut verdict = Verdict::Pass;
        for (nth, level) in self.levels.iter_mut().enumerate().skip(at) {
            match level.idle_since {
                _ if words.interface => {
                    if let Some(since) = level.idle_since.take() {
                        level.average.idle_altq(&words.ewma, now.saturating_sub(since));
                    }
                    level.average.sample(&words.ewma, if in_bytes { level.bytes } else { level.packets });
                }
                Some(since) if level.packets == 0 => {
                    level.idle_since = Some(now - level.average.idle(&words.ewma, now.saturating_sub(since)));
                }
                _ => level.average.sample(&words.ewma, if in_bytes { level.bytes } else { level.packets }),
            }
            let thresholds = &words.thresholds[nth];
            if nth > at {
                level.average.pass(thresholds);
            } else if words.altq {
                verdict = level.average.judge_altq(thresholds, level.packets, &mut self.random);
            } else {
                verdict = level.average.judge(thresholds, &mut self.random);
            }
        }
        verdict
    }

    /// Notes that a packet of level `at` was dropped or marked: all levels that count it count
    /// anew the packets since the last drop.
    fn hit(&mut self, at: usize) {
        self.levels.iter_mut().skip(at).for_each(|level| level.average.dropped());
    }

    /// Notes that a packet has left the queue. With `now`, idle time begins for levels that are
    /// empty then.
    fn left(&mut self, now: Option<Nanos>, packet: &Taken, dscp: u8) {
        for level in self.levels.iter_mut().skip(level(dscp)) {
            level.packets = level.packets.saturating_sub(1);
            level.bytes = level.bytes.saturating_sub(packet.len);
            if level.packets == 0 && now.is_some() {
                level.idle_since = now;
            }
        }
    }
}

impl Aqm for Rio {
    fn new(context: &Context, spec: &QueueSpec) -> Result<Rio, SpecError> {
        let level = Level { average: Average::NEW, packets: 0, bytes: 0, idle_since: None, tally: Tally::default() };
        Ok(Rio { words: Words::read(context, spec)?, levels: [level; LEVELS], random: SplitMix64::new(context.seed) })
    }

    #[inline(always)]
    fn admit(
        &mut self,
        now: Nanos,
        packet: &mut Packet,
        list: &mut List,
        store: &mut Store<'_>,
    ) -> Result<(), DropReason> {
        let at = level(packet.dscp);
        let verdict = self.judge(now, at);
        if verdict != Verdict::Pass {
            self.hit(at);
        }
        // Above max ALTQ drops and never marks, as in its RED.
        let harddrop = self.words.altq;
        if !self.levels[at].tally.carry_out(verdict, (self.words.ecn, harddrop), packet, store) {
            return Err(DropReason::Early);
        }
        if !list.fits(self.words.limit, packet.len) {
            self.hit(at);
            return Err(DropReason::QueueFull);
        }
        for level in self.levels.iter_mut().skip(at) {
            level.packets += 1;
            level.bytes += packet.len;
        }
        Ok(())
    }

    fn dequeue(&mut self, now: Nanos, list: &mut List, store: &mut Store<'_>) -> Option<Taken> {
        let packet = store.pop(list)?;
        self.left(Some(now), &packet, store.dscp_of(&packet));
        if self.words.cleardscp {
            store.set_dscp(&packet, 0);
        }
        Some(packet)
    }

    fn take(&mut self, list: &mut List, store: &mut Store<'_>) -> Option<Taken> {
        let packet = store.pop(list)?;
        self.left(None, &packet, store.dscp_of(&packet));
        Some(packet)
    }

    fn change(&mut self, now: Nanos, new: Rio, list: &mut List, store: &mut Store<'_>) {
        let limit = new.words.limit;
        let same_unit = limit.same_unit(self.words.limit);
        self.words = new.words;
        // Packets beyond a lower limit are dropped at the tail. All levels are counted anew.
        let (mut kept, mut full) = (List::NEW, false);
        for level in &mut self.levels {
            (level.packets, level.bytes) = (0, 0);
        }
        while let Some(packet) = store.pop(list) {
            full |= !kept.fits(limit, packet.len);
            if full {
                store.lose(packet, DropReason::LimitLowered);
                continue;
            }
            for level in self.levels.iter_mut().skip(level(store.dscp_of(&packet))) {
                level.packets += 1;
                level.bytes += packet.len;
            }
            store.put_back(&mut kept, packet);
        }
        *list = kept;
        for level in &mut self.levels {
            if level.packets == 0 {
                level.idle_since.get_or_insert(now);
            }
            if !same_unit {
                let length = if matches!(limit, Limit::Bytes(_)) { level.bytes } else { level.packets };
                level.average = Average::of(length);
            }
        }
    }

    fn set_rate(&mut self, rate: Rate) {
        self.words.ewma.set_rate(rate);
    }

    fn seed(&mut self, seed: u64) {
        self.random = SplitMix64::new(seed);
    }

    fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        const COUNTERS: [[&str; 5]; LEVELS] = [
            ["low_average_thousandths", "low_prob_drop", "low_prob_mark", "low_forced_drop", "low_forced_mark"],
            [
                "medium_average_thousandths",
                "medium_prob_drop",
                "medium_prob_mark",
                "medium_forced_drop",
                "medium_forced_mark",
            ],
            ["high_average_thousandths", "high_prob_drop", "high_prob_mark", "high_forced_drop", "high_forced_mark"],
        ];
        for (level, names) in self.levels.iter().zip(COUNTERS) {
            let Tally { prob_drop, prob_mark, forced_drop, forced_mark } = level.tally;
            let figures = [level.average.thousandths(), prob_drop, prob_mark, forced_drop, forced_mark];
            names.into_iter().zip(figures).for_each(|(name, figure)| counter(name, figure));
        }
    }
}
