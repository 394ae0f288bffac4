//! The parts of the link that classes got, beside their guarantees and ceilings.

use altq_cases::case::full_name;
use altq_cases::result::{CaseResult, ClassResult};
use maud::{Markup, html};

use super::distinct;
use crate::html::element::{Sign, charts, legend};
use crate::html::text::figure;
use crate::plot::{Axis, Bar, Chart, Mark, Panel, Style, Unit};

/// The classes of a row of a case, and the units of their bars.
struct Shares<'a> {
    /// All classes, links included.
    all: &'a [&'a ClassResult],
    /// Those that have a bar.
    shown: Vec<&'a ClassResult>,
    /// Length of the measurement, in seconds.
    window: f64,
    /// True if rates are shown as parts of the link's rate.
    as_parts: bool,
}

impl Shares<'_> {
    /// The rate at which a class was charged, in bit/s.
    fn rate(&self, class: &ClassResult) -> f64 {
        class.charged_bytes.unwrap_or(0) as f64 * 8.0 / self.window
    }

    /// The rate of a class's link, if it stays the same during the run.
    fn link_rate(&self, class: &ClassResult) -> Option<f64> {
        let root = |c: &&&ClassResult| c.report.parent.is_none() && c.link == class.link && c.column == class.column;
        let rate = self.all.iter().find(root)?.guaranteed_bit_s?;
        (rate > 0).then_some(rate as f64)
    }

    /// A rate of a class in the unit of the axis.
    fn on_axis(&self, class: &ClassResult, rate: f64) -> f64 {
        if self.as_parts { rate / self.link_rate(class).unwrap_or(1.0) } else { rate }
    }

    /// The rate that a class got beyond its guarantee, in bit/s: the borrowed bytes, if its
    /// scheduler counts them.
    fn borrowed(&self, class: &ClassResult) -> f64 {
        let rate = self.rate(class);
        if class.report.borrowed_bytes > 0 {
            let part = class.report.borrowed_bytes as f64 / class.report.sent_bytes.max(1) as f64;
            return (part * rate).min(rate);
        }
        class.guaranteed_bit_s.map_or(0.0, |guaranteed| (rate - guaranteed as f64).max(0.0))
    }

    /// The greatest value on the axis.
    fn most(&self) -> f64 {
        let ends = self.shown.iter().flat_map(|class| {
            let strokes = [class.guaranteed_bit_s, class.ceiling_bit_s].into_iter().flatten().map(|rate| rate as f64);
            strokes.chain([self.rate(class)]).map(|rate| self.on_axis(class, rate))
        });
        ends.fold(0.0, f64::max)
    }

    fn chart(&self, column: &str, width: f64) -> Chart {
        let of_column = |class: &&&ClassResult| class.column.as_deref().unwrap_or("") == column;
        let classes: Vec<&ClassResult> = self.shown.iter().filter(of_column).copied().collect();
        let several = distinct(classes.iter().map(|class| class.link.as_str())).len() > 1;
        let mut marks = Vec::new();
        for (n, class) in classes.iter().enumerate() {
            self.push_marks(class, &name(class, several), n as f64, &mut marks);
        }
        let label = |class: &&ClassResult| "· ".repeat(depth(&classes, class)) + &name(class, several);
        let panels = vec![Panel::names(classes.iter().map(label).collect(), marks)];
        let x = match self.as_parts {
            true => Axis::new("of the link's rate", Unit::Part),
            false => Axis::new("bytes charged", Unit::Rate),
        };
        let title = format!("{column} what classes had of the link").trim().to_owned();
        Chart { title, width, x, range: Some((0.0, self.most() * 1.02)), panels }
    }

    /// The bars and strokes of a class.
    fn push_marks(&self, class: &ClassResult, name: &str, row: f64, marks: &mut Vec<Mark>) {
        let (rate, borrowed) = (self.rate(class), self.borrowed(class));
        let shown = |rate: f64| figure(rate, "bit/s");
        let title = format!("{name}: {} charged, of it {} borrowed", shown(rate), shown(borrowed));
        let (own, all) = (self.on_axis(class, rate - borrowed), self.on_axis(class, rate));
        for (from, to, hatched) in [(0.0, own, false), (own, all, true)] {
            marks.push(Mark::Bar(Bar {
                style: Style::nth(0),
                row,
                height: 0.56,
                from,
                to,
                hatched,
                title: title.clone(),
            }));
        }
        let strokes =
            [("guarantee", "guaranteed", class.guaranteed_bit_s), ("ceiling", "ceiling", class.ceiling_bit_s)];
        for (style, word, rate) in strokes {
            let Some(rate) = rate.map(|rate| rate as f64) else { continue };
            marks.push(Mark::Tick(style, row, self.on_axis(class, rate), format!("{word} {}", shown(rate))));
        }
    }
}

/// A chart for each column; empty if charged bytes were not kept.
pub fn section(classes: &[&ClassResult], result: &CaseResult) -> Markup {
    let window = result.duration_ns.saturating_sub(result.warmup_ns) as f64 / 1e9;
    let has_bar = |class: &&&ClassResult| class.charged_bytes.is_some() && class.report.parent.is_some();
    let mut shares =
        Shares { all: classes, shown: classes.iter().filter(has_bar).copied().collect(), window, as_parts: false };
    if window <= 0.0 || shares.shown.is_empty() {
        return Markup::default();
    }
    shares.as_parts = shares.shown.iter().all(|class| shares.link_rate(class).is_some());
    let columns = distinct(classes.iter().map(|class| class.column.as_deref().unwrap_or("")));
    let any = |of: &dyn Fn(&ClassResult) -> bool| shares.shown.iter().any(|class| of(class));
    let entries = [
        (true, Sign::Bar, "own"),
        (any(&|class| shares.borrowed(class) > 0.0), Sign::Hatched, "borrowed"),
        (any(&|class| class.guaranteed_bit_s.is_some()), Sign::Guarantee, "guarantee"),
        (any(&|class| class.ceiling_bit_s.is_some()), Sign::Ceiling, "ceiling"),
    ];
    let entries = entries.into_iter().filter(|(there, ..)| *there);
    html! {
        h3 { "Shares" } "\n"
        (legend(entries.map(|(_, sign, name)| (Style::nth(0), sign, name))))
        (charts(&columns, &|n, width| {
            columns.get(n).map_or_else(Markup::default, |column| shares.chart(column, width).svg())
        }))
        p.quiet.small {
            "Bytes that the link charged from the warm-up on. Guarantees and ceilings are the policy's as the case \
             begins."
        } "\n"
    }
}

/// The name of a class, after that of its link if there are several links.
fn name(class: &ClassResult, several: bool) -> String {
    if several { full_name(&class.link, &class.report.name) } else { class.report.name.clone() }
}

/// The number of shown classes above a class.
fn depth(classes: &[&ClassResult], class: &ClassResult) -> usize {
    let (mut at, mut depth) = (class, 0);
    let parent = |of: &ClassResult| {
        classes.iter().find(|c| Some(&c.report.name) == of.report.parent.as_ref() && c.link == class.link).copied()
    };
    while let Some(above) = parent(at).filter(|_| depth <= classes.len()) {
        depth += 1;
        at = above;
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;
    use altq_cases::report::ClassReport;

    /// A class (a link, without a parent) that was charged these bytes.
    fn class(link: &str, name: &str, guaranteed: u64, charged: u64) -> ClassResult {
        let parent = (link != name).then(|| link.to_owned());
        ClassResult {
            link: link.into(),
            report: ClassReport { name: name.into(), parent, ..ClassReport::default() },
            guaranteed_bit_s: Some(guaranteed),
            charged_bytes: Some(charged),
            ..ClassResult::default()
        }
    }

    #[test]
    fn a_share_is_of_the_classs_own_link() {
        // In 8 s work got 250,000 of the 1,000,000 bytes of `up`, and 2,000,000 of the 4,000,000 of
        // `down`; both were guaranteed half.
        let all = [
            class("up", "up", 1_000_000, 1_000_000),
            class("up", "work", 500_000, 250_000),
            class("down", "down", 4_000_000, 4_000_000),
            class("down", "work", 2_000_000, 2_000_000),
        ];
        let all: Vec<&ClassResult> = all.iter().collect();
        let shares = Shares { all: &all, shown: vec![all[1], all[3]], window: 8.0, as_parts: true };
        let parts = |rate: &dyn Fn(&ClassResult) -> f64| [1, 3].map(|at| shares.on_axis(all[at], rate(all[at])));
        assert_eq!(parts(&|class| shares.rate(class)), [0.25, 0.5]);
        assert_eq!(parts(&|class| class.guaranteed_bit_s.unwrap_or(0) as f64), [0.5, 0.5]);
        assert_eq!([1, 3].map(|at| name(all[at], true)), ["up/work", "down/work"]);
        assert_eq!(name(all[1], false), "work");
    }
}
