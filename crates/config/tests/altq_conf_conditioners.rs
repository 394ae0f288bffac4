//! altq.conf's conditioners: random ones against what their text says, and those of an edge router
//! (docs/reference/altq.md 8.2). Buckets are those of RFC 2698's text, filled byte by byte; KAME
//! filled them later, so that up to twice their size could pass.

use altq_config::{Device, Language, Link, Policy, parse_str};
use altq_engine::random::{GOLDEN_GAMMA, SplitMix64, mix};
use altq_engine::{Engine, Packet};

fn parse(text: &str) -> Policy {
    parse_str(text, "/etc/altq.conf", Language::Altq).unwrap_or_else(|failed| panic!("{failed}\n{text}"))
}

struct Random(SplitMix64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0.bits() % n
    }
}

/// RFC 2698, section 2: tokens come one at a time, a byte's time apart, up to the bucket's size.
struct Bucket {
    rate: u64,
    size: u64,
    tokens: u64,
    /// The next token: token n comes n byte times after time 0.
    next: u64,
}

impl Bucket {
    fn random(random: &mut Random, least: u64) -> Bucket {
        let size = 1500 + random.below(6000);
        Bucket { rate: least + random.below(least), size, tokens: size, next: 1 }
    }

    fn fill(&mut self, now: u64) {
        while u128::from(self.next) * 8_000_000_000 <= u128::from(now) * u128::from(self.rate) {
            self.next += 1;
            self.tokens += u64::from(self.tokens < self.size);
        }
    }
}

/// RFC 2859 with the numbers of docs/reference/altq.md 8.2: whole bytes a second, of a clock of 1
/// GHz.
struct Window {
    committed: u64,
    peak: u64,
    milliseconds: u64,
    average: u128,
    last: u64,
    random: SplitMix64,
}

enum Kind {
    Bucket(Bucket),
    TwoRate { committed: Bucket, peak: Bucket, aware: bool },
    Window(Window),
}

/// What stands between `<` and `>`.
enum Action {
    Pass,
    Drop,
    /// A DSCP.
    Mark(u8),
    /// A meter, and the actions in the order in which they are written.
    Meter(Kind, Vec<Action>),
}

impl Action {
    /// `seed` is that of the meter here. `left` more actions may be written.
    fn random(random: &mut Random, seed: u64, depth: u32, left: &mut u64) -> Action {
        let kind = random.below(if depth < 3 && *left >= 3 { 7 } else { 4 });
        if kind < 4 {
            return match kind {
                0 => Action::Pass,
                1 => Action::Drop,
                _ => Action::Mark(random.below(64) as u8),
            };
        }
        *left -= if kind == 4 { 2 } else { 3 };
        // A bucket's actions are those for green and for red packets.
        let colours: &[u64] = if kind == 4 { &[0, 2] } else { &[0, 1, 2] };
        let mut next = |random: &mut Random| -> Vec<Action> {
            colours.iter().map(|at| Action::random(random, mix(seed.wrapping_add(at + 1)), depth + 1, left)).collect()
        };
        let rate = 50_000 + random.below(700_000);
        match kind {
            4 => Action::Meter(Kind::Bucket(Bucket::random(random, rate)), next(random)),
            5 => {
                let committed = Bucket::random(random, rate);
                let peak = Bucket::random(random, committed.rate);
                let mut next = next(random);
                let aware = random.below(2) == 0;
                if aware {
                    let class = 1 + random.below(4) as u8;
                    next[1] = Action::Mark(8 * class + 4);
                    next[2] = Action::Mark(8 * class + 6);
                }
                Action::Meter(Kind::TwoRate { committed, peak, aware }, next)
            }
            _ => {
                let committed = 8 * (rate / 8);
                let window = Window {
                    committed,
                    peak: committed + 8 * random.below(committed / 8),
                    milliseconds: 1 + random.below(300),
                    average: 0,
                    last: 0,
                    random: SplitMix64::new(seed),
                };
                Action::Meter(Kind::Window(window), next(random))
            }
        }
    }

    fn text(&self) -> String {
        let (words, next, end) = match self {
            Action::Pass => return "<pass>".to_owned(),
            Action::Drop => return "<drop>".to_owned(),
            Action::Mark(dscp) => return format!("<mark {:#x}>", dscp << 2),
            Action::Meter(Kind::Bucket(bucket), next) => (format!("tbmeter {} {}", bucket.rate, bucket.size), next, ""),
            Action::Meter(Kind::TwoRate { committed: c, peak: p, aware }, next) => {
                let end = if *aware { " coloraware" } else { " colorblind" };
                (format!("trtcm {} {} {} {}", c.rate, c.size, p.rate, p.size), next, end)
            }
            Action::Meter(Kind::Window(window), next) => {
                (format!("tswtcm {} {} {}", window.committed, window.peak, window.milliseconds), next, "")
            }
        };
        let next: Vec<String> = next.iter().map(Action::text).collect();
        format!("<{words} {}{end}>", next.join(" "))
    }

    /// A packet of `len` bytes that comes with a colour: 0 is green, 2 is red. False: it is
    /// dropped.
    fn apply(&mut self, now: u64, len: u64, came: usize, dscp: &mut u8) -> bool {
        let (colour, next) = match self {
            Action::Pass => return true,
            Action::Drop => return false,
            Action::Mark(mark) => {
                *dscp = *mark;
                return true;
            }
            Action::Meter(Kind::Bucket(bucket), next) => {
                bucket.fill(now);
                let out = bucket.tokens < len;
                if !out {
                    bucket.tokens -= len;
                }
                return next[usize::from(out)].apply(now, len, came, dscp);
            }
            Action::Meter(Kind::TwoRate { committed, peak, aware }, next) => {
                committed.fill(now);
                peak.fill(now);
                let came = if *aware { came } else { 0 };
                // RFC 2698, section 3.
                let colour = if came == 2 || peak.tokens < len {
                    2
                } else if came == 1 || committed.tokens < len {
                    peak.tokens -= len;
                    1
                } else {
                    peak.tokens -= len;
                    committed.tokens -= len;
                    0
                };
                (colour, next)
            }
            Action::Meter(Kind::Window(window), next) => {
                let long = u128::from(window.milliseconds) * 1_000_000;
                let bytes = window.average * long + u128::from(len) * 1_000_000_000;
                window.average = bytes / (long + u128::from(now - window.last));
                window.last = now;
                let (average, cir, pir) =
                    (window.average, u128::from(window.committed / 8), u128::from(window.peak / 8));
                let colour = if average <= cir {
                    0
                } else {
                    let x = u128::from(window.random.bits()) % average;
                    match (x < average.saturating_sub(pir), x < average - cir) {
                        (true, _) => 2,
                        (false, true) => 1,
                        (false, false) => 0,
                    }
                };
                (colour, next)
            }
        };
        next[colour].apply(now, len, colour, dscp)
    }
}

/// The drop precedence of an AF codepoint (RFC 2597 6).
fn precedence(dscp: u8) -> usize {
    match dscp {
        12 | 20 | 28 | 36 => 1,
        14 | 22 | 30 | 38 => 2,
        _ => 0,
    }
}

/// What becomes of a packet at a class: the DSCP with which it leaves, or `None`.
fn leaves(engine: &mut Engine, class: u32, now: u64, packet: Packet) -> Option<u8> {
    engine.enqueue(now, class, packet);
    let dropped = engine.drops().count();
    let left = engine.dequeue(now).map(|departure| departure.packet.dscp);
    assert_eq!(dropped + usize::from(left.is_some()), 1);
    left
}

#[test]
fn packet_by_packet() {
    let (mut dropped, mut marked, mut passed, mut meters) = (0, 0, 0, 0);
    for seed in 0..60 {
        let mut random = Random(SplitMix64::new(seed));
        // The first class below the root has the number 1.
        let own = mix(mix(seed ^ 2_u64.wrapping_mul(GOLDEN_GAMMA)));
        let mut action = loop {
            let action = Action::random(&mut random, own, 0, &mut 15);
            if matches!(action, Action::Meter(..)) {
                break action;
            }
        };
        let text = action.text();
        meters += text.matches("tbmeter").count() + text.matches("tcm").count();
        let policy = parse(&format!("interface em0\nconditioner em0 x {text}\nfilter em0 x 0 0 0 0 17\n"));
        let mut engine = Engine::new(&policy.links[0].spec).unwrap();
        engine.set_seed(seed);
        let class = policy.links[0].class("x").unwrap();
        assert_eq!(class, 1);
        let mut now = 0;
        for handle in 0..400 {
            now += random.below([2_000_000, 10_000_000][handle as usize / 50 % 2]);
            let (len, dscp) = (1 + random.below(1500), random.below(64) as u8);
            let ours = leaves(&mut engine, class, now, Packet { dscp, ..Packet::new(handle, len as u32) });
            let mut theirs = dscp;
            let passes = action.apply(now, len, precedence(dscp), &mut theirs);
            assert_eq!(ours, passes.then_some(theirs), "seed {seed}, packet {handle} of `{text}`");
            dropped += u32::from(!passes);
            marked += u32::from(passes && theirs != dscp);
            passed += u32::from(passes && theirs == dscp);
        }
    }
    assert!(dropped > 2000 && marked > 2000 && passed > 2000 && meters > 120, "{dropped} {marked} {passed} {meters}");
}

/// A colour-blind trTCM does what two token buckets do, the one for the committed rate behind the
/// one for the peak rate.
#[test]
fn two_buckets_are_a_two_rate_marker() {
    let policy = parse(
        "interface em0\n\
         conditioner em0 one <trtcm 3M 32K 10M 64K <mark 0x28><mark 0x30><mark 0x38> colorblind>\n\
         conditioner em0 two <tbmeter 10M 64K <tbmeter 3M 32K <mark 0x28><mark 0x30>><mark 0x38>>\n\
         conditioner em0 clear <mark 0x0>\nconditioner em0 ef <tbmeter 6M 64K <pass><drop>>\n\
         filter em0 one 0 0 192.0.2.1 0 0\nfilter em0 two 0 0 192.0.2.2 0 0\n\
         filter em0 clear 0 0 192.0.2.3 0 0\nfilter em0 ef 0 0 192.0.2.4 0 0\n",
    );
    let link = &policy.links[0];
    let [one, two, clear, ef] = ["one", "two", "clear", "ef"].map(|name| link.class(name).unwrap());
    let mut engine = Engine::new(&link.spec).unwrap();
    let (mut random, mut now, mut seen) = (Random(SplitMix64::new(1)), 0, [0; 64]);
    for handle in 0..60_000 {
        // 3 Mbit/s and 30 Mbit/s in turn.
        now += random.below([400_000, 4_000_000][handle as usize / 500 % 2]);
        let packet = Packet { dscp: 63, ..Packet::new(handle, 1 + random.below(1500) as u32) };
        let first = leaves(&mut engine, one, now, packet);
        assert_eq!(leaves(&mut engine, two, now, packet), first, "packet {handle}");
        seen[usize::from(first.unwrap())] += 1;
        assert_eq!(leaves(&mut engine, clear, now, packet), Some(0));
        assert!(matches!(leaves(&mut engine, ef, now, packet), Some(63) | None));
    }
    assert!([10, 12, 14].iter().all(|dscp| seen[*dscp] > 3000), "{seen:?}");
    // A bucket of 64 KB at 6 Mbit/s lets no more than that pass; a part of the time less comes.
    let most = (65_536 + now / 1_333) as f64;
    let counted = engine.scheduler_counters(ef);
    let green = counted.iter().find(|(name, _)| *name == "green_bytes").unwrap().1 as f64;
    assert!(green <= most && green > 0.5 * most, "{green} of {most}");
}

/// A conditioner without buckets may stand in a meter by its name: it is the same as what it does.
#[test]
fn conditioners_without_buckets_in_a_meter() {
    let classes = |inner: &str| {
        let policy = parse(&format!(
            "interface em0\nconditioner em0 low <mark 0x28>\nconditioner em0 gone <drop>\nconditioner em0 on <pass>\n\
             conditioner em0 x <trtcm 3M 32K 10M 64K {inner} colorblind>\nfilter em0 x 0 0 0 0 17\n"
        ));
        format!("{:?}", policy.links[0].spec.classes)
    };
    let named = classes("<conditioner on><conditioner low><conditioner gone>");
    assert_eq!(named, classes("<pass><mark 0x28><drop>"));
}

/// A discipline for what an interface sends, and conditioners for what arrives there: two links. A
/// filter is for a class, or else for a conditioner of that name.
#[test]
fn beside_a_discipline() {
    let policy = parse(
        "interface em0 bandwidth 10M hfsc\nclass hfsc em0 a root pshare 50 default\n\
         conditioner em0 a <drop>\nconditioner em0 b <mark 0x28>\n\
         class hfsc em0 c root pshare 20\nfilter em0 a 0 0 0 0 17\nfilter em0 b 0 0 0 0 17\n\
         filter em0 c 0 0 0 0 6\ninterface em1 fifoq\nconditioner em1 d <mark 0x20>\nfilter em1 d 0 0 0 0 6\n",
    );
    let name = |link: &Link| link.name.clone();
    assert_eq!(policy.links.iter().map(name).collect::<Vec<_>>(), ["em0", "em0-in", "em1", "em1-in"]);
    for (link, device, ingress, rules) in
        [(0, "em0", false, vec![1, 2]), (1, "em0", true, vec![2]), (2, "em1", false, vec![]), (3, "em1", true, vec![1])]
    {
        let link = &policy.links[link];
        assert_eq!(link.device, Some(Device::Interface { name: device.into(), ingress }));
        assert_eq!(link.spec.rules.rules.iter().map(|rule| rule.class).collect::<Vec<_>>(), rules);
    }
    let mut engine = Engine::new(&policy.links[1].spec).unwrap();
    assert_eq!(leaves(&mut engine, 2, 0, Packet::new(0, 1000)), Some(10));
    assert_eq!(leaves(&mut engine, 1, 0, Packet::new(1, 1000)), None);
}

/// The other side of the edge, with cbq: classes by the marks, with RIO, and one that takes the
/// mark away as its packets leave.
#[test]
fn classes_behind_the_edge() {
    let policy = parse(
        "interface pvc0 bandwidth 45M cbq\nclass cbq pvc0 root NULL pbandwidth 100\n\
         class cbq pvc0 other root borrow pbandwidth 86 default\n\
         class cbq pvc0 ef root pbandwidth 14 priority 5\n  filter pvc0 ef 0 0 0 0 0 tos 0xb8 tosmask 0xfc\n\
         rio 40 50 10 20 30 10 5 15 10\n\
         class cbq pvc0 af1 other borrow pbandwidth 20 rio\n  filter pvc0 af1 0 0 0 0 0 tos 0x20 tosmask 0xe4\n\
         class cbq pvc0 af3 other borrow pbandwidth 20 rio cleardscp\n\
         filter pvc0 af3 0 0 0 0 0 tos 0x60 tosmask 0xe4\n",
    );
    let link = &policy.links[0];
    let mut engine = Engine::new(&link.spec).unwrap();
    let mut now = 0;
    for (class, dscp, with) in [("ef", 46, 46), ("af1", 14, 14), ("af3", 28, 0), ("other", 28, 28)] {
        let packet = Packet { dscp, ..Packet::new(0, 1000) };
        engine.enqueue(now, link.class(class).unwrap(), packet);
        let left = loop {
            now = now.max(engine.next_wakeup().unwrap());
            if let Some(departure) = engine.dequeue(now) {
                break departure.packet.dscp;
            }
        };
        assert_eq!(left, with, "{class}");
    }
}
