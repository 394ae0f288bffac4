//! Running links: a thread with a loop for each, one signal that stops them all, and one channel
//! for their snapshots.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use altq_config::{Device, Link, Path};
use altq_engine::Change;
use altq_engine::units::Nanos;

use crate::bridge;
use crate::bridge::Claim;
use crate::bridge::xdp::Pairs;
use crate::edge::Edge;
use crate::error::Error;
use crate::gauge::Gauge;
use crate::kernel;
use crate::lock::Lock;
use crate::nfqueue;
use crate::nfqueue::steer::Fail;
use crate::probe::Probe;
use crate::shaper::{self, Ask, Look, Shaper, Tuning};
use crate::snapshots::{self, Snapshots};
use crate::stats::{Report, Totals};
use crate::stop::Stop;
use crate::sys::interface::Interface;
use crate::sys::thread;
use crate::tap::{self, Tap};
use crate::verify::{self, SetUp};
use crate::watched::{Seconds, Seen};
use crate::ways::{Way, ways};

/// Whether AF_XDP carries the bridges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Xdp {
    /// It does not; packet sockets carry them.
    #[default]
    Off,
    /// It does if the host and the interfaces support it. Otherwise packet sockets carry them, and
    /// a note says why.
    Auto,
    /// It does; if that is not possible, nothing runs.
    On,
}

/// Options for running links.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Tuning of the loops.
    pub tuning: Tuning,
    /// True if loops have priority over all ordinary threads (SCHED_FIFO). Then they keep time
    /// under load, but a loop that is always busy keeps other threads from running.
    pub realtime: bool,
    /// For how many nanoseconds an idle loop polls for packets before it sleeps.
    pub spin: Nanos,
    /// The processors on which the loops run, counted from 0: each loop gets one of them, in turn.
    /// Empty: any.
    pub processors: Vec<usize>,
    /// Whether AF_XDP carries the bridges.
    pub xdp: Xdp,
    /// True if rules of the firewall and qdiscs of the kernel stay at the end, for another process
    /// to take over or to remove ([`sweep`]).
    pub leave_rules: bool,
    /// The claim of frames that come in at bridges. Without it the kernel forwards them.
    pub claim: Option<Claim>,
    /// What becomes of packets of interfaces while no loop shapes them. With [`Fail::Closed`] rules
    /// of the firewall stay however the loops end, as with `leave_rules`.
    pub fail: Fail,
    /// Where to send what the classes of each link do, second by second, if somebody watches.
    pub seen: Option<mpsc::Sender<Seen>>,
}

/// A loop, which runs in a thread of its own. Its argument takes the reports that the loop makes at
/// intervals. It returns when the edge tells it to stop.
pub type Loop = Box<dyn FnOnce(&mut dyn FnMut(Report)) -> Result<(), Error> + Send>;

/// The handles of the loops, by name of the link.
pub(crate) type Senders = BTreeMap<String, Handle>;

/// A handle to the loop of a link.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    changes: mpsc::Sender<Vec<Change>>,
    asks: mpsc::Sender<Ask>,
    /// Wakes the loop.
    stop: Stop,
    /// Shows what the loop has sent, if the link's rate adapts.
    gauge: Option<Gauge>,
}

impl Handle {
    /// Sends changes to the loop and wakes it. It makes them between two packets. False if the loop
    /// has ended.
    pub fn change(&self, changes: Vec<Change>) -> bool {
        let sent = self.changes.send(changes).is_ok();
        self.stop.wake();
        sent
    }

    /// Sends the loop something to do between two packets, and wakes it. False if the loop has
    /// ended.
    fn ask(&self, ask: Ask) -> bool {
        let sent = self.asks.send(ask).is_ok();
        self.wake();
        sent
    }

    /// Makes the loop copy packets that leave.
    pub fn tap(&self, tap: Box<Tap>) {
        // If the loop has ended, the tap is dropped, which ends it.
        self.ask(Ask::Tap(tap));
    }

    /// Makes the loop stop copying.
    pub fn untap(&self) {
        self.ask(Ask::Untap);
    }

    /// Wakes the loop.
    pub fn wake(&self) {
        self.stop.wake();
    }

    /// Shows what the loop has sent, if the link's rate adapts.
    pub fn gauge(&self) -> Option<&Gauge> {
        self.gauge.as_ref()
    }
}

/// Makes a handle to the loop of a link, which `stop` wakes, and adds it to the others. Returns the
/// loop's end.
pub(crate) fn channel<E: Edge>(senders: &mut Senders, link: &Link, stop: Stop, shaper: &mut Shaper<E>) {
    let ((changes, to_change), (asks, to_do)) = (mpsc::channel(), mpsc::channel());
    shaper.listen(to_change);
    shaper.hear(to_do);
    let gauge = link.adapt.is_some().then(|| shaper.gauge());
    senders.insert(link.name.clone(), Handle { changes, asks, stop, gauge });
}

/// Access to running links from another thread: to the loops of links that altq itself executes,
/// and to the qdiscs of links that the kernel executes. No call waits for a loop.
#[derive(Clone, Debug)]
pub struct Reach {
    loops: Senders,
    standing: Standing,
    set_up: Arc<BTreeMap<String, SetUp>>,
}

impl Reach {
    /// The names of the links that have a loop.
    pub fn loops(&self) -> impl Iterator<Item = &str> {
        self.loops.keys().map(String::as_str)
    }

    /// What a link set up on the host when it began.
    pub fn set_up(&self, link: &str) -> Option<&SetUp> {
        self.set_up.get(link)
    }

    /// Sends changes to the loop of a link and wakes it. It makes them between two packets.
    /// [`altq_config::transition`] computes such changes. False if there is no such link with a
    /// loop.
    pub fn change(&self, link: &str, changes: Vec<Change>) -> bool {
        self.loops.get(link).is_some_and(|handle| handle.change(changes))
    }

    /// Makes the loop of a link call a function with its engine between two packets. The loop does
    /// nothing else meanwhile, so the function must be short. False if there is no such link with a
    /// loop.
    pub fn look(&self, link: &str, look: Look) -> bool {
        self.loops.get(link).is_some_and(|handle| handle.ask(Ask::Look(look)))
    }

    /// Copies packets that leave a link into a file, in a thread of its own. It replaces an
    /// existing tap. `None` if there is no such link with a loop.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no thread.
    pub fn tap(&self, link: &str, wanted: tap::Wanted, file: File) -> Result<Option<tap::Tapping>, Error> {
        self.loops.get(link).map(|handle| tap::start(handle, wanted, file)).transpose()
    }

    /// Sets up a link that the kernel executes in place of the one with the same name, in the
    /// calling thread's network namespace. Other links are not changed.
    ///
    /// # Errors
    /// As [`kernel::set_up`]. Then the old link stays.
    pub fn replace(&self, link: &Link) -> Result<kernel::Done, Error> {
        let (Some(stands), Some(Device::Interface { name, ingress })) = (self.standing.get(&link.name), &link.device)
        else {
            return Ok(kernel::Done::Stood);
        };
        // Counters are not read while the tree changes.
        let mut stands = stands.lock().unwrap_or_else(PoisonError::into_inner);
        stands.replace(name, *ingress, link)
    }

    /// What differs between a link that the kernel executes and what the kernel shows, in the
    /// calling thread's network namespace, one sentence each. The list is empty for a link that
    /// altq itself executes.
    pub fn drift(&self, link: &str) -> Vec<String> {
        let Some(stands) = self.standing.get(link) else { return Vec::new() };
        // The tree must not change while it is compared.
        let stands = stands.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Device::Interface { name, ingress }) = &stands.link.device else { return Vec::new() };
        kernel::drifted(name, *ingress, &stands.link).unwrap_or_else(|error| vec![error.to_string()])
    }
}

/// The links that the kernel executes, by name.
pub(crate) type Standing = BTreeMap<String, Arc<Mutex<kernel::run::Stands>>>;

/// Running links. Dropping it stops them.
pub struct Running {
    stop: Stop,
    reach: Reach,
    snapshots: Snapshots,
    said: mpsc::Receiver<String>,
    threads: Vec<JoinHandle<Result<(), Error>>>,
    notes: Vec<String>,
    /// While it is open, idle processors do not sleep.
    _awake: Option<File>,
}

impl Running {
    /// Notes for the user about how the links run, one line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The snapshots of all links. They end when all loops have ended.
    pub fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// Lines about what happens while the links run: changes of rates that adapt, with the reasons.
    pub fn said(&self) -> &mpsc::Receiver<String> {
        &self.said
    }

    /// A handle that stops the links.
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Access to the links, to change them and to look at their engines.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// Asks all loops to end. Each sends a last snapshot.
    pub fn stop(&self) {
        self.stop.set();
    }

    /// Waits until all loops have ended.
    ///
    /// # Errors
    /// The error of a loop: an interface went down or is gone, or a system call failed.
    pub fn wait(mut self) -> Result<(), Error> {
        self.join()
    }

    fn join(&mut self) -> Result<(), Error> {
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            let ended = match thread.join() {
                Ok(ended) => ended,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            result = result.and(ended);
        }
        result
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.set();
        for thread in self.threads.drain(..) {
            // If the thread panicked, the message has been printed.
            let _ = thread.join();
        }
    }
}

/// Links that are being started: everything is opened before the first loop runs, so an error
/// leaves nothing behind.
pub(crate) struct Starting {
    pub stop: Stop,
    pub notes: Vec<String>,
    pub senders: Senders,
    /// The links that the kernel executes.
    pub standing: Standing,
    /// By name, what links have set up on the host.
    pub set_up: BTreeMap<String, SetUp>,
    /// The links whose packets wait in the kernel.
    pub holding: Holding,
    /// For how many nanoseconds a loop looks for packets before it sleeps.
    pub spin: Nanos,
    /// Whether rules of the firewall and qdiscs of the kernel stay at the end.
    pub leave_rules: bool,
    /// The claim of frames that come in at bridges.
    pub claim: Option<Claim>,
    /// What becomes of packets while no loop shapes them.
    pub fail: Fail,
    realtime: bool,
    processors: Vec<usize>,
    loops: Vec<(String, Loop)>,
    /// The probes of the links whose rates adapt.
    pub probes: Vec<Probe>,
    awake: Option<File>,
    seen: Option<mpsc::Sender<Seen>>,
}

/// Counts the links whose packets wait in the kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holding(Arc<Count>);

/// One link of [`Holding`]. Dropping it means that no packet of the link waits any more.
#[derive(Debug)]
pub(crate) struct Hold(Arc<Count>);

/// A number, and a signal that it has fallen.
#[derive(Debug, Default)]
struct Count {
    links: Mutex<usize>,
    less: Condvar,
}

impl Count {
    /// The lock is taken even after a thread has panicked, because a number is always consistent.
    fn links(&self) -> MutexGuard<'_, usize> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holding {
    /// Counts a link.
    pub fn one_more(&self) -> Hold {
        *self.0.links() += 1;
        Hold(self.0.clone())
    }
}

impl Hold {
    /// Marks that no packet of this link waits any more, and waits until that holds for all links,
    /// at most for `most`.
    pub fn wait_for_all(self, most: Duration) {
        let count = self.0.clone();
        drop(self);
        let _ = count.less.wait_timeout_while(count.links(), most, |links| *links > 0);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        *self.0.links() -= 1;
        self.0.less.notify_all();
    }
}

impl Starting {
    /// Nothing is opened yet.
    pub fn new(options: Options) -> Result<Starting, Error> {
        let stop = Stop::new().map_err(|e| Error::of("event descriptors", e))?;
        let (notes, senders, loops) = (Vec::new(), Senders::new(), Vec::new());
        let holding = Holding::default();
        let Options { realtime, spin, processors, leave_rules, claim, fail, seen, .. } = options;
        let (standing, set_up, probes) = (Standing::new(), BTreeMap::new(), Vec::new());
        let mut starting = Starting {
            stop,
            notes,
            senders,
            standing,
            set_up,
            holding,
            spin,
            leave_rules,
            claim,
            fail,
            realtime,
            processors,
            loops,
            probes,
            awake: None,
            seen,
        };
        if realtime {
            match thread::stay_awake() {
                Ok(awake) => starting.awake = Some(awake),
                Err(error) => starting.notes.push(format!(
                    "idle processors may sleep, and then take long to wake (/dev/cpu_dma_latency: {error})"
                )),
            }
        }
        Ok(starting)
    }

    /// Adds a loop. `name` is the name of its thread.
    pub fn add(&mut self, name: String, work: Loop) {
        self.loops.push((name, work));
    }

    /// Starts all loops.
    pub fn start(self) -> Result<Running, Error> {
        let Starting {
            stop, notes, senders, standing, set_up, realtime, processors, loops, probes, awake, seen, ..
        } = self;
        let (send, reports) = mpsc::channel();
        let (show, snapshots) = snapshots::channel();
        let (say, said) = mpsc::channel();
        let reach = Reach { loops: senders, standing, set_up: Arc::new(set_up) };
        let mut running = Running { stop, reach, snapshots, said, threads: Vec::new(), notes, _awake: awake };
        // Each loop has one of the processors, in turn.
        let processors: Vec<Option<usize>> = match processors.is_empty() {
            true => vec![None],
            false => processors.into_iter().map(Some).collect(),
        };
        for ((name, work), processor) in loops.into_iter().zip(processors.into_iter().cycle()) {
            let (stop, send) = (running.stop.clone(), send.clone());
            let work = move || {
                // If this fails, timers fire up to 50 µs late. `regulator auto` makes up for that.
                let _ = thread::exact_timers();
                let pinned = processor.map_or(Ok(()), |processor| {
                    thread::pin(processor).map_err(|error| Error::Processor { processor, source: error })
                });
                let ready = pinned.and_then(|()| {
                    if realtime {
                        return thread::realtime().map_err(Error::of_realtime);
                    }
                    // Optional: the kernel then runs the loop sooner.
                    let _ = thread::prompt();
                    Ok(())
                });
                // If nobody takes the reports any more, the loop goes on.
                let result = ready.and_then(|()| work(&mut |report| _ = send.send(report)));
                // When one loop ends, the others must end too.
                stop.set();
                result
            };
            // The kernel keeps 15 bytes of the name of a thread. After an error, dropping `running`
            // stops the loops that run already.
            let thread = Builder::new()
                .name(name)
                .spawn(work)
                .map_err(|source| Error::Io { what: "starting a thread", source })?;
            running.threads.push(thread);
        }
        // It ends after the last loop.
        drop(send);
        let count = Builder::new()
            .name("altq counters".to_owned())
            .spawn(move || add_up(&reports, &show, seen.as_ref()))
            .map_err(|source| Error::Io { what: "starting a thread", source })?;
        running.threads.push(count);
        for probe in probes {
            let (stop, say) = (running.stop.clone(), say.clone());
            let work = move || {
                // If nobody receives the lines any more, the rate still adapts.
                let result = probe.run(&stop, &|line| _ = say.send(line));
                stop.set();
                result
            };
            let thread = Builder::new()
                .name("altq probes".to_owned())
                .spawn(work)
                .map_err(|source| Error::Io { what: "starting a thread", source })?;
            running.threads.push(thread);
        }
        Ok(running)
    }
}

/// Makes snapshots of the loops' reports, until the last loop has ended.
#[allow(clippy::unnecessary_wraps, reason = "the threads of running links end with a result")]
fn add_up(
    reports: &mpsc::Receiver<Report>,
    show: &snapshots::Sender,
    seen: Option<&mpsc::Sender<Seen>>,
) -> Result<(), Error> {
    let mut links: BTreeMap<String, (Totals, Seconds, snapshots::Sender)> = BTreeMap::new();
    for mut report in reports {
        if !links.contains_key(report.link()) {
            links.insert(report.link().to_owned(), (Totals::default(), Seconds::default(), show.of_link()));
        }
        let Some((totals, seconds, show)) = links.get_mut(report.link()) else { continue };
        if let Some(seen) = seen
            && let Some(second) = seconds.take(&mut report)
        {
            // If nobody watches any more, snapshots go on.
            let _ = seen.send(second);
        }
        match report {
            Report::Counts(counts) if !counts.shown => totals.hold(&counts),
            report => show.offer(totals.sum(report)),
        }
    }
    Ok(())
}

/// Finds an interface in the calling thread's network namespace.
pub(crate) fn find(name: &str) -> Result<Interface, Error> {
    Interface::find(name).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => Error::NoInterface { name: name.to_owned() },
        // Another name of an interface: the error says of which.
        None => Error::Link(error.to_string()),
        Some(_) => Error::of("looking for an interface", error),
    })
}

/// Shapes the links, each on its device, in the network namespace of the calling thread, until
/// stopped.
///
/// # Errors
/// [`Error::Link`] for a link without a device, or devices that exclude each other;
/// [`Error::NoInterface`], [`Error::NotReady`] if an interface is missing or carries no frames;
/// [`Error::Held`] if another process shapes the same; [`Error::NotPermitted`],
/// [`Error::Unsupported`], [`Error::Steering`], [`Error::Lacks`], [`Error::Xdp`] if the host does
/// not allow or cannot do it; [`Error::Foreign`] if somebody else's qdisc, XDP program or AF_XDP
/// socket is in the way; [`Error::Spec`] if the engine refuses a link.
pub fn run(links: &[&Link], options: Options) -> Result<Running, Error> {
    open(links, options)?.start()
}

/// Links for which everything is open, but whose loops do not run yet. No thread has been started.
/// Dropping it closes everything.
pub struct Ready(Starting);

impl Ready {
    /// Starts the loops.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(self) -> Result<Running, Error> {
        self.0.start()
    }
}

/// Opens everything that the links need: sockets, queues, rules of the firewall, programs, memory.
///
/// # Errors
/// Those of [`run`].
pub fn open(links: &[&Link], options: Options) -> Result<Ready, Error> {
    let (tuning, xdp) = (options.tuning, options.xdp);
    let mut starting = Starting::new(options)?;
    let mut senders = Senders::new();
    let mut shaped = bridge::shaped(tuning, &mut senders);
    let ways = ways(links)?;
    let mut pairs = Pairs::new(xdp, tuning);
    if xdp != Xdp::Off && !ways.iter().any(|way| matches!(way, Way::Bridge { .. })) {
        starting.notes.push("no link has `device bridge A B`, so AF_XDP carries nothing".to_owned());
    }
    for way in &ways {
        if let Way::Interface { name, .. } = way {
            // It would carry what comes in there past everything.
            bridge::hook::sweep(name)?;
        }
        match *way {
            Way::Bridge { from, to, link } => match pairs.edge(&mut starting, &ways, from, to)? {
                Some(edge) => bridge::add_rings(&mut starting, from, to, link, edge, tuning)?,
                None => bridge::add(&mut starting, from, to, link, &mut shaped)?,
            },
            Way::Interface { name, ingress, link } if link.path() == Some(Path::Kernel) => {
                kernel::run::add(&mut starting, name, ingress, link, tuning)?;
            }
            Way::Interface { name, ingress, link } => nfqueue::add(&mut starting, name, ingress, link, tuning)?,
        }
    }
    drop(shaped);
    starting.senders.append(&mut senders);
    for link in links {
        starting.set_up.entry(link.name.clone()).or_default().devices = verify::settings(link);
        if let Some(handle) = starting.senders.get(&link.name)
            && let Some(probe) = Probe::open(link, handle)?
        {
            let (name, reflectors) = (probe.link(), link.adapt.as_ref().map_or(0, |adapt| adapt.reflectors.len()));
            starting.notes.push(format!("link {name}: its rate adapts to the delay of {reflectors} reflectors"));
            starting.probes.push(probe);
        }
    }
    Ok(Ready(starting))
}

/// Removes what a killed process has left of these links, in the network namespace of the calling
/// thread: rules of the firewall, and qdiscs of links that the kernel executes. Links that another
/// process shapes are left alone, and so is what `altq run --detach` has set up.
///
/// # Errors
/// [`Error::Steering`] if rules cannot be removed, [`Error::Kernel`] if qdiscs cannot.
pub fn sweep(links: &[&Link]) -> Result<(), Error> {
    let mut result = Ok(());
    for link in links {
        if let Some(Device::Interface { name, ingress }) = &link.device {
            // If another process shapes there now, the rules are that process's.
            let Ok(_lock) = Lock::take(name, *ingress) else { continue };
            result = result.and(match link.path() {
                Some(Path::Kernel) => kernel::sweep(name, *ingress),
                _ => nfqueue::steer::sweep(name, *ingress),
            });
        }
    }
    result
}

/// Checks that what the path of a running link has set up at the start is also right for `to`. The
/// engine is not checked.
///
/// # Errors
/// What only a new start can change.
pub fn fits(from: &Link, to: &Link, tuning: Tuning) -> Result<(), String> {
    if from.device != to.device {
        return Err("its device".to_owned());
    }
    if from.path() != to.path() {
        return Err("its path".to_owned());
    }
    if to.path() == Some(Path::Kernel) {
        return Ok(());
    }
    let bytes = !matches!(from.device, Some(Device::Interface { .. }));
    if to.adapt.is_some() && from.spec.rate != to.spec.rate {
        return Err("the rate to which an adapting one returns".to_owned());
    }
    if shaper::frames(to, tuning, bytes) > shaper::frames(from, tuning, bytes) {
        return Err("how many packets its queues hold together, for which there are slots since the start".to_owned());
    }
    if let Some(Device::Interface { .. }) = &from.device
        && let Some(fixed) = nfqueue::fixed(from, to, tuning)
    {
        return Err(fixed.to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_link_waits_for_the_others_but_not_for_ever() {
        let holding = Holding::default();
        let (first, second) = (holding.one_more(), holding.one_more());
        let start = Instant::now();
        first.wait_for_all(Duration::from_millis(30));
        assert!(start.elapsed() >= Duration::from_millis(30), "the second still holds packets");
        let third = holding.one_more();
        let other = std::thread::spawn(move || third.wait_for_all(Duration::from_secs(60)));
        drop(second);
        other.join().unwrap();
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
