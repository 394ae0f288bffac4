//! `altq experiments`: it finds cases, runs them and writes their results, and keeps what was
//! finished when it is interrupted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.arg("experiments").args(args).current_dir(folder).stdin(Stdio::null());
    command
}

fn altq(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command(folder, args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

/// A case whose class gets 20 % of the link, and whose expectation asks for `expected`.
fn case(name: &str, seconds: u32, expected: &str) -> String {
    format!(
        "name = '{name}'\ndescription = 'd'\nduration = '{seconds}s'\n\
         policy = '''link wan {{ rate 10Mbit/s scheduler cbq\n class x {{ share 20% }}\n \
         class y {{ share 80% default }}\n match dport 7 -> x }}'''\nhosts = [{{ name = 'a' }}, {{ name = 'b' }}]\n\
         links = [{{ name = 'wan', from = 'a', to = 'b', policy = 'wan' }}]\n\
         [[flows]]\nname = 'f'\nkind = 'udp'\nfrom = 'a'\nto = 'b'\ndport = 7\nsize = 1500\nrate = '5Mbit/s'\n\
         [[expect]]\nname = 'share'\nmeasure = 'share'\nclass = 'x'\nexpected = '{expected}'\ntolerance = '1%'\n\
         source = 'asked for'\n"
    )
}

#[test]
fn all_or_some_and_what_went_before_stays() {
    let folder = folder("experiments");
    let cases = folder.join("cases/published/deeper");
    std::fs::create_dir_all(&cases).unwrap();
    std::fs::write(cases.join("one.toml"), case("one", 2, "20%")).unwrap();
    std::fs::write(folder.join("cases/published/two.toml"), case("two", 2, "40%")).unwrap();
    let text = "# E\n\n{{summary}}\nmeasured {{one/share}}, {{no/such/thing}}\n\n{{failures}}";
    std::fs::write(folder.join("cases/published/EXPERIMENTS.in.md"), text).unwrap();

    let (code, out, _) = altq(&folder, &["list"]);
    assert_eq!(code, 0);
    assert!(out.lines().count() == 3 && out.contains("\none ") && out.contains("\ntwo "), "{out}");
    let (_, out, _) = altq(&folder, &["list", "wo", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (list["schema"].as_str(), list["cases"][0]["name"].as_str()),
        (Some("altq.experiments_list/1"), Some("two"))
    );

    // One case fails: the exit code is 3, and everything is written.
    let (code, out, error) = altq(&folder, &["run", "--out", "out"]);
    assert_eq!(code, 3, "{error}");
    assert!(
        out.contains("PASS     sim  one: 1 of 1 promises") && out.contains("FAIL     sim  two: 0 of 1 promises"),
        "{out}"
    );
    let read = |name: &str| std::fs::read_to_string(folder.join("out").join(name)).unwrap();
    for name in ["one.html", "two.html", "index.html"] {
        assert!(read(name).contains("</html>"), "{name}");
    }
    let document = read("EXPERIMENTS.md");
    for text in [
        "| [one](one.html) | sim |",
        "| **FAIL** |",
        "measured 20",
        " %, *not measured in this run*",
        "- `share` (sim): 20",
        " % where 40 % was expected (asked for)",
    ] {
        assert!(document.contains(text), "{text} in\n{document}");
    }
    let json: serde_json::Value = serde_json::from_str(&read("one.sim.json")).unwrap();
    assert_eq!(json["made"]["command"], "altq sim cases/published/deeper/one.toml --json");
    assert!(json["series"][0]["classes"][0]["bytes"].is_array());

    // Only one case runs: the other's result stays in the summary, unless its case has changed
    // since.
    let (code, _, _) = altq(&folder, &["run", "one", "--out", "out", "--document", "E.md"]);
    assert_eq!(code, 0);
    // EXPERIMENTS.md in the repository links to the case files, because the pages are not in the
    // repository.
    let document = std::fs::read_to_string(folder.join("E.md")).unwrap();
    assert!(document.contains("| [one](cases/published/deeper/one.toml) | sim |"), "{document}");
    assert_eq!(
        document.replace("cases/published/deeper/one.toml", "one.html").replace("cases/published/two.toml", "two.html"),
        read("EXPERIMENTS.md")
    );
    assert!(read("EXPERIMENTS.md").contains("| [two](two.html) |"));
    // Both results are valid, so nothing is missing, although one broke its promise; what is not
    // valid is.
    let (code, out, _) = altq(&folder, &["run", "--missing", "--out", "out"]);
    assert_eq!((code, out.as_str()), (0, ""), "{out}");
    let invalid = read("one.sim.json").replace("\"valid\":true", "\"valid\":false");
    std::fs::write(folder.join("out/one.sim.json"), invalid).unwrap();
    let (code, out, _) = altq(&folder, &["run", "--missing", "--out", "out"]);
    assert!(code == 0 && out.contains("sim  one: 1 of 1") && !out.contains("two"), "{out}");
    std::fs::write(folder.join("cases/published/two.toml"), case("two", 1, "40%")).unwrap();
    let (_, _, error) = altq(&folder, &["run", "one", "--out", "out"]);
    assert!(error.contains("two.sim.json: left out: it was made from another version of the case"), "{error}");
    assert!(!read("EXPERIMENTS.md").contains("two"));
}

/// `docs/experiments.sh` writes the project's EXPERIMENTS.md.
/// A Poisson source of 4 Mbit/s sends some 1333 packets in 4 s, more or less by the root of that,
/// 2.7 %. The promise is as narrow as that spread.
#[test]
fn the_mean_of_several_seeds_is_judged() {
    let folder = folder("experiments-seeds");
    let cases = folder.join("cases/published");
    std::fs::create_dir_all(&cases).unwrap();
    let random = case("random", 4, "4Mbit/s")
        .replace("kind = 'udp'", "kind = 'udp'\nshape = 'poisson'")
        .replace("rate = '5Mbit/s'", "rate = '4Mbit/s'")
        .replace("class x { share 20% }", "class x { share 90% }")
        .replace("share 80% default", "share 10% default")
        .replace("measure = 'share'", "measure = 'rate'")
        .replace("tolerance = '1%'", "tolerance = '100kbit/s'");
    std::fs::write(cases.join("random.toml"), random).unwrap();
    std::fs::write(cases.join("EXPERIMENTS.in.md"), "{{summary}}\n\n{{seeds}}\n").unwrap();
    let (code, out, error) = altq(&folder, &["run", "--samples", "11", "--seed", "1", "--out", "out", "--json"]);
    assert!(code == 0 || code == 3, "{error}");
    let summary: serde_json::Value = serde_json::from_str(&out).unwrap();
    let fails: Vec<u64> = summary["results"][0]["seeds_that_fail"]
        .as_array()
        .unwrap()
        .iter()
        .map(|seed| seed["seed"].as_u64().unwrap())
        .collect();
    let file = folder.join("out/random.sim.json");
    let result: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let outcome = &result["expectations"][0];
    let samples: Vec<f64> = outcome["samples"].as_array().unwrap().iter().map(|one| one.as_f64().unwrap()).collect();
    assert_eq!(result["seeds"], serde_json::json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]));
    let mean = samples.iter().sum::<f64>() / 11.0;
    assert!((outcome["measured"].as_f64().unwrap() / mean - 1.0).abs() < 1e-9);
    let off = |rate: &f64| (rate - 4e6).abs() > 100e3;
    let expected: Vec<u64> = samples.iter().zip(1..).filter(|(rate, _)| off(rate)).map(|(_, seed)| seed).collect();
    assert_eq!(fails, expected);
    assert!(!fails.is_empty() && fails.len() < 11, "{samples:?}");
    assert_eq!(code == 0, !off(&mean));
    // A seed alone is what that seed is among the eleven.
    let (_, _, error) = altq(&folder, &["run", "--seed", "7", "--out", "alone"]);
    let file = folder.join("alone/random.sim.json");
    let alone: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).expect(&error)).unwrap();
    assert_eq!(alone["expectations"][0]["measured"].as_f64(), Some(samples[6]));
    // The document has the interval and the seeds.
    let text = std::fs::read_to_string(folder.join("out/EXPERIMENTS.md")).unwrap();
    let list: Vec<String> = fails.iter().map(u64::to_string).collect();
    assert!(text.contains(&format!("{} of 11 ({})", fails.len(), list.join(", "))), "{text}");
    let (code, _, error) = altq(&folder, &["run", "--samples", "3", "--world", "lab"]);
    assert!(code == 2 && error.contains("--samples"), "{code} {error}");
}

#[test]
fn experiments_md_has_every_published_case_and_no_other() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(tree.join("EXPERIMENTS.md")).unwrap();
    let mut links: Vec<&str> =
        text.split("](cases/published/").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    links.retain(|link| !link.is_empty());
    for link in &links {
        assert!(
            tree.join("cases/published").join(link).is_file(),
            "EXPERIMENTS.md leads to {link}, which is not there"
        );
    }
    for entry in std::fs::read_dir(tree.join("cases/published")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            !name.ends_with(".toml") || links.contains(&name.as_str()),
            "{name} is not in EXPERIMENTS.md: run docs/experiments.sh"
        );
    }
}

#[test]
fn what_is_not_there_or_wrong_is_said() {
    let folder = folder("experiments-wrong");
    let (code, _, error) = altq(&folder, &["run", "--cases", "nowhere"]);
    assert!(code == 1 && error.contains("nowhere: No such file"), "{code} {error}");
    std::fs::create_dir_all(folder.join("empty")).unwrap();
    let (code, _, error) = altq(&folder, &["list", "--cases", "empty"]);
    assert!(code == 2 && error.contains("there is no case (a .toml file, docs/cases.md) in empty"), "{error}");
    std::fs::create_dir_all(folder.join("c")).unwrap();
    std::fs::write(folder.join("c/one.toml"), case("one", 1, "20%")).unwrap();
    let (code, out, error) = altq(&folder, &["run", "--cases", "c", "--document", "no/such/E.md"]);
    assert!(code == 1 && error.contains("no/such/E.md cannot be written") && out.is_empty(), "{code} {error}");
    let (code, _, error) = altq(&folder, &["run", "three", "--cases", "c"]);
    assert!(code == 2 && error.contains("no case has three in its name; cases: one"), "{error}");
    std::fs::write(folder.join("c/bad.toml"), case("bad", 1, "20%").replace("'udp'", "'upd'")).unwrap();
    let (code, _, error) = altq(&folder, &["run", "--cases", "c"]);
    assert!(code == 2 && error.contains("c/bad.toml:12:8: "), "{error}");
    std::fs::write(folder.join("c/bad.toml"), case("one", 1, "20%")).unwrap();
    let (code, _, error) = altq(&folder, &["run", "--cases", "c"]);
    assert!(code == 2 && error.contains("are both called one"), "{error}");
}

#[test]
fn an_interrupt_keeps_what_was_finished() {
    let folder = folder("experiments-interrupt");
    std::fs::create_dir_all(folder.join("c")).unwrap();
    std::fs::write(folder.join("c/short.toml"), case("short", 1, "20%")).unwrap();
    // Hours of virtual time, which the simulator runs some thousand times faster than real time.
    std::fs::write(folder.join("c/long.toml"), case("long", 360_000, "20%")).unwrap();
    let mut child = command(&folder, &["run", "--cases", "c", "--out", "out", "--jobs", "2"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !folder.join("out/short.html").exists() {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "the short case did not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted; what was finished of 2 is in out"), "{said}");
    let document = std::fs::read_to_string(folder.join("out/EXPERIMENTS.md")).unwrap();
    assert!(document.contains("| [short](short.html) | sim |") && !document.contains("long"), "{document}");
    assert!(folder.join("out/short.sim.json").exists() && folder.join("out/index.html").exists());
}

#[test]
fn what_the_lab_does_not_have_is_skipped_with_a_reason() {
    let folder = folder("experiments-lab");
    std::fs::create_dir_all(folder.join("c")).unwrap();
    std::fs::write(folder.join("c/high.toml"), case("high", 2, "20%").replace("size =", "high = true\nsize ="))
        .unwrap();
    let only = "only = { world = 'sim', reason = 'it takes a year' }\nduration";
    std::fs::write(folder.join("c/year.toml"), case("year", 2, "20%").replace("duration", only)).unwrap();
    let (code, out, error) = altq(&folder, &["run", "--cases", "c", "--out", "out", "--world", "lab"]);
    // Nothing could run, so the command does not succeed. Without root the lab itself is not
    // available.
    let possible = !error.contains("--world sim needs none of it");
    assert!(code == 7 || code == 6 && !possible, "{code} {out}{error}");
    if !error.contains("--world sim needs none of it") {
        assert!(
            out.contains("SKIP     lab  high: the lab's queues see packets only")
                && out.contains("SKIP     lab  year: it takes a year\n"),
            "{out}"
        );
        assert!(error.contains("2 SKIP"), "{error}");
        let document = std::fs::read_to_string(folder.join("out/EXPERIMENTS.md")).unwrap();
        assert!(document.contains("| [year](year.html) | lab | | | | | | not run: it takes a year |"), "{document}");
    }
    let (code, out, _) = altq(&folder, &["list", "--cases", "c", "--lab", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, list["cases"][1]["lab"]["seconds"].as_u64()), (0, Some(0)), "{out}");
    // In virtual time both run. With both worlds, what the lab skips does not change that.
    let (code, out, _) = altq(&folder, &["run", "--cases", "c", "--out", "out"]);
    assert!(code == 0 && out.matches("PASS     sim").count() == 2, "{out}");
}

/// A table whose second row runs longer than its first, in two columns, one of which has the
/// expectation.
fn table(name: &str) -> String {
    let text = case(name, 2, "20%").replace("duration = '2s'", "duration = '${seconds}'");
    let (head, rest) = text.split_once("policy = '''").unwrap();
    let (policy, rest) = rest.split_once("'''\n").unwrap();
    let rows =
        "rows = [{ name = 'short', values = { seconds = '1s' } }, { name = 'long', values = { seconds = '2s' } }]\n";
    let columns = [("fifth", policy.to_owned()), ("half", policy.replace("20%", "50%").replace("80%", "50%"))];
    let columns = columns.map(|(name, policy)| format!("[[columns]]\nname = '{name}'\npolicy = '''{policy}'''\n"));
    format!(
        "{head}{}column = 'fifth'\n",
        rest.replacen("[[flows]]", &format!("{rows}{}[[flows]]", columns.concat()), 1)
    )
}

/// How many runs of the lab a process has under way: each has a thread `run N`. Threads that this
/// one starts without a name are named as it is.
fn runs_of(process: u32) -> usize {
    // The process may end meanwhile, and its threads do.
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return 0 };
    let names = threads.flatten().map(|thread| std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default());
    names.filter(|name| name.starts_with("run ")).collect::<BTreeSet<_>>().len()
}

#[test]
fn runs_of_the_lab_go_side_by_side() {
    let folder = folder("experiments-side-by-side");
    std::fs::create_dir_all(folder.join("c")).unwrap();
    for (name, text) in
        [("table", table("table")), ("single", case("single", 3, "20%")), ("other", case("other", 3, "20%"))]
    {
        // There is no warm-up, so the time before the first reading makes an error of some percent
        // of a second.
        std::fs::write(folder.join(format!("c/{name}.toml")), text.replace("tolerance = '1%'", "tolerance = '10%'"))
            .unwrap();
    }
    let (code, out, error) = altq(&folder, &["list", "--cases", "c", "--lab", "--json"]);
    assert_eq!(code, 0, "{error}");
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    let whole = |name: &str| list["lab"][name].as_u64().unwrap();
    // 2 · (1 + 2) + 3 + 3 seconds and the time for making namespaces. Side by side it takes as long
    // as the longest run, because 30 Mbit/s together are little for any host.
    assert!((12..=15).contains(&whole("seconds")), "{out}");
    assert_eq!(whole("side_by_side_seconds"), 4, "{out}");

    let mut command = command(&folder, &["run", "--cases", "c", "--out", "out", "--world", "lab"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut beside = 0;
    while child.try_wait().unwrap().is_none() {
        beside = beside.max(runs_of(child.id()));
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let code = output.status.code().unwrap_or(-1);
    if matches!(code, 6 | 7) && error.contains("--world sim needs none of it") {
        return eprintln!("SKIPPED: {error}");
    }
    let read = |case: &str| -> serde_json::Value {
        let text = std::fs::read_to_string(folder.join(format!("out/{case}.lab.json")))
            .unwrap_or_else(|_| panic!("{out}{error}"));
        serde_json::from_str(&text).unwrap()
    };
    let results = ["table", "single", "other"].map(read);
    if let Some(bad) = results.iter().find(|result| result["valid"] != true) {
        return eprintln!("SKIPPED: the host could not keep time: {}", bad["notes"]);
    }
    // How long it took says nothing: runs that could not be trusted ran again, one at a time.
    assert!(beside >= 3, "at most {beside} runs went at a time");
    assert_eq!(code, 0, "{out}{error}");
    // The rows stand in the case's order, although the long runs began first.
    let table = &results[0];
    let places: Vec<String> =
        table["flows"].as_array().unwrap().iter().map(|flow| format!("{} {}", flow["row"], flow["column"])).collect();
    assert_eq!(places, [r#""short" "fifth""#, r#""short" "half""#, r#""long" "fifth""#, r#""long" "half""#]);
    let names: Vec<&str> =
        table["expectations"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["table/fifth/short/share", "table/fifth/long/share"]);
    assert_eq!(table["made"]["command"], "altq lab c/table.toml --json");
    // The cases run in virtual time as well; then the document states how much the lab differs from
    // that.
    let (_, _, error) = altq(&folder, &["run", "--cases", "c", "--out", "out"]);
    let document = std::fs::read_to_string(folder.join("out/EXPERIMENTS.md")).unwrap();
    let row =
        document.lines().find(|line| line.starts_with("| table | 4 | ")).unwrap_or_else(|| panic!("{document}{error}"));
    assert!(row.contains(" % (") && row.contains(", x) | 2 of 2 | PASS |"), "{row}");
}

/// The number of network namespaces that a process holds by descriptor.
fn namespaces(process: u32) -> usize {
    let Ok(list) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return 0 };
    let held = list.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    held.filter(|target| target.to_string_lossy().starts_with("net:[")).count()
}

#[test]
fn an_interrupt_ends_the_lab() {
    let folder = folder("experiments-lab-interrupt");
    std::fs::create_dir_all(folder.join("c")).unwrap();
    std::fs::write(folder.join("c/long.toml"), case("long", 60, "20%")).unwrap();
    std::fs::write(folder.join("c/longer.toml"), case("longer", 90, "20%")).unwrap();
    let args = ["run", "--cases", "c", "--out", "out", "--world", "lab", "--lab-jobs", "2"];
    let mut child = command(&folder, &args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    // Two runs of the lab, each with three namespaces.
    while namespaces(child.id()) < 6 {
        if child.try_wait().unwrap().is_some() {
            let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
            assert!(said.contains("--world sim needs none of it"), "{said}");
            return eprintln!("SKIPPED: {said}");
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("two runs did not begin");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let interrupted = Instant::now();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted; what was finished of 2 is in out"), "{said}");
    assert!(interrupted.elapsed() < Duration::from_secs(20), "it went on for {:?}", interrupted.elapsed());
    assert!(!folder.join("out/long.lab.json").exists());
}
