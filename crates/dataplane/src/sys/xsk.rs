//! Sockets of AF_XDP: frames come and go in memory that this process and the kernel share.
//!
//! The memory (UMEM) is divided into slots. Four rings carry numbers of slots. The kernel takes
//! slots for frames that come in from the *fill* ring and gives them back, filled, in the *receive*
//! ring; it takes frames to send from the *send* ring and gives their slots back in the
//! *completion* ring. A socket serves one queue of one interface. All sockets of a bridge share one
//! memory, so that a frame that came in by one leaves by another from where it is
//! (Documentation/networking/af_xdp.rst and net/xdp/xsk.c of the kernel, Linux 5.10).
//!
//! It uses rustix, which has the options and addresses of these sockets, but not the rings
//! ([`super::ring`]). A crate only for the rings (xdpilone, xdp) would bring more code than it
//! saves; xsk-rs is built on a library in C. aya loads programs that a compiler has made, but here
//! a few instructions are enough ([`super::xdp`]).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpMmapOffsets, XdpOptionsFlags, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with};

use super::mapping::Mapping;
use super::ring::{Consuming, Producing, bytes};
use crate::pool::HEAD;

/// A frame in a ring: where it begins in the memory, and its length.
pub type Descriptor = libc::xdp_desc;

/// Bytes of a slot before the frame, which the kernel leaves free (XDP_PACKET_HEADROOM of
/// linux/bpf.h).
const HEADROOM: usize = 256;
/// The longest frame that a slot holds.
pub const LONGEST: usize = HEAD - HEADROOM;

/// The most receive queues of an interface.
pub const QUEUES: usize = 64;
/// Slots for the frames that come in at an interface with few queues, over all of them.
const FILL: u32 = 2048;
/// The fewest such slots of a queue.
const FILL_LEAST: u32 = 128;
/// Places of the send ring.
const SEND: u32 = 256;
/// Places of the completion ring: the most frames that the device has at a time.
pub const COMPLETION: u32 = 1024;
/// Send buffer in bytes: the most bytes of frames that the kernel has copied and the device still
/// holds.
const SEND_BUFFER: usize = 16 << 20;

/// How often to try again at a queue that is in use, and how long to wait before each attempt: the
/// kernel frees the queue of a closed socket a moment later.
const TRIES: (usize, Duration) = (50, Duration::from_millis(10));

/// The frames that come in at a queue.
pub struct Incoming {
    /// The socket, for waiting.
    pub socket: Arc<OwnedFd>,
    /// The frames.
    pub frames: Consuming<Descriptor>,
    /// Slots for the next frames.
    pub fill: Producing<u64>,
}

/// The frames that leave by an interface, all by its first queue, so that they stay in order.
pub struct Outgoing {
    /// The socket.
    pub socket: Arc<OwnedFd>,
    /// The frames to send.
    pub frames: Producing<Descriptor>,
    /// Slots of frames that the device no longer needs.
    pub done: Consuming<u64>,
}

/// The sockets of one interface.
pub struct Device {
    /// One for each receive queue.
    pub incoming: Vec<Incoming>,
    /// The socket of the first queue, for sending.
    pub outgoing: Outgoing,
}

/// The sockets of the two interfaces of a bridge.
pub struct Devices {
    /// Those of the first and of the second interface.
    pub devices: [Device; 2],
    /// True if the devices read and write the memory themselves; otherwise the kernel copies.
    pub zero_copy: bool,
}

/// How many slots the fill rings of an interface hold together.
pub fn fill_slots(queues: usize) -> usize {
    queues.max(1) * fill_size(queues) as usize
}

/// Places of the fill ring of each queue, if there are so many queues. It is a power of two.
fn fill_size(queues: usize) -> u32 {
    let each = FILL / (queues.clamp(1, QUEUES) as u32).next_power_of_two();
    each.max(FILL_LEAST)
}

/// Opens sockets for all queues of two interfaces in `memory`. Each interface is given by its index
/// and by the most queues that it may have. With `copy` the kernel copies the frames also where the
/// devices could do without.
///
/// # Errors
/// EPERM without CAP_NET_RAW; EAFNOSUPPORT without AF_XDP; EBUSY if another process has a queue;
/// E2BIG if an interface has more queues; EOPNOTSUPP, EINVAL and others if a driver refuses;
/// ENOBUFS if the process may not keep as much memory in place (RLIMIT_MEMLOCK).
pub fn open(interfaces: [(u32, usize); 2], memory: &Arc<Mapping>, copy: bool) -> io::Result<Devices> {
    let mut first: Option<Arc<OwnedFd>> = None;
    let devices =
        [open_device(interfaces[0], memory, copy, &mut first)?, open_device(interfaces[1], memory, copy, &mut first)?];
    let options = sockopt::xdp_options(&devices[0].outgoing.socket)?;
    Ok(Devices { devices, zero_copy: options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY) })
}

/// The sockets of one interface. `first` is the socket that has registered the memory, or `None`,
/// and then becomes the first one here.
fn open_device(
    (interface, queues): (u32, usize),
    memory: &Arc<Mapping>,
    copy: bool,
    first: &mut Option<Arc<OwnedFd>>,
) -> io::Result<Device> {
    let mut incoming = Vec::with_capacity(queues);
    let mut outgoing = None;
    // One queue more than there may be is tried: the kernel must refuse it, or else its frames
    // would be lost.
    for queue in 0..=queues {
        let made = prepare(first.is_none().then_some(memory), fill_size(queues), queue == 0)?;
        match bind_to(&made.socket, interface, queue as u32, first.as_deref(), copy) {
            Ok(()) if queue == queues => return Err(io::Error::from_raw_os_error(libc::E2BIG)),
            Ok(()) => {}
            Err(_) if queue == queues => break,
            // With this error the kernel refuses a queue that does not exist
            // (`xsk_reg_pool_at_qid`). A driver may return it too, for a queue that it cannot serve
            // without copying.
            Err(error) if copy && queue > 0 && error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => return Err(error),
        }
        let Prepared { socket, received, fill, sent, done } = made;
        let socket = Arc::new(socket);
        if first.is_none() {
            *first = Some(socket.clone());
        }
        incoming.push(Incoming { socket: socket.clone(), frames: received, fill });
        if let Some(frames) = sent {
            outgoing = Some(Outgoing { socket, frames, done });
        }
    }
    let outgoing = outgoing.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
    Ok(Device { incoming, outgoing })
}

/// A socket with its rings, before it is bound: the kernel maps no ring of a bound socket.
struct Prepared {
    socket: OwnedFd,
    received: Consuming<Descriptor>,
    fill: Producing<u64>,
    sent: Option<Producing<Descriptor>>,
    done: Consuming<u64>,
}

/// Makes a socket. The first one of a memory registers it (`memory`).
fn prepare(memory: Option<&Arc<Mapping>>, fill: u32, sends: bool) -> io::Result<Prepared> {
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    if let Some(memory) = memory {
        let region = XdpUmemReg {
            addr: memory.start().as_ptr() as u64,
            len: memory.size() as u64,
            chunk_size: HEAD as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&socket, region)?;
    }
    sockopt::set_xdp_umem_fill_ring_size(&socket, fill)?;
    sockopt::set_xdp_umem_completion_ring_size(&socket, COMPLETION)?;
    // The ring has as many places as there are slots, so it is never full.
    sockopt::set_xdp_rx_ring_size(&socket, fill)?;
    if sends {
        sockopt::set_xdp_tx_ring_size(&socket, SEND)?;
        if sockopt::set_socket_send_buffer_size_force(&socket, SEND_BUFFER).is_err() {
            sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER)?;
        }
    }
    let XdpMmapOffsets { rx, tx, fr, cr } = sockopt::xdp_mmap_offsets(&socket)?;
    let map = |offset: u64, size: usize| Mapping::of(socket.as_fd(), offset, size).map(Arc::new);
    let received = Consuming::new(map(XDP_PGOFF_RX_RING, bytes::<Descriptor>(&rx, fill)?)?, &rx, fill)?;
    let filled = Producing::new(map(XDP_UMEM_PGOFF_FILL_RING, bytes::<u64>(&fr, fill)?)?, &fr, fill)?;
    let done = map(XDP_UMEM_PGOFF_COMPLETION_RING, bytes::<u64>(&cr, COMPLETION)?)?;
    let done = Consuming::new(done, &cr, COMPLETION)?;
    let sent = match sends {
        true => Some(Producing::new(map(XDP_PGOFF_TX_RING, bytes::<Descriptor>(&tx, SEND)?)?, &tx, SEND)?),
        false => None,
    };
    Ok(Prepared { socket, received, fill: filled, sent, done })
}

/// Binds a socket to a queue. `first` is the socket that registered the memory, if that is another
/// one. Whether frames are copied was then decided when `first` was bound.
fn bind_to(socket: &OwnedFd, interface: u32, queue: u32, first: Option<&OwnedFd>, copy: bool) -> io::Result<()> {
    let mut tries = 0;
    loop {
        let bound = match first {
            Some(first) => bind(
                socket,
                &SocketAddrXdpWithSharedUmem {
                    addr: SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, interface, queue),
                    shared_umem_fd: first.as_fd(),
                },
            ),
            None => {
                let copy = if copy { SocketAddrXdpFlags::XDP_COPY } else { SocketAddrXdpFlags::empty() };
                let flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP | copy;
                bind(socket, &SocketAddrXdp::new(flags, interface, queue))
            }
        };
        match bound {
            Err(Errno::BUSY) if tries < TRIES.0 => std::thread::sleep(TRIES.1),
            other => return Ok(other?),
        }
        tries += 1;
    }
}

/// What a socket has lost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Frames for which there was no slot, or no place in the receive ring.
    pub missed: u64,
    /// Frames that were longer than a slot.
    pub too_long: u64,
}

impl Lost {
    /// From the kernel's counters: frames that it dropped, times that the fill ring was empty, and
    /// times that the receive ring was full. Where the kernel copies, it drops a frame because the
    /// fill ring is empty, which it counts as well, or because the frame is too long
    /// (net/xdp/xsk.c). Where a driver does without copying, an empty fill ring loses no frame.
    fn of(dropped: u64, empty: u64, full: u64, zero_copy: bool) -> Lost {
        let for_want = if zero_copy { dropped } else { dropped.min(empty) };
        Lost { missed: for_want + full, too_long: dropped - for_want }
    }
}

impl Incoming {
    /// What was lost since the start. Nothing if the socket cannot be asked any more.
    pub fn lost(&self, zero_copy: bool) -> Lost {
        sockopt::xdp_statistics(&self.socket).map_or(Lost::default(), |counted| {
            let (empty, full) = (counted.rx_fill_ring_empty_descs, counted.rx_ring_full);
            Lost::of(counted.rx_dropped, empty.unwrap_or(0), full.unwrap_or(0), zero_copy)
        })
    }

    /// If the driver waits for slots, tells it that there are some.
    ///
    /// # Errors
    /// ENETDOWN, ENXIO: the interface is down or gone. EOPNOTSUPP: Linux 5.10 is told by poll(2)
    /// only.
    pub fn wake(&self) -> io::Result<()> {
        if self.fill.needs_wakeup() {
            let mut nothing = [0u8; 1];
            recv(&self.socket, &mut nothing, RecvFlags::DONTWAIT)?;
        }
        Ok(())
    }
}

impl Outgoing {
    /// Tells the kernel that there are frames to send. Without zero copy the call sends some of
    /// them (32 by default).
    ///
    /// # Errors
    /// EAGAIN: there may be more, or the device is full; EBUSY: the device dropped one; ENOBUFS;
    /// ENETDOWN, ENXIO: the interface is down or gone.
    pub fn wake(&self) -> Result<(), Errno> {
        send(&self.socket, &[], SendFlags::DONTWAIT).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_is_told_apart() {
        // 10 dropped, 4 of them because no slot was there; 3 more found no place in the ring.
        assert_eq!(Lost::of(10, 4, 3, false), Lost { missed: 7, too_long: 6 });
        assert_eq!(Lost::of(4, 4, 0, false), Lost { missed: 4, too_long: 0 });
        // A driver that looks for slots ahead of time finds none more often than it drops a frame.
        assert_eq!(Lost::of(2, 900, 1, true), Lost { missed: 3, too_long: 0 });
        assert_eq!(Lost::of(0, 900, 0, false), Lost::default());
    }

    #[test]
    fn many_queues_share_the_slots() {
        for (queues, each) in [(0, 2048), (1, 2048), (2, 1024), (3, 512), (4, 512), (16, 128), (64, 128)] {
            assert_eq!((fill_size(queues), fill_slots(queues)), (each, queues.max(1) * each as usize), "{queues}");
        }
    }
}
