//! A thousand idle clients do not keep another one from being answered. This is a test program of
//! its own, because it takes nearly all descriptors that a process may have.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use altq_control::reply::Body;
use altq_control::rights::{Peer, Writers};
use altq_control::server::{Limits, Server, Service};
use altq_control::{Fault, Request};

struct Answers;

impl Service for Answers {
    fn answer(&mut self, _: Request, _: &Peer) -> Result<Body, Fault> {
        Ok(Body::from(b"{}".to_vec()))
    }
}

#[test]
fn a_thousand_idle_clients_keep_nobody_out() {
    let path = std::env::temp_dir().join(format!("altq-control-idle-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let (mut stop, stopped) = UnixStream::pair().unwrap();
    let limits = Limits { clients: 32, ..Limits::default() };
    let peer = |_: &UnixStream| Ok(Peer { pid: 1, uid: 1000, groups: Vec::new() });
    let mut server = Server::new(listener, Writers { owner: 0, group: None }, limits, peer).unwrap();
    let thread = std::thread::spawn(move || {
        server.run(&mut Answers, &stopped).unwrap();
        server.clients()
    });
    let mut idle = Vec::new();
    for _ in 0..1000 {
        match UnixStream::connect(&path) {
            Ok(mut stream) => {
                // Every other client has sent half a request.
                if idle.len() % 2 == 0 {
                    let _ = stream.write_all(b"{\"op\":");
                }
                idle.push(stream);
            }
            Err(error) => {
                eprintln!("SKIPPED in part: {} connections ({error})", idle.len());
                idle.truncate(idle.len() - 20);
                break;
            }
        }
    }
    assert!(idle.len() > 300, "only {}", idle.len());
    for _ in 0..20 {
        let begun = Instant::now();
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"{\"op\":\"status\",\"id\":1}\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), r#"{"schema":"altq.control/1","id":1,"ok":true,"result":{}}"#);
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
    stop.write_all(b"x").unwrap();
    assert!(thread.join().unwrap() <= 32);
    let _ = std::fs::remove_file(&path);
}
