//! Hosts behind a NAT that the router itself does.

use std::ops::RangeInclusive;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use altq_dataplane::netns::Namespace;

use crate::supervised::{Running, until};
use crate::world::routed::{Datagrams, PAYLOAD};
use crate::world::{World, ip};
use crate::{counter, echoes, router};

/// Another host of the house, 10.9.3.1, at the router's interface `lan2`.
fn second(world: &World) -> Namespace {
    let other = Namespace::new().unwrap();
    let wire = format!(
        "link add lan2 type veth peer name eth0 netns {}\nlink set lan2 up\naddr add 10.9.3.9/24 dev lan2\n",
        other.path().display()
    );
    ip(&world.middle, &wire).unwrap();
    ip(&other, "link set lo up\nlink set eth0 up\naddr add 10.9.3.1/24 dev eth0\nroute add default via 10.9.3.9\n")
        .unwrap();
    other
}

/// True, with a message, if altq says that it does not see the hosts in what comes in.
fn hidden(running: &Running<'_>) -> bool {
    let hidden = running.log().contains("before its address is translated (NAT)");
    if hidden {
        eprintln!("SKIPPED in part: this kernel does not show the hosts in what comes in, as altq says");
    }
    hidden
}

const RATE: f64 = 4e6;

/// Waits until the second host has this part of what arrives, in a window in which the link was
/// full. A busy host may need several.
fn part(what: &str, many: &[Datagrams], one: &Datagrams, wanted: RangeInclusive<f64>) {
    let most = RATE * PAYLOAD as f64 / (PAYLOAD + 28) as f64;
    let read = || {
        let of = |flow: &Datagrams| flow.arrived.load(Ordering::Relaxed);
        [many.iter().map(of).sum::<u64>(), of(one)]
    };
    let mut seen = Vec::new();
    for _ in 0..6 {
        thread::sleep(Duration::from_millis(300));
        let (before, begun) = (read(), Instant::now());
        thread::sleep(Duration::from_millis(1000));
        let after = read();
        let [many, one] = [0, 1].map(|at| (after[at] - before[at]) as f64 * 8.0 / begun.elapsed().as_secs_f64());
        seen.push((one / (many + one), (many + one) / most));
        let (part, full) = seen[seen.len() - 1];
        if wanted.contains(&part) && (0.95..=1.05).contains(&full) {
            return eprintln!("{what}: part of the second host, and of the link: {seen:.3?}");
        }
    }
    panic!("{what}: part of the second host, and of the link: {seen:.3?}, not {wanted:?}");
}

/// Eight flows of a host and one of another, all from one address to whoever sees them behind the
/// router, have half of the link each. Where hosts do not count the one flow has a ninth.
#[test]
fn a_host_behind_nat_has_as_much_with_one_flow_as_another_with_eight() {
    let Some(world) = router() else { return };
    let other = second(&world);
    let text = |up: &str, down: &str| {
        let link = |mode| format!("rate 4Mbit/s  scheduler fifo  class all {{ default  queue cake {{ {mode} }} }}");
        format!("link up {{ device wan  {} }}\nlink down {{ device wan ingress  {} }}", link(up), link(down))
    };
    let modes = [(text("dual-srchost", "dual-dsthost"), 0.45..=0.55), (text("flows", "flows"), 0.07..=0.16)];
    let Some(running) = Running::start(&world, "house", &modes[0].0, &[]) else { return };
    let hidden = hidden(&running);
    for (what, back) in [("out", false), ("in", true)] {
        if back && hidden {
            continue;
        }
        let flow = |host: &Namespace, port: u16, rate| {
            Datagrams::start(host, &world.right, &format!("10.9.2.2:{port}"), rate, back)
        };
        let many: Vec<Datagrams> = (6000..6008).map(|port| flow(&world.left, port, 1_000_000)).collect();
        let one = flow(&other, 6008, 4_000_000);
        for (text, wanted) in &modes {
            let file = running.folder.join("p.altq");
            std::fs::write(&file, text).unwrap();
            let applied = running.ask(&["apply", file.to_str().unwrap()]);
            assert_eq!(applied.status.code(), Some(0), "{}", String::from_utf8_lossy(&applied.stderr));
            part(what, &many, &one, wanted.clone());
        }
    }
    running.end();
}

/// The class of a packet that a host behind the NAT sends or gets is the one that `altq explain`
/// names for the host's own address.
#[test]
fn rules_see_hosts_behind_nat_as_explain_says() {
    let Some(world) = router() else { return };
    let other = second(&world);
    let link = |device: &str, key: &str| {
        format!(
            "device {device}  rate 20Mbit/s  scheduler fifo  class here {{ }}  class there {{ }}
             class unknown {{ }}  class rest {{ default }}
             match {key} 10.9.1.0/24 -> here
             match {key} 10.9.3.1 -> there
             match proto udp -> unknown"
        )
    };
    let text = format!("link up {{ {} }}\nlink down {{ {} }}", link("wan", "src"), link("wan ingress", "dst"));
    let Some(running) = Running::start(&world, "explained", &text, &[]) else { return };
    let hidden = hidden(&running);
    let explained = |link: &str, packet: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.arg("explain").arg(running.folder.join("p.altq")).args(["--link", link, "--json", "--packet", packet]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
        answer["class"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    for (host, address, class, count) in [(&world.left, "10.9.1.1", "here", 20), (&other, "10.9.3.1", "there", 30)] {
        let (out, back) = (
            format!("src={address} dst=10.9.2.2 proto=udp sport=40000 dport=7"),
            format!("src=10.9.2.2 dst={address} proto=udp sport=7 dport=40000"),
        );
        assert_eq!([explained("up", &out), explained("down", &back)], [class, class]);
        let seen = echoes(host, &world.right, "10.9.2.2:7", 100, count);
        assert_eq!(seen.to_string(), "10.9.2.9", "the right host sees the router");
    }
    // Where altq says that it sees the router's address only, all that comes in is for a host that
    // no rule knows.
    let came = if hidden { [0, 0, 50] } else { [20, 30, 0] };
    for (link, packets) in [(0, [20, 30, 0]), (1, came)] {
        for (class, packets) in ["here", "there", "unknown"].into_iter().zip(packets) {
            let sent = || counter(&running, link, class, "sent_packets");
            until(&format!("{packets} packets in {class} of link {link}"), Duration::from_secs(5), || {
                sent() >= packets
            });
            assert_eq!(sent(), packets, "{class} of link {link}");
        }
    }
    running.end();
}
