//! EXPERIMENTS.md: a summary of all results, and the text that goes with the cases, with the
//! figures that were measured put in.
//!
//! A folder of cases may hold a text `EXPERIMENTS.in.md`. In it stand
//!
//! - `{{summary}}`: the table of all cases; `{{not-reproduced}}`: published figures that do not
//!   come out, and why; `{{failures}}`: what had to come out and did not; `{{worlds}}`: how far the
//!   lab is from the simulator;
//! - `{{CASE/COLUMN/ROW FIGURE}}`: a figure of a case, with its unit; `{{CASE/COLUMN/ROW/NAME}}`:
//!   what was measured for an expectation; what is not there is `not measured in this run`.

use std::path::{Path, PathBuf};

use altq_cases::result::{CaseResult, World};

use crate::html::{Source, Summary, apart, summary, text};

/// The name of the text in a folder of cases.
pub const TEMPLATE: &str = "EXPERIMENTS.in.md";

/// What is written where no folder has a text.
const PLAIN: &str = "# Experiments\n\n{{summary}}\n\n{{not-reproduced}}\n\n{{failures}}\n\n{{worlds}}\n";

/// What stands where nothing was measured.
const NOTHING: &str = "*not measured in this run*";

/// A case that did not give a result in a world, and why.
pub struct Missing {
    /// The case.
    pub case: String,
    /// The world.
    pub world: World,
    /// Why.
    pub why: String,
}

/// The text of EXPERIMENTS.md, in which a case's name links to what `link` says.
///
/// # Errors
/// Where a text has `{{` without `}}`, or something between them that means nothing: the message
/// names file, line and column.
pub fn document(
    folders: &[PathBuf],
    sources: &[Source<'_>],
    missing: &[Missing],
    link: &dyn Fn(&str) -> String,
) -> Result<String, String> {
    let mut texts = Vec::new();
    for folder in folders {
        let path = folder.join(TEMPLATE);
        match std::fs::read_to_string(&path) {
            Ok(text) => texts.push((path, text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{}: {error}", path.display())),
        }
    }
    if texts.is_empty() {
        texts.push((PathBuf::from(TEMPLATE), PLAIN.to_owned()));
    }
    let mut out = String::new();
    for (path, text) in &texts {
        out += &fill(text, path, sources, missing, link)?;
    }
    Ok(out)
}

/// A text with all that it asks for put in.
fn fill(
    text: &str,
    path: &Path,
    sources: &[Source<'_>],
    missing: &[Missing],
    link: &dyn Fn(&str) -> String,
) -> Result<String, String> {
    let mut out = String::new();
    let mut at = 0;
    while let Some(begin) = text[at..].find("{{").map(|found| at + found) {
        out += &text[at..begin];
        let bad = |why: &str| {
            let (line, column) = (
                text[..begin].matches('\n').count() + 1,
                text[..begin].rsplit('\n').next().unwrap_or("").chars().count() + 1,
            );
            let around = text[begin..].lines().next().unwrap_or("");
            format!("{}:{line}:{column}: {why}\n {line} | {around}", path.display())
        };
        let Some(end) = text[begin..].find("}}").map(|found| begin + found) else {
            return Err(bad("{{ is not closed with }}"));
        };
        let word = text[begin + 2..end].trim();
        out += &match word {
            "summary" => table(sources, missing, link),
            "not-reproduced" => not_reproduced(sources),
            "failures" => failures(sources),
            "worlds" => worlds(sources),
            word if word.contains('/') => figure(word, sources).unwrap_or_else(|| NOTHING.to_owned()),
            _ => {
                return Err(bad(
                    "a text asks for {{summary}}, {{not-reproduced}}, {{failures}}, {{worlds}}, or a figure: \
                     {{CASE/COLUMN/ROW FIGURE}}",
                ));
            }
        };
        at = end + 2;
    }
    Ok(out + &text[at..])
}

/// The way from a folder to a file, as a link has it.
pub fn relative(folder: &Path, file: &Path) -> std::io::Result<String> {
    let folder = std::path::absolute(folder)?.canonicalize()?;
    let file = file.canonicalize()?;
    let shared = folder.components().zip(file.components()).take_while(|(a, b)| a == b).count();
    let up = folder.components().skip(shared).map(|_| "..".to_owned());
    let down = file.components().skip(shared).map(|part| part.as_os_str().to_string_lossy().into_owned());
    Ok(up.chain(down).collect::<Vec<_>>().join("/"))
}

/// What was measured of a figure or for an expectation.
fn figure(word: &str, sources: &[Source<'_>]) -> Option<String> {
    let (name, wanted) = match word.split_once(' ') {
        Some((name, figure)) => (name, Some(figure.trim())),
        None => (word, None),
    };
    // A case's own name may hold a slash.
    let result =
        |source: &&Source<'_>| name.strip_prefix(source.result.case.as_str()).is_some_and(|rest| rest.starts_with('/'));
    for source in sources.iter().filter(result) {
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

fn world(world: World) -> &'static str {
    match world {
        World::Sim => "sim",
        World::Lab => "lab",
    }
}

/// The table of all cases.
fn table(sources: &[Source<'_>], missing: &[Missing], link: &dyn Fn(&str) -> String) -> String {
    let mut out = String::from(
        "| case | world | rows | published figures | classic off by at most | promises of altq kept | all promises \
         kept | verdict |\n|---|---|---|---|---|---|---|---|\n",
    );
    for source in sources {
        let (result, sum): (&CaseResult, Summary) = (source.result, summary(source.result));
        let worst = sum
            .worst
            .as_ref()
            .map_or("–".into(), |(error, row)| format!("{} ({})", text::deviation(*error), cell(row)));
        let dash = |n: usize| if n == 0 { "–".to_owned() } else { n.to_string() };
        let altq = if sum.altq.1 == 0 { "–".into() } else { format!("{} of {}", sum.altq.0, sum.altq.1) };
        let verdict = verdict(result);
        let (name, page) = (cell(&result.case), link(&result.case));
        let (rows, published, all) = (dash(sum.rows), dash(sum.published), result.expectations.len());
        out += &format!(
            "| [{name}]({page}) | {} | {rows} | {published} | {worst} | {altq} | {} of {all} | {verdict} |\n",
            world(result.world),
            sum.passed
        );
    }
    for one in missing {
        let (name, page) = (cell(&one.case), link(&one.case));
        out += &format!("| [{name}]({page}) | {} | | | | | | not run: {} |\n", world(one.world), cell(&one.why));
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
fn worlds(sources: &[Source<'_>]) -> String {
    let mut out = String::new();
    for lab in sources.iter().map(|source| source.result).filter(|result| result.world == World::Lab) {
        let sim = sources
            .iter()
            .map(|source| source.result)
            .find(|result| result.world == World::Sim && result.case == lab.case);
        let Some(sim) = sim else { continue };
        let (classes, worst) = match apart(sim, lab) {
            Some(apart) => {
                (apart.classes.to_string(), format!("{} ({})", text::deviation(apart.worst), cell(&apart.class)))
            }
            None => ("–".into(), "–".into()),
        };
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

/// Text as a cell of a table may hold it.
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

/// What had to come out and did not.
fn failures(sources: &[Source<'_>]) -> String {
    let mut out = String::new();
    for source in sources {
        let result = source.result;
        if !result.valid {
            out += &format!(
                "- **{}** ({}): INVALID: {}\n",
                cell(&result.case),
                world(result.world),
                cell(&result.notes.join("; "))
            );
        }
        for outcome in result.expectations.iter().filter(|outcome| !outcome.pass) {
            let unit = outcome.measure.unit().name();
            let measured = outcome.measured.map_or("nothing".into(), |measured| text::figure(measured, unit));
            out += &format!(
                "- `{}` ({}): {measured} where {} was expected ({})\n",
                outcome.name,
                world(result.world),
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
        assert_eq!(relative(&tree.join(".."), &tree.join("src/main.rs")).unwrap(), "app/src/main.rs");
        assert_eq!(relative(&tree.join("src/lab"), &tree.join("Cargo.toml")).unwrap(), "../../Cargo.toml");
        assert!(relative(tree, &tree.join("no-such-file")).is_err());
    }

    #[test]
    fn texts_are_filled_or_refused_with_a_place() {
        let path = Path::new("in.md");
        assert_eq!(fill("a {{x/altq/5 slow}} b", path, &[], &[], &str::to_owned).unwrap(), format!("a {NOTHING} b"));
        assert_eq!(fill("{{failures}}", path, &[], &[], &str::to_owned).unwrap(), "Nothing: every promise holds.\n");
        assert_eq!(fill("{{worlds}}", path, &[], &[], &str::to_owned).unwrap(), "No case was run in both.\n");
        let said = fill("one\ntwo {{nonsense}}", path, &[], &[], &str::to_owned).unwrap_err();
        assert!(said.starts_with("in.md:2:5: a text asks for {{summary}}"), "{said}");
        assert!(fill("{{summary", path, &[], &[], &str::to_owned).unwrap_err().contains("in.md:1:1: {{ is not closed"));
    }
}
