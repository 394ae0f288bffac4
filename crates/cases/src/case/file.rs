//! A case file: one case, or a table of them. Every column, row and sample of a table is a case of
//! its own.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;

use super::measure::{Bound, Measure};
use super::template::{self, Values};
use super::{Case, CaseError, check, raw};
use crate::world::World;
use altq_config::suggest::nearest;

type Place = Option<Range<usize>>;
type Result<T> = std::result::Result<T, (Place, String)>;

/// Most runs of one file.
const MOST_RUNS: usize = 10_000;
/// Most samples of a row.
const MOST_SAMPLES: usize = 1000;

/// A checked case file.
#[derive(Clone, Debug)]
pub struct CaseFile {
    /// Where it is.
    pub path: PathBuf,
    /// The case's name.
    pub name: String,
    /// What it shows.
    pub description: String,
    /// Seed of every random choice, unless one is given on the command line.
    pub seed: u64,
    /// The document whose figures are shown beside the measured ones.
    pub published_in: Option<String>,
    /// Its rows, in order; none where it is a single case.
    pub rows: Vec<Row>,
    /// Names of its columns; none where it has one policy, named at its top.
    pub columns: Vec<String>,
    /// What must be true of several rows or columns together.
    pub comparisons: Vec<Comparison>,
    /// Published figures that are known not to come out, and why.
    pub not_reproduced: Vec<NotReproduced>,
    /// What runs, row by row, column by column, sample by sample. A file that is no table has one
    /// run, of all its columns.
    pub runs: Vec<Run>,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Figures that were published for it, by the figure's name.
    pub published: BTreeMap<String, Published>,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The number, in the figure's unit, as printed.
    pub value: f64,
    /// Document and line.
    pub source: String,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its row, by place.
    pub row: Option<usize>,
    /// Its column, by place; `None`: all columns of the case.
    pub column: Option<usize>,
    /// Which of its samples, from 0. Each has the seed after that of the one before.
    pub sample: u32,
    /// What runs.
    pub case: Case,
}

/// Something that must be true of several rows, or columns, together.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Its name.
    pub name: String,
    /// The figure that it is about.
    pub figure: String,
    /// What is judged.
    pub judged: Judged,
    /// What it must be.
    pub expected: f64,
    /// How far off it may be.
    pub tolerance: f64,
    /// On which side.
    pub bound: Bound,
    /// Where that comes from.
    pub source: String,
    /// The only world in which it is judged; `None`: both.
    pub world: Option<World>,
}

/// What a [`Comparison`] judges. Rows and columns by their places.
#[derive(Clone, Debug, PartialEq)]
pub enum Judged {
    /// The figure of the first row over that of the second, in a column (`None`: in every one).
    Rows(Option<usize>, usize, usize),
    /// The figure of the first column over that of the second, in these rows.
    Columns(usize, usize, Vec<usize>),
    /// The worst step from a row to the next in a column (`None`: in every one), where all are to
    /// rise (or, if false, to fall).
    Monotone(Option<usize>, bool, Vec<usize>),
}

impl Comparison {
    /// What its number is.
    pub fn measure(&self) -> Measure {
        match self.judged {
            Judged::Monotone(..) => Measure::Monotone,
            _ => Measure::Ratio,
        }
    }

    /// Whether a measured figure will do.
    pub fn holds(&self, measured: f64) -> bool {
        self.bound.holds(measured, self.expected, self.tolerance)
    }
}

/// A published figure that is known not to come out.
#[derive(Clone, Debug, PartialEq)]
pub struct NotReproduced {
    /// The figure.
    pub figure: String,
    /// The column, by its place.
    pub column: usize,
    /// The rows, by their places.
    pub rows: Vec<usize>,
    /// Why.
    pub reason: String,
}

/// What a run's case is checked with besides its text.
pub(super) struct Context<'a> {
    /// The row, and the figures published for it.
    pub row: Option<&'a Row>,
    /// All rows' names.
    pub rows: &'a [Row],
    /// The only column that is wanted; `None`: all.
    pub column: Option<&'a str>,
    /// All columns' names.
    pub columns: &'a [String],
    /// Flows that run in this row; `None`: all.
    pub flows: Option<&'a [String]>,
    /// Figures of this run's row and column that do not come out.
    pub not_reproduced: HashSet<&'a str>,
}

impl CaseFile {
    /// Reads and checks a case file.
    pub fn load(path: &Path) -> std::result::Result<CaseFile, CaseError> {
        let text =
            std::fs::read(path).map_err(|error| CaseError::plain(path, format!("it cannot be read: {error}")))?;
        let text = String::from_utf8(text).map_err(|error| {
            CaseError::plain(path, format!("byte {} is not UTF-8 text", error.utf8_error().valid_up_to()))
        })?;
        CaseFile::parse(&text, path)
    }

    /// Checks a case file's text. `path` is what messages call it; files that it names are looked
    /// for beside that.
    pub fn parse(text: &str, path: &Path) -> std::result::Result<CaseFile, CaseError> {
        let head: raw::Head = toml::from_str(text)
            .map_err(|error| CaseError::at(path, text, error.span(), error.message().to_string()))?;
        read(head, text, path).map_err(|(span, message)| CaseError::at(path, text, span, message))
    }

    /// True if it has rows, or columns that differ in more than their policies: then every run has
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

    /// How often the lab runs each row and column, in turn.
    pub fn turns(&self) -> u32 {
        self.runs.first().map_or(1, |run| run.case.turns)
    }

    /// The row of a name.
    pub fn row(&self, name: &str) -> Option<usize> {
        self.rows.iter().position(|row| row.name == name)
    }

    /// The column of a name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    /// The figures of the table, as its first run has them.
    pub fn figures(&self) -> &[super::Figure] {
        self.runs.first().map_or(&[], |run| &run.case.figures)
    }

    /// Why a published figure does not come out in a column, if that is known.
    pub fn excuse(&self, row: usize, column: usize, figure: &str) -> Option<&str> {
        let about = |n: &&NotReproduced| n.figure == figure && n.column == column && n.rows.contains(&row);
        self.not_reproduced.iter().find(about).map(|n| n.reason.as_str())
    }
}

fn named<'a>(name: &Spanned<String>, what: &str, names: impl Iterator<Item = &'a str> + Clone) -> Result<usize> {
    check::find(name, what, names)
}

fn read(head: raw::Head, text: &str, path: &Path) -> Result<CaseFile> {
    let document = head.published_in.as_ref().map(|d| d.get_ref().clone());
    let mut seen = HashSet::new();
    let mut rows = Vec::new();
    for row in &head.rows {
        let row = row.get_ref();
        check::unique(&mut seen, &row.name, "row")?;
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
        check::unique(&mut seen, &column.get_ref().name, "column")?;
        columns.push(column.get_ref().name.get_ref().clone());
    }
    check_values(&head)?;
    let mut file = CaseFile {
        path: path.to_owned(),
        name: head.name.get_ref().clone(),
        description: head.description.clone(),
        seed: head.seed,
        published_in: document,
        comparisons: Vec::new(),
        not_reproduced: Vec::new(),
        rows,
        columns,
        runs: Vec::new(),
    };
    file.not_reproduced = not_reproduced(&head, &file)?;
    let table = !head.rows.is_empty()
        || head.columns.iter().any(|c| c.get_ref().samples.is_some() || !c.get_ref().values.is_empty());
    file.runs = runs(&head, &file, table, text, path)?;
    file.comparisons = comparisons(&head, &file, table)?;
    // What a row or an excuse says of a figure is of one that there is.
    let figures: Vec<&str> = file.figures().iter().map(|f| f.name.as_str()).collect();
    for row in &head.rows {
        for figure in row.get_ref().published.keys() {
            named(figure, "figure", figures.iter().copied())?;
        }
    }
    for excuse in &head.not_reproduced {
        named(&excuse.get_ref().figure, "figure", figures.iter().copied())?;
    }
    Ok(file)
}

/// A name that a column gives a value must have one in every column, or at the top; the same for
/// rows, and for samples of a column.
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
            return Err((None, format!("[values]: {reserved:?} is always there, the name of the {reserved}")));
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
            // Other columns see the same names.
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
                    here |= named(name, "column", file.columns.iter().map(String::as_str))? == column;
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
    // Where it stands in the table, for messages.
    let whose = |message: String| match (row_name, column_name) {
        (None, None) => message,
        (Some(row), None) => format!("row {row}: {message}"),
        (None, Some(column)) => format!("column {column}: {message}"),
        (Some(row), Some(column)) => format!("row {row}, column {column}: {message}"),
    };
    let filled = template::fill(text, &values).map_err(|(span, message)| (Some(span), whose(message)))?;
    let place = |span: Place| span.map(|span| filled.original(&span));
    let raw: raw::Case = match toml::from_str(&filled.text) {
        Ok(raw) => raw,
        Err(error) => return Err((place(error.span()), whose(error.message().to_string()))),
    };
    let flows: Option<Vec<String>> = match row.and_then(|r| head.rows[r].get_ref().flows.as_ref()) {
        None => None,
        Some(list) => {
            let names = raw.flows.iter().map(|f| f.get_ref().name.get_ref().as_str());
            for name in list.get_ref() {
                named(name, "flow", names.clone())?;
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
    };
    check::check(raw, path, &context).map_err(|(span, message)| (place(span), whose(message)))
}

fn not_reproduced(head: &raw::Head, file: &CaseFile) -> Result<Vec<NotReproduced>> {
    let mut list = Vec::new();
    for excuse in &head.not_reproduced {
        let excuse = excuse.get_ref();
        if excuse.reason.get_ref().trim().is_empty() {
            return Err((Some(excuse.reason.span()), "why not?".into()));
        }
        list.push(NotReproduced {
            figure: excuse.figure.get_ref().clone(),
            column: named(&excuse.column, "column", file.columns.iter().map(String::as_str))?,
            rows: places(&excuse.rows, file)?,
            reason: excuse.reason.get_ref().trim().to_owned(),
        });
    }
    Ok(list)
}

/// Rows by their names; all of them where none are named.
fn places(rows: &Option<Spanned<Vec<Spanned<String>>>>, file: &CaseFile) -> Result<Vec<usize>> {
    match rows {
        None => Ok((0..file.rows.len()).collect()),
        Some(list) => {
            list.get_ref().iter().map(|name| named(name, "row", file.rows.iter().map(|r| r.name.as_str()))).collect()
        }
    }
}

fn comparisons(head: &raw::Head, file: &CaseFile, table: bool) -> Result<Vec<Comparison>> {
    let mut list = Vec::new();
    for whole in &head.shape {
        let shape = whole.get_ref();
        let bad = |message: &str| Err((Some(whole.span()), message.to_owned()));
        if !table {
            return bad("a shape is of rows or of columns, and the case has neither");
        }
        named(&shape.figure, "figure", file.figures().iter().map(|f| f.name.as_str()))?;
        let column = |name: &Spanned<String>| named(name, "column", file.columns.iter().map(String::as_str));
        let row = |name: &Spanned<String>| named(name, "row", file.rows.iter().map(|r| r.name.as_str()));
        let of = shape.column.as_ref().map(column).transpose()?;
        let (judged, unit) = match (&shape.ratio, &shape.columns, &shape.monotone) {
            (Some(pair), None, None) => {
                let (first, second) = pair.get_ref();
                if let Some(rows) = &shape.rows {
                    return Err((Some(rows.span()), "ratio already names its rows".into()));
                }
                (Judged::Rows(of, row(first)?, row(second)?), 1.0)
            }
            (None, Some(pair), None) => {
                let (first, second) = pair.get_ref();
                if let Some(at) = &shape.column {
                    return Err((Some(at.span()), "columns already names them".into()));
                }
                (Judged::Columns(column(first)?, column(second)?, places(&shape.rows, file)?), 1.0)
            }
            (None, None, Some(word)) => {
                let rising = match word.get_ref().as_str() {
                    "rising" => true,
                    "falling" => false,
                    other => {
                        let hint = nearest(other, ["rising", "falling"]).map(|n| format!("; did you mean {n:?}?"));
                        let message = format!("figures are \"rising\" or \"falling\"{}", hint.unwrap_or_default());
                        return Err((Some(word.span()), message));
                    }
                };
                if let Some(at) = shape.expected.as_ref().map(|e| e.span()).or(shape.bound.as_ref().map(|b| b.span())) {
                    return Err((
                        Some(at),
                        "what is monotone expects nothing more; write how far a step may go back as tolerance".into(),
                    ));
                }
                (Judged::Monotone(of, rising, places(&shape.rows, file)?), 0.0)
            }
            _ => return bad("what about the figure? Write one of ratio (two rows), columns (two of them), monotone"),
        };
        let monotone = unit == 0.0;
        let number = |figure: &Spanned<raw::Figure>, of: f64| match figure.get_ref() {
            raw::Figure::Number(n) if n.is_finite() && *n >= 0.0 => Ok(*n),
            raw::Figure::Text(text) => match text.trim().strip_suffix('%').map(|n| n.trim().parse::<f64>()) {
                Some(Ok(n)) if n.is_finite() && n >= 0.0 => Ok(of * n / 100.0),
                _ => Err((Some(figure.span()), "a ratio is a number or a percentage".into())),
            },
            raw::Figure::Number(_) => Err((Some(figure.span()), "a figure is a number from 0".into())),
        };
        let expected = match &shape.expected {
            Some(expected) => number(expected, 1.0)?,
            None if monotone => 0.0,
            None => return bad("what must the ratio be? Write expected"),
        };
        let bound = match &shape.bound {
            None if monotone => Bound::AtLeast,
            None => Bound::Within,
            Some(word) => super::expect::bound(word)?,
        };
        let tolerance = match &shape.tolerance {
            Some(tolerance) => number(tolerance, if monotone { 1.0 } else { expected })?,
            None if bound == Bound::Within => return bad("how far off may it be? Write a tolerance"),
            None => 0.0,
        };
        if shape.source.get_ref().trim().is_empty() {
            return Err((Some(shape.source.span()), "where does the expected figure come from?".into()));
        }
        list.push(Comparison {
            name: shape.name.get_ref().clone(),
            figure: shape.figure.get_ref().clone(),
            world: shape.world.as_ref().map(super::check::world).transpose()?,
            judged,
            expected,
            tolerance,
            bound,
            source: shape.source.get_ref().clone(),
        });
    }
    Ok(list)
}
