//! Drawing: from a figure to the text of an SVG document.

use std::fmt::Write;

use super::axis::Scale;
use super::{Chart, Data, Figure};

/// Okabe and Ito 2008, darkest first; their yellow is left out: it does not show on white.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
const DASHES: [&str; 4] = ["", "7 3", "2 3", "9 3 2 3"];

const WIDTH: f64 = 620.0;
const HEIGHT: f64 = 250.0;
/// Room for ticks and labels around a chart's area.
const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 52.0;
/// Text.
const SIZE: f64 = 14.0;
/// About what a character takes.
const CHARACTER: f64 = 7.6;

pub fn svg(figure: &Figure) -> String {
    let columns = figure.rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let width = columns as f64 * WIDTH;
    let (legend, legend_height) = legend(&figure.legend, width);
    let head = if figure.title.is_empty() { 8.0 } else { 34.0 };
    let height = head + legend_height + figure.rows.len() as f64 * HEIGHT;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 \
         {width:.0} {height:.0}\" font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"{SIZE:.0}\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    if !figure.title.is_empty() {
        text(&mut out, width / 2.0, 23.0, "middle", " font-weight=\"bold\"", &figure.title);
    }
    let _ = write!(out, "<g transform=\"translate(0 {head:.0})\">\n{legend}</g>\n");
    for (row, charts) in figure.rows.iter().enumerate() {
        // Charts side by side have one scale, so that heights can be compared.
        let heights = charts.iter().filter_map(|chart| range(&values(chart).1, chart.y.log));
        let heights = heights.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
        for (column, chart) in charts.iter().enumerate() {
            let (x, y) = (column as f64 * WIDTH, head + legend_height + row as f64 * HEIGHT);
            let _ = writeln!(out, "<g transform=\"translate({x:.0} {y:.0})\">");
            draw(&mut out, chart, heights.unwrap_or((0.0, 0.0)));
            out += "</g>\n";
        }
    }
    out + "</svg>\n"
}

/// Text as it may stand in XML. Control characters cannot.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, more: &str, what: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{more}>{}</text>", escaped(what));
}

fn stroke(series: usize) -> String {
    let (colour, dash) = (COLOURS[series % COLOURS.len()], DASHES[series / COLOURS.len() % DASHES.len()]);
    let dash = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
    format!("stroke=\"{colour}\" stroke-width=\"2\"{dash}")
}

/// The legend and its height: names side by side, in as many lines as they need.
fn legend(names: &[String], width: f64) -> (String, f64) {
    let mut out = String::new();
    if names.is_empty() {
        return (out, 0.0);
    }
    let (mut x, mut y) = (LEFT, 16.0);
    for (series, name) in names.iter().enumerate() {
        let takes = 40.0 + name.chars().count() as f64 * CHARACTER + 20.0;
        if x + takes > width - RIGHT && x > LEFT {
            (x, y) = (LEFT, y + 20.0);
        }
        let (to, line) = (x + 30.0, y - 5.0);
        let _ =
            writeln!(out, "<line x1=\"{x:.1}\" y1=\"{line:.1}\" x2=\"{to:.1}\" y2=\"{line:.1}\" {}/>", stroke(series));
        text(&mut out, x + 36.0, y, "start", "", name);
        x += takes;
    }
    (out, y + 8.0)
}

/// All values across and up.
fn values(chart: &Chart) -> (Vec<f64>, Vec<f64>) {
    match &chart.data {
        Data::Lines(lines) => lines.iter().flatten().filter(|(x, y)| x.is_finite() && y.is_finite()).copied().unzip(),
        Data::Bars(groups) => {
            (Vec::new(), groups.iter().flat_map(|(_, bars)| bars).copied().filter(|y| y.is_finite()).collect())
        }
    }
}

/// The least and the greatest that an axis can show.
fn range(values: &[f64], log: bool) -> Option<(f64, f64)> {
    let values = values.iter().copied().filter(|value| !log || *value > 0.0);
    values.fold(None, |range: Option<(f64, f64)>, v| Some(range.map_or((v, v), |(a, b)| (a.min(v), b.max(v)))))
}

fn draw(out: &mut String, chart: &Chart, (least, most): (f64, f64)) {
    let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    text(out, LEFT + width / 2.0, 20.0, "middle", "", &chart.title);
    let (xs, ys) = values(chart);
    let y = Scale::new(&chart.y, least, most);
    let up = |value: f64| TOP + height * (1.0 - y.place(value));
    for (value, label) in &y.ticks {
        let at = up(*value);
        let right = LEFT + width;
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT:.1}\" y1=\"{at:.1}\" x2=\"{right:.1}\" y2=\"{at:.1}\" stroke=\"#dddddd\"/>"
        );
        text(out, LEFT - 6.0, at + 5.0, "end", "", label);
    }
    let middle = TOP + height / 2.0;
    text(out, 18.0, middle, "middle", &format!(" transform=\"rotate(-90 18 {middle:.1})\""), &y.label);
    match &chart.data {
        Data::Lines(lines) => {
            let (least, most) = range(&xs, chart.x.log).unwrap_or((0.0, 1.0));
            let x = Scale::snug(&chart.x, least, most);
            let across = |value: f64| LEFT + width * x.place(value);
            for (value, label) in &x.ticks {
                let (at, bottom) = (across(*value), TOP + height);
                let _ = writeln!(
                    out,
                    "<line x1=\"{at:.1}\" y1=\"{bottom:.1}\" x2=\"{at:.1}\" y2=\"{:.1}\" stroke=\"#333333\"/>",
                    bottom + 5.0
                );
                text(out, at, bottom + 20.0, "middle", "", label);
            }
            text(out, LEFT + width / 2.0, HEIGHT - 10.0, "middle", "", &x.label);
            for (series, line) in lines.iter().enumerate() {
                for piece in line.split(|(x, y)| !x.is_finite() || !y.is_finite()).filter(|piece| !piece.is_empty()) {
                    let points: Vec<String> =
                        piece.iter().map(|(x, y)| format!("{:.1},{:.1}", across(*x), up(*y))).collect();
                    let (points, stroke) = (points.join(" "), stroke(series));
                    let _ = writeln!(
                        out,
                        "<polyline fill=\"none\" stroke-linejoin=\"round\" {stroke} points=\"{points}\"/>"
                    );
                }
            }
        }
        Data::Bars(groups) => {
            let room = width / groups.len().max(1) as f64;
            for (at, (name, bars)) in groups.iter().enumerate() {
                let left = LEFT + at as f64 * room;
                let wide = room * 0.8 / bars.len().max(1) as f64;
                for (series, bar) in bars.iter().enumerate().filter(|(_, bar)| bar.is_finite()) {
                    let (x, top, base) = (left + room * 0.1 + series as f64 * wide, up(*bar), up(0.0));
                    let tall = (base - top).max(0.0);
                    let colour = COLOURS[series % COLOURS.len()];
                    let wide = (wide - 2.0).max(1.0);
                    let _ = writeln!(
                        out,
                        "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{tall:.1}\" fill=\"{colour}\"/>"
                    );
                }
                text(out, left + room / 2.0, TOP + height + 20.0, "middle", "", name);
            }
            text(out, LEFT + width / 2.0, HEIGHT - 10.0, "middle", "", &chart.x.label);
        }
    }
    if ys.is_empty() {
        text(out, LEFT + width / 2.0, middle, "middle", " fill=\"#777777\"", "nothing");
    }
    let _ = writeln!(
        out,
        "<path d=\"M {LEFT:.1} {TOP:.1} V {:.1} H {:.1}\" fill=\"none\" stroke=\"#333333\"/>",
        TOP + height,
        LEFT + width
    );
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Unit};
    use super::*;

    fn chart(data: Data) -> Chart {
        Chart { title: "t".into(), x: Axis::new("time", Unit::Time), y: Axis::new("n", Unit::Count), data }
    }

    fn figure(data: Data, legend: &[&str]) -> String {
        let legend = legend.iter().map(|name| (*name).to_owned()).collect();
        Figure { title: "T".into(), legend, rows: vec![vec![chart(data)]] }.svg()
    }

    #[test]
    fn points_lie_where_they_belong() {
        // The area: x from 76 to 596, y from 198 (0) up to 30 (10).
        let svg = figure(Data::Lines(vec![vec![(0.0, 0.0), (5.0, 5.0), (10.0, 10.0)]]), &["a"]);
        assert!(svg.contains("points=\"76.0,198.0 336.0,114.0 596.0,30.0\""), "{svg}");
        assert!(svg.contains(">time [s]</text>") && svg.contains(">n</text>"));
    }

    #[test]
    fn a_gap_is_a_gap() {
        let nan = f64::NAN;
        let svg = figure(Data::Lines(vec![vec![(0.0, 1.0), (1.0, 2.0), (2.0, nan), (3.0, 1.0)]]), &["a"]);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn bars_stand_on_zero() {
        let svg =
            figure(Data::Bars(vec![("x".into(), vec![10.0, 5.0]), ("y".into(), vec![0.0, f64::NAN])]), &["a", "b"]);
        // A group takes 260, its bars 0.8 of that: 104 each, less 2.
        assert!(
            svg.contains("<rect x=\"102.0\" y=\"30.0\" width=\"102.0\" height=\"168.0\" fill=\"#0072b2\"/>"),
            "{svg}"
        );
        assert!(
            svg.contains("<rect x=\"206.0\" y=\"114.0\" width=\"102.0\" height=\"84.0\" fill=\"#d55e00\"/>"),
            "{svg}"
        );
        assert_eq!(svg.matches("<rect").count(), 1 + 3);
    }

    #[test]
    fn it_is_xml_whatever_the_names() {
        let lines = Data::Lines(vec![vec![(0.0, 1.0)]; 28]);
        let names: Vec<String> = (0..28).map(|n| format!("<&\"{n}\u{7}>")).collect();
        let mut both = Figure { title: "a & b".into(), legend: names, rows: vec![vec![chart(lines)], vec![]] };
        let svg = both.svg();
        assert!(svg.contains("a &amp; b") && svg.contains("&lt;&amp;&quot;27 &gt;") && !svg.contains('\u{7}'));
        // From the eighth on, dashed.
        assert_eq!(svg.matches("stroke-dasharray").count(), 2 * (28 - 7));
        // Every element is closed, and by its own name.
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let (tag, name) = (tag.split('>').next().unwrap(), tag.split([' ', '>', '/']).next().unwrap());
            match tag.strip_prefix('/') {
                Some(closed) => assert_eq!(open.pop(), Some(closed)),
                None if tag.ends_with('/') => {}
                None => open.push(name),
            }
        }
        assert!(open.is_empty(), "{open:?}");
        both.rows.clear();
        assert!(both.svg().ends_with("</svg>\n"));
        assert!(figure(Data::Lines(vec![]), &[]).contains(">nothing</text>"));
    }
}
