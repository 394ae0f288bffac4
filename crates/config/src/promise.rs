//! What a policy promises: the most that a class may have, and how long its packets wait at most.

use std::cell::OnceCell;

use altq_engine::schedule;
use altq_engine::schedule::promise::{Member, Place, Promise};
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::shape::meter::{Action, MeterSpec, Profile};
use altq_engine::spec::{ClassId, QueueSpec, ROOT};
use altq_engine::units::{Nanos, Rate, SECOND};

use crate::check::is_classic;
use crate::policy::Link;

/// Packets that idleness earns in the exact estimator when nothing is written
/// (docs/reference/cbq.md rule 10).
const MAXBURST: u64 = 2;
/// Priority of a class that states none.
const PRIORITY: u64 = 1;

impl Link {
    /// The most that a class can have: the rate of the nearest class from here up that does not
    /// borrow, or a ceiling (of htb: a ceil) on the way, or what a meter lets through that drops
    /// what is red, whichever is less; else the link's.
    pub fn ceiling(&self, class: ClassId) -> Rate {
        let mut most = self.spec.rate.min(self.metered(ROOT));
        let mut at = class;
        while at != ROOT {
            let Some(spec) = self.spec.classes.get(at as usize) else { break };
            most = most.min(self.metered(at));
            for word in ["ceiling", "shape", "police"] {
                most = spec.settings.rate(word).map_or(most, |ceiling| most.min(ceiling));
            }
            if let Some(limit) = spec.settings.curve("upperlimit") {
                most = most.min(limit.then);
            }
            if self.scheduler_of(at) == "htb" {
                most = most.min(spec.settings.rate("ceil").unwrap_or(self.guarantee(at).unwrap_or_default()));
            }
            // Only CBQ's classes are held to their guarantee.
            if self.scheduler_of(at) == "cbq" && !spec.settings.flag("borrow") {
                most = most.min(self.guarantee(at).unwrap_or_default());
            }
            at = spec.parent;
        }
        most
    }

    /// What a class's meter lets through in the long run, if it drops what is red; else the link's
    /// rate.
    fn metered(&self, class: ClassId) -> Rate {
        let settings = self.spec.classes.get(class as usize).map(|class| &class.settings);
        match settings.and_then(|settings| MeterSpec::read(settings).ok().flatten()) {
            Some(MeterSpec { profile, actions: [.., Action::Drop], .. }) => match profile {
                Profile::Bucket { cir, .. } | Profile::SingleRate { cir, .. } => cir,
                Profile::TwoRate { pir, .. } => pir,
            },
            _ => self.spec.rate,
        }
    }

    /// The queue of a class: its own, or the one that its scheduler gives.
    pub fn queue(&self, class: ClassId) -> Option<QueueSpec> {
        if let Some(queue) = &self.spec.classes.get(class as usize)?.queue {
            return Some(queue.clone());
        }
        let serving = self.serving(class)?;
        Some(schedule::find(serving.name)?.queue(&serving.settings, &self.spec.classes.get(class as usize)?.settings))
    }
}

/// How long a packet of a class waits at most, until its last bit has left, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayBound {
    /// Of a source that keeps to the class's guarantee.
    pub conforming: Option<Nanos>,
    /// The last packet of a full queue.
    pub queue_full: Option<Nanos>,
    /// What holds for the figures, or why there are none.
    pub assumes: String,
}

impl DelayBound {
    fn none(why: impl Into<String>) -> DelayBound {
        DelayBound { conforming: None, queue_full: None, assumes: why.into() }
    }
}

/// Queues that are first in, first out: of others the last packet may be overtaken.
const IN_ORDER: &[&str] = &["drop_tail", "drop_head", "red", "rio", "blue", "codel", "pie"];

/// What the classes of a link are promised: what they can count on, and the delay bounds that
/// follow.
pub struct Promises<'l> {
    link: &'l Link,
    /// By class: it holds packets of its own.
    holders: Vec<bool>,
    /// By class: the place whose scheduler serves it, and its number there.
    standing: Vec<(usize, usize)>,
    /// Places of schedulers: the link's first.
    places: Vec<Division>,
    rule9: Rule9,
}

/// What a scheduler divides among its classes.
struct Division {
    /// The class that holds the scheduler; the root for the link's own.
    holder: ClassId,
    /// The classes that it serves, parents first.
    classes: Vec<ClassId>,
    /// By class: the number of its parent here, its words, whether none is below it, whether it
    /// holds a scheduler.
    members: Vec<(Option<usize>, Settings, bool, bool)>,
    /// Why nothing here is promised.
    nothing: Option<String>,
    /// What each of them is, worked out when somebody asks.
    promises: OnceCell<Vec<Result<Promise, String>>>,
}

impl<'l> Promises<'l> {
    /// Looks at the places of a link's schedulers.
    pub fn new(link: &'l Link) -> Promises<'l> {
        let (children, holders) = (link.children(), link.holders());
        let mut places = vec![Division::of(ROOT)];
        let mut standing = vec![(0, 0); children.len()];
        // The place that a class divides among its children.
        let mut below = vec![0; children.len()];
        for (id, spec) in link.spec.classes.iter().enumerate().skip(1) {
            let place = below.get(spec.parent as usize).copied().unwrap_or(0);
            let division = &mut places[place];
            let parent = (spec.parent != division.holder).then(|| standing[spec.parent as usize].1);
            let holds = spec.scheduler.is_some();
            standing[id] = (place, division.classes.len());
            division.classes.push(id as ClassId);
            division.members.push((parent, spec.settings.clone(), holds || children[id].is_empty(), holds));
            below[id] = place;
            if holds {
                below[id] = places.len();
                places.push(Division::of(id as ClassId));
            }
        }
        for place in &mut places {
            place.own_packets(link, &holders);
        }
        Promises { link, rule9: Rule9::new(link, &children, &holders), holders, standing, places }
    }

    /// What a class is promised where it stands, through all schedulers above it; or why nothing
    /// is.
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
        let promises = division.promises.get_or_init(|| self.promises(division, class, promised));
        promises.get(at).cloned().unwrap_or_else(|| Err("there is no such class".to_owned()))
    }

    /// What the classes of a division are promised, of which `class` is one.
    fn promises(&self, division: &Division, class: ClassId, promised: Promise) -> Vec<Result<Promise, String>> {
        let entry = self.link.serving(class).and_then(|scheduler| Some((scheduler, schedule::find(scheduler.name)?)));
        let Some((scheduler, entry)) = entry else {
            return vec![Err("no scheduler serves it".to_owned()); division.members.len()];
        };
        let members: Vec<Member<'_>> = division
            .members
            .iter()
            .map(|(parent, settings, leaf, holds)| Member { parent: *parent, settings, leaf: *leaf, holds: *holds })
            .collect();
        let place = Place {
            promised: promised.steady(),
            rate: self.link.measure(class),
            packet: self.link.spec.overhead.charge(self.link.spec.mtu),
            scheduler: &scheduler.settings,
            classes: &members,
        };
        (entry.promises)(&place)
    }

    /// What a class can count on: its guarantee, or what its scheduler promises without naming a
    /// rate; inside of other classes no more than holds through all of them. `None` where nothing
    /// is guaranteed.
    pub fn guaranteed(&self, class: ClassId) -> Option<Rate> {
        let words = self.link.guarantee(class);
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
        let scheduler = link.scheduler_of(class);
        if link.served_by_root(class) && scheduler == "cbq" {
            return self.rule9.delay_bound(link, class);
        }
        if class == ROOT {
            return DelayBound::none("the root is the link: its classes have the bounds");
        }
        if is_classic(link, class) {
            return DelayBound::none("the classic estimator guarantees no delay");
        }
        if !self.holders[class as usize] && spec.scheduler.is_none() {
            return DelayBound::none("it holds no packets of its own");
        }
        let promise = match self.promise(class) {
            Ok(promise) => promise,
            Err(why) => return DelayBound::none(why),
        };
        // A burst is what cbq lets idleness earn, else one packet of the link.
        let packet = u64::from(link.spec.overhead.charge(link.spec.mtu));
        let burst = if scheduler == "cbq" { u64::try_from(burst(link, class)).unwrap_or(u64::MAX) } else { packet };
        let conforming = promise.delay(burst);
        let rate = promise.rate();
        let assumes = format!("the source sends at most {rate} and bursts of {burst} bytes, counted on the wire");
        if conforming.is_none() {
            return DelayBound::none("the bound is beyond all time");
        }
        queue_full(link, class, DelayBound { conforming, queue_full: None, assumes }, |packets| {
            // All of the queue, and one packet that may just have been sent.
            promise.steady().delay(packets.saturating_add(1).saturating_mul(packet))
        })
    }
}

impl Division {
    fn of(holder: ClassId) -> Division {
        Division { holder, classes: Vec::new(), members: Vec::new(), nothing: None, promises: OnceCell::new() }
    }

    /// Packets that rules send to the class that holds the scheduler take part as a class without
    /// words; in cbq with what the others leave (docs/reference/cbq.md rule 16).
    fn own_packets(&mut self, link: &Link, holders: &[bool]) {
        if !holders.get(self.holder as usize).is_some_and(|holds| *holds) {
            return;
        }
        let Some(first) = self.classes.first() else { return };
        let mut words = Settings::new();
        match link.scheduler_of(*first) {
            "cbq" => {
                let tops = self.members.iter().filter(|member| member.0.is_none());
                let sum = tops
                    .filter_map(|member| member.1.rate("rate"))
                    .fold(0, |sum, rate| sum + u128::from(rate.as_bit_s()));
                let left = u128::from(link.measure(*first).as_bit_s()).saturating_sub(sum);
                words.set("rate", Value::Rate(Rate::bit_s(u64::try_from(left).unwrap_or(u64::MAX))));
            }
            "priq" | "drr" | "fifo" => {}
            name => {
                let holder = link.class_name(self.holder);
                self.nothing = Some(format!(
                    "packets go to `{holder}` itself as well, and {name} does not say what is left beside them"
                ));
            }
        }
        self.members.push((None, words, true, false));
    }
}

/// The bound of a full queue, worked out from the packets in it, where there is one.
fn queue_full(link: &Link, class: ClassId, bound: DelayBound, of: impl Fn(u64) -> Option<Nanos>) -> DelayBound {
    let DelayBound { conforming, mut assumes, .. } = bound;
    let none = |assumes: String| DelayBound { conforming, queue_full: None, assumes };
    if link.spec.classes[class as usize].scheduler.is_some() {
        return none(format!("{assumes}; the wait inside of its own scheduler comes on top"));
    }
    let Some(queue) = link.queue(class) else { return none(assumes) };
    if !IN_ORDER.contains(&queue.name) {
        return none(format!(
            "{assumes}, and no queue holds it up: in {} the last packet may be overtaken",
            queue.name
        ));
    }
    let mtu = u64::from(link.spec.mtu);
    let packets = match queue.limit {
        Limit::Packets(n) => u64::from(n),
        Limit::Bytes(n) => u64::from(n).div_ceil(mtu.max(1)),
    };
    assumes.push_str(&format!("; a full queue is of packets of {mtu} bytes; timers are exact"));
    DelayBound { conforming, queue_full: of(packets), assumes }
}

/// docs/reference/cbq.md rule 9, for classes of exact cbq at the link: at most (bursts of higher
/// and equal priorities and one packet of the link) over (the link's rate less the rates of higher
/// priorities).
struct Rule9 {
    leaves: Vec<bool>,
    /// What each leaf is guaranteed, bit/s.
    rates: Vec<u128>,
    /// By priority: bytes of bursts, classes, bit/s.
    by_priority: [(u128, u128, u128); 8],
    total: u128,
}

impl Rule9 {
    /// Adds up what the classes of a link may do.
    fn new(link: &Link, children: &[Vec<ClassId>], holders: &[bool]) -> Rule9 {
        let n = children.len();
        let mut sums = Rule9 { leaves: vec![false; n], rates: vec![0; n], by_priority: [(0, 0, 0); 8], total: 0 };
        for (id, holds) in holders.iter().enumerate() {
            let class = id as ClassId;
            // A class that holds another scheduler is a leaf to the one that serves it. Packets of
            // an inner class wait in a leaf of its own that has what its children leave
            // (docs/reference/cbq.md rule 16).
            let leaf = *holds || link.spec.classes[id].scheduler.is_some();
            if !leaf || !link.served_by_root(class) {
                continue;
            }
            sums.leaves[id] = true;
            let rate = own_rate(link, class, children);
            let at = &mut sums.by_priority[priority(link, class)];
            at.0 += burst(link, class);
            at.1 += 1;
            at.2 += rate;
            sums.total += rate;
            sums.rates[id] = rate;
        }
        sums
    }

    /// A class of higher priority may send one packet beyond its burst, that which exceeds it.
    fn delay_bound(&self, link: &Link, class: ClassId) -> DelayBound {
        let none = |why: &str| DelayBound::none(why);
        if class == ROOT && !self.leaves[ROOT as usize] {
            return none("the root is the link: its classes have the bounds");
        }
        if is_classic(link, class) {
            return none("the classic estimator guarantees no delay");
        }
        if !self.leaves[class as usize] {
            return none("it holds no packets of its own");
        }
        let Ok(rate @ 1..) = u64::try_from(self.rates[class as usize]) else {
            return none("it is guaranteed nothing, or nothing beyond what its children are");
        };
        let link_rate = u128::from(link.spec.rate.as_bit_s());
        if self.total > link_rate {
            return none("the classes are guaranteed more than the link has");
        }
        let own = priority(link, class);
        let packet = u128::from(link.spec.overhead.charge(link.spec.mtu));
        let mut bytes = packet + self.by_priority[own].0;
        let mut left = link_rate;
        for (burst, classes, rate) in &self.by_priority[own + 1..] {
            bytes += burst + classes * packet;
            left = left.saturating_sub(*rate);
        }
        let Some(conforming) = span(bytes, left) else {
            return none("classes of higher priority are guaranteed the whole link");
        };
        let size = packetsize(link, class);
        let burst = maxburst(link, class).saturating_mul(size);
        let assumes = format!(
            "the source sends at most {} and bursts of {burst} bytes, counted on the wire, in packets of at most \
             {size} bytes",
            Rate::bit_s(rate)
        );
        // The last packet of a full queue: all of the queue, and one packet that may just have been
        // sent, at the class's rate.
        queue_full(link, class, DelayBound { conforming: Some(conforming), queue_full: None, assumes }, |packets| {
            span((u128::from(packets) + 1) * packet, u128::from(rate)).and_then(|wait| wait.checked_add(conforming))
        })
    }
}

/// What a leaf is guaranteed, or an inner class beyond what its children are, in bit/s.
fn own_rate(link: &Link, class: ClassId, children: &[Vec<ClassId>]) -> u128 {
    let of = |class: ClassId| link.guarantee(class).unwrap_or_default().as_bit_s();
    let holds = link.spec.classes[class as usize].scheduler.is_some();
    let below =
        if holds { 0 } else { children[class as usize].iter().map(|child| of(*child)).fold(0, u64::saturating_add) };
    u128::from(of(class).saturating_sub(below))
}

/// The time of `bytes` at a rate, rounded up; `None` at rate 0 or beyond what counts.
fn span(bytes: u128, rate: u128) -> Option<Nanos> {
    if rate == 0 {
        return None;
    }
    Nanos::try_from((bytes * 8 * u128::from(SECOND)).div_ceil(rate)).ok()
}

fn priority(link: &Link, class: ClassId) -> usize {
    link.spec.classes[class as usize].settings.int("priority").unwrap_or(PRIORITY).min(7) as usize
}

fn packetsize(link: &Link, class: ClassId) -> u64 {
    link.spec.classes[class as usize].settings.bytes("packetsize").unwrap_or(u64::from(link.spec.mtu))
}

fn maxburst(link: &Link, class: ClassId) -> u64 {
    link.spec.classes[class as usize].settings.int("maxburst").unwrap_or(MAXBURST)
}

/// The burst of a class, in bytes on the wire.
fn burst(link: &Link, class: ClassId) -> u128 {
    let size = u32::try_from(packetsize(link, class)).unwrap_or(u32::MAX);
    // The credit is counted in the packets' own bytes or, if that is more, in bytes on the wire.
    u128::from(maxburst(link, class)) * u128::from(link.spec.overhead.charge(size).max(size))
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
        // docs/reference/cbq.md rule 9: voice's own burst 2 x 160, one packet of 1500: 1820 bytes
        // at 10 Mbit/s.
        let text = "link l { rate 10Mbit/s scheduler cbq
            class voice { share 5% priority 7 packetsize 160 queue drop_tail { limit 10packets } }
            class a { share 45% borrow }  class b { share 50% borrow default } }";
        let voice = bound(text, "voice");
        assert_eq!(voice.conforming, Some(1820 * 8 * 100));
        // Ten packets of 1500 and one more at 500 kbit/s.
        assert_eq!(voice.queue_full, Some(1820 * 8 * 100 + 11 * 1500 * 8 * 2000));
        // Of a: bursts of a and b 2 x 1500 each, one packet, and of voice 320 and one packet; 9.5
        // Mbit/s are left.
        let bytes = 3000 + 3000 + 1500 + 320 + 1500;
        assert_eq!(bound(text, "a").conforming, Some((bytes * 8 * 1_000_000_000_u64).div_ceil(9_500_000)));
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
        // A burst of one packet and one packet of others, 3000 bytes at 10 Mbit/s; ten that wait,
        // one just sent, and one of others.
        let text = "link l { rate 10Mbit/s scheduler priq
            class voice { priority 15 queue drop_tail { limit 10packets } }  class rest { default } }";
        assert_eq!(
            (bound(text, "voice").conforming, bound(text, "voice").queue_full),
            (Some(2_400_000), Some(12 * 1_200_000))
        );
        assert_eq!((guaranteed(text, "voice"), guaranteed(text, "rest")), (Some(10_000_000), None));
        assert_eq!(bound(text, "rest").conforming, None);
        assert!(bound(text, "voice").assumes.contains("10Mbit/s and bursts of 1500 bytes"));
        // Where packets go to the link itself they have priority 1 and may take all, or take turns.
        let text = "link l { rate 10Mbit/s scheduler priq default class a { priority 1 } class b { priority 0 } }";
        assert!(bound(text, "a").assumes.contains("takes turns"));
        assert!(bound(text, "b").assumes.contains("higher priority"));
    }

    #[test]
    fn drr_in_others_by_hand() {
        // F = 9000, Q = 3000: the rate is a third; (6000 (1 + 1/2) + 3 * 1500) bytes of latency at
        // 10 Mbit/s, and 1500 at the rate.
        let classes = "class a { quantum 3000 }  class b { quantum 1500 }  class c { quantum 4500 }";
        let text = format!("link l {{ rate 10Mbit/s scheduler drr {classes} }}");
        assert_eq!(guaranteed(&text, "a"), Some(3_333_333));
        assert_eq!(bound(&text, "a").conforming, Some(13_500 * 800 + 3_600_001));
        // Inside the first of priq everything is a packet of the link later.
        let text = format!(
            "link l {{ rate 10Mbit/s scheduler priq class top {{ priority 15 scheduler drr {classes} }} \
             class low {{ }} }}"
        );
        assert_eq!(guaranteed(&text, "a"), Some(3_333_333));
        assert_eq!(bound(&text, "a").conforming, Some(13_500 * 800 + 3_600_001 + 1_200_000));
        let top = bound(&text, "top");
        assert!(top.conforming == Some(2_400_000) && top.queue_full.is_none() && top.assumes.contains("on top"));
        // Inside the second nothing is left of it.
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
        // `a` holds a scheduler: F = 6000, Q = 3000, (3000 (1 + 2 * 1500 / 3000) + 1500 + 1500)
        // bytes, 7.2 ms, then 5 Mbit/s. There docs/reference/cbq.md rule 9: 400 bytes of its own
        // burst and a packet, 1900 bytes at 5 Mbit/s, 3.04 ms; its burst at 1 Mbit/s, 3.2 ms.
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
        // Four packets of 1500 and one that went, at 1 Mbit/s.
        assert_eq!(of_v.queue_full, Some(7_200_000 + 3_040_000 + 60_000_000));
        assert!(of_v.assumes.contains("bursts of 400 bytes"));
    }

    #[test]
    fn curves_by_hand() {
        // 2 Mbit/s for 5 ms are 1250 bytes; the other 250 of a packet take 2 ms at 1 Mbit/s; and a
        // packet of the link, 1.2 ms. A queue that is full counts on the second slope alone: 11
        // packets at 1 Mbit/s.
        let text = "link l { rate 10Mbit/s scheduler hfsc
            class a { realtime 2Mbit/s for 5ms then 1Mbit/s  queue drop_tail { limit 10packets } }
            class b { linkshare 5Mbit/s default } }";
        let of_a = bound(text, "a");
        assert_eq!((of_a.conforming, of_a.queue_full), (Some(8_200_000), Some(132_000_000 + 1_200_000)));
        // In a queue of flows the last packet may be overtaken for ever.
        let text = "link l { rate 10Mbit/s scheduler priq class a { priority 15 queue fq_codel { } default } }";
        assert!(bound(text, "a").conforming.is_some() && bound(text, "a").queue_full.is_none());
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
