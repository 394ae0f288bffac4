//! `--stat FORMAT`: counters as other tools print them.

use altq_cases::stat::LinkStat;
use altq_pages::stat::{altqstat, tc};

/// Whose form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// `tc -s qdisc` and `tc -s class`
    Tc,
    /// The same with the names of classes, as `tc -nm`
    TcNames,
    /// ALTQ's altqstat
    Altqstat,
    /// ALTQ's tbrconfig: the regulator
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
