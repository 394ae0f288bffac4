//! `altq explain` from outside: documents, reports, exit codes, and what is wrong with a packet.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

/// The policy of docs/explain.md.
const POLICY: &str = "link wan {
    rate 100Mbit/s
    scheduler cbq
    class voice   { share 5%  priority 7  ceiling 10Mbit/s  borrow }
    class agency1 { share 50%  borrow
        class web  { share 30%  borrow }
        class bulk { share 20%  borrow }
    }
    class rest { share 45%  borrow  default }

    match dscp ef -> voice
    match src 10.1.0.0/16  proto tcp
          dport 80,443     -> web
    match src 10.1.0.0/16  -> bulk
}
";

fn altq(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_altq")).args(args).env_remove("NO_COLOR").output().expect("altq runs")
}

/// A file in a folder of this test's own.
fn file(test: &str, name: &str, bytes: &[u8]) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("a file");
    path.to_str().expect("a name").to_owned()
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_class_of_a_packet_its_rule_and_its_limits() {
    let path = file("explain", "p.altq", POLICY.as_bytes());
    let ask = |packet: &str| {
        let (code, out, err) = said(&altq(&["explain", &path, "--packet", packet, "--json"]));
        assert_eq!((code, err.as_str()), (Some(0), ""), "{packet}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let limits = |class: &str, guaranteed: u64, ceiling: u64| {
        let (guaranteed, ceiling) = (guaranteed * 1_000_000, ceiling * 1_000_000);
        json!({ "class": class, "guaranteed_bit_s": guaranteed, "ceiling_bit_s": ceiling })
    };
    let rule = |line: u64, text: &str, class: &str| json!({ "file": path, "line": line, "text": text, "class": class });
    let bulk = rule(14, "match src 10.1.0.0/16 -> bulk", "bulk");
    let web = rule(12, "match src 10.1.0.0/16 proto tcp dport 80,443 -> web", "web");
    let all = [limits("agency1", 50, 100), limits("wan", 100, 100)];
    assert_eq!(
        ask("src=10.1.2.3 dst=192.0.2.1 proto=tcp sport=40000 dport=80 dscp=0"),
        json!({ "schema": "altq.explain/1", "link": "wan", "class": "web", "rule": web, "default": false,
                "assumed": [], "shadowed": [bulk], "limits": [limits("web", 30, 100), all[0], all[1]] })
    );
    let call = ask("src=10.1.2.3 dst=192.0.2.1 proto=udp sport=9 dport=9 dscp=ef link=wan");
    assert_eq!((&call["class"], &call["rule"]), (&json!("voice"), &rule(11, "match dscp ef -> voice", "voice")));
    assert_eq!(call["limits"], json!([limits("voice", 5, 10), limits("wan", 100, 100)]));
    assert_eq!(call["shadowed"], json!([bulk]));
    let other = ask("src=192.0.2.1 dst=10.1.2.3 proto=udp sport=9 dport=9 dscp=0");
    assert_eq!((&other["class"], &other["rule"], &other["default"]), (&json!("rest"), &Value::Null, &json!(true)));
    let without = file("explain", "without.altq", POLICY.replace("  default", "").as_bytes());
    let (code, out, _) = said(&altq(&["explain", &without, "--packet", "length=60", "--json"]));
    let dropped: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &dropped["class"], &dropped["default"]), (Some(0), &Value::Null, &json!(false)));
    assert_eq!((&dropped["rule"], &dropped["limits"]), (&Value::Null, &json!([])));
    let (_, out, _) = said(&altq(&["explain", &without, "--packet", "length=60"]));
    assert!(out.starts_with("no class of link wan: the packet is dropped\n"), "{out}");
}

#[test]
fn the_report_is_for_people() {
    let path = file("explain-report", "p.altq", POLICY.as_bytes());
    let (code, out, err) =
        said(&altq(&["explain", &path, "--packet", "src=10.1.2.3 dst=192.0.2.1 proto=tcp dport=443"]));
    assert_eq!(code, Some(0), "{err}");
    let wanted = format!(
        "class web of link wan
  rule       {path}:12: match src 10.1.0.0/16 proto tcp dport 80,443 -> web
  later      {path}:14: match src 10.1.0.0/16 -> bulk
             (would match as well, but is tried later)

  class      guarantee     ceiling
  web      30.0 Mbit/s  100 Mbit/s
  agency1  50.0 Mbit/s  100 Mbit/s
  wan       100 Mbit/s  100 Mbit/s
"
    );
    assert_eq!(out, wanted);
    assert_eq!(err, "altq explain: rules look at more than the packet says; taken are: dscp 0\n");
}

#[test]
fn wrong_packets_and_links_are_answered() {
    let path = file("explain-wrong", "p.altq", POLICY.as_bytes());
    let two = file("explain-wrong", "two.altq", format!("{POLICY}{}", POLICY.replace("wan", "lan")).as_bytes());
    for (arguments, wanted) in [
        (&[&path, "--packet", "src=10.1.2.3 dst=192.0.2.1 dprt=80"][..], "--packet:1:28"),
        (&[&path, "--packet", "src=10.1.2.3 dst=192.0.2.1 dprt=80"], "did you mean `dport`?"),
        (&[&path, "--packet", "length=60 link=lan"], "no link `lan` in this policy; there is wan"),
        (&[&two, "--packet", "length=60"], "the policy has 2 links; choose one with --link: wan, lan"),
        (&[&two, "--packet", "length=60 link=lan", "--link", "wan"], "--link says `wan` and the packet `lan`"),
        (&[&path], "--packet"),
        (&[&path, "--packet", "length=60", "--capture", "x"], "cannot be used with"),
        (&["nowhere.altq", "--packet", "length=60"], "cannot be read"),
        (&[&path, "--capture", &path], "p.altq"),
    ] {
        let arguments: Vec<&str> = std::iter::once("explain").chain(arguments.iter().copied()).collect();
        let (code, out, err) = said(&altq(&arguments));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}: {err}");
        assert!(err.contains(wanted), "{arguments:?}: {err}");
    }
    let (code, _, _) = said(&altq(&["explain", &two, "--packet", "length=60 link=lan", "--json"]));
    assert_eq!(code, Some(0));
}

/// A UDP packet of IPv4 without data, in a record of a capture.
fn record(src: [u8; 4], tos: u8, dport: u16) -> Vec<u8> {
    let mut ip = vec![0x45, tos, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    ip.extend([src, [192, 0, 2, 1]].concat());
    ip.extend([9u16, dport, 8, 0].map(u16::to_be_bytes).concat());
    let length = ip.len() as u32;
    [[0, 0, length, length].map(u32::to_le_bytes).concat(), ip].concat()
}

/// Each rule with its packets, also one without any; what is cut short is said.
#[test]
fn the_rules_of_a_capture() {
    let path = file("explain-capture", "p.altq", POLICY.as_bytes());
    // Magic, version 2.4, zone, accuracy, the longest packet, and the link type LINKTYPE_RAW.
    let head = [[0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 101].map(u32::to_le_bytes).concat()];
    let packets = [
        record([10, 1, 0, 1], 46 << 2, 5004),
        record([10, 1, 0, 1], 0, 53),
        record([10, 1, 0, 2], 0, 80),
        record([10, 2, 0, 1], 0, 53),
    ];
    let whole = [&head[..], &packets[..]].concat().concat();
    let capture = file("explain-capture", "c.pcap", &whole);
    let (code, out, err) = said(&altq(&["explain", &path, "--capture", &capture, "--json"]));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let counted: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&counted["packets"], &counted["bytes"]), (&json!(4), &json!(4 * 28)));
    let rules = counted["rules"].as_array().unwrap().iter();
    let rules: Vec<_> =
        rules.map(|rule| (rule["class"].as_str().unwrap(), rule["packets"].as_u64().unwrap())).collect();
    assert_eq!(rules, [("voice", 1), ("web", 0), ("bulk", 2)]);
    assert_eq!(counted["rest"], json!({ "class": "rest", "packets": 1, "bytes": 28 }));
    let (code, out, _) = said(&altq(&["explain", &path, "--capture", &capture]));
    assert_eq!(code, Some(0));
    for wanted in ["-> voice", "-> web", "-> bulk", "no rule: rest (default)", "25.00 %", "50.00 %", "100.00 %"] {
        assert!(out.contains(wanted), "{wanted}: {out}");
    }
    let cut = file("explain-capture", "cut.pcap", &whole[..whole.len() - 3]);
    let (code, out, err) = said(&altq(&["explain", &path, "--capture", &cut, "--json"]));
    let counted: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &counted["packets"]), (Some(0), &json!(3)));
    assert!(err.contains("cut short"), "{err}");
}
