//! Links whose rates adapt, pings, and traces of links.

use std::path::{Path, PathBuf};

use altq_cases::case::Case;
use altq_cases::result::CaseResult;
use altq_simulator::sim::{self, Watch};

/// A link of 10 Mbit/s, on a wire of 100, whose rate adapts between 5 and 20 Mbit/s.
const LINK: &str = "link wan { rate 10Mbit/s adapt { from 5Mbit/s to 20Mbit/s  reflectors { 192.0.2.1 } }
    scheduler priq  class probes { priority 7 }  class rest { priority 1 default }
    match proto icmp -> probes }";

const PING: &str = "[[flows]]\nname = 'p'\nkind = 'ping'\nfrom = 'a'\nto = 'b'\n";

/// The rate of the link is set.
const EVENT: &str = "[[events]]\nat = '1s'\nlink = 'wan'\nrate = '5Mbit/s'\n";

/// A case of 5 s with `policy`, and with `rest` at its end.
fn case(policy: &str, rest: &str) -> String {
    format!(
        "name = 't'\ndescription = 'd'\nduration = '5s'\npolicy = '''{policy}'''\n\
         hosts = [{{ name = 'a' }}, {{ name = 'b', address = '192.0.2.1' }}]\n\
         links = [{{ name = 'wan', from = 'a', to = 'b', policy = 'wan', rate = '100Mbit/s', delay = '10ms' }}]\n{rest}"
    )
}

/// The folder of the cases about this.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/adapt")
}

fn run(text: &str) -> Result<CaseResult, String> {
    let case = Case::parse(text, &folder().join("t.toml")).map_err(|error| error.to_string())?;
    let mut watch = Watch { series: Some(Vec::new()), ..Watch::default() };
    sim::run_watched(&case, case.seed, None, &mut watch).map_err(|error| error.to_string())
}

/// 84 bytes take 6.72 µs at 100 Mbit/s, there and back, and 10 ms each way. One every 250 ms, of
/// which that of 5 s does not begin.
#[test]
fn a_ping_takes_as_long_as_its_way() {
    let result = run(&case(LINK, PING)).unwrap();
    let flow = &result.flows[0];
    assert_eq!((flow.rtt_ns.p50, flow.rtt_ns.p99), (Some(20_013_440), Some(20_013_440)));
    assert_eq!((flow.sent_packets, flow.received_packets), (Some(20), Some(20)));
    assert_eq!(flow.class.as_deref(), Some("probes"));
    // Nobody uses the link, and its rate is the base.
    let rates = &result.series[0].rates;
    assert_eq!((rates.len(), rates[0].bit_s, rates[0].reason.as_str()), (1, 10_000_000, "start"));
}

/// Of 10 Mbit/s twelve rises of a sixteenth make 20.7, so the twelfth reaches the bound.
#[test]
fn a_link_that_is_used_rises_to_its_bound() {
    let flow = "[[flows]]\nname = 'f'\nkind = 'udp'\nfrom = 'a'\nto = 'b'\nsize = 1500\nrate = '40Mbit/s'\n";
    let result = run(&case(LINK, &format!("{PING}{flow}"))).unwrap();
    let rates = &result.series[0].rates;
    assert_eq!(rates.len(), 13, "{rates:#?}");
    assert!(rates.is_sorted_by(|a, b| a.bit_s < b.bit_s && a.at_ns < b.at_ns));
    assert!(rates[1..].iter().all(|change| change.reason == "used" && change.link == "wan"), "{rates:#?}");
    assert_eq!(rates[12].bit_s, 20_000_000);
    // The second answer comes after 270 ms and a packet or two, and a rise every 250 ms; each is
    // noticed 50 ms later at most.
    assert!(rates[12].at_ns <= 272_000_000 + 11 * 300_000_000, "{rates:#?}");
    // cake-autorate's rules: 4 % for each measurement of the load, 18 times, are 20.3.
    let other = case(LINK, &format!("{PING}{flow}"));
    let other = other.replace("duration = '5s'", "duration = '9s'\ncontroller = 'cake-autorate'");
    let result = run(&other).unwrap();
    let rates = &result.series[0].rates;
    assert_eq!((rates[1].bit_s, rates.last().unwrap().bit_s), (10_400_000, 20_000_000), "{rates:#?}");
}

/// What a trace says is what the wire carries.
#[test]
fn a_wire_follows_its_trace() {
    let steps = std::fs::read_to_string(folder().join("lte.csv")).unwrap();
    let rates: Vec<f64> = steps
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once(',').unwrap().1.parse().unwrap())
        .collect();
    // From 0.5 to 2.0 s, in steps of 0.1 s.
    let expected = rates[5..20].iter().sum::<f64>() / 15.0;
    let policy = "link wan { rate 50Mbit/s scheduler fifo class x { default } }";
    let text = case(policy, "").replace(
        "delay = '10ms' }]",
        "delay = '10ms' }, { name = 'air', from = 'b', to = 'c', rate = '1Mbit/s', trace = 'lte.csv' }]",
    );
    let text = text.replace("address = '192.0.2.1' }]", "address = '192.0.2.1' }, { name = 'c' }]");
    let flow = "[[flows]]\nname = 'f'\nkind = 'udp'\nfrom = 'a'\nto = 'c'\nsize = 500\nrate = '20Mbit/s'\n";
    let expect = format!(
        "[[expect]]\nname = 'e'\nmeasure = 'rate'\nflow = 'f'\nfrom = '500ms'\nto = '2s'\nexpected = {expected}\n\
         tolerance = '2%'\nsource = 'the trace'\n"
    );
    let result = run(&format!("{text}{flow}{expect}")).unwrap();
    assert!(result.expectations[0].pass, "{:?}", result.expectations[0]);
}

#[test]
fn what_is_missing_is_said() {
    let trace = |file: &str| case(LINK, PING).replace("delay = '10ms'", &format!("delay = '10ms', trace = '{file}'"));
    for (text, reason) in [
        (case(&LINK.replace("192.0.2.1", "192.0.2.9"), PING), "no host has the address 192.0.2.9"),
        (case(LINK, ""), "write a flow of kind ping from a or b to b"),
        (case(LINK, &PING.replace("'ping'", "'udp_rr'")), "write a flow of kind ping from a or b to b"),
        (case(LINK, PING).replace("duration", "controller = 'pid'\nduration"), "there is no controller \"pid\""),
        (case(LINK, &format!("{PING}size = [84, 85]\n")), "a ping has one size"),
        (case(LINK, &format!("{PING}size = 27\n")), "28 to 65535 bytes"),
        (case(LINK, &format!("{PING}interval = '0s'\n")), "an interval is longer than 0"),
        (case(LINK, &format!("{PING}streams = 2\n")), "knows no streams"),
        (trace("lte.csv"), "no event and no trace sets it"),
        (case(LINK, &format!("{PING}{EVENT}")), "no event and no trace sets it"),
        (trace("none.csv"), "the trace none.csv cannot be read"),
        (trace("lte.awk"), "lte.awk, line "),
    ] {
        let error = run(&text).expect_err(reason);
        assert!(error.contains(reason), "{reason} is not in {error}");
    }
}
