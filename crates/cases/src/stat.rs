//! A link's counters at one instant. `altq-pages` prints them as other tools do.

use altq_config::Link;
use altq_engine::Engine;
use altq_engine::account::Counters;
use altq_engine::schedule;
use altq_engine::settings::Settings;
use altq_engine::spec::{ClassId, QueueSpec, ROOT, SchedulerSpec};
use altq_engine::units::{Nanos, Rate, SECOND};

use crate::case::Probe;

/// Reads a value from what another tool would print of a link's counters, if a probe asks for it
/// (the measures `counter`, `identities` and `disagreements`). This crate does not know the form of
/// that text: whoever runs a case passes the reader (`altq_pages::stat::tc::measured`).
pub type ReadCounters = fn(&LinkStat, &Probe) -> Option<f64>;

/// A link at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStat {
    /// Its name; tools call it the interface.
    pub name: String,
    /// Its rate.
    pub rate: Rate,
    /// Its MTU, bytes.
    pub mtu: u32,
    /// Bytes that the link charges for a packet as long as the MTU.
    pub packet: u32,
    /// Depth of the token bucket between scheduler and device, bytes, if there is one.
    pub regulator: Option<u32>,
    /// Its scheduler.
    pub scheduler: SchedulerSpec,
    /// The index in `classes` of the class for packets that no rule matches.
    pub default: Option<usize>,
    /// The time over which rates are measured.
    pub span: Nanos,
    /// Packets and bytes that had no class.
    pub unclassified: (u64, u64),
    /// The link itself first, then its classes, parents before children.
    pub classes: Vec<ClassStat>,
}

/// A class at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassStat {
    /// Its name.
    pub name: String,
    /// The index in [`LinkStat::classes`] of the class above.
    pub parent: Option<usize>,
    /// True if there are no classes below it.
    pub leaf: bool,
    /// The scheduler that serves it; for the link its own.
    pub scheduler: &'static str,
    /// Its words.
    pub settings: Settings,
    /// The scheduler that it holds, if any.
    pub holds: Option<SchedulerSpec>,
    /// Its queue.
    pub queue: Option<QueueSpec>,
    /// Its counters, with those of all classes below it.
    pub counters: Counters,
    /// The counters of its own packets.
    pub own: Counters,
    /// The counters that its scheduler keeps for it, by name.
    pub told: Vec<(&'static str, i64)>,
    /// The counters of its queue, by name.
    pub queue_told: Vec<(&'static str, i64)>,
    /// Packets sent in [`LinkStat::span`].
    pub span_packets: u64,
    /// Their own bytes.
    pub span_bytes: u64,
}

impl LinkStat {
    /// A link's counters after `span`, counted from the start.
    pub fn of(link: &Link, engine: &Engine, span: Nanos) -> LinkStat {
        let names: Vec<_> = link.classes.iter().map(|class| Some(class.name.clone())).collect();
        let settings: Vec<_> = link.spec.classes.iter().map(|class| class.settings.clone()).collect();
        LinkStat::with(link, &names, &settings, link.spec.default, engine, span)
    }

    /// As [`of`](LinkStat::of), for a link whose classes have changed: their present names and
    /// words by number, and the default class.
    pub fn with(
        link: &Link,
        names: &[Option<String>],
        settings: &[Settings],
        default: Option<ClassId>,
        engine: &Engine,
        span: Nanos,
    ) -> LinkStat {
        let counters = engine.all_counters();
        let exists = |id: ClassId| id == ROOT || engine.parent(id).is_some();
        let numbers: Vec<ClassId> = (0..counters.len() as ClassId).filter(|id| exists(*id)).collect();
        let mut places = vec![None; counters.len()];
        for (at, id) in numbers.iter().enumerate() {
            places[*id as usize] = Some(at);
        }
        let place = |id: ClassId| places.get(id as usize).copied().flatten();
        let signed =
            |told: Vec<(&'static str, u64)>| told.into_iter().map(|(name, count)| (name, count as i64)).collect();
        let mut classes: Vec<ClassStat> = Vec::with_capacity(numbers.len());
        for id in &numbers {
            let at = *id as usize;
            let parent = engine.parent(*id);
            // A class that an event has added is served by the scheduler that serves its siblings.
            let scheduler = match (link.spec.classes.get(at), parent) {
                (None, Some(parent)) => {
                    match link.spec.classes.get(parent as usize).and_then(|class| class.scheduler.as_ref()) {
                        Some(held) => held.name,
                        None => link.scheduler_of(parent),
                    }
                }
                _ => link.scheduler_of(*id),
            };
            classes.push(ClassStat {
                name: names.get(at).cloned().flatten().unwrap_or_default(),
                parent: parent.and_then(place),
                leaf: true,
                scheduler,
                settings: settings.get(at).cloned().unwrap_or_default(),
                holds: link.spec.classes.get(at).and_then(|class| class.scheduler.clone()),
                queue: link
                    .queue(*id)
                    .or_else(|| Some((schedule::find(scheduler)?.queue)(&Settings::new(), &Settings::new()))),
                counters: counters[at],
                own: engine.own_counters(*id),
                told: signed(engine.scheduler_counters(*id)),
                queue_told: signed(engine.queue_counters(*id)),
                span_packets: counters[at].sent_packets,
                span_bytes: counters[at].sent_bytes,
            });
        }
        for at in 0..classes.len() {
            if let Some(parent) = classes[at].parent {
                classes[parent].leaf = false;
            }
        }
        LinkStat {
            name: link.name.clone(),
            rate: engine.rate(),
            mtu: link.spec.mtu,
            packet: link.spec.overhead.charge(link.spec.mtu),
            regulator: engine.regulator_depth(),
            scheduler: link.spec.scheduler.clone(),
            default: default.and_then(place),
            span,
            unclassified: engine.unclassified(),
            classes,
        }
    }

    /// Adds the counters of another engine of the same link, which serves another transmit queue.
    pub fn add(&mut self, other: &LinkStat) {
        self.unclassified.0 += other.unclassified.0;
        self.unclassified.1 += other.unclassified.1;
        for (class, more) in self.classes.iter_mut().zip(&other.classes) {
            class.counters += more.counters;
            class.own += more.own;
            class.span_packets += more.span_packets;
            class.span_bytes += more.span_bytes;
            for (told, more) in [(&mut class.told, &more.told), (&mut class.queue_told, &more.queue_told)] {
                for ((_, sum), (_, count)) in told.iter_mut().zip(more) {
                    *sum += count;
                }
            }
        }
    }

    /// The indices of the classes below one, in order.
    pub fn children(&self, of: usize) -> impl Iterator<Item = usize> {
        self.classes.iter().enumerate().filter(move |(_, class)| class.parent == Some(of)).map(|(at, _)| at)
    }
}

impl ClassStat {
    /// The counter of its scheduler that has one of these names.
    pub fn says(&self, names: &[&str]) -> Option<i64> {
        find(&self.told, names)
    }

    /// The counter of its queue that has one of these names.
    pub fn queue_says(&self, names: &[&str]) -> Option<i64> {
        find(&self.queue_told, names)
    }

    /// True if packets of its own can wait here: it is a leaf, or has had packets.
    pub fn queues(&self) -> bool {
        self.leaf || self.own.received_packets() > 0
    }

    /// Its rate over `span`, by its own bytes, in bit/s.
    pub fn rate(&self, span: Nanos) -> u64 {
        crate::report::rate(self.span_bytes, span)
    }

    /// Its packets per second over `span`.
    pub fn packet_rate(&self, span: Nanos) -> u64 {
        let packets = u128::from(self.span_packets) * u128::from(SECOND);
        packets.checked_div(u128::from(span)).and_then(|rate| u64::try_from(rate).ok()).unwrap_or(0)
    }
}

fn find(told: &[(&'static str, i64)], names: &[&str]) -> Option<i64> {
    told.iter().find(|(name, _)| names.contains(name)).map(|(_, count)| *count)
}
