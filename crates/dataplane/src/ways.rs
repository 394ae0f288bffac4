//! The directions in which links shape, worked out from the policy alone.

use std::collections::BTreeMap;

use altq_config::{Device, Link, Path};

use crate::error::Error;
use crate::nfqueue::steer;

/// A direction to run.
#[derive(Clone, Copy, Debug)]
pub enum Way<'a> {
    /// Frames from one interface to another.
    Bridge {
        /// The interface at which they come in.
        from: &'a str,
        /// The interface by which they leave.
        to: &'a str,
        /// The link that shapes them; `None`: they pass unshaped.
        link: Option<&'a Link>,
    },
    /// Packets that leave by an interface, or come in at it.
    Interface {
        /// Its name.
        name: &'a str,
        /// True for the packets that come in.
        ingress: bool,
        /// The link that shapes them.
        link: &'a Link,
    },
}

/// Checks the links as `altq run` does, as far as this needs only the policy.
///
/// # Errors
/// [`Error::Link`] for a link without a device, for devices that exclude each other, and for an
/// interface that the firewall's rules cannot name.
pub fn check(links: &[&Link]) -> Result<(), Error> {
    for link in links {
        if let (Some(Device::Interface { name, .. }), Some(Path::Nfqueue)) = (&link.device, link.path()) {
            steer::nameable(name)?;
        }
    }
    ways(links).map(drop)
}

/// All directions to run: those of the links, and the opposite ones of bridges that no link shapes.
pub(crate) fn ways<'a>(links: &[&'a Link]) -> Result<Vec<Way<'a>>, Error> {
    let mut bridges: Vec<(&'a str, &'a str, Option<&'a Link>)> = Vec::new();
    let mut alone: BTreeMap<(&'a str, bool), &'a Link> = BTreeMap::new();
    let mut partner: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for link in links.iter().copied() {
        let name = &link.name;
        let (from, to) = match &link.device {
            Some(Device::Bridge { from, to }) => (from.as_str(), to.as_str()),
            Some(Device::Interface { name: device, ingress }) => {
                if let Some(other) = alone.insert((device.as_str(), *ingress), link) {
                    let does = if *ingress { "comes in at" } else { "leaves by" };
                    return Err(Error::Link(format!(
                        "links `{}` and `{name}` both shape what {does} {device}; one link has room for the classes of \
                         both",
                        other.name
                    )));
                }
                continue;
            }
            None => {
                return Err(Error::Link(format!(
                    "link `{name}` has no device; write `device IF` in it to shape what leaves by the interface IF, \
                     `device IF ingress` for what comes in, or `device bridge A B` for what comes in at A and \
                     leaves by B; `altq replay` and `altq sim` need none"
                )));
            }
        };
        if from == to {
            return Err(Error::Link(format!("link `{name}`: a bridge needs two interfaces, and both are {from}")));
        }
        for (this, other) in [(from, to), (to, from)] {
            if let Some((known, by)) = partner.insert(this, (other, name))
                && known != other
            {
                return Err(Error::Link(format!(
                    "link `{name}`: {this} is bridged to {other} here and to {known} by link `{by}`; an interface has \
                     one partner"
                )));
            }
        }
        let taken = bridges.iter().find(|(a, b, _)| (*a, *b) == (from, to));
        if let Some((_, _, Some(twice))) = taken {
            return Err(Error::Link(format!(
                "links `{}` and `{name}` both shape what goes from {from} to {to}",
                twice.name
            )));
        }
        bridges.push((from, to, Some(link)));
    }
    if let Some(((name, _), link)) = alone.iter().find(|((name, _), _)| partner.contains_key(name))
        && let Some((other, by)) = partner.get(name)
    {
        return Err(Error::Link(format!(
            "link `{}` shapes {name}, which link `{by}` bridges to {other}: the kernel's firewall does not see what \
             passes such a bridge; write `device bridge` in both",
            link.name
        )));
    }
    for at in 0..bridges.len() {
        let (from, to, _) = bridges[at];
        if !bridges.iter().any(|(a, b, _)| (*a, *b) == (to, from)) {
            bridges.push((to, from, None));
        }
    }
    let bridges = bridges.into_iter().map(|(from, to, link)| Way::Bridge { from, to, link });
    // In the policy's order.
    let alone = links.iter().copied().filter_map(|link| match &link.device {
        Some(Device::Interface { name, ingress }) => Some(Way::Interface { name, ingress: *ingress, link }),
        _ => None,
    });
    Ok(bridges.chain(alone).collect())
}

#[cfg(test)]
mod tests {
    use altq_config::{Language, Link, parse_str};

    use super::check;

    fn refused(devices: &[&str]) -> Option<String> {
        // Each pair has a policy of its own, because the policy language refuses some of these
        // pairs too.
        let link = |(at, device): (usize, &&str)| -> Link {
            let text = format!("link l{at} {{ {device}  rate 1Mbit/s  scheduler fifo  class all {{ default }} }}");
            let policy = parse_str(&text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
            policy.links.into_iter().next().unwrap()
        };
        let links: Vec<Link> = devices.iter().enumerate().map(link).collect();
        check(&links.iter().collect::<Vec<_>>()).err().map(|error| error.to_string())
    }

    #[test]
    fn an_interface_has_one_link_a_direction_and_one_kind_of_device() {
        assert_eq!(refused(&["device eth0", "device eth0 ingress", "device eth1", "device bridge a b"]), None);
        for (devices, why) in [
            (&["device eth0", "device eth0"][..], "both shape what leaves by eth0"),
            (&["device eth0 ingress", "device eth0 ingress"], "both shape what comes in at eth0"),
            (&["device bridge eth0 eth1", "device eth1 ingress"], "which link `l0` bridges to eth0"),
            (&["device bridge a b", "device bridge b c"], "has one partner"),
            (&["device bridge a b", "device bridge a b"], "both shape what goes from a to b"),
            (&["device eth0", ""], "link `l1` has no device"),
        ] {
            let said = refused(devices).unwrap_or_default();
            assert!(said.contains(why), "{devices:?}: {said}");
        }
    }
}
