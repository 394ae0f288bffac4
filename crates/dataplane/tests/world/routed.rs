//! Two hosts with a router between them, which hides the left one behind NAT.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use altq_config::Policy;
use altq_dataplane::netns::Namespace;
use altq_dataplane::{Error, Options, Running};

use super::ip;

/// `left` (10.9.1.1, fd09:1::1) — `lan` [router] `wan` — `right` (10.9.2.2, fd09:2::2). The router
/// is 10.9.1.9 and 10.9.2.9.
pub struct Routed {
    pub left: Namespace,
    pub router: Namespace,
    pub right: Namespace,
    /// True if IPv4 is translated on the way to the right.
    pub nat: bool,
}

/// The router, or `None`, with a message, if this host allows no namespaces.
pub fn routed() -> Option<Routed> {
    let made = || -> std::io::Result<[Namespace; 3]> { Ok([Namespace::new()?, Namespace::new()?, Namespace::new()?]) };
    let [left, router, right] = match made() {
        Ok(made) => made,
        Err(error) => {
            eprintln!("SKIPPED: this test makes network namespaces, which needs root ({error})");
            return None;
        }
    };
    let wires = format!(
        "link add lan type veth peer name eth0 netns {}\nlink add wan type veth peer name eth0 netns {}\n\
         link set lo up\nlink set lan up\nlink set wan up\naddr add 10.9.1.9/24 dev lan\naddr add 10.9.2.9/24 dev wan\n\
         addr add fd09:1::9/64 dev lan nodad\naddr add fd09:2::9/64 dev wan nodad\n",
        left.path().display(),
        right.path().display()
    );
    if let Err(error) = ip(&router, &wires) {
        eprintln!("SKIPPED: this test needs iproute2 and veth interfaces ({error})");
        return None;
    }
    for (side, net, host) in [(&left, 1, 1), (&right, 2, 2)] {
        ip(
            side,
            &format!(
                "link set lo up\nlink set eth0 up\naddr add 10.9.{net}.{host}/24 dev eth0\n\
                 addr add fd09:{net}::{host}/64 dev eth0 nodad\nroute add default via 10.9.{net}.9\n\
                 route add ::/0 via fd09:{net}::9\n"
            ),
        )
        .unwrap();
    }
    let nat = router
        .run(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
            // iptables makes its tables when a rule first needs them, and leaves them behind.
            let command = "for i in iptables ip6tables; do for c in PREROUTING INPUT FORWARD OUTPUT POSTROUTING; do \
                           $i -w -t mangle -A $c -j ACCEPT && $i -w -t mangle -D $c -j ACCEPT; done; done; \
                           iptables -w -t nat -A POSTROUTING -o wan -j MASQUERADE || nft 'table ip nat { chain post { \
                           type nat hook postrouting priority 100; oifname wan masquerade; } }'";
            Command::new("sh").args(["-c", command]).env("PATH", path()).output().is_ok_and(|out| out.status.success())
        })
        .unwrap();
    Some(Routed { left, router, right, nat })
}

/// The PATH, with the directories of system programs.
fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

impl Routed {
    /// Runs all links of a policy on the router; `None`, with a message, if this host lacks
    /// something.
    pub fn run(&self, policy: &Policy) -> Option<Running> {
        let links: Vec<_> = policy.links.iter().collect();
        match self.router.run(|| altq_dataplane::run(&links, Options::default())).unwrap() {
            Ok(running) => {
                eprintln!("{:?}", running.notes());
                Some(running)
            }
            Err(error @ (Error::NotPermitted { .. } | Error::Unsupported { .. } | Error::Steering(_))) => {
                eprintln!("SKIPPED: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The rules of all firewalls on the router, without their counters.
    pub fn rules(&self) -> String {
        let command = "nft -s list ruleset; iptables -S -t mangle; ip6tables -S -t mangle; \
                       cat /proc/thread-self/net/netfilter/nfnetlink_queue; cat /proc/net/unix | grep -o '@altq/.*'";
        let output = self.router.run(|| Command::new("sh").args(["-c", command]).env("PATH", path()).output().unwrap());
        let text = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
        text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    }
}

/// Datagrams of 1400 bytes at a rate, until it is dropped; counts those that arrived.
pub struct Datagrams {
    pub arrived: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

/// Bytes of payload of each datagram.
pub const PAYLOAD: usize = 1400;

impl Datagrams {
    /// Sends to `to`, which is an address of `at`. With `back` the other end sends instead, to
    /// where a first datagram came from.
    pub fn start(from: &Namespace, at: &Namespace, to: &str, rate: u64, back: bool) -> Datagrams {
        let to: SocketAddr = to.parse().unwrap();
        let server = at.run(|| UdpSocket::bind(to).unwrap()).unwrap();
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let client = from.run(|| UdpSocket::bind(any).unwrap()).unwrap();
        client.connect(to).unwrap();
        let (source, sink) = if back {
            server.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
            client.send(&[1]).unwrap();
            // Datagrams of flows before this one may still come.
            let mut data = [0; 16];
            let seen = loop {
                let (len, from) = server.recv_from(&mut data).expect("the first datagram arrives");
                if (len, data[0]) == (1, 1) {
                    break from;
                }
            };
            server.connect(seen).unwrap();
            (server, client)
        } else {
            (client, server)
        };
        let (arrived, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        sink.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let (stopped, count) = (stop.clone(), arrived.clone());
        let receive = thread::spawn(move || {
            let mut data = vec![0; 2000];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok(read) = sink.recv(&mut data) {
                    count.fetch_add(read as u64, Ordering::Relaxed);
                }
            }
        });
        let stopped = stop.clone();
        let send = thread::spawn(move || {
            let (data, start) = (vec![7; PAYLOAD], Instant::now());
            let mut sent = 0;
            while !stopped.load(Ordering::Relaxed) {
                if sent * 8 * PAYLOAD as u64 > start.elapsed().as_micros() as u64 * (rate / 1_000_000) {
                    thread::sleep(Duration::from_micros(500));
                    continue;
                }
                // A router's refusal (ICMP) shows as an error of the next call.
                let _ = source.send(&data);
                sent += 1;
            }
        });
        Datagrams { arrived, stop, threads: vec![receive, send] }
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
