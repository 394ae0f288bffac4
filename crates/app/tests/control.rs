//! The control socket of `altq run`, and the commands that use it. The tests are skipped with a
//! message where the host does not allow them.

mod client;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use altq_dataplane::netns::Namespace;
use client::{altq, err, out};
use serde_json::Value;
use world::{round_trips, world};

const POLICY: &str = "link down { device bridge a b  rate 100Mbit/s  scheduler cbq
        class subscribers { share 50% borrow }
        class rest { share 50% borrow default } }
    link up { device bridge b a  rate 20Mbit/s  scheduler htb
        class homes { rate 10Mbit/s  ceil 20Mbit/s }
        class others { rate 10Mbit/s  ceil 20Mbit/s  default } }";

/// A folder for a policy and a socket, which goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("altq-control-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("p.altq"), POLICY).unwrap();
        Folder(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("altq.sock")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `altq run` with a control socket.
struct Running {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
}

impl Running {
    /// Starts it, and waits until it answers. `None`, with a message, if the host lacks something.
    fn start(namespace: &Namespace, folder: &Folder, more: &[&str]) -> Option<Running> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.arg("run").arg(folder.0.join("p.altq")).arg("--socket").arg(folder.socket()).args(more);
        command.args(["--quiet", "--interval", "50ms"]).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = namespace.run(|| command.spawn().unwrap()).unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        let end = Instant::now() + Duration::from_secs(10);
        while !folder.socket().exists() {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(matches!(status.code(), Some(6 | 7)), "{status}");
                eprintln!("SKIPPED: this host cannot run a bridge");
                return None;
            }
            assert!(Instant::now() < end, "no socket");
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut running = Running { child, said };
        // Counters are there after the first interval.
        while altq(&folder.socket(), &["stat"]).status.code() == Some(1) {
            assert!(Instant::now() < end, "no counters");
        }
        assert!(running.child.try_wait().unwrap().is_none());
        Some(running)
    }

    /// The next line that it says with this word in it.
    fn says(&mut self, word: &str) -> String {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "no line with {word}");
        }
        line
    }

    /// Ends it as a service is ended.
    fn end(mut self) {
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn json(socket: &Path, arguments: &[&str]) -> serde_json::Value {
    let output = altq(socket, arguments);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The counters once they are as expected, or those after ten seconds. What passed is in the
/// counters with the loop's next report.
fn stat_when(socket: &Path, expected: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let stat = json(socket, &["stat", "--json"]);
        if expected(&stat) || Instant::now() >= end {
            return stat;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn without_a_running_altq_one_line_says_what_to_do() {
    let folder = Folder::new("nobody");
    for arguments in [&["status"][..], &["stat"], &["link", "set", "up", "rate", "1Mbit/s"], &["subscriber", "list"]] {
        let output = altq(&folder.socket(), arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", err(&output));
        let said = err(&output);
        assert!(said.contains("no altq runs") && said.contains("start `altq run`"), "{said}");
        assert_eq!((said.lines().count(), out(&output)), (1, String::new()), "{said}");
    }
    // The environment says where it is, and --socket goes before it.
    let output = Command::new(env!("CARGO_BIN_EXE_altq")).arg("status").env("ALTQ_SOCKET", "/there/altq.sock").output();
    assert!(err(&output.unwrap()).contains("/there/altq.sock"));
}

#[test]
fn status_and_counters_are_answered_while_it_shapes() {
    let Some(world) = world() else { return };
    let folder = Folder::new("stat");
    let Some(running) = Running::start(&world.middle, &folder, &[]) else { return };
    let socket = folder.socket();
    round_trips(&world, "10.9.0.2:7", 50);
    // 50 datagrams with one byte of payload there, and 50 back: 29 bytes each at layer 3.
    let sent = |stat: &Value, link: usize| stat["links"][link]["classes"][0]["sent_bytes"].as_u64().unwrap();
    let stat = stat_when(&socket, |stat| (0..2).all(|link| sent(stat, link) >= 50 * 29));
    let status = json(&socket, &["status", "--json"]);
    assert_eq!(status["schema"], "altq.status/1");
    let up = &status["links"][1];
    assert_eq!([&up["name"], &up["path"], &up["state"]], ["up", "bridge", "shaping"]);
    assert!(out(&altq(&socket, &["status"])).contains("link up: shaping since "));
    assert!(sent(&stat, 0) >= 50 * 29 && sent(&stat, 1) >= 50 * 29, "{stat}");
    assert_eq!((&stat["schema"], stat["links"].as_array().unwrap().len()), (&"altq.stat/1".into(), 2));
    let one = json(&socket, &["stat", "up", "--json"]);
    assert_eq!((one["links"].as_array().unwrap().len(), &one["links"][0]["name"]), (1, &"up".into()));
    let table = out(&altq(&socket, &["stat"]));
    assert!(table.contains("link down:") && table.contains("homes"), "{table}");
    for (format, word) in [("tc", "class htb 1:1"), ("tc-names", "homes#1:"), ("altqstat", "")] {
        let output = altq(&socket, &["stat", "up", "--stat", format]);
        assert_eq!(output.status.code(), Some(0), "{format}: {}", err(&output));
        assert!(out(&output).contains(word) && !output.stdout.is_empty(), "{format}: {}", out(&output));
    }
    for (arguments, why) in [(&["stat", "wan"][..], "there is down, up"), (&["stat", "--stat", "x"], "no format `x`")] {
        let output = altq(&socket, arguments);
        assert_eq!(output.status.code(), Some(2), "{}", err(&output));
        assert!(err(&output).contains(why) && err(&output).lines().count() == 1, "{}", err(&output));
    }
    running.end();
    assert!(!socket.exists(), "the socket goes with it");
}

#[test]
fn the_rate_of_a_link_changes_at_once() {
    let Some(world) = world() else { return };
    let folder = Folder::new("rate");
    let Some(mut running) = Running::start(&world.middle, &folder, &[]) else { return };
    let socket = folder.socket();
    // A datagram of 29 bytes takes 11.6 ms at 20 kbit/s, and less than a millisecond before.
    for (changed, word) in [(true, "has the rate 20kbit/s"), (false, "already")] {
        let output = altq(&socket, &["link", "set", "down", "rate", "20kbit/s"]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert!(err(&output).contains(word), "{changed}: {}", err(&output));
    }
    let said = running.says("link down: rate");
    assert!(said.contains("link down: rate 20kbit/s, before 100Mbit/s; asked by process"), "{said}");
    let begun = Instant::now();
    round_trips(&world, "10.9.0.2:7", 30);
    assert!(begun.elapsed() >= Duration::from_millis(28 * 11), "{:?}", begun.elapsed());
    let wrong = [["lan", "rate", "1Mbit/s"], ["down", "rate", "1"], ["down", "ceil", "1Mbit/s"]];
    for arguments in wrong {
        let output = altq(&socket, &[&["link", "set"][..], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    }
    running.end();
}

#[test]
fn subscribers_get_their_classes_and_lose_them() {
    let Some(world) = world() else { return };
    let folder = Folder::new("subscribers");
    let Some(mut running) = Running::start(&world.middle, &folder, &["--subscribers", "100"]) else { return };
    let socket = folder.socket();
    let set = |words: &[&str]| altq(&socket, &[&["subscriber", "set"][..], words].concat());
    // The host that answers is a subscriber.
    let words = ["4711", "addr=10.9.0.2", "down=20kbit/s", "up/homes=rate 1Mbit/s ceil 2Mbit/s"];
    for (said, before) in [("1 changed, 0 as before", false), ("0 changed, 1 as before", true)] {
        let output = set(&words);
        assert_eq!(output.status.code(), Some(0), "{before}: {}", err(&output));
        assert!(err(&output).contains(said), "{}", err(&output));
    }
    assert!(running.says("1 set").contains("1 set, 1 now"));
    round_trips(&world, "10.9.0.2:7", 30);
    // A class that the loop has not reported yet is null.
    let class = |stat: &Value, link: usize, name: &str| {
        let classes = stat["links"][link]["classes"].as_array().unwrap();
        classes.iter().find(|class| class["name"] == name).cloned().unwrap_or_default()
    };
    let sent = |stat: &Value, link: usize, name: &str| class(stat, link, name)["sent_packets"].as_u64();
    let stat = stat_when(&socket, |stat| (0..2).all(|link| sent(stat, link, "4711") >= Some(30)));
    for link in [0, 1] {
        assert_eq!(sent(&stat, link, "4711"), Some(30), "link {link}: {stat}");
        assert_eq!(class(&stat, link, "4711")["parent"], ["subscribers", "homes"][link]);
    }
    let listed = out(&altq(&socket, &["subscriber", "list"]));
    assert_eq!(listed, "4711 addr=10.9.0.2 down=20kbit/s up/homes=rate 1Mbit/s ceil 2Mbit/s\n");
    let refused = set(&["4712", "addr=10.9.0.2", "down=20kbit/s"]);
    assert_eq!(refused.status.code(), Some(5));
    assert!(err(&refused).contains("4712: 10.9.0.2 is an address of subscriber 4711"), "{}", err(&refused));
    // What is listed is read again, in bulk, with others.
    let many: String = (0..60).map(|n| format!("s{n} addr=10.1.0.{n} down=100kbit/s up/homes=10kbit/s\n")).collect();
    let file = folder.0.join("bulk");
    std::fs::write(&file, listed + "# others\n" + &many).unwrap();
    let output = set(&["--bulk", file.to_str().unwrap()]);
    assert!(err(&output).contains("60 changed, 1 as before, 0 refused"), "{}", err(&output));
    let output = altq(&socket, &["subscriber", "del", "4711", "nobody"]);
    assert!(err(&output).contains("1 changed, 1 as before"), "{}", err(&output));
    round_trips(&world, "10.9.0.2:7", 30);
    // What it has sent stays in the sums above it; what comes now is in the default class.
    let stat = stat_when(&socket, |stat| sent(stat, 0, "rest") >= Some(30));
    let classes = stat["links"][0]["classes"].as_array().unwrap();
    assert!(classes.iter().all(|class| class["name"] != "4711") && classes.len() == 3 + 60, "{stat}");
    assert_eq!(sent(&stat, 0, "subscribers"), Some(30), "{stat}");
    running.end();
}

#[test]
fn whoever_is_not_root_may_read_where_the_mode_allows_it_and_changes_nothing() {
    let Some(world) = world() else { return };
    let folder = Folder::new("rights");
    let Some(running) = Running::start(&world.middle, &folder, &["--socket-mode", "0666"]) else { return };
    let user = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.args(arguments).arg("--socket").arg(folder.socket()).uid(65534).gid(65534).output()
    };
    match user(&["status"]) {
        Ok(output) => assert_eq!(output.status.code(), Some(0), "{}", err(&output)),
        Err(error) => eprintln!("SKIPPED in part: another user cannot run the program here ({error})"),
    }
    if let Ok(output) = user(&["link", "set", "down", "rate", "1Mbit/s"]) {
        assert_eq!(output.status.code(), Some(6), "{}", err(&output));
        assert!(err(&output).contains("user 65534 may read, but not change"), "{}", err(&output));
    }
    // A second one is told who has the socket, and starts nothing.
    let mut second = Command::new(env!("CARGO_BIN_EXE_altq"));
    second.arg("run").arg(folder.0.join("p.altq")).arg("--socket").arg(folder.socket());
    let second = world.middle.run(|| second.output().unwrap()).unwrap();
    assert_eq!(second.status.code(), Some(5), "{}", err(&second));
    running.end();
}

/// Half lines, nonsense, and clients that read nothing: the others are answered.
#[test]
fn bad_clients_hold_nobody_up() {
    let Some(world) = world() else { return };
    let folder = Folder::new("bad");
    let Some(running) = Running::start(&world.middle, &folder, &[]) else { return };
    let socket = folder.socket();
    let mut bad = Vec::new();
    for bytes in [b"{\"op\":\"st".as_slice(), b"\xff\xfe\n{}\n[[[[\n", &[b'x'; 100_000], b""] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let _ = stream.write_all(bytes);
        bad.push(stream);
    }
    for _ in 0..50 {
        let mut stream = UnixStream::connect(&socket).unwrap();
        // It asks again and again, and never reads.
        stream.set_nonblocking(true).unwrap();
        for _ in 0..1000 {
            let _ = stream.write(b"{\"op\":\"stat\"}\n");
        }
        bad.push(stream);
    }
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(json(&socket, &["status", "--json"])["schema"], "altq.status/1");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    round_trips(&world, "10.9.0.2:7", 10);
    drop(bad);
    running.end();
}
