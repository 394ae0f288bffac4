//! A network card with several transmit queues: a ring each, served round robin, a packet of the
//! wire at a time.
//!
//! What the operating system hands over lies in a queue's ring until its last bit has left. The
//! card takes the rings in turn: of the next one that holds anything it sends one packet, and of a
//! super-packet (TSO) one segment, so that a long one holds others up by one segment only
//! (DragonFly's measurements: "round-robin is on TSO segment boundry"; docs/reference/altq.md 9).
//! Rings are deep, 512 and more: a priority given before them ends where they begin.

use std::collections::VecDeque;

use altq_cases::limits::MOST_QUEUES;
use altq_engine::Packet;
use altq_engine::drive::{Taken, Transmitter};
use altq_engine::link::Overhead;
use altq_engine::units::{Nanos, Rate};

use crate::wire::{BeyondTime, Wire};

/// What a packet's headers fit into, where a packet takes several slots of a ring: a small buffer
/// of BSD (MHLEN, about 200 bytes, less what the link layer needs).
const HEADERS: u32 = 128;

/// A ring, and how many of its slots are taken.
#[derive(Clone, Debug, Default)]
struct Ring {
    held: VecDeque<Held>,
    used: usize,
    /// Where in a buffer the data of the next packet begin.
    offset: u32,
}

/// The rings of a card, and its wire.
#[derive(Clone, Debug)]
pub struct Rings {
    wire: Wire,
    rings: Vec<Ring>,
    slots: usize,
    /// What a packet takes on the wire.
    overhead: Overhead,
    /// Packets handed over so far.
    taken: u32,
    /// Bytes that a slot takes of a packet; `None`: all of it.
    buffer: Option<u32>,
    /// Bit n: ring n holds something.
    filled: u64,
    /// The ring whose turn it is.
    turn: usize,
    /// The ring whose packet is on the wire.
    sending: Option<usize>,
}

/// A packet in a ring.
#[derive(Clone, Copy, Debug)]
struct Held {
    packet: HandedOver,
    /// Bytes charged for a segment but the last, and for all that are left.
    segment: u32,
    left: u32,
    segments: u16,
    slots: u32,
}

/// A packet of the wire has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Of which ring.
    pub queue: usize,
    /// The packet handed over, if that was its last segment.
    pub packet: Option<HandedOver>,
}

/// A packet that was handed over to a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandedOver {
    /// Its handle.
    pub handle: u32,
    /// How many were handed over to any ring of the card before it, modulo 2^32.
    pub before: u32,
}

impl Rings {
    /// `queues` empty rings, 1 to [`MOST_QUEUES`], of `slots` packets each (0 counts as 1), before
    /// a wire on which packets have this overhead.
    pub fn new(rate: Rate, queues: usize, slots: usize, overhead: Overhead) -> Rings {
        let queues = queues.clamp(1, MOST_QUEUES);
        Rings {
            wire: Wire::new(rate, 1),
            rings: vec![Ring::default(); queues],
            slots: slots.max(1),
            overhead,
            taken: 0,
            buffer: None,
            filled: 0,
            turn: 0,
            sending: None,
        }
    }

    /// A packet takes a slot for its headers, and one for every buffer of this size in which its
    /// data lie, one packet's behind the other's: 1372 bytes behind 128 of headers lie in 1 or 2
    /// buffers of 2048, a super-packet's in many. It is handed over as long as a slot is free.
    pub fn with_buffers(mut self, bytes: Option<u32>) -> Rings {
        self.buffer = bytes.map(|bytes| bytes.max(1));
        self
    }

    /// How many there are.
    pub fn queues(&self) -> usize {
        self.rings.len()
    }

    /// True if a ring takes another packet.
    #[inline]
    pub fn has_room(&self, queue: usize) -> bool {
        self.rings.get(queue).is_some_and(|ring| ring.used < self.slots)
    }

    /// When what is on the wire ends.
    #[inline]
    pub fn next_end(&self) -> Option<Nanos> {
        self.wire.next_end()
    }

    /// A packet is handed over to a ring; how many bytes it takes on the wire. It comes back from
    /// [`complete`](Rings::complete) when its last bit has left.
    fn take(&mut self, queue: usize, packet: &Packet) -> u32 {
        let segments = packet.segments.max(1);
        // Equal segments but for a shorter last one, as the engine charges them.
        let segment = self.overhead.charge(packet.len.div_ceil(u32::from(segments)));
        let left = self.overhead.charge_segments(packet.len, segments);
        let before = self.taken;
        self.taken = self.taken.wrapping_add(1);
        if let Some(ring) = self.rings.get_mut(queue) {
            let slots = self.buffer.map_or(1, |bytes| {
                let data = packet.len.saturating_sub(HEADERS);
                let end = ring.offset.saturating_add(data);
                let buffers = if data == 0 { 0 } else { end.div_ceil(bytes) };
                ring.offset = end % bytes;
                1 + buffers
            });
            ring.used += slots as usize;
            let packet = HandedOver { handle: packet.handle, before };
            ring.held.push_back(Held { packet, segment, left, segments, slots });
            self.filled |= 1 << queue;
        }
        left
    }

    /// One of the rings, to be filled. Its packets leave when the card is [started](Rings::start).
    pub fn ring(&mut self, queue: usize) -> OneRing<'_> {
        OneRing { rings: self, queue }
    }

    /// If the wire is idle: sends what is next, from the ring whose turn it is. An idle wire and
    /// empty rings end the busy period.
    ///
    /// # Errors
    /// [`BeyondTime`] where it would end more than 584 years from the start of time.
    pub fn start(&mut self, now: Nanos) -> Result<(), BeyondTime> {
        if self.sending.is_some() {
            return Ok(());
        }
        if self.filled == 0 {
            self.wire.rest();
            return Ok(());
        }
        // The first filled ring from `turn` on, around.
        let ahead = self.filled & (u64::MAX << self.turn);
        let queue = if ahead != 0 { ahead } else { self.filled }.trailing_zeros() as usize;
        let Some(held) = self.rings.get_mut(queue).and_then(|ring| ring.held.front_mut()) else { return Ok(()) };
        let bytes = if held.segments <= 1 { held.left } else { held.segment.min(held.left) };
        held.left -= bytes;
        held.segments = held.segments.saturating_sub(1);
        self.wire.send(now, bytes)?;
        self.sending = Some(queue);
        self.turn = (queue + 1) % self.rings.len();
        Ok(())
    }

    /// What was on the wire has ended. `None` if nothing was.
    pub fn complete(&mut self) -> Option<Ended> {
        let queue = self.sending.take()?;
        self.wire.complete();
        let ring = self.rings.get_mut(queue)?;
        let gone = ring.held.pop_front_if(|held| held.segments == 0);
        ring.used -= gone.map_or(0, |held| held.slots as usize);
        let packet = gone.map(|held| held.packet);
        if ring.held.is_empty() {
            self.filled &= !(1 << queue);
        }
        Some(Ended { queue, packet })
    }

    /// The wire's rate.
    pub fn rate(&self) -> Rate {
        self.wire.rate()
    }

    /// Another rate, for what begins from now on.
    pub fn set_rate(&mut self, rate: Rate) {
        self.wire.set_rate(rate);
    }
}

/// One ring of a card: what an engine of its own fills.
pub struct OneRing<'a> {
    rings: &'a mut Rings,
    queue: usize,
}

impl Transmitter for OneRing<'_> {
    type Error = BeyondTime;

    #[inline]
    fn has_room(&self, _: Nanos) -> bool {
        self.rings.has_room(self.queue)
    }

    /// When the packet ends is known when it has: other rings have their turns before.
    #[inline]
    fn take(&mut self, _: Nanos, packet: &Packet) -> Result<Taken, BeyondTime> {
        Ok(Taken { end: None, bytes: self.rings.take(self.queue, packet) })
    }
}

#[cfg(test)]
mod tests {
    use altq_engine::link::Framing;
    use rand_pcg::Pcg32;
    use rand_pcg::rand_core::Rng;

    use super::*;

    fn packet(handle: u32, len: u32, segments: u16) -> Packet {
        Packet { segments, ..Packet::new(handle, len) }
    }

    /// Ends of all that is in the rings, with the queue and what was done.
    fn drain(rings: &mut Rings, mut now: Nanos) -> Vec<(Nanos, usize, Option<u32>)> {
        let mut ends = Vec::new();
        rings.start(now).unwrap();
        while let Some(end) = rings.next_end() {
            now = end;
            let ended = rings.complete().unwrap();
            ends.push((now, ended.queue, ended.packet.map(|packet| packet.handle)));
            rings.start(now).unwrap();
        }
        ends
    }

    #[test]
    fn segments_of_several_rings_take_turns() {
        // 8 Mbit/s: a byte a microsecond. Ring 0 has a super-packet of 100 + 100 + 50 bytes, ring 2
        // packets of 10 and 20.
        let mut rings = Rings::new(Rate::mbit_s(8), 4, 8, Overhead::NONE);
        rings.take(0, &packet(7, 250, 3));
        rings.take(2, &packet(8, 10, 1));
        rings.take(2, &packet(9, 20, 1));
        // 250 in three: 84 + 84 + 82.
        let expected =
            [(84_000, 0, None), (94_000, 2, Some(8)), (178_000, 0, None), (198_000, 2, Some(9)), (280_000, 0, Some(7))];
        assert_eq!(drain(&mut rings, 0), expected);
        // The next one's turn is that of ring 1, and it is empty: 3 goes before 0.
        rings.take(0, &packet(1, 1, 1));
        rings.take(3, &packet(2, 1, 1));
        assert_eq!(drain(&mut rings, 300_000), [(301_000, 3, Some(2)), (302_000, 0, Some(1))]);
    }

    #[test]
    fn a_packet_takes_as_many_slots_as_buffers() {
        let mut rings = Rings::new(Rate::mbit_s(8), 1, 4, Overhead::NONE).with_buffers(Some(2048));
        // 40 bytes: its headers. 1500: these and one buffer, of which 676 bytes are left.
        rings.take(0, &packet(1, 40, 1));
        rings.take(0, &packet(2, 1500, 1));
        assert!(rings.has_room(0));
        // The headers, the rest of that buffer, another one, and 1372 bytes of a third.
        rings.take(0, &packet(3, 128 + 4096, 3));
        assert_eq!(rings.rings[0].used, 1 + 2 + 4);
        assert!(!rings.has_room(0));
        assert_eq!(drain(&mut rings, 0).len(), 5);
        assert!(rings.has_room(0));
        assert_eq!(rings.rings[0].used, 0);
    }

    #[test]
    fn a_ring_holds_a_packet_until_its_last_segment_has_left() {
        let mut rings = Rings::new(Rate::mbit_s(8), 2, 1, Overhead::NONE);
        rings.take(1, &packet(5, 200, 2));
        assert!(rings.has_room(0) && !rings.has_room(1) && !rings.has_room(2));
        rings.start(0).unwrap();
        assert_eq!(rings.complete(), Some(Ended { queue: 1, packet: None }));
        assert!(!rings.has_room(1));
        rings.start(100_000).unwrap();
        assert_eq!(rings.next_end(), Some(200_000));
        assert_eq!(rings.complete(), Some(Ended { queue: 1, packet: Some(HandedOver { handle: 5, before: 0 }) }));
        assert!(rings.has_room(1));
        assert_eq!(rings.complete(), None);
    }

    /// Whatever lies in the rings: the wire takes the sum of what was charged, to the fraction, and
    /// every ring keeps its order. Two rings that never run dry differ by one segment at most.
    #[test]
    fn nothing_is_lost_and_turns_are_fair() {
        let mut random = Pcg32::new(7, 3);
        for overhead in [
            Overhead::NONE,
            Overhead { bytes: 38, mpu: 84, framing: Framing::Plain },
            Overhead { bytes: 8, mpu: 0, framing: Framing::Atm },
        ] {
            let rate = Rate::bit_s(700_000_003);
            let mut rings = Rings::new(rate, 3, usize::MAX, overhead);
            let (mut total, mut pieces) = (0u64, [0u32; 3]);
            for token in 0..600u32 {
                let segments = (1 + random.next_u32() % 5) as u16;
                let packet = packet(token, 1 + random.next_u32() % (1500 * u32::from(segments)), segments);
                let bytes = overhead.charge_segments(packet.len, packet.segments);
                total += u64::from(bytes);
                pieces[token as usize % 3] += u32::from(segments);
                assert_eq!(rings.take(token as usize % 3, &packet), bytes);
            }
            let ends = drain(&mut rings, 0);
            assert_eq!(ends.last().unwrap().0, (total * 8_000_000_000).div_ceil(rate.as_bit_s()));
            assert_eq!(ends.len() as u32, pieces.iter().sum::<u32>());
            let least = *pieces.iter().min().unwrap() as usize;
            let mut sent = [0usize; 3];
            let mut last = [None; 3];
            for (_, queue, packet) in ends {
                sent[queue] += 1;
                if sent.iter().all(|n| *n < least) {
                    assert!(sent.iter().max().unwrap() - sent.iter().min().unwrap() <= 1);
                }
                if let Some(token) = packet {
                    assert!(last[queue].is_none_or(|before| before < token) && token as usize % 3 == queue);
                    last[queue] = Some(token);
                }
            }
        }
    }
}
