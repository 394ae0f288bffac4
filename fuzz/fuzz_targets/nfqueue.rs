//! Any bytes as a datagram of the kernel's packet queue: no panic, an end, and packets that lie
//! within the datagram.

#![no_main]

use altq_dataplane::nfqueue::message::{Message, Messages};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| {
    let mut count = 0;
    for message in Messages::new(datagram) {
        count += 1;
        if let Message::Packet(packet) = message {
            let bytes = datagram.as_ptr_range();
            assert!(packet.head.is_empty() || bytes.contains(&packet.head.as_ptr()));
            assert!(packet.head.len() <= datagram.len() && packet.len as usize >= packet.head.len());
        }
    }
    assert!(count <= datagram.len());
});
