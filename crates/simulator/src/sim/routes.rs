//! The ports that packets take from host to host.

use std::collections::VecDeque;

use altq_cases::case::Case;

const NONE: u32 = u32::MAX;

/// For every pair of hosts the port to take: on the route with the fewest links; if there are
/// several, on the one whose link comes first in the file.
///
/// Most hosts have one link and so one port, whatever the destination; a host without a link has
/// none. Only between the others, the inner hosts, there is a table of all pairs.
pub struct Routes {
    hosts: Vec<Place>,
    /// The number of inner hosts.
    inner: usize,
    /// By inner host and inner destination: the port, or [`NONE`].
    ports: Vec<u32>,
}

/// Where a host is.
#[derive(Clone, Copy)]
struct Place {
    /// Hosts that links connect, however many of them, have the same number.
    island: u32,
    /// The only port of a host with one link; [`NONE`] of any other.
    only: u32,
    /// The number of the inner host: the host itself, or the one at the other end of its only
    /// link. [`NONE`] if there is none.
    inner: u32,
    /// The port from that inner host to this host; [`NONE`] of a host without exactly one link.
    into: u32,
}

impl Routes {
    /// The routes of a case.
    pub fn new(case: &Case) -> Routes {
        let n = case.hosts.len();
        // The ports that lead to each host, as (port, from).
        let mut into: Vec<Vec<(usize, usize)>> = vec![Vec::new(); n];
        for (at, link) in case.links.iter().enumerate() {
            into[link.to].push((2 * at, link.from));
            into[link.from].push((2 * at + 1, link.to));
        }
        let mut hosts = vec![Place { island: NONE, only: NONE, inner: NONE, into: NONE }; n];
        let mut inner = Vec::new();
        for (host, ports) in into.iter().enumerate() {
            match ports[..] {
                // Alone on its island, a host without a link takes no place in the table: there may
                // be far more such hosts than inner ones.
                [] => {}
                // The other direction of a link has the other of its two ports.
                [(port, _)] => hosts[host].only = (port ^ 1) as u32,
                _ => {
                    hosts[host].inner = inner.len() as u32;
                    inner.push(host);
                }
            }
        }
        for (host, ports) in into.iter().enumerate() {
            if let [(port, from)] = ports[..]
                && hosts[from].only == NONE
            {
                (hosts[host].inner, hosts[host].into) = (hosts[from].inner, port as u32);
            }
        }
        islands(&into, &mut hosts);
        let mut routes = Routes { hosts, inner: inner.len(), ports: vec![NONE; inner.len() * inner.len()] };
        for (number, to) in inner.into_iter().enumerate() {
            routes.find(number, to, &into);
        }
        routes
    }

    /// The ports of all inner hosts to one of them, nearest first.
    fn find(&mut self, number: usize, to: usize, into: &[Vec<(usize, usize)>]) {
        let mut seen = vec![false; self.inner];
        seen[number] = true;
        let mut open = VecDeque::from([to]);
        while let Some(host) = open.pop_front() {
            for (port, from) in &into[host] {
                let Place { only: NONE, inner, .. } = self.hosts[*from] else { continue };
                if !std::mem::replace(&mut seen[inner as usize], true) {
                    self.ports[inner as usize * self.inner + number] = *port as u32;
                    open.push_back(*from);
                }
            }
        }
    }

    /// The port that a packet takes from `host` to another one; `None` if there is no route.
    #[inline]
    pub fn port(&self, host: usize, to: usize) -> Option<usize> {
        let (from, to) = (self.hosts.get(host)?, self.hosts.get(to)?);
        if from.island != to.island {
            return None;
        }
        let port = if from.only != NONE {
            from.only
        } else if from.inner == to.inner {
            to.into
        } else {
            *self.ports.get(from.inner as usize * self.inner + to.inner as usize)?
        };
        (port != NONE).then_some(port as usize)
    }
}

/// Numbers the hosts that links connect.
fn islands(into: &[Vec<(usize, usize)>], hosts: &mut [Place]) {
    for start in 0..hosts.len() {
        if hosts[start].island != NONE {
            continue;
        }
        hosts[start].island = start as u32;
        let mut open = vec![start];
        while let Some(host) = open.pop() {
            for (_, from) in &into[host] {
                if hosts[*from].island == NONE {
                    hosts[*from].island = start as u32;
                    open.push(*from);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use altq_cases::random::Random;

    use super::*;

    fn case(hosts: usize, links: &[(usize, usize)]) -> Case {
        let mut text = String::from(
            "name = 'x'\ndescription = 'd'\nduration = '1s'\n\
             policy = 'link w { rate 1Mbit/s scheduler priq class a { default } }'\nlinks = [\n",
        );
        for (at, (from, to)) in links.iter().enumerate() {
            let shaped = if at == 0 { "policy = 'w'" } else { "rate = '1Mbit/s'" };
            text += &format!("{{ name = 'l{at}', from = 'h{from}', to = 'h{to}', {shaped} }},\n");
        }
        text += "]\nhosts = [\n";
        (0..hosts).for_each(|at| text += &format!("{{ name = 'h{at}' }},\n"));
        text += "]\n[[flows]]\nname = 'f'\nkind = 'udp'\nfrom = 'h0'\nto = 'h1'\nsize = 100\nrate = '1kbit/s'\n";
        Case::parse(&text, Path::new("x.toml")).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// A table of all pairs, by a search from every host.
    fn all_pairs(hosts: usize, links: &[(usize, usize)]) -> Vec<Vec<Option<usize>>> {
        let mut table = vec![vec![None; hosts]; hosts];
        for to in 0..hosts {
            let (mut open, mut seen) = (VecDeque::from([to]), vec![false; hosts]);
            seen[to] = true;
            while let Some(host) = open.pop_front() {
                for (at, (from, end)) in links.iter().enumerate() {
                    let ways = [(*end, *from, 2 * at), (*from, *end, 2 * at + 1)];
                    for (_, other, port) in ways.into_iter().filter(|(here, ..)| *here == host) {
                        if !std::mem::replace(&mut seen[other], true) {
                            table[other][to] = Some(port);
                            open.push_back(other);
                        }
                    }
                }
            }
        }
        table
    }

    /// The table grows with the hosts that have several links, however many others there are.
    #[test]
    fn hosts_without_a_link_take_no_place_in_the_table() {
        let routes = Routes::new(&case(1_000, &[(0, 1)]));
        assert!(routes.ports.is_empty(), "{} ports", routes.ports.len());
        assert_eq!([routes.port(0, 1), routes.port(1, 0)], [Some(0), Some(1)]);
        assert_eq!([routes.port(0, 999), routes.port(999, 0), routes.port(998, 999)], [None; 3]);

        let routes = Routes::new(&case(1_000, &[(0, 1), (1, 2), (2, 3)]));
        assert_eq!(routes.ports.len(), 4, "the inner hosts are h1 and h2");
        assert_eq!([routes.port(0, 3), routes.port(1, 3), routes.port(2, 3)], [Some(0), Some(2), Some(4)]);
    }

    #[test]
    fn the_same_ports_as_a_table_of_all_pairs() {
        let mut random = Random::new(7, 0);
        let mut draw = |below: usize| random.below(below as u32) as usize;
        for round in 0..200 {
            let hosts = 2 + draw(12);
            let mut links = Vec::new();
            for _ in 0..1 + draw(14) {
                let (from, to) = (draw(hosts), draw(hosts));
                if from != to {
                    links.push((from, to));
                }
            }
            if links.is_empty() {
                links.push((0, 1));
            }
            let (routes, table) = (Routes::new(&case(hosts, &links)), all_pairs(hosts, &links));
            for (from, row) in table.iter().enumerate() {
                for (to, port) in row.iter().enumerate().filter(|(to, _)| *to != from) {
                    assert_eq!(routes.port(from, to), *port, "round {round}: h{from} to h{to} over {links:?}");
                }
            }
        }
    }
}
