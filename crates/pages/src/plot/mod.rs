//! Small plots as SVG, made by ourselves: line and bar charts for docs and reports. No fonts,
//! scripts or files from elsewhere.
//!
//! A [`Figure`] is a grid of [`Chart`]s with one legend. Colours are those of Okabe and Ito (2008),
//! which people with any kind of colour vision tell apart; from the eighth on a line is dashed as
//! well. Same data, same bytes.

mod axis;
pub(crate) mod draw;
mod panels;
pub mod sheet;

pub use axis::{Axis, Unit};
pub use panels::{By, PANELS, Panel, figure, overlay};

/// A grid of charts, with one legend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// What the colours stand for, in order.
    pub legend: Vec<String>,
    /// Charts by row. Rows may be of different lengths.
    pub rows: Vec<Vec<Chart>>,
}

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Its heading; may be empty.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn.
    pub data: Data,
}

/// What is drawn. Series are numbered as the legend is.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Lines through points (x, y), x rising. A gap is where a point is not finite.
    Lines(Vec<Vec<(f64, f64)>>),
    /// Groups of bars: the name of each, and a height a series.
    Bars(Vec<(String, Vec<f64>)>),
}

impl Figure {
    /// The figure as an SVG document.
    pub fn svg(&self) -> String {
        draw::svg(self)
    }
}
