//! Imitates the host that has the shaped queue: its wire with a rate of its own, a medium with its
//! own framing, the ring of its driver, timers that fire at ticks, and programs that run on it.
//! Used if the case asks for one of these; otherwise altq just sends at the policy's rate.
//!
//! The wire and its ring are the simulator's. The loop asks the engine at the same events as the
//! simulator does ([`Output::BY_EVENTS`]), so both give the same departures.

use std::convert::Infallible;
use std::sync::Arc;

use altq_cases::case::{CaseLink, Medium};
use altq_config::Link;
use altq_dataplane::output::Output;
use altq_engine::Departure;
use altq_engine::drive::{Taken, Transmitter};
use altq_engine::headers::Key;
use altq_engine::link::Overhead;
use altq_engine::spec::{ClassId, Timer};
use altq_engine::units::{Nanos, Rate};
use altq_simulator::wire::Wire;
use altq_traffic::local::SendResults;

/// The imitated host of one direction of the shaped link.
#[derive(Clone, Debug)]
pub struct Host {
    /// True if it sends in the direction from `to` to `from`.
    pub back: bool,
    /// The rate of its wire.
    pub rate: Rate,
    /// When its timers fire.
    pub timer: Timer,
    medium: Option<Overhead>,
    ring: usize,
    programs: Vec<LocalProgram>,
}

/// A program on the queue's host: the addresses of the UDP packets that it sends, and where it
/// learns what happened to each of them at the queue.
#[derive(Clone, Debug)]
pub struct LocalProgram {
    /// Source address, as in a classifier's key.
    pub src: u128,
    /// Destination address.
    pub dst: u128,
    /// Destination port.
    pub dport: u16,
    /// What happened to its packets.
    pub results: Arc<SendResults>,
}

impl LocalProgram {
    /// Whether a packet with these header fields is one of its own.
    fn sent(&self, key: &Key) -> bool {
        key.proto == 17 && key.dport() == Some(self.dport) && key.src == self.src && key.dst == self.dst
    }
}

/// The directions of a link that have a policy: the policy's link, and true for the direction from
/// `to` to `from`.
pub type Ways<'a> = [(&'a Link, bool)];

/// Whether the case asks for more than a wire of the policy's rate.
pub fn is_needed(link: &CaseLink, ways: &Ways<'_>, timer: Timer) -> bool {
    let framed = |way: &Link| link.medium.is_none_or(|medium| medium.overhead() == way.spec.overhead);
    let rated = |way: &Link, back: bool| link.ways[usize::from(back)].rate.is_none_or(|rate| rate == way.spec.rate);
    timer != Timer::Exact || link.tx_ring > 1 || !ways.iter().all(|(way, back)| framed(way) && rated(way, *back))
}

impl Host {
    /// The imitated host of one direction of a link. `ways` has the directions that have a policy.
    pub fn new(link: &CaseLink, ways: &Ways<'_>, back: bool, timer: Timer, programs: Vec<LocalProgram>) -> Host {
        let of = |back| ways.iter().find(|(_, own)| *own == back).map(|(way, _)| way.spec.rate);
        let rate = link.rate(back, [of(false), of(true)]);
        Host {
            back,
            rate: rate.unwrap_or(Rate::ZERO),
            timer,
            medium: link.medium.map(Medium::overhead),
            ring: link.tx_ring,
            programs,
        }
    }

    /// The output by which the loop of this host sends.
    pub fn output(&self) -> HostOutput {
        let wire = Wire::new(self.rate, self.ring).with_medium(self.medium);
        HostOutput { wire, sent: Vec::new(), programs: self.programs.clone() }
    }
}

/// A host's ring and wire, and the programs that send through them.
pub struct HostOutput {
    wire: Wire,
    /// By class: the bytes that its packets took on the wire.
    sent: Vec<u64>,
    programs: Vec<LocalProgram>,
}

impl Transmitter for HostOutput {
    type Error = Infallible;

    fn has_room(&self, _: Nanos) -> bool {
        self.wire.has_room()
    }

    fn take(&mut self, now: Nanos, departure: &Departure) -> Result<Taken, Infallible> {
        // A packet that would end after more than 584 years stays on the wire for ever.
        let never = Taken { end: Some(Nanos::MAX), bytes: self.wire.bytes(&departure.packet) };
        let taken = Transmitter::take(&mut self.wire, now, departure).unwrap_or(never);
        let class = departure.class as usize;
        if self.sent.len() <= class {
            self.sent.resize(class + 1, 0);
        }
        self.sent[class] += u64::from(taken.bytes);
        Ok(taken)
    }

    fn rest(&mut self, _: Nanos) {
        self.wire.rest();
    }
}

impl Output for HostOutput {
    const BY_EVENTS: bool = true;

    fn next_end(&self) -> Option<Nanos> {
        self.wire.next_end()
    }

    fn complete(&mut self) {
        self.wire.complete();
    }

    fn set_rate(&mut self, rate: Rate) {
        self.wire.set_rate(rate);
    }

    /// Tells the program that sent the packet, if one on this host did, whether the packet was
    /// dropped. A drop of such a packet does not make the scheduler run: 4.4BSD's `ether_output`
    /// returns ENOBUFS without a call of `if_start`.
    fn arrived(&mut self, key: &Key, dropped: bool) -> bool {
        match self.programs.iter().find(|program| program.sent(key)) {
            Some(program) => {
                program.results.note(dropped);
                !dropped
            }
            None => true,
        }
    }

    fn wire_bytes(&self, class: ClassId) -> Option<u64> {
        Some(self.sent.get(class as usize).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::Mutex;

    use altq_cases::case::Case;
    use altq_config::{Language, parse_str};
    use altq_dataplane::channel::{Channel, Timed};
    use altq_dataplane::edge::{Edge, EdgeCounters, Sent, Want, Woken};
    use altq_dataplane::pool::Pool;
    use altq_dataplane::shaper::{Shaper, Tuning};
    use altq_dataplane::stats::{Snapshot, Totals};
    use altq_dataplane::vnet::Vnet;
    use altq_engine::units::SECOND;
    use altq_engine::{Departure, Drop};
    use altq_simulator::replay::{self, Arrivals, Observer, Options};

    use super::*;
    use crate::networked::{Network, Networked, Onward};

    const MS: Nanos = 1_000_000;

    fn policy(text: &str) -> Link {
        parse_str(text, "test.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}")).links.remove(0)
    }

    /// The host of a case's only link, which has these keys in the case.
    fn host(link: &Link, words: &str, timer: Timer, programs: Vec<LocalProgram>) -> Host {
        let text = format!(
            "name = 't'\ndescription = 'd'\nduration = '1s'\n\
             policy = 'link wan {{ rate 1Mbit/s scheduler fifo class all {{ default }} }}'\n\
             hosts = [{{ name = 'a' }}, {{ name = 'b' }}]\n\
             links = [{{ name = 'wan', from = 'a', to = 'b', policy = 'wan', {words} }}]\n\
             flows = [{{ name = 'f', kind = 'udp', from = 'a', to = 'b', size = 100, rate = '1Mbit/s' }}]\n"
        );
        let case = Case::parse(&text, Path::new("t.toml")).unwrap_or_else(|error| panic!("{error}"));
        let ways = [(link, false)];
        assert!(is_needed(&case.links[0], &ways, timer));
        Host::new(&case.links[0], &ways, false, timer, programs)
    }

    /// A datagram of `length` bytes at layer 3 from 10.0.0.1 to 10.0.0.2; its last two bytes are
    /// its number.
    fn frame(at: Nanos, dport: u16, length: u32, number: usize) -> Timed {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        bytes.extend((length as u16).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x9c, 0x40]);
        bytes.extend(dport.to_be_bytes());
        bytes.extend((length as u16 - 20).to_be_bytes());
        bytes.resize(14 + length as usize, 0);
        let end = bytes.len();
        bytes[end - 2..].copy_from_slice(&(number as u16).to_be_bytes());
        Timed { at, bytes, vnet: Vnet::default() }
    }

    /// Records when each frame's last bit leaves the wire, with the frame's number.
    struct Recorder(Arc<Mutex<Vec<(Nanos, usize)>>>);

    impl Network for Recorder {
        fn enter(&mut self, head: &[u8]) -> u32 {
            head.last_chunk::<2>().map_or(0, |last| u32::from(u16::from_be_bytes(*last)))
        }

        fn onward(&mut self, now: Nanos, ticket: u32, _: usize) -> Onward {
            self.0.lock().unwrap().push((now, ticket as usize));
            Onward::Arrives(now)
        }
    }

    /// A loop whose host wakes it up late by `by`.
    struct Late {
        edge: Networked<Channel>,
        by: Nanos,
    }

    impl Edge for Late {
        fn now(&mut self) -> Nanos {
            self.edge.now()
        }

        fn receive(&mut self, pool: &mut Pool, out: &mut Vec<u32>) -> Result<bool, altq_dataplane::Error> {
            self.edge.receive(pool, out)
        }

        fn send(&mut self, pool: &mut Pool, frames: &[u32], ends: &[Nanos]) -> Result<Sent, altq_dataplane::Error> {
            self.edge.send(pool, frames, ends)
        }

        fn wait(&mut self, deadline: Option<Nanos>, want: Want) -> Result<Woken, altq_dataplane::Error> {
            self.edge.wait(deadline.map(|at| at + self.by), want)
        }

        fn stopped(&mut self) -> bool {
            self.edge.stopped()
        }

        fn counters(&mut self) -> EdgeCounters {
            self.edge.counters()
        }
    }

    /// Runs a link on a host with these frames. Returns when each frame left the wire, with its
    /// number, and the last snapshot. The loop wakes up every millisecond, and `late` ns later than
    /// it should.
    fn run(link: &Link, host: &Host, frames: Vec<Timed>, end: Nanos, late: Nanos) -> (Vec<(Nanos, usize)>, Snapshot) {
        let (left, mut channel) = (Arc::new(Mutex::new(Vec::new())), Channel::new(end));
        frames.into_iter().for_each(|frame| channel.arrive(frame));
        let edge = Late { edge: Networked::new(channel, None, Some(Box::new(Recorder(left.clone())))), by: late };
        let tuning = Tuning { memory: 16 << 20, interval: Some(MS + late), ..Tuning::default() };
        let mut shaper = Shaper::with_output(link, "a", edge, tuning, host.output(), host.timer).unwrap();
        let (mut totals, mut last) = (Totals::default(), None);
        shaper.run(|report| last = Some(totals.sum(report))).unwrap();
        let left = left.lock().unwrap().clone();
        (left, last.unwrap())
    }

    const TWO: &str = "class low { priority 0 default } class high { priority 5 } match dport 3000 -> high }";

    #[test]
    fn a_ring_holds_what_has_come_before() {
        // At 8 Mbit/s a byte takes a microsecond. Five packets of 1000 bytes are queued, and half a
        // millisecond later one of higher priority.
        let link = policy(&format!("link wan {{ rate 100Mbit/s scheduler priq {TWO}"));
        let frames = || {
            let mut frames: Vec<Timed> = (0..5).map(|n| frame(0, 2000, 1000, n)).collect();
            frames.push(frame(MS / 2, 3000, 1000, 9));
            frames
        };
        for (ring, order) in [(1, [0, 9, 1, 2, 3, 4]), (3, [0, 1, 2, 9, 3, 4]), (64, [0, 1, 2, 3, 4, 9])] {
            let host = host(&link, &format!("rate = '8Mbit/s', tx_ring = {ring}"), Timer::Exact, Vec::new());
            // A loop that wakes up late does not leave the wire idle.
            for late in [0, 300_000, 1_700_000] {
                let expected: Vec<(Nanos, usize)> = (1..).map(|k| k * MS).zip(order).collect();
                let frames = if late == 0 { frames() } else { frames().into_iter().take(5).collect() };
                let (left, _) = run(&link, &host, frames, SECOND, late);
                match late {
                    0 => assert_eq!(left, expected, "ring {ring}"),
                    _ => assert_eq!(
                        left,
                        (0..5).map(|k| ((k as u64 + 1) * MS, k)).collect::<Vec<_>>(),
                        "ring {ring}, late {late}"
                    ),
                }
            }
        }
    }

    #[test]
    fn cells_are_what_the_wire_carries() {
        // 1000 bytes with LLC/SNAP and AAL5 are 22 cells (1016 / 48 = 21.2), 60 bytes are 2 cells,
        // whatever the policy charges.
        let link = policy("link wan { rate 100Mbit/s overhead 12 bytes scheduler fifo class all { default } }");
        let host = host(&link, "rate = '5139cells/s', medium = 'atm', tx_ring = 4", Timer::Exact, Vec::new());
        let frames = [1000, 1000, 60].into_iter().enumerate().map(|(n, length)| frame(0, 2000, length, n)).collect();
        let (left, last) = run(&link, &host, frames, SECOND, 0);
        let end = |cells: u64| (cells * SECOND).div_ceil(5139);
        assert_eq!(left, [(end(22), 0), (end(44), 1), (end(46), 2)]);
        let root = &last.classes[0];
        assert_eq!((root.wire_bytes, root.counters.sent_wire_bytes), (46 * 53, 2 * 1012 + 72));
    }

    #[test]
    fn a_program_hears_of_drops_and_they_make_nothing_run() {
        let link = policy(
            "link wan { rate 100Mbit/s scheduler fifo class all { default queue drop_tail { limit 2packets } } }",
        );
        let results = Arc::new(SendResults::default());
        let own = LocalProgram { src: 0x0a00_0001, dst: 0x0a00_0002, dport: 2000, results: results.clone() };
        let host = host(&link, "rate = '8Mbit/s', medium = 'ethernet'", Timer::Exact, vec![own]);
        // One packet is on the wire and two are queued, so the queue is full for the others. A
        // packet to another port is not the program's.
        let frames = (0..5).map(|n| frame(n as u64, 2000, 1000, n)).chain([frame(10, 2001, 1000, 7)]).collect();
        let (left, last) = run(&link, &host, frames, SECOND, 0);
        assert_eq!(left.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(last.classes[0].counters.dropped_packets, 3);
        let counts = results.counts();
        assert_eq!((counts.packets, counts.refused), (5, 2));
    }

    /// What a replay sent: when each packet was handed over, when it left the wire, and its number.
    #[derive(Default)]
    struct Sends(Vec<(Nanos, Nanos, usize)>);

    impl Observer for Sends {
        fn sent(&mut self, now: Nanos, at: usize, _: &Departure, wire_end: Nanos) -> io::Result<()> {
            self.0.push((now, wire_end, at));
            Ok(())
        }

        fn dropped(&mut self, _: usize, _: &Drop) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lab's loop and `altq replay` ask the engine at the same times: when a packet arrives,
    /// when the wire becomes free, and at ticks. The test uses ALTQ's estimator, because its
    /// departures change with every further question.
    #[test]
    fn ticks_and_rings_are_those_of_replay() {
        let link = policy(
            "link wan { rate 2Mbit/s overhead 12 bytes scheduler cbq { estimator classic }
             class slow { rate 400kbit/s minburst 3 queue drop_head { limit 30packets } }
             class fast { rate 1400kbit/s default queue drop_head { limit 30packets } }
             match dport 2000 -> slow }",
        );
        let class = |dport: u16| link.class(if dport == 2000 { "slow" } else { "fast" }).unwrap();
        let tick = SECOND / 100;
        for (ring, wire) in [(1, "2Mbit/s"), (64, "2Mbit/s"), (8, "10Mbit/s")] {
            let (mut frames, mut arrivals) = (Vec::new(), Arrivals::default());
            let (mut at, mut dice) = (0, 1u64);
            while at < 4 * SECOND && frames.len() < 65_000 {
                // Knuth's MMIX generator: gaps up to 4 ms, sizes up to 1500 bytes.
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                at += (dice >> 33) % (4 * MS);
                let (dport, length) =
                    (if dice >> 40 & 3 == 0 { 2000 } else { 3000 }, 40 + (dice >> 20 & 0xfff) as u32 % 1461);
                assert!(arrivals.push(at, class(dport), length, frames.len() as u64));
                frames.push(frame(at, dport, length, frames.len()));
            }
            let times: std::collections::HashSet<Nanos> = frames.iter().map(|frame| frame.at).collect();
            let rate = altq_config::literal::rate(wire).unwrap();
            let options =
                Options { wire_rate: Some(rate), timer: Timer::Tick(tick), tx_ring: ring, ..Options::default() };
            let mut sends = Sends::default();
            replay::run(&link, &arrivals, &options, &mut sends).unwrap();
            let host = host(&link, &format!("rate = '{wire}', tx_ring = {ring}"), Timer::Tick(tick), Vec::new());
            let (left, _) = run(&link, &host, frames, 20 * SECOND, 0);
            assert!(left.len() > 1000);
            assert_eq!(left, sends.0.iter().map(|(_, end, at)| (*end, *at)).collect::<Vec<_>>(), "ring {ring} {wire}");
            // Some packets were sent at a tick at which no packet arrived and none left the wire.
            let ends: std::collections::HashSet<Nanos> = left.iter().map(|(end, _)| *end).collect();
            let on_tick = sends.0.iter().filter(|(now, ..)| !times.contains(now) && !ends.contains(now));
            let on_tick: Vec<Nanos> = on_tick.map(|(now, ..)| *now).collect();
            assert!(on_tick.iter().all(|now| now.is_multiple_of(tick)), "ring {ring} {wire}: {on_tick:?}");
            assert!(on_tick.len() > 3, "ring {ring} {wire}: {}", on_tick.len());
        }
    }
}
