//! Tests with faults at each request to a real kernel: it is not sent, or its answer is lost. What
//! existed before stays as it was, on the interface and on the ifb for incoming packets.

mod swapped;

use std::io;
use std::process::Command;

use altq_config::{Device, Language, Link, parse_str};
use altq_kernel::message::{self, Message};
use altq_kernel::{Handle, Host, Protocol, ifb};

use super::switch::SWITCH;
use super::wire::{Ask, Refused, Socket, cut_short};
use super::{Done, INGRESS, filters, find, index, qdiscs, set_up_ingress, tree};
use crate::error::Error;
use crate::netns::Namespace;

const NAME: &str = "eth0";

/// How a request fails.
#[derive(Clone, Copy, Debug)]
enum How {
    /// It is not sent.
    Refused,
    /// It is sent, but its answer is lost.
    Lost,
}

/// A kernel whose request of this number fails.
struct Faulty {
    socket: Socket,
    at: u32,
    how: How,
    asked: u32,
}

impl Faulty {
    fn new(at: u32, how: How) -> Faulty {
        Faulty { socket: Socket::open().unwrap(), at, how, asked: 0 }
    }
}

impl Ask for Faulty {
    fn ask(&mut self, request: &[u8]) -> Result<Vec<Message>, Refused> {
        self.asked += 1;
        match self.how {
            _ if self.asked != self.at => self.socket.ask(request),
            How::Refused => Err(io::Error::from_raw_os_error(libc::ENOBUFS).into()),
            How::Lost => {
                let _ = self.socket.ask(request);
                Err(cut_short())
            }
        }
    }
}

/// By linux/if_arp.h: Ethernet 1, PPP 512, loopback 772, no header 65534 (tun, WireGuard).
#[test]
fn the_kernel_counts_the_header_of_ethernet_only() {
    let header = |kind: u16| super::with_header(Some(kind)).header;
    assert_eq!([1, 772, 512, 65_534].map(header), [14, 14, 0, 0]);
    assert_eq!(super::host_of("lo").map(|host| host.header), Some(14));
    assert_eq!(super::host_of("altqnone0"), None);
}

fn link(words: &str) -> Link {
    let text = format!("link wan {{ device eth0  rate 10Mbit/s  scheduler htb  {words} }}");
    let policy = parse_str(&text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
    policy.links.into_iter().next().unwrap()
}

/// A first link; one in which only a class differs from it; and another one.
fn links() -> [Link; 3] {
    let first = |rate: u32| {
        link(&format!(
            "class a {{ rate {rate}Mbit/s  ceil 10Mbit/s  queue drop_tail {{ limit 20packets }} }}
             class b {{ rate 1Mbit/s  default }}  match proto udp dport 53 -> a"
        ))
    };
    let other = "overhead 10 bytes
        class a { rate 2Mbit/s  class x { rate 1Mbit/s }  class y { rate 1Mbit/s } }
        class b { rate 8Mbit/s  default }  match proto tcp dport 80 -> x";
    [first(9), first(5), link(other)]
}

/// All qdiscs, classes and filters of the interface and of its ifb, as lines without counters.
fn state() -> Vec<String> {
    let mut ask = Socket::open().unwrap();
    let mut lines = Vec::new();
    for name in [NAME.to_owned(), ifb(NAME)] {
        let Some(device) = index(&mut ask, &name).unwrap() else { continue };
        lines.push(name.clone());
        let all = qdiscs(&mut ask, device).unwrap();
        for found in &all {
            let line = (found.handle, found.parent, &found.kind, &found.options, found.sizes);
            lines.push(format!("{name} qdisc {line:?}"));
            for found in filters(&mut ask, device, found.handle).unwrap() {
                // The filter of the switch may have been made again, and the redirection shows when
                // it was last used.
                let options = if [SWITCH, INGRESS].contains(&found.parent) { Vec::new() } else { found.options };
                lines.push(format!("{name} filter {:?}", (found.parent, found.info, found.kind, options)));
            }
        }
        for found in ask.ask(&message::get_classes(device)).unwrap() {
            if let Message::Class(found) = found
                && found.handle != Handle::default()
            {
                lines.push(format!("{name} class {:?}", (found.handle, found.parent, &found.kind, found.options)));
            }
        }
    }
    lines.sort();
    lines
}

fn set(ask: &mut dyn Ask, ingress: bool, link: &Link) -> Result<Done, Error> {
    let interface = find(NAME).unwrap();
    if ingress {
        set_up_ingress(ask, &interface, link, &Host::default())
    } else {
        tree::set_up(ask, interface.index, NAME, link, &Host::default())
    }
}

/// Runs a test in a namespace with an interface. It is skipped with a message where there are no
/// namespaces, or the kernel lacks a qdisc.
fn in_a_namespace(ingress: bool, test: impl FnOnce() + Send) {
    let work = || {
        let words =
            ["link add eth0 type veth peer name other", "link set other up", "link set eth0 addrgenmode none up"];
        for words in words {
            let done = Command::new("ip").args(words.split(' ')).status();
            if !done.is_ok_and(|status| status.success()) {
                return eprintln!("SKIPPED: this test needs iproute2 and veth interfaces");
            }
        }
        let [first, ..] = links();
        match set(&mut Socket::open().unwrap(), ingress, &first) {
            Err(error @ (Error::Lacks(_) | Error::NotPermitted { .. })) => return eprintln!("SKIPPED: {error}"),
            Err(error) => panic!("{error}"),
            Ok(_) => assert!(super::take_away(NAME, ingress).unwrap()),
        }
        test();
    };
    match Namespace::new() {
        Ok(namespace) => namespace.run(work).unwrap(),
        Err(error) => eprintln!("SKIPPED: this test makes a network namespace, which needs root ({error})"),
    }
}

/// Lets each request in turn fail: for a first link, for one that replaces another, and for a
/// change in place.
fn at_each_request(ingress: bool) {
    let [first, changed, other] = links();
    for how in [How::Refused, How::Lost] {
        for (before, next) in [(None, &first), (Some(&first), &other), (Some(&first), &changed)] {
            let mut failed = 0;
            for at in 1.. {
                if let Some(before) = before {
                    set(&mut Socket::open().unwrap(), ingress, before).unwrap();
                }
                let stood = state();
                let mut ask = Faulty::new(at, how);
                let done = set(&mut ask, ingress, next);
                match done {
                    Ok(_) => {
                        let drift = super::drifted(NAME, ingress, next).unwrap();
                        assert_eq!(drift, Vec::<String>::new(), "{how:?} at {at}");
                        assert!(super::take_away(NAME, ingress).unwrap());
                    }
                    Err(error) => {
                        assert_eq!(state(), stood, "{how:?} at {at}: {error}");
                        failed += 1;
                    }
                }
                if ask.asked < at {
                    break;
                }
            }
            assert!(failed > 6, "{failed} requests failed");
            let _ = super::take_away(NAME, ingress);
        }
    }
}

#[test]
fn a_fault_at_any_request_leaves_the_interface_as_it_was() {
    in_a_namespace(false, || at_each_request(false));
}

#[test]
fn a_fault_at_any_request_leaves_what_comes_in_as_it_was() {
    in_a_namespace(true, || at_each_request(true));
}

/// What a killed process has left is removed. What `altq run --detach` has set up stays, and nobody
/// else may shape there. If it is not known which of the two it is, everything stays.
#[test]
fn what_a_killed_process_leaves_is_swept_and_what_is_to_stay_is_not() {
    for ingress in [false, true] {
        in_a_namespace(ingress, move || {
            let [mut link, ..] = links();
            link.device = Some(Device::Interface { name: NAME.to_owned(), ingress });
            let clean = state();
            super::sweep(NAME, ingress).unwrap();
            assert_eq!(state(), clean, "there was nothing");
            for away in [super::sweep as fn(&str, bool) -> Result<(), Error>, super::make_way] {
                super::set_up(NAME, ingress, &link).unwrap();
                assert_ne!(state(), clean);
                away(NAME, ingress).unwrap();
                assert_eq!(state(), clean);
            }
            let folder = super::detached::folder().unwrap();
            if let Err(error) = std::fs::create_dir_all(folder.parent().unwrap()) {
                return eprintln!("SKIPPED in part: links cannot be noted here ({error})");
            }
            super::detach(&[&link]).unwrap();
            let stood = state();
            super::sweep(NAME, ingress).unwrap();
            for refuse in [super::refuse_detached as fn(&str, bool) -> Result<(), Error>, super::make_way] {
                let error = refuse(NAME, ingress).unwrap_err();
                assert!(matches!(error, Error::Foreign(_)) && error.to_string().contains("`altq stop wan`"), "{error}");
            }
            assert_eq!(state(), stood, "it is to stay");
            let all = super::detached().unwrap();
            assert_eq!(all, [super::Detached { link: "wan".to_owned(), interface: NAME.to_owned(), ingress }]);
            assert!(super::stop(&all[0]).unwrap());
            assert_eq!(state(), clean);
            assert!(!folder.exists(), "no note is left");
            // A file in the place of the notes: they cannot be read.
            super::set_up(NAME, ingress, &link).unwrap();
            let stood = state();
            std::fs::write(&folder, "").unwrap();
            let swept = super::sweep(NAME, ingress);
            std::fs::remove_file(&folder).unwrap();
            assert!(swept.is_err() && state() == stood);
            super::sweep(NAME, ingress).unwrap();
            assert_eq!(state(), clean);
        });
    }
}

/// If a process is killed between making the qdisc for incoming packets and its filter, nothing is
/// redirected. That is reported, and the next start repairs it.
#[test]
fn a_missing_redirection_is_found_and_made_again() {
    in_a_namespace(true, || {
        let [link, ..] = links();
        super::set_up(NAME, true, &link).unwrap();
        let stood = state();
        assert_eq!(super::drifted(NAME, true, &link).unwrap(), Vec::<String>::new());
        let gone = message::delete_filters(find(NAME).unwrap().index, INGRESS, 1, Protocol::All);
        Socket::open().unwrap().ask(&gone).unwrap();
        assert_eq!(super::drifted(NAME, true, &link).unwrap(), ["what comes in at eth0 is not redirected to ifb4eth0"]);
        assert_eq!(super::set_up(NAME, true, &link).unwrap(), Done::Stood);
        assert_eq!(state(), stood);
        assert!(super::take_away(NAME, true).unwrap());
    });
}

/// Filters for incoming packets that altq did not make are neither taken over nor removed, also
/// where altq's ifb stands.
#[test]
fn filters_of_others_for_what_comes_in_stay() {
    in_a_namespace(true, || {
        let [link, ..] = links();
        let tc = |words: &str| Command::new("tc").args(words.split(' ')).status().is_ok_and(|status| status.success());
        // One of another priority than altq's, and one of the same.
        let other = "filter add dev eth0 parent ffff: protocol all prio 7 u32 match u32 0 0 action drop";
        let same = "filter add dev eth0 parent ffff: protocol all prio 1 u32 match u32 0 1 action drop";
        let shown = || super::redirects(&mut Socket::open().unwrap(), find(NAME).unwrap().index, None).unwrap();
        super::set_up(NAME, true, &link).unwrap();
        if !tc(other) {
            assert!(super::take_away(NAME, true).unwrap());
            return eprintln!("SKIPPED: this test needs tc, cls_u32 and act_gact");
        }
        assert_eq!(super::drifted(NAME, true, &link).unwrap(), Vec::<String>::new());
        assert!(super::take_away(NAME, true).unwrap());
        assert_eq!(shown(), (None, true), "the other filter is still there");
        assert!(tc("qdisc del dev eth0 ingress"));
        super::set_up(NAME, true, &link).unwrap();
        assert!(tc(same) && super::take_away(NAME, true).unwrap());
        assert_eq!(shown(), (None, true), "the other filter is still there");
        assert!(tc("qdisc del dev eth0 ingress"));
        // The whole qdisc is somebody else's.
        super::set_up(NAME, true, &link).unwrap();
        assert!(tc("qdisc del dev eth0 ingress") && tc("qdisc add dev eth0 ingress") && tc(other));
        let error = super::set_up(NAME, true, &link).unwrap_err();
        assert!(matches!(error, Error::Foreign(_)), "{error}");
        assert!(super::take_away(NAME, true).unwrap());
        assert_eq!(shown(), (None, true), "the other filter is still there");
    });
}

/// What a killed process has left is found without a note of it, and removed. Where a process
/// shapes, nothing is found.
#[test]
fn what_a_killed_process_leaves_is_found_by_its_handle() {
    for ingress in [false, true] {
        in_a_namespace(ingress, move || {
            let [link, ..] = links();
            let clean = state();
            assert!(super::remains().left.is_empty());
            super::set_up(NAME, ingress, &link).unwrap();
            let lock = crate::lock::Lock::take(NAME, ingress).unwrap();
            assert!(super::remains().left.is_empty());
            drop(lock);
            let found = super::remains().left;
            let wanted = crate::nfqueue::steer::left::Left { interface: NAME.to_owned(), ingress };
            assert_eq!(found, [wanted]);
            super::lift(&found[0]).unwrap();
            assert_eq!(state(), clean);
        });
    }
}

/// What stands at an interface is found and removed under another name as well, but not while its
/// process runs.
#[test]
fn an_interface_that_was_renamed_keeps_nothing() {
    for ingress in [false, true] {
        in_a_namespace(ingress, move || {
            let [link, ..] = links();
            let ip = |words: &str| {
                let done = Command::new("ip").args(words.split(' ')).status();
                assert!(done.is_ok_and(|done| done.success()), "{words}");
            };
            let rename = |from: &str, to: &str| {
                ip(&format!("link set dev {from} down"));
                ip(&format!("link set dev {from} name {to} up"));
            };
            let clean = state();
            for lifted in [false, true] {
                super::set_up(NAME, ingress, &link).unwrap();
                let index = find(NAME).unwrap().index;
                rename(NAME, "wan0");
                let lock = crate::lock::Lock::take(NAME, ingress).unwrap();
                let while_it_runs = super::remains();
                assert!(while_it_runs.left.is_empty(), "its process runs");
                let may_be_its: &[&str] = if ingress { &[] } else { &["wan0"] };
                assert_eq!(while_it_runs.unsure, may_be_its);
                drop(lock);
                let found = super::remains().left;
                let interface = if ingress { NAME } else { "wan0" }.to_owned();
                assert_eq!(found, [crate::nfqueue::steer::left::Left { interface, ingress }]);
                match (lifted, ingress) {
                    (true, _) => super::lift(&found[0]).unwrap(),
                    (false, true) => assert!(super::take_away(NAME, true).unwrap()),
                    (false, false) => super::take_away_renamed(index).unwrap(),
                }
                rename("wan0", NAME);
                assert_eq!(state(), clean);
            }
        });
    }
}

/// While an interface of a process is away, qdiscs at another one may be its own under a new name:
/// they are not taken for left, and told apart. What comes in has an ifb of the old name.
#[test]
fn what_may_be_a_process_s_is_told_apart() {
    for ingress in [false, true] {
        in_a_namespace(ingress, move || {
            let [link, ..] = links();
            super::set_up(NAME, ingress, &link).unwrap();
            let lock = crate::lock::Lock::take("gone0", false).unwrap();
            let wanted = [crate::nfqueue::steer::left::Left { interface: NAME.to_owned(), ingress }];
            let remains = super::remains();
            assert_eq!(remains.away, ["gone0"]);
            if ingress {
                assert!(remains.unsure.is_empty() && remains.left == wanted, "{remains:?}");
            } else {
                assert!(remains.unsure == [NAME] && remains.left.is_empty(), "{remains:?}");
            }
            drop(lock);
            let remains = super::remains();
            assert!(remains.unsure.is_empty() && remains.left == wanted, "{remains:?}");
            super::lift(&remains.left[0]).unwrap();
        });
    }
}

/// An ifb whose interface is away is its process's as long as that runs, and goes as a whole
/// afterwards.
#[test]
fn an_ifb_without_its_interface_is_found() {
    in_a_namespace(true, || {
        let [link, ..] = links();
        super::set_up(NAME, true, &link).unwrap();
        let lock = crate::lock::Lock::take(NAME, true).unwrap();
        assert!(Command::new("ip").args(["link", "del", "dev", NAME]).status().is_ok_and(|done| done.success()));
        assert!(super::remains().left.is_empty(), "its process runs");
        drop(lock);
        let found = super::remains().left;
        assert_eq!(found, [crate::nfqueue::steer::left::Left { interface: NAME.to_owned(), ingress: true }]);
        super::lift(&found[0]).unwrap();
        assert!(super::remains().left.is_empty() && find(&ifb(NAME)).is_err());
    });
}

/// A link is not removed if a process shapes there now.
#[test]
fn a_link_is_not_stopped_under_a_process_that_shapes() {
    in_a_namespace(false, || {
        let [mut link, ..] = links();
        link.device = Some(Device::Interface { name: NAME.to_owned(), ingress: false });
        super::set_up(NAME, false, &link).unwrap();
        let stood = state();
        let stale = super::Detached { link: "wan".to_owned(), interface: NAME.to_owned(), ingress: false };
        let lock = crate::lock::Lock::take(NAME, false).unwrap();
        let held = super::stop(&stale);
        assert!(matches!(held, Err(Error::Held { .. })) && state() == stood, "{held:?}");
        drop(lock);
        assert!(super::stop(&stale).unwrap());
    });
}
