//! Watches the packets of an interface, shaped or not: their headers and lengths.

use std::io;
use std::os::fd::AsFd;

use altq_engine::headers::{FragmentCache, Key, parse_ethernet};
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

/// Watches what comes in at an interface and leaves by it.
#[derive(Debug)]
pub struct Lookout {
    name: String,
    listener: Listener,
    fragments: FragmentCache,
}

impl Lookout {
    /// Watches an interface of the calling thread's network namespace. Frames for other hosts are
    /// seen only if the interface is promiscuous.
    ///
    /// # Errors
    /// [`Error::NoInterface`]; [`Error::NotPermitted`] without CAP_NET_RAW.
    pub fn new(interface: &str) -> Result<Lookout, Error> {
        let index = find(interface)?.index;
        let listener = Listener::open(index).map_err(|error| Error::of("listening on packet sockets", error))?;
        Ok(Lookout { name: interface.to_owned(), listener, fragments: FragmentCache::new() })
    }

    /// The time of packets: CLOCK_MONOTONIC.
    pub fn now() -> Nanos {
        now()
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
                        let mut found = parse_ethernet(bytes, u32::try_from(long).unwrap_or(u32::MAX));
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
