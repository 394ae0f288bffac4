//! Runs of cases in the lab, whose verdicts hold on a host that others use too.
//!
//! A run that does not pass is repeated. It counts against its case if its result is valid and
//! other machines took hardly any of the processors' time meanwhile. Runs that count fail a case
//! once there are `MISSES` of them and none passed; a case with fewer after all tries is skipped
//! with a message.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, thread};

pub const TRIES: usize = 6;

/// Runs that count against a case before it fails.
pub const MISSES: usize = 3;

/// Share of the processors' time that other machines may take in a run that counts. The lab accepts
/// results up to 5 %, which a share with a tolerance of 1 % does not bear.
pub const TAKEN: f64 = 0.01;

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
    /// It did not pass. Whether that counts, and what it said.
    Missed(bool, String),
}

/// Ticks of all processors that other machines took, and all ticks, since boot (proc(5)).
pub struct Ticks(u64, u64);

impl Ticks {
    pub fn now() -> Ticks {
        let text = fs::read_to_string("/proc/stat").unwrap();
        let all = text.lines().next().unwrap().split_whitespace().skip(1);
        let all: Vec<u64> = all.map(|number| number.parse().unwrap()).collect();
        // Time of guests, behind the first eight numbers, is part of others.
        Ticks(all[7], all[..8].iter().sum())
    }

    /// The share of the processors' time that other machines have taken since then.
    pub fn taken(&self) -> f64 {
        let now = Ticks::now();
        now.0.saturating_sub(self.0) as f64 / now.1.saturating_sub(self.1).max(1) as f64
    }
}

pub fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn try_case(path: &Path, apart: Apart) -> Tried {
    let name = name(path);
    let altq = env!("CARGO_BIN_EXE_altq");
    let ticks = Ticks::now();
    let output = Command::new(altq).args(["lab", "--json"]).arg(path).output().unwrap();
    let taken = ticks.taken();
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
    let counts = valid && taken <= TAKEN;
    let said = format!(
        "{name}: {}, {:.1} % of the processors' time was taken: {} {} {}",
        if counts { "valid" } else { "INVALID" },
        taken * 100.0,
        apart.unwrap_or_default(),
        result["notes"],
        result["expectations"]
    );
    eprintln!("AGAIN {said}");
    Tried::Missed(counts, said)
}

/// True once a host could not keep time in all tries of a case. The other cases then have one try
/// each: on such a host more of them take minutes and tell nothing.
static BUSY: AtomicBool = AtomicBool::new(false);

/// Runs a case by itself, up to `TRIES` times.
pub fn run_alone(path: &Path, apart: Apart) {
    let (mut misses, mut tries) = (Vec::new(), 0);
    // After a run that counts, the case must have all its tries, on a busy host too.
    while tries < TRIES && !(tries > 0 && misses.is_empty() && BUSY.load(Ordering::Relaxed)) {
        tries += 1;
        match try_case(path, apart) {
            Tried::Passed => return,
            Tried::Lacking(reason) => return eprintln!("SKIPPED {}: {reason}", name(path)),
            Tried::Missed(true, said) => misses.push(said),
            Tried::Missed(false, _) => {}
        }
        assert!(misses.len() < MISSES, "{MISSES} runs that count missed, and none passed: {}", misses.join("\n"));
    }
    BUSY.store(true, Ordering::Relaxed);
    eprintln!("SKIPPED {}: this host could not keep time: {} of {tries} runs count", name(path), misses.len());
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
