//! Watches the packets of an interface, shaped or not: their headers and lengths.

use std::io;
use std::os::fd::AsFd;

use altq_engine::headers::{FragmentCache, Headers, Key, parse_ethernet, parse_ip};
use altq_engine::units::{Nanos, SECOND};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::Error;
use crate::running::find;
use crate::sys::packet::Listener;
use crate::sys::wait::now;

/// How many bytes of a frame are read: enough for the headers, including those of tunnels.
const HEAD: usize = 256;
/// The number of frames between two readings of the clock.
const BATCH: usize = 256;

/// Reads the headers of a frame.
type Parse = fn(&[u8], u32) -> Headers;

/// How the frames of an interface of this type (ARPHRD_ in linux/if_arp.h) are read; `None`: they
/// are neither Ethernet frames nor bare IP packets.
fn parse_of(hardware: u16) -> Option<Parse> {
    match hardware {
        // Ethernet, and the loopback interface.
        1 | 772 => Some(parse_ethernet),
        // ppp; raw IP, as of modems; tunnels in IPv4 and IPv6; sit; none, as of tun and WireGuard.
        512 | 519 | 768 | 769 | 776 | 0xfffe => Some(parse_ip),
        _ => None,
    }
}

/// Watches what comes in at an interface and leaves by it.
#[derive(Debug)]
pub struct Lookout {
    name: String,
    listener: Listener,
    parse: Parse,
    fragments: FragmentCache,
}

impl Lookout {
    /// Watches an interface of the calling thread's network namespace. Frames for other hosts are
    /// seen only if the interface is promiscuous.
    ///
    /// # Errors
    /// [`Error::NoInterface`]; [`Error::NotPermitted`] without CAP_NET_RAW; [`Error::Interface`]:
    /// it has neither Ethernet frames nor bare IP packets.
    pub fn new(interface: &str) -> Result<Lookout, Error> {
        let index = find(interface)?.index;
        let listener = Listener::open(index).map_err(|error| Error::of("listening on packet sockets", error))?;
        let hardware = listener.hardware().map_err(|error| Error::of("listening on packet sockets", error))?;
        let name = interface.to_owned();
        match parse_of(hardware) {
            Some(parse) => Ok(Lookout { name, listener, parse, fragments: FragmentCache::new() }),
            None => Err(Error::Interface {
                name,
                state: "has neither Ethernet frames nor bare IP packets; watch the one below or above it",
            }),
        }
    }

    /// The time of packets: CLOCK_MONOTONIC.
    pub fn now() -> Nanos {
        now()
    }

    /// Frames that came faster than they were read, and were lost.
    pub fn missed(&mut self) -> u64 {
        self.listener.missed()
    }

    /// Calls `see` with the time, key and length (from the IP header on) of each packet until the
    /// given time.
    ///
    /// # Errors
    /// [`Error::Interface`]: the interface is down or gone.
    pub fn until(&mut self, end: Nanos, mut see: impl FnMut(Nanos, &Key, u32)) -> Result<(), Error> {
        let mut head = [0; HEAD];
        loop {
            let at = now();
            if at >= end {
                return Ok(());
            }
            for _ in 0..BATCH {
                match self.listener.receive(&mut head) {
                    Ok((count, long)) => {
                        let bytes = head.get(..count).unwrap_or(&head);
                        let mut found = (self.parse)(bytes, u32::try_from(long).unwrap_or(u32::MAX));
                        if found.fragment.is_some() {
                            self.fragments.see(&mut found);
                        }
                        see(at, &found.key, found.key.length);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.wait(end.saturating_sub(now()))?;
                        break;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {
                        return Err(Error::Interface {
                            name: self.name.clone(),
                            state: "is down or gone; `ip link set … up`",
                        });
                    }
                    Err(error) => return Err(Error::of("listening on packet sockets", error)),
                }
            }
        }
    }

    fn wait(&self, most: Nanos) -> Result<(), Error> {
        let timeout = Timespec { tv_sec: (most / SECOND) as i64, tv_nsec: (most % SECOND) as _ };
        match poll(&mut [PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Error::of("waiting", error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_their_interface_has_them() {
        // An IPv4 header of a UDP packet, without and with one of Ethernet before it.
        let mut bare = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        bare.extend([0, 53, 0, 53, 0, 8, 0, 0]);
        let framed = [&[0u8; 12][..], &[8, 0][..], bare.as_slice()].concat();
        for (hardware, bytes) in [
            (libc::ARPHRD_ETHER, &framed),
            (libc::ARPHRD_LOOPBACK, &framed),
            (libc::ARPHRD_PPP, &bare),
            (libc::ARPHRD_NONE, &bare),
            (libc::ARPHRD_TUNNEL, &bare),
        ] {
            let found = parse_of(hardware).unwrap()(bytes, bytes.len() as u32);
            assert_eq!((found.key.family, found.key.proto, found.key.length), (4, 17, 28));
        }
        // Wi-Fi frames with radiotap headers.
        assert!(parse_of(libc::ARPHRD_IEEE80211_RADIOTAP).is_none());
    }
}
