//! Reads `link NAME { … }`.

use altq_engine::classify::{Order, RuleSet};
use altq_engine::link::{Framing, KEYWORDS, Overhead};
use altq_engine::schedule;
use altq_engine::settings::Settings;
use altq_engine::spec::{ClassSpec, LinkSpec, ROOT, Regulator, Timer};
use altq_engine::units::Rate;

use super::class;
use super::draft::Draft;
use super::reader::{Base, Cursor, Reader};
use super::token::{Tree, What};
use super::words;
use crate::diagnostic::{Diagnostic, Span, short};
use crate::literal::policy;
use crate::policy::{Class, Device, Link, Path};

/// Reads the words in the braces of a link, and reports errors to the reader. `None` if the link
/// has no scheduler, because its classes cannot be read then.
pub fn read(reader: &mut Reader<'_>, name: (&str, Span), trees: &[Tree]) -> Option<Link> {
    let errors = reader.findings.errors();
    let mut words = Vec::new();
    let (mut device, mut rate, mut mtu, mut overhead) = (None, None, None, None);
    let mut path = None;
    let (mut regulator, mut scheduler, mut queue_spec) = (None, None, None);
    let (mut cells, mut adapt) = (None, None);
    let mut classes = Vec::new();
    let mut matches = Vec::new();
    let mut settings = Settings::new();
    let (mut scheduler_words, mut queue_words) = (Vec::new(), Vec::new());
    let known = |word: &str| words::LINK.contains(&word);
    let nowhere = Base { link: None, parent: None };
    let mut cursor = Cursor::new(trees);
    while let Some(tree) = cursor.next() {
        let text = reader.slice(tree.span);
        let of = (text, tree.span);
        let word = match tree.what {
            What::Word => words::LINK.iter().find(|word| **word == text).copied(),
            _ => None,
        };
        let Some(word) = word else {
            reader.unknown(&mut cursor, tree, "a link", words::LINK);
            continue;
        };
        if !matches!(word, "class" | "match") && !reader.once(&mut words, word, tree.span) {
            cursor.skip(reader, known);
            continue;
        }
        let read = match word {
            "device" => read_device(reader, &mut cursor, of).map(|value| device = Some(value)),
            "path" => read_path(reader, &mut cursor, of).map(|value| path = Some(value)),
            "rate" => reader.value(&mut cursor, of, "a rate, as 100Mbit/s").and_then(|(value, span)| {
                cells = value.ends_with("cells/s").then_some(span);
                if value.ends_with('%') {
                    reader.error(
                        "bad-value",
                        span,
                        "a link's rate is not a part of anything",
                        Some("as rate 100Mbit/s".to_owned()),
                    );
                    return None;
                }
                let value = reader.literal(policy::rate(&value), span)?;
                if value.is_zero() {
                    reader.error("out-of-range", span, "a link of 0 bit/s carries nothing", None);
                    return None;
                }
                rate = Some(value);
                if let Some(at) = cursor.eat(reader, "adapt") {
                    words.push(("adapt", at));
                    adapt = super::adapt::read(reader, &mut cursor, at, (value, span));
                }
                Some(())
            }),
            "mtu" => number(reader, &mut cursor, of, 68, 65535).map(|value| mtu = Some(value as u32)),
            "overhead" => read_overhead(reader, &mut cursor, of).map(|value| overhead = Some(value)),
            "regulator" => read_regulator(reader, &mut cursor, of).map(|value| regulator = Some(value)),
            "overcommit" | "default" => Some(()),
            "scheduler" => class::scheduler(reader, &mut cursor, of, &nowhere).map(|(spec, places)| {
                scheduler = Some(spec);
                scheduler_words = places;
            }),
            "queue" => class::queue(reader, &mut cursor, of, &nowhere).map(|(value, places)| {
                queue_spec = Some(value);
                queue_words = places;
            }),
            "meter" => super::meter::read(reader, &mut cursor, of, &nowhere, &mut settings),
            "class" => class::head(reader, &mut cursor, of).map(|found| classes.extend(found)),
            _ => {
                matches.push(super::matches::take(reader, &mut cursor, tree.span));
                Some(())
            }
        };
        if read.is_none() {
            cursor.skip(reader, known);
        }
    }

    // A word is reported as missing only if nothing else was wrong: it may be misspelt.
    let errors = reader.findings.errors() - errors;
    let said = |word: &str| errors > 0 || words.iter().any(|(name, _)| *name == word);
    if rate.is_none() && !said("rate") {
        reader.error(
            "missing-word",
            name.1,
            format!("the link `{}` has no rate", name.0),
            Some("as `rate 100Mbit/s`".to_owned()),
        );
    }
    if scheduler.is_none() && !said("scheduler") {
        let names: Vec<&str> = schedule::all().map(|entry| entry.name).collect();
        let help = format!("as `scheduler {}`; there are {}", names[0], names.join(", "));
        reader.error("missing-word", name.1, format!("the link `{}` has no scheduler", name.0), Some(help));
    }
    let overhead = overhead.unwrap_or(Overhead::NONE);
    if let Some(span) = cells.filter(|_| overhead.framing != Framing::Atm) {
        let help = "write `overhead 8 bytes atm`, or the words of your line".to_owned();
        reader.error("bad-value", span, "a rate in cells/s needs an atm overhead", Some(help));
    }
    if let Some((path, span)) = path {
        check_path(reader, path, span, device.as_ref());
    }
    // Without a scheduler the words of the classes are not known. A missing rate is replaced by any
    // rate from which percentages can be taken: the error is reported, so the result is not used.
    let (rate, scheduler) = (rate.unwrap_or(Rate::mbit_s(1_000)), scheduler?);
    // A device has a queue of its own. The regulator keeps that short, so that packets wait in the
    // engine, where they are scheduled.
    let unregulated = schedule::find(scheduler.name).is_some_and(|entry| (entry.unregulated)(&scheduler.settings));
    let unwritten = if device.is_none() && unregulated { Regulator::None } else { Regulator::Auto };

    let mut link = Link {
        name: name.0.to_owned(),
        device,
        written_path: path.map(|(path, _)| path),
        adapt,
        spec: LinkSpec {
            rate,
            mtu: mtu.unwrap_or(words::DEFAULT_MTU),
            overhead,
            regulator: regulator.unwrap_or(unwritten),
            timer: Timer::Exact,
            scheduler,
            classes: vec![ClassSpec { parent: ROOT, settings, queue: queue_spec, scheduler: None }],
            rules: RuleSet { rules: Vec::new(), order: Order::First, interfaces: Vec::new() },
            default: None,
        },
        classes: vec![Class {
            name: name.0.to_owned(),
            span: name.1,
            words,
            scheduler_words,
            queue_words,
            made: false,
        }],
        rules: Vec::new(),
        reservations: None,
        overcommit: false,
        span: name.1,
        notes: Vec::new(),
    };
    link.overcommit = link.classes[0].words.iter().any(|(word, _)| *word == "overcommit");
    let default = link.classes[0].words.iter().find(|(word, _)| *word == "default").map(|(_, span)| *span);
    // Packets of a link without classes wait in its root.
    if default.is_some() || classes.is_empty() {
        link.spec.default = Some(ROOT);
    }
    let mut draft = Draft::new(link, default);
    for head in classes {
        class::read(reader, &mut draft, head, ROOT);
    }
    for rule in matches {
        super::matches::read(reader, &mut draft, rule);
    }
    Some(draft.finish(reader))
}

/// Reads a whole number of bytes from `min` to `max`.
pub fn number(reader: &mut Reader<'_>, cursor: &mut Cursor<'_>, of: (&str, Span), min: u64, max: u64) -> Option<u64> {
    let (text, span) = reader.value(cursor, of, "a number of bytes")?;
    let n = reader.literal(policy::bytes(&text), span)?;
    if (min..=max).contains(&n) {
        return Some(n);
    }
    reader.error("out-of-range", span, format!("`{}` takes {min} to {max}, not {n}", of.0), None);
    None
}

fn interface(reader: &mut Reader<'_>, cursor: &mut Cursor<'_>, of: (&str, Span)) -> Option<String> {
    let (name, span) = match cursor.word(reader) {
        Some(word) => word,
        None => {
            reader.error("missing-value", of.1, format!("`{}` needs the name of an interface", of.0), None);
            return None;
        }
    };
    reader.good_interface(name, span).then(|| name.to_owned())
}

fn read_device(reader: &mut Reader<'_>, cursor: &mut Cursor<'_>, of: (&str, Span)) -> Option<Device> {
    if let Some(span) = cursor.eat(reader, "bridge") {
        let of = ("device bridge", span);
        let from = interface(reader, cursor, of)?;
        let to_at = cursor.peek().map(|tree| tree.span);
        let to = interface(reader, cursor, of)?;
        if from == to {
            reader.error("given-twice", to_at.unwrap_or(span), format!("a bridge of `{from}` with itself"), None);
            return None;
        }
        return Some(Device::Bridge { from, to });
    }
    let name = interface(reader, cursor, of)?;
    Some(Device::Interface { name, ingress: cursor.eat(reader, "ingress").is_some() })
}

/// Reads `path nfqueue`, `path kernel` or `path bridge`.
fn read_path(reader: &mut Reader<'_>, cursor: &mut Cursor<'_>, of: (&str, Span)) -> Option<(Path, Span)> {
    let names = || Path::ALL.map(Path::name).join(", ");
    let Some((word, span)) = cursor.word(reader) else {
        reader.error("missing-value", of.1, "`path` needs what is to execute the link", Some(names()));
        return None;
    };
    let found = Path::ALL.into_iter().find(|path| path.name() == word);
    if found.is_none() {
        reader.error("unknown-word", span, format!("`path` does not know `{}`", short(word)), Some(names()));
    }
    found.map(|path| (path, span))
}

/// Reports a path that does not execute links on such a device.
fn check_path(reader: &mut Reader<'_>, path: Path, span: Span, device: Option<&Device>) {
    if device.is_some_and(|device| path.takes(device)) {
        return;
    }
    let needs = if path == Path::Bridge { "device bridge A B" } else { "device IF" };
    let message = match device {
        None => format!("`path {}` needs a device", path.name()),
        Some(_) => format!("`path {}` does not execute links on such a device", path.name()),
    };
    reader.error("bad-value", span, message, Some(format!("write `{needs}`, or leave `path` out")));
}

fn read_regulator(reader: &mut Reader<'_>, cursor: &mut Cursor<'_>, of: (&str, Span)) -> Option<Regulator> {
    if cursor.eat(reader, "none").is_some() {
        return Some(Regulator::None);
    }
    if cursor.eat(reader, "auto").is_some() {
        return Some(Regulator::Auto);
    }
    if cursor.eat(reader, "altq").is_some() {
        return Some(Regulator::Altq);
    }
    let help = || Some("none, auto, altq, or a number of bytes, as 12000bytes".to_owned());
    if let Some((word, span)) =
        cursor.peek_word(reader).filter(|(word, _)| !word.starts_with(|c: char| c.is_ascii_digit()))
    {
        cursor.next();
        reader.error("unknown-word", span, format!("`regulator` does not know `{}`", short(word)), help());
        return None;
    }
    number(reader, cursor, of, 1, u64::from(u32::MAX)).map(|depth| Regulator::Depth(depth as u32))
}

/// Reads `none`, the keywords of CAKE, or `N bytes [atm|ptm]`; then perhaps `mpu N`.
fn read_overhead(reader: &mut Reader<'_>, cursor: &mut Cursor<'_>, of: (&str, Span)) -> Option<Overhead> {
    let names = || KEYWORDS.iter().map(|keyword| keyword.name);
    let help = || Some(format!("N bytes [atm|ptm] [mpu N], or {}", names().collect::<Vec<_>>().join(", ")));
    let Some((word, span)) = cursor.peek_word(reader) else {
        reader.error("missing-value", of.1, "`overhead` needs bytes or the words of a link", help());
        return None;
    };
    let mut overhead = Overhead::NONE;
    let unsigned = word.strip_prefix('-').unwrap_or(word);
    if unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        cursor.next();
        let n = reader.literal(policy::bytes(unsigned), span)?;
        let limit = if unsigned.len() < word.len() { 64 } else { 256 };
        if n > limit {
            reader.error("out-of-range", span, format!("an overhead is -64 to 256 bytes, not {word}"), None);
            return None;
        }
        overhead.bytes = if unsigned.len() < word.len() { -(n as i32) } else { n as i32 };
        if !unsigned.ends_with("bytes") && cursor.eat(reader, "bytes").is_none() {
            let help = Some(format!("write {word} bytes"));
            reader.error("bad-value", span, "this overhead has no unit", help);
            return None;
        }
        if cursor.eat(reader, "atm").is_some() {
            overhead.framing = Framing::Atm;
        } else if cursor.eat(reader, "ptm").is_some() {
            overhead.framing = Framing::Ptm;
        }
    } else {
        let mut first = true;
        while let Some((word, span)) = cursor.peek_word(reader) {
            match overhead.and(word) {
                Some(next) => overhead = next,
                None if first => {
                    cursor.next();
                    let help = crate::suggest::nearest(word, names())
                        .map_or_else(help, |near| Some(format!("did you mean `{near}`?")));
                    reader.error("unknown-word", span, format!("`overhead` does not know `{}`", short(word)), help);
                    return None;
                }
                None => break,
            }
            first = false;
            cursor.next();
        }
    }
    if let Some(span) = cursor.eat(reader, "mpu") {
        overhead.mpu = number(reader, cursor, ("mpu", span), 0, 65535)? as u32;
    }
    Some(overhead)
}

/// Reports links that have the same name or the same device.
pub fn same_places(links: &[Link], reader: &mut Reader<'_>) {
    for (at, link) in links.iter().enumerate() {
        for before in &links[..at] {
            if before.name == link.name {
                let error =
                    Diagnostic::error("duplicate-name", link.span, format!("there are two links `{}`", link.name));
                reader.findings.push(error.label(before.span, "the first"));
            } else if link.device.is_some() && link.device == before.device {
                let span = link.classes.first().map_or(link.span, |root| root.place("device"));
                let message = format!("the links `{}` and `{}` are at the same place", before.name, link.name);
                let error = Diagnostic::error("duplicate-device", span, message).label(before.span, "the first");
                reader.findings.push(error.help_if(link.device.as_ref().map(other_way)));
            }
        }
    }
}

/// What shapes the other direction of a device.
fn other_way(device: &Device) -> String {
    match device {
        Device::Interface { name, ingress: false } => format!("`device {name} ingress` is what comes in by {name}"),
        Device::Interface { name, ingress: true } => format!("`device {name}` is what leaves by {name}"),
        Device::Bridge { from, to } => format!("`device bridge {to} {from}` is the other direction"),
    }
}
