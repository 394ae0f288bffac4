//! The lab's namespaces and wires: one namespace with the hosts of each side, and a third between
//! them, in which altq or the kernel's bridge runs.
//!
//! ```text
//!  sources  eth0 ──veth── inside  middle  outside ──veth── eth0  sinks
//! ```
//!
//! All hosts of a side share a namespace and an interface and differ by address. Neighbours are
//! static and duplicate address detection is off, so that only packets of the flows are on the
//! wires. The namespaces have no names in the file system: when this process ends, by whatever
//! signal, the kernel removes namespaces, interfaces and sockets.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use std::{fmt, fs, io};

use altq_dataplane::netns::Namespace;
use anyhow::{Context, bail};

/// This host, or the lab, cannot do what is asked for. The text is one line for the user.
#[derive(Debug)]
pub struct Unsupported(pub String);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// This process has not the right to do what is asked for. The text is one line for the user.
#[derive(Debug)]
pub struct NotPermitted(pub String);

impl fmt::Display for NotPermitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotPermitted {}

/// One side of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where the shaped link's forward direction begins.
    Sources,
    /// Where it ends.
    Sinks,
}

/// What the namespaces and wires must provide.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Addresses of the sources, at least one.
    pub sources: Vec<IpAddr>,
    /// Addresses of the sinks, at least one.
    pub sinks: Vec<IpAddr>,
    /// The largest packet at layer 3 on every wire, in bytes.
    pub mtu: u32,
    /// The largest IPv6 packet, in bytes; smaller than `mtu` if there is a tunnel on the way.
    pub mtu6: u32,
    /// False if hosts must send no super-packets, as if their network cards had no segmentation
    /// offload.
    pub offload: bool,
    /// TCP connections that offer ECN.
    pub ecn: Ecn,
}

/// Which TCP connections offer ECN. All accept it if the peer offers it.
#[derive(Clone, Debug)]
pub enum Ecn {
    /// All of them.
    All,
    /// Connections from an address on a side to an address and port.
    Some(Vec<(Side, IpAddr, SocketAddr)>),
}

/// Number of the routing table whose routes offer ECN.
const ECN_TABLE: u32 = 100;

/// The namespaces. Dropping them removes everything in them.
#[derive(Debug)]
pub struct Topology {
    sources: Namespace,
    middle: Namespace,
    sinks: Namespace,
}

/// The interface of the middle namespace towards the sources.
pub const INSIDE: &str = "inside";
/// The interface of the middle namespace towards the sinks.
pub const OUTSIDE: &str = "outside";

const SOURCES_MAC: &str = "02:00:00:00:00:01";
const SINKS_MAC: &str = "02:00:00:00:00:02";

/// Checks that this host can run the lab.
///
/// # Errors
/// As [`Topology::new`].
pub fn possible() -> anyhow::Result<()> {
    let host = |n| std::net::IpAddr::from([10, 0, 0, n]);
    Topology::new(&Plan {
        sources: vec![host(1)],
        sinks: vec![host(2)],
        mtu: 1500,
        mtu6: 1500,
        offload: true,
        ecn: Ecn::Some(Vec::new()),
    })
    .map(drop)
}

impl Topology {
    /// Makes the namespaces and their wires. The two wires of the middle are not joined yet.
    ///
    /// # Errors
    /// [`NotPermitted`] without root; [`Unsupported`] without `ip` of iproute2 or where the kernel
    /// lacks namespaces or veth.
    pub fn new(plan: &Plan) -> anyhow::Result<Topology> {
        let topology = Topology { sources: namespace()?, middle: namespace()?, sinks: namespace()? };
        topology.wires(plan)?;
        topology.hosts(Side::Sources, plan, SINKS_MAC)?;
        topology.hosts(Side::Sinks, plan, SOURCES_MAC)?;
        Ok(topology)
    }

    /// The hosts' namespace of a side.
    pub fn side(&self, side: Side) -> &Namespace {
        match side {
            Side::Sources => &self.sources,
            Side::Sinks => &self.sinks,
        }
    }

    /// The namespace between them.
    pub fn middle(&self) -> &Namespace {
        &self.middle
    }

    fn wires(&self, plan: &Plan) -> anyhow::Result<()> {
        let mut batch = String::new();
        for (port, side, mac) in [(INSIDE, Side::Sources, SOURCES_MAC), (OUTSIDE, Side::Sinks, SINKS_MAC)] {
            let host = self.side(side).path();
            writeln!(
                batch,
                "link add name {port} mtu {} type veth peer name eth0 address {mac} mtu {} netns {}",
                plan.mtu,
                plan.mtu,
                host.display()
            )?;
            // No link-local address, so that the middle sends no packets of its own.
            writeln!(batch, "link set dev {port} addrgenmode none up")?;
        }
        ip(&self.middle, &batch).map_err(|error| match error.to_string() {
            text if text.contains("Unknown device type") || text.contains("not supported") => {
                Unsupported(format!("this kernel has no veth interfaces (CONFIG_VETH): {text}")).into()
            }
            _ => error,
        })?;
        for side in [Side::Sources, Side::Sinks] {
            // With at most one segment per packet TCP builds no super-packets.
            let segments = if plan.offload { "" } else { " gso_max_segs 1" };
            ip(
                self.side(side),
                &format!("link set dev lo up\nlink set dev eth0 addrgenmode none{segments}\nlink set dev eth0 up\n"),
            )?;
        }
        Ok(())
    }

    fn hosts(&self, side: Side, plan: &Plan, neighbour: &str) -> anyhow::Result<()> {
        let (own, others) = match side {
            Side::Sources => (&plan.sources, &plan.sinks),
            Side::Sinks => (&plan.sinks, &plan.sources),
        };
        let mut batch = String::new();
        for address in own {
            match address {
                IpAddr::V4(_) => writeln!(batch, "addr add {address}/32 dev eth0")?,
                // Duplicate address detection would take a second or more.
                IpAddr::V6(_) => writeln!(batch, "addr add {address}/128 dev eth0 nodad")?,
            }
        }
        for address in others {
            writeln!(batch, "route replace {}", plan.route(address))?;
            writeln!(batch, "neigh replace {address} lladdr {neighbour} dev eth0 nud permanent")?;
        }
        ip(self.side(side), &batch)?;
        self.ecn(side, plan)?;
        self.side(side).run(|| {
            // A closed socket with unsent data would keep its namespace for minutes of retries; one
            // retry is enough. The generators' sockets close with a reset (`socket.rs`); this is
            // for connections that were not accepted yet.
            sysctl("net/ipv4/tcp_orphan_retries", "1")?;
            if matches!(plan.ecn, Ecn::All) {
                sysctl("net/ipv4/tcp_ecn", "1")?;
            }
            // No connection starts with the metrics of an earlier one.
            sysctl("net/ipv4/tcp_no_metrics_save", "1")
        })?
    }
}

impl Plan {
    /// The route to an address of the other side, as words for `ip`.
    fn route(&self, address: &IpAddr) -> String {
        match address {
            IpAddr::V4(_) => format!("{address}/32 dev eth0"),
            // The MTU is fixed, because no router in the middle sends "packet too big".
            IpAddr::V6(_) if self.mtu6 < self.mtu => format!("{address}/128 dev eth0 mtu lock {}", self.mtu6),
            IpAddr::V6(_) => format!("{address}/128 dev eth0"),
        }
    }
}

impl Topology {
    /// If only some connections of a side offer ECN: makes routes with ECN, and rules that select
    /// them for these connections.
    fn ecn(&self, side: Side, plan: &Plan) -> anyhow::Result<()> {
        let Ecn::Some(flows) = &plan.ecn else { return Ok(()) };
        for (family, v6) in [("-4", false), ("-6", true)] {
            let mut batch = String::new();
            for (_, from, to) in flows.iter().filter(|(own, from, _)| *own == side && from.is_ipv6() == v6) {
                writeln!(batch, "route replace {} features ecn table {ECN_TABLE}", plan.route(&to.ip()))?;
                writeln!(
                    batch,
                    "rule add from {from} to {} ipproto tcp dport {} lookup {ECN_TABLE}",
                    to.ip(),
                    to.port()
                )?;
            }
            if !batch.is_empty() {
                tool(self.side(side), "ip", &[family], &batch).context(
                    "some TCP flows have `ecn` and others have not, which needs rules for routes \
                     (CONFIG_IP_MULTIPLE_TABLES)",
                )?;
            }
        }
        Ok(())
    }
}

fn namespace() -> anyhow::Result<Namespace> {
    Namespace::new().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => NotPermitted(
            "network namespaces need root (CAP_SYS_ADMIN and CAP_NET_ADMIN): run it with sudo, or `altq sim` on the \
             same case"
                .into(),
        )
        .into(),
        io::ErrorKind::InvalidInput => {
            Unsupported("this kernel has no network namespaces (CONFIG_NET_NS)".into()).into()
        }
        _ => anyhow::Error::new(error).context("cannot make a network namespace"),
    })
}

/// Sets a kernel setting of the calling thread's namespace.
pub fn sysctl(path: &str, value: &str) -> anyhow::Result<()> {
    let path = format!("/proc/sys/{path}");
    fs::write(&path, value).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => NotPermitted(format!(
            "cannot write {value} to {path} ({error}): run it as root, in a container with a writable /proc/sys"
        ))
        .into(),
        _ => anyhow::Error::new(error).context(format!("cannot write {value} to {path}")),
    })
}

/// Runs lines of `ip -batch` in a namespace. Calling iproute2 costs five calls of about 2 ms of
/// processor time each per topology. The crate neli would add 18 crates and, for rules, metrics and
/// veth peers, more lines than these commands.
pub fn ip(namespace: &Namespace, batch: &str) -> anyhow::Result<()> {
    tool(namespace, "ip", &[], batch)
}

/// Runs lines of `tc -batch` in a namespace.
pub fn tc(namespace: &Namespace, batch: &str) -> anyhow::Result<()> {
    tool(namespace, "tc", &[], batch)
}

fn tool(namespace: &Namespace, name: &str, words: &[&str], batch: &str) -> anyhow::Result<()> {
    namespace.run(|| {
        let mut child = start(name, words)?;
        if let Some(mut stdin) = child.stdin.take() {
            // If the tool has stopped at an earlier line, its error output says why.
            let _ = stdin.write_all(batch.as_bytes());
        }
        let output = child.wait_with_output().with_context(|| format!("`{name}` cannot be waited for"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            if said.contains("Operation not permitted") || said.contains("Permission denied") {
                let way_out = "run it as root, with CAP_NET_ADMIN";
                return Err(NotPermitted(format!("`{name}` refused: {said}: {way_out}")).into());
            }
            bail!("`{name}` refused: {said}");
        }
        Ok(())
    })?
}

/// The output of `tc` with these words, in a namespace.
pub fn tc_shows(namespace: &Namespace, words: &[&str]) -> anyhow::Result<String> {
    namespace.run(|| {
        let output = spawn("tc", |command| command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()))?
            .wait_with_output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    })?
}

/// Starts a tool that reads a batch from its input.
fn start(name: &str, words: &[&str]) -> anyhow::Result<std::process::Child> {
    spawn(name, |command| {
        command.args(words).args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped())
    })
}

/// Starts a tool. An ordinary user's PATH may lack the directories of system programs, so they are
/// tried too.
fn spawn(name: &str, with: impl Fn(&mut Command) -> &mut Command) -> anyhow::Result<std::process::Child> {
    for path in [name.to_string(), format!("/usr/sbin/{name}"), format!("/sbin/{name}")] {
        match with(&mut Command::new(&path)).spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => return other.with_context(|| format!("cannot start `{path}`")),
        }
    }
    Err(Unsupported(format!("`{name}` is missing: install iproute2")).into())
}
