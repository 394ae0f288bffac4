//! ALTQ's memory of fragmented packets (docs/reference/altq.md 10.1): later fragments have no ports
//! of their own, so the first one leaves them here.
//!
//! Only policies with ALTQ's order ([`Order::Altq`](crate::classify::Order::Altq)) ask for it. It
//! is as small as ALTQ's: sixteen packets at a time, the oldest makes room, and a fragment that
//! overtakes its first one is not recognised. So a fragment is only ever given ports that a first
//! fragment with the same source, destination, identification and protocol had.

use super::Headers;

/// What all fragments of a packet share: source, destination, identification, protocol.
type Name = (u128, u128, u32, u8);

#[derive(Clone, Copy, Debug)]
struct Known {
    name: Name,
    /// When it was learnt: the smallest is the oldest.
    stamp: u64,
    proto: u8,
    sport: Option<u16>,
    dport: Option<u16>,
    spi: u32,
}

/// The ports of the latest fragmented IPv4 packets.
#[derive(Clone, Debug, Default)]
pub struct FragmentCache {
    known: [Option<Known>; 16],
    stamp: u64,
}

impl FragmentCache {
    /// An empty one.
    pub fn new() -> FragmentCache {
        FragmentCache::default()
    }

    /// Learns from a first fragment; gives a later one its ports and SPI if its first one is known.
    /// The last one clears the place. Any other packet passes untouched.
    pub fn see(&mut self, headers: &mut Headers) {
        let key = &mut headers.key;
        let Some(fragment) = headers.fragment.filter(|_| key.family == 4) else { return };
        let name = (key.src, key.dst, fragment.id, fragment.proto);
        let known = self.known.iter_mut().find(|known| known.is_some_and(|k| k.name == name));
        if fragment.offset == 0 {
            // A duplicate takes its old place, a new packet a free one or that of the oldest.
            let place = match known {
                Some(place) => Some(place),
                None => self.known.iter_mut().min_by_key(|known| known.map_or(0, |k| k.stamp)),
            };
            self.stamp += 1;
            let (proto, sport, dport, spi) = (key.proto, key.sport, key.dport, key.spi);
            if let Some(place) = place {
                *place = Some(Known { name, stamp: self.stamp, proto, sport, dport, spi });
            }
            return;
        }
        let Some(place) = known else { return };
        if let Some(first) = *place {
            (key.proto, key.sport, key.dport, key.spi) = (first.proto, first.sport, first.dport, first.spi);
        }
        if !fragment.more {
            *place = None;
        }
    }
}
