//! Blue's probability as ALTQ keeps it (docs/reference/altq.md 7.4): in whole numbers, with one
//! time stamp for rises, falls and the beginning of idle time, in whole microseconds.

use crate::random::SplitMix64;
use crate::units::{Nanos, Rate};

/// The words.
#[derive(Clone, Copy)]
pub struct Words {
    /// The number that stands for a probability of 1.
    pub most: u32,
    pub holdtime: Nanos,
    /// The link's rate, by which it is known when the link asks for a packet again.
    pub link: Rate,
}

/// The probability.
pub struct Pmark {
    words: Words,
    value: u32,
    /// When it last rose or fell, or idle time began: in microseconds.
    stamp: u64,
    /// When the link is done with the last packet of the queue, and finds it empty.
    empty_at: Option<Nanos>,
}

const MICROSECOND: Nanos = 1000;
const SECOND: u64 = 1_000_000;

impl Pmark {
    pub fn new(words: Words) -> Pmark {
        Pmark { words, value: 0, stamp: 0, empty_at: None }
    }

    pub fn words(&self) -> Words {
        self.words
    }

    /// Takes other words. The probability stays about the same.
    pub fn change(&mut self, words: Words) {
        let value = u64::from(self.value) * u64::from(words.most) / u64::from(self.words.most);
        self.value = value.min(words.most.into()) as u32;
        self.words = words;
    }

    /// The number itself.
    pub fn value(&self) -> u32 {
        self.value
    }

    /// As a part of one, in billionths.
    pub fn billionths(&self) -> u64 {
        u64::from(self.value) * 1_000_000_000 / u64::from(self.words.most)
    }

    /// A packet arrives.
    pub fn arrival(&mut self, now: Nanos) {
        let Some(at) = self.empty_at.take().filter(|at| *at <= now) else { return };
        self.stamp = at / MICROSECOND;
        let now = now / MICROSECOND;
        if now / SECOND - self.stamp / SECOND > 1 {
            // Even if it was 0.
            self.value = 1;
            self.stamp = now;
        } else if now - self.stamp > self.words.holdtime / MICROSECOND {
            self.value = self.value.saturating_sub(1);
            self.stamp = now;
        }
    }

    /// Whether a packet is hit.
    pub fn hits(&self, random: &mut SplitMix64) -> bool {
        random.bits() % u64::from(self.words.most) < u64::from(self.value)
    }

    /// The queue was full when a packet came.
    pub fn overflow(&mut self, now: Nanos) {
        let now = now / MICROSECOND;
        if now.saturating_sub(self.stamp) > self.words.holdtime / MICROSECOND {
            self.value = (self.value + self.words.most / 8).min(self.words.most);
            self.stamp = now;
        }
    }

    /// The link has another rate.
    pub fn set_link(&mut self, rate: Rate) {
        self.words.link = rate;
    }

    /// The last packet leaves; the link charges `wire` bytes for it.
    pub fn emptied(&mut self, now: Nanos, wire: u32) {
        self.empty_at = Some(now.saturating_add(self.words.link.time_for(wire.into())));
    }
}
