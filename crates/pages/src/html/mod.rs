//! Results as pages: everything in one file, nothing fetched, no script. Light and dark, wide and
//! narrow come from the style sheet.
//!
//! ```text
//!  text       what may stand in a page, figures as people read them
//!  promises   what had to come out: a table with verdicts and gauges
//!  compare    published beside classic beside altq: table and plot
//!  worlds     the simulator beside the lab
//!  runs       over time, delays, shares, time to reclaim a share
//! ```

mod compare;
mod promises;
mod runs;
pub mod text;
mod worlds;

use std::fmt::Write;

use altq_cases::result::{CaseResult, World};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::plot::sheet::{SERIES, Series, shape};
pub use compare::{Comparison, Summary, summary};
use text::{escaped, paragraphs, slug, time};
pub use worlds::{Apart, apart};

/// A result, and the bytes that it was read from.
pub struct Source<'a> {
    /// The result.
    pub result: &'a CaseResult,
    /// Its JSON, which the page carries along.
    pub json: &'a str,
    /// Where it lies beside the page, if it does.
    pub file: Option<&'a str>,
}

/// The series of what was published.
pub const PUBLISHED: Series = Series::new(3);

const STYLE: &str = include_str!("style.css");

/// Width of a chart that takes all of the page, and of its twin for narrow screens.
const WIDE: f64 = 980.0;
const NARROW: f64 = 390.0;

/// One page of all these results, those of one case together.
pub fn page(title: &str, sources: &[Source<'_>]) -> String {
    let mut body = String::new();
    let cases = cases(sources);
    if cases.len() > 1 {
        let _ = write!(body, "<h1>{}</h1>\n{}", escaped(title), overview(sources, &|case| format!("#{}", slug(case))));
    }
    for (name, sources) in &cases {
        let _ = writeln!(body, "<section class=\"case\" id=\"{}\">", slug(name));
        body += &case(name, sources);
        body += "</section>\n";
    }
    document(title, &body)
}

/// A page that leads to the pages of cases. `note`: markup below the heading.
pub fn index(title: &str, note: &str, sources: &[Source<'_>], link: &dyn Fn(&str) -> String) -> String {
    document(title, &format!("<h1>{}</h1>\n{note}{}", escaped(title), overview(sources, link)))
}

/// Results by case, in the order in which they come.
pub fn cases<'a, 'b>(sources: &'b [Source<'a>]) -> Vec<(&'a str, Vec<&'b Source<'a>>)> {
    let mut cases: Vec<(&str, Vec<&Source<'_>>)> = Vec::new();
    for source in sources {
        match cases.iter_mut().find(|(name, _)| *name == source.result.case) {
            Some((_, list)) => list.push(source),
            None => cases.push((&source.result.case, vec![source])),
        }
    }
    cases
}

/// A table of all cases with a link to each.
fn overview(sources: &[Source<'_>], link: &dyn Fn(&str) -> String) -> String {
    let count = |of: &dyn Fn(&CaseResult) -> bool| sources.iter().filter(|source| of(source.result)).count();
    let (invalid, passed) = (count(&|result| !result.valid), count(&|result| result.passed()));
    let failed = sources.len() - invalid - passed;
    let mut out = String::from("<ul class=\"tags\">");
    for (n, class, word) in [(passed, "pass", "PASS"), (failed, "fail", "FAIL"), (invalid, "invalid", "INVALID")] {
        if n > 0 {
            let _ = write!(out, "<li class=\"tag {class}\">{word}: {n} of {} results</li>", sources.len());
        }
    }
    let mut versions: Vec<&str> =
        sources.iter().filter_map(|s| s.result.made.as_ref()).map(|made| made.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    if !versions.is_empty() {
        let _ = write!(out, "<li class=\"tag\">altq {}</li>", escaped(&versions.join(", ")));
    }
    out += "</ul>\n<p class=\"quiet small\">Published: figures of the document that a case is taken from. Off by at \
        most: the worst error of the column classic against them, without those that the case says do not come out, \
        and why.</p>\n";
    out += "<div class=\"scroll\"><table>\n<thead><tr><th>case</th><th class=\"text\">verdict</th><th \
        class=\"text\">world</th><th>promises kept</th><th>rows</th><th>published</th><th>classic off by at \
        most</th></tr></thead>\n<tbody>\n";
    for source in sources {
        let (result, sum) = (source.result, summary(source.result));
        let worst = sum.worst.as_ref().map_or("–".into(), |(error, row)| {
            format!("{} <span class=\"error\">{}</span>", text::deviation(*error), escaped(row))
        });
        let _ = writeln!(
            out,
            "<tr><td><a href=\"{}\">{}</a></td><td class=\"text\">{}</td><td class=\"text\">{}</td><td>{} of \
             {}</td><td>{}</td><td>{}</td><td>{worst}</td></tr>",
            escaped(&link(&result.case)),
            escaped(&result.case),
            promises::verdict(result.valid, result.passed()),
            result.world.name(),
            sum.passed,
            result.expectations.len(),
            or_dash(sum.rows),
            or_dash(sum.published),
        );
    }
    out + "</tbody></table></div>\n"
}

fn or_dash(n: usize) -> String {
    if n == 0 { "–".into() } else { n.to_string() }
}

/// A case: one result of it, or one of each world.
fn case(name: &str, sources: &[&Source<'_>]) -> String {
    let mut out = format!("<h1>{}</h1>\n<ul class=\"tags\">", escaped(name));
    for source in sources {
        let result = source.result;
        let kept = result.expectations.iter().filter(|outcome| outcome.pass).count();
        let (class, word) = match (result.valid, result.passed()) {
            (false, _) => ("invalid", "INVALID".to_owned()),
            (_, true) if result.expectations.is_empty() => ("quiet", "no promises in this world".to_owned()),
            (_, true) => ("pass", format!("PASS: {kept} of {kept} promises hold")),
            (_, false) => ("fail", format!("FAIL: {kept} of {} promises hold", result.expectations.len())),
        };
        let _ = write!(
            out,
            "<li class=\"tag\">{}</li><li class=\"tag {class}\">{word}</li>",
            if result.world == World::Sim { "sim: virtual time" } else { "lab: kernel TCP in namespaces" }
        );
    }
    out += "</ul>\n";
    if let Some(first) = sources.first() {
        out += &paragraphs(&first.result.description);
    }
    for source in sources {
        let result = source.result;
        let whose = if sources.len() > 1 { format!(" ({})", result.world.name()) } else { String::new() };
        if !result.valid || !result.notes.is_empty() {
            let _ = write!(out, "<div class=\"{}\">", if result.valid { "notes" } else { "notes warning" });
            if !result.valid {
                let _ = write!(out, "<p class=\"invalid\">INVALID{whose}: these figures are not to be trusted.</p>");
            }
            for note in &result.notes {
                let _ = write!(out, "<p>{}</p>", escaped(note));
            }
            out += "</div>\n";
        }
    }
    out += &compare::section(sources);
    out += &worlds::section(sources);
    for source in sources {
        let result = source.result;
        let whose = if sources.len() > 1 { format!(" ({})", result.world.name()) } else { String::new() };
        let _ = writeln!(out, "<h2>Promises{whose}</h2>");
        let table = promises::section(result);
        if result.expectations.len() > 24 {
            let _ = writeln!(
                out,
                "<details{}><summary>All {} promises</summary>\n{table}</details>",
                if result.passed() { "" } else { " open" },
                result.expectations.len()
            );
        } else {
            out += &table;
        }
        let groups = runs::groups(result);
        let shown: Vec<(Option<&str>, String)> = groups
            .iter()
            .map(|group| (group.row, runs::section(group, result)))
            .filter(|(_, text)| !text.is_empty())
            .collect();
        if !shown.is_empty() {
            let _ = writeln!(out, "<h2>What happened{whose}</h2>");
        }
        let middle = shown.len() / 2;
        for (n, (row, text)) in shown.iter().enumerate() {
            match row {
                None => out += text,
                Some(row) => {
                    let open = if n == middle { " open" } else { "" };
                    let _ = writeln!(out, "<details{open}><summary>row {}</summary>\n{text}</details>", escaped(row));
                }
            }
        }
        out += &peers(result);
        let _ = write!(out, "<h2>How it was made{whose}</h2>\n{}", facts(source));
    }
    out
}

/// What stood in the link's place, beside altq.
fn peers(result: &CaseResult) -> String {
    let mut out = String::new();
    for peer in &result.peers {
        let column = peer.column.as_ref().map_or(String::new(), |column| format!("{column}: "));
        let _ = writeln!(
            out,
            "<h2>{}altq beside the kernel’s {}</h2>",
            escaped(&column),
            escaped(&peer.name.to_uppercase())
        );
        let mut rows =
            vec![vec![String::new(), "altq".into(), format!("kernel {}", peer.name.to_uppercase()), "ratio".into()]];
        let lists = [("class", &peer.classes), ("flow", &peer.flows)];
        for (what, row) in lists.iter().flat_map(|(what, rows)| rows.iter().map(move |row| (what, row))) {
            let rate = |bit_s: u64| text::figure(bit_s as f64, "bit/s");
            let ratio = row.ratio.map_or("–".into(), |ratio| format!("{ratio:.3}"));
            rows.push(vec![format!("{what} {}", row.name), rate(row.altq_bit_s), rate(row.bit_s), ratio]);
        }
        out += &table(&rows);
    }
    out
}

/// Command, seed, versions, files and hashes; and the data themselves.
fn facts(source: &Source<'_>) -> String {
    let result = source.result;
    let mut out = String::new();
    if let Some(made) = &result.made {
        let _ = writeln!(out, "<pre>{}</pre>", escaped(&made.command));
    }
    out += "<dl class=\"facts\">\n";
    let mut fact = |name: &str, value: String| {
        let _ = writeln!(out, "<dt>{name}</dt><dd>{value}</dd>");
    };
    let from = if result.warmup_ns == 0 { "its start".into() } else { time(result.warmup_ns as f64) };
    let ran = format!("{}, measured from {from} on", time(result.duration_ns as f64));
    fact("seed", result.seed.to_string());
    if result.duration_ns > 0 {
        fact("a run lasts", ran);
    }
    if let Some(made) = &result.made {
        fact("altq", escaped(&made.version));
        if let Some(kernel) = &made.kernel {
            fact("kernel", escaped(kernel));
        }
        if let Some(offload) = made.offload {
            fact("super-packets", if offload { "hosts may send them".into() } else { "off".into() });
        }
        for file in &made.files {
            fact(&escaped(&file.file), format!("<code>sha256 {}</code>", escaped(&file.sha256)));
        }
    }
    let name = format!("{}.{}.json", slug(&result.case), result.world.name());
    let mut data = format!(
        "<a download=\"{name}\" href=\"data:application/json;base64,{}\">{name}</a> (altq.result/1, {} kB, in this \
         page)",
        BASE64.encode(source.json),
        source.json.len().div_ceil(1000)
    );
    if let Some(file) = source.file {
        let _ = write!(data, "; also beside it: <a href=\"{0}\">{0}</a>", escaped(file));
    }
    fact("raw data", data);
    out + "</dl>\n"
}

/// A whole document.
fn document(title: &str, body: &str) -> String {
    let mut hatches =
        String::from("<svg width=\"0\" height=\"0\" style=\"position:absolute\" aria-hidden=\"true\"><defs>");
    for n in 0..SERIES {
        let _ = write!(
            hatches,
            "<pattern id=\"hatch{n}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate(45)\">\
             <path d=\"M0 0V6\" style=\"stroke:var(--c{n});stroke-width:4;fill:none\"/></pattern>"
        );
    }
    hatches += "</defs></svg>";
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n\
         {hatches}\n{body}</body>\n</html>\n",
        escaped(title)
    )
}

/// A chart twice: for wide screens and for narrow ones; the style sheet shows one of them.
fn both(draw: &dyn Fn(f64) -> String) -> String {
    format!("<div class=\"wide\">{}</div><div class=\"narrow\">{}</div>", draw(WIDE), draw(NARROW))
}

/// Charts beside one another, each with its caption: as wide as their number leaves room for, and
/// once more for narrow screens.
fn beside(captions: &[&str], draw: &dyn Fn(usize, f64) -> String) -> String {
    if captions.len() == 1 {
        return format!("<figure>{}</figure>\n", both(&|width| draw(0, width)));
    }
    let (columns, width) = if captions.len() == 2 { (2, 560.0) } else { (3, NARROW) };
    let figure = |(n, caption): (usize, &&str)| {
        let wide = draw(n, width);
        let drawn = if columns == 3 {
            wide
        } else {
            format!("<div class=\"wide\">{wide}</div><div class=\"narrow\">{}</div>", draw(n, NARROW))
        };
        format!("<figure><figcaption>{}</figcaption>{drawn}</figure>\n", escaped(caption))
    };
    format!("<div class=\"beside{columns}\">\n{}</div>\n", captions.iter().enumerate().map(figure).collect::<String>())
}

/// An entry of a legend: what stands for a name.
fn key(series: Series, kind: &str, name: &str) -> String {
    let class = series.class();
    let sign = match kind {
        "dot" => format!("<path class=\"dot {class}\" d=\"{}\"/>", shape(series.number, 15.0, 7.0)),
        "both" => format!(
            "<path class=\"line {class}\" d=\"M1 7H29\"/><path class=\"dot {class}\" d=\"{}\"/>",
            shape(series.number, 15.0, 7.0)
        ),
        "bar" => format!("<rect class=\"bar {class}\" x=\"1\" y=\"2\" width=\"28\" height=\"10\"/>"),
        "hatched" => format!("<rect class=\"bar hatched {class}\" x=\"1\" y=\"2\" width=\"28\" height=\"10\"/>"),
        "guarantee" | "ceiling" => format!("<path class=\"{kind}\" d=\"M15 1V13\"/>"),
        _ => format!("<path class=\"line {class}\" d=\"M1 7H29\"/>"),
    };
    format!("<li><svg viewBox=\"0 0 30 14\" aria-hidden=\"true\">{sign}</svg>{}</li>", escaped(name))
}

/// The series of the nth class or flow; that of the published figures is not among them.
fn palette(n: usize) -> Series {
    const ORDER: [usize; SERIES - 1] = [0, 1, 2, 4, 5, 6, 7, 8, 9];
    Series::new(ORDER[n % ORDER.len()])
}

/// The series of a column: altq's and classic's are the same everywhere.
fn column_series(name: &str, place: usize) -> Series {
    match name {
        "altq" | "" => Series::new(0),
        "classic" => Series::new(1),
        _ => palette(2 + place),
    }
}

/// A table: a head, and rows whose first cell names them.
fn table(rows: &[Vec<String>]) -> String {
    let Some((head, rows)) = rows.split_first() else { return String::new() };
    let cells: String = head.iter().map(|cell| format!("<th>{}</th>", escaped(cell))).collect();
    let mut out = format!("<div class=\"scroll\"><table>\n<thead><tr>{cells}</tr></thead>\n<tbody>\n");
    for row in rows {
        let cells = row.iter().enumerate().map(|(n, cell)| match n {
            0 => format!("<th scope=\"row\">{}</th>", escaped(cell)),
            _ => format!("<td>{}</td>", escaped(cell)),
        });
        let _ = writeln!(out, "<tr>{}</tr>", cells.collect::<String>());
    }
    out + "</tbody></table></div>\n"
}
