//! What [`SpaceSaving`](crate::space_saving::SpaceSaving) has counted: keys with bounds, and the
//! rest. Summaries of several seconds or classes are merged into one.

use std::collections::BTreeMap;

use crate::amount::Amount;

/// A key and what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted<K> {
    /// The key.
    pub key: K,
    /// What it has for certain.
    pub at_least: Amount,
    /// The most that it may have beyond that.
    pub error: Amount,
}

impl<K> Counted<K> {
    /// The most that the key can have.
    pub fn at_most(&self) -> Amount {
        self.at_least + self.error
    }
}

/// The largest keys of a stream, and its total.
///
/// What the listed keys have for certain and the rest ([`others`](Summary::others)) add up to
/// exactly the total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary<K> {
    listed: Box<[Counted<K>]>,
    total: Amount,
    floor: Amount,
}

impl<K> Default for Summary<K> {
    fn default() -> Summary<K> {
        Summary { listed: Box::default(), total: Amount::default(), floor: Amount::default() }
    }
}

impl<K: Copy + Ord> Summary<K> {
    /// A summary of these keys. A key that is not listed has at most `floor`.
    pub fn new(mut listed: Vec<Counted<K>>, total: Amount, floor: Amount) -> Summary<K> {
        listed.sort_unstable_by(|a, b| b.at_least.cmp(&a.at_least).then_with(|| a.key.cmp(&b.key)));
        Summary { listed: listed.into_boxed_slice(), total, floor }
    }

    /// The keys, those first that have the most bytes for certain.
    pub fn listed(&self) -> &[Counted<K>] {
        &self.listed
    }

    /// The bytes and packets of the whole stream.
    pub fn total(&self) -> Amount {
        self.total
    }

    /// The most that a key can have that is not listed.
    pub fn floor(&self) -> Amount {
        self.floor
    }

    /// The rest: what is not certain to belong to a listed key.
    pub fn others(&self) -> Amount {
        self.total.less(self.listed.iter().map(|counted| counted.at_least).sum())
    }

    /// The same, if so much more was sent of which no flow is known.
    #[must_use]
    pub fn unsure(mut self, more: Amount) -> Summary<K> {
        for counted in &mut self.listed {
            counted.error += more;
        }
        self.total += more;
        self.floor += more;
        self
    }

    /// True if there was nothing.
    pub fn is_empty(&self) -> bool {
        self.total.is_zero()
    }

    /// The summary of several streams together, with at most `most` keys.
    ///
    /// A key may have been in a stream that does not list it, up to that stream's floor, so its
    /// error grows by that floor. If there are too many keys, those with the smallest upper bounds
    /// are left out, and the floor rises to the highest of these bounds.
    ///
    /// So the bounds stay true. And if every stream was counted with `most` counters, every key
    /// with more than N/`most` of all N bytes is still listed. This is the merging of P. K.
    /// Agarwal, G. Cormode, Z. Huang, J. Phillips, Z. Wei and K. Yi, "Mergeable Summaries", PODS
    /// 2012: the upper bound minus the floor is what their Misra-Gries summary has for the key, and
    /// the floor rises by what they subtract from all keys.
    pub fn merged<'a>(parts: impl IntoIterator<Item = &'a Summary<K>>, most: usize) -> Summary<K>
    where
        K: 'a,
    {
        // For each key: what it has for certain, its errors, and the floors of the streams that
        // list it.
        let mut keys: BTreeMap<K, [Amount; 3]> = BTreeMap::new();
        let (mut total, mut floor) = (Amount::default(), Amount::default());
        for part in parts {
            total += part.total;
            floor += part.floor;
            for counted in &part.listed {
                let [at_least, error, floors] = keys.entry(counted.key).or_default();
                *at_least += counted.at_least;
                *error += counted.error;
                *floors += part.floor;
            }
        }
        let mut listed: Vec<Counted<K>> = keys
            .into_iter()
            .map(|(key, [at_least, error, floors])| Counted { key, at_least, error: error + floor.less(floors) })
            .collect();
        if listed.len() > most {
            listed.sort_unstable_by(|a, b| b.at_most().cmp(&a.at_most()).then_with(|| a.key.cmp(&b.key)));
            for left_out in listed.drain(most..) {
                floor = floor.most(left_out.at_most());
            }
        }
        Summary::new(listed, total, floor)
    }

    /// The same with at most `most` keys: those that have the most for certain.
    pub fn shortened(&self, most: usize) -> Summary<K> {
        let (kept, left_out) = self.listed.split_at(most.min(self.listed.len()));
        let floor = left_out.iter().fold(self.floor, |floor, counted| floor.most(counted.at_most()));
        Summary { listed: kept.into(), total: self.total, floor }
    }

    /// Bytes of memory held, without the struct itself.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(key: char, at_least: u64, error: u64) -> Counted<char> {
        Counted { key, at_least: Amount::new(at_least, 1), error: Amount::new(error, 0) }
    }

    #[test]
    fn merging_keeps_the_bounds() {
        // a has 100 for certain in the first stream, and may have up to 20 in the second, which
        // does not list it. b is in both: 30 and 40 for certain, with errors of 10 and 0.
        let one = vec![counted('a', 100, 0), counted('b', 30, 10)];
        let one = Summary::new(one, Amount::new(150, 4), Amount::new(10, 1));
        let two = vec![counted('b', 40, 0), counted('c', 25, 20)];
        let two = Summary::new(two, Amount::new(90, 6), Amount::new(20, 1));
        let both = Summary::merged([&one, &two], 3);
        assert_eq!((both.total(), both.floor()), (Amount::new(240, 10), Amount::new(30, 2)));
        let bytes: Vec<_> = both.listed().iter().map(|c| (c.key, c.at_least.bytes, c.error.bytes)).collect();
        assert_eq!(bytes, [('a', 100, 20), ('b', 70, 10), ('c', 25, 30)]);
        assert_eq!(both.others().bytes, 240 - 195);
        // c is left out. It may have 55, so any key that is not listed may have that.
        let short = Summary::merged([&one, &two], 2);
        assert_eq!((short.listed().len(), short.floor().bytes, short.others().bytes), (2, 55, 70));
        assert_eq!(both.shortened(2), short);
        assert!(Summary::<char>::merged([], 3).is_empty());
    }
}
