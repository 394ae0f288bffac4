//! What a meter should keep to.

use altq_engine::shape::meter::{MeterSpec, Profile};
use altq_engine::spec::ClassId;

use crate::diagnostic::{Diagnostic, Findings};
use crate::policy::Link;

/// A packet that is larger than a bucket is never paid for by it (RFC 2697, section 2: a burst size
/// should be at least the largest packet if it is more than 0).
pub fn class(link: &Link, id: ClassId, findings: &mut Findings) {
    let settings = link.spec.classes.get(id as usize).map(|class| &class.settings);
    let Some(Ok(Some(spec))) = settings.map(MeterSpec::read) else { return };
    let sizes = match spec.profile {
        Profile::Bucket { cbs, .. } => [Some(("cbs", cbs)), None],
        Profile::SingleRate { cbs, ebs, .. } => [Some(("cbs", cbs)), Some(("ebs", ebs))],
        Profile::TwoRate { cbs, pbs, .. } => [Some(("cbs", cbs)), Some(("pbs", pbs))],
    };
    let small = sizes.into_iter().flatten().find(|(_, size)| *size < u64::from(link.spec.mtu));
    if let Some((word, size)) = small {
        let message = format!(
            "packets of more than {size} bytes never find enough in `{word}`; the link's MTU is {}",
            link.spec.mtu
        );
        let warning = Diagnostic::warning("small-bucket", link.classes[id as usize].place("meter"), message);
        findings.push(warning.help(format!("raise `{word}` to {} at least", link.spec.mtu)));
    }
}
