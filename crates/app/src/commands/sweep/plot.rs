//! `--plot`: figures of the summary over a number that differs from point to point, beside what the
//! case says was published.

use altq_cases::case::CaseFile;
use altq_config::literal;
use altq_pages::plot::sweep::{self, Line, Shown};
use altq_pages::plot::{Axis, Unit};
use altq_sweep::Plan;
use altq_sweep::figures::Quantity;
use altq_sweep::gather::{PointSummary, Summary};

/// The most figures of a plot.
pub const MOST: usize = 4;

/// What points lie over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Across {
    /// A value that the case is given.
    Value(String),
    /// The names of the case's rows.
    Rows,
}

/// What the points of a plan lie over: the value that has most numbers, or else rows whose names
/// are numbers.
///
/// # Errors
/// If points differ in no number.
pub fn across(plan: &Plan) -> Result<Across, String> {
    let count = |numbers: Option<Vec<f64>>| {
        let mut numbers = numbers.unwrap_or_default();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        numbers.len()
    };
    let of = |name: &String| {
        let word = |point: &altq_sweep::Point| Some(number(&point.given().get(name)?.clone())?.0);
        count(plan.points.iter().map(word).collect())
    };
    // Of equals the last one, which changes fastest.
    let value = plan.names.iter().map(|name| (of(name), name)).max_by_key(|(count, _)| *count);
    if let Some((2.., name)) = value {
        return Ok(Across::Value(name.clone()));
    }
    let row = |point: &altq_sweep::Point| Some(number(point.row.as_deref()?)?.0);
    match count(plan.points.iter().filter(|point| row(point).is_some()).map(row).collect()) {
        2.. => Ok(Across::Rows),
        _ => Err("--plot: the points differ in no number that could be an axis".into()),
    }
}

/// A number, a rate in bit/s or a time in seconds, with its unit.
fn number(word: &str) -> Option<(f64, Unit)> {
    let plain = word.parse::<f64>().ok().filter(|number| number.is_finite()).map(|number| (number, Unit::Count));
    let rate = || literal::rate_with_unit(word).ok().map(|rate| (rate.as_bit_s() as f64, Unit::Rate));
    let time = || literal::time_with_unit(word).ok().map(|time| (time as f64 / 1e9, Unit::Time));
    let part = || word.strip_suffix('%')?.parse::<f64>().ok().map(|percent| (percent / 100.0, Unit::Part));
    plain.or_else(rate).or_else(time).or_else(part)
}

/// The plot as SVG.
pub fn svg(plan: &Plan, summary: &Summary, across: &Across, file: &CaseFile) -> String {
    let place = |point: &PointSummary| match across {
        Across::Value(name) => number(point.values.get(name)?),
        Across::Rows => number(point.row.as_deref()?),
    };
    // A line has the points that differ in nothing else.
    let line = |point: &PointSummary| {
        let values = point.values.iter().filter(|(name, _)| *across != Across::Value((*name).clone()));
        let values = values.map(|(name, word)| format!("{name}={word}"));
        let row = point.row.iter().filter(|_| *across != Across::Rows).map(|row| format!("row {row}"));
        let parts: Vec<String> = point.column.iter().cloned().chain(row).chain(values).collect();
        if parts.is_empty() { plan.name.clone() } else { parts.join(", ") }
    };
    let mut names: Vec<String> = Vec::new();
    for point in summary.points.iter().filter(|point| place(point).is_some()) {
        let name = line(point);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let figures = summary.points.first().map_or(&[][..], |point| point.figures.as_slice());
    let shown = figures.iter().take(MOST).enumerate().map(|(at, figure)| {
        let (unit, scale) = match plan.quantity(&figure.name) {
            Quantity::Rate => (Unit::Rate, 1.0),
            Quantity::Time => (Unit::Time, 1e-9),
            Quantity::Plain => (Unit::Count, 1.0),
        };
        let of = |name: &String| {
            let own = summary.points.iter().filter(|point| line(point) == *name);
            let mut points: Vec<(f64, f64, f64)> = own
                .filter_map(|point| {
                    let figure = point.figures.get(at)?;
                    Some((place(point)?.0, figure.mean? * scale, figure.half_width.unwrap_or(0.0) * scale))
                })
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Line { name: name.clone(), points }
        };
        let own = figure.name.strip_prefix("figure.");
        let in_unit = file.figures().iter().find(|known| Some(known.name.as_str()) == own);
        let label = in_unit.map_or(figure.name.clone(), |known| format!("{} [{}]", known.name, known.unit.name));
        let published = file.rows.iter().filter(|_| *across == Across::Rows).filter_map(|row| {
            let figure = row.published.get(own?)?;
            Some((number(&row.name)?.0, figure.value))
        });
        Shown { y: Axis::new(&label, unit), lines: names.iter().map(of).collect(), published: published.collect() }
    });
    let unit = summary.points.iter().find_map(place).map_or(Unit::Count, |(_, unit)| unit);
    let label = match across {
        Across::Value(name) => name.as_str(),
        Across::Rows => "row",
    };
    let title = plan.name.rsplit('/').next().unwrap_or(&plan.name);
    let source = file.published_in.as_deref().unwrap_or("published");
    sweep::figure(title, Axis::new(label, unit), &shown.collect::<Vec<_>>(), source).svg()
}
