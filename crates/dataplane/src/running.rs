//! Links that run: a thread with a loop for each, one signal that stops them all, and one channel
//! for their snapshots.

use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use altq_config::Link;

use crate::bridge;
use crate::error::Error;
use crate::nfqueue;
use crate::shaper::Tuning;
use crate::stats::Snapshot;
use crate::stop::Stop;
use crate::sys::interface::Interface;
use crate::sys::thread;
use crate::ways::{Way, ways};

/// Options for running links.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Tuning of the loops.
    pub tuning: Tuning,
    /// True if loops run before all ordinary threads (SCHED_FIFO). They then keep time under load,
    /// but a loop that is always busy keeps other threads from running.
    pub realtime: bool,
}

/// A loop, which runs in a thread of its own. Its argument takes the snapshots. It returns when the
/// edge tells it to stop.
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

/// Links that are being started: everything is opened before the first loop runs, so an error
/// leaves nothing behind.
pub(crate) struct Starting {
    pub stop: Stop,
    pub notes: Vec<String>,
    realtime: bool,
    loops: Vec<(String, Loop)>,
}

impl Starting {
    /// Nothing yet.
    pub fn new(options: Options) -> Result<Starting, Error> {
        let stop = Stop::new().map_err(|e| Error::of("event descriptors", e))?;
        Ok(Starting { stop, notes: Vec::new(), realtime: options.realtime, loops: Vec::new() })
    }

    /// Adds a loop. `name` is that of its thread.
    pub fn add(&mut self, name: String, work: Loop) {
        self.loops.push((name, work));
    }

    /// Starts all loops.
    pub fn start(self) -> Result<Running, Error> {
        let Starting { stop, notes, realtime, loops } = self;
        let (send, snapshots) = mpsc::channel();
        let mut running = Running { stop, snapshots, threads: Vec::new(), notes };
        for (name, work) in loops {
            let (stop, send) = (running.stop.clone(), send.clone());
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
        Ok(running)
    }
}

/// Finds an interface in the calling thread's network namespace.
pub(crate) fn find(name: &str) -> Result<Interface, Error> {
    Interface::find(name).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => Error::NoInterface { name: name.to_owned() },
        _ => Error::of("looking for an interface", error),
    })
}

/// Shapes the links, each on its device, in the network namespace of the calling thread, until
/// stopped.
///
/// # Errors
/// [`Error::Link`] for a link without a device, or devices that exclude each other;
/// [`Error::NoInterface`], [`Error::Interface`] if an interface is missing or carries no frames;
/// [`Error::Held`] if another process shapes the same; [`Error::NotPermitted`],
/// [`Error::Unsupported`], [`Error::Steering`] if the host does not allow or cannot do it;
/// [`Error::Spec`] if the engine refuses a link.
pub fn run(links: &[&Link], options: Options) -> Result<Running, Error> {
    let mut starting = Starting::new(options)?;
    let mut shaped = bridge::shaped(options);
    for way in ways(links)? {
        match way {
            Way::Bridge { from, to, link } => bridge::add(&mut starting, from, to, link, &mut shaped)?,
            Way::Interface { name, ingress, link } => nfqueue::add(&mut starting, name, ingress, link, options.tuning)?,
        }
    }
    starting.start()
}
