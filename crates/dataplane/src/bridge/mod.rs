//! A bridge between two interfaces, by packet sockets or by AF_XDP, which shapes what it forwards.
//!
//! `device bridge a b` shapes frames that come in at `a` and leave by `b`. The other direction is
//! forwarded unshaped, unless another link says `bridge b a`. Each direction is a thread with its
//! own sockets. Nothing has to be undone afterwards: promiscuous mode, and the program that keeps
//! the kernel's network stack from handling the frames, belong to descriptors. So the kernel
//! removes them when the process ends, however it ends. While no process runs the bridge, nothing
//! is forwarded, unless another process has set a [`Bypass`], which stays even if that process is
//! killed.

mod bypass;
mod edge;
mod ends;
mod forward;
pub(crate) mod hook;
mod standby;
pub(crate) mod xdp;

use std::os::fd::OwnedFd;

use altq_config::Link;

use crate::edge::Edge;
use crate::error::Error;
use crate::lock::Lock;
pub use crate::running::{Loop, Options, Running};
use crate::running::{Senders, Starting, channel, find};
use crate::shaper::{Shaper, Tuning};
use crate::stop::Stop;
use crate::sys::bpf;
use crate::sys::interface::Interface;
use crate::verify::Guard;
use crate::ways::Way;
pub use bypass::{Bypass, Claim};
pub use edge::OneWay;
pub use forward::forward;
pub use hook::{left_hooks, lift_hook};
pub use standby::{Standby, sweep_left};
use xdp::RingWay;

/// Opens the interfaces of `links`, in the network namespace of the calling thread, and shapes
/// until stopped, by packet sockets whatever [`Options::xdp`] says. Errors after this has returned
/// come only from changes to the interfaces.
///
/// # Errors
/// [`Error::Link`] for a link without a bridge, or bridges that exclude each other;
/// [`Error::NoInterface`], [`Error::NotReady`] if an interface is missing or carries no frames;
/// [`Error::NotPermitted`], [`Error::Unsupported`] if the host does not allow or cannot do it;
/// [`Error::Spec`] if the engine refuses a link.
pub fn run(links: &[&Link], options: Options) -> Result<Running, Error> {
    let tuning = options.tuning;
    run_with(links, options, shaped(tuning, &mut Senders::new()))
}

/// Makes the loops of [`run`], and the senders of changes to them.
pub(crate) fn shaped(
    tuning: Tuning,
    senders: &mut Senders,
) -> impl FnMut(&str, Option<&Link>, OneWay) -> Result<Loop, Error> {
    move |from, link, one_way| {
        let stop = one_way.stopper();
        loop_of(one_way, stop, from, link, tuning, senders)
    }
}

/// The loop of a direction on an edge. `stop` ends and wakes it. Its sender is added to the others.
fn loop_of<E: Edge + Send + 'static>(
    edge: E,
    stop: Stop,
    from: &str,
    link: Option<&Link>,
    tuning: Tuning,
    senders: &mut Senders,
) -> Result<Loop, Error> {
    Ok(match link {
        Some(link) => {
            let mut shaper = Shaper::new(link, from, edge, tuning)?;
            channel(senders, link, stop, &mut shaper);
            Box::new(move |report| shaper.run(report))
        }
        None => Box::new(move |_| forward(edge)),
    })
}

/// As [`run`], with loops made by `make` from the edge of each direction. `make` is called once per
/// direction, with the name of the interface at which frames come in, and the link that shapes
/// them, if there is one.
///
/// # Errors
/// Those of [`run`], and those of `make`.
pub fn run_with(
    links: &[&Link],
    options: Options,
    mut make: impl FnMut(&str, Option<&Link>, OneWay) -> Result<Loop, Error>,
) -> Result<Running, Error> {
    let mut starting = Starting::new(options)?;
    for way in crate::ways::ways(links)? {
        match way {
            Way::Bridge { from, to, link } => add(&mut starting, from, to, link, &mut make)?,
            Way::Interface { link, .. } => {
                return Err(Error::Link(format!("link `{}`: this needs `device bridge A B`", link.name)));
            }
        }
    }
    starting.start()
}

/// Adds the loop of one direction of a bridge.
pub(crate) fn add(
    starting: &mut Starting,
    from: &str,
    to: &str,
    link: Option<&Link>,
    make: &mut impl FnMut(&str, Option<&Link>, OneWay) -> Result<Loop, Error>,
) -> Result<(), Error> {
    let (input, output) = (find(from)?, find(to)?);
    ends::check(&input)?;
    ends::check(&output)?;
    let lock = Lock::take(from, true)?;
    let claim = starting.claim.clone();
    let alone = alone(starting, from)?;
    let guard = if claim.is_some() { None } else { guard(from, input.index, &mut starting.notes) };
    if let Some(link) = link
        && (claim.is_some() || guard.is_some())
    {
        let program = if claim.is_some() { Guard::FORWARDS } else { Guard::DROPS };
        let guard = Guard { interface: from.to_owned(), program: program.to_owned() };
        starting.set_up.entry(link.name.clone()).or_default().guards.push(guard);
    }
    describe(&input, &output, link, &mut starting.notes);
    let stop = starting.stop.for_loop().map_err(|e| Error::of("event descriptors", e))?;
    let (one_way, ear) = match &claim {
        Some(_) => OneWay::open_deaf(input, output, stop, starting.spin).map(|(one_way, ear)| (one_way, Some(ear)))?,
        None => (OneWay::open(input, output, guard, stop, starting.spin)?, None),
    };
    let work = make(from, link, one_way)?;
    starting.add(
        format!("altq {from}>{to}"),
        Box::new(move |report| {
            let _locks = (lock, alone);
            if let (Some(claim), Some(ear)) = (claim, ear) {
                // In this order a frame may be lost, but none passes twice.
                claim.begin();
                ear.hear().map_err(|error| Error::of("receiving", error))?;
            }
            work(report)
        }),
    );
    Ok(())
}

/// Removes the program that a killed process may have left at an interface, unless the process that
/// has started this one looks after the program. Otherwise it would forward frames that a loop
/// forwards too. The lock keeps others from setting one.
fn alone(starting: &mut Starting, from: &str) -> Result<Option<Lock>, Error> {
    if starting.claim.is_some() {
        return Ok(None);
    }
    let (lock, was_there) = hook::take_over(from)?;
    if was_there {
        starting.notes.push(format!("the program that a killed altq has left at {from} is gone"));
    }
    Ok(Some(lock))
}

/// Keeps the kernel's own stack from handling what comes in at an interface. If that fails, adds a
/// note.
fn guard(from: &str, index: u32, notes: &mut Vec<String>) -> Option<OwnedFd> {
    match bpf::drop_ingress(index) {
        Ok(guard) => Some(guard),
        Err(error) => {
            notes.push(format!(
                "the kernel's own stack handles what comes in at {from} as well (no tcx program: {error}); keep \
                 addresses and forwarding off {from}"
            ));
            None
        }
    }
}

/// Adds the loop of one direction of a bridge by AF_XDP.
pub(crate) fn add_rings(
    starting: &mut Starting,
    from: &str,
    to: &str,
    link: Option<&Link>,
    edge: RingWay,
    tuning: Tuning,
) -> Result<(), Error> {
    describe_mtu(&find(from)?, &find(to)?, &mut starting.notes);
    let alone = alone(starting, from)?;
    let stop = edge.stopper();
    let work = loop_of(edge, stop, from, link, tuning, &mut starting.senders)?;
    let claim = starting.claim.clone();
    starting.add(
        format!("altq {from}>{to}"),
        Box::new(move |report| {
            let _alone = alone;
            // Frames that XDP takes do not reach the ingress hook. This is for frames that it
            // leaves.
            if let Some(claim) = claim {
                claim.begin();
            }
            work(report)
        }),
    );
    Ok(())
}

/// Notes which offloads are on, and MTUs that do not match.
fn describe(from: &Interface, to: &Interface, link: Option<&Link>, notes: &mut Vec<String>) {
    const GRO: u32 = 0x2b; // ETHTOOL_GGRO
    const GSO: u32 = 0x23; // ETHTOOL_GGSO
    const TSO: u32 = 0x1e; // ETHTOOL_GTSO
    let word = |on: Option<bool>| match on {
        Some(true) => "on",
        Some(false) => "off",
        None => "unknown",
    };
    if let Some(link) = link {
        notes.push(format!(
            "link {}: {} -> {}, gro {} at {}, gso {} and tso {} at {}",
            link.name,
            from.name,
            to.name,
            word(from.ethtool(GRO)),
            from.name,
            word(to.ethtool(GSO)),
            word(to.ethtool(TSO)),
            to.name,
        ));
    }
    describe_mtu(from, to, notes);
}

/// Notes MTUs that do not match.
fn describe_mtu(from: &Interface, to: &Interface, notes: &mut Vec<String>) {
    if let (Ok(input), Ok(output)) = (from.mtu(), to.mtu())
        && input > output
    {
        notes.push(format!(
            "frames of more than {output} bytes that come in at {} (mtu {input}) cannot leave by {} (mtu {output}) and \
             will be dropped",
            from.name, to.name
        ));
    }
}
