//! Runs random trees in the engine, and checks that no packet waits longer than the bound that
//! `altq check` prints. One source keeps to its guarantee, one queue is always full, and all other
//! classes are backlogged.

use altq_config::{Language, Link, Promises, parse_str};
use altq_engine::spec::ClassId;
use altq_engine::units::{Nanos, SECOND};
use altq_engine::{Engine, Packet};

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n.max(1)
    }
}

/// A random tree whose leaves are guaranteed at most the whole link together.
fn policy(random: &mut Random) -> String {
    let rate = [10_000, 100_000, 1_000_000][random.below(3) as usize];
    let excess = ["share", "priority"][random.below(2) as usize];
    let overhead = ["none", "ethernet", "44 bytes atm"][random.below(3) as usize];
    let mut out = format!("link l {{ rate {rate}kbit/s overhead {overhead} scheduler cbq {{ excess {excess} }}\n");
    let tops = 2 + random.below(5);
    let mut count = 0;
    for top in 0..tops {
        let share = 100 / tops;
        let leaf = |random: &mut Random, share: u64, name: u64| {
            let borrow = ["", "borrow"][random.below(2) as usize];
            let size = [200, 600, 1500][random.below(3) as usize];
            format!(
                "class c{name} {{ share {share}% {borrow} priority {} packetsize {size} maxburst {} queue drop_tail {{ \
                 limit {}packets }} }}\n",
                random.below(8),
                2 + random.below(4),
                3 + random.below(20)
            )
        };
        if random.below(2) == 0 {
            out += &format!("class t{top} {{ share {share}% {}\n", ["", "borrow"][random.below(2) as usize]);
            let children = 1 + random.below(3);
            for _ in 0..children {
                out += &leaf(random, (share / children).max(1), count);
                count += 1;
            }
            out += "}\n";
            // Packets of the inner class itself.
            if random.below(2) == 0 {
                out += &format!("match dport {} -> t{top}\n", top + 1);
            }
        } else {
            out += &leaf(random, share, count);
            count += 1;
        }
    }
    // Packets of the root are guaranteed the rate that the classes leave.
    out + ["", "default\n"][random.below(2) as usize] + "}\n"
}

/// The wire. It sends one packet at a time at the link's rate, exact to a nanosecond.
struct Wire {
    rate: u64,
    start: Nanos,
    bits: u128,
    free: Nanos,
}

impl Wire {
    fn send(&mut self, now: Nanos, bytes: u32) -> Nanos {
        if self.free < now {
            (self.start, self.bits) = (now, 0);
        }
        self.bits += u128::from(bytes) * 8;
        self.free = self.start + (self.bits * u128::from(SECOND)).div_ceil(u128::from(self.rate)) as Nanos;
        self.free
    }
}

/// Runs the link for `packets` packets. Returns the longest wait of the conforming class and of the
/// full queue.
fn longest(link: &Link, random: &mut Random, conforming: ClassId, full: ClassId, packets: u32) -> (Nanos, Nanos) {
    let mut engine = Engine::new(&link.spec).expect("an engine");
    let charge = |len: u32| link.spec.overhead.charge(len);
    let leaves: Vec<ClassId> =
        (0..link.classes.len() as ClassId).filter(|class| link.holders()[*class as usize]).collect();
    let settings = &link.spec.classes[conforming as usize].settings;
    let (size, burst) = (settings.bytes("packetsize").unwrap(), settings.int("maxburst").unwrap());
    let rate = link.guarantee(conforming).unwrap().as_bit_s();
    // Tokens count bits times nanoseconds per second, so that nothing is rounded.
    let depth = u128::from(size * burst * 8) * u128::from(SECOND);
    let mut tokens = depth;
    // The source begins late, because a class is allowed its burst only after idle time.
    let mut now = SECOND;
    let (mut last, mut next_send) = (now, now);
    let mut next_len = size as u32;
    let mut wire = Wire { rate: link.spec.rate.as_bit_s(), start: 0, bits: 0, free: 0 };
    let mut sent = 0;
    let mut waits = (0, 0);
    while sent < packets {
        // The source sends as soon as it may, or waits a while and then sends a burst.
        while next_send <= now {
            tokens = (tokens + u128::from(now - last) * u128::from(rate)).min(depth);
            last = now;
            let cost = u128::from(charge(next_len)) * 8 * u128::from(SECOND);
            if tokens >= cost {
                tokens -= cost;
                engine.enqueue(now, conforming, Packet::new(1, next_len));
                next_len = 40 + random.below(size - 39) as u32;
                // In ATM cells the packet may cost more than the whole burst: then it is replaced
                // by the smallest packet.
                if u128::from(charge(next_len)) * 8 * u128::from(SECOND) > depth {
                    next_len = 40;
                }
                if random.below(8) == 0 {
                    next_send = now + random.below(20 * size * 8 * SECOND / rate);
                }
            } else {
                next_send = now + ((cost - tokens).div_ceil(u128::from(rate))) as Nanos;
            }
        }
        for class in &leaves {
            let most = if *class == full { 64 } else { 3 };
            while *class != conforming && engine.counters(*class).queued_packets < most {
                let before = engine.counters(*class).queued_packets;
                engine.enqueue(now, *class, Packet::new(0, 40 + random.below(1461) as u32));
                if engine.counters(*class).queued_packets == before {
                    break;
                }
            }
        }
        // A burst of small packets may be more than a short queue holds.
        drop(engine.drops());
        if wire.free <= now
            && let Some(departure) = engine.dequeue(now)
        {
            let end = wire.send(now, departure.packet.wire);
            let wait = end - departure.packet.arrived;
            if departure.class == conforming {
                waits.0 = waits.0.max(wait);
            } else if departure.class == full {
                waits.1 = waits.1.max(wait);
            }
            sent += 1;
        }
        let event = if wire.free > now { wire.free } else { engine.next_wakeup().unwrap_or(Nanos::MAX).max(now + 1) };
        now = event.min(next_send.max(now + 1));
    }
    waits
}

#[test]
fn no_packet_waits_longer_than_check_says() {
    let mut random = Random(3);
    let (mut checked, mut held, mut close) = (0, 0, 0);
    for _ in 0..300 {
        let text = policy(&mut random);
        let policy = parse_str(&text, "t", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
        let link = &policy.links[0];
        let promises = Promises::new(link);
        let leaves: Vec<ClassId> =
            (1..link.classes.len() as ClassId).filter(|class| link.holders()[*class as usize]).collect();
        let sized: Vec<ClassId> = leaves
            .iter()
            .copied()
            .filter(|class| link.spec.classes[*class as usize].settings.bytes("packetsize").is_some())
            .collect();
        let conforming = sized[random.below(sized.len() as u64) as usize];
        let full = leaves[random.below(leaves.len() as u64) as usize];
        // With a burst smaller than one packet on the wire no source could conform.
        let settings = &link.spec.classes[conforming as usize].settings;
        let burst = settings.bytes("packetsize").unwrap() * settings.int("maxburst").unwrap();
        if u64::from(link.spec.overhead.charge(settings.bytes("packetsize").unwrap() as u32)) > burst {
            continue;
        }
        let (waited, in_full) = longest(link, &mut random, conforming, full, 4000);
        let (bound, of_full) = (promises.delay_bound(conforming), promises.delay_bound(full));
        let Some(most) = bound.conforming else { continue };
        assert!(waited <= most, "{} waited {waited} of {most} ns\n{text}", link.class_name(conforming));
        if let Some(most) = of_full.queue_full.filter(|_| full != conforming) {
            held += 1;
            assert!(in_full <= most, "{} waited {in_full} of {most} ns\n{text}", link.class_name(full));
        }
        checked += 1;
        close += u32::from(waited * 3 > most);
    }
    // The bounds are tight enough: the longest wait is often more than a third of its bound.
    assert!(checked > 200 && held > 150 && close > 50, "{checked} checked, {held} full queues, {close} close");
}
