//! Any bytes as a pcap or pcapng file: refused, or frames that lie within it and parse.

#![no_main]

use altq_engine::headers::parse_ethernet;
use altq_simulator::sim::Capture;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(capture) = Capture::read(bytes.to_vec()) else { return };
    for frame in &capture.frames {
        let ethernet = capture.ethernet(frame);
        let _ = parse_ethernet(&ethernet, ethernet.len() as u32);
    }
});
