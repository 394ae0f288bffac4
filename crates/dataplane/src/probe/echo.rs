//! ICMP echo requests and their answers (RFC 792; RFC 4443 4.1 and 4.2).

use altq_adapt::PROBE_BYTES;

/// The header: type, code, checksum, identifier, sequence number.
const HEADER: usize = 8;

/// Length of a request: a probe without its IPv4 header.
const LENGTH: usize = PROBE_BYTES as usize - 20;

/// A request. Its data are zeros.
///
/// The kernel writes the checksum of ICMPv6 itself (RFC 3542 3.1), and the identifier of a ping
/// socket.
pub fn request(v6: bool, id: u16, sequence: u16) -> [u8; LENGTH] {
    let mut message = [0; LENGTH];
    message[0] = if v6 { 128 } else { 8 };
    message[4..6].copy_from_slice(&id.to_be_bytes());
    message[6..8].copy_from_slice(&sequence.to_be_bytes());
    if !v6 {
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    message
}

/// Identifier and sequence number of an answer; `None` for anything else. `with_ip`: whether an
/// IPv4 header comes first, as from a raw socket.
pub fn answer(v6: bool, with_ip: bool, packet: &[u8]) -> Option<(u16, u16)> {
    let message = if with_ip {
        let words = usize::from(packet.first()? & 15);
        packet.get(words * 4..)?
    } else {
        packet
    };
    let header: &[u8; HEADER] = message.first_chunk()?;
    let [kind, code, _, _, id @ .., high, low] = header;
    let wanted = if v6 { 129 } else { 0 };
    (*kind == wanted && *code == 0).then(|| (u16::from_be_bytes([id[0], id[1]]), u16::from_be_bytes([*high, *low])))
}

/// The Internet checksum (RFC 1071 4.1) of an even number of bytes.
fn checksum(message: &[u8]) -> u16 {
    let words = message.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_and_its_answer() {
        let request = request(false, 1, 0x0102);
        // 0x0800 + 0x0001 + 0x0102 = 0x0903, and its complement is 0xf6fc.
        assert_eq!(request[..8], [8, 0, 0xf6, 0xfc, 0, 1, 1, 2]);
        assert_eq!(request.len(), 64);
        assert_eq!(super::request(true, 7, 9)[..8], [128, 0, 0, 0, 0, 7, 0, 9]);
        // The other end changes the type.
        let mut back = request;
        back[0] = 0;
        assert_eq!(answer(false, false, &back), Some((1, 0x0102)));
        assert_eq!(answer(false, false, &request), None, "a request is no answer");
        assert_eq!(answer(true, false, &back), None);
        back[0] = 129;
        assert_eq!(answer(true, false, &back), Some((1, 0x0102)));
    }

    #[test]
    fn an_ip_header_with_options_comes_first() {
        let mut packet = vec![0x46; 24];
        packet.extend([0, 0, 0, 0, 0, 5, 0, 6]);
        assert_eq!(answer(false, true, &packet), Some((5, 6)));
        for length in 0..packet.len() {
            assert_eq!(answer(false, true, &packet[..length]), None, "{length} bytes");
        }
    }
}
