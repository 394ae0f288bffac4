//! The loop of a link: reception, engine, timers and transmission, in one thread and with one
//! deadline.
//!
//! ```text
//! edge.receive ─► headers ─► classify ─► enqueue ─► dequeue ─► edge.send
//!                    │                      ▲           │
//!                    └─ cut super-packets   └─ deadline: the engine's next wake-up, and the wire's
//! ```
//!
//! Nothing here allocates per packet: frames lie in a [`Pool`], lists keep their memory from turn
//! to turn.

use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::mpsc::Receiver;

use altq_config::Link;
use altq_engine::classify::{CacheSettings, FlowHash};
use altq_engine::drive::{self, Event, Filled, Taken, Transmitter};
use altq_engine::headers::{self, FragmentCache, Key};
use altq_engine::packet::Packet;
use altq_engine::settings::Limit;
use altq_engine::spec::{ClassId, LinkSpec, Regulator, Timer};
use altq_engine::units::{Nanos, SECOND};
use altq_engine::{Change, Departure, Engine};

use crate::edge::{BATCH, Blocked, Edge, Want};
use crate::error::Error;
use crate::output::{DeviceOutput, Output};
use crate::pacer::Pacer;
use crate::pool::Pool;
use crate::remark::remark;
use crate::segment::{self, Part, Super};
use crate::sketch::Sketch;
use crate::stats::{ClassStat, Snapshot, Work};

/// A super-packet that takes longer than this at the link's rate is cut; and the burst that a link
/// sends after idleness takes no longer (1 ms of rate, as a token bucket that wakes by a timer
/// needs).
pub const LONGEST: Nanos = 1_000_000;

/// A number that no class has: packets for it are dropped with the reason `no_class`.
const NO_CLASS: ClassId = ClassId::MAX;

/// A number that nobody outside knows: the system's random bytes, of which the standard library
/// makes the keys of its hash tables.
fn secret() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Looks at the engine of a loop, between two packets.
pub type Look = Box<dyn FnOnce(&Engine) + Send>;

/// How a loop works.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// How much lost time a backlogged link may make good in a burst, where the loop keeps the rate
    /// itself.
    pub catch_up: Nanos,
    /// Bytes that the slots of packets may take. They are touched only when used.
    pub memory: usize,
    /// Time between snapshots; `None`: only one at the end.
    pub interval: Option<Nanos>,
}

impl Default for Tuning {
    fn default() -> Tuning {
        // A loop on a machine with fewer processors than work is kept waiting for 4 ms and more;
        // less would lose rate there.
        Tuning { catch_up: 8_000_000, memory: 512 << 20, interval: Some(1_000_000_000) }
    }
}

/// The loop of a link on an edge, and what it sends by.
pub struct Shaper<E, O = DeviceOutput> {
    name: String,
    edge: E,
    engine: Engine,
    pool: Pool,
    output: O,
    /// When timers fire.
    timer: Timer,
    /// Whether the output was full when the engine was asked last.
    filled: Filled,
    /// The time at which it is to be asked again if nothing happens before, and the output was not
    /// full.
    wakeup: Option<Nanos>,
    fragments: FragmentCache,
    /// Where some queue looks at flows.
    flows: Option<FlowHash>,
    /// The place of the interface by which packets come in the rules' list.
    interface: u16,
    /// Bytes that the link carries in [`LONGEST`].
    longest: u64,
    arrived: Vec<u32>,
    parts: Vec<Part>,
    /// By handle: DSCP and ECN as the packet brought them.
    octets: Vec<u8>,
    /// Handed over by the engine, not yet taken by the edge.
    leaving: Vec<u32>,
    /// When the last bit of each of them leaves, where the output knows that.
    ends: Vec<Nanos>,
    /// Why the edge did not take all of them.
    blocked: Option<Blocked>,
    /// The output had room and nothing might be sent when the loop looked last.
    idle: bool,
    /// The edge had no slot to receive into.
    starved: bool,
    sojourn: Vec<[Sketch; 2]>,
    work: Work,
    interval: Option<Nanos>,
    began: Nanos,
    /// The latest snapshot's time, its own and wire bytes sent by every class, and the next one's
    /// time.
    snapped: Nanos,
    sent_before: Vec<(u64, u64)>,
    next_snapshot: Option<Nanos>,
    /// What is to change while it runs.
    changes: Option<Receiver<Change>>,
    /// Who wants to look at the engine.
    looks: Option<Receiver<Look>>,
}

/// DSCP and ECN as they lie side by side in a header.
fn octet_of(packet: &Packet) -> u8 {
    packet.dscp << 2 | packet.ecn & 3
}

/// What the loop sends by, with room for what the edge can take at once.
struct Batch<'a, O> {
    output: &'a mut O,
    room: usize,
}

impl<O: Output> Transmitter for Batch<'_, O> {
    type Error = Infallible;

    #[inline]
    fn has_room(&self, now: Nanos) -> bool {
        self.room > 0 && self.output.has_room(now)
    }

    #[inline]
    fn take(&mut self, now: Nanos, departure: &Departure) -> Result<Taken, Infallible> {
        self.room -= 1;
        self.output.take(now, departure)
    }

    #[inline]
    fn rest(&mut self, now: Nanos) {
        self.output.rest(now);
    }
}

impl<E: Edge> Shaper<E> {
    /// A loop for `link` on `edge`, before a device that takes what it is given. `interface` is the
    /// name of the one by which packets come, for rules that speak of it.
    ///
    /// The link's regulator: a depth that is written is the engine's token bucket. `auto` means
    /// that the loop keeps the rate itself, as a wire would, which is closer than a bucket that a
    /// late timer overflows. `none`: the device takes what it wants.
    ///
    /// # Errors
    /// [`Error::Spec`] where the engine refuses the link.
    pub fn new(link: &Link, interface: &str, edge: E, tuning: Tuning) -> Result<Shaper<E>, Error> {
        let mut spec = link.spec.clone();
        let paced = spec.regulator == Regulator::Auto;
        if paced {
            spec.regulator = Regulator::None;
        }
        let pacer = paced.then(|| Pacer::new(spec.rate, tuning.catch_up, LONGEST));
        Shaper::build(link, &spec, interface, edge, tuning, DeviceOutput { pacer })
    }
}

impl<E: Edge, O: Output> Shaper<E, O> {
    /// A loop for `link` that sends by `output` on a host whose timers fire as `timer` says. The
    /// regulator is the engine's as the policy has it.
    ///
    /// # Errors
    /// Those of [`new`](Shaper::new).
    pub fn with_output(
        link: &Link,
        interface: &str,
        edge: E,
        tuning: Tuning,
        output: O,
        timer: Timer,
    ) -> Result<Shaper<E, O>, Error> {
        let spec = LinkSpec { timer, ..link.spec.clone() };
        Shaper::build(link, &spec, interface, edge, tuning, output)
    }

    fn build(
        link: &Link,
        spec: &LinkSpec,
        interface: &str,
        mut edge: E,
        tuning: Tuning,
        output: O,
    ) -> Result<Shaper<E, O>, Error> {
        let mut engine = Engine::new(spec).map_err(|error| Error::Spec { link: link.name.clone(), error })?;
        // Packets here are strangers': none of them is to know which flows meet where, or whose lot
        // falls when.
        engine.set_seed(secret());
        engine.set_flow_cache(CacheSettings { seed: secret(), ..CacheSettings::default() });
        let (heads, bodies) = slots(link, tuning.memory);
        let now = edge.now();
        let place = spec.rules.interfaces.iter().position(|name| name == interface);
        let flows = engine.keeps_flows().then(|| FlowHash::new(secret()));
        Ok(Shaper {
            name: link.name.clone(),
            edge,
            engine,
            pool: Pool::new(heads, bodies),
            output,
            timer: spec.timer,
            filled: Filled::Waiting,
            wakeup: None,
            fragments: FragmentCache::new(),
            flows,
            interface: place.and_then(|at| u16::try_from(at).ok()).unwrap_or(Key::NO_INTERFACE),
            longest: spec.rate.bytes_in(LONGEST),
            arrived: Vec::with_capacity(BATCH),
            parts: Vec::with_capacity(BATCH),
            octets: vec![0; heads],
            leaving: Vec::with_capacity(BATCH),
            ends: Vec::new(),
            blocked: None,
            idle: true,
            starved: false,
            sojourn: vec![Default::default(); spec.classes.len()],
            work: Work::default(),
            interval: tuning.interval,
            began: now,
            snapped: now,
            sent_before: vec![(0, 0); spec.classes.len()],
            next_snapshot: tuning.interval.map(|interval| now + interval),
            changes: None,
            looks: None,
        })
    }

    /// From now on what comes by this channel changes the link, at the loop's next turn: a
    /// snapshot's interval later at most. One that the engine refuses changes nothing; who sends it
    /// has tried it on an engine of the same link before.
    pub fn listen(&mut self, changes: Receiver<Change>) {
        self.changes = Some(changes);
    }

    /// From now on what comes by this channel looks at the engine, at the loop's next turn as with
    /// changes.
    pub fn show(&mut self, looks: Receiver<Look>) {
        self.looks = Some(looks);
    }

    fn change(&mut self, now: Nanos) {
        let mut changed = false;
        while let Some(change) = self.changes.as_ref().and_then(|changes| changes.try_recv().ok()) {
            if self.engine.apply(now, &change).is_err() {
                self.work.unchanged += 1;
            } else if let Change::SetRate(rate) = change {
                self.longest = rate.bytes_in(LONGEST);
                self.output.set_rate(rate);
            }
            // Classes that are new have their places from now on.
            let classes = self.engine.all_counters().len();
            self.sojourn.resize_with(classes.max(self.sojourn.len()), Default::default);
            self.free_dropped();
            changed = true;
        }
        if changed && O::BY_EVENTS {
            self.ask(now);
        }
    }

    /// Runs until the edge says that it is to stop. `on_snapshot` is called with every snapshot,
    /// one at the end included, also where the loop ends with an error.
    ///
    /// # Errors
    /// What the edge ends with: the interface went away.
    pub fn run(&mut self, mut on_snapshot: impl FnMut(Snapshot)) -> Result<(), Error> {
        let mut frames = true;
        let result = loop {
            let now = self.edge.now();
            self.work.turns += 1;
            if O::BY_EVENTS {
                self.catch_up(now);
            }
            if self.changes.is_some() {
                self.change(now);
            }
            while let Some(look) = self.looks.as_ref().and_then(|looks| looks.try_recv().ok()) {
                look(&self.engine);
            }
            if self.next_snapshot.is_some_and(|at| at <= now) {
                on_snapshot(self.snapshot(now, false));
            }
            match self.turn(now, frames) {
                Ok(Next::Again) if self.edge.stopped() => break Ok(()),
                Ok(Next::Again) => frames = true,
                Ok(Next::Wait(deadline, want)) => match self.edge.wait(deadline, want) {
                    Ok(woken) if woken.stop => break Ok(()),
                    Ok(woken) => {
                        frames = woken.frames;
                        self.note_lateness(deadline);
                    }
                    Err(error) => break Err(error),
                },
                Err(error) => break Err(error),
            }
        };
        let now = self.edge.now();
        on_snapshot(self.snapshot(now, true));
        result
    }

    /// Does what was due by now, each at its own time: packets end, timers fire.
    fn catch_up(&mut self, now: Nanos) {
        while let Some((at, event)) = drive::first(self.output.next_end(), self.wakeup, None)
            && at <= now
        {
            if event == Event::Complete {
                self.output.complete();
            }
            self.ask(at);
        }
    }

    fn turn(&mut self, now: Nanos, frames: bool) -> Result<Next, Error> {
        if self.idle && !O::BY_EVENTS {
            self.output.idle(now);
        }
        if frames || self.starved {
            self.starved = !self.edge.receive(&mut self.pool, &mut self.arrived)?;
        }
        let full_batch = self.arrived.len() >= BATCH;
        for at in 0..self.arrived.len() {
            // As on a wire, a packet leaves as soon as it may: a batch that was read at once must
            // not overflow a queue that would have been empty had its packets been seen one by one.
            if !self.admit(now, self.arrived[at]) {
                continue;
            }
            if O::BY_EVENTS {
                self.ask(now);
            } else if self.blocked.is_none() {
                _ = self.fill(now);
            }
        }
        self.arrived.clear();
        let deadline = self.transmit(now)?;
        // More frames wait where these came from: the wire was not idle, they were late.
        self.idle &= !full_batch;
        if full_batch {
            return Ok(Next::Again);
        }
        let deadline = match (deadline, self.next_snapshot) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if deadline.is_some_and(|at| at <= now) {
            return Ok(Next::Again);
        }
        let want = Want { frames: !self.starved, room: self.blocked == Some(Blocked::Full) };
        Ok(Next::Wait(deadline, want))
    }

    /// A frame came in: its class, its length on the wire, and into the queue. True if the engine
    /// is to be asked what leaves now.
    fn admit(&mut self, now: Nanos, handle: u32) -> bool {
        let (head, vnet, len) = (self.pool.head(handle), *self.pool.vnet(handle), self.pool.len(handle));
        let mut found = headers::parse_ethernet(head, len as u32);
        if found.fragment.is_some() {
            self.fragments.see(&mut found);
        }
        found.key.interface = self.interface;
        let mut packet = found.packet(handle);
        if let Some(hash) = &self.flows {
            (packet.flow, packet.hosts) = (hash.flow(&found.key), hash.hosts(&found.key));
        }
        let Some(whole) = Super::read(&vnet, head, len) else {
            let class = self.engine.classify(&found.key).unwrap_or(NO_CLASS);
            let dropped = self.enqueue(now, class, packet);
            return self.output.arrived(&found.key, dropped);
        };
        self.work.supers += 1;
        // Rules speak of packets as they are on the wire.
        found.key.length = (whole.headers() + whole.size.min(len - whole.payload)) as u32;
        let class = self.engine.classify(&found.key).unwrap_or(NO_CLASS);
        packet.len = whole.wire_len() as u32;
        packet.segments = whole.segments().min(usize::from(u16::MAX)) as u16;
        let segment = u64::from(self.engine.overhead().charge(found.key.length)).max(1);
        let most = (self.longest / segment).max(1) as usize;
        if whole.segments() <= most {
            self.enqueue(now, class, packet);
            return true;
        }
        let mut parts = std::mem::take(&mut self.parts);
        if segment::cut(&mut self.pool, handle, &whole, most, &mut parts) {
            self.work.cut += 1;
            self.work.parts += parts.len() as u64;
            for part in parts.drain(..) {
                self.enqueue(
                    now,
                    class,
                    Packet { handle: part.handle, len: part.len, segments: part.segments, ..packet },
                );
            }
        } else {
            self.work.uncut += 1;
            self.enqueue(now, class, packet);
        }
        self.parts = parts;
        true
    }

    /// True if a packet was dropped, this one or another.
    fn enqueue(&mut self, now: Nanos, class: ClassId, packet: Packet) -> bool {
        if let Some(octet) = self.octets.get_mut(packet.handle as usize) {
            *octet = octet_of(&packet);
        }
        self.engine.enqueue(now, class, packet);
        let dropped = self.engine.has_drops();
        if dropped {
            self.free_dropped();
        }
        dropped
    }

    fn free_dropped(&mut self) {
        for drop in self.engine.drops() {
            self.pool.free(drop.packet.handle);
        }
    }

    /// Gives the edge what leaves now. Returns the time at which the loop is to look again if
    /// nothing else happens.
    fn transmit(&mut self, now: Nanos) -> Result<Option<Nanos>, Error> {
        loop {
            if !self.leaving.is_empty() {
                let sent = self.edge.send(&mut self.pool, &self.leaving, &self.ends)?;
                for handle in self.leaving.drain(..sent.done) {
                    self.pool.free(handle);
                }
                self.ends.drain(..sent.done.min(self.ends.len()));
                self.blocked = sent.blocked;
                if !self.leaving.is_empty() {
                    // Held, not lost, and nothing more is asked of the engine meanwhile: the
                    // backlog stays where it is shared out.
                    return Ok(match self.blocked {
                        Some(Blocked::Until(at)) => Some(at),
                        _ => None,
                    });
                }
            }
            if !O::BY_EVENTS {
                let filled = self.fill(now);
                self.idle = filled == Filled::Waiting;
                if !self.leaving.is_empty() {
                    continue;
                }
                self.set_wakeup(now, filled);
            }
            return Ok(match self.filled {
                Filled::Waiting => self.wakeup,
                // With nothing queued, nothing is to be done when the output has room again.
                Filled::Full => {
                    let end = self.output.next_end();
                    self.engine.next_wakeup().map(|at| end.map_or(at, |end| at.max(end)))
                }
            });
        }
    }

    /// Takes from the engine what may leave at a time, and sets the time at which it is to be asked
    /// again.
    fn ask(&mut self, now: Nanos) {
        let filled = self.fill(now);
        self.set_wakeup(now, filled);
    }

    fn set_wakeup(&mut self, now: Nanos, filled: Filled) {
        self.filled = filled;
        self.wakeup = filled.wakeup(&mut self.engine, now, self.timer);
    }

    /// Takes from the engine what may leave at a time.
    #[inline]
    fn fill(&mut self, now: Nanos) -> Filled {
        // Most calls find a busy output: that is looked at here, in line.
        if self.output.has_room(now) { self.fill_batch(now) } else { Filled::Full }
    }

    fn fill_batch(&mut self, now: Nanos) -> Filled {
        let room = if O::BY_EVENTS { usize::MAX } else { BATCH.saturating_sub(self.leaving.len()) };
        let mut batch = Batch { output: &mut self.output, room };
        let Ok(filled) = drive::fill(&mut self.engine, now, &mut batch, |departure, taken| {
            let Departure { class, packet } = departure;
            if let Some([recent, _]) = self.sojourn.get_mut(class as usize) {
                recent.add(now.saturating_sub(packet.arrived));
            }
            // A meter or a queue has marked it: the frame says so too.
            if self.octets.get(packet.handle as usize).is_some_and(|octet| *octet != octet_of(&packet)) {
                remark(self.pool.head_mut(packet.handle), packet.dscp, packet.ecn);
            }
            self.leaving.push(packet.handle);
            self.ends.extend(taken.end);
            Ok::<_, Infallible>(())
        });
        if self.engine.has_drops() {
            self.free_dropped();
        }
        filled
    }

    fn note_lateness(&mut self, deadline: Option<Nanos>) {
        if let Some(at) = deadline {
            self.work.latest = self.work.latest.max(self.edge.now().saturating_sub(at));
        }
    }

    /// Counters and times as they are now; times since the snapshot before start anew.
    fn snapshot(&mut self, now: Nanos, last: bool) -> Snapshot {
        let counters = self.engine.all_counters();
        let time = u128::from(now.saturating_sub(self.snapped));
        let rate = |now: u64, before: u64| {
            let bits = u128::from(now.saturating_sub(before)) * 8 * u128::from(SECOND);
            bits.checked_div(time).unwrap_or(0) as u64
        };
        self.sent_before.resize(counters.len(), (0, 0));
        let mut classes: Vec<ClassStat> = counters
            .into_iter()
            .enumerate()
            .map(|(class, counters)| {
                let dropped =
                    self.engine.drop_reasons(class as ClassId).map(|(reason, packets, _)| (reason, packets)).collect();
                let now = (counters.sent_bytes, counters.sent_wire_bytes);
                let before = std::mem::replace(&mut self.sent_before[class], now);
                let told = self.engine.scheduler_counters(class as ClassId);
                ClassStat {
                    counters,
                    dropped,
                    rate_bit_s: rate(now.0, before.0),
                    wire_bit_s: rate(now.1, before.1),
                    wire_bytes: self.output.wire_bytes(class as ClassId).unwrap_or(now.1),
                    overlimits: told
                        .iter()
                        .find(|(name, _)| matches!(*name, "over" | "overlimits"))
                        .map(|(_, count)| *count),
                    ..ClassStat::default()
                }
            })
            .collect();
        for (class, [recent, total]) in self.sojourn.iter_mut().enumerate() {
            total.merge(recent);
            if let Some(stat) = classes.get_mut(class) {
                (stat.sojourn, stat.sojourn_total) = (recent.clone(), total.clone());
            }
            recent.clear();
        }
        // Children stand behind their parents: from the last to the first, every class hands its
        // own up.
        for class in (1..classes.len()).rev() {
            let Some(parent) = self.engine.parent(class as ClassId) else { continue };
            let (above, below) = classes.split_at_mut(class);
            if let (Some(parent), Some(child)) = (above.get_mut(parent as usize), below.first()) {
                parent.sojourn.merge(&child.sojourn);
                parent.sojourn_total.merge(&child.sojourn_total);
                // What the link charged is the sum already.
                if self.output.wire_bytes(class as ClassId).is_some() {
                    parent.wire_bytes += child.wire_bytes;
                }
                for (reason, packets) in &child.dropped {
                    match parent.dropped.iter_mut().find(|(r, _)| r == reason) {
                        Some(entry) => entry.1 += packets,
                        None => parent.dropped.push((*reason, *packets)),
                    }
                }
            }
        }
        let since = std::mem::replace(&mut self.snapped, now);
        self.next_snapshot = self.interval.map(|interval| now + interval);
        let (unclassified, edge) = (self.engine.unclassified(), self.edge.counters());
        Snapshot {
            link: self.name.clone(),
            at: now,
            began: self.began,
            since,
            last,
            classes,
            unclassified,
            edge,
            work: self.work,
        }
    }

    /// The edge, for tests that look at what came out.
    pub fn edge(&mut self) -> &mut E {
        &mut self.edge
    }
}

enum Next {
    /// There is more to do at once.
    Again,
    Wait(Option<Nanos>, Want),
}

/// Heads and bodies for a link: what its queues can hold, and two batches on either side, within
/// `memory`.
fn slots(link: &Link, memory: usize) -> (usize, usize) {
    let spec = &link.spec;
    let queued: usize = spec
        .classes
        .iter()
        .map(|class| match class.queue.as_ref().map(|queue| queue.limit) {
            Some(Limit::Packets(packets)) => packets as usize,
            // Packets of an ordinary size; a queue of small ones fills the pool first.
            Some(Limit::Bytes(bytes)) => bytes as usize / 256 + 1,
            None => 64,
        })
        .fold(0, usize::saturating_add);
    let wanted = queued.saturating_add(8 * BATCH).clamp(4096, 1 << 20);
    let each = Pool::memory(1, 1);
    // A quarter of the memory at least stays for heads, where there is not enough for a body with
    // each.
    let bodies = wanted.min(memory * 3 / 4 / each).max(2 * BATCH);
    let left = memory.saturating_sub(Pool::memory(bodies, bodies)) / Pool::memory(1, 0);
    (wanted.min(bodies + left).max(4 * BATCH), bodies)
}
