//! The edge of a link whose packets wait in the kernel: it receives their headers and gives
//! verdicts.

use std::os::fd::AsFd;

use altq_engine::headers::Key;
use altq_engine::shape::pacer::SEEN_LATE;
use altq_engine::units::{Nanos, SECOND};
use rustix::event::{PollFd, PollFlags};

use super::message::{self, Message, Messages, Setup, Verdict};
use super::waiting::{ACCEPTED, Waiting};
use crate::edge::{BATCH, Blocked, Edge, EdgeCounters, Sent, Want, Woken};
use crate::error::Error;
use crate::pool::Pool;
use crate::running::find;
use crate::stop::Stop;
use crate::sys::interface::Interface;
use crate::sys::netlink::Netlink;
use crate::sys::table::Table;
use crate::sys::wait::{now, wait};

/// How many bytes of a packet are copied: enough for two IPv4 headers and a TCP header with all
/// their options, and for the usual extension headers of IPv6.
pub(crate) const COPY: u32 = 192;
/// Time between two checks of the interfaces.
const LOOK: Nanos = SECOND / 2;
/// Time after which verdicts are sent again for which the kernel had no memory.
const RETRY: Nanos = 50_000;
/// The range of queue numbers from which altq takes free ones. Other programs use numbers from 0
/// on.
const FIRST_QUEUE: u16 = 24_000;
const QUEUES: u32 = 40_000;
/// Where the kernel shows the queues of a network namespace.
pub(crate) const QUEUES_TABLE: &str = "/proc/thread-self/net/netfilter/nfnetlink_queue";
/// The most numbers that are tried.
const TRIES: usize = 32;

/// What an edge needs to be opened.
pub struct Place<'a> {
    /// The interface.
    pub interface: &'a str,
    /// True for packets that come in at it, false for those that leave by it.
    pub ingress: bool,
    /// Names of interfaces that the link's rules name, in the rules' order.
    pub named: &'a [String],
    /// How many frames the loop has slots for.
    pub frames: usize,
    /// The most bytes of packets that may wait.
    pub bytes: u64,
    /// True if super-packets stay whole; otherwise the kernel segments them.
    pub whole: bool,
    /// True if packets pass until the loop [holds](QueueEdge::hold) them; otherwise they wait from
    /// the start.
    pub passes: bool,
    /// For how many nanoseconds the loop looks for packets before it sleeps.
    pub spin: Nanos,
}

/// Receives and releases the packets of a queue of the kernel.
pub struct QueueEdge {
    netlink: Netlink,
    waiting: Waiting,
    name: String,
    named: Vec<String>,
    /// The interface as it was found at the start. Its socket is used to find it, and others,
    /// again.
    found: Interface,
    /// The kernel's table of queues.
    queues: Table,
    stop: Stop,
    look_at: Nanos,
    spin: Nanos,
    /// True if the kernel describes the packets' connections.
    tracks: bool,
    /// Packets that the kernel had dropped from the queue when it was last read.
    dropped: u64,
    /// While packets still pass: how many may wait once they are held.
    to_hold: Option<u32>,
}

/// The number at which the search for a free queue begins. It depends on the interface and
/// direction (FNV-1a), so that two links rarely get the same number: otherwise the rules that a
/// killed process has left for one link could hand its packets to a new process that runs another
/// link.
pub(super) fn first_queue(interface: &str, ingress: bool) -> u16 {
    let hash = interface
        .bytes()
        .chain([u8::from(ingress)])
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    FIRST_QUEUE + (hash % QUEUES) as u16
}

/// Sends a request, and returns the kernel's answer to it. Packets that come before the answer are
/// let through: rules of a killed process may hand them over.
fn ask(netlink: &mut Netlink, queue: u16, request: &[u8], sequence: u32) -> std::io::Result<()> {
    // The kernel has answered when `send` returns.
    netlink.send(request)?;
    let (mut passed, mut answer) = (Vec::new(), None);
    while answer.is_none() {
        let got = netlink.receive(BATCH)?;
        for message in (0..got).flat_map(|at| Messages::new(netlink.datagram(at))) {
            match message {
                Message::Answer { sequence: to, error } if to == sequence => answer = Some(error),
                Message::Packet(packet) => {
                    message::verdict(&mut passed, queue, packet.id, Verdict::Accept, None, 0);
                }
                _ => {}
            }
        }
    }
    if !passed.is_empty() {
        netlink.send(&passed)?;
    }
    match answer {
        Some(0) | None => Ok(()),
        Some(error) => Err(std::io::Error::from_raw_os_error(error)),
    }
}

impl QueueEdge {
    /// Binds a free queue of the kernel, in the network namespace of the calling thread. From then
    /// on rules hand packets over, also those that a killed process has left.
    ///
    /// # Errors
    /// [`Error::NotPermitted`]; [`Error::Unsupported`] on a kernel without NFQUEUE.
    pub fn open(place: &Place<'_>, stop: Stop) -> Result<QueueEdge, Error> {
        let missing = |e: std::io::Error| match e.raw_os_error() {
            Some(libc::EPROTONOSUPPORT | libc::EINVAL) => Error::Unsupported { what: "NFQUEUE", source: e },
            _ => Error::of("NFQUEUE", e),
        };
        let mut netlink = Netlink::open().map_err(missing)?;
        let (found, queues) = (find(place.interface)?, Table::open(QUEUES_TABLE));
        let taken = status(&queues);
        let free = |number: &u16| taken.iter().all(|queue| queue.number != *number);
        let length = u32::try_from(place.frames + 16 * BATCH).unwrap_or(u32::MAX);
        let setup = Setup { copy: COPY, length, gso: place.whole };
        let mut request = Vec::new();
        let mut bind = |netlink: &mut Netlink, queue: u16| {
            request.clear();
            message::bind(&mut request, queue, 1, setup);
            ask(netlink, queue, &request, 1)
        };
        let first = first_queue(place.interface, place.ingress);
        let mut queue = first;
        let mut bound = bind(&mut netlink, queue);
        // Another process may have the queue although /proc does not show it, or may have taken it
        // since. The answer is then EPERM, as without CAP_NET_ADMIN.
        for next in (first + 1..u16::MAX).filter(free).take(TRIES) {
            let error = bound.as_ref().err().and_then(|error| error.raw_os_error());
            if !matches!(error, Some(libc::EPERM | libc::EBUSY | libc::EEXIST)) {
                break;
            }
            queue = next;
            bound = bind(&mut netlink, queue);
        }
        bound.map_err(missing)?;
        if place.passes {
            // From here to the first turn of the loop much may be waited for: other links, and
            // programs of the firewall that wait for one another.
            request.clear();
            message::let_pass(&mut request, queue, 3, true);
            ask(&mut netlink, queue, &request, 3).map_err(missing)?;
        }
        // With iptables, incoming packets are seen before their address is translated, so the
        // kernel must describe their connections.
        let mut tracks = place.ingress;
        if tracks {
            request.clear();
            message::track(&mut request, queue, 2, true, true);
            tracks = match ask(&mut netlink, queue, &request, 2) {
                Ok(()) => true,
                // EOPNOTSUPP: the kernel does not know the flag, or has no connection tracking for
                // it.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => false,
                Err(error) => return Err(missing(error)),
            };
        }
        let mut waiting = Waiting::new(queue, place.frames, place.bytes);
        if tracks {
            waiting.track();
        }
        let (name, named) = (place.interface.to_owned(), place.named.to_vec());
        let spin = place.spin;
        let to_hold = place.passes.then_some(length);
        let mut edge = QueueEdge {
            netlink,
            waiting,
            name,
            named,
            found,
            queues,
            stop,
            look_at: 0,
            spin,
            tracks,
            dropped: 0,
            to_hold,
        };
        edge.look();
        Ok(edge)
    }

    /// True if the kernel describes the packets' connections, so that rules and queues see the
    /// hosts behind NAT.
    pub fn tracks(&self) -> bool {
        self.tracks
    }

    /// The number of the socket that listens at the queue; 0 if the kernel does not tell it.
    pub fn owner(&self) -> u32 {
        self.netlink.number().unwrap_or(0)
    }

    /// Tells the kernel not to describe the packets' connections, because the firewall shows their
    /// addresses behind NAT itself.
    pub fn track_no_more(&mut self) {
        if std::mem::take(&mut self.tracks) {
            // It is sent with the first verdicts. Until then, descriptions do no harm.
            message::track(&mut self.waiting.verdicts, self.waiting.queue, 0, false, false);
        }
    }

    /// Makes packets wait from now on, if they have passed until now: the loop runs. If the kernel
    /// has no memory for that, they pass until the loop waits for the first time.
    ///
    /// # Errors
    /// Those that end the loop.
    pub fn hold(&mut self) -> Result<(), Error> {
        if let Some(length) = self.to_hold.take() {
            message::hold(&mut self.waiting.verdicts, self.waiting.queue, length);
        }
        self.flush()
    }

    /// Lets all packets through: those that wait, and from now on those that come. It must be
    /// called before the rules are removed: when nftables removes a hook, the kernel drops what
    /// waits in any queue (`__nf_unregister_net_hook` in net/netfilter/core.c).
    pub fn release(&mut self) {
        self.waiting.release();
        for _ in 0..3 {
            if self.flush().is_ok() && self.waiting.verdicts.is_empty() {
                break;
            }
        }
    }

    /// The number of the queue.
    pub fn queue(&self) -> u16 {
        self.waiting.queue
    }

    /// Updates the interfaces' indices and the MTU. An interface that is gone may come back; the
    /// rules name it, so they still hold.
    fn look(&mut self) {
        self.look_at = now() + LOOK;
        if let Some(mtu) = self.found.other(&self.name).ok().and_then(|interface| interface.mtu().ok()) {
            self.waiting.mtu = mtu as usize;
        }
        self.waiting.places.clear();
        for (place, name) in self.named.iter().enumerate() {
            if let (Ok(interface), Ok(place)) = (self.found.other(name), u16::try_from(place)) {
                self.waiting.places.push((interface.index, place));
            }
        }
        self.waiting.places.sort_unstable();
    }

    /// Sends the verdicts that were not sent yet. If the kernel has no memory for them, they wait
    /// for the next call.
    fn flush(&mut self) -> Result<(), Error> {
        if self.waiting.verdicts.is_empty() {
            return Ok(());
        }
        match self.netlink.send(&self.waiting.verdicts) {
            Ok(()) => self.waiting.verdicts.clear(),
            Err(error) if short(&error) => {}
            Err(error) => return Err(Error::of("sending verdicts", error)),
        }
        Ok(())
    }
}

/// True if a call failed because memory was short or a signal came.
fn short(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN | libc::EINTR))
}

impl Edge for QueueEdge {
    fn now(&mut self) -> Nanos {
        now()
    }

    fn seen_late(&self) -> Nanos {
        SEEN_LATE
    }

    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<u32>) -> Result<bool, Error> {
        let free = pool.free_heads();
        if free == 0 {
            return Ok(false);
        }
        let got = match self.netlink.receive(free) {
            Ok(got) => got,
            Err(error) if short(&error) => return Ok(true),
            Err(error) => return Err(Error::of("receiving", error)),
        };
        for at in 0..got {
            for message in Messages::new(self.netlink.datagram(at)) {
                match message {
                    Message::Packet(packet) => self.waiting.take(&packet, pool, out),
                    // The packet was gone: its interface went down meanwhile.
                    Message::Answer { sequence: ACCEPTED, error } if error != 0 => self.waiting.counters.lost += 1,
                    Message::Answer { .. } | Message::Other => {}
                    Message::Broken => self.waiting.counters.unreadable += 1,
                }
            }
        }
        self.flush()?;
        Ok(true)
    }

    fn send(&mut self, pool: &mut Pool, frames: &[u32], _: &[Nanos]) -> Result<Sent, Error> {
        let before = self.waiting.verdicts.len();
        frames.iter().for_each(|handle| self.waiting.accept(pool, *handle));
        match self.netlink.send(&self.waiting.verdicts) {
            Ok(()) => {}
            Err(error) if short(&error) => {
                self.waiting.verdicts.truncate(before);
                self.waiting.counters.blocked += 1;
                return Ok(Sent { done: 0, blocked: Some(Blocked::Until(now() + RETRY)) });
            }
            Err(error) => return Err(Error::of("sending verdicts", error)),
        }
        self.waiting.verdicts.clear();
        frames.iter().for_each(|handle| self.waiting.forget(*handle));
        self.waiting.counters.sent += frames.len() as u64;
        Ok(Sent { done: frames.len(), blocked: None })
    }

    fn dropped(&mut self, handle: u32) {
        self.waiting.drop(handle);
        if self.waiting.verdicts.len() >= BATCH * 32 {
            // An error will show again when the loop waits.
            let _ = self.flush();
        }
    }

    fn describe(&self, handle: u32, key: &mut Key) {
        self.waiting.describe(handle, key);
    }

    fn writes_ecn(&self, handle: u32) -> bool {
        self.waiting.writes_ecn(handle)
    }

    fn holds_bytes(&self) -> bool {
        false
    }

    fn wait(&mut self, deadline: Option<Nanos>, want: Want) -> Result<Woken, Error> {
        self.flush()?;
        let now = now();
        if now >= self.look_at {
            self.look();
        }
        let receive = if want.frames { PollFlags::IN } else { PollFlags::empty() };
        let mut watched = [
            PollFd::from_borrowed_fd(self.netlink.as_fd(), receive),
            PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
        ];
        wait(&mut watched, now, deadline.unwrap_or(Nanos::MAX).min(self.look_at), self.spin)?;
        let [netlink, stop] = watched.map(|fd| fd.revents());
        Ok(Woken { frames: !netlink.is_empty(), stop: !stop.is_empty() && self.stop.ends() })
    }

    fn stopped(&mut self) -> bool {
        self.stop.is_set()
    }

    fn counters(&mut self) -> EdgeCounters {
        let queue = self.waiting.queue;
        if let Some(status) = status(&self.queues).iter().find(|status| status.number == queue) {
            self.dropped = status.dropped;
        }
        let counters = self.waiting.counters;
        EdgeCounters { missed: counters.missed + self.dropped, ..counters }
    }
}

impl Drop for QueueEdge {
    /// Lets the packets through that still wait. The kernel would drop them with the socket.
    fn drop(&mut self) {
        self.release();
    }
}

/// A line of the kernel's table of queues.
struct Status {
    number: u16,
    /// Packets that it dropped because the queue or the receive buffer was full.
    dropped: u64,
}

/// The queues of this network namespace. Empty if /proc is not mounted.
fn status(queues: &Table) -> Vec<Status> {
    let table = queues.read();
    let read = |line: &str| {
        // Number, port, packets that wait, copy mode, copy range, dropped by the kernel, dropped at
        // the socket, last packet's number, 1.
        let mut words = line.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let dropped = words.nth(4)?.parse::<u64>().ok()? + words.next()?.parse::<u64>().ok()?;
        Some(Status { number, dropped })
    };
    table.lines().filter_map(read).collect()
}
