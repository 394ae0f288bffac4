//! Any bytes as an RSVP message: no panic, a fault within the datagram, and what is understood can
//! be written and reads back the same.

#![no_main]

use altq_rsvp::integrity::{Algorithm, Key, sign, signature, verify};
use altq_rsvp::wire::{ErrorSpec, Hop, bounce, decode, encode, peek_hop, peek_session};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // As it is, and as a message whose length and checksum do not stand in the way.
    check(input);
    let mut message = input.to_vec();
    if let (Some(first), Ok(length)) = (message.first_mut(), u16::try_from(input.len())) {
        *first = 0x10;
        if message.len() >= 8 {
            message[2..4].fill(0);
            message[6..8].copy_from_slice(&length.to_be_bytes());
            check(&message);
        }
    }
});

fn check(message: &[u8]) {
    let key = Key { id: 1, algorithm: Algorithm::HmacSha256, secret: b"secret".to_vec() };
    let _ = signature(message);
    assert!(verify(message, std::slice::from_ref(&key)).is_err(), "a guess of 256 bits");
    let _ = peek_session(message);
    let hop = peek_hop(message);
    match decode(message) {
        Err(error) => {
            assert!(error.at <= message.len() && !error.to_string().is_empty());
            let node = hop.map_or(std::net::IpAddr::from([10_u8, 0, 0, 1]), |hop: Hop| hop.address);
            let error = ErrorSpec { node, flags: 0, code: 13, value: 0 };
            if let Some(answer) = bounce(message, error, Hop { address: node, handle: 1 }, 64) {
                assert!(answer.len() <= message.len() + 48);
            }
        }
        Ok(decoded) => {
            let written = encode(&decoded.message, decoded.header.send_ttl);
            let Ok(written) = written else { return };
            let again = decode(&written).unwrap();
            // Debug, because NaN is not equal to itself.
            assert_eq!(format!("{:?}", again.message), format!("{:?}", decoded.message));
            if let Some(signed) = sign(&written, &key, 7) {
                assert_eq!(verify(&signed, &[key]).unwrap().sequence, 7);
                assert_eq!(decode(&signed).unwrap().message.kind(), decoded.message.kind());
            }
        }
    }
}
