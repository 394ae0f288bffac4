//! BLUE (Feng, Kandlur, Saha, Shin 1999): a queue that drops at random. It adjusts the drop
//! probability by overflows and idle time.
//!
//! The queue length is not measured. An overflow shows that too few packets are dropped: the
//! probability is raised, at most once per `holdtime`. An empty queue shows that too many are: the
//! probability is lowered. So it settles where the link is just busy.
//!
//! Numbers and rules are ALTQ's (docs/reference/altq.md 7.4), with one difference. When the queue
//! is full, the arriving packet is dropped, as in the paper; ALTQ drops one from anywhere in the
//! queue.

use super::aqm::{self, Aqm, ECN};
use super::{Context, Entry, List, Store, Taken};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::random::SplitMix64;
use crate::settings::{Kind, Limit, ONE, Settings, Word};
use crate::spec::{QueueSpec, SpecError};
use crate::units::{Nanos, SECOND};

/// The registry's entry. In units of 1/4000, as ALTQ counts, the probability rises by 500 and falls
/// by 1.
pub const ENTRY: Entry = Entry {
    words: &[
        Word { name: "increment", kind: Kind::Fraction, help: "step by which the probability rises", default: "0.125" },
        Word {
            name: "decrement",
            kind: Kind::Fraction,
            help: "step by which the probability falls",
            default: "0.00025",
        },
        Word {
            name: "holdtime",
            kind: Kind::Time,
            help: "least time between two rises, and least idle time for a fall",
            default: "1ms",
        },
        ECN,
    ],
    in_order: true,
    ..Entry::new(
        "blue",
        "drops some at random, more after overflows, fewer after idle time (BLUE)",
        Limit::Packets(60),
        aqm::build::<Blue>,
    )
};

/// What the policy's words say.
#[derive(Clone, Copy)]
struct Parameters {
    /// Steps of the probability up and down, in billionths.
    increment: u32,
    decrement: u32,
    holdtime: Nanos,
    ecn: bool,
}

impl Parameters {
    fn read(settings: &Settings) -> Result<Parameters, SpecError> {
        let increment = settings.fraction("increment").unwrap_or(ONE / 8);
        let decrement = settings.fraction("decrement").unwrap_or(ONE / 4000);
        let holdtime = settings.time("holdtime").unwrap_or(1_000_000);
        for (word, step, example) in [("increment", increment, "0.125"), ("decrement", decrement, "0.00025")] {
            if step == 0 {
                return Err(SpecError::word(word, "with a step of 0 the probability never changes")
                    .help(format!("write {word} {example}")));
            }
        }
        if holdtime > SECOND {
            return Err(SpecError::word("holdtime", "holdtime is at most a second").help("write holdtime 1ms"));
        }
        Ok(Parameters { increment, decrement, holdtime, ecn: settings.flag("ecn") })
    }
}

struct Blue {
    parameters: Parameters,
    limit: Limit,
    /// In billionths.
    probability: u32,
    /// When the probability was last raised.
    raised: Option<Nanos>,
    idle_since: Option<Nanos>,
    random: SplitMix64,
    dropped: u64,
    marked: u64,
}

impl Blue {
    /// Lowers the probability when a packet arrives at a queue that has been empty for `time`.
    fn was_idle(&mut self, time: Nanos) {
        if time > SECOND {
            self.probability = self.probability.min(self.parameters.decrement);
        } else if time > self.parameters.holdtime {
            self.probability = self.probability.saturating_sub(self.parameters.decrement);
        }
    }

    /// Raises the probability when a packet does not fit.
    fn overflow(&mut self, now: Nanos) {
        if self.raised.is_none_or(|at| now.saturating_sub(at) > self.parameters.holdtime) {
            self.probability = self.probability.saturating_add(self.parameters.increment).min(ONE);
            self.raised = Some(now);
        }
    }
}

impl Aqm for Blue {
    fn new(context: &Context, spec: &QueueSpec) -> Result<Blue, SpecError> {
        Ok(Blue {
            parameters: Parameters::read(&spec.settings)?,
            limit: spec.limit,
            probability: 0,
            raised: None,
            idle_since: None,
            random: SplitMix64::new(context.seed),
            dropped: 0,
            marked: 0,
        })
    }

    #[inline(always)]
    fn admit(&mut self, now: Nanos, packet: &mut Packet, list: &List, store: &mut Store<'_>) -> Result<(), DropReason> {
        if let Some(since) = self.idle_since.take() {
            self.was_idle(now.saturating_sub(since));
        }
        if !list.fits(self.limit, packet.len) {
            self.overflow(now);
            return Err(DropReason::QueueFull);
        }
        if list.packets() > 1 && self.random.chance(self.probability.into(), ONE.into()) {
            if !(self.parameters.ecn && store.mark(packet)) {
                self.dropped += 1;
                return Err(DropReason::Early);
            }
            self.marked += 1;
        }
        Ok(())
    }

    fn dequeue(&mut self, now: Nanos, list: &mut List, store: &mut Store<'_>) -> Option<Taken> {
        let packet = store.pop(list);
        if list.is_empty() {
            self.idle_since = Some(now);
        }
        packet
    }

    fn change(&mut self, now: Nanos, new: Blue, list: &mut List, store: &mut Store<'_>) {
        (self.parameters, self.limit) = (new.parameters, new.limit);
        if store.cut(list, self.limit) && list.is_empty() {
            self.idle_since = Some(now);
        }
    }

    fn seed(&mut self, seed: u64) {
        self.random = SplitMix64::new(seed);
    }

    fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        counter("probability_billionths", self.probability.into());
        counter("prob_drop", self.dropped);
        counter("prob_mark", self.marked);
    }
}
