//! Queues as qdiscs.

use altq_engine::link::Framing;
use altq_engine::settings::{Limit, ONE, Value};
use altq_engine::spec::{ClassId, QueueSpec, ROOT, Regulator};
use altq_engine::units::{Rate, SECOND};

use super::Builder;
use super::given::Given;
use crate::handle::Handle;
use crate::tree::{Layer, Qdisc, QdiscWords, RedWords, SizeTable};

/// The most flows of sfq (`SFQ_MAX_FLOWS` in net/sched/sch_sfq.c: 2^16 - 127 - 1).
const SFQ_FLOWS: u64 = 65_408;

/// The words for what cake isolates, and the kernel's numbers for them (linux/pkt_sched.h,
/// `CAKE_FLOW_…`). The first is the default.
const ISOLATION: [(&str, u32); 8] = [
    ("triple-isolate", 7),
    ("dual-srchost", 5),
    ("dual-dsthost", 6),
    ("flows", 4),
    ("hosts", 3),
    ("srchost", 1),
    ("dsthost", 2),
    ("flowblind", 0),
];

impl Builder<'_> {
    /// The queue of a class, given by the policy or else by its scheduler.
    pub(super) fn queue_of(&self, class: ClassId) -> Option<QueueSpec> {
        self.link.queue(class)
    }

    /// Adds the qdisc of a class's queue.
    pub(super) fn queue(&mut self, class: ClassId, parent: Handle) {
        let Some(spec) = self.queue_of(class) else { return };
        let Some(words) = self.queue_words(class, &spec) else { return };
        self.push_queue(class, parent, words);
    }

    fn push_queue(&mut self, class: ClassId, parent: Handle, words: QdiscWords) {
        let handle = self.handle();
        self.tree.qdiscs.push(Qdisc {
            handle,
            parent,
            words,
            classes: Vec::new(),
            filters: Vec::new(),
            holds: Some(class),
        });
    }

    /// True if the link is one cake that shapes by itself: a fifo whose only class has it.
    pub(super) fn is_whole_cake(&self) -> bool {
        let spec = &self.link.spec;
        spec.classes.len() == 2
            && spec.scheduler.name == "fifo"
            && spec.default == Some(1)
            && spec.classes[1].scheduler.is_none()
            && spec.classes[1].settings.iter().next().is_none()
            && spec.regulator != Regulator::None
            && self.queue_of(1).is_some_and(|queue| queue.name == "cake")
    }

    /// If the link's only class has a cake, adds a cake that shapes by itself, which charges each
    /// segment of a super-packet. False if the link is another one.
    pub(super) fn whole_cake(&mut self, parent: Handle) -> bool {
        let spec = &self.link.spec;
        let Some(queue) = self.queue_of(1).filter(|_| self.is_whole_cake()) else { return false };
        let rate = self.bytes_s(spec.rate);
        let Some(QdiscWords::Cake { isolation, rtt, memory, .. }) = self.queue_words(1, &queue) else { return true };
        let overhead = spec.overhead;
        let layer = match overhead.framing {
            Framing::Plain => Layer::Ethernet,
            Framing::Atm => Layer::Atm,
            Framing::Ptm => Layer::Ptm,
        };
        // cake counts from layer 3 on.
        let sizes = SizeTable { overhead: overhead.bytes, mpu: overhead.mpu, layer };
        self.push_queue(1, parent, QdiscWords::Cake { rate, isolation, rtt, memory, sizes: Some(sizes) });
        true
    }

    /// The place of a word of a class's queue in the policy, or that of the queue, or that of the
    /// class.
    fn queue_place(&self, class: ClassId, word: &str) -> altq_config::Span {
        let Some(place) = self.link.classes.get(class as usize) else { return self.link.span };
        let written = place.queue_words.iter().find(|(name, _)| *name == word);
        written.map_or(place.place("queue"), |(_, span)| *span)
    }

    fn queue_words(&mut self, class: ClassId, spec: &QueueSpec) -> Option<QdiscWords> {
        let mut given = Given::new(&spec.settings);
        let words = match (spec.name, spec.limit) {
            ("drop_tail", Limit::Packets(limit)) => Some(QdiscWords::Pfifo { limit }),
            ("drop_tail", Limit::Bytes(limit)) => Some(QdiscWords::Bfifo { limit }),
            ("drop_head", Limit::Packets(limit)) => Some(QdiscWords::HeadDrop { limit }),
            ("red", Limit::Bytes(limit)) => self.red(class, limit, &mut given),
            ("cake", Limit::Bytes(memory)) => self.cake(class, memory, &mut given),
            ("codel", Limit::Packets(limit)) => Some(QdiscWords::Codel {
                limit,
                target: self.micros(given.time("target").unwrap_or(5_000_000)),
                interval: self.micros(given.time("interval").unwrap_or(100_000_000)),
                ecn: given.flag("ecn"),
            }),
            ("fq_codel", Limit::Packets(limit)) => self.fq_codel(class, limit, &mut given),
            ("pie", Limit::Packets(limit)) => self.pie(class, limit, &mut given),
            ("sfq", Limit::Packets(limit)) => self.sfq(class, limit, &mut given),
            (name @ ("drop_head" | "codel" | "fq_codel" | "pie" | "sfq"), Limit::Bytes(bytes)) => {
                let packets = (bytes / self.link.spec.mtu).max(1);
                let message = format!("the kernel's {name} counts its limit in packets, not in bytes");
                let help = format!("write `limit {packets}packets`; {}", self.way());
                self.refuse(self.queue_place(class, "limit"), message, Some(help));
                None
            }
            (name @ ("red" | "cake"), Limit::Packets(packets)) => {
                let bytes = u64::from(packets) * u64::from(self.link.spec.mtu);
                let message = format!("the kernel's {name} counts its limit in bytes, not in packets");
                let help = format!("write `limit {bytes}bytes`, and min and max in bytes too; {}", self.way());
                self.refuse(self.queue_place(class, "limit"), message, Some(help));
                None
            }
            (name, _) => {
                let message = format!("the kernel has no queue `{name}`");
                let help = format!(
                    "the kernel has drop_tail, drop_head, codel, fq_codel, pie, red, sfq and cake; {}",
                    self.way()
                );
                self.refuse(self.queue_place(class, ""), message, Some(help));
                None
            }
        }?;
        let name = spec.name;
        for word in given.rest() {
            let message = format!("the kernel's {name} has no `{word}`");
            let help = format!("leave it out; {}", self.way());
            self.refuse(self.queue_place(class, word), message, Some(help));
        }
        Some(words)
    }

    /// The `quantum`; by default the length of a full packet.
    fn quantum(&mut self, given: &mut Given<'_>) -> u32 {
        let full = self.full_packet();
        given.bytes("quantum").map_or(full, |quantum| u32::try_from(quantum).unwrap_or(u32::MAX))
    }

    /// Refuses a value that the kernel cannot change, unless the policy has the same (`same`).
    fn fixed(&mut self, class: ClassId, name: &str, word: &'static str, same: bool, has: &str) {
        if !same {
            let message = format!("the kernel's {name} always has {has}");
            let help = format!("leave `{word}` out; {}", self.way());
            self.refuse(self.queue_place(class, word), message, Some(help));
        }
    }

    fn fq_codel(&mut self, class: ClassId, limit: u32, given: &mut Given<'_>) -> Option<QdiscWords> {
        let flows = given.int("flows").unwrap_or(1024);
        self.fixed(class, "fq_codel", "flows", flows <= 65_536, "at most 65536 queues");
        let quantum = self.quantum(given);
        self.fixed(class, "fq_codel", "quantum", quantum >= 256, "a quantum of at least 256 bytes");
        Some(QdiscWords::FqCodel {
            limit,
            flows: flows as u32,
            quantum,
            target: self.micros(given.time("target").unwrap_or(5_000_000)),
            interval: self.micros(given.time("interval").unwrap_or(100_000_000)),
            drop_batch: given.int("drop_batch").unwrap_or(64) as u32,
            ecn: given.flag("ecn"),
        })
    }

    fn pie(&mut self, class: ClassId, limit: u32, given: &mut Given<'_>) -> Option<QdiscWords> {
        let burst = given.time("max_burst").unwrap_or(150_000_000);
        self.fixed(class, "pie", "max_burst", burst == 150_000_000, "a max_burst of 150ms");
        let most = given.any("max_ecnth");
        let tenth = most.is_none_or(|most| most == Value::Fraction(ONE / 10));
        self.fixed(class, "pie", "max_ecnth", tenth, "a max_ecnth of 0.1");
        if !given.flag("derand") {
            self.note("the kernel's pie always spaces its drops evenly, as `derand` says".to_owned());
        }
        self.note("the kernel's pie counts `tupdate` in ticks of its timer, 1 to 10 ms each, rounded up".to_owned());
        Some(QdiscWords::Pie {
            limit,
            target: self.micros(given.time("target").unwrap_or(15_000_000)),
            tupdate: self.micros(given.time("tupdate").unwrap_or(15_000_000)),
            ecn: given.flag("ecn"),
        })
    }

    fn sfq(&mut self, class: ClassId, limit: u32, given: &mut Given<'_>) -> Option<QdiscWords> {
        let by_flow = given.any("hash").is_none_or(|hash| hash == Value::Choice("flow"));
        self.fixed(class, "sfq", "hash", by_flow, "a queue for each flow, not for each host");
        let back = given.any("new-flow").is_none_or(|place| place == Value::Choice("back"));
        self.fixed(class, "sfq", "new-flow", back, "new flows after the others");
        let perturb = given.time("perturb").unwrap_or(0);
        self.fixed(
            class,
            "sfq",
            "perturb",
            perturb.is_multiple_of(SECOND),
            "whole seconds between changes of its hash",
        );
        let divisor = given.int("divisor").unwrap_or(1024);
        let power = divisor.is_power_of_two() && divisor <= 65_536;
        self.fixed(class, "sfq", "divisor", power, "a divisor that is a power of two up to 65536");
        let flows = given.int("flows").unwrap_or(127);
        let fits = flows <= SFQ_FLOWS.min(divisor);
        self.fixed(class, "sfq", "flows", fits, "at most 65408 flows, and no more than its divisor");
        let depth = given.int("depth").unwrap_or(127).clamp(1, 127);
        let most = depth.saturating_mul(flows);
        let held = u64::from(limit) <= most && limit > 1;
        self.fixed(class, "sfq", "limit", held, "a limit of at least 2 packets, and at most depth times flows");
        Some(QdiscWords::Sfq {
            limit,
            depth: depth as u32,
            // The kernel allows no more flows than packets.
            flows: flows.min(u64::from(limit)) as u32,
            divisor: divisor as u32,
            quantum: self.quantum(given),
            perturb: u32::try_from(perturb / SECOND).unwrap_or(u32::MAX),
            headdrop: given.flag("headdrop"),
        })
    }

    fn cake(&mut self, class: ClassId, memory: u32, given: &mut Given<'_>) -> Option<QdiscWords> {
        let mut isolation = ISOLATION[0];
        for one in ISOLATION {
            if given.flag(one.0) {
                isolation = one;
            }
        }
        let queues = given.int("queues").unwrap_or(1024);
        self.fixed(class, "cake", "queues", queues == 1024, "1024 queues");
        self.note("the kernel's cake counts its limit in bytes of buffers, which are longer than packets".to_owned());
        Some(QdiscWords::Cake {
            rate: 0,
            isolation,
            rtt: self.micros(given.time("rtt").unwrap_or(100_000_000)),
            memory,
            sizes: None,
        })
    }

    fn red(&mut self, class: ClassId, limit: u32, given: &mut Given<'_>) -> Option<QdiscWords> {
        let bytes = |value: Option<Value>| match value {
            Some(Value::Limit(Limit::Bytes(bytes))) => Some(bytes),
            _ => None,
        };
        let min = bytes(given.any("min")).unwrap_or((limit / 10).max(1));
        let max = bytes(given.any("max")).unwrap_or(min.saturating_mul(3));
        let paper = given.any("variant").is_none_or(|variant| variant == Value::Choice("paper"));
        self.fixed(class, "red", "variant", paper, "the published algorithm");
        let spec = &self.link.spec;
        let rate = self.link.guarantee(class).filter(|rate| !rate.is_zero() && class != ROOT);
        let rate = rate.unwrap_or(if class == ROOT { spec.rate } else { spec.measure(class) });
        let packet = given.bytes("packetsize").unwrap_or(1000) as u32;
        let weight = match given.int("weight") {
            Some(weight) => weight.max(1).ilog2(),
            // The weight is larger on slow links (docs/reference/altq.md 7.1).
            None => match SECOND / rate.time_for(u64::from(spec.overhead.charge(packet))).max(1) {
                0..50 => 6,
                50..300 => 7,
                _ => 9,
            },
        };
        let probability = match given.any("probability") {
            Some(Value::Fraction(part)) => part,
            _ => ONE / 10,
        };
        // The kernel keeps the average times 2^weight in 32 bits (`red_check_params` in net/red.h).
        if u32::BITS - max.leading_zeros() + weight >= 32 {
            let message =
                format!("the kernel's red has no room for a max of {max} bytes with a weight of 1/{}", 1u64 << weight);
            self.refuse(self.queue_place(class, "max"), message, None);
            return None;
        }
        let Some(burst) = burst(min, packet, weight) else {
            let message = format!(
                "tc has no burst for a weight of 1/{} with min {min} bytes and packets of {packet} bytes",
                1u64 << weight
            );
            self.refuse(
                self.queue_place(class, "weight"),
                message,
                Some("write another weight, or a larger min".to_owned()),
            );
            return None;
        };
        Some(QdiscWords::Red(RedWords {
            limit,
            min,
            max,
            weight: weight as u8,
            burst,
            packet,
            probability,
            rate: self.bytes_s(rate.max(Rate::bit_s(8))),
            ecn: given.flag("ecn"),
            harddrop: given.flag("harddrop"),
        }))
    }
}

/// A burst for which tc computes a weight of 1/2^`weight`: the least W for which burst + 1 -
/// min/packet <= (1 - (1 - 2^-W)^burst) 2^W (Floyd and Jacobson 1993, section 6, as in tc). W grows
/// with the burst, so the burst is found by bisection.
fn burst(min: u32, packet: u32, weight: u32) -> Option<u32> {
    let of = |burst: u32| {
        let least = f64::from(burst) + 1.0 - f64::from(min) / f64::from(packet.max(1));
        let fits = |log: &u32| {
            let w = 1.0 / f64::from(1u32 << log);
            least <= (1.0 - (1.0 - w).powi(burst as i32)) / w
        };
        if least < 1.0 { None } else { (1..32).find(fits) }
    };
    // The shortest burst that tc accepts.
    let first = min.div_ceil(packet.max(1)).max(1);
    let (mut low, mut high) = (first, first.saturating_add(1 << 24));
    while low < high {
        let middle = low + (high - low) / 2;
        if of(middle).is_some_and(|log| log < weight) { low = middle + 1 } else { high = middle }
    }
    (of(low) == Some(weight)).then_some(low)
}

#[cfg(test)]
mod tests {
    use super::burst;

    /// Floyd and Jacobson 1993, section 6: min 5 packets and a burst of 50 packets give a weight of
    /// 1/512. The shortest burst with that weight is no longer.
    #[test]
    fn a_burst_for_a_weight() {
        let found = burst(5000, 1000, 9).unwrap();
        assert!((6..=50).contains(&found), "{found}");
        // With a burst of one packet and a min of one packet, 1 <= 1 holds for the least W.
        assert_eq!(burst(1000, 1000, 1), Some(1));
    }
}
