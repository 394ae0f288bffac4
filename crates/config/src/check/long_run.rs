//! Words that fit by themselves and not together: a class that has less than they say while all
//! classes have packets.

use altq_engine::schedule::Role;
use altq_engine::spec::{ClassId, ROOT};

use crate::diagnostic::Diagnostic;
use crate::policy::Link;
use crate::promise::Promises;

/// Tells the first class that can count on less than its words say, and how many more there are.
/// Of a class that its own limit holds lower other checks warn.
pub fn advice(link: &Link) -> Option<Diagnostic> {
    let classes = || (ROOT + 1..link.spec.classes.len() as ClassId).filter(|class| link.spec.served_by_root(*class));
    // Where the first class is served by a scheduler that says nothing, so are the others.
    link.entry_of(classes().next()?)?.long_run?;
    let promises = Promises::new(link);
    let less = classes().filter_map(|class| {
        let asks = link.guarantee(class)?.min(link.sure_ceiling(class));
        // Other findings tell of classes that a meter above them leaves nothing for certain.
        let has = promises.guaranteed(class).filter(|_| !promises.shares_meter(class))?;
        (has < asks).then_some((class, asks, has))
    });
    let mut less = less.collect::<Vec<_>>().into_iter();
    let (class, asks, has) = less.next()?;
    let (name, entry) = (link.class_name(class), link.entry_of(class));
    let message = format!("while all classes have packets, `{name}` has {has} of its {asks}");
    let word = [Role::Share, Role::Guarantee].into_iter().find_map(|role| entry?.word_of(role));
    let place = &link.classes[class as usize];
    let warning = Diagnostic::warning("less-than-asked", word.map_or(place.span, |word| place.place(word)), message);
    let more = match less.len() {
        0 => String::new(),
        n => format!("; {n} more have less than their words say, as the table's `guarantee` shows"),
    };
    Some(warning.help(format!(
        "what deadlines owe to other classes goes first: of each class take the larger of its two rates, and let these \
         add up to no more than is above them{more}"
    )))
}
