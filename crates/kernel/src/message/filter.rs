//! Requests that make filters (linux/pkt_cls.h).

use super::read::{Attributes, u32_at};
use super::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, RTM_DELTFILTER, RTM_NEWTFILTER, TCA_KIND, TCA_OPTIONS, Writer};
use crate::handle::Handle;
use crate::tree::{Filter, FlowerKeys, Key, Match, Protocol, Target};

/// The qdisc that holds the filters for incoming packets: `ffff:`.
const INGRESS: Handle = Handle::new(0xffff, 0);
/// The place of filters for incoming packets in both qdiscs that can hold them, `ingress` and
/// `clsact` (`TC_H_CLSACT` with `TC_H_MIN_INGRESS`).
pub const INCOMING: Handle = Handle::new(0xffff, 0xfff2);
/// The packet is dropped (`TC_ACT_SHOT`), or the action has taken it over (`TC_ACT_STOLEN`).
const SHOT: u32 = 2;
const STOLEN: u32 = 4;

/// The priority and the protocol of a filter, as in `struct tcmsg`.
fn info(prio: u16, protocol: Protocol) -> u32 {
    u32::from(prio) << 16 | u32::from(protocol.number().to_be())
}

/// Makes a filter.
pub fn new_filter(device: u32, filter: &Filter) -> Vec<u8> {
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    // The handle of an fw filter is the value of the mark. Others get one from the kernel.
    let handle = match filter.matches {
        Match::Mark { value, .. } => Handle(value),
        _ => Handle::default(),
    };
    let info = info(filter.prio, filter.protocol);
    let mut writer = Writer::tc(RTM_NEWTFILTER, flags, device, handle, filter.parent, info);
    writer.attribute_text(TCA_KIND, filter.matches.kind());
    // The types of `…_CLASSID` and `…_ACT` of u32, flower and fw.
    let (class, act) = match filter.matches {
        Match::U32 { .. } => (1, 7),
        Match::Flower(_) => (1, 3),
        Match::Mark { .. } => (1, 4),
    };
    writer.nest(TCA_OPTIONS, |writer| {
        // TCA_U32_HASH and TCA_U32_LINK
        if filter.table != 0 {
            writer.attribute_u32(2, table(filter.table).0);
        }
        match filter.to {
            Target::Class(handle) => writer.attribute_u32(class, handle.0),
            Target::Table(number) => writer.attribute_u32(3, table(number).0),
            Target::Drop => action(writer, act, "gact", |writer| writer.attribute(2, &general(SHOT))),
        }
        match &filter.matches {
            Match::U32 { keys, mark, indev } => {
                writer.attribute(5, &selector(keys, !matches!(filter.to, Target::Table(_))));
                if let Some((value, mask)) = mark {
                    // struct tc_u32_mark
                    let words = [*value, *mask, 0];
                    writer.attribute(10, &words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>());
                }
                if let Some(indev) = indev {
                    writer.attribute_text(8, indev);
                }
            }
            Match::Flower(keys) => flower(writer, keys, filter.protocol),
            Match::Mark { mask, .. } => writer.attribute_u32(5, *mask),
        }
    });
    writer.done()
}

/// The handle of a table of u32: its number in the upper 12 bits (`TC_U32_HTID`).
const fn table(number: u16) -> Handle {
    Handle((number as u32) << 20)
}

/// Makes the table in which a filter stands, with one place (`TCA_U32_DIVISOR`): its filters are
/// tried one after the other. `None` for a filter that stands in none.
pub fn new_table(device: u32, filter: &Filter) -> Option<Vec<u8>> {
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    let info = info(filter.prio, filter.protocol);
    let mut writer = Writer::tc(RTM_NEWTFILTER, flags, device, table(filter.table), filter.parent, info);
    writer.attribute_text(TCA_KIND, "u32");
    writer.nest(TCA_OPTIONS, |writer| writer.attribute_u32(4, 1));
    (filter.table != 0).then(|| writer.done())
}

/// The number of the table in which a filter stands that was found or sent; 0 for one that the
/// kernel tries by itself. Its own tables have numbers from 0x800 on.
pub fn table_of(kind: &str, options: &[u8]) -> u16 {
    // TCA_U32_HASH
    let hash = Attributes(options).value(2).filter(|_| kind == "u32").and_then(|hash| u32_at(hash, 0));
    let number = hash.map_or(0, |hash| (hash >> 20) as u16);
    if number <= Filter::TABLES { number } else { 0 }
}

/// Deletes all filters of a qdisc that have this priority.
pub fn delete_filters(device: u32, qdisc: Handle, prio: u16, protocol: Protocol) -> Vec<u8> {
    let info = info(prio, protocol);
    Writer::tc(RTM_DELTFILTER, NLM_F_ACK, device, Handle::default(), qdisc, info).done()
}

/// `struct tc_u32_sel`: flags (TC_U32_TERMINAL, unless the filter leads to a table), shift, number
/// of keys, and fields for headers at variable offsets, which are not used; then a
/// `struct tc_u32_key` for each key.
fn selector(keys: &[Key], terminal: bool) -> Vec<u8> {
    let mut bytes = vec![u8::from(terminal), 0, keys.len().min(255) as u8, 0];
    bytes.resize(16, 0);
    for key in keys.iter().take(255) {
        bytes.extend(key.mask.to_be_bytes());
        bytes.extend((key.value & key.mask).to_be_bytes());
        bytes.extend(u32::from(key.offset).to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
    }
    bytes
}

/// An action, the first and only one of a filter: its kind and its options.
fn action(writer: &mut Writer, act: u16, kind: &str, options: impl FnOnce(&mut Writer)) {
    writer.nest(act, |writer| {
        writer.nest(1, |writer| {
            // TCA_ACT_KIND, TCA_ACT_OPTIONS
            writer.attribute_text(1, kind);
            writer.nest(2, options);
        });
    });
}

/// The fields with which all actions begin (`tc_gen`): index, capabilities, the action, and two
/// counts.
fn general(action: u32) -> Vec<u8> {
    [0, 0, action, 0, 0].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect()
}

/// Redirects all incoming packets of an interface to another device, which sends them: a u32 filter
/// that matches everything.
pub fn redirect(device: u32, to: u32) -> Vec<u8> {
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    let info = info(1, Protocol::All);
    let mut writer = Writer::tc(RTM_NEWTFILTER, flags, device, Handle::default(), INGRESS, info);
    writer.attribute_text(TCA_KIND, "u32");
    writer.nest(TCA_OPTIONS, |writer| {
        writer.attribute(5, &selector(&[Key { offset: 0, value: 0, mask: 0 }], true));
        // TCA_U32_ACT
        action(writer, 7, "mirred", |writer| {
            // struct tc_mirred: TCA_EGRESS_REDIR and the device.
            let mut bytes = general(STOLEN);
            bytes.extend(1u32.to_ne_bytes());
            bytes.extend(to.to_ne_bytes());
            writer.attribute(2, &bytes);
        });
    });
    writer.done()
}

/// Deletes a filter that [`redirect`] has made.
pub fn delete_redirect(device: u32, handle: Handle) -> Vec<u8> {
    Writer::tc(RTM_DELTFILTER, NLM_F_ACK, device, handle, INGRESS, info(1, Protocol::All)).done()
}

/// The device to which a filter redirects what it matches, if it is one that [`redirect`] has made.
pub fn redirected(kind: &str, options: &[u8]) -> Option<u32> {
    // TCA_U32_ACT, and its first action.
    let action = Attributes(Attributes(options).value(7).filter(|_| kind == "u32")?).value(1)?;
    if !Attributes(action).value(1)?.starts_with(b"mirred\0") {
        return None;
    }
    let mirred = Attributes(Attributes(action).value(2)?).value(2)?;
    // struct tc_mirred: the five words of `general`, then TCA_EGRESS_REDIR and the device.
    u32_at(mirred, 24).filter(|_| u32_at(mirred, 20) == Some(1))
}

/// Hands what comes in at an interface to a BPF program, which decides what becomes of it
/// (tc-bpf(8), direct action). It replaces the filter with this handle, if there is one. `program`
/// is the descriptor of the program; `name` is shown beside it.
pub fn program(device: u32, handle: Handle, program: u32, name: &str) -> Vec<u8> {
    let flags = NLM_F_ACK | NLM_F_CREATE;
    let mut writer = Writer::tc(RTM_NEWTFILTER, flags, device, handle, INCOMING, info(1, Protocol::All));
    writer.attribute_text(TCA_KIND, "bpf");
    writer.nest(TCA_OPTIONS, |writer| {
        // TCA_BPF_FD, TCA_BPF_NAME, and TCA_BPF_FLAGS with TCA_BPF_FLAG_ACT_DIRECT.
        writer.attribute_u32(6, program);
        writer.attribute_text(7, name);
        writer.attribute_u32(8, 1);
    });
    writer.done()
}

/// Deletes a filter that [`program`] has made.
pub fn delete_program(device: u32, handle: Handle) -> Vec<u8> {
    Writer::tc(RTM_DELTFILTER, NLM_F_ACK, device, handle, INCOMING, info(1, Protocol::All)).done()
}

/// The name of a BPF program that is a filter.
pub fn program_name(kind: &str, options: &[u8]) -> Option<String> {
    let name = Attributes(options).value(7).filter(|_| kind == "bpf")?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(String::from_utf8_lossy(name).into_owned())
}

/// The fields of flower, each with its mask (`TCA_FLOWER_…`).
fn flower(writer: &mut Writer, keys: &FlowerKeys, protocol: Protocol) {
    if let Some(indev) = &keys.indev {
        writer.attribute_text(2, indev);
    }
    if protocol != Protocol::All {
        // TCA_FLOWER_KEY_ETH_TYPE
        writer.attribute(8, &protocol.number().to_be_bytes());
    }
    if let Some(vlan) = keys.vlan {
        // TCA_FLOWER_KEY_VLAN_ID, as the host has it: unlike ethertypes and ports.
        writer.attribute(23, &vlan.to_ne_bytes());
    }
    if let Some(v6) = keys.inner_v6 {
        let inner = if v6 { Protocol::Ipv6 } else { Protocol::Ip };
        writer.attribute(25, &inner.number().to_be_bytes());
    }
    if let Some(proto) = keys.proto {
        writer.attribute(9, &[proto]);
    }
    let v6 = protocol == Protocol::Ipv6 || keys.inner_v6 == Some(true);
    for (end, v4_kind, v6_kind) in [(keys.src, 10, 14), (keys.dst, 12, 16)] {
        let Some((bits, len)) = end else { continue };
        let len = u32::from(len);
        if v6 {
            writer.attribute(v6_kind, &bits.to_be_bytes());
            writer.attribute(v6_kind + 1, &u128::MAX.checked_shl(128 - len).unwrap_or(0).to_be_bytes());
        } else {
            writer.attribute(v4_kind, &(bits as u32).to_be_bytes());
            writer.attribute(v4_kind + 1, &u32::MAX.checked_shl(32 - len.min(32)).unwrap_or(0).to_be_bytes());
        }
    }
    // The attributes of a port and its mask depend on the protocol; those of a range do not.
    let ports = match keys.proto {
        Some(6) => [(18, 35), (19, 36)],
        Some(132) => [(41, 39), (42, 40)],
        _ => [(20, 37), (21, 38)],
    };
    for ((range, least), (kind, mask)) in [(keys.sport, 87), (keys.dport, 89)].into_iter().zip(ports) {
        match range {
            Some((from, to)) if from == to => {
                writer.attribute(kind, &from.to_be_bytes());
                writer.attribute(mask, &u16::MAX.to_be_bytes());
            }
            Some((from, to)) => {
                writer.attribute(least, &from.to_be_bytes());
                writer.attribute(least + 1, &to.to_be_bytes());
            }
            None => {}
        }
    }
    if let Some((value, mask)) = keys.tcp_flags {
        writer.attribute(71, &u16::from(value).to_be_bytes());
        writer.attribute(72, &u16::from(mask).to_be_bytes());
    }
    if let Some((value, mask)) = keys.tos {
        writer.attribute(73, &[value]);
        writer.attribute(74, &[mask]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Key;

    fn filter(matches: Match, protocol: Protocol, to: Target) -> Filter {
        Filter { parent: Handle::new(1, 0), prio: 3, protocol, matches, to, table: 0, rule: None }
    }

    /// Laid out by hand from linux/pkt_cls.h for `tc filter add dev IF parent 1: protocol ip prio 3
    /// u32 match u32 0x0a000001 0xffffffff at 12 flowid 1:2`, where IF is the interface 7.
    #[cfg(target_endian = "little")]
    #[test]
    fn a_u32() {
        let keys = vec![Key { offset: 12, value: 0x0a00_0001, mask: u32::MAX }];
        let to = Target::Class(Handle::new(1, 2));
        let found = new_filter(7, &filter(Match::U32 { keys, mark: None, indev: None }, Protocol::Ip, to));
        let mut wanted = vec![92, 0, 0, 0, 44, 0, 0x05, 0x06, 0, 0, 0, 0, 0, 0, 0, 0];
        // Family, interface, handle, parent 1:, protocol 0x0800 in network order, priority.
        wanted.extend([0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0x08, 0x00, 3, 0]);
        wanted.extend(*b"\x08\0\x01\0u32\0");
        // TCA_OPTIONS; TCA_U32_CLASSID 1:2; TCA_U32_SEL: terminal, one key.
        wanted.extend([48, 0, 2, 0, 8, 0, 1, 0, 2, 0, 1, 0]);
        wanted.extend([36, 0, 5, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        wanted.extend([0xff, 0xff, 0xff, 0xff, 10, 0, 0, 1, 12, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(found, wanted);
    }

    /// The kernel reads the VLAN id of flower in the host's byte order (fl_set_key_vlan of
    /// net/sched/cls_flower.c), and the ethertype in the network's.
    #[test]
    fn a_vlan_as_the_host_has_it() {
        let keys = FlowerKeys { vlan: Some(100), ..FlowerKeys::default() };
        let to = Target::Class(Handle::new(1, 2));
        let found = new_filter(7, &filter(Match::Flower(Box::new(keys)), Protocol::Vlan, to));
        // Length 6 and TCA_FLOWER_KEY_VLAN_ID; length 6 and TCA_FLOWER_KEY_ETH_TYPE.
        let vlan = [6u16, 23, 100].map(u16::to_ne_bytes).concat();
        let ethertype = [6u16.to_ne_bytes(), 8u16.to_ne_bytes(), [0x81, 0x00]].concat();
        for wanted in [vlan, ethertype] {
            assert!(found.windows(6).any(|bytes| bytes == wanted), "{wanted:?} is not in {found:?}");
        }
    }

    /// Laid out by hand for `tc filter add dev IF parent 1: protocol ip prio 3 handle 2: u32
    /// divisor 1`, `… u32 ht 2: match u32 0x50 0xffff at 20 flowid 1:2` and `… u32 match u32
    /// 0x00060000 0x00ff0000 at 8 link 2:`.
    #[cfg(target_endian = "little")]
    #[test]
    fn a_table_what_stands_in_it_and_what_leads_to_it() {
        let of = |key: Key, to: Target, table: u16| Filter {
            table,
            ..filter(Match::U32 { keys: vec![key], mark: None, indev: None }, Protocol::Ip, to)
        };
        let inside = of(Key { offset: 20, value: 80, mask: 0xffff }, Target::Class(Handle::new(1, 2)), 2);
        let made = new_table(7, &inside).unwrap();
        // The handle, and TCA_OPTIONS with TCA_U32_DIVISOR.
        assert_eq!(made[24..28], [0, 0, 0x20, 0]);
        assert_eq!(made[44..], [12, 0, 2, 0, 8, 0, 4, 0, 1, 0, 0, 0]);
        let found = new_filter(7, &inside);
        let mut wanted = vec![56, 0, 2, 0, 8, 0, 2, 0, 0, 0, 0x20, 0, 8, 0, 1, 0, 2, 0, 1, 0];
        wanted.extend([36, 0, 5, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        wanted.extend([0, 0, 0xff, 0xff, 0, 0, 0, 80, 20, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(found[44..], wanted);
        // Not terminal: where nothing in the table matches, the next filter is tried.
        let guard = of(Key { offset: 8, value: 0x0006_0000, mask: 0x00ff_0000 }, Target::Table(2), 0);
        let found = new_filter(7, &guard);
        let mut wanted = vec![48, 0, 2, 0, 8, 0, 3, 0, 0, 0, 0x20, 0];
        wanted.extend([36, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        wanted.extend([0, 0xff, 0, 0, 0, 6, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(found[44..], wanted);
        assert_eq!(new_table(7, &guard), None);
        let table = |request: &[u8]| table_of("u32", &crate::message::sent(request).unwrap().1.options);
        assert_eq!([table(&new_filter(7, &inside)), table(&found)], [2, 0]);
        // The kernel shows its own table, 800:, for filters that stand in none.
        assert_eq!(table_of("u32", &[8, 0, 2, 0, 0, 0, 0, 0x80]), 0);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_mark_and_a_drop() {
        let found = new_filter(7, &filter(Match::Mark { value: 5, mask: 0xff }, Protocol::All, Target::Drop));
        // The handle is the mark; ETH_P_ALL is 3.
        assert_eq!(found[24..28], [5, 0, 0, 0]);
        assert_eq!(found[32..36], [0, 3, 3, 0]);
        // After the kind "fw": TCA_FW_ACT with action 1 (gact, TC_ACT_SHOT); TCA_FW_MASK.
        let mut wanted = vec![60, 0, 2, 0, 48, 0, 4, 0, 44, 0, 1, 0];
        wanted.extend(*b"\x09\0\x01\0gact\0\0\0\0");
        wanted.extend([28, 0, 2, 0, 24, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        wanted.extend([8, 0, 5, 0, 0xff, 0, 0, 0]);
        assert_eq!(found[36 + 8..], wanted);
    }

    #[test]
    fn a_redirection_tells_its_device() {
        let options = |request: &[u8]| crate::message::sent(request).unwrap().1.options;
        let own = options(&redirect(7, 9));
        assert_eq!([redirected("u32", &own), redirected("flower", &own)], [Some(9), None]);
        let keys = vec![Key { offset: 0, value: 0, mask: 0 }];
        let other = filter(Match::U32 { keys, mark: None, indev: None }, Protocol::All, Target::Drop);
        assert_eq!(redirected("u32", &options(&new_filter(7, &other))), None);
        // Cut short anywhere, it is no panic.
        (0..own.len()).for_each(|end| assert_eq!(redirected("u32", &own[..end]), None));
    }

    /// Laid out by hand from linux/pkt_cls.h for `tc filter add dev IF ingress prio 1 handle 5 bpf
    /// da object-pinned …`, where IF is the interface 7 and the program the descriptor 3.
    #[cfg(target_endian = "little")]
    #[test]
    fn a_program() {
        let made = program(7, Handle(5), 3, "own");
        let mut wanted = vec![76, 0, 0, 0, 44, 0, 0x05, 0x04, 0, 0, 0, 0, 0, 0, 0, 0];
        wanted.extend([0, 0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0, 0xf2, 0xff, 0xff, 0xff, 0, 3, 1, 0]);
        wanted.extend(*b"\x08\0\x01\0bpf\0");
        wanted.extend([28, 0, 2, 0, 8, 0, 6, 0, 3, 0, 0, 0]);
        wanted.extend(*b"\x08\0\x07\0own\0");
        wanted.extend([8, 0, 8, 0, 1, 0, 0, 0]);
        wanted[0] = wanted.len() as u8;
        assert_eq!(made, wanted);
        let options = crate::message::sent(&made).unwrap().1.options;
        assert_eq!(program_name("bpf", &options).as_deref(), Some("own"));
        assert_eq!(program_name("u32", &options), None);
        // Cut short anywhere, it is no panic.
        (0..options.len()).for_each(|end| _ = program_name("bpf", &options[..end]));
        // The same filter: interface, handle, place, priority and protocol.
        assert_eq!(delete_program(7, Handle(5))[16..], made[16..36]);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn fields_of_flower() {
        let keys = FlowerKeys {
            proto: Some(6),
            dst: Some((0xc000_0200, 24)),
            dport: Some((80, 80)),
            tos: Some((0xb8, 0xfc)),
            ..FlowerKeys::default()
        };
        let to = Target::Class(Handle::new(1, 2));
        let found = new_filter(7, &filter(Match::Flower(Box::new(keys)), Protocol::Ip, to));
        let mut wanted: Vec<u8> = vec![84, 0, 2, 0, 8, 0, 1, 0, 2, 0, 1, 0];
        wanted.extend([6, 0, 8, 0, 0x08, 0x00, 0, 0, 5, 0, 9, 0, 6, 0, 0, 0]);
        wanted.extend([8, 0, 12, 0, 192, 0, 2, 0, 8, 0, 13, 0, 255, 255, 255, 0]);
        wanted.extend([6, 0, 19, 0, 0, 80, 0, 0, 6, 0, 36, 0, 255, 255, 0, 0]);
        wanted.extend([5, 0, 73, 0, 0xb8, 0, 0, 0, 5, 0, 74, 0, 0xfc, 0, 0, 0]);
        wanted[0] = wanted.len() as u8;
        // "flower" and its 0 take 7 bytes, and 11 with the header.
        assert_eq!(found[36 + 12..], wanted);
    }
}
