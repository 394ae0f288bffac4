//! Clients that watch: what they are sent, and that they do not hold up others.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::thread::JoinHandle;

use super::*;

/// A service with an event for each `link.set` and, if it ticks, one every tenth of a second.
struct Happens {
    lines: Vec<String>,
    ticks: Option<Instant>,
}

const TICK: Duration = Duration::from_millis(100);

impl Happens {
    fn happen(&mut self, what: &str) {
        self.lines.push(format!("{{\"seq\":{},\"what\":\"{what}\"}}\n", self.lines.len()));
    }
}

impl Service for Happens {
    fn answer(&mut self, request: Request, _: &Peer) -> Result<Body, Fault> {
        if let Request::SetLink { link, .. } = request {
            self.happen(&link);
        }
        Ok(Body::from(b"{}".to_vec()))
    }

    fn watch(&mut self) -> Result<u64, Fault> {
        Ok(self.lines.len() as u64)
    }

    fn news(&mut self, from: u64, most: usize) -> (Body, u64) {
        let (mut text, mut at) = (String::new(), from);
        for line in self.lines.iter().skip(from as usize) {
            if text.len() >= most {
                break;
            }
            text += line;
            at += 1;
        }
        (Body::from(text.into_bytes()), at)
    }

    fn rests(&mut self) -> Option<Duration> {
        self.ticks.map(|at| at.saturating_duration_since(Instant::now()))
    }

    fn work(&mut self) {
        if self.ticks.is_some_and(|at| at <= Instant::now()) {
            self.ticks = Some(Instant::now() + TICK);
            self.happen("tick");
        }
    }
}

struct Running {
    path: PathBuf,
    stop: UnixStream,
    thread: Option<JoinHandle<usize>>,
}

impl Running {
    fn new(name: &str, limits: Limits, ticks: bool) -> Running {
        let path = std::env::temp_dir().join(format!("altq-watching-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let peer = |_: &UnixStream| Ok(Peer { pid: 1, uid: 0, groups: Vec::new() });
        let mut server = Server::new(listener, Writers { owner: 1, group: None }, limits, peer).unwrap();
        let thread = std::thread::spawn(move || {
            let mut service = Happens { lines: Vec::new(), ticks: ticks.then(|| Instant::now() + TICK) };
            server.run(&mut service, &stopped).unwrap();
            server.clients()
        });
        Running { path, stop, thread: Some(thread) }
    }

    fn connect(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        BufReader::new(stream)
    }

    fn end(mut self) -> usize {
        self.stop.write_all(b"x").unwrap();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn say(client: &mut BufReader<UnixStream>, text: &str) {
    client.get_mut().write_all(format!("{text}\n").as_bytes()).unwrap();
}

fn line(client: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Causes an event.
fn set(client: &mut BufReader<UnixStream>, what: &str) {
    say(client, &format!(r#"{{"op":"link.set","link":"{what}","rate_bit_s":1}}"#));
    assert!(line(client).contains(r#""ok":true"#));
}

const WATCH: &str = r#"{"op":"reserve.watch","id":5}"#;

#[test]
fn who_watches_is_told_what_follows_and_still_answered() {
    let server = Running::new("told", Limits::default(), false);
    let (mut one, mut other) = (server.connect(), server.connect());
    set(&mut other, "before");
    say(&mut one, WATCH);
    assert_eq!(line(&mut one), r#"{"schema":"altq.control/1","id":5,"ok":true,"result":{"from":1}}"#);
    set(&mut other, "a");
    set(&mut other, "b");
    assert_eq!([line(&mut one), line(&mut one)], [r#"{"seq":1,"what":"a"}"#, r#"{"seq":2,"what":"b"}"#]);
    // It sends a request itself: it gets the reply, and the event that the request causes.
    say(&mut one, r#"{"op":"link.set","link":"c","rate_bit_s":1,"id":6}"#);
    assert!(line(&mut one).contains(r#""id":6,"ok":true"#));
    assert_eq!(line(&mut one), r#"{"seq":3,"what":"c"}"#);
    // It closes its own side and goes on listening. Then it closes the connection.
    one.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    set(&mut other, "d");
    assert_eq!(line(&mut one), r#"{"seq":4,"what":"d"}"#);
    drop(one);
    set(&mut other, "e");
    drop(other);
    let mut last = server.connect();
    // Clients that have closed are dropped in the next turns.
    set(&mut last, "f");
    set(&mut last, "g");
    drop(last);
    assert!(server.end() <= 1);
}

#[test]
fn what_happens_by_itself_is_told_in_time() {
    let server = Running::new("ticks", Limits::default(), true);
    let mut one = server.connect();
    say(&mut one, WATCH);
    let from = line(&mut one);
    assert!(from.contains(r#""from":"#), "{from}");
    let lines = [line(&mut one), line(&mut one), line(&mut one)];
    assert!(lines.iter().all(|line| line.ends_with(r#""what":"tick"}"#)), "{lines:?}");
    server.end();
}

#[test]
fn who_watches_and_takes_nothing_holds_nobody_up_and_is_dropped() {
    let patience = Duration::from_millis(300);
    let server = Running::new("slow", Limits { patience, ..Limits::default() }, false);
    let (mut slow, mut other) = (server.connect(), server.connect());
    say(&mut slow, WATCH);
    assert!(line(&mut slow).contains(r#""from":0"#));
    let what = "x".repeat(60);
    let begun = Instant::now();
    // Requests of another client cause more events than a socket's buffer holds.
    for _ in 0..20_000 {
        set(&mut other, &what);
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    std::thread::sleep(patience * 3);
    set(&mut other, "last");
    let mut rest = Vec::new();
    let end = slow.read_to_end(&mut rest);
    assert!(end.is_err() || !rest.ends_with(b"\"last\"}\n"), "it was dropped before the end: {}", rest.len());
    assert_eq!(server.end(), 1);
}

/// A service that has nothing to watch.
struct Nothing;

impl Service for Nothing {
    fn answer(&mut self, _: Request, _: &Peer) -> Result<Body, Fault> {
        Ok(Body::from(b"{}".to_vec()))
    }
}

#[test]
fn what_cannot_be_watched_is_said() {
    let (id, result) =
        answer(WATCH.as_bytes(), &mut None, &Peer::default(), &Writers { owner: 1, group: None }, &mut Nothing);
    assert_eq!((id, result.unwrap_err().code), (Some(5), Code::Unsupported));
}
