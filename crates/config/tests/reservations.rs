//! The class below which reservations go: how it is read and printed, what it has to give, and
//! where errors are reported.

use std::path::Path;

use altq_config::{Language, Link, load, parse_str, print, protocol, protocol_name};
use altq_engine::units::Rate;

fn parse(text: &str, language: Language) -> Link {
    let policy = parse_str(text, "t", language).unwrap_or_else(|failed| panic!("{failed}\n{text}"));
    policy.links[0].clone()
}

const TEXT: &str = "link l { rate 10Mbit/s mtu 1000 scheduler cbq
    class res { share 40%  borrow
        reservations { buffer 256000bytes  delay 50ms  lifetime 600s  most 30  owner-rate 5%  owner-most 3 }
        class fixed { rate 500kbit/s } }
    class rest { share 60%  borrow  default } }";

#[test]
fn read_and_printed() {
    let link = parse(TEXT, Language::Native);
    let there = link.reservations.as_ref().unwrap();
    assert_eq!(there.class, link.class("res").unwrap());
    assert_eq!((there.delay(), there.lifetime()), (Some(50_000_000), Some(600_000_000_000)));
    assert_eq!((there.most(), there.owner_most()), (30, Some(3)));
    // 5 % of the link.
    assert_eq!(there.owner_rate(), Some(Rate::kbit_s(500)));
    // 4 Mbit/s less what the class below it has.
    assert_eq!((link.reservable(), link.reservation_buffer()), (Rate::kbit_s(3_500), 256_000));
    // All bursts, as many bytes of largest packets, 50 ms at 3.5 Mbit/s, and a packet.
    assert_eq!(link.reservation_room(), 2 * 256_000 + 21_875 + 1_000);
    let policy = parse_str(TEXT, "t", Language::Native).unwrap();
    let printed = print(&policy);
    assert!(printed.left_out.is_empty(), "{:?}", printed.left_out);
    let again = parse(&printed.text, Language::Native);
    let other = again.reservations.as_ref().unwrap();
    assert_eq!((&other.settings, other.class), (&there.settings, there.class));
    assert_eq!(printed.text, print(&parse_str(&printed.text, "t", Language::Native).unwrap()).text);
}

#[test]
fn what_is_not_written() {
    let text = "link l { rate 10Mbit/s mtu 1000 scheduler cbq
        class res { share 40% reservations } class rest { share 60% borrow default } }";
    let link = parse(text, Language::Native);
    let there = link.reservations.as_ref().unwrap();
    assert_eq!((there.delay(), there.lifetime(), there.owner_rate(), there.owner_most()), (None, None, None, None));
    // 50 packets of the MTU; and 4000 bytes.
    assert_eq!((link.reservable(), link.reservation_buffer()), (Rate::mbit_s(4), 50_000));
    // Without a delay a packet waits at most until the buffer has gone.
    assert_eq!(link.reservation_room(), 3 * 50_000 + 1_000);
    let bytes = text.replace("reservations", "reservations queue drop_tail { limit 4000bytes }");
    assert_eq!(parse(&bytes, Language::Native).reservation_buffer(), 4_000);
    // Without the word nothing can be reserved.
    let link = parse(&text.replace("reservations", ""), Language::Native);
    assert!(link.reservations.is_none());
    assert_eq!((link.reservable(), link.reservation_buffer(), link.reservation_room()), (Rate::ZERO, 0, 0));
}

#[test]
fn the_class_of_an_altq_conf() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rsvp.cbq.conf");
    let policy = load(&file, None).unwrap_or_else(|failed| panic!("{failed}"));
    let link = &policy.links[0];
    assert_eq!(link.reservations.as_ref().map(|there| there.class), link.class("res_class"));
    // 40 % of 2 Mbit/s; 30 packets of 9180 bytes.
    assert_eq!((link.reservable(), link.reservation_buffer()), (Rate::kbit_s(800), 30 * 9180));
    let printed = print(&policy).text;
    let native = parse(&printed, Language::Native);
    assert_eq!(native.reservations.map(|there| there.class), link.class("res_class"), "{printed}");
    // Not the root, and not under another discipline.
    let root = "interface em0 bandwidth 10M cbq\nclass cbq em0 root NULL pbandwidth 100 admission cntlload\n\
        class cbq em0 def root pbandwidth 50 default\n";
    let hfsc = "interface em0 bandwidth 10M hfsc\nclass hfsc em0 a root pshare 50 admission cntlload\n\
        class hfsc em0 b root pshare 50 default\n";
    for text in [root, hfsc] {
        let link = parse(text, Language::Altq);
        assert!(link.reservations.is_none(), "{text}");
        assert!(link.notes.iter().any(|note| note.contains("`admission` of") && note.contains("no effect")), "{text}");
    }
}

/// In the texts `^` marks the place of the error.
#[test]
fn refused_with_their_places() {
    let cbq = |words: &str| {
        format!("link l {{ rate 10Mbit/s scheduler cbq class a {{ share 40% {words} }} class b {{ default }} }}")
    };
    for (text, code, says) in [
        (cbq("reservations { buffer ^0 }"), "out-of-range", "1 to"),
        (cbq("reservations { delay ^50 }"), "bad-value", "50ms"),
        (cbq("reservations { ^delay 0ms }"), "out-of-range", "no time"),
        (cbq("reservations { ^lifetime 0s }"), "out-of-range", "is none"),
        (cbq("reservations { most ^0 }"), "out-of-range", "1 to 1000000"),
        (cbq("reservations { ^bufer 1 }"), "unknown-word", "`buffer`"),
        (cbq("reservations { most 1 ^most 2 }"), "given-twice", "`most`"),
        (cbq("reservations ^reservations"), "given-twice", "`reservations`"),
        (cbq("reservations class c { ^reservations }"), "two-reservations", "the second"),
        (cbq("scheduler cbq ^reservations"), "wrong-class", "inside a class"),
        (cbq("scheduler cbq class c { share 1% ^reservations }"), "wrong-class", "inside a class"),
        (
            cbq("reservations { ^delay 5ms }").replace("scheduler cbq", "scheduler cbq { estimator classic }"),
            "no-bound",
            "no delay",
        ),
        (
            "link l { rate 10Mbit/s scheduler drr class a { ^reservations } class b { default } }".to_owned(),
            "wrong-scheduler",
            "cbq",
        ),
    ] {
        let at = text.find('^').unwrap();
        let failed = parse_str(&text.replacen('^', "", 1), "t.altq", Language::Native).map(|_| ()).expect_err(&text);
        let first = &failed.diagnostics[0];
        assert_eq!((first.code, first.span.start), (code, at), "{}\n{text}", first.message);
        let whole = format!("{} {}", first.message, first.help.clone().unwrap_or_default());
        assert!(whole.contains(says), "`{says}` is not in: {whole}");
    }
    let nothing = "link l { rate 10Mbit/s scheduler cbq class a { borrow reservations } class b { default borrow } }";
    let policy = parse_str(nothing, "t", Language::Native).unwrap();
    assert!(policy.warnings.iter().any(|warning| warning.code == "nothing-to-reserve"), "{:?}", policy.warnings);
}

#[test]
fn protocols_by_name_and_number() {
    assert_eq!((protocol("udp"), protocol("17"), protocol("200")), (Some(17), Some(17), Some(200)));
    assert_eq!((protocol("256"), protocol("+17"), protocol(""), protocol("UDP")), (None, None, None, None));
    assert_eq!((protocol_name(17), protocol_name(58), protocol_name(200)), (Some("udp"), Some("icmpv6"), None));
}
