//! The files on which the results of a sweep depend: the case's text, and the policies, traces and
//! captures that it names. They are known by their contents, because hosts call them differently.

use std::path::Path;

use altq_cases::built_in;
use altq_cases::case::{CaseFile, Given, Kind};
use sha2::{Digest, Sha256};

use super::Point;

/// The keys of a case that name files.
const KEYS: [&str; 4] = ["policy_file", "file", "trace", "reverse_trace"];

/// Hashes of a case's files.
#[derive(Clone, Debug)]
pub struct Digests {
    /// Of the case's text, and of its files if they are the same at each point.
    case: String,
    /// Of the files of each point, if they may differ.
    points: Vec<String>,
}

impl Digests {
    /// Those of a case and the points of a sweep.
    pub fn of(text: &str, path: &Path, points: &[Point]) -> Digests {
        let mut all = Sha256::new();
        add(&mut all, text.as_bytes());
        // A value may bring the include along.
        let includes = || text.contains("include") || points.iter().any(|point| brings_include(&point.given()));
        if names_depend_on_values(text, includes) {
            let of = |point: &Point| {
                let mut own = Sha256::new();
                files(&mut own, text, path, &point.given());
                hex(own)
            };
            return Digests { case: hex(all), points: points.iter().map(of).collect() };
        }
        let first = points.first().map(Point::given).unwrap_or_default();
        files(&mut all, text, path, &first);
        Digests { case: hex(all), points: Vec::new() }
    }

    /// What all points have in common.
    pub fn case(&self) -> &str {
        &self.case
    }

    /// What a point has on its own; empty if there is nothing.
    pub fn of_point(&self, point: usize) -> String {
        self.points.get(point).cloned().unwrap_or_default()
    }
}

/// Whether a value has the word that reads other files.
fn brings_include(given: &Given) -> bool {
    given.values().any(|word| word.contains("include"))
}

/// Whether which files are read may depend on a case's values: a key that names a file has a
/// placeholder, or the text of a policy, or what is replaced in it, has one, and files may be
/// included.
fn names_depend_on_values(text: &str, includes: impl Fn() -> bool) -> bool {
    fn any(value: &toml::Value, key: &str, of: &dyn Fn(&str) -> bool) -> bool {
        match value {
            toml::Value::String(word) => word.contains("${") && of(key),
            toml::Value::Array(list) => list.iter().any(|value| any(value, key, of)),
            toml::Value::Table(table) => table.iter().any(|(key, value)| any(value, key, of)),
            _ => false,
        }
    }
    let Ok(table) = toml::from_str::<toml::Table>(text) else { return false };
    let has = |of: &dyn Fn(&str) -> bool| table.iter().any(|(key, value)| any(value, key, of));
    has(&|key| KEYS.contains(&key)) || has(&|key| matches!(key, "policy" | "with")) && includes()
}

/// Adds all files that a case names. One that cannot be read counts as empty: its runs then say so.
fn files(hash: &mut Sha256, text: &str, path: &Path, given: &Given) {
    let Ok(file) = CaseFile::parse_with(text, path, given) else { return };
    for case in file.runs.iter().map(|run| &run.case) {
        for column in &case.columns {
            // With what it includes.
            let texts = match column.load(case) {
                Ok(policy) => policy.sources.texts,
                Err(altq_cases::case::PolicyError::Refused(failed)) => failed.sources.texts,
                Err(altq_cases::case::PolicyError::Text(_)) => Vec::new(),
            };
            texts.iter().for_each(|(_, text)| add(hash, text.as_bytes()));
        }
        let captures = case.flows.iter().filter_map(|flow| match &flow.kind {
            Kind::Pcap { file, .. } => Some(file),
            _ => None,
        });
        for file in captures.chain(&case.traces) {
            add(hash, &built_in::read(&case.folder.join(file)).unwrap_or_default());
        }
    }
}

/// Adds a piece and its length, so that no two lists of pieces are the same bytes.
fn add(hash: &mut Sha256, piece: &[u8]) {
    hash.update((piece.len() as u64).to_le_bytes());
    hash.update(piece);
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_depend_on_values_where_they_are_named_by_them() {
        for (text, depend) in [
            ("policy_file = \"a.altq\"\n[values]\nx = 1\n", false),
            ("policy_file = \"${x}.altq\"\n", true),
            ("policy = \"link l { rate ${x} }\"\n", false),
            ("policy = \"include '${x}'\"\n", true),
            ("[[flows]]\nfile = \"${x}\"\n", true),
            ("[[flows]]\nname = \"${x}\"\n", false),
            ("links = [{ name = \"l\", trace = \"${x}.csv\" }]\n", true),
        ] {
            assert_eq!(names_depend_on_values(text, || text.contains("include")), depend, "{text}");
        }
        // What is replaced in a policy, and a value that brings the include along.
        let replaced = "replace = [{ find = \"x\", with = \"include '${site}'\" }]\n";
        assert!(names_depend_on_values(replaced, || true) && !names_depend_on_values(replaced, || false));
        let given = |word: &str| Given::from([("text".to_owned(), word.to_owned())]);
        assert!(brings_include(&given("include 'a.altq'")) && !brings_include(&given("2Mbit/s")));
    }
}
