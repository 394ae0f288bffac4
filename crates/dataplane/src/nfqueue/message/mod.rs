//! The messages of nfnetlink_queue, by which the kernel hands packets to a program and takes
//! verdicts back (linux/netfilter/nfnetlink_queue.h).
//!
//! A netlink message is a header of 16 bytes (`struct nlmsghdr`: length, type, flags, sequence
//! number, port), for netfilter one of 4 bytes (`struct nfgenmsg`: family, version, and the number
//! of the queue), and attributes: length, type, value, padded to 4 bytes. Lengths and types of
//! netlink are in the machine's byte order, netfilter's values in network order.
//!
//! Nothing here calls the kernel, and nothing is allocated for a packet: messages are read where
//! they lie, and written to a buffer that keeps its memory.

/// Bytes of a netlink message's header.
const HEADER: usize = 16;
/// Bytes of the two headers together.
const HEADERS: usize = HEADER + 4;

// linux/netlink.h
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
/// The type of an attribute, without the flags for nested attributes and for byte order.
const NLA_TYPE_MASK: u16 = 0x3fff;

// linux/netfilter/nfnetlink.h
const NFNL_SUBSYS_QUEUE: u16 = 3;

// linux/netfilter/nfnetlink_queue.h
const NFQNL_MSG_PACKET: u16 = NFNL_SUBSYS_QUEUE << 8;
const NFQNL_MSG_VERDICT: u16 = NFNL_SUBSYS_QUEUE << 8 | 1;
const NFQNL_MSG_CONFIG: u16 = NFNL_SUBSYS_QUEUE << 8 | 2;
const NFQNL_MSG_VERDICT_BATCH: u16 = NFNL_SUBSYS_QUEUE << 8 | 3;
const NFQA_PACKET_HDR: u16 = 1;
const NFQA_VERDICT_HDR: u16 = 2;
const NFQA_MARK: u16 = 3;
const NFQA_IFINDEX_INDEV: u16 = 5;
const NFQA_IFINDEX_OUTDEV: u16 = 6;
const NFQA_IFINDEX_PHYSINDEV: u16 = 7;
const NFQA_PAYLOAD: u16 = 10;
const NFQA_CT: u16 = 11;
const NFQA_CT_INFO: u16 = 12;
const NFQA_CAP_LEN: u16 = 13;
const NFQA_SKB_INFO: u16 = 14;
const NFQA_VLAN: u16 = 19;
const NFQA_VLAN_PROTO: u16 = 1;
const NFQA_VLAN_TCI: u16 = 2;
const NFQA_SKB_GSO: u32 = 2;
const NFQA_CFG_CMD: u16 = 1;
const NFQA_CFG_PARAMS: u16 = 2;
const NFQA_CFG_QUEUE_MAXLEN: u16 = 3;
const NFQA_CFG_MASK: u16 = 4;
const NFQA_CFG_FLAGS: u16 = 5;
const NFQNL_CFG_CMD_BIND: u8 = 1;
const NFQNL_COPY_PACKET: u8 = 2;
const NFQA_CFG_F_FAIL_OPEN: u32 = 1;
const NFQA_CFG_F_CONNTRACK: u32 = 2;
const NFQA_CFG_F_GSO: u32 = 4;

// linux/netfilter/nfnetlink_conntrack.h
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_PROTO_SRC_PORT: u16 = 2;

// linux/netfilter/nf_conntrack_common.h: from this number on a packet travels in the direction of
// the answers.
const IP_CT_IS_REPLY: u32 = 3;

/// A verdict on a packet (linux/netfilter.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel frees it.
    Drop,
    /// It goes on after the rule that queued it.
    Accept,
}

impl Verdict {
    fn number(self) -> u32 {
        match self {
            Verdict::Drop => 0,
            Verdict::Accept => 1,
        }
    }
}

/// A packet that waits in the kernel for its verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its number in its queue, for the verdict.
    pub id: u32,
    /// Its EtherType.
    pub protocol: u16,
    /// Its firewall mark.
    pub mark: u32,
    /// The index of the interface by which it came in; of the bridge, if that was a port of one. 0
    /// for a local packet.
    pub input: u32,
    /// The index of the port of a bridge by which it came in; 0 if it came by none.
    pub port: u32,
    /// The index of the interface by which it leaves; 0 if that is not known yet.
    pub output: u32,
    /// Its length from layer 3 on, in bytes. It is more than that of `head` if only the first bytes
    /// were copied.
    pub len: u32,
    /// True for a super-packet, which will be segmented later.
    pub gso: bool,
    /// TPID and TCI of a VLAN tag that is stored beside the packet, as on bridges.
    pub vlan: Option<(u16, u16)>,
    /// Its destination after the kernel's translation (NAT); `None` if the kernel does not tell.
    pub behind: Option<Behind>,
    /// Its first bytes, from layer 3 on.
    pub head: &'a [u8],
}

/// The destination of a packet after NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The address. An IPv4 address is in the low 32 bits.
    pub address: u128,
    /// The port, if the protocol has one.
    pub port: Option<u16>,
}

/// A message from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A packet.
    Packet(Packet<'a>),
    /// The answer to a request: 0, or the number of an error.
    Answer {
        /// The sequence number of the request.
        sequence: u32,
        /// The error's number (errno), 0 for none.
        error: i32,
    },
    /// A message of another kind.
    Other,
    /// A message whose length is wrong, or a packet without number or bytes. What follows a wrong
    /// length cannot be read.
    Broken,
}

/// The messages of one datagram, in order.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Reads the messages of a datagram.
    pub fn new(datagram: &'a [u8]) -> Messages<'a> {
        Messages { rest: datagram }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let rest = std::mem::take(&mut self.rest);
        let len = native_u32(rest, 0).map_or(0, |len| len as usize);
        let Some(message) = rest.get(..len).filter(|message| message.len() >= HEADER) else {
            return Some(Message::Broken);
        };
        self.rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(read(message))
    }
}

/// Reads a message, header included.
fn read(message: &[u8]) -> Message<'_> {
    match native_u16(message, 4) {
        Some(NFQNL_MSG_PACKET) => packet(message).map_or(Message::Broken, Message::Packet),
        // struct nlmsgerr: the error, negative, then the header of the request.
        Some(NLMSG_ERROR) => match (native_u32(message, HEADER), native_u32(message, HEADER + 12)) {
            (Some(error), Some(sequence)) => Message::Answer { sequence, error: (error as i32).saturating_neg() },
            _ => Message::Broken,
        },
        Some(_) => Message::Other,
        None => Message::Broken,
    }
}

/// Reads a packet's attributes. `None` without a number or without bytes, or if an attribute is
/// longer than the message.
fn packet(message: &[u8]) -> Option<Packet<'_>> {
    let mut packet = Packet::default();
    let (mut id, mut head, mut whole) = (None, None, None);
    let (mut tracked, mut way) = (None, None);
    for attribute in Attributes::new(message.get(HEADERS..)?) {
        let (kind, value) = attribute?;
        match kind {
            NFQA_PACKET_HDR => {
                (id, packet.protocol) = (Some(net_u32(value)?), u16::from_be_bytes([*value.get(4)?, *value.get(5)?]));
            }
            NFQA_MARK => packet.mark = net_u32(value)?,
            NFQA_IFINDEX_INDEV => packet.input = net_u32(value)?,
            NFQA_IFINDEX_PHYSINDEV => packet.port = net_u32(value)?,
            NFQA_IFINDEX_OUTDEV => packet.output = net_u32(value)?,
            NFQA_PAYLOAD => head = Some(value),
            NFQA_CT => tracked = Some(value),
            NFQA_CT_INFO => way = Some(net_u32(value)?),
            NFQA_CAP_LEN => whole = Some(net_u32(value)?),
            NFQA_SKB_INFO => packet.gso = net_u32(value)? & NFQA_SKB_GSO != 0,
            NFQA_VLAN => packet.vlan = vlan(value)?,
            _ => {}
        }
    }
    (packet.id, packet.head) = (id?, head?);
    // The kernel gives the true length only if it copied less.
    packet.len = whole.unwrap_or(0).max(packet.head.len() as u32);
    if let (Some(tracked), Some(way)) = (tracked, way) {
        packet.behind = behind(tracked, way)?;
    }
    Some(packet)
}

/// The destination of a connection's packet after NAT. A connection has an address pair (tuple) for
/// each direction, as packets have it before any translation. So the source of the other direction
/// is the destination of this one after all translations.
fn behind(tracked: &[u8], way: u32) -> Option<Option<Behind>> {
    let other = if way >= IP_CT_IS_REPLY { CTA_TUPLE_ORIG } else { CTA_TUPLE_REPLY };
    let Some(tuple) = find(tracked, other)? else { return Some(None) };
    let Some(addresses) = find(tuple, CTA_TUPLE_IP)? else { return Some(None) };
    let address = match (find(addresses, CTA_IP_V4_SRC)?, find(addresses, CTA_IP_V6_SRC)?) {
        (Some(v4), _) => u128::from(net_u32(v4)?),
        (None, Some(v6)) => u128::from_be_bytes(*v6.first_chunk()?),
        (None, None) => return Some(None),
    };
    let port = match find(tuple, CTA_TUPLE_PROTO)? {
        Some(protocol) => find(protocol, CTA_PROTO_SRC_PORT)?,
        None => None,
    };
    let port = match port {
        Some(value) => Some(u16::from_be_bytes(*value.first_chunk()?)),
        None => None,
    };
    Some(Some(Behind { address, port }))
}

/// The value of the first attribute of a type; the outer `None` if an attribute before it is longer
/// than the rest.
fn find(nest: &[u8], wanted: u16) -> Option<Option<&[u8]>> {
    for attribute in Attributes::new(nest) {
        let (kind, value) = attribute?;
        if kind == wanted {
            return Some(Some(value));
        }
    }
    Some(None)
}

fn vlan(nest: &[u8]) -> Option<Option<(u16, u16)>> {
    let (mut tpid, mut tci) = (None, None);
    for attribute in Attributes::new(nest) {
        let (kind, value) = attribute?;
        let number = || Some(u16::from_be_bytes([*value.first()?, *value.get(1)?]));
        match kind {
            NFQA_VLAN_PROTO => tpid = Some(number()?),
            NFQA_VLAN_TCI => tci = Some(number()?),
            _ => {}
        }
    }
    Some(tpid.zip(tci))
}

/// The attributes of a message: type and value, or `None` if one is longer than the rest.
struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    fn new(rest: &'a [u8]) -> Attributes<'a> {
        Attributes { rest }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Option<(u16, &'a [u8])>;

    fn next(&mut self) -> Option<Option<(u16, &'a [u8])>> {
        if self.rest.is_empty() {
            return None;
        }
        let rest = std::mem::take(&mut self.rest);
        let (Some(len), Some(kind)) = (native_u16(rest, 0), native_u16(rest, 2)) else { return Some(None) };
        let Some(value) = rest.get(4..usize::from(len)) else { return Some(None) };
        self.rest = rest.get(usize::from(len).next_multiple_of(4)..).unwrap_or_default();
        Some(Some((kind & NLA_TYPE_MASK, value)))
    }
}

fn native_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn native_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn net_u32(value: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*value.first_chunk()?))
}

/// How to set up a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Bytes of each packet that are copied to the program.
    pub copy: u32,
    /// Packets that may wait in the kernel.
    pub length: u32,
    /// True if super-packets come whole; otherwise the kernel segments them first.
    pub gso: bool,
}

/// Writes the request that binds a queue to the sending socket and sets it up. It is a single
/// request, because the kernel drops what comes to a queue that is bound but not set up.
pub fn bind(out: &mut Vec<u8>, queue: u16, sequence: u32, setup: Setup) {
    let start = begin(out, NFQNL_MSG_CONFIG, NLM_F_REQUEST | NLM_F_ACK, queue, sequence);
    // struct nfqnl_msg_config_cmd: command, padding, protocol family. Binding is for all families.
    attribute(out, NFQA_CFG_CMD, &[NFQNL_CFG_CMD_BIND, 0, 0, 0]);
    let [a, b, c, d] = setup.copy.to_be_bytes();
    attribute(out, NFQA_CFG_PARAMS, &[a, b, c, d, NFQNL_COPY_PACKET]);
    attribute(out, NFQA_CFG_QUEUE_MAXLEN, &setup.length.to_be_bytes());
    flag(out, NFQA_CFG_F_GSO, setup.gso);
    end(out, start);
}

/// Writes the request that switches on or off that the kernel describes each packet's connection.
/// The kernel answers only if `ask` is set. It refuses (EOPNOTSUPP) without
/// CONFIG_NETFILTER_NETLINK_GLUE_CT.
pub fn track(out: &mut Vec<u8>, queue: u16, sequence: u32, on: bool, ask: bool) {
    let flags = if ask { NLM_F_REQUEST | NLM_F_ACK } else { NLM_F_REQUEST };
    let start = begin(out, NFQNL_MSG_CONFIG, flags, queue, sequence);
    flag(out, NFQA_CFG_F_CONNTRACK, on);
    end(out, start);
}

/// Writes the requests after which packets that come to the queue pass at once. The flag comes
/// first: without it, packets that find the queue full are dropped. The kernel answers the last one
/// only if `ask` is set.
pub fn let_pass(out: &mut Vec<u8>, queue: u16, sequence: u32, ask: bool) {
    let start = begin(out, NFQNL_MSG_CONFIG, NLM_F_REQUEST, queue, 0);
    flag(out, NFQA_CFG_F_FAIL_OPEN, true);
    end(out, start);
    let flags = if ask { NLM_F_REQUEST | NLM_F_ACK } else { NLM_F_REQUEST };
    let start = begin(out, NFQNL_MSG_CONFIG, flags, queue, sequence);
    attribute(out, NFQA_CFG_QUEUE_MAXLEN, &0u32.to_be_bytes());
    end(out, start);
}

/// Writes the request that ends what [`let_pass`] has begun: packets wait, at most so many of them.
/// Of one request the kernel sets the length before the flag, so none finds the queue full
/// meanwhile.
pub fn hold(out: &mut Vec<u8>, queue: u16, length: u32) {
    let start = begin(out, NFQNL_MSG_CONFIG, NLM_F_REQUEST, queue, 0);
    attribute(out, NFQA_CFG_QUEUE_MAXLEN, &length.to_be_bytes());
    flag(out, NFQA_CFG_F_FAIL_OPEN, false);
    end(out, start);
}

/// Writes the attributes that switch a flag of a queue.
fn flag(out: &mut Vec<u8>, flag: u32, on: bool) {
    let value = if on { flag } else { 0 };
    attribute(out, NFQA_CFG_MASK, &flag.to_be_bytes());
    attribute(out, NFQA_CFG_FLAGS, &value.to_be_bytes());
}

/// Writes the verdict on a packet. `mark`: the packet's whole mark from now on; `None` leaves it as
/// it is. The kernel answers, with `sequence`, only if there is no such packet.
pub fn verdict(out: &mut Vec<u8>, queue: u16, id: u32, verdict: Verdict, mark: Option<u32>, sequence: u32) {
    let start = begin(out, NFQNL_MSG_VERDICT, NLM_F_REQUEST, queue, sequence);
    finish(out, start, id, verdict, mark);
}

/// Writes one verdict on all packets up to this number that still wait.
pub fn verdict_up_to(out: &mut Vec<u8>, queue: u16, id: u32, verdict: Verdict) {
    let start = begin(out, NFQNL_MSG_VERDICT_BATCH, NLM_F_REQUEST, queue, 0);
    finish(out, start, id, verdict, None);
}

fn finish(out: &mut Vec<u8>, start: usize, id: u32, verdict: Verdict, mark: Option<u32>) {
    // struct nfqnl_msg_verdict_hdr: verdict, number.
    let mut value = [0; 8];
    value[..4].copy_from_slice(&verdict.number().to_be_bytes());
    value[4..].copy_from_slice(&id.to_be_bytes());
    attribute(out, NFQA_VERDICT_HDR, &value);
    if let Some(mark) = mark {
        attribute(out, NFQA_MARK, &mark.to_be_bytes());
    }
    end(out, start);
}

/// Writes both headers; [`end`] writes the length.
fn begin(out: &mut Vec<u8>, kind: u16, flags: u16, queue: u16, sequence: u32) -> usize {
    let start = out.len();
    out.extend(0u32.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    // The kernel knows the port by the socket. The families and the version are 0.
    out.extend([0; 4 + 2]);
    out.extend(queue.to_be_bytes());
    start
}

fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend((4 + value.len() as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.extend(&[0; 3][..value.len().wrapping_neg() % 4]);
}

fn end(out: &mut [u8], start: usize) {
    let len = (out.len() - start) as u32;
    if let Some(field) = out.get_mut(start..start + 4) {
        field.copy_from_slice(&len.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests;
