//! Curves in the native language, and what `check` says about them.

use altq_config::{Diagnostic, Language, Link, Policy, Promises, Severity, Sources, advice, parse_str, print};
use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::units::Rate;

fn parse(text: &str) -> Policy {
    parse_str(text, "t.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"))
}

fn link(inside: &str) -> String {
    format!("link l {{\n  rate 10Mbit/s\n  scheduler hfsc\n{inside}\n}}\n")
}

fn curve(link: &Link, class: &str, word: &str) -> Option<ServiceCurve> {
    link.spec.classes[link.class(class).unwrap() as usize].settings.curve(word)
}

const POLICY: &str = "
    class voice { realtime 2Mbit/s for 5ms then 64kbit/s  linkshare 1% }
    class office { linkshare 50%
        class web  { linkshare 60% of parent  upperlimit 4 Mbit/s }
        class bulk { linkshare 20% for 1.5 s then 40% of parent  default }
    }
    class late { realtime 0bit/s for 250us then 10% of link }";

#[test]
fn curves_are_read() {
    let policy = parse(&link(POLICY));
    let link = &policy.links[0];
    let bent = |first, until, then| Some(ServiceCurve { first: Rate::bit_s(first), until, then: Rate::bit_s(then) });
    let line = |rate| Some(ServiceCurve::linear(Rate::bit_s(rate)));
    assert_eq!(curve(link, "voice", "realtime"), bent(2_000_000, 5_000_000, 64_000));
    assert_eq!(curve(link, "voice", "linkshare"), line(100_000));
    assert_eq!(curve(link, "voice", "upperlimit"), None);
    // 60 and 40 % of 5 Mbit/s.
    assert_eq!(curve(link, "web", "linkshare"), line(3_000_000));
    assert_eq!(curve(link, "web", "upperlimit"), line(4_000_000));
    assert_eq!(curve(link, "bulk", "linkshare"), bent(2_000_000, 1_500_000_000, 2_000_000));
    assert_eq!(curve(link, "late", "realtime"), bent(0, 250_000, 1_000_000));
    let rate = |class: &str| link.guarantee(link.class(class).unwrap()).unwrap();
    assert_eq!([rate("voice"), rate("web"), rate("late")], [Rate::kbit_s(100), Rate::mbit_s(3), Rate::mbit_s(1)]);
    assert_eq!(link.ceiling(link.class("web").unwrap()), Rate::mbit_s(4));
    assert!(policy.warnings.is_empty(), "{:?}", policy.warnings);
}

#[test]
fn curves_come_back_as_they_are() {
    let policy = parse(&link(POLICY));
    let printed = print(&policy);
    assert!(printed.left_out.is_empty());
    assert!(printed.text.contains("realtime 2Mbit/s for 5ms then 64kbit/s"), "{}", printed.text);
    let again = parse(&printed.text);
    let settings = |policy: &Policy| -> Vec<_> {
        policy.links[0].spec.classes.iter().map(|class| class.settings.clone()).collect()
    };
    assert_eq!(settings(&policy), settings(&again));
}

fn findings(text: &str) -> (Vec<Diagnostic>, Sources, bool) {
    match parse_str(text, "t", Language::Native) {
        Ok(policy) => (policy.warnings, policy.sources, true),
        Err(failed) => (failed.diagnostics, failed.sources, false),
    }
}

/// In the texts `^` marks the place of the first finding.
#[test]
fn each_error_has_its_place() {
    for (inside, code, says) in [
        ("class a { realtime 2Mbit/s for 5ms ^linkshare 5% }", "missing-value", "`then`"),
        ("class a { realtime 2Mbit/s for ^5ms }", "missing-value", "`then`"),
        ("class a { realtime 2Mbit/s ^for }", "missing-value", "a time, as 5ms"),
        ("class a { realtime 2Mbit/s for 5ms ^then }", "missing-value", "a rate"),
        ("class a { realtime 2Mbit/s for ^5 then 1Mbit/s }", "bad-value", "5ms"),
        ("class a { realtime 2Mbit/s for ^0ms then 1Mbit/s }", "out-of-range", "no time"),
        ("class a { realtime 2Mbit/s for 5ms then ^1mbps }", "bad-value", "8Mbit/s"),
        ("class a { linkshare ^110% }", "over-100-percent", "more than 100"),
        ("class a { ^realtime 2Mbit/s for 5ms then 0bit/s }", "refused", "never again"),
        ("class a { linkshare 5% ^upperlimit 0bit/s }", "refused", "0bit/s"),
        ("class ^a { default }", "refused", "`linkshare` or `realtime`"),
        ("class a { linkshare 5% ^rate 5% }", "unknown-word", "hfsc"),
        ("class a { linkshare 5% linkshare 5% }", "given-twice", "twice"),
        // Sums. 6 + 4.5 Mbit/s for 5 ms.
        (
            "class a { realtime 6Mbit/s }\nclass b { ^realtime 4500kbit/s for 5ms then 1Mbit/s }",
            "over-100-percent",
            "10500kbit/s in the first 5ms",
        ),
        ("class a { linkshare 60% }\nclass b { ^linkshare 41% }", "over-100-percent", "10100kbit/s"),
        (
            "class a { linkshare 50%\nclass b { linkshare 30% }\nclass c { ^linkshare 21% } }",
            "over-parent",
            "5100kbit/s",
        ),
        ("class a { linkshare 50% realtime 2Mbit/s\nclass b { ^realtime 3Mbit/s } }", "over-parent", "3Mbit/s"),
        (
            "class a { realtime 1Mbit/s\nclass b { realtime 1Mbit/s ^linkshare 5% } }",
            "no-share",
            "`a` has no `linkshare`",
        ),
        // Words that contradict each other.
        ("class a { linkshare 50% realtime 2Mbit/s ^upperlimit 1Mbit/s }", "limit-below-realtime", "not hold back"),
        ("class a { linkshare 50% ^upperlimit 11Mbit/s }", "out-of-range", "10Mbit/s"),
        ("class a { realtime 2Mbit/s ^upperlimit 3Mbit/s }", "no-effect", "deadline only"),
    ] {
        let marked = link(inside);
        // Without a mark, the finding is at the second of two words.
        let at = marked.find('^').unwrap_or_else(|| marked.rfind("linkshare").unwrap());
        let text = marked.replacen('^', "", 1);
        let (found, sources, ok) = findings(&text);
        let Some(first) = found.first() else { panic!("nothing was found in:\n{text}") };
        assert_eq!(ok, first.severity == Severity::Warning, "{text}");
        assert_eq!((first.code, first.span.start), (code, at), "{}\n{text}", first.message);
        let before = &text[..at];
        let place = (before.matches('\n').count() + 1, before.rsplit('\n').next().unwrap_or("").len() + 1);
        assert_eq!(sources.line_column(first.span), place);
        let whole = format!("{} {}", first.message, first.help.clone().unwrap_or_default());
        assert!(whole.contains(says), "`{says}` is not in: {whole}");
    }
}

#[test]
fn what_is_only_worth_a_warning() {
    for (text, code) in [
        (link("overcommit class a { realtime 6Mbit/s } class b { realtime 5Mbit/s default }"), "over-100-percent"),
        (link("class a { linkshare 50% realtime 2Mbit/s class b { linkshare 5% default } }"), "no-effect"),
    ] {
        let codes: Vec<&str> = parse(&text).warnings.iter().map(|warning| warning.code).collect();
        assert_eq!(codes, [code], "{text}");
    }
    // Curves that fill the link exactly at all times are accepted: 8 + 2 Mbit/s, then 1 + 9.
    let text = link(
        "class a { realtime 8Mbit/s for 5ms then 1Mbit/s }
         class b { realtime 2Mbit/s for 5ms then 9Mbit/s  linkshare 100%  default }",
    );
    assert!(parse(&text).warnings.is_empty());
}

/// In a class of another scheduler the sum of the curves may not exceed what that class is
/// guaranteed.
#[test]
fn inside_of_another_scheduler() {
    let text = |share: u32| {
        format!(
            "link l {{ rate 10Mbit/s scheduler cbq
               class a {{ share 40% scheduler hfsc  class b {{ linkshare {share}% of parent realtime 1Mbit/s default \
               }} }}
               class c {{ share 60% }} }}"
        )
    };
    assert_eq!(curve(&parse(&text(100)).links[0], "b", "linkshare"), Some(ServiceCurve::linear(Rate::mbit_s(4))));
    let over = text(50).replace("realtime 1Mbit/s", "realtime 5Mbit/s");
    assert_eq!(findings(&over).0.first().map(|first| first.code), Some("over-parent"));
}

/// `linkshare` is what deadlines leave of it; the words of each kind fit by themselves.
#[test]
fn what_deadlines_leave_is_what_is_guaranteed() {
    let guaranteed = |inside: &str| -> (Vec<u64>, Vec<String>) {
        let policy = parse(&link(inside));
        let link = &policy.links[0];
        let promises = Promises::new(link);
        let rates = (1..link.spec.classes.len() as u32).map(|class| promises.guaranteed(class).unwrap().as_bit_s());
        let said = advice(link).into_iter().filter(|found| found.code == "less-than-asked");
        (rates.map(|rate| rate / 1000).collect(), said.map(|found| found.message).collect())
    };
    let (rates, said) = guaranteed("class voice { realtime 8Mbit/s } class data { linkshare 100% default }");
    assert_eq!((rates, said.len()), (vec![8000, 2000], 1));
    assert_eq!(said, ["while all classes have packets, `data` has 2Mbit/s of its 10Mbit/s"]);
    // What goes by deadline counts in the share: both fit.
    let both = "class voice { realtime 2Mbit/s linkshare 2Mbit/s } class data { linkshare 8Mbit/s default }";
    assert_eq!(guaranteed(both), (vec![2000, 8000], Vec::new()));
    // In a tree: 6 of 10 go by deadline, and the office's 4 are divided 3 to 2.
    let tree = "class late { realtime 6Mbit/s }
        class office { linkshare 5Mbit/s class web { linkshare 3Mbit/s } class bulk { linkshare 2Mbit/s default } }";
    let (rates, said) = guaranteed(tree);
    assert_eq!((rates, said.len()), (vec![6000, 4000, 2400, 1600], 1));
    // With `overcommit` the delay says it.
    let over = "overcommit class voice { realtime 8Mbit/s } class data { linkshare 100% default }";
    assert_eq!(guaranteed(over), (vec![8000, 10_000], Vec::new()));
}
