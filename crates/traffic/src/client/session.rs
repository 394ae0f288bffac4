//! A client's session with a server: the control connection, and the proof of UDP addresses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use altq_engine::units::Nanos;

use crate::bulk::waiting;
use crate::clock;
use crate::error::{Doing, Error};
use crate::protocol::{Address, Caps, ClientMessage, Datagram, LINE, Lines, Plan, Preamble, ServerMessage, Step, line};
use crate::socket::{self, Tuning};
use crate::token::{self, Key, NONCE, TAG, Token, hex, unhex};

/// Time that the server has to answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Time between two messages that show that the client is still there.
const SIGN: Duration = Duration::from_secs(1);

/// Time after which an unanswered datagram of the handshake is sent again.
const AGAIN: Duration = Duration::from_millis(250);

/// A session.
#[derive(Debug)]
pub struct Session {
    control: TcpStream,
    lines: Lines,
    /// The key that proves its connections and datagrams.
    pub key: Key,
    /// The session's number, which the server chose.
    pub number: u64,
    /// The server's address.
    pub server: SocketAddr,
    /// This host's address on the control connection.
    pub local: SocketAddr,
    /// The server's limits for a client.
    pub caps: Caps,
    /// True if both ends are on one host and so have one clock.
    pub one_clock: bool,
    /// The round trip of the control connection, in ns.
    pub rtt_ns: Nanos,
    sign: Instant,
    heard: Instant,
}

impl Session {
    /// Connects to a server. Client and server prove to each other that they know the token.
    ///
    /// # Errors
    /// If no server answers, it refuses, or it does not know the token.
    pub fn open(server: SocketAddr, from: SocketAddr, token: &Token) -> Result<Session, Error> {
        let tuning = Tuning { no_delay: true, ..Tuning::default() };
        let control = socket::connect_tcp(from, server, &tuning)?;
        let local = control.local_addr().doing(|| "a control connection")?;
        // The control connection closes without a reset, so that the last message arrives.
        rustix::net::sockopt::set_socket_linger(&control, None).doing(|| "a control connection")?;
        control.set_read_timeout(Some(Duration::from_millis(20))).doing(|| "a control connection")?;
        control.set_write_timeout(Some(PATIENCE)).doing(|| "a control connection")?;
        let now = Instant::now();
        let caps = Caps { rate_bit_s: 0, duration_ns: 0, clients: 0, flows: 0, streams: 0 };
        let nonce = token::random::<NONCE>()?;
        let key = token.secrets(&nonce, &nonce).session;
        let mut session = Session {
            control,
            lines: Lines::default(),
            key,
            number: 0,
            server,
            local,
            caps,
            one_clock: false,
            rtt_ns: 0,
            sign: now,
            heard: now,
        };
        session.control.write_all(&Preamble::Control(nonce).bytes()).doing(|| "talking to the server")?;
        let ServerMessage::Challenge { nonce: theirs } = session.answer()? else {
            return Err(unexpected("a challenge"));
        };
        let theirs = unhex::<NONCE>(&theirs).ok_or_else(|| unexpected("a challenge"))?;
        let secrets = token.secrets(&nonce, &theirs);
        let begin = Instant::now();
        session.send(&ClientMessage::Know { proof: secrets.client() })?;
        let ServerMessage::Welcome { proof, session: number, caps, clock } = session.answer()? else {
            return Err(unexpected("a welcome"));
        };
        let round = begin.elapsed().as_nanos() as u64;
        if !secrets.is_server(&proof) {
            return Err(Error::Protocol("it has not proved that it knows the token".into()));
        }
        session.rtt_ns = altq_dataplane::tcp_info(&session.control)
            .map_or(round, |info| u64::from(info.min_rtt_us) * 1000)
            .min(round);
        session.key = secrets.session;
        (session.number, session.caps) = (number, caps);
        let own = clock::identity();
        session.one_clock = !own.is_empty() && clock == hex(&session.key.tag(&[b"clock", own.as_bytes()]));
        Ok(session)
    }

    /// Sends the plan of the run.
    ///
    /// # Errors
    /// [`Error::Refused`] if the server refuses it; errors of the connection.
    pub fn propose(&mut self, plan: Plan) -> Result<(), Error> {
        self.send(&ClientMessage::Plan(plan))?;
        match self.answer()? {
            ServerMessage::Accepted => Ok(()),
            _ => Err(unexpected("a yes or no")),
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If the connection is gone: [`Error::Refused`] if the server has sent its reason.
    pub fn send(&mut self, say: &ClientMessage) -> Result<(), Error> {
        self.sign = Instant::now();
        match self.control.write_all(&line(say)) {
            Ok(()) => Ok(()),
            Err(error) => match self.receive() {
                Err(refused @ Error::Refused { .. }) => Err(refused),
                _ => Err(error).doing(|| "talking to the server"),
            },
        }
    }

    /// The server's next message, if there is one or one arrives within 20 ms. Also tells the
    /// server that the client is still there, if that is due.
    ///
    /// # Errors
    /// [`Error::Refused`] for a refusal; an error if the connection is gone or the message is
    /// wrong.
    pub fn receive(&mut self) -> Result<Option<ServerMessage>, Error> {
        self.receive_within(Duration::from_millis(20))
    }

    /// As [`receive`](Session::receive), but waits for up to `wait`, which may be less than 20 ms.
    ///
    /// # Errors
    /// As [`receive`](Session::receive).
    pub fn receive_within(&mut self, wait: Duration) -> Result<Option<ServerMessage>, Error> {
        if self.sign.elapsed() > SIGN {
            self.send(&ClientMessage::Here)?;
        }
        let too_long = |_| Error::Protocol("a line without end".into());
        let mut found = self.lines.next(LINE).map_err(too_long)?;
        if found.is_none() && socket::readable(&self.control, wait) {
            let mut buffer = [0; 16384];
            match self.control.read(&mut buffer) {
                Ok(0) => return Err(Error::Ended("the server has closed the connection".into())),
                Ok(count) => {
                    self.heard = Instant::now();
                    self.lines.push(buffer.get(..count).unwrap_or_default());
                    found = self.lines.next(LINE).map_err(too_long)?;
                }
                Err(error) if waiting(&error) => {}
                Err(error) => return Err(error).doing(|| "listening to the server"),
            }
        }
        let Some(line) = found else { return Ok(None) };
        match ServerMessage::read(&line).map_err(Error::Protocol)? {
            ServerMessage::Refused { why, reason } => Err(Error::Refused { why, reason: printable(&reason) }),
            reply => Ok(Some(reply)),
        }
    }

    /// Waits for the server's next message.
    ///
    /// # Errors
    /// As [`receive`](Session::receive), and if none comes in 15 s.
    pub fn answer(&mut self) -> Result<ServerMessage, Error> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(reply) = self.receive()? {
                return Ok(reply);
            }
        }
        Err(Error::Ended(format!("the server at {} does not answer: is it a server of altq traffic?", self.server)))
    }

    /// Time since the last bytes from the server.
    pub fn silence(&self) -> Duration {
        self.heard.elapsed()
    }

    /// The preamble of a flow's connection.
    pub fn preamble(&self, flow: u16, stream: u32) -> Preamble {
        Preamble::data(Address { session: self.number, flow, stream }, &self.key)
    }

    /// Proves to the server that a socket's address is this client's. The socket is connected to
    /// the server, and serves one connection of a flow. Returns the datagram to repeat until the
    /// server has seen it.
    ///
    /// # Errors
    /// If no cookie comes back; a firewall may block UDP.
    pub fn prove(&self, socket: &UdpSocket, flow: u16, stream: u32) -> Result<Datagram, Error> {
        let address = Address { session: self.number, flow, stream };
        let probe = Datagram::new(Step::Probe, address, [0; TAG], &self.key).bytes();
        let mut buffer = [0; 2048];
        for _ in 0..20 {
            // An error may be the kernel's report on an earlier datagram.
            let _ = socket.send(&probe);
            let sent = Instant::now();
            while sent.elapsed() < AGAIN {
                let Ok(bytes) = socket.recv(&mut buffer) else { continue };
                let cookie = Datagram::read(buffer.get(..bytes).unwrap_or_default()).filter(|cookie| {
                    cookie.step == Step::Cookie && cookie.address == address && cookie.proved(&self.key)
                });
                if let Some(cookie) = cookie {
                    let echo = Datagram::new(Step::Echo, address, cookie.cookie, &self.key);
                    socket.send(&echo.bytes()).doing(|| "sending a datagram")?;
                    return Ok(echo);
                }
            }
        }
        let peer = socket.peer_addr().map_or_else(|_| "the server".into(), |peer| peer.to_string());
        Err(Error::Ended(format!("no datagram comes back from {peer}: does a firewall let UDP through?")))
    }
}

fn unexpected(wanted: &str) -> Error {
    Error::Protocol(format!("its message was not {wanted}, which was due"))
}

/// Text from another host, at most 500 characters, without control characters, which a terminal
/// would execute.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect()
}
