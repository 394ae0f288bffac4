//! `altq verify --probe`: the policy that runs is run once more, in network namespaces, with marked
//! traffic through each class, and what each gets is compared with what it is promised.
//!
//! It is a case of the lab that is made of the policy. So what the lab says of a host that could
//! not keep time holds here as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use altq_cases::case::CaseFile;
use altq_cases::task::Progress;
use altq_config::{Link, Path as By, Policy, Promises, print};
use altq_control::client::NoFields;
use altq_control::runs::Runs;
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Nanos, Rate, SECOND, time_text};
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
/// The most classes with packets of their own in a run; of more there are several runs.
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
        let Cases { texts, missing, said } = cases(link, now, time);
        for class in &missing {
            eprintln!("altq verify: link {name}: class {class} is promised something, and does not run");
        }
        differs |= !missing.is_empty();
        if texts.is_empty() {
            eprintln!("altq verify: link {name}: not probed, because its classes that run are promised nothing");
            continue;
        }
        for note in &said {
            eprintln!("altq verify: link {name}: {note}");
        }
        if texts.len() > 1 {
            let whole = WARMUP.saturating_add(time).saturating_mul(texts.len() as u64);
            eprintln!("altq verify: link {name}: {} runs, more than {} together", texts.len(), time_text(whole));
        }
        for text in &texts {
            let result = match measure(text) {
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
            differs |= !result.passed();
        }
        probed = true;
    }
    Ok(match (differs, probed && !left_out) {
        (true, _) => Exit::Differs,
        // What was not measured is not shown to hold.
        (false, false) => Exit::Unsupported,
        (false, true) => Exit::Ok,
    })
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

/// The cases that probe a link.
#[derive(Debug, Default)]
struct Cases {
    /// Each probes some of the classes. There is none if the classes are promised nothing.
    texts: Vec<String>,
    /// The classes that are promised something, and do not run.
    missing: Vec<String>,
    /// What is left out, and why.
    said: Vec<String>,
}

fn cases(wanted: &Link, now: &Link, time: Nanos) -> Cases {
    let promises = Promises::new(wanted);
    let guaranteed = |class: ClassId| promises.guaranteed(class).filter(|rate| *rate > Rate::ZERO);
    // By class of the link that runs. A ceiling counts where it is below the parent's.
    let promised = |name: &str| -> Promised {
        let Some(class) = wanted.class(name).filter(|class| *class != ROOT) else { return Promised::default() };
        let parent = wanted.spec.classes.get(class as usize).map_or(ROOT, |spec| spec.parent as ClassId);
        let above = if parent == ROOT { now.spec.rate } else { wanted.ceiling(parent).min(now.spec.rate) };
        Promised { guarantee: guaranteed(class), ceiling: Some(wanted.ceiling(class)).filter(|own| *own < above) }
    };
    let mut all: Vec<Promised> = now.classes.iter().map(|class| promised(&class.name)).collect();
    let mut said = Vec::new();
    // With advice on a class above others, what it is guaranteed beyond its leaves may not come.
    let children = now.children();
    let is_above = |class: usize| children.get(class).is_some_and(|below| !below.is_empty());
    let note = altq_config::notes(wanted).into_iter().enumerate().find_map(|(class, note)| {
        let name = &wanted.classes.get(class)?.name;
        note.filter(|_| now.class(name).is_some_and(|class| is_above(class as usize))).map(|note| (name, note))
    });
    if let Some((name, note)) = note {
        said.push(format!(
            "guarantees of classes with others below them are not judged, because {name} is better with {note}"
        ));
        all.iter_mut().enumerate().filter(|(class, _)| is_above(*class)).for_each(|(_, own)| own.guarantee = None);
    }
    let holders = now.holders().into_iter().enumerate().skip(1).filter(|(_, holds)| *holds);
    let leaves: Vec<ClassId> = holders.map(|(at, _)| at as ClassId).collect();
    // Runs of nearly the same length.
    let each = leaves.len().div_ceil(leaves.len().div_ceil(MOST).max(1)).max(1);
    let texts = leaves.chunks(each).filter_map(|leaves| case(now, leaves, &all, time)).collect();
    let lacking = |(class, own): (usize, &altq_config::Class)| {
        (class > 0 && now.class(&own.name).is_none() && guaranteed(class as ClassId).is_some())
            .then(|| own.name.clone())
    };
    Cases { texts, missing: wanted.classes.iter().enumerate().filter_map(lacking).collect(), said }
}

/// What a class is promised.
#[derive(Clone, Copy, Debug, Default)]
struct Promised {
    guarantee: Option<Rate>,
    /// Where it is below those of the classes above it.
    ceiling: Option<Rate>,
}

/// Classes with packets of their own, what each is offered, and the classes above them.
struct Tree<'a> {
    promised: &'a [Promised],
    /// What leaves are offered, in bit/s.
    offered: BTreeMap<ClassId, u64>,
    /// By class with others below it: these.
    below: BTreeMap<ClassId, Vec<ClassId>>,
    /// All classes with their depth, children before their parents.
    order: Vec<ClassId>,
}

impl<'a> Tree<'a> {
    fn new(link: &Link, leaves: &[ClassId], promised: &'a [Promised]) -> Tree<'a> {
        let parent = |class: ClassId| link.spec.classes.get(class as usize).map_or(ROOT, |spec| spec.parent as ClassId);
        let (mut below, mut order) = (BTreeMap::<ClassId, Vec<ClassId>>::new(), BTreeSet::new());
        for leaf in leaves {
            let mut class = *leaf;
            while order.insert(class) {
                let above = parent(class);
                if above == ROOT {
                    break;
                }
                below.entry(above).or_default().push(class);
                class = above;
            }
        }
        // Parents have lower numbers than their children.
        let order = order.into_iter().rev().collect();
        Tree { promised, offered: leaves.iter().map(|leaf| (*leaf, 0)).collect(), below, order }
    }

    fn of(&self, class: ClassId) -> Promised {
        self.promised.get(class as usize).copied().unwrap_or_default()
    }

    fn children(&self, class: ClassId) -> &[ClassId] {
        self.below.get(&class).map_or(&[], Vec::as_slice)
    }

    /// What is offered to a class, as far as the ceilings of classes below it let it pass.
    fn arrives(&self, class: ClassId) -> u64 {
        let own = self.offered.get(&class).copied().unwrap_or(0);
        self.children(class).iter().fold(own, |sum, child| sum.saturating_add(self.takes(*child)))
    }

    /// What a class can take of it.
    fn takes(&self, class: ClassId) -> u64 {
        self.of(class).ceiling.map_or(u64::MAX, Rate::as_bit_s).min(self.arrives(class))
    }

    /// The leaves below a class that no ceiling below it limits.
    fn free(&self, class: ClassId) -> Vec<ClassId> {
        let mut found: Vec<ClassId> = self.offered.contains_key(&class).then_some(class).into_iter().collect();
        for child in self.children(class).iter().filter(|child| self.of(**child).ceiling.is_none()) {
            found.append(&mut self.free(*child));
        }
        found
    }

    /// Offers a class so much more, in equal parts to its free leaves. False if it has none.
    fn offer(&mut self, class: ClassId, more: u64) -> bool {
        let free = self.free(class);
        let each = more.div_ceil(free.len().max(1) as u64);
        for leaf in &free {
            self.offered.entry(*leaf).and_modify(|rate| *rate = rate.saturating_add(each));
        }
        !free.is_empty()
    }

    /// How many leaves a class has.
    fn leaves(&self, class: ClassId) -> usize {
        let own = usize::from(self.offered.contains_key(&class));
        self.children(class).iter().fold(own, |sum, child| sum + self.leaves(*child))
    }
}

/// The case that probes these leaves and the classes above them; `None` if they are promised
/// nothing.
fn case(now: &Link, leaves: &[ClassId], promised: &[Promised], time: Nanos) -> Option<String> {
    let whole = now.spec.rate.as_bit_s();
    let fifth_more = |rate: u64| rate.saturating_add(rate / 5);
    let mut tree = Tree::new(now, leaves, promised);
    // Each class is offered a fifth more than it is promised, and all together a fifth more than
    // the link carries.
    let guarantee = |tree: &Tree<'_>, class: ClassId| tree.of(class).guarantee.map_or(0, Rate::as_bit_s);
    let together = leaves.iter().fold(0_u64, |sum, class| sum.saturating_add(guarantee(&tree, *class)));
    let spare = fifth_more(whole).saturating_sub(fifth_more(together)).max(whole / 5) / leaves.len().max(1) as u64;
    for leaf in leaves {
        let more = fifth_more(guarantee(&tree, *leaf)).saturating_add(spare);
        tree.offered.insert(*leaf, more);
    }
    // To reach its ceiling a class has to be offered more; that is limited, because the generators
    // have to send it. To reach its guarantee a class above others may need more as well.
    let mut extra = EXTRA.saturating_mul(whole);
    for class in tree.order.clone() {
        let lacks = fifth_more(guarantee(&tree, class)).saturating_sub(tree.arrives(class));
        if lacks > 0 {
            tree.offer(class, lacks);
        }
        let ceiling = tree.of(class).ceiling.map_or(0, Rate::as_bit_s);
        let lacks = fifth_more(ceiling).saturating_sub(tree.arrives(class));
        if lacks > 0 && lacks <= extra && tree.offer(class, lacks) {
            extra -= lacks;
        }
    }
    let size = SIZE.min(now.spec.mtu);
    let (mut flows, mut expected, mut rules) = (String::new(), String::new(), String::new());
    for (at, (leaf, offered)) in tree.offered.iter().enumerate() {
        let (port, name) = (PORT + at, now.class_name(*leaf));
        // Writing to a string does not fail.
        let _ = writeln!(rules, "    match proto udp dport {port} -> {name}");
        let _ = writeln!(
            flows,
            "[[flows]]\nname = \"{name}\"\nkind = \"udp\"\nfrom = \"near\"\nto = \"far\"\ndport = {port}\n\
             class = \"{name}\"\nsize = {size}\nrate = {offered}\n"
        );
    }
    for class in tree.order.iter().rev() {
        let (own, name, leaves) = (tree.of(*class), now.class_name(*class), tree.leaves(*class));
        let mut expect = |what: &str, bound: &str, rate: Rate| {
            let _ = writeln!(
                expected,
                "[[expect]]\nname = \"{name}: {what} {rate}\"\nmeasure = \"share\"\nclass = \"{name}\"\n\
                 expected = {:.9}\nbound = \"{bound}\"\ntolerance = \"{:.3}%\"\nsource = \"the policy\"\n",
                rate.as_bit_s() as f64 / whole as f64,
                tolerance(rate, size, leaves, time)
            );
        };
        // A class whose own classes may not take what it is promised cannot show it.
        if let Some(rate) = own.guarantee.filter(|rate| tree.takes(*class) >= rate.as_bit_s()) {
            expect("guarantee", "at_least", rate);
        }
        if let Some(ceiling) = own.ceiling.filter(|ceiling| tree.arrives(*class) > ceiling.as_bit_s()) {
            expect("ceiling", "at_most", ceiling);
        }
    }
    if expected.is_empty() {
        return None;
    }
    let end = WARMUP.saturating_add(time);
    let policy = marked(now, &rules);
    let name = &now.name;
    Some(format!(
        "name = \"probe/{name}\"\ndescription = \"what each class is promised\"\nduration = {end}\nwarmup = {WARMUP}\n\
         policy = '''\n{policy}'''\nhosts = [{{ name = \"near\" }}, {{ name = \"far\" }}]\n\
         links = [{{ name = \"probe\", from = \"near\", to = \"far\", policy = \"{name}\" }}]\n\n{flows}{expected}"
    ))
}

/// By how many percent of a rate what is measured of a class may differ: at one end of the window
/// by a packet of each of its leaves, which it may send at once, and at the other end by one.
fn tolerance(rate: Rate, size: u32, leaves: usize, time: Nanos) -> f64 {
    let packets = (leaves + 1) as f64 * f64::from(size) * 8.0;
    let seconds = time.max(1) as f64 / SECOND as f64;
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

    /// The only case of a link, and the classes that do not run.
    fn one(wanted: &Link, now: &Link, time: Nanos) -> (String, Vec<String>) {
        let mut cases = cases(wanted, now, time);
        assert_eq!((cases.texts.len(), cases.said.len()), (1, 0), "{cases:?}");
        (cases.texts.remove(0), cases.missing)
    }

    #[test]
    fn the_case_is_one_of_the_lab_s_with_a_mark_for_each_class() {
        let (text, missing) = one(&link(POLICY), &link(POLICY), 2 * SECOND);
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
        let (text, _) = one(&low, &low, SECOND);
        assert!(text.contains("rate = 6000000\n") && text.contains("voice: ceiling 5Mbit/s"), "{text}");
    }

    #[test]
    fn classes_with_others_below_them_are_probed_too() {
        let nested = link(
            "link wan { rate 10Mbit/s  scheduler cbq
                class site { share 50%  borrow  ceiling 6Mbit/s
                    class a { share 10%  borrow }
                    class b { share 10%  borrow } }
                class tight { share 20%
                    class c { share 10% }
                    class d { share 5% } }
                class rest { share 30%  borrow  default } }",
        );
        let (text, _) = one(&nested, &nested, SECOND);
        CaseFile::parse(&text, Path::new("probe.toml")).unwrap_or_else(|error| panic!("{error}\n{text}"));
        for line in
            ["site: guarantee 5Mbit/s", "site: ceiling 6Mbit/s", "rest: guarantee 3Mbit/s", "c: ceiling 1Mbit/s"]
        {
            assert!(text.contains(line), "{line}\n{text}");
        }
        // The leaves are promised 1, 1, 1, 0.5 and 3 Mbit/s. A fifth more is 7.8; of 12 each has
        // 0.84 more, so a and b have 2.04 each. Their parent's ceiling is tried with 7.2.
        assert!(text.contains("rate = 3600000\n"), "{text}");
        // Of the 2 Mbit/s of tight its classes may take 1.5.
        assert!(!text.contains("tight: guarantee"), "{text}");
        assert!(!text.contains("a: ceiling"), "{text}");
        // With advice on a class, guarantees of those above others are not judged.
        let many: String = (0..9).map(|at| format!("class l{at} {{ share 1%  borrow }} ")).collect();
        let advised = link(&format!(
            "link wan {{ rate 10Mbit/s  scheduler cbq  class site {{ share 50%  borrow  ceiling 6Mbit/s  {many} }}
                class rest {{ share 30%  borrow  default }} }}"
        ));
        let made = cases(&advised, &advised, SECOND);
        assert!(made.said[0].contains("site is better with maxburst 9"), "{:?}", made.said);
        assert!(!made.texts[0].contains("site: guarantee") && made.texts[0].contains("site: ceiling"));
    }

    #[test]
    fn many_classes_are_probed_in_several_runs() {
        let classes: String = (0..450).map(|at| format!("class c{at} {{ rate 20kbit/s }} ")).collect();
        let policy =
            format!("link wan {{ rate 10Mbit/s  scheduler cbq {classes} class rest {{ share 1%  default }} }}");
        let many = link(&policy);
        let made = cases(&many, &many, SECOND);
        let count = |text: &String| text.matches("[[flows]]").count();
        assert_eq!(made.texts.iter().map(count).collect::<Vec<_>>(), [151, 151, 149]);
        for text in &made.texts {
            CaseFile::parse(text, Path::new("probe.toml")).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// Words that only a running link means something to do not keep it from being probed.
    #[test]
    fn a_link_with_reservations_is_probed() {
        let text = POLICY.replace("class rest", "class res { share 10%  reservations }  class rest");
        let (text, _) = one(&link(&text), &link(&text), SECOND);
        CaseFile::parse(&text, Path::new("probe.toml")).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }

    #[test]
    fn promises_are_the_file_s_and_classes_those_that_run() {
        let more = POLICY.replace("class rest", "class more { share 5% } class rest");
        let wanted = link(&more.replace("share 20%", "share 50%"));
        let (text, missing) = one(&wanted, &link(POLICY), SECOND);
        assert!(text.contains("voice: guarantee 5Mbit/s") && text.contains("class voice { rate 2Mbit/s"), "{text}");
        assert_eq!(missing, ["more"]);
        let plain = link("link wan { rate 1Mbit/s  scheduler fifo  class all { default } }");
        assert!(cases(&plain, &plain, SECOND).texts.is_empty());
    }
}
