//! A network for tests: two hosts and a link with a rate, a delay and a limited queue each way.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use altq_engine::units::{Nanos, Rate};

use crate::tcp::{Config, Segment, Socket};

pub const MS: Nanos = 1_000_000;
pub const S: Nanos = 1_000_000_000;

/// A packet: its flow, whether it goes to the listening end, its segment, and its ECN bits.
type Packet = (usize, bool, Segment, u8);

enum Event {
    Done(usize),
    Arrive(Packet),
    Wake(usize, bool),
    Start(usize),
}

/// Decides whether a packet is lost.
pub type Lose = Box<dyn FnMut(Nanos, &Segment) -> bool>;

/// Decides whether an ECN-capable packet is marked, by its segment and the number of packets in the
/// queue that it finds.
pub type Mark = Box<dyn FnMut(&Segment, usize) -> bool>;

/// Says what becomes of a packet behind the link: it arrives once for each of these extra delays.
pub type Fate = Box<dyn FnMut(Nanos, &Segment) -> Vec<Nanos>>;

/// One direction.
pub struct Way {
    pub rate: Rate,
    pub delay: Nanos,
    pub limit: usize,
    /// Decides which packets are marked.
    pub mark: Option<Mark>,
    queue: VecDeque<Packet>,
    busy: bool,
    pub sent: u64,
    pub dropped: u64,
    /// Decides which packets are dropped before they are queued.
    pub lose: Option<Lose>,
    /// Decides which packets are lost, late or doubled behind the queue.
    pub fate: Option<Fate>,
}

impl Way {
    /// Packets that wait or are being sent.
    pub fn len(&self) -> usize {
        self.queue.len()
    }
}

/// The world of a test.
pub struct Net {
    pub now: Nanos,
    pub ways: [Way; 2],
    pub pairs: Vec<(Socket, Socket)>,
    wakes: Vec<[Nanos; 2]>,
    events: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    store: Vec<Option<Event>>,
    free: Vec<usize>,
    order: u64,
    /// The segments that were sent: time, whether to the listening end, segment.
    pub log: Option<Vec<(Nanos, bool, Segment)>>,
}

impl Net {
    pub fn new(rate: Rate, delay: Nanos, limit: usize) -> Net {
        let way = || Way {
            rate,
            delay,
            limit,
            mark: None,
            queue: VecDeque::new(),
            busy: false,
            sent: 0,
            dropped: 0,
            lose: None,
            fate: None,
        };
        Net {
            now: 0,
            ways: [way(), way()],
            pairs: Vec::new(),
            wakes: Vec::new(),
            events: BinaryHeap::new(),
            store: Vec::new(),
            free: Vec::new(),
            order: 0,
            log: None,
        }
    }

    /// A connection that opens at `start`; what its ends write is up to the test.
    pub fn pair(&mut self, config: &Config, start: Nanos) -> usize {
        let config = Arc::new(config.clone());
        self.pair_of(&config.clone(), &config, start)
    }

    pub fn pair_of(&mut self, client: &Arc<Config>, server: &Arc<Config>, start: Nanos) -> usize {
        self.pairs.push((Socket::connect(client.clone()), Socket::listen(server.clone())));
        self.wakes.push([Nanos::MAX; 2]);
        let flow = self.pairs.len() - 1;
        self.at(start, Event::Start(flow));
        flow
    }

    fn at(&mut self, time: Nanos, event: Event) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.store[slot] = Some(event);
                slot
            }
            None => {
                self.store.push(Some(event));
                self.store.len() - 1
            }
        };
        self.order += 1;
        self.events.push(Reverse((time, self.order, slot)));
    }

    /// Takes the segments that an end sends, and sets its timer.
    pub fn poll(&mut self, flow: usize, server: bool) {
        loop {
            let now = self.now;
            let socket = if server { &mut self.pairs[flow].1 } else { &mut self.pairs[flow].0 };
            let Some((segment, ecn)) = socket.poll_transmit(now) else { break };
            self.offer((flow, !server, segment, ecn));
        }
        let socket = if server { &self.pairs[flow].1 } else { &self.pairs[flow].0 };
        if let Some(at) = socket.poll_timeout() {
            let at = at.max(self.now);
            if at < self.wakes[flow][usize::from(server)] {
                self.wakes[flow][usize::from(server)] = at;
                self.at(at, Event::Wake(flow, server));
            }
        }
    }

    fn offer(&mut self, mut packet: Packet) {
        let at = usize::from(!packet.1);
        if let Some(log) = &mut self.log {
            log.push((self.now, packet.1, packet.2));
        }
        let now = self.now;
        let way = &mut self.ways[at];
        way.sent += 1;
        if way.lose.as_mut().is_some_and(|lose| lose(now, &packet.2)) || way.queue.len() >= way.limit {
            way.dropped += 1;
            return;
        }
        let found = way.queue.len();
        if packet.3 != 0 && way.mark.as_mut().is_some_and(|mark| mark(&packet.2, found)) {
            packet.3 = 3;
        }
        way.queue.push_back(packet);
        if !way.busy {
            self.send(at);
        }
    }

    fn send(&mut self, at: usize) {
        let way = &mut self.ways[at];
        way.busy = false;
        if let Some(packet) = way.queue.front() {
            way.busy = true;
            let done = self.now + way.rate.time_for(u64::from(packet.2.bytes));
            self.at(done, Event::Done(at));
        }
    }

    /// Runs the events before `end`; those at `end` have not happened.
    pub fn run(&mut self, end: Nanos) {
        while let Some(Reverse((time, _, slot))) = self.events.peek().copied() {
            if time >= end {
                break;
            }
            self.events.pop();
            self.now = time;
            let event = self.store[slot].take().unwrap();
            self.free.push(slot);
            match event {
                Event::Start(flow) => self.poll(flow, false),
                Event::Done(at) => {
                    let packet = self.ways[at].queue.pop_front().unwrap();
                    let arrival = time + self.ways[at].delay;
                    let fate = self.ways[at].fate.as_mut().map_or(vec![0], |fate| fate(time, &packet.2));
                    for late in fate {
                        self.at(arrival + late, Event::Arrive(packet));
                    }
                    self.send(at);
                }
                Event::Arrive((flow, server, segment, ecn)) => {
                    let socket = if server { &mut self.pairs[flow].1 } else { &mut self.pairs[flow].0 };
                    socket.received(time, &segment, ecn == 3);
                    self.poll(flow, server);
                }
                Event::Wake(flow, server) => {
                    if self.wakes[flow][usize::from(server)] != time {
                        continue;
                    }
                    self.wakes[flow][usize::from(server)] = Nanos::MAX;
                    let socket = if server { &mut self.pairs[flow].1 } else { &mut self.pairs[flow].0 };
                    socket.timeout(time);
                    self.poll(flow, server);
                }
            }
        }
        self.now = end;
    }
}

/// The segments that begin with these numbers are lost, one sending for each mention.
pub fn lose_first(mut left: Vec<u64>) -> Option<Lose> {
    Some(Box::new(move |_, segment| {
        let at = left.iter().position(|seq| *seq == segment.seq && segment.len > 0);
        at.map(|at| left.swap_remove(at)).is_some()
    }))
}
