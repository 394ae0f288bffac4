//! Runs the runs of a case file in virtual time, several at once on several processors.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use altq_cases::case::{CaseFile, Run};
use altq_cases::result::{CaseResult, World as Place};
use altq_cases::series::bins;
use altq_cases::table::{self, ColumnResult};

use super::{SimError, Watch, columns};

/// How to run a case file.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The seed; `None`: the file's.
    pub seed: Option<u64>,
    /// The index of the only row to run; `None`: all rows.
    pub row: Option<usize>,
    /// The index of the only column to run; `None`: all columns.
    pub column: Option<usize>,
    /// Number of runs at a time; `None`: as many as there are processors.
    pub jobs: Option<usize>,
}

/// Runs a case file, and keeps what `watch` asks for of each run's first sample. `record` receives
/// a capture of the packets that leave the first link with a policy in the first column of the
/// first run. Results are in the order of the file, however many runs go at a time.
pub fn run_file(
    file: &CaseFile,
    options: &RunOptions,
    record: Option<&mut dyn Write>,
    watch: &mut Watch,
) -> Result<CaseResult, SimError> {
    let seed = options.seed.unwrap_or(file.seed);
    let wanted = |run: &&Run| {
        options.row.is_none_or(|row| run.row == Some(row))
            && options.column.is_none_or(|column| run.column == Some(column))
    };
    let runs: Vec<&Run> = file.runs.iter().filter(wanted).collect();
    super::check_something_runs_here(runs.iter().map(|run| &run.case))?;
    let mut result = CaseResult::new(&file.name, Place::Sim, seed);
    let mut all = Vec::with_capacity(runs.len());
    // A single run uses the caller's `watch` and `record` directly.
    let alone = if record.is_some() { 1 } else { usize::from(runs.len() == 1) };
    watch.bins = watch.bins.or(Some(bins(runs.len())));
    file.runs.first().iter().for_each(|run| result.describe(&run.case));
    if let Some(progress) = &watch.progress {
        let here =
            |run: &&Run| run.case.columns.iter().filter(|own| run.case.elsewhere(own, Place::Sim).is_none()).count();
        progress.set_whole(runs.iter().map(|run| run.case.duration * here(run) as u64).sum());
        progress.set_doing(&file.name);
    }
    let mut record = record;
    for run in runs.iter().take(alone) {
        all.push(columns(&run.case, seed_of(seed, run), record.take(), watch)?);
    }
    let rest = runs.get(alone..).unwrap_or(&[]);
    for (ran, seen) in side_by_side(rest, seed, options.jobs, watch)? {
        watch.stats.extend(seen.stats);
        if let (Some(kept), Some(series)) = (&mut watch.series, seen.series) {
            kept.extend(series);
        }
        all.push(ran);
    }
    table::assemble(file, runs.into_iter().zip(all).collect(), &mut result);
    Ok(result)
}

/// Checks all runs of a case file as [`run_file`] does before the first one, and runs nothing.
///
/// # Errors
/// As [`run_file`], but a case for the lab only is none.
pub fn check_file(file: &CaseFile) -> Result<(), SimError> {
    file.runs.iter().try_for_each(|run| super::check(&run.case, seed_of(file.seed, run)))
}

fn seed_of(seed: u64, run: &Run) -> u64 {
    seed.wrapping_add(u64::from(run.sample))
}

/// The result of a run, or its error.
type Slot<'a> = Mutex<Option<Result<(Vec<ColumnResult<'a>>, Watch), SimError>>>;

/// Runs several runs at a time. Results are in the order of the runs; of several errors the first
/// is returned.
fn side_by_side<'a>(
    runs: &[&'a Run],
    seed: u64,
    jobs: Option<usize>,
    watch: &Watch,
) -> Result<Vec<(Vec<ColumnResult<'a>>, Watch)>, SimError> {
    let jobs =
        jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)).clamp(1, 256).min(runs.len());
    let next = AtomicUsize::new(0);
    let slots: Vec<Slot<'a>> = runs.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (Some(run), Some(slot)) = (runs.get(at), slots.get(at)) else { return };
            // Series are kept of the first sample only.
            let series = (watch.series.is_some() && run.sample == 0).then(Vec::new);
            let mut own = Watch { series, bins: watch.bins, counters: watch.counters, ..Watch::default() };
            own.progress.clone_from(&watch.progress);
            own.limits.clone_from(&watch.limits);
            let ran = columns(&run.case, seed_of(seed, run), None, &mut own).map(|ran| (ran, own));
            let failed = ran.is_err();
            if let Ok(mut slot) = slot.lock() {
                *slot = Some(ran);
            }
            if failed {
                // No later run begins; those that have begun go on to their end.
                next.fetch_max(runs.len(), Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..jobs {
            scope.spawn(work);
        }
        work();
    });
    let mut list = Vec::with_capacity(runs.len());
    for slot in slots {
        match slot.into_inner().ok().flatten() {
            Some(ran) => list.push(ran?),
            // Only runs after an error did not run, and that error was returned above.
            None => return Err(SimError::Case("a run of the case did not end".into())),
        }
    }
    Ok(list)
}
