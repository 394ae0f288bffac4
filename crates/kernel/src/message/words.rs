//! Writes, reads and compares the options of qdiscs and classes (linux/pkt_sched.h).

use super::read::{Attributes, u32_at, u64_at};
use super::{TCA_OPTIONS, TCA_STAB, Writer};
use crate::tree::{ClassWords, Curve, Layer, QdiscWords, RedWords, SizeTable};

/// Steps in a second of the kernel's clock for qdiscs: 64 ns each (`PSCHED_SHIFT` in
/// net/pkt_sched.h).
const TICKS: u128 = 15_625_000;
/// Cells of a size table.
const CELLS: usize = 2048;
/// `TC_LINKLAYER_ETHERNET` and `TC_LINKLAYER_ATM`. With both the kernel computes times from the
/// rate, not from a table.
const ETHERNET: u8 = 1;
const ATM: u8 = 2;

/// The time of a burst at a rate, in ticks, rounded up as in tc.
pub(super) fn ticks(bytes: u64, rate: u64) -> u32 {
    u32::try_from((u128::from(bytes) * TICKS).div_ceil(u128::from(rate.max(1)))).unwrap_or(u32::MAX)
}

/// The words of a qdisc.
pub(super) fn qdisc_options(writer: &mut Writer, words: &QdiscWords) {
    let plain = |writer: &mut Writer, words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        writer.attribute(TCA_OPTIONS, &bytes);
    };
    let numbers = |writer: &mut Writer, words: &[(u16, u32)]| {
        writer.nest(TCA_OPTIONS, |writer| {
            for (kind, value) in words {
                writer.attribute_u32(*kind, *value);
            }
        });
    };
    match words {
        // struct tc_htb_glob: version, r2q, default, debug, packets that passed unshaped.
        QdiscWords::Htb { default } => writer.nest(TCA_OPTIONS, |writer| {
            let words = [3, 10, u32::from(*default), 0, 0];
            writer.attribute(2, &words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect::<Vec<u8>>());
        }),
        QdiscWords::Hfsc { default } => writer.attribute(TCA_OPTIONS, &default.to_ne_bytes()),
        QdiscWords::Drr => {}
        QdiscWords::Prio { bands, default } => {
            let mut bytes = u32::from(*bands).to_ne_bytes().to_vec();
            bytes.extend([*default; 16]);
            writer.attribute(TCA_OPTIONS, &bytes);
        }
        QdiscWords::Pfifo { limit } | QdiscWords::Bfifo { limit } | QdiscWords::HeadDrop { limit } => {
            plain(writer, &[*limit]);
        }
        QdiscWords::Codel { limit, target, interval, ecn } => {
            numbers(writer, &[(1, *target), (2, *limit), (3, *interval), (4, u32::from(*ecn))]);
        }
        QdiscWords::FqCodel { limit, flows, quantum, target, interval, drop_batch, ecn } => numbers(
            writer,
            &[
                (1, *target),
                (2, *limit),
                (3, *interval),
                (4, u32::from(*ecn)),
                (5, *flows),
                (6, *quantum),
                (8, *drop_batch),
            ],
        ),
        QdiscWords::Pie { limit, target, tupdate, ecn } => {
            numbers(writer, &[(1, *target), (2, *limit), (3, *tupdate), (6, u32::from(*ecn))]);
        }
        QdiscWords::Red(red) => red_options(writer, red),
        QdiscWords::Sfq { limit, depth, flows, divisor, quantum, perturb, headdrop } => {
            // struct tc_sfq_qopt_v1, without a RED in each flow.
            let mut words = vec![*quantum, *perturb, *limit, *divisor, *flows, *depth, u32::from(*headdrop)];
            words.resize(18, 0);
            plain(writer, &words);
        }
        QdiscWords::Cake { rate, isolation, rtt, memory, sizes } => writer.nest(TCA_OPTIONS, |writer| {
            writer.attribute(2, &rate.to_ne_bytes());
            // CAKE_DIFFSERV_BESTEFFORT: one tin.
            writer.attribute_u32(3, 3);
            writer.attribute_u32(5, isolation.1);
            if keeps_hosts_apart(isolation.1) {
                writer.attribute_u32(11, 1);
            }
            if let Some(SizeTable { overhead, mpu, layer }) = sizes {
                let layer = match layer {
                    Layer::Ethernet => 0,
                    Layer::Atm => 1,
                    Layer::Ptm => 2,
                };
                writer.attribute_u32(4, layer);
                writer.attribute(6, &overhead.to_ne_bytes());
                writer.attribute_u32(14, *mpu);
            }
            writer.attribute_u32(7, *rtt);
            // The target is a twentieth of the round trip, as in tc.
            writer.attribute_u32(8, (*rtt / 20).max(1));
            writer.attribute_u32(10, *memory);
        }),
    }
}

/// Whether a cake with this isolation looks at hosts (`CAKE_FLOW_SRC_IP`, `CAKE_FLOW_DST_IP`). Then
/// it is to look up the hosts behind NAT, as altq's own paths do (`nat` of tc-cake(8)). For flows
/// that makes no difference, and kernels without connection tracking refuse it.
pub(crate) fn keeps_hosts_apart(isolation: u32) -> bool {
    isolation & 3 != 0
}

/// The flags of RED (`TC_RED_ECN`, `TC_RED_HARDDROP`).
fn red_flags(red: &RedWords) -> u8 {
    u8::from(red.ecn) | u8::from(red.harddrop) << 1
}

/// A probability in units of 2^-32.
fn probability(billionths: u32) -> u32 {
    u32::try_from((u64::from(billionths) << 32) / 1_000_000_000).unwrap_or(u32::MAX)
}

/// struct tc_red_qopt, the table by which the average decays in idle time, and the probability.
fn red_options(writer: &mut Writer, red: &RedWords) {
    let (cells, table) = idle(red);
    // Current kernels read the probability from TCA_RED_MAX_P. This field is for old kernels: log2
    // of (max - min)/probability.
    let span = f64::from(red.max.saturating_sub(red.min).max(1));
    let least = f64::from(red.probability.max(1)) / 1e9 / span;
    let log = (0..32u8).find(|log| least * f64::from(1u32 << log) > 1.0).unwrap_or(31);
    writer.nest(TCA_OPTIONS, |writer| {
        let mut bytes: Vec<u8> = [red.limit, red.min, red.max].iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend([red.weight, log, cells, red_flags(red)]);
        writer.attribute(1, &bytes);
        writer.attribute(2, &table);
        writer.attribute_u32(3, probability(red.probability));
    });
}

/// The table of the average's decay in idle time, and log. Entry n is for a time of n cells of
/// 2^log ticks each: -log2 of the part of the average that is left, at most 31 (Floyd and Jacobson
/// 1993, section 4; the form is that of net/red.h).
fn idle(red: &RedWords) -> (u8, [u8; 256]) {
    let packet = f64::from(ticks(u64::from(red.packet), red.rate).max(1));
    let decay = -(1.0 - 1.0 / f64::from(1u32 << red.weight.min(31))).ln() / packet;
    let longest = 31.0 / decay;
    let log = (0..32u32).find(|log| longest / f64::from(1u32 << log) < 512.0).unwrap_or(31);
    let mut table = [0u8; 256];
    for (at, cell) in table.iter_mut().enumerate() {
        let ticks = (at as u64) << log;
        *cell = (ticks as f64 * decay).min(31.0) as u8;
    }
    table[255] = 31;
    (log as u8, table)
}

/// The words of a class.
pub(super) fn class_options(writer: &mut Writer, words: &ClassWords) {
    writer.nest(TCA_OPTIONS, |writer| match words {
        ClassWords::Htb { rate, ceil, burst, cburst, prio, quantum, overhead, mpu, atm } => {
            // Rates that exceed 32 bits have attributes of their own.
            for (kind, rate) in [(6, *rate), (7, *ceil)] {
                if u32::try_from(rate).is_err() {
                    writer.attribute(kind, &rate.to_ne_bytes());
                }
            }
            let mut bytes = Vec::new();
            for rate in [*rate, *ceil] {
                // struct tc_ratespec
                bytes.extend([0, if *atm { ATM } else { ETHERNET }]);
                bytes.extend(overhead.to_ne_bytes());
                bytes.extend(0u16.to_ne_bytes());
                bytes.extend(mpu.to_ne_bytes());
                bytes.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
            }
            for word in [ticks(*burst, *rate), ticks(*cburst, *ceil), *quantum, 0, u32::from(*prio)] {
                bytes.extend(word.to_ne_bytes());
            }
            writer.attribute(1, &bytes);
        }
        ClassWords::Hfsc { rt, ls, ul } => {
            for (kind, curve) in [(1, rt), (2, ls), (3, ul)] {
                let Some(Curve { first, until, then }) = curve else { continue };
                let bytes: Vec<u8> = [*first, *until, *then].iter().flat_map(|word| word.to_ne_bytes()).collect();
                writer.attribute(kind, &bytes);
            }
        }
        ClassWords::Drr { quantum } => writer.attribute_u32(1, *quantum),
    });
}

/// tc-stab(8): a table of what is charged for each length. A cell covers one byte, so no length is
/// rounded.
pub(super) fn stab(writer: &mut Writer, sizes: &SizeTable) {
    let SizeTable { overhead, mpu, layer } = *sizes;
    let table = mpu > 0 || layer == Layer::Atm;
    let cells = if table { CELLS as u32 } else { 0 };
    writer.nest(TCA_STAB, |writer| {
        // struct tc_sizespec. A packet of n bytes uses cell n - 1.
        let mut bytes = vec![0, 0];
        let align: i16 = if table { -1 } else { 0 };
        bytes.extend(align.to_ne_bytes());
        bytes.extend(overhead.to_ne_bytes());
        let number = if layer == Layer::Atm { ATM } else { ETHERNET };
        for word in [u32::from(number), mpu, cells, cells] {
            bytes.extend(word.to_ne_bytes());
        }
        writer.attribute(1, &bytes);
        if table {
            let charged = (1..=CELLS as u32).map(|len| {
                let len = len.max(mpu);
                let charged = if layer == Layer::Atm { len.div_ceil(48) * 53 } else { len };
                u16::try_from(charged).unwrap_or(u16::MAX)
            });
            writer.attribute(2, &charged.flat_map(u16::to_ne_bytes).collect::<Vec<u8>>());
        }
    });
}

/// Reads `struct tc_sizespec`, as [`stab`] writes it. The kernel does not show the table itself.
pub(super) fn sizes(stab: &[u8]) -> Option<SizeTable> {
    let base = Attributes(stab).value(1)?;
    let layer = if u32_at(base, 8)? == u32::from(ATM) { Layer::Atm } else { Layer::Ethernet };
    Some(SizeTable { overhead: u32_at(base, 4)? as i32, mpu: u32_at(base, 12)?, layer })
}

impl ClassWords {
    /// The kernel's name of the kind of its qdisc.
    pub const fn kind(&self) -> &'static str {
        match self {
            ClassWords::Htb { .. } => "htb",
            ClassWords::Hfsc { .. } => "hfsc",
            ClassWords::Drr { .. } => "drr",
        }
    }
}

/// Whether the options of a qdisc or class that the kernel shows (`found`) agree with those that
/// were sent (`wanted`). Attributes that the kernel does not show, and those that it adds, do not
/// count.
pub fn same(kind: &str, class: bool, wanted: &[u8], found: &[u8]) -> bool {
    match (kind, class) {
        // The kernel adds a minor version to the version, and counts packets in the last word
        // (`htb_dump`).
        ("htb", false) => within(wanted, found, &[(2, 4, 16)]),
        // A class with others below it keeps the quantum and the prio that it was made with, but
        // does not use them (`htb_change_class`).
        ("htb", true) => {
            let level = Attributes(found).value(1).and_then(|words| u32_at(words, 36)).unwrap_or(0);
            let turn: &[(u16, usize, usize)] = if level == 0 { &[(1, 32, 36), (1, 40, 44)] } else { &[] };
            within(wanted, found, &[(1, 0, 32), (6, 0, 8), (7, 0, 8)]) && within(wanted, found, turn)
        }
        // A curve that the kernel shows although none is wanted is a difference too.
        ("hfsc", true) => {
            curves(wanted) == curves(found) && within(wanted, found, &[(1, 0, 12), (2, 0, 12), (3, 0, 12)])
        }
        ("drr", true) => within(wanted, found, &[(1, 0, 4)]),
        // The kernel keeps target and interval in steps of 1024 ns, and shows them rounded down.
        ("codel" | "fq_codel", _) => numbers(wanted, found, &|kind, wanted, found| match kind {
            1 | 3 => wanted >= found && wanted - found <= wanted / 1000 + 2,
            _ => wanted == found,
        }),
        // The kernel keeps the target in steps of 64 ns, and rounds TCA_PIE_TUPDATE up to a tick of
        // its timer.
        ("pie", _) => numbers(wanted, found, &|kind, wanted, found| match kind {
            1 => found == wanted || found + 1 == wanted,
            3 => (wanted..=wanted + LONGEST_TICK).contains(&found),
            _ => wanted == found,
        }),
        ("cake", _) => numbers(wanted, found, &|_, wanted, found| wanted == found),
        ("red", _) => within(wanted, found, &[(1, 0, 12), (1, 12, 13), (1, 15, 16), (3, 0, 4)]),
        ("drr", false) => true,
        ("sfq", _) => wanted.get(..28) == found.get(..28),
        _ => wanted == found.get(..wanted.len()).unwrap_or(found),
    }
}

/// Which of the three curves an hfsc class has.
fn curves(options: &[u8]) -> [bool; 3] {
    [1, 2, 3].map(|kind| Attributes(options).value(kind).is_some())
}

/// Whether one request can give a class the words that are wanted. In hfsc no request removes a
/// curve (`hfsc_change_class`).
pub fn changeable(kind: &str, wanted: &[u8], found: &[u8]) -> bool {
    kind != "hfsc" || curves(wanted) == curves(found)
}

/// Whether the options of a filter that the kernel shows agree with those that were sent. Actions
/// are not compared: the kernel adds numbers and counts of its own to them.
pub fn same_filter(kind: &str, wanted: &[u8], found: &[u8]) -> bool {
    let action = match kind {
        "u32" => 7,
        "fw" => 4,
        _ => 3,
    };
    Attributes(wanted).filter(|(of, _)| *of != action).all(|(of, wanted)| {
        match (kind, of, Attributes(found).value(of)) {
            // struct tc_u32_mark ends with a count that the kernel makes.
            ("u32", 10, Some(found)) => found.get(..8) == wanted.get(..8),
            // The EtherType is already in the filter's message, and for tagged packets the kernel
            // shows the inner one.
            ("flower", 8, _) | ("flower", 25, None) => true,
            // A mask of all bits is not shown.
            ("fw", 5, None) => wanted == u32::MAX.to_ne_bytes(),
            (_, _, found) => found == Some(wanted),
        }
    })
}

/// Whether the options are those of a filter that leads to a class or to a table, has an action, or
/// is a BPF program.
/// The kernel also shows entries for priorities and for the tables themselves.
pub fn leads(kind: &str, options: &[u8]) -> bool {
    let action = match kind {
        "u32" => 7,
        "fw" => 4,
        "matchall" => 2,
        _ => 3,
    };
    // TCA_U32_LINK. A BPF program may decide by itself, and has an id in any case (TCA_BPF_ID).
    let other = |of: u16| (kind, of) == ("u32", 3) || (kind, of) == ("bpf", 11);
    Attributes(options).any(|(of, _)| of == 1 || of == action || other(of))
}

/// Whether the given parts of attributes (type, first byte, byte after the last) are the same. Only
/// attributes that are wanted count.
fn within(wanted: &[u8], found: &[u8], parts: &[(u16, usize, usize)]) -> bool {
    parts.iter().all(|(kind, from, to)| {
        let Some(wanted) = Attributes(wanted).value(*kind) else { return true };
        let found = Attributes(found).value(*kind);
        found.is_some_and(|found| found.get(*from..*to) == wanted.get(*from..*to))
    })
}

/// The longest tick of the kernel's timer (CONFIG_HZ=100), microseconds.
const LONGEST_TICK: u64 = 10_000;

/// Whether all numbers that are wanted are found. `same` compares them: type, wanted, found.
fn numbers(wanted: &[u8], found: &[u8], same: &dyn Fn(u16, u64, u64) -> bool) -> bool {
    let number = |bytes: &[u8]| match bytes.len() {
        4 => u32_at(bytes, 0).map(u64::from),
        _ => u64_at(bytes, 0),
    };
    Attributes(wanted).all(|(kind, wanted)| {
        let found = Attributes(found).value(kind).and_then(number);
        number(wanted).zip(found).is_some_and(|(wanted, found)| same(kind, wanted, found))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `htb_dump` shows for `htb default 3`: version 0x30011, and packets that it counted.
    #[test]
    fn an_htb_is_shown_with_its_minor_version() {
        let options = |version: u32, default: u32, packets: u32| {
            let mut writer = Writer::new(0, 0);
            let words = [version, 10, default, 0, packets];
            writer.attribute(2, &words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>());
            writer.done()[16..].to_vec()
        };
        assert!(same("htb", false, &options(3, 3, 0), &options(0x30011, 3, 99)));
        assert!(!same("htb", false, &options(3, 3, 0), &options(0x30011, 4, 0)));
    }

    /// linux/pkt_sched.h: TCA_CAKE_FLOW_MODE is 5 and TCA_CAKE_NAT 11; CAKE_FLOW_DUAL_SRC is 5 and
    /// CAKE_FLOW_FLOWS 4.
    #[test]
    fn a_cake_that_keeps_hosts_apart_looks_behind_nat() {
        for (name, isolation, nat) in [("dual-srchost", 5, Some(1)), ("flows", 4, None), ("flowblind", 0, None)] {
            let mut writer = Writer::new(0, 0);
            let isolation = (name, isolation);
            qdisc_options(&mut writer, &QdiscWords::Cake { rate: 0, isolation, rtt: 1, memory: 1, sizes: None });
            let bytes = writer.done();
            let options = Attributes(Attributes(&bytes[16..]).value(TCA_OPTIONS).unwrap());
            let number = |kind: u16| options.value(kind).and_then(|value| u32_at(value, 0));
            assert_eq!((number(5), number(11)), (Some(isolation.1), nat), "{name}");
        }
    }

    /// A flag and a limit are exact. A target of 5000 µs is 4882 steps of 1024 ns, which the kernel
    /// shows as 4999 µs.
    #[test]
    fn times_are_rounded_and_nothing_else() {
        let options = |target: u32, limit: u32, ecn: u32| {
            let mut writer = Writer::new(0, 0);
            for (kind, value) in [(1, target), (2, limit), (4, ecn)] {
                writer.attribute_u32(kind, value);
            }
            writer.done()[16..].to_vec()
        };
        let wanted = options(5000, 20, 1);
        assert!(same("codel", false, &wanted, &options(4999, 20, 1)));
        for other in [options(4990, 20, 1), options(4999, 19, 1), options(4999, 20, 0)] {
            assert!(!same("codel", false, &wanted, &other));
        }
    }

    #[test]
    fn a_curve_that_nobody_wants_is_a_difference() {
        let options = |kinds: &[u16]| {
            let mut writer = Writer::new(0, 0);
            for kind in kinds {
                writer.attribute(*kind, &[1; 12]);
            }
            writer.done()[16..].to_vec()
        };
        let (wanted, found) = (options(&[2]), options(&[2, 3]));
        assert!(same("hfsc", true, &wanted, &wanted));
        assert!(!same("hfsc", true, &wanted, &found));
        assert!(!changeable("hfsc", &wanted, &found) && changeable("htb", &wanted, &found));
    }

    #[test]
    fn a_size_table_is_read_as_it_was_written() {
        for sizes in [
            SizeTable { overhead: -6, mpu: 0, layer: Layer::Atm },
            SizeTable { overhead: 24, mpu: 84, layer: Layer::Ethernet },
        ] {
            let mut writer = Writer::new(0, 0);
            stab(&mut writer, &sizes);
            let bytes = writer.done();
            assert_eq!(super::sizes(Attributes(&bytes[16..]).value(TCA_STAB).unwrap()), Some(sizes));
        }
    }
}
