//! Meters in the native language: how they are read and printed, and where errors are reported.

use altq_config::{Language, parse_str, print};
use altq_engine::shape::meter::{Action, MeterSpec, Profile};
use altq_engine::units::Rate;

const TEXT: &str = "link l {
    rate 10Mbit/s
    scheduler cbq
    meter bucket { cir 8Mbit/s cbs 100000bytes red dscp le }
    class a { share 20%  meter srtcm { cir 10%  cbs 20000  ebs 40000bytes  green dscp af11  yellow dscp 12  red drop \
    }  borrow }
    class b { share 30%  default
        meter trtcm { cir 1Mbit/s cbs 3000 pir 2Mbit/s pbs 6000 colour-aware red drop yellow pass } }
}
";

#[test]
fn read_and_printed() {
    let policy = parse_str(TEXT, "t.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
    let meters: Vec<MeterSpec> =
        policy.links[0].spec.classes.iter().map(|class| MeterSpec::read(&class.settings).unwrap().unwrap()).collect();
    let cir = Rate::mbit_s(1);
    assert_eq!(meters[0].profile, Profile::Bucket { cir: Rate::mbit_s(8), cbs: 100_000 });
    assert_eq!(meters[0].actions, [Action::Pass, Action::Pass, Action::Dscp(1)]);
    // 10 % of the link.
    assert_eq!(meters[1].profile, Profile::SingleRate { cir, cbs: 20_000, ebs: 40_000 });
    assert_eq!((meters[1].aware, meters[1].actions), (false, [Action::Dscp(10), Action::Dscp(12), Action::Drop]));
    assert_eq!(meters[2].profile, Profile::TwoRate { cir, cbs: 3000, pir: Rate::mbit_s(2), pbs: 6000 });
    assert_eq!((meters[2].aware, meters[2].actions), (true, [Action::Pass, Action::Pass, Action::Drop]));
    assert!(policy.links[0].marks_dscp());
    // The printed policy reads back to the same meters.
    let printed = print(&policy);
    assert!(printed.left_out.is_empty() && printed.text.contains("yellow dscp af12"), "{}", printed.text);
    let again = parse_str(&printed.text, "t.altq", Language::Native)
        .unwrap_or_else(|failed| panic!("{failed}\n{}", printed.text));
    for (one, two) in policy.links[0].spec.classes.iter().zip(&again.links[0].spec.classes) {
        assert_eq!((&one.settings, &one.queue), (&two.settings, &two.queue));
    }
}

/// In the texts `^` marks the place of the error.
#[test]
fn refused_with_their_places() {
    for (meter, code, says) in [
        ("meter ^bukket { cir 1Mbit/s }", "unknown-word", "`bucket`"),
        ("meter ^bucket { cir 1Mbit/s }", "bad-meter", "`cbs`"),
        ("meter bucket { cir 1Mbit/s cbs 1500 ^ebs 1500 }", "bad-meter", "no `ebs`"),
        ("meter bucket { cir 1Mbit/s cbs 1500 ^yellow drop }", "bad-meter", "no `yellow`"),
        ("meter all { ^cir 1Mbit/s }", "bad-meter", "all packets are `green`"),
        (
            "meter bucket { cir 1Mbit/s cbs 1500 red meter bucket { ^cir 0bit/s cbs 1500 } }",
            "bad-meter",
            "nothing pass",
        ),
        ("meter bucket { cir 1Mbit/s cbs 1500 red meter ^bukket { } }", "unknown-word", "`bucket`"),
        ("meter bucket { cir 1Mbit/s cbs 1500 red meter ^all }", "missing-braces", "braces"),
        (
            "meter all { green meter all { green meter all { green meter all { green meter all { green meter all {
             green meter all { ^green meter all { green drop } } } } } } } }",
            "too-deep",
            "at most 7 meters",
        ),
        ("meter tswtcm { cir 1Mbit/s pir 2Mbit/s ^cbs 1500 }", "bad-meter", "no buckets"),
        ("meter tswtcm { cir 1Mbit/s pir 2Mbit/s ^window 0s }", "bad-meter", "1ms to 60s"),
        ("meter ^tswtcm { cir 1Mbit/s pir 500kbit/s }", "bad-meter", "below the committed"),
        ("meter bucket { cir 1Mbit/s cbs 1500 ^window 1s }", "bad-meter", "no `window`"),
        ("meter bucket { cir 1Mbit/s cbs 1500 ^pink drop }", "unknown-word", "`pink`"),
        ("meter bucket { cir 1Mbit/s cbs 1500 red ^lose }", "unknown-word", "`lose`"),
        ("meter bucket { cir 1Mbit/s cbs 1500 red dscp ^64 }", "bad-value", "0 to 63"),
        ("meter bucket { cir 1Mbit/s cbs 1500 red dscp ^afl1 }", "bad-value", "af"),
        ("meter bucket { cir 1Mbit/s cbs 1500 ^cbs 3000 }", "given-twice", ""),
        ("meter bucket { cir 1Mbit/s cbs ^0 }", "out-of-range", "1 to"),
        ("meter bucket { ^cir 0bit/s cbs 1500 }", "bad-meter", "nothing pass"),
        ("meter bucket { cir ^200% cbs 1500 }", "over-100-percent", ""),
        ("meter ^bucket", "missing-braces", "braces"),
        ("^meter", "missing-value", "kind"),
    ] {
        let marked = format!("link l {{ rate 10Mbit/s scheduler cbq\n class a {{ share 5% default\n {meter}\n }} }}");
        let at = marked.find('^').unwrap();
        let failed =
            parse_str(&marked.replacen('^', "", 1), "t.altq", Language::Native).map(|_| ()).expect_err(&marked);
        let first = &failed.diagnostics[0];
        assert_eq!((first.code, first.span.start), (code, at), "{}\n{marked}", first.message);
        let whole = format!("{} {}", first.message, first.help.clone().unwrap_or_default());
        assert!(whole.contains(says), "`{says}` is not in: {whole}");
    }
}

/// A meter of the packets of a colour is read and printed in the place of the colour's action.
#[test]
fn meters_inside_meters() {
    let text = "link l { rate 10Mbit/s scheduler drr class a { default
        meter trtcm { cir 1Mbit/s cbs 3000 pir 2Mbit/s pbs 6000 green dscp af11
            yellow meter tswtcm { cir 500kbit/s pir 800kbit/s window 100ms red drop }
            red meter bucket { cir 3Mbit/s cbs 3000 green meter all { green dscp le } red drop } } } }";
    let policy = parse_str(text, "t.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
    let settings = &policy.links[0].spec.classes[1].settings;
    let meter = MeterSpec::read(settings).unwrap().unwrap();
    assert_eq!(meter.actions, [Action::Dscp(10), Action::Meter, Action::Meter]);
    let [None, Some(yellow), Some(red)] = &meter.next else { panic!("{meter:?}") };
    let window = Profile::Window { cir: Rate::bit_s(500_000), pir: Rate::bit_s(800_000), window: 100_000_000 };
    assert_eq!((yellow.profile, yellow.actions), (window, [Action::Pass, Action::Pass, Action::Drop]));
    assert_eq!(red.actions, [Action::Meter, Action::Pass, Action::Drop]);
    let all = red.next[0].as_ref().unwrap();
    assert_eq!((all.profile, all.actions[0]), (Profile::All, Action::Dscp(1)));
    assert!(policy.links[0].marks_dscp() && policy.warnings.is_empty(), "{:?}", policy.warnings);
    // Up to the peak rate, and of what is beyond it 3 Mbit/s.
    assert_eq!(policy.links[0].ceiling(1), Rate::mbit_s(5));
    let printed = print(&policy).text;
    let again = parse_str(&printed, "t.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}\n{printed}"));
    assert_eq!(&again.links[0].spec.classes[1].settings, settings, "{printed}");
}

#[test]
fn what_check_makes_of_them() {
    let text = "link l { rate 10Mbit/s scheduler drr meter trtcm { cir 1Mbit/s cbs 3000 pir 6Mbit/s pbs 6000 red drop }
        class a { meter srtcm { cir 2Mbit/s cbs 3000 ebs 1400 red drop } } \
        class b { meter bucket { cir 1Mbit/s cbs 3000 } default } }";
    let policy = parse_str(text, "t.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
    let link = &policy.links[0];
    let ceilings = ["l", "a", "b"].map(|name| link.ceiling(link.class(name).unwrap()).as_bit_s());
    // The link's meter drops packets beyond its peak rate, the meter of `a` those beyond its
    // committed rate. The meter of `b` drops none.
    assert_eq!(ceilings, [6_000_000, 2_000_000, 6_000_000]);
    let [shared, warning] = &policy.warnings[..] else { panic!("{:?}", policy.warnings) };
    assert_eq!((shared.code, shared.span.start), ("shared-meter", text.find("meter trtcm").unwrap()));
    assert_eq!((warning.code, warning.span.start), ("small-bucket", text.rfind("meter srtcm").unwrap()));
    assert!(warning.message.contains("1400 bytes") && warning.message.contains("`ebs`"));
}
