//! The lab: a case with the kernel's own TCP, in network namespaces of its own.
//!
//! ```text
//!  topology    namespaces and wires
//!  generator   kernel TCP and UDP, threads in the namespaces
//!  shaper      altq between the wires          path        what lies before and behind its queue
//!  peer        the kernel's own bridge and HTB instead
//!  kernel_htb  a policy of htb in tc's words
//!  file        a case file's runs in order     prepared    a column, checked and ready
//!  run         one run of it                   trust       why its figures cannot be trusted
//!  need        what may run beside it          parts       runs of a file one by one, in any order
//!  measure     readings in time                figures     from readings to rows and expectations
//!  series      a run over time, for plots      engine      what the engine takes, without traffic
//! ```

mod distant;
mod engine;
mod figures;
mod file;
pub mod generator;
mod host;
mod kernel_htb;
mod lower;
pub mod made;
mod measure;
mod need;
mod parts;
mod path;
mod peer;
mod prepared;
mod run;
mod series;
mod shaper;
pub mod side_by_side;
pub mod topology;
mod trust;
mod tunnel;

use altq_cases::case::Case;
use altq_cases::result::{CaseResult, World};
use altq_cases::series::BINS;
use altq_cases::table;

pub use file::{LeftOut, retain_possible, run_file};
pub use lower::Options;
pub use need::Need;
pub use parts::{Part, assemble};
use prepared::Prepared;

/// Of links with more classes than this only those that had packets have rows.
const MANY: usize = 1000;

/// A policy that a case names cannot be used; the diagnostics are what to print.
#[derive(Debug)]
pub struct BadPolicy(pub Box<altq_config::Failed>);

impl std::fmt::Display for BadPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for BadPolicy {}

/// A case that names what its policy does not have.
#[derive(Debug)]
pub struct BadCase(pub String);

impl std::fmt::Display for BadCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadCase {}

/// Runs a case, and after it the same traffic through kernel HTB (see `kernel_htb` for policies of
/// htb) where `peer` asks for it or an expectation speaks of it.
///
/// # Errors
/// [`topology::Unsupported`] for what this host or the lab cannot do; [`BadPolicy`] and [`BadCase`]
/// before anything is started.
pub fn run_case(case: &Case, options: &Options, peer: bool) -> anyhow::Result<CaseResult> {
    let columns =
        case.columns.iter().map(|column| Prepared::new(case, column, options)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut result = CaseResult::new(&case.name, World::Lab, options.seed);
    result.describe(case);
    let ran = columns.iter().map(|column| column.run(case, peer, BINS)).collect::<anyhow::Result<Vec<_>>>()?;
    table::collect(case, ran, &mut result);
    Ok(result)
}
