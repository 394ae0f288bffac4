//! The findings of `altq check` in policies of htb. `^` marks the place of the finding.

use altq_config::{Language, Severity, parse_str};

/// Checks that there is one finding, with this code and severity, at the mark, and that its message
/// or help holds `says`.
#[track_caller]
fn only(inside: &str, severity: Severity, code: &str, says: &str) {
    let marked = format!("link l {{\n  rate 10Mbit/s\n  scheduler htb\n  {inside}\n}}\n");
    let at = marked.find('^').expect("a mark");
    let text = marked.replacen('^', "", 1);
    let found = match parse_str(&text, "t", Language::Native) {
        Ok(policy) => policy.warnings,
        Err(failed) => failed.diagnostics,
    };
    let [only] = &found[..] else { panic!("{found:?} in\n{text}") };
    assert_eq!((only.severity, only.code, only.span.start), (severity, code, at), "{}\n{text}", only.message);
    let whole = format!("{} {}", only.message, only.help.clone().unwrap_or_default());
    assert!(whole.contains(says), "`{says}` is not in: {whole}");
}

#[test]
fn errors() {
    for (inside, code, says) in [
        ("class a { rate 6Mbit/s default } class b { ^rate 5Mbit/s }", "over-100-percent", "a 6Mbit/s + b 5Mbit/s"),
        (
            "class a { rate 5Mbit/s default class b { rate 3Mbit/s } class c { ^rate 3Mbit/s } }",
            "over-parent",
            "6Mbit/s of its 5Mbit/s",
        ),
        (
            "class a { rate 5Mbit/s ^ceil 4Mbit/s default }",
            "ceil-below-rate",
            "the ceil 4Mbit/s is below the rate 5Mbit/s",
        ),
        ("class a { rate 5Mbit/s prio ^8 default }", "out-of-range", "0 to 7"),
        ("class a { rate 5Mbit/s burst ^0 default }", "out-of-range", "1 to"),
        ("class a { rate 5Mbit/s mpu ^65536 default }", "out-of-range", "65535"),
        ("class a { rate 5Mbit/s ^ceiling 6Mbit/s default }", "unknown-word", "`ceil`"),
        ("class a { rate 5Mbit/s ^priority 1 default }", "unknown-word", "`prio`"),
        ("class a { rate 5Mbit/s ^r2q 1 default }", "unknown-word", ""),
    ] {
        only(inside, Severity::Error, code, says);
    }
}

#[test]
fn warnings() {
    for (inside, code, says) in [
        ("class a { rate 1Mbit/s ceil 10Mbit/s ^quantum 1499 default }", "small-quantum", "largest packet, 1500"),
        ("class a { rate 1Mbit/s ceil 10Mbit/s ^burst 1499 default }", "small-burst", "largest packet, 1500"),
        ("class a { rate 1Mbit/s ceil 10Mbit/s ^cburst 1 default }", "small-burst", "cburst"),
        ("class a { rate 1Mbit/s ^ceil 11Mbit/s default }", "no-effect", "10Mbit/s at most"),
        ("class a { rate 1Mbit/s class b { rate 1Mbit/s ^ceil 2Mbit/s default } }", "no-effect", "1Mbit/s at most"),
        ("class a { ^rate 0bit/s default }", "never-sends", "never sends"),
        ("class a { rate 2Mbit/s ^prio 1 class b { rate 1Mbit/s default } }", "no-effect", "prio"),
        ("class a { rate 2Mbit/s ^quantum 3000 class b { rate 1Mbit/s default } }", "no-effect", "quantum"),
        (
            "class a { rate 2Mbit/s ^queue drop_tail { limit 9packets } class b { rate 1Mbit/s default } }",
            "no-effect",
            "queue",
        ),
        // With r2q 10, 8 Mbit/s give a quantum of 100000 bytes, and 72 kbit/s one of 900.
        (
            "class a { rate 8Mbit/s default } class b { ^rate 72kbit/s ceil 10Mbit/s }",
            "bounded-quantum",
            "would be 900 bytes by r2q: it is 1000",
        ),
    ] {
        only(inside, Severity::Warning, code, says);
    }
}

/// On a large link one warning says which quanta were cut to the largest. Classes with a written
/// quantum, those that cannot borrow, and links with a larger r2q are left out.
#[test]
fn bounded_quanta() {
    let found = |scheduler: &str, a: &str| {
        let text = format!(
            "link l {{ rate 1Gbit/s scheduler {scheduler} class a {{ rate 600Mbit/s {a} default }} \
             class b {{ rate 400Mbit/s ceil 1Gbit/s quantum 9000 }} }}"
        );
        let policy = parse_str(&text, "t", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
        policy.warnings.iter().map(|warning| warning.code).collect::<Vec<_>>()
    };
    assert_eq!(found("htb", "ceil 1Gbit/s"), ["bounded-quantum"]);
    assert!(found("htb { r2q 1000 }", "ceil 1Gbit/s").is_empty());
    assert!(found("htb", "").is_empty());
    assert!(found("htb", "ceil 1Gbit/s quantum 200000").is_empty());
}

/// Every word is read, printed and read again.
#[test]
fn read_and_printed() {
    let text = "link l { rate 10Mbit/s scheduler htb { r2q 5 } \
        class a { share 20%  ceil 50%  burst 3000  cburst 4000bytes  prio 3  quantum 2000  overhead 24  mpu 64  \
        default } }";
    let policy = parse_str(text, "t", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
    let link = &policy.links[0];
    let settings = &link.spec.classes[1].settings;
    assert_eq!(settings.rate("ceil").unwrap().as_bit_s(), 5_000_000);
    let of = |word| settings.bytes(word).or(settings.int(word));
    assert_eq!(
        ["burst", "cburst", "prio", "quantum", "overhead", "mpu"].map(of),
        [3000, 4000, 3, 2000, 24, 64].map(Some)
    );
    assert_eq!(link.ceiling(1).as_bit_s(), 5_000_000);
    let printed = altq_config::print(&policy).text;
    let again = parse_str(&printed, "t", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
    assert_eq!(again.links[0].spec.classes[1].settings, *settings);
    assert_eq!(again.links[0].spec.scheduler, link.spec.scheduler);
}

/// Rates in bit/s, bytes: of a class, its burst, what passes if it is served once a millisecond
/// with packets of 1500 bytes (burst / 1500 packets, rounded down, and one), and the burst that
/// loses nothing: rate / 8000. The engine, served by ticks of a millisecond, is the referee.
#[test]
fn bursts_that_are_too_small_for_the_timer() {
    for (mbit, burst, kept, need) in [
        (160, None, 24_000_000, Some(20_000)),
        (100, Some(6_000), 60_000_000, Some(12_500)),
        (100, Some(7_499), 60_000_000, Some(12_500)),
        (100, Some(12_500), 100_000_000, None),
        (24, None, 24_000_000, None),
        (10, None, 10_000_000, None),
        (400, Some(1_500), 24_000_000, Some(50_000)),
    ] {
        let text = |bytes: Option<u64>| {
            let words = bytes.map_or(String::new(), |bytes| format!("burst {bytes} cburst {bytes}"));
            format!(
                "link l {{ rate 1Gbit/s regulator none scheduler htb class a {{ rate {mbit}Mbit/s {words} default }} }}"
            )
        };
        let read = |bytes| parse_str(&text(bytes), "t", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
        let policy = read(burst);
        let note = altq_config::notes(&policy.links[0])[1].clone();
        // The default of a burst is 1600 bytes.
        let written = burst.unwrap_or(1600);
        match need {
            None => assert_eq!(note, None),
            Some(need) => assert_eq!(
                note.unwrap(),
                format!(
                    "burst {need}bytes  cburst {need}bytes: {written} bytes let {}Mbit/s pass if it is served 1ms \
                     late, again and again",
                    kept / 1_000_000
                )
            ),
        }
        // A second may begin and end within a packet.
        let passed = by_ticks(&read(Some(written)).links[0]);
        assert!(passed.abs_diff(kept) <= 12_000, "{passed}, not {kept}");
        if let Some(need) = need {
            let whole = by_ticks(&read(Some(need)).links[0]) as f64;
            assert!((whole / 1e6 / f64::from(mbit) - 1.0).abs() < 0.001, "{whole}");
        }
    }
}

/// The rate of a class that always has packets of 1500 bytes and is served once a millisecond.
fn by_ticks(link: &altq_config::Link) -> u64 {
    let mut engine = altq_engine::Engine::new(&link.spec).unwrap();
    let (mut handle, mut bytes) = (0, 0);
    for ms in 0..1_100_u64 {
        while engine.own_counters(1).queued_packets < 50 {
            handle += 1;
            engine.enqueue(ms * 1_000_000, 1, altq_engine::Packet::new(handle, 1500));
        }
        while engine.dequeue(ms * 1_000_000).is_some() {
            bytes += if ms >= 100 { 1500 } else { 0 };
        }
    }
    bytes * 8
}

/// A ceil has a bucket of its own. Quanta that the kernel bounds are better written out: the
/// slowest class has a packet, the others in proportion (here 12.5 to 1).
#[test]
fn ceils_and_quanta() {
    let policy = parse_str(
        "link l { rate 1Gbit/s scheduler htb class a { rate 500Mbit/s ceil 1Gbit/s burst 100000 default } \
         class b { rate 40Mbit/s ceil 100Mbit/s burst 5000 cburst 20000 } class c { rate 1Mbit/s } }",
        "t",
        Language::Native,
    )
    .unwrap_or_else(|failed| panic!("{failed}"));
    let notes = altq_config::notes(&policy.links[0]);
    let quanta = "the default quanta are not in proportion to the rates";
    assert_eq!(notes[0], None);
    assert_eq!(
        notes[1].clone().unwrap(),
        format!(
            "cburst 125000bytes  quantum 18750: 1600 bytes let 24Mbit/s pass if it is served 1ms late, again and \
             again; {quanta}"
        )
    );
    assert_eq!(notes[2].clone().unwrap(), format!("quantum 1500: {quanta}"));
    assert_eq!(notes[3], None);
}
