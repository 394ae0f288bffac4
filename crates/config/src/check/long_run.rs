//! Words that fit by themselves and not together: a class that has less than they say while all
//! classes have packets.

use altq_engine::schedule::Role;
use altq_engine::spec::{ClassId, ROOT};

use crate::diagnostic::{Diagnostic, Findings};
use crate::policy::Link;
use crate::promise::Promises;

/// Warns of the first class that can count on less than its words say, and tells how many more
/// there are. A class that its own limit holds lower is warned of elsewhere.
pub fn check(link: &Link, findings: &mut Findings) {
    let said = link.children().into_iter().flatten().any(|class| link.entry_of(class).is_some_and(|e| e.long_run.is_some()));
    if !said || link.overcommit || findings.has_errors() {
        return;
    }
    let promises = Promises::new(link);
    let less = (ROOT + 1..link.spec.classes.len() as ClassId).filter_map(|class| {
        let asks = link.guarantee(class)?.min(link.ceiling(class));
        let has = promises.guaranteed(class)?;
        (link.spec.served_by_root(class) && has < asks).then_some((class, asks, has))
    });
    let mut less = less.collect::<Vec<_>>().into_iter();
    let Some((class, asks, has)) = less.next() else { return };
    let (name, entry) = (link.class_name(class), link.entry_of(class));
    let message = format!("while all classes have packets, `{name}` has {has} of its {asks}");
    let roles = [Role::Share, Role::Guarantee];
    let word = roles.into_iter().find_map(|role| entry?.word_of(role));
    let place = &link.classes[class as usize];
    let warning = Diagnostic::warning("less-than-asked", word.map_or(place.span, |word| place.place(word)), message);
    let more = match less.len() {
        0 => String::new(),
        n => format!("; {n} more have less than their words say, see `guarantee` in the table"),
    };
    findings.push(warning.help(format!(
        "what other classes are owed by their deadlines goes first: let the larger of the two rates of each class \
         together fit what is above them{more}"
    )));
}
