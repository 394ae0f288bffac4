use proptest::prelude::*;

use super::*;

fn reads(text: &str) -> Request {
    read(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error:?}")).request
}

fn fails(text: &str) -> Fault {
    match read(text.as_bytes()) {
        Err((_, fault)) => fault,
        Ok(asked) => panic!("{text} is read as {asked:?}"),
    }
}

#[test]
fn requests_are_read() {
    assert_eq!(reads(r#"{"op":"status"}"#), Request::Status);
    assert_eq!(reads(r#"{"op":"verify"}"#), Request::Change(Change::Runs));
    let asked = read(br#"{"v":1,"id":18446744073709551615,"op":"status"}"#).unwrap();
    assert_eq!(asked, Asked { id: Some(u64::MAX), request: Request::Status });
    let stat = |form| Request::Stat { link: None, form };
    assert_eq!(reads(r#"{"op":"stat"}"#), stat(Form::Json { waited: false }));
    assert_eq!(reads(r#"{"op":"stat","waited":true}"#), stat(Form::Json { waited: true }));
    assert_eq!(reads(r#"{"op":"stat","format":"table","width":80}"#), stat(Form::Table { width: Some(80) }));
    assert_eq!(reads(r#"{"op":"stat","format":"tc-names"}"#), stat(Form::Tool("tc-names".into())));
    assert_eq!(
        reads(r#"{"op":"link.set","link":"wan","rate_bit_s":20000000}"#),
        Request::SetLink { link: "wan".into(), rate_bit_s: 20_000_000 }
    );
    let text = r#"{"op":"subscriber.set","subscribers":[{"id":"4711","addr":["10.64.0.17","2001:db8:17::/56"],
        "classes":[{"link":"up","within":"homes","words":"share 1%"},{"link":"down","rate_bit_s":50000000}]}]}"#;
    let prefix = |text| Prefix::read(text).unwrap();
    let (link, within) = (String::from, |class: &str| Some(class.to_owned()));
    let expected = Subscriber {
        id: "4711".into(),
        addresses: vec![prefix("10.64.0.17"), prefix("2001:db8:17::/56")],
        classes: vec![
            Place { link: link("down"), within: None, gets: Gets::Rate(50_000_000) },
            Place { link: link("up"), within: within("homes"), gets: Gets::Words("share 1%".into()) },
        ],
    };
    assert_eq!(reads(text), Request::SetSubscribers(vec![expected.clone()]));
    let again = serde_json::to_string(&Written::from(&expected)).unwrap();
    let again = format!(r#"{{"op":"subscriber.set","subscribers":[{again}]}}"#);
    assert_eq!(reads(&again), Request::SetSubscribers(vec![expected]), "what is listed can be set again");
    assert_eq!(
        reads(r#"{"op":"subscriber.del","ids":["4711","b"]}"#),
        Request::DeleteSubscribers(vec!["4711".into(), "b".into()])
    );
    assert_eq!(
        reads(r#"{"op":"subscriber.del","ids":["4711"],"addr":"10.64.0.17"}"#),
        Request::DeleteSubscribersAt { ids: vec!["4711".into()], addr: Prefix::read("10.64.0.17").unwrap() }
    );
}

/// What may stand in a policy may stand in a request about it.
#[test]
fn names_are_as_long_as_those_of_a_policy() {
    let (link, class) = ("l".repeat(255), "c".repeat(255));
    let text = format!("link {link} {{ rate 1Mbit/s  scheduler cbq  class {class} {{ share 5%  default }} }}");
    assert!(altq_config::parse_str(&text, "t", altq_config::Language::Native).is_ok());
    assert_eq!(
        reads(&format!(r#"{{"op":"link.set","link":"{link}","rate_bit_s":1}}"#)),
        Request::SetLink { link: link.clone(), rate_bit_s: 1 }
    );
    assert!(matches!(
        reads(&format!(r#"{{"op":"class.set","link":"{link}","class":"{class}","words":"share 6%"}}"#)),
        Request::Change(Change::Edit { .. })
    ));
}

#[test]
fn what_is_no_request_says_why() {
    let many = format!(r#"{{"op":"subscriber.del","ids":[{}]}}"#, vec![r#""a""#; 1001].join(","));
    let long = format!(r#"{{"op":"link.set","link":"{}","rate_bit_s":1}}"#, "a".repeat(256));
    let long_id = format!(r#"{{"id":"{}","addr":["10.0.0.1"],"classes":[]}}"#, "a".repeat(65));
    let one = |inside: &str| format!(r#"{{"op":"subscriber.set","subscribers":[{inside}]}}"#);
    let class = |inside: &str| one(&format!(r#"{{"id":"a","addr":["10.0.0.1"],"classes":[{inside}]}}"#));
    for (text, why) in [
        ("", "no request"),
        ("nonsense", "no request"),
        ("{", "no request"),
        ("[]", "no request"),
        ("null", "no request"),
        (r#"{"op":"status"} x"#, "no request"),
        (r#"{"id":1}"#, "missing field `op`"),
        (r#"{"op":7}"#, "invalid type"),
        (r#"{"op":"status","id":-1}"#, "invalid value"),
        (r#"{"op":"status","id":"x"}"#, "invalid type"),
        (r#"{"op":"status","op":"stat"}"#, "duplicate field"),
        (r#"{"op":"status","more":1}"#, "unknown field `more`"),
        (r#"{"op":"stat","format":"tc","format":"tc"}"#, "duplicate field"),
        (r#"{"op":"stat","width":80}"#, "belongs to the format"),
        (r#"{"op":"stat","format":"table","waited":true}"#, "belongs to the format"),
        (r#"{"op":"stat","link":""}"#, "no name of a link"),
        (r#"{"op":"link.set","link":"wan"}"#, "missing field `rate_bit_s`"),
        (r#"{"op":"link.set","link":"wan","rate_bit_s":0}"#, "at least 1 bit/s"),
        (r#"{"op":"link.set","link":"wan","rate_bit_s":1.5}"#, "invalid type"),
        (r#"{"op":"link.set","link":"wan","rate_bit_s":18446744073709551616}"#, "invalid type"),
        (r#"{"op":"link.set","link":"wan\u0000","rate_bit_s":1}"#, "no name of a link"),
        (&long, "no name of a link"),
        (r#"{"op":"subscriber.del","ids":[]}"#, "1 to 1000"),
        (r#"{"op":"subscriber.del","ids":["a"],"addr":""}"#, "is no IPv4 or IPv6 address"),
        (r#"{"op":"subscriber.del","ids":["a","b","a"]}"#, "a is given twice"),
        (&many, "1 to 1000"),
        (&one(""), "1 to 1000"),
        (&one(r#"{"id":"a","addr":[],"classes":[]}"#), "0 addresses"),
        (&one(r#"{"id":"a","addr":["10.0.0.1"],"classes":[]}"#), "0 classes"),
        (&one(&long_id), "no name of a subscriber"),
        (&one(r#"{"id":"a b","addr":["10.0.0.1"],"classes":[]}"#), "no name of a subscriber"),
        (&one(r#"{"id":"a","addr":["10.0.0.1/24"],"classes":[{"link":"l","words":""}]}"#), "after its first 24"),
        (&class(r#"{"link":"l"}"#), "either rate_bit_s or words"),
        (&class(r#"{"link":"l","rate_bit_s":1,"words":""}"#), "either rate_bit_s or words"),
        (&class(r#"{"link":"l","rate_bit_s":0}"#), "at least 1 bit/s"),
        (&class(r#"{"link":"l","rate_bit_s":1},{"link":"l","rate_bit_s":1}"#), "two classes in the link"),
        (&class(&format!(r#"{{"link":"l","words":"{}"}}"#, "a".repeat(513))), "longer than 512"),
        (r#"{"op":"delete"}"#, "no request `delete`"),
    ] {
        let fault = fails(text);
        assert_eq!(fault.code, Code::Usage, "{text}: {fault}");
        assert!(fault.to_string().contains(why), "{text}: {fault}");
    }
    for text in [r#"{"v":2,"op":"status"}"#, r#"{"op":"stop","link":"x"}"#] {
        assert_eq!(fails(text).code, Code::Unsupported, "{text}");
    }
    // The number of a request that is wrong otherwise is still repeated.
    assert_eq!(read(br#"{"id":9,"op":"link.set"}"#).unwrap_err().0, Some(9));
    // Deeply nested values end with an error, and not with the stack.
    assert_eq!(fails(&format!(r#"{{"op":"status","x":{}"#, "[".repeat(100_000))).code, Code::Usage);
}

#[test]
fn what_changes_something_needs_the_right_to() {
    assert_eq!(reads(r#"{"op":"status"}"#).needs(), Right::Read);
    assert_eq!(reads(r#"{"op":"subscriber.list"}"#).needs(), Right::Read);
    assert_eq!(reads(r#"{"op":"policy"}"#).needs(), Right::Read);
    assert_eq!(reads(r#"{"op":"link.set","link":"l","rate_bit_s":1}"#).needs(), Right::Write);
    assert_eq!(reads(r#"{"op":"subscriber.del","ids":["a"]}"#).needs(), Right::Write);
    assert_eq!(reads(r#"{"op":"subscriber.del","ids":["a"],"addr":"::1"}"#).needs(), Right::Write);
    let told = reads(r#"{"op":"drift.tell","links":[{"link":"l","drift":["a","b"]}]}"#);
    assert_eq!(told, Request::TellDrift(vec![("l".into(), vec!["a".into(), "b".into()])]));
    assert_eq!(told.needs(), Right::Write);
}

proptest! {
    #[test]
    fn no_bytes_are_too_much(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes);
    }

    #[test]
    fn a_request_that_is_cut_or_damaged_is_an_error_or_a_request(at in 0_usize..200, with in any::<u8>()) {
        let whole: &[u8] = br#"{"v":1,"id":3,"op":"subscriber.set","subscribers":[{"id":"a","addr":["10.0.0.1","::1"],
            "classes":[{"link":"down","within":"homes","words":"share 1%"},{"link":"up","rate_bit_s":1}]}]}"#;
        prop_assert!(read(whole).is_ok());
        let at = at % whole.len();
        prop_assert!(read(&whole[..at]).is_err());
        let mut damaged = whole.to_vec();
        if let Some(byte) = damaged.get_mut(at) {
            *byte = with;
        }
        let _ = read(&damaged);
    }
}
