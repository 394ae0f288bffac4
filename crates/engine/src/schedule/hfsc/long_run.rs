//! What each class has in the long run while all classes have packets.
//!
//! Deadlines are kept without regard to the tree, and what goes by them counts in the shares. So a
//! class has the larger of two rates: what the `realtime` curves at and below it ask, and its part
//! of what its parent has. Parts are in proportion to `linkshare`, among those siblings whose part
//! is above what their deadlines ask; the others take what their deadlines ask.
//!
//! Words that fit by themselves may not fit together: `realtime 8Mbit/s` of one class and
//! `linkshare 10Mbit/s` of its sibling on a link of 10 Mbit/s leave the sibling 2 Mbit/s.

use super::promise::{realtime, share};
use crate::schedule::promise::Place;
use crate::shape::service_curve::ServiceCurve;
use crate::units::Rate;

/// The long-run rates of the classes, rounded down; `None` where deadlines ask for more than there
/// is, so that nobody can say.
///
/// An `upperlimit` leaves more to others than is said here.
pub fn long_run(place: &Place<'_>) -> Option<Vec<Rate>> {
    let classes = place.classes;
    // By class: what the deadlines at and below it ask, in bit/s. Parents stand before their
    // children.
    let mut asked: Vec<u128> = classes.iter().map(|member| slope(realtime(member))).collect();
    let mut all = 0;
    for (class, member) in classes.iter().enumerate().rev() {
        let own = asked.get(class).copied().unwrap_or(0);
        match member.parent {
            Some(parent) => *asked.get_mut(parent)? += own,
            None => all += own,
        }
    }
    let whole = u128::from(place.promised.rate().as_bit_s());
    if all > whole {
        return None;
    }
    // The children of each class, and at the end those of the place itself.
    let mut children = vec![Vec::new(); classes.len() + 1];
    for (class, member) in classes.iter().enumerate() {
        children.get_mut(member.parent.unwrap_or(classes.len()))?.push(class);
    }
    let mut has = vec![0_u128; classes.len()];
    divide(&children[classes.len()], whole, place, &asked, &mut has);
    for (class, member) in classes.iter().enumerate() {
        // What the packets of the class itself have by their deadlines is not for its children.
        let left = has[class].saturating_sub(slope(realtime(member)));
        divide(&children[class], left, place, &asked, &mut has);
    }
    Some(has.into_iter().map(|rate| Rate::bit_s(u64::try_from(rate).unwrap_or(u64::MAX))).collect())
}

/// The slope of a curve in the long run, in bit/s.
fn slope(curve: Option<ServiceCurve>) -> u128 {
    curve.map_or(0, |curve| u128::from(curve.then.as_bit_s()))
}

/// Divides `whole` among siblings: each has the larger of what is asked below it and of its part.
fn divide(siblings: &[usize], whole: u128, place: &Place<'_>, asked: &[u128], has: &mut [u128]) {
    let weight = |class: usize| place.classes.get(class).map_or(0, |member| slope(share(member)));
    let asks = |class: usize| asked.get(class).copied().unwrap_or(0);
    // A class without `linkshare` has no part.
    let (mut order, no_part): (Vec<usize>, Vec<usize>) = siblings.iter().partition(|class| weight(**class) > 0);
    let mut left = whole;
    let mut take = |class: usize, rate: u128| {
        if let Some(has) = has.get_mut(class) {
            *has = rate;
        }
    };
    for class in no_part {
        let rate = asks(class).min(left);
        left -= rate;
        take(class, rate);
    }
    // What one takes by its deadlines makes the parts of the others smaller. So those come first
    // whose deadlines ask most in proportion to their weight: once a part is enough for one class,
    // it is enough for all after it.
    order.sort_by(|a, b| (asks(*b).saturating_mul(weight(*a))).cmp(&asks(*a).saturating_mul(weight(*b))));
    let mut weights: u128 = order.iter().map(|class| weight(*class)).sum();
    let mut order = order.into_iter().peekable();
    let too_little = |class: usize, left: u128, weights: u128| {
        asks(class).saturating_mul(weights) >= left.saturating_mul(weight(class))
    };
    while let Some(class) = order.next_if(|class| too_little(*class, left, weights)) {
        let rate = asks(class).min(left);
        left -= rate;
        weights -= weight(class);
        take(class, rate);
    }
    for class in order {
        take(class, left.saturating_mul(weight(class)) / weights.max(1));
    }
}
