//! Probes the line of a live link whose rate adapts, and changes its rate.
//!
//! A thread for each such link sends ICMP echo requests to the reflectors, reads how much the
//! link's loop has sent, and gives both to the controller (`altq_adapt`). The controller's
//! decisions go to the loop by the channel by which a policy is changed in place.
//!
//! Probes are ordinary packets of this host: they go where its routes lead, and through the link's
//! classes.

mod echo;
mod prober;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use altq_adapt::{Adaptive, Answer, Controller, Load, Sample, Settings, TICK};
use altq_config::Link;
use altq_engine::Change;
use altq_engine::units::{Nanos, SECOND};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recvfrom, sendto, socket_with,
};

use crate::error::Error;
use crate::gauge::Gauge;
use crate::running::Handle;
use crate::stop::Stop;
use prober::Prober;

/// The longest packet that is read. An answer is shorter, even with an IPv4 header of 60 bytes.
const LONGEST: usize = 256;

/// The probes of a link, and the controller of its rate.
pub(crate) struct Probe {
    link: String,
    controller: Adaptive,
    prober: Prober,
    ports: Vec<Port>,
    reflectors: Vec<String>,
    /// Takes changes of the rate.
    handle: Handle,
    /// How much the loop has sent.
    gauge: Gauge,
}

/// The socket for one reflector.
struct Port {
    socket: OwnedFd,
    to: SocketAddr,
    /// The identifier of its requests, if it is a raw socket. A ping socket gets one from the
    /// kernel, and receives only answers to it.
    raw: Option<u16>,
}

impl Probe {
    /// Opens the sockets, if the link's rate adapts. `handle` reaches its loop.
    ///
    /// # Errors
    /// Those of socket(2): a ping socket needs a group in `net.ipv4.ping_group_range`, a raw one
    /// CAP_NET_RAW.
    pub fn open(link: &Link, handle: &Handle) -> Result<Option<Probe>, Error> {
        let (Some(adapt), Some(gauge)) = (&link.adapt, handle.gauge()) else { return Ok(None) };
        let settings = Settings::new(link.spec.rate, adapt.from, adapt.to, adapt.target);
        let count = adapt.reflectors.len();
        let ports = adapt.reflectors.iter().map(|address| Port::open(*address));
        Ok(Some(Probe {
            link: link.name.clone(),
            controller: Adaptive::new(settings, count),
            prober: Prober::new(count),
            ports: ports.collect::<Result<_, _>>()?,
            reflectors: adapt.reflectors.iter().map(ToString::to_string).collect(),
            handle: handle.clone(),
            gauge: gauge.clone(),
        }))
    }

    /// The name of its link.
    pub fn link(&self) -> &str {
        &self.link
    }

    /// Probes until stopped. `say` takes a line for the log whenever something changes.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn run(mut self, stop: &Stop, say: &dyn Fn(String)) -> Result<(), Error> {
        let start = Instant::now();
        let now = || Nanos::try_from(start.elapsed().as_nanos()).unwrap_or(Nanos::MAX);
        let mut ask_at = 0;
        while !stop.is_set() {
            let at = now();
            self.probe(at);
            if at >= ask_at {
                ask_at = at.saturating_add(TICK);
                let (sent_bytes, backlogged) = self.gauge.read();
                self.decide(Load { at, sent_bytes, backlogged }, say);
            }
            let wait = self.prober.next().min(ask_at).saturating_sub(now());
            let readable = self.wait(wait, stop)?;
            let at = now();
            for port in readable {
                self.receive(at, port);
            }
        }
        Ok(())
    }

    /// Sends the probes that are due, and gives up those that are too old.
    fn probe(&mut self, now: Nanos) {
        while let Some((reflector, sent)) = self.prober.given_up(now) {
            self.controller.heard(Sample { at: now, reflector, sent, answer: Answer::Lost });
        }
        while let Some((reflector, sequence)) = self.prober.due(now) {
            self.controller.probed(now, reflector);
            if let Some(port) = self.ports.get(reflector) {
                port.send(sequence);
            }
        }
    }

    /// Lets the controller decide, and passes its decision to the loop and the log.
    fn decide(&mut self, load: Load, say: &dyn Fn(String)) {
        let decision = self.controller.decide(load);
        for notice in self.controller.notices() {
            say(format!("link {}: {}", self.link, notice.text(&self.reflectors)));
        }
        if let Some(decision) = decision {
            // A loop that has ended is about to stop this thread as well.
            let _ = self.handle.change(vec![Change::SetRate(decision.after)]);
            say(format!("link {}: {decision}", self.link));
        }
    }

    /// Waits for answers, but no longer than `time`. Returns the numbers of the ports that have
    /// something to read.
    fn wait(&self, time: Nanos, stop: &Stop) -> Result<Vec<usize>, Error> {
        let timeout = Timespec { tv_sec: (time / SECOND) as i64, tv_nsec: (time % SECOND) as _ };
        let sockets = self.ports.iter().map(|port| PollFd::from_borrowed_fd(port.socket.as_fd(), PollFlags::IN));
        let mut watched: Vec<PollFd<'_>> = sockets.collect();
        watched.push(PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN));
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::of("waiting for probes", error.into())),
        }
        let ready = watched.iter().take(self.ports.len()).enumerate().filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|(at, _)| at).collect())
    }

    /// Reads what a port has received.
    fn receive(&mut self, now: Nanos, at: usize) {
        let Some(port) = self.ports.get(at) else { return };
        while let Some(received) = port.receive() {
            let Some(sequence) = received else { continue };
            if let Some(sent) = self.prober.answered(at, sequence) {
                let delay = i64::try_from(now.saturating_sub(sent)).unwrap_or(i64::MAX);
                self.controller.heard(Sample { at: now, reflector: at, sent, answer: Answer::After(delay) });
            }
        }
    }
}

/// The identifier of the next raw socket. Raw sockets receive the answers to all others as well,
/// and two links may have the same reflector, so each socket needs an identifier of its own.
fn identifier() -> u16 {
    static MADE: AtomicU16 = AtomicU16::new(0);
    // Another process has another process number, and so other identifiers.
    (std::process::id() as u16).wrapping_mul(64).wrapping_add(MADE.fetch_add(1, Ordering::Relaxed))
}

impl Port {
    /// A ping socket for this reflector, or a raw one where ping sockets are not allowed.
    fn open(address: IpAddr) -> Result<Port, Error> {
        let (family, protocol) = match address {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let to = SocketAddr::new(address, 0);
        if let Ok(socket) = socket_with(family, SocketType::DGRAM, flags, Some(protocol)) {
            return Ok(Port { socket, to, raw: None });
        }
        let socket = socket_with(family, SocketType::RAW, flags, Some(protocol))
            .map_err(|error| Error::of("a socket for probes", error.into()))?;
        Ok(Port { socket, to, raw: Some(identifier()) })
    }

    /// Sends a request. If it cannot be sent, for example because there is no route, there will be
    /// no answer, and the controller counts it as lost.
    fn send(&self, sequence: u16) {
        let message = echo::request(self.to.is_ipv6(), self.raw.unwrap_or(0), sequence);
        let _ = sendto(&self.socket, &message, SendFlags::empty(), &self.to);
    }

    /// Reads a packet; `None` if there is none. Returns the sequence number if it answers a request
    /// of this port.
    fn receive(&self) -> Option<Option<u16>> {
        let mut packet = [0u8; LONGEST];
        let (length, _, from) = recvfrom(&self.socket, &mut packet[..], RecvFlags::empty()).ok()?;
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        let (v6, received) = (self.to.is_ipv6(), packet.get(..length)?);
        let answer = echo::answer(v6, self.raw.is_some() && !v6, received);
        let (id, sequence) = match answer {
            Some(answer) if from.is_some_and(|from| from.ip() == self.to.ip()) => answer,
            _ => return Some(None),
        };
        Some(Some(sequence).filter(|_| self.raw.is_none_or(|own| own == id)))
    }
}
