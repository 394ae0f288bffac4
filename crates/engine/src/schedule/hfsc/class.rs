//! What is kept of a class.

use super::curve::{FirstPiece, Runtime, Slope, real};
use super::words::{NewCurve, Words};
use crate::units::Nanos;

/// No record.
pub const NIL: u32 = u32::MAX;

/// Packets wait in the class itself, not only in classes below it.
pub const OWN: u8 = 1;
/// It takes part in link-sharing: it, or a class below it, has packets.
pub const ACTIVE: u8 = 2;
/// It is active, and no limit holds it back: it stands in its parent's heap `fit`.
pub const FIT: u8 = 4;
/// It is active, and a limit holds it back: it stands in its parent's heap `parked`.
pub const PARKED: u8 = 8;
/// Its first packet is not eligible yet: it has a timer in `waiting`.
pub const WAITING: u8 = 16;
/// Its first packet is eligible: it stands in the heap `ready`.
pub const READY: u8 = 32;

/// A class. The first cache line has what link-sharing needs, the second what deadlines need; they
/// lie side by side because processors fetch lines in pairs.
#[repr(C, align(128))]
pub struct Class {
    /// Its virtual time: how far it has been served, on the clock of its siblings.
    pub share: Runtime,
    pub extra: Option<Box<Extra>>,
    pub parent: u32,
    /// The place in `Hfsc::inners` of its parent's record; [`NIL`] for the root.
    pub above: u32,
    /// The place in `Hfsc::inners` of its own record; [`NIL`] if no classes are below it.
    pub inner: u32,
    pub flags: u8,
    /// The time at which the curve has given what was sent by deadline so far.
    pub realtime: Runtime,
    /// When its first packet is eligible.
    pub eligible: Nanos,
    /// Bytes served by deadline.
    pub served: u64,
    /// Its first packet, bytes.
    pub len: u32,
    /// What is counted at least for its first packet where only a guess at its length is known:
    /// the link's largest packet; else 0.
    pub least: u32,
}

const _: () = assert!(size_of::<Class>() == 128);

/// What few classes have: curves of two pieces, and an upper limit.
#[derive(Default)]
pub struct Extra {
    pub share: Option<FirstPiece>,
    pub realtime: Option<FirstPiece>,
    pub limit: Option<Limit>,
}

/// An upper limit.
pub struct Limit {
    pub curve: Runtime,
    pub first: Option<FirstPiece>,
    /// How late the class may be and still make up for it, at its limit: the time of two packets,
    /// and one timer tick.
    pub slack: Nanos,
}

impl Default for Class {
    fn default() -> Class {
        Class {
            share: Runtime::default(),
            extra: None,
            parent: 0,
            above: NIL,
            inner: NIL,
            flags: 0,
            realtime: Runtime::default(),
            eligible: 0,
            served: 0,
            len: 0,
            least: 0,
        }
    }
}

impl Class {
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub fn shares(&self) -> bool {
        !self.share.slope.is_zero()
    }

    #[inline]
    pub fn has_realtime(&self) -> bool {
        !self.realtime.slope.is_zero()
    }

    pub fn has_limit(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.limit.is_some())
    }

    /// Its virtual time: that at which its next packet starts.
    #[inline]
    pub fn vt(&self) -> u128 {
        self.share.position(self.extra.as_ref().and_then(|extra| extra.share.as_ref()))
    }

    /// It has been served `len` bytes, which counts in its virtual time. Its virtual times before
    /// and after.
    #[inline(always)]
    pub fn advance(&mut self, len: u32) -> (u128, u128) {
        if self.extra.is_none() {
            let before = self.share.position(None);
            self.share.advance(None, len);
            return (before, self.share.position(None));
        }
        let before = self.vt();
        let (curve, first) = self.share_parts();
        curve.advance(first, len);
        (before, self.vt())
    }

    /// When its own upper limit lets it go: 0 without one.
    #[inline]
    pub fn limit_time(&self) -> Nanos {
        match self.extra.as_ref().and_then(|extra| extra.limit.as_ref()) {
            None => 0,
            Some(limit) => real(limit.curve.position(limit.first.as_ref())),
        }
    }

    #[inline]
    pub fn share_parts(&mut self) -> (&mut Runtime, Option<&mut FirstPiece>) {
        (&mut self.share, self.extra.as_mut().and_then(|extra| extra.share.as_mut()))
    }

    #[inline]
    pub fn realtime_parts(&mut self) -> (&mut Runtime, Option<&mut FirstPiece>) {
        (&mut self.realtime, self.extra.as_mut().and_then(|extra| extra.realtime.as_mut()))
    }

    #[inline]
    pub fn limit(&mut self) -> Option<&mut Limit> {
        self.extra.as_mut().and_then(|extra| extra.limit.as_mut())
    }

    /// By when its first packet is to be sent. Where its length is only guessed, that of the
    /// largest packet counts: of a shorter one the deadline would be too early, and if the packet
    /// then is long, it goes before siblings whose deadlines are earlier than its true one.
    #[inline]
    pub fn deadline(&self) -> Nanos {
        real(
            self.realtime
                .after(self.extra.as_ref().and_then(|extra| extra.realtime.as_ref()), self.len.max(self.least)),
        )
    }

    /// When its first packet is eligible, worked out.
    #[inline]
    pub fn eligible_time(&self) -> Nanos {
        real(self.realtime.eligible(self.extra.as_ref().and_then(|extra| extra.realtime.as_ref())))
    }

    /// True if these are the curves that it has.
    pub fn has_words(&self, words: &Words) -> bool {
        let same = |(a, first): (&Runtime, Option<&FirstPiece>), b: &NewCurve| {
            a.slope == b.0.slope && first.map(FirstPiece::shape) == b.1.as_ref().map(FirstPiece::shape)
        };
        let extra = self.extra.as_deref();
        let limit = extra.and_then(|extra| extra.limit.as_ref());
        same((&self.share, extra.and_then(|extra| extra.share.as_ref())), &words.share)
            && same((&self.realtime, extra.and_then(|extra| extra.realtime.as_ref())), &words.realtime)
            && match (limit, &words.limit) {
                (None, None) => true,
                (Some(limit), Some(new)) => same((&limit.curve, limit.first.as_ref()), new),
                _ => false,
            }
    }

    /// Takes new curves over, each from where the old one stands. `slack` gives an upper limit's.
    pub fn set(&mut self, words: Words, slack: impl Fn(Slope) -> Nanos) {
        let old = self.extra.take().map_or_else(Extra::default, |extra| *extra);
        let share = self.share.replaced(old.share.as_ref(), words.share);
        let realtime = self.realtime.replaced(old.realtime.as_ref(), words.realtime);
        let limit = words.limit.map(|new: NewCurve| {
            let (curve, first) = match &old.limit {
                Some(limit) => limit.curve.replaced(limit.first.as_ref(), new),
                None => new,
            };
            Limit { curve, first, slack: slack(curve.slope) }
        });
        (self.share, self.realtime) = (share.0, realtime.0);
        if share.1.is_some() || realtime.1.is_some() || limit.is_some() {
            self.extra = Some(Box::new(Extra { share: share.1, realtime: realtime.1, limit }));
        }
    }
}
