//! What holds classes: ceilings of words and meters, and queues.

use altq_engine::schedule;
use altq_engine::shape::meter::MeterSpec;
use altq_engine::spec::{ClassId, QueueSpec, ROOT};
use altq_engine::units::Rate;

use crate::policy::Link;

/// The length of an IPv4 header, of which the smallest packets consist (RFC 791 3.1).
const LEAST_PACKET: u32 = 20;
/// At least the bytes of a cell (53) or block (65) of any framing.
const LONGEST_CELL: u32 = 65;

impl Link {
    /// The highest rate that a class may reach in the long run: the lowest of the link's rate, what
    /// its words and those of the classes above it allow, and what meters that drop packets let
    /// through. Meters count the packets' own bytes: of the smallest packets, more is let through
    /// on the wire.
    pub fn ceiling(&self, class: ClassId) -> Rate {
        self.least_of(class, |at| self.own_most(at))
    }

    /// The rate that a class can count on as far as its ceilings go: as [`Link::ceiling`], but
    /// meters let no more through than their rate.
    pub(crate) fn sure_ceiling(&self, class: ClassId) -> Rate {
        self.least_of(class, |at| self.own_ceiling(at).map(|(rate, _)| rate))
    }

    /// The least of the link's rate and what `own` says of a class and of each class above it.
    fn least_of(&self, class: ClassId, own: impl Fn(ClassId) -> Option<Rate>) -> Rate {
        let mut most = self.spec.rate;
        let mut at = class;
        most = self.by_deadline_only(class).map_or(most, |ceiling| most.min(ceiling));
        loop {
            most = own(at).map_or(most, |ceiling| most.min(ceiling));
            match self.spec.classes.get(at as usize) {
                Some(spec) if at != ROOT => at = spec.parent,
                _ => return most,
            }
        }
    }

    /// The rate of a class that is served by deadline only. With `overcommit` the classes below a
    /// class may have more by their deadlines than it has by its own.
    pub(crate) fn by_deadline_only(&self, class: ClassId) -> Option<Rate> {
        let spec = self.spec.classes.get(class as usize).filter(|_| class != ROOT)?;
        let (rate, _) = self.entry_of(class)?.by_deadline_only(&spec.settings)?;
        let inner = || self.spec.classes.iter().skip(1).any(|below| below.parent == class);
        (!self.overcommit || !inner()).then_some(rate)
    }

    /// The rate to which the words of a class alone and its meter hold it, if they do; and the
    /// word. The meter's rate is in the packets' own bytes.
    pub(crate) fn own_ceiling(&self, class: ClassId) -> Option<(Rate, &'static str)> {
        let metered = self.meter(class).and_then(|meter| Some((meter.most()?, "meter")));
        self.scheduler_ceiling(class).into_iter().chain(metered).min_by_key(|(rate, _)| *rate)
    }

    /// The highest rate on the wire that the words of a class alone and its meter let it reach, if
    /// they hold it to any.
    fn own_most(&self, class: ClassId) -> Option<Rate> {
        let metered = self.meter(class).and_then(|meter| Some(self.on_the_wire(meter.most()?)));
        self.scheduler_ceiling(class).map(|(rate, _)| rate).into_iter().chain(metered).min()
    }

    fn scheduler_ceiling(&self, class: ClassId) -> Option<(Rate, &'static str)> {
        let settings = &self.spec.classes.get(class as usize)?.settings;
        self.entry_of(class).filter(|_| class != ROOT).and_then(|entry| entry.ceiling(settings))
    }

    /// The meter of a class.
    pub(super) fn meter(&self, class: ClassId) -> Option<MeterSpec> {
        MeterSpec::read(&self.spec.classes.get(class as usize)?.settings).ok().flatten()
    }

    /// The highest rate on the wire of packets whose own bytes have this rate: that of the packets
    /// whose overhead is the largest part. Those have the length of an IP header, or some bytes
    /// more where a cell begins (ATM).
    fn on_the_wire(&self, own: Rate) -> Rate {
        let overhead = self.spec.overhead;
        let wire = |len: u32| u128::from(own.as_bit_s()) * u128::from(overhead.charge(len)) / u128::from(len);
        let most = (LEAST_PACKET..=LEAST_PACKET + LONGEST_CELL).map(wire).max().unwrap_or(0);
        // With an overhead below 0 it is that of long packets, of which nearly nothing is missing.
        let most = most.max(own.as_bit_s().into());
        Rate::bit_s(u64::try_from(most).unwrap_or(u64::MAX))
    }

    /// The queue of a class: its own, or the one that its scheduler gives.
    pub fn queue(&self, class: ClassId) -> Option<QueueSpec> {
        if let Some(queue) = &self.spec.classes.get(class as usize)?.queue {
            return Some(queue.clone());
        }
        let serving = self.spec.serving(class)?;
        let words = &self.spec.classes.get(class as usize)?.settings;
        Some((schedule::find(serving.name)?.queue)(&serving.settings, words))
    }
}
