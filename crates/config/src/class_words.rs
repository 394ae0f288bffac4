//! Reads the words of a single class as the native language does.
//!
//! A policy of one link with the scheduler in question is printed, the class is written into it,
//! and the text is read and checked. So words, units, defaults and messages are those of a policy
//! file, whatever the scheduler.

use altq_engine::classify::RuleSet;
use altq_engine::schedule::{self, Role};
use altq_engine::spec::{ClassId, ClassSpec, LinkSpec, Regulator, SchedulerSpec};
use altq_engine::units::Rate;

use crate::diagnostic::Severity;
use crate::language::Language;
use crate::literal::Wrong;
use crate::load::parse_str;
use crate::policy::{Class, Link, Policy};
use crate::print::print;

/// Name of the link in the text that is read; it appears in messages.
const LINK: &str = "link";

/// Reads the words of classes below a certain class of a link.
#[derive(Clone, Debug)]
pub struct ClassWords {
    /// The text before the words.
    before: String,
    scheduler: SchedulerSpec,
    whose: &'static str,
}

impl ClassWords {
    /// A reader for classes below `parent`. Percentages are of `rate`. `whose` is one word that
    /// says in messages what such a class is for, and also its name there.
    pub fn new(link: &Link, rate: Rate, parent: ClassId, whose: &'static str) -> ClassWords {
        let scheduler = scheduler_below(link, parent).clone();
        let spec = LinkSpec {
            rate,
            mtu: link.spec.mtu,
            overhead: link.spec.overhead,
            regulator: Regulator::None,
            timer: link.spec.timer,
            scheduler: scheduler.clone(),
            classes: vec![ClassSpec::root()],
            rules: RuleSet::default(),
            default: None,
        };
        let alone = Link {
            name: LINK.to_owned(),
            device: None,
            written_path: None,
            spec,
            classes: vec![Class { name: LINK.to_owned(), ..Class::default() }],
            rules: Vec::new(),
            // Whether the guarantees of all classes fit is checked elsewhere, where all of them are
            // known.
            overcommit: true,
            adapt: None,
            reservations: None,
            span: link.span,
            notes: Vec::new(),
        };
        let mut before = print(&Policy { links: vec![alone], ..Policy::default() }).text;
        // Removes the closing brace of the link.
        before.truncate(before.rfind('}').unwrap_or(before.len()));
        before.push_str(&format!("class {whose} {{ "));
        ClassWords { before, scheduler, whose }
    }

    /// A class of these words, with its queue.
    ///
    /// # Errors
    /// What is wrong with the words, in the messages for policy files. Words with which the class
    /// would never send are wrong too: nobody would read a warning.
    pub fn class(&self, parent: ClassId, words: &str) -> Result<ClassSpec, Wrong> {
        stays_inside(words)?;
        let text = format!("{}{words} }} }}\n", self.before);
        let policy = parse_str(&text, "the words", Language::Native).map_err(|failed| {
            let first = failed.diagnostics.iter().find(|found| found.severity == Severity::Error);
            Wrong {
                message: match first {
                    Some(found) => format!("`{words}`: {}", found.message),
                    None => format!("`{words}` are no words of a class"),
                },
                help: first.and_then(|found| found.help.clone()),
            }
        })?;
        let found = policy.links.first().filter(|link| policy.links.len() == 1 && link.classes.len() == 2);
        let made = found.and_then(|link| link.spec.classes.get(1)).filter(|class| class.scheduler.is_none());
        let plain = |link: &Link| link.spec.default.is_none() && link.spec.rules.rules.is_empty();
        let Some(made) = made.filter(|_| found.is_some_and(plain)) else {
            let whose = self.whose;
            return Err(plainly(format!(
                "`{words}`: the class of a {whose} has no class, no scheduler and no default"
            )));
        };
        if let Some(never) = policy.warnings.iter().find(|found| found.code == "never-sends") {
            return Err(Wrong { message: format!("`{words}`: {}", never.message), help: never.help.clone() });
        }
        let queue = match (&made.queue, schedule::find(self.scheduler.name)) {
            (None, Some(entry)) => Some((entry.queue)(&self.scheduler.settings, &made.settings)),
            (queue, _) => queue.clone(),
        };
        Ok(ClassSpec { parent, settings: made.settings.clone(), queue, scheduler: None })
    }

    /// The words that guarantee a class this rate and let it have no more.
    ///
    /// # Errors
    /// The scheduler does not know rates.
    pub fn words_of(&self, rate: Rate) -> Result<String, Wrong> {
        let none = || Wrong {
            message: format!("a class of `{}` gets no rate", self.scheduler.name),
            help: Some("write the class's words instead, as in a policy".to_owned()),
        };
        let entry = schedule::find(self.scheduler.name).ok_or_else(none)?;
        let word = |role| entry.word_of(role);
        // In a scheduler without a word that lets a class have more, a class never gets more than
        // its guarantee.
        let bounded = word(Role::Borrow).is_some() || word(Role::CeilingOrGuarantee).is_some();
        let most = word(Role::Shape).or_else(|| word(Role::Ceiling)).filter(|_| !bounded);
        match (word(Role::Guarantee).or_else(|| word(Role::Share)), most) {
            (Some(least), None) if bounded => Ok(format!("{least} {rate}")),
            (Some(least), Some(most)) => Ok(format!("{least} {rate} {most} {rate}")),
            _ => Err(none()),
        }
    }
}

/// The scheduler that serves the classes below a class.
pub fn scheduler_below(link: &Link, parent: ClassId) -> &SchedulerSpec {
    link.spec.scheduler_at(parent).or_else(|| link.spec.serving(parent)).unwrap_or(&link.spec.scheduler)
}

/// Checks that words do not reach beyond the braces of their class, and that they mean the same
/// here as in the link itself.
fn stays_inside(words: &str) -> Result<(), Wrong> {
    let mut depth = 0_i32;
    for c in words.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            c if c.is_ascii_alphanumeric() || " \t%./_-,:".contains(c) => {}
            c => return Err(plainly(format!("the words of a class have no {c:?}"))),
        }
        if depth < 0 {
            break;
        }
    }
    if depth != 0 {
        return Err(plainly(format!("`{words}`: each brace needs its other one")));
    }
    if words.split_whitespace().any(|word| word == "parent") {
        return Err(Wrong {
            message: "a part of the parent is not read here".to_owned(),
            help: Some("write the rate itself, or a part of the link, as 5%".to_owned()),
        });
    }
    Ok(())
}

/// An error that needs no help.
fn plainly(message: String) -> Wrong {
    Wrong { message, help: None }
}
