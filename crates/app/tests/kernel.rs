//! `path kernel` as its user sees it: `altq check`, `altq convert --to tc`, `altq run --detach`,
//! `altq stop`. What needs root or a kernel's qdiscs is skipped with a message where they lack.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use altq_dataplane::netns::Namespace;

const HTB: &str = "link wan {
    device eth0
    path kernel
    rate 10Mbit/s
    scheduler htb
    class voice { rate 2Mbit/s  prio 0  queue codel {} }
    class rest  { rate 8Mbit/s  ceil 10Mbit/s  prio 1  default }
    match dscp ef -> voice
}
";

/// A policy file that is removed when the test ends.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("altq-kernel-{}-{name}.altq", std::process::id()));
        std::fs::write(&path, text).unwrap();
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn altq(arguments: &[&str], file: Option<&File>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.args(arguments).args(file.map(|file| &file.0)).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn check_says_which_path_and_why() {
    let said = |policy: &str, name: &str| text(&altq(&["check"], Some(&File::new(name, policy))).stdout);
    let kernel = said(HTB, "kernel");
    assert!(kernel.contains("path       kernel: as the policy says"), "{kernel}");
    assert!(kernel.contains("kernel     htb counts a burst as a time"), "{kernel}");
    let open = said(&HTB.replace("path kernel", ""), "open");
    assert!(open.contains("path       nfqueue: altq shapes this link itself; the kernel could as well"), "{open}");
    let cbq = said("link wan { device eth0  rate 1Mbit/s  scheduler cbq  class a { share 5%  default } }", "cbq");
    assert!(cbq.contains("`path kernel` is not possible: the kernel has no scheduler `cbq`"), "{cbq}");
}

#[test]
fn what_the_kernel_cannot_keep_is_an_error_of_check_convert_and_run() {
    let policy = HTB.replace("codel {}", "blue {}");
    let file = File::new("refused", &policy);
    for arguments in [&["check"][..], &["convert", "--to", "tc"], &["run", "--detach"]] {
        let output = altq(arguments, Some(&file));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("the kernel has no queue `blue`") && said.contains(":6:"), "{arguments:?}: {said}");
        assert!(said.contains("path nfqueue"), "{said}");
    }
    let json = altq(&["check", "--json"], Some(&file));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((json["ok"].as_bool(), json["links"][0]["path"].as_str()), (Some(false), Some("kernel")));
}

#[test]
fn convert_prints_a_script_of_tc() {
    let output = altq(&["convert", "--to", "tc"], Some(&File::new("convert", HTB)));
    let script = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(script.starts_with("#!/bin/sh\nset -e\n"), "{script}");
    for line in [
        "tc qdisc add dev eth0 root handle 1: htb default 2",
        "tc filter add dev eth0 parent 1: protocol ip prio 1 flower ip_tos 0xb8/0xfc classid 1:1",
    ] {
        assert!(script.lines().any(|found| found == line), "{line}\n{script}");
    }
    let ingress = HTB.replace("device eth0", "device eth0 ingress");
    let script = text(&altq(&["convert", "--to", "tc"], Some(&File::new("ingress", &ingress))).stdout);
    let last = script.lines().last().unwrap_or("");
    assert!(last.ends_with("u32 match u32 0 0 action mirred egress redirect dev ifb4eth0"), "{script}");
}

/// The header that the kernel counts is asked of the interface where there is one of the name:
/// every host has `lo`, of whose header it counts 14 bytes.
#[test]
fn convert_asks_the_interface_for_its_header() {
    let notes = |device: &str| {
        let policy = HTB.replace("eth0", device).replace("rate 10Mbit/s", "rate 10Mbit/s  overhead 34bytes");
        let output = altq(&["convert", "--to", "tc"], Some(&File::new(device, &policy)));
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let (there, nowhere) = (notes("lo"), notes("altqnone0"));
    assert!(there.contains("of the header of lo on this host the kernel counts 14 bytes"), "{there}");
    assert!(!there.contains("this is for an interface with an Ethernet header"), "{there}");
    assert!(nowhere.contains("this is for an interface with an Ethernet header of 14 bytes"), "{nowhere}");
}

#[test]
fn detach_is_for_links_that_the_kernel_executes() {
    let file = File::new("nfqueue", &HTB.replace("path kernel", ""));
    let output = altq(&["run", "--detach"], Some(&file));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("write `path kernel` in it"), "{}", text(&output.stderr));
    let output = altq(&["stop", "nobody"], None);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

/// What concerns loops or workers says so where there are none, and nothing is set up.
#[test]
fn options_without_effect_are_refused_with_the_reason() {
    let file = File::new("options", HTB);
    let detached = "with --detach the kernel alone executes the links";
    for (arguments, why) in [
        (&["run", "--detach", "--spin", "5us"][..], detached),
        (&["run", "--detach", "--processors", "0"], detached),
        (&["run", "--detach", "--xdp", "auto"], detached),
        (&["run", "--detach", "--realtime"], detached),
        (&["run", "--detach", "--supervise"], "'--detach' cannot be used with"),
        (&["run", "--detach", "--socket", "/nowhere"], "'--detach' cannot be used with"),
        (&["run", "--detach", "--interval", "2s"], "'--detach' cannot be used with"),
        (&["run", "--watchdog", "1s"], "there is none without --supervise"),
        (&["run", "--user", "nobody"], "there is none without --supervise"),
        (&["run", "--unconfined"], "there is none without --supervise"),
    ] {
        let output = altq(arguments, Some(&file));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}

/// A namespace with an interface `eth0`; `None`, with a message, where there can be none.
fn device() -> Option<Namespace> {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => {
            eprintln!("SKIPPED: this test makes network namespaces, which needs root ({error})");
            return None;
        }
    };
    let said = run(&namespace, "ip", "link add name eth0 type veth peer name other");
    if !said.is_empty() {
        eprintln!("SKIPPED: this test needs iproute2 and veth interfaces ({said})");
        return None;
    }
    run(&namespace, "ip", "link set dev eth0 up");
    Some(namespace)
}

/// What a program prints in a namespace.
fn run(namespace: &Namespace, program: &str, arguments: &str) -> String {
    let output = namespace.run(|| Command::new(program).args(arguments.split(' ')).output()).unwrap();
    output.map_or_else(|error| error.to_string(), |output| text(&output.stdout) + &text(&output.stderr))
}

/// Starts `altq run`, and waits for its first counters. `None`, with a message, if the kernel lacks
/// something.
fn running(namespace: &Namespace, file: &File) -> Option<(Child, BufReader<ChildStdout>, String)> {
    let mut child = namespace
        .run(|| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
            command.args(["run", "--json", "--interval", "100ms"]).arg(&file.0);
            command.arg("--state").arg(file.0.with_extension("state"));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    if stdout.read_line(&mut line).unwrap() > 0 {
        return Some((child, stdout, line));
    }
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7), "{said}");
    eprintln!("SKIPPED: {said}");
    None
}

/// While `altq run` stays it counts, and a changed file changes what stands.
#[test]
fn a_link_that_runs_is_counted_and_changed() {
    let Some(namespace) = device() else { return };
    let before = run(&namespace, "tc", "qdisc show");
    let policy = HTB.replace("queue codel {}", "");
    let file = File::new("run", &policy);
    let Some((mut child, mut stdout, mut line)) = running(&namespace, &file) else { return };
    let stat: serde_json::Value = serde_json::from_str(&line).unwrap();
    let link = &stat["links"][0];
    assert_eq!((link["path"].as_str(), link["state"].as_str()), (Some("kernel"), Some("kernel")), "{line}");
    // Written in one piece, as an editor does.
    let changed = File::new("run-changed", &policy.replace("rate 2Mbit/s", "rate 1Mbit/s"));
    std::fs::rename(&changed.0, &file.0).unwrap();
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
    };
    signal("-HUP");
    for _ in 0..10 {
        line.clear();
        stdout.read_line(&mut line).unwrap();
    }
    let classes = run(&namespace, "tc", "class show dev eth0");
    assert!(classes.contains("rate 1Mbit ceil 1Mbit"), "{classes}");
    signal("-INT");
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    // The pipe takes what is still printed.
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    assert!(said.contains("1 thing has changed"), "{said}");
    assert_eq!(run(&namespace, "tc", "qdisc show"), before);
}

/// Set up by a process that ends, and taken away by another one.
#[test]
fn a_link_stands_without_a_process_until_it_is_stopped() {
    let Some(namespace) = device() else { return };
    let run = |program: &str, arguments: &str| run(&namespace, program, arguments);
    let before = run("tc", "qdisc show");
    // Queues that every kernel has.
    let policy = HTB.replace("queue codel {}", "");
    let file = File::new("detach", &policy);
    let output = namespace.run(|| altq(&["run", "--detach"], Some(&file))).unwrap();
    let said = text(&output.stderr);
    if output.status.code() == Some(7) {
        assert_eq!(run("tc", "qdisc show"), before);
        return eprintln!("SKIPPED: {said}");
    }
    assert!(output.status.success(), "{said}");
    assert!(run("tc", "qdisc show dev eth0").contains("qdisc htb 4800:"), "{}", run("tc", "qdisc show dev eth0"));
    // Again, with another rate: the class changes where it stands.
    let file = File::new("detach-again", &policy.replace("rate 2Mbit/s", "rate 1Mbit/s"));
    let output = namespace.run(|| altq(&["run", "--detach"], Some(&file))).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let classes = run("tc", "class show dev eth0");
    assert!(classes.contains("class htb 4800:1 ") && classes.contains("rate 1Mbit ceil 1Mbit"), "{classes}");
    // altq itself does not shape the same packets beside it.
    let beside = File::new("beside", &policy.replace("path kernel", ""));
    let output = namespace.run(|| altq(&["run", "--for", "1s"], Some(&beside))).unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(5) && said.contains("`altq stop wan` takes it away"), "{said}");
    // Nor does it take the link over, and away at its end.
    let output = namespace.run(|| altq(&["run", "--for", "1s"], Some(&file))).unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(5) && said.contains("`altq stop wan` takes it away"), "{said}");
    assert_eq!(run("tc", "class show dev eth0"), classes);
    let output = namespace.run(|| altq(&["stop", "wan"], None)).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(run("tc", "qdisc show"), before);
    let output = namespace.run(|| altq(&["stop"], None)).unwrap();
    assert!(text(&output.stderr).contains("no link stands here"), "{}", text(&output.stderr));
}

/// What a killed altq has left is named, and stays, while a process shapes at an interface that is
/// away: it may be that one's, by a new name.
#[test]
fn what_may_be_a_process_s_is_named_and_stays() {
    let Some(namespace) = device() else { return };
    let before = run(&namespace, "tc", "qdisc show");
    let file = File::new("unsure", &HTB.replace("queue codel {}", ""));
    let Some((mut child, ..)) = running(&namespace, &file) else { return };
    child.kill().unwrap();
    child.wait().unwrap();
    let stands = || run(&namespace, "tc", "qdisc show").contains("a17:");
    assert!(stands());
    // What a process that shapes what leaves by `gone0` has (crates/dataplane/src/lock.rs).
    let address = SocketAddr::from_abstract_name("altq/out/gone0").unwrap();
    let lock = namespace.run(|| UnixListener::bind_addr(&address)).unwrap().unwrap();
    let stop = |arguments: &[&str]| {
        let output = namespace.run(|| altq(arguments, None)).unwrap();
        (text(&output.stderr), output.status.code())
    };
    for (arguments, code) in [(&["stop"][..], 0), (&["stop", "eth0"], 5)] {
        let (said, ended) = stop(arguments);
        assert_eq!(ended, Some(code), "{said}");
        assert!(said.contains("eth0 may be another name of what a process shapes as gone0"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let (said, ended) = stop(&["stop", "nobody"]);
    assert!(ended == Some(2) && said.contains("no link `nobody` stands here; these do: eth0"), "{said}");
    assert!(stands());
    drop(lock);
    let (said, ended) = stop(&["stop", "eth0"]);
    assert!(ended == Some(0) && said.contains("what leaves by eth0 passes unshaped"), "{said}");
    assert_eq!(run(&namespace, "tc", "qdisc show"), before);
}
