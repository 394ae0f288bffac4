//! The engine of one link, packet by packet, by arrays, or as a whole run.

use std::sync::Arc;

use altq_cases::limits::LARGEST_PACKET;
use altq_config::{ClassWords, Link};
use altq_engine::account::Counters;
use altq_engine::drive::{self, Event};
use altq_engine::spec::{ClassId, ROOT, Timer};
use altq_engine::units::{Nanos, Rate};
use altq_engine::{Change, Packet};
use altq_simulator::replay::{Arrivals, Columns};
use altq_simulator::wire::Wire;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::names::Names;
use crate::policy::Policy;
use crate::replay::{Lost, PACKETS_PER_LOOK, timer};
use crate::table::{self, Table};
use crate::{columns, errors};

/// The engine of one link: which packet leaves next, and when.
///
/// It has no clock: each call says what time it is, and times never go back. `link` says which, if
/// the policy has several; `timer` is "exact", or so many ticks a second; `seed` that of queues
/// that drop at random. With `keep_drops`, `drops` has each packet that was lost; without, they are
/// only counted. An engine may be used by one thread at a time.
#[pyclass(module = "altq._altq")]
pub struct Engine {
    engine: altq_engine::Engine,
    link: Arc<Link>,
    names: Arc<Names>,
    timer: Timer,
    now: Nanos,
    /// The handle of the next packet.
    next: u32,
    wire: Wire,
    /// Drops that were not taken yet; `None`: they are only counted.
    lost: Option<Lost>,
}

/// A packet that leaves.
#[pyclass(frozen, module = "altq._altq")]
pub struct Departure {
    inner: altq_engine::Departure,
    now: Nanos,
    names: Arc<Names>,
}

#[pymethods]
impl Departure {
    /// The name of its class.
    #[getter]
    fn class_name(&self, py: Python<'_>) -> Option<Py<PyString>> {
        self.names.python(self.inner.class).map(|name| name.clone_ref(py))
    }

    /// The number of its class.
    #[getter]
    fn class_id(&self) -> ClassId {
        self.inner.class
    }

    /// Its bytes at layer 3.
    #[getter]
    fn length(&self) -> u32 {
        self.inner.packet.len
    }

    /// The bytes that the link charges for it.
    #[getter]
    fn wire_length(&self) -> u32 {
        self.inner.packet.wire
    }

    /// The number that `enqueue` was given, or counted.
    #[getter]
    fn handle(&self) -> u32 {
        self.inner.packet.handle
    }

    /// When it arrived, in ns.
    #[getter]
    fn arrived_ns(&self) -> u64 {
        self.inner.packet.arrived
    }

    /// How long it waited, in ns.
    #[getter]
    fn delay_ns(&self) -> u64 {
        self.now - self.inner.packet.arrived
    }

    /// Its DSCP, 0 to 63.
    #[getter]
    fn dscp(&self) -> u8 {
        self.inner.packet.dscp
    }

    /// Its ECN field, 0 to 3; 3 is congestion experienced.
    #[getter]
    fn ecn(&self) -> u8 {
        self.inner.packet.ecn
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let name = self.class_name(py).map(|name| name.to_string()).unwrap_or_default();
        let (length, handle, delay) = (self.length(), self.handle(), self.delay_ns());
        format!("Departure(class_name={name:?}, length={length}, handle={handle}, delay_ns={delay})")
    }
}

/// Columns of packets that left.
#[derive(Default)]
struct Left {
    times: Vec<Nanos>,
    classes: Vec<ClassId>,
    bytes: Vec<u32>,
    handles: Vec<u64>,
    arrived: Vec<Nanos>,
    delays: Vec<Nanos>,
    /// When they left the wire, if one is asked about.
    ends: Option<Vec<Nanos>>,
}

impl Left {
    fn with_capacity(count: usize) -> Left {
        Left {
            times: Vec::with_capacity(count),
            classes: Vec::with_capacity(count),
            bytes: Vec::with_capacity(count),
            handles: Vec::with_capacity(count),
            arrived: Vec::with_capacity(count),
            delays: Vec::with_capacity(count),
            ends: None,
        }
    }

    #[inline]
    fn push(&mut self, now: Nanos, departure: &altq_engine::Departure) {
        let packet = &departure.packet;
        self.times.push(now);
        self.classes.push(departure.class);
        self.bytes.push(packet.len);
        self.handles.push(u64::from(packet.handle));
        self.arrived.push(packet.arrived);
        self.delays.push(now - packet.arrived);
    }

    fn table(self, names: &Names) -> PyResult<Table> {
        let ends = self.ends;
        let columns = table::Columns::default()
            .u64("time_ns", self.times)
            .classes("class", self.classes, &names.texts)?
            .u32("bytes", self.bytes)
            .u64("handle", self.handles)
            .u64("arrived_ns", self.arrived)
            .u64("delay_ns", self.delays);
        match ends {
            Some(ends) => columns.u64("wire_end_ns", ends).table(),
            None => columns.table(),
        }
    }
}

impl Engine {
    /// Checks that time does not go back, and keeps it.
    #[inline]
    fn at(&mut self, now: i64) -> PyResult<Nanos> {
        match Nanos::try_from(now) {
            Ok(now) if now >= self.now => {
                self.now = now;
                Ok(now)
            }
            _ => Err(backwards(now, self.now)),
        }
    }

    /// Takes the drops, and returns how many there were.
    #[inline]
    fn take_drops(&mut self) -> usize {
        if self.engine.has_drops() { self.take_all_drops(None).0 } else { 0 }
    }

    /// Takes the drops. Returns how many there were, and whether this packet is one of them.
    #[cold]
    fn take_all_drops(&mut self, handle: Option<u32>) -> (usize, bool) {
        let (mut count, mut found) = (0, false);
        for drop in self.engine.drops() {
            found |= Some(drop.packet.handle) == handle;
            if let Some(lost) = &mut self.lost {
                lost.push(u64::from(drop.packet.handle), &drop);
            }
            count += 1;
        }
        (count, found)
    }

    /// The list of packets that arrays are.
    #[allow(clippy::too_many_arguments)]
    fn arrivals(
        &self,
        times: &Bound<'_, PyAny>,
        classes: &Bound<'_, PyAny>,
        lengths: &Bound<'_, PyAny>,
        flow: Option<&Bound<'_, PyAny>>,
        dscp: Option<&Bound<'_, PyAny>>,
        ecn: Option<&Bound<'_, PyAny>>,
        segments: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Arrivals> {
        let times = columns::whole("time_ns", times)?;
        let count = times.len();
        let bytes = match lengths.extract::<u64>() {
            Ok(one) => vec![one; count],
            Err(_) => columns::whole("bytes", lengths)?,
        };
        let columns = Columns {
            classes: columns::classes(&self.names, classes, count)?,
            bytes,
            flows: flow.map(columns::flows).transpose()?,
            dscp: columns::optional("dscp", dscp)?,
            ecn: columns::optional("ecn", ecn)?,
            segments: columns::optional("segments", segments)?,
            times,
            ..Columns::default()
        };
        if let Some(first) = columns.times.first().filter(|first| **first < self.now) {
            return Err(backwards(*first as i64, self.now));
        }
        Arrivals::from_columns(&self.link, columns).map_err(|error| errors::packet(error.to_string()))
    }

    fn counted<'py>(&self, py: Python<'py>, class: ClassId, counters: &Counters) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("received_packets", counters.received_packets())?;
        dict.set_item("received_bytes", counters.received_bytes())?;
        dict.set_item("sent_packets", counters.sent_packets)?;
        dict.set_item("sent_bytes", counters.sent_bytes)?;
        dict.set_item("sent_wire_bytes", counters.sent_wire_bytes)?;
        dict.set_item("dropped_packets", counters.dropped_packets)?;
        dict.set_item("dropped_bytes", counters.dropped_bytes)?;
        dict.set_item("marked_packets", counters.marked_packets)?;
        dict.set_item("backlog_packets", counters.queued_packets)?;
        dict.set_item("backlog_bytes", counters.queued_bytes)?;
        dict.set_item("borrowed_bytes", counters.borrowed_bytes)?;
        let reasons = PyDict::new(py);
        for (reason, packets, _) in self.engine.drop_reasons(class) {
            reasons.set_item(reason.name(), packets)?;
        }
        dict.set_item("dropped", reasons)?;
        Ok(dict)
    }
}

#[cold]
fn backwards(now: i64, last: Nanos) -> PyErr {
    if now < 0 {
        return errors::packet(format!("the time {now} ns is below 0; times count from 0, in nanoseconds"));
    }
    errors::packet(format!(
        "the time {now} ns is earlier than {last} ns, which the engine has seen; call it in the order of time, or make \
         a new engine"
    ))
}

#[cold]
fn bad_length(length: i64) -> PyErr {
    errors::packet(format!("a packet of {length} bytes; a length is 1 to {LARGEST_PACKET} bytes at layer 3"))
}

#[cold]
fn bad_field(field: &str, value: i64, most: i64) -> PyErr {
    errors::packet(format!("{field} {value} is not a whole number from {} to {most}", i64::from(field == "segments")))
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (policy, *, link=None, timer=None, seed=1, keep_drops=false))]
    fn new(
        py: Python<'_>,
        policy: &Policy,
        link: Option<&str>,
        timer: Option<&Bound<'_, PyAny>>,
        seed: u64,
        keep_drops: bool,
    ) -> PyResult<Engine> {
        let link = policy.link(link)?.clone();
        let timer = timer.map_or(Ok(Timer::Exact), self::timer)?;
        let mut spec = link.spec.clone();
        spec.timer = timer;
        let mut engine = altq_engine::Engine::new(&spec).map_err(|error| errors::policy_use(error.to_string()))?;
        engine.set_seed(seed);
        let names = Arc::new(Names::new(py, &link));
        let wire = Wire::new(spec.rate, 1);
        Ok(Engine {
            engine,
            names,
            timer,
            now: 0,
            next: 0,
            wire,
            lost: keep_drops.then(Lost::default),
            link: Arc::new(link),
        })
    }

    /// The names of the classes by number, the link itself first.
    #[getter]
    fn classes(&self, py: Python<'_>) -> Vec<Py<PyString>> {
        (0..self.names.count() as ClassId)
            .filter_map(|class| self.names.python(class).map(|name| name.clone_ref(py)))
            .collect()
    }

    /// The latest time that the engine has seen, in ns.
    #[getter]
    fn now_ns(&self) -> u64 {
        self.now
    }

    /// Packets that wait.
    #[getter]
    fn backlog(&self) -> u32 {
        self.engine.backlog()
    }

    /// The link's rate, in bit/s.
    #[getter]
    fn rate_bit_s(&self) -> u64 {
        self.engine.rate().as_bit_s()
    }

    /// A packet arrives. True if it is queued, False if it is dropped.
    ///
    /// `packet_class` is the class's name or number, `length` 1 to 65535 bytes. `flow` (32 bits)
    /// tells flows apart where the queue does, `segments` is the number of packets on the wire that
    /// it stands for, `handle` (32 bits) comes back in the departure; without one packets are
    /// counted from 0. Raises PacketError.
    #[pyo3(signature = (now_ns, packet_class, length, *, flow=0, dscp=0, ecn=0, segments=1, handle=None))]
    #[allow(clippy::too_many_arguments)]
    fn enqueue(
        &mut self,
        now_ns: i64,
        packet_class: &Bound<'_, PyAny>,
        length: i64,
        flow: u32,
        dscp: i64,
        ecn: i64,
        segments: i64,
        handle: Option<u32>,
    ) -> PyResult<bool> {
        let class = self.names.class(packet_class)?;
        if !(1..=i64::from(LARGEST_PACKET)).contains(&length) {
            return Err(bad_length(length));
        }
        for (field, value, least, most) in
            [("dscp", dscp, 0, 63), ("ecn", ecn, 0, 3), ("segments", segments, 1, length)]
        {
            if !(least..=most).contains(&value) {
                return Err(bad_field(field, value, most));
            }
        }
        let now = self.at(now_ns)?;
        let handle = handle.unwrap_or(self.next);
        self.next = self.next.wrapping_add(1);
        let packet = Packet {
            flow,
            dscp: dscp as u8,
            ecn: ecn as u8,
            segments: segments as u16,
            ..Packet::new(handle, length as u32)
        };
        self.engine.enqueue(now, class, packet);
        Ok(!self.engine.has_drops() || !self.take_all_drops(Some(handle)).1)
    }

    /// The packet that leaves now; None if none may. Raises PacketError.
    fn dequeue(&mut self, now_ns: i64) -> PyResult<Option<Departure>> {
        let now = self.at(now_ns)?;
        let left = self.engine.dequeue(now);
        self.take_drops();
        Ok(left.map(|inner| Departure { inner, now, names: self.names.clone() }))
    }

    /// The earliest time at which dequeue may return a packet if nothing else happens, in ns; None:
    /// only after an arrival or a change.
    fn next_wakeup(&mut self) -> Option<u64> {
        let now = self.now;
        self.engine.next_wakeup().filter(|at| *at < Nanos::MAX).map(|at| at.max(now))
    }

    /// Packets arrive, in the order of time. A class or a length may be one for all. Returns how
    /// many packets were dropped. Raises PacketError before any is queued.
    #[pyo3(signature = (times, classes, lengths, *, flow=None, dscp=None, ecn=None, segments=None))]
    #[allow(clippy::too_many_arguments)]
    fn enqueue_many(
        &mut self,
        py: Python<'_>,
        times: &Bound<'_, PyAny>,
        classes: &Bound<'_, PyAny>,
        lengths: &Bound<'_, PyAny>,
        flow: Option<&Bound<'_, PyAny>>,
        dscp: Option<&Bound<'_, PyAny>>,
        ecn: Option<&Bound<'_, PyAny>>,
        segments: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let arrivals = self.arrivals(times, classes, lengths, flow, dscp, ecn, segments)?;
        Ok(py.detach(|| {
            let mut dropped = 0;
            for at in 0..arrivals.len() {
                let now = arrivals.time(at).unwrap_or(self.now);
                let packet = Packet { handle: self.next, ..arrivals.descriptor(at) };
                self.now = now;
                self.next = self.next.wrapping_add(1);
                self.engine.enqueue(now, arrivals.packet(at).0, packet);
                dropped += self.take_drops();
            }
            dropped
        }))
    }

    /// The packets that leave now, at most so many: time_ns, class, bytes, handle, arrived_ns,
    /// delay_ns.
    #[pyo3(signature = (now_ns, most=None))]
    fn dequeue_many(&mut self, py: Python<'_>, now_ns: i64, most: Option<usize>) -> PyResult<Table> {
        let now = self.at(now_ns)?;
        let left = py.detach(|| {
            let mut left = Left::with_capacity(most.unwrap_or(0).min(self.engine.backlog() as usize));
            for _ in 0..most.unwrap_or(usize::MAX) {
                let Some(departure) = self.engine.dequeue(now) else { break };
                left.push(now, &departure);
            }
            self.take_drops();
            left
        });
        left.table(&self.names)
    }

    /// Packets arrive, and leave on a wire of the link's rate that sends one after another, until
    /// nothing more can happen or until `until_ns`. Another run goes on from there. Returns what
    /// left: time_ns (handed over to the wire), class, bytes, handle, arrived_ns, delay_ns (from
    /// arrival to hand-over), wire_end_ns (the last bit has left). Other threads of Python go on
    /// meanwhile, and Ctrl-C ends it. Raises PacketError before any packet is queued.
    #[pyo3(signature = (times, classes, lengths, *, flow=None, dscp=None, ecn=None, segments=None, until_ns=None))]
    #[allow(clippy::too_many_arguments)]
    fn run(
        &mut self,
        py: Python<'_>,
        times: &Bound<'_, PyAny>,
        classes: &Bound<'_, PyAny>,
        lengths: &Bound<'_, PyAny>,
        flow: Option<&Bound<'_, PyAny>>,
        dscp: Option<&Bound<'_, PyAny>>,
        ecn: Option<&Bound<'_, PyAny>>,
        segments: Option<&Bound<'_, PyAny>>,
        until_ns: Option<u64>,
    ) -> PyResult<Table> {
        let arrivals = self.arrivals(times, classes, lengths, flow, dscp, ecn, segments)?;
        let until = until_ns.unwrap_or(Nanos::MAX);
        if let Some(last) = arrivals.len().checked_sub(1).and_then(|last| arrivals.time(last))
            && last > until
        {
            return Err(errors::packet(format!(
                "a packet arrives at {last} ns, after until_ns={until}; give the later packets to the next run"
            )));
        }
        let left = py.detach(|| self.go(&arrivals, until))?;
        left.table(&self.names)
    }

    /// The counters of a class with all below it, or of all classes by name. Packets and bytes:
    /// received = sent + dropped + backlog. `dropped` has the packets by reason.
    #[pyo3(signature = (of=None))]
    fn counters<'py>(&self, py: Python<'py>, of: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyDict>> {
        if let Some(of) = of {
            let class = self.names.class(of)?;
            return self.counted(py, class, &self.engine.counters(class));
        }
        let dict = PyDict::new(py);
        for (class, counters) in (ROOT..).zip(self.engine.all_counters()) {
            if let Some(name) = self.names.python(class) {
                dict.set_item(name, self.counted(py, class, &counters)?)?;
            }
        }
        Ok(dict)
    }

    /// The packets lost since the last call: time_ns, class, bytes, id (the handle), reason. Only
    /// with `keep_drops`.
    fn drops(&mut self) -> PyResult<Table> {
        match &mut self.lost {
            Some(lost) => std::mem::take(lost).table(&self.names),
            None => Err(PyValueError::new_err(
                "drops are only counted here, see counters(); an Engine(…, keep_drops=True) keeps each",
            )),
        }
    }

    /// Another rate of the link, while packets wait. Raises PolicyError.
    fn set_rate(&mut self, now_ns: i64, rate_bit_s: u64) -> PyResult<()> {
        let now = self.at(now_ns)?;
        let rate = Rate::bit_s(rate_bit_s);
        self.engine.apply(now, &Change::SetRate(rate)).map_err(|error| errors::policy_use(error.to_string()))?;
        self.wire.set_rate(rate);
        self.take_drops();
        Ok(())
    }

    /// Other words for a class, while its packets wait, such as "share 30% borrow": those of a
    /// policy, all that it has. Its queue stays. Raises PolicyError.
    fn set_class(&mut self, now_ns: i64, packet_class: &Bound<'_, PyAny>, words: &str) -> PyResult<()> {
        let class = self.names.class(packet_class)?;
        let Some(parent) = self.engine.parent(class) else {
            return Err(PyValueError::new_err("the link itself has no words of a class; set_rate changes its rate"));
        };
        if words.split_whitespace().any(|word| word == "queue") {
            return Err(errors::policy_use("the queue of a class stays as it is; leave the word queue out".into()));
        }
        let made = ClassWords::new(&self.link, self.link.spec.rate, parent, "program").class(parent, words);
        let settings = made.map_err(|wrong| errors::policy_use(wrong.to_string()))?.settings;
        let now = self.at(now_ns)?;
        let change = Change::SetClass { class, parent, settings };
        self.engine.apply(now, &change).map_err(|error| {
            errors::policy_use(match &error.help {
                Some(help) => format!("{error}; {help}"),
                None => error.to_string(),
            })
        })?;
        self.take_drops();
        Ok(())
    }

    fn __repr__(&self) -> String {
        let (link, now) = (&self.link.name, self.now);
        format!("<altq.Engine of link {link}: {} packets wait at {now} ns>", self.engine.backlog())
    }
}

impl Engine {
    /// Lets packets arrive and leave on a wire of the link's rate, until nothing more can happen or
    /// until a time.
    fn go(&mut self, arrivals: &Arrivals, until: Nanos) -> PyResult<Left> {
        let mut left = Left::with_capacity(arrivals.len());
        let mut ends = Vec::with_capacity(arrivals.len());
        let (mut next, mut steps) = (0, 0_u64);
        // Packets that wait from before may leave now.
        let mut timer = (self.engine.backlog() > 0).then_some(self.now);
        while let Some((now, event)) = drive::first(self.wire.next_end(), timer, arrivals.time(next)) {
            if now > until {
                break;
            }
            steps += 1;
            if steps.is_multiple_of(PACKETS_PER_LOOK) {
                Python::attach(|py| py.check_signals())?;
            }
            self.now = self.now.max(now);
            match event {
                Event::Complete => self.wire.complete(),
                Event::Timer => {}
                Event::Arrival => {
                    let packet = Packet { handle: self.next, ..arrivals.descriptor(next) };
                    self.next = self.next.wrapping_add(1);
                    self.engine.enqueue(now, arrivals.packet(next).0, packet);
                    next += 1;
                }
            }
            let filled = drive::fill(&mut self.engine, now, &mut self.wire, |departure, taken| {
                left.push(now, &departure);
                ends.push(taken.end.unwrap_or(now));
                Ok::<(), altq_simulator::wire::BeyondTime>(())
            });
            let filled = filled.map_err(|error| errors::packet(error.to_string()))?;
            timer = filled.wakeup(&mut self.engine, now, self.timer);
            self.take_drops();
        }
        if until < Nanos::MAX {
            self.now = self.now.max(until);
        }
        Ok(Left { ends: Some(ends), ..left })
    }
}
