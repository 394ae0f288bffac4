//! Every word of every scheduler, of meters and of links counts in what `altq check` says of a
//! policy, or a reason stands here why what it says holds whatever the word is. A word that the
//! registry has and this table has not makes the test fail.

use altq_config::{DelayBound, Language, Promises, parse_str};
use altq_engine::schedule;
use altq_engine::shape::meter;
use altq_engine::units::Rate;

/// A word, what stands in the policy without it, what stands there with it or with another value,
/// and why all figures stay as they are, if they do.
struct Row(&'static str, &'static str, &'static str, Option<&'static str>);

const fn counts(word: &'static str, before: &'static str, after: &'static str) -> Row {
    Row(word, before, after, None)
}

const fn same(word: &'static str, before: &'static str, after: &'static str, why: &'static str) -> Row {
    Row(word, before, after, Some(why))
}

const CLASSIC: &str = "the classic estimator, which alone reads it, bounds no delay, and its rates are those of `rate`";
const BORROWS: &str = "it says who gets what guarantees leave, and a promise counts on guarantees only";
const NOTHING: &str = "jobs promises nothing: it gives bounds up where they cannot all hold";
const PREFERS: &str = "fairq guarantees nothing and has no ceiling";
const DROPS: &str = "what is dropped does not wait, and in the long run a rate alone counts";

/// By scheduler: the words of a class `a` beside a class `b`.
const CLASS: &[(&str, &str, &[Row])] = &[
    (
        "cbq",
        "scheduler cbq class a { A } class b { rate 4Mbit/s default }",
        &[
            counts("rate", "rate 2Mbit/s", "rate 3Mbit/s"),
            counts("borrow", "rate 2Mbit/s", "rate 2Mbit/s borrow"),
            counts("ceiling", "rate 2Mbit/s borrow", "rate 2Mbit/s borrow ceiling 5Mbit/s"),
            counts("priority", "rate 2Mbit/s", "rate 2Mbit/s priority 5"),
            counts("packetsize", "rate 2Mbit/s", "rate 2Mbit/s packetsize 500"),
            counts("maxburst", "rate 2Mbit/s", "rate 2Mbit/s maxburst 5"),
        ],
    ),
    (
        "cbq",
        "scheduler cbq { estimator classic } class a { A } class b { rate 4Mbit/s default }",
        &[
            same("maxpacketsize", "rate 2Mbit/s", "rate 2Mbit/s maxpacketsize 1000", CLASSIC),
            same("minburst", "rate 2Mbit/s", "rate 2Mbit/s minburst 3", CLASSIC),
            same("maxdelay", "rate 2Mbit/s", "rate 2Mbit/s maxdelay 50ms", CLASSIC),
            same("control", "rate 2Mbit/s", "rate 2Mbit/s control", CLASSIC),
        ],
    ),
    (
        "hfsc",
        "scheduler hfsc class a { A } class b { linkshare 4Mbit/s default }",
        &[
            counts("realtime", "realtime 2Mbit/s", "realtime 4Mbit/s for 5ms then 2Mbit/s"),
            counts("linkshare", "linkshare 2Mbit/s", "linkshare 3Mbit/s"),
            counts("upperlimit", "linkshare 2Mbit/s", "linkshare 2Mbit/s upperlimit 5Mbit/s"),
        ],
    ),
    (
        "htb",
        "scheduler htb class a { A } class b { rate 4Mbit/s burst 60000 cburst 60000 default }",
        &[
            counts("rate", "rate 1Mbit/s burst 60000 cburst 60000", "rate 2Mbit/s burst 60000 cburst 60000"),
            counts(
                "ceil",
                "rate 2Mbit/s burst 60000 cburst 60000",
                "rate 2Mbit/s ceil 5Mbit/s burst 60000 cburst 60000",
            ),
            counts("burst", "rate 2Mbit/s burst 60000 cburst 60000", "rate 2Mbit/s burst 1600 cburst 60000"),
            counts("cburst", "rate 2Mbit/s burst 60000 cburst 60000", "rate 2Mbit/s burst 60000 cburst 1600"),
            counts("prio", "rate 2Mbit/s burst 60000 cburst 60000", "rate 2Mbit/s burst 60000 cburst 60000 prio 1"),
            counts(
                "quantum",
                "rate 2Mbit/s burst 60000 cburst 60000",
                "rate 2Mbit/s burst 60000 cburst 60000 quantum 50000",
            ),
            counts(
                "overhead",
                "rate 2Mbit/s burst 60000 cburst 60000",
                "rate 2Mbit/s burst 60000 cburst 60000 overhead 24",
            ),
            counts("mpu", "rate 2Mbit/s burst 60000 cburst 60000", "rate 2Mbit/s burst 60000 cburst 60000 mpu 64"),
        ],
    ),
    ("priq", "scheduler priq class a { A } class b { default }", &[counts("priority", "priority 1", "priority 5")]),
    ("drr", "scheduler drr class a { A } class b { default }", &[counts("quantum", "quantum 1500", "quantum 3000")]),
    (
        "fairq",
        "scheduler fairq class a { A } class b { default }",
        &[
            same("priority", "priority 1", "priority 5", PREFERS),
            same("bandwidth", "bandwidth 1Mbit/s", "bandwidth 2Mbit/s", PREFERS),
            same("buckets", "buckets 16", "buckets 64", PREFERS),
            same("hogs", "hogs 1Mbit/s", "hogs 2Mbit/s", PREFERS),
        ],
    ),
    (
        "jobs",
        "scheduler jobs class a { A } class b { default }",
        &[
            same("priority", "priority 1", "priority 5", NOTHING),
            same("adc", "", "adc 5ms", NOTHING),
            same("alc", "", "alc 0.1", NOTHING),
            same("arc", "", "arc 2Mbit/s", NOTHING),
            same("rdc", "", "rdc 4", NOTHING),
            same("rlc", "", "rlc 4", NOTHING),
        ],
    ),
    (
        "wfq",
        "scheduler wfq class a { A } class b { default }",
        &[
            counts("bandwidth", "bandwidth 2Mbit/s", "bandwidth 3Mbit/s"),
            counts("bandwidth remaining", "bandwidth remaining 20%", "bandwidth remaining 30%"),
            counts("weight", "weight 2", "weight 3"),
            counts("low-latency", "low-latency 1Mbit/s", "low-latency 2Mbit/s"),
            counts("low-latency burst", "low-latency 1Mbit/s burst 3000", "low-latency 1Mbit/s burst 9000"),
            counts("shape", "bandwidth 2Mbit/s", "bandwidth 2Mbit/s shape 5Mbit/s"),
            counts("police", "bandwidth 2Mbit/s", "bandwidth 2Mbit/s police 5Mbit/s"),
            same("police burst", "police 2Mbit/s burst 3000", "police 2Mbit/s burst 9000", DROPS),
            counts("fair-queue", "bandwidth 2Mbit/s", "bandwidth 2Mbit/s fair-queue"),
        ],
    ),
    (
        "wfq",
        "scheduler wfq class a { A } class b { low-latency 2Mbit/s default }",
        &[counts("level", "low-latency 1Mbit/s", "low-latency 1Mbit/s level 2")],
    ),
];

/// By scheduler: its own words.
const SCHEDULER: &[(&str, &str, &[Row])] = &[
    (
        "cbq",
        "scheduler cbq { A } class a { rate 2Mbit/s borrow } class b { rate 4Mbit/s borrow default }",
        &[
            counts("estimator", "", "estimator classic"),
            same("excess", "excess share", "excess priority", BORROWS),
            same("link-sharing", "estimator classic", "estimator classic link-sharing formal", CLASSIC),
            same("rounds", "estimator classic", "estimator classic rounds prr", CLASSIC),
            same("efficient", "estimator classic", "estimator classic efficient", CLASSIC),
        ],
    ),
    (
        "htb",
        "scheduler htb { A } class a { rate 2Mbit/s burst 60000 cburst 60000 } \
         class b { rate 4Mbit/s burst 60000 cburst 60000 default }",
        &[counts("r2q", "", "r2q 100")],
    ),
    (
        "jobs",
        "scheduler jobs { A } class a { adc 5ms } class b { default }",
        &[same("limit", "limit 50", "limit 100", NOTHING), same("separate", "", "separate", NOTHING)],
    ),
    (
        "wfq",
        "scheduler wfq { A } class a { bandwidth 2Mbit/s } class b { bandwidth 4Mbit/s default }",
        &[counts("excess", "", "excess equal")],
    ),
];

const METER: &[Row] = &[
    counts("cir", "meter bucket { cir 2Mbit/s cbs 3000 red drop }", "meter bucket { cir 3Mbit/s cbs 3000 red drop }"),
    same(
        "cbs",
        "meter bucket { cir 2Mbit/s cbs 3000 red drop }",
        "meter bucket { cir 2Mbit/s cbs 6000 red drop }",
        DROPS,
    ),
    same(
        "ebs",
        "meter srtcm { cir 2Mbit/s cbs 3000 ebs 3000 red drop }",
        "meter srtcm { cir 2Mbit/s cbs 3000 ebs 6000 red drop }",
        DROPS,
    ),
    counts(
        "pir",
        "meter trtcm { cir 1Mbit/s cbs 3000 pir 2Mbit/s pbs 3000 red drop }",
        "meter trtcm { cir 1Mbit/s cbs 3000 pir 3Mbit/s pbs 3000 red drop }",
    ),
    same(
        "pbs",
        "meter trtcm { cir 1Mbit/s cbs 3000 pir 2Mbit/s pbs 3000 red drop }",
        "meter trtcm { cir 1Mbit/s cbs 3000 pir 2Mbit/s pbs 6000 red drop }",
        DROPS,
    ),
    same(
        "window",
        "meter tswtcm { cir 1Mbit/s pir 2Mbit/s red drop }",
        "meter tswtcm { cir 1Mbit/s pir 2Mbit/s window 100ms red drop }",
        "over which time the rate is averaged changes no rate",
    ),
    same(
        "colour-aware",
        "meter srtcm { cir 2Mbit/s cbs 3000 ebs 3000 red drop }",
        "meter srtcm { cir 2Mbit/s cbs 3000 ebs 3000 colour-aware red drop }",
        "whatever the colour before, no more passes than the profile lets through",
    ),
    counts("kind", "", "meter bucket { cir 2Mbit/s cbs 3000 red drop }"),
    same(
        "green",
        "meter bucket { cir 2Mbit/s cbs 3000 red drop }",
        "meter bucket { cir 2Mbit/s cbs 3000 green dscp le red drop }",
        "a mark changes no rate",
    ),
    counts(
        "yellow",
        "meter trtcm { cir 1Mbit/s cbs 3000 pir 2Mbit/s pbs 3000 red drop }",
        "meter trtcm { cir 1Mbit/s cbs 3000 pir 2Mbit/s pbs 3000 yellow drop red drop }",
    ),
    counts("red", "meter bucket { cir 2Mbit/s cbs 3000 }", "meter bucket { cir 2Mbit/s cbs 3000 red drop }"),
];

/// Words of a link and of queues that make packets or queues longer.
const LINK: &[Row] = &[
    counts("mtu", "", "mtu 9000"),
    counts("overhead", "", "overhead 24 bytes"),
    counts("atm", "overhead 24 bytes", "overhead 24 bytes atm"),
    counts("ptm", "overhead 24 bytes", "overhead 24 bytes ptm"),
    counts("mpu", "overhead 24 bytes", "overhead 24 bytes mpu 2000"),
];

const QUEUE: &[Row] = &[
    counts("limit", "queue drop_tail { limit 10packets }", "queue drop_tail { limit 20packets }"),
    counts("limit", "queue drop_tail { limit 10packets }", "queue drop_tail { limit 3000bytes }"),
    counts("queue", "queue drop_tail { limit 10packets }", "queue fq_codel { }"),
];

/// All that `check` says of the link's classes.
fn said(text: &str) -> Vec<(Option<Rate>, Rate, DelayBound)> {
    let policy = parse_str(text, "t.altq", Language::Native).unwrap_or_else(|failed| panic!("{text}: {failed}"));
    let link = &policy.links[0];
    let promises = Promises::new(link);
    let of = |class| (promises.guaranteed(class), link.ceiling(class), promises.delay_bound(class));
    (0..link.classes.len() as u32).map(of).collect()
}

/// Compares both policies of a row, and holds guarantees to ceilings.
fn check(Row(word, before, after, why): &Row, policy: impl Fn(&str) -> String) {
    let (before, after) = (policy(before), policy(after));
    let (first, second) = (said(&before), said(&after));
    for (guaranteed, ceiling, _) in first.iter().chain(&second) {
        assert!(guaranteed.is_none_or(|rate| rate <= *ceiling), "guaranteed {guaranteed:?} of {ceiling}: {after}");
    }
    assert_eq!(first == second, why.is_some(), "`{word}`, {why:?}:\n{before}\n{after}\n{first:?}\n{second:?}");
}

#[test]
fn every_word_of_a_class_counts_or_says_why_not() {
    for entry in schedule::SCHEDULERS {
        for (table, words) in [(CLASS, entry.class_words), (SCHEDULER, entry.words)] {
            let rows = || table.iter().filter(|(name, ..)| *name == entry.name).flat_map(|(.., rows)| rows.iter());
            for word in words {
                assert!(rows().any(|row| row.0 == word.name), "`{}` of {} is not in the table", word.name, entry.name);
            }
        }
    }
    for (_, policy, rows) in CLASS.iter().chain(SCHEDULER) {
        for row in *rows {
            check(row, |words| {
                let at = policy.find("{ A }").expect("a place");
                format!("link l {{ rate 10Mbit/s {}{{ {words} }}{} }}", &policy[..at], &policy[at + 5..])
            });
        }
    }
}

#[test]
fn every_word_of_meters_counts_or_says_why_not() {
    let words = meter::WORDS.iter().map(|word| word.name).chain(meter::COLOURS);
    for word in words.chain(["kind"]) {
        assert!(meter::setting(word).is_some() && METER.iter().any(|row| row.0 == word), "`{word}`");
    }
    for row in METER {
        check(row, |words| {
            format!("link l {{ rate 10Mbit/s scheduler cbq class a {{ rate 4Mbit/s {words} default }} }}")
        });
        check(row, |words| format!("link l {{ rate 10Mbit/s {words} scheduler drr class a {{ default }} }}"));
    }
}

/// What is dropped has no delay. With a `packetsize`, or packets no longer than the `mtu`, that fit
/// into the queue, there is one.
#[test]
fn a_queue_smaller_than_a_packet_has_no_bound() {
    let bound = |link: &str, words: &str, queue: &str| {
        let class = format!("class a {{ {words} queue {queue} default }}");
        said(&format!("link l {{ rate 10Mbit/s {link} {class} }}")).swap_remove(1).2
    };
    for (link, words, small) in [
        ("scheduler cbq", "rate 4Mbit/s", "drop_tail { limit 1499bytes }"),
        ("scheduler hfsc", "realtime 4Mbit/s", "drop_tail { limit 1499bytes }"),
        ("scheduler drr", "quantum 1500", "drop_tail { limit 1499bytes }"),
        ("mtu 9000 scheduler priq", "priority 1", "drop_tail { limit 8999bytes }"),
    ] {
        let without = bound(link, words, small);
        assert_eq!((without.conforming, without.queue_full), (None, None), "{link}");
        assert!(without.assumes.contains("drops each packet"), "{link}: {}", without.assumes);
        let large = small.replace("1499", "1500").replace("8999", "9000");
        assert!(bound(link, words, &large).conforming.is_some(), "{link}");
    }
    let small = "drop_tail { limit 600bytes }";
    assert!(bound("scheduler cbq", "rate 4Mbit/s packetsize 500", small).conforming.is_some());
    assert!(bound("mtu 576 scheduler drr", "quantum 1500", small).conforming.is_some());
}

#[test]
fn lengths_of_packets_and_queues_count() {
    let classes = [
        ("cbq", "rate 4Mbit/s"),
        ("hfsc", "realtime 4Mbit/s"),
        ("htb", "rate 4Mbit/s burst 60000 cburst 60000"),
        ("wfq", "bandwidth 4Mbit/s"),
        ("priq", "priority 5"),
        ("drr", "quantum 12000"),
    ];
    for (scheduler, words) in classes {
        for row in LINK {
            check(row, |link| {
                format!("link l {{ rate 10Mbit/s {link} scheduler {scheduler} class a {{ {words} default }} }}")
            });
        }
        for row in QUEUE {
            check(row, |queue| {
                format!("link l {{ rate 10Mbit/s scheduler {scheduler} class a {{ {words} {queue} default }} }}")
            });
        }
    }
}
