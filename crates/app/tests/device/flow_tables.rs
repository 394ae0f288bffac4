//! A flow table, which carries packets past the firewall's rules, and so past altq.

use std::thread;
use std::time::Duration;

use crate::supervised::{Running, until};
use crate::world::Bulk;
use crate::{Passed, all_is_shaped, payload, router, sh};

const POLICY: &str = "
link up { device wan  rate 5Mbit/s  scheduler fifo  class all { default } }
link down { device wan ingress  rate 5Mbit/s  scheduler fifo  class all { default } }";

/// The rate of both links, in bit/s.
const RATE: f64 = 5e6;

/// The table of a router's firewall that offloads flows to software, as in the example of nft(8),
/// "FLOWTABLES".
const TABLE: &str = "table inet fw {
    flowtable ft { hook ingress priority 0; devices = { lan, wan }; }
    chain forward { type filter hook forward priority 0; meta l4proto tcp flow add @ft; }
}";

/// The next look of `altq status` comes within five seconds.
const LOOK: Duration = Duration::from_secs(20);

/// While such a table carries the packets, `altq run`, `altq status` and `altq verify` say so. When
/// it has gone, they are shaped, and nothing differs.
#[test]
fn a_flow_table_that_carries_packets_past_altq_is_said() {
    let Some(world) = router() else { return };
    if let Err(error) = sh(&world.middle, &format!("nft '{TABLE}'")) {
        return eprintln!("SKIPPED: this test needs nft, and a kernel with flow tables ({error})");
    }
    let Some(running) = Running::start(&world, "flows", POLICY, &[]) else { return };
    let past = "the flow table `ft` (table inet fw) carries packets of wan past the firewall's rules";
    running.says(past);
    for link in [0, 1] {
        until("status says so", LOOK, || running.drift(link).iter().any(|line| line.contains(past)));
    }
    assert_eq!(running.ask(&["status"]).status.code(), Some(0), "it shapes what it gets");
    let verified = running.ask(&["verify"]);
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.code() == Some(3) && said.contains(past), "{said}");

    // It is true: the flow is offloaded once both directions have been seen.
    let bulk = Bulk::between(&world.left, &world.right, "10.9.2.2:5001");
    let count = || Passed::until_now(&running, 0, "all", &bulk);
    thread::sleep(Duration::from_secs(1));
    let before = count();
    thread::sleep(Duration::from_secs(1));
    let seen = count().since(&before);
    drop(bulk);
    eprintln!("with the flow table: {seen:.3?}");
    assert!(seen.arrived > 2.0 * RATE * (seen.time + seen.apart), "more arrives than the link may carry: {seen:.3?}");
    assert!(seen.sent < 0.5 * seen.arrived, "more than altq lets out: {seen:.3?}");

    sh(&world.middle, "nft delete table inet fw").unwrap();
    for link in [0, 1] {
        until("it is seen that it has gone", LOOK, || running.drift(link).is_empty());
    }
    let verified = running.ask(&["verify"]);
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(!said.contains("flow table"), "{said}");
    let earlier = payload(&running, 0, "all");
    let bulk = Bulk::between(&world.left, &world.right, "10.9.2.2:5002");
    all_is_shaped("without the flow table", &running, "all", RATE, [(0, &bulk, earlier)]);
    running.end();
}
