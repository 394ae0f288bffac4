//! What a policy promises its classes: the highest rate that each may reach, the rate that each can
//! count on, and the longest delay of its packets.

mod ceiling;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;

use altq_engine::queue;
use altq_engine::schedule::promise::{Bound, Bounds, Member, Place, Promise};
use altq_engine::schedule::{self, OwnPackets, Role};
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassId, ROOT, Regulator};
use altq_engine::units::{Nanos, Rate};

use crate::policy::{Link, Path};

/// The longest delay of a class's packets until their last bit has left, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayBound {
    /// The bound for a source that keeps to the class's guarantee.
    pub conforming: Option<Nanos>,
    /// The bound for the last packet of a full queue.
    pub queue_full: Option<Nanos>,
    /// What the source may send at once, in bytes on the wire; 0 without a bound.
    pub burst: u64,
    /// What the bounds assume, or why there are none.
    pub assumes: String,
}

impl DelayBound {
    fn none(why: impl Into<String>) -> DelayBound {
        DelayBound { conforming: None, queue_full: None, burst: 0, assumes: why.into() }
    }
}

/// What the classes of a link are promised: what they can count on, and the delay bounds that
/// follow.
pub struct Promises<'l> {
    link: &'l Link,
    /// For each class: whether it may hold packets of its own.
    holders: Vec<bool>,
    /// For each class: the index of the division that serves it, and its index in that division.
    standing: Vec<(usize, usize)>,
    /// All divisions, that of the link's scheduler first.
    places: Vec<Division>,
    /// For each class: whether it has a meter that drops packets of several classes.
    shared: Vec<bool>,
    /// For each class: the delay bounds that the link's own scheduler computes, on first use.
    bounds: OnceCell<Vec<Result<Bound, String>>>,
}

/// A scheduler and the classes among which it divides a rate.
struct Division {
    /// The class that holds the scheduler; the root for the link's own.
    holder: ClassId,
    /// The classes that it serves, parents first.
    classes: Vec<ClassId>,
    /// The same classes as their scheduler sees them.
    members: Vec<Served>,
    /// Why its classes are promised nothing, if so.
    nothing: Option<String>,
    /// What each class is promised; computed on first use.
    promises: OnceCell<Vec<Result<Promise, String>>>,
    /// What each class has while all have packets, where its scheduler says so; computed on first
    /// use.
    long_run: OnceCell<Option<Vec<Rate>>>,
    /// What the words guarantee all of them together, in bit/s; computed on first use.
    asked: OnceCell<u128>,
}

/// A [`Member`] that has its words.
struct Served {
    parent: Option<usize>,
    settings: Settings,
    leaf: bool,
    packets: bool,
    holds: bool,
}

impl<'l> Promises<'l> {
    /// Finds the schedulers of a link and their classes.
    pub fn new(link: &'l Link) -> Promises<'l> {
        let (children, holders) = (link.children(), link.holders());
        let mut places = vec![Division::of(ROOT)];
        let mut standing = vec![(0, 0); children.len()];
        // For each class: the division of the scheduler that serves its children.
        let mut below = vec![0; children.len()];
        for (id, spec) in link.spec.classes.iter().enumerate().skip(1) {
            let place = below.get(spec.parent as usize).copied().unwrap_or(0);
            let division = &mut places[place];
            let parent = (spec.parent != division.holder).then(|| standing[spec.parent as usize].1);
            let holds = spec.scheduler.is_some();
            standing[id] = (place, division.classes.len());
            division.classes.push(id as ClassId);
            let guessed = holds
                || link
                    .queue(id as ClassId)
                    .and_then(|queue| queue::find(queue.name))
                    .is_some_and(queue::Entry::guesses);
            let leaf = holds || children[id].is_empty();
            let packets = leaf || holders[id];
            division.members.push(Served { parent, settings: spec.settings.clone(), leaf, packets, holds: guessed });
            below[id] = place;
            if holds {
                below[id] = places.len();
                places.push(Division::of(id as ClassId));
            }
        }
        for place in &mut places {
            place.own_packets(link, &holders);
        }
        let shared = shared_meters(link, &holders);
        Promises { link, holders, standing, places, shared, bounds: OnceCell::new() }
    }

    /// What a class is promised by all schedulers above it together, or why it is promised nothing.
    pub fn promise(&self, class: ClassId) -> Result<Promise, String> {
        if class == ROOT {
            return Ok(Promise::new(0, self.link.spec.rate));
        }
        let Some(&(place, at)) = self.standing.get(class as usize) else {
            return Err("there is no such class".to_owned());
        };
        let division = &self.places[place];
        let promised = self.promise(division.holder).map_err(|why| {
            format!(
                "`{}`, which holds the scheduler, is promised nothing: {why}",
                self.link.class_name(division.holder)
            )
        })?;
        if let Some(why) = &division.nothing {
            return Err(why.clone());
        }
        if let Some(why) = self.shared_meter(class) {
            return Err(why);
        }
        let holder = division.holder;
        if self.is_policed(holder) {
            let name = self.link.class_name(holder);
            return Err(format!(
                "`{name}`, which holds the scheduler, is policed: one class may spend the tokens of all"
            ));
        }
        let promises = division.promises.get_or_init(|| {
            self.in_place(division, class, promised, |entry, place| (entry.promises)(place))
                .unwrap_or_else(|| vec![Err("no scheduler serves it".to_owned()); division.members.len()])
        });
        promises.get(at).cloned().unwrap_or_else(|| Err("there is no such class".to_owned()))
    }

    /// Whether a meter above a class drops packets of others as well.
    pub(crate) fn shares_meter(&self, class: ClassId) -> bool {
        self.shared_meter(class).is_some()
    }

    /// Why a class is promised nothing although its scheduler promises it something: a class above
    /// it, or the link, has a meter that drops packets, and holds packets of other classes as well.
    fn shared_meter(&self, class: ClassId) -> Option<String> {
        let mut at = class;
        while at != ROOT {
            at = self.link.spec.classes.get(at as usize)?.parent;
            if self.shared.get(at as usize).is_some_and(|shared| *shared) {
                let name = self.link.class_name(at);
                return Some(format!("the meter of `{name}` drops packets: one class may spend the tokens of all"));
            }
        }
        None
    }

    /// What a class has in the long run while all classes have packets, if its scheduler says so.
    /// With `overcommit` nothing is said: then the words may not fit by themselves.
    fn long_run(&self, class: ClassId) -> Option<Rate> {
        let &(place, at) = self.standing.get(class as usize).filter(|_| !self.link.overcommit)?;
        let division = self.places.get(place).filter(|_| class != ROOT)?;
        let rates = division.long_run.get_or_init(|| {
            let promised = self.promise(division.holder).ok()?;
            self.in_place(division, class, promised, |entry, place| entry.long_run.and_then(|of| of(place))).flatten()
        });
        rates.as_ref()?.get(at).copied()
    }

    /// Calls `of` with the scheduler of the division of `class`, and with the division as that sees
    /// it. `None` if no scheduler serves the class.
    fn in_place<T>(
        &self,
        division: &Division,
        class: ClassId,
        promised: Promise,
        of: impl FnOnce(&schedule::Entry, &Place<'_>) -> T,
    ) -> Option<T> {
        let scheduler = self.link.spec.serving(class)?;
        let entry = schedule::find(scheduler.name)?;
        let members: Vec<Member<'_>> = division
            .members
            .iter()
            .map(|Served { parent, settings, leaf, packets, holds }| Member {
                parent: *parent,
                settings,
                leaf: *leaf,
                packets: *packets,
                holds: *holds,
            })
            .collect();
        let place = Place {
            promised: promised.steady(),
            rate: self.link.spec.measure(class),
            packet: self.link.spec.overhead.charge(self.link.spec.mtu),
            scheduler: &scheduler.settings,
            classes: &members,
        };
        Some(of(entry, &place))
    }

    /// The rate that a class can count on: its guarantee, or the rate that follows from what its
    /// scheduler promises; in a class of another scheduler no more than what that class can count
    /// on. Never more than its [ceiling](Link::ceiling), where its words say both, and never more
    /// than it has while all classes have packets ([`schedule::Entry::long_run`]). `None` where
    /// nothing is guaranteed.
    pub fn guaranteed(&self, class: ClassId) -> Option<Rate> {
        Some(self.promised_rate(class)?.min(self.link.sure_ceiling(class)))
    }

    fn promised_rate(&self, class: ClassId) -> Option<Rate> {
        let words = self.link.guarantee(class).map(|rate| self.long_run(class).map_or(rate, |most| rate.min(most)));
        if class == ROOT {
            return words;
        }
        if self.shared_meter(class).is_some() {
            return words.map(|_| Rate::ZERO);
        }
        let written = words.filter(|rate| !rate.is_zero());
        let promised = || self.promise(class).ok().map(|promise| promise.rate());
        let (place, _) = *self.standing.get(class as usize)?;
        if place == 0 {
            return written.or_else(promised).or(words);
        }
        let holder = self.places[place].holder;
        match self.guaranteed(holder).filter(|above| !above.is_zero()) {
            None => words.map(|_| Rate::ZERO),
            // Where nothing is promised, for a reason that concerns delays, the words are what is
            // known, if there is that much; or what the scheduler says that all have in the long
            // run.
            Some(above) => {
                let fits = !self.is_policed(holder) && self.asked(place) <= u128::from(above.as_bit_s());
                let said = fits || self.long_run(class).is_some() || self.promises_no_delay(class);
                promised().or_else(|| words.map(|rate| if said { rate.min(above) } else { Rate::ZERO }))
            }
        }
    }

    /// Whether a class that holds a scheduler is policed.
    fn is_policed(&self, holder: ClassId) -> bool {
        let words = self.link.spec.classes.get(holder as usize).map(|class| &class.settings);
        words.zip(self.link.entry_of(holder)).is_some_and(|(words, entry)| (entry.polices)(words))
    }

    /// What the words guarantee all classes of a division together, in bit/s.
    fn asked(&self, place: usize) -> u128 {
        let Some(division) = self.places.get(place) else { return 0 };
        *division.asked.get_or_init(|| {
            let tops = division.classes.iter().zip(&division.members).filter(|(_, member)| member.parent.is_none());
            tops.map(|(class, _)| u128::from(self.link.guarantee(*class).unwrap_or_default().as_bit_s())).sum()
        })
    }

    /// Whether the scheduler of a class promises no class a delay, but keeps to its words.
    fn promises_no_delay(&self, class: ClassId) -> bool {
        let words = self.link.spec.serving(class).map(|scheduler| &scheduler.settings);
        words.zip(self.link.entry_of(class)).is_some_and(|(words, entry)| (entry.no_bound)(words).is_some())
    }

    /// The delay bounds of a class: what its schedulers promise, and the wait in the device.
    pub fn delay_bound(&self, class: ClassId) -> DelayBound {
        let bound = self.by_schedulers(class);
        let link = self.link;
        if bound.conforming.is_none() {
            return bound;
        }
        let DelayBound { conforming, queue_full, burst, mut assumes } = bound;
        if link.reservations.is_some() {
            assumes.push_str("; nothing is reserved: packets of reservations may go first");
        }
        let Some(path) = link.path() else { return DelayBound { conforming, queue_full, burst, assumes } };
        assumes.push_str(&format!("; no packet of the link has more than {} bytes", link.spec.mtu));
        // What is handed to the device waits there in the order in which it came, whatever its
        // class.
        let ahead = match (link.spec.regulator, link.bucket()) {
            (Regulator::None, _) if path != Path::Kernel => {
                let why = "without a regulator packets wait in the device, in the order in which they came";
                return DelayBound::none(why);
            }
            (_, Some(depth)) if path != Path::Kernel => {
                // After idleness two full buckets and a packet may go at once
                // (shape/token_bucket.rs).
                assumes.push_str(&format!("; up to two buckets of {depth} bytes wait in the device before it"));
                let packet = u64::from(link.spec.overhead.charge(link.spec.mtu));
                link.spec.rate.time_for(2 * u64::from(depth) + packet)
            }
            _ => 0,
        };
        let late = |bound: Option<Nanos>| bound.and_then(|bound| bound.checked_add(ahead));
        DelayBound { conforming: late(conforming), queue_full: late(queue_full), burst, assumes }
    }

    /// The delay bounds of a class until a wire of the link's rate has it, by what its schedulers
    /// promise.
    fn by_schedulers(&self, class: ClassId) -> DelayBound {
        let link = self.link;
        let Some(spec) = link.spec.classes.get(class as usize) else {
            return DelayBound::none("there is no such class");
        };
        let serving = link.spec.serving(class).and_then(|scheduler| Some((scheduler, schedule::find(scheduler.name)?)));
        let Some((scheduler, entry)) = serving else { return DelayBound::none("no scheduler serves it") };
        let better = entry.bounds.filter(|_| link.spec.served_by_root(class));
        // Packets that wait in the root belong to no class, but some schedulers serve them like
        // those of a class.
        if class == ROOT && (better.is_none() || !self.holders[ROOT as usize]) {
            return DelayBound::none("the root is the link: its classes have the bounds");
        }
        if let Some(why) = (entry.no_bound)(&scheduler.settings) {
            return DelayBound::none(why);
        }
        if self.holders[class as usize] || spec.scheduler.is_some() {
            if let Some(why) = self.shared_meter(class) {
                return DelayBound::none(why);
            }
            // Packets of its own beside those of classes below it.
            if self.shared[class as usize] && self.holders[class as usize] {
                return DelayBound::none("its meter drops packets: those of classes below it may spend all tokens");
            }
        }
        if let Some(bounds) = better {
            return self.better(class, bounds);
        }
        if !self.holders[class as usize] && spec.scheduler.is_none() {
            return DelayBound::none("it holds no packets of its own");
        }
        if let Some(why) = drops_all(link, class, link.spec.mtu.into()) {
            return DelayBound::none(why);
        }
        let promise = match self.promise(class) {
            Ok(promise) => promise,
            Err(why) => return DelayBound::none(why),
        };
        // Where more may be guaranteed than there is, a class may be promised less than its
        // guarantee. A source that keeps to the guarantee then waits ever longer.
        let asked = link.overcommit.then(|| self.guaranteed(class)).flatten();
        if let Some(asked) = asked.filter(|asked| promise.rate() < *asked) {
            let count = promise.rate();
            return DelayBound::none(format!(
                "the classes are guaranteed more than there is: of its {asked} it can count on {count}"
            ));
        }
        let packet = u64::from(link.spec.overhead.charge(link.spec.mtu));
        let burst = self.burst(class, (entry.burst)(&link.spec, &spec.settings));
        let conforming = promise.delay(burst);
        let rate = promise.rate().min(link.sure_ceiling(class));
        let assumes = format!("the source sends at most {rate} and bursts of {burst} bytes, counted on the wire");
        if conforming.is_none() {
            return DelayBound::none("the bound does not fit into 64 bits of nanoseconds");
        }
        queue_full(link, class, DelayBound { conforming, queue_full: None, burst, assumes }, |packets| {
            // The packets of a full queue, and one that may just have been sent.
            promise.steady().delay(packets.saturating_add(1).saturating_mul(packet))
        })
    }
    /// The delay bounds of a class of the link's own scheduler, as that scheduler computes them.
    fn better(&self, class: ClassId, bounds: Bounds) -> DelayBound {
        let link = self.link;
        let bound = match self.bounds.get_or_init(|| bounds(&link.spec)).get(class as usize) {
            Some(Ok(bound)) => bound,
            Some(Err(why)) => return DelayBound::none(why),
            None => return DelayBound::none("there is no such class"),
        };
        let Bound { conforming, rate, burst, packetsize } = *bound;
        let burst = self.burst(class, burst);
        if let Some(why) = drops_all(link, class, packetsize) {
            return DelayBound::none(why);
        }
        let sends = rate.min(link.sure_ceiling(class));
        let assumes = format!(
            "the source sends at most {sends} and bursts of {burst} bytes, counted on the wire, in packets of at most \
             {packetsize} bytes"
        );
        let packet = u64::from(link.spec.overhead.charge(link.spec.mtu));
        // The last packet of a full queue waits for the whole queue, and for one packet that may
        // just have been sent, at the class's rate.
        let bound = DelayBound { conforming: Some(conforming), queue_full: None, burst, assumes };
        queue_full(link, class, bound, |packets| {
            let wait = rate.time_for(packets.saturating_add(1).saturating_mul(packet));
            wait.checked_add(conforming).filter(|wait| *wait < Nanos::MAX)
        })
    }
}

impl Promises<'_> {
    /// What a source may send at once: no more than meters on its way let through.
    fn burst(&self, class: ClassId, burst: u64) -> u64 {
        let mut least = burst;
        let mut at = class;
        loop {
            least = self.link.meter(at).and_then(|meter| meter.at_once()).map_or(least, |most| least.min(most));
            match self.link.spec.classes.get(at as usize) {
                Some(spec) if at != ROOT => at = spec.parent,
                _ => return least,
            }
        }
    }
}

impl Division {
    fn of(holder: ClassId) -> Division {
        Division {
            holder,
            classes: Vec::new(),
            members: Vec::new(),
            nothing: None,
            promises: OnceCell::new(),
            long_run: OnceCell::new(),
            asked: OnceCell::new(),
        }
    }

    /// Packets that rules send to the class that holds the scheduler are served as a further class,
    /// without words or with what the others leave (docs/reference/cbq.md rule 16).
    fn own_packets(&mut self, link: &Link, holders: &[bool]) {
        if !holders.get(self.holder as usize).is_some_and(|holds| *holds) {
            return;
        }
        let Some(first) = self.classes.first() else { return };
        let mut words = Settings::new();
        let Some(entry) = link.entry_of(*first) else { return };
        match (entry.own_packets, entry.word_of(Role::Guarantee)) {
            (OwnPackets::Rest, Some(word)) => {
                let tops = self.members.iter().filter(|member| member.parent.is_none());
                let sum = tops
                    .filter_map(|member| member.settings.rate(word))
                    .fold(0, |sum, rate| sum + u128::from(rate.as_bit_s()));
                let left = u128::from(link.spec.measure(*first).as_bit_s()).saturating_sub(sum);
                words.set(word, Value::Rate(Rate::bit_s(u64::try_from(left).unwrap_or(u64::MAX))));
            }
            (OwnPackets::Plain, _) => {}
            _ => {
                let (holder, name) = (link.class_name(self.holder), entry.name);
                self.nothing = Some(format!(
                    "packets go to `{holder}` itself as well, and {name} does not say what they leave to its classes"
                ));
            }
        }
        self.members.push(Served { parent: None, settings: words, leaf: true, packets: true, holds: false });
    }
}

/// For each class, whether it has a meter that drops packets, and more than one class holds packets
/// at or below it.
fn shared_meters(link: &Link, holders: &[bool]) -> Vec<bool> {
    let mut holding: Vec<u32> = holders.iter().map(|holds| u32::from(*holds)).collect();
    for (class, spec) in link.spec.classes.iter().enumerate().skip(1).rev() {
        let below = holding[class];
        if let Some(above) = holding.get_mut(spec.parent as usize) {
            *above += below;
        }
    }
    let drops = |class: usize| link.meter(class as ClassId).is_some_and(|meter| meter.most().is_some());
    holding.iter().enumerate().map(|(class, holding)| *holding > 1 && drops(class)).collect()
}

/// Why packets of a class that are this long, in bytes at layer 3, have no bound: its queue has no
/// room for one of them. `None` if it has, or if the class holds a scheduler instead of a queue.
fn drops_all(link: &Link, class: ClassId, packet: u64) -> Option<String> {
    link.spec.classes.get(class as usize).filter(|spec| spec.scheduler.is_none())?;
    match link.queue(class)?.limit {
        Limit::Packets(0) => Some("its queue has no room for a packet".to_owned()),
        Limit::Bytes(limit) if u64::from(limit) < packet => {
            Some(format!("its queue of {limit} bytes drops each packet of {packet} bytes"))
        }
        _ => None,
    }
}

/// The bound of a full queue, from the packets that it holds; `None` without one.
fn queue_full(link: &Link, class: ClassId, bound: DelayBound, of: impl Fn(u64) -> Option<Nanos>) -> DelayBound {
    let DelayBound { conforming, burst, mut assumes, .. } = bound;
    let none = |assumes: String| DelayBound { conforming, queue_full: None, burst, assumes };
    if link.spec.classes[class as usize].scheduler.is_some() {
        return none(format!("{assumes}; the delay in the scheduler inside it comes on top"));
    }
    let Some(queue) = link.queue(class) else { return none(assumes) };
    if !queue::find(queue.name).is_some_and(|entry| entry.in_order) {
        return none(format!(
            "{assumes}, in packets that no other overtakes, as those of one flow; in {} packets of others may, so \
             there is no bound for a full queue",
            queue.name
        ));
    }
    let mtu = u64::from(link.spec.mtu);
    let packets = match queue.limit {
        Limit::Packets(n) => u64::from(n),
        Limit::Bytes(n) => u64::from(n).div_ceil(mtu.max(1)),
    };
    assumes.push_str(&format!("; a full queue holds packets of {mtu} bytes; timers are exact"));
    DelayBound { conforming, queue_full: of(packets), burst, assumes }
}
