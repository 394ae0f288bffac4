//! Runs `altq run` in the middle network namespace of a test's world (left host, middle, right
//! host), and talks to it over its control socket.

#![allow(dead_code)]

use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::world::World;

/// Shapes both directions of interface `a`: egress and ingress.
pub const ONE: &str = "link up { device a  rate 100Mbit/s  scheduler fifo  class all { default } }
    link down { device a ingress  rate 100Mbit/s  scheduler fifo  class all { default } }";
/// Bridges `a` and `b`, with one link for each direction.
pub const BRIDGE: &str = "link there { device bridge a b  rate 100Mbit/s  scheduler fifo  class all { default } }
    link back { device bridge b a  rate 100Mbit/s  scheduler fifo  class all { default } }";

/// A running altq, which is killed when this is dropped.
pub struct Running<'w> {
    pub world: &'w World,
    /// Holds the policy `p.altq`, the control socket `altq.sock` and the output, `log`.
    pub folder: PathBuf,
    pub child: Child,
}

impl<'w> Running<'w> {
    /// Starts altq, and waits until `altq status` and `altq stat` succeed. `None`, with a message,
    /// if the host lacks something.
    pub fn start(world: &'w World, name: &str, policy: &str, options: &[&str]) -> Option<Running<'w>> {
        let folder = std::env::temp_dir().join(format!("altq-run-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("p.altq"), policy).unwrap();
        Running::start_in(world, folder, options)
    }

    /// As [`start`](Running::start), with the policy in a folder.
    pub fn start_in(world: &'w World, folder: PathBuf, options: &[&str]) -> Option<Running<'w>> {
        Running::start_as(world, folder, options, |_| {})
    }

    /// As [`start_in`](Running::start_in), with a command that is changed before it runs.
    pub fn start_as(
        world: &'w World,
        folder: PathBuf,
        options: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Option<Running<'w>> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.arg("run").arg(folder.join("p.altq")).args(options).args(["--quiet", "--interval", "50ms"]);
        command.arg("--socket").arg(folder.join("altq.sock")).arg("--state").arg(folder.join("state"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(folder.join("log")).unwrap());
        change(&mut command);
        let child = world.middle.run(|| command.spawn().unwrap()).unwrap();
        let mut running = Running { world, folder, child };
        let end = Instant::now() + Duration::from_secs(20);
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

    /// Runs a command that talks to it.
    pub fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.args(arguments).arg("--socket").arg(self.folder.join("altq.sock"));
        command.stdin(Stdio::null()).output().unwrap()
    }

    pub fn json(&self, command: &str) -> serde_json::Value {
        let output = self.ask(&[command, "--json"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said} {}", self.log()))
    }

    /// The list `drift` of a link in the output of `altq status`.
    pub fn drift(&self, link: usize) -> Vec<String> {
        let status = self.json("status");
        let list = status["links"][link]["drift"].as_array().unwrap_or_else(|| panic!("{status}")).clone();
        list.iter().map(|line| line.as_str().unwrap().to_owned()).collect()
    }

    /// What it and its workers have said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap()
    }

    /// Waits until it or one of its workers has said something: a log is written a little after
    /// what it tells of.
    pub fn says(&self, text: &str) {
        let end = Instant::now() + Duration::from_secs(5);
        while !self.log().contains(text) {
            assert!(Instant::now() < end, "it does not say `{text}`: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The number of the worker, if one runs. `None` as well where the kernel does not list the
    /// children of a process (CONFIG_PROC_CHILDREN).
    pub fn worker(&self) -> Option<u32> {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let found = std::fs::read_to_string(children).unwrap_or_default();
        // Programs of the firewall are children for a moment as well.
        found.split_whitespace().filter_map(|word| word.parse().ok()).find(|pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.windows(8).any(|part| part == b"--worker")
        })
    }

    /// Kills seven workers in a row. altq waits longer before each restart: 3.2 s after the
    /// seventh. False if the worker's process cannot be found.
    pub fn keep_killing(&self) -> bool {
        let Some(mut worker) = self.worker() else {
            eprintln!("SKIPPED: this kernel does not list the children of a process");
            return false;
        };
        for kill in 0..7 {
            signal(worker, "-KILL");
            if kill < 6 {
                until("another worker", Duration::from_secs(20), || {
                    let next = self.worker().filter(|next| *next != worker);
                    next.is_some_and(|next| {
                        worker = next;
                        true
                    })
                });
                until("it shapes", Duration::from_secs(20), || self.ask(&["status"]).status.code() == Some(0));
            }
        }
        until("status says so", Duration::from_secs(1), || self.ask(&["status"]).status.code() == Some(4));
        true
    }

    /// The output of a program run in the middle namespace.
    pub fn said(&self, program: &str, arguments: &[&str]) -> String {
        said(self.world, program, arguments)
    }

    /// Ends altq with SIGTERM, as systemd would, and checks that it exits with code 0.
    pub fn end(mut self) {
        signal(self.child.id(), "-TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{}", self.log());
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The output of a program run in the middle namespace. The path includes the sbin folders.
pub fn said(world: &World, program: &str, arguments: &[&str]) -> String {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let run = || Command::new(program).args(arguments).env("PATH", path).output();
    world.middle.run(run).unwrap().map_or(String::new(), |out| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// All rules of iptables, ip6tables and nftables in the middle namespace.
pub fn rules(world: &World) -> String {
    said(world, "sh", &["-c", "iptables -t mangle -S; ip6tables -t mangle -S; nft list ruleset"])
}

/// Whether the middle answers a connection from the left host to a port by refusing it.
pub fn refuses(world: &World, to: &str) -> bool {
    let connect = || TcpStream::connect_timeout(&to.parse().unwrap(), Duration::from_millis(300));
    world.left.run(connect).unwrap().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

pub fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

/// Waits until a condition holds.
pub fn until(what: &str, most: Duration, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < most, "not within {most:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
