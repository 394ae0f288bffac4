//! Links as tc commands. The expected lines are worked out by hand from the policies and the manual
//! pages of tc. That `tc` itself accepts such lines is tested in the data plane, because it needs a
//! kernel.

use altq_config::{Language, Link, Sources, parse_str};
use altq_kernel::{Host, Place, Protocol, commands, fits, translate};

fn policy(text: &str) -> (Link, Sources) {
    let policy = parse_str(text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
    let sources = policy.sources.clone();
    (policy.links.into_iter().next().unwrap(), sources)
}

fn lines(text: &str) -> Vec<String> {
    let (link, _) = policy(text);
    let tree = translate(&link, &Host::default(), Place::ROOT).unwrap_or_else(|errors| panic!("{errors:?}"));
    commands(&tree, "eth0")
}

/// The errors about a link: for each, the text that it points to, and its message.
fn refused(text: &str) -> Vec<(String, String)> {
    let (link, sources) = policy(text);
    let errors = translate(&link, &Host::default(), Place::ROOT).expect_err("the kernel cannot keep this");
    for error in &errors {
        assert_eq!(error.code, "kernel-cannot");
        assert!(error.help.is_some(), "{error:?}");
    }
    errors.into_iter().map(|error| (sources.slice(error.span).to_owned(), error.message)).collect()
}

#[test]
fn htb_with_its_queues_and_rules() {
    let found = lines(
        "link wan { device eth0  rate 10Mbit/s  scheduler htb
            class voice { rate 2Mbit/s  prio 0  quantum 1500  queue drop_tail { limit 20packets } }
            class web   { rate 6Mbit/s  ceil 10Mbit/s  prio 1  quantum 3000  queue codel { target 5ms  ecn } }
            class rest  { rate 2Mbit/s  ceil 10Mbit/s  prio 2  burst 5000  cburst 6000  quantum 1500  default
                          queue fq_codel { limit 1000packets } }
            match dscp ef -> voice
            match proto tcp dst 192.0.2.0/24 dport 80,443 -> web
        }",
    );
    let wanted = [
        "qdisc add dev eth0 root handle 1: htb default 3",
        // The link's burst: 1250 bytes, which the rate brings in a millisecond, and tc's 1600.
        "class add dev eth0 parent 1: classid 1:fff0 htb rate 10000000bit ceil 10000000bit burst 2850b cburst 2850b \
         prio 0 quantum 1514",
        "class add dev eth0 parent 1:fff0 classid 1:1 htb rate 2000000bit ceil 2000000bit burst 1600b cburst 1600b \
         prio 0 quantum 1500",
        "class add dev eth0 parent 1:fff0 classid 1:2 htb rate 6000000bit ceil 10000000bit burst 1600b cburst 1600b \
         prio 1 quantum 3000",
        "class add dev eth0 parent 1:fff0 classid 1:3 htb rate 2000000bit ceil 10000000bit burst 5000b cburst 6000b \
         prio 2 quantum 1500",
        "qdisc add dev eth0 parent 1:1 handle 2: pfifo limit 20",
        "qdisc add dev eth0 parent 1:2 handle 3: codel limit 1000 target 5000us interval 100000us ecn",
        "qdisc add dev eth0 parent 1:3 handle 4: fq_codel limit 1000 flows 1024 quantum 1514 target 5000us interval \
         100000us drop_batch 64 noecn",
        // EF is 46: 46 << 2 is 0xb8.
        "filter add dev eth0 parent 1: protocol ip prio 1 flower ip_tos 0xb8/0xfc classid 1:1",
        "filter add dev eth0 parent 1: protocol ipv6 prio 2 flower ip_tos 0xb8/0xfc classid 1:1",
        "filter add dev eth0 parent 1: protocol ip prio 3 flower ip_proto tcp dst_ip 192.0.2.0/24 dst_port 80 classid \
         1:2",
        "filter add dev eth0 parent 1: protocol ip prio 3 flower ip_proto tcp dst_ip 192.0.2.0/24 dst_port 443 \
         classid 1:2",
    ];
    assert_eq!(found, wanted);
}

#[test]
fn a_scheduler_that_does_not_shape_stands_in_an_htb() {
    let found = lines(
        "link wan { device eth0  rate 8Mbit/s  scheduler drr
            class a { quantum 3000  queue drop_tail { limit 30000bytes } }
            class b { quantum 1514  default  queue drop_head { limit 10packets } }
            match mark 5 -> a
        }",
    );
    assert_eq!(
        found,
        [
            "qdisc add dev eth0 root handle 1: htb default fff0",
            "class add dev eth0 parent 1: classid 1:fff0 htb rate 8000000bit ceil 8000000bit burst 2600b cburst 2600b \
             prio 0 quantum 1514",
            "qdisc add dev eth0 parent 1:fff0 handle 2: drr",
            "class add dev eth0 parent 2: classid 2:1 drr quantum 3000",
            "class add dev eth0 parent 2: classid 2:2 drr quantum 1514",
            "qdisc add dev eth0 parent 2:1 handle 3: bfifo limit 30000",
            "qdisc add dev eth0 parent 2:2 handle 4: pfifo_head_drop limit 10",
            "filter add dev eth0 parent 2: protocol all prio 1 handle 0x5/0xffffffff fw classid 2:1",
            "filter add dev eth0 parent 2: protocol all prio 2 u32 match u32 0x00000000 0x00000000 at 0 flowid 2:2",
        ]
    );
    let plain = lines(
        "link wan { rate 8Mbit/s  scheduler priq  regulator none
        class a { priority 3  queue drop_tail { limit 7packets } }
        class b { priority 9  default  queue drop_tail { limit 8packets } }
        match proto icmp -> a }",
    );
    assert_eq!(
        plain,
        [
            "qdisc add dev eth0 root handle 1: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
            "qdisc add dev eth0 parent 1:1 handle 2: pfifo limit 8",
            "qdisc add dev eth0 parent 1:2 handle 3: pfifo limit 7",
            "filter add dev eth0 parent 1: protocol ip prio 1 flower ip_proto 0x1 classid 1:2",
            "filter add dev eth0 parent 1: protocol ipv6 prio 2 flower ip_proto 0x1 classid 1:2",
        ]
    );
}

#[test]
fn weights_of_wfq_are_quanta() {
    let found = lines(
        "link wan { rate 8Mbit/s  scheduler wfq
            class a { weight 3 }  class b { weight 1  default } }",
    );
    assert!(found.contains(&"class add dev eth0 parent 2: classid 2:1 drr quantum 4542".to_owned()), "{found:#?}");
    assert!(found.contains(&"class add dev eth0 parent 2: classid 2:2 drr quantum 1514".to_owned()), "{found:#?}");
    // The queue limit of 64 is the default of IOS.
    assert!(found.iter().any(|line| line.ends_with("pfifo limit 64")), "{found:#?}");
}

#[test]
fn curves_of_hfsc() {
    let found = lines(
        "link wan { device eth0  rate 10Mbit/s  scheduler hfsc
            class voice { realtime 2Mbit/s for 5ms then 1Mbit/s  linkshare 1Mbit/s }
            class rest  { linkshare 9Mbit/s  upperlimit 8Mbit/s  default } }",
    );
    assert_eq!(
        found[..4],
        [
            "qdisc add dev eth0 root handle 1: hfsc default 2",
            "class add dev eth0 parent 1: classid 1:fff0 hfsc ls m2 10000000bit ul m2 10000000bit",
            "class add dev eth0 parent 1:fff0 classid 1:1 hfsc rt m1 2000000bit d 5000us m2 1000000bit ls m2 \
             1000000bit",
            "class add dev eth0 parent 1:fff0 classid 1:2 hfsc ls m2 9000000bit ul m2 8000000bit",
        ]
    );
}

#[test]
fn a_cake_alone_shapes_by_itself() {
    let found = lines(
        "link wan { device eth0  rate 20Mbit/s  overhead pppoe-ptm  scheduler fifo
            class all { default  queue cake { dual-srchost  rtt 50ms } } }",
    );
    assert_eq!(
        found,
        ["qdisc add dev eth0 root handle 1: cake bandwidth 20000000bit besteffort dual-srchost nat rtt \
             50000us overhead 30 mpu 0 ptm memlimit 4194304"]
    );
}

/// An overhead of 38 bytes from layer 3 on is 24 more than the header that the kernel counts. The
/// classes of htb charge these; for hfsc the device's own qdisc has a size table.
#[test]
fn an_overhead_counts_from_the_kernels_header_on() {
    let found =
        lines("link wan { device eth0  rate 1Mbit/s  overhead ethernet  scheduler fifo  class all { default } }");
    assert_eq!(
        found[..2],
        [
            "qdisc add dev eth0 root handle 1: htb default fff0",
            "class add dev eth0 parent 1: classid 1:fff0 htb rate 1000000bit ceil 1000000bit burst 1725b cburst 1725b \
             prio 0 quantum 1538 overhead 24 mpu 84",
        ]
    );
    let found = lines(
        "link wan { device eth0  rate 1Mbit/s  overhead ethernet  scheduler hfsc
            class all { linkshare 1Mbit/s  default } }",
    );
    let table = "qdisc add dev eth0 root handle 1: stab mtu 2048 tsize 2048 mpu 84 overhead 24 linklayer ethernet hfsc";
    assert!(found[0].starts_with(table), "{}", found[0]);
}

/// ATM cells, a class with an overhead of its own, and an overhead smaller than the kernel's
/// header. 8 bytes from layer 3 on are 6 less than the kernel counts, which htb's classes cannot
/// express.
#[test]
fn an_overhead_of_classes_of_cells_and_below_the_header() {
    let of = |overhead: &str, words: &str| {
        lines(&format!(
            "link wan {{ device eth0  rate 1Mbit/s  overhead {overhead}  scheduler htb
                class all {{ rate 1Mbit/s  {words}  default }} }}"
        ))
    };
    let cells = of("32 bytes atm", "");
    assert!(cells[2].ends_with("overhead 18 mpu 0 linklayer atm"), "{}", cells[2]);
    assert!(!cells[0].contains("stab"), "{}", cells[0]);
    let own = of("ethernet", "overhead 4");
    assert!(own[2].ends_with("overhead 4 mpu 0") && own[0].contains("stab"), "{own:#?}");
    let below = of("8 bytes", "");
    assert!(below[0].contains("stab mpu 0 overhead -6 linklayer ethernet"), "{}", below[0]);
}

/// The kernel allows 8 qdiscs inside each other, one of which is altq's own.
#[test]
fn qdiscs_stand_in_each_other_only_so_deep() {
    let nested = |depth: usize| {
        let open: String = (0..depth).map(|n| format!("class c{n} {{ priority 1  scheduler priq ")).collect();
        format!(
            "link wan {{ device eth0  rate 1Mbit/s  scheduler priq {open} class leaf {{ priority 1  default }} {} }}",
            "} ".repeat(depth)
        )
    };
    // An htb, a prio for each scheduler, and the queue: 7 with four classes inside each other.
    let (link, _) = policy(&nested(4));
    assert_eq!(translate(&link, &Host::default(), Place::ROOT).unwrap().qdiscs.len(), 7);
    let found = refused(&nested(5));
    assert!(found[0].1.contains("8 of the kernel's qdiscs would stand inside each other"), "{found:?}");
}

/// If the kernel lacks a classifier, u32 replaces it.
#[test]
fn a_host_without_classifiers_has_u32() {
    let (link, _) = policy(
        "link wan { device eth0  rate 8Mbit/s  scheduler htb
            class a { rate 1Mbit/s }  class b { rate 7Mbit/s  default }
            match mark 5 -> a  match proto udp dport 53 -> a }",
    );
    let host = Host::default().without("flower").and_then(|host| host.without("fw")).unwrap();
    assert_eq!(host.without("fw"), None);
    let tree = translate(&link, &host, Place::ROOT).unwrap();
    let found: Vec<String> = commands(&tree, "eth0").into_iter().filter(|line| line.starts_with("filter")).collect();
    assert_eq!(
        found,
        [
            "filter add dev eth0 parent 1: protocol all prio 1 u32 match u32 0x00000000 0x00000000 at 0 match mark 0x5 \
             0xffffffff flowid 1:1",
            "filter add dev eth0 parent 1: protocol ip prio 2 u32 match u32 0x05000000 0x0f000000 at 0 match u32 \
             0x00000000 0x00001fff at 4 match u32 0x00110000 0x00ff0000 at 8 match u32 0x00000035 0x0000ffff at 20 \
             flowid 1:1",
            "filter add dev eth0 parent 1: protocol ipv6 prio 3 u32 match u32 0x00001100 0x0000ff00 at 4 match u32 \
             0x00000035 0x0000ffff at 40 flowid 1:1",
        ]
    );
    assert_eq!(Host::default().variants().len(), 4);
}

/// A rule that leads into a nested scheduler has filters there too.
#[test]
fn rules_lead_through_nested_schedulers() {
    let found = lines(
        "link wan { device eth0  rate 10Mbit/s  scheduler htb
            class site { rate 9Mbit/s  scheduler drr
                class a { quantum 1514 }  class b { quantum 1514  default } }
            class rest { rate 1Mbit/s }
            match mark 1 -> rest  match mark 2 -> a }",
    );
    let filters: Vec<&str> = found.iter().filter_map(|line| line.strip_prefix("filter add dev eth0 ")).collect();
    assert_eq!(
        filters,
        [
            "parent 1: protocol all prio 1 handle 0x1/0xffffffff fw classid 1:4",
            "parent 1: protocol all prio 1 handle 0x2/0xffffffff fw classid 1:1",
            "parent 2: protocol all prio 1 handle 0x2/0xffffffff fw classid 2:2",
            "parent 2: protocol all prio 2 u32 match u32 0x00000000 0x00000000 at 0 flowid 2:3",
        ]
    );
    assert_eq!(found[0], "qdisc add dev eth0 root handle 1: htb default 1");
}

#[test]
fn what_the_kernel_cannot_keep_is_named_with_its_place() {
    let table = [
        ("scheduler cbq  class a { share 5%  default }", "scheduler", "the kernel has no scheduler `cbq`"),
        ("scheduler htb  class a { rate 1Mbit/s  default  queue blue {} }", "queue", "the kernel has no queue `blue`"),
        (
            "scheduler htb  class a { rate 1Mbit/s  default  queue codel { limit 64000bytes } }",
            "limit",
            "counts its limit in packets",
        ),
        (
            "scheduler htb  class a { rate 1Mbit/s  default  queue red { limit 90000bytes  min 9000bytes  gentle } }",
            "gentle",
            "the kernel's red has no `gentle`",
        ),
        (
            "scheduler priq  class a { priority 2 }  class b { priority 2  default }",
            "priority",
            "take turns at priority 2",
        ),
        ("scheduler wfq  class a { weight 1 }  class b { low-latency 1Mbit/s  default }", "b", "has none"),
        ("scheduler htb  class a { rate 1Mbit/s  class b { rate 1Mbit/s }  default }", "default", "packets of its own"),
        ("scheduler fifo  class a { }  class b { default }", "b", "one queue for all packets"),
        (
            "adapt { from 1Mbit/s to 20Mbit/s  reflectors { 192.0.2.1 } }  scheduler htb  class a { rate 1Mbit/s }",
            "adapt",
            "nobody probes its line",
        ),
    ];
    for (words, place, message) in table {
        let found = refused(&format!("link wan {{ device eth0  rate 10Mbit/s  {words} }}"));
        assert!(
            found.iter().any(|(at, said)| at == place && said.contains(message)),
            "{words}: {place}, {message}: {found:?}"
        );
    }
    let found = refused(
        "link wan { device eth0  rate 10Mbit/s  scheduler htb  class a { rate 1Mbit/s  default }
            match dport !22 -> a }",
    );
    assert!(found[0].1.contains("no `!`"), "{found:?}");
    let found =
        refused("link wan { device bridge a b  rate 1Mbit/s  scheduler htb  class a { rate 1Mbit/s  default } }");
    assert_eq!(found[0].0, "device");
}

/// The kernel's qdiscs have no queue for the link itself beside those of its classes: its packets
/// would be dropped, or pass unshaped.
#[test]
fn packets_of_a_link_with_classes_are_refused() {
    for (scheduler, words) in [
        ("drr", "quantum 1500"),
        ("wfq", "weight 1"),
        ("priq", "priority 1"),
        ("htb", "rate 1Mbit/s"),
        ("hfsc", "linkshare 1Mbit/s"),
        ("fifo", ""),
    ] {
        let link = |before: &str, class: &str, after: &str| {
            format!(
                "link wan {{ device eth0  rate 10Mbit/s  scheduler {scheduler} {before}
                    class a {{ {words} {class} }}
                    match dport 80 -> a {after} }}"
            )
        };
        let said = "`wan` has classes below it and packets of its own, which the kernel cannot do".to_owned();
        let default = refused(&link("default", "", ""));
        assert_eq!(default, [("default".to_owned(), said.clone())], "{scheduler}");
        let rule = refused(&link("", "default", "match dport 22 -> wan"));
        assert_eq!(rule, [("match dport 22 -> wan".to_owned(), said)], "{scheduler}");
        let (good, _) = policy(&link("", "default", ""));
        assert!(fits(&good).is_ok(), "{scheduler}");
    }
    // Without classes the link's own queue is all there is.
    let (alone, _) = policy("link wan { device eth0  rate 10Mbit/s  scheduler fifo  match dport 22 -> wan }");
    assert!(fits(&alone).is_ok());
}

/// 34 bytes from layer 3 on are 20 more than an Ethernet header of 14 bytes, and 34 more than none.
#[test]
fn the_header_that_is_assumed_is_a_note() {
    let of = |overhead: &str| {
        let (link, _) = policy(&format!(
            "link wan {{ device ppp0  rate 1Mbit/s  {overhead}  scheduler htb
                class a {{ rate 1Mbit/s  default }} }}"
        ));
        link
    };
    let said = |link: &Link| fits(link).unwrap().iter().any(|note| note.contains("an Ethernet header of 14 bytes"));
    let link = of("overhead 34 bytes");
    assert!(said(&link) && !said(&of("")));
    for (header, wanted) in [(14, "overhead 20 mpu 0"), (0, "overhead 34 mpu 0")] {
        let tree = translate(&link, &Host { header, ..Host::default() }, Place::ROOT).unwrap();
        assert!(commands(&tree, "ppp0")[1].ends_with(wanted), "{header}");
    }
}

/// What the kernel's filters see of packets: addresses at the interface, no marks of the firewall
/// before it has run, and whole super-packets.
#[test]
fn what_the_kernels_filters_see_is_a_note() {
    let notes = |ingress: &str, rule: &str| {
        let (link, _) = policy(&format!(
            "link wan {{ device eth0 {ingress}  rate 10Mbit/s  scheduler htb
                class a {{ rate 1Mbit/s }}  class b {{ rate 9Mbit/s  default }}  match {rule} -> a }}"
        ));
        fits(&link).unwrap()
    };
    let (nat, marks, lengths) = ("translated (NAT)", "no rule of the firewall has set a mark", "a whole super-packet");
    for (ingress, rule, wanted) in [
        ("", "src 192.168.1.0/24", vec![nat]),
        ("ingress", "dst 192.168.1.7", vec![nat]),
        ("", "host 192.168.1.7 length 0-128", vec![nat, lengths]),
        ("", "mark 5", vec![]),
        ("ingress", "mark 5", vec![marks]),
        ("ingress", "dport 80", vec![]),
        // No super-packet is longer than 65535 bytes, so nothing is missed.
        ("", "length 200-65535", vec![]),
        ("", "length !0-200", vec![]),
    ] {
        let found = notes(ingress, rule);
        for note in [nat, marks, lengths] {
            let said = found.iter().any(|found| found.contains(note));
            assert_eq!(said, wanted.contains(&note), "{ingress} {rule}: {note}: {found:?}");
        }
    }
}

/// ARP and neighbour discovery pass the kernel's qdiscs too, and would be dropped.
#[test]
fn a_link_without_a_default_class_is_refused() {
    for (scheduler, words) in [
        ("drr", "quantum 1500"),
        ("wfq", "weight 1"),
        ("priq", "priority 1"),
        ("htb", "rate 1Mbit/s"),
        ("hfsc", "linkshare 1Mbit/s"),
        ("fifo", ""),
    ] {
        let link = |default: &str| {
            format!(
                "link wan {{ device eth0  rate 10Mbit/s  scheduler {scheduler}
                    class a {{ {words} {default} }}
                    match family ipv4 -> a }}"
            )
        };
        let found = refused(&link(""));
        assert_eq!(found.len(), 1, "{scheduler}: {found:?}");
        assert!(found[0].1.contains("would drop ARP and neighbour discovery"), "{scheduler}: {found:?}");
        assert!(fits(&policy(&link("default")).0).is_ok(), "{scheduler}");
    }
}

/// The kernel refuses a filter whose priority has filters of another protocol (`tcf_chain_tp_find`
/// in net/sched/cls_api.c). The third rule shares a priority with the first one, so the filter for
/// all other packets must not follow the priority of the rule before it.
#[test]
fn a_priority_has_filters_of_one_protocol() {
    let (link, _) = policy(
        "link wan { device eth0  rate 8Mbit/s  scheduler drr
            class x { quantum 1514 }  class y { quantum 1514 }  class b { quantum 1514  default }
            match src 10.0.0.0/24 -> x  match src 2001:db8::/32 -> x  match src 10.0.1.0/24 -> y }",
    );
    let tree = translate(&link, &Host::default(), Place::ROOT).unwrap();
    let filters: Vec<_> = tree.qdiscs.iter().flat_map(|qdisc| &qdisc.filters).collect();
    assert_eq!(filters.len(), 4, "{filters:?}");
    for one in &filters {
        let mixed = filters.iter().any(|other| other.prio == one.prio && other.protocol != one.protocol);
        assert!(!mixed, "{filters:?}");
    }
    let most = filters.iter().map(|filter| filter.prio).max();
    let last = filters.iter().find(|filter| filter.protocol == Protocol::All);
    assert_eq!(last.map(|filter| filter.prio), most, "all other packets come last: {filters:?}");
}

#[test]
fn what_the_kernel_does_differently_is_a_note() {
    let (link, _) = policy("link wan { device eth0  rate 10Mbit/s  scheduler htb  class a { rate 0bit/s  default } }");
    let notes = fits(&link).unwrap();
    for wanted in ["the kernel has no rate of 0", "with the 14 bytes of their header", "htb's quantum", "64 ns"] {
        assert!(notes.iter().any(|note| note.contains(wanted)), "{wanted}: {notes:?}");
    }
}
