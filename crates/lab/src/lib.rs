//! The lab runs a case with the kernel's own TCP and UDP, in network namespaces that it makes for
//! the run.
//!
//! ```text
//!  topology    namespaces and virtual Ethernet pairs (veth)
//!  generator   kernel TCP and UDP, threads in the namespaces
//!  shaper      altq between the sides          path        emulated links around the queue
//!  peer        the kernel's bridge and HTB in altq's place
//!  kernel_htb  a policy of htb as tc commands
//!  file        all runs of a case file         prepared    a column (a variant of a case), checked
//!  run         one run of one column           trust       reasons to distrust its figures
//!  need        how much of the host it needs   parts       runs of a file one by one, in any order
//!  measure     readings of meters over time    figures     readings to result rows and expectations
//!  series      a run over time, for plots      engine      cost of the engine, without traffic
//!  readings    the loops' counters over a run   processor   whether a loop got a processor
//! ```

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
mod networked;
mod parts;
mod path;
mod peer;
mod prepared;
mod processor;
mod readings;
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
pub use kernel_htb::NAME as PEER;
pub use lower::Options;
pub use need::Need;
pub use parts::{Part, assemble};
use prepared::Prepared;

/// A link with more classes than this has rows only for classes that had packets.
const MANY: usize = 1000;

/// A policy that a case names cannot be used. It displays as the diagnostics to print.
#[derive(Debug)]
pub struct BadPolicy(pub Box<altq_config::Failed>);

impl std::fmt::Display for BadPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for BadPolicy {}

/// A case names a link or class that its policy does not have, or is wrong in another way. The text
/// says what is wrong.
#[derive(Debug)]
pub struct BadCase(pub String);

impl std::fmt::Display for BadCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadCase {}

/// Runs a case. If `peer` is set, or an expectation is about the ratio to kernel HTB, the same
/// traffic runs through kernel HTB afterwards.
///
/// # Errors
/// [`topology::Unsupported`] if this host or the lab cannot run the case,
/// [`topology::NotPermitted`] if this process may not; [`BadPolicy`] and [`BadCase`], before
/// anything is started; any other error is a failure of the run.
pub fn run_case(case: &Case, options: &Options, peer: bool) -> anyhow::Result<CaseResult> {
    let columns =
        case.columns.iter().map(|column| Prepared::new(case, column, options)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut result = CaseResult::new(&case.name, World::Lab, options.seed);
    result.describe(case);
    let ran = columns.iter().map(|column| column.run(case, peer, BINS)).collect::<anyhow::Result<Vec<_>>>()?;
    table::collect(case, ran, &mut result);
    Ok(result)
}
