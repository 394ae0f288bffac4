//! `altq lab` on this host: it runs every case of cases/lab and compares it with virtual time,
//! looks for what a run leaves behind, and reads what is printed where the lab cannot run.
//!
//! These tests run in real time on a host that others use too. A run whose result is not valid, or
//! that misses a figure, is repeated. A test is skipped with a message if no run was valid, and
//! fails if valid runs missed their figures each time.

mod runs;

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use altq_dataplane::netns::Namespace;
use runs::{MISSES, TAKEN, TRIES, Ticks, lacking, name, run_alone, run_side_by_side};

/// Lets one lab run at a time, because the tests share two processors.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn altq() -> Command {
    Command::new(env!("CARGO_BIN_EXE_altq"))
}

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/lab")
}

fn write_case(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("altq-lab-{}-{name}.toml", std::process::id()));
    fs::write(&path, text).unwrap();
    // Other users must be able to read the file, whatever the umask is.
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    path
}

/// A case of one TCP flow over a shaped link.
fn case(duration: &str, policy: &str) -> String {
    format!(
        r#"
name = "test"
description = "a test"
duration = "{duration}"
policy = '''
{policy}
'''
hosts = [{{ name = "a" }}, {{ name = "b" }}]
links = [{{ name = "wire", from = "a", to = "b", policy = "wan" }}]
flows = [
    {{ name = "bulk", kind = "tcp_bulk", from = "a", to = "b", dport = 80 }},
    {{ name = "talk", kind = "tcp_rr", from = "a", to = "b", dport = 81 }},
    {{ name = "datagrams", kind = "udp", size = 500, rate = "1Mbit/s", from = "a", to = "b", dport = 82 }},
]
"#
    )
}

const POLICY: &str = "link wan { rate 20Mbit/s  scheduler cbq  class all { share 100%  default } }";

/// Runs the same file in virtual time. The rate of a class that has at least 5 % of the link's may
/// differ by 5 %; smaller rates depend on how fast this host answers requests. Returns the first
/// difference.
fn apart(path: &Path, lab: &serde_json::Value) -> Option<String> {
    let output = altq().args(["sim", "--json"]).arg(path).output().unwrap();
    let sim: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let rows = |result: &serde_json::Value| {
        let row = |row: &serde_json::Value| {
            let name = ["column", "link", "name"].map(|key| row[key].to_string());
            (name, row["rate_bit_s"].as_f64().unwrap())
        };
        result["classes"].as_array().unwrap().iter().map(row).collect::<Vec<_>>()
    };
    let (lab, sim) = (rows(lab), rows(&sim));
    let link = |of: &String| {
        let own = sim.iter().filter(|([_, link, _], _)| link == of);
        own.map(|(_, rate)| *rate).fold(0.0, f64::max)
    };
    let large = sim.iter().filter(|([_, of, _], rate)| *rate >= 0.05 * link(of));
    let other = |(name, rate): &([String; 3], f64)| {
        let measured = lab.iter().find(|(own, _)| own == name).map_or(0.0, |(_, rate)| *rate);
        ((measured / rate - 1.0).abs() > 0.05)
            .then(|| format!("{name:?}: {measured} in the lab, {rate} in the simulator"))
    };
    large.filter_map(other).next()
}

/// The flent file of a run has a time axis, and the class sent packets.
#[test]
fn a_run_goes_to_flent() {
    use std::io::Read;
    let _alone = alone();
    let path = write_case("flent", &case("2s", POLICY));
    let file = path.with_extension("flent.gz");
    for (test, series) in [("tcp_nup", "TCP upload::1"), ("qdisc-stats", "qdisc-stats::delay")] {
        let output =
            altq().arg("lab").arg(&path).arg("--flent").arg(&file).args(["--flent-test", test]).output().unwrap();
        if let Some(reason) = lacking(&output) {
            return eprintln!("SKIPPED: {reason}");
        }
        assert!(matches!(output.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&output.stderr));
        let (bytes, mut text) = (fs::read(&file).unwrap(), String::new());
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
        let written: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(written["metadata"]["NAME"], test);
        assert_ne!(written["metadata"]["TIME"], "1970-01-01T00:00:00.000000Z", "it ran now");
        let (axis, values) = (written["x_values"].as_array().unwrap(), written["results"][series].as_array().unwrap());
        assert!(
            axis.len() > 5 && values.len() == axis.len() && values.iter().any(|v| v.as_f64() > Some(0.0)),
            "{series}: {values:?}"
        );
    }
    fs::remove_file(&path).unwrap();
    fs::remove_file(&file).unwrap();
}

/// A class of a tree has the traffic, and the others have none. The flow sends a datagram a
/// millisecond, each of which is on the link for 100 ms.
const TABLE: &str = r#"
name = "table"
description = "a test"
duration = "1s"
policy = '''
link wan {
    rate 20Mbit/s
    scheduler cbq
    class web { share 60% borrow
        class fast { share 40% borrow default }
        class slow { share 20% borrow }
    }
    class rest { share 40% borrow }
    match dport 90 -> slow
    match dport 91 -> rest
}
'''
hosts = [{ name = "a" }, { name = "b" }]
links = [{ name = "wire", from = "a", to = "b", policy = "wan", delay = "100ms" }]
flows = [{ name = "f", kind = "udp", size = 500, rate = "4Mbit/s", from = "a", to = "b", dport = 82 }]
"#;

/// The tables are those of `altq sim`: a tree of classes of which one may choose, and what is under
/// way at the end.
#[test]
fn the_tables_are_those_of_the_simulator() {
    let _one = alone();
    let path = write_case("table", TABLE);
    let run = |args: &[&str]| altq().arg("lab").arg(&path).args(args).output().unwrap();
    // The first words from the table of classes on, with the spaces before them.
    let names = |text: &str| -> Vec<String> {
        let name = |line: &str| {
            let indent = line.len() - line.trim_start().len();
            format!("{:indent$}{}", "", line.split_whitespace().next().unwrap_or(""))
        };
        text.lines().skip_while(|line| !line.starts_with("class ")).map(name).collect()
    };
    let whole = ["class", "wan", "  web", "    fast", "    slow", "  rest", "", "flow", "f"];
    let slow = ["class", "wan", "  web", "    slow", "3"];
    let active = ["class", "wan", "  web", "    fast", "3", "", "flow", "f"];
    let runs: [(&[&str], &[&str]); 4] =
        [(&[], &whole), (&["--class", "slow"], &slow), (&["--class", "wan/s*"], &slow), (&["--active"], &active)];
    for (args, wanted) in runs {
        let output = run(args);
        if let Some(reason) = lacking(&output) {
            return eprintln!("SKIPPED: {reason}");
        }
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(names(&text), wanted, "{args:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        // Where the host kept time: 100 datagrams, and what little the last reading is late.
        if output.status.code() == Some(0) && wanted.contains(&"f") {
            let mut lines = text.lines().skip_while(|line| !line.starts_with("flow ")).map(str::trim_end);
            assert!(lines.next().is_some_and(|head| head.ends_with("  under way")), "{text}");
            let count = lines.next().and_then(|row| row.rsplit(' ').next()?.parse::<u64>().ok());
            assert!(count.is_some_and(|count| (50..=200).contains(&count)), "{text}");
        }
    }
    // Before anything starts.
    let output = run(&["--class", "slo"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("did you mean \"slow\"?"), "{said}");
    assert_eq!(run(&["--active", "--json"]).status.code(), Some(2));
    let _ = fs::remove_file(path);
}

#[test]
fn every_case_of_the_lab_comes_out() {
    let _one = alone();
    let mut files: Vec<PathBuf> = fs::read_dir(cases()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(!files.is_empty());
    // Most cases wait for slow links most of the time. Those of at least 200 Mbit/s need a
    // processor.
    let (fast, slow): (Vec<_>, Vec<_>) = files.into_iter().partition(|path| {
        let name = name(path);
        name.starts_with("gigabit") || name == "htb-200.toml"
    });
    for path in run_side_by_side(slow, apart).iter().chain(&fast) {
        run_alone(path, apart);
    }
}

/// The same file in virtual time and on real packets: the part of the link that each class gets
/// differs by less than one percent of the link. A busy host gets several tries, by the rule of the
/// cases.
#[test]
fn one_file_runs_in_both_worlds() {
    let _one = alone();
    let path = write_case("worlds", WORLDS);
    let mut missed = Vec::new();
    for _ in 0..TRIES {
        let ticks = Ticks::now();
        let shares = |world: &str| -> Result<Vec<f64>, String> {
            let output = altq().args([world, "--json"]).arg(&path).output().unwrap();
            if let Some(reason) = lacking(&output) {
                return Err(reason);
            }
            let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            if result["valid"] != true {
                return Err(result["notes"].to_string());
            }
            let rows = result["classes"].as_array().unwrap().iter();
            Ok(rows.map(|row| row["rate_bit_s"].as_u64().unwrap() as f64 / 20e6).collect())
        };
        let sim = shares("sim").unwrap();
        match shares("lab") {
            Err(reason) => eprintln!("AGAIN: {reason}"),
            Ok(lab) => {
                assert_eq!(sim.len(), 4);
                if sim.iter().zip(&lab).all(|(sim, lab)| (sim - lab).abs() < 0.01) {
                    let _ = fs::remove_file(path);
                    return;
                }
                eprintln!("AGAIN: simulated {sim:?}, measured {lab:?}");
                if ticks.taken() <= TAKEN {
                    missed.push((sim, lab));
                }
                assert!(missed.len() < MISSES, "simulated and measured: {missed:?}");
            }
        }
    }
    eprintln!("SKIPPED: no lab here, or it could not keep time: {} of {TRIES} runs count", missed.len());
}

const WORLDS: &str = r#"
name = "worlds"
description = "Constant, Poisson and on/off sources over a link that carries two thirds of what they send"
duration = "3s"
warmup = "1s"
policy = '''
link wan {
    rate 20Mbit/s
    scheduler cbq
    class a { share 50%  borrow }
    class b { share 30%  borrow }
    class c { share 20% }
    match dport 1 -> a
    match dport 2 -> b
    match dport 3 -> c
}
'''
hosts = [{ name = "s" }, { name = "t" }]
links = [{ name = "wire", from = "s", to = "t", policy = "wan" }]

[[flows]]
name = "a"
kind = "udp"
size = 1000
rate = "12Mbit/s"
from = "s"
to = "t"
dport = 1
class = "a"

[[flows]]
name = "b"
kind = "udp"
shape = "poisson"
size = [200, 1400]
rate = "10Mbit/s"
from = "s"
to = "t"
dport = 2
class = "b"

[[flows]]
name = "c"
kind = "udp"
shape = "on_off"
on = "40ms"
off = "20ms"
size = 500
rate = "12Mbit/s"
from = "s"
to = "t"
dport = 3
class = "c"
"#;

/// Names of the interfaces in the calling thread's namespace.
fn interfaces() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    text.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_string())).collect()
}

/// Paths of the network namespaces that a process holds by descriptor.
fn namespaces(process: u32) -> Vec<PathBuf> {
    let Ok(list) = fs::read_dir(format!("/proc/{process}/fd")) else { return Vec::new() };
    let paths = list.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with("net:["))).collect()
}

/// The processes of a process group, without zombies.
fn group(leader: u32) -> Vec<String> {
    let mut members = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // proc(5): pid (comm) state ppid pgrp …; comm may contain anything, so fields are read from
        // its last parenthesis on.
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        if fields.get(2) == Some(&leader.to_string().as_str()) && fields.first() != Some(&"Z") {
            members.push(stat);
        }
    }
    members
}

fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        if holds() {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}

/// A namespace without a holder cannot be seen from outside. So this test lays a veth pair from a
/// namespace of its own into each of the lab's. When the kernel removes a namespace, it removes
/// everything in it, and the veth pair disappears here too.
#[test]
fn nothing_is_left_of_a_lab_that_was_killed() {
    let _one = alone();
    let probe = match Namespace::new() {
        Ok(probe) => probe,
        Err(error) => return eprintln!("SKIPPED: no network namespaces here: {error}"),
    };
    let path = write_case("killed", &case("60s", POLICY));
    let before = interfaces();
    let mut lab =
        altq().arg("lab").arg(&path).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0).spawn().unwrap();
    let id = lab.id();
    let up = until(Duration::from_secs(10), || namespaces(id).len() == 3 || lab.try_wait().unwrap().is_some());
    if let Some(status) = lab.try_wait().unwrap() {
        let output = lab.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(status.code(), Some(6 | 7)), "{said}");
        return eprintln!("SKIPPED: {said}");
    }
    assert!(up, "it holds {:?}", namespaces(id));
    // In the middle of the traffic.
    thread::sleep(Duration::from_millis(1500));
    let held = namespaces(id);
    assert_eq!(held.len(), 3);
    for (at, namespace) in held.iter().enumerate() {
        let veth = format!("link add name probe{at} type veth peer name probe netns {}", namespace.display());
        let made = probe.run(|| Command::new("ip").args(veth.split(' ')).output()).unwrap().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    assert_eq!(probe.run(interfaces).unwrap().len(), 4);

    lab.kill().unwrap();
    lab.wait().unwrap();

    let gone = until(Duration::from_secs(10), || probe.run(interfaces).unwrap() == BTreeSet::from(["lo".to_string()]));
    assert!(gone, "namespaces are left: {:?}", probe.run(interfaces).unwrap());
    assert!(group(id).is_empty(), "processes are left: {:?}", group(id));
    assert_eq!(interfaces(), before, "interfaces are left");
    let _ = fs::remove_file(path);
}

#[test]
fn an_ordinary_user_is_told_in_one_line() {
    let _one = alone();
    let path = write_case("ordinary", &case("1s", POLICY));
    let mut command = altq();
    command.arg("lab").arg(&path);
    if fs::read_to_string("/proc/self/status").unwrap().contains("\nUid:\t0\t") {
        // Starts the program without root, if this host allows that.
        command.uid(65534).gid(65534);
    }
    match command.output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(6), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(said.contains("root"), "{said}");
            assert!(output.stdout.is_empty());
        }
        Err(error) => eprintln!("SKIPPED: the program cannot be started without root: {error}"),
    }
    let _ = fs::remove_file(path);
}

#[test]
fn what_cannot_run_is_refused_before_anything_starts() {
    let _one = alone();
    let link = |words: &str| case("1s", POLICY).replace("policy = \"wan\" }", &format!("policy = \"wan\", {words} }}"));
    let refusals = [
        // A policy with an error, which is reported at its place.
        ("policy", case("1s", "link wan { rate 20Mbit/s  scheduler cbq  class all { shar 100% } }"), 2, "shar"),
        (
            "link",
            case("1s", "link lan { rate 20Mbit/s  scheduler cbq  class all { share 100%  default } }"),
            2,
            "no link `wan`",
        ),
        ("class", case("1s", POLICY) + EXPECT_OTHER, 2, "\"other\""),
        ("key", case("1s", POLICY) + "nonsense = 1\n", 2, "nonsense"),
        // Things that only the simulator has.
        ("half", link("medium = \"ethernet\", duplex = \"half\""), 7, "half-duplex"),
        ("narrow", link("tunnel = \"6to4\", mtu = 1280"), 7, "leaves 1260 bytes"),
        ("bsd", case("1s", POLICY).replace("dport = 80", "dport = 80, stack = \"bsd\""), 7, "1997"),
        ("tiny", case("1s", POLICY).replace("dport = 80", "dport = 80, mss = 75"), 7, "76 to 32755 bytes, not of 75"),
        ("large", case("1s", POLICY).replace("dport = 80", "dport = 80, mss = 1449"), 2, "segments of 1448 do"),
        ("goes", case("1s", POLICY) + "[[events]]\nat = \"500ms\"\nremove = \"all\"\n", 7, "class `all` is removed"),
        (
            "nobody",
            case("1s", POLICY) + "[[events]]\nat = \"500ms\"\nclass = \"al\"\nset = { borrow = true }\n",
            2,
            "no link of the case has a class \"al\"; did you mean \"all\"?",
        ),
    ];
    for (name, text, code, word) in refusals {
        let path = write_case(name, &text);
        let begun = Instant::now();
        let output = altq().arg("lab").arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{name}: {said}");
        assert!(said.contains(word), "{name}: {said}");
        assert!(output.stdout.is_empty() && begun.elapsed() < Duration::from_secs(1), "{name}: it ran");
        let _ = fs::remove_file(path);
    }
}

const EXPECT_OTHER: &str = r#"
[[expect]]
name = "other"
measure = "share"
class = "other"
expected = 1
tolerance = 0.1
source = "a test"
"#;
