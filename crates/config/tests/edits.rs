//! One thing of a policy's text is changed: all other bytes stay, and what comes out is the policy
//! that was meant.

use altq_config::{Edit, Language, Policy, differences, edit, edit_of, parse_str};

const POLICY: &str = "# The office.
set lan { 10.0.0.0/8 }   # ours

link wan {
    rate 100Mbit/s
    scheduler cbq   # with estimator exact

    class voice { share 5%   priority 7  queue codel { target 5ms } }   # calls
    class work  {
        share 50%  borrow
        # The inner classes.
        class web { share 30%  borrow }  # pages
        class mail { share 20% }
    }
    class rest { share 40%  borrow  default }

    match dscp ef,va        -> voice  # marked
    match src lan proto tcp dport 80,443
        -> web
}
link lan { rate 10Mbit/s scheduler drr class all { default } }
";

fn read(text: &str) -> Policy {
    parse_str(text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// The policy after an edit, which is one.
fn changed(link: &str, what: &Edit) -> String {
    let text = edit(POLICY, link, what).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(edit_of(POLICY, read(POLICY).link(link).unwrap(), what).as_ref(), Ok(&text));
    read(&text);
    text
}

/// What the edit has changed in the link `wan`.
fn found(text: &str) -> Vec<String> {
    differences(read(POLICY).link("wan").unwrap(), read(text).link("wan").unwrap())
}

fn set(class: &str, words: &str) -> Edit {
    Edit::SetClass { class: class.into(), words: words.into() }
}

#[test]
fn words_of_a_class_are_changed_where_they_stand() {
    for (class, words, before, after) in [
        ("voice", "share 6%", "share 5% ", "share 6% "),
        ("voice", "rate 6Mbit/s", "share 5% ", "rate 6Mbit/s "),
        ("voice", "queue red { limit 20packets }", "queue codel { target 5ms }", "queue red { limit 20packets }"),
        ("voice", "borrow", "{ target 5ms } }", "{ target 5ms }  borrow }"),
        ("voice", "no queue", "  queue codel { target 5ms }", ""),
        ("web", "no borrow share 25%", "{ share 30%  borrow }", "{ share 25% }"),
        ("work", "ceiling 60Mbit/s share 52%", "share 50%  borrow\n", "share 52%  borrow  ceiling 60Mbit/s\n"),
    ] {
        assert_eq!(POLICY.matches(before).count(), 1, "{before}");
        assert_eq!(changed("wan", &set(class, words)), POLICY.replace(before, after), "{class}: {words}");
    }
    assert_eq!(found(&changed("wan", &set("voice", "share 6%"))), ["class voice: rate 6Mbit/s, before rate 5Mbit/s"]);
    assert_eq!(changed("lan", &set("all", "quantum 500")), POLICY.replace("{ default }", "{ default  quantum 500 }"));
}

#[test]
fn classes_and_rules_come_and_go_with_their_lines() {
    let add = |below: Option<&str>, words: &str| Edit::AddClass {
        class: "new".into(),
        below: below.map(str::to_owned),
        words: words.into(),
    };
    let rest = "    class rest { share 40%  borrow  default }\n";
    let text = changed("wan", &add(None, "share 2%"));
    assert_eq!(text, POLICY.replace(rest, &format!("{rest}    class new {{ share 2% }}\n")));
    let mail = "        class mail { share 20% }\n";
    let text = changed("wan", &add(Some("work"), "rate 0bit/s"));
    assert_eq!(text, POLICY.replace(mail, &format!("{mail}        class new {{ rate 0bit/s }}\n")));
    let text = changed("wan", &add(Some("voice"), "share 1%"));
    assert_eq!(text, POLICY.replace("{ target 5ms } }", "{ target 5ms } class new { share 1% } }"));
    assert_eq!(changed("wan", &Edit::RemoveClass { class: "mail".into() }), POLICY.replace(mail, ""));
    let rule = |rule: &str, last: bool| Edit::AddRule { rule: rule.into(), last };
    let marked = "    match dscp ef,va ";
    let text = changed("wan", &rule("dport 5060 -> voice", false));
    assert_eq!(text, POLICY.replace(marked, &format!("    match dport 5060 -> voice\n{marked}")));
    let text = changed("wan", &rule("match dport 5060 -> voice", true));
    assert_eq!(text, POLICY.replace("-> web\n", "-> web\n    match dport 5060 -> voice\n"));
    let text = changed("lan", &rule("dport 5060 -> all", true));
    assert_eq!(text, POLICY.replace("{ default } }", "{ default }  match dport 5060 -> all }"));
    let remove = |rule: &str| Edit::RemoveRule { rule: rule.into() };
    let line = "    match dscp ef,va        -> voice  # marked\n";
    assert_eq!(changed("wan", &remove("dscp ef , va -> voice")), POLICY.replace(line, ""));
    let lines = "    match src lan proto tcp dport 80,443\n        -> web\n";
    assert_eq!(changed("wan", &remove("match src lan proto tcp dport 80,443 -> web")), POLICY.replace(lines, ""));
}

#[test]
fn what_cannot_be_changed_is_said() {
    let add = |class: &str, words: &str| Edit::AddClass { class: class.into(), below: None, words: words.into() };
    let rule = |rule: &str| Edit::AddRule { rule: rule.into(), last: false };
    for (link, what, why) in [
        ("dsl", set("voice", "share 1%"), "no link `dsl`"),
        ("wan", set("all", "share 1%"), "no class `all`"),
        ("wan", set("voice", "shares 1%"), "does not know `shares`"),
        ("wan", set("voice", ""), "no words"),
        ("wan", set("voice", "no ceiling"), "has no `ceiling`"),
        ("wan", set("voice", "share 1% } class evil { share 1%"), ""),
        ("wan", set("voice", "share 1% # and"), "'#'"),
        ("wan", set("voice", "share 1%\nborrow"), "'\\n'"),
        ("wan", set("voice", "class x { }"), ""),
        ("wan", add("voice", "share 1%"), "has a class `voice`"),
        ("wan", add("x", "share 1% }"), ""),
        ("wan", Edit::AddClass { class: "x".into(), below: Some("no".into()), words: String::new() }, "no class `no`"),
        ("wan", Edit::RemoveClass { class: "work".into() }, "classes below it"),
        ("wan", rule("dport 80"), "no rule"),
        ("wan", rule("dport 80 -> voice match all -> rest"), "no rule"),
        ("wan", rule("dport 80 -> voice } link x {"), ""),
        ("wan", Edit::RemoveRule { rule: "dport 1 -> voice".into() }, "no rule `match dport 1 -> voice`"),
    ] {
        let wrong = edit(POLICY, link, &what).expect_err(&format!("{what:?}"));
        if let Some(link) = read(POLICY).link(link) {
            assert_eq!(edit_of(POLICY, link, &what), Err(wrong.clone()), "{what:?}");
        }
        assert!(wrong.to_string().contains(why), "{what:?}: {wrong}");
    }
    // What reads as words but is no policy is found when the text is read.
    let text = edit(POLICY, "wan", &set("voice", "share 60%")).unwrap();
    assert!(parse_str(&text, "test.altq", Language::Native).is_err());
}

/// A text whose lines end as on Windows keeps such ends, and no line is left empty or joined.
#[test]
fn line_ends_stay_what_they_are() {
    let crlf = POLICY.replace('\n', "\r\n");
    let rule = "match dport 22 -> rest".to_owned();
    for what in [
        Edit::RemoveClass { class: "mail".into() },
        Edit::AddRule { rule: rule.clone(), last: true },
        Edit::AddRule { rule, last: false },
        set("voice", "borrow"),
        set("work", "no borrow share 55%"),
    ] {
        let after = edit(&crlf, "wan", &what).unwrap_or_else(|wrong| panic!("{what:?}: {wrong}"));
        assert_eq!(after, changed("wan", &what).replace('\n', "\r\n"), "{what:?}");
    }
}

/// Another word takes the place behind the last one also if that is removed in the same edit.
#[test]
fn the_last_word_goes_and_another_one_comes() {
    let text = "link wan {\nrate 10Mbit/s\nscheduler cbq\nclass a {\nshare 5%\npriority 3\nclass b { }\n}\n\
                class rest { default }\n}\n";
    let after = edit(text, "wan", &set("a", "no priority borrow")).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(after, text.replace("priority 3\n", "").replace("share 5%", "share 5%  borrow"));
    read(&after);
}
