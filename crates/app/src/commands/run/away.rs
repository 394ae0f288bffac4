//! Answers on the control socket in the supervisor, while no worker shapes.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use altq_config::{Link, Path as By};
use altq_control::document::{BLOCKED, BYPASS, KERNEL, LinkStatus, Status};
use altq_control::fault::AGAIN;
use altq_control::reply::{Body, body};
use altq_control::rights::{Peer, Writers};
use altq_control::server::{Limits, Server, Service};
use altq_control::{Code, Fault, Request};
use altq_dataplane::stop::Stop;
use altq_engine::units::SECOND;

use super::keep::boot_ns;
use super::listen::{Opened, peer};

/// Answers clients while no worker shapes. Dropping it ends that.
pub struct Away {
    since: Instant,
    reason: Arc<Mutex<String>>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Away {
    /// Answers about these links, which are not shaped since a time, for a reason. `closed`:
    /// whether packets of those that altq itself executes do not pass. `until`: when a change that
    /// waits to be confirmed is taken back, in ns since the boot.
    ///
    /// # Errors
    /// Those of the socket, and of starting a thread.
    pub fn start(
        socket: &Opened,
        links: &[Link],
        (since, reason): (Instant, &str),
        closed: bool,
        until: Option<u64>,
    ) -> io::Result<Away> {
        let stop = Stop::new()?;
        let reason = Arc::new(Mutex::new(reason.to_owned()));
        let names = links.iter().map(|link| (link.name.clone(), link.path().unwrap_or(By::Bridge))).collect();
        let mut answers = AwayAnswers { names, since, reason: reason.clone(), closed, until };
        let mut server = server(socket.listener.try_clone()?, socket.writers)?;
        let stopped = stop.clone();
        let work = move || {
            if let Err(error) = server.run(&mut answers, &stopped) {
                eprintln!("altq run: nobody answers on the control socket: {error}");
            }
        };
        let thread = std::thread::Builder::new().name("altq control".to_owned()).spawn(work)?;
        Ok(Away { since, reason, stop, thread: Some(thread) })
    }

    /// Since when the links are not shaped.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Changes the reason.
    pub fn tell(&self, reason: &str) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason.to_owned();
    }
}

fn server(listener: UnixListener, writers: Writers) -> io::Result<Server<impl Fn(&UnixStream) -> io::Result<Peer>>> {
    Server::new(listener, writers, Limits::default(), peer)
}

impl Drop for Away {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct AwayAnswers {
    names: Vec<(String, By)>,
    since: Instant,
    reason: Arc<Mutex<String>>,
    closed: bool,
    until: Option<u64>,
}

impl Service for AwayAnswers {
    fn answer(&mut self, request: Request, _: &Peer) -> Result<Body, Fault> {
        if request != Request::Status {
            return Err(self.fault());
        }
        let reason = self.reason();
        let since_s = self.since.elapsed().as_secs();
        let link = |(name, by): &(String, By)| {
            // Links that the kernel executes are shaped even without a worker.
            let (state, reason) = match by {
                By::Kernel => (KERNEL, None),
                By::Nfqueue | By::Bridge if self.closed => (BLOCKED, Some(reason.clone())),
                By::Nfqueue | By::Bridge => (BYPASS, Some(reason.clone())),
            };
            let (name, path, state) = (name.clone(), by.name().to_owned(), state.to_owned());
            LinkStatus { name, path, state, since_s, reason, drift: Vec::new(), set_by_clients: 0 }
        };
        let mut status = Status::of(self.names.iter().map(link).collect());
        // When its time is over, it is taken back at once.
        let left = self.until.map(|until| until.saturating_sub(boot_ns()));
        status.confirm_pending_s = left.filter(|left| *left > 0).map(|left| left.div_ceil(SECOND));
        body(&status).map_err(|error| Fault::new(Code::Failed, error.to_string()))
    }

    fn watch(&mut self) -> Result<u64, Fault> {
        Err(self.fault())
    }
}

impl AwayAnswers {
    fn reason(&self) -> String {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The answer to everything but `status`.
    fn fault(&self) -> Fault {
        let by_kernel = self.names.iter().all(|(_, by)| *by == By::Kernel);
        let what = match (by_kernel, self.closed) {
            (true, _) => "no worker runs",
            (false, true) => "packets are held back",
            (false, false) => "packets pass unshaped",
        };
        let fault = Fault::new(Code::Failed, format!("{what}: {}", self.reason()));
        fault.help(format!("{AGAIN}: `altq run` starts the next worker by itself"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use altq_config::{Language, parse_str};
    use altq_control::client::{Client, NoFields};

    use super::super::listen::{Wanted, open};
    use super::*;

    #[test]
    fn the_time_without_a_worker_is_told_even_if_it_began_before() {
        let path = std::env::temp_dir().join(format!("altq-away-{}.sock", std::process::id()));
        let socket = open(&Wanted { path: &path, group: None, mode: 0o600 });
        let socket = socket.unwrap_or_else(|problem| panic!("{}", problem.message));
        let text = "link l { rate 1Mbit/s  scheduler fifo  class all { default } }";
        let policy = parse_str(text, "p.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
        let since = Instant::now().checked_sub(Duration::from_secs(7)).unwrap();
        let away = Away::start(&socket, &policy.links, (since, "late"), false, Some(boot_ns() + 60 * SECOND)).unwrap();
        let told = Client::connect(&path).and_then(|mut client| client.ask("status", &NoFields {}));
        let status: Status = serde_json::from_str(&told.unwrap_or_else(|fault| panic!("{fault}"))).unwrap();
        assert!(status.links[0].since_s >= 7 && status.links[0].state == BYPASS, "{status:?}");
        assert!(matches!(status.confirm_pending_s, Some(30..=60)), "{status:?}");
        assert_eq!(away.since(), since);
    }
}
