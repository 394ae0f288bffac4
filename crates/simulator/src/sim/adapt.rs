//! Links whose rates adapt: what their controllers are told, and what they decide.
//!
//! The reflectors of a link are the hosts of the case with their addresses, and the probes are the
//! case's pings to them. So probes pass ports, classes and queues like any other packet.

use altq_adapt::{Adaptive, Answer, Controller, Load, Sample, Settings, TICK};
use altq_cases::case::{Controls, Flow, Kind, What};
use altq_cases::result::RateChange;
use altq_engine::Change;
use altq_engine::units::Nanos;

use super::autorate::CakeAutorate;
use super::events::{Event, Rank};
use super::world::{World, bad};
use super::{Handled, SimError};

/// A link whose rate adapts.
pub struct Adapting {
    /// Its port.
    port: usize,
    controller: Box<dyn Controller>,
    /// By reflector: the flow of pings that probes it.
    flows: Vec<usize>,
    /// What was decided, beginning with the rate at the start.
    changes: Vec<RateChange>,
}

impl World<'_> {
    /// Makes the controllers of the links whose rates adapt, and sets the events that ask them.
    pub(super) fn set_up_adapting(&mut self) -> Result<(), SimError> {
        let case = self.case;
        for (at, port) in self.ports.iter().enumerate() {
            let Some(governed) = &port.policy else { continue };
            let Some(adapt) = &governed.link.adapt else { continue };
            let Some(link) = case.links.get(port.link) else { continue };
            let name = &governed.name;
            let set_by_case = case.events.iter().any(|event| match &event.what {
                What::LinkRate { link, rates } => *link == port.link && rates[usize::from(port.back)].is_some(),
                _ => false,
            });
            if set_by_case {
                return Err(bad(format!(
                    "link {name}: its rate adapts, so no event and no trace sets it; put the line that changes behind \
                     it, as a link of its own"
                )));
            }
            let mut flows = Vec::new();
            for address in &adapt.reflectors {
                let Some(host) = case.hosts.iter().position(|host| host.address == *address) else {
                    return Err(bad(format!(
                        "link {name}: no host has the address {address} of its reflector; write `address` in a host"
                    )));
                };
                let probes = |flow: &Flow| {
                    let pings = matches!(flow.kind, Kind::Ping { .. });
                    pings && [link.from, link.to].contains(&flow.from) && flow.to == host
                };
                let Some(flow) = case.flows.iter().position(probes) else {
                    let (ends, to) = ([link.from, link.to].map(|end| &case.hosts[end].name), &case.hosts[host].name);
                    return Err(bad(format!(
                        "link {name}: nothing probes its reflector {address}; write a flow of kind ping from {} or {} \
                         to {to}",
                        ends[0], ends[1]
                    )));
                };
                flows.push(flow);
            }
            let settings = Settings::new(governed.link.spec.rate, adapt.from, adapt.to, adapt.target);
            let controller: Box<dyn Controller> = match self.column.controller {
                Controls::Altq => Box::new(Adaptive::new(settings, flows.len())),
                Controls::CakeAutorate => Box::new(CakeAutorate::new(settings, flows.len())),
            };
            let (bit_s, reason) = (controller.rate().as_bit_s(), "start".to_owned());
            let start = RateChange { link: name.clone(), at_ns: 0, bit_s, reason, text: String::new() };
            self.adapting.push(Adapting { port: at, controller, flows, changes: vec![start] });
        }
        for at in 0..self.adapting.len() {
            self.schedule(0, Rank::Timer, Event::Adapt(at as u32));
        }
        Ok(())
    }

    /// A ping of this flow is sent.
    pub(super) fn probed(&mut self, now: Nanos, flow: usize) {
        for adapting in &mut self.adapting {
            if let Some(reflector) = adapting.flows.iter().position(|own| *own == flow) {
                adapting.controller.probed(now, reflector);
            }
        }
    }

    /// The ping of this flow that was sent at `sent` is answered, or given up.
    pub(super) fn heard(&mut self, now: Nanos, flow: usize, sent: Nanos, answer: Answer) -> Handled {
        for at in 0..self.adapting.len() {
            let adapting = &mut self.adapting[at];
            if let Some(reflector) = adapting.flows.iter().position(|own| *own == flow) {
                adapting.controller.heard(Sample { at: now, reflector, sent, answer });
                self.ask(now, at)?;
            }
        }
        Ok(())
    }

    /// Asks a controller, and sets the event that asks it again.
    pub(super) fn ask_again(&mut self, now: Nanos, at: usize) -> Handled {
        self.schedule(now.saturating_add(TICK), Rank::Timer, Event::Adapt(at as u32));
        self.ask(now, at)
    }

    /// Asks a controller for a decision, and gives its link the new rate.
    fn ask(&mut self, now: Nanos, at: usize) -> Handled {
        let Some(adapting) = self.adapting.get_mut(at) else { return Ok(()) };
        let place = adapting.port;
        let Some(port) = self.ports.get_mut(place) else { return Ok(()) };
        let backlogged = port.engine.iter().any(|engine| engine.backlog() > 0);
        let load = Load { at: now, sent_bytes: port.charged, backlogged };
        let Some(decision) = adapting.controller.decide(load) else { return Ok(()) };
        port.engine.apply(now, &Change::SetRate(decision.after)).map_err(|error| bad(error.to_string()))?;
        adapting.changes.push(RateChange {
            link: port.policy.as_ref().map_or(String::new(), |governed| governed.name.clone()),
            at_ns: now,
            bit_s: decision.after.as_bit_s(),
            reason: decision.reason.word().to_owned(),
            text: decision.to_string(),
        });
        self.run_scheduler(now, place)
    }

    /// Takes the changes of all rates that adapt, in order of time.
    pub fn take_rates(&mut self) -> Vec<RateChange> {
        let mut all: Vec<RateChange> =
            self.adapting.iter_mut().flat_map(|adapting| std::mem::take(&mut adapting.changes)).collect();
        all.sort_by_key(|change| change.at_ns);
        all
    }
}
