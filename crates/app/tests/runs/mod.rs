//! Runs of cases in the lab, whose verdicts hold on a host that others use too.
//!
//! A run whose result is not valid, or that misses a figure, is repeated. A case is skipped with a
//! message if no run was valid, and fails if valid runs missed their figures each time.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

pub const TRIES: usize = 4;

/// Compares a lab's result with something else; the first difference.
pub type Apart = fn(&Path, &serde_json::Value) -> Option<String>;

/// Why this host cannot run a lab, if it cannot: the program's own message. If the message is about
/// root, that is checked.
pub fn lacking(output: &Output) -> Option<String> {
    matches!(output.status.code(), Some(6 | 7)).then(|| String::from_utf8_lossy(&output.stderr).trim().to_string())
}

/// What came of one run of a case.
enum Tried {
    Passed,
    /// This host cannot run a lab, and why.
    Lacking(String),
    Missed {
        valid: bool,
        said: String,
    },
}

pub fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn try_case(path: &Path, apart: Apart) -> Tried {
    let name = name(path);
    let altq = env!("CARGO_BIN_EXE_altq");
    let output = Command::new(altq).args(["lab", "--json"]).arg(path).output().unwrap();
    if let Some(reason) = lacking(&output) {
        return Tried::Lacking(reason);
    }
    let result: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{name}: {error}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(result["schema"], "altq.result/1");
    assert_eq!(result["world"], "lab");
    let passed = result["expectations"].as_array().unwrap().iter().all(|expectation| expectation["pass"] == true);
    let valid = result["valid"] == true;
    // The exit code agrees with the result.
    assert_eq!(output.status.code(), Some(if valid && passed { 0 } else { 3 }), "{name}");
    let apart = if valid && passed { apart(path, &result) } else { None };
    if valid && passed && apart.is_none() {
        return Tried::Passed;
    }
    let said = format!("{name}: {} {} {}", apart.unwrap_or_default(), result["notes"], result["expectations"]);
    eprintln!("AGAIN {said}");
    Tried::Missed { valid, said }
}

/// True once a host could not keep time in all tries of a case. The other cases then have one try
/// each: on such a host more of them take minutes and tell nothing.
static BUSY: AtomicBool = AtomicBool::new(false);

/// Runs a case by itself, up to `TRIES` times.
pub fn run_alone(path: &Path, apart: Apart) {
    let (mut last, mut was_valid) = (String::new(), false);
    let tries = if BUSY.load(Ordering::Relaxed) { 1 } else { TRIES };
    for _ in 0..tries {
        match try_case(path, apart) {
            Tried::Passed => return,
            Tried::Lacking(reason) => return eprintln!("SKIPPED {}: {reason}", name(path)),
            Tried::Missed { valid, said } => {
                was_valid |= valid;
                last = said;
            }
        }
    }
    // A valid run that missed, alone, must have had all its tries.
    if was_valid && tries < TRIES {
        BUSY.store(false, Ordering::Relaxed);
        return run_alone(path, apart);
    }
    assert!(!was_valid, "{TRIES} times in a row: {last}");
    BUSY.store(true, Ordering::Relaxed);
    eprintln!("SKIPPED {}: this host could not keep time in {tries} tries", name(path));
}

/// Runs cases two at a time. Returns those that did not pass: a run by itself decides about them,
/// because the others may have disturbed them.
pub fn run_side_by_side(files: Vec<PathBuf>, apart: Apart) -> Vec<PathBuf> {
    let (waiting, again) = (Mutex::new(files), Mutex::new(Vec::new()));
    let next = || waiting.lock().unwrap().pop();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(path) = next() {
                    if !matches!(try_case(&path, apart), Tried::Passed) {
                        again.lock().unwrap().push(path);
                    }
                }
            });
        }
    });
    again.into_inner().unwrap()
}
