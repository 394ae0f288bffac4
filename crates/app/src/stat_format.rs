//! `--stat FORMAT`: counters as other tools print them.

use altq_cases::stat::LinkStat;
use altq_pages::stat::{altqstat, tc};

/// The most classes of which a legend has the numbers; the others are numbered on in the policy's
/// order.
const LISTED: usize = 8;

/// The tool whose form is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// As `tc -s qdisc` and `tc -s class` print them
    Tc,
    /// The same, with the names of classes, as `tc -nm` prints them
    TcNames,
    /// As ALTQ's altqstat prints them
    Altqstat,
    /// As ALTQ's tbrconfig prints the token bucket regulator
    Tbrconfig,
}

impl Format {
    /// A link's counters as text in this format.
    pub fn text(self, link: &LinkStat) -> String {
        match self {
            Format::Tc => tc::print(link, false),
            Format::TcNames => tc::print(link, true),
            Format::Altqstat => altqstat::print(link),
            Format::Tbrconfig => altqstat::tbrconfig(link),
        }
    }

    /// What the numbers of classes mean that the text has and the policy has not; `None` if the
    /// text has names.
    pub fn legend(self, link: &LinkStat) -> Option<String> {
        if self != Format::Tc {
            return None;
        }
        let all = link.classes.len();
        let name = |at: usize| format!("1:{:x} is {}", at + 1, link.classes[at].name);
        let shown: Vec<String> = (0..all.min(LISTED)).map(name).collect();
        let more = if all > LISTED { format!(", and so on up to 1:{all:x}") } else { String::new() };
        Some(format!("in tc's numbers {}{more}; `--stat tc-names` prints the names", shown.join(", ")))
    }
}
