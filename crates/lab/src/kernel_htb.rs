//! Translates a policy of `htb` into tc commands for the kernel's HTB, and reads what its classes
//! sent.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use altq_config::Link;
use altq_dataplane::netns::Namespace;
use altq_engine::queue;
use altq_engine::schedule::htb::words::{self, Defaults, Words};
use altq_engine::schedule::{self, TcForm};
use altq_engine::settings::Limit;
use altq_engine::spec::{ClassId, QueueSpec, ROOT};

use super::generator::{Flow, Kind};
use super::topology::{self, OUTSIDE, Side, Unsupported};

/// The kernel's name for HTB.
pub const NAME: &str = "htb";

/// True if the kernel's HTB can have the classes of a link, because the link's scheduler has HTB's
/// words.
pub fn fits(link: &Link) -> bool {
    schedule::find(link.spec.scheduler.name).is_some_and(|entry| entry.tc == TcForm::Tokens)
}

/// Minor number of the class that stands for the link. Other classes have their number in the
/// policy.
const LINK: u32 = 0xfff0;

/// Lines for `tc -batch` that make a link's classes on `$DEV`, each with the parameters that altq
/// computes for it, and with a pfifo or bfifo of the same limit as its queue. Each flow towards the
/// sinks has a filter to its class (`classes`, by flow), so the policy's rules are not translated.
///
/// # Errors
/// [`Unsupported`] if kernel HTB, or this comparison, lacks something that the policy has.
pub fn tc(link: &Link, flows: &[Flow], classes: &[Option<(usize, ClassId)>]) -> anyhow::Result<String> {
    let spec = &link.spec;
    let r2q = words::r2q(&spec.scheduler.settings);
    let defaults = Defaults { packet: u64::from(spec.overhead.charge(spec.mtu)), tick: 1 };
    let (rate, burst) = (spec.rate.as_bit_s(), defaults.link_burst(spec.rate));
    let default = spec.default.unwrap_or(ROOT);
    let children = link.children();
    let mut out = format!(
        "qdisc add dev $DEV root handle 1: htb default {default:x} r2q {r2q}\n\
         class add dev $DEV parent 1: classid 1:{LINK:x} htb rate {rate}bit ceil {rate}bit burst {burst}b cburst \
         {burst}b quantum 1500\n"
    );
    for (at, class) in spec.classes.iter().enumerate().skip(1) {
        let (id, name) = (at as ClassId, link.class_name(at as ClassId));
        let lacks = |what: &str| anyhow::Error::from(Unsupported(format!("class `{name}`: kernel HTB has no {what}")));
        if class.scheduler.is_some() {
            return Err(lacks("comparison here for schedulers in classes"));
        }
        let words = Words::read(&class.settings, &defaults)?;
        if words.rate == 0 {
            return Err(lacks("rate of 0"));
        }
        let parent = if class.parent == ROOT { LINK } else { class.parent };
        let Words { rate, ceil, burst, cburst, prio, overhead, mpu, .. } = words;
        let quantum = words.quantum(r2q);
        writeln!(
            out,
            "class add dev $DEV parent 1:{parent:x} classid 1:{id:x} htb rate {rate}bit ceil {ceil}bit burst {burst}b \
             cburst {cburst}b prio {prio} quantum {quantum} overhead {overhead} mpu {mpu}"
        )?;
        if children.get(at).is_some_and(Vec::is_empty) {
            let plain = |queue: &QueueSpec| queue.name == queue::PLAIN.name;
            let queue = link.queue(id).filter(plain).ok_or_else(|| lacks("such queue here"))?;
            let (Limit::Packets(limit) | Limit::Bytes(limit)) = queue.limit;
            let kind = queue::PLAIN.tc_name(queue.limit);
            writeln!(out, "qdisc add dev $DEV parent 1:{id:x} handle {:x}: {kind} limit {limit}", id + 1)?;
        }
    }
    for (flow, class) in flows.iter().zip(classes).filter(|(flow, _)| flow.side == Side::Sources) {
        // These flows pass the first link.
        let id = class.filter(|(place, _)| *place == 0).map(|(_, id)| id);
        let Some(id) = id.filter(|id| *id == ROOT || children.get(*id as usize).is_some_and(Vec::is_empty)) else {
            return Err(Unsupported(format!(
                "flow `{}`: its packets go to an inner class or to none, which kernel HTB does not have",
                flow.name
            ))
            .into());
        };
        writeln!(out, "{}", filter(flow, id))?;
    }
    Ok(out)
}

/// The filter that sends a flow to its class. It does not match TCP's source port, which the system
/// chooses.
fn filter(flow: &Flow, class: ClassId) -> String {
    let (family, ip, proto, length) = match flow.to.ip() {
        IpAddr::V4(_) => ("ip", "ip", "protocol", 32),
        IpAddr::V6(_) => ("ipv6", "ip6", "protocol", 128),
    };
    let (number, sport) = match flow.kind {
        Kind::Datagrams(_) => (17, format!(" match {ip} sport {} 0xffff", flow.from.port())),
        _ if flow.kind.is_udp() => (17, String::new()),
        _ => (6, String::new()),
    };
    format!(
        "filter add dev $DEV parent 1: protocol {family} prio {} u32 match {ip} src {}/{length} match {ip} dst \
         {}/{length} match {ip} {proto} {number} 0xff match {ip} dport {} 0xffff{sport} flowid 1:{class:x}",
        if flow.to.is_ipv4() { 1 } else { 2 },
        flow.from.ip(),
        flow.to.ip(),
        flow.to.port()
    )
}

/// Measures what the kernel's classes send in a window: reads `tc -s class show` at the beginning
/// and at the end of the window.
pub struct Meter<'t> {
    namespace: &'t Namespace,
    window: [Duration; 2],
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    begun: Option<Instant>,
    readings: Vec<(Instant, HashMap<u32, u64>)>,
}

/// The last reading is taken this long before the window's end, while traffic still runs.
const BEFORE: Duration = Duration::from_millis(200);

impl<'t> Meter<'t> {
    /// A meter for the window `from`..`to` of a run. The run begins at the first call of
    /// [`look`](Meter::look).
    pub fn new(namespace: &'t Namespace, from: Duration, to: Duration) -> Meter<'t> {
        Meter { namespace, window: [from, to.saturating_sub(BEFORE)], state: RefCell::default() }
    }

    /// Takes a reading if one is due. Must be called several times a second. The rate is computed
    /// from the time that really passed between the readings.
    pub fn look(&self) -> anyhow::Result<()> {
        let mut state = self.state.borrow_mut();
        let begun = *state.begun.get_or_insert_with(Instant::now);
        if self.window.get(state.readings.len()).is_some_and(|due| begun.elapsed() >= *due) {
            let before = Instant::now();
            let text = topology::tc_shows(self.namespace, &["-s", "class", "show", "dev", OUTSIDE])?;
            // The kernel read the counters at some time during the call; the middle of the call is
            // taken.
            let at = before + before.elapsed() / 2;
            state.readings.push((at, counters(&text)));
        }
        Ok(())
    }

    /// The rate at which a class sent, in bit/s, by the bytes that the kernel charges.
    pub fn rate(&self, class: ClassId) -> Option<u64> {
        let state = self.state.borrow();
        let [(from, before), (to, after)] = &state.readings[..] else { return None };
        let bytes = after.get(&class)?.checked_sub(*before.get(&class)?)?;
        Some((bytes as f64 * 8.0 / (*to - *from).as_secs_f64()).round() as u64)
    }
}

/// Bytes sent by each class, from tc's lines `class htb 1:a parent 1:fff0 …` and
/// ` Sent 1514 bytes …`.
fn counters(text: &str) -> HashMap<u32, u64> {
    let mut found = HashMap::new();
    let mut class = None;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("class") => {
                let minor = words.nth(1).and_then(|id| id.split_once(':'));
                class = minor.and_then(|(_, minor)| u32::from_str_radix(minor, 16).ok());
            }
            Some("Sent") => {
                if let (Some(class), Some(bytes)) = (class.take(), words.next().and_then(|bytes| bytes.parse().ok())) {
                    found.insert(class, bytes);
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_tc() {
        // As iproute2 6.1 prints it.
        let text = "class htb 1:1 root prio 0 rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b \n \
            Sent 151400 bytes 100 pkt (dropped 3, overlimits 0 requeues 0) \n backlog 0b 0p requeues 0\n lended: 0 \
            borrowed: 0\n\n\
            class htb 1:a parent 1:1 leaf b: prio 0 rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b \n Sent 42 bytes 1 \
            pkt (dropped 0)\n";
        assert_eq!(counters(text), HashMap::from([(1, 151_400), (10, 42)]));
        assert!(counters("Sent x bytes\nclass htb\nSent 1 bytes").is_empty());
    }
}
