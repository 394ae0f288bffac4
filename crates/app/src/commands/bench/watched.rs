//! What a live loop keeps of each packet for those who watch, around the engine's work: the same
//! calls as its own.

use altq_dataplane::census::Census;
use altq_dataplane::flows::Flows;
use altq_engine::headers::Key;
use altq_engine::spec::ClassId;
use altq_engine::units::Nanos;
use altq_engine::{Engine, Packet};

/// How much is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Watch {
    /// Nothing: the engine alone
    #[default]
    Nothing,
    /// How long packets waited, which every live loop keeps
    Delays,
    /// The flows of each class as well, and for how long it had packets: for `altq top`
    Flows,
}

impl Watch {
    /// Its name in JSON.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Watch::Nothing => None,
            Watch::Delays => Some("delays"),
            Watch::Flows => Some("flows"),
        }
    }

    /// What is done with a packet beyond the engine's work.
    pub fn words(self) -> &'static str {
        match self {
            Watch::Nothing => "",
            Watch::Delays => ", its wait is counted",
            Watch::Flows => ", its wait and its flow are counted",
        }
    }
}

/// Classes that may have counters of flows in one second, as in `altq run`.
const FLOWS: usize = 1 << 10;
/// A live loop takes one that nobody knows.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// What is kept.
pub struct Watched {
    census: Census,
}

impl Watched {
    /// For the classes of an engine, and packets with handles below `handles`. `None` if nothing is
    /// kept.
    pub fn new(watch: Watch, engine: &Engine, handles: usize) -> Option<Watched> {
        if watch == Watch::Nothing {
            return None;
        }
        let classes = engine.numbers();
        let mut census = Census::new(classes, 1);
        census.flows = (watch == Watch::Flows).then(|| Flows::new(classes, FLOWS, SEED, handles));
        // From the first count on it is followed for how long packets wait.
        census.begin(0);
        census.count(engine, |_| None, usize::MAX);
        Some(Watched { census })
    }

    /// A packet with these headers waits under this handle.
    #[inline]
    pub fn waits(&mut self, handle: u32, key: &Key) {
        if let Some(flows) = &mut self.census.flows {
            flows.waits(handle, key);
        }
    }

    /// A packet leaves.
    #[inline]
    pub fn leaves(&mut self, now: Nanos, class: ClassId, packet: &Packet) {
        self.census.departed(now, class, packet, now.saturating_sub(packet.arrived));
    }

    /// Packets whose waits, and whose flows, were counted.
    #[cfg(test)]
    pub fn packets(&mut self, engine: &Engine) -> (u64, u64) {
        self.census.begin(0);
        let Some(mut counted) = self.census.count(engine, |_| None, usize::MAX) else { return (0, 0) };
        let delays = counted.classes.iter().map(|own| own.sojourn.count()).sum();
        let flows = counted.flows.summaries().iter().map(|(_, summary)| summary.total().packets).sum();
        (delays, flows)
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::{Load, Work};
    use super::*;

    #[test]
    fn every_packet_that_leaves_is_counted() {
        for (watch, expected) in [(Watch::Nothing, (0, 0)), (Watch::Delays, (2000, 0)), (Watch::Flows, (2000, 2000))] {
            let mut work = Work::new(&Load { watch, ..Load::new("fifo", 100, 3) }).unwrap();
            work.one_at_a_time(1000).unwrap();
            work.fill().unwrap();
            work.saturated(1000).unwrap();
            assert_eq!(work.counted(), expected, "{watch:?}");
        }
    }
}
