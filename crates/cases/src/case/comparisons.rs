//! Reads `[[shape]]`: conditions on several rows or columns together.

use toml::Spanned;

use super::measure::Bound;
use super::raw;
use super::table::{Comparison, Judged, Names};
use super::words::{bound, world};
use super::wrong::{Result, did_you_mean};

/// Reads the comparisons of a table. `table`: true if the case is a table.
pub(super) fn comparisons(head: &raw::Head, names: &Names<'_>, table: bool) -> Result<Vec<Comparison>> {
    let mut list = Vec::new();
    for whole in &head.shape {
        let shape = whole.get_ref();
        let bad = |message: &str| Err((Some(whole.span()), message.to_owned()));
        if !table {
            return bad("a shape compares rows or columns, but the case has neither");
        }
        names.figure(&shape.figure)?;
        let of = shape.column.as_ref().map(|name| names.column(name)).transpose()?;
        let (judged, unit) = match (&shape.ratio, &shape.columns, &shape.monotone) {
            (Some(pair), None, None) => {
                let (first, second) = pair.get_ref();
                if let Some(rows) = &shape.rows {
                    return Err((Some(rows.span()), "ratio already names its rows".into()));
                }
                (Judged::Rows(of, names.row(first)?, names.row(second)?), 1.0)
            }
            (None, Some(pair), None) => {
                let (first, second) = pair.get_ref();
                if let Some(at) = &shape.column {
                    return Err((Some(at.span()), "columns already names them".into()));
                }
                (Judged::Columns(names.column(first)?, names.column(second)?, names.rows(&shape.rows)?), 1.0)
            }
            (None, None, Some(word)) => {
                let rising = match word.get_ref().as_str() {
                    "rising" => true,
                    "falling" => false,
                    other => {
                        let hint = did_you_mean(other, ["rising", "falling"]);
                        let message = format!("figures are \"rising\" or \"falling\"{hint}");
                        return Err((Some(word.span()), message));
                    }
                };
                if let Some(at) = shape.expected.as_ref().map(|e| e.span()).or(shape.bound.as_ref().map(|b| b.span())) {
                    return Err((
                        Some(at),
                        "monotone expects nothing more; write as tolerance how far a step may go back".into(),
                    ));
                }
                (Judged::Monotone(of, rising, names.rows(&shape.rows)?), 0.0)
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
            Some(word) => bound(word)?,
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
            world: shape.world.as_ref().map(world).transpose()?,
            judged,
            expected,
            tolerance,
            bound,
            source: shape.source.get_ref().clone(),
        });
    }
    Ok(list)
}
