//! CAKE (Høiland-Jørgensen, Täht and Morton 2018): fairness between hosts and between the flows of
//! a host, each flow with a COBALT.
//!
//! Flows have queues of their own that are served in rounds, new ones first, as in fq_codel. But in
//! a round a flow sends only a quantum divided by the number of its host's bulk flows. So a host
//! gets its share whatever the number of its flows: as a source, as a destination, or by whichever
//! of the two has more bulk flows (triple isolation). The hash is eight-way set-associative: two
//! flows share a queue only if all eight queues of their set are taken. [`Cobalt`] is CoDel for
//! flows that react to drops, and BLUE for those that do not.
//!
//! The engine has its own shaper, and classes do what CAKE's tins do by DSCP. So this queue is CAKE
//! with one tin, `besteffort`.
//!
//! A flow with a small share needs many rounds for a packet. These rounds are skipped: a calendar
//! holds the flow in the round in which it may send again. So a packet costs the same however many
//! flows its host has. The state of an idle flow decays. The decay is computed when the state is
//! next used, with the same result as if the empty queue had been served all the time. The record
//! is freed when the state has decayed to nothing.

mod cobalt;
mod departures;
mod hosts;
mod rounds;
mod words;

use cobalt::Cobalt;
use hosts::Hosts;
use rounds::Rounds;
use words::Words;

use super::flow_queue::{self, FlowScheduler};
use super::flows::{ByBytes, Chain, Flow, Flows, Hash, MOST};
use super::{Context, Entry, Store, Taken};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::random::SplitMix64;
use crate::settings::{Kind, Limit, Word};
use crate::spec::{QueueSpec, SpecError};
use crate::units::{Nanos, Rate};

/// Queues in a set of the hash.
const WAYS: u32 = 8;

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    words: &[
        isolation("triple-isolate", "flows, and hosts at either end", "what holds where no other is written"),
        isolation("dual-srchost", "flows, and source hosts", "off"),
        isolation("dual-dsthost", "flows, and destination hosts", "off"),
        isolation("flows", "flows only", "off"),
        isolation("hosts", "pairs of hosts", "off"),
        isolation("srchost", "source hosts", "off"),
        isolation("dsthost", "destination hosts", "off"),
        isolation("flowblind", "nothing: one queue", "off"),
        Word {
            name: "rtt",
            kind: Kind::Time,
            help: "the longest usual round trip: CoDel's interval, of which a twentieth is the target",
            default: "100ms",
        },
        Word {
            name: "queues",
            kind: Kind::Int { min: 8, max: MOST },
            help: "queues that flows are hashed into, in sets of eight",
            default: "1024",
        },
    ],
    ..Entry::new(
        "cake",
        "fair between hosts and between their flows, each with a CoDel and a BLUE (CAKE)",
        Limit::Bytes(4 << 20),
        flow_queue::build::<Cake>,
    )
};

const fn isolation(name: &'static str, help: &'static str, default: &'static str) -> Word {
    Word { name, kind: Kind::Flag, help, default }
}

/// From this many queued packets on, records of packets and flows do not stay in a processor's
/// nearest cache, and are prefetched.
const PREFETCH_FROM: u32 = 1024;

/// The state of a flow in the rounds (`enum` of `CAKE_SET_…` in sch_cake.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Set {
    /// In no round, while the state of its COBALT decays.
    #[default]
    Resting,
    /// Among the new flows: it sends less than its part of a round.
    Sparse,
    /// It was sparse, is empty, and still is in a round.
    SparseWait,
    /// It uses its part of every round.
    Bulk,
}

/// What is kept of a flow besides its packets.
#[derive(Default)]
struct State {
    cobalt: Cobalt,
    /// The number of the flow before it is hashed into a bucket.
    tag: u32,
    /// Places of its hosts in [`Hosts`].
    hosts: [u16; 2],
    set: Set,
}

const _: () = assert!(size_of::<Flow<State>>() <= 88);

struct Cake {
    context: Context,
    words: Words,
    flows: Flows<State, ByBytes>,
    hosts: Hosts,
    new: Chain,
    old: Rounds,
    random: SplitMix64,
    resting: u32,
    swept: u32,
    /// Flows that are sparse and bulk now.
    sparse: u32,
    bulk: u32,
    /// How often, of all time, a flow was found in another place of its set than its own, got a new
    /// place, or had to share one.
    ways: [u64; 3],
    overflowed: u64,
}

impl Cake {
    /// The flow of a packet, in the place that its hash names or in one of the other seven of the
    /// set. If other flows have all eight, it shares the first.
    #[inline]
    fn find(&mut self, packet: &Packet, hash: &Hash) -> u32 {
        let tag = self.words.tag(packet);
        let place = hash.bucket(tag, self.words.queues);
        match self.flows.find(place) {
            Some(at) if self.flows.get(at).state.tag == tag => at,
            _ => self.find_in_set(packet, tag, place),
        }
    }

    /// [`find`](Cake::find) for a flow that may not be in its own place.
    #[inline(never)]
    fn find_in_set(&mut self, packet: &Packet, tag: u32, place: u32) -> u32 {
        let (own, set) = (place % WAYS, place - place % WAYS);
        let mut free = None;
        for nth in 0..WAYS {
            let place = set + (own + nth) % WAYS;
            match self.flows.find(place) {
                Some(at) if self.flows.get(at).state.tag == tag => {
                    self.ways[0] += u64::from(nth > 0);
                    return at;
                }
                Some(_) => {}
                None => free = free.or(Some(place)),
            }
        }
        if let Some(place) = free {
            self.ways[1] += 1;
            let at = self.flows.open(place);
            // It is not in the rounds yet, so it counts as resting.
            self.resting += 1;
            let state = &mut self.flows.get_mut(at).state;
            state.tag = tag;
            state.hosts = self.hosts.enter(packet.hosts);
            return at;
        }
        self.ways[2] += 1;
        // The set is full, so its own place is taken.
        let at = self.flows.find(place).unwrap_or(0);
        let state = &mut self.flows.get_mut(at).state;
        let bulk = state.set == Set::Bulk;
        if bulk {
            self.hosts.count(state.hosts, -1);
        }
        self.hosts.leave(state.hosts);
        (state.tag, state.hosts) = (tag, self.hosts.enter(packet.hosts));
        if bulk {
            self.hosts.count(state.hosts, 1);
        }
        at
    }

    /// The number of bulk flows of a flow's host, by which its part of a round is divided; at least
    /// 1.
    fn load(&self, at: u32) -> u32 {
        let [source, destination] = self.hosts.bulk(self.flows.get(at).state.hosts);
        let source = if self.words.by_source { source } else { 1 };
        let destination = if self.words.by_destination { destination } else { 1 };
        source.max(destination).max(1)
    }

    /// A flow that has no packets gets one: it joins the rounds, or is bulk from now on.
    #[inline(never)]
    fn wake(&mut self, now: Nanos, at: u32) {
        match self.flows.get(at).state.set {
            Set::Resting => {
                self.resting -= 1;
                self.sparse += 1;
                let part = (self.words.quantum / self.load(at)).max(1);
                let flow = self.flows.get_mut(at);
                flow.state.cobalt.decay(&self.words.parameters, now);
                flow.state.set = Set::Sparse;
                flow.deficit = part as i32;
                self.flows.append(&mut self.new, at);
            }
            Set::SparseWait => {
                self.sparse -= 1;
                self.becomes_bulk(at);
            }
            Set::Sparse | Set::Bulk => {}
        }
    }

    fn becomes_bulk(&mut self, at: u32) {
        let state = &mut self.flows.get_mut(at).state;
        state.set = Set::Bulk;
        self.hosts.count(state.hosts, 1);
        self.bulk += 1;
    }

    /// A flow leaves the rounds.
    fn rest(&mut self, now: Nanos, at: u32) {
        let state = &mut self.flows.get_mut(at).state;
        state.cobalt.decay(&self.words.parameters, now);
        match std::mem::replace(&mut state.set, Set::Resting) {
            Set::Bulk => {
                self.hosts.count(state.hosts, -1);
                self.bulk -= 1;
            }
            _ => self.sparse -= 1,
        }
        self.resting += 1;
        self.free_if_at_rest(at);
    }

    /// Frees a resting flow's record if nothing is left of its state.
    fn free_if_at_rest(&mut self, at: u32) {
        let state = &self.flows.get(at).state;
        if state.cobalt.at_rest() {
            self.hosts.leave(state.hosts);
            self.flows.close(at);
            self.resting -= 1;
        }
    }

    /// Looks at two more records, and frees those that are not needed any more.
    fn sweep(&mut self, now: Nanos) {
        for _ in 0..2 {
            let at = self.swept;
            self.swept = (at + 1) % self.flows.records().max(1);
            if self.flows.records() > 0 && self.flows.is_open(at) && !self.flows.in_chain(at) {
                self.flows.get_mut(at).state.cobalt.decay(&self.words.parameters, now);
                self.free_if_at_rest(at);
            }
        }
    }
}

impl FlowScheduler for Cake {
    type State = State;

    fn new(context: &Context, spec: &QueueSpec) -> Result<Cake, SpecError> {
        let words = Words::read(context, &spec.settings)?;
        Ok(Cake {
            flows: Flows::new(words.queues),
            hosts: Hosts::new(words.queues),
            words,
            new: Chain::NEW,
            old: Rounds::new(),
            random: SplitMix64::new(context.seed),
            resting: 0,
            swept: 0,
            sparse: 0,
            bulk: 0,
            ways: [0; 3],
            overflowed: 0,
            context: *context,
        })
    }

    #[inline]
    fn flows(&self) -> &Flows<State, ByBytes> {
        &self.flows
    }

    #[inline(always)]
    fn put(&mut self, now: Nanos, packet: &Packet, hash: &Hash, store: &mut Store<'_>) {
        if self.resting > 0 {
            self.sweep(now);
        }
        let at = self.find(packet, hash);
        if !matches!(self.flows.get(at).state.set, Set::Sparse | Set::Bulk) {
            self.wake(now, at);
        }
        self.flows.push(at, packet, store);
    }

    #[inline(always)]
    fn next(&mut self, now: Nanos, store: &mut Store<'_>, decide: bool) -> Option<Taken> {
        if decide && let Some(packet) = self.depart_quickly(now, store) {
            return Some(packet);
        }
        self.next_any(now, store, decide)
    }

    fn rest_all(&mut self, now: Nanos, store: &mut Store<'_>) {
        self.next_any(now, store, true);
    }

    /// Drops one packet from the head of the fattest flow, and raises the probability of its BLUE.
    #[cold]
    fn overflow(&mut self, now: Nanos, _: Limit, store: &mut Store<'_>, reason: DropReason) {
        let Some(at) = self.flows.fattest() else { return };
        if let Some(packet) = self.flows.pop(at, store) {
            self.overflowed += 1;
            store.lose(packet, reason);
        }
        self.flows.get_mut(at).state.cobalt.full(&self.words.parameters, now);
    }

    fn clear(&mut self) {
        self.flows = Flows::new(self.words.queues);
        self.hosts = Hosts::new(self.words.queues);
        (self.new, self.old) = (Chain::NEW, Rounds::new());
        (self.resting, self.swept, self.sparse, self.bulk) = (0, 0, 0, 0);
    }

    /// A waiting packet does not carry the hashes of its hosts. So packets that are put in again
    /// count as those of one unknown host.
    fn change(&mut self, place: &Context, new: &QueueSpec) -> Result<bool, SpecError> {
        let words = Words::read(place, &new.settings)?;
        let moved = words.keeps_apart() != self.words.keeps_apart();
        (self.context, self.words) = (*place, words);
        Ok(moved)
    }

    #[inline(always)]
    fn peek(&self) -> u32 {
        let first = self.new.first().or_else(|| self.old.present().first());
        let known = first.and_then(|at| self.flows.ready(at));
        known.unwrap_or_else(|| {
            let guess = self.flows.guess(&[self.new, *self.old.present()]);
            guess.unwrap_or_else(|| self.context.overhead.charge(self.context.mtu))
        })
    }

    fn set_rate(&mut self, rate: Rate) {
        self.context.rate = rate;
        self.words.tune(&self.context);
    }

    fn seed(&mut self, seed: u64) {
        self.random = SplitMix64::new(seed);
    }

    fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        // As `tc -s qdisc` names them.
        counter("sp_flows", u64::from(self.sparse));
        counter("bk_flows", u64::from(self.bulk));
        let unresponsive =
            (0..self.flows.records()).filter(|at| self.flows.is_open(*at) && self.flows.get(*at).state.cobalt.blue());
        counter("un_flows", unresponsive.count() as u64);
        counter("way_inds", self.ways[0]);
        counter("way_miss", self.ways[1]);
        counter("way_cols", self.ways[2]);
        counter("drop_overlimit", self.overflowed);
    }

    fn memory(&self) -> usize {
        self.hosts.memory() + self.old.memory()
    }
}
