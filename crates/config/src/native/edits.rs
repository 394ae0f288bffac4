//! Changes one thing in the text of a policy, and leaves all other bytes as they are: comments,
//! blank lines, the order of words.
//!
//! The text is split into words and groups as the reader does, and the change is made at the places
//! that these have. What comes out is read as any other policy, so a wrong word is found there.

use altq_engine::schedule::Entry;

use super::class::class_words;
use super::token::{self, Tree, What};
use crate::diagnostic::{Findings, SourceId, short};
use crate::language::Language;
use crate::literal::Wrong;
use crate::load::parse_str;
use crate::policy::Link;

/// One change of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Gives a class these words. Words of the same name are replaced, others stay; `no WORD` takes
    /// a word away.
    SetClass {
        /// The class.
        class: String,
        /// The words, as in a policy.
        words: String,
    },
    /// A new class, behind the others of its parent.
    AddClass {
        /// Its name.
        class: String,
        /// The class above; `None`: the link.
        below: Option<String>,
        /// Its words.
        words: String,
    },
    /// Takes a class away that has no class below it.
    RemoveClass {
        /// The class.
        class: String,
    },
    /// A new rule: before all others, or behind them.
    AddRule {
        /// The rule without the word `match`.
        rule: String,
        /// True if it goes behind the others.
        last: bool,
    },
    /// Takes a rule away.
    RemoveRule {
        /// The rule without the word `match`.
        rule: String,
    },
}

/// The text with one change in a link. It is not checked yet.
///
/// # Errors
/// There is no such link, class or rule, or the words cannot stand there.
///
/// ```
/// use altq_config::{Edit, edit};
///
/// let text = "link wan { rate 10Mbit/s  scheduler cbq  # the line
///     class a { share 5%  borrow }
/// }";
/// let set = Edit::SetClass { class: "a".into(), words: "share 7%".into() };
/// let changed = edit(text, "wan", &set).unwrap();
/// assert_eq!(changed, text.replace("5%", "7%"));
/// ```
pub fn edit(text: &str, link: &str, edit: &Edit) -> Result<String, Wrong> {
    let read = |class: &str| {
        let policy = parse_str(text, "the policy", Language::Native).map_err(|failed| wrong(failed.to_string()))?;
        let link = policy.link(link).ok_or_else(|| wrong(format!("the policy has no link `{link}`")))?;
        known_words(link, class)
    };
    edited(text, link, edit, read)
}

/// As [`edit`], for a caller who has read the text before: `link` is the link in it. That takes a
/// fraction of the time where the text is long.
///
/// # Errors
/// As [`edit`].
pub fn edit_of(text: &str, link: &Link, edit: &Edit) -> Result<String, Wrong> {
    edited(text, &link.name, edit, |class| known_words(link, class))
}

fn edited(
    text: &str,
    link: &str,
    edit: &Edit,
    known_words: impl FnOnce(&str) -> Result<Vec<&'static str>, Wrong>,
) -> Result<String, Wrong> {
    let trees = split(text)?;
    let source = Source { text };
    let Some(whole) = source.named(&trees, "link", link) else {
        return Err(wrong(format!("the policy has no link `{link}`")));
    };
    let cut = match edit {
        Edit::SetClass { class, words } => {
            let found = source.class(whole.inside, class, link)?;
            let known = known_words(class)?;
            set(&source, &found, words, &known)?
        }
        Edit::AddClass { class, below, words } => {
            if source.find(whole.inside, class).is_some() {
                return Err(wrong(format!("the link `{link}` has a class `{class}`")));
            }
            stays_inside(words)?;
            let parent = match below {
                Some(below) => source.class(whole.inside, below, link)?,
                None => whole,
            };
            let words = words.trim();
            let space = if words.is_empty() { "" } else { " " };
            vec![source.append(&parent, "class", &format!("class {class} {{{space}{words} }}"))]
        }
        Edit::RemoveClass { class } => {
            let found = source.class(whole.inside, class, link)?;
            if source.children(found.inside).next().is_some() {
                let error = wrong(format!("`{class}` has classes below it"));
                return Err(Wrong { help: Some("remove those first".to_owned()), ..error });
            }
            vec![source.without(found.start, found.end)]
        }
        Edit::AddRule { rule, last } => {
            let rule = format!("match {}", rule_of(rule)?);
            let rules = source.rules(whole.inside);
            match rules.first() {
                Some((start, _)) if !last => {
                    let own = source.line_of(*start);
                    let between =
                        own.map_or_else(|| "  ".to_owned(), |blanks| format!("{}{blanks}", source.line_end()));
                    vec![Cut { from: *start, to: *start, put: format!("{rule}{between}") }]
                }
                _ => vec![source.append(&whole, "match", &rule)],
            }
        }
        Edit::RemoveRule { rule } => {
            let asked = normal(&rule_of(rule)?);
            let rules = source.rules(whole.inside);
            let found = rules.iter().find(|(start, end)| {
                let written = text.get(*start..*end).unwrap_or_default();
                normal(written.strip_prefix("match").unwrap_or(written)) == asked
            });
            let Some((start, end)) = found else {
                let error = wrong(format!("the link `{link}` has no rule `match {asked}`"));
                return Err(Wrong { help: Some("write it as it stands in the policy".to_owned()), ..error });
            };
            vec![source.without(*start, *end)]
        }
    };
    Ok(apply(text, cut))
}

fn wrong(message: impl Into<String>) -> Wrong {
    Wrong { message: message.into(), help: None }
}

/// Splits a text; an error if braces do not match.
fn split(text: &str) -> Result<Vec<Tree>, Wrong> {
    let mut findings = Findings::default();
    let trees = token::read(text, SourceId(0), &mut findings);
    match findings.into_list().into_iter().find(|found| found.severity == crate::Severity::Error) {
        Some(error) => Err(Wrong { message: error.message, help: error.help }),
        None => Ok(trees),
    }
}

/// Checks that words cannot reach beyond the braces of their class.
fn stays_inside(words: &str) -> Result<Vec<Tree>, Wrong> {
    if let Some(c) = words.chars().find(|c| *c == '#' || c.is_control()) {
        return Err(wrong(format!("words of a policy are one line, without {c:?}")));
    }
    split(words)
}

/// A rule without the word `match`.
fn rule_of(rule: &str) -> Result<String, Wrong> {
    let rule = rule.trim();
    let rule = rule.strip_prefix("match ").unwrap_or(rule).trim();
    let trees = stays_inside(rule)?;
    let arrows = trees.iter().filter(|tree| matches!(tree.what, What::Arrow)).count();
    let ends = matches!(trees.as_slice(), [.., Tree { what: What::Arrow, .. }, Tree { what: What::Word, .. }]);
    let group = trees.iter().any(|tree| matches!(tree.what, What::Group { .. }));
    if arrows != 1 || !ends || group {
        let error = wrong(format!("`{}` is no rule", short(rule)));
        return Err(Wrong { help: Some("as `dport 80,443 -> web`".to_owned()), ..error });
    }
    Ok(rule.to_owned())
}

/// The words of a rule, with one blank between them.
fn normal(rule: &str) -> String {
    let Ok(trees) = split(rule) else { return rule.to_owned() };
    let words = trees.iter().map(|tree| rule.get(tree.span.start..tree.span.end).unwrap_or_default());
    words.collect::<Vec<&str>>().join(" ")
}

/// The words that a class may have, by the scheduler that serves it.
fn known_words(link: &Link, class: &str) -> Result<Vec<&'static str>, Wrong> {
    let entry: Option<&'static Entry> = link.class(class).and_then(|class| link.entry_of(class));
    entry.map(class_words).ok_or_else(|| wrong(format!("no scheduler serves `{class}`")))
}

/// A part of the text that is replaced.
struct Cut {
    from: usize,
    to: usize,
    put: String,
}

fn apply(text: &str, mut cuts: Vec<Cut>) -> String {
    cuts.sort_by_key(|cut| (cut.from, cut.to));
    let (mut out, mut at) = (String::with_capacity(text.len() + 100), 0);
    for cut in cuts {
        out.push_str(text.get(at..cut.from).unwrap_or_default());
        out.push_str(&cut.put);
        at = cut.to.max(at);
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
}

/// A `link` or a `class`, from its first word to its last brace.
#[derive(Clone, Copy)]
struct Named<'t> {
    start: usize,
    /// The opening brace.
    open: usize,
    inside: &'t [Tree],
    /// The closing brace, and the byte behind it.
    close: usize,
    end: usize,
}

struct Source<'a> {
    text: &'a str,
}

impl Source<'_> {
    fn slice(&self, tree: &Tree) -> &str {
        self.text.get(tree.span.start..tree.span.end).unwrap_or_default()
    }

    /// What stands behind a word at a place: a name and a group.
    fn at<'t>(&self, trees: &'t [Tree], at: usize, word: &str) -> Option<(&'t Tree, Named<'t>)> {
        let [first, name, Tree { what: What::Group { inside, close }, span, .. }] = trees.get(at..at + 3)? else {
            return None;
        };
        let is = matches!(first.what, What::Word) && self.slice(first) == word;
        let (open, close, end) = (span.start, close.start, close.end);
        is.then_some((name, Named { start: first.span.start, open, inside, close, end }))
    }

    fn named<'t>(&self, trees: &'t [Tree], word: &str, name: &str) -> Option<Named<'t>> {
        let all = (0..trees.len()).filter_map(|at| self.at(trees, at, word));
        all.into_iter().find(|(tree, _)| self.slice(tree) == name).map(|(_, found)| found)
    }

    /// The classes that stand in a link or a class.
    fn children<'t>(&self, trees: &'t [Tree]) -> impl Iterator<Item = (&'t Tree, Named<'t>)> {
        (0..trees.len()).filter_map(move |at| self.at(trees, at, "class"))
    }

    /// A class at any depth. Braces are not deep, so this may call itself.
    fn find<'t>(&self, trees: &'t [Tree], name: &str) -> Option<Named<'t>> {
        self.children(trees).find_map(|(tree, found)| {
            if self.slice(tree) == name { Some(found) } else { self.find(found.inside, name) }
        })
    }

    fn class<'t>(&self, trees: &'t [Tree], name: &str, link: &str) -> Result<Named<'t>, Wrong> {
        self.find(trees, name).ok_or_else(|| {
            let error = wrong(format!("the policy's link `{link}` has no class `{name}`"));
            Wrong { help: Some("`altq save -` prints the policy that runs".to_owned()), ..error }
        })
    }

    /// The rules of a link: from `match` to the class behind the arrow.
    fn rules(&self, trees: &[Tree]) -> Vec<(usize, usize)> {
        let (mut rules, mut open) = (Vec::new(), None);
        for (at, tree) in trees.iter().enumerate() {
            match tree.what {
                What::Word if self.slice(tree) == "match" && open.is_none() => open = Some(tree.span.start),
                What::Arrow => {
                    if let (Some(start), Some(target)) = (open.take(), trees.get(at + 1)) {
                        rules.push((start, target.span.end));
                    }
                }
                _ => {}
            }
        }
        rules
    }

    /// The blanks before a place, if it is the first of its line.
    fn line_of(&self, at: usize) -> Option<&str> {
        let start = self.text.get(..at)?.rfind('\n').map_or(0, |newline| newline + 1);
        self.text.get(start..at).filter(|before| before.chars().all(|c| c == ' ' || c == '\t'))
    }

    /// What ends the lines of the text.
    fn line_end(&self) -> &'static str {
        if self.text.contains("\r\n") { "\r\n" } else { "\n" }
    }

    /// The end of the line, if nothing but a comment stands behind a place.
    fn rest_of_line(&self, at: usize) -> Option<usize> {
        let rest = self.text.get(at..)?;
        let line = rest.get(..rest.find('\n').unwrap_or(rest.len()))?;
        let line = line.strip_suffix('\r').unwrap_or(line);
        let behind = line.trim();
        (behind.is_empty() || behind.starts_with('#')).then_some(at + line.len())
    }

    /// Puts a statement behind the last one of its kind in a group, or behind the last class, or at
    /// the end of the group.
    fn append(&self, group: &Named<'_>, kind: &str, statement: &str) -> Cut {
        let put = |at: usize, put: String| Cut { from: at, to: at, put };
        let rules = if kind == "match" { self.rules(group.inside) } else { Vec::new() };
        let class = self.children(group.inside).last().map(|(_, class)| (class.start, class.end));
        if let Some((start, end)) = rules.last().copied().or(class) {
            return match (self.line_of(start), self.rest_of_line(end)) {
                (Some(blanks), Some(line_end)) => put(line_end, format!("{}{blanks}{statement}", self.line_end())),
                _ => put(end, format!("  {statement}")),
            };
        }
        match self.line_of(group.close) {
            Some(blanks) => put(group.close - blanks.len(), format!("{blanks}    {statement}{}", self.line_end())),
            None => {
                // What stands before the brace ends with a blank, or with the opening brace.
                let before = self.text.get(..group.close).unwrap_or_default();
                let space = if before.ends_with([' ', '\t']) { "" } else { " " };
                put(group.close, format!("{space}{statement} "))
            }
        }
    }

    /// Takes a statement out, with its line if nothing else stands there.
    fn without(&self, start: usize, end: usize) -> Cut {
        let (from, to) = match (self.line_of(start), self.rest_of_line(end)) {
            (Some(blanks), Some(line_end)) => {
                let rest = self.text.get(line_end..).unwrap_or_default();
                let newline = if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with('\n')) };
                (start - blanks.len(), line_end + newline)
            }
            _ => (start - self.blanks_before(start), end),
        };
        Cut { from, to, put: String::new() }
    }

    fn blanks_before(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or_default();
        before.len() - before.trim_end_matches([' ', '\t']).len()
    }
}

/// A word of a class with its value.
struct Statement {
    /// What it says: `share` says the same as `rate`.
    slot: String,
    start: usize,
    end: usize,
    /// True if it takes a word away.
    no: bool,
}

/// The words in the braces of a class. Those of classes in it are left out.
fn statements(source: &Source<'_>, trees: &[Tree], known: &[&'static str]) -> Result<Vec<Statement>, Wrong> {
    let text = |at: usize| trees.get(at).filter(|tree| matches!(tree.what, What::Word)).map(|tree| source.slice(tree));
    let pair = |first: &str, second: &str| {
        known.iter().find(|word| word.split_once(' ') == Some((first, second))).map(|word| (*word).to_owned())
    };
    let (mut found, mut at, mut before): (Vec<Statement>, usize, String) = (Vec::new(), 0, String::new());
    let mut no = None;
    while let Some(tree) = trees.get(at) {
        let end = match &tree.what {
            What::Group { close, .. } => close.end,
            // The span of a text is that of its inside.
            What::Text => tree.span.end + 1,
            _ => tree.span.end,
        };
        let Some(word) = text(at) else {
            match found.last_mut() {
                Some(last) => last.end = end,
                None => return Err(wrong(format!("`{}` belongs to no word", short(source.slice(tree))))),
            }
            at += 1;
            continue;
        };
        if source.at(trees, at, "class").is_some() {
            before.clear();
            at += 3;
            continue;
        }
        let next = text(at + 1).unwrap_or_default();
        // As the reader of classes does: some names of words are two words.
        let (slot, words) = match pair(word, next) {
            Some(slot) => (Some(slot), 2),
            None if word == "no" && known.contains(&next) => {
                no = Some(tree.span.start);
                at += 1;
                continue;
            }
            None if known.contains(&word) => (Some(word.to_owned()), 1),
            None => (pair(&before, word), 1),
        };
        match (slot, found.last_mut()) {
            (Some(slot), _) => {
                before = slot.split(' ').next().unwrap_or_default().to_owned();
                let slot = if slot == "share" { "rate".to_owned() } else { slot };
                let last = trees.get(at + words - 1).map_or(end, |tree| tree.span.end);
                let start = no.unwrap_or(tree.span.start);
                found.push(Statement { slot, start, end: last, no: no.take().is_some() });
            }
            (None, Some(last)) => last.end = end,
            (None, None) => return Err(wrong(format!("a class does not know `{}`", short(word)))),
        }
        at += words;
    }
    Ok(found)
}

/// Gives a class other words.
fn set(source: &Source<'_>, class: &Named<'_>, words: &str, known: &[&'static str]) -> Result<Vec<Cut>, Wrong> {
    let trees = stays_inside(words)?;
    let given = Source { text: words };
    let new = statements(&given, &trees, known)?;
    if new.is_empty() {
        return Err(wrong("there are no words that the class is to have"));
    }
    if trees.iter().any(|tree| matches!(tree.what, What::Word) && given.slice(tree) == "class") {
        let error = wrong("a class is no word of a class");
        return Err(Wrong { help: Some("`altq class add` makes one".to_owned()), ..error });
    }
    let there = statements(source, class.inside, known)?;
    let (mut cuts, mut more) = (Vec::new(), String::new());
    // Words that stand no longer where others could be put behind them.
    let mut gone: Vec<&str> = Vec::new();
    for statement in new {
        let put = words.get(statement.start..statement.end).unwrap_or_default().to_owned();
        let old = there.iter().find(|old| old.slot == statement.slot);
        match (old, statement.no) {
            (Some(old), true) => {
                gone.push(&old.slot);
                cuts.push(source.without(old.start, old.end));
            }
            (Some(old), false) => cuts.push(Cut { from: old.start, to: old.end, put }),
            (None, true) => return Err(wrong(format!("the class has no `{}`", statement.slot))),
            (None, false) => more += &format!("  {put}"),
        }
    }
    if !more.is_empty() {
        let cut = match there.iter().rev().find(|old| !gone.contains(&old.slot.as_str())) {
            Some(last) => Cut { from: last.end, to: last.end, put: more },
            None => Cut { from: class.open + 1, to: class.open + 1, put: more.replacen("  ", " ", 1) },
        };
        cuts.push(cut);
    }
    Ok(cuts)
}
