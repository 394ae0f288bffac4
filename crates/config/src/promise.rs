//! What a policy promises its classes: the highest rate that each may reach, the rate that each can
//! count on, and the longest delay of its packets.

use std::cell::OnceCell;

use altq_engine::queue;
use altq_engine::schedule::promise::{Bound, Bounds, Member, Place, Promise};
use altq_engine::schedule::{self, OwnPackets, Role};
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::shape::meter::MeterSpec;
use altq_engine::spec::{ClassId, QueueSpec, ROOT};
use altq_engine::units::{Nanos, Rate};

use crate::policy::Link;

impl Link {
    /// The highest rate that a class may reach in the long run: the lowest of the link's rate, what
    /// its words and those of the classes above it allow, and what meters that drop packets let
    /// through.
    pub fn ceiling(&self, class: ClassId) -> Rate {
        let mut most = self.spec.rate;
        let mut at = class;
        most = self.by_deadline_only(class).map_or(most, |ceiling| most.min(ceiling));
        loop {
            most = self.own_ceiling(at).map_or(most, |(ceiling, _)| most.min(ceiling));
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

    /// The highest rate that the words of a class alone and its meter let it reach, if they hold it
    /// to any; and the word.
    pub(crate) fn own_ceiling(&self, class: ClassId) -> Option<(Rate, &'static str)> {
        let settings = &self.spec.classes.get(class as usize)?.settings;
        let scheduler = self.entry_of(class).filter(|_| class != ROOT).and_then(|entry| entry.ceiling(settings));
        let metered = MeterSpec::read(settings).ok().flatten().and_then(|meter| Some((meter.most()?, "meter")));
        scheduler.into_iter().chain(metered).min_by_key(|(rate, _)| *rate)
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
        Promises { link, holders, standing, places, bounds: OnceCell::new() }
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
        let holder = division.holder;
        let words = self.link.spec.classes.get(holder as usize).map(|class| &class.settings);
        if words.zip(self.link.entry_of(holder)).is_some_and(|(words, entry)| (entry.polices)(words)) {
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

    /// What a class of the link's own scheduler has in the long run while all classes have packets,
    /// if its scheduler says so. With `overcommit` nothing is said: then the words may not fit by
    /// themselves.
    fn long_run(&self, class: ClassId) -> Option<Rate> {
        let &(place, at) = self.standing.get(class as usize).filter(|_| !self.link.overcommit)?;
        let division = self.places.get(place).filter(|division| division.holder == ROOT && class != ROOT)?;
        let rates = division.long_run.get_or_init(|| {
            let promised = Promise::new(0, self.link.spec.rate);
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
        Some(self.promised_rate(class)?.min(self.link.ceiling(class)))
    }

    fn promised_rate(&self, class: ClassId) -> Option<Rate> {
        let words = self.link.guarantee(class).map(|rate| self.long_run(class).map_or(rate, |most| rate.min(most)));
        if class == ROOT {
            return words;
        }
        let written = words.filter(|rate| !rate.is_zero());
        let promised = || self.promise(class).ok().map(|promise| promise.rate());
        let (place, _) = *self.standing.get(class as usize)?;
        if place == 0 {
            return written.or_else(promised).or(words);
        }
        match self.guaranteed(self.places[place].holder).filter(|above| !above.is_zero()) {
            None => words.map(|_| Rate::ZERO),
            Some(above) => promised().or_else(|| written.map(|rate| rate.min(above))).or(words),
        }
    }

    /// The delay bounds of a class.
    pub fn delay_bound(&self, class: ClassId) -> DelayBound {
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
        let burst = (entry.burst)(&link.spec, &spec.settings);
        let conforming = promise.delay(burst);
        let rate = promise.rate().min(link.ceiling(class));
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
        if let Some(why) = drops_all(link, class, packetsize) {
            return DelayBound::none(why);
        }
        let sends = rate.min(link.ceiling(class));
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

impl Division {
    fn of(holder: ClassId) -> Division {
        Division {
            holder,
            classes: Vec::new(),
            members: Vec::new(),
            nothing: None,
            promises: OnceCell::new(),
            long_run: OnceCell::new(),
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
            "{assumes}; there is no bound for a full queue, because in {} others may overtake the last packet",
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

#[cfg(test)]
mod tests {
    use crate::{Language, parse_str};

    use super::*;

    fn bound(text: &str, class: &str) -> DelayBound {
        let policy = parse_str(text, "t.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
        let link = &policy.links[0];
        Promises::new(link).delay_bound(link.class(class).unwrap())
    }

    #[test]
    fn the_formula_by_hand() {
        // docs/reference/cbq.md rule 9: the burst of voice, 2 x 160 bytes, and one packet of 1500
        // are 1820 bytes at 10 Mbit/s.
        let text = "link l { rate 10Mbit/s scheduler cbq
            class voice { share 5% priority 7 packetsize 160 queue drop_tail { limit 10packets } }
            class a { share 45% borrow }  class b { share 50% borrow default } }";
        let voice = bound(text, "voice");
        assert_eq!(voice.conforming, Some(1820 * 8 * 100));
        // A full queue: ten packets of 1500 bytes and one just sent, at 500 kbit/s.
        assert_eq!(voice.queue_full, Some(1820 * 8 * 100 + 11 * 1500 * 8 * 2000));
        // For a: the bursts of a and b, 2 x 1500 bytes each, and one packet; the burst of voice,
        // 320 bytes, and one packet. All at the 9.5 Mbit/s that voice leaves. A byte at 4.5 Mbit/s
        // takes no whole number of nanoseconds: three of the link's are for rounding.
        let bits = (3000 + 3000 + 1500 + 320 + 1500) * 8;
        let work = bits * 1_000_000_000_u64 + 3 * 10_000_000;
        assert_eq!(bound(text, "a").conforming, Some(work.div_ceil(9_500_000)));
    }

    fn link(text: &str) -> Link {
        let policy = parse_str(text, "t.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
        policy.links[0].clone()
    }

    fn guaranteed(text: &str, class: &str) -> Option<u64> {
        let link = link(text);
        Promises::new(&link).guaranteed(link.class(class).unwrap()).map(Rate::as_bit_s)
    }

    #[test]
    fn priq_by_hand() {
        // A burst of one packet and one packet of another class are 3000 bytes at 10 Mbit/s. A full
        // queue: ten packets that wait, one just sent, and one of another class.
        let text = "link l { rate 10Mbit/s scheduler priq
            class voice { priority 15 queue drop_tail { limit 10packets } }  class rest { default } }";
        assert_eq!(
            (bound(text, "voice").conforming, bound(text, "voice").queue_full),
            (Some(2_400_000), Some(12 * 1_200_000))
        );
        assert_eq!((guaranteed(text, "voice"), guaranteed(text, "rest")), (Some(10_000_000), None));
        assert_eq!(bound(text, "rest").conforming, None);
        assert!(bound(text, "voice").assumes.contains("10Mbit/s and bursts of 1500 bytes"));
        // Packets of the link itself have priority 1. They may take the whole rate from a class of
        // priority 0, and share it in turns with one of priority 1.
        let text = "link l { rate 10Mbit/s scheduler priq default class a { priority 1 } class b { priority 0 } }";
        assert!(bound(text, "a").assumes.contains("takes turns"));
        assert!(bound(text, "b").assumes.contains("higher priority"));
    }

    #[test]
    fn drr_in_others_by_hand() {
        // F = 9000 and Q = 3000, so the rate is a third of the link's. The latency is (6000 (1 +
        // 1/2)
        // + 3 * 1500) bytes at 10 Mbit/s; a burst of 1500 bytes at the class's rate comes on top.
        let classes = "class a { quantum 3000 }  class b { quantum 1500 }  class c { quantum 4500 }";
        let text = format!("link l {{ rate 10Mbit/s scheduler drr {classes} }}");
        assert_eq!(guaranteed(&text, "a"), Some(3_333_333));
        assert_eq!(bound(&text, "a").conforming, Some(13_500 * 800 + 3_600_001));
        // Inside the highest class of priq, every bound is longer by one packet of the link.
        let text = format!(
            "link l {{ rate 10Mbit/s scheduler priq class top {{ priority 15 scheduler drr {classes} }} \
             class low {{ }} }}"
        );
        assert_eq!(guaranteed(&text, "a"), Some(3_333_333));
        assert_eq!(bound(&text, "a").conforming, Some(13_500 * 800 + 3_600_001 + 1_200_000));
        let top = bound(&text, "top");
        assert!(top.conforming == Some(2_400_000) && top.queue_full.is_none() && top.assumes.contains("on top"));
        // Inside the other class of priq nothing is promised.
        let text = format!(
            "link l {{ rate 10Mbit/s scheduler priq class top {{ priority 15 }} \
             class low {{ scheduler drr {classes} }} }}"
        );
        assert_eq!((guaranteed(&text, "a"), bound(&text, "a").conforming), (None, None));
        assert!(
            bound(&text, "a")
                .assumes
                .contains("`low`, which holds the scheduler, is promised nothing: classes of higher")
        );
    }

    #[test]
    fn cbq_in_drr_by_hand() {
        // `a`, which holds the scheduler: F = 6000 and Q = 3000, so a latency of (3000 (1 + 2 *
        // 1500 / 3000) + 1500 + 1500) bytes, 7.2 ms, and a rate of 5 Mbit/s. Inside, by
        // docs/reference/cbq.md rule 9: the burst of v, 400 bytes, and a packet are 1900 bytes at 5
        // Mbit/s, 3.04 ms; the burst at 1 Mbit/s, 3.2 ms.
        let text = "link l { rate 10Mbit/s scheduler drr
            class a { quantum 3000 scheduler cbq class v { rate 1Mbit/s priority 7 packetsize 200 queue drop_tail { \
            limit 4packets } }
                                                 class w { rate 3Mbit/s borrow } }
            class b { quantum 3000 default } }";
        let of_v = bound(text, "v");
        assert_eq!(
            (guaranteed(text, "v"), of_v.conforming),
            (Some(1_000_000), Some(7_200_000 + 3_040_000 + 3_200_000))
        );
        // A full queue: four packets of 1500 bytes and one just sent, at 1 Mbit/s.
        assert_eq!(of_v.queue_full, Some(7_200_000 + 3_040_000 + 60_000_000));
        assert!(of_v.assumes.contains("bursts of 400 bytes"));
    }

    #[test]
    fn curves_by_hand() {
        // 2 Mbit/s for 5 ms are 1250 bytes. The other 250 bytes of a packet take 2 ms at 1 Mbit/s.
        // A packet of the link takes 1.2 ms. A full queue counts on the second slope alone: 11
        // packets at 1 Mbit/s.
        let text = "link l { rate 10Mbit/s scheduler hfsc
            class a { realtime 2Mbit/s for 5ms then 1Mbit/s  queue drop_tail { limit 10packets } }
            class b { linkshare 5Mbit/s default } }";
        let of_a = bound(text, "a");
        assert_eq!((of_a.conforming, of_a.queue_full), (Some(8_200_000), Some(132_000_000 + 1_200_000)));
        // A queue of flows has no bound when it is full: others may overtake the last packet again
        // and again.
        let text = "link l { rate 10Mbit/s scheduler priq class a { priority 15 queue fq_codel { } default } }";
        assert!(bound(text, "a").conforming.is_some() && bound(text, "a").queue_full.is_none());
    }

    /// What holds a class below its guarantee, by its words or a meter, is what it can count on,
    /// and what its source may send.
    #[test]
    fn a_guarantee_is_never_above_the_ceiling() {
        let meter = |kind: &str| format!("class a {{ rate 5Mbit/s borrow meter {kind} }} class b {{ default }}");
        for (scheduler, classes, expected) in [
            ("wfq", "class a { bandwidth 5Mbit/s police 1Mbit/s } class b { default }".to_owned(), 1),
            ("wfq", "class a { bandwidth 5Mbit/s shape 2Mbit/s } class b { default }".to_owned(), 2),
            ("wfq", "class a { low-latency 3Mbit/s police 1Mbit/s } class b { default }".to_owned(), 1),
            (
                "hfsc",
                "class a { linkshare 5Mbit/s upperlimit 2Mbit/s } class b { linkshare 5Mbit/s default }".into(),
                2,
            ),
            ("cbq", meter("bucket { cir 2Mbit/s cbs 3000 red drop }"), 2),
            ("cbq", meter("srtcm { cir 2Mbit/s cbs 3000 ebs 3000 yellow drop red drop }"), 2),
            ("cbq", meter("trtcm { cir 1Mbit/s cbs 3000 pir 4Mbit/s pbs 3000 red drop }"), 4),
            ("cbq", meter("trtcm { cir 1Mbit/s cbs 3000 pir 4Mbit/s pbs 3000 yellow drop red drop }"), 1),
            ("cbq", meter("trtcm { cir 1Mbit/s cbs 3000 pir 4Mbit/s pbs 3000 red dscp le }"), 5),
            ("hfsc", "class a { realtime 2Mbit/s } class b { linkshare 5Mbit/s default }".into(), 2),
            (
                "hfsc",
                "class a { realtime 8Mbit/s for 5ms then 2Mbit/s } class b { linkshare 5Mbit/s default }".into(),
                2,
            ),
        ] {
            let text = format!("link l {{ rate 10Mbit/s scheduler {scheduler} {classes} }}");
            let link = link(&text);
            let a = link.class("a").unwrap();
            let ceiling = if text.contains("red dscp") { 10 } else { expected };
            assert_eq!((guaranteed(&text, "a"), link.ceiling(a)), (Some(expected * 1_000_000), Rate::mbit_s(ceiling)));
            let bound = bound(&text, "a");
            let sends = format!("the source sends at most {} ", Rate::mbit_s(expected));
            assert!(bound.conforming.is_none() || bound.assumes.starts_with(&sends), "{text}: {}", bound.assumes);
        }
    }

    #[test]
    fn nothing_is_promised_where_nothing_holds() {
        for (text, class, why) in [
            ("link l { rate 1Mbit/s scheduler fifo class a { default } }", "a", "fifo guarantees nothing"),
            (
                "link l { rate 1Mbit/s scheduler cbq { estimator classic } class a { share 5% default } }",
                "a",
                "no delay",
            ),
            ("link l { rate 1Mbit/s scheduler cbq class a { borrow default } }", "a", "guaranteed nothing"),
            (
                "link l { rate 1Mbit/s scheduler cbq class a { share 5% class b { share 1% default } } }",
                "a",
                "no packets",
            ),
            (
                "link l { rate 1Mbit/s overcommit scheduler cbq class a { share 80% default } class b { share 80% } }",
                "a",
                "more than",
            ),
            (
                "link l { rate 1Mbit/s overcommit scheduler hfsc class a { linkshare 600kbit/s default } \
                 class b { linkshare 600kbit/s } }",
                "a",
                "of its 600kbit/s it can count on 500kbit/s",
            ),
            (
                "link l { rate 1Mbit/s scheduler cbq class a { share 0% borrow default } \
                 class b { share 100% priority 7 } }",
                "a",
                "nothing",
            ),
        ] {
            let bound = bound(text, class);
            assert_eq!((bound.conforming, bound.queue_full), (None, None), "{text}");
            assert!(bound.assumes.contains(why), "{}", bound.assumes);
        }
    }
}
