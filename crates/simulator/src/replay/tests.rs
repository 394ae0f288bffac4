//! The rules of the wire, checked by the arithmetic of the documents, with a fifo as the scheduler.

use altq_config::{Language, Link};
use altq_engine::link::{Framing, Overhead};
use altq_engine::spec::Regulator;
use altq_engine::units::{Rate, SECOND};

use super::*;

/// A fifo link with these leaves.
fn link(rate: Rate, names: &[&str]) -> Link {
    let classes: String = names.iter().map(|name| format!("class {name} {{}} ")).collect();
    let text = format!("link wan {{ rate {rate} scheduler fifo {classes} }}");
    altq_config::parse_str(&text, "test.altq", Language::Native).unwrap().links.remove(0)
}

fn read(text: &str) -> Result<Arrivals, String> {
    Arrivals::read(text.as_bytes(), &link(Rate::mbit_s(10), &["voice", "bulk"])).map_err(|e| e.to_string())
}

/// The departures and drops as written to their files, and the report.
fn replay(link: &Link, list: &str, options: &Options) -> (String, String, Report) {
    let arrivals = Arrivals::read(list.as_bytes(), link).unwrap();
    let (mut departures, mut drops) = (Vec::new(), Vec::new());
    let mut output = CsvOutput::new(link, &arrivals, Some(&mut departures), Some(&mut drops)).unwrap();
    let report = run(link, &arrivals, options, &mut output).unwrap();
    output.finish().unwrap();
    (String::from_utf8(departures).unwrap(), String::from_utf8(drops).unwrap(), report)
}

#[test]
fn packets_follow_one_another_on_the_wire() {
    // At 8 Mbit/s a byte takes a microsecond. Two packets come at once, one while the wire is busy,
    // and one after a pause.
    let list = "time_ns,class,bytes,id\n1000,a,100,1\n1000,b,50,2\n2000,a,10,3\n500000,b,1,4\n";
    let (departures, drops, report) = replay(&link(Rate::mbit_s(8), &["a", "b"]), list, &Options::default());
    assert_eq!(
        departures,
        "time_ns,class,bytes,id,wire_end_ns\n1000,a,100,1,101000\n101000,b,50,2,151000\n151000,a,10,3,161000\n\
         500000,b,1,4,501000\n"
    );
    assert_eq!(drops, "time_ns,class,bytes,id,reason\n");
    assert_eq!((report.from_ns, report.to_ns), (0, 501_000));
    let row = |name: &str| report.classes.iter().find(|c| c.name == name).unwrap();
    assert_eq!(report.classes[0].name, "wan");
    assert_eq!((row("wan").parent.as_deref(), row("a").parent.as_deref()), (None, Some("wan")));
    assert_eq!((row("a").arrived_packets, row("a").sent_bytes, row("wan").sent_bytes), (2, 110, 161));
    // Waits: 0 and 149 µs for a, 100 µs and 0 for b. The root's figures are about all four packets.
    assert_eq!((row("a").delay_ns.max, row("a").delay_ns.mean), (Some(149_000), Some(74_500)));
    assert_eq!((row("wan").delay_ns.p50, row("wan").delay_ns.p99), (Some(0), Some(149_000)));
    assert_eq!(row("wan").rate_bit_s, 161 * 8 * SECOND / 501_000);
    // The names of the fields are the interface for programs that read the JSON.
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["schema"], "altq.replay/1");
    assert_eq!(json["classes"][1]["delay_ns"]["p99"], 149_000);
    assert!(json["classes"][0]["parent"].is_null());
}

#[test]
fn the_fraction_is_carried_over_a_busy_period() {
    // 7 Mbit/s, 10 packets of 33 bytes at once: packet k ends at ceil(k · 264e9 / 7e6).
    let mut list = "time_ns,class,bytes,id\n".to_string();
    (0..10).for_each(|k| list += &format!("5,a,33,{k}\n"));
    let (departures, ..) = replay(&link(Rate::mbit_s(7), &["a"]), &list, &Options::default());
    for (k, line) in (1u64..).zip(departures.lines().skip(1)) {
        let end: u64 = line.rsplit(',').next().unwrap().parse().unwrap();
        assert_eq!(end, 5 + (k * 264 * SECOND).div_ceil(7_000_000));
    }
}

#[test]
fn overhead_counts_on_the_wire_only() {
    // 40 bytes with 8 bytes of AAL5 trailer fill one cell of 53 bytes; 41 bytes need two cells.
    let mut link = link(Rate::mbit_s(8), &["a"]);
    link.spec.overhead = Overhead { bytes: 8, mpu: 0, framing: Framing::Atm };
    let (departures, _, report) = replay(&link, "time_ns,class,bytes,id\n0,a,40,1\n0,a,41,2\n", &Options::default());
    assert_eq!(departures.lines().skip(1).collect::<Vec<_>>(), ["0,a,40,1,53000", "53000,a,41,2,159000"]);
    assert_eq!(report.classes[1].sent_bytes, 81);
}

#[test]
fn a_ring_takes_packets_ahead() {
    let list = "time_ns,class,bytes,id\n0,a,100,1\n0,a,100,2\n0,a,100,3\n0,a,100,4\n";
    let options = Options { tx_ring: 2, ..Options::default() };
    let mut link = link(Rate::mbit_s(8), &["a"]);
    let (regulated, ..) = replay(&link, list, &options);
    // The regulator, `auto` here, keeps the packets in altq's queue and out of the driver's.
    assert_eq!(
        regulated.lines().skip(1).collect::<Vec<_>>(),
        ["0,a,100,1,100000", "100000,a,100,2,200000", "200000,a,100,3,300000", "300000,a,100,4,400000"]
    );
    link.spec.regulator = Regulator::None;
    let (departures, ..) = replay(&link, list, &options);
    assert_eq!(
        departures.lines().skip(1).collect::<Vec<_>>(),
        ["0,a,100,1,100000", "0,a,100,2,200000", "100000,a,100,3,300000", "200000,a,100,4,400000"]
    );
}

#[test]
fn windows_count_what_is_handed_over_in_them() {
    let list = "time_ns,class,bytes,id\n0,a,100,1\n0,a,200,2\n0,a,400,3\n";
    // Handed over at 0, 100 and 300 µs.
    let options = Options { from: 100_000, to: Some(300_000), ..Options::default() };
    let (departures, _, report) = replay(&link(Rate::mbit_s(8), &["a"]), list, &options);
    assert_eq!(departures.lines().count(), 4);
    let row = &report.classes[1];
    assert_eq!((row.arrived_packets, row.sent_packets, row.sent_bytes), (0, 1, 200));
    assert_eq!(row.rate_bit_s, 200 * 8 * SECOND / 200_000);
    assert_eq!((row.delay_ns.p50, row.delay_ns.max), (Some(100_000), Some(100_000)));
}

#[test]
fn a_slower_wire_and_full_queues_are_told() {
    let mut list = "time_ns,class,bytes,id\n".to_string();
    (0..60).for_each(|k| list += &format!("0,a,100,p{k}\n"));
    let options = Options { wire_rate: Some(Rate::mbit_s(1)), ..Options::default() };
    let (_, drops, report) = replay(&link(Rate::mbit_s(8), &["a"]), &list, &options);
    // One packet is on the wire and 50 are in the queue, so the last 9 are dropped.
    assert_eq!(drops.lines().nth(1), Some("0,a,100,p51,queue_full"));
    assert_eq!((report.classes[1].dropped_packets, report.classes[1].sent_packets), (9, 51));
    assert_eq!(report.to_ns, 51 * 800_000);
    assert_eq!(report.marks, [WIRE_SLOWER]);
}

#[test]
fn any_order_of_columns_any_line_end_and_ids_as_written() {
    let link = link(Rate::mbit_s(8), &["a"]);
    let list = "id,flow,ecn,bytes,class,dscp,time_ns\r\n7,\"x, y\",2,100,a,46,0\r\n007,z,0,100,a,0,0";
    let arrivals = Arrivals::read(list.as_bytes(), &link).unwrap();
    assert_eq!(arrivals.packet(0), (1, 100, flow_hash("x, y"), 46 << 2 | 2));
    assert!(arrivals.open_end && arrivals.cut.is_none());
    let (departures, ..) = replay(&link, list, &Options::default());
    assert_eq!(departures.lines().skip(1).collect::<Vec<_>>(), ["0,a,100,7,100000", "100000,a,100,007,200000"]);
}

#[test]
fn flows_and_hosts_are_columns() {
    // Five packets of one flow and then one of the other arrive at the same time. A queue that
    // keeps flows apart sends the sixth as the third: the first is on the wire already, and then
    // flows take turns with one packet each.
    let policy = |hash: &str| {
        format!("link l {{ rate 8Mbit/s scheduler fifo class a {{ queue sfq {{ quantum 1000bytes hash {hash} }} }} }}")
    };
    for (hash, column) in [("flow", "flow"), ("src", "src"), ("dst", "dst")] {
        let policy = altq_config::parse_str(&policy(hash), "l.altq", altq_config::Language::Native).unwrap();
        let link = &policy.links[0];
        let mut list = format!("time_ns,class,bytes,id,{column}\n");
        (0..5).for_each(|id| list += &format!("0,a,1000,{id},one\n"));
        list += "0,a,1000,5,two\n";
        let (departures, ..) = replay(link, &list, &Options::default());
        let ids: Vec<_> = departures.lines().skip(1).map(|line| line.split(',').nth(3).unwrap().to_string()).collect();
        assert_eq!(ids, ["0", "1", "5", "2", "3", "4"], "{hash}");
        // Without the column all packets belong to one flow.
        let (departures, ..) =
            replay(link, &list.replace(column, "high").replace("one", "0").replace("two", "1"), &Options::default());
        assert_eq!(departures.lines().last().map(|line| line.contains(",5,")), Some(true));
    }
}

#[test]
fn high_packets_overtake_in_a_queue_of_two_levels() {
    let policy = "link l { rate 8Mbit/s scheduler fifo class a { queue two_level { limit 3packets } } }";
    let policy = altq_config::parse_str(policy, "t", altq_config::Language::Native).unwrap();
    let list =
        "time_ns,class,bytes,id,high\n0,a,100,1,0\n0,a,100,2,0\n0,a,100,3,0\n0,a,100,4,1\n0,a,100,5,0\n0,a,100,6,1\n";
    let (departures, drops, _) = replay(&policy.links[0], list, &Options::default());
    // 1 is on the wire; 2, 3 and 4 wait; 5 is a normal packet and the queue is full. The high list
    // holds 1 packet, which is not below half of 3 (rounded down to 1).
    let ids =
        |text: &str| text.lines().skip(1).map(|line| line.split(',').nth(3).unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(
        (ids(&departures), ids(&drops)),
        (["1", "4", "2", "3"].map(String::from).to_vec(), ["5", "6"].map(String::from).to_vec())
    );
}

#[test]
fn bad_lists_are_refused_with_line_and_reason() {
    let header = "time_ns,class,bytes,id\n";
    for (list, reason) in [
        ("", "line 1: the file is empty"),
        ("time_ns,class,bytes\n", "line 1: the column id is missing"),
        ("time_ns,class,byte,id\n", "did you mean bytes?"),
        ("time_ns,class,bytes,id,id\n", "line 1: the column id is named twice"),
        ("0,voice,100,1\n", "line 1: there is no column \"0\""),
        (
            &format!("{header}0,voise,100,1\n"),
            "line 2, class: the link has no class \"voise\"; did you mean \"voice\"?",
        ),
        (&format!("{header}5,bulk,100,1\n4,bulk,100,2\n"), "line 3, time_ns: 4 is earlier than 5"),
        (&format!("{header}0,bulk,0,1\n"), "line 2, bytes: \"0\" is not a whole number from 1 to 65535"),
        (&format!("{header}0,bulk,65536,1\n"), "line 2, bytes"),
        (&format!("{header}-1,bulk,100,1\n"), "line 2, time_ns"),
        (&format!("{header}+1,bulk,100,1\n"), "line 2, time_ns"),
        (&format!("{header}1e3,bulk,100,1\n"), "line 2, time_ns"),
        (&format!("{header}99999999999999999999,bulk,100,1\n"), "line 2, time_ns"),
        (&format!("{header}0,bulk,100\n"), "line 2: 3 fields where the header names 4"),
        (&format!("{header}0,bulk,100,1,2\n"), "line 2: 5 fields"),
        (&format!("{header}\n"), "line 2: an empty line"),
        (&format!("{header}0,bulk,100,\n"), "line 2, id: it is empty"),
        (&format!("{header}0,\"bulk,100,1\n"), "line 2: a quote is not closed"),
        // These are not cut short, because no more text could make them correct; they are bad
        // lines.
        (&format!("{header}x,bu"), "line 2"),
        (&format!("{header}0,nobody,10"), "line 2"),
        ("time_ns,class,bytes,id,dscp,ecn\n0,bulk,100,1,64,0\n", "line 2, dscp"),
        ("time_ns,class,bytes,id,dscp,ecn\n0,bulk,100,1,0,4\n", "line 2, ecn"),
    ] {
        let error = read(list).expect_err(list);
        assert!(error.contains(reason), "{list:?}\n{error}");
    }
    let long = format!("{header}0,bulk,100,{}\n", "9".repeat(10_000_000));
    assert!(read(&long).unwrap_err().contains("line 2: it is longer than"));
    let binary = [header.as_bytes(), &[0xff, 0xfe, b'\n']].concat();
    let error = Arrivals::read(&binary[..], &link(Rate::mbit_s(1), &[])).unwrap_err().to_string();
    assert!(error.contains("line 2: byte 23 is not UTF-8"), "{error}");
}

#[test]
fn a_list_cut_within_a_line_keeps_what_came_before() {
    let whole = "time_ns,class,bytes,id\n10,bulk,100,1\n20,voice,1500,2\n";
    let second = whole.find("20,").unwrap();
    // Cut anywhere in the last line before its last field.
    for end in second + 1..whole.len() - 2 {
        let arrivals = read(&whole[..end]).unwrap();
        assert_eq!(
            (arrivals.len(), arrivals.cut.clone()),
            (1, Some(Cut { line: 3, byte: second as u64 })),
            "{:?}",
            &whole[..end]
        );
    }
    assert_eq!(read(&whole[..second]).unwrap().cut, None);
}

#[test]
fn a_list_of_nothing_is_a_result() {
    let (departures, _, report) =
        replay(&link(Rate::mbit_s(8), &["a"]), "time_ns,class,bytes,id\n", &Options::default());
    assert_eq!(departures.lines().count(), 1);
    assert_eq!((report.to_ns, report.classes[0].rate_bit_s, report.classes[0].delay_ns.p50), (0, 0, None));
}

/// A ring of 2 packets per queue. At 8 Mbit/s a byte takes a microsecond. Queue 0 gets
/// super-packets, queue 1 single packets.
#[test]
fn several_transmit_queues_take_turns_by_segments() {
    let list = "time_ns,class,bytes,id,segments,tx_queue\n0,a,300,A,3,0\n0,a,200,B,2,0\n0,a,50,C,1,0\n0,b,10,D,1,1\n\
        0,b,10,E,1,1\n0,b,10,F,1,1\n";
    let options = Options { tx_queues: 2, tx_ring: 2, ..Options::default() };
    let (departures, drops, report) = replay(&link(Rate::mbit_s(8), &["a", "b"]), list, &options);
    // On the wire: A1 (0-100), D (-110), A2 (-210), E (-220), A3 (-320), F (-330), B1 (-430), B2
    // (-530), C (-580). The rings hold two packets each: A and B from 0 on, and C when A has left
    // at 320; D and E from 0 on, and F when D has left at 110.
    assert_eq!(
        departures.lines().skip(1).collect::<Vec<_>>(),
        [
            "0,a,300,A,320000",
            "0,a,200,B,530000",
            "0,b,10,D,110000",
            "0,b,10,E,220000",
            "110000,b,10,F,330000",
            "320000,a,50,C,580000"
        ]
    );
    assert_eq!(drops.lines().count(), 1);
    let row = |name: &str| report.classes.iter().find(|c| c.name == name).unwrap();
    assert_eq!(
        (row("a").sent_bytes, row("b").sent_packets, row("wan").arrived_bytes, report.to_ns),
        (550, 3, 580, 580_000)
    );
    assert_eq!((row("a").delay_ns.max, row("b").delay_ns.max), (Some(320_000), Some(110_000)));
}

/// With one queue, or with all packets in one of several queues, the wire sends the same.
#[test]
fn one_of_several_queues_is_one_queue() {
    let list: String = (0..200).map(|n| format!("{},a,{},{n},0\n", n * 40_000, 40 + n * 7 % 1400)).collect();
    let list = format!("time_ns,class,bytes,id,tx_queue\n{list}");
    let mut link = link(Rate::bit_s(7_000_001), &["a"]);
    link.spec.regulator = Regulator::None;
    for tx_ring in [1, 3] {
        let run = |tx_queues| replay(&link, &list, &Options { tx_queues, tx_ring, ..Options::default() });
        assert_eq!(run(1), run(5));
    }
}

/// Each queue has a limit of its own, as in DragonFly: packets in another queue do not count.
#[test]
fn a_full_queue_does_not_fill_the_others() {
    let mut link = link(Rate::mbit_s(8), &["a"]);
    link.spec.classes[1].queue = Some(altq_engine::spec::QueueSpec {
        name: "two_level",
        limit: altq_engine::settings::Limit::Packets(2),
        settings: altq_engine::settings::Settings::new(),
    });
    let list = "time_ns,class,bytes,id,high,tx_queue\n0,a,100,1,0,0\n0,a,100,2,0,0\n0,a,100,3,0,0\n0,a,100,4,0,0\n\
        0,a,100,5,1,1\n0,a,100,6,0,1\n0,a,100,7,0,1\n0,a,100,8,1,1\n";
    let (departures, drops, report) = replay(&link, list, &Options { tx_queues: 2, ..Options::default() });
    // 1 and 5 are in the rings. Queue 0: 2 and 3 wait; 4 is normal and is dropped. Queue 1: 6 and 7
    // wait; 8 is high, so 6 is dropped for it, and 8 goes first.
    assert_eq!(drops.lines().skip(1).map(|line| line.split(',').nth(3).unwrap()).collect::<Vec<_>>(), ["4", "6"]);
    let order: Vec<&str> = departures.lines().skip(1).map(|line| line.split(',').nth(3).unwrap()).collect();
    assert_eq!(order, ["1", "5", "2", "8", "3", "7"]);
    assert_eq!((report.classes[1].dropped_packets, report.classes[1].sent_packets), (2, 6));
}

#[test]
fn what_cannot_have_several_queues_says_why() {
    let options = Options { tx_queues: 4, ..Options::default() };
    let fail = |link: &Link, list: &str| {
        run(link, &Arrivals::read(list.as_bytes(), link).unwrap(), &options, &mut ()).unwrap_err().to_string()
    };
    let plain = "time_ns,class,bytes,id\n0,a,100,1\n";
    assert!(fail(&link(Rate::mbit_s(8), &["a"]), plain).contains("a column tx_queue, or flow"));
    let wrong = "time_ns,class,bytes,id,tx_queue\n0,a,100,1,4\n";
    assert!(fail(&link(Rate::mbit_s(8), &["a"]), wrong).contains("transmit queue 4, but there are 4"));
    let policy = "link wan { rate 8Mbit/s scheduler cbq class a { share 50% default } }";
    let cbq = altq_config::parse_str(policy, "test.altq", Language::Native).unwrap().links.remove(0);
    assert!(fail(&cbq, "time_ns,class,bytes,id,flow\n0,a,100,1,x\n").contains("need scheduler fifo"));
    let (bad, low) =
        ("time_ns,class,bytes,id,tx_queue\n0,bulk,100,1,64\n", "time_ns,class,bytes,id,segments\n0,bulk,100,1,0\n");
    assert!(read(bad).unwrap_err().contains("line 2, tx_queue: \"64\" is not a whole number from 0 to 63"));
    assert!(read(low).unwrap_err().contains("line 2, segments: \"0\" is not a whole number from 1 to 100"));
}

/// If a meter marks packets, the departures have a further column for that, behind the fixed ones.
#[test]
fn a_meter_adds_a_column() {
    let text = "link wan { rate 8Mbit/s scheduler fifo \
        class a { meter bucket { cir 8Mbit/s cbs 100 green dscp ef red dscp 1 } } class b { default } }";
    let link = altq_config::parse_str(text, "test.altq", Language::Native).unwrap().links.remove(0);
    let list = "time_ns,class,bytes,id,dscp\n0,a,100,1,10\n0,a,50,2,10\n0,b,50,3,10\n";
    let (departures, _, _) = replay(&link, list, &Options::default());
    assert_eq!(
        departures,
        "time_ns,class,bytes,id,wire_end_ns,dscp\n0,a,100,1,100000,46\n100000,a,50,2,150000,1\n\
         150000,b,50,3,200000,10\n"
    );
}

/// [`replay`] through a card with one ring, whatever the scheduler.
fn replay_by_ring(link: &Link, list: &str, options: &Options) -> (String, String, Report) {
    let arrivals = Arrivals::read(list.as_bytes(), link).unwrap();
    let (mut departures, mut drops) = (Vec::new(), Vec::new());
    let mut output = CsvOutput::new(link, &arrivals, Some(&mut departures), Some(&mut drops)).unwrap();
    let report = queues::run(link, &arrivals, options, &mut output).unwrap();
    output.finish().unwrap();
    (String::from_utf8(departures).unwrap(), String::from_utf8(drops).unwrap(), report)
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

    /// A card with one transmit queue is a wire with a ring: what leaves, when, and what is lost.
    #[test]
    fn one_ring_does_what_the_wire_does(
        // For each packet: gap to the packet before in µs, class, bytes, segments.
        packets in proptest::collection::vec((0u64..3_000, 0..3usize, 40u32..1_500, 1u16..4), 1..150),
        policy in 0..3usize,
        tx_ring in 1..6usize,
        tick in proptest::option::of(1u64..5),
        wire in 1u64..6,
    ) {
        let policy = [
            "scheduler fifo regulator 9000bytes class a { queue drop_tail { limit 9packets } } class b { default } \
             class c {}",
            "scheduler cbq class a { share 30% borrow } class b { share 50% borrow default } class c { share 20% }",
            "scheduler cbq { estimator classic } class a { share 20% borrow } class b { share 50% default } \
             class c { share 20% }",
        ][policy];
        let text = format!("link wan {{ rate 4Mbit/s overhead 12 bytes {policy} }}");
        let link = altq_config::parse_str(&text, "test.altq", Language::Native).unwrap().links.remove(0);
        let mut list = "time_ns,class,bytes,id,segments,tx_queue\n".to_string();
        let mut now = 0;
        for (id, (gap, class, bytes, segments)) in packets.iter().enumerate() {
            now += gap * 1_000;
            // A card asks the engine again after every segment. ALTQ's estimator counts that as an
            // occasion to send, and so does any scheduler between two ticks; so these cases have
            // single packets.
            let segments = if policy.contains("classic") || tick.is_some() { 1 } else { *segments };
            list += &format!("{now},{},{},{id},{segments},0\n", ["a", "b", "c"][*class], bytes * u32::from(segments));
        }
        let timer = tick.map_or(Timer::Exact, |ms| Timer::Tick(ms * 1_000_000));
        let options = Options { tx_ring, timer, wire_rate: Some(Rate::mbit_s(wire)), ..Options::default() };
        proptest::prop_assert_eq!(replay(&link, &list, &options), replay_by_ring(&link, &list, &options));
    }
}
