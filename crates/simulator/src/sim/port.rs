//! A port: the sending end of a link in one direction, with its engine and what the engine fills.

use std::collections::VecDeque;

use altq_cases::case::{CaseLink, ClassChange, Medium, Tunnel, Way, WordValue};
use altq_cases::random::Random;
use altq_cases::report::{self, Collector};
use altq_cases::stat::LinkStat;
use altq_config::Link;
use altq_config::literal;
use altq_config::suggest::nearest;
use altq_engine::account::Counters;
use altq_engine::classify::{Address, Field, Rule, RuleSet, Term, Values};
use altq_engine::drive::{self, Filled, Step, Taken, Transmitter};
use altq_engine::headers::Key;
use altq_engine::link::Overhead;
use altq_engine::schedule;
use altq_engine::settings::{Kind, Limit, Settings, Value, Word};
use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::spec::{ClassId, ClassSpec, LinkSpec, QueueSpec, ROOT, SchedulerSpec, SpecError, Timer};
use altq_engine::units::{Nanos, Rate};
use altq_engine::{Change, Departure, Engine};

use super::fifo::Fifo;
use super::flight::Flight;
use crate::rings::Rings;
use crate::wire::{BeyondTime, Wire, bytes_on};

/// Byte times of the gap between frames of Ethernet (IEEE 802.3 4.4.2), which are part of what
/// [`Medium::Ethernet`] takes.
pub const ETHERNET_GAP: u32 = 12;

/// One direction of a link.
pub struct Port {
    /// The index of the case's link.
    pub link: usize,
    /// True if it sends from the link's `to` to its `from`.
    pub back: bool,
    /// The host at the far end.
    pub to: usize,
    /// The time that this host takes to handle a packet.
    pub handling: Nanos,
    /// The medium, which decides when a packet that has left arrives, or that it is lost.
    pub flight: Flight,
    /// Whether packets that have left are on their way. The first one to arrive is in the queue of
    /// events, and only this one, which keeps that queue short.
    pub flying: bool,
    /// The others, in the order in which they arrive: time, number of the event, packet.
    pub line: VecDeque<(Nanos, u64, u32)>,
    /// The line's number in the queue of events; `None` before its first packet.
    pub numbered: Option<u32>,
    /// Whether packets arrive in the order in which they left. If not, `line` is not used.
    pub in_order: bool,
    /// The engine, or one for each transmit queue of the card.
    pub engine: Engines,
    /// The wire.
    pub wire: Wire,
    /// Takes the place of the engine if there is no policy and nothing changes during the run.
    pub fifo: Option<Fifo>,
    /// Take the place of the wire if the card has several transmit queues.
    pub rings: Option<Rings>,
    /// Takes the place of the wire if the medium is shared.
    pub station: Option<Station>,
    /// Bytes that it charged for packets that it has sent.
    pub charged: u64,
    /// The largest packet in bytes.
    pub mtu: u32,
    /// The tunnel in which IPv6 is carried over IPv4, if there is one.
    pub tunnel: Option<Tunnel>,
    /// When timers can fire.
    pub timer: Timer,
    /// The time for which the port's timer is set.
    pub wakeup: Option<Nanos>,
    /// The policy, if the port has one.
    pub policy: Option<Governed>,
}

/// A port on a half-duplex medium.
pub struct Station {
    /// The index of the medium.
    pub medium: usize,
    /// How packets are framed on it; `None`: as the engine charges them.
    pub framing: Option<Overhead>,
    /// The frames in the driver's ring: packets and their bytes on the wire. The first one is being
    /// sent, or waits for the medium.
    pub ring: VecDeque<(u32, u32)>,
    /// The most frames in the ring.
    pub slots: usize,
    /// True if the first frame waits for the medium or is being sent.
    pub offered: bool,
}

impl Transmitter for Station {
    type Error = BeyondTime;

    fn has_room(&self, _: Nanos) -> bool {
        self.ring.len() < self.slots
    }

    /// Puts a packet into the ring. When its transmission ends is not known before the station gets
    /// the medium.
    fn take(&mut self, _: Nanos, Departure { packet, .. }: &Departure) -> Result<Taken, BeyondTime> {
        let bytes = bytes_on(self.framing, packet);
        self.ring.push_back((packet.handle, bytes));
        Ok(Taken { end: None, bytes })
    }
}

/// What is needed to make a port.
pub struct Surroundings<'a> {
    /// The case's link.
    pub link: &'a CaseLink,
    /// Its index in the case.
    pub place: usize,
    /// True for the direction from `to` to `from`.
    pub back: bool,
    /// The rate of the wire.
    pub rate: Rate,
    /// When timers can fire.
    pub timer: Timer,
    /// The span of time that is measured.
    pub window: (Nanos, Nanos),
    /// Random numbers for loss, jitter and reordering.
    pub random: Random,
    /// The half-duplex medium that the port shares.
    pub medium: Option<usize>,
    /// True if the rate never changes and the packets are not recorded.
    pub steady: bool,
}

/// The engines of a port: one for each transmit queue of the card, all with the same policy.
pub struct Engines {
    first: Engine,
    others: Vec<Engine>,
    /// The changes that were applied; kept only for a [`ChangePlanner`].
    applied: Option<Vec<Change>>,
}

impl Engines {
    fn new(spec: &LinkSpec, queues: usize) -> Result<Engines, SpecError> {
        if queues <= 1 {
            return Ok(Engines { first: Engine::new(spec)?, others: Vec::new(), applied: None });
        }
        crate::replay::queues::check(spec).map_err(SpecError::new)?;
        let each = crate::replay::queues::each(spec);
        let others = (1..queues).map(|_| Engine::new(&each)).collect::<Result<_, _>>()?;
        Ok(Engines { first: Engine::new(&each)?, others, applied: None })
    }

    /// All engines.
    pub fn iter(&self) -> impl Iterator<Item = &Engine> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// All engines, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Engine> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }

    /// True if an engine has dropped packets that nobody has collected.
    #[inline]
    pub fn has_drops(&self) -> bool {
        self.first.has_drops() || self.others.iter().any(Engine::has_drops)
    }

    /// The engine of a transmit queue; the first one if there is no such queue.
    pub fn of(&mut self, queue: usize) -> &mut Engine {
        match queue.checked_sub(1).and_then(|at| self.others.get_mut(at)) {
            Some(engine) => engine,
            None => &mut self.first,
        }
    }

    /// Seeds the random numbers of the engines, each with a seed of its own.
    pub fn set_seed(&mut self, seed: u64) {
        self.iter_mut().zip(0u64..).for_each(|(engine, more)| engine.set_seed(seed.wrapping_add(more)));
    }

    /// The link's rate.
    pub fn rate(&self) -> Rate {
        self.first.rate()
    }

    /// Bytes that the engines hold for classes, schedulers and queues.
    pub fn memory(&self) -> f64 {
        self.iter().map(Engine::memory).sum::<usize>() as f64
    }

    /// The class of all packets, where there are no rules; `None`: rules decide.
    #[inline]
    pub fn class_without_rules(&self) -> Option<Option<ClassId>> {
        self.first.classifier().without_rules()
    }

    /// Finds the class of a packet. All engines have the same rules.
    pub fn classify(&mut self, key: &Key) -> Option<ClassId> {
        self.first.classify(key)
    }

    /// Applies a change to all engines. If a change is refused, the first engine refuses it, so
    /// none has changed.
    pub fn apply(&mut self, now: Nanos, change: &Change) -> Result<Option<ClassId>, SpecError> {
        let made = self.first.apply(now, change)?;
        for engine in &mut self.others {
            engine.apply(now, change)?;
        }
        self.applied.iter_mut().for_each(|applied| applied.push(change.clone()));
        Ok(made)
    }

    /// The sums of all engines' counters, by class.
    pub fn all_counters(&self) -> Vec<Counters> {
        crate::replay::queues::all_counters(self.iter())
    }
}

/// A port's policy: its classes, and what is needed to change them.
///
/// Everything that is counted is counted by *row*, not by the engine's class number. A row stands
/// for a name: a class that is removed keeps its row, and one that is added later under the same
/// name goes on in it, while the engine may give the number of a removed class to any new one.
/// Until an event adds a class, rows and numbers are the same.
pub struct Governed {
    /// The policy's link.
    pub link: Link,
    /// The name by which results know this direction.
    pub name: String,
    /// Names and parents, by row.
    pub rows: Vec<(String, Option<ClassId>)>,
    /// The row of each class number.
    numbers: Vec<ClassId>,
    /// The class number that a row has now; `None`: the class is removed.
    present: Vec<Option<ClassId>>,
    /// What removed classes had borrowed, by row.
    borrowed: Vec<u64>,
    /// The settings of each class, by number.
    pub settings: Vec<Settings>,
    /// The rules as they are now.
    rules: RuleSet,
    default: Option<ClassId>,
    /// Collects the rows of the result.
    pub collector: Collector,
}

impl Port {
    /// The port of one direction of a case's link, under `policy`; `None`: with a plain FIFO.
    pub fn new(around: Surroundings<'_>, policy: Option<&Link>) -> Result<Port, SpecError> {
        let classes = policy.map_or(0, |link| link.classes.len());
        let Surroundings { link: case, place, back, rate, timer, window, random, medium, steady } = around;
        let way = &case.ways[usize::from(back)];
        let mut spec = match policy {
            Some(link) => link.spec.clone(),
            None => plain(rate, way.queue),
        };
        spec.timer = timer;
        let governed = policy.map(|link| Governed {
            link: link.clone(),
            name: link.name.clone(),
            rows: report::names(link),
            numbers: (0..classes as ClassId).collect(),
            present: (0..classes as ClassId).map(Some).collect(),
            borrowed: vec![0; classes],
            settings: spec.classes.iter().map(|class| class.settings.clone()).collect(),
            rules: spec.rules.clone(),
            default: spec.default,
            collector: Collector::new(spec.classes.len(), window.0, window.1),
        });
        let framing = case.medium.map(Medium::overhead);
        let known_ahead = steady && policy.is_none() && medium.is_none() && case.tx_queues == 1;
        Ok(Port {
            link: place,
            back,
            to: if back { case.from } else { case.to },
            handling: 0,
            in_order: way.reorder == 0.0 && (way.keep_order || way.jitter == 0),
            flying: false,
            line: VecDeque::new(),
            numbered: None,
            flight: Flight::new(way.clone(), random),
            engine: Engines::new(&spec, case.tx_queues)?,
            wire: Wire::new(rate, case.tx_ring).with_medium(framing),
            fifo: known_ahead.then(|| Fifo::new(way.queue, case.tx_ring)),
            rings: (case.tx_queues > 1).then(|| {
                let overhead = framing.unwrap_or(spec.overhead);
                Rings::new(rate, case.tx_queues, case.tx_ring, overhead).with_buffers(case.tx_buffer)
            }),
            station: medium.map(|medium| Station {
                medium,
                framing,
                ring: VecDeque::new(),
                slots: case.tx_ring.max(1),
                offered: false,
            }),
            charged: 0,
            mtu: case.mtu.unwrap_or(policy.map_or(1500, |link| link.spec.mtu)),
            tunnel: case.tunnel,
            timer,
            wakeup: None,
            policy: governed,
        })
    }

    /// True if neither rings nor a station take the place of the wire.
    #[inline]
    pub fn has_plain_wire(&self) -> bool {
        self.rings.is_none() && self.station.is_none()
    }

    /// True if its wire takes no packet now, so that its scheduler need not be asked, and no timer
    /// is needed.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.has_plain_wire() && !self.wire.has_room()
    }

    /// Of how many transmit queues each has an engine of its own.
    pub fn queues(&self) -> usize {
        self.rings.as_ref().map_or(1, Rings::queues)
    }

    /// Hands at most one packet to the port's wire, if it [is one](Port::has_plain_wire).
    ///
    /// # Errors
    /// [`BeyondTime`] for a wire that is too slow.
    #[inline(always)]
    pub fn step_wire(&mut self, now: Nanos) -> Result<Step, BeyondTime> {
        drive::step(&mut self.engine.first, now, &mut self.wire)
    }

    /// Hands at most one packet of a transmit queue to the port's rings, station or wire.
    ///
    /// # Errors
    /// [`BeyondTime`] for a wire that is too slow.
    pub fn step(&mut self, now: Nanos, queue: usize) -> Result<Step, BeyondTime> {
        let engine = self.engine.of(queue);
        if let Some(rings) = &mut self.rings {
            drive::step(engine, now, &mut rings.ring(queue))
        } else if let Some(station) = &mut self.station {
            drive::step(engine, now, station)
        } else {
            self.step_wire(now)
        }
    }

    /// The time for which the port's timer must be set when the steps of a transmit queue have
    /// ended so.
    #[inline]
    pub fn wakeup_after(&mut self, filled: Filled, now: Nanos, queue: usize) -> Option<Nanos> {
        let timer = self.timer;
        filled.wakeup(self.engine.of(queue), now, timer)
    }
}

/// The spec of a link without a policy: one FIFO for all packets.
fn plain(rate: Rate, limit: Limit) -> LinkSpec {
    let queue = QueueSpec::plain(limit);
    LinkSpec {
        default: Some(ROOT),
        ..LinkSpec::new(
            rate,
            SchedulerSpec::plain(),
            vec![ClassSpec { parent: ROOT, settings: Settings::new(), queue: Some(queue), scheduler: None }],
        )
    }
}

/// Turns a case's events into changes of an engine that runs elsewhere, such as in the lab. It
/// applies each event to an engine of its own, which carries no traffic.
pub struct ChangePlanner {
    port: Port,
}

impl ChangePlanner {
    /// A planner for a link as the policy has it.
    ///
    /// # Errors
    /// The error with which the engine refuses the link.
    pub fn new(link: &Link) -> Result<ChangePlanner, SpecError> {
        let case = CaseLink {
            name: link.name.clone(),
            from: 0,
            to: 1,
            ways: [Way::default(), Way::default()],
            medium: None,
            half_duplex: false,
            mtu: None,
            tunnel: None,
            policy: Some(link.name.clone()),
            reverse: None,
            tx_ring: 1,
            tx_queues: 1,
            tx_buffer: None,
        };
        let around = Surroundings {
            link: &case,
            place: 0,
            back: false,
            rate: link.spec.rate,
            timer: Timer::Exact,
            window: (0, 0),
            random: Random::new(0, 0),
            medium: None,
            steady: false,
        };
        let mut port = Port::new(around, Some(link))?;
        port.engine.applied = Some(Vec::new());
        Ok(ChangePlanner { port })
    }

    /// The changes of this link's engine that a change of its rate makes.
    ///
    /// # Errors
    /// Why the rate is not possible.
    pub fn rate(&mut self, now: Nanos, rate: Rate) -> Result<Vec<Change>, String> {
        self.port.engine.apply(now, &Change::SetRate(rate)).map_err(|e| e.to_string())?;
        Ok(self.applied())
    }

    /// The changes of this link's engine that a change of a class makes, in order. `keys`: the keys
    /// of the flows that a new class is for. Changes must be given in order of time.
    ///
    /// # Errors
    /// Why the change is not possible.
    pub fn class(&mut self, now: Nanos, change: &ClassChange, keys: &[Key]) -> Result<Vec<Change>, String> {
        self.port.change(now, change, keys)?;
        Ok(self.applied())
    }

    fn applied(&mut self) -> Vec<Change> {
        self.port.engine.applied.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The present names and parents of its classes, by number.
    pub fn names(&self) -> &[(String, Option<ClassId>)] {
        self.port.policy.as_ref().map_or(&[], |policy| &policy.rows)
    }
}

impl Governed {
    /// The number of the class that has a name now.
    fn number(&self, name: &str) -> Option<ClassId> {
        let named = self.rows.iter().zip(&self.present).filter(|((own, _), _)| own == name);
        named.filter_map(|(_, number)| *number).next()
    }

    /// The number of the class that has a name now, or an error that suggests the nearest name.
    fn known(&self, name: &str) -> Result<ClassId, String> {
        self.number(name).ok_or_else(|| {
            let present = self.rows.iter().zip(&self.present).filter(|(_, number)| number.is_some());
            let names = present.map(|((name, _), _)| name.as_str());
            let hint = nearest(name, names).map(|n| format!("; did you mean {n:?}?")).unwrap_or_default();
            let gone = if self.rows.iter().any(|(own, _)| own == name) { " any more" } else { "" };
            format!("link {} has no class {name:?}{gone}{hint}", self.link.name)
        })
    }

    /// The names of all classes that there are or were, by row.
    pub fn names(&self) -> Vec<&str> {
        self.rows.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// The row of a class number.
    #[inline]
    pub fn row(&self, number: ClassId) -> ClassId {
        self.numbers.get(number as usize).copied().unwrap_or(number)
    }

    /// Keeps the counters for the collector as its window opens or closes.
    pub fn note_counters(&mut self, now: Nanos, engine: &Engines) {
        let counters = self.counters(engine);
        self.collector.note_counters(now, &counters);
    }

    /// How many classes there are now.
    pub fn count(&self) -> usize {
        self.present.iter().flatten().count()
    }

    /// A row and all below it.
    pub fn below(&self, row: ClassId) -> Vec<ClassId> {
        let under = |mut at: ClassId| loop {
            if at == row {
                return true;
            }
            match self.rows.get(at as usize).and_then(|(_, parent)| *parent) {
                Some(parent) => at = parent,
                None => return false,
            }
        };
        (0..self.rows.len() as ClassId).filter(|row| under(*row)).collect()
    }

    /// What the engine counts, by row. Of a removed class only what it had borrowed is known.
    pub fn counters(&self, engine: &Engines) -> Vec<Counters> {
        let counters = engine.all_counters();
        let row = |(number, before): (&Option<ClassId>, &u64)| {
            let mut own = number.and_then(|number| counters.get(number as usize)).copied().unwrap_or_default();
            own.borrowed_bytes += before;
            own
        };
        self.present.iter().zip(&self.borrowed).map(row).collect()
    }

    /// Notes a new class, in the row of its name, or in a new one.
    fn add(&mut self, number: ClassId, name: &str, parent: ClassId, settings: Settings) {
        let parent = Some(self.row(parent));
        let row = match self.rows.iter().position(|(own, _)| own == name) {
            Some(row) => row,
            None => {
                self.rows.push((String::new(), None));
                self.present.push(None);
                self.borrowed.push(0);
                self.rows.len() - 1
            }
        };
        self.rows[row] = (name.to_owned(), parent);
        self.present[row] = Some(number);
        let at = number as usize;
        if self.numbers.len() <= at {
            self.numbers.resize(at + 1, ROOT);
            self.settings.resize(at + 1, Settings::new());
        }
        self.numbers[at] = row as ClassId;
        self.settings[at] = settings;
    }
}

impl Port {
    /// The counters of a port with a policy, after `span`; `None` without a policy.
    pub fn stat(&self, span: Nanos) -> Option<LinkStat> {
        let policy = self.policy.as_ref()?;
        let mut names = vec![None; policy.numbers.len()];
        for ((name, _), number) in policy.rows.iter().zip(&policy.present) {
            if let Some(own) = number.and_then(|number| names.get_mut(number as usize)) {
                *own = Some(name.clone());
            }
        }
        let stat = |engine| {
            let stat = LinkStat::with(&policy.link, &names, &policy.settings, policy.default, engine, span);
            LinkStat { name: policy.name.clone(), ..stat }
        };
        self.engine.iter().map(stat).reduce(|mut sum, more| {
            sum.add(&more);
            sum
        })
    }

    /// Applies a change of a class. `keys`: the keys of the flows that a new class is for.
    pub fn change(&mut self, now: Nanos, change: &ClassChange, keys: &[Key]) -> Result<(), String> {
        let Some(policy) = &mut self.policy else { return Ok(()) };
        match change {
            ClassChange::Set { class, parent, set } => {
                let id = policy.known(class)?;
                let row = policy.row(id) as usize;
                let parent = match (parent, policy.rows[row].1) {
                    (Some(parent), _) => policy.known(parent)?,
                    (None, above) => above.and_then(|above| policy.present[above as usize]).unwrap_or(ROOT),
                };
                let mut settings = policy.settings[id as usize].clone();
                words(&policy.link, self.engine.rate(), parent, set, &mut settings)?;
                let change = Change::SetClass { class: id, parent, settings: settings.clone() };
                self.engine.apply(now, &change).map_err(|e| e.to_string())?;
                policy.settings[id as usize] = settings;
                policy.rows[row].1 = Some(policy.row(parent));
            }
            ClassChange::Add { class, parent, set } => {
                if policy.number(class).is_some() {
                    return Err(format!("link {} has a class {class:?} already", policy.link.name));
                }
                let parent = parent.as_ref().map_or(Ok(ROOT), |parent| policy.known(parent))?;
                let mut settings = Settings::new();
                words(&policy.link, self.engine.rate(), parent, set, &mut settings)?;
                let spec = ClassSpec { parent, settings: settings.clone(), queue: None, scheduler: None };
                let made = self.engine.apply(now, &Change::AddClass(spec)).map_err(|e| e.to_string())?;
                let Some(id) = made else { return Err("the engine returned no new class".into()) };
                policy.add(id, class, parent, settings);
                policy.rules.rules.splice(0..0, keys.iter().map(|key| exactly(key, id)));
                let change = Change::SetRules { rules: policy.rules.clone(), default: policy.default };
                self.engine.apply(now, &change).map_err(|e| e.to_string())?;
            }
            ClassChange::Remove { class, heir } => {
                let id = policy.known(class)?;
                let heir = heir.as_ref().map(|heir| policy.known(heir)).transpose()?;
                policy.rules.rules.retain(|rule| rule.class != id);
                if policy.default == Some(id) {
                    policy.default = heir;
                }
                let borrowed = self.engine.all_counters().get(id as usize).map_or(0, |counted| counted.borrowed_bytes);
                let change = Change::SetRules { rules: policy.rules.clone(), default: policy.default };
                self.engine.apply(now, &change).map_err(|e| e.to_string())?;
                self.engine.apply(now, &Change::RemoveClass { class: id, heir }).map_err(|e| e.to_string())?;
                let row = policy.row(id) as usize;
                policy.present[row] = None;
                policy.borrowed[row] += borrowed;
            }
        }
        Ok(())
    }
}

/// A rule for exactly one flow.
fn exactly(key: &Key, class: ClassId) -> Rule {
    let v6 = key.family == 6;
    let mask = if v6 { u128::MAX } else { u128::from(u32::MAX) };
    let address = |bits| Values::Addresses(vec![Address { v6, bits, mask }]);
    let number = |n: u32| Values::Ranges(vec![(n, n)]);
    let term = |field, values| Term { field, negated: false, values };
    let mut terms = vec![
        term(Field::Src, address(key.src)),
        term(Field::Dst, address(key.dst)),
        term(Field::Proto, number(u32::from(key.proto))),
    ];
    terms.extend(key.sport().map(|port| term(Field::SrcPort, number(u32::from(port)))));
    terms.extend(key.dport().map(|port| term(Field::DstPort, number(u32::from(port)))));
    Rule { terms, class, number: 0 }
}

/// Reads the settings of a case's event for a class below `parent`, by the words of the scheduler
/// that serves that class.
fn words(
    link: &Link,
    rate: Rate,
    parent: ClassId,
    set: &[(String, WordValue)],
    settings: &mut Settings,
) -> Result<(), String> {
    // The scheduler of the parent's children: the parent's own, if it holds one.
    let held = link.spec.classes.get(parent as usize).and_then(|class| class.scheduler.as_ref()).map(|s| s.name);
    let name = held.unwrap_or_else(|| link.scheduler_of(parent));
    let table = schedule::find(name).map_or(&[][..], |entry| entry.class_words);
    for (word, value) in set {
        if word == "share" {
            let WordValue::Text(text) = value else { return Err("a share is written as \"20%\"".into()) };
            let Some(share) = literal::part_of(text, rate) else {
                return Err(format!("{text:?} is not a share; write one as \"20%\""));
            };
            if !table.iter().any(|w| w.name == "rate") {
                return Err(format!("a class of {name} has no share"));
            }
            settings.set("rate", Value::Rate(share));
            continue;
        }
        let Some(known) = table.iter().find(|w| w.name == word) else {
            let hint =
                nearest(word, table.iter().map(|w| w.name)).map(|w| format!("; did you mean {w}?")).unwrap_or_default();
            return Err(format!("a class of {name} has no word {word:?}{hint}"));
        };
        match self::value(known, value)? {
            Some(value) => {
                settings.set(known.name, value);
            }
            None => settings.unset(known.name),
        }
    }
    Ok(())
}

/// The value of a word; `None` for a flag that is set to false.
fn value(word: &Word, value: &WordValue) -> Result<Option<Value>, String> {
    let name = word.name;
    let bounds = |n: u64, min: u64, max: u64| {
        if (min..=max).contains(&n) { Ok(n) } else { Err(format!("{name} is {min} to {max}")) }
    };
    let number = |parse: fn(&str) -> Result<u64, String>| match value {
        WordValue::Number(n) => Ok(*n),
        WordValue::Text(text) => parse(text),
        WordValue::Flag(_) => Err(format!("{name} takes a value")),
    };
    Ok(Some(match word.kind {
        Kind::Flag => match value {
            WordValue::Flag(true) => Value::Flag,
            WordValue::Flag(false) => return Ok(None),
            _ => return Err(format!("{name} is true or false")),
        },
        Kind::Rate => Value::Rate(Rate::bit_s(number(|text| Ok(literal::rate(text)?.as_bit_s()))?)),
        Kind::Curve => Value::Curve(match value {
            WordValue::Number(n) => ServiceCurve::linear(Rate::bit_s(*n)),
            WordValue::Text(text) => literal::curve(text)?,
            WordValue::Flag(_) => return Err(format!("{name} takes a rate, or \"R1 for T then R2\"")),
        }),
        Kind::Int { min, max } => {
            Value::Int(bounds(number(|text| text.parse().map_err(|_| format!("{text:?} is no number")))?, min, max)?)
        }
        Kind::Bytes { min, max } => Value::Bytes(bounds(number(|text| Ok(literal::size(text)?))?, min, max)?),
        Kind::Time => Value::Time(number(|text| Ok(literal::time(text)?))?),
        Kind::Limit | Kind::Fraction | Kind::Percent => return Err(format!("{name} cannot be changed by an event")),
        Kind::Choice(choices) => match value {
            WordValue::Text(text) => match choices.iter().find(|c| *c == text) {
                Some(choice) => Value::Choice(choice),
                None => return Err(format!("{name} is one of {}", choices.join(", "))),
            },
            _ => return Err(format!("{name} is one of {}", choices.join(", "))),
        },
    }))
}
