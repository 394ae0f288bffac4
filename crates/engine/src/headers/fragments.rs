//! ALTQ's cache of fragmented packets (docs/reference/altq.md 10.1). Later fragments have no ports;
//! here they get those of their first fragment.
//!
//! Only policies with ALTQ's order of rules ([`Order::Altq`](crate::classify::Order::Altq)) use it.
//! It is as small as ALTQ's: it holds sixteen packets and replaces the oldest. A fragment that
//! arrives before its first fragment stays without ports. So a fragment only gets ports that a
//! first fragment of the same source, destination, identification and protocol had.

use super::Headers;

/// What identifies the packet of a fragment: source, destination, identification, protocol.
type Name = (u128, u128, u32, u8);

#[derive(Clone, Copy, Debug)]
struct Known {
    name: Name,
    /// When it was entered: the smallest stamp is the oldest.
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
    /// An empty cache.
    pub fn new() -> FragmentCache {
        FragmentCache::default()
    }

    /// Enters a first fragment. Gives a later fragment the ports and the SPI of its first one, if
    /// that is known; the last fragment clears the entry. Leaves any other packet as it is.
    pub fn see(&mut self, headers: &mut Headers) {
        let key = &mut headers.key;
        let Some(fragment) = headers.fragment.filter(|_| key.family == 4) else { return };
        let name = (key.src, key.dst, fragment.id, fragment.proto);
        let known = self.known.iter_mut().find(|known| known.is_some_and(|k| k.name == name));
        if fragment.offset == 0 {
            // A duplicate overwrites its own entry, a new packet a free entry or the oldest.
            let place = match known {
                Some(place) => Some(place),
                None => self.known.iter_mut().min_by_key(|known| known.map_or(0, |k| k.stamp)),
            };
            self.stamp += 1;
            let (proto, sport, dport, spi) = (key.proto, key.sport(), key.dport(), key.spi);
            if let Some(place) = place {
                *place = Some(Known { name, stamp: self.stamp, proto, sport, dport, spi });
            }
            return;
        }
        let Some(place) = known else { return };
        if let Some(first) = *place {
            *key = key.with_sport(first.sport).with_dport(first.dport);
            (key.proto, key.spi) = (first.proto, first.spi);
        }
        if !fragment.more {
            *place = None;
        }
    }
}
