//! Each packet is in the class that the engine's classifier finds offline for the same frame, on a
//! bridge and by NFQUEUE. The tests are skipped with a message if the host does not allow them.

mod world;

use std::time::Duration;

use altq_config::Link;
use altq_dataplane::inject::Injector;
use altq_dataplane::netns::Namespace;
use altq_dataplane::stats::Snapshot;
use altq_dataplane::{Options, Running};
use altq_engine::Engine;
use altq_engine::headers;
use world::frames::{Outside, mixed};
use world::{policy, quiet, routed};

/// Frames that are sent on each path.
const COUNT: usize = 2600;

/// Rules about all kinds of fields. All of them name the interface, so that packets that the router
/// sends by itself are in the default class.
const RULES: &str = "
    match interface IF family ipv4 proto icmp -> echo
    match interface IF family ipv6 proto 58 -> echo
    match interface IF proto tcp tcp-flags syn/syn+ack -> syn
    match interface IF proto tcp tcp-flags rst -> syn
    match interface IF dscp ef,va -> voice
    match interface IF dscp af41,af43 length 0-400bytes -> video
    match interface IF proto udp dport 53 -> names
    match interface IF proto udp sport 53 -> names
    match interface IF proto udp port 123 -> names
    match interface IF proto udp port 5060-5061 src 10.50.0.0/16 -> voice
    match interface IF src 10.51.0.0/16 proto tcp dport 80,443 -> web
    match interface IF src 10.51.0.0/16 proto tcp -> bulk
    match interface IF src 10.52.0.0/16,!10.52.7.0/24 dst 10.200.1.0/24 -> web
    match interface IF dst 10.200.2.0/24 proto udp length 1000-1500bytes -> bulk
    match interface IF host 10.200.3.7 -> host
    match interface IF src fd50:1::/32 proto tcp dport 443 -> web
    match interface IF src fd50:2::/32 dport 8000-8999 -> bulk
    match interface IF dst fd20:1::/32 proto udp -> bulk
    match interface IF flow-label 7 -> label
    match interface IF spi 4096 -> tunnel
    match interface IF ecn ce -> marked
    match interface IF tos 0x20/0xe0 -> marked
    match interface IF proto tcp dport 22 -> host
    match interface IF proto 50,132 -> tunnel
    match interface IF vlan 5 -> tagged
    match interface IF vlan 7 proto udp -> tagged
    match interface IF family ipv4 length 0-60bytes -> small
    match interface IF family ipv6 length 0-80bytes -> small
    match interface IF family ipv6 -> six
    match interface IF -> rest";

const CLASSES: &str = "echo syn voice video names web bulk host label tunnel marked tagged small six rest";

fn text(device: &str, interface: &str) -> String {
    let queue = "queue drop_tail { limit 3000packets }";
    let classes: String = CLASSES.split(' ').map(|name| format!("    class {name} {{ {queue} }}\n")).collect();
    let rules = RULES.replace("IF", interface);
    format!(
        "link wan {{ device {device}  rate 100Mbit/s  scheduler fifo\n{classes}    \
         class own {{ default {queue} }}\n{rules} }}"
    )
}

/// Packets and bytes of each class, as the classifier finds them for the frames. Later fragments
/// have no ports.
fn offline(link: &Link, interface: &str, frames: &[Vec<u8>]) -> Vec<(u64, u64)> {
    let mut engine = Engine::new(&link.spec).unwrap();
    let place = link.spec.rules.interfaces.iter().position(|name| name == interface).unwrap();
    let mut counts = vec![(0, 0); link.spec.classes.len()];
    for frame in frames {
        let mut found = headers::parse_ethernet(frame, frame.len() as u32);
        found.key.interface = place as u16;
        let count = &mut counts[engine.classify(&found.key).unwrap() as usize];
        *count = (count.0 + 1, count.1 + u64::from(found.key.length));
    }
    counts
}

/// Sends the frames by `eth0` of a host, 25,000 a second.
fn send(host: &Namespace, frames: &[Vec<u8>]) {
    let mut injector = host.run(|| Injector::open("eth0")).unwrap().unwrap();
    for part in frames.chunks(50) {
        injector.send(part).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until every class has sent what the classifier found for it, for ten snapshots at most;
/// stops the link, and compares its counters with the classifier's.
fn compare(running: Running, link: &Link, expected: &[(u64, u64)]) {
    let all_sent = |snapshot: &Snapshot| {
        let mut classes = snapshot.classes.iter().zip(expected).skip(1);
        classes.all(|(stat, (packets, _))| stat.counters.sent_packets >= *packets)
    };
    running.snapshots().iter().take(10).find(all_sent);
    running.stop();
    let last = running.snapshots().iter().find(|snapshot| snapshot.last).unwrap();
    running.wait().unwrap();
    eprintln!("{:?} {:?}", last.edge, last.work);
    assert_eq!((last.edge.dropped(), last.unclassified), (0, (0, 0)));
    let mut wrong = Vec::new();
    for (class, (stat, expected)) in last.classes.iter().zip(expected).enumerate().skip(1) {
        let (name, counters) = (&link.classes[class].name, &stat.counters);
        let counted = (counters.sent_packets, counters.sent_bytes);
        eprintln!("{name}: {counted:?}");
        if name != "own" && counted != *expected {
            wrong.push(format!("{name}: {counted:?} instead of {expected:?}"));
        }
    }
    let root = &last.classes[0].counters;
    assert_eq!((root.dropped_packets, root.queued_packets), (0, 0));
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Whether the frames reach every class except the default one, so that the comparison is
/// meaningful.
fn check(link: &Link, expected: &[(u64, u64)], without: &[&str]) {
    for (class, (packets, _)) in link.classes.iter().zip(expected).skip(1) {
        let none = class.name == "own" || without.contains(&class.name.as_str());
        assert!(if none { *packets == 0 } else { *packets >= 10 }, "{}: {packets}", class.name);
    }
}

#[test]
fn classes_on_a_bridge_are_those_of_the_classifier() {
    let Some(world) = world::world() else { return };
    quiet(&world.left);
    quiet(&world.right);
    let policy = policy(&text("bridge a b", "a"));
    let link = &policy.links[0];
    let outside = Outside { to: [2, 0, 0, 0, 0, 2], from: [2, 0, 0, 0, 0, 1], vlan: None };
    let frames = mixed(1, COUNT, outside, true);
    let expected = offline(link, "a", &frames);
    check(link, &expected, &[]);
    let Some(running) = world::run(&world, &policy, Options::default()) else { return };
    send(&world.left, &frames);
    compare(running, link, &expected);
}

#[test]
fn classes_of_a_kernels_queue_are_those_of_the_classifier() {
    let Some(world) = routed::plain() else { return };
    let before = world.rules();
    let policy = policy(&text("wan", "lan"));
    let link = &policy.links[0];
    let outside = Outside { to: routed::LEFT[1], from: routed::LEFT[0], vlan: None };
    let frames = mixed(2, COUNT, outside, false);
    let expected = offline(link, "lan", &frames);
    check(link, &expected, &["tagged"]);
    let Some(running) = world.run(&policy) else { return };
    send(&world.left, &frames);
    compare(running, link, &expected);
    assert_eq!(world.rules(), before, "nothing is left");
}
