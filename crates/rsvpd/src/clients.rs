//! Answers the clients of the daemon's socket. None of them can hold it up: sockets do not block,
//! and a client has one reply at a time.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use altq_control::line::Lines;
use altq_control::rights::{Peer, Writers};
use altq_control::{Fault, reply};
use altq_dataplane::credentials;
use rustix::event::PollFlags;

/// The most clients at a time.
const CLIENTS: usize = 16;
/// The longest line of a client.
const LINE: usize = 16 << 10;
/// How long a client may take nothing of a reply.
const PATIENCE: Duration = Duration::from_secs(10);

struct Client {
    stream: UnixStream,
    peer: Peer,
    lines: Lines,
    /// What it has not taken of a reply.
    reply: Vec<u8>,
    /// When it last sent or took something.
    active: Instant,
    gone: bool,
}

/// The clients, and the socket by which they come.
pub struct Clients {
    listener: UnixListener,
    writers: Writers,
    clients: Vec<Client>,
}

/// Answers a line. The second is what says whether its client may change things.
pub type Answer<'a> = dyn FnMut(&[u8], &dyn Fn(altq_control::rights::Right) -> Result<(), Fault>) -> Vec<u8> + 'a;

impl Clients {
    /// Clients of a socket that listens. Who may change things, `writers` says.
    ///
    /// # Errors
    /// That of setting the socket to not block.
    pub fn new(listener: UnixListener, writers: Writers) -> io::Result<Clients> {
        listener.set_nonblocking(true)?;
        Ok(Clients { listener, writers, clients: Vec::new() })
    }

    /// What to wait for: the socket first.
    pub fn watched(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut all = vec![(self.listener.as_fd(), PollFlags::IN)];
        all.extend(self.clients.iter().map(|client| {
            let flags = if client.reply.is_empty() { PollFlags::IN } else { PollFlags::OUT };
            (client.stream.as_fd(), flags)
        }));
        all
    }

    /// How long it has nothing to do unless something comes; None: for ever.
    pub fn rests(&self) -> Option<Duration> {
        if self.clients.iter().any(|client| client.reply.is_empty() && client.lines.has_line()) {
            return Some(Duration::ZERO);
        }
        let stuck = self.clients.iter().filter(|client| !client.reply.is_empty());
        stuck.map(|client| (client.active + PATIENCE).saturating_duration_since(Instant::now())).min()
    }

    /// Does what is to be done, without waiting.
    pub fn work(&mut self, answer: &mut Answer<'_>) {
        let now = Instant::now();
        let writers = self.writers;
        for client in &mut self.clients {
            client.work(now, &writers, answer);
        }
        self.clients.retain(|client| !client.gone);
        for _ in 0..CLIENTS {
            let Ok((stream, _)) = self.listener.accept() else { break };
            let found = credentials(&stream).and_then(|found| stream.set_nonblocking(true).map(|()| found));
            let Ok(found) = found else { continue };
            if self.clients.len() >= CLIENTS {
                // The one that has been silent longest makes room.
                let silent = self.clients.iter().enumerate().min_by_key(|(_, client)| client.active);
                if let Some(at) = silent.map(|(at, _)| at) {
                    self.clients.swap_remove(at);
                }
            }
            let peer = Peer { pid: found.pid, uid: found.uid, groups: found.groups };
            let (lines, reply) = (Lines::default(), Vec::new());
            self.clients.push(Client { stream, peer, lines, reply, active: now, gone: false });
        }
    }
}

impl Client {
    fn work(&mut self, now: Instant, writers: &Writers, answer: &mut Answer<'_>) {
        if !self.reply.is_empty() {
            self.send(now);
        }
        if self.reply.is_empty() && !self.gone {
            // One that sends many lines at once waits until they are answered.
            if !self.lines.has_line() {
                self.read(now);
            }
            let line = match self.lines.take(LINE) {
                Ok(line) => line.filter(|line| !line.is_empty()),
                Err(_) => {
                    self.reply = reply::fault(None, &Fault::usage(format!("a line has at most {LINE} bytes")));
                    None
                }
            };
            if let Some(line) = line {
                let help = "root, the daemon's user and the group of its socket may: `altq rsvpd --group`";
                let may = |right| writers.check(&self.peer, right).map_err(|fault| fault.help(help));
                self.reply = answer(&line, &may);
            }
            if !self.reply.is_empty() {
                self.gone = false;
                self.send(now);
            }
        }
        self.gone |= !self.reply.is_empty() && now.saturating_duration_since(self.active) >= PATIENCE;
    }

    /// Takes what it has sent.
    fn read(&mut self, now: Instant) {
        let mut piece = [0_u8; 4096];
        match self.stream.read(&mut piece) {
            Ok(0) => self.gone = true,
            Ok(count) => {
                self.active = now;
                self.lines.push(piece.get(..count).unwrap_or_default());
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.gone = true,
        }
    }

    /// Sends what it takes of its reply.
    fn send(&mut self, now: Instant) {
        match self.stream.write(&self.reply) {
            Ok(count) => {
                self.active = now;
                self.reply.drain(..count);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.gone = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn lines_are_answered_one_after_another() {
        let path = std::env::temp_dir().join(format!("altq-rsvpd-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let mut clients = Clients::new(listener, Writers { owner: 0, group: None }).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        client.write_all(b"one\ntwo\n").unwrap();
        let mut answer = |line: &[u8], _: &dyn Fn(altq_control::rights::Right) -> Result<(), Fault>| {
            [b"got ".as_slice(), line, b"\n"].concat()
        };
        // Accepted, then a line in each turn.
        for _ in 0..3 {
            clients.work(&mut answer);
        }
        assert_eq!(clients.rests(), None);
        let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "got one");
        assert_eq!(lines.next().unwrap().unwrap(), "got two");
        drop((lines, client));
        clients.work(&mut answer);
        assert_eq!(clients.watched().len(), 1, "it is gone");
    }

    /// What a client sends ahead stays in its socket.
    #[test]
    fn lines_that_wait_take_no_memory() {
        let path = std::env::temp_dir().join(format!("altq-rsvpd-many-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let mut clients = Clients::new(listener, Writers { owner: 0, group: None }).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        client.write_all(&b"x\n".repeat(20_000)).unwrap();
        for turn in 0..100 {
            clients.work(&mut |_, _| b"y\n".to_vec());
            assert!(clients.clients.iter().all(|client| client.lines.len() <= 4096), "after {turn} turns");
        }
    }
}
