//! An adversary: it looks for a policy and for traffic that bring a packet as near to its promised
//! bound as can be, or beyond it.
//!
//! A search begins with the best of some random pairs of policy and traffic and climbs: it changes
//! a pair a little, and keeps what comes no less near to the bound of the watched class. After a
//! while without progress it begins anew. The watched class keeps to what `assumes` says of its
//! source; all others send what they like. Every run is held to all laws of [`run`], whatever class
//! is watched.
#![allow(dead_code)]

pub mod laws;
pub mod minimise;
pub mod policy;
pub mod random;
pub mod run;
pub mod traffic;

use altq_engine::Change;
use altq_engine::schedule;
use altq_engine::units::Nanos;

use laws::Laws;
use policy::Policy;
use random::Random;
use run::{Event, Outcome};
use traffic::Scale;

/// Random pairs among which a search begins.
const BEGINNINGS: u32 = 24;
/// Changes without progress after which a search ends.
const PATIENCE: u32 = 150;

/// A policy and its traffic.
pub struct Pair {
    pub policy: Policy,
    pub laws: Laws,
    pub scale: Scale,
    pub events: Vec<Event>,
    pub outcome: Outcome,
}

/// Something that broke a law.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The schedulers above the class that was watched, the link's first.
    pub path: Vec<&'static str>,
    pub what: String,
    /// The policy in the native language.
    pub policy: String,
    pub events: Vec<Event>,
    pub changes: Vec<(Nanos, Change)>,
}

/// What a search has done.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Pairs that were run.
    pub pairs: u64,
    /// The nearest approach, by schedulers of the watched class.
    pub nearest: Vec<(Vec<&'static str>, f64)>,
    pub violations: Vec<Violation>,
}

impl Found {
    pub fn add(&mut self, other: Found) {
        self.pairs += other.pairs;
        other.nearest.into_iter().for_each(|(path, near)| self.note(path, near));
        self.violations.extend(other.violations);
    }

    fn note(&mut self, path: Vec<&'static str>, near: f64) {
        match self.nearest.iter_mut().find(|(known, _)| *known == path) {
            Some((_, most)) => *most = most.max(near),
            None => self.nearest.push((path, near)),
        }
    }
}

/// All schedulers of the registry.
pub fn all() -> Vec<&'static str> {
    schedule::SCHEDULERS.iter().map(|entry| entry.name).collect()
}

/// The schedulers of a search: one alone, a pair, or three deep, of these. `about` is one of them
/// where it is given.
pub fn schedulers(
    random: &Random,
    among: &[&'static str],
    about: Option<&'static str>,
    deep: usize,
) -> Vec<&'static str> {
    let depth = random.pick(&[1, 1, 1, 2, 2, 3]).min(deep as u64);
    let mut names: Vec<&'static str> = (0..depth).map(|_| random.pick(among)).collect();
    if let Some(about) = about {
        let at = random.below(depth) as usize;
        names[at] = about;
    }
    names
}

/// A pair at random. `None` if the policy is refused, or promises nobody a bound.
pub fn fresh(random: &Random, names: &[&'static str]) -> Option<Pair> {
    let (outer, inner) = names.split_first()?;
    let policy = policy::fresh(random, outer, inner);
    let laws = Laws::read(policy.text())?;
    let mut watched = laws.watched();
    // The deepest have most above them.
    let deepest = watched.iter().map(|class| laws.path(*class).len()).max()?;
    if random.chance(70) {
        watched.retain(|class| laws.path(*class).len() == deepest);
    }
    let scale = Scale::of(&laws, random.pick(&watched));
    let events = traffic::fresh(random, &laws, &scale);
    let outcome = run::run(&laws, &events, &[], scale.watched);
    Some(Pair { policy, laws, scale, events, outcome })
}

/// One search: fresh pairs, then a climb from the nearest of them.
///
/// A violation whose message has one of the words of `without` is passed over.
pub fn search(random: &Random, names: &[&'static str], without: &[String]) -> Found {
    let told = |violation: Option<Violation>| {
        violation.filter(|violation| !without.iter().any(|word| violation.what.contains(word)))
    };
    let mut found = Found::default();
    let mut best: Option<Pair> = None;
    for _ in 0..BEGINNINGS {
        let Some(pair) = fresh(random, names) else { continue };
        found.pairs += 1;
        if let Some(violation) = told(broken(&pair, &[])) {
            found.violations.push(violation);
            return found;
        }
        if let Some(violation) = told(unchanged(random, &pair, &mut found.pairs)) {
            found.violations.push(violation);
            return found;
        }
        if let Some(violation) = told(changed(random, &pair, &mut found.pairs)) {
            found.violations.push(violation);
            return found;
        }
        if best.as_ref().is_none_or(|best| best.outcome.nearest <= pair.outcome.nearest) {
            best = Some(pair);
        }
    }
    let Some(mut best) = best else { return found };
    let mut idle = 0;
    while idle < PATIENCE {
        idle += 1;
        let Some(next) = near(random, &best) else { continue };
        found.pairs += 1;
        if let Some(violation) = told(broken(&next, &[])) {
            found.violations.push(violation);
            break;
        }
        if random.chance(5)
            && let Some(violation) = told(unchanged(random, &next, &mut found.pairs))
        {
            found.violations.push(violation);
            break;
        }
        if random.chance(5)
            && let Some(violation) = told(changed(random, &next, &mut found.pairs))
        {
            found.violations.push(violation);
            break;
        }
        if next.outcome.nearest >= best.outcome.nearest {
            if next.outcome.nearest > best.outcome.nearest {
                idle = 0;
            }
            best = next;
        }
    }
    found.note(best.laws.path(best.scale.watched), best.outcome.nearest);
    found
}

/// A pair that is a little different.
fn near(random: &Random, best: &Pair) -> Option<Pair> {
    let (mut policy, mut events) = (best.policy.clone(), best.events.clone());
    let watched = best.scale.watched;
    let other = random.chance(20);
    if other {
        policy.mutate(random);
    }
    let text = if other { policy.text() } else { best.laws.text.clone() };
    let laws = Laws::read(text)?;
    // A mutation changes words, not classes; but a promise may be gone.
    let law = laws.classes.get(watched as usize)?;
    law.conforming?;
    let scale = Scale::of(&laws, watched);
    let many = if other && random.chance(50) { 0 } else { 1 + random.below(3) };
    for _ in 0..many {
        traffic::mutate(random, &laws, &scale, &mut events, &best.outcome.times);
    }
    traffic::settle(&laws, &scale, &mut events);
    let outcome = run::run(&laws, &events, &[], watched);
    Some(Pair { policy, laws, scale, events, outcome })
}

fn broken(pair: &Pair, changes: &[(Nanos, Change)]) -> Option<Violation> {
    let what = pair.outcome.broken.clone()?;
    Some(violation(pair, what, changes))
}

fn violation(pair: &Pair, what: String, changes: &[(Nanos, Change)]) -> Violation {
    Violation {
        path: pair.laws.path(pair.scale.watched),
        what,
        policy: pair.laws.text.clone(),
        events: pair.events.clone(),
        changes: changes.to_vec(),
    }
}

/// Runs the pair with changes that change nothing: then every packet leaves when it left without.
fn unchanged(random: &Random, pair: &Pair, pairs: &mut u64) -> Option<Violation> {
    let mut changes = Vec::new();
    let end = pair.outcome.times.last().copied().unwrap_or(0);
    for _ in 0..1 + random.below(12) {
        let at = if pair.outcome.times.is_empty() || random.chance(30) {
            random.below(end.max(1))
        } else {
            random.pick(&pair.outcome.times)
        };
        changes.push((at, nothing(random, &pair.laws)));
    }
    changes.sort_by_key(|(at, _)| *at);
    *pairs += 1;
    let outcome = run::run(&pair.laws, &pair.events, &changes, pair.scale.watched);
    if let Some(what) = outcome.broken {
        return Some(violation(pair, what, &changes));
    }
    let first = pair.outcome.left.iter().zip(&outcome.left).find(|(before, after)| before != after);
    if first.is_none() && pair.outcome.left.len() == outcome.left.len() {
        return None;
    }
    let what = format!("changes that change nothing change a departure: {first:?} (class, packet, time)");
    Some(violation(pair, what, &changes))
}

/// Runs the pair while another class is given more or less beyond its guarantee, and back: what
/// both policies promise holds.
fn changed(random: &Random, pair: &Pair, pairs: &mut u64) -> Option<Violation> {
    let n = pair.laws.classes.len() as u64;
    let class = 1 + random.below(n - 1) as u32;
    let mut policy = pair.policy.clone();
    if class == pair.scale.watched || !policy.change_excess(random, class) {
        return None;
    }
    let other = Laws::read(policy.text())?;
    let mut laws = Laws::read(pair.laws.text.clone())?;
    laws.retain_common(&other);
    laws.broken = None;
    let mut changes = Vec::new();
    for _ in 0..1 + random.below(6) {
        let times = &pair.outcome.times;
        let at = if times.is_empty() { 0 } else { random.pick(times) };
        let from = if random.chance(50) { &laws } else { &other };
        let of = &from.link.spec.classes[class as usize];
        changes.push((at, Change::SetClass { class, parent: of.parent, settings: of.settings.clone() }));
    }
    changes.sort_by_key(|(at, _)| *at);
    *pairs += 1;
    let outcome = run::run(&laws, &pair.events, &changes, pair.scale.watched);
    Some(violation(pair, outcome.broken?, &changes))
}

/// One pair, a few that are near to it, and changes while they run: what breaks, if anything does.
pub fn one(random: &Random, names: &[&'static str]) -> Option<Violation> {
    let mut pairs = 0;
    let mut pair = fresh(random, names)?;
    for _ in 0..random.below(5) {
        if pair.outcome.broken.is_some() {
            break;
        }
        pair = near(random, &pair).unwrap_or(pair);
    }
    let found = broken(&pair, &[]).or_else(|| unchanged(random, &pair, &mut pairs));
    found.or_else(|| changed(random, &pair, &mut pairs))
}

/// A change to what there is already.
fn nothing(random: &Random, laws: &Laws) -> Change {
    let spec = &laws.link.spec;
    let class = 1 + random.below(spec.classes.len() as u64 - 1) as u32;
    let of = &spec.classes[class as usize];
    match random.below(5) {
        0 => Change::SetRate(spec.rate),
        1 => {
            let (class, settings) = match &of.scheduler {
                Some(held) => (class, held.settings.clone()),
                None => (0, spec.scheduler.settings.clone()),
            };
            Change::SetScheduler { class, settings }
        }
        _ => Change::SetClass { class, parent: of.parent, settings: of.settings.clone() },
    }
}
