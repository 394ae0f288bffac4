//! Sockets of the generators: bound, tuned, and closed with a reset.
//!
//! A socket belongs to the namespace of the thread that opens it. Every TCP socket lingers for zero seconds: when it is
//! closed, by us or by the kernel after SIGKILL, what is unsent is thrown away. An orphan with unsent data would hold its
//! namespace for minutes.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use super::topology::Unsupported;
use anyhow::Context;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, listen, socket_with, sockopt};

/// How a TCP socket is tuned; `None` leaves the kernel's own choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Congestion control: `cubic`, `reno`, `bbr`, … as in net.ipv4.tcp_available_congestion_control.
    pub congestion: Option<String>,
    /// SO_SNDBUF and SO_RCVBUF in bytes. The kernel doubles them for its own needs, and no longer tunes them by itself.
    pub buffers: Option<u32>,
    /// No delay for small segments (TCP_NODELAY).
    pub no_delay: bool,
    /// DSCP of the packets sent, 0 to 63.
    pub dscp: u8,
}

/// Blocking calls return after this long, so that every thread sees in time that the run is over.
pub const PATIENCE: Duration = Duration::from_millis(50);

/// How long a connection may take to be made: the first SYN and its first two repetitions, a second and two later.
const CONNECT: Duration = Duration::from_secs(4);

/// Opens a connection.
pub fn connect_tcp(from: SocketAddr, to: SocketAddr, tuning: &Tuning) -> anyhow::Result<TcpStream> {
    let fd = tcp(to.ip(), tuning)?;
    bind(&fd, &from).with_context(|| format!("cannot bind to {from}"))?;
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(CONNECT))?;
    connect(&fd, &to).with_context(|| format!("no connection from {from} to {to}"))?;
    patient(fd)
}

/// Listens on an address.
pub fn listen_tcp(at: SocketAddr, tuning: &Tuning) -> anyhow::Result<TcpListener> {
    let fd = tcp(at.ip(), tuning)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    bind(&fd, &at).with_context(|| format!("cannot listen on {at}"))?;
    listen(&fd, 1024).with_context(|| format!("cannot listen on {at}"))?;
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(PATIENCE))?;
    Ok(fd.into())
}

/// Makes an accepted connection like one that was opened here.
pub fn accepted(stream: TcpStream, tuning: &Tuning) -> anyhow::Result<TcpStream> {
    let address = stream.local_addr()?.ip();
    let fd = OwnedFd::from(stream);
    tune(&fd, tuning)?;
    mark(&fd, address, tuning.dscp)?;
    patient(fd)
}

/// A UDP socket at an address (port 0: any), with a receive buffer that a burst does not overflow.
pub fn udp(at: SocketAddr, dscp: u8) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind(at).with_context(|| format!("cannot bind to {at}"))?;
    mark(&socket, at.ip(), dscp)?;
    // 4 MB: 40 ms at 1 Gbit/s of small packets' memory. Root may go over net.core.rmem_max; without it the largest allowed.
    if sockopt::set_socket_recv_buffer_size_force(&socket, 4 << 20).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, 4 << 20)?;
    }
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn tcp(address: IpAddr, tuning: &Tuning) -> anyhow::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd =
        socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP)).context("cannot open a TCP socket")?;
    tune(&fd, tuning)?;
    mark(&fd, address, tuning.dscp)?;
    Ok(fd)
}

fn tune(fd: &impl AsFd, tuning: &Tuning) -> anyhow::Result<()> {
    sockopt::set_socket_linger(fd, Some(Duration::ZERO))?;
    if let Some(name) = &tuning.congestion {
        sockopt::set_tcp_congestion(fd, name).map_err(|error| {
            let there = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
            Unsupported(format!("no congestion control `{name}` in this kernel ({error}); it has: {}", there.trim()))
        })?;
    }
    if let Some(bytes) = tuning.buffers {
        // Root may go over net.core.wmem_max and rmem_max, which would cut it short without a word.
        sockopt::set_socket_send_buffer_size_force(fd, bytes as usize)?;
        sockopt::set_socket_recv_buffer_size_force(fd, bytes as usize)?;
    }
    if tuning.no_delay {
        sockopt::set_tcp_nodelay(fd, true)?;
    }
    Ok(())
}

/// Sets the DSCP of what a socket sends.
fn mark(fd: &impl AsFd, address: IpAddr, dscp: u8) -> anyhow::Result<()> {
    if dscp == 0 {
        return Ok(());
    }
    // The octet's upper six bits (RFC 2474); the lower two are ECN's.
    match address {
        IpAddr::V4(_) => sockopt::set_ip_tos(fd, dscp << 2),
        IpAddr::V6(_) => sockopt::set_ipv6_tclass(fd, u32::from(dscp) << 2),
    }
    .with_context(|| format!("cannot mark packets with DSCP {dscp}"))
}

fn patient(fd: OwnedFd) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::from(fd);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}
