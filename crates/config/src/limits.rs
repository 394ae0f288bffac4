//! What keeps a class from sending more, from what all classes did in an interval.
//!
//! This is found from rates and backlogs when somebody asks, so it costs no packet anything. The
//! words are the same for all schedulers; docs/stat.md explains each.

use altq_engine::schedule::{Rank, Role};
use altq_engine::spec::{ClassId, ROOT};

use crate::policy::Link;

/// What a class, with all below it, did in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Whether more than one packet waits at the end of the interval. One alone only waits for its
    /// turn.
    pub waits: bool,
    /// What it sent, as the link charges it, in bit/s.
    pub wire_bit_s: u64,
}

/// What keeps a class from sending more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitedBy {
    /// Nothing: it has sent all that came.
    Offered,
    /// The rate that it is guaranteed, which it may not exceed.
    Guarantee,
    /// Its own ceiling, shaper, policer or meter.
    Ceiling,
    /// The limit of this class above it.
    Above(ClassId),
    /// Classes of the same scheduler that go before it.
    Priority,
    /// The link is full, and it has its part.
    Link,
}

impl LimitedBy {
    /// Its word, or the name of the class above.
    pub fn text(self, link: &Link) -> &str {
        match self {
            LimitedBy::Offered => "offered",
            LimitedBy::Guarantee => "guarantee",
            LimitedBy::Ceiling => "ceiling",
            LimitedBy::Above(class) => link.class_name(class),
            LimitedBy::Priority => "priority",
            LimitedBy::Link => "link",
        }
    }
}

/// Whether a rate is at a limit: within 3 %, because rates of an interval are no more precise than
/// that.
fn reached(rate: u64, limit: u64) -> bool {
    u128::from(rate) * 100 >= u128::from(limit) * 97
}

impl Link {
    /// What keeps each class from sending more. `used` is what the classes did, by number.
    pub fn limited_by(&self, used: &[Used]) -> Vec<LimitedBy> {
        let count = self.spec.classes.len();
        let used = |class: usize| used.get(class).copied().unwrap_or_default();
        let inner = self.children();
        // The class that holds the scheduler of each class. In a link that was changed while it
        // runs a class may stand before its parent.
        let mut holders = vec![ROOT as usize; count];
        // The least rank of each scheduler among the leaves that went before others.
        let mut first = vec![u64::MAX; count];
        for (class, spec) in self.spec.classes.iter().enumerate().skip(1) {
            let mut holder = spec.parent as usize;
            while let Some(above) = self.spec.classes.get(holder).filter(|_| holder != ROOT as usize)
                && above.scheduler.is_none()
            {
                holder = above.parent as usize;
            }
            holders[class] = if holder < count { holder } else { ROOT as usize };
            let leaf = spec.scheduler.is_some() || inner.get(class).is_none_or(Vec::is_empty);
            let sent = used(class).wire_bit_s;
            let guarantee = self.guarantee(class as ClassId).unwrap_or_default().as_bit_s();
            let rank = self.rank(class).filter(|rank| match rank {
                Rank::Always(_) => sent > 0,
                // 3 % more than the guarantee, as above.
                Rank::Beyond(_) => u128::from(sent) * 97 > u128::from(guarantee) * 100,
            });
            if let (true, Some(rank)) = (leaf, rank) {
                let first = &mut first[holders[class]];
                *first = (*first).min(rank.number());
            }
        }
        let one = |class: usize| {
            let own = used(class);
            let drops = self.drops(class);
            if !own.waits && !drops {
                return LimitedBy::Offered;
            }
            let mut at = class;
            while at != ROOT as usize {
                if let Some(limit) = self.reached(at, used(at).wire_bit_s) {
                    return if at == class { limit } else { LimitedBy::Above(at as ClassId) };
                }
                at = self.spec.classes.get(at).map_or(ROOT as usize, |spec| spec.parent as usize);
            }
            if !own.waits {
                return LimitedBy::Offered;
            }
            match self.rank(class) {
                Some(rank) if first[holders[class]] < rank.number() => LimitedBy::Priority,
                _ => LimitedBy::Link,
            }
        };
        (0..count).map(one).collect()
    }

    fn rank(&self, class: usize) -> Option<Rank> {
        let id = class as ClassId;
        let scheduler = self.spec.serving(id).filter(|_| id != ROOT)?;
        (self.entry_of(id)?.rank)(&scheduler.settings, &self.spec.classes.get(class)?.settings)
    }

    /// Whether a class drops what arrives too fast, so that it may be limited though nothing waits.
    fn drops(&self, class: usize) -> bool {
        let Some(spec) = self.spec.classes.get(class) else { return false };
        let polices = self.entry_of(class as ClassId).is_some_and(|entry| {
            (entry.polices)(&spec.settings)
                || entry.words_of(Role::Urgent).any(|word| spec.settings.get(word).is_some())
        });
        polices || self.own_ceiling(class as ClassId).is_some_and(|(_, word)| word == "meter")
    }

    /// The limit of a class itself that a rate has reached.
    fn reached(&self, class: usize, rate: u64) -> Option<LimitedBy> {
        let id = class as ClassId;
        if self.by_deadline_only(id).is_some_and(|most| reached(rate, most.as_bit_s())) {
            return Some(LimitedBy::Guarantee);
        }
        // A low-latency class is held to its rate while the link is full, and only then.
        let settings = &self.spec.classes.get(class)?.settings;
        let urgent = self.entry_of(id).and_then(|entry| entry.words_of(Role::Urgent).find_map(|w| settings.rate(w)));
        let beyond = |limit: u64| u128::from(rate) * 100 > u128::from(limit) * 103;
        if urgent.is_some_and(|most| reached(rate, most.as_bit_s()) && !beyond(most.as_bit_s())) {
            return Some(LimitedBy::Guarantee);
        }
        let (most, word) = self.own_ceiling(id)?;
        // Where the limit is the whole link, the link is what limits.
        if most.is_zero() || most >= self.spec.rate || !reached(rate, most.as_bit_s()) {
            return None;
        }
        let written = self.spec.classes.get(class).is_some_and(|spec| spec.settings.get(word).is_some());
        let role = self.entry_of(id).and_then(|entry| entry.roles.iter().find(|(known, _)| *known == word));
        Some(match role {
            Some((_, Role::Borrow)) => LimitedBy::Guarantee,
            Some((_, Role::CeilingOrGuarantee)) if !written => LimitedBy::Guarantee,
            _ => LimitedBy::Ceiling,
        })
    }
}
