//! `altq report` on measurements: what `altq traffic --json` and `altq run --json` print becomes a
//! page with plots; what cannot be read is told, and what came before it is shown.
//!
//! The files in `measured` were written by both programs while a policy with three classes was in
//! force between two network namespaces.

mod middle;
mod pages;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use middle::{Middle, shape};
use pages::{alone, console, whole};
use serde_json::Value;

const TRAFFIC: &str = include_str!("measured/traffic.jsonl");
const STAT: &str = include_str!("measured/stat.jsonl");

fn report(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_altq")).arg("report").args(args).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A file of this test, in a folder of its own.
fn file(folder: &str, name: &str, text: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("measured-{folder}"));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn page_of(output: &Output) -> String {
    let page = String::from_utf8(output.stdout.clone()).unwrap();
    whole(&page);
    alone(&page);
    page
}

/// The labels of all axes of values.
fn axes(page: &str) -> Vec<String> {
    let labels = page.split("<g transform=\"rotate(-90").skip(1);
    labels.map(|label| label.split('>').nth(2).unwrap().split('<').next().unwrap().to_owned()).collect()
}

#[test]
fn traffic_and_stat_become_one_page() {
    let (traffic, stat) = (file("page", "traffic.jsonl", TRAFFIC), file("page", "stat.jsonl", STAT));
    let policy =
        file("page", "home.altq", "link up { rate 20Mbit/s  scheduler cbq  class rest { share 50% default } }\n");
    let (traffic, stat, policy) =
        (traffic.display().to_string(), stat.display().to_string(), policy.display().to_string());
    let out = report(&[&traffic, &stat, "--policy", &policy]);
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    let page = page_of(&out);
    // The panels: what flows had, and what the link's classes did.
    let panel = |label: &str| axes(&page).iter().any(|axis| axis == label);
    for label in [
        "throughput [Mbit/s]",
        "delay",
        "TCP rtt [ms]",
        "lost [1/s]",
        "resent [1/s]",
        "rate [Mbit/s]",
        "borrowed [Mbit/s]",
        "wait",
        "backlog",
        "drops [1/s]",
    ] {
        assert!(panel(label), "{label} in {:?}", axes(&page));
    }
    for text in [
        "<h1>Measurement</h1>",
        ">valid</li>",
        "2026-11-23 01:53:41 UTC",
        "<h2>Link up</h2>",
        "class rest { share 50% default }",
    ] {
        assert!(page.contains(text), "{text}");
    }
    // The figures of the table are those of the files.
    let last: Value = serde_json::from_str(TRAFFIC.lines().last().unwrap()).unwrap();
    let flow = |name: &str| last["flows"].as_array().unwrap().iter().find(|flow| flow["name"] == name).unwrap().clone();
    let row = |name: &str| {
        let row = page.split(&format!("<th scope=\"row\">{name}</th>")).nth(1).unwrap_or_else(|| panic!("{name}"));
        let row = row.split("</tr>").next().unwrap();
        row.split("<td>").skip(1).map(|cell| cell.split('<').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(flow("bulk up")["goodput_bit_s"], 15_082_021);
    assert_eq!(row("bulk up")[1], "15.08 Mbit/s");
    let video = &flow("video")["packets"];
    assert!(row("video").iter().any(|cell| cell.starts_with(&format!("{} of {} (", video["lost"], video["sent"]))));
    // 600 requests are too few for P99.9.
    assert_eq!(flow("voice")["rtt_ns"]["n"], 600);
    assert_eq!(row("voice")[6], "–");
    let end: Value = serde_json::from_str(STAT.lines().last().unwrap()).unwrap();
    let rest =
        end["links"][0]["classes"].as_array().unwrap().iter().find(|class| class["name"] == "rest").unwrap().clone();
    assert_eq!((row("· rest")[0].as_str(), row("· rest")[1].as_str()), ("10 Mbit/s", "20 Mbit/s"));
    let mb = rest["sent_bytes"].as_f64().unwrap() / 1e6;
    assert_eq!(row("· rest")[3], format!("{mb:.2} MB"));
    assert_eq!(
        row("· rest")[5],
        rest["dropped"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum::<u64>().to_string()
    );
    // The raw data are in the page.
    assert_eq!(page.matches("data:application/json;base64,").count(), 2);
    // One file with both, one after the other, gives the same charts; and so does stdin.
    let both = file("page", "both.jsonl", &format!("{TRAFFIC}{STAT}")).display().to_string();
    assert_eq!(axes(&page_of(&report(&[&both]))), axes(&page));
    // Without the lines there is no time axis, but the result has its charts.
    let only = file("page", "result.json", TRAFFIC.lines().last().unwrap()).display().to_string();
    let page = page_of(&report(&[&only]));
    assert!(
        axes(&page).is_empty()
            && page.contains("aria-label=\"goodput of each flow\"")
            && page.contains("aria-label=\"delays of each flow\"")
    );
}

#[test]
fn what_is_cut_or_foreign_is_told_and_what_came_before_is_shown() {
    let cut = &STAT[..STAT.len() - 500];
    let lines = cut.lines().count();
    let live: String = TRAFFIC.lines().take(5).map(|line| format!("{line}\n")).collect();
    let foreign = format!("{STAT}{{\"schema\":\"altq.check/1\"}}\n");
    let place = format!("foreign.jsonl:{}:11: the schema is \"altq.check/1\"", STAT.lines().count() + 1);
    let newer =
        "newer.jsonl:6:11: the schema is \"altq.traffic_live/2\", not \"altq.traffic_live/1\"; it is of another";
    let with = |old: &str, new: &str| format!("{live}{}", live.replace(old, new));
    let words = "words.jsonl:6:1: this is no JSON behind the results before it";
    for (name, text, wanted, links) in [
        ("cut.jsonl", cut.to_owned(), format!("cut.jsonl:{lines}:"), true),
        ("foreign.jsonl", foreign, place, true),
        ("newer.jsonl", with("live/1", "live/2"), newer.into(), false),
        ("changed.jsonl", with("\"bytes\"", "\"octets\""), "changed.jsonl:6:".into(), false),
        ("words.jsonl", format!("{live}Killed\n"), words.into(), false),
    ] {
        let path = file("cut", name, &text).display().to_string();
        let out = report(&[&path]);
        assert_eq!(out.status.code(), Some(1), "{name}: {}", said(&out));
        assert!(said(&out).contains(&wanted) && said(&out).contains("^"), "{name}: {}\n{wanted}", said(&out));
        let page = page_of(&out);
        assert!(page.contains("not complete") && page.contains("the page shows what comes before"), "{name}");
        assert_eq!((page.contains("<h2>Link up</h2>"), page.contains("<h2>Flows</h2>")), (links, !links), "{name}");
    }
    // A client that was stopped has lines and no result.
    let path = file("cut", "stopped.jsonl", &live).display().to_string();
    let out = report(&[&path]);
    let page = page_of(&out);
    assert!(out.status.success() && page.contains("a run of altq traffic has no result"), "{}", said(&out));
    assert!(axes(&page).iter().any(|axis| axis == "throughput [Mbit/s]"));
    // Nothing of use: nothing is written.
    for (name, text, wanted) in [
        ("empty.jsonl", String::new(), "empty.jsonl: there is nothing in it; "),
        ("first.jsonl", STAT[100..].to_owned(), "first.jsonl:1:1: this is no result"),
        ("none.jsonl", "{\"schema\":\"altq.stat/1\"}".into(), "none.jsonl:1:"),
    ] {
        let path = file("cut", name, &text).display().to_string();
        let page = file("cut", "page.html", "").display().to_string();
        let out = report(&[&path, "--out", &page]);
        assert_eq!(out.status.code(), Some(2), "{name}: {}", said(&out));
        assert!(said(&out).contains(wanted), "{name}: {}", said(&out));
        assert_eq!(std::fs::read_to_string(&page).unwrap(), "", "{name}");
    }
    // Options that belong to something else.
    let path = file("cut", "stat.jsonl", STAT).display().to_string();
    for (args, wanted) in [
        (&["--flent", "x.flent.gz"][..], "a measurement becomes one page"),
        (&["--each", "x"], "a measurement becomes one page"),
        (&["--policy", "/no/such.altq"], "/no/such.altq"),
    ] {
        let out = report(&[&[path.as_str()], args].concat());
        assert!(out.status.code() == Some(2) && said(&out).contains(wanted), "{args:?}: {}", said(&out));
    }
}

/// A link with twenty classes, of which twelve have lines; each line looks different.
#[test]
fn of_many_classes_the_largest_have_lines() {
    let mut stat: Value = serde_json::from_str(STAT.lines().next_back().unwrap()).unwrap();
    let mut lines = String::new();
    for second in 1..=4u64 {
        let link = &mut stat["links"][0];
        let class = link["classes"][1].clone();
        (link["at_ns"], link["interval_ns"], link["last"]) =
            ((second * 1_000_000_000).into(), 1_000_000_000.into(), (second == 4).into());
        link["classes"].as_array_mut().unwrap().truncate(1);
        for n in 0..20u64 {
            let mut class = class.clone();
            (class["name"], class["sent_bytes"]) = (format!("plan{n:02}").into(), (second * (n + 1) * 1000).into());
            link["classes"].as_array_mut().unwrap().push(class);
        }
        lines += &format!("{stat}\n");
    }
    let path = file("many", "stat.jsonl", &lines).display().to_string();
    let page = page_of(&report(&[&path]));
    assert!(page.contains("The charts show the 12 classes with the most bytes; the table has all 20."));
    let legend = page.split("<ul class=\"legend\">").nth(1).unwrap().split("</ul>").next().unwrap();
    let names: Vec<&str> = legend.split("</svg>").skip(1).map(|name| name.split('<').next().unwrap()).collect();
    assert_eq!((names.len(), names[0], names[11]), (12, "plan08", "plan19"));
    let mut styles: Vec<&str> = legend.split("class=\"line ").skip(1).map(|c| c.split('"').next().unwrap()).collect();
    styles.sort_unstable();
    styles.dedup();
    assert_eq!(styles.len(), 12);
    assert!(page.contains(">· plan00</th>"));
}

const POLICY: &str = "
link up { device bridge a b  rate 8Mbit/s  scheduler cbq
    class voice { share 10% borrow priority 7 }  class rest { share 80% borrow default }
    match dscp ef -> voice }
link down { device bridge b a  rate 8Mbit/s  scheduler wfq
    class voice { bandwidth 10% }  class rest { bandwidth 80% default }
    match dscp ef -> voice }";

/// The whole way: a policy in force, a measurement through it, and one command for the page.
#[test]
fn a_live_measurement_becomes_a_page() {
    let Some(world) = world::world() else { return };
    let policy = file("live", "policy.altq", POLICY);
    let altq = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.args(args).env("ALTQ_TOKEN", "a secret of this test").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let Some(middle) = shape(&world, &policy, "250ms") else { return };
    let Middle { child: mut middle, mut out, first: mut stat } = middle;
    let policy = policy.display().to_string();
    let reader = std::thread::spawn(move || {
        out.read_to_string(&mut stat).unwrap();
        stat
    });
    let mut server = altq(&["traffic", "server", "--listen", "10.9.0.2:2587"]);
    let mut server = world.right.run(|| server.spawn().unwrap()).unwrap();
    let mut listening = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut listening).unwrap();
    let plan = file(
        "live",
        "plan.toml",
        "duration = '3s'\n[[flows]]\nname = 'bulk'\nkind = 'tcp_bulk'\ndirection = 'both'\n\
         [[flows]]\nname = 'voice'\nkind = 'udp_rr'\nrequest = 160\nresponse = 160\ninterval = '20ms'\ndscp = 'ef'\n",
    );
    let mut client =
        altq(&["traffic", "mix", "10.9.0.2", "--plan", &plan.display().to_string(), "--json", "--interval", "250ms"]);
    let client = world.left.run(|| client.output().unwrap()).unwrap();
    let _ = server.kill();
    let _ = server.wait();
    assert!(Command::new("kill").args(["-INT", &middle.id().to_string()]).status().unwrap().success());
    assert_eq!(middle.wait().unwrap().code(), Some(0));
    let stat = file("live", "stat.jsonl", &reader.join().unwrap()).display().to_string();
    assert!(matches!(client.status.code(), Some(0 | 3)), "{}", said(&client));
    let traffic = file("live", "traffic.jsonl", std::str::from_utf8(&client.stdout).unwrap()).display().to_string();
    let page = file("live", "page.html", "");
    let out = report(&[&traffic, &stat, "--policy", &policy, "--out", &page.display().to_string()]);
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    let text = std::fs::read_to_string(&page).unwrap();
    whole(&text);
    alone(&text);
    for heading in ["<h2>Flows</h2>", "<h2>Link up</h2>", "<h2>Link down</h2>", "<h2>Policy</h2>"] {
        assert!(text.contains(heading), "{heading}");
    }
    assert!(!text.contains("not complete"));
    let panels = axes(&text);
    for (label, count) in [("throughput [Mbit/s]", 2), ("rate [Mbit/s]", 4)] {
        // Each chart is drawn twice, for wide and for narrow screens.
        assert_eq!(panels.iter().filter(|panel| *panel == label).count(), count, "{label} in {panels:?}");
    }
    // The wfq class has its guarantee of 10 % of 8 Mbit/s.
    let down = text.split("<h2>Link down</h2>").nth(1).unwrap();
    assert!(down.split(">· voice</th>").nth(1).unwrap().starts_with("<td>800 kbit/s</td>"));
    let profile = page.with_file_name("profile");
    for width in [1280, 400] {
        match console(&page, &profile, width) {
            Some(said) => assert_eq!(said, "", "at {width}"),
            None => eprintln!("SKIPPED in part: there is no Chromium here"),
        }
    }
}
