//! What may stand between an Ethernet header and layer 3: VLAN tags, the headers of a PPPoE session
//! and an MPLS label stack, in this order.

use super::chunk;

/// The most VLAN tags in a stack. IEEE 802.1ad has two. A frame with more tags than this is not
/// parsed further.
const MAX_TAGS: usize = 8;

/// The most labels in a stack. Linux pushes at most 30 at once; carriers use up to about ten. A
/// frame with more labels than this is not parsed further.
const MAX_LABELS: usize = 32;

/// Ethertype of IPv4.
pub const IPV4: u16 = 0x0800;
/// Ethertype of IPv6.
pub const IPV6: u16 = 0x86dd;
/// Ethertype of a PPPoE session (RFC 2516 4). That of PPPoE discovery, 0x8863, is not looked into.
const PPPOE_SESSION: u16 = 0x8864;
/// Ethertypes of MPLS: RFC 3032 5 gives the second one to multicast, RFC 5332 4 to labels that the
/// receiver of the frame did not assign.
const MPLS: [u16; 2] = [0x8847, 0x8848];

/// Bytes of the PPPoE header: version and type, code, session, length (RFC 2516 4).
const PPPOE_HEADER: usize = 6;

/// The way from the first byte of an Ethernet frame to layer 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encapsulation {
    /// Offset of layer 3 in bytes: behind the last header that was understood. At least 14, and no
    /// further than the bytes that were given unless these end within the Ethernet header.
    pub layer3: usize,
    /// The ethertype of what stands at layer 3, also where PPP or MPLS say it in other words:
    /// [`IPV4`], [`IPV6`] or another; 0 where it is not known.
    pub ethertype: u16,
    /// VLAN id of the outermost tag.
    pub vlan: Option<u16>,
    /// Offset of the PPPoE header in bytes.
    pub pppoe: Option<usize>,
    /// Offset of the MPLS label stack in bytes.
    pub labels: Option<usize>,
}

impl Encapsulation {
    /// Reads an Ethernet frame up to its layer 3. Never fails: what is cut short or unknown is
    /// where layer 3 begins, with an ethertype that is not IP.
    pub fn read(bytes: &[u8]) -> Encapsulation {
        let mut found = Encapsulation { layer3: 14, ..Encapsulation::default() };
        found.ethertype = chunk::<2>(bytes, 12).map_or(0, |b| u16::from_be_bytes(*b));
        found.inward(bytes);
        found
    }

    /// True if the two bytes before layer 3 are its ethertype: there is neither a PPPoE session nor
    /// a label stack.
    pub fn is_direct(&self) -> bool {
        self.pppoe.is_none() && self.labels.is_none()
    }

    /// Goes from the ethertype at hand to that of layer 3.
    #[inline]
    fn inward(&mut self, bytes: &[u8]) {
        if is_tag(self.ethertype) {
            self.tags(bytes);
        }
        if !matches!(self.ethertype, IPV4 | IPV6) {
            self.session_and_labels(bytes);
        }
    }

    /// Walks through a stack of tags.
    #[inline]
    fn tags(&mut self, bytes: &[u8]) {
        for _ in 0..MAX_TAGS {
            let Some(&[tag0, tag1, kind0, kind1]) = chunk::<4>(bytes, self.layer3) else {
                self.ethertype = 0;
                return;
            };
            // The outermost.
            self.vlan.get_or_insert(u16::from_be_bytes([tag0, tag1]) & 0xfff);
            self.layer3 += 4;
            self.ethertype = u16::from_be_bytes([kind0, kind1]);
            if !is_tag(self.ethertype) {
                return;
            }
        }
        self.ethertype = 0;
    }

    #[inline(never)]
    fn session_and_labels(&mut self, bytes: &[u8]) {
        if self.ethertype == PPPOE_SESSION {
            self.session(bytes);
        }
        if MPLS.contains(&self.ethertype) {
            self.label_stack(bytes);
        }
    }

    /// The header of a PPPoE session (RFC 2516 4, 6) and PPP's protocol field. Its length field is
    /// not read: the IP header states its own.
    fn session(&mut self, bytes: &[u8]) {
        let start = self.layer3;
        // Version 1, type 1; code 0 is session data.
        let Some(&[0x11, 0, ..]) = chunk::<PPPOE_HEADER>(bytes, start) else { return };
        let at = start + PPPOE_HEADER;
        // RFC 1661 2: the first byte of a protocol number is even, the last one odd. So a first
        // byte that is odd is the whole field, compressed to one byte (RFC 1661 6.5).
        let (protocol, size) = match (bytes.get(at), bytes.get(at + 1)) {
            (Some(&only), _) if only & 1 == 1 => (u16::from(only), 1),
            (Some(&high), Some(&low)) => (u16::from_be_bytes([high, low]), 2),
            _ => return,
        };
        self.pppoe = Some(start);
        self.layer3 = at + size;
        self.ethertype = match protocol {
            // RFC 1332 2.1.
            0x0021 => IPV4,
            // RFC 5072 2.
            0x0057 => IPV6,
            // RFC 3032 4.3.
            0x0281 => MPLS[0],
            0x0283 => MPLS[1],
            // LCP, IPCP and others.
            _ => 0,
        };
    }

    /// An MPLS label stack up to its bottom, which alone may say what follows (RFC 3032 2.1, 2.2).
    fn label_stack(&mut self, bytes: &[u8]) {
        let start = self.layer3;
        for label in 0..MAX_LABELS {
            let at = start + 4 * label;
            let Some(&[high, middle, low, _ttl]) = chunk::<4>(bytes, at) else { return };
            // 20 bits of label, 3 of traffic class, 1 for the bottom of the stack.
            if low & 1 == 0 {
                continue;
            }
            self.labels = Some(start);
            self.layer3 = at + 4;
            let next = bytes.get(self.layer3).map(|first| first >> 4);
            self.ethertype = match (u32::from_be_bytes([0, high, middle, low]) >> 4, next) {
                // The explicit nulls of IPv4 and IPv6.
                (0, _) => IPV4,
                (2, _) => IPV6,
                // What other labels stand for only their receiver knows. Routers that look for
                // flows go by the version (RFC 4928 2). 0 and 1 begin the control word of a
                // pseudowire (RFC 4385 3, 5). An Ethernet pseudowire without one may be taken for
                // IP (RFC 8469).
                (_, Some(4)) => IPV4,
                (_, Some(6)) => IPV6,
                _ => 0,
            };
            return;
        }
    }
}

/// The ethertypes of VLAN tags: 802.1Q, 802.1ad, and two that were in use before 802.1ad.
fn is_tag(kind: u16) -> bool {
    matches!(kind, 0x8100 | 0x88a8 | 0x9100 | 0x9200)
}
