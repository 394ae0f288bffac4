//! Two links whose classes have the same names, as of every home: `up` and `down`. What is meant is
//! `up/work` or `down/work`; what could be either is an error that says both.

use std::path::Path;

use altq_cases::case::Case;
use altq_cases::result::CaseResult;
use altq_simulator::sim::{self, Watch};

/// A case of `up` (1 Mbit/s) and `down` (4 Mbit/s) with the classes `work` and `rest`, between a
/// host and a network; `up` alone has `own`.
fn case(rest: &str) -> String {
    format!(
        "name = 't'\ndescription = 'd'\nduration = '10s'\n\
         policy = '''link up {{ rate 1Mbit/s scheduler cbq class work {{ share 50% borrow }} \
         class rest {{ share 25% borrow default }} class own {{ share 25% borrow }} match dport 7 -> work }}\n\
         link down {{ rate 4Mbit/s scheduler cbq class work {{ share 50% borrow }} \
         class rest {{ share 50% borrow default }} match dport 7 -> work }}'''\n\
         hosts = [{{ name = 'home' }}, {{ name = 'net' }}]\n\
         links = [{{ name = 'dsl', from = 'home', to = 'net', policy = 'up', reverse = 'down' }}]\n{rest}"
    )
}

fn flow(name: &str, ends: [&str; 2], words: &str) -> String {
    let [from, to] = ends;
    format!("[[flows]]\nname = '{name}'\nkind = 'udp'\nfrom = '{from}'\nto = '{to}'\nsize = 1000\n{words}\n")
}

const UP: [&str; 2] = ["home", "net"];
const DOWN: [&str; 2] = ["net", "home"];

/// More than each link carries, in both classes of both links.
fn full() -> String {
    [
        flow("up-work", UP, "dport = 7\nrate = '2Mbit/s'"),
        flow("up-rest", UP, "dport = 8\nrate = '2Mbit/s'"),
        flow("down-work", DOWN, "dport = 7\nrate = '8Mbit/s'"),
        flow("down-rest", DOWN, "dport = 8\nrate = '8Mbit/s'"),
    ]
    .concat()
}

fn expect(name: &str, words: &str) -> String {
    format!("[[expect]]\nname = '{name}'\nsource = 'by hand'\n{words}\n")
}

fn run(text: &str) -> Result<CaseResult, String> {
    let case = Case::parse(text, Path::new("t.toml")).map_err(|error| error.to_string())?;
    let mut watch =
        Watch { series: Some(Vec::new()), counters: Some(altq_pages::stat::tc::measured), ..Watch::default() };
    sim::run_watched(&case, case.seed, None, &mut watch).map_err(|error| error.to_string())
}

/// The message about what is wrong with a case.
fn refused(text: &str) -> String {
    run(text).map(|result| format!("{result:?}")).expect_err("it runs")
}

#[test]
fn each_class_of_each_link_has_its_own_figures() {
    // Of 1 Mbit/s work has 2/3 and rest 1/3, as 50 to 25; of 4 Mbit/s each half.
    let mut text = case(&full());
    for (class, share, rate) in [
        ("up/work", "66.667%", 666_667),
        ("up/rest", "33.333%", 333_333),
        ("down/work", "50%", 2_000_000),
        ("down/rest", "50%", 2_000_000),
    ] {
        text += &expect(
            &format!("{class} share"),
            &format!("measure = 'share'\nclass = '{class}'\nexpected = '{share}'\ntolerance = '1%'"),
        );
        text += &expect(
            &format!("{class} rate"),
            &format!("measure = 'rate'\nclass = '{class}'\nexpected = {rate}\ntolerance = '1%'"),
        );
    }
    // Twelve times what the other class of the other link has.
    text += &expect("of", "measure = 'share'\nclass = 'down/work'\nof = 'up/rest'\nexpected = 6\ntolerance = '1%'");
    text += &expect(
        "sent",
        "measure = 'counter'\ncounter = 'packets'\nclass = 'down/rest'\nexpected = 2500\ntolerance = 15",
    );
    let result = run(&text).unwrap();
    assert!(result.passed(), "{:#?}", result.expectations.iter().filter(|e| !e.pass).collect::<Vec<_>>());
    assert_eq!(result.expectations[0].class.as_deref(), Some("up/work"));
    // Rows are told apart by link and class, each with what its own link charged and promises.
    let json = serde_json::to_value(&result).unwrap();
    let rows: Vec<(&str, &str, u64, u64)> = json["classes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let number = |key: &str| row[key].as_u64().unwrap();
            (
                row["link"].as_str().unwrap(),
                row["name"].as_str().unwrap(),
                number("guaranteed_bit_s"),
                number("charged_bytes") * 8 / 10,
            )
        })
        .collect();
    let names: Vec<(&str, &str, u64)> =
        rows.iter().map(|(link, name, guaranteed, _)| (*link, *name, *guaranteed)).collect();
    let wanted = [
        ("up", "up", 1_000_000),
        ("up", "work", 500_000),
        ("up", "rest", 250_000),
        ("up", "own", 250_000),
        ("down", "down", 4_000_000),
        ("down", "work", 2_000_000),
        ("down", "rest", 2_000_000),
    ];
    assert_eq!(names, wanted);
    for ((_, name, _, charged), wanted) in rows.iter().zip([1e6, 666_667.0, 333_333.0, 0.0, 4e6, 2e6, 2e6]) {
        assert!((*charged as f64 - wanted).abs() <= 0.01 * wanted, "{name}: {charged} for {wanted}");
    }
    let classes: Vec<Option<&str>> = result.flows.iter().map(|flow| flow.class.as_deref()).collect();
    assert_eq!(classes, ["up/work", "up/rest", "down/work", "down/rest"].map(Some));
    let series: Vec<&str> = result.series[0].classes.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(series, ["up/work", "up/rest", "down/work", "down/rest"]);
}

#[test]
fn what_could_be_either_is_an_error_with_both_readings() {
    let both = |class: &str| {
        format!("class \"{class}\" can be read in two ways: did you mean \"up/{class}\" or \"down/{class}\"?")
    };
    let event = |words: &str| case(&(full() + "[[events]]\nat = '1s'\n" + words));
    let expect = |words: &str| case(&(full() + &expect("e", words)));
    // The case has seven lines before what is added, the flows of `full` have 32.
    for (text, place, reason) in [
        (expect("measure = 'share'\nclass = 'work'\nexpected = 1\ntolerance = 1"), "t.toml:44:9: ", both("work")),
        (
            expect("measure = 'share'\nclass = 'up/work'\nof = 'rest'\nexpected = 1\ntolerance = 1"),
            "t.toml:45:6: ",
            both("rest"),
        ),
        (
            case(&(full() + "[[figures]]\nname = 'f'\nmeasure = 'rate'\nclass = 'work'\n")),
            "t.toml:43:9: ",
            both("work"),
        ),
        (event("class = 'work'\nset = { share = '60%' }"), "t.toml:42:9: event at 1000000000 ns: ", both("work")),
        (event("remove = 'work'"), "t.toml:42:10: event at 1000000000 ns: ", both("work")),
        (event("add = 'new'"), "t.toml:42:7: event at 1000000000 ns: ", both("new")),
        (event("add = 'new'\nparent = 'rest'"), "t.toml:43:10: event at 1000000000 ns: ", both("rest")),
        // What is of another link is no class of this one.
        (
            event("remove = 'up/work'\nheir = 'down/rest'"),
            "t.toml:43:8: event at 1000000000 ns: ",
            "link up has no class \"down/rest\"; did you mean \"rest\"?".into(),
        ),
        (
            expect("measure = 'share'\nclass = 'up/wrk'\nexpected = 1\ntolerance = 1"),
            "t.toml:44:9: ",
            "no link of the case has a class \"up/wrk\"; did you mean \"up/work\"?".into(),
        ),
        // The flow goes up, where there is no such class.
        (
            case(&flow("f", DOWN, "rate = '1Mbit/s'\nclass = 'own'")),
            "t.toml:15:9: ",
            "no link that the flow passes has a class \"own\"; did you mean \"down\"?".into(),
        ),
    ] {
        let error = refused(&text);
        assert!(error.starts_with(&format!("{place}{reason}\n")), "{error}\n\nwanted: {place}{reason}\n\n{text}");
        assert!(error.contains("^"), "{error}");
    }
}

#[test]
fn a_bare_name_is_enough_where_only_one_link_is_meant() {
    // Only `up` has `own`; a flow's class is one of the link that the flow passes; a parent or an
    // heir is one of the link of the class.
    let events = "[[events]]\nat = '1s'\nclass = 'own'\nset = { share = '20%' }\n\
        [[events]]\nat = '2s'\nadd = 'new'\nparent = 'own'\nset = { rate = '100kbit/s' }\n\
        [[events]]\nat = '3s'\nremove = 'down/work'\nheir = 'rest'\n";
    let text = case(
        &(flow("u", UP, "dport = 7\nrate = '1Mbit/s'\nclass = 'work'")
            + &flow("d", DOWN, "dport = 8\nrate = '1Mbit/s'\nclass = 'rest'")
            + events
            + &expect("own", "measure = 'packets'\nclass = 'own'\nexpected = 0\ntolerance = 0")
            + &expect("new", "measure = 'packets'\nclass = 'new'\nexpected = 0\ntolerance = 0")
            + &expect("down", "measure = 'rate'\nclass = 'down'\nexpected = 1000000\ntolerance = '1%'")),
    );
    let result = run(&text).unwrap();
    assert!(result.passed(), "{:?} {:#?}", result.notes, result.expectations);
    // In another class than named it is invalid.
    let other = run(&text.replace("class = 'rest'\n[[events]]", "class = 'down/work'\n[[events]]")).unwrap();
    assert!(
        !other.valid && other.notes[0].contains("went to class down/rest, not only to down/work"),
        "{:?}",
        other.notes
    );
}

#[test]
fn one_link_of_the_policy_in_both_directions() {
    let text = case(&full()).replace("reverse = 'down'", "reverse = 'up'");
    let ambiguous =
        refused(&(text.clone() + &expect("e", "measure = 'share'\nclass = 'work'\nexpected = 1\ntolerance = 1")));
    assert!(ambiguous.contains("did you mean \"dsl/work\" or \"dsl reverse/work\"?"), "{ambiguous}");
    let share = |class: &str| format!("measure = 'share'\nclass = '{class}'\nexpected = '66.667%'\ntolerance = '1%'");
    let result =
        run(&(text + &expect("there", &share("dsl/work")) + &expect("back", &share("dsl reverse/work")))).unwrap();
    assert!(result.passed(), "{:#?}", result.expectations);
    assert_eq!(result.flows[2].class.as_deref(), Some("dsl reverse/work"));
}

/// The rate at which each class of a link that two directions share was sent to, in bit/s.
fn rates(words: &str) -> [u64; 2] {
    let text = case(&full()).replace("reverse = 'down'", &format!("reverse = 'down'{words}"));
    let result = run(&text).unwrap();
    let rate = |name: &str| result.classes.iter().find(|row| row.report.name == name).unwrap().report.rate_bit_s;
    [rate("up"), rate("down")]
}

#[test]
fn the_way_back_has_its_own_policys_rate() {
    let near = |measured: [u64; 2], wanted: [u64; 2]| {
        for (measured, wanted) in measured.into_iter().zip(wanted) {
            assert!(measured.abs_diff(wanted) <= wanted / 100, "{measured} for {wanted}");
        }
    };
    near(rates(""), [1_000_000, 4_000_000]);
    near(rates(", reverse_rate = '2Mbit/s'"), [1_000_000, 2_000_000]);
    // A rate that the case names holds for both directions.
    near(rates(", rate = '500kbit/s'"), [500_000, 500_000]);
    near(rates(", rate = '500kbit/s', reverse_rate = '3Mbit/s'"), [500_000, 3_000_000]);
}

#[test]
fn an_event_changes_the_rate_of_one_direction_or_of_both() {
    // Over 10 s, of which the link has the new rate for 5.
    let rates = |words: &str| {
        let text = case(&(full() + "[[events]]\nat = '5s'\nlink = 'dsl'\n" + words));
        let result = run(&text).unwrap();
        let rate = |name: &str| result.classes.iter().find(|row| row.report.name == name).unwrap().report.rate_bit_s;
        [rate("up"), rate("down")]
    };
    for (words, wanted) in [
        ("rate = '500kbit/s'", [750_000, 2_250_000]),
        ("reverse_rate = '2Mbit/s'", [1_000_000, 3_000_000]),
        ("rate = '500kbit/s'\nreverse_rate = '2Mbit/s'", [750_000, 3_000_000]),
    ] {
        for (measured, wanted) in rates(words).into_iter().zip(wanted) {
            assert!(measured.abs_diff(wanted) <= wanted / 50, "{words}: {measured} for {wanted}");
        }
    }
    let nothing = refused(&case(&(full() + "[[events]]\nat = '5s'\nlink = 'dsl'\n")));
    assert!(nothing.contains("Write rate or reverse_rate"), "{nothing}");
}

#[test]
fn a_removed_classs_name_may_be_used_again() {
    // On a wire of 1 Mbit/s three flows ask for more than there is. `a` has 60 % and `b` 20 % of
    // their 80 until `b` goes at 4 s; from 6 s on there is another `b` with 60 %: half each.
    let text = "name = 't'\ndescription = 'd'\nduration = '10s'\n\
        policy = 'link wan { rate 1Mbit/s scheduler cbq class a { share 60% borrow } class b { share 20% borrow } \
        class rest { share 10% default } match dport 1 -> a match dport 2 -> b }'\n\
        hosts = [{ name = 'home' }, { name = 'net' }]\n\
        links = [{ name = 'wan', from = 'home', to = 'net', policy = 'wan' }]\n"
        .to_owned()
        + &flow("a", UP, "dport = 1\nrate = '2Mbit/s'")
        + &flow("b", UP, "dport = 2\nrate = '2Mbit/s'\nactive = [['0s', '4s'], ['6s', '10s']]")
        + "[[events]]\nat = '4s'\nremove = 'b'\n\
           [[events]]\nat = '5s'\nadd = 'c'\nset = { rate = '50kbit/s', borrow = true }\n\
           [[events]]\nat = '6s'\nadd = 'b'\nflows = ['b']\nset = { rate = '300kbit/s', borrow = true }\n\
           [[events]]\nat = '6s'\nclass = 'a'\nset = { rate = '300kbit/s' }\n"
        + &expect("before", "measure = 'share'\nclass = 'b'\nto = '4s'\nexpected = '25%'\ntolerance = '2%'")
        + &expect("between", "measure = 'share'\nclass = 'b'\nfrom = '4s'\nto = '6s'\nexpected = 0\ntolerance = 0")
        + &expect("again", "measure = 'share'\nclass = 'b'\nfrom = '7s'\nexpected = '50%'\ntolerance = '2%'")
        + &expect("another", "measure = 'packets'\nclass = 'c'\nexpected = 0\ntolerance = 0");
    let result = run(&text).unwrap();
    assert!(result.passed(), "{:?} {:#?}", result.notes, result.expectations);
    let names: Vec<&str> = result.classes.iter().map(|row| row.report.name.as_str()).collect();
    assert_eq!(names, ["wan", "a", "b", "rest", "c"]);
    // What came is what went, was dropped, or waits: of the class that went and the one that came.
    for row in result.classes.iter().map(|row| &row.report) {
        let after = row.sent_packets + row.dropped_packets + row.queued_packets;
        assert_eq!(row.arrived_packets, after, "{}", row.name);
    }
    let [whole, parts @ ..] = &result.classes[..] else { panic!("no classes") };
    let sum: u64 = parts.iter().map(|row| row.report.sent_bytes).sum();
    assert_eq!(whole.report.sent_bytes, sum);
    // While the first one is there, its name is taken.
    let taken = text.replace("remove = 'b'", "add = 'b'");
    assert!(refused(&taken).contains("link wan has a class \"b\" already"), "{}", refused(&taken));
}
