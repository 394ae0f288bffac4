//! The classes of a link, as the views need them: names, parents, guarantees.

use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::Rate;

/// A class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// The class above it. Not used for the link itself, class 0.
    pub parent: ClassId,
    /// The rate that the policy guarantees it, in charged bytes; `None`: nothing. For the link
    /// itself: its rate.
    pub asked: Option<Rate>,
    /// The highest rate that it may reach, if that is known.
    pub ceiling: Option<Rate>,
}

/// The classes of a link by number, and the order in which a tree shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    classes: Vec<Class>,
    children: Vec<Vec<ClassId>>,
    /// Every class once. After each class come all classes below it.
    order: Vec<ClassId>,
    depths: Vec<u32>,
}

/// Classes that are no tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// There is no class 0.
    #[error("a link has no classes")]
    Empty,
    /// A class is not below the link.
    #[error("class `{0}` is not below the link: the class above it does not exist, or is below it")]
    Apart(String),
}

impl Tree {
    /// The tree of these classes; the first is the link itself.
    ///
    /// # Errors
    /// If there are no classes, or one is not below the link.
    pub fn new(classes: Vec<Class>) -> Result<Tree, TreeError> {
        if classes.is_empty() {
            return Err(TreeError::Empty);
        }
        let mut children = vec![Vec::new(); classes.len()];
        for (id, class) in (0..).zip(&classes).skip(1) {
            match children.get_mut(class.parent as usize) {
                Some(list) => list.push(id),
                None => return Err(TreeError::Apart(class.name.clone())),
            }
        }
        let (mut order, mut depths) = (Vec::with_capacity(classes.len()), vec![u32::MAX; classes.len()]);
        let mut open: Vec<(ClassId, u32)> = vec![(ROOT, 0)];
        while let Some((class, depth)) = open.pop() {
            order.push(class);
            depths[class as usize] = depth;
            open.extend(children[class as usize].iter().rev().map(|child| (*child, depth + 1)));
        }
        // Classes that form a circle are not reached from the link.
        match depths.iter().position(|depth| *depth == u32::MAX) {
            Some(lost) => Err(TreeError::Apart(classes[lost].name.clone())),
            None => Ok(Tree { classes, children, order, depths }),
        }
    }

    /// The classes, by number.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Number of classes, with the link itself.
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// Never true: there is at least the link itself.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// The name of a class; empty if there is none of this number.
    pub fn name(&self, class: ClassId) -> &str {
        self.classes.get(class as usize).map_or("", |class| class.name.as_str())
    }

    /// The class above; `None` for the link itself.
    pub fn parent(&self, class: ClassId) -> Option<ClassId> {
        let parent = self.classes.get(class as usize)?.parent;
        (class != ROOT).then_some(parent)
    }

    /// The classes directly below, in the order of their numbers.
    pub fn children(&self, class: ClassId) -> &[ClassId] {
        self.children.get(class as usize).map_or(&[], Vec::as_slice)
    }

    /// How many classes are above it; 0 for the link itself.
    pub fn depth(&self, class: ClassId) -> u32 {
        self.depths.get(class as usize).copied().unwrap_or(0)
    }

    /// Bytes of memory held, without the struct itself.
    pub fn memory(&self) -> usize {
        self.classes.capacity() * size_of::<Class>()
            + self.classes.iter().map(|class| class.name.capacity()).sum::<usize>()
            + self.children.capacity() * size_of::<Vec<ClassId>>()
            + self.children.iter().map(|list| list.capacity() * size_of::<ClassId>()).sum::<usize>()
            + (self.order.capacity() + self.depths.capacity()) * size_of::<u32>()
    }

    /// Every class once. After each class come all classes below it.
    pub fn order(&self) -> &[ClassId] {
        &self.order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, parent: ClassId) -> Class {
        Class { name: name.into(), parent, asked: None, ceiling: None }
    }

    #[test]
    fn children_follow_their_parent() {
        // Class 1 is below class 2, whose number is higher: the number of a removed class is used
        // again.
        let tree = Tree::new(vec![class("l", 0), class("a", 2), class("b", 0), class("c", 0), class("d", 2)]).unwrap();
        assert_eq!(tree.order(), [0, 2, 1, 4, 3]);
        assert_eq!((tree.depth(1), tree.parent(1), tree.children(2)), (2, Some(2), &[1, 4][..]));
        assert_eq!((tree.parent(ROOT), tree.name(9), tree.children(9)), (None, "", &[][..]));
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        assert_eq!(Tree::new(Vec::new()), Err(TreeError::Empty));
        let circle = vec![class("l", 0), class("a", 2), class("b", 1)];
        assert_eq!(Tree::new(circle), Err(TreeError::Apart("a".into())));
        assert_eq!(Tree::new(vec![class("l", 0), class("a", 7)]), Err(TreeError::Apart("a".into())));
        assert_eq!(Tree::new(vec![class("l", 0), class("a", 1)]), Err(TreeError::Apart("a".into())));
    }
}
