//! The lab's traffic generators: the kernel's own TCP and UDP, driven by threads in the hosts'
//! namespaces.
//!
//! Every flow has a receiver and one or more senders. Receivers are ready before the run starts;
//! senders wait for their flow's start. A flow's figures are those of its receiver.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use altq_dataplane::netns::Namespace;
use altq_traffic::connect::{AdmitAll, Close};
use altq_traffic::local::SendResults;
use altq_traffic::meter::{Keep, Meter};
use altq_traffic::request::Sizes;
use altq_traffic::run::{Epoch, Shared};
use altq_traffic::socket::{self, Tuning};
pub use altq_traffic::udp::Datagrams;
use altq_traffic::udp::Reception;
use altq_traffic::{Doing, Error, acceptor, bulk, connect, echo, flood, request, udp};
use anyhow::{Context, bail};

use super::topology::{NotPermitted, Side, Topology, Unsupported};

/// A flow to generate.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Its name in the result.
    pub name: String,
    /// The side that opens its connections.
    pub side: Side,
    /// Its source address and port; with port 0 the system chooses one.
    pub from: SocketAddr,
    /// Its destination address and port.
    pub to: SocketAddr,
    /// Spans of time from the start of the run in which it sends, in order.
    pub active: Vec<(Duration, Duration)>,
    /// Its streams start one after another, evenly over this time.
    pub stagger: Duration,
    /// DSCP of its packets.
    pub dscp: u8,
    /// What it sends.
    pub kind: Kind,
    /// Set if the case has `overload` and the flow is datagrams of one size at a constant rate.
    /// Such a flow may send more than the host can forward.
    pub flood: Option<Flood>,
}

/// A constant stream of datagrams that may exceed what the host can forward.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    /// Bytes of payload.
    pub payload: usize,
    /// Time from one datagram to the next.
    pub interval: Duration,
}

/// What a flow sends.
#[derive(Clone, Debug)]
pub enum Kind {
    /// TCP that sends without pause; a new connection in every active span.
    Bulk {
        /// Number of connections at once.
        streams: u32,
        /// Socket options of both ends.
        tuning: Tuning,
    },
    /// Requests over a TCP connection; each is sent when the answer to the one before is complete.
    Request {
        /// Number of connections at once.
        streams: u32,
        /// Bytes of requests and answers.
        sizes: Sizes,
        /// Socket options of both ends.
        tuning: Tuning,
    },
    /// UDP without congestion control.
    Datagrams(Datagrams),
    /// Requests over UDP, one at a time.
    Echo {
        /// Number of clients at once.
        streams: u32,
        /// Payload of requests and answers.
        sizes: Sizes,
    },
    /// Short connections, one after another: each is opened, carries a byte each way, and is closed
    /// with a reset.
    Connect {
        /// Number of clients at once.
        streams: u32,
        /// Socket options of both ends.
        tuning: Tuning,
    },
}

impl Flow {
    /// What happened to each of its packets at the queue, if its program runs on the queue's host.
    pub fn send_results(&self) -> Option<&Arc<SendResults>> {
        match &self.kind {
            Kind::Datagrams(datagrams) => datagrams.local.as_ref().map(|local| &local.results),
            _ => None,
        }
    }
}

impl Kind {
    /// True if the classifier sees its packets as UDP.
    pub fn is_udp(&self) -> bool {
        matches!(self, Kind::Datagrams(_) | Kind::Echo { .. })
    }

    /// True for flows of requests and responses, which measure round trips.
    pub fn has_round_trips(&self) -> bool {
        matches!(self, Kind::Request { .. } | Kind::Echo { .. } | Kind::Connect { .. })
    }
}

/// Limits of the short connections of one flow.
const PENDING: acceptor::Limits = acceptor::Limits { bytes: 1, pending: 4096, patience: Duration::from_secs(10) };

/// Flows that run. Dropping it stops them.
pub struct Running {
    meters: Vec<Arc<Meter>>,
    stop: Arc<AtomicBool>,
    threads: Vec<(String, JoinHandle<Result<(), Error>>)>,
    /// Sockets of receivers by which flows the other way send too: by own address and peer.
    calls: HashMap<(SocketAddr, SocketAddr), UdpSocket>,
}

/// Which other flows of datagrams use the addresses and ports of a flow of datagrams. A kernel
/// gives an address and port to one socket, unless the sockets agree to share it and each has a
/// peer of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    /// The DSCP of the flow the other way, between the same addresses and ports: the two directions
    /// of a call. One socket at each end sends the one and receives the other.
    back: Option<u8>,
    /// Another flow has its source address and port as well.
    from: bool,
    /// Another flow has its destination address and port as well.
    to: bool,
}

/// The [`Ends`] of all flows.
///
/// # Errors
/// Two flows of datagrams that a kernel cannot tell apart.
fn ends(flows: &[Flow]) -> anyhow::Result<Vec<Ends>> {
    let mut used: HashMap<SocketAddr, u32> = HashMap::new();
    let mut ways: HashMap<(SocketAddr, SocketAddr), &Flow> = HashMap::new();
    for flow in flows.iter().filter(|flow| matches!(flow.kind, Kind::Datagrams(_)) && flow.from.port() != 0) {
        *used.entry(flow.from).or_default() += 1;
        *used.entry(flow.to).or_default() += 1;
        if let Some(other) = ways.insert((flow.from, flow.to), flow) {
            bail!(
                "flows `{}` and `{}` both go from {} to {}: nothing tells their packets apart; give one of them \
                 another `sport`",
                other.name,
                flow.name,
                flow.from,
                flow.to
            );
        }
    }
    let shared = |at: &SocketAddr| used.get(at).is_some_and(|flows| *flows > 1);
    let one = |flow: &Flow| Ends {
        back: ways.get(&(flow.to, flow.from)).map(|back| back.dscp),
        from: shared(&flow.from),
        to: shared(&flow.to) && flow.from.port() != 0,
    };
    Ok(flows.iter().map(one).collect())
}

/// The spans in which a flow sends.
type Spans = Vec<(Instant, Instant)>;

/// Starts the threads of all flows: receivers first, then senders, which wait for `epoch` and their
/// flow's start. Gaps between datagrams are measured in `window`, counted from the start of the
/// run.
pub fn start(
    topology: &Topology,
    flows: &[Flow],
    epoch: Epoch,
    window: (Duration, Duration),
) -> anyhow::Result<Running> {
    let ends = ends(flows)?;
    let mut running = Running { meters: Vec::new(), stop: Arc::default(), threads: Vec::new(), calls: HashMap::new() };
    let mut shared = Vec::new();
    for _ in flows {
        let meter = Arc::new(Meter::new(Keep::All, window.0.as_nanos() as u64..window.1.as_nanos() as u64));
        running.meters.push(meter.clone());
        shared.push(Shared { meter, stop: running.stop.clone(), epoch });
    }
    for ((flow, shared), ends) in flows.iter().zip(&shared).zip(&ends) {
        let far = match flow.side {
            Side::Sources => topology.side(Side::Sinks),
            Side::Sinks => topology.side(Side::Sources),
        };
        running
            .receiver(far, flow, *ends, shared.clone())
            .map_err(unsupported)
            .with_context(|| format!("flow `{}`", flow.name))?;
    }
    for ((flow, shared), ends) in flows.iter().zip(&shared).zip(&ends) {
        let spans: Spans =
            flow.active.iter().map(|(begin, end)| (epoch.start() + *begin, epoch.start() + *end)).collect();
        running
            .senders(topology.side(flow.side), flow, *ends, &spans, shared)
            .with_context(|| format!("flow `{}`", flow.name))?;
    }
    Ok(running)
}

/// Makes the lab's [`Unsupported`] or [`NotPermitted`] from a generator's error about something
/// that the host or the process lacks.
fn unsupported(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(Error::Unsupported(lacks)) => Unsupported(lacks.clone()).into(),
        Some(Error::NotPermitted(lacks)) => NotPermitted(lacks.clone()).into(),
        _ => error,
    }
}

impl Running {
    /// The meters, in the order of the flows.
    pub fn meters(&self) -> &[Arc<Meter>] {
        &self.meters
    }

    /// True if a generator's thread has ended before [`finish`](Running::finish), which happens
    /// only when it fails.
    pub fn failed(&self) -> bool {
        self.threads.iter().any(|(_, thread)| thread.is_finished())
    }

    /// Ends all flows and waits for their threads.
    ///
    /// # Errors
    /// The first error of a generator, with the flow's name.
    pub fn finish(mut self) -> anyhow::Result<Vec<Arc<Meter>>> {
        self.stop.store(true, Ordering::Relaxed);
        for (name, thread) in std::mem::take(&mut self.threads) {
            match thread.join() {
                Ok(result) => {
                    result.map_err(|error| unsupported(error.into())).with_context(|| format!("flow `{name}`"))?
                }
                Err(_) => bail!("flow `{name}`: its generator thread panicked"),
            }
        }
        Ok(std::mem::take(&mut self.meters))
    }

    /// Starts a thread in a namespace. Sockets that `work` opens belong to that namespace.
    fn thread(
        &mut self,
        name: &str,
        namespace: &Namespace,
        work: impl FnOnce() -> Result<(), Error> + Send + 'static,
    ) -> anyhow::Result<()> {
        let thread = namespace
            .run(|| std::thread::Builder::new().name("flow".into()).spawn(work))?
            .context("cannot start a thread")?;
        self.threads.push((name.to_string(), thread));
        Ok(())
    }

    fn receiver(&mut self, namespace: &Namespace, flow: &Flow, ends: Ends, shared: Shared) -> anyhow::Result<()> {
        let (at, name) = (flow.to, flow.name.as_str());
        match &flow.kind {
            Kind::Bulk { tuning, .. } => {
                let listener = namespace.run(|| socket::listen_tcp(at, tuning))??;
                let tuning = tuning.clone();
                self.thread(name, namespace, move || {
                    each(&listener, &tuning, &shared, |mut connection| {
                        bulk::receive(&mut connection, None, &shared);
                    })
                })
            }
            Kind::Request { sizes, tuning, .. } => {
                let (sizes, tuning) = (*sizes, tuning.clone());
                let listener = namespace.run(|| socket::listen_tcp(at, &tuning))??;
                self.thread(name, namespace, move || {
                    each(&listener, &tuning, &shared, |mut connection| {
                        request::answer(&mut connection, sizes, None, &shared)
                    })
                })
            }
            Kind::Datagrams(_) => {
                let peer = flow.from;
                let socket = namespace.run(|| match ends {
                    Ends { back: Some(dscp), .. } => socket::udp_of_peer(at, peer, dscp),
                    Ends { to: true, .. } => socket::udp_of_peer(at, peer, 0),
                    _ => socket::udp(at, 0),
                })??;
                if ends.back.is_some() {
                    let both = socket.try_clone().doing(|| "a socket for both directions")?;
                    self.calls.insert((at, peer), both);
                }
                if let Some(Flood { payload, .. }) = flow.flood {
                    return self.thread(name, namespace, move || flood::count(&socket, payload, &shared));
                }
                let reception = Reception { one_clock: true, skip: None };
                self.thread(name, namespace, move || udp::receive(&socket, reception, &shared))
            }
            Kind::Echo { sizes, .. } => {
                let (dscp, response) = (flow.dscp, sizes.response);
                let socket = namespace.run(|| socket::udp(at, dscp))??;
                self.thread(name, namespace, move || echo::answer_all(&socket, response, &shared))
            }
            Kind::Connect { tuning, .. } => {
                let listener = namespace.run(|| socket::listen_tcp(at, tuning))??;
                self.thread(name, namespace, move || acceptor::serve(&listener, PENDING, &AdmitAll, &shared.stop))
            }
        }
    }

    fn senders(
        &mut self,
        namespace: &Namespace,
        flow: &Flow,
        ends: Ends,
        spans: &Spans,
        shared: &Shared,
    ) -> anyhow::Result<()> {
        let to = flow.to;
        if let Kind::Datagrams(datagrams) = &flow.kind {
            let (from, dscp, datagrams, spans, shared) =
                (flow.from, flow.dscp, datagrams.clone(), spans.clone(), shared.clone());
            let many = flow.flood;
            let call = self.calls.remove(&(from, to));
            return self.thread(&flow.name, namespace, move || {
                let socket = match call {
                    Some(socket) => socket,
                    None if ends.from => socket::udp_of_peer(from, to, dscp)?,
                    None => {
                        let socket = socket::udp(from, dscp)?;
                        socket.connect(to).doing(|| format!("no route from {from} to {to}"))?;
                        socket
                    }
                };
                match many {
                    Some(Flood { payload, interval }) => flood::send(&socket, payload, interval, &spans, &shared)?,
                    None => udp::send(&socket, &datagrams, &spans, &shared)?,
                }
                shared.in_spans(&[], |_, _| Ok(()))
            });
        }
        let streams = match &flow.kind {
            Kind::Bulk { streams, .. }
            | Kind::Request { streams, .. }
            | Kind::Echo { streams, .. }
            | Kind::Connect { streams, .. } => *streams,
            Kind::Datagrams(_) => 1,
        };
        for at in 0..streams {
            let (kind, dscp, from, shared) = (flow.kind.clone(), flow.dscp, nth(flow.from, at)?, shared.clone());
            let late = flow.stagger * at / streams;
            let spans: Spans = spans.iter().map(|(begin, end)| (*begin + late, *end)).collect();
            self.thread(&flow.name, namespace, move || {
                shared.in_spans(&spans, |_, end| match &kind {
                    Kind::Bulk { tuning, .. } => match opened(from, to, tuning, &shared)? {
                        Some(mut connection) => bulk::send(&mut connection, at, end, bulk::Limits::default(), &shared),
                        None => Ok(()),
                    },
                    Kind::Request { sizes, tuning, .. } => match opened(from, to, tuning, &shared)? {
                        Some(mut connection) => request::ask(&mut connection, *sizes, None, end, &shared),
                        None => Ok(()),
                    },
                    Kind::Echo { sizes, .. } => {
                        let socket = socket::udp(from, dscp)?;
                        socket.connect(to).doing(|| format!("no route from {from} to {to}"))?;
                        echo::ask(&socket, *sizes, None, end, &shared)
                    }
                    Kind::Connect { tuning, .. } => connect::make(from, to, tuning, b"?", Close::Reset, end, &shared),
                    Kind::Datagrams(_) => Ok(()),
                })
            })?;
        }
        Ok(())
    }
}

/// Opens a connection; `None` if the run ended before the handshake was complete.
fn opened(from: SocketAddr, to: SocketAddr, tuning: &Tuning, shared: &Shared) -> Result<Option<TcpStream>, Error> {
    match socket::connect_tcp_while(from, to, tuning, || !shared.stopped()) {
        Ok(connection) => Ok(Some(connection)),
        Err(_) if shared.stopped() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Serves each connection of a listener on its own thread, until the run is over.
fn each(
    listener: &TcpListener,
    tuning: &Tuning,
    shared: &Shared,
    serve: impl Fn(TcpStream) + Sync,
) -> Result<(), Error> {
    std::thread::scope(|scope| {
        while !shared.stopped() {
            match listener.accept() {
                Ok((connection, _)) => {
                    let connection = socket::accepted(connection, tuning)?;
                    scope.spawn(|| serve(connection));
                }
                Err(error) if bulk::waiting(&error) => {}
                Err(error) => return Err(error).doing(|| "accepting a connection"),
            }
        }
        Ok(())
    })
}

impl Drop for Running {
    /// An aborted run leaves no thread behind that would go on sending.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for (_, thread) in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The source address of the n-th connection. If a source port is given, the first connection has
/// it, and the next ones have the ports after it.
fn nth(from: SocketAddr, n: u32) -> anyhow::Result<SocketAddr> {
    if from.port() == 0 {
        return Ok(from);
    }
    let port = u32::from(from.port()) + n;
    Ok(SocketAddr::new(from.ip(), u16::try_from(port).with_context(|| format!("source port {port} is over 65535"))?))
}

#[cfg(test)]
mod tests {
    use altq_cases::case::{Pace, Shape, Udp};
    use altq_engine::units::Rate;

    use super::*;

    fn flow(name: &str, from: &str, to: &str, dscp: u8) -> Flow {
        let udp = Udp { sizes: vec![200], shape: Shape::Constant(Pace::Rate(Rate::kbit_s(80))) };
        Flow {
            name: name.into(),
            side: Side::Sources,
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            active: Vec::new(),
            stagger: Duration::ZERO,
            dscp,
            kind: Kind::Datagrams(Datagrams { udp, seed: 1, stream: 0, rates: Vec::new(), local: None }),
            flood: None,
        }
    }

    #[test]
    fn flows_that_share_addresses_and_ports() {
        let (a, b) = ("10.0.0.1:5004", "10.0.1.1:5004");
        let of = |flows: &[Flow]| ends(flows).unwrap();
        let alone = Ends::default();
        assert_eq!(of(&[flow("f", a, b, 46), flow("g", "10.0.0.1:10001", "10.0.1.1:5005", 0)]), [alone; 2]);
        // The two directions of a call.
        let call = |dscp| Ends { back: Some(dscp), from: true, to: true };
        assert_eq!(of(&[flow("there", a, b, 46), flow("back", b, a, 34)]), [call(34), call(46)]);
        // Two calls to one address and port; one from there that goes elsewhere.
        let to_one = [flow("f", a, b, 0), flow("g", "10.0.0.2:5004", b, 0), flow("h", b, "10.0.0.3:6000", 0)];
        let expected = [Ends { to: true, ..alone }, Ends { to: true, ..alone }, Ends { from: true, ..alone }];
        assert_eq!(of(&to_one), expected);
        let twice = ends(&[flow("f", a, b, 0), flow("g", a, b, 0)]).unwrap_err().to_string();
        assert!(twice.contains("flows `f` and `g` both go from 10.0.0.1:5004 to 10.0.1.1:5004"), "{twice}");
    }

    #[test]
    fn an_error_of_the_kernel_is_said_once() {
        let in_use = std::io::Error::from(std::io::ErrorKind::AddrInUse);
        let said = in_use.to_string();
        let error = Err::<(), _>(in_use).doing(|| "cannot bind to 10.0.0.1:5004").context("flow `f`").unwrap_err();
        assert_eq!(format!("{error:#}"), format!("flow `f`: cannot bind to 10.0.0.1:5004: {said}"));
    }
}
