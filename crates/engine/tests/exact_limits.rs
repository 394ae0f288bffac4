//! Exact CBQ: limits hold through changes. Every few milliseconds something changes: a ceiling, the
//! rate of a class that does not borrow, a priority, a burst, a parent, a child that is added or
//! removed, or `excess`. Over every span of time a class sends at most what its limit allowed in
//! that time, and its burst (docs/reference/cbq.md rules 1, 10 and 17).

use crate::support;

use altq_engine::Change;
use support::{Class, MS, Random, S, Wire, link};

const SIZE: u32 = 500;

/// The bits sent under one limit less those that it allowed: now (`ahead`), and at the least.
/// `most` is the greatest of this difference over any span of time: by how much `ahead` rose above
/// an earlier value.
#[derive(Default)]
struct Ledger {
    ahead: f64,
    least: f64,
    most: f64,
}

impl Ledger {
    /// `ns` nanoseconds pass under a limit in bit/s.
    fn pass(&mut self, limit: u64, ns: u64) {
        self.ahead -= limit as f64 * ns as f64 / 1e9;
        self.least = self.least.min(self.ahead);
    }

    fn send(&mut self, bytes: u32) {
        self.ahead += f64::from(bytes) * 8.0;
        self.most = self.most.max(self.ahead - self.least);
    }
}

/// Two agencies that do not borrow, and a class that borrows below one of them, up to its ceiling.
struct Tree {
    wire: Wire,
    agencies: [Class; 2],
    leaf: Class,
    /// The number of the class below the leaf, if there is one.
    child: Option<u32>,
}

impl Tree {
    fn set(&mut self, class: u32) {
        let to = if class == 3 { &self.leaf } else { &self.agencies[class as usize - 1] };
        let change = Change::SetClass { class, parent: to.parent, settings: to.settings() };
        self.wire.engine.apply(self.wire.now, &change).unwrap();
    }

    fn change(&mut self, random: &mut Random) {
        match random.below(8) {
            0 | 1 => {
                self.leaf.ceiling = Some(random.pick(&[1_000_000, 2_000_000, 4_000_000]));
                self.set(3);
            }
            2 => {
                self.leaf.priority = random.below(8) as u8;
                self.leaf.rate = random.pick(&[0, 10_000, 200_000]);
                self.set(3);
            }
            3 => {
                self.leaf.parent = 3 - self.leaf.parent;
                self.set(3);
            }
            4 => match self.child.take() {
                Some(class) => {
                    self.wire.engine.apply(self.wire.now, &Change::RemoveClass { class, heir: None }).unwrap();
                }
                None => {
                    let spec = Class::new(3, 1000).spec();
                    self.child = self.wire.engine.apply(self.wire.now, &Change::AddClass(spec)).unwrap();
                }
            },
            5 => {
                let settings = link(1, &[], random.pick(&["share", "priority"])).scheduler.settings;
                self.wire.engine.apply(self.wire.now, &Change::SetScheduler { class: 0, settings }).unwrap();
            }
            _ => {
                let agency = random.below(2) as usize;
                self.agencies[agency].rate = random.pick(&[500_000, 1_500_000, 3_000_000]);
                self.agencies[agency].maxburst = Some(1 + random.below(2) as u32);
                self.set(agency as u32 + 1);
            }
        }
    }
}

#[test]
fn limits_hold_through_changes() {
    for seed in 0..60 {
        let mut random = Random::new(700 + seed);
        let of = |rate| Class { packetsize: Some(SIZE), ..Class::new(0, rate) };
        let agencies = [of(1_500_000), of(1_500_000)];
        let leaf = Class { parent: 1, ..of(10_000).borrow().ceiling(2_000_000) };
        let classes = [agencies[0].clone(), agencies[1].clone(), leaf.clone()];
        let mut wire = Wire::new(&link(10_000_000, &classes, "share"));
        wire.log = Some(Vec::new());
        wire.greedy(3, &[SIZE]);
        let mut tree = Tree { wire, agencies, leaf, child: None };
        let mut ledgers: [Ledger; 3] = Default::default();
        let often = random.pick(&[MS / 2, 3 * MS, 20 * MS]);
        while tree.wire.now < 5 * S {
            let from = tree.wire.now;
            tree.wire.run(from + 1 + random.below(often));
            let limits = [tree.agencies[0].rate, tree.agencies[1].rate, tree.leaf.ceiling.unwrap()];
            let mut before = from;
            for sent in std::mem::take(tree.wire.log.as_mut().unwrap()) {
                ledgers.iter_mut().zip(limits).for_each(|(ledger, limit)| ledger.pass(limit, sent.at - before));
                before = sent.at;
                for at in [tree.leaf.parent as usize - 1, 2] {
                    ledgers[at].send(sent.departure.packet.len);
                }
            }
            let now = tree.wire.now;
            ledgers.iter_mut().zip(limits).for_each(|(ledger, limit)| ledger.pass(limit, now - before));
            tree.change(&mut random);
        }
        // Eight packets (docs/reference/cbq.md rule 10): the limit's burst of two, and one more; as
        // many within the class's guarantee, which the limit counts but does not hold back; and
        // two, the burst of an agency to which the class comes back.
        for (name, ledger) in ["first agency", "second agency", "ceiling"].iter().zip(&ledgers) {
            let most = f64::from(8 * SIZE * 8);
            assert!(ledger.most <= most, "seed {seed}: {name}: {:.0} bits of {most} ahead", ledger.most);
        }
        assert!(tree.wire.bytes[3] > 100_000, "seed {seed}: {} bytes", tree.wire.bytes[3]);
    }
}
