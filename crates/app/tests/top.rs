//! `altq top`: beside a full count of a capture, of a confined worker whose links carry known
//! packets, and of the history that outlives a worker. What this host does not allow is skipped
//! with a message.

mod client;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{err, out};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;
use world::{World, world};

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("altq-top-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn altq(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.args(arguments).env("LANG", "C.UTF-8").env_remove("LC_ALL").stdin(Stdio::null()).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {} {}", out(output), err(output)))
}

/// A packet of a capture: microseconds, last byte of source and destination, ports, protocol, and
/// bytes from the IP header on.
#[derive(Clone, Copy)]
struct Packet {
    at: u64,
    src: u8,
    dst: u8,
    ports: (u16, u16),
    proto: u8,
    bytes: u16,
}

/// A pcap file (draft-ietf-opsawg-pcap) of raw IPv4, link type 101, of which headers were captured.
fn pcap(packets: &[Packet]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 64, 101] {
        file.extend(word.to_le_bytes());
    }
    for packet in packets {
        let mut head = vec![0u8; 28];
        head[0] = 0x45;
        head[2..4].copy_from_slice(&packet.bytes.to_be_bytes());
        (head[8], head[9]) = (64, packet.proto);
        head[12..16].copy_from_slice(&[10, 0, 0, packet.src]);
        head[16..20].copy_from_slice(&[192, 0, 2, packet.dst]);
        head[20..22].copy_from_slice(&packet.ports.0.to_be_bytes());
        head[22..24].copy_from_slice(&packet.ports.1.to_be_bytes());
        if packet.proto == 6 {
            head.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
            head.truncate(40);
        }
        let (seconds, micros) = (packet.at / 1_000_000, packet.at % 1_000_000);
        for word in [seconds as u32, micros as u32, head.len() as u32, u32::from(packet.bytes)] {
            file.extend(word.to_le_bytes());
        }
        file.extend(head);
    }
    file
}

/// So many packets: some hosts send much, and thousands of flows a little.
fn packets(count: u64) -> Vec<Packet> {
    let mut state = 1u64;
    let mut random = |below: u64| {
        // The generator of Knuth's MMIX.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let packet = |n: u64| {
        // The lower of two numbers: low ones are frequent.
        let src = random(120).min(random(120)) as u8;
        let dst = random(200).min(random(200)) as u8;
        let service = [443, 53, 22, 80, 123, 993, 5060, 8080][random(8).min(random(8)) as usize];
        let proto = if matches!(service, 53 | 123 | 5060) { 17 } else { 6 };
        let ports = (40_000 + random(20_000) as u16, service);
        Packet { at: n * 10, src: 1 + src, dst: 1 + dst, ports, proto, bytes: 60 + random(1400) as u16 }
    };
    (0..count).map(packet).collect()
}

/// The five with the most, by a full count.
fn five(all: &HashMap<String, u64>) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = all.iter().map(|(name, bytes)| (name.clone(), *bytes)).collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all.truncate(5);
    all
}

#[test]
fn the_top_five_of_a_capture_are_those_of_a_full_count() {
    let folder = Folder::new("count");
    let packets = packets(200_000);
    let path = folder.file("a.pcap", pcap(&packets));
    let (mut hosts, mut protocols) = (HashMap::new(), HashMap::new());
    for packet in &packets {
        let name = if packet.proto == 6 { "tcp" } else { "udp" };
        *protocols.entry(format!("{name} {}", packet.ports.1)).or_default() += u64::from(packet.bytes);
        for host in [format!("10.0.0.{}", packet.src), format!("192.0.2.{}", packet.dst)] {
            *hosts.entry(host).or_default() += u64::from(packet.bytes);
        }
    }
    let seen = json(&altq(&["top", "--file", &path, "--once", "--json"]));
    assert_eq!((&seen["schema"], &seen["packets"]), (&"altq.watch/1".into(), &200_000.into()));
    for (list, counted) in [("hosts", &hosts), ("protocols", &protocols)] {
        let shown: Vec<(String, u64)> = seen[list].as_array().unwrap()[..5]
            .iter()
            .map(|entry| (entry["name"].as_str().unwrap().to_owned(), entry["bytes_at_least"].as_u64().unwrap()))
            .collect();
        assert_eq!(shown, five(counted), "{list}");
    }
    assert_eq!(seen["bytes"].as_u64().unwrap(), packets.iter().map(|packet| u64::from(packet.bytes)).sum::<u64>());
    let table = out(&altq(&["top", "--file", &path, "--once"]));
    assert!(table.contains(&five(&hosts)[0].0) && table.contains(&five(&protocols)[0].0), "{table}");
}

/// A document's identities: parents are the sums of their children, lent is borrowed, and flows
/// with the rest are what a class sent.
fn check(link: &Value) {
    let classes = link["classes"].as_array().unwrap();
    let figure = |class: &Value, name: &str| class[name].as_u64().unwrap_or_else(|| panic!("{name} in {class}"));
    assert_eq!(figure(&classes[0], "borrowed_bit_s"), figure(&classes[0], "lent_bit_s"));
    let mut below: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for class in &classes[1..] {
        below.entry(class["parent"].as_str().unwrap()).or_default().push(class);
    }
    for class in classes {
        // Classes that hold others have no packets of their own in these policies.
        if let Some(children) = below.get(class["name"].as_str().unwrap()) {
            let sum = |name: &str| children.iter().map(|child| figure(child, name)).sum::<u64>();
            for name in ["got_bit_s", "borrowed_bit_s", "sent_packets", "sent_bytes", "received_bytes"] {
                assert_eq!(sum(name), figure(class, name), "{name} of {class}");
            }
            // It also lends what it guarantees to none of them.
            assert!(sum("lent_bit_s") <= figure(class, "lent_bit_s"), "{class}");
        }
        if let Some(other) = class["other_bytes"].as_u64() {
            let flows = class["flows"].as_array().unwrap();
            let listed: u64 = flows.iter().map(|flow| figure(flow, "bytes_at_least")).sum();
            assert_eq!(listed + other, class["window"]["sent_bytes"].as_u64().unwrap(), "{class}");
        }
    }
}

#[test]
fn a_capture_is_sorted_into_the_classes_of_a_policy() {
    let folder = Folder::new("policy");
    let packets = packets(20_000);
    let path = folder.file("a.pcap", pcap(&packets));
    // More than is sent: a link lends what was sent beyond its own rate.
    let policy = "link wan { rate 900Mbit/s  scheduler cbq
        class web { share 40% borrow  class tls { share 30% borrow }  class plain { share 10% borrow } }
        class names { share 10% borrow }  class rest { share 50% borrow default }
        match dport 443 -> tls  match dport 80 -> plain  match proto udp dport 53 -> names }";
    let policy = folder.file("p.altq", policy);
    let output = altq(&["top", "--file", &path, "--policy", &policy, "--once", "--json", "--class", "names"]);
    let top = json(&output);
    assert_eq!(top["schema"], "altq.top/1");
    check(&top["links"][0]);
    let of = |port: u16| -> u64 {
        packets.iter().filter(|packet| packet.ports.1 == port).map(|packet| u64::from(packet.bytes)).sum()
    };
    let sent = |name: &str| {
        let classes = top["links"][0]["classes"].as_array().unwrap();
        classes.iter().find(|class| class["name"] == name).unwrap()["sent_bytes"].as_u64().unwrap()
    };
    assert_eq!(["tls", "plain", "names"].map(sent), [443, 80, 53].map(of));
    assert_eq!(sent("web"), of(443) + of(80));
    // Each second a line: 20,000 packets 10 us apart are a fifth of a second.
    let lines = altq(&["top", "--file", &path, "--policy", &policy, "--json", "--speed", "100"]);
    assert_eq!(out(&lines).lines().count(), 1, "{}", err(&lines));
    let wrong = altq(&["top", "--file", &path, "--policy", &policy, "--once", "--class", "nobody"]);
    assert!(wrong.status.code() == Some(2) && err(&wrong).contains("nobody"), "{}", err(&wrong));
    let table = out(&altq(&["top", "--file", &path, "--policy", &policy, "--once", "--ascii", "--class", "names"]));
    let rows: Vec<&str> = table.lines().map(|line| line.get(..14).unwrap_or(line).trim()).collect();
    assert_eq!(rows[3..9], ["wan", "web", "tls", "plain", ">  names", "rest"], "{table}");
}

#[test]
fn json_of_a_capture_has_the_classes_of_a_table_in_its_order() {
    let folder = Folder::new("chosen");
    let path = folder.file("a.pcap", pcap(&packets(2000)));
    let policy = "link wan { rate 900Mbit/s  scheduler cbq
        class web { share 40% borrow  class tls { share 30% borrow }  class plain { share 10% borrow } }
        class names { share 10% borrow }  class rest { share 50% borrow default }
        match dport 443 -> tls  match dport 80 -> plain  match proto udp dport 53 -> names }";
    let policy = folder.file("p.altq", policy);
    let all = ["top", "--file", path.as_str(), "--policy", policy.as_str(), "--once", "--json"];
    let whole = json(&altq(&all));
    for (options, expected) in [
        (&["--sort", "name"][..], &["wan", "names", "rest", "web", "plain", "tls"][..]),
        (&["--filter", "TLS"][..], &["wan", "web", "tls"][..]),
        (&["--filter", "n", "--sort", "name"][..], &["wan", "names", "web", "plain"][..]),
    ] {
        let top = json(&altq(&[&all[..], options].concat()));
        let classes = top["links"][0]["classes"].as_array().unwrap();
        let names: Vec<&str> = classes.iter().map(|class| class["name"].as_str().unwrap()).collect();
        assert_eq!(names, expected, "{options:?}");
        // What is left out stays in the figures of those above it.
        for one in classes {
            let name = one["name"].as_str().unwrap();
            assert_eq!(one["sent_bytes"], class(&whole, name)["sent_bytes"], "{options:?}: {name}");
        }
    }
}

#[test]
fn flows_are_folded_by_what_they_have_in_common() {
    let folder = Folder::new("by");
    // Three flows to one service of one host, two of them of the same sender.
    let packet = |src: u8, port: u16, bytes: u16| Packet { at: 0, src, dst: 9, ports: (port, 53), proto: 17, bytes };
    let path = folder.file("a.pcap", pcap(&[packet(1, 4000, 1000), packet(1, 4001, 500), packet(2, 4002, 200)]));
    let policy = "link wan { rate 10Mbit/s  scheduler cbq  class all { share 100% default } }";
    let policy = folder.file("p.altq", policy);
    for (by, expected) in [
        ("host", &[("10.0.0.1", 1500), ("10.0.0.2", 200)][..]),
        ("to-host", &[("192.0.2.9", 1700)][..]),
        // Each has more than a twentieth.
        ("prefix", &[("10.0.0.1/32", 1500), ("10.0.0.2/32", 200)][..]),
        ("to-prefix", &[("192.0.2.9/32", 1700)][..]),
        ("port", &[("udp 53", 1700)][..]),
        ("dscp", &[("dscp 0", 1700)][..]),
    ] {
        let top = json(&altq(&["top", "--file", &path, "--policy", &policy, "--once", "--json", "--by", by]));
        let class = &top["links"][0]["classes"][1];
        assert!(class["flows"].as_array().unwrap().is_empty() && class["other_bytes"] == 0, "{class}");
        let group =
            |group: &Value| (group["name"].as_str().unwrap().to_owned(), group["bytes_at_least"].as_u64().unwrap());
        let groups: Vec<(String, u64)> = class["groups"].as_array().unwrap().iter().map(group).collect();
        let expected: Vec<(String, u64)> = expected.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect();
        assert_eq!(groups, expected, "{by}");
    }
    let table =
        altq(&["top", "--file", &path, "--policy", &policy, "--once", "--ascii", "--class", "all", "--by", "host"]);
    let table = out(&table);
    assert!(table.contains(" all flows by host\n") && table.contains("\n10.0.0.1 "), "{table}");
}

#[test]
fn the_last_packet_of_a_capture_has_a_whole_second() {
    let folder = Folder::new("last");
    let packet =
        |second: u64| Packet { at: second * 1_000_000, src: 1, dst: 1, ports: (1000, 53), proto: 17, bytes: 1000 };
    let path = folder.file("a.pcap", pcap(&[0, 1, 2].map(packet)));
    let policy = "link wan { rate 10Mbit/s  scheduler cbq  class all { share 100% default } }";
    let policy = folder.file("p.altq", policy);
    let lines = out(&altq(&["top", "--file", &path, "--policy", &policy, "--json", "--speed", "100"]));
    let tops: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(tops.len(), 3);
    // 1000 bytes in each second, with some bytes of the link's own.
    for top in &tops {
        let got = top["links"][0]["classes"][0]["got_bit_s"].as_u64().unwrap();
        assert!((8000..9000).contains(&got), "{got}");
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let nobody = altq(&["top", "--once", "--socket", "/nonexistent/altq.sock"]);
    assert!(nobody.status.code() == Some(1) && err(&nobody).contains("no altq runs"), "{}", err(&nobody));
    let missing = altq(&["top", "--interface", "nosuch0", "--once"]);
    assert!(matches!(missing.status.code(), Some(7 | 6)), "{}", err(&missing));
    for wrong in [&["--window", "5"][..], &["--at", "yesterday"], &["--remote", "-oProxyCommand=x"], &["--speed", "2"]]
    {
        let output = altq(&[&["top"][..], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    }
    // A socket of this host is no socket of another one, and no capture.
    for other in [["--remote", "gateway"], ["--file", "a.pcap"], ["--interface", "lo"]] {
        let output = altq(&[&["top", "--once", "--socket", "/run/a.sock"][..], &other].concat());
        assert!(output.status.code() == Some(2) && err(&output).contains("--socket"), "{}", err(&output));
    }
    // Where no classes are shown, nothing can be said about them.
    for option in [&["--link", "wan"][..], &["--class", "a"], &["--filter", "a"], &["--sort", "got"], &["--by", "port"]]
    {
        for (other, why) in [(["--file", "a.pcap"], "--policy"), (["--interface", "lo"], "--interface")] {
            let output = altq(&[&["top", "--once"][..], &other, option].concat());
            let said = err(&output);
            let named = said.contains(option[0]) && said.contains(why);
            assert!(output.status.code() == Some(2) && named, "{option:?} {other:?}: {said}");
        }
    }
    for wrong in [&["--by", "colour"][..], &["--by", "port", "--at", "-1m"]] {
        let output = altq(&[&["top", "--once"][..], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", err(&output));
    }
    let folder = Folder::new("damaged");
    let path = folder.file("a.pcap", b"no capture");
    let damaged = altq(&["top", "--file", &path, "--once"]);
    assert!(damaged.status.code() == Some(2) && err(&damaged).contains("neither pcap"), "{}", err(&damaged));
}

/// Both ends of a pseudoterminal of 80 columns and 24 rows: the tester's, and the program's.
fn terminal() -> (File, OwnedFd) {
    let tester = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&tester).unwrap();
    unlockpt(&tester).unwrap();
    let name = ptsname(&tester, Vec::new()).unwrap();
    let program = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    tcsetwinsize(&tester, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (File::from(tester), program)
}

#[test]
fn a_screen_is_drawn_and_the_terminal_left_as_it_was() {
    let folder = Folder::new("screen");
    // Two seconds: the screen has figures after the first.
    let capture = folder.file("a.pcap", pcap(&packets(200_000)));
    let policy = "link wan { rate 900Mbit/s  scheduler cbq
        class tls { share 40% borrow }  class rest { share 60% borrow default }  match dport 443 -> tls }";
    let policy = folder.file("p.altq", policy);
    let (mut tester, program) = terminal();
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.args(["top", "--file", &capture, "--policy", &policy, "--ascii"]).env("NO_COLOR", "1").env("TERM", "xterm");
    command.stdin(program.try_clone().unwrap()).stdout(program.try_clone().unwrap());
    let before = tcgetattr(&program).unwrap();
    let mut child = command.spawn().unwrap();
    let shown = Arc::new(Mutex::new(Vec::new()));
    let (mut reader, all) = (tester.try_clone().unwrap(), shown.clone());
    std::thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(count @ 1..) = reader.read(&mut part) {
            all.lock().unwrap().extend_from_slice(&part[..count]);
        }
    });
    let text = || String::from_utf8_lossy(&shown.lock().unwrap()).into_owned();
    let end = Instant::now() + Duration::from_secs(30);
    while !text().contains("> wan") || !text().contains("tls") {
        assert!(Instant::now() < end, "{:?}", text());
        std::thread::sleep(Duration::from_millis(20));
    }
    tester.write_all(b"q").unwrap();
    assert!(child.wait().unwrap().success());
    let text = text();
    // It has shown another screen, and gone back; no colour was set.
    let end = text.trim_end_matches("\u{1b}[?25h");
    assert!(text.contains("\u{1b}[?1049h") && end != text && end.ends_with("\u{1b}[?1049l"), "{text:?}");
    assert!(!text.contains("\u{1b}[38;5;") && text.contains("tls"), "{text:?}");
    let after = tcgetattr(&program).unwrap();
    assert_eq!((after.local_modes, after.input_modes), (before.local_modes, before.input_modes));
}

/// A supervisor with a confined worker, in the middle of a world.
struct Running {
    folder: Folder,
    child: Child,
}

const POLICY: &str = "link there { device bridge a b  rate 20Mbit/s  scheduler cbq
        class echo { share 20% borrow }
        class agency { share 50% borrow  class web { share 30% borrow }  class bulk { share 20% borrow } }
        class rest { share 30% borrow default }
        match proto udp dport 7007 -> echo  match proto udp dport 8001 -> web  match proto udp dport 8002 -> bulk }
    link back { device bridge b a  rate 50Mbit/s  scheduler fifo  class all { default } }";

impl Running {
    fn start(world: &World, name: &str, arguments: &[&str]) -> Option<Running> {
        let folder = Folder::new(name);
        let policy = folder.file("p.altq", POLICY);
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.args(["run", &policy, "--supervise", "--user", "nobody"]).args(arguments);
        command.arg("--socket").arg(folder.0.join("altq.sock")).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(folder.0.join("log")).unwrap());
        let child = world.middle.run(|| command.spawn().unwrap()).unwrap();
        let mut running = Running { folder, child };
        let end = Instant::now() + Duration::from_secs(20);
        while running.top(&["--json"]).status.code() != Some(0) {
            if let Some(status) = running.child.try_wait().unwrap() {
                assert!(matches!(status.code(), Some(6 | 7)), "{status} {}", running.log());
                eprintln!("SKIPPED: {}", running.log().trim_end());
                return None;
            }
            assert!(Instant::now() < end, "it does not shape: {}", running.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(running)
    }

    fn socket(&self) -> String {
        self.folder.0.join("altq.sock").to_str().unwrap().to_owned()
    }

    fn top(&self, arguments: &[&str]) -> Output {
        altq(&[&["top", "--once", "--socket", &self.socket()][..], arguments].concat())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.0.join("log")).unwrap()
    }

    /// The number of the worker, if one runs.
    fn worker(&self) -> Option<u32> {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let found = std::fs::read_to_string(children).unwrap_or_default();
        found.split_whitespace().filter_map(|word| word.parse().ok()).find(|pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.windows(8).any(|part| part == b"--worker")
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It ends its worker; a second one would find the links held otherwise.
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

/// Sends datagrams of 1000 bytes of payload from left to right: so many to each port, one after
/// another over all ports.
fn send(world: &World, ports: &[u16], count: usize) {
    let socket = world.left.run(|| UdpSocket::bind("10.9.0.1:6000").unwrap()).unwrap();
    for _ in 0..count {
        for port in ports {
            socket.send_to(&[0; 1000], format!("10.9.0.2:{port}")).unwrap();
        }
        std::thread::sleep(Duration::from_millis(4));
    }
}

fn class<'v>(top: &'v Value, name: &str) -> &'v Value {
    let classes = top["links"][0]["classes"].as_array().unwrap();
    classes.iter().find(|class| class["name"] == name).unwrap_or_else(|| panic!("no {name} in {top}"))
}

#[test]
fn classes_and_flows_of_a_confined_worker() {
    let Some(world) = world() else { return };
    // Snapshots ten times a second and every three seconds: those who watch see seconds.
    for interval in ["100ms", "3s"] {
        let Some(running) = Running::start(&world, interval, &["--interval", interval]) else { return };
        send(&world, &[7007, 8001, 8002, 9], 200);
        let begun = Instant::now();
        let top = loop {
            let top = json(&running.top(&["--json", "--window", "60"]));
            if class(&top, "there")["window"]["sent_packets"].as_u64() >= Some(800) {
                break top;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{top} {}", running.log());
            std::thread::sleep(Duration::from_millis(100));
        };
        assert_eq!(top["schema"], "altq.top/1");
        // The loop wakes for its counts, if for nothing else, and not a second late.
        let late = top["links"][0]["self"]["loop_p99_ns"].as_u64();
        assert!(late.is_some_and(|late| late < 1_000_000_000), "{late:?}");
        top["links"].as_array().unwrap().iter().for_each(check);
        for (name, port) in [("echo", 7007), ("web", 8001), ("bulk", 8002)] {
            let class = class(&top, name);
            // 200 datagrams with their headers of 28 bytes, in one flow, of which all is sure.
            assert_eq!(class["window"]["sent_bytes"], 200 * 1028, "{class}");
            let flow = &class["flows"][0];
            let expected = serde_json::json!({
                "src": "10.9.0.1", "sport": 6000, "dst": "10.9.0.2", "dport": port, "proto": "udp",
                "bytes_at_least": 200 * 1028, "error_bytes": 0
            });
            for (field, value) in expected.as_object().unwrap() {
                assert_eq!(&flow[field], value, "{flow}");
            }
            assert_eq!((class["flows"].as_array().unwrap().len(), &class["other_bytes"]), (1, &0.into()));
            assert!(class["sojourn_ns"]["count"] == 200 && class["asked_bit_s"].is_u64(), "{class}");
        }
        assert_eq!(class(&top, "agency")["flows"].as_array().unwrap().len(), 2);
        // One class's flows only, and one link only.
        let one = json(&running.top(&["--json", "--window", "60", "--class", "web", "--link", "there"]));
        assert_eq!((one["links"].as_array().unwrap().len(), &class(&one, "echo")["other_bytes"]), (1, &Value::Null));
        assert_eq!(class(&one, "web")["flows"][0]["dport"], 8001);
        let table = out(&running.top(&["--window", "60", "--class", "web", "--ascii"]));
        assert!(table.contains("10.9.0.1:6000 > 10.9.0.2:8001"), "{table}");
        let wrong = running.top(&["--class", "nobody"]);
        assert!(wrong.status.code() == Some(2) && err(&wrong).contains("nobody"), "{}", err(&wrong));
        assert!(!running.log().contains("BYPASS") && !running.log().contains("history"), "{}", running.log());
    }
}

#[test]
fn the_history_outlives_a_worker() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "history", &["--interval", "100ms"]) else { return };
    let Some(first) = running.worker() else {
        return eprintln!("SKIPPED: this kernel does not list the children of a process (CONFIG_PROC_CHILDREN)");
    };
    let sent = |top: &Value| class(top, "web")["window"]["sent_bytes"].as_u64().unwrap();
    send(&world, &[8001], 100);
    let begun = Instant::now();
    while sent(&json(&running.top(&["--json", "--window", "60"]))) < 100 * 1028 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", running.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(Command::new("kill").args(["-KILL", &first.to_string()]).status().unwrap().success());
    let next = loop {
        let next = running.top(&["--json", "--window", "60"]);
        if running.worker().is_some_and(|worker| worker != first) && next.status.code() == Some(0) {
            break json(&next);
        }
        assert!(begun.elapsed() < Duration::from_secs(40), "{}", running.log());
        std::thread::sleep(Duration::from_millis(20));
    };
    // The next one has sent nothing itself.
    assert_eq!(sent(&next), 0);
    // Just before it began, which is a second ago or a little more.
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = running.top(&["--json", "--window", "60", "--at", "-1s"]);
        if answer.status.code() == Some(0) {
            let past = json(&answer);
            check(&past["links"][0]);
            if sent(&past) == 100 * 1028 {
                return;
            }
        }
        assert!(Instant::now() < end, "{} {} {}", out(&answer), err(&answer), running.log());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_interface_that_nobody_shapes() {
    let Some(world) = world() else { return };
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.args(["top", "--interface", "eth0", "--json"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = world.right.run(|| command.spawn().unwrap()).unwrap();
    // A bridge of the kernel's carries what is sent.
    world::ip(
        &world.middle,
        "link add name br0 type bridge\nlink set dev a master br0\nlink set dev b master br0\nlink set dev br0 up\n",
    )
    .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    // Somebody is there, so that nothing but the datagrams is sent.
    let listen = |port: u16| world.right.run(|| UdpSocket::bind(("10.9.0.2", port)).unwrap()).unwrap();
    let _listening = [9, 5353].map(listen);
    let begun = Instant::now();
    let found = loop {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing was seen");
        send(&world, &[9, 5353], 100);
        let Some(Ok(line)) = lines.next() else { break None };
        let seen: Value = serde_json::from_str(&line).unwrap();
        if seen["protocols"].as_array().unwrap().len() >= 2 && seen["packets"].as_u64() > Some(50) {
            break Some(seen);
        }
    };
    let _ = child.kill();
    child.wait().unwrap();
    let Some(seen) = found else { return eprintln!("SKIPPED: this host does not allow packet sockets") };
    let names = |list: &str| -> Vec<String> {
        seen[list].as_array().unwrap()[..2].iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    };
    let (mut hosts, mut protocols) = (names("hosts"), names("protocols"));
    hosts.sort();
    protocols.sort();
    assert_eq!(
        (hosts, protocols),
        (vec!["10.9.0.1".into(), "10.9.0.2".into()], vec!["udp 5353".to_owned(), "udp 9".into()])
    );
}

/// Another host is reached by a program of the name `ssh`: here one that runs what it is asked to.
#[test]
fn another_host_s_figures_are_drawn_here() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "remote", &[]) else { return };
    let altq_program = Path::new(env!("CARGO_BIN_EXE_altq"));
    // `ssh -o BatchMode=yes -- HOST altq WORD…`
    let script = format!(
        "#!/bin/sh\n[ \"$3 $4 $5\" = '-- gateway altq' ] || exit 9\nshift 5\nexec sh -c \"{} $*\"\n",
        altq_program.display()
    );
    let ssh = running.folder.file("ssh", script);
    assert!(Command::new("chmod").args(["755", &ssh]).status().unwrap().success());
    let path = format!("{}:{}", running.folder.0.display(), std::env::var("PATH").unwrap_or_default());
    let remote = |arguments: &[&str]| {
        let mut command = Command::new(altq_program);
        command.args(["top", "--remote", "gateway", "--once"]).args(arguments);
        command.env("PATH", &path).env("ALTQ_SOCKET", running.socket()).stdin(Stdio::null()).output().unwrap()
    };
    check(&json(&remote(&["--json", "--window", "10", "--class", "web"]))["links"][0]);
    let table = remote(&["--link", "there", "--ascii"]);
    assert!(out(&table).contains("agency"), "{} {}", out(&table), err(&table));
    // The other host's shell runs nothing that a name says.
    let odd = remote(&["--link", "$(echo there)"]);
    assert!(odd.status.code() == Some(2) && err(&odd).contains("$(echo there)"), "{}", err(&odd));
    let wrong = remote(&["--class", "nobody"]);
    assert!(wrong.status.code() == Some(2) && err(&wrong).contains("nobody"), "{}", err(&wrong));
}
