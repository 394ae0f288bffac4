//! `altq run` as its user sees it: exit codes, what it prints, and what it leaves behind. The tests
//! are skipped with a message where the host does not allow them.

#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use altq_dataplane::netns::Namespace;
use world::{round_trips, world};

const POLICY: &str = "link wan { device bridge a b  rate 100Mbit/s  scheduler cbq
    class low { share 20% borrow }
    class high { share 80% borrow default }
    match dport 7 -> low }";

/// A policy file that is removed when the test ends.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("altq-run-{}-{name}.altq", std::process::id()));
        std::fs::write(&path, text).unwrap();
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_dir_all(state(&self.0));
    }
}

/// Where altq keeps which policy runs, beside the policy.
fn state(policy: &Path) -> PathBuf {
    policy.with_extension("state")
}

fn altq(file: &File, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.arg("run").arg(&file.0).args(more).stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    command.arg("--state").arg(state(&file.0));
    command
}

fn start(namespace: &Namespace, mut command: Command) -> Child {
    namespace.run(|| command.spawn().unwrap()).unwrap()
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

/// The program's first line on standard output, after which it is running. `None`, with a message,
/// if the host lacks something.
fn first_line(child: &mut Child) -> Option<(String, impl Read + use<>)> {
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    if line.is_empty() && matches!(child.wait().unwrap().code(), Some(6 | 7)) {
        eprintln!("SKIPPED: this host cannot run a bridge");
        return None;
    }
    Some((line, out))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn lines_of_json_until_a_signal() {
    let Some(world) = world() else { return };
    let file = File::new("json", POLICY);
    let mut child = start(&world.middle, altq(&file, &["--json", "--interval", "100ms"]));
    let Some((first, mut rest)) = first_line(&mut child) else { return };
    round_trips(&world, "10.9.0.2:7", 50);
    signal(&child, "-INT");
    let mut lines = first;
    rest.read_to_string(&mut lines).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let parsed: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = &parsed.last().unwrap()["links"][0];
    assert_eq!(
        (&parsed[0]["schema"], &last["name"], &last["state"]),
        (&"altq.stat/1".into(), &"wan".into(), &"shaping".into())
    );
    let classes = last["classes"].as_array().unwrap();
    let names: Vec<&str> = classes.iter().map(|class| class["name"].as_str().unwrap()).collect();
    assert_eq!(names[1..], ["low", "high"]);
    assert_eq!(classes[1]["parent"], names[0]);
    // 50 datagrams with one byte of payload: 29 bytes each at layer 3.
    assert_eq!((&classes[1]["received_packets"], &classes[1]["sent_bytes"]), (&50.into(), &1450.into()));
    assert_eq!(classes[0]["sent_packets"].as_u64(), Some(50 + classes[2]["sent_packets"].as_u64().unwrap()));
    for word in [
        "dropped",
        "marked_packets",
        "backlog_packets",
        "backlog_bytes",
        "borrowed_bytes",
        "overlimits",
        "sojourn_ns",
        "rate_bit_s",
        "limited_by",
    ] {
        assert!(classes[1].get(word).is_some(), "{word}");
    }
}

#[test]
fn a_table_for_a_time() {
    let Some(world) = world() else { return };
    let file = File::new("table", POLICY);
    let output = world.middle.run(|| altq(&file, &["--for", "300ms"]).output().unwrap()).unwrap();
    if matches!(output.status.code(), Some(6 | 7)) {
        return eprintln!("SKIPPED: {}", text(&output));
    }
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    // A busy host may end it later, never earlier.
    let seconds = table.split_once("over the whole ").and_then(|(_, rest)| rest.split_once(" s\n")).map(|(of, _)| of);
    let seconds: f64 = seconds.and_then(|of| of.parse().ok()).unwrap_or_else(|| panic!("{table}"));
    assert!((0.3..3.0).contains(&seconds) && table.contains("20.0 Mbit/s"), "{table}");
    assert!(!table.contains('\x1b'), "no terminal, no control sequences");
}

/// The column "asked" has the guarantee of every scheduler's classes, in its own words; and the
/// lines of JSON have it too, with the time of day.
#[test]
fn what_is_asked_is_shown_whatever_the_scheduler() {
    let Some(world) = world() else { return };
    let policy = "link there { device bridge a b  rate 100Mbit/s  scheduler wfq
    class voice { bandwidth 30% }
    class rest { bandwidth 50% default }
    match dport 7 -> voice }
link back { device bridge b a  rate 50Mbit/s  scheduler hfsc
    class video { realtime 12Mbit/s linkshare 12Mbit/s upperlimit 20Mbit/s }
    class other { linkshare 8Mbit/s default }
    match dport 7 -> video }";
    let file = File::new("asked", policy);
    let output = world.middle.run(|| altq(&file, &["--for", "300ms"]).output().unwrap()).unwrap();
    if output.status.code() == Some(7) {
        return eprintln!("SKIPPED: {}", text(&output));
    }
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    let asked = |class: &str| {
        let row = table.lines().find(|line| line.trim_start().starts_with(class)).unwrap_or_else(|| panic!("{table}"));
        row.split_whitespace().skip(1).take(2).collect::<Vec<_>>().join(" ")
    };
    assert_eq!([asked("voice"), asked("video")], ["30.0 Mbit/s", "12.0 Mbit/s"], "{table}");
    let output = world.middle.run(|| altq(&file, &["--for", "300ms", "--json"]).output().unwrap()).unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    let video = &last["links"][1]["classes"][1];
    assert_eq!((&video["guaranteed_bit_s"], &video["ceiling_bit_s"]), (&12_000_000.into(), &20_000_000.into()));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    assert!(now - last["links"][0]["unix_ns"].as_u64().unwrap() < 10_000_000_000);
}

#[test]
fn nothing_is_left_behind_even_when_killed() {
    let Some(world) = world() else { return };
    let file = File::new("killed", POLICY);
    world.answer_in_the_middle();
    assert!(world.middle_answers());
    for xdp in ["off", "auto"] {
        let mut child = start(&world.middle, altq(&file, &["--json", "--interval", "20ms", "--xdp", xdp]));
        let Some(_reading) = first_line(&mut child) else { return };
        let hidden = !world.middle_answers();
        signal(&child, "-KILL");
        child.wait().unwrap();
        let end = Instant::now() + Duration::from_secs(2);
        while !world.middle_answers() {
            assert!(Instant::now() < end, "the kernel's stack has its frames back (--xdp {xdp})");
        }
        if !hidden {
            eprintln!("SKIPPED in part: no tcx program here");
        }
    }
}

#[test]
fn what_af_xdp_cannot_carry_is_exit_7() {
    let Some(world) = world() else { return };
    world::ip(&world.middle, "link set dev a mtu 9000\n").unwrap();
    let file = File::new("xdp", POLICY);
    let output = world.middle.run(|| altq(&file, &["--xdp", "on"]).output().unwrap()).unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output));
    assert!(text(&output).contains("the MTU of a is 9000") && text(&output).lines().count() == 1, "{}", text(&output));
    let output = world.middle.run(|| altq(&file, &["--xdp", "auto", "--for", "100ms"]).output().unwrap()).unwrap();
    if matches!(output.status.code(), Some(6 | 7)) {
        return eprintln!("SKIPPED: {}", text(&output));
    }
    assert!(text(&output).contains("packet sockets carry it"), "{}", text(&output));
}

/// Traffic flows on, unshaped, when a process that shaped an interface is killed. The next one
/// replaces the rules that were left, and takes them away.
#[test]
fn a_killed_process_leaves_traffic_flowing_on_an_interface() {
    let Some(world) = world() else { return };
    let policy = "link wan { device a  rate 100Mbit/s  scheduler fifo  class all { default } }
        link back { device a ingress  rate 100Mbit/s  scheduler fifo  class all { default } }";
    let file = File::new("left", policy);
    world.answer_in_the_middle();
    assert!(world.middle_answers());
    for end in ["-KILL", "-KILL", "-INT"] {
        let mut child = start(&world.middle, altq(&file, &["--json", "--interval", "20ms"]));
        let Some((_, mut rest)) = first_line(&mut child) else { return };
        assert!(world.middle_answers(), "while it runs");
        if end == "-KILL" {
            // A second one is told who shapes already.
            let second = world.middle.run(|| altq(&file, &["--for", "100ms"]).output().unwrap()).unwrap();
            assert_eq!(second.status.code(), Some(5), "{}", text(&second));
            assert!(text(&second).contains(&format!("process {} shapes", child.id())), "{}", text(&second));
        }
        signal(&child, end);
        let mut lines = String::new();
        rest.read_to_string(&mut lines).unwrap();
        child.wait().unwrap();
        assert!(world.middle_answers(), "after {end}");
        if end == "-INT" {
            let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
            assert_eq!(last["links"][0]["path"], "nfqueue");
            for link in [0, 1] {
                let sent = last["links"][link]["classes"][0]["sent_packets"].as_u64().unwrap();
                assert!(sent > 0, "each direction passed the queue: {last}");
            }
        }
    }
    let list = "iptables -t mangle -S; ip6tables -t mangle -S; nft list ruleset";
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let left = world.middle.run(|| Command::new("sh").args(["-c", list]).env("PATH", path).output().unwrap()).unwrap();
    let left = String::from_utf8_lossy(&left.stdout).into_owned();
    assert!(!left.contains("altq"), "{left}");
}

/// SIGHUP changes what runs, without a restart: shares that are swapped, and the rate. What cannot
/// be changed so, and a file with errors, leave all as it was.
#[test]
fn the_policy_is_read_again() {
    let Some(world) = world() else { return };
    let file = File::new("again", POLICY);
    let mut child = start(&world.middle, altq(&file, &["--json", "--interval", "20ms"]));
    let Some((_, lines)) = first_line(&mut child) else { return };
    // What `low` is guaranteed, for each line.
    let (sender, guaranteed) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(lines).lines().map_while(Result::ok) {
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            let _ = sender.send(line["links"][0]["classes"][1]["guaranteed_bit_s"].as_u64());
        }
    });
    let until = |rate: u64| {
        let wait = || guaranteed.recv_timeout(Duration::from_secs(10)).expect("a line within 10 s");
        while wait() != Some(rate) {}
    };
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut answer = |policy: &str| {
        std::fs::write(&file.0, policy).unwrap();
        signal(&child, "-HUP");
        said.find(|line| line.contains("SIGHUP")).unwrap()
    };
    until(20_000_000);
    // Neither share fits before the other has changed, in one order or the other.
    for (low, high) in [(70, 30), (10, 90)] {
        let policy = POLICY.replace("20%", &format!("{low}%")).replace("80%", &format!("{high}%"));
        assert!(answer(&policy).ends_with("2 things have changed"));
        until(low * 1_000_000);
    }
    let now = POLICY.replace("20%", "10%").replace("80%", "90%");
    assert!(answer(&now).ends_with("asks for what runs already"));
    for (policy, what) in [
        ("link wan { rate".to_owned(), "has errors; the policy that runs stays"),
        (now.replace("bridge a b", "bridge b a"), "its device"),
        (now.replace("scheduler cbq", "mtu 1400  scheduler cbq"), "its mtu"),
        (now.replace("wan", "lan"), "link `lan` is new"),
    ] {
        let said = answer(&policy);
        assert!(said.contains(what) && said.ends_with("the policy that runs stays"), "{said}");
    }
    until(10_000_000);
    // A class comes and goes.
    let more = now.replace("class low { share 10% borrow }", "class low { share 9% borrow } class new { share 1% }");
    assert_ne!(more, now);
    assert!(answer(&more).ends_with("2 things have changed"));
    assert!(answer(&now).ends_with("2 things have changed"));
    // A datagram of 29 bytes takes 11.6 ms at 20 kbit/s, and less than a millisecond before.
    assert!(answer(&now.replace("100Mbit/s", "20kbit/s")).contains("things have changed"));
    until(2000);
    let begun = Instant::now();
    round_trips(&world, "10.9.0.2:7", 30);
    assert!(begun.elapsed() >= Duration::from_millis(28 * 11), "{:?}", begun.elapsed());
    signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    reader.join().unwrap();
}

#[test]
fn an_ordinary_user_is_told_in_one_line() {
    let Some(world) = world() else { return };
    let file = File::new("user", POLICY);
    let output = world.middle.run(|| altq(&file, &[]).uid(65534).gid(65534).output()).unwrap();
    let output = match output {
        Ok(output) => output,
        Err(error) => return eprintln!("SKIPPED: another user cannot run the program here ({error})"),
    };
    assert_eq!(output.status.code(), Some(6), "{}", text(&output));
    assert!(text(&output).contains("needs root") && text(&output).lines().count() == 1, "{}", text(&output));
}

/// A link without a device, which a policy may have for the simulator, does not keep the others
/// from running.
#[test]
fn a_link_without_a_device_is_left_out_aloud() {
    let Some(world) = world() else { return };
    let more = "link model { rate 10Mbit/s  scheduler fifo  class everything { default } }";
    let file = File::new("left-out", &format!("{POLICY}\n{more}"));
    let output = world.middle.run(|| altq(&file, &["--for", "200ms"]).output().unwrap()).unwrap();
    if matches!(output.status.code(), Some(6 | 7)) {
        return eprintln!("SKIPPED: {}", text(&output));
    }
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("link model has no device, so it is left out"), "{}", text(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("link wan:") && !table.contains("model"), "{table}");
    // Asked for by its name, it is refused.
    let output = world.middle.run(|| altq(&file, &["--link", "model"]).output().unwrap()).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("link `model` has no device"), "{}", text(&output));
}

#[test]
fn mistakes_are_exit_2_missing_interfaces_7_and_nothing_starts() {
    let Some(world) = world() else { return };
    let no_device = POLICY.replace("device bridge a b", "");
    let interface = POLICY.replace("bridge a b", "eth0");
    let both = format!("{POLICY}\n{}", POLICY.replace("bridge a b", "b ingress").replace("wan", "down"));
    let nowhere = POLICY.replace("bridge a b", "bridge a nowhere");
    for (name, policy, more, what) in [
        ("none", no_device.as_str(), &[][..], "has no device"),
        ("eth0", &interface, &[], "no interface `eth0`"),
        ("both", &both, &[], "which link `wan` bridges to a"),
        ("nowhere", &nowhere, &[], "no interface `nowhere`"),
        ("link", POLICY, &["--link", "lan"], "it has wan"),
        ("interval", POLICY, &["--interval", "1us"], "at least 10ms"),
        ("when", POLICY, &["--xdp", "sometimes"], "possible values"),
        ("broken", "link wan {", &[], "error"),
    ] {
        let file = File::new(name, policy);
        let output = world.middle.run(|| altq(&file, more).output().unwrap()).unwrap();
        let code = if what.starts_with("no interface") { 7 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{name}: {}", text(&output));
        assert!(text(&output).contains(what) && output.stdout.is_empty(), "{name}: {}", text(&output));
    }
}
