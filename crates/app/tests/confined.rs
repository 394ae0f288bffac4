//! Workers of `altq run --supervise` that have given up their rights, on every path: packets pass,
//! counters are told, a rate is changed, and nothing is left. Skipped with a message where the host
//! does not allow it.

#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use world::{World, round_trips, world};

const BRIDGE: &str = "link there { device bridge a b  rate 50Mbit/s  scheduler fifo  class all { default } }
    link back { device bridge b a  rate 50Mbit/s  scheduler fifo  class all { default } }";
/// What altq and the kernel itself execute, side by side.
const BOTH: &str = "link there { device a  path kernel  rate 50Mbit/s  scheduler htb
        class all { rate 50Mbit/s  default } }
    link back { device b  rate 50Mbit/s  scheduler fifo  class all { default } }";

/// A supervisor with a confined worker, in the middle of a world.
struct Running {
    folder: PathBuf,
    child: Child,
}

impl Running {
    /// Starts them, and waits until they shape. `None`, with a message, if the host lacks
    /// something.
    fn start(world: &World, name: &str, policy: &str, arguments: &[&str]) -> Option<Running> {
        let folder = std::env::temp_dir().join(format!("altq-confined-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("p.altq"), policy).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.arg("run").arg(folder.join("p.altq")).args(["--supervise", "--user", "nobody"]).args(arguments);
        command.args(["--interval", "50ms", "--socket"]).arg(folder.join("altq.sock"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(folder.join("log")).unwrap());
        let child = world.middle.run(|| command.spawn().unwrap()).unwrap();
        let mut running = Running { folder, child };
        let end = Instant::now() + Duration::from_secs(20);
        // It shapes, and has counted once.
        while ["status", "stat"].iter().any(|command| running.ask(&[command]).status.code() != Some(0)) {
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

    fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.args(arguments).arg("--socket").arg(self.folder.join("altq.sock")).output().unwrap()
    }

    fn json(&self, command: &str) -> serde_json::Value {
        let output = self.ask(&[command, "--json"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said} {}", self.log()))
    }

    /// Packets that the links have sent.
    fn sent(&self) -> Vec<u64> {
        let stat = self.json("stat");
        let links = stat["links"].as_array().unwrap();
        links.iter().map(|link| link["classes"][0]["sent_packets"].as_u64().unwrap()).collect()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap()
    }

    /// Runs for several looks at the interfaces (two a second) and snapshots, changes a rate, and
    /// ends. No worker may have been replaced.
    fn lives_and_ends(mut self) {
        std::thread::sleep(Duration::from_millis(1200));
        let set = self.ask(&["link", "set", "there", "rate", "40Mbit/s"]);
        assert_eq!(set.status.code(), Some(0), "{} {}", String::from_utf8_lossy(&set.stderr), self.log());
        let status = self.json("status");
        assert!(status["links"].as_array().unwrap().iter().all(|link| link["state"] != "bypass"), "{status}");
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{}", self.log());
        let log = self.log();
        assert!(!log.contains("BYPASS") && !log.contains("error"), "{log}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What a program prints in the middle.
fn said(world: &World, program: &str, arguments: &[&str]) -> String {
    let output = world.middle.run(|| Command::new(program).args(arguments).output().unwrap()).unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_bridge_by_packet_sockets() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "bridge", BRIDGE, &[]) else { return };
    round_trips(&world, "10.9.0.2:7", 20);
    running.lives_and_ends();
}

#[test]
fn a_bridge_by_af_xdp_with_real_time_loops() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "xdp", BRIDGE, &["--xdp", "on", "--realtime", "--processors", "0"])
    else {
        return;
    };
    round_trips(&world, "10.9.0.2:7", 20);
    running.lives_and_ends();
    assert!(!said(&world, "ip", &["link", "show", "dev", "a"]).contains("xdp"));
}

#[test]
fn a_link_of_the_kernel_beside_one_of_altq() {
    let Some(world) = world() else { return };
    let before = said(&world, "tc", &["qdisc", "show"]);
    let Some(running) = Running::start(&world, "both", BOTH, &[]) else { return };
    world.answer_in_the_middle();
    assert!(world.middle_answers());
    let begun = Instant::now();
    while running.sent()[0] == 0 {
        assert!(begun.elapsed() < Duration::from_secs(5), "what the kernel has sent is counted: {}", running.log());
        assert!(world.middle_answers());
    }
    let status = running.json("status");
    let states = [&status["links"][0]["state"], &status["links"][1]["state"]];
    assert_eq!(states, ["kernel", "shaping"], "{status}");
    // A confined worker may look at the kernel's qdiscs.
    assert!([0, 1].iter().all(|link| status["links"][link]["drift"] == serde_json::json!([])), "{status}");
    running.lives_and_ends();
    assert_eq!(said(&world, "tc", &["qdisc", "show"]), before);
}

#[test]
fn thousands_of_subscribers_come_and_go() {
    // What a thread gives back of its memory makes some C libraries look into files.
    let policy = "link there { device bridge a b  rate 500Mbit/s  overcommit  scheduler htb
        class subscribers { rate 400Mbit/s  ceil 500Mbit/s }
        class rest { rate 100Mbit/s  ceil 500Mbit/s  default } }";
    let Some(world) = world() else { return };
    let Some(mut running) = Running::start(&world, "many", policy, &["--subscribers", "10000"]) else { return };
    let list: String = (0..10_000).map(|n| format!("s{n} addr=10.1.{}.{} there=1Mbit/s\n", n / 250, n % 250)).collect();
    let file = running.folder.join("list");
    std::fs::write(&file, list).unwrap();
    let names: Vec<String> = (0..10_000).map(|n| format!("s{n}")).collect();
    for _ in 0..2 {
        let set = running.ask(&["subscriber", "set", "--bulk", file.to_str().unwrap()]);
        assert_eq!(set.status.code(), Some(0), "{} {}", String::from_utf8_lossy(&set.stderr), running.log());
        for some in names.chunks(1000) {
            let some: Vec<&str> = ["subscriber", "del"].into_iter().chain(some.iter().map(String::as_str)).collect();
            let gone = running.ask(&some);
            assert_eq!(gone.status.code(), Some(0), "{} {}", String::from_utf8_lossy(&gone.stderr), running.log());
        }
    }
    assert!(Command::new("kill").args(["-TERM", &running.child.id().to_string()]).status().unwrap().success());
    assert_eq!(running.child.wait().unwrap().code(), Some(0), "{}", running.log());
    assert!(!running.log().contains("BYPASS"), "{}", running.log());
}
