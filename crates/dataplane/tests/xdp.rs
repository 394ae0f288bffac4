//! The bridge by AF_XDP between two namespaces, with the kernel's own TCP and UDP. The tests are
//! skipped with a message if the host does not allow them. No offloads are switched off at the two
//! hosts, so their devices may leave checksums open, merge segments and carry VLAN tags beside
//! frames.

mod world;

use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use altq_config::Policy;
use altq_dataplane::inject::Injector;
use altq_dataplane::shaper::Tuning;
use altq_dataplane::stats::Snapshot;
use altq_dataplane::{Error, Options, Running, Xdp};
use world::routed::{Datagrams, PAYLOAD};
use world::{Bulk, World, policy, round_trips, until_one_arrives, world};

/// Runs all links of a policy in the middle, with a snapshot every 50 ms.
fn start(world: &World, policy: &Policy, xdp: Xdp) -> Result<Running, Error> {
    let links: Vec<_> = policy.links.iter().collect();
    let tuning = Tuning { interval: Some(50_000_000), ..Tuning::default() };
    world.middle.run(|| altq_dataplane::run(&links, Options { xdp, tuning, ..Options::default() })).unwrap()
}

/// The same by AF_XDP; `None`, with a message, if this host lacks something.
fn run(world: &World, text: &str) -> Option<Running> {
    match start(world, &policy(text), Xdp::On) {
        Ok(running) => {
            eprintln!("{:?}", running.notes());
            assert!(running.notes().iter().any(|note| note.contains("a and b by AF_XDP")), "it says what it uses");
            Some(running)
        }
        Err(error @ (Error::NotPermitted { .. } | Error::Unsupported { .. } | Error::Xdp(_))) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Stops the links and returns the last snapshot of each.
fn stop(running: Running) -> Vec<Snapshot> {
    running.stop();
    let last: Vec<Snapshot> = running.snapshots().iter().filter(|snapshot| snapshot.last).collect();
    running.wait().unwrap();
    last
}

/// Checks that everything received is in the engine or was counted before it, and that the engine's
/// packets add up.
fn adds_up(last: &Snapshot) {
    let (root, edge) = (&last.classes[0].counters, &last.edge);
    eprintln!("{}: {edge:?} {:?}", last.link, last.work);
    assert_eq!(root.received_packets(), root.sent_packets + root.dropped_packets + root.queued_packets);
    // The kernel's frames that were missed were not received.
    assert_eq!(edge.received, root.received_packets() + edge.refused + edge.unreadable, "{edge:?}");
    // A batch may be on its way when the loop ends.
    assert!(root.sent_packets - edge.sent <= 64, "{} sent, {edge:?}", root.sent_packets);
    assert_eq!(last.classes.iter().skip(1).map(|class| class.counters.sent_bytes).sum::<u64>(), root.sent_bytes);
}

/// What `ip` says of an interface in the middle.
fn shown(world: &World, interface: &str) -> String {
    let show = || Command::new("ip").args(["-d", "link", "show", "dev", interface]).output().unwrap();
    String::from_utf8_lossy(&world.middle.run(show).unwrap().stdout).into_owned()
}

#[test]
fn both_families_pass_both_ways_and_nothing_is_left() {
    let Some(world) = world() else { return };
    let text = "link wan { device bridge a b  rate 1Gbit/s  scheduler fifo  class all { default } }";
    let Some(running) = run(&world, text) else { return };
    assert!(shown(&world, "a").contains("xdp") && shown(&world, "b").contains("xdp"), "{}", shown(&world, "a"));
    for to in ["10.9.0.2:7", "[fd09::2]:7"] {
        let trips = round_trips(&world, to, 200);
        eprintln!("{to}: median {:?}, 99 % {:?}", trips[100], trips[197]);
    }
    // TCP's checksums are left to the device, and the ends check them.
    for to in ["10.9.0.2:5001", "[fd09::2]:5001"] {
        assert!(Bulk::start(&world, to).measure(Duration::from_millis(400)) > 5e6, "{to}");
    }
    for to in ["10.9.0.1:5001", "[fd09::1]:5001"] {
        let bulk = Bulk::between(&world.right, &world.left, to);
        assert!(bulk.measure(Duration::from_millis(400)) > 5e6, "{to}");
    }
    let last = stop(running);
    assert_eq!(last.len(), 1);
    adds_up(&last[0]);
    let end = Instant::now() + Duration::from_secs(2);
    while ["a", "b"].iter().any(|interface| shown(&world, interface).contains("xdp")) {
        assert!(Instant::now() < end, "the programs are gone: {}", shown(&world, "a"));
    }
    // A queue that was in use can be used again, any number of times.
    for _ in 0..3 {
        let Some(running) = run(&world, text) else { panic!("it ran before") };
        round_trips(&world, "10.9.0.2:7", 20);
        stop(running);
    }
}

/// The snapshots of a second in which both classes of a link always had packets. If a sender gets
/// no processor for long, the queue of its class may become empty; then another second is tried.
fn a_second_with_both(running: &Running, link: &str) -> Vec<Snapshot> {
    // At 40 Mbit/s, 175 packets of 1428 bytes leave between two snapshots.
    let both = |one: &Snapshot| one.classes[1..].iter().all(|class| class.counters.queued_packets > 200);
    for _ in 0..10 {
        // So many packets come to wait meanwhile that a sender may pause for half a second.
        sleep(Duration::from_millis(1000));
        running.snapshots().try_iter().for_each(drop);
        sleep(Duration::from_millis(1000));
        let seen: Vec<Snapshot> = running.snapshots().try_iter().filter(|one| one.link == link).collect();
        if seen.len() > 5 && seen.iter().all(both) {
            return seen;
        }
        eprintln!("a class had no packets");
    }
    panic!("in no second of ten both classes had packets");
}

#[test]
fn two_links_shape_both_ways_and_classes_get_their_shares() {
    let Some(world) = world() else { return };
    let text = "link up { device bridge a b  rate 40Mbit/s  scheduler drr
                    class low { quantum 1500  queue drop_tail { limit 2000packets } default }
                    class high { quantum 6000  queue drop_tail { limit 2000packets } }
                    match dport 5002 -> high }
                link down { device bridge b a  rate 10Mbit/s  scheduler fifo  class all { default } }";
    let Some(running) = run(&world, text) else { return };
    {
        // 24 and 48 Mbit/s for 8 and 32.
        let low = Datagrams::start(&world.left, &world.right, "10.9.0.2:5001", 24_000_000, false);
        let high = Datagrams::start(&world.left, &world.right, "[fd09::2]:5002", 48_000_000, false);
        let up = a_second_with_both(&running, "up");
        let [first, last] = [&up[0], &up[up.len() - 1]].map(|one| [&one.classes[1].counters, &one.classes[2].counters]);
        let [few, many] = [0, 1].map(|at| (last[at].sent_bytes - first[at].sent_bytes) as f64);
        // Quanta of 1500 and 6000 bytes: one fifth of the link.
        assert!((few / (few + many) - 0.2).abs() < 0.015, "{few} {many}");
        // At least half of the link's 40 Mbit/s, however late the loop was.
        assert!(few + many > 0.5 * 40e6 / 8.0 * (up[up.len() - 1].at - up[0].at) as f64 / 1e9, "{few} {many}");
        // What left has arrived, or does soon.
        let end = Instant::now() + Duration::from_secs(5);
        for (datagrams, class) in [(&low, last[0]), (&high, last[1])] {
            while datagrams.arrived.load(Ordering::Relaxed) < class.sent_packets * PAYLOAD as u64 {
                assert!(Instant::now() < end, "{} packets were sent", class.sent_packets);
                sleep(Duration::from_millis(10));
            }
        }
    }
    {
        let back = Bulk::between(&world.right, &world.left, "10.9.0.1:5001");
        sleep(Duration::from_millis(300));
        let got = back.measure(Duration::from_millis(700));
        assert!(got > 0.6 * 10e6 && back.since_start() < 10e6 * 1.05, "{got}, {}", back.since_start());
    }
    let last = stop(running);
    assert_eq!(last.len(), 2);
    last.iter().for_each(adds_up);
    let up = last.iter().find(|snapshot| snapshot.link == "up").unwrap();
    assert!(up.classes[1].counters.dropped_packets > 0 && up.classes[2].counters.dropped_packets > 0, "{up:?}");
}

#[test]
fn tags_stay_though_the_kernel_carries_them_beside_the_frame() {
    let Some(world) = world() else { return };
    for (side, host) in [(&world.left, 1), (&world.right, 2)] {
        let other = 3 - host;
        let made = world::ip(
            side,
            &format!(
                "link add link eth0 name v5 type vlan id 5\nlink set dev v5 addrgenmode none up\n\
                 addr add 10.8.0.{host}/24 dev v5\nneigh add 10.8.0.{other} lladdr 02:00:00:00:00:0{other} dev v5\n"
            ),
        );
        if let Err(error) = made {
            return eprintln!("SKIPPED: no VLAN interfaces here ({error})");
        }
    }
    let text = "link wan { device bridge a b  rate 50Mbit/s  scheduler fifo  class other { default }  class tagged { }
                match vlan 5 -> tagged }";
    let Some(running) = run(&world, text) else { return };
    round_trips(&world, "10.8.0.2:7", 20);
    let bulk = Bulk::start(&world, "10.8.0.2:5001");
    assert!(bulk.measure(Duration::from_millis(500)) > 5e6);
    drop(bulk);
    let last = stop(running);
    adds_up(&last[0]);
    assert!(last[0].classes[2].counters.sent_bytes > 250_000, "{:?}", last[0]);
    assert_eq!(last[0].classes[1].counters.sent_packets, 0);
}

#[test]
fn every_frame_is_counted_once_and_one_that_is_too_long_is_refused() {
    const COUNT: u64 = 2000;
    let Some(world) = world() else { return };
    world::quiet(&world.left);
    world::quiet(&world.right);
    world::ip(&world.middle, "link set dev b mtu 1280\n").unwrap();
    let text = "link wan { device bridge a b  rate 1Gbit/s  scheduler fifo
                class all { default queue drop_tail { limit 3000packets } } }";
    let Some(running) = run(&world, text) else { return };
    assert!(running.notes().iter().any(|note| note.contains("mtu 1280")), "{:?}", running.notes());
    // Of all lengths from 60 to 1514; 1280 + 18 is the longest that may leave.
    let frames: Vec<Vec<u8>> = (0..COUNT)
        .map(|number| {
            let mut frame = [vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5], vec![0_u8; 1500]].concat();
            frame.truncate(60 + number as usize * 727 % 1455);
            frame
        })
        .collect();
    let long = frames.iter().filter(|frame| frame.len() > 1298).count() as u64;
    assert!(long > 0);
    let mut injector = world.left.run(|| Injector::open("eth0").unwrap()).unwrap();
    for some in frames.chunks(50) {
        injector.send(some).unwrap();
        sleep(Duration::from_millis(5));
    }
    sleep(Duration::from_millis(300));
    let last = stop(running);
    adds_up(&last[0]);
    let (root, edge) = (&last[0].classes[0].counters, &last[0].edge);
    assert_eq!((edge.received, edge.refused, edge.missed, edge.unreadable), (COUNT, long, 0, 0));
    assert_eq!((root.sent_packets, edge.sent, edge.lost), (COUNT - long, COUNT - long, 0));
    let bytes: usize = frames.iter().map(Vec::len).sum();
    assert_eq!(edge.received_bytes, bytes as u64);
}

#[test]
fn the_kernels_own_stack_does_not_see_the_frames() {
    let Some(world) = world() else { return };
    world.answer_in_the_middle();
    assert!(world.middle_answers(), "without a bridge the middle is a host like any other");
    let text = "link wan { device bridge a b  rate 50Mbit/s  scheduler fifo  class all { default } }";
    let Some(running) = run(&world, text) else { return };
    assert!(!world.middle_answers());
    stop(running);
    assert!(world.middle_answers(), "nothing is left behind");
}

#[test]
fn an_interface_that_goes_ends_the_loop_with_its_name() {
    let Some(world) = world() else { return };
    let text = "link wan { device bridge a b  rate 50Mbit/s  scheduler fifo  class all { default } }";
    let Some(running) = run(&world, text) else { return };
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
    let Some(running) = run(&world, text) else { return };
    for name in ["a", "b"] {
        round_trips(&world, "10.9.0.2:7", 5);
        world::ip(&world.middle, &format!("link set dev {name} down")).unwrap();
        // Longer than between two looks at the interfaces.
        sleep(Duration::from_millis(700));
        world::ip(&world.middle, &format!("link set dev {name} up")).unwrap();
        eprintln!("{name} is up again: datagram {} arrives", until_one_arrives(&world, "10.9.0.2:7"));
        round_trips(&world, "10.9.0.2:7", 5);
    }
    stop(running);
}

/// What AF_XDP cannot carry is refused with the reason, or carried by packet sockets. This needs no
/// AF_XDP.
#[test]
fn what_it_cannot_carry_is_said() {
    let Some(world) = world() else { return };
    world::ip(&world.middle, "link set dev b mtu 9000\n").unwrap();
    let policy = policy("link wan { device bridge a b  rate 50Mbit/s  scheduler fifo  class all { default } }");
    let refused = start(&world, &policy, Xdp::On).err().unwrap();
    let said = refused.to_string();
    assert!(refused.is_unsupported() && said.contains("the MTU of b is 9000") && said.lines().count() == 1, "{said}");
    let running = match start(&world, &policy, Xdp::Auto) {
        Ok(running) => running,
        Err(error @ (Error::NotPermitted { .. } | Error::Unsupported { .. })) => return eprintln!("SKIPPED: {error}"),
        Err(error) => panic!("{error}"),
    };
    let notes = running.notes().join("\n");
    assert!(notes.contains("the MTU of b is 9000") && notes.contains("packet sockets carry it"), "{notes}");
    round_trips(&world, "10.9.0.2:7", 20);
    // The lock of the bridge that runs comes before the question what could carry a second one.
    for xdp in [Xdp::On, Xdp::Auto, Xdp::Off] {
        world::ip(&world.middle, "link set dev b mtu 1500\n").unwrap();
        let second = start(&world, &policy, xdp).err().unwrap();
        assert!(matches!(second, Error::Held { .. }), "{second}");
    }
    stop(running);
}
