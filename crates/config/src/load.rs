//! From a file or a text to a policy.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::diagnostic::{Diagnostic, Findings, SourceId, Sources, Span};
use crate::language::Language;
use crate::policy::Policy;
use crate::{altq_conf, check, native, render};

/// A policy that is refused: why, and the texts that the places point into.
#[derive(Clone, Debug)]
pub struct Failed {
    /// What was found, at least one error.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts.
    pub sources: Sources,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(render(&self.diagnostics, &self.sources, false).trim_end())
    }
}

impl std::error::Error for Failed {}

/// Reads a file, and what it includes. Without a language its name tells ([`Language::of`]).
pub fn load(path: &Path, language: Option<Language>) -> Result<Policy, Box<Failed>> {
    let mut sources = Sources::default();
    let mut findings = Findings::default();
    let Some(source) = read(path, &mut sources, &mut findings, None) else {
        return Err(failed(findings, sources));
    };
    let Some(language) = language.or_else(|| Language::of(path, sources.text(source))) else {
        findings.push(
            Diagnostic::error(
                "unknown-language",
                Span { source, start: 0, end: 0 },
                format!("the name {} does not tell which language this is", path.display()),
            )
            .help("name it .altq, or give --language native, altq, pf, tc or mqc"),
        );
        return Err(failed(findings, sources));
    };
    parse(source, sources, findings, language)
}

/// Reads a text. `name` is what messages call it; what it includes is looked for beside that name.
pub fn parse_str(text: &str, name: &str, language: Language) -> Result<Policy, Box<Failed>> {
    let mut sources = Sources::default();
    let source = sources.add(PathBuf::from(name), text.to_owned());
    parse(source, sources, Findings::default(), language)
}

fn parse(
    source: SourceId,
    mut sources: Sources,
    mut findings: Findings,
    language: Language,
) -> Result<Policy, Box<Failed>> {
    let mut links = Vec::new();
    match language {
        Language::Native => links = native::read(source, &mut sources, &mut findings),
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
    // Figures clash for no reason where words are missing, so a text with errors is not checked
    // further.
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

/// Reads one file into the sources. What cannot be read is an error at `from`, the place that asks
/// for it, or at the file's start.
pub(crate) fn read(
    path: &Path,
    sources: &mut Sources,
    findings: &mut Findings,
    from: Option<Span>,
) -> Option<SourceId> {
    let bytes = match read_bytes(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            let span =
                from.unwrap_or_else(|| Span { source: sources.add(path.to_owned(), String::new()), start: 0, end: 0 });
            let message = format!("{} cannot be read: {error}", path.display());
            findings.push(Diagnostic::error("cannot-read", span, message));
            return None;
        }
    };
    match String::from_utf8(bytes) {
        Ok(text) => Some(sources.add(path.to_owned(), text)),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let byte = error.as_bytes().get(at).copied().unwrap_or_default();
            // What comes before the bad byte is text, so its place is the same in the mended text.
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            let source = sources.add(path.to_owned(), text);
            let message = format!("this is not UTF-8 text: byte 0x{byte:02x} at offset {at}");
            findings.push(
                Diagnostic::error("not-text", Span { source, start: at, end: at + '\u{fffd}'.len_utf8() }, message)
                    .help("a policy is a text file in UTF-8"),
            );
            None
        }
    }
}

/// The most bytes that a policy file may have: a device or a pipe without end is not read for ever.
const MOST_BYTES: u64 = 256 << 20;

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(io::Error::other(format!("it has more than {MOST_BYTES} bytes")));
    }
    Ok(bytes)
}
