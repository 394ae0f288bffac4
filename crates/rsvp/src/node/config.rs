//! What an operator decides: interfaces, neighbours, keys, proxies, limits.

use std::cmp::Reverse;
use std::net::IpAddr;

use thiserror::Error;

use super::LOCAL;
use crate::integrity::Key;

/// Nanoseconds of a second.
pub(super) const SECOND: u64 = 1_000_000_000;

/// What a node is told when it is made. It does not change while the node runs.
#[derive(Debug, Clone)]
pub struct Config {
    /// The interfaces that speak RSVP. Messages by any other are refused.
    pub interfaces: Vec<Interface>,
    /// Destinations for which this node answers Paths with Resvs by itself, in place of hosts that
    /// do not speak RSVP (RFC 5945: path-triggered receiver proxy). The link behind this node is
    /// not reserved.
    pub receiver_proxy: Vec<Prefix>,
    /// Whether sessions with destination port 0, which cover a whole protocol between two hosts,
    /// are taken.
    pub port_zero: bool,
    /// The first sequence number of INTEGRITY: larger than any that was used before a restart.
    pub first_sequence: u64,
    /// Limits.
    pub limits: Limits,
}

/// An interface that speaks RSVP.
#[derive(Debug, Clone)]
pub struct Interface {
    /// Its number, not 0. It is this node's logical interface handle (RFC 2205 A.2).
    pub id: u32,
    /// Its name, which stays when the interface is made anew and has another number. The keys of
    /// reservations have it.
    pub name: String,
    /// This node's addresses there. The first one of a family stands in messages.
    pub addresses: Vec<IpAddr>,
    /// Its MTU, bytes from the IP header.
    pub mtu: u32,
    /// R: milliseconds between refreshes that are sent by it, on average. RFC 2205 3.7 suggests 30
    /// s.
    pub refresh_ms: u32,
    /// Who is believed there.
    pub neighbours: Vec<Neighbour>,
    /// The key by which messages are signed that leave there; None: they are not signed.
    pub sign: Option<Key>,
}

/// Neighbours that are believed. Of several on an interface whose ranges have an address, that with
/// the narrowest range counts; of equal ones the first.
#[derive(Debug, Clone)]
pub struct Neighbour {
    /// Their addresses.
    pub prefix: Prefix,
    /// Their keys. If there is one, messages without INTEGRITY are refused.
    pub keys: Vec<Key>,
    /// Whether a handshake is made before the first message is believed (RFC 2747 4.3).
    pub handshake: bool,
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Its address.
    pub address: IpAddr,
    /// How many bits of it count.
    pub length: u8,
}

impl Prefix {
    /// One address.
    pub fn host(address: IpAddr) -> Prefix {
        Prefix { address, length: if address.is_ipv6() { 128 } else { 32 } }
    }

    /// Whether an address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        let length = u32::from(self.length);
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let differ = u32::from(a) ^ u32::from(b);
                differ.checked_shr(32_u32.saturating_sub(length)).unwrap_or(0) == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let differ = u128::from(a) ^ u128::from(b);
                differ.checked_shr(128_u32.saturating_sub(length)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// What strangers may make this node hold or do.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Sessions.
    pub sessions: usize,
    /// Senders of a session, which is also the most filters of a reservation, and the most flow
    /// descriptors of a Resv. At most 1000.
    pub senders: usize,
    /// Senders of all sessions together. One takes up to 10 kB, most of it what its Path carries
    /// along.
    pub paths: usize,
    /// Senders of one neighbour, by whom their Paths come; and of all neighbours of an interface
    /// together that have no keys, because without keys whoever forges messages writes another
    /// neighbour's address into each.
    pub paths_of_neighbour: usize,
    /// Reservation requests of all sessions.
    pub reservations: usize,
    /// Reservation requests of one neighbour.
    pub reservations_of_neighbour: usize,
    /// Messages a second and neighbour that are about sessions that are known, and how many at
    /// once.
    pub known: (u64, u64),
    /// The same of all neighbours of an interface together that have no keys, for the reason at
    /// `paths_of_neighbour`.
    pub open: (u64, u64),
    /// Messages a second and interface that are about other sessions, and how many at once.
    pub unknown: (u64, u64),
    /// The shortest time between two changes of one reservation, nanoseconds. A change that comes
    /// sooner waits, and only the last one counts.
    pub change_ns: u64,
    /// K: state lives for (K + 0.5) · 1.5 refresh periods, so K - 1 refreshes in a row may be lost.
    /// RFC 2205 3.7 suggests 3, and more where many messages are lost. 1 to 20.
    pub k: u32,
    /// W: how long after a change of route the first Path goes the new way, nanoseconds. RFC 2205
    /// 3.6 suggests 2 s.
    pub repair_ns: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            sessions: 10_000,
            senders: 64,
            paths: 20_000,
            paths_of_neighbour: 5_000,
            reservations: 10_000,
            reservations_of_neighbour: 5_000,
            known: (2_000, 4_000),
            open: (4_000, 8_000),
            unknown: (500, 2_000),
            change_ns: SECOND,
            k: 3,
            repair_ns: 2 * SECOND,
        }
    }
}

/// What is wrong with a [`Config`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Interface number 0, or one that two interfaces have.
    #[error("interface number {0} is 0 or used twice")]
    Number(u32),
    /// An interface without an address.
    #[error("interface {0} has no address")]
    Address(u32),
    /// An MTU below 68, the least of IPv4 (RFC 791).
    #[error("interface {0} has an MTU below 68 bytes")]
    Mtu(u32),
    /// R out of 1 s to 10 min.
    #[error("interface {0} refreshes more often than once a second, or less often than every 10 minutes")]
    Refresh(u32),
    /// A prefix with more bits than its address.
    #[error("a prefix of {0} bits")]
    Prefix(u8),
    /// A key identifier of more than 48 bits, or an empty secret.
    #[error("key {0} has more than 48 bits, or no secret")]
    Key(u64),
    /// A limit of 0, or one that a message cannot hold.
    #[error("the limit of {0} is out of range")]
    Limit(&'static str),
}

impl Config {
    /// Checks what the state machine relies on.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        let prefix = |prefix: &Prefix| {
            let most = if prefix.address.is_ipv6() { 128 } else { 32 };
            if prefix.length <= most { Ok(()) } else { Err(ConfigError::Prefix(prefix.length)) }
        };
        let key = |key: &Key| {
            let good = key.id >> 48 == 0 && !key.secret.is_empty();
            if good { Ok(()) } else { Err(ConfigError::Key(key.id)) }
        };
        for (at, interface) in self.interfaces.iter().enumerate() {
            let id = interface.id;
            if id == LOCAL || self.interfaces.iter().take(at).any(|other| other.id == id) {
                return Err(ConfigError::Number(id));
            }
            if interface.addresses.is_empty() {
                return Err(ConfigError::Address(id));
            }
            if interface.mtu < 68 {
                return Err(ConfigError::Mtu(id));
            }
            if !(super::timing::LEAST_REFRESH_MS..=super::timing::MOST_REFRESH_MS).contains(&interface.refresh_ms) {
                return Err(ConfigError::Refresh(id));
            }
            for neighbour in &interface.neighbours {
                prefix(&neighbour.prefix)?;
                neighbour.keys.iter().try_for_each(key)?;
            }
            interface.sign.iter().try_for_each(key)?;
        }
        self.receiver_proxy.iter().try_for_each(prefix)?;
        let limits = &self.limits;
        for (name, value) in [
            ("sessions", limits.sessions),
            ("senders of all sessions", limits.paths),
            ("senders of a neighbour", limits.paths_of_neighbour),
            ("reservations", limits.reservations),
            ("reservations of a neighbour", limits.reservations_of_neighbour),
        ] {
            if value == 0 {
                return Err(ConfigError::Limit(name));
            }
        }
        if !(1..=1000).contains(&limits.senders) {
            return Err(ConfigError::Limit("senders"));
        }
        if !(1..=20).contains(&limits.k) {
            return Err(ConfigError::Limit("K"));
        }
        let rates = [
            ("messages about known sessions", limits.known),
            ("messages of neighbours without keys", limits.open),
            ("other messages", limits.unknown),
        ];
        for (name, (rate, burst)) in rates {
            if !(1..=1_000_000).contains(&rate) || !(1..=1_000_000).contains(&burst) {
                return Err(ConfigError::Limit(name));
            }
        }
        Ok(())
    }

    /// The interface with a number.
    pub(super) fn interface(&self, id: u32) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.id == id)
    }

    /// The name of the interface with a number; this node itself has none.
    pub(super) fn name(&self, id: u32) -> &str {
        self.interface(id).map_or("", |interface| interface.name.as_str())
    }

    /// Whether an address is this node's.
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        self.interfaces.iter().any(|interface| interface.addresses.contains(&address))
    }

    /// Whether this node is a receiver proxy for an address.
    pub(super) fn is_proxied(&self, address: IpAddr) -> bool {
        self.receiver_proxy.iter().any(|prefix| prefix.contains(address))
    }
}

impl Interface {
    /// This node's address there, of the family of `like`.
    pub(super) fn own(&self, like: IpAddr) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| address.is_ipv6() == like.is_ipv6())
    }

    /// The neighbour with an address: that of the narrowest range, so that a wide range without
    /// keys does not stand in for a host that has some.
    pub(super) fn neighbour(&self, address: IpAddr) -> Option<&Neighbour> {
        let found = self.neighbours.iter().filter(|neighbour| neighbour.prefix.contains(address));
        // Of equal ones this takes the first.
        found.min_by_key(|neighbour| Reverse(neighbour.prefix.length))
    }
}
