//! Sequence numbers (RFC 2747 3): each number of a key is used once, and a receiver takes a number
//! once. A window lets messages overtake each other on their way.

/// How far behind the highest number a message may be and still be taken. RFC 2747 3 leaves the
/// size to the receiver.
pub const WINDOW: u64 = 32;

/// The numbers that were seen from one neighbour with one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The highest number taken.
    highest: u64,
    /// Bit i: the number `highest - i` was taken.
    seen: u32,
}

impl Window {
    /// A window after its first number. Numbers below it are not taken: they may be old messages,
    /// recorded before this node started.
    pub fn starting_at(first: u64) -> Window {
        Window { highest: first, seen: u32::MAX }
    }

    /// Takes a number: true if it is new, false if it was taken before, or is too old to know.
    pub fn take(&mut self, number: u64) -> bool {
        if number > self.highest {
            let ahead = number - self.highest;
            self.seen = if ahead >= WINDOW { 0 } else { self.seen << ahead };
            self.seen |= 1;
            self.highest = number;
            return true;
        }
        let behind = self.highest - number;
        if behind >= WINDOW || self.seen & (1 << behind) != 0 {
            return false;
        }
        self.seen |= 1 << behind;
        true
    }
}

/// The numbers of a sender. RFC 2747 3: they must grow even over a restart, so the first one comes
/// from a clock (for example, seconds since 1970 in the upper 32 bits) or from disk.
#[derive(Debug, Clone, Copy)]
pub struct Sequence {
    next: u64,
}

impl Sequence {
    /// Numbers from `first` on.
    pub fn starting_at(first: u64) -> Sequence {
        Sequence { next: first }
    }

    /// The next number; None once all are used, after which a new key is needed.
    pub fn take(&mut self) -> Option<u64> {
        let number = self.next;
        self.next = number.checked_add(1)?;
        Some(number)
    }
}
