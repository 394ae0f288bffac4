//! Makes the kernel forward what comes in at a bridge's interfaces while no loop does.
//!
//! A program for what comes in at each interface ([`Hook`],
//! [`forward_program`](bpf::forward_program)) reads a time that the kernel and the processes share.
//! Before that time a loop handles the frames; after it the program hands them to the bridge's
//! other interface. A process whose loops work keeps moving the time on ([`Claim`]). So when it is
//! killed, stopped or stuck, frames pass unshaped, and nobody has to notice it first. Another
//! process sets the programs ([`Bypass`]). They outlive that one as well: when both are killed,
//! frames pass until somebody removes the programs.
//!
//! If a loop was late and goes on before its process is killed, it sends the frames that it
//! received meanwhile, so these pass twice.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use altq_config::Link;
use altq_engine::units::Nanos;

use super::hook::{Hook, lift_hook};
use crate::error::Error;
use crate::running::find;
use crate::sys::bpf;
use crate::sys::interface::Interface;
use crate::sys::number::{Number, inherited};
use crate::sys::wait::now;
use crate::ways::{Way, ways};

/// How long the first claim of a loop holds: until the process begins to renew it.
const BEGIN: Nanos = 2_000_000_000;

/// The programs that forward while nobody claims the frames. Dropping it removes them; killing the
/// process does not.
#[derive(Debug)]
pub struct Bypass {
    /// For each program, the indices of the interfaces from and to which it forwards.
    ways: Vec<(u32, u32)>,
    until: Number,
    map: OwnedFd,
    _hooks: Vec<Hook>,
}

impl Bypass {
    /// Sets programs at the interfaces that links bridge, in the network namespace of the calling
    /// thread, in place of those that a killed process has left. `None` if no link bridges. Frames
    /// that passed until now go on passing; otherwise a process has two seconds to claim them,
    /// because another one may still forward.
    ///
    /// # Errors
    /// [`Error::NoInterface`]; [`Error::Held`] if another process bridges one of the interfaces;
    /// [`Error::NotPermitted`] without CAP_BPF and CAP_NET_ADMIN; [`Error::Io`], [`Error::Lacks`],
    /// [`Error::Kernel`] if the kernel cannot do it. Linux 5.8 can.
    pub fn new(links: &[&Link]) -> Result<Option<Bypass>, Error> {
        let found = bridged(links)?;
        if found.is_empty() {
            return Ok(None);
        }
        let io = |error: io::Error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                let (what, right) = ("BPF programs at a bridge", "CAP_BPF and CAP_NET_ADMIN");
                Error::NotPermitted { what, right, source: error }
            }
            _ => Error::of("BPF programs at a bridge", error),
        };
        let map = bpf::shared_number().map_err(io)?;
        let until = Number::of(&map).map_err(io)?;
        until.set(now().saturating_add(BEGIN));
        let mut hooks = Vec::with_capacity(found.len());
        for (from, to) in &found {
            let program = bpf::forward_program(to.index, map.as_fd()).map_err(io)?;
            hooks.push(Hook::set(from, program.as_fd())?);
        }
        if hooks.iter().any(|hook| hook.was_left) {
            until.set(0);
        }
        Ok(Some(Bypass { ways: indices(&found), until, map, _hooks: hooks }))
    }

    /// Removes the programs that a killed process has left at the interfaces that links bridge.
    ///
    /// # Errors
    /// As [`new`](Bypass::new).
    pub fn sweep(links: &[&Link]) -> Result<(), Error> {
        bridged(links)?.iter().try_for_each(|(from, _)| lift_hook(&from.name).map(drop))
    }

    /// True if these are the interfaces that the links bridge now. An interface that was removed
    /// and made again is another one.
    pub fn fits(&self, links: &[&Link]) -> bool {
        bridged(links).is_ok_and(|found| indices(&found) == self.ways)
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

/// The interfaces that are bridged, from and to.
fn bridged(links: &[&Link]) -> Result<Vec<(Interface, Interface)>, Error> {
    let mut found = Vec::new();
    for way in ways(links)? {
        if let Way::Bridge { from, to, .. } = way {
            found.push((find(from)?, find(to)?));
        }
    }
    Ok(found)
}

fn indices(found: &[(Interface, Interface)]) -> Vec<(u32, u32)> {
    found.iter().map(|(from, to)| (from.index, to.index)).collect()
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
