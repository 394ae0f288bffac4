//! A tree of qdiscs, in the kernel's units: rates in bytes a second, times in microseconds.

use altq_engine::spec::ClassId;

use crate::handle::Handle;

/// What a link becomes on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The qdiscs, parents before children; the first is the link's own.
    pub qdiscs: Vec<Qdisc>,
    /// What is charged for a packet in addition to its length, if the classes do not do that
    /// themselves: the size table of the device's own qdisc, the only qdisc that may have one
    /// (`qdisc_graft` in net/sched/sch_api.c).
    pub sizes: Option<SizeTable>,
    /// What the kernel does differently from altq's own paths, one sentence each.
    pub notes: Vec<String>,
}

/// A qdisc, with its classes and filters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qdisc {
    /// Its handle.
    pub handle: Handle,
    /// The class that contains it, or [`Handle::ROOT`].
    pub parent: Handle,
    /// Its kind and its words.
    pub words: QdiscWords,
    /// Its classes, parents before children.
    pub classes: Vec<Class>,
    /// Its filters, in the order in which they are tried.
    pub filters: Vec<Filter>,
    /// The class of the policy whose packets wait in it; `None` if they wait in its classes.
    pub holds: Option<ClassId>,
}

/// A class of a qdisc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its handle.
    pub handle: Handle,
    /// The class above it, or its qdisc.
    pub parent: Handle,
    /// Its words; `None` for a band, which exists with its qdisc.
    pub words: Option<ClassWords>,
    /// The class of the policy that it stands for. The root is the link.
    pub id: ClassId,
}

/// A kind of qdisc, and its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QdiscWords {
    /// tc-htb(8).
    Htb {
        /// Minor number of the class for packets that no filter matches; 0: these pass unshaped.
        default: u16,
    },
    /// tc-hfsc(8).
    Hfsc {
        /// Minor number of the class for packets that no filter matches; 0: these are dropped.
        default: u16,
    },
    /// tc-drr(8).
    Drr,
    /// tc-prio(8).
    Prio {
        /// Number of bands, 2 to 16.
        bands: u8,
        /// The band for packets that no filter matches, from 0 on.
        default: u8,
    },
    /// Drops the arriving packet when it holds so many packets.
    Pfifo {
        /// Packets.
        limit: u32,
    },
    /// Drops the arriving packet when it holds so many bytes.
    Bfifo {
        /// Bytes.
        limit: u32,
    },
    /// Drops the oldest packet when it holds so many.
    HeadDrop {
        /// Packets.
        limit: u32,
    },
    /// tc-codel(8).
    Codel {
        /// Packets.
        limit: u32,
        /// Microseconds.
        target: u32,
        /// Microseconds.
        interval: u32,
        /// Marks instead of dropping.
        ecn: bool,
    },
    /// tc-fq_codel(8).
    FqCodel {
        /// Packets.
        limit: u32,
        /// Queues that flows are hashed into.
        flows: u32,
        /// Bytes a round.
        quantum: u32,
        /// Microseconds.
        target: u32,
        /// Microseconds.
        interval: u32,
        /// The most packets that an overflow drops.
        drop_batch: u32,
        /// Marks instead of dropping.
        ecn: bool,
    },
    /// tc-pie(8).
    Pie {
        /// Packets.
        limit: u32,
        /// Microseconds.
        target: u32,
        /// Microseconds.
        tupdate: u32,
        /// Marks instead of dropping.
        ecn: bool,
    },
    /// tc-red(8).
    Red(RedWords),
    /// tc-sfq(8).
    Sfq {
        /// Packets.
        limit: u32,
        /// The most packets of a flow.
        depth: u32,
        /// The most flows with packets.
        flows: u32,
        /// Queues that flows are hashed into, a power of two.
        divisor: u32,
        /// Bytes a round.
        quantum: u32,
        /// Seconds between two changes of the hash; 0: never.
        perturb: u32,
        /// Drops at the head of a flow.
        headdrop: bool,
    },
    /// tc-cake(8), with one tin.
    Cake {
        /// Bytes a second; 0: unlimited.
        rate: u64,
        /// What is isolated, and its number (linux/pkt_sched.h, `CAKE_FLOW_…`).
        isolation: (&'static str, u32),
        /// Microseconds.
        rtt: u32,
        /// Bytes of buffers.
        memory: u32,
        /// What it charges for a packet in addition to its length at layer 3.
        sizes: Option<SizeTable>,
    },
}

impl QdiscWords {
    /// The kernel's name of its kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            QdiscWords::Htb { .. } => "htb",
            QdiscWords::Hfsc { .. } => "hfsc",
            QdiscWords::Drr => "drr",
            QdiscWords::Prio { .. } => "prio",
            QdiscWords::Pfifo { .. } => "pfifo",
            QdiscWords::Bfifo { .. } => "bfifo",
            QdiscWords::HeadDrop { .. } => "pfifo_head_drop",
            QdiscWords::Codel { .. } => "codel",
            QdiscWords::FqCodel { .. } => "fq_codel",
            QdiscWords::Pie { .. } => "pie",
            QdiscWords::Red(_) => "red",
            QdiscWords::Sfq { .. } => "sfq",
            QdiscWords::Cake { .. } => "cake",
        }
    }
}

/// The words of a RED: those of the kernel and those of tc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedWords {
    /// Bytes.
    pub limit: u32,
    /// Bytes.
    pub min: u32,
    /// Bytes.
    pub max: u32,
    /// A new length enters the average with a weight of 1/2^this.
    pub weight: u8,
    /// A burst, in packets, for which tc computes this weight.
    pub burst: u32,
    /// Usual length of a packet, bytes.
    pub packet: u32,
    /// Drop probability just below max, in billionths.
    pub probability: u32,
    /// The rate at which the average decays in idle time, in bytes a second.
    pub rate: u64,
    /// Marks instead of dropping.
    pub ecn: bool,
    /// With `ecn`: drops from max on.
    pub harddrop: bool,
}

/// The words of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassWords {
    /// A class of an htb.
    Htb {
        /// Bytes a second.
        rate: u64,
        /// Bytes a second.
        ceil: u64,
        /// Bytes.
        burst: u64,
        /// Bytes.
        cburst: u64,
        /// 0 to 7, 0 first.
        prio: u8,
        /// Bytes a round.
        quantum: u32,
        /// Bytes that its tokens are charged in addition to a packet's length.
        overhead: u16,
        /// The fewest bytes that its tokens are charged for a packet.
        mpu: u16,
        /// Its tokens are charged in whole ATM cells.
        atm: bool,
    },
    /// A class of an hfsc.
    Hfsc {
        /// Real time.
        rt: Option<Curve>,
        /// Link sharing.
        ls: Option<Curve>,
        /// Upper limit.
        ul: Option<Curve>,
    },
    /// A class of a drr.
    Drr {
        /// Bytes a round.
        quantum: u32,
    },
}

/// A service curve of two pieces (`struct tc_service_curve`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    /// The first slope, bytes a second.
    pub first: u32,
    /// How long it lasts, microseconds.
    pub until: u32,
    /// The second slope, bytes a second.
    pub then: u32,
}

/// What is charged for a packet in addition to the length that the kernel sees (tc-stab(8)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeTable {
    /// Bytes added; may be negative.
    pub overhead: i32,
    /// The smallest charged length, with the overhead, before it is rounded to cells.
    pub mpu: u32,
    /// How it is framed.
    pub layer: Layer,
}

/// Framing below layer 2, as in tc-stab(8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Bytes as they are.
    Ethernet,
    /// Cells of ATM.
    Atm,
    /// PTM, 64b/65b, which only cake knows.
    Ptm,
}

/// A filter of a qdisc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The qdisc.
    pub parent: Handle,
    /// The priority (`pref` of tc). The kernel tries filters with a smaller one first.
    pub prio: u16,
    /// The packets that it examines.
    pub protocol: Protocol,
    /// What it compares.
    pub matches: Match,
    /// Where a packet that matches goes.
    pub to: Target,
    /// The table of u32 in which it stands, 1 to [`Filter::TABLES`]; 0 for a filter that the kernel
    /// tries by itself.
    pub table: u16,
    /// The rule of the policy that it comes from, an index into its list; `None` for the default.
    pub rule: Option<u32>,
}

impl Filter {
    /// The highest number that a table may get (0x7ff: those above are the kernel's own).
    pub const TABLES: u16 = 0x7ff;
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a class.
    Class(Handle),
    /// It is compared with the filters of this table of u32. If none of them matches, the filter
    /// behind this one is tried.
    Table(u16),
    /// The packet is dropped.
    Drop,
}

/// The packets that a filter examines, by EtherType.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// All.
    All,
    /// IPv4.
    Ip,
    /// IPv6.
    Ipv6,
    /// IEEE 802.1Q.
    Vlan,
}

impl Protocol {
    /// Its number (linux/if_ether.h).
    pub const fn number(self) -> u16 {
        match self {
            Protocol::All => 0x0003,
            Protocol::Ip => 0x0800,
            Protocol::Ipv6 => 0x86dd,
            Protocol::Vlan => 0x8100,
        }
    }

    /// Its name in tc.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::All => "all",
            Protocol::Ip => "ip",
            Protocol::Ipv6 => "ipv6",
            Protocol::Vlan => "802.1Q",
        }
    }
}

/// What a filter compares.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Match {
    /// tc-u32(8): words of 32 bits of the packet, from its network header on.
    U32 {
        /// All of these must match.
        keys: Vec<Key>,
        /// The firewall mark: value and mask.
        mark: Option<(u32, u32)>,
        /// The interface by which the packet came.
        indev: Option<String>,
    },
    /// tc-flower(8).
    Flower(Box<FlowerKeys>),
    /// tc-fw(8): the firewall mark under a mask.
    Mark {
        /// The value.
        value: u32,
        /// The bits that are compared.
        mask: u32,
    },
}

impl Match {
    /// The kernel's name of the classifier.
    pub const fn kind(&self) -> &'static str {
        match self {
            Match::U32 { .. } => "u32",
            Match::Flower(_) => "flower",
            Match::Mark { .. } => "fw",
        }
    }
}

/// A word of 32 bits of a packet, in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Its offset from the network header, in bytes.
    pub offset: u16,
    /// The value.
    pub value: u32,
    /// The bits that are compared.
    pub mask: u32,
}

/// The fields that flower compares. A field that is `None` may be anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowerKeys {
    /// IP protocol.
    pub proto: Option<u8>,
    /// Source prefix: address and bits. An IPv4 address is in the low 32 bits.
    pub src: Option<(u128, u8)>,
    /// Destination prefix.
    pub dst: Option<(u128, u8)>,
    /// Source ports, first and last.
    pub sport: Option<(u16, u16)>,
    /// Destination ports, first and last.
    pub dport: Option<(u16, u16)>,
    /// TOS or traffic class: value and mask.
    pub tos: Option<(u8, u8)>,
    /// TCP flags: value and mask.
    pub tcp_flags: Option<(u8, u8)>,
    /// Identifier of the VLAN.
    pub vlan: Option<u16>,
    /// What follows the VLAN tag: true for IPv6, false for IPv4.
    pub inner_v6: Option<bool>,
    /// The interface by which the packet came.
    pub indev: Option<String>,
}
