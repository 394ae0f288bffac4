//! What a case says of a flow's class, against the policy's rules, before anything runs.

use altq_cases::case::What;
use altq_engine::classify::Field;
use altq_engine::headers::Key;

use super::SimError;
use super::world::World;

impl World<'_> {
    /// Compares the class that the case names for a flow with the one that the rules choose.
    ///
    /// # Errors
    /// All packets of a flow certainly go to another class than the one that the case names. Its
    /// result would be invalid.
    pub fn compare_classes(&mut self) -> Result<(), SimError> {
        // Classes that come and go change the rules.
        let changes = |what: &What| matches!(what, What::AddClass { .. } | What::RemoveClass { .. });
        if !self.is_governed() || self.case.events.iter().any(|event| changes(&event.what)) {
            return Ok(());
        }
        for (at, flow) in self.case.flows.iter().enumerate() {
            let (Some(name), Some((port, wanted))) = (&flow.class, self.wanted_class(at)?) else { continue };
            // Packets of a capture are what they are.
            let Some(key) = self.flows.get(at).and_then(|flow| flow.key) else { continue };
            let Some(class) = self.class_of_all(port, &key) else { continue };
            if class != Some(wanted) {
                let found = match class {
                    Some(row) => format!("class `{}`", self.class_names()((port, row))),
                    None => "no class".to_owned(),
                };
                let why = format!(
                    "the rules put the packets of flow `{}` into {found}; name that one, or change the flow or the \
                     rules",
                    flow.name
                );
                return Err(self.wrong(name, &why));
            }
        }
        Ok(())
    }

    /// The row of the class of all packets that have the fields of a key in common, `Some(None)`
    /// being no class; `None` if packets may differ, or if the rules see the header of a tunnel.
    fn class_of_all(&mut self, port: usize, key: &Key) -> Option<Option<u32>> {
        let port = self.ports.get_mut(port).filter(|port| port.tunnel.is_none())?;
        let governed = port.policy.as_ref()?;
        let differs = |field: Field| match field {
            Field::Ecn | Field::Tos | Field::TcpFlags | Field::Length => true,
            Field::SrcPort | Field::Port => key.sport().is_none(),
            _ => false,
        };
        if governed.link.spec.rules.rules.iter().flat_map(|rule| &rule.terms).any(|term| differs(term.field)) {
            return None;
        }
        let class = port.engine.classify(key);
        Some(class.map(|class| governed.row(class)))
    }
}
