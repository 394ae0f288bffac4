//! Generators of the lab: the kernel's own TCP and UDP, driven by threads that belong to the hosts' namespaces.
//!
//! A flow has a receiver and a sender. Receivers are ready before the clock starts; senders wait for their flow's start.
//! What counts is what the receiver has got.

mod bulk;
mod request;
mod udp;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use altq_dataplane::netns::Namespace;
use altq_engine::units::{Nanos, Rate};
use altq_simulator::case::Udp;
use altq_simulator::sim::{Random, Source};
use anyhow::{Context, bail};

use super::clock::{self, Lateness};
use super::socket::Tuning;
use super::topology::{Side, Topology};

/// A flow to generate.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Its name in the result.
    pub name: String,
    /// On which side it begins.
    pub side: Side,
    /// Where it begins; port 0: the system's choice.
    pub from: SocketAddr,
    /// Where it ends.
    pub to: SocketAddr,
    /// Spans of time from the start of the run in which it sends, in order.
    pub active: Vec<(Duration, Duration)>,
    /// DSCP of its packets.
    pub dscp: u8,
    /// What it sends.
    pub kind: Kind,
}

/// What a flow sends.
#[derive(Clone, Debug)]
pub enum Kind {
    /// TCP that sends as much as it may; a new connection in every active span.
    Bulk {
        /// Connections side by side.
        streams: u32,
        /// Of both ends.
        tuning: Tuning,
    },
    /// One request after another over a TCP connection, the next when the answer is complete.
    Request {
        /// Connections side by side.
        streams: u32,
        /// Bytes of a request.
        request: u32,
        /// Bytes of an answer.
        response: u32,
        /// Of both ends.
        tuning: Tuning,
    },
    /// UDP that nothing holds back.
    Datagrams(Datagrams),
}

/// What a UDP flow sends: the same as in the simulator, by the same seed.
#[derive(Clone, Debug)]
pub struct Datagrams {
    /// Sizes and times.
    pub udp: Udp,
    /// Of what is drawn.
    pub seed: u64,
    /// The flow's place in the case: its stream of what is drawn.
    pub stream: u64,
    /// Other rates, from these times of the run on (ns), in order.
    pub rates: Vec<(Nanos, Rate)>,
}

impl Datagrams {
    fn source(&self) -> Source {
        Source::new(self.udp.clone(), Random::new(self.seed, self.stream))
    }
}

/// What a flow has done so far. Receivers and senders count, whoever measures reads.
#[derive(Debug, Default)]
pub struct Meter {
    /// Payload that the receiver has got, in bytes.
    received_bytes: AtomicU64,
    /// Datagrams received, or transactions completed.
    received: AtomicU64,
    /// Datagrams sent.
    sent: AtomicU64,
    /// Datagrams that came behind one with a higher number.
    reordered: AtomicU64,
    /// When (since the start of the run) and how long: round trips, or one-way delays of datagrams; in ns.
    samples: Mutex<Vec<(u64, u64)>>,
    /// How late a sender with a schedule ran.
    lateness: Mutex<Lateness>,
}

/// A reading of a [`Meter`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Payload that the receiver has got, in bytes.
    pub bytes: u64,
    /// Datagrams received, or transactions completed.
    pub received: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that came out of order.
    pub reordered: u64,
}

impl Meter {
    /// The counters now.
    pub fn read(&self) -> Reading {
        Reading {
            bytes: self.received_bytes.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            reordered: self.reordered.load(Ordering::Relaxed),
        }
    }

    /// The times measured between two moments of the run (ns since its start), sorted. Complete once the run is over.
    pub fn times(&self, from: u64, to: u64) -> Vec<u64> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times: Vec<u64> = samples.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, time)| *time).collect();
        times.sort_unstable();
        times
    }

    /// How late the sender ran. Complete once the run is over.
    pub fn lateness(&self) -> Lateness {
        self.lateness.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add_samples(&self, samples: &[(u64, u64)]) {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(samples);
    }
}

/// What the threads of a flow share.
#[derive(Clone)]
struct Shared {
    meter: Arc<Meter>,
    stop: Arc<AtomicBool>,
    epoch: Instant,
    active: Vec<(Instant, Instant)>,
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// True when a sender that sends until `end` is to stop.
    fn over(&self, end: Instant) -> bool {
        self.stopped() || Instant::now() >= end
    }

    /// Does `work` in every active span, with the span's begin and end, then waits for the end of the run: a thread that is gone is
    /// one that failed.
    fn in_spans(&self, mut work: impl FnMut(Instant, Instant) -> anyhow::Result<()>) -> anyhow::Result<()> {
        for (begin, end) in &self.active {
            if clock::sleep_unless(&self.stop, *begin) {
                work(*begin, *end)?;
            }
        }
        while !self.stopped() {
            std::thread::sleep(super::socket::PATIENCE);
        }
        Ok(())
    }

    /// Nanoseconds since the start of the run.
    fn since_start(&self, moment: Instant) -> u64 {
        moment.saturating_duration_since(self.epoch).as_nanos() as u64
    }
}

/// Flows under way.
pub struct Running {
    meters: Vec<Arc<Meter>>,
    stop: Arc<AtomicBool>,
    threads: Vec<(String, JoinHandle<anyhow::Result<()>>)>,
}

/// Starts the threads of all flows: receivers first, then senders, which wait for `epoch` and their flow's start.
pub fn start(topology: &Topology, flows: &[Flow], epoch: Instant) -> anyhow::Result<Running> {
    let mut running = Running { meters: Vec::new(), stop: Arc::default(), threads: Vec::new() };
    let mut shared = Vec::new();
    for flow in flows {
        let meter = Arc::<Meter>::default();
        running.meters.push(meter.clone());
        let active = flow.active.iter().map(|(begin, end)| (epoch + *begin, epoch + *end)).collect();
        shared.push(Shared { meter, stop: running.stop.clone(), epoch, active });
    }
    for (flow, shared) in flows.iter().zip(&shared) {
        let far = match flow.side {
            Side::Sources => topology.side(Side::Sinks),
            Side::Sinks => topology.side(Side::Sources),
        };
        running.receiver(far, flow, shared.clone()).with_context(|| format!("flow `{}`", flow.name))?;
    }
    for (flow, shared) in flows.iter().zip(&shared) {
        running.senders(topology.side(flow.side), flow, shared.clone()).with_context(|| format!("flow `{}`", flow.name))?;
    }
    Ok(running)
}

impl Running {
    /// The meters, in the order of the flows.
    pub fn meters(&self) -> &[Arc<Meter>] {
        &self.meters
    }

    /// True when a generator has ended by itself, which none does unless it failed.
    pub fn failed(&self) -> bool {
        self.threads.iter().any(|(_, thread)| thread.is_finished())
    }

    /// Ends all flows and waits for their threads.
    ///
    /// # Errors
    /// The first thing that went wrong in a generator, with the flow's name.
    pub fn finish(mut self) -> anyhow::Result<Vec<Arc<Meter>>> {
        self.stop.store(true, Ordering::Relaxed);
        for (name, thread) in std::mem::take(&mut self.threads) {
            match thread.join() {
                Ok(result) => result.with_context(|| format!("flow `{name}`"))?,
                Err(_) => bail!("flow `{name}`: its generator broke down"),
            }
        }
        Ok(std::mem::take(&mut self.meters))
    }

    /// Starts a thread in a namespace. Sockets opened by `work` belong there.
    fn thread(
        &mut self,
        name: &str,
        namespace: &Namespace,
        work: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let thread =
            namespace.run(|| std::thread::Builder::new().name("flow".into()).spawn(work))?.context("cannot start a thread")?;
        self.threads.push((name.to_string(), thread));
        Ok(())
    }

    fn receiver(&mut self, namespace: &Namespace, flow: &Flow, shared: Shared) -> anyhow::Result<()> {
        let at = flow.to;
        match &flow.kind {
            Kind::Bulk { tuning, .. } => {
                let listener = namespace.run(|| super::socket::listen_tcp(at, tuning))??;
                let tuning = tuning.clone();
                self.thread(&flow.name, namespace, move || bulk::receive(&listener, &tuning, &shared))
            }
            Kind::Request { request, response, tuning, .. } => {
                let (request, response, tuning) = (*request as usize, *response as usize, tuning.clone());
                let listener = namespace.run(|| super::socket::listen_tcp(at, &tuning))??;
                self.thread(&flow.name, namespace, move || request::answer(&listener, request, response, &tuning, &shared))
            }
            Kind::Datagrams(_) => {
                let socket = namespace.run(|| super::socket::udp(at, 0))??;
                self.thread(&flow.name, namespace, move || udp::receive(&socket, &shared))
            }
        }
    }

    fn senders(&mut self, namespace: &Namespace, flow: &Flow, shared: Shared) -> anyhow::Result<()> {
        let (from, to) = (flow.from, flow.to);
        match &flow.kind {
            Kind::Bulk { streams, tuning } => {
                for at in 0..*streams {
                    let (shared, tuning, from) = (shared.clone(), tuning.clone(), nth(from, at)?);
                    self.thread(&flow.name, namespace, move || bulk::send(from, to, &tuning, &shared))?;
                }
                Ok(())
            }
            Kind::Request { streams, request, response, tuning } => {
                for at in 0..*streams {
                    let (shared, tuning, from) = (shared.clone(), tuning.clone(), nth(from, at)?);
                    let (request, response) = (*request as usize, *response as usize);
                    self.thread(&flow.name, namespace, move || request::ask(from, to, request, response, &tuning, &shared))?;
                }
                Ok(())
            }
            Kind::Datagrams(datagrams) => {
                let (datagrams, dscp) = (datagrams.clone(), flow.dscp);
                self.thread(&flow.name, namespace, move || udp::send(from, to, dscp, &datagrams, &shared))
            }
        }
    }
}

impl Drop for Running {
    /// A run that is given up leaves no thread behind that would go on sending.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for (_, thread) in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The address of the n-th connection: a written source port is the first's, the next ones follow.
fn nth(from: SocketAddr, n: u32) -> anyhow::Result<SocketAddr> {
    if from.port() == 0 {
        return Ok(from);
    }
    let port = u32::from(from.port()) + n;
    Ok(SocketAddr::new(from.ip(), u16::try_from(port).with_context(|| format!("source port {port} is over 65535"))?))
}
