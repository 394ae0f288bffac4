//! The slots of a wheel: lists of entries, and a bitmap of the lists that are not empty.

/// Log2 of the slots in a wheel.
pub const BITS: u32 = 8;
/// Slots in a wheel.
pub const SLOTS: usize = 1 << BITS;
/// The end of a list.
pub const NIL: u32 = u32::MAX;

/// The slots of a wheel.
pub struct Slots {
    /// A bit for each slot that has entries.
    pub used: [u64; SLOTS / 64],
    /// A bit for each word of `used` that is not 0.
    words: u32,
    /// The first entry of each slot.
    pub first: [u32; SLOTS],
}

impl Slots {
    pub const EMPTY: Slots = Slots { used: [0; SLOTS / 64], words: 0, first: [NIL; SLOTS] };

    /// The first slot in use. There is one.
    #[inline]
    pub fn first_used(&self) -> u8 {
        let word = (self.words | 1 << 31).trailing_zeros() as usize % (SLOTS / 64);
        (word * 64) as u8 | self.used[word].trailing_zeros() as u8
    }

    /// Puts an owner at the head of a slot's list. Returns the one that was there.
    #[inline]
    pub fn push(&mut self, slot: u8, owner: u32) -> u32 {
        self.used[usize::from(slot / 64)] |= 1 << (slot % 64);
        self.words |= 1 << (slot / 64);
        std::mem::replace(&mut self.first[usize::from(slot)], owner)
    }

    /// Marks a slot as empty. True if no slot is in use any more.
    #[inline]
    pub fn empty(&mut self, slot: u8) -> bool {
        let word = &mut self.used[usize::from(slot / 64)];
        *word &= !(1 << (slot % 64));
        if *word == 0 {
            self.words &= !(1 << (slot / 64));
        }
        self.words == 0
    }
}
