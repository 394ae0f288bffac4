//! The columns of the table: values of the points first, as texts and where all of them are
//! numbers, rates or times as numbers too; then what every table has; then the figures.

use std::collections::HashMap;

use altq_config::literal;

use crate::plan::{Plan, Task};
use crate::rows::{Cells, Kind, Table};

/// The columns of a table.
pub struct Columns {
    schema: Vec<(String, Kind)>,
    /// By name of a number column of values: the value's name, and the number of each point.
    numbers: HashMap<String, Vec<f64>>,
    /// The names of the figures.
    pub figures: Vec<String>,
}

impl Columns {
    /// Those of a plan and of the figures that its runs have.
    pub fn new(plan: &Plan, figures: Vec<(String, Kind)>) -> Columns {
        let mut schema = Vec::new();
        let mut numbers = HashMap::new();
        for name in &plan.names {
            let words: Vec<&str> = plan
                .points
                .iter()
                .filter_map(|point| point.values.iter().find(|(own, _)| own == name).map(|(_, word)| word.as_str()))
                .collect();
            if let Some(plain) = all(&words, |word| word.parse().ok().filter(|number: &f64| number.is_finite())) {
                schema.push((name.clone(), Kind::Number));
                numbers.insert(name.clone(), plain);
                continue;
            }
            schema.push((name.clone(), Kind::Text));
            let rate = |word: &str| literal::rate_with_unit(word).ok().map(|rate| rate.as_bit_s() as f64);
            let time = |word: &str| literal::time_with_unit(word).ok().map(|time| time as f64);
            let measured = all(&words, rate).map(|list| (format!("{name}_bit_s"), list));
            let measured = measured.or_else(|| all(&words, time).map(|list| (format!("{name}_ns"), list)));
            if let Some((with_unit, list)) = measured.filter(|(with_unit, _)| !plan.names.contains(with_unit)) {
                schema.push((with_unit.clone(), Kind::Number));
                numbers.insert(with_unit, list);
            }
        }
        for (own, there) in [
            ("row", plan.points.iter().any(|point| point.row.is_some())),
            ("column", plan.points.iter().any(|point| point.column.is_some())),
        ] {
            if there {
                schema.push((own.into(), Kind::Text));
            }
        }
        schema.extend([("sample".into(), Kind::Whole), ("seed".into(), Kind::Whole), ("error".into(), Kind::Text)]);
        let names = figures.iter().map(|(name, _)| name.clone()).collect();
        schema.extend(figures);
        Columns { schema, numbers, figures: names }
    }

    /// Names and kinds.
    pub fn schema(&self) -> &[(String, Kind)] {
        &self.schema
    }

    /// No rows.
    pub fn empty(&self) -> Table {
        Table { columns: self.schema.iter().map(|(name, kind)| (name.clone(), Cells::of(*kind))).collect() }
    }

    /// Adds the rows of a task's results.
    pub fn add(&self, rows: &mut Table, part: &Table, task: &Task) {
        let (before, count) = (rows.len(), part.len());
        let by_name: HashMap<&str, &Cells> = part.columns.iter().map(|(name, cells)| (name.as_str(), cells)).collect();
        for (name, cells) in &mut rows.columns {
            if let (Some(list), Cells::Number(cells)) = (self.numbers.get(name), &mut *cells) {
                for piece in &task.pieces {
                    let number = list.get(piece.point).copied();
                    cells.extend((piece.from..piece.to).map(|_| number));
                }
                continue;
            }
            if let Some(other) = by_name.get(name.as_str()) {
                cells.take_from(other, count);
            }
            cells.pad(before + count);
        }
    }
}

/// The numbers of all words; `None` if one is no such number, or if there is no word.
fn all(words: &[&str], number: impl Fn(&str) -> Option<f64>) -> Option<Vec<f64>> {
    let list: Option<Vec<f64>> = words.iter().map(|word| number(word)).collect();
    list.filter(|list| !list.is_empty())
}
