//! The tree: classes come, change, move and go while packets wait.
//!
//! A class without children is a leaf; its first child makes it a node, and its leaf the implicit
//! leaf below it that holds its own packets (docs/reference/cbq.md rule 16). A class keeps its
//! leaf, and with it its packets and what it is owed, through all of this.

use super::calendar::Calendar;
use super::caps::{Limit, moved};
use super::lenders::Lenders;
use super::owed;
use super::ready::Ready;
use super::state::{
    AVAIL, BACKLOGGED, BORROW, BRANCH, Branch, Cap, EXISTS, FILED, LINKED, Leaf, NIL, NODE, Node, READY, Records, ZERO,
    calendar, nspb, span, weight,
};
use super::timing_wheel::TimingWheel;
use super::words::{self, Excess, Words};
use super::{EPOCH, Exact, Free, GUARANTEE};
use crate::schedule::{Context, ROOT_SLOT};

impl Exact {
    pub(super) fn new(context: &Context, excess: Excess) -> Exact {
        let mut exact = Exact {
            excess,
            link_rate: context.link_rate.as_bit_s(),
            mtu: context.mtu,
            packet: context.overhead.charge(context.mtu).max(context.mtu),
            nested: context.nested,
            stall: 0,
            levels: Default::default(),
            now: EPOCH,
            records: Records::default(),
            calendars: Vec::new(),
            wheel: TimingWheel::new(10, 10, EPOCH),
            ready: Ready::new(),
            lenders: Lenders::default(),
            chosen: NIL,
            chosen_at: 0,
            lender: 0,
            busy: 0,
            alone: NIL,
            alone_lender: GUARANTEE,
            changes: 1,
            lending: NIL,
            leaf_count: 0,
            levels_stale: false,
            free: Free::default(),
        };
        // The root's own packets get the rate that its classes leave, and may borrow. Their burst
        // is that of a class that states none.
        let words = Words {
            rate: context.rate.as_bit_s(),
            borrow: true,
            ceiling: None,
            priority: 1,
            burst: words::default_burst(context.mtu),
        };
        exact.stall = owed::stall(exact.nested, words.rate, exact.packet);
        exact.reserve_leaf(ROOT_SLOT);
        let root = exact.make_node(ROOT_SLOT, NIL, words, NIL, 0);
        debug_assert_eq!(root, 0);
        exact.records.leaves[ROOT_SLOT as usize].flags = EXISTS;
        exact.attach_leaf(ROOT_SLOT, root, words);
        exact.size_wheel();
        exact
    }

    // ------------------------------------------------------------------ what the scheduler is told

    pub(super) fn add_class(&mut self, slot: u32, parent: u32, words: Words) {
        self.reserve_leaf(slot);
        let above = self.node_below(parent);
        self.records.leaves[slot as usize] = Leaf { flags: EXISTS, ..Leaf::NONE };
        self.leaf_count += 1;
        self.change_given(above, 0, words.rate);
        self.records.nodes[above as usize].children += 1;
        self.attach_leaf(slot, above, words);
        // The wheel grows whenever the number of leaves has doubled.
        if self.leaf_count.is_power_of_two() {
            self.size_wheel();
        }
    }

    pub(super) fn remove_class(&mut self, slot: u32) {
        let leaf = self.records.leaves[slot as usize];
        let above = self.records.branches[leaf.branch as usize].node;
        self.empty(slot);
        self.detach_leaf(slot);
        self.count_leaf(&leaf, false);
        if leaf.cap != NIL {
            self.drop_cap(leaf.cap);
        }
        // The slot will be used again, so no entry of the wheel or of the ready queue may name it.
        self.unfile(slot);
        self.records.leaves[slot as usize] = Leaf::NONE;
        self.leaf_count -= 1;
        self.change_given(above, leaf.rate, 0);
        self.records.nodes[above as usize].children -= 1;
        self.fold(above);
    }

    /// Whether a class has these words and this parent already.
    pub(super) fn has_words(&self, slot: u32, parent: u32, words: &Words) -> bool {
        let (above, had) = match self.node_of(slot) {
            Some(node) => (self.records.nodes[node as usize].parent, self.records.nodes[node as usize].words),
            None => {
                let leaf = &self.records.leaves[slot as usize];
                (self.records.branches[leaf.branch as usize].node, self.leaf_words(slot))
            }
        };
        self.slot_of(above) == parent && had == *words
    }

    pub(super) fn change_class(&mut self, slot: u32, parent: u32, words: Words) {
        match self.node_of(slot) {
            Some(node) => self.change_node(node, parent, words),
            None => self.change_leaf(slot, parent, words),
        }
    }

    pub(super) fn set_root_rate(&mut self, rate: u64) {
        self.records.nodes[0].words.rate = rate;
        self.records.nodes[0].nspb = nspb(rate);
        self.update_implicit_leaf(0);
        self.size_wheel();
    }

    /// Sets how excess is divided. `excess priority` has a tree of branches for each priority,
    /// `excess share` has one: they are made anew. Guarantee clocks stay as they are.
    pub(super) fn set_excess(&mut self, excess: Excess) {
        let slots: Vec<u32> = (0..self.records.leaves.len() as u32)
            .filter(|s| self.records.leaves[*s as usize].flags & EXISTS != 0)
            .collect();
        let homes: Vec<(u32, Words)> = slots
            .iter()
            .map(|slot| {
                let leaf = &self.records.leaves[*slot as usize];
                (self.records.branches[leaf.branch as usize].node, self.leaf_words(*slot))
            })
            .collect();
        for slot in &slots {
            if self.records.leaves[*slot as usize].has(AVAIL) {
                self.disable_leaf(*slot);
            }
            self.detach_leaf(*slot);
            // Its branch is another one from now on, also if it gets the same number.
            self.records.leaves[*slot as usize].start = 0;
        }
        self.lenders.clear(&mut self.records);
        self.calendars.clear();
        self.records.branches.clear();
        self.free.branches.clear();
        self.excess = excess;
        let nodes: Vec<u32> = (0..self.records.nodes.len() as u32).filter(|n| !self.free.nodes.contains(n)).collect();
        for node in &nodes {
            let n = &mut self.records.nodes[*node as usize];
            (n.branches, n.live) = ([NIL; 8], 0);
            let clock = self.own_clock(*node);
            self.set_node_cap(*node, clock);
        }
        for (slot, (node, words)) in slots.iter().zip(homes) {
            self.attach_leaf(*slot, node, words);
        }
        self.levels_stale = true;
    }

    // ------------------------------------------------------------------ leaves

    /// The words that a leaf has. A node's implicit leaf has words of its own, derived from the
    /// node's.
    fn leaf_words(&self, slot: u32) -> Words {
        let leaf = &self.records.leaves[slot as usize];
        Words {
            rate: leaf.rate,
            borrow: leaf.has(BORROW),
            ceiling: (leaf.cap != NIL).then(|| self.records.caps[leaf.cap as usize].rate),
            priority: leaf.priority,
            burst: leaf.burst,
        }
    }

    /// Gives a leaf its words and its place below a node. In another calendar it starts at the
    /// present; its guarantee clock stays.
    fn attach_leaf(&mut self, slot: u32, node: u32, words: Words) {
        let zero = words.rate == 0;
        // docs/reference/cbq.md rule 6 knows no priority among classes of rate 0: they stand in the
        // lowest band.
        let band = if self.excess == Excess::Share || zero { 0 } else { words.priority };
        let branch = self.branch(node, band);
        let present = self.calendars[calendar(branch, zero) as usize].present(&mut self.records);
        let (slip, old) = (self.records.slip, self.records.leaves[slot as usize].priority);
        let before = self.records.leaves[slot as usize];
        if before.branch != NIL {
            self.count_leaf(&before, false);
        }
        let leaf = &mut self.records.leaves[slot as usize];
        let same = leaf.branch == branch && leaf.has(ZERO) == zero;
        // `eligible` counts without the priority's slip, so another priority's slip is put in its
        // place: the leaf is within guarantee at the same time as before.
        leaf.eligible = leaf.eligible.saturating_add(slip[old as usize]).saturating_sub(slip[words.priority as usize]);
        leaf.start = if same { leaf.start.max(present) } else { present };
        leaf.nspb = weight(words.rate);
        leaf.rate = words.rate;
        leaf.burst = words.burst;
        leaf.rem = 0;
        leaf.branch = branch;
        leaf.priority = words.priority;
        leaf.flags =
            leaf.flags & !(BORROW | ZERO) | if words.borrow { BORROW } else { 0 } | if zero { ZERO } else { 0 };
        let leaf = self.records.leaves[slot as usize];
        self.count_leaf(&leaf, true);
        let cap = leaf.cap;
        let limit = words.ceiling.map(|rate| Limit { rate, burst: words.burst, owed: false });
        let cap = self.set_cap(cap, slot, limit, 0);
        self.records.leaves[slot as usize].cap = cap;
        if self.records.leaves[slot as usize].has(BACKLOGGED) {
            self.file_guarantee(slot);
            self.enable_leaf(slot);
        }
    }

    /// Takes a leaf out of its calendar. Its packets, its guarantee clock and its ceiling's stay.
    fn detach_leaf(&mut self, slot: u32) {
        if self.records.leaves[slot as usize].has(AVAIL) {
            self.disable_leaf(slot);
        }
        let leaf = self.records.leaves[slot as usize];
        if leaf.has(LINKED) {
            self.calendars[leaf.home() as usize].unlink(&mut self.records, slot);
        }
    }

    /// Takes a leaf out of the wheel and the ready queue.
    fn unfile(&mut self, slot: u32) {
        if self.records.leaves[slot as usize].has(FILED) {
            self.wheel.unfile(&mut self.records, slot);
            self.records.leaves[slot as usize].flags &= !FILED;
        }
        if self.records.leaves[slot as usize].has(READY) {
            self.ready.unfile(&mut self.records, slot);
        }
    }

    fn change_leaf(&mut self, slot: u32, parent: u32, words: Words) {
        let old = self.records.leaves[slot as usize];
        let from = self.records.branches[old.branch as usize].node;
        self.unfile(slot);
        self.detach_leaf(slot);
        self.move_guarantee(slot, words.rate);
        let to = if parent == self.slot_of(from) { from } else { self.node_below(parent) };
        self.move_given(from, old.rate, to, words.rate);
        self.attach_leaf(slot, to, words);
        if to != from {
            self.fold(from);
        }
    }

    // ------------------------------------------------------------------ nodes

    fn slot_of(&self, node: u32) -> u32 {
        self.records.nodes[node as usize].slot
    }

    /// The node of a class that has children, and of the root.
    fn node_of(&self, slot: u32) -> Option<u32> {
        let leaf = &self.records.leaves[slot as usize];
        let node = self.records.branches[leaf.branch as usize].node;
        (self.slot_of(node) == slot).then_some(node)
    }

    /// The node of a class that gets a child: a leaf becomes one.
    fn node_below(&mut self, slot: u32) -> u32 {
        if let Some(node) = self.node_of(slot) {
            return node;
        }
        let words = self.leaf_words(slot);
        let leaf = self.records.leaves[slot as usize];
        let above = self.records.branches[leaf.branch as usize].node;
        let due = self.records.leaf_due(&leaf);
        self.unfile(slot);
        self.detach_leaf(slot);
        // The class's cap moves from the leaf to the node, with its clock.
        self.records.leaves[slot as usize].cap = NIL;
        let node = self.make_node(slot, above, words, leaf.cap, due);
        self.attach_leaf(slot, node, Words { ceiling: None, ..words });
        node
    }

    /// A node that has lost its last child becomes a leaf again.
    fn fold(&mut self, node: u32) {
        let n = self.records.nodes[node as usize];
        if n.children > 0 || n.parent == NIL {
            return;
        }
        self.unfile(n.slot);
        self.detach_leaf(n.slot);
        self.unlink_node(node);
        if n.filed {
            self.wheel.unfile(&mut self.records, node | NODE);
        }
        if !n.words.borrow {
            // Without `borrow` its rate is its limit. From now on the leaf's guarantee clock keeps
            // that limit, so it may not be behind the node's.
            let used = self.own_clock(node).saturating_sub(self.records.slip[n.words.priority as usize % 8]);
            let leaf = &mut self.records.leaves[n.slot as usize];
            leaf.eligible = leaf.eligible.max(used);
        }
        if n.cap != NIL {
            if n.words.ceiling.is_some() {
                self.records.leaves[n.slot as usize].cap = n.cap;
                self.records.caps[n.cap as usize].owner = n.slot;
            } else {
                self.drop_cap(n.cap);
            }
        }
        for branch in n.branches {
            if branch != NIL {
                for zero in [false, true] {
                    self.calendars[calendar(branch, zero) as usize] = Calendar::new();
                }
                self.free.branches.push(branch);
            }
        }
        self.free.nodes.push(node);
        self.records.nodes[node as usize] = Node { parent: NIL, slot: NIL, cap: NIL, branches: [NIL; 8], live: 0, ..n };
        self.levels_stale = true;
        self.attach_leaf(n.slot, n.parent, n.words);
    }

    /// Makes a node for a class with the cap `cap`, whose credit clock is at `underlimit`.
    fn make_node(&mut self, slot: u32, parent: u32, words: Words, cap: u32, underlimit: u64) -> u32 {
        let node = Node {
            slot,
            parent,
            words,
            given: 0,
            children: 0,
            level: 1,
            cap,
            branches: [NIL; 8],
            live: 0,
            underlimit,
            nspb: nspb(words.rate),
            rem: 0,
            timer_next: NIL,
            filed: false,
        };
        let at = match self.free.nodes.pop() {
            Some(at) => {
                self.records.nodes[at as usize] = node;
                at
            }
            None => {
                self.records.nodes.push(node);
                (self.records.nodes.len() - 1) as u32
            }
        };
        self.set_node_cap(at, underlimit);
        self.levels_stale = true;
        at
    }

    /// Takes a node's branches out of the calendars above, and out of the lists of lenders.
    fn unlink_node(&mut self, node: u32) {
        self.disable_node(node);
        for branch in self.records.nodes[node as usize].branches {
            if branch == NIL {
                continue;
            }
            let b = self.records.branches[branch as usize];
            if b.flags & LINKED != 0 {
                self.calendars[b.home as usize].unlink(&mut self.records, branch | BRANCH);
            }
        }
        // The lists of lenders are emptied, and filled again when levels are counted.
        self.lenders.clear(&mut self.records);
        self.levels_stale = true;
    }

    fn change_node(&mut self, node: u32, parent: u32, words: Words) {
        let old = self.records.nodes[node as usize];
        let to = if parent == self.slot_of(old.parent) { old.parent } else { self.node_below(parent) };
        self.unlink_node(node);
        self.move_given(old.parent, old.words.rate, to, words.rate);
        if old.filed {
            self.wheel.unfile(&mut self.records, node | NODE);
        }
        let clock = moved(self.own_clock(node), self.now, old.words.rate, words.rate);
        let n = &mut self.records.nodes[node as usize];
        (n.parent, n.words, n.nspb, n.rem, n.filed) = (to, words, nspb(words.rate), 0, false);
        self.set_node_cap(node, clock);
        // Its branches move to the calendars of the new parent, and start at their present.
        for branch in old.branches {
            if branch != NIL {
                let band = self.records.branches[branch as usize].band;
                let up = self.branch(to, band);
                let zero = words.rate == 0;
                let home = calendar(up, zero);
                let present = self.calendars[home as usize].present(&mut self.records);
                let same = to == old.parent && zero == (old.words.rate == 0);
                let b = &mut self.records.branches[branch as usize];
                (b.up, b.home, b.nspb, b.rem) = (up, home, weight(words.rate), 0);
                b.flags = b.flags & !ZERO | if zero { ZERO } else { 0 };
                b.start = if same { b.start.max(present) } else { present };
            }
        }
        self.update_implicit_leaf(node);
        self.enable_node(node);
        if to != old.parent {
            self.fold(old.parent);
        }
    }

    /// A child with the rate `before` leaves the node `from`, and comes to `to` with the rate
    /// `rate`.
    fn move_given(&mut self, from: u32, before: u64, to: u32, rate: u64) {
        if from != to {
            self.records.nodes[from as usize].children -= 1;
            self.records.nodes[to as usize].children += 1;
            self.change_given(from, before, 0);
            self.change_given(to, 0, rate);
        } else if before != rate {
            self.change_given(to, before, rate);
        }
    }

    /// A child of a node changes its rate from `before` to `rate` (0: there is no such child). The
    /// node's implicit leaf has what the children leave.
    fn change_given(&mut self, node: u32, before: u64, rate: u64) {
        let n = &mut self.records.nodes[node as usize];
        n.given = n.given + u128::from(rate) - u128::from(before);
        self.update_implicit_leaf(node);
    }

    fn update_implicit_leaf(&mut self, node: u32) {
        let n = &self.records.nodes[node as usize];
        let (slot, words) = (n.slot, n.words);
        let rate = u128::from(words.rate).saturating_sub(n.given) as u64;
        let leaf = self.records.leaves[slot as usize];
        // docs/reference/cbq.md rule 16: it has the class's priority and `borrow`. If its children
        // leave nothing of the rate, it borrows in any case, as a class of rate 0 gets nothing else
        // (rule 6); the class's own limit still holds.
        let words = Words { rate, borrow: words.borrow || rate == 0, ceiling: None, ..words };
        if leaf.branch != NIL && self.leaf_words(slot) == words && leaf.nspb == weight(rate) {
            return;
        }
        self.unfile(slot);
        self.detach_leaf(slot);
        self.move_guarantee(slot, rate);
        self.attach_leaf(slot, node, words);
    }

    /// Moves a leaf's guarantee clock to what it would be at another rate (docs/reference/cbq.md
    /// rule 17): what it is owed is kept in time, what it took in advance in bytes. From rate 0 it
    /// is owed nothing.
    fn move_guarantee(&mut self, slot: u32, rate: u64) {
        let now = self.now;
        let leaf = self.records.leaves[slot as usize];
        let due = self.records.leaf_due(&leaf);
        let moved = if leaf.has(ZERO) && rate > 0 {
            due.max(now.saturating_sub(span(nspb(rate), leaf.burst)))
        } else {
            moved(due, now, leaf.rate, rate)
        };
        self.records.leaves[slot as usize].eligible =
            moved.saturating_sub(self.records.slip[usize::from(leaf.priority) % 8]);
    }

    /// The branch of a node in a band, made with all those above it when it is missing.
    fn branch(&mut self, node: u32, band: u8) -> u32 {
        let n = self.records.nodes[node as usize];
        if n.branches[band as usize] != NIL {
            return n.branches[band as usize];
        }
        let up = if n.parent == NIL { NIL } else { self.branch(n.parent, band) };
        let zero = n.words.rate == 0;
        let (mut start, mut home) = (0, NIL);
        if up != NIL {
            home = calendar(up, zero);
            start = self.calendars[home as usize].present(&mut self.records);
        }
        let branch = Branch {
            start,
            nspb: weight(n.words.rate),
            rem: 0,
            calendar_next: NIL,
            up,
            home,
            node,
            avail: 0,
            cap: n.cap,
            lender_next: NIL,
            filed: 0,
            flags: if zero { ZERO } else { 0 },
            band,
            open: 0,
        };
        let at = match self.free.branches.pop() {
            Some(at) => {
                self.records.branches[at as usize] = branch;
                at
            }
            None => {
                self.records.branches.push(branch);
                self.calendars.extend([Calendar::new(), Calendar::new()]);
                (self.records.branches.len() - 1) as u32
            }
        };
        self.records.nodes[node as usize].branches[band as usize] = at;
        at
    }

    /// Counts levels: 1 above leaves only, else one more than the highest below (Floyd and Jacobson
    /// 1995).
    pub(super) fn count_levels(&mut self) {
        self.levels_stale = false;
        self.records.nodes.iter_mut().for_each(|n| n.level = 1);
        for mut at in 0..self.records.nodes.len() {
            let mut level = 1;
            while self.records.nodes[at].parent != NIL {
                at = self.records.nodes[at].parent as usize;
                level += 1;
                if self.records.nodes[at].level >= level {
                    break;
                }
                self.records.nodes[at].level = level;
            }
        }
        self.lenders.clear(&mut self.records);
        if self.excess == Excess::Priority {
            for node in 1..self.records.nodes.len() as u32 {
                self.offer(node);
            }
        }
    }

    /// Sets a calendar's virtual time back to 0, and its children's tags with it. Linear in all
    /// classes, but it happens at most once in 10^5 packets of 1500 bytes.
    #[cold]
    pub(super) fn rebase(&mut self, home: u32) {
        let by = self.calendars[home as usize].present(&mut self.records);
        let all = self.calendars[home as usize].drain(&mut self.records);
        let Records { leaves, branches, .. } = &mut self.records;
        for leaf in leaves.iter_mut().filter(|leaf| leaf.has(EXISTS) && leaf.home() == home) {
            leaf.start = leaf.start.saturating_sub(by);
        }
        for branch in branches.iter_mut().filter(|branch| branch.home == home) {
            branch.start = branch.start.saturating_sub(by);
        }
        self.calendars[home as usize].rebase(&mut self.records, by, all);
    }

    // ------------------------------------------------------------------ sizes

    /// Makes room for a slot. The table grows by a 32nd and not by doubling: with 100,000 classes
    /// doubling could waste as much memory as the leaves take.
    fn reserve_leaf(&mut self, slot: u32) {
        let leaves = &mut self.records.leaves;
        if leaves.len() <= slot as usize {
            if leaves.capacity() <= slot as usize {
                leaves.reserve_exact(slot as usize + 1 - leaves.len() + leaves.len() / 32 + 15);
            }
            leaves.resize(slot as usize + 1, Leaf::NONE);
        }
    }

    /// Sizes the timing wheel: at least a slot for each leaf, and a horizon of four times what an
    /// average leaf waits between two packets.
    fn size_wheel(&mut self) {
        let slots = u64::from(self.leaf_count.max(1)).next_power_of_two().ilog2().clamp(10, 18);
        let packet = span(nspb(self.link_rate.max(1)), 1500).max(1);
        let horizon = packet.saturating_mul(u64::from(self.leaf_count.max(1))).saturating_mul(4);
        let shift = (horizon >> slots).max(1).next_power_of_two().ilog2().min(40);
        if self.wheel.shape() == (slots, shift) {
            return;
        }
        let all = self.wheel.drain(&self.records);
        self.wheel = TimingWheel::new(slots, shift, self.now);
        for id in all {
            self.wheel.file(&mut self.records, id, self.now);
        }
    }

    pub(super) fn records_memory(&self) -> usize {
        let records = &self.records;
        records.leaves.capacity() * size_of::<Leaf>()
            + records.branches.capacity() * size_of::<Branch>()
            + records.nodes.capacity() * size_of::<Node>()
            + records.caps.capacity() * size_of::<Cap>()
            + (self.free.branches.capacity() + self.free.nodes.capacity() + self.free.caps.capacity()) * 4
    }
}
