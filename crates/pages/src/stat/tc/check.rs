//! Checks before a run that the counters that a case asks for are printed.

use std::collections::BTreeMap;

use altq_cases::case::{Case, CaseError, CaseFile, Column, Links, Measure, Probe, Subject};
use altq_cases::stat::LinkStat;
use altq_config::Link;
use altq_config::suggest::did_you_mean;
use altq_engine::Engine;
use altq_engine::spec::ClassId;
use altq_engine::units::SECOND;

use super::names;

/// Checks that each counter of a case is one that `tc -s` prints of its class. It is enough if that
/// is so in one row and column, because another may have another queue. Policies that cannot be
/// read are left to the run, and so are classes that are not in the policy, because an event may
/// add them.
///
/// # Errors
/// The first counter that is printed nowhere, with the nearest name.
pub fn check(file: &CaseFile) -> Result<(), CaseError> {
    // By the place of the counter's name: the error, or `None` where it is printed.
    let mut found: BTreeMap<(usize, usize), Option<CaseError>> = BTreeMap::new();
    for case in file.runs.iter().map(|run| &run.case) {
        for column in &case.columns {
            for (probe, known) in asked(case, column) {
                let Some(counter) = &probe.counter else { continue };
                let place = (counter.place.line, counter.place.column);
                if known.contains(&counter.text) {
                    found.insert(place, None);
                    continue;
                }
                let hint = did_you_mean(&counter.text, known.iter().map(String::as_str)).unwrap_or_default();
                let message = format!("tc -s prints no number {:?} of this class: {hint}", counter.text);
                let error = CaseError { path: case.path.clone(), place: Some(counter.place.clone()), message };
                found.entry(place).or_insert(Some(error));
            }
        }
    }
    found.into_values().flatten().next().map_or(Ok(()), Err)
}

/// The probes of a column that ask for a counter of a class whose counters are known beforehand,
/// each with their names.
fn asked<'a>(case: &'a Case, column: &Column) -> Vec<(&'a Probe, Vec<String>)> {
    let all = case.probes().map(|(_, probe)| probe);
    let counters: Vec<&Probe> = all.filter(|probe| probe.measure == Measure::Counter).collect();
    if counters.is_empty() {
        return Vec::new();
    }
    let Ok(policy) = column.load(case) else { return Vec::new() };
    let ways = case.governed();
    let links: Vec<(&str, &Link)> =
        ways.iter().filter_map(|way| Some((way.name.as_str(), policy.link(way.policy)?))).collect();
    let classes = |link: &Link| link.classes.iter().map(|class| class.name.clone()).collect::<Vec<String>>();
    let owned: Vec<(&str, Vec<String>)> = links.iter().map(|(name, link)| (*name, classes(link))).collect();
    let by_name =
        Links::new(owned.iter().map(|(name, all)| (*name, all.iter().map(String::as_str).collect())).collect());
    let one = |probe: &'a Probe| {
        let Subject::Class(class) = &probe.subject else { return None };
        let (at, class) = by_name.find(&class.text).ok()?;
        let (_, link) = links.get(at)?;
        // The queue of a class with classes below it is printed once it has had packets.
        let inner = class > 0 && link.spec.classes.iter().skip(1).any(|below| below.parent as usize == class);
        let engine = Engine::new(&link.spec).ok().filter(|_| !inner)?;
        let known = names(&LinkStat::of(link, &engine, SECOND), link.class_name(class as ClassId));
        (!known.is_empty()).then(|| (probe, known.into_iter().collect::<Vec<String>>()))
    };
    counters.into_iter().filter_map(one).collect()
}
