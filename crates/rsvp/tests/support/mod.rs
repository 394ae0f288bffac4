//! A world for nodes under test: traffic control with a ledger, routes from a table, random numbers
//! from a seed.

pub mod chain;
pub mod messages;
pub mod router;

use std::collections::BTreeMap;
use std::net::IpAddr;

use altq_rsvp::node::{Admission, Granted, Offer, Refused, Reservation, Route, Routes, World};
use altq_rsvp::wire::Tspec;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;

/// The bytes of a hex string.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().map(|c| c.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

/// An address from its text.
pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A token bucket with m 128 and M 1500.
pub fn tspec(rate: f32, burst: f32) -> Tspec {
    Tspec { rate, burst, peak: f32::INFINITY, min_unit: 128, max_packet: 1500 }
}

/// Traffic control: a class of so many bytes a second on each interface. Reservations expire.
#[derive(Debug)]
pub struct Ledger {
    pub capacity: f64,
    pub held: BTreeMap<String, (Reservation, u64)>,
    /// Every change and every deletion is refused, or lost.
    pub broken: bool,
    /// Faults of the caller.
    pub faults: Vec<String>,
    /// Calls, by name.
    pub calls: BTreeMap<&'static str, usize>,
}

impl Ledger {
    pub fn new(capacity: f64) -> Ledger {
        Ledger { capacity, held: BTreeMap::new(), broken: false, faults: Vec::new(), calls: BTreeMap::new() }
    }

    /// The sum of what is reserved on an interface, without the reservation with this key.
    fn sum(&self, interface: u32, but: &str) -> f64 {
        let others = self.held.values().filter(|(held, _)| held.interface == interface && held.key != but);
        others.map(|(held, _)| f64::from(held.tspec.rate)).sum()
    }

    /// What is reserved on an interface, bytes per second.
    pub fn total(&self, interface: u32) -> f64 {
        self.sum(interface, "")
    }

    fn expire(&mut self, now: u64) {
        self.held.retain(|_, (_, until)| *until > now);
    }

    /// What is there at this time.
    pub fn at(&mut self, now: u64) -> usize {
        self.expire(now);
        self.held.len()
    }

    /// Forgets everything, as a daemon that was restarted without its state.
    pub fn forget(&mut self) {
        self.held.clear();
    }

    fn called(&mut self, now: u64, what: &'static str) {
        self.expire(now);
        *self.calls.entry(what).or_insert(0) += 1;
    }

    fn put(&mut self, now: u64, reservation: &Reservation) -> Result<Granted, Refused> {
        let others = self.sum(reservation.interface, &reservation.key);
        if reservation.flows.is_empty() {
            self.faults.push(format!("{} has no flow", reservation.key));
        }
        if self.broken || others + f64::from(reservation.tspec.rate) > self.capacity {
            return Err(Refused::bandwidth("the class is full"));
        }
        let until = now.saturating_add(reservation.ttl_ns);
        self.held.insert(reservation.key.clone(), (reservation.clone(), until));
        Ok(Granted { class: reservation.key.clone(), charged_bit_s: reservation.rate_bit_s() })
    }
}

impl Admission for Ledger {
    fn add(&mut self, now: u64, reservation: &Reservation) -> Result<Granted, Refused> {
        self.called(now, "add");
        if self.held.contains_key(&reservation.key) {
            self.faults.push(format!("{} was added twice", reservation.key));
        }
        self.put(now, reservation)
    }

    fn modify(&mut self, now: u64, reservation: &Reservation) -> Result<Granted, Refused> {
        self.called(now, "modify");
        if !self.held.contains_key(&reservation.key) {
            return Err(Refused::new(22, 0, "no such reservation"));
        }
        self.put(now, reservation)
    }

    fn refresh(&mut self, now: u64, key: &str, ttl_ns: u64) -> Result<(), Refused> {
        self.called(now, "refresh");
        match self.held.get_mut(key) {
            Some((_, until)) => {
                *until = now.saturating_add(ttl_ns);
                Ok(())
            }
            None => Err(Refused::new(22, 0, "no such reservation")),
        }
    }

    fn del(&mut self, now: u64, key: &str) {
        self.called(now, "del");
        self.held.remove(key);
    }

    fn offer(&mut self, interface: u32, _: &Tspec) -> Offer {
        let left = (self.capacity - self.total(interface)).max(0.0);
        Offer { bandwidth: left as f32, latency_us: 100 }
    }
}

/// Routes from a table; what is not in it is found by `otherwise`.
pub struct Table {
    pub to: BTreeMap<IpAddr, Route>,
    pub otherwise: Box<dyn Fn(IpAddr) -> Route>,
}

impl Routes for Table {
    fn route(&mut self, to: IpAddr) -> Route {
        self.to.get(&to).copied().unwrap_or_else(|| (self.otherwise)(to))
    }
}

/// Everything around one node.
pub struct Around {
    pub routes: Table,
    pub ledger: Ledger,
    random: Box<dyn FnMut() -> u64>,
}

impl Around {
    pub fn new(capacity: f64, seed: u64, otherwise: Box<dyn Fn(IpAddr) -> Route>) -> Around {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        Around {
            routes: Table { to: BTreeMap::new(), otherwise },
            ledger: Ledger::new(capacity),
            random: Box::new(move || random.next_u64()),
        }
    }

    /// The world as an argument.
    pub fn world(&mut self) -> World<'_> {
        World { routes: &mut self.routes, admission: &mut self.ledger, random: &mut *self.random }
    }
}
