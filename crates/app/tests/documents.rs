//! Documents that commands print, compared with docs/schemas. Other tests compare what clients of
//! a running altq print (tests/client); here are those that need no running altq, and what the
//! control socket and `altq web` themselves answer.
#![cfg(feature = "web")]

mod client;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use client::{altq, err, schema};
use serde_json::{Value, json};
use world::{round_trips, world};

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("altq-documents-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Something that runs until the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.args(arguments).current_dir(tree()).stdin(Stdio::null()).output().unwrap()
}

/// Runs a command, and checks that it prints documents of this schema and no others.
fn prints(name: &str, arguments: &[&str]) {
    let output = run(arguments);
    let found = schema::check_lines(&output.stdout);
    assert!(!found.is_empty(), "{arguments:?} prints no document: {}", err(&output));
    assert!(found.iter().all(|other| other == name), "{arguments:?} prints {found:?}");
}

#[test]
fn every_schema_is_one() {
    let mut count = 0;
    for entry in std::fs::read_dir(tree().join("docs/schemas")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = std::fs::read_to_string(&path).unwrap();
            let schema: Value = serde_json::from_str(&text).unwrap();
            assert!(jsonschema::meta::is_valid(&schema), "{}", path.display());
            count += 1;
        }
    }
    assert!(count > 30, "{count}");
}

/// What a schema is for: it refuses a document that lacks a field, has one of another kind, or is
/// another document.
#[test]
fn wrong_documents_are_refused() {
    let right = json!({ "schema": "altq.status/1", "links": [], "confirm_pending_s": null });
    schema::check(&right);
    let without = json!({ "schema": "altq.status/1", "confirm_pending_s": null });
    let other_kind = json!({ "schema": "altq.status/1", "links": {}, "confirm_pending_s": null });
    let unknown = json!({ "schema": "altq.status/1", "links": [], "confirm_pending_s": null, "more": 1 });
    let below = json!({ "schema": "altq.status/1", "links": [{ "name": 1 }], "confirm_pending_s": null });
    for wrong in [without, other_kind, unknown, below] {
        assert!(std::panic::catch_unwind(|| schema::check(&wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn policies_and_cases() {
    let folder = Folder::new("checked");
    for policy in ["examples/home/home.altq", "examples/isp/isp.altq", "examples/rsvp.cbq.conf", "cases/borrow.toml"] {
        prints("altq.check/1", &["check", policy, "--json"]);
    }
    let wrong = folder.file("wrong.altq", "link a { rate 1Mbit/s  scheduler cbq  class x { share 120%  spare 1 } }");
    prints("altq.check/1", &["check", &wrong, "--json"]);
    let adapts = "link a { device lo  scheduler cbq\n\
                  rate 10Mbit/s adapt { from 5Mbit/s to 20Mbit/s  target 30ms  reflectors { 192.0.2.1 } }\n\
                  class x { share 50%  reservations }  class y { share 50%  default  queue red { limit 9000bytes } } }";
    assert!(altq_config::parse_str(adapts, "adapts.altq", altq_config::Language::Native).is_ok());
    prints("altq.check/1", &["check", &folder.file("adapts.altq", adapts), "--json"]);
    let policy = "link wan { rate 10Mbit/s  scheduler fifo  class all { default } }";
    let policy = folder.file("replay.altq", policy);
    let packet = "src=10.1.2.3 dst=192.0.2.1 proto=tcp sport=40000 dport=80 dscp=0";
    prints("altq.explain/1", &["explain", &policy, "--packet", packet, "--json"]);
    prints("altq.explain/1", &["explain", "examples/office/office.altq", "--packet", packet, "--link", "up", "--json"]);
    let empty = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 101].map(u32::to_le_bytes).concat();
    let capture = folder.0.join("empty.pcap");
    std::fs::write(&capture, empty).unwrap();
    let capture = capture.display().to_string();
    prints(
        "altq.explain_capture/1",
        &["explain", "examples/office/office.altq", "--capture", &capture, "--link", "up", "--json"],
    );
    let office = "examples/office/office.altq";
    prints("altq.plan/1", &["plan", office, "--against", office, "--link", "up", "--capture", &capture, "--json"]);
    prints("altq.plan/1", &["plan", office, "--against", "examples/home/home.altq", "--json"]);
    let arrivals = folder.file("arrivals.csv", "time_ns,class,bytes,id\n0,all,1500,1\n9,all,100,2\n");
    prints("altq.replay/1", &["replay", &policy, "--arrivals", &arrivals, "--json"]);
    prints("altq.replay/1", &["replay", &policy, "--arrivals", &arrivals, "--json", "--wire-rate", "1Mbit/s"]);
}

#[test]
fn results_of_cases() {
    let folder = Folder::new("results");
    for case in ["cases/voice.toml", "cases/adapt/cut.toml", "cases/published/mtu-reset.toml"] {
        prints("altq.result/1", &["sim", case, "--json"]);
    }
    prints("altq.experiments_list/1", &["experiments", "list", "--json"]);
    prints("altq.experiments_list/1", &["experiments", "list", "mtu", "--lab", "--json"]);
    let out = folder.0.join("out").display().to_string();
    let case = tree().join("cases/voice.toml").display().to_string();
    let words = ["experiments", "run", "--cases", &case, "--out", &out, "--json", "--samples", "2"];
    prints("altq.experiments/1", &words);
    let kept = std::fs::read(folder.0.join("out/voice.sim.json")).unwrap();
    assert_eq!(schema::check_lines(&kept), ["altq.result/1"], "that of several seeds");
}

#[test]
fn measurements_of_speed() {
    let words = ["bench", "engine", "--classes", "10", "--mode", "saturated", "--runs", "5", "--json"];
    prints("altq.bench/1", &words);
    let other = ["--rounds", "2", "--against", env!("CARGO_BIN_EXE_altq")];
    prints("altq.bench_against/1", &[&words[..], &other[..]].concat());
    prints("altq.bench_simulator/1", &["bench", "sim", "--tcp", "1", "--udp", "1", "--seconds", "1", "--json"]);
}

#[test]
fn traffic_of_one_host() {
    const SECRET: &str = "a secret of this test";
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.args(["traffic", "server", "--token", SECRET, "--listen", "127.0.0.1:0"]);
    let mut server = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening ").unwrap();
    let often = ["-t", "1s", "--interval", "200ms", "--warmup", "0s", "--token", SECRET, "--json"];
    for work in [&["udp", address, "--both", "--rate", "800kbit/s"][..], &["bulk", address], &["rr", address]] {
        let output = run(&[&["traffic"], work, &often[..]].concat());
        let found = schema::check_lines(&output.stdout);
        let (last, live) = found.split_last().unwrap_or_else(|| panic!("{work:?}: {}", err(&output)));
        assert_eq!(last, "altq.traffic/1");
        assert!(!live.is_empty() && live.iter().all(|name| name == "altq.traffic_live/1"), "{live:?}");
    }
}

/// A pcap file (draft-ietf-opsawg-pcap) of one UDP datagram in raw IPv4, link type 101.
#[test]
fn traffic_of_a_capture() {
    let folder = Folder::new("capture");
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 64, 101, 1, 0, 28, 28] {
        file.extend(word.to_le_bytes());
    }
    file.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 7, 0, 8, 0, 0]);
    let path = folder.0.join("one.pcap");
    std::fs::write(&path, file).unwrap();
    prints("altq.watch/1", &["top", "--file", path.to_str().unwrap(), "--once", "--json"]);
}

const POLICY: &str = "link down { device bridge a b  rate 20Mbit/s  scheduler cbq
        class res { rate 8Mbit/s  priority 6  reservations { lifetime 600s } }
        class rest { rate 12Mbit/s  borrow  default } }
    link up { device bridge b a  rate 20Mbit/s  scheduler cbq
        class homes { share 50%  borrow }  class others { share 50%  borrow  default } }";

/// A client that sends lines to the control socket, and checks what comes back.
struct Client(BufReader<UnixStream>);

impl Client {
    fn ask(&mut self, request: &Value) -> Value {
        self.0.get_mut().write_all(format!("{request}\n").as_bytes()).unwrap();
        self.next()
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        schema::check(&value);
        value
    }

    /// Sends a request whose result is a document, and returns it.
    fn document(&mut self, name: &str, request: &Value) -> Value {
        let end = Instant::now() + Duration::from_secs(20);
        let mut reply = self.ask(request);
        // Figures are there after the first second.
        while reply["error"]["code"] == 1 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
            reply = self.ask(request);
        }
        assert_eq!(reply["ok"], true, "{request}: {reply}");
        assert_eq!(schema::check(&reply["result"]), name);
        reply["result"].clone()
    }
}

/// What a running altq answers on its socket, what it keeps, and what `altq web` makes of it.
#[test]
fn answers_of_the_control_socket_and_of_altq_web() {
    let Some(world) = world() else { return };
    let folder = Folder::new("socket");
    let policy = folder.file("p.altq", POLICY);
    let socket = folder.0.join("altq.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.args(["run", &policy, "--quiet", "--interval", "50ms", "--subscribers", "10", "--socket"]).arg(&socket);
    command.arg("--state").arg(folder.0.join("state")).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(std::fs::File::create(folder.0.join("log")).unwrap());
    let mut running = Running(world.middle.run(|| command.spawn().unwrap()).unwrap());
    let end = Instant::now() + Duration::from_secs(20);
    while ["status", "stat"].iter().any(|word| altq(&socket, &[word]).status.code() != Some(0)) {
        if let Some(status) = running.0.try_wait().unwrap() {
            assert!(matches!(status.code(), Some(6 | 7)), "{status}");
            eprintln!("SKIPPED: this host cannot run a bridge");
            return;
        }
        assert!(Instant::now() < end, "it does not shape");
        std::thread::sleep(Duration::from_millis(20));
    }
    round_trips(&world, "10.9.0.2:7", 20);
    let mut client = Client(BufReader::new(UnixStream::connect(&socket).unwrap()));
    client.document("altq.status/1", &json!({ "op": "status", "id": 1 }));
    client.document("altq.stat/1", &json!({ "op": "stat" }));
    client.document("altq.top/1", &json!({ "op": "top", "window_s": 1, "flows": 5, "line_s": 10 }));
    client.document("altq.past/1", &json!({ "op": "past", "link": "down", "ago_s": 60 }));
    client.document("altq.policy/1", &json!({ "op": "policy" }));
    client.document("altq.runs/1", &json!({ "op": "verify" }));
    assert_eq!(client.ask(&json!({ "op": "nonsense" }))["ok"], false);
    let place = json!({ "link": "up", "within": "homes", "rate_bit_s": 1_000_000 });
    let one = json!({ "id": "alice", "addr": ["10.9.0.7"], "classes": [place] });
    let set = client.ask(&json!({ "op": "subscriber.set", "subscribers": [one] }));
    assert_eq!((&set["ok"], &set["result"]["failed"]), (&json!(true), &json!([])), "{set}");
    let list = client.document("altq.subscribers/1", &json!({ "op": "subscriber.list" }));
    assert_eq!(list["subscribers"][0]["id"], "alice");
    // A change that waits is in the file of changes, with its guards.
    let text = POLICY.replace("share 50%  borrow }", "share 40%  borrow }");
    let guards = json!([{ "class": "rest", "p99_ns": 1_000_000_000 }]);
    let apply = json!({ "op": "apply", "name": "p", "language": "native", "text": text,
        "confirm_ns": 60_000_000_000_u64, "guards": guards });
    client.document("altq.apply/1", &apply);
    client.document("altq.history/1", &json!({ "op": "history" }));
    let kept = std::fs::read_dir(folder.0.join("state")).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<String> = kept.flat_map(|path| schema::check_lines(&std::fs::read(path).unwrap())).collect();
    assert_eq!(kept, ["altq.change/1"]);
    // Reservations, and what a client that watches them is told.
    let mut watching = Client(BufReader::new(UnixStream::connect(&socket).unwrap()));
    assert_eq!(watching.ask(&json!({ "op": "reserve.watch" }))["ok"], true);
    let flow = json!({ "dst": "10.9.0.2", "dport": 5004, "proto": "udp" });
    for (key, rate) in [("one", 500_000), ("too much", 50_000_000)] {
        let tspec = json!({ "rate_bit_s": rate, "burst_bytes": 10_000 });
        let request = json!({ "op": "reserve.add", "key": key, "flows": [flow], "tspec": tspec, "ttl_s": 30.5 });
        client.document("altq.reserve/1", &request);
    }
    let list = client.ask(&json!({ "op": "reserve.list" }));
    assert_eq!(schema::check(&list["result"]["places"][0]), "altq.reservations/1");
    assert_eq!(watching.next()["schema"], "altq.reserve-event/1");

    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.args(["web", "--listen", "127.0.0.1:0", "--socket"]).arg(&socket);
    let mut web = Running(command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(web.0.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let address = line.split_once("http://").and_then(|(_, rest)| rest.split_once('/')).unwrap().0.to_owned();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        stream
    };
    let events = BufReader::new(get("/events")).lines().map_while(Result::ok);
    let data = events.filter_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    for event in data.take(3) {
        assert_eq!(schema::check(&serde_json::from_str(&event).unwrap()), "altq.web/1");
    }
    for (path, name) in [("/history.json", "altq.web-history/1"), ("/stat.json", "altq.stat/1")] {
        let mut answer = String::new();
        get(path).read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(schema::check(&serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))), name);
    }
    assert!(running.0.try_wait().unwrap().is_none());
}
