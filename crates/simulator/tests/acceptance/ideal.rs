//! The referee: a function that returns how a link is divided by docs/reference/cbq.md rules 1 to
//! 6, from what each class wants. It is written from the rules and contains no scheduler.

/// A class of the referee's tree. The first is the root; parents stand before children.
#[derive(Clone, Debug)]
pub struct Class {
    pub parent: usize,
    /// Guarantee and weight, in bit/s.
    pub rate: f64,
    pub borrow: bool,
    /// The ceiling, for classes with `borrow`.
    pub ceiling: Option<f64>,
    /// What a leaf would take, in bit/s; infinite for a backlogged leaf, 0 for an idle one. Not
    /// used for inner classes.
    pub demand: f64,
}

/// What each class gets, in bit/s (`excess share`, rule 4).
pub fn share(classes: &[Class], link: f64) -> Vec<f64> {
    let mut children = vec![Vec::new(); classes.len()];
    for (at, class) in classes.iter().enumerate().skip(1) {
        children[class.parent].push(at);
    }
    // The most that each class could take: its own limit, or what the classes below it could take.
    let mut most = vec![0.0f64; classes.len()];
    for at in (0..classes.len()).rev() {
        let class = &classes[at];
        let wants = if children[at].is_empty() { class.demand } else { children[at].iter().map(|c| most[*c]).sum() };
        let cap = match (at, class.borrow, class.ceiling) {
            (0, ..) => link,
            (_, false, _) => class.rate,
            (_, true, Some(ceiling)) => ceiling,
            (_, true, None) => f64::INFINITY,
        };
        most[at] = wants.min(cap);
    }
    let mut got = vec![0.0; classes.len()];
    got[0] = most[0].min(link);
    for (at, below) in children.iter().enumerate() {
        divide(at, below, classes, &most, &mut got);
    }
    got
}

fn divide(node: usize, children: &[usize], classes: &[Class], most: &[f64], got: &mut [f64]) {
    let mut left = got[node];
    // Children that may not borrow come first: each gets the smaller of its demand and its rate.
    for c in children.iter().filter(|c| !classes[**c].borrow) {
        got[*c] = most[*c].min(left);
        left -= got[*c];
    }
    // Then the children that can take more share the rest in proportion to their rates.
    let mut open: Vec<usize> =
        children.iter().copied().filter(|c| classes[*c].borrow && classes[*c].rate > 0.0 && most[*c] > 0.0).collect();
    left = fill(&mut open, left, most, got, |c| classes[c].rate);
    // Rule 6: classes of rate 0 get only what no sibling with a rate can take, in equal parts.
    let mut open: Vec<usize> =
        children.iter().copied().filter(|c| classes[*c].borrow && classes[*c].rate == 0.0 && most[*c] > 0.0).collect();
    fill(&mut open, left, most, got, |_| 1.0);
}

/// Raises all open classes together, by weight, until each is full or nothing is left. Returns what
/// is left.
fn fill(open: &mut Vec<usize>, mut left: f64, most: &[f64], got: &mut [f64], weight: impl Fn(usize) -> f64) -> f64 {
    while !open.is_empty() && left > 1e-9 {
        let total: f64 = open.iter().map(|c| weight(*c)).sum();
        // The first class to be full decides how far all are raised.
        let step = open.iter().map(|c| (most[*c] - got[*c]) / weight(*c)).fold(left / total, f64::min);
        for c in open.iter() {
            got[*c] += step * weight(*c);
        }
        left -= step * total;
        open.retain(|c| most[*c] - got[*c] > 1e-9 * most[*c].min(1e12));
        if step <= 0.0 {
            break;
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(parent: usize, rate: f64, borrow: bool, demand: f64) -> Class {
        Class { parent, rate, borrow, ceiling: None, demand }
    }

    #[test]
    fn divisions_by_hand() {
        let inf = f64::INFINITY;
        let root = class(0, 10.0, false, 0.0);
        // 20/80, both borrow, and one is idle.
        assert_eq!(share(&[root.clone(), class(0, 2.0, true, inf), class(0, 8.0, true, 0.0)], 10.0), [10.0, 10.0, 0.0]);
        // A class that may not borrow keeps to its rate; the rest is divided 1:3.
        let tree = [root.clone(), class(0, 2.0, false, inf), class(0, 1.0, true, inf), class(0, 3.0, true, inf)];
        assert_eq!(share(&tree, 10.0), [10.0, 2.0, 2.0, 6.0]);
        // A ceiling: the rest goes to the other class.
        let mut tree = [root.clone(), class(0, 5.0, true, inf), class(0, 5.0, true, inf)];
        tree[1].ceiling = Some(5.5);
        tree[2].demand = 4.0;
        assert_eq!(share(&tree, 10.0), [9.5, 5.5, 4.0]);
        // A leaf that borrows fills its parent, which may not borrow, and gets no more.
        let tree = [root.clone(), class(0, 3.0, false, 0.0), class(1, 1.0, true, inf), class(0, 1.0, true, inf)];
        assert_eq!(share(&tree, 10.0), [10.0, 3.0, 3.0, 7.0]);
        // Classes of rate 0 get what the others leave, in equal parts.
        let tree = [root, class(0, 4.0, true, 6.0), class(0, 0.0, true, inf), class(0, 0.0, true, inf)];
        assert_eq!(share(&tree, 10.0), [10.0, 6.0, 2.0, 2.0]);
    }
}
