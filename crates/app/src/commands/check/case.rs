//! `altq check` of a case: everything that can be said of it without running it.

use std::collections::HashSet;
use std::path::Path;

use altq_cases::built_in;
use altq_cases::case::{CaseError, CaseFile};
use altq_cases::world::World;
use altq_config::document::{self, CheckReport, Finding};
use altq_config::{Failed, Policy, render};
use altq_pages::stat::tc;
use altq_simulator::sim::{self, SimError};

use super::Args;
use crate::exit::Exit;
use crate::output;
use crate::policy::{print_findings, shown};

/// What is wrong with a case.
enum Wrong {
    /// Something in its file.
    Case(Box<CaseError>),
    /// One of its policies.
    Policy(Box<Failed>),
    /// Something else, without a place.
    Other(String),
}

impl From<CaseError> for Wrong {
    fn from(error: CaseError) -> Wrong {
        Wrong::Case(Box::new(error))
    }
}

impl From<SimError> for Wrong {
    fn from(error: SimError) -> Wrong {
        match error {
            SimError::Named(error) => Wrong::Case(error),
            SimError::Policy(failed) => Wrong::Policy(failed),
            error => Wrong::Other(error.to_string()),
        }
    }
}

/// True if a name is that of a case: of a file by its ending, or of a case inside the program.
pub fn is_one(path: &Path) -> bool {
    let is_case = |path: &Path| path.extension().is_some_and(|extension| extension == "toml");
    let inside = || path.to_str().and_then(built_in::case).is_some_and(|path| is_case(&path));
    is_case(path) || !path.exists() && inside()
}

/// True if a text is that of a case and not that of a policy: its first line that says something is
/// a key with its value, or the head of a table.
pub fn is_text_of_one(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or("");
    let key = line.split_once('=').map(|(key, _)| key.trim());
    let is_key = |key: &str| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-.\"'".contains(c));
    line.starts_with('[') || key.is_some_and(is_key)
}

/// Checks a case and prints what is wrong with it, or what it has. The exit code is 2 after errors.
pub fn run(args: &Args, loaded: Result<CaseFile, CaseError>) -> anyhow::Result<Exit> {
    let path = &args.policy.file;
    if !args.classes.is_empty() {
        let path = path.display();
        eprintln!("altq check: --class chooses classes of a policy; `altq sim {path} --class NAME` those of a run");
        return Ok(Exit::Usage);
    }
    let checked = checked(loaded);
    let path = Path::new(&shown(path)).to_owned();
    if args.json {
        let diagnostics = match &checked {
            Ok(file) => warned(file).iter().flat_map(|own| document::findings(&own.warnings, &own.sources)).collect(),
            Err(wrong) => findings(wrong, &path),
        };
        output::print_json(&CheckReport::of_case(checked.is_ok(), diagnostics))?;
        return Ok(if checked.is_ok() { Exit::Ok } else { Exit::Usage });
    }
    match checked {
        Ok(file) => {
            warned(&file).iter().for_each(|policy| print_findings(&policy.warnings, &policy.sources, args.all));
            output::print(&summary(&file))?;
            Ok(Exit::Ok)
        }
        Err(wrong) => {
            match wrong {
                Wrong::Case(error) => eprintln!("altq check: {error}"),
                Wrong::Policy(failed) => print_findings(&failed.diagnostics, &failed.sources, args.all),
                Wrong::Other(why) => eprintln!("altq check: {}: {why}", path.display()),
            }
            Ok(Exit::Usage)
        }
    }
}

fn checked(loaded: Result<CaseFile, CaseError>) -> Result<CaseFile, Wrong> {
    let file = loaded?;
    tc::check(&file)?;
    sim::check_file(&file)?;
    Ok(file)
}

/// The errors as `--json` has them.
fn findings(wrong: &Wrong, path: &Path) -> Vec<Finding> {
    let one = |message: &str, (line, column): (usize, usize)| Finding {
        severity: "error",
        code: "case",
        message: message.to_owned(),
        file: path.display().to_string(),
        line,
        column,
        help: None,
    };
    match wrong {
        Wrong::Case(error) => {
            vec![one(&error.message, error.place.as_ref().map_or((1, 1), |place| (place.line, place.column)))]
        }
        Wrong::Policy(failed) => document::findings(&failed.diagnostics, &failed.sources),
        Wrong::Other(why) => vec![one(why, (1, 1))],
    }
}

/// The case's policies that have warnings. A policy may stand in many runs; those of which the same
/// is said are there once.
fn warned(file: &CaseFile) -> Vec<Policy> {
    let (mut said, mut list) = (HashSet::new(), Vec::new());
    for case in file.runs.iter().map(|run| &run.case) {
        for policy in case.columns.iter().filter_map(|column| column.load(case).ok()) {
            let text = render(&policy.warnings, &policy.sources, false);
            if !text.is_empty() && said.insert(text) {
                list.push(policy);
            }
        }
    }
    list
}

/// What the case has, in a few lines.
fn summary(file: &CaseFile) -> String {
    let mut out = format!("case {}: no errors\n", file.name);
    let Some(case) = file.runs.first().map(|run| &run.case) else { return out };
    let counted = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    let mut parts = vec![
        counted(case.hosts.len(), "host"),
        counted(case.links.len(), "link"),
        counted(case.flows.len(), "flow"),
        counted(case.events.len(), "event"),
        counted(case.expectations.len(), "expectation"),
    ];
    if file.is_table() {
        parts.extend([counted(file.rows.len(), "row"), counted(file.columns.len(), "column")]);
        parts.push(counted(file.runs.len(), "run"));
    }
    out += &format!("  {}\n", parts.join(", "));
    for (world, command) in [(World::Sim, "sim"), (World::Lab, "lab")] {
        if let Some(why) = file.elsewhere(world) {
            out += &format!("  not for altq {command}: {why}\n");
        }
    }
    out
}
