//! When rules that another program takes away are set again.

/// Looks that find the rules gone before they are set again for the first time. Once may be a
/// program that has failed to list them, or one that sets rules itself just now.
const FIRST: u32 = 2;
/// So many tries come as soon as that: firewalls may be loaded twice in a row.
const QUICK: u32 = 3;
/// The most looks between two tries: with a look every five seconds, about five minutes.
const LONGEST: u32 = 64;

/// Rules that are gone, or were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// Looks in a row that found them gone, since the last try.
    looks: u32,
    /// How often they were set again.
    tries: u32,
    /// Looks in a row that found them there.
    there: u32,
    /// They were just set again.
    fresh: bool,
}

impl Gone {
    /// A look finds them gone.
    pub fn gone(&mut self) {
        self.looks = self.looks.saturating_add(1);
        (self.there, self.fresh) = (0, false);
    }

    /// A look finds them there. True if they have been there for so long that earlier tries no
    /// longer count.
    pub fn there(&mut self) -> bool {
        self.there += 1;
        (self.looks, self.fresh) = (0, false);
        self.there >= LONGEST
    }

    /// True if they are to be set again now. Somebody who takes them away on purpose does so again
    /// and again, so each try waits twice as long as the one before, except the first ones.
    pub fn is_due(&self) -> bool {
        self.looks >= (FIRST << (self.tries + 1).saturating_sub(QUICK).min(5)).min(LONGEST)
    }

    /// They are set again.
    pub fn tried(&mut self) {
        (self.looks, self.fresh) = (0, true);
        self.tries = self.tries.saturating_add(1);
    }

    /// True if the next look should come soon.
    pub fn is_urgent(&self) -> bool {
        self.fresh || self.tries < QUICK && (1..FIRST).contains(&self.looks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_try_waits_longer_and_peace_makes_it_short_again() {
        let mut gone = Gone::default();
        let mut waits = Vec::new();
        for _ in 0..10 {
            let mut looks = 0;
            while !gone.is_due() {
                assert_eq!(gone.is_urgent(), looks == 1 && waits.len() < 3 || looks == 0 && !waits.is_empty());
                gone.gone();
                looks += 1;
            }
            gone.tried();
            waits.push(looks);
        }
        assert_eq!(waits, [2, 2, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert!(!(0..LONGEST - 1).any(|_| gone.there()) && gone.there());
    }

    #[test]
    fn gone_once_is_not_enough() {
        let mut gone = Gone::default();
        gone.gone();
        assert!(!gone.is_due() && gone.is_urgent());
        gone.there();
        gone.gone();
        assert!(!gone.is_due());
        gone.gone();
        assert!(gone.is_due());
    }
}
