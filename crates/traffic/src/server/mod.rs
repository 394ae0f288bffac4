//! The server. It may be left running on a network with hostile hosts:
//!
//! - A client must prove that it knows the token before the server does anything for it. The token
//!   itself is never sent (see [`crate::token`]).
//! - No traffic is sent to an address that is not proved. TCP proves it by its handshake, UDP by a
//!   cookie that only a receiver at the address can send back. The cookie is as long as the probe
//!   that asked for it ([`crate::protocol`]).
//! - Rate, duration, clients, flows and connections are limited. Every step has a time limit, and
//!   traffic ends when the control connection does.

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

/// The default port: `ALTQ` on the keys of a telephone.
pub const PORT: u16 = 2587;

/// The default limits.
pub const CAPS: Caps =
    Caps { rate_bit_s: 1_000_000_000, duration_ns: 300 * SECOND, clients: 4, flows: 256, streams: 1024 };

/// Limits for connections that have not sent their preamble, or were answered and are not closed.
const PENDING: acceptor::Limits =
    acceptor::Limits { bytes: Preamble::BYTES, pending: 1024, patience: Duration::from_secs(5) };

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Addresses to listen on, with TCP and UDP. Port 0: any free port.
    pub listen: Vec<SocketAddr>,
    /// The token that clients must know.
    pub token: Token,
    /// Limits for clients.
    pub caps: Caps,
}

/// A running server.
pub struct Server {
    state: Arc<ServerState>,
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<Result<(), Error>>>,
}

/// Receives the server's log, one line per call.
pub type Log = Box<dyn Fn(&str) + Send + Sync>;

/// The state that all threads of a server share.
struct ServerState {
    token: Token,
    caps: Caps,
    /// The key of the cookies, which only this server knows.
    cookies: Key,
    ports: Vec<u16>,
    /// Sessions by number; `None` until the session has a plan.
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
    /// Starts a server; it runs until [`stop`](Server::stop).
    ///
    /// # Errors
    /// If the server cannot listen on an address.
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

    /// The addresses on which it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// True if one of its threads has ended by itself, which happens only after an error.
    pub fn failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Stops listening. Sessions end soon after.
    ///
    /// # Errors
    /// The first error of its threads.
    pub fn stop(mut self) -> Result<(), Error> {
        self.state.stop.store(true, Ordering::Relaxed);
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(Err(error)) if result.is_ok() => result = Err(error),
                Err(_) if result.is_ok() => result = Err(Error::Ended("a thread of the server panicked".into())),
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

/// Listens with TCP and UDP on the same port.
fn listen(at: SocketAddr) -> Result<(TcpListener, UdpSocket, SocketAddr), Error> {
    let mut tries = 0;
    loop {
        let listener = socket::listen_tcp(at, &Tuning::default())?;
        let address = listener.local_addr().doing(|| "listening")?;
        match socket::udp_shared(address) {
            Ok(socket) => return Ok((listener, socket, address)),
            // The port chosen for TCP is in use for UDP, so another one is tried.
            Err(_) if at.port() == 0 && tries < 10 => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Decides about new connections by their preamble.
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
                    self.state.log(&format!("client {from}: cannot start a thread"));
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

/// Answers probes with cookies, and assigns proved addresses to their flows.
fn prove_addresses(state: &ServerState, socket: &UdpSocket, port: u16) -> Result<(), Error> {
    let mut buffer = [0; 2048];
    while !state.stop.load(Ordering::Relaxed) {
        let (bytes, from) = match socket.recv_from(&mut buffer) {
            Ok(came) => came,
            Err(error) if waiting(&error) => continue,
            // The kernel reports an error of an earlier answer.
            Err(_) => continue,
        };
        let Some(answer) = answer_datagram(state, buffer.get(..bytes).unwrap_or_default(), from, port) else {
            continue;
        };
        // If the answer cannot be sent, the client asks again.
        let _ = socket.send_to(&answer, from);
    }
    Ok(())
}

/// The answer to a datagram, if there is one. It is as long as the datagram.
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
            // The client learns it by its control connection.
            session.attach_address(datagram.address, port, from);
            None
        }
        Step::Echo | Step::Cookie => None,
    }
}
