//! Rows and columns of a case that is a table, and what is expected of several of them together.

use std::collections::{BTreeMap, HashSet};

use toml::Spanned;

use super::measure::{Bound, Measure};
use super::words::find;
use super::wrong::Result;
use crate::world::World;

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

/// The names in a table, to which other entries of the file refer.
pub(super) struct Names<'a> {
    /// Of its rows.
    pub rows: Vec<&'a str>,
    /// Of its columns.
    pub columns: Vec<&'a str>,
    /// Of its figures.
    pub figures: Vec<&'a str>,
}

impl Names<'_> {
    /// The place of a row.
    pub fn row(&self, name: &Spanned<String>) -> Result<usize> {
        find(name, "row", self.rows.iter().copied())
    }

    /// The place of a column.
    pub fn column(&self, name: &Spanned<String>) -> Result<usize> {
        find(name, "column", self.columns.iter().copied())
    }

    /// The place of a figure.
    pub fn figure(&self, name: &Spanned<String>) -> Result<usize> {
        find(name, "figure", self.figures.iter().copied())
    }

    /// The places of rows; all of them where none are named.
    pub fn rows(&self, names: &Option<Spanned<Vec<Spanned<String>>>>) -> Result<Vec<usize>> {
        match names {
            None => Ok((0..self.rows.len()).collect()),
            Some(list) => list.get_ref().iter().map(|name| self.row(name)).collect(),
        }
    }
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
