//! What `altq verify` prints: for people, and as `altq.verify/1`.

use std::path::Path;

use altq_control::runs::LinkRuns;
use altq_dataplane::verify::Looked;
use serde::Serialize;

use super::compared::Found;
use crate::output;

/// What is said of a loop that has what it was told.
const TOLD: &str = "what it was told";

/// What was found.
#[derive(Debug)]
pub struct Document {
    /// The file that was compared with; `None`: what was applied last.
    against: Option<String>,
    /// What was looked at of altq as a whole.
    pub checks: Vec<&'static str>,
    /// What differs of altq as a whole.
    pub differs: Vec<Found>,
    /// The links.
    pub links: Vec<Verified>,
    /// What is to be known besides.
    pub notes: Vec<String>,
}

/// What was found of a link.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Verified {
    name: String,
    path: String,
    state: String,
    /// What was looked at.
    pub checks: Vec<&'static str>,
    /// What differs.
    #[serde(rename = "differences")]
    pub differs: Vec<Found>,
    /// What could not be looked at, and why.
    pub unchecked: Vec<Unchecked>,
    /// What is to be known besides.
    pub notes: Vec<String>,
}

/// What could not be looked at.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Unchecked {
    check: &'static str,
    why: String,
}

/// The document.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Json<'a> {
    schema: &'static str,
    same: bool,
    version: &'static str,
    against: Option<&'a str>,
    checks: &'a [&'static str],
    differences: &'a [Found],
    links: &'a [Verified],
    notes: &'a [String],
}

impl Verified {
    /// Nothing yet.
    pub fn new(name: &str, path: &str, state: &str) -> Verified {
        let (name, path, state) = (name.to_owned(), path.to_owned(), state.to_owned());
        let (checks, differs, unchecked, notes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Verified { name, path, state, checks, differs, unchecked, notes }
    }

    /// Adds what was seen on the host.
    pub fn add(&mut self, looked: Looked) {
        let Looked { checks, differences, unchecked } = looked;
        self.checks.extend(checks);
        self.differs.extend(differences.into_iter().map(Found::from));
        self.unchecked.extend(unchecked.into_iter().map(|(check, why)| Unchecked { check, why }));
    }

    /// Adds what the loop of the link has, unless the kernel executes it.
    pub fn add_loop(&mut self, link: &LinkRuns, by_kernel: bool) {
        if by_kernel {
            return;
        }
        self.checks.push("loop");
        let place = format!("loop of {}", link.name);
        let fix = "start altq again (`systemctl restart altq`, or end `altq run` and start it)";
        let one = |line: &String| Found::new("loop", &place, [TOLD.to_owned(), line.clone()], fix);
        self.differs.extend(link.differs.iter().map(one));
        self.unchecked.extend(link.silent.clone().map(|why| Unchecked { check: "loop", why }));
    }

    fn text(&self) -> String {
        let path = if self.path.is_empty() { "no path" } else { self.path.as_str() };
        let found = match self.differs.len() {
            0 => "as asked for".to_owned(),
            1 => "1 difference".to_owned(),
            count => format!("{count} differences"),
        };
        let mut text = format!("link {} ({path}): {found}; looked at: {}\n", self.name, self.checks.join(", "));
        text.extend(self.differs.iter().map(Found::text));
        text.extend(self.unchecked.iter().map(|one| format!("    not looked at: {}: {}\n", one.check, one.why)));
        text.extend(self.notes.iter().map(|note| format!("    {note}\n")));
        text
    }
}

impl Found {
    fn text(&self) -> String {
        let Found { check, place, expected, found, fix } = self;
        let lines = [("expected", expected), ("found", found), ("put right", fix)];
        let shown = lines.map(|(what, said)| format!("        {what:<9}  {said}\n"));
        format!("    {check}: {place}\n{}", shown.concat())
    }
}

impl Document {
    /// Nothing yet. `against` is the file that is compared with, if it is one.
    pub fn new(against: Option<&Path>) -> Document {
        let against = against.map(|path| path.display().to_string());
        let (checks, differs, links, notes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Document { against, checks, differs, links, notes }
    }

    /// The number of differences.
    pub fn count(&self) -> usize {
        self.differs.len() + self.links.iter().map(|link| link.differs.len()).sum::<usize>()
    }

    /// Prints it, as JSON or for people.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print(&self, json: bool) -> anyhow::Result<()> {
        if !json {
            return output::print(&self.text());
        }
        output::print_json(&Json {
            schema: "altq.verify/1",
            same: self.count() == 0 && self.links.iter().all(|link| link.unchecked.is_empty()),
            version: env!("CARGO_PKG_VERSION"),
            against: self.against.as_deref(),
            checks: &self.checks,
            differences: &self.differs,
            links: &self.links,
            notes: &self.notes,
        })
    }

    fn text(&self) -> String {
        let mut text = match self.differs.len() {
            0 => String::new(),
            1 => "altq: 1 difference\n".to_owned(),
            count => format!("altq: {count} differences\n"),
        };
        text.extend(self.differs.iter().map(Found::text));
        text.extend(self.links.iter().map(Verified::text));
        text.extend(self.notes.iter().map(|note| format!("{note}\n")));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Found {
        let said = ["rate 1Mbit/s".to_owned(), "rate 2Mbit/s".to_owned()];
        Found::new("policy", "class voice", said, "altq apply /p.altq")
    }

    #[test]
    fn each_difference_has_what_was_expected_what_is_there_and_a_way_out() {
        let mut document = Document::new(Some(Path::new("/p.altq")));
        document.checks.push("version");
        let mut link = Verified::new("wan", "bridge", "shaping");
        link.checks.extend(["policy", "loop"]);
        assert_eq!(link.text(), "link wan (bridge): as asked for; looked at: policy, loop\n");
        link.differs.push(found());
        document.links.push(link);
        let expected = "link wan (bridge): 1 difference; looked at: policy, loop\n    policy: class voice\n        \
            expected   rate 1Mbit/s\n        found      rate 2Mbit/s\n        put right  altq apply /p.altq\n";
        assert_eq!(document.text(), expected);
        assert_eq!(document.count(), 1);
        document.differs.push(found());
        assert!(document.text().starts_with("altq: 1 difference\n    policy: class voice\n"));
    }

    #[test]
    fn a_loop_that_is_silent_is_not_looked_at() {
        let mut link = Verified::new("wan", "kernel", "kernel");
        let runs = LinkRuns { silent: Some("it sleeps".to_owned()), ..LinkRuns::default() };
        link.add_loop(&runs, true);
        assert!(link.checks.is_empty() && link.unchecked.is_empty());
        link.add_loop(&runs, false);
        assert_eq!(link.text().lines().nth(1), Some("    not looked at: loop: it sleeps"));
        let runs = LinkRuns { differs: vec!["the loop has no class `a`".to_owned()], ..LinkRuns::default() };
        link.add_loop(&runs, false);
        assert_eq!(link.differs[0].found, "the loop has no class `a`");
    }
}
