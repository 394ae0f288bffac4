//! What lies between the hosts besides the shaped link's queue: rate and buffer of the links behind it, propagation, jitter, loss and reordering
//! of all links, and what hosts take. All flows share one wire a way, so all of them must meet the same; it stands behind the queue.

use altq_dataplane::distant::Beyond;
use altq_engine::link::Overhead;
use altq_engine::units::Nanos;
use altq_simulator::case::{Case, CaseLink, Loss, Medium, Way};
use altq_simulator::sim::{self, Fate, Fifo, Random};
use altq_simulator::wire::Wire;

use super::topology::Side;

/// Bytes of a frame before layer 3.
const ETHERNET: usize = 14;

/// Streams of chance: those of the simulator's links are numbered from here by port.
const FLIGHTS: u64 = 1 << 32;

/// A link or a host on the way.
#[derive(Clone, Debug, PartialEq)]
enum Hop {
    /// What a link does, the number of its port, and what a packet is on its wire. Without a rate only the medium counts.
    Link(Way, u64, Option<Medium>),
    /// How long a host takes.
    Host(Nanos),
}

/// What the packets of one side meet on their way to the other.
#[derive(Clone, Debug, Default)]
pub struct Path {
    hops: Vec<Hop>,
}

impl Path {
    /// True if it does nothing.
    pub fn is_short(&self) -> bool {
        self.hops.is_empty()
    }

    /// True if what it does to a packet cannot be done to a super-packet.
    pub fn needs_packets(&self) -> bool {
        self.hops.iter().any(|hop| match hop {
            Hop::Link(way, ..) => way.rate.is_some() || way.jitter > 0 || way.loss != Loss::None || way.reorder > 0.0,
            Hop::Host(_) => false,
        })
    }

    /// As the bridge wants it.
    pub fn beyond(&self, seed: u64) -> Option<Box<dyn Beyond>> {
        let steps = |hop: &Hop| match hop {
            Hop::Link(way, port, medium) => {
                let wire = way.rate.map(|rate| {
                    let overhead = medium.map_or(Overhead::NONE, Medium::overhead);
                    Step::Wire(Box::new((Fifo::new(way.queue, 1), Wire::new(rate, usize::MAX))), overhead)
                });
                let flight = sim::Flight::new(way.clone(), Random::new(seed, FLIGHTS + port));
                wire.into_iter().chain([Step::Link(Box::new(flight))]).collect()
            }
            Hop::Host(delay) => vec![Step::Host(*delay)],
        };
        let steps: Vec<Step> = self.hops.iter().flat_map(steps).collect();
        (!steps.is_empty()).then(|| Box::new(Steps(steps)) as Box<dyn Beyond>)
    }
}

/// What a hop does, with its state.
enum Step {
    Wire(Box<(Fifo, Wire)>, Overhead),
    Link(Box<sim::Flight>),
    Host(Nanos),
}

struct Steps(Vec<Step>);

impl Beyond for Steps {
    fn launch(&mut self, now: Nanos, _: &[u8], len: usize) -> Option<Nanos> {
        let len = len.saturating_sub(ETHERNET) as u32;
        self.0.iter_mut().try_fold(now, |at, step| match step {
            Step::Wire(wire, overhead) => match wire.0.take(at, len, overhead.charge(len), &mut wire.1) {
                Fate::Leaves(end) => Some(end),
                Fate::Full | Fate::BeyondTime => None,
            },
            Step::Link(flight) => flight.launch(at),
            Step::Host(delay) => Some(at.saturating_add(*delay)),
        })
    }
}

/// The paths from the sources and from the sinks. What cannot be had of the links' rates is noted.
///
/// # Errors
/// Why the lab does not have them, in words.
pub fn paths(case: &Case, shaped: usize, sides: &[Side], notes: &mut Vec<String>) -> Result<[Path; 2], String> {
    let mut found: [Option<(usize, Path)>; 2] = [None, None];
    for (at, flow) in case.flows.iter().enumerate().filter(|(_, flow)| !flow.active.is_empty()) {
        for (from, to) in [(flow.from, flow.to), (flow.to, flow.from)] {
            let Some(way) = sim::route(case, from, to) else { continue };
            // What comes before a queue cannot stand behind it: links there are as fast as this host.
            let governed = |(link, back): &(usize, bool)| {
                *link == shaped
                    && case.links.get(*link).is_some_and(|link| if *back { &link.reverse } else { &link.policy }.is_some())
            };
            let behind = way.iter().position(governed).map_or(0, |at| at + 1);
            let mut hops: Vec<Hop> = Vec::new();
            for (place, (link, back)) in way.iter().enumerate() {
                let own = case.links.get(*link);
                if place < behind && *link != shaped && own.is_some_and(|own| own.ways[usize::from(*back)].rate.is_some()) {
                    let name = own.map_or("", |own| own.name.as_str());
                    let note =
                        format!("link `{name}`: before the queue it is as fast as this host; its rate is not reproduced there");
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
                hops.extend(self::hops(case, *link, *back, place >= behind));
            }
            let path = Path { hops };
            let place = usize::from(sides.get(from) == Some(&Side::Sinks));
            match &found[place] {
                None => found[place] = Some((at, path)),
                Some((_, other)) if apart(&path, other) => {
                    // Several links side by side: none of their rates can stand for all.
                    let note =
                        "links that only some flows pass are as fast as this host; their rates are not reproduced".to_string();
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                    if let Some((_, other)) = &mut found[place] {
                        other.hops.iter_mut().for_each(Hop::forget_rate);
                    }
                }
                Some((first, other)) if !alike(&path, other) => {
                    let name = |at: usize| case.flows.get(at).map_or("", |flow| flow.name.as_str());
                    return Err(format!(
                        "flows `{}` and `{}` have different delays or losses on their ways",
                        name(*first),
                        name(at)
                    ));
                }
                Some(_) => {}
            }
        }
    }
    Ok(found.map(|path| path.map(|(_, path)| path).unwrap_or_default()))
}

/// Whether two paths do the same, by whichever links.
fn alike(one: &Path, other: &Path) -> bool {
    let kind = |hop: &Hop| match hop {
        Hop::Link(way, ..) => Hop::Link(medium_of(way), 0, None),
        Hop::Host(delay) => Hop::Host(*delay),
    };
    let does = |hop: &Hop| !matches!(hop, Hop::Link(way, ..) if is_plain(way));
    one.hops.iter().map(kind).filter(does).eq(other.hops.iter().map(kind).filter(does))
}

/// Whether two paths do the same by different links of which some have rates.
fn apart(one: &Path, other: &Path) -> bool {
    let rated = |path: &Path| path.hops.iter().any(|hop| matches!(hop, Hop::Link(way, ..) if way.rate.is_some()));
    (rated(one) || rated(other)) && one.hops != other.hops && alike(one, other)
}

/// A way without what its wire and its queue do.
fn medium_of(way: &Way) -> Way {
    Way { rate: None, queue: Way::default().queue, ..way.clone() }
}

/// Whether a medium does nothing.
fn is_plain(way: &Way) -> bool {
    *way == Way { keep_order: way.keep_order, ..Way::default() }
}

impl Hop {
    fn forget_rate(&mut self) {
        if let Hop::Link(way, ..) = self {
            *way = medium_of(way);
        }
    }
}

fn hops(case: &Case, link: usize, back: bool, rated: bool) -> Vec<Hop> {
    let Some(own) = case.links.get(link) else { return Vec::new() };
    let way = &own.ways[usize::from(back)];
    let way = if rated { way.clone() } else { medium_of(way) };
    let far = if back { own.from } else { own.to };
    let host = case.hosts.get(far).map_or(0, |host| host.delay);
    let mut hops = Vec::new();
    if way.rate.is_some() || !is_plain(&way) {
        // A queue without a rate holds nothing.
        let way = if way.rate.is_some() { way } else { medium_of(&way) };
        hops.push(Hop::Link(way, 2 * link as u64 + u64::from(back), own.medium));
    }
    if host > 0 {
        hops.push(Hop::Host(host));
    }
    hops
}

/// Why the lab does not have a link, in words; `None` if it does.
pub fn only_simulated(link: &CaseLink, shaped: bool) -> Option<String> {
    let name = &link.name;
    if link.half_duplex {
        return Some(format!("link `{name}` is a half-duplex medium (CSMA/CD)"));
    }
    if !shaped && matches!(link.medium, Some(Medium::Atm | Medium::AtmVcMux)) {
        return Some(format!("link `{name}` sends cells of ATM"));
    }
    if shaped && link.tx_queues > 1 {
        return Some(format!("link `{name}` has several transmit queues"));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path as File;

    use super::*;

    /// Paths of a case of these hosts and links, with `a` and `c` on the sources' side; and the notes.
    fn of(links: &str, flows: &[(&str, &str)]) -> (Result<[Path; 2], String>, Vec<String>) {
        let flows: String = flows
            .iter()
            .enumerate()
            .map(|(n, (from, to))| format!("[[flows]]\nname = 'f{n}'\nkind = 'tcp_bulk'\nfrom = '{from}'\nto = '{to}'\n"))
            .collect();
        let text = format!(
            "name = 't'\ndescription = 'd'\nduration = '1s'\npolicy = 'link wan {{ rate 1Mbit/s scheduler fifo class all {{ default }} }}'\n\
             hosts = [{{ name = 'a' }}, {{ name = 'c' }}, {{ name = 'l' }}, {{ name = 'r', delay = '7us' }}, {{ name = 'b' }}, {{ name = 'd' }}]\n\
             links = [{{ name = 'wan', from = 'l', to = 'r', policy = 'wan' }}, {links}]\n{flows}"
        );
        let case = Case::parse(&text, File::new("t.toml")).unwrap_or_else(|error| panic!("{error}"));
        let sides: Vec<Side> =
            case.hosts.iter().map(|host| if "acl".contains(&host.name) { Side::Sources } else { Side::Sinks }).collect();
        let mut notes = Vec::new();
        (paths(&case, 0, &sides, &mut notes), notes)
    }

    const BEFORE: &str = "{ name = 'a', from = 'a', to = 'l', rate = '8Mbit/s', delay = '1ms' }";

    #[test]
    fn times_by_hand() {
        let behind = "{ name = 'b', from = 'r', to = 'b', rate = '8Mbit/s', delay = '2ms' }";
        let (paths, notes) = of(&format!("{BEFORE}, {behind}"), &[("a", "b")]);
        let [there, back] = paths.unwrap();
        assert!(there.needs_packets());
        // 1000 bytes at layer 3: 1 ms before the queue, 7 µs of the router, 1 ms on the wire behind it and 2 of way.
        let mut there = there.beyond(1).unwrap();
        assert_eq!(there.launch(0, &[], 1014), Some(4_007_000));
        assert_eq!(there.launch(0, &[], 1014), Some(5_007_000));
        // Back both wires count, as nothing is shaped there.
        assert_eq!(back.beyond(1).unwrap().launch(0, &[], 1014), Some(1_000_000 + 2_000_000 + 7_000 + 1_000_000 + 1_000_000));
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains("before the queue"), "{notes:?}");
    }

    #[test]
    fn flows_meet_the_same_or_it_is_said() {
        let side = |from: &str, to: &str, words: &str| {
            format!("{{ name = '{from}{to}', from = '{from}', to = '{to}', rate = '8Mbit/s', {words} }}")
        };
        let links = |b: &str, d: &str| {
            [side("a", "l", "delay = '1ms'"), side("c", "l", "delay = '1ms'"), side("r", "b", b), side("r", "d", d)].join(", ")
        };
        let (paths, notes) = of(&links("delay = '2ms'", "delay = '2ms'"), &[("a", "b"), ("c", "d")]);
        // Two links side by side: their delay is the same, their rates cannot be one wire's.
        assert_eq!(paths.unwrap()[0].beyond(1).unwrap().launch(0, &[], 1014), Some(3_007_000));
        assert!(notes.iter().any(|note| note.contains("only some flows")), "{notes:?}");
        let (paths, _) = of(&links("delay = '2ms'", "delay = '3ms'"), &[("a", "b"), ("c", "d")]);
        assert!(paths.unwrap_err().contains("`f0` and `f1` have different delays"));
    }
}
