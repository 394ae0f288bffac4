//! How promptly the kernel wakes a thread.

use std::io;
use std::num::NonZeroU64;

use super::check;

/// Sets the calling thread's timer slack to 1 ns, instead of 50 µs, so that its timers fire on
/// time.
///
/// # Errors
/// Those of prctl(2).
pub fn exact_timers() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?)
}

/// Makes the calling thread run before all ordinary ones: SCHED_FIFO at its lowest priority.
///
/// # Errors
/// EPERM without CAP_SYS_NICE.
pub fn realtime() -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: `parameter` outlives the call, which only reads it; 0 is the calling thread. rustix
    // has no call for it.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) })?;
    Ok(())
}

/// Makes the kernel run the calling thread sooner, as an ordinary thread: nice -10 gives it a
/// larger share of a busy processor, and a slice of 0.1 ms lets it run earlier.
///
/// # Errors
/// EPERM or EACCES without CAP_SYS_NICE.
pub fn prompt() -> io::Result<()> {
    /// `struct sched_attr` in its first form (sched_setattr(2)).
    #[repr(C)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let attributes = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice: -10,
        priority: 0,
        // The slice of an ordinary thread, since Linux 6.12; older kernels ignore it.
        runtime: 100_000,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `size` bytes of a struct that outlives the call; 0 is the calling
    // thread. Neither libc nor rustix has a function for it.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
