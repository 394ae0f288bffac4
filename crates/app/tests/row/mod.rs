//! Hosts in network namespaces, each with `altq run` and `altq rsvpd`, and what is on their wires.

#![allow(dead_code)]

use std::io::PipeWriter;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use altq_dataplane::checksum::Sum;
use altq_dataplane::netns::Namespace;
use altq_rsvp::wire::peek_session;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with};
use serde_json::Value;

use crate::client::{altq, err, out};

/// 8 of 20 Mbit/s of what leaves by an interface can be reserved; messages have a class.
pub const POLICY: &str = "link down { device DEVICE  rate 20Mbit/s  scheduler cbq
        class signals { rate 1Mbit/s  priority 7  borrow }
        class res  { rate 8Mbit/s  priority 6  reservations { lifetime 600s } }
        class rest { rate 11Mbit/s  borrow  default }
        match dscp cs6 -> signals }\n";

/// What stands above the interfaces: refreshes as often as may be, so state lives for 5.25 s (RFC
/// 2205 3.7 with K = 3).
pub const OFTEN: &str = "refresh = \"1s\"\n[limits]\nchange = \"10ms\"\n";

/// A folder, which goes when the test ends.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("altq-rsvpd-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A namespace with its altq, if it has one, and its RSVP daemon.
pub struct Host {
    pub name: String,
    pub namespace: Namespace,
    folder: PathBuf,
    pub shaper: Option<Child>,
    pub daemon: Option<Child>,
    /// What the daemon has as its standard error in place of a file.
    pub stderr: Option<PipeWriter>,
}

impl Host {
    pub fn new(name: &str, namespace: Namespace, folder: &Folder) -> Host {
        Host { name: name.to_owned(), namespace, folder: folder.0.clone(), shaper: None, daemon: None, stderr: None }
    }

    pub fn path(&self, what: &str) -> PathBuf {
        self.folder.join(format!("{}{what}", self.name))
    }

    pub fn log(&self, what: &str) -> String {
        std::fs::read_to_string(self.path(what)).unwrap_or_default()
    }

    /// A file for what is said.
    fn file(&self, log: &str) -> Stdio {
        std::fs::File::options().create(true).append(true).open(self.path(log)).unwrap().into()
    }

    fn spawn(&self, arguments: &[&str], stderr: Stdio) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        self.namespace.run(|| command.spawn().unwrap()).unwrap()
    }

    /// Starts `altq run` with a policy, and waits until it shapes. False, with a message, if the
    /// host lacks something.
    pub fn shape(&mut self, policy: &str) -> bool {
        let (file, socket, state) = (self.path(".altq"), self.path(".sock"), self.path(".state"));
        std::fs::write(&file, policy).unwrap();
        let arguments = ["run", text(&file), "--socket", text(&socket), "--state", text(&state)];
        let arguments = [&arguments[..], &["--quiet", "--interval", "50ms"]].concat();
        self.shaper = Some(self.spawn(&arguments, self.file(".log")));
        let begun = Instant::now();
        while self.ask(&["status"]).status.code() != Some(0) {
            if let Some(status) = self.shaper.as_mut().unwrap().try_wait().unwrap() {
                assert!(matches!(status.code(), Some(6 | 7)), "{status} {}", self.log(".log"));
                eprintln!("SKIPPED: {}", self.log(".log").trim_end());
                return false;
            }
            assert!(begun.elapsed() < LONG, "it does not shape: {}", self.log(".log"));
            thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Writes the configuration of the daemon.
    pub fn configure(&self, text: &str) {
        std::fs::write(self.path(".toml"), text).unwrap();
    }

    /// Starts the daemon, and waits until it answers. False, with a message, if the host lacks
    /// something.
    pub fn speak(&mut self) -> bool {
        let (file, altq, own) = (self.path(".toml"), self.path(".sock"), self.path(".rsvp"));
        let arguments = ["rsvpd", text(&file), "--socket", text(&altq), "--rsvp-socket", text(&own)];
        let pipe = self.stderr.as_ref().map(|pipe| pipe.try_clone().unwrap().into());
        self.daemon = Some(self.spawn(&arguments, pipe.unwrap_or_else(|| self.file(".rsvp.log"))));
        let begun = Instant::now();
        while self.ask(&["rsvp", "path"]).status.code() != Some(0) {
            if let Some(status) = self.daemon.as_mut().unwrap().try_wait().unwrap() {
                assert!(matches!(status.code(), Some(6 | 7)), "{status} {}", self.log(".rsvp.log"));
                eprintln!("SKIPPED: {}", self.log(".rsvp.log").trim_end());
                return false;
            }
            assert!(begun.elapsed() < LONG, "it does not answer: {}", self.log(".rsvp.log"));
            thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Ends the daemon as a power cut does.
    pub fn fall_silent(&mut self) {
        cut(&mut self.daemon);
    }

    /// Ends altq as a power cut does.
    pub fn lose_altq(&mut self) {
        cut(&mut self.shaper);
    }

    pub fn ask(&self, arguments: &[&str]) -> Output {
        if arguments[0] != "rsvp" {
            return altq(&self.path(".sock"), arguments);
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.args(arguments).arg("--rsvp-socket").arg(self.path(".rsvp")).stdin(Stdio::null()).output().unwrap()
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.ask(&[arguments, &["--json"]].concat());
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{} {arguments:?}: {error}: {}", self.name, err(&output)))
    }

    /// The reservations of altq.
    pub fn reserved(&self) -> Vec<Value> {
        self.json(&["reserve", "list"])["reservations"].as_array().unwrap().clone()
    }

    /// The rates of altq's reservations, bit/s.
    pub fn rates(&self) -> Vec<u64> {
        self.reserved().iter().map(|there| there["tspec"]["rate_bit_s"].as_u64().unwrap()).collect()
    }

    pub fn rsvp(&self, what: &str, list: &str) -> Vec<Value> {
        self.json(&["rsvp", what])[list].as_array().unwrap().clone()
    }

    /// How often messages were refused for a reason.
    pub fn refused(&self, why: &str) -> u64 {
        self.json(&["rsvp", "neighbours"])["refused"][why].as_u64().unwrap_or(0)
    }

    /// Announces a sender, or other traffic of it, and checks that this is done.
    pub fn announce(&self, from: &str, to: &str, rate: &str) {
        let output = self.ask(&sender("add", from, to, rate));
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for child in [&mut self.daemon, &mut self.shaper].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if thread::panicking() {
            eprintln!("{}: altq run says\n{}\nrsvpd says\n{}", self.name, self.log(".log"), self.log(".rsvp.log"));
        }
    }
}

/// Ends a process at once.
fn cut(child: &mut Option<Child>) {
    let mut child = child.take().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// How long anything may take on a host that does much else.
const LONG: Duration = Duration::from_secs(60);

/// Waits until a condition holds. How long that took.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "not within {LONG:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
    begun.elapsed()
}

/// The words of `altq rsvp sender`.
pub fn sender<'a>(word: &'a str, from: &'a str, to: &'a str, rate: &'a str) -> Vec<&'a str> {
    let mut words = vec!["rsvp", "sender", word, "--from", from, "--to", to];
    if word == "add" {
        words.extend(["--rate", rate, "--burst", "10kbytes", "--min-unit", "128"]);
    }
    words
}

/// Frames, and when they were there.
type Frames = Vec<(Instant, Vec<u8>)>;

/// All frames that come and go in a namespace, and when.
pub struct Capture {
    frames: Arc<Mutex<Frames>>,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Capture {
    pub fn start(namespace: &Namespace) -> Capture {
        let open = || socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, Some(eth::ALL));
        let socket = namespace.run(open).unwrap().unwrap();
        let (frames, stop) = (Arc::new(Mutex::new(Frames::new())), Arc::new(AtomicBool::new(false)));
        let (into, ends) = (frames.clone(), stop.clone());
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            let pause = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            while !ends.load(Ordering::Relaxed) {
                match recv(&socket, buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
                    Ok((_, length)) => into.lock().unwrap().push((Instant::now(), buffer[..length].to_vec())),
                    Err(_) => {
                        let _ = poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&pause));
                    }
                }
            }
        });
        Capture { frames, stop, thread: Some(thread) }
    }

    /// Frames with RSVP, and when they were there.
    fn all(&self) -> Frames {
        self.frames.lock().unwrap().iter().filter(|(_, frame)| is_rsvp(frame)).cloned().collect()
    }

    /// Frames with RSVP.
    pub fn rsvp(&self) -> Vec<Vec<u8>> {
        self.all().into_iter().map(|(_, frame)| frame).collect()
    }

    /// When the first message of a type about a session with this port was there.
    pub fn first(&self, kind: u8, port: u16) -> Option<Instant> {
        let is_it = |frame: &[u8]| {
            let message = message(frame);
            message[1] == kind && peek_session(message).is_some_and(|session| session.port == port)
        };
        self.all().iter().find(|(_, frame)| is_it(frame)).map(|(at, _)| *at)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether a frame has RSVP in it: IPv4 with the protocol 46, or IPv6 with it behind a hop-by-hop
/// header.
fn is_rsvp(frame: &[u8]) -> bool {
    match frame[12..14] {
        [8, 0] => frame[14 + 9] == 46,
        [0x86, 0xdd] => frame[14 + 6] == 0 && frame[14 + 40] == 46,
        _ => false,
    }
}

/// The message in a frame with RSVP.
pub fn message(frame: &[u8]) -> &[u8] {
    let header = if frame[12] == 8 { usize::from(frame[14] & 15) * 4 } else { 48 };
    &frame[14 + header..]
}

/// What RFC 791, RFC 2113, RFC 2205 3.1.1 and 3.3, RFC 2711 and RFC 4594 say of the packet in a
/// frame.
pub fn check_headers(frame: &[u8]) {
    let (packet, message) = (&frame[14..], message(frame));
    let (class, alert) = if packet[0] >> 4 == 4 {
        let header = usize::from(packet[0] & 15) * 4;
        assert_eq!(Sum::default().add(&packet[..header]).folded(), 0xffff, "IPv4 checksum: {packet:02x?}");
        (packet[1], header == 24 && packet[20..24] == [0x94, 4, 0, 0])
    } else {
        assert_eq!(packet[40..48], [46, 0, 5, 2, 0, 1, 1, 0], "hop-by-hop: {packet:02x?}");
        (packet[0] << 4 | packet[1] >> 4, true)
    };
    assert_eq!(class, 0xc0, "CS6: {packet:02x?}");
    let length = usize::from(u16::from_be_bytes([message[6], message[7]]));
    assert_eq!((message[0], length), (0x10, message.len()), "version, flags and length: {packet:02x?}");
    // Path, PathTear and ResvConf are for every router on the way; over IPv6 all messages are
    // marked.
    let on_the_way = [1, 5, 7].contains(&message[1]);
    assert_eq!(alert, on_the_way || packet[0] >> 4 == 6, "router alert: {packet:02x?}");
    if message[2..4] != [0, 0] {
        assert_eq!(Sum::default().add(message).folded(), 0xffff, "checksum: {packet:02x?}");
    }
}

/// Has tshark look at the messages, if it is here: none may be malformed, or have a wrong checksum.
pub fn dissect(folder: &Folder, frames: &[Vec<u8>]) {
    // The format of pcap: magic, version, zone, accuracy, longest packet, Ethernet; then time,
    // lengths and bytes of each frame.
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 1 << 16, 1] {
        file.extend(word.to_ne_bytes());
    }
    if cfg!(target_endian = "big") {
        file[4..8].copy_from_slice(&[0, 2, 0, 4]);
    }
    for (at, frame) in (0_u32..).zip(frames) {
        for word in [at, 0, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_ne_bytes());
        }
        file.extend(frame);
    }
    let path = folder.0.join("messages.pcap");
    std::fs::write(&path, file).unwrap();
    let checks = ["-o", "ip.check_checksum:TRUE", "-V", "-r"];
    let output = match Command::new("tshark").args(checks).arg(&path).output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => return eprintln!("SKIPPED in part: tshark cannot read the messages ({})", err(&output)),
        Err(error) => return eprintln!("SKIPPED in part: no tshark here, which would look at the messages ({error})"),
    };
    let said = out(&output);
    let count = |text: &str| said.lines().filter(|line| line.contains(text)).count();
    assert_eq!(count("Resource ReserVation Protocol (RSVP):"), frames.len(), "{said}");
    for wrong in ["malformed", "incorrect", "status: bad"] {
        let found = said.lines().find(|line| line.to_lowercase().contains(wrong));
        assert!(found.is_none(), "{found:?}");
    }
}
