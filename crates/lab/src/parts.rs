//! Runs the runs of a case file one by one, in any order, and assembles their results in the order
//! of the file.

use altq_cases::case::CaseFile;
use altq_cases::result::{CaseResult, World};
use altq_cases::series;
use altq_cases::table::{self, ColumnResult};
use anyhow::Context as _;

use super::lower::Options;
use super::need::Need;
use super::prepared::Prepared;

/// One run of the file. Parts sort in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    run: usize,
    column: usize,
}

impl Part {
    /// All parts of a file, in its order, each with what it needs of the host.
    ///
    /// # Errors
    /// As [`super::run_case`], before anything is started.
    pub fn all(file: &CaseFile, options: &Options) -> anyhow::Result<Vec<(Part, Need)>> {
        let mut all = Vec::new();
        for (at, run) in file.runs.iter().enumerate() {
            for (place, column) in run.case.columns.iter().enumerate() {
                let prepared = Prepared::new(&run.case, column, &seeded(options, run.sample))?;
                all.push((Part { run: at, column: place }, prepared.need(&run.case)));
            }
        }
        Ok(all)
    }

    /// The duration of its traffic, in ms.
    pub fn time(self, file: &CaseFile) -> u64 {
        file.runs.get(self.run).map_or(0, |run| run.case.duration.div_ceil(1_000_000))
    }

    /// Its name: column and row.
    pub fn name(self, file: &CaseFile) -> String {
        let Some(run) = file.runs.get(self.run) else { return String::new() };
        let column = run.case.columns.get(self.column).and_then(|column| column.name.as_deref());
        column.into_iter().chain(run.case.row.as_deref()).collect::<Vec<_>>().join("/")
    }

    /// Runs it.
    ///
    /// # Errors
    /// As [`super::run_case`].
    pub fn run(self, file: &CaseFile, options: &Options) -> anyhow::Result<ColumnResult<'static>> {
        let run = file.runs.get(self.run).context("the run has its place")?;
        let column = run.case.columns.get(self.column).context("the column has its place")?;
        Prepared::new(&run.case, column, &seeded(options, run.sample))?.run(
            &run.case,
            false,
            series::bins(file.runs.len()),
        )
    }
}

fn seeded(options: &Options, sample: u32) -> Options {
    Options { seed: options.seed.wrapping_add(u64::from(sample)), ..options.clone() }
}

/// The result of a file, from the results of its parts in any order.
pub fn assemble<'a>(file: &'a CaseFile, seed: u64, mut ran: Vec<(Part, ColumnResult<'a>)>) -> CaseResult {
    ran.sort_by_key(|(part, _)| *part);
    let mut result = CaseResult::new(&file.name, World::Lab, seed);
    file.runs.first().iter().for_each(|run| result.describe(&run.case));
    let mut runs: Vec<(usize, Vec<ColumnResult<'a>>)> = Vec::new();
    for (part, ran) in ran {
        match runs.last_mut() {
            Some((run, columns)) if *run == part.run => columns.push(ran),
            _ => runs.push((part.run, vec![ran])),
        }
    }
    let runs = runs.into_iter().filter_map(|(at, ran)| Some((file.runs.get(at)?, ran))).collect();
    table::assemble(file, runs, &mut result);
    result
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::path::Path;

    use altq_cases::result::{FlowResult, Percentiles};

    use super::*;

    const HEAD: &str = "name = 'c'\ndescription = 'd'\nhosts = [{ name = 'a' }, { name = 'b' }]\n\
        links = [{ name = 'wan', from = 'a', to = 'b', policy = 'wan' }]\n\
        flows = [{ name = 'f', kind = 'tcp_bulk', from = 'a', to = 'b' }]\n\
        figures = [{ name = 'got', measure = 'goodput', flow = 'f', unit = 'bit/s' }]\n";
    const ROWS: &str = "duration = '${seconds}'\n\
        rows = [{ name = 'short', values = { seconds = '2s' } }, { name = 'long', values = { seconds = '3s' } }]\n";
    const COLUMNS: &str = "[[columns]]\nname = 'one'\npolicy = 'link wan { rate 2Mbit/s  scheduler cbq  \
        class x { share 100%  default } }'\n\
        [[columns]]\nname = 'two'\npolicy = 'link wan { rate 3Mbit/s  scheduler cbq  \
        class x { share 100%  default } }'\n";

    fn options() -> Options {
        Options {
            congestion: None,
            buffers: None,
            offload: true,
            seed: 1,
            again: 0,
            progress: None,
            counters: |_, _| None,
        }
    }

    /// A made-up result of a part; its figure is the part's index in the file.
    fn ran(file: &CaseFile, part: Part, at: usize) -> ColumnResult<'_> {
        let case = &file.runs[part.run].case;
        let column = &case.columns[part.column];
        let flow = FlowResult {
            row: case.row.clone(),
            column: column.name.clone(),
            name: "f".into(),
            class: None,
            goodput_bit_s: at as u64,
            transactions_per_s: None,
            rtt_ns: Percentiles::default(),
            delay_ns: Percentiles::default(),
            sent_packets: None,
            received_packets: None,
            lost_packets: None,
            under_way_packets: None,
            under_way_before_packets: 0,
            traffic: None,
            gaps: None,
            standstill: None,
        };
        ColumnResult {
            column: Cow::Borrowed(column),
            figures: vec![Some(at as f64)],
            measured: Vec::new(),
            unjudged: Vec::new(),
            flows: vec![flow],
            classes: Vec::new(),
            peers: Vec::new(),
            series: None,
            notes: vec![format!("note {at}")],
            invalid: if at == 2 { vec!["late".into()] } else { Vec::new() },
            disturbed: false,
            left_out: false,
        }
    }

    #[test]
    fn whichever_ended_first_the_result_is_the_same() {
        // A table, and a case with two policies, whose one run has two columns.
        for (text, runs) in [(format!("{HEAD}{ROWS}{COLUMNS}"), 4), (format!("{HEAD}duration = '2s'\n{COLUMNS}"), 2)] {
            let file = CaseFile::parse(&text, Path::new("c.toml")).unwrap_or_else(|error| panic!("{error}"));
            let parts = Part::all(&file, &options()).unwrap();
            assert_eq!(parts.len(), runs);
            let result = |order: &[usize]| {
                let ran = order.iter().map(|at| (parts[*at].0, ran(&file, parts[*at].0, *at))).collect();
                serde_json::to_value(assemble(&file, 1, ran)).unwrap()
            };
            let mut order: Vec<usize> = (0..runs).collect();
            let straight = result(&order);
            let flows = straight["flows"].as_array().unwrap().iter();
            assert_eq!(flows.map(|flow| flow["goodput_bit_s"].as_u64().unwrap() as usize).collect::<Vec<_>>(), order);
            order.reverse();
            assert_eq!(result(&order), straight);
            order.rotate_left(1);
            assert_eq!(result(&order), straight);
        }
    }

    #[test]
    fn runs_have_names_and_times_and_what_spoils_one_is_told_of_its_place() {
        let file = CaseFile::parse(&format!("{HEAD}{ROWS}{COLUMNS}"), Path::new("c.toml"))
            .unwrap_or_else(|error| panic!("{error}"));
        let parts = Part::all(&file, &options()).unwrap();
        let told: Vec<(String, u64)> = parts.iter().map(|(part, _)| (part.name(&file), part.time(&file))).collect();
        let wanted = [("one/short", 2000), ("two/short", 2000), ("one/long", 3000), ("two/long", 3000)];
        assert_eq!(told, wanted.map(|(name, time)| (name.to_owned(), time)));
        let all = parts.iter().enumerate().rev().map(|(at, (part, _))| (*part, ran(&file, *part, at)));
        let result = assemble(&file, 1, all.collect());
        assert!(!result.valid && result.notes.contains(&"row long: column one: late".to_owned()), "{:?}", result.notes);
    }
}
