//! Tests with a kernel in memory that can fail at any request.

use std::io;

use altq_config::{Language, Link, parse_str};
use altq_kernel::message::{Found, Message, sent};
use altq_kernel::{Handle, Host, message};

use super::super::switch::{Kind, SWITCH};
use super::super::wire::cut_short;
use super::*;

/// The device of these tests.
const DEVICE: u32 = 7;
const NAME: &str = "eth0";
// linux/netlink.h
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

/// The qdiscs, classes and filters of the device.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    qdiscs: Vec<Found>,
    classes: Vec<Found>,
    filters: Vec<Found>,
}

impl State {
    /// The same, in an order that does not depend on when things were made.
    fn sorted(&self) -> State {
        let mut state = self.clone();
        for list in [&mut state.qdiscs, &mut state.classes, &mut state.filters] {
            list.sort_by_key(|found| (found.handle, found.parent, found.info));
        }
        state
    }
}

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Nothing is done.
    Refused,
    /// It is done, but its answer is lost.
    Lost,
}

/// A kernel: the state of its device, the requests so far, and which of them fails.
#[derive(Clone, Default)]
struct Fake {
    state: State,
    asked: u32,
    fails: Option<(u32, Fault)>,
    /// Kinds that it does not have.
    lacks: &'static [&'static str],
    /// It shows another limit than it was asked for.
    lies: bool,
}

impl Fake {
    /// Removes what is inside a class or at the root.
    fn remove(&mut self, parent: Handle) -> bool {
        let gone: Vec<Handle> =
            self.state.qdiscs.iter().filter(|found| found.parent == parent).map(|found| found.handle).collect();
        self.state.qdiscs.retain(|found| found.parent != parent);
        for handle in &gone {
            let inside = |place: Handle| place != Handle::ROOT && place.major() == handle.major();
            self.state.classes.retain(|found| !inside(found.handle));
            self.state.filters.retain(|found| !inside(found.parent));
            let below: Vec<Handle> =
                self.state.qdiscs.iter().map(|found| found.parent).filter(|parent| inside(*parent)).collect();
            for parent in below {
                self.remove(parent);
            }
        }
        !gone.is_empty()
    }

    /// Whether a class exists: one that was made, or a band of a prio.
    fn has_class(&self, class: Handle) -> bool {
        let band = |found: &Found| {
            found.handle.major() == class.major()
                && found.kind == "prio"
                && found.options.first().is_some_and(|bands| class.minor() >= 1 && class.minor() <= u16::from(*bands))
        };
        self.state.classes.iter().any(|found| found.handle == class) || self.state.qdiscs.iter().any(band)
    }

    fn new_qdisc(&mut self, mut found: Found) -> Result<(), i32> {
        let there = |other: &Found| other.handle != Handle::default();
        if found.parent != Handle::ROOT && !self.has_class(found.parent) {
            return Err(libc::ENOENT);
        }
        let same = |other: &Found| other.handle == found.handle || other.parent == found.parent;
        if self.state.qdiscs.iter().filter(|other| there(other)).any(same) {
            return Err(libc::EEXIST);
        }
        // Size tables are for the device's own qdisc only (`qdisc_graft` in net/sched/sch_api.c).
        if found.parent != Handle::ROOT && found.sizes.is_some() {
            return Err(libc::EINVAL);
        }
        self.remove(found.parent);
        if self.lies && found.kind == "pfifo" {
            found.options[0] ^= 1;
        }
        if found.kind == "htb" {
            // The kernel shows its minor version too (`htb_dump`).
            found.options[4..8].copy_from_slice(&0x0003_0011u32.to_ne_bytes());
        }
        self.state.qdiscs.push(found);
        Ok(())
    }

    fn new_class(&mut self, found: Found, flags: u16) -> Result<(), i32> {
        if let Some(there) = self.state.classes.iter_mut().find(|class| class.handle == found.handle) {
            if flags & NLM_F_EXCL != 0 {
                return Err(libc::EEXIST);
            }
            there.options = found.options;
            return Ok(());
        }
        let qdisc = self.state.qdiscs.iter().any(|qdisc| qdisc.handle.major() == found.handle.major());
        if flags & NLM_F_CREATE == 0 || !qdisc || found.parent.minor() != 0 && !self.has_class(found.parent) {
            return Err(libc::ENOENT);
        }
        self.state.classes.push(found);
        Ok(())
    }

    fn do_it(&mut self, request: &[u8]) -> Result<Vec<Message>, i32> {
        let flags = u16::from_ne_bytes([request[6], request[7]]);
        let (kind, found) = sent(request).ok_or(libc::EINVAL)?;
        if self.lacks.contains(&found.kind.as_str()) {
            return Err(libc::ENOENT);
        }
        match kind {
            message::RTM_NEWQDISC if flags & NLM_F_CREATE != 0 => self.new_qdisc(found)?,
            message::RTM_NEWQDISC => {
                let there = self.state.qdiscs.iter_mut().find(|there| there.handle == found.handle);
                let there = there.ok_or(libc::ENOENT)?;
                // htb has no words that can be changed (`htb_qdisc_ops`).
                if !found.options.is_empty() {
                    if there.kind == "htb" {
                        return Err(libc::EINVAL);
                    }
                    there.options = found.options;
                }
                there.sizes = found.sizes;
            }
            message::RTM_DELQDISC => {
                if !self.remove(found.parent) {
                    return Err(libc::ENOENT);
                }
            }
            message::RTM_NEWTCLASS => self.new_class(found, flags)?,
            message::RTM_NEWTFILTER => {
                if !self.state.qdiscs.iter().any(|qdisc| qdisc.handle == found.parent) {
                    return Err(libc::EINVAL);
                }
                self.state.filters.push(found);
            }
            message::RTM_DELTFILTER => {
                let before = self.state.filters.len();
                self.state.filters.retain(|there| (there.parent, there.info) != (found.parent, found.info));
                if self.state.filters.len() == before {
                    return Err(libc::ENOENT);
                }
            }
            message::RTM_GETQDISC => return Ok(self.state.qdiscs.iter().cloned().map(Message::Qdisc).collect()),
            message::RTM_GETTCLASS => return Ok(self.state.classes.iter().cloned().map(Message::Class).collect()),
            message::RTM_GETTFILTER => {
                let of = self.state.filters.iter().filter(|filter| filter.parent == found.parent);
                return Ok(of.cloned().map(Message::Filter).collect());
            }
            _ => return Err(libc::EINVAL),
        }
        Ok(Vec::new())
    }
}

impl Ask for Fake {
    fn ask(&mut self, request: &[u8]) -> Result<Vec<Message>, Refused> {
        self.asked += 1;
        match self.fails {
            Some((at, Fault::Refused)) if at == self.asked => {
                return Err(io::Error::from_raw_os_error(libc::ENOBUFS).into());
            }
            Some((at, Fault::Lost)) if at == self.asked => {
                let _ = self.do_it(request);
                return Err(cut_short());
            }
            _ => {}
        }
        self.do_it(request).map_err(|error| io::Error::from_raw_os_error(error).into())
    }
}

fn link(classes: &str) -> Link {
    let text = format!("link wan {{ device eth0  rate 10Mbit/s  {classes} }}");
    let policy = parse_str(&text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
    policy.links.into_iter().next().unwrap()
}

/// Two links with all that a tree has: nested schedulers, several queues, filters, a size table.
fn links() -> [Link; 2] {
    [
        link(
            "scheduler htb
                class site { rate 9Mbit/s  ceil 10Mbit/s  scheduler drr
                    class a { quantum 3000  queue codel {} }  class b { default } }
                class rest { rate 1Mbit/s  queue red { limit 60000bytes  min 5000bytes  max 15000bytes } }
                match dport 80 -> a  match mark 3 -> rest",
        ),
        link(
            "overhead ethernet  scheduler hfsc
                class voice { realtime 1Mbit/s  queue drop_tail { limit 20packets } }
                class rest { linkshare 9Mbit/s  default  queue fq_codel {} }
                match dscp ef -> voice",
        ),
    ]
}

/// Kernels that have a prio for the switch, and that have none.
const SWITCHES: [&[&str]; 2] = [&[], &["prio"]];

fn set(fake: &mut Fake, link: &Link) -> Result<Done, Error> {
    set_up(fake, DEVICE, NAME, link, &Host::default())
}

fn drifted(fake: &mut Fake, link: &Link) -> Vec<String> {
    drift(fake, DEVICE, NAME, link, &Host::default()).unwrap()
}

fn side(fake: &mut Fake) -> Option<Side> {
    switch::read(fake, DEVICE, NAME).unwrap().map(|switch| switch.side)
}

fn with(link: &Link, lacks: &'static [&'static str]) -> Fake {
    let mut fake = Fake { lacks, ..Fake::default() };
    set(&mut fake, link).unwrap();
    Fake { asked: 0, ..fake }
}

#[test]
fn a_tree_takes_the_place_of_another_and_goes_without_a_trace() {
    let [old, new] = links();
    for lacks in SWITCHES {
        let mut fake = with(&old, lacks);
        assert_eq!(side(&mut fake), Some(Side::Two));
        let made = switch::read(&mut fake, DEVICE, NAME).unwrap().unwrap();
        assert_eq!((made.kind, made.sizes), (if lacks.is_empty() { Kind::Prio } else { Kind::Htb }, None));
        let qdiscs = fake.state.qdiscs.len();
        assert_eq!(drifted(&mut fake, &old), Vec::<String>::new());
        assert_eq!(set(&mut fake, &new).unwrap(), Done::Built);
        assert_eq!(side(&mut fake), Some(Side::One));
        // 38 bytes from layer 3 on are 24 more than the kernel counts.
        let sizes = switch::read(&mut fake, DEVICE, NAME).unwrap().unwrap().sizes.unwrap();
        assert_eq!((sizes.overhead, sizes.mpu), (24, 84));
        assert_eq!(drifted(&mut fake, &new), Vec::<String>::new());
        assert_eq!(set(&mut fake, &old).unwrap(), Done::Built);
        assert_eq!(fake.state.qdiscs.len(), qdiscs, "the tree between is gone");
        assert!(take_away(&mut fake, DEVICE, NAME).unwrap());
        assert_eq!(fake.state, State::default());
        assert!(!take_away(&mut fake, DEVICE, NAME).unwrap());
    }
}

/// A link of which only words of classes are given: a rate in Mbit/s and a quantum.
fn plain(rate: u32, quantum: u32) -> Link {
    link(&format!(
        "scheduler htb
            class site {{ rate {rate}Mbit/s  ceil 10Mbit/s  scheduler drr
                class a {{ quantum {quantum}  queue codel {{}} }}  class b {{ default }} }}
            class rest {{ rate 1Mbit/s }}
            match dport 80 -> a  match mark 3 -> rest"
    ))
}

#[test]
fn classes_change_where_they_stand() {
    let ([red, other], old, new) = (links(), plain(9, 3000), plain(8, 6000));
    let mut fake = with(&old, &[]);
    // What the kernel counted stays.
    fake.state.classes.iter_mut().for_each(|class| class.counters.packets = 5);
    assert_eq!(set(&mut fake, &old).unwrap(), Done::Stood);
    // The classes `site` and `a`.
    assert_eq!(set(&mut fake, &new).unwrap(), Done::Changed(2));
    assert_eq!(side(&mut fake), Some(Side::Two));
    assert_eq!(drifted(&mut fake, &new), Vec::<String>::new());
    assert!(fake.state.classes.iter().all(|class| class.counters.packets == 5));
    // A red has a table that follows from its class's rate, and that the kernel does not show.
    let mut fake = with(&red, &[]);
    let words = "scheduler htb
        class site { rate 9Mbit/s  ceil 10Mbit/s  scheduler drr
            class a { quantum 4000  queue codel {} }  class b { default } }
        class rest { rate 1Mbit/s  queue red { limit 60000bytes  min 5000bytes  max 15000bytes } }
        match dport 80 -> a  match mark 3 -> rest";
    assert_eq!(set(&mut fake, &link(words)).unwrap(), Done::Built);
    // A curve can be changed, but not taken away.
    let without = "scheduler hfsc  class a { linkshare 1Mbit/s }  class b { linkshare 8Mbit/s  default }";
    let mut fake = with(&link(&without.replace("1Mbit/s", "1Mbit/s  upperlimit 5Mbit/s")), &[]);
    assert_eq!(set(&mut fake, &link(without)).unwrap(), Done::Built);
    assert_eq!(set(&mut fake, &link(&without.replace("1Mbit/s", "2Mbit/s"))).unwrap(), Done::Changed(1));
    // Another overhead is another size table.
    let mut fake = with(&other, &[]);
    let other = Link { spec: altq_engine::spec::LinkSpec { overhead: OTHER, ..other.spec.clone() }, ..other };
    assert_eq!(drifted(&mut fake, &other), ["the overhead is another one"]);
    assert_eq!(set(&mut fake, &other).unwrap(), Done::Built);
}

/// An overhead that is not that of `links`.
const OTHER: altq_engine::link::Overhead =
    altq_engine::link::Overhead { bytes: 38, mpu: 0, framing: altq_engine::link::Framing::Plain };

/// If any request fails, before or after it is carried out, a device with a tree keeps the old one,
/// and another device has nothing.
#[test]
fn a_fault_at_any_request_leaves_what_was_there() {
    let [old, new] = links();
    for (lacks, how) in SWITCHES.into_iter().flat_map(|lacks| [(lacks, Fault::Refused), (lacks, Fault::Lost)]) {
        let nothing = Fake { lacks, ..Fake::default() };
        let tries =
            [(nothing, new.clone()), (with(&old, lacks), new.clone()), (with(&plain(9, 3000), lacks), plain(8, 6000))];
        for (before, next) in tries {
            let mut faults = 0;
            for at in 1.. {
                let mut fake = Fake { fails: Some((at, how)), ..before.clone() };
                let done = set(&mut fake, &next);
                let asked = fake.asked;
                fake.fails = None;
                match done {
                    Ok(_) => {
                        assert_eq!(drifted(&mut fake, &next), Vec::<String>::new(), "{how:?} at {at}");
                        if asked < at {
                            break;
                        }
                        // The last thing to be removed is gone.
                        assert_eq!(how, Fault::Lost, "request {at}");
                    }
                    Err(error) => {
                        assert_eq!(fake.state.sorted(), before.state.sorted(), "{how:?} at {at}: {error}");
                        faults += 1;
                    }
                }
            }
            assert!(faults > 6, "{faults} requests failed");
        }
    }
}

/// Removing a link either removes it completely or leaves it.
#[test]
fn a_fault_while_it_is_taken_away_leaves_all_or_nothing() {
    let [old, _] = links();
    for (lacks, how) in SWITCHES.into_iter().flat_map(|lacks| [(lacks, Fault::Refused), (lacks, Fault::Lost)]) {
        let before = with(&old, lacks);
        for at in 1.. {
            let mut fake = Fake { fails: Some((at, how)), ..before.clone() };
            let done = take_away(&mut fake, DEVICE, NAME);
            let left = if done.is_ok() { State::default() } else { before.state.clone() };
            assert_eq!(fake.state, left, "{how:?} at {at}");
            if fake.asked < at {
                break;
            }
        }
    }
}

/// A process that was killed while it built a tree leaves half of it beside the existing one, or an
/// htb without its classes. The next process removes that first.
#[test]
fn what_a_killed_process_left_is_taken_away() {
    let [old, new] = links();
    let mut fake = with(&old, &[]);
    let requests = plan::requests(&translate(&new, &Host::default(), Side::One.place()).unwrap(), DEVICE);
    for request in &requests[..3] {
        fake.ask(request).unwrap();
    }
    set(&mut fake, &new).unwrap();
    assert_eq!(drifted(&mut fake, &new), Vec::<String>::new());
    let mut fake = with(&old, &["prio"]);
    fake.state.classes.retain(|class| class.handle.major() != SWITCH.major());
    set(&mut fake, &new).unwrap();
    assert_eq!(drifted(&mut fake, &new), Vec::<String>::new());
}

#[test]
fn somebody_elses_qdisc_is_named_and_left_alone() {
    let [link, _] = links();
    let own = |handle| Found {
        device: DEVICE,
        handle,
        parent: Handle::ROOT,
        kind: "fq_codel".to_owned(),
        ..Found::default()
    };
    let mut fake = Fake::default();
    fake.state.qdiscs.push(own(Handle::new(0x8001, 0)));
    let before = fake.state.clone();
    let error = set(&mut fake, &link).unwrap_err();
    assert!(matches!(error, Error::Foreign(_)), "{error}");
    assert!(error.to_string().contains("eth0 has the qdisc `fq_codel 8001:` of somebody else"), "{error}");
    assert!(take_away(&mut fake, DEVICE, NAME).is_err());
    assert_eq!(fake.state, before);
    // A qdisc without a handle is the kernel's own.
    fake.state.qdiscs = vec![own(Handle::default())];
    set(&mut fake, &link).unwrap();
}

#[test]
fn what_the_kernel_lacks_is_named_and_nothing_stays() {
    let [link, _] = links();
    for (lacks, named) in [
        (&["drr"][..], "the qdisc `drr`"),
        (&["fw", "flower", "u32"], "a filter `u32`"),
        (&["prio", "htb"], "the qdisc `prio` or `htb`"),
    ] {
        let mut fake = Fake { lacks, ..Fake::default() };
        let error = set(&mut fake, &link).unwrap_err();
        assert!(matches!(error, Error::Lacks(_)) && error.to_string().contains(named), "{error}");
        assert_eq!(fake.state, State::default());
    }
}

/// u32 replaces flower and fw, and the result is recognised again.
#[test]
fn another_classifier_stands_in() {
    let [link, other] = links();
    for lacks in [&["flower"][..], &["fw"], &["flower", "fw"]] {
        let mut fake = with(&link, lacks);
        assert_eq!(drifted(&mut fake, &link), Vec::<String>::new(), "{lacks:?}");
        assert_eq!(set(&mut fake, &link).unwrap(), Done::Stood, "{lacks:?}");
        assert!(fake.state.filters.iter().all(|found| !lacks.contains(&found.kind.as_str())));
        assert_eq!(set(&mut fake, &other).unwrap(), Done::Built, "{lacks:?}");
    }
}

#[test]
fn a_kernel_that_shows_other_words_is_not_believed() {
    let [_, link] = links();
    let mut fake = Fake { lies: true, ..Fake::default() };
    let error = set(&mut fake, &link).unwrap_err();
    assert!(error.to_string().contains("the queue of `voice` (pfifo 4801:)"), "{error}");
    assert_eq!(fake.state, State::default());
}

#[test]
fn drift_names_what_differs() {
    let [link, _] = links();
    let mut fake = with(&link, &[]);
    // The class `rest`, number 4, has another rate; the queue of `a` and a filter are gone.
    let class = fake.state.classes.iter_mut().find(|found| found.handle == Handle::new(0x4800, 4)).unwrap();
    class.options[4 + 8] ^= 1;
    let gone = fake.state.qdiscs.iter().position(|found| found.kind == "codel").unwrap();
    fake.state.qdiscs.remove(gone);
    fake.state.filters.retain(|found| found.kind != "fw");
    let lines = drifted(&mut fake, &link);
    for wanted in ["the class `rest` (4800:4) has other words", "the queue of `a` (codel 4802:) is gone", "filter"] {
        assert!(lines.iter().any(|line| line.contains(wanted)), "{wanted}: {lines:#?}");
    }
    assert_eq!(lines.len(), 3, "{lines:#?}");
}

/// A leaf's counters are those of its queue, except what the class itself borrowed.
#[test]
fn counters_are_those_of_queues_and_classes() {
    let [link, _] = links();
    let mut fake = with(&link, &[]);
    let rest = fake.state.classes.iter_mut().find(|found| found.handle == Handle::new(0x4800, 4)).unwrap();
    rest.counters = Counters { packets: 1, borrowed: 7, overlimits: 3, ..Counters::default() };
    let queue = fake.state.qdiscs.iter_mut().find(|found| found.kind == "red").unwrap();
    queue.counters = Counters { packets: 9, bytes: 900, dropped: 2, overlimits: 1, ..Counters::default() };
    let counted = counters(&mut fake, DEVICE, NAME, &link, &Host::default()).unwrap();
    let rest = counted.classes.iter().find(|(class, _)| *class == 4).unwrap().1;
    let wanted = Counters { packets: 9, bytes: 900, dropped: 2, overlimits: 3, borrowed: 7, ..Counters::default() };
    assert_eq!((rest, counted.with_overhead), (wanted, false));
}
