//! What a link's counters say at one instant, tool by tool printed in `altq-pages`.

use altq_config::Link;
use altq_engine::Engine;
use altq_engine::account::Counters;
use altq_engine::schedule;
use altq_engine::settings::Settings;
use altq_engine::spec::{ClassId, QueueSpec, ROOT, SchedulerSpec};
use altq_engine::units::{Nanos, Rate, SECOND};

use crate::case::Probe;

/// Reads what another tool would print of a link's counters, where a probe asks for that (the
/// measures `counter`, `identities` and `disagreements`). The form of the text is not known here:
/// who runs a case says who reads (`altq_pages::stat::tc::measured`).
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
    /// What the link charges for a packet of that size, bytes.
    pub packet: u32,
    /// Depth of the token bucket between scheduler and device, bytes, if there is one.
    pub regulator: Option<u32>,
    /// Its scheduler.
    pub scheduler: SchedulerSpec,
    /// The class of packets that no rule knows, as a place in `classes`.
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
    /// The class above, as a place in [`LinkStat::classes`].
    pub parent: Option<usize>,
    /// It has no classes below it.
    pub leaf: bool,
    /// The scheduler that serves it; of the link: its own.
    pub scheduler: &'static str,
    /// Its words.
    pub settings: Settings,
    /// The scheduler that it holds, if any.
    pub holds: Option<SchedulerSpec>,
    /// Its queue.
    pub queue: Option<QueueSpec>,
    /// Its counters with those of all below it.
    pub counters: Counters,
    /// The counters of its own packets.
    pub own: Counters,
    /// What its scheduler counts for it, by name.
    pub told: Vec<(&'static str, i64)>,
    /// What its queue counts, by name.
    pub queue_told: Vec<(&'static str, i64)>,
    /// Packets sent in [`LinkStat::span`].
    pub span_packets: u64,
    /// Their own bytes.
    pub span_bytes: u64,
}

impl LinkStat {
    /// A link's counters as they are after `span`, counted from the start.
    pub fn of(link: &Link, engine: &Engine, span: Nanos) -> LinkStat {
        let names: Vec<_> = link.classes.iter().map(|class| Some(class.name.clone())).collect();
        let settings: Vec<_> = link.spec.classes.iter().map(|class| class.settings.clone()).collect();
        LinkStat::with(link, &names, &settings, link.spec.default, engine, span)
    }

    /// [`of`](LinkStat::of) where classes came, went and changed since: their names and words by
    /// number, and the default class.
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
            // A class that an event has added is served by what serves the others below its parent.
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

    /// Adds what another engine of the same link has counted: one of several transmit queues.
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

    /// The places of the classes below one, in order.
    pub fn children(&self, of: usize) -> impl Iterator<Item = usize> {
        self.classes.iter().enumerate().filter(move |(_, class)| class.parent == Some(of)).map(|(at, _)| at)
    }
}

impl ClassStat {
    /// What its scheduler counts under one of these names.
    pub fn says(&self, names: &[&str]) -> Option<i64> {
        find(&self.told, names)
    }

    /// What its queue counts under one of these names.
    pub fn queue_says(&self, names: &[&str]) -> Option<i64> {
        find(&self.queue_told, names)
    }

    /// Packets of its own can wait here: it is a leaf, or has had some.
    pub fn queues(&self) -> bool {
        self.leaf || self.own.received_packets() > 0
    }

    /// Its rate over `span`, of own bytes, bit/s.
    pub fn rate(&self, span: Nanos) -> u64 {
        crate::report::rate(self.span_bytes, span)
    }

    /// Packets a second over `span`.
    pub fn packet_rate(&self, span: Nanos) -> u64 {
        let packets = u128::from(self.span_packets) * u128::from(SECOND);
        packets.checked_div(u128::from(span)).and_then(|rate| u64::try_from(rate).ok()).unwrap_or(0)
    }
}

fn find(told: &[(&'static str, i64)], names: &[&str]) -> Option<i64> {
    told.iter().find(|(name, _)| names.contains(name)).map(|(_, count)| *count)
}
