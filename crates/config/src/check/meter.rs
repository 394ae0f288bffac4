//! Checks of the meters of classes.

use altq_engine::shape::meter::{MeterSpec, Profile};
use altq_engine::spec::ClassId;

use crate::diagnostic::{Diagnostic, Findings};
use crate::policy::Link;

/// Warns of a bucket that holds less than the largest packet: a packet that large never conforms to
/// it. RFC 2697, section 2: a burst size that is not 0 should be at least as large as the largest
/// packet.
pub fn class(link: &Link, id: ClassId, findings: &mut Findings) {
    let settings = link.spec.classes.get(id as usize).map(|class| &class.settings);
    let Some(Ok(Some(spec))) = settings.map(MeterSpec::read) else { return };
    if let Some((word, size)) = small(&spec, u64::from(link.spec.mtu)) {
        let message = format!(
            "packets of more than {size} bytes never find enough in `{word}`; the link's MTU is {}",
            link.spec.mtu
        );
        let warning = Diagnostic::warning("small-bucket", link.classes[id as usize].place("meter"), message);
        findings.push(warning.help(format!("raise `{word}` to {} at least", link.spec.mtu)));
    }
}

/// A bucket of the meter, or of one inside it, that is smaller than a packet.
fn small(spec: &MeterSpec, mtu: u64) -> Option<(&'static str, u64)> {
    let sizes = match spec.profile {
        Profile::Bucket { cbs, .. } | Profile::Tspec { bytes: cbs, .. } => [Some(("cbs", cbs)), None],
        Profile::SingleRate { cbs, ebs, .. } => [Some(("cbs", cbs)), Some(("ebs", ebs))],
        Profile::TwoRate { cbs, pbs, .. } => [Some(("cbs", cbs)), Some(("pbs", pbs))],
        Profile::Window { .. } | Profile::All => [None, None],
    };
    let own = sizes.into_iter().flatten().find(|(_, size)| *size < mtu);
    own.or_else(|| spec.next.iter().flatten().find_map(|inside| small(inside, mtu)))
}
