//! What a class of `fairq` should keep to.

use altq_engine::spec::ClassId;

use crate::diagnostic::{Diagnostic, Findings};
use crate::policy::Link;

/// `buckets` and `hogs` are words of the queue that the class has by default.
pub fn class(link: &Link, id: ClassId, findings: &mut Findings) {
    let (place, spec) = (&link.classes[id as usize], &link.spec.classes[id as usize]);
    let Some(word) = ["buckets", "hogs"].into_iter().find(|word| spec.settings.get(word).is_some()) else { return };
    let span = place.place(word);
    if spec.queue.is_some() {
        let error = Diagnostic::error("given-twice", span, format!("`{word}` and `queue` both say which queue it is"));
        let help = format!("leave one of them out, or write queue fairq {{ {word} … }}");
        findings.push(error.label(place.place("queue"), "the queue").help(help));
    } else if spec.scheduler.is_some() {
        let message = format!("`{word}` has no effect: `{}` holds a scheduler", place.name);
        findings.push(Diagnostic::warning("no-effect", span, message).help("give it to the classes below"));
    }
}
