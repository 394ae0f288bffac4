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
//!
//! `variant altq` is ALTQ's Blue to the letter: the probability is a whole number of 1/`maxpmark`
//! ([`altq`]), and a full queue takes the arriving packet and drops one at a random place. ALTQ
//! noticed that the queue was idle when the driver asked for a packet in vain; here that is when
//! the link, at its rate, is done with the last packet.

mod altq;

use self::altq::Pmark;
use super::aqm::{self, Aqm, ECN};
use super::{Context, Entry, List, Store, Taken};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::random::SplitMix64;
use crate::settings::{Kind, Limit, ONE, Settings, Word};
use crate::spec::{QueueSpec, SpecError};
use crate::units::{Nanos, Rate, SECOND};

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
        Word {
            name: "variant",
            kind: Kind::Choice(&["paper", "altq"]),
            help: "drops the arriving packet when it is full, or is ALTQ's to the letter",
            default: "paper",
        },
        Word {
            name: "maxpmark",
            kind: Kind::Int { min: 8, max: 1_000_000_000 },
            help: "variant altq: steps from 0 to a probability of 1; it rises by an eighth of them, and falls by one",
            default: "4000",
        },
    ],
    in_order: true,
    ..Entry::new(
        "blue",
        "drops some at random, more after overflows, fewer after idle time (BLUE)",
        Limit::Packets(60),
        aqm::build::<Blue>,
    )
};

/// The most packets under `variant altq`: the one to drop is searched for from the head.
const MOST_ALTQ: u32 = 10_000;

/// How the probability is kept, with what the policy's words say about it.
enum Rule {
    Paper(Paper),
    Altq(Pmark),
}

impl Rule {
    fn read(context: &Context, spec: &QueueSpec) -> Result<Rule, SpecError> {
        let settings = &spec.settings;
        let holdtime = settings.time("holdtime").unwrap_or(1_000_000);
        if holdtime > SECOND {
            return Err(SpecError::word("holdtime", "holdtime is at most a second").help("write holdtime 1ms"));
        }
        if settings.choice("variant") != Some("altq") {
            if settings.int("maxpmark").is_some() {
                let message = "maxpmark counts the steps of `variant altq`; this variant has increment and decrement";
                return Err(SpecError::word("maxpmark", message).help("write variant altq, or leave it out"));
            }
            return Ok(Rule::Paper(Paper::read(settings, holdtime)?));
        }
        for word in ["increment", "decrement"] {
            if settings.get(word).is_some() {
                let message = format!("{word} of ALTQ's Blue follows from maxpmark: an eighth of it up, one down");
                return Err(SpecError::word(word, message).help("leave it out, or write variant paper"));
            }
        }
        match spec.limit {
            Limit::Packets(..=MOST_ALTQ) => {}
            Limit::Packets(_) => {
                let message = format!("ALTQ's Blue searches its queue for the packet to drop; it holds {MOST_ALTQ}");
                return Err(SpecError::word("variant", message).help("lower limit, or write variant paper"));
            }
            Limit::Bytes(_) => {
                let message = "ALTQ's Blue has a limit in packets";
                return Err(SpecError::word("variant", message).help("write limit 60packets, or variant paper"));
            }
        }
        let most = settings.int("maxpmark").unwrap_or(4000).clamp(8, 1_000_000_000) as u32;
        Ok(Rule::Altq(Pmark::new(altq::Words { most, holdtime, link: context.link_rate })))
    }

    /// In billionths.
    fn probability(&self) -> u64 {
        match self {
            Rule::Paper(paper) => paper.probability.into(),
            Rule::Altq(pmark) => pmark.billionths(),
        }
    }
}

/// The probability as the paper has it, with ALTQ's numbers.
struct Paper {
    /// Steps of the probability up and down, in billionths.
    increment: u32,
    decrement: u32,
    holdtime: Nanos,
    /// In billionths.
    probability: u32,
    /// When the probability was last raised.
    raised: Option<Nanos>,
    idle_since: Option<Nanos>,
}

impl Paper {
    fn read(settings: &Settings, holdtime: Nanos) -> Result<Paper, SpecError> {
        let increment = settings.fraction("increment").unwrap_or(ONE / 8);
        let decrement = settings.fraction("decrement").unwrap_or(ONE / 4000);
        for (word, step, example) in [("increment", increment, "0.125"), ("decrement", decrement, "0.00025")] {
            if step == 0 {
                return Err(SpecError::word(word, "with a step of 0 the probability never changes")
                    .help(format!("write {word} {example}")));
            }
        }
        Ok(Paper { increment, decrement, holdtime, probability: 0, raised: None, idle_since: None })
    }

    /// A packet arrives. The probability falls if the queue has been empty.
    #[inline]
    fn arrival(&mut self, now: Nanos) {
        let Some(since) = self.idle_since.take() else { return };
        let time = now.saturating_sub(since);
        if time > SECOND {
            self.probability = self.probability.min(self.decrement);
        } else if time > self.holdtime {
            self.probability = self.probability.saturating_sub(self.decrement);
        }
    }

    /// Raises the probability when a packet does not fit.
    fn overflow(&mut self, now: Nanos) {
        if self.raised.is_none_or(|at| now.saturating_sub(at) > self.holdtime) {
            self.probability = self.probability.saturating_add(self.increment).min(ONE);
            self.raised = Some(now);
        }
    }
}

struct Blue {
    rule: Rule,
    limit: Limit,
    ecn: bool,
    random: SplitMix64,
    dropped: u64,
    marked: u64,
}

impl Blue {
    /// Marks a packet that was hit. False: it is dropped.
    fn mark(&mut self, packet: &mut Packet, store: &mut Store<'_>) -> bool {
        let marked = self.ecn && store.mark(packet);
        *(if marked { &mut self.marked } else { &mut self.dropped }) += 1;
        marked
    }

    /// [`admit`](Aqm::admit) of `variant altq`.
    fn admit_altq(
        &mut self,
        now: Nanos,
        packet: &mut Packet,
        list: &mut List,
        store: &mut Store<'_>,
    ) -> Result<(), DropReason> {
        let Rule::Altq(pmark) = &mut self.rule else { return Ok(()) };
        pmark.arrival(now);
        if pmark.hits(&mut self.random) && list.packets() > 1 && !self.mark(packet, store) {
            return Err(DropReason::Early);
        }
        if list.fits(self.limit, packet.len) {
            return Ok(());
        }
        if let Rule::Altq(pmark) = &mut self.rule {
            pmark.overflow(now);
        }
        if list.bytes().checked_add(packet.len).is_none() {
            return Err(DropReason::QueueFull);
        }
        // One of those that wait and the arriving one, which would be the last.
        let victim = (self.random.bits() % (u64::from(list.packets()) + 1)) as u32;
        match store.pop_at(list, victim) {
            Some(taken) => store.lose(taken, DropReason::QueueFull),
            None => return Err(DropReason::QueueFull),
        }
        Ok(())
    }

    /// Notes that the queue is empty, from which a packet of `wire` bytes was the last one.
    fn emptied(&mut self, now: Nanos, wire: u32) {
        match &mut self.rule {
            Rule::Paper(paper) => paper.idle_since = Some(now),
            Rule::Altq(pmark) => pmark.emptied(now, wire),
        }
    }
}

impl Aqm for Blue {
    fn new(context: &Context, spec: &QueueSpec) -> Result<Blue, SpecError> {
        Ok(Blue {
            rule: Rule::read(context, spec)?,
            limit: spec.limit,
            ecn: spec.settings.flag("ecn"),
            random: SplitMix64::new(context.seed),
            dropped: 0,
            marked: 0,
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
        let Rule::Paper(paper) = &mut self.rule else { return self.admit_altq(now, packet, list, store) };
        paper.arrival(now);
        if !list.fits(self.limit, packet.len) {
            paper.overflow(now);
            return Err(DropReason::QueueFull);
        }
        let hit = list.packets() > 1 && self.random.chance(paper.probability.into(), ONE.into());
        if hit && !self.mark(packet, store) {
            return Err(DropReason::Early);
        }
        Ok(())
    }

    fn dequeue(&mut self, now: Nanos, list: &mut List, store: &mut Store<'_>) -> Option<Taken> {
        let packet = store.pop(list)?;
        if list.is_empty() {
            self.emptied(now, packet.wire);
        }
        Some(packet)
    }

    fn change(&mut self, now: Nanos, new: Blue, list: &mut List, store: &mut Store<'_>) {
        match (&mut self.rule, new.rule) {
            (Rule::Paper(old), Rule::Paper(new)) => {
                let Paper { probability, raised, idle_since, .. } = *old;
                *old = Paper { probability, raised, idle_since, ..new };
            }
            (Rule::Altq(old), Rule::Altq(new)) => old.change(new.words()),
            // The other variant begins anew.
            (rule, new) => *rule = new,
        }
        (self.limit, self.ecn) = (new.limit, new.ecn);
        if store.cut(list, self.limit) && list.is_empty() {
            self.emptied(now, 0);
        }
    }

    fn set_link_rate(&mut self, rate: Rate) {
        if let Rule::Altq(pmark) = &mut self.rule {
            pmark.set_link(rate);
        }
    }

    fn seed(&mut self, seed: u64) {
        self.random = SplitMix64::new(seed);
    }

    fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        counter("probability_billionths", self.rule.probability());
        if let Rule::Altq(pmark) = &self.rule {
            counter("pmark", pmark.value().into());
        }
        counter("prob_drop", self.dropped);
        counter("prob_mark", self.marked);
    }
}
