//! `altq replay` and `altq sim` as processes: exit codes, files, streams.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const POLICY: &str = "link wan { rate 10Mbit/s scheduler cbq
    class slow { share 20% }
    class fast { share 80% borrow default }
    match dport 5001 -> slow }
";

/// A folder for one test, which is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("altq-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("p.altq"), POLICY).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.0.join(name)).ok()
    }

    fn altq(&self, args: &[&str]) -> (i32, String, String) {
        let output = self.command(args).output().unwrap();
        parts(&output)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.args(args).current_dir(&self.0);
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn parts(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// A list in which each class is offered the whole link for two seconds: 1250 bytes per
/// millisecond.
fn list() -> String {
    let mut list = "time_ns,class,bytes,id\n".to_string();
    for n in 0..2000 {
        list += &format!("{0},slow,1250,{1}\n{0},fast,1250,{2}\n", n * 1_000_000, 2 * n, 2 * n + 1);
    }
    list
}

#[test]
fn replay_writes_what_it_promises() {
    let folder = Folder::new("replay");
    folder.write("a.csv", &list());
    let args = ["replay", "p.altq", "--arrivals", "a.csv", "--departures", "d.csv", "--drops", "x.csv", "--json"];
    let (code, out, err) = folder.altq(&args);
    assert_eq!((code, err.as_str()), (0, ""));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["schema"], "altq.replay/1");
    assert_eq!(out.lines().count(), 1);
    let classes = report["classes"].as_array().unwrap();
    assert_eq!(classes.iter().map(|c| c["name"].as_str().unwrap()).collect::<Vec<_>>(), ["wan", "slow", "fast"]);
    for class in classes {
        let n = |field: &str| class[field].as_u64().unwrap();
        assert_eq!(n("arrived_packets"), n("sent_packets") + n("dropped_packets") + n("queued_packets"), "{class}");
    }
    // The wire ends one packet and begins the next at the same nanosecond. A packet of 1250 bytes
    // takes 1 ms.
    let departures = folder.read("d.csv").unwrap();
    let mut lines = departures.lines();
    assert_eq!(lines.next(), Some("time_ns,class,bytes,id,wire_end_ns"));
    let mut sent = 0;
    for line in lines {
        let f: Vec<&str> = line.split(',').collect();
        assert_eq!(f[4].parse::<u64>().unwrap(), f[0].parse::<u64>().unwrap() + 1_000_000, "{line}");
        sent += 1;
    }
    assert_eq!(classes[0]["sent_packets"], sent);
    let drops = folder.read("x.csv").unwrap();
    assert!(
        drops.starts_with("time_ns,class,bytes,id,reason\n") && drops.lines().nth(1).unwrap().ends_with(",queue_full")
    );
    assert_eq!(drops.lines().count() as u64 - 1, classes[0]["dropped_packets"].as_u64().unwrap());
    // In the second second each class has its share, up to one packet.
    let (_, out, _) = folder.altq(&["replay", "p.altq", "--arrivals", "a.csv", "--from", "1s", "--to", "2s", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((report["from_ns"].as_u64(), report["to_ns"].as_u64()), (Some(1_000_000_000), Some(2_000_000_000)));
    for (class, rate) in [(1, 2_000_000f64), (2, 8_000_000f64)] {
        let got = report["classes"][class]["rate_bit_s"].as_u64().unwrap() as f64;
        assert!((got - rate).abs() <= 10_000.0, "{got}");
    }
}

#[test]
fn every_scheduler_and_queue_by_its_name() {
    let folder = Folder::new("registry");
    folder.write("a.csv", &list());
    let guarantees = |name| match name {
        "cbq" => ("share 20%", "share 80%"),
        "htb" => ("rate 2Mbit/s", "rate 8Mbit/s"),
        "hfsc" => ("linkshare 2Mbit/s", "linkshare 8Mbit/s"),
        "wfq" => ("bandwidth 2Mbit/s", "bandwidth 8Mbit/s"),
        "drr" => ("quantum 1500", "quantum 6000"),
        _ => ("", ""),
    };
    let schedulers = altq_engine::schedule::SCHEDULERS.iter().map(|entry| (entry.name, "drop_tail"));
    let queues = altq_engine::queue::QUEUES.iter().map(|entry| ("drr", entry.name));
    for (scheduler, queue) in schedulers.chain(queues) {
        let (slow, fast) = guarantees(scheduler);
        let class = |name: &str, words: &str| format!("class {name} {{ {words} queue {queue} {{ limit 20packets }} }}");
        folder.write(
            "r.altq",
            &format!(
                "link wan {{ rate 10Mbit/s scheduler {scheduler}\n{}\n{}\n}}\n",
                class("slow", slow),
                class("fast", fast)
            ),
        );
        let (code, out, err) =
            folder.altq(&["replay", "r.altq", "--arrivals", "a.csv", "--from", "500ms", "--to", "2s", "--json"]);
        assert_eq!(code, 0, "{scheduler} {queue}: {err}");
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        let sum = |class: &str, word: &str| {
            let classes = json["classes"].as_array().unwrap();
            classes.iter().find(|c| c["name"] == class).and_then(|c| c[word].as_u64()).unwrap()
        };
        let rates = [sum("slow", "rate_bit_s"), sum("fast", "rate_bit_s")];
        // Twice the link's rate is offered. The whole link is used, and shares are kept if there
        // are any.
        let all = rates[0] + rates[1];
        assert!((9_980_000..=10_020_000).contains(&all), "{scheduler} {queue}: {rates:?}");
        if !slow.is_empty() {
            assert!((1_960_000..=2_040_000).contains(&rates[0]), "{scheduler} {queue}: {rates:?}");
        }
        assert_eq!(
            (sum("slow", "arrived_packets"), sum("fast", "arrived_packets")),
            (1500, 1500),
            "{scheduler} {queue}"
        );
    }
}

#[test]
fn replay_prints_a_table_that_fits() {
    let folder = Folder::new("table");
    folder.write("a.csv", &list());
    let (code, out, _) = folder.altq(&["replay", "p.altq", "--arrivals", "a.csv", "--from", "1s", "--to", "2s"]);
    assert_eq!(code, 0);
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    assert!(out.contains("  slow") && out.contains("20.0"), "{out}");
}

#[test]
fn replay_refuses_and_writes_nothing() {
    let folder = Folder::new("refuse");
    folder.write("a.csv", &list());
    folder.write("bad.csv", "time_ns,class,bytes,id\n0,slow,100,1\n1,slwo,100,2\n2,slow,100,3\n");
    folder.write("bad.altq", "link wan { rate 10Mbit/s scheduler cbq class a { share 120% } }");
    folder.write("two.altq", "link a { rate 1Mbit/s scheduler fifo }\nlink b { rate 1Mbit/s scheduler fifo }");
    for (args, reason) in [
        (
            &["replay", "p.altq", "--arrivals", "bad.csv"][..],
            "bad.csv: line 3, class: the link has no class \"slwo\"; did you mean \"slow\"?",
        ),
        (&["replay", "p.altq", "--arrivals", "none.csv"], "none.csv"),
        (&["replay", "bad.altq", "--arrivals", "a.csv"], "bad.altq:1:"),
        (&["replay", "none.altq", "--arrivals", "a.csv"], "none.altq"),
        (&["replay", "two.altq", "--arrivals", "a.csv"], "several links; say which with --link: a, b"),
        (&["replay", "two.altq", "--link", "c", "--arrivals", "a.csv"], "no link \"c\"; its links: a, b"),
        (&["replay", "p.altq", "--arrivals", "a.csv", "--timer", "1024"], "1000 and 1250"),
        (&["replay", "p.altq", "--arrivals", "a.csv", "--wire-rate", "10mbps"], "for bits a second write 10Mbit/s"),
        (&["replay", "p.altq", "--arrivals", "a.csv", "--wire-rate", "0"], "a wire of 0 bit/s carries nothing"),
        (&["replay", "p.altq", "--arrivals", "a.csv", "--to", "10"], "10 of what? write the unit"),
        (&["replay", "p.altq", "--arrivals", "a.csv", "--from", "10"], "10 of what? write the unit"),
        (&["replay", "p.altq", "--arrivals", "a.csv", "--timer", "2000000000"], "the nearest that are: 1000000000"),
        (&["replay", "p.altq", "--arrivals", "a.csv", "--tx-ring", "0"], "--tx-ring"),
        (&["replay", "p.altq", "--arrivals", "a.csv", "--from", "2s", "--to", "1s"], "--to must be later than --from"),
        (&["replay", "p.altq"], "--arrivals"),
    ] {
        let all: Vec<&str> = args.iter().copied().chain(["--departures", "d.csv", "--json"]).collect();
        let (code, out, err) = folder.altq(&all);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}\n{err}");
        assert!(err.contains(reason), "{args:?}\n{err}");
        assert_eq!(folder.read("d.csv"), None, "{args:?}");
    }
    let (code, _, err) =
        folder.altq(&["replay", "p.altq", "--arrivals", "a.csv", "--departures", "no/such/folder.csv"]);
    assert_eq!(code, 1, "{err}");
}

/// What is read is never overwritten, by whatever name.
#[test]
fn replay_does_not_overwrite_what_it_reads() {
    let folder = Folder::new("overwrite");
    folder.write("a.csv", &list());
    std::os::unix::fs::symlink("a.csv", folder.0.join("link.csv")).unwrap();
    fs::hard_link(folder.0.join("p.altq"), folder.0.join("hard.csv")).unwrap();
    folder.write("whole.altq", "include \"p.altq\"\n");
    for (policy, files, reason) in [
        ("p.altq", &["--departures", "a.csv"][..], "--departures a.csv would overwrite the list of packets"),
        ("p.altq", &["--drops", "./link.csv"], "--drops ./link.csv would overwrite the list of packets"),
        ("p.altq", &["--departures", "hard.csv"], "would overwrite the policy"),
        ("whole.altq", &["--departures", "p.altq"], "would overwrite the policy"),
        ("p.altq", &["--departures", "d.csv", "--drops", "d.csv"], "--drops d.csv would overwrite the departures"),
    ] {
        let args = [&["replay", policy, "--arrivals", "a.csv"][..], files].concat();
        let (code, out, err) = folder.altq(&args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}\n{err}");
        assert!(err.contains(reason), "{args:?}\n{err}");
        assert_eq!(folder.read("a.csv"), Some(list()), "{args:?}");
        assert_eq!(folder.read("p.altq").as_deref(), Some(POLICY), "{args:?}");
        assert_eq!(folder.read("d.csv"), None, "{args:?}");
    }
    // What comes from standard input may be a file as well.
    let input = fs::File::open(folder.0.join("a.csv")).unwrap();
    let mut piped = folder.command(&["replay", "p.altq", "--arrivals", "-", "--departures", "a.csv"]);
    assert_eq!(piped.stdin(input).output().unwrap().status.code(), Some(2));
    assert_eq!(folder.read("a.csv"), Some(list()));
    // Both may go where everything is forgotten.
    let nowhere = ["--departures", "/dev/null", "--drops", "/dev/null"];
    let (code, _, err) = folder.altq(&[&["replay", "p.altq", "--arrivals", "a.csv"][..], &nowhere].concat());
    assert_eq!((code, err.as_str()), (0, ""));
}

/// Packets arrive for 2 s, at twice the rate of the link; the run is over long before 1 h.
#[test]
fn a_window_behind_the_end_is_an_error() {
    let folder = Folder::new("window");
    folder.write("a.csv", &list());
    let (code, out, err) = folder.altq(&["replay", "p.altq", "--arrivals", "a.csv", "--from", "3600s"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("nothing is counted from") && err.contains("an earlier --from"), "{err}");
}

#[test]
fn a_list_cut_short_is_said_and_what_came_before_is_kept() {
    let folder = Folder::new("cut");
    folder.write("cut.csv", "time_ns,class,bytes,id\n0,slow,100,1\n1000,fast,100,2\n2000,fast,15");
    let (code, out, err) =
        folder.altq(&["replay", "p.altq", "--arrivals", "cut.csv", "--departures", "d.csv", "--json"]);
    assert_eq!(code, 1);
    assert!(err.contains("line 4") && err.contains("byte 52"), "{err}");
    assert_eq!(folder.read("d.csv").unwrap().lines().count(), 3);
    assert!(out.contains("\"marks\":[\"cut_short\"]"), "{out}");
}

#[test]
fn replay_reads_stdin_and_bears_a_closed_pipe() {
    let folder = Folder::new("pipe");
    let mut child = folder
        .command(&["replay", "p.altq", "--arrivals", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The reader of the pipe goes away before anything is printed.
    drop(child.stdout.take());
    child.stdin.take().unwrap().write_all(list().as_bytes()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_class_that_may_not_send_ends_the_run() {
    let folder = Folder::new("never");
    for (regulator, timer) in [("none", "exact"), ("auto", "exact"), ("none", "100"), ("auto", "100")] {
        folder.write(
            "never.altq",
            &format!(
                "link l {{ rate 1Mbit/s regulator {regulator} scheduler cbq class a {{ rate 0bit/s }} \
                 class b {{ share 10% }} }}"
            ),
        );
        folder.write("a.csv", "time_ns,class,bytes,id\n0,a,100,1\n0,a,100,2\n0,b,100,3\n");
        let (code, out, err) =
            folder.altq(&["replay", "never.altq", "--arrivals", "a.csv", "--timer", timer, "--json"]);
        assert_eq!(code, 0, "{err}");
        let report: serde_json::Value = serde_json::from_str(&out).unwrap();
        let row = |at: usize, field: &str| report["classes"][at][field].as_u64().unwrap();
        assert_eq!((row(1, "queued_packets"), row(2, "sent_packets")), (2, 1), "{regulator} {timer}");
    }
}

#[test]
fn sim_exits_by_what_came_out() {
    let folder = Folder::new("sim");
    let case = |expected: &str, kind: &str| {
        format!(
            "name = 't'\ndescription = 'd'\nduration = '3s'\nwarmup = '1s'\npolicy_file = 'p.altq'\n\
             hosts = [{{ name = 'a' }}, {{ name = 'b' }}]\n\
             links = [{{ name = 'w', from = 'a', to = 'b', policy = 'wan' }}]\n\
             [[flows]]\nname = 'f'\nfrom = 'a'\nto = 'b'\ndport = 5001\n{kind}\n\
             [[expect]]\nname = 'slow'\nmeasure = 'share'\nclass = 'slow'\nexpected = '{expected}'\n\
             tolerance = '0.5%'\nsource = 'the policy'\n"
        )
    };
    let udp = "kind = 'udp'\nsize = 1000\nrate = '4Mbit/s'";
    folder.write("good.toml", &case("20%", udp));
    folder.write("fails.toml", &case("30%", udp));
    folder.write("bad.toml", &case("20%", "kind = 'udp'"));
    folder.write("tcp.toml", &case("20%", "kind = 'tcp_bulk'"));
    let (code, out, err) = folder.altq(&["sim", "good.toml", "--json", "--pcap", "x.pcap", "--seed", "9"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let result: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&result["schema"], &result["world"], &result["seed"]),
        (&"altq.result/1".into(), &"sim".into(), &9.into())
    );
    assert_eq!(result["valid"], true);
    assert_eq!(result["expectations"][0]["pass"], true);
    assert_eq!(result["flows"][0]["class"], "slow");
    // The capture has every packet: the record's header, Ethernet, and 1000 bytes. The class sends
    // 2 Mbit/s for 3 s, and what it earned while it was idle.
    let size = fs::metadata(folder.0.join("x.pcap")).unwrap().len();
    assert_eq!((size - 24) % (16 + 14 + 1000), 0);
    assert!((750..=755).contains(&((size - 24) / 1030)), "{size}");
    assert_eq!(folder.altq(&["sim", "fails.toml"]).0, 3);
    let (code, out, err) = folder.altq(&["sim", "bad.toml"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("bad.toml:8:1: a flow of kind udp needs the size"), "{err}");
    // TCP that is held at 20 % of the link: goodput is the payload of what the class sends.
    let (code, out, err) = folder.altq(&["sim", "tcp.toml", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let result: serde_json::Value = serde_json::from_str(&out).unwrap();
    let goodput = result["flows"][0]["goodput_bit_s"].as_f64().unwrap();
    assert!((goodput / (2e6 * 1448.0 / 1500.0) - 1.0).abs() < 0.06, "{goodput}");
    assert_eq!(folder.altq(&["sim", "none.toml"]).0, 2);
}

#[test]
fn sim_says_where_a_capture_is_cut() {
    let folder = Folder::new("capture");
    let case = |flow: &str| {
        format!(
            "name = 't'\ndescription = 'd'\nduration = '1s'\npolicy_file = 'p.altq'\n\
             hosts = [{{ name = 'a' }}, {{ name = 'b' }}]\n\
             links = [{{ name = 'w', from = 'a', to = 'b', policy = 'wan' }}]\n[[flows]]\nname = 'f'\nfrom = 'a'\n\
             to = 'b'\n{flow}\n"
        )
    };
    folder.write("make.toml", &case("kind = 'udp'\nsize = 200\ninterval = '100ms'"));
    folder.write("play.toml", &case("kind = 'pcap'\nfile = 'x.pcap'"));
    assert_eq!(folder.altq(&["sim", "make.toml", "--pcap", "x.pcap"]).0, 0);
    assert_eq!(folder.altq(&["sim", "play.toml"]).0, 0);
    let whole = fs::read(folder.0.join("x.pcap")).unwrap();
    // Ten packets of 16 + 214 bytes behind 24: the fourth begins at byte 714.
    assert_eq!(whole.len(), 24 + 10 * 230);
    fs::write(folder.0.join("x.pcap"), &whole[..800]).unwrap();
    let (code, out, err) = folder.altq(&["sim", "play.toml", "--json"]);
    assert_eq!(code, 1);
    assert!(err.contains("byte 714") && err.contains("3 packets"), "{err}");
    let result: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&result["valid"], &result["flows"][0]["sent_packets"]), (&false.into(), &3.into()));
    fs::write(folder.0.join("x.pcap"), b"no capture at all").unwrap();
    assert_eq!(folder.altq(&["sim", "play.toml"]).0, 2);
}

#[test]
fn the_manual_names_every_key() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manual = fs::read_to_string(root.join("docs/cases.md")).unwrap();
    let keys = fs::read_to_string(root.join("crates/cases/src/case/raw.rs")).unwrap();
    for line in keys.lines().filter_map(|line| line.strip_prefix("    pub ")) {
        let key = line.split(':').next().unwrap();
        let forms = [format!("`{key}`"), format!("`{key} = "), format!("`[[{key}]]`")];
        assert!(forms.iter().any(|form| manual.contains(form)), "docs/cases.md does not name {key}");
    }
}

#[test]
fn counters_in_the_form_of_other_tools() {
    let folder = Folder::new("stat");
    folder.write("a.csv", &list());
    let stat = |format: &str| folder.altq(&["replay", "p.altq", "--arrivals", "a.csv", "--stat", format]);
    let (code, out, err) = stat("tc");
    assert_eq!(code, 0, "{err}");
    // The policy has names, tc has numbers.
    let legend = "in tc's numbers 1:1 is wan, 1:2 is slow, 1:3 is fast; `--stat tc-names` prints the names";
    assert_eq!(err, format!("altq replay: {legend}\n"));
    assert!(out.starts_with("qdisc cbq 1: root refcnt 2 "), "{out}");
    let blocks = altq_pages::stat::tc::read(&out).unwrap();
    assert_eq!(altq_pages::stat::tc::disagreements(&blocks), Vec::<String>::new());
    // The root counts all 4000 packets, except those that were dropped.
    assert_eq!(blocks[0].counts.packets + blocks[0].counts.dropped, 4000);
    assert!(stat("tc-names").1.contains("class cbq slow#1:2 parent wan#1:1 leaf 20: rate 2000Kbit "));
    assert!(stat("altqstat").1.contains("Default Class for Interface wan: fast\n"));
    assert_eq!(stat("tbrconfig").1, "no token bucket regulater found on wan\n");
    assert_eq!(stat("ifconfig").0, 2);
    assert_eq!(folder.altq(&["replay", "p.altq", "--arrivals", "a.csv", "--stat", "tc", "--json"]).0, 2);
}

#[test]
fn several_transmit_queues() {
    let folder = Folder::new("queues");
    folder.write("f.altq", "link wan { rate 8Mbit/s scheduler fifo class a { default } }");
    folder.write("a.csv", "time_ns,class,bytes,id,segments,tx_queue\n0,a,300,1,3,0\n0,a,10,2,1,1\n");
    let args =
        ["replay", "f.altq", "--arrivals", "a.csv", "--tx-queues", "2", "--tx-ring", "512", "--departures", "d.csv"];
    let (code, _, err) = folder.altq(&args);
    assert_eq!(code, 0, "{err}");
    // The wire takes a microsecond per byte; the single packet goes between two segments.
    assert_eq!(
        folder.read("d.csv").unwrap(),
        "time_ns,class,bytes,id,wire_end_ns\n0,a,300,1,310000\n0,a,10,2,110000\n"
    );
    folder.write("a.csv", "time_ns,class,bytes,id,tx_queue\n0,slow,300,1,0\n");
    let (code, _, err) = folder.altq(&["replay", "p.altq", "--arrivals", "a.csv", "--tx-queues", "2"]);
    assert_eq!(code, 2);
    assert!(err.contains("need scheduler fifo"), "{err}");
}

#[test]
fn plots_are_the_same_every_time() {
    let folder = Folder::new("plot");
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/borrow.toml");
    let case = case.to_str().unwrap();
    let draw = |file: &str, more: &[&str]| {
        let (code, _, err) = folder.altq(&[&["sim", case, "--plot", file], more].concat());
        assert_eq!(code, 0, "{err}");
        folder.read(file).unwrap()
    };
    let svg = draw("a.svg", &[]);
    assert_eq!(svg, draw("b.svg", &[]));
    assert!(svg.starts_with("<svg ") && svg.contains(">rate [Mbit/s]</text>") && svg.contains(">slow</text>"));
    // Lines of the legend, and of rate, drops and delay, for two classes.
    assert_eq!(svg.matches("<path class=\"line ").count(), 2 + 6);
    assert_eq!(draw("c.svg", &["--panels", "wait", "--by-flow"]).matches(">median delay [ms]</text>").count(), 1);
    assert_eq!(folder.altq(&["sim", case, "--plot", "d.svg", "--panels", "pie"]).0, 2);
    assert_eq!(folder.altq(&["sim", case, "--panels", "rate"]).0, 2);
}

/// A word that is nearly right is named, with what it may have been; a file is what its name says;
/// a number without a unit is asked for one.
#[test]
fn the_obvious_slips_are_answered() {
    let folder = Folder::new("slips");
    let case = "name = 'c'\ndescription = 'd'\nduration = '1s'\npolicy_file = 'p.altq'\n\
                hosts = [{ name = 'a' }, { name = 'b' }]\n\
                links = [{ name = 'l', from = 'a', to = 'b', policy = 'wan' }]\n\
                [[flows]]\nname = 'f'\nkind = 'udp'\nfrom = 'a'\nto = 'b'\nsize = 100\nrate = '1kbit/s'\n";
    folder.write("right.toml", case);
    assert_eq!(folder.altq(&["sim", "right.toml", "--plot", "right.svg"]).0, 0);
    assert!(folder.read("right.svg").unwrap().contains("<svg"));
    let (code, _, error) = folder.altq(&["sim", "right.toml", "--plot", "x.png"]);
    assert!(code == 2 && error.contains("plots are SVG, not png; name it x.svg"), "{code} {error}");
    // A sweep refuses it as well. A name without an ending promises nothing.
    let (code, _, error) = folder.altq(&["sweep", "right.toml", "--plot", "x.png"]);
    assert!(code == 2 && error.contains("plots are SVG, not png; name it x.svg"), "{code} {error}");
    assert!(folder.read("x.png").is_none());
    assert_eq!(folder.altq(&["sim", "right.toml", "--plot", "x"]).0, 0);
    assert!(folder.read("x").is_some_and(|text| text.starts_with("<svg ")));
    let slips = [
        (case.replace("name = 'c'", "nam = 'c'"), "wrong.toml:1:1: unknown field `nam`; did you mean \"name\"?"),
        (
            case.replace("duration =", "duraton ="),
            "wrong.toml:3:1: unknown field `duraton`; did you mean \"duration\"?",
        ),
        (
            case.replace("rate = '1kbit/s'", "rat = '1kbit/s'"),
            "unknown field `rat`; did you mean \"rate\"? The fields here: ",
        ),
        (
            case.replace("from = 'a', to = 'b', policy", "from = 'a', to = 'bb', policy"),
            "there is no host called \"bb\"; did you mean \"b\"?",
        ),
        // The key is meant, not its table.
        (format!("{case}stream = 2\n"), "wrong.toml:14:1: unknown field `stream`; did you mean \"streams\"?"),
        (
            format!("{case}[[expect]]\nflow = 'f'\nmesure = 'loss'\n"),
            "wrong.toml:16:1: unknown field `mesure`; did you mean \"measure\"?",
        ),
        (
            format!("{case}[[columns]]\npolicy_file = 'p.altq'\nnmae = 'x'\n"),
            "wrong.toml:16:1: unknown field `nmae`; did you mean \"name\"?",
        ),
        (case.replace("size = 100", "colour = 100"), "unknown field `colour`. The fields here: name, kind,"),
        (case.replace("description = 'd'\n", ""), "wrong.toml:1:1: missing field `description`"),
        // What only the policy knows: the names of classes, and of the counters that they have.
        (format!("{case}class = 'xx'\n"), "wrong.toml:14:9: no link that the flow passes has a class \"xx\""),
        (
            format!(
                "{case}[[expect]]\nname = 'e'\nmeasure = 'counter'\nclass = 'wan'\ncounter = 'droped'\n\
                 expected = 0\ntolerance = 1\nsource = 's'\n"
            ),
            "wrong.toml:18:11: tc -s prints no number \"droped\" of this class: did you mean `dropped`?",
        ),
    ];
    for (text, said) in slips {
        folder.write("wrong.toml", &text);
        // `check` says the same without running the case.
        for command in ["sim", "check"] {
            let (code, _, error) = folder.altq(&[command, "wrong.toml"]);
            assert!(code == 2 && error.contains(said), "{command}: {code} {error}");
        }
        let (code, json, _) = folder.altq(&["check", "wrong.toml", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let found = &json["diagnostics"][0];
        assert!(code == 2 && json["schema"] == "altq.check/1" && json["ok"] == false, "{json}");
        assert!(found["file"] == "wrong.toml" && found["line"].as_u64() > Some(0), "{json}");
        let message = found["message"].as_str().unwrap();
        assert!(said.split(": ").last().is_some_and(|end| message.contains(end.trim())), "{said}: {message}");
    }
    let (code, said, error) = folder.altq(&["check", "right.toml"]);
    assert!(code == 0 && error.is_empty(), "{code} {error}");
    assert!(said.contains("case c: no errors\n  2 hosts, 1 link, 1 flow, 0 events, 0 expectations"), "{said}");
    let (code, json, _) = folder.altq(&["check", "right.toml", "--json"]);
    assert!(code == 0 && json.contains("\"ok\":true"), "{json}");
    assert_eq!(folder.altq(&["check", "right.toml", "--class", "wan"]).0, 2);
    // A case where a policy belongs, and the other way round.
    for command in [&["convert"][..], &["run"], &["replay", "--arrivals", "list.csv"]] {
        let (code, _, error) = folder.altq(&[command, &["right.toml"]].concat());
        assert!(code == 2 && error.contains("error[a-case]"), "{code} {error}");
        assert!(error.contains("`altq sim right.toml` or `altq lab right.toml` runs it"), "{error}");
    }
    for command in ["sim", "lab"] {
        let (code, _, error) = folder.altq(&[command, "p.altq"]);
        assert!(code == 2 && error.contains("p.altq: it is a policy by its name"), "{code} {error}");
    }
    folder.write("list.csv", &list());
    let (code, _, error) = folder.altq(&["replay", "p.altq", "--arrivals", "list.csv", "--wire-rate", "5"]);
    assert!(code == 2 && error.contains("write the unit") && error.contains("5Mbit/s"), "{code} {error}");
}

/// A packet a millisecond, of which each takes 1 ms on the wire and 10 ms behind it: of a thousand
/// that are sent in a second the last eleven have not arrived.
#[test]
fn what_is_under_way_has_a_column() {
    let folder = Folder::new("under-way");
    let table = |stop: &str| {
        let case = format!(
            "name = 'c'\ndescription = 'd'\nduration = '1s'\n\
             policy = 'link wan {{ rate 10Mbit/s scheduler fifo class all {{ default }} }}'\n\
             hosts = [{{ name = 'a' }}, {{ name = 'b' }}]\n\
             links = [{{ name = 'l', from = 'a', to = 'b', policy = 'wan', delay = '10ms' }}]\n\
             [[flows]]\nname = 'f'\nkind = 'udp'\nfrom = 'a'\nto = 'b'\nsize = 1250\nrate = '10Mbit/s'\n{stop}"
        );
        folder.write("c.toml", &case);
        let (code, out, error) = folder.altq(&["sim", "c.toml"]);
        assert_eq!(code, 0, "{error}");
        let lines: Vec<String> = out.lines().skip_while(|line| !line.starts_with("flow ")).map(str::to_owned).collect();
        assert_eq!(lines.len(), 2, "{out}");
        lines
    };
    let lines = table("");
    assert!(lines[0].ends_with("    lost  under way") && lines[1].ends_with("  0.00 %         11"), "{lines:?}");
    // All have arrived, so there is nothing to tell.
    let lines = table("stop = '500ms'\n");
    assert!(lines[0].ends_with("    lost") && lines[1].ends_with("  0.00 %"), "{lines:?}");
}

/// A line to each of a thousand customers, from one router: more hosts than fit into one byte of an
/// address.
#[test]
fn a_case_of_many_hosts() {
    let folder = Folder::new("hosts");
    let n = 1000;
    let mut case = String::from(
        "name = 'c'\ndescription = 'd'\nduration = '1s'\npolicy_file = 'p.altq'\n\
         hosts = [{ name = 'web' }, { name = 'router' }",
    );
    (0..n).for_each(|at| case += &format!(", {{ name = 'h{at}' }}"));
    case += "]\nlinks = [{ name = 'l', from = 'web', to = 'router', policy = 'wan' }";
    (0..n).for_each(|at| case += &format!(", {{ name = 'l{at}', from = 'router', to = 'h{at}', rate = '1Mbit/s' }}"));
    case += "]\n";
    for at in [0, 253, 254, 999] {
        case += &format!(
            "[[flows]]\nname = 'f{at}'\nkind = 'udp'\nfrom = 'web'\nto = 'h{at}'\nsize = 1000\nrate = '80kbit/s'\n"
        );
        case += &format!(
            "[[expect]]\nname = 'f{at}'\nmeasure = 'goodput'\nflow = 'f{at}'\nexpected = '78kbit/s'\n\
             tolerance = '5kbit/s'\nsource = 'asked for'\n"
        );
    }
    folder.write("many.toml", &case);
    let (code, out, error) = folder.altq(&["sim", "many.toml"]);
    assert_eq!(code, 0, "{out}{error}");
    let (code, _, error) = folder.altq(&["lab", "many.toml"]);
    assert!(code == 7, "{code} {error}");
}
