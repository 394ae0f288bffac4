//! What `altq verify` is told of what runs: the policy, what the loops have of it, and what was set
//! up on the host (docs/verify.md).

use std::ops::Range;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use altq_config::{Link, Path};
use altq_control::runs::{Device, Guard, LinkRuns, Runs, Steering};
use altq_dataplane::nfqueue::steer::{Fail, Firewall};
use altq_dataplane::verify::{SetUp, Steered};
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::Rate;
use altq_engine::{ClassShown, Engine};

use super::live::{Live, State};

/// About how many classes a loop is asked at a time: it does nothing else meanwhile.
const PIECE: usize = 512;
/// How long a loop may take to answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// A loop makes the changes of one request in each of its turns. What differs is looked at again
/// after each `TURN`, until `SETTLED` is over.
const TURN: Duration = Duration::from_millis(10);
const SETTLED: Duration = Duration::from_millis(200);
/// The most things that are said of a loop.
const SAID: usize = 20;

/// What runs.
pub fn runs(live: &Live) -> Runs {
    // Nobody else changes anything meanwhile.
    let state = live.lock();
    let links = state.names().into_iter().filter_map(|name| of_link(live, &state, name)).collect();
    let (text, file) = (&state.course.text, state.course.path.clone());
    let text = (text.language.clone(), text.text.clone());
    Runs { only: live.only.clone(), ..Runs::of(env!("CARGO_PKG_VERSION"), text, file, links) }
}

fn of_link(live: &Live, state: &State, name: &str) -> Option<LinkRuns> {
    let (link, trial) = (state.roster.link(name)?, state.roster.trial(name)?);
    let looked = match link.path() {
        Some(Path::Kernel) => Ok(Vec::new()),
        _ => settled(live, link, trial),
    };
    let (differs, silent) = match looked {
        Ok(mut differs) => {
            let more = differs.len().saturating_sub(SAID);
            differs.truncate(SAID);
            differs.extend((more > 0).then(|| format!("and {more} more things")));
            (differs, None)
        }
        Err(why) => (Vec::new(), Some(why)),
    };
    let named = |link: &Link| link.classes.iter().skip(1).filter(|class| !class.name.is_empty()).count();
    let own = state.roster.written(name).map_or(0, |written| named(&written));
    let set_up = live.reach().set_up(name).cloned().unwrap_or_default();
    let SetUp { steered, guards, devices } = set_up;
    Some(LinkRuns {
        name: name.to_owned(),
        rate_bit_s: link.spec.rate.as_bit_s(),
        differs,
        silent,
        beside: named(link).saturating_sub(own) as u64,
        steering: steered.map(steering),
        guards: guards.into_iter().map(|one| Guard { interface: one.interface, program: one.program }).collect(),
        devices: devices
            .into_iter()
            .map(|one| Device { name: one.name, queue_length: one.queue_length, offloads: one.offloads })
            .collect(),
    })
}

fn steering(steered: Steered) -> Steering {
    let Steered { steer, firewall, owner } = steered;
    let firewall = match firewall {
        Firewall::Nft => "nft",
        Firewall::Iptables => "iptables",
    };
    let except = match steer.fail {
        Fail::Open => None,
        Fail::Closed { except } => Some(except),
    };
    Steering {
        firewall: firewall.to_owned(),
        interface: steer.interface,
        ingress: steer.ingress,
        port: steer.port,
        queue: steer.queue,
        owner,
        dscp: steer.dscp,
        except,
    }
}

/// What the loop of a link has otherwise than the trial, which was asked for the same. The loop may
/// have changes to make, so what differs is looked at again for a while.
fn settled(live: &Live, link: &Link, trial: &Engine) -> Result<Vec<String>, String> {
    let (begun, mut found) = (Instant::now(), Vec::new());
    let numbers = ask(live, &link.name, Engine::numbers)?;
    let most = numbers.max(trial.numbers());
    let piece = |from: usize| from as ClassId..most.min(from + PIECE) as ClassId;
    let mut pieces: Vec<Range<ClassId>> = (0..most).step_by(PIECE).map(piece).collect();
    for turn in 0.. {
        if turn > 0 {
            std::thread::sleep(TURN);
        }
        found.clear();
        let rate = ask(live, &link.name, Engine::rate)?;
        found.extend(another_rate(link, trial.rate(), rate));
        let mut left = Vec::new();
        for piece in pieces {
            let differs = differs(live, link, trial, piece.clone())?;
            if !differs.is_empty() {
                found.extend(differs);
                left.push(piece);
            }
        }
        if found.is_empty() || turn > 0 && begun.elapsed() > SETTLED {
            break;
        }
        pieces = left;
    }
    Ok(found)
}

/// What is said of the rate at which a loop shapes, if it is another one than was asked for.
fn another_rate(link: &Link, asked: Rate, rate: Rate) -> Option<String> {
    let wrong = match &link.adapt {
        Some(adapt) => (rate < adapt.from || rate > adapt.to).then(|| format!("{} to {}", adapt.from, adapt.to)),
        None => (rate != asked).then(|| asked.to_string()),
    };
    wrong.map(|asked| format!("the loop shapes at {rate}, not at {asked}"))
}

/// What a loop has of some of its classes otherwise than the trial.
fn differs(live: &Live, link: &Link, trial: &Engine, classes: Range<ClassId>) -> Result<Vec<String>, String> {
    let all = classes.clone();
    let shown: Vec<Option<ClassShown>> =
        ask(live, &link.name, move |engine| all.map(|class| engine.shown(class)).collect())?;
    let differs = classes.zip(shown).filter_map(|(class, has)| {
        // The rate of the link is compared apart.
        let rate = |mut shown: ClassShown| {
            if class == ROOT {
                shown.rate = link.spec.rate;
            }
            shown
        };
        let (has, asked) = (has.map(rate), trial.shown(class).map(rate));
        apart(link, class, asked.as_ref(), has.as_ref())
    });
    Ok(differs.collect())
}

/// Has the loop of a link answer a question about its engine.
fn ask<T: Send + 'static>(
    live: &Live,
    link: &str,
    question: impl FnOnce(&Engine) -> T + Send + 'static,
) -> Result<T, String> {
    let (answer, answers) = mpsc::channel();
    let look = Box::new(move |engine: &Engine| _ = answer.send(question(engine)));
    if !live.reach().look(link, look) {
        return Err("its loop has ended".to_owned());
    }
    answers.recv_timeout(PATIENCE).map_err(|_| format!("its loop has not answered within {} ms", PATIENCE.as_millis()))
}

/// What a loop has of a class otherwise than it was asked for, as a sentence.
fn apart(link: &Link, class: ClassId, asked: Option<&ClassShown>, has: Option<&ClassShown>) -> Option<String> {
    let name = link.class_name(class);
    let (asked, has) = match (asked, has) {
        (Some(asked), Some(has)) => (asked, has),
        (Some(_), None) => return Some(format!("the loop has no class `{name}`")),
        (None, Some(_)) => return Some(format!("the loop has a class of the number {class}, which nobody asked for")),
        (None, None) => return None,
    };
    let rates = |shown: &ClassShown| (shown.rate, shown.guaranteed);
    let queue = |shown: &ClassShown| (shown.queue, shown.drops_head, shown.limit);
    let leads = |shown: &ClassShown| (shown.led_to, shown.default);
    let what: Vec<&str> = [
        ("the class above", asked.parent != has.parent),
        ("the rate", rates(asked) != rates(has)),
        ("the queue", queue(asked) != queue(has)),
        ("the scheduler", asked.scheduler != has.scheduler),
        ("what leads to it", leads(asked) != leads(has)),
    ]
    .into_iter()
    .filter_map(|(what, differs)| differs.then_some(what))
    .collect();
    (!what.is_empty()).then(|| format!("the loop has another class `{name}`: {}", what.join(", ")))
}

#[cfg(test)]
mod tests {
    use altq_config::{Language, parse_str};
    use altq_engine::Change;

    use super::*;

    #[test]
    fn what_a_loop_has_otherwise_is_named() {
        let text = "link wan { rate 10Mbit/s  scheduler htb
            class voice { rate 1Mbit/s }  class rest { rate 4Mbit/s  default }  match dport 7 -> voice }";
        let policy = parse_str(text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
        let link = &policy.links[0];
        let (trial, mut engine) = (Engine::new(&link.spec).unwrap(), Engine::new(&link.spec).unwrap());
        let voice = link.class("voice").unwrap();
        let said = |engine: &Engine, class| {
            apart(link, class, trial.shown(class).as_ref(), engine.shown(class).as_ref()).unwrap_or_default()
        };
        assert_eq!(said(&engine, voice), "");
        let mut spec = link.spec.classes[voice as usize].clone();
        let other = parse_str(&text.replace("rate 1Mbit/s", "rate 2Mbit/s"), "test.altq", Language::Native);
        spec.settings = other.unwrap().links[0].spec.classes[voice as usize].settings.clone();
        engine.apply(0, &Change::SetClass { class: voice, parent: 0, settings: spec.settings }).unwrap();
        assert_eq!(said(&engine, voice), "the loop has another class `voice`: the rate");
        engine.apply(0, &Change::SetRules { rules: altq_engine::classify::RuleSet::default(), default: None }).unwrap();
        let rest = link.class("rest").unwrap();
        assert_eq!(said(&engine, rest), "the loop has another class `rest`: what leads to it");
        engine.apply(0, &Change::RemoveClass { class: rest, heir: None }).unwrap();
        assert_eq!(said(&engine, rest), "the loop has no class `rest`");
        let extra = ClassShown { rate: Rate::bit_s(1), ..trial.shown(voice).unwrap() };
        let nobody = apart(link, 9, None, Some(&extra));
        assert_eq!(nobody.as_deref(), Some("the loop has a class of the number 9, which nobody asked for"));
        assert_eq!(apart(link, 9, None, None), None);
        let (asked, rate) = (Rate::bit_s(10_000_000), Rate::bit_s(9_000_000));
        assert_eq!(another_rate(link, asked, asked), None);
        let said = another_rate(link, asked, rate);
        assert_eq!(said.as_deref(), Some("the loop shapes at 9Mbit/s, not at 10Mbit/s"));
    }
}
