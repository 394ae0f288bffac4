//! The marks that a chart consists of.

use maud::{Markup, html};

use super::chart::Area;

/// Number of different styles.
pub const STYLES: usize = 10;

/// Colour, dash and shape of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Its number. From [`STYLES`] on, colours and shapes repeat.
    pub number: usize,
    /// True for a fainter mark, which accompanies another line.
    pub faint: bool,
}

impl Style {
    /// The style of published figures. No class or flow has it.
    pub const PUBLISHED: Style = Style::new(3);

    /// A style by its number.
    pub const fn new(number: usize) -> Style {
        Style { number, faint: false }
    }

    /// The style of the nth class or flow.
    pub fn nth(n: usize) -> Style {
        const ORDER: [usize; STYLES - 1] = [0, 1, 2, 4, 5, 6, 7, 8, 9];
        Style::new(ORDER[n % ORDER.len()] + n / ORDER.len() * STYLES)
    }

    /// The same style, fainter.
    pub const fn faint(self) -> Style {
        Style { faint: true, ..self }
    }

    /// Its classes in the style sheet: `s0` to `s9`, and `round1` to `round3` when colours repeat.
    pub fn class(self) -> String {
        let mut class = format!("s{}", self.number % STYLES);
        if self.number >= STYLES {
            class += &format!(" round{}", self.number / STYLES % 4);
        }
        if self.faint {
            class += " faint";
        }
        class
    }
}

/// Something drawn in a panel. Points are (x, y). Texts are shown when the pointer rests on the
/// mark.
#[derive(Clone, Debug)]
pub enum Mark {
    /// A line. A point that is not finite is a gap.
    Line(Style, Vec<(f64, f64)>),
    /// A line in steps: the height of each point holds up to the next point.
    Steps(Style, Vec<(f64, f64)>),
    /// A vertical stroke from the bottom of the panel to each point.
    Needles(Style, Vec<(f64, f64)>),
    /// A dot at each point.
    Dots(Style, Vec<(f64, f64, String)>),
    /// An area between two heights: (x, low, high).
    Band(Style, Vec<(f64, f64, f64)>),
    /// A horizontal bar in a panel of names.
    Bar(Bar),
    /// A short vertical stroke across a name's row: class in the style sheet, row, x.
    Tick(&'static str, f64, f64, String),
    /// A horizontal stroke in a name's row: row, from x, to x.
    Span(Style, f64, f64, f64),
    /// A vertical line through the whole panel at an x.
    Across(f64, String),
    /// The same with a short label at its top: x, label, text.
    Flag(f64, String, String),
    /// A horizontal line through the whole panel at a height, with a text above it.
    Level(Style, f64, String),
}

/// A horizontal bar in a panel of names.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its style.
    pub style: Style,
    /// Its row; fractions are between rows.
    pub row: f64,
    /// Its height, as a part of the row's height.
    pub height: f64,
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// True if it is hatched, false if it is filled.
    pub hatched: bool,
    /// The text that is shown when the pointer rests on it.
    pub title: String,
}

impl Mark {
    /// The values on the horizontal axis.
    pub(super) fn xs(&self) -> Vec<f64> {
        match self {
            Mark::Line(_, points) | Mark::Steps(_, points) | Mark::Needles(_, points) => {
                points.iter().filter(|(_, y)| y.is_finite()).map(|(x, _)| *x).collect()
            }
            Mark::Dots(_, points) => points.iter().map(|(x, ..)| *x).collect(),
            Mark::Band(_, points) => points.iter().map(|(x, ..)| *x).collect(),
            Mark::Bar(bar) => vec![bar.from, bar.to],
            Mark::Span(_, _, from, to) => vec![*from, *to],
            Mark::Tick(_, _, x, _) | Mark::Across(x, _) | Mark::Flag(x, ..) => vec![*x],
            Mark::Level(..) => Vec::new(),
        }
    }

    /// The values on the vertical axis.
    pub(crate) fn ys(&self) -> Vec<f64> {
        match self {
            Mark::Line(_, points) | Mark::Steps(_, points) | Mark::Needles(_, points) => {
                points.iter().map(|(_, y)| *y).collect()
            }
            Mark::Dots(_, points) => points.iter().map(|(_, y, _)| *y).collect(),
            Mark::Band(_, points) => points.iter().flat_map(|(_, low, high)| [*low, *high]).collect(),
            Mark::Level(_, y, _) => vec![*y],
            _ => Vec::new(),
        }
    }

    /// Draws it into the area of a panel.
    pub(super) fn draw(&self, area: &Area<'_>) -> Markup {
        let (across, up) = (|x: f64| area.across(x), |y: f64| area.up(y));
        match self {
            Mark::Line(style, points) => line(*style, points, area, |x, y| format!("L{x:.1} {y:.1}")),
            Mark::Steps(style, points) => line(*style, points, area, |x, y| format!("H{x:.1}V{y:.1}")),
            Mark::Needles(style, points) => {
                let seen = points.iter().filter(|(_, y)| y.is_finite() && *y > 0.0);
                let d: String =
                    seen.map(|(x, y)| format!("M{:.1} {:.1}V{:.1}", across(*x), area.bottom, up(*y))).collect();
                html! { @if !d.is_empty() { (path(&format!("line {} needle", style.class()), &d, "")) } }
            }
            Mark::Dots(style, points) => html! {
                @for (x, y, title) in points.iter().filter(|(x, y, _)| x.is_finite() && y.is_finite()) {
                    (path(&format!("dot {}", style.class()), &dot(*style, across(*x), up(*y)), title))
                }
            },
            Mark::Band(style, points) => {
                let points: Vec<_> = points.iter().filter(|(_, a, b)| a.is_finite() && b.is_finite()).collect();
                let there = points.iter().map(|(x, low, _)| (*x, *low));
                let back = points.iter().rev().map(|(x, _, high)| (*x, *high));
                let corners: Vec<String> =
                    there.chain(back).map(|(x, y)| format!("{:.1} {:.1}", across(x), up(y))).collect();
                let d = format!("M{}Z", corners.join("L"));
                html! { @if !corners.is_empty() { (path(&format!("band {}", style.class()), &d, "")) } }
            }
            Mark::Bar(bar) => {
                let (x, height) = (across(bar.from), bar.height * area.row);
                let (y, width) = (up(bar.row) - height / 2.0, (across(bar.to) - x).max(0.0));
                let kind = if bar.hatched { "bar hatched" } else { "bar" };
                html! {
                    rect class={ (kind) " " (bar.style.class()) } x=(tenth(x)) y=(tenth(y)) width=(tenth(width))
                        height=(tenth(height)) { (title(&bar.title)) } "\n"
                }
            }
            Mark::Tick(class, row, x, title) => {
                let (x, y, half) = (across(*x), up(*row), area.row * 0.42);
                path(class, &format!("M{x:.1} {:.1}V{:.1}", y - half, y + half), title)
            }
            Mark::Span(style, row, from, to) => {
                let d = format!("M{:.1} {:.1}H{:.1}", across(*from), up(*row), across(*to));
                path(&format!("span {}", style.class()), &d, "")
            }
            Mark::Across(x, title) => {
                path("mark", &format!("M{:.1} {:.1}V{:.1}", across(*x), area.top, area.bottom), title)
            }
            Mark::Flag(x, label, title) => {
                let x = across(*x);
                html! {
                    (path("mark", &format!("M{x:.1} {:.1}V{:.1}", area.top, area.bottom), title))
                    @if !label.is_empty() { (text(x + 3.0, area.top + 11.0, "start", "", label)) }
                }
            }
            Mark::Level(style, y, title) => {
                let y = up(*y);
                let d = format!("M{:.1} {y:.1}H{:.1}", area.left, area.right);
                // The text is below the line if there is no room above it.
                let base = if y - area.top < 6.0 { y + 13.0 } else { y - 4.0 };
                html! {
                    (path(&format!("level {}", style.class()), &d, title))
                    (text(area.left + 6.0, base, "start", "none", title))
                }
            }
        }
    }
}

/// A line through points, interrupted at points that are not finite. `to` returns the path to a
/// point.
fn line(style: Style, points: &[(f64, f64)], area: &Area<'_>, to: impl Fn(f64, f64) -> String) -> Markup {
    let mut d = String::new();
    for piece in points.split(|(x, y)| !x.is_finite() || !y.is_finite()) {
        for (n, (x, y)) in piece.iter().enumerate() {
            let (x, y) = (area.across(*x), area.up(*y));
            d += &if n == 0 { format!("M{x:.1} {y:.1}") } else { to(x, y) };
        }
        // A single point is drawn as a short line, so that it is visible.
        if piece.len() == 1 {
            d += "h0.1";
        }
    }
    html! { @if !d.is_empty() { (path(&format!("line {}", style.class()), &d, "")) } }
}

/// The outline of a dot, about six wide. Its shape depends on the style.
pub fn dot(style: Style, x: f64, y: f64) -> String {
    match style.number % 5 {
        0 => format!("M{:.1} {y:.1}a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0Z", x - 3.6),
        1 => format!("M{x:.1} {:.1}l4.4 7.6h-8.8Z", y - 4.8),
        2 => format!("M{:.1} {:.1}h6.6v6.6h-6.6Z", x - 3.3, y - 3.3),
        3 => format!("M{x:.1} {:.1}l4.6 4.6l-4.6 4.6l-4.6 -4.6Z", y - 4.6),
        _ => format!("M{x:.1} {:.1}l4.4 -7.6h-8.8Z", y + 4.8),
    }
}

/// A path, with the text that is shown when the pointer rests on it; the text may be empty.
pub(super) fn path(class: &str, d: &str, title: &str) -> Markup {
    html! { path class=(class) d=(d) { (self::title(title)) } "\n" }
}

/// A text at a place. `anchor`: `start`, `middle` or `end`. `class` may be empty.
pub(super) fn text(x: f64, y: f64, anchor: &str, class: &str, text: &str) -> Markup {
    html! {
        text x=(tenth(x)) y=(tenth(y)) text-anchor=(anchor) class=[Some(class).filter(|class| !class.is_empty())] {
            (printable(text))
        } "\n"
    }
}

fn title(text: &str) -> Markup {
    html! { @if !text.is_empty() { title { (printable(text)) } } }
}

/// A text as XML allows it: without control characters.
pub(super) fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// A length with one decimal.
pub(super) fn tenth(length: f64) -> String {
    format!("{length:.1}")
}
