//! The numbers by which the kernel knows qdiscs and classes.

use std::fmt;

/// A qdisc (`1:`) or a class (`1:a`): a major number of 16 bits, which is the qdisc's, and a minor
/// number of 16 bits, 0 for the qdisc itself (linux/pkt_sched.h, `TC_H_MAKE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u32);

impl Handle {
    /// The parent of a device's own qdisc (`TC_H_ROOT`).
    pub const ROOT: Handle = Handle(u32::MAX);

    /// A handle of these numbers.
    pub const fn new(major: u16, minor: u16) -> Handle {
        Handle((major as u32) << 16 | minor as u32)
    }

    /// The qdisc's number.
    pub const fn major(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The class's number; 0 for a qdisc.
    pub const fn minor(self) -> u16 {
        (self.0 & 0xffff) as u16
    }
}

impl fmt::Display for Handle {
    /// As tc writes it: `1:`, `1:a`, `root`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self, self.minor()) {
            (Handle::ROOT, _) => f.write_str("root"),
            (_, 0) => write!(f, "{:x}:", self.major()),
            (_, minor) => write!(f, "{:x}:{minor:x}", self.major()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Handle;

    #[test]
    fn handles_as_tc_writes_them() {
        let text = [Handle::new(1, 0), Handle::new(1, 0xfff0), Handle::new(0x2a, 10), Handle::ROOT]
            .map(|handle| handle.to_string());
        assert_eq!(text, ["1:", "1:fff0", "2a:a", "root"]);
    }
}
