//! A link without a policy: a FIFO before a wire. When a packet leaves is known when it arrives, so
//! it needs no events of its own. This makes the simulator fast, because most hops of a case are
//! access links and the path of acknowledgements.

use std::collections::VecDeque;

use altq_engine::settings::Limit;
use altq_engine::units::Nanos;

use crate::wire::{BeyondTime, Wire};

/// A drop-tail FIFO and its driver's ring. It does the same as an engine with `fifo` and
/// `drop_tail`.
#[derive(Clone, Debug)]
pub struct Fifo {
    limit: Limit,
    ring: usize,
    /// Packets that may not have left, without the last one: the time at which each one's
    /// transmission ends, and the bytes of all packets up to it, itself included. Those that have
    /// left are removed from time to time. On a link that is idle for most packets it stays empty.
    held: VecDeque<(Nanos, u64)>,
    /// The bytes of all packets up to the last one.
    bytes: u64,
    /// When the last packet leaves.
    last: Nanos,
    /// While `held` has fewer packets than this, another one fits whatever has left: at most as
    /// many as there is room for. With a limit in bytes it is 0.
    sure: usize,
}

/// `held` has at most as many packets that have left as others, or this many.
const LEFT: usize = 16;

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was accepted, and its last bit leaves at this time.
    Leaves(Nanos),
    /// It was dropped because the FIFO is full.
    Full,
    /// The end of its transmission does not fit 64 bits of nanoseconds.
    BeyondTime(BeyondTime),
}

impl Fifo {
    /// An empty FIFO before a driver whose ring holds `ring` packets (0 counts as 1).
    pub fn new(limit: Limit, ring: usize) -> Fifo {
        let mut fifo = Fifo { limit, ring: ring.max(1), held: VecDeque::new(), bytes: 0, last: 0, sure: 0 };
        fifo.settle(0);
        fifo
    }

    /// Takes a packet of `len` bytes that takes `charged` bytes on the wire. Nothing else may use
    /// the wire.
    #[inline(always)]
    pub fn take(&mut self, now: Nanos, len: u32, charged: u32, wire: &mut Wire) -> Fate {
        // A transmission that ends now is complete: completions come before arrivals.
        let idle = self.last <= now;
        if idle {
            if !self.held.is_empty() {
                self.held.clear();
            }
            wire.begin(now);
        } else {
            self.held.push_back((self.last, self.bytes));
        }
        if self.held.len() >= self.sure && !self.fits(now, len) {
            // The last packet is still the last one.
            if !idle {
                self.held.pop_back();
            }
            return Fate::Full;
        }
        let end = match wire.pass(charged) {
            Ok(end) => end,
            Err(error) => return Fate::BeyondTime(error),
        };
        self.bytes += u64::from(len);
        self.last = end;
        Fate::Leaves(end)
    }

    /// Whether a packet of `len` bytes fits. `held` has the last packet now.
    #[inline(never)]
    fn fits(&mut self, now: Nanos, len: u32) -> bool {
        self.settle(now);
        // The driver's ring has the first of these packets; the others wait in the FIFO. Every
        // packet passes through the FIFO, so its limit counts even if the ring has room.
        let waiting = self.held.len().saturating_sub(self.ring);
        match self.limit {
            Limit::Packets(most) => waiting < most as usize,
            Limit::Bytes(most) => {
                let before = match waiting {
                    0 => self.bytes,
                    _ => self.held.get(self.ring - 1).map_or(self.bytes, |(_, bytes)| *bytes),
                };
                self.bytes - before + u64::from(len) <= u64::from(most)
            }
        }
    }

    /// Removes the packets that have left.
    fn settle(&mut self, now: Nanos) {
        while self.held.pop_front_if(|(end, _)| *end <= now).is_some() {}
        self.sure = match self.limit {
            Limit::Packets(0) | Limit::Bytes(_) => 0,
            Limit::Packets(most) => self.ring.saturating_add(most as usize).min(2 * self.held.len() + LEFT),
        };
    }
}

#[cfg(test)]
mod tests {
    use altq_engine::drive::{self, Taken};
    use altq_engine::settings::Settings;
    use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, ROOT, SchedulerSpec};
    use altq_engine::units::Rate;
    use altq_engine::{Departure, Engine, Packet};
    use rand_pcg::Pcg32;
    use rand_pcg::rand_core::Rng;

    use super::*;

    /// The expected result: packets, and when they leave if an engine is before the same wire and
    /// is asked on every arrival and completion.
    fn by_engine(limit: Limit, ring: usize, rate: Rate, arrivals: &[(Nanos, u32)]) -> Vec<(u32, Nanos)> {
        let queue = QueueSpec::plain(limit);
        let spec = LinkSpec {
            default: Some(ROOT),
            ..LinkSpec::new(
                rate,
                SchedulerSpec::plain(),
                vec![ClassSpec { parent: ROOT, settings: Settings::new(), queue: Some(queue), scheduler: None }],
            )
        };
        let (mut engine, mut wire, mut left) = (Engine::new(&spec).unwrap(), Wire::new(rate, ring), Vec::new());
        let ask = |now, engine: &mut Engine, wire: &mut Wire, left: &mut Vec<(u32, Nanos)>| {
            let sent = |departure: Departure, taken: Taken| -> Result<(), BeyondTime> {
                left.push((departure.packet.handle, taken.end.unwrap()));
                Ok(())
            };
            _ = drive::fill(engine, now, wire, sent).unwrap();
        };
        for (at, (time, len)) in arrivals.iter().enumerate() {
            while let Some(end) = wire.next_end().filter(|end| end <= time) {
                wire.complete();
                ask(end, &mut engine, &mut wire, &mut left);
            }
            engine.enqueue(*time, ROOT, Packet::new(at as u32, *len));
            ask(*time, &mut engine, &mut wire, &mut left);
        }
        while let Some(end) = wire.next_end() {
            wire.complete();
            ask(end, &mut engine, &mut wire, &mut left);
        }
        left
    }

    #[test]
    fn it_does_what_the_engine_does() {
        let mut random = Pcg32::new(3, 1);
        for limit in [Limit::Packets(1), Limit::Packets(7), Limit::Bytes(1), Limit::Bytes(1500), Limit::Bytes(9000)] {
            for ring in [1, 2, 5] {
                let rate = Rate::bit_s(3_000_007);
                let mut now = 0;
                let arrivals: Vec<(Nanos, u32)> = (0..3_000)
                    .map(|_| {
                        // 760 bytes take 2 ms, so about as many packets arrive as leave, some of
                        // them at the same instant.
                        now += u64::from(random.next_u32() % 4) * 1_000_000;
                        (now, 40 + random.next_u32() % 1461)
                    })
                    .collect();
                let (mut fifo, mut wire) = (Fifo::new(limit, ring), Wire::new(rate, usize::MAX));
                let mut left = Vec::new();
                for (at, (time, len)) in arrivals.iter().enumerate() {
                    if let Fate::Leaves(end) = fifo.take(*time, *len, *len, &mut wire) {
                        left.push((at as u32, end));
                    }
                }
                let expected = by_engine(limit, ring, rate, &arrivals);
                assert!(
                    left == expected,
                    "{limit:?}, ring {ring}: {} and {} of {}",
                    left.len(),
                    expected.len(),
                    arrivals.len()
                );
                assert!(
                    left.len() < arrivals.len() && (left.len() > 300) == (limit != Limit::Bytes(1)),
                    "{}",
                    left.len()
                );
            }
        }
    }
}
