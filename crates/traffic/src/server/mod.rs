//! The server: safe to leave running on a network where not everybody is a friend.
//!
//! - Nobody gets anything done who has not shown that he knows the token; it never travels (see
//!   [`crate::token`]).
//! - Nothing is sent to an address that has not proved itself: TCP by its handshake, UDP by a
//!   cookie that only whoever receives at the address can give back, and the cookie is as long as
//!   what asked for it ([`crate::protocol`]).
//! - What a client may do is capped: rate, duration, clients, flows, connections. Everything has a
//!   time limit, and traffic ends when the control connection does.

mod control;
mod conversation;
mod session;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use altq_engine::units::SECOND;

pub use self::control::SILENCE;
pub use self::conversation::{Action, Conversation, State};
use self::session::Session;
use crate::acceptor::{self, Verdict};
use crate::bulk::waiting;
use crate::error::{Doing, Error};
use crate::plan::Work;
use crate::protocol::{Caps, Datagram, Preamble, Step};
use crate::socket::{self, Tuning};
use crate::token::{Key, Token};

/// The port that is meant where none is named: `ALTQ` on the keys of a telephone.
pub const PORT: u16 = 2587;

/// What a client may do where nothing else is said.
pub const CAPS: Caps =
    Caps { rate_bit_s: 1_000_000_000, duration_ns: 300 * SECOND, clients: 4, flows: 256, streams: 1024 };

/// Connections that have not said what they are for, or have had their answer and are not closed.
const PENDING: acceptor::Limits =
    acceptor::Limits { bytes: Preamble::BYTES, pending: 1024, patience: Duration::from_secs(5) };

/// What a server is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens, TCP and UDP; port 0: one that is free.
    pub listen: Vec<SocketAddr>,
    /// What a client must know.
    pub token: Token,
    /// What a client may do.
    pub caps: Caps,
}

/// A running server.
pub struct Server {
    state: Arc<ServerState>,
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<Result<(), Error>>>,
}

/// Where a server says what happens.
pub type Log = Box<dyn Fn(&str) + Send + Sync>;

/// What all its threads share.
struct ServerState {
    token: Token,
    caps: Caps,
    /// What cookies are made with: nobody else has it.
    cookies: Key,
    ports: Vec<u16>,
    /// By number; `None` until there is a plan.
    sessions: Mutex<BTreeMap<u64, Option<Arc<Session>>>>,
    strangers: AtomicU32,
    stop: AtomicBool,
    log: Log,
}

impl ServerState {
    fn log(&self, what: &str) {
        (self.log)(what);
    }

    fn session(&self, number: u64) -> Option<Arc<Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned().flatten()
    }
}

impl Server {
    /// Listens and answers until [`stop`](Server::stop).
    ///
    /// # Errors
    /// Where an address cannot be listened on.
    pub fn start(options: Options, log: Log) -> Result<Server, Error> {
        let mut places = Vec::new();
        for at in &options.listen {
            places.push(listen(*at)?);
        }
        let addresses: Vec<SocketAddr> = places.iter().map(|(_, _, address)| *address).collect();
        let state = Arc::new(ServerState {
            token: options.token,
            caps: options.caps,
            cookies: Key::random()?,
            ports: addresses.iter().map(SocketAddr::port).collect(),
            sessions: Mutex::default(),
            strangers: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            log,
        });
        let mut server = Server { state, addresses, threads: Vec::new() };
        for (listener, socket, address) in places {
            let state = server.state.clone();
            server.thread(move || acceptor::serve(&listener, PENDING, &Admit { state: state.clone() }, &state.stop))?;
            let state = server.state.clone();
            server.thread(move || prove_addresses(&state, &socket, address.port()))?;
        }
        Ok(server)
    }

    fn thread(&mut self, work: impl FnOnce() -> Result<(), Error> + Send + 'static) -> Result<(), Error> {
        self.threads.push(std::thread::Builder::new().name("server".into()).spawn(work).doing(|| "starting a thread")?);
        Ok(())
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// True when it has come to an end by itself.
    pub fn failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Stops listening; sessions end within moments.
    ///
    /// # Errors
    /// The first thing that went wrong while it ran.
    pub fn stop(mut self) -> Result<(), Error> {
        self.state.stop.store(true, Ordering::Relaxed);
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(Err(error)) if result.is_ok() => result = Err(error),
                Err(_) if result.is_ok() => result = Err(Error::Ended("a thread of the server broke down".into())),
                _ => {}
            }
        }
        result
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
    }
}

/// TCP and UDP on the same port.
fn listen(at: SocketAddr) -> Result<(TcpListener, UdpSocket, SocketAddr), Error> {
    let mut tries = 0;
    loop {
        let listener = socket::listen_tcp(at, &Tuning::default())?;
        let address = listener.local_addr().doing(|| "listening")?;
        match socket::udp_shared(address) {
            Ok(socket) => return Ok((listener, socket, address)),
            // The port that TCP has chosen is another's over UDP: it chooses again.
            Err(_) if at.port() == 0 && tries < 10 => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

struct Admit {
    state: Arc<ServerState>,
}

impl acceptor::Admission for Admit {
    fn judge(&self, bytes: &[u8], _: SocketAddr) -> Verdict {
        let preamble = Preamble::read(bytes);
        let address = match preamble {
            None => return Verdict::Drop,
            Some(Preamble::Control(_)) => return Verdict::Take,
            Some(Preamble::Data(address, _)) => address,
        };
        let Some(session) = self.state.session(address.session) else { return Verdict::Drop };
        if !preamble.is_some_and(|preamble| preamble.proved(&session.key)) {
            return Verdict::Drop;
        }
        match session.work(&address) {
            Some(Work::TcpConnect { .. }) if session.connected(&address) => Verdict::Answer(b'A'),
            Some(Work::TcpBulk { .. } | Work::TcpRr { .. }) => Verdict::Take,
            _ => Verdict::Drop,
        }
    }

    fn take(&self, connection: TcpStream, bytes: &[u8], from: SocketAddr) {
        match Preamble::read(bytes) {
            Some(Preamble::Control(nonce)) => {
                let state = self.state.clone();
                let work = move || control::serve(&state, connection, &nonce, from);
                if std::thread::Builder::new().name("control".into()).spawn(work).is_err() {
                    self.state.log(&format!("client {from}: no thread for it"));
                }
            }
            Some(Preamble::Data(address, _)) => {
                if let Some(session) = self.state.session(address.session) {
                    session.attach(address, connection);
                }
            }
            None => {}
        }
    }
}

/// Answers probes with cookies, and gives addresses that have proved themselves to their flows.
fn prove_addresses(state: &ServerState, socket: &UdpSocket, port: u16) -> Result<(), Error> {
    let mut buffer = [0; 2048];
    while !state.stop.load(Ordering::Relaxed) {
        let (bytes, from) = match socket.recv_from(&mut buffer) {
            Ok(came) => came,
            Err(error) if waiting(&error) => continue,
            // What the kernel reports of an earlier answer.
            Err(_) => continue,
        };
        let Some(answer) = answer_datagram(state, buffer.get(..bytes).unwrap_or_default(), from, port) else {
            continue;
        };
        // A full queue on the way out: the client asks again.
        let _ = socket.send_to(&answer, from);
    }
    Ok(())
}

/// What a datagram from an address is answered with, if anything: as many bytes as it has.
fn answer_datagram(state: &ServerState, bytes: &[u8], from: SocketAddr, port: u16) -> Option<[u8; Datagram::BYTES]> {
    let datagram = Datagram::read(bytes)?;
    let session = state.session(datagram.address.session)?;
    if !datagram.proved(&session.key) || !session.work(&datagram.address).is_some_and(Work::is_udp) {
        return None;
    }
    let number = datagram.address.session.to_be_bytes();
    let place = format!("{from} {} {}", datagram.address.flow, datagram.address.stream);
    let parts: [&[u8]; 3] = [b"cookie", &number, place.as_bytes()];
    match datagram.step {
        Step::Probe => {
            Some(Datagram::new(Step::Cookie, datagram.address, state.cookies.tag(&parts), &session.key).bytes())
        }
        Step::Echo if state.cookies.proves(&parts, &datagram.cookie) => {
            // The answer goes over the control connection.
            session.attach_address(datagram.address, port, from);
            None
        }
        Step::Echo | Step::Cookie => None,
    }
}
