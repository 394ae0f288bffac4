//! Errors in policies, and where each is reported. In the texts `^` marks the place of the error;
//! it is removed before the text is read.

use altq_config::diagnostic::MOST_ERRORS;
use altq_config::{Diagnostic, Language, Severity, Sources, parse_alone, parse_bytes, parse_str};

/// Reads a text and returns its errors and warnings.
fn findings(text: &str, language: Language) -> (Vec<Diagnostic>, Sources, bool) {
    match parse_str(text, "t", language) {
        Ok(policy) => (policy.warnings, policy.sources, true),
        Err(failed) => (failed.diagnostics, failed.sources, false),
    }
}

/// Checks that the first finding has this code and stands at the mark, and that its message or help
/// holds `says`.
#[track_caller]
fn first(language: Language, marked: &str, code: &str, says: &str) {
    let at = marked.find('^').expect("a mark");
    let text = marked.replacen('^', "", 1);
    let (found, sources, ok) = findings(&text, language);
    let Some(first) = found.first() else { panic!("nothing was found in:\n{text}") };
    assert_eq!(ok, first.severity == Severity::Warning, "{text}");
    assert_eq!((first.code, first.span.start), (code, at), "{}\n{text}", first.message);
    // The place as line and column, both counted from 1.
    let before = &text[..at];
    let place = (before.matches('\n').count() + 1, before.rsplit('\n').next().unwrap_or("").chars().count() + 1);
    assert_eq!(sources.line_column(first.span), place);
    let whole = format!("{} {}", first.message, first.help.clone().unwrap_or_default());
    assert!(whole.contains(says), "`{says}` is not in: {whole}");
}

/// The text of a link of 10 Mbit/s that holds `inside`.
fn link(inside: &str) -> String {
    format!("link l {{\n  rate 10Mbit/s\n  scheduler cbq\n{inside}\n}}\n")
}

fn wfq(inside: &str) -> String {
    format!("link l {{\n  rate 10Mbit/s\n  scheduler wfq\n{inside}\n}}\n")
}

/// The text of a link whose rate of 10 Mbit/s adapts.
fn adapts(inside: &str) -> String {
    format!("link l {{\n  rate 10Mbit/s adapt {{ {inside} }}\n  scheduler cbq\n}}\n")
}

#[test]
fn places_in_adapt() {
    let cases: &[(&str, &str, &str)] = &[
        ("link l {\n  rate 10Mbit/s ^adapt\n  scheduler cbq\n}", "missing-braces", "from 5Mbit/s to 60Mbit/s"),
        (&adapts("^form 5Mbit/s to 60Mbit/s reflectors { 9.9.9.9 }"), "unknown-word", "`from`"),
        (&adapts("from ^0bit/s to 60Mbit/s reflectors { 9.9.9.9 }"), "out-of-range", "nothing"),
        (&adapts("from ^50% to 60Mbit/s reflectors { 9.9.9.9 }"), "bad-value", "bit/s"),
        (&adapts("from 5Mbit/s ^60Mbit/s reflectors { 9.9.9.9 }"), "missing-value", "`to`"),
        (&adapts("from 5Mbit/s to ^4Mbit/s reflectors { 9.9.9.9 }"), "out-of-range", "less than"),
        (&adapts("from 5Mbit/s to 60Mbit/s target ^5s reflectors { 9.9.9.9 }"), "out-of-range", "1ms to 1s"),
        (&adapts("from 5Mbit/s to 60Mbit/s target ^30 reflectors { 9.9.9.9 }"), "bad-value", "30ms"),
        (&adapts("from 5Mbit/s to 60Mbit/s ^reflectors 9.9.9.9"), "missing-braces", "in braces"),
        (&adapts("from 5Mbit/s to 60Mbit/s ^reflectors { }"), "missing-value", "three or more"),
        (&adapts("from 5Mbit/s to 60Mbit/s reflectors { ^dns.quad9.net }"), "bad-value", "names are not looked up"),
        (&adapts("from 5Mbit/s to 60Mbit/s reflectors { 9.9.9.9 ^9.9.9.9 }"), "given-twice", "9.9.9.9"),
        (&adapts("from 5Mbit/s to 60Mbit/s ^from 6Mbit/s to 7Mbit/s reflectors { 9.9.9.9 }"), "given-twice", "twice"),
        (
            "link l {\n  rate 10Mbit/s ^adapt { from 5Mbit/s to 60Mbit/s }\n  scheduler cbq\n}",
            "missing-word",
            "`reflectors`",
        ),
        (
            "link l {\n  rate 10Mbit/s ^adapt { reflectors { 9.9.9.9 } }\n  scheduler cbq\n}",
            "missing-word",
            "`from` and `to`",
        ),
        (
            "link l {\n  rate ^10Mbit/s adapt { from 20Mbit/s to 60Mbit/s reflectors { 9.9.9.9 } }\n  scheduler cbq\n}",
            "out-of-range",
            "returns to",
        ),
        (
            "link l {\n  rate 10Mbit/s ^adapt { from 5Mbit/s to 60Mbit/s reflectors { 9.9.9.9 } }\n  regulator none\n  \
             scheduler cbq\n}",
            "no-effect",
            "regulator auto",
        ),
        // The classic estimator counts whole nanoseconds a byte.
        (
            "link l {\n  rate 1Gbit/s ^adapt { from 1Mbit/s to 9Gbit/s reflectors { 9.9.9.9 } }\n  regulator auto\n  \
             scheduler cbq { estimator classic }\n  class a { share 5%  default }\n}",
            "refused",
            "at 9Gbit/s",
        ),
    ];
    for (text, code, says) in cases {
        first(Language::Native, text, code, says);
    }
}

#[test]
fn native_places() {
    let cases: &[(&str, &str, &str)] = &[
        // Words.
        ("link l {\n  rate 10Mbit/s\n  ^schedulr cbq\n}", "unknown-word", "`scheduler`"),
        ("^lnk l { }", "unknown-word", "`link`"),
        ("link ^l ", "missing-braces", "braces"),
        ("link l {\n rate 10Mbit/s\n scheduler ^cbk }", "unknown-word", "`cbq`"),
        ("link ^l { rate 1Mbit/s }", "missing-word", "scheduler cbq"),
        ("link ^l { scheduler cbq }", "missing-word", "rate 100Mbit/s"),
        ("^", "no-link", "link wan"),
        ("^# nothing\n", "no-link", ""),
        // What executes a link.
        (&link("device eth0 path ^kernl"), "unknown-word", "nfqueue, kernel, bridge"),
        (&link("device eth0 path ^bridge"), "bad-value", "device bridge A B"),
        (&link("path ^kernel device bridge a b"), "bad-value", "write `device IF`"),
        (&link("path ^nfqueue"), "bad-value", "needs a device"),
        (&link("device eth0 ^path"), "missing-value", "kernel"),
        // Inside a link.
        (&link("^include \"x.altq\""), "unknown-word", "beside the links and sets"),
        (&link("class a { ^include \"x.altq\" }"), "unknown-word", "beside the links and sets"),
        // Classes of wfq.
        (&wfq("class a { ^priority 7 default }"), "unknown-word", "low-latency 1Mbit/s"),
        (&wfq("class a { ^queue-limit 64 default }"), "unknown-word", "limit 64packets"),
        (&link("class a { share 5%  ^random-detect default }"), "unknown-word", "write `queue red`"),
        (&link("class a { share 5%  ^fair-queue default }"), "unknown-word", "write `queue fq_codel`"),
        (&wfq("class a { bandwidth 6Mbit/s } class b { ^low-latency 5Mbit/s }"), "over-100-percent", "b 5Mbit/s"),
        (&wfq("class a { bandwidth 6Mbit/s } class b { ^bandwidth remaining 50% }"), "mixed-bandwidth", "one way"),
        (&wfq("class a { weight 6 } class b { ^bandwidth 10% }"), "mixed-bandwidth", "`weight` here"),
        (
            &wfq("class a { bandwidth remaining 60% } class b { ^bandwidth remaining 50.5% }"),
            "over-100-percent",
            "a 60% + b 50.5%",
        ),
        (&wfq("class a { bandwidth remaining ^101% }"), "bad-value", "100%"),
        (&wfq("class a { bandwidth remaining ^30 }"), "bad-value", "30%"),
        (&wfq("class a { bandwidth ^5 }"), "bad-value", "5bit/s"),
        (&wfq("class a { bandwidth 5% ^bandwidth remaining 5% }"), "refused", "leave one out"),
        (&wfq("class a { ^burst 3000 }"), "unknown-word", "burst"),
        (&wfq("class a { police 1Mbit/s burst 3000 ^police burst 4000 }"), "given-twice", "twice"),
        (&wfq("class a { police 1Mbit/s burst ^0 }"), "out-of-range", "1 to"),
        (&wfq("class a { ^police burst 4000 }"), "refused", "without police"),
        (&wfq("class a { bandwidth 5% ^level 2 }"), "refused", "without low-latency"),
        (&wfq("class a { ^fair-queue queue drop_tail { limit 9packets } }"), "given-twice", "sfq"),
        (&wfq("class a { low-latency 5% level ^3 }"), "out-of-range", "1 to 2"),
        (&wfq("class a { low-latency 5% ^shape 1Mbit/s }"), "refused", "police"),
        (&wfq("class a { ^low-latency 0bit/s }"), "refused", "nothing"),
        (&wfq("class a { bandwidth 5% } class b { weight ^0 }"), "out-of-range", "1 to"),
        (
            &wfq("class a { shape 2Mbit/s scheduler wfq class b { bandwidth 1Mbit/s } \
                 class c { ^bandwidth 60% of parent } }"),
            "over-parent",
            "of its 2Mbit/s",
        ),
        (&wfq("class a { bandwidth 5% class ^b { } }"), "refused", "scheduler wfq"),
        // Units.
        ("link l { rate ^1mbps scheduler cbq }", "bad-value", "8Mbit/s"),
        ("link l { rate ^10 scheduler cbq }", "bad-value", "10bit/s"),
        ("link l { rate ^10MB scheduler cbq }", "bad-value", "80Mbit/s"),
        ("link l { rate ^0bit/s scheduler cbq }", "out-of-range", "nothing"),
        ("link l { rate ^5% scheduler cbq }", "bad-value", "part"),
        ("link l { rate ^99999999999999999999Gbit/s scheduler cbq }", "bad-value", "large"),
        ("link l { rate ^fast scheduler cbq }", "bad-value", "5Mbit/s"),
        ("link l { ^rate\n scheduler cbq }", "missing-value", "needs a rate"),
        ("link l { rate ^5139cells/s scheduler cbq }", "bad-value", "atm"),
        ("link l { rate 1Mbit/s mtu ^67 scheduler cbq }", "out-of-range", "68"),
        ("link l { rate 1Mbit/s scheduler cbq regulator ^often }", "unknown-word", "auto"),
        ("link l { rate 1Mbit/s scheduler cbq overhead ^docsi }", "unknown-word", "docsis"),
        ("link l { rate 1Mbit/s scheduler cbq overhead ^44 }", "bad-value", "44 bytes"),
        ("link l { rate 1Mbit/s scheduler cbq overhead ^300 bytes }", "out-of-range", "256"),
        ("link l { device ^a/b rate 1Mbit/s scheduler cbq }", "bad-value", "15 characters"),
        ("link l { device ^eth0: rate 1Mbit/s scheduler cbq }", "bad-value", "no `:`"),
        ("link l { device bridge a ^a rate 1Mbit/s scheduler cbq }", "given-twice", "itself"),
        // Text.
        ("link l { rate 1Mbit/s^; scheduler cbq }", "strange-character", "`;`"),
        ("link l { rate^= 1Mbit/s scheduler cbq }", "strange-character", "followed by"),
        ("link l { rate 1Mbit/s ^\0 scheduler cbq }", "strange-character", "NUL"),
        ("link l { ^ü rate 1Mbit/s scheduler cbq }", "strange-character", "ü"),
        ("^ü ö", "strange-character", "ü"),
        ("link l ^{ rate 1Mbit/s scheduler cbq", "open-brace", "never closed"),
        ("link l { rate 1Mbit/s scheduler cbq }\n^}", "stray-brace", ""),
        ("include ^\"a", "open-quote", ""),
        ("^include a", "missing-value", "quotes"),
        ("include \"^nowhere/at-all.altq\"", "cannot-read", "nowhere/at-all.altq"),
        ("include \"^/dev/null\"", "cannot-read", "no regular file"),
        // Given twice.
        ("link l { rate 1Mbit/s ^rate 2Mbit/s scheduler cbq }", "given-twice", ""),
        ("link l { rate 1Mbit/s scheduler cbq ^scheduler fifo }", "given-twice", ""),
        (
            "link l { rate 1Mbit/s scheduler cbq }\nlink ^l { rate 1Mbit/s scheduler cbq }",
            "duplicate-name",
            "two links",
        ),
        (
            "link a { device e rate 1Mbit/s scheduler cbq }\nlink b { ^device e rate 1Mbit/s scheduler cbq }",
            "duplicate-device",
            "`device e ingress` is what comes in by e",
        ),
        (
            "link a { device bridge e f rate 1Mbit/s scheduler cbq }
            link b { ^device bridge e f rate 1Mbit/s scheduler cbq }",
            "duplicate-device",
            "`device bridge f e` is the other direction",
        ),
        ("set a { 10.0.0.1 }\nset ^a { 10.0.0.2 }", "duplicate-name", "two sets"),
        ("set ^a { }", "empty-set", "empty"),
        ("set ^10net { 10.0.0.1 }", "bad-name", "digit"),
        ("set a { ^10.0.0.300 }", "bad-address", ""),
        ("set a { ^b }", "unknown-set", "no set `b` above this one"),
        ("set b { ^a }\nset a { 10.0.0.1 }", "unknown-set", "defined above it"),
        ("set a { ^10.0.0.1/8 }", "bad-address", "10.0.0.0/8"),
        ("set a { ^10.0.0.0/33 }", "bad-address", "0 to 32"),
    ];
    for (text, code, says) in cases {
        first(Language::Native, text, code, says);
    }
}

#[test]
fn native_places_in_a_link() {
    let cases: &[(&str, &str, &str)] = &[
        // Words of classes.
        ("class a { ^shar 5% }", "unknown-word", "`share`"),
        ("class a { ^bandwidth 5% }", "unknown-word", "share 5%"),
        ("class a { ^ceil 5% }", "unknown-word", "ceiling"),
        ("class a { ^mtu 1500 }", "unknown-word", "belongs to the link"),
        ("class a { priority ^9 }", "out-of-range", "0 to 7"),
        ("class a { priority ^high }", "bad-value", "whole number"),
        ("class a { share ^5Mbit/s }", "bad-value", "rate 5Mbit/s"),
        ("class a { share ^5 }", "bad-value", "share 5%"),
        ("class a { share ^101% }", "over-100-percent", "more than 100"),
        ("class a { share 5% ^rate 5Mbit/s }", "given-twice", ""),
        ("class a { borrow ^borrow }", "given-twice", ""),
        ("class a { rate 5% of ^all }", "bad-value", "of parent"),
        ("class a { ^share }", "missing-value", ""),
        ("class ^a/b { share 5% }", "bad-name", "`/`"),
        ("^class { share 5% }", "missing-value", "name"),
        ("class ^a share 5%", "missing-braces", "class a { … }"),
        ("class a { } class ^a { }", "duplicate-name", "two classes"),
        ("class ^l { }", "duplicate-name", "link"),
        ("class a { borrow default } class b { ^default }", "two-defaults", ""),
        ("class a { queue ^sfc }", "unknown-word", "sfq"),
        ("class a { share 5% default queue cake { flows ^hosts } }", "refused", "both"),
        ("class a { share 5% default queue cake { ^queues 100 } }", "refused", "104"),
        ("class a { share 5% queue red { ^weight 500 } }", "refused", "weight 256 or 512"),
        ("class a { share 5% queue red { limit 50packets ^min 5000bytes } }", "refused", "packets"),
        ("class a { share 5% queue pie { ^max_ecnth 0.2 } }", "refused", "ecn"),
        ("class a { share 5% queue blue { ^increment 0 } }", "refused", "0.125"),
        ("class a { share 5% queue rio { low-min 5packets ^low-max 5packets } }", "refused", "not below"),
        ("class a { share 5% queue two_level { limit 9000bytes ^bytes 9000 } }", "refused", "bytes"),
        ("class a { share 5% queue red { probability ^10% } }", "bad-value", "0.02"),
        ("class a { queue drop_tail { limit ^50 } }", "bad-value", "50packets"),
        ("class a { queue drop_tail { limit ^64KB } }", "bad-value", "65536"),
        ("class a { queue drop_tail { ^target 5ms } }", "unknown-word", "limit"),
        ("class a { scheduler fairq class b { buckets ^4096 } }", "out-of-range", "1 to 2048"),
        ("class a { scheduler fairq class b { ^hogs 1Mbit/s queue codel } }", "given-twice", "queue fairq"),
        ("class a { queue fq_codel { flows ^0 } }", "out-of-range", "1 to 1048576"),
        ("class a { queue fq_codel { quantum ^100 } }", "out-of-range", "256 to"),
        ("class a { share 5% default queue fq_codel { ^interval 1ms } }", "refused", "100ms"),
        ("class a { queue sfq { depth ^128 } }", "out-of-range", "1 to 127"),
        ("class a { queue sfq { hash ^both } }", "unknown-word", "src"),
        ("class a { share 5% default queue sfq { ^ecn } }", "refused", "redflowlimit"),
        ("class a { share 5% default queue sfq { redflowlimit 9000bytes ^max 10000bytes } }", "refused", "9000"),
        ("class a { share 5% default queue sfq { ^redflowlimit 9000bytes } }", "refused", "twelfth"),
        ("class a { share 5% default queue sfq { ^perturb 100ms } }", "refused", "perturb 10s"),
        ("class a { scheduler priq class b { priority ^16 } }", "out-of-range", "0 to 15"),
        ("class a { scheduler drr class b { quantum ^0 } }", "out-of-range", "1 to"),
        ("class a { scheduler drr class b { ^quantum 700 } }", "small-quantum", "3 rounds"),
        ("class a { scheduler drr class b { class ^c { default } } }", "refused", "scheduler drr"),
        // Estimators.
        ("class a { share 5% borrow ceiling ^x }", "bad-value", ""),
        ("class a { share 50% borrow ^ceiling 1Mbit/s }", "ceiling-below-rate", "5Mbit/s"),
        ("class a { share 5% ^ceiling 6Mbit/s }", "ceiling-without-borrow", "borrow"),
        ("class a { share 5% ^minburst 2 }", "wrong-estimator", "classic"),
        ("class a { share 5% ^maxdelay 50ms }", "wrong-estimator", "classic"),
        ("class a { share 5% packetsize ^9000bits }", "bad-value", ""),
        ("class a { share 5% ^packetsize 9000 }", "out-of-range", "mtu"),
        // Sums.
        ("class a { share 60% } class b { ^share 50% }", "over-100-percent", "a 6Mbit/s + b 5Mbit/s"),
        ("class a { share 50% class b { ^share 51% } }", "over-parent", "5100kbit/s of its 5Mbit/s"),
        // Rules.
        ("class a { borrow default } match dport 80 -> ^b", "unknown-class", "a, l"),
        ("class a { borrow default } ^match dport 80", "missing-value", "-> web"),
        ("class a { borrow default } match dport 80 ^->", "missing-value", "name of a class"),
        ("class a { borrow default } ^match -> a", "missing-value", "match all"),
        ("class a { borrow default } match ^dprt 80 -> a", "unknown-word", "`dport`"),
        ("class a { borrow default } match dport ^90-80 -> a", "empty-range", "80-90"),
        ("class a { borrow default } match dport ^65536 -> a", "out-of-range", "65535"),
        ("class a { borrow default } match dscp ^64 -> a", "out-of-range", "63"),
        ("class a { borrow default } match dscp ^eff -> a", "bad-value", "`ef`"),
        ("class a { borrow default } match dscp ^af31-af4 -> a", "bad-value", "`af41`"),
        ("class a { borrow default } match dscp ^af43-af31 -> a", "empty-range", "af31-af43"),
        // 26 to 38 in the order of code points: AF31 to AF33, CS4, AF41 to AF43 (RFC 2597 6).
        ("class a { borrow default } match dscp ^af31-af43 -> a", "dscp-range", "26-38: it has cs4 in it"),
        ("class a { borrow default } match dscp ^cs1-11 -> a", "dscp-range", "af11"),
        ("class a { borrow default } match ^dport -> a", "missing-value", ""),
        ("class a { borrow default } match ^dport 80, -> a", "missing-value", ""),
        ("class a { borrow default } match dport 80 ^dport 81 -> a", "given-twice", ""),
        ("class a { borrow default } match src ^offices -> a", "unknown-set", "no `set`"),
        ("class a { borrow default } match src ^10.0.0.0/40 -> a", "bad-address", "32"),
        ("class a { borrow default } match family ^5 -> a", "bad-value", "ipv4"),
        ("class a { borrow default } match interface \"^\" -> a", "bad-value", "1 to 15 characters"),
        ("class a { borrow default } match interface ^sixteen-letters1 -> a", "bad-value", "1 to 15 characters"),
        ("class a { borrow default } match interface eth0,^eth0:1 -> a", "bad-value", "no `:`"),
        ("class a { borrow default } match tos ^0xb8/0xf0 -> a", "match-nothing", "mask"),
        ("class a { borrow default } match tcp-flags ^syn+foo -> a", "bad-value", "syn/syn+ack"),
        ("class a { borrow default } ^match src 10.0.0.0/8 dst 2001:db8::/32 -> a", "match-nothing", "families"),
        ("class a { borrow default } ^match src 10.1.0.0/16,!10.0.0.0/8 -> a", "match-nothing", "excludes"),
        ("class a { borrow default } ^match proto icmp dport 80 -> a", "match-nothing", "no ports"),
        // Warnings.
        ("class a { borrow default } match dport 1-99 -> a ^match dport 80 -> a", "shadowed", "before"),
        ("class ^a { default } ", "never-sends", "share"),
        ("class a { share 5% default queue codel { ^limit 1499bytes } }", "drops-large", "1500bytes at least"),
        ("class a { share 5% ^priority 3 class b { share 5% default } }", "no-effect", "priority"),
        ("class a { share 5% ^queue drop_tail class b { share 5% default } }", "no-effect", "queue"),
    ];
    for (inside, code, says) in cases {
        first(Language::Native, &link(inside), code, says);
    }
    let slow = "link l { rate 1Mbit/s scheduler cbq { estimator classic } class a { ^rate 5kbit/s default } }";
    first(Language::Native, slow, "too-slow", "5588bit/s");
    // Words of the scheduler itself.
    for (words, code, says) in [
        ("estimator ^clasic", "unknown-word", "`classic`"),
        ("^estimater classic", "unknown-word", "`estimator`"),
        ("^link-sharing top-level", "wrong-estimator", "classic"),
        ("^rounds prr", "wrong-estimator", "classic"),
        ("^efficient", "wrong-estimator", "classic"),
        ("estimator classic ^excess priority", "wrong-estimator", "exact"),
    ] {
        let text = format!("link l {{ rate 1Mbit/s scheduler cbq {{ {words} }} class a {{ share 5% default }} }}");
        first(Language::Native, &text, code, says);
    }
    let classic = |class: &str| {
        format!(
            "link l {{ rate 1Mbit/s scheduler cbq {{ estimator classic }} class a {{ share 5% default {class} }} }}"
        )
    };
    first(Language::Native, &classic("borrow ^ceiling 1Mbit/s"), "wrong-estimator", "exact");
    first(Language::Native, &classic("^maxdelay 50ms queue drop_tail"), "given-twice", "both");
    // An error of the engine: a rate for which the classic estimator's numbers overflow.
    let fast = "link l { ^rate 20Gbit/s scheduler cbq { estimator classic } class a { share 90% default } }";
    first(Language::Native, fast, "refused", "8 Gbit/s");
}

#[test]
fn overcommit_makes_sums_a_warning() {
    let text = "link l { rate 10Mbit/s overcommit scheduler cbq class a { share 60% default } class b { ^share 50% } }";
    first(Language::Native, text, "over-100-percent", "11Mbit/s of the link's 10Mbit/s");
}

#[test]
fn shares_never_trip_on_rounding() {
    // 33.3, 33.3 and 33.4 per cent of 10 bit/s are 3 bit/s each: percentages are rounded down.
    let text = "link l { rate 10bit/s scheduler cbq class a { share 33.5% default } class b { share 33.5% } \
        class c { share 33% } }";
    let (found, _, ok) = findings(text, Language::Native);
    assert!(ok && found.is_empty(), "{found:?}");
    let nested = "link l { rate 7bit/s scheduler cbq class a { share 50% default class b { share 25% } \
        class c { rate 50% of parent } } }";
    assert!(findings(nested, Language::Native).2);
}

#[test]
fn altq_conf_places() {
    let head = "interface em0 bandwidth 10M cbq\nclass cbq em0 root NULL pbandwidth 100\n";
    let full = format!("{head}class cbq em0 def root borrow pbandwidth 20 default\n");
    let cases: &[(&str, &str, &str)] = &[
        ("^interfase em0 cbq", "unknown-word", "`interface`"),
        ("^altq em0 enable", "unknown-word", "console"),
        ("interface em0 bandwidth ^10Mb cbq", "bad-value", "bit/s"),
        ("interface em0 wfq nqueues ^2049", "out-of-range", "silently"),
        ("interface em0 blue ^qlimit 20000", "out-of-range", "lower `qlimit`"),
        ("interface em0 wfq nqueues ^0", "out-of-range", "nqueues 256"),
        ("interface em0 wfq qsize ^1499", "out-of-range", "1500"),
        ("interface em0 wfq hash ^dst", "bad-value", "dstaddr"),
        ("interface em0 wfq ^weight 50", "unknown-word", "`weight`"),
        ("interface em0 wfq ^hash", "missing-value", "srcport"),
        ("interface em0 jobs ^qlimit 10001", "out-of-range", "10000"),
        ("JOBSclass jobs em0 ^a NULL adc 1000", "missing-word", "priority"),
        ("JOBSclass jobs em0 a NULL priority 1 alc ^-0.5", "bad-value", "-1 for none"),
        ("JOBSclass jobs em0 a NULL priority 1 rdc ^0", "bad-value", "1 to 1000"),
        ("JOBSclass jobs em0 a NULL ^priority 0", "given-twice", "`def`"),
        ("JOBSclass jobs em0 a ^def priority 1", "wrong-class", "side by side"),
        ("JOBSclass jobs em0 a NULL priority 1 ^qlimit 5", "unknown-word", "jobs"),
        ("interface em0 hfsc ^efficient", "unknown-word", "`hfsc`"),
        ("interface em0 red ^thmi 5", "unknown-word", "`thmin`"),
        ("interface em0 rio ^flowvalve", "unknown-word", "flowvalve"),
        ("interface em0 red ^weight 500", "refused", "weight 256 or 512"),
        ("interface em0 rio lo_thmin 10 ^hi_thmin 20", "refused", "high-max 15packets"),
        ("interface em0 red thmin ^x", "bad-value", "built-in"),
        ("interface em0 red qlimit ^0", "bad-value", "at least 1"),
        ("interface em0 red ^packetsize 1000", "no-effect", "never gave it"),
        ("interface em0 rio ^ecn", "no-effect", "never marks"),
        ("interface em0 blue maxpmark ^7", "out-of-range", "eighth"),
        ("interface em0 blue holdtime ^2000000", "bad-value", "microseconds"),
        ("interface em0 fifoq ^ecn", "unknown-word", "`fifoq`"),
        ("interface em0 red\nclass ^red em0 a NULL", "wrong-class", "no classes"),
        ("interface em0 red\nfilter em0 ^em0 0 0 0 0 6", "wrong-class", "no classes"),
        ("red 5 15 ^0", "bad-value", "from 1"),
        ("red 5 ^15", "missing-value", "red 5 15 10"),
        ("red 5 ^5 10", "out-of-range", "not above"),
        ("red 5 15 10 ^20", "unknown-word", "nothing more"),
        ("rio 35 45 10 20 30 10 5 ^15", "missing-value", "low, medium, high"),
        ("HFSCclass ^priq em0 a root", "wrong-class", "class hfsc"),
        ("HFSCclass hfsc em0 root ^NULL", "two-roots", "`root`"),
        ("HFSCclass hfsc em0 ^root root pshare 5", "duplicate-name", "by itself"),
        ("HFSCclass hfsc em0 ^a root ulimit 5M", "missing-word", "pshare 10"),
        ("HFSCclass hfsc em0 a root pshare ^101", "bad-value", "0 to 100"),
        ("HFSCclass hfsc em0 a root ^[rt 2M 10 5M]", "refused", "0 for m1"),
        ("HFSCclass hfsc em0 a root [rt 2M ^x 1M]", "bad-value", "milliseconds"),
        ("HFSCclass hfsc em0 a root ^[rt 2M 10]", "bad-value", "three numbers"),
        ("HFSCclass hfsc em0 a root ^[rt 2M 10 1M", "bad-value", "no `]`"),
        ("HFSCclass hfsc em0 a root [^xt 2M 10 1M]", "bad-value", "sc, rt, ls or ul"),
        ("HFSCclass hfsc em0 a root ^grate 8.1M", "over-parent", "80 %"),
        ("HFSCclass hfsc em0 a root pshare 60\nclass hfsc em0 b root ^pshare 41", "over-parent", "10Mbit/s"),
        ("HFSCclass hfsc em0 a root pshare 60\nclass hfsc em0 b a ^pshare 61", "over-parent", "`a`"),
        ("HFSCclass hfsc em0 a root pshare 60\nclass hfsc em0 b a ^grate 1M", "over-parent", "has none"),
        (
            "HFSCclass hfsc em0 a root pshare 50 default\nclass hfsc em0 ^b root pshare 5 cleardscp\n\
             class hfsc em0 c b pshare 1",
            "not-built",
            "classes below it",
        ),
        ("HFSCclass hfsc em0 a root pshare 5 ^priority 3", "unknown-word", "`priority`"),
        ("HFSCclass hfsc em0 a root pshare 5 admission ^predictive", "bad-value", "cntlload"),
        ("HFSCclass hfsc em0 a root pshare 5 default\nclass hfsc em0 ^b root pshare 5 default", "two-defaults", ""),
        ("HFSCclass hfsc em0 ^a root pshare 5 default\nclass hfsc em0 b a pshare 5", "wrong-class", "below it"),
        ("interface ^em0 hfsc\nclass hfsc em0 a root pshare 5", "no-default", "refuses"),
        ("PRIQclass priq em0 a ^def", "wrong-class", "NULL"),
        ("PRIQclass priq em0 a NULL priority ^16", "bad-value", "0 to 15"),
        ("PRIQclass priq em0 a NULL ^priority 0", "given-twice", "`def`"),
        ("PRIQclass priq em0 ^a NULL", "given-twice", "another priority"),
        ("PRIQclass priq em0 a NULL priority 1 ^borrow", "unknown-word", "`borrow`"),
        ("PRIQclass priq em0 a NULL priority 1 red ^rio", "wrong-class", "not both"),
        ("PRIQclass priq em0 a NULL priority 1 qlimit 5 ^qlimit 6", "given-twice", ""),
        ("PRIQfilter em0 ^em0 0 0 0 0 6", "unknown-class", "`em0`"),
        ("interface ^em0", "missing-word", "no conditioner"),
        ("interface ^em0\\ cbq", "bad-value", "15 letters"),
        ("interface em0 ^cbk", "unknown-word", "`cbq`"),
        ("^# nothing", "no-link", "no interface"),
        ("interface em0 cbq ^cbq", "given-twice", ""),
        ("HEADclass cbq em0 a ^rot pbandwidth 5", "unknown-class", "`root`"),
        ("HEADclass cbq ^em1 a root pbandwidth 5", "unknown-interface", "em0"),
        ("HEADclass ^cbk em0 a root", "unknown-word", "`cbq`"),
        ("HEADclass ^priq em0 a root", "wrong-class", "class cbq"),
        ("HEADclass ^jobs em0 a root", "wrong-class", "`cbq`"),
        ("HEADclass cbq em0 a root ^pbandwith 5", "unknown-word", "`pbandwidth`"),
        ("HEADclass cbq em0 a root pbandwidth ^101", "bad-value", "0 to 100"),
        ("HEADclass cbq em0 a root pbandwidth ^2.5", "bad-value", "whole"),
        ("HEADclass cbq em0 a root priority ^8", "bad-value", "0 to 7"),
        ("HEADclass cbq em0 a root pbandwidth 5 red ^rio", "wrong-class", "not both"),
        ("HEADclass cbq em0 a root pbandwidth 5 rio ^flowvalve", "wrong-class", "of red"),
        ("FULLclass cbq em0 a root pbandwidth 5 red ^cleardscp", "no-effect", "red does not"),
        ("HEADclass cbq em0 a root pbandwidth 5 red ^red", "given-twice", ""),
        ("FULLclass cbq em0 a root pbandwidth 5 rio ^ecn", "no-effect", "never marks"),
        ("HEADclass cbq em0 a root borrow ^borrow", "given-twice", ""),
        ("HEADclass cbq em0 ^b NULL pbandwidth 5", "two-roots", ""),
        ("HEADclass cbq em0 a root pbandwidth 60\nclass cbq em0 b root pbandwidth ^50", "over-parent", "4Mbit/s left"),
        ("HEADclass cbq em0 a root pbandwidth ^1 default", "no-control", "2 %"),
        ("HEADclass cbq em0 a root pbandwidth 5\nclass cbq em0 b a borrow ^root pbandwidth 1", "wrong-class", "parent"),
        ("HEADclass cbq em0 a root admission ^some", "bad-value", "cntlload"),
        ("interface em0 cbq\nclass cbq em0 ^r NULL pbandwidth 100 default", "wrong-class", "`no-control`"),
        ("interface em0 cbq no-control\nclass cbq em0 ^r NULL pbandwidth 100 control", "wrong-class", "at most one"),
        ("interface em0 hfsc ^no-tbr", "unknown-word", "`hfsc`"),
        ("interface em0 cbq\nclass cbq em0 ^r NULL", "missing-word", "pbandwidth 100"),
        ("interface ^em0 cbq\nclass cbq em0 r NULL pbandwidth 100", "no-default", "refuses"),
        ("interface ^em0 cbq", "missing-word", "root class"),
        ("FULLfilter em0 ^def2 0 0 0 0 6", "unknown-class", "`def`"),
        ("FULLfilter em0 def 0 0 0 ^0", "missing-value", "PROTO"),
        ("FULLfilter em0 def ruleno 5 ^ruleno 1 0 0 0 0 6", "given-twice", ""),
        ("FULLfilter em0 def name a ^name b 0 0 0 0 6", "given-twice", ""),
        ("FULLfilter em0 def 0 ^65536 0 0 6", "bad-value", "65535"),
        ("FULLfilter em0 def ^example.org 0 0 0 6", "bad-address", "not looked up"),
        ("FULLfilter em0 def 0 0 0 0 6 ^toss 1", "unknown-word", "`tos`"),
        ("FULLfilter em0 def 0 0 0 0 6 tos ^0xff tosmask 0x0f", "match-nothing", ""),
        (
            "FULLclass cbq em0 a root pbandwidth 5\nfilter em0 a 0 25 0 0 6\n^filter em0 a 0 0 0 0 6",
            "shadowed",
            "order problem",
        ),
        (
            "FULLclass cbq em0 a root pbandwidth 5\nclass cbq em0 b root pbandwidth 5\nfilter em0 a 0 25 0 0 0\n\
             ^filter em0 b 10.0.0.1 0 0 0 0",
            "overlap",
            "dontwarn",
        ),
        ("conditioner ^em0 x <pass>", "unknown-interface", "em0"),
        ("FULLconditioner em0 x <drop>\nfilter em0 ^y 0 0 0 0 6", "unknown-class", "`em0`"),
        ("FULLconditioner em0 x <drop>\nconditioner em0 ^x <pass>", "duplicate-name", "two"),
        ("CDNR<tbmeter 6M 64K <mark ^0xb9><drop>>", "out-of-range", "ECN"),
        ("CDNR<^tbmeter 6M <mark 0xb8><drop>>", "missing-value", "bytes"),
        ("CDNR<tbmeter 6M ^0 <pass><drop>>", "out-of-range", "1 to"),
        ("CDNR<tbmeter 6M ^64Kb <pass><drop>>", "bad-value", "bytes"),
        ("CDNR<^trtcm 3M 32K 1M 64K <pass><pass><drop>>", "bad-meter", "below the committed"),
        ("CDNR<^tswtcm 3M 1M 500 <pass><pass><drop>>", "bad-meter", "below the committed"),
        ("CDNR<trtcm 1M 8K 2M 8K <mark 0x28><mark 0x20><drop> ^coloraware>", "not-built", "AFx2"),
        ("CDNR<tbmeter 6M 64K <^shape><drop>>", "unknown-word", "`shape`"),
        ("CDNR<tbmeter 6M 64K <pass>^>", "missing-value", "`<` is missing"),
        ("CDNR<pass> ^drop", "unknown-word", "ends"),
        ("CDNR<tbmeter 1M 16K <conditioner ^y><drop>>", "unknown-class", "`y`"),
        (
            "CDNR<tbmeter 1M 16K <pass><drop>>\nconditioner em0 y <tbmeter 1M 16K <conditioner ^x><drop>>",
            "not-built",
            "twice",
        ),
        ("CDNR<pass>\nconditioner em0 ^x <drop>", "duplicate-name", "two"),
        ("CDNR<pass>\nfilter em0 ^y 0 0 0 0 6", "unknown-class", "`y`"),
        ("CDNR<pass>\nclass ^cbq em0 root NULL pbandwidth 100", "wrong-class", "no discipline"),
        ("CDNR<tbmeter 1M 16K <pass><^mark>>", "missing-value", "TOS"),
        ("interface em0 ^bandwidth 10M\nconditioner em0 x <pass>\nfilter em0 x 0 0 0 0 6", "no-effect", "held back"),
        ("filter ^em0 x 0 0 0 0 0", "unknown-interface", ""),
        ("interface em0 ^\0 cbq", "strange-character", "NUL"),
    ];
    for (text, code, says) in cases {
        let marked = text.replace("HEAD", head).replace("FULL", &full);
        let marked = marked.replace("HFSC", "interface em0 bandwidth 10M hfsc\n");
        let marked = marked.replace("JOBS", "interface em0 jobs\nclass jobs em0 def NULL priority 0 default\n");
        let marked = marked.replace("CDNR", "interface em0\nconditioner em0 x ");
        let marked = marked.replace("PRIQ", "interface em0 bandwidth 10M priq\nclass priq em0 def NULL default\n");
        first(Language::Altq, &marked, code, says);
    }
}

#[test]
fn languages_to_come_say_so() {
    for (language, says) in [(Language::Pf, "pf.conf"), (Language::Tc, "tc script"), (Language::Mqc, "MQC")] {
        first(language, "^anything", "language-not-built", says);
    }
}

#[test]
fn several_errors_in_one_run_but_not_too_many() {
    let text =
        link("class a {\n shar 5%\n priority 9\n bandwidth 3 }\nclass b {\n queue cakes\n borow }\nmatch dport x -> c");
    let (found, _, _) = findings(&text, Language::Native);
    let codes: Vec<&str> = found.iter().map(|finding| finding.code).collect();
    assert_eq!(
        codes,
        ["unknown-word", "out-of-range", "unknown-word", "unknown-word", "unknown-word", "bad-value", "unknown-class"]
    );
    let many = link(&"class a { x }\n".repeat(1000));
    let (found, _, _) = findings(&many, Language::Native);
    assert_eq!(found.len(), MOST_ERRORS + 1);
    assert_eq!(found[MOST_ERRORS].code, "too-many");
}

#[test]
fn deep_nesting_is_an_error_and_no_overflow() {
    let deep = "link l { rate 1Mbit/s scheduler cbq ".to_owned() + &"class a { ".repeat(100_000);
    let (found, ..) = findings(&deep, Language::Native);
    assert_eq!(found[0].code, "too-deep");
    let classes: String = (0..60).map(|n| format!("class c{n} {{ borrow ")).collect();
    let text = format!("link l {{ rate 1Mbit/s scheduler cbq {classes} default {} }}", "}".repeat(60));
    assert!(findings(&text, Language::Native).2);
    let nested: String = (0..9).map(|n| format!("class c{n} {{ borrow scheduler cbq ")).collect();
    let text = format!("link l {{ rate 1Mbit/s scheduler cbq {nested} {} }}", "}".repeat(9));
    let (found, ..) = findings(&text, Language::Native);
    assert_eq!(found[0].code, "too-deep");
}

#[test]
fn ten_megabytes_in_a_line_are_quick_and_shown_short() {
    let long = "x".repeat(10_000_000);
    for (text, language) in [
        (format!("link l {{ rate 1Mbit/s scheduler cbq {long} }}"), Language::Native),
        (format!("link l {{ rate 1Mbit/s scheduler cbq {} zebra }}", "overcommit ".repeat(900_000)), Language::Native),
        (format!("interface em0 cbq {long}"), Language::Altq),
        (format!("interface em0 cbq {}", "a ".repeat(5_000_000)), Language::Altq),
        ("{".repeat(10_000_000), Language::Native),
        ("\0".repeat(10_000_000), Language::Native),
        (format!("link l {{ rate {}bit/s }}", "9".repeat(10_000_000)), Language::Native),
    ] {
        let start = std::time::Instant::now();
        let failed = parse_str(&text, "t", language).unwrap_err();
        let shown = failed.to_string();
        // It takes milliseconds. The limit is in seconds for slow builds on busy machines.
        assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
        assert!(shown.len() < 20_000, "{} bytes shown", shown.len());
        assert!(shown.lines().all(|line| line.chars().count() < 400));
    }
}

#[test]
fn long_lines_are_cut_around_the_caret() {
    let text = format!("link l {{ {} rate 1mbps scheduler cbq }}", "overcommit".to_owned() + &" ".repeat(500));
    let shown = parse_str(&text, "t", Language::Native).unwrap_err().to_string();
    assert!(shown.contains("t:1:526"), "{shown}");
    assert!(shown.contains("…"), "{shown}");
    let line = shown.lines().find(|line| line.contains("1mbps") && line.contains('|')).unwrap();
    let caret = shown.lines().find(|line| line.contains("^^^^^")).unwrap();
    let column = |line: &str, of: &str| line[..line.find(of).unwrap()].chars().count();
    assert_eq!(column(line, "1mbps"), column(caret, "^^^^^"), "{shown}");
}

/// A text that somebody else has sent does not open the files of who reads it.
#[test]
fn a_text_that_stands_alone_includes_no_file() {
    let link = "link l { rate 1Mbit/s  scheduler cbq  class x { share 5%  default } }\n";
    assert!(parse_alone(link, "t", Language::Native).is_ok());
    for name in ["/etc/hostname", "/no/such/file", "/etc/*"] {
        let text = format!("{link}include \"{name}\"\n");
        let failed = parse_alone(&text, "t", Language::Native).unwrap_err();
        let [error] = &failed.diagnostics[..] else { panic!("{failed}") };
        assert_eq!((error.code, error.span.start, failed.sources.texts.len()), ("include-refused", link.len(), 1));
        assert!(error.help.is_some());
    }
}

/// The byte order mark of some editors is no part of the first word, in any language.
#[test]
fn a_byte_order_mark_is_skipped() {
    let altq = "interface em0 bandwidth 10M priq\nclass priq em0 def NULL priority 0 default\n";
    let native = "link l { rate 1Mbit/s  scheduler cbq  class x { share 5%  default } }\n";
    for (text, language) in [(altq, Language::Altq), (native, Language::Native)] {
        for mark in ["", "\u{feff}"] {
            let bytes = format!("{mark}{text}").into_bytes();
            let policy = parse_bytes(Ok(bytes), "t", language).unwrap_or_else(|failed| panic!("{failed}"));
            assert_eq!(policy.sources.texts[0].1, text);
        }
    }
}
