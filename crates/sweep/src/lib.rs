//! Many runs of a case: `altq sweep`, and what another program needs to spread a sweep over hosts.
//!
//! A sweep has *points*: values that a case is given from outside, and a row and a column of the
//! case. Each point runs with several seeds, its *samples*. Some samples of a point, or all samples
//! of some points, are a *task*. Tasks do not depend on each other, nor on who runs them.
//!
//! ```text
//!  grid      2..20Mbit/s:10          table     values from CSV       until   the rule that ends a point
//!  plan      points, tasks, names of results: what is to be done, the same on every host
//!  run       one run: a case with its values and a seed, the figures of what came out
//!  figures   what the figures of a run are called
//!  rows      columns of cells        store     rows as Parquet and CSV
//!  left      the tasks that nobody has done
//!  driver    worker processes of this host, and what becomes of runs that kill them
//!  worker    the other end           points    where points end
//!  gather    from tasks' results to one table, and its summary
//! ```
//!
//! Another program (a batch system, a cluster) needs three things: tasks from [`left::Left`], which
//! takes their results too; a [`driver::Hand`] for their runs, anywhere ([`run_task`] where no run
//! can kill its process); and [`gather::gather`] at the end.

#![forbid(unsafe_code)]

pub mod driver;
pub mod figures;
pub mod gather;
pub mod grid;
pub mod left;
pub mod plan;
mod points;
pub mod rows;
pub mod run;
pub mod store;
pub mod table;
pub mod until;
pub mod worker;

pub use left::Left;
pub use plan::{Piece, Plan, Point, Request, Shard, Task};
pub use run::{Runner, Runs, run_task};

use std::path::PathBuf;

/// Why a sweep cannot be done, or did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// What was asked for makes no sense: values, a table, a rule, the case.
    #[error("{0}")]
    Wrong(String),
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A file of results is not what a sweep writes.
    #[error("{}: it is no result of a sweep: {why}; remove it and run again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Worker processes cannot be started, or do not talk.
    #[error("a worker process cannot be started: {0}")]
    Worker(std::io::Error),
    /// Results of tasks are missing, so there is no table yet.
    #[error("the results of {0} tasks are missing")]
    Missing(usize),
    /// It was stopped. What was done is kept.
    #[error("stopped")]
    Stopped,
}

impl SweepError {
    /// An error about a file.
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> SweepError {
        let path = path.to_owned();
        |error| SweepError::Io { path, error }
    }
}
