//! `altq verify` against differences that are made one at a time: each is named, with exit code 3,
//! and what the command names as the way out puts it right. The tests are skipped with a message
//! where the host does not allow them.

mod supervised;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::Duration;

use altq_dataplane::netns::Namespace;
use serde_json::{Value, json};
use supervised::{BRIDGE, Running, rules, until};
use world::world;

/// What leaves by `a`, and what comes in there.
const POLICY: &str = "link up { device a  rate 100Mbit/s  scheduler cbq
    class voice { share 20%  borrow  queue drop_tail { limit 40packets } }
    class bulk { share 30%  borrow }
    class rest { share 40%  borrow  default }
    match dport 7 -> voice }
link down { device a ingress  rate 100Mbit/s  scheduler fifo  class all { default } }
";

/// A link that does not run.
const MORE: &str = "link more { device b  rate 1Mbit/s  scheduler fifo  class all { default } }\n";

/// A worker that is silent for a while on a busy host is not taken for one that is dead.
const SUPERVISED: &[&str] = &["--supervise", "--user", "nobody", "--watchdog", "10s"];

/// As [`POLICY`] by the kernel's own qdiscs, on `eth0`.
const KERNEL: &str = "link wan { device eth0  path kernel  rate 10Mbit/s  scheduler htb
    class voice { rate 2Mbit/s  prio 0 }
    class rest { rate 8Mbit/s  ceil 10Mbit/s  prio 1  default }
    match dport 7 -> voice }
";

/// What `altq verify` says: its exit code, what differs, and what was looked at.
struct Said {
    code: Option<i32>,
    differences: Vec<Value>,
    checks: Vec<String>,
}

impl Said {
    fn read(output: &std::process::Output) -> Said {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {error}"));
        assert_eq!(document["schema"], "altq.verify/1");
        let list = |of: &Value| of.as_array().unwrap().clone();
        let (mut differences, mut checks) = (list(&document["differences"]), list(&document["checks"]));
        for link in list(&document["links"]) {
            assert_eq!(link["unchecked"], json!([]), "{link}");
            differences.extend(list(&link["differences"]));
            checks.extend(list(&link["checks"]));
        }
        assert_eq!(document["same"], json!(differences.is_empty()), "{document}");
        let checks = checks.iter().map(|check| check.as_str().unwrap().to_owned()).collect();
        Said { code: output.status.code(), differences, checks }
    }

    /// The difference that this check has found, where its place and what it has found contain
    /// these words.
    fn found(&self, check: &str, place: &str, found: &str) -> &Value {
        assert_eq!(self.code, Some(3), "{:?}", self.differences);
        let has = |one: &&Value, field: &str, word: &str| one[field].as_str().unwrap().contains(word);
        let mut all = self.differences.iter();
        let one = all.find(|one| one["check"] == check && has(one, "where", place) && has(one, "found", found));
        one.unwrap_or_else(|| panic!("no {check} of `{place}` that says `{found}`: {:#?}", self.differences))
    }
}

fn verify(running: &Running<'_>, more: &[&str]) -> Said {
    Said::read(&running.ask(&[&["verify", "--json"][..], more].concat()))
}

/// Nothing differs from the file, nor from what was applied last.
fn is_clean(running: &Running<'_>) {
    let file = running.folder.join("p.altq");
    for more in [&[][..], &[file.to_str().unwrap()]] {
        let said = verify(running, more);
        assert_eq!((said.code, &said.differences[..]), (Some(0), &[][..]), "{more:?}");
    }
}

/// Runs the commands that are said to put a difference right.
fn put_right(running: &Running<'_>, difference: &Value) {
    for command in difference["fix"].as_str().unwrap().split(" && ") {
        match command.strip_prefix("altq ") {
            Some(words) => done(running, &words.split(' ').collect::<Vec<&str>>()),
            None => shell(running, command),
        }
    }
}

fn done(running: &Running<'_>, arguments: &[&str]) {
    let output = running.ask(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
}

/// Runs a command in the middle, which must succeed.
fn shell(running: &Running<'_>, command: &str) {
    let said = running.said("sh", &["-c", &format!("({command}) 2>&1 && echo done")]);
    assert!(said.ends_with("done\n"), "{command}: {said}");
}

/// One thing is changed by a command of altq's, which `altq verify FILE` finds at this place, and
/// without a file as well: what runs differs from the file of the start. Then it is put right.
fn altq_changes(running: &Running<'_>, change: &[&str], place: &str, found: &str) {
    done(running, change);
    let file = running.folder.join("p.altq");
    let said = verify(running, &[file.to_str().unwrap()]);
    let difference = said.found("policy", place, found);
    verify(running, &[]).found("file", place, found);
    put_right(running, difference);
    is_clean(running);
    eprintln!("found and put right: {}", change.join(" "));
}

#[test]
fn what_clients_change_is_found_and_put_right() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "verify-policy", POLICY, &["--subscribers", "10"]) else { return };
    is_clean(&running);
    let said = verify(&running, &[]);
    for check in ["version", "file", "policy", "loop", "device", "rate", "rules", "queue"] {
        assert!(said.checks.iter().any(|one| one == check), "{check}: {:?}", said.checks);
    }
    // The rate of a link, behind the policy's back.
    done(&running, &["link", "set", "up", "rate", "50Mbit/s"]);
    let file = running.folder.join("p.altq");
    let path = file.to_str().unwrap();
    verify(&running, &[path]).found("policy", "link up", "rate 50Mbit/s");
    let said = verify(&running, &[]);
    let difference = said.found("policy", "link up", "rate 50Mbit/s");
    assert_eq!(difference["fix"], "altq link set up rate 100Mbit/s");
    put_right(&running, difference);
    is_clean(&running);
    eprintln!("found and put right: link set");
    // Classes and rules.
    altq_changes(&running, &["class", "set", "up/voice", "share", "25%"], "link up, class voice", "25Mbit/s");
    altq_changes(&running, &["class", "add", "up/games", "share", "5%"], "link up, class games", "rate 5Mbit/s");
    altq_changes(&running, &["class", "remove", "up/bulk"], "link up, class bulk", "nothing");
    let (nine, seven) = ("dport 9 -> bulk", "dport 7 -> voice");
    altq_changes(&running, &["match", "add", "up", nine], "rule match dport 9", "match dport 9 -> bulk");
    altq_changes(&running, &["match", "remove", "up", seven], "rule match dport 7", "nothing");
    // Another policy was applied: a queue is shorter, another class is the default.
    let other = running.folder.join("other.altq");
    std::fs::write(&other, POLICY.replace("limit 40packets", "limit 10packets")).unwrap();
    altq_changes(&running, &["apply", other.to_str().unwrap()], "link up, class voice", "limit 10packets");
    let text = POLICY.replace("borrow  default }", "borrow }").replace("30%  borrow }", "30%  borrow  default }");
    std::fs::write(&other, text).unwrap();
    altq_changes(&running, &["apply", other.to_str().unwrap()], "link up, class bulk", "default");
    // A subscriber is asked for, but not by the policy.
    done(&running, &["subscriber", "set", "a", "addr=10.7.0.1", "up=rate 1Mbit/s"]);
    is_clean(&running);
    let text = String::from_utf8_lossy(&running.ask(&["verify"]).stdout).into_owned();
    assert!(text.contains("a class of a subscriber or a reservation runs beside the policy"), "{text}");
    assert!(text.starts_with("link up (nfqueue): as asked for; looked at: policy, loop, "), "{text}");
    running.end();
}

#[test]
fn a_file_that_says_something_else_is_found() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "verify-file", POLICY, SUPERVISED) else {
        return;
    };
    is_clean(&running);
    let file = running.folder.join("p.altq");
    // Changed on disk, without a class, and no policy any more: all differ from what runs.
    for (text, place, found) in [
        (POLICY.replace("share 20%", "share 21%"), "link up, class voice", "rate 20Mbit/s"),
        (POLICY.replace("class bulk { share 30%  borrow }", ""), "link up, class bulk", "rate 30Mbit/s"),
        (format!("{POLICY}{MORE}"), "link more", "it does not run"),
        ("link up { rate }".to_owned(), "p.altq", "error"),
    ] {
        std::fs::write(&file, &text).unwrap();
        verify(&running, &[]).found("file", place, found);
        std::fs::write(&file, POLICY).unwrap();
        is_clean(&running);
        eprintln!("found and put right: {place} of the file");
    }
    // Of another file what only a new start can change.
    let other = running.folder.join("other.altq");
    let path = other.to_str().unwrap();
    let htb = "scheduler htb class voice { rate 20Mbit/s } class bulk { rate 30Mbit/s } \
               class rest { rate 40Mbit/s default } match dport 7 -> voice }\nlink down";
    let from = POLICY.find("scheduler cbq").unwrap();
    let to = POLICY.find("link down").unwrap() + "link down".len();
    for (text, place, found) in [
        (format!("{}{htb}{}", &POLICY[..from], &POLICY[to..]), "link up", "scheduler cbq"),
        (format!("{POLICY}{MORE}"), "link more", "it does not run"),
        (POLICY[..to - "link down".len()].to_owned(), "link down", "it runs"),
        (POLICY.replace("device a  rate", "device b  rate"), "link up", "device a"),
    ] {
        std::fs::write(&other, &text).unwrap();
        let said = verify(&running, &[path]);
        let difference = said.found("policy", place, found);
        assert!(difference["fix"].as_str().unwrap().starts_with("a new start"), "{difference}");
        eprintln!("found: {place} {found}");
    }
    let wrong = running.ask(&["verify", "/nowhere/p.altq"]);
    assert_eq!(wrong.status.code(), Some(2));
    running.end();
}

/// Switches an offload of an interface, by ethtool's ioctl (SIOCETHTOOL 0x8946, ETHTOOL_SGSO 0x24).
const SWITCH_GSO: &str = "import ctypes, fcntl, socket, struct, sys
value = ctypes.create_string_buffer(struct.pack('II', 0x24, int(sys.argv[2])))
request = struct.pack('16sP', sys.argv[1].encode(), ctypes.addressof(value)) + bytes(16)
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8946, request)";

#[test]
fn what_is_changed_on_the_host_is_found_and_put_right() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "verify-host", POLICY, SUPERVISED) else {
        return;
    };
    is_clean(&running);
    let by_nft = rules(&world).contains("table inet altq-out-a");
    // The rules: one is gone; they lead to another queue; they hold packets back.
    let queue = queue_of(&running);
    let saved = running.folder.join("rules");
    let saved = saved.to_str().unwrap();
    if by_nft {
        shell(&running, &format!("nft list table inet altq-out-a > {saved}"));
    }
    let changes = if by_nft {
        let to = |rule: &str| format!("nft flush chain inet altq-out-a hold; nft add rule inet altq-out-a hold {rule}");
        [
            "nft flush chain inet altq-out-a hold".to_owned(),
            to("oifname a queue num 5 bypass"),
            to(&format!("oifname a queue num {queue}")),
        ]
    } else {
        let to = |rule: &str| format!("iptables -w -t mangle -R altq-out-a 1 -j NFQUEUE --queue-num {rule}");
        [
            "iptables -w -t mangle -D FORWARD -o a -j altq-out-a".to_owned(),
            to("5 --queue-bypass"),
            to(&queue.to_string()),
        ]
    };
    for change in changes {
        shell(&running, &change);
        let said = verify(&running, &[]);
        let difference = said.found("rules", "what leaves by a", "");
        assert!(difference["expected"].as_str().unwrap().contains(if by_nft { "queue" } else { "altq-out-a" }));
        if by_nft {
            shell(&running, &format!("nft delete table inet altq-out-a; nft -f {saved}"));
        } else {
            put_right(&running, difference);
        }
        is_clean(&running);
        eprintln!("found and put right: {change}");
    }
    // A rule of somebody else comes before altq's.
    if by_nft {
        shell(
            &running,
            "nft 'add table inet ids; add chain inet ids c { type filter hook prerouting priority -200; }; \
            add rule inet ids c queue num 5 bypass'",
        );
    } else {
        shell(&running, "iptables -w -t mangle -I PREROUTING -j NFQUEUE --queue-num 5 --queue-bypass");
    }
    verify(&running, &[]).found("rules", "what leaves by a", "before altq does");
    let away = if by_nft { "nft delete table inet ids" } else { "iptables -w -t mangle -D PREROUTING 1" };
    shell(&running, away);
    is_clean(&running);
    eprintln!("found and put right: a rule in front");
    // The interface: its own queue, an offload, its state, and the interface itself.
    let changed = |change: &str, found: &str| {
        shell(&running, change);
        let said = verify(&running, &[]);
        put_right(&running, said.found("device", "a", found));
        is_clean(&running);
        eprintln!("found and put right: {change}");
    };
    changed("ip link set dev a txqueuelen 500", "txqueuelen 500");
    changed("ip link set dev a down", "it is down");
    offload(&running);
    shell(&running, "ip link del dev a");
    verify(&running, &[]).found("device", "a", "there is none");
    shell(&running, "ip link add name a type veth peer name c && ip link set dev c up && ip link set dev a up");
    is_clean(&running);
    eprintln!("found and put right: an interface that was gone");
    running.end();
}

/// The number of the queue that packets which leave by `a` go to.
fn queue_of(running: &Running<'_>) -> u64 {
    let output = running.said("cat", &["/proc/net/netfilter/nfnetlink_queue"]);
    let numbers = output.lines().map(|line| line.split_whitespace().next().unwrap().parse().unwrap());
    let rules = rules(running.world);
    let leads = |line: &&str| line.contains("altq-out-a ") || line.contains("oifname");
    let own: Vec<&str> = rules.lines().filter(leads).collect();
    let mut named = numbers.filter(|number: &u64| own.iter().any(|line| line.contains(&number.to_string())));
    named.next().unwrap_or_else(|| panic!("{output} {rules}"))
}

/// An offload is switched, by ethtool or, where there is none, by its ioctl.
fn offload(running: &Running<'_>) {
    let script = running.folder.join("switch.py");
    std::fs::write(&script, SWITCH_GSO).unwrap();
    let switch = |on: &str, word: &str| {
        let script = script.display();
        let command = format!("ethtool -K a gso {word} || python3 {script} a {on}");
        running.said("sh", &["-c", &format!("({command}) 2>&1 && echo done")])
    };
    let said = switch("0", "off");
    if !said.ends_with("done\n") {
        return eprintln!("SKIPPED: neither ethtool nor python3 switches an offload here ({said})");
    }
    let found = verify(running, &[]);
    let difference = found.found("device", "a", "gso off");
    assert_eq!(difference["fix"], "ethtool -K a gso on");
    assert!(switch("1", "on").ends_with("done\n"));
    is_clean(running);
    eprintln!("found and put right: an offload");
}

#[test]
fn a_bridge_has_its_programs_whoever_forwards() {
    let Some(world) = world() else { return };
    for (name, options) in [("verify-bridge", [].as_slice()), ("verify-bridges", SUPERVISED)] {
        let Some(running) = Running::start(&world, name, BRIDGE, options) else { return };
        is_clean(&running);
        let said = verify(&running, &[]);
        if !said.checks.iter().any(|check| check == "bridge") {
            eprintln!("SKIPPED: this kernel has no programs for what comes in (tcx, or filters)");
        }
        running.end();
    }
}

/// Packets that nobody shapes are 4, and nothing differs any more when the next worker shapes.
#[test]
fn packets_that_pass_unshaped_are_4() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "verify-bypass", POLICY, SUPERVISED) else {
        return;
    };
    if !running.keep_killing() {
        return;
    }
    let output = running.ask(&["verify", "--json"]);
    let said = Said::read(&output);
    assert_eq!(said.code, Some(4), "{:?}", said.differences);
    assert!(said.differences.len() == 2 && said.differences.iter().all(|one| one["check"] == "state"));
    let text = String::from_utf8_lossy(&running.ask(&["verify"]).stdout).into_owned();
    assert!(text.contains("BYPASS: packets pass unshaped"), "{text}");
    until("it shapes again", Duration::from_secs(30), || running.ask(&["status"]).status.code() == Some(0));
    is_clean(&running);
    eprintln!("found: BYPASS");
    running.end();
}

/// An altq of another version, and one that is too old to answer.
#[test]
fn another_version_is_found() {
    let folder = std::env::temp_dir().join(format!("altq-verify-version-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let text = "link wan { rate 1Mbit/s  scheduler fifo  class all { default } }\n";
    let file = folder.join("p.altq");
    std::fs::write(&file, text).unwrap();
    let own = env!("CARGO_PKG_VERSION");
    for (version, found) in [("0.0.1", "version 0.0.1"), ("", "an older one")] {
        let socket = folder.join(format!("altq{version}.sock"));
        let listener = UnixListener::bind(&socket).unwrap();
        let runs = json!({ "schema": "altq.runs/1", "version": version, "language": "native", "text": text,
            "file": file, "only": null, "links": [] });
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut to = stream.try_clone().unwrap();
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let asked: Value = serde_json::from_str(&line).unwrap();
                    let status = json!({ "schema": "altq.status/1", "links": [], "confirm_pending_s": null });
                    let knows = runs["version"] != "";
                    let (ok, what, answer) = match asked["op"].as_str() {
                        Some("status") => (true, "result", status),
                        Some("verify") if knows => (true, "result", runs.clone()),
                        _ => (false, "error", json!({ "code": 2, "message": "there is no request `verify`" })),
                    };
                    let reply = json!({ "schema": "altq.control/1", "id": asked["id"], "ok": ok, what: answer });
                    to.write_all(format!("{reply}\n").as_bytes()).unwrap();
                }
            }
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        let output = command.args(["verify", "--json", "--socket"]).arg(&socket).output().unwrap();
        let said = Said::read(&output);
        let difference = said.found("version", "altq run", found);
        assert_eq!(difference["expected"], json!(format!("version {own}")));
        eprintln!("found: {found}");
    }
    // Nobody answers.
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    let output = command.args(["verify", "--socket"]).arg(folder.join("none.sock")).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The altq that runs is another build than the one that looks, of the same version.
#[test]
fn another_build_is_found() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "verify-build", POLICY, SUPERVISED) else {
        return;
    };
    let other = running.folder.join("altq");
    let mut program = std::fs::read(env!("CARGO_BIN_EXE_altq")).unwrap();
    let verify = |program: &[u8]| {
        std::fs::write(&other, program).unwrap();
        shell(&running, &format!("chmod 755 {}", other.display()));
        let mut command = Command::new(&other);
        Said::read(
            &command.args(["verify", "--json", "--socket"]).arg(running.folder.join("altq.sock")).output().unwrap(),
        )
    };
    // A copy is the same build.
    let said = verify(&program);
    assert_eq!((said.code, said.differences), (Some(0), Vec::new()));
    program.push(0);
    verify(&program).found("version", "altq run", "another build of it: ");
    eprintln!("found: another build");
    running.end();
}

/// What a program prints in a namespace.
fn run(namespace: &Namespace, program: &str, arguments: &str) -> String {
    let output = namespace.run(|| Command::new(program).args(arguments.split(' ')).output()).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    output.map_or_else(|error| error.to_string(), |output| text(&output.stdout) + &text(&output.stderr))
}

/// The handle of the tree on a device, and the class above its first class.
fn tree(namespace: &Namespace, device: &str) -> (String, String) {
    let shown = run(namespace, "tc", &format!("class show dev {device}"));
    let words = shown.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
    let mut own = words.filter(|words| words.get(2).is_some_and(|id| id.ends_with(":1") && !id.starts_with("a17:")));
    let words = own.next().unwrap_or_else(|| panic!("{shown}"));
    let handle = words[2].trim_end_matches('1').to_owned();
    let above = if words.get(3) == Some(&"parent") { words[4].to_owned() } else { handle.clone() };
    (handle, above)
}

/// What somebody does with tc to the qdiscs of a link that no process runs.
#[test]
fn qdiscs_that_were_changed_are_found_and_set_up_again() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => return eprintln!("SKIPPED: this test makes network namespaces, which needs root ({error})"),
    };
    let said = run(&namespace, "ip", "link add name eth0 type veth peer name other");
    if !said.is_empty() {
        return eprintln!("SKIPPED: this test needs iproute2 and veth interfaces ({said})");
    }
    run(&namespace, "ip", "link set dev eth0 up");
    run(&namespace, "ip", "link set dev other up");
    let folder = std::env::temp_dir().join(format!("altq-verify-kernel-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("p.altq");
    std::fs::write(&file, KERNEL).unwrap();
    let (path, socket) = (file.to_str().unwrap(), folder.join("none.sock"));
    let altq = |arguments: &[&str]| {
        namespace.run(|| Command::new(env!("CARGO_BIN_EXE_altq")).args(arguments).output().unwrap()).unwrap()
    };
    let verify = |path: &str| Said::read(&altq(&["verify", "--json", path, "--socket", socket.to_str().unwrap()]));
    let output = altq(&["run", "--detach", path]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(7) {
        return eprintln!("SKIPPED: {error}");
    }
    assert_eq!(output.status.code(), Some(0), "{error}");
    let first = verify(path);
    assert_eq!((first.code, first.differences), (Some(0), Vec::new()));
    assert!(first.checks.iter().any(|check| check == "kernel"));
    let (fix, mut seen) = (format!("altq run --detach {path}"), 0);
    for (change, found) in [
        ("class change dev eth0 parent ABOVE classid HANDLE1 htb rate 1mbit ceil 1mbit", "`voice`"),
        ("filter del dev eth0 parent HANDLE", "filter"),
        ("qdisc replace dev eth0 parent HANDLE1 handle 7777: pfifo limit 7", "`voice`"),
        ("qdisc del dev eth0 root", "no qdiscs of altq's"),
    ] {
        let (handle, above) = tree(&namespace, "eth0");
        let said = run(&namespace, "tc", &change.replace("ABOVE", &above).replace("HANDLE", &handle));
        assert_eq!(said, "", "{change}");
        let after = verify(path);
        assert_eq!(after.found("kernel", "eth0", found)["fix"], json!(fix));
        assert_eq!(altq(&["run", "--detach", path]).status.code(), Some(0), "{change}");
        let again = verify(path);
        assert_eq!((again.code, again.differences), (Some(0), Vec::new()), "{change}");
        eprintln!("found and put right: tc {change}");
        seen += 1;
    }
    assert_eq!(seen, 4);
    // Another file: a class has another rate, and a link has another name.
    let other = folder.join("other.altq");
    std::fs::write(&other, KERNEL.replace("rate 2Mbit/s", "rate 1Mbit/s")).unwrap();
    verify(other.to_str().unwrap()).found("kernel", "eth0", "`voice`");
    std::fs::write(&other, KERNEL.replace("link wan", "link lan")).unwrap();
    let said = verify(other.to_str().unwrap());
    said.found("policy", "link lan", "it does not stand");
    said.found("policy", "link wan", "it stands on eth0");
    assert_eq!(altq(&["stop", "wan"]).status.code(), Some(0));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The same while a process runs the link: a class and a filter, and `altq link set`.
#[test]
fn qdiscs_of_a_running_altq_are_found_and_set_up_again() {
    let Some(world) = world() else { return };
    let policy = KERNEL.replace("device eth0", "device a");
    let Some(running) = Running::start(&world, "verify-qdiscs", &policy, &[]) else { return };
    is_clean(&running);
    let file = running.folder.join("p.altq");
    for (change, found) in [
        ("class change dev a parent ABOVE classid HANDLE1 htb rate 1mbit ceil 1mbit", "`voice`"),
        ("filter del dev a parent HANDLE", "filter"),
    ] {
        let (handle, above) = tree(&world.middle, "a");
        let said = run(&world.middle, "tc", &change.replace("ABOVE", &above).replace("HANDLE", &handle));
        assert_eq!(said, "", "{change}");
        let after = verify(&running, &[file.to_str().unwrap()]);
        put_right(&running, after.found("kernel", "a", found));
        is_clean(&running);
        eprintln!("found and put right: tc {change}");
    }
    done(&running, &["link", "set", "wan", "rate", "12Mbit/s"]);
    let after = verify(&running, &[]);
    put_right(&running, after.found("policy", "link wan", "rate 12Mbit/s"));
    is_clean(&running);
    running.end();
}

/// What `altq verify --probe` says of the only link: its exit code, which expectations fail, and of
/// how many. A host that could not keep time is asked again, and then tells nothing: `None`.
fn probed(ask: impl Fn(&[&str]) -> std::process::Output) -> Option<(Option<i32>, Vec<String>, usize)> {
    for _ in 0..4 {
        let output = ask(&["verify", "--probe", "--for", "2s", "--json"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if matches!(output.status.code(), Some(6 | 7)) {
            eprintln!("SKIPPED: {error}");
            return None;
        }
        let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {error}"));
        assert_eq!(result["schema"], "altq.result/1");
        if result["valid"] != true {
            assert_eq!(output.status.code(), Some(3));
            continue;
        }
        let all = result["expectations"].as_array().unwrap();
        for one in all {
            eprintln!("{}: measured {}, expected {}, {}", one["name"], one["measured"], one["expected"], one["pass"]);
        }
        let failed = all.iter().filter(|one| one["pass"] != true);
        let failed = failed.map(|one| one["name"].as_str().unwrap().to_owned()).collect();
        return Some((output.status.code(), failed, all.len()));
    }
    eprintln!("SKIPPED: this host cannot keep time");
    None
}

/// Three classes, one of which may not borrow.
const PROBED: &str = "link wan { device bridge a b  rate 10Mbit/s  scheduler cbq
    class voice { share 20% }  class bulk { share 30%  borrow }  class rest { share 50%  borrow  default } }
";

/// What runs keeps its own promises, and not those of a file that promises more, or less.
#[test]
fn a_probe_passes_on_what_runs_and_fails_on_what_was_promised() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "verify-probe", PROBED, &[]) else { return };
    let file = running.folder.join("other.altq");
    let path = file.to_str().unwrap().to_owned();
    let ask = |text: Option<&str>| {
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let more: Vec<&str> = text.iter().map(|_| path.as_str()).collect();
        probed(|arguments| running.ask(&[arguments, &more].concat()))
    };
    // Guarantees of all classes, and the ceiling of the one that may not borrow.
    let Some(found) = ask(None) else { return };
    assert_eq!(found, (Some(0), vec![], 4));
    // More is promised than runs.
    let more = PROBED.replace("share 20%", "share 40%").replace("share 50%", "share 30%");
    let Some(found) = ask(Some(&more)) else { return };
    assert_eq!(found, (Some(3), vec!["voice: guarantee 4Mbit/s".to_owned()], 4));
    // A class gets more than it may: it has a ceiling in the file, and borrows where it runs.
    let less = PROBED.replace("share 30%  borrow", "share 10%  borrow  ceiling 2Mbit/s");
    let Some(found) = ask(Some(&less)) else { return };
    assert_eq!(found, (Some(3), vec!["bulk: ceiling 2Mbit/s".to_owned()], 5));
    running.end();
}

/// A policy that promises more than there is does not keep its own promises.
#[test]
fn a_probe_of_a_policy_that_promises_more_than_there_is_fails() {
    let folder = std::env::temp_dir().join(format!("altq-verify-probed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, socket) = (folder.join("p.altq"), folder.join("none.sock"));
    let ask = |text: &str| {
        std::fs::write(&file, text).unwrap();
        probed(|arguments| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
            command.args(arguments).arg(&file).arg("--socket").arg(&socket).output().unwrap()
        })
    };
    let right = PROBED.replace("device bridge a b", "");
    let wrong = right.replace("rate 10Mbit/s", "rate 10Mbit/s  overcommit").replace("share 20%", "share 60%");
    if let Some(found) = ask(&right) {
        assert_eq!(found, (Some(0), vec![], 4));
    }
    if let Some((code, failed, _)) = ask(&wrong) {
        // 140 % are promised, so somebody gets less than 100 / 140 of it.
        assert!(code == Some(3) && failed.iter().any(|name| name.contains("guarantee")), "{code:?} {failed:?}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
