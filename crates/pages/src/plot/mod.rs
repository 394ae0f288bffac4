//! Charts as SVG. No fonts, scripts or files from elsewhere; the same data give the same bytes.
//!
//! ```text
//!  axis    units, ranges, round ticks          mark     lines, dots, bars, bands, strokes
//!  chart   panels that share one axis          figure   charts in rows, as a file of its own
//!  case    what `altq sim --plot` draws
//! ```
//!
//! Drawn elements have classes and no colours. A page's style sheet colours them, so that one
//! drawing does for light and dark; a [`Figure`] brings the light colours along. The colours start
//! from those of Okabe and Ito (2008), which people with any kind of colour vision tell apart; the
//! shapes of dots differ as well.
//!
//! No library draws this: plotters has had no release since 2024, and poloto draws 3 of the 10
//! kinds of marks (lines, dots, bars), and no panels that share an axis.

mod axis;
pub mod case;
mod chart;
mod figure;
mod mark;

pub use axis::{Axis, Unit};
pub use chart::{Chart, Panel, Side};
pub use figure::Figure;
pub use mark::{Bar, Mark, STYLES, Style, dot};

/// Colours as variables of a style sheet: the light ones, then the dark ones.
pub const COLOURS: &str = include_str!("colours.css");

/// How drawn elements look, with the colours as variables.
pub const CHART_STYLE: &str = include_str!("chart.css");

/// About how wide a character of a label is.
const CHARACTER: f64 = 7.2;

/// How wide a text is, about.
fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}
