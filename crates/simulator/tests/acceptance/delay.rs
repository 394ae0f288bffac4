//! Delay: voice beside bulk traffic, and the promise of docs/reference/cbq.md rule 9.

use altq_cases::random::Random;
use altq_engine::spec::Timer;
use altq_engine::units::SECOND;

use super::support::*;

/// Voice (5 %, 160 bytes every 2.84 ms) beside 19 backlogged classes of 5 % with 1500 bytes on 10
/// Mbit/s: p99 at most 1.25 ms.
pub fn voice(scope: Scope) -> Figure {
    let mut figure = Figure::new("voice beside 19 backlogged classes: p99 at most 1.25 ms");
    let to = if scope == Scope::Whole { 61 * SECOND } else { 8 * SECOND };
    for excess in ["share", "priority"] {
        for (name, priority, agency) in
            [("priority 7", 7, false), ("the others' priority", 1, false), ("in an agency", 7, true)]
        {
            for borrow in ["", "borrow"] {
                let voice = format!("class voice {{ share 5% priority {priority} {borrow} }}");
                let voice = if agency { format!("class agency {{ share 5% borrow {voice} }}") } else { voice };
                let bulk: String = (0..19).map(|n| format!("class b{n} {{ share 5% {borrow} }} ")).collect();
                let link =
                    link(&format!("link l {{ rate 10Mbit/s scheduler cbq {{ excess {excess} }} {voice} {bulk} }}"));
                let class = |name: &str| link.class(name).unwrap_or(0);
                let mut feeds = vec![Feed::new(class("voice"), &[160], Pace::Every(2_840_000), (0, to))];
                for n in 0..19 {
                    let feed = Feed::new(class(&format!("b{n}")), &[1500], Pace::Rate(0.65e6), (0, to));
                    feeds.push(Feed { phase: n * 631_000, ..feed });
                }
                let report = got(&link, &feeds, &window(SECOND, to, Timer::Exact), 1);
                let row = &report.classes[class("voice") as usize];
                let p99 = row.delay_ns.p99.unwrap_or(u64::MAX) as f64 / 1e6;
                let what = format!("excess {excess}, {name} {borrow}: p99 {p99:.4} ms of {} packets", row.sent_packets);
                figure.bound(what, p99, 1.25);
            }
        }
    }
    figure
}

/// A leaf of a random tree.
struct Leaf {
    class: u32,
    rate: f64,
    priority: u32,
    /// Size of its largest packet, and the number of such packets that it earns while idle.
    size: u32,
    burst: u32,
}

/// Rule 9: a packet of a class within its guarantee waits at most (bursts of classes of higher and
/// equal priority + one packet of the link) / (link's rate minus the rates of higher priorities).
/// Each leaf in turn keeps to its guarantee: its whole burst at once, then a packet whenever its
/// rate allows one. All other leaves are backlogged.
pub fn promise(scope: Scope) -> Figure {
    let mut figure = Figure::new("docs/reference/cbq.md rule 9 over random trees: no packet within guarantee later");
    let mut random = Random::new(9, 9);
    for tree in 0..if scope == Scope::Whole { 40 } else { 6 } {
        let rate = [2e6, 10e6, 100e6][random.below(3) as usize];
        let excess = ["share", "priority"][random.below(2) as usize];
        let mut text = String::new();
        let mut leaves: Vec<Leaf> = Vec::new();
        let agencies = 1 + random.below(4);
        let mut left = 1.0;
        for agency in 0..agencies {
            let part = left / f64::from(agencies - agency) * (0.5 + 0.05 * f64::from(random.below(10)));
            left -= part;
            let count = 1 + random.below(4);
            let borrow = if random.below(4) > 0 { "borrow" } else { "" };
            let total = (rate * part).floor();
            text += &format!("class a{agency} {{ rate {total}bit/s {borrow}\n");
            for n in 0..count {
                let own = (total / f64::from(count)).floor();
                let size = [200, 576, 1000, 1500][random.below(4) as usize];
                let leaf = Leaf { class: 0, rate: own, priority: random.below(8), size, burst: 1 + random.below(4) };
                let borrow = if random.below(3) > 0 { "borrow" } else { "" };
                text += &format!(
                    "  class l{agency}_{n} {{ rate {own}bit/s priority {} packetsize {} maxburst {} {borrow} }}\n",
                    leaf.priority, leaf.size, leaf.burst
                );
                leaves.push(leaf);
            }
            text += "}\n";
        }
        let link = link(&format!("link l {{ rate {rate}bit/s scheduler cbq {{ excess {excess} }} {text} }}"));
        let mut names = link.classes.iter().enumerate().filter(|(_, c)| c.name.starts_with("l") && c.name != "l");
        leaves.iter_mut().for_each(|leaf| leaf.class = names.next().map_or(0, |(at, _)| at as u32));
        for good in scope.thin(&(0..leaves.len()).collect::<Vec<_>>(), 2) {
            let me = &leaves[good];
            let bits = |leaf: &Leaf| f64::from(leaf.burst * leaf.size) * 8.0;
            let before: f64 = leaves.iter().filter(|l| l.priority >= me.priority).map(bits).sum();
            let higher: f64 = leaves.iter().filter(|l| l.priority > me.priority).map(|l| l.rate).sum();
            let bound = (before + 1500.0 * 8.0) / (rate - higher);
            let packet = f64::from(me.size) * 8.0 / me.rate;
            // The class first earns its burst while it is idle. Then it sends the burst at once,
            // and a packet whenever its rate allows one.
            let start = s(packet * f64::from(me.burst) + 0.05);
            let to = start + s((200.0 * packet).clamp(1.0, 20.0));
            let mut feeds = Vec::new();
            for leaf in &leaves {
                if leaf.class == me.class {
                    let burst =
                        Feed::new(leaf.class, &[leaf.size], Pace::Bursts(leaf.burst - 1, 1e18), (start, start + 1));
                    if leaf.burst > 1 {
                        feeds.push(burst);
                    }
                    feeds.push(Feed::new(
                        leaf.class,
                        &[leaf.size],
                        Pace::Every((packet * 1e9).ceil() as u64),
                        (start, to),
                    ));
                } else {
                    let feed = Feed::new(leaf.class, &[leaf.size], Pace::Rate(rate * 1.2), (0, to));
                    feeds.push(Feed { phase: u64::from(random.below(1000)) * 1000, ..feed });
                }
            }
            let report = got(&link, &feeds, &window(0, to + SECOND, Timer::Exact), 1);
            let max = report.classes[me.class as usize].delay_ns.max.unwrap_or(u64::MAX) as f64 / 1e9;
            let what = format!(
                "tree {tree}, {excess}, {} Mbit/s, leaf {good} of {}, priority {}",
                rate / 1e6,
                leaves.len(),
                me.priority
            );
            figure.bound(format!("{what}: {:.3} ms of {:.3} ms", max * 1e3, bound * 1e3), max, bound);
        }
    }
    figure
}
