//! How exact CBQ should divide a link, as a pure function. Tests compare the scheduler with it.
//!
//! Written from docs/reference/cbq.md rules 1 to 7 alone, for fluid traffic: every class offers
//! bits at a constant rate, and there are no packets. It shares no code with the scheduler.

use crate::units::Rate;

/// How bandwidth that classes leave is divided among those that borrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Among all that can take it, in proportion to their rates (rule 4).
    Share,
    /// From the lowest level first, and there to the highest priority first (rule 5).
    Priority,
}

/// A class: its words, and what its sources offer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// Index of the class above. The root has index 0 and is its own parent.
    pub parent: usize,
    /// Its rate.
    pub rate: Rate,
    /// Whether it borrows. Ignored for the root.
    pub borrow: bool,
    /// The most that it may have with borrowing.
    pub ceiling: Option<Rate>,
    /// 0 to 7; 7 is the highest.
    pub priority: u8,
    /// What its own packets offer, bit/s; infinite for a class that always has some.
    pub demand: f64,
}

/// What each class's own packets get, in bit/s. The first of `offers` is the root, with the link's
/// rate; parents stand before their children.
pub fn ideal(offers: &[Offer], sharing: Sharing) -> Vec<f64> {
    let mut tree = Tree::new(offers);
    match sharing {
        Sharing::Share => {
            let most = tree.take(0);
            tree.divide(0, most.min(tree.nodes[0].rate));
        }
        Sharing::Priority => tree.lend(),
    }
    // A class's own packets are those of its leaf.
    (0..offers.len()).map(|class| tree.nodes[tree.leaf_of[class]].got).collect()
}

/// A class, or the implicit leaf of a class that has children.
struct Node {
    parent: usize,
    children: Vec<usize>,
    rate: f64,
    borrow: bool,
    ceiling: f64,
    priority: u8,
    demand: f64,
    got: f64,
}

struct Tree {
    nodes: Vec<Node>,
    /// The node that has a class's own packets: its own, or its implicit leaf (rule 16).
    leaf_of: Vec<usize>,
}

impl Tree {
    fn new(offers: &[Offer]) -> Tree {
        let bit_s = |rate: Rate| rate.as_bit_s() as f64;
        let mut nodes: Vec<Node> = offers
            .iter()
            .enumerate()
            .map(|(class, offer)| Node {
                parent: offer.parent,
                children: Vec::new(),
                rate: bit_s(offer.rate),
                borrow: offer.borrow || class == 0,
                ceiling: offer.ceiling.map_or(f64::INFINITY, bit_s),
                priority: offer.priority,
                demand: offer.demand,
                got: 0.0,
            })
            .collect();
        let mut given = vec![0.0; nodes.len()];
        for class in 1..nodes.len() {
            let parent = nodes[class].parent;
            nodes[parent].children.push(class);
            given[parent] += nodes[class].rate;
        }
        let mut leaf_of: Vec<usize> = (0..nodes.len()).collect();
        for class in 0..offers.len() {
            let above = &nodes[class];
            if above.children.is_empty() && class != 0 {
                continue;
            }
            let rate = (above.rate - given[class]).max(0.0);
            let leaf = Node {
                parent: class,
                children: Vec::new(),
                rate,
                borrow: above.borrow || rate == 0.0,
                ceiling: f64::INFINITY,
                priority: above.priority,
                demand: above.demand,
                got: 0.0,
            };
            leaf_of[class] = nodes.len();
            let at = nodes.len();
            nodes[class].demand = 0.0;
            nodes[class].children.push(at);
            nodes.push(leaf);
        }
        Tree { nodes, leaf_of }
    }

    fn is_leaf(&self, at: usize) -> bool {
        self.nodes[at].children.is_empty()
    }

    // ------------------------------------------------------------------ excess share

    /// The most that a class could use.
    fn take(&self, at: usize) -> f64 {
        let node = &self.nodes[at];
        let wants =
            if self.is_leaf(at) { node.demand } else { node.children.iter().map(|child| self.take(*child)).sum() };
        wants.min(if at == 0 {
            f64::INFINITY
        } else if node.borrow {
            node.ceiling
        } else {
            node.rate
        })
    }

    /// Divides `amount` among what is below (rule 4).
    fn divide(&mut self, at: usize, amount: f64) {
        self.nodes[at].got = amount;
        let children = self.nodes[at].children.clone();
        let mut left = amount;
        let classes: [fn(&Node) -> bool; 3] = [
            |child| !child.borrow,
            |child| child.borrow && child.rate > 0.0,
            // Rule 6.
            |child| child.borrow && child.rate == 0.0,
        ];
        for of_class in classes {
            let group: Vec<usize> = children.iter().copied().filter(|child| of_class(&self.nodes[*child])).collect();
            let wants: Vec<(f64, f64)> =
                group.iter().map(|child| (weight(&self.nodes[*child]), self.take(*child))).collect();
            for (child, part) in group.into_iter().zip(fill(left, &wants)) {
                left -= part;
                self.divide(child, part);
            }
        }
    }

    // ------------------------------------------------------------------ excess priority

    /// Guarantees, then what each inner class has left, the lowest level first (rule 5).
    fn lend(&mut self) {
        for at in 0..self.nodes.len() {
            if self.is_leaf(at) {
                let part = self.nodes[at].demand.min(self.nodes[at].rate);
                self.gain(at, part);
            }
        }
        let mut lenders: Vec<usize> = (1..self.nodes.len()).filter(|at| !self.is_leaf(*at)).collect();
        lenders.sort_by_key(|at| self.level(*at));
        lenders.push(0);
        for lender in lenders {
            for band in (0..8).rev() {
                let left = self.nodes[lender].rate - self.nodes[lender].got;
                if left > 0.0 {
                    self.spread(lender, band, left.min(self.room(lender, band)));
                }
            }
        }
    }

    /// 1 for a leaf, else one more than the highest below (Floyd and Jacobson 1995).
    fn level(&self, at: usize) -> usize {
        1 + self.nodes[at].children.iter().map(|child| self.level(*child)).max().unwrap_or(0)
    }

    /// A leaf gets `part` more, and with it all above.
    fn gain(&mut self, leaf: usize, part: f64) {
        let mut at = leaf;
        loop {
            self.nodes[at].got += part;
            if at == 0 {
                return;
            }
            at = self.nodes[at].parent;
        }
    }

    /// The most that leaves of one band could still take below a class, all of them borrowing up to
    /// it.
    fn room(&self, at: usize, band: u8) -> f64 {
        let node = &self.nodes[at];
        if self.is_leaf(at) {
            // Classes of rate 0 have no priority of their own: they take what all others leave
            // (rule 6).
            let its = if node.rate == 0.0 { 0 } else { node.priority };
            return if its == band { (node.demand.min(node.ceiling) - node.got).max(0.0) } else { 0.0 };
        }
        let below: f64 =
            node.children.iter().filter(|child| self.nodes[**child].borrow).map(|child| self.room(*child, band)).sum();
        below.min((node.ceiling - node.got).max(0.0))
    }

    fn spread(&mut self, at: usize, band: u8, amount: f64) {
        if self.is_leaf(at) {
            return self.gain(at, amount);
        }
        let mut left = amount;
        for rated in [true, false] {
            let group: Vec<usize> = self.nodes[at]
                .children
                .iter()
                .copied()
                .filter(|child| self.nodes[*child].borrow && (self.nodes[*child].rate > 0.0) == rated)
                .collect();
            let wants: Vec<(f64, f64)> =
                group.iter().map(|child| (weight(&self.nodes[*child]), self.room(*child, band))).collect();
            for (child, part) in group.into_iter().zip(fill(left, &wants)) {
                left -= part;
                if part > 0.0 {
                    self.spread(child, band, part);
                }
            }
        }
    }
}

/// Classes of rate 0 share equally (rule 6).
fn weight(node: &Node) -> f64 {
    if node.rate > 0.0 { node.rate } else { 1.0 }
}

/// Progressive filling: divides `amount` in proportion to weights, no part above its bound. Takes
/// (weight, bound).
fn fill(amount: f64, wants: &[(f64, f64)]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    let level = |at: &usize| wants[*at].1 / wants[*at].0;
    order.sort_by(|a, b| level(a).total_cmp(&level(b)));
    let mut weights: f64 = wants.iter().map(|(weight, _)| weight).sum();
    let mut left = amount.max(0.0);
    let mut parts = vec![0.0; wants.len()];
    // Those who are full first take their bound; the others divide the rest.
    for at in order {
        let (weight, bound) = wants[at];
        parts[at] = bound.min(if weights > 0.0 { left * weight / weights } else { 0.0 });
        left -= parts[at];
        weights -= weight;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALWAYS: f64 = f64::INFINITY;

    fn class(parent: usize, mbit: u64, borrow: bool, priority: u8, demand: f64) -> Offer {
        Offer { parent, rate: Rate::mbit_s(mbit), borrow, ceiling: None, priority, demand: demand * 1e6 }
    }

    fn mbit(offers: &[Offer], sharing: Sharing) -> Vec<f64> {
        ideal(offers, sharing).into_iter().map(|rate| (rate / 1e3).round() / 1e3).collect()
    }

    // 10 Mbit/s: A 7 (a 4, b 3), B 3 (c 1, d 2). Worked out by hand.
    fn agencies(demand: [f64; 4]) -> Vec<Offer> {
        vec![
            class(0, 10, true, 1, 0.0),
            class(0, 7, true, 1, 0.0),
            class(0, 3, true, 1, 0.0),
            class(1, 4, true, 5, demand[0]),
            class(1, 3, true, 1, demand[1]),
            class(2, 1, true, 5, demand[2]),
            class(2, 2, true, 1, demand[3]),
        ]
    }

    #[test]
    fn all_backlogged_get_their_rates() {
        for sharing in [Sharing::Share, Sharing::Priority] {
            assert_eq!(mbit(&agencies([ALWAYS; 4]), sharing)[3..], [4.0, 3.0, 1.0, 2.0]);
        }
    }

    #[test]
    fn an_idle_class_leaves_its_share_to_its_agency() {
        for sharing in [Sharing::Share, Sharing::Priority] {
            assert_eq!(mbit(&agencies([0.0, ALWAYS, ALWAYS, ALWAYS]), sharing)[3..], [0.0, 7.0, 1.0, 2.0]);
            assert_eq!(
                mbit(&agencies([1.0, 4.0, ALWAYS, ALWAYS]), sharing)[3..6],
                [1.0, 4.0, if sharing == Sharing::Share { 5.0 / 3.0 } else { 3.0 }]
                    .map(|x: f64| (x * 1e3).round() / 1e3)
            );
        }
    }

    #[test]
    fn an_idle_agency_leaves_its_share_to_the_other() {
        assert_eq!(mbit(&agencies([0.0, 0.0, ALWAYS, ALWAYS]), Sharing::Share)[5..], [3.333, 6.667]);
        // c has the higher priority and takes all that is not guaranteed to d.
        assert_eq!(mbit(&agencies([0.0, 0.0, ALWAYS, ALWAYS]), Sharing::Priority)[5..], [8.0, 2.0]);
    }

    #[test]
    fn a_class_that_does_not_borrow_stays_at_its_rate() {
        let offers = [class(0, 10, true, 1, 0.0), class(0, 2, false, 1, ALWAYS), class(0, 3, true, 1, ALWAYS)];
        for sharing in [Sharing::Share, Sharing::Priority] {
            assert_eq!(mbit(&offers, sharing), [0.0, 2.0, 8.0]);
            assert_eq!(mbit(&offers[..2], sharing), [0.0, 2.0]);
        }
        // An agency that does not borrow, with a leaf that does.
        let offers = [
            class(0, 10, true, 1, 0.0),
            class(0, 3, false, 1, 0.0),
            class(1, 1, true, 1, ALWAYS),
            class(0, 2, true, 1, ALWAYS),
        ];
        for sharing in [Sharing::Share, Sharing::Priority] {
            assert_eq!(mbit(&offers, sharing), [0.0, 0.0, 3.0, 7.0]);
        }
    }

    #[test]
    fn a_ceiling_caps_what_is_borrowed() {
        let mut offers = [class(0, 10, true, 1, 0.0), class(0, 2, true, 1, ALWAYS), class(0, 2, true, 1, ALWAYS)];
        offers[1].ceiling = Some(Rate::mbit_s(3));
        for sharing in [Sharing::Share, Sharing::Priority] {
            assert_eq!(mbit(&offers, sharing), [0.0, 3.0, 7.0]);
        }
    }

    #[test]
    fn rate_0_takes_what_siblings_with_a_rate_leave() {
        let offers = [
            class(0, 10, true, 1, 0.0),
            class(0, 2, true, 1, 6.0),
            class(0, 0, true, 7, ALWAYS),
            class(0, 0, true, 0, ALWAYS),
        ];
        for sharing in [Sharing::Share, Sharing::Priority] {
            assert_eq!(mbit(&offers, sharing), [0.0, 6.0, 2.0, 2.0]);
        }
    }

    #[test]
    fn packets_of_an_inner_class_have_what_its_children_leave() {
        // The class has 7, its children 5: its own packets 2.
        let offers = [
            class(0, 10, true, 1, 0.0),
            class(0, 7, true, 1, ALWAYS),
            class(1, 5, true, 1, ALWAYS),
            class(0, 3, true, 1, ALWAYS),
        ];
        for sharing in [Sharing::Share, Sharing::Priority] {
            assert_eq!(mbit(&offers, sharing), [0.0, 2.0, 5.0, 3.0]);
        }
    }
}
