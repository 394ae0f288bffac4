//! Makes the kernel forward what comes in at a bridge's interfaces while no loop does.
//!
//! A program at the ingress hook of each interface ([`forward_ingress`]) reads a time that the
//! kernel and the processes share. Before that time a loop handles the frames; after it the program
//! hands them to the bridge's other interface. A process whose loops work keeps moving the time on
//! ([`Claim`]). So when it is killed, stopped or stuck, frames pass unshaped, and nobody has to
//! notice it first. The programs are kept by another process ([`Bypass`]), which outlives it.
//!
//! If a loop was late and goes on before its process is killed, it sends the frames that it
//! received meanwhile, so these pass twice.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use altq_config::Link;
use altq_engine::units::Nanos;

use crate::error::Error;
use crate::running::find;
use crate::sys::bpf;
use crate::sys::number::{Number, inherited};
use crate::sys::packet;
use crate::sys::wait::now;
use crate::ways::{Way, ways};

/// How long the first claim of a loop holds: until the process begins to renew it.
const BEGIN: Nanos = 10_000_000_000;

/// The programs that forward while nobody claims the frames. Dropping it removes them.
#[derive(Debug)]
pub struct Bypass {
    /// For each program, the indices of the interfaces from and to which it forwards.
    ways: Vec<(u32, u32)>,
    until: Number,
    map: OwnedFd,
    _programs: Vec<OwnedFd>,
    /// Keeps the interfaces in promiscuous mode. A card would filter frames for other hosts out
    /// before the programs see them.
    _promiscuous: Vec<OwnedFd>,
}

impl Bypass {
    /// Attaches programs to the interfaces that links bridge, in the network namespace of the
    /// calling thread. `None` if no link bridges. Until [`Bypass::forward`] or the first claim they
    /// only keep frames from the kernel's stack, because another process may already forward there.
    ///
    /// # Errors
    /// [`Error::NoInterface`]; [`Error::NotPermitted`] without CAP_BPF, CAP_NET_ADMIN and
    /// CAP_NET_RAW; [`Error::Io`] on a kernel before Linux 6.6.
    pub fn new(links: &[&Link]) -> Result<Option<Bypass>, Error> {
        let ways = indices(links)?;
        if ways.is_empty() {
            return Ok(None);
        }
        let io = |error: io::Error| Error::of("BPF programs at a bridge", error);
        let map = bpf::shared_number().map_err(io)?;
        let until = Number::of(&map).map_err(io)?;
        until.set(Nanos::MAX);
        let programs = ways.iter().map(|(from, to)| bpf::forward_ingress(*from, *to, map.as_fd()));
        let programs = programs.collect::<io::Result<Vec<OwnedFd>>>().map_err(io)?;
        let promiscuous: io::Result<Vec<OwnedFd>> = ways.iter().map(|(from, _)| packet::promiscuous(*from)).collect();
        let promiscuous = promiscuous.map_err(|error| Error::of("promiscuous mode", error))?;
        Ok(Some(Bypass { ways, until, map, _programs: programs, _promiscuous: promiscuous }))
    }

    /// True if these are the interfaces that the links bridge now. An interface that was removed
    /// and made again is another one.
    pub fn fits(&self, links: &[&Link]) -> bool {
        indices(links).is_ok_and(|ways| ways == self.ways)
    }

    /// Forwards until somebody claims the frames. It must be called only when the process that had
    /// claimed them has ended.
    pub fn forward(&self) {
        self.until.set(0);
    }
}

/// The descriptor with which to start a process that will claim the frames.
impl AsFd for Bypass {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

/// The indices of the interfaces that are bridged, from and to.
fn indices(links: &[&Link]) -> Result<Vec<(u32, u32)>, Error> {
    let mut indices = Vec::new();
    for way in ways(links)? {
        if let Way::Bridge { from, to, .. } = way {
            indices.push((find(from)?.index, find(to)?.index));
        }
    }
    Ok(indices)
}

/// A claim of the frames for the loops of this process. Dropping it does not end the claim; it ends
/// when its time is over.
#[derive(Clone, Debug)]
pub struct Claim {
    until: Number,
    /// For how long a claim holds.
    patience: Nanos,
}

impl Claim {
    /// A claim of what the [`Bypass`] of another process forwards. `number` is the inherited
    /// descriptor of that [`Bypass`]. Each renewal holds for `patience`.
    ///
    /// # Errors
    /// There is no such descriptor, or it is not that of a [`Bypass`].
    pub fn inherited(number: RawFd, patience: Nanos) -> io::Result<Claim> {
        Ok(Claim { until: Number::of(inherited(number)?)?, patience })
    }

    /// Claims the frames when a loop begins. The claim must soon be [renewed](Claim::renew).
    pub(crate) fn begin(&self) {
        self.until.set(now().saturating_add(BEGIN));
    }

    /// Claims the frames again, because the loops work.
    pub fn renew(&self) {
        self.until.set(now().saturating_add(self.patience));
    }
}
