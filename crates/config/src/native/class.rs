//! `class NAME { … }`, and the words `scheduler` and `queue`.

use altq_engine::queue;
use altq_engine::schedule::{self, Entry};
use altq_engine::settings::{Limit, Settings};
use altq_engine::spec::{ClassId, ClassSpec, QueueSpec, ROOT, SchedulerSpec};

use super::draft::Draft;
use super::meter;
use super::reader::{Base, Cursor, Reader};
use super::token::{Tree, What};
use super::words;
use crate::diagnostic::{Diagnostic, Span, short};
use crate::literal::policy;
use crate::policy::{Class, LONGEST_NAME};
use crate::reservations::{Reservations, WORDS};
use crate::suggest::did_you_mean;

/// The name of a class and its braces.
pub struct Head<'t> {
    pub name: Span,
    pub inside: &'t [Tree],
}

/// Reads the name and the group in braces behind `class` or `link`.
pub fn head<'t>(reader: &mut Reader<'_>, cursor: &mut Cursor<'t>, of: (&str, Span)) -> Option<Option<Head<'t>>> {
    let Some((name, span)) = cursor.word(reader) else {
        reader.error("missing-value", of.1, format!("`{}` needs a name", of.0), None);
        return None;
    };
    // After a bad name the braces are still read, so that errors in them are found.
    if let Some(c) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !"_.-".contains(*c)) {
        let help = Some("a name is of letters, digits, `_`, `.` and `-`".to_owned());
        reader.error("bad-name", span, format!("`{}` is no name: it holds `{c}`", short(name)), help);
    } else if name.len() > LONGEST_NAME {
        reader.error("bad-name", span, format!("this name is longer than {LONGEST_NAME} characters"), None);
    }
    let Some((inside, ..)) = cursor.group() else {
        let help = Some(format!("as `{} {} {{ … }}`", of.0, short(name)));
        reader.error("missing-braces", span, format!("`{} {}` needs braces", of.0, short(name)), help);
        return None;
    };
    Some(Some(Head { name: span, inside }))
}

/// Reads a class and the classes in it into the draft. It calls itself for each class in a class;
/// the depth of braces, [`super::token::MAX_DEPTH`], bounds that.
pub fn read(reader: &mut Reader<'_>, draft: &mut Draft, head: Head<'_>, parent: ClassId) {
    if reader.findings.full() {
        return;
    }
    let name = reader.slice(head.name);
    let id = draft.link.classes.len() as ClassId;
    if let Some(first) = draft.names.get(name) {
        let place = draft.link.classes.get(*first as usize).map_or(head.name, |class| class.span);
        let error = if *first == ROOT {
            Diagnostic::error("duplicate-name", head.name, format!("the class `{name}` has the name of its link"))
                .help("the link is the root class, and its name is the link's")
        } else {
            Diagnostic::error("duplicate-name", head.name, format!("there are two classes `{name}`"))
        };
        reader.findings.push(error.label(place, "the first"));
    } else {
        draft.names.insert(name.to_owned(), id);
    }
    let spec = ClassSpec { parent, settings: Settings::new(), queue: None, scheduler: None };
    draft.link.spec.classes.push(spec);
    draft.link.classes.push(Class { name: name.to_owned(), span: head.name, ..Class::default() });

    let Some(entry) = draft.link.entry_of(id) else { return };
    let base = Base { link: Some(draft.link.spec.rate), parent: draft.link.capacity(parent) };
    let words = class_words(entry);
    let known = |word: &str| words.contains(&word);
    let (mut settings, mut places, mut children) = (Settings::new(), Vec::new(), Vec::new());
    let mut default = None;
    let mut cursor = Cursor::new(head.inside);
    let mut before = "";
    while let Some(tree) = cursor.next() {
        let text = reader.slice(tree.span);
        let is_word = matches!(tree.what, What::Word);
        // Some names of words are two: `bandwidth remaining 30%`, and `burst` in
        // `police 1Mbit/s burst 3000`.
        let second = |first: &str, second: &str| {
            words.iter().find(|word| word.split_once(' ') == Some((first, second))).copied()
        };
        let mut of = (text, tree.span);
        let mut word = words.iter().find(|word| is_word && **word == text).copied();
        if let Some((next, span)) = cursor.peek_word(reader)
            && let Some(longer) = second(text, next).filter(|_| is_word)
        {
            cursor.next();
            (word, of) = (Some(longer), (longer, tree.span.to(span)));
        } else if word.is_none() && is_word {
            word = second(before, text);
        }
        let Some(word) = word else {
            unknown_class_word(reader, &mut cursor, tree, entry, &words);
            continue;
        };
        before = word.split_once(' ').map_or(word, |(first, _)| first);
        let slot = if word == "share" { "rate" } else { word };
        if word != "class" && !reader.once(&mut places, slot, tree.span) {
            cursor.skip(reader, known);
            continue;
        }
        let done = match word {
            "class" => self::head(reader, &mut cursor, of).map(|found| children.extend(found)),
            "default" => {
                default = Some(tree.span);
                Some(())
            }
            "queue" => queue(reader, &mut cursor, of, &base).map(|(queue, places)| {
                draft.link.spec.classes[id as usize].queue = Some(queue);
                draft.link.classes[id as usize].queue_words = places;
            }),
            "meter" => meter::read(reader, &mut cursor, of, &base, &mut settings),
            "reservations" => {
                reservations(reader, draft, &mut cursor, id, tree.span, &base);
                Some(())
            }
            "scheduler" => scheduler(reader, &mut cursor, of, &base).map(|(scheduler, places)| {
                draft.link.spec.classes[id as usize].scheduler = Some(scheduler);
                draft.link.classes[id as usize].scheduler_words = places;
            }),
            _ => entry.class_words.iter().find(|entry| entry.name == slot).and_then(|word| {
                let value = reader.registry_value(&mut cursor, word, of, &base)?;
                settings.set(word.name, value);
                Some(())
            }),
        };
        if done.is_none() {
            cursor.skip(reader, known);
        }
    }
    draft.link.spec.classes[id as usize].settings = settings;
    draft.link.classes[id as usize].words = places;
    if let Some(span) = default {
        match draft.default {
            Some(first) => {
                let error = Diagnostic::error("two-defaults", span, "a link has one default class, this is the second");
                reader.findings.push(error.label(first, "the first"));
            }
            None => {
                draft.default = Some(span);
                draft.link.spec.default = Some(id);
            }
        }
    }
    nesting(reader, draft, id);
    for child in children {
        read(reader, draft, child, id);
    }
}

/// Reads what stands behind the word `reservations`: words in braces, or nothing.
fn reservations(
    reader: &mut Reader<'_>,
    draft: &mut Draft,
    cursor: &mut Cursor<'_>,
    class: ClassId,
    span: Span,
    base: &Base,
) {
    let mut read = Reservations::new(class, span);
    if let Some((inside, ..)) = cursor.group() {
        (read.settings, read.words) = reader.settings(inside, WORDS, "`reservations`", base);
    }
    match &draft.link.reservations {
        Some(first) => {
            let message = "a link has one class for reservations, this is the second";
            let error = Diagnostic::error("two-reservations", span, message);
            reader.findings.push(error.label(first.span, "the first"));
        }
        None => draft.link.reservations = Some(read),
    }
}

/// Refuses a scheduler that is nested more deeply than the engine allows.
fn nesting(reader: &mut Reader<'_>, draft: &Draft, id: ClassId) {
    let classes = &draft.link.spec.classes;
    let (mut at, mut depth) = (id, 1);
    while at != ROOT {
        depth += usize::from(classes[at as usize].scheduler.is_some());
        at = classes[at as usize].parent;
    }
    if classes[id as usize].scheduler.is_some() && depth > altq_engine::MAX_NESTING {
        let span = draft.link.classes[id as usize].place("scheduler");
        let message = format!("schedulers stand {depth} deep in one another; the most is {}", altq_engine::MAX_NESTING);
        reader.error("too-deep", span, message, None);
    }
}

/// All words of a class that a scheduler serves.
pub fn class_words(entry: &'static Entry) -> Vec<&'static str> {
    let own = entry.class_words.iter().map(|word| word.name);
    let share = entry.class_words.iter().any(|word| word.name == "rate").then_some("share");
    own.chain(share).chain(words::CLASS.iter().copied()).collect()
}

fn unknown_class_word(reader: &mut Reader<'_>, cursor: &mut Cursor<'_>, tree: &Tree, entry: &Entry, words: &[&str]) {
    let text = reader.slice(tree.span);
    let place = format!("a class of {}", entry.name);
    let foreign = entry.foreign.iter().chain(words::FOREIGN).find(|(word, _)| *word == text);
    if let Some((_, ours)) = foreign.filter(|_| matches!(tree.what, What::Word)) {
        reader.error(
            "unknown-word",
            tree.span,
            format!("{place} does not know `{text}`"),
            Some(format!("write `{ours}`")),
        );
        return cursor.skip(reader, |word| words.contains(&word));
    }
    if words::LINK.contains(&text) && matches!(tree.what, What::Word) && text != "class" {
        let help = Some("it belongs to the link, before or behind its classes".to_owned());
        reader.error("unknown-word", tree.span, format!("{place} does not know `{text}`"), help);
        return cursor.skip(reader, |word| words.contains(&word));
    }
    reader.unknown(cursor, tree, &place, words);
}

/// Reads a scheduler behind the word `scheduler`, and where each of its words is written.
pub fn scheduler(
    reader: &mut Reader<'_>,
    cursor: &mut Cursor<'_>,
    of: (&str, Span),
    base: &Base,
) -> Option<(SchedulerSpec, Vec<(&'static str, Span)>)> {
    let Some((name, span)) = cursor.word(reader) else {
        let message = format!("`scheduler` needs a name, as `scheduler {}`", schedule::SCHEDULERS[0].name);
        reader.error("missing-value", of.1, message, None);
        return None;
    };
    let Some(entry) = schedule::find(name) else {
        unknown_kind(reader, "scheduler", (name, span));
        return None;
    };
    let (mut settings, mut places) = (Settings::new(), Vec::new());
    if let Some((inside, ..)) = cursor.group() {
        (settings, places) = reader.settings(inside, entry.words, &format!("the scheduler {}", entry.name), base);
    }
    Some((SchedulerSpec { name: entry.name, settings }, places))
}

/// Reads a queue behind the word `queue`, and where each of its words is written.
pub fn queue(
    reader: &mut Reader<'_>,
    cursor: &mut Cursor<'_>,
    of: (&str, Span),
    base: &Base,
) -> Option<(QueueSpec, Vec<(&'static str, Span)>)> {
    let Some((name, span)) = cursor.word(reader) else {
        let plain = queue::PLAIN.name;
        let message = format!("`queue` needs a kind, as `queue {plain} {{ limit 50packets }}`");
        reader.error("missing-value", of.1, message, None);
        return None;
    };
    let Some(entry) = queue::find(name) else {
        unknown_kind(reader, "queue", (name, span));
        return None;
    };
    let mut spec = QueueSpec { name: entry.name, limit: entry.limit, settings: Settings::new() };
    let Some((inside, ..)) = cursor.group() else { return Some((spec, Vec::new())) };
    let mut cursor = Cursor::new(inside);
    let words: Vec<&str> = entry.words.iter().map(|word| word.name).chain(["limit"]).collect();
    let mut places = Vec::new();
    while let Some(tree) = cursor.next() {
        let text = reader.slice(tree.span);
        let of = (text, tree.span);
        let word = entry.words.iter().find(|word| matches!(tree.what, What::Word) && word.name == text);
        let done = match word {
            Some(word) => {
                let fresh = reader.once(&mut places, word.name, tree.span);
                reader.registry_value(&mut cursor, word, of, base).map(|value| {
                    if fresh {
                        spec.settings.set(word.name, value);
                    }
                })
            }
            None if matches!(tree.what, What::Word) && text == "limit" => {
                let fresh = reader.once(&mut places, "limit", tree.span);
                limit(reader, &mut cursor, of).map(|limit| {
                    if fresh {
                        spec.limit = limit;
                    }
                })
            }
            None => {
                let help = did_you_mean(text, words.iter().copied());
                reader.error(
                    "unknown-word",
                    tree.span,
                    format!("the queue {name} does not know `{}`", short(text)),
                    help,
                );
                None
            }
        };
        if done.is_none() {
            cursor.skip(reader, |word| words.contains(&word));
        }
    }
    Some((spec, places))
}

fn limit(reader: &mut Reader<'_>, cursor: &mut Cursor<'_>, of: (&str, Span)) -> Option<Limit> {
    let (text, span) = reader.value(cursor, of, "a limit, as 50packets or 64000bytes")?;
    let limit = reader.literal(policy::limit(&text), span)?;
    if matches!(limit, Limit::Packets(0) | Limit::Bytes(0)) {
        reader.findings.push(Diagnostic::warning("drops-all", span, "a queue of limit 0 drops every packet"));
    }
    Some(limit)
}

/// Reports a name that no scheduler or queue has.
fn unknown_kind(reader: &mut Reader<'_>, kind: &str, (name, span): (&str, Span)) {
    let there: Vec<&str> = match kind {
        "scheduler" => schedule::all().map(|entry| entry.name).collect(),
        _ => queue::all().map(|entry| entry.name).collect(),
    };
    let help = did_you_mean(name, there.iter().copied());
    reader.error("unknown-word", span, format!("no {kind} is called `{}`", short(name)), help);
}
