//! Figures that need every single packet: gaps between packets, and when a rate is reached.

use std::collections::VecDeque;

use altq_cases::case::Probe;
use altq_cases::gaps::Gaps;
use altq_engine::spec::ClassId;
use altq_engine::units::{Nanos, SECOND};

/// The gaps between the packets of flows, by flow and window.
pub struct FlowGaps {
    flows: Vec<Vec<(Nanos, Nanos, Gaps)>>,
}

impl FlowGaps {
    /// For this number of flows; no gaps are kept yet.
    pub fn new(flows: usize) -> FlowGaps {
        FlowGaps { flows: vec![Vec::new(); flows] }
    }

    /// Keeps the gaps between packets of a flow that arrive in the window [from, to).
    pub fn keep(&mut self, flow: usize, from: Nanos, to: Nanos) {
        if self.of(flow, from, to).is_none()
            && let Some(list) = self.flows.get_mut(flow)
        {
            list.push((from, to, Gaps::default()));
        }
    }

    /// Counts a packet of the flow that arrives now.
    #[inline]
    pub fn arrived(&mut self, now: Nanos, flow: usize) {
        let Some(windows) = self.flows.get_mut(flow) else { return };
        for (from, to, gaps) in windows {
            if (*from..*to).contains(&now) {
                gaps.arrived(now);
            }
        }
    }

    /// The gaps of a flow in a window, if they were kept.
    pub fn of(&self, flow: usize, from: Nanos, to: Nanos) -> Option<&Gaps> {
        self.flows.get(flow)?.iter().find(|(a, b, _)| (*a, *b) == (from, to)).map(|(_, _, gaps)| gaps)
    }
}

/// Follows a class or a flow until it reaches a rate.
pub struct Trace {
    /// The probe that needs the trace.
    pub probe: Probe,
    /// The port of the class; `None` if a flow is traced.
    port: Option<usize>,
    /// The class and all below it, or the flow.
    numbers: Vec<ClassId>,
    /// The rate in bit/s times the span in nanoseconds.
    wanted: u128,
    /// Time and bytes of the packets in the last span.
    last: VecDeque<(Nanos, u32)>,
    /// The bytes of these packets.
    sum: u64,
    /// When the first span began in which the rate was reached.
    found: Option<Nanos>,
}

impl Trace {
    /// A trace for a probe of [`altq_cases::case::Measure::Reach`].
    pub fn new(probe: &Probe, port: Option<usize>, numbers: Vec<ClassId>) -> Trace {
        // Bytes * 8 * SECOND are compared with bit/s * ns, which is exact.
        let wanted = u128::from(probe.level.as_bit_s()) * u128::from(probe.over);
        Trace { probe: probe.clone(), port, numbers, wanted, last: VecDeque::new(), sum: 0, found: None }
    }

    /// Counts a packet of a class that a port hands over now.
    pub fn class(&mut self, now: Nanos, port: usize, class: ClassId, bytes: u32) {
        if self.port == Some(port) && self.numbers.contains(&class) {
            self.count(now, bytes);
        }
    }

    /// Counts a packet of a flow that arrives now.
    pub fn flow(&mut self, now: Nanos, flow: usize, bytes: u32) {
        if self.port.is_none() && self.numbers.contains(&(flow as u32)) {
            self.count(now, bytes);
        }
    }

    /// Counts a packet, and checks whether the rate is reached.
    fn count(&mut self, now: Nanos, bytes: u32) {
        if self.found.is_some() || now < self.probe.from || now >= self.probe.to {
            return;
        }
        self.last.push_back((now, bytes));
        self.sum += u64::from(bytes);
        while let Some((at, bytes)) = self.last.front().copied().filter(|(at, _)| at + self.probe.over < now) {
            self.last.pop_front();
            self.sum -= u64::from(bytes);
            debug_assert!(at <= now);
        }
        if u128::from(self.sum) * 8 * u128::from(SECOND) >= self.wanted {
            self.found = Some(now.saturating_sub(self.probe.over).max(self.probe.from));
        }
    }

    /// The time from the window's beginning to that of the first span in which the rate was
    /// reached, in nanoseconds.
    pub fn reached(&self) -> Option<f64> {
        self.found.map(|at| (at - self.probe.from) as f64)
    }
}
