//! Puts u32 filters about ports into tables (tc-u32(8), "link").
//!
//! A rule about a port is a filter for each protocol that has ports, and for source and
//! destination. Each compares the protocol, the length of the header and the fragment's offset
//! anew. Without tables a packet would be compared with all of them. So what many filters ask of
//! the IP header is asked once, by a filter that leads to a table with the rest; protocols whose
//! filters are the same from there on lead to one table.

use std::collections::{HashMap, HashSet};

use crate::tree::{Filter, Key, Match, Protocol, Target};

/// The most different guards that are looked at together: the protocols with ports, and some with
/// conditions of their own.
const GUARDS: usize = 8;

/// The word of an IPv4 header that has the protocol.
const PROTOCOL: u16 = 8;

/// A filter in two parts: what it asks of the IP header, and what it asks of the header behind it.
struct Parts {
    guard: Vec<Key>,
    inner: Vec<Key>,
    filter: Filter,
}

/// Filters that follow each other and may stand in tables. Each guard is the same as another one,
/// or no packet matches both; so it does not matter which guard is tried first.
#[derive(Default)]
struct Run {
    guards: Vec<(Vec<Key>, Vec<Parts>)>,
}

/// The same filters, for the same packets, with tables where these save comparisons. Filters of one
/// priority stay in an order that decides alike.
pub fn in_tables(filters: Vec<Filter>) -> Vec<Filter> {
    // Filters of different priorities may stand between each other.
    let mut groups: Vec<Vec<Filter>> = Vec::new();
    let mut places = HashMap::new();
    for filter in filters {
        let place = *places.entry((filter.prio, filter.protocol)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(filter);
    }
    let (mut found, mut made) = (Vec::new(), 0);
    for group in groups {
        let mut run = Run::default();
        for filter in group {
            match parts(filter) {
                Ok(parts) if run.takes(&parts.guard) => run.add(parts),
                Ok(parts) => {
                    std::mem::take(&mut run).end(&mut made, &mut found);
                    run.add(parts);
                }
                Err(filter) => {
                    std::mem::take(&mut run).end(&mut made, &mut found);
                    found.push(filter);
                }
            }
        }
        run.end(&mut made, &mut found);
    }
    found
}

/// The parts of a filter, or the filter itself if it has not both.
fn parts(filter: Filter) -> Result<Parts, Filter> {
    let behind = match filter.protocol {
        Protocol::Ip => 20,
        Protocol::Ipv6 => 40,
        Protocol::All | Protocol::Vlan => return Err(filter),
    };
    let Match::U32 { keys, mark: None, indev: None } = &filter.matches else { return Err(filter) };
    let (mut guard, inner): (Vec<Key>, Vec<Key>) = keys.iter().copied().partition(|key| key.offset < behind);
    if guard.is_empty() || inner.is_empty() {
        return Err(filter);
    }
    // Most packets are told apart by the protocol.
    guard.sort_by_key(|key| key.offset != PROTOCOL);
    Ok(Parts { guard, inner, filter })
}

/// Whether no packet matches both.
fn exclude(one: &[Key], other: &[Key]) -> bool {
    let differ = |one: &Key, other: &Key| (one.value ^ other.value) & one.mask & other.mask != 0;
    one.iter().any(|one| other.iter().any(|other| one.offset == other.offset && differ(one, other)))
}

impl Run {
    fn takes(&self, guard: &[Key]) -> bool {
        self.guards.iter().any(|(own, _)| own == guard)
            || self.guards.len() < GUARDS && self.guards.iter().all(|(own, _)| exclude(own, guard))
    }

    fn add(&mut self, parts: Parts) {
        match self.guards.iter_mut().find(|(own, _)| *own == parts.guard) {
            Some((_, list)) => list.push(parts),
            None => self.guards.push((parts.guard.clone(), vec![parts])),
        }
    }

    /// Adds its filters to `found`. `made` counts the tables.
    fn end(self, made: &mut u16, found: &mut Vec<Filter>) {
        let rest = |list: &[Parts]| -> Vec<(Vec<Key>, Target)> {
            list.iter().map(|parts| (parts.inner.clone(), parts.filter.to)).collect()
        };
        let lists: Vec<_> = self.guards.iter().map(|(_, list)| rest(list)).collect();
        let mut tables: Vec<(usize, u16)> = Vec::new();
        let mut direct = Vec::new();
        for (at, (guard, list)) in self.guards.into_iter().enumerate() {
            let shared = lists.iter().filter(|other| **other == lists[at]).count() > 1;
            let there = tables.iter().find(|(first, _)| lists[*first] == lists[at]).map(|(_, table)| *table);
            // A table for one filter alone saves nothing.
            let table = match there {
                None if (list.len() > 1 || shared) && *made < Filter::TABLES => {
                    *made += 1;
                    tables.push((at, *made));
                    Some(*made)
                }
                there => there,
            };
            let Some(table) = table else {
                direct.extend(list.into_iter().map(|parts| parts.filter));
                continue;
            };
            let Some(first) = list.first().map(|parts| parts.filter.clone()) else { continue };
            let of = |keys: Vec<Key>| Match::U32 { keys, mark: None, indev: None };
            if there.is_none() {
                // A filter that repeats another one is never reached.
                let mut seen = HashSet::new();
                let inside = list.into_iter().filter(|parts| seen.insert(parts.inner.clone()));
                found.extend(inside.map(|parts| Filter { matches: of(parts.inner), table, ..parts.filter }));
            }
            direct.push(Filter { matches: of(guard), to: Target::Table(table), rule: None, ..first });
        }
        found.append(&mut direct);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::Handle;

    const UDP: Key = Key { offset: 8, value: 17 << 16, mask: 0xff << 16 };
    const TCP: Key = Key { offset: 8, value: 6 << 16, mask: 0xff << 16 };
    const WHOLE: Key = Key { offset: 4, value: 0, mask: 0x1fff };

    fn dport(port: u32) -> Key {
        Key { offset: 20, value: port, mask: 0xffff }
    }

    fn filter(keys: &[Key], minor: u16) -> Filter {
        Filter {
            parent: Handle::new(1, 0),
            prio: 1,
            protocol: Protocol::Ip,
            matches: Match::U32 { keys: keys.to_vec(), mark: None, indev: None },
            to: Target::Class(Handle::new(1, minor)),
            table: 0,
            rule: None,
        }
    }

    /// Keys, target and table of each.
    fn shown(filters: Vec<Filter>) -> Vec<(Vec<Key>, Target, u16)> {
        let keys = |matches| match matches {
            Match::U32 { keys, .. } => keys,
            other => panic!("{other:?}"),
        };
        filters.into_iter().map(|filter| (keys(filter.matches), filter.to, filter.table)).collect()
    }

    #[test]
    fn protocols_with_the_same_ports_share_a_table() {
        let class = |minor| Target::Class(Handle::new(1, minor));
        let found = in_tables(vec![
            filter(&[WHOLE, TCP, dport(53)], 1),
            filter(&[WHOLE, UDP, dport(53)], 1),
            filter(&[WHOLE, TCP, dport(80)], 2),
            filter(&[WHOLE, UDP, dport(80)], 2),
        ]);
        assert_eq!(
            shown(found),
            [
                (vec![dport(53)], class(1), 1),
                (vec![dport(80)], class(2), 1),
                (vec![TCP, WHOLE], Target::Table(1), 0),
                (vec![UDP, WHOLE], Target::Table(1), 0),
            ]
        );
    }

    #[test]
    fn a_filter_between_keeps_its_place() {
        let class = |minor| Target::Class(Handle::new(1, minor));
        // All UDP goes to class 3 before the second port is looked at.
        let all = filter(&[UDP], 3);
        let found = in_tables(vec![
            filter(&[UDP, dport(53)], 1),
            filter(&[UDP, dport(54)], 1),
            all.clone(),
            filter(&[UDP, dport(80)], 2),
        ]);
        assert_eq!(
            shown(found),
            [
                (vec![dport(53)], class(1), 1),
                (vec![dport(54)], class(1), 1),
                (vec![UDP], Target::Table(1), 0),
                (vec![UDP], class(3), 0),
                (vec![UDP, dport(80)], class(2), 0),
            ]
        );
    }

    #[test]
    fn guards_that_a_packet_may_match_both_stay_in_order() {
        let source = Key { offset: 12, value: 0x0a00_0000, mask: 0xff00_0000 };
        let filters =
            vec![filter(&[UDP, dport(53)], 1), filter(&[UDP, source, dport(53)], 2), filter(&[UDP, dport(54)], 3)];
        assert_eq!(in_tables(filters.clone()), filters);
    }
}
