//! What a sweep is to do: its points, and the tasks into which its runs are cut. It depends on the
//! case and on what was asked for, and on nothing else, so it is the same on every host.

mod files;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use altq_cases::case::{Case, CaseFile, Expectation, Given, Measure, Unit};
use altq_cases::world::World;
use altq_simulator::sim::{self, SimError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::figures::{Quantity, quantity};
use crate::grid::Axis;
use crate::rows::{self, Table};
use crate::run::{Limit, Outcome, Ran, Runs};
use crate::table::Line;
use crate::until::Until;
use crate::{SweepError, grid};

/// The version of what stands in the tasks' files. Another one gives them other names.
const FORMAT: u32 = 1;
/// How many runs are a task, if nothing else is said.
pub const RUNS: u32 = 100;
/// The same with a rule: it is looked at after each task.
pub const RUNS_WITH_RULE: u32 = 20;
/// The most points of a sweep.
const MOST_POINTS: usize = 10_000_000;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The case's path: files that it names are looked for in its folder.
    pub case: PathBuf,
    /// The case's text; `None`: it is read from the path.
    pub text: Option<String>,
    /// Values of the case and what they are to be, the last one changing fastest.
    pub axes: Vec<Axis>,
    /// Lines of a table, and its path; each is tried with all combinations of `axes`.
    pub table: Option<(PathBuf, Vec<Line>)>,
    /// Runs of each point, each with a seed of its own; 0 counts as 1.
    pub samples: u32,
    /// The first seed; `None`: the case's own.
    pub seed: Option<u64>,
    /// Runs of a task; `None`: [`RUNS`] or [`RUNS_WITH_RULE`].
    pub chunk: Option<u32>,
    /// Rules, all of which must hold for a point to end before it has all its samples.
    pub until: Vec<Until>,
    /// The figures to keep, by name, with `*` and `?`; none: all.
    pub figures: Vec<String>,
    /// Limits of a run.
    pub limit: Limit,
    /// Only this row of the case.
    pub row: Option<String>,
    /// Only this column of the case.
    pub column: Option<String>,
}

/// A point: the values that the case is given, and the row and the column that run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Names and values.
    pub values: Vec<(String, String)>,
    /// The name of the case's row, if it has rows.
    pub row: Option<String>,
    /// The name of the case's column, if it has columns.
    pub column: Option<String>,
}

impl Point {
    /// Its values as a case takes them.
    pub fn given(&self) -> Given {
        self.values.iter().cloned().collect()
    }

    /// What a reader calls it: `rate=2Mbit/s, row 5`.
    pub fn name(&self) -> String {
        let values = self.values.iter().map(|(name, word)| format!("{name}={word}"));
        let row = self.row.iter().map(|row| format!("row {row}"));
        let column = self.column.iter().map(|column| format!("column {column}"));
        values.chain(row).chain(column).collect::<Vec<_>>().join(", ")
    }
}

/// Some samples of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The point, as a place in [`Plan::points`].
    pub point: usize,
    /// Its first sample.
    pub from: u32,
    /// The sample behind its last one.
    pub to: u32,
}

/// Runs that one process does one after another, and whose results are one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Half of the SHA-256 of everything on which the results depend, in hexadecimal.
    pub id: String,
    /// The runs: samples of one point, or all samples of several points.
    pub pieces: Vec<Piece>,
}

impl Task {
    /// How many runs it has.
    pub fn runs(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.to - piece.from)).sum()
    }
}

/// A part of the tasks: number `number` of `of`, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which one, from 1.
    pub number: u32,
    /// How many there are.
    pub of: u32,
}

impl Shard {
    /// Reads `17/400`.
    ///
    /// # Errors
    /// What it must look like.
    pub fn parse(word: &str) -> Result<Shard, String> {
        let numbers = word.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Shard { number, of }),
            _ => Err(format!("{word:?} is no shard: 17/400 is the seventeenth of 400, and 1/400 the first")),
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The case's name.
    pub name: String,
    /// The case's text.
    pub text: String,
    /// The case's path, as it was asked for.
    pub path: PathBuf,
    /// The names of the values that it is given.
    pub names: Vec<String>,
    /// The points.
    pub points: Vec<Point>,
    /// Runs of each point.
    pub samples: u32,
    /// The seed of sample 0; each sample has the seed after that of the one before.
    pub seed: u64,
    /// Runs of a task.
    pub chunk: u32,
    /// The rules that end a point.
    pub until: Vec<Until>,
    /// The figures to keep; none: all.
    pub figures: Vec<String>,
    /// Limits of a run.
    pub limit: Limit,
    /// What expectations are counted in, by the name of their figure.
    expected: BTreeMap<String, Quantity>,
    counters: bool,
    files: files::Digests,
}

impl Plan {
    /// Works out what is to be done, and checks the case with every value.
    ///
    /// # Errors
    /// If the case has an error with its usual values or with one of these, or makes sense in the
    /// lab only; if values have no effect; if there are too many points.
    pub fn new(request: Request) -> Result<Plan, SweepError> {
        let wrong = |why: String| SweepError::Wrong(why);
        let text = match &request.text {
            Some(text) => text.clone(),
            None => CaseFile::text(&request.case).map_err(|error| wrong(error.to_string()))?,
        };
        let path = request.case.clone();
        let lines: Vec<Point> = match &request.table {
            Some((_, lines)) => lines.iter().map(Line::point).collect(),
            None => vec![Point::default()],
        };
        let mut names: Vec<String> =
            lines.first().iter().flat_map(|point| point.values.iter().map(|(name, _)| name.clone())).collect();
        for axis in &request.axes {
            if names.contains(&axis.name) {
                return Err(wrong(format!("{} is given twice; give each value once", axis.name)));
            }
            grid::check_name(&axis.name).map_err(wrong)?;
            names.push(axis.name.clone());
        }
        let usual = parse(&text, &path, &Given::new()).map_err(wrong)?;
        sim::check_file(&usual).map_err(|error| match error {
            // They have their place.
            SimError::Named(error) => wrong(error.to_string()),
            SimError::Policy(failed) => wrong(failed.to_string()),
            error => wrong(format!("{}: {error}", path.display())),
        })?;
        check_values(&text, &request, &lines).map_err(wrong)?;
        let places = places(&usual, request.row.as_deref(), request.column.as_deref())
            .map_err(|why| wrong(format!("{}: {why}", path.display())))?;
        let mut count = request.axes.iter().map(|axis| axis.values.len()).chain([places.len()]);
        match count.try_fold(lines.len(), usize::checked_mul) {
            Some(count) if count <= MOST_POINTS => {}
            _ => return Err(wrong(format!("the values make more than {MOST_POINTS} points; sweep in several parts"))),
        }
        let mut points = lines;
        for axis in &request.axes {
            points = points.iter().flat_map(|point| axis.values.iter().map(|word| with(point, axis, word))).collect();
        }
        let points: Vec<Point> = points
            .iter()
            .flat_map(|point| {
                places.iter().map(|(row, column)| Point { row: row.clone(), column: column.clone(), ..point.clone() })
            })
            .collect();
        let samples = request.samples.max(1);
        // What a rule is about is kept in any case.
        let mut figures = request.figures;
        if !figures.is_empty() {
            figures.extend(request.until.iter().map(|rule| rule.figure.clone()));
        }
        let expected = expected(&usual);
        if let Some(rule) = request.until.first().filter(|_| samples < 2) {
            let figure = &rule.figure;
            return Err(wrong(format!("ci95({figure}) needs at least 2 samples of a point; give more, or no rule")));
        }
        let usual_chunk = if request.until.is_empty() { RUNS } else { RUNS_WITH_RULE };
        let files = files::Digests::of(&text, &path, &points);
        let until = request.until.into_iter().map(|rule| in_unit(rule, &usual, &expected));
        let until = until.collect::<Result<Vec<_>, _>>().map_err(|why| wrong(format!("{}: {why}", path.display())))?;
        Ok(Plan {
            name: usual.name.clone(),
            expected,
            counters: reads_counters(&usual),
            seed: request.seed.unwrap_or(usual.seed),
            text,
            path,
            names,
            points,
            samples,
            chunk: request.chunk.unwrap_or(usual_chunk).max(1),
            until,
            figures,
            limit: request.limit,
            files,
        })
    }

    /// All runs, if no point ends early.
    pub fn runs(&self) -> u64 {
        self.points.len() as u64 * u64::from(self.samples)
    }

    /// The figures that are asked for by name, with `*` and `?`: those to keep, and those of rules.
    pub fn asked_for(&self) -> impl Iterator<Item = &str> {
        let kept = self.figures.iter().map(String::as_str);
        kept.chain(self.until.iter().map(|rule| rule.figure.as_str()))
    }

    /// What a figure is counted in.
    pub fn quantity(&self, figure: &str) -> Quantity {
        self.expected.get(figure).copied().unwrap_or_else(|| quantity(figure))
    }

    /// The seed of a sample.
    pub fn seed(&self, sample: u32) -> u64 {
        self.seed.wrapping_add(u64::from(sample))
    }

    /// Into what the runs are cut, in the order of points and samples. A point with few samples is
    /// one piece of a task that has several points.
    pub fn tasks(&self) -> Vec<Task> {
        let whole = self.samples <= self.chunk;
        let group = if whole { (self.chunk / self.samples).max(1) as usize } else { 1 };
        let mut tasks = Vec::new();
        for first in (0..self.points.len()).step_by(group) {
            if whole {
                let points = first..(first + group).min(self.points.len());
                tasks.push(self.task(points.map(|point| Piece { point, from: 0, to: self.samples }).collect()));
                continue;
            }
            for from in (0..self.samples).step_by(self.chunk as usize) {
                let to = from.saturating_add(self.chunk).min(self.samples);
                tasks.push(self.task(vec![Piece { point: first, from, to }]));
            }
        }
        tasks
    }

    fn task(&self, pieces: Vec<Piece>) -> Task {
        let hash = self.hash(&pieces);
        Task { id: hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect(), pieces }
    }

    /// The runs of a task, in the order of points and samples.
    pub fn runs_of(&self, task: &Task) -> Vec<Runs> {
        let known = task.pieces.iter().filter_map(|piece| {
            let point = self.points.get(piece.point)?.clone();
            Some(Runs { point, seed: self.seed(piece.from), count: piece.to - piece.from })
        });
        known.collect()
    }

    /// The table of a task, out of what became of its runs, in the order of [`Plan::runs_of`].
    pub fn table(&self, task: &Task, outcomes: Vec<Outcome>) -> Table {
        let samples = task.pieces.iter().filter_map(|piece| Some((self.points.get(piece.point)?, piece)));
        let samples = samples.flat_map(|(point, piece)| (piece.from..piece.to).map(move |sample| (point, sample)));
        let ran = samples.zip(outcomes);
        let ran = ran.map(|((point, sample), outcome)| (point, Ran { sample, seed: self.seed(sample), outcome }));
        rows::table(&self.names, &ran.collect::<Vec<_>>())
    }

    /// Of each of the plan's tasks, whether it belongs to a shard. Tasks are dealt out in the order
    /// of their hashes, so that no shard has more than one task more than another. With a rule all
    /// samples of a point belong to one shard, because only all of them together say where the
    /// point ends; then points are dealt out.
    pub fn of_shard(&self, tasks: &[Task], shard: Shard) -> Vec<bool> {
        let key = |task: &Task| {
            let hash = match task.pieces.as_slice() {
                [piece] if !self.until.is_empty() => self.hash(&[Piece { from: 0, to: 0, ..*piece }]),
                pieces => self.hash(pieces),
            };
            hash.iter().take(16).fold(0, |number: u128, byte| number << 8 | u128::from(*byte))
        };
        let keys: Vec<u128> = tasks.iter().map(key).collect();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let is_of = |key: &u128| {
            let place = sorted.binary_search(key).unwrap_or_default() as u64;
            place % u64::from(shard.of) == u64::from(shard.number) - 1
        };
        keys.iter().map(is_of).collect()
    }

    /// True if something of the case is read from what `tc -s` would print, for which whoever runs
    /// it needs a [`ReadCounters`](altq_cases::stat::ReadCounters).
    pub fn reads_counters(&self) -> bool {
        self.counters
    }

    /// The hash of everything on which the results of these runs depend.
    fn hash(&self, pieces: &[Piece]) -> [u8; 32] {
        #[derive(Serialize)]
        struct Of<'a> {
            format: u32,
            version: &'a str,
            case: &'a str,
            figures: &'a [String],
            limit: &'a Limit,
            seed: u64,
            runs: Vec<(&'a Point, String, u32, u32)>,
        }
        let runs = pieces.iter().filter_map(|piece| {
            let point = self.points.get(piece.point)?;
            Some((point, self.files.of_point(piece.point), piece.from, piece.to))
        });
        let of = Of {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            case: self.files.case(),
            figures: &self.figures,
            limit: &self.limit,
            seed: self.seed,
            runs: runs.collect(),
        };
        // Texts and whole numbers have a form in JSON, so this cannot fail.
        let text = serde_json::to_vec(&of).unwrap_or_default();
        Sha256::digest(&text).into()
    }
}

/// What the expectations of a case are counted in.
fn expected(file: &CaseFile) -> BTreeMap<String, Quantity> {
    let mut all = BTreeMap::new();
    for case in file.runs.iter().map(|run| &run.case) {
        for expectation in &case.expectations {
            // As crate::figures calls them.
            let figure = expectation.figure.and_then(|at| case.figures.get(at));
            let name = match (expectation.name.as_str(), figure) {
                ("", Some(figure)) => figure.name.as_str(),
                (name, _) => name,
            };
            if !name.is_empty() {
                all.insert(format!("expect.{name}"), of_unit(expectation.probe.measure.unit()));
            }
        }
    }
    all
}

/// Whether something of a case that runs in the simulator is read from what `tc -s` would print.
fn reads_counters(file: &CaseFile) -> bool {
    let of = |measure: Measure| matches!(measure, Measure::Counter | Measure::Identities | Measure::Disagreements);
    file.runs.iter().map(|run| &run.case).any(|case| {
        let concerns =
            |expectation: &&Expectation| case.columns.iter().any(|column| expectation.concerns(column, World::Sim));
        case.figures.iter().any(|figure| of(figure.measure()))
            || case.expectations.iter().filter(concerns).any(|expectation| of(expectation.probe.measure))
    })
}

/// What is counted in a unit.
fn of_unit(unit: Unit) -> Quantity {
    match unit {
        Unit::Rate => Quantity::Rate,
        Unit::Time => Quantity::Time,
        Unit::Fraction | Unit::Count => Quantity::Plain,
    }
}

/// A rule with its limit in the unit of its figure.
fn in_unit(rule: Until, file: &CaseFile, expected: &BTreeMap<String, Quantity>) -> Result<Until, String> {
    let name = rule.figure.strip_prefix("figure.");
    match file.figures().iter().find(|figure| Some(figure.name.as_str()) == name) {
        Some(figure) => rule.in_unit(of_unit(figure.unit.unit), figure.unit.factor),
        None => {
            let known = expected.get(&rule.figure).copied();
            let counted = known.unwrap_or_else(|| quantity(&rule.figure));
            rule.in_unit(counted, 1.0)
        }
    }
}

/// A point with one more value.
fn with(point: &Point, axis: &Axis, word: &str) -> Point {
    let mut point = point.clone();
    point.values.push((axis.name.clone(), word.to_owned()));
    point
}

/// The case with values from outside, or the message about what is wrong.
fn parse(text: &str, path: &Path, given: &Given) -> Result<CaseFile, String> {
    CaseFile::parse_with(text, path, given).map_err(|error| error.to_string())
}

/// Checks the case with each value of each axis, the others being the first of theirs; and with
/// each line of the table.
fn check_values(text: &str, request: &Request, lines: &[Point]) -> Result<(), String> {
    let first: Vec<(String, String)> =
        request.axes.iter().filter_map(|axis| Some((axis.name.clone(), axis.values.first()?.clone()))).collect();
    let check = |point: &Point, changed: Option<(&str, &str)>| {
        let mut given = point.given();
        given.extend(first.iter().cloned());
        given.extend(changed.map(|(name, word)| (name.to_owned(), word.to_owned())));
        parse(text, &request.case, &given).map(|_| ())
    };
    let Some(base) = lines.first() else { return Ok(()) };
    for axis in &request.axes {
        for word in &axis.values {
            check(base, Some((&axis.name, word)))?;
        }
    }
    for (at, line) in lines.iter().enumerate() {
        check(line, None).map_err(|why| {
            match request.table.as_ref().and_then(|(path, all)| Some((path, all.get(at)?))) {
                Some((path, line)) => format!("{}:{}: {why}", path.display(), line.number),
                None => why,
            }
        })?;
    }
    Ok(())
}

/// A row and a column of a case.
type Place = (Option<String>, Option<String>);

/// The rows and columns of a case that run in the simulator, each pair once.
fn places(file: &CaseFile, row: Option<&str>, column: Option<&str>) -> Result<Vec<Place>, String> {
    if file.samples_have_values {
        return Err(
            "samples of its columns have values of their own, and a sweep takes seeds; make rows of them".into()
        );
    }
    let known = |names: &mut dyn Iterator<Item = &str>| names.collect::<Vec<_>>().join(", ");
    if let Some(row) = row.filter(|row| file.row(row).is_none()) {
        return Err(match file.rows.is_empty() {
            true => format!("it has no row {row:?}, and no rows at all"),
            false => {
                format!("it has no row {row:?}; rows: {}", known(&mut file.rows.iter().map(|row| row.name.as_str())))
            }
        });
    }
    if let Some(column) = column.filter(|column| file.column(column).is_none()) {
        return Err(match file.columns.is_empty() {
            true => format!("it has no column {column:?}, and no columns at all"),
            false => {
                format!("it has no column {column:?}; columns: {}", known(&mut file.columns.iter().map(String::as_str)))
            }
        });
    }
    let (mut places, mut elsewhere) = (Vec::new(), None);
    for run in &file.runs {
        for own in &run.case.columns {
            if let Some(why) = run.case.elsewhere(own, World::Sim) {
                elsewhere = elsewhere.or(Some(why.to_owned()));
                continue;
            }
            let place = (run.case.row.clone(), own.name.clone());
            let wanted = row.is_none_or(|row| place.0.as_deref() == Some(row))
                && column.is_none_or(|column| place.1.as_deref() == Some(column));
            if wanted && !places.contains(&place) {
                places.push(place);
            }
        }
    }
    match (places.is_empty(), elsewhere) {
        (false, _) => Ok(places),
        (true, Some(why)) => Err(format!("nothing of it runs in the simulator: {why}")),
        (true, None) => Err("no row runs in that column".into()),
    }
}

/// The case of a point, out of what its text says with the point's values: with one column.
pub fn case_of(file: &CaseFile, point: &Point) -> Option<Case> {
    let run = file
        .runs
        .iter()
        .find(|run| run.case.row == point.row && run.case.columns.iter().any(|column| column.name == point.column))?;
    let mut case = run.case.clone();
    case.columns.retain(|column| column.name == point.column);
    Some(case)
}
