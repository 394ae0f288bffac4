//! The chart of a comparison. If the rows are numbers, they are the horizontal axis, and columns
//! are lines. Otherwise each row has a place from top to bottom, with a lane for each column.

use super::{Comparison, Row};
use crate::html::text::number;
use crate::plot::{Axis, Chart, Mark, Panel, Side, Style, Unit};

impl Comparison<'_> {
    /// The chart with this width.
    pub(super) fn chart(&self, width: f64) -> Chart {
        match self.numbers() {
            Some(xs) => self.lines(&xs, width),
            None => self.lanes(width),
        }
    }

    /// The rows as numbers, if most of them are numbers and rise. A row such as `off` is not a
    /// number.
    fn numbers(&self) -> Option<Vec<Option<f64>>> {
        let numbers: Vec<Option<f64>> = self.rows.iter().map(|row| row.name.parse().ok()).collect();
        let (known, others) = (numbers.iter().flatten().count(), numbers.iter().filter(|n| n.is_none()).count());
        (known > 2 && others < 3 && numbers.iter().flatten().is_sorted()).then_some(numbers)
    }

    fn chart_title(&self) -> String {
        format!("{}: published beside {}", self.figure, self.columns.join(", "))
    }

    fn axis(&self) -> Axis {
        let unit = self.unit().map_or(String::new(), |unit| format!(" [{unit}]"));
        Axis::new(&format!("{}{unit}", self.figure), Unit::Count)
    }

    /// The text that is shown when the pointer rests on a dot.
    fn dot_title(&self, row: &Row<'_>, who: &str, value: f64) -> String {
        format!("{} {who}: {} {}", row.name, number(value), self.unit).trim().to_owned()
    }

    fn lines(&self, xs: &[Option<f64>], width: f64) -> Chart {
        let rows = || self.rows.iter().zip(xs).filter_map(|(row, x)| Some((row, (*x)?)));
        let mut marks = Vec::new();
        for n in 0..self.columns.len() {
            let range = |row: &Row<'_>| row.cells.get(n)?.as_ref()?.judged?.range();
            let band = rows().filter_map(|(row, x)| range(row).map(|(low, high)| (x, low, high)));
            marks.push(Mark::Band(self.style(n), band.collect()));
        }
        let others = self.rows.iter().zip(xs).filter(|(_, x)| x.is_none());
        others.for_each(|(row, _)| self.push_levels(row, &mut marks));
        let line =
            |style, dots: &[(f64, f64, String)]| Mark::Line(style, dots.iter().map(|(x, y, _)| (*x, *y)).collect());
        let dots = |who: &str, value: &dyn Fn(&Row<'_>) -> Option<f64>| -> Vec<(f64, f64, String)> {
            rows().filter_map(|(row, x)| value(row).map(|y| (x, y, self.dot_title(row, who, y)))).collect()
        };
        let published = dots("published", &|row| Some(row.published?.0));
        marks.push(line(Style::PUBLISHED.faint(), &published));
        for (n, column) in self.columns.iter().enumerate() {
            let measured = dots(column, &|row| row.cells.get(n)?.as_ref()?.measured);
            marks.extend([line(self.style(n), &measured), Mark::Dots(self.style(n), measured)]);
        }
        marks.push(Mark::Dots(Style::PUBLISHED, published));
        let height = if width > 500.0 { 300.0 } else { 230.0 };
        let panel = Panel { height, y: Side::Values(self.axis(), Some((0.0, 0.0))), marks };
        let (first, last) = (xs.iter().flatten().next(), xs.iter().flatten().last());
        let range = first.copied().zip(last.copied());
        Chart { title: self.chart_title(), width, x: Axis::new("row", Unit::Count), range, panels: vec![panel] }
    }

    /// A row that is not a number becomes a horizontal line: at the published value, or at the
    /// value of each column.
    fn push_levels(&self, row: &Row<'_>, marks: &mut Vec<Mark>) {
        if let Some((value, _)) = row.published {
            marks.push(Mark::Level(Style::PUBLISHED, value, format!("{}, published", row.name)));
            return;
        }
        // Lines that are too close to tell apart become one line with all their names.
        let mut levels: Vec<(usize, f64, String)> = Vec::new();
        for (n, column) in self.columns.iter().enumerate() {
            let Some(value) = row.cells.get(n).and_then(|cell| cell.as_ref()?.measured) else { continue };
            let near = |other: f64| (value - other).abs() <= 0.06 * value.abs().max(other.abs());
            match levels.iter_mut().find(|(_, other, _)| near(*other)) {
                Some((_, _, name)) => *name += &format!(" and {column}"),
                None => levels.push((n, value, format!("{}, {column}", row.name))),
            }
        }
        marks.extend(levels.into_iter().map(|(n, value, name)| Mark::Level(self.style(n), value, name)));
    }

    fn lanes(&self, width: f64) -> Chart {
        // The published value and each column have a lane of their own, so that no dot hides
        // another.
        let first = usize::from(self.has_published());
        let lanes = first + self.columns.len();
        let lane = |row: usize, n: usize| row as f64 + ((n as f64 + 0.5) / lanes.max(1) as f64 - 0.5) * 0.84;
        let dot = |row: &Row<'_>, at: f64, who: &str, value: f64| vec![(value, at, self.dot_title(row, who, value))];
        let mut marks = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            for (n, column) in self.columns.iter().enumerate() {
                let Some(cell) = row.cells.get(n).and_then(Option::as_ref) else { continue };
                let at = lane(at, first + n);
                if let Some((low, high)) = cell.judged.and_then(|judged| judged.range()) {
                    marks.push(Mark::Span(self.style(n), at, low, high));
                }
                if let Some(measured) = cell.measured {
                    marks.push(Mark::Dots(self.style(n), dot(row, at, column, measured)));
                }
            }
            if let Some((value, _)) = row.published {
                marks.push(Mark::Dots(Style::PUBLISHED, dot(row, lane(at, 0), "published", value)));
            }
        }
        let cells = || self.rows.iter().flat_map(|row| row.cells.iter().flatten());
        let published = self.rows.iter().filter_map(|row| Some(row.published?.0));
        let most = cells().filter_map(|cell| cell.measured).chain(published).fold(0.0, f64::max);
        let allowed = cells().filter_map(|cell| Some(cell.judged?.range()?.1)).fold(0.0, f64::max);
        // A tolerance is shown whole, unless it is so wide that all other marks would be too small.
        let end = (most * 1.04).max(allowed.min(most * 1.5) * 1.01);
        let name = |row: &Row<'_>| if row.name.is_empty() { self.figure.to_owned() } else { row.name.to_owned() };
        let names = self.rows.iter().map(name).collect();
        let panel = Panel { height: 10.0 + 8.0 * lanes as f64, ..Panel::names(names, marks) };
        Chart { title: self.chart_title(), width, x: self.axis(), range: Some((0.0, end)), panels: vec![panel] }
    }
}
