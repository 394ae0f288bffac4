//! The changes that a case makes during its run.

use altq_cases::case::What;
use altq_cases::source::Endpoint;
use altq_engine::Change;
use altq_engine::headers::Key;
use altq_engine::units::{Nanos, Rate};

use super::SimError;
use super::events::{Event, Rank};
use super::stream::Talk;
use super::world::{World, bad};

impl World<'_> {
    /// Applies the change with this index in the case.
    pub(super) fn change(&mut self, now: Nanos, at: usize) -> Result<(), SimError> {
        let case = self.case;
        let what = &case.events[at].what;
        match what {
            What::LinkRate { link, rate } => {
                for port in self.ports.iter_mut().filter(|port| port.link == *link) {
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
            What::SetClass { class, .. } | What::AddClass { class, .. } | What::RemoveClass { class, .. } => {
                let keys: Vec<Key> = match what {
                    What::AddClass { flows, .. } => flows.iter().filter_map(|f| self.flows[*f].key).collect(),
                    _ => Vec::new(),
                };
                let mut found = false;
                for port in &mut self.ports {
                    if port.concerns(what) {
                        found = true;
                        port.change(now, what, &keys)
                            .map_err(|e| bad(format!("event at {} ns: {e}", case.events[at].at)))?;
                    }
                }
                if !found {
                    self.class(class).map_err(|e| bad(format!("event at {} ns: {e}", case.events[at].at)))?;
                    return Err(bad(format!(
                        "event at {} ns: no link has the parent of class {class}",
                        case.events[at].at
                    )));
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
