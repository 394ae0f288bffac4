//! Opens and tunes the generators' sockets.
//!
//! A socket belongs to the network namespace of the thread that opens it. Every TCP socket has
//! SO_LINGER of 0: when it is closed, by the program or by the kernel after SIGKILL, it resets the
//! connection and drops unsent data, which would otherwise keep the namespace alive for minutes.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::error::{Doing, Error};
use altq_dataplane::set_max_segment;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, listen, socket_with, sockopt};

/// How a TCP socket is tuned; `None` leaves the kernel's own choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Congestion control: `cubic`, `reno`, `bbr` or another of
    /// net.ipv4.tcp_available_congestion_control.
    pub congestion: Option<String>,
    /// SO_SNDBUF and SO_RCVBUF in bytes. The kernel doubles the values and no longer tunes them.
    pub buffers: Option<u32>,
    /// Payload of a full segment in bytes, 76 to 32,755, beside the 12 bytes of timestamps (RFC
    /// 7323 appendix A). Without it what the path's MTU leaves.
    pub mss: Option<u32>,
    /// TCP_NODELAY: small segments are not delayed.
    pub no_delay: bool,
    /// DSCP of the packets sent, 0 to 63.
    pub dscp: u8,
}

/// Blocking calls return after this time at the latest, so that every thread notices the end of the
/// run.
pub const PATIENCE: Duration = Duration::from_millis(50);

/// Bytes that the kernel's segments spend on timestamps (RFC 7323 appendix A). TCP_MAXSEG includes
/// them.
const TIMESTAMPS: u32 = 12;

/// Time that opening a connection may take: enough for the SYN and two retransmissions, after one
/// and three seconds.
pub const CONNECT: Duration = Duration::from_secs(4);

/// Raises this process's limit of descriptors to the allowed maximum; every connection needs one.
pub fn more_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If this fails, connections that lack a descriptor report that.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// True if a socket has something to read, its end included, or gets it within `wait`.
pub fn readable(socket: &impl AsFd, wait: Duration) -> bool {
    let time =
        Timespec { tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(wait.subsec_nanos()) };
    let mut watched = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    matches!(poll(&mut watched, Some(&time)), Ok(1..))
}

/// Opens a TCP connection; it takes [`CONNECT`] at most.
pub fn connect_tcp(from: SocketAddr, to: SocketAddr, tuning: &Tuning) -> Result<TcpStream, Error> {
    let fd = tcp(to.ip(), tuning)?;
    bind(&fd, &from).doing(|| format!("cannot bind to {from}"))?;
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(CONNECT)).doing(|| "a socket's time limit")?;
    connect(&fd, &to).doing(|| format!("no connection from {from} to {to}"))?;
    patient(fd)
}

/// Opens a TCP connection. Waits as long as the kernel retries and `wanted` returns true, because a
/// queue may lose many SYNs.
pub fn connect_tcp_while(
    from: SocketAddr,
    to: SocketAddr,
    tuning: &Tuning,
    wanted: impl Fn() -> bool,
) -> Result<TcpStream, Error> {
    let fd = tcp(to.ip(), tuning)?;
    bind(&fd, &from).doing(|| format!("cannot bind to {from}"))?;
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(PATIENCE)).doing(|| "a socket's time limit")?;
    loop {
        match connect(&fd, &to) {
            // Called again, connect goes on waiting for the same handshake.
            Err(Errno::INPROGRESS | Errno::ALREADY | Errno::INTR) if wanted() => {}
            Err(error) => return Err(error).doing(|| format!("no connection from {from} to {to}")),
            Ok(()) => return patient(fd),
        }
    }
}

/// A TCP socket that listens on an address.
pub fn listen_tcp(at: SocketAddr, tuning: &Tuning) -> Result<TcpListener, Error> {
    let fd = tcp(at.ip(), tuning)?;
    sockopt::set_socket_reuseaddr(&fd, true).doing(|| "a listening socket")?;
    if at.is_ipv6() {
        // IPv4 has sockets of its own.
        sockopt::set_ipv6_v6only(&fd, true).doing(|| "a listening socket")?;
    }
    bind(&fd, &at).doing(|| format!("cannot listen on {at}"))?;
    listen(&fd, 1024).doing(|| format!("cannot listen on {at}"))?;
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(PATIENCE)).doing(|| "a socket's time limit")?;
    Ok(fd.into())
}

/// Tunes an accepted connection like one that was opened here.
pub fn accepted(stream: TcpStream, tuning: &Tuning) -> Result<TcpStream, Error> {
    let address = stream.local_addr().doing(|| "an accepted connection")?.ip();
    let fd = OwnedFd::from(stream);
    tune(&fd, tuning)?;
    mark(&fd, address, tuning.dscp)?;
    patient(fd)
}

/// A UDP socket at an address (port 0: any free port), with a large receive buffer.
pub fn udp(at: SocketAddr, dscp: u8) -> Result<UdpSocket, Error> {
    let fd = udp_unbound(at.ip(), dscp)?;
    bind(&fd, &at).doing(|| format!("cannot bind to {at}"))?;
    patient_udp(fd)
}

/// A UDP socket at an address that other sockets of this process have too. It receives only
/// datagrams from `peer`.
pub fn udp_of_peer(at: SocketAddr, peer: SocketAddr, dscp: u8) -> Result<UdpSocket, Error> {
    let fd = udp_unbound(at.ip(), dscp)?;
    sockopt::set_socket_reuseaddr(&fd, true).doing(|| "a socket")?;
    bind(&fd, &at).doing(|| format!("cannot bind to {at}"))?;
    connect(&fd, &peer).doing(|| format!("no way from {at} to {peer}"))?;
    patient_udp(fd)
}

/// A UDP socket whose address sockets of [`udp_of_peer`] may share.
pub fn udp_shared(at: SocketAddr) -> Result<UdpSocket, Error> {
    let fd = udp_unbound(at.ip(), 0)?;
    sockopt::set_socket_reuseaddr(&fd, true).doing(|| "a socket")?;
    bind(&fd, &at).doing(|| format!("cannot listen on {at} (UDP)"))?;
    patient_udp(fd)
}

fn udp_unbound(address: IpAddr, dscp: u8) -> Result<OwnedFd, Error> {
    let fd = socket_with(family(address), SocketType::DGRAM, SocketFlags::CLOEXEC, Some(ipproto::UDP))
        .doing(|| "cannot open a UDP socket")?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true).doing(|| "a socket")?;
    }
    mark(&fd, address, dscp)?;
    // 4 MB: the kernel memory for the small packets that arrive in 40 ms at 1 Gbit/s. Root may
    // exceed net.core.rmem_max; others get the largest value allowed.
    if sockopt::set_socket_recv_buffer_size_force(&fd, 4 << 20).is_err() {
        sockopt::set_socket_recv_buffer_size(&fd, 4 << 20).doing(|| "a socket's buffer")?;
    }
    Ok(fd)
}

fn patient_udp(fd: OwnedFd) -> Result<UdpSocket, Error> {
    let socket = UdpSocket::from(fd);
    socket.set_read_timeout(Some(PATIENCE)).doing(|| "a socket's time limit")?;
    socket.set_write_timeout(Some(PATIENCE)).doing(|| "a socket's time limit")?;
    Ok(socket)
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn tcp(address: IpAddr, tuning: &Tuning) -> Result<OwnedFd, Error> {
    let fd = socket_with(family(address), SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))
        .doing(|| "cannot open a TCP socket")?;
    tune(&fd, tuning)?;
    mark(&fd, address, tuning.dscp)?;
    Ok(fd)
}

fn tune(fd: &impl AsFd, tuning: &Tuning) -> Result<(), Error> {
    sockopt::set_socket_linger(fd, Some(Duration::ZERO)).doing(|| "a TCP socket")?;
    if let Some(name) = &tuning.congestion {
        sockopt::set_tcp_congestion(fd, name).map_err(|error| no_congestion_control(name, error))?;
    }
    if let Some(bytes) = tuning.buffers {
        buffer(fd, bytes as usize)?;
    }
    if let Some(payload) = tuning.mss {
        set_max_segment(fd, payload.saturating_add(TIMESTAMPS)).map_err(|error| {
            Error::Unsupported(format!("this kernel makes no segments of {payload} bytes ({error})"))
        })?;
    }
    if tuning.no_delay {
        sockopt::set_tcp_nodelay(fd, true).doing(|| "a TCP socket")?;
    }
    Ok(())
}

fn no_congestion_control(name: &str, error: rustix::io::Errno) -> Error {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{file}")).unwrap_or_default();
    if error == rustix::io::Errno::PERM {
        let allowed = read("tcp_allowed_congestion_control");
        return Error::NotPermitted(format!(
            "congestion control `{name}` is for root only on this host; others may use: {}",
            allowed.trim()
        ));
    }
    let there = read("tcp_available_congestion_control");
    Error::Unsupported(format!("no congestion control `{name}` in this kernel ({error}); it has: {}", there.trim()))
}

/// Sets both buffers, and fails if the kernel grants less. Root may exceed net.core.wmem_max and
/// rmem_max.
fn buffer(fd: &impl AsFd, bytes: usize) -> Result<(), Error> {
    if sockopt::set_socket_send_buffer_size_force(fd, bytes).is_ok() {
        return sockopt::set_socket_recv_buffer_size_force(fd, bytes).doing(|| "a socket's buffers");
    }
    sockopt::set_socket_send_buffer_size(fd, bytes).doing(|| "a socket's buffers")?;
    sockopt::set_socket_recv_buffer_size(fd, bytes).doing(|| "a socket's buffers")?;
    // The kernel doubles what it grants (socket(7)).
    let got = |size: rustix::io::Result<usize>| size.doing(|| "a socket's buffers").map(|size| size / 2);
    for (setting, got) in [
        ("wmem_max", got(sockopt::socket_send_buffer_size(fd))?),
        ("rmem_max", got(sockopt::socket_recv_buffer_size(fd))?),
    ] {
        if got < bytes {
            return Err(Error::NotPermitted(format!(
                "no socket buffers of {bytes} bytes without root: net.core.{setting} of this host allows {got}"
            )));
        }
    }
    Ok(())
}

/// Sets the DSCP of the packets that a socket sends.
fn mark(fd: &impl AsFd, address: IpAddr, dscp: u8) -> Result<(), Error> {
    if dscp == 0 {
        return Ok(());
    }
    // The DSCP is the upper six bits of the octet (RFC 2474 3); the lower two are ECN.
    match address.to_canonical() {
        IpAddr::V4(_) => sockopt::set_ip_tos(fd, dscp << 2),
        IpAddr::V6(_) => sockopt::set_ipv6_tclass(fd, u32::from(dscp) << 2),
    }
    .doing(|| format!("cannot mark packets with DSCP {dscp}"))
}

fn patient(fd: OwnedFd) -> Result<TcpStream, Error> {
    let stream = TcpStream::from(fd);
    stream.set_read_timeout(Some(PATIENCE)).doing(|| "a socket's time limit")?;
    stream.set_write_timeout(Some(PATIENCE)).doing(|| "a socket's time limit")?;
    Ok(stream)
}
