//! The service of a reservation: delays of packets whose sources keep to their token buckets, while
//! another class always has packets.

use crate::support;

use std::collections::HashMap;

use altq_engine::Packet;
use altq_reserve::{Excess, Request, Tspec};
use support::{Random, World, add, tspec};

/// At 10 Mbit/s a byte takes 800 ns.
const BYTE: u64 = 800;
const POLICY: &str = "link l { rate 10Mbit/s overhead ethernet regulator none scheduler cbq
    class high { rate 500kbit/s  priority 7 }
    class res  { rate 5Mbit/s  priority 6  reservations { buffer 200000bytes  delay 90ms } }
    class rest { rate 4Mbit/s  borrow  default } }";

/// A source that sends as soon as its bucket allows, or after a pause that fills the bucket.
struct Source {
    id: u64,
    class: u32,
    bucket: Tspec,
    /// Tokens, in units of 10^-9 bit: a byte is 8,000,000,000 units, and each nanosecond adds as
    /// many units as the rate has bit/s.
    tokens: u64,
    /// When the tokens were counted.
    at: u64,
    /// When the next packet comes, and how long it is.
    next: (u64, u32),
}

const TOKEN: u64 = 8_000_000_000;

impl Source {
    /// One byte less than the bucket holds, because meters count whole bytes.
    fn depth(&self) -> u64 {
        (self.bucket.burst_bytes - 1) * TOKEN
    }

    fn fill(&mut self, now: u64) {
        let come = (now - self.at).saturating_mul(self.bucket.rate_bit_s);
        self.tokens = self.tokens.saturating_add(come).min(self.depth());
        self.at = now;
    }

    /// The tokens for a packet: one below the minimum unit counts as one of that size.
    fn need(&self, len: u32) -> u64 {
        u64::from(len.max(self.bucket.min_unit_bytes.unwrap())) * TOKEN
    }

    /// Chooses the next packet, which comes at `from` or later.
    fn choose(&mut self, random: &mut Random, from: u64) {
        let max = u64::from(self.bucket.max_packet_bytes.unwrap());
        let len = if random.chance(50) { max } else { 30 + random.below(max - 29) };
        let len = len as u32;
        let lacks = self.need(len).saturating_sub(self.tokens);
        let rest = if random.chance(5) { self.depth().div_ceil(self.bucket.rate_bit_s) } else { 0 };
        self.next = (from + lacks.div_ceil(self.bucket.rate_bit_s).max(rest), len);
    }
}

fn sources(random: &mut Random, world: &mut World) -> Vec<Source> {
    let mut sources = Vec::new();
    for n in 0..12_u16 {
        let max = 200 + random.below(1300) as u32;
        let min = 60 + random.below(140) as u32;
        let bucket = tspec(20_000 + random.below(300_000), 1 + u64::from(max) + random.below(6_000), min, max);
        let excess = if n % 2 == 0 { Excess::Borrow } else { Excess::Default };
        let answer = world.ask(&Request { excess: Some(excess), ..add(&n.to_string(), n + 1, bucket) });
        let Some(id) = answer.id else { continue };
        let class = world.table.get(id).unwrap().class;
        let mut source = Source { id, class, bucket, tokens: 0, at: 0, next: (0, 0) };
        source.tokens = source.depth();
        source.choose(random, 0);
        sources.push(source);
    }
    sources
}

#[test]
fn conforming_packets_wait_no_longer_than_promised() {
    let mut longest = 0;
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let mut world = World::new(POLICY);
        let mut sources = sources(&mut random, &mut world);
        assert!(sources.len() > 5, "seed {seed}: {}", sources.len());
        let rest = world.link.class("rest").unwrap();
        // For each packet that waits: its source, and when it came.
        let mut waiting: HashMap<u32, (u64, u64, u32)> = HashMap::new();
        let (mut free, mut handle, mut sent) = (0, 0, 0);
        while sent < 20_000 {
            // Packets that come while the wire is busy, or exactly when it becomes free.
            while let Some(source) = sources.iter_mut().filter(|s| s.next.0 <= free).min_by_key(|s| s.next.0) {
                let (now, len) = source.next;
                source.fill(now);
                source.tokens = source.tokens.checked_sub(source.need(len)).expect("the source keeps to its bucket");
                world.engine.enqueue(now, source.class, Packet::new(handle, len));
                waiting.insert(handle, (source.id, now, source.class));
                handle += 1;
                source.choose(&mut random, now);
            }
            while world.engine.counters(rest).queued_packets < 2 {
                world.engine.enqueue(free, rest, Packet::new(handle, 1500));
                handle += 1;
            }
            let departure = world.engine.dequeue(free).expect("the rest always has packets");
            free += u64::from(departure.packet.wire) * BYTE;
            sent += 1;
            let Some((id, came, class)) = waiting.remove(&departure.packet.handle) else { continue };
            assert_eq!(departure.class, class, "a conforming packet was sent elsewhere");
            let (wait, promised) = (free - came, world.table.wait(id).unwrap());
            assert!(wait <= promised, "seed {seed}: reservation {id} waits {wait} ns of {promised}");
            longest = longest.max(wait * 100 / promised);
        }
        assert_eq!(world.engine.drops().count(), 0, "seed {seed}: a conforming packet was dropped");
    }
    // The bound is not too loose: the longest wait is a good part of it.
    assert!(longest > 30, "{longest} % of the bound");
}
