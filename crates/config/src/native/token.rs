//! Splits a text into words, marks and groups in braces.
//!
//! The end of a line only ends a comment. But each token knows whether it is the first of its line:
//! a value must be on the line of its word, and after an error reading goes on with the next line.
//! Braces are matched without recursion, so that deep nesting is an error and does not exhaust the
//! stack.

use crate::diagnostic::{Diagnostic, Findings, SourceId, Span};

/// How deep braces may be nested.
pub const MAX_DEPTH: usize = 64;

/// A word, a mark, or a group in braces.
#[derive(Debug)]
pub struct Tree {
    pub what: What,
    pub span: Span,
    /// Whether it is the first on its line.
    pub starts_line: bool,
}

#[derive(Debug)]
pub enum What {
    /// A name, a keyword, a number with its unit, an address.
    Word,
    /// `"…"`; the span is that of the inside.
    Text,
    /// `->`
    Arrow,
    /// `!`
    Bang,
    /// `,`
    Comma,
    /// `{ … }`; the tree's span is that of the opening brace.
    Group { inside: Vec<Tree>, close: Span },
}

/// Splits a text. Errors go to `findings`; what can be read is returned.
pub fn read(text: &str, source: SourceId, findings: &mut Findings) -> Vec<Tree> {
    let mut open: Vec<(Span, bool, Vec<Tree>)> = Vec::new();
    let mut here: Vec<Tree> = Vec::new();
    let bytes = text.as_bytes();
    let mut at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut fresh = true;
    while at < bytes.len() {
        if findings.full() {
            break;
        }
        let byte = bytes[at];
        let span = |from: usize, to: usize| Span { source, start: from, end: to };
        match byte {
            b'\n' => {
                fresh = true;
                at += 1;
                continue;
            }
            b' ' | b'\t' | b'\r' => {
                at += 1;
                continue;
            }
            b'#' => {
                at = line_end(bytes, at);
                continue;
            }
            b'{' => {
                if open.len() >= MAX_DEPTH {
                    findings.push(
                        Diagnostic::error(
                            "too-deep",
                            span(at, at + 1),
                            format!("braces stand more than {MAX_DEPTH} deep"),
                        )
                        .help("a policy that deep is most likely a brace that was never closed"),
                    );
                    return unwind(open, here);
                }
                open.push((span(at, at + 1), fresh, std::mem::take(&mut here)));
                at += 1;
            }
            b'}' => {
                match open.pop() {
                    Some((brace, starts_line, outer)) => {
                        let inside = std::mem::replace(&mut here, outer);
                        let what = What::Group { inside, close: span(at, at + 1) };
                        here.push(Tree { what, span: brace, starts_line });
                    }
                    None => {
                        findings.push(Diagnostic::error("stray-brace", span(at, at + 1), "this brace closes nothing"))
                    }
                }
                at += 1;
            }
            b'"' => {
                let end = line_end(bytes, at);
                match bytes[at + 1..end].iter().position(|byte| *byte == b'"') {
                    Some(length) => {
                        here.push(Tree { what: What::Text, span: span(at + 1, at + 1 + length), starts_line: fresh });
                        at += length + 2;
                    }
                    None => {
                        findings.push(Diagnostic::error(
                            "open-quote",
                            span(at, at + 1),
                            "the closing quote is missing on this line",
                        ));
                        at = end;
                    }
                }
            }
            b',' | b'!' => {
                let what = if byte == b',' { What::Comma } else { What::Bang };
                here.push(Tree { what, span: span(at, at + 1), starts_line: fresh });
                at += 1;
            }
            b'-' if bytes.get(at + 1) == Some(&b'>') => {
                here.push(Tree { what: What::Arrow, span: span(at, at + 2), starts_line: fresh });
                at += 2;
            }
            _ => {
                let end = word_end(bytes, at);
                if end > at {
                    here.push(Tree { what: What::Word, span: span(at, end), starts_line: fresh });
                    at = end;
                } else {
                    at = strange(text, source, at, findings);
                }
            }
        }
        fresh = false;
    }
    if let Some((brace, _, _)) = open.last() {
        let end = Span { source, start: text.len(), end: text.len() };
        if !findings.full() {
            findings.push(
                Diagnostic::error("open-brace", *brace, "this brace is never closed").label(end, "the text ends here"),
            );
        }
    }
    unwind(open, here)
}

/// Closes all open groups, so that errors inside of them are still found.
fn unwind(mut open: Vec<(Span, bool, Vec<Tree>)>, mut here: Vec<Tree>) -> Vec<Tree> {
    while let Some((brace, starts_line, outer)) = open.pop() {
        let inside = std::mem::replace(&mut here, outer);
        let close = inside.last().map_or(brace, |tree| tree.span);
        here.push(Tree { what: What::Group { inside, close }, span: brace, starts_line });
    }
    here
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length)
}

fn word_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'-' if bytes.get(at + 1) == Some(&b'>') => break,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'/' | b':' | b'%' | b'+' | b'*' | b'@' => {
                at += 1
            }
            _ => break,
        }
    }
    at
}

/// Reports a run of characters that no word may hold, as one error. Returns the place behind it.
fn strange(text: &str, source: SourceId, at: usize, findings: &mut Findings) -> usize {
    let bytes = text.as_bytes();
    let ends = |c: char| c.is_ascii() && (word_end(&[c as u8], 0) > 0 || " \t\r\n{}#\"!,".contains(c));
    let end = text[at..].find(ends).map_or(bytes.len(), |length| at + length).max(at + 1);
    let c = text[at..].chars().next().unwrap_or(' ');
    let (message, help) = match c {
        '\0' => ("this is not text: a NUL byte".to_owned(), Some("a policy is a text file in UTF-8")),
        ';' => ("`;` means nothing here".to_owned(), Some("statements need no mark at their end")),
        '=' => ("`=` means nothing here".to_owned(), Some("a word is followed by its value, as in `rate 10Mbit/s`")),
        '\u{a0}' => ("this blank is a no-break space".to_owned(), Some("write a plain space")),
        c if c.is_control() => (format!("the control character U+{:04X} means nothing here", u32::from(c)), None),
        c => (
            format!("the character `{c}` means nothing here"),
            Some("words are of letters, digits and `_ . - / : % +`"),
        ),
    };
    let mut error = Diagnostic::error("strange-character", Span { source, start: at, end }, message);
    error.help = help.map(str::to_owned);
    findings.push(error);
    end
}
