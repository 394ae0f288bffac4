//! Loading a policy, the same way in every command.

#[cfg(feature = "experiments")]
use std::io::ErrorKind;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

#[cfg(feature = "experiments")]
use altq_cases::built_in;
#[cfg(feature = "experiments")]
use altq_config::parse_bytes;
use altq_config::{Diagnostic, Failed, Language, Policy, STANDARD_INPUT, Severity, Sources};
use altq_config::{load, render};

/// The file from which a command reads its policy, and its language.
#[derive(Clone, Debug, clap::Args)]
pub struct PolicyFile {
    /// The policy: a file .altq (native language), or .conf (altq.conf or cbq.conf); `-` for
    /// standard input
    #[arg(value_name = "POLICY")]
    pub file: PathBuf,
    /// The policy's language: native or altq [default: by the file's name]; pf, tc and mqc are not
    /// built yet
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
    match read(file, language) {
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

/// Reads a policy: a file; or if there is none, an example inside the program, by its path in the
/// project's source folder. `-` is standard input.
#[cfg(feature = "experiments")]
pub fn read(file: &Path, language: Option<Language>) -> Result<Policy, Box<Failed>> {
    let gone = || std::fs::metadata(file).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let inside = || if built_in::is_inside(file) { Some(file.to_owned()) } else { built_in::place(file) };
    let Some(path) = inside().filter(|path| path.extension().is_some() && gone()) else { return load(file, language) };
    let bytes = built_in::read(&path);
    let text = bytes.as_ref().map_or(String::new(), |bytes| String::from_utf8_lossy(bytes).into_owned());
    let language = language.or_else(|| Language::of(&path, &text)).unwrap_or(Language::Native);
    parse_bytes(bytes, &path.display().to_string(), language)
}

/// Reads a policy: a file, or with `-` standard input. This program has no examples inside.
#[cfg(not(feature = "experiments"))]
pub fn read(file: &Path, language: Option<Language>) -> Result<Policy, Box<Failed>> {
    load(file, language)
}

/// A file as messages call it.
pub fn shown(file: &Path) -> String {
    if file == Path::new("-") { STANDARD_INPUT.to_owned() } else { file.display().to_string() }
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
        let file = if file == Path::new(STANDARD_INPUT) { Path::new("-") } else { file };
        let (more, file) = (warnings - MOST_WARNINGS, file.display());
        eprintln!("and {more} more warnings: `altq check {file} --all` prints them");
    }
}
