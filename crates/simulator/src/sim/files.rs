//! Case files in virtual time: every run of a table, side by side over the processors.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use altq_cases::case::{CaseFile, Run};
use altq_cases::result::{CaseResult, World as Place};
use altq_cases::series::bins;
use altq_cases::table::{self, ColumnResult};

use super::{SimError, Watch, columns};

/// How a case file is to run.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Another seed than the file's.
    pub seed: Option<u64>,
    /// Only this row, by its place.
    pub row: Option<usize>,
    /// Only this column, by its place.
    pub column: Option<usize>,
    /// How many runs at once; `None`: one a processor.
    pub jobs: Option<usize>,
}

/// Runs a case file, and what `watch` asks for of each run's first sample. `record`: where the
/// packets of the first run's first column go that leave the first link with a policy. The order of
/// what comes out is the file's, however many run at once.
pub fn run_file(
    file: &CaseFile,
    wishes: &Wishes,
    record: Option<&mut dyn Write>,
    watch: &mut Watch,
) -> Result<CaseResult, SimError> {
    let seed = wishes.seed.unwrap_or(file.seed);
    let wanted = |run: &&Run| {
        wishes.row.is_none_or(|row| run.row == Some(row))
            && wishes.column.is_none_or(|column| run.column == Some(column))
    };
    let runs: Vec<&Run> = file.runs.iter().filter(wanted).collect();
    super::somewhere(runs.iter().map(|run| &run.case))?;
    let mut result = CaseResult::new(&file.name, Place::Sim, seed);
    let mut all = Vec::with_capacity(runs.len());
    // A single case keeps all that it can be asked for; so does a run whose packets are recorded.
    let alone = if record.is_some() { 1 } else { usize::from(runs.len() == 1) };
    watch.bins = watch.bins.or(Some(bins(runs.len())));
    file.runs.first().iter().for_each(|run| result.describe(&run.case));
    let mut record = record;
    for run in runs.iter().take(alone) {
        all.push(columns(&run.case, seed_of(seed, run), record.take(), watch)?);
    }
    let rest = runs.get(alone..).unwrap_or(&[]);
    for (ran, seen) in side_by_side(rest, seed, wishes.jobs, watch)? {
        watch.stats.extend(seen.stats);
        if let (Some(kept), Some(series)) = (&mut watch.series, seen.series) {
            kept.extend(series);
        }
        all.push(ran);
    }
    table::assemble(file, runs.into_iter().zip(all).collect(), &mut result);
    Ok(result)
}

fn seed_of(seed: u64, run: &Run) -> u64 {
    seed.wrapping_add(u64::from(run.sample))
}

/// What a run gave, or why it did not.
type Slot<'a> = Mutex<Option<Result<(Vec<ColumnResult<'a>>, Watch), SimError>>>;

/// Runs over the processors; results come in the order of the runs, and of several errors the
/// first.
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
            // Of several samples the first stands for all where single packets are looked at.
            let series = (watch.series.is_some() && run.sample == 0).then(Vec::new);
            let mut own = Watch { series, bins: watch.bins, counters: watch.counters, ..Watch::default() };
            let ran = columns(&run.case, seed_of(seed, run), None, &mut own).map(|ran| (ran, own));
            let failed = ran.is_err();
            if let Ok(mut slot) = slot.lock() {
                *slot = Some(ran);
            }
            if failed {
                // Nothing that comes later is of use; what was begun before ends.
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
            // Only what comes after an error did not run, and that error is found first.
            None => return Err(SimError::Case("a run of the case ended before its time".into())),
        }
    }
    Ok(list)
}
