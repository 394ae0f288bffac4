//! Writes DSCP and ECN into a frame before it is sent, as a meter or a queue decided.
//!
//! Both share one octet: the DS field (RFC 2474 3) and two bits of ECN (RFC 3168 5). In IPv4 it is
//! the second octet of the header and covered by the header's checksum, which is updated without
//! summing the header again (RFC 1624 3). In IPv6 it is the eight bits after the version. No
//! checksum of the transport layer covers it.

use altq_engine::headers::{Encapsulation, IPV4, IPV6};

/// Writes a DSCP (0 to 63) and an ECN field (RFC 3168 5: 0 not-ECT, 1 ECT(1), 2 ECT(0), 3 CE) into
/// an Ethernet frame: into the IP header that the engine's parser reads, behind VLAN tags, a PPPoE
/// session or an MPLS label stack ([`Encapsulation`]). The traffic class of labels stays. True if
/// that changed the frame; false if it had these values already, or has no complete IP header.
///
/// ```
/// # use altq_dataplane::remark::remark;
/// // IPv4 with DSCP 0, ECT(0), and a header checksum that is right.
/// let header = vec![8, 0, 0x45, 2, 0, 20, 0, 0, 0, 0, 64, 17, 0x66, 0xd5, 10, 0, 0, 1, 10, 0, 0, 2];
/// let mut frame = [vec![2; 12], header].concat();
/// assert!(remark(&mut frame, 46, 3));
/// assert_eq!(frame[15], 46 << 2 | 3);
/// assert!(!remark(&mut frame, 46, 3));
/// ```
pub fn remark(frame: &mut [u8], dscp: u8, ecn: u8) -> bool {
    let octet = (dscp & 0x3f) << 2 | ecn & 3;
    let way = Encapsulation::read(frame);
    let Some(packet) = frame.get_mut(way.layer3..) else { return false };
    match way.ethertype {
        IPV4 => remark_v4(packet, octet),
        IPV6 => remark_v6(packet, octet),
        _ => false,
    }
}

fn remark_v4(packet: &mut [u8], octet: u8) -> bool {
    let Some(header) = packet.first_chunk_mut::<20>() else { return false };
    if header[0] >> 4 != 4 || header[0] & 15 < 5 || header[1] == octet {
        return false;
    }
    let before = u16::from_be_bytes([header[0], header[1]]);
    header[1] = octet;
    let after = u16::from_be_bytes([header[0], header[1]]);
    // RFC 1624 3, equation 3: HC' = ~(~HC + ~m + m').
    let sum = u32::from(!u16::from_be_bytes([header[10], header[11]])) + u32::from(!before) + u32::from(after);
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    [header[10], header[11]] = checksum.to_be_bytes();
    true
}

fn remark_v6(packet: &mut [u8], octet: u8) -> bool {
    let Some(header) = packet.first_chunk_mut::<40>() else { return false };
    let now = header[0] << 4 | header[1] >> 4;
    if header[0] >> 4 != 6 || now == octet {
        return false;
    }
    header[0] = 0x60 | octet >> 4;
    header[1] = octet << 4 | header[1] & 15;
    true
}

#[cfg(test)]
mod tests {
    use altq_engine::headers::parse_ethernet;

    use super::*;
    use crate::checksum::Sum;

    /// What stands between the tags and the IP header.
    #[derive(Clone, Copy, PartialEq)]
    enum Wrap {
        Nothing,
        /// A PPPoE session (RFC 2516 4).
        Session,
        /// A PPPoE session with PPP's protocol field in one byte (RFC 1661 6.5).
        Short,
        /// Two labels (RFC 3032 2.1).
        Labels,
    }

    /// A frame with these tags around an IPv4 header with options, or an IPv6 one, and some
    /// payload.
    fn frame(v6: bool, tags: &[u16], wrap: Wrap, octet: u8, noise: u8) -> (Vec<u8>, usize) {
        let mut frame = vec![2; 12];
        for tag in tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([noise & 15, 7]);
        }
        let protocol = if v6 { 0x57 } else { 0x21 };
        match wrap {
            Wrap::Nothing => frame.extend(if v6 { 0x86dd_u16 } else { 0x0800 }.to_be_bytes()),
            Wrap::Session => frame.extend([0x88, 0x64, 0x11, 0, noise, 1, 0, 38, 0, protocol]),
            Wrap::Short => frame.extend([0x88, 0x64, 0x11, 0, noise, 1, 0, 37, protocol]),
            Wrap::Labels => frame.extend([0x88, 0x47, noise, noise, 0x1e, 64, 0, 1, 0x01, 64]),
        }
        let at = frame.len();
        if v6 {
            frame.extend([0x60 | octet >> 4, octet << 4 | noise & 15, noise, 1, 0, 12, 17, 64]);
            frame.extend([noise; 32]);
        } else {
            frame.extend([
                0x46, octet, 0, 36, noise, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, noise, 1, 192, 0, 2, noise, 1, 1, 1, 0,
            ]);
            let sum = Sum::default().add(&frame[at..]).finish();
            frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
        }
        frame.extend([0x9c, 0x40, 1, 0xbb, 0, 12, 0, 0, 1, 2, 3, 4]);
        (frame, at)
    }

    #[test]
    fn every_octet_into_every_other_and_nothing_else_changes() {
        for (v6, tags, wrap) in [
            (false, &[][..], Wrap::Nothing),
            (false, &[0x8100], Wrap::Nothing),
            (true, &[], Wrap::Nothing),
            (true, &[0x88a8, 0x8100], Wrap::Nothing),
            (false, &[], Wrap::Session),
            (true, &[0x8100], Wrap::Session),
            (false, &[0x8100], Wrap::Short),
            (true, &[], Wrap::Short),
            (false, &[], Wrap::Labels),
            (true, &[0x88a8, 0x8100], Wrap::Labels),
        ] {
            for from in 0..=255u8 {
                let (before, at) = frame(v6, tags, wrap, from, from.wrapping_mul(37));
                for to in (0..=255u8).step_by(7).chain([255]) {
                    let mut after = before.clone();
                    assert_eq!(remark(&mut after, to >> 2, to & 3), from != to);
                    // The engine's parser reads what was written.
                    let key = parse_ethernet(&after, after.len() as u32).key;
                    assert_eq!((key.dscp(), key.ecn()), (to >> 2, to & 3), "{from:#x} to {to:#x}");
                    if !v6 {
                        // RFC 1071, section 1: the sum over a header with its checksum is all ones,
                        // whichever of the two forms of zero the checksum has.
                        assert_eq!(Sum::default().add(&after[at..at + 24]).folded(), 0xffff, "{from:#x} to {to:#x}");
                    }
                    assert!(remark(&mut after, from >> 2, from & 3) || from == to);
                    let same = |n: usize| n == at + 10 || n == at + 11 || before[n] == after[n];
                    assert!(before.len() == after.len() && (0..before.len()).all(same));
                }
            }
        }
    }

    /// RFC 1624, section 4: if the sum is FFFF the checksum becomes 0000, as it would when computed
    /// anew, and not FFFF, as the equation of RFC 1141 gives.
    #[test]
    fn rfc_1624_zero() {
        let mut header = [0u8; 20];
        (header[0], header[1]) = (0x45, 0x55);
        // ~HC + ~m + m' = FFCF + BAAA + 4585 = 1FFFE, folded FFFF.
        let checksum = !0xffcf_u16;
        [header[10], header[11]] = checksum.to_be_bytes();
        assert!(remark_v4(&mut header, 0x85));
        assert_eq!([header[10], header[11]], [0, 0]);
    }

    #[test]
    fn what_is_no_ip_stays_as_it_is() {
        for wrap in [Wrap::Session, Wrap::Short, Wrap::Labels, Wrap::Nothing] {
            let (whole, at) = frame(false, &[0x8100], wrap, 0, 9);
            for cut in 0..at + 20 {
                let mut short = whole[..cut].to_vec();
                assert!(!remark(&mut short, 46, 3) && short == whole[..cut], "{cut}");
            }
        }
        let (whole, at) = frame(false, &[0x8100], Wrap::Nothing, 0, 9);
        let mut arp = whole.clone();
        (arp[at - 2], arp[at - 1]) = (8, 6);
        let mut version = whole.clone();
        version[at] = 0x65;
        let mut short_header = whole.clone();
        short_header[at] = 0x44;
        let tags = [vec![2; 12], [0x81, 0, 0, 1].repeat(40)].concat();
        // LCP in a session, PPPoE discovery, and a pseudowire's control word behind labels.
        let (session, at) = frame(false, &[], Wrap::Session, 0, 9);
        let (mut lcp, mut discovery) = (session.clone(), session);
        (lcp[at - 2], lcp[at - 1]) = (0xc0, 0x21);
        (discovery[13], discovery[15]) = (0x63, 9);
        let (mut pseudowire, at) = frame(false, &[], Wrap::Labels, 0, 9);
        pseudowire.splice(at..at, [0; 4]);
        for frame in [arp, version, short_header, tags, lcp, discovery, pseudowire] {
            let mut marked = frame.clone();
            assert!(!remark(&mut marked, 46, 3) && marked == frame);
        }
    }
}
