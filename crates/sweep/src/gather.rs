//! From the results of tasks to one table, and its summary. The table has the rows of every point
//! that count, in the order of points and samples, and is the same bytes however its parts came
//! about.

mod columns;
mod summary;

use std::io::Write;
use std::path::{Path, PathBuf};

use altq_config::suggest::did_you_mean;
use altq_config::wildcard::fits;

use crate::SweepError;
use crate::plan::{Plan, Task};
use crate::points::Points;
use crate::rows::{Kind, Table};
use crate::store::{self, Parquet};
use columns::Columns;
pub use summary::{PointSummary, Shown, Summary};

/// Rows that are written at once: a row group of Parquet.
const GROUP: usize = 1 << 16;

/// The form of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Parquet, compressed with Snappy.
    #[default]
    Parquet,
    /// CSV with a header. A cell without a value is empty.
    Csv,
}

impl Format {
    /// The name of the table's file.
    pub fn file(self) -> &'static str {
        match self {
            Format::Parquet => "table.parquet",
            Format::Csv => "table.csv",
        }
    }
}

/// The tasks of a plan whose results are in the table, in order. With rules those behind the end of
/// their point are not.
///
/// # Errors
/// If results of some are missing ([`SweepError::Missing`]), or cannot be read.
fn that_count(plan: &Plan, folder: &Path) -> Result<Vec<Task>, SweepError> {
    let there = store::there(folder)?;
    let points = Points::new(plan);
    let (mut tasks, mut missing) = (Vec::new(), 0);
    for task in plan.tasks() {
        if points.is_in_vain(&task) {
            continue;
        }
        if !there.contains(&task.id) {
            missing += 1;
            continue;
        }
        points.read(folder, &task)?;
        tasks.push(task);
    }
    match missing {
        0 => Ok(tasks),
        missing => Err(SweepError::Missing(missing)),
    }
}

/// How many tasks have no results yet. With rules it is an upper bound.
///
/// # Errors
/// If results cannot be read.
pub fn missing(plan: &Plan, folder: &Path) -> Result<usize, SweepError> {
    match that_count(plan, folder) {
        Ok(_) => Ok(0),
        Err(SweepError::Missing(tasks)) => Ok(tasks),
        Err(error) => Err(error),
    }
}

/// Writes the table of a sweep whose tasks are done, and `summary.json`. `show`: the figures of the
/// summary, with `*` and `?`; none: those of the rules, or else the case's own, or else the rates
/// of classes.
///
/// # Errors
/// If results of tasks are missing or damaged, or if something cannot be written.
pub fn gather(plan: &Plan, folder: &Path, format: Format, show: &[String]) -> Result<Summary, SweepError> {
    let tasks = that_count(plan, folder)?;
    let mut figures: Vec<(String, Kind)> = Vec::new();
    let mut known = std::collections::HashSet::new();
    for task in &tasks {
        for (name, kind) in store::schema(&store::part(folder, task))? {
            if kind == Kind::Number && known.insert(name.clone()) {
                figures.push((name, kind));
            }
        }
    }
    let has = |form: &str| figures.is_empty() || figures.iter().any(|(name, _)| fits(form, name));
    if let Some(form) = show.iter().find(|form| !has(form)) {
        let names = figures.iter().map(|(name, _)| name.as_str());
        let hint = did_you_mean(form, names).map_or(String::new(), |hint| format!("; {hint}"));
        return Err(SweepError::Wrong(format!("{}: its runs have no figure {form:?}{hint}", plan.path.display())));
    }
    // Another word would do all runs again, so these are told, and the rest is kept.
    let mut missing: Vec<String> = plan.asked_for().filter(|form| !has(form)).map(str::to_owned).collect();
    missing.sort_unstable();
    missing.dedup();
    let columns = Columns::new(plan, figures);
    let mut summary = summary::Sums::new(plan, &columns.figures, show, missing);
    let path = folder.join(format.file());
    let mut failed = None;
    store::whole(&path, |file| {
        let mut sink = Sink::new(format, file, &columns)?;
        let mut rows = columns.empty();
        for task in &tasks {
            let part = match store::read(&store::part(folder, task), |_| true) {
                Ok(part) => part,
                Err(error) => {
                    failed = Some(error);
                    return Err(std::io::Error::other("a part cannot be read"));
                }
            };
            columns.add(&mut rows, &part, task);
            summary.add(&part, task);
            if rows.len() >= GROUP {
                sink.write(&rows)?;
                rows = columns.empty();
            }
        }
        if !rows.is_empty() {
            sink.write(&rows)?;
        }
        sink.finish()
    })
    .map_err(|error| failed.take().unwrap_or(error))?;
    let summary = summary.finish();
    let mut text = serde_json::to_vec_pretty(&summary).unwrap_or_default();
    text.push(b'\n');
    store::whole(&folder.join("summary.json"), |file| file.write_all(&text))?;
    store::sweep_up(folder);
    Ok(summary)
}

/// Where the table's file is, once it is gathered.
pub fn table(folder: &Path, format: Format) -> PathBuf {
    folder.join(format.file())
}

/// What rows are written to.
enum Sink<'a, W: Write + Send> {
    Parquet(Parquet<&'a mut W>),
    Csv(csv::Writer<&'a mut W>),
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> std::io::Error {
    std::io::Error::other(error)
}

impl<'a, W: Write + Send> Sink<'a, W> {
    fn new(format: Format, file: &'a mut W, columns: &Columns) -> std::io::Result<Sink<'a, W>> {
        let schema = columns.schema();
        match format {
            Format::Parquet => Ok(Sink::Parquet(Parquet::new(file, schema).map_err(other)?)),
            Format::Csv => {
                let mut writer = csv::Writer::from_writer(file);
                writer.write_record(schema.iter().map(|(name, _)| name)).map_err(other)?;
                Ok(Sink::Csv(writer))
            }
        }
    }

    fn write(&mut self, rows: &Table) -> std::io::Result<()> {
        match self {
            Sink::Parquet(file) => file.add(rows).map_err(other),
            Sink::Csv(writer) => {
                for row in 0..rows.len() {
                    let cells = rows.columns.iter().map(|(_, cells)| cells.text(row));
                    writer.write_record(cells).map_err(other)?;
                }
                Ok(())
            }
        }
    }

    fn finish(self) -> std::io::Result<()> {
        match self {
            Sink::Parquet(file) => file.finish().map(|_| ()).map_err(other),
            Sink::Csv(mut writer) => writer.flush(),
        }
    }
}
