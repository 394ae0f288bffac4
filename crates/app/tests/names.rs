//! Schedulers and queues are known by name only in their own files; all other code asks their
//! registry entries. So a new one needs its file, its line in the registry, its case and its page.
//! A name anywhere else in the code means that the entry does not answer a question yet.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use altq_engine::{queue, schedule};

/// Names that other files may contain, and why. A folder stands for all files in it.
const ALLOWED: &[(&str, &[&str], &str)] = &[
    ("config/src/altq_conf", &[], "altq.conf is a language about ALTQ's disciplines"),
    ("kernel/src", &[], "a language about Linux's qdiscs: which of them keeps whose words"),
    ("dataplane/src/kernel/switch.rs", &["htb"], "the kernel's, of which a switch is made where it has no prio"),
    ("lab/src/kernel_htb.rs", &["htb"], "a language about HTB: its classes in tc's words, for the kernel's HTB"),
    ("lab/src/peer.rs", &["htb"], "the same: one class of the kernel's HTB"),
    ("pages/src/stat/altqstat/block.rs", &["wfq"], "what ALTQ's own tool prints of its WFQ"),
    ("engine/src/shape/meter", &["red"], "a colour of RFC 2697"),
    ("config/src/native/meter.rs", &["red"], "a colour of RFC 2697"),
    ("app/src/commands/bench/metered.rs", &["red"], "a colour of RFC 2697"),
    ("simulator/src/sim", &["fifo"], "the buffer of a link without a policy, which has no scheduler"),
    ("app/src/demo/screen.rs", &["cbq"], "cbq.conf, a file of ALTQ's"),
    ("cases/src/case/column.rs", &["cake"], "cake-autorate, another program"),
    ("engine/benches/engine.rs", &["drr", "fifo", "hashed_wfq", "red"], "what is measured beside what"),
    // The registries.
    ("engine/src/schedule/mod.rs", &[], "a line for each scheduler"),
    ("engine/src/queue/mod.rs", &[], "a line for each queue"),
    // Queues that a scheduler gives its classes, or names in a message.
    ("engine/src/schedule/cbq/mod.rs", &["drop_head", "drop_tail"], "the classic estimator's queue; what to write"),
    ("engine/src/schedule/htb/words.rs", &["drop_tail"], "what to write for a word of tc"),
    ("engine/src/schedule/wfq/words.rs", &["drop_tail"], "what to write for a word of MQC"),
    ("config/src/native/words.rs", &["drop_tail", "fq_codel", "red"], "what to write for a word of MQC"),
    ("engine/src/schedule/wfq", &["sfq"], "the queue of a class with `fair-queue`"),
    // Disciplines that are built from parts of another one.
    ("engine/src/schedule/wfq/mod.rs", &["fifo"], "low-latency classes of a level are served as they come"),
    ("engine/src/queue/fq_codel.rs", &["codel"], "RFC 8290: a CoDel for each flow"),
    ("engine/src/queue/cake/cobalt.rs", &["codel"], "COBALT is CoDel and BLUE together"),
    ("engine/src/queue/rio.rs", &["red"], "RIO is a RED for each drop precedence"),
    ("engine/src/queue/sfq", &["red"], "SFQ may have a RED for each flow"),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn names() -> BTreeSet<&'static str> {
    let schedulers = schedule::SCHEDULERS.iter().map(|entry| entry.name);
    schedulers.chain(queue::QUEUES.iter().map(|entry| entry.name)).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("tests") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// True if this is a file of the scheduler or queue itself.
fn own(file: &str, name: &str) -> bool {
    ["engine/src/schedule/", "engine/src/queue/"].iter().any(|folder| {
        let rest = file.strip_prefix(folder).and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    })
}

/// A token of a Rust file.
enum Piece {
    /// A word of the code.
    Word(String),
    /// A sign.
    Sign(char),
    /// The text of a literal.
    Text(String),
}

/// The tokens of code, without comments.
fn pieces(code: &str) -> Vec<Piece> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if rest.starts_with("/*") {
            rest = &rest[rest.find("*/").unwrap() + 2..];
        } else if let Some((text, behind)) = literal(rest) {
            found.push(Piece::Text(text.to_owned()));
            rest = behind;
        } else if c.is_alphanumeric() || c == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            found.push(Piece::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        } else if rest.starts_with("'\\") {
            // Skips a character literal that is written with a backslash. Other character literals
            // become a sign and their content.
            rest = &rest[3 + rest[3..].find('\'').unwrap() + 1..];
        } else if rest.starts_with("'\"'") {
            rest = &rest[3..];
        } else {
            if !c.is_whitespace() {
                found.push(Piece::Sign(c));
            }
            rest = &rest[c.len_utf8()..];
        }
    }
    found
}

/// The literal at the start of `code`, if there is one, and the code behind it.
fn literal(code: &str) -> Option<(&str, &str)> {
    let plain = code.strip_prefix('b').unwrap_or(code);
    if let Some(text) = plain.strip_prefix('"') {
        let mut escaped = false;
        let end = text.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?;
        return Some((&text[..end], &text[end + 1..]));
    }
    let raw = plain.strip_prefix('r')?;
    let text = raw.trim_start_matches('#');
    let end = format!("\"{}", &raw[..raw.len() - text.len()]);
    let text = text.strip_prefix('"')?;
    let at = text.find(&end)?;
    Some((&text[..at], &text[at + end.len()..]))
}

/// The tokens without items under `#[cfg(test)]`.
fn without_tests(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut kept: Vec<Piece> = Vec::new();
    let mut all = pieces.into_iter();
    while let Some(piece) = all.next() {
        kept.push(piece);
        let ends: String = kept[kept.len().saturating_sub(7)..]
            .iter()
            .map(|piece| match piece {
                Piece::Word(word) => word.clone(),
                Piece::Sign(sign) => sign.to_string(),
                Piece::Text(_) => "\"".into(),
            })
            .collect();
        if ends == "#[cfg(test)]" {
            kept.truncate(kept.len() - 7);
            let mut depth = 0;
            for skipped in all.by_ref() {
                match skipped {
                    Piece::Sign('{') => depth += 1,
                    Piece::Sign('}') if depth == 1 => break,
                    Piece::Sign('}') => depth -= 1,
                    Piece::Sign(';') if depth == 0 => break,
                    _ => {}
                }
            }
        }
    }
    kept
}

/// The names in code: words inside string literals, and modules on a path.
fn known(code: &str, names: &BTreeSet<&'static str>) -> Vec<&'static str> {
    let pieces = without_tests(pieces(code));
    let mut found = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Text(text) => {
                let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
                found.extend(words.filter_map(|word| names.get(word)));
            }
            Piece::Word(word) => {
                let colons = |at: usize| matches!(pieces.get(at..at + 2), Some([Piece::Sign(':'), Piece::Sign(':')]));
                if colons(at + 1) || at >= 2 && colons(at - 2) {
                    found.extend(names.get(word.as_str()));
                }
            }
            Piece::Sign(_) => {}
        }
    }
    found
}

#[test]
fn nobody_knows_a_scheduler_or_a_queue_by_its_name() {
    let (crates, names) = (crates(), names());
    let (mut files, mut found, mut used) = (Vec::new(), Vec::new(), BTreeSet::new());
    sources(&crates, &mut files);
    assert!(files.len() > 200, "{} files", files.len());
    for path in files {
        let file = path.strip_prefix(&crates).unwrap().to_str().unwrap().to_owned();
        for name in known(&std::fs::read_to_string(&path).unwrap(), &names) {
            let allowed = ALLOWED
                .iter()
                .position(|(where_, which, _)| file.starts_with(where_) && (which.is_empty() || which.contains(&name)));
            used.extend(allowed);
            if allowed.is_none() && !own(&file, name) {
                found.push(format!("{file}: {name}"));
            }
        }
    }
    let help = "ask the registry's entry for what is needed, take the word out of the message, or add a line with the \
                reason to ALLOWED in this file";
    assert!(found.is_empty(), "{} names outside their own files:\n{}\n{help}", found.len(), found.join("\n"));
    let idle: Vec<_> = (0..ALLOWED.len()).filter(|at| !used.contains(at)).map(|at| ALLOWED[at]).collect();
    assert!(idle.is_empty(), "these stand nowhere any more: {idle:?}");
}

#[test]
fn names_are_found_where_they_are_known() {
    let names = names();
    let code = r##"
        // drr in a comment /* cbq */ "hfsc"
        const A: &str = "htb"; const B: &str = r#"a "wfq" here"#; use super::priq::level; let x = '"'; let y = "cbqs";
        fn sfq() { red.x(); codel::new() }
        #[cfg(test)] mod tests { fn f() { "pie"; { "rio" } } }
        #[cfg(test)] use a::blue;
        const C: &str = "scheduler fifo {";
    "##;
    assert_eq!(known(code, &names), ["htb", "wfq", "priq", "codel", "fifo"]);
}
