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

/// What an engine says of the whole link at one instant.
#[derive(Clone, Debug)]
pub struct Whole {
    rate: Rate,
    regulator: Option<u32>,
    unclassified: (u64, u64),
    /// Of each class with all below it, by number.
    counters: Vec<Counters>,
}

impl Whole {
    /// Asks an engine. Takes time linear in the classes, but little for each.
    pub fn of(engine: &Engine) -> Whole {
        Whole {
            rate: engine.rate(),
            regulator: engine.regulator_depth(),
            unclassified: engine.unclassified(),
            counters: engine.all_counters(),
        }
    }

    /// The numbers that classes may have.
    pub fn classes(&self) -> std::ops::Range<ClassId> {
        0..self.counters.len() as ClassId
    }
}

/// What an engine says of a class alone.
#[derive(Clone, Debug)]
pub struct Told {
    parent: Option<ClassId>,
    own: Counters,
    scheduler: Vec<(&'static str, u64)>,
    queue: Vec<(&'static str, u64)>,
}

impl Told {
    /// Asks an engine; `None` for a number that no class has.
    pub fn of(engine: &Engine, class: ClassId) -> Option<Told> {
        let parent = engine.parent(class);
        (class == ROOT || parent.is_some()).then(|| Told {
            parent,
            own: engine.own_counters(class),
            scheduler: engine.scheduler_counters(class),
            queue: engine.queue_counters(class),
        })
    }
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
        let whole = Whole::of(engine);
        let classes = whole.classes().map(|class| Told::of(engine, class)).collect();
        LinkStat::gather(link, names, settings, default, &whole, classes, span)
    }

    /// As [`with`](LinkStat::with), of what was read from the engine before, perhaps in several
    /// parts: `classes` by number, `None` for numbers that no class has.
    pub fn gather(
        link: &Link,
        names: &[Option<String>],
        settings: &[Settings],
        default: Option<ClassId>,
        whole: &Whole,
        told: Vec<Option<Told>>,
        span: Nanos,
    ) -> LinkStat {
        let mut places = vec![None; told.len()];
        for (at, (place, _)) in places.iter_mut().zip(&told).filter(|(_, told)| told.is_some()).enumerate() {
            *place = Some(at);
        }
        let place = |id: ClassId| places.get(id as usize).copied().flatten();
        let signed =
            |told: Vec<(&'static str, u64)>| told.into_iter().map(|(name, count)| (name, count as i64)).collect();
        let mut classes: Vec<ClassStat> = Vec::with_capacity(told.len());
        for (id, told) in (0 as ClassId..).zip(told) {
            let Some(told) = told else { continue };
            let (at, parent) = (id as usize, told.parent);
            let counters = whole.counters.get(at).copied().unwrap_or_default();
            // A class that an event has added is served by the scheduler that serves its siblings.
            let scheduler = match (link.spec.classes.get(at), parent) {
                (None, Some(parent)) => {
                    match link.spec.classes.get(parent as usize).and_then(|class| class.scheduler.as_ref()) {
                        Some(held) => held.name,
                        None => link.scheduler_of(parent),
                    }
                }
                _ => link.scheduler_of(id),
            };
            classes.push(ClassStat {
                name: names.get(at).cloned().flatten().unwrap_or_default(),
                parent: parent.and_then(place),
                leaf: true,
                scheduler,
                settings: settings.get(at).cloned().unwrap_or_default(),
                holds: link.spec.classes.get(at).and_then(|class| class.scheduler.clone()),
                queue: link
                    .queue(id)
                    .or_else(|| Some((schedule::find(scheduler)?.queue)(&Settings::new(), &Settings::new()))),
                counters,
                own: told.own,
                told: signed(told.scheduler),
                queue_told: signed(told.queue),
                span_packets: counters.sent_packets,
                span_bytes: counters.sent_bytes,
            });
        }
        for at in 0..classes.len() {
            if let Some(parent) = classes[at].parent {
                classes[parent].leaf = false;
            }
        }
        LinkStat {
            name: link.name.clone(),
            rate: whole.rate,
            mtu: link.spec.mtu,
            packet: link.spec.overhead.charge(link.spec.mtu),
            regulator: whole.regulator,
            scheduler: link.spec.scheduler.clone(),
            default: default.and_then(place),
            span,
            unclassified: whole.unclassified,
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
