//! `altq check` and `altq replay` on the same policy: no packet of a source that conforms waits
//! longer than the bound that `check` prints, and a class that always has packets gets its rate.
//! Each of these inputs once passed its bound or lost its rate.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// What must hold of a class.
#[derive(Clone, Copy, Debug)]
enum Law {
    /// Its source conforms: from arrival until its last bit has left, no packet waits longer than
    /// the bound.
    Waits,
    /// It always has packets: by the time at which its guaranteed rate has sent its first n packets
    /// and the bound has passed, they have left. (docs/promises.md: a class is served at its rate
    /// after a latency, and the bound of one packet is no less than that.)
    Rate,
    /// `check` prints no bound, because it promises nothing.
    NoBound,
}

/// A policy, its traffic, and what must hold.
struct Input {
    name: &'static str,
    policy: &'static str,
    /// Packets: time in ns, class, bytes.
    packets: Vec<(u64, String, u32)>,
    laws: &'static [(&'static str, Law)],
    /// The bound in ns of the first class above, worked out by hand.
    bound: Option<u64>,
}

/// `n` packets of a class, the first at `from`, one every `gap` ns.
fn every(class: &str, bytes: u32, from: u64, gap: u64, n: u64) -> Vec<(u64, String, u32)> {
    (0..n).map(|k| (from + k * gap, class.to_owned(), bytes)).collect()
}

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

/// b and c have packets for 2.4 s at 2 and 5 Mbit/s. After a second a sends a burst of two packets,
/// and then one every 6 ms: 2 Mbit/s.
fn overcommitted() -> Vec<(u64, String, u32)> {
    let (b, c) = (every("b", 1500, 0, 0, 400), every("c", 1500, 0, 0, 1000));
    [b, c, every("a", 1500, S, 0, 1), every("a", 1500, S, 6 * MS, 100)].concat()
}

fn inputs() -> Vec<Input> {
    vec![
        Input {
            // The link's own 1 Mbit/s: a burst of two packets, and then one packet every 12 ms.
            name: "packets of the link itself, cbq",
            policy: "link l { rate 10Mbit/s scheduler cbq default
                class a { rate 9Mbit/s borrow } }",
            packets: [
                every("a", 1500, 0, MS, 1001),
                every("l", 1500, S, 0, 1),
                every("l", 1500, S, 12 * MS, 6),
                every("a", 1500, 1001 * MS, MS, 99),
            ]
            .concat(),
            laws: &[("l", Law::Waits)],
            // Two bursts of 3000 bytes and a packet at 10 Mbit/s. 3 ns are for rounding, as a byte
            // of a class takes no whole number of nanoseconds.
            bound: Some(6 * MS + 3),
        },
        Input {
            // x and y send at their rates, v in bursts of 200 packets at its rate: 2.4 s each.
            name: "late by more than a second, cbq",
            policy: "link l { rate 1Mbit/s scheduler cbq
                class v { rate 500kbit/s priority 7 maxburst 200 queue drop_tail { limit 100000packets } }
                class x { rate 200kbit/s queue drop_tail { limit 100000packets } }
                class y { rate 300kbit/s default queue drop_tail { limit 100000packets } } }",
            packets: [
                every("x", 1500, 0, 60 * MS, 1040),
                every("y", 1500, 0, 40 * MS, 1560),
                every("v", 1500, 4800 * MS, 0, 200),
                every("v", 1500, 14_400 * MS, 0, 200),
                every("v", 1500, 24_000 * MS, 0, 200),
                every("v", 1500, 33_600 * MS, 0, 200),
            ]
            .concat(),
            laws: &[("x", Law::Waits), ("y", Law::Waits), ("v", Law::Waits)],
            // The burst of v and a packet of it, two bursts of 3000 bytes, and a packet, at what v
            // leaves: 309,000 bytes at 500 kbit/s. 3 ns of 1 Mbit/s are for rounding.
            bound: Some(4944 * MS + 6),
        },
        Input {
            // a sends 52 bit/s; b and c have packets all the time.
            name: "a link of 1 kbit/s, cbq",
            policy: "link l { rate 1kbit/s scheduler cbq
                class a { rate 103bit/s }
                class b { rate 175bit/s queue drop_tail { limit 1000packets } }
                class c { rate 721bit/s default queue drop_tail { limit 1000packets } } }",
            packets: [
                every("a", 1500, 0, 3 * S * 1000 / 13, 36),
                every("b", 1500, 0, 0, 200),
                every("c", 1500, 0, 0, 700),
            ]
            .concat(),
            laws: &[("a", Law::Waits), ("b", Law::Rate), ("c", Law::Rate)],
            // Three bursts of 3000 bytes and a packet at 1 kbit/s, and 3 ns for rounding.
            bound: Some(84 * S + 3),
        },
        Input {
            // a and b are guaranteed twice what the class above them is, and that is its limit.
            // What all leaves are guaranteed fits, and guarantees go past the limits of classes
            // above.
            name: "an inner class of which more is guaranteed than it has, cbq",
            policy: "link l { rate 10Mbit/s overcommit scheduler cbq
                class g { rate 2Mbit/s class a { rate 2Mbit/s }
                    class b { rate 2Mbit/s queue drop_tail { limit 1000packets } } }
                class c { rate 5Mbit/s default queue drop_tail { limit 2000packets } } }",
            packets: overcommitted(),
            laws: &[("a", Law::Waits), ("b", Law::Rate), ("c", Law::Rate)],
            // Three bursts of 3000 bytes and a packet at 10 Mbit/s.
            bound: Some(8_400_000),
        },
        Input {
            // The classes below the link are guaranteed 13 of its 10 Mbit/s, their leaves 9.
            name: "a link of which inner classes are guaranteed more than it has, cbq",
            policy: "link l { rate 10Mbit/s overcommit scheduler cbq
                class g { rate 8Mbit/s borrow class a { rate 2Mbit/s }
                    class b { rate 2Mbit/s queue drop_tail { limit 1000packets } } }
                class c { rate 5Mbit/s default queue drop_tail { limit 2000packets } } }",
            packets: overcommitted(),
            laws: &[("a", Law::Waits), ("b", Law::Rate), ("c", Law::Rate)],
            bound: Some(8_400_000),
        },
        Input {
            name: "an inner class of which more is guaranteed than it has, htb",
            policy: "link l { rate 10Mbit/s overcommit scheduler htb
                class g { rate 1Mbit/s
                    class a { rate 1Mbit/s burst 20000 cburst 20000 }
                    class b { rate 1Mbit/s burst 20000 cburst 20000 queue drop_tail { limit 1000packets } } }
                class c { rate 5Mbit/s burst 3000 cburst 3000 default queue drop_tail { limit 2000packets } } }",
            packets: [every("b", 1500, 0, 0, 400), every("c", 1500, 0, 0, 1000), every("a", 1500, S, 12 * MS, 50)]
                .concat(),
            laws: &[("a", Law::Waits)],
            // By buckets: those of b and c, 23,000 bytes, and a packet of each; a packet on the
            // wire and its own: 29,000 bytes at the 4 Mbit/s that b and c leave.
            bound: Some(58 * MS),
        },
        Input {
            // Each gets 5 Mbit/s at most while the other has packets.
            name: "shares of more than there is, hfsc",
            policy: "link l { rate 10Mbit/s overcommit scheduler hfsc
                class a { linkshare 6Mbit/s } class b { linkshare 6Mbit/s default } }",
            packets: [every("a", 1500, 0, 2 * MS, 100), every("b", 1500, 0, 2 * MS, 100)].concat(),
            laws: &[("a", Law::NoBound), ("b", Law::NoBound)],
            bound: None,
        },
        Input {
            name: "leaves that are guaranteed more than the link has, cbq",
            policy: "link l { rate 10Mbit/s overcommit scheduler cbq
                class a { rate 6Mbit/s } class b { rate 6Mbit/s default } }",
            packets: [every("a", 1500, 0, 2 * MS, 100), every("b", 1500, 0, 2 * MS, 100)].concat(),
            laws: &[("a", Law::NoBound), ("b", Law::NoBound)],
            bound: None,
        },
        Input {
            // The default quanta are equal, though the rates are 4 : 1.
            name: "quanta that are not as the rates, htb",
            policy: "link l { rate 1Gbit/s scheduler htb
                class a { rate 800Mbit/s  burst 1000000  cburst 1000000  queue drop_tail { limit 1000packets } }
                class b { rate 200Mbit/s  burst 250000   cburst 250000   default
                    queue drop_tail { limit 1000packets } } }",
            packets: [every("b", 1500, 0, 0, 400), every("a", 1500, 0, 15_000, 1000)].concat(),
            laws: &[("a", Law::Waits)],
            // By buckets: the burst of b and a packet of it, one on the wire and its own, 254,500
            // bytes, at the 800 Mbit/s that b leaves.
            bound: Some(2_545_000),
        },
        Input {
            name: "the word overhead, htb",
            policy: "link l { rate 10Mbit/s scheduler htb
                class a { rate 1Mbit/s burst 100000 cburst 100000 overhead 100 queue drop_tail { limit 1000packets } }
                class b { rate 5Mbit/s ceil 10Mbit/s burst 100000 cburst 100000 default } }",
            packets: [every("a", 64, 0, 512_000, 2500), every("b", 1500, 0, 1_200_000, 1000)].concat(),
            laws: &[("a", Law::NoBound)],
            bound: None,
        },
        Input {
            // Six siblings of v hold schedulers that have a short packet, and then a long one that
            // goes before it.
            name: "classes that hold a scheduler, hfsc",
            policy: "link l { rate 10Mbit/s scheduler hfsc
                class v { realtime 3.3Mbit/s linkshare 3.3Mbit/s }
                class s { linkshare 100kbit/s default }
                class g1 { realtime 1.1Mbit/s linkshare 1.1Mbit/s scheduler priq
                    class hi1 { priority 15 } class lo1 { priority 0 } }
                class g2 { realtime 1.1Mbit/s linkshare 1.1Mbit/s scheduler priq
                    class hi2 { priority 15 } class lo2 { priority 0 } }
                class g3 { realtime 1.1Mbit/s linkshare 1.1Mbit/s scheduler priq
                    class hi3 { priority 15 } class lo3 { priority 0 } }
                class g4 { realtime 1.1Mbit/s linkshare 1.1Mbit/s scheduler priq
                    class hi4 { priority 15 } class lo4 { priority 0 } }
                class g5 { realtime 1.1Mbit/s linkshare 1.1Mbit/s scheduler priq
                    class hi5 { priority 15 } class lo5 { priority 0 } }
                class g6 { realtime 1.1Mbit/s linkshare 1.1Mbit/s scheduler priq
                    class hi6 { priority 15 } class lo6 { priority 0 } } }",
            packets: std::iter::once((0, "s".to_owned(), 1500))
                .chain((1..=6).map(|n| (1000, format!("lo{n}"), 40)))
                .chain((1..=6).map(|n| (2000, format!("hi{n}"), 1500)))
                .chain(std::iter::once((3000, "v".to_owned(), 1500)))
                .collect(),
            laws: &[("v", Law::Waits)],
            // 1500 bytes at 3.3 Mbit/s, and at 10 Mbit/s.
            bound: Some(4_836_364),
        },
    ]
}

fn altq(args: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_altq")).args(args).output().expect("altq runs");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Arrival and end on the wire of each class's packets, in the order in which they left, in ns.
fn replay(folder: &std::path::Path, policy: &str, packets: &[(u64, String, u32)]) -> HashMap<String, Vec<(u64, u64)>> {
    let path = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_owned();
    let mut arrivals = "time_ns,class,bytes,id\n".to_owned();
    for (id, (at, class, bytes)) in packets.iter().enumerate() {
        arrivals += &format!("{at},{class},{bytes},{id}\n");
    }
    std::fs::write(path("arrivals.csv"), arrivals).expect("a file");
    altq(&["replay", policy, "--arrivals", &path("arrivals.csv"), "--departures", &path("departures.csv")]);
    let departures = std::fs::read_to_string(path("departures.csv")).expect("a file");
    let mut left: HashMap<String, Vec<(u64, u64)>> = HashMap::new();
    for line in departures.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse::<u64>().expect("a number");
        left.entry(fields[1].to_owned()).or_default().push((packets[number(3) as usize].0, number(4)));
    }
    left
}

/// What one input breaks.
fn broken(at: usize, input: &Input) -> Vec<String> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("laws-{at}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    let policy = folder.join("policy.altq").to_str().expect("a path in UTF-8").to_owned();
    std::fs::write(&policy, input.policy).expect("a file");
    let report: Value = serde_json::from_slice(&altq(&["check", &policy, "--json"])).expect("JSON");
    let classes = report["links"][0]["classes"].as_array().expect("classes");
    let class = |name: &str| classes.iter().find(|class| class["name"] == name).expect("a class of the policy");
    let bound = |name: &str| class(name)["delay_bound_ns"]["conforming"].as_u64();
    let mut packets = input.packets.clone();
    packets.sort_by_key(|packet| packet.0);
    let left = replay(&folder, &policy, &packets);

    let mut wrong = Vec::new();
    let first = bound(input.laws[0].0);
    if first != input.bound {
        wrong.push(format!("{}: the bound is {first:?}, by hand {:?}", input.name, input.bound));
    }
    for (name, law) in input.laws {
        let mut say = |what: String| wrong.push(format!("{}, class {name}: {what}", input.name));
        let bound = match (law, bound(name)) {
            (Law::NoBound, None) => continue,
            (_, Some(bound)) if !matches!(law, Law::NoBound) => bound,
            (_, other) => {
                say(format!("{law:?}, and the bound is {other:?}"));
                continue;
            }
        };
        let sent = &left[*name];
        let arrived = input.packets.iter().filter(|(_, class, _)| class == name).count();
        if sent.len() != arrived {
            say(format!("{arrived} packets came, {} left", sent.len()));
        }
        let rate = u128::from(class(name)["guaranteed_bit_s"].as_u64().expect("a rate"));
        for (n, &(came, end)) in sent.iter().enumerate() {
            let at_rate = match law {
                Law::Rate => ((n as u128 + 1) * 12_000 * 1_000_000_000).div_ceil(rate) as u64,
                _ => 0,
            };
            if end - came > at_rate + bound {
                say(format!("packet {n} took {} ns, at most {at_rate} + {bound} ns are promised", end - came));
                break;
            }
        }
    }
    wrong
}

#[test]
fn bounds_of_check_hold_in_replay() {
    let wrong: Vec<String> = inputs().iter().enumerate().flat_map(|(at, input)| broken(at, input)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
