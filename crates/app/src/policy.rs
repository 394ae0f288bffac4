//! Loading a policy, the same way in every command.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use altq_config::{Diagnostic, Language, Policy, Sources, load, render};

/// The file that a command reads its policy from, and its language.
#[derive(Clone, Debug, clap::Args)]
pub struct PolicyFile {
    /// The policy: .altq native, .conf altq.conf or cbq.conf
    #[arg(value_name = "POLICY")]
    pub file: PathBuf,
    /// The language of the policy: native, altq, pf, tc or mqc; without it the file's name tells
    #[arg(long)]
    pub language: Option<Language>,
}

impl PolicyFile {
    /// Loads it. Warnings and errors go to standard error; `None` after errors: exit with
    /// [`Usage`](crate::exit::Exit::Usage).
    pub fn load(&self) -> Option<Policy> {
        load_policy(&self.file, self.language)
    }
}

/// Loads a policy. Warnings and errors go to standard error; `None` after errors.
pub fn load_policy(file: &Path, language: Option<Language>) -> Option<Policy> {
    match load(file, language) {
        Ok(policy) => {
            print_findings(&policy.warnings, &policy.sources);
            Some(policy)
        }
        Err(failed) => {
            print_findings(&failed.diagnostics, &failed.sources);
            None
        }
    }
}

/// Prints findings on standard error, in colour on a terminal unless NO_COLOR is set.
pub fn print_findings(diagnostics: &[Diagnostic], sources: &Sources) {
    let stderr = std::io::stderr();
    let color = stderr.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    eprint!("{}", render(diagnostics, sources, color));
}
