//! Cases and examples inside the program: they run where the source folder is not, and give the
//! same as the files.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("inside-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn altq(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    let done = command.args(args).current_dir(folder).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (done.status.code().unwrap_or(-1), text(done.stdout), text(done.stderr))
}

#[test]
fn a_case_runs_by_its_name_as_it_does_from_its_file() {
    let elsewhere = folder("runs");
    // One that is whole in itself, and one whose policy is a file beside it.
    for (name, path) in [("voice", "cases/voice.toml"), ("home", "examples/home/home.toml")] {
        let by_name = altq(&elsewhere, &["sim", name]);
        assert_eq!(by_name, altq(&tree(), &["sim", path]), "{name}");
        assert_eq!(by_name.0, 0, "{}", by_name.2);
        assert_eq!(by_name, altq(&elsewhere, &["sim", &format!("built-in:{path}")]), "{name}");
    }
    // The files and hashes are those of the source folder, and the case says where it came from.
    let (_, out, _) = altq(&elsewhere, &["sim", "home", "--json"]);
    let inside: serde_json::Value = serde_json::from_str(&out).unwrap();
    let (_, out, _) = altq(&tree(), &["sim", "examples/home/home.toml", "--json"]);
    let files: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(inside["made"]["files"][1]["file"], "built-in:examples/home/home.altq");
    for at in 0..2 {
        assert_eq!(inside["made"]["files"][at]["sha256"], files["made"]["files"][at]["sha256"]);
    }
    assert_eq!(inside["classes"], files["classes"]);
}

#[test]
fn a_file_wins_over_a_case_inside() {
    let here = folder("wins");
    std::fs::write(here.join("borrow"), "name = 1").unwrap();
    let (code, _, said) = altq(&here, &["sim", "borrow"]);
    assert!(code == 2 && said.contains("borrow:1:8: "), "{said}");
    // A folder is no case.
    std::fs::create_dir(here.join("meters")).unwrap();
    let (code, out, said) = altq(&here, &["sim", "meters", "--column", "no such column"]);
    assert!(code == 2 && said.contains("built-in:cases/meters.toml: --column"), "{out} {said}");
}

#[test]
fn an_unknown_name_is_neither_a_file_nor_inside() {
    let here = folder("unknown");
    for (name, hint) in [("borow", "did you mean `borrow`?"), ("quite another.toml", "`altq examples` lists them")] {
        let (code, _, said) = altq(&here, &["sim", name]);
        assert_eq!(code, 2);
        assert!(said.contains("No such file") && said.contains("inside altq") && said.contains(hint), "{said}");
    }
    let (code, _, said) = altq(&here, &["experiments", "list", "--cases", "nowhere"]);
    assert!(code == 1 && said.contains("nowhere: No such file") && said.contains("nor is it inside"), "{said}");
    let (code, _, said) = altq(&here, &["examples", "borow"]);
    assert!(code == 2 && said.contains("did you mean `borrow`?"), "{said}");
}

#[test]
fn experiments_find_the_published_cases_everywhere() {
    let here = folder("experiments");
    let (code, inside, said) = altq(&here, &["experiments", "list"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(inside, altq(&tree(), &["experiments", "list"]).1);
    let (code, out, said) = altq(&here, &["experiments", "run", "mtu-reset", "--out", "out"]);
    assert!(code == 0 && out.contains("mtu-reset"), "{out} {said}");
    // The text of EXPERIMENTS.md is inside as well.
    let document = std::fs::read_to_string(here.join("out/EXPERIMENTS.md")).unwrap();
    assert!(document.contains("[mtu-reset](mtu-reset.html)"), "{document}");
    let text = std::fs::read_to_string(tree().join("cases/published/EXPERIMENTS.in.md")).unwrap();
    assert!(document.starts_with(text.lines().next().unwrap()), "{document}");
    let (code, out, said) = altq(&here, &["experiments", "run", "mtu-reset", "--document", "E.md"]);
    assert!(code == 1 && out.is_empty() && said.contains("altq examples --out DIR"), "{said}");
}

#[test]
fn policies_inside_are_checked_and_converted() {
    let here = folder("policies");
    let path = "examples/office/office.altq";
    let (code, out, said) = altq(&here, &["check", path]);
    assert_eq!((code, &out), (0, &altq(&tree(), &["check", path]).1), "{said}");
    let (code, out, said) = altq(&here, &["convert", "examples/1997-10baset.cbq.conf"]);
    assert!(code == 0 && out.contains("link "), "{said}");
}

#[test]
fn examples_are_listed_printed_and_written() {
    let here = folder("written");
    let (code, list, _) = altq(&here, &["examples"]);
    assert_eq!(code, 0);
    assert!(list.lines().any(|line| line.split_whitespace().eq(["examples/home/home.toml", "home"])), "{list}");
    assert!(list.lines().any(|line| line == "examples/home/home.altq"), "{list}");
    // A page, a policy and a case.
    let (_, list, _) = altq(&here, &["examples", "examples/office"]);
    assert_eq!(list.lines().count(), 3, "{list}");
    let file = |path: &str| std::fs::read_to_string(tree().join(path)).unwrap();
    assert_eq!(altq(&here, &["examples", "borrow"]).1, file("cases/borrow.toml"));
    assert_eq!(altq(&here, &["examples", "examples/home/home.altq"]).1, file("examples/home/home.altq"));

    // A case brings the file of its policy, which lies in another folder.
    let (code, _, said) = altq(&here, &["examples", "allocation-atm", "--out", "mine"]);
    assert!(code == 0 && said.contains("2 files are in mine, 2 of them new"), "{said}");
    let written = |path: &str| std::fs::read_to_string(here.join("mine").join(path)).unwrap();
    for path in ["cases/published/allocation-atm.toml", "examples/1997-atm.cbq.conf"] {
        assert_eq!(written(path), file(path));
    }
    let (code, _, said) = altq(&here, &["check", "mine/cases/published/allocation-atm.toml"]);
    assert_eq!(code, 0, "{said}");
    // Once more nothing is new. What was changed stays as it is.
    let again = altq(&here, &["examples", "allocation-atm", "--out", "mine"]);
    assert!(again.0 == 0 && again.2.contains("0 of them new"), "{}", again.2);
    std::fs::write(here.join("mine/examples/1997-atm.cbq.conf"), "mine").unwrap();
    let (code, _, said) = altq(&here, &["examples", "--out", "mine"]);
    assert!(code == 5 && said.contains("1997-atm.cbq.conf") && said.contains("nothing is written"), "{said}");
    assert_eq!(written("examples/1997-atm.cbq.conf"), "mine");
    assert!(!here.join("mine/cases/borrow.toml").exists());
}
