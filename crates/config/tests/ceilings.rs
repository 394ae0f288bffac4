//! Words that hold a class below what others guarantee it: a warning with its place, the other
//! word, and the way out.

use altq_config::diagnostic::Severity;
use altq_config::{Language, parse_str};

/// The warnings of a policy whose first caret marks the place of the only one, and whose second
/// one, if there is one, that of its label.
fn only(inside: &str, says: &[&str]) {
    let marked = format!("link l {{ rate 10Mbit/s {inside} }}");
    let first = marked.find('^').expect("a caret");
    let rest = marked.replacen('^', "", 1);
    let label = rest.find('~');
    let text = rest.replacen('~', "", 1);
    let first = first - usize::from(label.is_some_and(|label| label < first));
    let policy = parse_str(&text, "t.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
    let found: Vec<_> = policy.warnings.iter().filter(|warning| warning.code == "guarantee-above-ceiling").collect();
    assert_eq!(found.len(), 1, "{text}");
    assert_eq!((found[0].severity, found[0].span.start), (Severity::Warning, first), "{text}");
    assert_eq!(found[0].labels.first().map(|(span, _)| span.start), label, "{text}");
    let whole = format!("{} {}", found[0].message, found[0].help.clone().unwrap_or_default());
    for says in says {
        assert!(whole.contains(says), "`{says}` is not in: {whole}");
    }
}

#[test]
fn a_class_that_is_held_below_its_guarantee() {
    only("scheduler wfq class a { ~bandwidth 5Mbit/s ^police 1Mbit/s default }", &["`police`", "1Mbit/s", "raise"]);
    only("scheduler wfq class a { ^shape 1Mbit/s ~bandwidth 5Mbit/s default }", &["`shape`", "5Mbit/s"]);
    only("scheduler wfq class a { ~low-latency 3Mbit/s ^police 1Mbit/s default }", &["`police`"]);
    only("scheduler hfsc class a { ~linkshare 5Mbit/s ^upperlimit 2Mbit/s default }", &["`upperlimit`", "2Mbit/s"]);
    only("scheduler cbq class a { ~share 50% ^meter bucket { cir 1Mbit/s cbs 3000 red drop } default }", &["`meter`"]);
    only(
        "scheduler htb class a { ~rate 5Mbit/s ^meter bucket { cir 1Mbit/s cbs 3000 red drop } default }",
        &["can count on 1Mbit/s"],
    );
}

#[test]
fn a_meter_of_the_link_below_what_its_classes_are_guaranteed() {
    only(
        "^meter bucket { cir 8Mbit/s cbs 3000 red drop } scheduler cbq class a { share 50% } class b { share 40% \
         default }",
        &["9Mbit/s together", "8Mbit/s"],
    );
}

#[test]
fn words_that_agree_are_no_news() {
    for inside in [
        "scheduler wfq class a { bandwidth 1Mbit/s police 5Mbit/s default }",
        "scheduler cbq class a { share 50% meter bucket { cir 1Mbit/s cbs 3000 red dscp le } default }",
        "meter bucket { cir 9Mbit/s cbs 3000 red drop } scheduler cbq class a { share 90% default }",
        "scheduler hfsc class a { realtime 1Mbit/s default }",
    ] {
        let text = format!("link l {{ rate 10Mbit/s {inside} }}");
        let policy = parse_str(&text, "t.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
        let codes: Vec<_> = policy.warnings.iter().map(|warning| warning.code).collect();
        assert!(!codes.contains(&"guarantee-above-ceiling"), "{text}: {codes:?}");
    }
}

/// The warnings about words without an effect, each with the text at its place.
fn without_effect(text: &str) -> Vec<(String, String)> {
    let policy = parse_str(text, "t.altq", Language::Native).unwrap_or_else(|failed| panic!("{text}: {failed}"));
    let found = policy.warnings.iter().filter(|warning| warning.code == "no-effect");
    found.map(|found| (policy.sources.slice(found.span).to_owned(), found.message.clone())).collect()
}

#[test]
fn a_ceiling_that_is_never_reached() {
    for (scheduler, class, word, says) in [
        ("cbq", "class b { share 50% borrow ceiling 500Mbit/s default }", "ceiling", "500Mbit/s"),
        ("wfq", "class b { bandwidth 50% shape 500Mbit/s default }", "shape", "100Mbit/s at most"),
        ("wfq", "class b { bandwidth 50% police 101Mbit/s default }", "police", "100Mbit/s at most"),
        ("htb", "class b { rate 50Mbit/s ceil 500Mbit/s default }", "ceil", "100Mbit/s at most"),
        // Above the class around it, which may not borrow.
        ("cbq", "class a { share 30% class b { share 9% borrow ceiling 31Mbit/s default } }", "ceiling", "30Mbit/s at"),
    ] {
        let found = without_effect(&format!("link l {{ rate 100Mbit/s scheduler {scheduler} {class} }}"));
        let [(place, message)] = &found[..] else { panic!("{class}: {found:?}") };
        assert!(place == word && message.contains("`b` never has") && message.contains(says), "{place}: {message}");
    }
    for inside in [
        "rate 100Mbit/s scheduler cbq class b { share 50% borrow ceiling 100Mbit/s default }",
        "rate 99Mbit/s scheduler cbq class a { share 9% borrow class b { share 5% borrow ceiling 31Mbit/s default } }",
        // A link whose rate may rise.
        "rate 50Mbit/s adapt { from 5Mbit/s to 100Mbit/s reflectors { 9.9.9.9 149.112.112.112 1.1.1.1 } } \
         scheduler cbq class b { share 50% borrow ceiling 80Mbit/s default }",
    ] {
        let found = without_effect(&format!("link l {{ {inside} }}"));
        assert!(found.is_empty(), "{inside}: {found:?}");
    }
}
