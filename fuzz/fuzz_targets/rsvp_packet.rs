//! Any bytes as an IP packet at a raw socket of the RSVP daemon, as its configuration, and as a
//! request of its clients: no panic, and the message lies within the packet.

#![no_main]

use altq_rsvp::node::Transmit;
use altq_rsvpd::packet::{read4, read6, write};
use altq_rsvpd::{Settings, request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    for found in [read4(input), read6(input)].into_iter().flatten() {
        let range = input.as_ptr_range();
        let inside = found.message.as_ptr_range();
        assert!(found.message.is_empty() || (range.start <= inside.start && inside.end <= range.end));
        let transmit = Transmit {
            interface: 1,
            source: found.source,
            destination: found.destination,
            ttl: found.ttl,
            router_alert: input.len() % 2 == 0,
            message: found.message.to_vec(),
        };
        let Some(packet) = write(&transmit) else { continue };
        let again = if found.source.is_ipv4() { read4(&packet) } else { read6(&packet) };
        assert_eq!(again, Some(found));
    }
    let _ = request::read(input);
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = Settings::read(text, &|_| Err("no file".to_owned()));
    }
});
