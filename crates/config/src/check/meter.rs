//! Checks of the meters of classes.

use altq_engine::shape::meter::{MeterSpec, Profile};
use altq_engine::spec::{ClassId, ROOT};

use crate::diagnostic::{Diagnostic, Findings};
use crate::policy::Link;

/// Warns of a bucket that holds less than the largest packet: a packet that large never conforms to
/// it. RFC 2697, section 2: a burst size that is not 0 should be at least as large as the largest
/// packet. And of a meter that drops packets of several classes. `inner`: classes stand below.
pub fn class(link: &Link, id: ClassId, inner: bool, findings: &mut Findings) {
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
    if inner && spec.most().is_some() && holders(link, id) > 1 {
        let message = format!(
            "the meter of `{}` drops packets of all classes below it: one of them may spend the tokens of all, so none \
             is promised anything",
            link.class_name(id)
        );
        let warning = Diagnostic::warning("shared-meter", link.classes[id as usize].place("meter"), message);
        findings.push(warning.help("give each of these classes a meter of its own, or a ceiling instead of a meter"));
    }
}

/// How many classes hold packets at or below a class.
fn holders(link: &Link, class: ClassId) -> usize {
    let mut within = vec![false; link.spec.classes.len()];
    let mut count = 0;
    // Parents stand before their children.
    for (at, (spec, holds)) in link.spec.classes.iter().zip(link.holders()).enumerate() {
        let inside = at == class as usize || at != ROOT as usize && within[spec.parent as usize];
        within[at] = inside;
        count += usize::from(inside && holds);
    }
    count
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
