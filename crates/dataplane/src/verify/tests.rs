use altq_config::{Language, Policy, parse_str};

use super::*;
use crate::netns::Namespace;
use crate::nfqueue::steer::program::run;
use crate::nfqueue::steer::{Fail, Steering};

fn policy(device: &str) -> Policy {
    let text = format!("link l {{ {device}  rate 20Gbit/s  scheduler fifo  class all {{ default }} }}");
    parse_str(&text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"))
}

fn said(looked: &Looked) -> Vec<[&str; 4]> {
    looked.differences.iter().map(|one| [&*one.place, &*one.expected, &*one.found, &*one.remedy]).collect()
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

#[test]
fn rules_are_compared_line_by_line() {
    let asked = lines("-N altq-out-a\n-A FORWARD -o a -j altq-out-a\nip6tables -A FORWARD -o a -j altq-out-a");
    let compared = |by: Firewall, found: &str| {
        let mut looked = Looked::default();
        steering::compare("what leaves by a", by, &asked, &lines(found), &mut looked);
        looked
    };
    assert_eq!(compared(Firewall::Iptables, &asked.join("\n")), Looked::default());
    let missing = compared(Firewall::Iptables, "-N altq-out-a\n-A FORWARD -o a -j altq-out-a");
    let remedy = "ip6tables -w -t mangle -A FORWARD -o a -j altq-out-a";
    let line = "`ip6tables -A FORWARD -o a -j altq-out-a`";
    assert_eq!(said(&missing), [["what leaves by a", line, "no such rule", remedy]]);
    let changed = asked.join("\n").replace("\n-A FORWARD -o a", "\n-A FORWARD -o b");
    let changed = compared(Firewall::Iptables, &changed);
    let remedy = "iptables -w -t mangle -D FORWARD -o b -j altq-out-a && \
                  iptables -w -t mangle -A FORWARD -o a -j altq-out-a";
    let [expected, found] = ["`-A FORWARD -o a -j altq-out-a`", "`-A FORWARD -o b -j altq-out-a`"];
    assert_eq!(said(&changed), [["what leaves by a", expected, found, remedy]]);
    let order = compared(Firewall::Nft, &[asked[1].as_str(), &asked[0], &asked[2]].join("\n"));
    assert_eq!((order.differences.len(), order.differences[0].remedy.as_str()), (1, START_AGAIN));
    let many = compared(Firewall::Nft, &(0..30).map(|n| format!("rule {n}\n")).collect::<String>());
    assert_eq!(many.differences.len(), 11);
}

#[test]
fn a_queue_has_its_listener_and_copies_what_was_asked_for() {
    let (interface, dscp, fail) = ("a".to_owned(), Vec::new(), Fail::Open);
    let steer = Steer { interface, ingress: false, port: false, queue: 24_000, dscp, fail };
    let steered = Steered { steer, firewall: Firewall::Nft, owner: 16_345 };
    let found = |table: &str| {
        let mut looked = Looked::default();
        steering::listens(&steered, "what leaves by a", table, &mut looked);
        looked.differences.into_iter().map(|one| one.found).collect::<Vec<String>>()
    };
    // As Linux 6.6 prints it (`seq_show` of net/netfilter/nfnetlink_queue.c).
    assert_eq!(found("  24000  16345     0 2   192     0     0      317  1\n"), [""; 0]);
    assert_eq!(found("  24001  16345     0 2   192     0     0      317  1\n"), ["nobody does"]);
    assert_eq!(found("  24000      7     0 2    64     0     0      317  1\n"), ["7 does", "64 are"]);
}

/// A namespace with a pair of veth interfaces, `a` and `b`, which are up.
fn with_devices(test: impl FnOnce() + Send) {
    let Ok(namespace) = Namespace::new() else { return eprintln!("SKIPPED: no network namespaces here") };
    let test = || {
        let wires = "link add name a type veth peer name b\nlink set dev a up\nlink set dev b up\n";
        match run("ip", &["-batch", "-"], wires) {
            Ok(_) => test(),
            Err(error) => eprintln!("SKIPPED: no veth here ({error})"),
        }
    };
    if let Err(error) = namespace.run(test) {
        eprintln!("SKIPPED: {error}");
    }
}

#[test]
fn an_interface_that_is_set_otherwise_or_down_or_gone_is_said() {
    with_devices(|| {
        let policy = policy("device a");
        let link = &policy.links[0];
        let set_up = SetUp { devices: settings(link), ..SetUp::default() };
        // A veth says that its line has 10 Gbit/s (`veth_get_link_ksettings`, drivers/net/veth.c).
        let line = "a line of 10Gbit/s";
        let rest = |looked: &Looked| -> Vec<[String; 3]> {
            assert!(looked.checks == ["device", "rate"] && looked.unchecked.is_empty(), "{looked:?}");
            let others = looked.differences.iter().filter(|one| one.check != "rate");
            others.map(|one| [one.expected.clone(), one.found.clone(), one.remedy.clone()]).collect()
        };
        let first = look(link, Some(&set_up), "");
        assert!(rest(&first).is_empty(), "{first:?}");
        assert!(first.differences.iter().all(|one| one.found == line), "{first:?}");
        run("ip", &["link", "set", "dev", "a", "txqueuelen", "77"], "").unwrap();
        let remedy = "ip link set dev a txqueuelen 1000";
        assert_eq!(rest(&look(link, Some(&set_up), "")), [["txqueuelen 1000", "txqueuelen 77", remedy]]);
        assert!(rest(&look(link, None, "")).is_empty(), "nobody has said how it was");
        run("ip", &["link", "set", "dev", "a", "txqueuelen", "1000"], "").unwrap();
        run("ip", &["link", "set", "dev", "b", "down"], "").unwrap();
        assert_eq!(rest(&look(link, None, ""))[0][1], "no carrier");
        run("ip", &["link", "set", "dev", "a", "down"], "").unwrap();
        assert_eq!(rest(&look(link, None, ""))[0], ["up, with a carrier", "it is down", "ip link set dev a up"]);
        run("ip", &["link", "del", "dev", "a"], "").unwrap();
        assert_eq!(rest(&look(link, None, ""))[0][1], "there is none");
    });
}

#[test]
fn offloads_are_compared_by_their_words() {
    let offloads = |gso: bool| vec![("gro".to_owned(), true), ("gso".to_owned(), gso)];
    let set = |gso: bool| Settings { name: "a".to_owned(), queue_length: None, offloads: offloads(gso) };
    let mut looked = Looked::default();
    device::compare(&set(true), &set(true), &mut looked);
    assert_eq!(looked, Looked::default());
    device::compare(&set(false), &set(true), &mut looked);
    assert_eq!(said(&looked), [["a", "gso off", "gso on", "ethtool -K a gso off"]]);
}

/// The rules that stand are those that are expected, and a rule that goes is missed.
#[test]
fn rules_that_stand_are_those_that_are_expected() {
    with_devices(|| {
        let (interface, dscp, fail) = ("a".to_owned(), vec![10], Fail::Closed { except: vec![22] });
        let steer = Steer { interface, ingress: false, port: false, queue: 24_000, dscp, fail };
        let Ok(mut steering) = Steering::new(steer.clone()) else {
            return eprintln!("SKIPPED: no firewall here hands packets to a queue");
        };
        let firewall = steering.firewall().unwrap();
        let steered = Steered { steer, firewall, owner: 0 };
        let set_up = SetUp { steered: Some(steered), ..SetUp::default() };
        let policy = policy("device a");
        let rules = || {
            let looked = look(&policy.links[0], Some(&set_up), "");
            assert!(looked.unchecked.is_empty() && looked.checks.contains(&"rules"), "{looked:?}");
            looked.differences.into_iter().filter(|one| one.check == "rules").collect::<Vec<Difference>>()
        };
        assert_eq!(rules(), []);
        match firewall {
            Firewall::Nft => run("nft", &["flush", "chain", "inet", "altq-out-a", "hold"], ""),
            Firewall::Iptables => run("iptables", &["-t", "mangle", "-F", "altq-out-a"], ""),
        }
        .unwrap();
        let found = rules();
        assert!(found.len() >= 5 && found.iter().all(|one| one.found == "no such rule"), "{found:?}");
        steering.remove().unwrap();
        let found = rules();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].found, "none: it passes unshaped");
    });
}

#[test]
fn the_program_at_a_hook_is_known_by_its_name() {
    with_devices(|| {
        let index = Interface::find("a").unwrap().index;
        let (interface, program) = ("a".to_owned(), Guard::DROPS.to_owned());
        let set_up = SetUp { guards: vec![Guard { interface, program }], ..SetUp::default() };
        let policy = policy("device bridge a b");
        let found = || {
            let looked = look(&policy.links[0], Some(&set_up), "");
            assert!(looked.unchecked.is_empty() && looked.checks.contains(&"bridge"), "{looked:?}");
            let others = looked.differences.into_iter().filter(|one| one.check == "bridge");
            others.map(|one| one.found).collect::<Vec<String>>()
        };
        let program = match bpf::drop_ingress(index) {
            Ok(program) => program,
            Err(error) => return eprintln!("SKIPPED: this kernel has no tcx ({error})"),
        };
        assert_eq!(found(), [""; 0]);
        drop(program);
        // Another test may start a program just now, and between fork and exec that holds it too.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while found().is_empty() && std::time::Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(found(), ["no program"]);
    });
}
