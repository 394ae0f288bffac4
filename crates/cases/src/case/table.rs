//! Rows and columns of a case that is a table, and conditions on several of them together.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use toml::Spanned;

use super::class::ClassName;
use super::measure::{Bound, Measure};
use super::words::find;
use super::wrong::Result;
use crate::place::Place;
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
    /// The number as printed, in the figure's unit.
    pub value: f64,
    /// Document and line.
    pub source: String,
}

/// A condition on several rows, or columns, together.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Its name.
    pub name: String,
    /// The figure that it is about.
    pub figure: String,
    /// The value that is judged.
    pub judged: Judged,
    /// The expected value.
    pub expected: f64,
    /// How far the value may be from it.
    pub tolerance: f64,
    /// On which side it may be.
    pub bound: Bound,
    /// Where the expected value comes from.
    pub source: String,
    /// The only world in which it is judged; `None`: both.
    pub world: Option<World>,
}

/// The value that a [`Comparison`] judges. Rows and columns are given by their indices.
#[derive(Clone, Debug, PartialEq)]
pub enum Judged {
    /// The figure of the first row divided by that of the second, in a column (`None`: in every
    /// one).
    Rows(Option<usize>, usize, usize),
    /// The figure of the first column divided by that of the second, in these rows.
    Columns(usize, usize, Vec<usize>),
    /// The worst step from a row to the next in a column (`None`: in every one). True if all steps
    /// must rise, false if they must fall.
    Monotone(Option<usize>, bool, Vec<usize>),
}

impl Comparison {
    /// The measure of its number.
    pub fn measure(&self) -> Measure {
        match self.judged {
            Judged::Monotone(..) => Measure::Monotone,
            _ => Measure::Ratio,
        }
    }

    /// Whether a measured value meets it.
    pub fn holds(&self, measured: f64) -> bool {
        self.bound.holds(measured, self.expected, self.tolerance)
    }
}

/// A published figure that is known not to come out.
#[derive(Clone, Debug, PartialEq)]
pub struct NotReproduced {
    /// The figure.
    pub figure: String,
    /// The index of the column.
    pub column: usize,
    /// The indices of the rows.
    pub rows: Vec<usize>,
    /// Why.
    pub reason: String,
}

/// The names in a table that other entries of the file may use.
pub(super) struct Names<'a> {
    /// The names of its rows.
    pub rows: Vec<&'a str>,
    /// The names of its columns.
    pub columns: Vec<&'a str>,
    /// The names of its figures.
    pub figures: Vec<&'a str>,
}

impl Names<'_> {
    /// The index of a row.
    pub fn row(&self, name: &Spanned<String>) -> Result<usize> {
        find(name, "row", self.rows.iter().copied())
    }

    /// The index of a column.
    pub fn column(&self, name: &Spanned<String>) -> Result<usize> {
        find(name, "column", self.columns.iter().copied())
    }

    /// The index of a figure.
    pub fn figure(&self, name: &Spanned<String>) -> Result<usize> {
        find(name, "figure", self.figures.iter().copied())
    }

    /// The indices of rows; of all rows if none are named.
    pub fn rows(&self, names: &Option<Spanned<Vec<Spanned<String>>>>) -> Result<Vec<usize>> {
        match names {
            None => Ok((0..self.rows.len()).collect()),
            Some(list) => list.get_ref().iter().map(|name| self.row(name)).collect(),
        }
    }
}

/// What is needed to check a run's case, in addition to its text.
pub(super) struct Context<'a> {
    /// The row, and the figures published for it.
    pub row: Option<&'a Row>,
    /// All rows.
    pub rows: &'a [Row],
    /// The only column that is wanted; `None`: all columns.
    pub column: Option<&'a str>,
    /// The names of all columns.
    pub columns: &'a [String],
    /// The flows that run in this row; `None`: all flows.
    pub flows: Option<&'a [String]>,
    /// The figures that are known not to come out in this row and column.
    pub not_reproduced: HashSet<&'a str>,
    /// The place in the file of a stretch of the run's text.
    pub place: &'a dyn Fn(&Range<usize>) -> Place,
}

impl Context<'_> {
    /// A name of a class, with its place in the file.
    pub fn class(&self, name: &Spanned<String>) -> ClassName {
        ClassName { text: name.get_ref().clone(), place: (self.place)(&name.span()) }
    }
}
