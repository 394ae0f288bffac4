//! Asks the kernel which process is at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::check;

/// From asm-generic/socket.h, which x86, ARM and RISC-V use.
const SO_PEERGROUPS: libc::c_int = 59;

/// Who was at the other end when the connection was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The process; 0 if it is in another PID namespace.
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group, and its supplementary groups.
    pub groups: Vec<u32>,
}

/// Asks the kernel who is at the other end of a connected Unix socket (SO_PEERCRED and
/// SO_PEERGROUPS, unix(7)). Kernels before 4.13 do not tell the supplementary groups.
///
/// # Errors
/// Those of getsockopt(2).
pub fn credentials(socket: impl AsFd) -> io::Result<Credentials> {
    let fd = socket.as_fd().as_raw_fd();
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&found) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `found`, a plain struct that outlives the
    // call, and the length into `len`. rustix cannot be used: it assumes that the pid is not 0.
    check(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut found).cast(), &raw mut len) })?;
    let mut groups = vec![found.gid];
    groups.extend(supplementary(fd)?);
    Ok(Credentials { pid: found.pid, uid: found.uid, groups })
}

fn supplementary(fd: libc::c_int) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    // The kernel says how much room it needs (ERANGE). A process has 65536 groups at most
    // (NGROUPS_MAX), so the second call suffices.
    for _ in 0..2 {
        let mut len = size_of_val(groups.as_slice()) as libc::socklen_t;
        let at = groups.as_mut_ptr().cast();
        // SAFETY: the kernel writes at most `len` bytes into the vector's elements, which outlive
        // the call, and the length into `len`. Neither std nor rustix has this option.
        match check(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, SO_PEERGROUPS, at, &raw mut len) }) {
            Ok(_) => {
                groups.truncate(len as usize / size_of::<libc::gid_t>());
                return Ok(groups);
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::ERANGE) => groups.resize(len as usize / size_of::<libc::gid_t>(), 0),
                // The kernel does not know the option, or has none to tell.
                Some(libc::ENOPROTOOPT | libc::ENODATA) => return Ok(Vec::new()),
                _ => return Err(error),
            },
        }
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn both_ends_of_a_pair_are_this_process() {
        let (one, two) = UnixStream::pair().unwrap();
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        // The second number of `Uid` and `Gid` is the effective one (proc_pid_status(5)).
        let field = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().map(|word| word.parse().unwrap()).collect()
        };
        let mut expected = vec![field("Gid:")[1]];
        expected.extend(field("Groups:"));
        for end in [&one, &two] {
            let found = credentials(end).unwrap();
            assert_eq!((found.pid as u32, found.uid), (std::process::id(), field("Uid:")[1]));
            let (mut groups, mut expected) = (found.groups, expected.clone());
            groups.sort_unstable();
            expected.sort_unstable();
            assert_eq!(groups, expected);
        }
    }
}
