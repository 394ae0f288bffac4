//! The scheduler's records. A leaf has one record. A class with classes below it has a node, and in
//! each band a branch. A ceiling, or a rate that is a limit, has a cap.

use super::words::Words;
use crate::units::SECOND;

/// "None", in links and indices.
pub const NIL: u32 = u32::MAX;

/// This bit in the number of a calendar's child says that it is a branch. Without it the number is
/// a leaf's slot.
pub const BRANCH: u32 = 1 << 31;

/// This bit in a timer's number says that it is the clock of a cap.
pub const CAP: u32 = 1 << 31;
/// This bit in a timer's number says that it is the credit clock of a node.
pub const NODE: u32 = 1 << 30;

/// Fraction bits of [`Leaf::nspb`]. At 100 Gbit/s a byte takes 0.08 ns; this states it to 1 in
/// 10^6.
const POINT: u32 = 24;

/// The time of a byte at a rate in bit/s, in 2^-24 ns. 0 for rate 0, at which no time is ever
/// computed.
pub fn nspb(rate: u64) -> u64 {
    if rate == 0 {
        return 0;
    }
    let rate = u128::from(rate);
    let exact = (u128::from(8 * SECOND) << POINT) + rate / 2;
    (exact / rate).max(1) as u64
}

/// The [`weight`] of all classes of rate 0, which share equally (docs/reference/cbq.md rule 6): one
/// nanosecond for a byte.
const EQUAL: u64 = 1 << POINT;

/// By how much a byte advances a start tag, in 2^-24 ns: the time of a byte at the class's rate.
pub fn weight(rate: u64) -> u64 {
    if rate == 0 { EQUAL } else { nspb(rate) }
}

/// The time in which `bytes` pass, truncated to nanoseconds.
pub fn span(nspb: u64, bytes: u32) -> u64 {
    // 2^32 bytes at 1 bit/s take 2^55 ns.
    ((u128::from(nspb) * u128::from(bytes)) >> POINT) as u64
}

/// The time in which `bytes` pass; the truncated fraction is carried in `rem`, so that no rate
/// drifts.
#[inline]
pub fn cost(nspb: u64, bytes: u32, rem: &mut u32) -> u64 {
    let exact = u128::from(nspb) * u128::from(bytes) + u128::from(*rem);
    *rem = (exact as u32) & ((1 << POINT) - 1);
    (exact >> POINT) as u64
}

/// A time (upper bits) and the number of what waits for it (lower 32 bits), as one number that a
/// heap can order by.
pub type At = u128;

/// Puts a time and a number together.
#[inline]
pub fn at(time: u64, id: u32) -> At {
    u128::from(time) << 32 | u128::from(id)
}

/// Its time.
#[inline]
pub fn time(at: At) -> u64 {
    (at >> 32) as u64
}

/// The same time with the number of something else that waits.
#[inline]
pub fn with_id(at: At, id: u32) -> At {
    at & !At::from(u32::MAX) | At::from(id)
}

/// Has packets.
pub const BACKLOGGED: u8 = 1;
/// Takes excess.
pub const BORROW: u8 = 2;
/// Can take excess now, and is counted so in its calendar and branch.
pub const AVAIL: u8 = 4;
/// Has an entry in its calendar. The entry may be void: it is removed when it is found.
pub const LINKED: u8 = 8;
/// Has an entry in the timing wheel, which may be void.
pub const FILED: u8 = 16;
/// Has an entry in the ready queue, which may be void.
pub const READY: u8 = 32;
/// Of rate 0.
pub const ZERO: u8 = 64;
/// The slot is in use.
pub const EXISTS: u8 = 128;

/// Of a branch: it is in a list of [`Lenders`](super::lenders::Lenders).
pub const IN_LENDERS: u8 = 1;

/// A leaf: all that a packet touches of it, in one cache line. The leaf of a class that has
/// children is its implicit leaf (docs/reference/cbq.md rule 16).
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Leaf {
    /// Its guarantee clock: the next packet is within guarantee from this time on, ns.
    pub eligible: u64,
    /// Start tag in its calendar, ns of virtual time.
    pub start: u64,
    /// [`weight`] of its rate.
    pub nspb: u64,
    /// Bit/s.
    pub rate: u64,
    /// Credit that idleness earns, bytes.
    pub burst: u32,
    /// Length of the first packet.
    pub len: u32,
    /// Fraction of a nanosecond carried.
    pub rem: u32,
    /// Next in its list of the wheel, or of the ready queue.
    pub timer_next: u32,
    /// Next in its list of the calendar.
    pub calendar_next: u32,
    /// The branch above.
    pub branch: u32,
    /// Its ceiling, or [`NIL`].
    pub cap: u32,
    /// The place of its entry in the calendar.
    pub filed: u16,
    pub flags: u8,
    pub priority: u8,
}

impl Leaf {
    pub const NONE: Leaf = Leaf {
        eligible: 0,
        start: 0,
        nspb: 0,
        rate: 0,
        burst: 0,
        len: 0,
        rem: 0,
        timer_next: NIL,
        calendar_next: NIL,
        branch: NIL,
        cap: NIL,
        filed: 0,
        flags: 0,
        priority: 0,
    };

    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The calendar that it is in.
    #[inline]
    pub fn home(&self) -> u32 {
        calendar(self.branch, self.has(ZERO))
    }
}

/// The calendar of a branch for its children with a rate, or for those of rate 0, which take what
/// the others cannot (docs/reference/cbq.md rule 6). The two lie side by side.
#[inline(always)]
pub fn calendar(branch: u32, zero: bool) -> u32 {
    branch << 1 | u32::from(zero)
}

/// An inner class in the tree of one band. `excess share` has one band, `excess priority` one for
/// each priority in use.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Branch {
    /// Start tag in the calendar above.
    pub start: u64,
    /// [`weight`] of its rate.
    pub nspb: u64,
    pub rem: u32,
    pub calendar_next: u32,
    /// The branch above; [`NIL`] for the root's.
    pub up: u32,
    /// The calendar of the branch above that it is in.
    pub home: u32,
    pub node: u32,
    /// Children that can take excess now.
    pub avail: u32,
    /// The node's cap. It is repeated here because every packet needs it.
    pub cap: u32,
    /// Next in its list of lenders.
    pub lender_next: u32,
    pub filed: u16,
    /// AVAIL, LINKED, ZERO as in a leaf, and IN_LENDERS.
    pub flags: u8,
    pub band: u8,
    /// The lowest bit: every class from here to the root borrows and has no cap. The other bits:
    /// the count of changes at which that was found out.
    pub open: u32,
}

/// Branches, too, take one cache line each.
const _: () = assert!(size_of::<Leaf>() == 64 && size_of::<Branch>() == 64);

/// An inner class.
#[derive(Clone, Copy)]
pub struct Node {
    pub slot: u32,
    /// The node above; [`NIL`] for the root.
    pub parent: u32,
    pub words: Words,
    /// Sum of its children's rates, bit/s.
    pub given: u128,
    pub children: u32,
    /// 1 above leaves only, else one more than the highest node below.
    pub level: u32,
    /// Its limit: a ceiling, or without borrow in `excess share` its rate. Or [`NIL`].
    pub cap: u32,
    /// Its branch in each band, or [`NIL`].
    pub branches: [u32; 8],
    /// Branches below which something can take excess.
    pub live: u32,
    /// `excess priority`: credit clock. The class is underlimit, and lends, from this time on.
    pub underlimit: u64,
    pub nspb: u64,
    pub rem: u32,
    pub timer_next: u32,
    /// Has an entry in the wheel.
    pub filed: bool,
}

/// A limit on all that a leaf, or all below a node, sends: a credit clock that runs at the limit's
/// rate.
#[derive(Clone, Copy)]
pub struct Cap {
    /// What it limits: a leaf's slot, or a node's number with [`NODE`].
    pub owner: u32,
    /// Nothing beyond guarantees leaves before this time.
    pub opens: u64,
    pub nspb: u64,
    pub rem: u32,
    pub timer_next: u32,
    pub rate: u64,
    /// How far behind the present the clock may be, ns.
    pub lag: u64,
    /// The least value of `lag`: what idleness earns, ns.
    pub burst: u64,
    /// The limit is the class's guarantee too: time that it lost to others is made up for.
    pub owed: bool,
    /// The clock is ahead of the present, and the cap waits for it in the timing wheel.
    pub parked: bool,
}

/// All records, so that queues can follow their links.
#[derive(Default)]
pub struct Records {
    pub leaves: Vec<Leaf>,
    pub branches: Vec<Branch>,
    pub nodes: Vec<Node>,
    pub caps: Vec<Cap>,
    /// By how much the guarantee clocks of a priority were moved on, to forget what its leaves were
    /// owed (docs/reference/cbq.md rule 14), ns.
    pub slip: [u64; 8],
}

impl Records {
    // ---- children of calendars

    #[inline]
    pub fn tag(&self, id: u32) -> u64 {
        if id & BRANCH == 0 { self.leaves[id as usize].start } else { self.branches[(id & !BRANCH) as usize].start }
    }

    #[inline(always)]
    pub fn calendar_next(&self, id: u32) -> u32 {
        if id & BRANCH == 0 {
            self.leaves[id as usize].calendar_next
        } else {
            self.branches[(id & !BRANCH) as usize].calendar_next
        }
    }

    #[inline(always)]
    pub fn set_calendar_next(&mut self, id: u32, next: u32) {
        if id & BRANCH == 0 {
            self.leaves[id as usize].calendar_next = next;
        } else {
            self.branches[(id & !BRANCH) as usize].calendar_next = next;
        }
    }

    /// Notes the place of a child's entry in its calendar, and the child after it.
    #[inline(always)]
    pub fn set_filed(&mut self, id: u32, at: u16, next: u32) {
        if id & BRANCH == 0 {
            let leaf = &mut self.leaves[id as usize];
            (leaf.filed, leaf.calendar_next) = (at, next);
        } else {
            let branch = &mut self.branches[(id & !BRANCH) as usize];
            (branch.filed, branch.calendar_next) = (at, next);
        }
    }

    /// A child's start tag, its flags, and the child after it.
    #[inline(always)]
    pub fn entry(&self, id: u32) -> (u64, u8, u32) {
        if id & BRANCH == 0 {
            let leaf = &self.leaves[id as usize];
            (leaf.start, leaf.flags, leaf.calendar_next)
        } else {
            let branch = &self.branches[(id & !BRANCH) as usize];
            (branch.start, branch.flags, branch.calendar_next)
        }
    }

    pub fn filed(&self, id: u32) -> u16 {
        if id & BRANCH == 0 { self.leaves[id as usize].filed } else { self.branches[(id & !BRANCH) as usize].filed }
    }

    #[inline]
    pub fn flags(&mut self, id: u32) -> &mut u8 {
        if id & BRANCH == 0 {
            &mut self.leaves[id as usize].flags
        } else {
            &mut self.branches[(id & !BRANCH) as usize].flags
        }
    }

    // ---- timers

    /// When a timer is due.
    #[inline]
    pub fn due(&self, id: u32) -> u64 {
        if id & CAP != 0 {
            self.caps[(id & !CAP) as usize].opens
        } else if id & NODE != 0 {
            self.nodes[(id & !NODE) as usize].underlimit
        } else {
            self.leaf_due(&self.leaves[id as usize])
        }
    }

    /// When the first packet of a leaf is within guarantee.
    #[inline]
    pub fn leaf_due(&self, leaf: &Leaf) -> u64 {
        leaf.eligible.saturating_add(self.slip[usize::from(leaf.priority) % 8])
    }

    #[inline]
    pub fn timer_next(&self, id: u32) -> u32 {
        if id & CAP != 0 {
            self.caps[(id & !CAP) as usize].timer_next
        } else if id & NODE != 0 {
            self.nodes[(id & !NODE) as usize].timer_next
        } else {
            self.leaves[id as usize].timer_next
        }
    }

    #[inline]
    pub fn set_timer_next(&mut self, id: u32, next: u32) {
        if id & CAP != 0 {
            self.caps[(id & !CAP) as usize].timer_next = next;
        } else if id & NODE != 0 {
            self.nodes[(id & !NODE) as usize].timer_next = next;
        } else {
            self.leaves[id as usize].timer_next = next;
        }
    }

    /// Whether a packet may become free to go when this timer is due.
    pub fn matters(&self, id: u32) -> bool {
        if id & CAP != 0 {
            let owner = self.caps[(id & !CAP) as usize].owner;
            if owner & NODE != 0 {
                self.nodes[(owner & !NODE) as usize].live > 0
            } else {
                self.leaves[owner as usize].has(BACKLOGGED)
            }
        } else if id & NODE != 0 {
            self.nodes[(id & !NODE) as usize].live > 0
        } else {
            self.leaves[id as usize].has(BACKLOGGED)
        }
    }
}
