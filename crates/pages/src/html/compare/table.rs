//! The table of all comparisons. Figures are aligned below one another, and so are the errors and
//! verdicts beside them.

use maud::{Markup, html};

use super::{Cell, Comparison, Row};
use crate::html::element::verdict;
use crate::html::text::{deviation, number};

/// The table, followed by the reasons why some published figures were not reproduced.
pub(super) fn table(all: &[Comparison<'_>], published: bool) -> Markup {
    let mut names: Vec<&str> = Vec::new();
    for name in all.iter().flat_map(|comparison| &comparison.columns) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let columns: Vec<Column<'_>> = names.into_iter().map(|name| Column::new(name, all)).collect();
    let reasons = reasons(all, &columns);
    html! {
        div.scroll { table.compare {
            "\n" thead { tr {
                th { "row" }
                @if published { th { "published" } }
                @for column in &columns {
                    th.column style=(format!("--after:{:.1}rem", column.error + column.verdict)) { (column.name) }
                }
                @if published { th.text { "where" } }
            } } "\n"
            tbody {
                "\n" @for comparison in all {
                    tr.part {
                        th colspan=(columns.len() + 3) {
                            (comparison.figure) @if let Some(unit) = comparison.unit() { " [" (unit) "]" }
                        }
                    } "\n"
                    @for row in &comparison.rows {
                        tr {
                            th scope="row" { (if row.name.is_empty() { comparison.figure } else { row.name }) }
                            @if published { td { (row.published.map_or("–".into(), |(value, _)| number(value))) } }
                            @for column in &columns { (column.cell(column.of(comparison, row), &reasons)) }
                            @if published { td.text.quiet { (row.published.map_or("", |(_, source)| source)) } }
                        } "\n"
                    }
                }
            }
        } } "\n"
        @if !reasons.is_empty() {
            p.small { "Published figures that were not reproduced, and why:" } "\n"
            ol.small { "\n" @for reason in &reasons { li { (reason) } "\n" } } "\n"
        }
    }
}

/// Why published figures were not reproduced, in the order of the table, each reason once.
fn reasons<'a>(all: &[Comparison<'a>], columns: &[Column<'_>]) -> Vec<&'a str> {
    let mut reasons = Vec::new();
    for (comparison, row) in all.iter().flat_map(|one| one.rows.iter().map(move |row| (one, row))) {
        let found = columns.iter().filter_map(|column| column.of(comparison, row)?.not_reproduced);
        for reason in found {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
    }
    reasons
}

/// A column of the table.
struct Column<'a> {
    name: &'a str,
    /// Width of its errors, in rem; 0 if it has none.
    error: f64,
    /// Width of its verdicts, in rem; 0 if it has none.
    verdict: f64,
}

impl<'a> Column<'a> {
    fn new(name: &'a str, all: &[Comparison<'_>]) -> Column<'a> {
        let mut column = Column { name, error: 0.0, verdict: 0.0 };
        let cells: Vec<&Cell<'_>> =
            all.iter().flat_map(|one| one.rows.iter().filter_map(|row| column.of(one, row))).collect();
        let longest = cells.iter().map(|cell| cell.off_by().chars().count()).max().unwrap_or(0);
        let error = if longest == 0 { 0.0 } else { longest as f64 * 0.44 + 0.6 };
        let verdict = if cells.iter().any(|cell| cell.judged.is_some()) { 3.4 } else { 0.0 };
        (column.error, column.verdict) = (error, verdict);
        column
    }

    /// Its cell in a row of a comparison.
    fn of<'b, 'c>(&self, comparison: &Comparison<'_>, row: &'b Row<'c>) -> Option<&'b Cell<'c>> {
        let place = comparison.columns.iter().position(|name| name == self.name)?;
        row.cells.get(place)?.as_ref()
    }

    /// The figure, its error, and its verdict. `reasons`: the notes below the table.
    fn cell(&self, cell: Option<&Cell<'_>>, reasons: &[&str]) -> Markup {
        let note = cell.and_then(|cell| reasons.iter().position(|reason| Some(*reason) == cell.not_reproduced));
        html! {
            td { span.cell {
                span {
                    (cell.map_or("–".into(), Cell::shown))
                    @if let Some(n) = note { sup { (n + 1) } }
                }
                @if self.error > 0.0 {
                    span.error style=(format!("--room:{:.1}rem", self.error)) {
                        @if let Some(cell) = cell { (cell.error()) }
                    }
                }
                @if self.verdict > 0.0 {
                    span.judged style=(format!("--room:{:.1}rem", self.verdict)) {
                        @if let Some(cell) = cell { (cell.verdict()) }
                    }
                }
            } }
        }
    }
}

impl Cell<'_> {
    /// The figure, or why there is none.
    fn shown(&self) -> String {
        self.measured.map_or_else(|| self.missing.unwrap_or("–").to_owned(), number)
    }

    /// The error against the expected value if that is not the published one, or else against the
    /// published value.
    fn off_by(&self) -> String {
        match (self.judged.and_then(|judged| judged.own), self.measured) {
            (Some(own), Some(measured)) if own != 0.0 && self.not_reproduced.is_none() => {
                format!("{} of {}", deviation(measured / own - 1.0), number(own))
            }
            _ => self.error.map_or(String::new(), deviation),
        }
    }

    fn error(&self) -> Markup {
        html! {
            @match self.samples.filter(|(low, high)| low < high) {
                Some((low, high)) => {
                    span title=(format!("samples from {} to {}", number(low), number(high))) { (self.off_by()) }
                }
                None => (self.off_by())
            }
        }
    }

    fn verdict(&self) -> Markup {
        let Some(judged) = self.judged else { return Markup::default() };
        let range = match (judged.from.is_finite(), judged.to.is_finite()) {
            (true, true) => format!("from {} to {}", number(judged.from), number(judged.to)),
            (true, false) => format!("at least {}", number(judged.from)),
            (false, true) => format!("at most {}", number(judged.to)),
            (false, false) => String::new(),
        };
        html! { span title=(range) { (verdict(self.valid, judged.pass)) } }
    }
}
