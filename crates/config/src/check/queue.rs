//! Queues that are smaller than a packet.

use altq_engine::settings::Limit;
use altq_engine::spec::ClassId;

use crate::diagnostic::{Diagnostic, Findings};
use crate::policy::Link;

/// Warns of a class whose queue has room for fewer bytes than the link's largest packet, and drops
/// each such packet therefore. A limit of 0 was reported where it is written.
pub fn class(link: &Link, class: ClassId, findings: &mut Findings) {
    let (Some(spec), Some(written)) = (link.spec.classes.get(class as usize), link.classes.get(class as usize)) else {
        return;
    };
    let mtu = link.spec.mtu;
    let Some(Limit::Bytes(limit)) = spec.queue.as_ref().map(|queue| queue.limit) else { return };
    if limit == 0 || limit >= mtu {
        return;
    }
    let place = written.queue_words.iter().find(|(word, _)| *word == "limit");
    let place = place.map_or(written.place("queue"), |(_, span)| *span);
    let name = link.class_name(class);
    let message =
        format!("the queue of `{name}` drops each packet of more than {limit} bytes: the link has packets of {mtu}");
    let help = format!("give it {mtu}bytes at least, or the link the `mtu` that its packets have");
    findings.push(Diagnostic::warning("drops-large", place, message).help(help));
}
