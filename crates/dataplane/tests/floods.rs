//! Floods by NFQUEUE, at three times the link's rate: packets of 64 bytes, new flows, spoofed
//! sources and fragments. Memory is bounded, and everything that a guaranteed class sends arrives.
//! The tests are skipped with a message if the host does not allow them.

mod world;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use altq_dataplane::inject::Injector;
use altq_dataplane::netns::Namespace;
use world::frames::{Noise, Outside, frame4, frame6, ipv4, ipv6, udp};
use world::{policy, routed};

/// The flood goes to `rest`, in small packets that fill a queue of bytes or of flows.
const POLICY: &str = "link wan { device wan  rate 4Mbit/s  scheduler cbq
    class voice { share 25%  queue drop_tail { limit 500packets } }
    class rest { share 75% borrow default  QUEUE }
    match dport 5004 -> voice }";

/// Bytes per second of the link.
const RATE: f64 = 4e6 / 8.0;
/// Packets of a flood per second: of 46 bytes at layer 3, which are 64 on an Ethernet, three times
/// what the link carries.
const FLOOD: f64 = 3.0 * RATE / 46.0;
/// Packets of `voice` per second: of 200 bytes, nine tenths of its share.
const VOICE: f64 = 0.9 * 0.25 * RATE / 200.0;

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// One flow of packets of 64 bytes.
    Small,
    /// Each packet is a flow of its own, from a source that does not exist.
    Spoofed,
    /// The same in IPv6.
    Spoofed6,
    /// First fragments without the others, and later ones without the first.
    Fragments,
}

fn frame(kind: Kind, noise: &mut Noise) -> Vec<u8> {
    let outside = Outside { to: routed::LEFT[1], from: routed::LEFT[0], vlan: None };
    let (from, to) = ([10, 50, 1, 1], [10, 200, 1, 1]);
    let any = noise.number();
    let [a, b, c, d] = any.to_be_bytes();
    match kind {
        Kind::Small => frame4(outside, &ipv4(from, to, 0, 17, 1, 0x4000, &udp(4000, 4000, 18))),
        Kind::Spoofed => {
            let bytes = udp((noise.number() | 1024) as u16, 6000, 18);
            frame4(outside, &ipv4([10, 48 | b & 15, c, d], [10, 200, a, d | 1], 0, 17, 1, 0x4000, &bytes))
        }
        Kind::Spoofed6 => {
            let (mut from, mut to) = ([0; 16], [0; 16]);
            (from[0], from[1]) = (0xfd, 0x50);
            (to[0], to[1]) = (0xfd, 0x20);
            from[12..].copy_from_slice(&any.to_be_bytes());
            to[12..].copy_from_slice(&noise.number().to_be_bytes());
            frame6(outside, &ipv6(from, to, 0, 0, 17, &udp(c.into(), 6000, 0)))
        }
        Kind::Fragments => {
            let word = if a & 1 == 0 { 0x2000 } else { 0x2000 | (u16::from(b) + 1) };
            frame4(outside, &ipv4(from, to, 0, 17, any as u16, word, &udp(c.into(), 6000, 16)))
        }
    }
}

/// Sends a flood and the class's own packets for a time. Returns the number of the class's packets.
fn flood(injector: &mut Injector, kind: Kind, noise: &mut Noise, time: Duration) -> u64 {
    let outside = Outside { to: routed::LEFT[1], from: routed::LEFT[0], vlan: None };
    let own = frame4(outside, &ipv4([10, 9, 1, 1], [10, 9, 2, 2], 0, 17, 1, 0x4000, &udp(5004, 5004, 172)));
    let (start, mut floods, mut voices) = (Instant::now(), 0.0, 0.0);
    let mut frames: Vec<Vec<u8>> = Vec::new();
    while start.elapsed() < time {
        let elapsed = start.elapsed().as_secs_f64();
        frames.clear();
        // After a pause of this thread no more than a batch is made up for.
        for _ in 0..((FLOOD * elapsed - floods) as usize).min(200) {
            frames.push(frame(kind, noise));
        }
        floods = (FLOOD * elapsed).max(floods);
        while voices < VOICE * elapsed {
            let at = frames.len() / 2;
            frames.insert(at, own.clone());
            voices += 1.0;
        }
        injector.send(&frames).unwrap();
        std::thread::sleep(Duration::from_micros(500));
    }
    voices as u64
}

/// Bytes of this process in memory (proc(5), status; the kernel's kB are 1024 bytes).
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Counts the datagrams that arrive at 10.9.2.2:5004, until it is dropped.
struct Sink {
    arrived: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Sink {
    fn new(at: &Namespace) -> Sink {
        let socket = at.run(|| UdpSocket::bind("10.9.2.2:5004").unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let (arrived, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stopped) = (arrived.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut data = [0; 300];
            while !stopped.load(Ordering::Relaxed) {
                if socket.recv(&mut data).is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Sink { arrived, stop, thread: Some(thread) }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn a_guarantee_holds_and_memory_is_bounded_under_floods() {
    for queue in ["queue drop_tail { limit 200000bytes }", "queue fq_codel"] {
        let Some(world) = routed::plain() else { return };
        let before = world.rules();
        let Some(running) = world.run(&policy(&POLICY.replace("QUEUE", queue))) else { return };
        let sink = Sink::new(&world.right);
        let mut injector = world.left.run(|| Injector::open("eth0")).unwrap().unwrap();
        let (mut noise, at_first, mut active) = (Noise::new(7), resident(), 0.0);
        for kind in [Kind::Small, Kind::Spoofed, Kind::Spoofed6, Kind::Fragments] {
            let mut seen = Vec::new();
            // On a busy machine altq or the sender may not get its turn.
            let held = (0..4).any(|_| {
                let (arrived, start) = (sink.arrived.load(Ordering::Relaxed), Instant::now());
                let sent = flood(&mut injector, kind, &mut noise, Duration::from_millis(1200));
                active += start.elapsed().as_secs_f64();
                std::thread::sleep(Duration::from_millis(100));
                let part = (sink.arrived.load(Ordering::Relaxed) - arrived) as f64 / sent as f64;
                seen.push(part);
                part >= 0.99
            });
            eprintln!("{queue}, {kind:?}: parts that arrived {seen:.4?}");
            assert!(held, "{queue}, {kind:?}: {seen:.4?}");
        }
        let more = resident().saturating_sub(at_first);
        running.stop();
        let last = running.snapshots().iter().find(|snapshot| snapshot.last).unwrap();
        running.wait().unwrap();
        let root = &last.classes[0].counters;
        eprintln!("{queue}: {} KB more in memory; {root:?} {:?} {:?}", more >> 10, last.edge, last.work);
        assert_eq!(root.received_packets(), root.sent_packets + root.dropped_packets + root.queued_packets);
        assert!(root.dropped_packets > 10_000, "it was a flood");
        assert!(root.sent_bytes as f64 >= 0.9 * RATE * active, "the link is not idle: {}", root.sent_bytes);
        // Slots of 2 KB for at most 10,240 packets and some batches, at most 24 MB for known flows
        // (`CacheSettings`), and what the sender takes.
        assert!(more < 64 << 20, "{more}");
        drop(sink);
        assert_eq!(world.rules(), before, "nothing is left");
    }
}
