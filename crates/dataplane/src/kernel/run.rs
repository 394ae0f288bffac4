//! A link that the kernel executes, with a process: it is set up at the start, counted at
//! intervals, set up again where somebody has taken it away, and removed at the end.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use altq_config::Link;
use altq_engine::account::{Counters, DropReason};
use altq_engine::link::Overhead;
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Nanos, SECOND};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{counted, find, refuse_detached, set_up, take_away, vanished};
use crate::edge::EdgeCounters;
use crate::error::Error;
use crate::lock::Lock;
use crate::running::Starting;
use crate::shaper::Tuning;
use crate::stats::{ClassStat, Report, Snapshot, Work};
use crate::stop::Stop;
use crate::sys::wait::now;

/// How often to look whether the link still stands.
const LOOK: Nanos = SECOND / 2;

/// A link on an interface, which is removed when this is dropped.
struct Standing {
    name: String,
    ingress: bool,
    /// True if it was removed already, or must stay.
    gone: bool,
}

impl Standing {
    fn take_away(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.gone, true) {
            return Ok(());
        }
        match take_away(&self.name, self.ingress) {
            // The interface has gone, and its qdiscs with it.
            Err(Error::NoInterface { .. }) => Ok(()),
            // Somebody has put a qdisc of theirs in the place of altq's.
            Err(Error::Foreign(_)) if !self.ingress => Ok(()),
            done => done.map(drop),
        }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if !self.gone {
            // Another link could not be started, and that error is shown.
            let _ = self.take_away();
        }
    }
}

/// Sets up a link, and adds the loop that counts and at the end removes it, or leaves it.
pub(crate) fn add(
    starting: &mut Starting,
    name: &str,
    ingress: bool,
    link: &Link,
    tuning: Tuning,
) -> Result<(), Error> {
    let lock = Lock::take(name, ingress)?;
    refuse_detached(name, ingress)?;
    set_up(name, ingress, link)?;
    let mut standing = Standing { name: name.to_owned(), ingress, gone: starting.leave_rules };
    let does = if ingress { "what comes in at" } else { "what leaves by" };
    starting.notes.push(format!("link {}: {does} {name}, by the kernel's qdiscs", link.name));
    let stop = starting.stop.clone();
    let stands = Arc::new(Mutex::new(Arc::new(link.clone())));
    starting.standing.insert(link.name.clone(), stands.clone());
    let direction = if ingress { '<' } else { '>' };
    starting.add(
        format!("altq {direction}{name}"),
        Box::new(move |report| {
            let _lock = lock;
            let result = watch(&standing.name, standing.ingress, &stands, tuning, &stop, report);
            result.and(standing.take_away())
        }),
    );
    Ok(())
}

/// Counts at intervals until it must stop. `stands` is the link, which may be replaced by another
/// one. While the link does not stand, nothing is counted. That does not end the loop, because the
/// other links of the process would end with it.
fn watch(
    name: &str,
    ingress: bool,
    stands: &Mutex<Arc<Link>>,
    tuning: Tuning,
    stop: &Stop,
    report: &mut dyn FnMut(Report),
) -> Result<(), Error> {
    let began = now();
    let mut before: Option<Snapshot> = None;
    // An interface that comes back after it vanished has another index.
    let mut index = find(name).ok().map(|found| found.index);
    let mut next = tuning.interval.map(|interval| began.saturating_add(interval));
    let mut look = began.saturating_add(LOOK);
    loop {
        let wait = next.map_or(look, |next| next.min(look)).saturating_sub(now());
        let timeout = Timespec { tv_sec: (wait / SECOND) as i64, tv_nsec: (wait % SECOND) as _ };
        let mut watched = [PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::of("waiting", error.into())),
        }
        let (last, at) = (stop.is_set(), now());
        let counts = last || next.is_some_and(|next| next <= at);
        let looks = !last && look <= at;
        let shot = {
            // The tree must not change while it is counted.
            let link = stands.lock().unwrap_or_else(PoisonError::into_inner);
            if looks {
                index = back(name, ingress, &link, index);
                look = now().saturating_add(LOOK);
            }
            // An error here means that the link does not stand: `altq status` says why.
            index.filter(|_| counts).and_then(|_| snapshot(name, ingress, &link, began, before.as_ref(), last).ok())
        };
        if let Some(shot) = shot {
            report(Report::Whole(shot.clone()));
            before = Some(shot);
        }
        if last {
            return Ok(());
        }
        if counts {
            next = next.zip(tuning.interval).map(|(next, interval)| next.saturating_add(interval).max(now()));
        }
    }
}

/// The index of an interface on which the link stands. The link is set up again if the interface
/// has another index than before, because it has come back after it vanished, and if somebody has
/// taken the qdiscs away. `None` if the link does not stand: there is no interface, or somebody
/// else's qdisc is in the way.
fn back(name: &str, ingress: bool, link: &Link, before: Option<u32>) -> Option<u32> {
    let now = find(name).ok()?.index;
    if before == Some(now) && !vanished(name, ingress).unwrap_or(false) {
        return before;
    }
    set_up(name, ingress, link).is_ok().then_some(now)
}

/// What the classes have done since the tree was set up.
fn snapshot(
    name: &str,
    ingress: bool,
    link: &Link,
    began: Nanos,
    before: Option<&Snapshot>,
    last: bool,
) -> Result<Snapshot, Error> {
    let mut classes = vec![ClassStat::default(); link.classes.len()];
    let (counted, children) = (counted(name, ingress, link)?, link.children());
    // A policy counts from layer 3 on, the kernel from the header below.
    let overhead = i64::from(link.spec.overhead.bytes);
    let with_overhead = counted.with_overhead;
    let beyond = if with_overhead { overhead } else { i64::from(counted.header) };
    for (class, found) in counted.classes {
        let Some(stat) = classes.get_mut(class as usize) else { continue };
        stat.overlimits = Some(u64::from(found.overlimits));
        if children.get(class as usize).is_some_and(|children| !children.is_empty()) {
            continue;
        }
        let of = |bytes: u64, packets: u64| {
            let packets = i64::try_from(packets).unwrap_or(i64::MAX);
            bytes.saturating_add_signed(packets.saturating_mul(beyond).saturating_neg())
        };
        let sent = of(found.bytes, found.packets);
        let queued = of(u64::from(found.backlog_bytes), u64::from(found.backlog_packets));
        // A size table has charged each packet what it takes on the wire.
        let wire = if with_overhead { found.bytes } else { on_the_wire(&link.spec.overhead, sent, found.packets) };
        // The kernel does not count the bytes of packets that it dropped or sent with borrowed
        // tokens, so they are estimated by the average length.
        let mean = sent.checked_div(found.packets).unwrap_or(0);
        stat.counters = Counters {
            sent_packets: found.packets,
            sent_bytes: sent,
            sent_wire_bytes: wire,
            dropped_packets: u64::from(found.dropped),
            dropped_bytes: u64::from(found.dropped) * mean,
            borrowed_bytes: u64::from(found.borrowed) * mean,
            marked_packets: u64::from(found.marked),
            queued_packets: u64::from(found.backlog_packets),
            queued_bytes: queued,
        };
        if found.dropped > 0 {
            stat.dropped.push((reason(link, class), u64::from(found.dropped)));
        }
    }
    // Children come after their parents, so each is added to its parent, beginning with the last
    // one.
    for class in (1..classes.len()).rev() {
        let Some(parent) = link.spec.classes.get(class).map(|spec| spec.parent as usize) else { continue };
        let (counters, dropped) = (classes[class].counters, classes[class].dropped.clone());
        let above = &mut classes[parent];
        above.counters += counters;
        for (reason, packets) in dropped {
            match above.dropped.iter_mut().find(|(of, _)| *of == reason) {
                Some((_, sum)) => *sum += packets,
                None => above.dropped.push((reason, packets)),
            }
        }
    }
    let at = now();
    let since = before.map_or(began, |before| before.at);
    for (class, stat) in classes.iter_mut().enumerate() {
        let earlier = before.and_then(|before| before.classes.get(class)).map(|stat| stat.counters);
        let earlier = earlier.unwrap_or_default();
        let rate = |bytes: u64, earlier: u64| {
            let bits = u128::from(bytes.saturating_sub(earlier)) * 8 * u128::from(SECOND);
            bits.checked_div(u128::from(at.saturating_sub(since))).unwrap_or(0) as u64
        };
        stat.rate_bit_s = rate(stat.counters.sent_bytes, earlier.sent_bytes);
        stat.wire_bit_s = rate(stat.counters.sent_wire_bytes, earlier.sent_wire_bytes);
        stat.wire_bytes = stat.counters.sent_wire_bytes;
    }
    let root = classes.first().map_or_else(Counters::default, |root| root.counters);
    Ok(Snapshot {
        link: link.name.clone(),
        at,
        began,
        since,
        last,
        classes,
        unclassified: (0, 0),
        edge: EdgeCounters { received: root.received_packets(), sent: root.sent_packets, ..EdgeCounters::default() },
        work: Work::default(),
        late: Default::default(),
    })
}

/// The bytes that packets take on the wire. The kernel counts only all bytes together, so the
/// packets are taken as equally long.
fn on_the_wire(overhead: &Overhead, bytes: u64, packets: u64) -> u64 {
    let Some(mean) = bytes.checked_div(packets) else { return 0 };
    let charge = |len: u64| u64::from(overhead.charge(u32::try_from(len).unwrap_or(u32::MAX)));
    // What is left over makes so many packets a byte longer.
    let longer = bytes % packets;
    charge(mean).saturating_mul(packets - longer).saturating_add(charge(mean.saturating_add(1)).saturating_mul(longer))
}

/// The reason for the drops of a class's queue, because the kernel counts only their number. A
/// queue that drops before it is full has no other drops except in a flood.
fn reason(link: &Link, class: ClassId) -> DropReason {
    let Some(queue) = link.queue(class).filter(|_| class != ROOT) else { return DropReason::QueueFull };
    let entry = altq_engine::queue::find(queue.name);
    let plain = entry.is_some_and(|entry| entry.words.is_empty());
    match (plain, queue.name == altq_engine::queue::PLAIN.name) {
        (true, true) => DropReason::QueueFull,
        (true, false) => DropReason::HeadDropped,
        _ => DropReason::Early,
    }
}

#[cfg(test)]
mod tests {
    use altq_engine::link::Framing;

    use super::*;

    #[test]
    fn packets_take_their_overhead_their_least_length_and_their_cells_on_the_wire() {
        let of = |bytes, mpu, framing| Overhead { bytes, mpu, framing };
        // 1000 bytes and three times 4.
        assert_eq!(on_the_wire(&of(4, 0, Framing::Plain), 1000, 3), 1012);
        // 40 and 38 bytes are less than 84, 100 and 38 bytes are not.
        let ethernet = of(38, 84, Framing::Plain);
        assert_eq!([on_the_wire(&ethernet, 400, 10), on_the_wire(&ethernet, 1000, 10)], [840, 1380]);
        // 40 and 32 bytes are two cells of 48 bytes, which take 53 each.
        assert_eq!(on_the_wire(&of(32, 0, Framing::Atm), 80, 2), 212);
        assert_eq!(on_the_wire(&ethernet, 0, 0), 0);
    }
}
