//! Schedulers that do not shape and whose classes are side by side: drr, wfq with weights, priq,
//! fifo.

use altq_engine::settings::Value;
use altq_engine::spec::ClassId;

use super::Builder;
use super::given::Given;
use crate::handle::Handle;
use crate::tree::{Class, ClassWords, Qdisc, QdiscWords};

/// The most bands of prio (`TCQ_PRIO_BANDS` in linux/pkt_sched.h).
const BANDS: usize = 16;
/// The largest quantum that the weights of wfq may lead to, in bytes: a round with larger ones
/// would take too long.
const LONGEST_TURN: u64 = 1 << 20;

impl Builder<'_> {
    /// One queue for all packets.
    pub(super) fn fifo(&mut self, node: ClassId, parent: Handle) {
        let served = self.served(node);
        let link = self.link;
        match served[..] {
            [] => self.queue(node, parent),
            [only] => {
                if let Some(spec) = link.spec.classes.get(only as usize) {
                    self.nobody_took(only, "the kernel's queues have", Given::new(&spec.settings).rest());
                }
                self.inside(only, parent);
            }
            [_, second, ..] => {
                let message =
                    "the kernel's fifo has one queue for all packets, and no classes with limits of their own";
                self.refuse(self.place(second, ""), message, None);
            }
        }
    }

    /// Deficit round robin (tc-drr(8)).
    pub(super) fn drr(&mut self, node: ClassId, parent: Handle) {
        let link = self.link;
        let served = self.served(node);
        let mut quanta = Vec::new();
        for id in served.iter().copied() {
            let Some(spec) = link.spec.classes.get(id as usize) else { continue };
            let mut given = Given::new(&spec.settings);
            let quantum = given.bytes("quantum").unwrap_or(u64::from(self.full_packet()));
            self.nobody_took(id, "the kernel's drr has", given.rest());
            quanta.push(u32::try_from(quantum).unwrap_or(u32::MAX));
        }
        self.turns(node, parent, &served, &quanta);
    }

    /// Weighted fair queueing whose classes have weights and nothing else: the same shares as
    /// deficit round robin with quanta in proportion.
    pub(super) fn wfq(&mut self, node: ClassId, parent: Handle) {
        let link = self.link;
        let served = self.served(node);
        if let Some(scheduler) = link.spec.scheduler_at(node) {
            let mut given = Given::new(&scheduler.settings);
            let equal = matches!(given.any("excess"), Some(Value::Choice("equal")));
            if equal {
                let span =
                    self.link.classes.get(node as usize).map_or(link.span, |class| class.scheduler_place("excess"));
                let message = "the kernel's drr has no `excess equal`: it shares everything by weight";
                self.refuse(span, message, None);
            }
        }
        let mut weights = Vec::new();
        let mut kind = None;
        for id in served.iter().copied() {
            let Some(spec) = link.spec.classes.get(id as usize) else { continue };
            let mut given = Given::new(&spec.settings);
            given.take(&["fair-queue"]);
            let weight = given.int("weight").map(|weight| ("weight", weight));
            let weight = weight.or_else(|| given.rate("bandwidth").map(|rate| ("bandwidth", rate.as_bit_s())));
            given.take(&["bandwidth"]);
            let name = link.class_name(id);
            let Some((word, weight)) = weight else {
                let message = format!("the kernel's drr shares by weight, and `{name}` has none");
                let help = format!("write `weight` or `bandwidth` in every class; {}", self.way());
                self.refuse(self.place(id, ""), message, Some(help));
                continue;
            };
            if *kind.get_or_insert(word) != word {
                let message =
                    format!("the kernel's drr cannot add weights to rates: `{name}` has {word}, others do not");
                self.refuse(self.place(id, word), message, None);
            }
            self.nobody_took(id, "the kernel's drr, which stands in for wfq, has", given.rest());
            weights.push(weight.max(1));
        }
        let least = weights.iter().copied().min().unwrap_or(1);
        let packet = u64::from(self.full_packet());
        let quantum = |weight: u64| u128::from(packet) * u128::from(weight) / u128::from(least);
        let most = weights.iter().copied().max().map_or(0, quantum);
        if most > u128::from(LONGEST_TURN) {
            let message = format!("weights so far apart would give the kernel's drr quanta of {most} bytes");
            self.refuse(self.place(node, "scheduler"), message, None);
        }
        let quanta: Vec<u32> = weights.iter().map(|weight| quantum(*weight) as u32).collect();
        self.note(
            "the kernel's drr stands in for wfq: the shares are the same, but a packet may wait for a whole round"
                .to_owned(),
        );
        self.turns(node, parent, &served, &quanta);
    }

    /// A drr with these classes and quanta.
    fn turns(&mut self, node: ClassId, parent: Handle, served: &[ClassId], quanta: &[u32]) {
        let handle = self.handle();
        let class = |(id, quantum): (&ClassId, &u32)| Class {
            handle: Handle::new(handle.major(), *id as u16),
            parent: handle,
            words: Some(ClassWords::Drr { quantum: *quantum }),
            id: *id,
        };
        let classes = served.iter().zip(quanta).map(class).collect();
        let at = |class: ClassId| Handle::new(handle.major(), class as u16);
        // drr has no default class, and drops what no filter matches.
        let rest = self.default(node).map(at);
        let filters = self.filters(node, handle, &at, rest);
        self.tree.qdiscs.push(Qdisc { handle, parent, words: QdiscWords::Drr, classes, filters, holds: None });
        self.leaves(node, handle, served);
    }

    /// Strict priorities (tc-prio(8)): one band for each class.
    pub(super) fn prio(&mut self, node: ClassId, parent: Handle) {
        let link = self.link;
        let mut served = self.served(node);
        let mut priorities = vec![0; link.spec.classes.len()];
        for id in served.iter().copied() {
            let Some(spec) = link.spec.classes.get(id as usize) else { continue };
            let mut given = Given::new(&spec.settings);
            given.take(&["priority"]);
            self.nobody_took(id, "the kernel's prio has", given.rest());
            priorities[id as usize] = link.entry_of(id).and_then(|entry| entry.priority(&spec.settings)).unwrap_or(0);
        }
        served.sort_by_key(|id| std::cmp::Reverse(priorities[*id as usize]));
        for pair in served.windows(2) {
            let [one, other] = pair else { continue };
            let priority = priorities[*one as usize];
            if priority == priorities[*other as usize] {
                let message = format!(
                    "`{}` and `{}` take turns at priority {priority}; the kernel's prio has one queue for each \
                     priority",
                    link.class_name(*one),
                    link.class_name(*other)
                );
                let help = format!("give them different priorities, or one class; {}", self.way());
                self.refuse(self.place(*other, "priority"), message, Some(help));
            }
        }
        if served.len() > BANDS {
            let message = format!("the kernel's prio has {BANDS} bands, and these are {} classes", served.len());
            self.refuse(self.place(node, "scheduler"), message, None);
            return;
        }
        let handle = self.handle();
        let band = |class: ClassId| served.iter().position(|id| *id == class).unwrap_or(0) as u16;
        let at = |class: ClassId| Handle::new(handle.major(), band(class) + 1);
        let class = |id: &ClassId| Class { handle: at(*id), parent: handle, words: None, id: *id };
        let classes: Vec<Class> = served.iter().map(class).collect();
        let default = self.default(node);
        let filters = self.filters(node, handle, &at, None);
        self.tree.qdiscs.push(Qdisc {
            handle,
            parent,
            words: QdiscWords::Prio {
                bands: served.len().max(2) as u8,
                default: default.map_or(0, |class| band(class) as u8),
            },
            classes,
            filters,
            holds: None,
        });
        for id in served.iter().copied() {
            self.inside(id, at(id));
        }
    }

    /// The length of the link's longest packet, as the kernel counts it.
    pub(super) fn full_packet(&self) -> u32 {
        let spec = &self.link.spec;
        spec.overhead.charge(spec.mtu).max(spec.mtu + self.host.header)
    }
}
