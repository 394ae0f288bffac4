//! ALTQ's `wfq` (docs/reference/altq.md 8.1): flows are hashed into queues, which take turns by
//! bytes.
//!
//! Queues with packets stand in a ring. When the turn comes to a queue, its quota grows by 512
//! bytes, and it sends while the quota is above 0; what it sends too much is taken from its later
//! turns. So a packet of 1500 bytes takes three turns. A queue that joins the ring stands behind
//! all others. All queues share one limit. A packet that comes when the limit is reached is queued
//! all the same, and the longest queue loses its first packets until all fit.
//!
//! As in ALTQ to the letter, except:
//! - which queue a flow has is decided by a hash under a secret seed, so that nobody can choose
//!   addresses that share a queue with another host's;
//! - all queues have ALTQ's default weight. There, only a program could give a queue another one by
//!   its number, and a weight of 0 divided by zero;
//! - rounds in which no queue may send are skipped at once.
//!
//! A packet takes as many steps as queues are passed on the way to it: its length / 512 on average,
//! and never more than a few times as many as there are queues in the ring.

mod longest;

use self::longest::{Held, Longest};
use super::flows::{Hash, NextSeed, drain};
use super::{Context, Entry, List, Policy, Queue, Store, Taken};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::settings::{Kind, Limit, Settings, Word};
use crate::spec::{QueueSpec, SpecError};
use crate::units::Nanos;

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    words: &[
        Word {
            name: "queues",
            kind: Kind::Int { min: 1, max: 2048 },
            help: "queues that flows are hashed into; they share the limit",
            default: "256",
        },
        Word {
            name: "hash",
            kind: Kind::Choice(&["dst", "sport", "flow"]),
            help: "what is hashed: the destination address, the source port, or the flow's five fields",
            default: "dst",
        },
    ],
    ..Entry::new(
        "hashed_wfq",
        "flows in hashed queues take turns by bytes, the longest queue loses (ALTQ's WFQ)",
        Limit::Bytes(65_536),
        |context, spec| Ok(Policy::Stateful(Box::new(HashedWfq::new(context, spec)))),
    )
};

/// What a queue may send more each time its turn comes, in bytes.
const QUANTUM: i64 = 512;

/// In [`Lane::next`]: it is not in the ring.
const OUT: u16 = u16::MAX;

/// What is hashed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Destination,
    Port,
    Flow,
}

/// One of the hashed queues.
#[derive(Clone)]
struct Lane {
    /// What it may still send in its turn, in bytes of the packets' own.
    quota: i64,
    list: List,
    /// The next one in the ring.
    next: u16,
    /// Which of all turns was its last one, or when it joined the ring.
    turn: u64,
}

impl Lane {
    fn held(&self) -> Option<Held> {
        (!self.list.is_empty()).then(|| (self.list.bytes(), self.turn))
    }
}

struct HashedWfq {
    /// None before the first packet.
    lanes: Box<[Lane]>,
    longest: Longest,
    /// Whose turn it is, and the one before it in the ring.
    head: u16,
    tail: u16,
    /// How many are in the ring: those with packets, and those that have sent their last one in
    /// this turn or owe for it.
    ring: u16,
    /// Turns that have ended, and queues that have joined the ring.
    turns: u64,
    queues: u16,
    by: By,
    packets: u32,
    bytes: u32,
    limit: Limit,
    hash: Hash,
    seed: NextSeed,
}

/// How many queues, and what is hashed.
fn words(settings: &Settings) -> (u16, By) {
    let by = match settings.choice("hash") {
        Some("sport") => By::Port,
        Some("flow") => By::Flow,
        _ => By::Destination,
    };
    (settings.int("queues").unwrap_or(256).clamp(1, 2048) as u16, by)
}

impl HashedWfq {
    fn new(context: &Context, spec: &QueueSpec) -> HashedWfq {
        let (queues, by) = words(&spec.settings);
        HashedWfq {
            lanes: Box::default(),
            longest: Longest::default(),
            head: 0,
            tail: 0,
            ring: 0,
            turns: 0,
            queues,
            by,
            packets: 0,
            bytes: 0,
            limit: spec.limit,
            hash: Hash::new(context.seed),
            seed: NextSeed::default(),
        }
    }

    /// Forgets the ring. There are no packets.
    fn clear(&mut self, hash: Hash) {
        (self.lanes, self.longest, self.ring, self.hash) = (Box::default(), Longest::default(), 0, hash);
    }

    #[cold]
    fn open(&mut self) {
        let queues = usize::from(self.queues);
        self.lanes = vec![Lane { quota: 0, list: List::NEW, next: OUT, turn: 0 }; queues].into_boxed_slice();
        self.longest = Longest::new(queues);
    }

    #[inline]
    fn lane(&mut self, at: u16) -> &mut Lane {
        &mut self.lanes[usize::from(at)]
    }

    /// Puts a packet at the end of its queue, and that into the ring. Returns its number.
    #[inline]
    fn put(&mut self, packet: &Packet, store: &mut Store<'_>) -> u16 {
        if self.lanes.is_empty() {
            self.open();
        }
        let key = match self.by {
            By::Destination => u32::from(packet.hosts[1]),
            By::Port => u32::from(packet.sport),
            By::Flow => packet.flow,
        };
        let at = self.hash.bucket(key, u32::from(self.queues)) as u16;
        let lane = &mut self.lanes[usize::from(at)];
        store.push(&mut lane.list, packet);
        if lane.next == OUT {
            self.join(at);
        }
        let lane = &self.lanes[usize::from(at)];
        self.longest.grown(at, (lane.list.bytes(), lane.turn));
        self.packets += 1;
        self.bytes += packet.len;
        at
    }

    /// A queue comes into the ring: alone it may send at once, otherwise it is behind all others.
    fn join(&mut self, at: u16) {
        let (head, tail) = (self.head, self.tail);
        self.turns += 1;
        self.lanes[usize::from(at)].turn = self.turns;
        if self.ring == 0 {
            self.head = at;
            let lane = self.lane(at);
            lane.next = at;
            lane.quota += QUANTUM;
        } else {
            let lane = self.lane(at);
            lane.next = head;
            lane.quota = 0;
            self.lane(tail).next = at;
        }
        self.tail = at;
        self.ring += 1;
    }

    /// The turn goes to the next queue.
    #[inline]
    fn advance(&mut self) {
        self.turns += 1;
        let turn = self.turns;
        let lane = self.lane(self.head);
        lane.turn = turn;
        let next = lane.next;
        (self.tail, self.head) = (self.head, next);
        self.lane(next).quota += QUANTUM;
    }

    /// The first queue leaves the ring, in which there is another one, and the turn goes on.
    fn leave(&mut self) {
        let (at, tail) = (self.head, self.tail);
        let next = std::mem::replace(&mut self.lane(at).next, OUT);
        self.lane(tail).next = next;
        self.head = next;
        self.ring -= 1;
        self.lane(next).quota += QUANTUM;
    }

    /// Gives all queues at once what they get in the rounds in which none may send yet.
    fn skip_rounds(&mut self) {
        let turns = |quota: i64| if quota > 0 { 0 } else { -quota / QUANTUM + 1 };
        let mut least = i64::MAX;
        let mut at = self.head;
        for _ in 0..self.ring {
            let lane = self.lane(at);
            least = least.min(turns(lane.quota));
            at = lane.next;
        }
        if least > 1 {
            for _ in 0..self.ring {
                let lane = self.lane(at);
                lane.quota += (least - 1) * QUANTUM;
                at = lane.next;
            }
        }
    }

    fn next(&mut self, store: &mut Store<'_>) -> Option<Taken> {
        if self.packets == 0 {
            return None;
        }
        let mut passed = 0;
        loop {
            let lane = &mut self.lanes[usize::from(self.head)];
            if lane.quota <= 0 {
                self.advance();
                passed += 1;
                if passed == self.ring {
                    self.skip_rounds();
                    passed = 0;
                }
                continue;
            }
            if lane.list.is_empty() {
                self.leave();
                passed = 0;
                continue;
            }
            let taken = store.pop(&mut lane.list)?;
            lane.quota -= i64::from(taken.len);
            self.packets -= 1;
            self.bytes -= taken.len;
            return Some(taken);
        }
    }

    /// Drops the first packet of the longest queue.
    fn drop_one(&mut self, store: &mut Store<'_>, reason: impl Fn(u16, &List) -> DropReason) {
        let lanes = &self.lanes;
        let Some(at) = self.longest.find(|at| lanes[usize::from(at)].held()) else { return };
        let list = &mut self.lanes[usize::from(at)].list;
        let reason = reason(at, list);
        if let Some(taken) = store.pop(list) {
            self.packets -= 1;
            self.bytes -= taken.len;
            store.lose(taken, reason);
        }
    }

    fn is_over(&self) -> bool {
        self.limit.is_exceeded(self.packets, self.bytes)
    }
}

impl Queue for HashedWfq {
    fn enqueue(&mut self, _: Nanos, packet: &mut Packet, store: &mut Store<'_>) -> Result<(), DropReason> {
        if let Some(hash) = self.seed.due(self.packets == 0) {
            self.clear(hash);
        }
        if self.bytes.checked_add(packet.len).is_none() {
            return Err(DropReason::QueueFull);
        }
        let own = self.put(packet, store);
        // A queue's only packet that is dropped from the arriving packet's queue is that packet.
        let reason = |at: u16, list: &List| {
            if at == own && list.packets() == 1 { DropReason::QueueFull } else { DropReason::HeadDropped }
        };
        while self.is_over() {
            self.drop_one(store, reason);
        }
        Ok(())
    }

    fn dequeue(&mut self, _: Nanos, store: &mut Store<'_>) -> Option<Taken> {
        self.next(store)
    }

    fn peek(&self) -> Option<u32> {
        // The packet of the queue that needs the fewest rounds, and is the first of those.
        let (mut best, mut at) = (None, self.head);
        for step in 0..self.ring {
            let lane = self.lanes.get(usize::from(at))?;
            at = lane.next;
            let Some(wire) = lane.list.peek() else { continue };
            // The first one has had its turn in this round.
            let rounds = if lane.quota > 0 { 0 } else { -lane.quota / QUANTUM + i64::from(step == 0) };
            if rounds == 0 {
                return Some(wire);
            }
            if best.is_none_or(|(least, _)| rounds < least) {
                best = Some((rounds, wire));
            }
        }
        best.map(|(_, wire)| wire)
    }

    fn backlog(&self) -> (u32, u32) {
        (self.packets, self.bytes)
    }

    fn take(&mut self, store: &mut Store<'_>) -> Option<Taken> {
        self.next(store)
    }

    fn change(&mut self, _: Nanos, _: &Context, spec: &QueueSpec, store: &mut Store<'_>) -> Result<(), SpecError> {
        let (queues, by) = words(&spec.settings);
        self.limit = spec.limit;
        if (queues, by) != (self.queues, self.by) {
            // All packets are taken out and put in again, in the order in which they would have
            // left. A waiting packet has neither the hashes of its hosts nor its port: with `hash
            // dst` or `sport` all of these packets are in one queue.
            let waiting = drain(self, store);
            (self.queues, self.by) = (queues, by);
            self.clear(self.hash);
            for packet in waiting {
                self.put(&packet, store);
            }
        }
        while self.is_over() {
            self.drop_one(store, |_, _| DropReason::LimitLowered);
        }
        Ok(())
    }

    fn keeps_flows(&self) -> bool {
        true
    }

    fn seed(&mut self, seed: u64) {
        if let Some(hash) = self.seed.set(seed, self.packets == 0) {
            self.clear(hash);
        }
    }

    fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        counter("queues", u64::from(self.ring));
    }

    fn memory(&self) -> usize {
        size_of::<HashedWfq>() + self.lanes.len() * size_of::<Lane>() + self.longest.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Overhead;
    use crate::queue::store::Backing;
    use crate::random::SplitMix64;
    use crate::units::Rate;

    /// The length that schedulers are told is that of the packet that leaves next.
    #[test]
    fn the_guess_is_right_when_nothing_arrives() {
        let rate = Rate::mbit_s(10);
        let place = Context { rate, link_rate: rate, mtu: 1500, overhead: Overhead::NONE, seed: 1 };
        let settings = Settings::new().with("hash", crate::settings::Value::Choice("flow"));
        let spec = QueueSpec { name: "hashed_wfq", limit: Limit::Bytes(40_000), settings };
        let (mut queue, mut backing) = (HashedWfq::new(&place, &spec), Backing::default());
        let (mut random, mut sent) = (SplitMix64::new(2), 0);
        for step in 0..20_000_u64 {
            let store = &mut backing.store();
            if random.chance([7, 4][step as usize / 300 % 2], 10) {
                let len = 40 + (random.bits() % 1460) as u32;
                let flow = (random.bits() % 30) as u32;
                let mut packet = Packet { flow, wire: len, ..Packet::new(step as u32, len) };
                let _ = queue.enqueue(step, &mut packet, store);
            } else {
                let guess = queue.peek();
                let taken = queue.dequeue(step, store);
                assert_eq!(guess, taken.as_ref().map(|taken| taken.wire), "step {step}");
                sent += taken.map_or(0, |taken| store.packet(taken).segments);
            }
        }
        assert!(sent > 5000, "{sent}");
    }
}
