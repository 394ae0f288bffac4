//! Case files: one experiment, its topology, policy, traffic and what must come out. The same file
//! runs in virtual time (`altq sim`) and in network namespaces (`altq lab`). docs/cases.md
//! describes every key.

mod check;
mod error;
mod expect;
mod file;
mod flows;
mod links;
mod measure;
mod raw;
mod template;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use altq_config::Language;
use altq_engine::link::{Framing, Overhead};
use altq_engine::settings::Limit;
use altq_engine::spec::Timer;
use altq_engine::units::{Nanos, Rate};

pub use error::CaseError;
pub use file::{CaseFile, Comparison, Judged, NotReproduced, Published, Row, Run};
pub use measure::{Bound, Expectation, Figure, Figured, Measure, Probe, Shown, Subject, UNITS, Unit};
pub use template::Values;

use crate::world::World;

/// A checked case. Names of hosts, links and flows in it exist; names of classes are checked when
/// its policy is read.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name: letters, digits, `-`, `_`, `.`, `/`.
    pub name: String,
    /// What it shows.
    pub description: String,
    /// Seed of every random choice, unless one is given on the command line.
    pub seed: u64,
    /// How long traffic runs.
    pub duration: Nanos,
    /// What is measured begins here, where nothing else is said.
    pub warmup: Nanos,
    /// In the lab, hosts send super-packets as network cards with segmentation offload let them.
    pub offload: bool,
    /// Hosts and routers.
    pub hosts: Vec<Host>,
    /// Links between them, full duplex.
    pub links: Vec<CaseLink>,
    /// The world in which alone it makes sense.
    pub only: Option<Only>,
    /// It asks more of the host than it can do: in the lab what is lost or late for that reason
    /// makes no result invalid.
    pub overload: bool,
    /// In the lab, how often each row and column runs, in turn; medians count.
    pub turns: u32,
    /// The policies to run it with, at least one.
    pub columns: Vec<Column>,
    /// The traffic.
    pub flows: Vec<Flow>,
    /// What changes on the way, by time.
    pub events: Vec<TimedEvent>,
    /// What must come out.
    pub expectations: Vec<Expectation>,
    /// What is measured in every row.
    pub figures: Vec<Figure>,
    /// The row of the file that this is; `None` where it has none.
    pub row: Option<String>,
    /// The file's folder: other files are named from there.
    pub folder: PathBuf,
}

/// A host or router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its address; 10.0.0.N, N its place in the file from 1, where none is given.
    pub address: IpAddr,
    /// How long it takes to get round to a packet that comes, to pass it on or for itself;
    /// simulator only.
    pub delay: Nanos,
}

/// A link, full duplex.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseLink {
    /// Its name.
    pub name: String,
    /// The host at one end, as a place in [`Case::hosts`].
    pub from: usize,
    /// The host at the other.
    pub to: usize,
    /// From `from` to `to`, and the other way.
    pub ways: [Way; 2],
    /// What a packet is on the wire; `None`: what the policy charges for it, and its own bytes
    /// where there is none.
    pub medium: Option<Medium>,
    /// Both ways share one medium, by CSMA/CD.
    pub half_duplex: bool,
    /// The largest packet; `None`: the policy's, and 1500 bytes without one.
    pub mtu: Option<u32>,
    /// IPv6 packets cross it in IPv4.
    pub tunnel: Option<Tunnel>,
    /// The policy's link that governs what goes from `from` to `to`; `None`: a plain FIFO.
    pub policy: Option<String>,
    /// The policy's link that governs the other way; `None`: a plain FIFO.
    pub reverse: Option<String>,
    /// Packets that the driver holds, the one on the wire included.
    pub tx_ring: usize,
    /// Transmit queues of the driver, each with such a ring and its own instance of the policy.
    pub tx_queues: usize,
    /// With several transmit queues: bytes of a packet that a slot of a ring takes, the headers in
    /// one of their own; `None`: all of it.
    pub tx_buffer: Option<u32>,
}

/// One way of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// Rate of the wire. `None`: that of the policy's link.
    pub rate: Option<Rate>,
    /// Propagation delay.
    pub delay: Nanos,
    /// A packet takes up to so much longer, each span with equal chance.
    pub jitter: Nanos,
    /// Jitter lets none overtake another.
    pub keep_order: bool,
    /// What is lost on the way.
    pub loss: Loss,
    /// This share of the packets, from 0 to 1, is held back, and may be overtaken.
    pub reorder: f64,
    /// For so long.
    pub reorder_delay: Nanos,
    /// Limit of a plain FIFO.
    pub queue: Limit,
}

impl Default for Way {
    fn default() -> Way {
        Way {
            rate: None,
            delay: 0,
            jitter: 0,
            keep_order: true,
            loss: Loss::None,
            reorder: 0.0,
            reorder_delay: 0,
            queue: Limit::Packets(1000),
        }
    }
}

/// What a medium loses, in probabilities from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Nothing.
    None,
    /// Every packet with the same chance.
    Random(f64),
    /// The two states of Gilbert (1960) and Elliott (1963), which may change before every packet.
    Bursts {
        /// From good to bad.
        enter: f64,
        /// From bad to good.
        leave: f64,
        /// Loss while good.
        good: f64,
        /// Loss while bad.
        bad: f64,
    },
}

/// What a packet is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Preamble, header, checksum and gap: 38 bytes; 84 in all at least (IEEE 802.3).
    Ethernet,
    /// AAL5 with LLC/SNAP (RFC 2684 5.1): 16 bytes more, in cells of 48 that are 53 on the wire.
    Atm,
    /// AAL5 with VC multiplexing (RFC 2684 6.1): 8 bytes more.
    AtmVcMux,
}

impl Medium {
    /// What it adds.
    pub fn overhead(self) -> Overhead {
        match self {
            Medium::Ethernet => Overhead { bytes: 38, mpu: 84, framing: Framing::Plain },
            Medium::Atm => Overhead { bytes: 16, mpu: 0, framing: Framing::Atm },
            Medium::AtmVcMux => Overhead { bytes: 8, mpu: 0, framing: Framing::Atm },
        }
    }
}

/// IPv6 in IPv4, protocol 41, with the DSCP and ECN field of what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunnel {
    /// Between two configured addresses (RFC 4213 3): that of the link's `from`, and of its `to`.
    Configured([Ipv4Addr; 2]),
    /// The addresses stand in those of IPv6, 2002:V4ADDR::/48 (RFC 3056); any other is behind the
    /// relay 192.88.99.1 (RFC 3068).
    SixToFour,
}

impl Tunnel {
    /// Bytes that it adds: a header of IPv4.
    pub const HEADER: u32 = 20;

    /// Source and destination of the header before an IPv6 packet from `src` to `dst`; `back`: from
    /// the link's `to` to its `from`.
    pub fn ends(self, src: Ipv6Addr, dst: Ipv6Addr, back: bool) -> [Ipv4Addr; 2] {
        match self {
            Tunnel::Configured([from, to]) if back => [to, from],
            Tunnel::Configured(ends) => ends,
            Tunnel::SixToFour => [outside(src), outside(dst)],
        }
    }
}

/// The IPv4 address in one of 6to4, 2002:V4ADDR::/48 (RFC 3056 2); a relay's for any other (RFC
/// 3068 2.4).
fn outside(v6: Ipv6Addr) -> Ipv4Addr {
    match v6.octets() {
        [0x20, 0x02, a, b, c, d, ..] => Ipv4Addr::new(a, b, c, d),
        _ => Ipv4Addr::new(192, 88, 99, 1),
    }
}

/// A policy to run the case with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name; `None` where the case has only one policy, named at its top.
    pub name: Option<String>,
    /// Where the policy is.
    pub policy: PolicySource,
    /// Its language; `None`: told by the file's name, and native for a text.
    pub language: Option<Language>,
    /// When the scheduler's timers can fire.
    pub timer: Timer,
    /// Stretches of the policy's text that give way to others: each is there exactly once.
    pub replace: Vec<(String, String)>,
    /// The MTU of the policy's links, where its language cannot state one.
    pub mtu: Option<u32>,
    /// Bytes that they charge beyond a packet's length at layer 3, where its language cannot state
    /// them.
    pub overhead: Option<i32>,
    /// The world in which alone it makes sense.
    pub only: Option<Only>,
}

/// The world in which alone a case or a column makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Only {
    /// The world.
    pub world: World,
    /// Why not in the other one.
    pub reason: String,
}

/// Where a policy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicySource {
    /// In the case itself.
    Text(String),
    /// In this file.
    File(PathBuf),
}

/// Some traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// Who sends, as a place in [`Case::hosts`]. For request/response: who asks.
    pub from: usize,
    /// Who receives.
    pub to: usize,
    /// The class in which its packets must be: another one makes the result invalid. Rules decide,
    /// not this.
    pub class: Option<String>,
    /// Source port; with several streams the first one's. TCP: 0 leaves it to the system.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// DSCP, 0 to 63.
    pub dscp: u8,
    /// UDP in the simulator: its packets go first in the queue `two_level`, as those that open
    /// connections do.
    pub high: bool,
    /// Spans of time in which it sends, in order, none overlapping.
    pub active: Vec<(Nanos, Nanos)>,
    /// What it is.
    pub kind: Kind,
}

/// Kinds of traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// UDP that nothing holds back.
    Udp(Udp),
    /// TCP that always has something to send.
    TcpBulk {
        /// Connections side by side.
        streams: u32,
        /// The ends.
        tcp: Tcp,
    },
    /// TCP that asks and waits for the answer, over and over.
    TcpRr {
        /// Connections side by side.
        streams: u32,
        /// Bytes of a request.
        request: u32,
        /// Bytes of an answer.
        response: u32,
        /// The ends.
        tcp: Tcp,
    },
    /// Clients that open a connection, ask, hear the answer, and close it, over and over.
    TcpConnect {
        /// Clients side by side.
        streams: u32,
        /// Bytes of a request.
        request: u32,
        /// Bytes of an answer.
        response: u32,
        /// A client's port rests for twice this once its connection is closed (RFC 9293 3.4.1).
        msl: Nanos,
        /// The ends.
        tcp: Tcp,
    },
    /// A datagram asks and another answers, over and over.
    UdpRr {
        /// Who ask side by side.
        streams: u32,
        /// Payload of a request.
        request: u32,
        /// Payload of an answer.
        response: u32,
        /// What is not answered by then is asked again.
        retry: Nanos,
    },
    /// The packets of a capture, at the times that they have there.
    Pcap {
        /// The file, pcap or pcapng.
        file: PathBuf,
        /// How many times faster than it was captured.
        speed: f64,
    },
}

impl Kind {
    /// The ends of its connections, where it is TCP.
    pub fn tcp(&self) -> Option<&Tcp> {
        match self {
            Kind::TcpBulk { tcp, .. } | Kind::TcpRr { tcp, .. } | Kind::TcpConnect { tcp, .. } => Some(tcp),
            Kind::Udp(_) | Kind::UdpRr { .. } | Kind::Pcap { .. } => None,
        }
    }

    /// Its word in a case.
    pub fn word(&self) -> &'static str {
        match self {
            Kind::Udp(_) => "udp",
            Kind::UdpRr { .. } => "udp_rr",
            Kind::TcpBulk { .. } => "tcp_bulk",
            Kind::TcpRr { .. } => "tcp_rr",
            Kind::TcpConnect { .. } => "tcp_connect",
            Kind::Pcap { .. } => "pcap",
        }
    }

    /// How many run side by side.
    pub fn streams(&self) -> u32 {
        match self {
            Kind::TcpBulk { streams, .. }
            | Kind::TcpRr { streams, .. }
            | Kind::TcpConnect { streams, .. }
            | Kind::UdpRr { streams, .. } => *streams,
            Kind::Udp(_) | Kind::Pcap { .. } => 1,
        }
    }
}

/// The ends of a TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Congestion control by the system's name; `None`: the system's default, CUBIC in the
    /// simulator.
    pub congestion: Option<String>,
    /// SO_SNDBUF and SO_RCVBUF of both ends, in bytes; `None`: the system's choice.
    pub buffers: Option<u32>,
    /// What the ends do; simulator only.
    pub stack: Stack,
    /// Payload of a full segment; `None`: what the way's MTU leaves.
    pub mss: Option<u32>,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// Streams start one after another over so long.
    pub stagger: Nanos,
    /// Both ends hand super-packets of up to 65,535 bytes to their card, which cuts them
    /// (simulator; the lab's do as the case's `offload` says).
    pub tso: bool,
}

/// A TCP of its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    /// What Linux does today.
    #[default]
    Linux,
    /// What BSD did in 1997.
    Bsd,
}

/// A UDP source.
#[derive(Clone, Debug, PartialEq)]
pub struct Udp {
    /// Sizes of packets at layer 3; of several, each packet's is drawn with equal chance.
    pub sizes: Vec<u32>,
    /// When they are sent.
    pub shape: Shape,
}

/// When a UDP source sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// At a constant pace.
    Constant(Pace),
    /// At a constant pace for a while, then silent for a while, over and over.
    OnOff {
        /// The pace while on.
        pace: Pace,
        /// How long on.
        on: Nanos,
        /// How long off.
        off: Nanos,
        /// How these spans vary about their means.
        spans: Spans,
    },
    /// A program on the host of the queue: the next packet comes so long after the last was taken;
    /// after a drop there (ENOBUFS) it sleeps until the next tick of the column's timer.
    Local {
        /// From one packet to the next.
        gap: Nanos,
        /// How long it sleeps at least.
        sleep: Nanos,
    },
    /// A Poisson process of this mean pace.
    Poisson(Pace),
    /// Packets back to back, at intervals.
    Bursts {
        /// Packets in a burst.
        packets: u32,
        /// From the start of one to the start of the next.
        every: Nanos,
    },
}

/// How spans of time vary about their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spans {
    /// They do not.
    Fixed,
    /// Exponential.
    Exponential,
    /// Pareto with this shape, above 1: the least is mean·(shape-1)/shape.
    Pareto(f64),
}

/// How fast a source sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Bits of packets at layer 3 a second, the fraction of a nanosecond carried.
    Rate(Rate),
    /// A packet at every multiple of this.
    Interval(Nanos),
}

/// Something that changes on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedEvent {
    /// When.
    pub at: Nanos,
    /// What.
    pub what: What,
}

/// What changes.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// The link's rate, and that of its wire. Classes keep the rates that they have.
    LinkRate {
        /// Which, as a place in [`Case::links`].
        link: usize,
        /// The new rate.
        rate: Rate,
    },
    /// Words of a class; words not given stay.
    SetClass {
        /// Which.
        class: String,
        /// Another parent.
        parent: Option<String>,
        /// The words.
        set: Vec<(String, WordValue)>,
    },
    /// A new class. Packets of `flows` go there.
    AddClass {
        /// Its name.
        class: String,
        /// The class above; `None`: the link.
        parent: Option<String>,
        /// Its words.
        set: Vec<(String, WordValue)>,
        /// Flows whose packets go there, as places in [`Case::flows`].
        flows: Vec<usize>,
    },
    /// A class goes, and the rules that lead to it.
    RemoveClass {
        /// Which.
        class: String,
        /// Who gets its packets; `None`: they are dropped.
        heir: Option<String>,
    },
    /// A flow starts or stops sending, whatever its times say.
    FlowActive {
        /// Which, as a place in [`Case::flows`].
        flow: usize,
        /// True: it sends from now on.
        active: bool,
    },
    /// A UDP flow's pace.
    FlowRate {
        /// Which, as a place in [`Case::flows`].
        flow: usize,
        /// The new rate.
        rate: Rate,
    },
}

/// A word's value in a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WordValue {
    /// With its unit, or a word.
    Text(String),
    /// A number.
    Number(u64),
    /// A flag that is set, or not.
    Flag(bool),
}

impl Case {
    /// Why a column of it does not make sense in a world; `None` if it does.
    pub fn elsewhere<'a>(&'a self, column: &'a Column, world: World) -> Option<&'a str> {
        let only = [&column.only, &self.only].into_iter().flatten().find(|only| only.world != world)?;
        Some(&only.reason)
    }

    /// Reads and checks a case file.
    pub fn load(path: &Path) -> Result<Case, CaseError> {
        let text =
            std::fs::read(path).map_err(|error| CaseError::plain(path, format!("it cannot be read: {error}")))?;
        let text = String::from_utf8(text).map_err(|error| {
            CaseError::plain(path, format!("byte {} is not UTF-8 text", error.utf8_error().valid_up_to()))
        })?;
        Case::parse(&text, path)
    }

    /// Checks a case's text. `path` is what messages call it; files that it names are looked for
    /// beside that.
    pub fn parse(text: &str, path: &Path) -> Result<Case, CaseError> {
        let mut file = CaseFile::parse(text, path)?;
        match (file.runs.pop(), file.runs.is_empty()) {
            (Some(run), true) if !file.is_table() => Ok(run.case),
            _ => Err(CaseError::plain(
                path,
                "it has rows, or columns with values of their own; only `altq sim` can run it".into(),
            )),
        }
    }

    /// Everything that it asks to be measured: by its expectations and by its figures.
    pub fn probes(&self) -> impl Iterator<Item = (&str, &Probe)> {
        let expectations = self.expectations.iter().map(|e| (e.name.as_str(), &e.probe));
        expectations.chain(self.figures.iter().filter_map(|f| f.probe().map(|p| (f.name.as_str(), p))))
    }

    /// The host of a name.
    pub fn host(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.name == name)
    }

    /// How a result names an expectation: the name alone, or `CASE/COLUMN/ROW/NAME` of what of
    /// these there is.
    pub fn expectation_name(&self, column: &Column, name: &str) -> String {
        if column.name.is_none() && self.row.is_none() {
            return name.to_string();
        }
        let parts = [
            Some(self.name.as_str()),
            column.name.as_deref(),
            self.row.as_deref(),
            Some(name).filter(|n| !n.is_empty()),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("/")
    }
}

impl Column {
    /// Reads its policy.
    pub fn load(&self, case: &Case) -> Result<altq_config::Policy, PolicyError> {
        let name = case.folder.join(format!("{} (policy)", case.name.replace('/', "_"))).to_string_lossy().into_owned();
        let (text, name, language) = match &self.policy {
            PolicySource::Text(text) => (text.clone(), name, self.language.unwrap_or(Language::Native)),
            PolicySource::File(file) if self.replace.is_empty() => {
                return Ok(self.dress(altq_config::load(&case.folder.join(file), self.language)?));
            }
            PolicySource::File(file) => {
                let path = case.folder.join(file);
                let shown = path.display().to_string();
                let text =
                    std::fs::read_to_string(&path).map_err(|error| PolicyError::Text(format!("{shown}: {error}")))?;
                let Some(language) = self.language.or_else(|| Language::of(&path, &text)) else {
                    return Err(PolicyError::Text(format!(
                        "{shown}: its name does not tell its language; write language"
                    )));
                };
                (text, shown, language)
            }
        };
        let text = self.replaced(text).map_err(|error| PolicyError::Text(format!("{name}: {error}")))?;
        Ok(self.dress(altq_config::parse_str(&text, &name, language)?))
    }

    fn replaced(&self, mut text: String) -> Result<String, String> {
        for (find, with) in &self.replace {
            let times = text.matches(find.as_str()).count();
            if times != 1 {
                return Err(format!("{find:?} is to be replaced, and is there {times} times, not once"));
            }
            text = text.replacen(find.as_str(), with, 1);
        }
        Ok(text)
    }

    /// What the policy's language cannot say.
    fn dress(&self, mut policy: altq_config::Policy) -> altq_config::Policy {
        for link in &mut policy.links {
            if let Some(mtu) = self.mtu {
                link.spec.mtu = mtu;
            }
            if let Some(bytes) = self.overhead {
                link.spec.overhead = altq_engine::link::Overhead { bytes, ..link.spec.overhead };
            }
        }
        policy
    }
}

/// Why a column's policy cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It is refused.
    #[error("{0}")]
    Refused(#[from] Box<altq_config::Failed>),
    /// Its text is not there, or not what the case takes it for.
    #[error("{0}")]
    Text(String),
}
