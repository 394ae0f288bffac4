//! Reads `[[links]]`.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use altq_engine::settings::Limit;
use toml::Spanned;

use super::raw;
use super::topology::{CaseLink, Host, Loss, Medium, Tunnel, Way};
use super::words::{Known, share, unique};
use super::wrong::{Result, bad, did_you_mean};
use crate::limits::MOST_QUEUES;
use altq_config::literal;

/// The smallest MTU: that of IPv4 (RFC 791 3.2).
const LEAST_MTU: u32 = 68;
/// The most hosts with more than one link: between these the simulator has a table of all routes.
const MOST_INNER: usize = 2_000;

pub(super) fn links(raw: &Spanned<Vec<raw::Link>>, hosts: &[Host]) -> Result<Vec<CaseLink>> {
    let mut names = HashSet::new();
    let mut links = Vec::new();
    if raw.get_ref().is_empty() {
        return bad(raw, "a case needs a link at least");
    }
    let known = Known::new("host", hosts.iter().map(|host| host.name.as_str()));
    let mut of_host = vec![0_u32; hosts.len()];
    let mut inner = 0;
    for link in raw.get_ref() {
        unique(&mut names, &link.name, "link")?;
        let (from, to) = (known.find(&link.from)?, known.find(&link.to)?);
        for end in [from, to] {
            of_host[end] += 1;
            inner += usize::from(of_host[end] == 2);
        }
        if inner > MOST_INNER {
            return bad(&link.name, format!("a case may have {MOST_INNER} hosts with more than one link at most"));
        }
        if from == to {
            return bad(&link.to, "a link needs two ends");
        }
        if link.rate.is_none() && link.policy.is_none() && link.reverse.is_none() {
            return bad(&link.name, "a link without a policy needs a rate");
        }
        if let Some(rate) =
            [&link.rate, &link.reverse_rate].into_iter().flatten().find(|rate| rate.get_ref().0.is_zero())
        {
            return bad(rate, "a link at 0 bit/s carries nothing");
        }
        let tx_ring = match &link.tx_ring {
            Some(n) if *n.get_ref() == 0 => return bad(n, "the driver holds one packet at least: the one on the wire"),
            Some(n) => *n.get_ref() as usize,
            None => 1,
        };
        let tx_queues = match &link.tx_queues {
            Some(n) if !(1..=MOST_QUEUES as u32).contains(n.get_ref()) => {
                return bad(n, format!("a card has 1 to {MOST_QUEUES} transmit queues"));
            }
            Some(n) => *n.get_ref() as usize,
            None => 1,
        };
        let tx_buffer = match &link.tx_buffer {
            Some(n) if *n.get_ref() == 0 => return bad(n, "a buffer of 0 bytes holds nothing"),
            Some(n) if tx_queues == 1 => {
                return bad(n, "only rings of a card with several transmit queues have such slots");
            }
            buffer => buffer.as_ref().map(|n| *n.get_ref()),
        };
        let medium = medium(link)?;
        links.push(CaseLink {
            name: link.name.get_ref().clone(),
            from,
            to,
            ways: ways(link)?,
            half_duplex: half_duplex(link, medium, tx_queues)?,
            medium,
            mtu: match &link.mtu {
                Some(n) if !(LEAST_MTU..=65_535).contains(n.get_ref()) => {
                    return bad(n, format!("an MTU is {LEAST_MTU} to 65535"));
                }
                mtu => mtu.as_ref().map(|n| *n.get_ref()),
            },
            tunnel: tunnel(link)?,
            // An empty name means none, so that a row or column can say so by a value.
            policy: link.policy.clone().filter(|name| !name.is_empty()),
            reverse: link.reverse.clone().filter(|name| !name.is_empty()),
            tx_ring,
            tx_queues,
            tx_buffer,
        });
    }
    Ok(links)
}

/// Reads the two directions of a link. The reverse direction has the values of the first one,
/// unless it has a key of its own.
fn ways(link: &raw::Link) -> Result<[Way; 2]> {
    let loss = |loss: &Option<Spanned<raw::Loss>>| match loss {
        None => Ok(None),
        Some(loss) => self::loss(loss).map(Some),
    };
    let queue = |text: &Option<Spanned<String>>| match text {
        None => Ok(None),
        Some(text) => match literal::limit(text.get_ref()) {
            Ok(Limit::Packets(0) | Limit::Bytes(0)) => bad(text, "a queue of limit 0 drops every packet"),
            Ok(limit) => Ok(Some(limit)),
            Err(wrong) => bad(text, wrong),
        },
    };
    let reorder = link.reorder.as_ref().map(share).transpose()?;
    let reorder_delay = match (&link.reorder, &link.reorder_delay) {
        (Some(_), Some(delay)) if delay.get_ref().0 > 0 => delay.get_ref().0,
        (Some(at), _) => return bad(at, "for how long are they held back? Write reorder_delay"),
        (None, Some(at)) => return bad(at, "which share is held back for so long? Write reorder"),
        (None, None) => 0,
    };
    let there = Way {
        rate: link.rate.as_ref().map(|rate| rate.get_ref().0),
        delay: link.delay.map_or(0, |delay| delay.0),
        jitter: link.jitter.map_or(0, |jitter| jitter.0),
        keep_order: link.keep_order.unwrap_or(true),
        loss: loss(&link.loss)?.unwrap_or(Loss::None),
        reorder: reorder.unwrap_or(0.0),
        reorder_delay,
        queue: queue(&link.queue)?.unwrap_or(Limit::Packets(1000)),
    };
    let back = Way {
        rate: link.reverse_rate.as_ref().map(|rate| rate.get_ref().0).or(there.rate),
        delay: link.reverse_delay.map_or(there.delay, |delay| delay.0),
        jitter: link.reverse_jitter.map_or(there.jitter, |jitter| jitter.0),
        loss: loss(&link.reverse_loss)?.unwrap_or(there.loss),
        queue: queue(&link.reverse_queue)?.unwrap_or(there.queue),
        ..there.clone()
    };
    Ok([there, back])
}

fn loss(raw: &Spanned<raw::Loss>) -> Result<Loss> {
    let share = |figure: &raw::Figure| share(&Spanned::new(raw.span(), figure.clone()));
    match raw.get_ref() {
        raw::Loss::Share(figure) => match share(figure)? {
            0.0 => Ok(Loss::None),
            share => Ok(Loss::Random(share)),
        },
        raw::Loss::Bursts(b) => Ok(Loss::Bursts {
            enter: share(&b.enter)?,
            leave: share(&b.leave)?,
            good: b.good.as_ref().map_or(Ok(0.0), share)?,
            bad: b.bad.as_ref().map_or(Ok(1.0), share)?,
        }),
    }
}

fn medium(link: &raw::Link) -> Result<Option<Medium>> {
    let Some(word) = &link.medium else { return Ok(None) };
    match word.get_ref().as_str() {
        "ethernet" => Ok(Some(Medium::Ethernet)),
        "atm" => Ok(Some(Medium::Atm)),
        "atm-vcmux" => Ok(Some(Medium::AtmVcMux)),
        other => {
            let hint = did_you_mean(other, ["ethernet", "atm", "atm-vcmux"]);
            bad(word, format!("a medium is \"ethernet\", \"atm\" (LLC/SNAP) or \"atm-vcmux\"{hint}"))
        }
    }
}

fn half_duplex(link: &raw::Link, medium: Option<Medium>, tx_queues: usize) -> Result<bool> {
    let Some(word) = &link.duplex else { return Ok(false) };
    match word.get_ref().as_str() {
        "full" => Ok(false),
        "half" if medium != Some(Medium::Ethernet) => bad(word, "CSMA/CD is Ethernet's: write medium = \"ethernet\""),
        "half" if tx_queues > 1 => bad(word, "a card with several transmit queues is full duplex"),
        "half" => match &link.reverse_rate {
            Some(rate) => bad(rate, "a half-duplex medium has one rate"),
            None => Ok(true),
        },
        _ => bad(word, "duplex is \"full\" or \"half\""),
    }
}

fn tunnel(link: &raw::Link) -> Result<Option<Tunnel>> {
    let Some(word) = &link.tunnel else {
        return match &link.tunnel_addresses {
            Some(at) => bad(at, "addresses for which tunnel? Write tunnel = \"6in4\""),
            None => Ok(None),
        };
    };
    match (word.get_ref().as_str(), &link.tunnel_addresses) {
        // As with policies, an empty name means none, so that rows can differ by it.
        ("", None) => Ok(None),
        ("", Some(at)) => bad(at, "addresses for which tunnel? Write tunnel = \"6in4\""),
        ("6in4", None) => Ok(Some(Tunnel::Configured([Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)]))),
        ("6in4", Some(addresses)) => Ok(Some(Tunnel::Configured(*addresses.get_ref()))),
        ("6to4", Some(at)) => bad(at, "6to4 takes its addresses from those of IPv6"),
        ("6to4", None) => Ok(Some(Tunnel::SixToFour)),
        _ => bad(word, "a tunnel is \"6in4\" or \"6to4\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of so many hosts in a row: all but the first and the last have two links.
    fn row(count: usize) -> Result<Vec<CaseLink>> {
        let host = |at: usize| Host { name: format!("h{at}"), address: Ipv4Addr::UNSPECIFIED.into(), delay: 0 };
        let hosts: Vec<Host> = (0..count).map(host).collect();
        let link = |at: usize| -> raw::Link {
            let text = format!("name = 'l{at}'\nfrom = 'h{at}'\nto = 'h{}'\nrate = '1Mbit/s'\n", at + 1);
            toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
        };
        links(&Spanned::new(0..count, (0..count - 1).map(link).collect()), &hosts)
    }

    #[test]
    fn two_thousand_inner_hosts_and_no_more() {
        assert_eq!(row(2_002).map(|links| links.len()), Ok(2_001));
        let refused = row(2_003).err().map(|(_, message)| message);
        assert_eq!(refused.as_deref(), Some("a case may have 2000 hosts with more than one link at most"));
    }
}
