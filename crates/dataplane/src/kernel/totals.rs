//! What the classes of a link have done since its loop began, as counters that never fall.
//!
//! The kernel's own counters do fall: those of 32 bits wrap, and a tree that is set up again, or
//! replaced by that of another policy, begins at 0. And the kernel does not count the bytes of
//! packets that it dropped or sent with borrowed tokens, nor what packets take on the wire; they
//! are worked out from the mean length of the packets in each interval. From the mean since the
//! start they could fall.

use std::collections::HashMap;

use altq_config::{Class, Link};
use altq_engine::account::{Counters, DropReason};
use altq_engine::link::Overhead;
use altq_engine::spec::{ClassId, ROOT};
use altq_kernel::message::Counters as Raw;

use super::tree::Counted;

/// What a class of the kernel has done.
#[derive(Clone, Debug, Default)]
pub struct Total {
    /// Its name. Another class of the same number begins anew.
    name: String,
    /// The kernel's counters, as they were last.
    raw: Raw,
    /// The mean length at layer 3 of the packets of the last interval that had any.
    mean: u64,
    /// Its own counters.
    pub counters: Counters,
    /// Its drops by reason.
    pub dropped: Vec<(DropReason, u64)>,
    /// How often it was over its limit.
    pub overlimits: u64,
}

/// How the kernel counts the bytes of a link's packets.
#[derive(Clone, Copy, Debug)]
struct Sizes<'a> {
    overhead: &'a Overhead,
    /// Whether they include the link's overhead.
    with_overhead: bool,
    /// By how much a packet is longer than at layer 3.
    beyond: i64,
}

impl Sizes<'_> {
    fn at_layer_3(&self, bytes: u64, packets: u64) -> u64 {
        let packets = i64::try_from(packets).unwrap_or(i64::MAX);
        bytes.saturating_add_signed(packets.saturating_mul(self.beyond).saturating_neg())
    }
}

/// What each class has done.
#[derive(Debug, Default)]
pub struct Totals {
    /// By class number.
    classes: Vec<Total>,
    /// How often a tree had been built when the kernel's counters were read last.
    built: u64,
}

impl Totals {
    /// Adds what the kernel has counted since the last time. `built`: how often a tree was built
    /// that took the place of another one.
    pub fn add(&mut self, link: &Link, counted: &Counted, built: u64) {
        // Classes may have other numbers in another policy.
        let is_moved = |(class, total): (usize, &Total)| {
            !total.name.is_empty() && link.classes.get(class).is_none_or(|class| class.name != total.name)
        };
        if self.classes.iter().enumerate().any(is_moved) {
            let mut known: HashMap<String, Total> =
                std::mem::take(&mut self.classes).into_iter().map(|total| (total.name.clone(), total)).collect();
            let of = |class: &Class| known.remove(&class.name).unwrap_or_default();
            self.classes = link.classes.iter().map(of).collect();
        }
        self.classes.resize_with(link.classes.len(), Total::default);
        let anew = std::mem::replace(&mut self.built, built) != built;
        // A policy counts from layer 3 on, the kernel from the header below.
        let beyond = match counted.with_overhead {
            true => i64::from(link.spec.overhead.bytes),
            false => i64::from(counted.header),
        };
        let sizes = Sizes { overhead: &link.spec.overhead, with_overhead: counted.with_overhead, beyond };
        for (class, found) in &counted.classes {
            let Some(total) = self.classes.get_mut(*class as usize) else { continue };
            let name = link.class_name(*class);
            if total.name != name {
                *total = Total { name: name.to_owned(), ..Total::default() };
            }
            total.add(found, &sizes, reason(link, *class), anew);
        }
    }

    /// What a class has done; `None` if the kernel does not count it.
    pub fn of(&self, class: usize) -> Option<&Total> {
        self.classes.get(class).filter(|total| !total.name.is_empty())
    }
}

impl Total {
    fn add(&mut self, found: &Raw, sizes: &Sizes<'_>, reason: DropReason, anew: bool) {
        // A counter of 32 bits that has wrapped is a little larger than before. Somebody else may
        // have replaced the tree as well.
        let back = |now: u32, before: u32| now.wrapping_sub(before) > u32::MAX / 2;
        let raw = &self.raw;
        let anew = anew
            || found.packets < raw.packets
            || found.bytes < raw.bytes
            || back(found.dropped, raw.dropped)
            || back(found.overlimits, raw.overlimits)
            || back(found.borrowed, raw.borrowed)
            || back(found.marked, raw.marked);
        let counters = &mut self.counters;
        let mut lost = (0, 0);
        if anew {
            // What waited has gone with the tree that it waited in.
            lost = (counters.queued_packets, counters.queued_bytes);
            self.raw = Raw::default();
        }
        let raw = &self.raw;
        let (packets, bytes) = (found.packets - raw.packets, found.bytes - raw.bytes);
        let sent = sizes.at_layer_3(bytes, packets);
        self.mean = sent.checked_div(packets).unwrap_or(self.mean);
        let dropped = u64::from(found.dropped.wrapping_sub(raw.dropped));
        counters.sent_packets += packets;
        counters.sent_bytes += sent;
        // A size table has charged each packet what it takes on the wire.
        counters.sent_wire_bytes += match sizes.with_overhead {
            true => bytes,
            false => on_the_wire(sizes.overhead, sent, packets),
        };
        counters.dropped_packets += dropped + lost.0;
        counters.dropped_bytes += dropped * self.mean + lost.1;
        counters.borrowed_bytes += u64::from(found.borrowed.wrapping_sub(raw.borrowed)) * self.mean;
        counters.marked_packets += u64::from(found.marked.wrapping_sub(raw.marked));
        counters.queued_packets = u64::from(found.backlog_packets);
        counters.queued_bytes = sizes.at_layer_3(u64::from(found.backlog_bytes), u64::from(found.backlog_packets));
        self.overlimits += u64::from(found.overlimits.wrapping_sub(raw.overlimits));
        self.raw = *found;
        add(&mut self.dropped, reason, dropped);
        add(&mut self.dropped, DropReason::ClassRemoved, lost.0);
    }
}

/// Adds packets to those that were dropped for the same reason.
pub fn add(dropped: &mut Vec<(DropReason, u64)>, reason: DropReason, packets: u64) {
    match dropped.iter_mut().find(|(of, _)| *of == reason) {
        Some((_, sum)) => *sum += packets,
        None if packets > 0 => dropped.push((reason, packets)),
        None => {}
    }
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
    use altq_config::{Language, parse_str};
    use altq_engine::link::Framing;

    use super::*;

    fn link(overhead: &str) -> Link {
        let text = format!("link l {{ rate 10Mbit/s  {overhead}  scheduler htb  class a {{ rate 1Mbit/s default }} }}");
        parse_str(&text, "l.altq", Language::Native).unwrap().links.remove(0)
    }

    /// Class 1 of the link, after the kernel has said this, one after the other.
    fn after(link: &Link, said: &[Raw]) -> Vec<Total> {
        let mut totals = Totals::default();
        said.iter()
            .map(|found| {
                let counted = Counted { classes: vec![(1, *found)], with_overhead: false, header: 14 };
                totals.add(link, &counted, 0);
                totals.of(1).unwrap().clone()
            })
            .collect()
    }

    fn sent(packets: u64, each: u64) -> Raw {
        Raw { packets, bytes: packets * (each + 14), ..Raw::default() }
    }

    /// 41 bytes and 8 more are two cells of ATM, 30 and 8 are one. The packets of the second
    /// interval take 53 bytes each, whatever those of the first took.
    #[test]
    fn shorter_packets_take_nothing_back() {
        let first = Raw { dropped: 10, borrowed: 10, ..sent(1_000_000, 41) };
        let more = sent(100_000, 30);
        let second = Raw { packets: first.packets + more.packets, bytes: first.bytes + more.bytes, ..first };
        let [one, two] = &after(&link("overhead 8bytes atm"), &[first, second])[..] else { panic!() };
        assert_eq!((one.counters.sent_wire_bytes, one.counters.dropped_bytes), (106_000_000, 410));
        assert_eq!((two.counters.sent_wire_bytes, two.counters.dropped_bytes), (106_000_000 + 5_300_000, 410));
        assert_eq!((two.counters.sent_bytes, two.counters.borrowed_bytes), (41_000_000 + 3_000_000, 410));
    }

    #[test]
    fn counters_of_32_bits_go_on_when_they_wrap() {
        let before = Raw { dropped: u32::MAX - 1, overlimits: u32::MAX, marked: u32::MAX - 9, ..sent(5, 100) };
        let now = Raw { dropped: 3, overlimits: 0, marked: 0, ..before };
        let [_, two] = &after(&link(""), &[before, now])[..] else { panic!() };
        assert_eq!(two.counters.dropped_packets, (1 << 32) + 3);
        assert_eq!((two.overlimits, two.counters.marked_packets), (1 << 32, 1 << 32));
        assert_eq!(two.dropped, [(DropReason::QueueFull, (1 << 32) + 3)]);
        assert_eq!(two.counters.sent_packets, 5);
    }

    /// Packets that waited in a tree which was replaced are lost, and nothing is counted twice.
    #[test]
    fn a_tree_that_begins_anew_adds_to_the_one_before() {
        let before = Raw { dropped: 7, backlog_packets: 2, backlog_bytes: 2 * 114, ..sent(50, 100) };
        let said = [before, sent(3, 100), Raw { dropped: 1, ..sent(60, 100) }];
        let [_, two, three] = &after(&link(""), &said)[..] else { panic!() };
        assert_eq!((two.counters.sent_packets, two.counters.dropped_packets), (53, 9));
        assert_eq!((two.counters.dropped_bytes, two.counters.queued_packets), (700 + 200, 0));
        assert_eq!(two.dropped, [(DropReason::QueueFull, 7), (DropReason::ClassRemoved, 2)]);
        assert_eq!((three.counters.sent_packets, three.counters.dropped_packets), (110, 10));
        // A tree that only dropped is seen to begin anew as well.
        let said = [Raw { dropped: 9, ..Raw::default() }, Raw { dropped: 2, ..Raw::default() }];
        assert_eq!(after(&link(""), &said)[1].counters.dropped_packets, 11);
    }

    /// A new tree has sent more than the one before: nothing falls, and it counts as a whole.
    #[test]
    fn a_tree_that_was_built_counts_from_0() {
        let (link, mut totals) = (link(""), Totals::default());
        for (packets, built, all) in [(100, 0, 100), (150, 1, 250), (160, 1, 260), (200, 3, 460)] {
            let counted = Counted { classes: vec![(1, sent(packets, 100))], with_overhead: false, header: 14 };
            totals.add(&link, &counted, built);
            let counters = totals.of(1).unwrap().counters;
            assert_eq!((counters.sent_packets, counters.sent_bytes), (all, all * 100), "{packets} of tree {built}");
        }
    }

    /// A class that stands elsewhere in another policy goes on with what it has done.
    #[test]
    fn classes_that_get_other_numbers_keep_their_counters() {
        let of = |classes: &str| {
            let text = format!("link l {{ rate 10Mbit/s  scheduler htb  {classes} }}");
            parse_str(&text, "l.altq", Language::Native).unwrap().links.remove(0)
        };
        let (one, two) = ("class a { rate 1Mbit/s default }", "class b { rate 1Mbit/s }");
        let (first, second) = (of(one), of(&format!("{two} {one}")));
        let mut totals = Totals::default();
        let counted =
            |class, packets| Counted { classes: vec![(class, sent(packets, 100))], with_overhead: false, header: 14 };
        totals.add(&first, &counted(1, 50), 0);
        totals.add(&second, &counted(2, 60), 1);
        assert_eq!(totals.of(2).unwrap().counters.sent_packets, 110);
        assert!(totals.of(1).is_none_or(|total| total.counters.sent_packets == 0));
    }

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
