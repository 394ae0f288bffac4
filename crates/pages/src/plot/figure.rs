//! Charts in rows, with a title and a legend, as an SVG file of its own.

use maud::{PreEscaped, html};

use super::chart::Chart;
use super::mark::{Style, path, printable, tenth, text};
use super::{CHART_STYLE, COLOURS, text_width};

/// A figure: rows of charts, and one legend for all.
#[derive(Clone, Debug, Default)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// The names of the styles, beginning with that of [`Style::nth`] 0.
    pub legend: Vec<String>,
    /// Charts, each with its heading. Rows may be of different lengths.
    pub rows: Vec<Vec<(String, Chart)>>,
}

/// The figure is larger than charts on a page by this factor: letters are fourteen high.
const SCALE: f64 = 7.0 / 6.0;
const MARGIN: f64 = 8.0;
/// Height of a line of the legend.
const LINE: f64 = 18.0;
/// Height of a chart's heading.
const HEADING: f64 = 22.0;

/// The title in bold, and dashes for lines whose colours are used a second time.
const OWN_STYLE: &str = "svg .title { font-weight: bold; }
.round1 { stroke-dasharray: 7 3; } .round2 { stroke-dasharray: 2 3; } .round3 { stroke-dasharray: 9 3 2 3; }
";

impl Figure {
    /// The figure as an SVG document.
    pub fn svg(&self) -> String {
        let charts = || self.rows.iter().flatten().map(|(_, chart)| chart);
        // All charts have the same width on the left, so that their axes are aligned.
        let left = charts().map(Chart::left).fold(0.0, f64::max);
        let column = charts().map(|chart| chart.width).fold(0.0, f64::max);
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let width = columns as f64 * column;
        let title = if self.title.is_empty() { 0.0 } else { 22.0 };
        let legend = self.legend_places(left, width);
        let mut top = title + legend.last().map_or(0.0, |(_, y)| y + LINE);
        let mut placed = Vec::new();
        for row in &self.rows {
            let heading = if row.iter().all(|(heading, _)| heading.is_empty()) { 0.0 } else { HEADING };
            placed.extend(
                row.iter().enumerate().map(|(n, (name, chart))| (n as f64 * column, top, heading, name, chart)),
            );
            top += heading + row.iter().map(|(_, chart)| chart.height()).fold(0.0, f64::max) + MARGIN;
        }
        let drawing = html! {
            svg xmlns="http://www.w3.org/2000/svg" width=(format!("{:.0}", width * SCALE))
                height=(format!("{:.0}", top * SCALE)) viewBox=(format!("0 0 {width:.0} {top:.0}")) {
                "\n" title { (printable(&self.title)) } "\n"
                style { "\n" (PreEscaped(style())) (OWN_STYLE) } "\n"
                rect width="100%" height="100%" fill="white" {} "\n"
                @if title > 0.0 {
                    (text(width / 2.0, 16.0, "middle", "title", &self.title))
                }
                g transform=(format!("translate(0 {title:.0})")) {
                    "\n"
                    @for ((n, name), (x, y)) in self.legend.iter().enumerate().zip(&legend) {
                        (path(&format!("line {}", Style::nth(n).class()), &format!("M{x:.1} {:.1}h28", y + 8.0), ""))
                        (text(x + 34.0, y + 12.0, "start", "", name))
                    }
                } "\n"
                @for (x, y, heading, name, chart) in placed {
                    g transform={ "translate(" (tenth(x)) " " (tenth(y)) ")" } {
                        "\n"
                        @if !name.is_empty() {
                            (text((left + chart.width) / 2.0, 16.0, "middle", "", name))
                        }
                        g transform={ "translate(0 " (tenth(heading)) ")" } { "\n" (chart.draw(left)) }
                    } "\n"
                }
            } "\n"
        };
        drawing.into_string()
    }

    /// The places of the legend's names: side by side, in as many lines as they need.
    fn legend_places(&self, left: f64, width: f64) -> Vec<(f64, f64)> {
        let (mut x, mut y) = (left, 0.0);
        let place = |name: &String| {
            let takes = 34.0 + text_width(name) + 18.0;
            if x + takes > width && x > left {
                (x, y) = (left, y + LINE);
            }
            x += takes;
            (x - takes, y)
        };
        self.legend.iter().map(place).collect()
    }
}

/// The style sheet with the light colours in place of variables, which some viewers do not support.
fn style() -> String {
    let variables = COLOURS.split(['{', ';']).filter_map(|line| line.trim().strip_prefix("--")?.split_once(": "));
    // The first colour of each variable is the light one.
    variables.fold(CHART_STYLE.to_owned(), |style, (name, colour)| style.replace(&format!("var(--{name})"), colour))
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Mark, Panel, Unit};
    use super::*;

    fn chart(marks: Vec<Mark>) -> Chart {
        let panels = vec![Panel::new(100.0, Axis::new("n", Unit::Count), marks)];
        Chart { title: String::new(), width: 400.0, x: Axis::new("time", Unit::Time), range: None, panels }
    }

    fn figure(marks: Vec<Mark>) -> Figure {
        Figure { title: String::new(), legend: vec!["a".into()], rows: vec![vec![(String::new(), chart(marks))]] }
    }

    #[test]
    fn points_lie_where_they_belong() {
        // The area reaches from x = 44.4 (two digits and the label) to 386, and from y = 110 (value
        // 0) up to 10 (value 10).
        let points = vec![(0.0, 0.0), (5.0, 5.0), (10.0, 10.0)];
        let svg = figure(vec![Mark::Line(Style::nth(0), points)]).svg();
        assert!(svg.contains("d=\"M44.4 110.0L215.2 60.0L386.0 10.0\""), "{svg}");
        assert!(svg.contains(">time [s]</text>") && svg.contains(">n</text>"));
    }

    #[test]
    fn a_gap_is_a_gap() {
        let nan = f64::NAN;
        let svg = figure(vec![Mark::Line(Style::nth(0), vec![(0.0, 1.0), (1.0, 2.0), (2.0, nan), (3.0, 1.0)])]).svg();
        let line = svg.split("<path class=\"line s0\"").nth(2).unwrap();
        assert_eq!(line.split("></path>").next().unwrap().matches('M').count(), 2);
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn it_is_xml_whatever_the_names() {
        let lines = (0..28).map(|n| Mark::Line(Style::nth(n), vec![(0.0, 1.0)])).collect();
        let mut both = figure(lines);
        (both.title, both.legend) = ("a & b".into(), (0..28).map(|n| format!("<&\"{n}\u{7}>")).collect());
        both.rows.push(vec![]);
        let svg = both.svg();
        assert!(svg.contains("a &amp; b") && svg.contains("&lt;&amp;&quot;27 &gt;") && !svg.contains('\u{7}'));
        // There are nine colours; after them lines are dashed.
        assert_eq!(["s0\"", "s0 round1\"", "s0 round3\""].map(|class| svg.matches(class).count()), [2, 2, 2]);
        assert!(svg.contains(".s1 { color: #d55e00; }") && !svg.contains("var("));
        // Every element is closed by its own name.
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let (tag, name) = (tag.split('>').next().unwrap(), tag.split([' ', '>', '/']).next().unwrap());
            match tag.strip_prefix('/') {
                Some(closed) => assert_eq!(open.pop(), Some(closed)),
                None => open.push(name),
            }
        }
        assert!(open.is_empty(), "{open:?}");
        both.rows.clear();
        assert!(both.svg().ends_with("</svg>\n"));
        assert!(figure(vec![]).svg().contains(">nothing to draw</text>"));
    }
}
