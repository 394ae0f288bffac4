//! `altq apply` and the commands around it: changes while packets wait, changes that are taken
//! back, and what is left after everything was killed. The tests are skipped with a message where
//! the host does not allow them.

mod client;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use client::{altq, err, out};
use serde_json::Value;
use world::{Bulk, World, round_trips, world};

/// What the host on the left sends to port 7 of the other belongs to `calls`.
const POLICY: &str = "# The line.
link wan { device bridge a b  rate 100Mbit/s  scheduler cbq
    class calls { share 20%  borrow }   # and games
    class bulk { share 30%  borrow }
    class rest { share 40%  borrow  default }
    match dport 7 -> calls }
";

/// The same with other shares, one class less and one more, and another order.
fn other() -> String {
    POLICY
        .replace("class bulk { share 30%  borrow }", "class more { share 10%  borrow  class inner { share 5% } }")
        .replace("share 20%", "share 25%")
        .replace("match dport 7 -> calls", "match dport 9 -> inner  match dport 7 -> calls")
}

/// `altq run` in the middle of a world, with a folder for its policy, socket and state.
struct Running<'w> {
    world: &'w World,
    folder: PathBuf,
    child: Child,
    more: &'static [&'static str],
}

impl<'w> Running<'w> {
    /// `None`, with a message, if the host lacks something.
    fn start(world: &'w World, name: &str, more: &'static [&'static str]) -> Option<Running<'w>> {
        let folder = std::env::temp_dir().join(format!("altq-apply-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("p.altq"), POLICY).unwrap();
        let child = spawn(world, &folder, more);
        let mut running = Running { world, folder, child, more };
        running.shapes().then_some(running)
    }

    /// Starts it again after everything was killed.
    fn again(&mut self) {
        self.child = spawn(self.world, &self.folder, self.more);
        assert!(self.shapes(), "it ran before");
    }

    /// Waits until it shapes. False, with a message, if the host lacks something.
    fn shapes(&mut self) -> bool {
        let end = Instant::now() + Duration::from_secs(20);
        while ["status", "stat"].iter().any(|command| self.ask(&[command]).status.code() != Some(0)) {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(matches!(status.code(), Some(6 | 7)), "{status}: {}", self.log());
                eprintln!("SKIPPED: this host cannot run a bridge");
                return false;
            }
            assert!(Instant::now() < end, "it does not shape: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        altq(&self.folder.join("altq.sock"), arguments)
    }

    /// Applies a policy with these options.
    fn apply(&self, text: &str, options: &[&str]) -> Output {
        let file = self.folder.join("other.altq");
        std::fs::write(&file, text).unwrap();
        self.ask(&[&["apply", file.to_str().unwrap()][..], options].concat())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.ask(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The names of the link and of its classes as the loop has reported them last, in their own
    /// order.
    fn classes(&self) -> String {
        let stat = self.json(&["stat", "--json"]);
        let classes = stat["links"][0]["classes"].as_array().unwrap();
        let mut names: Vec<&str> = classes.iter().filter_map(|class| class["name"].as_str()).collect();
        names[1..].sort_unstable();
        names.join(" ")
    }

    /// Waits until the loop has these classes.
    fn has(&self, expected: &str) {
        until(expected, || self.classes() == expected);
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap()
    }

    /// What was changed: the number, and what happened.
    fn history(&self) -> Vec<(u64, String)> {
        let history = self.json(&["history", "--json"]);
        let entry = |entry: &Value| (entry["number"].as_u64().unwrap(), entry["what"].as_str().unwrap().to_owned());
        history["changes"].as_array().unwrap().iter().map(entry).collect()
    }

    /// How long a change still waits.
    fn waits(&self) -> Option<u64> {
        self.json(&["status", "--json"])["confirm_pending_s"].as_u64()
    }

    /// Kills the process and, if it has one, its worker.
    fn kill_all(&mut self) {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let workers = std::fs::read_to_string(children).unwrap_or_default();
        self.child.kill().unwrap();
        for worker in workers.split_whitespace() {
            let _ = Command::new("kill").args(["-KILL", worker]).stderr(Stdio::null()).status();
        }
        self.child.wait().unwrap();
        // A zombie has closed its files, and so given up its lock; before that its successor is
        // refused.
        let is_gone = |worker: &str| {
            let stat = std::fs::read_to_string(format!("/proc/{worker}/stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with(['Z', 'X']))
        };
        for worker in workers.split_whitespace() {
            until("the worker is gone", || is_gone(worker));
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn spawn(world: &World, folder: &Path, more: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.arg("run").arg(folder.join("p.altq")).arg("--socket").arg(folder.join("altq.sock"));
    command.arg("--state").arg(folder.join("state")).args(["--quiet", "--interval", "50ms"]).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap();
    command.stderr(log);
    world.middle.run(|| command.spawn().unwrap()).unwrap()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

const SUPERVISED: &[&str] = &["--supervise", "--unconfined"];

/// Each command in turn, with and without a supervisor: what it does, what it says, how it ends.
#[test]
fn policies_are_applied_confirmed_rolled_back_and_remembered() {
    let Some(world) = world() else { return };
    for (name, more) in [("alone", &[][..]), ("supervised", &["--supervise", "--user", "nobody"])] {
        let Some(running) = Running::start(&world, name, more) else { return };
        let code = |output: &Output| output.status.code();
        // Nothing is changed by a check.
        let check = running.apply(&other(), &["--check", "--diff"]);
        assert_eq!(code(&check), Some(3), "{}", err(&check));
        let lines = out(&check);
        assert!(lines.contains("class calls: rate 25Mbit/s, before rate 20Mbit/s\n"), "{lines}");
        assert!(lines.contains("class inner: new, below more  rate 5Mbit/s"), "{lines}");
        assert!(lines.contains("class bulk: gone\n") && lines.contains("rule match dport 9 -> inner: new"), "{lines}");
        assert_eq!(code(&running.apply(POLICY, &["--check", "--diff"])), Some(0));
        assert_eq!(running.history(), []);
        // What is no policy, and what cannot be done.
        assert_eq!(code(&running.apply("link wan { rate }", &[])), Some(2));
        for (text, why) in [
            (POLICY.replace("bridge a b", "bridge b a"), "only a new start can change this: its device"),
            (POLICY.replace("scheduler cbq", "mtu 1400  scheduler cbq"), "its mtu"),
            (POLICY.replace("link wan", "link lan"), "link `lan` is new"),
        ] {
            let refused = running.apply(&text, &[]);
            assert_eq!(code(&refused), Some(5), "{}", err(&refused));
            assert!(err(&refused).contains(why) && err(&refused).contains("start"), "{}", err(&refused));
        }
        // A change that is confirmed stays.
        let applied = running.apply(&other(), &["--confirm", "60s"]);
        assert_eq!(code(&applied), Some(0), "{}", err(&applied));
        assert!(err(&applied).contains("taken back in 60 s unless `altq confirm` comes"), "{}", err(&applied));
        running.has("wan calls inner more rest");
        assert!(running.waits().is_some_and(|left| left > 50 && left <= 60));
        let second = running.apply(POLICY, &[]);
        assert_eq!(code(&second), Some(5), "{}", err(&second));
        assert!(err(&second).contains("waits to be confirmed"), "{}", err(&second));
        assert_eq!(code(&running.ask(&["confirm"])), Some(0));
        assert_eq!((running.waits(), code(&running.ask(&["confirm"]))), (None, Some(5)));
        let drift = &running.json(&["status", "--json"])["links"][0]["drift"];
        assert!(drift[0].as_str().unwrap().contains("the file says otherwise"), "{drift}");
        // And back, and back again: the policy before is always one step away.
        assert_eq!(code(&running.ask(&["rollback"])), Some(0));
        running.has("wan bulk calls rest");
        assert_eq!(running.json(&["status", "--json"])["links"][0]["drift"], serde_json::json!([]));
        let what = |number: u64, what: &str| (number, what.to_owned());
        let expected = [what(1, "applied"), what(1, "confirmed"), what(2, "rolled-back")];
        assert_eq!(running.history(), expected, "{}", running.log());
        let text = out(&running.ask(&["history"]));
        assert!(text.contains("change 1: applied ") && text.contains("    class bulk: gone\n"), "{text}");
        // A change that nobody confirms goes by itself, and so does one that is rolled back.
        assert_eq!(code(&running.apply(&other(), &["--confirm", "1s"])), Some(0));
        until("it is taken back", || running.waits().is_none());
        running.has("wan bulk calls rest");
        assert_eq!(code(&running.apply(&other(), &["--confirm", "60s"])), Some(0));
        assert_eq!(code(&running.ask(&["rollback"])), Some(0));
        let expected = [what(3, "applied"), what(3, "reverted"), what(4, "applied"), what(4, "reverted")];
        assert_eq!(running.history()[3..], expected, "{}", running.log());
        // Once more goes one policy further back only if that is meant.
        let again = running.ask(&["rollback"]);
        assert_eq!(code(&again), Some(5), "{}", err(&again));
        assert!(err(&again).contains("change 4 is taken back already"), "{}", err(&again));
        assert_eq!(code(&running.ask(&["rollback", "--force"])), Some(0));
        running.has("wan calls inner more rest");
        round_trips(&world, "10.9.0.2:7", 5);
    }
}

/// Guards that would be watched longer than the change waits are refused before altq is asked, here
/// by commands that no altq could answer.
#[test]
fn guards_are_not_watched_longer_than_a_change_waits() {
    let folder = std::env::temp_dir().join(format!("altq-apply-{}-longer", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("p.altq");
    std::fs::write(&file, POLICY).unwrap();
    let safely = ["--guard", "class calls p99 < 20ms", "--confirm", "5s", "--guard-for"];
    for command in [&["apply", file.to_str().unwrap()][..], &["class", "set", "wan/calls", "share 25%"]] {
        for (time, code) in [("5s", 2), ("1h", 2), ("4s", 1)] {
            let output = altq(&folder.join("none"), &[command, &safely, &[time]].concat());
            assert_eq!(output.status.code(), Some(code), "{command:?} {time}: {}", err(&output));
            assert_eq!(err(&output).contains("--guard-for"), code == 2, "{}", err(&output));
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// One thing is changed, is shown as drift, and is written back into the file, comments kept.
#[test]
fn classes_and_rules_are_edited_and_saved() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "edit", &[]) else { return };
    let done = |arguments: &[&str]| {
        let output = running.ask(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", err(&output));
    };
    done(&["class", "set", "wan/calls", "share", "25%", "no", "borrow"]);
    done(&["class", "add", "wan/games", "--below", "calls", "share 5%"]);
    done(&["match", "add", "wan", "dport 9 -> games"]);
    done(&["match", "remove", "wan", "dport 7 -> calls"]);
    done(&["class", "remove", "wan/bulk"]);
    let refused = running.ask(&["class", "remove", "wan/games"]);
    assert_eq!(refused.status.code(), Some(2), "{}", err(&refused));
    assert!(err(&refused).contains("no class `games`"), "{}", err(&refused));
    let drift = running.json(&["status", "--json"])["links"][0]["drift"].clone();
    assert!(
        drift.as_array().unwrap().iter().any(|line| line.as_str().unwrap().contains("class games: new")),
        "{drift}"
    );
    // The class that the packets belong to is another one now.
    let expected = POLICY
        .replace("share 20%  borrow }", "share 25% class games { share 5% } }")
        .replace("    class bulk { share 30%  borrow }\n", "")
        .replace("match dport 7 -> calls }", "match dport 9 -> games\n }");
    assert_eq!(out(&running.ask(&["save", "-"])), expected);
    done(&["save"]);
    assert_eq!(std::fs::read_to_string(running.folder.join("p.altq")).unwrap(), expected);
    // It is no difference any more, and may be saved again.
    assert_eq!(running.json(&["status", "--json"])["links"][0]["drift"], serde_json::json!([]));
    done(&["class", "set", "wan/calls", "share", "30%"]);
    done(&["save"]);
    done(&["class", "set", "wan/calls", "share", "25%"]);
    done(&["save"]);
    assert_eq!(std::fs::read_to_string(running.folder.join("p.altq")).unwrap(), expected);
    // The file says what runs.
    assert!(Command::new("kill").args(["-HUP", &running.child.id().to_string()]).status().unwrap().success());
    until("it is read", || running.log().contains("asks for what runs already"));
    assert_eq!(running.json(&["status", "--json"])["links"][0]["drift"], serde_json::json!([]));
}

/// What somebody has written into the file meanwhile is not replaced, nor are its comments by a
/// policy that was put together, unless that is asked for.
#[test]
fn a_save_replaces_only_what_altq_has_read() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "save", &[]) else { return };
    let file = running.folder.join("p.altq");
    let elsewhere = running.folder.join("elsewhere.altq");
    let save = |options: &[&str]| running.ask(&[&["save"][..], options].concat());
    let is_refused = |text: &str, why: &str| {
        let refused = save(&[]);
        assert_eq!(refused.status.code(), Some(5), "{}", err(&refused));
        assert!(err(&refused).contains(why) && err(&refused).contains("--force"), "{}", err(&refused));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    };
    assert_eq!(running.ask(&["class", "set", "wan/calls", "share", "25%"]).status.code(), Some(0));
    let edited = format!("{POLICY}# my line\n");
    std::fs::write(&file, &edited).unwrap();
    is_refused(&edited, "somebody has changed it");
    assert_eq!(save(&[elsewhere.to_str().unwrap()]).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), POLICY.replace("20%", "25%"));
    assert_eq!(save(&["--force"]).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), POLICY.replace("20%", "25%"));
    // What was applied is what altq has read.
    std::fs::write(&file, &edited).unwrap();
    assert_eq!(running.ask(&["apply", file.to_str().unwrap()]).status.code(), Some(0));
    assert_eq!(running.json(&["status", "--json"])["links"][0]["drift"], serde_json::json!([]));
    assert_eq!(running.ask(&["class", "set", "wan/calls", "share", "25%"]).status.code(), Some(0));
    assert_eq!(save(&[]).status.code(), Some(0));
    let saved = edited.replace("20%", "25%");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), saved);
    // One link of another file.
    assert_eq!(running.apply(&other(), &["--link", "wan"]).status.code(), Some(0));
    is_refused(&saved, "has no comments");
    assert_eq!(save(&["--force"]).status.code(), Some(0));
    assert_eq!(running.ask(&["class", "set", "wan/calls", "share", "30%"]).status.code(), Some(0));
    assert_eq!(save(&[]).status.code(), Some(0));
}

/// Packets of UDP and TCP pass while one policy follows another: every datagram comes back, and
/// nothing is dropped.
fn nothing_is_lost(applies: usize) {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, &format!("traffic-{applies}"), &[]) else { return };
    let bulk = Bulk::start(&world, "10.9.0.2:5001");
    // TCP fills the queue of its class until packets are dropped, whatever else happens: what
    // counts is that it goes on, and that the class beside it loses nothing.
    let applied = std::thread::scope(|scope| {
        let trips = scope.spawn(|| {
            let begun = Instant::now();
            let mut count = 0;
            while begun.elapsed() < Duration::from_millis(applies as u64 * 60) {
                count += round_trips(&world, "10.9.0.2:7", 20).len();
            }
            count
        });
        for n in 0..applies {
            let text = if n % 2 == 0 { other() } else { POLICY.to_owned() };
            let output = running.apply(&text, &[]);
            assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        }
        trips.join().unwrap()
    });
    assert!(applied >= 20);
    assert!(bulk.measure(Duration::from_millis(500)) > 10_000_000.0, "TCP goes on");
    let stat = running.json(&["stat", "--json"]);
    let classes = stat["links"][0]["classes"].as_array().unwrap();
    let calls = classes.iter().find(|class| class["name"] == "calls").unwrap();
    assert_eq!(calls["dropped"], serde_json::json!({}), "{calls}");
    let root = &classes[0];
    let number = |name: &str| root[name].as_u64().unwrap();
    let dropped: u64 = root["dropped"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(number("received_packets"), number("sent_packets") + number("backlog_packets") + dropped);
    assert_eq!(root["dropped"]["class_removed"], Value::Null, "{root}");
    assert_eq!(running.history().last().map(|(number, _)| *number), Some(applies as u64));
}

#[test]
fn ten_policies_in_a_row_lose_nothing() {
    nothing_is_lost(10);
}

#[test]
#[ignore = "a hundred policies take a minute on a busy host"]
fn a_hundred_policies_in_a_row_lose_nothing() {
    nothing_is_lost(100);
}

/// A guard that does not hold takes the change back, and the command says so.
#[test]
fn a_guard_takes_a_change_back() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "guard", &[]) else { return };
    let slow = POLICY.replace("class calls { share 20%  borrow }", "class calls { rate 100kbit/s }");
    let held = running.apply(POLICY, &["--guard", "class calls p99 < 1s", "--guard-for", "300ms"]);
    assert_eq!(held.status.code(), Some(0), "{}", err(&held));
    let unknown = running.apply(&slow, &["--guard", "class call p99 < 1s"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", err(&unknown));
    assert!(err(&unknown).contains("has the class `call` of a guard"), "{}", err(&unknown));
    // 300 datagrams of 500 bytes at once need 12 seconds at 100 kbit/s.
    let flood = |stop: &std::sync::atomic::AtomicBool| {
        let socket = world.left.run(|| std::net::UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            for _ in 0..30 {
                let _ = socket.send_to(&[0; 500], "10.9.0.2:7");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let broken = std::thread::scope(|scope| {
        scope.spawn(|| flood(&stop));
        let broken = running.apply(&slow, &["--guard", "class wan/calls p99 < 50ms", "--guard-for", "20s"]);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        broken
    });
    assert_eq!(broken.status.code(), Some(5), "{}", err(&broken));
    assert!(err(&broken).contains("class calls of link wan has a p99 of"), "{}", err(&broken));
    assert_eq!(running.history().last().map(|(_, what)| what.clone()), Some("reverted".to_owned()));
}

/// Everything is killed while a change waits. The next start goes on waiting, or runs what was
/// before; and a file that is wrong is answered with what ran last.
#[test]
fn after_everything_was_killed_a_change_still_waits_or_is_gone() {
    let Some(world) = world() else { return };
    for (name, more) in [("killed", &[][..]), ("killed-both", SUPERVISED)] {
        let Some(mut running) = Running::start(&world, name, more) else { return };
        let sorted = |running: &Running<'_>| {
            let stat = running.json(&["stat", "--json"]);
            stat["links"][0]["classes"].as_array().unwrap().iter().any(|class| class["name"] == "inner")
        };
        // It waits for longer than the test takes.
        assert_eq!(running.apply(&other(), &["--confirm", "600s"]).status.code(), Some(0));
        running.kill_all();
        running.again();
        assert!(sorted(&running), "the new policy runs: {}", running.log());
        assert!(running.waits().is_some_and(|left| left > 500 && left <= 600), "{:?}", running.waits());
        let drift = running.json(&["status", "--json"])["links"][0]["drift"].clone();
        assert!(drift[0].as_str().unwrap().contains("waits to be confirmed"), "{drift}");
        assert_eq!(running.ask(&["rollback"]).status.code(), Some(0));
        until("the old policy", || !sorted(&running));
        // It is over while nothing runs.
        assert_eq!(running.apply(&other(), &["--confirm", "3s"]).status.code(), Some(0));
        let applied = Instant::now();
        running.kill_all();
        std::thread::sleep(Duration::from_millis(3100).saturating_sub(applied.elapsed()));
        running.again();
        assert!(!sorted(&running) && running.waits().is_none(), "{}", running.log());
        until("it is said", || running.log().contains("was not confirmed in time"));
        // The file is broken while nothing runs.
        running.kill_all();
        std::fs::write(running.folder.join("p.altq"), "link wan { nonsense").unwrap();
        running.again();
        until("it is said", || running.log().contains("running last good policy, "));
        let drift = running.json(&["status", "--json"])["links"][0]["drift"].clone();
        assert!(drift.to_string().contains("p.altq is wrong: "), "{drift}");
    }
}

/// A policy that is taken back brings back the rate that was set before it was replaced, also where
/// everything was killed meanwhile.
#[test]
fn a_rate_that_was_set_comes_back_with_the_policy() {
    let Some(world) = world() else { return };
    for (name, more) in [("rate", &[][..]), ("rate-both", SUPERVISED)] {
        let Some(mut running) = Running::start(&world, name, more) else { return };
        let is_set = |running: &Running<'_>| {
            let drift = running.json(&["status", "--json"])["links"][0]["drift"].to_string();
            drift.contains("its rate was set to 50Mbit/s while it runs; the policy says 100Mbit/s")
        };
        assert_eq!(running.ask(&["link", "set", "wan", "rate", "50Mbit/s"]).status.code(), Some(0));
        assert_eq!(running.apply(&other(), &["--confirm", "600s"]).status.code(), Some(0));
        assert!(!is_set(&running), "a whole policy has its own rate");
        assert_eq!(running.ask(&["rollback"]).status.code(), Some(0));
        assert!(is_set(&running), "{}", running.log());
        assert_eq!(running.apply(&other(), &["--confirm", "1s"]).status.code(), Some(0));
        until("it is taken back", || running.waits().is_none());
        assert!(is_set(&running), "{}", running.log());
        assert_eq!(running.apply(&other(), &["--confirm", "600s"]).status.code(), Some(0));
        running.kill_all();
        running.again();
        assert!(!is_set(&running), "the new policy runs on");
        assert_eq!(running.ask(&["rollback"]).status.code(), Some(0));
        assert!(is_set(&running), "{}", running.log());
    }
}

/// A worker that is killed while a change waits: the next one runs the new policy and waits on, and
/// takes it back in time.
#[test]
fn a_change_outlives_a_worker_and_is_still_taken_back() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "worker", SUPERVISED) else { return };
    assert_eq!(running.apply(&other(), &["--confirm", "4s"]).status.code(), Some(0));
    let children = format!("/proc/{0}/task/{0}/children", running.child.id());
    let worker = std::fs::read_to_string(children).unwrap_or_default();
    let Some(worker) = worker.split_whitespace().next() else {
        return eprintln!("SKIPPED: this kernel does not list the children of a process (CONFIG_PROC_CHILDREN)");
    };
    assert!(Command::new("kill").args(["-KILL", worker]).status().unwrap().success());
    until("it is taken back", || running.log().contains("is taken back: nobody confirmed it in time"));
    until("the old policy", || {
        let output = running.ask(&["stat", "--json"]);
        output.status.code() == Some(0) && !out(&output).contains("\"inner\"")
    });
    assert_eq!(running.history().last().map(|(_, what)| what.clone()), Some("reverted".to_owned()));
}

/// While no worker runs, the supervisor takes a change back itself. The next worker gets the old
/// policy, and the rate that was set before.
#[test]
fn without_a_worker_a_change_is_taken_back_with_the_rate_that_was_set() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "overdue", SUPERVISED) else { return };
    let children = format!("/proc/{0}/task/{0}/children", running.child.id());
    if std::fs::read_to_string(&children).is_err() {
        return eprintln!("SKIPPED: this kernel does not list the children of a process (CONFIG_PROC_CHILDREN)");
    }
    // Programs of the firewall are children for a moment as well.
    let worker = || {
        let found = std::fs::read_to_string(&children).unwrap_or_default();
        found.split_whitespace().map(str::to_owned).find(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.windows(8).any(|part| part == b"--worker")
        })
    };
    let kill = || {
        let pid = worker().unwrap();
        assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
        until("the worker is gone", || worker().as_ref() != Some(&pid));
    };
    // altq waits 1.6 s before the seventh worker, and 3.2 s before the eighth.
    for _ in 0..6 {
        kill();
        until("it shapes", || running.ask(&["status"]).status.code() == Some(0));
    }
    assert_eq!(running.ask(&["link", "set", "wan", "rate", "50Mbit/s"]).status.code(), Some(0));
    assert_eq!(running.apply(&other(), &["--confirm", "1s"]).status.code(), Some(0));
    kill();
    until("it is taken back", || running.log().contains("the change that nobody confirmed is taken back"));
    until("it shapes", || running.ask(&["stat"]).status.code() == Some(0));
    running.has("wan bulk calls rest");
    let drift = running.json(&["status", "--json"])["links"][0]["drift"].to_string();
    assert!(drift.contains("its rate was set to 50Mbit/s while it runs"), "{drift} {}", running.log());
}

/// A disk that takes nothing: what has to be confirmed is refused and changes nothing; what has not
/// is made, and it is said that it is not kept. When the disk works again, so does all of it.
#[test]
fn a_disk_that_takes_nothing_lets_no_change_wait() {
    let Some(world) = world() else { return };
    for (name, more) in [("full", &[][..]), ("full-both", SUPERVISED)] {
        let Some(running) = Running::start(&world, name, more) else { return };
        let state = running.folder.join("state");
        let is_kept = |path: &Path| path.extension().is_some_and(|end| end == "json");
        until("the policy is kept", || {
            std::fs::read_dir(&state).is_ok_and(|mut all| all.any(|entry| entry.is_ok_and(|one| is_kept(&one.path()))))
        });
        // A file stands where the folder should be.
        std::fs::remove_dir_all(&state).unwrap();
        std::fs::write(&state, "no folder").unwrap();
        let refused = running.apply(&other(), &["--confirm", "60s"]);
        assert_eq!(refused.status.code(), Some(5), "{}", err(&refused));
        assert!(err(&refused).contains("it cannot be written down how to take it back: "), "{}", err(&refused));
        assert_eq!((running.waits(), running.classes().as_str()), (None, "wan bulk calls rest"));
        assert_eq!(running.history(), []);
        let made = running.apply(&other(), &[]);
        assert_eq!(made.status.code(), Some(0), "{}", err(&made));
        assert!(err(&made).contains("it is not kept on disk: "), "{}", err(&made));
        running.has("wan calls inner more rest");
        std::fs::remove_file(&state).unwrap();
        assert_eq!(running.apply(POLICY, &["--confirm", "60s"]).status.code(), Some(0));
        assert_eq!(running.ask(&["confirm"]).status.code(), Some(0));
        let what = |number: u64, what: &str| (number, what.to_owned());
        assert_eq!(running.history(), [what(1, "applied"), what(2, "applied"), what(2, "confirmed")]);
    }
}

/// A process that is killed at the end.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the time asks for is applied, and again where altq has begun anew with its own file.
#[test]
fn a_schedule_applies_what_the_time_asks_for() {
    let Some(world) = world() else { return };
    let Some(mut running) = Running::start(&world, "schedule", &[]) else { return };
    std::fs::write(running.folder.join("always.altq"), other()).unwrap();
    let week = running.folder.join("week");
    std::fs::write(&week, "on daily 00:00-24:00 policy always.altq\notherwise policy p.altq\n").unwrap();
    let check = running.ask(&["apply", "--check", "--schedule", week.to_str().unwrap()]);
    assert_eq!((check.status.code(), out(&check).as_str()), (Some(0), "mon 00:00 always.altq\n"), "{}", err(&check));
    assert_eq!(running.history(), []);
    let mut schedule = Command::new(env!("CARGO_BIN_EXE_altq"));
    schedule.args(["apply", "--schedule"]).arg(&week).arg("--socket").arg(running.folder.join("altq.sock"));
    let _schedule = Ended(schedule.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    running.has("wan calls inner more rest");
    running.kill_all();
    running.again();
    running.has("wan calls inner more rest");
    assert_eq!(running.history(), [(1, "applied".to_owned()), (2, "applied".to_owned())], "{}", running.log());
}

/// A schedule that cannot be read, or names what is no policy, is said before anything is applied.
#[test]
fn a_schedule_that_is_wrong_is_said_with_its_line() {
    let folder = std::env::temp_dir().join(format!("altq-schedule-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("week");
    let said = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let output = altq(&folder.join("altq.sock"), &["apply", "--schedule", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{text}: {}", err(&output));
        err(&output)
    };
    let wrong = said("\non mondays 01:00-02:00 policy a.altq\n");
    assert!(wrong.contains("week:2: `mondays` is no day; write `weekdays`"), "{wrong}");
    let wrong = said("otherwise policy missing.altq\n");
    assert!(wrong.contains("missing.altq"), "{wrong}");
    std::fs::remove_dir_all(&folder).unwrap();
}
