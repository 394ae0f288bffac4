//! Options of TCP sockets that rustix lacks: TCP_INFO, the kernel's figures about a connection, and
//! TCP_MAXSEG (tcp(7)).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::check;

/// Figures of a connection's sender, from `struct tcp_info` of linux/tcp.h. Fields that an old
/// kernel lacks are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round trip, in µs.
    pub rtt_us: u32,
    /// Its mean deviation, in µs.
    pub rttvar_us: u32,
    /// The kernel's recent minimum of the round trip, in µs.
    pub min_rtt_us: u32,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Bytes of payload in a full segment.
    pub mss: u32,
    /// Segments retransmitted since the connection was made.
    pub retransmits: u32,
    /// The most recent delivery rate, in bytes/s.
    pub delivery_rate: u64,
    /// Payload retransmitted, in bytes.
    pub retransmitted_bytes: u64,
    /// Payload acknowledged, in bytes.
    pub acked_bytes: u64,
    /// Time in which there was data to send, in µs.
    pub busy_us: u64,
    /// Part of it in which the receiver's window limited the sender, in µs.
    pub window_limited_us: u64,
    /// Part of it in which the send buffer limited the sender, in µs.
    pub buffer_limited_us: u64,
}

/// Limits a socket's segments (TCP_MAXSEG) before its connection is made: to `bytes` of payload and
/// TCP options together, in both directions.
///
/// # Errors
/// EINVAL unless `bytes` is 88 to 32,767, and those of setsockopt(2).
pub fn set_max_segment(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let len = size_of_val(&value) as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads `len` bytes, all of `value`, which outlives the call.
    check(unsafe {
        libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, std::ptr::from_ref(&value).cast(), len)
    })?;
    Ok(())
}

/// Reads TCP_INFO of a socket.
///
/// # Errors
/// Those of getsockopt(2), if the socket is not a TCP socket.
pub fn tcp_info(socket: impl AsFd) -> io::Result<TcpInfo> {
    let mut bytes = [0u8; 256];
    let mut len = bytes.len() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes into `bytes`, which outlives the call. Neither
    // std nor rustix reads TCP_INFO.
    check(unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, bytes.as_mut_ptr().cast(), &mut len) })?;
    // The offsets of linux/tcp.h, where fields are only ever appended; bytes that the kernel did
    // not write are 0.
    let u32_at = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
    let u64_at = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
    Ok(TcpInfo {
        mss: u32_at(16),
        rtt_us: u32_at(68),
        rttvar_us: u32_at(72),
        cwnd: u32_at(80),
        retransmits: u32_at(100),
        acked_bytes: u64_at(120),
        min_rtt_us: u32_at(148),
        delivery_rate: u64_at(160),
        busy_us: u64_at(168),
        window_limited_us: u64_at(176),
        buffer_limited_us: u64_at(184),
        retransmitted_bytes: u64_at(208),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_over_loopback() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[1; 5000]).unwrap();
        far.read_exact(&mut [0; 5000]).unwrap();
        // The answer carries the acknowledgement, which otherwise may come later.
        far.write_all(&[2]).unwrap();
        near.read_exact(&mut [0]).unwrap();
        let info = tcp_info(&near).unwrap();
        // The bytes acknowledged count the SYN in some kernels.
        assert!((5000..=5001).contains(&info.acked_bytes), "{info:?}");
        assert!(info.rtt_us > 0 && info.rtt_us < 1_000_000 && info.cwnd > 0, "{info:?}");
        assert!(info.mss > 500 && info.mss <= 65_535 && info.retransmits == 0, "{info:?}");
        assert!(tcp_info(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
    }
}
