//! htb, as the link's own scheduler, and as the shaper above schedulers that do not shape
//! (tc-htb(8), net/sched/sch_htb.c).

use altq_engine::schedule::htb::words::{self, Defaults, Words};
use altq_engine::shape::pacer::SEEN_LATE;
use altq_engine::spec::{ClassId, ROOT, Regulator};
use altq_engine::units::Rate;

use super::given::Given;
use super::{Builder, LINK};
use crate::handle::Handle;
use crate::tree::{Class, ClassWords, Layer, Qdisc, QdiscWords};

/// The most levels of classes, including that of the link (`TC_HTB_MAXDEPTH` in linux/pkt_sched.h).
const DEPTH: usize = 8;

/// What a class's tokens are charged for a packet in addition to its length.
#[derive(Clone, Copy, Debug, Default)]
struct Charged {
    overhead: u16,
    mpu: u16,
    atm: bool,
}

impl Builder<'_> {
    fn htb_defaults(&self) -> Defaults {
        let frame = self.link.spec.overhead.charge(self.link.spec.mtu).max(self.link.spec.mtu + self.host.header);
        Defaults { packet: u64::from(frame), tick: 1 }
    }

    /// The class that stands for the link. Its tokens are charged as `charged` says.
    fn htb_link(&mut self, handle: Handle, charged: Charged) -> Class {
        let (spec, defaults) = (&self.link.spec, self.htb_defaults());
        let burst = match spec.regulator {
            // As much as altq's own paths send at once after an idle time. With the burst of one
            // packet that tc takes by itself, htb loses what its timer is late: at 10 Gbit/s a
            // packet takes 1.2 us.
            Regulator::Auto | Regulator::None => {
                spec.rate.bytes_in(SEEN_LATE).saturating_add(defaults.burst(spec.rate))
            }
            _ => spec.regulator.depth(spec.rate, spec.mtu, spec.timer).map_or(0, u64::from).max(defaults.packet),
        };
        let rate = self.bytes_s(self.link.spec.rate);
        let quantum = defaults.packet as u32;
        let Charged { overhead, mpu, atm } = charged;
        let words = ClassWords::Htb { rate, ceil: rate, burst, cburst: burst, prio: 0, quantum, overhead, mpu, atm };
        Class { handle: Handle::new(handle.major(), LINK), parent: handle, words: Some(words), id: ROOT }
    }

    /// What the link's overhead charges the tokens of all classes in addition to the length that
    /// the kernel sees. `own`: whether classes have words of their own for that. If htb's classes
    /// cannot express the overhead, the tree gets a size table.
    fn charged(&mut self, own: bool) -> Charged {
        let Some(sizes) = self.sizes() else { return Charged::default() };
        let (overhead, mpu) = (u16::try_from(sizes.overhead), u16::try_from(sizes.mpu));
        match (own, overhead, mpu) {
            (false, Ok(overhead), Ok(mpu)) => Charged { overhead, mpu, atm: sizes.layer == Layer::Atm },
            _ => {
                self.tree.sizes = Some(sizes);
                Charged::default()
            }
        }
    }

    /// The parent for a scheduler or queue that does not shape: the only class of an htb with the
    /// link's rate, or `parent` itself if the link has `regulator none`.
    pub(super) fn shaped(&mut self, parent: Handle) -> Option<Handle> {
        if self.link.spec.regulator == Regulator::None {
            self.note(
                "`regulator none`: the device decides how fast packets leave, and how many wait in it".to_owned(),
            );
            if self.sizes().is_some() {
                self.note("`regulator none`: nothing charges the overhead".to_owned());
            }
            return Some(parent);
        }
        let handle = self.handle();
        let charged = self.charged(false);
        let class = self.htb_link(handle, charged);
        let place = class.handle;
        self.tree.qdiscs.push(Qdisc {
            handle,
            parent,
            words: QdiscWords::Htb { default: LINK },
            classes: vec![class],
            filters: Vec::new(),
            holds: None,
        });
        Some(place)
    }

    /// The link's own htb.
    pub(super) fn htb(&mut self, parent: Handle) {
        let link = self.link;
        let handle = self.handle();
        let (defaults, served) = (self.htb_defaults(), self.served(ROOT));
        let mut given = Given::new(&link.spec.scheduler.settings);
        given.take(&["r2q"]);
        let r2q = words::r2q(&link.spec.scheduler.settings);
        self.nobody_took(ROOT, "the kernel's htb has", given.rest());
        let own = |id: &ClassId| {
            let words = link.spec.classes.get(*id as usize).map(|class| &class.settings);
            words.is_some_and(|words| words.bytes("overhead").is_some() || words.bytes("mpu").is_some())
        };
        let charged = self.charged(served.iter().any(own));
        let mut classes = vec![self.htb_link(handle, charged)];
        let mut depths = vec![1; link.spec.classes.len()];
        // For each class its ceil, and the sum of the rates of the classes below it, in bit/s.
        let mut ceils = vec![link.spec.rate.as_bit_s(); link.spec.classes.len()];
        let mut below = vec![0u64; link.spec.classes.len()];
        for id in served.iter().copied() {
            let Some(spec) = link.spec.classes.get(id as usize) else { continue };
            depths[id as usize] = depths[spec.parent as usize] + 1;
            if depths[id as usize] > DEPTH {
                let message = format!("the kernel's htb has at most {DEPTH} levels of classes, with that of the link");
                self.refuse(self.place(id, ""), message, None);
            }
            let mut given = Given::new(&spec.settings);
            given.take(&["rate", "ceil", "burst", "cburst", "prio", "quantum", "overhead", "mpu"]);
            self.nobody_took(id, "the kernel's htb has", given.rest());
            let words = match Words::read(&spec.settings, &defaults) {
                Ok(words) => words,
                Err(error) => {
                    self.refuse(self.place(id, error.word.unwrap_or("")), error.message, error.help);
                    continue;
                }
            };
            ceils[id as usize] = words.ceil;
            below[spec.parent as usize] = below[spec.parent as usize].saturating_add(words.rate);
            let quantum = words.quantum(r2q);
            if words.quantum.is_none() && words::unbounded(words.rate, r2q) != u64::from(quantum) {
                let (least, most) = (*words::QUANTUM.start(), *words::QUANTUM.end());
                self.note(format!(
                    "htb's quantum follows from the rate and r2q, but only from {least} to {most} bytes: beyond that \
                     classes share what they borrow in other proportions than their rates"
                ));
            }
            let parent = if spec.parent == ROOT { LINK } else { spec.parent as u16 };
            classes.push(Class {
                handle: Handle::new(handle.major(), id as u16),
                parent: Handle::new(handle.major(), parent),
                words: Some(ClassWords::Htb {
                    rate: self.bytes_s(Rate::bit_s(words.rate)),
                    ceil: self.bytes_s(Rate::bit_s(words.ceil)),
                    burst: words.burst,
                    cburst: words.cburst,
                    prio: words.prio,
                    quantum,
                    overhead: charged.overhead.max(words.overhead),
                    mpu: charged.mpu.max(words.mpu),
                    atm: charged.atm,
                }),
                id,
            });
        }
        if let Some(over) = below.iter().zip(&ceils).position(|(below, ceil)| below > ceil) {
            self.note(format!(
                "htb lets a leaf send at its own rate even beyond the ceils above it: the rates below `{}` are more \
                 in all than its ceil",
                link.class_name(over as ClassId)
            ));
        }
        self.note(
            "htb counts a burst as a time in steps of 64 ns, and a class may exceed it by a super-packet (GSO) before \
             it waits"
                .to_owned(),
        );
        let default = self.default(ROOT);
        let filters = self.filters(ROOT, handle, &|class| Handle::new(handle.major(), class as u16), None);
        self.tree.qdiscs.push(Qdisc {
            handle,
            parent,
            // A link without a default class was refused: with 0 htb would let what no filter
            // matches pass unshaped.
            words: QdiscWords::Htb { default: default.map_or(0, |class| class as u16) },
            classes,
            filters,
            holds: None,
        });
        self.leaves(ROOT, handle, &served);
    }

    /// Adds what is inside the leaves of a qdisc whose classes have the numbers of the policy.
    pub(super) fn leaves(&mut self, node: ClassId, handle: Handle, served: &[ClassId]) {
        if served.iter().any(|id| *id >= u32::from(LINK)) {
            self.refuse(self.link.span, format!("the kernel's qdisc has at most {LINK} classes"), None);
            return;
        }
        for id in served.iter().copied().filter(|id| self.is_leaf(*id, node)).collect::<Vec<_>>() {
            self.inside(id, Handle::new(handle.major(), id as u16));
        }
    }
}
