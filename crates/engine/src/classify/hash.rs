//! Two hashes: a specified one for flows, and a fast one for the cache.

use crate::headers::Key;
use crate::random::SplitMix64;

/// The hash of a packet's flow, for [`Packet::flow`](crate::Packet::flow).
///
/// The same seed gives the same hashes in every version and on every machine. The hash is the low
/// 32 bits of SipHash-1-3 (Aumasson and Bernstein 2012) under the key *seed, 0* (two little-endian
/// words) of these bytes, all big-endian: source address, destination address (4 bytes each, 16 in
/// IPv6), source port, destination port (0 where there is none), protocol, family. Whoever does not
/// know the seed cannot make two flows collide on purpose.
#[derive(Clone, Copy, Debug)]
pub struct FlowHash {
    seed: u64,
}

impl FlowHash {
    /// The hash under a seed.
    pub fn new(seed: u64) -> FlowHash {
        FlowHash { seed }
    }

    /// The hash of a packet's flow. All packets that are not IP are one flow; so are all later
    /// fragments of one protocol between the same hosts.
    pub fn flow(&self, key: &Key) -> u32 {
        let [s0, s1] = key.sport.to_be_bytes();
        let [d0, d1] = key.dport.to_be_bytes();
        let rest = [s0, s1, d0, d1, key.proto, key.family];
        if key.family == 6 {
            let mut bytes = [0; 38];
            bytes[..16].copy_from_slice(&key.src.to_be_bytes());
            bytes[16..32].copy_from_slice(&key.dst.to_be_bytes());
            bytes[32..].copy_from_slice(&rest);
            sip::<1, 3>(self.seed, 0, &bytes) as u32
        } else {
            let mut bytes = [0; 14];
            bytes[..4].copy_from_slice(&(key.src as u32).to_be_bytes());
            bytes[4..8].copy_from_slice(&(key.dst as u32).to_be_bytes());
            bytes[8..].copy_from_slice(&rest);
            sip::<1, 3>(self.seed, 0, &bytes) as u32
        }
    }

    /// The hashes of a packet's hosts, source and destination, for
    /// [`Packet::hosts`](crate::Packet::hosts); 0 for a packet that is not IP.
    ///
    /// The low 16 bits of SipHash-1-3 under the key *seed, 1* of the address (4 bytes, 16 in IPv6,
    /// big-endian) and the family. A host has the same hash as source and as destination.
    pub fn hosts(&self, key: &Key) -> [u16; 2] {
        [key.src, key.dst].map(|address| match key.family {
            6 => {
                let mut bytes = [6; 17];
                bytes[..16].copy_from_slice(&address.to_be_bytes());
                sip::<1, 3>(self.seed, 1, &bytes) as u16
            }
            4 => {
                let [a, b, c, d] = (address as u32).to_be_bytes();
                sip::<1, 3>(self.seed, 1, &[a, b, c, d, 4]) as u16
            }
            _ => 0,
        })
    }
}

/// SipHash-C-D: C rounds for each word, D rounds at the end.
#[inline]
fn sip<const C: usize, const D: usize>(k0: u64, k1: u64, bytes: &[u8]) -> u64 {
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = bytes.len() as u8;
    for word in words.iter().chain([&last]) {
        let m = u64::from_le_bytes(*word);
        v[3] ^= m;
        (0..C).for_each(|_| round(&mut v));
        v[0] ^= m;
    }
    v[2] ^= 0xff;
    (0..D).for_each(|_| round(&mut v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

/// A fast hash for tables. The flow cache uses it, and all other code that looks up a flow for each
/// packet.
///
/// Each pair of words is combined with two secrets and multiplied, 64 x 64 → 128 bit; the halves of
/// the product are folded together. The secrets are drawn from the seed. The hash is not specified:
/// it only decides where an entry lies, and entries are compared in full. Whoever does not know the
/// seed cannot choose keys that collide.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    secrets: [u64; 8],
}

impl Mix {
    /// The hash under a seed.
    pub fn new(seed: u64) -> Mix {
        let mut random = SplitMix64::new(seed);
        Mix { secrets: [(); 8].map(|()| random.bits()) }
    }

    /// The hash of `N` words. `N` is even and at most 8.
    #[inline]
    pub fn hash<const N: usize>(&self, words: &[u64; N]) -> u64 {
        let mut hash = 0;
        for (pair, secret) in words.as_chunks::<2>().0.iter().zip(self.secrets.as_chunks::<2>().0) {
            hash = fold(pair[0] ^ secret[0] ^ hash, pair[1] ^ secret[1]);
        }
        hash
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_vectors() {
        // Appendix A of the paper: SipHash-2-4, key 00 01 … 0f, message 00 01 … 0e.
        let (k0, k1) = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(sip::<2, 4>(k0, k1, &message), 0xa129_ca61_49be_45e5);
        // The same key and messages of 0, 1, 8 and 15 bytes under SipHash-1-3, as the Rust project
        // publishes them.
        assert_eq!(sip::<1, 3>(k0, k1, &message[..0]), u64::from_le_bytes(SIP_1_3[0]));
        assert_eq!(sip::<1, 3>(k0, k1, &message[..1]), u64::from_le_bytes(SIP_1_3[1]));
        assert_eq!(sip::<1, 3>(k0, k1, &message[..8]), u64::from_le_bytes(SIP_1_3[2]));
        assert_eq!(sip::<1, 3>(k0, k1, &message[..15]), u64::from_le_bytes(SIP_1_3[3]));
    }

    const SIP_1_3: [[u8; 8]; 4] = [
        [0xdc, 0xc4, 0x0f, 0x05, 0x58, 0x01, 0xac, 0xab],
        [0x93, 0xca, 0x57, 0x7d, 0xf3, 0x9b, 0xf4, 0xc9],
        [0x8e, 0x9a, 0x29, 0x8d, 0x11, 0x95, 0x90, 0x36],
        [0x56, 0x99, 0x51, 0x2a, 0x6d, 0xd8, 0x20, 0xd3],
    ];

    #[test]
    fn a_flow_is_its_five_fields() {
        let key = Key { src: 1, dst: 2, proto: 6, family: 4, ..Key::default() }.with_ports(3, 4);
        let hash = FlowHash::new(7);
        // Written out from the documentation.
        let bytes = [0, 0, 0, 1, 0, 0, 0, 2, 0, 3, 0, 4, 6, 4];
        assert_eq!(hash.flow(&key), sip::<1, 3>(7, 0, &bytes) as u32);
        let same = Key { tos: 9, length: 100, mark: 3, tcp_flags: 2, ..key }.with_vlan(Some(1));
        assert_eq!(hash.flow(&same), hash.flow(&key));
        let others = [
            Key { src: 9, ..key },
            Key { dst: 9, ..key },
            key.with_sport(Some(9)),
            key.with_dport(Some(9)),
            Key { proto: 17, ..key },
            Key { family: 6, ..key },
        ];
        // Hosts, the same way: an address and its family.
        let host = |bytes: &[u8]| sip::<1, 3>(7, 1, bytes) as u16;
        assert_eq!(hash.hosts(&key), [host(&[0, 0, 0, 1, 4]), host(&[0, 0, 0, 2, 4])]);
        let six = [&[0; 15][..], &[1, 6]].concat();
        assert_eq!(hash.hosts(&Key { family: 6, ..key })[0], host(&six));
        assert_eq!(hash.hosts(&Key { family: 0, ..key }), [0, 0]);
        for other in others {
            assert_ne!(hash.flow(&other), hash.flow(&key));
        }
        assert_ne!(FlowHash::new(8).flow(&key), hash.flow(&key));
    }
}
