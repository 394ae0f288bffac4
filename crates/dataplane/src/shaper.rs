//! The loop of a link: it receives, asks the engine, waits for timers and sends, in one thread and
//! with one deadline.
//!
//! ```text
//! edge.receive ─► headers ─► classify ─► enqueue ─► dequeue ─► edge.send
//!                    │                      ▲           │
//!                    └─ cut super-packets   └─ deadline: the engine's next wake-up, and the wire's
//! ```
//!
//! Nothing is allocated per packet: frames lie in a [`Pool`], and lists keep their memory from turn
//! to turn.

use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::mpsc::Receiver;

use altq_config::Link;
use altq_engine::classify::{CacheSettings, FlowHash, Order};
use altq_engine::drive::{self, Event, Filled, Taken, Transmitter};
use altq_engine::headers::{self, FragmentCache, Key};
use altq_engine::packet::Packet;
use altq_engine::settings::{Limit, Settings};
use altq_engine::shape::pacer;
use altq_engine::sketch::Sketch;
use altq_engine::spec::{ClassId, ClassSpec, LinkSpec, Timer};
use altq_engine::units::{Nanos, SECOND};
use altq_engine::{Change, Departure, Engine};

use crate::census::{self, Census, Counted};
use crate::edge::{BATCH, Blocked, Edge, Want};
use crate::error::Error;
use crate::flows::Flows;
use crate::gauge::Gauge;
use crate::output::{DeviceOutput, Output};
use crate::pool::{BODY, Pool};
use crate::remark::remark;
use crate::segment::{self, Part, Super};
use crate::stats::{Counts, Report, Work};
use crate::tap::Tap;
use crate::vnet::GSO_NONE;

/// A super-packet that takes longer than this at the link's rate is cut. The burst that
/// `regulator auto` lets pass on a device takes no longer either.
pub const LONGEST: Nanos = pacer::SEEN_LATE;

/// Bodies that may be in use before all super-packets are cut into single packets, which need none.
const BODIES: usize = BATCH;

/// A class number that does not exist: packets for it are dropped with the reason `no_class`.
const NO_CLASS: ClassId = ClassId::MAX;

/// A number that nobody outside can know. It is made from the system's random bytes, which the
/// standard library uses for the keys of its hash tables.
fn secret() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A function that looks at the engine of a loop, between two packets.
pub type Look = Box<dyn FnOnce(&Engine) + Send>;

/// What another thread asks of a loop, between two packets.
pub(crate) enum Ask {
    /// To call a function with its engine.
    Look(Look),
    /// To copy packets that leave; replaces an earlier tap.
    Tap(Box<Tap>),
    /// To stop copying.
    Untap,
}

/// Settings of a loop.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// The most bytes for the slots of packets. The kernel provides memory only for slots that are
    /// used.
    pub memory: usize,
    /// Time between snapshots; `None`: only one at the end.
    pub interval: Option<Nanos>,
    /// How many packets the queues of future classes may hold in all: there are slots for them.
    pub room: usize,
    /// The most classes that have counters of flows at a time, 5.9 kB each; 0: flows are not
    /// watched. If they are, there is a count each second, even if snapshots are further apart.
    pub flows: usize,
}

impl Tuning {
    /// The number of counts for each snapshot, and the time between two counts.
    fn counts(&self) -> (u32, Option<Nanos>) {
        let seconds = if self.flows > 0 { self.interval.map_or(1, |interval| interval.div_ceil(SECOND)) } else { 1 };
        let each = u32::try_from(seconds).unwrap_or(u32::MAX).max(1);
        (each, self.interval.map(|interval| interval / Nanos::from(each)))
    }
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning { memory: 512 << 20, interval: Some(1_000_000_000), room: 0, flows: 0 }
    }
}

/// The loop of a link, with its edge and its output.
pub struct Shaper<E, O = DeviceOutput> {
    name: String,
    edge: E,
    engine: Engine,
    pool: Pool,
    output: O,
    /// When timers fire.
    timer: Timer,
    /// Whether the output was full when the engine was last asked.
    filled: Filled,
    /// When to ask the engine again if nothing happens before and the output was not full.
    wakeup: Option<Nanos>,
    /// Set if the rules have ALTQ's order: only these see the ports of later fragments.
    fragments: Option<FragmentCache>,
    /// Set if a queue tells flows apart.
    flows: Option<FlowHash>,
    /// The index, in the rules' list, of the interface at which packets come in.
    interface: u16,
    /// Bytes that the link carries in [`LONGEST`].
    longest: u64,
    /// Whether a class has, or has had, a meter that colours packets one by one. Then super-packets
    /// are cut into single segments.
    coloured: bool,
    arrived: Vec<u32>,
    parts: Vec<Part>,
    /// By handle: DSCP and ECN that the packet had on arrival.
    octets: Vec<u8>,
    /// Packets that the engine has handed over and the edge has not taken yet.
    leaving: Vec<u32>,
    /// When the last bit of each of these packets leaves, if the output knows that.
    ends: Vec<Nanos>,
    /// Why the edge did not take all of them.
    blocked: Option<Blocked>,
    /// True if the edge had no slot to receive into.
    starved: bool,
    census: Census,
    work: Work,
    /// How late timers were since the last count.
    late: Sketch,
    interval: Option<Nanos>,
    began: Nanos,
    /// When the next count begins.
    next_count: Option<Nanos>,
    /// Changes to be made while the loop runs.
    changes: Option<Receiver<Vec<Change>>>,
    /// Functions to be called with the engine.
    looks: Option<Receiver<Look>>,
    /// Other requests of other threads.
    asks: Option<Receiver<Ask>>,
    /// Copies packets that leave.
    tap: Option<Box<Tap>>,
    /// Bytes that the link has charged for packets that have left the engine.
    charged: u64,
    /// Shows to another thread how much was sent and whether packets wait.
    gauge: Option<Gauge>,
}

/// DSCP and ECN, side by side as in an IP header.
fn octet_of(packet: &Packet) -> u8 {
    packet.dscp << 2 | packet.ecn & 3
}

/// The loop's output, limited to what the edge can take in one call.
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
    /// A loop for `link` on `edge`, for a device that accepts packets at any time. `interface` is
    /// the name of the interface at which packets come in, for rules that name one.
    ///
    /// # Errors
    /// [`Error::Spec`] if the engine refuses the link.
    pub fn new(link: &Link, interface: &str, edge: E, tuning: Tuning) -> Result<Shaper<E>, Error> {
        Shaper::build(link, &link.spec, interface, edge, tuning, DeviceOutput)
    }
}

impl<E: Edge, O: Output> Shaper<E, O> {
    /// A loop for `link` that sends by `output`, on a host whose timers fire as `timer` says.
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
        // The packets here come from strangers, who must not be able to find out which flows share
        // a hash bucket, or which packet a random drop will hit.
        engine.set_seed(secret());
        engine.set_flow_cache(CacheSettings { seed: secret(), ..CacheSettings::default() });
        let (heads, bodies) = slots(link, tuning, edge.holds_bytes());
        let mut pool = edge.pool(heads, bodies);
        // Several batches that wait; and all bodies that are used at a time where super-packets are
        // cut.
        pool.touch(8 * BATCH, BODIES + BATCH);
        if !O::BY_EVENTS {
            engine.set_seen_late(edge.seen_late());
        }
        let now = edge.now();
        let place = spec.rules.interfaces.iter().position(|name| name == interface);
        let flows = engine.keeps_flows().then(|| FlowHash::new(secret()));
        let (counts, interval) = tuning.counts();
        let mut census = Census::new(spec.classes.len(), counts);
        census.flows = (tuning.flows > 0).then(|| Flows::new(spec.classes.len(), tuning.flows, secret(), pool.heads()));
        Ok(Shaper {
            name: link.name.clone(),
            edge,
            engine,
            output,
            timer: spec.timer,
            filled: Filled::Waiting,
            wakeup: None,
            fragments: (spec.rules.order == Order::Altq).then(FragmentCache::new),
            flows,
            interface: place.and_then(|at| u16::try_from(at).ok()).unwrap_or(Key::NO_INTERFACE),
            longest: spec.rate.bytes_in(LONGEST),
            coloured: spec.classes.iter().any(|class| colours_packets(&class.settings)),
            arrived: Vec::with_capacity(BATCH),
            parts: Vec::with_capacity(BATCH),
            octets: vec![0; pool.heads()],
            pool,
            leaving: Vec::with_capacity(BATCH),
            ends: Vec::new(),
            blocked: None,
            starved: false,
            census,
            work: Work::default(),
            late: Sketch::default(),
            interval,
            began: now,
            next_count: interval.map(|interval| now + interval),
            changes: None,
            looks: None,
            asks: None,
            tap: None,
            charged: 0,
            gauge: None,
        })
    }

    /// Makes the loop apply changes that come by this channel. Changes that are sent together are
    /// made in one turn, and no packet leaves between them. A change that the engine refuses
    /// changes nothing; the sender has tried it on an engine of the same link before.
    pub fn listen(&mut self, changes: Receiver<Vec<Change>>) {
        self.changes = Some(changes);
    }

    /// Makes the loop call the functions that come by this channel with its engine, in its next
    /// turn, as with changes.
    pub fn show(&mut self, looks: Receiver<Look>) {
        self.looks = Some(looks);
    }

    /// Makes the loop do what comes by this channel, in its next turn, as with changes.
    pub(crate) fn hear(&mut self, asks: Receiver<Ask>) {
        self.asks = Some(asks);
    }

    /// Shows to others how much the loop has sent and whether packets wait in it.
    pub(crate) fn gauge(&mut self) -> Gauge {
        self.gauge.get_or_insert_default().clone()
    }

    /// Makes the next changes that were sent together. False if there are none.
    fn change(&mut self, now: Nanos) -> bool {
        let Some(changes) = self.changes.as_ref().and_then(|changes| changes.try_recv().ok()) else { return false };
        for change in changes {
            if self.engine.apply(now, &change).is_err() {
                self.work.unchanged += 1;
                continue;
            }
            match change {
                Change::SetRate(rate) => {
                    self.longest = rate.bytes_in(LONGEST);
                    self.output.set_rate(rate);
                }
                Change::AddClass(ClassSpec { settings, .. }) | Change::SetClass { settings, .. } => {
                    self.coloured |= colours_packets(&settings);
                }
                // Another class may get its number.
                Change::RemoveClass { class, .. } => self.census.removed(class),
                Change::SetRules { rules, .. } => {
                    self.fragments = (rules.order == Order::Altq).then(FragmentCache::new);
                }
                _ => {}
            }
        }
        if self.flows.is_none() && self.engine.keeps_flows() {
            self.flows = Some(FlowHash::new(secret()));
        }
        // New classes are known from now on.
        self.census.grow(self.engine.numbers());
        self.free_dropped();
        if O::BY_EVENTS {
            self.ask(now);
        }
        true
    }

    /// Runs until the edge tells it to stop. `on_report` is called with what was counted at each
    /// interval, also at the end after an error.
    ///
    /// # Errors
    /// The error of the edge that ended the loop: the interface is gone.
    pub fn run(&mut self, mut on_report: impl FnMut(Report)) -> Result<(), Error> {
        let mut frames = true;
        let result = loop {
            let now = self.edge.now();
            self.work.turns += 1;
            if O::BY_EVENTS {
                self.catch_up(now);
            }
            // A change in the middle of a count would leave the sums of classes and of those above
            // them from different trees. It waits for the end of the count.
            let held = self.changes.is_some() && self.census.under_way();
            let changed = !held && self.changes.is_some() && self.change(now);
            while let Some(look) = self.looks.as_ref().and_then(|looks| looks.try_recv().ok()) {
                look(&self.engine);
            }
            while let Some(ask) = self.asks.as_ref().and_then(|asks| asks.try_recv().ok()) {
                match ask {
                    Ask::Look(look) => look(&self.engine),
                    Ask::Tap(tap) => self.tap = Some(tap),
                    Ask::Untap => self.tap = None,
                }
            }
            if self.tap.as_mut().is_some_and(|tap| !tap.turn(now)) {
                self.tap = None;
            }
            if self.next_count.is_some_and(|at| at <= now) {
                self.next_count = self.interval.map(|interval| now + interval);
                self.census.begin(now);
            }
            if let Some(report) = self.count(census::PIECE, false) {
                on_report(report);
            }
            let next = self.turn(now, frames);
            if let Some(gauge) = &self.gauge {
                gauge.set(self.charged, self.engine.backlog() > 0);
            }
            match next {
                Ok(Next::Again) if self.edge.stopped() => break Ok(()),
                Ok(Next::Again) => frames = true,
                // There may be more changes, or the count for which one waited is over.
                Ok(Next::Wait(..)) if changed || held => frames = true,
                Ok(Next::Wait(deadline, want)) => match self.edge.wait(deadline, want) {
                    Ok(woken) if woken.stop => break Ok(()),
                    Ok(woken) => {
                        frames = woken.frames;
                        self.work.waits += 1;
                        self.note_lateness(deadline);
                    }
                    Err(error) => break Err(error),
                },
                Err(error) => break Err(error),
            }
        };
        // Finishes a count that is under way, because it began earlier.
        if let Some(report) = self.count(usize::MAX, false) {
            on_report(report);
        }
        let now = self.edge.now();
        self.census.begin(now);
        if let Some(report) = self.count(usize::MAX, true) {
            on_report(report);
        }
        result
    }

    /// Handles what was due by now, each event at its own time: packets end, timers fire.
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
        if frames || self.starved {
            self.starved = !self.edge.receive(&mut self.pool, &mut self.arrived)?;
        }
        let full_batch = self.arrived.len() >= BATCH;
        self.work.receives += u64::from(!self.arrived.is_empty());
        for at in 0..self.arrived.len() {
            // Each packet leaves as soon as it may, as on a wire. Otherwise a batch that was
            // received at once could overflow a queue that is empty when its packets come one by
            // one.
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
        if full_batch || self.census.under_way() {
            return Ok(Next::Again);
        }
        let deadline = match (deadline, self.next_count) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if deadline.is_some_and(|at| at <= now) {
            return Ok(Next::Again);
        }
        let want = Want { frames: !self.starved, room: self.blocked == Some(Blocked::Full) };
        Ok(Next::Wait(deadline, want))
    }

    /// Handles a frame that came in: finds its class and its length on the wire, and queues it.
    /// True if the engine must then be asked what leaves.
    fn admit(&mut self, now: Nanos, handle: u32) -> bool {
        let (head, vnet, len) = (self.pool.head(handle), *self.pool.vnet(handle), self.pool.len(handle));
        let whole = Super::read(&vnet, head, len);
        if whole.is_none() && vnet.kind() != GSO_NONE && self.edge.holds_bytes() {
            self.edge.refuse(handle);
            self.pool.free(handle);
            return false;
        }
        let mut found = headers::parse_ethernet(head, len as u32);
        if found.fragment.is_some()
            && let Some(fragments) = &mut self.fragments
        {
            fragments.see(&mut found);
        }
        found.key.interface = self.interface;
        self.edge.describe(handle, &mut found.key);
        let mut packet = found.packet(handle);
        if !self.edge.writes_ecn(handle) {
            packet.ecn = 0;
        }
        if let Some(hash) = &self.flows {
            (packet.flow, packet.hosts) = (hash.flow(&found.key), hash.hosts(&found.key));
        }
        let Some(whole) = whole else {
            let class = self.engine.classify(&found.key).unwrap_or(NO_CLASS);
            let dropped = self.enqueue(now, class, packet, &found.key);
            return self.output.arrived(&found.key, dropped);
        };
        self.work.supers += 1;
        // Rules are about packets as they are on the wire.
        found.key.length = (whole.headers() + whole.size.min(len - whole.payload)) as u32;
        let class = self.engine.classify(&found.key).unwrap_or(NO_CLASS);
        packet.len = whole.wire_len() as u32;
        packet.segments = whole.segments().min(usize::from(u16::MAX)) as u16;
        let segment = u64::from(self.engine.overhead().charge(found.key.length)).max(1);
        let direct = whole.direct && self.edge.segments(&whole);
        // A piece of a super-packet that waits keeps its body. Where they are cut anyway, few may
        // do so: otherwise memory is taken for the longest queue that there ever was.
        let crowded = self.longest < BODY as u64 && self.pool.used_bodies() > BODIES;
        let together = direct && !self.coloured && !crowded;
        let most = if together { (self.longest / segment).max(1) as usize } else { 1 };
        if direct && whole.segments() <= most || !self.edge.holds_bytes() {
            self.enqueue(now, class, packet, &found.key);
            return true;
        }
        let mut parts = std::mem::take(&mut self.parts);
        if segment::cut(&mut self.pool, handle, &whole, most, &mut parts) {
            self.work.cut += 1;
            self.work.parts += parts.len() as u64;
            for part in parts.drain(..) {
                let packet = Packet { handle: part.handle, len: part.len, segments: part.segments, ..packet };
                self.enqueue(now, class, packet, &found.key);
            }
        } else {
            self.work.uncut += 1;
            self.enqueue(now, class, packet, &found.key);
        }
        self.parts = parts;
        true
    }

    /// Queues a packet with these headers. True if a packet was dropped, this one or another.
    fn enqueue(&mut self, now: Nanos, class: ClassId, packet: Packet, key: &Key) -> bool {
        if let Some(octet) = self.octets.get_mut(packet.handle as usize) {
            *octet = octet_of(&packet);
        }
        if let Some(flows) = &mut self.census.flows {
            flows.waits(packet.handle, key);
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
            self.edge.dropped(drop.packet.handle);
            self.pool.free(drop.packet.handle);
        }
    }

    /// Gives the edge what leaves now. Returns the time of the next turn if nothing else happens
    /// before.
    fn transmit(&mut self, now: Nanos) -> Result<Option<Nanos>, Error> {
        loop {
            if !self.leaving.is_empty() {
                let sent = self.edge.send(&mut self.pool, &self.leaving, &self.ends)?;
                self.work.sends += 1;
                for handle in self.leaving.drain(..sent.done) {
                    self.pool.free(handle);
                }
                self.ends.drain(..sent.done.min(self.ends.len()));
                self.blocked = sent.blocked;
                if !self.leaving.is_empty() {
                    // The frames are held, not lost. Meanwhile nothing more is taken from the
                    // engine, so the backlog stays in the queues, where the policy divides it.
                    return Ok(match self.blocked {
                        Some(Blocked::Until(at)) => Some(at),
                        _ => None,
                    });
                }
            }
            if !O::BY_EVENTS {
                let filled = self.fill(now);
                if !self.leaving.is_empty() {
                    continue;
                }
                self.set_wakeup(now, filled);
            }
            return Ok(match self.filled {
                Filled::Waiting => self.wakeup,
                // If nothing is queued, nothing happens when the output has room again.
                Filled::Full => self.output.next_end().filter(|_| self.engine.backlog() > 0),
            });
        }
    }

    /// Takes from the engine what may leave now, and sets the time at which to ask it again.
    fn ask(&mut self, now: Nanos) {
        let filled = self.fill(now);
        self.set_wakeup(now, filled);
    }

    fn set_wakeup(&mut self, now: Nanos, filled: Filled) {
        self.filled = filled;
        self.wakeup = filled.wakeup(&mut self.engine, now, self.timer);
    }

    /// Takes from the engine what may leave now.
    #[inline]
    fn fill(&mut self, now: Nanos) -> Filled {
        // Most calls find a full output; this check is inlined.
        if self.output.has_room(now) { self.fill_batch(now) } else { Filled::Full }
    }

    fn fill_batch(&mut self, now: Nanos) -> Filled {
        let room = if O::BY_EVENTS { usize::MAX } else { BATCH.saturating_sub(self.leaving.len()) };
        let mut batch = Batch { output: &mut self.output, room };
        let Ok(filled) = drive::fill(&mut self.engine, now, &mut batch, |departure, taken| {
            let Departure { class, packet } = departure;
            self.charged += u64::from(packet.wire);
            self.census.departed(now, class, &packet, now.saturating_sub(packet.arrived));
            // A meter or a queue has changed DSCP or ECN, so the frame's header is changed too.
            if self.octets.get(packet.handle as usize).is_some_and(|octet| *octet != octet_of(&packet)) {
                remark(self.pool.head_mut(packet.handle), packet.dscp, packet.ecn);
            }
            if let Some(tap) = &mut self.tap {
                let (pool, handle) = (&self.pool, packet.handle);
                tap.copy(now, class, pool.head(handle), pool.body(handle), pool.len(handle));
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
        if let Some(late) = deadline.and_then(|at| self.edge.now().checked_sub(at)) {
            self.work.timers += 1;
            self.work.late += late;
            self.work.latest = self.work.latest.max(late);
            self.late.add(late);
        }
    }

    /// Counts the next classes, at most so many, if a count is under way. Returns the counts when
    /// all classes are counted.
    fn count(&mut self, most: usize, last: bool) -> Option<Report> {
        let output = &self.output;
        let counted = self.census.count(&self.engine, |class| output.wire_bytes(class), most)?;
        let Counted { at, classes, removed, shown, flows } = counted;
        let late = self.late.packed();
        self.late.clear();
        Some(Report::Counts(Counts {
            link: self.name.clone(),
            at,
            began: self.began,
            last,
            shown: shown || last,
            classes,
            removed,
            unclassified: self.engine.unclassified(),
            edge: self.edge.counters(),
            work: self.work,
            late,
            flows,
        }))
    }

    /// The edge, for tests that read what was sent.
    pub fn edge(&mut self) -> &mut E {
        &mut self.edge
    }
}

enum Next {
    /// There is more to do, at once.
    Again,
    Wait(Option<Nanos>, Want),
}

/// Number of frames for which the loop of a link has slots. `holds_bytes` is that of its edge
/// ([`Edge::holds_bytes`]).
pub fn frames(link: &Link, tuning: Tuning, holds_bytes: bool) -> usize {
    slots(link, tuning, holds_bytes).0
}

/// Whether a class has a meter for which each packet on the wire has its own colour (RFC 2697 3,
/// RFC 2698 3). `all` treats all packets alike, and that of a reservation looks at the segments of
/// a super-packet.
pub(crate) fn colours_packets(class: &Settings) -> bool {
    // Every meter has the word, but `all`.
    let is_rate = |word: &str| word.starts_with("meter ") && word.ends_with(" cir");
    class.choice("meter") != Some("tspec") && class.iter().any(|(word, _)| is_rate(word))
}

/// The shortest packet of a flood, in bytes: an IPv4 header and one of UDP.
const SHORTEST: usize = 28;

/// Numbers of heads and bodies for a link: for what its queues and those of classes and
/// reservations to come can hold, and two batches each for reception and sending, within the memory
/// for them. A class whose queue is full must not take the slots of others.
fn slots(link: &Link, tuning: Tuning, holds_bytes: bool) -> (usize, usize) {
    let (spec, memory) = (&link.spec, tuning.memory);
    let queued: usize = spec
        .classes
        .iter()
        .map(|class| match class.queue.as_ref().map(|queue| queue.limit) {
            Some(Limit::Packets(packets)) => packets as usize,
            Some(Limit::Bytes(bytes)) => bytes as usize / SHORTEST + 1,
            None => 64,
        })
        .chain([usize::try_from(link.reservation_room()).unwrap_or(usize::MAX) / SHORTEST])
        .fold(tuning.room, usize::saturating_add);
    let wanted = queued.saturating_add(8 * BATCH).clamp(4096, 1 << 20);
    if !holds_bytes {
        return (wanted.min(memory / Pool::memory(1, 0)).max(4 * BATCH), 0);
    }
    let each = Pool::memory(1, 1);
    // If the memory does not suffice for a body with each head, at least a quarter of it remains
    // for heads.
    let bodies = wanted.min(memory * 3 / 4 / each).max(2 * BATCH);
    let left = memory.saturating_sub(Pool::memory(bodies, bodies)) / Pool::memory(1, 0);
    (wanted.min(bodies + left).max(4 * BATCH), bodies)
}
