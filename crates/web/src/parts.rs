//! To which line of a history's series the classes belong.

use altq_engine::spec::{ClassId, ROOT};

use crate::frame::Classes;

/// For each number of the history, the line to which it is added.
pub struct Parts(Vec<Option<ClassId>>);

impl Parts {
    /// For `class`: a line for itself, and one for each class directly below it with all below
    /// that.
    pub fn of(classes: &Classes, numbers: &[ClassId], class: ClassId, count: usize) -> Parts {
        // What classes did that are gone counts for the link.
        let mut parts = vec![(class == ROOT).then_some(ROOT); count];
        let mut found: Vec<Option<ClassId>> = vec![None; classes.tree.len()];
        for at in classes.tree.order().iter().copied() {
            let above = classes.tree.parent(at).and_then(|parent| found.get(parent as usize).copied().flatten());
            let part = if at == class {
                Some(class)
            } else if above == Some(class) {
                Some(at)
            } else {
                above
            };
            found[at as usize] = part;
            if let Some(place) = numbers.get(at as usize).and_then(|number| parts.get_mut(*number as usize)) {
                *place = part;
            }
        }
        Parts(parts)
    }

    /// The line of a number; `None` if it is in none.
    pub fn of_number(&self, number: ClassId) -> Option<ClassId> {
        self.0.get(number as usize).copied().flatten()
    }
}
