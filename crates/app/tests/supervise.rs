//! `altq run --supervise`: a worker that is killed, stopped or asked to end, and a supervisor that
//! is killed. The tests are skipped with a message where the host does not allow them.

#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use altq_dataplane::netns::Namespace;
use world::{World, world};

/// What comes in at `a` and leaves by it, in the host in the middle.
const POLICY: &str = "link up { device a  rate 100Mbit/s  scheduler fifo  class all { default } }
    link down { device a ingress  rate 100Mbit/s  scheduler fifo  class all { default } }";

/// A supervisor with its worker, in the middle of a world.
struct Running<'w> {
    world: &'w World,
    folder: PathBuf,
    child: Child,
}

impl Running<'_> {
    /// Starts them, and waits until they shape. `None`, with a message, if the host lacks
    /// something.
    fn start<'w>(world: &'w World, name: &str) -> Option<Running<'w>> {
        // A user that every host has.
        Running::start_as(world, name, &["--user", "nobody"])
    }

    fn start_as<'w>(world: &'w World, name: &str, confined: &[&str]) -> Option<Running<'w>> {
        if !world.middle_answers() {
            world.answer_in_the_middle();
        }
        assert!(world.middle_answers());
        Running::start_with(world, name, POLICY, confined)
    }

    fn start_with<'w>(world: &'w World, name: &str, policy: &str, confined: &[&str]) -> Option<Running<'w>> {
        let options = [&["--supervise"], confined].concat();
        Running::start_alone(world, name, policy, &options)
    }

    /// As [`start_with`](Running::start_with), without a supervisor.
    fn start_alone<'w>(world: &'w World, name: &str, policy: &str, options: &[&str]) -> Option<Running<'w>> {
        let folder = std::env::temp_dir().join(format!("altq-supervise-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("p.altq"), policy).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.arg("run").arg(folder.join("p.altq")).args(["--quiet", "--interval", "50ms"]);
        command.arg("--state").arg(folder.join("state"));
        command.args(options).args(["--subscribers", "10", "--socket"]).arg(folder.join("altq.sock"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(folder.join("log")).unwrap());
        let child = world.middle.run(|| command.spawn().unwrap()).unwrap();
        let mut running = Running { world, folder, child };
        let end = Instant::now() + Duration::from_secs(20);
        // It shapes, and has counted once.
        while ["status", "stat"].iter().any(|command| running.ask(&[command]).status.code() != Some(0)) {
            if let Some(status) = running.child.try_wait().unwrap() {
                assert!(matches!(status.code(), Some(6 | 7)), "{status}");
                eprintln!("SKIPPED: this host lacks what the policy needs (exit code {:?})", status.code());
                return None;
            }
            assert!(Instant::now() < end, "it does not shape");
            std::thread::sleep(Duration::from_millis(20));
        }
        if !Path::new(&running.children()).exists() {
            eprintln!("SKIPPED: this kernel does not list the children of a process (CONFIG_PROC_CHILDREN)");
            return None;
        }
        Some(running)
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.args(arguments).arg("--socket").arg(self.folder.join("altq.sock")).output().unwrap()
    }

    fn children(&self) -> String {
        format!("/proc/{0}/task/{0}/children", self.child.id())
    }

    /// The number of the worker, if one runs.
    fn worker(&self) -> Option<u32> {
        // Programs of the firewall are children for a moment as well.
        let found = std::fs::read_to_string(self.children()).unwrap_or_default();
        found.split_whitespace().filter_map(|word| word.parse().ok()).find(|pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.windows(8).any(|part| part == b"--worker")
        })
    }

    /// Waits until another worker than this one shapes, and says how long that took.
    fn next(&self, before: u32) -> (u32, Duration) {
        let begun = Instant::now();
        loop {
            if let Some(worker) = self.worker().filter(|worker| *worker != before)
                && self.ask(&["status"]).status.code() == Some(0)
            {
                return (worker, begun.elapsed());
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "no other worker than {before}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What the supervisor and its workers have said.
    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap()
    }

    /// All that stands in the firewall.
    fn rules(&self) -> String {
        let list = "iptables -t mangle -S; ip6tables -t mangle -S; nft list ruleset";
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let list = || Command::new("sh").args(["-c", list]).env("PATH", path).output().unwrap();
        String::from_utf8_lossy(&self.world.middle.run(list).unwrap().stdout).into_owned()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

/// Waits until a condition holds.
fn until(what: &str, most: Duration, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < most, "not within {most:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_worker_that_is_killed_or_stopped_is_replaced_and_traffic_flows() {
    let Some(world) = world() else { return };
    let Some(mut running) = Running::start(&world, "replaced") else { return };
    let mut worker = running.worker().unwrap();
    let set = running.ask(&["subscriber", "set", "4711", "addr=10.7.0.1", "up="]);
    assert_eq!(set.status.code(), Some(0), "{}", String::from_utf8_lossy(&set.stderr));
    let listed = |running: &Running<'_>| {
        let listed = running.ask(&["subscriber", "list"]);
        String::from_utf8_lossy(&listed.stdout).contains("4711")
    };
    assert!(listed(&running));
    for how in ["-KILL", "-STOP"] {
        signal(worker, how);
        until(how, Duration::from_secs(2), || world.middle_answers());
        let (next, time) = running.next(worker);
        eprintln!("{how}: shaped again after {time:?}");
        assert!(!Path::new(&format!("/proc/{worker}")).exists(), "the one before is gone");
        assert!(world.middle_answers() && running.rules().contains("altq"), "the next one shapes");
        // It says nothing about subscribers before it has all of them.
        assert!(listed(&running), "the subscriber is there again");
        worker = next;
    }
    // An end of a session that is told while no worker runs is neither lost nor undone.
    signal(worker, "-KILL");
    let gone = running.ask(&["subscriber", "del", "4711", "--addr", "10.7.0.1"]);
    let said = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert_eq!((gone.status.code(), said.contains("1 changed")), (Some(0), true), "{said} {}", running.log());
    running.next(worker);
    assert!(!listed(&running));
    signal(running.child.id(), "-TERM");
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    assert!(world.middle_answers());
    assert!(!running.rules().contains("altq"), "{}", running.rules());
    assert!(!running.folder.join("altq.sock").exists());
}

/// Datagrams from the left host to the right one, a number each.
struct Stream {
    from: UdpSocket,
    to: UdpSocket,
    next: u32,
}

impl Stream {
    fn new(world: &World) -> Stream {
        let at = |namespace: &Namespace, address| namespace.run(|| UdpSocket::bind(address).unwrap()).unwrap();
        let (from, to) = (at(&world.left, "10.9.0.1:0"), at(&world.right, "10.9.0.2:4711"));
        from.connect("10.9.0.2:4711").unwrap();
        to.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        Stream { from, to, next: 0 }
    }

    /// Sends one, and says how many of its copies arrive.
    fn copies(&mut self) -> usize {
        self.next += 1;
        self.from.send(&self.next.to_ne_bytes()).unwrap();
        let mut got = [0; 4];
        // Waits a little for another copy, too.
        std::iter::from_fn(|| self.to.recv(&mut got).ok().map(|_| u32::from_ne_bytes(got)))
            .filter(|number| *number == self.next)
            .count()
    }
}

/// As `a_worker_that_is_killed_or_stopped_is_replaced_and_traffic_flows`, for a bridge. It passes
/// packets also while both processes are stopped: nobody has to notice.
#[test]
fn a_bridge_without_a_loop_is_the_kernel_s() {
    let Some(world) = world() else { return };
    let Some(mut running) = bridged(&world, "bridge", CONFINED) else { return };
    let mut stream = Stream::new(&world);
    let most = Duration::from_secs(2);
    let mut worker = running.worker().unwrap();
    assert_eq!(stream.copies(), 1, "it shapes");
    // The supervisor, when it goes on, finds that the worker was silent.
    for pid in [running.child.id(), worker] {
        signal(pid, "-STOP");
    }
    until("packets pass beside stopped processes", most, || stream.copies() == 1);
    signal(running.child.id(), "-CONT");
    (worker, _) = running.next(worker);
    for how in ["-KILL", "-STOP"] {
        signal(worker, how);
        until(how, most, || stream.copies() == 1);
        (worker, _) = running.next(worker);
        until("the next one shapes", most, || stream.copies() == 1);
    }
    // The waits become longer, and the kernel forwards meanwhile.
    for kill in 0..4 {
        signal(worker, "-KILL");
        if kill < 3 {
            (worker, _) = running.next(worker);
        }
    }
    until("status says so", Duration::from_secs(1), || running.ask(&["status"]).status.code() == Some(4));
    assert_eq!(stream.copies(), 1);
    assert!(!running.log().contains("forward nothing"), "{}", running.log());
    // A supervisor that ends takes its programs away: nothing passes, and nothing is left.
    signal(running.child.id(), "-TERM");
    assert_eq!(running.child.wait().unwrap().code(), Some(0), "{}", running.log());
    assert_eq!(stream.copies(), 0);
}

const BRIDGE: &str = "link wan { device bridge a b  rate 100Mbit/s  scheduler fifo  class all { default } }";
const CONFINED: &[&str] = &["--user", "nobody"];

/// A bridge whose frames the kernel can forward.
fn bridged<'w>(world: &'w World, name: &str, options: &[&str]) -> Option<Running<'w>> {
    let running = Running::start_with(world, name, BRIDGE, options)?;
    if running.log().contains("the kernel cannot forward") {
        eprintln!("SKIPPED: {}", running.log().trim_end());
        return None;
    }
    Some(running)
}

/// The programs of a bridge outlive all processes. The next start takes them over, whether frames
/// may pass without a worker or not, and nothing is left at its end.
#[test]
fn a_bridge_whose_processes_are_all_killed_is_the_kernel_s() {
    let Some(world) = world() else { return };
    let mut stream = Stream::new(&world);
    // A worker that has just begun has claimed two seconds.
    let most = Duration::from_secs(5);
    // Interfaces that are not as they were at first.
    let touched = || {
        let run = || Command::new("ip").args(["link", "show"]).output().unwrap().stdout;
        let shown = String::from_utf8(world.middle.run(run).unwrap()).unwrap();
        shown.matches("PROMISC").count()
    };
    assert_eq!((touched(), stream.copies()), (0, 0));
    let next: [(&str, Option<&[&str]>); 4] =
        [("open", Some(CONFINED)), ("closed", Some(&["--fail", "closed"])), ("alone", Some(&[])), ("stop", None)];
    for (next, options) in next {
        for first in ["supervisor", "worker"] {
            let Some(mut running) = bridged(&world, "killed", CONFINED) else { return };
            until("it shapes", most, || stream.copies() == 1);
            assert_eq!(touched(), 2);
            let (supervisor, worker) = (running.child.id(), running.worker().unwrap());
            let order = if first == "worker" { [worker, supervisor] } else { [supervisor, worker] };
            order.into_iter().for_each(|pid| _ = Command::new("kill").args(["-KILL", &pid.to_string()]).output());
            running.child.wait().unwrap();
            until("frames pass", most, || stream.copies() == 1);
            assert_eq!(touched(), 2);
        }
        let Some(options) = options else { continue };
        let mut running = match next {
            "alone" => Running::start_alone(&world, next, BRIDGE, options),
            _ => Running::start_with(&world, next, BRIDGE, options),
        }
        .expect("it ran before");
        until("the next one shapes", most, || stream.copies() == 1);
        assert_eq!(touched(), if next == "open" { 2 } else { 0 }, "{next}");
        signal(running.child.id(), "-TERM");
        assert_eq!(running.child.wait().unwrap().code(), Some(0), "{}", running.log());
        assert_eq!((touched(), stream.copies()), (0, 0), "{next}");
    }
    let stop = |arguments: &[&str]| {
        let run = || Command::new(env!("CARGO_BIN_EXE_altq")).arg("stop").args(arguments).output().unwrap();
        let output = world.middle.run(run).unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = stop(&["nowhere"]);
    assert!(code == Some(2) && said.contains("a, b"), "{said}");
    let (code, said) = stop(&["a"]);
    assert!(code == Some(0) && said.contains("what comes in at a is no longer forwarded"), "{said}");
    assert_eq!((touched(), stream.copies()), (1, 0));
    let (code, said) = stop(&[]);
    assert!(code == Some(0) && said.contains("at b is no longer forwarded"), "{said}");
    assert_eq!(touched(), 0);
    assert_eq!(stop(&[]), (Some(0), "altq stop: no link stands here\n".to_owned()));
}

#[test]
fn a_worker_that_keeps_ending_is_said_to_be_bypassed() {
    let Some(world) = world() else { return };
    let Some(mut running) = Running::start(&world, "bypass") else { return };
    let mut worker = running.worker().unwrap();
    // The sixth wait in a row is 1.6 s long.
    for kill in 0..6 {
        signal(worker, "-KILL");
        if kill < 5 {
            worker = running.next(worker).0;
        }
    }
    until("status says so", Duration::from_secs(1), || running.ask(&["status"]).status.code() == Some(4));
    let said = running.ask(&["status"]);
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(text.contains("BYPASS") && text.contains("signal 9"), "{text}");
    let json: serde_json::Value = serde_json::from_slice(&running.ask(&["status", "--json"]).stdout).unwrap();
    assert_eq!((&json["links"][1]["state"], &json["links"][1]["name"]), (&"bypass".into(), &"down".into()));
    assert_eq!(json["links"][1]["drift"], serde_json::json!([]));
    let stat = running.ask(&["stat"]);
    assert_eq!(stat.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&stat.stderr).contains("packets pass unshaped"));
    assert!(world.middle_answers(), "they pass");
    // It may end in this state as well, and leaves nothing.
    signal(running.child.id(), "-TERM");
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    assert!(!running.rules().contains("altq"), "{}", running.rules());
}

#[test]
fn a_worker_does_not_outlive_its_supervisor() {
    let Some(world) = world() else { return };
    let Some(mut running) = Running::start_as(&world, "alone", &["--unconfined"]) else { return };
    let worker = running.worker().unwrap();
    signal(running.child.id(), "-KILL");
    running.child.wait().unwrap();
    until("the worker ends", Duration::from_secs(5), || !Path::new(&format!("/proc/{worker}/exe")).exists());
    assert!(world.middle_answers());
    assert!(!running.rules().contains("altq"), "it has taken its rules away: {}", running.rules());
}

/// A confined worker may not take its rules away: they let packets pass, and the next start and
/// stop leaves nothing.
#[test]
fn a_confined_worker_ends_with_its_supervisor_and_packets_pass() {
    let Some(world) = world() else { return };
    let Some(mut running) = Running::start(&world, "both") else { return };
    let worker = running.worker().unwrap();
    signal(running.child.id(), "-KILL");
    running.child.wait().unwrap();
    until("the worker ends", Duration::from_secs(5), || !Path::new(&format!("/proc/{worker}/exe")).exists());
    until("rules without a listener let packets pass", Duration::from_secs(5), || world.middle_answers());
    drop(running);
    let Some(mut running) = Running::start(&world, "again") else { panic!("it ran before") };
    signal(running.child.id(), "-TERM");
    assert_eq!(running.child.wait().unwrap().code(), Some(0), "{}", running.log());
    assert!(world.middle_answers() && !running.rules().contains("altq"), "{}", running.rules());
}

/// A stopped worker would keep the kernel's queue, and with it all packets.
#[test]
fn a_stopped_worker_ends_with_its_supervisor_and_packets_pass() {
    let Some(world) = world() else { return };
    for (name, confined) in [("held", &["--user", "nobody"][..]), ("held-free", &["--unconfined"])] {
        let Some(mut running) = Running::start_as(&world, name, confined) else { return };
        let worker = running.worker().unwrap();
        // A supervisor that goes on would kill the silent worker by itself.
        for (pid, what) in [(running.child.id(), "-STOP"), (worker, "-STOP"), (running.child.id(), "-KILL")] {
            signal(pid, what);
        }
        running.child.wait().unwrap();
        until("the worker ends", Duration::from_secs(5), || !Path::new(&format!("/proc/{worker}/exe")).exists());
        // Its queue is closed a little after it has lost its program.
        until(&format!("{name}: packets pass"), Duration::from_secs(5), || world.middle_answers());
    }
}

/// The kernel's own account of the worker (proc_pid_status(5)).
#[test]
fn a_worker_has_no_rights_but_that_to_give_verdicts() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "rights") else { return };
    let worker = running.worker().unwrap();
    let threads = std::fs::read_dir(format!("/proc/{worker}/task")).unwrap();
    let mut seen = 0;
    for thread in threads {
        let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let field = |name: &str| -> Vec<String> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(field("Uid:"), ["65534"; 4], "{status}");
        assert!(field("Groups:").is_empty(), "{status}");
        // CAP_NET_ADMIN is bit 12 (capabilities(7)).
        assert_eq!((field("CapEff:"), field("CapPrm:")), (vec!["0000000000001000".into()], field("CapEff:")));
        assert_eq!(field("NoNewPrivs:"), ["1"]);
        if !running.log().contains("not filtered") {
            assert_eq!(field("Seccomp:"), ["2"]);
        }
        seen += 1;
    }
    // The two loops, the one that prints, the control socket, the heart, and the signals.
    assert!(seen >= 5, "{seen} threads");
    assert!(!running.log().contains("silent"), "{}", running.log());
}

/// The worker may open no file: the supervisor reads the policy for it.
#[test]
fn a_changed_policy_reaches_a_confined_worker() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "reload") else { return };
    let worker = running.worker().unwrap();
    let policy = running.folder.join("p.altq");
    let ceilings = || {
        let json: serde_json::Value = serde_json::from_slice(&running.ask(&["stat", "--json"]).stdout).unwrap();
        json["links"][0]["classes"][0]["ceiling_bit_s"].as_u64().unwrap()
    };
    assert_eq!(ceilings(), 100_000_000);
    std::fs::write(&policy, "link up { nonsense }").unwrap();
    signal(running.child.id(), "-HUP");
    until("the error is said", Duration::from_secs(5), || running.log().contains("p.altq has errors"));
    assert_eq!(ceilings(), 100_000_000);
    std::fs::write(&policy, POLICY.replacen("100Mbit/s", "50Mbit/s", 1)).unwrap();
    signal(running.child.id(), "-HUP");
    until("the rate changes", Duration::from_secs(5), || ceilings() == 50_000_000);
    // What the worker says comes by another process.
    until("the change is said", Duration::from_secs(5), || running.log().contains("1 thing has changed"));
    assert_eq!(running.worker(), Some(worker), "it is the same worker: {}", running.log());
}

/// A worker that takes the place of another runs what that one ran: not an edit that nobody has
/// asked to read, and not one that was refused. What clients have changed holds on.
#[test]
fn the_next_worker_runs_the_policy_that_ran() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "policy") else { return };
    let policy = running.folder.join("p.altq");
    let mut worker = running.worker().unwrap();
    // The names of the first link's classes, and its rate.
    let runs = || {
        let stat = running.ask(&["stat", "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&stat.stdout).ok()?;
        let classes = json["links"][0]["classes"].as_array()?;
        let names: Vec<String> = classes.iter().filter_map(|class| class["name"].as_str().map(str::to_owned)).collect();
        Some((names.join(" "), classes[0]["ceiling_bit_s"].as_u64()?))
    };
    let within = Duration::from_secs(5);
    std::fs::write(&policy, "link up { nonsense").unwrap();
    signal(worker, "-KILL");
    worker = running.next(worker).0;
    until("the policy that ran", within, || runs() == Some(("up all".to_owned(), 100_000_000)));
    assert_eq!(running.ask(&["link", "set", "up", "rate", "50Mbit/s"]).status.code(), Some(0));
    let more = POLICY.replacen("scheduler fifo", "mtu 1400  scheduler fifo", 1);
    std::fs::write(&policy, more).unwrap();
    signal(running.child.id(), "-HUP");
    until("it is refused", within, || running.log().contains("its mtu"));
    signal(worker, "-KILL");
    running.next(worker);
    until("the rate that was set", within, || runs() == Some(("up all".to_owned(), 50_000_000)));
    // What is taken is what the next one runs, and its rate goes before the one that was set.
    std::fs::write(&policy, POLICY.replacen("100Mbit/s", "70Mbit/s", 1)).unwrap();
    signal(running.child.id(), "-HUP");
    until("the rate of the file", within, || runs() == Some(("up all".to_owned(), 70_000_000)));
    let worker = running.worker().unwrap();
    std::fs::write(&policy, POLICY).unwrap();
    signal(worker, "-KILL");
    running.next(worker);
    until("the rate that was taken", within, || runs() == Some(("up all".to_owned(), 70_000_000)));
    assert!(!running.log().contains("code 2"), "{}", running.log());
}

/// A policy that is read while no worker runs, and cannot run then, is not kept as one that did:
/// the next start may need one that does.
#[test]
fn a_policy_that_never_ran_is_not_the_last_good_one() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "never-ran") else { return };
    let policy = running.folder.join("p.altq");
    let good = || {
        let mut files = std::fs::read_dir(running.folder.join("state")).ok()?.filter_map(Result::ok);
        let file = files.find(|file| file.path().extension().is_some_and(|ending| ending == "json"))?;
        let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(file.path()).ok()?).ok()?;
        kept["good"]["text"].as_str().map(str::to_owned)
    };
    let within = Duration::from_secs(20);
    until("the first policy is kept", within, || good().as_deref() == Some(POLICY));
    let mut worker = running.worker().unwrap();
    // The wait for the next worker becomes longer each time.
    for _ in 0..5 {
        signal(worker, "-KILL");
        worker = running.next(worker).0;
    }
    std::fs::write(&policy, POLICY.replace("device a", "device nowhere")).unwrap();
    signal(worker, "-KILL");
    // A policy that a worker has been sent would be dropped with it, and a worker that is about to
    // end can be sent one until the supervisor knows of its end.
    until("its end is known", within, || running.log().matches("was ended by signal 9").count() == 6);
    signal(running.child.id(), "-HUP");
    until("it is tried", within, || running.log().contains("no interface `nowhere`"));
    assert_eq!(good().as_deref(), Some(POLICY), "{}", running.log());
    let runs = POLICY.replace("100Mbit/s", "90Mbit/s");
    std::fs::write(&policy, &runs).unwrap();
    signal(running.child.id(), "-HUP");
    until("one that runs is kept", within, || good().as_deref() == Some(runs.as_str()));
    assert_eq!(running.ask(&["status"]).status.code(), Some(0), "{}", running.log());
}

/// A worker that is replaced does not begin the time of `--for` anew, and a policy of ALTQ's own is
/// read again as it is written.
#[test]
fn a_policy_of_altq_s_is_supervised_for_a_time() {
    let Some(world) = world() else { return };
    let folder = std::env::temp_dir().join(format!("altq-supervise-{}-for", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let policy = include_str!("../src/demo/1997.conf").replace("fxp0", "a");
    std::fs::write(folder.join("cbq.conf"), policy).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.arg("run").arg(folder.join("cbq.conf")).args(["--supervise", "--user", "nobody", "--no-socket"]);
    command.args(["--for", "4s"]).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(std::fs::File::create(folder.join("log")).unwrap());
    let mut child = world.middle.run(|| command.spawn().unwrap()).unwrap();
    let (begun, log) = (Instant::now(), || std::fs::read_to_string(folder.join("log")).unwrap());
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let worker = || {
        let found = std::fs::read_to_string(&children).unwrap_or_default();
        found.split_whitespace().filter_map(|word| word.parse::<u32>().ok()).find(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.windows(8).any(|part| part == b"--worker")
        })
    };
    // It has said how it runs, so it shapes in a moment.
    while !log().contains("link a:") {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(matches!(status.code(), Some(6 | 7)), "{status} {}", log());
            let _ = std::fs::remove_dir_all(&folder);
            return eprintln!("SKIPPED: this host cannot hand packets to a queue");
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", log());
        std::thread::sleep(Duration::from_millis(20));
    }
    // While no worker shapes yet, a policy is for the next one, and nothing is said.
    while !log().contains("asks for what runs already") {
        assert!(begun.elapsed() < Duration::from_secs(3), "{}", log());
        signal(child.id(), "-HUP");
        std::thread::sleep(Duration::from_millis(100));
    }
    // The more of the four seconds is over, the clearer is which of them count.
    std::thread::sleep(Duration::from_secs(2).saturating_sub(begun.elapsed()));
    let (worker, killed) = (worker().unwrap(), Instant::now());
    signal(worker, "-KILL");
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", log());
    // The next worker by itself would end after 4 s.
    assert!(killed.elapsed() < Duration::from_secs(4), "{:?} {}", killed.elapsed(), log());
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn what_cannot_start_ends_with_its_own_exit_code() {
    let Some(world) = world() else { return };
    let folder = std::env::temp_dir().join(format!("altq-supervise-{}-wrong", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let policy = folder.join("p.altq");
    std::fs::write(&policy, POLICY.replace("device a", "device nowhere")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.arg("run").arg(&policy).args(["--supervise", "--no-socket"]);
    let output = world.middle.run(|| command.output().unwrap()).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("no interface `nowhere`") && said.lines().count() == 1, "{said}");
    let _ = std::fs::remove_dir_all(&folder);
}
