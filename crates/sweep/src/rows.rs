//! Rows of results as columns of cells, which is how they are written.
//!
//! A row is one run: the values of its point, the row and the column of the case if it has any,
//! `sample` from 0, `seed`, and either `error` or the figures.

use std::collections::HashMap;

use crate::plan::Point;
use crate::run::Ran;

/// The columns that every table of results has, beside values and figures.
pub const OWN: [&str; 5] = ["row", "column", "sample", "seed", "error"];

/// The kind of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Texts, or nothing.
    Text,
    /// Whole numbers.
    Whole,
    /// Numbers, or nothing.
    Number,
}

/// The cells of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cells {
    /// Texts, or nothing.
    Text(Vec<Option<String>>),
    /// Whole numbers.
    Whole(Vec<i64>),
    /// Numbers, or nothing.
    Number(Vec<Option<f64>>),
}

impl Cells {
    /// No cells, of this kind.
    pub fn of(kind: Kind) -> Cells {
        match kind {
            Kind::Text => Cells::Text(Vec::new()),
            Kind::Whole => Cells::Whole(Vec::new()),
            Kind::Number => Cells::Number(Vec::new()),
        }
    }

    /// Their kind.
    pub fn kind(&self) -> Kind {
        match self {
            Cells::Text(_) => Kind::Text,
            Cells::Whole(_) => Kind::Whole,
            Cells::Number(_) => Kind::Number,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Cells::Text(cells) => cells.len(),
            Cells::Whole(cells) => cells.len(),
            Cells::Number(cells) => cells.len(),
        }
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers; `None` of texts and whole numbers.
    pub fn numbers(&self) -> Option<&[Option<f64>]> {
        match self {
            Cells::Number(cells) => Some(cells),
            _ => None,
        }
    }

    /// The texts; `None` of numbers.
    pub fn texts(&self) -> Option<&[Option<String>]> {
        match self {
            Cells::Text(cells) => Some(cells),
            _ => None,
        }
    }

    /// A cell as CSV has it: a number as short as it can be read again, nothing where there is no
    /// value.
    pub fn text(&self, row: usize) -> String {
        let cell = match self {
            Cells::Text(cells) => cells.get(row).cloned().flatten(),
            Cells::Whole(cells) => cells.get(row).map(i64::to_string),
            Cells::Number(cells) => cells.get(row).copied().flatten().map(|number| number.to_string()),
        };
        cell.unwrap_or_default()
    }

    /// Adds the first `count` cells of a column of the same kind.
    pub fn take_from(&mut self, other: &Cells, count: usize) {
        match (self, other) {
            (Cells::Text(own), Cells::Text(cells)) => own.extend(cells.iter().take(count).cloned()),
            (Cells::Whole(own), Cells::Whole(cells)) => own.extend(cells.iter().take(count)),
            (Cells::Number(own), Cells::Number(cells)) => own.extend(cells.iter().take(count)),
            // A name has one kind everywhere (`rows`, below).
            _ => {}
        }
    }

    /// Adds nothing until there are `count` cells.
    pub fn pad(&mut self, count: usize) {
        match self {
            Cells::Text(cells) => cells.resize(count, None),
            Cells::Whole(cells) => cells.resize(count, 0),
            Cells::Number(cells) => cells.resize(count, None),
        }
    }
}

/// Rows of results, column by column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Names and cells; all columns have the same number of cells.
    pub columns: Vec<(String, Cells)>,
}

impl Table {
    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, |(_, cells)| cells.len())
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&Cells> {
        self.columns.iter().find(|(own, _)| own == name).map(|(_, cells)| cells)
    }

    /// Names and kinds of the columns.
    pub fn schema(&self) -> Vec<(String, Kind)> {
        self.columns.iter().map(|(name, cells)| (name.clone(), cells.kind())).collect()
    }
}

/// Rows of runs as a table: the columns of `names` (names of values), then those of every table,
/// then the figures in the order in which they first come. Each run is given with its point.
pub fn table(names: &[String], runs: &[(&Point, Ran)]) -> Table {
    let mut columns: Vec<(String, Cells)> = Vec::new();
    for name in names {
        let word = |point: &Point| point.values.iter().find(|(own, _)| own == name).map(|(_, word)| word.clone());
        columns.push((name.clone(), Cells::Text(runs.iter().map(|(point, _)| word(point)).collect())));
    }
    let texts = |what: &dyn Fn(&Point, &Ran) -> Option<String>| {
        Cells::Text(runs.iter().map(|(point, ran)| what(point, ran)).collect())
    };
    columns.push(("row".into(), texts(&|point, _| point.row.clone())));
    columns.push(("column".into(), texts(&|point, _| point.column.clone())));
    columns.push(("sample".into(), Cells::Whole(runs.iter().map(|(_, ran)| i64::from(ran.sample)).collect())));
    // A seed is any 64 bits; results have it as the signed number of the same bits.
    columns.push(("seed".into(), Cells::Whole(runs.iter().map(|(_, ran)| ran.seed as i64).collect())));
    columns.push(("error".into(), texts(&|_, ran| ran.outcome.as_ref().err().cloned())));
    let first = columns.len();
    let mut at: HashMap<&str, usize> = HashMap::new();
    for (row, (_, ran)) in runs.iter().enumerate() {
        let Ok(figures) = &ran.outcome else { continue };
        for (name, value) in figures.names.iter().zip(&figures.values) {
            let place = *at.entry(name.as_str()).or_insert_with(|| {
                columns.push((name.clone(), Cells::Number(Vec::new())));
                columns.len() - 1
            });
            if let Some((_, Cells::Number(cells))) = columns.get_mut(place) {
                cells.resize(row, None);
                cells.push(*value);
            }
        }
    }
    columns.iter_mut().skip(first).for_each(|(_, cells)| cells.pad(runs.len()));
    Table { columns }
}
