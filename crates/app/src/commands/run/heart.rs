//! The heart of a worker: it tells the supervisor that all loops go round.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::Duration;

use altq_dataplane::Reach;
use altq_dataplane::stop::Stop;
use altq_engine::Engine;

/// Time between two beats.
const BEAT: Duration = Duration::from_millis(25);

/// Beats on standard output in a thread, a newline each time, after every loop has answered. So it
/// is silent when one of them is stuck. When nobody listens any more, `stop` is set: a worker does
/// not outlive its supervisor.
///
/// # Errors
/// Those of copying the descriptor, and of starting a thread.
pub fn start(links: Vec<String>, reach: Reach, stop: Stop) -> io::Result<()> {
    let mut out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let work = move || {
        while all_answer(&links, &reach) {
            if out.write_all(b"\n").is_err() {
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
fn all_answer(links: &[String], reach: &Reach) -> bool {
    let (answer, answers) = mpsc::channel();
    for link in links {
        let answer = answer.clone();
        reach.look(link, Box::new(move |_: &Engine| _ = answer.send(())));
    }
    drop(answer);
    answers.iter().count() == links.len()
}
