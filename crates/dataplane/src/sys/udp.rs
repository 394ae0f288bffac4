//! UDP sockets for heavy traffic: one call sends many datagrams, and received datagrams are only
//! counted.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::check;

/// From linux/udp.h; libc has it for some systems only.
const UDP_SEGMENT: libc::c_int = 103;

/// The most datagrams in one call on a segmenting socket: UDP_MAX_SEGMENTS of kernels before 6.7.
/// Later kernels allow 128.
pub const SEGMENTS: usize = 64;

/// Makes the kernel cut everything that is sent into datagrams of `bytes` bytes (UDP_SEGMENT,
/// udp(7)); with 0 each call sends one datagram.
///
/// # Errors
/// That of the kernel; kernels before 4.18 lack the option.
pub fn set_segment(socket: impl AsFd, bytes: u16) -> io::Result<()> {
    let value = libc::c_int::from(bytes);
    set(socket, libc::SOL_UDP, UDP_SEGMENT, &value)
}

/// Makes the kernel drop everything that arrives at the socket; [`dropped`] returns how much.
///
/// # Errors
/// That of the kernel.
pub fn set_drop_all(socket: impl AsFd) -> io::Result<()> {
    // BPF_RET | BPF_K with 0: nothing is kept of any packet.
    let mut code = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: code.as_mut_ptr() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Number of packets that the kernel has dropped at the socket, modulo 2^32.
///
/// # Errors
/// That of the kernel; kernels before 4.12 do not count.
pub fn dropped(socket: impl AsFd) -> io::Result<u32> {
    /// From linux/sock_diag.h.
    const SK_MEMINFO_DROPS: usize = 8;
    let mut values = [0u32; SK_MEMINFO_DROPS + 1];
    let mut len = size_of_val(&values) as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes into `values`, which outlives the call.
    check(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, values.as_mut_ptr().cast(), &mut len) })?;
    if (len as usize) < size_of_val(&values) {
        return Err(io::Error::from(io::ErrorKind::Unsupported));
    }
    Ok(values[SK_MEMINFO_DROPS])
}

fn set<T>(socket: impl AsFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads `size_of::<T>()` bytes of `value` (and, of a filter, the code that
    // it points to), which outlive the call.
    check(unsafe {
        libc::setsockopt(fd, level, option, std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_call_is_several_datagrams_and_what_is_dropped_is_counted() {
        let (to, from) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        from.connect(to.local_addr().unwrap()).unwrap();
        to.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        set_segment(&from, 3).unwrap();
        from.send(b"abcdefgh").unwrap();
        let mut buffer = [0; 16];
        for part in [&b"abc"[..], b"def", b"gh"] {
            let bytes = to.recv(&mut buffer).unwrap();
            assert_eq!(buffer.get(..bytes), Some(part));
        }
        let before = dropped(&to).unwrap();
        set_drop_all(&to).unwrap();
        from.send(b"abcdefgh").unwrap();
        set_segment(&from, 0).unwrap();
        from.send(b"abcdefgh").unwrap();
        // On the loopback interface a datagram has arrived when `send` returns.
        assert_eq!(dropped(&to).unwrap() - before, 4);
    }
}
