//! A netlink socket of netfilter, which receives in batches into buffers that are allocated once;
//! and what sockets of rtnetlink need.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::check;
use crate::edge::BATCH;

/// Receive buffer in bytes. With 64 MB nothing was lost of a burst of which the default lost a
/// third.
const RECEIVE_BUFFER: libc::c_int = 64 << 20;
/// Bytes of a message that are received. A packet's message has its first bytes, less than 300
/// bytes about it, and up to 700 about its connection, if they are asked for.
const MESSAGE: usize = 2048;

/// A socket.
pub struct Netlink {
    socket: OwnedFd,
    bytes: Vec<u8>,
    parts: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers in `parts` and `headers` are set before each call that uses them, by the
// thread that has the value mutably borrowed, and nobody follows them between calls. So the value
// may move to another thread.
unsafe impl Send for Netlink {}

impl Netlink {
    /// Opens a socket.
    ///
    /// # Errors
    /// EPROTONOSUPPORT on a kernel without netfilter's netlink.
    pub fn open() -> io::Result<Netlink> {
        #[cfg(test)]
        fault::call()?;
        // SAFETY: the call takes numbers only; the descriptor is new and nobody else's. rustix
        // could make the socket too, but its bind would need as much `unsafe`.
        let socket = unsafe {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            OwnedFd::from_raw_fd(check(libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_NETFILTER))?)
        };
        let size = |option| set(&socket, libc::SOL_SOCKET, option, RECEIVE_BUFFER);
        // Optional, as is the next: the buffer then has its default size.
        let _ = size(libc::SO_RCVBUFFORCE).or_else(|_| size(libc::SO_RCVBUF));
        // Without this the kernel, after a loss, drops everything of every class until the buffer
        // is empty (netlink_overrun in net/netlink/af_netlink.c).
        let _ = set(&socket, libc::SOL_NETLINK, libc::NETLINK_NO_ENOBUFS, 1);
        subscribe(&socket, 0)?;
        // SAFETY: iovec and mmsghdr are plain old data, for which all zeroes are a value: null
        // pointers of length 0.
        let (part, header) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let (parts, headers) = (vec![part; BATCH], vec![header; BATCH]);
        let mut bytes = vec![0; BATCH * MESSAGE];
        // All of it is there from the start, not only when a whole batch has come.
        std::hint::black_box(&mut bytes).fill(0);
        Ok(Netlink { socket, bytes, parts, headers })
    }

    /// Its number, by which the kernel lists who listens at a queue.
    ///
    /// # Errors
    /// That of getsockname(2).
    pub fn number(&self) -> io::Result<u32> {
        // SAFETY: sockaddr_nl is plain old data, for which all zeroes are a value.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        let mut len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes into `address`, which outlives the call,
        // and the length into `len`. rustix has no addresses of netlink here.
        check(unsafe { libc::getsockname(self.socket.as_raw_fd(), (&raw mut address).cast(), &raw mut len) })?;
        Ok(address.nl_pid)
    }

    /// Receives datagrams that have arrived, at most [`BATCH`] and at most `most`, without waiting.
    /// Returns their number; [`datagram`](Netlink::datagram) has their bytes.
    ///
    /// # Errors
    /// EAGAIN: nothing has come. ENOBUFS: the receive buffer was full, and something was lost; or
    /// the kernel had no memory for an answer.
    pub fn receive(&mut self, most: usize) -> io::Result<usize> {
        #[cfg(test)]
        let cut = fault::call()?;
        let count = most.min(BATCH);
        let slots = self.bytes.chunks_exact_mut(MESSAGE).zip(&mut self.parts).zip(&mut self.headers);
        for ((bytes, part), header) in slots.take(count) {
            *part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1 as _;
            header.msg_hdr.msg_flags = 0;
        }
        let messages = self.headers.as_mut_ptr();
        // SAFETY: the first `count` messages point each to a part and to a slot of its own, which
        // live beyond this call and which nothing else uses meanwhile; `count` is at most the
        // number of messages. Neither std nor rustix has recvmmsg.
        let got = unsafe {
            libc::recvmmsg(self.socket.as_raw_fd(), messages, count as _, libc::MSG_DONTWAIT as _, std::ptr::null_mut())
        };
        let got = check(got)? as usize;
        #[cfg(test)]
        if cut {
            self.headers.iter_mut().take(got).for_each(|header| header.msg_len /= 2);
        }
        Ok(got)
    }

    /// The bytes of a datagram of the last [`receive`](Netlink::receive); none if it was longer
    /// than a slot.
    pub fn datagram(&self, at: usize) -> &[u8] {
        let Some(header) = self.headers.get(at) else { return &[] };
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return &[];
        }
        let start = at * MESSAGE;
        self.bytes.get(start..start + (header.msg_len as usize).min(MESSAGE)).unwrap_or_default()
    }

    /// Sends requests to the kernel, which handles all of them before this returns.
    ///
    /// # Errors
    /// ENOBUFS, ENOMEM: memory is short and nothing was done.
    pub fn send(&self, requests: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        fault::call()?;
        let (bytes, len) = (requests.as_ptr().cast(), requests.len());
        // SAFETY: the kernel reads `len` bytes, all of the slice. An unconnected netlink socket
        // sends to the kernel.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), bytes, len, 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Asks the kernel to say in words why it refuses a request.
///
/// # Errors
/// ENOPROTOOPT before Linux 4.12.
pub fn explain(socket: &OwnedFd) -> io::Result<()> {
    set(socket, libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, 1)
}

/// Gives a socket an address, which the kernel chooses, and notices of some groups: a bit for each
/// (RTMGRP_* of linux/rtnetlink.h).
///
/// # Errors
/// That of bind(2).
pub fn subscribe(socket: &OwnedFd, groups: u32) -> io::Result<()> {
    // SAFETY: sockaddr_nl is plain old data, for which all zeroes are a value: the kernel gives
    // the socket a port.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = groups;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is a whole sockaddr_nl that outlives the call, with its own size.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(())
}

/// Sets a socket option to a number.
fn set(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let (len, at) = (size_of_val(&value) as libc::socklen_t, (&raw const value).cast());
    // SAFETY: the kernel reads `len` bytes, all of `value`, which outlives the call. rustix has no
    // options of netlink.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, at, len) })?;
    Ok(())
}

/// Makes calls of the thread that runs a test fail.
#[cfg(test)]
pub mod fault {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        /// Counts down with each call. The call that finds it at 0 fails.
        pub static UNTIL: Cell<i64> = const { Cell::new(-1) };
        /// How the call fails: with this error number. At 0 it does not fail, but what it receives
        /// is cut to half.
        pub static HOW: Cell<i32> = const { Cell::new(0) };
    }

    /// Counts a call. True if what the call receives is to be cut.
    ///
    /// # Errors
    /// The error with which it is to fail.
    pub fn call() -> io::Result<bool> {
        if UNTIL.replace(UNTIL.get() - 1) != 0 {
            return Ok(false);
        }
        match HOW.get() {
            0 => Ok(true),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}
