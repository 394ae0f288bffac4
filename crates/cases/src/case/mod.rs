//! Case files: one experiment, its topology, policy, traffic and what must come out. The same file
//! runs in virtual time (`altq sim`) and in network namespaces (`altq lab`). docs/cases.md
//! describes every key.
//!
//! ```text
//!  what a case is     topology, traffic, column, event, measure, table, class
//!  what is written    raw: every key          template: `${x}`    outside: values from outside
//!  what reads it      file: a table's runs    check: one run, by links, flows, events, trace,
//!                                               expect
//!                     comparisons: several rows or columns together
//!  what they share    words: names, units     wrong, error: what is wrong, and where
//! ```

mod check;
mod class;
mod column;
mod comparisons;
mod error;
mod event;
mod events;
mod expect;
mod file;
mod flows;
mod links;
mod measure;
mod outside;
mod raw;
mod table;
mod template;
mod topology;
mod trace;
mod traffic;
mod words;
mod wrong;

use std::path::PathBuf;

use altq_engine::units::Nanos;
pub use class::{ClassName, Governed, Links, full_name};
pub use column::{Column, Controls, Only, PolicyError, PolicySource};
pub use error::CaseError;
pub use event::{ClassChange, TimedEvent, What, WordValue};
pub use file::{CaseFile, Run};
pub use measure::{Bound, CounterName, Expectation, Figure, Figured, Measure, Probe, Shown, Subject, UNITS, Unit};
pub use outside::Given;
pub use table::{Comparison, Judged, NotReproduced, Published, Row};
pub use template::Values;
pub use topology::{CaseLink, Host, Loss, Medium, Tunnel, Way};
pub use traffic::{Flow, Kind, Pace, Shape, Spans, Stack, Tcp, Udp};

use crate::world::World;

/// A checked case. The hosts, links and flows that it names exist. Names of classes are checked
/// later, when its policy is read.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name: letters, digits, `-`, `_`, `.`, `/`.
    pub name: String,
    /// What it shows.
    pub description: String,
    /// Seed of every random choice, unless another one is given on the command line.
    pub seed: u64,
    /// How long traffic runs.
    pub duration: Nanos,
    /// Where nothing else is said, measurement begins at this time.
    pub warmup: Nanos,
    /// True if hosts in the lab send super-packets, as network cards with segmentation offload
    /// allow it.
    pub offload: bool,
    /// Hosts and routers.
    pub hosts: Vec<Host>,
    /// Links between them, full duplex.
    pub links: Vec<CaseLink>,
    /// The only world in which it makes sense; `None`: both.
    pub only: Option<Only>,
    /// True if it asks more of the host than the host can do. What the lab then loses or does late
    /// does not make a result invalid.
    pub overload: bool,
    /// How often the lab runs each row and column, in turns, of which it takes the medians.
    pub turns: u32,
    /// The policies to run it with, at least one.
    pub columns: Vec<Column>,
    /// The traffic.
    pub flows: Vec<Flow>,
    /// The files of its links' traces, whose steps are among `events`; relative to `folder`.
    pub traces: Vec<PathBuf>,
    /// The changes during the run, by time.
    pub events: Vec<TimedEvent>,
    /// The figures that must come out.
    pub expectations: Vec<Expectation>,
    /// The figures that are measured in every row.
    pub figures: Vec<Figure>,
    /// The name of its row in the file; `None` without rows.
    pub row: Option<String>,
    /// The file, as messages call it.
    pub path: PathBuf,
    /// The file's folder, in which other files are looked for.
    pub folder: PathBuf,
}

/// The most hosts of a case in the lab.
const MOST_IN_LAB: usize = 250;
const TOO_MANY_FOR_LAB: &str = "the lab makes a network namespace for each host, for 250 hosts at most";

impl Case {
    /// Why a column of it does not make sense in a world; `None` if it does.
    pub fn elsewhere<'a>(&'a self, column: &'a Column, world: World) -> Option<&'a str> {
        let only = [&column.only, &self.only].into_iter().flatten().find(|only| only.world != world);
        let many = || (world == World::Lab && self.hosts.len() > MOST_IN_LAB).then_some(TOO_MANY_FOR_LAB);
        only.map(|only| only.reason.as_str()).or_else(many)
    }

    /// All probes of its expectations and figures.
    pub fn probes(&self) -> impl Iterator<Item = (&str, &Probe)> {
        let expectations = self.expectations.iter().map(|e| (e.name.as_str(), &e.probe));
        expectations.chain(self.figures.iter().filter_map(|f| f.probe().map(|p| (f.name.as_str(), p))))
    }

    /// The index of the host with this name.
    pub fn host(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.name == name)
    }

    /// The name of an expectation in results: the name alone, or `CASE/COLUMN/ROW/NAME` without the
    /// parts that the case does not have.
    pub fn expectation_name(&self, column: &Column, name: &str) -> String {
        if column.name.is_none() && self.row.is_none() {
            return name.to_string();
        }
        let parts = [
            Some(self.name.as_str()),
            column.name.as_deref(),
            self.row.as_deref(),
            Some(name).filter(|n| !n.is_empty()),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("/")
    }
}
