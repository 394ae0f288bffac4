//! The heart of a worker: it tells the supervisor that all loops go round, and what clients have
//! changed.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use altq_dataplane::Reach;
use altq_dataplane::stop::Stop;
use altq_engine::Engine;

/// Time between two beats.
const BEAT: Duration = Duration::from_millis(25);

/// What leads to the supervisor: standard output.
#[derive(Clone)]
pub struct Wire(Arc<Mutex<File>>);

impl Wire {
    /// A copy of standard output.
    ///
    /// # Errors
    /// Those of copying the descriptor.
    pub fn new() -> io::Result<Wire> {
        let out = io::stdout().as_fd().try_clone_to_owned()?;
        Ok(Wire(Arc::new(Mutex::new(File::from(out)))))
    }

    /// Says a line. Lines of several threads do not mix.
    ///
    /// # Errors
    /// Nobody listens any more.
    pub fn say(&self, line: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(line)
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
