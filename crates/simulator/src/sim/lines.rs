//! The first of many events of which each line of packets has one at most: a loser tree (Knuth, The
//! Art of Computer Programming 3, 5.4.1).
//!
//! Most events of a case are arrivals of the first packet in a line, and most of them are followed
//! by that of the next packet in the same line. In a loser tree that takes one comparison for each
//! level, and the other events stay in a heap that is small without them.

use altq_engine::units::Nanos;

/// The event of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// When.
    pub time: Nanos,
    /// Its order among the events of that time.
    pub order: u64,
    /// The line, and its packet in the upper half: a node that moves is three words.
    of: u64,
}

impl First {
    /// The event of a line.
    #[inline(always)]
    pub fn new(line: u32, packet: u32, time: Nanos, order: u64) -> First {
        First { time, order, of: u64::from(packet) << 32 | u64::from(line) }
    }

    /// The line.
    #[inline(always)]
    pub fn line(&self) -> u32 {
        self.of as u32
    }

    /// The packet that arrives.
    #[inline(always)]
    pub fn packet(&self) -> u32 {
        (self.of >> 32) as u32
    }

    /// The place of a line without an event: behind all events.
    fn none(line: u32) -> First {
        First::new(line, 0, Nanos::MAX, u64::MAX)
    }

    /// By this value events are in order.
    #[inline]
    pub fn key(&self) -> u128 {
        u128::from(self.time) << 64 | u128::from(self.order)
    }

    /// True if the line has an event.
    #[inline]
    pub fn is_some(&self) -> bool {
        self.order < u64::MAX
    }
}

/// The next events of lines.
#[derive(Debug)]
pub struct Lines {
    /// Node 0 of the tree: the line whose event is the first.
    first: First,
    /// As many nodes as there is room for lines, a power of two: n. Node k has, of the first ones
    /// of both halves below it, the one that comes later. These halves are the nodes 2k and 2k + 1;
    /// from n on they are the lines themselves. So every line is in exactly one node. Node 0 is in
    /// `first`, and its place here is not used.
    nodes: Vec<First>,
    /// The number of lines.
    lines: u32,
}

impl Default for Lines {
    /// Room for one line.
    fn default() -> Lines {
        Lines { first: First::none(0), nodes: vec![First::none(0)], lines: 0 }
    }
}

impl Lines {
    /// Adds a line without an event, and returns its number.
    pub fn add(&mut self) -> u32 {
        let line = self.lines;
        self.lines += 1;
        if self.lines as usize > self.nodes.len() {
            self.grow();
        }
        line
    }

    /// Makes room for twice as many lines.
    #[cold]
    fn grow(&mut self) {
        let n = 2 * self.nodes.len();
        // Without events the leftmost line of every half is its first one.
        let node = |at: usize| {
            let mut right = if at == 0 { n } else { 2 * at + 1 };
            while right < n {
                right *= 2;
            }
            First::none((right - n) as u32)
        };
        let old = std::mem::replace(&mut self.nodes, (0..n).map(node).collect());
        let first = std::mem::replace(&mut self.first, node(0));
        let others = old.into_iter().skip(1);
        others.chain([first]).filter(First::is_some).for_each(|first| self.set(first));
    }

    /// The first event: [`First::key`] is the greatest if no line has one.
    #[inline(always)]
    pub fn first(&self) -> &First {
        &self.first
    }

    /// Takes the first event, which there must be, and gives its line no other.
    #[inline]
    pub fn take_first(&mut self) {
        self.replay(First::none(self.first.line()));
    }

    /// Takes the first event, which there must be, and gives its line the next one.
    #[inline(always)]
    pub fn replace_first(&mut self, packet: u32, time: Nanos, order: u64) {
        self.replay(First::new(self.first.line(), packet, time, order));
    }

    /// Gives the line of the first event another one, which may come later than those of other
    /// lines.
    #[inline(always)]
    fn replay(&mut self, new: First) {
        let First { mut time, mut order, mut of } = new;
        let mut at = (self.nodes.len() + new.line() as usize) >> 1;
        while at > 0
            && let Some(node) = self.nodes.get_mut(at)
        {
            if node.time < time || node.time == time && node.order < order {
                let other = (node.time, node.order, node.of);
                (node.time, node.order, node.of) = (time, order, of);
                (time, order, of) = other;
            }
            at >>= 1;
        }
        self.first = First { time, order, of };
    }

    /// Sets the event of a line that has none.
    pub fn set(&mut self, new: First) {
        let n = self.nodes.len();
        // Where the line is: in one of the nodes above it. `height` is the number of levels.
        let (mut at, mut height) = ((n + new.line() as usize) >> 1, 1);
        while at > 0 && self.nodes[at].line() != new.line() {
            (at, height) = (at >> 1, height + 1);
        }
        while at > 0 {
            // The line that is the first one below this node is in a node above it.
            let (mut above, mut levels) = (at >> 1, 1);
            while above > 0 && (n + self.nodes[above].line() as usize) >> height != at {
                (above, levels) = (above >> 1, levels + 1);
            }
            let first = *self.node(above);
            if first.key() < new.key() {
                break;
            }
            // The new event is before it, so they change places.
            self.nodes[at] = first;
            (at, height) = (above, height + levels);
        }
        *self.node(at) = new;
    }

    fn node(&mut self, at: usize) -> &mut First {
        if at == 0 { &mut self.first } else { &mut self.nodes[at] }
    }
}

#[cfg(test)]
mod tests {
    use altq_cases::random::Random;

    use super::*;

    #[test]
    fn the_first_is_that_of_a_search_through_all_lines() {
        let mut random = Random::new(7, 0);
        for _ in 0..50 {
            // By line: the event that it has.
            let (mut lines, mut model) = (Lines::default(), Vec::<Option<(Nanos, u64)>>::new());
            assert!(!lines.first().is_some());
            let mut packets: Vec<u32> = Vec::new();
            let (mut now, most) = (0, 1 + random.below(40));
            for number in 0..2_000 {
                let time = now + Nanos::from(random.below(20));
                match random.below(5) {
                    0 if (model.len() as u32) < most => {
                        assert_eq!(lines.add() as usize, model.len());
                        model.push(None);
                        packets.push(0);
                    }
                    0..2 => {
                        let line = random.below(model.len() as u32) as usize;
                        if model.get(line) == Some(&None) {
                            model[line] = Some((time, number));
                            packets[line] = number as u32;
                            lines.set(First::new(line as u32, number as u32, time, number));
                        }
                    }
                    _ => {
                        let expected = model.iter().enumerate().filter_map(|(at, own)| own.map(|own| (own, at))).min();
                        let first = Some(*lines.first()).filter(First::is_some);
                        assert_eq!(first.map(|first| ((first.time, first.order), first.line() as usize)), expected);
                        let Some(((time, _), line)) = expected else { continue };
                        assert_eq!(first.map(|first| first.packet()), Some(packets[line]));
                        (now, model[line]) = (time, None);
                        if random.below(3) > 0 {
                            let next = now + Nanos::from(random.below(20));
                            model[line] = Some((next, number));
                            packets[line] = number as u32;
                            lines.replace_first(number as u32, next, number);
                        } else {
                            lines.take_first();
                        }
                    }
                }
            }
        }
    }
}
