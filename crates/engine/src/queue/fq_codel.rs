//! FQ-CoDel (Høiland-Jørgensen, McKenney, Täht, Gettys and Dumazet 2018; RFC 8290): a queue for
//! each flow, each with its own CoDel.
//!
//! A hash of its flow puts each packet into one of the queues. They are served by deficit round
//! robin, a `quantum` of bytes each. A flow that has just become active is *new*. New flows are
//! served before the old ones, for one quantum. So a flow that sends less than a quantum in a round
//! (a name query, a call, a connection that opens) never waits behind flows that fill the link,
//! without any rule that knows it. Each flow's CoDel keeps the delay of that flow low.
//!
//! A flow's record is freed when the flow is out of the rounds and the state of its CoDel cannot
//! change a later decision. So only active flows take memory. An overflow drops from the head of
//! the fattest flow, which [`flows`](super::flows) knows at any time.

use super::aqm::ECN;
use super::codel::{Control, INTERVAL, Parameters, TARGET};
use super::flow_queue::{self, FlowScheduler};
use super::flows::{ByBytes, Chain, Flow, Flows, Hash, MOST, QUANTUM};
use super::{Context, Entry, Store, Taken};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::settings::{Kind, Limit, Settings, Word};
use crate::spec::{QueueSpec, SpecError};
use crate::units::Nanos;

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    words: &[
        TARGET,
        INTERVAL,
        ECN,
        Word {
            name: "flows",
            kind: Kind::Int { min: 1, max: MOST },
            help: "queues that flows are hashed into",
            default: "1024",
        },
        QUANTUM,
        Word {
            name: "drop_batch",
            kind: Kind::Int { min: 1, max: 1024 },
            help: "most packets that an overflow drops: it drops half of the fattest flow's",
            default: "64",
        },
    ],
    ..Entry::new(
        "fq_codel",
        "serves flows in rounds, new ones first, with a CoDel for each flow (RFC 8290)",
        // RFC 8290 5.2.3.
        Limit::Packets(10_240),
        flow_queue::build::<FqCodel>,
    )
};

/// The memory of an active flow.
const _: () = assert!(size_of::<Flow<Control>>() == 64);

/// The words of the queue, checked.
struct Words {
    parameters: Parameters,
    flows: u32,
    quantum: i32,
    batch: u32,
}

impl Words {
    fn read(context: &Context, settings: &Settings) -> Result<Words, SpecError> {
        // A parser keeps numbers within the bounds of the table of words; other callers may not, so
        // they are clamped.
        let mtu = u64::from(context.overhead.charge(context.mtu));
        Ok(Words {
            parameters: Parameters::read(context, settings)?,
            flows: settings.int("flows").unwrap_or(1024).clamp(1, MOST) as u32,
            quantum: settings.bytes("quantum").unwrap_or(mtu).clamp(256, 1 << 20) as i32,
            batch: settings.int("drop_batch").unwrap_or(64).clamp(1, 1024) as u32,
        })
    }
}

struct FqCodel {
    words: Words,
    flows: Flows<Control, ByBytes>,
    new: Chain,
    old: Chain,
    /// Charged length of a full packet.
    mtu: u32,
    /// Flows that are out of the rounds, but keep their record because of their CoDel's state; and
    /// the record that [`sweep`](FqCodel::sweep) looks at next.
    resting: u32,
    swept: u32,
    largest: u32,
    overflowed: u64,
    begun: u64,
    marked: u64,
}

impl FqCodel {
    /// A flow that is in neither list becomes new, with a quantum of credit (RFC 8290, 4.1).
    #[inline]
    fn begin(&mut self, at: u32) {
        self.flows.get_mut(at).deficit = self.words.quantum;
        self.flows.append(&mut self.new, at);
        self.begun += 1;
    }

    /// A bucket without a flow gets one, which is new.
    #[inline(never)]
    fn open(&mut self, bucket: u32) -> u32 {
        let at = self.flows.open(bucket);
        self.begin(at);
        at
    }

    /// A flow leaves the rounds.
    #[inline]
    fn retire(&mut self, now: Nanos, at: u32) {
        if self.flows.get(at).state.remembers(&self.words.parameters, now) {
            self.resting += 1;
        } else {
            self.flows.close(at);
        }
    }

    /// Looks at two more records, and frees those that are not needed any more. This is done before
    /// each new record, so records that are not needed do not pile up.
    #[cold]
    fn sweep(&mut self, now: Nanos) {
        for _ in 0..2 {
            let at = self.swept;
            self.swept = (at + 1) % self.flows.records().max(1);
            if self.flows.is_open(at)
                && !self.flows.in_chain(at)
                && !self.flows.get(at).state.remembers(&self.words.parameters, now)
            {
                self.flows.close(at);
                self.resting -= 1;
            }
        }
    }

    /// [`next`](FlowScheduler::next) for what most departures are: the flow whose turn it is, or
    /// the one after it, has credit, and its first packet did not wait for long. `None`, and
    /// nothing was sent, if that is not so.
    #[inline(always)]
    fn depart_quickly(&mut self, now: Nanos, store: &mut Store<'_>, passed: &mut u32) -> Option<Taken> {
        let mut at = self.new.first().or(self.old.first())?;
        let flow = self.flows.get_mut(at);
        if flow.deficit <= 0 {
            if !self.new.is_empty() || self.old.len() < 2 {
                return None;
            }
            flow.deficit = flow.deficit.saturating_add(self.words.quantum);
            at = self.flows.rotate(&mut self.old);
            *passed = 1;
        }
        self.send_quickly(now, at, store)
    }

    /// A flow sends its first packet, if it has credit and the packet did not wait for long.
    #[inline(always)]
    fn send_quickly(&mut self, now: Nanos, at: u32, store: &mut Store<'_>) -> Option<Taken> {
        let parameters = &self.words.parameters;
        let passes = |flow: &Flow<Control>, arrived| flow.deficit > 0 && flow.state.passes(parameters, now, arrived);
        self.flows.pop_if(at, store, passes, |flow, packet| {
            flow.state.in_time();
            flow.deficit = flow.deficit.saturating_sub_unsigned(packet.wire);
        })
    }

    /// [`next`](FlowScheduler::next) in all cases. `passed` flows were passed in this call already.
    #[inline(never)]
    fn next_any(&mut self, now: Nanos, store: &mut Store<'_>, decide: bool, mut passed: u32) -> Option<Taken> {
        loop {
            let at = self.turn(now, decide, &mut passed)?;
            if decide && let Some(packet) = self.send_quickly(now, at, store) {
                return Some(packet);
            }
            if let Some(packet) = self.depart(now, at, store, decide) {
                return Some(packet);
            }
            // Its CoDel has dropped all its packets.
            self.leave(now, at);
        }
    }

    /// The next flow with credit and packets: the rounds (RFC 8290, 4.2). A flow that has sent a
    /// packet of several quanta is passed in as many rounds, which `passed` counts. After a round
    /// in which nobody sent, the further ones are gone through at once, so one departure passes
    /// each flow a few times at most, however small the quantum is.
    #[inline]
    fn turn(&mut self, now: Nanos, decide: bool, passed: &mut u32) -> Option<u32> {
        loop {
            let (at, new) = match self.new.first() {
                Some(at) => (at, true),
                None => (self.old.first()?, false),
            };
            let flow = self.flows.get_mut(at);
            if flow.deficit <= 0 {
                let quantum = self.words.quantum as u32;
                let alone = self.new.len() + self.old.len() == 1;
                // A flow that is alone gets the credit of all rounds that it needs at once.
                let rounds = if alone { flow.deficit.unsigned_abs() / quantum + 1 } else { 1 };
                flow.deficit = flow.deficit.saturating_add_unsigned(rounds * quantum);
                self.flows.shift(if new { &mut self.new } else { &mut self.old });
                self.flows.append(&mut self.old, at);
                *passed += 1;
                if !alone && self.new.is_empty() && *passed >= self.old.len() {
                    self.flows.skip_rounds(&self.old, quantum);
                    *passed = 0;
                }
                continue;
            }
            if !flow.list.is_empty() {
                return Some(at);
            }
            if decide {
                flow.state.found_empty();
            }
            self.leave(now, at);
        }
    }

    /// The flow whose turn it is has no packets. A new flow moves to the end of the old ones before
    /// it can be new again; otherwise flows that send one packet at a time would starve the old
    /// ones.
    fn leave(&mut self, now: Nanos, at: u32) {
        if self.new.is_empty() {
            self.flows.shift(&mut self.old);
        } else {
            self.flows.shift(&mut self.new);
            if !self.old.is_empty() {
                self.flows.append(&mut self.old, at);
                return;
            }
        }
        self.retire(now, at);
    }

    /// The packet that a flow sends: with `decide` the one that its CoDel chooses, otherwise its
    /// first.
    #[inline]
    fn depart(&mut self, now: Nanos, at: u32, store: &mut Store<'_>, decide: bool) -> Option<Taken> {
        let (parameters, (_, total), marked) = (&self.words.parameters, self.flows.backlog(), store.marked());
        let packet = self.flows.update(at, |flow| match decide {
            true => flow.state.dequeue(parameters, now, &mut flow.list, total, store),
            false => store.pop(&mut flow.list),
        });
        self.marked += store.marked() - marked;
        if let Some(packet) = &packet {
            let flow = self.flows.get_mut(at);
            flow.deficit = flow.deficit.saturating_sub_unsigned(packet.wire);
        }
        packet
    }
}

impl FlowScheduler for FqCodel {
    type State = Control;

    fn new(context: &Context, spec: &QueueSpec) -> Result<FqCodel, SpecError> {
        let words = Words::read(context, &spec.settings)?;
        Ok(FqCodel {
            flows: Flows::new(words.flows),
            words,
            new: Chain::NEW,
            old: Chain::NEW,
            mtu: context.overhead.charge(context.mtu),
            resting: 0,
            swept: 0,
            largest: 0,
            overflowed: 0,
            begun: 0,
            marked: 0,
        })
    }

    #[inline]
    fn flows(&self) -> &Flows<Control, ByBytes> {
        &self.flows
    }

    #[inline(always)]
    fn put(&mut self, now: Nanos, packet: &Packet, hash: &Hash, store: &mut Store<'_>) {
        self.largest = self.largest.max(packet.len);
        let bucket = hash.bucket(packet.flow, self.words.flows);
        let at = match self.flows.find(bucket) {
            Some(at) => {
                if !self.flows.in_chain(at) {
                    self.resting -= 1;
                    self.begin(at);
                }
                at
            }
            None => {
                if self.resting > 0 {
                    self.sweep(now);
                }
                self.open(bucket)
            }
        };
        self.flows.push(at, packet, store);
    }

    #[inline(always)]
    fn next(&mut self, now: Nanos, store: &mut Store<'_>, decide: bool) -> Option<Taken> {
        let mut passed = 0;
        if decide && let Some(packet) = self.depart_quickly(now, store, &mut passed) {
            return Some(packet);
        }
        self.next_any(now, store, decide, passed)
    }

    fn rest_all(&mut self, now: Nanos, _: &mut Store<'_>) {
        let sends = self.turn(now, true, &mut 0);
        debug_assert!(sends.is_none());
    }

    /// Drops from the head of the fattest flow: half of its packets, at most [`Words::batch`] (RFC
    /// 8290, 4.1). The flow keeps its place in the rounds.
    #[cold]
    fn overflow(&mut self, _: Nanos, limit: Limit, store: &mut Store<'_>, reason: DropReason) {
        let Some(at) = self.flows.fattest() else { return };
        let batch = self.flows.get(at).list.packets().div_ceil(2).min(self.words.batch);
        for _ in 0..batch {
            let Some(packet) = self.flows.pop(at, store) else { break };
            self.overflowed += 1;
            store.lose(packet, reason);
            if reason == DropReason::LimitLowered && !self.flows.over(limit) {
                break;
            }
        }
    }

    fn clear(&mut self) {
        self.flows = Flows::new(self.words.flows);
        (self.new, self.old, self.resting, self.swept) = (Chain::NEW, Chain::NEW, 0, 0);
    }

    fn change(&mut self, place: &Context, new: &QueueSpec) -> Result<bool, SpecError> {
        let before = self.words.flows;
        self.words = Words::read(place, &new.settings)?;
        Ok(self.words.flows != before)
    }

    #[inline(always)]
    fn peek(&self) -> u32 {
        let first = self.new.first().or(self.old.first());
        let known = first.and_then(|at| self.flows.ready(at));
        known.unwrap_or_else(|| self.flows.guess(&[self.new, self.old]).unwrap_or(self.mtu))
    }

    fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        // As `tc -s qdisc` names them.
        counter("maxpacket", u64::from(self.largest));
        counter("drop_overlimit", self.overflowed);
        counter("new_flow_count", self.begun);
        counter("ecn_mark", self.marked);
        counter("new_flows_len", u64::from(self.new.len()));
        counter("old_flows_len", u64::from(self.old.len()));
    }

    fn memory(&self) -> usize {
        0
    }
}
