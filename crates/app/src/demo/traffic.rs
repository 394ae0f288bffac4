//! The demo's traffic: the same packets for every queue and in every run.

use altq_cases::random::Random;
use altq_engine::units::{Nanos, SECOND};

const MILLISECOND: Nanos = SECOND / 1000;

/// What a class is sent.
pub struct Stream {
    /// The class.
    pub class: &'static str,
    /// Packets that belong together: a page.
    pub burst: u32,
    /// Bytes of each, layer 3.
    pub bytes: u32,
    /// From one burst to the next, on average.
    pub every: Nanos,
    /// When it stops.
    pub until: Nanos,
}

/// One packet.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When.
    pub at: Nanos,
    /// Of which stream.
    pub stream: usize,
    /// Bytes, layer 3.
    pub bytes: u32,
}

/// Everybody sends until here; then `video` pauses.
pub const PAUSE: Nanos = 6 * SECOND;

/// The end.
pub const END: Nanos = 12 * SECOND;

/// From one packet of a page to the next: what a faster line before this one makes of it.
const APART: Nanos = 600_000;

/// The streams, 19.4 Mbit/s in all.
pub const STREAMS: [Stream; 5] = [
    // Five calls, each a packet of 200 bytes every 20 ms: 0.4 Mbit/s.
    Stream { class: "phone", burst: 1, bytes: 200, every: 4 * MILLISECOND, until: END },
    // Pages of 12 kB: 2 Mbit/s.
    Stream { class: "orders", burst: 8, bytes: 1500, every: 48 * MILLISECOND, until: END },
    // 9 Mbit/s.
    Stream { class: "backup", burst: 1, bytes: 1500, every: 1_333_333, until: END },
    // Pages of 9 kB: 3 Mbit/s.
    Stream { class: "web", burst: 6, bytes: 1500, every: 24 * MILLISECOND, until: END },
    // 5 Mbit/s.
    Stream { class: "video", burst: 1, bytes: 1200, every: 1_920_000, until: PAUSE },
];

/// All packets, in order of time. Every burst is early or late by up to half its interval, by the
/// same lots in every run: sources in step with each other would win or lose everything at a full
/// queue.
pub fn arrivals() -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    for (stream, what) in STREAMS.iter().enumerate() {
        let mut random = Random::new(1997, stream as u64);
        let mut due = 0;
        while due < what.until {
            let at = due + u64::from(random.below(u32::try_from(what.every).unwrap_or(u32::MAX)));
            arrivals.extend((0..what.burst).map(|n| Arrival {
                at: at + u64::from(n) * APART,
                stream,
                bytes: what.bytes,
            }));
            due += what.every;
        }
    }
    arrivals.sort_by_key(|arrival| arrival.at);
    arrivals
}
