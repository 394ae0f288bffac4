//! Classes as a tree: each class stands above those below it, which are indented.

use altq_config::Link;
use altq_engine::spec::ROOT;

/// The classes in the order in which a tree shows them, each with its depth. `parents` has the
/// index of the class above each class; `None`: there is none.
pub fn order(parents: &[Option<usize>]) -> Vec<(usize, usize)> {
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); parents.len()];
    let mut open: Vec<(usize, usize)> = Vec::new();
    for (class, parent) in parents.iter().enumerate().rev() {
        match parent.and_then(|parent| below.get_mut(parent)) {
            Some(list) => list.push(class),
            None => open.push((class, 0)),
        }
    }
    let mut order = Vec::with_capacity(parents.len());
    while let Some((class, depth)) = open.pop() {
        order.push((class, depth));
        open.extend(below[class].drain(..).map(|child| (child, depth + 1)));
    }
    order
}

/// The classes of a link, by their numbers.
pub fn of_link(link: &Link) -> Vec<(usize, usize)> {
    let parent =
        |(id, spec): (usize, &altq_engine::spec::ClassSpec)| (id != ROOT as usize).then_some(spec.parent as usize);
    order(&link.spec.classes.iter().enumerate().map(parent).collect::<Vec<_>>())
}

/// The class above each class, by names. If several have a name, the first of them is meant.
#[cfg(feature = "experiments")]
pub fn parents<'a>(classes: impl Iterator<Item = (&'a str, Option<&'a str>)> + Clone) -> Vec<Option<usize>> {
    let mut places = std::collections::HashMap::new();
    for (at, (name, _)) in classes.clone().enumerate() {
        places.entry(name).or_insert(at);
    }
    classes
        .enumerate()
        .map(|(at, (_, parent))| parent.and_then(|parent| places.get(parent).copied()).filter(|parent| *parent != at))
        .collect()
}

/// A class's name, indented by its depth.
pub fn name(name: &str, depth: usize) -> String {
    format!("{:indent$}{name}", "", indent = 2 * depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_follow_their_parent_in_the_order_in_which_they_are_written() {
        // 0 ─ 1 ─ 3, 5    and 6 of another link
        //   └ 2 ─ 4
        let parents = [None, Some(0), Some(0), Some(1), Some(2), Some(1), None];
        assert_eq!(order(&parents), [(0, 0), (1, 1), (3, 2), (5, 2), (2, 1), (4, 2), (6, 0)]);
        assert_eq!(order(&[]), []);
        // The class above is not listed.
        assert_eq!(order(&[Some(7)]), [(0, 0)]);
    }

    #[test]
    #[cfg(feature = "experiments")]
    fn parents_are_found_by_name() {
        let classes = [("wan", None), ("a", Some("wan")), ("b", Some("a")), ("c", Some("gone")), ("wan", Some("wan"))];
        assert_eq!(parents(classes.into_iter()), [None, Some(0), Some(1), None, Some(0)]);
    }
}
