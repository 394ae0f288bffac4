//! A case file: one case, or a table of cases. Every column, row and sample of a table is a case of
//! its own.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use altq_config::suggest::{near_file, nearest};

use super::comparisons::comparisons;
use super::error::{CaseError, explained};
use super::measure::Figure;
use super::outside::{self, Given};
use super::table::{Comparison, Context, Names, NotReproduced, Published, Row};
use super::template::{self, Values};
use super::words::{find, unique};
use super::wrong::{Result, Stretch};
use super::{Case, check, raw};
use crate::place::Place;
use crate::world::World;
use crate::{built_in, made};

/// The most runs of one file.
const MOST_RUNS: usize = 10_000;
/// The most samples of a row.
const MOST_SAMPLES: usize = 1000;

/// A checked case file.
#[derive(Clone, Debug)]
pub struct CaseFile {
    /// Its path.
    pub path: PathBuf,
    /// The SHA-256 of its text, in hexadecimal digits.
    pub sha256: String,
    /// The case's name.
    pub name: String,
    /// What the case shows.
    pub description: String,
    /// Seed of every random choice, unless one is given on the command line.
    pub seed: u64,
    /// The values that came from outside, in the place of the usual ones.
    pub given: Given,
    /// True if samples of a column differ in values, and not only in their seeds.
    pub samples_have_values: bool,
    /// The document whose figures are shown beside the measured ones.
    pub published_in: Option<String>,
    /// Its rows, in order; empty if it is a single case.
    pub rows: Vec<Row>,
    /// The names of its columns; empty if it has one policy, given at its top.
    pub columns: Vec<String>,
    /// Conditions on several rows or columns together.
    pub comparisons: Vec<Comparison>,
    /// Published figures that are known not to come out, and the reasons.
    pub not_reproduced: Vec<NotReproduced>,
    /// Its runs: row by row, in each column by column, in each sample by sample. A file that is not
    /// a table has one run, with all its columns.
    pub runs: Vec<Run>,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The index of its row; `None` without rows.
    pub row: Option<usize>,
    /// The index of its column; `None`: all columns of the case.
    pub column: Option<usize>,
    /// The number of its sample, from 0. Each sample has the seed after that of the one before.
    pub sample: u32,
    /// The case that is run.
    pub case: Case,
}

impl CaseFile {
    /// Reads and checks a case file.
    pub fn load(path: &Path) -> std::result::Result<CaseFile, CaseError> {
        CaseFile::load_with(path, &Given::new())
    }

    /// As [`load`](CaseFile::load), with values from outside in the place of the usual ones, which
    /// stand below `[values]`.
    ///
    /// # Errors
    /// Also if the case has no such value, if nothing uses it, if its rows or columns give it, or
    /// if it is not of the usual value's type.
    pub fn load_with(path: &Path, given: &Given) -> std::result::Result<CaseFile, CaseError> {
        CaseFile::parse_with(&CaseFile::text(path)?, path, given)
    }

    /// The text of a case file.
    ///
    /// # Errors
    /// If the file cannot be read, is not UTF-8, or is a policy by its name.
    pub fn text(path: &Path) -> std::result::Result<String, CaseError> {
        read_file(path)
    }

    /// Reads and checks the case that a command line names: a file; or if there is none, a case
    /// inside the program ([`built_in`]), by its name or by its path in the project's source
    /// folder; `-` is standard input.
    pub fn named(name: &Path) -> std::result::Result<CaseFile, CaseError> {
        CaseFile::named_with(name, &Given::new())
    }

    /// As [`named`](CaseFile::named), with values from outside
    /// ([`load_with`](CaseFile::load_with)).
    pub fn named_with(name: &Path, given: &Given) -> std::result::Result<CaseFile, CaseError> {
        if name == Path::new("-") {
            let path = Path::new(altq_config::STANDARD_INPUT);
            return CaseFile::parse_with(&text_of(altq_config::read_standard_input(), path)?, path, given);
        }
        CaseFile::load_with(&CaseFile::find(name)?, given)
    }

    /// The path of the case that a command line names, as [`load`](CaseFile::load) takes it: a
    /// file, or a case inside the program.
    ///
    /// # Errors
    /// If neither is there.
    pub fn find(name: &Path) -> std::result::Result<PathBuf, CaseError> {
        on_disk_or_inside(name)
            .map_err(|error| CaseError::plain(name, format!("it cannot be read: {error}{}", instead(name))))
    }

    /// Checks the bytes of a case file that were read elsewhere. As of [`CaseFile::parse`] for the
    /// rest.
    pub fn read(bytes: std::io::Result<Vec<u8>>, path: &Path) -> std::result::Result<CaseFile, CaseError> {
        CaseFile::parse(&text_of(bytes, path)?, path)
    }

    /// Checks a case file's text. Messages name the file by `path`, and files that it names are
    /// looked for in the same folder.
    pub fn parse(text: &str, path: &Path) -> std::result::Result<CaseFile, CaseError> {
        CaseFile::parse_with(text, path, &Given::new())
    }

    /// As [`parse`](CaseFile::parse), with values from outside as in
    /// [`load_with`](CaseFile::load_with).
    pub fn parse_with(text: &str, path: &Path, given: &Given) -> std::result::Result<CaseFile, CaseError> {
        let head: raw::Head = toml::from_str(text).map_err(|error| {
            let (span, message) = explained(text, &error);
            CaseError::at(path, text, span, message)
        })?;
        read(head, text, path, given).map_err(|(span, message)| CaseError::at(path, text, span, message))
    }

    /// True if it has rows, or columns that differ in more than their policies. Then every run has
    /// one column.
    pub fn is_table(&self) -> bool {
        self.runs.iter().any(|run| run.column.is_some() || run.row.is_some())
    }

    /// Why nothing of it makes sense in a world; `None` if something does.
    pub fn elsewhere(&self, world: World) -> Option<&str> {
        let mut columns =
            self.runs.iter().flat_map(|run| run.case.columns.iter().map(|column| run.case.elsewhere(column, world)));
        let first = columns.next()??;
        columns.all(|why| why.is_some()).then_some(first)
    }

    /// How often the lab runs each row and column, in turns.
    pub fn turns(&self) -> u32 {
        self.runs.first().map_or(1, |run| run.case.turns)
    }

    /// The index of the row with this name.
    pub fn row(&self, name: &str) -> Option<usize> {
        self.rows.iter().position(|row| row.name == name)
    }

    /// The index of the column with this name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    /// The names of its rows, columns and figures.
    fn names(&self) -> Names<'_> {
        Names {
            rows: self.rows.iter().map(|row| row.name.as_str()).collect(),
            columns: self.columns.iter().map(String::as_str).collect(),
            figures: self.figures().iter().map(|figure| figure.name.as_str()).collect(),
        }
    }

    /// The figures of the table, taken from its first run.
    pub fn figures(&self) -> &[Figure] {
        self.runs.first().map_or(&[], |run| &run.case.figures)
    }

    /// Why a published figure does not come out in this row and column, if that is known.
    pub fn excuse(&self, row: usize, column: usize, figure: &str) -> Option<&str> {
        let about = |n: &&NotReproduced| n.figure == figure && n.column == column && n.rows.contains(&row);
        self.not_reproduced.iter().find(about).map(|n| n.reason.as_str())
    }
}

impl Case {
    /// Reads and checks a case file.
    pub fn load(path: &Path) -> std::result::Result<Case, CaseError> {
        Case::parse(&read_file(path)?, path)
    }

    /// Checks a case's text. Messages name the file by `path`, and files that it names are looked
    /// for in the same folder.
    pub fn parse(text: &str, path: &Path) -> std::result::Result<Case, CaseError> {
        let mut file = CaseFile::parse(text, path)?;
        match (file.runs.pop(), file.runs.is_empty()) {
            (Some(run), true) if !file.is_table() => Ok(run.case),
            _ => Err(CaseError::plain(
                path,
                "it has rows, or columns with values of their own; only `altq sim` can run it".into(),
            )),
        }
    }
}

/// The path of a case that is named: itself if a file has that name, else that of a case inside the
/// program. An error if neither is there.
fn on_disk_or_inside(name: &Path) -> std::io::Result<PathBuf> {
    if built_in::is_inside(name) {
        return Ok(name.to_owned());
    }
    let inside = || name.to_str().and_then(built_in::case);
    match std::fs::metadata(name) {
        // A folder is no case, and may well have the name of one.
        Ok(kind) if kind.is_dir() => Ok(inside().unwrap_or_else(|| name.to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => inside().ok_or(error),
        // Also a file that cannot be read: the error says why.
        Ok(_) | Err(_) => Ok(name.to_owned()),
    }
}

/// What is added to the error about a file that is not there.
fn instead(name: &Path) -> String {
    if let Some(near) = near_file(name) {
        return format!("; did you mean `{}`?", near.display());
    }
    let Some(word) = name.to_str().filter(|_| built_in::files().next().is_some()) else { return String::new() };
    let near = nearest(word, built_in::cases().map(|(name, _)| name));
    let hint = near.map_or("`altq examples` lists them".to_owned(), |near| format!("did you mean `{near}`?"));
    format!("; nor is there a case of this name inside altq: {hint}")
}

/// The text of a file.
fn read_file(path: &Path) -> std::result::Result<String, CaseError> {
    text_of(built_in::read(path), path)
}

/// The text of what was read.
fn text_of(bytes: std::io::Result<Vec<u8>>, path: &Path) -> std::result::Result<String, CaseError> {
    let text = bytes.map_err(|error| CaseError::plain(path, format!("it cannot be read: {error}")))?;
    if path.extension().is_some_and(|extension| extension == "altq" || extension == "conf") {
        let why = "it is a policy by its name, and this command runs a case, a .toml file that names the policy in \
                   policy_file (docs/cases.md); `altq check` reads a policy";
        return Err(CaseError::plain(path, why.into()));
    }
    String::from_utf8(text)
        .map_err(|error| CaseError::plain(path, format!("byte {} is not UTF-8 text", error.utf8_error().valid_up_to())))
}

fn read(mut head: raw::Head, text: &str, path: &Path, given: &Given) -> Result<CaseFile> {
    outside::put(&mut head, given, text)?;
    let document = head.published_in.as_ref().map(|d| d.get_ref().clone());
    let mut seen = HashSet::new();
    let mut rows = Vec::new();
    for row in &head.rows {
        let row = row.get_ref();
        unique(&mut seen, &row.name, "row")?;
        let mut published = BTreeMap::new();
        for (figure, given) in &row.published {
            let (value, line) = given.get_ref();
            let Some(document) = &document else {
                return Err((
                    Some(figure.span()),
                    "published where? Write published_in at the top, the document's name".into(),
                ));
            };
            if !value.is_finite() {
                return Err((Some(given.span()), "a published figure is a number".into()));
            }
            let line = match line {
                raw::Number::Whole(line) => format!("line {line}"),
                raw::Number::Text(lines) => format!("lines {lines}"),
            };
            published
                .insert(figure.get_ref().clone(), Published { value: *value, source: format!("{document}, {line}") });
        }
        rows.push(Row { name: row.name.get_ref().clone(), published });
    }
    let mut seen = HashSet::new();
    let mut columns = Vec::new();
    for column in &head.columns {
        unique(&mut seen, &column.get_ref().name, "column")?;
        columns.push(column.get_ref().name.get_ref().clone());
    }
    check_values(&head)?;
    let mut file = CaseFile {
        path: path.to_owned(),
        sha256: made::sha256(text.as_bytes()),
        name: head.name.get_ref().clone(),
        description: head.description.clone(),
        seed: head.seed,
        given: given.clone(),
        samples_have_values: head.columns.iter().any(|column| {
            let samples = column.get_ref().samples.as_ref().map(|samples| samples.get_ref());
            matches!(samples, Some(raw::Samples::Values(_)))
        }),
        published_in: document,
        comparisons: Vec::new(),
        not_reproduced: Vec::new(),
        rows,
        columns,
        runs: Vec::new(),
    };
    file.not_reproduced = not_reproduced(&head, &file.names())?;
    let table = !head.rows.is_empty()
        || head.columns.iter().any(|c| c.get_ref().samples.is_some() || !c.get_ref().values.is_empty());
    file.runs = runs(&head, &file, table, text, path)?;
    file.comparisons = comparisons(&head, &file.names(), table)?;
    // Rows and `not_reproduced` may only name figures that exist.
    let names = file.names();
    for row in &head.rows {
        for figure in row.get_ref().published.keys() {
            names.figure(figure)?;
        }
    }
    for excuse in &head.not_reproduced {
        names.figure(&excuse.get_ref().figure)?;
    }
    Ok(file)
}

/// If one column gives a name a value, every other column must give it one, or the top of the file
/// must. The same holds for rows, and for the samples of a column.
fn check_values(head: &raw::Head) -> Result<()> {
    fn same(what: &str, sets: &[(&Values, Range<usize>)], top: &Values) -> Result<()> {
        for (values, _) in sets {
            for name in values.keys() {
                if let Some((_, place)) =
                    sets.iter().find(|(other, _)| !other.contains_key(name) && !top.contains_key(name))
                {
                    let message = format!(
                        "other {what}s give {name:?} a value; give it one here, or a usual one in [values] at the top"
                    );
                    return Err((Some(place.clone()), message));
                }
            }
        }
        Ok(())
    }
    for reserved in ["row", "column"] {
        if head.values.contains_key(reserved) {
            return Err((None, format!("[values]: {reserved:?} always has the name of the {reserved} as its value")));
        }
    }
    let columns: Vec<_> = head.columns.iter().map(|c| (&c.get_ref().values, c.get_ref().name.span())).collect();
    same("column", &columns, &head.values)?;
    let rows: Vec<_> = head.rows.iter().map(|r| (&r.get_ref().values, r.get_ref().name.span())).collect();
    let mut top = head.values.clone();
    if let Some((first, _)) = columns.first() {
        top.extend((*first).clone());
    }
    same("row", &rows, &top)?;
    for column in &head.columns {
        if let Some(raw::Samples::Values(list)) = column.get_ref().samples.as_ref().map(|s| s.get_ref()) {
            let place = column.get_ref().samples.as_ref().map_or(0..0, |s| s.span());
            let sets: Vec<_> = list.iter().map(|values| (values, place.clone())).collect();
            same("sample", &sets, &top)?;
            // Other columns use the same names.
            let elsewhere = |name: &String| {
                let of = |c: &raw::HeadColumn| match c.samples.as_ref().map(|s| s.get_ref()) {
                    Some(raw::Samples::Values(list)) => list.iter().all(|v| v.contains_key(name)) && !list.is_empty(),
                    _ => false,
                };
                head.columns.iter().all(|c| of(c.get_ref()) || c.get_ref().values.contains_key(name))
            };
            if let Some(name) =
                list.first().and_then(|v| v.keys().find(|n| !head.values.contains_key(*n) && !elsewhere(n)))
            {
                return Err((
                    Some(place),
                    format!("columns without such samples need a value for {name:?}: give it a usual one in [values]"),
                ));
            }
        }
    }
    Ok(())
}

fn runs(head: &raw::Head, file: &CaseFile, table: bool, text: &str, path: &Path) -> Result<Vec<Run>> {
    if !table {
        return Ok(vec![Run {
            row: None,
            column: None,
            sample: 0,
            case: one(head, file, None, None, None, text, path)?,
        }]);
    }
    let places = |n: usize| if n == 0 { vec![None] } else { (0..n).map(Some).collect() };
    let mut list = Vec::new();
    for row in places(head.rows.len()) {
        for column in places(head.columns.len()) {
            let wanted = row.and_then(|r| head.rows[r].get_ref().columns.as_ref());
            if let (Some(wanted), Some(column)) = (wanted, column) {
                let mut here = false;
                for name in wanted.get_ref() {
                    here |= file.names().column(name)? == column;
                }
                if !here {
                    continue;
                }
            }
            let samples = column.and_then(|c| head.columns[c].get_ref().samples.as_ref());
            let sets: Vec<Option<&Values>> = match samples.map(|s| (s, s.get_ref())) {
                None => vec![None],
                Some((_, raw::Samples::Seeds(n))) if (1..=MOST_SAMPLES as u32).contains(n) => vec![None; *n as usize],
                Some((_, raw::Samples::Values(list))) if (1..=MOST_SAMPLES).contains(&list.len()) => {
                    list.iter().map(Some).collect()
                }
                Some((at, _)) => return Err((Some(at.span()), format!("samples are 1 to {MOST_SAMPLES}"))),
            };
            for (sample, values) in sets.into_iter().enumerate() {
                if list.len() >= MOST_RUNS {
                    return Err((None, format!("rows, columns and samples make more than {MOST_RUNS} runs")));
                }
                let case = one(head, file, row, column, values, text, path)?;
                list.push(Run { row, column, sample: sample as u32, case });
            }
        }
    }
    if list.is_empty() {
        return Err((None, "no row runs in any column".into()));
    }
    Ok(list)
}

fn one(
    head: &raw::Head,
    file: &CaseFile,
    row: Option<usize>,
    column: Option<usize>,
    sample: Option<&Values>,
    text: &str,
    path: &Path,
) -> Result<Case> {
    let mut values = head.values.clone();
    let name = |names: Option<&str>| toml::Value::String(names.unwrap_or_default().to_owned());
    let (row_name, column_name) = (row.map(|r| file.rows[r].name.as_str()), column.map(|c| file.columns[c].as_str()));
    if let Some(column) = column {
        values.extend(head.columns[column].get_ref().values.clone());
    }
    if let Some(row) = row {
        values.extend(head.rows[row].get_ref().values.clone());
    }
    values.extend(sample.cloned().unwrap_or_default());
    values.insert("row".into(), name(row_name));
    values.insert("column".into(), name(column_name));
    template::look_up(&mut values);
    // Adds row and column to a message.
    let whose = |message: String| match (row_name, column_name) {
        (None, None) => message,
        (Some(row), None) => format!("row {row}: {message}"),
        (None, Some(column)) => format!("column {column}: {message}"),
        (Some(row), Some(column)) => format!("row {row}, column {column}: {message}"),
    };
    let filled = template::fill(text, &values).map_err(|(span, message)| {
        let name = text.get(span.clone()).and_then(template::alone);
        let note = outside::note(&file.given, name);
        (Some(span), whose(message + &note))
    })?;
    let place = |span: Stretch| span.map(|span| filled.original(&span));
    // Adds a value from outside to a message about the place where it stands.
    let noted = |span: &Stretch, message: String| {
        let name = span.as_ref().and_then(|span| filled.value_in(span));
        whose(message + &outside::note(&file.given, name))
    };
    let raw: raw::Case = match toml::from_str(&filled.text) {
        Ok(raw) => raw,
        Err(error) => {
            let (span, message) = explained(&filled.text, &error);
            let message = noted(&span, message);
            return Err((place(span), message));
        }
    };
    let flows: Option<Vec<String>> = match row.and_then(|r| head.rows[r].get_ref().flows.as_ref()) {
        None => None,
        Some(list) => {
            let names = raw.flows.iter().map(|f| f.get_ref().name.get_ref().as_str());
            for name in list.get_ref() {
                find(name, "flow", names.clone())?;
            }
            Some(list.get_ref().iter().map(|f| f.get_ref().clone()).collect())
        }
    };
    let excused = |n: &&NotReproduced| Some(n.column) == column && row.is_some_and(|row| n.rows.contains(&row));
    let context = Context {
        row: row.map(|r| &file.rows[r]),
        rows: &file.rows,
        columns: &file.columns,
        column: column_name,
        flows: flows.as_deref(),
        not_reproduced: file.not_reproduced.iter().filter(excused).map(|n| n.figure.as_str()).collect(),
        place: &|span| Place::of(text, filled.original(span).start),
    };
    check::check(raw, path, &context).map_err(|(span, message)| {
        let message = noted(&span, message);
        (place(span), message)
    })
}

/// The published figures that are known not to come out.
fn not_reproduced(head: &raw::Head, names: &Names<'_>) -> Result<Vec<NotReproduced>> {
    let mut list = Vec::new();
    for excuse in &head.not_reproduced {
        let excuse = excuse.get_ref();
        if excuse.reason.get_ref().trim().is_empty() {
            return Err((Some(excuse.reason.span()), "why not?".into()));
        }
        list.push(NotReproduced {
            figure: excuse.figure.get_ref().clone(),
            column: names.column(&excuse.column)?,
            rows: names.rows(&excuse.rows)?,
            reason: excuse.reason.get_ref().trim().to_owned(),
        });
    }
    Ok(list)
}
