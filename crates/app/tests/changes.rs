//! `benches/changes` runs and says what it found. The test is skipped with a message where the host
//! does not allow it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The script with these words, or `None`, with a message, if there is no Python for it.
fn changes(words: &[&str]) -> Option<Output> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/changes");
    let mut command = Command::new("python3");
    command.arg(script).args(words).args(["--altq", env!("CARGO_BIN_EXE_altq")]).stdin(Stdio::null());
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("SKIPPED: benches/changes needs python3 ({error})");
            None
        }
    }
}

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What is written, brought to the disk and renamed before a worker is told, as strace(1) sees it:
/// fsync(2) of the file before rename(2), and of the folder after it.
#[test]
fn a_change_is_on_the_disk_before_the_worker_is_told() {
    let folder = Folder(std::env::temp_dir().join(format!("altq-changes-test-{}", std::process::id())));
    let out = folder.0.display().to_string();
    let Some(output) = changes(&["fsyncs", "--out", &out]) else { return };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    if matches!(output.status.code(), Some(6 | 7)) || table.contains("SKIPPED fsyncs") {
        return eprintln!("SKIPPED: {table}{said}");
    }
    assert_eq!(output.status.code(), Some(0), "{table}{said}");
    let text = std::fs::read_to_string(folder.0.join("fsyncs.json")).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&result["schema"], &result["part"]), (&"altq.changes/1".into(), &"fsyncs".into()));
    let runs = result["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 5, "{table}");
    let begun = serde_json::json!(["write", "fsync", "rename", "fsync of the folder", "answer", "answer"]);
    assert_eq!(runs[0]["calls"], begun, "{table}");
}

#[test]
fn wrong_words_are_exit_2() {
    for words in [&["speed"][..], &["applies", "--paths", "xdp"], &["applies", "--count", "0"], &["soak", "--for", "5"]]
    {
        let Some(output) = changes(words) else { return };
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
