//! The examples of `examples/`: each policy checks without a word, each case keeps its promises,
//! and its result becomes a page. The policies and the case of `docs/coming-from/`: they check
//! without a word too, and come to the figures that stand beside them.

mod runs;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use runs::{run_alone, run_side_by_side};
use serde_json::Value;

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
fn every_case_keeps_its_promises_in_the_lab_and_has_its_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = EXAMPLES.iter().map(|example| folder.join(format!("{example}/{example}.toml"))).collect();
    for path in run_side_by_side(files, no_page) {
        run_alone(&path, no_page);
    }
}

/// What is wrong with the page of a case's result in the lab, if anything is.
fn no_page(case: &Path, lab: &Value) -> Option<String> {
    let folder = temporary("examples-lab");
    let name = case.file_stem().unwrap().to_string_lossy();
    let (json, page) = (folder.join(format!("{name}.json")), folder.join(format!("{name}.html")));
    std::fs::write(&json, lab.to_string()).unwrap();
    let (code, _, error) = altq(&["report", json.to_str().unwrap(), "-o", page.to_str().unwrap()]);
    let text = std::fs::read_to_string(page).unwrap_or_default();
    let whole = code == 0 && text.contains("<svg") && text.contains("</html>");
    (!whole).then(|| format!("altq report: {code} {error}"))
}

fn temporary(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The names and texts of the pages for those who know another tool.
fn pages() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/coming-from");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(path).unwrap())
    };
    std::fs::read_dir(folder).unwrap().map(read).collect()
}

/// What stands between fences on a page, where it begins so: with the language, or a new line.
fn blocks<'t>(page: &'t str, begin: &str) -> Vec<&'t str> {
    page.split("```").skip(1).step_by(2).filter(|block| block.starts_with(begin)).collect()
}

#[test]
fn policies_of_the_pages_check_and_promise_what_stands_there() {
    let folder = temporary("coming-from-policies");
    let (mut policies, mut delays) = (0, 0);
    for (name, text) in pages() {
        let mut bounds: Vec<(String, f64)> = Vec::new();
        for block in blocks(&text, "\nlink ") {
            policies += 1;
            let path = folder.join(format!("{name}.altq"));
            std::fs::write(&path, block).unwrap();
            let path = path.to_str().unwrap();
            let (code, _, error) = altq(&["check", path]);
            assert_eq!((code, error.as_str()), (0, ""), "{name}: {block}");
            let report: Value = serde_json::from_str(&altq(&["check", path, "--json"]).1).unwrap();
            for class in report["links"].as_array().unwrap().iter().flat_map(|link| link["classes"].as_array().unwrap())
            {
                if let Some(ns) = class["delay_bound_ns"]["conforming"].as_u64() {
                    bounds.push((class["name"].as_str().unwrap().to_owned(), ns as f64 / 1e6));
                }
            }
        }
        // Such as "5.24 ms for `voice` above".
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for pair in words.split(" ms for `").collect::<Vec<_>>().windows(2) {
            delays += 1;
            let (said, class) = (pair[0].rsplit(' ').next().unwrap(), pair[1].split('`').next().unwrap());
            let ms: f64 = said.parse().unwrap();
            // Bounds are printed with three digits, rounded up.
            let digit = 10f64.powf(ms.log10().floor() - 2.0);
            let holds = bounds.iter().any(|(name, bound)| name == class && (0.0..digit).contains(&(ms - bound)));
            assert!(holds, "{name} says {said} ms for {class}: {bounds:?}");
        }
    }
    // Each page with policies has one, SQM's has two, MQC's three; four delays are said.
    assert_eq!((policies, delays), (7, 4));
}

#[test]
fn the_case_of_the_page_from_ns_3_prints_what_stands_there() {
    let (_, text) = pages().into_iter().find(|(name, _)| name == "ns-3.md").unwrap();
    let path = temporary("coming-from-case").join("dumbbell.toml");
    let [case] = blocks(&text, "toml\n")[..] else { panic!("one case stands there") };
    std::fs::write(&path, case.strip_prefix("toml\n").unwrap()).unwrap();
    let path = path.to_str().unwrap();
    let (code, _, error) = altq(&["check", path]);
    assert_eq!((code, error.as_str()), (0, ""));
    let [printed] = blocks(&text, "\nexpectation ")[..] else { panic!("one result stands there") };
    let (code, out, error) = altq(&["sim", path]);
    assert!(code == 0 && out.ends_with(printed), "{error}{out}");
    let share = |seed: u32| {
        let (_, json, error) = altq(&["sim", path, "--seed", &seed.to_string(), "--json"]);
        let result: Value = serde_json::from_str(&json).unwrap_or_else(|wrong| panic!("{wrong}: {error}"));
        100.0 * result["expectations"][0]["measured"].as_f64().unwrap()
    };
    let shares: Vec<f64> = (1..=11).map(share).collect();
    let (least, most) = shares.iter().fold((100.0_f64, 0.0_f64), |(least, most), x| (least.min(*x), most.max(*x)));
    let said = format!("With `--seed` 1 to 11 the share is {least:.1} to {most:.1} %.");
    assert!(text.contains(&said), "{said}");
}
