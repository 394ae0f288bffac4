//! The pieces (delays or flows of each second) of the busy classes, for at most a given number of
//! classes.

use altq_engine::spec::ClassId;

use crate::steps::Steps;

/// The pieces of each class that is busy.
#[derive(Debug)]
pub(crate) struct ByClass<T> {
    all: Vec<Option<Box<Steps<T>>>>,
    busy: usize,
    most: usize,
}

impl<T> ByClass<T> {
    /// Room for classes with numbers below `classes`, of which at most `most` have pieces at a
    /// time.
    pub(crate) fn new(classes: usize, most: usize) -> ByClass<T> {
        ByClass { all: (0..classes).map(|_| None).collect(), busy: 0, most }
    }

    /// The pieces of a class, if it has some.
    pub(crate) fn get(&self, class: ClassId) -> Option<&Steps<T>> {
        self.all.get(class as usize)?.as_deref()
    }

    /// Adds a piece. A class beyond the limit gets none.
    pub(crate) fn push(&mut self, class: ClassId, now: u64, piece: T, merge: impl FnOnce(&[(u64, T)]) -> T) {
        let Some(place) = self.all.get_mut(class as usize) else { return };
        if place.is_none() {
            if self.busy >= self.most {
                return;
            }
            self.busy += 1;
        }
        place.get_or_insert_with(Box::default).push(now, piece, merge);
    }

    /// Drops the pieces that no window needs any more.
    pub(crate) fn sweep(&mut self, now: u64) {
        for place in &mut self.all {
            if place.as_deref().is_some_and(|steps| steps.is_over(now)) {
                *place = None;
                self.busy -= 1;
            }
        }
    }

    /// Gives the classes other numbers: `new` has one for each old number, or `None` for a class
    /// that is gone. Its pieces are dropped.
    pub(crate) fn renumber(&mut self, new: &[Option<ClassId>], classes: usize) {
        let old = std::mem::replace(&mut self.all, (0..classes).map(|_| None).collect());
        self.busy = 0;
        for (new, steps) in new.iter().zip(old) {
            let place = new.and_then(|class| self.all.get_mut(class as usize));
            if let (Some(place), Some(steps)) = (place, steps) {
                *place = Some(steps);
                self.busy += 1;
            }
        }
    }

    /// Bytes of memory held; `of` says what a piece holds.
    pub(crate) fn memory(&self, of: impl Fn(&T) -> usize) -> usize {
        let held = self.present().map(|(_, steps)| size_of::<Steps<T>>() + steps.memory(&of));
        self.all.capacity() * size_of::<Option<Box<Steps<T>>>>() + held.sum::<usize>()
    }

    /// The classes that have pieces.
    pub(crate) fn present(&self) -> impl Iterator<Item = (ClassId, &Steps<T>)> {
        (0..).zip(&self.all).filter_map(|(class, steps)| Some((class, steps.as_deref()?)))
    }
}
