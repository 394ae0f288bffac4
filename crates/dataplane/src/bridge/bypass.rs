//! The kernel forwards what comes in at a bridge's interfaces while no loop does.
//!
//! A program at the ingress hook of each interface ([`forward_ingress`]) looks at a time that the
//! kernel and the processes share. Before it, a loop has the frames; from then on the program hands
//! them to the bridge's other interface. A process whose loops go round moves the time on
//! ([`Claim`]). So frames pass, unshaped, when it is killed, stopped or stuck, without anybody who
//! would have to notice. Who keeps the programs ([`Bypass`]) is another process, which outlives it.
//!
//! A loop that was late, and goes on before its process is killed, sends what it has received
//! meanwhile: those frames pass twice.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use altq_config::Link;
use altq_engine::units::Nanos;

use crate::error::Error;
use crate::running::find;
use crate::sys::bpf;
use crate::sys::number::{Number, inherited};
use crate::sys::wait::now;
use crate::ways::{Way, ways};

/// How long the loops may take from their start until somebody watches over them.
const BEGIN: Nanos = 10_000_000_000;

/// The programs that forward while nobody claims the frames. Dropping it takes them away.
#[derive(Debug)]
pub struct Bypass {
    /// Indices of the interfaces that each program takes from and hands to.
    ways: Vec<(u32, u32)>,
    until: Number,
    map: OwnedFd,
    _programs: Vec<OwnedFd>,
}

impl Bypass {
    /// Programs between the interfaces that links bridge, in the network namespace of the calling
    /// thread. `None` if no link bridges. They only keep frames from the kernel's stack before
    /// [`Bypass::forward`] or the first claim: perhaps another process forwards there already.
    ///
    /// # Errors
    /// [`Error::NoInterface`]; [`Error::NotPermitted`] without CAP_BPF and CAP_NET_ADMIN;
    /// [`Error::Io`] on a kernel before Linux 6.6.
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
        Ok(Some(Bypass { ways, until, map, _programs: programs }))
    }

    /// True if these are the interfaces that the links bridge now: one that went away and came back
    /// is another.
    pub fn fits(&self, links: &[&Link]) -> bool {
        indices(links).is_ok_and(|ways| ways == self.ways)
    }

    /// Forwards from now on, until somebody claims the frames: whoever had claimed them has ended.
    pub fn forward(&self) {
        self.until.set(0);
    }
}

/// What a process that is to claim the frames is to be started with.
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

/// Claims the frames for the loops of this process. Dropping it changes nothing: the claim ends at
/// its time.
#[derive(Clone, Debug)]
pub struct Claim {
    until: Number,
    /// For how long a claim holds.
    patience: Nanos,
}

impl Claim {
    /// Claims what a [`Bypass`] of another process forwards. This process was started with its
    /// descriptor, which is `number`. A claim holds for `patience`.
    ///
    /// # Errors
    /// There is no such descriptor, or it is not that of a [`Bypass`].
    pub fn inherited(number: RawFd, patience: Nanos) -> io::Result<Claim> {
        Ok(Claim { until: Number::of(inherited(number)?)?, patience })
    }

    /// Claims the frames as a loop begins: somebody is to [`renew`](Claim::renew) that soon.
    pub(crate) fn begin(&self) {
        self.until.set(now().saturating_add(BEGIN));
    }

    /// Claims the frames again: the loops go round.
    pub fn renew(&self) {
        self.until.set(now().saturating_add(self.patience));
    }
}
