//! The changes that a case makes during its run.

use altq_cases::case::What;
use altq_cases::source::Endpoint;
use altq_engine::Change;
use altq_engine::headers::Key;
use altq_engine::units::{Nanos, Rate};

use super::Handled;
use super::events::{Event, Rank};
use super::stream::Talk;
use super::world::{World, bad};

impl World<'_> {
    /// Applies the change with this index in the case.
    pub(super) fn change(&mut self, now: Nanos, at: usize) -> Handled {
        let case = self.case;
        let what = &case.events[at].what;
        match what {
            What::LinkRate { link, rates } => {
                for port in self.ports.iter_mut().filter(|port| port.link == *link) {
                    let Some(rate) = &rates[usize::from(port.back)] else { continue };
                    port.wire.set_rate(*rate);
                    port.rings.iter_mut().for_each(|rings| rings.set_rate(*rate));
                    if let Some(medium) = port.station.as_ref().and_then(|station| self.media.get_mut(station.medium)) {
                        medium.set_rate(*rate);
                    }
                    port.engine.apply(now, &Change::SetRate(*rate)).map_err(|e| bad(e.to_string()))?;
                }
            }
            What::FlowRate { flow, rate } => self.set_flow_rate(*flow, *rate),
            What::FlowActive { flow, active: false } => self.stop(now, *flow)?,
            What::FlowActive { flow, active: true } => self.schedule(now, Rank::Arrival, Event::Start(*flow as u32)),
            What::SetClass { .. } | What::AddClass { .. } | What::RemoveClass { .. } => {
                let keys: Vec<Key> = match what {
                    What::AddClass { flows, .. } => flows.iter().filter_map(|f| self.flows[*f].key).collect(),
                    _ => Vec::new(),
                };
                let event = |why: String| format!("event at {} ns: {why}", case.events[at].at);
                let links = self.policies();
                let (policy, change) = match what.of_class(&links) {
                    Ok(Some((link, change))) => (links.link_name(link).to_owned(), change),
                    Ok(None) => return Ok(()),
                    Err((name, why)) => return Err(self.wrong(name, &event(why)).into()),
                };
                for at in 0..self.ports.len() {
                    let port = &mut self.ports[at];
                    if port.policy.as_ref().is_none_or(|own| own.link.name != policy) {
                        continue;
                    }
                    if let Err(why) = port.change(now, &change, &keys) {
                        return Err(match what.class() {
                            Some(name) => self.wrong(name, &event(why)).into(),
                            None => bad(event(why)).into(),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    fn set_flow_rate(&mut self, flow: usize, rate: Rate) {
        for stream in &self.flows[flow].streams {
            if let Some(Talk::Source(source)) = self.streams.get_mut(*stream as usize).map(|stream| &mut stream.talk) {
                source.set_rate(rate);
            }
        }
    }
}
