//! `altq report --last`: pages of what a running altq has kept, of figures that the test has made
//! up and of a real altq. What this host does not allow is skipped with a message.

mod client;
#[cfg(feature = "web")]
mod fake;
mod pages;
mod supervised;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::net::UdpSocket;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use client::{altq, err, out};
use pages::{alone, console, whole};
use serde_json::Value;
use supervised::Running;
use world::world;

/// The row of a class in a table.
fn row<'a>(page: &'a str, name: &str) -> &'a str {
    let rest = page.split(&format!("<th scope=\"row\">{name}</th>")).nth(1).unwrap_or_else(|| panic!("no {name}"));
    rest.split("</tr>").next().unwrap()
}

fn page_of(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", err(output));
    let page = out(output);
    whole(&page);
    alone(&page);
    page
}

/// Pages of made-up figures, whose client is in the same module as `altq web`'s.
#[cfg(feature = "web")]
mod made_up {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::fake::{Answers, Folder, serve, status};

    /// 2026-11-23 01:50:00 UTC, as `date -u -d @1795398600` says.
    const BEGAN: u64 = 1_795_398_600;
    const S: u64 = 1_000_000_000;

    fn class(name: &str, parent: Option<&str>, guaranteed: u64) -> Value {
        json!({ "name": name, "parent": parent, "guaranteed_bit_s": guaranteed, "ceiling_bit_s": 100_000_000,
            "delay_bound_ns": { "conforming": 5_000_000, "queue_full": 40_000_000 } })
    }

    /// A slice from and to so many seconds after the beginning.
    fn slice(from: u64, to: u64, points: Value) -> Value {
        json!({ "from_unix_ns": (BEGAN + from) * S, "to_unix_ns": (BEGAN + to) * S, "seconds": to - from,
            "points": points })
    }

    fn past(slices: &[Value], next: Option<u64>) -> Value {
        let classes = [
            class("wan", None, 100_000_000),
            class("agency", Some("wan"), 50_000_000),
            class("web", Some("agency"), 30_000_000),
            class("bulk", Some("agency"), 20_000_000),
            class("<b>&x", Some("wan"), 5_000_000),
        ];
        json!({ "schema": "altq.past/1", "link": "wan", "path": "bridge", "adapts": false,
            "now_unix_ns": (BEGAN + 60) * S, "begins_unix_ns": BEGAN * S, "classes": classes, "slices": slices,
            "next_ns": next })
    }

    fn answers() -> Answers {
        // A quarter of a minute, and after a gap of 25 s two seconds. The points: class, packets,
        // bytes, charged, dropped, marked, borrowed, lent, waiting, p50, p99, promised, missed.
        let quarter = json!([
            [2, 30_000, 44_000_000, 45_000_000, 7, 0, 0, 0, 150_000, 1_000_000, 90_000_000, 30_000_000, 600_000],
            [3, 20_000, 29_000_000, 30_000_000, 0, 3, 0, 0, 0, 2_000_000, 90_000_000, 20_000_000, 2_000_000],
        ]);
        let second = json!([
            [2, 2_000, 2_900_000, 3_000_000, 0, 0, 0, 0, 10_000, 1_000_000, 20_000_000, 3_750_000, 0],
            [3, 100, 100_000, 110_000, 0, 0, 0, 0, 0, 2_000_000, 60_000_000, 0, 0],
        ]);
        let seconds = [slice(40, 41, second.clone()), slice(41, 42, second)];
        let change = |number: u64, at: u64, what: &str, line: &str| {
            json!({ "number": number, "unix_ns": at * S, "what": what, "by": { "uid": 4_000_000_001_u64, "pid": 1 },
                "name": "/etc/p.altq", "lines": [line], "more": 2 })
        };
        let changes = [
            change(7, BEGAN - 7200, "applied", "long ago"),
            change(8, BEGAN + 20, "edited", "class web: share 30%, before share <20%>"),
        ];
        let others = BTreeMap::from([
            ("past".to_owned(), past(&[slice(0, 15, quarter)], Some(15))),
            ("past:15".to_owned(), past(&seconds, None)),
            ("history".to_owned(), json!({ "schema": "altq.history/1", "changes": changes })),
        ]);
        Answers { status: status("shaping", None), others, ..Answers::default() }
    }

    #[test]
    fn promises_charts_and_changes_are_on_one_page() {
        let folder = Folder::new("past");
        serve(&folder.socket(), answers());
        let path = folder.0.join("page.html");
        let written = altq(&folder.socket(), &["report", "--last", "1h", "-o", path.to_str().unwrap()]);
        assert_eq!(written.status.code(), Some(0), "{}", err(&written));
        let page = page_of(&altq(&folder.socket(), &["report", "--last", "1h", "--title", "A <day>"]));
        assert!(page.contains("<h1>A &lt;day&gt;</h1>") && page.contains("<h2>Link wan</h2>"));
        // Web could claim 37.5 MB in all and missed 0.6, bulk 2 of 20. Their delays since the
        // change were at most 20 and 60 ms, where 40 ms are promised.
        let (web, bulk, other) = (row(&page, "web"), row(&page, "bulk"), row(&page, "&lt;b&gt;&amp;x"));
        for (row, cells) in [
            (web, ["30 Mbit/s", "37.5 MB", "1.6 %", "20 ms", "40 ms", "5 ms"]),
            (bulk, ["20 Mbit/s", "20 MB", "10 %", "60 ms", "40 ms", "5 ms"]),
            (other, ["5 Mbit/s", "–", "–", "–", "40 ms", "5 ms"]),
        ] {
            let cells_of = row.split(" data-of=\"").skip(1).map(|cell| cell.split(['>', '<']).nth(1).unwrap());
            let found: Vec<&str> = cells_of.collect();
            assert_eq!(found, cells, "{row}");
        }
        assert_eq!((web.matches("PASS").count(), bulk.matches("FAIL").count()), (2, 2));
        assert!(other.contains("not asked"), "{other}");
        for text in [
            ">PASS: 2<",
            ">FAIL: 2<",
            ">not asked: 1<",
            // An hour was asked for, and a minute is known.
            "The last 60 min were asked for, and the history of this link begins at 2026-11-23 01:50:00 UTC",
            "Nothing was counted for 25 s",
            "01:50:15 to 01:50:40",
            "Delays count from 01:50:35 UTC on",
            "2026-11-23 01:50:20 UTC: change 8 edited /etc/p.altq by user 4000000001",
            "class web: share 30%, before share &lt;20%&gt;",
            "<title>01:50:20 change 8 edited /etc/p.altq</title>",
            ">time (UTC)<",
            ">rate [Mbit/s]<",
            ">delay<",
            ">drops [1/s]<",
            ">marks [1/s]<",
            ">backlog [kB]<",
            ">100 Mbit/s<",
            "download=\"past-wan.json\"",
        ] {
            assert!(page.contains(text), "{text} in {page}");
        }
        assert!(!page.contains("long ago"), "a change before the time that was asked for");
        // In all: web has sent 45 and twice 3 MB, charged, in 17 s.
        assert!(row(&page, "· · web").contains("<td>24 Mbit/s</td>"), "{}", row(&page, "· · web"));
        let profile = folder.0.join("profile");
        for width in [360, 1280] {
            match console(&path, &profile, width) {
                Some(said) => assert_eq!(said, "", "at {width}"),
                None => return eprintln!("SKIPPED in part: there is no browser here"),
            }
        }
    }

    #[test]
    fn without_a_history_there_is_no_page() {
        let nobody = altq(Path::new("/nonexistent/altq.sock"), &["report", "--last", "1h"]);
        assert!(nobody.status.code() == Some(1) && err(&nobody).contains("no altq runs"), "{}", err(&nobody));
        let folder = Folder::new("nothing");
        let served = serve(&folder.socket(), answers());
        let refused = |op: &str, answer: Value, code: i32, why: &str| {
            served.lock().unwrap().others.insert(op.to_owned(), answer);
            let output = altq(&folder.socket(), &["report", "--last", "1h"]);
            assert_eq!((output.status.code(), out(&output).as_str()), (Some(code), ""), "{}", err(&output));
            assert!(err(&output).contains(why) && err(&output).lines().count() == 1, "{}", err(&output));
        };
        let fault = |code: u64, message: &str| json!({ "fault": { "code": code, "message": message, "help": "so" } });
        refused("past", fault(7, "nobody watches the classes here"), 7, "nobody watches the classes here; so");
        refused("past", fault(1, "no worker shapes"), 1, "no worker shapes; so");
        refused("past", past(&[], None), 1, "nothing is known of this time; ask again in a second");
        refused("past", json!({ "next_ns": null }), 1, "altq's answer cannot be read");
        // Where only the changes are not known, the page says so.
        *served.lock().unwrap() = answers();
        served.lock().unwrap().others.insert("history".to_owned(), fault(1, "nobody keeps changes"));
        let page = page_of(&altq(&folder.socket(), &["report", "--last", "30s", "--link", "wan"]));
        assert!(page.contains("What was changed of the policy is not known: nobody keeps changes; so."), "{page}");
        assert!(!page.contains("were asked for"), "{page}");
        for wrong in [
            &["--last", "yesterday"][..],
            &["--last", "0s"],
            &["--last", "1h", "result.json"],
            &["--last", "1h", "--each", "folder"],
            &["--link", "wan", "result.json"],
            &["result.json"],
            &[],
        ] {
            let output = altq(&folder.socket(), &[&["report"][..], wrong].concat());
            assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", err(&output));
        }
    }
}

/// Two classes share 4 Mbit/s; what goes to port 9 belongs to `slow`, which has 1 Mbit/s.
const POLICY: &str = "link there { device bridge a b  rate 4Mbit/s  scheduler cbq
        class slow { share 25% }  class rest { share 75% default }  match dport 9 -> slow }
    link back { device bridge b a  rate 4Mbit/s  scheduler fifo  class all { default } }";

#[test]
fn a_class_that_waits_and_gets_its_guarantee_passes() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "recorded", POLICY, &["--supervise"]) else { return };
    let report = || running.ask(&["report", "--last", "5m", "--link", "there"]);
    // 4 Mbit/s for a class of 1 Mbit/s: its queue is full after a part of a second.
    let socket = world.left.run(|| UdpSocket::bind("10.9.0.1:6000").unwrap()).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    let page = loop {
        for _ in 0..50 {
            // A packet that the host has no room for is one less.
            let _ = socket.send_to(&[0; 1000], "10.9.0.2:9");
            std::thread::sleep(Duration::from_millis(2));
        }
        let output = report();
        if output.status.code() == Some(0) && !row(&out(&output), "slow").contains("not asked") {
            break page_of(&output);
        }
        assert!(Instant::now() < end, "{} {}", err(&output), running.log());
    };
    let slow = row(&page, "slow");
    assert!(slow.matches("PASS").count() == 2 && !slow.contains("FAIL"), "{slow}");
    assert!(row(&page, "rest").contains("not asked"), "{}", row(&page, "rest"));
    assert!(slow.contains(">1 Mbit/s<"), "{slow}");
    // The bound is that of `altq check`.
    let checked = std::process::Command::new(env!("CARGO_BIN_EXE_altq"))
        .arg("check")
        .arg(running.folder.join("p.altq"))
        .arg("--json")
        .output()
        .unwrap();
    let checked: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let classes = checked["links"][0]["classes"].as_array().unwrap();
    let promised = classes.iter().find(|class| class["name"] == "slow").unwrap();
    let bound = promised["delay_bound_ns"]["queue_full"].as_u64().unwrap() as f64;
    let shown = slow.split("data-of=\"bound\">").nth(1).unwrap().split('<').next().unwrap();
    let (number, unit) = shown.split_once(' ').unwrap();
    let shown_ns = number.parse::<f64>().unwrap() * if unit == "s" { 1e9 } else { 1e6 };
    assert!((shown_ns / bound - 1.0).abs() < 0.001, "{shown} for {bound} ns");
    // A change is listed, and marked on the axis.
    let edited = running.ask(&["class", "set", "there/slow", "share", "20%"]);
    assert_eq!(edited.status.code(), Some(0), "{}", err(&edited));
    let page = page_of(&report());
    assert!(page.contains("<h2>Changes of the policy</h2>") && page.contains(" change 1 edited "), "{page}");
    let other = running.ask(&["report", "--last", "5m", "--link", "nobody"]);
    assert!(other.status.code() == Some(2) && err(&other).contains("nobody"), "{}", err(&other));
    // While no worker runs nothing is counted, and the page says so afterwards.
    if !running.keep_killing() {
        return;
    }
    supervised::until("it shapes again", Duration::from_secs(30), || {
        let output = report();
        output.status.code() == Some(0) && out(&output).contains("Nothing was counted for ")
    });
    running.end();
}

#[test]
fn a_history_that_is_not_kept_is_said() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "forgets", POLICY, &["--history", "0"]) else { return };
    let output = running.ask(&["report", "--last", "1h"]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(7), ""), "{}", err(&output));
    assert_eq!(err(&output), "altq report: nobody watches the classes here; `altq run` was started with --history 0\n");
    running.end();
}
