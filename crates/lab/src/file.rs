//! A case file in the lab: what of it can be had here, and its runs in their order.

use altq_cases::case::{CaseFile, Run as CaseRun};
use altq_cases::result::{CaseResult, World};
use altq_cases::series;
use altq_cases::table::{self, ColumnResult};

use super::lower::{Options, SIMULATED};
use super::prepared::Prepared;
use super::topology::Unsupported;

/// Runs a case file: its rows one after another, in each its columns, in each its samples; where
/// the case asks for turns all of that so often, so that what is compared runs close together. As
/// [`super::run_case`] otherwise.
///
/// # Errors
/// As [`super::run_case`]; everything is checked before anything is started.
pub fn run_file(file: &CaseFile, options: &Options, peer: bool) -> anyhow::Result<CaseResult> {
    let mut prepared = Vec::new();
    for run in &file.runs {
        let seed = options.seed.wrapping_add(u64::from(run.sample));
        let options = Options { seed, ..options.clone() };
        let columns = run.case.columns.iter().map(|column| Prepared::new(&run.case, column, &options));
        prepared.push((run, columns.collect::<anyhow::Result<Vec<_>>>()?));
    }
    let mut result = CaseResult::new(&file.name, World::Lab, options.seed);
    file.runs.first().iter().for_each(|run| result.describe(&run.case));
    let mut all = Vec::new();
    let bins = series::bins(prepared.len());
    let (turns, mut left_out) = (file.turns(), vec![LeftOutTurns::default(); prepared.len()]);
    for turn in 0..turns {
        for row in order(&prepared, turn) {
            for at in row {
                let Some((run, columns)) = prepared.get(at) else { continue };
                let mut ran = columns
                    .iter()
                    .map(|column| column.run(&run.case, peer, bins))
                    .collect::<anyhow::Result<Vec<_>>>()?;
                if turns > 1
                    && let Some(left_out) = left_out.get_mut(at)
                {
                    left_out.take_from(&mut ran);
                }
                all.push((*run, ran));
            }
        }
    }
    table::assemble(file, all, &mut result);
    for ((run, columns), left_out) in prepared.iter().zip(left_out) {
        let names = [run.case.row.as_deref(), columns.first().and_then(|own| own.column.name.as_deref())];
        left_out.note_in(turns, &names.into_iter().flatten().collect::<Vec<_>>().join(", "), &mut result);
    }
    Ok(result)
}

/// The places of the runs of each row, in the order in which they run in a turn: in every other one
/// the other way round, so that neither of two columns always comes first.
fn order<P>(prepared: &[(&CaseRun, P)], turn: u32) -> Vec<Vec<usize>> {
    let mut rows: Vec<(Option<usize>, Vec<usize>)> = Vec::new();
    for (at, (run, _)) in prepared.iter().enumerate() {
        match rows.last_mut() {
            Some((row, places)) if *row == run.row => places.push(at),
            _ => rows.push((run.row, vec![at])),
        }
    }
    let turned = |(_, mut places): (_, Vec<usize>)| {
        if turn % 2 == 1 {
            places.reverse();
        }
        places
    };
    rows.into_iter().map(turned).collect()
}

/// Turns of a run whose figures cannot be trusted: they are left out, as long as those that can are
/// more.
#[derive(Clone, Debug, Default)]
struct LeftOutTurns {
    turns: u32,
    why: Vec<String>,
}

impl LeftOutTurns {
    fn take_from(&mut self, ran: &mut [ColumnResult<'_>]) {
        if ran.iter().all(|ran| ran.invalid.is_empty()) {
            return;
        }
        self.turns += 1;
        for ran in ran {
            self.why.append(&mut ran.invalid);
            ran.figures.iter_mut().chain(&mut ran.measured).for_each(|figure| *figure = None);
        }
    }

    fn note_in(self, turns: u32, place: &str, result: &mut CaseResult) {
        let Some(why) = self.why.first() else { return };
        let said = format!("{place}: {} of {turns} turns were left out, the first because {why}", self.turns);
        if self.turns * 2 < turns { result.notes.push(said) } else { result.invalid(said) }
    }
}

/// What the lab cannot run of a case file.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    /// Where in the table, and why; one a reason.
    pub notes: Vec<String>,
    /// The reasons alone.
    pub reasons: Vec<String>,
}

/// Leaves of a case file what the lab can run here, and says why it cannot run the rest. What is
/// wrong with it stays, and is said when it runs.
pub fn retain_possible(file: &mut CaseFile, options: &Options) -> LeftOut {
    // A reason, the first place where it holds, and in how many more it does.
    let mut said: Vec<(String, String, usize)> = Vec::new();
    for run in &mut file.runs {
        let case = run.case.clone();
        run.case.columns.retain(|column| match Prepared::new(&case, column, options) {
            Err(error) if error.is::<Unsupported>() => {
                // The cause alone: what it is about is said by its place.
                let reason = error.root_cause().to_string();
                let reason = reason.strip_prefix(SIMULATED).unwrap_or(&reason).to_owned();
                let row = case.row.as_ref().map_or(String::new(), |row| format!("row {row}, "));
                let name = column.name.as_ref().map_or(String::new(), |name| format!("column {name}"));
                match said.iter_mut().find(|(known, ..)| *known == reason) {
                    Some((_, _, more)) => *more += 1,
                    None => said.push((reason, format!("{row}{name}"), 0)),
                }
                false
            }
            _ => true,
        });
    }
    file.runs.retain(|run| !run.case.columns.is_empty());
    let note = |(reason, place, more): &(String, String, usize)| match (place.trim_end_matches(", "), more) {
        ("", _) => format!("not in the lab: {reason}"),
        (place, 0) => format!("{place}: not in the lab: {reason}"),
        (place, more) => format!("{place} (and {more} more): not in the lab: {reason}"),
    };
    let notes = said.iter().map(note).collect();
    LeftOut { notes, reasons: said.into_iter().map(|(reason, ..)| reason).collect() }
}
