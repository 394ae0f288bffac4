//! How a result was made: version, command, and the files with their hashes.

use std::path::Path;

use sha2::{Digest, Sha256};

use crate::built_in;
use crate::case::{CaseFile, Kind, PolicySource};
use crate::result::{Made, MadeFrom};

/// Everything that is needed to make a result of a case file again.
pub fn made(file: &CaseFile) -> Made {
    let mut paths = vec![file.path.clone()];
    for case in file.runs.iter().map(|run| &run.case) {
        let policies = case.columns.iter().filter_map(|column| match &column.policy {
            PolicySource::File(file) => Some(file),
            PolicySource::Text(_) => None,
        });
        let captures = case.flows.iter().filter_map(|flow| match &flow.kind {
            Kind::Pcap { file, .. } => Some(file),
            _ => None,
        });
        for path in policies.chain(captures).chain(&case.traces).map(|file| case.folder.join(file)) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    // The case as it was read: a file may have changed since, and standard input is gone.
    let case = MadeFrom { file: file.path.display().to_string(), sha256: file.sha256.clone() };
    let others = paths.iter().skip(1).map(|path| from(&path.display().to_string(), path));
    let files = std::iter::once(case).chain(others).collect();
    Made { version: env!("CARGO_PKG_VERSION").into(), command: command(), files, ..Made::default() }
}

/// A file's hash; empty if the file can no longer be read.
fn from(name: &str, path: &Path) -> MadeFrom {
    let sha256 = built_in::read(path).map_or(String::new(), |bytes| sha256(&bytes));
    MadeFrom { file: name.to_owned(), sha256 }
}

/// The SHA-256 of bytes, in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The command line as a shell takes it. The program has its name only, because it may be in
/// another folder elsewhere.
fn command() -> String {
    let words = std::env::args_os().skip(1).map(|word| quoted(&word.to_string_lossy()));
    std::iter::once("altq".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_standard() {
        // FIPS 180-4, the example of one block.
        assert_eq!(hex(&Sha256::digest("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn words_for_a_shell() {
        assert_eq!([quoted("a/b-1.toml"), quoted("it's"), quoted("")], ["a/b-1.toml", "'it'\\''s'", "''"]);
    }
}
