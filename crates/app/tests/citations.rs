//! Every citation leads somewhere: whatever comments, cases and pages name by path, by page and
//! section, by Markdown link or by a document's short name exists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Folders of the repository whose files are read, and whose paths count as citations.
const FOLDERS: [&str; 6] = ["benches", "cases", "crates", "docs", "examples", "fuzz"];
/// Folders and files that are not read: build output, and this file, which holds planted errors.
const SKIPPED: [&str; 4] = ["target", "corpus", "artifacts", "citations.rs"];
/// A template that lies in docs; its links are relative to the root, where the document made from
/// it lies.
const TEMPLATE: &str = "EXPERIMENTS.in.md";
/// Words that cite what is not in the repository.
const NOWHERE: [&str; 3] = ["design rule", "design/", "seeds/00"];

/// The repository as the finder sees it.
trait Repository {
    /// True if a file or a folder has this path from the root.
    fn has(&self, path: &str) -> bool;
    /// The text of a page.
    fn page(&self, path: &str) -> Option<String>;
}

struct Disk(PathBuf);

impl Repository for Disk {
    fn has(&self, path: &str) -> bool {
        self.0.join(path).exists()
    }

    fn page(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.0.join(path)).ok()
    }
}

impl Disk {
    /// Paths, from the root, of all files that are read.
    fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.walk("", &mut found);
        found.sort();
        found
    }

    fn walk(&self, folder: &str, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(self.0.join(folder)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let wanted = !name.starts_with('.') && !SKIPPED.contains(&name.as_str());
            if entry.file_type().unwrap().is_dir() {
                if wanted && (!folder.is_empty() || FOLDERS.contains(&name.as_str())) {
                    self.walk(&path, found);
                }
            } else if wanted && [".rs", ".toml", ".md", ".sh"].iter().any(|end| name.ends_with(end)) {
                found.push(path);
            }
        }
    }
}

/// A file's text without the marks of comments and with lines joined, so that a citation may go
/// over the end of a line. A line that is not a comment ends with `\n`.
struct Flat {
    text: String,
    /// The offset at which each line begins, and whether the whole line is prose.
    lines: Vec<(usize, bool)>,
}

impl Flat {
    fn new(path: &str, text: &str) -> Flat {
        let marks: &[&str] = match path.rsplit('.').next() {
            Some("rs") => &["///", "//!", "//"],
            Some("toml" | "sh") => &["#"],
            _ => &[],
        };
        let mut flat = Flat { text: String::new(), lines: Vec::new() };
        for line in text.lines() {
            let line = line.trim();
            let comment = marks.iter().find_map(|mark| line.strip_prefix(mark));
            flat.lines.push((flat.text.len(), comment.is_some() || !path.ends_with(".rs")));
            let joins = comment.is_some() || line.ends_with('\\') || path.ends_with(".md") && !line.is_empty();
            flat.text += comment.unwrap_or(line).trim().trim_end_matches('\\');
            flat.text.push(if joins { ' ' } else { '\n' });
        }
        flat
    }

    fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|(start, _)| *start <= at)
    }

    /// False in Rust code; true in a comment, also in one behind code.
    fn is_prose(&self, at: usize) -> bool {
        let (start, prose) = self.lines[self.line(at) - 1];
        prose || self.text[start..at].contains("// ")
    }
}

fn in_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_./-".contains(c)
}

/// A path without `.` and `..`, from the root.
fn normal(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn headings(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim())
}

/// The number at the beginning of a heading, as in `### 2.10 Flags`.
fn number(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = text[..end].trim_end_matches('.');
    number.starts_with(|c: char| c.is_ascii_digit()).then_some(number)
}

/// The section numbers that follow the name of a page: `2.2, 2.10 and 14`, `rules 8 to 10`.
fn sections(mut rest: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut between: &[&str] = &[" "];
    loop {
        let Some(next) = between.iter().find_map(|word| rest.strip_prefix(word)) else { return found };
        let next =
            ["rules ", "rule ", "sections ", "section "].iter().find_map(|w| next.strip_prefix(w)).unwrap_or(next);
        let Some(number) = number(next) else { return found };
        found.push(number);
        rest = &next[number.len()..];
        between = &[", ", " and ", " to ", " or "];
    }
}

/// The anchor of a heading, as links name it.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>();
    kept.replace(' ', "-")
}

/// The finder: what a file's text cites and the repository does not have.
fn nowhere(path: &str, text: &str, repository: &dyn Repository) -> Vec<String> {
    let flat = Flat::new(path, text);
    let mut found = Vec::new();
    let mut plain = flat.text.clone();
    if path.ends_with(".md") {
        links(path, &flat, repository, &mut plain, &mut found);
    }
    for (at, _) in plain.match_indices(".md") {
        page(path, &flat, &plain, at, repository, &mut found);
    }
    if path != "CHANGELOG.md" {
        paths(path, &flat, &plain, repository, &mut found);
    }
    let lower = plain.to_lowercase();
    for name in NOWHERE {
        for (at, _) in lower.match_indices(name) {
            if !lower[..at].ends_with(in_path) {
                found.push(format!("{path}:{}: `{name}` is nothing that the repository has", flat.line(at)));
            }
        }
    }
    // `seed 002`, and in prose `(002, line 5)`: documents by number.
    let numbered = lower.match_indices("seed 00").map(|(at, _)| at);
    let bracketed = lower.match_indices("(00").map(|(at, _)| at).filter(|at| {
        let rest = lower[at + 3..].trim_start_matches(|c: char| c.is_ascii_digit());
        !path.ends_with(".rs") && rest.len() + 4 == lower.len() - at && rest.starts_with([',', ';', ':', ')'])
    });
    for at in numbered.chain(bracketed) {
        found.push(format!("{path}:{}: a document by number; docs/reference/documents.md has its name", flat.line(at)));
    }
    found.extend(documents(path, &flat, repository));
    found
}

/// Checks Markdown links, and removes them from `plain`.
fn links(path: &str, flat: &Flat, repository: &dyn Repository, plain: &mut String, found: &mut Vec<String>) {
    let base = if path.ends_with(TEMPLATE) { "" } else { folder(path) };
    for (at, _) in flat.text.match_indices("](") {
        let Some(end) = flat.text[at..].find(')').map(|end| at + end) else { continue };
        let target = &flat.text[at + 2..end];
        let (file, name) = target.split_once('#').unwrap_or((target, ""));
        if target.contains("://") || target.starts_with("mailto:") || target.contains(' ') {
            continue;
        }
        let whole = if file.is_empty() { Some(path.to_owned()) } else { normal(&format!("{base}/{file}")) };
        let line = flat.line(at);
        let begin = flat.text[..at].rfind('[').unwrap_or(at);
        plain.replace_range(begin..=end, &" ".repeat(end + 1 - begin));
        let Some(whole) = whole.filter(|whole| whole.is_empty() || repository.has(whole)) else {
            found.push(format!("{path}:{line}: the link to `{target}` leads to no file"));
            continue;
        };
        if !whole.ends_with(".md") {
            continue;
        }
        let text = repository.page(&whole).unwrap_or_default();
        if !name.is_empty() && !headings(&text).any(|heading| anchor(heading) == name) {
            found.push(format!("{path}:{line}: {whole} has no heading `#{name}`"));
        }
        for section in sections(&flat.text[end + 1..]) {
            if !headings(&text).any(|heading| number(heading) == Some(section)) {
                found.push(format!("{path}:{line}: {whole} has no section {section}"));
            }
        }
    }
}

/// Checks the page whose `.md` stands at `at`, and the section numbers behind it.
fn page(path: &str, flat: &Flat, plain: &str, at: usize, repository: &dyn Repository, found: &mut Vec<String>) {
    let end = at + 3;
    let begin =
        plain[..at].rfind(|c: char| !in_path(c)).map_or(0, |b| b + plain[b..].chars().next().map_or(1, char::len_utf8));
    let name = plain[begin..end].trim_start_matches("./");
    // Not a page of the repository: patterns, web addresses, parts of longer words, and names of
    // files that programs make.
    if plain[end..].starts_with(|c: char| c.is_ascii_alphanumeric() || "_-".contains(c))
        || plain[..begin].ends_with(['*', '{', '}', '$', '…', '~'])
        || name.starts_with('/')
        || [".md", TEMPLATE].contains(&name)
        || !flat.is_prose(begin) && !name.starts_with("docs/")
    {
        return;
    }
    let beside = normal(&format!("{}/{name}", folder(path))).filter(|_| path.ends_with(".md"));
    let there = [Some(name.to_owned()), beside].into_iter().flatten().find(|path| repository.has(path));
    let line = flat.line(begin);
    let Some(there) = there else {
        found.push(format!("{path}:{line}: `{name}` is no file; write its path from the repository's root"));
        return;
    };
    let text = repository.page(&there).unwrap_or_default();
    for section in sections(plain[end..].trim_start_matches('`')) {
        if !headings(&text).any(|heading| number(heading) == Some(section)) {
            found.push(format!("{path}:{line}: {there} has no section {section}"));
        }
    }
}

/// Checks paths into the folders of the repository, in pages and in comments of code.
fn paths(path: &str, flat: &Flat, plain: &str, repository: &dyn Repository, found: &mut Vec<String>) {
    for folder in FOLDERS {
        for (at, _) in plain.match_indices(&format!("{folder}/")) {
            let end = plain[at..].find(|c: char| !in_path(c)).map_or(plain.len(), |end| at + end);
            let name = plain[at..end].trim_end_matches(['.', '/']);
            if plain[..at].ends_with(|c: char| in_path(c) || "{}*\"$".contains(c))
                || plain[end..].starts_with(['*', '{', '$', '…', '<'])
                || !flat.is_prose(at)
                || name.ends_with(".md")
                || name.contains("NAME")
                || !name.contains('/')
            {
                continue;
            }
            // A name that ends in `_` or `-` is the common beginning of several names.
            if !repository.has(name) && !name.ends_with(['_', '-']) {
                found.push(format!("{path}:{}: there is no {name}", flat.line(at)));
            }
        }
    }
}

/// `published_in` of cases names a document of docs/reference/documents.md.
fn documents(path: &str, flat: &Flat, repository: &dyn Repository) -> Vec<String> {
    let mut found = Vec::new();
    if !path.starts_with("cases/") || !path.ends_with(".toml") {
        return found;
    }
    for (at, key) in flat.text.match_indices("published_in = \"") {
        let name = flat.text[at + key.len()..].split('"').next().unwrap_or_default();
        let page = repository.page("docs/reference/documents.md").unwrap_or_default();
        if !page.contains(&format!("| `{name}` |")) {
            found.push(format!("{path}:{}: docs/reference/documents.md has no `{name}`", flat.line(at)));
        }
    }
    found
}

#[test]
fn every_citation_leads_somewhere() {
    let disk = Disk(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let files = disk.files();
    assert!(files.len() > 400, "{} files", files.len());
    let found: Vec<String> = files
        .iter()
        .flat_map(|path| nowhere(path, &std::fs::read_to_string(disk.0.join(path)).unwrap(), &disk))
        .collect();
    assert!(found.is_empty(), "{} citations lead nowhere:\n{}", found.len(), found.join("\n"));
}

/// A repository of two pages.
struct Small;

impl Repository for Small {
    fn has(&self, path: &str) -> bool {
        BTreeSet::from(["docs", "docs/rules.md", "docs/other.md", "crates/a/src/lib.rs"]).contains(path)
    }

    fn page(&self, path: &str) -> Option<String> {
        (path == "docs/rules.md").then(|| "# Rules\n## 1. First\n### 2.10 Flags, and more\n".to_owned())
    }
}

#[test]
fn good_citations_pass() {
    let good = [
        ("a.rs", "// docs/rules.md 1, 2.10\n// and 1. What they say.\n"),
        ("a.rs", "/// By (docs/rules.md\n    /// rule 1), in crates/a/src/lib.rs.\n"),
        ("a.rs", "//! docs/rules.md rules 1 to 2.10; `docs/*.md`; http://example.org/x.md\n"),
        (
            "docs/other.md",
            "[rules](rules.md) 2.10, [here](#a-heading) and [there](rules.md#210-flags-and-more)\n# A heading\n",
        ),
        ("docs/other.md", "As rules.md 1 says; [home](https://example.org/none).\n"),
        ("cases/x.toml", "source = \"docs/rules.md 1: 5 of them\"   # docs/rules.md 2.10\n"),
    ];
    for (path, text) in good {
        let text = text.replace("#a-heading", if text.contains("# A heading") { "rules.md#rules" } else { "" });
        assert_eq!(nowhere(path, &text, &Small), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn planted_errors_are_found() {
    let planted = [
        ("a.rs", "\n// (rules.md 1)\n", "a.rs:2: `rules.md` is no file"),
        ("a.rs", "// see docs/gone.md\n", "a.rs:1: `docs/gone.md` is no file"),
        ("a.rs", "// docs/rules.md 3.1\n", "a.rs:1: docs/rules.md has no section 3.1"),
        ("a.rs", "// docs/rules.md 1,\n// 2.1 and 1\n", "a.rs:1: docs/rules.md has no section 2.1"),
        ("a.rs", "/// what is owed (docs/rules.md rule\n/// 14)\n", "a.rs:1: docs/rules.md has no section 14"),
        ("a.rs", "let m = \"no (docs/rules.md 4)\";\n", "a.rs:1: docs/rules.md has no section 4"),
        ("a.rs", "// Design rule 4.\n", "a.rs:1: `design rule` is nothing"),
        ("a.rs", "// see crates/b/src/lib.rs\n", "a.rs:1: there is no crates/b/src/lib.rs"),
        ("cases/x.toml", "source = \"seed 002, line 5\"\n", "cases/x.toml:1: a document by number"),
        ("docs/other.md", "as printed (002, line 5)\n", "docs/other.md:1: a document by number"),
        ("cases/x.toml", "published_in = \"Nobody 1900\"\n", "has no `Nobody 1900`"),
        ("docs/other.md", "[x](none.md)\n", "docs/other.md:1: the link to `none.md` leads to no file"),
        ("docs/other.md", "[x](rules.md#gone)\n", "docs/rules.md has no heading `#gone`"),
        ("docs/other.md", "\n[x](rules.md) 7.\n", "docs/other.md:2: docs/rules.md has no section 7"),
        ("docs/other.md", "by `crates/b/x.rs`\n", "docs/other.md:1: there is no crates/b/x.rs"),
    ];
    for (path, text, error) in planted {
        let found = nowhere(path, text, &Small);
        assert!(found.len() == 1 && found[0].contains(error), "{text}: {found:?}");
    }
}
