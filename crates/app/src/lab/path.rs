//! What lies between the hosts besides the shaped link's queue: propagation, jitter, loss, reordering of the case's links, and what its
//! hosts take. All flows share one wire a way, so all of them must meet the same; it stands behind the queue.

use altq_dataplane::distant::Flight;
use altq_engine::units::Nanos;
use altq_simulator::case::{Case, CaseLink, Loss, Medium, Way};
use altq_simulator::sim::{self, Random};

use super::topology::Side;

/// Streams of chance: those of the simulator's links are numbered from here by port.
const FLIGHTS: u64 = 1 << 32;

/// A link or a host on the way.
#[derive(Clone, Debug, PartialEq)]
enum Hop {
    /// What a link's medium does, and the number of its port.
    Link(Way, u64),
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
            Hop::Link(way, _) => way.jitter > 0 || way.loss != Loss::None || way.reorder > 0.0,
            Hop::Host(_) => false,
        })
    }

    /// As the bridge wants it.
    pub fn flight(&self, seed: u64) -> Option<Flight> {
        enum Step {
            Link(Box<sim::Flight>),
            Host(Nanos),
        }
        let step = |hop: &Hop| match hop {
            Hop::Link(way, port) => Step::Link(Box::new(sim::Flight::new(way.clone(), Random::new(seed, FLIGHTS + port)))),
            Hop::Host(delay) => Step::Host(*delay),
        };
        let mut steps: Vec<Step> = self.hops.iter().map(step).collect();
        (!steps.is_empty()).then(|| {
            let fly = move |left: Nanos| {
                steps.iter_mut().try_fold(left, |at, step| match step {
                    Step::Link(flight) => flight.launch(at),
                    Step::Host(delay) => Some(at.saturating_add(*delay)),
                })
            };
            Box::new(fly) as Flight
        })
    }
}

/// The paths from the sources and from the sinks.
///
/// # Errors
/// Why the lab does not have them, in words.
pub fn paths(case: &Case, sides: &[Side]) -> Result<[Path; 2], String> {
    let mut found: [Option<(usize, Path)>; 2] = [None, None];
    for (at, flow) in case.flows.iter().enumerate().filter(|(_, flow)| !flow.active.is_empty()) {
        for (from, to) in [(flow.from, flow.to), (flow.to, flow.from)] {
            let Some(way) = sim::route(case, from, to) else { continue };
            let path = Path { hops: way.iter().flat_map(|(link, back)| hops(case, *link, *back)).collect() };
            let place = usize::from(sides.get(from) == Some(&Side::Sinks));
            match &found[place] {
                None => found[place] = Some((at, path)),
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
        Hop::Link(way, _) => Hop::Link(way.clone(), 0),
        Hop::Host(delay) => Hop::Host(*delay),
    };
    one.hops.iter().map(kind).eq(other.hops.iter().map(kind))
}

fn hops(case: &Case, link: usize, back: bool) -> Vec<Hop> {
    let Some(own) = case.links.get(link) else { return Vec::new() };
    let way = &own.ways[usize::from(back)];
    // Its rate and its queue are not the medium's.
    let way = Way { rate: None, queue: Way::default().queue, ..way.clone() };
    let far = if back { own.from } else { own.to };
    let host = case.hosts.get(far).map_or(0, |host| host.delay);
    let mut hops = Vec::new();
    if way != (Way { keep_order: way.keep_order, ..Way::default() }) {
        hops.push(Hop::Link(way, 2 * link as u64 + u64::from(back)));
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
    if matches!(link.medium, Some(Medium::Atm | Medium::AtmVcMux)) {
        return Some(format!("link `{name}` sends cells of ATM"));
    }
    if link.tunnel.is_some() {
        return Some(format!("link `{name}` is a tunnel"));
    }
    if shaped && link.tx_queues > 1 {
        return Some(format!("link `{name}` has several transmit queues"));
    }
    if shaped && link.tx_ring > 1 {
        return Some(format!("link `{name}` has a driver's ring"));
    }
    None
}
