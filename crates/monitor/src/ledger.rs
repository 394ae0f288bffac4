//! Who borrowed, and from whom: an account in charged bytes (packet plus the link's overhead) that
//! balances.
//!
//! In a stretch of time a class's guarantee is a number of bytes. What the class sent beyond that
//! it has *borrowed*. The part of its guarantee that others used it has *lent*. At the link, lent
//! equals borrowed to the byte:
//!
//! - Besides its children's accounts, a class has one of its own. It holds the part of the
//!   guarantee that no child has, and the packets of the class itself.
//! - Inside a class, what some children sent beyond their guarantees is taken first from the
//!   class's own account, then from every child in proportion to what it left unused. What that
//!   does not cover, the class as a whole has borrowed from its siblings. What is left over, it may
//!   lend to them.
//! - A class none of whose children has a guarantee is one account, with all below it: its children
//!   cannot lend to each other.
//! - The guarantees of children may add up to more than their parent's. Then the parent's counts as
//!   their sum.
//!
//! Proof that it balances. Let e be what an account or a class sent beyond its guarantee g, u what
//! it left, and L what a class's subtree lent to classes outside of it, so that L <= u. With r
//! bytes sent, e - u = r - g. Inside a class the children's g and r add up to its own, so the sum
//! of (e - u) over its children is e - u of the class. Inside it, T = sum(e) - e + L bytes are
//! taken from children; T <= sum(u). By induction a subtree's borrowed minus its lent bytes are e -
//! L: for an account by definition, and for a class because sum(e) - T = e - L. The link's
//! guarantee counts as at least what it sent, so its e is 0, and it lends to nobody. So borrowed
//! equals lent.
//!
//! The borrowing that a scheduler counts (`borrowed_bytes` of `altq.stat/1`) is another figure: the
//! scheduler decides for each packet whether it was borrowed.

use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::Nanos;

use crate::tree::Tree;

/// What one class, without those below it, has borrowed and lent, in charged bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Sent beyond its guarantee.
    pub borrowed: u64,
    /// The part of its guarantee that others used.
    pub lent: u64,
}

/// What a class and those below it may use and have used.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    guarantee: u64,
    sent: u64,
    /// The part of the guarantee that no child has.
    own_guarantee: u64,
    /// What the class's own packets sent.
    own_sent: u64,
    /// Whether something is guaranteed to one of its children.
    divided: bool,
}

impl Account {
    fn beyond(&self) -> u64 {
        self.sent.saturating_sub(self.guarantee)
    }

    fn left(&self) -> u64 {
        self.guarantee.saturating_sub(self.sent)
    }

    fn own_beyond(&self) -> u64 {
        self.own_sent.saturating_sub(self.own_guarantee)
    }

    fn own_left(&self) -> u64 {
        self.own_guarantee.saturating_sub(self.own_sent)
    }
}

/// Divides `total` in proportion to `parts`, in whole numbers that add up to `total`, each rounded
/// up or down. A part of 0 gets 0; if all are 0, the first gets everything. If `total` is at most
/// the sum of the parts, no part gets more than its own size.
pub fn divide(total: u64, parts: &[u64], mut give: impl FnMut(usize, u64)) {
    let whole: u128 = parts.iter().map(|part| u128::from(*part)).sum();
    let (mut seen, mut given) = (0u128, 0u64);
    for (at, part) in parts.iter().enumerate() {
        seen += u128::from(*part);
        // What all parts up to this one get together, rounded down. This part gets the difference.
        let until = match whole {
            0 => total,
            _ => scaled(total, seen, whole).min(total),
        };
        give(at, until - given);
        given = until;
    }
}

/// `total * seen / whole`, where `seen` is at most `whole`.
fn scaled(total: u64, seen: u128, whole: u128) -> u64 {
    // A sum of 2^32 parts of 64 bits has up to 96 bits, so the product would not fit into 128.
    // `seen` and `whole` are then shifted right by the same number of bits.
    let shift = (128 - whole.leading_zeros()).saturating_sub(64);
    let whole = (whole >> shift).max(1);
    if seen >> shift >= whole { total } else { (u128::from(total) * (seen >> shift) / whole) as u64 }
}

/// What each class has borrowed and lent over `time`, by class number. `sent` returns the charged
/// bytes of a class's own packets.
pub fn settle(tree: &Tree, sent: impl Fn(ClassId) -> u64, time: Nanos) -> Vec<Entry> {
    let mut accounts = vec![Account::default(); tree.len()];
    // From the leaves up: what each class may use and has used.
    for class in tree.order().iter().rev().copied() {
        let asked = tree.classes().get(class as usize).and_then(|class| class.asked);
        let mut account = Account { own_sent: sent(class), ..Account::default() };
        let mut of_children = 0u64;
        account.sent = account.own_sent;
        for child in tree.children(class) {
            let below = accounts.get(*child as usize).copied().unwrap_or_default();
            of_children = of_children.saturating_add(below.guarantee);
            account.sent = account.sent.saturating_add(below.sent);
            account.divided |= tree.classes().get(*child as usize).is_some_and(|child| child.asked.is_some());
        }
        account.guarantee = asked.map_or(0, |rate| rate.bytes_in(time)).max(of_children);
        if class == ROOT {
            account.guarantee = account.guarantee.max(account.sent);
        }
        account.own_guarantee = account.guarantee - of_children;
        if let Some(place) = accounts.get_mut(class as usize) {
            *place = account;
        }
    }
    // From the link down: what is taken from whom. `lends` is what a class and those below it lend
    // to classes outside.
    let mut entries = vec![Entry::default(); tree.len()];
    let mut lends = vec![0u64; tree.len()];
    let mut closed = vec![false; tree.len()];
    let mut left = Vec::new();
    for class in tree.order().iter().copied() {
        let at = class as usize;
        let (account, children) = (accounts[at], tree.children(class));
        if closed[at] {
            // This class belongs to the account of a class above it.
            children.iter().for_each(|child| closed[*child as usize] = true);
            continue;
        }
        if !account.divided {
            entries[at] = Entry { borrowed: account.beyond(), lent: lends[at] };
            children.iter().for_each(|child| closed[*child as usize] = true);
            continue;
        }
        let below = |child: &ClassId| accounts[*child as usize];
        let beyond = children.iter().fold(account.own_beyond(), |sum, child| sum.saturating_add(below(child).beyond()));
        let taken = beyond.saturating_sub(account.beyond()).saturating_add(lends[at]);
        let own = taken.min(account.own_left());
        entries[at] = Entry { borrowed: account.own_beyond(), lent: own };
        left.clear();
        left.extend(children.iter().map(|child| below(child).left()));
        divide(taken - own, &left, |place, share| {
            if let Some(child) = children.get(place) {
                lends[*child as usize] = share;
            }
        });
    }
    entries
}

#[cfg(test)]
mod tests {
    use altq_engine::units::{Rate, SECOND};

    use super::*;
    use crate::tree::Class;

    /// Classes `(parent, guarantee)` in bytes a second; the first is the link.
    fn tree(classes: &[(ClassId, Option<u64>)]) -> Tree {
        let class = |(at, (parent, asked)): (usize, &(ClassId, Option<u64>))| Class {
            name: format!("c{at}"),
            parent: *parent,
            asked: asked.map(|bytes| Rate::bit_s(bytes * 8)),
            ceiling: None,
        };
        Tree::new(classes.iter().enumerate().map(class).collect()).unwrap()
    }

    fn settled(tree: &Tree, sent: &[u64]) -> Vec<(u64, u64)> {
        let entries = settle(tree, |class| sent[class as usize], SECOND);
        let sum = |of: fn(&Entry) -> u64| entries.iter().map(of).sum::<u64>();
        assert_eq!(sum(|entry| entry.borrowed), sum(|entry| entry.lent), "{entries:?}");
        entries.iter().map(|entry| (entry.borrowed, entry.lent)).collect()
    }

    #[test]
    fn the_published_picture() {
        // Link 100, voice 5, agency 50 with web 30 and bulk 20 below it, rest 45. Voice got 2.1,
        // web 34, bulk 20, rest 43.9 (here all times ten). Web borrowed 4.0, of which voice lent
        // 2.9 and rest 1.1.
        let tree =
            tree(&[(0, Some(1000)), (0, Some(50)), (0, Some(500)), (2, Some(300)), (2, Some(200)), (0, Some(450))]);
        let entries = settled(&tree, &[0, 21, 0, 340, 200, 439]);
        assert_eq!(entries, [(0, 0), (0, 29), (0, 0), (40, 0), (0, 0), (0, 11)]);
    }

    #[test]
    fn what_nobody_is_guaranteed_goes_first() {
        // Link 1000, of which 400 and 300 are guaranteed to classes, so 300 are the link's own.
        // Class 1 sends 800: it borrows 400, first 300 from the link's own, then 100 from class 2.
        let two = tree(&[(0, Some(1000)), (0, Some(400)), (0, Some(300))]);
        assert_eq!(settled(&two, &[0, 800, 200]), [(0, 300), (400, 0), (0, 100)]);
        // Packets of the link itself use the link's own 300 first.
        assert_eq!(settled(&two, &[350, 400, 0]), [(50, 0), (0, 0), (0, 50)]);
        // If the link's packets use less than the link's own 300, and no class borrows, nothing is
        // lent.
        assert_eq!(settled(&two, &[100, 400, 10]), [(0, 0), (0, 0), (0, 0)]);
    }

    #[test]
    fn a_class_covers_its_own_children_before_it_borrows_outside() {
        // a (600) has a1 (300) and a2 (300) below it; b has 400. a1 sends 700, 400 beyond its
        // guarantee, and a2 sends 100. a2 lends 200, and a as a whole borrows 200 from b.
        let nested = tree(&[(0, Some(1000)), (0, Some(600)), (1, Some(300)), (1, Some(300)), (0, Some(400))]);
        assert_eq!(settled(&nested, &[0, 0, 700, 100, 200]), [(0, 0), (0, 0), (400, 0), (0, 200), (0, 200)]);
        // The other way round: b sends 700, and a's children, who left 150 each, lend it 300.
        assert_eq!(settled(&nested, &[0, 0, 150, 150, 700]), [(0, 0), (0, 0), (0, 150), (0, 150), (300, 0)]);
        // a1 borrows 50 from a2, and a2 lends the other 200 that it left to b.
        assert_eq!(settled(&nested, &[0, 0, 350, 50, 600]), [(0, 0), (0, 0), (50, 0), (0, 250), (200, 0)]);
    }

    #[test]
    fn where_nothing_is_guaranteed_nobody_borrows_inside() {
        let plain = tree(&[(0, Some(1000)), (0, None), (0, None)]);
        assert_eq!(settled(&plain, &[0, 900, 100]), [(0, 0); 3]);
        // Class 1 is guaranteed 300, its children nothing: it is one account.
        let inner = tree(&[(0, Some(1000)), (0, Some(300)), (1, None), (1, None), (0, Some(700))]);
        assert_eq!(settled(&inner, &[0, 0, 400, 50, 500]), [(0, 0), (150, 0), (0, 0), (0, 0), (0, 150)]);
    }

    #[test]
    fn more_than_there_is_may_be_promised_and_sent() {
        // 700 and 600 of 1000; and the link sends more than its rate for a moment.
        let over = tree(&[(0, Some(1000)), (0, Some(700)), (0, Some(600))]);
        assert_eq!(settled(&over, &[0, 800, 200]), [(0, 0), (100, 0), (0, 100)]);
        assert_eq!(settled(&over, &[0, 1000, 700]), [(0, 400), (300, 0), (100, 0)]);
    }

    #[test]
    fn parts_add_up_and_are_in_proportion() {
        let divided = |total, parts: &[u64]| {
            let mut all = vec![0; parts.len()];
            divide(total, parts, |at, share| all[at] = share);
            all
        };
        assert_eq!(divided(10, &[1, 1, 1]), [3, 3, 4]);
        assert_eq!(divided(7, &[0, 7, 0]), [0, 7, 0]);
        assert_eq!(divided(5, &[0, 0]), [5, 0]);
        assert_eq!(divided(5, &[]), [] as [u64; 0]);
        let huge = divided(u64::MAX, &[u64::MAX; 5]);
        assert_eq!(huge.iter().map(|part| u128::from(*part)).sum::<u128>(), u128::from(u64::MAX));
    }
}
