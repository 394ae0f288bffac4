//! The rates of JoBS, and which packets it drops (docs/reference/altq.md 8.3).
//!
//! Rates are in bytes a second, times in seconds, losses are parts of one. Classes are in the order
//! of their priorities, the highest first.

use std::collections::VecDeque;

use super::super::Slot;
use crate::account::DropReason;
use crate::units::{Nanos, SECOND};

/// What a class asks for. `None` is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wants {
    /// A bound on the delay.
    pub adc: Option<f64>,
    /// A bound on the loss.
    pub alc: Option<f64>,
    /// A least rate.
    pub arc: Option<f64>,
    /// How many times as long the next class's packets are to wait.
    pub rdc: Option<f64>,
    /// How many times as many of the next class's packets are to be lost.
    pub rlc: Option<f64>,
}

/// A packet at the end of a class's queue that is to be dropped.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    pub slot: Slot,
    pub reason: DropReason,
    came: Nanos,
    len: u32,
}

/// A class.
#[derive(Default)]
pub struct Class {
    pub wants: Wants,
    pub priority: u8,
    /// When each packet came that waits, and its length.
    pub waiting: VecDeque<(Nanos, u32)>,
    /// The scheduler inside it may send nothing for now.
    pub blocked: bool,
    /// Its last packet cannot be dropped: another scheduler or a queue of its own decides.
    pub kept: bool,
    /// By which weighted delays and losses are to be equal.
    delay_weight: f64,
    loss_weight: f64,
    /// Bytes since the link was idle: that came; that were queued and not dropped, with their
    /// number of packets; that were sent; and that were promised.
    arrived: f64,
    accepted: f64,
    packets: f64,
    sent: f64,
    promised: f64,
    loss: f64,
    rate: f64,
    /// The rate that its bounds need.
    least: f64,
}

impl Class {
    fn backlogged(&self) -> bool {
        !self.waiting.is_empty() && !self.blocked
    }

    /// How long its first packet has waited.
    fn age(&self, now: Nanos) -> f64 {
        self.waiting.front().map_or(0.0, |(came, _)| seconds(now.saturating_sub(*came)))
    }

    /// What its loss would be if `len` bytes were dropped.
    fn loss_with(&self, len: f64) -> f64 {
        if self.arrived > 0.0 { self.loss + len / self.arrived } else { self.loss }
    }

    /// A packet of it is dropped.
    fn dropped(&mut self, len: f64) {
        self.loss = self.loss_with(len);
        self.accepted -= len;
        self.packets -= 1.0;
    }

    fn restart(&mut self) {
        (self.arrived, self.accepted, self.packets, self.sent, self.promised) = (0.0, 0.0, 0.0, 0.0, 0.0);
        (self.loss, self.rate, self.least) = (0.0, 0.0, 0.0);
    }
}

fn seconds(time: Nanos) -> f64 {
    time as f64 / SECOND as f64
}

/// The greatest product of ratios: beyond it the weights say nothing any more.
const MOST: f64 = 1e100;

/// All classes.
pub struct Solver {
    /// By slot.
    pub classes: Vec<Class>,
    /// The slots of those that there are, in the order of their priorities.
    order: Vec<Slot>,
    link: f64,
    /// When promised bytes were last added up.
    last: Nanos,
    /// Packets that wait.
    pub waiting: usize,
    /// What is to be dropped.
    pub victims: VecDeque<Victim>,
    /// By place in `order`, while rates are worked out: what a class can give (or lacks, below 0),
    /// what it has then, how long its first packet may still wait, and the change of its rate.
    spare: Vec<f64>,
    has: Vec<f64>,
    left: Vec<f64>,
    delta: Vec<f64>,
}

impl Solver {
    /// Without classes.
    pub fn new(link: f64) -> Solver {
        Solver {
            classes: Vec::new(),
            order: Vec::new(),
            link,
            last: 0,
            waiting: 0,
            victims: VecDeque::new(),
            spare: Vec::new(),
            has: Vec::new(),
            left: Vec::new(),
            delta: Vec::new(),
        }
    }

    /// The link has another rate: the rates of the classes keep their proportions.
    pub fn set_link(&mut self, now: Nanos, rate: f64) {
        if rate == self.link {
            return;
        }
        let passed = seconds(now.saturating_sub(self.last));
        self.last = now;
        let part = rate / self.link;
        for class in &mut self.classes {
            class.promised += passed * class.rate;
            class.rate *= part;
        }
        self.link = rate;
    }

    /// How many classes there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Puts a class into the order, and works out all weights. False, and nothing has changed, if
    /// the products of ratios would be too large.
    pub fn set(&mut self, slot: Slot, wants: Wants, priority: u8) -> bool {
        let at = slot as usize;
        if self.classes.len() <= at {
            self.classes.resize_with(at + 1, Class::default);
        }
        let old = (self.classes[at].wants, self.classes[at].priority, self.order.contains(&slot));
        (self.classes[at].wants, self.classes[at].priority) = (wants, priority);
        if !old.2 {
            self.order.push(slot);
        }
        self.sort();
        if self.weigh() {
            return true;
        }
        (self.classes[at].wants, self.classes[at].priority) = (old.0, old.1);
        if !old.2 {
            self.order.retain(|known| *known != slot);
        }
        self.sort();
        self.weigh();
        false
    }

    /// Forgets a class, which has no packets.
    pub fn remove(&mut self, slot: Slot) {
        self.order.retain(|known| *known != slot);
        self.victims.retain(|victim| victim.slot != slot);
        self.classes[slot as usize] = Class::default();
        self.weigh();
    }

    fn sort(&mut self) {
        let classes = &self.classes;
        self.order.sort_by_key(|slot| (classes[*slot as usize].priority, *slot));
        let count = self.order.len();
        for scratch in [&mut self.spare, &mut self.has, &mut self.left, &mut self.delta] {
            scratch.resize(count, 0.0);
        }
    }

    /// A class's weight is the product of t over all other classes that have a ratio, where t is
    /// the product of the ratios of the classes before one.
    fn weigh(&mut self) -> bool {
        let ratios = |ratio: fn(&Wants) -> Option<f64>| -> (Vec<f64>, bool) {
            let of = |slot: &Slot| ratio(&self.classes[*slot as usize].wants);
            let product = |list: &[Slot]| list.iter().filter_map(of).product::<f64>();
            let all: Vec<f64> = (0..self.order.len()).map(|at| product(&self.order[..at])).collect();
            let others = |at: usize| (0..all.len()).filter(move |other| *other != at);
            let weight = |at: usize| {
                others(at).filter(|other| of(&self.order[*other]).is_some()).map(|other| all[other]).product::<f64>()
            };
            let weights: Vec<f64> = (0..all.len()).map(weight).collect();
            let good = weights.iter().all(|weight| *weight <= MOST);
            (weights, good)
        };
        let (delays, good_delays) = ratios(|wants| wants.rdc);
        let (losses, good_losses) = ratios(|wants| wants.rlc);
        for (at, slot) in self.order.iter().enumerate() {
            let class = &mut self.classes[*slot as usize];
            (class.delay_weight, class.loss_weight) = (delays[at], losses[at]);
        }
        good_delays && good_losses
    }

    fn class(&mut self, at: usize) -> &mut Class {
        &mut self.classes[self.order[at] as usize]
    }

    fn get(&self, at: usize) -> &Class {
        &self.classes[self.order[at] as usize]
    }

    /// A packet arrives, and is not queued yet.
    pub fn arrive(&mut self, now: Nanos, slot: Slot, len: f64) {
        if self.waiting == 0 {
            self.classes.iter_mut().for_each(Class::restart);
            self.last = now;
        }
        let passed = seconds(now.saturating_sub(self.last));
        self.last = now;
        for class in &mut self.classes {
            class.promised += passed * class.rate;
        }
        let class = &mut self.classes[slot as usize];
        class.arrived += len;
        class.accepted += len;
        class.packets += 1.0;
        class.loss = ((class.arrived - class.accepted) / class.arrived.max(1.0)).max(0.0);
    }

    /// The packet that has arrived is dropped.
    pub fn refuse(&mut self, slot: Slot, len: f64) {
        self.classes[slot as usize].dropped(len);
    }

    /// The packet that has arrived has gone elsewhere, as if it had not come.
    pub fn forget(&mut self, slot: Slot, len: f64) {
        let class = &mut self.classes[slot as usize];
        class.arrived -= len;
        class.accepted -= len;
        class.packets -= 1.0;
    }

    /// Whether an arriving packet of the class is dropped where the queues of all classes are full:
    /// a class without ratios of losses loses its own packets, as far as its bound allows.
    pub fn loses_its_own(&self, slot: Slot, len: f64) -> bool {
        let class = &self.classes[slot as usize];
        match (class.wants.rlc, class.wants.alc) {
            (None, None) => true,
            (None, Some(alc)) => class.loss_with(len) <= alc,
            (Some(_), _) => false,
        }
    }

    /// Whether a class has a packet that can be dropped, or would have one if a packet came to
    /// `slot`.
    pub fn has_victims(&self, slot: Slot) -> bool {
        self.order.iter().any(|known| {
            let class = &self.classes[*known as usize];
            !class.kept && (*known == slot || class.backlogged())
        })
    }

    /// Queues a packet.
    pub fn push(&mut self, now: Nanos, slot: Slot, len: u32) {
        self.classes[slot as usize].waiting.push_back((now, len));
        self.waiting += 1;
    }

    /// Takes the first packet of a class; with `last` the last one. Its length.
    fn take(&mut self, slot: Slot, last: bool) -> Option<u32> {
        let waiting = &mut self.classes[slot as usize].waiting;
        let (_, len) = if last { waiting.pop_back() } else { waiting.pop_front() }?;
        self.waiting -= 1;
        Some(len)
    }

    /// A packet of the class was sent. Where lengths are guesses it may have another length than
    /// the one that was told.
    pub fn sent(&mut self, slot: Slot, len: u32) {
        let told = self.take(slot, false).unwrap_or(len);
        let class = &mut self.classes[slot as usize];
        class.accepted += f64::from(len) - f64::from(told);
        class.sent += f64::from(len);
    }

    /// A packet of the class was lost by others than JoBS: it counts as sent. False if there was
    /// none.
    pub fn lost(&mut self, slot: Slot, last: bool) -> bool {
        let len = self.take(slot, last);
        self.classes[slot as usize].sent += len.map_or(0.0, f64::from);
        len.is_some()
    }

    /// Drops the last packet of a class.
    fn drop_last(&mut self, slot: Slot, reason: DropReason) {
        let class = &mut self.classes[slot as usize];
        if let Some((came, len)) = class.waiting.pop_back() {
            class.dropped(f64::from(len));
            self.waiting -= 1;
            self.victims.push_back(Victim { slot, reason, came, len });
        }
    }

    /// The last packet of a class could not be dropped, and never can.
    pub fn spare(&mut self, victim: Victim) {
        let Victim { slot, came, len, .. } = victim;
        let class = &mut self.classes[slot as usize];
        class.kept = true;
        class.waiting.push_back((came, len));
        class.accepted += f64::from(len);
        class.packets += 1.0;
        self.waiting += 1;
    }

    /// A packet that was to be dropped has gone otherwise.
    pub fn forget_victim(&mut self, slot: Slot) {
        if let Some(at) = self.victims.iter().rposition(|victim| victim.slot == slot) {
            self.victims.remove(at);
        }
    }

    /// All queues are full: drops a packet of the class that is furthest below its part of the
    /// losses, or else of the one that is furthest from its bound.
    pub fn drop_one(&mut self) {
        let (mut sum, mut count) = (0.0, 0.0);
        for at in 0..self.order.len() {
            let class = self.get(at);
            if class.backlogged() && class.wants.rlc.is_some() {
                sum += class.loss_weight * class.loss;
                count += 1.0;
            }
        }
        let mut chosen = None;
        if count > 0.0 {
            let mean = sum / count;
            let mut least = 0.0;
            for at in 0..self.order.len() {
                let class = self.get(at);
                if !class.backlogged() || class.kept || class.wants.rlc.is_none() {
                    continue;
                }
                // Of equal ones the later.
                let error = class.loss_weight * class.loss - mean;
                if error <= least {
                    (least, chosen) = (error, Some(at));
                }
            }
        }
        // A bound goes before a ratio.
        let chosen = chosen.filter(|at| {
            let class = self.get(*at);
            let last = class.waiting.back().map_or(0.0, |(_, len)| f64::from(*len));
            class.wants.alc.is_none_or(|alc| class.loss_with(last) <= alc)
        });
        let chosen = chosen.or_else(|| {
            let (mut most, mut found) = (f64::NEG_INFINITY, None);
            for at in (0..self.order.len()).rev() {
                let class = self.get(at);
                let room = class.wants.alc.unwrap_or(1.0) - class.loss;
                if class.backlogged() && !class.kept && room > most {
                    (most, found) = (room, Some(at));
                }
            }
            found
        });
        if let Some(at) = chosen {
            self.drop_last(self.order[at], DropReason::QueueFull);
        }
    }

    /// Works out the rates after a packet has come.
    pub fn solve(&mut self, now: Nanos) {
        self.share_out();
        if !self.least_rates(now) {
            self.keep_bounds(now);
        }
        self.keep_ratios(now);
    }

    /// Every class that has packets has a rate, and no other has one.
    fn share_out(&mut self) {
        let (mut active, mut wrong) = (0.0, false);
        for at in 0..self.order.len() {
            let class = self.get(at);
            let has = class.backlogged();
            active += f64::from(u8::from(has));
            wrong |= if has { class.rate <= 0.0 } else { class.rate > 0.0 };
        }
        if wrong {
            let each = self.link / active;
            for at in 0..self.order.len() {
                let class = self.class(at);
                class.rate = if class.backlogged() { each } else { 0.0 };
            }
        }
    }

    /// Works out the rates that bounds need. False if a class has less.
    fn least_rates(&mut self, now: Nanos) -> bool {
        let (link, mut good) = (self.link, true);
        for at in 0..self.order.len() {
            let class = self.class(at);
            class.least = 0.0;
            if !class.backlogged() {
                continue;
            }
            if let Some(adc) = class.wants.adc {
                let left = adc - class.age(now);
                class.least = if left > 0.0 {
                    ((class.accepted - class.sent) / left).max(class.wants.arc.unwrap_or(0.0))
                } else {
                    link
                };
            } else if let Some(arc) = class.wants.arc {
                class.least = arc;
            }
            good &= class.least <= class.rate;
        }
        good
    }

    /// Moves rates from the lowest classes that have more than their bounds need to the highest
    /// that have less. Where that is not enough, packets are dropped that would come too late, as
    /// long as bounds on losses allow it.
    fn keep_bounds(&mut self, now: Nanos) {
        let count = self.order.len();
        for at in 0..count {
            let class = self.get(at);
            let (mut has, mut spare, mut left) = (0.0, class.rate, 0.0);
            if class.backlogged() {
                has = class.rate;
                if let Some(adc) = class.wants.adc {
                    left = (adc - class.age(now)).max(0.0);
                    spare = if left > 0.0 { has - (class.accepted - class.sent) / left } else { -self.link };
                }
                if let Some(arc) = class.wants.arc {
                    spare = spare.min(has - arc);
                }
            }
            (self.has[at], self.spare[at], self.left[at]) = (has, spare, left);
        }
        let mut lacking;
        loop {
            lacking = (0..count).find(|at| self.spare[*at] < 0.0);
            let Some(high) = lacking else { break };
            let Some(low) = (0..count).rev().find(|at| self.spare[*at] > 0.0) else { break };
            let part = self.spare[low].min(-self.spare[high]);
            for (at, part) in [(low, -part), (high, part)] {
                self.has[at] += part;
                self.spare[at] += part;
            }
        }
        for at in 0..count {
            let class = self.get(at);
            self.delta[at] = if class.backlogged() { self.has[at] - class.rate } else { -class.rate };
        }
        let mut drops = lacking.is_some();
        for at in 0..count {
            let class = self.get(at);
            if !class.backlogged() || self.spare[at] >= 0.0 || class.wants.adc.is_none() || class.kept {
                continue;
            }
            let most = self.left[at] * self.has[at];
            while drops {
                let class = self.get(at);
                let Some((_, last)) = class.waiting.back().copied() else { break };
                if class.accepted - class.sent <= most {
                    break;
                }
                if class.wants.alc.is_some_and(|alc| class.loss_with(f64::from(last)) > alc) {
                    drops = false;
                } else {
                    self.drop_last(self.order[at], DropReason::Early);
                }
            }
        }
        for at in 0..count {
            let (has, left, link, delta) = (self.has[at], self.left[at], self.link, self.delta[at]);
            let class = self.class(at);
            if !class.backlogged() {
                class.least = 0.0;
                continue;
            }
            class.least = match (class.wants.adc, class.wants.arc) {
                (Some(_), _) if left <= 0.0 => link,
                (Some(_), None) => (class.accepted - class.sent) / left,
                (None, None) => 0.0,
                _ => has,
            };
            class.rate += delta;
        }
    }

    /// Moves rates among the classes that have ratios of delays, so that their weighted delays come
    /// nearer to one another.
    fn keep_ratios(&mut self, now: Nanos) {
        let count = self.order.len();
        let proportional = |class: &Class| class.backlogged() && class.wants.rdc.is_some();
        let (mut upper, mut of, mut accepted, mut sum) = (self.link, 0.0, 0.0, 0.0);
        for at in 0..count {
            let class = self.get(at);
            if proportional(class) {
                of += 1.0;
                accepted += class.accepted;
                sum += class.delay_weight * class.age(now);
            } else if class.backlogged() {
                upper -= class.rate;
            }
        }
        if upper <= 0.0 || of == 0.0 || accepted <= 0.0 {
            return;
        }
        let (mut share, mut weight, mut packet, mut lower) = (1.0_f64, 0.0_f64, 0.0_f64, 0.0);
        for at in 0..count {
            let class = self.get(at);
            if class.backlogged() {
                share = share.min(class.accepted / accepted);
            }
            if proportional(class) {
                weight = weight.max(class.delay_weight);
                packet = packet.max(class.accepted / class.packets);
                lower += class.least;
            }
        }
        // KAME's condition for stability has rates in bits and packets in bytes.
        let bits = 8.0 * upper;
        let gain = bits * bits * share / (weight * 4.0 * packet);
        let mean = sum / of;
        for at in 0..count {
            let class = self.get(at);
            let error = mean - class.delay_weight * class.age(now);
            self.delta[at] = if proportional(class) { -gain * error / 8.0 } else { 0.0 };
        }
        let mut credit = 0.0;
        for at in 0..count {
            let class = self.get(at);
            if !proportional(class) {
                continue;
            }
            if self.delta[at] + class.rate > upper {
                // One class would have more than all: it has what the others' bounds leave.
                for other in 0..count {
                    let class = self.class(other);
                    if proportional(class) {
                        class.rate = if other == at { upper + class.least - lower } else { class.least };
                    }
                }
                return;
            }
            if self.delta[at] + class.rate < class.least {
                credit += class.rate + self.delta[at] - class.least;
                self.delta[at] = class.least - class.rate;
            }
        }
        for at in (0..count).rev() {
            let class = self.get(at);
            if credit >= 0.0 || !proportional(class) {
                continue;
            }
            let spare = self.delta[at] + class.rate - class.least;
            let part = spare.min(-credit);
            self.delta[at] -= part;
            credit += part;
        }
        for at in 0..count {
            let delta = self.delta[at];
            let class = self.class(at);
            if proportional(class) {
                class.rate += delta;
            }
        }
    }

    /// The class whose sent bytes are furthest behind the promised ones; of equal ones the first.
    pub fn furthest(&self) -> Option<Slot> {
        let mut found: Option<(f64, Slot)> = None;
        for slot in &self.order {
            let class = &self.classes[*slot as usize];
            let behind = class.promised - class.sent;
            if class.backlogged() && found.is_none_or(|(most, _)| behind > most) {
                found = Some((behind, *slot));
            }
        }
        found.map(|(_, slot)| slot)
    }

    /// A class's rate in bit/s, and its loss in millionths.
    pub fn figures(&self, slot: Slot) -> (u64, u64) {
        let class = &self.classes[slot as usize];
        ((8.0 * class.rate) as u64, (1e6 * class.loss) as u64)
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        let packets: usize = self.classes.iter().map(|class| class.waiting.capacity()).sum();
        self.classes.capacity() * size_of::<Class>() + packets * size_of::<(Nanos, u32)>() + 36 * self.order.capacity()
    }
}
