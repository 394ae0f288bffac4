//! Bytes and packets, counted together.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// Bytes and packets. Sums end at 2^64 - 1 and differences at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Amount {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
}

impl Amount {
    /// So many bytes in so many packets.
    pub const fn new(bytes: u64, packets: u64) -> Amount {
        Amount { bytes, packets }
    }

    /// Both, minus those of `other`.
    pub fn less(self, other: Amount) -> Amount {
        Amount { bytes: self.bytes.saturating_sub(other.bytes), packets: self.packets.saturating_sub(other.packets) }
    }

    /// The larger bytes, and the larger packets.
    pub fn most(self, other: Amount) -> Amount {
        Amount { bytes: self.bytes.max(other.bytes), packets: self.packets.max(other.packets) }
    }

    /// True if both are 0.
    pub fn is_zero(self) -> bool {
        self == Amount::default()
    }
}

impl Add for Amount {
    type Output = Amount;

    fn add(self, other: Amount) -> Amount {
        Amount { bytes: self.bytes.saturating_add(other.bytes), packets: self.packets.saturating_add(other.packets) }
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        *self = *self + other;
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Amount>>(all: I) -> Amount {
        all.fold(Amount::default(), Add::add)
    }
}
