//! Schedulers: which class sends next.
//!
//! A scheduler orders the classes below one node of the tree. It never sees a queue or a packet's
//! bytes: the engine tells it which class has something to send and what was sent, and asks it
//! which class is next. A class holds a queue or another scheduler. The engine walks from the root
//! scheduler down to a queue, and reports what was sent on the way back up. So a scheduler need not
//! know about nesting.
//!
//! To add one: a file that opens with its paper and idea, implements [`Scheduler`], and states an
//! [`Entry`]; then one line in [`SCHEDULERS`].

pub mod cbq;
pub mod check;
mod drr;
mod entry;
mod fairq;
mod fifo;
mod hfsc;
mod hierarchical_wheel;
pub mod htb;
mod jobs;
mod priq;
pub mod promise;
mod timer_heap;
mod wfq;

pub use entry::{AltqstatForm, Entry, Order, OwnPackets, QueueWord, Rank, Reserved, ReservedWords, Role, TcForm};

use std::sync::OnceLock;

use crate::account::DropReason;
use crate::engine::{Buffers, Departure, depart};
use crate::link::Overhead;
use crate::settings::Settings;
use crate::spec::{ClassId, SpecError, Timer};
use crate::units::{Nanos, Rate};

/// A class within one scheduler instance: a small number given by the engine, used again after
/// removal.
pub type Slot = u32;

/// The node that the scheduler sits in: the link, or the class that holds this scheduler. It exists
/// from the start.
pub const ROOT_SLOT: Slot = 0;

/// No class, in [`Scheduler::likely_next`].
pub const NOBODY: Slot = Slot::MAX;

/// All schedulers.
pub const SCHEDULERS: &[&Entry] = &[
    &cbq::ENTRY,
    &hfsc::ENTRY,
    &fifo::ENTRY,
    &drr::ENTRY,
    &fairq::ENTRY,
    &priq::ENTRY,
    &htb::ENTRY,
    &wfq::ENTRY,
    &jobs::ENTRY,
];

/// The scheduler where a policy names none. It treats all classes alike.
pub const PLAIN: &Entry = &fifo::ENTRY;

/// Entries that a test has added.
static ADDED: OnceLock<Vec<&'static Entry>> = OnceLock::new();

/// All schedulers, and those that a test has added.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    SCHEDULERS.iter().copied().chain(ADDED.get().into_iter().flatten().copied())
}

/// The scheduler of this name, if there is one.
pub fn find(name: &str) -> Option<&'static Entry> {
    all().find(|entry| entry.name == name)
}

/// Adds entries, for tests only; a scheduler of this crate has its line in [`SCHEDULERS`]. May be
/// called once in a process.
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

/// Makes a scheduler for a place in the tree, from its own words.
pub type Build = fn(&Context, &Settings) -> Result<Box<dyn Scheduler>, SpecError>;

/// What a scheduler decides about an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// It may go on to its queue.
    Take,
    /// It is dropped.
    Drop(DropReason),
}

/// What a scheduler knows of its place in the tree.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The rate by which shares are measured: the link's, or the guarantee of the class that holds
    /// this scheduler.
    pub rate: Rate,
    /// A class holds this scheduler, and another scheduler decides when its turn comes.
    pub nested: bool,
    /// The rate of the link.
    pub link_rate: Rate,
    /// The link's MTU, layer 3.
    pub mtu: u32,
    /// What the link charges beyond a packet's own bytes.
    pub overhead: Overhead,
    /// When timers can fire.
    pub timer: Timer,
}

/// The contract of a scheduler. All lengths are bytes charged on the wire; `now` never decreases.
pub trait Scheduler: Send + Sync {
    /// A new class, without packets. `parent` is [`ROOT_SLOT`] for the scheduler's top classes.
    fn add(&mut self, now: Nanos, slot: Slot, parent: Slot, settings: &Settings) -> Result<(), SpecError>;

    /// New words for a class, and perhaps a new parent, while its packets stay. On an error nothing
    /// has changed. For [`ROOT_SLOT`], `settings` are the scheduler's own words.
    fn change(&mut self, now: Nanos, slot: Slot, parent: Slot, settings: &Settings) -> Result<(), SpecError>;

    /// True if the lengths that are told for the packets of a class are only guesses: the class
    /// holds a scheduler, or its queue reorders packets or drops them as they leave. Called after a
    /// class was added, and after its queue became another one. Until then lengths are exact.
    fn guesses(&mut self, _slot: Slot, _guesses: bool) {}

    /// Removes a class. It has neither packets nor children any more.
    fn remove(&mut self, now: Nanos, slot: Slot);

    /// Whether [`set_rate`](Scheduler::set_rate) may be called with this rate.
    fn check_rate(&self, _rate: Rate) -> Result<(), SpecError> {
        Ok(())
    }

    /// The rate of its place in the tree or of the link has changed.
    fn set_rate(&mut self, now: Nanos, rate: Rate, link_rate: Rate);

    /// True if [`admit`](Scheduler::admit) and [`queued`](Scheduler::queued) are to be called for
    /// every packet. The engine asks again when a class is added or changed; once true it stays so.
    fn wants_arrivals(&self) -> bool {
        false
    }

    /// False if [`admit`](Scheduler::admit) takes every packet and does nothing else, and if there
    /// are no [victims](Scheduler::victim), so that neither need be called. The engine asks with
    /// [`wants_arrivals`](Scheduler::wants_arrivals).
    fn may_refuse(&self) -> bool {
        true
    }

    /// A packet of `len` bytes arrives for the class, and is not queued yet. Schedulers are asked
    /// from the class upwards; if one drops it, those above are not asked. Only called if
    /// [`wants_arrivals`](Scheduler::wants_arrivals).
    fn admit(&mut self, _now: Nanos, _slot: Slot, _len: u32) -> Admit {
        Admit::Take
    }

    /// A packet of `len` bytes was queued. With `first` it is the class's first packet; other
    /// packets are reported only if [`wants_arrivals`](Scheduler::wants_arrivals).
    fn queued(&mut self, now: Nanos, slot: Slot, len: u32, first: bool);

    /// A class whose last packet is to be dropped now, and why. Asked after a packet was queued,
    /// until there is none; only if [`wants_arrivals`](Scheduler::wants_arrivals) and
    /// [`may_refuse`](Scheduler::may_refuse). The class must not [guess](Scheduler::guesses).
    /// [`tail_lost`](Scheduler::tail_lost) follows, or [`head_lost`](Scheduler::head_lost) if the
    /// class has no packets then.
    fn victim(&mut self) -> Option<(Slot, DropReason)> {
        None
    }

    /// The first packet of the class was dropped. `next` is the length of its first packet now,
    /// `None` if it has none any more.
    fn head_lost(&mut self, now: Nanos, slot: Slot, next: Option<u32>);

    /// The scheduler inside the class has packets, but may send none for now: the class has nothing
    /// to send. This ends with [`unblocked`](Scheduler::unblocked), or when the class has
    /// [lost](Scheduler::head_lost) all its packets.
    fn blocked(&mut self, now: Nanos, slot: Slot) {
        self.head_lost(now, slot, None);
    }

    /// The scheduler inside the class may send again; `len` is a guess at the length of its first
    /// packet.
    fn unblocked(&mut self, now: Nanos, slot: Slot, len: u32) {
        self.queued(now, slot, len, true);
    }

    /// A packet that was not the first was dropped. For schedulers that keep the order of all
    /// packets.
    fn tail_lost(&mut self, _now: Nanos, _slot: Slot) {}

    /// The queue of the class that [`choose`](Scheduler::choose) has just named dropped its first
    /// `packets`, and sends the one behind them. [`sent`](Scheduler::sent) follows. For schedulers
    /// that count all packets.
    fn heads_dropped(&mut self, _now: Nanos, _slot: Slot, _packets: u32) {}

    /// The class whose first packet is to be sent now, if any may be. Asking again at the same time
    /// gives the same answer. While no packet is queued, only schedulers that [want
    /// arrivals](Scheduler::wants_arrivals) are asked.
    fn choose(&mut self, now: Nanos) -> Option<Slot>;

    /// A packet of `len` bytes of the class that [`choose`](Scheduler::choose) named was sent.
    /// `next` is the length of the next one, `None` if there is none. Where the class's queue
    /// reorders or drops packets, lengths reported earlier are guesses: `len` here is what counts.
    /// Returns whether the packet used bandwidth beyond the class's own.
    fn sent(&mut self, now: Nanos, slot: Slot, len: u32, next: Option<u32>) -> bool;

    /// A whole departure: asks [`choose`](Scheduler::choose), takes the packet, and reports it by
    /// [`sent`](Scheduler::sent). The engine calls it for the link's own scheduler. It is here, and
    /// no scheduler writes its own, because it is compiled anew for each of them: one call through
    /// a table of functions in place of two, and what they do can become part of it.
    #[inline]
    fn depart(&mut self, now: Nanos, classes: &[ClassId], buffers: &mut Buffers) -> Option<Departure> {
        depart(self, now, classes, buffers)
    }

    /// The packet for which [`sent`](Scheduler::sent) has just returned true has `bytes` bytes of
    /// its own, without what the link charges. For schedulers that [want
    /// arrivals](Scheduler::wants_arrivals) and count [`borrowed_bytes`](Scheduler::borrowed_bytes)
    /// themselves.
    fn count_borrowed(&mut self, _slot: Slot, _bytes: u32) {}

    /// The earliest time at which [`choose`](Scheduler::choose) may name a class if nothing else
    /// happens. A time in the past means now; `None` means that something else must happen first.
    fn next_wakeup(&mut self) -> Option<Nanos>;

    /// Own bytes of packets that used another class's bandwidth, if the scheduler counts them
    /// itself. Otherwise the engine counts the packets for which [`sent`](Scheduler::sent) returns
    /// true.
    fn borrowed_bytes(&self, _slot: Slot) -> Option<u64> {
        None
    }

    /// Calls `counter` with the name and value of everything else that it counts for a class:
    /// `over`, `delays`, … A value that may be negative (tokens in debt) is an `i64` in two's
    /// complement.
    fn report_counters(&self, _slot: Slot, _counter: &mut dyn FnMut(&'static str, u64)) {}

    /// Hints that the records of the class are needed soon. Changes nothing.
    fn fetch(&self, _slot: Slot) {}

    /// [`fetch`](Scheduler::fetch) for several classes. No scheduler writes its own: like
    /// [`depart`](Scheduler::depart) it is compiled anew for each of them, one call in place of one
    /// for each class.
    fn fetch_all(&self, slots: &[Slot]) {
        for slot in slots {
            self.fetch(*slot);
        }
    }

    /// The two classes that are likely to send after `slot`, the sooner one first; [`NOBODY`] where
    /// finding out would take a search. Only for prefetching: a wrong answer costs time, nothing
    /// else.
    fn likely_next(&mut self, _slot: Slot) -> [Slot; 2] {
        [NOBODY; 2]
    }

    /// Bytes of memory held.
    fn memory(&self) -> usize;
}
