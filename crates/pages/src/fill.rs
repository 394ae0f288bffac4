//! Fills the prose of Markdown to lines of at most 100 characters, like all prose of this
//! repository. Headings, tables, code, quotes, markup and paragraphs with hard line breaks stay as
//! they are.

/// The most characters of a line of prose.
const WIDTH: usize = 100;

/// Fills every paragraph and every item of a list.
pub fn fill(markdown: &str) -> String {
    let mut out = String::with_capacity(markdown.len());
    let mut lines = markdown.lines().peekable();
    let mut in_code = false;
    while let Some(line) = lines.next() {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        if fence || in_code || !is_prose(line) || line.starts_with("    ") {
            out.extend([line, "\n"]);
            continue;
        }
        let mut paragraph = vec![line];
        while let Some(next) = lines.next_if(|next| is_prose(next) && marker(next.trim_start()) == 0) {
            paragraph.push(next);
        }
        if paragraph.iter().any(|line| line.ends_with("  ") || line.ends_with('\\')) {
            paragraph.iter().for_each(|line| out.extend([*line, "\n"]));
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let (begin, first) = line.split_at(indent + marker(line.trim_start()));
        let words = first.split_whitespace().chain(paragraph.iter().skip(1).flat_map(|line| line.split_whitespace()));
        push_words(&mut out, begin, words);
    }
    if !markdown.ends_with('\n') {
        out.pop();
    }
    out
}

/// Whether a line outside of code belongs to a paragraph or to an item of a list.
fn is_prose(line: &str) -> bool {
    let text = line.trim_start();
    !text.is_empty() && !text.starts_with(['#', '|', '>', '<']) && !text.starts_with("```")
}

/// The length of the mark that makes a line an item of a list, with the space behind it; 0 without
/// one.
fn marker(text: &str) -> usize {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let sign = if digits == 0 { ["-", "*", "+"] } else { [".", ")", "."] };
    let rest = text.get(digits..).unwrap_or("");
    if sign.iter().any(|sign| rest.strip_prefix(sign).is_some_and(|rest| rest.starts_with(' '))) {
        digits + 2
    } else {
        0
    }
}

/// Writes words in lines. The first line begins with `begin`, the others with as many spaces.
fn push_words<'a>(out: &mut String, begin: &str, words: impl Iterator<Item = &'a str>) {
    let indent = begin.chars().count();
    out.push_str(begin);
    let mut column = indent;
    for (n, word) in words.enumerate() {
        let length = word.chars().count();
        if n > 0 && column + 1 + length > WIDTH && !means_something_first(word) {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if n > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
}

/// Whether a word would be read as a heading, a list, a quote, a table or a rule if it began a
/// line.
fn means_something_first(word: &str) -> bool {
    !is_prose(word)
        || word.chars().all(|c| "-*+=_".contains(c))
        || word.strip_suffix(['.', ')']).is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_filled_and_all_else_stays() {
        let long = "word ".repeat(30);
        let filled = fill(&format!("# {long}\n\n| {long} |\n\n{long}\nmore\n\n- {long}\n  more\n- next\n"));
        let lines: Vec<&str> = filled.lines().collect();
        assert_eq!(lines[0], format!("# {long}"));
        assert_eq!(lines[2], format!("| {long} |"));
        assert_eq!((lines[4].len(), lines[5]), (99, format!("{}more", "word ".repeat(10)).as_str()));
        assert_eq!((&lines[7][..6], &lines[8][..6], lines[9]), ("- word", "  word", "- next"));
        let kept = format!("```\n{long}\n```\n\n    {long}\n\n> {long}\n\n{long}  \nbroken\n");
        assert_eq!(fill(&kept), kept);
        assert_eq!((fill("a\nb"), fill("")), ("a b".into(), String::new()));
    }

    #[test]
    fn no_word_turns_into_a_list() {
        let text = format!("{} - 12. # x", "x".repeat(99));
        assert_eq!(fill(&text), format!("{} - 12. #\nx", "x".repeat(99)));
    }

    #[test]
    fn the_documents_in_the_repository_are_filled() {
        let text = include_str!("../../../EXPERIMENTS.md");
        assert_eq!(fill(text), text);
    }
}
