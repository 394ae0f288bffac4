//! Runs every case of `cases/` that the simulator can run, and checks the errors of wrong cases.

use std::path::{Path, PathBuf};

use altq_cases::case::{Case, CaseFile};
use altq_cases::result::{CaseResult, World};
use altq_simulator::sim::{self, RunOptions, SimError, Watch};

fn cases(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(cases(&path));
        } else if path.extension().is_some_and(|e| e == "toml") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A watch that can read counters as `tc -s` prints them, for expectations about them.
fn watch() -> Watch {
    Watch { counters: Some(altq_pages::stat::tc::measured), ..Watch::default() }
}

#[test]
fn every_case_holds() {
    let all = cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases"));
    let (mut ran, mut names) = (0, Vec::new());
    for path in &all {
        let file = CaseFile::load(path).unwrap_or_else(|error| panic!("{error}"));
        names.push(file.name.clone());
        let run = || sim::run_file(&file, &RunOptions::default(), None, &mut watch());
        let result = match run() {
            Ok(result) => result,
            Err(SimError::Elsewhere(_)) => continue,
            Err(error) => panic!("{}: {error}", path.display()),
        };
        for outcome in result.expectations.iter().filter(|outcome| !outcome.pass) {
            println!("{}: {outcome:?}", path.display());
        }
        assert!(result.passed(), "{}: {:?}", path.display(), result.notes);
        // Some of the lab's cases only expect figures that only the lab has.
        let lab = file.runs.iter().all(|run| run.case.expectations.iter().all(|e| e.world == Some(World::Lab)));
        assert!(lab || !result.expectations.is_empty(), "{}", path.display());
        ran += 1;
    }
    assert!(ran >= 8, "{ran}");
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all.len(), "cases have names of their own");
}

const HOSTS: &str = "hosts = [{ name = 'a' }, { name = 'b' }]\n";

/// A case with a link of 10 Mbit/s and the classes x (20 %) and y (80 %), followed by `rest`.
fn case(rest: &str) -> String {
    format!(
        "name = 't'\ndescription = 'd'\nduration = '2s'\n\
         policy = '''link wan {{ rate 10Mbit/s scheduler cbq\n class x {{ share 20% }}\n \
         class y {{ share 80% borrow default }}\n match dport 7 -> x }}'''\n{HOSTS}\
         links = [{{ name = 'wan', from = 'a', to = 'b', policy = 'wan', delay = '1ms' }}]\n{rest}"
    )
}

fn run(text: &str) -> Result<CaseResult, String> {
    let case = Case::parse(text, Path::new("t.toml")).map_err(|error| error.to_string())?;
    sim::run_watched(&case, case.seed, None, &mut watch()).map_err(|error| error.to_string())
}

const UDP: &str = "kind = 'udp'\nfrom = 'a'\nto = 'b'\n";

#[test]
fn bad_cases_are_refused_with_place_and_reason() {
    let flow = |words: &str| case(&format!("[[flows]]\nname = 'f'\n{words}\n"));
    let event =
        |words: &str| case(&format!("[[flows]]\nname = 'f'\n{UDP}size = 100\nrate = '1Mbit/s'\n[[events]]\n{words}\n"));
    let expect = |words: &str| {
        case(&format!(
            "[[flows]]\nname = 'f'\n{UDP}size = 100\nrate = '1Mbit/s'\n[[expect]]\nname = 'e'\nsource = 's'\n{words}\n"
        ))
    };
    let mut wrong = Vec::new();
    for (text, reason) in [
        ("nonsense".to_string(), "t.toml:1:9: "),
        (case("colour = 'red'"), "t.toml:10:1: unknown field `colour`"),
        (
            case("").replace("'2s'", "'2 weeks'"),
            "t.toml:3:12: `2 weeks` has no unit of time; units are ns, us, ms, s, min and h",
        ),
        (case("").replace("'2s'", "'0s'"), "a case that takes no time"),
        (case("").replace("'a', to = 'b'", "'a', to = 'bb'"), "there is no host called \"bb\"; did you mean \"b\"?"),
        (case("").replace("to = 'b', policy", "to = 'a', policy"), "a link needs two ends"),
        (case("").replace("policy = 'wan'", "policy = 'wn'"), "the policy has no link \"wn\"; did you mean \"wan\"?"),
        (case("").replace("{ name = 'b' }", "{ name = 'a' }"), "there are two hosts called \"a\""),
        (case("").replace("share 20%", "share 30%"), "over-100-percent"),
        (flow("kind = 'udq'\nfrom = 'a'\nto = 'b'"), "t.toml:12:8: there is no kind \"udq\"; did you mean \"udp\"?"),
        (flow(&format!("{UDP}rate = '1Mbit/s'")), "needs the size of its packets"),
        (flow(&format!("{UDP}size = 27\nrate = '1Mbit/s'")), "t.toml:15:8: sizes are 28 (IP and UDP headers) to 65535"),
        (flow(&format!("{UDP}size = 100")), "how fast does it send?"),
        (
            flow(&format!("{UDP}size = 100\nrate = '1mbps'")),
            "t.toml:16:8: `1mbps` can be read in two ways: bits or bytes a second; for bits a second write 1Mbit/s",
        ),
        (flow(&format!("{UDP}size = 100\nrate = '0bit/s'")), "sends nothing"),
        (
            flow(&format!("{UDP}size = 100\nrate = '1Mbit/s'\nburst = 3")),
            "t.toml:17:9: a flow of kind udp, shape constant, knows no burst",
        ),
        (flow(&format!("{UDP}size = 100\nrate = '1Mbit/s'\nshape = 'poison'")), "did you mean \"poisson\"?"),
        (flow(&format!("{UDP}size = 100\nrate = '1Mbit/s'\nstart = '3s'")), "starts when the case is over"),
        (flow(&format!("{UDP}size = 100\nrate = '1Mbit/s'\nactive = [['1s', '0s']]")), "in order"),
        (flow(&format!("{UDP}size = 100\nrate = '1Mbit/s'\ndscp = 'af44'")), "a DSCP is"),
        (flow("kind = 'tcp_bulk'\nfrom = 'a'\nto = 'b'\nhigh = true"), "only a flow of kind udp says so"),
        (case("").replace("policy = 'wan'", "policy = 'wan', tx_queues = 0"), "a card has 1 to 64 transmit queues"),
        (
            case("").replace("policy = 'wan'", "policy = 'wan', tx_buffer = 2048"),
            "of a card with several transmit queues",
        ),
        (case("").replace("policy = 'wan'", "policy = 'wan', tx_queues = 4, tx_buffer = 0"), "holds nothing"),
        (case("").replace("policy = 'wan'", "policy = 'wan', tx_queues = 4"), "need scheduler fifo"),
        (flow("kind = 'tcp_bulk'\nfrom = 'a'\nto = 'b'\ncongestion = 'vegas'"), "no congestion control \"vegas\""),
        (flow("kind = 'tcp_bulk'\nfrom = 'a'\nto = 'b'\nmss = 1460"), "do not fit packets of 1500"),
        (flow("kind = 'pcap'\nfrom = 'a'\nto = 'b'\nfile = 'no.pcap'"), "no.pcap"),
        (event("at = '1s'"), "what changes?"),
        (event("at = '5s'\nflow = 'f'\nactive = false"), "the case is over by then"),
        (event("at = '1s'\nflow = 'g'\nactive = false"), "there is no flow called \"g\""),
        (
            event("at = '1s'\nclass = 'z'\nset = { share = '10%' }"),
            "event at 1000000000 ns: no link of the case has a class \"z\"",
        ),
        (event("at = '1s'\nclass = 'x'\nset = { prioritty = 3 }"), "has no word \"prioritty\"; did you mean priority?"),
        (event("at = '1s'\nclass = 'x'\nset = { priority = 9 }"), "priority is 0 to 7"),
        (event("at = '1s'\nclass = 'x'\nheir = 'y'"), "heir does not go with class"),
        (event("at = '1s'\nadd = 'x'"), "has a class \"x\" already"),
        (expect("measure = 'shar'\nclass = 'x'\nexpected = 1\ntolerance = 1"), "did you mean \"share\"?"),
        (
            expect("measure = 'share'\nclass = 'xx'\nexpected = 1\ntolerance = 1"),
            "no link of the case has a class \"xx\"; did you mean \"x\"?",
        ),
        (expect("measure = 'share'\nflow = 'f'\nexpected = 1\ntolerance = 1"), "share is measured of a class"),
        (expect("measure = 'share'\nclass = 'x'\nexpected = 0.2"), "how far off may it be?"),
        (expect("measure = 'share'\nclass = 'x'\nexpected = '1Mbit/s'\ntolerance = 1"), "a fraction is written as"),
        (expect("measure = 'share'\nclass = 'x'\nexpected = -1\ntolerance = 1"), "a figure is a number from 0"),
        (expect("measure = 'share'\nclass = 'x'\nexpected = 0.2\ntolerance = 1\nto = '9s'"), "after the case is over"),
        (expect("measure = 'rate'\nclass = 'x'\nexpected = '5%'\ntolerance = 1"), "a percentage of what?"),
        (expect("measure = 'counter'\nclass = 'x'\nexpected = 5\ntolerance = 1"), "which one? Write counter"),
        (
            expect("measure = 'drops'\ncounter = 'lended'\nclass = 'x'\nexpected = 5\ntolerance = 1"),
            "only the measure counter has",
        ),
        (
            expect("measure = 'identities'\nclass = 'wan'\nfrom = '1s'\nexpected = 5\ntolerance = 1"),
            "leave from and to out",
        ),
    ] {
        let error = run(&text).map(|result| format!("{result:?}")).expect_err(&text);
        if !error.contains(reason) {
            wrong.push(format!("{error}\n\nwanted: {reason}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn delays_add_up() {
    // 1000 bytes at 10 Mbit/s take 0.8 ms, and each of two links delays them by 1 ms. There is no
    // other traffic.
    let text = case(&format!("[[flows]]\nname = 'f'\n{UDP}dport = 7\nclass = 'x'\nsize = 1000\ninterval = '10ms'\n"))
        .replace("{ name = 'b' }", "{ name = 'r' }, { name = 'b' }")
        .replace(
            "to = 'b', policy = 'wan', delay = '1ms' }",
            "to = 'r', policy = 'wan', delay = '1ms' }, \
             { name = 'far', from = 'b', to = 'r', rate = '20Mbit/s', delay = '1ms' }",
        );
    let result = run(&text).unwrap();
    let flow = &result.flows[0];
    assert_eq!((flow.delay_ns.p50, flow.delay_ns.p99), (Some(3_200_000), Some(3_200_000)));
    // A packet every 10 ms for 2 s. The last one arrives before the case ends.
    assert_eq!((flow.sent_packets, flow.received_packets), (Some(200), Some(200)));
    assert_eq!((flow.goodput_bit_s, flow.class.as_deref()), (972 * 8 * 100, Some("x")));
    assert!(result.valid && result.passed());
}

#[test]
fn what_a_flow_meets_in_a_queue() {
    // 100 packets of 1000 bytes arrive at once at a link of 8 Mbit/s, where each takes 1 ms: one is
    // sent, ten wait for 1 to 10 ms, together 55 ms, and 89 find no room. Over 500 ms the ten are
    // 0.11 packets on average. The other flow's only packet comes later.
    let one = |name: &str, measure: &str, of: &str, expected: f64| {
        format!(
            "[[expect]]\nname = '{name}'\nmeasure = '{measure}'\n{of}\nexpected = {expected}\ntolerance = 1e-9\n\
             source = 'by hand'\n"
        )
    };
    let counter = |name: &str, class: &str| format!("class = '{class}'\ncounter = '{name}'");
    let mut text = format!(
        "name = 't'\ndescription = 'd'\nduration = '500ms'\n\
         policy = \"link wan {{ rate 8Mbit/s scheduler fifo \
         class all {{ default queue drop_tail {{ limit 10packets }} }} }}\"\n\
         {HOSTS}links = [{{ name = 'wan', from = 'a', to = 'b', policy = 'wan' }}]\n\
         [[flows]]\nname = 'f'\n{UDP}size = 1000\nshape = 'bursts'\nburst = 100\nevery = '1s'\n\
         [[flows]]\nname = 'g'\n{UDP}size = 1000\ninterval = '1s'\nstart = '100ms'\n"
    );
    for (at, (measure, of, expected)) in [
        ("drops", "flow = 'f'".into(), 89.0),
        ("queue", "flow = 'f'".into(), 0.11),
        ("marked", "flow = 'f'".into(), 0.0),
        ("marked", "class = 'all'".into(), 0.0),
        ("drops", "flow = 'g'".into(), 0.0),
        ("queue", "flow = 'g'".into(), 0.0),
        ("queue", "class = 'all'".into(), 0.11),
        ("counter", counter("dropped", "all"), 89.0),
        ("counter", counter("packets", "all"), 12.0),
        ("counter", counter("bytes", "wan"), 12_000.0),
        // Bytes, packets and backlog of the root and its leaf; bytes and packets of class 1:1 and
        // the class below it.
        ("identities", "class = 'wan'".to_owned(), 5.0),
        ("disagreements", "class = 'wan'".to_owned(), 0.0),
    ]
    .into_iter()
    .enumerate()
    {
        text += &one(&format!("{measure} {at}"), measure, &of, expected);
    }
    let result = run(&text).unwrap();
    assert!(result.passed(), "{:#?}", result.expectations.iter().filter(|e| !e.pass).collect::<Vec<_>>());
}

#[test]
fn a_flow_in_another_class_than_named_is_invalid() {
    let text = case(&format!("[[flows]]\nname = 'f'\n{UDP}dport = 8\nclass = 'x'\nsize = 1000\ninterval = '10ms'\n"));
    let result = run(&text).unwrap();
    assert!(!result.valid && !result.passed() && result.notes[0].contains("went to class y"), "{:?}", result.notes);
}

/// What the rules certainly decide is said before anything runs. Where packets of a flow may
/// differ, only a run can tell.
#[test]
fn a_flow_in_another_class_than_named_is_found_without_a_run() {
    let flow = |class: &str| {
        format!("[[flows]]\nname = 'f'\n{UDP}dport = 8\nclass = '{class}'\nsize = 1000\ninterval = '10ms'\n")
    };
    let check = |text: &str| sim::check_file(&CaseFile::parse(text, Path::new("t.toml")).unwrap());
    let wrong = check(&case(&flow("x"))).unwrap_err().to_string();
    assert!(wrong.contains("the rules put the packets of flow `f` into class `y`"), "{wrong}");
    assert!(wrong.contains("class = 'x'"), "its line is shown: {wrong}");
    check(&case(&flow("y"))).unwrap();
    let long = case(&flow("x")).replace("class x", "match length 1000-1500 -> x  class x");
    check(&long).unwrap();
}

/// A case with random sources.
fn chance() -> Case {
    let text = case(&format!(
        "[[flows]]\nname = 'f'\n{UDP}size = [40, 576, 1500]\nrate = '9Mbit/s'\nshape = 'poisson'\n\
         [[flows]]\nname = 'g'\n{UDP}size = 300\nrate = '5Mbit/s'\nshape = 'on_off'\non = '20ms'\noff = '30ms'\n\
         random = true\n"
    ));
    Case::parse(&text, Path::new("t.toml")).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let case = chance();
    let bytes = |seed| {
        let mut pcap = Vec::new();
        let result = sim::run(&case, seed, Some(&mut pcap)).unwrap();
        (serde_json::to_string(&result).unwrap(), pcap)
    };
    let (first, second, other) = (bytes(5), bytes(5), bytes(6));
    assert!(first == second);
    assert!(first.0 != other.0 && first.1 != other.1);
}

#[test]
fn what_is_recorded_can_be_replayed() {
    let case = chance();
    let mut pcap = Vec::new();
    let first = sim::run(&case, 5, Some(&mut pcap)).unwrap();
    let folder = std::env::temp_dir().join(format!("altq-cases-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let play = |bytes: &[u8]| {
        std::fs::write(folder.join("t.pcap"), bytes).unwrap();
        let text = self::case("[[flows]]\nname = 'p'\nkind = 'pcap'\nfrom = 'a'\nto = 'b'\nfile = 't.pcap'\n");
        let mut case = Case::parse(&text, Path::new("t.toml")).unwrap();
        case.folder = folder.clone();
        let mut again = Vec::new();
        let result = sim::run(&case, 1, Some(&mut again));
        (result, again)
    };
    // Packets that left a link of this rate pass another link of the same rate without waiting. So
    // the second capture is equal to the first, with times counted from its first packet.
    let (result, again) = play(&pcap);
    let result = result.unwrap();
    let sent: u64 = first.classes.iter().filter(|c| c.report.parent.is_none()).map(|c| c.report.sent_packets).sum();
    assert_eq!(result.classes[0].report.arrived_packets, sent);
    assert_eq!(result.classes[0].report.delay_ns.p99, Some(0));
    assert_eq!(result.flows[0].sent_packets, Some(sent));
    assert_eq!(again.len(), pcap.len());
    assert_eq!(again[40..], pcap[40..][..again.len() - 40], "the first packet's bytes and all behind it, times apart");
    // A capture that is cut short: the packets before the cut are replayed, and the result is
    // marked.
    let (result, _) = play(&pcap[..pcap.len() / 2]);
    let result = result.unwrap();
    let n = result.flows[0].sent_packets.unwrap();
    assert!(!result.valid && n > 0 && n < sent);
    assert!(
        result.notes[0].starts_with(sim::CUT_SHORT) && result.notes[0].contains("begins at byte"),
        "{:?}",
        result.notes
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
