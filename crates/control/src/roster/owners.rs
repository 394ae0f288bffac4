//! Which subscriber has which address.

use std::collections::{BTreeMap, BTreeSet};

use crate::prefix::Prefix;
use crate::request::Subscriber;

/// The subscriber to which each prefix belongs.
#[derive(Default)]
pub(super) struct Owners {
    of: BTreeMap<Prefix, String>,
    /// The lengths that prefixes have had so far, with their family.
    lengths: BTreeSet<(bool, u8)>,
}

impl Owners {
    /// The subscriber that has this prefix, a part of it, or a prefix that contains it. Subscribers
    /// that are `ignored` count as if they had no addresses.
    pub fn of(&self, prefix: Prefix, ignored: impl Fn(&str) -> bool) -> Option<&String> {
        let (v6, length) = prefix.kind();
        let mut around = self.lengths.range((v6, 0)..=(v6, length));
        let covering = around.find_map(|(_, length)| {
            let owner = self.of.get(&prefix.within(*length)?)?;
            (!ignored(owner)).then_some(owner)
        });
        let (first, last) = prefix.range();
        covering.or_else(|| self.of.range(first..=last).map(|(_, owner)| owner).find(|owner| !ignored(owner)))
    }

    /// A subscriber gets its addresses, which are free.
    pub fn take(&mut self, subscriber: &Subscriber) {
        for prefix in &subscriber.addresses {
            self.lengths.insert(prefix.kind());
            self.of.insert(*prefix, subscriber.id.clone());
        }
    }

    /// A subscriber gives its addresses up.
    pub fn forget(&mut self, subscriber: &Subscriber) {
        subscriber.addresses.iter().for_each(|prefix| _ = self.of.remove(prefix));
    }
}
