//! The queue of events, in order of time. Events at one instant are ordered by rank, and then by
//! the order in which they were made.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use altq_engine::units::Nanos;

use super::lines::{First, Lines};

/// The order of events at one instant (docs/reference/published-models.md 1: transmission complete,
/// timers, arrivals).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rank {
    /// A transmission is complete.
    Complete = 0,
    /// A timer of a scheduler or of TCP expires.
    Timer = 1,
    /// The case changes something.
    Change = 2,
    /// A packet arrives, or a source sends.
    Arrival = 3,
}

/// What happens. The number is that of the port, flow or packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The transmission of this port is complete.
    Complete(u32),
    /// The timer of this port's scheduler expires.
    Timer(u32),
    /// This half-duplex medium decides who sends, or is idle again.
    Medium(u32),
    /// The case's change with this index.
    Change(u32),
    /// This flow begins a span in which it sends.
    Start(u32),
    /// This flow ends such a span.
    Stop(u32),
    /// This flow opens another of its connections.
    Open(u32),
    /// An end of a stream is woken. The number is twice the stream's index, plus 1 for the far end.
    Wake(u32),
    /// This packet arrives at the far end of a link that does not keep the order of packets.
    ArriveUnordered(u32),
    /// The host at which this packet has arrived handles it.
    Handle(u32),
    /// The FIFO behind the link that this packet has passed is full.
    Refused(u32),
    /// The controller of this adaptive link is asked.
    Adapt(u32),
}

/// The rank in the upper two bits, the number below: so comparing two words is enough.
#[inline]
fn order(rank: Rank, number: u64) -> u64 {
    (rank as u64) << 62 | number
}

/// An event in the queue, in 24 bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    time: Nanos,
    order: u64,
    event: Event,
}

impl Entry {
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.time) << 64 | u128::from(self.order)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    // The heap asks these two, which take fewer instructions than the order of two entries.
    #[inline]
    fn le(&self, other: &Entry) -> bool {
        other.key() <= self.key()
    }

    #[inline]
    fn ge(&self, other: &Entry) -> bool {
        other.key() >= self.key()
    }
}

impl Ord for Entry {
    // The heap has its greatest element on top, so the order is reversed.
    #[inline]
    fn cmp(&self, other: &Entry) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// The events to come.
#[derive(Debug, Default)]
pub struct Events {
    /// The arrivals of the first packets in the lines of ports.
    lines: Lines,
    /// The port of each line.
    ports: Vec<u32>,
    /// All other events.
    heap: BinaryHeap<Entry>,
    /// True if the heap's first entry was taken already. It stays there until the next event is
    /// added, which takes its place: that moves fewer entries than to remove one and add another,
    /// and most events are followed by another one.
    first_is_taken: bool,
    made: u64,
    taken: u64,
}

impl Events {
    /// Adds an event.
    #[inline]
    pub fn push(&mut self, time: Nanos, rank: Rank, event: Event) {
        let number = self.number();
        let entry = Entry { time, order: order(rank, number), event };
        if std::mem::take(&mut self.first_is_taken)
            && let Some(mut first) = self.heap.peek_mut()
        {
            *first = entry;
        } else {
            self.heap.push(entry);
        }
    }

    /// Takes a number in the order of events, for an arrival that is added later.
    #[inline]
    pub fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// Adds the line of packets of a port, and returns its number.
    pub fn add_line(&mut self, port: u32) -> u32 {
        self.ports.push(port);
        self.lines.add()
    }

    /// Adds the event for the arrival of the first packet in a line, with a number that was taken
    /// before. The line must have no event.
    #[inline]
    pub fn push_first(&mut self, line: u32, packet: u32, time: Nanos, number: u64) {
        self.lines.set(First::new(line, packet, time, order(Rank::Arrival, number)));
    }

    /// The time of the next event if that is the arrival of the first packet in a line. It must
    /// then be [taken](Events::take_arrival) before anything else is added.
    #[inline(always)]
    pub fn next_arrival(&mut self) -> Option<Nanos> {
        if self.first_is_taken {
            self.first_is_taken = false;
            self.heap.pop();
        }
        let line = self.lines.first();
        let next = match self.heap.peek() {
            Some(other) => line.key() < other.key(),
            None => line.is_some(),
        };
        next.then_some(line.time)
    }

    /// The time of the next event if there is one, and it is no arrival of a first packet.
    #[inline(always)]
    pub fn next_other(&self) -> Option<Nanos> {
        self.heap.peek().map(|entry| entry.time)
    }

    /// The port at whose far end a packet [arrives next](Events::next_arrival), and the packet.
    #[inline(always)]
    pub fn arrival(&self) -> (u32, u32) {
        let first = self.lines.first();
        (self.ports[first.line() as usize], first.packet())
    }

    /// Takes the arrival that is next. `following`: time, number and packet of the arrival behind
    /// it in the line, if there is one.
    #[inline(always)]
    pub fn take_arrival(&mut self, following: Option<(Nanos, u64, u32)>) {
        self.taken += 1;
        match following {
            Some((time, number, packet)) => self.lines.replace_first(packet, time, order(Rank::Arrival, number)),
            None => self.lines.take_first(),
        }
    }

    /// Takes the next event that is no arrival of a first packet.
    #[inline(always)]
    pub fn take(&mut self) -> Option<Event> {
        let event = self.heap.peek()?.event;
        self.taken += 1;
        self.first_is_taken = true;
        Some(event)
    }

    /// Number of events that were taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use altq_cases::random::Random;

    use super::*;

    /// What was taken: the port and the packet of an arrival, or another event.
    type Taken = Result<(u32, u32), Event>;

    /// Takes the next event. No packet follows in its line.
    fn pop(events: &mut Events) -> Option<(Nanos, Taken)> {
        if let Some(time) = events.next_arrival() {
            let arrival = events.arrival();
            events.take_arrival(None);
            return Some((time, Ok(arrival)));
        }
        let time = events.next_other()?;
        events.take().map(|event| (time, Err(event)))
    }

    #[test]
    fn events_come_in_order_however_they_are_added() {
        let mut random = Random::new(5, 0);
        let (mut events, mut waiting) = (Events::default(), Vec::new());
        let mut lines: Vec<Option<u32>> = vec![None; 5];
        for n in 0..3_000 {
            let time = Nanos::from(random.below(50));
            match random.below(9) {
                0..3 => {
                    events.push(time, Rank::Arrival, Event::Handle(n));
                    waiting.push((time, n, Err(Event::Handle(n))));
                }
                3..5 => {
                    // A line of packets has one event at most.
                    let port = random.below(5);
                    if !waiting.iter().any(|(.., event)| matches!(event, Ok((own, _)) if *own == port)) {
                        let line = *lines[port as usize].get_or_insert_with(|| events.add_line(port));
                        let number = events.number();
                        events.push_first(line, n, time, number);
                        waiting.push((time, n, Ok((port, n))));
                    }
                }
                _ => {
                    waiting.sort_unstable_by_key(|(time, n, _)| (*time, *n));
                    let first = (!waiting.is_empty()).then(|| waiting.remove(0));
                    assert_eq!(pop(&mut events), first.map(|(time, _, event)| (time, event)));
                }
            }
        }
    }

    #[test]
    fn time_then_rank_then_number() {
        let mut events = Events::default();
        for (time, rank, n) in [
            (7, Rank::Arrival, 0),
            (7, Rank::Complete, 1),
            (5, Rank::Arrival, 2),
            (7, Rank::Timer, 3),
            (7, Rank::Complete, 4),
            (u64::MAX, Rank::Complete, 5),
            (7, Rank::Change, 6),
        ] {
            events.push(time, rank, Event::Wake(n));
        }
        let order: Vec<_> = std::iter::from_fn(|| pop(&mut events)).collect();
        let expected = [(5, 2), (7, 1), (7, 4), (7, 3), (7, 6), (7, 0), (u64::MAX, 5)];
        assert_eq!(order, expected.map(|(time, n)| (time, Err(Event::Wake(n)))));
        assert_eq!(events.taken(), 7);
        // A number taken early keeps its place.
        let (early, line) = (events.number(), events.add_line(7));
        events.push(3, Rank::Arrival, Event::Handle(1));
        events.push_first(line, 2, 3, early);
        assert_eq!(pop(&mut events), Some((3, Ok((7, 2)))));
        // One that is added after another was taken comes in its turn.
        events.push_first(line, 2, 4, early);
        let next = [pop(&mut events), pop(&mut events)];
        assert_eq!(next, [Some((3, Err(Event::Handle(1)))), Some((4, Ok((7, 2))))]);
        assert_eq!((pop(&mut events), events.taken()), (None, 10));
        assert_eq!(size_of::<Entry>(), 24);
    }
}
