//! The tree: classes come, change, move and go while packets wait.

use super::class::{BACKLOGGED, Class, LEVELS, NIL};
use super::words::{Defaults, Words};
use super::{EPOCH, Htb, Node, Row};
use crate::schedule::{Context, ROOT_SLOT, Slot};
use crate::spec::SpecError;
use crate::units::Rate;

impl Htb {
    pub(super) fn new(context: &Context, r2q: u64) -> Htb {
        let mut htb = Htb {
            r2q,
            defaults: Defaults::of(context),
            link_rate: context.link_rate,
            now: EPOCH,
            classes: Vec::new(),
            words: Vec::new(),
            nodes: Vec::new(),
            free_nodes: Vec::new(),
            rows: std::array::from_fn(|_| Row::default()),
            levels: 0,
            timers: Default::default(),
            waiting: 0,
            lone: NIL,
            chosen: None,
            direct_packets: 0,
        };
        let words = htb.root_words();
        htb.reserve(ROOT_SLOT);
        htb.words[ROOT_SLOT as usize] = words;
        htb.classes[ROOT_SLOT as usize] = Class::new(EPOCH, &words, 0, NIL, 0);
        htb.make_node(ROOT_SLOT);
        htb
    }

    /// The words of the root. The link's rate is its rate and its ceil, also if a class holds this
    /// scheduler: the scheduler that serves that class holds it to its share.
    fn root_words(&self) -> Words {
        let (rate, burst) = (self.link_rate.as_bit_s(), self.defaults.link_burst(self.link_rate));
        Words { rate, ceil: rate, burst, cburst: burst, ..Words::default() }
    }

    fn reserve(&mut self, slot: Slot) {
        if self.classes.len() <= slot as usize {
            self.classes.resize(slot as usize + 1, Class::NONE);
            self.words.resize(slot as usize + 1, Words::default());
        }
        self.timers.reserve(slot);
    }

    /// Whether a class with so many levels below it may stand below another.
    pub(super) fn check_depth(&self, parent: Slot, height: usize) -> Result<(), SpecError> {
        let depth = usize::from(self.classes[parent as usize].depth) + 1 + height;
        if depth < LEVELS {
            return Ok(());
        }
        Err(SpecError::new(format!(
            "htb knows {LEVELS} levels, the link's and the leaves' included; this would be one more"
        ))
        .help("take a level out, or let a class hold a scheduler of its own for what is below it"))
    }

    /// Levels below a class.
    pub(super) fn height(&self, slot: Slot) -> usize {
        let class = &self.classes[slot as usize];
        if class.node == NIL {
            return 0;
        }
        self.children(class.node).map(|child| 1 + self.height(child)).max().unwrap_or(0)
    }

    fn children(&self, node: u32) -> impl Iterator<Item = Slot> {
        self.nodes[node as usize].members.iter().skip(1).copied().filter(|child| *child != NIL)
    }

    pub(super) fn add_class(&mut self, slot: Slot, parent: Slot, words: Words) {
        self.reserve(slot);
        let depth = self.classes[parent as usize].depth + 1;
        self.words[slot as usize] = words;
        self.classes[slot as usize] = Class::new(self.now, &words, words.quantum(self.r2q), parent, depth);
        self.join(slot, parent);
    }

    pub(super) fn remove_class(&mut self, slot: Slot) {
        self.deactivate(slot);
        self.timers.remove(slot);
        self.leave(slot);
        self.classes[slot as usize] = Class::NONE;
    }

    /// Gives a class other words, and perhaps another parent. A change that changes nothing does
    /// nothing: no departure becomes another. A leaf that keeps its parent is put in its place
    /// anew. Any other change can matter to all classes below, so all classes that have packets are
    /// put in their places anew, in time linear in the number of classes.
    pub(super) fn change_class(&mut self, slot: Slot, parent: Slot, words: Words) {
        let class = self.classes[slot as usize];
        if class.parent == parent && self.words[slot as usize] == words {
            return;
        }
        let local = class.node == NIL && class.parent == parent;
        let waiting = if local { vec![slot] } else { (0..self.classes.len() as Slot).collect() };
        self.anew(waiting, |htb| {
            htb.words[slot as usize] = words;
            let (now, quantum) = (htb.now, words.quantum(htb.r2q));
            htb.classes[slot as usize].set(now, &words, quantum);
            if class.parent != parent {
                htb.leave(slot);
                htb.classes[slot as usize].parent = parent;
                htb.join(slot, parent);
                htb.sink(slot, htb.classes[parent as usize].depth + 1);
            }
        });
    }

    pub(super) fn set_link_rate(&mut self, rate: Rate) {
        if rate == self.link_rate {
            return;
        }
        self.link_rate = rate;
        let all = (0..self.classes.len() as Slot).collect();
        self.anew(all, |htb| {
            let words = htb.root_words();
            htb.words[ROOT_SLOT as usize] = words;
            let now = htb.now;
            htb.classes[ROOT_SLOT as usize].set(now, &words, 0);
        });
    }

    pub(super) fn set_r2q(&mut self, r2q: u64) {
        self.r2q = r2q;
        for (class, words) in self.classes.iter_mut().zip(&self.words).skip(1) {
            class.quantum = words.quantum(r2q);
        }
    }

    /// Does something while none of these classes wants to send.
    fn anew(&mut self, classes: Vec<Slot>, change: impl FnOnce(&mut Htb)) {
        let waiting: Vec<Slot> =
            classes.into_iter().filter(|slot| self.classes[*slot as usize].has(BACKLOGGED)).collect();
        for slot in &waiting {
            self.deactivate(*slot);
            self.timers.remove(*slot);
        }
        if self.waiting == 0 {
            // No class has packets, so no timer is needed.
            self.timers.clear();
        }
        change(self);
        for slot in &waiting {
            self.activate(*slot);
        }
    }

    /// Gives a class its place among the children of another. A leaf that gets its first child
    /// becomes an inner class; its own packets wait in it from now on.
    fn join(&mut self, slot: Slot, parent: Slot) {
        if self.classes[parent as usize].node == NIL {
            let backlogged = self.classes[parent as usize].has(BACKLOGGED);
            self.deactivate(parent);
            self.timers.remove(parent);
            self.make_node(parent);
            if backlogged {
                self.activate(parent);
            }
        }
        let node = &mut self.nodes[self.classes[parent as usize].node as usize];
        node.children += 1;
        let at = match node.free.pop() {
            Some(at) => {
                node.members[at as usize] = slot;
                at
            }
            None => {
                node.members.push(slot);
                (node.members.len() - 1) as u32
            }
        };
        self.classes[slot as usize].at = at;
    }

    /// Takes a class that does not want to send from among its parent's children. One that has lost
    /// its last child is a leaf again.
    fn leave(&mut self, slot: Slot) {
        let Class { parent, at, .. } = self.classes[slot as usize];
        let index = self.classes[parent as usize].node;
        let node = &mut self.nodes[index as usize];
        node.members[at as usize] = NIL;
        node.free.push(at);
        node.children -= 1;
        if node.children > 0 || parent == ROOT_SLOT {
            return;
        }
        let backlogged = self.classes[parent as usize].has(BACKLOGGED);
        self.deactivate(parent);
        self.timers.remove(parent);
        self.nodes[index as usize] = Node::default();
        self.free_nodes.push(index);
        self.classes[parent as usize].node = NIL;
        self.classes[parent as usize].set_level();
        if backlogged {
            self.activate(parent);
        }
    }

    fn make_node(&mut self, slot: Slot) {
        let node = Node { members: vec![slot], ..Node::default() };
        let at = match self.free_nodes.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.classes[slot as usize].node = at;
        self.classes[slot as usize].set_level();
    }

    /// Sets the depth of a class and of all below it.
    fn sink(&mut self, slot: Slot, depth: u8) {
        self.classes[slot as usize].depth = depth;
        self.classes[slot as usize].set_level();
        let node = self.classes[slot as usize].node;
        if node != NIL {
            for child in self.children(node).collect::<Vec<_>>() {
                self.sink(child, depth + 1);
            }
        }
    }

    pub(super) fn tree_memory(&self) -> usize {
        let of = |node: &Node| {
            (node.members.capacity() + node.free.capacity()) * 4
                + node.feeds.iter().flatten().map(|feed| size_of_val(&**feed) + feed.memory()).sum::<usize>()
        };
        self.classes.capacity() * size_of::<Class>()
            + self.words.capacity() * size_of::<Words>()
            + self.nodes.capacity() * size_of::<Node>()
            + self.nodes.iter().map(of).sum::<usize>()
    }
}
