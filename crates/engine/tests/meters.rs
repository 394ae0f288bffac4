//! Meters against the text of RFC 2697 and RFC 2698, byte by byte, and in the engine: what is
//! dropped, marked and counted.

use crate::support;
use crate::support::tree;

use altq_engine::account::DropReason;
use altq_engine::classify::RuleSet;
use altq_engine::settings::{Settings, Value};
use altq_engine::shape::meter::{Colour, Meter, MeterSpec, Outcome, Path, tspec};
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Nanos, Rate, SECOND};
use altq_engine::{Change, Engine, Packet};
use support::{MS, Random};

fn words(kind: &'static str, numbers: &[(&'static str, u64)]) -> Settings {
    let mut settings = Settings::new().with("meter", Value::Choice(kind));
    for (word, n) in numbers {
        let value = if word.ends_with("ir") { Value::Rate(Rate::bit_s(*n)) } else { Value::Bytes(*n) };
        settings.set(word, value);
    }
    settings
}

fn meter(settings: &Settings) -> Meter {
    Meter::new(MeterSpec::read(settings).unwrap().unwrap(), 0)
}

/// AF codepoints by colour (RFC 2597 6): AF21, AF22, AF23.
const AF: [u8; 3] = [18, 20, 22];

/// RFC 2697, section 3, as it reads: "the token counts Tc and Te are updated CIR times per second
/// as follows" and what follows; RFC 2698, section 3, likewise. One byte at a time.
struct Text {
    tc: u64,
    te: u64,
    cbs: u64,
    ebs: u64,
    cir: u64,
    pir: u64,
    two_rates: bool,
    /// The next byte of each source: byte n comes at n / rate.
    next: [u64; 2],
}

impl Text {
    fn update(&mut self, now: Nanos) {
        let due =
            |n: u64, rate: u64| (u128::from(n) * 8 * u128::from(SECOND)).div_ceil(u128::from(rate)) <= u128::from(now);
        while due(self.next[0], self.cir) {
            self.next[0] += 1;
            if self.tc < self.cbs {
                // "If Tc is less than CBS, Tc is incremented by one, else"
                self.tc += 1;
            } else if !self.two_rates && self.te < self.ebs {
                // "if Te is less then EBS, Te is incremented by one, else neither Tc nor Te is
                // incremented."
                self.te += 1;
            }
        }
        while self.two_rates && due(self.next[1], self.pir) {
            self.next[1] += 1;
            // "the token count Tp is incremented by one PIR times per second up to PBS"
            self.te += u64::from(self.te < self.ebs);
        }
    }

    fn colour(&mut self, now: Nanos, b: u64, pre: Colour) -> Colour {
        self.update(now);
        if self.two_rates {
            // "If the packet has been precolored as red or if Tp(t)-B < 0, the packet is red, else"
            if pre == Colour::Red || self.te < b {
                return Colour::Red;
            }
            // "if the packet has been precolored as yellow or if Tc(t)-B < 0, the packet is yellow
            // and Tp is decremented by B, else"
            if pre == Colour::Yellow || self.tc < b {
                self.te -= b;
                return Colour::Yellow;
            }
            // "the packet is green and both Tp and Tc are decremented by B."
            self.te -= b;
            self.tc -= b;
            return Colour::Green;
        }
        // "If the packet has been precolored as green and Tc(t)-B >= 0, the packet is green and Tc
        // is decremented by B down to the minimum value of 0, else"
        if pre == Colour::Green && self.tc >= b {
            self.tc -= b;
            return Colour::Green;
        }
        // "If the packet has been precolored as green or yellow and if Te(t)-B >= 0, the packets is
        // yellow and Te is decremented"
        if (pre == Colour::Green || pre == Colour::Yellow) && self.te >= b {
            self.te -= b;
            return Colour::Yellow;
        }
        Colour::Red
    }
}

/// Colour-blind is colour-aware with every packet green, in both texts.
#[test]
fn every_packet_has_the_colour_of_the_rfcs_text() {
    let mut seen = [[0u32; 3]; 5];
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let cir = 8_001 + random.below(800_000);
        let pir = cir + random.below(2 * cir);
        let (cbs, ebs) = (1 + random.below(6000), 1 + random.below(9000));
        let kind = random.pick(&[0usize, 1, 2]);
        let aware = kind > 0 && random.chance(50);
        let mut settings = match kind {
            0 => words("bucket", &[("meter cir", cir), ("meter cbs", cbs)]),
            1 => words("srtcm", &[("meter cir", cir), ("meter cbs", cbs), ("meter ebs", ebs)]),
            _ => words("trtcm", &[("meter cir", cir), ("meter cbs", cbs), ("meter pir", pir), ("meter pbs", ebs)]),
        };
        if aware {
            settings.set("meter colour-aware", Value::Flag);
        }
        let mut meter = meter(&settings);
        // One token bucket is the single rate marker without an excess burst.
        let ebs = if kind == 0 { 0 } else { ebs };
        let mut text = Text { tc: cbs, te: ebs, cbs, ebs, cir, pir, two_rates: kind == 2, next: [1, 1] };
        let mut now = 0;
        for n in 0..400 {
            now += random.below(1 + 2 * 700 * 8 * SECOND / cir);
            let came = random.pick(&Colour::ALL);
            let mut packet = Packet { dscp: AF[came as usize], ..Packet::new(n, 1 + random.below(1500) as u32) };
            let before = *meter.counts();
            assert_eq!(meter.apply(now, &mut packet), Outcome::Pass);
            let colour = text.colour(now, u64::from(packet.len), if aware { came } else { Colour::Green });
            let after = meter.counts();
            for (at, (before, after)) in before.iter().zip(after).enumerate() {
                let this = u64::from(at == colour as usize);
                let counted = (after.0 - before.0, after.1 - before.1);
                assert_eq!(
                    counted,
                    (this, this * u64::from(packet.len)),
                    "seed {seed} packet {n} of kind {kind}: {colour:?}"
                );
            }
            seen[kind + 2 * usize::from(aware)][colour as usize] += 1;
        }
    }
    // Every kind met every colour that it has.
    assert!(
        seen.iter().enumerate().all(|(kind, seen)| seen[0] > 50 && seen[2] > 50 && (kind == 0 || seen[1] > 50)),
        "{seen:?}"
    );
}

/// RFC 2859 with docs/reference/altq.md 8.2: the average of whole bytes a second, and one random
/// number for both decisions.
#[test]
fn every_packet_has_the_colour_of_the_sliding_window() {
    let mut seen = [0_u32; 3];
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let cir = 8_001 + random.below(8_000_000);
        let pir = cir + random.below(2 * cir);
        // Short enough that a hundred packets fill it several times.
        let window = 1 + random.below(20);
        let settings =
            words("tswtcm", &[("meter cir", cir), ("meter pir", pir)]).with("meter window", Value::Time(window * MS));
        let mut meter = meter(&settings);
        meter.seed(seed);
        let mut drawn = altq_engine::random::SplitMix64::new(seed);
        let (mut now, mut last, mut average) = (0_u64, 0_u64, 0_u128);
        for n in 0..1000 {
            // From a tenth of the committed rate to ten times the rate.
            let usual = 700 * 8 * SECOND / cir;
            now += random.below(1 + usual * [20, 2, 1][n as usize / 100 % 3] / [1, 1, 5][n as usize / 100 % 3]);
            let mut packet = Packet::new(n, 1 + random.below(1500) as u32);
            let before = *meter.counts();
            assert_eq!(meter.apply(now, &mut packet), Outcome::Pass);
            // avg = (avg * win + len * f) / (win + dt), with a clock of f = 10^9 a second.
            let win = u128::from(window * MS);
            let bytes = u128::from(packet.len) * 1_000_000_000;
            average = (average * win + bytes) / (win + u128::from(now - last));
            last = now;
            let (committed, peak) = (u128::from(cir / 8), u128::from(pir / 8));
            let colour = if average <= committed {
                Colour::Green
            } else {
                let x = u128::from(drawn.bits()) % average;
                if average <= peak {
                    if x < average - committed { Colour::Yellow } else { Colour::Green }
                } else if x < average - peak {
                    Colour::Red
                } else if x < average - committed {
                    Colour::Yellow
                } else {
                    Colour::Green
                }
            };
            let mut expected = before;
            expected[colour as usize].0 += 1;
            expected[colour as usize].1 += u64::from(packet.len);
            assert_eq!(*meter.counts(), expected, "seed {seed} packet {n}");
            seen[colour as usize] += 1;
        }
    }
    assert!(seen.iter().all(|seen| *seen > 5000), "{seen:?}");
}

/// With twice the peak rate, half of the bytes are red, and as many are green as the committed rate
/// has: by chance, so within five standard deviations of packets of the same size.
#[test]
fn the_parts_of_the_sliding_window() {
    let settings = words("tswtcm", &[("meter cir", 2_000_000), ("meter pir", 4_000_000)])
        .with("meter window", Value::Time(500 * MS));
    let mut meter = meter(&settings);
    meter.seed(5);
    let n = 40_000_u32;
    // 1000 bytes a millisecond, after the average has come close.
    for at in 0..n + 10_000 {
        meter.apply(u64::from(at) * MS, &mut Packet::new(at, 1000));
        if at == 9999 {
            assert!(meter.counts()[0].0 > 2500);
        }
    }
    let [green, yellow, red] = meter.counts().map(|(packets, _)| packets as f64);
    let off = 5.0 * (f64::from(n) / 4.0).sqrt();
    // The first 10,000 begin with an average of 0: 500 packets or so are green in their place.
    assert!((red - 25_000.0).abs() < off + 500.0, "{red}");
    assert!((yellow - 12_500.0).abs() < off + 500.0 && (green - 12_500.0).abs() < off + 500.0, "{yellow} {green}");
}

/// The meter of a colour's packets is one that sees only these, with that colour.
#[test]
fn a_meter_inside_another_one() {
    let mut seen = [[0_u32; 3]; 3];
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let at = random.below(3) as usize;
        let cir = 80_000 + random.below(800_000);
        let outer =
            words("trtcm", &[("meter cir", cir), ("meter cbs", 4000), ("meter pir", 2 * cir), ("meter pbs", 5000)]);
        let inner = match random.below(3) {
            0 => words("bucket", &[("meter cir", cir / 3), ("meter cbs", 3000)]),
            1 => words("srtcm", &[("meter cir", cir / 4), ("meter cbs", 2000), ("meter ebs", 2500)]),
            _ => words(
                "trtcm",
                &[("meter cir", cir / 5), ("meter cbs", 2000), ("meter pir", cir / 3), ("meter pbs", 3000)],
            ),
        };
        let aware = inner.choice("meter") != Some("bucket") && random.chance(50);
        let inner = if aware { inner.with("meter colour-aware", Value::Flag) } else { inner };
        let path = Path::ROOT.below(at);
        let colours = ["meter green", "meter yellow", "meter red"];
        let mut both = outer.clone().with(colours[at], Value::Choice("meter"));
        for (word, value) in inner.iter() {
            both.set(path.setting(word.strip_prefix("meter ").unwrap_or("kind")).unwrap(), value);
        }
        let (mut both, mut outer, mut inner) = (meter(&both), meter(&outer), meter(&inner));
        let mut now = 0;
        for n in 0..500 {
            now += random.below(1 + 700 * 8 * SECOND / cir);
            let len = 1 + random.below(1500) as u32;
            both.apply(now, &mut Packet::new(n, len));
            let before = outer.counts()[at].0;
            outer.apply(now, &mut Packet::new(n, len));
            if outer.counts()[at].0 > before {
                // A packet that comes with the colour that the outer meter found.
                inner.apply(now, &mut Packet { dscp: AF[at], ..Packet::new(n, len) });
            }
        }
        let mut counted = Vec::new();
        both.report_counters(&mut |name, count| counted.push((name, count)));
        let of = |name: &str| counted.iter().find(|(found, _)| *found == name).map(|(_, count)| *count);
        for (colour, name) in ["green", "yellow", "red"].into_iter().enumerate() {
            let below = format!("{}_{name}", ["green", "yellow", "red"][at]);
            assert_eq!(of(name), Some(outer.counts()[colour].0), "seed {seed}");
            assert_eq!(of(&below), Some(inner.counts()[colour].0), "seed {seed}");
            assert_eq!(of(&format!("{below}_bytes")), Some(inner.counts()[colour].1), "seed {seed}");
            seen[at][colour] += inner.counts()[colour].0 as u32;
        }
    }
    assert!(seen.iter().flatten().all(|seen| *seen > 20), "{seen:?}");
}

/// `all` marks or drops whatever comes; a chain of more than seven meters is refused.
#[test]
fn all_packets_and_chains() {
    let all = |action| Settings::new().with("meter", Value::Choice("all")).with("meter green", action);
    let mut packet = Packet { dscp: 7, ..Packet::new(1, 1500) };
    assert_eq!(meter(&all(Value::Int(46))).apply(0, &mut packet), Outcome::Pass);
    assert_eq!(packet.dscp, 46);
    assert_eq!(meter(&all(Value::Choice("drop"))).apply(0, &mut packet), Outcome::Drop);
    let error = MeterSpec::read(&all(Value::Int(46)).with("meter cir", Value::Rate(Rate::bit_s(8)))).unwrap_err();
    assert!(error.message.contains("no `cir`"), "{error}");
    let mut deep = all(Value::Choice("meter"));
    let mut path = Path::ROOT;
    for inner in 1..7 {
        path = path.below(0);
        deep.set(path.setting("kind").unwrap(), Value::Choice("all"));
        deep.set(path.setting("green").unwrap(), Value::Choice(if inner < 6 { "meter" } else { "drop" }));
    }
    let mut chain = meter(&deep);
    assert_eq!(chain.apply(0, &mut packet), Outcome::Drop);
    let (last, mut counted) = (["green"; 7].join("_"), 0);
    chain.report_counters(&mut |name, count| counted += if name == last { count } else { 0 });
    assert_eq!(counted, 1);
    deep.set(path.setting("green").unwrap(), Value::Choice("meter"));
    assert!(MeterSpec::read(&deep).unwrap_err().message.contains("at most 7 meters"));
}

#[test]
fn what_cannot_be_a_meter() {
    for (settings, says) in [
        (words("srtcm", &[("meter cir", 8000), ("meter cbs", 1500)]), "`ebs`"),
        (words("bucket", &[("meter cbs", 1500)]), "`cir`"),
        (words("bucket", &[("meter cir", 8000), ("meter cbs", 1500), ("meter ebs", 1)]), "no `ebs`"),
        (
            words("trtcm", &[("meter cir", 8000), ("meter cbs", 1), ("meter pir", 7000), ("meter pbs", 1)]),
            "below the committed",
        ),
        (words("bucket", &[("meter cir", 0), ("meter cbs", 1500)]), "lets nothing pass"),
    ] {
        let error = MeterSpec::read(&settings).unwrap_err();
        assert!(error.message.contains(says) && error.word == Some("meter"), "{error}");
    }
    assert_eq!(MeterSpec::read(&Settings::new()).unwrap(), None);
}

/// 8 Mbit/s, a byte a microsecond: 3000 bytes committed, 3000 in excess.
fn srtcm() -> Settings {
    words("srtcm", &[("meter cir", 8_000_000), ("meter cbs", 3000), ("meter ebs", 3000)])
        .with("meter green", Value::Int(10))
        .with("meter yellow", Value::Int(12))
        .with("meter red", Value::Choice("drop"))
}

fn arrive(engine: &mut Engine, now: Nanos, class: ClassId, n: u32) -> Vec<(u32, DropReason)> {
    (0..n).for_each(|id| engine.enqueue(now, class, Packet { dscp: 46, ..Packet::new(id, 1000) }));
    engine.drops().map(|drop| (drop.packet.handle, drop.reason)).collect()
}

fn left(engine: &mut Engine, now: Nanos) -> Vec<u8> {
    std::iter::from_fn(|| engine.dequeue(now)).map(|departure| departure.packet.dscp).collect()
}

#[test]
fn a_class_marks_and_drops_before_its_queue() {
    let mut spec = tree::link(Rate::mbit_s(10), "fifo");
    spec.classes.push(tree::class(0, srtcm(), 50));
    spec.classes.push(tree::class(0, Settings::new(), 50));
    let mut engine = Engine::new(&spec).unwrap();
    let policed: Vec<(u32, DropReason)> = [6, 7].map(|id| (id, DropReason::Policed)).to_vec();
    assert_eq!(arrive(&mut engine, 0, 1, 8), policed);
    // A class beside it has no meter, and counts no colours.
    assert_eq!(arrive(&mut engine, 0, 2, 2), []);
    assert_eq!(left(&mut engine, 0), [10, 10, 10, 12, 12, 12, 46, 46]);
    assert_eq!(engine.drop_reasons(1).collect::<Vec<_>>(), [(DropReason::Policed, 2, 2000)]);
    let counters = engine.counters(1);
    assert_eq!((counters.received_packets(), counters.sent_packets, counters.dropped_packets), (8, 6, 2));
    let expected =
        [("green", 3), ("green_bytes", 3000), ("yellow", 3), ("yellow_bytes", 3000), ("red", 2), ("red_bytes", 2000)];
    assert_eq!(engine.scheduler_counters(1), expected);
    // 2 ms bring 2000 bytes, all for the committed bucket.
    assert_eq!(arrive(&mut engine, 2 * MS, 1, 3).len(), 1);
    assert_eq!(left(&mut engine, 2 * MS), [10, 10]);
    // The same words again change nothing of what is in the buckets; others do.
    let change = |settings| Change::SetClass { class: 1, parent: 0, settings };
    engine.apply(2 * MS, &change(srtcm())).unwrap();
    assert_eq!(arrive(&mut engine, 2 * MS, 1, 1).len(), 1);
    engine.apply(2 * MS, &change(srtcm().with("meter cbs", Value::Bytes(1000)))).unwrap();
    assert_eq!(arrive(&mut engine, 2 * MS, 1, 5).len(), 1);
    engine.apply(2 * MS, &change(Settings::new())).unwrap();
    assert_eq!(arrive(&mut engine, 2 * MS, 1, 9).len(), 0);
    assert_eq!(engine.scheduler_counters(1), []);
}

/// A packet goes through the meter of its class, then that of the class above, then the link's. A
/// packet that one meter drops does not reach the next.
#[test]
fn meters_of_a_class_and_of_all_above_it() {
    let mut spec = tree::link(Rate::mbit_s(10), "priq");
    let bucket = |cbs, red| words("bucket", &[("meter cir", 8000), ("meter cbs", cbs)]).with("meter red", red);
    spec.classes[ROOT as usize].settings = bucket(4000, Value::Int(8));
    spec.classes.push(tree::class(0, bucket(6000, Value::Choice("drop")), 50));
    spec.classes[1].scheduler =
        Some(altq_engine::spec::SchedulerSpec { name: tree::name("drr"), settings: Settings::new() });
    spec.classes.push(tree::class(1, bucket(1000, Value::Int(14)), 50));
    let mut engine = Engine::new(&spec).unwrap();
    assert_eq!(arrive(&mut engine, 0, 2, 8).len(), 2);
    // The class passes one and marks the others; the link marks what comes beyond its four.
    assert_eq!(left(&mut engine, 0), [46, 14, 14, 14, 8, 8]);
    let red = |engine: &Engine, class| {
        engine.scheduler_counters(class).iter().find(|(name, _)| *name == "red").map(|(_, n)| *n)
    };
    assert_eq!((red(&engine, 2), red(&engine, 1), red(&engine, 0)), (Some(7), Some(2), Some(2)));
}

/// RFC 2211 7: rT + b bytes conform in any time T, a packet smaller than the minimum policed unit
/// counts as one of that size, one larger than the largest does not conform.
#[test]
fn what_does_not_conform_to_a_reservation_goes_to_the_default_class() {
    let mut spec = tree::link(Rate::mbit_s(10), "fifo");
    let mut words = Settings::new();
    // A byte a microsecond, 2000 at once.
    tspec(&mut words, Rate::mbit_s(8), 2000, 500, 1000);
    spec.classes.push(tree::class(0, words, 50));
    spec.classes.push(tree::class(0, Settings::new(), 50));
    spec.default = Some(2);
    let mut engine = Engine::new(&spec).unwrap();
    let queued = |engine: &Engine| [1, 2].map(|class| engine.counters(class).queued_packets);
    // Four of 100 bytes count as 2000.
    (0..5).for_each(|id| engine.enqueue(0, 1, Packet::new(id, 100)));
    assert_eq!(queued(&engine), [4, 1]);
    // 2 ms bring 2000 bytes, but not for a packet that is too large. Of a super-packet the segments
    // count: two of 1000.
    engine.enqueue(2 * MS, 1, Packet::new(5, 1001));
    assert_eq!(queued(&engine), [4, 2]);
    engine.enqueue(2 * MS, 1, Packet { segments: 2, ..Packet::new(6, 2000) });
    assert_eq!(queued(&engine), [5, 2]);
    engine.enqueue(2 * MS, 1, Packet::new(7, 100));
    assert_eq!(queued(&engine), [5, 3]);
    // Without a default class they stay.
    engine.apply(2 * MS, &Change::SetRules { rules: RuleSet::default(), default: None }).unwrap();
    engine.enqueue(2 * MS, 1, Packet::new(8, 100));
    assert_eq!((queued(&engine), engine.has_drops()), ([6, 3], false));
    assert_eq!(engine.counters(1).received_packets(), 6);
}
