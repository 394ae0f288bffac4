//! Packet sockets that receive and send in batches.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socket_with};

use super::check;
use crate::edge::BATCH;
use crate::pool::{HEAD_ROOM, Pool, START};
use crate::vnet::{LEN, Vnet};

/// Receive buffer in bytes. With 64 MB nothing was lost of a burst of which the default lost a
/// third.
const RECEIVE_BUFFER: libc::c_int = 64 << 20;
/// Send buffer in bytes: the most bytes of a socket's frames that a device may hold.
const SEND_BUFFER: libc::c_int = 16 << 20;

/// Frames that a call of recvmmsg has room for at least. Each place is described anew for each
/// call, so a call that finds one frame does not describe all [`BATCH`] places.
const LEAST: usize = 8;

/// Options of linux/if_packet.h that libc lacks.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// Receives frames that come in at an interface, and not those that are sent there.
pub struct Receiver {
    socket: OwnedFd,
    messages: Messages,
    /// Empty slots for the next frames. The last ones are used first: they were freed last, so
    /// their memory is still in the processor's cache. A super-packet has 64 KB.
    staged: Vec<u32>,
    /// Frames that the next call has room for: twice as many as came last.
    expected: usize,
    missed: u64,
}

/// Sends frames by an interface.
pub struct Sender {
    socket: OwnedFd,
    messages: Messages,
}

/// Sees copies of the frames that come in at an interface and leave by it.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    missed: u64,
}

impl Listener {
    /// Starts to listen.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW.
    pub fn open(interface: u32) -> io::Result<Listener> {
        let socket = open()?;
        if set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER).is_err() {
            set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER)?;
        }
        bind(&socket, interface, libc::ETH_P_ALL as u16)?;
        Ok(Listener { socket, missed: 0 })
    }

    /// Frames lost since the start because the receive buffer was full.
    pub fn missed(&mut self) -> u64 {
        self.missed += dropped(&self.socket);
        self.missed
    }

    /// Receives the beginning of the next frame, as much as there is room for. Returns its length
    /// and that of the whole frame. Does not wait.
    ///
    /// # Errors
    /// EAGAIN: there is none. ENETDOWN: the interface is down or gone.
    pub fn receive(&self, head: &mut [u8]) -> io::Result<(usize, usize)> {
        Ok(recv(&self.socket, head, RecvFlags::TRUNC | RecvFlags::DONTWAIT)?)
    }

    /// The type of the interface, one of ARPHRD_ in linux/if_arp.h.
    ///
    /// # Errors
    /// That of getsockname(2).
    pub fn hardware(&self) -> io::Result<u16> {
        let mut address = address(0, 0);
        let mut len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, the whole address, which outlives the
        // call. rustix has no packet addresses.
        check(unsafe { libc::getsockname(self.socket.as_raw_fd(), (&raw mut address).cast(), &raw mut len) })?;
        Ok(address.sll_hatype)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The outcome of a call of [`Receiver::receive`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the frames added.
    pub bytes: u64,
    /// Frames that were longer than a slot.
    pub too_long: u64,
    /// False if there was no slot to receive into.
    pub had_room: bool,
}

impl Receiver {
    /// Starts to receive from an interface.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW; ENOPROTOOPT on a kernel without one of the options.
    pub fn open(interface: u32) -> io::Result<Receiver> {
        Receiver::open_with(interface, false)
    }

    /// As [`Receiver::open`], but nothing is received before [`Ear::hear`].
    ///
    /// # Errors
    /// As [`Receiver::open`].
    pub fn open_deaf(interface: u32) -> io::Result<(Receiver, Ear)> {
        let receiver = Receiver::open_with(interface, true)?;
        let ear = Ear(receiver.socket.try_clone()?);
        Ok((receiver, ear))
    }

    fn open_with(interface: u32, deaf: bool) -> io::Result<Receiver> {
        // Protocol 0: nothing is received until the socket is bound, after all options are set.
        let socket = open()?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1i32)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1i32)?;
        set(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1i32)?;
        if set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER).is_err() {
            set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER)?;
        }
        if deaf {
            // A filter of one instruction, which accepts no frame.
            let mut nothing = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
            let program = libc::sock_fprog { len: 1, filter: &raw mut nothing };
            set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
        }
        make_promiscuous(&socket, interface)?;
        bind(&socket, interface, libc::ETH_P_ALL as u16)?;
        Ok(Receiver {
            socket,
            messages: Messages::new(),
            staged: Vec::with_capacity(BATCH),
            expected: LEAST,
            missed: 0,
        })
    }

    /// Receives frames that have arrived, at most [`BATCH`], without waiting.
    ///
    /// # Errors
    /// EAGAIN: no frame has come. ENETDOWN: the interface is down or gone. EINVAL: a frame could
    /// not be described by a virtio header and is lost.
    pub fn receive(&mut self, pool: &mut Pool, out: &mut Vec<u32>) -> io::Result<Received> {
        // Each has a body, also for a frame that needs none.
        while self.staged.len() < self.expected {
            let Some(handle) = pool.take_large() else { break };
            self.staged.push(handle);
        }
        let count = self.staged.len().min(self.expected);
        if count == 0 {
            return Ok(Received::default());
        }
        for (at, handle) in self.staged.iter().rev().take(count).enumerate() {
            let (head, body) = pool.room_mut(*handle);
            let (header, frame) = head.split_at_mut(START);
            self.messages.point(at, [part(&mut header[..LEN]), part(&mut frame[..HEAD_ROOM]), part(body)], 3, true);
        }
        let messages = self.messages.headers.as_mut_ptr();
        // SAFETY: the first `count` messages point to slots of the pool and to control buffers that
        // all live beyond this call, each to its own slot, since a handle is staged once; nothing
        // else reads or writes them meanwhile. Neither std nor rustix has recvmmsg.
        let got = unsafe {
            libc::recvmmsg(self.socket.as_raw_fd(), messages, count as _, libc::MSG_DONTWAIT as _, std::ptr::null_mut())
        };
        let got = check(got)? as usize;
        self.expected = (2 * got).clamp(LEAST, BATCH);
        let mut received = Received { had_room: true, ..Received::default() };
        let left = self.staged.len() - got;
        for (at, handle) in self.staged.drain(left..).rev().enumerate() {
            let message = &self.messages.headers[at];
            let len = (message.msg_len as usize).saturating_sub(LEN);
            if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                received.too_long += 1;
                pool.free(handle);
                continue;
            }
            let mut header = [0; LEN];
            header.copy_from_slice(&pool.room_mut(handle).0[..LEN]);
            pool.set_len(handle, len);
            *pool.vnet_mut(handle) = Vnet::read(&header);
            if let Some((tpid, tci)) = self.messages.tag(at) {
                pool.insert_tag(handle, tpid, tci);
            }
            received.bytes += len as u64;
            out.push(handle);
        }
        Ok(received)
    }

    /// Frames lost since the start because the receive buffer was full.
    pub fn missed(&mut self) -> u64 {
        self.missed += dropped(&self.socket);
        self.missed
    }
}

/// Frames lost because a socket's receive buffer was full, since this was asked last: reading
/// resets the kernel's counter. 0 if the kernel does not tell.
fn dropped(socket: &OwnedFd) -> u64 {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of_val(&statistics) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `statistics`, a struct of two integers.
    // rustix has no packet options.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &mut len,
        )
    };
    if done == 0 { u64::from(statistics.tp_drops) } else { 0 }
}

/// Starts a [`Receiver`] that does not receive yet.
#[derive(Debug)]
pub struct Ear(OwnedFd);

impl Ear {
    /// Frames are received from now on.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn hear(self) -> io::Result<()> {
        set(&self.0, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0i32)
    }
}

impl Sender {
    /// Opens an interface for sending.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW; ENOPROTOOPT on a kernel without one of the options.
    pub fn open(interface: u32) -> io::Result<Sender> {
        let socket = open()?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1i32)?;
        // Frames go directly to the device. The queue of a qdisc would hide the backlog from altq.
        set(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1i32)?;
        if set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER).is_err() {
            set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER)?;
        }
        bind(&socket, interface, 0)?;
        Ok(Sender { socket, messages: Messages::new() })
    }

    /// Forgets an error that the kernel keeps for the socket, as when its interface went down.
    pub fn take_error(&mut self) {
        // Whatever it was, the next call that fails says it again.
        let _ = rustix::net::sockopt::socket_error(&self.socket);
    }

    /// Sends frames in order, at most [`BATCH`], without waiting. Returns how many were sent, at
    /// least 1.
    ///
    /// # Errors
    /// That of the first frame, which was not sent. EAGAIN: the send buffer is full. ENOBUFS: the
    /// device's queue is full. ENETDOWN, ENXIO: the interface is down or gone. EMSGSIZE, EINVAL:
    /// this frame cannot be sent at all.
    pub fn send(&mut self, pool: &mut Pool, frames: &[u32]) -> io::Result<usize> {
        let count = frames.len().min(BATCH);
        for (at, handle) in frames[..count].iter().enumerate() {
            let mut vnet = *pool.vnet(*handle);
            // Other flags are about received frames and are not allowed here.
            vnet.flags &= crate::vnet::NEEDS_CSUM;
            pool.room_mut(*handle).0[..LEN].copy_from_slice(&vnet.write());
            let header = pool.room_mut(*handle).0[..LEN].as_mut_ptr();
            let (head, body) = (pool.head(*handle), pool.body(*handle));
            // The kernel only reads them.
            let parts = [
                libc::iovec { iov_base: header.cast(), iov_len: LEN },
                libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
                libc::iovec { iov_base: body.as_ptr().cast_mut().cast(), iov_len: body.len() },
            ];
            self.messages.point(at, parts, if body.is_empty() { 2 } else { 3 }, false);
        }
        let messages = self.messages.headers.as_mut_ptr();
        // SAFETY: the first `count` messages point to bytes of the pool that live beyond this call
        // and that nothing writes meanwhile; the kernel only reads them, and writes lengths to the
        // messages. Neither std nor rustix has sendmmsg.
        let sent = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages, count as _, libc::MSG_DONTWAIT as _) };
        Ok(check(sent)? as usize)
    }
}

/// Sets an interface to promiscuous mode for as long as the descriptor is open. The descriptor
/// receives nothing.
///
/// # Errors
/// EPERM without CAP_NET_RAW; ENODEV.
pub fn promiscuous(interface: u32) -> io::Result<OwnedFd> {
    let socket = open()?;
    make_promiscuous(&socket, interface)?;
    Ok(socket)
}

/// Promiscuous mode, which ends when the socket is closed.
fn make_promiscuous(socket: &OwnedFd, interface: u32) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: interface as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Room for a control message with a `tpacket_auxdata`, aligned for it.
type Control = [u64; 8];

/// The arrays for recvmmsg and sendmmsg. Their pointers are set before every call and not used
/// after it.
struct Messages {
    headers: Vec<libc::mmsghdr>,
    parts: Vec<[libc::iovec; 3]>,
    controls: Vec<Control>,
}

// SAFETY: the pointers inside are used only within one call, by the thread that has the value
// mutably borrowed, after that call has set them; between calls they are stale and nobody follows
// them. So the value may move to another thread.
unsafe impl Send for Messages {}

impl Messages {
    fn new() -> Messages {
        // SAFETY: mmsghdr and iovec are plain old data, for which all zeroes are a value: null
        // pointers of length 0.
        let (header, parts) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        Messages { headers: vec![header; BATCH], parts: vec![parts; BATCH], controls: vec![[0; 8]; BATCH] }
    }

    /// Points message `at` to the first `count` of `parts`, and to its control buffer if wanted.
    fn point(&mut self, at: usize, parts: [libc::iovec; 3], count: usize, control: bool) {
        self.parts[at] = parts;
        let header = &mut self.headers[at].msg_hdr;
        header.msg_iov = self.parts[at].as_mut_ptr();
        header.msg_iovlen = count as _;
        header.msg_flags = 0;
        if control {
            header.msg_control = self.controls[at].as_mut_ptr().cast();
            header.msg_controllen = size_of::<Control>() as _;
        }
    }

    /// The VLAN tag that the kernel removed from a received frame: (tpid, tci).
    fn tag(&self, at: usize) -> Option<(u16, u16)> {
        let header = &self.headers[at].msg_hdr;
        let mut bytes = [0u8; size_of::<Control>()];
        for (to, from) in bytes.chunks_exact_mut(8).zip(&self.controls[at]) {
            to.copy_from_slice(&from.to_ne_bytes());
        }
        // The type of this field is another one under musl.
        #[allow(clippy::unnecessary_cast)]
        let len = (header.msg_controllen as usize).min(bytes.len());
        find_tag(&bytes[..len])
    }
}

/// Reads a control message: `struct cmsghdr`, then `struct tpacket_auxdata` (linux/if_packet.h).
fn find_tag(control: &[u8]) -> Option<(u16, u16)> {
    let start = size_of::<libc::cmsghdr>();
    let word = |at: usize| Some(i32::from_ne_bytes(control.get(at..at + 4)?.try_into().ok()?));
    let half = |at: usize| Some(u16::from_ne_bytes(control.get(at..at + 2)?.try_into().ok()?));
    let (level, kind) = (word(start - 8)?, word(start - 4)?);
    if level != libc::SOL_PACKET || kind != libc::PACKET_AUXDATA {
        return None;
    }
    let (status, tci, tpid) = (word(start)? as u32, half(start + 16)?, half(start + 18)?);
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    Some((if status & libc::TP_STATUS_VLAN_TPID_VALID == 0 { 0x8100 } else { tpid }, tci))
}

fn part(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

fn open() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}

fn address(interface: u32, protocol: u16) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: interface as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

fn bind(socket: &OwnedFd, interface: u32, protocol: u16) -> io::Result<()> {
    let address = address(interface, protocol);
    // SAFETY: the address is a whole sockaddr_ll that outlives the call, with its own size. rustix
    // has no packet addresses.
    check(unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as libc::socklen_t)
    })?;
    Ok(())
}

/// Sets a socket option to a plain value.
fn set<T: Copy>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes, all of the value, which outlives the call. rustix has
    // no packet options.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), len) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_where_linux_puts_it() {
        // cmsghdr: length, level, type; tpacket_auxdata: u32 status, len, snaplen; u16 mac, net,
        // vlan_tci, vlan_tpid.
        let mut control = Vec::new();
        control.extend((size_of::<libc::cmsghdr>() + 20).to_ne_bytes());
        control.extend(libc::SOL_PACKET.to_ne_bytes());
        control.extend(libc::PACKET_AUXDATA.to_ne_bytes());
        let status = control.len();
        for word in [libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID, 60, 60] {
            control.extend(word.to_ne_bytes());
        }
        for half in [0u16, 14, 0x2005, 0x88a8] {
            control.extend(half.to_ne_bytes());
        }
        assert_eq!(find_tag(&control), Some((0x88a8, 0x2005)));
        for cut in 0..control.len() {
            assert_eq!(find_tag(&control[..cut]), None);
        }
        control[status..status + 4].copy_from_slice(&libc::TP_STATUS_VLAN_VALID.to_ne_bytes());
        assert_eq!(find_tag(&control), Some((0x8100, 0x2005)));
        control[status..status + 4].copy_from_slice(&0u32.to_ne_bytes());
        assert_eq!(find_tag(&control), None);
    }
}
