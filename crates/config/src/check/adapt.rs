//! Checks of a rate that adapts.

use altq_engine::spec::Regulator;
use altq_engine::{Change, Engine};

use crate::diagnostic::{Diagnostic, Findings, Span};
use crate::policy::Link;

/// Where `adapt` is written.
fn place(link: &Link) -> Span {
    link.classes.first().map_or(link.span, |root| root.place("adapt"))
}

/// Without a regulator a link has no rate to change.
pub(super) fn regulated(link: &Link, findings: &mut Findings) {
    if link.adapt.is_some() && link.spec.regulator == Regulator::None {
        let message = "`regulator none` lets a device take what it wants, so the rate that adapts limits nothing";
        findings.push(Diagnostic::error("no-effect", place(link), message).help("write `regulator auto`"));
    }
}

/// The engine must take the link at its lowest and at its highest rate too. `engine`: one of the
/// link, without packets.
pub(super) fn bounds(link: &Link, engine: &mut Engine, findings: &mut Findings) {
    let Some(adapt) = &link.adapt else { return };
    for rate in [adapt.from, adapt.to] {
        if let Err(error) = engine.apply(0, &Change::SetRate(rate)) {
            let class = error.class.map_or(String::new(), |class| format!("class `{}`: ", link.class_name(class)));
            let message = format!("at {rate} the link does not work: {class}{}", error.message);
            findings.push(Diagnostic::error("refused", place(link), message).help_if(error.help));
            return;
        }
    }
}
