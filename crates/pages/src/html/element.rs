//! Elements that several parts of a page use.

use maud::{Markup, html};

use crate::plot::{Style, dot};

/// Width of a chart across the whole page.
const WIDE: f64 = 980.0;
/// Width of the same chart on a narrow screen, and of one of three across a wide page.
const NARROW: f64 = 390.0;
/// Width of one of two charts across a wide page.
const HALF: f64 = 560.0;

/// A table: a head, and rows whose first cell is the row's name.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> Markup {
    html! {
        div.scroll { table {
            "\n" thead { tr { @for cell in head { th { (cell) } } } } "\n"
            tbody {
                "\n" @for row in rows {
                    tr {
                        @for (n, cell) in row.iter().enumerate() {
                            @if n == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                        }
                    } "\n"
                }
            }
        } } "\n"
    }
}

/// A verdict as a word, and for narrow screens as a sign.
pub fn verdict(valid: bool, pass: bool) -> Markup {
    let (class, word, sign) = match (valid, pass) {
        (false, _) => ("invalid", "INVALID", "?"),
        (true, true) => ("pass", "PASS", "✓"),
        (true, false) => ("fail", "FAIL", "✗"),
    };
    html! { span class=(class) { span.word { (word) } span.sign { (sign) } } }
}

/// Charts side by side, each with its caption. `draw` draws the nth chart in a given width. Charts
/// are as wide as their number allows. If that is wider than a narrow screen, they are drawn a
/// second time for one.
pub fn charts(captions: &[&str], draw: &dyn Fn(usize, f64) -> Markup) -> Markup {
    let (columns, width) = match captions.len() {
        1 => return html! { figure { (wide_and_narrow(WIDE, &|width| draw(0, width))) } "\n" },
        2 => (2, HALF),
        _ => (3, NARROW),
    };
    html! {
        div class={ "beside" (columns) } {
            "\n" @for (n, caption) in captions.iter().enumerate() {
                figure {
                    figcaption { (caption) }
                    @if width > NARROW { (wide_and_narrow(width, &|width| draw(n, width))) } @else { (draw(n, width)) }
                } "\n"
            }
        } "\n"
    }
}

/// A chart drawn in two widths; the style sheet shows the one that fits the screen.
fn wide_and_narrow(width: f64, draw: &dyn Fn(f64) -> Markup) -> Markup {
    html! { div.wide { (draw(width)) } div.narrow { (draw(NARROW)) } }
}

/// The sign before a name in a legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A line.
    Line,
    /// A dot.
    Dot,
    /// A line with a dot on it.
    LineAndDot,
    /// A bar.
    Bar,
    /// A hatched bar.
    Hatched,
    /// The stroke of a guarantee.
    Guarantee,
    /// The stroke of a ceiling.
    Ceiling,
}

/// A legend.
pub fn legend<'a>(entries: impl IntoIterator<Item = (Style, Sign, &'a str)>) -> Markup {
    html! {
        ul.legend {
            @for (style, sign, name) in entries {
                li { svg viewBox="0 0 30 14" aria-hidden="true" { (drawn(style, sign)) } (name) }
            }
        } "\n"
    }
}

fn drawn(style: Style, sign: Sign) -> Markup {
    let class = style.class();
    html! {
        @if matches!(sign, Sign::Line | Sign::LineAndDot) { path class={ "line " (class) } d="M1 7H29" {} }
        @if matches!(sign, Sign::Dot | Sign::LineAndDot) {
            path class={ "dot " (class) } d=(dot(style, 15.0, 7.0)) {}
        }
        @match sign {
            Sign::Bar => { rect class={ "bar " (class) } x="1" y="2" width="28" height="10" {} }
            Sign::Hatched => { rect class={ "bar hatched " (class) } x="1" y="2" width="28" height="10" {} }
            Sign::Guarantee => { path class="guarantee" d="M15 1V13" {} }
            Sign::Ceiling => { path class="ceiling" d="M15 1V13" {} }
            _ => {}
        }
    }
}

/// The style of a column. altq and classic have the same styles in all charts.
pub fn column_style(name: &str, place: usize) -> Style {
    match name {
        "altq" | "" => Style::new(0),
        "classic" => Style::new(1),
        _ => Style::nth(2 + place),
    }
}
