//! Prints a tree as commands of tc, in an order in which tc accepts them.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use altq_config::{Device, Link};
use altq_engine::settings::ONE;

use crate::handle::Handle;
use crate::message::keeps_hosts_apart;
use crate::tree::{
    Class, ClassWords, Curve, Filter, FlowerKeys, Layer, Match, Protocol, Qdisc, QdiscWords, SizeTable, Target, Tree,
};

/// Lines for `tc -batch`, each a command without the word `tc`. Filters come last, so that no
/// packet is sent to a class that does not exist yet.
pub fn commands(tree: &Tree, device: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut sizes = tree.sizes.as_ref();
    for qdisc in &tree.qdiscs {
        // The first qdisc has the size table.
        lines.push(qdisc_line(qdisc, sizes.take(), device));
        lines.extend(qdisc.classes.iter().filter_map(|class| class_line(class, device)));
    }
    for qdisc in &tree.qdiscs {
        let mut made = HashSet::new();
        for filter in &qdisc.filters {
            if made.insert(filter.table) {
                lines.extend(table_line(filter, device));
            }
            lines.push(filter_line(filter, device));
        }
    }
    lines
}

/// The lines of a shell script that sets a link up on its device. With `ingress`, packets that come
/// in are redirected to a device of their own, an ifb, and shaped as they leave it. The redirection
/// comes last.
pub fn script(link: &Link, tree: &Tree) -> Vec<String> {
    let tc = |device: &str| commands(tree, device).into_iter().map(|line| format!("tc {line}")).collect::<Vec<_>>();
    match &link.device {
        Some(Device::Interface { name, ingress: true }) => {
            let ifb = ifb(name);
            let mut lines = vec![format!("ip link add {ifb} type ifb"), format!("ip link set {ifb} up")];
            lines.extend(tc(&ifb));
            lines.push(format!("tc qdisc add dev {name} handle ffff: ingress"));
            lines.push(format!(
                "tc filter add dev {name} parent ffff: protocol all prio 1 u32 match u32 0 0 action mirred egress \
                 redirect dev {ifb}"
            ));
            lines
        }
        Some(Device::Interface { name, .. } | Device::Bridge { to: name, .. }) => tc(name),
        None => {
            let mut lines = vec!["# This link has no device: give its name as DEV.".to_owned()];
            lines.extend(tc("\"$DEV\""));
            lines
        }
    }
}

/// The name of the ifb for what comes in at an interface. Names have at most 15 bytes. A longer
/// name is cut and gets six digits of a hash (FNV-1a), so that interfaces whose names begin alike
/// get different ones.
pub fn ifb(interface: &str) -> String {
    let whole = format!("ifb4{interface}");
    if whole.len() <= 15 {
        return whole;
    }
    let hash = interface.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let mut begin = whole;
    while begin.len() > 9 {
        begin.pop();
    }
    format!("{begin}{:06x}", hash & 0xff_ffff)
}

/// `parent 1:2`, or `root`.
fn parent(parent: Handle) -> String {
    if parent == Handle::ROOT { parent.to_string() } else { format!("parent {parent}") }
}

fn qdisc_line(qdisc: &Qdisc, sizes: Option<&SizeTable>, device: &str) -> String {
    let sizes = sizes.map_or_else(String::new, |sizes| format!("{} ", stab(sizes)));
    format!(
        "qdisc add dev {device} {} handle {} {sizes}{}{}",
        parent(qdisc.parent),
        qdisc.handle,
        qdisc.words.kind(),
        qdisc_words(qdisc)
    )
}

/// tc-stab(8). The table has a cell for each length up to 2048 bytes, so that no length is rounded.
fn stab(sizes: &SizeTable) -> String {
    let SizeTable { overhead, mpu, layer } = sizes;
    let layer_name = if *layer == Layer::Atm { "atm" } else { "ethernet" };
    let table = if *mpu > 0 || *layer == Layer::Atm { "mtu 2048 tsize 2048 " } else { "" };
    format!("stab {table}mpu {mpu} overhead {overhead} linklayer {layer_name}")
}

fn qdisc_words(qdisc: &Qdisc) -> String {
    let ecn = |ecn: bool| if ecn { "ecn" } else { "noecn" };
    let flag = |set: bool, word: &str| if set { format!(" {word}") } else { String::new() };
    match &qdisc.words {
        QdiscWords::Htb { default: 0 } | QdiscWords::Hfsc { default: 0 } | QdiscWords::Drr => String::new(),
        QdiscWords::Htb { default } | QdiscWords::Hfsc { default } => format!(" default {default:x}"),
        QdiscWords::Prio { bands, default } => {
            let map = vec![default.to_string(); 16].join(" ");
            format!(" bands {bands} priomap {map}")
        }
        QdiscWords::Pfifo { limit } | QdiscWords::Bfifo { limit } | QdiscWords::HeadDrop { limit } => {
            format!(" limit {limit}")
        }
        QdiscWords::Codel { limit, target, interval, ecn: marks } => {
            format!(" limit {limit} target {target}us interval {interval}us {}", ecn(*marks))
        }
        QdiscWords::FqCodel { limit, flows, quantum, target, interval, drop_batch, ecn: marks } => format!(
            " limit {limit} flows {flows} quantum {quantum} target {target}us interval {interval}us drop_batch \
             {drop_batch} {}",
            ecn(*marks)
        ),
        QdiscWords::Pie { limit, target, tupdate, ecn: marks } => {
            format!(" limit {limit} target {target}us tupdate {tupdate}us {}", ecn(*marks))
        }
        QdiscWords::Red(red) => format!(
            " limit {} min {} max {} avpkt {} burst {} probability {} bandwidth {}bit{}{}",
            red.limit,
            red.min,
            red.max,
            red.packet,
            red.burst,
            fraction(red.probability),
            red.rate * 8,
            flag(red.ecn, "ecn"),
            flag(red.harddrop, "harddrop")
        ),
        QdiscWords::Sfq { limit, depth, flows, divisor, quantum, perturb, headdrop } => format!(
            " limit {limit} depth {depth} flows {flows} divisor {divisor} quantum {quantum} perturb {perturb}{}",
            flag(*headdrop, "headdrop")
        ),
        QdiscWords::Cake { rate, isolation, rtt, memory, sizes } => {
            let rate = if *rate == 0 { "unlimited".to_owned() } else { format!("bandwidth {}bit", rate * 8) };
            let sizes = sizes.as_ref().map_or_else(String::new, |sizes| {
                let layer = match sizes.layer {
                    Layer::Ethernet => "noatm",
                    Layer::Atm => "atm",
                    Layer::Ptm => "ptm",
                };
                format!(" overhead {} mpu {} {layer}", sizes.overhead, sizes.mpu)
            });
            let nat = if keeps_hosts_apart(isolation.1) { " nat" } else { "" };
            format!(" {rate} besteffort {}{nat} rtt {rtt}us{sizes} memlimit {memory}", isolation.0)
        }
    }
}

/// Billionths as a decimal fraction.
fn fraction(billionths: u32) -> String {
    let text = format!("{}.{:09}", billionths / ONE, billionths % ONE);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The command for a class. `None` for a band, which exists with its qdisc.
fn class_line(class: &Class, device: &str) -> Option<String> {
    let words = match class.words? {
        ClassWords::Htb { rate, ceil, burst, cburst, prio, quantum, overhead, mpu, atm } => {
            let mut words = format!(
                "htb rate {}bit ceil {}bit burst {burst}b cburst {cburst}b prio {prio} quantum {quantum}",
                u128::from(rate) * 8,
                u128::from(ceil) * 8
            );
            // Writing to a string does not fail.
            if overhead > 0 || mpu > 0 {
                let _ = write!(words, " overhead {overhead} mpu {mpu}");
            }
            if atm {
                words.push_str(" linklayer atm");
            }
            words
        }
        ClassWords::Hfsc { rt, ls, ul } => {
            let curves = [("rt", rt), ("ls", ls), ("ul", ul)];
            let curves =
                curves.into_iter().filter_map(|(name, curve)| Some(format!(" {name} {}", curve_words(&curve?))));
            format!("hfsc{}", curves.collect::<String>())
        }
        ClassWords::Drr { quantum } => format!("drr quantum {quantum}"),
    };
    Some(format!("class add dev {device} {} classid {} {words}", parent(class.parent), class.handle))
}

fn curve_words(curve: &Curve) -> String {
    let Curve { first, until, then } = curve;
    let bits = |bytes: u32| u64::from(bytes) * 8;
    if *until == 0 {
        return format!("m2 {}bit", bits(*then));
    }
    format!("m1 {}bit d {until}us m2 {}bit", bits(*first), bits(*then))
}

/// The line that makes the table in which a filter stands.
fn table_line(filter: &Filter, device: &str) -> Option<String> {
    let Filter { parent, prio, protocol, table, .. } = filter;
    (*table != 0).then(|| {
        let protocol = protocol.name();
        format!(
            "filter add dev {device} parent {parent} protocol {protocol} prio {prio} handle {table:x}: u32 divisor 1"
        )
    })
}

fn filter_line(filter: &Filter, device: &str) -> String {
    let Filter { parent, prio, protocol, matches, to, table, .. } = filter;
    let to = match (to, matches) {
        (Target::Drop, _) => "action drop".to_owned(),
        (Target::Table(table), _) => format!("link {table:x}:"),
        (Target::Class(class), Match::U32 { .. }) => format!("flowid {class}"),
        (Target::Class(class), _) => format!("classid {class}"),
    };
    let (handle, words) = match matches {
        Match::U32 { keys, mark, indev } => {
            let mut words = if *table == 0 { String::new() } else { format!(" ht {table:x}:") };
            for key in keys {
                let _ = write!(words, " match u32 {:#010x} {:#010x} at {}", key.value, key.mask, key.offset);
            }
            if let Some((value, mask)) = mark {
                let _ = write!(words, " match mark {value:#x} {mask:#x}");
            }
            if let Some(indev) = indev {
                let _ = write!(words, " indev {indev}");
            }
            (String::new(), words)
        }
        Match::Flower(keys) => (String::new(), flower_words(keys, *protocol)),
        Match::Mark { value, mask } => (format!(" handle {value:#x}/{mask:#x}"), String::new()),
    };
    format!(
        "filter add dev {device} parent {parent} protocol {} prio {prio}{handle} {}{words} {to}",
        protocol.name(),
        matches.kind()
    )
}

fn flower_words(keys: &FlowerKeys, protocol: Protocol) -> String {
    let mut words = String::new();
    let mut say = |text: String| words.push_str(&text);
    if let Some(indev) = &keys.indev {
        say(format!(" indev {indev}"));
    }
    if let Some(vlan) = keys.vlan {
        say(format!(" vlan_id {vlan}"));
    }
    if let Some(v6) = keys.inner_v6 {
        say(format!(" vlan_ethtype {}", if v6 { "ipv6" } else { "ip" }));
    }
    if let Some(proto) = keys.proto {
        let name = match proto {
            6 => "tcp".to_owned(),
            17 => "udp".to_owned(),
            132 => "sctp".to_owned(),
            // tc reads the number as hexadecimal.
            other => format!("{other:#x}"),
        };
        say(format!(" ip_proto {name}"));
    }
    let v6 = protocol == Protocol::Ipv6 || keys.inner_v6 == Some(true);
    for (word, end) in [("src_ip", keys.src), ("dst_ip", keys.dst)] {
        if let Some((bits, len)) = end {
            let address = if v6 { Ipv6Addr::from(bits).to_string() } else { Ipv4Addr::from(bits as u32).to_string() };
            say(format!(" {word} {address}/{len}"));
        }
    }
    for (word, range) in [("src_port", keys.sport), ("dst_port", keys.dport)] {
        match range {
            Some((from, to)) if from == to => say(format!(" {word} {from}")),
            Some((from, to)) => say(format!(" {word} {from}-{to}")),
            None => {}
        }
    }
    for (word, masked) in [("ip_tos", keys.tos), ("tcp_flags", keys.tcp_flags)] {
        if let Some((value, mask)) = masked {
            say(format!(" {word} {value:#x}/{mask:#x}"));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::ifb;

    #[test]
    fn an_ifb_is_named_by_its_interface() {
        assert_eq!(ifb("eth0"), "ifb4eth0");
        assert_eq!(ifb("enp193s0f1n"), "ifb4enp193s0f1n");
        // Two network adapters by USB are named by their addresses.
        let names = ["enx001122334455", "enx001122334466"].map(ifb);
        assert!(names.iter().all(|name| name.len() == 15 && name.starts_with("ifb4enx00")), "{names:?}");
        assert_ne!(names[0], names[1]);
        assert!(ifb("ééééééé").len() <= 15);
    }
}
