//! The loop reports the fate of every frame to its edge exactly once: it is sent, or it is dropped.

use std::collections::BTreeSet;

use altq_config::{Language, parse_str};
use altq_dataplane::Error;
use altq_dataplane::channel::{Channel, Timed};
use altq_dataplane::edge::{Edge, EdgeCounters, Sent, Want, Woken};
use altq_dataplane::pool::Pool;
use altq_dataplane::shaper::{Shaper, Tuning};
use altq_dataplane::stats::Totals;
use altq_dataplane::vnet::Vnet;
use altq_engine::units::Nanos;

const MS: u64 = 1_000_000;

/// The edge in memory, which keeps the frames that the loop holds.
struct Told {
    channel: Channel,
    held: BTreeSet<u32>,
    dropped: u64,
}

impl Edge for Told {
    fn now(&mut self) -> Nanos {
        self.channel.now()
    }

    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<u32>) -> Result<bool, Error> {
        let had_room = self.channel.receive(pool, out)?;
        out.iter().for_each(|handle| assert!(self.held.insert(*handle), "a slot is free only after its fate is told"));
        Ok(had_room)
    }

    fn send(&mut self, pool: &mut Pool, frames: &[u32], ends: &[Nanos]) -> Result<Sent, Error> {
        let sent = self.channel.send(pool, frames, ends)?;
        frames[..sent.done].iter().for_each(|handle| assert!(self.held.remove(handle)));
        Ok(sent)
    }

    fn dropped(&mut self, handle: u32) {
        assert!(self.held.remove(&handle), "no frame is both sent and dropped");
        self.dropped += 1;
    }

    fn wait(&mut self, deadline: Option<Nanos>, want: Want) -> Result<Woken, Error> {
        self.channel.wait(deadline, want)
    }

    fn stopped(&mut self) -> bool {
        self.channel.stopped()
    }

    fn counters(&mut self) -> EdgeCounters {
        self.channel.counters()
    }
}

/// A UDP frame over IPv4 of 1000 bytes at layer 3.
fn frame(sport: u16, dport: u16) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    bytes.extend(1000u16.to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([sport.to_be_bytes(), dport.to_be_bytes(), 980u16.to_be_bytes(), [0, 0]].concat());
    bytes.resize(1014, 0);
    bytes
}

/// Queues that drop the arriving packet, another one, or a packet on its way out; and packets that
/// no rule gives a class.
#[test]
fn every_frame_is_sent_or_dropped_once() {
    for (queue, limit) in [("drop_tail", 20), ("drop_head", 20), ("codel", 50), ("fq_codel", 50)] {
        let text = format!(
            "link wan {{ device eth0  rate 10Mbit/s  scheduler fifo
             class all {{ queue {queue} {{ limit {limit}packets }} }}
             match dport 1000 -> all }}"
        );
        let policy = parse_str(&text, "test.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
        // Twice the rate for a second, then time to send what waits. A tenth has no class.
        let mut channel = Channel::new(3000 * MS);
        for n in 0..2500u16 {
            let bytes = frame(n % 7, if n % 10 == 0 { 1001 } else { 1000 });
            channel.arrive(Timed { at: u64::from(n) * MS * 2 / 5, bytes, vnet: Vnet::default() });
        }
        let told = Told { channel, held: BTreeSet::new(), dropped: 0 };
        let mut shaper =
            Shaper::new(&policy.links[0], "", told, Tuning { memory: 16 << 20, ..Tuning::default() }).unwrap();
        let (mut totals, mut last) = (Totals::default(), None);
        shaper.run(|report| last = Some(totals.sum(report))).unwrap();
        let (root, unclassified) = last.map(|last| (last.classes[0].counters, last.unclassified.0)).unwrap();
        let edge = shaper.edge();
        assert_eq!(edge.held.len() as u64, 0, "{queue}");
        assert_eq!(edge.dropped + edge.channel.departed().len() as u64, 2500, "{queue}");
        assert_eq!(edge.dropped, root.dropped_packets + unclassified, "{queue}");
        assert!(unclassified == 250 && edge.dropped > 1000, "{queue}: {unclassified} {}", edge.dropped);
    }
}
