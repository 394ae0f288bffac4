//! Addresses and prefixes of subscribers: `10.64.0.17`, `10.64.0.0/24`, `2001:db8:17::/56`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use altq_engine::classify::Address;

/// An IPv4 or IPv6 prefix. A single address is a prefix of full length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// Reads an address or a prefix.
    ///
    /// # Errors
    /// What is wrong: no address, a length that is too large, or bits set after the length.
    pub fn read(text: &str) -> Result<Prefix, String> {
        let shown = || text.chars().take(50).collect::<String>();
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| format!("`{}` is no IPv4 or IPv6 address", shown()))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => most,
            Some(digits) => digits
                .parse::<u8>()
                .ok()
                .filter(|length| *length <= most && digits.bytes().all(|byte| byte.is_ascii_digit()))
                .ok_or_else(|| format!("`{}`: the length of a prefix is 0 to {most}", shown()))?,
        };
        let prefix = Prefix { address, length };
        let (bits, mask) = prefix.bits();
        if bits & !mask != 0 {
            return Err(format!("`{}` has bits set after its first {length}", shown()));
        }
        Ok(prefix)
    }

    /// The address as a number, and the mask of the bits that count.
    fn bits(self) -> (u128, u128) {
        let (bits, width) = match self.address {
            IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let all = u128::MAX >> (128 - width);
        // A shift by the whole width is not possible, so length 0 is handled apart.
        let mask = if self.length == 0 { 0 } else { all & (u128::MAX << (width - u32::from(self.length))) };
        (bits, mask)
    }

    /// The prefix in the form of the classifier's rules.
    pub fn address(self) -> Address {
        let (bits, mask) = self.bits();
        Address { v6: self.address.is_ipv6(), bits, mask }
    }

    /// The prefix of this length that contains it; `None` if `length` is longer than its own.
    pub fn within(self, length: u8) -> Option<Prefix> {
        if length > self.length {
            return None;
        }
        let (bits, _) = self.bits();
        let (_, mask) = Prefix { length, ..self }.bits();
        Some(Prefix { address: self.with_bits(bits & mask), length })
    }

    /// The prefixes inside it are those from the first of these to the second, in their order.
    pub fn range(self) -> (Prefix, Prefix) {
        let (bits, mask) = self.bits();
        let all = if self.address.is_ipv4() { u128::from(u32::MAX) } else { u128::MAX };
        let last = self.with_bits(bits | (all & !mask));
        (Prefix { length: 0, ..self }, Prefix { address: last, length: u8::MAX })
    }

    /// Whether it is IPv6, and its length.
    pub fn kind(self) -> (bool, u8) {
        (self.address.is_ipv6(), self.length)
    }

    /// An address of the same family.
    fn with_bits(self, bits: u128) -> IpAddr {
        match self.address {
            // Only the low 32 bits are ever set.
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(bits as u32)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(bits)),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = if self.address.is_ipv4() { 32 } else { 128 };
        if self.length == most { write!(f, "{}", self.address) } else { write!(f, "{}/{}", self.address, self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_printed_the_same() {
        for text in ["10.64.0.17", "10.64.0.0/24", "0.0.0.0/0", "2001:db8:17::/56", "::1", "::/0"] {
            assert_eq!(Prefix::read(text).unwrap().to_string(), text);
        }
        assert_eq!(Prefix::read("10.0.0.1/32").unwrap(), Prefix::read("10.0.0.1").unwrap());
    }

    #[test]
    fn what_is_no_prefix_says_why() {
        for (text, why) in [
            ("", "is no IPv4 or IPv6 address"),
            ("10.0.0", "is no IPv4 or IPv6 address"),
            ("10.0.0.1/33", "0 to 32"),
            ("10.0.0.1/+8", "0 to 32"),
            ("10.0.0.1/", "0 to 32"),
            ("::/129", "0 to 128"),
            ("::/256", "0 to 128"),
            ("10.0.0.1/24", "after its first 24"),
            ("2001:db8::1/64", "after its first 64"),
        ] {
            let said = Prefix::read(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
        assert!(Prefix::read(&"1".repeat(100_000)).unwrap_err().len() < 200);
    }

    #[test]
    fn bits_and_masks_are_those_of_the_rules() {
        let address = Prefix::read("10.64.0.0/24").unwrap().address();
        assert_eq!((address.v6, address.bits, address.mask), (false, 0x0a40_0000, 0xffff_ff00));
        let address = Prefix::read("2001:db8::/32").unwrap().address();
        assert_eq!((address.bits >> 96, address.mask), (0x2001_0db8, u128::MAX << 96));
        assert_eq!(Prefix::read("::/0").unwrap().address().mask, 0);
        assert_eq!(Prefix::read("0.0.0.0/0").unwrap().address().mask, 0);
    }

    #[test]
    fn what_a_prefix_lies_in_and_what_lies_in_it() {
        let prefix = |text| Prefix::read(text).unwrap();
        assert_eq!(prefix("10.64.3.17").within(24), Some(prefix("10.64.3.0/24")));
        assert_eq!(prefix("10.64.3.17").within(0), Some(prefix("0.0.0.0/0")));
        assert_eq!(prefix("2001:db8:17::1").within(56), Some(prefix("2001:db8:17::/56")));
        assert_eq!(prefix("10.64.3.0/24").within(25), None);
        let (first, last) = prefix("10.64.3.0/24").range();
        for (text, inside) in [
            ("10.64.3.0", true),
            ("10.64.3.255", true),
            ("10.64.3.128/25", true),
            ("10.64.2.255", false),
            ("10.64.4.0", false),
            ("::1", false),
        ] {
            assert_eq!((first..=last).contains(&prefix(text)), inside, "{text}");
        }
        let (first, last) = prefix("::/0").range();
        assert!((first..=last).contains(&prefix("ffff::1")) && !(first..=last).contains(&prefix("255.255.255.255")));
    }
}
