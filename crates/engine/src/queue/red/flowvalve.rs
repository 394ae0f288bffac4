//! Flowvalve, the penalty box behind ALTQ's RED (docs/reference/altq.md 7.3; after Floyd and Fall,
//! "Promoting the Use of End-to-End Congestion Control in the Internet", ToN 7(4), 1999).
//!
//! A flow is what goes between two addresses. Of the flows that RED dropped packets of in the last
//! seconds, two averages are kept: p, the part of a flow's packets that are dropped, and f, the
//! flow's part of all packets. TCP that loses p of its packets sends B(p) packets in a round trip
//! (Padhye, Firoiu, Towsley and Kurose 1998), and has no more than B(p)/(max + 5) of a link that
//! carries max + 5 packets in a round trip. A flow that has more at a p above `probability` does
//! not give way: it becomes red, and all its packets are dropped until it has been silent for more
//! than a whole second.
//!
//! Numbers are ALTQ's: 12 bits of fraction, p has 7 more and f 5 more, for their weights of 1/128
//! and 1/32. Seconds are whole ones of the clock, as there.

use crate::units::{Nanos, SECOND};

/// The most flows that are known.
const FLOWS: usize = 64;
/// Bits of fraction of a share, of p and of f.
const BITS: u32 = 12;
const P_BITS: u32 = 7;
const F_BITS: u32 = 5;
/// After so many packets of a flow its f is updated.
const UPDATE: u8 = 10;
/// A flow is forgotten more than so many seconds after its last drop.
const LIFE: u64 = 3;
/// A red flow that was silent for more than so many seconds is free again.
const SILENCE: u64 = 1;
/// How many values of p the table of B(p) has.
const TABLE: usize = 128;

/// What is known of a flow.
#[derive(Clone, Copy, Default)]
struct Flow {
    hosts: [u16; 2],
    /// Packets since f was updated.
    count: u8,
    red: bool,
    p: u32,
    f: u32,
    /// What `seq` was when f was updated.
    seen: u64,
    /// The second of the last drop.
    dropped: u64,
}

/// The penalty box.
pub struct Flowvalve {
    /// Flows from the one that was dropped last on; those behind `listed` are forgotten.
    flows: [Flow; FLOWS],
    listed: usize,
    /// Arrivals while a flow is listed, and one.
    seq: u64,
    /// The p above which a flow is judged, and the greatest f by p.
    least: u32,
    shares: [u32; TABLE],
    alloc: u64,
    predrop: u64,
    pass: u64,
    escape: u64,
}

impl Flowvalve {
    /// For a RED whose greatest threshold is `max` packets, and its greatest probability in
    /// billionths.
    pub fn new(max: u32, probability: u32) -> Flowvalve {
        let mut shares = [0; TABLE];
        for (at, share) in shares.iter_mut().enumerate() {
            let part = share_of_tcp(at.max(1) as f64 / TABLE as f64) / (f64::from(max) + 5.0);
            *share = (part * f64::from(1_u32 << (BITS + F_BITS))) as u32;
        }
        let one = u64::from(crate::settings::ONE);
        Flowvalve {
            flows: [Flow::default(); FLOWS],
            listed: 0,
            seq: 1,
            least: ((u64::from(probability) << (BITS + P_BITS)) / one) as u32,
            shares,
            alloc: 0,
            predrop: 0,
            pass: 0,
            escape: 0,
        }
    }

    /// Takes the numbers of `new`, and keeps the flows.
    pub fn change(&mut self, new: &Flowvalve) {
        (self.least, self.shares) = (new.least, new.shares);
    }

    /// A packet arrives. True: its flow is red, and it is to be dropped.
    pub fn arrival(&mut self, now: Nanos, hosts: [u16; 2]) -> bool {
        let second = now / SECOND;
        self.forget(second);
        if self.listed == 0 {
            return false;
        }
        self.seq += 1;
        let Some(at) = self.find(hosts) else { return false };
        let flow = &mut self.flows[at];
        flow.count += 1;
        if flow.count == UPDATE {
            let part = (u64::from(UPDATE) << BITS) / (self.seq - flow.seen);
            flow.f = flow.f - (flow.f >> F_BITS) + part as u32;
            (flow.seen, flow.count) = (self.seq, 0);
        }
        if !flow.red && flow.p > self.least {
            let at = (flow.p >> BITS) as usize;
            flow.red = flow.f > self.shares[at.min(TABLE - 1)];
        }
        if flow.red {
            if second.saturating_sub(flow.dropped) <= SILENCE {
                flow.dropped = second;
                self.predrop += 1;
                self.first(at);
                return true;
            }
            (flow.red, flow.p) = (false, 0);
            self.escape += 1;
        }
        flow.p -= flow.p >> P_BITS;
        self.pass += 1;
        false
    }

    /// RED drops a packet.
    pub fn dropped(&mut self, now: Nanos, hosts: [u16; 2]) {
        if hosts == [0; 2] {
            // It is not IP.
            return;
        }
        let second = now / SECOND;
        self.forget(second);
        let at = self.find(hosts).unwrap_or_else(|| {
            let last = self.listed.min(FLOWS - 1);
            self.flows[last] = Flow { hosts, seen: self.seq - 1, ..Flow::default() };
            self.listed = last + 1;
            self.alloc += 1;
            last
        });
        let flow = &mut self.flows[at];
        flow.p = flow.p.saturating_add(1 << BITS);
        flow.dropped = second;
        self.first(at);
    }

    /// Forgets the flows whose last drop is too long ago.
    fn forget(&mut self, second: u64) {
        while self.listed > 0 && second.saturating_sub(self.flows[self.listed - 1].dropped) > LIFE {
            self.listed -= 1;
        }
    }

    fn find(&self, hosts: [u16; 2]) -> Option<usize> {
        self.flows[..self.listed].iter().position(|flow| flow.hosts == hosts)
    }

    /// Puts a flow before the others: it was dropped last.
    fn first(&mut self, at: usize) {
        self.flows[..=at].rotate_right(1);
    }

    /// As [`Queue::report_counters`](super::super::Queue::report_counters).
    pub fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        counter("flowvalve_alloc", self.alloc);
        counter("flowvalve_flows", self.listed as u64);
        counter("flowvalve_predrop", self.predrop);
        counter("flowvalve_pass", self.pass);
        counter("flowvalve_escape", self.escape);
    }
}

/// How many packets TCP sends in a round trip when it loses p of them (Padhye et al. 1998), with
/// acknowledgements of every other packet and a timeout of a round trip.
fn share_of_tcp(p: f64) -> f64 {
    1.0 / ((4.0 * p / 3.0).sqrt() + (3.0 * (6.0 * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p))
}
