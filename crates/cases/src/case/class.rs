//! Classes by their names: `work`, or `up/work` where several links have a class `work`.

use altq_config::suggest::nearest;

use super::error::CaseError;
use super::{Case, Column};
use crate::place::Place;

/// A class as a case names it, and where it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassName {
    /// `CLASS`, or `LINK/CLASS`.
    pub text: String,
    /// Where that is written.
    pub place: Place,
}

/// A direction of one of the case's links that a link of the policy governs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Governed<'a> {
    /// The case's link, as a place in [`Case::links`].
    pub link: usize,
    /// It is the direction from the link's `to` to its `from`.
    pub back: bool,
    /// The policy's link.
    pub policy: &'a str,
    /// The name by which results and classes know the direction: the policy's link, if it governs
    /// nothing else; else the case's link, with ` reverse` behind it for the direction back.
    pub name: String,
}

/// The links among whose classes a name is looked up: the name of each, and those of its classes.
pub struct Links<'a> {
    links: Vec<(&'a str, Vec<&'a str>)>,
    /// How an error calls a link of them.
    called: &'static str,
}

impl Case {
    /// The directions that policies govern, link by link, the direction back last.
    pub fn governed(&self) -> Vec<Governed<'_>> {
        let all = || {
            self.links.iter().enumerate().flat_map(|(at, link)| {
                let ways = [(&link.policy, false), (&link.reverse, true)];
                ways.into_iter().filter_map(move |(policy, back)| Some((at, link, policy.as_deref()?, back)))
            })
        };
        let one = |(link, case, policy, back): (usize, &super::CaseLink, _, bool)| {
            let name = match all().filter(|(_, _, other, _)| *other == policy).count() {
                1 => String::from(policy),
                _ if back => format!("{} reverse", case.name),
                _ => case.name.clone(),
            };
            Governed { link, back, policy, name }
        };
        all().map(one).collect()
    }

    /// An error about a class that the case names, in one of its columns.
    pub fn wrong(&self, column: &Column, class: &ClassName, message: &str) -> CaseError {
        let names = [("row", self.row.as_deref()), ("column", column.name.as_deref())];
        let whose = names.into_iter().filter_map(|(word, name)| Some(format!("{word} {}", name?)));
        let whose = whose.collect::<Vec<_>>().join(", ");
        let message = if whose.is_empty() { message.to_owned() } else { format!("{whose}: {message}") };
        CaseError { path: self.path.clone(), place: Some(class.place.clone()), message }
    }
}

impl<'a> Links<'a> {
    /// These links: the name of each, and the names of its classes.
    pub fn new(links: Vec<(&'a str, Vec<&'a str>)>) -> Links<'a> {
        Links { links, called: "link of the case" }
    }

    /// The links that a flow passes.
    pub fn of_a_flow(self) -> Links<'a> {
        Links { called: "link that the flow passes", ..self }
    }

    /// What a name means: the place of the link, and that of the class in it.
    ///
    /// # Errors
    /// If no class is called so, with the nearest name; if several are, with all that can be meant.
    pub fn find(&self, written: &str) -> Result<(usize, usize), String> {
        let with_link = written.split_once('/').and_then(|(link, class)| self.of(self.link(link)?, class));
        if let Some(found) = with_link {
            return Ok(found);
        }
        let all: Vec<(usize, usize)> = (0..self.links.len()).filter_map(|link| self.of(link, written)).collect();
        match all.as_slice() {
            [one] => Ok(*one),
            [] => Err(self.unknown(written)),
            several => Err(two_ways(written, several.iter().map(|(link, _)| self.full(*link, written)))),
        }
    }

    /// The link in which a class that is not there yet is to be made, and the name of the class in
    /// it.
    ///
    /// # Errors
    /// If the name does not say which of several links is meant.
    pub fn place_of_new<'n>(&self, written: &'n str) -> Result<(usize, &'n str), String> {
        if let Some((link, class)) = written.split_once('/')
            && let Some(link) = self.link(link)
        {
            return Ok((link, class));
        }
        match self.links.len() {
            0 => Err("no link of the case has a policy".into()),
            1 => Ok((0, written)),
            links => Err(two_ways(written, (0..links).map(|link| self.full(link, written)))),
        }
    }

    /// The name in its link of a class that must be of this link.
    ///
    /// # Errors
    /// If the link has no such class, with the nearest name.
    pub fn within<'n>(&self, link: usize, written: &'n str) -> Result<&'n str, String> {
        let (name, classes) = self.links.get(link).map_or(("", &[][..]), |(name, classes)| (*name, classes.as_slice()));
        let bare = written.strip_prefix(name).and_then(|rest| rest.strip_prefix('/')).unwrap_or(written);
        match [bare, written].into_iter().find(|word| classes.contains(word)) {
            Some(class) => Ok(class),
            None => {
                let own = bare.rsplit('/').next().unwrap_or(bare);
                let hint = nearest(own, classes.iter().copied());
                let hint = hint.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
                Err(format!("link {name} has no class {written:?}{hint}"))
            }
        }
    }

    /// The name by which a class is known: its own, behind its link's where several links have a
    /// class of that name.
    pub fn written(&self, link: usize, class: &str) -> String {
        match self.links.iter().filter(|(_, classes)| classes.contains(&class)).count() {
            0 | 1 => class.to_owned(),
            _ => self.full(link, class),
        }
    }

    /// The name of a link, by its place.
    pub fn link_name(&self, link: usize) -> &'a str {
        self.links.get(link).map_or("", |(name, _)| name)
    }

    /// The own name of a class that was [found](Links::find).
    pub fn class(&self, (link, class): (usize, usize)) -> &'a str {
        self.links.get(link).and_then(|(_, classes)| classes.get(class)).copied().unwrap_or("")
    }

    fn link(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|(own, _)| *own == name)
    }

    fn of(&self, link: usize, class: &str) -> Option<(usize, usize)> {
        Some((link, self.links.get(link)?.1.iter().position(|own| *own == class)?))
    }

    fn full(&self, link: usize, class: &str) -> String {
        self.links.get(link).map_or(class.to_owned(), |(name, _)| full_name(name, class))
    }

    fn unknown(&self, written: &str) -> String {
        let known = self.links.iter().enumerate().flat_map(|(at, (_, classes))| {
            classes.iter().map(move |class| if written.contains('/') { self.full(at, class) } else { (*class).into() })
        });
        let known: Vec<String> = known.collect();
        let near = nearest(written, known.iter().map(String::as_str));
        // The nearest name may be that of several classes.
        let near = near.map(|near| match self.find(near) {
            Ok((link, _)) => {
                format!("; did you mean {:?}?", self.written(link, near.rsplit('/').next().unwrap_or(near)))
            }
            Err(message) => {
                format!("; {}", message.split_once(": ").map_or(message.as_str(), |(_, readings)| readings))
            }
        });
        format!("no {} has a class {written:?}{}", self.called, near.unwrap_or_default())
    }
}

/// `LINK/CLASS`.
pub fn full_name(link: &str, class: &str) -> String {
    format!("{link}/{class}")
}

/// The message for a name that several classes have.
fn two_ways(written: &str, readings: impl Iterator<Item = String>) -> String {
    let readings: Vec<String> = readings.map(|reading| format!("{reading:?}")).collect();
    let ways = if readings.len() == 2 { "two".into() } else { readings.len().to_string() };
    let last = readings.last().map_or("", String::as_str);
    let first = readings.get(..readings.len().saturating_sub(1)).unwrap_or_default().join(", ");
    format!("class {written:?} can be read in {ways} ways: did you mean {first} or {last}?")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> Links<'static> {
        Links::new(vec![("up", vec!["up", "work", "voice", "old"]), ("down", vec!["down", "work", "voice", "kids"])])
    }

    #[test]
    fn names_with_and_without_their_link() {
        let links = home();
        assert_eq!(links.find("up/work"), Ok((0, 1)));
        assert_eq!(links.find("down/work"), Ok((1, 1)));
        // Only one link has such a class: its own name is enough.
        assert_eq!(links.find("kids"), Ok((1, 3)));
        assert_eq!(links.find("up"), Ok((0, 0)));
        assert_eq!([links.written(1, "work"), links.written(1, "kids")], ["down/work", "kids"]);
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_said_with_both() {
        let links = home();
        let both = "class \"work\" can be read in two ways: did you mean \"up/work\" or \"down/work\"?";
        assert_eq!(links.find("work"), Err(both.into()));
        let three = Links::new(vec![("a", vec!["x"]), ("b", vec!["x"]), ("c", vec!["x"])]);
        let all = "class \"x\" can be read in 3 ways: did you mean \"a/x\", \"b/x\" or \"c/x\"?";
        assert_eq!(three.find("x"), Err(all.into()));
        let new = "class \"new\" can be read in two ways: did you mean \"up/new\" or \"down/new\"?";
        assert_eq!(links.place_of_new("new"), Err(new.into()));
        assert_eq!(links.place_of_new("down/new"), Ok((1, "new")));
    }

    #[test]
    fn what_is_not_there_is_said_with_the_nearest() {
        let links = home();
        for (written, hint) in [
            ("kid", "; did you mean \"kids\"?"),
            ("up/wrk", "; did you mean \"up/work\"?"),
            ("wrk", "; did you mean \"up/work\" or \"down/work\"?"),
            ("quite another", ""),
        ] {
            assert_eq!(links.find(written), Err(format!("no link of the case has a class {written:?}{hint}")));
        }
        assert_eq!(links.within(0, "up/old"), Ok("old"));
        assert_eq!(links.within(0, "old"), Ok("old"));
        assert_eq!(links.within(1, "old"), Err("link down has no class \"old\"".into()));
        assert_eq!(
            links.within(1, "up/work"),
            Err("link down has no class \"up/work\"; did you mean \"work\"?".into())
        );
    }
}
