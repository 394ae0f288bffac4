//! A link whose rate adapts, on a router: real probes, a real loop. The line behind it is as fast
//! as a veth. Skipped, with a message, where the host does not allow it.

mod world;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use altq_dataplane::Running;
use altq_dataplane::netns::Namespace;
use world::routed::{Datagrams, routed};
use world::{ip, policy};

const POLICY: &str = "
link up { device wan
    rate 20Mbit/s adapt { from 5Mbit/s to 40Mbit/s  target 100ms  reflectors { 10.9.2.2 10.9.2.3 fd09:2::2 } }
    scheduler priq
    class probes { priority 7 }
    class rest   { priority 1  default }
    match proto icmp,icmpv6 -> probes }";

/// Waits for a line that says this, for a time; all lines up to then go to `lines`.
fn says(running: &Running, what: &str, within: Duration, lines: &mut Vec<String>) -> bool {
    let end = Instant::now() + within;
    while let Ok(line) = running.said().recv_timeout(end.saturating_duration_since(Instant::now())) {
        let found = line.contains(what);
        lines.push(line);
        if found {
            return true;
        }
    }
    false
}

/// Whether a host answers pings.
fn answers(host: &Namespace, yes: bool) {
    let ignore = if yes { "0" } else { "1" };
    host.run(|| {
        for name in ["ipv4/icmp_echo_ignore_all", "ipv6/icmp/echo_ignore_all"] {
            std::fs::write(format!("/proc/sys/net/{name}"), ignore).unwrap();
        }
    })
    .unwrap();
}

/// A link that is used and whose answers are prompt rises to its highest rate. When nobody answers
/// any more it falls to its lowest, and packets leave at that; when they answer again, it rises.
#[test]
fn a_live_rate_follows_the_answers() {
    let Some(world) = routed() else { return };
    ip(&world.right, "addr add 10.9.2.3/24 dev eth0\n").unwrap();
    let before = world.rules();
    let Some(running) = world.run(&policy(POLICY)) else { return };
    let mut lines = Vec::new();
    let flow = Datagrams::start(&world.left, &world.right, "10.9.2.2:5001", 60_000_000, false);
    // Twelve rises of a sixteenth, 250 ms each.
    let rose = says(&running, "-> 40Mbit/s: the link is used", Duration::from_secs(15), &mut lines);
    assert!(rose, "{lines:#?}");

    answers(&world.right, false);
    // A second of silence, and three cuts by half: 40, 20, 10, 5.
    let fell = says(&running, "-> 5Mbit/s: ", Duration::from_secs(6), &mut lines);
    assert!(fell, "{lines:#?}");
    // What was in the queue has left, and it is what the loop sends that counts: 5 Mbit/s charge
    // 1428 bytes for 1400 of payload. For ten seconds the rate stays there.
    std::thread::sleep(Duration::from_millis(500));
    let (count, start) = (flow.arrived.load(Ordering::Relaxed), Instant::now());
    std::thread::sleep(Duration::from_secs(3));
    let bits = (flow.arrived.load(Ordering::Relaxed) - count) as f64 * 8.0;
    let rate = bits / start.elapsed().as_secs_f64();
    assert!((4.4e6..5.1e6).contains(&rate), "{rate} bit/s at 5 Mbit/s; {lines:#?}");

    answers(&world.right, true);
    assert!(says(&running, "reflectors answer again", Duration::from_secs(3), &mut lines), "{lines:#?}");
    assert!(says(&running, "the link is used", Duration::from_secs(5), &mut lines), "{lines:#?}");
    drop(flow);
    running.stop();
    running.wait().unwrap();
    assert_eq!(world.rules(), before, "nothing is left");
}
