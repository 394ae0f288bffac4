//! Programs that look at a shaper leave the processor to it.

use rustix::process::{getpriority_process, setpriority_process};

/// The nice value of those who look, as in `dist/altq-web.service`.
const NICE: i32 = 10;

/// Lowers the priority of this thread, and of all threads that it starts, unless it is low already:
/// to draw must not take time from the loop that sends packets.
pub fn stand_aside(command: &str) {
    let lowered = getpriority_process(None).and_then(|now| match now < NICE {
        true => setpriority_process(None, NICE),
        false => Ok(()),
    });
    if let Err(error) = lowered {
        eprintln!("{command}: cannot lower its own priority: {error}");
    }
}
