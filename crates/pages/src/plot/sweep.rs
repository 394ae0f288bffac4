//! What `altq sweep --plot` draws: figures over a value that differs from point to point. A line is
//! a series of means, with a band as wide as their 95 % confidence intervals; dots are published.

use super::{Axis, Chart, Figure, Mark, Panel, Style};

/// A line of means.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Where it is, the mean, and half the width of the interval, by x.
    pub points: Vec<(f64, f64, f64)>,
}

/// A figure of the points.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// Its name and unit.
    pub y: Axis,
    /// Its lines, which have the same names in every figure.
    pub lines: Vec<Line>,
    /// What was published: where, and the figure.
    pub published: Vec<(f64, f64)>,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 220.0;

/// The figure: a panel for each one shown, above each other. `source`: where dots were published.
pub fn figure(title: &str, x: Axis, shown: &[Shown], source: &str) -> Figure {
    let panels = shown.iter().map(|one| {
        let mut marks = Vec::new();
        for (n, line) in one.lines.iter().enumerate() {
            let band = line.points.iter().map(|(x, mean, half)| (*x, mean - half, mean + half)).collect();
            marks.push(Mark::Band(Style::nth(n), band));
        }
        for (n, line) in one.lines.iter().enumerate() {
            marks.push(Mark::Line(Style::nth(n), line.points.iter().map(|(x, mean, _)| (*x, *mean)).collect()));
        }
        let dots = one.published.iter().map(|(x, y)| (*x, *y, format!("{source}: {y}")));
        marks.push(Mark::Dots(Style::PUBLISHED, dots.collect()));
        Panel::new(HEIGHT, one.y.clone(), marks)
    });
    let any = shown.iter().any(|one| !one.published.is_empty());
    let dots = if any { format!("; dots: {source}") } else { String::new() };
    let heading = format!("lines: means, bands: their 95 % confidence intervals{dots}");
    let chart = Chart { title: title.to_owned(), width: WIDTH, x, range: None, panels: panels.collect() };
    let legend = shown.first().map_or(&[][..], |one| one.lines.as_slice()).iter().map(|line| line.name.clone());
    Figure { title: title.to_owned(), legend: legend.collect(), rows: vec![vec![(heading, chart)]] }
}

#[cfg(test)]
mod tests {
    use super::super::Unit;
    use super::*;

    #[test]
    fn a_line_has_its_band_and_dots_their_source() {
        let line = Line { name: "altq".into(), points: vec![(0.0, 4.0, 1.0), (10.0, 8.0, 2.0)] };
        let shown = Shown { y: Axis::new("tcp", Unit::Count), lines: vec![line], published: vec![(5.0, 6.5)] };
        let svg = figure("t", Axis::new("share", Unit::Count), &[shown], "Doe 1999").svg();
        assert!(svg.contains("bands: their 95 % confidence intervals; dots: Doe 1999"), "{svg}");
        assert!(svg.contains("Doe 1999: 6.5") && svg.contains(">altq</text>") && svg.contains(">share"), "{svg}");
    }
}
