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
use std::thread;
use std::time::Duration;

use altq_dataplane::netns::Namespace;
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

/// Waits until a connection has got what the link has for it, in bits of payload a second, on
/// average since the call. What has waited behind a lost packet arrives at once, and a busy host
/// does nothing for a while: so a single window may have far more or less.
fn fills(what: &str, flow: &Bulk, most: f64) {
    let (mut seen, mut sum) = (Vec::new(), 0.0);
    for windows in 1..=12 {
        seen.push(flow.measure(Duration::from_millis(600)) / most);
        sum += seen.last().unwrap_or(&0.0);
        if windows > 1 && (0.85..=1.05).contains(&(sum / f64::from(windows))) {
            return eprintln!("{what}: parts of what it should get: {seen:.3?}");
        }
    }
    panic!("{what}: parts of what it should get: {seen:.3?}");
}

/// A counter of a class, as of the latest interval.
fn counter(running: &Running<'_>, link: usize, class: &str, word: &str) -> u64 {
    let stat = running.json("stat");
    let classes = stat["links"][link]["classes"].as_array().unwrap_or_else(|| panic!("{stat}"));
    let found = classes.iter().find(|found| found["name"] == class).unwrap_or_else(|| panic!("{class}: {stat}"));
    found[word].as_u64().unwrap_or_else(|| panic!("{word}: {found}"))
}
