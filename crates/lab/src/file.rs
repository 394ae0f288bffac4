//! A case file in the lab: which of its runs are possible here, and all of them in order.

use altq_cases::case::{CaseFile, Run as CaseRun};
use altq_cases::result::{CaseResult, World};
use altq_cases::series;
use altq_cases::table::{self, ColumnResult};

use super::lower::{Options, SIMULATED};
use super::prepared::Prepared;
use super::topology::Unsupported;

/// Runs a case file: row by row, in each row column by column, in each column sample by sample. If
/// the case has `turns`, all of this is repeated as often as it says, so that runs that are
/// compared are close together in time. Otherwise as [`super::run_case`].
///
/// # Errors
/// As [`super::run_case`]. Everything is checked before anything is started.
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
    if let Some(progress) = &options.progress {
        let time = |run: &CaseRun, column: &Prepared<'_>| {
            run.case.duration * if column.has_peer(&run.case, peer) { 2 } else { 1 }
        };
        let once = |(run, columns): &(&CaseRun, Vec<Prepared<'_>>)| -> u64 {
            columns.iter().map(|column| time(run, column)).sum()
        };
        let turn: u64 = prepared.iter().map(once).sum();
        progress.set_whole(turn * u64::from(file.turns()));
    }
    let (turns, mut left_out) = (file.turns(), vec![LeftOutTurns::default(); prepared.len()]);
    for turn in 0..turns {
        for row in order(&prepared, turn) {
            for at in row {
                let Some((run, columns)) = prepared.get(at) else { continue };
                let mut ran = columns
                    .iter()
                    .map(|column| repeated(options.again, || column.run(&run.case, peer, bins)))
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

/// Runs something, and up to `again` times more while the host disturbs it. Whether it is repeated
/// depends on the host alone, never on the figures.
fn repeated<'a>(
    again: u32,
    mut run: impl FnMut() -> anyhow::Result<ColumnResult<'a>>,
) -> anyhow::Result<ColumnResult<'a>> {
    let (mut ran, mut first, mut times) = (run()?, None, 0);
    for time in 1..=again {
        if !ran.disturbed {
            break;
        }
        first = first.or_else(|| ran.invalid.first().cloned());
        times = time;
        ran = run()?;
    }
    ran.notes.extend(first.map(|first| repeat_note(times, &first)));
    Ok(ran)
}

/// The note on a run that was repeated so often.
pub fn repeat_note(times: u32, first: &str) -> String {
    let ordinal = match times + 1 {
        2 => "second".into(),
        3 => "third".into(),
        number => format!("{number}th"),
    };
    format!("these figures are from a {ordinal} run; the host disturbed those before, the first because {first}")
}

/// The indices of each row's runs, in the order in which they run in a turn. Every second turn
/// reverses the order, so that no column is always the first.
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

/// Turns of a run that were left out because their figures cannot be trusted. The result stays
/// valid while they are fewer than half.
#[derive(Clone, Debug, Default)]
struct LeftOutTurns {
    turns: u32,
    why: Vec<String>,
}

impl LeftOutTurns {
    /// Removes the figures of a turn if they cannot be trusted, and keeps the reasons.
    fn take_from(&mut self, ran: &mut [ColumnResult<'_>]) {
        if ran.iter().all(|ran| ran.invalid.is_empty()) {
            return;
        }
        self.turns += 1;
        for ran in ran {
            self.why.append(&mut ran.invalid);
            ran.left_out = true;
            ran.figures.iter_mut().chain(&mut ran.measured).for_each(|figure| *figure = None);
        }
    }

    /// Adds a note to the result: how many turns were left out, and why.
    fn note_in(self, turns: u32, place: &str, result: &mut CaseResult) {
        let Some(why) = self.why.first() else { return };
        let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
        let said = format!("{place}{} of {turns} turns were left out, the first because {why}", self.turns);
        if self.turns * 2 < turns { result.notes.push(said) } else { result.invalid(said) }
    }
}

/// The parts of a case file that the lab cannot run.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    /// Each reason once, after the first place in the table to which it applies.
    pub notes: Vec<String>,
    /// The reasons, without places.
    pub reasons: Vec<String>,
}

/// Removes from a case file the columns that the lab cannot run here, and returns the reasons.
/// Columns with errors stay: [`run_file`] reports them.
pub fn retain_possible(file: &mut CaseFile, options: &Options) -> LeftOut {
    // Each reason, the first place to which it applies, and the number of further places.
    let mut said: Vec<(String, String, usize)> = Vec::new();
    for run in &mut file.runs {
        let case = run.case.clone();
        run.case.columns.retain(|column| match Prepared::new(&case, column, options) {
            Err(error) if error.is::<Unsupported>() => {
                // Only the cause, because the place is added to the note separately.
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

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::path::Path;

    use super::*;

    const CASE: &str = "name = 'c'\ndescription = 'd'\nturns = 3\nduration = '${seconds}'\n\
        hosts = [{ name = 'a' }, { name = 'b' }]\n\
        links = [{ name = 'wan', from = 'a', to = 'b', policy = 'wan' }]\n\
        flows = [{ name = 'f', kind = 'tcp_bulk', from = 'a', to = 'b' }]\n\
        figures = [{ name = 'got', measure = 'goodput', flow = 'f', unit = 'bit/s' }]\n\
        rows = [{ name = 'short', values = { seconds = '2s' } }]\n\
        [[columns]]\nname = 'one'\npolicy = 'link wan { rate 2Mbit/s  scheduler cbq  \
        class x { share 100%  default } }'\n\
        [[expect]]\nname = 'enough'\nfigure = 'got'\nexpected = 5\ntolerance = 1\nsource = 'by hand'\n";

    #[test]
    fn turns_that_are_left_out_are_named_in_place_of_figures() {
        let file = CaseFile::parse(CASE, Path::new("c.toml")).unwrap_or_else(|error| panic!("{error}"));
        let run = &file.runs[0];
        let turn = |why: &[&str]| ColumnResult {
            column: Cow::Borrowed(&run.case.columns[0]),
            figures: vec![Some(5.0)],
            measured: vec![Some(5.0)],
            unjudged: Vec::new(),
            flows: Vec::new(),
            classes: Vec::new(),
            peers: Vec::new(),
            series: None,
            notes: Vec::new(),
            invalid: why.iter().map(|why| why.to_string()).collect(),
            disturbed: false,
            left_out: false,
        };
        let assembled = |turns: [&[&str]; 3]| {
            let (mut left_out, mut all) = (LeftOutTurns::default(), Vec::new());
            for why in turns {
                let mut ran = vec![turn(why)];
                left_out.take_from(&mut ran);
                all.push((run, ran));
            }
            let mut result = CaseResult::new("c", World::Lab, 1);
            table::assemble(&file, all, &mut result);
            left_out.note_in(3, "", &mut result);
            result
        };
        let none = assembled([&["it was late"], &["it was late"], &["it was late"]]);
        assert!(!none.valid);
        assert_eq!(none.notes, ["3 of 3 turns were left out, the first because it was late"]);
        let said = Some("all 3 turns were left out");
        assert_eq!((none.figures[0].measured, none.figures[0].missing.as_deref()), (None, said));
        assert_eq!((none.expectations[0].measured, none.expectations[0].missing.as_deref()), (None, said));
        let most = assembled([&["it was late"], &[], &[]]);
        assert!(most.valid && most.expectations[0].pass);
        assert_eq!((most.figures[0].measured, &most.figures[0].missing), (Some(5.0), &None));
    }
}
