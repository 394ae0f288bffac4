//! A control connection, from the challenge to the result. Each has its own thread.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use altq_engine::units::SECOND;

use super::ServerState;
use super::conversation::{Action, Conversation, State};
use super::session::Session;
use crate::bulk::waiting;
use crate::clock::{self, Lateness, Processors};
use crate::error::{Doing, Error, Refusal};
use crate::plan::GRACE;
use crate::protocol::{Address, Lines, Plan, ServerMessage, line};
use crate::socket;
use crate::token::{self, NONCE, hex};

/// The most clients at a time that have not proved that they know the token (strangers).
pub const STRANGERS: u32 = 16;

/// Time that a stranger has for its proof.
const STRANGER: Duration = Duration::from_secs(5);

/// Time for which a connection with a wrong proof still counts as a stranger, so that at most 16
/// tokens per second can be tried.
const PENALTY: Duration = Duration::from_secs(1);

/// After this time without a message a client counts as gone.
pub const SILENCE: Duration = Duration::from_secs(15);

/// Time that a client has to send its plan, to start the run after that, and to stop it after its
/// end.
const SLOW: Duration = Duration::from_secs(30);

/// Time that a client has to read the last message.
const REST: Duration = Duration::from_secs(5);

/// Longest wait for a message of the client.
const POLL: Duration = Duration::from_millis(20);

/// Serves a control connection until it ends. `nonce` is the client's random number.
pub fn serve(server: &Arc<ServerState>, connection: TcpStream, nonce: &[u8; NONCE], from: SocketAddr) {
    let strangers = server.strangers.fetch_add(1, Ordering::Relaxed);
    // Unlike those of flows, it closes without a reset, which would take back what was sent last.
    let _ = rustix::net::sockopt::set_socket_linger(&connection, None);
    let mut control = Control { server, connection, from, lines: Lines::default(), stranger: true, proved: false };
    let result = if strangers >= STRANGERS {
        control.send(&Conversation::refusal(
            Refusal::Busy,
            "too many clients have not proved their token yet; try again".into(),
        ))
    } else {
        control.converse(nonce)
    };
    control.known();
    match result {
        // Strangers get no thread of the server for longer than they need.
        Ok(()) if control.proved => control.rest(),
        Ok(()) => {}
        Err(error) => server.log(&format!("client {from}: {error}")),
    }
}

struct Control<'a> {
    server: &'a Arc<ServerState>,
    connection: TcpStream,
    from: SocketAddr,
    lines: Lines,
    stranger: bool,
    /// The client has proved that it knows the token.
    proved: bool,
}

/// A place among the clients that the server accepts. Dropping it ends the session.
struct Seat {
    server: Arc<ServerState>,
    number: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let session = self.server.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
        if let Some(Some(session)) = session {
            session.stop();
        }
    }
}

impl Control<'_> {
    fn known(&mut self) {
        if std::mem::take(&mut self.stranger) {
            self.server.strangers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn send(&mut self, reply: &ServerMessage) -> Result<(), Error> {
        self.connection.write_all(&line(reply)).doing(|| "talking to the client")
    }

    fn refuse(&mut self, why: Refusal, reason: String) -> Result<(), Error> {
        self.server.log(&format!("client {}: refused: {reason}", self.from));
        self.send(&Conversation::refusal(why, reason))
    }

    fn converse(&mut self, client: &[u8; NONCE]) -> Result<(), Error> {
        let limits = |error: std::io::Error| Error::Io { doing: "a control connection".into(), error };
        self.connection.set_read_timeout(Some(POLL)).map_err(limits)?;
        // A client that does not read the server's messages counts as gone.
        self.connection.set_write_timeout(Some(Duration::from_secs(5))).map_err(limits)?;
        self.connection.set_nodelay(true).map_err(limits)?;
        let server = token::random::<NONCE>()?;
        self.send(&ServerMessage::Challenge { nonce: hex(&server) })?;
        let secrets = self.server.token.secrets(client, &server);
        let key = secrets.session;
        let proof = secrets.server();
        let mut conversation = Conversation::new(secrets, self.server.caps);

        let Some(first) = self.line(&conversation, Instant::now() + STRANGER)? else { return Ok(()) };
        match conversation.handle(&first) {
            Action::Welcome => {}
            Action::Refuse(why, reason) => {
                std::thread::sleep(PENALTY);
                return self.refuse(why, reason);
            }
            _ => return Ok(()),
        }
        self.known();
        self.proved = true;
        let number = u64::from_be_bytes(token::random()?);
        let Some(seat) = self.sit(number) else {
            let most = self.server.caps.clients;
            return self
                .refuse(Refusal::Busy, format!("the server has {most} clients and accepts no more (--max-clients)"));
        };
        let clock = hex(&key.tag(&[b"clock", clock::identity().as_bytes()]));
        self.send(&ServerMessage::Welcome { proof, session: number, caps: self.server.caps, clock })?;

        let until = Instant::now() + SLOW;
        let plan = loop {
            let Some(line) = self.line(&conversation, until)? else { return Ok(()) };
            match conversation.handle(&line) {
                Action::Prepare(plan) => break plan,
                Action::Nothing => {}
                Action::Refuse(why, reason) => return self.refuse(why, reason),
                _ => return Ok(()),
            }
        };
        if let Some(flow) = plan.flows.iter().find(|flow| !self.server.ports.contains(&flow.port)) {
            let ports: Vec<String> = self.server.ports.iter().map(u16::to_string).collect();
            let why = format!(
                "flow `{}`: the server does not listen on port {}, but on {}",
                flow.name,
                flow.port,
                ports.join(", ")
            );
            return self.refuse(Refusal::Message, why);
        }
        self.play(&mut conversation, key, plan, &seat)
    }

    /// Takes a place among the clients, if there is one left.
    fn sit(&self, number: u64) -> Option<Seat> {
        let mut sessions = self.server.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= self.server.caps.clients as usize || sessions.contains_key(&number) {
            return None;
        }
        sessions.insert(number, None);
        Some(Seat { server: self.server.clone(), number })
    }

    /// Waits until the client has read the last message, and has closed: a connection that is
    /// closed while bytes of the client are unread is reset.
    fn rest(&mut self) {
        let until = Instant::now() + REST;
        let mut unread = [0; 4096];
        while Instant::now() < until && !self.server.stop.load(Ordering::Relaxed) {
            if !socket::readable(&self.connection, POLL) {
                continue;
            }
            match self.connection.read(&mut unread) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if waiting(&error) => {}
                Err(_) => return,
            }
        }
    }

    /// The next line; `None` if none arrives by `until`, the client is gone, or the server stops.
    fn line(&mut self, conversation: &Conversation, until: Instant) -> Result<Option<Vec<u8>>, Error> {
        while Instant::now() < until && !self.server.stop.load(Ordering::Relaxed) {
            match self.receive(conversation, POLL)? {
                Received::Line(line) => return Ok(Some(line)),
                Received::Gone => return Ok(None),
                Received::Nothing => {}
            }
        }
        Ok(None)
    }

    /// The next line, if there is one or one arrives within `wait`, which is at most [`POLL`].
    fn receive(&mut self, conversation: &Conversation, wait: Duration) -> Result<Received, Error> {
        let most = conversation.longest();
        let too_long = |_| Error::Protocol(format!("a line of more than {most} bytes"));
        if let Some(line) = self.lines.next(most).map_err(too_long)? {
            return Ok(Received::Line(line));
        }
        if !socket::readable(&self.connection, wait) {
            return Ok(Received::Nothing);
        }
        let mut buffer = [0; 4096];
        match self.connection.read(&mut buffer) {
            Ok(0) => Ok(Received::Gone),
            Ok(count) => {
                self.lines.push(buffer.get(..count).unwrap_or_default());
                Ok(self.lines.next(most).map_err(too_long)?.map_or(Received::Nothing, Received::Line))
            }
            Err(error) if waiting(&error) => Ok(Received::Nothing),
            Err(_) => Ok(Received::Gone),
        }
    }

    /// Runs a plan and sends the result. When it returns, the session's threads have ended.
    fn play(&mut self, conversation: &mut Conversation, key: token::Key, plan: Plan, seat: &Seat) -> Result<(), Error> {
        let local = self.connection.local_addr().doing(|| "a control connection")?;
        let (attached, news) = channel();
        let (interval, flows) = (Duration::from_nanos(plan.interval_ns), plan.flows.len());
        let last = plan.flows.iter().map(|flow| flow.stop_ns).max().unwrap_or(0);
        let session = Arc::new(Session::new(key, local, plan, &self.server.caps, attached));
        self.server.sessions.lock().unwrap_or_else(PoisonError::into_inner).insert(seat.number, Some(session.clone()));
        self.send(&ServerMessage::Accepted)?;
        let seconds = last as f64 / SECOND as f64;
        self.server.log(&format!(
            "client {}: {flows} flow{}, {seconds} s",
            self.from,
            if flows == 1 { "" } else { "s" }
        ));
        let stop = AtomicBool::new(false);
        let mut threads = Vec::new();
        let (result, beat) = std::thread::scope(|scope| {
            let beat = scope.spawn(|| clock::metronome(&stop));
            let result = self.run(conversation, &session, &news, interval, last, &mut threads);
            session.stop();
            stop.store(true, Ordering::Relaxed);
            (result, beat.join().unwrap_or_default())
        });
        for thread in threads {
            // The counters of a thread that panicked are still there.
            let _ = thread.join();
        }
        match result? {
            Outcome::Done(processors) => self.send_result(&session, &beat, &processors),
            Outcome::Gone(why) => {
                self.server.log(&format!("client {}: {why}", self.from));
                Ok(())
            }
        }
    }

    fn run(
        &mut self,
        conversation: &mut Conversation,
        session: &Arc<Session>,
        news: &Receiver<Address>,
        interval: Duration,
        last: u64,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> Result<Outcome, Error> {
        let planned = Instant::now();
        let mut heard = planned;
        let mut report = None;
        let processors = Processors::now()?;
        loop {
            if self.server.stop.load(Ordering::Relaxed) {
                return Ok(Outcome::Gone("the server stops"));
            }
            let now = Instant::now();
            // The next report leaves when it is due.
            let wait = report.map_or(POLL, |due: Instant| due.saturating_duration_since(now).min(POLL));
            match self.receive(conversation, wait)? {
                Received::Nothing if now.duration_since(heard) > SILENCE => {
                    return Ok(Outcome::Gone("it has sent nothing for 15 s"));
                }
                Received::Nothing => {}
                Received::Gone => return Ok(Outcome::Gone("it has closed the connection")),
                Received::Line(line) => {
                    heard = now;
                    match conversation.handle(&line) {
                        Action::Begin => {
                            if let Some(missing) = session.missing() {
                                self.refuse(Refusal::Message, missing)?;
                                return Ok(Outcome::Gone("it began too early"));
                            }
                            *threads = session.start()?;
                            self.send(&ServerMessage::Started)?;
                            report = Some(Instant::now() + interval);
                        }
                        Action::End => return Ok(Outcome::Done(processors)),
                        Action::Refuse(why, reason) => {
                            self.refuse(why, reason)?;
                            return Ok(Outcome::Gone("it was refused"));
                        }
                        _ => {}
                    }
                }
            }
            for Address { flow, stream, .. } in news.try_iter() {
                self.send(&ServerMessage::Attached { flow, stream })?;
            }
            match report {
                None => {
                    if let Some(trouble) = session.trouble() {
                        self.refuse(Refusal::Unsupported, trouble)?;
                        return Ok(Outcome::Gone("its flows cannot run"));
                    }
                    if planned.elapsed() > SLOW {
                        return Ok(Outcome::Gone("it has not begun in 30 s"));
                    }
                }
                Some(due) if Instant::now() >= due => {
                    self.send(&ServerMessage::Report { at_ns: session.now(), flows: session.reports() })?;
                    report = Some(due.max(now.checked_sub(interval).unwrap_or(now)) + interval);
                }
                Some(_) => {}
            }
            if conversation.state() == State::Running && session.now() > last + GRACE + SLOW.as_nanos() as u64 {
                return Ok(Outcome::Gone("it has not ended the run in time"));
            }
        }
    }

    /// Sends the result.
    fn send_result(&mut self, session: &Session, beat: &Lateness, earlier: &Processors) -> Result<(), Error> {
        let (busy, stolen) = Processors::now()?.since(earlier);
        let mut invalid = Vec::new();
        if let Some(reason) = beat.broken() {
            invalid.push(format!(
                "the server's host did not keep time: {reason}; its processors were {:.0} % busy",
                busy * 100.0
            ));
        }
        if stolen > clock::STOLEN {
            invalid.push(format!(
                "{:.0} % of the processors' time of the server's host was taken by other machines",
                stolen * 100.0
            ));
        }
        let reply = ServerMessage::Result { flows: session.ends(), invalid, notes: session.notes(&self.server.caps) };
        self.send(&reply)?;
        self.server.log(&format!("client {}: done", self.from));
        Ok(())
    }
}

/// What was received.
enum Received {
    Nothing,
    Line(Vec<u8>),
    Gone,
}

/// How a run ended.
enum Outcome {
    Done(Processors),
    Gone(&'static str),
}
