//! Requests and answers, compared with their exact text on the socket.

use crate::support;

use altq_reserve::{Answer, Excess, MOST_BYTES, Malformed, Op, Request, Service};
use serde_json::{Value, json};
use support::{World, add, of, tspec};

const POLICY: &str = "link wan { rate 10Mbit/s overhead ethernet scheduler cbq
    class res  { rate 4Mbit/s  priority 6  reservations }
    class rest { rate 6Mbit/s  borrow  default } }";

/// The request of an RSVP daemon: docs/reserve.md.
const RSVP: &str = r#"{"op":"add","key":"rsvp:10.0.2.2/17/5004","owner":"rsvp:10.0.12.2",
    "service":"controlled-load","ttl_s":157.5,"within_class":"res",
    "flows":[{"src":"10.0.1.1","sport":4000,"dst":"10.0.2.2","dport":5004,"proto":"udp"}],
    "tspec":{"rate_bit_s":500000,"burst_bytes":10000,"peak_bit_s":null,"min_unit_bytes":128,"max_packet_bytes":1500},
    "excess":"borrow"}"#;

fn parse(text: &str) -> Result<Request, Malformed> {
    Request::parse(text.as_bytes())
}

#[test]
fn a_request_and_its_answer() {
    let request = parse(RSVP).unwrap();
    assert_eq!((request.op, request.service), (Op::Add, Some(Service::ControlledLoad)));
    assert_eq!((request.excess, request.ttl_s), (Some(Excess::Borrow), Some(157.5)));
    assert_eq!(request.tspec, Some(tspec(500_000, 10_000, 128, 1500)));
    let flow = "src=10.0.1.1 sport=4000 dst=10.0.2.2 dport=5004 proto=udp".parse().unwrap();
    assert_eq!(request.flows, Some(vec![flow]));
    // Written and read again it is the same.
    assert_eq!(parse(&serde_json::to_string(&request).unwrap()), Ok(request.clone()));
    let mut world = World::new(POLICY);
    let answer: Value = serde_json::to_value(world.ask(&request)).unwrap();
    let expected = json!({
        "schema": "altq.reserve/1", "granted": true, "id": 1, "key": "rsvp:10.0.2.2/17/5004",
        "owner": "rsvp:10.0.12.2", "class": "res.1", "rate_bit_s": 500_000, "charged_bit_s": 648_438,
        "expires_s": 157.5, "reason": null, "bottleneck": null, "would_fit_bit_s": null,
        "rsvp_code": null, "rsvp_value": null,
    });
    assert_eq!(answer, expected);
    // 4,000,000 - 648,438 = 3,351,562 are left: x 128 / 166 = 2,584,336.96. The keys of the answer
    // stand in this order.
    let big = add("big", 9, tspec(3_000_000, 10_000, 128, 1500));
    let text = serde_json::to_string(&world.ask(&big)).unwrap();
    let expected = [
        r#"{"schema":"altq.reserve/1","granted":false,"id":null,"key":"big","owner":null,"class":null,"#,
        r#""rate_bit_s":3000000,"charged_bit_s":3890625,"expires_s":null,"#,
        r#""reason":"3890625bit/s on the wire are more than the 3351562bit/s left of `res`","bottleneck":"res","#,
        r#""would_fit_bit_s":2584336,"rsvp_code":1,"rsvp_value":2}"#,
    ];
    assert_eq!(text, expected.concat());
}

#[test]
fn lists_and_events() {
    let mut world = World::new(POLICY);
    assert!(world.ask(&parse(RSVP).unwrap()).granted);
    // What is refused is counted: too much twice, a service, and a change of what is not there. To
    // give that up is no request for a reservation.
    for _ in 0..2 {
        assert!(!world.ask(&add("big", 9, tspec(3_000_000, 10_000, 128, 1500))).granted);
    }
    let service = Some(Service::Guaranteed);
    assert!(!world.ask(&Request { service, ..add("sure", 9, tspec(1_000, 10_000, 128, 1500)) }).granted);
    assert!(!world.ask(&of(Op::Modify, "nothing")).granted);
    assert!(!world.ask(&of(Op::Del, "nothing")).granted);
    world.now = 57_500_000_000;
    let list = serde_json::to_value(world.reply(&parse(r#"{"op":"list"}"#).unwrap())).unwrap();
    let expected = json!({
        "schema": "altq.reservations/1", "link": "wan", "class": "res", "mtu_bytes": 1500,
        "overhead": {"bytes": 38, "mpu_bytes": 84, "framing": "plain"}, "reservable_bit_s": 4_000_000,
        "charged_bit_s": 648_438, "buffer_bytes": 75_000, "burst_bytes": 10_000,
        "refused": {"bandwidth": 2, "request": 1, "service": 1},
        "reservations": [{
            "id": 1, "key": "rsvp:10.0.2.2/17/5004", "owner": "rsvp:10.0.12.2", "class": "res.1",
            "tspec": {"rate_bit_s": 500_000, "burst_bytes": 10_000, "peak_bit_s": null, "min_unit_bytes": 128,
                      "max_packet_bytes": 1500},
            "charged_bit_s": 648_438, "excess": "borrow", "delay_ns": null, "expires_s": 100.0,
            "flows": [{"src": "10.0.1.1", "sport": 4000, "dst": "10.0.2.2", "dport": 5004, "proto": "udp"}],
        }],
    });
    assert_eq!(list, expected);
    let watching = serde_json::to_value(world.reply(&parse(r#"{"op":"watch"}"#).unwrap())).unwrap();
    assert_eq!(watching, json!({"from": 1}));
    let less = Request { tspec: Some(tspec(400_000, 10_000, 128, 1500)), ..of(Op::Modify, "rsvp:10.0.2.2/17/5004") };
    assert!(world.ask(&less).granted);
    world.now = 157_500_000_000;
    assert_eq!(world.table.next_deadline(), Some(world.now));
    world.reply(&Request::new(Op::List));
    let (missed, events) = world.table.events_since(0);
    let happened: Vec<Value> = events.map(|event| serde_json::to_value(event).unwrap()).collect();
    let expected = |seq: u64, event: &str, rate: u64, charged: u64, expires: f64| {
        json!({
            "schema": "altq.reserve-event/1", "seq": seq, "event": event, "id": 1, "key": "rsvp:10.0.2.2/17/5004",
            "owner": "rsvp:10.0.12.2", "class": "res.1", "rate_bit_s": rate, "charged_bit_s": charged,
            "expires_s": expires, "reason": null,
        })
    };
    // 400,000 x 166 / 128.
    let three = [
        expected(0, "granted", 500_000, 648_438, 157.5),
        expected(1, "changed", 400_000, 518_750, 100.0),
        expected(2, "expired", 400_000, 518_750, 0.0),
    ];
    assert_eq!((missed, happened), (0, three.to_vec()));
}

#[test]
fn what_is_no_request() {
    for (text, why) in [
        ("", "EOF"),
        ("[]", "expected struct"),
        (r#"{"op":"steal"}"#, "unknown variant"),
        (r#"{"op":"add","speed":1}"#, "unknown field"),
        (r#"{"op":"del","id":1,"id":2}"#, "duplicate field"),
        (r#"{"op":"del","id":-1}"#, "invalid value"),
        (r#"{"op":"del","key":""}"#, "`key` has 1 to 255 bytes"),
        (r#"{"op":"del","key":"a\u0007b"}"#, "control characters"),
        (r#"{"op":"add","ttl_s":0}"#, "more than 0"),
        (r#"{"op":"add","ttl_s":1e300}"#, "at most"),
        (r#"{"op":"add","delay_ns":0}"#, "more than 0"),
        (r#"{"op":"add","flows":[]}"#, "1 to 64 flows"),
        (r#"{"op":"add","flows":[{"proto":"udp"},{"proto":17}]}"#, "given twice"),
        (r#"{"op":"add","flows":[{}]}"#, "needs an address"),
        (r#"{"op":"add","flows":[{"dport":70000}]}"#, "invalid value"),
        (r#"{"op":"add","tspec":{"rate_bit_s":1}}"#, "missing field"),
        (r#"{"op":"add","tspec":{"rate_bit_s":1.5,"burst_bytes":1}}"#, "invalid type"),
        (r#"{"op":"add","service":"best-effort"}"#, "unknown variant"),
        (r#"{"op":"list"} {"op":"list"}"#, "trailing"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(why) && error.len() <= 800, "{text}: {error}");
    }
    let many = format!(r#"{{"op":"add","key":"{}"}}"#, "k".repeat(256));
    assert!(parse(&many).unwrap_err().to_string().contains("255"));
    let long = format!(r#"{{"op":"add","{}":1}}"#, "x".repeat(60_000));
    assert!(parse(&long).unwrap_err().to_string().len() <= 800);
    let longer = format!(r#"{{"op":"list"}}{}"#, " ".repeat(MOST_BYTES));
    assert!(parse(&longer).unwrap_err().to_string().contains("at most 65536 bytes"));
    assert!(Request::parse(&[0xff, 0xfe]).is_err());
    let answer = Answer::malformed(&parse("").unwrap_err());
    assert!(!answer.granted && answer.reason.is_some() && answer.rsvp_code.is_none());
}
