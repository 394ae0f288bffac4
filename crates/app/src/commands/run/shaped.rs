//! A link that runs, with what its policy promises.

use std::sync::Arc;

use altq_config::{Link, Promises};
use altq_control::roster::without_gaps;
use altq_engine::spec::ClassId;
use altq_engine::units::{Nanos, Rate};

/// A link that runs, with what its policy promises.
pub struct Shaped {
    /// The link. A number without a class has an empty name.
    pub link: Arc<Link>,
    /// For each class, its guarantee; `None` if it has none.
    pub guaranteed: Vec<Option<Rate>>,
    /// For each class, the highest rate that it may reach.
    pub ceiling: Vec<Rate>,
    /// For each class, the longest that its packets may wait.
    pub waits: Vec<Waits>,
}

/// The longest that packets of a class may wait; `None` if nothing is promised.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waits {
    /// A packet of a source that keeps to the class's guarantee.
    pub conforming: Option<Nanos>,
    /// The last packet of a full queue.
    pub queue_full: Option<Nanos>,
}

impl Shaped {
    /// Computes what a link promises.
    pub fn new(link: Arc<Link>) -> Shaped {
        let (whole, kept) = without_gaps(&link);
        let promises = Promises::new(&whole);
        let count = link.spec.classes.len();
        let (mut guaranteed, mut ceiling) = (vec![None; count], vec![Rate::ZERO; count]);
        let mut waits = vec![Waits::default(); count];
        for (class, own) in (0 as ClassId..).zip(kept) {
            if let (Some(guaranteed), Some(ceiling)) = (guaranteed.get_mut(own as usize), ceiling.get_mut(own as usize))
            {
                *guaranteed = promises.guaranteed(class).filter(|rate| !rate.is_zero());
                *ceiling = whole.ceiling(class);
            }
            if let Some(waits) = waits.get_mut(own as usize) {
                let bound = promises.delay_bound(class);
                *waits = Waits { conforming: bound.conforming, queue_full: bound.queue_full };
            }
        }
        Shaped { link, guaranteed, ceiling, waits }
    }
}
