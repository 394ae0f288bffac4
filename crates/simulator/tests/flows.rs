//! Flows in both directions: bulk TCP, requests and answers, clients that connect, with times and
//! rates computed by hand.

use std::path::Path;

use altq_cases::case::Case;
use altq_cases::result::{CaseResult, FlowResult};
use altq_simulator::sim;

/// A case of two hosts with a link of 10 Mbit/s, this policy and a delay of 10 ms; in the other
/// direction a plain link of 100 Mbit/s.
fn parse(duration: &str, policy: &str, link: &str, flows: &str) -> Case {
    let text = format!(
        "name = 't'\ndescription = 'd'\nduration = '{duration}'\npolicy = '''{policy}'''\n\
         hosts = [{{ name = 'a' }}, {{ name = 'b' }}]\n\
         links = [{{ name = 'wan', from = 'a', to = 'b', policy = 'wan', delay = '10ms', reverse_rate = '100Mbit/s', \
         {link} }}]\n{flows}"
    );
    Case::parse(&text, Path::new("t.toml")).unwrap_or_else(|error| panic!("{error}"))
}

fn run(duration: &str, policy: &str, link: &str, flows: &str) -> CaseResult {
    let case = parse(duration, policy, link, flows);
    let result = sim::run(&case, 1, None).unwrap_or_else(|error| panic!("{error}"));
    assert!(result.valid, "{:?}", result.notes);
    result
}

const FIFO: &str =
    "link wan { rate 10Mbit/s scheduler fifo class all { queue drop_tail { limit 50packets } default } }";

fn flow(words: &str) -> String {
    format!("[[flows]]\nname = 'f'\nfrom = 'a'\nto = 'b'\n{words}\n")
}

fn one(result: &CaseResult) -> &FlowResult {
    &result.flows[0]
}

fn class<'a>(result: &'a CaseResult, name: &str) -> &'a altq_cases::report::ClassReport {
    &result.classes.iter().find(|row| row.report.name == name).unwrap_or_else(|| panic!("no {name}")).report
}

#[test]
fn a_flow_that_stands_still_makes_the_result_invalid() {
    // Everything is lost from the beginning, or for less than 5 s, or while the flow's packets wait
    // behind a class of higher priority.
    let case = |duration, policy, link, flows: &str| sim::run(&parse(duration, policy, link, flows), 1, None).unwrap();
    let bulk = flow("kind = 'tcp_bulk'");
    let result = case("8s", FIFO, "loss = '100%'", &bulk);
    assert!(!result.valid);
    assert_eq!(result.notes.len(), 1, "{:?}", result.notes);
    let note = &result.notes[0];
    assert!(note.starts_with("flow f had something to send, and nothing of it was delivered for 8.0 s from 0.0 s on"));
    assert!(case("4900ms", FIFO, "loss = '100%'", &bulk).valid);
    assert!(case("8s", FIFO, "", &bulk).valid);
    const PRIQ: &str = "link wan { rate 10Mbit/s scheduler priq class low { priority 1 default } \
                        class high { priority 5 } match proto udp -> high }";
    let above = "[[flows]]\nname = 'u'\nfrom = 'a'\nto = 'b'\nkind = 'udp'\nsize = 1500\nrate = '12Mbit/s'\n";
    let result = case("8s", PRIQ, "", &format!("{bulk}{above}"));
    assert_eq!(one(&result).goodput_bit_s, 0);
    assert!(result.valid, "{:?}", result.notes);
}

#[test]
fn bulk_fills_the_link_with_payload() {
    let result = run("20s", FIFO, "", &flow("kind = 'tcp_bulk'\nclass = 'all'"));
    let f = one(&result);
    // 1448 of 1500 bytes are payload, which is 9.653 Mbit/s at most; the start and a few losses
    // cost less than 3 %.
    let most = 10e6 * 1448.0 / 1500.0;
    assert!(f.goodput_bit_s as f64 <= most && f.goodput_bit_s as f64 > 0.97 * most, "{}", f.goodput_bit_s);
    assert!(class(&result, "all").dropped_packets > 0);
    // IPv6 and another MTU: the headers have 72 bytes.
    let text = parse("20s", FIFO, "mtu = 1280", &flow("kind = 'tcp_bulk'"));
    let mut case = text.clone();
    case.hosts[0].address = "2001:db8::1".parse().unwrap();
    case.hosts[1].address = "2001:db8::2".parse().unwrap();
    let result = sim::run(&case, 1, None).unwrap();
    let most = 10e6 * (1280.0 - 72.0) / 1280.0;
    let goodput = one(&result).goodput_bit_s as f64;
    assert!(goodput <= most && goodput > 0.96 * most, "{goodput}");
}

#[test]
fn acknowledgements_are_packets_of_the_other_way() {
    let policy = "link wan { rate 10Mbit/s scheduler fifo class all { queue drop_tail { limit 50packets } default } }\n\
                  link back { rate 1Mbit/s scheduler drr class acks { } class rest { default } \
                  match proto tcp sport 5000 length 0-100 -> acks }";
    let result = run("10s", policy, "reverse = 'back'", &flow("kind = 'tcp_bulk'"));
    let (there, acks, rest) = (class(&result, "all"), class(&result, "acks"), class(&result, "rest"));
    assert_eq!(rest.arrived_packets, 0);
    // Every second segment is acknowledged, and after a loss every one: acknowledgements have 52 to
    // 88 bytes.
    assert!(acks.sent_packets > there.sent_packets * 45 / 100 && acks.sent_packets < there.sent_packets, "{acks:?}");
    assert!((52..=60).contains(&(acks.sent_bytes / acks.sent_packets)), "{acks:?}");
    // A link back that is too slow for them limits the flow: 20 kbit/s carry 48 packets of 52 bytes
    // per second, which acknowledge two segments each.
    let mut case = parse("40s", policy, "reverse = 'back'", &flow("kind = 'tcp_bulk'\nbuffers = 32768"));
    case.links[0].ways[1].rate = Some(altq_engine::units::Rate::kbit_s(20));
    let goodput = one(&sim::run(&case, 1, None).unwrap()).goodput_bit_s;
    assert!(goodput < 48 * 2 * 1448 * 8 * 12 / 10 && goodput > 48 * 1448 * 8 / 2, "{goodput}");
}

#[test]
fn questions_take_a_round_trip() {
    // 53 bytes at 10 and at 100 Mbit/s, and 10 ms in each direction.
    let rtt = 20_000_000 + 42_400 + 4_240;
    let result = run("10s", FIFO, "", &flow("kind = 'tcp_rr'"));
    let f = one(&result);
    assert_eq!((f.rtt_ns.p50, f.rtt_ns.p99), (Some(rtt), Some(rtt)));
    // The handshake takes one round trip, with slightly longer packets.
    assert_eq!(f.transactions_per_s, Some(((10_000_000_000 - rtt - 10_000) / rtt) as f64 / 10.0));
    // An answer of 100 segments takes the rounds of slow start: 10, 20, 40, 30 segments.
    let result = run("10s", FIFO, "", &flow(&format!("kind = 'tcp_rr'\nresponse = {}", 100 * 1448)));
    let p50 = one(&result).rtt_ns.p50.unwrap();
    assert!((rtt..4 * rtt + 20_000_000).contains(&p50), "{p50}");
    let eight = run("10s", FIFO, "", &flow("kind = 'tcp_rr'\nstreams = 8"));
    let (rate, once) = (one(&eight).transactions_per_s.unwrap(), f.transactions_per_s.unwrap());
    assert!((rate / once / 8.0 - 1.0).abs() < 0.03, "{rate} {once}");
}

#[test]
fn clients_connect_again_and_again() {
    // SYN, SYN/ACK, request, answer: two round trips of 20.05 ms, for 50 clients.
    let result = run("10s", FIFO, "", &flow("kind = 'tcp_connect'\nstreams = 50"));
    let f = one(&result);
    let (p50, rate) = (f.rtt_ns.p50.unwrap(), f.transactions_per_s.unwrap());
    // Packets of 50 clients wait for one another for at most 50 · 50 µs.
    assert!((40_090_000..46_000_000).contains(&p50), "{p50}");
    // Little's law.
    assert!((rate * p50 as f64 / 1e9 / 50.0 - 1.0).abs() < 0.05, "{rate} {p50}");
    // There are 536 ports from 65000 on. Each is taken for a connection's four round trips and 2
    // MSL.
    let result = run("30s", FIFO, "", &flow("kind = 'tcp_connect'\nstreams = 50\nsport = 65000\nmsl = '1s'"));
    let rate = one(&result).transactions_per_s.unwrap();
    assert!((rate / (536.0 / 2.07) - 1.0).abs() < 0.08, "{rate}");
}

#[test]
fn marks_reach_the_ends() {
    let codel = "link wan { rate 10Mbit/s scheduler drr class all { queue codel { ecn } default } }";
    let words = "kind = 'tcp_bulk'\nstreams = 4\nstagger = '100ms'";
    let marked = run("20s", codel, "", &flow(&format!("{words}\necn = true")));
    let dropped = run("20s", codel, "", &flow(words));
    let (m, d) = (class(&marked, "all"), class(&dropped, "all"));
    // Both flows are held back with about the same queue, one of them without losses.
    assert_eq!(m.dropped_packets, 0);
    assert!(d.dropped_packets > 50, "{d:?}");
    for result in [&marked, &dropped] {
        assert!(one(result).goodput_bit_s > 9_000_000, "{:?}", one(result));
        assert!(class(result, "all").delay_ns.p50.unwrap() < 20_000_000, "{:?}", class(result, "all"));
    }
}

#[test]
fn a_span_ends_with_all_delivered() {
    let result = run("10s", FIFO, "", &flow("kind = 'tcp_bulk'\nactive = [['0s', '2s'], ['5s', '7s']]"));
    let all = class(&result, "all");
    assert_eq!((all.queued_packets, all.arrived_packets), (0, all.sent_packets + all.dropped_packets));
    let goodput = one(&result).goodput_bit_s as f64;
    // It sends for 4 of 10 seconds, and then the queue is emptied.
    assert!((3.6e6..4.1e6).contains(&goodput), "{goodput}");
}

#[test]
fn who_opens_goes_first_in_two_levels() {
    // Bulk TCP fills the queue of 1000 packets, which takes 1.2 s. SYN packets and bare
    // acknowledgements overtake it; requests and answers do not.
    let policy = "link wan { rate 10Mbit/s scheduler drr class all { queue two_level { limit 1000packets } default } }";
    let both = format!(
        "{}{}",
        flow("kind = 'udp'\nsize = 1000\nrate = '11Mbit/s'"),
        flow("kind = 'tcp_connect'\nstreams = 1\nstart = '5s'").replace("'f'", "'c'")
    );
    let case = parse("20s", policy, "", &both);
    let result = sim::run(&case, 1, None).unwrap();
    let connect = result.flows[1].rtt_ns.p50.unwrap();
    // Of the four packets only the request waits 0.8 to 1.2 s; the SYN does not.
    assert!((700_000_000..1_400_000_000).contains(&connect), "{connect}");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let words = "kind = 'tcp_bulk'\nstreams = 3\nstagger = '10ms'";
    let link = "jitter = '2ms', loss = '0.5%', keep_order = false";
    let case = parse("5s", FIFO, link, &flow(words));
    let text = |seed| serde_json::to_string(&sim::run(&case, seed, None).unwrap()).unwrap();
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
    let goodput = one(&sim::run(&case, 1, None).unwrap()).goodput_bit_s;
    assert!((2_000_000..9_700_000).contains(&goodput), "{goodput}");
}

#[test]
fn captures_of_segments_are_valid() {
    let case = parse("2s", FIFO, "", &flow("kind = 'tcp_bulk'"));
    let mut bytes = Vec::new();
    sim::run(&case, 1, Some(&mut bytes)).unwrap();
    let capture = sim::Capture::read(bytes).unwrap();
    assert!(capture.cut.is_none() && capture.frames.len() > 1000);
    let first = &capture.frames[0].key;
    // The SYN has 60 bytes: it has the options MSS, SACK, timestamps and window scale.
    assert_eq!((first.tcp_flags & 0x3f, first.proto, first.length), (0x02, 6, 60));
    assert!(
        capture.frames[2..].iter().all(|frame| frame.key.length == 1500 || frame.key.length == 52),
        "segments are full"
    );
}

#[test]
fn what_the_simulator_does_not_have_is_said() {
    for (words, reason) in [
        ("congestion = 'vegas'", "no congestion control \"vegas\""),
        ("mss = 1460", "segments of 1460 bytes do not fit packets of 1500"),
    ] {
        let case = parse("1s", FIFO, "", &flow(&format!("kind = 'tcp_bulk'\n{words}")));
        let error = sim::run(&case, 1, None).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("flow f"), "{error}");
    }
}

#[test]
fn super_packets_are_cut_by_the_card() {
    // 100 Mbit/s and 4 transmit queues of 64 packets. What TCP hands over at once is one packet in
    // a queue, and up to 44 packets on the wire.
    let text = |tso: bool| {
        format!(
            "name = 't'\ndescription = 'd'\nduration = '5s'\n\
             policy = 'link wan {{ rate 100Mbit/s scheduler fifo \
             class all {{ queue drop_tail {{ limit 200packets }} default }} }}'\n\
             hosts = [{{ name = 'a' }}, {{ name = 'b' }}]\n\
             links = [{{ name = 'wan', from = 'a', to = 'b', policy = 'wan', medium = 'ethernet', delay = '1ms', \
             tx_queues = 4, tx_ring = 64 }}]\n{}",
            flow(&format!("kind = 'tcp_bulk'\nstreams = 8\nbuffers = 200000\ntso = {tso}"))
        )
    };
    let run = |tso| sim::run(&Case::parse(&text(tso), Path::new("t.toml")).unwrap(), 1, None).unwrap();
    let (cut, plain) = (run(true), run(false));
    let rate = |result: &CaseResult| one(result).goodput_bit_s as f64;
    // On the wire both are equal: 1448 of 1538 bytes are payload.
    for result in [&cut, &plain] {
        assert!(
            rate(result) < 100e6 * 1448.0 / 1538.0 && rate(result) > 0.93 * 100e6 * 1448.0 / 1538.0,
            "{}",
            rate(result)
        );
    }
    let packets = |result: &CaseResult| class(result, "all").sent_packets;
    assert!(packets(&cut) * 3 < packets(&plain), "{} {}", packets(&cut), packets(&plain));
    // The same number of packets arrives, however they were handed over.
    let arrived = |result: &CaseResult| one(result).received_packets.unwrap() as f64;
    assert!((arrived(&cut) / arrived(&plain) - 1.0).abs() < 0.05, "{} {}", arrived(&cut), arrived(&plain));
}

/// The sums of a flow: what is under way is neither lost nor delivered.
fn fates(result: &CaseResult) -> (u64, u64, u64, u64) {
    let flow = one(result);
    let (sent, received) = (flow.sent_packets.unwrap(), flow.received_packets.unwrap());
    let (lost, under_way) = (flow.lost_packets.unwrap(), flow.under_way_packets.unwrap());
    assert_eq!(flow.under_way_before_packets + sent, received + lost + under_way, "{flow:?}");
    (sent, received, lost, under_way)
}

#[test]
fn packets_under_way_are_not_lost() {
    // A packet a millisecond, of which each takes 1 ms on the wire of 10 Mbit/s and 10 ms behind
    // it. Of those at 0 to 999 ms those up to 988 ms have arrived before 1 s.
    let udp = |rate: &str, more: &str| flow(&format!("kind = 'udp'\nsize = 1250\nrate = '{rate}'\n{more}"));
    let result = run("1s", FIFO, "", &udp("10Mbit/s", ""));
    assert_eq!(fates(&result), (1000, 989, 0, 11));
    // At twice the rate 50 packets wait in the queue as well, and half of all are dropped.
    let result = run("1s", FIFO, "", &udp("20Mbit/s", ""));
    let (sent, received, lost, under_way) = fates(&result);
    assert_eq!((sent, received), (2000, 989));
    assert!((60..=62).contains(&under_way), "{under_way}");
    assert_eq!(lost, one(&result).sent_packets.unwrap() - 989 - under_way);
    // What a link loses is lost; nothing else is.
    let result = run("1s", FIFO, "loss = '100%'", &udp("5Mbit/s", "stop = '500ms'"));
    assert_eq!(fates(&result), (250, 0, 250, 0));
    // With a warm-up: eleven were under way when it ended.
    let text = udp("10Mbit/s", "");
    let mut case = parse("1s", FIFO, "", &text);
    case.warmup = 500_000_000;
    let result = sim::run(&case, 1, None).unwrap();
    assert_eq!(fates(&result), (500, 500, 0, 11));
    assert_eq!(one(&result).under_way_before_packets, 11);
    // Segments of TCP, some of them lost and sent again.
    let bulk = flow("kind = 'tcp_bulk'");
    let result = run("2s", FIFO, "loss = '1%'", &bulk);
    let (sent, _, lost, under_way) = fates(&result);
    assert!(lost > 0 && under_way < 200 && lost * 10 < sent, "{:?}", one(&result));
}

#[test]
fn the_measure_loss_leaves_out_what_is_under_way() {
    let measure = |rate: &str| {
        let expect =
            "[[expect]]\nname = 'l'\nmeasure = 'loss'\nflow = 'f'\nexpected = 0\ntolerance = 1\nsource = 's'\n";
        let text = flow(&format!("kind = 'udp'\nsize = 1250\nrate = '{rate}'")) + expect;
        run("1s", FIFO, "", &text).expectations[0].measured.unwrap()
    };
    assert_eq!(measure("10Mbit/s"), 0.0);
    // Of the packets that left the queue by 1 s, one way or the other: half of 2000, less 60.
    let loss = measure("20Mbit/s");
    assert!((loss - 950.0 / 1939.0).abs() < 0.002, "{loss}");
}
