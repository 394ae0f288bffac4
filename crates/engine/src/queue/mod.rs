//! Queues: the buffer of a class. A queue decides which packets are dropped or marked, and which
//! one is next.
//!
//! There are two kinds. The plain queues, drop-tail and drop-head, decide by the length of the
//! queue alone; the engine keeps them in the class's own record, as variants of [`Policy`]. All
//! others have a state of their own, and implement the trait [`Queue`]. Their packets lie in the
//! engine's slab as well: they keep [`List`]s of packets, and push and pop through the [`Store`].
//!
//! To add one: a file that opens with its paper and idea and states an [`Entry`]; then one line in
//! [`QUEUES`].

mod aqm;
mod blue;
mod cake;
mod codel;
mod drop_head;
mod drop_tail;
pub(crate) mod fairq;
mod flow_queue;
mod flows;
mod fq_codel;
mod hashed_wfq;
mod pie;
mod red;
mod rio;
mod sfq;
mod store;
mod two_level;

pub use store::{List, Store, Taken};

use std::sync::OnceLock;

use crate::account::DropReason;
use crate::link::Overhead;
use crate::packet::Packet;
use crate::settings::{Limit, Word};
use crate::spec::{QueueSpec, SpecError};
use crate::units::{Nanos, Rate};

/// All queues.
pub const QUEUES: &[&Entry] = &[
    &drop_tail::ENTRY,
    &drop_head::ENTRY,
    &cake::ENTRY,
    &codel::ENTRY,
    &blue::ENTRY,
    &fairq::ENTRY,
    &fq_codel::ENTRY,
    &hashed_wfq::ENTRY,
    &pie::ENTRY,
    &red::ENTRY,
    &rio::ENTRY,
    &two_level::ENTRY,
    &sfq::ENTRY,
];

/// The queue of a class whose policy names none.
pub const PLAIN: &Entry = &drop_tail::ENTRY;

/// Entries that a test has added.
static ADDED: OnceLock<Vec<&'static Entry>> = OnceLock::new();

/// All queues, and those that a test has added.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    QUEUES.iter().copied().chain(ADDED.get().into_iter().flatten().copied())
}

/// The queue of this name, if there is one.
pub fn find(name: &str) -> Option<&'static Entry> {
    all().find(|entry| entry.name == name)
}

/// Adds entries, for tests only; a queue of this crate has its line in [`QUEUES`]. May be called
/// once in a process.
///
/// # Errors
/// The name, if another entry has it already; a message, on a second call.
#[doc(hidden)]
pub fn add_for_tests(entries: Vec<&'static Entry>) -> Result<(), &'static str> {
    if let Some(taken) = entries.iter().find(|entry| find(entry.name).is_some()) {
        return Err(taken.name);
    }
    ADDED.set(entries).map_err(|_| "entries were added before")
}

/// What the registry knows of a queue. Every queue takes `limit` as well.
///
/// [`Entry::new`] fills in defaults; an entry states what differs from them.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in policies.
    pub name: &'static str,
    /// What it does, in one line of help.
    pub about: &'static str,
    /// Its limit where the policy states none.
    pub limit: Limit,
    /// Its own words, besides `limit`.
    pub words: &'static [Word],
    /// True if packets leave in the order of their arrival. Then the packets before one when it
    /// arrives bound its wait.
    pub in_order: bool,
    /// True if it may drop packets as they leave. Then another packet leaves than the one whose
    /// length was told.
    pub drops_leaving: bool,
    /// What `tc -s` and `altqstat` print for it.
    pub form: Form,
    /// Its name in tc with a limit in packets, and with one in bytes; `None` where tc has the same
    /// name.
    pub tc_names: [Option<&'static str>; 2],
    /// Makes one.
    pub build: Build,
}

/// The form in which other tools print a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Its words and its counters.
    Words,
    /// As RED: its words, then its drops and marks under RED's names.
    Average,
    /// As SFQ, with the counters of a RED in each flow if it has one (tc-sfq(8)).
    Flows,
}

impl Entry {
    /// A queue without words of its own, with a default for everything else.
    pub const fn new(name: &'static str, about: &'static str, limit: Limit, build: Build) -> Entry {
        Entry {
            name,
            about,
            limit,
            words: &[],
            in_order: false,
            drops_leaving: false,
            form: Form::Words,
            tc_names: [None; 2],
            build,
        }
    }

    /// True if the length that schedulers are told for its next packet is only a guess.
    pub const fn guesses(&self) -> bool {
        !self.in_order || self.drops_leaving
    }

    /// Its name in tc, with a limit of this unit.
    pub fn tc_name(&self, limit: Limit) -> &'static str {
        let [packets, bytes] = self.tc_names;
        let named = match limit {
            Limit::Packets(_) => packets,
            Limit::Bytes(_) => bytes,
        };
        named.unwrap_or(self.name)
    }
}

/// Makes a queue for a class, from its limit and its own words.
pub type Build = fn(&Context, &QueueSpec) -> Result<Policy, SpecError>;

/// What a queue knows of its class and link.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The rate that the class is guaranteed. Without a guarantee, the rate by which its scheduler
    /// measures shares.
    pub rate: Rate,
    /// The rate of the link.
    pub link_rate: Rate,
    /// The link's MTU, layer 3.
    pub mtu: u32,
    /// What the link charges for a packet beyond its own bytes.
    pub overhead: Overhead,
    /// The seed of its random numbers. The same seed and the same calls give the same decisions.
    pub seed: u64,
}

/// What a queue does when a packet does not fit.
pub enum Policy {
    /// The arriving packet is dropped.
    DropTail,
    /// Packets at the head are dropped until the new one fits.
    DropHead,
    /// A queue with a state of its own decides.
    Stateful(Box<dyn Queue>),
}

/// The contract of a queue with a state of its own. `now` never decreases.
///
/// Every packet that is enqueued comes out once: from [`dequeue`](Queue::dequeue) or
/// [`take`](Queue::take), or dropped through [`Store::lose`].
pub trait Queue: Send + Sync {
    /// A packet arrives; its time of arrival and its charged length are set. An error drops it, and
    /// says why. The queue may [drop](Store::lose) others to make room for it, and
    /// [mark](Store::mark) it or others.
    fn enqueue(&mut self, now: Nanos, packet: &mut Packet, store: &mut Store<'_>) -> Result<(), DropReason>;

    /// The packet that leaves now. The queue may [drop](Store::lose) others before it. `None` only
    /// if the queue is empty then.
    fn dequeue(&mut self, now: Nanos, store: &mut Store<'_>) -> Option<Taken>;

    /// The charged length of the packet that would leave next if none arrived and none were
    /// dropped; `None` if the queue is empty. For schedulers this is a guess: another packet may
    /// leave first.
    fn peek(&self) -> Option<u32>;

    /// [`dequeue`](Queue::dequeue), and then [`peek`](Queue::peek), in one call: that is what a
    /// departure needs. The body is compiled anew for each queue, so both are called directly.
    #[inline]
    fn dequeue_and_peek(&mut self, now: Nanos, store: &mut Store<'_>) -> (Option<Taken>, Option<u32>) {
        let taken = self.dequeue(now, store);
        (taken, self.peek())
    }

    /// Packets held, and their own bytes. The engine asks only after a change or drops; otherwise
    /// it counts itself.
    fn backlog(&self) -> (u32, u32);

    /// Takes the packet that would leave next, without a drop decision: the class is removed, or
    /// gets another kind of queue.
    fn take(&mut self, store: &mut Store<'_>) -> Option<Taken>;

    /// Another limit or other words. Packets that do not fit any more are dropped, with
    /// [`DropReason::LimitLowered`]. On an error nothing has changed.
    fn change(&mut self, now: Nanos, place: &Context, new: &QueueSpec, store: &mut Store<'_>) -> Result<(), SpecError>;

    /// True if it looks at [`Packet::flow`] or [`Packet::hosts`]. Where no queue does, the caller
    /// need not hash packets.
    fn keeps_flows(&self) -> bool {
        false
    }

    /// The class has another [`Context::rate`].
    fn set_rate(&mut self, _rate: Rate) {}

    /// The link has another rate: [`Context::link_rate`].
    fn set_link_rate(&mut self, _rate: Rate) {}

    /// Its random numbers start anew from this seed.
    fn seed(&mut self, _seed: u64) {}

    /// Calls `counter` with the name and the value of everything that it counts: `prob_drop`,
    /// `new_flow_count`, … The engine itself counts drops and marks of the class.
    fn report_counters(&self, _counter: &mut dyn FnMut(&'static str, u64)) {}

    /// Bytes of memory held, without packets.
    fn memory(&self) -> usize;
}
