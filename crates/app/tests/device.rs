//! `device IF` and PPPoE in networks as users have them: an MTU that changes, hosts behind NAT,
//! marks of other programs, flow tables, sessions that end and begin again. With the kernel's own
//! traffic, in network namespaces. A test is skipped with a message where the host does not allow
//! it.

#[path = "device/flow_tables.rs"]
mod flow_tables;
#[path = "device/hosts.rs"]
mod hosts;
#[path = "device/marks.rs"]
mod marks;
#[path = "device/mtu.rs"]
mod mtu;
#[path = "device/pppoe.rs"]
mod pppoe;
mod supervised;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::net::{IpAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use altq_dataplane::netns::Namespace;
use altq_traffic::clock::monotonic;
use serde_json::Value;
use supervised::Running;
use world::routed::{Routed, routed};
use world::{Bulk, World};

/// `left` (10.9.1.1) — `lan` [`middle`] `wan` — `right` (10.9.2.2): the middle is a router that
/// hides the left host behind NAT. The rules are those of nftables where the kernel has them.
fn router() -> Option<World> {
    let Routed { left, router, right, nat } = routed()?;
    let masquerade = "nft 'table ip house {
            chain post { type nat hook postrouting priority 100; oifname wan masquerade; }
        }' && { iptables -w -t nat -F POSTROUTING; true; }";
    match sh(&router, masquerade) {
        Ok(_) => {}
        Err(error) if nat => eprintln!("iptables hides the host, because nft cannot: {error}"),
        Err(error) => {
            eprintln!("SKIPPED: this test needs a NAT ({error})");
            return None;
        }
    }
    Some(World { left, middle: router, right })
}

/// Runs a command of the shell in a namespace. It returns what the command prints, or, if that
/// fails, the first line of what it says.
fn sh(namespace: &Namespace, command: &str) -> Result<String, String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let run = || Command::new("sh").args(["-c", command]).env("PATH", path).stdin(Stdio::null()).output();
    let output = namespace.run(run).unwrap().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    let said = text(&output.stderr);
    // nft also prints what it has been given.
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(said.lines().next().unwrap_or("").to_owned()) }
}

/// Sends datagrams with `len` bytes of payload to an address of `at`, one after another; each must
/// come back. Returns from which address they came there.
fn echoes(from: &Namespace, at: &Namespace, to: &str, len: usize, count: usize) -> IpAddr {
    let server = at.run(|| UdpSocket::bind(to).unwrap()).unwrap();
    let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    let client = from.run(|| UdpSocket::bind(any).unwrap()).unwrap();
    client.connect(to).unwrap();
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    }
    let echo = thread::spawn(move || {
        let (mut data, mut seen) = (vec![0; 65_536], None);
        for _ in 0..count {
            let (got, from) = server.recv_from(&mut data).expect("a datagram within 3 s");
            server.send_to(&data[..got], from).unwrap();
            seen = Some(from.ip());
        }
        seen.unwrap()
    });
    let mut data = vec![0; 65_536];
    for number in 0..count {
        let sent = vec![number as u8; len];
        client.send(&sent).unwrap();
        let got = client.recv(&mut data).expect("an answer within 3 s");
        assert!(data[..got] == sent, "number {number} of {len} bytes comes back as it was sent");
    }
    echo.join().unwrap()
}

/// A counter of a class, as of the latest interval.
fn counter(running: &Running<'_>, link: usize, class: &str, word: &str) -> u64 {
    number(entry(&running.json("stat"), link, class), word)
}

/// What `altq stat` says of a class.
fn entry<'a>(stat: &'a Value, link: usize, class: &str) -> &'a Value {
    let classes = stat["links"][link]["classes"].as_array().unwrap_or_else(|| panic!("{stat}"));
    classes.iter().find(|found| found["name"] == class).unwrap_or_else(|| panic!("{class}: {stat}"))
}

fn number(of: &Value, word: &str) -> u64 {
    of[word].as_u64().unwrap_or_else(|| panic!("{word}: {of}"))
}

/// Bytes of the headers of IPv4 and of TCP with timestamps (RFC 9293 3.1, RFC 7323 3.2).
const HEADERS: u64 = 52;

/// What a class has let out, and what a connection through it has got. All in bits and seconds.
#[derive(Clone, Copy, Debug)]
struct Passed {
    /// When altq counted, by CLOCK_MONOTONIC; of a difference, the time between two counts.
    time: f64,
    /// What the class has let out, at layer 3.
    sent: f64,
    /// How much of that is payload. An acknowledgement has none.
    payload: f64,
    /// The payload that the receiver has got.
    arrived: f64,
    /// The most by which altq's counts and the receiver's are apart.
    apart: f64,
}

impl Passed {
    /// All until now.
    fn until_now(running: &Running<'_>, link: usize, class: &str, flow: &Bulk) -> Passed {
        Passed::of(&running.json("stat"), link, class, flow)
    }

    /// The same, by what `altq stat` has just said.
    fn of(stat: &Value, link: usize, class: &str, flow: &Bulk) -> Passed {
        // After altq has counted, and before the clock is read: so they are no further apart.
        let arrived = flow.arrived.load(Ordering::Relaxed);
        let now = monotonic();
        let at = number(&stat["links"][link], "at_ns");
        let [sent, payload] = let_out(stat, link, class);
        Passed { time: at as f64 / 1e9, sent, payload, arrived: arrived as f64 * 8.0, apart: (now - at) as f64 / 1e9 }
    }

    /// Checks that what a connection has got since it began has passed the class. `earlier`: the
    /// payload that had passed before. Of a part of its time that cannot be said: what waits behind
    /// a lost packet comes all at once.
    fn arrived_by(&self, earlier: f64, rate: f64, what: &str) {
        let passed = self.payload - earlier;
        assert!(self.arrived <= passed + rate * self.apart, "more arrives than has passed: {what}");
        // Some of what has passed waits behind a lost packet, or has been sent twice.
        assert!(self.arrived >= 0.8 * passed, "what has passed does not arrive: {what}");
    }

    fn since(&self, before: &Passed) -> Passed {
        Passed {
            time: self.time - before.time,
            sent: self.sent - before.sent,
            payload: self.payload - before.payload,
            arrived: self.arrived - before.arrived,
            apart: self.apart + before.apart,
        }
    }
}

/// What has passed a class until now, in bits of payload: [`Passed`] without a connection.
fn payload(running: &Running<'_>, link: usize, class: &str) -> f64 {
    let_out(&running.json("stat"), link, class)[1]
}

/// What a class has let out, in bits at layer 3 and in bits of payload. Below 500 Mbit/s the kernel
/// cuts super-packets before altq gets them (docs/run.md).
fn let_out(stat: &Value, link: usize, class: &str) -> [f64; 2] {
    let [sent, packets] = ["sent_bytes", "sent_packets"].map(|word| number(entry(stat, link, class), word));
    [sent, sent - packets * HEADERS].map(|bytes| bytes as f64 * 8.0)
}

/// Checks that all that connections have got since they began has passed a class, which lets out no
/// more than the rate of its link, in bit/s. Each connection is given with the link that its data
/// takes, and with the payload that had passed the class before it began. No other payload may be
/// in the class.
fn all_is_shaped<const N: usize>(
    what: &str,
    running: &Running<'_>,
    class: &str,
    rate: f64,
    flows: [(usize, &Bulk, f64); N],
) {
    let count = || flows.map(|(link, flow, _)| Passed::until_now(running, link, class, flow));
    thread::sleep(Duration::from_secs(1));
    let before = count();
    thread::sleep(Duration::from_secs(5));
    for ((all, before), (link, _, earlier)) in count().into_iter().zip(before).zip(flows) {
        let seen = all.since(&before);
        let part = seen.sent / (rate * seen.time);
        let what = format!("{what}, link {link}: {part:.3} of the rate, {seen:.3?}, {all:.3?} after {earlier:.0}");
        eprintln!("{what}");
        // TCP goes on. How much it sends is not altq's doing: on a busy host its ends wait for a
        // processor, and what they miss then is not made up for.
        assert!((0.5..=1.02).contains(&part), "{what}");
        all.arrived_by(earlier, rate, &what);
    }
}
