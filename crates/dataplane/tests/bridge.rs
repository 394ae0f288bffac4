//! The bridge between two namespaces with the kernel's own TCP and UDP. Skipped, aloud, where the host does not let us.

mod world;

use std::time::Duration;

use altq_dataplane::bridge::Options;
use world::{Bulk, policy, round_trips, run, world};

#[test]
fn tcp_fills_the_link_and_no_more() {
    let Some(world) = world() else { return };
    for (rate, goodput) in [("20Mbit/s", 20e6), ("300Mbit/s", 300e6)] {
        let text = format!("link wan {{ device bridge a b  rate {rate}  scheduler fifo  class all {{ default }} }}");
        let Some(running) = run(&world, &policy(&text), Options::default()) else { return };
        // 1448 bytes of payload to every 1500 at layer 3 (timestamps are on).
        let most = goodput * 1448.0 / 1500.0;
        let bulk = Bulk::start(&world, "10.9.0.2:5001");
        std::thread::sleep(Duration::from_millis(300));
        let got = bulk.measure(Duration::from_millis(1000));
        eprintln!("{rate}: {:.2} of {:.2} Mbit/s", got / 1e6, most / 1e6);
        drop(bulk);
        running.stop();
        let last = running.snapshots().iter().last().unwrap();
        eprintln!("{:?} {:?}", last.edge, last.work);
        running.wait().unwrap();
        assert!(got <= most * 1.02 && got >= most * 0.9, "{rate}: {got}");
    }
}

#[test]
fn both_families_pass_both_ways() {
    let Some(world) = world() else { return };
    let policy = policy("link wan { device bridge a b  rate 1Gbit/s  scheduler fifo  class all { default } }");
    let Some(running) = run(&world, &policy, Options::default()) else { return };
    for to in ["10.9.0.2:7", "[fd09::2]:7"] {
        let trips = round_trips(&world, to, 200);
        eprintln!("{to}: median {:?}, 99 % {:?}", trips[100], trips[197]);
    }
    for to in ["10.9.0.2:5001", "[fd09::2]:5001"] {
        let bulk = Bulk::start(&world, to);
        assert!(bulk.measure(Duration::from_millis(400)) > 100e6);
    }
    eprintln!("{:?}", running.notes());
    running.stop();
    running.wait().unwrap();
}
