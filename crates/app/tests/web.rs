//! `altq web` beside a control socket that answers as altq does, and beside a real one. What needs
//! another program (promtool, a browser) or root is skipped with a message where it is missing.
#![cfg(feature = "web")]

mod client;
mod fake;
mod unread;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::io::{BufRead, BufReader, Read, Write, pipe};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use client::{altq, err, out};
use fake::{Answers, Folder, Web, serve, stat, status, usual};
use serde_json::{Value, json};
use unread::{fill, there};
use world::{round_trips, world};

fn shaping(at_s: u64) -> Answers {
    Answers { status: status("shaping", None), stat: Some(usual(at_s)), ..Answers::default() }
}

/// The value of a sample; `None` if there is none.
fn sample<'a>(metrics: &'a str, series: &str) -> Option<&'a str> {
    metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
}

#[test]
fn every_path_has_its_document() {
    let folder = Folder::new("paths");
    let answers = serve(&folder.socket(), shaping(100));
    let web = Web::start(&folder.socket(), &[]);
    let (status, head, page) = web.get("/", "");
    assert_eq!((status, page.contains("<canvas"), page.len() < 100_000), (200, true, true), "{} bytes", page.len());
    assert!(head.contains("Content-Security-Policy: default-src 'none'; style-src 'sha256-"), "{head}");
    assert_eq!(web.json("/stat.json"), usual(100));
    // Ten seconds later, by altq's clock: web has sent 50 MB more, 40 Mbit/s, and with 38 bytes
    // more for each packet of 1000 bytes 41.52 Mbit/s on the wire.
    answers.lock().unwrap().stat = Some(usual(110));
    let history = web.until("a step of the history", |web| {
        let (status, _, body) = web.get("/history.json?class=agency&from=-300", "");
        let history: Value = (status == 200).then(|| serde_json::from_str(&body).unwrap())?;
        // The clock of this document is not that of today.
        let (_, _, all) = web.get("/history.json?class=agency", "");
        let all: Value = serde_json::from_str(&all).unwrap();
        assert_eq!(history["unix_ms"], json!([]));
        (all["unix_ms"].as_array()?.len() == 1).then_some(all)
    });
    assert_eq!((&history["schema"], &history["class"]), (&json!("altq.web-history/1"), &json!("agency")));
    assert_eq!((&history["unix_ms"], &history["step_ms"]), (&json!([1_000_000_110_000_u64]), &json!([10_000])));
    let rates: Vec<_> = history["series"].as_array().unwrap().iter().map(|s| (&s["class"], &s["got_bit_s"])).collect();
    let expected = [
        (json!("agency"), json!([58_128_000])),
        (json!("web"), json!([41_520_000])),
        (json!("bulk"), json!([16_608_000])),
    ];
    assert!(rates.iter().zip(&expected).all(|(is, should)| (is.0, is.1) == (&should.0, &should.1)), "{history}");
    assert_eq!(
        (&history["series"][0]["p99_ns"][0], &history["series"][0]["drops"][0]),
        (
            // Kept to 1/256: the nine highest bits of 12,000,000.
            &json!(11_993_088),
            &json!(700)
        )
    );
    for path in ["/history.json?class=none", "/history.json?link=lan", "/none", "/metrics/"] {
        assert_eq!(web.get(path, "").0, 404, "{path}");
    }
    assert_eq!(web.get("/history.json?from=x", "").0, 400);
}

/// Its first line has no room already.
#[test]
fn a_log_that_nobody_reads_keeps_no_browser_waiting() {
    let folder = Folder::new("log");
    let _answers = serve(&folder.socket(), shaping(1));
    let (mut reader, mut writer) = pipe().unwrap();
    fill(&mut writer);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.args(["web", "--listen", &free.to_string(), "--socket"]).arg(folder.socket());
    let mut child = command.stdin(Stdio::null()).stderr(writer).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let mut answer = String::new();
    while !answer.starts_with("HTTP/1.1 200") && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
        let Ok(mut stream) = TcpStream::connect(free) else { continue };
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        stream.write_all(format!("GET /stat.json HTTP/1.1\r\nHost: {free}\r\n\r\n").as_bytes()).unwrap();
        // Whoever waits for its log accepts, and does not answer.
        let _ = stream.read_to_string(&mut answer);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(there(&mut reader).bytes().all(|byte| byte == b'.'), "there was no room");
}

/// All of its threads: none takes processor time that a loop needs.
#[test]
fn who_looks_leaves_the_processor_to_what_shapes() {
    let folder = Folder::new("aside");
    let _answers = serve(&folder.socket(), shaping(1));
    let web = Web::start(&folder.socket(), &[]);
    assert_eq!(web.get("/stat.json", "").0, 200);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", web.child.id())).unwrap();
    // proc(5): the nice value is the 19th field, the 17th behind the name in brackets.
    let nice = tasks.map(|task| {
        let line = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
        line.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
    });
    let nice: Vec<i32> = nice.collect();
    assert!(nice.len() > 1 && nice.iter().all(|of| *of >= 10), "{nice:?}");
}

#[test]
fn events_are_a_snapshot_and_then_what_changes() {
    let folder = Folder::new("events");
    let answers = serve(&folder.socket(), shaping(1));
    let web = Web::start(&folder.socket(), &[]);
    let mut stream = TcpStream::connect(&web.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", web.address).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut next = || -> (String, Value) {
        let name = lines.find_map(|line| line.strip_prefix("event: ").map(str::to_owned)).unwrap();
        let data = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned)).unwrap();
        (name, serde_json::from_str(&data).unwrap())
    };
    let (name, first) = next();
    assert_eq!((name.as_str(), &first["schema"]), ("snapshot", &json!("altq.web/1")));
    let class = &first["links"][0]["classes"][2];
    assert_eq!(*class, json!(["web", 1, 30_000_000, 100_000_000, "cbq", 40_000_000]));
    answers.lock().unwrap().stat = Some(usual(2));
    let (name, change) = loop {
        let event = next();
        if event.1["links"][0]["rows"] != json!([]) {
            break event;
        }
    };
    assert_eq!((name.as_str(), &change["links"][0]["classes"]), ("change", &Value::Null));
    // Web has 41.52 of its 30 Mbit/s, bulk 16.608 of its 20, the agency 58.128 of its 50. So bulk
    // lends 3.392 to web, and the other 8.128 come from outside the agency.
    let row = |class: usize| {
        let row = &change["links"][0]["rows"][class];
        [0_usize, 2, 3, 4].map(|at| row[at].as_u64().unwrap())
    };
    assert_eq!(row(2), [2, 41_520_000, 11_520_000, 0]);
    assert_eq!(row(3), [3, 16_608_000, 0, 3_392_000]);
    assert_eq!(row(1), [1, 58_128_000, 8_128_000, 0]);
    // Another guarantee, and a bypass: both are marks, and said at once.
    let mut other = usual(3);
    other["links"][0]["classes"][3]["guaranteed_bit_s"] = json!(10_000_000);
    answers.lock().unwrap().stat = Some(other);
    let snapshot = loop {
        let (name, event) = next();
        if name == "snapshot" {
            break event;
        }
    };
    assert_eq!(snapshot["marks"][0]["what"], "guarantee: bulk 10Mbit/s, before 20Mbit/s");
    let bypass = status("bypass", Some("the worker was killed"));
    *answers.lock().unwrap() = Answers { status: bypass, ..Answers::default() };
    let bypass = loop {
        let (_, event) = next();
        if event["links"][0]["state"] == "bypass" {
            break event;
        }
    };
    assert_eq!(bypass["error"], "no worker shapes; wait");
    assert_eq!(bypass["marks"][1]["what"], "BYPASS, packets pass unshaped: the worker was killed");
    let metrics = web.get("/metrics", "").2;
    assert_eq!(sample(&metrics, r#"altq_bypass_active{link="wan"}"#), Some("1"), "{metrics}");
    assert!(!metrics.contains("altq_class_bytes"), "{metrics}");
    let (code, _, why) = web.get("/stat.json", "");
    assert_eq!((code, why.as_str()), (503, "no worker shapes; wait\n"));
    // The history is still there.
    assert_eq!(web.json("/history.json")["link"], "wan");
}

/// What altq has kept comes before what `altq web` has seen, here in two answers.
#[test]
fn the_history_begins_with_what_altq_has_kept() {
    let folder = Folder::new("kept");
    let mut known = shaping(100);
    let piece = |at_s: u64, bytes: u64| {
        let point = [1, 100, bytes, bytes, 3, 0, 0, 0, 0, 256, 512, 0, 0];
        json!({ "from_unix_ns": (1_000_000_000 + at_s) * 1_000_000_000, "seconds": 1, "rate_bit_s": null,
            "to_unix_ns": (1_000_000_001 + at_s) * 1_000_000_000, "points": [point] })
    };
    let document = |slices: Value, next_ns: Option<u64>| {
        let classes = json!([{ "name": "wan" }, { "name": "web" }]);
        json!({ "schema": "altq.past/1", "classes": classes, "slices": slices, "next_ns": next_ns })
    };
    known.others.insert("past".to_owned(), document(json!([piece(97, 125_000)]), Some(5)));
    // The last one has seconds that the first figures do not cover any more.
    let more = json!([piece(98, 250_000), piece(99, 375_000), piece(100, 9)]);
    known.others.insert("past:5".to_owned(), document(more, None));
    let answers = serve(&folder.socket(), known);
    let web = Web::start(&folder.socket(), &[]);
    let history = |steps: usize| {
        web.until("the history", |web| {
            let (status, _, body) = web.get("/history.json?class=web", "");
            let history: Value = (status == 200).then(|| serde_json::from_str(&body).unwrap())?;
            (history["unix_ms"].as_array()?.len() == steps).then_some(history)
        })
    };
    let first = history(3);
    assert_eq!(first["unix_ms"], json!([1_000_000_098_000_u64, 1_000_000_099_000_u64, 1_000_000_100_000_u64]));
    let line = &first["series"][0];
    assert_eq!(line["got_bit_s"], json!([1_000_000, 2_000_000, 3_000_000]));
    assert_eq!((&line["drops"], &line["p99_ns"]), (&json!([3, 3, 3]), &json!([512, 512, 512])));
    answers.lock().unwrap().stat = Some(usual(101));
    assert_eq!(history(4)["unix_ms"][3], json!(1_000_000_101_000_u64));
}

/// The marks of a page that is opened now; `None` if it gets no event.
fn marks(web: &Web) -> Option<Value> {
    let mut stream = TcpStream::connect(&web.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", web.address).unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let data = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned))?;
    let event: Value = serde_json::from_str(&data).unwrap();
    Some(event["marks"].clone())
}

/// Also a change that no name, guarantee or ceiling shows is a mark, and one that they show is one
/// mark.
#[test]
fn changes_that_altq_remembers_are_marks() {
    let folder = Folder::new("changes");
    let answers = serve(&folder.socket(), shaping(1));
    let change = |number: u64, at_s: u64, what: &str, line: &str| {
        json!({ "number": number, "unix_ns": (1_000_000_000 + at_s) * 1_000_000_000, "what": what,
            "by": { "uid": 0, "pid": 1 }, "name": "p.altq", "lines": [line], "more": 0 })
    };
    let mut changes = vec![change(1, 0, "applied", "long ago")];
    let history = |changes: &[Value]| json!({ "schema": "altq.history/1", "changes": changes });
    answers.lock().unwrap().others.insert("history".to_owned(), history(&changes));
    let web = Web::start(&folder.socket(), &[]);
    assert_eq!(marks(&web), Some(json!([])));
    let mut other = usual(3);
    other["links"][0]["classes"][3]["guaranteed_bit_s"] = json!(10_000_000);
    changes.push(change(2, 2, "edited", "class bulk: share 10%, before share 20%"));
    changes.push(change(3, 100, "applied", "class web: queue red, before queue fifo"));
    {
        let mut answers = answers.lock().unwrap();
        answers.others.insert("history".to_owned(), history(&changes));
        answers.stat = Some(other);
    }
    let known = web.until("marks", |web| marks(web).filter(|marks| *marks != json!([])));
    let mark = |at_s: u64, what: &str| json!({ "unix_ms": (1_000_000_000 + at_s) * 1000, "link": "wan", "what": what });
    let expected = [
        mark(2, "change 2, edited p.altq: class bulk: share 10%, before share 20%"),
        mark(100, "change 3, applied p.altq: class web: queue red, before queue fifo"),
    ];
    assert_eq!(known, json!(expected));
    // The figures of the other guarantee are there, and have made no mark of their own.
    web.until("the other guarantee", |web| {
        (web.json("/stat.json")["links"][0]["classes"][3]["guaranteed_bit_s"] == 10_000_000).then_some(())
    });
    assert_eq!(marks(&web), Some(json!(expected)));
    let applied = |web: &Web| sample(&web.get("/metrics", "").2, "altq_config_last_apply_success").map(str::to_owned);
    assert_eq!(applied(&web).as_deref(), Some("1"));
    changes.push(change(3, 110, "reverted", "nobody has confirmed it"));
    answers.lock().unwrap().others.insert("history".to_owned(), history(&changes));
    web.until("the end of the change", |web| applied(web).filter(|applied| applied == "0"));
}

#[test]
fn the_policy_that_runs_says_which_class_a_packet_gets() {
    let folder = Folder::new("explain");
    let answers = serve(&folder.socket(), shaping(7));
    let web = Web::start(&folder.socket(), &[]);
    let ask = |packet: &str| {
        web.until("the policy", |web| {
            let (status, _, body) = web.get(&format!("/explain.json?link=wan&packet={packet}"), "");
            // The first who asks has to wait until altq has told its policy.
            (status != 503).then_some((status, body))
        })
    };
    let (status, body) = ask("src=10.1.2.3+dst=192.0.2.1+proto%3Dtcp+dport=443");
    let explained: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &explained["schema"], &explained["class"]), (200, &json!("altq.explain/1"), &json!("web")));
    assert_eq!((&explained["rule"]["line"], &explained["limits"][1]["class"]), (&json!(7), &json!("agency")));
    let (status, why) = ask("dport=443+colour=red");
    assert_eq!((status, why.contains("colour"), why.contains('^')), (400, true, true), "{why}");
    for (path, expected) in [("/explain.json", 400), ("/explain.json?link=dsl&packet=length=60", 404)] {
        assert_eq!(web.get(path, "").0, expected, "{path}");
    }
    // Another policy runs.
    let text = "link wan { rate 1Mbit/s  scheduler fifo }";
    let other = json!({ "schema": "altq.policy/1", "language": "native", "text": text, "file": "/a.altq" });
    answers.lock().unwrap().others.insert("policy".to_owned(), other);
    web.until("the other policy", |web| {
        let (status, _, body) = web.get("/explain.json?packet=length=60", "");
        let explained: Value = serde_json::from_str(&body).unwrap_or_default();
        (status == 200 && explained["class"] == "wan").then_some(())
    });
}

#[test]
fn metrics_are_those_of_altq_stat() {
    let folder = Folder::new("metrics");
    serve(&folder.socket(), shaping(7));
    let web = Web::start(&folder.socket(), &[]);
    let (code, head, open) = web.get("/metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n");
    assert_eq!(code, 200);
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
    assert!(open.ends_with("\n# EOF\n"));
    let (_, head, text) = web.get("/metrics", "");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    let printed = altq(&folder.socket(), &["stat", "--json"]);
    let stat: Value = serde_json::from_str(&out(&printed)).unwrap();
    let mut compared = 0;
    for metrics in [&open, &text] {
        for class in stat["links"][0]["classes"].as_array().unwrap() {
            let name = class["name"].as_str().unwrap();
            for (metric, field) in [
                ("bytes_total", "sent_bytes"),
                ("wire_bytes_total", "sent_wire_bytes"),
                ("packets_total", "sent_packets"),
                ("received_bytes_total", "received_bytes"),
                ("received_packets_total", "received_packets"),
                ("ecn_marks_total", "marked_packets"),
                ("borrowed_bytes_total", "borrowed_bytes"),
                ("backlog_bytes", "backlog_bytes"),
                ("backlog_packets", "backlog_packets"),
            ] {
                let series = format!("altq_class_{metric}{{link=\"wan\",class=\"{name}\"}}");
                let expected = class[field].as_u64().unwrap().to_string();
                assert_eq!(sample(metrics, &series), Some(expected.as_str()), "{series}");
                compared += 1;
            }
            for (reason, count) in class["dropped"].as_object().unwrap() {
                let series = format!("altq_class_drops_total{{link=\"wan\",class=\"{name}\",reason=\"{reason}\"}}");
                assert_eq!(sample(metrics, &series), Some(count.to_string().as_str()), "{series}");
                compared += 1;
            }
        }
        for (series, value) in [
            (r#"altq_class_sojourn_recent_seconds{link="wan",class="web",quantile="0.99"}"#, "0.012000000"),
            (r#"altq_class_sojourn_seconds_bucket{link="wan",class="web",le="0.01"}"#, "90"),
            (r#"altq_class_sojourn_seconds_bucket{link="wan",class="web",le="0.025"}"#, "100"),
            (r#"altq_class_sojourn_seconds_bucket{link="wan",class="web",le="+Inf"}"#, "100"),
            (r#"altq_class_sojourn_seconds_sum{link="wan",class="web"}"#, "0.600000"),
            (r#"altq_class_sojourn_seconds_count{link="wan",class="web"}"#, "100"),
            (r#"altq_class_guarantee_bytes_per_second{link="wan",class="web"}"#, "3750000"),
            (r#"altq_class_delay_bound_seconds{link="wan",class="web"}"#, "0.040000000"),
            (r#"altq_class_info{link="wan",class="web",parent="agency",leaf="true",scheduler="cbq"}"#, "1"),
            (r#"altq_class_info{link="wan",class="wan",parent="",leaf="false",scheduler="cbq"}"#, "1"),
            (r#"altq_reservation_active{link="wan",class="agency"}"#, "2"),
            (r#"altq_bypass_active{link="wan"}"#, "0"),
            (r#"altq_timer_late_seconds_sum{link="wan"}"#, "0.000000075"),
            (r#"altq_link_adapts{link="wan"}"#, "0"),
            ("altq_config_last_apply_success", "1"),
            ("altq_control_up", "1"),
        ] {
            assert_eq!(sample(metrics, series), Some(value), "{series}");
        }
    }
    assert_eq!(compared, 2 * 4 * 11);
    checked_by_promtool("metrics", &["check", "metrics"], text.as_bytes());
}

/// Gives promtool something to check. It is part of Debian's package prometheus.
fn checked_by_promtool(what: &str, arguments: &[&str], input: &[u8]) {
    let mut command = Command::new("promtool");
    let child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        eprintln!("SKIPPED in part: {what} were not checked, there is no promtool (Debian's package prometheus)");
        return;
    };
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "promtool about {what}: {said}");
}

#[test]
fn the_board_and_the_alerts_name_metrics_that_exist() {
    let folder = Folder::new("board");
    serve(&folder.socket(), shaping(7));
    let web = Web::start(&folder.socket(), &[]);
    let metrics = web.get("/metrics", "").2;
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/grafana");
    let rules = std::fs::read_to_string(examples.join("altq.rules.yml")).unwrap();
    let board = std::fs::read_to_string(examples.join("altq.json")).unwrap();
    let parsed: Value = serde_json::from_str(&board).unwrap();
    assert!(parsed["panels"].as_array().unwrap().len() >= 6);
    let mut named = 0;
    for (file, text) in [("altq.rules.yml", &rules), ("altq.json", &board)] {
        for (at, _) in text.match_indices("altq_") {
            let word = text[at..].split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap();
            let there =
                metrics.lines().any(|line| line.starts_with(word) && line[word.len()..].starts_with([' ', '{']));
            assert!(there, "{file} names {word}, which /metrics does not have");
            named += 1;
        }
    }
    assert!(named > 20, "{named}");
    for alert in ["AltqBypass", "AltqDrift", "AltqGuaranteeUnmet", "AltqDelayAbovePromise"] {
        assert!(rules.contains(&format!("alert: {alert}\n")), "{alert}");
    }
    let path = examples.join("altq.rules.yml");
    checked_by_promtool("rules", &["check", "rules", path.to_str().unwrap()], b"");
    let tests = examples.join("altq.rules.test.yml");
    checked_by_promtool("alerts", &["test", "rules", tests.to_str().unwrap()], b"");
}

#[test]
fn altq_may_come_later_and_go() {
    let folder = Folder::new("later");
    let mut web = Web::start(&folder.socket(), &[]);
    let mut line = String::new();
    web.said.read_line(&mut line).unwrap();
    assert!(line.contains("no altq runs with the control socket") && line.contains("every second"), "{line}");
    let metrics = web.get("/metrics", "").2;
    assert_eq!(sample(&metrics, "altq_control_up"), Some("0"));
    assert_eq!(web.get("/stat.json", "").0, 503);
    serve(&folder.socket(), shaping(5));
    web.until("figures", |web| (web.get("/stat.json", "").0 == 200).then_some(()));
    assert_eq!(sample(&web.get("/metrics", "").2, "altq_control_up"), Some("1"));
}

#[test]
fn wrong_requests_get_errors_and_grow_nothing() {
    let folder = Folder::new("scan");
    serve(&folder.socket(), shaping(5));
    let web = Web::start(&folder.socket(), &["--host", "shaper.example"]);
    assert_eq!(web.ask("GET / HTTP/1.1\r\nHost: shaper.example:80\r\n\r\n").get(9..12), Some("200"));
    let huge = "x".repeat(100_000);
    let scan = |rounds: usize| {
        for _ in 0..rounds {
            for (text, status) in [
                ("GET /%00 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), "404"),
                ("GET /events/../stat.json HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), "404"),
                ("PUT / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), "405"),
                ("GET / HTTP/1.1\r\nHost: rebound.example\r\n\r\n".to_owned(), "421"),
                ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1.example\r\n\r\n".to_owned(), "421"),
                ("nonsense\r\n\r\n".to_owned(), "400"),
                (format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "a: b\r\n".repeat(99)), "431"),
            ] {
                let answer = web.ask(&text);
                assert_eq!(answer.get(9..12), Some(status), "{text:.80}: {answer}");
            }
            let mut stream = TcpStream::connect(&web.address).unwrap();
            let _ = stream.write_all(format!("GET / HTTP/1.1\r\nHost: {huge}").as_bytes());
            let _ = stream.read_to_end(&mut Vec::new());
        }
    };
    scan(20);
    let before = web.memory();
    scan(200);
    let grown = web.memory().saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes more");
    // Slow ones by the hundred: others are answered meanwhile.
    let slow: Vec<TcpStream> = (0..300).filter_map(|_| TcpStream::connect(&web.address).ok()).collect();
    for mut stream in &slow {
        let _ = stream.write_all(b"GET /ev");
    }
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(web.get("/metrics", "").0, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn what_cannot_be_served_is_said() {
    let folder = Folder::new("usage");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (arguments, code, why) in [
        (["--listen", address.as_str()], 5, "another program listens there"),
        // RFC 5737: nobody has this address.
        (["--listen", "192.0.2.1:8017"], 2, "no interface of this host has this address"),
        (["--listen", "8017"], 2, "invalid socket address"),
        (["--listen", "localhost"], 2, "invalid socket address"),
        (["--history", "1"], 2, "1Mbytes"),
        (["--host", "a b"], 2, "a name of a host"),
    ] {
        let output = altq(&folder.socket(), &[&["web"][..], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", err(&output));
        assert!(err(&output).contains(why), "{arguments:?}: {}", err(&output));
    }
}

/// What altq answers to `top` about one class is what browsers get, as it comes.
#[test]
fn flows_of_a_class_are_those_of_altq_top() {
    let folder = Folder::new("flows");
    let flow = json!({ "src": "10.1.0.7", "sport": 51_222, "dst": "2001:db8::9", "dport": 443, "proto": "tcp",
        "dscp": 0, "bytes_at_least": 900, "error_bytes": 10, "packets_at_least": 3, "error_packets": 1 });
    let class = json!({ "name": "web", "window": { "sent_bytes": 1000, "sent_packets": 4 }, "flows": [flow],
        "other_bytes": 100 });
    let top = json!({ "schema": "altq.top/1", "links": [{ "name": "wan", "interval_ns": 10_000_000_000_u64,
        "classes": [class] }] });
    let mut first = shaping(7);
    first.others.insert("top".to_owned(), top.clone());
    let answers = serve(&folder.socket(), first);
    let web = Web::start(&folder.socket(), &[]);
    let path = "/flows.json?link=wan&class=web";
    // The first one who asks is told that altq is asked.
    let (status, _, why) = web.get(path, "");
    assert_eq!((status, why.as_str()), (503, "altq is asked for them; ask again in a second\n"));
    let known = web.until("flows", |web| {
        let (status, _, body) = web.get(path, "");
        (status == 200).then(|| serde_json::from_str::<Value>(&body).unwrap())
    });
    assert_eq!(known, top);
    for path in ["/flows.json?class=none", "/flows.json?link=lan"] {
        assert_eq!(web.get(path, "").0, 404, "{path}");
    }
    let fault = json!({ "fault": { "code": 7, "message": "nobody watches the classes here", "help": "so" } });
    answers.lock().unwrap().others.insert("top".to_owned(), fault);
    let why = web.until("why there are none", |web| {
        let (status, _, body) = web.get(path, "");
        (status == 503).then_some(body)
    });
    assert_eq!(why, "nobody watches the classes here; so\n");
    // The figures are there all the same.
    assert_eq!(web.get("/stat.json", "").0, 200);
    let without = Web::start(&folder.socket(), &["--no-flows"]);
    let (status, _, why) = without.get(path, "");
    assert_eq!((status, why.contains("--no-flows")), (404, true), "{why}");
}

/// Names that a page might read as markup come back as they are, and the page has no way to read
/// them so (`crates/web/src/page.rs`).
#[test]
fn names_are_escaped() {
    let folder = Folder::new("names");
    let name = "<img src=x>\"\\\n</script>";
    let classes = [("wan", "", 8000, 0), (name, "wan", 8000, 0)];
    let stat = Some(stat(1, &classes));
    serve(&folder.socket(), Answers { status: status("shaping", None), stat, ..Answers::default() });
    let web = Web::start(&folder.socket(), &[]);
    let metrics = web.get("/metrics", "").2;
    let series = r#"altq_class_bytes_total{link="wan",class="<img src=x>\"\\\n</script>"}"#;
    assert_eq!(sample(&metrics, series), Some("0"), "{metrics}");
    checked_by_promtool("metrics", &["check", "metrics"], metrics.as_bytes());
    let query = "/history.json?class=%3Cimg+src%3Dx%3E%22%5C%0A%3C%2Fscript%3E";
    // One document is no step yet.
    let history = web.json(query);
    assert_eq!((&history["class"], &history["unix_ms"]), (&json!(name), &json!([])));
}

/// The same figures as `altq stat`, of a real altq.
#[test]
fn a_running_altq_is_shown() {
    let Some(world) = world() else { return };
    let folder = Folder::new("real");
    let policy = folder.0.join("p.altq");
    let text = "link up { device bridge a b  rate 20Mbit/s  scheduler cbq
        class voice { share 10% priority 7 }  class rest { share 90% borrow default } }
        link down { device bridge b a  rate 20Mbit/s  scheduler htb
        class all { rate 20Mbit/s default } }";
    std::fs::write(&policy, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.arg("run").arg(&policy).arg("--socket").arg(folder.socket()).args(["--quiet", "--interval", "50ms"]);
    let mut run = world.middle.run(|| command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while altq(&folder.socket(), &["stat"]).status.code() != Some(0) {
        if let Some(status) = run.try_wait().unwrap() {
            assert!(matches!(status.code(), Some(6 | 7)), "{status}");
            eprintln!("SKIPPED: this host cannot run a bridge");
            return;
        }
        assert!(Instant::now() < end, "no counters");
        std::thread::sleep(Duration::from_millis(10));
    }
    let web = Web::start(&folder.socket(), &[]);
    round_trips(&world, "10.9.0.2:7", 50);
    // Their flow is that of `altq top`.
    let flow = web.until("the flow", |web| {
        let (status, _, body) = web.get("/flows.json?link=up&class=rest", "");
        let known: Value = (status == 200).then(|| serde_json::from_str(&body).unwrap())?;
        let classes = known["links"][0]["classes"].as_array()?.clone();
        assert_eq!((classes.len(), &classes[0]["name"]), (1, &json!("rest")));
        let flows = classes[0]["flows"].as_array()?.clone();
        // All of them are in the ten seconds that are shown, once the last one is counted.
        flows.into_iter().find(|flow| flow["dport"] == 7 && flow["bytes_at_least"] == 50 * 29)
    });
    assert_eq!((&flow["src"], &flow["dst"], &flow["proto"]), (&json!("10.9.0.1"), &json!("10.9.0.2"), &json!("udp")));
    // 50 datagrams with one byte of payload each way: 29 bytes at layer 3. Both documents are the
    // same once altq web has asked again.
    let (metrics, class) = web.until("the packets", |web| {
        let metrics = web.get("/metrics", "").2;
        let printed = altq(&folder.socket(), &["stat", "up", "--json"]);
        let stat: Value = serde_json::from_slice(&printed.stdout).unwrap();
        let class = stat["links"][0]["classes"].as_array()?.iter().find(|class| class["name"] == "rest")?.clone();
        let same =
            [("packets_total", "sent_packets"), ("wire_bytes_total", "sent_wire_bytes")].iter().all(|(is, of)| {
                let series = format!("altq_class_{is}{{link=\"up\",class=\"rest\"}}");
                sample(&metrics, &series) == Some(class[of].to_string().as_str())
            });
        (same && class["sent_packets"].as_u64()? >= 50).then_some((metrics, class))
    });
    assert!(class["sent_bytes"].as_u64().unwrap() >= 50 * 29, "{class}");
    for (series, value) in [
        (r#"altq_class_guarantee_bytes_per_second{link="up",class="voice"}"#, "250000"),
        (r#"altq_class_info{link="up",class="rest",parent="up",leaf="true",scheduler="cbq"}"#, "1"),
        (r#"altq_class_info{link="down",class="all",parent="down",leaf="true",scheduler="htb"}"#, "1"),
        (r#"altq_bypass_active{link="up"}"#, "0"),
    ] {
        assert_eq!(sample(&metrics, series), Some(value), "{series} in\n{metrics}");
    }
    // The promise is that of `altq check`.
    let checked = Command::new(env!("CARGO_BIN_EXE_altq")).arg("check").arg(&policy).arg("--json").output().unwrap();
    let checked: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let promised = &checked["links"][0]["classes"][2]["delay_bound_ns"]["queue_full"];
    assert_eq!(class["delay_bound_ns"]["queue_full"], *promised);
    assert!(class["delay_bound_ns"]["queue_full"].is_u64(), "{class}");
    let _ = run.kill();
    let _ = run.wait();
}
