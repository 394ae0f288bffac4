//! What links do to packets, with times computed by hand: media, delays, losses, tunnels, delays of
//! hosts, and the reverse direction.

use std::path::Path;

use altq_cases::case::Case;
use altq_cases::result::{CaseResult, FlowResult};
use altq_simulator::sim;

/// A case with two hosts; links may use a policy that is a FIFO of 10 Mbit/s.
fn case(duration: &str, links: &str, flows: &str) -> CaseResult {
    with_hosts("hosts = [{ name = 'a' }, { name = 'b' }]", duration, links, flows)
}

fn with_hosts(hosts: &str, duration: &str, links: &str, flows: &str) -> CaseResult {
    let text = format!(
        "name = 't'\ndescription = 'd'\nduration = '{duration}'\n\
         policy = 'link wan {{ rate 10Mbit/s scheduler fifo class all {{ default }} }}'\n{hosts}\nlinks = [{links}]\n\
         {flows}"
    );
    let case = Case::parse(&text, Path::new("t.toml")).unwrap_or_else(|error| panic!("{error}"));
    sim::run(&case, 1, None).unwrap_or_else(|error| panic!("{error}"))
}

fn flow(words: &str) -> String {
    format!("[[flows]]\nname = 'f'\nfrom = 'a'\nto = 'b'\n{words}\n")
}

fn refused(links: &str) -> String {
    let text = format!(
        "name = 't'\ndescription = 'd'\nduration = '1s'\n\
         policy = 'link wan {{ rate 10Mbit/s scheduler fifo class all {{ default }} }}'\n\
         hosts = [{{ name = 'a' }}, {{ name = 'b' }}]\nlinks = [{links}]\n"
    );
    Case::parse(&text, Path::new("t.toml")).map(|_| ()).unwrap_err().to_string()
}

fn one(result: &CaseResult) -> &FlowResult {
    assert!(result.valid, "{:?}", result.notes);
    &result.flows[0]
}

/// The delay of a single packet of `size` bytes over this link.
fn delay(size: u32, link: &str) -> u64 {
    let words = format!("kind = 'udp'\nsize = {size}\ninterval = '100ms'");
    let result = case("1s", &format!("{{ name = 'l', from = 'a', to = 'b', {link} }}"), &flow(&words));
    let delay = one(&result).delay_ns;
    assert_eq!(delay.p50, delay.p99);
    delay.p50.unwrap()
}

#[test]
fn media_by_arithmetic() {
    // Plain: 1000 bytes at 8 Mbit/s.
    assert_eq!(delay(1000, "rate = '8Mbit/s', delay = '5ms'"), 6_000_000);
    // Ethernet: max(1000 + 14, 60) + 24 bytes; and the shortest frame, 84 byte times.
    assert_eq!(delay(1000, "rate = '8Mbit/s', medium = 'ethernet'"), 1_038_000);
    assert_eq!(delay(28, "rate = '8Mbit/s', medium = 'ethernet'"), 84_000);
    // ATM with LLC/SNAP: 8192 + 28 bytes and 16 of trailer and header are 172 cells (CBQ testing
    // 1998's own figure for this packet); at 5139 cells a second 33.469546604 ms.
    assert_eq!(
        delay(8220, "rate = '5139cells/s', medium = 'atm', mtu = 9180"),
        (172u64 * 1_000_000_000).div_ceil(5139)
    );
    // 40 bytes and 8 of trailer fill one cell; with LLC/SNAP they need two.
    assert_eq!(delay(40, "rate = '1000cells/s', medium = 'atm-vcmux'"), 1_000_000);
    assert_eq!(delay(40, "rate = '1000cells/s', medium = 'atm'"), 2_000_000);
    // The medium replaces the policy's overhead: the policy has 10 Mbit/s, and the wire carries
    // cells.
    assert_eq!(delay(40, "policy = 'wan', rate = '1000cells/s', medium = 'atm'"), 2_000_000);
    assert_eq!(delay(1000, "policy = 'wan'"), 800_000);
}

#[test]
fn hosts_and_ways_take_their_time() {
    // There: 1 ms of link, 21 µs of router, 2 ms of link, 30 µs of the far host. Back: 4 ms, 21 µs,
    // 3 ms, and 10 µs of the near host.
    let hosts =
        "hosts = [{ name = 'a', delay = '10us' }, { name = 'r', delay = '21us' }, { name = 'b', delay = '30us' }]";
    let links = "{ name = 'l', from = 'a', to = 'r', rate = '1Gbit/s', delay = '1ms', reverse_delay = '3ms' }, \
                 { name = 'm', from = 'r', to = 'b', rate = '1Gbit/s', delay = '2ms', reverse_delay = '4ms', \
                 reverse_rate = '8Mbit/s' }";
    let words = "kind = 'udp_rr'\nrequest = 972\nresponse = 472";
    let result = with_hosts(hosts, "1s", links, &flow(words));
    // 1000 bytes take 8 µs on each wire there; 500 bytes take 500 µs and 4 µs back.
    let rtt = 1_000_000 + 21_000 + 2_000_000 + 30_000 + 16_000 + 4_000_000 + 21_000 + 3_000_000 + 10_000 + 504_000;
    let f = one(&result);
    assert_eq!((f.rtt_ns.p50, f.rtt_ns.p99), (Some(rtt), Some(rtt)));
    assert_eq!(f.transactions_per_s, Some((1_000_000_000 / rtt) as f64));
}

#[test]
fn losses_are_those_asked_for() {
    let words = "kind = 'udp'\nsize = 125\nrate = '10Mbit/s'";
    let link = |loss: &str| format!("{{ name = 'l', from = 'a', to = 'b', rate = '100Mbit/s', {loss} }}");
    let result = case("5s", &link("loss = '2%'"), &flow(words));
    // Of 50,000 packets 2 % are lost, with a standard deviation of 0.063 %.
    let f = one(&result);
    let lost = 1.0 - f.received_packets.unwrap() as f64 / f.sent_packets.unwrap() as f64;
    assert!((lost - 0.02).abs() < 5.0 * 0.00063, "{lost}");
    // Losses are in the reverse direction only, so nothing is lost here.
    let result = case("1s", &link("reverse_loss = '50%'"), &flow(words));
    assert_eq!(one(&result).sent_packets, one(&result).received_packets);
    // A request or its answer is lost in 1 - 0.9² of the rounds, and the request is repeated after
    // 20 ms.
    let result = case("20s", &link("loss = '10%'"), &flow("kind = 'udp_rr'\nretry = '20ms'"));
    let rate = one(&result).transactions_per_s.unwrap();
    // A round takes 0.81 · 4.64 µs + 0.19/0.81 · 20 ms = 4.69 ms on average.
    assert!((rate * 0.00469 - 1.0).abs() < 0.1, "{rate}");
}

#[test]
fn six_in_four_adds_a_header() {
    let hosts = "hosts = [{ name = 'a', address = '2002:c000:201::1' }, { name = 'b', address = '2002:c000:202::1' }]";
    let words = flow("kind = 'udp'\nsize = 1000\ninterval = '100ms'\nclass = 'v4'");
    for tunnel in ["tunnel = '6in4', tunnel_addresses = ['192.0.2.1', '192.0.2.2']", "tunnel = '6to4'"] {
        let text = format!(
            "name = 't'\ndescription = 'd'\nduration = '1s'\n\
             policy = '''link wan {{ rate 8Mbit/s scheduler drr\n class v4 {{ }}\n class rest {{ default }}\n \
             match proto 41 src 192.0.2.1 dst 192.0.2.2 -> v4 }}'''\n{hosts}\n\
             links = [{{ name = 'wan', from = 'a', to = 'b', policy = 'wan', {tunnel} }}]\n{words}"
        );
        let case = Case::parse(&text, Path::new("t.toml")).unwrap_or_else(|error| panic!("{error}"));
        let result = sim::run(&case, 1, None).unwrap();
        assert_eq!(one(&result).delay_ns.p50, Some(1_020_000), "{tunnel}");
        let row = result.classes.iter().find(|row| row.report.name == "v4").unwrap();
        assert_eq!(row.report.sent_bytes, 10 * 1020);
        // The payload is the same.
        assert_eq!(one(&result).goodput_bit_s, 10 * (1000 - 48) * 8);
    }
}

#[test]
fn a_shared_medium_carries_both_ways() {
    // One direction alone: 1500 + 26 bytes and a gap of 12 at 10 Mbit/s are 1230.4 µs per packet.
    let link = "{ name = 'l', from = 'a', to = 'b', rate = '10Mbit/s', medium = 'ethernet', duplex = 'half' }";
    let there = flow("kind = 'udp'\nsize = 1500\nrate = '20Mbit/s'");
    let result = case("10s", link, &there);
    let alone = one(&result).received_packets.unwrap();
    assert!(alone.abs_diff(10_000_000_000 / 1_230_400) <= 1, "{alone}");
    // Both directions at once share the medium, and lose some of it to collisions: together they
    // get less than one alone, but more than 85 % of it, and each more than a third. Full duplex
    // carries twice as much.
    let back = there.replace("name = 'f'", "name = 'g'").replace("from = 'a'\nto = 'b'", "from = 'b'\nto = 'a'");
    let both = |link: &str| {
        let result = case("10s", link, &format!("{there}{back}"));
        [0, 1].map(|at| result.flows[at].received_packets.unwrap())
    };
    let [f, g] = both(link);
    assert!(f + g < alone && (f + g) as f64 > 0.85 * alone as f64 && f.min(g) * 3 > alone, "{f} {g} {alone}");
    let [f, g] = both(&link.replace(", duplex = 'half'", ""));
    assert!(f.abs_diff(alone) <= 2 && g.abs_diff(alone) <= 2, "{f} {g}");
}

#[test]
fn a_local_source_sleeps_after_a_drop() {
    // A packet every 100 µs fills a queue of 3 before a wire on which each takes 1 ms: the first is
    // sent, three wait, and the fifth is dropped at 400 µs. The source sleeps 18 ms, until the tick
    // of 100 Hz at 20 ms, and begins again: 5 packets per cycle, one of which is dropped.
    let text = |timer: &str| {
        format!(
            "name = 't'\ndescription = 'd'\nduration = '1s'\ntimer = {timer}\n\
             policy = 'link wan {{ rate 8Mbit/s scheduler drr \
             class all {{ queue drop_tail {{ limit 3packets }} default }} }}'\n\
             hosts = [{{ name = 'a' }}, {{ name = 'b' }}]\n\
             links = [{{ name = 'wan', from = 'a', to = 'b', policy = 'wan' }}]\n{}",
            flow("kind = 'udp'\nshape = 'local'\nsize = 1000\ninterval = '100us'")
        )
    };
    let run = |timer| sim::run(&Case::parse(&text(timer), Path::new("t.toml")).unwrap(), 1, None).unwrap();
    let ticks = run("100");
    assert_eq!((one(&ticks).sent_packets, one(&ticks).received_packets), (Some(5 * 50), Some(4 * 50)));
    // Without ticks it sleeps until 18.4 ms, so a cycle takes 18.4 ms.
    let exact = run("'exact'");
    assert_eq!(one(&exact).sent_packets, Some(5 * 54 + 5));
}

#[test]
fn links_that_cannot_be_are_refused() {
    let link = |words: &str| refused(&format!("{{ name = 'l', from = 'a', to = 'b', rate = '1Mbit/s', {words} }}"));
    for (words, reason) in [
        ("loss = '101%'", "a share is 0 to 1"),
        ("loss = 'much'", "a fraction is written as"),
        ("loss = { enter = 0.1 }", "a share, or { enter, leave }"),
        ("reorder = '1%'", "Write reorder_delay"),
        ("reorder_delay = '1ms'", "Write reorder"),
        ("medium = 'wood'", "a medium is"),
        ("duplex = 'half'", "write medium = \"ethernet\""),
        ("duplex = 'half', medium = 'ethernet', tx_queues = 4", "full duplex"),
        ("duplex = 'half', medium = 'ethernet', reverse_rate = '2Mbit/s'", "has one rate"),
        ("duplex = 'none'", "\"full\" or \"half\""),
        ("mtu = 60", "an MTU is 68 to 65535"),
        ("tunnel = '4in6'", "a tunnel is"),
        ("tunnel = '6to4', tunnel_addresses = ['1.2.3.4', '1.2.3.5']", "takes its addresses"),
        ("tunnel_addresses = ['1.2.3.4', '1.2.3.5']", "Write tunnel"),
        ("reverse_rate = '0bit/s'", "carries nothing"),
        ("reverse_queue = 'long'", "a limit is written as"),
    ] {
        let error = link(words);
        assert!(error.contains(reason) && error.starts_with("t.toml:6:"), "{words}: {error}");
    }
}
