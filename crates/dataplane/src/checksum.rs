//! The Internet checksum (RFC 1071, section 1) over bytes that are given piece by piece.

/// A running one's-complement sum.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    sum: u64,
    /// True after an odd number of bytes: the next byte is the lower half of a word.
    odd: bool,
}

impl Sum {
    /// Adds bytes, in order.
    pub fn add(&mut self, mut bytes: &[u8]) -> &mut Sum {
        if self.odd
            && let Some((first, rest)) = bytes.split_first()
        {
            self.sum += u64::from(*first);
            (self.odd, bytes) = (false, rest);
        }
        // Words of 32 bits are summed. Their carries are folded at the end (RFC 1071, section 2
        // (C)).
        let mut words = bytes.chunks_exact(4);
        for word in &mut words {
            self.sum += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
        }
        for (at, byte) in words.remainder().iter().enumerate() {
            self.sum += u64::from(*byte) << (8 * (1 - at % 2));
        }
        self.odd ^= bytes.len() % 2 == 1;
        self
    }

    /// Adds a 16-bit word. An even number of bytes must have been added before.
    pub fn word(&mut self, word: u16) -> &mut Sum {
        self.sum += u64::from(word);
        self
    }

    /// The sum folded to 16 bits, not inverted. A checksum field holds it while other bytes still
    /// have to be added.
    pub fn folded(&self) -> u16 {
        let mut sum = self.sum;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// The checksum.
    pub fn finish(&self) -> u16 {
        !self.folded()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_1071_example() {
        // Section 3: 0001 f203 f4f5 f6f7 sum to ddf2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().add(&bytes).folded(), 0xddf2);
    }

    #[test]
    fn pieces_do_not_matter() {
        let bytes: Vec<u8> = (0..997u32).map(|i| (i * i) as u8).collect();
        let whole = Sum::default().add(&bytes).finish();
        for at in 0..bytes.len() {
            let (a, b) = bytes.split_at(at);
            let (b, c) = b.split_at(b.len() / 3);
            assert_eq!(Sum::default().add(a).add(b).add(c).finish(), whole, "{at}");
        }
    }
}
