//! A bridge between two interfaces, by packet sockets, which shapes what it forwards.
//!
//! `device bridge a b` shapes frames that come in at `a` and leave by `b`. The other direction is
//! forwarded unshaped, unless another link says `bridge b a`. Each direction is a thread with its
//! own sockets. Nothing has to be undone afterwards: promiscuous mode, and the program that keeps
//! the kernel's network stack from handling the frames, belong to descriptors, so the kernel
//! removes them when the process ends, however it ends. While no process runs the bridge, nothing
//! is forwarded.

mod edge;
mod forward;

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use altq_config::{Device, Link};

use crate::error::Error;
use crate::shaper::{Shaper, Tuning};
use crate::stats::Snapshot;
use crate::stop::Stop;
use crate::sys::interface::Interface;
use crate::sys::{bpf, thread};
pub use edge::OneWay;
pub use forward::forward;

/// Options for running links.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Tuning of the loops.
    pub tuning: Tuning,
    /// True if loops run before all ordinary threads (SCHED_FIFO). They then keep time under load,
    /// but a loop that is always busy keeps other threads from running.
    pub realtime: bool,
}

/// The loop of one direction of a bridge, which runs in a thread of its own. Its argument takes the
/// snapshots. It returns when the edge tells it to stop.
pub type Loop = Box<dyn FnOnce(&mut dyn FnMut(Snapshot)) -> Result<(), Error> + Send>;

/// Running links. Dropping it stops them.
pub struct Running {
    stop: Stop,
    snapshots: mpsc::Receiver<Snapshot>,
    threads: Vec<JoinHandle<Result<(), Error>>>,
    notes: Vec<String>,
}

impl Running {
    /// Notes for the user about how the links run, one line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The snapshots of all links. The channel closes when all loops have ended.
    pub fn snapshots(&self) -> &mpsc::Receiver<Snapshot> {
        &self.snapshots
    }

    /// A handle that stops the links.
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
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

/// Opens the interfaces of `links`, in the network namespace of the calling thread, and shapes
/// until stopped. Errors after this has returned come only from changes to the interfaces.
///
/// # Errors
/// [`Error::Link`] for a link without a bridge, or bridges that exclude each other;
/// [`Error::NoInterface`], [`Error::Interface`] if an interface is missing or carries no frames;
/// [`Error::NotPermitted`], [`Error::Unsupported`] if the host does not allow or cannot do it;
/// [`Error::Spec`] if the engine refuses a link.
pub fn run(links: &[&Link], options: Options) -> Result<Running, Error> {
    run_with(links, options, |from, link, one_way| {
        Ok(match link {
            Some(link) => {
                let mut shaper = Shaper::new(link, from, one_way, options.tuning)?;
                Box::new(move |snapshots| shaper.run(snapshots))
            }
            None => Box::new(move |_| forward(one_way)),
        })
    })
}

/// As [`run`], with loops made by `make` from the edge of each direction. `make` is called once per
/// direction, with the name of the interface at which frames come in, and the link that shapes
/// them, if there is one.
///
/// # Errors
/// Those of [`run`], and those of `make`.
pub fn run_with(
    links: &[&Link],
    options: Options,
    mut make: impl FnMut(&str, Option<&Link>, OneWay) -> Result<Loop, Error>,
) -> Result<Running, Error> {
    let ways = ways(links)?;
    let stop = Stop::new().map_err(|e| Error::of("event descriptors", e))?;
    let mut notes = Vec::new();
    let (send, snapshots) = mpsc::channel();
    let mut workers: Vec<(String, Worker)> = Vec::new();
    for (from, to, link) in &ways {
        let (input, output) = (find(from)?, find(to)?);
        edge::check(&input)?;
        edge::check(&output)?;
        let guard = match bpf::drop_ingress(input.index) {
            Ok(guard) => Some(guard),
            Err(error) => {
                notes.push(format!(
                    "the kernel's own stack handles what comes in at {from} as well (no tcx program: {error}); \
                     keep addresses and forwarding off {from}"
                ));
                None
            }
        };
        describe(&input, &output, *link, &mut notes);
        let work = make(from, *link, OneWay::open(input, output, guard, stop.clone())?)?;
        let (stop, realtime, send) = (stop.clone(), options.realtime, send.clone());
        let work = move || {
            // If this fails, timers fire up to 50 µs late. `regulator auto` makes up for that.
            let _ = thread::exact_timers();
            let ready = if realtime {
                thread::realtime().map_err(Error::of_realtime)
            } else {
                // Optional: the kernel then runs the loop sooner.
                let _ = thread::prompt();
                Ok(())
            };
            // If nobody receives the snapshots any more, the loop goes on.
            let result = ready.and_then(|()| work(&mut |snapshot| _ = send.send(snapshot)));
            // When one direction ends, the other one must end too.
            stop.set();
            result
        };
        workers.push((format!("altq {from}>{to}"), Box::new(work)));
    }
    let mut threads = Vec::new();
    for (name, work) in workers {
        // The kernel keeps 15 bytes of the name of a thread.
        let thread = Builder::new().name(name).spawn(work);
        match thread {
            Ok(thread) => threads.push(thread),
            Err(source) => {
                stop.set();
                return Err(Error::Io { what: "starting a thread", source });
            }
        }
    }
    Ok(Running { stop, snapshots, threads, notes })
}

/// A direction: from, to, and the link that shapes it.
type Way<'a> = (&'a str, &'a str, Option<&'a Link>);

type Worker = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// All directions to run: those of the links, and the opposite ones that no link shapes.
fn ways<'a>(links: &[&'a Link]) -> Result<Vec<Way<'a>>, Error> {
    let mut ways: Vec<Way<'a>> = Vec::new();
    let mut partner: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for link in links.iter().copied() {
        let name = &link.name;
        let (from, to) = match &link.device {
            Some(Device::Bridge { from, to }) => (from.as_str(), to.as_str()),
            Some(Device::Interface { name: device, ingress }) => {
                let direction = if *ingress { " ingress" } else { "" };
                return Err(Error::Link(format!(
                    "link `{name}`: `device {device}{direction}` is not built yet; `device bridge {device} OTHER` \
                     shapes what passes between two interfaces, and `altq replay` and `altq sim` run the link without \
                     a device"
                )));
            }
            None => {
                return Err(Error::Link(format!(
                    "link `{name}` has no device; write `device bridge A B` in it to shape what comes in at A and \
                     leaves by B, or use `altq replay` or `altq sim`, which need none"
                )));
            }
        };
        if from == to {
            return Err(Error::Link(format!("link `{name}`: a bridge needs two interfaces, and both are {from}")));
        }
        for (this, other) in [(from, to), (to, from)] {
            if let Some((known, by)) = partner.insert(this, (other, name))
                && known != other
            {
                return Err(Error::Link(format!(
                    "link `{name}`: {this} is bridged to {other} here and to {known} by link `{by}`; an interface has \
                     one partner"
                )));
            }
        }
        let taken = ways.iter().find(|(a, b, _)| (*a, *b) == (from, to));
        if let Some((_, _, Some(twice))) = taken {
            return Err(Error::Link(format!(
                "links `{}` and `{name}` both shape what goes from {from} to {to}",
                twice.name
            )));
        }
        ways.push((from, to, Some(link)));
    }
    for at in 0..ways.len() {
        let (from, to, _) = ways[at];
        if !ways.iter().any(|(a, b, _)| (*a, *b) == (to, from)) {
            ways.push((to, from, None));
        }
    }
    Ok(ways)
}

fn find(name: &str) -> Result<Interface, Error> {
    Interface::find(name).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => Error::NoInterface { name: name.to_owned() },
        _ => Error::of("looking for an interface", error),
    })
}

/// Notes which offloads are on, and MTUs that do not match.
fn describe(from: &Interface, to: &Interface, link: Option<&Link>, notes: &mut Vec<String>) {
    const GRO: u32 = 0x2b; // ETHTOOL_GGRO
    const GSO: u32 = 0x23; // ETHTOOL_GGSO
    const TSO: u32 = 0x1e; // ETHTOOL_GTSO
    let word = |on: Option<bool>| match on {
        Some(true) => "on",
        Some(false) => "off",
        None => "unknown",
    };
    if let Some(link) = link {
        notes.push(format!(
            "link {}: {} -> {}, gro {} at {}, gso {} and tso {} at {}",
            link.name,
            from.name,
            to.name,
            word(from.ethtool(GRO)),
            from.name,
            word(to.ethtool(GSO)),
            word(to.ethtool(TSO)),
            to.name,
        ));
    }
    if let (Ok(input), Ok(output)) = (from.mtu(), to.mtu())
        && input > output
    {
        notes.push(format!(
            "frames of more than {output} bytes that come in at {} (mtu {input}) cannot leave by {} (mtu {output}) and \
             will be dropped",
            from.name, to.name
        ));
    }
}
