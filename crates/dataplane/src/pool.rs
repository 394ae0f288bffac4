//! The memory of frames: slots that are allocated once and have numbers.
//!
//! A frame's first bytes lie in a *head* of 2 KB, which holds any frame of an ordinary MTU. A
//! longer frame, a super-packet or jumbo frame, goes on in a *body* of 64 KB. A frame cut from a
//! super-packet has a head of its own. Where it fits there, it is copied; a longer one, of several
//! packets or of a large MTU, shares the body, which is kept as long as one of its frames waits. So
//! the loop cuts into single packets where many bodies are in use. A packet's handle in the engine
//! is the number of its head.
//!
//! The kernel provides the memory when it is first touched, so slots that are never used cost only
//! address space, and the one used last is the first to be used again. What batches take is touched
//! at the start ([`Pool::touch`]): otherwise it would be seen only in the busiest moment of a day.
//! With AF_XDP the heads lie in memory that the kernel shares, and it may hold on to a head after
//! the loop has freed it.

use std::ops::Range;

use crate::sys::mapping::{Mapping, Part};
use crate::vnet::{self, Vnet};

/// Bytes of a head's slot.
pub const HEAD: usize = 2048;
/// Offset of a frame in its head's slot. The room before it is for the virtio header, and for a
/// VLAN tag and a tunnel's header that are inserted later.
pub const START: usize = 48;
/// Bytes of a frame that fit in a head.
pub const HEAD_ROOM: usize = HEAD - START;
/// Bytes of a body.
pub const BODY: usize = 65536;
/// The smallest page of any processor.
const PAGE: usize = 4096;
/// Heads of less memory than this are in small pages. In large ones a frame more may take 2 MB.
const SMALL: usize = 16 << 20;
/// Marks a frame without a body.
const NONE: u32 = u32::MAX;

/// Where a frame's bytes are: `head` bytes at `start` of its head's slot, then `len` bytes at
/// `from` of its body.
#[derive(Clone, Copy, Debug)]
struct Frame {
    start: u16,
    head: u16,
    body: u32,
    from: u32,
    len: u32,
    vnet: Vnet,
    tunnelled: bool,
    /// How many hold the head: the loop, and the kernel while it sends the frame from there. The
    /// head is free at 0.
    holders: u8,
}

impl Frame {
    const BLANK: Frame = Frame {
        start: START as u16,
        head: 0,
        body: NONE,
        from: 0,
        len: 0,
        vnet: Vnet { flags: 0, gso_type: 0, hdr_len: 0, gso_size: 0, csum_start: 0, csum_offset: 0 },
        tunnelled: false,
        holders: 1,
    };
}

/// The memory of heads.
enum Heads {
    /// This process's own.
    Own(Vec<u8>),
    /// Mapped from the kernel, and perhaps shared with it.
    Mapped(Part),
}

impl Heads {
    #[inline]
    fn bytes(&self, at: usize, count: usize) -> &[u8] {
        match self {
            Heads::Own(bytes) => &bytes[at..at + count],
            Heads::Mapped(part) => part.bytes(at, count),
        }
    }

    #[inline]
    fn bytes_mut(&mut self, at: usize, count: usize) -> &mut [u8] {
        match self {
            Heads::Own(bytes) => &mut bytes[at..at + count],
            Heads::Mapped(part) => part.bytes_mut(at, count),
        }
    }

    fn copy_within(&mut self, from: Range<usize>, to: usize) {
        match self {
            Heads::Own(bytes) => bytes.copy_within(from, to),
            Heads::Mapped(part) => part.copy_within(from, to),
        }
    }
}

/// All slots of one loop.
pub struct Pool {
    heads: Heads,
    bodies: Vec<u8>,
    frames: Vec<Frame>,
    /// How many frames use each body.
    users: Vec<u16>,
    free_heads: Vec<u32>,
    free_bodies: Vec<u32>,
}

impl Pool {
    /// A pool of this many heads and bodies.
    pub fn new(heads: usize, bodies: usize) -> Pool {
        let bytes = heads * HEAD;
        // The program's allocator has large pages for large pieces.
        let small = if bytes < SMALL { Mapping::new(bytes).ok() } else { None };
        let memory = match small {
            Some(mapping) => Heads::Mapped(Part::whole(mapping)),
            None => Heads::Own(vec![0; bytes]),
        };
        Pool::of(memory, heads, bodies)
    }

    /// A pool of heads in memory that the kernel shares, without bodies.
    pub(crate) fn shared(memory: Part) -> Pool {
        let heads = memory.size() / HEAD;
        Pool::of(Heads::Mapped(memory), heads, 0)
    }

    fn of(memory: Heads, heads: usize, bodies: usize) -> Pool {
        Pool {
            heads: memory,
            bodies: vec![0; bodies * BODY],
            frames: vec![Frame::BLANK; heads],
            users: vec![0; bodies],
            free_heads: (0..heads as u32).rev().collect(),
            free_bodies: (0..bodies as u32).rev().collect(),
        }
    }

    /// Makes the kernel provide the memory of the slots that are used first: so many heads and
    /// bodies.
    pub fn touch(&mut self, heads: usize, bodies: usize) {
        let touch = |byte: &mut [u8]| std::hint::black_box(byte).fill(0);
        for at in (0..heads.min(self.frames.len()) * HEAD).step_by(PAGE) {
            touch(self.heads.bytes_mut(at, 1));
        }
        for at in (0..bodies.min(self.users.len()) * BODY).step_by(PAGE) {
            touch(&mut self.bodies[at..=at]);
        }
    }

    /// Number of heads, free or not. Handles are less than this.
    pub fn heads(&self) -> usize {
        self.frames.len()
    }

    /// The most bytes that a pool of this size uses.
    pub fn memory(heads: usize, bodies: usize) -> usize {
        heads * (HEAD + size_of::<Frame>() + 4) + bodies * (BODY + 6)
    }

    /// Number of free heads.
    pub fn free_heads(&self) -> usize {
        self.free_heads.len()
    }

    /// Number of bodies in use.
    pub fn used_bodies(&self) -> usize {
        self.users.len() - self.free_bodies.len()
    }

    /// Takes an empty frame; `None` without a free head.
    pub fn take(&mut self) -> Option<u32> {
        let handle = self.free_heads.pop()?;
        self.frames[handle as usize] = Frame::BLANK;
        Some(handle)
    }

    /// Takes an empty frame with a body of its own, for frames of any size; `None` without a free
    /// head or body.
    pub fn take_large(&mut self) -> Option<u32> {
        if self.free_heads.is_empty() {
            return None;
        }
        let body = self.free_bodies.pop()?;
        let handle = self.take()?;
        self.users[body as usize] = 1;
        self.frames[handle as usize].body = body;
        Some(handle)
    }

    /// Frees a frame's slots. A head that was lent is free when it is given back.
    pub fn free(&mut self, handle: u32) {
        self.release_body(handle);
        self.give_back(handle);
    }

    /// Lends a frame's head to the kernel, which sends the frame from there.
    pub(crate) fn lend(&mut self, handle: u32) {
        self.frames[handle as usize].holders += 1;
    }

    /// Notes that the kernel no longer needs a head that was lent to it, or that the loop no longer
    /// needs its frame.
    pub(crate) fn give_back(&mut self, handle: u32) {
        let frame = &mut self.frames[handle as usize];
        frame.holders = frame.holders.saturating_sub(1);
        if frame.holders == 0 {
            self.free_heads.push(handle);
        }
    }

    /// Sets where the kernel has put a frame: `len` bytes at `start` of its head's slot. False if
    /// they do not lie in the slot.
    pub(crate) fn place(&mut self, handle: u32, start: usize, len: usize) -> bool {
        if start.checked_add(len).is_none_or(|end| end > HEAD) {
            return false;
        }
        self.release_body(handle);
        let frame = &mut self.frames[handle as usize];
        (frame.start, frame.head) = (start as u16, len as u16);
        true
    }

    /// Where a frame begins in the memory of heads, and the length of its part there, in bytes.
    pub(crate) fn span(&self, handle: u32) -> (usize, usize) {
        let frame = &self.frames[handle as usize];
        (handle as usize * HEAD + frame.start as usize, frame.head as usize)
    }

    fn release_body(&mut self, handle: u32) {
        let frame = &mut self.frames[handle as usize];
        if frame.body != NONE {
            let users = &mut self.users[frame.body as usize];
            *users -= 1;
            if *users == 0 {
                self.free_bodies.push(frame.body);
            }
            frame.body = NONE;
            frame.len = 0;
        }
    }

    /// Sets a received frame's length. Bytes that do not fit in the head lie in the body; a body
    /// that is not needed is freed. A length of more than head and body hold is cut to what they
    /// hold.
    pub fn set_len(&mut self, handle: u32, len: usize) {
        let frame = &mut self.frames[handle as usize];
        frame.head = len.min(HEAD_ROOM) as u16;
        let rest = len - frame.head as usize;
        (frame.from, frame.len) = (0, rest.min(BODY) as u32);
        if rest == 0 {
            self.release_body(handle);
        }
    }

    /// Fills a frame with its first bytes only. Its length is set to `len`, as if the rest were
    /// there. False if `bytes` do not fit, or are more than `len`.
    pub fn fill_head(&mut self, handle: u32, bytes: &[&[u8]], len: usize) -> bool {
        let count = bytes.iter().map(|part| part.len()).sum::<usize>();
        if count > HEAD_ROOM || count > len {
            return false;
        }
        self.release_body(handle);
        let mut at = handle as usize * HEAD + START;
        for part in bytes {
            self.heads.bytes_mut(at, part.len()).copy_from_slice(part);
            at += part.len();
        }
        let frame = &mut self.frames[handle as usize];
        (frame.start, frame.head, frame.len) = (START as u16, count as u16, (len - count) as u32);
        true
    }

    /// The part of the frame in its head.
    pub fn head(&self, handle: u32) -> &[u8] {
        let (at, count) = self.span(handle);
        self.heads.bytes(at, count)
    }

    /// The part of the frame in its head, for writing.
    pub fn head_mut(&mut self, handle: u32) -> &mut [u8] {
        let (at, count) = self.span(handle);
        self.heads.bytes_mut(at, count)
    }

    /// The part of the frame in its body.
    pub fn body(&self, handle: u32) -> &[u8] {
        let frame = &self.frames[handle as usize];
        if frame.body == NONE {
            return &[];
        }
        let at = frame.body as usize * BODY + frame.from as usize;
        &self.bodies[at..at + frame.len as usize]
    }

    /// The whole slot of the head, and the whole body: the kernel writes a frame there, from
    /// [`START`] on.
    pub fn room_mut(&mut self, handle: u32) -> (&mut [u8], &mut [u8]) {
        let at = handle as usize * HEAD;
        let body = match self.frames[handle as usize].body {
            NONE => &mut [][..],
            body => &mut self.bodies[body as usize * BODY..(body as usize + 1) * BODY],
        };
        (self.heads.bytes_mut(at, HEAD), body)
    }

    /// The frame's length in bytes.
    pub fn len(&self, handle: u32) -> usize {
        let frame = &self.frames[handle as usize];
        frame.head as usize + frame.len as usize
    }

    /// The frame's virtio header.
    pub fn vnet(&self, handle: u32) -> &Vnet {
        &self.frames[handle as usize].vnet
    }

    /// The frame's virtio header, for writing.
    pub fn vnet_mut(&mut self, handle: u32) -> &mut Vnet {
        &mut self.frames[handle as usize].vnet
    }

    /// Inserts a VLAN tag after the two addresses. The kernel removes it before it passes a frame
    /// to the packet socket. False if the frame is too short to have addresses, or has no room.
    pub fn insert_tag(&mut self, handle: u32, tpid: u16, tci: u16) -> bool {
        if self.frames[handle as usize].head < 14 {
            return false;
        }
        let tag = u32::from(tpid) << 16 | u32::from(tci);
        self.insert(handle, 12, &tag.to_be_bytes())
    }

    /// Inserts bytes before byte `at` of a frame, between two headers, and adjusts the offsets in
    /// the virtio header that point behind them. False if there is no room, or if `at` is more than
    /// the length of the frame's head.
    pub fn insert(&mut self, handle: u32, at: usize, bytes: &[u8]) -> bool {
        let frame = &mut self.frames[handle as usize];
        let count = bytes.len();
        if at > frame.head as usize || (frame.start as usize) < vnet::LEN + count {
            return false;
        }
        frame.start -= count as u16;
        frame.head += count as u16;
        frame.vnet.shift(count as u16);
        let start = handle as usize * HEAD + frame.start as usize;
        self.heads.copy_within(start + count..start + count + at, start);
        self.heads.bytes_mut(start + at, count).copy_from_slice(bytes);
        true
    }

    /// Removes `count` bytes of a frame, from byte `at` on: the reverse of
    /// [`insert`](Pool::insert). False if they are not all in the frame's head.
    pub fn remove(&mut self, handle: u32, at: usize, count: usize) -> bool {
        let frame = &mut self.frames[handle as usize];
        if at.checked_add(count).is_none_or(|end| end > frame.head as usize) {
            return false;
        }
        let start = handle as usize * HEAD + frame.start as usize;
        self.heads.copy_within(start..start + at, start + count);
        frame.start += count as u16;
        frame.head -= count as u16;
        frame.vnet.shift_back(count as u16);
        true
    }

    /// True if the frame was encapsulated by a tunnel's edge (the lab's).
    pub fn tunnelled(&self, handle: u32) -> bool {
        self.frames[handle as usize].tunnelled
    }

    /// Sets whether the frame was encapsulated by a tunnel's edge.
    pub fn set_tunnelled(&mut self, handle: u32, tunnelled: bool) {
        self.frames[handle as usize].tunnelled = tunnelled;
    }

    /// Shortens a frame to its first `len` bytes.
    pub fn truncate(&mut self, handle: u32, len: usize) {
        let frame = &mut self.frames[handle as usize];
        if len <= frame.head as usize {
            frame.head = len as u16;
            self.release_body(handle);
        } else {
            frame.len = frame.len.min((len - frame.head as usize) as u32);
        }
    }

    /// Makes a frame of the first `headers` bytes of `of`, followed by its bytes from `from` to
    /// `to`. Bytes in the body are copied if they fit in the new head, and shared otherwise. `None`
    /// without a free head, or if the range is not in the frame.
    pub fn cut(&mut self, of: u32, headers: usize, from: usize, to: usize) -> Option<u32> {
        let whole = self.frames[of as usize];
        let head = whole.head as usize;
        if headers > head || from < headers || from > to || to > head + whole.len as usize {
            return None;
        }
        // A frame without a body has no bytes behind its head.
        if to > head && whole.body == NONE {
            return None;
        }
        // The part of the range that lies in the head is copied after the headers. It fits, since
        // both come from one head.
        let copied = to.min(head).saturating_sub(from);
        if START + headers + copied > HEAD {
            return None;
        }
        let handle = self.take()?;
        let source = of as usize * HEAD + whole.start as usize;
        let target = handle as usize * HEAD + START;
        self.heads.copy_within(source..source + headers, target);
        if copied > 0 {
            self.heads.copy_within(source + from..source + from + copied, target + headers);
        }
        let mut frame =
            Frame { head: (headers + copied) as u16, vnet: whole.vnet, tunnelled: whole.tunnelled, ..Frame::BLANK };
        if to > head {
            let begin = from.max(head) - head;
            let (at, count) = (whole.from as usize + begin, to - head - begin);
            let room = HEAD - START - headers - copied;
            if count <= room {
                let at = whole.body as usize * BODY + at;
                let there = self.heads.bytes_mut(target + headers + copied, count);
                there.copy_from_slice(&self.bodies[at..at + count]);
                frame.head += count as u16;
            } else {
                (frame.body, frame.from, frame.len) = (whole.body, at as u32, count as u32);
                self.users[whole.body as usize] += 1;
            }
        }
        self.frames[handle as usize] = frame;
        Some(handle)
    }

    /// Fills a frame with bytes; false if they do not fit.
    pub fn fill(&mut self, handle: u32, bytes: &[u8]) -> bool {
        let (head, body) = self.room_mut(handle);
        let first = bytes.len().min(HEAD_ROOM);
        let rest = &bytes[first..];
        if rest.len() > body.len() {
            return false;
        }
        head[START..START + first].copy_from_slice(&bytes[..first]);
        body[..rest.len()].copy_from_slice(rest);
        self.set_len(handle, bytes.len());
        true
    }

    /// Makes a frame a copy of one in another pool; false if it does not fit.
    pub fn copy_from(&mut self, handle: u32, other: &Pool, of: u32) -> bool {
        let (first, second) = (other.head(of), other.body(of));
        let (head, body) = self.room_mut(handle);
        // A frame that was cut may have less in its head than fits there, and a frame with an
        // inserted tag more. So the bytes are divided between head and body again.
        let (here, over) = first.split_at(first.len().min(HEAD_ROOM));
        let (beside, rest) = second.split_at(second.len().min(HEAD_ROOM - here.len()));
        if over.len() + rest.len() > body.len() {
            return false;
        }
        head[START..START + here.len()].copy_from_slice(here);
        head[START + here.len()..START + here.len() + beside.len()].copy_from_slice(beside);
        body[..over.len()].copy_from_slice(over);
        body[over.len()..over.len() + rest.len()].copy_from_slice(rest);
        self.set_len(handle, first.len() + second.len());
        *self.vnet_mut(handle) = *other.vnet(of);
        self.set_tunnelled(handle, other.tunnelled(of));
        true
    }

    /// A copy of all the frame's bytes.
    pub fn bytes(&self, handle: u32) -> Vec<u8> {
        [self.head(handle), self.body(handle)].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    #[test]
    fn a_copy_in_another_pool_has_the_same_bytes() {
        for len in [60, HEAD_ROOM, HEAD_ROOM + 1, 9000, HEAD_ROOM + BODY] {
            let (mut pool, mut other) = (Pool::new(4, 2), Pool::new(1, 1));
            let whole = pool.take_large().unwrap();
            assert!(pool.fill(whole, &counting(len)));
            assert!(pool.insert_tag(whole, 0x8100, 7));
            let cut = pool.cut(whole, 40, len / 2 + 20, len + 4).unwrap();
            let copy = other.take_large().unwrap();
            for of in [whole, cut] {
                if pool.len(of) <= HEAD_ROOM + BODY {
                    assert!(other.copy_from(copy, &pool, of));
                    assert_eq!(other.bytes(copy), pool.bytes(of));
                } else {
                    assert!(!other.copy_from(copy, &pool, of));
                }
            }
        }
    }

    #[test]
    fn a_cut_is_headers_and_range_whatever_lies_where() {
        for len in [100, HEAD_ROOM, HEAD_ROOM + 1, 9000, HEAD_ROOM + BODY] {
            let mut pool = Pool::new(4, 2);
            let whole = pool.take_large().unwrap();
            let bytes = counting(len);
            assert!(pool.fill(whole, &bytes));
            assert_eq!(pool.bytes(whole), bytes);
            for (from, to) in
                [(54, 60), (54, len), (len / 3 * 2, len), (len - 1, len), (len.min(1900), len.min(3000)), (len, len)]
            {
                let cut = pool.cut(whole, 54, from, to).unwrap();
                assert_eq!(pool.bytes(cut), [&bytes[..54], &bytes[from..to]].concat(), "{len} {from} {to}");
                pool.free(cut);
            }
            assert_eq!(pool.cut(whole, 54, 60, len + 1), None);
            assert_eq!(pool.cut(whole, 54, 53, len), None);
            pool.free(whole);
            assert_eq!((pool.free_heads.len(), pool.free_bodies.len()), (4, 2));
        }
    }

    #[test]
    fn a_body_lives_as_long_as_any_frame_that_shares_it() {
        let mut pool = Pool::new(3, 1);
        let whole = pool.take_large().unwrap();
        pool.fill(whole, &counting(30_000));
        let cut = pool.cut(whole, 54, 20_000, 30_000).unwrap();
        pool.free(whole);
        assert!(pool.take_large().is_none(), "the body is still in use");
        assert_eq!(pool.bytes(cut)[54..], counting(30_000)[20_000..]);
        pool.free(cut);
        assert!(pool.take_large().is_some());
    }

    /// What waits in a queue keeps no body.
    #[test]
    fn what_fits_in_a_head_is_copied_there() {
        let mut pool = Pool::new(4, 1);
        let whole = pool.take_large().unwrap();
        let bytes = counting(30_000);
        pool.fill(whole, &bytes);
        // The last fills a head to its end.
        let ranges = [(1_800, 3_248), (28_552, 30_000), (20_000, 20_000 + HEAD_ROOM - 54)];
        let cuts = ranges.map(|(from, to)| pool.cut(whole, 54, from, to).unwrap());
        pool.free(whole);
        let next = pool.take_large().expect("nobody has the body");
        pool.fill(next, &counting(40_000));
        for (cut, (from, to)) in cuts.into_iter().zip(ranges) {
            assert_eq!(pool.head(cut), [&bytes[..54], &bytes[from..to]].concat());
        }
    }

    #[test]
    fn a_head_that_was_lent_is_free_when_both_have_done_with_it() {
        let memory = std::sync::Arc::new(crate::sys::mapping::Mapping::new(4 * HEAD).unwrap());
        let [part, _rest] = Part::halves(&memory, 2 * HEAD);
        let mut pool = Pool::shared(part);
        assert_eq!((pool.heads(), pool.free_heads(), pool.take_large()), (2, 2, None));
        let done: [fn(&mut Pool, u32); 2] = [Pool::free, Pool::give_back];
        for [first, second] in [[0, 1], [1, 0]] {
            let frame = pool.take().unwrap();
            assert!(pool.place(frame, 256, HEAD - 256) && !pool.place(frame, 257, HEAD - 256));
            pool.head_mut(frame).fill(7);
            assert_eq!((pool.len(frame), pool.span(frame)), (HEAD - 256, (frame as usize * HEAD + 256, HEAD - 256)));
            pool.lend(frame);
            done[first](&mut pool, frame);
            assert_eq!(pool.free_heads(), 1, "one of them still has it");
            done[second](&mut pool, frame);
            assert_eq!(pool.free_heads(), 2);
        }
        // Nothing of the earlier frame shows in the next one.
        let frame = pool.take().unwrap();
        assert_eq!((pool.len(frame), pool.vnet(frame)), (0, &Vnet::default()));
    }

    #[test]
    fn a_frame_of_which_only_the_head_is_there_has_its_length() {
        let mut pool = Pool::new(2, 1);
        let frame = pool.take().unwrap();
        assert!(pool.fill_head(frame, &[&[1, 2], &[3, 4, 5]], 1514));
        assert_eq!((pool.head(frame), pool.body(frame), pool.len(frame)), (&[1, 2, 3, 4, 5][..], &[][..], 1514));
        assert!(pool.cut(frame, 2, 3, 6).is_none() && pool.cut(frame, 2, 5, 1514).is_none());
        assert!(!pool.fill_head(frame, &[&[0; HEAD_ROOM], &[0]], 3000) && !pool.fill_head(frame, &[&[0; 5]], 4));
        pool.free(frame);
        let next = pool.take().unwrap();
        assert_eq!((next, pool.len(next)), (frame, 0));
        assert!(pool.take_large().is_some(), "no body was taken or freed");
    }

    #[test]
    fn a_tag_goes_behind_the_addresses() {
        let mut pool = Pool::new(1, 1);
        let frame = pool.take().unwrap();
        let bytes = counting(60);
        pool.fill(frame, &bytes);
        *pool.vnet_mut(frame) = Vnet { flags: 1, csum_start: 34, csum_offset: 6, ..Vnet::default() };
        assert!(pool.insert_tag(frame, 0x8100, 0x2005));
        assert_eq!(pool.bytes(frame), [&bytes[..12], &[0x81, 0, 0x20, 5], &bytes[12..]].concat());
        assert_eq!(pool.vnet(frame).csum_start, 38);
        pool.fill(frame, &bytes[..13]);
        assert!(!pool.insert_tag(frame, 0x8100, 1), "no place for it in 13 bytes");
    }
}
