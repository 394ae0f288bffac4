//! Two hosts with a bridge between them, in namespaces that end with the process, and traffic
//! between the hosts.

#![allow(dead_code)]

pub mod frames;
pub mod routed;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use altq_config::{Language, Policy, parse_str};
use altq_dataplane::Error;
use altq_dataplane::bridge::{self, Options, Running};
use altq_dataplane::netns::Namespace;

/// `left` (10.9.0.1, fd09::1) — `a` [middle] `b` — `right` (10.9.0.2, fd09::2).
pub struct World {
    pub left: Namespace,
    pub middle: Namespace,
    pub right: Namespace,
}

/// The two hosts, or `None`, with a message, if this host allows no namespaces.
pub fn world() -> Option<World> {
    let made = || -> std::io::Result<World> {
        Ok(World { left: Namespace::new()?, middle: Namespace::new()?, right: Namespace::new()? })
    };
    let world = match made() {
        Ok(world) => world,
        Err(error) => {
            eprintln!("SKIPPED: this test makes network namespaces, which needs root ({error})");
            return None;
        }
    };
    let (left, right) = (world.left.path(), world.right.path());
    let wires = format!(
        "link add name a type veth peer name eth0 netns {}\nlink add name b type veth peer name eth0 netns {}\n\
         link set dev a addrgenmode none up\nlink set dev b addrgenmode none up\n",
        left.display(),
        right.display()
    );
    if let Err(error) = ip(&world.middle, &wires) {
        eprintln!("SKIPPED: this test needs iproute2 and veth interfaces ({error})");
        return None;
    }
    for (side, host) in [(&world.left, 1), (&world.right, 2)] {
        ip(
            side,
            &format!(
                "link set lo up\nlink set eth0 addrgenmode none\nlink set eth0 address 02:00:00:00:00:0{host} up\n\
                 addr add 10.9.0.{host}/24 dev eth0\naddr add fd09::{host}/64 dev eth0 nodad\n"
            ),
        )
        .unwrap();
        // Neighbour entries are static, so that only the test's own packets are on the wire.
        let other = 3 - host;
        ip(
            side,
            &format!(
                "neigh add 10.9.0.{other} lladdr 02:00:00:00:00:0{other} dev eth0\n\
                 neigh add fd09::{other} lladdr 02:00:00:00:00:0{other} dev eth0\n"
            ),
        )
        .unwrap();
    }
    Some(world)
}

impl World {
    /// Gives the middle an address on `a`, with a static neighbour entry at the left host. If the
    /// middle's network stack sees a connection to that address, it refuses it.
    pub fn answer_in_the_middle(&self) {
        ip(
            &self.middle,
            "link set dev a address 02:00:00:00:00:09\naddr add 10.7.0.9/24 dev a\n\
            neigh add 10.7.0.1 lladdr 02:00:00:00:00:01 dev a\n",
        )
        .unwrap();
        ip(&self.left, "addr add 10.7.0.1/24 dev eth0\nneigh add 10.7.0.9 lladdr 02:00:00:00:00:09 dev eth0\n")
            .unwrap();
    }

    /// Whether the middle's network stack answers.
    pub fn middle_answers(&self) -> bool {
        let connect = || TcpStream::connect_timeout(&"10.7.0.9:1".parse().unwrap(), Duration::from_millis(300));
        self.left.run(connect).unwrap().is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    }
}

/// Keeps a namespace from sending packets of its own: no neighbour discovery, no multicast reports.
pub fn quiet(namespace: &Namespace) {
    namespace
        .run(|| {
            // Without IPv6 there is nothing to switch off.
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
        })
        .unwrap();
}

pub fn ip(namespace: &Namespace, batch: &str) -> Result<(), String> {
    namespace
        .run(|| {
            let mut child = Command::new("ip")
                .args(["-batch", "-"])
                .stdin(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .map_err(|e| format!("ip: {e}"))?;
            child.stdin.take().unwrap().write_all(batch.as_bytes()).map_err(|e| e.to_string())?;
            let output = child.wait_with_output().map_err(|e| e.to_string())?;
            if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
        })
        .map_err(|e| e.to_string())?
}

pub fn policy(text: &str) -> Policy {
    parse_str(text, "test.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"))
}

/// Runs all links of a policy in the middle; `None`, with a message, if the kernel lacks something.
pub fn run(world: &World, policy: &Policy, options: Options) -> Option<Running> {
    let links: Vec<_> = policy.links.iter().collect();
    match world.middle.run(|| bridge::run(&links, options)).unwrap() {
        Ok(running) => Some(running),
        Err(error @ (Error::NotPermitted { .. } | Error::Unsupported { .. })) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Bulk TCP from left to right, until it is dropped; counts the bytes that arrived.
pub struct Bulk {
    pub arrived: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
    begun: Instant,
}

impl Bulk {
    pub fn start(world: &World, to: &str) -> Bulk {
        Bulk::between(&world.left, &world.right, to)
    }

    pub fn between(from: &Namespace, at: &Namespace, to: &str) -> Bulk {
        let begun = Instant::now();
        let to: SocketAddr = to.parse().unwrap();
        let (arrived, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let listener = at.run(|| TcpListener::bind(to).unwrap()).unwrap();
        let mut sender = from.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(3)).unwrap()).unwrap();
        let mut receiver = listener.accept().unwrap().0;
        receiver.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        sender.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut threads = Vec::new();
        let stopped = stop.clone();
        threads.push(thread::spawn(move || {
            let data = vec![7u8; 1 << 18];
            while !stopped.load(Ordering::Relaxed) {
                let _ = sender.write(&data);
            }
        }));
        let (stopped, count) = (stop.clone(), arrived.clone());
        threads.push(thread::spawn(move || {
            let mut data = vec![0u8; 1 << 18];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok(read) = receiver.read(&mut data) {
                    assert!(data[..read].iter().all(|byte| *byte == 7), "bytes arrive as they were sent");
                    count.fetch_add(read as u64, Ordering::Relaxed);
                }
            }
        }));
        Bulk { arrived, stop, threads, begun }
    }

    /// Payload in bit/s since the start. Even if the receiver reads late, it is never more than the
    /// link let through.
    pub fn since_start(&self) -> f64 {
        let arrived = self.arrived.load(Ordering::Relaxed);
        arrived as f64 * 8.0 / self.begun.elapsed().as_secs_f64()
    }

    /// Payload in bit/s over the given time.
    pub fn measure(&self, over: Duration) -> f64 {
        let (before, start) = (self.arrived.load(Ordering::Relaxed), Instant::now());
        thread::sleep(over);
        (self.arrived.load(Ordering::Relaxed) - before) as f64 * 8.0 / start.elapsed().as_secs_f64()
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A UDP socket at the left host, connected to one at the right host. Both wait for 2 s at most.
fn sockets(world: &World, to: &str) -> (UdpSocket, UdpSocket) {
    let to: SocketAddr = to.parse().unwrap();
    // A program that another thread starts has a copy of the last call's socket until its exec.
    let began = Instant::now();
    let server = loop {
        match world.right.run(|| UdpSocket::bind(to)).unwrap() {
            Err(error) if error.kind() == ErrorKind::AddrInUse && began.elapsed() < Duration::from_secs(2) => {
                thread::sleep(Duration::from_millis(1));
            }
            bound => break bound.unwrap(),
        }
    };
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let client = world.left.run(|| UdpSocket::bind(any).unwrap()).unwrap();
    client.connect(to).unwrap();
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    }
    (client, server)
}

/// Sends a datagram every 20 ms until one arrives, for 2 s at most; returns how many were sent. The
/// kernel drops what a host sends until it has noticed that the other end of its wire is up again,
/// which other work on interfaces can delay.
pub fn until_one_arrives(world: &World, to: &str) -> usize {
    let (client, server) = sockets(world, to);
    server.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let arrived = (1..=100).find(|_| {
        client.send(&[0; 2]).unwrap();
        server.recv(&mut [0; 16]).is_ok()
    });
    arrived.expect("a datagram arrives within 2 s")
}

/// Times of `count` round trips of one byte over UDP, one after another; sorted.
pub fn round_trips(world: &World, to: &str, count: usize) -> Vec<Duration> {
    let (client, server) = sockets(world, to);
    let echo = thread::spawn(move || {
        let (mut byte, mut left) = ([0u8; 16], count);
        while left > 0 {
            let Ok((len, from)) = server.recv_from(&mut byte) else { return };
            // What `until_one_arrives` has sent may come late, and is longer.
            if len == 1 {
                server.send_to(&byte[..len], from).unwrap();
                left -= 1;
            }
        }
    });
    let mut trips: Vec<Duration> = (0..count)
        .map(|n| {
            let (start, mut answer) = (Instant::now(), [0u8; 16]);
            client.send(&[n as u8]).unwrap();
            assert_eq!(client.recv(&mut answer).expect("an answer within 2 s"), 1);
            assert_eq!(answer[0], n as u8);
            start.elapsed()
        })
        .collect();
    echo.join().unwrap();
    trips.sort_unstable();
    trips
}
