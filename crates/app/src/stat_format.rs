//! `--stat FORMAT`: counters as other tools print them.

use altq_cases::stat::LinkStat;
use altq_pages::stat::{altqstat, tc};

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
}
