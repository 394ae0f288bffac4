//! Splits altq.conf(5) into lines and words, and reads its numbers (docs/reference/altq.md 10).

use crate::diagnostic::{Diagnostic, Findings, SourceId, Sources, Span};

/// Limits of altqd's parser: characters of a joined line, characters of a word, words of a line.
const MOST_CHARACTERS: usize = 1023;
const MOST_WORD: usize = 63;
const MOST_WORDS: usize = 63;

/// The words of a line, joined with those that follow a `\` at its end.
pub struct Line {
    pub words: Vec<Span>,
}

/// Splits a text. A line that altqd could not read is an error and is left out.
pub fn lines(source: SourceId, sources: &Sources, findings: &mut Findings) -> Vec<Line> {
    let text = sources.text(source);
    let mut lines = Vec::new();
    let mut words: Vec<Span> = Vec::new();
    let mut length = 0;
    let mut good = true;
    let mut at = 0;
    while at < text.len() {
        if findings.full() {
            return lines;
        }
        let end = text[at..].find('\n').map_or(text.len(), |length| at + length);
        let whole = text[at..end].trim_end_matches('\r');
        let written = whole.split('#').next().unwrap_or("");
        let joined = written.len() == whole.len() && written.ends_with('\\');
        let body = if joined { &written[..written.len() - 1] } else { written };
        length += body.len();
        if good && length > MOST_CHARACTERS {
            let span = Span { source, start: at, end: at + body.len() };
            let message = format!("this line has {length} characters; altqd reads {MOST_CHARACTERS}");
            findings.push(Diagnostic::error("line-too-long", span, message));
            good = false;
        }
        if good {
            good = split(body, at, source, &mut words, findings);
        }
        if !joined {
            if good && !words.is_empty() {
                lines.push(Line { words: std::mem::take(&mut words) });
            }
            (words, length, good) = (Vec::new(), 0, true);
        }
        at = end + 1;
    }
    // The last line may end with a `\`, and then has not been added.
    if good && !words.is_empty() {
        lines.push(Line { words });
    }
    lines
}

/// Splits a part of a line into words. A no-break space, as printed documents have it, is a space.
/// False after an error.
fn split(body: &str, at: usize, source: SourceId, words: &mut Vec<Span>, findings: &mut Findings) -> bool {
    let mut from = None;
    let blank = |c: char| matches!(c, ' ' | '\t' | '\r' | '\u{a0}');
    for (place, c) in body.char_indices().chain([(body.len(), ' ')]) {
        if !blank(c) {
            if c.is_control() {
                let span = Span { source, start: at + place, end: at + place + c.len_utf8() };
                let what = if c == '\0' {
                    "a NUL byte".to_owned()
                } else {
                    format!("the control character U+{:04X}", u32::from(c))
                };
                findings.push(Diagnostic::error("strange-character", span, format!("{what} means nothing here")));
                return false;
            }
            from.get_or_insert(place);
            continue;
        }
        let Some(start) = from.take() else { continue };
        let span = Span { source, start: at + start, end: at + place };
        let long = place - start > MOST_WORD;
        if long || words.len() >= MOST_WORDS {
            let message = if long {
                format!("this word has {} characters; altqd reads {MOST_WORD}", place - start)
            } else {
                format!("this line has more than {MOST_WORDS} words, which is all that altqd reads")
            };
            findings.push(Diagnostic::error("line-too-long", span, message));
            return false;
        }
        words.push(span);
    }
    true
}

/// Reads a rate in bit/s: digits, perhaps with a fraction, perhaps with K, M or G (10^3, 10^6,
/// 10^9).
pub fn rate(word: &str) -> Option<u64> {
    let (number, factor) = suffixed(word, [1_000, 1_000_000, 1_000_000_000]);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty()
        || !digits(whole)
        || !digits(fraction)
        || whole.len() > 19
        || fraction.len() > 12
    {
        return None;
    }
    let mantissa: u128 = format!("0{whole}{fraction}").parse().ok()?;
    u64::try_from(mantissa * u128::from(factor) / 10u128.pow(fraction.len() as u32)).ok()
}

/// Reads a number of bytes, perhaps with K, M or G (2^10, 2^20, 2^30).
pub fn bytes(word: &str) -> Option<u64> {
    let (number, factor) = suffixed(word, [1 << 10, 1 << 20, 1 << 30]);
    integer(number)?.checked_mul(factor)
}

fn suffixed(word: &str, factors: [u64; 3]) -> (&str, u64) {
    let factor = match word.bytes().last() {
        Some(b'k' | b'K') => factors[0],
        Some(b'm' | b'M') => factors[1],
        Some(b'g' | b'G') => factors[2],
        _ => return (word, 1),
    };
    (&word[..word.len() - 1], factor)
}

/// Reads a whole number as C writes it: 0x for hexadecimal, 0 for octal.
pub fn integer(word: &str) -> Option<u64> {
    let (digits, base) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if word.len() > 1 && word.starts_with('0') => (&word[1..], 8),
        None => (word, 10),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    u64::from_str_radix(digits, base).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(rate("134000000"), Some(134_000_000));
        assert_eq!(rate("1.5M"), Some(1_500_000));
        assert_eq!(rate("2g"), Some(2_000_000_000));
        assert_eq!(rate("10Mb"), None);
        assert_eq!(rate("."), None);
        assert_eq!(rate("99999999999999999999G"), None);
        assert_eq!(bytes("16K"), Some(16384));
        assert_eq!(integer("0xb8"), Some(184));
        assert_eq!(integer("010"), Some(8));
        assert_eq!(integer("0"), Some(0));
        assert_eq!(integer("08"), None);
        assert_eq!(integer("+8"), None);
    }

    #[test]
    fn lines_join_and_comments_end_them() {
        let mut sources = Sources::default();
        let source = sources.add("x".into(), "a b \\\n c # d \\\n\n\u{a0} e\\\n".into());
        let mut findings = Findings::default();
        let lines = lines(source, &sources, &mut findings);
        let words: Vec<Vec<&str>> =
            lines.iter().map(|line| line.words.iter().map(|span| sources.slice(*span)).collect()).collect();
        assert_eq!(words, [vec!["a", "b", "c"], vec!["e"]]);
        assert!(!findings.has_errors());
    }
}
