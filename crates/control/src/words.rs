//! What a subscriber's class gets, as the native language reads it ([`ClassWords`]).

pub use altq_config::scheduler_below;
use altq_config::{ClassWords, Link, Wrong};
use altq_engine::spec::{ClassId, ClassSpec};
use altq_engine::units::Rate;

use crate::fault::Fault;
use crate::request::Gets;

/// Reads the words of subscribers' classes below a certain class of a link.
#[derive(Clone, Debug)]
pub struct Reader(ClassWords);

impl Reader {
    /// A reader for classes below `parent`. Percentages are of `rate`.
    pub fn new(link: &Link, rate: Rate, parent: ClassId) -> Reader {
        Reader(ClassWords::new(link, rate, parent, "subscriber"))
    }

    /// The class of a subscriber, with its queue.
    ///
    /// # Errors
    /// What is wrong with the words, in the messages for policy files.
    pub fn class(&self, parent: ClassId, gets: &Gets) -> Result<ClassSpec, Fault> {
        let made = match gets {
            Gets::Rate(rate) => self.0.words_of(Rate::bit_s(*rate)).and_then(|words| self.0.class(parent, &words)),
            Gets::Words(words) => self.0.class(parent, words),
        };
        made.map_err(fault)
    }
}

fn fault(wrong: Wrong) -> Fault {
    let fault = Fault::usage(wrong.message);
    match wrong.help {
        Some(help) => fault.help(help),
        None => fault,
    }
}

#[cfg(test)]
mod tests {
    use altq_config::{Language, parse_str};
    use altq_engine::schedule;
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
            let made = Reader::new(&link, link.spec.rate, ROOT).class(ROOT, &Gets::Rate(5_000_000)).unwrap();
            let entry = schedule::find(scheduler).unwrap();
            let most = entry.ceiling(&made.settings).map(|(rate, _)| rate);
            assert_eq!(most, Some(Rate::mbit_s(5)), "{scheduler}: {:?}", made.settings);
        }
        let link = link("link l { rate 100Mbit/s  scheduler priq  class all { priority 1 default } }");
        let fault = Reader::new(&link, link.spec.rate, ROOT).class(ROOT, &Gets::Rate(5_000_000)).unwrap_err();
        assert!(fault.to_string().contains("write the class's words instead"), "{fault}");
    }

    #[test]
    fn words_are_those_of_a_policy() {
        let written = "link l { rate 100Mbit/s  scheduler cbq  class a { share 5% borrow ceiling 20Mbit/s
            queue fq_codel { limit 300packets } }  class all { share 10% default } }";
        let link = link(written);
        let text = "share 5% borrow ceiling 20Mbit/s queue fq_codel { limit 300packets }";
        let made = Reader::new(&link, link.spec.rate, ROOT).class(ROOT, &words(text)).unwrap();
        let expected = &link.spec.classes[link.class("a").unwrap() as usize];
        assert_eq!((&made.settings, &made.queue), (&expected.settings, &expected.queue));
        assert_eq!(made.queue.unwrap().limit, Limit::Packets(300));
        // The scheduler's own settings count too: `minburst` exists only with the classic
        // estimator.
        let classic = "link l { rate 100Mbit/s  scheduler cbq { estimator classic }  class all { share 10% default } }";
        let classic = self::link(classic);
        let made = Reader::new(&classic, classic.spec.rate, ROOT).class(ROOT, &words("share 5% minburst 4")).unwrap();
        assert_eq!(made.settings.int("minburst"), Some(4));
    }

    #[test]
    fn words_that_are_none_or_reach_out_are_refused() {
        let link = link("link l { rate 100Mbit/s  scheduler cbq  class all { share 10% default } }");
        let reader = Reader::new(&link, link.spec.rate, ROOT);
        for (text, why) in [
            ("share 5% shares", "`shares`"),
            ("share 5Mbit/s", "a share is a percentage"),
            ("rate 10mbps", "two ways"),
            ("share 5% } class evil { share 5%", "its other one"),
            ("share 5% } } include etc link x { class y { ", "its other one"),
            ("share 5% class inner { share 1% }", "no class, no scheduler"),
            ("share 5% scheduler fifo", ""),
            ("share 5% default", "no default"),
            ("priority 3", "never sends"),
            ("share 0%", "never sends"),
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
