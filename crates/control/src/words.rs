//! Reads the words of a subscriber's class as the native language does.
//!
//! A policy of one link with the scheduler in question is printed, the class is written into it,
//! and the text is read and checked. So words, units, defaults and messages are those of a policy
//! file, whatever the scheduler.

use altq_config::{Class, Language, Link, Policy, parse_str, print};
use altq_engine::classify::RuleSet;
use altq_engine::schedule::{self, Role};
use altq_engine::spec::{ClassId, ClassSpec, LinkSpec, Regulator, SchedulerSpec};
use altq_engine::units::Rate;

use crate::fault::Fault;
use crate::request::Gets;

/// Names in the text that is read; they appear in messages.
const LINK: &str = "link";
const CLASS: &str = "subscriber";

/// Reads the words of classes below a certain class of a link.
#[derive(Clone, Debug)]
pub struct Reader {
    /// The text before the words.
    before: String,
    scheduler: SchedulerSpec,
}

impl Reader {
    /// A reader for classes below `parent`.
    pub fn new(link: &Link, parent: ClassId) -> Reader {
        let scheduler = scheduler_below(link, parent).clone();
        let spec = LinkSpec {
            rate: link.spec.rate,
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
        before.push_str(&format!("class {CLASS} {{ "));
        Reader { before, scheduler }
    }

    /// The class of a subscriber, with its queue.
    ///
    /// # Errors
    /// What is wrong with the words, in the messages for policy files.
    pub fn class(&self, parent: ClassId, gets: &Gets) -> Result<ClassSpec, Fault> {
        let words = match gets {
            Gets::Rate(rate) => self.words_of(Rate::bit_s(*rate))?,
            Gets::Words(words) => words.clone(),
        };
        stays_inside(&words)?;
        let text = format!("{}{words} }} }}\n", self.before);
        let policy = parse_str(&text, "the words", Language::Native).map_err(|failed| {
            let first = failed.diagnostics.iter().find(|found| found.severity == altq_config::Severity::Error);
            let fault = Fault::usage(match first {
                Some(found) => format!("`{words}`: {}", found.message),
                None => format!("`{words}` are no words of a class"),
            });
            match first.and_then(|found| found.help.clone()) {
                Some(help) => fault.help(help),
                None => fault,
            }
        })?;
        let found = policy.links.first().filter(|link| policy.links.len() == 1 && link.classes.len() == 2);
        let made = found.and_then(|link| link.spec.classes.get(1)).filter(|class| class.scheduler.is_none());
        let plain = |link: &Link| link.spec.default.is_none() && link.spec.rules.rules.is_empty();
        let Some(made) = made.filter(|_| found.is_some_and(plain)) else {
            let message = format!("`{words}`: the class of a subscriber has no class, no scheduler and no default");
            return Err(Fault::usage(message));
        };
        let queue = match (&made.queue, schedule::find(self.scheduler.name)) {
            (None, Some(entry)) => Some((entry.queue)(&self.scheduler.settings, &made.settings)),
            (queue, _) => queue.clone(),
        };
        Ok(ClassSpec { parent, settings: made.settings.clone(), queue, scheduler: None })
    }

    /// The words that guarantee a class this rate and let it have no more.
    fn words_of(&self, rate: Rate) -> Result<String, Fault> {
        let none = || {
            Fault::usage(format!("a class of `{}` gets no rate", self.scheduler.name))
                .help("write the class's words instead, as in a policy")
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
fn stays_inside(words: &str) -> Result<(), Fault> {
    let mut depth = 0_i32;
    for c in words.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            c if c.is_ascii_alphanumeric() || " \t%./_-,:".contains(c) => {}
            c => return Err(Fault::usage(format!("the words of a class have no {c:?}"))),
        }
        if depth < 0 {
            break;
        }
    }
    if depth != 0 {
        return Err(Fault::usage(format!("`{words}`: each brace needs its other one")));
    }
    if words.split_whitespace().any(|word| word == "parent") {
        let fault = Fault::usage("a part of the parent is not read here");
        return Err(fault.help("write the rate itself, or a part of the link, as 5%"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use altq_engine::settings::Limit;
    use altq_engine::spec::ROOT;

    use super::*;

    fn link(text: &str) -> Link {
        let policy = parse_str(text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
        policy.links.into_iter().next().unwrap()
    }

    fn words(text: &str) -> Gets {
        Gets::Words(text.to_owned())
    }

    const LEAVES: [(&str, &str); 4] = [
        ("cbq", "class all { share 10% default }"),
        ("htb", "class all { rate 10Mbit/s default }"),
        ("hfsc", "class all { linkshare 10Mbit/s default }"),
        ("wfq", "class all { bandwidth 10Mbit/s default }"),
    ];

    #[test]
    fn a_rate_is_the_guarantee_and_the_most_under_every_scheduler_that_knows_rates() {
        for (scheduler, leaf) in LEAVES {
            let link = link(&format!("link l {{ rate 100Mbit/s  scheduler {scheduler}  {leaf} }}"));
            let made = Reader::new(&link, ROOT).class(ROOT, &Gets::Rate(5_000_000)).unwrap();
            let entry = schedule::find(scheduler).unwrap();
            let most = entry.ceiling(&made.settings).map(|(rate, _)| rate);
            assert_eq!(most, Some(Rate::mbit_s(5)), "{scheduler}: {:?}", made.settings);
        }
        let link = link("link l { rate 100Mbit/s  scheduler priq  class all { priority 1 default } }");
        let fault = Reader::new(&link, ROOT).class(ROOT, &Gets::Rate(5_000_000)).unwrap_err();
        assert!(fault.to_string().contains("write the class's words instead"), "{fault}");
    }

    #[test]
    fn words_are_those_of_a_policy() {
        let written = "link l { rate 100Mbit/s  scheduler cbq  class a { share 5% borrow ceiling 20Mbit/s
            queue fq_codel { limit 300packets } }  class all { share 10% default } }";
        let link = link(written);
        let text = "share 5% borrow ceiling 20Mbit/s queue fq_codel { limit 300packets }";
        let made = Reader::new(&link, ROOT).class(ROOT, &words(text)).unwrap();
        let expected = &link.spec.classes[link.class("a").unwrap() as usize];
        assert_eq!((&made.settings, &made.queue), (&expected.settings, &expected.queue));
        assert_eq!(made.queue.unwrap().limit, Limit::Packets(300));
        // The scheduler's own settings count too: `minburst` exists only with the classic
        // estimator.
        let classic = "link l { rate 100Mbit/s  scheduler cbq { estimator classic }  class all { share 10% default } }";
        let classic = self::link(classic);
        let made = Reader::new(&classic, ROOT).class(ROOT, &words("share 5% minburst 4")).unwrap();
        assert_eq!(made.settings.int("minburst"), Some(4));
    }

    #[test]
    fn words_that_are_none_or_reach_out_are_refused() {
        let link = link("link l { rate 100Mbit/s  scheduler cbq  class all { share 10% default } }");
        let reader = Reader::new(&link, ROOT);
        for (text, why) in [
            ("share 5% shares", "`shares`"),
            ("share 5Mbit/s", "a share is a percentage"),
            ("rate 10mbps", "two ways"),
            ("share 5% } class evil { share 5%", "its other one"),
            ("share 5% } } include etc link x { class y { ", "its other one"),
            ("share 5% class inner { share 1% }", "no class, no scheduler"),
            ("share 5% scheduler fifo", ""),
            ("share 5% default", "no default"),
            ("share 5% # and so on", "'#'"),
            ("share \"5%\"", "no '\"'"),
            ("share 5%\nborrow", "'\\n'"),
            ("share 5% of parent", "part of the parent"),
        ] {
            let fault = reader.class(ROOT, &words(text)).unwrap_err();
            assert!(fault.to_string().contains(why), "{text}: {fault}");
        }
    }
}
