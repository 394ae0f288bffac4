//! `altq check` and `altq convert` from outside: exit codes, streams, JSON.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn altq(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_altq")).args(args).env_remove("NO_COLOR").output().expect("altq runs")
}

/// A file in a folder of this test's own.
fn file(test: &str, name: &str, text: &[u8]) -> String {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&directory).expect("a directory");
    let path = directory.join(name);
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("a name").to_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON on standard output")
}

const GOOD: &str = "link wan {\n  rate 10Mbit/s\n  scheduler cbq\n  \
    class voice { share 5% priority 7 packetsize 160 queue drop_tail { limit 10packets } }\n\
    class agency { share 60% borrow  class web { share 40% borrow ceiling 8Mbit/s }  \
    class bulk { share 20% borrow } }\n\
    class rest { share 35% borrow default }\n}\n";

#[test]
fn json_of_a_policy() {
    let path = file("check", "good.altq", GOOD.as_bytes());
    let output = altq(&["check", &path, "--json"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
    let report = json(&output);
    assert_eq!((report["schema"].as_str(), report["ok"].as_bool()), (Some("altq.check/1"), Some(true)));
    let link = &report["links"][0];
    assert_eq!((link["name"].as_str(), link["rate_bit_s"].as_u64()), (Some("wan"), Some(10_000_000)));
    let class = |name: &str| link["classes"].as_array().unwrap().iter().find(|class| class["name"] == name).unwrap();
    let figures = |name: &str| {
        let class = class(name);
        (class["parent"].as_str(), class["guaranteed_bit_s"].as_u64(), class["ceiling_bit_s"].as_u64())
    };
    assert_eq!(figures("voice"), (Some("wan"), Some(500_000), Some(500_000)));
    assert_eq!(figures("agency"), (Some("wan"), Some(6_000_000), Some(10_000_000)));
    assert_eq!(figures("web"), (Some("agency"), Some(4_000_000), Some(8_000_000)));
    assert_eq!(figures("wan"), (None, Some(10_000_000), Some(10_000_000)));
    // docs/reference/cbq.md rule 9 by hand: two packets of 160 bytes and one of 1500 at 10 Mbit/s;
    // then 11 packets of 1500 at 500 kbit/s.
    let bound = &class("voice")["delay_bound_ns"];
    assert_eq!(bound["conforming"].as_u64(), Some(1_456_000));
    assert_eq!(bound["queue_full"].as_u64(), Some(1_456_000 + 264_000_000));
    assert!(bound["assumes"].as_str().unwrap().contains("320 bytes"));
    let inner = &class("agency")["delay_bound_ns"];
    assert!(inner["conforming"].is_null() && inner["queue_full"].is_null() && inner["assumes"].is_string());
    assert_eq!(class("voice")["scheduler"], "cbq");
}

#[test]
fn json_of_errors() {
    let path = file("check", "bad.altq", b"link wan {\n  rate 1mbps\n  scheduler cbq\n  class a { shar 5% }\n}\n");
    let output = altq(&["check", &path, "--json"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stderr.is_empty());
    let report = json(&output);
    assert_eq!(report["ok"], false);
    assert_eq!(report["links"].as_array().map(Vec::len), Some(0));
    let places: Vec<(&str, &str, u64, u64)> = report["diagnostics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| {
            assert_eq!(d["file"].as_str(), Some(path.as_str()));
            let text = |key: &str| d[key].as_str().unwrap();
            (text("severity"), text("code"), d["line"].as_u64().unwrap(), d["column"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(places, [("error", "bad-value", 2, 8), ("error", "unknown-word", 4, 13)]);
}

#[test]
fn errors_for_people() {
    let path = file(
        "check",
        "people.altq",
        b"link wan {\n  rate 10Mbit/s\n  scheduler cbq\n  class a { share 60% }\n  class b { share 60% }\n}\n",
    );
    let output = altq(&["check", &path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).unwrap();
    // Not on a terminal, so there are no colours. The error has place, caret, arithmetic and a way
    // out.
    assert!(!said.contains('\u{1b}'), "{said}");
    for part in ["people.altq:5:13", "^^^^^", "a 6Mbit/s + b 6Mbit/s", "12Mbit/s of the link's 10Mbit/s", "overcommit"]
    {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
}

#[test]
fn the_report_for_people() {
    let path = file("check", "report.altq", GOOD.as_bytes());
    let output = altq(&["check", &path]);
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stdout).unwrap();
    for part in [
        "estimator exact",
        "overhead   none",
        "default    rest",
        "7: voice; 1: web bulk rest",
        "drop_tail 10 packets",
        "1.46 ms",
    ] {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
    assert!(said.lines().any(|line| line.contains("without `borrow`") && line.ends_with(": voice")), "{said}");
}

#[test]
fn what_is_no_policy() {
    for (name, text, code) in [
        ("not-text.altq", &b"link \xff"[..], "not-text"),
        ("empty.altq", b"", "no-link"),
        ("x.tc", b"tc qdisc add dev eth0 root cbq\n", "language-not-built"),
        ("pf.conf", b"altq on em0 cbq bandwidth 20Mb queue { a }\n", "language-not-built"),
        ("no-name", b"link", "unknown-language"),
    ] {
        let output = altq(&["check", &file("what", name, text), "--json"]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert_eq!(json(&output)["diagnostics"][0]["code"], code, "{name}");
    }
    let output = altq(&["check", "/nowhere/at-all.altq", "--json"]);
    assert_eq!(
        (output.status.code(), json(&output)["diagnostics"][0]["code"].as_str()),
        (Some(2), Some("cannot-read"))
    );
    // `--language` has precedence over the file's name.
    let path = file("what", "native.txt", GOOD.as_bytes());
    assert_eq!(altq(&["check", &path, "--language", "native"]).status.code(), Some(0));
    assert_eq!(altq(&["check", &path, "--language", "klingon"]).status.code(), Some(2));
}

#[test]
fn includes_are_found_beside_the_file() {
    file("include/sites", "a.altq", b"link a { rate 1Mbit/s scheduler cbq class x { share 5% default } }\n");
    file("include/sites", "b.altq", b"link b { rate 1Mbit/s scheduler cbq class x { shar 5% default } }\n");
    let path = file("include", "main.altq", b"include \"sites/*.altq\"\n");
    let output = altq(&["check", &path, "--json"]);
    let report = json(&output);
    assert_eq!(report["diagnostics"][0]["code"], "unknown-word");
    assert!(report["diagnostics"][0]["file"].as_str().unwrap().ends_with("sites/b.altq"));
    file("include/sites", "b.altq", b"link b { rate 1Mbit/s scheduler cbq class x { share 5% default } }\n");
    let report = json(&altq(&["check", &path, "--json"]));
    let names: Vec<&str> =
        report["links"].as_array().unwrap().iter().map(|link| link["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b"]);
    file("include/sites", "c.altq", b"include \"../main.altq\"\n");
    assert_eq!(json(&altq(&["check", &path, "--json"]))["diagnostics"][0]["code"], "include-cycle");
    std::fs::remove_file(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("include/sites/c.altq")).unwrap();
}

#[test]
fn convert_prints_what_check_takes() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/1997-100baset.cbq.conf");
    let output = altq(&["convert", examples, "--to", "native"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stderr).unwrap().contains("not carried over: the name `root_class`"));
    let path = file("convert", "converted.altq", &output.stdout);
    let report = json(&altq(&["check", &path, "--json"]));
    assert_eq!(report["ok"], true);
    // 96 per cent: 98 minus the control class's 2.
    let rates: Vec<u64> = report["links"][0]["classes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["guaranteed_bit_s"].as_u64().unwrap())
        .collect();
    assert_eq!(
        rates.iter().collect::<std::collections::BTreeSet<_>>(),
        [2_000_000, 10_000_000, 96_000_000, 100_000_000].iter().collect()
    );
}

/// What `altq run` would refuse by the policy alone is a warning, with its place.
#[test]
fn devices_that_exclude_each_other_are_a_warning() {
    let link = |name: &str, device: &str| {
        format!("link {name} {{ device {device}  rate 1Mbit/s  scheduler fifo  class all {{ default }} }}\n")
    };
    for (devices, line) in [(["eth0", "eth0 ingress"], None), (["bridge eth0 eth1", "eth1"], Some(2))] {
        let text = devices.iter().zip(["one", "two"]).map(|(device, name)| link(name, device)).collect::<String>();
        let path = file("devices", "policy.altq", text.as_bytes());
        let output = altq(&["check", &path, "--json"]);
        assert_eq!(output.status.code(), Some(0));
        let report = json(&output);
        let found = report["diagnostics"].as_array().unwrap().iter().find(|found| found["code"] == "refused-by-run");
        assert_eq!(found.map(|found| found["line"].as_u64().unwrap()), line, "{report}");
        if let Some(found) = found {
            assert_eq!((found["severity"].as_str(), found["column"].as_u64()), (Some("warning"), Some(12)), "{found}");
        }
    }
}
