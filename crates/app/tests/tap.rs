//! `altq tap` writes the packets that leave a class to a pcap file. The tests are skipped with a
//! message where the host does not allow them.

mod supervised;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::io::Read;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use supervised::{BRIDGE, ONE, Running, signal, until};
use world::{Bulk, World, quiet, round_trips, world};

const CLASSES: &str = "link there { device bridge a b  rate 100Mbit/s  scheduler cbq
        class all { share 90%  borrow
            class web { share 40%  borrow }
            class mail { share 50%  borrow } }
        class rest { share 10%  borrow  default }
        match dport 80 -> web
        match dport 25 -> mail }";

/// A record of a file: its time in ns, the length of its packet, and the bytes of it.
struct Record {
    at: u128,
    len: u32,
    bytes: Vec<u8>,
}

/// Parses a pcap file as draft-ietf-opsawg-pcap describes it. Returns the link type and the
/// records.
fn records(file: &[u8]) -> (u32, Vec<Record>) {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!(word(0), 0xa1b2_3c4d, "nanoseconds");
    assert_eq!(file[4..8], [2, 0, 4, 0]);
    let (mut at, mut found) = (24, Vec::new());
    while at < file.len() {
        let (seconds, nanos, kept, len) = (word(at), word(at + 4), word(at + 8) as usize, word(at + 12));
        assert!(nanos < 1_000_000_000 && kept <= len as usize && kept <= word(16) as usize);
        let bytes = file[at + 16..at + 16 + kept].to_vec();
        found.push(Record { at: u128::from(seconds) * 1_000_000_000 + u128::from(nanos), len, bytes });
        at += 16 + kept;
    }
    (word(20), found)
}

fn unix() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()
}

fn tap(running: &Running<'_>, arguments: &[&str], out: Stdio) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.arg("tap").args(arguments).arg("--socket").arg(running.folder.join("altq.sock"));
    command.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the file's header is there: from then on packets are copied.
fn begun(file: &Path) {
    until("the tap has begun", Duration::from_secs(10), || {
        std::fs::metadata(file).is_ok_and(|found| found.len() >= 24)
    });
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Sends `count` UDP datagrams of `bytes` bytes from the left host to each of `ports` of the right
/// host, where nothing listens.
fn send(world: &World, ports: &[u16], count: usize, bytes: usize) {
    let socket = world.left.run(|| UdpSocket::bind("10.9.0.1:0").unwrap()).unwrap();
    for n in 0..count {
        for port in ports {
            // An ICMP port unreachable makes the next call return an error, which is ignored.
            let _ = socket.send_to(&vec![n as u8; bytes], ("10.9.0.2", *port));
        }
    }
}

#[test]
fn a_class_of_a_bridge_is_tapped_whole() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "tap", CLASSES, &[]) else { return };
    let (web, all) = (running.folder.join("web.pcap"), running.folder.join("all.pcap"));
    let before = unix();
    for (at, (of, file, ports)) in [("there/web", &web, &[80][..]), ("there/all", &all, &[80, 25])].iter().enumerate() {
        let child = tap(&running, &[of, file.to_str().unwrap(), "--snaplen", "60"], Stdio::null());
        until("the tap has begun", Duration::from_secs(10), || running.log().matches(" is tapped; ").count() > at);
        // One link has one tap.
        let second = tap(&running, &["there", "/dev/null"], Stdio::null()).wait_with_output().unwrap();
        assert!(second.status.code() == Some(5) && said(&second).contains("is tapped already"), "{}", said(&second));
        send(&world, &[25, 80, 7000], 10, 100);
        // The round trip is in the same direction, after the datagrams. Once it is answered, altq
        // has sent all datagrams, and the tap can be ended.
        round_trips(&world, "10.9.0.2:7", 1);
        signal(child.id(), "-INT");
        let output = child.wait_with_output().unwrap();
        let count = 10 * ports.len();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert!(said(&output).contains(&format!("altq tap: {count} packets in ")), "{}", said(&output));
        let (kind, found) = records(&std::fs::read(file).unwrap());
        assert_eq!((kind, found.len()), (1, count), "Ethernet");
        for record in &found {
            // Headers of Ethernet, IPv4 and UDP, and 100 bytes.
            assert_eq!((record.len, record.bytes.len()), (14 + 20 + 8 + 100, 60));
            let port = u16::from_be_bytes([record.bytes[36], record.bytes[37]]);
            assert!(record.bytes[12..15] == [8, 0, 0x45] && ports.contains(&port), "{:?}", record.bytes);
            assert!(record.at >= before && record.at <= unix());
        }
        assert!(found.windows(2).all(|pair| pair[0].at <= pair[1].at));
    }
    running.end();
}

#[test]
fn a_file_has_its_size_and_no_more() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "tap-size", BRIDGE, &["--supervise", "--user", "nobody"]) else {
        return;
    };
    // Without this, IGMP and MLD reports of the host would be in the file too.
    quiet(&world.left);
    let file = running.folder.join("f.pcap");
    let child = tap(&running, &["there", file.to_str().unwrap(), "--size", "1kB"], Stdio::null());
    begun(&file);
    send(&world, &[7000], 20, 100);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{} {}", said(&output), running.log());
    // A record is 16 bytes, and a frame 142.
    let (_, found) = records(&std::fs::read(&file).unwrap());
    assert_eq!((found.len(), std::fs::metadata(&file).unwrap().len()), (6, 24 + 6 * 158));
    assert!(said(&output).contains("6 packets in 972 bytes, the size limit"), "{}", said(&output));
    running.end();
}

#[test]
fn a_confined_worker_writes_what_it_is_given_on_one_interface() {
    let Some(world) = world() else { return };
    world.answer_in_the_middle();
    let Some(running) = Running::start(&world, "tap-one", ONE, &["--supervise", "--user", "nobody"]) else { return };
    let worker = running.worker();
    let mut child = tap(&running, &["up", "-", "--for", "1s"], Stdio::piped());
    let mut out = child.stdout.take().unwrap();
    let mut file = vec![0; 24];
    out.read_exact(&mut file).unwrap();
    assert!(world.middle_answers());
    out.read_to_end(&mut file).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{} {}", said(&output), running.log());
    let (kind, found) = records(&file);
    assert_eq!(kind, 101, "IP packets without a header before them");
    // The middle refuses the connection: RST (RFC 9293 3.1) from port 1.
    let refusal = |record: &Record| {
        record.bytes[0] == 0x45 && record.bytes[9] == 6 && record.bytes[20..22] == [0, 1] && record.bytes[33] & 4 != 0
    };
    assert!(found.iter().any(refusal), "{} packets", found.len());
    assert_eq!(running.worker(), worker, "it was not killed: {}", running.log());
    running.end();
}

#[test]
fn a_reader_that_does_not_read_holds_nobody_up() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "tap-stuck", BRIDGE, &[]) else { return };
    let options = ["there", "-", "--snaplen", "65535", "--size", "1GB"];
    let mut child = tap(&running, &options, Stdio::piped());
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 24]).unwrap();
    let bulk = Bulk::start(&world, "10.9.0.2:5001");
    let bytes = || bulk.arrived.load(std::sync::atomic::Ordering::Relaxed);
    // More than the pipe and all buffers hold.
    until("a lot has passed", Duration::from_secs(30), || bytes() > 8 << 20);
    drop(bulk);
    round_trips(&world, "10.9.0.2:7", 5);
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("and nobody reads any more"), "{}", said(&output));
    assert!(said(&output).contains("were not copied"), "{}", said(&output));
    running.end();
}

#[test]
fn what_cannot_be_tapped_is_said() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "tap-wrong", BRIDGE, &[]) else { return };
    let file = running.folder.join("f.pcap");
    for (of, options, code, why) in [
        ("nowhere", &[][..], 2, "there is there, back"),
        ("there/nothing", &[], 2, "has no class `nothing`"),
        ("there", &["--size", "10bytes"], 2, "no room for its header"),
        ("there", &["--snaplen", "0"], 2, "0 is not in 1..=65535"),
    ] {
        let arguments = [&[of, file.to_str().unwrap()][..], options].concat();
        let output = tap(&running, &arguments, Stdio::null()).wait_with_output().unwrap();
        assert!(output.status.code() == Some(code) && said(&output).contains(why), "{of}: {}", said(&output));
        assert!(!file.exists(), "nothing is left of {of}");
    }
    running.end();
}
