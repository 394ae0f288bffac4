//! Loading a policy, the same way in every command.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use altq_config::{Diagnostic, Language, Policy, Sources, load, render};

/// The file from which a command reads its policy, and its language.
#[derive(Clone, Debug, clap::Args)]
pub struct PolicyFile {
    /// The policy: a file .altq (native language), or .conf (altq.conf or cbq.conf)
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
