//! The traffic of a link that a program learns on: when packets arrive, and how long they are.

use altq_cases::limits::LARGEST_PACKET;
use altq_cases::random::Random;
use altq_engine::units::{Nanos, SECOND};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// How the packets of a class arrive.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Gaps from the exponential distribution.
    Poisson,
    /// Equal gaps.
    Constant,
    /// Equal gaps while on; times on and off from the exponential distribution, with these means.
    OnOff { on: Nanos, off: Nanos },
}

/// The source of a class, as it is described.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    kind: Kind,
    /// The gap between two packets, on average; for `OnOff` while on.
    gap: Nanos,
    /// Length of each packet, in bytes at layer 3.
    pub bytes: u32,
}

impl Plan {
    /// A source by its words. `rate` is in bit/s at layer 3, of `OnOff` while on.
    pub fn new(class: &str, kind: &str, rate: u64, bytes: u64, on: Nanos, off: Nanos) -> PyResult<Plan> {
        let wrong = |message: String| Err(PyValueError::new_err(format!("traffic of {class}: {message}")));
        if rate == 0 {
            return wrong("rate_bit_s is at least 1; leave the class out if it has no traffic".into());
        }
        if !(1..=u64::from(LARGEST_PACKET)).contains(&bytes) {
            return wrong(format!("packets of {bytes} bytes; a length is 1 to {LARGEST_PACKET} bytes at layer 3"));
        }
        let gap = (u128::from(bytes) * 8 * u128::from(SECOND)).div_ceil(u128::from(rate)) as Nanos;
        let kind = match kind {
            "poisson" => Kind::Poisson,
            "constant" => Kind::Constant,
            "onoff" if on == 0 || off == 0 => {
                return wrong("on_ns and off_ns are the mean times on and off, at least 1 ns each".into());
            }
            // Otherwise nearly all times on would pass without a packet.
            "onoff" if on < gap => {
                return wrong(format!("on_ns is {on}, and a packet each {gap} ns arrives while on; make on_ns longer"));
            }
            "onoff" => Kind::OnOff { on, off },
            other => return wrong(format!("there is no kind {other:?}: poisson, constant or onoff")),
        };
        Ok(Plan { kind, gap, bytes: bytes as u32 })
    }
}

/// A source that runs.
#[derive(Clone, Debug)]
pub struct Source {
    plan: Plan,
    random: Random,
    /// When the next packet arrives.
    pub next: Nanos,
    /// When the present time on ends.
    on_until: Nanos,
}

impl Source {
    /// Source number `stream` for a seed, from time 0 on.
    pub fn new(plan: Plan, seed: u64, stream: u64) -> Source {
        let mut random = Random::new(seed, stream);
        let mut source = Source { plan, next: 0, on_until: 0, random: random.clone() };
        source.next = match plan.kind {
            Kind::Poisson => random.exponential(plan.gap),
            // Any phase.
            Kind::Constant => random.up_to(plan.gap),
            Kind::OnOff { on, off } => {
                let (first, until) = on_time(&mut random, 0, plan.gap, on, off);
                source.on_until = until;
                first
            }
        };
        source.random = random;
        source
    }

    /// Bytes of the packet that arrives at `next`; then the one behind it is expected.
    #[inline]
    pub fn take(&mut self) -> u32 {
        let gap = self.plan.gap;
        self.next = match self.plan.kind {
            Kind::Poisson => self.next.saturating_add(self.random.exponential(gap)),
            Kind::Constant => self.next.saturating_add(gap),
            Kind::OnOff { on, off } => {
                let next = self.next.saturating_add(gap);
                if next <= self.on_until {
                    next
                } else {
                    let (first, until) = on_time(&mut self.random, self.on_until, gap, on, off);
                    self.on_until = until;
                    first
                }
            }
        };
        self.plan.bytes
    }
}

/// The next time on that has a packet: when its first one arrives, and when it ends. Packets have
/// any phase in it, so that there are as many as the rate says on average.
fn on_time(random: &mut Random, from: Nanos, gap: Nanos, on: Nanos, off: Nanos) -> (Nanos, Nanos) {
    let mut end = from;
    loop {
        let begin = end.saturating_add(random.exponential(off));
        end = begin.saturating_add(random.exponential(on));
        let first = begin.saturating_add(random.up_to(gap));
        if first <= end {
            return (first, end);
        }
    }
}
