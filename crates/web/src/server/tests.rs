//! Clients of all kinds against a server with small limits, in real time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use altq_control::document::LinkStatus;
use altq_monitor::tree::{Class, Tree};

use super::*;
use crate::board::Board;
use crate::frame::{Classes, Frame, More, Row, Shown};
use crate::http::Hosts;

/// A server that runs until the test ends.
struct Running {
    address: SocketAddr,
    board: Arc<Board>,
    clients: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    classes: Arc<Classes>,
}

impl Running {
    /// Starts a server that shows so many classes.
    fn start(limits: Limits, classes: usize) -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (board, woken) = Board::new().unwrap();
        let board = Arc::new(board);
        let mut server = Server::new(listener, Site::new(board.clone(), Hosts::default()), woken, limits).unwrap();
        let (stop, clients) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, counted) = (stop.clone(), clients.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                server.turn(Some(Duration::from_millis(5))).unwrap();
                counted.store(server.clients(), Ordering::Relaxed);
            }
        });
        let class = |n: usize| Class { name: format!("c{n}"), parent: 0, asked: None, ceiling: None };
        let tree = Tree::new((0..classes).map(class).collect()).unwrap();
        let classes = Arc::new(Classes { more: vec![More::default(); tree.len()], tree });
        let running = Running { address, board, clients, stop, thread: Some(thread), classes };
        running.show(1);
        running
    }

    /// Shows the frame of this number, in which every class has this rate.
    fn show(&self, seq: u64) {
        let count = self.classes.tree.len();
        let status = LinkStatus {
            name: "wan".to_owned(),
            path: "bridge".to_owned(),
            state: "shaping".to_owned(),
            since_s: 1,
            reason: None,
            drift: Vec::new(),
            set_by_clients: 0,
        };
        let link = Shown {
            status,
            classes: Some(self.classes.clone()),
            rows: vec![Row { got_bit_s: seq, ..Row::default() }; count],
            changed: (0..count as u32).collect(),
            step: 1,
            unix_ms: seq,
        };
        self.board.show(Frame { seq, unix_ms: crate::feed::unix_ms(), links: vec![link], ..Frame::default() });
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    /// Sends this, and returns the whole answer.
    fn ask(&self, text: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    /// A client that watches, and has read the head of the answer.
    fn watch(&self) -> BufReader<TcpStream> {
        self.watch_as("/events")
    }

    fn watch_as(&self, path: &str) -> BufReader<TcpStream> {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "HTTP/1.1 200 OK\r\n");
        reader
    }

    /// Waits until this holds.
    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < end, "{what}: {} clients", self.clients.load(Ordering::Relaxed));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The next event: its name and its number.
fn event(reader: &mut BufReader<TcpStream>) -> (String, u64) {
    let (mut name, mut number) = (String::new(), 0);
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the connection has ended");
        match line.trim_end().split_once(": ") {
            Some(("event", what)) => name = what.to_owned(),
            Some(("id", what)) => number = what.parse().unwrap(),
            None if line == "\n" && !name.is_empty() => return (name, number),
            _ => {}
        }
    }
}

const SMALL: Limits = Limits {
    connections: 24,
    watching: 16,
    asking: Duration::from_millis(300),
    stuck: Duration::from_millis(500),
    whole: Duration::from_secs(5),
    lingering: Duration::from_millis(200),
    memory: 64 << 20,
};

#[test]
fn each_change_reaches_those_who_watch() {
    let running = Running::start(Limits::default(), 3);
    let mut reader = running.watch();
    assert_eq!(event(&mut reader), ("snapshot".to_owned(), 1));
    for seq in 2..20 {
        running.show(seq);
        assert_eq!(event(&mut reader), ("change".to_owned(), seq));
    }
    // A client that closes is forgotten.
    drop(reader);
    running.until("one that has gone", || running.clients() == 0);
}

#[test]
fn who_wants_parts_gets_them_beside_others_who_do_not() {
    let running = Running::start(Limits::default(), 2 * crate::events::PART + 1);
    let (mut whole, mut parts) = (running.watch(), running.watch_as("/events?parts=1"));
    let mut all = |seq: u64, first: &str| {
        assert_eq!(event(&mut whole), (first.to_owned(), seq));
        for name in [first, "change", "change"] {
            assert_eq!(event(&mut parts), (name.to_owned(), seq));
        }
    };
    all(1, "snapshot");
    for seq in 2..10 {
        running.show(seq);
        all(seq, "change");
    }
}

/// A client that reads nothing for a while then gets the newest event, and no queue of missed ones.
#[test]
fn who_is_late_gets_the_newest() {
    // On a busy host it takes long until the one who is late reads anything.
    let patient = Duration::from_secs(60);
    let running = Running::start(Limits { stuck: patient, whole: patient, ..SMALL }, 50_000);
    let (mut late, mut other) = (running.watch(), running.watch());
    assert_eq!(event(&mut other), ("snapshot".to_owned(), 1));
    // Each event has more than 1 MB, so these do not fit into the buffers of sockets.
    const LAST: u64 = 30;
    for seq in 2..=LAST {
        running.show(seq);
        assert_eq!(event(&mut other), ("change".to_owned(), seq));
    }
    let (mut seen, mut count) = (0, 0);
    while seen < LAST {
        let (name, number) = event(&mut late);
        assert!(number > seen && (name == "snapshot" || number == seen + 1), "{name} {number} after {seen}");
        (seen, count) = (number, count + 1);
    }
    assert!(count < LAST / 2, "{count} events");
}

#[test]
fn who_takes_nothing_is_dropped_and_holds_nobody_up() {
    let running = Running::start(SMALL, 50_000);
    let stalled: Vec<_> = (0..8).map(|_| running.watch()).collect();
    let mut readers: Vec<_> = (0..8).map(|_| running.watch()).collect();
    // No more clients may watch.
    assert!(running.get("/events").starts_with("HTTP/1.1 503 "));
    let mut seq = 1;
    readers.iter_mut().for_each(|reader| assert_eq!(event(reader).1, 1));
    let end = Instant::now() + Duration::from_secs(20);
    while running.clients() > 8 {
        assert!(Instant::now() < end, "{} clients", running.clients());
        seq += 1;
        running.show(seq);
        for reader in &mut readers {
            while event(reader).1 < seq {}
        }
        assert!(running.get("/").starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(running.clients(), 8);
    drop(stalled);
}

#[test]
fn half_requests_are_told_so_and_make_room() {
    let running = Running::start(SMALL, 1);
    let mut half = running.connect();
    half.write_all(b"GET / HT").unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    // Sending one byte at a time does not help: the limit is for the whole request.
    let mut slow = running.connect();
    let begun = Instant::now();
    let mut taken = 0;
    while begun.elapsed() < Duration::from_secs(5) && slow.write_all(b"G").is_ok() {
        taken += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{taken} bytes were taken");
    // There are more idle connections than the limit; a client that asks is still answered.
    let idle: Vec<_> = (0..100).map(|_| running.connect()).collect();
    assert!(running.get("/").starts_with("HTTP/1.1 200 "));
    assert!(running.clients() <= SMALL.connections);
    running.until("connections without a request", || running.clients() == 0);
    drop(idle);
}

#[test]
fn wrong_requests_get_an_error_each() {
    let running = Running::start(Limits::default(), 1);
    let huge = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(100));
    for (text, status) in [
        ("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("GET /%2e%2e HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("GET //events HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("GET /events?parts=2 HTTP/1.1\r\nHost: localhost\r\n\r\n", "400"),
        ("GET /history.json?link=none HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("GET /flows.json?link=none HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("GET /flows.json?class=none HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("GET /flows.json HTTP/1.1\r\nHost: localhost\r\n\r\n", "503"),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", "405"),
        ("DELETE /events HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        ("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
        ("GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n", "421"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "400"),
        ("GET /stat.json HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n", "403"),
        ("GET /stat.json HTTP/1.1\r\nHost: localhost\r\n\r\n", "503"),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n", "400"),
        (&many, "431"),
    ] {
        let answer = running.ask(text);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{text:.60}: {answer}");
        assert!(answer.contains("\r\nX-Content-Type-Options: nosniff\r\n"), "{answer}");
    }
    // The connection may be closed before so long a head is sent completely.
    let mut stream = running.connect();
    let _ = stream.write_all(huge.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431 "), "{}", String::from_utf8_lossy(&answer));
    let head = running.ask("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    let head = running.ask("HEAD /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(!head.contains("Content-Length"), "{head}");
    let head = running.ask("HEAD / HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 400 ") && head.ends_with("\r\n\r\n"), "{head}");
    let page = running.get("/");
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(head.contains("script-src 'sha256-") && !head.contains("unsafe"), "{head}");
    running.until("all connections are closed", || running.clients() == 0);
}
