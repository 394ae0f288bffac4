//! SFQ (McKenney 1990), stochastic fairness queueing: a queue for each flow, served round robin. A
//! flow may have a RED of its own, as in Linux since 3.3 (tc-sfq(8)).
//!
//! Flows are hashed into `divisor` queues, of which at most `flows` hold packets at a time. A round
//! serves a `quantum` of bytes from each. Two flows with the same hash share a queue until the hash
//! changes (`perturb`). When the queue is full, the longest flow loses its last packet, or with
//! `headdrop` its first one. So the flow that sends most gets the signal.
//!
//! With `redflowlimit` each flow has a RED that measures its bytes: early CeroWrt ran this as
//! SFQ-RED before there was fq_codel. With `headdrop` RED marks or drops the packet at the flow's
//! head, so the sender notices without the delay of the flow's queue.
//!
//! After a change of the hash, each call moves one queue of the old hash. So packets of a flow stay
//! in order, and the work of a call is bounded by the packets of one queue.

mod perturb;
mod red;
mod rounds;
mod words;

use perturb::Perturb;
use words::{By, Words};

use super::flows::{ByPackets, Chain, Flow, Flows, Hash, MOST, NextSeed, QUANTUM, drain};
use super::red::Average;
use super::{Context, Entry, Form, Policy, Queue, Store, Taken};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::random::SplitMix64;
use crate::settings::{Kind, Limit, Word};
use crate::spec::{QueueSpec, SpecError};
use crate::units::Nanos;

/// The registry's entry. Defaults of tc-sfq(8).
pub const ENTRY: Entry = Entry {
    words: &[
        Word {
            name: "hash",
            kind: Kind::Choice(&["flow", "src", "dst"]),
            help: "what gets a queue of its own: flows, source hosts or destination hosts",
            default: "flow",
        },
        Word {
            name: "divisor",
            kind: Kind::Int { min: 1, max: MOST },
            help: "queues that flows are hashed into",
            default: "1024",
        },
        Word {
            name: "flows",
            kind: Kind::Int { min: 1, max: MOST },
            help: "most flows with packets at a time",
            default: "127",
        },
        Word { name: "depth", kind: Kind::Int { min: 1, max: 127 }, help: "most packets of a flow", default: "127" },
        QUANTUM,
        Word {
            name: "perturb",
            kind: Kind::Time,
            help: "how often the hash is changed, at least 1s apart",
            default: "never",
        },
        Word {
            name: "new-flow",
            kind: Kind::Choice(&["back", "front"]),
            help: "where a flow without packets joins the round: behind the others, or served next",
            default: "back",
        },
        Word {
            name: "headdrop",
            kind: Kind::Flag,
            help: "drops and marks at a flow's head, not at its tail",
            default: "off",
        },
        Word {
            name: "redflowlimit",
            kind: Kind::Bytes { min: 1, max: 1 << 30 },
            help: "a RED for each flow, and the most bytes of a flow",
            default: "no RED",
        },
        Word {
            name: "min",
            kind: Kind::Bytes { min: 1, max: 1 << 30 },
            help: "RED: average bytes of a flow from which on some packets are dropped",
            default: "a third of max",
        },
        Word {
            name: "max",
            kind: Kind::Bytes { min: 1, max: 1 << 30 },
            help: "RED: average bytes of a flow from which on all packets are dropped",
            default: "a quarter of redflowlimit",
        },
        Word {
            name: "probability",
            kind: Kind::Fraction,
            help: "RED: drop probability just below max",
            default: "0.02",
        },
        Word {
            name: "ewma",
            kind: Kind::Int { min: 1, max: 31 },
            help: "RED: a new length enters the average with a weight of 1/2^N",
            default: "what burst asks for",
        },
        Word {
            name: "avpkt",
            kind: Kind::Bytes { min: 1, max: 65_535 },
            help: "RED: usual packet length, in which burst is counted",
            default: "1000",
        },
        Word {
            name: "burst",
            kind: Kind::Int { min: 1, max: 1 << 20 },
            help: "RED: packets that may arrive at once without bringing the average to min",
            default: "(2 min + max) / (3 avpkt)",
        },
        Word {
            name: "ecn",
            kind: Kind::Flag,
            help: "RED: marks ECN-capable packets instead of dropping them",
            default: "off",
        },
        Word {
            name: "harddrop",
            kind: Kind::Flag,
            help: "RED, with ecn: from max on packets are dropped, not marked",
            default: "off",
        },
    ],
    form: Form::Flows,
    ..Entry::new(
        "sfq",
        "serves flows in rounds, drops from the longest; with a RED for each flow on request (SFQ)",
        Limit::Packets(127),
        |context, spec| Ok(Policy::Stateful(Box::new(Sfq::new(context, spec)?))),
    )
};

/// The state that SFQ keeps for a flow: the average of its RED.
struct Slot(Average);

impl Default for Slot {
    fn default() -> Slot {
        Slot(Average::NEW)
    }
}

const _: () = assert!(size_of::<Flow<Slot>>() <= 64);

/// Marks and drops of the REDs of all flows, under the names of `tc -s qdisc`.
#[derive(Default)]
struct Tally {
    prob_mark: u64,
    prob_mark_head: u64,
    prob_drop: u64,
    forced_mark: u64,
    forced_mark_head: u64,
    forced_drop: u64,
}

struct Sfq {
    words: Words,
    limit: Limit,
    flows: Flows<Slot, ByPackets>,
    ring: Chain,
    /// Flows with packets.
    active: u32,
    perturb: Perturb,
    random: SplitMix64,
    seed: NextSeed,
    mtu: u32,
    tally: Tally,
}

impl Sfq {
    fn new(context: &Context, spec: &QueueSpec) -> Result<Sfq, SpecError> {
        let words = Words::read(context, &spec.settings)?;
        Ok(Sfq {
            flows: Flows::new(words.buckets()),
            perturb: Perturb::new(&words, Hash::new(context.seed)),
            words,
            limit: spec.limit,
            ring: Chain::NEW,
            active: 0,
            random: SplitMix64::new(context.seed),
            seed: NextSeed::default(),
            mtu: context.overhead.charge(context.mtu),
            tally: Tally::default(),
        })
    }

    /// The number by which a packet's flow is told from others: a hash of the flow or of a host.
    fn key(&self, packet: &Packet) -> u32 {
        match self.words.by {
            By::Flow => packet.flow,
            By::Source => u32::from(packet.hosts[0]),
            By::Destination => u32::from(packet.hosts[1]),
        }
    }

    /// Starts again without flows, with this hash. The queue is empty.
    fn clear(&mut self, hash: Hash) {
        self.flows = Flows::new(self.words.buckets());
        (self.ring, self.active) = (Chain::NEW, 0);
        self.perturb = Perturb::new(&self.words, hash);
    }

    /// Puts a packet at the end of its flow. With `front` a new flow is served next.
    #[inline(always)]
    fn append(&mut self, at: u32, packet: &Packet, front: bool, store: &mut Store<'_>) {
        if self.flows.get(at).list.is_empty() {
            self.active += 1;
            if !self.flows.in_chain(at) {
                self.flows.get_mut(at).deficit = self.words.quantum;
                if front {
                    // As in Linux 3.3 (d47a0ac7b6). 3.4 took it back (cc34eb672e): a flow that is
                    // new again and again starves the others.
                    self.flows.prepend(&mut self.ring, at);
                } else {
                    // Behind the others; otherwise new flows could starve them.
                    self.flows.append(&mut self.ring, at);
                }
            }
        }
        self.flows.push(at, packet, store);
    }

    #[inline]
    fn pop(&mut self, at: u32, store: &mut Store<'_>) -> Option<Taken> {
        let packet = self.flows.pop(at, store)?;
        self.account(at);
        Some(packet)
    }

    /// Counts a flow that has just lost or sent a packet as inactive if it is empty.
    fn account(&mut self, at: u32) {
        self.active -= u32::from(self.flows.get(at).list.is_empty());
    }

    /// Drops one packet of the longest flow.
    fn drop_one(&mut self, store: &mut Store<'_>, reason: DropReason) {
        let Some(mut at) = self.flows.fattest() else { return };
        if self.flows.get(at).list.packets() == 1 {
            // Every flow has one packet: the flow that is served next loses its.
            while let Some(first) = self.ring.first() {
                if !self.flows.get(first).list.is_empty() {
                    at = first;
                    break;
                }
                self.leave();
            }
        }
        let packet = match self.words.headdrop {
            true => self.pop(at, store),
            // A flow is at most 127 packets long.
            false => {
                let packet = self.flows.update(at, |flow| store.pop_last(&mut flow.list));
                packet.inspect(|_| self.account(at))
            }
        };
        if let Some(packet) = packet {
            store.lose(packet, reason);
        }
        if self.flows.get(at).list.is_empty() && self.ring.first() == Some(at) {
            self.leave();
        }
    }

    /// Takes the first flow, which is empty, out of the ring and frees its record.
    #[inline(never)]
    fn leave(&mut self) {
        if let Some(at) = self.flows.shift(&mut self.ring) {
            self.flows.close(at);
        }
    }
}

impl Queue for Sfq {
    fn enqueue(&mut self, now: Nanos, packet: &mut Packet, store: &mut Store<'_>) -> Result<(), DropReason> {
        if !self.flows.admits(self.limit, packet.len) {
            return Err(DropReason::QueueFull);
        }
        if let Some(hash) = self.seed.due(self.flows.packets() == 0) {
            self.clear(hash);
        }
        self.perturb_if_due(now, store);
        let bucket = self.bucket(self.key(packet));
        let at = match self.flows.find(bucket) {
            Some(at) => at,
            None if self.active >= self.words.flows => return Err(DropReason::QueueFull),
            None => self.flows.open(bucket),
        };
        // Most packets come to a flow without a RED, neither deep nor in a full queue.
        let full = self.limit == Limit::Packets(self.flows.packets());
        if self.words.red.is_some() || full || self.flows.get(at).list.packets() >= self.words.depth {
            self.judge(at, packet, store)?;
        }
        self.append(at, packet, self.words.front, store);
        while self.flows.over(self.limit) {
            self.drop_one(store, if self.words.headdrop { DropReason::HeadDropped } else { DropReason::QueueFull });
        }
        Ok(())
    }

    #[inline(always)]
    fn dequeue(&mut self, now: Nanos, store: &mut Store<'_>) -> Option<Taken> {
        self.perturb_if_due(now, store);
        self.next(store)
    }

    #[inline(always)]
    fn peek(&self) -> Option<u32> {
        let guess = || self.flows.guess(&[self.ring]).unwrap_or(self.mtu);
        let known = || self.ring.first().and_then(|at| self.flows.ready(at));
        (self.flows.packets() > 0).then(|| known().unwrap_or_else(guess))
    }

    fn backlog(&self) -> (u32, u32) {
        self.flows.backlog()
    }

    fn take(&mut self, store: &mut Store<'_>) -> Option<Taken> {
        self.next(store)
    }

    fn change(&mut self, now: Nanos, place: &Context, new: &QueueSpec, store: &mut Store<'_>) -> Result<(), SpecError> {
        let words = Words::read(place, &new.settings)?;
        let moved = (words.buckets(), words.by) != (self.words.buckets(), self.words.by);
        self.words = words;
        self.limit = new.limit;
        if moved {
            // All packets are taken out and put in again, in the order in which they would have
            // left. A waiting packet does not carry the hashes of its hosts: with `hash src` or
            // `dst` all of these packets are one flow.
            let waiting = drain(self, store);
            self.clear(self.perturb.hash());
            for packet in waiting {
                self.put_again(packet, store, DropReason::LimitLowered);
            }
        }
        self.perturb.set_period(now, self.words.perturb);
        while self.flows.over(self.limit) {
            self.drop_one(store, DropReason::LimitLowered);
        }
        Ok(())
    }

    fn keeps_flows(&self) -> bool {
        true
    }

    fn seed(&mut self, seed: u64) {
        self.random = SplitMix64::new(seed);
        if let Some(hash) = self.seed.set(seed, self.flows.packets() == 0) {
            self.clear(hash);
        }
    }

    fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        counter("flows", u64::from(self.active));
        if let Some(red) = &self.words.red {
            // n, where the average has a weight of 1/2^n; computed from `burst` if not written.
            counter("ewma", u64::from(red.ewma.weight()));
            counter("prob_mark", self.tally.prob_mark);
            counter("prob_mark_head", self.tally.prob_mark_head);
            counter("prob_drop", self.tally.prob_drop);
            counter("forced_mark", self.tally.forced_mark);
            counter("forced_mark_head", self.tally.forced_mark_head);
            counter("forced_drop", self.tally.forced_drop);
        }
    }

    fn memory(&self) -> usize {
        size_of::<Sfq>() + self.flows.memory() + self.perturb.memory()
    }
}
