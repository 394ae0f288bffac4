//! The bridge between two namespaces with the kernel's own TCP and UDP. The tests are skipped with
//! a message if the host does not allow them.

mod world;

use std::net::UdpSocket;
use std::os::fd::{AsFd, IntoRawFd};
use std::time::Duration;

use altq_config::Link;
use altq_dataplane::bridge::{Bypass, Claim, Options};
use world::{Bulk, policy, round_trips, run, until_one_arrives, world};

#[test]
fn tcp_fills_the_link_and_no_more() {
    let Some(world) = world() else { return };
    for (rate, goodput) in [("20Mbit/s", 20e6), ("300Mbit/s", 300e6)] {
        let text = format!("link wan {{ device bridge a b  rate {rate}  scheduler fifo  class all {{ default }} }}");
        let Some(running) = run(&world, &policy(&text), Options::default()) else { return };
        // 1448 bytes of payload in every 1500 at layer 3 (TCP timestamps are on).
        let most = goodput * 1448.0 / 1500.0;
        let bulk = Bulk::start(&world, "10.9.0.2:5001");
        std::thread::sleep(Duration::from_millis(300));
        let got = bulk.measure(Duration::from_millis(1000));
        let in_all = bulk.since_start();
        eprintln!("{rate}: {:.2} of {:.2} Mbit/s, {:.2} since the start", got / 1e6, most / 1e6, in_all / 1e6);
        drop(bulk);
        running.stop();
        let last = running.snapshots().iter().last().unwrap();
        eprintln!("{:?} {:?}", last.edge, last.work);
        running.wait().unwrap();
        // TCP is never faster than the link. How close it comes to the link's rate is measured in
        // the lab, because this machine may be busy.
        assert!(in_all <= most * 1.02 && got >= most * 0.5, "{rate}: {got}, {in_all} since the start");
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

#[test]
fn two_links_shape_both_ways() {
    let Some(world) = world() else { return };
    let text = "link up { device bridge a b  rate 100Mbit/s  scheduler fifo  class all { default } }
                link down { device bridge b a  rate 10Mbit/s  scheduler fifo  class all { default } }";
    let Some(running) = run(&world, &policy(text), Options::default()) else { return };
    for (swapped, most) in [(false, 100e6), (true, 10e6)] {
        let bulk = if swapped {
            Bulk::between(&world.right, &world.left, "10.9.0.1:5001")
        } else {
            Bulk::start(&world, "10.9.0.2:5001")
        };
        std::thread::sleep(Duration::from_millis(200));
        let got = bulk.measure(Duration::from_millis(600));
        let in_all = bulk.since_start();
        assert!(got > 0.7 * most && in_all < 1.05 * most, "{swapped}: {got}, {in_all} since the start");
    }
    running.stop();
    let last: Vec<_> = running.snapshots().iter().filter(|snapshot| snapshot.last).collect();
    assert_eq!(last.len(), 2);
    for snapshot in last {
        let root = &snapshot.classes[0].counters;
        assert_eq!(root.received_packets(), root.sent_packets + root.dropped_packets + root.queued_packets);
        assert_eq!(snapshot.edge.dropped(), 0, "{:?}", snapshot.edge);
    }
    running.wait().unwrap();
}

#[test]
fn tagged_frames_keep_their_tag() {
    let Some(world) = world() else { return };
    for (side, host) in [(&world.left, 1), (&world.right, 2)] {
        let made = world::ip(
            side,
            &format!(
                "link add link eth0 name v5 type vlan id 5\nlink set dev v5 addrgenmode none up\n\
                 addr add 10.8.0.{host}/24 dev v5\n\
                 neigh add 10.8.0.{} lladdr 02:00:00:00:00:0{} dev v5\n",
                3 - host,
                3 - host
            ),
        );
        if let Err(error) = made {
            return eprintln!("SKIPPED: no VLAN interfaces here ({error})");
        }
    }
    let text = "link wan { device bridge a b  rate 50Mbit/s  scheduler fifo  class other { default }  class tagged { }
                match vlan 5 -> tagged }";
    let Some(running) = run(&world, &policy(text), Options::default()) else { return };
    round_trips(&world, "10.8.0.2:7", 20);
    // TCP's super-packets too: they are cut, and their checksums are left to the device.
    let bulk = Bulk::start(&world, "10.8.0.2:5001");
    assert!(bulk.measure(Duration::from_millis(500)) > 10e6);
    drop(bulk);
    running.stop();
    let last = running.snapshots().iter().last().unwrap();
    assert!(last.classes[2].counters.sent_bytes > 500_000 && last.work.cut > 0, "{last:?}");
    assert_eq!(last.classes[1].counters.sent_packets, 0);
    running.wait().unwrap();
}

#[test]
fn the_kernels_own_stack_does_not_see_the_frames() {
    let Some(world) = world() else { return };
    world.answer_in_the_middle();
    assert!(world.middle_answers(), "without a bridge the middle is a host like any other");
    let text = "link wan { device bridge a b  rate 50Mbit/s  scheduler fifo  class all { default } }";
    let Some(running) = run(&world, &policy(text), Options::default()) else { return };
    if running.notes().iter().any(|note| note.contains("no tcx program")) {
        return eprintln!("SKIPPED: {:?}", running.notes());
    }
    assert!(!world.middle_answers());
    running.stop();
    running.wait().unwrap();
    assert!(world.middle_answers(), "nothing is left behind");
}

#[test]
fn an_interface_that_goes_ends_the_loop_with_its_name() {
    let Some(world) = world() else { return };
    let text = "link wan { device bridge a b  rate 50Mbit/s  scheduler fifo  class all { default } }";
    let Some(running) = run(&world, &policy(text), Options::default()) else { return };
    world::ip(&world.middle, "link del dev b").unwrap();
    // The channel closes when all loops have ended.
    assert!(running.snapshots().iter().any(|snapshot| snapshot.last));
    let error = running.wait().unwrap_err().to_string();
    assert!(error.contains("`b`") && error.contains("is gone"), "{error}");
}

/// An interface that is set down, or whose peer is, is waited for.
#[test]
fn an_interface_that_was_down_carries_frames_again() {
    let Some(world) = world() else { return };
    let text = "link wan { device bridge a b  rate 50Mbit/s  scheduler fifo  class all { default } }";
    let Some(running) = run(&world, &policy(text), Options::default()) else { return };
    for name in ["a", "b"] {
        round_trips(&world, "10.9.0.2:7", 5);
        world::ip(&world.middle, &format!("link set dev {name} down")).unwrap();
        // Longer than between two looks at the interfaces.
        std::thread::sleep(Duration::from_millis(700));
        world::ip(&world.middle, &format!("link set dev {name} up")).unwrap();
        eprintln!("{name} is up again: datagram {} arrives", until_one_arrives(&world, "10.9.0.2:7"));
        round_trips(&world, "10.9.0.2:7", 5);
    }
    running.stop();
    running.wait().unwrap();
}

#[test]
fn what_cannot_run_says_why() {
    let Some(world) = world() else { return };
    for (device, what) in [
        ("", "has no device"),
        ("device eth0", "this needs `device bridge A B`"),
        ("device bridge a nowhere", "no interface `nowhere`"),
        ("device bridge a a", "a bridge needs two interfaces"),
    ] {
        let text = format!("link wan {{ {device}  rate 50Mbit/s  scheduler fifo  class all {{ default }} }}");
        // Some are refused by the language already.
        let Ok(policy) = altq_config::parse_str(&text, "test.altq", altq_config::Language::Native) else { continue };
        let links: Vec<_> = policy.links.iter().collect();
        let error = world
            .middle
            .run(|| altq_dataplane::bridge::run(&links, Options::default()).err().unwrap().to_string())
            .unwrap();
        assert!(error.contains(what), "{device}: {error}");
    }
}

/// Programs forward between the same interfaces as loops, but only while nobody claims frames.
#[test]
fn the_kernel_forwards_what_nobody_claims() {
    let Some(world) = world() else { return };
    let policy = policy("link wan { device bridge a b  rate 1Gbit/s  scheduler fifo  class all { default } }");
    let links: Vec<&Link> = policy.links.iter().collect();
    let bypass = match world.middle.run(|| Bypass::new(&links)).unwrap() {
        Ok(bypass) => bypass.unwrap(),
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    assert!(world.middle.run(|| bypass.fits(&links)).unwrap());
    let listener = world.right.run(|| UdpSocket::bind("10.9.0.2:9").unwrap()).unwrap();
    listener.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let sender = world.left.run(|| UdpSocket::bind("10.9.0.1:0").unwrap()).unwrap();
    let passes = || {
        sender.send_to(b"x", "10.9.0.2:9").unwrap();
        let copies = std::iter::from_fn(|| listener.recv(&mut [0; 1]).ok()).count();
        assert!(copies <= 1, "{copies} copies");
        copies == 1
    };
    // Another process may still forward, so the programs do not yet.
    assert!(!passes());
    bypass.forward();
    assert!(passes());
    // Nobody else may forward between them, nor set programs there.
    assert!(matches!(world.middle.run(|| Bypass::new(&links)).unwrap(), Err(altq_dataplane::Error::Held { .. })));
    let alone = world.middle.run(|| altq_dataplane::bridge::run(&links, Options::default()).err()).unwrap();
    assert!(matches!(alone, Some(altq_dataplane::Error::Held { .. })), "{alone:?}");
    // Super-packets and both directions, as by any bridge.
    let bulk = Bulk::start(&world, "10.9.0.2:5001");
    assert!(bulk.measure(Duration::from_millis(300)) > 100e6);
    drop(bulk);
    let number = bypass.as_fd().try_clone_to_owned().unwrap().into_raw_fd();
    let claim = Claim::inherited(number, 300_000_000).unwrap();
    claim.renew();
    assert!(!passes(), "the claim holds for 300 ms, and nobody forwards");
    std::thread::sleep(Duration::from_millis(150));
    assert!(passes(), "the claim has ended");
    let options = Options { claim: Some(claim), ..Options::default() };
    let Some(running) = run(&world, &policy, options) else { return };
    // A frame may come after the claim and before the loop hears: nobody has it.
    assert!((0..5).any(|_| passes()), "the loop hears");
    for _ in 0..3 {
        assert!(passes(), "the loop has claimed them");
    }
    running.stop();
    running.wait().unwrap();
    bypass.forward();
    assert!(passes());
    drop(bypass);
    assert!(!passes());
}
