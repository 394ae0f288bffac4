//! Case files: one experiment, its topology, policy, traffic and what must come out. The same file runs in virtual time
//! (`altq sim`) and in network namespaces (`altq lab`). docs/cases.md describes every key.

mod check;
mod error;
mod expect;
mod file;
mod measure;
mod raw;
mod template;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use altq_config::Language;
use altq_engine::settings::Limit;
use altq_engine::spec::Timer;
use altq_engine::units::{Nanos, Rate};

pub use error::CaseError;
pub use file::{CaseFile, Comparison, Judged, NotReproduced, Published, Row, Run};
pub use measure::{Bound, Expectation, Figure, Figured, Measure, Probe, Shown, Subject, UNITS, Unit};
pub use template::Values;

/// A checked case. Names of hosts, links and flows in it exist; names of classes are checked when its policy is read.
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
}

/// A link, full duplex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseLink {
    /// Its name.
    pub name: String,
    /// The host at one end, as a place in [`Case::hosts`].
    pub from: usize,
    /// The host at the other.
    pub to: usize,
    /// Rate of the wire, each way. `None`: that of the policy's link.
    pub rate: Option<Rate>,
    /// Propagation delay, each way.
    pub delay: Nanos,
    /// The policy's link that governs what goes from `from` to `to`; `None`: a plain FIFO.
    pub policy: Option<String>,
    /// The policy's link that governs the other way; `None`: a plain FIFO.
    pub reverse: Option<String>,
    /// Limit of a plain FIFO.
    pub queue: Limit,
    /// Packets that the driver holds, the one on the wire included.
    pub tx_ring: usize,
    /// Transmit queues of the driver, each with such a ring and its own instance of the policy.
    pub tx_queues: usize,
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
    /// Bytes that they charge beyond a packet's length at layer 3, where its language cannot state them.
    pub overhead: Option<i32>,
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
    /// The class in which its packets must be: another one makes the result invalid. Rules decide, not this.
    pub class: Option<String>,
    /// Source port; with several streams the first one's. TCP: 0 leaves it to the system.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// DSCP, 0 to 63.
    pub dscp: u8,
    /// UDP in the simulator: its packets go first in the queue `two_level`, as those that open connections do.
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
        /// Congestion control by the system's name; `None`: the system's default.
        congestion: Option<String>,
        /// SO_SNDBUF and SO_RCVBUF of both ends, in bytes; `None`: the system's choice.
        buffers: Option<u32>,
    },
    /// TCP that asks and waits for the answer, over and over.
    TcpRr {
        /// Connections side by side.
        streams: u32,
        /// Bytes of a request.
        request: u32,
        /// Bytes of an answer.
        response: u32,
    },
    /// The packets of a capture, at the times that they have there.
    Pcap {
        /// The file, pcap or pcapng.
        file: PathBuf,
        /// How many times faster than it was captured.
        speed: f64,
    },
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
        /// True: lengths are drawn from exponential distributions with these means.
        random: bool,
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
    /// Reads and checks a case file.
    pub fn load(path: &Path) -> Result<Case, CaseError> {
        let text = std::fs::read(path).map_err(|error| CaseError::plain(path, format!("it cannot be read: {error}")))?;
        let text = String::from_utf8(text)
            .map_err(|error| CaseError::plain(path, format!("byte {} is not UTF-8 text", error.utf8_error().valid_up_to())))?;
        Case::parse(&text, path)
    }

    /// Checks a case's text. `path` is what messages call it; files that it names are looked for beside that.
    pub fn parse(text: &str, path: &Path) -> Result<Case, CaseError> {
        let mut file = CaseFile::parse(text, path)?;
        match (file.runs.pop(), file.runs.is_empty()) {
            (Some(run), true) if !file.is_table() => Ok(run.case),
            _ => Err(CaseError::plain(path, "it has rows, or columns with values of their own; only `altq sim` can run it".into())),
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

    /// How a result names an expectation: the name alone, or `CASE/COLUMN/ROW/NAME` of what of these there is.
    pub fn expectation_name(&self, column: &Column, name: &str) -> String {
        if column.name.is_none() && self.row.is_none() {
            return name.to_string();
        }
        let parts = [Some(self.name.as_str()), column.name.as_deref(), self.row.as_deref(), Some(name).filter(|n| !n.is_empty())];
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
                let text = std::fs::read_to_string(&path).map_err(|error| PolicyError::Text(format!("{shown}: {error}")))?;
                let Some(language) = self.language.or_else(|| Language::of(&path, &text)) else {
                    return Err(PolicyError::Text(format!("{shown}: its name does not tell its language; write language")));
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
