//! Which bits of a key rules look at, and packing of keys with all other bits cleared.
//!
//! Two packets whose packed keys are equal match the same rules. So the flow cache is exact, and
//! flows that the rules do not distinguish share one entry.

use super::rule::{Field, RuleSet, Values};
use crate::headers::Key;

/// Words of a packed IPv4 key. The low half of the last word is free; the cache uses it.
pub(super) const NARROW: usize = 4;

/// Words of a packed IPv6 key.
pub(super) const WIDE: usize = 8;

// Bits of the word that holds ports, protocol and flags: 16 of source port, 16 of destination port,
// 8 of protocol, 8 of TOS, 8 of TCP flags, and these.
const HAS_SPORT: u64 = Key::SPORT as u64;
const HAS_DPORT: u64 = Key::DPORT as u64;
const HAS_VLAN: u64 = Key::VLAN as u64;
const FAMILY_SHIFT: u32 = 3;
const FAMILY: u64 = 7 << FAMILY_SHIFT;

/// The bits of a key that any rule looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    src4: u32,
    dst4: u32,
    src6: u128,
    dst6: u128,
    /// Ports, protocol, TOS, TCP flags, family, and which fields the packet has.
    small: u64,
    length: u32,
    mark: u32,
    /// Interface in the high half, VLAN id in the low half.
    place: u32,
    spi: u32,
    flow_label: u32,
}

impl Used {
    pub(super) fn new(rules: &RuleSet) -> Used {
        let mut used = Used {
            src4: 0,
            dst4: 0,
            src6: 0,
            dst6: 0,
            small: FAMILY,
            length: 0,
            mark: 0,
            place: 0,
            spi: 0,
            flow_label: 0,
        };
        for term in rules.rules.iter().flat_map(|rule| &rule.terms) {
            used.add(term.field, &term.values);
        }
        used
    }

    fn add(&mut self, field: Field, values: &Values) {
        let (mut v4, mut v6) = (0, 0);
        // A range looks at every bit of its field, a masked value at the bits of its mask.
        let mut bits = u32::MAX;
        match values {
            Values::Addresses(addresses) => {
                for address in addresses {
                    if address.v6 {
                        v6 |= address.mask;
                    } else {
                        v4 |= address.mask as u32;
                    }
                }
            }
            Values::Ranges(_) => {}
            Values::Masked(masked) => bits = masked.iter().fold(0, |bits, (_, mask)| bits | mask),
        }
        if matches!(field, Field::Src | Field::Host) {
            self.src4 |= v4;
            self.src6 |= v6;
        }
        if matches!(field, Field::Dst | Field::Host) {
            self.dst4 |= v4;
            self.dst6 |= v6;
        }
        let wide = u64::from(bits);
        const TCP_FLAGS_ARE_THERE: u64 = 0xff << 24 | HAS_SPORT;
        match field {
            Field::Src | Field::Dst | Field::Host | Field::Family => {}
            Field::SrcPort => self.small |= (wide & 0xffff) << 48 | HAS_SPORT,
            Field::DstPort => self.small |= (wide & 0xffff) << 32 | HAS_DPORT,
            Field::Port => self.small |= (wide & 0xffff) << 48 | (wide & 0xffff) << 32 | HAS_SPORT | HAS_DPORT,
            Field::Proto => self.small |= (wide & 0xff) << 24,
            Field::Dscp => self.small |= (wide & 0x3f) << 18,
            Field::Ecn => self.small |= (wide & 3) << 16,
            Field::Tos => self.small |= (wide & 0xff) << 16,
            Field::TcpFlags => self.small |= (wide & 0xff) << 8 | TCP_FLAGS_ARE_THERE,
            Field::Length => self.length |= bits,
            Field::Mark => self.mark |= bits,
            Field::Vlan => {
                self.place |= bits & 0xffff;
                self.small |= HAS_VLAN;
            }
            Field::Interface => self.place |= bits << 16,
            // All bits: a packet has an SPI if any of them is set.
            Field::Spi => self.spi = u32::MAX,
            Field::FlowLabel => self.flow_label |= bits,
        }
    }

    /// True if a key fits into [`NARROW`] words: it is not IPv6, and rules look at the SPI or at
    /// the interface and VLAN, but not at both, as these share the last word.
    #[inline]
    pub(super) fn is_narrow(&self, key: &Key) -> bool {
        key.family != 6 && (self.spi == 0 || self.place == 0)
    }

    /// A key that [is narrow](Used::is_narrow), packed.
    #[inline]
    pub(super) fn narrow(&self, key: &Key) -> [u64; NARROW] {
        [
            u64::from(key.src as u32 & self.src4) << 32 | u64::from(key.dst as u32 & self.dst4),
            small(key) & self.small,
            u64::from(key.length & self.length) << 32 | u64::from(key.mark & self.mark),
            u64::from(place(key) & self.place | key.spi & self.spi) << 32,
        ]
    }

    /// Any key, packed.
    #[inline]
    pub(super) fn wide(&self, key: &Key) -> [u64; WIDE] {
        let (src, dst) = match key.family {
            6 => (key.src & self.src6, key.dst & self.dst6),
            _ => (u128::from(key.src as u32 & self.src4), u128::from(key.dst as u32 & self.dst4)),
        };
        [
            (src >> 64) as u64,
            src as u64,
            (dst >> 64) as u64,
            dst as u64,
            small(key) & self.small,
            u64::from(key.length & self.length) << 32 | u64::from(key.mark & self.mark),
            u64::from(key.spi & self.spi) << 32 | u64::from(key.flow_label & self.flow_label),
            u64::from(place(key) & self.place) << 32,
        ]
    }
}

/// Ports, protocol, TOS, TCP flags, family, and which of them there are. Where a little-endian word
/// is read, this is one load and the family.
#[inline]
fn small(key: &Key) -> u64 {
    u64::from(key.sport) << 48
        | u64::from(key.dport) << 32
        | u64::from(key.proto) << 24
        | u64::from(key.tos) << 16
        | u64::from(key.tcp_flags) << 8
        | u64::from(key.there)
        | u64::from(key.family & 7) << FAMILY_SHIFT
}

#[inline]
fn place(key: &Key) -> u32 {
    u32::from(key.interface) << 16 | u32::from(key.vlan)
}
