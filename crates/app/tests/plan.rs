//! `altq plan` from outside: what changes, who changes class, what each class would get.

#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

mod supervised;

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use supervised::{BRIDGE, ONE, Running};
use world::world;

const OLD: &str = "link wan { rate 8Mbit/s  scheduler htb
    class web  { rate 4Mbit/s  ceil 8Mbit/s }
    class mail { rate 1Mbit/s  ceil 8Mbit/s }
    class rest { rate 3Mbit/s  ceil 8Mbit/s  default }
    match dport 80 -> web
    match dport 25 -> mail }
";
const NEW: &str = "link wan { rate 8Mbit/s  scheduler htb
    class web  { rate 2Mbit/s  ceil 8Mbit/s }
    class dns  { rate 1Mbit/s  ceil 8Mbit/s }
    class rest { rate 3Mbit/s  ceil 8Mbit/s  default }
    match dport 80 -> web
    match dport 53 -> dns }
";

fn altq(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    // A socket at which nobody listens.
    let nobody = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("plan-nobody.sock");
    command.args(args).env_remove("NO_COLOR").env("ALTQ_SOCKET", nobody).output().expect("altq runs")
}

fn file(name: &str, bytes: impl AsRef<[u8]>) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("plan");
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("a file");
    path.to_str().expect("a name").to_owned()
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The document, and the exit code.
fn plan(args: &[&str]) -> (Value, Option<i32>) {
    let (code, out, err) = said(&altq(&[&["plan"], args, &["--json"]].concat()));
    assert_eq!(err, "", "{args:?}");
    (serde_json::from_str(&out).unwrap_or_else(|error| panic!("{args:?}: {error}: {out}")), code)
}

fn class<'v>(link: &'v Value, name: &str) -> &'v Value {
    let classes = link["classes"].as_array().unwrap();
    classes.iter().find(|class| class["class"] == name).unwrap_or_else(|| panic!("{name}: {link}"))
}

fn moved(from: &str, to: &str, packets: u64, bytes: u64) -> Value {
    json!({ "from": from, "to": to, "packets": packets, "bytes": bytes })
}

/// A capture of UDP packets of IPv4 without options: the microsecond of each, its port, and its
/// bytes at layer 3.
fn capture(name: &str, packets: &[(u32, u16, u16)]) -> String {
    // Magic, version 2.4, zone, accuracy, the longest packet, and the link type LINKTYPE_RAW.
    let mut bytes = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 101].map(u32::to_le_bytes).concat();
    for (micros, dport, length) in packets {
        let mut ip = vec![0x45, 0];
        ip.extend(length.to_be_bytes());
        ip.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 192, 0, 2, 1]);
        ip.extend([9, *dport, length - 20, 0].map(u16::to_be_bytes).concat());
        bytes.extend([0, *micros, ip.len() as u32, u32::from(*length)].map(u32::to_le_bytes).concat());
        bytes.extend(ip);
    }
    file(name, bytes)
}

#[test]
fn words_promises_and_packets_that_change_their_class() {
    let (old, new) = (file("old.altq", OLD), file("new.altq", NEW));
    let packets = [(0, 80, 1000), (10, 53, 100), (20, 53, 200), (30, 25, 400), (40, 9, 500), (50, 80, 1000)];
    let taken = capture("moves.pcap", &packets);
    let (found, code) = plan(&[&new, "--against", &old, "--capture", &taken]);
    assert_eq!(code, Some(3));
    assert_eq!((&found["file"], &found["against"]), (&json!(new), &json!(old)));
    assert_eq!(found["links"][0]["capture"], json!({ "file": taken, "packets": 6, "bytes": 3200, "span_ns": 50_000 }));
    let link = &found["links"][0];
    assert_eq!((&link["link"], &link["new_start"]), (&json!("wan"), &Value::Null));
    let changes: Vec<&str> =
        link["changes"].as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap()).collect();
    assert_eq!(changes[..3], ["class web", "class dns", "class mail"], "{changes:?}");
    assert!(changes[3..].iter().all(|what| what.starts_with("rule")) && changes.len() > 3, "{changes:?}");
    assert_eq!(
        (&link["changes"][0]["before"], &link["changes"][0]["after"]),
        (&json!("rate 4Mbit/s"), &json!("rate 2Mbit/s"))
    );
    // The guarantee of a class of htb is its rate.
    let guarantee = |when: &str, name: &str| class(link, name)[when]["guaranteed_bit_s"].clone();
    assert_eq!([guarantee("before", "web"), guarantee("after", "web")], [json!(4_000_000), json!(2_000_000)]);
    assert_eq!([guarantee("before", "rest"), guarantee("after", "rest")], [json!(3_000_000), json!(3_000_000)]);
    assert_eq!((&class(link, "dns")["before"], &class(link, "mail")["after"]), (&Value::Null, &Value::Null));
    let order: Vec<&Value> = link["classes"].as_array().unwrap().iter().map(|class| &class["class"]).collect();
    assert_eq!(order, ["wan", "web", "dns", "rest", "mail"]);
    assert_eq!(link["moves"], json!([moved("mail", "rest", 1, 400), moved("rest", "dns", 2, 300)]));
    let arrived = |when: &str, name: &str| class(link, name)[when]["predicted"]["arrived_packets"].clone();
    assert_eq!(
        [arrived("before", "rest"), arrived("after", "rest"), arrived("after", "dns")],
        [3, 2, 2].map(Value::from)
    );

    let (code, out, _) = said(&altq(&["plan", &new, "--against", &old, "--capture", &taken]));
    assert_eq!(code, Some(3));
    for wanted in
        ["4.00 Mbit/s -> 2.00 Mbit/s", "mail -> rest: 1 packet, 12.50 % of the bytes", "dns (new)", "mail (gone)"]
    {
        assert!(out.contains(wanted), "{wanted}: {out}");
    }
    // Nothing changes for `rest` and for the link.
    assert!(out.contains("(the 2 other classes as before)"), "{out}");
    let (_, out, _) = said(&altq(&["plan", &new, "--against", &old, "--all"]));
    assert!(out.contains("rest") && !out.contains("packets"), "{out}");
}

/// Ten packets of a millisecond each at 8 Mbit/s, one each millisecond: none waits. At 4 Mbit/s
/// packet k begins at 2k ms, so it waits k ms, and the last one ends at 20 ms.
#[test]
fn what_each_class_would_get_is_computed() {
    let policy = |rate: &str| format!("link wan {{ rate {rate}  scheduler fifo  class all {{ default }} }}\n");
    let (fast, slow) = (file("fast.altq", policy("8Mbit/s")), file("slow.altq", policy("4Mbit/s")));
    let packets: Vec<(u32, u16, u16)> = (0..10).map(|at| (1000 * at, 9, 1000)).collect();
    let taken = capture("steady.pcap", &packets);
    let (found, code) = plan(&[&slow, "--against", &fast, "--capture", &taken]);
    assert_eq!(code, Some(3));
    let all = class(&found["links"][0], "all");
    // Ten packets come within 9 ms. As many are sent until then at 8 Mbit/s, and five at 4 Mbit/s.
    let got = |sent: u64, p50: u64, p99: u64| {
        json!({ "arrived_packets": 10, "asked_bit_s": 8_888_888, "sent_bit_s": sent, "sent_packets": 10,
            "dropped_packets": 0, "queued_packets": 0, "p50_ns": p50, "p99_ns": p99 })
    };
    assert_eq!(all["before"]["predicted"], got(8_888_888, 0, 0));
    assert_eq!(all["after"]["predicted"], got(4_444_444, 4_000_000, 9_000_000));
    assert_eq!(found["links"][0]["moves"], json!([]));
    // A queue of two packets: at 4 Mbit/s every second packet is dropped once it is full.
    let short = policy("4Mbit/s").replace("{ default }", "{ default  queue drop_tail { limit 2packets } }");
    let (found, _) = plan(&[&file("short.altq", short), "--against", &slow, "--capture", &taken]);
    let all = class(&found["links"][0], "all");
    let count = |when: &str, what: &str| all[when]["predicted"][what].as_u64().unwrap();
    assert_eq!(count("before", "dropped_packets"), 0);
    assert!(count("after", "dropped_packets") >= 2);
    assert_eq!(count("after", "dropped_packets") + count("after", "sent_packets"), 10);
}

#[test]
fn nothing_a_new_start_and_what_is_wrong() {
    let (old, new) = (file("same.altq", OLD), file("other.altq", NEW));
    let (found, code) = plan(&[&old, "--against", &old]);
    assert_eq!(
        (code, &found["links"][0]["changes"], &found["links"][0]["capture"]),
        (Some(0), &json!([]), &Value::Null)
    );
    let (code, out, _) = said(&altq(&["plan", &old, "--against", &old]));
    assert!(code == Some(0) && out.contains("nothing changes"), "{out}");
    let moved = file("moved.altq", OLD.replace("rate 8Mbit/s", "device eth0  rate 8Mbit/s"));
    let (found, code) = plan(&[&moved, "--against", &old]);
    assert_eq!((code, &found["links"][0]["new_start"]), (Some(3), &json!("its device or path")));
    let two = file("two.altq", format!("{OLD}{}", OLD.replace("wan", "lan")));
    let (found, code) = plan(&[&two, "--against", &old]);
    assert_eq!((code, &found["links"][1]["new_start"]), (Some(3), &json!("it is new")));
    let (found, code) = plan(&[&old, "--against", &two]);
    assert_eq!((code, &found["links"][1]["new_start"]), (Some(3), &json!("it is gone")));
    assert_eq!(plan(&[&old, "--against", &two, "--link", "wan"]).1, Some(0));
    let wrong = file("wrong.altq", "link wan { rate 8 }");
    for (arguments, code, wanted) in [
        (&[new.as_str(), "--against", &old, "--link", "up"][..], 2, "neither policy has a link `up`; there is wan"),
        (&[&wrong, "--against", &old], 2, "wrong.altq:1:"),
        (&[&old, "--against", &wrong], 2, "wrong.altq:1:"),
        (&[&old, "--against", &old, "--capture", &old], 2, "same.altq"),
        (&["-", "--against", "-"], 2, "only one of the two policies comes from standard input"),
        (&[&two, "--against", &two, "--capture", &old], 2, "choose one with --link: wan, lan"),
        (&[&old], 1, "--against OLD compares with a file"),
    ] {
        let (found, out, err) = said(&altq(&[&["plan"], arguments].concat()));
        assert_eq!((found, out.as_str()), (Some(code), ""), "{arguments:?}: {err}");
        assert!(err.contains(wanted), "{arguments:?}: {err}");
    }
}

/// Beside an altq that runs: what it runs, with the rates that were set since.
#[test]
fn what_runs_is_compared() {
    let Some(world) = world() else { return };
    world.answer_in_the_middle();
    let Some(running) = Running::start(&world, "plan", ONE, &[]) else { return };
    let same = running.folder.join("p.altq");
    let asked = |file: &std::path::Path| running.ask(&["plan", file.to_str().unwrap(), "--json"]);
    let output = asked(&same);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(running.ask(&["link", "set", "up", "rate", "50Mbit/s"]).status.success());
    let output = asked(&same);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &found["against"]), (Some(3), &json!("what runs")));
    let changes = &found["links"][0]["changes"];
    assert_eq!((&changes[0]["before"], &changes[0]["after"]), (&json!("rate 50Mbit/s"), &json!("rate 100Mbit/s")));
    assert_eq!(found["links"][1]["changes"], json!([]));
    let other = running.folder.join("other.altq");
    std::fs::write(&other, BRIDGE).unwrap();
    let found: Value = serde_json::from_slice(&asked(&other).stdout).unwrap();
    let links = found["links"].as_array().unwrap().iter();
    let links: Vec<(&str, &str)> =
        links.map(|link| (link["link"].as_str().unwrap(), link["new_start"].as_str().unwrap())).collect();
    assert_eq!(links, [("there", "it is new"), ("back", "it is new"), ("up", "it is gone"), ("down", "it is gone")]);
    // What the links send meanwhile: the left host asks the middle, which answers.
    let ended = std::sync::atomic::AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = std::time::Instant::now();
            while !ended.load(std::sync::atomic::Ordering::Relaxed) && begun.elapsed().as_secs() < 20 {
                world.middle_answers();
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        let output = running.ask(&["plan", same.to_str().unwrap(), "--for", "1s", "--json"]);
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        output
    });
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error} {output:?}"));
    for link in found["links"].as_array().unwrap() {
        let all = class(link, "all");
        let packets = link["capture"]["packets"].as_u64().unwrap();
        assert!(packets > 5 && link["capture"]["file"] == Value::Null, "{link}");
        for when in ["before", "after"] {
            assert_eq!(all[when]["predicted"]["arrived_packets"], json!(packets), "{link}");
        }
    }
    // Nothing was changed by asking.
    assert_eq!(running.ask(&["status"]).status.code(), Some(0));
    running.end();
}
