//! Charts as SVG. No fonts, scripts or files from elsewhere; the same data give the same bytes.
//!
//! ```text
//!  axis    units, ranges, round ticks          mark     lines, dots, bars, bands, strokes
//!  chart   panels that share one axis          figure   charts in rows, as a file of its own
//!  case    what `altq sim --plot` draws    sweep    what `altq sweep --plot` draws
//! ```
//!
//! Drawn elements have classes and no colours. A page's style sheet colours them, so that one
//! drawing serves light and dark pages; a [`Figure`] contains the light colours. The colours begin
//! with those of Okabe and Ito (2008), which people with any kind of colour vision can tell apart;
//! the shapes of dots differ as well.
//!
//! Charts are drawn without a library: plotters has had no release since 2024, and poloto draws 3
//! of the 10 kinds of marks (lines, dots, bars), and no panels that share an axis.

mod axis;
pub mod case;
mod chart;
mod figure;
mod mark;
pub mod sweep;

pub use axis::{Axis, Unit};
pub use chart::{Chart, Panel, Side};
pub use figure::Figure;
pub use mark::{Bar, Mark, STYLES, Style, dot};

/// The colours as variables of a style sheet: first the light ones, then the dark ones.
pub const COLOURS: &str = include_str!("colours.css");

/// The style sheet of drawn elements, with the colours as variables.
pub const CHART_STYLE: &str = include_str!("chart.css");

/// The most lines of a chart. More cannot be told apart.
pub const MOST_LINES: usize = 10;

/// Which of these have lines in a chart: those with the most bytes, at most [`MOST_LINES`]. Of
/// equals the first ones.
pub fn heaviest(bytes: &[u64]) -> Vec<bool> {
    let mut order: Vec<(usize, u64)> = bytes.iter().copied().enumerate().collect();
    order.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let mut kept = vec![false; bytes.len()];
    for (at, _) in order.into_iter().take(MOST_LINES) {
        kept[at] = true;
    }
    kept
}

/// Approximate width of a character in a label.
const CHARACTER: f64 = 7.2;

/// Approximate width of a text.
fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}
