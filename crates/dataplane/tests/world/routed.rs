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

/// The Ethernet addresses of the left host and of the router's `lan`, and of the right host and of
/// the router's `wan`, in [`plain`].
pub const LEFT: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 9]];
pub const RIGHT: [[u8; 6]; 2] = [[2, 0, 0, 0, 2, 2], [2, 0, 0, 0, 2, 9]];

/// The router, which hides the left host behind NAT, or `None`, with a message, if this host allows
/// no namespaces.
pub fn routed() -> Option<Routed> {
    make(true)
}

/// The router without NAT, and so without connection tracking, which would reassemble fragments.
/// 10.48.0.0/12 and fd50::/16 lie behind the left host, 10.200.0.0/16 and fd20::/16 behind the
/// right one. Neighbour entries are static. Neither host sends anything by itself or answers for
/// those nets.
pub fn plain() -> Option<Routed> {
    let world = make(false)?;
    let word = |address: [u8; 6]| address.map(|byte| format!("{byte:02x}")).join(":");
    let ([left, lan], [right, wan]) = (LEFT.map(word), RIGHT.map(word));
    ip(&world.left, &format!("link set eth0 address {left}\n")).unwrap();
    ip(&world.right, &format!("link set eth0 address {right}\n")).unwrap();
    ip(
        &world.router,
        &format!(
            "link set lan address {lan}\nlink set wan address {wan}\n\
             neigh replace 10.9.1.1 lladdr {left} dev lan nud permanent\n\
             neigh replace fd09:1::1 lladdr {left} dev lan nud permanent\n\
             neigh replace 10.9.2.2 lladdr {right} dev wan nud permanent\n\
             neigh replace fd09:2::2 lladdr {right} dev wan nud permanent\n\
             route add 10.48.0.0/12 via 10.9.1.1\nroute add fd50::/16 via fd09:1::1\n\
             route add 10.200.0.0/16 via 10.9.2.2\nroute add fd20::/16 via fd09:2::2\n"
        ),
    )
    .unwrap();
    super::quiet(&world.left);
    super::quiet(&world.right);
    world
        .router
        .run(|| {
            // The kernel uses the higher of the values for `all` and for the interface.
            for of in ["all", "lan", "wan"] {
                std::fs::write(format!("/proc/sys/net/ipv4/conf/{of}/rp_filter"), "0").unwrap();
            }
        })
        .unwrap();
    Some(world)
}

fn make(nat: bool) -> Option<Routed> {
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
            warm();
            nat && shell(
                "iptables -w -t nat -A POSTROUTING -o wan -j MASQUERADE || nft 'table ip nat { chain post { \
                 type nat hook postrouting priority 100; oifname wan masquerade; } }'",
            )
        })
        .unwrap();
    Some(Routed { left, router, right, nat })
}

/// Makes iptables create its tables. It creates them when a rule first needs them, and they remain
/// afterwards.
fn warm() {
    shell(
        "for i in iptables ip6tables; do for c in PREROUTING INPUT FORWARD OUTPUT POSTROUTING; do \
         $i -w -t mangle -A $c -j ACCEPT && $i -w -t mangle -D $c -j ACCEPT; done; done",
    );
}

/// Runs a command in the calling thread's namespace. True if it succeeded.
fn shell(command: &str) -> bool {
    let output = Command::new("sh").args(["-c", command]).env("PATH", path()).output();
    output.is_ok_and(|output| output.status.success())
}

/// The PATH, with the directories of system programs.
fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

impl Routed {
    /// Runs all links of a policy on the router; `None`, with a message, if this host lacks
    /// something.
    pub fn run(&self, policy: &Policy) -> Option<Running> {
        run(&self.router, policy)
    }

    /// The rules of all firewalls on the router, without their counters.
    pub fn rules(&self) -> String {
        rules(&self.router)
    }
}

/// Runs all links of a policy in a namespace; `None`, with a message, if this host lacks something.
pub fn run(namespace: &Namespace, policy: &Policy) -> Option<Running> {
    let links: Vec<_> = policy.links.iter().collect();
    match namespace.run(|| altq_dataplane::run(&links, Options::default())).unwrap() {
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

/// The rules of all firewalls in a namespace, without their counters, the kernel's queues, and
/// altq's locks.
pub fn rules(namespace: &Namespace) -> String {
    let command = "nft -s list ruleset; iptables -S -t mangle; ip6tables -S -t mangle; \
                   cat /proc/thread-self/net/netfilter/nfnetlink_queue; cat /proc/net/unix | grep -o '@altq/.*'";
    let output = namespace.run(|| Command::new("sh").args(["-c", command]).env("PATH", path()).output().unwrap());
    let text = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
    text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// The left and the right host of [`super::world`], with a bridge of the kernel in the middle
/// instead of altq's; `None`, with a message, if this host lacks something.
pub fn bridged() -> Option<super::World> {
    let world = super::world()?;
    // Without `dev`, `a` would be short for `address`.
    let wires = "link add br0 type bridge\nlink set dev br0 addrgenmode none up\nlink set dev a master br0\n\
                 link set dev b master br0\n";
    if let Err(error) = ip(&world.middle, wires) {
        eprintln!("SKIPPED: this test needs a bridge of the kernel ({error})");
        return None;
    }
    world
        .middle
        .run(|| {
            warm();
            // With this iptables sees the bridge's packets, where nft cannot queue them.
            for program in ["iptables", "ip6tables"] {
                let _ = std::fs::write(format!("/proc/sys/net/bridge/bridge-nf-call-{program}"), "1");
            }
        })
        .unwrap();
    Some(world)
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
            server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            client.send(&[1]).unwrap();
            // Datagrams of flows before this one may still come, and the first one may be lost
            // behind them.
            let (mut data, end) = ([0; 16], Instant::now() + Duration::from_secs(3));
            let seen = loop {
                match server.recv_from(&mut data) {
                    Ok((1, from)) if data[0] == 1 => break from,
                    Ok(_) => {}
                    Err(error) => {
                        assert!(Instant::now() < end, "no first datagram arrives: {error}");
                        client.send(&[1]).unwrap();
                    }
                }
            };
            server.connect(seen).unwrap();
            (server, client)
        } else {
            (client, server)
        };
        let (arrived, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        // A large buffer, so that the receiver loses nothing on a busy host. Where it is not
        // allowed, the buffer stays as it is.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&sink, 16 << 20);
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
