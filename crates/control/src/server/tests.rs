use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::thread::JoinHandle;

use super::*;

/// Answers `status` with how often it was asked, and `stat` with a large document.
struct Made {
    asked: u64,
    large: Body,
}

impl Service for Made {
    fn answer(&mut self, request: Request, _: &Peer) -> Result<Body, Fault> {
        self.asked += 1;
        match request {
            Request::Status => Ok(Body::from(self.asked.to_string().into_bytes())),
            Request::Stat { .. } => Ok(self.large.clone()),
            Request::SetLink { link, .. } => Err(Fault::usage(format!("no link {link}"))),
            _ => Ok(Body::from(b"[]".to_vec())),
        }
    }
}

/// A server in a thread, and its end.
struct Running {
    path: PathBuf,
    stop: UnixStream,
    thread: Option<JoinHandle<usize>>,
}

impl Running {
    fn new(name: &str, limits: Limits, uid: u32) -> Running {
        let path = std::env::temp_dir().join(format!("altq-control-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let writers = Writers { owner: 1, group: None };
        let peer = move |_: &UnixStream| Ok(Peer { pid: 1, uid, groups: Vec::new() });
        let mut server = Server::new(listener, writers, limits, peer).unwrap();
        let thread = std::thread::spawn(move || {
            let large = Body::from(format!("\"{}\"", "x".repeat(8 << 20)).into_bytes());
            let mut service = Made { asked: 0, large };
            server.run(&mut service, &stopped).unwrap();
            server.clients()
        });
        Running { path, stop, thread: Some(thread) }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Ends it, and returns how many clients it had.
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

fn line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// What a server answers to these bytes, sent in pieces of this size.
fn answers(server: &Running, bytes: &[u8], piece: usize) -> Vec<String> {
    let mut stream = server.connect();
    for piece in bytes.chunks(piece) {
        stream.write_all(piece).unwrap();
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    BufReader::new(stream).lines().map(|line| line.unwrap()).collect()
}

#[test]
fn each_request_gets_a_reply_in_order_whatever_its_pieces() {
    let server = Running::new("order", Limits::default(), 0);
    let text = b"{\"op\":\"status\",\"id\":1}\n\n{\"op\":\"nonsense\",\"id\":2}\nnot JSON\n\
        {\"op\":\"link.set\",\"link\":\"x\",\"rate_bit_s\":1,\"id\":3}\n{\"op\":\"status\",\"id\":4}\n{\"op\":\"sta";
    for piece in [1, 3, 64, 4096] {
        let lines = answers(&server, text, piece);
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert!(lines[0].starts_with(r#"{"schema":"altq.control/1","id":1,"ok":true,"result":"#), "{}", lines[0]);
        assert!(lines[1].contains(r#""id":2,"ok":false"#) && lines[1].contains("there is no request"), "{}", lines[1]);
        assert!(lines[2].contains(r#""ok":false"#) && !lines[2].contains(r#""id""#), "{}", lines[2]);
        assert!(lines[3].contains(r#""id":3,"ok":false,"error":{"code":2,"message":"no link x"}"#), "{}", lines[3]);
        assert!(lines[4].contains(r#""id":4,"ok":true"#), "{}", lines[4]);
    }
    assert_eq!(server.end(), 0, "they are gone");
}

#[test]
fn a_long_line_is_refused_and_the_next_one_answered() {
    let running = |name, uid| Running::new(name, Limits::default(), uid);
    let (reader, writer) = (running("long-read", 7), running("long", 0));
    // For a client that may only read, the fault is that it tried to change something.
    for (server, most, code) in [(&reader, crate::request::READ_LINE, 6), (&writer, crate::request::WRITE_LINE, 2)] {
        let text = [vec![b' '; most + 1], b"\n{\"op\":\"status\"}\n".to_vec()].concat();
        let lines = answers(server, &text, 10_000);
        assert!(lines[0].contains(&format!("at most {most} bytes")), "{}", lines[0]);
        assert!(lines[0].contains(&format!("\"code\":{code},")), "{}", lines[0]);
        assert!(lines[1].contains(r#""ok":true"#) && lines.len() == 2, "{lines:?}");
    }
    reader.end();
    writer.end();
}

#[test]
fn whoever_may_only_read_changes_nothing() {
    let server = Running::new("rights", Limits::default(), 7);
    let lines = answers(&server, b"{\"op\":\"link.set\",\"link\":\"x\",\"rate_bit_s\":1}\n{\"op\":\"status\"}\n", 4096);
    assert!(lines[0].contains(r#""code":6"#) && lines[0].contains("user 7 may read"), "{}", lines[0]);
    // The first request did not reach the service.
    assert!(lines[1].ends_with(r#""result":1}"#), "{}", lines[1]);
    server.end();
}

#[test]
fn a_client_that_takes_nothing_holds_nobody_up_and_is_dropped() {
    let patience = Duration::from_millis(300);
    let server = Running::new("slow", Limits { patience, ..Limits::default() }, 0);
    let mut slow = server.connect();
    // The second request is not even read while the reply to the first one is not received.
    slow.write_all(b"{\"op\":\"stat\"}\n{\"op\":\"stat\"}\n").unwrap();
    let other = server.connect();
    let mut replies = BufReader::new(other.try_clone().unwrap());
    let begun = Instant::now();
    let mut other = other;
    for _ in 0..100 {
        other.write_all(b"{\"op\":\"status\"}\n").unwrap();
        assert!(line(&mut replies).contains(r#""ok":true"#));
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    std::thread::sleep(patience * 3);
    let mut rest = Vec::new();
    let end = slow.read_to_end(&mut rest);
    assert!(end.is_err() || rest.len() < 8 << 20, "the connection was closed within the reply: {}", rest.len());
    assert_eq!(server.end(), 1);
}

#[test]
fn a_large_reply_comes_whole_to_a_client_that_reads_slowly() {
    let server = Running::new("large", Limits { patience: Duration::from_secs(20), ..Limits::default() }, 0);
    let mut stream = server.connect();
    stream.write_all(b"{\"op\":\"stat\"}\n").unwrap();
    let (mut all, mut piece) = (Vec::new(), [0; 100_000]);
    while !all.ends_with(b"}\n") {
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "closed after {} bytes", all.len());
        all.extend_from_slice(&piece[..count]);
    }
    let (_, result) = reply::read(&all).unwrap();
    assert_eq!(result.unwrap().len(), (8 << 20) + 2);
    server.end();
}

#[test]
fn replies_that_wait_need_no_more_memory_than_allowed() {
    let limits = Limits { memory: 1, ..Limits::default() };
    let server = Running::new("memory", limits, 0);
    // A document for which many clients wait counts once, and all of them are kept, however large
    // it is.
    let mut waiting: Vec<UnixStream> = (0..8).map(|_| server.connect()).collect();
    for stream in &mut waiting {
        stream.write_all(b"{\"op\":\"stat\"}\n").unwrap();
    }
    // Each client has begun to receive it. A socket's buffer holds only a part, so the rest waits.
    for stream in &mut waiting {
        stream.read_exact(&mut [0]).unwrap();
    }
    assert_eq!(server.end(), 8);
}

/// Answers every `stat` with a large document of its own.
struct EachItsOwn;

impl Service for EachItsOwn {
    fn answer(&mut self, _: Request, _: &Peer) -> Result<Body, Fault> {
        Ok(Body::from(format!("\"{}\"", "x".repeat(4 << 20)).into_bytes()))
    }
}

#[test]
fn who_waits_longest_goes_when_documents_need_too_much() {
    let path = std::env::temp_dir().join(format!("altq-control-{}-own", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    // Room for two documents of 4 MiB and not for three.
    let limits = Limits { memory: 10 << 20, ..Limits::default() };
    let peer = |_: &UnixStream| Ok(Peer::default());
    let mut server = Server::new(listener, Writers { owner: 0, group: None }, limits, peer).unwrap();
    let (_stop, stopped) = UnixStream::pair().unwrap();
    let mut waiting = Vec::new();
    for count in [1, 2, 2, 2] {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"{\"op\":\"stat\"}\n").unwrap();
        waiting.push(stream);
        // In one turn the client is accepted. In the next one its request is answered, and the
        // replies that wait are counted.
        for _ in 0..2 {
            assert!(!server.turn(&mut EachItsOwn, stopped.as_fd()).unwrap());
        }
        assert_eq!(server.clients(), count);
    }
    // The first two clients were dropped.
    for (at, stream) in waiting.iter_mut().enumerate() {
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut all = Vec::new();
        let ended = stream.read_to_end(&mut all).is_ok();
        assert_eq!(ended, at < 2, "{at}: {} bytes", all.len());
    }
    let _ = std::fs::remove_file(&path);
}
