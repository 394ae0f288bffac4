//! A column of a case, checked against its policy and ready to run.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use altq_cases::case::{
    Case, ClassChange, ClassName, Column, Expectation, Governed, Links, Measure, PolicyError, Probe, Subject,
    TimedEvent, What,
};
use altq_cases::result::{CaseResult, World};
use altq_cases::stat::ReadCounters;
use altq_cases::task::Progress;
use altq_config::Link;
use altq_engine::headers::Key;
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::{Change, Engine};
use altq_simulator::sim::{ChangePlanner, encapsulate, flow_key};

use super::figures::{self, nanos};
use super::generator::{Flow, Kind};
use super::host::{self, Host, LocalProgram};
use super::lower::{self, Lowered, Options};
use super::shaper;
use super::topology::{Side, Unsupported};
use super::{BadCase, BadPolicy};

/// A column, checked and ready to run.
pub struct Prepared<'a> {
    pub column: &'a Column,
    pub lowered: Lowered<'a>,
    /// The shaped links, as altq's bridge runs them.
    pub links: Vec<Link>,
    /// The direction that each of them governs.
    pub ways: Vec<Governed<'a>>,
    /// The same links with the classes that events add during the run.
    pub grown: Vec<Link>,
    /// Changes during the run, in order of time: the time, the index of the link, and the change.
    pub changes: Vec<(Duration, usize, Change)>,
    /// The case's expectations, and whether each concerns this column and the lab can judge it.
    pub expectations: Vec<(&'a Expectation, bool)>,
    /// All links of the policy. The engine of each may be measured without traffic.
    pub policy: Vec<Link>,
    /// Indices of the expectations that the lab cannot judge.
    pub unjudged: Vec<usize>,
    /// True if the length that a packet has on the shaped wire is known: the link charges that
    /// length, or `hosts` emulate the medium.
    pub framed: bool,
    /// The hosts of the shaped links, in the order of `links`, if they must be imitated
    /// (`host.rs`); otherwise empty.
    pub hosts: Vec<Host>,
    /// Is told how far the run is.
    pub progress: Option<Arc<Progress>>,
    /// Reads counters as `tc -s` prints them.
    pub counters: ReadCounters,
}

impl<'a> Prepared<'a> {
    /// Checks a column.
    ///
    /// # Errors
    /// As [`super::run_case`].
    pub fn new(case: &'a Case, column: &'a Column, options: &Options) -> anyhow::Result<Prepared<'a>> {
        if let Some(why) = case.elsewhere(column, World::Lab) {
            return Err(Unsupported(why.to_owned()).into());
        }
        let policy = column.load(case).map_err(|error| match error {
            PolicyError::Refused(failed) => anyhow::Error::from(BadPolicy(failed)),
            PolicyError::Text(text) => BadCase(text).into(),
        })?;
        let named = |name: &Option<String>| match name {
            None => Ok(None),
            Some(name) => match policy.links.iter().find(|link| link.name == *name) {
                Some(link) => Ok(Some(link)),
                None => Err(BadCase(format!("case {}: the policy has no link `{name}`", case.name))),
            },
        };
        let mtu = policy.links.first().map_or(1500, |link| link.spec.mtu);
        let mut lowered = lower::lower(case, mtu, column.timer, options)?;
        let (link, reverse) = (named(&lowered.link.policy)?, named(&lowered.link.reverse)?);
        if [link, reverse].into_iter().flatten().any(|link| link.adapt.is_some()) {
            return Err(Unsupported("the lab does not probe lines, so a rate cannot adapt in it".to_owned()).into());
        }
        let shaped = lowered.link;
        let governed: Vec<Governed<'_>> =
            case.governed().into_iter().filter(|way| way.link == lowered.link_at).collect();
        let ways: Vec<(&Link, bool)> =
            link.map(|link| (link, false)).into_iter().chain(reverse.map(|link| (link, true))).collect();
        let apart = host::is_needed(shaped, &ways, column.timer)
            || lowered.flows.iter().any(|flow| flow.send_results().is_some());
        if apart && lowered.hosts.offload {
            lowered.hosts.offload = false;
            lowered.notes.push("hosts send no super-packets, because the link's ring holds single packets".into());
        }
        let host = |(_, back): &(&Link, bool)| {
            let side = if *back { Side::Sinks } else { Side::Sources };
            let programs = lowered.flows.iter().filter(|flow| flow.side == side).filter_map(program);
            Host::new(shaped, &ways, *back, column.timer, programs.collect())
        };
        let hosts: Vec<Host> = if apart { ways.iter().map(host).collect() } else { Vec::new() };
        for (way, side) in [(link, Side::Sources), (reverse, Side::Sinks)] {
            if let Some(flow) = lowered.flows.iter().find(|flow| way.is_none() && flow.side == side) {
                lowered.notes.push(format!(
                    "flow `{}` crosses the shaped link in the direction that has no policy, so it is not shaped",
                    flow.name
                ));
            }
        }
        let placed: Vec<(&Link, &Governed<'_>)> = ways.iter().map(|(link, _)| *link).zip(&governed).collect();
        let links = shaper::wires(&placed, apart);
        let wrong = |name: &ClassName, why: &str| BadCase(case.wrong(column, name, why).to_string());
        let (grown, changes) = changes(case, lowered.link_at, &links, &governed, &wrong)?;
        let framed = apart
            || shaped.medium.is_none_or(|medium| links.iter().all(|link| link.spec.overhead == medium.overhead()));
        let mut unjudged = Vec::new();
        for (at, e) in case.expectations.iter().enumerate().filter(|(_, e)| e.concerns(column, World::Lab)) {
            if !lab_measures(case, &lowered.flows, framed, &e.probe) {
                let name = case.expectation_name(column, &e.name);
                lowered.notes.push(format!("{name}: left out, because the lab does not measure it"));
                unjudged.push(at);
            }
        }
        let here = |(at, e): (usize, &'a Expectation)| (e, e.concerns(column, World::Lab) && !unjudged.contains(&at));
        let expectations: Vec<(&Expectation, bool)> = case.expectations.iter().enumerate().map(here).collect();
        let asked = expectations.iter().filter(|(_, here)| *here).map(|(e, _)| &e.probe);
        for probe in asked.chain(case.figures.iter().filter_map(|f| f.probe())) {
            let subject = match &probe.subject {
                Subject::Class(class) => Some(class),
                _ => None,
            };
            let known = self::links(if of_engine(probe.measure) { &policy.links } else { &grown });
            for name in subject.into_iter().chain(&probe.of) {
                known.find(&name.text).map_err(|why| wrong(name, &why))?;
            }
        }
        Ok(Prepared {
            column,
            lowered,
            links,
            ways: governed,
            grown,
            changes,
            expectations,
            policy: policy.links,
            unjudged,
            framed,
            hosts,
            progress: options.progress.clone(),
            counters: options.counters,
        })
    }

    /// All probes that are measured in this column.
    pub fn asked<'b>(&'b self, case: &'b Case) -> impl Iterator<Item = &'b Probe> {
        let expectations = self.expectations.iter().filter(|(_, here)| *here).map(|(e, _)| &e.probe);
        expectations.chain(case.figures.iter().filter_map(|figure| figure.probe()))
    }

    /// All moments at which the meters must be read, those in `also` included.
    pub fn moments(&self, case: &Case, also: impl IntoIterator<Item = Duration>) -> Vec<Duration> {
        let mut times = BTreeSet::from([nanos(case.warmup), nanos(case.duration)]);
        times.extend(self.asked(case).flat_map(|probe| [nanos(probe.from), nanos(probe.to)]));
        times.extend(also);
        times.into_iter().collect()
    }

    /// The class of each flow, as the policy's rules classify it: the index of its link, and its
    /// number. If the case names another class for a flow, the result becomes invalid.
    pub fn classes(&self, case: &Case, result: &mut CaseResult) -> anyhow::Result<Vec<Option<(usize, ClassId)>>> {
        let mut found = Vec::new();
        let all = links(&self.grown);
        for (flow, own) in self.lowered.flows.iter().zip(&case.flows) {
            // A flow from the sinks is classified by the link of the reverse direction.
            let back = flow.side == Side::Sinks;
            let place = self.ways.iter().position(|way| way.back == back);
            let class = match place.and_then(|at| Some((at, self.links.get(at)?))) {
                None => None,
                Some((at, link)) => {
                    let mut engine =
                        Engine::new(&link.spec).map_err(|error| BadCase(format!("link `{}`: {error}", link.name)))?;
                    // Inside a tunnel the rules see the outer header.
                    let tunnel = self.lowered.link.tunnel.filter(|_| flow.from.is_ipv6());
                    let own = tunnel.map_or(key(flow), |tunnel| encapsulate(tunnel, &key(flow), back));
                    engine.classify(&own).map(|class| (at, class))
                }
            };
            if let Some(name) = &own.class {
                let known = |at: usize| -> anyhow::Result<(usize, ClassId)> {
                    let own = links(self.grown.get(at)).of_a_flow();
                    let wrong = |why: String| BadCase(case.wrong(self.column, name, &why).to_string());
                    Ok((at, own.find(&name.text).map_err(wrong)?.1 as ClassId))
                };
                let wanted = place.map(known).transpose()?;
                if wanted.is_none() || wanted != class {
                    let class = class.map(|(link, class)| all.written(link, all.class((link, class as usize))));
                    let found = class.map_or("no class".to_string(), |name| format!("class `{name}`"));
                    result.invalid(format!(
                        "flow `{}` belongs to class `{}`, but the rules give it {found}",
                        flow.name, name.text
                    ));
                }
            }
            found.push(class);
        }
        // The rules of a class that an event adds come before all others.
        let classes = self.grown.iter().map(|link| link.classes.iter().map(|class| &class.name));
        let policies = policies_of(&self.ways, classes);
        for event in &case.events {
            let (What::AddClass { flows, .. }, Ok(Some((policy, ClassChange::Add { class, .. })))) =
                (&event.what, event.what.of_class(&policies))
            else {
                continue;
            };
            for flow in flows {
                let Some((at, own)) = found.get_mut(*flow).and_then(Option::as_mut) else { continue };
                let link = self.grown.get(*at).filter(|_| self.ways[*at].policy == policies.link_name(policy));
                *own = link.and_then(|link| link.class(&class)).unwrap_or(*own);
            }
        }
        Ok(found)
    }
}

/// Links with their classes, to look names up.
pub fn links<'l>(links: impl IntoIterator<Item = &'l Link>) -> Links<'l> {
    let one = |link: &'l Link| (link.name.as_str(), link.classes.iter().map(|class| class.name.as_str()).collect());
    Links::new(links.into_iter().map(one).collect())
}

/// The policy's links that govern these ways, each once, with their classes.
fn policies_of<'l>(
    ways: &'l [Governed<'_>],
    classes: impl Iterator<Item = impl Iterator<Item = &'l String>>,
) -> Links<'l> {
    let mut known: Vec<(&str, Vec<&str>)> = Vec::new();
    for (way, classes) in ways.iter().zip(classes) {
        if known.iter().all(|(name, _)| *name != way.policy) {
            known.push((way.policy, classes.map(String::as_str).collect()));
        }
    }
    Links::new(known)
}

/// The links with the classes that the case's events add, and the changes to the links.
#[allow(clippy::type_complexity)]
fn changes(
    case: &Case,
    shaped: usize,
    links: &[Link],
    ways: &[Governed<'_>],
    wrong: &dyn Fn(&ClassName, &str) -> BadCase,
) -> anyhow::Result<(Vec<Link>, Vec<(Duration, usize, Change)>)> {
    let (mut grown, mut changes) = (links.to_vec(), Vec::new());
    let about = |event: &TimedEvent, name: Option<&ClassName>, why: &str| {
        let why = format!("event at {} ns: {why}", event.at);
        name.map_or_else(|| BadCase(format!("case {}: {why}", case.name)), |name| wrong(name, &why))
    };
    let mut shadows =
        links.iter().map(ChangePlanner::new).collect::<Result<Vec<_>, _>>().map_err(|why| BadCase(why.to_string()))?;
    for event in &case.events {
        match &event.what {
            What::FlowActive { .. } | What::FlowRate { .. } => continue,
            What::LinkRate { link, .. } if *link != shaped => {
                return Err(Unsupported(
                    "this case runs in the simulator only (`altq sim`): a link without a policy changes its rate"
                        .into(),
                )
                .into());
            }
            _ => {}
        }
        let keys: Vec<Key> = match &event.what {
            What::AddClass { flows, .. } => flows.iter().filter_map(|flow| flow_key(case, *flow)).collect(),
            _ => Vec::new(),
        };
        let name = event.what.class();
        let policies = policies_of(ways, shadows.iter().map(|shadow| shadow.names().iter().map(|(name, _)| name)));
        let of_class = event.what.of_class(&policies).map_err(|(name, why)| about(event, Some(name), &why))?;
        let of_class = of_class.map(|(policy, change)| (policies.link_name(policy).to_owned(), change));
        for (at, (shadow, way)) in shadows.iter_mut().zip(ways).enumerate() {
            let made = match (&event.what, &of_class) {
                (What::LinkRate { rates, .. }, _) => match rates[usize::from(way.back)] {
                    Some(rate) => shadow.rate(event.at, rate),
                    None => continue,
                },
                (_, Some((policy, change))) if *policy == way.policy => shadow.class(event.at, change, &keys),
                _ => continue,
            };
            let made = made.map_err(|why| about(event, name, &why))?;
            changes.extend(made.into_iter().map(|change| (nanos(event.at), at, change)));
        }
    }
    for (link, shadow) in grown.iter_mut().zip(&shadows) {
        for name in shadow.names().iter().skip(link.classes.len()) {
            let (name, parent) = name;
            let (Some(mut spec), Some(mut class)) = (link.spec.classes.last().cloned(), link.classes.last().cloned())
            else {
                continue;
            };
            (spec.parent, spec.queue, spec.scheduler) = (parent.unwrap_or(ROOT), None, None);
            class.name = name.clone();
            link.spec.classes.push(spec);
            link.classes.push(class);
        }
    }
    Ok((grown, changes))
}

/// True if a measure is about a link's engine, which is measured without traffic.
pub fn of_engine(measure: Measure) -> bool {
    measure.of_engine() || matches!(measure, Measure::Memory | Measure::ClassMemory)
}

/// True if the lab can measure a probe.
fn lab_measures(case: &Case, flows: &[Flow], framed: bool, probe: &Probe) -> bool {
    let whole = (probe.from, probe.to) == (case.warmup, case.duration);
    match (&probe.subject, probe.measure) {
        (Subject::Flow(at), measure) => flows.get(*at).is_some_and(|flow| figures::measured(measure, flow, whole)),
        (Subject::Class(_), Measure::WireRate | Measure::Cells | Measure::WireShare) => framed,
        _ => true,
    }
}

/// The header fields by which a flow's packets are classified.
fn key(flow: &Flow) -> Key {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    };
    let key = Key {
        src: bits(flow.from.ip()),
        dst: bits(flow.to.ip()),
        proto: if flow.kind.is_udp() { 17 } else { 6 },
        family: if flow.from.is_ipv4() { 4 } else { 6 },
        tos: flow.dscp << 2,
        length: match &flow.kind {
            Kind::Datagrams(datagrams) => datagrams.udp.sizes.first().copied().unwrap_or(1500),
            _ => 1500,
        },
        ..Key::default()
    };
    key.with_ports(flow.from.port(), flow.to.port())
}

/// The program of a flow that runs on the queue's host.
fn program(flow: &Flow) -> Option<LocalProgram> {
    let key = key(flow);
    let results = flow.send_results()?.clone();
    Some(LocalProgram { src: key.src, dst: key.dst, dport: flow.to.port(), results })
}
