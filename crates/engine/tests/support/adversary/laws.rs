//! What a policy promises, as `altq check` says it: what the run of a trace is held to.

use altq_config::{DelayBound, Language, Link, Promises, parse_str};
use altq_engine::schedule;
use altq_engine::schedule::promise::Promise;
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Nanos, Rate};

/// A policy that was read, and what it promises by class.
pub struct Laws {
    pub text: String,
    pub link: Link,
    pub classes: Vec<Law>,
    /// What is wrong with the promises themselves.
    pub broken: Option<String>,
}

/// What a class is promised, and held to.
#[derive(Clone, Debug)]
pub struct Law {
    /// What serves it.
    pub scheduler: &'static str,
    /// Packets may be given to it.
    pub holds_packets: bool,
    /// The bound of a conforming packet, and the source that it assumes.
    pub conforming: Option<(Nanos, Source)>,
    /// The bound of any packet, where its queue is first in first out.
    pub queue_full: Option<Nanos>,
    /// The service that it gets while it has packets.
    pub promise: Option<Promise>,
    /// The most that it may send in any time t: rate t + bytes.
    pub ceiling: Option<(Rate, u128)>,
}

/// What `assumes` says of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    pub rate: u64,
    /// Bytes on the wire.
    pub burst: u64,
    /// The largest packet, in its own bytes.
    pub packet: u64,
}

impl Laws {
    /// Reads a policy. `None` if the language refuses it.
    pub fn read(text: String) -> Option<Laws> {
        let mut policy = parse_str(&text, "a.altq", Language::Native).ok()?;
        let link = policy.links.pop()?;
        let mut broken = None;
        let promises = Promises::new(&link);
        let holders = link.holders();
        let mut classes = Vec::new();
        for class in 0..link.classes.len() as ClassId {
            let bound = promises.delay_bound(class);
            let source = source(&bound, link.spec.mtu);
            if bound.conforming.is_some() && source.is_none() {
                broken = Some(format!("`assumes` says no source: {}", bound.assumes));
            }
            let (guaranteed, ceiling) = (promises.guaranteed(class).unwrap_or_default(), link.ceiling(class));
            if class != ROOT && guaranteed > ceiling {
                broken = Some(format!("c{class}: the guarantee {guaranteed} is above the ceiling {ceiling}"));
            }
            // A packet on the way through a class that holds a scheduler waits inside of that too.
            let holds = link.spec.classes[class as usize].scheduler.is_some() && class != ROOT;
            classes.push(Law {
                scheduler: link.scheduler_of(class),
                holds_packets: holders[class as usize] && !holds,
                conforming: bound.conforming.zip(source).filter(|_| !holds),
                queue_full: bound.queue_full.filter(|_| !holds),
                promise: promises.promise(class).ok().filter(|_| class != ROOT),
                ceiling: ceiling_of(&link, class),
            });
        }
        drop(promises);
        Some(Laws { text, link, classes, broken })
    }

    /// Classes with a delay bound.
    pub fn watched(&self) -> Vec<ClassId> {
        let bound = |class: &ClassId| {
            let law = &self.classes[*class as usize];
            law.holds_packets && law.conforming.is_some()
        };
        (0..self.classes.len() as ClassId).filter(bound).collect()
    }

    /// Classes that packets may be given to.
    pub fn holders(&self) -> Vec<ClassId> {
        (0..self.classes.len() as ClassId).filter(|class| self.classes[*class as usize].holds_packets).collect()
    }

    /// Names of the schedulers above a class, the link's first.
    pub fn path(&self, class: ClassId) -> Vec<&'static str> {
        let mut path = Vec::new();
        let mut at = class;
        while at != ROOT {
            at = self.link.spec.classes[at as usize].parent;
            if at == ROOT || self.link.spec.classes[at as usize].scheduler.is_some() {
                path.push(self.link.spec.scheduler_at(at).map_or("", |scheduler| scheduler.name));
            }
        }
        if path.is_empty() {
            path.push(self.link.spec.scheduler.name);
        }
        path.reverse();
        path
    }

    /// Forgets what `other` does not promise alike.
    pub fn retain_common(&mut self, other: &Laws) {
        for (law, other) in self.classes.iter_mut().zip(&other.classes) {
            law.conforming = law.conforming.filter(|bound| other.conforming == Some(*bound));
            law.queue_full = law.queue_full.filter(|bound| other.queue_full == Some(*bound));
            law.promise = law.promise.filter(|promise| other.promise == Some(*promise));
            law.ceiling = law.ceiling.filter(|ceiling| other.ceiling == Some(*ceiling));
        }
    }
}

/// "… at most 3300kbit/s and bursts of 1500 bytes, counted on the wire, in packets of at most 200
/// bytes".
fn source(bound: &DelayBound, mtu: u32) -> Option<Source> {
    let (_, rest) = bound.assumes.split_once("at most ")?;
    let (rate, rest) = rest.split_once(" and bursts of ")?;
    let digits = rate.find(|c: char| !c.is_ascii_digit())?;
    let unit = match &rate[digits..] {
        "bit/s" => 1,
        "kbit/s" => 1_000,
        "Mbit/s" => 1_000_000,
        "Gbit/s" => 1_000_000_000,
        _ => return None,
    };
    let (burst, rest) = rest.split_once(" bytes")?;
    let packet = match rest.split_once("in packets of at most ") {
        Some((_, packet)) => packet.split_once(" bytes")?.0.trim().parse().ok()?,
        None => u64::from(mtu),
    };
    let rate = rate[..digits].parse::<u64>().ok()?.checked_mul(unit)?;
    Some(Source { rate, burst: burst.trim().parse().ok()?, packet: packet.min(u64::from(mtu)) })
}

/// The ceiling of a class over every window, with the burst that its scheduler documents; `None`
/// where none is documented.
fn ceiling_of(link: &Link, class: ClassId) -> Option<(Rate, u128)> {
    if class == ROOT {
        return None;
    }
    let words = &link.spec.classes[class as usize].settings;
    let packet = u128::from(link.spec.overhead.charge(link.spec.mtu));
    let entry = schedule::find(link.scheduler_of(class))?;
    match entry.name {
        // docs/schedulers/htb.md: `burst + rate t` and one packet. Of an inner class nothing:
        // leaves within their rate go whatever it has used.
        "htb" if !link.spec.classes.iter().any(|other| other.parent == class) => {
            let ceil = words.rate("ceil").or(words.rate("rate"))?;
            let tokens = words.bytes("overhead").unwrap_or(0) + words.bytes("mpu").unwrap_or(0);
            let burst = u128::from(words.bytes("cburst")?);
            (tokens == 0 && !ceil.is_zero()).then_some((ceil, burst + packet))
        }
        // docs/schedulers/wfq.md: 25 ms and at least three packets of the MTU are made up for; and
        // the packet that begins. The clock's whole nanoseconds make a packet up to 1 ns early, and
        // the credit up to 1 ns longer: what the rate brings in 2 ns, and a byte for its fraction.
        "wfq" => {
            let shape = words.rate("shape")?;
            let (bit_s, rounded) = (u128::from(shape.as_bit_s()), shape.bytes_in(2));
            Some((shape, (bit_s / 320).max(3 * packet) + packet + u128::from(rounded) + 1))
        }
        // docs/schedulers/hfsc.md: one packet of each sibling and two of its own are made up for.
        "hfsc" => {
            let limit = words.curve("upperlimit").filter(|limit| limit.first == limit.then || limit.until == 0)?;
            let spec = &link.spec;
            let realtime = spec.classes.iter().any(|class| class.settings.curve("realtime").is_some());
            let siblings = spec.classes.iter().filter(|other| other.parent == spec.classes[class as usize].parent);
            let siblings = siblings.count() as u128;
            let behind = packet * siblings * u128::from(limit.then.as_bit_s()) / u128::from(spec.rate.as_bit_s()) + 1;
            (!realtime && link.spec.served_by_root(class)).then_some((limit.then, behind + 3 * packet))
        }
        _ => None,
    }
}
