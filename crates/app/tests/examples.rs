//! The examples of `examples/`: each policy checks without a word, each case keeps its promises,
//! and its result becomes a page.

mod runs;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use runs::{run_alone, run_side_by_side};

const EXAMPLES: [&str; 5] = ["home", "office", "isp", "branch", "lab"];

fn altq(args: &[&str]) -> (i32, String, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(env!("CARGO_BIN_EXE_altq")).args(args).current_dir(root).output().unwrap();
    let Output { status, stdout, stderr } = output;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

fn policies(example: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(example);
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "altq"));
    found
}

#[test]
fn every_policy_checks_without_a_warning() {
    for example in EXAMPLES {
        let all = policies(example);
        assert!(!all.is_empty(), "{example}");
        for policy in all {
            let (code, _, error) = altq(&["check", policy.to_str().unwrap()]);
            assert_eq!((code, error.as_str()), (0, ""), "{}", policy.display());
        }
    }
}

#[test]
fn every_case_keeps_its_promises_and_has_its_page() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples");
    std::fs::create_dir_all(&folder).unwrap();
    for example in EXAMPLES {
        for seed in ["1", "2", "11"] {
            let (code, out, error) =
                altq(&["sim", &format!("examples/{example}/{example}.toml"), "--seed", seed, "--json"]);
            assert_eq!(code, 0, "{example} at seed {seed}: {error}");
            let result: serde_json::Value = serde_json::from_str(&out).unwrap();
            let promises = result["expectations"].as_array().unwrap();
            assert!(promises.len() >= 10 && promises.iter().all(|one| one["pass"] == true), "{example}");
            std::fs::write(folder.join(format!("{example}.json")), out).unwrap();
        }
        let (json, page) = (folder.join(format!("{example}.json")), folder.join(format!("{example}.html")));
        let (code, _, error) = altq(&["report", json.to_str().unwrap(), "-o", page.to_str().unwrap()]);
        assert_eq!(code, 0, "{example}: {error}");
        let text = std::fs::read_to_string(page).unwrap();
        assert!(text.contains("<svg") && text.contains("</html>"), "{example}");
    }
}

/// Needs root, and a host that has time for it: the runs take half a minute.
#[test]
fn every_case_keeps_its_promises_in_the_lab() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = EXAMPLES.iter().map(|example| folder.join(format!("{example}/{example}.toml"))).collect();
    for path in run_side_by_side(files, |_, _| None) {
        run_alone(&path, |_, _| None);
    }
}
