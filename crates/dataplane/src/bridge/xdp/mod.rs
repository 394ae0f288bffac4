//! A bridge between two interfaces by AF_XDP, which shapes what it forwards.
//!
//! A program at each interface hands incoming frames to sockets, before the kernel's network stack
//! gets them. Frames are in memory that is shared with the kernel. A frame stays where the kernel
//! has put it until it is sent. Both directions are opened together, because an interface's queue
//! has only one socket: one direction receives by it, the other one sends.
//!
//! Packet sockets tell that a frame is a super-packet, that its checksum is left to the device, and
//! that its VLAN tag is beside it. AF_XDP tells none of this. Super-packets must not come: a driver
//! with native XDP (veth as well) neither receives nor merges them, and with other drivers merging
//! (`gro`) must be off. Open checksums are recognised in the frame and completed
//! ([`crate::partial`]). The program puts a tag back, or the driver must leave it in the frame
//! (`rxvlan`).

mod edge;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use altq_config::Link;
use altq_engine::units::Nanos;

use super::ends::check;
use super::forward::FRAMES;
use crate::error::Error;
use crate::lock::Lock;
use crate::pool::HEAD;
use crate::running::{Starting, Xdp, find};
use crate::shaper::{self, Tuning};
use crate::stop::Stop;
use crate::sys::interface::{Interface, State};
use crate::sys::mapping::{Mapping, Part};
use crate::sys::xdp::Mode;
use crate::sys::{btf, packet, xdp, xsk};
use crate::ways::Way;
pub use edge::RingWay;

/// The bytes before layer 3 in a frame with two VLAN tags.
const HEADERS: usize = 22;
/// ETHTOOL_GGRO: asks whether frames are merged on reception.
const GGRO: u32 = 0x2b;

/// The bridges of a policy that are carried by AF_XDP.
pub(crate) struct Pairs {
    choice: Xdp,
    tuning: Tuning,
    /// Directions whose opposite direction has its edge already: from, to and the edge.
    open: Vec<(String, String, RingWay)>,
    /// Directions whose opposite direction could not be carried by AF_XDP.
    refused: Vec<(String, String)>,
}

impl Pairs {
    /// An empty list.
    pub fn new(choice: Xdp, tuning: Tuning) -> Pairs {
        Pairs { choice, tuning, open: Vec::new(), refused: Vec::new() }
    }

    /// The edge of a direction; `None` if packet sockets must carry it.
    ///
    /// # Errors
    /// [`Error::Xdp`] and others if AF_XDP was required and cannot carry the bridge. Errors of the
    /// interfaces and of their locks in any case.
    pub fn edge(
        &mut self,
        starting: &mut Starting,
        ways: &[Way<'_>],
        from: &str,
        to: &str,
    ) -> Result<Option<RingWay>, Error> {
        if let Some(at) = self.open.iter().position(|(a, b, _)| (a.as_str(), b.as_str()) == (from, to)) {
            return Ok(Some(self.open.swap_remove(at).2));
        }
        if self.choice == Xdp::Off || self.refused.iter().any(|(a, b)| (a.as_str(), b.as_str()) == (from, to)) {
            return Ok(None);
        }
        let frames = [self.frames(ways, from, to), self.frames(ways, to, from)];
        match open((from, to), frames, &starting.stop, starting.spin) {
            Ok((forth, back, note)) => {
                starting.notes.push(note);
                self.open.push((to.to_owned(), from.to_owned(), back));
                Ok(Some(forth))
            }
            Err(error) if self.choice == Xdp::Auto && may_fall_back(&error) => {
                starting.notes.push(format!("{error}; packet sockets carry it"));
                self.refused.push((to.to_owned(), from.to_owned()));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// How many frames may wait in a direction.
    fn frames(&self, ways: &[Way<'_>], from: &str, to: &str) -> usize {
        let link: Option<&Link> = ways.iter().find_map(|way| match *way {
            Way::Bridge { from: a, to: b, link } if (a, b) == (from, to) => link,
            _ => None,
        });
        link.map_or(FRAMES, |link| shaper::frames(link, self.tuning, true))
    }
}

/// True if after this error packet sockets may carry the bridge instead.
fn may_fall_back(error: &Error) -> bool {
    matches!(
        error,
        Error::Xdp(_) | Error::Foreign(_) | Error::NotPermitted { .. } | Error::Unsupported { .. } | Error::Io { .. }
    )
}

/// Opens both directions of a bridge, each with room for so many frames that wait. Also returns a
/// note about how it runs.
fn open(
    (from, to): (&str, &str),
    frames: [usize; 2],
    stop: &Stop,
    spin: Nanos,
) -> Result<(RingWay, RingWay, String), Error> {
    let interfaces = [find(from)?, find(to)?];
    interfaces.iter().try_for_each(check)?;
    interfaces.iter().try_for_each(suits)?;
    let [first_lock, second_lock] = [Lock::take(from, true)?, Lock::take(to, true)?];
    let [first_queues, second_queues] = [interfaces[0].queues(), interfaces[1].queues()];
    // There are slots for frames that wait, for frames to come, and for frames that the device is
    // sending.
    let slots = |frames: usize, queues: usize| frames + xsk::fill_slots(queues) + xsk::COMPLETION as usize;
    let first = slots(frames[0], first_queues) * HEAD;
    let whole = first + slots(frames[1], second_queues) * HEAD;
    let memory = Arc::new(Mapping::new(whole).map_err(|error| Error::of("memory for AF_XDP", error))?);
    let queues = [(interfaces[0].index, first_queues), (interfaces[1].index, second_queues)];
    let opened = sockets(queues, &memory).map_err(|error| no_sockets(error, whole))?;
    let ([one, other], zero_copy) = (opened.devices, opened.zero_copy);
    let [first_slots, second_slots] = Part::halves(&memory, first);
    // Each direction watches both interfaces.
    let opposite = (find(to)?, find(from)?);
    let [first_interface, second_interface] = interfaces;
    let (ends, rings) = ((first_interface, second_interface), (one.incoming, other.outgoing));
    let own = || stop.for_loop().map_err(|error| Error::of("event descriptors", error));
    let mut forth = RingWay::new(ends, rings, first_slots, zero_copy, (own()?, spin))?;
    let rings = (other.incoming, one.outgoing);
    let mut back = RingWay::new(opposite, rings, second_slots, zero_copy, (own()?, spin))?;
    let promiscuous = |interface: &Interface| {
        packet::promiscuous(interface.index).map_err(|error| Error::of("promiscuous mode", error))
    };
    // From here on frames come in.
    let mut modes = Vec::with_capacity(2);
    for (way, lock) in [(&mut forth, first_lock), (&mut back, second_lock)] {
        let promiscuous = promiscuous(way.input())?;
        let (program, map, mode) = attach(way)?;
        modes.push(named(&way.input().name, mode));
        way.hold(([program, map, promiscuous], lock));
    }
    [&forth, &back].into_iter().try_for_each(|way| settle(way.input()))?;
    let note = format!(
        "{from} and {to} by AF_XDP: {}; {}; open checksums of TCP and UDP are completed, others (SCTP, inside tunnels) \
         are not: switch them off where frames come from (`ethtool -K IF tx off`)",
        modes.join(", "),
        if zero_copy { "frames are not copied" } else { "the kernel copies frames" },
    );
    Ok((forth, back, note))
}

fn named(interface: &str, mode: Mode) -> String {
    match mode {
        Mode::Native => format!("in the driver of {interface}"),
        Mode::Generic => format!("in the kernel's stack at {interface}"),
    }
}

/// How long a device may take to carry frames again after a program was attached.
const RESET: Duration = Duration::from_secs(10);

/// Waits until an interface carries frames: many drivers reset their device when a program is
/// attached, and then it takes seconds until the link is up again.
fn settle(interface: &Interface) -> Result<(), Error> {
    let end = Instant::now() + RESET;
    while matches!(interface.state(), State::Down | State::NoCarrier) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    check(interface)
}

/// Checks what can be known about an interface beforehand.
fn suits(interface: &Interface) -> Result<(), Error> {
    let name = &interface.name;
    let refuse = |why: String| Err(Error::Xdp(why));
    let (mtu, most) = (interface.mtu().unwrap_or(0) as usize, xsk::LONGEST - HEADERS);
    if mtu > most {
        return refuse(format!("the MTU of {name} is {mtu}, and it carries at most {most}"));
    }
    if interface.queues() > xsk::QUEUES {
        let most = xsk::QUEUES;
        return refuse(format!("{name} has more than {most} queues; `ethtool -L {name} combined {most}` has fewer"));
    }
    match interface.driver().name.as_str() {
        // The program puts tags back, or `attach` refuses.
        VETH => Ok(()),
        "tun" => refuse(format!("super-packets may come from {name}, a TUN or TAP interface")),
        // The program would run at the devices of the bond, for which there is no socket.
        "bonding" => refuse(format!("{name} is a bond, and the kernel hands its frames to no socket")),
        _ if interface.takes_tags_off() => refuse(format!(
            "{name} takes VLAN tags off before a program sees the frame; `ethtool -K {name} rxvlan off` leaves them"
        )),
        _ => Ok(()),
    }
}

/// The driver of veth pairs.
const VETH: &str = "veth";
/// Drivers of devices that lead to another host on the same machine: a virtual machine or its host.
const BEFORE_A_HOST: [&str; 2] = ["virtio_net", "vif"];

/// Opens the sockets: with zero-copy if both drivers can do that, otherwise with copying.
fn sockets(queues: [(u32, usize); 2], memory: &Arc<Mapping>) -> io::Result<xsk::Devices> {
    xsk::open(queues, memory, false).or_else(|error| match error.raw_os_error() {
        // These have nothing to do with copying.
        Some(libc::EPERM | libc::EACCES | libc::EAFNOSUPPORT | libc::EBUSY | libc::E2BIG | libc::ENOBUFS) => Err(error),
        _ => xsk::open(queues, memory, true),
    })
}

/// The error if the sockets cannot be opened.
fn no_sockets(error: io::Error, bytes: usize) -> Error {
    Error::Xdp(match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => return Error::of("AF_XDP", error),
        Some(libc::EBUSY) => {
            return Error::Foreign("no AF_XDP: another process has a queue of one of the interfaces".to_owned());
        }
        Some(libc::EAFNOSUPPORT) => "this kernel has none (CONFIG_XDP_SOCKETS)".to_owned(),
        Some(libc::E2BIG) => "an interface has more queues than its driver says".to_owned(),
        Some(libc::ENOBUFS) => {
            format!("{} MB of memory cannot be kept in place; `ulimit -l` says how much may be", bytes >> 20)
        }
        _ => format!("the sockets cannot be opened ({error})"),
    })
}

/// Hands incoming frames to the sockets of a direction, by a program and a map of sockets.
fn attach(way: &RingWay) -> Result<(OwnedFd, OwnedFd, Mode), Error> {
    let name = &way.input().name;
    let map = xdp::sockets(way.sockets().len() as u32).map_err(|error| no_program(name, error))?;
    for (queue, socket) in way.sockets().enumerate() {
        xdp::give(map.as_fd(), queue as u32, socket).map_err(|error| no_program(name, error))?;
    }
    let (program, mode) = redirect(way.input(), map.as_fd())?;
    Ok((program, map, mode))
}

/// Attaches the program that fits an interface and its driver.
fn redirect(interface: &Interface, map: BorrowedFd<'_>) -> Result<(OwnedFd, Mode), Error> {
    let name = &interface.name;
    let redirect = |mode: Mode, tag_of: Option<u32>| {
        xdp::redirect_to(map, interface.index, mode, tag_of).map(|program| (program, mode))
    };
    let driver = interface.driver();
    if driver.name == VETH {
        let description = std::fs::read(btf::KERNEL).unwrap_or_default();
        let Some(tag_of) = btf::function(&description, xdp::TAG_OF) else {
            return Err(Error::Xdp(format!(
                "the kernel does not tell the VLAN tags of frames at {name}, a veth interface (Linux 6.8 does, with \
                 {})",
                btf::KERNEL
            )));
        };
        return redirect(Mode::Native, Some(tag_of)).map_err(|error| no_program(name, error));
    }
    match redirect(Mode::Native, None) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            // At such an interface nothing, not even `gro`, keeps super-packets away: they come
            // from the host at the other end (virtio, Xen), or from the interface below it.
            if driver.bus.is_empty() || BEFORE_A_HOST.contains(&driver.name.as_str()) {
                return Err(Error::Xdp(format!(
                    "the driver of {name} has no XDP of its own, and super-packets may come to {name}"
                )));
            }
            if interface.ethtool(GGRO) == Some(true) {
                return Err(Error::Xdp(format!(
                    "the driver of {name} has no XDP of its own, and {name} merges frames before the kernel's; \
                     `ethtool -K {name} gro off` keeps them apart"
                )));
            }
            redirect(Mode::Generic, None).map_err(|error| no_program(name, error))
        }
        other => other.map_err(|error| no_program(name, error)),
    }
}

/// The error if the program cannot be attached to an interface.
fn no_program(name: &str, error: io::Error) -> Error {
    Error::Xdp(match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            return Error::NotPermitted { what: "an XDP program", right: "CAP_NET_ADMIN and CAP_BPF", source: error };
        }
        Some(libc::EBUSY | libc::EEXIST) => {
            return Error::Foreign(format!(
                "no AF_XDP: another XDP program is attached to {name}; `ip link show dev {name}` shows it"
            ));
        }
        // The errors of veth (`veth_xdp_set` of drivers/net/veth.c); other drivers use the first
        // one.
        Some(libc::ERANGE) => format!("the MTU of {name}, or of its peer, is too large for a program there"),
        Some(libc::ENOSPC) => format!("the peer of {name} sends by more queues than {name} receives from"),
        _ => format!("{name} takes no program ({error})"),
    })
}

#[cfg(test)]
mod tests;
