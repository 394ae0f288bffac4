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
        if names_depend_on_values(text) {
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

/// Whether which files are read may depend on a case's values: a key that names a file has a
/// placeholder, or a policy in the case includes files and has one.
fn names_depend_on_values(text: &str) -> bool {
    fn any(value: &toml::Value, key: &str) -> bool {
        match value {
            toml::Value::String(word) => {
                word.contains("${") && (KEYS.contains(&key) || key == "policy" && word.contains("include"))
            }
            toml::Value::Array(list) => list.iter().any(|value| any(value, key)),
            toml::Value::Table(table) => table.iter().any(|(key, value)| any(value, key)),
            _ => false,
        }
    }
    toml::from_str::<toml::Table>(text).is_ok_and(|table| table.iter().any(|(key, value)| any(value, key)))
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
            assert_eq!(names_depend_on_values(text), depend, "{text}");
        }
    }
}
