//! One direction of a bridge: frames that come in at one interface and leave by another.

use std::os::fd::{AsFd, OwnedFd};

use altq_engine::shape::pacer::SEEN_LATE;
use altq_engine::units::Nanos;
use rustix::event::{PollFd, PollFlags};

use super::ends::Ends;
use crate::edge::{Blocked, Edge, EdgeCounters, Sent, Want, Woken};
use crate::error::Error;
use crate::pool::Pool;
use crate::segment::Super;
use crate::stop::Stop;
use crate::sys::interface::Interface;
use crate::sys::packet::{Ear, Receiver, Sender};
use crate::sys::wait::{now, wait};
use crate::vnet::{GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4};

/// Time after which sending is tried again if the device's queue was full (ENOBUFS). The device
/// does not report when it has room.
pub(super) const RETRY: Nanos = 50_000;
/// After so long without success, ENOBUFS has another reason than a full queue.
const SOON: Nanos = 1_000_000;
/// After so long a super-packet is one that the device cannot segment: the kernel drops it then,
/// and says ENOBUFS as well (validate_xmit_skb_list in __dev_direct_xmit).
const STUCK: Nanos = 200_000_000;
/// ETHTOOL_GTSO: whether the device segments TCP.
const TSO: u32 = 0x1e;

/// One direction of a bridge.
pub struct OneWay {
    ends: Ends,
    receiver: Receiver,
    sender: Sender,
    stop: Stop,
    counters: EdgeCounters,
    /// Frames that the device had dropped before the start.
    dropped_before: u64,
    /// Since when ENOBUFS is the answer to each attempt, and how many there were.
    refused: Option<(Nanos, u64)>,
    /// Whether the device segments super-packets of TCP over IPv4, over IPv6, and of UDP, as far as
    /// is known.
    segments: [bool; 3],
    /// What ethtool last said of TCP.
    tso: Option<bool>,
    /// For how many nanoseconds it polls for frames before it sleeps.
    spin: Nanos,
    /// While this descriptor is open, the kernel's network stack does not handle incoming frames.
    _guard: Option<OwnedFd>,
}

impl OneWay {
    /// Opens the direction from `from` to `to`. `guard` keeps the kernel's network stack from
    /// handling the frames. `spin`: for how many nanoseconds it polls for frames before it sleeps.
    ///
    /// # Errors
    /// [`Error::NotPermitted`], [`Error::Unsupported`].
    pub fn open(
        from: Interface,
        to: Interface,
        guard: Option<OwnedFd>,
        stop: Stop,
        spin: Nanos,
    ) -> Result<OneWay, Error> {
        let receiver = Receiver::open(from.index).map_err(|e| Error::of("receiving on packet sockets", e))?;
        OneWay::with(from, to, receiver, guard, stop, spin)
    }

    /// As [`OneWay::open`], but nothing is received before [`Ear::hear`], and without a guard: the
    /// caller must keep the kernel's network stack from handling the frames.
    ///
    /// # Errors
    /// As [`OneWay::open`].
    pub(super) fn open_deaf(from: Interface, to: Interface, stop: Stop, spin: Nanos) -> Result<(OneWay, Ear), Error> {
        let (receiver, ear) =
            Receiver::open_deaf(from.index).map_err(|e| Error::of("receiving on packet sockets", e))?;
        Ok((OneWay::with(from, to, receiver, None, stop, spin)?, ear))
    }

    fn with(
        from: Interface,
        to: Interface,
        receiver: Receiver,
        guard: Option<OwnedFd>,
        stop: Stop,
        spin: Nanos,
    ) -> Result<OneWay, Error> {
        let sender = Sender::open(to.index).map_err(|e| Error::of("sending on packet sockets", e))?;
        let dropped_before = to.dropped_on_sending().unwrap_or(0);
        let counters = EdgeCounters::default();
        let ends = Ends::new(from, to);
        let (refused, segments) = (None, [true; 3]);
        let mut way = OneWay {
            ends,
            receiver,
            sender,
            stop,
            counters,
            dropped_before,
            refused,
            segments,
            tso: None,
            spin,
            _guard: guard,
        };
        way.look_at_offload();
        Ok(way)
    }

    /// Asks whether the device segments TCP. Whoever switches that on or off decides until the
    /// device shows something else.
    fn look_at_offload(&mut self) {
        let tso = self.ends.to.ethtool(TSO);
        if tso != self.tso {
            self.tso = tso;
            let can = tso != Some(false);
            (self.segments[0], self.segments[1]) = (can, can);
        }
    }

    /// The kernel has refused a frame with ENOBUFS. Returns when to try again; `None` if this frame
    /// can never be sent.
    fn refused(&mut self, pool: &Pool, handle: u32) -> Result<Option<Nanos>, Error> {
        let now = now();
        let (since, attempts) = self.refused.get_or_insert((now, 0));
        *attempts += 1;
        let (since, attempts) = (*since, *attempts);
        self.look(now)?;
        if now.saturating_sub(since) < SOON {
            return Ok(Some(now + RETRY));
        }
        let again = self.ends.without_carrier();
        let kind = kind(pool.vnet(handle).kind()).filter(|_| again.is_none());
        if let Some(kind) = kind
            && now.saturating_sub(since) >= STUCK
        {
            self.segments[kind] = false;
        }
        let never = kind.is_some_and(|kind| !self.segments[kind]);
        if never || again.is_some() {
            // The kernel has counted these attempts as drops, but nothing is lost by them.
            self.dropped_before += attempts;
            self.refused = None;
        }
        Ok(if never { None } else { Some(again.unwrap_or(now + RETRY)) })
    }

    /// At intervals, checks the interfaces, and what they can do.
    fn look(&mut self, now: Nanos) -> Result<(), Error> {
        if self.ends.look_if_due(now)? {
            self.look_at_offload();
        }
        Ok(())
    }

    /// The signal that ends its loop, and wakes it.
    pub(super) fn stopper(&self) -> Stop {
        self.stop.clone()
    }
}

/// Where layer 3 begins behind one VLAN tag.
const ONE_TAG: usize = 18;

/// The place in [`OneWay::segments`] of a kind of super-packet; `None` for other frames.
fn kind(vnet: u8) -> Option<usize> {
    match vnet {
        GSO_TCPV4 => Some(0),
        GSO_TCPV6 => Some(1),
        GSO_UDP_L4 => Some(2),
        _ => None,
    }
}

impl Edge for OneWay {
    fn now(&mut self) -> Nanos {
        now()
    }

    fn seen_late(&self) -> Nanos {
        SEEN_LATE
    }

    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<u32>) -> Result<bool, Error> {
        let before = out.len();
        match self.receiver.receive(pool, out) {
            Ok(received) => {
                self.counters.received += (out.len() - before) as u64;
                self.counters.received_bytes += received.bytes;
                self.counters.unreadable += received.too_long;
                Ok(received.had_room)
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(true),
                Some(libc::EINVAL) => {
                    self.counters.unreadable += 1;
                    Ok(true)
                }
                // Memory was short. The kernel keeps the frame or counts it as missed.
                Some(libc::ENOMEM | libc::ENOBUFS) => Ok(true),
                // It is told once. Frames come again when the interface is up again.
                Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => self.ends.down().map(|_| true),
                _ => Err(Error::of("receiving", error)),
            },
        }
    }

    fn send(&mut self, pool: &mut Pool, frames: &[u32], _: &[Nanos]) -> Result<Sent, Error> {
        let mut done = 0;
        while done < frames.len() {
            match self.sender.send(pool, &frames[done..]) {
                Ok(sent) => {
                    done += sent;
                    self.counters.sent += sent as u64;
                    self.refused = None;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN) => {
                        self.counters.blocked += 1;
                        return Ok(Sent { done, blocked: Some(Blocked::Full) });
                    }
                    Some(libc::ENOBUFS | libc::ENOMEM) => {
                        if let Some(again) = self.refused(pool, frames[done])? {
                            self.counters.blocked += 1;
                            return Ok(Sent { done, blocked: Some(Blocked::Until(again)) });
                        }
                        self.counters.refused += 1;
                        done += 1;
                    }
                    Some(libc::EMSGSIZE | libc::EINVAL) => {
                        self.counters.refused += 1;
                        done += 1;
                    }
                    // As if its queue were full, until it is up again.
                    Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                        self.counters.blocked += 1;
                        let again = self.ends.down()?;
                        return Ok(Sent { done, blocked: Some(Blocked::Until(again)) });
                    }
                    _ => return Err(Error::of("sending", error)),
                },
            }
        }
        Ok(Sent { done, blocked: None })
    }

    fn segments(&self, whole: &Super) -> bool {
        // With more than one VLAN tag, drivers segment nothing (vlan_features_check).
        let at = if whole.udp { 2 } else { usize::from(whole.v6) };
        self.segments[at] && whole.layer3 <= ONE_TAG
    }

    fn refuse(&mut self, _: u32) {
        self.counters.refused += 1;
    }

    fn wait(&mut self, deadline: Option<Nanos>, want: Want) -> Result<Woken, Error> {
        let now = now();
        self.look(now)?;
        let receive = if want.frames { PollFlags::IN } else { PollFlags::empty() };
        let mut watched = [
            PollFd::from_borrowed_fd(self.receiver.as_fd(), receive),
            PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.sender.as_fd(), if want.room { PollFlags::OUT } else { PollFlags::empty() }),
        ];
        wait(&mut watched, now, deadline.unwrap_or(Nanos::MAX).min(self.ends.look_at()), self.spin)?;
        let [receiver, stop, sender] = watched.map(|fd| fd.revents());
        // Polling the socket again would return at once until its error has been read.
        if sender.intersects(PollFlags::ERR | PollFlags::HUP) {
            self.sender.take_error();
            self.ends.down()?;
        }
        Ok(Woken { frames: !receiver.is_empty(), stop: !stop.is_empty() && self.stop.ends() })
    }

    fn stopped(&mut self) -> bool {
        self.stop.is_set()
    }

    fn counters(&mut self) -> EdgeCounters {
        self.counters.missed = self.receiver.missed();
        if let Some(dropped) = self.ends.to.dropped_on_sending() {
            self.counters.lost = dropped.saturating_sub(self.dropped_before);
        }
        self.counters
    }
}
