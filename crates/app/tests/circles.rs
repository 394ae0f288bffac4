//! No two source files of a crate need each other, directly or through other files.
//!
//! A file needs another if it names one of its items: in a `use` line or by a path such as
//! `super::reader::Cursor`. Three things do not count:
//!
//! - tests, which may look at everything;
//! - a `mod` line, which only says that a file exists;
//! - a re-export (`pub use`) of a name that the file itself does not use. Who names the re-exported
//!   item needs the file that defines it, not the one that re-exports it.
//!
//! So a folder's `mod.rs` may gather what its files offer, but a file that needs a type of the
//! `mod.rs` that calls it makes a circle. The way out is a file of its own for the shared type.
//!
//! Files are read as tokens, without the compiler: a glob re-export is not looked through, and what
//! a macro expands to is not seen.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

/// The crates whose files stand in no circle.
const CRATES: &[&str] = &["config"];

#[test]
fn files_of_a_crate_need_each_other_in_one_direction() {
    for name in CRATES {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
        let r = read(&root);
        for (k, v) in needs(&r) {
            println!("{k:?} {v:?}");
        }
        let circles = circles(&r);
        let shown: Vec<String> = circles.iter().map(|circle| format!("\n  {}", circle.join(" -> "))).collect();
        assert!(circles.is_empty(), "files of crates/{name}/src need each other in circles:{}", shown.concat());
    }
}

#[test]
fn planted_circles_are_found() {
    let find = |texts: &[(&str, &str)]| {
        let files = texts.iter().map(|(path, text)| (module(path), (*text).to_owned())).collect();
        circles(&files).iter().map(|circle| circle.join(" ")).collect::<Vec<_>>()
    };
    // Two files that import each other, one by a `use` line, one by a path.
    let pair = [("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "fn f(_: super::a::A) {}")];
    assert_eq!(find(&pair), ["a b a"]);
    // A circle of three, through a group, a name given by `as`, and a module that was imported.
    let three = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::{b::{B, Other as O}, nothing};"),
        ("b.rs", "use crate::c as other; fn f() { other::g() }"),
        ("c.rs", "use super::a::*;"),
    ];
    assert_eq!(find(&three), ["a b c a"]);
    // A child that takes a type from the parent that calls it.
    let child =
        [("lib.rs", "mod a;"), ("a/mod.rs", "mod b; pub struct A; fn f() { b::g() }"), ("a/b.rs", "use super::A;")];
    assert_eq!(find(&child), ["a a::b a"]);
    // The same where the parent calls it by a name that it re-exports as well.
    let uses = [
        ("lib.rs", "mod a;"),
        ("a.rs", "mod b; pub use b::g; pub struct A; fn f() { g() }"),
        ("a/b.rs", "use super::A;"),
    ];
    assert_eq!(find(&uses), ["a a::b a"]);
    // A parent that only re-exports; a re-exported name belongs to the file that defines it.
    let exports = [
        ("lib.rs", "pub mod a; mod d; pub use a::B; pub(crate) use d::D;"),
        ("a/mod.rs", "mod b; mod c; pub use self::b::B; pub use c::C;"),
        ("a/b.rs", "use super::C; use crate::D;"),
        ("a/c.rs", ""),
        ("d.rs", "use crate::a::C;"),
    ];
    assert_eq!(find(&exports), [""; 0]);
    // Tests, comments and texts do not count.
    let tests = [
        ("lib.rs", "mod a; mod b; #[cfg(test)] mod c;"),
        ("a.rs", "use crate::b::B; #[cfg(test)] mod tests { use super::*; }"),
        ("b.rs", "// crate::a::A\n /* crate::a */ const T: &str = \"crate::a\"; #[cfg(test)] use crate::a::A;"),
        ("c.rs", "use crate::b::B;"),
    ];
    assert_eq!(find(&tests), [""; 0]);
}

/// A module by its path below the crate: `["native", "link"]`; the crate itself is empty.
type Module = Vec<String>;

/// The module of a file by the file's path below `src`.
fn module(path: &str) -> Module {
    let mut parts: Module = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// The texts of a crate's files.
fn read(root: &Path) -> BTreeMap<Module, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let below = path.strip_prefix(root).unwrap().to_str().unwrap();
                files.insert(module(below), std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    assert!(files.len() > 1, "{} has no sources", root.display());
    files
}

/// One circle of each group of files that need each other, from a file back to itself.
fn circles(files: &BTreeMap<Module, String>) -> Vec<Vec<String>> {
    let needs = needs(files);
    let mut told: BTreeSet<Module> = BTreeSet::new();
    let mut circles = Vec::new();
    for start in needs.keys() {
        let Some(circle) = way_back(&needs, start).filter(|_| !told.contains(start)) else { continue };
        // Who needs `start` and is needed by it is of the same group.
        let reached = reached(&needs, start);
        told.extend(reached.iter().filter(|file| self::reached(&needs, file).contains(start)).cloned());
        let name = |file: &Module| if file.is_empty() { "lib".to_owned() } else { file.join("::") };
        circles.push(circle.iter().map(name).collect());
    }
    circles
}

type Needs = BTreeMap<Module, BTreeSet<Module>>;

/// All files that a file needs, directly or through others.
fn reached(needs: &Needs, start: &Module) -> BTreeSet<Module> {
    let mut seen = BTreeSet::new();
    let mut open = vec![start];
    while let Some(file) = open.pop() {
        open.extend(needs[file].iter().filter(|next| seen.insert((*next).clone())));
    }
    seen
}

/// The shortest way from a file back to itself.
fn way_back(needs: &Needs, start: &Module) -> Option<Vec<Module>> {
    let mut open = VecDeque::from([vec![start.clone()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = open.pop_front() {
        for next in &needs[way.last()?] {
            let longer: Vec<Module> = way.iter().chain([next]).cloned().collect();
            if next == start {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                open.push_back(longer);
            }
        }
    }
    None
}

/// What one file says of names.
#[derive(Default)]
struct Names {
    /// Names that it imports, with the paths behind them.
    imports: BTreeMap<String, Vec<String>>,
    /// Those of them that it re-exports.
    exports: BTreeSet<String>,
    /// Paths of glob imports.
    globs: Vec<Vec<String>>,
    /// Names and paths in the code, imports apart.
    paths: Vec<Vec<String>>,
    /// Modules that are for tests only.
    tests: Vec<String>,
}

/// Which files each file needs.
fn needs(files: &BTreeMap<Module, String>) -> Needs {
    let mut names: BTreeMap<&Module, Names> = files.iter().map(|(file, text)| (file, names(text))).collect();
    let tests: Vec<Module> = names
        .iter()
        .flat_map(|(file, names)| names.tests.iter().map(|test| [file.as_slice(), std::slice::from_ref(test)].concat()))
        .collect();
    names.retain(|file, _| !tests.iter().any(|test| file.starts_with(test)));
    let mut needs = Needs::new();
    for (file, own) in &names {
        let used = |name: &String| own.paths.iter().any(|path| path[0] == **name);
        let imports = own.imports.iter().filter(|(name, _)| !own.exports.contains(*name) || used(name));
        let paths =
            imports.map(|(_, path)| path).chain(&own.globs).chain(own.paths.iter().filter(|path| path.len() > 1));
        let mut found: BTreeSet<Module> = paths.filter_map(|path| resolve(&names, file, path, 0)).collect();
        found.remove(*file);
        needs.insert((*file).clone(), found);
    }
    needs
}

/// The file that defines what a path in a file leads to. `None` for what is of another crate.
fn resolve(names: &BTreeMap<&Module, Names>, file: &Module, path: &[String], depth: usize) -> Option<Module> {
    let mut at: Module = file.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => (at, rest) = (Module::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {}
        first => {
            // A module of this file, or a name that it imports; everything else is not a path to a
            // file.
            let child = [file.as_slice(), &[first.to_owned()][..]].concat();
            if !names.contains_key(&child) {
                let import = names.get(file)?.imports.get(first).filter(|import| *import != path && depth < 8)?;
                return resolve(names, file, &[import.as_slice(), &path[1..]].concat(), depth + 1);
            }
        }
    }
    while rest.first().is_some_and(|part| part == "super") {
        at.pop()?;
        rest = &rest[1..];
    }
    for (index, part) in rest.iter().enumerate() {
        let child = [at.as_slice(), std::slice::from_ref(part)].concat();
        if names.contains_key(&child) {
            at = child;
            continue;
        }
        // An item of this file, or one that it re-exports from another.
        let import = names.get(&at)?.imports.get(part).filter(|_| at != *file && depth < 8);
        let behind = import.map(|import| [import.as_slice(), &rest[index + 1..]].concat());
        return behind.and_then(|path| resolve(names, &at, &path, depth + 1)).or(Some(at));
    }
    Some(at)
}

/// Reads a file's names.
fn names(text: &str) -> Names {
    let tokens = tokens(text);
    let mut names = Names::default();
    let mut at = 0;
    while at < tokens.len() {
        let token = tokens[at].as_str();
        if tokens[at..].starts_with(&["#", "[", "cfg", "(", "test", ")", "]"].map(str::to_owned)) {
            at = behind_item(&tokens, at + 7, &mut names.tests);
        } else if token == "use" && tokens.get(at + 1).is_some_and(|next| next != "<") {
            let public = at > 0 && (tokens[at - 1] == "pub" || tokens[at - 1] == ")");
            at = imports(&tokens, at + 1, &[], public, &mut names);
        } else if is_name(token) && (at == 0 || !matches!(tokens[at - 1].as_str(), "::" | "." | "mod")) {
            let mut path = vec![token.to_owned()];
            while at + 2 < tokens.len() && tokens[at + 1] == "::" && is_name(&tokens[at + 2]) {
                at += 2;
                path.push(tokens[at].clone());
            }
            names.paths.push(path);
            at += 1;
        } else {
            at += 1;
        }
    }
    names
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The place behind an item. A module without braces is noted.
fn behind_item(tokens: &[String], mut at: usize, modules: &mut Vec<String>) -> usize {
    let mut depth = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            "mod" if depth == 0 && tokens.get(at + 2).is_some_and(|end| end == ";") => {
                modules.push(tokens[at + 1].clone())
            }
            _ => {}
        }
        at += 1;
        if depth == 0 && matches!(tokens[at - 1].as_str(), "}" | ";") {
            break;
        }
    }
    at
}

/// Reads one tree of a `use` line, from `at`, and returns the place behind it.
fn imports(tokens: &[String], mut at: usize, base: &[String], public: bool, names: &mut Names) -> usize {
    let mut path = base.to_vec();
    while at < tokens.len() {
        match tokens[at].as_str() {
            "::" => {}
            "{" => {
                at += 1;
                while at < tokens.len() && tokens[at] != "}" {
                    at = imports(tokens, at, &path, public, names);
                    at += usize::from(tokens.get(at).is_some_and(|token| token == ","));
                }
                return at + 1;
            }
            "*" => {
                names.globs.push(path);
                return at + 1;
            }
            "as" => {
                bind(names, tokens[at + 1].clone(), path, public);
                return at + 2;
            }
            // `use crate::x::{self, …}` names `x`.
            "self" if path.len() == base.len() && !base.is_empty() => {}
            name if is_name(name) => path.push(name.to_owned()),
            _ => break,
        }
        at += 1;
    }
    if let Some(name) = path.last().cloned() {
        bind(names, name, path, public);
    }
    at
}

fn bind(names: &mut Names, name: String, path: Vec<String>, public: bool) {
    if public {
        names.exports.insert(name.clone());
    }
    names.imports.insert(name, path);
}

/// Names, `::` and single characters; without white space, comments, texts and lifetimes.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = raw_text(rest) {
            length
        } else if first == '"' {
            quoted(rest)
        } else if first == '\'' {
            // A character ends with a quote, a lifetime does not.
            let mut chars = rest[1..].chars();
            let (one, two) = (chars.next(), chars.next());
            if one == Some('\\') {
                2 + rest[3..].find('\'').map_or(0, |end| end + 2)
            } else if two == Some('\'') {
                2 + one.map_or(0, char::len_utf8)
            } else {
                1 + rest[1..].find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len() - 1)
            }
        } else {
            let length = match first {
                _ if rest.starts_with("::") => 2,
                _ if first.is_alphanumeric() || first == '_' => {
                    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
                }
                _ => first.len_utf8(),
            };
            if !first.is_whitespace() {
                tokens.push(rest[..length].to_owned());
            }
            length
        };
        rest = &rest[length..];
    }
    tokens
}

/// The length of a text in quotes.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// The length of a text as `r"…"` or `r#"…"#`, if one begins here.
fn raw_text(text: &str) -> Option<usize> {
    let inside = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = inside.len() - inside.trim_start_matches('#').len();
    let inside = inside[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let before = text.len() - inside.len();
    Some(inside.find(&end).map_or(text.len(), |at| before + at + end.len()))
}
