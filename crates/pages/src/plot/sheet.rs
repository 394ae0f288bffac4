//! Charts for a page: panels one above the other that share the horizontal axis. They have no
//! colours of their own but classes that the page's style sheet fills in, so that one drawing does
//! for light and dark; the legend is the page's, too.
//!
//! A series `n` has the class `s` and its number; marks have `line`, `dot`, `band`, `bar`, `rule`.
//! Shapes and dashes differ as well as colours.

use std::fmt::Write;

use super::axis::{Axis, Scale, Unit};
use super::draw::escaped;

/// A chart of one or more panels.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// What it shows, for who cannot see it.
    pub title: String,
    /// Width of the drawing; text is twelve high.
    pub width: f64,
    /// The axis that all panels share.
    pub x: Axis,
    /// What it spans; `None`: what the marks need.
    pub range: Option<(f64, f64)>,
    /// From top to bottom.
    pub panels: Vec<Panel>,
}

/// A panel.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Height of its area; of names each one's.
    pub height: f64,
    /// What is on the left.
    pub y: Side,
    /// What is drawn, what comes later above.
    pub marks: Vec<Mark>,
}

/// What is on the left of a panel.
#[derive(Clone, Debug)]
pub enum Side {
    /// An axis, and what it spans at least.
    Values(Axis, Option<(f64, f64)>),
    /// Names, from top to bottom; a mark's height is a name's number, from 0.
    Names(Vec<String>),
}

/// Something drawn. Points are (x, y).
#[derive(Clone, Debug)]
pub enum Mark {
    /// A line; a gap is where a point is not finite.
    Line(Series, Vec<(f64, f64)>),
    /// A line in steps: each point's height holds up to the next.
    Steps(Series, Vec<(f64, f64)>),
    /// Dots, each with what a pointer over it tells.
    Dots(Series, Vec<(f64, f64, String)>),
    /// From one height to another, point by point.
    Band(Series, Vec<(f64, f64, f64)>),
    /// A level bar at a name: from, to; hatched or full; what it tells.
    Bar(Series, f64, f64, f64, bool, String),
    /// A short stroke across a name's place, at a value; what it tells.
    Tick(&'static str, f64, f64, String),
    /// A level stroke between two values at a name.
    Span(Series, f64, f64, f64),
    /// Needles from the bottom up to each height.
    Needles(Series, Vec<(f64, f64)>),
    /// A line across the panel at a value of the horizontal axis.
    Across(f64, String),
    /// A level line at a height, with what it is.
    Level(Series, f64, String),
}

/// Whose mark it is: which colour, dash and shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    /// Its number.
    pub number: usize,
    /// Drawn fainter, for what only accompanies.
    pub faint: bool,
}

impl Series {
    /// One of this number.
    pub const fn new(number: usize) -> Series {
        Series { number, faint: false }
    }

    /// The same, fainter.
    pub const fn faint(self) -> Series {
        Series { faint: true, ..self }
    }

    /// Its classes in the page's style sheet.
    pub fn class(self) -> String {
        let faint = if self.faint { " faint" } else { "" };
        format!("s{}{faint}", self.number % SERIES)
    }
}

/// Series that look different.
pub const SERIES: usize = 10;

const TOP: f64 = 10.0;
const BETWEEN: f64 = 18.0;
const BOTTOM: f64 = 38.0;
const RIGHT: f64 = 14.0;
/// About what a character takes.
const CHARACTER: f64 = 7.2;

impl Sheet {
    /// The drawing, to stand in a page.
    pub fn svg(&self) -> String {
        let (least, most) = self.range.or_else(|| spread(self.xs(), self.x.log)).unwrap_or((0.0, 1.0));
        let mut x = Scale::snug(&self.x, least, most);
        readable(&self.x, &mut x);
        let scales: Vec<Option<Scale>> = self.panels.iter().map(Panel::scale).collect();
        let left = self.left(&scales);
        let right = self.width
            - RIGHT
            - (x.ticks.last().map_or(0, |(_, text)| text.chars().count()) as f64 * CHARACTER / 2.0 - RIGHT).max(0.0);
        let height = TOP + self.panels.iter().map(|panel| panel.tall() + BETWEEN).sum::<f64>() - BETWEEN + BOTTOM;
        let (width, title) = (self.width, escaped(&self.title));
        let mut out = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {width:.0} {height:.0}\" style=\"--w:{width:.0}\" role=\"img\" \
             aria-label=\"{title}\"><title>{title}</title>\n"
        );
        let mut top = TOP;
        for (panel, scale) in self.panels.iter().zip(&scales) {
            let area = Area { left, right, top, bottom: top + panel.tall(), x: &x };
            panel.draw(&mut out, &area, scale.as_ref());
            top = area.bottom + BETWEEN;
        }
        let base = top - BETWEEN;
        // Labels do not run into one another.
        let widest = x.ticks.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(0) as f64 * CHARACTER + 6.0;
        let every = (widest * x.ticks.len() as f64 / (right - left)).ceil().max(1.0) as usize;
        for (n, (value, label)) in x.ticks.iter().enumerate() {
            let at = left + (right - left) * x.place(*value);
            let _ = write!(out, "<path class=\"axis\" d=\"M{at:.1} {base:.1}v4\"/>");
            if n % every == 0 {
                text(&mut out, at, base + 17.0, "middle", "", label);
            }
        }
        text(&mut out, (left + right) / 2.0, base + 34.0, "middle", "", &x.label);
        out + "</svg>\n"
    }

    fn xs(&self) -> Vec<f64> {
        let mut all = Vec::new();
        for mark in self.panels.iter().flat_map(|panel| &panel.marks) {
            match mark {
                Mark::Line(_, points) | Mark::Steps(_, points) | Mark::Needles(_, points) => {
                    all.extend(points.iter().filter(|(_, y)| y.is_finite()).map(|(x, _)| *x));
                }
                Mark::Dots(_, points) => all.extend(points.iter().map(|(x, ..)| *x)),
                Mark::Band(_, points) => all.extend(points.iter().map(|(x, ..)| *x)),
                Mark::Bar(_, _, from, to, ..) => all.extend([*from, *to]),
                Mark::Span(_, _, from, to) => all.extend([*from, *to]),
                Mark::Tick(_, _, value, _) => all.push(*value),
                Mark::Across(value, _) => all.push(*value),
                Mark::Level(..) => {}
            }
        }
        all
    }

    /// Room on the left for what stands there.
    fn left(&self, scales: &[Option<Scale>]) -> f64 {
        let longest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0) as f64 * CHARACTER;
        let rooms = self.panels.iter().zip(scales).map(|(panel, scale)| match (&panel.y, scale) {
            (Side::Names(names), _) => {
                longest(&mut names.iter().map(|name| name.chars().count())).min(self.width * 0.4) + 14.0
            }
            (_, Some(scale)) => longest(&mut scale.ticks.iter().map(|(_, text)| text.chars().count())) + 30.0,
            (_, None) => 30.0,
        });
        rooms.fold(40.0, f64::max)
    }
}

/// Where a panel's area lies.
struct Area<'a> {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: &'a Scale,
}

impl Area<'_> {
    fn across(&self, value: f64) -> f64 {
        self.left + (self.right - self.left) * self.x.place(value)
    }

    fn middle(&self) -> f64 {
        (self.top + self.bottom) / 2.0
    }
}

impl Panel {
    /// A panel with an axis on the left that begins at 0.
    pub fn new(height: f64, y: Axis, marks: Vec<Mark>) -> Panel {
        Panel { height, y: Side::Values(y, None), marks }
    }

    /// A panel of names.
    pub fn names(names: Vec<String>, marks: Vec<Mark>) -> Panel {
        Panel { height: 26.0, y: Side::Names(names), marks }
    }

    /// Height of its area.
    fn tall(&self) -> f64 {
        match &self.y {
            Side::Names(names) => self.height * names.len().max(1) as f64,
            Side::Values(..) => self.height,
        }
    }

    fn scale(&self) -> Option<Scale> {
        let Side::Values(axis, least) = &self.y else { return None };
        let mut ys: Vec<f64> = least.iter().flat_map(|(a, b)| [*a, *b]).collect();
        for mark in &self.marks {
            match mark {
                Mark::Line(_, points) | Mark::Steps(_, points) | Mark::Needles(_, points) => {
                    ys.extend(points.iter().map(|(_, y)| *y))
                }
                Mark::Dots(_, points) => ys.extend(points.iter().map(|(_, y, _)| *y)),
                Mark::Band(_, points) => ys.extend(points.iter().flat_map(|(_, a, b)| [*a, *b])),
                Mark::Level(_, y, _) => ys.push(*y),
                _ => {}
            }
        }
        let (low, high) = spread(ys, axis.log).unwrap_or((0.0, 1.0));
        let mut scale = Scale::new(axis, low, high);
        readable(axis, &mut scale);
        Some(scale)
    }

    fn draw(&self, out: &mut String, area: &Area<'_>, scale: Option<&Scale>) {
        let (left, right, top, bottom) = (area.left, area.right, area.top, area.bottom);
        for (value, _) in &area.x.ticks {
            let at = area.across(*value);
            let _ = write!(out, "<path class=\"grid\" d=\"M{at:.1} {top:.1}V{bottom:.1}\"/>");
        }
        match (&self.y, scale) {
            (Side::Names(names), _) => {
                for (n, name) in names.iter().enumerate() {
                    let at = top + (n as f64 + 0.5) * self.height;
                    // A hair more, so that what the room was made for is not cut by a rounding.
                    let room = ((left - 14.0) / CHARACTER + 0.01) as usize;
                    let short = if name.chars().count() > room { cut(name, room) } else { name.clone() };
                    text(out, left - 8.0, at + 4.0, "end", "", &short);
                    let edge = at + self.height / 2.0;
                    let _ = write!(out, "<path class=\"grid\" d=\"M{left:.1} {edge:.1}H{right:.1}\"/>");
                }
            }
            (Side::Values(..), Some(y)) => {
                // Low panels have room for fewer numbers.
                let every = (y.ticks.len() as f64 * 15.0 / (bottom - top)).ceil().max(1.0) as usize;
                for (n, (value, label)) in y.ticks.iter().enumerate() {
                    let at = bottom - (bottom - top) * y.place(*value);
                    let _ = write!(out, "<path class=\"grid\" d=\"M{left:.1} {at:.1}H{right:.1}\"/>");
                    if n % every == 0 {
                        text(out, left - 6.0, at + 4.0, "end", "", label);
                    }
                }
                let middle = area.middle();
                text(out, 12.0, middle, "middle", &format!(" transform=\"rotate(-90 12 {middle:.1})\""), &y.label);
            }
            _ => {}
        }
        let _ = writeln!(out, "<path class=\"axis\" d=\"M{left:.1} {top:.1}V{bottom:.1}H{right:.1}\"/>");
        let up = |value: f64| match scale {
            Some(y) => bottom - (bottom - top) * y.place(value),
            None => top + (value + 0.5) * self.height,
        };
        for mark in &self.marks {
            mark.draw(out, area, self.height, &up);
        }
        if self.marks.is_empty() {
            text(out, (left + right) / 2.0, area.middle() + 4.0, "middle", " class=\"none\"", "nothing to draw");
        }
    }
}

impl Mark {
    fn draw(&self, out: &mut String, area: &Area<'_>, each: f64, up: &dyn Fn(f64) -> f64) {
        match self {
            Mark::Line(series, points) | Mark::Steps(series, points) => {
                let steps = matches!(self, Mark::Steps(..));
                let mut d = String::new();
                for piece in points.split(|(x, y)| !x.is_finite() || !y.is_finite()) {
                    for (n, (x, y)) in piece.iter().enumerate() {
                        let (x, y) = (area.across(*x), up(*y));
                        let _ = match (n, steps) {
                            (0, _) => write!(d, "M{x:.1} {y:.1}"),
                            (_, false) => write!(d, "L{x:.1} {y:.1}"),
                            (_, true) => write!(d, "H{x:.1}V{y:.1}"),
                        };
                    }
                    // A point alone is seen, too.
                    if piece.len() == 1 {
                        d += "h0.1";
                    }
                }
                if !d.is_empty() {
                    let _ = writeln!(out, "<path class=\"line {}\" d=\"{d}\"/>", series.class());
                }
            }
            Mark::Dots(series, points) => {
                for (x, y, tells) in points.iter().filter(|(x, y, _)| x.is_finite() && y.is_finite()) {
                    let (x, y, class) = (area.across(*x), up(*y), series.class());
                    let _ = writeln!(
                        out,
                        "<path class=\"dot {class}\" d=\"{}\">{}</path>",
                        shape(series.number, x, y),
                        told(tells)
                    );
                }
            }
            Mark::Band(series, points) => {
                let points: Vec<_> = points.iter().filter(|(_, a, b)| a.is_finite() && b.is_finite()).collect();
                let there = points.iter().map(|(x, low, _)| (*x, *low));
                let back = points.iter().rev().map(|(x, _, high)| (*x, *high));
                let path: Vec<String> =
                    there.chain(back).map(|(x, y)| format!("{:.1} {:.1}", area.across(x), up(y))).collect();
                if !path.is_empty() {
                    let _ = writeln!(out, "<path class=\"band {}\" d=\"M{}Z\"/>", series.class(), path.join("L"));
                }
            }
            Mark::Bar(series, at, from, to, hatched, tells) => {
                let (x, end, class) = (area.across(*from), area.across(*to), series.class());
                let thick = each * 0.56;
                let (y, wide, kind) =
                    (up(*at) - thick / 2.0, (end - x).max(0.0), if *hatched { "bar hatched" } else { "bar" });
                let _ = writeln!(
                    out,
                    "<rect class=\"{kind} {class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" \
                     height=\"{thick:.1}\">{}</rect>",
                    told(tells)
                );
            }
            Mark::Tick(class, at, value, tells) => {
                let (x, y, half) = (area.across(*value), up(*at), each * 0.42);
                let (from, to) = (y - half, y + half);
                let _ = writeln!(out, "<path class=\"{class}\" d=\"M{x:.1} {from:.1}V{to:.1}\">{}</path>", told(tells));
            }
            Mark::Span(series, at, from, to) => {
                let (x, end, y) = (area.across(*from), area.across(*to), up(*at));
                let _ = writeln!(out, "<path class=\"span {}\" d=\"M{x:.1} {y:.1}H{end:.1}\"/>", series.class());
            }
            Mark::Needles(series, points) => {
                let base = area.bottom;
                let d: Vec<String> = points
                    .iter()
                    .filter(|(_, y)| y.is_finite() && *y > 0.0)
                    .map(|(x, y)| format!("M{:.1} {base:.1}V{:.1}", area.across(*x), up(*y)))
                    .collect();
                if !d.is_empty() {
                    let _ = writeln!(out, "<path class=\"line {} needle\" d=\"{}\"/>", series.class(), d.concat());
                }
            }
            Mark::Level(series, value, tells) => {
                let (left, right, y, class) = (area.left, area.right, up(*value), series.class());
                let _ = writeln!(
                    out,
                    "<path class=\"level {class}\" d=\"M{left:.1} {y:.1}H{right:.1}\">{}</path>",
                    told(tells)
                );
                // Above it, or below where there is no room above.
                let at = if y - area.top < 6.0 { y + 13.0 } else { y - 4.0 };
                text(out, left + 6.0, at, "start", " class=\"none\"", tells);
            }
            Mark::Across(value, tells) => {
                let (x, top, bottom) = (area.across(*value), area.top, area.bottom);
                let _ = writeln!(out, "<path class=\"mark\" d=\"M{x:.1} {top:.1}V{bottom:.1}\">{}</path>", told(tells));
            }
        }
    }
}

/// What a pointer over a mark tells.
fn told(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(text)) }
}

/// The shape of a series' dots, about six wide.
pub fn shape(number: usize, x: f64, y: f64) -> String {
    match number % 5 {
        0 => format!("M{:.1} {y:.1}a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0Z", x - 3.6),
        1 => format!("M{x:.1} {:.1}l4.4 7.6h-8.8Z", y - 4.8),
        2 => format!("M{:.1} {:.1}h6.6v6.6h-6.6Z", x - 3.3, y - 3.3),
        3 => format!("M{x:.1} {:.1}l4.6 4.6l-4.6 4.6l-4.6 -4.6Z", y - 4.6),
        _ => format!("M{x:.1} {:.1}l4.4 -7.6h-8.8Z", y + 4.8),
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, more: &str, what: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{more}>{}</text>", escaped(what));
}

/// The first and last characters of a name that is too long.
fn cut(name: &str, room: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    let (head, tail) = (room.saturating_sub(1).div_ceil(2), room.saturating_sub(1) / 2);
    letters
        .iter()
        .take(head)
        .chain(std::iter::once(&'…'))
        .chain(letters.iter().skip(letters.len().saturating_sub(tail)))
        .collect()
}

/// The least and the greatest finite value that an axis can show.
fn spread(values: Vec<f64>, log: bool) -> Option<(f64, f64)> {
    let values = values.into_iter().filter(|value| value.is_finite() && (!log || *value > 0.0));
    values.fold(None, |range: Option<(f64, f64)>, v| Some(range.map_or((v, v), |(a, b)| (a.min(v), b.max(v)))))
}

/// Decades of time have a unit each: 100 µs, 1 ms, 10 ms.
fn readable(axis: &Axis, scale: &mut Scale) {
    if !axis.log || axis.unit != Unit::Time {
        return;
    }
    for (value, label) in &mut scale.ticks {
        let (unit, word) = match *value {
            v if v < 0.999e-6 => (1e-9, "ns"),
            v if v < 0.999e-3 => (1e-6, "µs"),
            v if v < 0.999 => (1e-3, "ms"),
            _ => (1.0, "s"),
        };
        *label = format!("{:.0} {word}", *value / unit);
    }
    scale.label = axis.label.clone();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet(panels: Vec<Panel>) -> Sheet {
        Sheet { title: "a < b".into(), width: 400.0, x: Axis::new("time", Unit::Time), range: None, panels }
    }

    #[test]
    fn panels_share_one_axis() {
        let y = |label: &str| Axis::new(label, Unit::Count);
        let line = |points: &[(f64, f64)]| vec![Mark::Line(Series::new(1), points.to_vec())];
        let top = Panel::new(100.0, y("one"), line(&[(0.0, 0.0), (10.0, 10.0)]));
        let low = Panel::new(100.0, y("two"), line(&[(5.0, 1.0), (f64::NAN, 1.0), (10.0, 2.0)]));
        let svg = sheet(vec![top, low]).svg();
        // Three characters ("0.5") and a label take 51.6 on the left, 14 stay free on the right;
        // areas from 10 to 110 and from 128 to 228.
        assert!(svg.contains("<path class=\"line s1\" d=\"M51.6 110.0L386.0 10.0\"/>"), "{svg}");
        assert!(svg.contains("d=\"M218.8 178.0h0.1M386.0 128.0h0.1\""), "{svg}");
        assert_eq!(svg.matches(">time [s]</text>").count(), 1);
        assert!(svg.contains("aria-label=\"a &lt; b\"") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn names_bars_and_times() {
        let marks = vec![
            Mark::Bar(Series::new(0), 1.0, 0.0, 0.5, true, "x".into()),
            Mark::Tick("guarantee", 1.0, 0.25, String::new()),
            Mark::Dots(Series::new(3).faint(), vec![(f64::NAN, 0.0, String::new()), (0.5, 0.0, "dot".into())]),
        ];
        let panel = Panel::names(vec!["a".into(), "a-name-that-is-much-too-long-for-its-place".into()], marks);
        let svg = Sheet { x: Axis::log("delay", Unit::Time), range: Some((1e-6, 1.0)), ..sheet(vec![panel]) }.svg();
        for text in [
            ">1 µs<",
            ">100 µs<",
            ">10 ms<",
            ">1 s<",
            ">delay<",
            "bar hatched s0",
            "<title>dot</title>",
            "dot s3 faint",
            "…",
        ] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert!(sheet(vec![Panel::new(50.0, Axis::new("", Unit::Count), vec![])]).svg().contains("nothing to draw"));
    }
}
