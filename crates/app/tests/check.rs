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

/// 300 plans of three kinds below two sites, with rules of which 30 never decide.
fn plans() -> String {
    let (mut classes, mut rules) = (String::new(), String::new());
    for site in 0..2 {
        classes += &format!("class site-{site} {{ rate 400Mbit/s borrow\n");
        for plan in 0..150 {
            let rate = [1, 2, 4][plan % 3];
            classes += &format!("class plan-{site}-{plan} {{ rate {rate}Mbit/s borrow ceiling 100Mbit/s }}\n");
            rules += &format!("match dst 10.{site}.{plan}.0/24 -> plan-{site}-{plan}\n");
            if plan < 15 {
                rules += &format!("match dst 10.{site}.{plan}.7 -> plan-{site}-{plan}\n");
            }
        }
        classes += "}\n";
    }
    format!("link wan {{ rate 1Gbit/s scheduler cbq\n{classes}class rest {{ rate 1Mbit/s default }}\n{rules}}}\n")
}

#[test]
fn three_hundred_plans_fit_a_page() {
    let path = file("plans", "plans.altq", plans().as_bytes());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let lines = |text: &str, of: &str| text.lines().filter(|line| line.contains(of)).count();
    let output = altq(&["check", &path]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout);
    assert!(said.lines().count() < 50, "{said}");
    // Each kind once at each site, and how many are like it.
    for part in ["plan-0-0 ", "(49 more like plan-0-0)", "plan-1-2 ", "(49 more like plan-1-2)", "294 classes that"] {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
    assert!(!said.contains("  plan-0-3 "), "{said}");
    // Twenty of the thirty warnings, and how to get the others.
    let warnings = text(&output.stderr);
    assert_eq!(lines(&warnings, "this rule never decides"), 20);
    assert!(warnings.contains("and 10 more warnings: `altq check ") && warnings.contains(" --all` prints them"));

    let output = altq(&["check", &path, "--all"]);
    let said = text(&output.stdout);
    assert_eq!((lines(&said, "  plan-"), lines(&said, "more like")), (300, 0), "{said}");
    assert_eq!(lines(&text(&output.stderr), "this rule never decides"), 30);
    let report = json(&altq(&["check", &path, "--json"]));
    assert_eq!(report["links"][0]["classes"].as_array().map(Vec::len), Some(304));
    assert_eq!(report["diagnostics"].as_array().map(Vec::len), Some(30));
}

#[test]
fn a_class_is_shown_with_what_is_below_and_above_it() {
    let path = file("chosen", "plans.altq", plans().as_bytes());
    let tree = |names: &[&str]| -> Vec<String> {
        let args: Vec<&str> = names.iter().flat_map(|name| ["--class", *name]).collect();
        let output = altq(&[&["check", &path], &args[..]].concat());
        assert_eq!(output.status.code(), Some(0));
        let said = String::from_utf8(output.stdout).unwrap();
        let table = said.lines().skip_while(|line| !line.starts_with("  class ")).skip(1);
        let name = |line: &str| line.split_whitespace().next().unwrap().to_owned();
        table.take_while(|line| !line.is_empty()).map(name).collect()
    };
    assert_eq!(tree(&["plan-1-7"]), ["wan", "site-1", "plan-1-7"]);
    assert_eq!(tree(&["plan-0-?", "rest"]).len(), 1 + 1 + 10 + 1);
    assert_eq!(tree(&["site-0"]).len(), 1 + 1 + 150);
    assert_eq!(tree(&["wan/plan-1-14*"]).len(), 1 + 1 + 11);
    let output = altq(&["check", &path, "--class", "plan-1-777"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("is named \"plan-1-777\"; did you mean \"plan-1-7"), "{error}");
    assert_eq!(altq(&["check", &path, "--class", "rest", "--json"]).status.code(), Some(2));
}

/// An inner class with a ceiling and more leaves than its burst has packets.
#[test]
fn ceilings_above_many_leaves_get_advice() {
    let policy = |words: &str| {
        let leaves: String = (0..30).map(|n| format!("class a{n} {{ rate 500kbit/s borrow }}\n")).collect();
        format!(
            "link l {{ rate 100Mbit/s scheduler cbq\nclass a {{ share 33% borrow {words}\n{leaves}}}\n\
             class b {{ share 33% borrow ceiling 40Mbit/s default }}\n}}\n"
        )
    };
    let advice = |words: &str| {
        let path = file("ceilings", "policy.altq", policy(words).as_bytes());
        let report = json(&altq(&["check", &path, "--json"]));
        let classes = report["links"][0]["classes"].as_array().unwrap();
        let noted: Vec<(&str, &str)> =
            classes.iter().filter_map(|class| Some((class["name"].as_str()?, class["note"].as_str()?))).collect();
        noted.iter().map(|(name, note)| format!("{name}: {note}")).collect::<Vec<_>>()
    };
    let said = advice("ceiling 40Mbit/s");
    assert!(said.len() == 1 && said[0].starts_with("a: maxburst 30: a packet for each of the 30 leaves"), "{said:?}");
    // Packets half as long as the MTU count half.
    let said = advice("ceiling 40Mbit/s maxburst 30 packetsize 750");
    assert!(said.len() == 1 && said[0].starts_with("a: maxburst 60: "), "{said:?}");
    for words in ["ceiling 40Mbit/s maxburst 30", "", "ceiling 100Mbit/s"] {
        assert_eq!(advice(words), [""; 0], "{words}");
    }
}

/// The bursts of HTB that are too small stand below the table, as docs/schedulers/htb.md shows.
#[test]
fn bursts_that_are_too_small_get_advice_below_the_table() {
    let said = |words: &str| {
        let text = format!("link l {{ rate 1Gbit/s scheduler htb class bulk {{ rate 160Mbit/s {words} default }} }}\n");
        let output = altq(&["check", &file("bursts", "policy.altq", text.as_bytes())]);
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    // By hand: 160 Mbit/s bring 20000 bytes in a millisecond. With the default burst of 1600 bytes
    // two packets of 1500 pass in each, which are 24 Mbit/s.
    let advice = "\n  better with\n    bulk: burst 20000bytes  cburst 20000bytes: 1600 bytes let 24Mbit/s pass if it \
                  is served 1ms late, again and again\n";
    let table = said("");
    assert!(table.contains(advice), "{table}");
    let table = said("burst 20000 cburst 20000");
    assert!(!table.contains("better with"), "{table}");
}

/// An option that is nearly right is answered with the one that may have been meant.
#[test]
fn options_that_are_nearly_right() {
    for (args, meant) in [
        (["check", "--jsn"], "--json"),
        (["convert", "--langage"], "--language"),
        (["sim", "--plt"], "--plot"),
        (["run", "--intervall"], "--interval"),
        (["report", "--titel"], "--title"),
    ] {
        let output = altq(&args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{args:?}: {said}");
        assert!(said.contains(&format!("a similar argument exists: '{meant}'")), "{args:?}: {said}");
    }
}
