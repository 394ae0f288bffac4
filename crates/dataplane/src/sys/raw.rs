//! Raw IP sockets of one interface each, for a protocol whose messages are for routers on their way
//! (the router alert option of RFC 2113 and RFC 2711).

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{
    AddressFamily, Protocol, RawProtocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

use super::check;

// linux/in.h and linux/in6.h; libc has them for some systems only.
const IP_ROUTER_ALERT: libc::c_int = 5;
const IPV6_ROUTER_ALERT: libc::c_int = 22;
const IPV6_ROUTER_ALERT_ISOLATE: libc::c_int = 30;
/// The protocol of sockets that send packets with their IP headers, and receive none.
const RAW: u8 = 255;
/// Bytes that wait in a socket, of which the kernel counts several hundred for a small packet: all
/// neighbours may refresh a thousand sessions at once, and what does not fit is lost.
const WAITING: libc::c_int = 1 << 20;
/// The value of the router alert option of IPv6 that says RSVP (RFC 2711 2.1).
const ALERT_OF_RSVP: libc::c_int = 1;

/// What a socket receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IPv4 packets of a protocol, with their headers: those to this host, and those that pass it
    /// with the router alert option. The kernel does not forward what it hands over so.
    Four(u8),
    /// IPv6 packets of a protocol to this host, without their headers.
    Six(u8),
    /// IPv6 packets that pass this host with the router alert option that says RSVP, with their
    /// headers. The kernel does not forward them. The socket also sends packets with their headers.
    SixPassing,
    /// Nothing. The socket sends IPv4 packets with their headers.
    FourOut,
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Its bytes in the buffer.
    pub length: usize,
    /// Where it came from, as far as the kernel says it apart from the packet.
    pub source: Option<Ipv6Addr>,
    /// Where it went to: of [`Kind::Six`].
    pub destination: Option<Ipv6Addr>,
    /// Its hop limit: of [`Kind::Six`].
    pub hops: Option<u8>,
}

/// Opens a socket that receives what comes in at an interface, and sends what leaves by it. It does
/// not wait.
///
/// # Errors
/// EPERM without CAP_NET_RAW, ENODEV without such an interface, ENOPROTOOPT before Linux 4.20 for
/// [`Kind::SixPassing`].
pub fn open(kind: Kind, interface: &str) -> io::Result<OwnedFd> {
    let (family, protocol) = match kind {
        Kind::Four(protocol) => (AddressFamily::INET, protocol),
        Kind::FourOut => (AddressFamily::INET, RAW),
        Kind::Six(protocol) => (AddressFamily::INET6, protocol),
        Kind::SixPassing => (AddressFamily::INET6, RAW),
    };
    let protocol = RawProtocol::new(u32::from(protocol)).map(Protocol::from_raw);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::RAW, flags, protocol)?;
    set(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, interface.as_bytes())?;
    // What came before that may have come by another interface.
    for _ in 0..4096 {
        if recv(&socket, [0_u8; 1].as_mut_slice(), RecvFlags::DONTWAIT).is_err() {
            break;
        }
    }
    let number = |level, option, value: libc::c_int| set(&socket, level, option, &value.to_ne_bytes());
    // More than net.core.rmem_max only CAP_NET_ADMIN gets.
    if number(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, WAITING).is_err() {
        number(libc::SOL_SOCKET, libc::SO_RCVBUF, WAITING)?;
    }
    match kind {
        Kind::Four(_) => number(libc::IPPROTO_IP, IP_ROUTER_ALERT, 1)?,
        Kind::FourOut => {}
        Kind::Six(_) => {
            number(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
            number(libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1)?;
        }
        Kind::SixPassing => {
            // The kernel has one list of these sockets for all network namespaces. Without this, a
            // socket takes packets that pass routers in other ones.
            number(libc::IPPROTO_IPV6, IPV6_ROUTER_ALERT_ISOLATE, 1)?;
            number(libc::IPPROTO_IPV6, IPV6_ROUTER_ALERT, ALERT_OF_RSVP)?;
        }
    }
    Ok(socket)
}

/// Sends a packet with its IP header by a socket that is made for that.
///
/// # Errors
/// EMSGSIZE if it is longer than the MTU; those of routes and of the interface.
pub fn send(socket: impl AsFd, to: IpAddr, packet: &[u8]) -> io::Result<()> {
    sendto(socket, packet, SendFlags::DONTWAIT, &SocketAddr::new(to, 0))?;
    Ok(())
}

/// Receives a packet, without waiting. None if it is longer than the buffer.
///
/// # Errors
/// EAGAIN: nothing has come.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
    // SAFETY: sockaddr_in6 and msghdr are plain old data, for which all zeroes are a value: no
    // address, and null pointers of length 0.
    let (mut name, mut header): (libc::sockaddr_in6, libc::msghdr) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // Words, because control messages are aligned to them.
    let mut control = [0_u64; 16];
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of_val(&name) as _;
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1 as _;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the header points to an address, one part and a control buffer, each with its own
    // size. They outlive the call, and nothing else uses them meanwhile. rustix reads no control
    // messages of IPv6.
    let got = unsafe { libc::recvmsg(fd, &raw mut header, libc::MSG_DONTWAIT) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    if header.msg_flags & libc::MSG_TRUNC != 0 {
        return Ok(None);
    }
    let six = i32::from(name.sin6_family) == libc::AF_INET6;
    // The type of this field is another one under musl.
    #[allow(clippy::unnecessary_cast)]
    let told = (header.msg_controllen as usize).min(size_of_val(&control));
    let bytes: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).take(told).collect();
    let mut found = Datagram {
        length: got.unsigned_abs(),
        source: six.then(|| Ipv6Addr::from(name.sin6_addr.s6_addr)),
        destination: None,
        hops: None,
    };
    for (level, kind, value) in Controls(&bytes) {
        match (level, kind) {
            // struct in6_pktinfo: the address, then the interface.
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                found.destination = value.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                let hops = value.first_chunk::<4>().map(|bytes| libc::c_int::from_ne_bytes(*bytes));
                found.hops = hops.and_then(|hops| u8::try_from(hops).ok());
            }
            _ => {}
        }
    }
    Ok(Some(found))
}

/// Control messages: level, type and value (`struct cmsghdr`, cmsg(3)).
struct Controls<'a>(&'a [u8]);

impl<'a> Iterator for Controls<'a> {
    type Item = (libc::c_int, libc::c_int, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        const WORD: usize = size_of::<usize>();
        let start = size_of::<libc::cmsghdr>();
        let rest = std::mem::take(&mut self.0);
        let length = usize::from_ne_bytes(*rest.first_chunk::<WORD>()?);
        let number = |at: usize| Some(libc::c_int::from_ne_bytes(*rest.get(at..)?.first_chunk::<4>()?));
        let (level, kind) = (number(start - 8)?, number(start - 4)?);
        let value = rest.get(start..length)?;
        self.0 = rest.get(length.next_multiple_of(WORD)..).unwrap_or_default();
        Some((level, kind, value))
    }
}

/// Sets a socket option.
fn set(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    let len = value.len() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes, all of the value, which outlives the call. rustix has
    // none of these options.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), len) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_cut_apart() {
        let one = |level: i32, kind: i32, value: &[u8]| {
            let mut bytes = (size_of::<libc::cmsghdr>() + value.len()).to_ne_bytes().to_vec();
            bytes.resize(size_of::<libc::cmsghdr>() - 8, 0);
            bytes.extend(level.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(size_of::<usize>()), 0);
            bytes
        };
        let both = [one(41, 52, &64i32.to_ne_bytes()), one(41, 50, &[7; 20])].concat();
        let found: Vec<_> = Controls(&both).collect();
        assert_eq!(found, [(41, 52, &64i32.to_ne_bytes()[..]), (41, 50, &[7; 20][..])]);
        for cut in 0..both.len() {
            assert!(Controls(&both[..cut]).count() < 2 || cut >= both.len() - 4, "{cut}");
        }
        // A length that leads nowhere ends them.
        assert_eq!(Controls(&[0; 64]).count(), 0);
        assert_eq!(Controls(&[0xff; 64]).count(), 0);
    }
}
