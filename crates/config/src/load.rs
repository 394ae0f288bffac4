//! Reads a policy from a file or a text, in any language, and checks it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::diagnostic::{Diagnostic, Findings, SourceId, Sources, Span};
use crate::language::Language;
use crate::native::Includes;
use crate::policy::Policy;
use crate::{altq_conf, check, native, render, text};

/// Why a policy is refused.
#[derive(Clone, Debug)]
pub struct Failed {
    /// All findings, at least one of them an error.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts that the places of the findings lie in.
    pub sources: Sources,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(render(&self.diagnostics, &self.sources, false).trim_end())
    }
}

impl std::error::Error for Failed {}

/// Reads a file and the files that it includes. Without a `language` the name of the file says
/// which it is ([`Language::of`]). The name `-` stands for standard input, which is native if
/// nothing else is said, and includes files of the current folder; messages call it
/// [`STANDARD_INPUT`](crate::STANDARD_INPUT).
///
/// # Errors
///
/// The file cannot be read, its language is not known, or it holds an error.
pub fn load(path: &Path, language: Option<Language>) -> Result<Policy, Box<Failed>> {
    if path == Path::new("-") {
        let language = language.unwrap_or(Language::Native);
        return parse_bytes(text::read_standard_input(), text::STANDARD_INPUT, language);
    }
    let mut sources = Sources::default();
    let mut findings = Findings::default();
    let Some(source) = text::read(path, &mut sources, &mut findings, None) else {
        return Err(failed(findings, sources));
    };
    let Some(language) = language.or_else(|| Language::of(path, sources.text(source))) else {
        let start = Span { source, start: 0, end: 0 };
        let name = path.display();
        findings.push(if path.extension().is_some_and(|extension| extension == "toml") {
            let why = format!("{name} is a case by its name, and this command reads a policy");
            Diagnostic::error("a-case", start, why).help(format!(
                "`altq sim {name}` or `altq lab {name}` runs it; its policy is in its key policy, or in the file that \
                 its key policy_file names"
            ))
        } else {
            let error = format!("the name {name} does not tell which language this is");
            Diagnostic::error("unknown-language", start, error)
                .help("name it .altq or .conf, or give --language native or altq; pf, tc and mqc are not built yet")
        });
        return Err(failed(findings, sources));
    };
    parse(source, Includes::Allowed, sources, findings, language)
}

/// Reads a text. Messages call it `name`, and files that it includes are looked for in the folder
/// of that name.
///
/// # Errors
///
/// The text holds an error.
pub fn parse_str(text: &str, name: &str, language: Language) -> Result<Policy, Box<Failed>> {
    let mut sources = Sources::default();
    let source = sources.add(PathBuf::from(name), text.to_owned());
    parse(source, Includes::Allowed, sources, Findings::default(), language)
}

/// Reads a text that is the whole policy, as [`parse_str`]: an `include` is an error, and no file
/// is opened. For texts of somebody who may not read what this process may.
///
/// # Errors
///
/// The text holds an error.
pub fn parse_alone(text: &str, name: &str, language: Language) -> Result<Policy, Box<Failed>> {
    let mut sources = Sources::default();
    let source = sources.add(PathBuf::from(name), text.to_owned());
    parse(source, Includes::Refused, sources, Findings::default(), language)
}

/// Reads a text that was read elsewhere, as [`parse_str`].
///
/// # Errors
///
/// It could not be read, is not UTF-8, or holds an error.
pub fn parse_bytes(bytes: io::Result<Vec<u8>>, name: &str, language: Language) -> Result<Policy, Box<Failed>> {
    let mut sources = Sources::default();
    let mut findings = Findings::default();
    match text::add(Path::new(name), bytes, &mut sources, &mut findings, None) {
        Some(source) => parse(source, Includes::Allowed, sources, findings, language),
        None => Err(failed(findings, sources)),
    }
}

fn parse(
    source: SourceId,
    includes: Includes,
    mut sources: Sources,
    mut findings: Findings,
    language: Language,
) -> Result<Policy, Box<Failed>> {
    let mut links = Vec::new();
    match language {
        Language::Native => links = native::read(source, includes, &mut sources, &mut findings),
        Language::Altq => links = altq_conf::read(source, &sources, &mut findings),
        Language::Pf | Language::Tc | Language::Mqc => {
            let name = match language {
                Language::Pf => "pf.conf",
                Language::Tc => "tc script",
                _ => "MQC",
            };
            findings.push(
                Diagnostic::error(
                    "language-not-built",
                    Span { source, start: 0, end: 0 },
                    format!("this is read as {name}, and that language is not built yet"),
                )
                .help("native policies and altq.conf are read; --language says which a file is"),
            );
        }
    }
    // A text with errors is not checked further: where a word could not be read, sums and rules
    // would seem wrong that are right.
    if !findings.has_errors() {
        for link in &links {
            check::link(link, &mut findings);
        }
    }
    if findings.has_errors() {
        return Err(failed(findings, sources));
    }
    Ok(Policy { links, warnings: findings.into_list(), sources })
}

fn failed(findings: Findings, sources: Sources) -> Box<Failed> {
    Box::new(Failed { diagnostics: findings.into_list(), sources })
}
