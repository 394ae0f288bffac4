//! Interfaces that swap names. Qdiscs and redirections stay at an interface when it is renamed, but
//! a link is one of a name, and so is its ifb.

use std::time::{Duration, Instant};

use altq_config::Policy;

use super::super::{has_ingress, redirects, set_up, stands, take_away};
use super::*;

/// The second interface.
const OTHER: &str = "eth1";

fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).status();
    assert!(done.is_ok_and(|done| done.success()), "{words}");
}

/// Adds the second interface.
fn second() {
    ip("link add eth1 type veth peer name more");
    ip("link set more up");
    ip("link set eth1 addrgenmode none up");
}

/// Gives each of the two interfaces the name of the other.
fn swap() {
    ip("link set dev eth0 down");
    ip("link set dev eth1 down");
    ip("link set dev eth0 name away");
    ip("link set dev eth1 name eth0");
    ip("link set dev away name eth1");
    ip("link set dev eth0 up");
    ip("link set dev eth1 up");
}

/// A link for each of these devices.
fn policy(devices: &[&str]) -> Policy {
    let link = |(number, device): (usize, &&str)| {
        format!(
            "link l{number} {{ device {device}  path kernel  rate 10Mbit/s  scheduler htb
                class a {{ rate 9Mbit/s  ceil 10Mbit/s }}  class b {{ rate 1Mbit/s  default }} }}\n"
        )
    };
    let text: String = devices.iter().enumerate().map(link).collect();
    parse_str(&text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs links. That the kernel has what they need was tried before.
fn runs(policy: &Policy) -> crate::Running {
    let links: Vec<&Link> = policy.links.iter().collect();
    crate::run(&links, crate::Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// Whether what comes in at an interface is redirected to the ifb of the link of this name.
fn leads(interface: &str, to: &str) -> bool {
    let mut ask = Socket::open().unwrap();
    let Some(device) = index(&mut ask, &ifb(to)).unwrap() else { return false };
    redirects(&mut ask, find(interface).unwrap().index, Some(device)).unwrap().0.is_some()
}

/// Whether the link of an interface stands there.
fn is_shaped(interface: &str, ingress: bool) -> bool {
    if ingress { leads(interface, interface) } else { stands(interface, false) }
}

/// Whether nothing of a link is at an interface.
fn is_bare(interface: &str) -> bool {
    let mut ask = Socket::open().unwrap();
    !stands(interface, false) && has_ingress(&mut ask, find(interface).unwrap().index).unwrap().is_none()
}

/// Whether the link of an interface has no ifb.
fn has_no_ifb(interface: &str) -> bool {
    index(&mut Socket::open().unwrap(), &ifb(interface)).unwrap().is_none()
}

/// Waits until a condition holds. A link looks twice a second where its interface is.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Each interface still leads to the ifb of the other name. If neither is let go, each link finds
/// the redirection of the other one in its way, and what comes in is shaped by the wrong link for
/// ever.
#[test]
fn links_for_what_comes_in_follow_the_names_of_their_interfaces() {
    in_a_namespace(true, || {
        second();
        let running = runs(&policy(&["eth0 ingress", "eth1 ingress"]));
        assert!(leads(NAME, NAME) && leads(OTHER, OTHER));
        swap();
        until("each link has its interface", || leads(NAME, NAME) && leads(OTHER, OTHER));
        running.stop();
        running.wait().unwrap();
        assert!(is_bare(NAME) && is_bare(OTHER) && has_no_ifb(NAME) && has_no_ifb(OTHER));
    });
}

/// What stands at an interface does not stay there when another one has got its name.
#[test]
fn an_interface_whose_name_another_one_has_is_not_shaped_any_more() {
    for ingress in [false, true] {
        in_a_namespace(ingress, move || {
            second();
            let device = if ingress { "eth0 ingress" } else { "eth0" };
            let running = runs(&policy(&[device]));
            assert!(is_shaped(NAME, ingress));
            swap();
            until("the link has its interface", || is_shaped(NAME, ingress) && is_bare(OTHER));
            running.stop();
            running.wait().unwrap();
            assert!(is_bare(NAME) && is_bare(OTHER) && has_no_ifb(NAME));
        });
    }
}

/// A process was killed, its interface has another name by now, and the next process has set the
/// link up at the one that has the name: both lead to the ifb. When that goes, both are let go. The
/// kernel drops what comes in at an interface that leads to an ifb that is gone.
#[test]
fn all_interfaces_that_lead_to_an_ifb_are_let_go_with_it() {
    in_a_namespace(true, || {
        second();
        let [link, ..] = links();
        set_up(NAME, true, &link).unwrap();
        swap();
        set_up(NAME, true, &link).unwrap();
        assert!(leads(NAME, NAME) && leads(OTHER, NAME));
        assert!(take_away(NAME, true).unwrap());
        assert!(is_bare(NAME) && is_bare(OTHER) && has_no_ifb(NAME));
    });
}
