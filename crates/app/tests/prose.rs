//! Lines are not too wide: prose of Markdown files and of comments in Rust files has at most 100
//! columns, Rust code at most 120. Tables, drawings, code fences, and lines that cannot be broken
//! may be wider.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The widest line of prose, in columns.
const PROSE: usize = 100;
/// The widest line of Rust code, in columns.
const CODE: usize = 120;

#[test]
fn no_line_is_wider_than_a_reader_likes() {
    let mut wide = Vec::new();
    for (path, text) in tracked() {
        let lines = if path.ends_with(".md") { wide_in_markdown(&text) } else { wide_in_rust(&text) };
        wide.extend(lines.into_iter().map(|line| format!("{path}:{line}")));
    }
    assert!(
        wide.is_empty(),
        "prose wraps at {PROSE} columns, Rust at {CODE}; these lines are wider:\n{}",
        wide.join("\n")
    );
}

/// Every Markdown and Rust file of the repository: path and text. Git lists the tracked files;
/// without git, as in an unpacked archive, all files in the source folders are taken.
fn tracked() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let git = Command::new("git").args(["ls-files", "-z", "*.md", "*.rs"]).current_dir(&root).output();
    let paths: Vec<PathBuf> = match git {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            let names = String::from_utf8(output.stdout).unwrap();
            names.split_terminator('\0').map(PathBuf::from).collect()
        }
        _ => walk(&root, Path::new("")),
    };
    assert!(paths.len() > 100, "only {} files found", paths.len());
    // A file that is deleted but not yet committed is still tracked.
    let read = |path: PathBuf| Some((path.display().to_string(), std::fs::read_to_string(root.join(&path)).ok()?));
    paths.into_iter().filter_map(read).collect()
}

/// The Markdown and Rust files in `folder` of `root`, but for build output and hidden folders.
fn walk(root: &Path, folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
        if entry.path().is_dir() {
            if name != "target" && !name.to_string_lossy().starts_with('.') {
                found.extend(walk(root, &path));
            }
        } else if path.extension().is_some_and(|end| end == "md" || end == "rs") {
            found.push(path);
        }
    }
    found
}

/// Numbers, from 1, of the lines of Markdown that are prose and wider than [`PROSE`].
fn wide_in_markdown(text: &str) -> Vec<usize> {
    let mut fence = None;
    let mut wide = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if fenced(&mut fence, line) || line.trim_start().starts_with('|') {
            continue;
        }
        if columns(line) > PROSE && breakable(line, PROSE) {
            wide.push(number);
        }
    }
    wide
}

/// Numbers, from 1, of the lines of Rust that are too wide: code wider than [`CODE`], or a comment
/// wider than [`PROSE`] that is not part of a table or a drawing.
fn wide_in_rust(text: &str) -> Vec<usize> {
    let mut fence = None;
    let mut wide = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            if columns(line) > CODE {
                wide.push(number);
            }
            continue;
        };
        let content = comment.trim_start_matches(['/', '!']);
        // An example in a fence is Rust code, a text in a fence is a table or a drawing.
        let limit = if fenced(&mut fence, content) { CODE } else { PROSE };
        let drawn = content.trim_start().starts_with('|') || content.contains(is_drawing);
        if columns(line) > limit && (limit == CODE || !drawn && breakable(content, limit - 4)) {
            wide.push(number);
        }
    }
    wide
}

fn columns(line: &str) -> usize {
    line.chars().count()
}

/// Characters of boxes, blocks and arrows of a drawing.
fn is_drawing(c: char) -> bool {
    ('\u{2500}'..='\u{25ff}').contains(&c)
}

/// Whether `line` is inside a code fence or bounds one; `fence` is the fence that is open.
fn fenced(fence: &mut Option<String>, line: &str) -> bool {
    let line = line.trim();
    let mark: String = line.chars().take_while(|c| *c == '`').collect();
    if mark.len() < 3 {
        return fence.is_some();
    }
    match fence {
        Some(open) if line.trim_end_matches('`').is_empty() && mark.len() >= open.len() => *fence = None,
        Some(_) => {}
        None => *fence = Some(mark),
    }
    true
}

/// Whether a line of more than `limit` columns would become narrower if it were broken where
/// Markdown allows it: at a space behind its indentation and list mark, outside code and links.
fn breakable(line: &str, limit: usize) -> bool {
    let body = line.trim_start().trim_start_matches(['-', '*', '+', '>', '#', ' ']);
    // A heading is one line however long it is.
    if line.trim_start().starts_with('#') {
        return false;
    }
    let indent = columns(line) - columns(body);
    let (mut code, mut link, mut word, mut longest, mut words) = (false, 0_i32, 0, 0, 0);
    for c in body.chars() {
        match c {
            '`' => code = !code,
            '[' | '(' if !code => link += 1,
            ']' | ')' if !code => link -= 1,
            _ => {}
        }
        if c == ' ' && !code && link <= 0 {
            words += usize::from(word > 0);
            (word, longest) = (0, longest.max(word));
        } else {
            word += 1;
        }
    }
    words += usize::from(word > 0);
    words > 1 && indent + longest.max(word) <= limit
}

#[test]
fn the_finder_finds() {
    let long = "word ".repeat(25);
    assert_eq!(wide_in_markdown(&format!("short\n{long}\n- {long}\n")), [2, 3]);
    assert_eq!(wide_in_markdown(&format!("{}\n", "é".repeat(99) + " a")), [1]);
    assert_eq!(wide_in_markdown(&format!("{}\n", "é".repeat(98) + " a")), [] as [usize; 0]);
    // What may be wide.
    assert!(wide_in_markdown(&format!("| {long} |\n# {long}\n{}\n", "x".repeat(130))).is_empty());
    assert!(wide_in_markdown(&format!("- `{}`\n", long.trim())).is_empty());
    assert!(wide_in_markdown(&format!("[a link](https://{})\n", "x".repeat(120))).is_empty());
    // A fence ends at its own closing line; what follows is prose again.
    assert_eq!(wide_in_markdown(&format!("```\n{long}\n```\n{long}\n")), [4]);
    assert_eq!(wide_in_markdown(&format!("````\n```\n{long}\n````\n{long}\n")), [5]);

    assert_eq!(wide_in_rust(&format!("let a = 1; // {}\n", "x".repeat(110))), [1]);
    assert_eq!(wide_in_rust(&format!("let a = \"{}\";\n", "x".repeat(110))), [1]);
    assert!(wide_in_rust(&format!("let a = \"{}\";\n", "x".repeat(105))).is_empty());
    assert_eq!(wide_in_rust(&format!("    /// {long}\n    //! {long}\n  // {long}\n")), [1, 2, 3]);
    assert!(wide_in_rust(&format!("/// | {long} |\n// ─► {long}\n/// {}\n", "x".repeat(110))).is_empty());
    assert_eq!(wide_in_rust(&format!("/// ```\n/// {}\n/// ```\n/// {long}\n", "x ".repeat(54))), [4]);
    assert_eq!(wide_in_rust(&format!("/// ```\n/// {}\n/// ```\n", "x ".repeat(60))), [2]);
}
