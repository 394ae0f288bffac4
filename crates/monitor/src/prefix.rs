//! Prefixes that matter: addresses aggregated until each prefix has a part of the traffic.
//!
//! K. Cho, R. Kaizaki and A. Kato, "Aguri: An Aggregation-Based Traffic Profiler", QofIS 2001. The
//! addresses are the leaves of a patricia tree. From the leaves up, a node whose part of the
//! traffic is below a threshold adds it to its parent. The nodes that remain have enough by
//! themselves, and their counts add up to the total.
//!
//! Aguri keeps its tree while packets come, with a fixed number of nodes. Here the number of hosts
//! is bounded already ([`SpaceSaving`](crate::space_saving::SpaceSaving)), so the tree is made of
//! the listed hosts when it is asked for. An address that several flows have is one leaf.

use crate::amount::Amount;

/// An address and what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// The address as a number; an IPv4 address is in the low 32 bits.
    pub bits: u128,
    /// What it has.
    pub amount: Amount,
}

/// A prefix and what it has, without the longer prefixes in it that are listed themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Its lowest address.
    pub bits: u128,
    /// Its length in bits: 0 to 32 in IPv4, 0 to 128 in IPv6.
    pub length: u8,
    /// What it has.
    pub amount: Amount,
}

/// The prefixes of addresses of one family (4, or anything else for addresses of 128 bits). A
/// prefix is listed if it has at least `per_mille` thousandths of the bytes or of the packets of
/// `total`, and at least one of them. `/0` is listed with whatever is left. The amounts of the
/// prefixes add up to those of the hosts.
pub fn prefixes(mut hosts: Vec<Host>, family: u8, total: Amount, per_mille: u32) -> Vec<Prefix> {
    let width = if family == 4 { 32 } else { 128 };
    hosts.sort_unstable_by_key(|host| host.bits);
    // Several flows may have the same address.
    hosts.dedup_by(|next, kept| {
        let same = next.bits == kept.bits;
        if same {
            kept.amount += next.amount;
        }
        same
    });
    let tree = Tree { width, total, per_mille: u128::from(per_mille) };
    let mut found = Vec::new();
    if let Some(root) = tree.aggregate(&hosts, &mut found) {
        let top = if tree.matters(root.amount) { root } else { Prefix { bits: 0, length: 0, amount: root.amount } };
        if !top.amount.is_zero() {
            found.push(top);
        }
    }
    found
}

struct Tree {
    /// Bits of an address.
    width: u32,
    total: Amount,
    per_mille: u128,
}

impl Tree {
    /// The node above these hosts, with what is left for it. The hosts are sorted and different.
    /// Nodes below it that have enough are added to `found`. `None` without hosts. It calls itself
    /// at most once per bit of an address deep.
    fn aggregate(&self, hosts: &[Host], found: &mut Vec<Prefix>) -> Option<Prefix> {
        let (first, last) = (hosts.first()?, hosts.last()?);
        let length = ((first.bits ^ last.bits) << (128 - self.width)).leading_zeros().min(self.width);
        if length == self.width {
            let amount = hosts.iter().map(|host| host.amount).sum();
            return Some(Prefix { bits: first.bits, length: length as u8, amount });
        }
        // The first bit in which they differ: the first host has a 0 there, and the last a 1.
        let bit = 1u128 << (self.width - length - 1);
        let (low, high) = hosts.split_at(hosts.partition_point(|host| host.bits & bit == 0));
        let mut amount = Amount::default();
        for half in [low, high] {
            let Some(child) = self.aggregate(half, found) else { continue };
            if self.matters(child.amount) {
                found.push(child);
            } else {
                amount += child.amount;
            }
        }
        Some(Prefix { bits: first.bits & !(bit | (bit - 1)), length: length as u8, amount })
    }

    /// Whether a node has enough to be listed.
    fn matters(&self, amount: Amount) -> bool {
        let enough = |part: u64, whole: u64| part > 0 && u128::from(part) * 1000 >= u128::from(whole) * self.per_mille;
        enough(amount.bytes, self.total.bytes) || enough(amount.packets, self.total.packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(a: u8, b: u8, c: u8, d: u8, bytes: u64) -> Host {
        Host { bits: u128::from(u32::from_be_bytes([a, b, c, d])), amount: Amount::new(bytes, 0) }
    }

    fn text(prefix: &Prefix) -> (String, u64) {
        (format!("{}/{}", core::net::Ipv4Addr::from(prefix.bits as u32), prefix.length), prefix.amount.bytes)
    }

    #[test]
    fn small_children_go_to_their_parents() {
        // The threshold is 10 % of 1000 bytes. 10.0.0.1 has 500 and stays. 10.0.0.2 and .3 have 60
        // each; together, as 10.0.0.2/31, they have 120, which is enough. 10.0.1.1 has 90, too
        // little. Its parent 10.0.0.0/23 gets these 90, which is too little again. 192.0.2.1 has
        // 230 and stays. /0 gets the 90 that are left.
        let hosts = vec![
            host(192, 0, 2, 1, 230),
            host(10, 0, 0, 3, 60),
            host(10, 0, 1, 1, 90),
            host(10, 0, 0, 1, 300),
            host(10, 0, 0, 2, 60),
            host(10, 0, 0, 1, 200),
        ];
        let total = Amount::new(1000, 0);
        let mut found: Vec<_> = prefixes(hosts.clone(), 4, total, 100).iter().map(text).collect();
        found.sort();
        let expected = [("0.0.0.0/0", 90), ("10.0.0.1/32", 500), ("10.0.0.2/31", 120), ("192.0.2.1/32", 230)].map(own);
        assert_eq!(found, expected);
        // With 60 %, 10.0.0.1 has too little, and so has 10.0.0.2/31. Together they are
        // 10.0.0.0/30, which has 620. 90 and 230 are left for /0.
        let most: Vec<_> = prefixes(hosts.clone(), 4, total, 600).iter().map(text).collect();
        assert_eq!(most, [("10.0.0.0/30", 620), ("0.0.0.0/0", 320)].map(own));
        // With 75 % only /0 is left: 10.0.0.0/23 has 710, too little.
        let whole: Vec<_> = prefixes(hosts.clone(), 4, total, 750).iter().map(text).collect();
        assert_eq!(whole, [own(("0.0.0.0/0", 940))]);
        // With 0 every host that has something stays.
        assert_eq!(prefixes(hosts, 4, total, 0).len(), 5);
        assert!(prefixes(Vec::new(), 4, total, 10).is_empty());
    }

    fn own((name, bytes): (&str, u64)) -> (String, u64) {
        (name.to_owned(), bytes)
    }

    #[test]
    fn the_whole_width_of_ipv6() {
        let host = |bits: u128| Host { bits, amount: Amount::new(10, 1) };
        let found = prefixes(vec![host(0), host(u128::MAX), host(1)], 6, Amount::new(30, 3), 500);
        // 0 and 1 make ::/127 with 20 of 30; the highest address alone has too little.
        let short: Vec<_> = found.iter().map(|p| (p.bits, p.length, p.amount.bytes)).collect();
        assert_eq!(short, [(0, 127, 20), (0, 0, 10)]);
        assert_eq!(
            prefixes(vec![host(5), host(5)], 6, Amount::new(20, 2), 10),
            [Prefix { bits: 5, length: 128, amount: Amount::new(20, 2) }]
        );
    }
}
