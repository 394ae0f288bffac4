//! A lock for each direction of an interface: two processes that shape the same packets would shape
//! them twice, or multiply them.
//!
//! The lock is a socket with a name in the abstract namespace of unix sockets, which belongs to the
//! network namespace, as interfaces do. The kernel frees the name when the process ends, however it
//! ends, and knows the process's number.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use crate::error::Error;

/// A lock. Dropping it frees it.
#[derive(Debug)]
pub struct Lock {
    /// The open socket is the lock.
    _socket: UnixListener,
}

impl Lock {
    /// Takes the lock for what comes in at an interface (`ingress`), or for what leaves by it.
    ///
    /// # Errors
    /// [`Error::Held`] if another process has it.
    pub fn take(interface: &str, ingress: bool) -> Result<Lock, Error> {
        let (place, direction) = if ingress { ("in", "comes in at") } else { ("out", "leaves by") };
        let io = |e| Error::of("locking an interface", e);
        let name = SocketAddr::from_abstract_name(format!("altq/{place}/{interface}")).map_err(io)?;
        match UnixListener::bind_addr(&name) {
            Ok(socket) => Ok(Lock { _socket: socket }),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                // The kernel notes who made the other socket listen.
                let holder = UnixStream::connect_addr(&name).ok().and_then(|stream| {
                    rustix::net::sockopt::socket_peercred(&stream).ok().map(|found| found.pid.as_raw_pid())
                });
                Err(Error::Held { name: interface.to_owned(), direction, holder: holder.unwrap_or(0) })
            }
            Err(error) => Err(io(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_holds_it_and_may_have_it_afterwards() {
        let name = format!("t{}", std::process::id());
        let lock = Lock::take(&name, false).unwrap();
        let _other = Lock::take(&name, true).unwrap();
        let refused = Lock::take(&name, false).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        drop(lock);
        Lock::take(&name, false).unwrap();
    }
}
