//! Worst-case fair queueing in constant time: WF2Q+ (Bennett and Zhang 1997) with the grouped
//! timestamps of QFQ (Checconi, Rizzo and Valente 2013).
//!
//! A member's next packet has a start tag S, exact, and finishes by S + length / weight. Virtual
//! time V grows by length / (sum of all weights) with every packet, and jumps to the smallest start
//! tag if that lies beyond V for every member. A member has *begun* if its S is not beyond V. Of
//! those that have begun, the one goes that would finish first. So no member is ever ahead of its
//! share by more than a packet; under round robin and start-time fair queueing it may be.
//!
//! QFQ's idea is that tags need be ordered only roughly. Members are grouped by their *span*: the
//! virtual time of their packet (length / weight), rounded up to a power of two. A group is a
//! calendar of 64 slots, each an eighth of the span wide (QFQ's are a whole span). In a group the
//! member that begins first finishes first, so only the groups' front slots compete: at most 64, in
//! practice a handful. The finish tag of all in a slot is taken to be the slot's beginning plus a
//! span and a slot: at most 2.25 times what the packet takes after its start tag.
//!
//! Unlike QFQ's, a member's group follows the length of its first packet, so that short packets
//! finish early, as in WF2Q+.

use crate::prefetch::prefetch;

/// "No member", in links.
const NIL: u32 = u32::MAX;
/// No group is picked.
const NONE: u8 = u8::MAX;
/// Log2 of the slots in a span.
pub const FINE: u32 = 3;
/// The most by which a member's tag moves at once: what 128 KiB take at the smallest weight.
const MOST: u64 = 1 << 61;
/// The most virtual time that a byte takes. At the sum of all weights a byte takes 2^17 to 2^18, so
/// a weight of less than 2^-26 of the sum counts as 2^-26 of it.
pub const MAX_PER_BYTE: u64 = 1 << 44;

#[derive(Clone, Copy)]
struct Member {
    /// Start tag of the first packet.
    s: u64,
    /// Virtual time of a byte; 0 for one that has no weight.
    per_byte: u64,
    next: u32,
    prev: u32,
    /// Log2 of the span of its group.
    shift: u8,
    /// Its slot there.
    at: u8,
    linked: bool,
}

const IDLE: Member = Member { s: 0, per_byte: 0, next: NIL, prev: NIL, shift: 0, at: 0, linked: false };

struct Group {
    /// Slots in use, as bits.
    full: u64,
    head: [u32; 64],
    tail: [u32; 64],
}

/// Members in worst-case fair order.
pub struct Fair {
    /// Whether V jumps when no member has begun. Where it does not, [`pick`](Fair::pick) may return
    /// none.
    jumps: bool,
    v: u64,
    /// The latest finish tag served.
    last: u64,
    /// Virtual time of a byte of service.
    per_byte: u64,
    /// Log2 of the least span: what the longest packet moves V, which bounds how far tags of a
    /// group lie apart.
    least: u8,
    longest: u32,
    linked: u32,
    /// Spans of which there is a member, as bits of their log2.
    active: u64,
    picked: u8,
    /// Beginning of the front slot, by span.
    front: [u64; 64],
    /// Which of `groups`, by span.
    groups_at: [u8; 64],
    groups: Vec<Group>,
    members: Vec<Member>,
}

/// True if `a` lies beyond `b`. Tags wrap around.
#[inline]
fn after(a: u64, b: u64) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// The virtual time that `bytes` take.
#[inline]
fn cost(per_byte: u64, bytes: u32) -> u64 {
    per_byte.saturating_mul(u64::from(bytes)).min(MOST)
}

/// Log2, rounded up.
#[inline]
pub fn log2_up(n: u64) -> u8 {
    (64 - n.saturating_sub(1).leading_zeros()) as u8
}

impl Fair {
    /// An order without members. `longest` is the length in bytes of the longest usual packet;
    /// longer ones may come.
    pub fn new(jumps: bool, longest: u32) -> Fair {
        Fair {
            jumps,
            v: 0,
            last: 0,
            per_byte: 1,
            least: FINE as u8,
            longest,
            linked: 0,
            active: 0,
            picked: NONE,
            front: [0; 64],
            groups_at: [NONE; 64],
            groups: Vec::new(),
            members: Vec::new(),
        }
    }

    /// Makes room for a member.
    pub fn add(&mut self, slot: u32) {
        if self.members.len() <= slot as usize {
            self.members.resize(slot as usize + 1, IDLE);
        }
    }

    /// Whether no member waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.linked == 0
    }

    /// Sets by how much a byte of service moves virtual time.
    pub fn set_pace(&mut self, per_byte: u64) {
        self.per_byte = per_byte.max(1);
        self.set_least();
    }

    fn set_least(&mut self) {
        self.least = log2_up(cost(self.per_byte, self.longest)).clamp(FINE as u8, 58);
    }

    /// Sets by how much a byte moves a member's tag; 0: it has no weight and never waits here.
    /// `len` is the length of its first packet.
    pub fn set_weight(&mut self, slot: u32, per_byte: u64, len: u32) {
        let before = self.members[slot as usize];
        if before.per_byte == per_byte {
            return;
        }
        if before.linked {
            self.unlink(slot);
        }
        let member = &mut self.members[slot as usize];
        member.per_byte = per_byte;
        // It keeps its distance from the present in bytes.
        let lead = before.s.wrapping_sub(self.v).cast_signed();
        let scaled = |time: u64| {
            let time = u128::from(time) * u128::from(per_byte) / u128::from(before.per_byte.max(1));
            time.min(u128::from(MOST)) as u64
        };
        member.s = match before.per_byte {
            0 => self.v,
            _ if lead > 0 => self.v.wrapping_add(scaled(lead.unsigned_abs())),
            // A member that does not wait is owed nothing.
            _ if !before.linked => self.v,
            _ => self.v.wrapping_sub(scaled(lead.unsigned_abs())),
        };
        if before.linked && per_byte > 0 {
            self.link(slot, len);
        }
        self.repick();
    }

    /// Forgets all tags, and who waits; weights are to be set anew.
    pub fn clear(&mut self) {
        self.members.fill(IDLE);
        for group in &mut self.groups {
            group.full = 0;
        }
        (self.v, self.last, self.linked, self.active, self.picked) = (0, 0, 0, 0, NONE);
    }

    /// A member begins to wait, its first packet of `len` bytes.
    pub fn insert(&mut self, slot: u32, len: u32) {
        let member = &mut self.members[slot as usize];
        if member.linked || member.per_byte == 0 {
            return;
        }
        // S = max(V, F of the packet before). A tag further ahead than packets reach is one of long
        // ago, on the other side of the circle.
        let lead = member.s.wrapping_sub(self.v);
        if lead.cast_signed() <= 0 || lead > cost(member.per_byte, self.longest).saturating_mul(2) {
            member.s = self.v;
        }
        self.link(slot, len);
        self.repick();
    }

    /// A member waits no longer, and was not served.
    pub fn remove(&mut self, slot: u32) {
        if self.members[slot as usize].linked {
            self.unlink(slot);
            self.repick();
        }
    }

    /// A member's first packet is another one.
    pub fn set_length(&mut self, slot: u32, len: u32) {
        let member = &self.members[slot as usize];
        if member.linked && member.shift != log2_up(cost(member.per_byte, len)).clamp(self.least, 62) {
            self.unlink(slot);
            self.link(slot, len);
            self.repick();
        }
    }

    /// The member that sends next.
    #[inline]
    pub fn pick(&self) -> Option<u32> {
        if self.picked == NONE {
            return None;
        }
        let shift = usize::from(self.picked);
        let at = (self.front[shift] >> (shift as u32 - FINE)) & 63;
        Some(self.groups[usize::from(self.groups_at[shift])].head[at as usize])
    }

    /// The member that sends next and the one behind it, [`NIL`] where that takes a search. Used as
    /// hints only.
    #[inline]
    pub fn likely_next(&self) -> [u32; 2] {
        let near = self.pick().unwrap_or(NIL);
        [near, self.members.get(near as usize).map_or(NIL, |member| member.next)]
    }

    /// A packet of `len` bytes was sent that was not chosen here: virtual time moves on.
    pub fn advance(&mut self, len: u32) {
        self.v = self.v.wrapping_add(cost(self.per_byte, len));
        self.repick();
    }

    /// The member that was picked sent `len` bytes, and has another packet of `next`.
    #[inline]
    pub fn served(&mut self, slot: u32, len: u32, next: Option<u32>) {
        self.lengthen(len);
        let member = &mut self.members[slot as usize];
        let span = cost(member.per_byte, len);
        member.s = member.s.wrapping_add(span);
        if after(member.s, self.last) {
            self.last = member.s;
        }
        self.v = self.v.wrapping_add(cost(self.per_byte, len));
        let member = &mut self.members[slot as usize];
        if member.linked {
            // It is the first of its slot.
            debug_assert_eq!(member.prev, NIL);
            member.linked = false;
            let Member { next, shift, at, .. } = *member;
            if next == NIL {
                self.empty(usize::from(shift & 63), usize::from(at & 63));
            } else {
                self.groups[usize::from(self.groups_at[usize::from(shift & 63)])].head[usize::from(at & 63)] = next;
                self.members[next as usize].prev = NIL;
            }
            self.linked -= 1;
        }
        match next {
            Some(next) if next == len => self.place(slot, span),
            Some(next) => self.link(slot, next),
            None => {}
        }
        self.repick();
    }

    #[inline]
    fn lengthen(&mut self, len: u32) {
        if len > self.longest {
            self.longest = len;
            self.set_least();
        }
    }

    /// Files a member by its tag and the length of its first packet.
    #[inline]
    fn link(&mut self, slot: u32, len: u32) {
        self.lengthen(len);
        self.place(slot, cost(self.members[slot as usize].per_byte, len));
    }

    /// Files a member by its tag and the time that its first packet takes.
    #[inline]
    fn place(&mut self, slot: u32, span: u64) {
        let member = &mut self.members[slot as usize];
        let lead = member.s.wrapping_sub(self.v).cast_signed();
        let mut shift = log2_up(span).max(self.least) & 63;
        if lead > 4 << shift.min(58) {
            // It sent a longer packet than it had announced, so its tag is further ahead than its
            // group reaches. It goes to a group of wider slots.
            shift = log2_up(lead.cast_unsigned()) - 2;
        }
        let width = u32::from(shift) - FINE;
        let mut start = member.s >> width << width;
        let (front, place) = (&mut self.front[usize::from(shift & 63)], &mut self.groups_at[usize::from(shift & 63)]);
        if *place == NONE {
            *place = self.groups.len() as u8;
            self.groups.push(Group { full: 0, head: [NIL; 64], tail: [NIL; 64] });
        }
        let group = &mut self.groups[usize::from(*place)];
        if group.full == 0 {
            *front = start;
            self.active |= 1 << shift;
        } else {
            // Tags of a group lie less than 64 slots apart (a span and the longest packet behind V,
            // four spans ahead). Where changes of weights have driven them further apart, the order
            // suffers, not the account.
            let apart = start.wrapping_sub(*front).cast_signed() >> width;
            if apart > 63 {
                start = front.wrapping_add(63 << width);
            } else if apart < 0 {
                let far = 63 - group.full.rotate_right((*front >> width) as u32 & 63).leading_zeros();
                if i64::from(far) - apart > 63 {
                    start = front.wrapping_sub(u64::from(63 - far) << width);
                }
                *front = start;
            }
        }
        let at = (start >> width) as usize & 63;
        let tail = if group.full & (1 << at) == 0 {
            group.full |= 1 << at;
            group.head[at] = slot;
            NIL
        } else {
            group.tail[at]
        };
        group.tail[at] = slot;
        (member.prev, member.next, member.shift, member.at, member.linked) = (tail, NIL, shift, at as u8, true);
        if tail != NIL {
            self.members[tail as usize].next = slot;
        }
        self.linked += 1;
    }

    #[inline]
    fn unlink(&mut self, slot: u32) {
        let member = &mut self.members[slot as usize];
        member.linked = false;
        let Member { next, prev, shift, at, .. } = *member;
        let (shift, at) = (usize::from(shift & 63), usize::from(at & 63));
        let group = &mut self.groups[usize::from(self.groups_at[shift])];
        match next {
            NIL => group.tail[at] = prev,
            next => self.members[next as usize].prev = prev,
        }
        match prev {
            NIL => group.head[at] = next,
            prev => self.members[prev as usize].next = next,
        }
        self.linked -= 1;
        if group.head[at] == NIL {
            self.empty(shift, at);
        }
    }

    /// A slot has become empty.
    #[inline]
    fn empty(&mut self, shift: usize, at: usize) {
        let group = &mut self.groups[usize::from(self.groups_at[shift])];
        group.full &= !(1 << at);
        if group.full == 0 {
            self.active &= !(1 << shift);
            return;
        }
        let width = shift as u32 - FINE;
        let front = &mut self.front[shift];
        let empty = group.full.rotate_right((*front >> width) as u32 & 63).trailing_zeros();
        *front = front.wrapping_add(u64::from(empty) << width);
    }

    /// Called after every change: moves V if no member has begun, and finds the member that sends
    /// next.
    #[inline]
    fn repick(&mut self) {
        let mut left = self.active;
        if left == 0 {
            // A busy period ends: no member is ahead of its share any more.
            if after(self.last, self.v) {
                self.v = self.last;
            }
            self.picked = NONE;
            return;
        }
        if left & (left - 1) == 0 {
            // One group, as where all weights and lengths are alike: nothing to compare.
            let shift = left.trailing_zeros();
            let start = self.front[shift as usize];
            self.picked = shift as u8;
            if after(start, self.v) {
                if self.jumps {
                    self.v = start;
                } else {
                    self.picked = NONE;
                }
            }
            return;
        }
        let (mut picked, mut finish) = (NONE, 0);
        let (mut first, mut begins) = (NONE, 0);
        while left != 0 {
            let shift = left.trailing_zeros();
            left &= left - 1;
            let start = self.front[shift as usize];
            if after(start, self.v) {
                if first == NONE || after(begins, start) {
                    (first, begins) = (shift as u8, start);
                }
                continue;
            }
            let end = start.wrapping_add((1 << shift) + (1 << (shift - FINE)));
            if picked == NONE || after(finish, end) {
                (picked, finish) = (shift as u8, end);
            }
        }
        if picked == NONE && self.jumps {
            self.v = begins;
            picked = first;
        }
        self.picked = picked;
    }

    /// Hints that a member's record is soon needed.
    pub fn fetch(&self, slot: u32) {
        prefetch(&self.members, slot as usize);
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.members.capacity() * size_of::<Member>() + self.groups.capacity() * size_of::<Group>()
    }
}
