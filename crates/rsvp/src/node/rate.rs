//! Limits on rates of messages: a flood by one neighbour, or about sessions that nobody knows, does
//! not cost others their refreshes (RFC 6398 asks routers to limit what router alert brings
//! them).

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::config::SECOND;

/// The most neighbours whose rate is kept. Beyond, the one heard longest ago is forgotten.
const MOST: usize = 4096;

/// A token bucket of messages.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Messages a second.
    rate: u64,
    /// Nanoseconds that the bucket is worth when it is full.
    full: u64,
    /// Nanoseconds that it is worth.
    worth: u64,
    /// When that was computed.
    at: u64,
}

impl Bucket {
    fn new(now: u64, (rate, burst): (u64, u64)) -> Bucket {
        let full = burst.saturating_mul(SECOND) / rate.max(1);
        Bucket { rate: rate.max(1), full, worth: full, at: now }
    }

    /// Takes one message, if there is one.
    fn take(&mut self, now: u64) -> bool {
        let elapsed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        self.worth = self.worth.saturating_add(elapsed).min(self.full);
        let cost = SECOND / self.rate;
        if self.worth < cost {
            return false;
        }
        self.worth -= cost;
        true
    }
}

/// The rates of a node.
#[derive(Debug, Clone)]
pub(super) struct Rates {
    known: (u64, u64),
    unknown: (u64, u64),
    /// Messages about known sessions, by interface and neighbour.
    neighbours: BTreeMap<(u32, IpAddr), Bucket>,
    /// Messages about other sessions, by interface.
    interfaces: BTreeMap<u32, Bucket>,
}

impl Rates {
    pub(super) fn new(known: (u64, u64), unknown: (u64, u64)) -> Rates {
        Rates { known, unknown, neighbours: BTreeMap::new(), interfaces: BTreeMap::new() }
    }

    /// Whether a message may be looked at. `known`: it is about a session that is known.
    pub(super) fn take(&mut self, now: u64, interface: u32, neighbour: IpAddr, known: bool) -> bool {
        if !known {
            let limit = self.unknown;
            return self.interfaces.entry(interface).or_insert_with(|| Bucket::new(now, limit)).take(now);
        }
        if self.neighbours.len() >= MOST && !self.neighbours.contains_key(&(interface, neighbour)) {
            let oldest = self.neighbours.iter().min_by_key(|(_, bucket)| bucket.at).map(|(key, _)| *key);
            if let Some(oldest) = oldest {
                self.neighbours.remove(&oldest);
            }
        }
        let limit = self.known;
        self.neighbours.entry((interface, neighbour)).or_insert_with(|| Bucket::new(now, limit)).take(now)
    }

    /// Neighbours, and when each was heard last.
    pub(super) fn heard(&self) -> impl Iterator<Item = (u32, IpAddr, u64)> + '_ {
        self.neighbours.iter().map(|((interface, address), bucket)| (*interface, *address, bucket.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_about_unknown_sessions_leaves_known_ones_alone() {
        let mut rates = Rates::new((10, 20), (5, 5));
        let neighbour: IpAddr = "10.0.0.1".parse().unwrap();
        let taken = (0..100_000).filter(|_| rates.take(0, 1, neighbour, false)).count();
        assert_eq!(taken, 5);
        let taken = (0..100).filter(|_| rates.take(0, 1, neighbour, true)).count();
        assert_eq!(taken, 20);
        // After a second, a second's worth.
        let taken = (0..100).filter(|_| rates.take(SECOND, 1, neighbour, true)).count();
        assert_eq!(taken, 10);
        let taken = (0..100).filter(|_| rates.take(SECOND, 1, neighbour, false)).count();
        assert_eq!(taken, 5);
    }
}
