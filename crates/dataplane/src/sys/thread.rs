//! How promptly the kernel wakes a thread.

use std::io;
use std::num::NonZeroU64;

use super::check;

/// Timers of the calling thread fire as exactly as the kernel can: slack of 1 ns instead of 50 µs.
///
/// # Errors
/// Those of prctl(2).
pub fn exact_timers() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?)
}

/// The calling thread goes before all ordinary ones: SCHED_FIFO at its lowest priority.
///
/// # Errors
/// EPERM without CAP_SYS_NICE.
pub fn realtime() -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: `parameter` outlives the call, which only reads it; 0 is the calling thread. rustix has no call for it.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) })?;
    Ok(())
}
