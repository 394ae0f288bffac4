//! `benches/paths` runs, says what it found, and leaves nothing behind. The test is skipped with a
//! message where the host does not allow it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The script with these words, or `None`, with a message, if there is no Python for it.
fn paths(words: &[&str]) -> Option<Output> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/paths");
    let mut command = Command::new("python3");
    command.arg(script).args(words).args(["--altq", env!("CARGO_BIN_EXE_altq")]).stdin(Stdio::null());
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("SKIPPED: benches/paths needs python3 ({error})");
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

fn namespaces() -> Vec<PathBuf> {
    let listed = std::fs::read_dir("/var/run/netns").into_iter().flatten();
    listed.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// Round trips over the bridge, for a moment. Whether they are as short as wanted is not asked: the
/// host is busy with other tests.
#[test]
fn a_part_is_measured_and_nothing_is_left() {
    let folder = Folder(std::env::temp_dir().join(format!("altq-paths-test-{}", std::process::id())));
    let before = namespaces();
    let out = folder.0.display().to_string();
    let words = ["rtt", "--rounds", "1", "--seconds", "0.5", "--paths", "bridge", "--out", &out];
    let Some(output) = paths(&words) else { return };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if matches!(output.status.code(), Some(6 | 7)) {
        return eprintln!("SKIPPED: {said}");
    }
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{table}{said}");
    let text = std::fs::read_to_string(folder.0.join("rtt.json")).unwrap();
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&result["schema"], &result["part"]), (&"altq.paths/1".into(), &"rtt".into()));
    let runs = result["runs"].as_array().unwrap();
    for path in ["none", "bridge"] {
        let run = runs.iter().find(|run| run["choice"] == path);
        if table.contains(&format!("SKIPPED {path}")) {
            eprintln!("SKIPPED in part: {table}");
            continue;
        }
        let run = run.unwrap_or_else(|| panic!("{path}: {table}"));
        assert!(run["value"].as_f64().is_some_and(|seconds| seconds > 0.0) || run["why"] != serde_json::json!([]));
    }
    assert_eq!(namespaces(), before);
}

#[test]
fn wrong_words_are_exit_2() {
    for words in [&["speed"][..], &["rtt", "--paths", "tunnel"], &["rtt", "--rounds", "0"], &["tcp", "--rates", "5"]] {
        let Some(output) = paths(words) else { return };
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
