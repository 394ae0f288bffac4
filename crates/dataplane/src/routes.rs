//! The kernel's routes, the host's addresses, and notices that they have changed.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use altq_kernel::message::{Message, get_addresses, get_route};
pub use altq_kernel::message::{Own, Way};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socket_with};

use crate::kernel::wire::{Ask, Refused, Socket};
use crate::sys::netlink;

/// Asks the kernel where packets go, in the network namespace of the thread that opened it.
pub struct Kernel(Socket);

impl Kernel {
    /// Opens a socket of rtnetlink.
    ///
    /// # Errors
    /// That of the system call.
    pub fn open() -> io::Result<Kernel> {
        Socket::open().map(Kernel)
    }

    /// Where packets to an address go that this host sends or forwards. Where the kernel spreads
    /// them over several next hops, that is one of these.
    pub fn way(&mut self, to: IpAddr) -> Way {
        // The kernel answers an error where there is no route, or one that refuses.
        let answer = self.0.ask(&get_route(to)).unwrap_or_default();
        let found = answer.into_iter().find_map(|message| match message {
            Message::Route(way) => Some(way),
            _ => None,
        });
        found.unwrap_or(Way::Nowhere)
    }

    /// The addresses of all interfaces, as the kernel lists them.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn addresses(&mut self) -> io::Result<Vec<Own>> {
        let answer = self.0.ask(&get_addresses()).map_err(|Refused { error, .. }| error)?;
        let own = answer.into_iter().filter_map(|message| match message {
            Message::Address(own) => Some(own),
            _ => None,
        });
        Ok(own.collect())
    }
}

/// The groups that tell of interfaces, addresses and routes (RTMGRP_* of linux/rtnetlink.h).
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

/// Tells that interfaces, addresses or routes have changed.
#[derive(Debug)]
pub struct Notices(OwnedFd);

impl Notices {
    /// Opens a socket that is told so.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn open() -> io::Result<Notices> {
        // The protocol NETLINK_ROUTE is 0.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        netlink::subscribe(&socket, GROUPS)?;
        Ok(Notices(socket))
    }

    /// Whether something has changed since the last call. What it was is not told. Does not wait.
    pub fn seen(&self) -> bool {
        let mut buffer = [0_u8; 4096];
        let mut seen = false;
        // A host with a flood of changes is not followed for ever.
        for _ in 0..4096 {
            match recv(&self.0, buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok(_) => seen = true,
                // So many that some are lost.
                Err(Errno::NOBUFS) => seen = true,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        seen
    }
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_address_is_local() {
        let mut kernel = Kernel::open().unwrap();
        let own = kernel.addresses().unwrap();
        // A namespace of a build may have no interface up.
        let Some(there) = own.iter().find(|own| own.usable && own.address.is_ipv4()) else {
            return eprintln!("SKIPPED: this host has no address");
        };
        assert_eq!(kernel.way(there.address), Way::Local);
        assert!(!Notices::open().unwrap().seen());
    }
}
