//! Admission: what is reserved, what still fits, and what is in the way.
//!
//! The sums are exact. A reservation is charged its rate in packets of the size at which a byte
//! costs most on the link. The charges may add up to what the class is guaranteed, the bursts to
//! its buffer (RFC 2211 9 leaves the rule open). If a delay is asked for, it is compared with the
//! bound that `altq check` would print if the reservation were a class of the policy.

use std::collections::{BTreeMap, HashMap};

use altq_engine::queue;
use altq_engine::schedule::Reserved;
use altq_engine::schedule::promise::Leaf;
use altq_engine::settings::Settings;
use altq_engine::shape::meter;
use altq_engine::spec::SpecError;
use altq_engine::units::{Nanos, Rate, time_text};

use crate::message::Excess;
use crate::place::Place;
use crate::tspec::{Cost, Tspec};

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Error code and value of RFC 2205, appendix B, if it has one for this.
    pub code: Option<(u8, u16)>,
    /// Why, in words.
    pub reason: String,
    /// The name of the class, the link or the owner that is in the way.
    pub bottleneck: Option<String>,
    /// What the link would charge, in bit/s.
    pub charged: Option<u64>,
    /// The highest rate that would be granted, in bit/s at layer 3.
    pub would_fit: Option<u64>,
}

impl Refusal {
    /// The delay bound cannot be kept.
    pub const DELAY: (u8, u16) = (1, 1);
    /// There is not enough bandwidth or buffer.
    pub const BANDWIDTH: (u8, u16) = (1, 2);
    /// The largest packet is larger than the link's MTU.
    pub const MTU: (u8, u16) = (1, 3);
    /// The policy does not allow it.
    pub const POLICY: (u8, u16) = (2, 0);
    /// The service is not offered.
    pub const SERVICE: (u8, u16) = (21, 2);
    /// The token bucket has impossible values.
    pub const FLOWSPEC: (u8, u16) = (21, 3);
    /// The engine refused the change.
    pub const SYSTEM: (u8, u16) = (22, 0);

    /// A word for the reason of a refusal with this code, and of one without.
    pub(crate) fn word(code: Option<(u8, u16)>) -> &'static str {
        match code {
            Some(Refusal::DELAY) => "delay",
            Some(Refusal::BANDWIDTH) => "bandwidth",
            Some(Refusal::MTU) => "mtu",
            Some(Refusal::POLICY) => "policy",
            Some(Refusal::SERVICE) => "service",
            Some(Refusal::FLOWSPEC) => "flowspec",
            Some(Refusal::SYSTEM) => "system",
            // The request says what cannot be, or means no reservation of this owner.
            _ => "request",
        }
    }

    /// A refusal for which RSVP has no code.
    pub fn because(reason: impl Into<String>) -> Refusal {
        Refusal { code: None, reason: reason.into(), bottleneck: None, charged: None, would_fit: None }
    }

    pub(crate) fn coded(code: (u8, u16), reason: impl Into<String>) -> Refusal {
        Refusal { code: Some(code), ..Refusal::because(reason) }
    }

    /// The engine refused a change that admission allowed.
    pub(crate) fn system(error: &SpecError) -> Refusal {
        Refusal::coded(Refusal::SYSTEM, format!("the engine refused the change: {error}"))
    }

    fn at(self, bottleneck: &str) -> Refusal {
        Refusal { bottleneck: Some(bottleneck.to_owned()), ..self }
    }

    fn fits(self, charged: u64, rate: u64) -> Refusal {
        Refusal { charged: Some(charged), would_fit: Some(rate), ..self }
    }
}

/// The values of a request that admission needs.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub owner: Option<&'a str>,
    pub tspec: &'a Tspec,
    pub excess: Excess,
    pub delay: Option<Nanos>,
}

/// What a reservation holds of the room.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    pub owner: Option<String>,
    /// Its charged rate, in bit/s on the wire.
    pub charged: u64,
    /// Its burst, in bytes at layer 3.
    pub burst: u64,
    pub delay: Option<Nanos>,
    /// The words of its class.
    pub settings: Settings,
    /// The limit of its queue, in bytes.
    pub limit: u32,
}

impl Held {
    /// The charge of a reservation that does not hold anything of the room yet.
    pub fn nothing(cost: Cost, tspec: &Tspec) -> Held {
        let charged = cost.charge(tspec.rate_bit_s);
        Held { owner: None, charged, burst: 0, delay: None, settings: Settings::new(), limit: 0 }
    }

    /// Its class as the scheduler's bounds count it.
    fn leaf(&self) -> Leaf<'_> {
        Leaf {
            settings: &self.settings,
            rate: Rate::bit_s(self.charged),
            guesses: queue::PLAIN.guesses(),
            holds: false,
        }
    }
}

/// What an owner has reserved.
#[derive(Clone, Copy, Debug, Default)]
struct Owned {
    count: u64,
    charged: u64,
}

/// The room for reservations, and how much of it is taken.
pub struct Room {
    pub place: Place,
    charged: u64,
    bursts: u64,
    count: u64,
    owners: HashMap<Option<String>, Owned>,
    /// For each delay that was asked for, the number of reservations.
    delays: BTreeMap<Nanos, u64>,
}

impl Room {
    pub fn new(place: Place) -> Room {
        Room { place, charged: 0, bursts: 0, count: 0, owners: HashMap::new(), delays: BTreeMap::new() }
    }

    /// The sum of the charges of all reservations, in bit/s.
    pub fn charged(&self) -> u64 {
        self.charged
    }

    /// The sum of their bursts, in bytes.
    pub fn bursts(&self) -> u64 {
        self.bursts
    }

    /// Adds what a reservation holds.
    pub fn take(&mut self, held: &Held) {
        self.count(held, true);
    }

    /// Gives back what a reservation held.
    pub fn give_back(&mut self, held: &Held) {
        self.count(held, false);
    }

    fn count(&mut self, held: &Held, comes: bool) {
        let before = self.own_leaf();
        let add = |sum: &mut u64, n: u64| *sum = if comes { sum.saturating_add(n) } else { sum.saturating_sub(n) };
        add(&mut self.charged, held.charged);
        add(&mut self.bursts, held.burst);
        add(&mut self.count, 1);
        let owned = self.owners.entry(held.owner.clone()).or_default();
        add(&mut owned.count, 1);
        add(&mut owned.charged, held.charged);
        if owned.count == 0 {
            self.owners.remove(&held.owner);
        }
        if let Some(delay) = held.delay {
            let asked = self.delays.entry(delay).or_default();
            add(asked, 1);
            if *asked == 0 {
                self.delays.remove(&delay);
            }
        }
        let after = self.own_leaf();
        let Some(mut bounds) = self.place.bounds.take() else { return };
        if before != after {
            if let Some(charged) = before {
                bounds.remove(self.place.leaf(charged));
            }
            if let Some(charged) = after {
                bounds.add(self.place.leaf(charged));
            }
        }
        if comes {
            bounds.add(held.leaf());
        } else {
            bounds.remove(held.leaf());
        }
        self.place.bounds = Some(bounds);
    }

    /// The sum of the charges, if the class for reservations itself holds packets.
    fn own_leaf(&self) -> Option<u64> {
        let holds = self.place.led_to || !self.place.has_children && self.count == 0;
        holds.then_some(self.charged)
    }

    /// What a reservation would hold, if there is room for it. `instead`: what it already holds.
    ///
    /// # Errors
    /// What is in the way, and what would fit.
    pub fn ask(&mut self, asked: &Asked<'_>, instead: Option<&Held>) -> Result<Held, Refusal> {
        if let Some(old) = instead {
            self.give_back(old);
        }
        let answer = self.ask_anew(asked);
        if let Some(old) = instead {
            self.take(old);
        }
        answer
    }

    fn ask_anew(&mut self, asked: &Asked<'_>) -> Result<Held, Refusal> {
        let place = &self.place;
        let mtu = place.mtu;
        asked.tspec.check(mtu).map_err(|why| Refusal::coded(Refusal::FLOWSPEC, why))?;
        let largest = asked.tspec.largest(mtu);
        if largest > mtu {
            let why = format!("packets of {largest} bytes are larger than the link's MTU of {mtu}");
            return Err(Refusal::coded(Refusal::MTU, why).at(&place.link));
        }
        if self.count >= place.most {
            let why = format!("there are {} reservations, the most that the policy allows", self.count);
            return Err(Refusal::coded(Refusal::POLICY, why).at(&place.class));
        }
        let owned = self.owners.get(&asked.owner.map(str::to_owned)).copied().unwrap_or_default();
        let owner = asked.owner.unwrap_or("(none)");
        if place.owner_most.is_some_and(|most| owned.count >= most) {
            let why = format!("the owner `{owner}` has {} reservations, the most that one may have", owned.count);
            return Err(Refusal::coded(Refusal::POLICY, why).at(owner));
        }
        let cost = Cost::of(&place.overhead, asked.tspec, mtu);
        let charged = cost.charge(asked.tspec.rate_bit_s);
        let left = place.reservable.saturating_sub(self.charged);
        let quota = place.owner_rate.map_or(u64::MAX, |all| all.saturating_sub(owned.charged));
        if charged <= left && charged <= quota {
            return self.beyond_rates(asked, cost, charged);
        }
        let wanted = Rate::bit_s(charged);
        let refusal = if charged > left {
            let why = format!("{wanted} on the wire are more than the {} left of `{}`", Rate::bit_s(left), place.class);
            Refusal::coded(Refusal::BANDWIDTH, why).at(&place.class)
        } else {
            let left = Rate::bit_s(quota);
            let why = format!("{wanted} on the wire are more than the {left} that the owner `{owner}` may still have");
            Refusal::coded(Refusal::POLICY, why).at(owner)
        };
        // The highest rate that the sums leave would fit only if everything else holds with it as
        // well.
        let most = cost.fits(left.min(quota));
        let fits = most > 0 && self.beyond_rates(asked, cost, cost.charge(most)).is_ok();
        Err(refusal.fits(charged, if fits { most } else { 0 }))
    }

    /// Checks what admission requires in addition to the sums of rates: bursts, and the delay.
    fn beyond_rates(&mut self, asked: &Asked<'_>, cost: Cost, charged: u64) -> Result<Held, Refusal> {
        let place = &self.place;
        let (tspec, largest) = (asked.tspec, asked.tspec.largest(place.mtu));
        let burst = tspec.burst_bytes;
        let bandwidth = |why: String| Refusal::coded(Refusal::BANDWIDTH, why).at(&place.class).fits(charged, 0);
        let left = place.buffer.saturating_sub(self.bursts);
        if burst > left {
            let why = format!("a burst of {burst} bytes is more than the {left} bytes left of the buffer");
            return Err(bandwidth(why));
        }
        // A conforming source has at most its burst in the queue, plus what it sends in the time
        // that a packet may wait. If no such time is agreed on, it is the time in which the whole
        // buffer is sent at the rate of the class. One packet is added for rounding.
        let least = u32::try_from(burst.saturating_add(u64::from(largest)));
        let least = least.map_err(|_| bandwidth(format!("no queue holds a burst of {burst} bytes")))?;
        let agreed = place.delay.into_iter().chain(asked.delay).min();
        let wait = agreed.unwrap_or_else(|| Rate::bit_s(place.reservable).time_for(place.buffer));
        let more = u32::try_from(Rate::bit_s(tspec.rate_bit_s).bytes_in(wait)).unwrap_or(u32::MAX);
        let limit = least.saturating_add(more);
        let borrows = asked.excess == Excess::Borrow;
        let reserved = Reserved {
            parent: &place.settings,
            rate: Rate::bit_s(charged),
            burst: cost.charge(burst),
            packet: largest,
            borrows,
        };
        let mut settings = (place.words)(&reserved).map_err(bandwidth)?;
        if !borrows {
            let least = tspec.least(place.mtu);
            meter::tspec(&mut settings, Rate::bit_s(tspec.rate_bit_s), burst, least, largest);
        }
        let owner = asked.owner.map(str::to_owned);
        let held = Held { owner, charged, burst, delay: asked.delay, settings, limit };
        self.in_time(held)
    }

    /// Checks that with this reservation none waits longer than asked for.
    fn in_time(&mut self, held: Held) -> Result<Held, Refusal> {
        // All reservations have one priority, so one bound holds for all.
        let others = self.delays.first_key_value().map(|(delay, _)| *delay);
        let Some(most) = [self.place.delay, held.delay, others].into_iter().flatten().min() else {
            return Ok(held);
        };
        self.take(&held);
        let bound = match &self.place.bounds {
            Some(bounds) => bounds.bound(held.leaf()).map(|bound| bound.conforming),
            None => Err("its scheduler promises no delay".to_owned()),
        };
        self.give_back(&held);
        let why = match bound {
            Ok(wait) if wait <= most => return Ok(held),
            Ok(wait) => format!("packets would wait up to {}, more than {}", time_text(wait), time_text(most)),
            Err(why) => format!("no packet's wait is bounded: {why}"),
        };
        Err(Refusal::coded(Refusal::DELAY, why).at(&self.place.class).fits(held.charged, 0))
    }

    /// The longest wait of a conforming packet of an existing reservation, if it is bounded.
    pub fn wait(&self, held: &Held) -> Option<Nanos> {
        self.place.bounds.as_ref()?.bound(held.leaf()).ok().map(|bound| bound.conforming)
    }
}
