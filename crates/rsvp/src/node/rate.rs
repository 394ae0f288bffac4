//! Limits on rates of messages: a flood by one neighbour, or about sessions that nobody knows, does
//! not cost others their refreshes (RFC 6398 asks routers to limit what router alert brings
//! them).
//!
//! A neighbour without keys is known by an address that anybody can write into a message. So all of
//! them on an interface have a rate together as well, or else each forged address would have one of
//! its own.

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

    /// Whether there is a message to take.
    fn has(&mut self, now: u64) -> bool {
        let elapsed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        self.worth = self.worth.saturating_add(elapsed).min(self.full);
        self.worth >= SECOND / self.rate
    }

    /// Takes one message, if there is one.
    fn take(&mut self, now: u64) -> bool {
        let has = self.has(now);
        if has {
            self.worth -= SECOND / self.rate;
        }
        has
    }
}

/// Which rates a message counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum About {
    /// It is for another node.
    Passing,
    /// It is a challenge, which anybody may send.
    Challenge,
    /// It is about a session that is not known, and comes from a neighbour without keys.
    Unknown,
    /// It is about a session that is not known, and its digest was right.
    UnknownSigned,
    /// It is about a known session, and comes from a neighbour without keys.
    Open,
    /// It is about a known session, and its digest was right.
    Signed,
}

/// The rates of a node.
#[derive(Debug, Clone)]
pub(super) struct Rates {
    known: (u64, u64),
    unknown: (u64, u64),
    open: (u64, u64),
    /// Messages about known sessions, by interface and neighbour.
    neighbours: BTreeMap<(u32, IpAddr), Bucket>,
    /// Messages about other sessions or none, by interface and kind: what anybody may send must not
    /// use up what neighbours that sign have for new sessions.
    interfaces: BTreeMap<(u32, About), Bucket>,
    /// Messages about known sessions from all neighbours without keys, by interface.
    opens: BTreeMap<u32, Bucket>,
}

impl Rates {
    /// Rates of messages a second, and how many at once: of a neighbour about known sessions, of an
    /// interface about others, and of all neighbours of an interface that have no keys.
    pub(super) fn new(known: (u64, u64), unknown: (u64, u64), open: (u64, u64)) -> Rates {
        let (neighbours, interfaces, opens) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Rates { known, unknown, open, neighbours, interfaces, opens }
    }

    /// Whether a message may be looked at.
    pub(super) fn take(&mut self, now: u64, interface: u32, neighbour: IpAddr, about: About) -> bool {
        match about {
            About::Passing | About::Challenge | About::Unknown | About::UnknownSigned => {
                let limit = self.unknown;
                self.interfaces.entry((interface, about)).or_insert_with(|| Bucket::new(now, limit)).take(now)
            }
            About::Signed => self.take_of_neighbour(now, interface, neighbour),
            About::Open => {
                // The interface is asked first, so that what it refuses costs nothing more, and
                // gives only for a message that the neighbour's own rate allows.
                let limit = self.open;
                self.opens.entry(interface).or_insert_with(|| Bucket::new(now, limit)).has(now)
                    && self.take_of_neighbour(now, interface, neighbour)
                    && self.opens.get_mut(&interface).is_some_and(|bucket| bucket.take(now))
            }
        }
    }

    fn take_of_neighbour(&mut self, now: u64, interface: u32, neighbour: IpAddr) -> bool {
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
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_flood_about_unknown_sessions_leaves_known_ones_alone() {
        let mut rates = Rates::new((10, 20), (5, 5), (100, 100));
        let neighbour: IpAddr = "10.0.0.1".parse().unwrap();
        let taken = (0..100_000).filter(|_| rates.take(0, 1, neighbour, About::Unknown)).count();
        assert_eq!(taken, 5);
        let taken = (0..100).filter(|_| rates.take(0, 1, neighbour, About::Open)).count();
        assert_eq!(taken, 20);
        // After a second, a second's worth.
        let taken = (0..100).filter(|_| rates.take(SECOND, 1, neighbour, About::Open)).count();
        assert_eq!(taken, 10);
        let taken = (0..100).filter(|_| rates.take(SECOND, 1, neighbour, About::Unknown)).count();
        assert_eq!(taken, 5);
        // What strangers may send leaves new sessions of neighbours that sign alone.
        for about in [About::Passing, About::Challenge, About::Unknown] {
            (0..100_000).for_each(|_| _ = rates.take(2 * SECOND, 1, neighbour, about));
        }
        let taken = (0..100).filter(|_| rates.take(2 * SECOND, 1, neighbour, About::UnknownSigned)).count();
        assert_eq!(taken, 5);
    }

    #[test]
    fn forged_addresses_share_the_rate_of_their_interface() {
        let mut rates = Rates::new((10, 20), (5, 5), (30, 60));
        let forged = |at: u32| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + at));
        let taken = (0..100_000).filter(|at| rates.take(0, 1, forged(*at), About::Open)).count();
        assert_eq!(taken, 60);
        assert_eq!(rates.heard().count(), 60, "what is refused is not kept");
        let taken = (0..100_000).filter(|at| rates.take(SECOND, 1, forged(200_000 + *at), About::Open)).count();
        assert_eq!(taken, 30);
        // A neighbour whose messages are signed has its own rate, and another interface too.
        let neighbour = IpAddr::from([192, 0, 2, 1]);
        assert_eq!((0..100).filter(|_| rates.take(SECOND, 1, neighbour, About::Signed)).count(), 20);
        assert_eq!((0..100).filter(|_| rates.take(SECOND, 2, neighbour, About::Open)).count(), 20);
    }

    #[test]
    fn a_neighbour_that_floods_does_not_use_up_what_others_share() {
        let mut rates = Rates::new((10, 20), (5, 5), (30, 60));
        let (loud, quiet) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        assert_eq!((0..100_000).filter(|_| rates.take(0, 1, loud, About::Open)).count(), 20);
        assert_eq!((0..100).filter(|_| rates.take(0, 1, quiet, About::Open)).count(), 20);
    }
}
