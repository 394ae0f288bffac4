//! How much of the host a run needs, and so whether other runs may go beside it.

use altq_cases::case::{Case, Kind, Measure, Pace, Shape, Udp, What};
use altq_config::{Device, Link};
use altq_engine::schedule::Role;
use altq_engine::spec::ROOT;
use altq_engine::units::{Rate, SECOND};

use super::prepared::{Prepared, of_engine};
use super::topology::{INSIDE, OUTSIDE, Side};

/// What a run needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Bandwidth of all its traffic in bit/s; other runs may go beside it.
    Shared(u64),
    /// The whole host: no other run may go beside it.
    Alone,
}

/// Every packet is counted with this many bytes, because the host's work per packet hardly depends
/// on the packet's size.
const FULL: u128 = 1500;

/// A link is slow if a packet takes at least this long on it, in ns. The host wakes a thread within
/// about 0.1 ms, which is little compared with that.
const SLOW: u64 = 5_000_000;

impl Prepared<'_> {
    /// What a run of this column needs. A run has the host for itself if its case has `turns` (runs
    /// are compared with each other) or `overload`, if it measures time that the host takes, if it
    /// has requests and responses (their number depends on how fast threads wake up), or if it
    /// sends without a link that limits it.
    pub fn need(&self, case: &Case) -> Need {
        let of_host = |measure: Measure| of_the_host(measure) || (measure.of_gaps() && !self.is_slow(case));
        if case.overload || case.turns > 1 || self.asked(case).any(|probe| of_host(probe.measure)) {
            return Need::Alone;
        }
        let (mut sum, mut full) = (0u64, Vec::new());
        let flows = case.flows.iter().zip(&self.lowered.flows).enumerate();
        for (at, (flow, lowered)) in flows.filter(|(_, (flow, _))| !flow.active.is_empty()) {
            let takes_all = match &flow.kind {
                Kind::Udp(udp) => {
                    sum = sum.saturating_add(offered(case, at, udp));
                    matches!(udp.shape, Shape::Local { .. })
                }
                Kind::TcpBulk { .. } => true,
                Kind::TcpRr { .. } | Kind::TcpConnect { .. } | Kind::UdpRr { .. } => return Need::Alone,
                Kind::Ping { .. } | Kind::Pcap { .. } => return Need::Alone,
            };
            if takes_all && !full.contains(&lowered.side) {
                full.push(lowered.side);
            }
        }
        for side in full {
            match self.way(side) {
                Some(link) => sum = sum.saturating_add(most(case, link)),
                // No link limits the flow.
                None => return Need::Alone,
            }
        }
        Need::Shared(sum)
    }

    /// True if the shaped links are so slow that the host's delays hardly change the gaps between
    /// packets.
    fn is_slow(&self, case: &Case) -> bool {
        let runs = case.flows.iter().filter(|flow| !flow.active.is_empty());
        let least = |kind: &Kind| match kind {
            Kind::Udp(udp) => udp.sizes.iter().copied().min().unwrap_or(0),
            _ => 0,
        };
        let bits = runs.map(|flow| u64::from(least(&flow.kind)) * 8).min().unwrap_or(0);
        self.links.iter().all(|link| (bits * SECOND).checked_div(most(case, link)).is_some_and(|time| time >= SLOW))
    }

    /// The shaped link that packets from a side pass, if there is one.
    fn way(&self, side: Side) -> Option<&Link> {
        let inside = if side == Side::Sources { INSIDE } else { OUTSIDE };
        self.links.iter().find(|link| matches!(&link.device, Some(Device::Bridge { from, .. }) if from == inside))
    }
}

/// True if a figure depends on the host as much as on the policy, because it contains the time in
/// which threads wake up.
fn of_the_host(measure: Measure) -> bool {
    use Measure::*;
    measure.of_lab() || of_engine(measure) || matches!(measure, Transactions | RttP50 | RttP95 | RttP99)
}

/// The highest rate of a source in bit/s, with each packet counted as [`FULL`] bytes. A `local`
/// source fills the link, which is counted elsewhere; here only the packet counts that is dropped
/// before each sleep.
fn offered(case: &Case, at: usize, udp: &Udp) -> u64 {
    let sizes: u128 = udp.sizes.iter().map(|size| u128::from(*size)).sum();
    let mean = sizes.checked_div(udp.sizes.len() as u128).unwrap_or(0).max(1);
    let every =
        |packets: u32, nanos: u64| u128::from(packets) * FULL * 8 * u128::from(SECOND) / u128::from(nanos.max(1));
    let of_rate = |rate: Rate| u128::from(rate.as_bit_s()) * FULL / mean;
    let own = match &udp.shape {
        Shape::Constant(pace) | Shape::OnOff { pace, .. } | Shape::Poisson(pace) => match pace {
            Pace::Rate(rate) => of_rate(*rate),
            Pace::Interval(interval) => every(1, *interval),
        },
        Shape::Bursts { packets, every: span } => every(*packets, *span),
        Shape::Local { gap, sleep } => every(1, gap.saturating_add(*sleep)),
    };
    let events = case.events.iter().filter_map(|event| match event.what {
        What::FlowRate { flow, rate } if flow == at => Some(of_rate(rate)),
        _ => None,
    });
    u64::try_from(events.fold(own, u128::max)).unwrap_or(u64::MAX)
}

/// The highest rate of a link in bit/s: its own, or the sum of the ceilings of its top classes if
/// each of them has a ceiling and the sum is less.
fn most(case: &Case, link: &Link) -> u64 {
    let own = link.spec.rate.as_bit_s();
    let rates = case.events.iter().filter_map(|event| match event.what {
        What::LinkRate { rates, .. } => Some(rates.into_iter().flatten()),
        _ => None,
    });
    let rate = rates.flatten().map(|rate| rate.as_bit_s()).fold(own, u64::max);
    let steady = case.events.iter().all(|event| matches!(event.what, What::FlowActive { .. } | What::FlowRate { .. }));
    let top = link.spec.classes.iter().skip(1).filter(|class| class.parent == ROOT);
    let ceiling = link.entry_of(ROOT).and_then(|entry| entry.word_of(Role::CeilingOrGuarantee));
    let ceilings = ceiling.and_then(|word| top.map(|class| Some(class.settings.rate(word)?.as_bit_s())).sum());
    match ceilings.filter(|sum: &u64| *sum > 0 && steady) {
        Some(sum) => rate.min(sum),
        None => rate,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use altq_cases::case::CaseFile;

    use super::*;
    use crate::Options;

    /// The need of a case with this policy, these flows and these top-level keys.
    fn need(policy: &str, flows: &str, words: &str) -> Need {
        let text = format!(
            "name = 'c'\ndescription = 'd'\nduration = '2s'\n{words}\npolicy = '''{policy}'''\n\
             hosts = [{{ name = 'a' }}, {{ name = 'b' }}]\n\
             links = [{{ name = 'wan', from = 'a', to = 'b', policy = 'wan' }}]\nflows = [{flows}]\n"
        );
        let file = CaseFile::parse(&text, Path::new("c.toml")).unwrap_or_else(|error| panic!("{error}"));
        let case = &file.runs[0].case;
        let options = Options {
            congestion: None,
            buffers: None,
            offload: true,
            seed: 1,
            again: 0,
            progress: None,
            counters: |_, _| None,
        };
        Prepared::new(case, &case.columns[0], &options).unwrap().need(case)
    }

    const CBQ: &str = "link wan { rate 2Mbit/s  scheduler cbq  class x { share 100%  default } }";
    const BULK: &str = "{ name = 'f', kind = 'tcp_bulk', from = 'a', to = 'b', dport = 7 }";

    fn udp(name: &str, words: &str) -> String {
        format!("{{ name = '{name}', kind = 'udp', from = 'a', to = 'b', dport = 8, {words} }}")
    }

    #[test]
    fn what_is_sent_and_what_the_link_lets_through() {
        // Bulk TCP fills the link, however many connections there are; a source of datagrams has
        // its own rate.
        assert_eq!(need(CBQ, BULK, ""), Need::Shared(2_000_000));
        let two = format!("{BULK}, {}", BULK.replace("'f'", "'g'"));
        assert_eq!(need(CBQ, &two, ""), Need::Shared(2_000_000));
        assert_eq!(need(CBQ, &udp("u", "size = 1500, rate = '5Mbit/s'"), ""), Need::Shared(5_000_000));
        assert_eq!(need(CBQ, &udp("u", "size = 3000, interval = '1ms'"), ""), Need::Shared(12_000_000));
        // Small packets count as full ones: 1000 a second.
        assert_eq!(need(CBQ, &udp("u", "size = 100, interval = '1ms'"), ""), Need::Shared(12_000_000));
        assert_eq!(
            need(CBQ, &format!("{BULK}, {}", udp("u", "size = 1500, interval = '1ms'")), ""),
            Need::Shared(14_000_000)
        );
        let htb = "link wan { rate 100Mbit/s  scheduler htb  class x { rate 1Mbit/s  ceil 40Mbit/s  default } }";
        assert_eq!(need(htb, BULK, ""), Need::Shared(40_000_000));
        // A local source fills the link, and one packet is dropped before each sleep.
        let local = udp("u", "size = 8220, shape = 'local', interval = '1ms', sleep = '19ms'");
        assert_eq!(need(CBQ, &local, ""), Need::Shared(2_000_000 + 12_000 * 50));
        // If a rate changes during the run, the highest counts.
        let event = "{ at = '1s', flow = 'u', rate = '60Mbit/s' }";
        assert_eq!(
            need(CBQ, &udp("u", "size = 1500, rate = '5Mbit/s'"), &format!("events = [{event}]")),
            Need::Shared(60_000_000)
        );
    }

    #[test]
    fn what_measures_the_host_runs_alone() {
        assert_eq!(need(CBQ, BULK, "turns = 3"), Need::Alone);
        assert_eq!(need(CBQ, BULK, "overload = true"), Need::Alone);
        // Nothing is shaped on the way back.
        assert_eq!(need(CBQ, &BULK.replace("from = 'a', to = 'b'", "from = 'b', to = 'a'"), ""), Need::Alone);
        assert_eq!(need(CBQ, &BULK.replace("tcp_bulk", "tcp_rr"), ""), Need::Alone);
        for (measure, subject) in
            [("answer_max", "class = 'x'"), ("packet_time", "class = 'x'"), ("gap_mean", "flow = 'f'")]
        {
            let figure = format!("figures = [{{ name = 'm', measure = '{measure}', {subject} }}]");
            assert_eq!(need(CBQ, &udp("f", "size = 500, rate = '1Mbit/s'"), &figure), Need::Alone, "{measure}");
        }
        // At 2 Mbit/s a packet takes 6 ms in the first case, 4 ms in the second.
        let figure = "figures = [{ name = 'm', measure = 'gap_mean', flow = 'f' }]";
        assert_eq!(need(CBQ, &udp("f", "size = 1500, interval = '10ms'"), figure), Need::Shared(1_200_000));
        assert_eq!(need(CBQ, &udp("f", "size = 1000, interval = '10ms'"), figure), Need::Alone);
        let figure = "figures = [{ name = 'm', measure = 'delay_p99', class = 'x' }]";
        assert_eq!(need(CBQ, BULK, figure), Need::Shared(2_000_000));
    }
}
