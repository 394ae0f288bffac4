//! A direction without a kernel: the test plays the other side of each ring.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use rustix::net::xdp::XdpRingOffset;

use super::*;
use crate::sys::interface::State;
use crate::sys::mapping::Mapping;
use crate::sys::ring::{Consuming, Entry, Producing};

const AT: XdpRingOffset = XdpRingOffset { producer: 0, consumer: 64, flags: Some(128), desc: 192 };
/// Places of each ring.
const PLACES: u32 = 8;
/// Slots of the direction, and of the opposite one before them in the memory.
const SLOTS: usize = 24;
const BEFORE: usize = 16;
/// Bytes that the kernel leaves free before a frame.
const HEADROOM: u64 = 256;

/// The kernel's sides of the rings, and its view of the memory.
struct Kernel {
    frames: Producing<Descriptor>,
    fill: Consuming<u64>,
    send: Consuming<Descriptor>,
    done: Producing<u64>,
    memory: Part,
}

impl Kernel {
    /// Puts a frame into the next slot of the fill ring; the slot's address.
    fn receive(&mut self, frame: &[u8]) -> u64 {
        let slot = self.fill.pop().expect("a slot for the frame");
        self.fill.release();
        assert_eq!(slot % HEAD as u64, 0);
        let at = slot as usize - BEFORE * HEAD + HEADROOM as usize;
        self.memory.bytes_mut(at, frame.len()).copy_from_slice(frame);
        self.show(slot + HEADROOM, frame.len());
        slot
    }

    /// Puts an entry into the receive ring.
    fn show(&mut self, addr: u64, len: usize) {
        assert!(self.frames.push(Descriptor { addr, len: len as u32, options: 0 }));
        self.frames.publish();
    }

    /// Takes a frame from the send ring: address and bytes.
    fn take(&mut self) -> Option<(u64, Vec<u8>)> {
        let frame = self.send.pop()?;
        self.send.release();
        let at = frame.addr as usize - BEFORE * HEAD;
        Some((frame.addr, self.memory.bytes(at, frame.len as usize).to_vec()))
    }

    /// Returns the slot of a sent frame.
    fn sent(&mut self, address: u64) {
        assert!(self.done.push(address));
        self.done.publish();
    }
}

fn ring<T: Entry>() -> (Producing<T>, Consuming<T>) {
    let memory = Arc::new(Mapping::new(4096).unwrap());
    (Producing::new(memory.clone(), &AT, PLACES).unwrap(), Consuming::new(memory, &AT, PLACES).unwrap())
}

/// A direction from `lo` to `lo`, its pool and its kernel; `None`, with a message, if `lo` is down.
fn way() -> Option<(RingWay, Pool, Kernel)> {
    let [from, to] = [Interface::find("lo").unwrap(), Interface::find("lo").unwrap()];
    if from.state() != State::Up {
        eprintln!("SKIPPED: the interface lo is down");
        return None;
    }
    let memory = Arc::new(Mapping::new((BEFORE + SLOTS) * HEAD).unwrap());
    let [_, slots] = Part::halves(&memory, BEFORE * HEAD);
    let [_, view] = Part::halves(&memory, BEFORE * HEAD);
    // A socket that accepts every call that wakes the kernel.
    let (socket, other) = UnixDatagram::pair().unwrap();
    std::mem::forget(other);
    let socket: Arc<OwnedFd> = Arc::new(socket.into());
    let (kernel_frames, frames) = ring();
    let (fill, kernel_fill) = ring();
    let (send, kernel_send) = ring();
    let (kernel_done, done) = ring();
    let rings = (vec![Incoming { socket: socket.clone(), frames, fill }], Outgoing { socket, frames: send, done });
    let mut way = RingWay::new((from, to), rings, slots, false, (Stop::new().unwrap(), 0)).unwrap();
    let pool = way.pool(0, 0);
    let kernel =
        Kernel { frames: kernel_frames, fill: kernel_fill, send: kernel_send, done: kernel_done, memory: view };
    Some((way, pool, kernel))
}

fn bytes(number: u8) -> Vec<u8> {
    vec![number; 60 + usize::from(number)]
}

#[test]
fn a_frame_leaves_from_where_it_came_and_its_slot_comes_back() {
    let Some((mut way, mut pool, mut kernel)) = way() else { return };
    assert_eq!((pool.heads(), pool.free_heads()), (SLOTS, SLOTS - PLACES as usize));
    // More turns than there are slots, so that all slots are reused.
    for turn in 0..20 {
        let slots: Vec<u64> = (0..3).map(|number| kernel.receive(&bytes(turn + number))).collect();
        let mut out = Vec::new();
        assert!(way.receive(&mut pool, &mut out).unwrap());
        assert_eq!(out.len(), 3);
        for (number, handle) in (0..).zip(&out) {
            assert_eq!(pool.bytes(*handle), bytes(turn + number));
        }
        // The kernel has taken nothing yet, so the loop keeps all three, and they are offered only
        // once.
        let sent = way.send(&mut pool, &out, &[]).unwrap();
        assert!(sent.done == 0 && matches!(sent.blocked, Some(Blocked::Until(_))), "{sent:?}");
        for number in 0..2 {
            assert_eq!(kernel.take(), Some((slots[usize::from(number)] + HEADROOM, bytes(turn + number))));
        }
        assert_eq!(way.send(&mut pool, &out, &[]).unwrap().done, 2);
        let free = pool.free_heads();
        out.drain(..2).for_each(|handle| pool.free(handle));
        assert_eq!(pool.free_heads(), free, "the device still has them");
        assert_eq!(kernel.take(), Some((slots[2] + HEADROOM, bytes(turn + 2))));
        assert_eq!(kernel.take(), None, "no frame is offered twice");
        kernel.sent(slots[0] + HEADROOM);
        kernel.sent(slots[1] + HEADROOM);
        assert_eq!(way.send(&mut pool, &out, &[]).unwrap(), Sent { done: 1, blocked: None });
        assert_eq!(pool.free_heads(), free + 2);
        // The device may be done before the loop is.
        kernel.sent(slots[2] + HEADROOM);
        assert!(way.receive(&mut pool, &mut Vec::new()).unwrap());
        assert_eq!(pool.free_heads(), free + 2);
        pool.free(out[0]);
        assert_eq!(pool.free_heads(), SLOTS - PLACES as usize);
    }
    let counters = way.counters();
    assert_eq!((counters.received, counters.sent, counters.dropped() - counters.lost), (60, 60, 0));
}

#[test]
fn what_cannot_be_sent_or_read_is_counted_and_its_slot_is_free_again() {
    let Some((mut way, mut pool, mut kernel)) = way() else { return };
    way.longest = 100;
    kernel.receive(&bytes(40));
    kernel.receive(&bytes(41));
    kernel.receive(&[1; 13]);
    // A frame that ends after its slot, an address of the opposite direction, and one of no
    // direction.
    let slot = kernel.fill.pop().unwrap();
    kernel.fill.release();
    kernel.show(slot + HEADROOM, HEAD - HEADROOM as usize + 1);
    kernel.show((BEFORE * HEAD) as u64 - 1, 60);
    kernel.show(((BEFORE + SLOTS) * HEAD) as u64, 60);
    let mut out = Vec::new();
    assert!(way.receive(&mut pool, &mut out).unwrap());
    assert_eq!(out.len(), 1);
    assert_eq!(pool.bytes(out[0]), bytes(40));
    let counters = way.counters();
    assert_eq!((counters.received, counters.refused, counters.unreadable), (6, 1, 4));
    pool.free(out[0]);
    // All slots are free except those in the fill ring, which is full.
    assert!(way.receive(&mut pool, &mut Vec::new()).unwrap());
    assert_eq!(pool.free_heads(), SLOTS - PLACES as usize);
}

#[test]
fn without_a_free_slot_the_loop_is_told() {
    let Some((mut way, mut pool, mut kernel)) = way() else { return };
    let taken: Vec<u32> = std::iter::from_fn(|| pool.take()).collect();
    for number in 0..PLACES as u8 {
        kernel.receive(&bytes(number));
    }
    let mut out = Vec::new();
    assert!(!way.receive(&mut pool, &mut out).unwrap(), "no slot is left to receive into");
    assert_eq!(out.len(), PLACES as usize);
    assert!(kernel.fill.pop().is_none());
    pool.free(taken[0]);
    assert!(way.receive(&mut pool, &mut out).unwrap());
    kernel.receive(&bytes(0));
}

#[test]
fn a_full_send_ring_takes_no_more() {
    let Some((mut way, mut pool, mut kernel)) = way() else { return };
    let handles: Vec<u32> = std::iter::from_fn(|| pool.take()).take(PLACES as usize + 2).collect();
    for handle in &handles {
        assert!(pool.place(*handle, 256, 60));
    }
    assert_eq!(way.send(&mut pool, &handles, &[]).unwrap().done, 0);
    let mut came = Vec::new();
    let mut left = &handles[..];
    while !left.is_empty() {
        came.extend(std::iter::from_fn(|| kernel.take()).map(|(address, _)| address));
        let sent = way.send(&mut pool, left, &[]).unwrap();
        left = &left[sent.done..];
    }
    let expected: Vec<u64> =
        handles.iter().map(|handle| ((BEFORE + *handle as usize) * HEAD) as u64 + HEADROOM).collect();
    assert_eq!(came, expected);
}
