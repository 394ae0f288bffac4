//! A second implementation of ALTQ's CBQ, as the reference for the engine's. It is written from
//! docs/reference/altq.md 2 with the simplest structures (vectors, recursion, linear search). It
//! has its own event loop and wire, and shares no code with the engine. The link-sharing rules
//! ancestor-only and formal, which ALTQ does not have, follow docs/reference/cbq.md 20.

use std::collections::VecDeque;

/// A class as the configuration has it.
#[derive(Clone, Debug)]
pub struct Config {
    pub parent: usize,
    pub borrow: bool,
    pub priority: usize,
    pub rate: f64,
    pub packetsize: Option<u32>,
    pub maxpacketsize: Option<u32>,
    pub maxburst: Option<u32>,
    pub minburst: Option<u32>,
    pub limit: usize,
}

/// One class. Class 0 is the root.
#[derive(Default)]
struct Class {
    queue: VecDeque<(u32, u32)>,
    limit: usize,
    pri: usize,
    parent: Option<usize>,
    borrow: Option<usize>,
    children: Vec<usize>,
    depth: usize,
    ns_per_byte: i64,
    allotment: i64,
    bytes_alloc: i64,
    w_allotment: i64,
    maxidle: i64,
    minidle: i64,
    offtime: i64,
    avgidle: i64,
    last: i64,
    last_pkttime: i64,
    undertime: i64,
    overtime: i64,
    sleeping: bool,
    callout: Option<(u64, u64)>,
    pub counts: Counts,
}

/// The statistics of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub over: u64,
    pub overactions: u64,
    pub delays: u64,
    pub borrows: u64,
    pub borrowed_bytes: u64,
    pub drops: u64,
}

/// A packet that left: when, its class, its number.
pub type Left = (u64, usize, u32);

pub struct Altq {
    cl: Vec<Class>,
    /// For each priority, the classes in the order of the ring.
    ring: Vec<Vec<usize>>,
    /// For each priority, where the ring's pointer is.
    active: Vec<usize>,
    cutoff: usize,
    ifnow: i64,
    maxiftime: i64,
    /// True in the second pass over the rings, which follows a pass that sent nothing. In it, a
    /// class that the formal rule forbids to send is put to sleep.
    strict: bool,
    callouts_set: u64,
    link: Link,
    // The wire.
    ends: VecDeque<u64>,
    busy_start: u64,
    busy_bits: u128,
    pub left: Vec<Left>,
}

/// The interface.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// The rate of the root and of the wire, in bit/s.
    pub rate: u64,
    pub mtu: i64,
    pub rule: Rule,
    pub wrr: bool,
    pub efficient: bool,
    /// A tick of the timer in nanoseconds; 0 for an exact timer.
    pub tick: u64,
    /// Packets that the device holds.
    pub ring: usize,
}

/// Which ancestors lend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    TopLevel,
    AncestorOnly,
    Formal,
}

const START: i64 = 50_000_000_000_000;

fn us(now: u64) -> i64 {
    START + (now / 1000) as i64
}

fn usec(t: i64) -> i64 {
    (t >> 10) + (t >> 16) + (t >> 17)
}

fn tv_delta(a: i64, b: i64) -> i64 {
    let d = a - b;
    if d >= 2_000_000 { 2_000_000 } else { d }
}

impl Altq {
    pub fn new(link: Link, classes: &[Config]) -> Altq {
        let mut altq = Altq {
            cl: Vec::new(),
            ring: vec![Vec::new(); 8],
            active: vec![0; 8],
            cutoff: 32,
            ifnow: 0,
            maxiftime: 0,
            strict: false,
            callouts_set: 0,
            link,
            ends: VecDeque::new(),
            busy_start: 0,
            busy_bits: 0,
            left: Vec::new(),
        };
        let root = Config {
            parent: 0,
            borrow: false,
            priority: 0,
            rate: link.rate as f64,
            packetsize: None,
            maxpacketsize: None,
            maxburst: None,
            minburst: None,
            limit: 50,
        };
        altq.newclass(&root, true);
        altq.maxiftime = altq.link.mtu * altq.cl[0].ns_per_byte / 1000 * 16;
        if altq.link.mtu * altq.cl[0].ns_per_byte > 10_000_000 {
            altq.maxiftime /= 4;
        }
        for config in classes {
            altq.newclass(config, false);
        }
        altq
    }

    fn newclass(&mut self, config: &Config, root: bool) {
        let b = self.link.rate as f64;
        let mtu = self.link.mtu as u32;
        let default_size = if mtu > 2048 { mtu & !2048 } else { mtu };
        let s = f64::from(config.packetsize.unwrap_or(default_size).min(mtu));
        let big = f64::from(config.maxpacketsize.unwrap_or(mtu).min(mtu));
        let nsif = 8e9 / b;
        let f = if config.rate == 0.0 { 0.0001 } else { config.rate / b };
        let mut nsc = nsif / f;
        let p = s * nsif;
        let c = p * (1.0 - f) / f;
        if nsc * big > 2147483647.0 {
            nsc = (2147483647.0 / big).floor();
        }
        let maxburst = config.maxburst.unwrap_or(if c > 10e6 { 4 } else { 16 });
        let minburst = config.minburst.unwrap_or(2).min(maxburst);
        let g: f64 = 31.0 / 32.0;
        let gm = g.powi(maxburst as i32);
        let maxidle = p * f64::max((1.0 / f - 1.0) * (1.0 - gm) / gm, 1.0 - g);
        let gn = g.powi(minburst as i32 - 1);
        let offtime = c * (1.0 + 32.0 * (1.0 - gn) / gn);
        let minidle = -big * nsc;
        let k = 8.0 / nsc * 32.0 / 1000.0;

        let ns_per_byte = nsc as i64;
        let maxidle = ((maxidle * k).abs() as u32).wrapping_mul(ns_per_byte as u32) / 8;
        let minidle = ((minidle * k) as i32).wrapping_mul(ns_per_byte as i32) / 8;
        let offtime = (((offtime * k).abs() as u32).wrapping_mul(ns_per_byte as u32) / 8) >> 5;

        let id = self.cl.len();
        let mut class = Class {
            limit: config.limit,
            pri: config.priority,
            ns_per_byte,
            allotment: 1_000_000_000 / ns_per_byte,
            maxidle: i64::from(maxidle.max(1)),
            minidle: i64::from(minidle.min(0)),
            offtime: i64::from(offtime.max(1)),
            ..Class::default()
        };
        class.avgidle = class.maxidle;
        if !root {
            class.parent = Some(config.parent);
            class.borrow = config.borrow.then_some(config.parent);
            self.cl[config.parent].children.push(id);
        }
        self.cl.push(class);
        self.ring[config.priority].push(id);
        self.depth(0);
        self.set_weights();
    }

    fn depth(&mut self, id: usize) -> usize {
        let children = self.cl[id].children.clone();
        let depth = children.into_iter().map(|c| self.depth(c) + 1).max().unwrap_or(0);
        self.cl[id].depth = depth;
        depth
    }

    fn set_weights(&mut self) {
        for ring in &self.ring {
            let alloc: i64 = ring.iter().map(|&c| self.cl[c].allotment).sum();
            let m = if ring.is_empty() { 0 } else { alloc / (ring.len() as i64 * self.link.mtu) };
            for &c in ring {
                self.cl[c].w_allotment = if m == 0 { 0 } else { self.cl[c].allotment / m };
            }
        }
    }

    // ---------------------------------------------------------------- events

    /// Runs arrivals (time, class, bytes), numbered in order, until `until`.
    pub fn run(&mut self, arrivals: &[(u64, usize, u32)], until: u64) {
        let mut next = 0;
        loop {
            let complete = self.ends.front().copied();
            let callout = (0..self.cl.len()).filter_map(|c| self.cl[c].callout.map(|at| (at, c))).min();
            let arrival = arrivals.get(next).map(|a| a.0);
            let times = [complete, callout.map(|((at, _), _)| at), arrival];
            let Some(now) = times.into_iter().flatten().min().filter(|now| *now <= until) else { return };
            if complete == Some(now) {
                self.ends.pop_front();
                self.kick(now);
            } else if let Some(((at, _), c)) = callout
                && at == now
            {
                self.cl[c].callout = None;
                if self.cl[c].sleeping {
                    self.cl[c].sleeping = false;
                    self.cl[c].undertime = 0;
                    self.kick(now);
                }
            } else {
                let (_, class, bytes) = arrivals[next];
                self.enqueue(now, class, next as u32, bytes);
                next += 1;
                self.kick(now);
            }
        }
    }

    fn kick(&mut self, now: u64) {
        while self.ends.len() < self.link.ring {
            let Some((class, id, bytes)) = self.dequeue(now) else { return };
            self.left.push((now, class, id));
            let time = |bits: u128| (bits * 1_000_000_000).div_ceil(u128::from(self.link.rate)) as u64;
            if self.busy_start + time(self.busy_bits) < now {
                self.busy_start = now;
                self.busy_bits = 0;
            }
            self.busy_bits += u128::from(bytes) * 8;
            self.ends.push_back(self.busy_start + time(self.busy_bits));
        }
    }

    // ------------------------------------ docs/reference/altq.md 2.3, enqueue

    fn enqueue(&mut self, now: u64, c: usize, id: u32, bytes: u32) {
        let t = us(now);
        if self.link.rule == Rule::TopLevel && self.cutoff > 0 {
            if self.cl[c].undertime < t {
                self.cutoff = self.cutoff.min(self.cl[c].depth);
            } else {
                let mut b = self.cl[c].borrow;
                while let Some(x) = b {
                    if self.cl[x].depth >= self.cutoff {
                        break;
                    }
                    if self.cl[x].undertime < t {
                        self.cutoff = self.cl[x].depth;
                        break;
                    }
                    b = self.cl[x].borrow;
                }
            }
        }
        self.cl[c].queue.push_back((id, bytes));
        if self.cl[c].queue.len() > self.cl[c].limit {
            self.cl[c].queue.pop_front();
            self.cl[c].counts.drops += 1;
        }
    }

    // ------------------------------------ docs/reference/altq.md 2.5, dequeue

    fn dequeue(&mut self, now: u64) -> Option<(usize, u32, u32)> {
        let mut borrowed = None;
        let mut first = None;
        self.strict = false;
        let chosen = 'chosen: {
            loop {
                for pri in (0..8).rev() {
                    if self.ring[pri].iter().all(|&c| self.cl[c].queue.is_empty()) {
                        continue;
                    }
                    let found = if self.link.wrr {
                        self.wrr(now, pri, &mut first, &mut borrowed)
                    } else {
                        self.prr(now, pri, &mut first, &mut borrowed)
                    };
                    if let Some(c) = found {
                        break 'chosen c;
                    }
                }
                if self.link.rule == Rule::TopLevel && first.is_some() && self.cutoff < self.cl[0].depth {
                    self.cutoff += 1;
                    continue;
                }
                if self.link.rule == Rule::Formal && !self.strict {
                    self.strict = true;
                    continue;
                }
                break;
            }
            self.cutoff = 32;
            if !self.link.efficient {
                return None;
            }
            let c = first?;
            borrowed = self.cl[c].borrow;
            self.cutoff = self.cl[borrowed.unwrap()].depth;
            c
        };
        let (id, len) = self.cl[chosen].queue.pop_front().unwrap();
        let pri = self.cl[chosen].pri;
        let at = self.ring[pri].iter().position(|&c| c == chosen).unwrap();
        let after = (at + 1) % self.ring[pri].len();
        if self.link.wrr {
            if self.cl[chosen].bytes_alloc > 0 {
                self.cl[chosen].bytes_alloc -= i64::from(len);
            }
            self.active[pri] = if self.cl[chosen].bytes_alloc <= 0 || first == Some(chosen) { after } else { at };
        } else {
            self.active[pri] = after;
        }
        self.update(now, chosen, len, borrowed);
        Some((chosen, id, len))
    }

    fn wrr(&mut self, now: u64, pri: usize, first: &mut Option<usize>, borrowed: &mut Option<usize>) -> Option<usize> {
        let mut deficit = 0;
        loop {
            for step in 0..self.ring[pri].len() {
                let c = self.ring[pri][(self.active[pri] + step) % self.ring[pri].len()];
                if deficit < 2 && self.cl[c].bytes_alloc <= 0 {
                    self.cl[c].bytes_alloc += self.cl[c].w_allotment;
                }
                if !self.cl[c].queue.is_empty() {
                    if self.cl[c].undertime == 0 || self.under_limit(now, c, borrowed) {
                        if self.cl[c].bytes_alloc > 0 || deficit > 1 {
                            return Some(c);
                        }
                        deficit = 1;
                        *borrowed = None;
                    } else if first.is_none() && self.cl[c].borrow.is_some() {
                        *first = Some(c);
                    }
                }
                self.cl[c].bytes_alloc = 0;
            }
            if deficit != 1 {
                return None;
            }
            deficit = 2;
        }
    }

    fn prr(&mut self, now: u64, pri: usize, first: &mut Option<usize>, borrowed: &mut Option<usize>) -> Option<usize> {
        for step in 0..self.ring[pri].len() {
            let c = self.ring[pri][(self.active[pri] + step) % self.ring[pri].len()];
            if self.cl[c].queue.is_empty() {
                continue;
            }
            if self.cl[c].undertime == 0 || self.under_limit(now, c, borrowed) {
                return Some(c);
            }
            if first.is_none() && self.cl[c].borrow.is_some() {
                *first = Some(c);
            }
        }
        None
    }

    // ------------------------------------ docs/reference/altq.md 2.6, borrowing

    fn under_limit(&mut self, now: u64, c: usize, borrowed: &mut Option<usize>) -> bool {
        let t = us(now);
        *borrowed = None;
        if self.cl[c].parent.is_none() {
            return true;
        }
        if self.cl[c].sleeping {
            if t < self.cl[c].undertime {
                return false;
            }
            self.cl[c].callout = None;
            self.cl[c].sleeping = false;
            self.cl[c].undertime = 0;
            return true;
        }
        let mut at = c;
        let mut top = None;
        while self.cl[at].undertime != 0 && t < self.cl[at].undertime {
            match self.cl[at].borrow {
                Some(b) if !self.may_lend(b, t) && !self.strict => return false,
                Some(b) if self.may_lend(b, t) => {
                    at = b;
                    top = Some(b);
                }
                _ => {
                    top = top.filter(|&b| self.cl[b].avgidle != self.cl[b].minidle);
                    self.cl[c].overtime = t;
                    self.delay_action(now, c, top);
                    return false;
                }
            }
        }
        if at != c {
            *borrowed = Some(at);
        }
        true
    }

    fn may_lend(&self, b: usize, t: i64) -> bool {
        match self.link.rule {
            Rule::TopLevel => self.cl[b].depth <= self.cutoff,
            Rule::AncestorOnly => true,
            Rule::Formal => !(0..self.cl.len())
                .any(|c| self.cl[c].depth < self.cl[b].depth && t >= self.cl[c].undertime && self.has_packets_below(c)),
        }
    }

    fn has_packets_below(&self, c: usize) -> bool {
        !self.cl[c].queue.is_empty() || self.cl[c].children.iter().any(|&child| self.has_packets_below(child))
    }

    fn satisfied(&self, c: usize, t: i64) -> bool {
        if t < self.cl[c].undertime {
            return true;
        }
        if self.cl[c].depth == 0 {
            return self.cl[c].sleeping || self.cl[c].queue.is_empty();
        }
        self.cl[c].children.iter().all(|&child| self.satisfied(child, t))
    }

    fn tl_satisfied(&mut self, t: i64) {
        for pri in (0..8).rev() {
            for step in 0..self.ring[pri].len() {
                let c = self.ring[pri][(self.active[pri] + step) % self.ring[pri].len()];
                if !self.satisfied(c, t) {
                    self.cutoff = self.cl[c].depth;
                    return;
                }
            }
        }
        self.cutoff = 32;
    }

    // ------------------------------------ docs/reference/altq.md 2.7, estimator

    fn update(&mut self, now: u64, cl: usize, len: u32, borrowed: Option<usize>) {
        let t = us(now);
        let len = i64::from(len);
        let linkt = usec(len * self.cl[0].ns_per_byte);
        if t < self.ifnow {
            let d = tv_delta(self.ifnow, t);
            self.ifnow = if d + linkt < self.maxiftime { self.ifnow + linkt } else { t + self.maxiftime };
        } else {
            self.ifnow = t + linkt;
        }
        let mut borrows = borrowed;
        let mut at = Some(cl);
        while let Some(x) = at {
            let c = &mut self.cl[x];
            let mut idle = tv_delta(self.ifnow, c.last);
            if idle >= 2_000_000 {
                c.avgidle = c.maxidle;
            }
            let pt = usec(len * c.ns_per_byte);
            idle -= pt;
            c.avgidle += idle - (c.avgidle >> 5);
            if c.avgidle <= 0 {
                c.avgidle = c.avgidle.max(c.minidle);
                c.undertime = t + pt + ((-31 * c.avgidle) >> 5);
                c.counts.over += 1;
            } else {
                c.avgidle = c.avgidle.min(c.maxidle);
                c.undertime = 0;
                if c.sleeping {
                    c.callout = None;
                    c.sleeping = false;
                }
            }
            if let Some(b) = borrows {
                if b != x {
                    c.counts.borrows += 1;
                    c.counts.borrowed_bytes += len as u64;
                } else {
                    borrows = None;
                }
            }
            c.last = self.ifnow;
            c.last_pkttime = pt;
            at = c.parent;
        }
        if let Some(b) = borrowed
            && self.link.rule == Rule::TopLevel
            && self.cutoff >= self.cl[b].depth
        {
            if self.cl[cl].queue.is_empty() || t < self.cl[b].undertime {
                self.tl_satisfied(t);
            } else {
                self.cutoff = self.cl[b].depth;
            }
        }
    }

    // ------------------------------------ docs/reference/altq.md 2.8, delay

    fn delay_action(&mut self, now: u64, c: usize, lender: Option<usize>) {
        let lender_offtime = lender.map(|b| self.cl[b].offtime);
        let tick = self.link.tick;
        let c = &mut self.cl[c];
        c.counts.overactions += 1;
        let mut delay = tv_delta(c.undertime, c.overtime);
        if c.sleeping {
            return;
        }
        let extra = lender_offtime.unwrap_or(c.offtime) - c.last_pkttime;
        if extra > 0 {
            c.undertime += extra;
            delay += extra;
        }
        c.sleeping = true;
        c.counts.delays += 1;
        let undertime = (c.undertime - START) as u64 * 1000;
        let at = if tick == 0 {
            undertime
        } else {
            let coarse = now - now % tick;
            let ticks = if delay * 1000 > 2 * tick as i64 { (undertime - coarse).div_ceil(tick) + 1 } else { 2 };
            coarse + ticks * tick
        };
        self.callouts_set += 1;
        c.callout = Some((at, self.callouts_set));
    }

    pub fn counts(&self, c: usize) -> Counts {
        self.cl[c].counts
    }

    pub fn queued(&self, c: usize) -> usize {
        self.cl[c].queue.len()
    }
}
