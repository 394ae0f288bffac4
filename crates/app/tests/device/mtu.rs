//! The MTU of an interface changes while it is shaped.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use altq_dataplane::netns::Namespace;

use crate::supervised::{Running, until};
use crate::world::{Bulk, World, ip, world};
use crate::{HEADERS, all_is_shaped, counter, echoes};

/// Sets the MTU at both ends of the wire: a veth interface takes no frame that is longer than its
/// own MTU.
fn set_mtu(world: &World, mtu: usize) {
    for (namespace, name) in [(&world.left, "eth0"), (&world.middle, "a")] {
        ip(namespace, &format!("link set dev {name} mtu {mtu}\n")).unwrap();
    }
}

/// What comes and goes at 5 Mbit/s, with a class for echoes. In one queue for all flows the
/// acknowledgements of one direction would wait behind the data of the other, and neither would
/// fill its link.
const BOTH: &str = "
link up { device a  rate 5Mbit/s  scheduler priq
    class echo { priority 7 }
    class rest { priority 1  default  queue fq_codel }
    match port 7 -> echo }
link down { device a ingress  rate 5Mbit/s  scheduler priq
    class echo { priority 7 }
    class rest { priority 1  default  queue fq_codel }
    match port 7 -> echo }";

/// Connections from before the change go on, all of what they get is shaped, and it is no more than
/// the link's rate; packets of full size pass, are whole, and are charged with their length. None
/// of that is a difference to `altq status`, whose next look comes within five seconds.
#[test]
fn what_is_shaped_stays_shaped_when_the_mtu_changes() {
    let Some(world) = world() else { return };
    world.answer_in_the_middle();
    let Some(running) = Running::start(&world, "mtu", BOTH, &[]) else { return };
    let out = Bulk::between(&world.middle, &world.left, "10.7.0.1:5001");
    let back = Bulk::between(&world.left, &world.middle, "10.7.0.9:5002");
    // Segments have 1448 bytes of payload in 1500, or less, also where the MTU has grown: the size
    // of a connection's segments is agreed upon when it begins.
    let rate = 5e6;
    let most = rate * 1448.0 / 1500.0;
    let (mut count, mut bytes) = (0, 0);
    for mtu in [1500, 1280, 9000] {
        set_mtu(&world, mtu);
        echoes(&world.left, &world.middle, "10.7.0.9:7", mtu - 28, 5);
        (count, bytes) = (count + 5, bytes + 5 * mtu as u64);
        for link in [0, 1] {
            until("the echoes have passed", Duration::from_secs(5), || {
                counter(&running, link, "echo", "sent_packets") >= count
            });
            assert_eq!(counter(&running, link, "echo", "sent_packets"), count, "MTU {mtu}");
            assert_eq!(counter(&running, link, "echo", "sent_bytes"), bytes, "MTU {mtu}");
        }
        all_is_shaped(&format!("MTU {mtu}"), &running, "rest", rate, [(0, &out, 0.0), (1, &back, 0.0)]);
    }
    let all = [out.since_start(), back.since_start()];
    assert!(all.iter().all(|rate| *rate <= most * 1.02), "{all:?} of {most}");
    drop((out, back));
    // The files come last in a look: with what is seen of them, everything has been looked at.
    std::fs::write(running.folder.join("p.altq"), BOTH.to_owned() + "\n# edited\n").unwrap();
    for link in [0, 1] {
        until("a look", Duration::from_secs(20), || !running.drift(link).is_empty());
        let differs = running.drift(link);
        assert!(differs.len() == 1 && differs[0].contains("p.altq is another one than what runs"), "{differs:?}");
        let status = running.json("status");
        assert_eq!(status["links"][link]["state"], "shaping", "{status}");
    }
    running.end();
}

/// Bytes of payload of a transfer.
const SIZE: u64 = 4_000_000;

/// Segments that a namespace has sent for the first time, and again (tcpOutSegs and tcpRetransSegs
/// of RFC 4022), since it was made. Of a super-packet each segment counts.
fn segments(namespace: &Namespace) -> [u64; 2] {
    let text = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap()).unwrap();
    let lines: Vec<Vec<&str>> =
        text.lines().filter(|line| line.starts_with("Tcp:")).map(|line| line.split(' ').collect()).collect();
    ["OutSegs", "RetransSegs"].map(|word| {
        let at = lines[0].iter().position(|name| *name == word).unwrap();
        lines[1][at].parse().unwrap()
    })
}

/// Sends the payload over a new connection. Returns the bytes at layer 3 that the sender's segments
/// have together, and how many segments these are; `None` if some were sent again.
fn transfer(from: &Namespace, at: &Namespace, to: &str) -> Option<(u64, u64)> {
    let before = segments(from);
    let to: SocketAddr = to.parse().unwrap();
    let listener = at.run(|| TcpListener::bind(to).unwrap()).unwrap();
    let mut sender = from.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(3)).unwrap()).unwrap();
    let mut receiver = listener.accept().unwrap().0;
    let read = thread::spawn(move || std::io::copy(&mut receiver, &mut std::io::sink()).unwrap());
    sender.write_all(&vec![7; SIZE as usize]).unwrap();
    sender.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read.join().unwrap(), SIZE);
    assert_eq!(sender.read(&mut [0]).unwrap(), 0, "the other end closes");
    thread::sleep(Duration::from_millis(100));
    let after = segments(from);
    let sent = after[0] - before[0];
    // The first segment has 8 bytes more, of options such as those for window scale and SACK.
    (after[1] == before[1]).then_some((SIZE + HEADERS * sent + 8, sent))
}

/// The kernel does not tell the size of a super-packet's segments. altq takes them to fill the MTU
/// that the interface has now, so what it charges is what the kernel makes of them.
#[test]
fn super_packets_are_charged_by_the_mtu_of_now() {
    let Some(world) = world() else { return };
    world.answer_in_the_middle();
    let queue = "rate 900Mbit/s  scheduler fifo  class all { default  queue drop_tail { limit 1000packets } }";
    let policy = format!("link up {{ device a  {queue} }}\nlink down {{ device a ingress  {queue} }}");
    let Some(running) = Running::start(&world, "super", &policy, &[]) else { return };
    let mut port = 5000;
    for mtu in [1500, 9000, 1280] {
        set_mtu(&world, mtu);
        // altq looks at it twice a second.
        thread::sleep(Duration::from_millis(800));
        for (link, from, at, address) in
            [(0, &world.middle, &world.left, "10.7.0.1"), (1, &world.left, &world.middle, "10.7.0.9")]
        {
            let sent = |word: &str| counter(&running, link, "all", word);
            let (mut tries, what) = (0, format!("link {link}, MTU {mtu}"));
            let (before, packets, (expected, segments)) = loop {
                // The counters of what was before are there after an interval.
                thread::sleep(Duration::from_millis(200));
                let before = (sent("sent_bytes"), sent("sent_packets"));
                port += 1;
                if let Some(done) = transfer(from, at, &format!("{address}:{port}")) {
                    break (before.0, before.1, done);
                }
                tries += 1;
                if tries == 5 {
                    return eprintln!("SKIPPED {what}: this host sent segments twice in each of {tries} transfers");
                }
            };
            thread::sleep(Duration::from_millis(300));
            let (charged, packets) = (sent("sent_bytes") - before, sent("sent_packets") - packets);
            eprintln!("{what}: {charged} bytes charged, {expected} sent, {segments} segments in {packets} packets");
            assert!(packets < segments, "{what}: super-packets come whole");
            // With another MTU it would be some 20,000 bytes more or less, or 120,000.
            assert!(charged.abs_diff(expected) < 500, "{what}: {charged} bytes charged, {expected} sent");
        }
    }
    running.end();
}
