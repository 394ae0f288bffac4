//! JoBS, joint buffer management and scheduling (Liebeherr and Christin, IWQoS 2001; Christin,
//! Liebeherr and Abdelzaher, INFOCOM 2002), after KAME's implementation (docs/reference/altq.md
//! 8.3).
//!
//! A class may have bounds: on the delay of its packets, on the part of them that is lost, and a
//! least rate; and ratios: how many times as long as its own packets those of the next class wait,
//! and how many times as many of them are lost. With every arrival the rates of all classes that
//! have packets are worked out anew ([`rates`]): as bounds need it, then so that ratios of delays
//! come true by feedback. Where no rates keep all bounds, packets that would come too late are
//! dropped, as long as bounds on losses allow it. The class that is furthest behind its rate sends.
//!
//! Nothing is admitted or refused beforehand: bounds that cannot all hold are given up in this
//! order: ratios, delays and rates, losses.
//!
//! A packet costs a few steps for every class, of which there are sixteen at most.

mod rates;

use self::rates::{Solver, Victim, Wants};
use super::{Admit, Context, Entry, Order, OwnPackets, ROOT_SLOT, Scheduler, Slot};
use crate::account::DropReason;
use crate::settings::{Kind, Limit, ONE, Settings, Word};
use crate::spec::{QueueSpec, SpecError};
use crate::units::{Nanos, Rate, SECOND};

/// The most classes, as in ALTQ.
const CLASSES: usize = 16;
/// The packets of all classes together, by default.
const LIMIT: u64 = 200;
/// A class's own queue has room for one packet more than all have: JoBS drops first.
const MOST: u64 = 10_000;
/// The priority of a class that states none, and of packets of the class that holds the scheduler:
/// the last one.
const LAST: u64 = 15;

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    words: &[
        Word {
            name: "limit",
            kind: Kind::Int { min: 1, max: MOST },
            help: "packets of all classes together; with separate of each",
            default: "200",
        },
        Word {
            name: "separate",
            kind: Kind::Flag,
            help: "the limit is each class's own, and no class loses packets for another",
            default: "off",
        },
    ],
    class_words: &[
        Word {
            name: "priority",
            kind: Kind::Int { min: 0, max: LAST },
            help: "the order of the classes, 0 first: by it ratios count, and bounds are given up",
            default: "15",
        },
        Word { name: "adc", kind: Kind::Time, help: "bound on the delay of its packets", default: "none" },
        Word {
            name: "alc",
            kind: Kind::Fraction,
            help: "bound on the part of its bytes that are dropped",
            default: "none",
        },
        Word { name: "arc", kind: Kind::Rate, help: "least rate while it has packets", default: "none" },
        Word {
            name: "rdc",
            kind: Kind::Int { min: 1, max: 1000 },
            help: "how many times as long as its packets those of the next class with rdc are to wait",
            default: "none",
        },
        Word {
            name: "rlc",
            kind: Kind::Int { min: 1, max: 1000 },
            help: "how many times as many packets the next class with rlc is to lose",
            default: "none",
        },
    ],
    side_by_side: true,
    order: Order::Said("the class that is furthest behind its rate"),
    queue: |scheduler, _| {
        let limit = scheduler.int("limit").unwrap_or(LIMIT).min(MOST) as u32;
        QueueSpec::plain(Limit::Packets(limit + 1))
    },
    promises: |place| super::promise::none(place, "JoBS gives bounds up where they cannot all hold"),
    own_packets: OwnPackets::Plain,
    ..Entry::new("jobs", "delays and losses by bounds and by ratios, as far as they can all hold (JoBS)", build)
};

fn build(context: &Context, settings: &Settings) -> Result<Box<dyn Scheduler>, SpecError> {
    let mut solver = Solver::new(bytes(context.rate));
    solver.set(ROOT_SLOT, Wants::default(), LAST as u8);
    let mut jobs = Jobs { solver, limit: 0, separate: false, asked: None, overflow: false, awaited: None };
    jobs.read(settings);
    Ok(Box::new(jobs))
}

/// A rate in bytes a second.
fn bytes(rate: Rate) -> f64 {
    rate.as_bit_s() as f64 / 8.0
}

struct Jobs {
    solver: Solver,
    limit: usize,
    separate: bool,
    /// A packet that was let in, and not queued yet: its class and length.
    asked: Option<(Slot, u32)>,
    /// For it a packet is to be dropped.
    overflow: bool,
    /// The engine is about to drop the last packet of this class, as it was told.
    awaited: Option<Victim>,
}

impl Jobs {
    /// Its own words.
    fn read(&mut self, settings: &Settings) {
        self.limit = settings.int("limit").unwrap_or(LIMIT).clamp(1, MOST) as usize;
        self.separate = settings.flag("separate");
    }

    fn set(&mut self, slot: Slot, settings: &Settings) -> Result<(), SpecError> {
        let part = |billionths: u32| f64::from(billionths) / f64::from(ONE);
        let wants = Wants {
            adc: settings.time("adc").map(|time| time as f64 / SECOND as f64),
            alc: settings.fraction("alc").map(part),
            arc: settings.rate("arc").map(bytes),
            rdc: settings.int("rdc").map(|ratio| ratio as f64),
            rlc: settings.int("rlc").map(|ratio| ratio as f64),
        };
        let priority = settings.int("priority").unwrap_or(LAST).min(LAST) as u8;
        if self.solver.set(slot, wants, priority) {
            return Ok(());
        }
        let word = if settings.int("rdc").is_some() { "rdc" } else { "rlc" };
        Err(SpecError::word(word, "the ratios of all classes together are too large").help("make some of them smaller"))
    }

    /// A packet that was let in has not been queued: another scheduler or its queue dropped it.
    fn forget_asked(&mut self) {
        if let Some((slot, len)) = self.asked.take() {
            self.solver.forget(slot, f64::from(len));
            self.overflow = false;
        }
    }

    /// True if the engine reports a drop that it was told to make.
    fn was_told(&mut self, slot: Slot) -> bool {
        self.awaited.take_if(|awaited| awaited.slot == slot).is_some()
    }

    /// The class has no packets any more, whatever was counted.
    fn empty(&mut self, slot: Slot) {
        while self.solver.lost(slot, false) {}
        self.solver.victims.retain(|victim| victim.slot != slot);
        self.solver.classes[slot as usize].blocked = false;
    }
}

impl Scheduler for Jobs {
    fn add(&mut self, _: Nanos, slot: Slot, _: Slot, settings: &Settings) -> Result<(), SpecError> {
        // Packets of the class that holds the scheduler have a place besides.
        if self.solver.len() > CLASSES {
            return Err(SpecError::new(format!("jobs has at most {CLASSES} classes, as in ALTQ"))
                .help("put some of them into a class with a scheduler of its own"));
        }
        self.set(slot, settings)
    }

    fn change(&mut self, _: Nanos, slot: Slot, _: Slot, settings: &Settings) -> Result<(), SpecError> {
        if slot == ROOT_SLOT {
            self.read(settings);
            return Ok(());
        }
        self.set(slot, settings)
    }

    fn guesses(&mut self, slot: Slot, guesses: bool) {
        if let Some(class) = self.solver.classes.get_mut(slot as usize) {
            class.kept = guesses;
        }
    }

    fn remove(&mut self, _: Nanos, slot: Slot) {
        self.forget_asked();
        self.empty(slot);
        self.solver.remove(slot);
    }

    fn set_rate(&mut self, now: Nanos, rate: Rate, _: Rate) {
        self.solver.set_link(now, bytes(rate));
    }

    fn wants_arrivals(&self) -> bool {
        true
    }

    fn admit(&mut self, now: Nanos, slot: Slot, len: u32) -> Admit {
        self.forget_asked();
        let bytes = f64::from(len);
        self.solver.arrive(now, slot, bytes);
        let own = self.solver.classes[slot as usize].waiting.len();
        let refuses = if self.separate {
            own >= self.limit
        } else if self.solver.waiting >= self.limit {
            self.overflow = true;
            self.solver.loses_its_own(slot, bytes) || !self.solver.has_victims(slot)
        } else {
            false
        };
        if refuses {
            self.overflow = false;
            self.solver.refuse(slot, bytes);
            self.solver.solve(now);
            return Admit::Drop(DropReason::QueueFull);
        }
        self.asked = Some((slot, len));
        Admit::Take
    }

    fn queued(&mut self, now: Nanos, slot: Slot, len: u32, _: bool) {
        if self.asked != Some((slot, len)) {
            // It comes from a class that was removed.
            self.forget_asked();
            self.solver.arrive(now, slot, f64::from(len));
        }
        self.asked = None;
        self.solver.push(now, slot, len);
        if std::mem::take(&mut self.overflow) {
            self.solver.drop_one();
        }
        self.solver.solve(now);
    }

    fn victim(&mut self) -> Option<(Slot, DropReason)> {
        // A queue that decides by itself what it drops has dropped nothing.
        if let Some(spared) = self.awaited.take() {
            self.solver.spare(spared);
        }
        self.awaited = self.solver.victims.pop_front();
        self.awaited.map(|victim| (victim.slot, victim.reason))
    }

    fn head_lost(&mut self, _: Nanos, slot: Slot, next: Option<u32>) {
        if self.was_told(slot) {
            return;
        }
        if next.is_none() {
            self.empty(slot);
        } else if !self.solver.lost(slot, false) {
            // All that waits was to be dropped from the end, and one of these has gone.
            self.solver.forget_victim(slot);
        }
    }

    fn tail_lost(&mut self, _: Nanos, slot: Slot) {
        if !self.was_told(slot) {
            self.solver.lost(slot, true);
        }
    }

    fn heads_dropped(&mut self, _: Nanos, slot: Slot, packets: u32) {
        (0..packets).for_each(|_| _ = self.solver.lost(slot, false));
    }

    fn blocked(&mut self, _: Nanos, slot: Slot) {
        self.solver.classes[slot as usize].blocked = true;
    }

    fn unblocked(&mut self, _: Nanos, slot: Slot, _: u32) {
        self.solver.classes[slot as usize].blocked = false;
    }

    fn choose(&mut self, _: Nanos) -> Option<Slot> {
        self.solver.furthest()
    }

    fn sent(&mut self, _: Nanos, slot: Slot, len: u32, next: Option<u32>) -> bool {
        self.solver.sent(slot, len);
        if next.is_none() {
            self.empty(slot);
        }
        false
    }

    fn next_wakeup(&mut self) -> Option<Nanos> {
        self.solver.furthest().map(|_| 0)
    }

    fn report_counters(&self, slot: Slot, counter: &mut dyn FnMut(&'static str, u64)) {
        let (rate, loss) = self.solver.figures(slot);
        counter("rate_bit_s", rate);
        counter("loss_millionths", loss);
    }

    fn memory(&self) -> usize {
        self.solver.memory()
    }
}
