//! The tree of classes and schedulers: how it is built, and changed while packets are queued.

use super::{Engine, HOLDS_SCHEDULER, Kind, Leaf, MAX_NESTING, Node, TreePlace};
use crate::account::DropReason;
use crate::classify::RuleSet;
use crate::packet::{NIL, Packet};
use crate::queue::{self, Policy};
use crate::schedule::{self, Context, Entry, ROOT_SLOT, Slot};
use crate::settings::{Limit, Settings};
use crate::shape::meter::{Meter, MeterSpec};
use crate::shape::pacer::Pacer;
use crate::shape::regulator::Limiter;
use crate::shape::token_bucket::TokenBucket;
use crate::spec::{ClassId, ClassSpec, QueueSpec, ROOT, Regulator, SchedulerSpec, SpecError};
use crate::units::{Nanos, Rate};

impl Engine {
    pub(super) fn push_root(&mut self, root: &ClassSpec, scheduler: &SchedulerSpec) -> Result<(), SpecError> {
        let meter = MeterSpec::read(&root.settings)?;
        let node = self.build_scheduler(ROOT, scheduler, self.rate)?;
        self.places.push(TreePlace {
            parent: ROOT,
            children: 0,
            scheduler: node,
            slot: ROOT_SLOT,
            rate: self.rate,
            guaranteed: true,
            losses: None,
            meter: None,
        });
        self.set_meter(0, ROOT, meter);
        let queue = root.queue.clone().unwrap_or_else(|| self.nodes[node as usize].queue.clone());
        let policy = self.policy(ROOT, &queue, self.rate)?;
        let leaf = self.leaf(policy, &queue, node, ROOT_SLOT);
        self.buffers.leaves.push(leaf);
        self.tell_guesses(ROOT);
        Ok(())
    }

    pub(super) fn build_scheduler(
        &mut self,
        class: ClassId,
        spec: &SchedulerSpec,
        rate: Rate,
    ) -> Result<u32, SpecError> {
        let entry =
            schedule::find(spec.name).ok_or_else(|| SpecError::new(format!("no scheduler is called {}", spec.name)))?;
        let context = Context {
            rate,
            nested: class != ROOT,
            link_rate: self.rate,
            mtu: self.mtu,
            overhead: self.buffers.charges.overhead(),
            timer: self.timer,
        };
        let inner = (entry.build)(&context, &spec.settings)?;
        self.may_refuse |= inner.wants_arrivals() && inner.may_refuse();
        self.arrivals_observed |= self.may_refuse;
        let node = Node {
            wants_arrivals: inner.wants_arrivals(),
            inner,
            class,
            classes: vec![class],
            slots_are_classes: class == ROOT,
            free: Vec::new(),
            backlog: 0,
            blocked_until: None,
            filed: None,
            spec: spec.clone(),
            queue: (entry.queue)(&spec.settings, &Settings::new()),
        };
        Ok(match self.free_nodes.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        })
    }

    fn policy(&self, class: ClassId, spec: &QueueSpec, rate: Rate) -> Result<Policy, SpecError> {
        let entry =
            queue::find(spec.name).ok_or_else(|| SpecError::new(format!("no queue is called {}", spec.name)))?;
        (entry.build)(&self.queue_context(class, rate), spec)
    }

    pub(super) fn leaf(&mut self, policy: Policy, spec: &QueueSpec, scheduler: u32, slot: Slot) -> Leaf {
        let (limit, limit_in_bytes) = match spec.limit {
            Limit::Packets(n) => (n, false),
            Limit::Bytes(n) => (n, true),
        };
        let (kind, head) = match policy {
            Policy::DropTail => (Kind::DropTail, NIL),
            Policy::DropHead => (Kind::DropHead, NIL),
            Policy::Stateful(queue) => (Kind::Stateful, self.keep_queue(queue, spec.name)),
        };
        Leaf {
            head,
            tail: NIL,
            packets: 0,
            bytes: 0,
            limit,
            scheduler,
            slot,
            kind,
            limit_in_bytes,
            exists: true,
            sent_packets: 0,
            sent_bytes: 0,
            sent_wire_bytes: 0,
            borrowed_bytes: 0,
        }
    }

    pub(super) fn existing(&self, class: ClassId) -> Result<&TreePlace, SpecError> {
        match self.buffers.leaves.get(class as usize) {
            Some(leaf) if leaf.exists => Ok(&self.places[class as usize]),
            _ => Err(SpecError::new(format!("there is no class {class}"))),
        }
    }

    /// The scheduler that a class holds, if it does.
    fn held_by(&self, class: ClassId) -> Option<u32> {
        let leaf = &self.buffers.leaves[class as usize];
        (leaf.slot == ROOT_SLOT).then_some(leaf.scheduler)
    }

    /// The scheduler that serves the children of a class, and the class's slot in it. The same
    /// scheduler serves the class's own packets.
    fn scheduler_below(&self, class: ClassId) -> (u32, Slot) {
        let leaf = &self.buffers.leaves[class as usize];
        (leaf.scheduler, leaf.slot)
    }

    pub(super) fn add_class(&mut self, now: Nanos, spec: &ClassSpec) -> Result<ClassId, SpecError> {
        self.existing(spec.parent)?;
        let (node, parent_slot) = self.scheduler_below(spec.parent);
        let entry =
            schedule::find(self.nodes[node as usize].spec.name).expect("a scheduler that was built is registered");
        let scheduler = &self.nodes[node as usize].spec.settings;
        let queue = spec.queue.clone().unwrap_or_else(|| (entry.queue)(scheduler, &spec.settings));
        let meter = MeterSpec::read(&spec.settings)?;
        let guarantee = entry.rate_inside(&spec.settings);
        let rate = guarantee.unwrap_or(self.rate_of_place(node));
        let id = self.free.last().copied().unwrap_or(self.buffers.leaves.len() as ClassId);
        let policy = self.policy(id, &queue, rate)?;
        if spec.scheduler.is_some() && self.nesting(node) >= MAX_NESTING {
            return Err(SpecError::new(format!("schedulers stand more than {MAX_NESTING} deep in one another")));
        }
        side_by_side(entry, parent_slot)?;
        let n = &mut self.nodes[node as usize];
        let slot = n.free.pop().unwrap_or(n.classes.len() as Slot);
        if let Err(error) = n.inner.add(now, slot, parent_slot, &spec.settings) {
            if (slot as usize) < n.classes.len() {
                n.free.push(slot);
            }
            return Err(error);
        }
        self.update_wants_arrivals(node);
        let holds = match &spec.scheduler {
            None => NIL,
            Some(inner) => match self.build_scheduler(id, inner, rate) {
                Ok(made) => made,
                Err(error) => {
                    let n = &mut self.nodes[node as usize];
                    n.inner.remove(now, slot);
                    if (slot as usize) < n.classes.len() {
                        n.free.push(slot);
                    }
                    return Err(error);
                }
            },
        };
        let n = &mut self.nodes[node as usize];
        let tagged = if holds == NIL { id } else { id | HOLDS_SCHEDULER };
        n.slots_are_classes &= tagged == slot;
        if slot as usize == n.classes.len() {
            n.classes.push(tagged);
        } else {
            n.classes[slot as usize] = tagged;
        }
        let (own_node, own_slot) = if holds == NIL { (node, slot) } else { (holds, ROOT_SLOT) };
        let leaf = self.leaf(policy, &queue, own_node, own_slot);
        let place = TreePlace {
            parent: spec.parent,
            children: 0,
            scheduler: node,
            slot,
            rate,
            guaranteed: guarantee.is_some(),
            losses: None,
            meter: None,
        };
        if self.free.pop().is_some() {
            self.buffers.leaves[id as usize] = leaf;
            self.places[id as usize] = place;
        } else {
            self.buffers.leaves.push(leaf);
            self.places.push(place);
        }
        self.places[spec.parent as usize].children += 1;
        self.set_meter(now, id, meter);
        self.tell_guesses(id);
        self.reconsider(node);
        Ok(id)
    }

    /// Tells schedulers whether the lengths of a class's packets are guesses: the one that serves
    /// its queue, and, where the class holds that one, the one above.
    fn tell_guesses(&mut self, class: ClassId) {
        let leaf = &self.buffers.leaves[class as usize];
        let guesses = leaf.kind == Kind::Stateful
            && queue::find(self.queue_names[leaf.head as usize]).is_some_and(queue::Entry::guesses);
        self.nodes[leaf.scheduler as usize].inner.guesses(leaf.slot, guesses);
        let place = &self.places[class as usize];
        if place.scheduler != leaf.scheduler {
            self.nodes[place.scheduler as usize].inner.guesses(place.slot, true);
        }
    }

    /// Gives a class a meter, or takes it away. A meter of the same words stays as it is.
    fn set_meter(&mut self, now: Nanos, class: ClassId, spec: Option<MeterSpec>) {
        let meter = &mut self.places[class as usize].meter;
        let (old, metered) = (meter.as_ref().map(|meter| meter.spec()), spec.is_some());
        if old != spec.as_ref() {
            *meter = spec.map(|spec| Box::new(Meter::new(spec, now)));
            self.seed_meter(class);
        }
        if metered {
            (self.metered, self.arrivals_observed) = (true, true);
        }
    }

    pub(super) fn nesting(&self, mut node: u32) -> usize {
        let mut depth = 1;
        while node != 0 {
            node = self.places[self.nodes[node as usize].class as usize].scheduler;
            depth += 1;
        }
        depth
    }

    pub(super) fn set_class(
        &mut self,
        now: Nanos,
        class: ClassId,
        parent: ClassId,
        settings: &Settings,
    ) -> Result<(), SpecError> {
        let place = self.existing(class)?;
        let (above, serving, slot) = (place.parent, place.scheduler, place.slot);
        self.existing(parent)?;
        if class == ROOT {
            return Err(SpecError::new(
                "the root has no words of a class; change the link's rate or its scheduler instead",
            ));
        }
        let (node, parent_slot) = self.scheduler_below(parent);
        if node != serving {
            return Err(SpecError::new("a class cannot move to another scheduler")
                .help("add it there and remove it here, with an heir"));
        }
        if self.is_below(parent, class) {
            return Err(SpecError::new("a class cannot stand below itself"));
        }
        let entry =
            schedule::find(self.nodes[node as usize].spec.name).expect("a scheduler that was built is registered");
        let meter = MeterSpec::read(settings)?;
        let guarantee = entry.rate_inside(settings);
        let mut rates = self.derived_rates(class, guarantee.unwrap_or(self.rate_of_place(node)));
        // Whoever measures by the same rate as before is not told.
        rates.retain(|(class, rate)| self.places[*class as usize].rate != *rate);
        self.check_rates(&rates)?;
        side_by_side(entry, parent_slot)?;
        self.nodes[node as usize].inner.change(now, slot, parent_slot, settings)?;
        self.update_wants_arrivals(node);
        self.places[above as usize].children -= 1;
        self.places[parent as usize].children += 1;
        let place = &mut self.places[class as usize];
        (place.parent, place.guaranteed) = (parent, guarantee.is_some());
        self.set_meter(now, class, meter);
        self.set_rates(now, &rates);
        self.reconsider(node);
        Ok(())
    }

    /// Asks a scheduler again whether it wants to be called for every arrival: a class of it was
    /// added or changed.
    fn update_wants_arrivals(&mut self, node: u32) {
        let node = &mut self.nodes[node as usize];
        if node.inner.wants_arrivals() {
            node.wants_arrivals = true;
            self.may_refuse |= node.inner.may_refuse();
            self.arrivals_observed |= self.may_refuse;
        }
    }

    pub(super) fn remove_class(&mut self, now: Nanos, class: ClassId, heir: Option<ClassId>) -> Result<(), SpecError> {
        let place = self.existing(class)?;
        let (above, serving, slot) = (place.parent, place.scheduler, place.slot);
        if class == ROOT {
            return Err(SpecError::new("the root cannot be removed"));
        }
        if place.children > 0 {
            return Err(
                SpecError::new(format!("the class has {} classes below it", place.children)).help("remove those first")
            );
        }
        if let Some(heir) = heir {
            self.existing(heir)?;
            if heir == class {
                return Err(SpecError::new("a class cannot be its own heir"));
            }
        }
        if self.default == Some(class) || self.classifier.leads_to(class) {
            return Err(SpecError::new("rules or the default still lead to the class").help("change the rules first"));
        }
        let leaf = self.buffers.leaves[class as usize];
        while self.buffers.leaves[class as usize].packets > 0 {
            let Some((packet, next)) = self.take_first(class) else { break };
            self.head_lost(leaf.scheduler, leaf.slot, next);
            match heir {
                None => self.count_drop(class, packet, DropReason::ClassRemoved),
                Some(heir) => self.inherit(heir, packet),
            }
        }
        if let Some(inner) = self.held_by(class) {
            self.free_nodes.push(inner);
            self.nodes[inner as usize].blocked_until = None;
        }
        let n = &mut self.nodes[serving as usize];
        n.inner.remove(now, slot);
        n.free.push(slot);
        self.places[above as usize].children -= 1;
        // What the class did stays in its parents' sums.
        let gone = self.buffers.leaves[class as usize];
        let into = &mut self.buffers.leaves[above as usize];
        into.sent_packets += gone.sent_packets;
        into.sent_bytes += gone.sent_bytes;
        into.sent_wire_bytes += gone.sent_wire_bytes;
        into.borrowed_bytes += gone.borrowed_bytes;
        if let Some(gone) = self.places[class as usize].losses.take() {
            let into = self.places[above as usize].losses.get_or_insert_default();
            into.packets += gone.packets;
            into.bytes += gone.bytes;
            into.marked_packets += gone.marked_packets;
            for (to, from) in into.reasons.iter_mut().zip(gone.reasons) {
                *to = (to.0 + from.0, to.1 + from.1);
            }
        }
        self.forget_queue(class);
        self.buffers.leaves[class as usize].exists = false;
        self.free.push(class);
        self.reconsider(serving);
        Ok(())
    }

    /// Puts a packet of a removed class into its heir's queue. It keeps its time of arrival.
    pub(super) fn inherit(&mut self, heir: ClassId, mut packet: Packet) {
        let leaf = self.buffers.leaves[heir as usize];
        if leaf.kind == Kind::Stateful {
            self.enqueue_stateful(heir, &mut packet);
        } else if leaf.fits(packet.len) {
            let first = self.append(heir, &packet);
            self.report_queued(leaf.scheduler, leaf.slot, packet.wire, first);
        } else {
            return self.count_drop(heir, packet, DropReason::QueueFull);
        }
        if self.may_refuse {
            self.drop_victims(leaf.scheduler);
        }
    }

    pub(super) fn set_queue(&mut self, now: Nanos, class: ClassId, spec: &QueueSpec) -> Result<(), SpecError> {
        self.existing(class)?;
        let rate = self.places[class as usize].rate;
        if self.change_stateful(now, class, spec, rate)? {
            return Ok(());
        }
        let policy = self.policy(class, spec, rate)?;
        if self.buffers.leaves[class as usize].kind == Kind::Stateful || matches!(policy, Policy::Stateful(_)) {
            self.replace_queue(class, policy, spec);
            self.tell_guesses(class);
            return Ok(());
        }
        let leaf = self.buffers.leaves[class as usize];
        let new = self.leaf(policy, spec, leaf.scheduler, leaf.slot);
        let leaf = &mut self.buffers.leaves[class as usize];
        (leaf.kind, leaf.limit, leaf.limit_in_bytes) = (new.kind, new.limit, new.limit_in_bytes);
        if leaf.kind == Kind::DropHead {
            if leaf.over() {
                self.drop_from_head(class, DropReason::LimitLowered);
            }
            return Ok(());
        }
        // Drop-tail drops the newest packets first.
        while self.buffers.leaves[class as usize].over() {
            self.drop_tail(class, DropReason::LimitLowered);
        }
        Ok(())
    }

    /// Drops the last packet of a plain queue. Linear in the queue: only for a lowered limit, and
    /// for schedulers that name [victims](crate::schedule::Scheduler::victim).
    pub(super) fn drop_tail(&mut self, class: ClassId, reason: DropReason) {
        let leaf = self.buffers.leaves[class as usize];
        if leaf.packets == 1 {
            return self.drop_from_head(class, reason);
        }
        let before = self.buffers.slab.before(leaf.head, leaf.tail);
        let (_, wire, ..) = self.buffers.slab.first(leaf.tail, &self.buffers.charges);
        let packet = self.buffers.slab.take(leaf.tail, wire);
        self.buffers.slab.link(before, NIL, 0);
        let leaf = &mut self.buffers.leaves[class as usize];
        leaf.tail = before;
        leaf.packets -= 1;
        leaf.bytes -= packet.len;
        let (mut node, mut slot) = (leaf.scheduler, leaf.slot);
        self.count_drop(class, packet, reason);
        loop {
            let n = &mut self.nodes[node as usize];
            n.backlog -= 1;
            n.inner.tail_lost(self.now, slot);
            if node == 0 {
                return;
            }
            let place = &self.places[n.class as usize];
            (node, slot) = (place.scheduler, place.slot);
        }
    }

    pub(super) fn set_scheduler(&mut self, now: Nanos, class: ClassId, settings: &Settings) -> Result<(), SpecError> {
        self.existing(class)?;
        let Some(inner) = self.held_by(class) else {
            return Err(SpecError::new(format!("class {class} holds no scheduler")));
        };
        let node = &mut self.nodes[inner as usize];
        node.inner.change(now, ROOT_SLOT, ROOT_SLOT, settings)?;
        node.spec.settings = settings.clone();
        self.reconsider(inner);
        Ok(())
    }

    pub(super) fn set_rate(&mut self, now: Nanos, rate: Rate) -> Result<(), SpecError> {
        if rate.is_zero() {
            return Err(SpecError::word("rate", "the link's rate is 0 bit/s"));
        }
        if rate == self.rate {
            return Ok(());
        }
        let rates = self.derived_rates(ROOT, rate);
        self.check_rates(&rates)?;
        self.rate = rate;
        self.set_rates(now, &rates);
        let depth = self.regulator_depth().unwrap_or(0);
        match &mut self.regulator {
            Some(Limiter::Pacer(pacer)) => pacer.set_rate(rate),
            Some(Limiter::Bucket(bucket)) => bucket.set(now, rate, depth),
            None => {}
        }
        Ok(())
    }

    /// Another regulator. One that is there keeps its tokens, up to the new depth, or is free when
    /// it was to be: a change is no refill.
    pub(super) fn set_regulator(&mut self, now: Nanos, regulator: Regulator) {
        if regulator == self.regulator_spec && self.regulator.is_some() {
            return;
        }
        self.regulator_spec = regulator;
        let before = self.regulator.take();
        self.regulator = match (before, self.regulator_depth()) {
            (Some(Limiter::Bucket(mut bucket)), Some(depth)) => {
                bucket.set(now, self.rate, depth);
                Some(Limiter::Bucket(bucket))
            }
            (Some(Limiter::Pacer(pacer)), Some(depth)) => {
                let mut bucket = TokenBucket::new(self.rate, depth, pacer.ready_at().max(now));
                bucket.spend(depth);
                Some(Limiter::Bucket(bucket))
            }
            (None, Some(depth)) => Some(Limiter::Bucket(TokenBucket::new(self.rate, depth, now))),
            (before, None) if regulator == Regulator::Auto => {
                let free = match before {
                    Some(Limiter::Bucket(bucket)) => bucket.ready_at().max(now),
                    _ => now,
                };
                Some(Limiter::Pacer(Pacer::new(self.rate, self.timer, self.seen_late, free)))
            }
            (_, None) => None,
        };
    }

    /// The depth in bytes of the token bucket between scheduler and device; `None` without one.
    pub fn regulator_depth(&self) -> Option<u32> {
        self.regulator_spec.depth(self.rate, self.mtu, self.timer)
    }

    /// Tells the engine that packets are seen, and enqueued, at most so long after they came: at
    /// first 0. That is what `regulator auto` must know of a host
    /// ([`pacer`](crate::shape::pacer)).
    pub fn set_seen_late(&mut self, time: Nanos) {
        self.seen_late = time;
        if let Some(Limiter::Pacer(pacer)) = &mut self.regulator {
            pacer.set_seen_late(time);
        }
    }

    pub(super) fn set_rules(&mut self, rules: &RuleSet, default: Option<ClassId>) -> Result<(), SpecError> {
        for class in rules.rules.iter().map(|rule| rule.class).chain(default) {
            self.existing(class)?;
        }
        self.classifier = crate::classify::Classifier::with(rules, default, self.classifier.settings());
        self.default = default;
        Ok(())
    }
}

/// Refuses a class below another where the scheduler's classes stand side by side.
fn side_by_side(entry: &Entry, parent: Slot) -> Result<(), SpecError> {
    if parent == ROOT_SLOT || !entry.side_by_side {
        return Ok(());
    }
    let name = entry.name;
    let error = SpecError::new(format!("the classes of {name} stand side by side, this one stands below another"));
    Err(error.help(format!("write `scheduler {name}`, or another, in the class above it")))
}
