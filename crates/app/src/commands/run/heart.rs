//! The heart of a worker: it tells the supervisor that all loops go round, and what clients have
//! changed. The supervisor tells it what the policy has become.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use altq_dataplane::Reach;
use altq_dataplane::stop::Stop;
use altq_engine::Engine;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Time between two beats.
const BEAT: Duration = Duration::from_millis(25);

/// How long the supervisor may take to tell a policy.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest policy that is read, in bytes.
const LONGEST: u64 = 256 << 20;

/// What leads to the supervisor and back: a socket, which is standard output.
#[derive(Clone)]
pub struct Wire {
    to: Arc<Mutex<File>>,
    from: Arc<Mutex<BufReader<UnixStream>>>,
}

impl Wire {
    /// Copies of standard output.
    ///
    /// # Errors
    /// Those of copying the descriptor; it is no socket.
    pub fn new() -> io::Result<Wire> {
        let copy = || -> io::Result<OwnedFd> { io::stdout().as_fd().try_clone_to_owned() };
        let from = UnixStream::from(copy()?);
        from.set_read_timeout(Some(PATIENCE))?;
        let to = Arc::new(Mutex::new(File::from(copy()?)));
        Ok(Wire { to, from: Arc::new(Mutex::new(BufReader::new(from))) })
    }

    /// Says a line. Lines of several threads do not mix.
    ///
    /// # Errors
    /// Nobody listens any more.
    pub fn say(&self, line: &[u8]) -> io::Result<()> {
        self.to.lock().unwrap_or_else(PoisonError::into_inner).write_all(line)
    }

    /// The policy that the supervisor tells, in the native language: the latest if there are
    /// several.
    ///
    /// # Errors
    /// It tells none in time, or is gone.
    pub fn policy(&self) -> io::Result<String> {
        let mut from = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut line = String::new();
            let count = (&mut *from).take(LONGEST).read_line(&mut line)?;
            if count == 0 || !line.ends_with('\n') {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let more = !from.buffer().is_empty() || {
                let mut watched = [PollFd::new(from.get_ref(), PollFlags::IN)];
                poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0
            };
            if !more {
                return Ok(serde_json::from_str(&line)?);
            }
        }
    }
}

/// Beats in a thread, an empty line each time, after every loop has answered. So it is silent when
/// one of them is stuck. When nobody listens any more, `stop` is set: a worker does not outlive its
/// supervisor.
///
/// # Errors
/// That of starting a thread.
pub fn start(wire: Wire, reach: Reach, stop: Stop) -> io::Result<()> {
    let work = move || {
        while all_answer(&reach) {
            if wire.say(b"\n").is_err() {
                eprintln!("altq run: the supervisor is gone, so the worker ends");
                return stop.set();
            }
            std::thread::sleep(BEAT);
        }
    };
    std::thread::Builder::new().name("altq heart".to_owned()).spawn(work)?;
    Ok(())
}

/// Waits until each loop has answered. False if one has ended: its question is thrown away then.
/// Links that the kernel executes have no loop.
fn all_answer(reach: &Reach) -> bool {
    let (answer, answers) = mpsc::channel();
    let mut asked = 0;
    for link in reach.loops() {
        let answer = answer.clone();
        reach.look(link, Box::new(move |_: &Engine| _ = answer.send(())));
        asked += 1;
    }
    drop(answer);
    answers.iter().count() == asked
}
