//! What `altq experiments` prints with `--json`. Fields stand in the order of the alphabet, as they
//! always have.

use std::path::Path;

use serde::Serialize;

/// The cases: `altq.experiments_list/1`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct List<'a> {
    /// The cases, by name.
    pub cases: Vec<Listed<'a>>,
    /// How long all of it takes in the lab; null without `--lab`.
    pub lab: Option<WholeLab>,
    /// `altq.experiments_list/1`.
    pub schema: &'static str,
}

/// A case.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Listed<'a> {
    /// The names of its columns.
    pub columns: &'a [String],
    /// What it shows.
    pub description: &'a str,
    /// Its file, or its place inside the program.
    pub file: &'a Path,
    /// What the lab can run of it; null without `--lab`.
    pub lab: Option<InLab>,
    /// Its name.
    pub name: &'a str,
    /// The document whose figures it measures; null if there is none.
    pub published_in: Option<&'a str>,
    /// The number of its rows.
    pub rows: usize,
    /// The number of its runs.
    pub runs: usize,
}

/// What the lab can run of a case.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InLab {
    /// Why some of it is left out, a sentence each.
    pub left_out: Vec<String>,
    /// How long it takes; 0 if the lab can run nothing of it.
    pub seconds: u64,
}

/// How long all cases take in the lab.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WholeLab {
    /// One run after another.
    pub seconds: u64,
    /// As many side by side as this host can carry.
    pub side_by_side_seconds: u64,
}

/// What came of a run of cases: `altq.experiments/1`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ran {
    /// True if a signal ended it before all cases had run.
    pub interrupted: bool,
    /// What came of each case, in the order in which they ended.
    pub results: Vec<Verdict>,
    /// `altq.experiments/1`.
    pub schema: &'static str,
}

/// What came of a case in a world.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Verdict {
    /// The case's name.
    pub case: String,
    /// How many promises hold; or why it did not run.
    pub note: String,
    /// The seeds at which the case alone fails; absent if it ran at one seed only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seeds_that_fail: Option<Vec<FailingSeed>>,
    /// `PASS`, `FAIL`, `INVALID`, `SKIP` or `ERROR`.
    pub verdict: &'static str,
    /// `sim` or `lab`.
    pub world: &'static str,
}

/// A seed at which a case alone fails.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailingSeed {
    /// How many promises do not hold there.
    pub promises: usize,
    /// The seed.
    pub seed: u64,
}
