//! A ring of entries between this process and the kernel, in memory that both have mapped.
//!
//! One side produces entries, the other consumes them. Each side has an index that counts its
//! entries since the start and wraps around at 2^32; entry `n` stands at place `n` modulo the
//! ring's size, a power of two. The producer writes entries before it moves its index, and the
//! consumer reads them before it moves its own, so both indices are written with release and read
//! with acquire (Documentation/networking/af_xdp.rst and net/xdp/xsk_queue.h of the kernel).

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::xdp::XdpRingOffset;

use super::mapping::Mapping;

/// What a ring may hold.
///
/// # Safety
/// Every bit pattern must be a value.
pub unsafe trait Entry: Copy {}

// SAFETY: an integer.
unsafe impl Entry for u64 {}
// SAFETY: a struct of three integers without padding.
unsafe impl Entry for libc::xdp_desc {}

/// The words and places of a ring.
struct Shared<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    /// Keeps them mapped.
    _memory: Arc<Mapping>,
}

// SAFETY: the pointers are into a mapping that the value keeps. The words are atomic, and each
// place is used by one side at a time, as the indices say.
unsafe impl<T: Entry> Send for Shared<T> {}

impl<T: Entry> Shared<T> {
    /// A ring of `size` entries, which must be a power of two, in `memory`.
    fn new(memory: Arc<Mapping>, at: &XdpRingOffset, size: u32) -> io::Result<Shared<T>> {
        // Linux 5.4 has flags.
        let flags = at.flags.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOPROTOOPT))?;
        if !size.is_power_of_two() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        Ok(Shared {
            producer: memory.place(at.producer, 1)?,
            consumer: memory.place(at.consumer, 1)?,
            flags: memory.place(flags, 1)?,
            entries: memory.place(at.desc, size as usize)?,
            size,
            _memory: memory,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: an aligned word of a mapping that lives as long as this value. Both sides use it
        // with atomic operations only.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn flags(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.flags.as_ref() }
    }

    /// The place of entry `index`.
    fn place(&self, index: u32) -> NonNull<T> {
        // SAFETY: the remainder is less than `size`, the number of places, which `new` has checked
        // to lie in the mapping.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }
}

/// Bytes that a ring of `size` entries takes.
pub fn bytes<T: Entry>(at: &XdpRingOffset, size: u32) -> io::Result<usize> {
    let entries = (size as usize).checked_mul(size_of::<T>());
    let end = usize::try_from(at.desc).ok().zip(entries).and_then(|(begin, entries)| begin.checked_add(entries));
    end.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

/// The side that produces entries.
pub struct Producing<T> {
    ring: Shared<T>,
    /// The index of the next entry. Those from the published index on are not yet seen.
    next: u32,
    /// The consumer's index when it was last looked at.
    seen: u32,
}

impl<T: Entry> Producing<T> {
    /// This side of a ring in `memory`.
    ///
    /// # Errors
    /// EINVAL if the ring does not lie in the memory; ENOPROTOOPT without flags.
    pub fn new(memory: Arc<Mapping>, at: &XdpRingOffset, size: u32) -> io::Result<Producing<T>> {
        let ring = Shared::new(memory, at, size)?;
        let next = ring.producer().load(Ordering::Relaxed);
        let seen = ring.consumer().load(Ordering::Acquire);
        Ok(Producing { ring, next, seen })
    }

    /// Adds an entry, which the other side sees after [`publish`](Producing::publish). False if the
    /// ring is full.
    pub fn push(&mut self, entry: T) -> bool {
        if self.next.wrapping_sub(self.seen) >= self.ring.size {
            self.seen = self.ring.consumer().load(Ordering::Acquire);
            if self.next.wrapping_sub(self.seen) >= self.ring.size {
                return false;
            }
        }
        // SAFETY: fewer than `size` entries are between the consumer's index and this one, so the
        // consumer is done with this place, and it does not read it before the index is published.
        unsafe { self.ring.place(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows the other side all entries added.
    pub fn publish(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// How many published entries the other side has not taken yet.
    pub fn pending(&mut self) -> u32 {
        self.seen = self.ring.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.seen).min(self.ring.size)
    }

    /// True if the kernel must be called before it looks at the ring (XDP_RING_NEED_WAKEUP).
    pub fn needs_wakeup(&self) -> bool {
        self.ring.flags().load(Ordering::Acquire) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Number of places.
    pub fn size(&self) -> u32 {
        self.ring.size
    }
}

/// The side that consumes entries.
pub struct Consuming<T> {
    ring: Shared<T>,
    /// The index of the next entry. The places of those before it that are not released yet cannot
    /// be written again.
    next: u32,
    /// The producer's index when it was last looked at.
    seen: u32,
}

impl<T: Entry> Consuming<T> {
    /// This side of a ring in `memory`.
    ///
    /// # Errors
    /// EINVAL if the ring does not lie in the memory; ENOPROTOOPT without flags.
    pub fn new(memory: Arc<Mapping>, at: &XdpRingOffset, size: u32) -> io::Result<Consuming<T>> {
        let ring = Shared::new(memory, at, size)?;
        let next = ring.consumer().load(Ordering::Relaxed);
        Ok(Consuming { ring, next, seen: next })
    }

    /// Takes the next entry, if there is one. Its place is free after
    /// [`release`](Consuming::release).
    pub fn pop(&mut self) -> Option<T> {
        if self.next == self.seen {
            self.seen = self.ring.producer().load(Ordering::Acquire);
            if self.next == self.seen {
                return None;
            }
        }
        // SAFETY: the producer has published this entry, which the acquiring load has seen, and
        // does not write its place again before it is released. Every bit pattern is a value.
        let entry = unsafe { self.ring.place(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Gives the places of all entries taken back to the producer.
    pub fn release(&mut self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: XdpRingOffset = XdpRingOffset { producer: 0, consumer: 64, flags: Some(128), desc: 192 };

    /// A ring of 8 whose two indices begin at `start`, with both sides of it.
    fn ring(start: u32) -> (Producing<u64>, Consuming<u64>, Arc<Mapping>) {
        let memory = Arc::new(Mapping::new(bytes::<u64>(&AT, 8).unwrap()).unwrap());
        for at in [AT.producer, AT.consumer] {
            // SAFETY: a word of the mapping that nothing else uses yet.
            unsafe { memory.place::<AtomicU32>(at, 1).unwrap().as_ref() }.store(start, Ordering::Relaxed);
        }
        let producing = Producing::new(memory.clone(), &AT, 8).unwrap();
        (producing, Consuming::new(memory.clone(), &AT, 8).unwrap(), memory)
    }

    #[test]
    fn entries_come_in_order_also_where_the_index_wraps_around() {
        for start in [0, 5, u32::MAX - 3, u32::MAX] {
            let (mut producing, mut consuming, _) = ring(start);
            let (mut sent, mut came) = (0, 0);
            for step in 0..1000_u64 {
                for _ in 0..step % 6 {
                    if producing.push(sent) {
                        sent += 1;
                    }
                }
                producing.publish();
                assert_eq!(u64::from(producing.pending()), sent - came, "from {start}, step {step}");
                for _ in 0..step % 5 {
                    if let Some(entry) = consuming.pop() {
                        assert_eq!(entry, came, "from {start}, step {step}");
                        came += 1;
                    }
                }
                consuming.release();
            }
            assert!(came > 1000, "{came}");
        }
    }

    #[test]
    fn a_full_ring_takes_no_more_until_places_are_released() {
        for start in [0, u32::MAX - 4] {
            let (mut producing, mut consuming, _) = ring(start);
            assert!((0..8).all(|entry| producing.push(entry)) && !producing.push(8), "from {start}");
            // The other side does not see what is not published.
            assert_eq!(consuming.pop(), None);
            producing.publish();
            assert_eq!((producing.pending(), consuming.pop(), consuming.pop()), (8, Some(0), Some(1)));
            assert!(!producing.push(8), "taken, but not released");
            consuming.release();
            assert_eq!(producing.pending(), 6);
            assert!(producing.push(8) && producing.push(9) && !producing.push(10), "from {start}");
            producing.publish();
            assert_eq!(std::iter::from_fn(|| consuming.pop()).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7, 8, 9]);
        }
    }

    #[test]
    fn two_threads_agree() {
        const COUNT: u64 = 100_000;
        let (mut producing, mut consuming, _) = ring(u32::MAX - 100);
        let other = std::thread::spawn(move || {
            let mut next = 0;
            while next < COUNT {
                while let Some(entry) = consuming.pop() {
                    assert_eq!(entry, next);
                    next += 1;
                }
                consuming.release();
                std::thread::yield_now();
            }
        });
        for entry in 0..COUNT {
            while !producing.push(entry) {
                std::thread::yield_now();
            }
            producing.publish();
        }
        other.join().unwrap();
    }

    #[test]
    fn the_kernels_flag_is_seen_and_a_ring_beyond_its_memory_is_refused() {
        let (producing, _, memory) = ring(0);
        assert!(!producing.needs_wakeup());
        // SAFETY: a word of the mapping, used with atomic operations only.
        unsafe { memory.place::<AtomicU32>(128, 1).unwrap().as_ref() }.store(1, Ordering::Relaxed);
        assert!(producing.needs_wakeup());
        assert!(Producing::<u64>::new(memory.clone(), &AT, 16).is_err(), "16 entries do not fit");
        assert!(Producing::<u64>::new(memory.clone(), &AT, 7).is_err(), "7 is no power of two");
        let old = XdpRingOffset { flags: None, ..AT };
        assert!(Consuming::<u64>::new(memory, &old, 8).is_err(), "a kernel without flags");
    }
}
