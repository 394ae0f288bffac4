//! Requests that make and change qdiscs and classes.

use super::read::Found;
use super::words::{class_options, qdisc_options, stab};
use super::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, RTM_DELQDISC, RTM_NEWQDISC, RTM_NEWTCLASS, TCA_KIND, TCA_OPTIONS, Writer,
};
use crate::handle::Handle;
use crate::tree::{Class, Qdisc, SizeTable};

/// The parent of the qdisc for incoming packets (`TC_H_INGRESS`), and its handle.
const INGRESS: Handle = Handle(0xffff_fff1);
const INGRESS_HANDLE: Handle = Handle::new(0xffff, 0);

/// Makes a qdisc. The kernel refuses if its place has another qdisc with a handle.
pub fn new_qdisc(device: u32, qdisc: &Qdisc) -> Vec<u8> {
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    let mut writer = Writer::tc(RTM_NEWQDISC, flags, device, qdisc.handle, qdisc.parent, 0);
    writer.attribute_text(TCA_KIND, qdisc.words.kind());
    qdisc_options(&mut writer, &qdisc.words);
    writer.done()
}

/// Changes an existing qdisc: sets its size table or removes it, and with `words` also sets its
/// words.
pub fn change_qdisc(device: u32, qdisc: &Qdisc, words: bool, sizes: Option<&SizeTable>) -> Vec<u8> {
    // Without NLM_F_CREATE the kernel changes the qdisc of this handle, first its words, then its
    // size table (`qdisc_change` in net/sched/sch_api.c).
    let mut writer = Writer::tc(RTM_NEWQDISC, NLM_F_ACK, device, qdisc.handle, qdisc.parent, 0);
    writer.attribute_text(TCA_KIND, qdisc.words.kind());
    if words {
        qdisc_options(&mut writer, &qdisc.words);
    }
    if let Some(sizes) = sizes {
        stab(&mut writer, sizes);
    }
    writer.done()
}

/// Deletes a qdisc, with all that is inside it.
pub fn delete_qdisc(device: u32, parent: Handle, handle: Handle) -> Vec<u8> {
    Writer::tc(RTM_DELQDISC, NLM_F_ACK, device, handle, parent, 0).done()
}

/// Makes the qdisc for incoming packets.
pub fn ingress_qdisc(device: u32) -> Vec<u8> {
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    let mut writer = Writer::tc(RTM_NEWQDISC, flags, device, INGRESS_HANDLE, INGRESS, 0);
    writer.attribute_text(TCA_KIND, "ingress");
    writer.done()
}

/// Makes a class. `None` for a band, which exists with its qdisc.
pub fn new_class(device: u32, class: &Class) -> Option<Vec<u8>> {
    written(device, class, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)
}

/// Sets the words of an existing class. `None` for a band.
pub fn change_class(device: u32, class: &Class) -> Option<Vec<u8>> {
    written(device, class, NLM_F_ACK)
}

/// Sets the words of a class to those with which the kernel showed it. The words of htb, hfsc and
/// drr have the same form in both directions.
pub fn restore_class(class: &Found) -> Vec<u8> {
    let mut writer = Writer::tc(RTM_NEWTCLASS, NLM_F_ACK, class.device, class.handle, class.parent, 0);
    writer.attribute_text(TCA_KIND, &class.kind);
    writer.attribute(TCA_OPTIONS, &class.options);
    writer.done()
}

fn written(device: u32, class: &Class, flags: u16) -> Option<Vec<u8>> {
    let words = class.words?;
    let mut writer = Writer::tc(RTM_NEWTCLASS, flags, device, class.handle, class.parent, 0);
    writer.attribute_text(TCA_KIND, words.kind());
    class_options(&mut writer, &words);
    Some(writer.done())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{ClassWords, Curve, Layer, QdiscWords, SizeTable};

    fn qdisc(words: QdiscWords) -> Qdisc {
        Qdisc {
            handle: Handle::new(1, 0),
            parent: Handle::ROOT,
            words,
            classes: Vec::new(),
            filters: Vec::new(),
            holds: None,
        }
    }

    /// The bytes of 16-bit words, in which the layouts below are written.
    fn halves(words: &[u16]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// Laid out by hand from `struct nlmsghdr`, `struct tcmsg` and `struct tc_htb_glob`
    /// (linux/netlink.h, linux/rtnetlink.h, linux/pkt_sched.h), for `tc qdisc add dev IF root
    /// handle 1: htb default 3`, where IF is the interface 7.
    #[cfg(target_endian = "little")]
    #[test]
    fn an_htb() {
        let found = new_qdisc(7, &qdisc(QdiscWords::Htb { default: 3 }));
        let wanted = halves(&[
            72, 0, 36, 0x605, 0, 0, 0, 0, // length, type, flags, sequence number, port
            0, 0, 7, 0, 0, 1, 0xffff, 0xffff, 0, 0, // family, interface, handle, parent, info
            8, 1, 0x7468, 0x0062, // TCA_KIND "htb"
            28, 2, 24, 2, // TCA_OPTIONS, TCA_HTB_INIT
            3, 0, 10, 0, 3, 0, 0, 0, 0, 0, // version, r2q, default, debug, direct packets
        ]);
        assert_eq!(found, wanted);
    }

    /// 1 Mbit/s is 125,000 bytes a second. A burst of 1600 bytes takes 12.8 ms at that rate, or
    /// 200,000 ticks of 64 ns.
    #[cfg(target_endian = "little")]
    #[test]
    fn a_class_of_htb() {
        let class = Class {
            handle: Handle::new(1, 2),
            parent: Handle::new(1, 0xfff0),
            words: Some(ClassWords::Htb {
                rate: 125_000,
                ceil: 250_000,
                burst: 1600,
                cburst: 1600,
                prio: 5,
                quantum: 1514,
                overhead: 4,
                mpu: 64,
                atm: false,
            }),
            id: 2,
        };
        let wanted = halves(&[
            96, 0, 40, 0x605, 0, 0, 0, 0, //
            0, 0, 7, 0, 2, 1, 0xfff0, 1, 0, 0, //
            8, 1, 0x7468, 0x0062, //
            52, 2, 48, 1, // TCA_OPTIONS, TCA_HTB_PARMS
            0x0100, 4, 0, 64, 59_464, 1, // rate: cells and link layer, overhead, align, mpu, rate
            0x0100, 4, 0, 64, 53_392, 3, // ceil
            3392, 3, 34_464, 1, // bursts: 200,000 and 100,000 ticks
            1514, 0, 0, 0, 5, 0, // quantum, level, prio
        ]);
        assert_eq!(new_class(7, &class).unwrap(), wanted);
        assert_eq!(new_class(7, &Class { words: None, ..class }), None);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn curves_of_hfsc() {
        let curve = Curve { first: 2, until: 5000, then: 1 };
        let class = Class {
            handle: Handle::new(1, 2),
            parent: Handle::new(1, 0),
            words: Some(ClassWords::Hfsc { rt: Some(curve), ls: None, ul: Some(curve) }),
            id: 2,
        };
        let found = new_class(7, &class).unwrap();
        let wanted = halves(&[36, 2, 16, 1, 2, 0, 5000, 0, 1, 0, 16, 3, 2, 0, 5000, 0, 1, 0]);
        // "hfsc" and its 0 take 5 bytes, 9 with the header, 12 with the padding. After that the
        // options begin.
        assert_eq!(found[36 + 12..], wanted);
    }

    /// 64 bytes and the 4 of a tag are less than 84, so they count as 84. In cells, 84 bytes are
    /// two of 53.
    #[test]
    fn a_size_table_has_a_cell_for_every_length() {
        for (layer, first, last) in [(Layer::Ethernet, 84, 2048), (Layer::Atm, 106, 43 * 53)] {
            let sizes = SizeTable { overhead: 4, mpu: 84, layer };
            let found = change_qdisc(7, &qdisc(QdiscWords::Prio { bands: 2, default: 0 }), true, Some(&sizes));
            let cell = |at: usize| {
                let start = found.len() - 2 * (2048 - at);
                u16::from_ne_bytes([found[start], found[start + 1]])
            };
            assert_eq!((cell(0), cell(83), cell(2047)), (first, first, last), "{layer:?}");
        }
    }
}
