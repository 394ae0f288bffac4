//! Checks a case as it is written: names, ranges, and keys that exclude each other.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use altq_config::Language;
use altq_engine::spec::Timer;
use toml::Spanned;

use super::column::{Column, Controls, Only, PolicySource};
use super::events::events;
use super::flows::flows;
use super::links::links;
use super::table::Context;
use super::topology::Host;
use super::trace::traces;
use super::words::{unique, world};
use super::wrong::{Result, bad, unknown};
use super::{Case, expect, raw};
use crate::limits::tick;

pub fn check(raw: raw::Case, path: &Path, context: &Context<'_>) -> Result<Case> {
    let (name, duration) = (raw.name.get_ref().clone(), raw.duration.get_ref().0);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        return bad(&raw.name, "a case's name is made of letters, digits, - _ . and /");
    }
    if duration == 0 {
        return bad(&raw.duration, "a case that takes no time shows nothing");
    }
    let warmup = raw.warmup.as_ref().map_or(0, |w| w.get_ref().0);
    if let Some(warmup) = raw.warmup.as_ref().filter(|_| warmup >= duration) {
        return bad(warmup, "the warm-up is not shorter than the case");
    }
    let hosts = hosts(&raw.hosts)?;
    let links = links(&raw.links, &hosts)?;
    let columns = columns(&raw, context.column)?;
    let mut flows = flows(&raw.flows, &hosts, duration, context)?;
    for flow in &mut flows {
        if context.flows.is_some_and(|names| !names.contains(&flow.name)) {
            flow.active.clear();
        }
    }
    let mut events = events(&raw.events, &links, &flows, duration, context)?;
    let folder = path.parent().map(PathBuf::from).unwrap_or_default();
    let (steps, traces) = traces(raw.links.get_ref(), &folder, duration)?;
    if !steps.is_empty() {
        // A step comes before an event of the same time.
        events.splice(0..0, steps);
        events.sort_by_key(|event| event.at);
    }
    let mut case = Case {
        name,
        description: raw.description,
        seed: raw.seed,
        duration,
        warmup,
        offload: raw.offload.unwrap_or(true),
        only: only(&raw.only)?,
        overload: raw.overload.unwrap_or(false),
        turns: turns(&raw.turns)?,
        hosts,
        links,
        columns,
        flows,
        traces,
        events,
        expectations: Vec::new(),
        figures: Vec::new(),
        row: context.row.map(|row| row.name.clone()),
        path: path.to_owned(),
        folder,
    };
    case.figures = expect::figures(&raw.figures, &case, context)?;
    case.expectations = expect::expectations(&raw.expect, &case, context)?;
    Ok(case)
}

/// The most hosts of a case.
const MOST_HOSTS: u32 = 100_000;

fn hosts(raw: &Spanned<Vec<raw::Host>>) -> Result<Vec<Host>> {
    let (mut names, mut addresses) = (HashSet::new(), HashSet::new());
    let mut hosts = Vec::new();
    if raw.get_ref().len() < 2 {
        return bad(raw, "a case needs two hosts at least");
    }
    if raw.get_ref().len() > MOST_HOSTS as usize {
        return bad(raw, format!("a case may have {MOST_HOSTS} hosts at most"));
    }
    for (at, host) in raw.get_ref().iter().enumerate() {
        unique(&mut names, &host.name, "host")?;
        let address = match &host.address {
            Some(address) => *address.get_ref(),
            // 10.0.0.1 is the first.
            None => IpAddr::V4(Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 1).to_bits() + at as u32)),
        };
        if !addresses.insert(address) {
            let message = format!("two hosts have the address {address}");
            return match &host.address {
                Some(at) => bad(at, message),
                None => bad(&host.name, message),
            };
        }
        hosts.push(Host { name: host.name.get_ref().clone(), address, delay: host.delay.map_or(0, |delay| delay.0) });
    }
    Ok(hosts)
}

/// Reads the columns of a case. `wanted`: the only one to be read; `None`: all.
fn columns(raw: &raw::Case, wanted: Option<&str>) -> Result<Vec<Column>> {
    let timer = |word: &Option<Spanned<raw::TimerWord>>| match word {
        None => Ok(Timer::Exact),
        Some(word) => match word.get_ref() {
            raw::TimerWord::Word(text) if text == "exact" => Ok(Timer::Exact),
            raw::TimerWord::Word(_) => bad(word, "a timer is \"exact\" or a number of ticks a second"),
            raw::TimerWord::Hz(hz) => tick(*hz).or_else(|message| bad(word, message)),
        },
    };
    let language = |word: &Option<Spanned<String>>| match word {
        None => Ok(None),
        Some(word) => word.get_ref().parse::<Language>().map(Some).or_else(|message| bad(word, message)),
    };
    let policy = |text: &Option<Spanned<String>>, file: &Option<Spanned<PathBuf>>| match (text, file) {
        (Some(_), Some(file)) => bad(file, "there is a policy and a policy_file; write only one of them"),
        (Some(text), None) => Ok(Some(PolicySource::Text(text.get_ref().clone()))),
        (None, Some(file)) => Ok(Some(PolicySource::File(file.get_ref().clone()))),
        (None, None) => Ok(None),
    };
    let controls = |word: &Option<Spanned<String>>| match word {
        None => Ok(Controls::Altq),
        Some(word) => match Controls::ALL.iter().find(|(name, _)| *name == word.get_ref()) {
            Some((_, controls)) => Ok(*controls),
            None => {
                let names = Controls::ALL.map(|(name, _)| name);
                let what = format!("there is no controller {:?}", word.get_ref());
                bad(word, unknown(&what, word.get_ref(), "Controllers", names))
            }
        },
    };
    let top = policy(&raw.policy, &raw.policy_file)?;
    if raw.columns.is_empty() {
        let Some(policy) = top else {
            return bad(&raw.name, "the case has no policy: write policy, policy_file, or [[columns]]");
        };
        let replace = replacements(&raw.replace)?;
        let (mtu, overhead) = (mtu(&raw.mtu)?, overhead(&raw.overhead)?);
        let (language, timer, controller) = (language(&raw.language)?, timer(&raw.timer)?, controls(&raw.controller)?);
        let (name, only) = (None, None);
        return Ok(vec![Column { name, policy, language, timer, controller, replace, mtu, overhead, only }]);
    }
    let mut names = HashSet::new();
    let mut columns = Vec::new();
    for column in &raw.columns {
        let c = column.get_ref();
        unique(&mut names, &c.name, "column")?;
        if wanted.is_some_and(|wanted| wanted != c.name.get_ref()) {
            continue;
        }
        let Some(policy) = policy(&c.policy, &c.policy_file)?.or_else(|| top.clone()) else {
            return bad(&c.name, "the column has no policy, and there is none at the case's top");
        };
        let word = if c.language.is_some() { &c.language } else { &raw.language };
        let tick = if c.timer.is_some() { &c.timer } else { &raw.timer };
        // Replacements are made in one text, so a column with a policy of its own has only its own
        // ones.
        let own = c.policy.is_some() || c.policy_file.is_some();
        let mut replace = if own { Vec::new() } else { replacements(&raw.replace)? };
        replace.extend(replacements(&c.replace)?);
        columns.push(Column {
            name: Some(c.name.get_ref().clone()),
            policy,
            language: language(word)?,
            timer: timer(tick)?,
            controller: controls(if c.controller.is_some() { &c.controller } else { &raw.controller })?,
            replace,
            mtu: mtu(if c.mtu.is_some() { &c.mtu } else { &raw.mtu })?,
            overhead: overhead(if c.overhead.is_some() { &c.overhead } else { &raw.overhead })?,
            only: only(&c.only)?,
        });
    }
    Ok(columns)
}

/// The most copies of a piece of text.
const MOST_TIMES: u32 = 1_000_000;

fn replacements(raw: &[raw::Replace]) -> Result<Vec<(String, String)>> {
    let one = |r: &raw::Replace| {
        if r.find.get_ref().is_empty() {
            return bad(&r.find, "what is to be replaced?");
        }
        let with = match &r.times {
            None => r.with.clone(),
            Some(times) if *times.get_ref() > MOST_TIMES => {
                return bad(times, format!("at most {MOST_TIMES} times"));
            }
            Some(times) => (1..=*times.get_ref()).map(|n| r.with.replace('#', &n.to_string())).collect(),
        };
        Ok((r.find.get_ref().clone(), with))
    };
    raw.iter().map(one).collect()
}

/// The most turns.
const MOST_TURNS: u32 = 1000;

fn turns(raw: &Option<Spanned<u32>>) -> Result<u32> {
    match raw {
        Some(turns) if !(1..=MOST_TURNS).contains(turns.get_ref()) => {
            bad(turns, format!("each runs once at least, and {MOST_TURNS} times at most"))
        }
        turns => Ok(turns.as_ref().map_or(1, |turns| *turns.get_ref())),
    }
}

/// Reads the key `only`: the world in which something makes sense.
fn only(raw: &Option<Spanned<raw::Only>>) -> Result<Option<Only>> {
    let Some(written) = raw else { return Ok(None) };
    let written = written.get_ref();
    let (world, reason) = (world(&written.world)?, written.reason.get_ref().trim());
    if reason.is_empty() {
        return bad(&written.reason, "why not in the other world?");
    }
    Ok(Some(Only { world, reason: reason.to_owned() }))
}

fn mtu(raw: &Option<Spanned<u32>>) -> Result<Option<u32>> {
    match raw {
        Some(mtu) if !(68..=65_535).contains(mtu.get_ref()) => bad(mtu, "an MTU is 68 to 65535 bytes"),
        mtu => Ok(mtu.as_ref().map(|mtu| *mtu.get_ref())),
    }
}

fn overhead(raw: &Option<Spanned<i32>>) -> Result<Option<i32>> {
    match raw {
        Some(bytes) if !(-64..=256).contains(bytes.get_ref()) => bad(bytes, "an overhead is -64 to 256 bytes"),
        bytes => Ok(bytes.as_ref().map(|bytes| *bytes.get_ref())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(count: usize) -> Result<Vec<Host>> {
        let host = |at: usize| raw::Host { name: Spanned::new(at..at, format!("h{at}")), address: None, delay: None };
        hosts(&Spanned::new(0..count, (0..count).map(host).collect()))
    }

    #[test]
    fn a_hundred_thousand_hosts_and_no_more() {
        let last = read(100_000).map(|all| all.last().map(|host| host.address));
        // 10.0.0.0 and 100,000, which is 1 * 65,536 + 134 * 256 + 160.
        assert_eq!(last, Ok(Some(IpAddr::V4(Ipv4Addr::new(10, 1, 134, 160)))));
        let refused = read(100_001).err().map(|(_, message)| message);
        assert_eq!(refused.as_deref(), Some("a case may have 100000 hosts at most"));
    }
}
