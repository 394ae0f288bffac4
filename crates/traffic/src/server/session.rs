//! A client's session at the server: its flows, their connections, and the threads that serve them.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use altq_engine::units::Rate;

use crate::clock;
use crate::error::{Doing, Error};
use crate::meter::{Keep, Meter};
use crate::plan::{Direction, FlowSpec, Work};
use crate::protocol::{Address, Caps, Datagram, Plan};
use crate::report::{FlowEnd, FlowReport};
use crate::run::{Epoch, Shared};
use crate::throttle::Throttle;
use crate::token::Key;
use crate::udp::{self, Reception};
use crate::{bulk, echo, request, socket};

/// A session with an accepted plan.
#[derive(Debug)]
pub struct Session {
    /// The key that proves its connections and datagrams.
    pub key: Key,
    /// The server's address on the control connection.
    local: SocketAddr,
    plan: Plan,
    flows: Vec<SessionFlow>,
    /// Sends the control connection the connections that were assigned to their flows.
    attached: Mutex<Sender<Address>>,
    stop: Arc<AtomicBool>,
    epoch: OnceLock<Epoch>,
    up: Throttle,
    down: Throttle,
}

#[derive(Debug)]
struct SessionFlow {
    spec: FlowSpec,
    meter: Arc<Meter>,
    slots: Mutex<BTreeMap<u32, Slot>>,
    /// Number of connections whose whole payload has arrived.
    done: AtomicU32,
    error: Mutex<Option<String>>,
}

/// A connection or socket of a flow.
#[derive(Debug)]
enum Slot {
    Tcp(TcpStream),
    /// A socket that receives only from the proved address.
    Udp(UdpSocket),
    /// The connection or socket was given to a thread.
    Taken,
}

impl Session {
    /// A session of a plan that has been checked.
    pub fn new(key: Key, local: SocketAddr, plan: Plan, caps: &Caps, attached: Sender<Address>) -> Session {
        let flow = |spec: &FlowSpec| {
            // The client starts half a round trip after the server, and its traffic takes another
            // half to arrive here.
            let shift = if spec.direction == Direction::Up { plan.rtt_ns } else { 0 };
            let window = spec.start_ns.saturating_add(plan.warmup_ns + shift)..spec.stop_ns.saturating_add(shift);
            SessionFlow {
                spec: spec.clone(),
                meter: Arc::new(Meter::new(Keep::Distribution, window)),
                slots: Mutex::default(),
                done: AtomicU32::new(0),
                error: Mutex::default(),
            }
        };
        let flows = plan.flows.iter().map(flow).collect();
        // TCP has what datagrams leave of the rate that the server allows.
        let left = |direction| caps.rate_bit_s.saturating_sub(plan.udp_rate(direction)).max(1);
        let throttle = |direction| Throttle::new(Rate::bit_s(left(direction)));
        let (up, down) = (throttle(Direction::Up), throttle(Direction::Down));
        Session {
            key,
            local,
            plan,
            flows,
            attached: Mutex::new(attached),
            stop: Arc::default(),
            epoch: OnceLock::new(),
            up,
            down,
        }
    }

    /// What a connection's flow does; `None` if there is no such flow or connection.
    pub fn work(&self, address: &Address) -> Option<&Work> {
        let flow = self.flows.get(usize::from(address.flow))?;
        (address.stream < flow.spec.work.streams()).then_some(&flow.spec.work)
    }

    /// Counts a short connection; true if its flow runs.
    pub fn connected(&self, address: &Address) -> bool {
        let (Some(flow), Some(epoch)) = (self.flows.get(usize::from(address.flow)), self.epoch.get()) else {
            return false;
        };
        flow.meter.completed(epoch.since(std::time::Instant::now()));
        !self.stop.load(Ordering::Relaxed)
    }

    /// Assigns a connection to its flow.
    pub fn attach(&self, address: Address, connection: TcpStream) {
        let Some(flow) = self.flows.get(usize::from(address.flow)) else { return };
        let connection = match socket::accepted(connection, &flow.spec.tuning()) {
            Ok(connection) => connection,
            Err(error) => return flow.failed(error.to_string()),
        };
        self.put(address, flow, Slot::Tcp(connection));
    }

    /// Assigns a proved address to its flow. From now on a socket of its own receives the datagrams
    /// from it.
    pub fn attach_address(&self, address: Address, port: u16, peer: SocketAddr) {
        let Some(flow) = self.flows.get(usize::from(address.flow)) else { return };
        if flow.slots().contains_key(&address.stream) || peer.is_ipv4() != self.local.is_ipv4() {
            return;
        }
        let mut local = self.local;
        local.set_port(port);
        match socket::udp_of_peer(local, peer, flow.spec.dscp) {
            Ok(socket) => self.put(address, flow, Slot::Udp(socket)),
            Err(error) => flow.failed(error.to_string()),
        }
    }

    fn put(&self, address: Address, flow: &SessionFlow, slot: Slot) {
        if self.epoch.get().is_some() {
            return;
        }
        // The first one stays; a second one is not the client's, which sends only one.
        let mut slots = flow.slots();
        if slots.contains_key(&address.stream) {
            return;
        }
        slots.insert(address.stream, slot);
        let _ = self.attached.lock().unwrap_or_else(PoisonError::into_inner).send(address);
    }

    /// What is missing before the run can start; `None` if everything is there.
    pub fn missing(&self) -> Option<String> {
        self.flows.iter().find_map(|flow| {
            let there = flow.slots().len() as u32;
            let wanted = if matches!(flow.spec.work, Work::TcpConnect { .. }) { 0 } else { flow.spec.work.streams() };
            let error = flow.error.lock().unwrap_or_else(PoisonError::into_inner).clone();
            (there < wanted).then(|| match error {
                Some(error) => format!("flow `{}`: {error}", flow.spec.name),
                None => format!("flow `{}`: {} of {wanted} connections are missing", flow.spec.name, wanted - there),
            })
        })
    }

    /// The first error of a flow, if it came before the start.
    pub fn trouble(&self) -> Option<String> {
        self.flows.iter().find_map(|flow| {
            let error = flow.error.lock().unwrap_or_else(PoisonError::into_inner).clone();
            error.map(|error| format!("flow `{}`: {error}", flow.spec.name))
        })
    }

    /// Starts the run, with a thread for each connection.
    ///
    /// # Errors
    /// That of starting a thread.
    pub fn start(self: &Arc<Session>) -> Result<Vec<JoinHandle<()>>, Error> {
        let epoch = *self.epoch.get_or_init(|| Epoch::after(std::time::Duration::ZERO));
        let mut threads = Vec::new();
        for place in 0..self.flows.len() {
            let Some(flow) = self.flows.get(place) else { continue };
            let taken: Vec<(u32, Slot)> =
                flow.slots().iter_mut().map(|(stream, slot)| (*stream, std::mem::replace(slot, Slot::Taken))).collect();
            for (stream, slot) in taken {
                let session = self.clone();
                let work = move || {
                    let Some(flow) = session.flows.get(place) else { return };
                    let shared = Shared { meter: flow.meter.clone(), stop: session.stop.clone(), epoch };
                    if let Err(error) = session.serve(flow, stream, slot, &shared)
                        && !shared.stopped()
                    {
                        flow.failed(error.to_string());
                    }
                };
                threads
                    .push(std::thread::Builder::new().name("flow".into()).spawn(work).doing(|| "starting a thread")?);
            }
        }
        Ok(threads)
    }

    fn serve(&self, flow: &SessionFlow, stream: u32, slot: Slot, shared: &Shared) -> Result<(), Error> {
        let spec = &flow.spec;
        let (begin, end) = (shared.epoch.at(spec.start_ns), shared.epoch.at(spec.stop_ns));
        match (&spec.work, slot) {
            (Work::TcpBulk { bytes, .. }, Slot::Tcp(mut connection)) => {
                if spec.direction == Direction::Down {
                    if clock::sleep_unless(&shared.stop, begin) {
                        let limits = bulk::Limits { bytes: *bytes, throttle: Some(&self.down) };
                        bulk::send(&mut connection, stream, end, limits, shared)?;
                    }
                } else if bulk::receive(&mut connection, Some(&self.up), shared) {
                    flow.done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
            (Work::TcpRr { .. }, Slot::Tcp(mut connection)) => {
                if let Some(sizes) = spec.work.sizes() {
                    request::answer(&mut connection, sizes, Some((&self.up, &self.down)), shared);
                }
                Ok(())
            }
            (Work::Udp(datagrams), Slot::Udp(socket)) => {
                if spec.direction == Direction::Down {
                    let source = udp::Datagrams {
                        udp: datagrams.udp(),
                        seed: self.plan.seed,
                        stream: u64::from(u16::MAX) + u64::from(stream),
                        rates: Vec::new(),
                        local: None,
                    };
                    udp::send(&socket, &source, &[(begin, end)], shared)
                } else {
                    let reception = Reception { one_clock: self.plan.one_clock, skip: Some(Datagram::is_one) };
                    udp::receive(&socket, reception, shared)
                }
            }
            (Work::UdpRr { response, .. }, Slot::Udp(socket)) => {
                echo::answer(&socket, *response as usize, Some(&self.down), shared)
            }
            _ => Ok(()),
        }
    }

    /// Asks all threads to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Time since the start, in ns.
    pub fn now(&self) -> u64 {
        self.epoch.get().map_or(0, |epoch| epoch.since(std::time::Instant::now()))
    }

    /// Progress of the flows.
    pub fn reports(&self) -> Vec<FlowReport> {
        self.flows.iter().map(|flow| FlowReport::of(&flow.meter)).collect()
    }

    /// Final figures of the flows.
    pub fn ends(&self) -> Vec<FlowEnd> {
        let now = self.now();
        let end = |flow: &SessionFlow| {
            let limited = matches!(flow.spec.work, Work::TcpBulk { bytes: Some(_), .. });
            let done = limited && flow.done.load(Ordering::Relaxed) == flow.spec.work.streams();
            FlowEnd::of(&flow.meter, now, done, flow.error.lock().unwrap_or_else(PoisonError::into_inner).clone())
        };
        self.flows.iter().map(end).collect()
    }

    /// Remarks for the reader of the figures.
    pub fn notes(&self, caps: &Caps) -> Vec<String> {
        let held = |way: &str, throttle: &Throttle| {
            let most = Rate::bit_s(caps.rate_bit_s);
            throttle.held().then(|| format!("the server limited the traffic {way} to {most} (--max-rate)"))
        };
        [held("up", &self.up), held("down", &self.down)].into_iter().flatten().collect()
    }
}

impl SessionFlow {
    fn slots(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, why: String) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}
