//! How much each class gets: `estimator exact` compared with docs/reference/cbq.md rules 1 to 6.

use altq_cases::limits::tick;
use altq_cases::random::Random;
use altq_engine::spec::Timer;
use altq_engine::units::SECOND;

use super::ideal::{self, Class};
use super::support::*;

const MTU: u32 = 1500;
const SIZES: [u32; 7] = [32, 64, 128, 256, 512, 1024, 1500];

/// Two classes with these words on a link of `mbit`. Both are offered a quarter more than they
/// should get, and must get it within 0.5 %.
fn pair(
    figure: &mut Figure,
    mbit: f64,
    words: [&str; 2],
    share: [f64; 2],
    sizes: [&[u32]; 2],
    timer: Timer,
    scope: Scope,
) {
    let link = link(&format!(
        "link l {{ rate {}bit/s scheduler cbq class a {{ {} }} class b {{ {} }} }}",
        mbit * 1e6,
        words[0],
        words[1]
    ));
    let rates = share.map(|s| s * mbit * 1e6);
    let spans = [0, 1].map(|c| long_enough(rates[c], sizes[c], scope));
    let (from, to) = if spans[0].1 > spans[1].1 { spans[0] } else { spans[1] };
    // For `Scope::Part` the warm-up is a tenth of the window, because a second is millions of
    // packets on fast links.
    let (from, to) = if scope == Scope::Whole { (from, to) } else { ((to - from) / 10, (to - from) / 10 * 11) };
    let feeds = [0, 1].map(|c| Feed::new(c as u32 + 1, sizes[c], Pace::Rate(rates[c] * 1.25), (0, to)));
    let report = got(&link, &feeds, &window(from, to, timer), 7);
    for c in 0..2 {
        let expected = rates[c] / 8.0 * (to - from) as f64 / SECOND as f64;
        let largest = sizes[c].iter().copied().max().unwrap_or(0);
        let what = format!(
            "{mbit} Mbit/s {words:?} {}/{} bytes, class {c}, of {expected:.0} bytes",
            mean(sizes[0]),
            mean(sizes[1])
        );
        // As a fraction of the expected bytes, so that figures of different runs can be compared.
        let limit = allowed(expected, 0.005, largest, MTU) / expected;
        figure.judge(what, report.classes[c + 1].sent_bytes as f64 / expected, 1.0, limit);
    }
}

pub fn twenty_eighty(scope: Scope) -> Vec<Figure> {
    [("without borrowing", ""), ("with borrowing", "borrow")]
        .into_iter()
        .map(|(name, borrow)| {
            let mut figure =
                Figure::new(format!("20/80 {name}, packets of 32 to 1500 bytes in every pair and in mixtures: 0.5 %"));
            let words = [format!("share 20% {borrow}"), format!("share 80% {borrow}")];
            let words = [words[0].as_str(), words[1].as_str()];
            let mut pairs: Vec<[&[u32]; 2]> = Vec::new();
            for a in &SIZES {
                pairs.extend(SIZES.iter().map(|b| [std::slice::from_ref(a), std::slice::from_ref(b)]));
            }
            let mixtures: [[&[u32]; 2]; 4] =
                [[&SIZES, &SIZES], [&SIZES, &[1500]], [&[40, 1500], &[32, 576]], [&[1500], &[32, 33, 57, 1499]]];
            let mut runs = scope.thin(&pairs, 8);
            runs.extend(scope.thin(&mixtures, 2));
            for sizes in runs {
                pair(&mut figure, 10.0, words, [0.2, 0.8], sizes, Timer::Exact, scope);
            }
            figure
        })
        .collect()
}

/// A class that may not borrow, alone and beside a borrower.
pub fn held(scope: Scope) -> Figure {
    let mut figure = Figure::new(
        "a non-borrowing class alone and against a borrower: its rate within 0.1 % plus one foreign packet",
    );
    for percent in scope.thin(&[1.0, 5.0, 20.0, 50.0, 80.0, 95.0], 3) {
        for size in scope.thin(&SIZES, 3) {
            for foreign in [false, true] {
                let link = link(&format!(
                    "link l {{ rate 10Mbit/s scheduler cbq class a {{ share {percent}% }} \
                     class b {{ share {}% borrow }} }}",
                    100.0 - percent
                ));
                let rate = percent * 1e5;
                let (from, to) = long_enough(rate, &[size], scope);
                let mut feeds = vec![Feed::new(1, &[size], Pace::Rate(rate * 1.25), (0, to))];
                if foreign {
                    feeds.push(Feed::new(2, &[MTU], Pace::Rate(10e6), (0, to)));
                }
                let report = got(&link, &feeds, &window(from, to, Timer::Exact), 7);
                let expected = rate / 8.0 * (to - from) as f64 / SECOND as f64;
                let strict = 0.001 * expected + if foreign { f64::from(MTU) } else { 0.0 };
                let limit = strict.max(f64::from(2 * size + MTU));
                let what = format!(
                    "{percent} % of 10 Mbit/s, {size} bytes, {}",
                    if foreign { "against a borrower" } else { "alone" }
                );
                figure.judge(what, report.classes[1].sent_bytes as f64 / expected, 1.0, limit / expected);
            }
        }
    }
    figure
}

pub fn one_borrower(scope: Scope) -> Figure {
    let mut figure = Figure::new("one borrower alone: at least 99.9 % of the link");
    for excess in ["share", "priority"] {
        for size in scope.thin(&SIZES, 3) {
            for mbit in [1.0, 10.0, 1000.0] {
                let link = link(&format!(
                    "link l {{ rate {}bit/s scheduler cbq {{ excess {excess} }}
                     class agency {{ share 30% borrow class a {{ share 1% borrow }} class b {{ share 29% borrow }} }}
                     class other {{ share 70% borrow }} }}",
                    mbit * 1e6
                ));
                let (from, to) = long_enough(mbit * 1e6, &[size], Scope::Whole);
                let (from, to) =
                    if scope == Scope::Whole { (from, to) } else { ((to - from) / 10, (to - from) / 10 * 11) };
                let feed = Feed::new(2, &[size], Pace::Rate(mbit * 1.1e6), (0, to));
                let report = got(&link, &[feed], &window(from, to, Timer::Exact), 7);
                let whole = mbit * 1e6 / 8.0 * (to - from) as f64 / SECOND as f64;
                let part = report.classes[2].sent_bytes as f64 / whole;
                figure.bound(
                    format!("excess {excess}, {mbit} Mbit/s, {size} bytes: {part:.6} of the link"),
                    1.0 - part,
                    0.001,
                );
            }
        }
    }
    figure
}

/// Agencies 70/30 with three leaves each, with every combination of active leaves.
pub fn agencies(scope: Scope) -> Vec<Figure> {
    let patterns: [[&[u32]; 6]; 4] = [
        [&[1500]; 6],
        [&[256]; 6],
        [&[1500], &[576], &[64], &[128], &[1024], &[1500]],
        [&[64, 576, 1500], &[1500], &[40, 1500], &[200, 1500], &[1500], &[64, 576, 1500]],
    ];
    let rates = [0.10, 0.20, 0.40, 0.05, 0.10, 0.15];
    let mut mixtures = Vec::new();
    for a in 1..8u32 {
        for b in 1..8u32 {
            mixtures.push(a | b << 3);
        }
    }
    ["share", "priority"]
        .into_iter()
        .map(|excess| {
            let leaves = if excess == "share" { " and leaves" } else { "" };
            let mut figure = Figure::new(format!(
                "agencies 70/30, every mixture of active leaves and sizes, excess \
                {excess}: agencies{leaves} within 0.5 %"
            ));
            let link = link(&format!(
                "link l {{ rate 10Mbit/s scheduler cbq {{ excess {excess} }}
                 class A {{ share 70% borrow class a1 {{ share 10% borrow }} class a2 {{ share 20% borrow }} \
                 class a3 {{ share 40% borrow }} }}
                 class B {{ share 30% borrow class b1 {{ share 5% borrow }} class b2 {{ share 10% borrow }} \
                 class b3 {{ share 15% borrow }} }} }}"
            ));
            // Class numbers: A 1, a1..a3 2..4, B 5, b1..b3 6..8.
            let number = |leaf: usize| if leaf < 3 { leaf + 2 } else { leaf + 3 };
            for mixture in scope.thin(&mixtures, 9) {
                for sizes in &patterns {
                    let active: Vec<usize> = (0..6).filter(|leaf| mixture >> leaf & 1 == 1).collect();
                    let total =
                        |agency: usize| active.iter().filter(|l| **l / 3 == agency).map(|l| rates[*l]).sum::<f64>();
                    let sums = [total(0), total(1)];
                    let expected = |leaf: usize| [0.7, 0.3][leaf / 3] * rates[leaf] / sums[leaf / 3];
                    let (mut from, mut to) = (0, 0);
                    for leaf in &active {
                        let span = long_enough(expected(*leaf) * 10e6, sizes[*leaf], scope);
                        (from, to) = if span.1 > to { span } else { (from, to) };
                    }
                    let feeds: Vec<Feed> = active
                        .iter()
                        .map(|leaf| {
                            Feed::new(number(*leaf) as u32, sizes[*leaf], Pace::Rate(expected(*leaf) * 12.5e6), (0, to))
                        })
                        .collect();
                    let report = got(&link, &feeds, &window(from, to, Timer::Exact), u64::from(mixture));
                    let whole = 10e6 / 8.0 * (to - from) as f64 / SECOND as f64;
                    let mut judge = |what: String, class: usize, share: f64, largest: u32| {
                        let bytes = share * whole;
                        let measured = report.classes[class].sent_bytes as f64 / bytes;
                        figure.judge(what, measured, 1.0, allowed(bytes, 0.005, largest, MTU) / bytes);
                    };
                    judge(format!("mixture {mixture:06b}, agency A"), 1, 0.7, 0);
                    judge(format!("mixture {mixture:06b}, agency B"), 5, 0.3, 0);
                    if excess == "share" {
                        for leaf in &active {
                            let largest = sizes[*leaf].iter().copied().max().unwrap_or(0);
                            judge(
                                format!("mixture {mixture:06b}, leaf {leaf}"),
                                number(*leaf),
                                expected(*leaf),
                                largest,
                            );
                        }
                    }
                }
            }
            figure
        })
        .collect()
}

/// Shares of 5 % to 95 % on links of 1 Mbit/s to 10 Gbit/s.
pub fn sweep(scope: Scope) -> Vec<Figure> {
    let mut figures = Vec::new();
    let percents: Vec<u32> = (5..100).step_by(5).collect();
    for mbit in scope.thin(&[1.0, 10.0, 100.0, 1_000.0, 10_000.0], 2) {
        for (name, words) in
            [("guaranteed", ["share X% ", "share Y% "]), ("as excess", ["share U% borrow", "share V% borrow"])]
        {
            let mut figure = Figure::new(format!("5 % to 95 % {name} at {mbit} Mbit/s: 0.5 %"));
            for percent in scope.thin(&percents, 6) {
                let (f, g) = (f64::from(percent), f64::from(100 - percent));
                let word = |text: &str| {
                    let text = text.replace('X', &f.to_string()).replace('Y', &g.to_string());
                    text.replace('U', &(f / 2.0).to_string()).replace('V', &(g / 2.0).to_string())
                };
                let words = [word(words[0]), word(words[1])];
                let words = [words[0].as_str(), words[1].as_str()];
                let mixtures: [[&[u32]; 2]; 2] = [[&[1500], &[1500]], [&[64, 576, 1500], &[40, 1500]]];
                for sizes in scope.thin(&mixtures, 2) {
                    pair(&mut figure, mbit, words, [f / 100.0, g / 100.0], sizes, Timer::Exact, scope);
                }
            }
            figures.push(figure);
        }
    }
    figures
}

/// Rates when timers fire at ticks.
pub fn ticks(scope: Scope) -> Vec<Figure> {
    [1000u64, 100]
        .into_iter()
        .map(|hz| {
            let mut figure = Figure::new(format!("rates on a tick timer of {} ms: 0.5 %", 1000 / hz));
            let Ok(timer) = tick(hz) else { panic!("{hz} ticks a second") };
            for percent in scope.thin(&[5.0, 20.0, 50.0, 80.0, 95.0], 2) {
                let rate = percent * 1e6;
                let (from, to) = long_enough(rate, &[1500], scope);
                let to = to.max(3 * SECOND);
                // Packets come all the time; or half a second's worth comes twice a second, so that
                // only timers and the wire make the engine run.
                let paces = [Pace::Rate(rate * 1.25), Pace::Bursts((rate / 12_000.0 * 0.65) as u32 + 1, 0.5e9)];
                for (name, pace) in ["fed", "refilled"].into_iter().zip(paces) {
                    let queue = if name == "fed" { "1000packets" } else { "65000packets" };
                    let link = link(&format!(
                        "link l {{ rate 100Mbit/s scheduler cbq \
                         class a {{ share {percent}% queue drop_tail {{ limit {queue} }} }} }}"
                    ));
                    let report = got(&link, &[Feed::new(1, &[1500], pace, (0, to))], &window(from, to, timer), 7);
                    let expected = rate / 8.0 * (to - from) as f64 / SECOND as f64;
                    let measured = report.classes[1].sent_bytes as f64 / expected;
                    figure.judge(
                        format!("{percent} % of 100 Mbit/s, {name}"),
                        measured,
                        1.0,
                        allowed(expected, 0.005, 1500, MTU) / expected,
                    );
                }
            }
            let words =
                ["share 20% queue drop_tail { limit 1000packets }", "share 80% queue drop_tail { limit 1000packets }"];
            pair(&mut figure, 100.0, words, [0.2, 0.8], [&[1500], &[256, 1500]], timer, scope);
            let words = [
                "share 10% borrow queue drop_tail { limit 1000packets }",
                "share 40% borrow queue drop_tail { limit 1000packets }",
            ];
            pair(&mut figure, 100.0, words, [0.2, 0.8], [&[1500], &[256, 1500]], timer, scope);
            figure
        })
        .collect()
}

/// A tree in both forms: the policy's text, and the referee's classes.
struct Tree {
    text: String,
    classes: Vec<Class>,
    /// Sizes of the packets of each leaf; empty for inner classes.
    sizes: Vec<Vec<u32>>,
}

/// A random tree: two or three levels, some classes that may not borrow, some with a ceiling.
fn tree(random: &mut Random, bit_s: f64, flags: bool, span: f64) -> Tree {
    let mut classes = vec![Class { parent: 0, rate: bit_s, borrow: false, ceiling: None, demand: 0.0 }];
    let mut sizes = vec![Vec::new()];
    let mut bodies = vec![String::new()];
    let mut order = vec![0usize];
    let mut at = 0;
    while at < order.len() {
        let (node, depth) = (order[at], depth(&classes, order[at]));
        at += 1;
        let inner = depth == 0 || (depth < 3 && random.below(3) == 0);
        if !inner {
            continue;
        }
        // Children divide between 60 and 100 % of the parent's rate; none gets less than a fiftieth
        // of the link.
        let count = 2 + random.below(4) as usize;
        let weights: Vec<f64> = (0..count).map(|_| 1.0 + f64::from(random.below(9))).collect();
        let total: f64 = weights.iter().sum();
        let used = classes[node].rate * (0.6 + 0.1 * f64::from(random.below(5)));
        if used / total < bit_s / 200.0 {
            continue;
        }
        for weight in weights {
            let rate = (used * weight / total).floor();
            let borrow = !flags || random.below(4) > 0;
            let ceiling = (flags && borrow && random.below(5) == 0)
                .then(|| (rate * (1.2 + 0.2 * f64::from(random.below(8)))).floor().min(bit_s));
            order.push(classes.len());
            classes.push(Class { parent: node, rate, borrow, ceiling, demand: 0.0 });
            sizes.push(Vec::new());
            bodies.push(String::new());
        }
    }
    let mut leaf = vec![true; classes.len()];
    classes.iter().skip(1).for_each(|c| leaf[c.parent] = false);
    for at in (1..classes.len()).rev() {
        let class = &classes[at];
        let mut words = format!("class c{at} {{ rate {}bit/s", class.rate);
        if class.borrow {
            words += " borrow";
        }
        if let Some(ceiling) = class.ceiling {
            words += &format!(" ceiling {ceiling}bit/s");
        }
        if leaf[at] {
            // Its queue holds four of its largest packets. At the leaf's own rate they take at most
            // half of the first tenth of a phase, so that a leaf that should be idle is idle when
            // measurement begins.
            let most = (class.rate * span * 0.05 / 4.0 / 8.0) as u32;
            let choices: [&[u32]; 5] = [&[1500], &[576], &[64, 576, 1500], &[1000], &[300, 1500]];
            let mut list: Vec<u32> = choices[random.below(5) as usize].iter().copied().filter(|s| *s <= most).collect();
            if list.is_empty() {
                list.push(most.clamp(40, 1500));
            }
            sizes[at] = list;
            words += &format!(" queue drop_tail {{ limit {}bytes }}", 4 * sizes[at].iter().copied().max().unwrap_or(0));
        }
        // The children of a node in order; those added later come behind.
        let body = format!("{words} {} }} ", bodies[at]);
        bodies[class.parent].insert_str(0, &body);
    }
    let text = format!("link l {{ rate {bit_s}bit/s scheduler cbq {} }}", bodies[0]);
    Tree { text, classes, sizes }
}

fn depth(classes: &[Class], mut at: usize) -> usize {
    let mut depth = 0;
    while at != 0 {
        at = classes[at].parent;
        depth += 1;
    }
    depth
}

/// Runs a tree through phases with random sets of active leaves. Judges every class in every phase,
/// after its first tenth.
fn phases(figure: &mut Figure, random: &mut Random, bit_s: f64, tree: &Tree, count: usize, span: f64) {
    let link = link(&tree.text);
    // The numbers of the policy's classes, in the order of the text.
    let number: Vec<usize> = (0..tree.classes.len())
        .map(|at| if at == 0 { 0 } else { link.class(&format!("c{at}")).map_or(0, |c| c as usize) })
        .collect();
    let leaves: Vec<usize> = (0..tree.classes.len()).filter(|at| !tree.sizes[*at].is_empty()).collect();
    let mut active: Vec<Vec<bool>> = Vec::new();
    let mut feeds: Vec<Feed> = Vec::new();
    for phase in 0..count {
        let mut set = vec![false; tree.classes.len()];
        while !set.iter().any(|a| *a) {
            leaves.iter().for_each(|leaf| set[*leaf] = random.below(2) == 1);
        }
        let (from, to) = (s(span * phase as f64), s(span * (phase + 1) as f64));
        for leaf in leaves.iter().filter(|leaf| set[**leaf]) {
            // Enough packets that the queue does not run empty while the class is served back to
            // back.
            let feed = Feed::new(number[*leaf] as u32, &tree.sizes[*leaf], Pace::Rate(bit_s * 2.0), (from, to));
            feeds.push(Feed { phase: u64::from(random.below(1000)) * 100, ..feed });
        }
        active.push(set);
    }
    let list = arrivals(&feeds, 3);
    let mut sums = Sums {
        parents: link.spec.classes.iter().map(|c| c.parent as usize).collect(),
        span: s(span),
        bytes: vec![vec![0; link.classes.len()]; count],
    };
    replay(&link, &list, &window(0, s(span * count as f64), Timer::Exact), &mut sums);
    let seconds = span * 0.9;
    for phase in 0..count {
        let mut classes = tree.classes.clone();
        classes
            .iter_mut()
            .zip(&active[phase])
            .for_each(|(class, active)| class.demand = if *active { f64::INFINITY } else { 0.0 });
        let ideal = ideal::share(&classes, bit_s);
        for at in 0..classes.len() {
            let measured = sums.bytes[phase][number[at]] as f64 * 8.0 / seconds / bit_s;
            figure.judge(
                format!("phase {phase} of {count}, class c{at} of {}, share of the link", tree.text.len()),
                measured,
                ideal[at] / bit_s,
                0.005,
            );
        }
    }
}

/// Bytes by phase and class, without the first tenth of each phase.
struct Sums {
    parents: Vec<usize>,
    span: u64,
    bytes: Vec<Vec<u64>>,
}

impl altq_simulator::replay::Observer for Sums {
    fn sent(&mut self, now: u64, _: usize, departure: &altq_engine::Departure, _: u64) -> std::io::Result<()> {
        let phase = (now / self.span) as usize;
        if now % self.span >= self.span / 10
            && let Some(row) = self.bytes.get_mut(phase)
        {
            let mut at = departure.class as usize;
            loop {
                row[at] += u64::from(departure.packet.len);
                if at == 0 {
                    break;
                }
                at = self.parents[at];
            }
        }
        Ok(())
    }

    fn dropped(&mut self, _: usize, _: &altq_engine::Drop) -> std::io::Result<()> {
        Ok(())
    }
}

/// Random trees, with random changes of the active leaves.
pub fn trees(scope: Scope) -> Vec<Figure> {
    let whole = scope == Scope::Whole;
    let mut random = Random::new(2026, 11);
    let mut trees = Figure::new("sixty random trees: every class within 0.005 of the link of the ideal");
    for _ in 0..if whole { 60 } else { 8 } {
        let tree = tree(&mut random, 10e6, true, 4.0);
        phases(&mut trees, &mut random, 10e6, &tree, 2, 4.0);
    }
    let mut changes = Figure::new(
        "sixty random changes of the active set, 10 Mbit/s: every class within 0.005 of the link of the ideal",
    );
    for flags in [false, true] {
        let tree = tree(&mut random, 10e6, flags, 2.0);
        phases(&mut changes, &mut random, 10e6, &tree, if whole { 60 } else { 8 }, 2.0);
    }
    let mut fast = Figure::new("sixty random changes of the active set, 1 Gbit/s, every 50 ms: the same");
    let tree = tree(&mut random, 1e9, true, 0.05);
    phases(&mut fast, &mut random, 1e9, &tree, if whole { 60 } else { 6 }, 0.05);
    vec![trees, changes, fast]
}
