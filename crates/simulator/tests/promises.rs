//! Bounds that `altq check` prints, against replays of traffic that keeps to what they assume; and
//! replays that begin at any time.

use altq_config::{Language, Link, Promises, parse_str};
use altq_engine::units::Nanos;
use altq_engine::{Departure, Drop, schedule};
use altq_simulator::replay::{self, Arrivals, Observer, Options};

fn link(text: &str) -> Link {
    parse_str(text, "t.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}")).links.remove(0)
}

/// When each packet of the list was handed over and when its last bit left, by place; `None` for
/// dropped ones.
#[derive(Default)]
struct Left(Vec<Option<(Nanos, Nanos)>>);

impl Observer for Left {
    fn sent(&mut self, now: Nanos, at: usize, _: &Departure, wire_end: Nanos) -> std::io::Result<()> {
        self.0[at] = Some((now, wire_end));
        Ok(())
    }

    fn dropped(&mut self, _: usize, _: &Drop) -> std::io::Result<()> {
        Ok(())
    }
}

fn run(link: &Link, packets: &[(Nanos, &str, u32)]) -> Left {
    let mut list = "time_ns,class,bytes,id\n".to_owned();
    for (id, (at, class, bytes)) in packets.iter().enumerate() {
        list += &format!("{at},{class},{bytes},{id}\n");
    }
    let arrivals = Arrivals::read(list.as_bytes(), link).expect("a list");
    let mut left = Left(vec![None; packets.len()]);
    replay::run(link, &arrivals, &Options::default(), &mut left).expect("a replay");
    left
}

/// The longest wait of the class's packets, until the last bit has left.
fn longest(link: &Link, class: &str, packets: &[(Nanos, &str, u32)]) -> Nanos {
    let left = run(link, packets);
    let of_class = packets.iter().zip(&left.0).filter(|((_, name, _), _)| *name == class);
    of_class.map(|((at, ..), left)| left.expect("no packet is dropped").1 - at).max().expect("packets")
}

/// Quanta that are the same where rates are not, as the defaults of htb above 16 Mbit/s: turns do
/// not bring the class its rate, so it waits for all that the other's bucket lets pass.
#[test]
fn htb_with_quanta_out_of_proportion() {
    let link = link(
        "link l { rate 1Gbit/s scheduler htb
            class a { rate 800Mbit/s  burst 1000000  cburst 1000000  queue drop_tail { limit 1000packets } }
            class b { rate 200Mbit/s  burst 250000  cburst 250000  queue drop_tail { limit 1000packets } default } }",
    );
    let mut packets = vec![(0, "b", 1500); 400];
    packets.extend((0..1000).map(|n| (n * 15_000, "a", 1500)));
    packets.sort_by_key(|(at, ..)| *at);
    let bound = Promises::new(&link).delay_bound(link.class("a").expect("a class")).conforming.expect("a bound");
    let waited = longest(&link, "a", &packets);
    assert!(waited <= bound && waited * 10 >= bound * 9, "waited {waited}, bound {bound}");
}

/// A class that counts its packets as longer than they are on the wire is slower there than its
/// rate says. By how much depends on their lengths: nothing is promised.
#[test]
fn htb_with_overhead_of_a_class() {
    let policy = |words: &str| {
        link(&format!(
            "link l {{ rate 10Mbit/s scheduler htb
                class a {{ rate 1Mbit/s burst 100000 cburst 100000 {words} queue drop_tail {{ limit 1000packets }} }}
                class b {{ rate 5Mbit/s ceil 10Mbit/s burst 100000 cburst 100000 default }} }}"
        ))
    };
    let mut packets: Vec<_> = (0..1000).map(|n| (n * 1_200_000, "b", 1500)).collect();
    packets.extend((0..2500).map(|n| (n * 512_000, "a", 64)));
    packets.sort_by_key(|(at, ..)| *at);
    let bound = |link: &Link| Promises::new(link).delay_bound(link.class("a").expect("a class"));
    let plain = policy("");
    let promised = bound(&plain).conforming.expect("a bound");
    assert!(longest(&plain, "a", &packets) <= promised);
    for words in ["overhead 100", "mpu 164"] {
        let charged = policy(words);
        // The same packets wait longer than they would without the word, and nothing says
        // otherwise.
        assert!(longest(&charged, "a", &packets) > promised, "{words}");
        let said = bound(&charged);
        assert!(said.conforming.is_none() && said.assumes.contains("`overhead`"), "{words}: {}", said.assumes);
    }
}

/// The same packets leave after the same times, whether the list begins at 0 or at a Unix time of
/// today or of the year 2200.
#[test]
fn replays_begin_at_any_time() {
    for entry in schedule::SCHEDULERS {
        let rates = |percent: u64| match entry.name {
            "cbq" => format!("rate {percent}kbit/s"),
            "hfsc" => format!("linkshare {percent}kbit/s upperlimit {percent}kbit/s"),
            "htb" => format!("rate {percent}kbit/s"),
            "wfq" => format!("bandwidth {percent}kbit/s shape {percent}kbit/s"),
            _ => String::new(),
        };
        let link = link(&format!(
            "link l {{ rate 1Mbit/s regulator auto scheduler {} class a {{ {} }} class b {{ {} default }} }}",
            entry.name,
            rates(300),
            rates(600)
        ));
        let at = |start: Nanos| {
            let packets: Vec<_> = (0..80)
                .map(|n| (start + n * 7_000_000, if n % 3 == 0 { "b" } else { "a" }, 200 + 16 * n as u32))
                .collect();
            let since = |left: Option<(Nanos, Nanos)>| left.map(|(out, end)| (out - start, end - start));
            run(&link, &packets).0.into_iter().map(since).collect::<Vec<_>>()
        };
        // One second after 1970; then 2000, 2026 and 2200.
        let first = at(1_000_000_000);
        assert!(first.iter().flatten().count() > 40, "{}", entry.name);
        for seconds in [946_684_800, 1_795_000_000, 7_258_118_400] {
            let later = at(seconds * 1_000_000_000);
            let differs = first.iter().zip(&later).position(|(one, other)| one != other);
            assert_eq!(differs, None, "{}: {:?}", entry.name, differs.map(|n| (first[n], later[n])));
        }
    }
}
