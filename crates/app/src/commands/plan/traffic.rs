//! What the packets of a capture would get: each policy classifies them and sends them in virtual
//! time, at the times at which they were captured.

use std::collections::{BTreeMap, HashMap};
use std::io;

use altq_config::Link;
use altq_engine::classify::{CacheSettings, Classifier, FlowHash};
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::Nanos;
use altq_engine::{Departure, Drop};
use altq_simulator::replay::{self, Arrivals, Columns, Observer, Options};
use altq_simulator::sim::{Capture, Frame};

use super::shown::{Got, Move, Planned, key};

/// The seed of the hash that tells flows apart. A fixed one, so that a plan repeats.
const SEED: u64 = 1;
/// The longest packet of a replay, in bytes at layer 3.
const LONGEST: u32 = 65_535;

/// The packets of a capture, in the classes of a link.
struct Classified<'a> {
    link: &'a Link,
    /// The class of each packet; `None`: it is dropped, because no rule matches and there is no
    /// default.
    classes: Vec<Option<ClassId>>,
}

/// What comes of them.
struct Sent<'a> {
    link: &'a Link,
    /// When the last packet has come. What is sent until then counts for rates.
    until: Nanos,
    /// Bytes of each class that were sent until then, with those below it.
    bytes: Vec<u64>,
}

impl Observer for Sent<'_> {
    fn sent(&mut self, now: Nanos, _: usize, departure: &Departure, _: Nanos) -> io::Result<()> {
        if now > self.until {
            return Ok(());
        }
        let mut class = departure.class;
        loop {
            if let Some(bytes) = self.bytes.get_mut(class as usize) {
                *bytes += u64::from(departure.packet.len);
            }
            match self.link.spec.classes.get(class as usize) {
                Some(spec) if class != ROOT => class = spec.parent,
                _ => return Ok(()),
            }
        }
    }

    fn dropped(&mut self, _: usize, _: &Drop) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> Classified<'a> {
    fn new(link: &'a Link, frames: &[&Frame]) -> Classified<'a> {
        let settings = CacheSettings { flows: 0, ..CacheSettings::default() };
        let classifier = Classifier::with(&link.spec.rules, link.spec.default, settings);
        let rules = &link.spec.rules.rules;
        let class = |frame: &&Frame| {
            let ruled = classifier.rule(&frame.key).and_then(|rule| rules.get(rule)).map(|rule| rule.class);
            ruled.or(link.spec.default)
        };
        Classified { link, classes: frames.iter().map(class).collect() }
    }

    fn name(&self, class: Option<ClassId>) -> Option<String> {
        class.map(|class| self.link.class_name(class).to_owned())
    }

    /// What each class would get of the packets that the rules do not drop, by its key.
    fn got(&self, frames: &[&Frame]) -> Result<HashMap<&'a str, Got>, String> {
        let (hash, mut columns) = (FlowHash::new(SEED), Columns::default());
        let (mut flows, mut hosts) = (Vec::new(), Vec::new());
        let (mut dscp, mut ecn, mut high) = (Vec::new(), Vec::new(), Vec::new());
        for (frame, class) in frames.iter().zip(&self.classes) {
            let (frame_key, Some(class)) = (&frame.key, class) else { continue };
            columns.times.push(frame.time);
            columns.classes.push(*class);
            columns.bytes.push(u64::from(frame_key.length));
            flows.push(hash.flow(frame_key));
            hosts.push(hash.hosts(frame_key));
            dscp.push(u64::from(frame_key.tos >> 2));
            ecn.push(u64::from(frame_key.tos & 3));
            high.push(u64::from(frame.high));
        }
        (columns.flows, columns.hosts) = (Some(flows), Some(hosts));
        (columns.dscp, columns.ecn, columns.high) = (Some(dscp), Some(ecn), Some(high));
        let link = self.link;
        let arrivals = Arrivals::from_columns(link, columns).map_err(|error| error.to_string())?;
        let until = frames.last().map_or(0, |frame| frame.time);
        let mut sent = Sent { link, until, bytes: vec![0; link.classes.len()] };
        let report = replay::run(link, &arrivals, &Options::default(), &mut sent).map_err(|error| error.to_string())?;
        let rows = report.classes.iter().zip(sent.bytes).enumerate();
        Ok(rows.map(|(at, (row, bytes))| (key(link, at as ClassId), Got::new(row, bytes, until))).collect())
    }
}

/// Adds to a plan what the packets of a capture would get.
///
/// # Errors
/// The rate of a link with which nothing can be computed.
pub fn predict(
    planned: &mut Planned,
    before: Option<&Link>,
    after: Option<&Link>,
    capture: &Capture,
) -> Result<(), String> {
    let frames: Vec<&Frame> = capture.frames.iter().filter(|frame| (1..=LONGEST).contains(&frame.key.length)).collect();
    let odd = capture.frames.len() - frames.len();
    if odd > 0 {
        eprintln!("altq plan: {odd} packets are left out, which have no length that a packet may have");
    }
    let before = before.map(|link| Classified::new(link, &frames));
    let after = after.map(|link| Classified::new(link, &frames));
    if let (Some(before), Some(after)) = (&before, &after) {
        planned.moves = moves(before, after, &frames);
    }
    let old = before.as_ref().map(|classified| classified.got(&frames)).transpose()?.unwrap_or_default();
    let new = after.as_ref().map(|classified| classified.got(&frames)).transpose()?.unwrap_or_default();
    for class in &mut planned.classes {
        for (figures, got) in [(&mut class.before, &old), (&mut class.after, &new)] {
            if let Some(figures) = figures {
                figures.predicted = got.get(class.key.as_str()).cloned();
            }
        }
    }
    Ok(())
}

/// The packets that change their class, the most bytes first.
fn moves(before: &Classified<'_>, after: &Classified<'_>, frames: &[&Frame]) -> Vec<Move> {
    let mut sums: BTreeMap<(Option<ClassId>, Option<ClassId>), (u64, u64)> = BTreeMap::new();
    for (frame, classes) in frames.iter().zip(before.classes.iter().copied().zip(after.classes.iter().copied())) {
        let (packets, bytes) = sums.entry(classes).or_default();
        *packets += 1;
        *bytes += u64::from(frame.key.length);
    }
    let named = sums.into_iter().map(|((from, to), (packets, bytes))| {
        let (from, to) = (before.name(from), after.name(to));
        Move { from, to, packets, bytes }
    });
    let mut moves: Vec<Move> = named.filter(|one| one.from != one.to).collect();
    moves.sort_by_key(|one| std::cmp::Reverse(one.bytes));
    moves
}
