//! Links on which a program learns which class to send next; `altq.gym` makes environments of them.
//!
//! Each class has the queue that the policy gives it, in an engine of its own that orders nothing.
//! Which class sends next is the program's choice, so the policy's scheduler has no part in it. The
//! wire has the link's rate and overhead.

use std::collections::VecDeque;

use altq_config::Link;
use altq_engine::spec::{ClassId, ClassSpec, LinkSpec, ROOT, SchedulerSpec};
use altq_engine::units::Nanos;
use altq_engine::{Engine, Packet};
use altq_simulator::wire::Wire;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors;
use crate::policy::Policy;
use crate::source::{Plan, Source};

/// The packets of a class that wait, oldest first, by handle.
#[derive(Debug, Default)]
struct Waiting {
    /// When each arrived; `None` for one that is gone while an older one waits.
    arrived: VecDeque<Option<Nanos>>,
    /// The handle of the first.
    first: u32,
}

impl Waiting {
    /// Adds a packet; returns its handle.
    #[inline]
    fn add(&mut self, now: Nanos) -> u32 {
        self.arrived.push_back(Some(now));
        self.first.wrapping_add(self.arrived.len() as u32 - 1)
    }

    /// Takes a packet out.
    #[inline]
    fn remove(&mut self, handle: u32) {
        if let Some(slot) = self.arrived.get_mut(handle.wrapping_sub(self.first) as usize) {
            *slot = None;
        }
        while self.arrived.front().is_some_and(Option::is_none) {
            self.arrived.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// When the oldest arrived.
    #[inline]
    fn oldest(&self) -> Option<Nanos> {
        self.arrived.front().copied().flatten()
    }
}

/// A class of a link that a program learns on.
struct Lane {
    queue: Engine,
    source: Option<Source>,
    waiting: Waiting,
    packets: u64,
    /// Packets · ns that were waited since the beginning of the step, up to `since`.
    waited: u128,
    since: Nanos,
    sent_bytes: u64,
    dropped: u64,
    /// Since the beginning of the episode: packets arrived, sent and dropped, and bytes sent.
    totals: [u64; 4],
}

impl Lane {
    /// Counts what waited up to now.
    #[inline]
    fn account(&mut self, now: Nanos) {
        self.waited += u128::from(self.packets) * u128::from(now - self.since);
        self.since = now;
    }

    #[inline]
    fn take_drops(&mut self) {
        if !self.queue.has_drops() {
            return;
        }
        for drop in self.queue.drops() {
            self.waiting.remove(drop.packet.handle);
            self.dropped += 1;
            self.totals[2] += 1;
        }
    }

    #[inline]
    fn count(&mut self) {
        self.packets = u64::from(self.queue.backlog());
    }

    fn arrive(&mut self, now: Nanos) {
        let Some(bytes) = self.source.as_mut().map(Source::take) else { return };
        self.account(now);
        let handle = self.waiting.add(now);
        self.queue.enqueue(now, ROOT, Packet::new(handle, bytes));
        self.totals[0] += 1;
        self.take_drops();
        self.count();
    }

    /// Sends a packet; returns the bytes that it takes on the wire.
    fn send(&mut self, now: Nanos) -> Option<u32> {
        self.account(now);
        let left = self.queue.dequeue(now);
        self.take_drops();
        self.count();
        let packet = left?.packet;
        self.waiting.remove(packet.handle);
        self.sent_bytes += u64::from(packet.len);
        self.totals[1] += 1;
        self.totals[3] += u64::from(packet.len);
        Some(packet.wire)
    }
}

/// How many packets in a row may be dropped on arrival while nothing waits. Then nobody could ever
/// send anything.
const MOST_IN_VAIN: u32 = 100_000;

/// What all episodes have in common.
struct Common {
    specs: Vec<LinkSpec>,
    plans: Vec<Option<Plan>>,
    weights: Vec<f64>,
    drop_cost: f64,
    steps: u64,
}

/// A link in an episode.
struct World {
    lanes: Vec<Lane>,
    wire: Wire,
    now: Nanos,
    steps: u64,
    seed: u64,
    /// The episode is over; the next step begins another.
    over: bool,
}

impl World {
    fn new(common: &Common, seed: u64) -> PyResult<World> {
        let mut lanes = Vec::with_capacity(common.specs.len());
        for (at, (spec, plan)) in common.specs.iter().zip(&common.plans).enumerate() {
            let mut queue = Engine::new(spec).map_err(|error| errors::policy_use(error.to_string()))?;
            queue.set_seed(seed);
            lanes.push(Lane {
                queue,
                source: plan.map(|plan| Source::new(plan, seed, at as u64)),
                waiting: Waiting::default(),
                packets: 0,
                waited: 0,
                since: 0,
                sent_bytes: 0,
                dropped: 0,
                totals: [0; 4],
            });
        }
        let rate = common.specs.first().map_or(altq_engine::units::Rate::mbit_s(1), |spec| spec.rate);
        let mut world = World { lanes, wire: Wire::new(rate, 1), now: 0, steps: 0, seed, over: false };
        world.skip()?;
        world.begin();
        Ok(world)
    }

    /// The next arrival: when, and of which class.
    #[inline]
    fn arrival(&self) -> Option<(Nanos, usize)> {
        let next = |(at, lane): (usize, &Lane)| lane.source.as_ref().map(|source| (source.next, at));
        self.lanes.iter().enumerate().filter_map(next).min()
    }

    /// Lets packets arrive before a time.
    #[inline]
    fn arrive_before(&mut self, end: Nanos) {
        while let Some((at, lane)) = self.arrival().filter(|(at, _)| *at < end) {
            self.lanes[lane].arrive(at);
        }
    }

    /// Goes on to the next arrival while nothing waits.
    fn skip(&mut self) -> PyResult<()> {
        let mut in_vain = 0;
        while self.lanes.iter().all(|lane| lane.packets == 0) {
            let Some((at, lane)) = self.arrival() else { return Ok(()) };
            if in_vain == MOST_IN_VAIN {
                return Err(errors::packet(format!(
                    "the queues have dropped {MOST_IN_VAIN} packets in a row while nothing waited; give them more room"
                )));
            }
            in_vain += 1;
            self.now = self.now.max(at);
            self.lanes[lane].arrive(at);
        }
        Ok(())
    }

    /// Begins a step: counts from here.
    fn begin(&mut self) {
        for lane in &mut self.lanes {
            (lane.waited, lane.since, lane.sent_bytes, lane.dropped) = (0, self.now, 0, 0);
        }
    }

    /// Sends a packet of a class, or waits for the next arrival if it has none. Returns the reward.
    fn step(&mut self, common: &Common, action: usize) -> PyResult<f64> {
        self.begin();
        let now = self.now;
        let end = match self.lanes.get_mut(action) {
            Some(lane) if lane.packets > 0 => match lane.send(now) {
                Some(bytes) => {
                    let sent = self.wire.send(now, bytes);
                    self.wire.complete();
                    sent.map_err(|error| errors::packet(error.to_string()))?
                }
                // The queue has dropped all that it had.
                None => now,
            },
            _ => match self.arrival() {
                // Behind the arrival, so that it belongs to this step.
                Some((at, _)) => at.max(now).saturating_add(1),
                None => now,
            },
        };
        self.arrive_before(end);
        self.now = end;
        self.skip()?;
        let mut reward = 0.0;
        for (lane, weight) in self.lanes.iter_mut().zip(&common.weights) {
            lane.account(self.now);
            reward -= weight * (lane.waited as f64 / 1e6 + common.drop_cost * lane.dropped as f64);
        }
        self.steps += 1;
        self.over = self.steps >= common.steps;
        Ok(reward)
    }

    /// Adds what is observed of each class: packets and bytes that wait, for how long the first has
    /// waited (ms), bytes sent and packets dropped in the last step.
    fn observe(&self, out: &mut Vec<f32>) {
        for lane in &self.lanes {
            let waited = lane.waiting.oldest().map_or(0, |arrived| self.now.saturating_sub(arrived));
            let bytes = lane.queue.own_counters(ROOT).queued_bytes;
            out.extend([
                lane.packets as f32,
                bytes as f32,
                (waited as f64 / 1e6) as f32,
                lane.sent_bytes as f32,
                lane.dropped as f32,
            ]);
        }
    }
}

/// Several links side by side.
#[pyclass(module = "altq._altq")]
pub struct Worlds {
    common: Common,
    names: Vec<String>,
    worlds: Vec<World>,
    /// Room for an observation.
    seen: Vec<f32>,
}

/// The classes that have packets of their own, and the link of each one's queue alone.
fn lanes(link: &Link) -> Vec<(ClassId, LinkSpec)> {
    let holders = link.holders();
    let mut lanes = Vec::new();
    for (class, _) in (ROOT..).zip(&holders).filter(|(class, holds)| *class != ROOT && **holds) {
        let alone = ClassSpec { queue: link.queue(class), ..ClassSpec::root() };
        let mut spec = LinkSpec::new(link.spec.rate, SchedulerSpec::plain(), vec![alone]);
        (spec.mtu, spec.overhead, spec.default) = (link.spec.mtu, link.spec.overhead, Some(ROOT));
        lanes.push((class, spec));
    }
    lanes
}

/// Whether an empty queue takes a packet of this length.
fn has_room(spec: &LinkSpec, bytes: u32) -> PyResult<bool> {
    let mut queue = Engine::new(spec).map_err(|error| errors::policy_use(error.to_string()))?;
    queue.enqueue(0, ROOT, Packet::new(0, bytes));
    Ok(queue.backlog() > 0)
}

#[pymethods]
impl Worlds {
    #[new]
    #[pyo3(signature = (policy, link, traffic, weights, drop_cost, steps, count))]
    #[allow(clippy::too_many_arguments, clippy::type_complexity)]
    fn new(
        policy: &Policy,
        link: Option<&str>,
        traffic: Vec<(String, String, u64, u64, u64, u64)>,
        weights: Vec<(String, f64)>,
        drop_cost: f64,
        steps: u64,
        count: usize,
    ) -> PyResult<Worlds> {
        let link = policy.link(link)?;
        let lanes = lanes(link);
        let names: Vec<String> = lanes.iter().map(|(class, _)| link.class_name(*class).to_owned()).collect();
        if lanes.is_empty() || count == 0 || steps == 0 {
            return Err(PyValueError::new_err("an environment has at least one class, one link and one step"));
        }
        let place = |name: &str| {
            names.iter().position(|own| own == name).ok_or_else(|| {
                PyValueError::new_err(format!(
                    "no class {name:?} has packets of its own; classes: {}",
                    names.join(", ")
                ))
            })
        };
        let mut plans = vec![None; names.len()];
        for (class, kind, rate, bytes, on, off) in &traffic {
            plans[place(class)?] = Some(Plan::new(class, kind, *rate, *bytes, *on, *off)?);
        }
        if plans.iter().all(Option::is_none) {
            return Err(PyValueError::new_err("no class has traffic, so there is nothing to choose"));
        }
        let mut own = vec![1.0; names.len()];
        for (class, weight) in &weights {
            if !weight.is_finite() || *weight < 0.0 {
                return Err(PyValueError::new_err(format!(
                    "the weight of {class} is a number from 0 on, and not {weight}"
                )));
            }
            own[place(class)?] = *weight;
        }
        if !drop_cost.is_finite() || drop_cost < 0.0 {
            return Err(PyValueError::new_err(format!("drop_cost is a number from 0 on, and not {drop_cost}")));
        }
        let specs: Vec<LinkSpec> = lanes.into_iter().map(|(_, spec)| spec).collect();
        for ((spec, plan), name) in specs.iter().zip(&plans).zip(&names) {
            let Some(plan) = plan else { continue };
            if !has_room(spec, plan.bytes)? {
                let bytes = plan.bytes;
                return Err(PyValueError::new_err(format!(
                    "traffic of {name}: its queue drops each packet of {bytes} bytes, also if it is empty; make the \
                     limit of the queue larger, or packets shorter"
                )));
            }
        }
        let common = Common { specs, plans, weights: own, drop_cost, steps };
        let worlds = (0..count as u64).map(|seed| World::new(&common, seed)).collect::<PyResult<Vec<_>>>()?;
        Ok(Worlds { common, names, worlds, seen: Vec::new() })
    }

    /// The names of the classes, in the order of actions and observations.
    #[staticmethod]
    #[pyo3(signature = (policy, link=None))]
    fn lanes(policy: &Policy, link: Option<&str>) -> PyResult<Vec<(String, Option<u64>)>> {
        let link = policy.link(link)?;
        let one = |(class, _): (ClassId, LinkSpec)| {
            let rate = link.guarantee(class).map(|rate| rate.as_bit_s());
            (link.class_name(class).to_owned(), rate)
        };
        Ok(lanes(link).into_iter().map(one).collect())
    }

    /// The names of the classes.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// Begins new episodes, a seed for each.
    fn reset(&mut self, seeds: Vec<u64>) -> PyResult<()> {
        if seeds.len() != self.worlds.len() {
            let (given, wanted) = (seeds.len(), self.worlds.len());
            return Err(PyValueError::new_err(format!("{given} seeds for {wanted} environments")));
        }
        for (world, seed) in self.worlds.iter_mut().zip(seeds) {
            *world = World::new(&self.common, seed)?;
        }
        Ok(())
    }

    /// What is observed of all links: float32, by link, class and feature, in one dimension.
    fn observe<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        self.seen.clear();
        for world in &self.worlds {
            world.observe(&mut self.seen);
        }
        PyArray1::from_slice(py, &self.seen)
    }

    /// Which classes have packets, by link and class, 1 or 0, in one dimension.
    fn masks<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i8>> {
        let has = |lane: &Lane| i8::from(lane.packets > 0);
        PyArray1::from_vec(py, self.worlds.iter().flat_map(|world| world.lanes.iter().map(has)).collect())
    }

    /// One step of the first link: the reward, and whether the episode is over.
    fn step_one(&mut self, action: usize) -> PyResult<(f64, bool)> {
        if action >= self.names.len() {
            let most = self.names.len().saturating_sub(1);
            return Err(PyValueError::new_err(format!("the action {action} is not one of 0 to {most}")));
        }
        match self.worlds.first_mut() {
            Some(world) => Ok((world.step(&self.common, action)?, world.over)),
            None => Ok((0.0, true)),
        }
    }

    /// One step of each link: rewards, and whether episodes are over. A link whose episode was over
    /// begins another instead, whose seed is that of the one before plus the number of links.
    #[allow(clippy::type_complexity)]
    fn step<'py>(
        &mut self,
        py: Python<'py>,
        actions: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<bool>>)> {
        let actions: Vec<i64> = match actions.as_slice() {
            Ok(actions) => actions.to_vec(),
            // A column of records, say, which may lie at any address: Python reads it.
            Err(_) => actions.call_method0("tolist")?.extract()?,
        };
        let (count, most) = (self.worlds.len(), self.names.len());
        if actions.len() != count {
            return Err(PyValueError::new_err(format!("{} actions for {count} environments", actions.len())));
        }
        if let Some(wrong) = actions.iter().find(|action| !(0..most as i64).contains(*action)) {
            return Err(PyValueError::new_err(format!("the action {wrong} is not one of 0 to {}", most - 1)));
        }
        let (common, worlds) = (&self.common, &mut self.worlds);
        let stepped: PyResult<Vec<(f64, bool)>> = py.detach(|| {
            let one = |(world, action): (&mut World, i64)| {
                if world.over {
                    *world = World::new(common, world.seed.wrapping_add(count as u64))?;
                    return Ok((0.0, false));
                }
                Ok((world.step(common, action as usize)?, world.over))
            };
            worlds.iter_mut().zip(actions).map(one).collect()
        });
        let (rewards, over): (Vec<f64>, Vec<bool>) = stepped?.into_iter().unzip();
        Ok((PyArray1::from_vec(py, rewards), PyArray1::from_vec(py, over)))
    }

    /// The virtual time of each link, in ns.
    #[getter]
    fn now_ns(&self) -> Vec<u64> {
        self.worlds.iter().map(|world| world.now).collect()
    }

    /// Of each class of a link: packets arrived, sent, dropped, and bytes sent, in this episode.
    fn totals(&self, link: usize) -> PyResult<Vec<[u64; 4]>> {
        match self.worlds.get(link) {
            Some(world) => Ok(world.lanes.iter().map(|lane| lane.totals).collect()),
            None => Err(PyValueError::new_err(format!("there is no environment {link}"))),
        }
    }
}
