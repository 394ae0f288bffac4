//! `altq verify --probe`: the policy that runs is run once more, in network namespaces, with marked
//! traffic through each class, and what each gets is compared with what it is promised.
//!
//! It is a case of the lab that is made of the policy. So what the lab says of a host that could
//! not keep time holds here as well.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use altq_cases::case::CaseFile;
use altq_cases::task::Progress;
use altq_config::{Link, Path as By, Policy, Promises, print};
use altq_control::client::NoFields;
use altq_control::runs::Runs;
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Nanos, Rate, SECOND};
use altq_lab::{self as lab, Options};
use altq_pages::stat::tc;

use super::compared;
use crate::case_result;
use crate::chosen::Chosen;
use crate::exit::Exit;
use crate::output;
use crate::progress::OnTerminal;
use crate::socket::{Socket, ask, fail};

/// For how long a link is probed where nobody says it.
pub const USUAL: Nanos = 5 * SECOND;
/// How long the classes fill before it is measured.
const WARMUP: Nanos = SECOND;
/// The port of the first class's traffic.
const PORT: usize = 20_000;
/// The most classes of a link.
const MOST: usize = 200;
/// Bytes of a datagram at layer 3.
const SIZE: u32 = 1000;
/// By how many percent what a class gets may miss what it is promised.
const TOLERANCE: f64 = 3.0;
/// How many times the link's rate classes are offered at most, so that they reach their ceilings.
const EXTRA: u64 = 2;

/// Probes the links of a policy: `wanted` has the promises; without it they are those of the policy
/// that runs. Where no altq runs, the policy itself is probed.
///
/// # Errors
/// The lab fails.
pub fn run(socket: &Socket, wanted: Option<&Policy>, time: Nanos, json: bool) -> anyhow::Result<Exit> {
    let now = match (socket.connect(), wanted) {
        (Ok(mut client), _) => {
            let runs = ask::<Runs>(&mut client, "verify", &NoFields {});
            match runs.and_then(|runs| Ok((compared::running(&runs)?, runs))) {
                Ok((mut policy, runs)) => {
                    for link in &mut policy.links {
                        let set = runs.links.iter().find(|one| one.name == link.name);
                        link.spec.rate = set.map_or(link.spec.rate, |one| Rate::bit_s(one.rate_bit_s));
                    }
                    policy
                }
                Err(fault) => return Ok(fail("verify", &fault)),
            }
        }
        (Err(_), Some(wanted)) => {
            eprintln!("altq verify: no altq answers, so the policy of the file itself is probed");
            wanted.clone()
        }
        (Err(fault), None) => return Ok(fail("verify", &fault)),
    };
    let (mut probed, mut differs, mut left_out) = (false, false, false);
    for link in &wanted.unwrap_or(&now).links {
        let name = &link.name;
        let Some(now) = now.link(name) else {
            eprintln!("altq verify: link {name} does not run");
            differs = true;
            continue;
        };
        if now.path() == Some(By::Kernel) {
            eprintln!("altq verify: link {name}: not probed, because the kernel executes it");
            left_out = true;
            continue;
        }
        let (text, missing) = match case(link, now, time) {
            Ok(made) => made,
            Err(Unprobed { why, promised }) => {
                eprintln!("altq verify: link {name}: not probed, because {why}");
                left_out |= promised;
                continue;
            }
        };
        for class in &missing {
            eprintln!("altq verify: link {name}: class {class} is promised something, and does not run");
        }
        let result = match measure(&text) {
            Ok(result) => result,
            Err(error) => {
                eprintln!("altq verify: link {name}: {error:#}");
                return Ok(Exit::of(&error));
            }
        };
        if json {
            output::print_json(&result)?;
        } else {
            output::print(&case_result::text("what each class is promised", &result, &Chosen::default()))?;
        }
        for note in &result.notes {
            eprintln!("altq verify: link {name}: {note}");
        }
        differs |= !missing.is_empty() || !result.passed();
        probed = true;
    }
    Ok(match (differs, probed && !left_out) {
        (true, _) => Exit::Differs,
        // What was not measured is not shown to hold.
        (false, false) => Exit::Unsupported,
        (false, true) => Exit::Ok,
    })
}

/// Why a link is not probed.
#[derive(Debug)]
struct Unprobed {
    why: String,
    /// Whether its classes are promised something.
    promised: bool,
}

/// Runs a case in the lab.
fn measure(text: &str) -> anyhow::Result<altq_cases::result::CaseResult> {
    let file = CaseFile::parse(text, Path::new("probe.toml")).map_err(|error| anyhow::anyhow!("{error}"))?;
    let progress = Arc::new(Progress::default());
    let options = Options { progress: Some(progress.clone()), ..Options::of_case(&file, None, tc::measured) };
    let shown = OnTerminal::of(progress);
    let result = lab::run_file(&file, &options, false);
    drop(shown);
    result
}

/// The case that probes a link, and the classes that are promised something and do not run.
///
/// # Errors
/// It has too many classes, or none that is promised anything.
fn case(wanted: &Link, now: &Link, time: Nanos) -> Result<(String, Vec<String>), Unprobed> {
    let promises = Promises::new(wanted);
    let promised = |name: &str| -> Option<(Option<Rate>, Rate)> {
        let class = wanted.class(name).filter(|class| *class != ROOT)?;
        Some((promises.guaranteed(class).filter(|rate| *rate > Rate::ZERO), wanted.ceiling(class)))
    };
    let holders = now.holders().into_iter().enumerate().skip(1).filter(|(_, holds)| *holds);
    let names: Vec<&str> = holders.map(|(at, _)| now.class_name(at as ClassId)).collect();
    if names.len() > MOST {
        let why = format!("it has {} classes with packets of their own; {MOST} can be probed", names.len());
        return Err(Unprobed { why, promised: true });
    }
    let guaranteed = |name: &str| promised(name).and_then(|(rate, _)| rate).map_or(0, Rate::as_bit_s);
    let whole = now.spec.rate.as_bit_s();
    let together: u64 = names.iter().fold(0, |sum, name| sum.saturating_add(guaranteed(name)));
    // Each class is offered a fifth more than it is promised, and all together a fifth more than
    // the link carries.
    let fifth_more = |rate: u64| rate.saturating_add(rate / 5);
    let spare = fifth_more(whole).saturating_sub(fifth_more(together)).max(whole / 5) / names.len().max(1) as u64;
    // To reach its ceiling a class has to be offered more; that is limited, because the generators
    // have to send it.
    let mut extra = EXTRA.saturating_mul(whole);
    let size = SIZE.min(now.spec.mtu);
    let (mut flows, mut expected, mut rules) = (String::new(), String::new(), String::new());
    for (at, name) in names.iter().enumerate() {
        let (port, mut offered) = (PORT + at, fifth_more(guaranteed(name)).saturating_add(spare));
        let limited = promised(name).map(|(_, ceiling)| ceiling).filter(|ceiling| *ceiling < now.spec.rate);
        if let Some(more) = limited.map(|ceiling| fifth_more(ceiling.as_bit_s()).saturating_sub(offered))
            && more <= extra
        {
            (offered, extra) = (offered + more, extra - more);
        }
        // Writing to a string does not fail.
        let _ = writeln!(rules, "    match proto udp dport {port} -> {name}");
        let _ = writeln!(
            flows,
            "[[flows]]\nname = \"{name}\"\nkind = \"udp\"\nfrom = \"near\"\nto = \"far\"\ndport = {port}\n\
             class = \"{name}\"\nsize = {size}\nrate = {offered}\n"
        );
        let mut expect = |what: &str, bound: &str, rate: Rate| {
            let _ = writeln!(
                expected,
                "[[expect]]\nname = \"{name}: {what} {rate}\"\nmeasure = \"share\"\nclass = \"{name}\"\n\
                 expected = {:.9}\nbound = \"{bound}\"\ntolerance = \"{:.3}%\"\nsource = \"the policy\"\n",
                rate.as_bit_s() as f64 / whole as f64,
                tolerance(rate, size, time)
            );
        };
        if let Some((Some(rate), _)) = promised(name) {
            expect("guarantee", "at_least", rate);
        }
        if let Some(ceiling) = limited.filter(|ceiling| offered > ceiling.as_bit_s()) {
            expect("ceiling", "at_most", ceiling);
        }
    }
    if expected.is_empty() {
        let why = "its classes are promised nothing".to_owned();
        return Err(Unprobed { why, promised: false });
    }
    let missing = |(_, class): &(usize, &altq_config::Class)| now.class(&class.name).is_none();
    let more = wanted.classes.iter().enumerate().skip(1).filter(missing);
    let missing = more.filter(|(at, _)| promises.guaranteed(*at as ClassId).is_some_and(|rate| rate > Rate::ZERO));
    let missing = missing.map(|(_, class)| class.name.clone()).collect();
    let end = WARMUP.saturating_add(time);
    let policy = marked(now, &rules);
    let name = &now.name;
    let text = format!(
        "name = \"probe/{name}\"\ndescription = \"what each class is promised\"\nduration = {end}\nwarmup = {WARMUP}\n\
         policy = '''\n{policy}'''\nhosts = [{{ name = \"near\" }}, {{ name = \"far\" }}]\n\
         links = [{{ name = \"probe\", from = \"near\", to = \"far\", policy = \"{name}\" }}]\n\n{flows}{expected}"
    );
    Ok((text, missing))
}

/// By how many percent of a rate what is measured may differ: at the ends of the window by a packet
/// each, which counts when it is short or the rate is low.
fn tolerance(rate: Rate, size: u32, time: Nanos) -> f64 {
    let (packets, seconds) = (2.0 * f64::from(size) * 8.0, time.max(1) as f64 / SECOND as f64);
    TOLERANCE + 100.0 * packets / (rate.as_bit_s().max(1) as f64 * seconds)
}

/// The link as a policy of its own, without its device, and with these rules only.
fn marked(link: &Link, rules: &str) -> String {
    let mut link = link.clone();
    (link.device, link.written_path, link.adapt) = (None, None, None);
    link.spec.rules.rules.clear();
    link.rules.clear();
    let text = print(&Policy { links: vec![link], ..Policy::default() }).text;
    let open = text.trim_end().trim_end_matches('}');
    format!("{open}{rules}}}\n")
}

#[cfg(test)]
mod tests {
    use altq_config::{Language, parse_str};

    use super::*;

    fn link(text: &str) -> Link {
        let policy = parse_str(text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
        policy.links.into_iter().next().unwrap()
    }

    const POLICY: &str = "link wan { device bridge a b  rate 10Mbit/s  scheduler cbq
        class voice { share 20% }  class rest { share 40%  borrow  default }  match dport 7 -> voice }";

    #[test]
    fn the_case_is_one_of_the_lab_s_with_a_mark_for_each_class() {
        let (text, missing) = case(&link(POLICY), &link(POLICY), 2 * SECOND).unwrap();
        let file = CaseFile::parse(&text, Path::new("probe.toml")).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let case = &file.runs[0].case;
        assert_eq!((case.duration, case.warmup, missing.len()), (3 * SECOND, SECOND, 0));
        // Together 12 Mbit/s: 2.4 and 4.8, and what is left of them in two parts of 2.4.
        assert!(text.contains("rate = 4800000\n") && text.contains("rate = 7200000\n"), "{text}");
        assert!(text.contains("match proto udp dport 20001 -> rest\n}"), "{text}");
        assert!(!text.contains("dport 7 ") && !text.contains("device"), "{text}");
        for line in ["voice: guarantee 2Mbit/s", "voice: ceiling 2Mbit/s", "rest: guarantee 4Mbit/s"] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("rest: ceiling"), "{text}");
        // Two packets of 8000 bits are 0.4 % of what 2 Mbit/s carry in 2 s, and 0.2 % at 4 Mbit/s.
        assert!(text.contains("tolerance = \"3.400%\"") && text.contains("tolerance = \"3.200%\""), "{text}");
    }

    #[test]
    fn a_class_is_offered_more_than_its_ceiling() {
        let low = link(&POLICY.replace("share 20% }", "share 20%  borrow  ceiling 5Mbit/s }"));
        let (text, _) = case(&low, &low, SECOND).unwrap();
        assert!(text.contains("rate = 6000000\n") && text.contains("voice: ceiling 5Mbit/s"), "{text}");
    }

    /// Words that only a running link means something to do not keep it from being probed.
    #[test]
    fn a_link_with_reservations_is_probed() {
        let text = POLICY.replace("class rest", "class res { share 10%  reservations }  class rest");
        let (text, _) = case(&link(&text), &link(&text), SECOND).unwrap();
        CaseFile::parse(&text, Path::new("probe.toml")).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }

    #[test]
    fn promises_are_the_file_s_and_classes_those_that_run() {
        let more = POLICY.replace("class rest", "class more { share 5% } class rest");
        let wanted = link(&more.replace("share 20%", "share 50%"));
        let (text, missing) = case(&wanted, &link(POLICY), SECOND).unwrap();
        assert!(text.contains("voice: guarantee 5Mbit/s") && text.contains("class voice { rate 2Mbit/s"), "{text}");
        assert_eq!(missing, ["more"]);
        let plain = link("link wan { rate 1Mbit/s  scheduler fifo  class all { default } }");
        let left = case(&plain, &plain, SECOND).unwrap_err();
        assert!(left.why.contains("promised nothing") && !left.promised, "{left:?}");
    }
}
