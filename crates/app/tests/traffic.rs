//! `altq traffic` as its user sees it: exit codes, messages about wrong inputs, JSON, a narrow
//! terminal, a user without root; and every kind of flow between two namespaces, with `altq run`
//! between them, whose classes count what is on the wire. The tests check counts and relations, not
//! speeds, because they run on hosts that others use too.

mod middle;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use altq_dataplane::netns::Namespace;
use middle::{Middle, shape};
use serde_json::Value;

const SECRET: &str = "a secret of this test";

fn altq(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.args(args).stdin(Stdio::null()).env_remove("ALTQ_TOKEN");
    command
}

fn traffic(args: &[&str]) -> Output {
    altq(&["traffic"]).args(args).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A server that stops when the test ends.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(namespace: Option<&Namespace>, listen: &[&str], more: &[&str]) -> Server {
        let mut command = altq(&["traffic", "server", "--token", SECRET]);
        for address in listen {
            command.args(["--listen", address]);
        }
        command.args(more).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = match namespace {
            Some(namespace) => namespace.run(|| command.spawn().unwrap()).unwrap(),
            None => command.spawn().unwrap(),
        };
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        for _ in listen {
            line.clear();
            out.read_line(&mut line).unwrap();
        }
        let address = line.trim().strip_prefix("listening ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Server { child, address }
    }

    fn local(more: &[&str]) -> Server {
        Server::start(None, &["127.0.0.1:0"], more)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The result of a client that did what it was told. It may say that this host did not keep time.
fn result(output: &Output) -> Value {
    assert!(matches!(output.status.code(), Some(0 | 3)), "{:?}: {}", output.status, said(output));
    let text = String::from_utf8_lossy(&output.stdout);
    let result: Value = serde_json::from_str(text.lines().last().expect("a result")).unwrap();
    assert_eq!(
        output.status.code(),
        Some(if result["valid"] == true { 0 } else { 3 }),
        "the code says what the result says"
    );
    for flow in result["flows"].as_array().unwrap() {
        assert!(flow["error"].is_null(), "{flow}");
    }
    result
}

#[test]
fn wrong_words_are_told_with_the_way_out() {
    let token = ["--token", SECRET];
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let plan = folder.join("traffic-bad-plan.toml");
    std::fs::write(&plan, "[[flows]]\nname = 'a'\nkind = 'tcp_bulk'\nstraems = 2\n").unwrap();
    let plan = plan.display().to_string();
    for (args, wanted) in [
        (&["udp", "127.0.0.1"][..], "--rate <RATE>"),
        (
            &["udp", "127.0.0.1", "--rate", "10mbps"],
            "two ways: bits or bytes a second; for bits a second write 10Mbit/s; for bytes a second 80Mbit/s",
        ),
        (
            &["udp", "127.0.0.1", "--rate", "10"],
            "10 of what? write the unit, kbit/s, Mbit/s or Gbit/s, such as 10Mbit/s",
        ),
        (&["udp", "127.0.0.1", "--rate", "1Mbit/s", "--size", "20"], "no packet has 20 bytes at layer 3: from 29"),
        (&["udp", "127.0.0.1", "--rate", "1Mbit/s", "--dscp", "64"], "a number from 0 to 63, or ef"),
        (&["udp", "127.0.0.1", "--rate", "1Mbit/s", "--every", "1ms"], "cannot be used with"),
        (&["bulk", "127.0.0.1", "-t", "5"], "5 of what? write the unit, s, ms or min, such as 5s"),
        (&["bulk", "127.0.0.1", "-t", "0s"], "--duration must be longer than 0"),
        (&["bulk", "127.0.0.1", "-t", "1s", "--warmup", "1s"], "--warmup 1.00 s leaves nothing of the 1.00 s"),
        (&["bulk", "127.0.0.1", "--interval", "1ms"], "--interval: 10ms to 1min"),
        (&["bulk", "127.0.0.1", "--up", "--down"], "cannot be used with"),
        (&["bulk", "127.0.0.1", "-6"], "127.0.0.1 has no IPv6 address"),
        (&["bulk", "localhost:99999"], "after the colon comes a port"),
        (&["bulk", "127.0.0.1", "--bind", "::1"], "--bind: none of the addresses is of ipv4"),
        (&["bulk", "127.0.0.1", "--cc", "../x"], "1 to 15 letters"),
        (&["rr", "127.0.0.1", "--udp", "--cc", "cubic"], "--cc and --buffers are options of TCP"),
        (&["rr", "127.0.0.1", "--udp", "--request", "70000"], "at most 65487"),
        (&["mix", "127.0.0.1", "--plan", "/no/such.toml"], "/no/such.toml: cannot be read"),
        (&["mix", "127.0.0.1", "--plan", &plan], "traffic-bad-plan.toml:4:1"),
        (&["bulc", "127.0.0.1"], "a similar subcommand exists: 'bulk'"),
    ] {
        let output = traffic(&[args, &token].concat());
        let said = said(&output);
        assert!(
            output.status.code() == Some(2) && said.contains(wanted) && output.stdout.is_empty(),
            "{args:?}: {said}"
        );
    }
    for (args, wanted) in [
        (&["bulk", "127.0.0.1"][..], "`altq traffic server` prints it"),
        (&["bulk", "127.0.0.1", "--token", "/no/such"], "/no/such: No such file"),
        (&["bulk", "127.0.0.1", "--token", "short"], "at least 8 characters"),
        (&["server", "--listen", "nonsense"], "an address of this host, with or without a port"),
        (&["server", "--max-clients", "0"], "a limit is too low"),
        (&["server", "--for", "5"], "5 of what?"),
    ] {
        let output = traffic(args);
        assert!(output.status.code() == Some(2) && said(&output).contains(wanted), "{args:?}: {}", said(&output));
    }
    // Nobody listens there: that is no wrong usage, but a failure.
    let output = traffic(&["bulk", "127.0.0.1:1", "--token", SECRET]);
    assert!(
        output.status.code() == Some(1) && said(&output).contains("does `altq traffic server` run there?"),
        "{}",
        said(&output)
    );
}

#[test]
fn tokens_and_caps() {
    let server =
        Server::local(&["--max-rate", "2Mbit/s", "--max-duration", "2s", "--max-flows", "2", "--max-streams", "3"]);
    let at = |args: &[&str], token: &str| {
        let mut all = vec![args[0], server.address.as_str(), "--token", token, "--quiet"];
        all.extend(&args[1..]);
        let output = traffic(&all);
        (output.status.code(), said(&output))
    };
    let (code, text) = at(&["bulk", "-t", "1s"], "another secret than its");
    assert!(code == Some(6) && text.contains("--token, or ALTQ_TOKEN") && !text.contains("another"), "{code:?} {text}");
    for (args, wanted) in [
        (
            &["udp", "--rate", "3Mbit/s", "-t", "1s"][..],
            "3Mbit/s of UDP up, but the server allows 2Mbit/s (--max-rate)",
        ),
        (&["bulk", "-t", "3s"], "(--max-duration)"),
        (&["bulk", "-P", "4", "-t", "1s"], "(--max-streams)"),
    ] {
        let (code, text) = at(args, SECRET);
        assert!(
            code == Some(5) && text.contains("the server refuses") && text.contains(wanted),
            "{args:?} {code:?} {text}"
        );
    }
    // No kernel has this congestion control. The host reports that, and lists those that it has.
    let (code, text) = at(&["bulk", "--cc", "no-such-cc", "-t", "1s"], SECRET);
    assert!(
        code == Some(7) && text.contains("no congestion control `no-such-cc`") && text.contains("cubic"),
        "{code:?} {text}"
    );
    // A run within the limits works, and TCP is held to the rate: 2 Mbit/s in 1 s are 250 kB, and
    // the socket may hold a little more.
    let output = traffic(&["bulk", &server.address, "--token", SECRET, "-t", "1s", "--json", "--quiet"]);
    let result = result(&output);
    let bytes = result["flows"][0]["bytes"].as_u64().unwrap();
    assert!((50_000..=300_000).contains(&bytes), "{bytes}");
}

/// Without `--json` and `--quiet` each interval is a line on stderr.
#[test]
fn lines_for_people_say_how_it_goes() {
    let server = Server::local(&[]);
    let output = altq(&["traffic", "udp", &server.address, "--both", "--rate", "800kbit/s", "-t", "1s"])
        .args(["--interval", "200ms", "--token", SECRET])
        .output()
        .unwrap();
    let text = said(&output);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{text}");
    let live = text.lines().filter(|line| line.contains(" of 1 s  up ") && line.contains("  down "));
    assert!(live.count() >= 3, "{text}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains(" of 1 s  up "), "{text}");
}

#[test]
fn json_is_lines_and_a_result() {
    let server = Server::local(&[]);
    let output =
        altq(&["traffic", "udp", &server.address, "--both", "--rate", "800kbit/s", "--size", "100", "-t", "1s"])
            .args(["--json", "--interval", "200ms", "--warmup", "0s", "--seed", "7"])
            .env("ALTQ_TOKEN", SECRET)
            .output()
            .unwrap();
    let result = result(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains(SECRET) && output.stderr.is_empty() || result["valid"] == false);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, live) = lines.split_last().unwrap();
    assert!(live.len() >= 3, "{}", live.len());
    let mut at = 0;
    for line in live {
        assert_eq!((&line["schema"], line["flows"].as_array().unwrap().len()), (&"altq.traffic_live/1".into(), 2));
        assert!(line["at_ns"].as_u64().unwrap() > at);
        at = line["at_ns"].as_u64().unwrap();
    }
    assert_eq!(last["schema"], "altq.traffic/1");
    assert_eq!((last["seed"].as_u64(), last["warmup_ns"].as_u64()), (Some(7), Some(0)));
    for (flow, way) in last["flows"].as_array().unwrap().iter().zip(["up", "down"]) {
        assert_eq!((&flow["kind"], &flow["direction"], &flow["family"]), (&"udp".into(), &way.into(), &"ipv4".into()));
        // 1000 packets of 100 bytes, 72 of which are payload.
        let (sent, received) =
            (flow["packets"]["sent"].as_u64().unwrap(), flow["packets"]["received"].as_u64().unwrap());
        assert!((995..=1001).contains(&sent) && received <= sent, "{flow}");
        assert!(
            flow["bytes"].as_u64().unwrap() <= 72 * received && flow["bytes"].as_u64().unwrap() % 72 == 0,
            "{flow}"
        );
        for word in ["mean_ns", "deviation_ns", "min_ns", "max_ns"] {
            assert!(flow["gaps"][word].is_u64(), "{word} in {flow}");
        }
        assert!(
            flow["gaps"]["modes"].is_array() && flow["jitter_ns"].is_u64() && flow["delay_ns"]["p99"].is_u64(),
            "{flow}"
        );
    }
}

/// `script` gives a program a terminal, and `stty` makes the terminal narrow.
#[test]
fn a_narrow_terminal_is_not_overrun() {
    if !Command::new("script").arg("--version").output().is_ok_and(|out| out.status.success()) {
        return eprintln!("SKIPPED: there is no script(1) here, which makes terminals");
    }
    let server = Server::local(&[]);
    let line = format!(
        "stty cols 40 rows 24; exec {} traffic udp {} --both --rate 800kbit/s --size 100 -t 1s --interval 300ms",
        env!("CARGO_BIN_EXE_altq"),
        server.address
    );
    let output = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("ALTQ_TOKEN", SECRET)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "\n");
    assert!(text.contains("goodput") && text.contains("\n  jitter "), "a paragraph a flow: {text}");
    for line in text.lines().filter(|line| !line.contains("INVALID")) {
        // Escape sequences take no columns.
        let shown: String = line
            .split('\u{1b}')
            .enumerate()
            .map(|(n, part)| {
                if n == 0 {
                    part
                } else {
                    part.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest)
                }
            })
            .collect();
        assert!(shown.chars().count() <= 40, "{line:?}");
    }
}

/// Neither side needs root: if this test has root, both run as nobody.
#[test]
fn without_root() {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let folder = std::env::temp_dir().join(format!("altq-traffic-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // User nobody may have no access to the build's folder.
    let program: PathBuf = folder.join("altq");
    std::fs::copy(env!("CARGO_BIN_EXE_altq"), &program).unwrap();
    for path in [&folder, &program] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let command = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.args(args).stdin(Stdio::null()).current_dir("/").env("ALTQ_TOKEN", SECRET);
        if root {
            command.uid(65_534).gid(65_534);
        }
        command
    };
    let mut child = command(&["traffic", "server", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let server = Server { child, address: line.trim().strip_prefix("listening ").unwrap().to_owned() };
    let done = |flow: &Value| flow["bytes"].as_u64() > Some(0) || flow["transactions_per_s"].as_f64() > Some(0.0);
    for args in [
        &["bulk", "--both", "--bytes", "100kbytes"][..],
        &["rr", "--udp"],
        &["connect"],
        &["udp", "--rate", "1Mbit/s", "--dscp", "ef"],
    ] {
        let mut all = vec!["traffic", args[0], &server.address, "-t", "1s", "--json", "--quiet"];
        all.extend(&args[1..]);
        let flows = result(&command(&all).output().unwrap())["flows"].clone();
        assert!(flows.as_array().unwrap().iter().all(done), "{flows}");
    }
    drop(server);
    let _ = std::fs::remove_dir_all(&folder);
}

/// Classes by DSCP and address family, in both directions.
const BY_DSCP: &str = "
link there { device bridge a b  rate 1Gbit/s  scheduler drr
    class ef { }  class af41 { }  class cs1 { }  class ef6 { }  class other { default }
    match family ipv6 dscp ef -> ef6   match dscp ef -> ef   match dscp af41 -> af41   match dscp cs1 -> cs1 }
link back { device bridge b a  rate 1Gbit/s  scheduler drr
    class ef { }  class af41 { }  class cs1 { }  class ef6 { }  class other { default }
    match family ipv6 dscp ef -> ef6   match dscp ef -> ef   match dscp af41 -> af41   match dscp cs1 -> cs1 }";

#[test]
fn every_kind_between_two_hosts() {
    let Some(world) = world::world() else { return };
    let policy = std::env::temp_dir().join(format!("altq-traffic-{}.altq", std::process::id()));
    std::fs::write(&policy, BY_DSCP).unwrap();
    let Some(Middle { child: mut middle, mut out, .. }) = shape(&world, &policy, "100ms") else { return };
    // The program's output must be read, because it waits when the pipe is full.
    let lines = std::thread::spawn(move || {
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        rest
    });
    let server = Server::start(Some(&world.right), &["10.9.0.2:2587", "[fd09::2]:2587"], &[]);
    let client = |args: &[&str]| {
        let mut command = altq(&["traffic", args[0], args[1], "--token", SECRET, "-t", "1s", "--json", "--quiet"]);
        command.args(&args[2..]);
        result(&world.left.run(|| command.output().unwrap()).unwrap())["flows"].as_array().unwrap().clone()
    };
    let four = "10.9.0.2";
    let number = |flow: &Value, word: &str| flow[word].as_f64().unwrap_or_else(|| panic!("{word} in {flow}"));

    // Bulk both ways, in a class of its own at both ends.
    let bulk = client(&["bulk", four, "--both", "-P", "2", "--dscp", "af41"]);
    assert_eq!(bulk.iter().map(|flow| flow["direction"].as_str().unwrap()).collect::<Vec<_>>(), ["up", "down"]);
    for flow in &bulk {
        assert!(number(flow, "goodput_bit_s") > 1e6 && flow["connections"].as_array().unwrap().len() == 2, "{flow}");
    }
    // Requests: each one goes and comes back.
    let tcp = client(&["rr", four, "--request", "100", "--response", "100"]);
    let udp = client(&["rr", four, "--udp", "--dscp", "cs1"]);
    let connections = client(&["connect", four]);
    for flow in tcp.iter().chain(&udp).chain(&connections) {
        assert!(number(flow, "transactions_per_s") > 10.0 && flow["rtt_ns"]["p50"].as_u64() > Some(1_000), "{flow}");
    }
    // Datagrams with a DSCP over both families: none is lost on an empty wire, and the class of
    // that DSCP counts each one.
    let datagrams = ["--rate", "800kbit/s", "--size", "200", "--dscp", "ef", "--both"];
    let v4 = client(&[&["udp", four], &datagrams[..]].concat());
    let v6 = client(&[&["udp", "fd09::2"], &datagrams[..]].concat());
    for flow in v4.iter().chain(&v6) {
        let (sent, lost) = (flow["packets"]["sent"].as_u64().unwrap(), flow["packets"]["lost"].as_u64().unwrap());
        assert!((495..=501).contains(&sent) && lost == 0, "{flow}");
    }
    assert_eq!((&v4[0]["family"], &v6[0]["family"]), (&"ipv4".into(), &"ipv6".into()));

    drop(server);
    assert!(Command::new("kill").args(["-INT", &middle.id().to_string()]).status().unwrap().success());
    assert_eq!(middle.wait().unwrap().code(), Some(0));
    let _ = std::fs::remove_file(&policy);
    let last: Value = serde_json::from_str(lines.join().unwrap().lines().last().unwrap()).unwrap();
    let packets = |link: &str, class: &str| {
        let link = last["links"].as_array().unwrap().iter().find(|l| l["name"] == link).unwrap();
        let class = link["classes"].as_array().unwrap().iter().find(|c| c["name"] == class).unwrap();
        class["sent_packets"].as_u64().unwrap()
    };
    let cs1 = number(&udp[0], "transactions_per_s") as u64;
    for (link, way) in [("there", 0), ("back", 1)] {
        for (class, flows) in [("ef", &v4), ("ef6", &v6)] {
            // The datagrams that were sent, and the few with which both ends agreed on the flow.
            let sent = flows[way]["packets"]["sent"].as_u64().unwrap();
            assert!(
                (sent..=sent + 20).contains(&packets(link, class)),
                "{link} {class}: {} of {sent}",
                packets(link, class)
            );
        }
        assert!(packets(link, "cs1") >= cs1, "{link}: {} for {cs1} requests a second", packets(link, "cs1"));
        // A super-packet of up to 64 KiB counts as one packet.
        assert!(
            packets(link, "af41") * 65_536 >= number(&bulk[way], "bytes") as u64 && packets(link, "other") > 20,
            "{link}"
        );
    }
}

/// Both ways are full, with queues of about half a second, in which the server's reports wait too.
/// Every line has the rate in both directions, and the rates add up to what was received. TCP may
/// deliver nothing in an interval on a busy host, so a rate may be 0, but seldom. A line that does
/// not wait for the server's report has no rate of what the server receives.
#[test]
fn no_line_lacks_what_the_server_counts() {
    let Some(world) = world::world() else { return };
    let policy = std::env::temp_dir().join(format!("altq-traffic-late-{}.altq", std::process::id()));
    let link = |name: &str, bridge: &str| {
        format!(
            "link {name} {{ device bridge {bridge}  rate 5Mbit/s  scheduler fifo\n\
             class all {{ default  queue drop_tail {{ limit 2000packets }} }} }}\n"
        )
    };
    std::fs::write(&policy, link("there", "a b") + &link("back", "b a")).unwrap();
    let Some(Middle { child: mut middle, out: _open, .. }) = shape(&world, &policy, "1s") else { return };
    let server = Server::start(Some(&world.right), &["10.9.0.2:2587"], &[]);
    let mut client = altq(&["traffic", "bulk", "10.9.0.2", "--both", "--token", SECRET, "-t", "4s"]);
    client.args(["--json", "--interval", "200ms", "--buffers", "300kbytes"]);
    let output = world.left.run(|| client.output().unwrap()).unwrap();
    drop(server);
    let _ = middle.kill();
    let _ = middle.wait();
    let _ = std::fs::remove_file(&policy);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", said(&output));
    let lines: Vec<Value> =
        String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (result, live) = lines.split_last().unwrap();
    assert_eq!(result["schema"], "altq.traffic/1");
    assert!(live.len() >= 20, "a line for each 200 ms: {}", live.len());
    for (n, line) in live.iter().enumerate() {
        assert_eq!(line["at_ns"], 200_000_000 * (n as u64 + 1));
    }
    for at in 0..2 {
        let flows = || live.iter().map(|line| &line["flows"][at]);
        let rates: Vec<u64> = flows().map(|flow| flow["rate_bit_s"].as_u64().expect("a rate")).collect();
        // From 1 s on, when both connections have filled the queues.
        let none = rates[5..20].iter().filter(|rate| **rate == 0).count();
        assert!(none <= 5, "{none} of 15 lines without a byte: {rates:?}");
        // Bits a second, over 200 ms each.
        let sum = rates.iter().sum::<u64>() / 5 / 8;
        let bytes = live.last().unwrap()["flows"][at]["bytes"].as_u64().unwrap();
        assert!(sum.abs_diff(bytes) <= bytes / 10, "{sum} of {bytes} bytes: {rates:?}");
    }
}

/// The kernel tells which congestion control each connection has.
#[test]
fn congestion_control_flow_by_flow() {
    let Some(world) = world::world() else { return };
    world::ip(&world.right, "link set lo up\n").unwrap();
    let own = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    if !["reno", "cubic"].iter().all(|name| own.split_whitespace().any(|there| there == *name)) {
        return eprintln!("SKIPPED: this kernel has no reno and cubic: {own}");
    }
    let plan = std::env::temp_dir().join(format!("altq-traffic-cc-{}.toml", std::process::id()));
    let flow = |name: &str, cc: &str, port: u16, way: &str| {
        format!(
            "[[flows]]\nname = '{name}'\nkind = 'tcp_bulk'\ncongestion = '{cc}'\nport = {port}\ndirection = '{way}'\n"
        )
    };
    let (listen, ports) = (["127.0.0.1:2601", "127.0.0.1:2602", "127.0.0.1:2603"], [2601, 2602, 2603]);
    let text =
        flow("a", "reno", ports[0], "up") + &flow("b", "cubic", ports[1], "up") + &flow("c", "reno", ports[2], "down");
    std::fs::write(&plan, format!("duration = '4s'\n{text}")).unwrap();
    let server = Server::start(Some(&world.right), &listen, &[]);
    let mut client =
        altq(&["traffic", "mix", "127.0.0.1:2601", "--plan", &plan.display().to_string(), "--token", SECRET]);
    client.args(["--quiet", "--json"]).stdout(Stdio::piped());
    let client = world.right.run(|| client.spawn().unwrap()).unwrap();
    // ss prints each connection's congestion control at both ends; the sender's is checked.
    let begin = Instant::now();
    let (mut seen, wanted) = (Vec::new(), ["up 2601 reno", "up 2602 cubic", "down 2603 reno"]);
    while begin.elapsed() < Duration::from_secs(4) && !wanted.iter().all(|w| seen.iter().any(|s: &String| s == w)) {
        std::thread::sleep(Duration::from_millis(100));
        let Ok(out) = world.right.run(|| Command::new("ss").args(["-tinH"]).output()).unwrap() else {
            eprintln!("SKIPPED: there is no ss(8) here");
            break;
        };
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.chunks(2) {
            let [addresses, details] = pair else { continue };
            let words: Vec<&str> = addresses.split_whitespace().collect();
            let (Some(local), Some(peer)) = (words.get(3), words.get(4)) else { continue };
            let Some(control) = details.split_whitespace().next() else { continue };
            for port in ports {
                // At the server's end the port is the local one, at the client's end the remote
                // one.
                if peer.ends_with(&format!(":{port}")) {
                    seen.push(format!("up {port} {control}"));
                } else if local.ends_with(&format!(":{port}")) {
                    seen.push(format!("down {port} {control}"));
                }
            }
        }
    }
    let flows = result(&client.wait_with_output().unwrap())["flows"].clone();
    let _ = std::fs::remove_file(&plan);
    drop(server);
    let asked: Vec<&str> = flows.as_array().unwrap().iter().map(|flow| flow["congestion"].as_str().unwrap()).collect();
    assert_eq!(asked, ["reno", "cubic", "reno"]);
    if !seen.is_empty() {
        for one in wanted {
            assert!(seen.iter().any(|s| s == one), "{one} in {seen:?}");
        }
    }
}
