//! Which classes of a result are printed: `--class` and `--active`.

use altq_cases::case::{CaseFile, Run, What};
use altq_cases::result::ClassResult;

use crate::pattern::{means, unknown};
use crate::tree;

/// The options. Without any, all classes are printed.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Chosen {
    /// Prints only this class, what is below it, and their flows; * stands for any text and ? for
    /// any letter, LINK/NAME for a class of that link. May be given several times
    #[arg(long = "class", value_name = "NAME", conflicts_with = "json")]
    classes: Vec<String>,
    /// Prints only classes that had packets
    #[arg(long, conflicts_with = "json")]
    active: bool,
}

/// A class in a tree that is printed.
pub struct Shown<'a> {
    /// The class.
    pub class: &'a ClassResult,
    /// How deep below its link it is.
    pub depth: usize,
    /// True if the options ask for it; false if it stands above such a class.
    pub wanted: bool,
}

impl Chosen {
    /// True if the options leave no class out.
    pub fn all(&self) -> bool {
        self.classes.is_empty() && !self.active
    }

    /// True if the options name classes.
    pub fn by_name(&self) -> bool {
        !self.classes.is_empty()
    }

    /// Checks before a run that each option means a class of one of these runs.
    ///
    /// # Errors
    /// With the nearest name if it means none.
    pub fn check<'a>(&self, file: &'a CaseFile, runs: impl Iterator<Item = &'a Run>) -> Result<(), String> {
        if self.classes.is_empty() {
            return Ok(());
        }
        let mut known: Vec<(String, String)> = Vec::new();
        for run in runs {
            for column in &run.case.columns {
                // The run itself reports a policy that cannot be read.
                let Ok(policy) = column.load(&run.case) else { return Ok(()) };
                for way in run.case.governed() {
                    let Some(link) = policy.links.iter().find(|link| link.name == way.policy) else { continue };
                    known.extend(link.classes.iter().map(|class| (way.name.clone(), class.name.clone())));
                }
                let added = run.case.events.iter().filter_map(|event| match &event.what {
                    What::AddClass { class, .. } => Some(class.text.as_str()),
                    _ => None,
                });
                known.extend(added.map(|class| match class.split_once('/') {
                    Some((link, class)) => (link.to_owned(), class.to_owned()),
                    None => (String::new(), class.to_owned()),
                }));
            }
        }
        unknown(&self.classes, &known, &file.name).map_or(Ok(()), Err)
    }

    /// The classes to print, as trees, and the number of those that are left out.
    pub fn trees<'a>(&self, classes: &'a [ClassResult]) -> (Vec<Shown<'a>>, usize) {
        fn same(a: &ClassResult, b: &ClassResult) -> bool {
            (&a.row, &a.column, &a.link) == (&b.row, &b.column, &b.link)
        }
        let mut shown = Vec::new();
        for tree in classes.chunk_by(same) {
            let names = tree.iter().map(|class| (class.report.name.as_str(), class.report.parent.as_deref()));
            let parents = tree::parents(names);
            let order = tree::order(&parents);
            let mut below = vec![self.classes.is_empty(); tree.len()];
            for (at, _) in &order {
                let of_above = parents[*at].is_some_and(|above| below[above]);
                let own = &tree[*at];
                below[*at] |= of_above || self.classes.iter().any(|name| means(name, &own.link, &own.report.name));
            }
            let has_traffic = |class: &ClassResult| {
                class.report.arrived_packets + class.report.sent_packets + class.report.queued_packets > 0
            };
            let wanted: Vec<bool> =
                (0..tree.len()).map(|at| below[at] && (!self.active || has_traffic(&tree[at]))).collect();
            // What stands above a class says where the class is.
            let mut above = vec![false; tree.len()];
            for (at, _) in order.iter().rev().filter(|(at, _)| parents[*at].is_some()) {
                if let Some(parent) = parents[*at] {
                    above[parent] |= wanted[*at] || above[*at];
                }
            }
            let kept = order.into_iter().filter(|(at, _)| wanted[*at] || above[*at]);
            shown.extend(kept.map(|(at, depth)| Shown { class: &tree[at], depth, wanted: wanted[at] }));
        }
        let left_out = classes.len() - shown.len();
        (shown, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Classes of a link `wan`: a above a1 and a2, b above b1; only a1 had packets.
    fn classes() -> Vec<ClassResult> {
        let tree = [("wan", None), ("a", Some("wan")), ("b", Some("wan")), ("a1", Some("a")), ("a2", Some("a"))];
        let mut classes = Vec::new();
        for (name, parent) in tree.into_iter().chain([("b1", Some("b"))]) {
            let mut class = ClassResult { link: "wan".into(), ..ClassResult::default() };
            class.report.name = name.into();
            class.report.parent = parent.map(str::to_owned);
            class.report.arrived_packets = u64::from(["wan", "a", "a1"].contains(&name));
            classes.push(class);
        }
        classes
    }

    fn shown(names: &[&str], active: bool) -> (String, usize) {
        let chosen = Chosen { classes: names.iter().map(|name| name.to_string()).collect(), active };
        let classes = classes();
        let (shown, left_out) = chosen.trees(&classes);
        let names = shown.iter().map(|shown| {
            format!("{}{}{}", ".".repeat(shown.depth), shown.class.report.name, if shown.wanted { "" } else { "!" })
        });
        (names.collect::<Vec<_>>().join(" "), left_out)
    }

    #[test]
    fn a_class_is_shown_with_what_is_below_and_above_it() {
        assert_eq!(shown(&[], false), ("wan .a ..a1 ..a2 .b ..b1".into(), 0));
        assert_eq!(shown(&["a"], false), ("wan! .a ..a1 ..a2".into(), 2));
        assert_eq!(shown(&["?1"], false), ("wan! .a! ..a1 .b! ..b1".into(), 1));
        assert_eq!(shown(&["wan/b*"], false), ("wan! .b ..b1".into(), 3));
        assert_eq!(shown(&["wan"], false), shown(&[], false));
        assert_eq!(shown(&["a2", "b1"], false), ("wan! .a! ..a2 .b! ..b1".into(), 1));
        assert_eq!(shown(&[], true), ("wan .a ..a1".into(), 3));
        assert_eq!(shown(&["b"], true), (String::new(), 6));
    }
}
