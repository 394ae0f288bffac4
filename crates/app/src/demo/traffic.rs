//! The demo's traffic: the same packets for every queue and in every run.

use altq_cases::random::Random;
use altq_engine::units::{Nanos, SECOND};

const MILLISECOND: Nanos = SECOND / 1000;

/// The packets of a class.
pub struct Stream {
    /// The class.
    pub class: &'static str,
    /// Packets of a burst, such as a page.
    pub burst: u32,
    /// Bytes of each packet at layer 3.
    pub bytes: u32,
    /// The mean time from one burst to the next.
    pub every: Nanos,
    /// When the stream stops.
    pub until: Nanos,
}

/// One packet.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When it arrives.
    pub at: Nanos,
    /// The number of its stream.
    pub stream: usize,
    /// Bytes at layer 3.
    pub bytes: u32,
}

/// When `video` pauses; before that all streams send.
pub const PAUSE: Nanos = 6 * SECOND;

/// The end of the traffic.
pub const END: Nanos = 12 * SECOND;

/// The time from one packet of a page to the next, as if a faster line before this one had sent
/// them.
const PAGE_GAP: Nanos = 600_000;

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

/// All packets, in order of time. The time of each burst is random within its interval, with the
/// same random numbers in every run. If the sources were in step, one of them could lose all its
/// packets at a full queue.
pub fn arrivals() -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    for (stream, what) in STREAMS.iter().enumerate() {
        let mut random = Random::new(1997, stream as u64);
        let mut due = 0;
        while due < what.until {
            let at = due + u64::from(random.below(u32::try_from(what.every).unwrap_or(u32::MAX)));
            arrivals.extend((0..what.burst).map(|n| Arrival {
                at: at + u64::from(n) * PAGE_GAP,
                stream,
                bytes: what.bytes,
            }));
            due += what.every;
        }
    }
    arrivals.sort_by_key(|arrival| arrival.at);
    arrivals
}
