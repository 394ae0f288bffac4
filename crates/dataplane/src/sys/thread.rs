//! How promptly the kernel wakes a thread.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::num::NonZeroU64;

use rustix::thread::{CpuSet, sched_setaffinity};

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
    set(SchedAttr { policy: libc::SCHED_FIFO as u32, priority: 1, ..SchedAttr::default() })
}

/// Makes the calling thread run on this processor only. Processors are counted from 0.
///
/// # Errors
/// EINVAL: there is no such processor, or the process may not use it (cpuset(7)).
pub fn pin(processor: usize) -> io::Result<()> {
    if processor >= CpuSet::MAX_CPU {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}

/// Keeps idle processors awake until the returned file is closed, because a sleeping one takes up
/// to 100 µs to wake. Idle processors then use as much power as busy ones
/// (Documentation/power/pm_qos_interface.rst of the kernel).
///
/// # Errors
/// ENOENT: the kernel has no such file (CONFIG_CPU_IDLE); EACCES without the right to write it.
pub fn stay_awake() -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).open("/dev/cpu_dma_latency")?;
    // The longest wake-up time that is allowed, in µs, as a number of four bytes.
    file.write_all(&0_i32.to_ne_bytes())?;
    Ok(file)
}

/// Makes the kernel run the calling thread sooner, as an ordinary thread: nice -10 gives it a
/// larger share of a busy processor, and a slice of 0.1 ms lets it run earlier.
///
/// # Errors
/// EPERM or EACCES without CAP_SYS_NICE.
pub fn prompt() -> io::Result<()> {
    set(SchedAttr {
        policy: libc::SCHED_OTHER as u32,
        nice: -10,
        // The slice of an ordinary thread, since Linux 6.12; older kernels ignore it.
        runtime: 100_000,
        ..SchedAttr::default()
    })
}

/// `struct sched_attr` in its first form (sched_setattr(2)).
#[repr(C)]
#[derive(Default)]
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

/// Sets policy and parameters of the calling thread by sched_setattr(2). Neither libc nor rustix
/// has a function for it. POSIX's sched_setscheduler() is no help: musl's fails with ENOSYS,
/// because Linux sets a thread where POSIX asks for a process.
fn set(attributes: SchedAttr) -> io::Result<()> {
    let attributes = SchedAttr { size: size_of::<SchedAttr>() as u32, ..attributes };
    // SAFETY: the kernel reads `size` bytes of a struct that outlives the call; 0 is the calling
    // thread, and no flag is set.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's own account of the calling thread: policy, real-time priority and nice value
    /// (proc_pid_stat(5), fields 41, 40 and 19).
    fn account() -> [i32; 3] {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The second field, the name, is in brackets and may have spaces.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let field = |number: usize| fields[number - 3];
        [41, 40, 19].map(|number| field(number).parse().unwrap())
    }

    #[test]
    fn a_thread_stays_on_its_processor() {
        // The processors that this process may use, and one that no machine has.
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let pinned = |processor: usize| {
            std::thread::spawn(move || pin(processor).map(|()| rustix::thread::sched_getcpu())).join().unwrap()
        };
        for processor in (0..CpuSet::MAX_CPU).filter(|at| allowed.is_set(*at)) {
            assert_eq!(pinned(processor).unwrap(), processor);
        }
        assert!(pinned(CpuSet::MAX_CPU).is_err() && pinned(CpuSet::MAX_CPU - 1).is_err());
    }

    #[test]
    fn the_kernel_says_what_was_set() {
        // SCHED_OTHER is 0, SCHED_FIFO 1 (sched(7)).
        for (set, wanted) in [(prompt as fn() -> io::Result<()>, [0, 0, -10]), (realtime, [1, 1, 0])] {
            match std::thread::spawn(move || set().map(|()| account())).join().unwrap() {
                Ok(now) => assert_eq!(now, wanted),
                Err(error) => eprintln!("SKIPPED: {error}: needs CAP_SYS_NICE"),
            }
        }
    }
}
