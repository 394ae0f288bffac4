//! Loading a policy, the same way in every command.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use altq_config::{Diagnostic, Language, Policy, Severity, Sources, load, render};

/// The file from which a command reads its policy, and its language.
#[derive(Clone, Debug, clap::Args)]
pub struct PolicyFile {
    /// The policy: a file .altq (native language), or .conf (altq.conf or cbq.conf); `-` for
    /// standard input
    #[arg(value_name = "POLICY")]
    pub file: PathBuf,
    /// The policy's language: native, altq, pf, tc or mqc [default: by the file's name]
    #[arg(long)]
    pub language: Option<Language>,
}

impl PolicyFile {
    /// Loads the policy. Warnings and errors are printed on standard error. `None` after errors;
    /// the exit code is then [`Usage`](crate::exit::Exit::Usage).
    pub fn load(&self) -> Option<Policy> {
        load_policy(&self.file, self.language)
    }
}

/// Loads a policy. Warnings and errors are printed on standard error; `None` after errors.
pub fn load_policy(file: &Path, language: Option<Language>) -> Option<Policy> {
    match load(file, language) {
        Ok(policy) => {
            print_findings(&policy.warnings, &policy.sources, false);
            Some(policy)
        }
        Err(failed) => {
            print_findings(&failed.diagnostics, &failed.sources, false);
            None
        }
    }
}

/// The most warnings that are printed, unless all are asked for.
const MOST_WARNINGS: usize = 20;

/// Prints findings on standard error, in colour on a terminal unless NO_COLOR is set: all errors,
/// and the first warnings, or with `all` each of them.
pub fn print_findings(diagnostics: &[Diagnostic], sources: &Sources, all: bool) {
    let stderr = std::io::stderr();
    let color = stderr.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut warnings = 0;
    let shown: Vec<Diagnostic> = diagnostics
        .iter()
        .filter(|finding| {
            warnings += usize::from(finding.severity == Severity::Warning);
            all || finding.severity == Severity::Error || warnings <= MOST_WARNINGS
        })
        .cloned()
        .collect();
    eprint!("{}", render(&shown, sources, color));
    if !all && warnings > MOST_WARNINGS {
        let file = sources.texts.first().map_or(Path::new("FILE"), |(path, _)| path.as_path());
        let (more, file) = (warnings - MOST_WARNINGS, file.display());
        eprintln!("and {more} more warnings: `altq check {file} --all` prints them");
    }
}
