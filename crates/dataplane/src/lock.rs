//! A lock for each direction of an interface. Without it two processes might shape the same
//! packets, which would then be shaped twice, or multiplied.
//!
//! The lock is a socket with a name in the abstract namespace of unix sockets, which belongs to the
//! network namespace, as interfaces do. The kernel frees the name when the process ends, however it
//! ends, and tells the process's id.
//!
//! A program that the holder starts has a copy of the socket from its fork to its exec, and keeps
//! the name in use that long. Dropping a lock therefore shuts the socket down first. If a name is
//! in use and nobody listens there, it will soon be free, and is waited for. The name of a process
//! that was killed and has not ended yet is waited for as well.

use std::io::{Error as IoError, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::error::Error;

/// The longest wait for a name that its holder has given up.
const GIVEN_UP: Duration = Duration::from_secs(1);

/// A lock. Dropping it frees it.
#[derive(Debug)]
pub struct Lock {
    /// The open socket is the lock.
    socket: UnixListener,
}

impl Lock {
    /// Takes the lock for what comes in at an interface (`ingress`), or for what leaves by it.
    ///
    /// # Errors
    /// [`Error::Held`] if another process has it.
    pub fn take(interface: &str, ingress: bool) -> Result<Lock, Error> {
        let (place, direction) = if ingress { ("in", "comes in at") } else { ("out", "leaves by") };
        Lock::named(place, interface, direction)
    }

    /// Takes the lock for the program at an interface that forwards while no loop does
    /// ([`Bypass`](crate::bridge::Bypass)). A loop without such a program takes it as well.
    ///
    /// # Errors
    /// [`Error::Held`] if another process has it.
    pub fn take_hook(interface: &str) -> Result<Lock, Error> {
        Lock::named("hook", interface, "comes in at")
    }

    fn named(place: &str, interface: &str, direction: &'static str) -> Result<Lock, Error> {
        let io = |e| Error::of("locking an interface", e);
        let name = format!("altq/{place}/{interface}");
        let address = SocketAddr::from_abstract_name(&name).map_err(io)?;
        let started = Instant::now();
        loop {
            match UnixListener::bind_addr(&address) {
                Ok(socket) => return Ok(Lock { socket }),
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(io(error)),
            }
            // The kernel tells which process made the other socket listen.
            let holder = holder(&name);
            match holder {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused && started.elapsed() < GIVEN_UP => {
                    sleep(Duration::from_millis(1));
                }
                Ok(holder) if is_ending(holder) && started.elapsed() < GIVEN_UP => sleep(Duration::from_millis(1)),
                holder => {
                    return Err(Error::Held { name: interface.to_owned(), direction, holder: holder.unwrap_or(0) });
                }
            }
        }
    }
}

/// The interfaces of this network namespace whose locks are held, each with true for what comes in
/// there. Empty if the kernel does not show them.
pub fn held() -> Vec<(String, bool)> {
    // The names of abstract sockets begin with @ there (net/unix/af_unix.c).
    // Others may have given names that are no text.
    let all = std::fs::read("/proc/thread-self/net/unix").unwrap_or_default();
    let all = String::from_utf8_lossy(&all);
    let name = |line: &str| {
        let (place, interface) = line.split_once(" @altq/")?.1.split_once('/')?;
        matches!(place, "in" | "out").then(|| (interface.to_owned(), place == "in"))
    };
    let mut found: Vec<(String, bool)> = all.lines().filter_map(name).collect();
    // A lock that somebody has asked for has a socket more.
    found.sort();
    found.dedup();
    found
}

/// The process that listens at an abstract name. It takes no connections, so each one that asked
/// stays in its queue; when that is full, connecting would wait for ever, and fails instead.
fn holder(name: &str) -> Result<i32, IoError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket_peercred(&socket)?.pid.as_raw_pid())
}

/// True if a process is ending, for example because it was killed. Its sockets are then closed
/// soon.
fn is_ending(process: i32) -> bool {
    // proc_pid_stat(5): the state follows the name in brackets, and the flags are six fields later.
    // The flag 4 is PF_EXITING (linux/sched.h).
    match std::fs::read_to_string(format!("/proc/{process}/stat")) {
        Ok(stat) => {
            let mut fields = stat.rsplit(')').next().unwrap_or("").split_whitespace();
            let state = fields.next().unwrap_or("");
            let flags = fields.nth(5).and_then(|flags| flags.parse::<u32>().ok()).unwrap_or(0);
            matches!(state, "Z" | "X") || flags & 4 != 0
        }
        // It has ended. An id of 0 stands for a process in another PID namespace.
        Err(error) => process > 0 && error.kind() == ErrorKind::NotFound,
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Without this a copy of the socket would go on listening. It cannot fail for a socket that
        // listens, and a failure would do no harm.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_holds_it_and_may_have_it_afterwards() {
        let name = format!("t{}", std::process::id());
        let lock = Lock::take(&name, false).unwrap();
        assert!(held().contains(&(name.clone(), false)) && !held().contains(&(name.clone(), true)));
        let _other = Lock::take(&name, true).unwrap();
        assert!(held().contains(&(name.clone(), true)));
        let refused = Lock::take(&name, false).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        drop(lock);
        Lock::take(&name, false).unwrap();
    }

    /// Each refused start leaves a connection that nobody takes. When there is no room for more, a
    /// start is refused all the same.
    #[test]
    fn a_start_that_is_refused_never_waits() {
        let name = format!("f{}", std::process::id());
        let lock = Lock::take(&name, false).unwrap();
        // The queue holds as many as it is told; listen(2) may be called again.
        rustix::net::listen(&lock.socket, 1).unwrap();
        for _ in 0..4 {
            assert!(matches!(Lock::take(&name, false), Err(Error::Held { .. })));
        }
    }

    /// A process that has ended, but was not waited for, counts as ending. The test's own process
    /// does not.
    #[test]
    fn who_is_ending_is_seen() {
        assert!(!is_ending(std::process::id() as i32));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let begun = Instant::now();
        while !is_ending(child.id() as i32) {
            assert!(begun.elapsed() < Duration::from_secs(10));
            sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_copy_of_a_lock_that_was_dropped_is_waited_for() {
        let name = format!("c{}", std::process::id());
        let lock = Lock::take(&name, false).unwrap();
        let copy = lock.socket.try_clone().unwrap();
        drop(lock);
        let closes = std::thread::spawn(move || {
            sleep(Duration::from_millis(50));
            drop(copy);
        });
        Lock::take(&name, false).unwrap();
        closes.join().unwrap();
    }
}
