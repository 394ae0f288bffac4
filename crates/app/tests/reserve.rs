//! `altq reserve` on a running altq. The tests are skipped with a message where the host does not
//! allow them.

mod client;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{altq, err, out};
use serde_json::Value;
use world::{World, world};

/// From the left host to the right one; 8 of 20 Mbit/s can be reserved, and bursts of 75,000 bytes.
const POLICY: &str = "link down { device bridge a b  rate 20Mbit/s  scheduler cbq
        class res { rate 8Mbit/s  priority 6  reservations { lifetime 600s } }
        class rest { rate 12Mbit/s  borrow  default } }
    link up { device bridge b a  rate 20Mbit/s  scheduler fifo  class all { default } }";

/// A folder for a policy, a socket and a log, which goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, policy: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("altq-reserve-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        let folder = Folder(path);
        folder.write(policy);
        folder
    }

    fn write(&self, policy: &str) {
        std::fs::write(self.0.join("p.altq"), policy).unwrap();
    }

    fn socket(&self) -> PathBuf {
        self.0.join("altq.sock")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.0.join("log")).unwrap_or_default()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `altq run` in the middle of a world.
struct Running<'f> {
    folder: &'f Folder,
    child: Child,
}

impl Running<'_> {
    /// Starts it, and waits until it has counted once. `None`, with a message, if the host lacks
    /// something.
    fn start<'f>(world: &World, folder: &'f Folder, more: &[&str]) -> Option<Running<'f>> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.arg("run").arg(folder.0.join("p.altq")).arg("--socket").arg(folder.socket()).args(more);
        command.args(["--quiet", "--interval", "50ms"]).stdin(Stdio::null()).stdout(Stdio::null());
        command.arg("--state").arg(folder.0.join("state"));
        command.stderr(std::fs::File::create(folder.0.join("log")).unwrap());
        let child = world.middle.run(|| command.spawn().unwrap()).unwrap();
        let mut running = Running { folder, child };
        let end = Instant::now() + Duration::from_secs(20);
        while ["status", "stat"].iter().any(|word| running.ask(&[word]).status.code() != Some(0)) {
            if let Some(status) = running.child.try_wait().unwrap() {
                assert!(matches!(status.code(), Some(6 | 7)), "{status} {}", folder.log());
                eprintln!("SKIPPED: {}", folder.log().trim_end());
                return None;
            }
            assert!(Instant::now() < end, "it does not shape: {}", folder.log());
            thread::sleep(Duration::from_millis(20));
        }
        Some(running)
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        altq(&self.folder.socket(), arguments)
    }

    /// What a command prints as JSON, whether it was granted or not.
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.ask(&[arguments, &["--json"]].concat());
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", err(&output)))
    }

    fn list(&self) -> Vec<Value> {
        self.json(&["reserve", "list"])["reservations"].as_array().unwrap().clone()
    }

    /// The reserved class of a link in the counters.
    fn class(&self, name: &str) -> Value {
        let stat = self.json(&["stat", "down"]);
        let classes = stat["links"][0]["classes"].as_array().unwrap();
        classes.iter().find(|class| class["name"] == name).cloned().unwrap_or_default()
    }

    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Ends it as a service is ended.
    fn end(mut self) {
        self.signal("-TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{}", self.folder.log());
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

/// Waits until a condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A reservation for UDP to a port.
fn add<'a>(key: &'a str, flow: &'a str, rate: &'a str) -> Vec<&'a str> {
    let words = ["reserve", "add", "--flow", flow, "--rate", rate, "--burst", "6000", "--min-unit", "1000"];
    [&words[..], &["--key", key]].concat()
}

const FLOW: &str = "proto=udp dst=10.9.0.2 dport=5004";

/// Datagrams of 1000 bytes at layer 3 to a port of the right host, at a rate in bit/s, until it is
/// told to stop or so many are sent. What the sender was held up for it sends at once, but no more
/// than four at a time.
fn send(world: &World, port: u16, rate: u64, most: u64, stop: Arc<AtomicBool>) -> thread::JoinHandle<u64> {
    let socket = world.left.run(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
    let to = format!("10.9.0.2:{port}");
    thread::spawn(move || {
        let (each, data) = (Duration::from_nanos(1000 * 8 * 1_000_000_000 / rate), [0_u8; 972]);
        let (mut next, mut sent) = (Instant::now(), 0);
        while sent < most && !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            // Time that was lost is lost: it would become a burst.
            next = next.max(now - 4 * each);
            while next <= now && sent < most {
                sent += u64::from(socket.send_to(&data, &to).is_ok());
                next += each;
            }
            thread::sleep(each / 2);
        }
        sent
    })
}

/// Counts datagrams that come to a port of the right host.
fn receive(world: &World, port: u16) -> Arc<AtomicU64> {
    let socket = world.right.run(|| UdpSocket::bind(("10.9.0.2", port)).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::downgrade(&count);
    thread::spawn(move || {
        let mut data = [0; 2000];
        while let Some(counted) = counted.upgrade() {
            if socket.recv(&mut data).is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    count
}

#[test]
fn without_a_running_altq_one_line_says_what_to_do() {
    let folder = Folder::new("nobody", POLICY);
    for arguments in [
        &["reserve", "list"][..],
        &["reserve", "watch"],
        &["reserve", "del", "--key", "a"],
        &["reserve", "modify", "--key", "a", "--rate", "1Mbit/s"],
    ] {
        let output = altq(&folder.socket(), arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", err(&output));
        assert!(err(&output).contains("no altq runs") && err(&output).lines().count() == 1, "{}", err(&output));
    }
    for (arguments, why) in [
        (&["reserve", "del"][..], "--key"),
        (&["reserve", "add", "--flow", "proto=icmp dport=7", "--rate", "1Mbit/s", "--burst", "1500"], "no ports"),
        (&["reserve", "add", "--flow", "dport=7", "--rate", "1", "--burst", "1500"], "of what"),
        (&["reserve", "add", "--flow", "dport=7", "--rate", "1Mbit/s"], "--burst"),
        (&["reserve", "refresh", "--key", ""], "1 to 255"),
    ] {
        let output = altq(&folder.socket(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", err(&output));
        assert!(err(&output).contains(why), "{arguments:?}: {}", err(&output));
    }
    let help = out(&Command::new(env!("CARGO_BIN_EXE_altq")).args(["reserve", "--help"]).output().unwrap());
    assert!(help.contains("altq reserve add --flow") && help.contains("watch"), "{help}");
}

#[test]
fn check_says_where_reservations_go_and_what_room_there_is() {
    let policy = POLICY.replace("lifetime 600s", "lifetime 600s  delay 50ms  owner-most 3  owner-rate 2Mbit/s");
    let folder = Folder::new("check", &policy);
    let check = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.arg("check").arg(folder.0.join("p.altq")).args(more).output().unwrap()
    };
    let text = out(&check(&[]));
    let line = text.lines().find(|line| line.trim_start().starts_with("reserved")).unwrap();
    assert!(line.contains("8 Mbit/s below res, bursts of 75000 bytes"), "{line}");
    assert!(
        line.contains("50ms") && line.contains("600s") && line.contains("2 Mbit/s and 3 of them an owner"),
        "{line}"
    );
    let json: Value = serde_json::from_slice(&check(&["--json"]).stdout).unwrap();
    let there = &json["links"][0]["reservations"];
    let expected = serde_json::json!({
        "class": "res", "reservable_bit_s": 8_000_000, "buffer_bytes": 75_000, "delay_ns": 50_000_000,
        "lifetime_ns": 600_000_000_000_u64, "most": 1_000_000, "owner_bit_s": 2_000_000, "owner_most": 3,
    });
    assert_eq!(there, &expected);
    assert!(json["links"][1].get("reservations").is_none());
    folder.write(&policy.replace("device bridge a b", "device a  path kernel"));
    let output = check(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("takes no reservations"), "{}", err(&output));
}

#[test]
fn a_reservation_gets_its_rate_while_a_flood_goes() {
    let Some(world) = world() else { return };
    let folder = Folder::new("rate", POLICY);
    let Some(running) = Running::start(&world, &folder, &[]) else { return };
    let asked = ["--burst", "30kbytes", "--max-packet", "1000", "--for", "10m", "--min-unit", "1000"];
    let asked = [&["reserve", "add", "--flow", FLOW, "--rate", "6Mbit/s", "--key", "call"], &asked[..]].concat();
    let answer = running.json(&asked);
    let expected = serde_json::json!({
        "schema": "altq.reserve/1", "granted": true, "id": 1, "key": "call", "owner": answer["owner"], "class": "res.1",
        "rate_bit_s": 6_000_000, "charged_bit_s": 6_000_000, "expires_s": 600.0, "reason": null, "bottleneck": null,
        "would_fit_bit_s": null, "rsvp_code": null, "rsvp_value": null,
    });
    assert_eq!(answer, expected);
    assert!(answer["owner"].as_str().unwrap().starts_with("uid:"));
    // Counters are those of the loop's latest report.
    until("the loop has the class", || !running.class("res.1").is_null());
    let class = running.class("res.1");
    assert_eq!((&class["parent"], &class["guaranteed_bit_s"]), (&"res".into(), &6_000_000.into()));
    // Twice what the link carries, and 4 Mbit/s of the reservation: 1000 packets in 2 s.
    let (stop, received) = (Arc::new(AtomicBool::new(false)), receive(&world, 5004));
    let flood = send(&world, 9999, 40_000_000, u64::MAX, stop.clone());
    until("the flood overflows its queue", || running.class("rest")["dropped"]["queue_full"].as_u64() > Some(0));
    let sent = send(&world, 5004, 4_000_000, 1000, Arc::default()).join().unwrap();
    assert_eq!(sent, 1000);
    until("all have come", || received.load(Ordering::Relaxed) == 1000);
    until("all are counted", || running.class("res.1")["sent_packets"] == 1000);
    let class = running.class("res.1");
    assert_eq!((&class["received_packets"], &class["dropped"]), (&1000.into(), &serde_json::json!({})), "{class}");
    let rest = running.class("rest");
    assert!(rest["dropped"]["queue_full"].as_u64() > Some(1000), "the flood went on: {rest}");
    // Another port is none of it.
    until("the flood is in the default class", || running.class("rest")["received_packets"].as_u64() > Some(1000));
    stop.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    let gone = running.ask(&["reserve", "del", "--key", "call"]);
    assert_eq!((gone.status.code(), out(&gone).as_str()), (Some(0), "reservation 1 (call): given up\n"));
    until("its class is gone", || running.class("res.1").is_null());
    running.end();
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let Some(world) = world() else { return };
    let folder = Folder::new("refused", POLICY);
    let Some(running) = Running::start(&world, &folder, &[]) else { return };
    let granted = running.ask(&add("a", FLOW, "5Mbit/s"));
    assert_eq!(granted.status.code(), Some(0), "{}", err(&granted));
    let said = out(&granted);
    assert!(
        said.starts_with("reservation 1 (a): 5Mbit/s, 5Mbit/s on the wire, class res.1, ends in 600.0 s"),
        "{said}"
    );
    // 3 of 8 Mbit/s are left.
    let other = "proto=udp dport=6000";
    let refused = running.ask(&add("b", other, "4Mbit/s"));
    assert_eq!((refused.status.code(), out(&refused)), (Some(5), String::new()));
    let said = err(&refused);
    for part in ["refused: ", "3Mbit/s left of `res`", "res is in the way", "3Mbit/s would fit"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(said.lines().count(), 1, "{said}");
    let answer = running.json(&add("b", other, "4Mbit/s"));
    assert_eq!(
        (&answer["granted"], &answer["bottleneck"], &answer["id"]),
        (&false.into(), &"res".into(), &Value::Null)
    );
    assert_eq!(
        (&answer["would_fit_bit_s"], &answer["rsvp_code"], &answer["rsvp_value"]),
        (&3_000_000.into(), &1.into(), &2.into())
    );
    // What would fit does, and then the old one stands where more of it is refused.
    assert_eq!(running.ask(&add("b", other, "3Mbit/s")).status.code(), Some(0));
    let modify = |rate| {
        running.ask(&["reserve", "modify", "--key", "a", "--rate", rate, "--burst", "6000", "--min-unit", "1000"])
    };
    let refused = modify("5001kbit/s");
    assert_eq!(refused.status.code(), Some(5));
    assert!(err(&refused).contains("reservation 1 stands as it was"), "{}", err(&refused));
    let rates =
        || running.list().iter().map(|there| there["tspec"]["rate_bit_s"].as_u64().unwrap()).collect::<Vec<u64>>();
    assert_eq!(rates(), [5_000_000, 3_000_000]);
    until("the class is as it was", || running.class("res.1")["guaranteed_bit_s"] == 5_000_000);
    assert_eq!(modify("1Mbit/s").status.code(), Some(0));
    assert_eq!(rates(), [1_000_000, 3_000_000]);
    until("the class follows", || running.class("res.1")["guaranteed_bit_s"] == 1_000_000);
    // What is not given stays.
    assert_eq!(running.ask(&["reserve", "modify", "--key", "a", "--burst", "6500"]).status.code(), Some(0));
    let bucket = running.list()[0]["tspec"].clone();
    assert_eq!((&bucket["burst_bytes"], &bucket["min_unit_bytes"]), (&6500.into(), &1000.into()), "{bucket}");
    assert_eq!(rates(), [1_000_000, 3_000_000]);
    for (more, code, value) in [
        (&["--service", "guaranteed"][..], 21, 2),
        (&["--delay", "1us"], 1, 1),
        (&["--max-packet", "9000"], 1, 3),
        (&["--burst", "80kbytes"], 1, 2),
    ] {
        let mut words = add("c", "proto=udp dport=7000", "100kbit/s");
        words.retain(|word| !(more[0] == "--burst" && ["--burst", "6000"].contains(word)));
        let answer = running.json(&[&words[..], more].concat());
        assert_eq!((&answer["rsvp_code"], &answer["rsvp_value"]), (&code.into(), &value.into()), "{more:?} {answer}");
    }
    let list = out(&running.ask(&["reserve", "list"]));
    assert!(list.contains("down/res: 4Mbit/s of 8Mbit/s reserved") && list.contains("dport=6000"), "{list}");
    running.end();
}

#[test]
fn reservations_end_by_themselves_and_those_who_watch_are_told() {
    let Some(world) = world() else { return };
    let folder = Folder::new("watch", POLICY);
    let Some(running) = Running::start(&world, &folder, &[]) else { return };
    let mut watch = Command::new(env!("CARGO_BIN_EXE_altq"));
    watch.args(["reserve", "watch", "--socket"]).arg(folder.socket()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap());
    let mut event = || -> Value {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    };
    // It is told what follows its request, so something must happen until it hears of it.
    let heard = thread::scope(|scope| {
        let first = scope.spawn(|| {
            loop {
                let event = event();
                if event["event"] == "deleted" {
                    return event;
                }
            }
        });
        while !first.is_finished() {
            assert_eq!(running.ask(&add("first", FLOW, "1Mbit/s")).status.code(), Some(0));
            assert_eq!(running.ask(&["reserve", "del", "--key", "first"]).status.code(), Some(0));
        }
        first.join().unwrap()
    });
    let mut seq = heard["seq"].as_u64().unwrap();
    let mut next = |key: &str| loop {
        let event = event();
        seq += 1;
        assert_eq!((&event["schema"], &event["seq"]), (&"altq.reserve-event/1".into(), &seq.into()));
        if event["key"] == key {
            return event;
        }
    };
    let mut short = add("short", FLOW, "1Mbit/s");
    short.extend(["--for", "1500ms"]);
    let begun = Instant::now();
    assert_eq!(running.ask(&short).status.code(), Some(0));
    let granted = next("short");
    assert_eq!(
        (&granted["event"], &granted["expires_s"], &granted["link"]),
        (&"granted".into(), &1.5.into(), &"down".into())
    );
    let over = next("short");
    let time = begun.elapsed();
    assert_eq!((&over["event"], &over["reason"]), (&"expired".into(), &Value::Null));
    assert!(time >= Duration::from_millis(1500), "{time:?}");
    until("its class is gone", || running.class(granted["class"].as_str().unwrap()).is_null());
    assert!(running.list().is_empty());
    // What changes; a refresh is none.
    assert_eq!(running.ask(&add("long", FLOW, "5Mbit/s")).status.code(), Some(0));
    assert_eq!(next("long")["event"], "granted");
    assert_eq!(running.ask(&["reserve", "refresh", "--key", "long"]).status.code(), Some(0));
    assert_eq!(running.ask(&add("long", FLOW, "4Mbit/s")).status.code(), Some(0));
    let changed = next("long");
    assert_eq!((&changed["event"], &changed["rate_bit_s"]), (&"changed".into(), &4_000_000.into()));
    // A policy that has no room for it any more, and one that has for the other.
    assert_eq!(running.ask(&add("small", "proto=udp dport=7", "500kbit/s")).status.code(), Some(0));
    assert_eq!(next("small")["event"], "granted");
    folder.write(&POLICY.replace("rate 8Mbit/s", "rate 1Mbit/s"));
    let file = folder.0.join("p.altq");
    let refused = running.ask(&["apply", file.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(5), "{}", err(&refused));
    assert!(err(&refused).contains("would not fit: reservation "), "{}", err(&refused));
    let applied = running.ask(&["apply", file.to_str().unwrap(), "--evict"]);
    assert_eq!(applied.status.code(), Some(0), "{}", err(&applied));
    let preempted = next("long");
    assert_eq!(preempted["event"], "preempted");
    assert!(preempted["reason"].as_str().unwrap().contains("left of `res`"), "{preempted}");
    let there = running.list();
    assert_eq!((there.len(), &there[0]["key"]), (1, &"small".into()));
    until("its class is gone", || running.class(changed["class"].as_str().unwrap()).is_null());
    // The end of altq is that of the watch.
    running.end();
    let output = watch.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(err(&output).contains("altq has closed the connection"), "{}", err(&output));
}

/// A user who may change things has reservations of his own, and none of others.
#[test]
fn users_have_reservations_of_their_own() {
    let Some(world) = world() else { return };
    let folder = Folder::new("owners", &POLICY.replace("lifetime 600s", "owner-most 1"));
    let Some(running) = Running::start(&world, &folder, &["--group", "65534", "--socket-mode", "0666"]) else { return };
    let user = |gid: u32, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.args(arguments).arg("--socket").arg(folder.socket()).uid(65534).gid(gid).output()
    };
    assert_eq!(running.ask(&add("root's", FLOW, "1Mbit/s")).status.code(), Some(0));
    let other = "proto=udp dport=6000";
    let Ok(granted) = user(65534, &add("his", other, "1Mbit/s")) else {
        eprintln!("SKIPPED in part: another user cannot run the program here");
        return running.end();
    };
    assert_eq!(granted.status.code(), Some(0), "{}", err(&granted));
    let owners: Vec<Value> = running.list().iter().map(|there| there["owner"].clone()).collect();
    assert_eq!(owners, ["uid:0", "uid:65534"]);
    for (gid, arguments, code, why) in [
        (65534, vec!["reserve", "del", "--key", "root's"], 5, "another owner"),
        (65534, vec!["reserve", "del", "--key", "his", "--owner", "uid:0"], 6, "in the name `uid:65534` only"),
        // The policy's quota is that of each owner.
        (65534, add("more", "proto=udp dport=6001", "1Mbit/s"), 5, "`uid:65534` has 1 reservations"),
        (12345, add("none", "proto=udp dport=6001", "1Mbit/s"), 6, "may read, but not change"),
    ] {
        let output = user(gid, &arguments).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", err(&output));
        assert!(err(&output).contains(why), "{arguments:?}: {}", err(&output));
    }
    let listed = user(12345, &["reserve", "list"]).unwrap();
    assert_eq!(listed.status.code(), Some(0), "{}", err(&listed));
    // Root may name an owner, as a daemon does for others, and may change any.
    let mut daemon = add("rsvp:1", "proto=udp dport=6002", "1Mbit/s");
    daemon.extend(["--owner", "rsvp:10.0.12.2"]);
    assert_eq!(running.json(&daemon)["owner"], "rsvp:10.0.12.2");
    for key in ["his", "rsvp:1"] {
        assert_eq!(running.ask(&["reserve", "del", "--key", key]).status.code(), Some(0), "{key}");
    }
    assert_eq!(running.list().len(), 1);
    running.end();
}

#[test]
fn a_policy_without_a_class_for_reservations_says_what_to_write() {
    let Some(world) = world() else { return };
    let folder = Folder::new("none", &POLICY.replace("reservations { lifetime 600s }", ""));
    let Some(running) = Running::start(&world, &folder, &[]) else { return };
    let refused = running.ask(&add("a", FLOW, "1Mbit/s"));
    assert_eq!(refused.status.code(), Some(5));
    assert!(err(&refused).contains("write `reservations` in a class"), "{}", err(&refused));
    let list = running.ask(&["reserve", "list"]);
    assert_eq!((list.status.code(), out(&list)), (Some(0), String::new()));
    running.end();
}

/// Another worker has the reservations of the one before, under their numbers, keys and owners, and
/// they end when they would have ended.
#[test]
fn reservations_outlive_their_worker() {
    let Some(world) = world() else { return };
    let folder = Folder::new("restart", POLICY);
    // On a busy machine a worker may be silent for a while.
    let supervised = ["--supervise", "--user", "nobody", "--watchdog", "10s"];
    let Some(running) = Running::start(&world, &folder, &supervised) else { return };
    let children = format!("/proc/{0}/task/{0}/children", running.child.id());
    if !Path::new(&children).exists() {
        eprintln!("SKIPPED: this kernel does not list the children of a process (CONFIG_PROC_CHILDREN)");
        return;
    }
    let worker = || {
        let found = std::fs::read_to_string(&children).unwrap_or_default();
        found.split_whitespace().filter_map(|word| word.parse().ok()).find(|pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.windows(8).any(|part| part == b"--worker")
        })
    };
    let mut first = add("kept", FLOW, "5Mbit/s");
    first.extend(["--owner", "rsvp:10.0.12.2", "--for", "8m"]);
    assert_eq!(running.ask(&first).status.code(), Some(0), "{}", folder.log());
    let mut short = add("short", "proto=udp dport=1", "1Mbit/s");
    short.extend(["--for", "6s"]);
    let begun = Instant::now();
    assert_eq!(running.ask(&short).status.code(), Some(0));
    assert_eq!(running.ask(&add("gone", "proto=udp dport=2", "1Mbit/s")).status.code(), Some(0));
    assert_eq!(running.ask(&["reserve", "del", "--key", "gone"]).status.code(), Some(0));
    let before = running.list();
    let old = worker().unwrap();
    signal(old, "-KILL");
    until("another worker has them", || {
        let other = worker().is_some_and(|worker| worker != old);
        let list = running.ask(&["reserve", "list", "--json"]);
        other && list.status.code() == Some(0)
    });
    let after = running.list();
    let named = |list: &[Value]| -> Vec<[Value; 5]> {
        let one = |there: &Value| ["id", "key", "owner", "class", "flows"].map(|word| there[word].clone());
        list.iter().map(one).collect()
    };
    assert_eq!(named(&after), named(&before), "{}", folder.log());
    let left = |list: &[Value]| list[0]["expires_s"].as_f64().unwrap();
    assert!(left(&after) < left(&before) && left(&after) > left(&before) - 60.0, "{after:?}");
    // Room is taken as before, and the packets are in their class.
    assert_eq!(running.ask(&add("much", "proto=udp dport=3", "3Mbit/s")).status.code(), Some(5));
    let received = receive(&world, 5004);
    let sent = send(&world, 5004, 1_000_000, 50, Arc::default()).join().unwrap();
    until("they have come", || received.load(Ordering::Relaxed) == sent);
    until("they are counted", || running.class("res.1")["sent_packets"] == sent);
    until("the short one ends", || running.list().len() == 1);
    assert!(begun.elapsed() >= Duration::from_secs(6), "{:?}", begun.elapsed());
    assert_eq!(running.json(&add("new", "proto=udp dport=4", "1Mbit/s"))["id"], 4, "no number is used twice");
    running.end();
}
