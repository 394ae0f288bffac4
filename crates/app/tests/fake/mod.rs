//! A control socket that answers as altq does, with figures that the test chooses, and `altq web`
//! as its client.

// Each file of tests uses a part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A folder with a socket, which goes when the test ends.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("altq-web-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn socket(&self) -> PathBuf {
        self.0.join("altq.sock")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The policy of the classes of [`usual`].
const POLICY: &str = "link wan {
    rate 100Mbit/s  scheduler cbq
    class agency { rate 50Mbit/s  borrow
        class web  { rate 30Mbit/s  borrow }
        class bulk { rate 20Mbit/s  borrow  default }
    }
    match dport 80,443 -> web
}
";

/// What the control socket answers: to `status`, to `stat` (an error if there is none), and to
/// other requests by their names. A name with `:N` is that of a request with `after_ns` N. An
/// answer with `fault` is that error. Where nothing is chosen, the policy was never changed, the
/// link's rate does not follow the line, and nothing is kept of the time before.
#[derive(Clone, Default)]
pub struct Answers {
    pub status: Value,
    pub stat: Option<Value>,
    pub others: BTreeMap<String, Value>,
}

/// Answers at this path for as long as the test runs.
pub fn serve(path: &Path, answers: Answers) -> Arc<Mutex<Answers>> {
    let listener = UnixListener::bind(path).unwrap();
    let shared = Arc::new(Mutex::new(answers));
    let answers = shared.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answers = answers.clone();
            std::thread::spawn(move || answer(stream, &answers));
        }
    });
    shared
}

fn answer(stream: UnixStream, answers: &Mutex<Answers>) {
    let mut writer = stream.try_clone().unwrap();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let request: Value = serde_json::from_str(&line).unwrap();
        let known = answers.lock().unwrap().clone();
        let result = match request["op"].as_str().unwrap() {
            "status" => Some(known.status),
            "stat" => known.stat,
            "reserve.list" => {
                let one = json!({ "link": "wan", "class": "agency", "reservations": [{ "id": 1 }, { "id": 2 }] });
                Some(json!({ "places": [one] }))
            }
            other => {
                let name = request["after_ns"].as_u64().map_or(other.to_owned(), |after| format!("{other}:{after}"));
                Some(known.others.get(&name).cloned().unwrap_or_else(|| match name.as_str() {
                    "history" => json!({ "schema": "altq.history/1", "changes": [] }),
                    "top" => json!({ "schema": "altq.top/1", "links": [{ "name": "wan", "adapts": false }] }),
                    "past" => json!({ "schema": "altq.past/1", "classes": [], "slices": [], "next_ns": null }),
                    "policy" => json!({ "schema": "altq.policy/1", "language": "native", "text": POLICY,
                        "file": "/etc/altq/wan.altq", "file_hash": null, "put_together": false }),
                    name => panic!("a client asks for {name}"),
                }))
            }
        };
        let fault = result.as_ref().and_then(|result| result.get("fault")).cloned();
        let reply = match result.filter(|_| fault.is_none()) {
            Some(result) => json!({ "schema": "altq.control/1", "id": request["id"], "ok": true, "result": result }),
            None => {
                let none = || json!({ "code": 1, "message": "no worker shapes", "help": "wait" });
                let error = fault.unwrap_or_else(none);
                json!({ "schema": "altq.control/1", "id": request["id"], "ok": false, "error": error })
            }
        };
        if writer.write_all(format!("{reply}\n").as_bytes()).is_err() {
            return;
        }
    }
}

/// `altq status` of a link `wan` in this state.
pub fn status(state: &str, reason: Option<&str>) -> Value {
    let link = json!({ "name": "wan", "path": "nfqueue", "state": state, "since_s": 62, "reason": reason,
        "drift": [] });
    json!({ "schema": "altq.status/1", "links": [link], "confirm_pending_s": null })
}

/// The document of a link `wan` of 100 Mbit/s with these classes: name, parent, guarantee in bit/s,
/// and bytes sent since the start. The link has sent what its classes have.
pub fn stat(at_s: u64, classes: &[(&str, &str, u64, u64)]) -> Value {
    let counts = [vec![0; 9], vec![90, 10], vec![0; 9]].concat();
    let one = |(name, parent, asked, sent): &(&str, &str, u64, u64)| {
        json!({ "name": name, "parent": if parent.is_empty() { Value::Null } else { json!(parent) },
            "received_packets": sent / 1000 + 3, "received_bytes": sent + 3000,
            "sent_packets": sent / 1000, "sent_bytes": sent, "sent_wire_bytes": sent + sent / 1000 * 38,
            "dropped": { "queue_full": 2, "early": sent / 100_000 }, "marked_packets": 1,
            "backlog_packets": 1, "backlog_bytes": 1000, "borrowed_bytes": sent / 10, "overlimits": null,
            "sojourn_ns": { "p50": 1_500_000, "p99": 12_000_000, "max": 15_000_001 },
            "waited": { "sum_us": 600_000, "counts": counts }, "rate_bit_s": 0,
            "limited_by": "link", "guaranteed_bit_s": asked, "ceiling_bit_s": 100_000_000, "scheduler": "cbq",
            "delay_bound_ns": { "conforming": 1_000_000, "queue_full": 40_000_000 } })
    };
    let link = json!({ "name": "wan", "state": "shaping", "path": "nfqueue", "at_ns": at_s * 1_000_000_000,
        "unix_ns": 1_000_000_000_000_000_000_u64 + at_s * 1_000_000_000, "interval_ns": 1_000_000_000, "last": false,
        "device": { "received_frames": 9, "received_bytes": 9000, "sent_frames": 9, "device_dropped": 4, "missed": 4,
            "unreadable": 0, "refused": 0, "lost": 0, "blocked": 0, "super_packets": 0, "super_packets_cut": 0,
            "timer_late_max_ns": 156_027 },
        "loop": { "wake_ups": 20, "timers": 10, "timer_late_mean_ns": 7, "timer_late_total_ns": 75,
            "timer_late_p99_ns": null, "receive_calls": 9, "send_calls": 9 },
        "classes": classes.iter().map(one).collect::<Vec<_>>() });
    json!({ "schema": "altq.stat/1", "links": [link] })
}

/// Three classes of `wan` after `at_s` seconds: web has sent 5 MB in each, bulk 2 MB.
pub fn usual(at_s: u64) -> Value {
    let (web, bulk) = (5_000_000 * at_s, 2_000_000 * at_s);
    stat(
        at_s,
        &[
            ("wan", "", 100_000_000, web + bulk),
            ("agency", "wan", 50_000_000, web + bulk),
            ("web", "agency", 30_000_000, web),
            ("bulk", "agency", 20_000_000, bulk),
        ],
    )
}

/// `altq web`, which listens at some port of the loopback interface.
pub struct Web {
    pub child: Child,
    pub address: String,
    pub said: BufReader<std::process::ChildStderr>,
}

impl Web {
    pub fn start(socket: &Path, more: &[&str]) -> Web {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.args(["web", "--listen", "127.0.0.1:0", "--socket"]).arg(socket).args(more);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split_once('/')).map(|(address, _)| address);
        let address = address.unwrap_or_else(|| panic!("altq web says {line:?}")).to_owned();
        Web { child, address, said }
    }

    /// Sends this, and returns all that is answered, as text.
    pub fn ask(&self, text: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Status, head and body of what is at a path; `more` are lines of the request's head.
    pub fn get(&self, path: &str, more: &str) -> (u16, String, String) {
        let answer = self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{more}\r\n", self.address));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_owned(), body.to_owned())
    }

    /// A document.
    pub fn json(&self, path: &str) -> Value {
        let (status, _, body) = self.get(path, "");
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Asks until the answer is as expected.
    pub fn until<T>(&self, what: &str, of: impl Fn(&Web) -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(found) = of(self) {
                return found;
            }
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Bytes of memory that it holds.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        1024 * line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
