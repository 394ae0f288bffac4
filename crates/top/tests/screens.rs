//! Compares screens cell by cell with screens worked out by hand, and tests what keys do.

use std::borrow::Cow;
use std::time::Instant;

use altq_engine::account::Counters;
use altq_engine::headers::Key as Headers;
use altq_engine::sketch::{Packed, Sketch};
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Rate, SECOND};
use altq_monitor::document::{Group, Link, More, Own, Top};
use altq_monitor::fold::{By, Side};
use altq_monitor::summary::Counted;
use altq_monitor::{Amount, Class, FlowKey, Limits, Monitor, Second, Summary, Tree, View, Watch, Window};
use altq_top::traffic::{self, Traffic};
use altq_top::{Act, Key, Look, Screen, draw, plain};
use proptest::prelude::*;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier};

fn class(name: &str, parent: ClassId, kbit_s: u64) -> Class {
    Class { name: name.into(), parent, asked: Some(Rate::kbit_s(kbit_s)), ceiling: None }
}

/// A link of 100 Mbit/s. Web has borrowed 4.0 Mbit/s, of which voice has lent 2.9 and rest 1.1.
fn tree() -> Tree {
    let classes =
        [("wan", 0, 100), ("voice", 0, 5), ("agency1", 0, 50), ("web", 2, 30), ("bulk", 2, 20), ("rest", 0, 45)];
    Tree::new(classes.map(|(name, parent, mbit_s)| class(name, parent, mbit_s * 1000)).to_vec()).unwrap()
}

/// Counters, including those of the classes below, made from the figures of the classes 1, 3, 4 and
/// 5.
fn counters(own: [(u64, u64, u64, u64); 4]) -> Vec<Counters> {
    let mut all = vec![Counters::default(); 6];
    for ((bytes, packets, dropped, queued), above) in
        own.into_iter().zip([&[1, 0][..], &[3, 2, 0], &[4, 2, 0], &[5, 0]])
    {
        for class in above {
            all[*class] += Counters {
                sent_packets: packets,
                sent_bytes: bytes,
                sent_wire_bytes: bytes,
                dropped_packets: dropped,
                queued_bytes: queued,
                queued_packets: queued / 1000,
                ..Counters::default()
            };
        }
    }
    all
}

/// Ten packets that have waited for the same time. `time` must be the beginning of a bucket of the
/// histogram.
fn waited(time: u64) -> Packed {
    let mut sketch = Sketch::default();
    (0..10).for_each(|_| sketch.add(time));
    sketch.packed()
}

fn flow(src: &str, dst: &str, proto: u8, ports: (u16, u16)) -> FlowKey {
    let bits = |text: &str| match text.parse().unwrap() {
        core::net::IpAddr::V4(address) => (4, u128::from(u32::from(address))),
        core::net::IpAddr::V6(address) => (6, u128::from(address)),
    };
    let ((family, src), (_, dst)) = (bits(src), bits(dst));
    FlowKey::of(&Headers { src, dst, family, proto, ..Headers::default() }.with_ports(ports.0, ports.1))
}

fn document() -> Top {
    let mut monitor = Monitor::new(tree(), Limits::default(), None);
    let counted = |key, bytes, packets, error| Counted {
        key,
        at_least: Amount::new(bytes, packets),
        error: Amount::new(error, 0),
    };
    let listed = vec![
        counted(flow("10.1.0.7", "192.0.2.9", 6, (51_222, 443)), 1_137_500, 900, 10_000),
        counted(flow("2001:db8:1::7", "2001:db8:9::1", 6, (40_112, 443)), 750_000, 600, 10_000),
        counted(flow("10.1.0.12", "198.51.100.4", 17, (3074, 3074)), 275_000, 300, 0),
    ];
    let counters = counters([
        (262_500, 1000, 0, 0),
        (4_250_000, 3000, 2, 31_000),
        (2_500_000, 2000, 10, 65_000),
        (5_487_500, 4000, 0, 3_000),
    ]);
    monitor.second(Second {
        from: 0,
        to: SECOND,
        counters: &counters,
        unclassified: 0,
        delays: vec![(1, waited(65_536)), (3, waited(4_194_304)), (4, waited(16_777_216)), (5, waited(1_048_576))],
        flows: vec![(4, Summary::new(listed, Amount::new(2_500_000, 2000), Amount::new(10_000, 1)))],
        limited_by: ["link", "offered", "link", "link", "guarantee", "offered"].map(Cow::Borrowed).to_vec(),
        ..Second::default()
    });
    let frame = monitor.frame(Window::Second).unwrap();
    let more = |class| More { flows: Some(monitor.flows(&frame, class)), ..More::default() };
    let mut link = Link::of(&frame, monitor.counters(), more);
    link.unix_ns = Some((14 * 3600 + 2 * 60 + 31) * SECOND);
    link.own = Some(Own { loop_p99_ns: None, cpu_percent: Some(21.4) });
    Top::new(vec![link])
}

fn screen(look: Look) -> Screen {
    let mut screen = Screen::new(look, View::default(), Window::Second);
    screen.take(document()).unwrap();
    screen
}

fn drawn(screen: &mut Screen, width: u16, height: u16) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw(screen, &mut buffer);
    buffer
}

fn lines(buffer: &Buffer) -> Vec<String> {
    plain::text(buffer).lines().map(str::to_owned).collect()
}

const PLAIN: Look = Look { ascii: true, color: false };

#[test]
fn a_terminal_of_80_by_24_in_ascii() {
    let mut screen = screen(PLAIN);
    screen.chosen = Some("bulk".into());
    let shown = lines(&drawn(&mut screen, 80, 24));
    let expected = [
        "altq top  wan  100Mbit/s  shaping  14:02:31 UTC  cpu 21%",
        "sent 100Mbit/s 10.0kp/s  queue 99kB  drops 12/s  marks 0/s  [1s] 10s  60s",
        "  CLASS          ASK   GOT  BORR  LENT   P50   P99 DROPS QUEUE BY             9s",
        "  wan           100M  100M 4.00M 4.00M 1.1ms  17ms    12  99kB link            #",
        "   voice       5.00M 2.10M     - 2.90M  66us  66us     0    0B offered         #",
        "   agency1     50.0M 54.0M 4.00M     - 4.3ms  17ms    12  96kB link            #",
        "    web        30.0M 34.0M 4.00M     - 4.2ms 4.2ms     2  31kB link            #",
        ">   bulk       20.0M 20.0M     -     -  17ms  17ms    10  65kB gua~tee         #",
        "   rest        45.0M 43.9M     - 1.10M 1.0ms 1.0ms     0 3.0kB offered         #",
    ];
    assert_eq!(shown[..9], expected);
    assert!(shown[9..17].iter().all(String::is_empty), "{:?}", &shown[9..17]);
    let title = format!("{} bulk flows", "-".repeat(69));
    let others = format!("{:60}2.70M     200    13%", "others");
    let expected = [
        title.as_str(),
        "FLOW                                           PROTO DSCP   BIT/S   PKT/S  SHARE",
        "10.1.0.7:51222 > 192.0.2.9:443                 tcp      0 >=9.10M     900    45%",
        "[2001:db8:1::7]:40112 > [2001:db8:9::1]:443    tcp      0 >=6.00M     600    30%",
        "10.1.0.12:3074 > 198.51.100.4:3074             udp      0   2.20M     300    11%",
        others.as_str(),
        "j/k move  Enter fold  s sort  / filter  z idle  w window  p pause  ? help  q end",
    ];
    assert_eq!(shown[17..], expected);
    assert!(shown.iter().all(|line| line.is_ascii() && line.len() <= 80));
}

#[test]
fn a_terminal_of_200_by_60_with_blocks_and_colours() {
    let mut screen = screen(Look { ascii: false, color: true });
    let buffer = drawn(&mut screen, 200, 60);
    let shown = lines(&buffer);
    // Names have 15 columns (`agency1` with its indent, and room for ` +99`), limits 9
    // (`guarantee`), and the line 60, at the right: 15 + 8 * 6 + 1 + 9 + 1 + 60.
    let voice = "   voice        5.00M 2.10M     - 2.90M  66us  66us     0    0B offered";
    assert_eq!(shown[4].trim_end_matches('█').trim_end(), voice);
    assert!(shown[4].ends_with('█') && shown[4].chars().count() == 134, "{:?}", shown[4]);
    let cell = |x: u16, y: u16| buffer.cell((x, y)).unwrap();
    // The link is chosen; its row is marked and turned around. What was lost is red, what was
    // borrowed cyan.
    assert!(shown[3].starts_with("> wan") && cell(2, 3).modifier.contains(Modifier::REVERSED));
    let name = shown[3].find("4.00M").unwrap() as u16;
    assert_eq!((cell(name, 3).fg, cell(0, 5).modifier), (Color::Cyan, Modifier::empty()));
    let drops = shown[7].find(" 10 ").unwrap() as u16 + 1;
    assert_eq!(cell(drops, 7).fg, Color::LightRed);
    // Without colours the text is the same, and no cell has one.
    let mut plain = self::screen(Look { ascii: false, color: false });
    let colourless = drawn(&mut plain, 200, 60);
    assert_eq!(lines(&colourless), shown);
    assert!(colourless.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
}

#[test]
fn keys_choose_fold_sort_filter_and_end() {
    let mut screen = screen(PLAIN);
    let names = |screen: &mut Screen| -> Vec<String> {
        let shown = lines(&drawn(screen, 80, 24));
        let rows = shown[3..16].iter().take_while(|line| !line.is_empty() && !line.starts_with("---"));
        rows.map(|line| line[..15].trim_end().to_owned()).collect()
    };
    let all = ["> wan", "   voice", "   agency1", "    web", "    bulk", "   rest"];
    assert_eq!(names(&mut screen), all);
    assert_eq!([Key::Char('j'), Key::Down, Key::Up].map(|key| screen.key(key)), [Act::Ask; 3]);
    assert_eq!(screen.chosen.as_deref(), Some("voice"));
    screen.key(Key::Char('j'));
    assert_eq!(screen.key(Key::Enter), Act::Draw);
    // The link also shows that two rows below it are hidden.
    assert_eq!(names(&mut screen), ["  wan +2", "   voice", ">  agency1 +2", "   rest"]);
    screen.key(Key::Right);
    // Sorted by what classes got: rest 43.9, agency1 54.0, and so on.
    (0..3).for_each(|_| assert_eq!(screen.key(Key::Char('s')), Act::Draw));
    assert_eq!(names(&mut screen), ["  wan", ">  agency1", "    web", "    bulk", "   rest", "   voice"]);
    "/WE".chars().for_each(|c| _ = screen.key(Key::Char(c)));
    assert_eq!(names(&mut screen), ["  wan +3", ">  agency1 +1", "    web"]);
    let typing = lines(&drawn(&mut screen, 80, 24));
    assert_eq!(typing[23], "show classes with: WE_");
    screen.key(Key::Enter);
    assert_eq!(lines(&drawn(&mut screen, 80, 24))[23], "filter: WE (Esc ends it)  3 classes  ? help  q end");
    screen.key(Key::Escape);
    assert_eq!(names(&mut screen).len(), 6);
    assert_eq!((screen.key(Key::Char('w')), screen.window), (Act::Ask, Window::Ten));
    assert_eq!(screen.key(Key::Char('p')), Act::Draw);
    screen.take(Top::new(Vec::new())).unwrap();
    assert!(lines(&drawn(&mut screen, 80, 24))[0].contains("PAUSED"), "a paused screen stays");
    screen.key(Key::Char('p'));
    screen.key(Key::Char('?'));
    assert!(lines(&drawn(&mut screen, 80, 24)).iter().any(|line| line.contains("fold what is below")));
    assert_eq!(screen.key(Key::Char('x')), Act::Draw);
    assert_eq!(
        [Key::Char('x'), Key::Tab, Key::Char('q')].map(|key| screen.key(key)),
        [Act::Nothing, Act::Nothing, Act::Quit]
    );
}

#[test]
fn flows_are_folded_as_the_user_has_chosen() {
    let mut screen = screen(PLAIN);
    screen.chosen = Some("bulk".into());
    assert_eq!((screen.key(Key::Char('f')), screen.by), (Act::Ask, Some(By::Host(Side::Source))));
    // Until the answer comes, each flow stays.
    let shown = lines(&drawn(&mut screen, 80, 24));
    assert!(shown[17].ends_with(" bulk flows") && shown[18].starts_with("FLOW "), "{shown:?}");
    let mut folded = document();
    let bulk = &mut folded.links[0].classes[4];
    bulk.flows.clear();
    bulk.groups = vec![Group { name: "10.1.0.7".into(), bytes_at_least: 1_137_500, packets_at_least: 900 }];
    bulk.other_bytes = Some(1_362_500);
    screen.take(folded).unwrap();
    let shown = lines(&drawn(&mut screen, 80, 24));
    let (title, head) =
        (format!("{} bulk flows by host", "-".repeat(61)), format!("{:60}BIT/S   PKT/S  SHARE", "HOST"));
    let group = format!("{:60}9.10M     900    45%", "10.1.0.7");
    assert_eq!(shown[19..22], [title, head, group]);
    assert!(
        shown[22].starts_with("others") && plain::table(&mut screen, 80).contains("bulk flows by host"),
        "{shown:?}"
    );
    // Through all of them, and back to each flow.
    let next = |screen: &mut Screen| {
        screen.key(Key::Char('f'));
        screen.by.map_or("", By::word)
    };
    let words = [(); 6].map(|()| next(&mut screen));
    assert_eq!(words, ["to-host", "prefix", "to-prefix", "port", "dscp", ""]);
}

#[test]
fn a_table_that_is_printed_once_has_every_row() {
    let mut screen = screen(PLAIN);
    screen.chosen = Some("bulk".into());
    let text = plain::table(&mut screen, 80);
    let lines: Vec<&str> = text.lines().collect();
    // Three lines of head, six classes, and six lines about flows: a title, a head, three flows,
    // and the rest.
    assert_eq!(lines.len(), 3 + 6 + 6);
    assert!(lines[8].starts_with("   rest") && lines[14].starts_with("others"), "{text}");
}

#[test]
fn every_size_is_drawn() {
    for width in (0..130).step_by(7) {
        for height in 0..40 {
            let mut screen = screen(PLAIN);
            drawn(&mut screen, width, height);
            screen.key(Key::Char('?'));
            drawn(&mut screen, width, height);
            let traffic = Traffic { of: "eth0".into(), seconds: 1, ..Traffic::default() };
            traffic::draw(&screen, &traffic, &mut Buffer::empty(Rect::new(0, 0, width, height)));
        }
    }
    let mut empty = Screen::new(PLAIN, View::default(), Window::Second);
    drawn(&mut empty, 80, 24);
    assert_eq!(empty.key(Key::Down), Act::Nothing);
}

/// So many classes directly below a link, all of which send.
fn many(classes: u32) -> Top {
    let all = (0..classes).map(|at| class(&format!("customer-{at}"), ROOT, 100));
    let tree = Tree::new([class("wan", ROOT, 1_000_000)].into_iter().chain(all).collect()).unwrap();
    let mut monitor = Monitor::new(tree, Limits::default(), None);
    let mut counters: Vec<Counters> = (0..=u64::from(classes))
        .map(|at| Counters { sent_packets: at, sent_bytes: at * 100, sent_wire_bytes: at * 100, ..Counters::default() })
        .collect();
    let sum: u64 = (0..=u64::from(classes)).sum();
    counters[0] =
        Counters { sent_packets: sum, sent_bytes: sum * 100, sent_wire_bytes: sum * 100, ..Counters::default() };
    monitor.second(Second { from: 0, to: SECOND, counters: &counters, ..Second::default() });
    let frame = monitor.frame(Window::Second).unwrap();
    Top::new(vec![Link::of(&frame, monitor.counters(), |_| More::default())])
}

#[test]
fn ten_thousand_classes_are_drawn_within_a_tenth_of_a_second() {
    let mut screen = Screen::new(PLAIN, View::default(), Window::Second);
    screen.take(many(10_000)).unwrap();
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    // The shortest of several times, because other programs use the processors as well.
    let mut time = |keys: &[Key]| {
        let once = |_| {
            let begun = Instant::now();
            keys.iter().for_each(|key| _ = screen.key(*key));
            draw(&mut screen, &mut buffer);
            begun.elapsed().as_millis()
        };
        (0..7).map(once).min().unwrap()
    };
    assert!(time(&[]) < 100);
    assert!(time(&[Key::Char('s')]) < 100);
    assert!(time(&[Key::End]) < 100);
    assert!(time(&[Key::Char('/'), Key::Char('7'), Key::Enter]) < 100);
    // Only visible classes are drawn.
    screen.key(Key::Escape);
    screen.key(Key::End);
    let shown = lines(&drawn(&mut screen, 80, 24));
    // Of 24 lines three are the head, three are about flows, and one is about keys.
    let rows = shown[3..].iter().filter(|line| line.get(1..).is_some_and(|line| line.trim_start().starts_with("cust")));
    assert_eq!(rows.count(), 17, "{shown:#?}");
}

#[test]
fn protocols_and_hosts_of_an_interface() {
    let mut watch = Watch::new(3);
    let key = |src: u128, sport: u16, dport: u16, proto: u8| {
        Headers { src, dst: 0x0a00_0001, proto, family: 4, ..Headers::default() }.with_ports(sport, dport)
    };
    // 750 bytes by TCP to port 443, 250 by UDP to port 53.
    (0..3).for_each(|_| watch.packet(0, &key(0x0a00_0002, 50_000, 443, 6), 250));
    watch.packet(SECOND / 2, &key(0x0a00_0003, 40_000, 53, 17), 250);
    watch.finish();
    let traffic = Traffic::of("eth0", &watch, Some(Window::Second)).unwrap();
    let screen = Screen::new(PLAIN, View::default(), Window::Second);
    let text = traffic::table(&screen, &traffic, 80);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "altq top  eth0  unshaped  8.00kbit/s 4p/s  1.0kB in 1 s");
    let words = |at: usize| lines[at].split_whitespace().take(5).collect::<Vec<_>>();
    assert_eq!(words(1), ["PROTOCOL", "BIT/S", "PKT/S", "SHARE"]);
    assert_eq!(words(2), ["tcp", "443", "6.00k", "3", "75%"]);
    assert_eq!(words(3), ["udp", "53", "2.00k", "1", "25%"]);
    let hosts = lines.iter().position(|line| line.starts_with("HOST")).unwrap();
    // Each packet counts for both hosts: 10.0.0.1 has half of all.
    assert_eq!(words(hosts + 1)[..4], ["10.0.0.1", "8.00k", "4", "50%"]);
    assert_eq!(words(hosts + 2)[..4], ["10.0.0.2", "6.00k", "3", "37%"]);
}

proptest! {
    /// For any traffic, what is on the screen adds up: the frame that is read from a document is
    /// checked, and its rates are those of the document.
    #[test]
    fn figures_add_up_on_every_screen(
        seconds in prop::collection::vec(prop::array::uniform4(0u64..20_000_000), 1..20),
    ) {
        let mut monitor = Monitor::new(tree(), Limits::default(), None);
        let (mut sent, mut screen) = ([(0, 0, 0, 0); 4], Screen::new(PLAIN, View::default(), Window::Second));
        for (at, bytes) in (0..).zip(seconds) {
            for (sum, more) in sent.iter_mut().zip(bytes) {
                *sum = (sum.0 + more, sum.1 + more / 1000, 0, more % 5000);
            }
            let (from, to) = (at * SECOND, (at + 1) * SECOND);
            monitor.second(Second { from, to, counters: &counters(sent), ..Second::default() });
            for window in Window::ALL {
                let frame = monitor.frame(window).unwrap();
                screen.take(Top::new(vec![Link::of(&frame, monitor.counters(), |_| More::default())])).unwrap();
                let shown = screen.frame().unwrap();
                prop_assert_eq!(shown.check(), Ok(()));
                let link = &shown.rows[0].rates;
                prop_assert_eq!(link.borrowed, link.lent);
                let children: u64 = [1, 2, 5].iter().map(|class: &usize| shown.rows[*class].rates.got).sum();
                prop_assert_eq!(children, link.got);
                drawn(&mut screen, 80, 24);
            }
        }
    }
}
