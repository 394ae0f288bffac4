//! EXPERIMENTS.md: a summary of all results, and a text about the cases with the measured figures
//! filled in.
//!
//! A folder of cases may hold such a text, `EXPERIMENTS.in.md`, with these placeholders:
//!
//! - `{{summary}}`: the table of all cases; `{{not-reproduced}}`: published figures that do not
//!   come out, and the reasons; `{{failures}}`: expectations that did not hold; `{{worlds}}`: how
//!   much the lab differs from the simulator; `{{seeds}}`: promises that do not hold at every seed,
//!   if the cases ran at several;
//! - `{{CASE/COLUMN/ROW FIGURE}}`: a figure of a case, with its unit; `{{CASE/COLUMN/ROW/NAME}}`:
//!   the measured value of an expectation. A value that does not exist is
//!   `not measured in this run`.

use std::path::{Path, PathBuf};

use altq_cases::built_in;
use altq_cases::case::Bound;
use altq_cases::place::Place;
use altq_cases::result::{CaseResult, Outcome, World};

use crate::fill::fill;
use crate::html::{Source, Summary, difference, summary, text};

/// The name of the text in a folder of cases.
pub const TEMPLATE: &str = "EXPERIMENTS.in.md";

/// The text that is used if no folder has one.
const PLAIN: &str = "# Experiments\n\n{{summary}}\n\n{{not-reproduced}}\n\n{{failures}}\n\n{{worlds}}\n";

/// The text in place of a value that was not measured.
const NOTHING: &str = "*not measured in this run*";

/// A case that did not give a result in a world, and why.
pub struct Missing {
    /// The case.
    pub case: String,
    /// The world.
    pub world: World,
    /// The reason.
    pub why: String,
}

/// Why the document cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The text of a folder cannot be read.
    #[error("{}", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The text between `{{` and `}}` has no meaning, or `}}` is missing.
    #[error("{}:{}:{}: {why}\n {} | {around}", path.display(), place.line, place.column, place.line)]
    Placeholder {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        place: Place,
        /// The rest of the line from that place on.
        around: String,
        /// What is wrong.
        why: PlaceholderError,
    },
}

/// What is wrong with a placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceholderError {
    /// `}}` is missing.
    #[error("{{{{ is not closed with }}}}")]
    Open,
    /// It is neither a keyword nor the name of a figure.
    #[error(
        "a text asks for {{{{summary}}}}, {{{{not-reproduced}}}}, {{{{failures}}}}, {{{{worlds}}}}, {{{{seeds}}}}, \
         or a figure: {{{{CASE/COLUMN/ROW FIGURE}}}}, or the lab's: {{{{lab CASE/COLUMN/ROW FIGURE}}}}"
    )]
    Unknown,
}

/// The text of EXPERIMENTS.md, with prose filled to lines of 100 characters. `link` returns the
/// target of a case's link.
///
/// # Errors
/// If a folder's text cannot be read, or has a placeholder without a meaning.
pub fn document(
    folders: &[PathBuf],
    sources: &[Source<'_>],
    missing: &[Missing],
    link: &dyn Fn(&str) -> String,
) -> Result<String, DocumentError> {
    let mut texts = Vec::new();
    for folder in folders {
        let path = folder.join(TEMPLATE);
        match built_in::read_to_string(&path) {
            Ok(text) => texts.push((path, text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(DocumentError::Read { path, source }),
        }
    }
    if texts.is_empty() {
        texts.push((PathBuf::from(TEMPLATE), PLAIN.to_owned()));
    }
    let mut out = String::new();
    for (path, text) in &texts {
        out += &put_in(text, path, sources, missing, link)?;
    }
    Ok(fill(&out))
}

/// A text with the measured values in place of its placeholders.
fn put_in(
    text: &str,
    path: &Path,
    sources: &[Source<'_>],
    missing: &[Missing],
    link: &dyn Fn(&str) -> String,
) -> Result<String, DocumentError> {
    let mut out = String::new();
    let mut at = 0;
    while let Some(begin) = text[at..].find("{{").map(|found| at + found) {
        out += &text[at..begin];
        let bad = |why| DocumentError::Placeholder {
            path: path.to_owned(),
            place: Place::of(text, begin),
            around: text[begin..].lines().next().unwrap_or("").to_owned(),
            why,
        };
        let end = text[begin..].find("}}").map(|found| begin + found).ok_or_else(|| bad(PlaceholderError::Open))?;
        // A name may be broken by the end of a line.
        let word = text[begin + 2..end].split_whitespace().collect::<Vec<_>>().join(" ");
        out += &match word.as_str() {
            "summary" => summary_table(sources, missing, link),
            "not-reproduced" => not_reproduced(sources),
            "failures" => failures(sources),
            "worlds" => worlds_table(sources),
            "seeds" => seeds_table(sources),
            word if word.contains('/') => figure(word, sources).unwrap_or_else(|| NOTHING.to_owned()),
            _ => return Err(bad(PlaceholderError::Unknown)),
        };
        at = end + 2;
    }
    Ok(out + &text[at..])
}

/// The relative path from a folder to a file, as a link has it.
///
/// # Errors
/// If one of them does not exist.
pub fn relative(folder: &Path, file: &Path) -> std::io::Result<String> {
    let folder = std::path::absolute(folder)?.canonicalize()?;
    let file = file.canonicalize()?;
    let shared = folder.components().zip(file.components()).take_while(|(a, b)| a == b).count();
    let up = folder.components().skip(shared).map(|_| "..".to_owned());
    let down = file.components().skip(shared).map(|part| part.as_os_str().to_string_lossy().into_owned());
    Ok(up.chain(down).collect::<Vec<_>>().join("/"))
}

/// The measured value of a figure or of an expectation: the lab's if the word begins with `lab`,
/// otherwise the simulator's, or the lab's if only the lab has it.
fn figure(word: &str, sources: &[Source<'_>]) -> Option<String> {
    let (word, of_lab) = word.strip_prefix("lab ").map_or((word, false), |word| (word.trim(), true));
    let (name, wanted) = match word.split_once(' ') {
        Some((name, figure)) => (name, Some(figure.trim())),
        None => (word, None),
    };
    // A case's own name may contain a slash.
    let result =
        |source: &&Source<'_>| name.strip_prefix(source.result.case.as_str()).is_some_and(|rest| rest.starts_with('/'));
    for source in sources.iter().filter(result).filter(|source| !of_lab || source.result.world == World::Lab) {
        let rest: Vec<&str> = name[source.result.case.len() + 1..].split('/').collect();
        if let Some(wanted) = wanted {
            let row = rest.get(1).copied();
            let found = source.result.figures.iter().find(|figure| {
                figure.figure == wanted
                    && figure.column.as_deref() == rest.first().copied()
                    && figure.row.as_deref() == row
            });
            if let Some(figure) = found.and_then(|figure| Some(text::figure(figure.measured?, &figure.unit))) {
                return Some(figure);
            }
        }
        let outcome = source
            .result
            .expectations
            .iter()
            .find(|outcome| wanted.is_none() && (outcome.name == name || outcome.name == rest.join("/")));
        if let Some(outcome) = outcome.and_then(|outcome| Some((outcome.measured?, outcome.measure.unit()))) {
            return Some(text::figure(outcome.0, outcome.1.name()));
        }
    }
    None
}

/// The table of all cases.
fn summary_table(sources: &[Source<'_>], missing: &[Missing], link: &dyn Fn(&str) -> String) -> String {
    let mut out = String::from(
        "| case | world | rows | published figures | classic off by at most | promises of altq kept | all promises \
         kept | verdict |\n|---|---|---|---|---|---|---|---|\n",
    );
    for source in sources {
        let (result, sum): (&CaseResult, Summary) = (source.result, summary(source.result));
        let worst = sum.worst.as_ref().map_or("–".into(), |worst| {
            let chance = worst.half_width.filter(|half| *half > 0.0);
            let chance = chance.map(|half| format!(" ± {}", text::deviation(half).trim_start_matches('+')));
            format!("{}{} ({})", text::deviation(worst.error), chance.unwrap_or_default(), cell(&worst.name))
        });
        let dash = |n: usize| if n == 0 { "–".to_owned() } else { n.to_string() };
        let altq = if sum.altq.1 == 0 { "–".into() } else { format!("{} of {}", sum.altq.0, sum.altq.1) };
        let verdict = verdict(result);
        let (name, page) = (cell(&result.case), link(&result.case));
        let (rows, published, all) = (dash(sum.rows), dash(sum.published), result.expectations.len());
        out += &format!(
            "| [{name}]({page}) | {} | {rows} | {published} | {worst} | {altq} | {} of {all} | {verdict} |\n",
            result.world.name(),
            sum.passed
        );
    }
    for one in missing {
        let (name, page) = (cell(&one.case), link(&one.case));
        out += &format!("| [{name}]({page}) | {} | | | | | | not run: {} |\n", one.world.name(), cell(&one.why));
    }
    out
}

fn verdict(result: &CaseResult) -> &'static str {
    match (result.valid, result.passed()) {
        (false, _) => "**INVALID**",
        (_, true) => "PASS",
        (_, false) => "**FAIL**",
    }
}

/// A table of the cases that ran in both worlds.
fn worlds_table(sources: &[Source<'_>]) -> String {
    let mut out = String::new();
    for lab in sources.iter().map(|source| source.result).filter(|result| result.world == World::Lab) {
        let sim = sources
            .iter()
            .map(|source| source.result)
            .find(|result| result.world == World::Sim && result.case == lab.case);
        let Some(sim) = sim else { continue };
        let (classes, worst) = difference(sim, lab).map_or(("–".into(), "–".into()), |d| {
            (d.classes.to_string(), format!("{} ({})", text::deviation(d.worst), cell(&d.class)))
        });
        let kept = lab.expectations.iter().filter(|outcome| outcome.pass).count();
        let all = lab.expectations.len();
        out += &format!("| {} | {classes} | {worst} | {kept} of {all} | {} |\n", cell(&lab.case), verdict(lab));
    }
    if out.is_empty() {
        return "No case was run in both.\n".into();
    }
    format!(
        "| case | classes | lab off the simulator by at most | promises kept in the lab | verdict |\n\
         |---|---|---|---|---|\n{out}"
    )
}

/// A table of the promises that do not hold at every seed, and of those whose interval reaches
/// beyond what is allowed.
fn seeds_table(sources: &[Source<'_>]) -> String {
    let sampled: Vec<&CaseResult> =
        sources.iter().map(|source| source.result).filter(|result| !result.seeds.is_empty()).collect();
    if sampled.is_empty() {
        return "Each case ran at one seed.\n".into();
    }
    let mut out = String::new();
    for result in sampled {
        for outcome in &result.expectations {
            let holds = |value: f64| outcome.bound.holds(value, outcome.expected, outcome.tolerance);
            let Some((mean, half)) = outcome.measured.zip(outcome.half_width) else { continue };
            let sure = holds(mean - half) == holds(mean) && holds(mean + half) == holds(mean);
            if outcome.fails_at.is_empty() && sure {
                continue;
            }
            let unit = outcome.measure.unit().name();
            let figure = |value| text::figure(value, unit);
            let at: Vec<String> = outcome.fails_at.iter().map(u64::to_string).collect();
            let verdict = match (outcome.pass, sure) {
                (true, true) => "holds",
                (true, false) => "holds, not for sure",
                (false, false) => "**fails**, not for sure",
                (false, true) => "**fails**",
            };
            out += &format!(
                "| {} | {} ± {} | {}{} | {} of {} ({}) | {verdict} |\n",
                cell(&outcome.name),
                figure(mean),
                figure(half),
                match outcome.bound {
                    Bound::Within => "",
                    Bound::AtMost => "at most ",
                    Bound::AtLeast => "at least ",
                },
                allowed(outcome, &figure),
                at.len(),
                result.seeds.len(),
                if at.is_empty() { "–".to_owned() } else { at.join(", ") },
            );
        }
    }
    if out.is_empty() {
        return "Every promise holds at every seed.\n".into();
    }
    format!(
        "| promise | mean and 95 % interval | allowed | fails alone at | by the mean |\n|---|---|---|---|---|\n{out}"
    )
}

/// What an expectation allows.
fn allowed(outcome: &Outcome, figure: &dyn Fn(f64) -> String) -> String {
    match outcome.bound {
        Bound::Within => format!("{} ± {}", figure(outcome.expected), figure(outcome.tolerance)),
        Bound::AtMost => figure(outcome.expected + outcome.tolerance),
        Bound::AtLeast => figure(outcome.expected - outcome.tolerance),
    }
}

/// A text as a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Published figures that do not come out in the column classic, with the cases' own reasons.
fn not_reproduced(sources: &[Source<'_>]) -> String {
    let mut out = String::new();
    for source in sources {
        let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
        for (row, figure, why) in summary(source.result).not_reproduced {
            let what = format!("{row} {figure}").trim().to_owned();
            match reasons.iter_mut().find(|(reason, _)| *reason == why) {
                Some((_, list)) => list.push(what),
                None => reasons.push((why, vec![what])),
            }
        }
        for (why, what) in reasons {
            out += &format!("- **{}**, {}: {}\n", cell(&source.result.case), what.join(", "), cell(&why));
        }
    }
    if out.is_empty() { "None of those that were run is known not to come out.\n".into() } else { out }
}

/// The expectations that did not hold.
fn failures(sources: &[Source<'_>]) -> String {
    let mut out = String::new();
    for source in sources {
        let result = source.result;
        if !result.valid {
            out += &format!(
                "- **{}** ({}): INVALID: {}\n",
                cell(&result.case),
                result.world.name(),
                cell(&result.notes.join("; "))
            );
        }
        for outcome in result.expectations.iter().filter(|outcome| !outcome.pass) {
            let unit = outcome.measure.unit().name();
            let measured = outcome.shown(|measured| text::figure(measured, unit));
            out += &format!(
                "- `{}` ({}): {measured} where {} was expected ({})\n",
                outcome.name,
                result.world.name(),
                text::figure(outcome.expected, unit),
                cell(&outcome.source)
            );
        }
    }
    if out.is_empty() { "Nothing: every promise holds.\n".into() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_from_the_text_to_the_case() {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(relative(&tree.join(".."), &tree.join("src/lib.rs")).unwrap(), "pages/src/lib.rs");
        assert_eq!(relative(&tree.join("src/html"), &tree.join("Cargo.toml")).unwrap(), "../../Cargo.toml");
        assert!(relative(tree, &tree.join("no-such-file")).is_err());
    }

    #[test]
    fn a_figure_is_the_simulators_unless_the_text_asks_for_the_labs() {
        let result = |world, measured| {
            let mut result = CaseResult::new("c", world, 1);
            result.figures.push(altq_cases::result::FigureResult {
                row: Some("5".into()),
                column: Some("altq".into()),
                figure: "slow".into(),
                unit: "kbit/s".into(),
                measured: Some(measured),
                missing: None,
                samples: Vec::new(),
                half_width: None,
                published: None,
                error: None,
                source: None,
                not_reproduced: None,
            });
            result
        };
        let (sim, lab) = (result(World::Sim, 11.0), result(World::Lab, 12.0));
        let of = |result| Source { result, json: "", file: None };
        let both = [of(&sim), of(&lab)];
        assert_eq!(figure("c/altq/5 slow", &both).as_deref(), Some("11 kbit/s"));
        assert_eq!(figure("lab c/altq/5 slow", &both).as_deref(), Some("12 kbit/s"));
        assert_eq!(figure("c/altq/5 slow", &both[1..]).as_deref(), Some("12 kbit/s"), "only the lab has it");
        assert_eq!(figure("lab c/altq/5 slow", &both[..1]), None);
    }

    #[test]
    fn texts_are_filled_or_refused_with_a_place() {
        let path = Path::new("in.md");
        let put_in = |text| put_in(text, path, &[], &[], &str::to_owned).map_err(|error| error.to_string());
        assert_eq!(put_in("a {{x/altq/5 slow}} b"), Ok(format!("a {NOTHING} b")));
        assert_eq!(put_in("{{failures}}"), Ok("Nothing: every promise holds.\n".into()));
        assert_eq!(put_in("{{worlds}}"), Ok("No case was run in both.\n".into()));
        let error = put_in("one\ntwo {{nonsense}} x").unwrap_err();
        assert!(error.starts_with("in.md:2:5: a text asks for {{summary}}, {{not-reproduced}}, "), "{error}");
        assert!(error.ends_with("{{lab CASE/COLUMN/ROW FIGURE}}\n 2 | {{nonsense}} x"), "{error}");
        assert_eq!(put_in("{{summary"), Err("in.md:1:1: {{ is not closed with }}\n 1 | {{summary".into()));
    }
}
