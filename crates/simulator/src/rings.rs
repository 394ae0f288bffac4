//! A network card with several transmit queues. Each queue has a ring, and the card serves the
//! rings round robin.
//!
//! A packet that the operating system has handed over stays in its ring until its last bit has
//! left. The card sends one packet of a ring, and then goes on to the next ring that holds one. Of
//! a super-packet (TSO) it sends one segment at a time, so that a long one delays the other rings
//! by one segment only (DragonFly's measurements: "round-robin is on TSO segment boundry";
//! docs/reference/altq.md 9). Rings hold 512 packets and more, and a scheduler before them has no
//! influence on the order inside them.

use std::collections::VecDeque;

use altq_cases::limits::MOST_QUEUES;
use altq_engine::drive::{Taken, Transmitter};
use altq_engine::link::Overhead;
use altq_engine::units::{Nanos, Rate};
use altq_engine::{Departure, Packet};

use crate::wire::{BeyondTime, Wire};

/// Bytes of a packet's headers, which have a slot of their own if a packet takes several slots of a
/// ring. They fit in a small buffer of BSD (MHLEN, about 200 bytes, minus what the link layer
/// needs).
const HEADERS: u32 = 128;

/// The ring of a transmit queue.
#[derive(Clone, Debug, Default)]
struct Ring {
    held: VecDeque<Queued>,
    /// Slots that are taken.
    used: usize,
    /// The offset in a buffer at which the data of the next packet begins.
    offset: u32,
}

/// The rings of a card, and its wire.
#[derive(Clone, Debug)]
pub struct Rings {
    wire: Wire,
    rings: Vec<Ring>,
    slots: usize,
    /// How packets are framed on the wire.
    overhead: Overhead,
    /// Number of packets handed over so far.
    handed_over: u32,
    /// Bytes of the buffer that belongs to a slot; `None`: a packet takes one slot.
    buffer: Option<u32>,
    /// Bit n: ring n holds a packet.
    filled: u64,
    /// The ring that is served next if it holds a packet.
    next_ring: usize,
    /// The ring whose packet is on the wire.
    sending: Option<usize>,
}

/// A packet in a ring.
#[derive(Clone, Copy, Debug)]
struct Queued {
    packet: HandedOver,
    /// Bytes that a segment takes on the wire; the last one may take less.
    segment: u32,
    /// Bytes that the remaining segments take on the wire.
    left: u32,
    /// Number of remaining segments.
    segments: u16,
    /// Slots that the packet takes.
    slots: u32,
}

/// A packet or segment whose transmission has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The ring from which it was sent.
    pub queue: usize,
    /// The packet that was handed over, if this was its last segment.
    pub packet: Option<HandedOver>,
}

/// A packet that was handed over to a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandedOver {
    /// Its handle.
    pub handle: u32,
    /// How many packets were handed over to any ring of the card before it, modulo 2^32.
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
            handed_over: 0,
            buffer: None,
            filled: 0,
            next_ring: 0,
            sending: None,
        }
    }

    /// Sets the size of a ring's buffers. A packet takes a slot for its headers, and one for every
    /// buffer of this size that its data is in. The data of packets lie in the buffers back to
    /// back, so 1372 bytes after 128 of headers are in 1 or 2 buffers of 2048, and those of a
    /// super-packet in many. A packet is accepted if one slot is free, however many it takes.
    /// `None`: every packet takes one slot.
    pub fn with_buffers(mut self, bytes: Option<u32>) -> Rings {
        self.buffer = bytes.map(|bytes| bytes.max(1));
        self
    }

    /// The number of rings.
    pub fn queues(&self) -> usize {
        self.rings.len()
    }

    /// True if a ring can take another packet.
    #[inline]
    pub fn has_room(&self, queue: usize) -> bool {
        self.rings.get(queue).is_some_and(|ring| ring.used < self.slots)
    }

    /// When the present transmission ends.
    #[inline]
    pub fn next_end(&self) -> Option<Nanos> {
        self.wire.next_end()
    }

    /// Puts a packet into a ring. Returns how many bytes it takes on the wire.
    /// [`complete`](Rings::complete) gives it back when its last bit has left.
    fn take(&mut self, queue: usize, packet: &Packet) -> u32 {
        let segments = packet.segments.max(1);
        // All segments but the last have the same length, as the engine charges them.
        let segment = self.overhead.charge(packet.len.div_ceil(u32::from(segments)));
        let left = self.overhead.charge_segments(packet.len, segments);
        let before = self.handed_over;
        self.handed_over = self.handed_over.wrapping_add(1);
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
            ring.held.push_back(Queued { packet, segment, left, segments, slots });
            self.filled |= 1 << queue;
        }
        left
    }

    /// One of the rings, to be filled by an engine. [`start`](Rings::start) then begins to send.
    pub fn ring(&mut self, queue: usize) -> OneRing<'_> {
        OneRing { rings: self, queue }
    }

    /// Begins the next transmission if the wire is idle. If the rings are empty, too, the busy
    /// period ends.
    ///
    /// # Errors
    /// [`BeyondTime`] if it would end more than 584 years from the start of time.
    pub fn start(&mut self, now: Nanos) -> Result<(), BeyondTime> {
        if self.sending.is_some() {
            return Ok(());
        }
        if self.filled == 0 {
            self.wire.rest();
            return Ok(());
        }
        // The first ring from `next_ring` on that holds a packet, or else the first of all.
        let ahead = self.filled & (u64::MAX << self.next_ring);
        let queue = if ahead != 0 { ahead } else { self.filled }.trailing_zeros() as usize;
        let Some(held) = self.rings.get_mut(queue).and_then(|ring| ring.held.front_mut()) else { return Ok(()) };
        let bytes = if held.segments <= 1 { held.left } else { held.segment.min(held.left) };
        held.left -= bytes;
        held.segments = held.segments.saturating_sub(1);
        self.wire.send(now, bytes)?;
        self.sending = Some(queue);
        self.next_ring = (queue + 1) % self.rings.len();
        Ok(())
    }

    /// Ends the present transmission. `None` if there was none.
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

    /// Sets the rate for transmissions that begin from now on.
    pub fn set_rate(&mut self, rate: Rate) {
        self.wire.set_rate(rate);
    }
}

/// One ring of a card, which an engine of its own fills.
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

    /// Puts a packet into the ring. When its transmission ends depends on the other rings, so that
    /// is not known yet.
    #[inline]
    fn take(&mut self, _: Nanos, departure: &Departure) -> Result<Taken, BeyondTime> {
        Ok(Taken { end: None, bytes: self.rings.take(self.queue, &departure.packet) })
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

    /// Sends everything that is in the rings. Returns when each transmission ended, from which
    /// queue it was, and the packet if this was its last segment.
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
        // At 8 Mbit/s a byte takes a microsecond. Ring 0 has a super-packet of 250 bytes in three
        // segments, ring 2 packets of 10 and 20 bytes.
        let mut rings = Rings::new(Rate::mbit_s(8), 4, 8, Overhead::NONE);
        rings.take(0, &packet(7, 250, 3));
        rings.take(2, &packet(8, 10, 1));
        rings.take(2, &packet(9, 20, 1));
        // 250 bytes in three segments: 84 + 84 + 82.
        let expected =
            [(84_000, 0, None), (94_000, 2, Some(8)), (178_000, 0, None), (198_000, 2, Some(9)), (280_000, 0, Some(7))];
        assert_eq!(drain(&mut rings, 0), expected);
        // Ring 1 would be served next and is empty, so ring 3 is served before ring 0.
        rings.take(0, &packet(1, 1, 1));
        rings.take(3, &packet(2, 1, 1));
        assert_eq!(drain(&mut rings, 300_000), [(301_000, 3, Some(2)), (302_000, 0, Some(1))]);
    }

    #[test]
    fn a_packet_takes_as_many_slots_as_buffers() {
        let mut rings = Rings::new(Rate::mbit_s(8), 1, 4, Overhead::NONE).with_buffers(Some(2048));
        // 40 bytes: only headers. 1500 bytes: headers, and one buffer, of which 676 bytes are left.
        rings.take(0, &packet(1, 40, 1));
        rings.take(0, &packet(2, 1500, 1));
        assert!(rings.has_room(0));
        // The headers, the rest of that buffer, a second one, and 1372 bytes of a third.
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

    /// Whatever the rings hold, sending it takes the time of all charged bytes, and every ring
    /// keeps its order. Of two rings that are never empty, one is at most one segment ahead of the
    /// other.
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
