//! Calls to the kernel that neither the standard library nor rustix has. All `unsafe` code of this
//! crate is here, except for one call in `netns`.

pub mod bpf;
pub mod btf;
pub mod interface;
pub mod mapping;
pub mod memory;
pub mod netlink;
pub mod number;
pub mod packet;
pub mod peer;
pub mod raw;
pub mod ring;
pub mod signal;
pub mod table;
pub mod tcp_info;
pub mod thread;
pub mod udp;
pub mod wait;
pub mod xdp;
pub mod xsk;

use std::io;

/// The error of a call that returned `result`, or the result.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
