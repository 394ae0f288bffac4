//! Reads what the kernel sends: answers to requests, and the qdiscs, classes and filters of a dump.

use super::route::{self, Own, Way};
use super::words::sizes;
use super::{
    HEADER, NLA_TYPE_MASK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLMSG_DONE, NLMSG_ERROR, RTM_NEWLINK, RTM_NEWQDISC,
    RTM_NEWTCLASS, RTM_NEWTFILTER, TC, TCA_KIND, TCA_OPTIONS, TCA_STAB, TCA_STATS2,
};
use crate::handle::Handle;
use crate::tree::SizeTable;

// linux/gen_stats.h
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_APP: u16 = 4;
const TCA_STATS_PKT64: u16 = 8;

/// A number of 16 bits in the machine's order.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// A number of 32 bits in the machine's order.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A number of 64 bits in the machine's order.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// An iterator over attributes: type and value. It ends at an attribute that is longer than the
/// rest.
#[derive(Clone, Copy)]
pub(super) struct Attributes<'a>(pub &'a [u8]);

impl<'a> Attributes<'a> {
    /// The value of the first attribute of a type.
    pub fn value(self, kind: u16) -> Option<&'a [u8]> {
        let mut all = self;
        all.find_map(|(of, value)| (of == kind).then_some(value))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let rest = std::mem::take(&mut self.0);
        let (len, kind) = (u16_at(rest, 0)? as usize, u16_at(rest, 2)?);
        let value = rest.get(4..len)?;
        self.0 = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & NLA_TYPE_MASK, value))
    }
}

/// A qdisc, class or filter of a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The index of its interface.
    pub device: u32,
    /// Its handle.
    pub handle: Handle,
    /// The class that contains it; for a filter: its qdisc.
    pub parent: Handle,
    /// For a filter: its priority and protocol. For a class: the handle of the qdisc inside it, or
    /// 0.
    pub info: u32,
    /// Its kind, such as `htb`.
    pub kind: String,
    /// Its options, in the form of its kind.
    pub options: Vec<u8>,
    /// For the device's own qdisc: its size table.
    pub sizes: Option<SizeTable>,
    /// Its counters.
    pub counters: Counters,
}

/// The counters of a qdisc or class (linux/gen_stats.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that it sent.
    pub packets: u64,
    /// Their bytes as the kernel counts them: with the header below layer 3, and with the overhead
    /// if there is a size table.
    pub bytes: u64,
    /// Packets that it dropped.
    pub dropped: u32,
    /// How often it had packets but was not allowed to send.
    pub overlimits: u32,
    /// Packets that wait in it.
    pub backlog_packets: u32,
    /// Their bytes.
    pub backlog_bytes: u32,
    /// For a class of htb: packets that it sent with tokens of a class above it.
    pub borrowed: u32,
    /// For codel, fq_codel, pie and red: packets that it marked (ECN) instead of dropping them.
    pub marked: u32,
}

/// A message from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The answer to a request: the request's sequence number, 0 or an error number (errno), and
    /// the kernel's text about the error.
    Answer(u32, i32, String),
    /// The end of a dump: the sequence number of the request.
    Done(u32),
    /// A qdisc.
    Qdisc(Found),
    /// A class.
    Class(Found),
    /// A filter.
    Filter(Found),
    /// An interface: its index, and its kind of header (linux/if_arp.h).
    Link(u32, u16),
    /// Where packets to an address go.
    Route(Way),
    /// An address of an interface.
    Address(Own),
    /// A message of another kind.
    Other,
    /// A message that is cut short. What follows it cannot be read.
    Broken,
}

/// The messages of a datagram, in order.
#[derive(Clone, Debug)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// Reads the messages of a datagram.
    pub fn new(datagram: &'a [u8]) -> Messages<'a> {
        Messages(datagram)
    }
}

impl Iterator for Messages<'_> {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        if self.0.is_empty() {
            return None;
        }
        let rest = std::mem::take(&mut self.0);
        let len = u32_at(rest, 0).map_or(0, |len| len as usize);
        let Some(message) = rest.get(..len).filter(|message| message.len() >= HEADER) else {
            return Some(Message::Broken);
        };
        self.0 = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(read(message).unwrap_or(Message::Broken))
    }
}

/// Reads a message, header included. `None` if it is cut short.
fn read(message: &[u8]) -> Option<Message> {
    let (kind, sequence) = (u16_at(message, 4)?, u32_at(message, 8)?);
    Some(match kind {
        // struct nlmsgerr: the error, negative, then the header of the request.
        NLMSG_ERROR => {
            let error = (u32_at(message, HEADER)? as i32).wrapping_neg();
            Message::Answer(sequence, error, said(message).unwrap_or_default())
        }
        NLMSG_DONE => Message::Done(sequence),
        // struct ifinfomsg
        RTM_NEWLINK => Message::Link(u32_at(message, HEADER + 4)?, u16_at(message, HEADER + 2)?),
        route::RTM_NEWROUTE => Message::Route(route::route(message)?),
        route::RTM_NEWADDR => route::own(message).map_or(Message::Other, Message::Address),
        RTM_NEWQDISC => Message::Qdisc(found(message)?),
        RTM_NEWTCLASS => Message::Class(found(message)?),
        RTM_NEWTFILTER => Message::Filter(found(message)?),
        _ => Message::Other,
    })
}

/// The kernel's text about a request (NLMSGERR_ATTR_MSG). It follows the request, or only the
/// request's header.
fn said(message: &[u8]) -> Option<String> {
    let flags = u16_at(message, 6)?;
    if flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let request = if flags & NLM_F_CAPPED != 0 { HEADER } else { u32_at(message, HEADER + 4)? as usize };
    let start = request.checked_next_multiple_of(4)?.checked_add(HEADER + 4)?;
    let text = Attributes(message.get(start..)?).value(1)?;
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(String::from_utf8_lossy(text).into_owned())
}

/// Reads a request as it was written: the type of its message, and the qdisc, class or filter. For
/// tests, and to compare what is wanted with what the kernel shows.
pub fn sent(request: &[u8]) -> Option<(u16, Found)> {
    Some((u16_at(request, 4)?, found(request)?))
}

fn found(message: &[u8]) -> Option<Found> {
    let word = |at: usize| u32_at(message, HEADER + 4 * at);
    let attributes = Attributes(message.get(HEADER + TC..)?);
    let kind = attributes.value(TCA_KIND).unwrap_or_default();
    let kind = kind.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(Found {
        device: word(1)?,
        handle: Handle(word(2)?),
        parent: Handle(word(3)?),
        info: word(4)?,
        kind: String::from_utf8_lossy(kind).into_owned(),
        options: attributes.value(TCA_OPTIONS).unwrap_or_default().to_vec(),
        sizes: attributes.value(TCA_STAB).and_then(sizes),
        counters: attributes
            .value(TCA_STATS2)
            .map_or_else(Counters::default, |stats| counters(kind, Attributes(stats))),
    })
}

fn counters(kind: &[u8], stats: Attributes<'_>) -> Counters {
    let of = |kind: u16| stats.value(kind).unwrap_or_default();
    // struct gnet_stats_basic, struct gnet_stats_queue
    let (basic, queue, own) = (of(TCA_STATS_BASIC), of(TCA_STATS_QUEUE), of(TCA_STATS_APP));
    let word = |bytes: &[u8], at: usize| u32_at(bytes, at).unwrap_or(0);
    // struct tc_htb_xstats: lent, borrowed, …
    let borrowed = if kind == b"htb" { word(own, 4) } else { 0 };
    let marked = match kind {
        // struct tc_codel_xstats, tc_red_xstats; tc_fq_codel_xstats, which begins with its type.
        b"codel" => word(own, 24),
        b"red" => word(own, 12),
        b"fq_codel" if word(own, 0) == 0 => word(own, 12),
        // struct tc_pie_xstats: two of its words are new.
        b"pie" => word(own, if own.len() < 40 { 28 } else { 36 }),
        _ => 0,
    };
    Counters {
        packets: u64_at(of(TCA_STATS_PKT64), 0).unwrap_or(u64::from(word(basic, 8))),
        bytes: u64_at(basic, 0).unwrap_or(0),
        dropped: word(queue, 8),
        overlimits: word(queue, 16),
        backlog_packets: word(queue, 0),
        backlog_bytes: word(queue, 4),
        borrowed,
        marked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Writer;

    fn dump() -> Vec<u8> {
        let mut writer = Writer::tc(RTM_NEWTCLASS, 2, 7, Handle::new(1, 2), Handle::new(1, 1), 0x20000);
        writer.attribute_text(TCA_KIND, "htb");
        writer.nest(TCA_OPTIONS, |writer| writer.attribute_u32(1, 99));
        writer.nest(TCA_STATS2, |writer| {
            let mut basic = 1500u64.to_ne_bytes().to_vec();
            basic.extend(3u32.to_ne_bytes());
            writer.attribute(TCA_STATS_BASIC, &basic);
            let queue: Vec<u8> = [4u32, 5, 6, 7, 8].iter().flat_map(|word| word.to_ne_bytes()).collect();
            writer.attribute(TCA_STATS_QUEUE, &queue);
            let own: Vec<u8> = [9u32, 10, 0, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
            writer.attribute(TCA_STATS_APP, &own);
        });
        writer.done()
    }

    #[test]
    fn a_class_with_its_counters() {
        let mut bytes = dump();
        bytes.extend(Writer::tc(NLMSG_DONE, 2, 0, Handle::default(), Handle::default(), 0).done());
        let found: Vec<Message> = Messages::new(&bytes).collect();
        let [Message::Class(class), Message::Done(0)] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            (class.device, class.handle, class.parent, class.info),
            (7, Handle::new(1, 2), Handle::new(1, 1), 0x20000)
        );
        assert_eq!(class.kind, "htb");
        let counters = Counters {
            packets: 3,
            bytes: 1500,
            dropped: 6,
            overlimits: 8,
            backlog_packets: 4,
            backlog_bytes: 5,
            borrowed: 10,
            marked: 0,
        };
        assert_eq!(class.counters, counters);
    }

    /// The place of `ecn_mark` and `marked` in the structures of linux/pkt_sched.h, in words.
    #[test]
    fn marked_packets_are_read_at_their_place() {
        for (kind, words, place) in [("codel", 9, 6), ("fq_codel", 10, 3), ("pie", 8, 7), ("pie", 10, 9), ("red", 4, 3)]
        {
            let mut own = vec![0; 4 * words];
            own[4 * place..4 * place + 4].copy_from_slice(&77u32.to_ne_bytes());
            let mut writer = Writer::new(0, 0);
            writer.attribute(TCA_STATS_APP, &own);
            let bytes = writer.done();
            let marked = |kind: &str| counters(kind.as_bytes(), Attributes(&bytes[HEADER..])).marked;
            assert_eq!((marked(kind), marked("sfq")), (77, 0), "{kind}");
        }
    }

    /// Reading does not panic if a message is cut at any byte, or if any byte is changed.
    #[test]
    fn a_message_cut_short_or_wrong_is_no_panic() {
        let bytes = dump();
        for end in 0..bytes.len() {
            let found: Vec<Message> = Messages::new(&bytes[..end]).collect();
            assert!(end == 0 || found == [Message::Broken], "{end}: {found:?}");
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut wrong = bytes.clone();
                wrong[at] = value;
                assert!(Messages::new(&wrong).count() < 100);
            }
        }
    }

    #[test]
    fn an_answer_is_the_number_of_an_error() {
        let mut writer = Writer::new(NLMSG_ERROR, 0);
        writer.u32((-17i32) as u32);
        let mut bytes = writer.done();
        crate::message::number(&mut bytes, 5);
        assert_eq!(Messages::new(&bytes).collect::<Vec<_>>(), [Message::Answer(5, 17, String::new())]);
    }

    /// With NETLINK_EXT_ACK a text follows the request that failed, or its header.
    #[test]
    fn an_answer_says_why() {
        for (flags, request) in [(NLM_F_ACK_TLVS, 20u32), (NLM_F_ACK_TLVS | NLM_F_CAPPED, 20)] {
            let mut writer = Writer::new(NLMSG_ERROR, flags);
            writer.u32((-22i32) as u32);
            let words = if flags & NLM_F_CAPPED == 0 { 5 } else { 4 };
            writer.u32(request);
            for _ in 1..words {
                writer.u32(0);
            }
            writer.attribute_text(1, "no such thing");
            let bytes = writer.done();
            let found: Vec<Message> = Messages::new(&bytes).collect();
            assert_eq!(found, [Message::Answer(0, 22, "no such thing".to_owned())]);
        }
    }
}
