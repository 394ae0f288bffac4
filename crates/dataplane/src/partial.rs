//! Completes checksums that a sender has left to its device.
//!
//! Linux hands TCP and UDP to a device that computes checksums with the pseudo-header's sum in the
//! checksum field (`CHECKSUM_PARTIAL`, include/linux/skbuff.h), and a virtual device hands such
//! frames on to its other end. A packet socket tells which ones they are; AF_XDP does not.
//!
//! A field that holds the sum of the pseudo-header can be told from the frame alone. A frame whose
//! checksum is complete may hold that value by chance, one in 65,536; completing it again does not
//! change it. With P the sum of the pseudo-header and D that of the rest, without the field, the
//! complete checksum is `~(P + D)`. If that is P, then completing gives `~(P + D) = P` once more.
//! Only a frame that was damaged on its way, and whose field is P by chance, would get a right
//! checksum; frames that come from a real wire have a check sequence against that.

use altq_engine::headers::{Headers, parse_ethernet};

use crate::checksum::Sum;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Completes the checksum of a TCP segment or UDP datagram over IPv4 or IPv6 in an Ethernet frame,
/// if its sender left it open. True if the frame was changed. Fragments, and what is inside
/// tunnels, stay as they are.
///
/// ```
/// # use altq_dataplane::partial::complete;
/// // UDP from 10.0.0.1 to 10.0.0.2, ports 1 and 2, of 8 bytes: the pseudo-header's words 0a00 0001
/// // 0a00 0002 0011 0008 sum to 141c. With the datagram's words 0001 0002 0008 that is 1427.
/// let ip = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
/// let udp = [0, 1, 0, 2, 0, 8, 0x14, 0x1c];
/// let mut frame: Vec<u8> = [&[2_u8; 12][..], &[8, 0], &ip, &udp].concat();
/// assert!(complete(&mut frame));
/// assert_eq!(frame[40..], (!0x1427_u16).to_be_bytes());
/// assert!(!complete(&mut frame));
/// ```
pub fn complete(frame: &mut [u8]) -> bool {
    let found = parse_ethernet(frame, frame.len() as u32);
    let field = match found.key.proto {
        TCP => 16,
        UDP => 6,
        _ => return false,
    };
    let Some(begin) = found.transport.filter(|_| found.fragment.is_none()) else { return false };
    let (begin, end) = (begin as usize, found.layer3 as usize + found.key.length as usize);
    let Some(segment) = frame.get_mut(begin..end) else { return false };
    let Some(open) = segment.get(field..field + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]])) else {
        return false;
    };
    if open != pseudo(&found, segment.len()) {
        return false;
    }
    let sum = Sum::default().add(segment).finish();
    // RFC 768: UDP sends a checksum of 0 as all ones.
    let sum = if sum == 0 && found.key.proto == UDP { 0xffff } else { sum };
    segment[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    sum != open
}

/// The sum of the pseudo-header (RFC 9293 3.1, RFC 768, RFC 8200 8.1), not inverted.
fn pseudo(found: &Headers, len: usize) -> u16 {
    let mut sum = Sum::default();
    let (src, dst) = (found.key.src.to_be_bytes(), found.key.dst.to_be_bytes());
    // An IPv4 address is in the last four bytes. The length has 32 bits in IPv6 and 16 in IPv4,
    // where the sum is the same.
    let from = if found.key.family == 4 { 12 } else { 0 };
    sum.add(&src[from..]).add(&dst[from..]).add(&(len as u32).to_be_bytes()).word(u16::from(found.key.proto));
    sum.folded()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of 16-bit words, written anew as RFC 1071 section 1 says it.
    fn sum_of(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// A frame of TCP (20 bytes of header) or UDP with so many bytes of payload, the checksum left
    /// open, behind a VLAN tag if `tagged`; and its pseudo-header.
    fn open(v6: bool, proto: u8, tagged: bool, payload: usize) -> (Vec<u8>, Vec<u8>) {
        let (header, field) = if proto == TCP { (20, 16) } else { (8, 6) };
        let len = header + payload;
        let (src, dst): (Vec<u8>, Vec<u8>) = match v6 {
            true => (vec![0xfd; 16], vec![0xfe; 16]),
            false => (vec![10, 1, 2, 3], vec![10, 9, 8, 7]),
        };
        let pseudo = [src.clone(), dst.clone(), (len as u32).to_be_bytes().to_vec(), vec![0, 0, 0, proto]].concat();
        let mut frame: Vec<u8> = vec![2; 12];
        if tagged {
            frame.extend([0x81, 0, 0, 5]);
        }
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((len as u16).to_be_bytes());
            frame.extend([proto, 64]);
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((len as u16 + 20).to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, proto, 0, 0]);
        }
        frame.extend([src, dst].concat());
        let mut segment: Vec<u8> = (0..len).map(|at| (at * 37 + 11) as u8).collect();
        if proto == TCP {
            segment[12] = 0x50;
        } else {
            segment[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        }
        segment[field..field + 2].copy_from_slice(&sum_of(&pseudo).to_be_bytes());
        frame.extend(segment);
        (frame, pseudo)
    }

    #[test]
    fn a_checksum_left_open_is_completed() {
        for v6 in [false, true] {
            for proto in [TCP, UDP] {
                for (tagged, payload) in [(false, 0), (false, 1), (true, 1), (false, 1448), (true, 777)] {
                    let (mut frame, pseudo) = open(v6, proto, tagged, payload);
                    let before = frame.clone();
                    let whole = if proto == TCP { 20 + payload } else { 8 + payload };
                    // Padding of the link is not part of the packet.
                    frame.resize(before.len().max(60), 0x55);
                    assert!(complete(&mut frame), "{v6} {proto} {payload}");
                    let segment = &frame[before.len() - whole..before.len()];
                    // RFC 1071 section 1: the sum over all, with the checksum, is all ones.
                    assert_eq!(sum_of(&[&pseudo, segment].concat()), 0xffff, "{v6} {proto} {payload}");
                    // Only the two bytes of the field differ, and only once.
                    let differ = before.iter().zip(&frame).filter(|(a, b)| a != b).count();
                    assert!((1..=2).contains(&differ), "{differ}");
                    assert!(!complete(&mut frame));
                }
            }
        }
    }

    #[test]
    fn other_frames_stay_as_they_are() {
        let (whole, _) = open(false, UDP, false, 100);
        let fragment = |offset: [u8; 2]| {
            let mut frame = whole.clone();
            frame[20..22].copy_from_slice(&offset);
            frame
        };
        let mut none = whole.clone();
        none[40..42].fill(0);
        let mut wrong = whole.clone();
        wrong[41] ^= 1;
        let mut other = whole.clone();
        other[23] = 132;
        for (name, frame) in [
            ("the first fragment", fragment([0x20, 0])),
            ("a later fragment", fragment([0, 100])),
            ("UDP without a checksum", none),
            ("a wrong checksum", wrong),
            ("SCTP", other),
            ("ARP", [vec![2_u8; 12], vec![8, 6], vec![0; 46]].concat()),
            ("nothing", Vec::new()),
        ] {
            let mut after = frame.clone();
            assert!(!complete(&mut after) && after == frame, "{name}");
        }
        for len in 0..whole.len() {
            let mut cut = whole[..len].to_vec();
            // Any answer, but no panic.
            complete(&mut cut);
        }
    }
}
