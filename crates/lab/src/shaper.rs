//! Runs altq in the middle namespace, with the bridge path of `altq run`, and keeps the readings of
//! its counters.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use altq_cases::case::Governed;
use altq_cases::stat::LinkStat;
use altq_config::{Device, Link};
use altq_dataplane::Error;
use altq_dataplane::bridge::{self, Loop, OneWay, Options, Running};
use altq_dataplane::edge::Edge;
use altq_dataplane::output::Output;
use altq_dataplane::shaper::{self, Look, Tuning};
use altq_dataplane::sketch::Packed;
use altq_dataplane::stop::Stop;
use altq_engine::spec::Regulator;
use altq_engine::units::Nanos;
use altq_engine::{Change, Engine};
use anyhow::Context;

use super::host::Host;
use super::networked::{Network, Networked};
use super::processor::Threads;
use super::readings::{Readings, Seen};
use super::topology::{INSIDE, NotPermitted, OUTSIDE, Side, Topology, Unsupported};
use super::tunnel::{Tunnel, Tunnelled};

/// Time between two readings of a link's counters. Windows begin and end at a reading.
const EVERY: Duration = Duration::from_millis(10);

/// Least time between two readings of a link, for each of its classes. The loop needs much less to
/// copy the counters of a class.
const A_CLASS: Duration = Duration::from_micros(5);

/// Packets up to this length, in bytes, have a slot of 2 KB. Larger ones have 64 KB more, most of
/// which is never touched.
const ORDINARY: u32 = 1900;

/// Bytes of memory for slots if the link has larger packets: a queue of 13,000 packets of 8 KB must
/// fit (case timer-ceiling).
const MEMORY: usize = 1536 << 20;

/// How long the veth interfaces may take until they carry frames.
const CARRIER: Duration = Duration::from_secs(3);

/// How long a loop may take to answer a request.
const PATIENCE: Duration = Duration::from_secs(5);

/// The emulation around a shaped link, for packets of one direction.
#[derive(Default)]
pub struct Around {
    /// The links before it; `None`: packets come straight from the hosts.
    pub before: Option<Box<dyn Network>>,
    /// The links behind it; `None`: a packet has arrived when it leaves.
    pub behind: Option<Box<dyn Network>>,
    /// A tunnel around it, whose header is added before classification and removed behind the
    /// queue.
    pub tunnel: Option<Tunnel>,
    /// The imitated host that has the queue; `None`: a wire of the policy's rate.
    pub host: Option<Host>,
}

/// The channels by which a running loop gets changes and requests to look at its engine.
struct Steering {
    changes: Option<mpsc::Receiver<Vec<Change>>>,
    looks: Option<mpsc::Receiver<Look>>,
    threads: Arc<Threads>,
}

impl Steering {
    /// The loop of this shaper, with these channels.
    fn run(
        self,
        link: &Link,
        mut shaper: shaper::Shaper<impl Edge + Send + 'static, impl Output + Send + 'static>,
    ) -> Loop {
        self.changes.into_iter().for_each(|changes| shaper.listen(changes));
        self.looks.into_iter().for_each(|looks| shaper.show(looks));
        let (threads, name) = (self.threads, link.name.clone());
        Box::new(move |report| {
            threads.runs(&name);
            shaper.run(report)
        })
    }
}

/// The running bridge, and its readings so far.
pub struct Shaper {
    stop: Stop,
    seen: Arc<Mutex<Vec<Seen>>>,
    listener: JoinHandle<Result<(), Error>>,
    notes: Vec<String>,
    /// For each link, the sender of changes to its loop.
    steering: Vec<mpsc::Sender<Vec<Change>>>,
    /// For each link, the sender of functions that look at its engine.
    looking: Vec<mpsc::Sender<Look>>,
}

/// The links as the loops in the middle run them: each link of the policy with the direction that
/// it governs, towards the sinks or back towards the sources. A link gets its direction's name. A
/// loop must send at the link's rate, so a link without a regulator gets `regulator auto`, unless
/// an imitated wire limits the rate (`apart`).
pub fn wires(ways: &[(&Link, &Governed<'_>)], apart: bool) -> Vec<Link> {
    ways.iter()
        .map(|(link, way)| {
            // Readings have the link's name, so a link that governs both directions becomes two.
            let mut link = Link { name: way.name.clone(), ..(*link).clone() };
            let (from, to) = if way.back { (OUTSIDE, INSIDE) } else { (INSIDE, OUTSIDE) };
            link.device = Some(Device::Bridge { from: from.into(), to: to.into() });
            if link.spec.regulator == Regulator::None && !apart {
                link.spec.regulator = Regulator::Auto;
            }
            link
        })
        .collect()
}

impl Shaper {
    /// Starts altq between the two sides.
    ///
    /// # Errors
    /// [`Unsupported`] if the kernel lacks packet sockets or something that the bridge needs of
    /// them.
    ///
    /// `ways` returns the emulation for packets of one side. It is called again if the interfaces
    /// are not up yet.
    pub fn start(
        topology: &Topology,
        links: &[Link],
        ways: &(dyn Fn(Side) -> Around + Sync),
    ) -> anyhow::Result<Shaper> {
        let links: Vec<&Link> = links.iter().collect();
        let (mut steering, mut looking);
        let threads = Arc::new(Threads::default());
        let classes = links.iter().map(|link| link.classes.len() as u32).max().unwrap_or(0);
        let every = EVERY.max(A_CLASS * classes);
        let jumbo = links.iter().any(|link| link.spec.mtu > ORDINARY);
        let memory = if jumbo { MEMORY } else { Tuning::default().memory };
        let tuning = Tuning { interval: Some(every.as_nanos() as u64), memory, ..Tuning::default() };
        let options = Options { tuning, ..Options::default() };
        // The kernel reports interfaces as up a little before they carry frames.
        let deadline = Instant::now() + CARRIER;
        let running = loop {
            let channels: Vec<_> = links.iter().map(|_| mpsc::channel()).collect();
            let (senders, mut receivers): (Vec<_>, Vec<_>) = channels.into_iter().map(|(s, r)| (s, Some(r))).unzip();
            let channels: Vec<_> = links.iter().map(|_| mpsc::channel()).collect();
            let (lenders, mut lookers): (Vec<_>, Vec<_>) = channels.into_iter().map(|(s, r)| (s, Some(r))).unzip();
            let make = |from: &str, link: Option<&Link>, edge: OneWay| {
                let side = if from == INSIDE { Side::Sources } else { Side::Sinks };
                let of = |link: &&Link| matches!(&link.device, Some(Device::Bridge { from: own, .. }) if own == from);
                let at = links.iter().position(of);
                let steering = Steering {
                    changes: at.and_then(|at| receivers.get_mut(at)?.take()),
                    looks: at.and_then(|at| lookers.get_mut(at)?.take()),
                    threads: threads.clone(),
                };
                let Around { before, behind, tunnel, host } = ways(side);
                let edge = Tunnelled::new(Networked::new(edge, before, behind), tunnel);
                let Some(link) = link else {
                    let forward: Loop = Box::new(move |_| bridge::forward(edge));
                    return Ok(forward);
                };
                Ok(match host {
                    Some(host) => {
                        let (output, timer) = (host.output(), host.timer);
                        steering.run(link, shaper::Shaper::with_output(link, from, edge, tuning, output, timer)?)
                    }
                    None => steering.run(link, shaper::Shaper::new(link, from, edge, tuning)?),
                })
            };
            (steering, looking) = (senders, lenders);
            match topology.middle().run(|| bridge::run_with(&links, options.clone(), make))? {
                Err(Error::Interface { .. }) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10))
                }
                Err(error @ Error::NotPermitted { .. }) => return Err(NotPermitted(error.to_string()).into()),
                Err(error @ Error::Unsupported { .. }) => return Err(Unsupported(error.to_string()).into()),
                other => break other?,
            }
        };
        let (stop, notes) = (running.stopper(), running.notes().to_vec());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let listener = std::thread::Builder::new().name("readings".into()).spawn({
            let seen = seen.clone();
            move || listen(running, &threads, &seen)
        });
        Ok(Shaper { stop, seen, listener: listener.context("cannot start a thread")?, notes, steering, looking })
    }

    /// Applies a change to the link with this index; it takes effect within a reading's interval.
    ///
    /// # Errors
    /// If the bridge has ended.
    pub fn change(&self, link: usize, change: Change) -> anyhow::Result<()> {
        let gone = || anyhow::anyhow!("altq's bridge ended before the run was over");
        self.steering.get(link).ok_or_else(gone)?.send(vec![change]).map_err(|_| gone())
    }

    /// The counters of a link's engine at this time, for a run that has lasted `span`. Answers
    /// within a reading's interval.
    ///
    /// # Errors
    /// If the bridge has ended.
    pub fn stat(&self, at: usize, link: &Link, span: Nanos) -> anyhow::Result<LinkStat> {
        let (tell, told) = mpsc::channel();
        let link = link.clone();
        // If nobody waits for the answer any more, it is dropped.
        let look: Look = Box::new(move |engine: &Engine| _ = tell.send(LinkStat::of(&link, engine, span)));
        let gone = || anyhow::anyhow!("altq's bridge ended before the run was over");
        self.looking.get(at).ok_or_else(gone)?.send(look).map_err(|_| gone())?;
        told.recv_timeout(PATIENCE).map_err(|_| gone())
    }

    /// Remarks of the bridge about how it runs.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// True if the bridge has ended by itself, which it does only after an error.
    pub fn failed(&self) -> bool {
        self.listener.is_finished()
    }

    /// Stops the bridge and returns the readings of each link. `epoch` is the start of the run;
    /// earlier readings count as taken at the start.
    ///
    /// # Errors
    /// The error that ended the bridge, if it had ended.
    pub fn finish(self, epoch: Instant, links: &[Link]) -> anyhow::Result<Vec<Readings>> {
        self.stop.set();
        match self.listener.join() {
            Ok(result) => result.context("altq's bridge ended")?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        let mut seen = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        // Snapshots of many classes are large, so each is moved to its link, not copied.
        let mut own = |link: &Link| seen.extract_if(.., |seen| seen.snapshot.link == link.name).collect();
        Ok(links.iter().map(|link| Readings::new(own(link), epoch)).collect())
    }
}

fn listen(running: Running, threads: &Threads, seen: &Mutex<Vec<Seen>>) -> Result<(), Error> {
    loop {
        match running.snapshots().recv_timeout(Duration::from_secs(1)) {
            Ok(mut snapshot) => {
                let (came, scheduled) = (Instant::now(), threads.scheduled(&snapshot.link));
                if snapshot.classes.len() > super::MANY {
                    // Readings of many classes take much memory. Classes after the last one that
                    // had packets are removed.
                    let busy = snapshot.classes.iter().rposition(|class| class.counters.received_packets() > 0);
                    snapshot.classes.truncate(busy.map_or(1, |last| last + 1));
                    snapshot.classes.shrink_to_fit();
                }
                let sojourns = snapshot.classes.iter_mut().map(|class| {
                    class.sojourn_total = Packed::default();
                    std::mem::take(&mut class.sojourn)
                });
                let sojourns = sojourns.collect();
                let reading = Seen { snapshot, sojourns, scheduled, came };
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(reading);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return running.wait(),
        }
    }
}
