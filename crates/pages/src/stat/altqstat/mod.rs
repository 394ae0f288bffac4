//! `altqstat` and `tbrconfig`, as ALTQ's own tools print them (docs/reference/altq.md 13):
//! [`block`] has the blocks, [`print()`] makes them of a link.
//!
//! A class's number is its handle. The entry of a scheduler says which of altqstat's forms fits it.
//! Classes of other schedulers are shown like the queues of altqstat's WFQ, the ten with the
//! highest rates first. Exact CBQ has no estimator, so values that only the estimator has are
//! printed as `-`.

pub mod block;

use altq_cases::stat::{ClassStat, LinkStat};
use altq_engine::queue::{self, Form};
use altq_engine::schedule::{self, AltqstatForm};
use altq_engine::settings::Value;
use block::{Cbq, Curve, Fifoq, Hfsc, Priq, Red, WfqQueue, Which};

use super::packets;

/// The output of altqstat for a link: its first line, and a block for each class.
pub fn print(link: &LinkStat) -> String {
    let mut text = format!("altqstat: {} on interface {}\n", link.scheduler.name, link.name);
    match schedule::find(link.scheduler.name).map_or(AltqstatForm::Queues, |entry| entry.altqstat) {
        AltqstatForm::Tree => (0..link.classes.len()).for_each(|at| text += &cbq(link, at).to_string()),
        AltqstatForm::Curves => {
            let waiting = link.classes.first().map_or(0, |root| root.counters.queued_packets);
            text +=
                &format!("\ncur_time:{} {} classes {waiting} packets in the tree\n", block::hex(0), link.classes.len());
            (0..link.classes.len()).for_each(|at| text += &hfsc(link, at).to_string());
        }
        AltqstatForm::Priorities => {
            text += &format!("\n{}:\n", link.name);
            let mut classes: Vec<Priq> = (1..link.classes.len()).map(|at| priq(link, at)).collect();
            classes.sort_by_key(|class| std::cmp::Reverse(class.priority));
            classes.iter().for_each(|class| text += &class.to_string());
        }
        AltqstatForm::One => text += &fifo(link).to_string(),
        AltqstatForm::Queues => {
            let mut queues: Vec<WfqQueue> = (1..link.classes.len()).filter_map(|at| wfq(link, at)).collect();
            queues.sort_by_key(|queue| std::cmp::Reverse((queue.bit_s, queue.packets)));
            text += &block::wfq_head(&link.name, queues.len());
            queues.iter().take(block::WFQ_TOP).for_each(|queue| text += &queue.to_string());
        }
    }
    text
}

/// The output of `tbrconfig` for a link's regulator.
pub fn tbrconfig(link: &LinkStat) -> String {
    block::tbrconfig(&link.name, link.regulator.map(|depth| (link.rate.as_bit_s(), depth)))
}

fn which(link: &LinkStat, at: usize) -> Which {
    match at {
        0 => Which::Root,
        _ if link.default == Some(at) => Which::Default,
        // altqd makes a class with this name for control traffic (docs/reference/altq.md 2.1).
        _ if link.classes[at].settings.flag("control") || link.classes[at].name == "ctl_class" => Which::Control,
        _ => Which::Class(at),
    }
}

fn cbq(link: &LinkStat, at: usize) -> Cbq {
    let class = &link.classes[at];
    let says = |name: &str| class.says(&[name]);
    let rate = class.settings.rate("rate").unwrap_or(if at == 0 { link.rate } else { Default::default() }).as_bit_s();
    Cbq {
        which: which(link, at),
        interface: link.name.clone(),
        name: class.name.clone(),
        priority: says("priority")
            .unwrap_or_else(|| class.settings.int("priority").unwrap_or(if at == 0 { 0 } else { 1 }) as i64),
        depth: depth(link, at),
        offtime: says("offtime"),
        wrr_allot: says("wrr_allot"),
        ns_per_byte: says("ns_per_byte").or((rate > 0).then(|| (8_000_000_000 / u128::from(rate.max(1))) as i64)),
        rate: says("ns_per_byte").filter(|ns| *ns > 0).map_or(rate as f64, |ns| 8e9 / ns as f64),
        measured: class.rate(link.span),
        packets: class.counters.sent_packets,
        bytes: class.counters.sent_bytes,
        over: says("over"),
        overactions: says("overactions"),
        borrows: says("borrows"),
        delays: says("delays"),
        drops: (class.own.dropped_packets, class.own.dropped_bytes),
        red: red(class),
        queued: class.own.queued_packets,
        limit: class.queue.as_ref().and_then(|queue| packets(queue.limit)),
        idle: says("avgidle").zip(says("maxidle")).zip(says("minidle")).map(|((avg, max), min)| (avg, max, min)),
    }
}

/// The height of a class: 0 for a leaf, for an inner class one more than the highest of its
/// children.
fn depth(link: &LinkStat, at: usize) -> i64 {
    let mut depths = vec![0i64; link.classes.len()];
    for at in (0..link.classes.len()).rev() {
        if let Some(parent) = link.classes[at].parent {
            depths[parent] = depths[parent].max(depths[at] + 1);
        }
    }
    depths[at]
}

/// The counters of RED, if the class has such a queue.
fn red(class: &ClassStat) -> Option<Red> {
    let queue = queue::find(class.queue.as_ref()?.name)?;
    if queue.form != Form::Average {
        return None;
    }
    let count = |names: &[&str]| class.queue_says(names).and_then(|n| u64::try_from(n).ok());
    Some(Red {
        average_thousandths: class.queue_says(&["average_thousandths"]),
        sent: class.own.sent_packets,
        forced: count(&["forced_drop"]),
        early: count(&["prob_drop"]),
        marked: class.own.marked_packets,
    })
}

fn hfsc(link: &LinkStat, at: usize) -> Hfsc {
    let class = &link.classes[at];
    let says = |name: &str| class.says(&[name]);
    let curve = |word: &str| match class.settings.get(word) {
        // altqstat prints whole milliseconds.
        Some(Value::Curve(c)) => Curve { m1: c.first.as_bit_s(), d_ms: c.until / 1_000_000, m2: c.then.as_bit_s() },
        Some(Value::Rate(rate)) => Curve { m1: rate.as_bit_s(), d_ms: 0, m2: rate.as_bit_s() },
        _ => Curve::default(),
    };
    Hfsc {
        number: at,
        name: class.name.clone(),
        real_time: curve("realtime"),
        link_share: if at == 0 {
            Curve { m1: link.rate.as_bit_s(), d_ms: 0, m2: link.rate.as_bit_s() }
        } else {
            curve("linkshare")
        },
        upper_limit: curve("upperlimit"),
        measured: class.rate(link.span),
        measured_real_time: says("realtime_bytes")
            .map(|bytes| altq_cases::report::rate(bytes.unsigned_abs(), link.span)),
        queued: class.own.queued_packets,
        period: says("period"),
        packets: class.own.sent_packets,
        bytes: class.own.sent_bytes,
        drops: (class.own.dropped_packets, class.own.dropped_bytes),
        cumul: says("realtime_bytes"),
        total: Some(class.counters.sent_bytes as i64),
        red: red(class),
    }
}

fn priq(link: &LinkStat, at: usize) -> Priq {
    let class = &link.classes[at];
    Priq {
        handle: at,
        name: class.name.clone(),
        priority: class.settings.int("priority").unwrap_or(1),
        measured: class.rate(link.span),
        queued: class.counters.queued_packets,
        period: class.says(&["period"]),
        packets: class.counters.sent_packets,
        bytes: class.counters.sent_bytes,
        drops: class.counters.dropped_packets,
        red: red(class),
    }
}

fn fifo(link: &LinkStat) -> Fifoq {
    let Some(root) = link.classes.first() else { return Fifoq::default() };
    let limits = link.classes.iter().filter(|class| class.queues()).map(|class| {
        let limit = class.queue.as_ref().and_then(|queue| packets(queue.limit));
        limit.map(u64::from)
    });
    Fifoq {
        queued: root.counters.queued_packets,
        limit: limits.sum(),
        period: root.says(&["period"]),
        sent: (root.counters.sent_packets, root.counters.sent_bytes),
        dropped: (root.counters.dropped_packets, root.counters.dropped_bytes),
        bit_s: root.rate(link.span),
    }
}

fn wfq(link: &LinkStat, at: usize) -> Option<WfqQueue> {
    let class = link.classes.get(at).filter(|class| class.queues())?;
    let weight = class.settings.int("weight").or(class.settings.bytes("quantum"));
    Some(WfqQueue {
        number: at,
        weight,
        queued_bytes: class.own.queued_bytes,
        packets: class.own.sent_packets,
        bytes: class.own.sent_bytes,
        drops: (class.own.dropped_packets, class.own.dropped_bytes),
        bit_s: class.rate(link.span),
    })
}

#[cfg(test)]
mod tests;
