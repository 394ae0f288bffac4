//! The part that is in the loop: the flows of each class, fed with every packet that leaves.
//!
//! A class gets its counters with its first packet of a second and gives them back at the second's
//! end, so classes that send nothing take 24 bytes. The loop hands over full counters
//! ([`take`](Departures::take)) and gets empty ones back ([`give_back`](Departures::give_back)), so
//! it never waits for their reader. Once there are as many counters as classes that are busy in a
//! second, nothing is allocated any more.

use altq_engine::classify::Mix;
use altq_engine::spec::ClassId;

use crate::amount::Amount;
use crate::flow::FlowKey;
use crate::space_saving::SpaceSaving;

/// Counters for each class. 64 counters list every flow that has more than 1/64 of the class's
/// bytes.
pub const COUNTERS: usize = 64;

/// The counters of one class in one second.
pub type FlowCounters = SpaceSaving<FlowKey>;

/// The flows of all classes of a link, in the current second.
#[derive(Debug)]
pub struct Departures {
    mix: Mix,
    /// By class, its counters, if it has sent in this second.
    counters: Vec<Option<FlowCounters>>,
    spare: Vec<FlowCounters>,
    /// How many counters there are, and the most that there may be.
    existing: usize,
    most: usize,
    uncounted: Amount,
}

impl Departures {
    /// For classes with numbers below `classes`. At most `most` of them have counters in one
    /// second, which take 5.9 kB each. `seed` must be secret: whoever knows it can choose flows
    /// that take longer to find.
    pub fn new(classes: usize, most: usize, seed: u64) -> Departures {
        let mut departures = Departures {
            mix: Mix::new(seed),
            counters: Vec::new(),
            spare: Vec::new(),
            existing: 0,
            most,
            uncounted: Amount::default(),
        };
        departures.set_classes(classes);
        departures
    }

    /// Makes room for class numbers below `classes`, after a change of the policy. The room never
    /// shrinks.
    pub fn set_classes(&mut self, classes: usize) {
        self.counters.resize_with(classes.max(self.counters.len()), || None);
    }

    /// A packet of `bytes` own bytes has left. `flow` has the DSCP with which it left.
    #[inline]
    pub fn add(&mut self, class: ClassId, flow: &FlowKey, bytes: u32) {
        let hash = flow.hash(&self.mix);
        match self.counters.get_mut(class as usize) {
            Some(Some(counters)) => counters.add(flow, hash, bytes),
            _ => self.add_first(class, flow, hash, bytes),
        }
    }

    /// The first packet of a class in this second.
    #[cold]
    fn add_first(&mut self, class: ClassId, flow: &FlowKey, hash: u32, bytes: u32) {
        let known = (class as usize) < self.counters.len();
        let counters = if known { self.spare_or_new() } else { None };
        match (self.counters.get_mut(class as usize), counters) {
            (Some(place), Some(counters)) => place.insert(counters).add(flow, hash, bytes),
            _ => self.uncounted += Amount::new(u64::from(bytes), 1),
        }
    }

    fn spare_or_new(&mut self) -> Option<FlowCounters> {
        let spare = self.spare.pop();
        if spare.is_none() && self.existing < self.most {
            self.existing += 1;
            return Some(FlowCounters::new(COUNTERS));
        }
        spare
    }

    /// Ends a second: adds the counters of all classes that have sent to `taken`, in the order of
    /// their numbers. It must be called at the moment at which the engine's counters are read;
    /// otherwise flows and counters do not add up.
    pub fn take(&mut self, taken: &mut Vec<(ClassId, FlowCounters)>) {
        let busy = |(class, counters): (usize, &mut Option<FlowCounters>)| Some((class as ClassId, counters.take()?));
        taken.extend(self.counters.iter_mut().enumerate().filter_map(busy));
    }

    /// Ends the second of one class: takes its counters, if it has sent. It must be called at the
    /// moment at which the engine's counters of this class are read. What the class sends from now
    /// on belongs to its next second.
    pub fn take_class(&mut self, class: ClassId) -> Option<FlowCounters> {
        self.counters.get_mut(class as usize)?.take()
    }

    /// Takes counters back that were taken, and forgets what they have counted.
    pub fn give_back(&mut self, counters: impl IntoIterator<Item = FlowCounters>) {
        for mut counters in counters {
            counters.clear();
            self.spare.push(counters);
        }
    }

    /// Packets since the start for which no counters were left. The engine's counters of their
    /// class include them, so they are in the rest for which no flow is listed.
    pub fn uncounted(&self) -> Amount {
        self.uncounted
    }

    /// Bytes of memory held, without counters that are handed over.
    pub fn memory(&self) -> usize {
        let counters = self.counters.iter().flatten().chain(&self.spare);
        self.counters.capacity() * size_of::<Option<FlowCounters>>()
            + self.spare.capacity() * size_of::<FlowCounters>()
            + counters.map(FlowCounters::memory).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use altq_engine::headers::Key;

    use super::*;

    fn flow(at: u32) -> FlowKey {
        FlowKey::of(&Key { src: u128::from(at), dst: 1, proto: 17, family: 4, ..Key::default() })
    }

    #[test]
    fn each_class_has_its_own_flows() {
        let mut departures = Departures::new(3, 2, 7);
        for (class, at, bytes) in [(1, 10, 100), (2, 10, 200), (1, 11, 300), (1, 10, 50), (0, 12, 9), (8, 12, 9)] {
            departures.add(class, &flow(at), bytes);
        }
        // Two classes have counters. The third class, and the one whose number is too high, have
        // none.
        assert_eq!(departures.uncounted(), Amount::new(18, 2));
        let mut taken = Vec::new();
        departures.take(&mut taken);
        let totals: Vec<_> = taken.iter().map(|(class, counters)| (*class, counters.total())).collect();
        assert_eq!(totals, [(1, Amount::new(450, 3)), (2, Amount::new(200, 1))]);
        let one = taken[0].1.summary();
        let listed: Vec<_> = one.listed().iter().map(|counted| (counted.key, counted.at_least.bytes)).collect();
        assert_eq!(listed, [(flow(11), 300), (flow(10), 150)]);

        // The next second begins before the counters are back.
        departures.add(1, &flow(13), 1);
        assert_eq!(departures.uncounted(), Amount::new(19, 3));
        departures.give_back(taken.drain(..).map(|(_, counters)| counters));
        departures.add(0, &flow(14), 5);
        departures.add(1, &flow(13), 1);
        departures.take(&mut taken);
        let totals: Vec<_> = taken.iter().map(|(class, counters)| (*class, counters.total().bytes)).collect();
        assert_eq!(totals, [(0, 5), (1, 1)]);
    }

    #[test]
    fn classes_end_their_seconds_one_by_one() {
        let mut departures = Departures::new(4, 4, 7);
        (0..4).for_each(|class| departures.add(class, &flow(class), 100 + class));
        let bytes = |counters: Option<FlowCounters>| counters.map(|counters| counters.total().bytes);
        assert_eq!(bytes(departures.take_class(1)), Some(101));
        assert_eq!(bytes(departures.take_class(1)), None);
        // The others go on counting.
        departures.add(3, &flow(3), 7);
        assert_eq!(bytes(departures.take_class(3)), Some(110));
        departures.give_back([FlowCounters::new(COUNTERS)]);
        departures.add(1, &flow(1), 5);
        assert_eq!(
            [0, 1, 2, 3, 9].map(|class| bytes(departures.take_class(class))),
            [Some(100), Some(5), Some(102), None, None]
        );
    }

    #[test]
    fn memory_is_that_of_busy_classes() {
        let mut departures = Departures::new(100_000, 100, 7);
        let idle = departures.memory();
        assert_eq!(idle, 2_400_000);
        (0..100_000).for_each(|class| departures.add(class, &flow(class), 64));
        let busy = departures.memory();
        assert!(busy - idle < 100 * 6_500, "{busy}");
        let (mut taken, mut packets) = (Vec::new(), departures.uncounted().packets);
        departures.take(&mut taken);
        packets += taken.iter().map(|(_, counters)| counters.total().packets).sum::<u64>();
        assert_eq!(packets, 100_000);
        departures.give_back(taken.into_iter().map(|(_, counters)| counters));
        (0..100_000).for_each(|class| departures.add(99_999 - class, &flow(class), 64));
        assert!(departures.memory() - idle < 100 * 6_500 + 30_000);
    }
}
