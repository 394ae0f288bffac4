//! A chart: panels one above another that share the horizontal axis.

use maud::{Markup, html};

use super::axis::{Axis, Scale};
use super::mark::{Mark, path, printable, text};
use super::{CHARACTER, text_width};

/// A chart of one or more panels.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows, for readers who cannot see it.
    pub title: String,
    /// Width of the drawing, in which letters are twelve high.
    pub width: f64,
    /// The axis that all panels share.
    pub x: Axis,
    /// The range of that axis; `None`: that of the marks.
    pub range: Option<(f64, f64)>,
    /// The panels, from top to bottom.
    pub panels: Vec<Panel>,
}

/// A panel.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Height of its area; for a panel of names, the height of each row.
    pub height: f64,
    /// Its left side.
    pub y: Side,
    /// The marks that are drawn; the last one is on top.
    pub marks: Vec<Mark>,
}

/// The left side of a panel.
#[derive(Clone, Debug)]
pub enum Side {
    /// An axis, and the range that it has at least.
    Values(Axis, Option<(f64, f64)>),
    /// Names, from top to bottom. A mark's height is the number of a name's row, from 0.
    Names(Vec<String>),
}

const TOP: f64 = 10.0;
const BETWEEN: f64 = 18.0;
const BOTTOM: f64 = 38.0;
const RIGHT: f64 = 14.0;

impl Chart {
    /// The chart as an element of a page.
    pub fn svg(&self) -> Markup {
        let (width, height, title) = (self.width, self.height(), printable(&self.title));
        html! {
            svg.chart viewBox=(format!("0 0 {width:.0} {height:.0}")) style=(format!("--w:{width:.0}")) role="img"
                aria-label=(title) {
                title { (title) } "\n"
                (self.draw(self.left()))
            } "\n"
        }
    }

    /// Height of the drawing.
    pub(super) fn height(&self) -> f64 {
        TOP + self.panels.iter().map(|panel| panel.area_height() + BETWEEN).sum::<f64>() - BETWEEN + BOTTOM
    }

    /// Width that the chart needs on the left for names and numbers.
    pub(super) fn left(&self) -> f64 {
        let longest = |texts: &mut dyn Iterator<Item = &str>| texts.map(text_width).fold(0.0, f64::max);
        let rooms = self.panels.iter().map(|panel| match (&panel.y, panel.scale()) {
            (Side::Names(names), _) => longest(&mut names.iter().map(String::as_str)).min(self.width * 0.4) + 14.0,
            (_, Some(scale)) => longest(&mut scale.ticks.iter().map(|(_, text)| text.as_str())) + 30.0,
            (_, None) => 30.0,
        });
        rooms.fold(40.0, f64::max)
    }

    /// The drawing, with this width on the left.
    pub(super) fn draw(&self, left: f64) -> Markup {
        let xs = || self.panels.iter().flat_map(|panel| &panel.marks).flat_map(Mark::xs);
        let (least, most) = self.range.or_else(|| spread(xs(), self.x.log)).unwrap_or((0.0, 1.0));
        let x = Scale::snug(&self.x, least, most);
        let last = x.ticks.last().map_or(0.0, |(_, text)| text_width(text));
        let right = self.width - RIGHT.max(last / 2.0);
        let mut top = TOP;
        let mut areas = Vec::new();
        for panel in &self.panels {
            let bottom = top + panel.area_height();
            areas.push(Area { left, right, top, bottom, x: &x, y: panel.scale(), row: panel.height });
            top = bottom + BETWEEN;
        }
        let base = top - BETWEEN;
        // Labels must not overlap.
        let widest = x.ticks.iter().map(|(_, text)| text_width(text)).fold(0.0, f64::max) + 6.0;
        let every = (widest * x.ticks.len() as f64 / (right - left)).ceil().max(1.0) as usize;
        html! {
            @for (panel, area) in self.panels.iter().zip(&areas) { (panel.draw(area)) }
            @for (n, (value, label)) in x.ticks.iter().enumerate() {
                @let at = left + (right - left) * x.place(*value);
                (path("axis", &format!("M{at:.1} {base:.1}v4"), ""))
                @if n % every == 0 { (text(at, base + 17.0, "middle", "", label)) }
            }
            (text((left + right) / 2.0, base + 34.0, "middle", "", &x.label))
        }
    }
}

/// The area of a panel, and how values become places in it.
pub(super) struct Area<'a> {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    x: &'a Scale,
    /// `None` in a panel of names.
    y: Option<Scale>,
    /// Height of the row of a name.
    pub row: f64,
}

impl Area<'_> {
    /// The place of a value of the horizontal axis.
    pub fn across(&self, value: f64) -> f64 {
        self.left + (self.right - self.left) * self.x.place(value)
    }

    /// The place of a value of the vertical axis, or of a row.
    pub fn up(&self, value: f64) -> f64 {
        match &self.y {
            Some(y) => self.bottom - (self.bottom - self.top) * y.place(value),
            None => self.top + (value + 0.5) * self.row,
        }
    }

    fn middle(&self) -> f64 {
        (self.top + self.bottom) / 2.0
    }
}

impl Panel {
    /// A panel with an axis on the left.
    pub fn new(height: f64, y: Axis, marks: Vec<Mark>) -> Panel {
        Panel { height, y: Side::Values(y, None), marks }
    }

    /// A panel of names.
    pub fn names(names: Vec<String>, marks: Vec<Mark>) -> Panel {
        Panel { height: 26.0, y: Side::Names(names), marks }
    }

    /// The range of its marks on the vertical axis.
    pub(super) fn heights(&self, log: bool) -> Option<(f64, f64)> {
        spread(self.marks.iter().flat_map(Mark::ys), log)
    }

    fn area_height(&self) -> f64 {
        match &self.y {
            Side::Names(names) => self.height * names.len().max(1) as f64,
            Side::Values(..) => self.height,
        }
    }

    fn scale(&self) -> Option<Scale> {
        let Side::Values(axis, least) = &self.y else { return None };
        let both = least.iter().flat_map(|(low, high)| [*low, *high]);
        let (low, high) = spread(both.chain(self.marks.iter().flat_map(Mark::ys)), axis.log).unwrap_or((0.0, 1.0));
        Some(Scale::new(axis, low, high))
    }

    fn draw(&self, area: &Area<'_>) -> Markup {
        let (left, right, top, bottom) = (area.left, area.right, area.top, area.bottom);
        let level = |at: f64| path("grid", &format!("M{left:.1} {at:.1}H{right:.1}"), "");
        html! {
            @for (value, _) in &area.x.ticks {
                (path("grid", &format!("M{:.1} {top:.1}V{bottom:.1}", area.across(*value)), ""))
            }
            @if let Side::Names(names) = &self.y {
                @for (n, name) in names.iter().enumerate() {
                    // A little more room, so that rounding does not cut the longest name.
                    (text(left - 8.0, area.up(n as f64) + 4.0, "end", "", &cut(name, (left - 14.0) / CHARACTER + 0.01)))
                    (level(area.up(n as f64 + 0.5)))
                }
            }
            @if let Some(y) = &area.y {
                // Low panels have room for fewer numbers.
                @let every = (y.ticks.len() as f64 * 15.0 / (bottom - top)).ceil().max(1.0) as usize;
                @for (n, (value, label)) in y.ticks.iter().enumerate() {
                    (level(area.up(*value)))
                    @if n % every == 0 { (text(left - 6.0, area.up(*value) + 4.0, "end", "", label)) }
                }
                g transform=(format!("rotate(-90 12 {:.1})", area.middle())) {
                    (text(12.0, area.middle(), "middle", "", &y.label))
                }
            }
            (path("axis", &format!("M{left:.1} {top:.1}V{bottom:.1}H{right:.1}"), ""))
            @for mark in &self.marks { (mark.draw(area)) }
            @if self.marks.is_empty() {
                (text((left + right) / 2.0, area.middle() + 4.0, "middle", "none", "nothing to draw"))
            }
        }
    }
}

/// A name in as many characters as fit; a longer one keeps its first and its last ones.
fn cut(name: &str, room: f64) -> String {
    let letters: Vec<char> = name.chars().collect();
    let room = room as usize;
    if letters.len() <= room {
        return name.to_owned();
    }
    let (head, tail) = (room.saturating_sub(1).div_ceil(2), room.saturating_sub(1) / 2);
    letters.iter().take(head).chain(&['…']).chain(letters.iter().skip(letters.len() - tail)).collect()
}

/// The smallest and the largest value that an axis can show.
fn spread(values: impl Iterator<Item = f64>, log: bool) -> Option<(f64, f64)> {
    let values = values.filter(|value| value.is_finite() && (!log || *value > 0.0));
    values.fold(None, |range: Option<(f64, f64)>, v| Some(range.map_or((v, v), |(a, b)| (a.min(v), b.max(v)))))
}

#[cfg(test)]
mod tests {
    use super::super::{Bar, Style, Unit};
    use super::*;

    fn chart(panels: Vec<Panel>) -> Chart {
        Chart { title: "a < b".into(), width: 400.0, x: Axis::new("time", Unit::Time), range: None, panels }
    }

    #[test]
    fn panels_share_one_axis() {
        let y = |label: &str| Axis::new(label, Unit::Count);
        let line = |points: &[(f64, f64)]| vec![Mark::Line(Style::new(1), points.to_vec())];
        let top = Panel::new(100.0, y("one"), line(&[(0.0, 0.0), (10.0, 10.0)]));
        let low = Panel::new(100.0, y("two"), line(&[(5.0, 1.0), (f64::NAN, 1.0), (10.0, 2.0)]));
        let svg = chart(vec![top, low]).svg().into_string();
        // On the left three characters ("0.5") and a label take 51.6; on the right 14 stay free.
        // The areas are from 10 to 110 and from 128 to 228.
        assert!(svg.contains("<path class=\"line s1\" d=\"M51.6 110.0L386.0 10.0\"></path>"), "{svg}");
        assert!(svg.contains("d=\"M218.8 178.0h0.1M386.0 128.0h0.1\""), "{svg}");
        assert_eq!(svg.matches(">time [s]</text>").count(), 1);
        assert!(svg.contains("aria-label=\"a &lt; b\"") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn names_bars_and_times() {
        let marks = vec![
            Mark::Bar(Bar {
                style: Style::new(0),
                row: 1.0,
                height: 0.5,
                from: 0.0,
                to: 0.5,
                hatched: true,
                title: "x".into(),
            }),
            Mark::Tick("guarantee", 1.0, 0.25, String::new()),
            Mark::Dots(Style::new(3).faint(), vec![(f64::NAN, 0.0, String::new()), (0.5, 0.0, "dot".into())]),
        ];
        let panel = Panel::names(vec!["a".into(), "a-name-that-is-much-too-long-for-its-place".into()], marks);
        let svg = Chart { x: Axis::log("delay", Unit::Time), range: Some((1e-6, 1.0)), ..chart(vec![panel]) }
            .svg()
            .into_string();
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
        assert!(
            chart(vec![Panel::new(50.0, Axis::new("", Unit::Count), vec![])])
                .svg()
                .into_string()
                .contains("nothing to draw")
        );
    }
}
