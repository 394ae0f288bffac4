//! What `check` says of classes that get no packets, and of rules that an earlier one takes packets
//! from.

use altq_config::{Diagnostic, Language, Policy, parse_str};

fn policy(text: &str, language: Language) -> Policy {
    parse_str(text, "t", language).unwrap_or_else(|failed| panic!("{failed}\n{text}"))
}

/// The warnings with one of these codes.
fn found(text: &str, language: Language, codes: &[&str]) -> Vec<Diagnostic> {
    policy(text, language).warnings.into_iter().filter(|warning| codes.contains(&warning.code)).collect()
}

const RULES: [&str; 3] = ["shadowed", "partly-shadowed", "not-compared"];

/// A link whose first caret marks the place of the only warning, and whose second that of its
/// label. The carets are removed before the text is read.
#[track_caller]
fn only(inside: &str, code: &str, says: &[&str], silent: &[&str]) {
    let marked = link(inside);
    let places: Vec<usize> = marked.match_indices('^').enumerate().map(|(n, (at, _))| at - n).collect();
    let text = marked.replace('^', "");
    let found = found(&text, Language::Native, &RULES);
    let [warning] = &found[..] else { panic!("{found:?}\n{text}") };
    let labels: Vec<usize> = warning.labels.iter().map(|(span, _)| span.start).collect();
    // The warning is at the later rule, which stands behind the rule of the label.
    let (last, others) = places.split_last().expect("a mark");
    assert_eq!((warning.code, warning.span.start, &labels[..]), (code, *last, others), "{}", warning.message);
    for part in says {
        assert!(warning.message.contains(part), "{part} is not in: {}", warning.message);
    }
    for part in silent {
        assert!(!warning.message.contains(part), "{part} is in: {}", warning.message);
    }
    assert!(warning.help.is_some());
}

fn link(inside: &str) -> String {
    format!(
        "link l {{ rate 10Mbit/s scheduler cbq\nclass a {{ share 10% }} class b {{ share 10% }} class c {{ share 10% \
         default }}\n{inside}\n}}"
    )
}

#[test]
fn a_rule_that_an_earlier_one_takes_an_address_from() {
    only(
        "^match src 10.0.0.0/8 -> a\n^match src 10.1.0.5,2001:db8:5::/64 -> b",
        "partly-shadowed",
        &["a part of this rule", "packets from 10.1.0.5 go to `a` before"],
        &["2001:db8"],
    );
    only(
        "^match src 2001:db8:1::/48 -> a\nmatch src 192.0.2.1 -> b\n^match src 192.0.2.7,2001:db8:1:5::/64 -> b",
        "partly-shadowed",
        &["packets from 2001:db8:1:5::/64 go to `a` before"],
        &["192.0.2.7"],
    );
    only(
        "^match host 10.0.0.0/8 -> a\n^match host 10.1.0.5,192.0.2.1 proto tcp -> b",
        "partly-shadowed",
        &["from or to 10.1.0.5"],
        &["192.0.2.1"],
    );
    only(
        "^match host 10.0.0.0/8 -> a\n^match src 10.1.0.5,192.0.2.1 -> b",
        "partly-shadowed",
        &["packets from 10.1.0.5 go to `a` before"],
        &["192.0.2.1"],
    );
    // More than three addresses are counted; and each rule that takes some is named.
    only(
        "^match dst 10.0.0.0/8 -> a\n^match dst 192.0.2.0/24 -> b\n\
         ^match dst 10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5,192.0.2.1,198.51.100.1 -> c",
        "partly-shadowed",
        &["to 10.0.0.1, 10.0.0.2, 10.0.0.3, 2 more go to `a`", "to 192.0.2.1 go to `b`"],
        &["198.51.100.1", "10.0.0.4"],
    );
}

#[test]
fn a_rule_that_several_earlier_ones_take_all_from() {
    only(
        "^match src 10.0.0.0/8 -> a\n^match src 2001:db8::/32 -> b\n^match src 10.1.0.5,2001:db8:5::/64 dport 80 -> c",
        "shadowed",
        &["this rule never decides", "packets from 10.1.0.5 go to `a`", "2001:db8:5::/64 go to `b`"],
        &["a part"],
    );
    // One rule alone, by the term of which the index has the fewest.
    only(
        "match src 10.0.0.0/8 dport 443 -> b\n^match src 10.0.0.0/8 dport 80 -> a\n\
         ^match src 10.1.0.0/16,10.2.0.0/16 proto tcp dport 80 -> c",
        "shadowed",
        &["every packet that it matches goes to `a` before"],
        &[],
    );
    // What excludes values is found too.
    only("^match dport !443 -> a\n^match dport 80-90 -> b", "shadowed", &["goes to `a`"], &[]);
    only("^match length 0-1000 -> a\n^match length 0-128 proto udp -> b", "shadowed", &["goes to `a`"], &[]);
}

#[test]
fn rules_that_leave_each_other_their_packets() {
    for inside in [
        // The narrower rule is first.
        "match src 10.1.0.5 -> a\nmatch src 10.0.0.0/8,2001:db8::/32 -> b",
        // The earlier rule asks for more.
        "match src 10.0.0.0/8 dport 80 -> a\nmatch src 10.1.0.5,2001:db8:5::/64 -> b",
        "match src 10.0.0.0/8,!10.1.0.0/16 -> a\nmatch src 10.1.0.5,2001:db8:5::/64 -> b",
        // Both lead to the same class.
        "match src 10.0.0.0/8 -> a\nmatch src 10.1.0.5,2001:db8:5::/64 -> a",
        // The other direction.
        "match dst 10.0.0.0/8 -> a\nmatch src 10.1.0.5,2001:db8:5::/64 -> b",
    ] {
        let found = found(&link(inside), Language::Native, &RULES);
        assert!(found.is_empty(), "{inside}: {found:?}");
    }
}

/// 20,000 subscribers with an address and a prefix each, below a prefix that takes every hundredth
/// of them: all are compared.
#[test]
fn many_rules_are_all_compared() {
    let mut inside = String::from("match src 2001:db8:0:0::/56 -> a\nmatch dscp ef dport 5060 -> b\n");
    for n in 0..20_000_u32 {
        let (high, low) = (n / 256, n % 256);
        let net = if n % 100 == 0 { n / 100 % 256 } else { 256 + n };
        inside += &format!("match src 10.{}.{}.{low},2001:db8:0:{net:x}::/64 -> c\n", high / 256, high % 256);
    }
    let found = found(&link(&inside), Language::Native, &["shadowed", "not-compared"]);
    assert!(found.is_empty(), "{found:?}");
    let partly = self::found(&link(&inside), Language::Native, &["partly-shadowed"]);
    assert_eq!(partly.len(), 200);
    assert!(partly.iter().all(|warning| warning.message.contains("2001:db8:") && !warning.message.contains("10.0.")));
}

/// The names of the classes to which, `check` says, nothing leads.
fn unreached(text: &str, language: Language) -> Vec<String> {
    let policy = policy(text, language);
    let never = policy.warnings.iter().filter(|warning| warning.code == "never-reached");
    never.map(|warning| policy.sources.slice(warning.span).to_owned()).collect()
}

#[test]
fn classes_to_which_nothing_leads() {
    for (inside, expected) in [
        ("class a { share 5% } class b { share 5% default } match dport 80 -> b", &["a"][..]),
        ("class a { share 5% } class b { share 5% default } match dport 80 -> a", &[]),
        // An inner class is no leaf, and what leads to it does not lead to the classes in it.
        (
            "class a { share 9% class b { share 5% } class c { share 4% } } class d { default } match dport 80 -> b",
            &["c"],
        ),
        ("class a { share 9% class b { share 5% } } class d { default } match dport 80 -> a", &["b"]),
        // A class that holds a scheduler.
        ("class a { share 9% scheduler drr class b { } class c { } } class d { default } match dport 80 -> c", &["b"]),
        // Reservations come into it while the link runs.
        ("class a { share 5% reservations } class b { share 5% default } match dport 80 -> b", &[]),
        // Subscribers come below it, in the same way.
        ("class subscribers { share 5% } class b { share 5% default } match dport 80 -> b", &[]),
        // Nobody wrote a rule: packets come classified.
        ("class a { share 5% } class b { share 5% default }", &[]),
        ("class a { share 5% } class b { share 5% }", &[]),
    ] {
        let text = format!("link l {{ rate 10Mbit/s scheduler cbq {inside} }}");
        assert_eq!(unreached(&text, Language::Native), expected, "{inside}");
    }
    // On a device nobody classifies packets but the rules.
    for device in ["device eth0", "device bridge a b"] {
        let text = format!(
            "link l {{ {device} rate 10Mbit/s scheduler cbq class a {{ share 5% }} class subscribers {{ share 5% }} \
             class b {{ share 5% default }} }}"
        );
        assert_eq!(unreached(&text, Language::Native), ["a"], "{device}");
    }
    // The rules of a control class are not the author's.
    let control = "link l { rate 10Mbit/s scheduler cbq { estimator classic } class a { share 5% } \
                   class c { share 2% control } class b { share 5% default } RULE }";
    assert_eq!(unreached(&control.replace("RULE", ""), Language::Native), [""; 0]);
    assert_eq!(unreached(&control.replace("RULE", "match dport 80 -> b"), Language::Native), ["a"]);
}

#[test]
fn classes_of_an_altq_conf_to_which_nothing_leads() {
    let text = "interface em0 bandwidth 10M cbq\nclass cbq em0 root NULL pbandwidth 100\n\
                class cbq em0 def root borrow pbandwidth 20 default\nclass cbq em0 a root pbandwidth 10\n\
                class cbq em0 b root pbandwidth 10\n";
    // Only the control class has filters, which altqd makes.
    assert_eq!(unreached(text, Language::Altq), [""; 0]);
    let filtered = format!("{text}filter em0 a 0 80 0 0 6\n");
    assert_eq!(unreached(&filtered, Language::Altq), ["b"]);
    let found = found(&filtered, Language::Altq, &["never-reached"]);
    assert!(found[0].help.as_deref().is_some_and(|help| help.contains("`filter`")), "{found:?}");
}
