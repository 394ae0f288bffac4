//! Reads `match KEY VALUE … -> NAME` and `set NAME { … }`.

use std::net::{IpAddr, Ipv6Addr};

use altq_engine::classify::{Address, Field, Rule, Term, Values};

use super::draft::Draft;
use super::reader::{Cursor, Reader};
use super::token::{Tree, What};
use super::words::{self, KEYS};
use crate::diagnostic::{Diagnostic, Span, short};
use crate::names;
use crate::suggest::{did_you_mean, nearest};

/// The words of a rule behind `match`, up to the name behind the arrow.
pub struct Written<'t> {
    word: Span,
    trees: Vec<&'t Tree>,
}

/// Takes the words of a rule, up to the class behind its arrow. They may stand on several lines.
pub fn take<'t>(reader: &Reader<'_>, cursor: &mut Cursor<'t>, word: Span) -> Written<'t> {
    let mut trees = Vec::new();
    let mut arrow = false;
    while let Some(tree) = cursor.peek() {
        // If the arrow is missing, the rule ends before the next statement.
        let statement = tree.starts_line && (arrow || words::LINK.contains(&reader.slice(tree.span)));
        if matches!(tree.what, What::Group { .. }) || statement {
            break;
        }
        cursor.next();
        let end = arrow;
        arrow |= matches!(tree.what, What::Arrow);
        trees.push(tree);
        if end {
            break;
        }
    }
    Written { word, trees }
}

/// Reads the words of a rule, and adds the rule to the draft.
pub fn read(reader: &mut Reader<'_>, draft: &mut Draft, written: Written<'_>) {
    if reader.findings.full() {
        return;
    }
    let Written { word, trees } = written;
    let arrow = trees.iter().position(|tree| matches!(tree.what, What::Arrow));
    let Some(arrow) = arrow else {
        let help = Some("as `match dport 80 -> web`".to_owned());
        return reader.error("missing-value", word, "this rule leads nowhere: `-> NAME` is missing", help);
    };
    let target = trees.get(arrow + 1).filter(|tree| matches!(tree.what, What::Word));
    let Some(target) = target else {
        return reader.error("missing-value", trees[arrow].span, "the arrow needs the name of a class", None);
    };
    let class = reader.slice(target.span);
    let class_id = draft.names.get(class).copied();
    if class_id.is_none() {
        let mut error = Diagnostic::error(
            "unknown-class",
            target.span,
            format!("there is no class `{}` in this link", short(class)),
        );
        error.help = did_you_mean(class, draft.names.keys().map(String::as_str));
        reader.findings.push(error);
    }
    let terms = read_terms(reader, draft, &trees[..arrow], word);
    if let (Some(class), Some(terms)) = (class_id, terms) {
        draft.link.spec.rules.rules.push(Rule { terms, class, number: 0 });
        draft.link.rules.push(word.to(target.span));
    }
}

/// Reads the conditions of a rule. `None` after an error.
fn read_terms(reader: &mut Reader<'_>, draft: &mut Draft, trees: &[&Tree], word: Span) -> Option<Vec<Term>> {
    let mut terms: Vec<Term> = Vec::new();
    let mut seen = Vec::new();
    let mut good = true;
    let mut at = 0;
    if let [all] = trees
        && matches!(all.what, What::Word)
        && reader.slice(all.span) == "all"
    {
        return Some(terms);
    }
    if trees.is_empty() {
        let help = Some("write `match all -> NAME` for every packet, or `default` in the class".to_owned());
        reader.error("missing-value", word, "this rule has no condition", help);
        return None;
    }
    while let Some(tree) = trees.get(at) {
        at += 1;
        let text = reader.slice(tree.span);
        let key = KEYS.iter().find(|(key, _)| matches!(tree.what, What::Word) && *key == text);
        // The values up to the next key, with their commas and their `!`.
        let mut values: Vec<(bool, &Tree)> = Vec::new();
        let mut negated = None;
        let mut comma = true;
        while let Some(tree) = trees.get(at) {
            match tree.what {
                What::Bang if comma => negated = Some(tree.span),
                What::Comma if !comma => comma = true,
                What::Word | What::Text if comma => {
                    values.push((negated.take().is_some(), tree));
                    comma = false;
                }
                _ => break,
            }
            at += 1;
        }
        let Some((name, field)) = key else {
            let help = nearest(text, KEYS.iter().map(|(key, _)| *key)).map(|near| format!("did you mean `{near}`?"));
            let help = help.or_else(|| {
                let keys: Vec<&str> = KEYS.iter().map(|(key, _)| *key).collect();
                Some(format!("keys are {}; values of one key are separated by commas", keys.join(", ")))
            });
            reader.error("unknown-word", tree.span, format!("`match` does not know `{}`", short(text)), help);
            good = false;
            continue;
        };
        if !reader.once(&mut seen, name, tree.span) {
            good = false;
            continue;
        }
        if values.is_empty() || comma {
            reader.error("missing-value", tree.span, format!("`{name}` needs a value"), None);
            good = false;
            continue;
        }
        for negated in [false, true] {
            let chosen: Vec<&Tree> = values.iter().filter(|(not, _)| *not == negated).map(|(_, tree)| *tree).collect();
            if chosen.is_empty() {
                continue;
            }
            match read_values(reader, draft, *field, &chosen) {
                Some(values) => terms.push(Term { field: *field, negated, values }),
                None => good = false,
            }
        }
    }
    good.then_some(terms)
}

fn read_values(reader: &mut Reader<'_>, draft: &mut Draft, field: Field, trees: &[&Tree]) -> Option<Values> {
    match field {
        Field::Src | Field::Dst | Field::Host => {
            let mut addresses = Vec::new();
            let mut good = true;
            for tree in trees {
                match address_or_set(reader, tree.span, false) {
                    Some(found) => addresses.extend(found),
                    None => good = false,
                }
            }
            good.then_some(Values::Addresses(addresses))
        }
        Field::Tos | Field::TcpFlags => {
            let values: Vec<_> = trees.iter().filter_map(|tree| masked(reader, field, tree.span)).collect();
            (values.len() == trees.len()).then_some(Values::Masked(values))
        }
        Field::Mark if trees.iter().any(|tree| reader.slice(tree.span).contains('/')) => {
            let values: Vec<_> = trees.iter().filter_map(|tree| masked(reader, field, tree.span)).collect();
            (values.len() == trees.len()).then_some(Values::Masked(values))
        }
        _ => {
            let ranges: Vec<_> = trees.iter().filter_map(|tree| range(reader, draft, field, tree.span)).collect();
            (ranges.len() == trees.len()).then_some(Values::Ranges(ranges))
        }
    }
}

/// Reads `N`, `N-M`, or a name that the field has.
fn range(reader: &mut Reader<'_>, draft: &mut Draft, field: Field, span: Span) -> Option<(u32, u32)> {
    let text = reader.slice(span);
    if field == Field::Interface {
        if !reader.good_interface(text, span) {
            return None;
        }
        let interfaces = &mut draft.link.spec.rules.interfaces;
        let at = interfaces.iter().position(|name| name == text).unwrap_or_else(|| {
            interfaces.push(text.to_owned());
            interfaces.len() - 1
        });
        return Some((at as u32, at as u32));
    }
    if let Some(value) = names::value(field, text) {
        return Some((value, value));
    }
    // A length may have the unit `bytes`.
    let plain = if field == Field::Length { text.strip_suffix("bytes").unwrap_or(text) } else { text };
    let (from, to) = plain.split_once('-').unwrap_or((plain, plain));
    // The ends of a range of code points may be names.
    let end = |text: &str| names::number(text).or_else(|| dscp(field, text));
    let (Some(from_value), Some(to_value)) = (end(from), end(to)) else {
        let names = names::all(field);
        let wrong = match field {
            Field::Dscp if end(from).is_some() => to,
            Field::Dscp => from,
            _ => text,
        };
        let mut help = nearest(wrong, names.iter().copied()).map(|near| format!("did you mean `{near}`?"));
        if help.is_none() {
            let shown: Vec<&str> = names.iter().copied().take(12).collect();
            let or = if shown.is_empty() { String::new() } else { format!(", or a name, as {}", shown.join(", ")) };
            help = Some(format!("a number, a range as 1-9{or}"));
        }
        reader.error("bad-value", span, format!("`{}` is no value of this key", short(text)), help);
        return None;
    };
    let most = u64::from(names::greatest(field));
    if from_value > most || to_value > most {
        reader.error("out-of-range", span, format!("the greatest value of this key is {most}"), None);
        return None;
    }
    if from_value > to_value {
        let help = Some(format!("write {to}-{from}"));
        reader.error("empty-range", span, format!("no value lies between {from} and {to}"), help);
        return None;
    }
    if field == Field::Family && !(from_value == to_value && matches!(from_value, 4 | 6)) {
        reader.error("bad-value", span, "a family is ipv4 or ipv6", None);
        return None;
    }
    let named = dscp(field, from).is_some() || dscp(field, to).is_some();
    let (from_value, to_value) = (from_value as u32, to_value as u32);
    if named {
        others_between(reader, span, (from, from_value), (to, to_value));
    }
    Some((from_value, to_value))
}

/// The code point of this name, if the field is the DSCP.
fn dscp(field: Field, name: &str) -> Option<u64> {
    (field == Field::Dscp).then(|| names::value(field, name).map(u64::from)).flatten()
}

/// Warns where a range of named code points has others in it, of another kind: `cs4` lies between
/// `af31` and `af43`.
fn others_between(reader: &mut Reader<'_>, span: Span, from: (&str, u32), to: (&str, u32)) {
    let kind = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
    let kinds = [kind(from.0), kind(to.0)];
    let (mut same, mut others) = (Vec::new(), Vec::new());
    for value in from.1..=to.1 {
        let Some(name) = names::name(Field::Dscp, value) else { continue };
        if kinds.contains(&kind(name)) { same.push(name) } else { others.push(name) }
    }
    if others.is_empty() {
        return;
    }
    let text = reader.slice(span);
    let message = format!("`{}` is {}-{}: it has {} in it as well", short(text), from.1, to.1, others.join(", "));
    let warning = Diagnostic::warning("dscp-range", span, message);
    let help = format!("write {} for these alone, or {}-{} if all are meant", same.join(","), from.1, to.1);
    reader.findings.push(warning.help(help));
}

/// Reads `VALUE` or `VALUE/MASK`. TCP flags may be names joined by `+`.
fn masked(reader: &mut Reader<'_>, field: Field, span: Span) -> Option<(u32, u32)> {
    let text = reader.slice(span);
    let (value, mask) = match text.split_once('/') {
        Some((value, mask)) => (value, Some(mask)),
        None => (text, None),
    };
    let read = |text: &str| names::read(field, text);
    let most = names::greatest(field);
    let values =
        (read(value), mask.map_or_else(|| Some(if field == Field::TcpFlags { read(value)? } else { most }), read));
    let (Some(value), Some(mask)) = values else {
        let help = match field {
            Field::TcpFlags => {
                "flags are fin, syn, rst, psh, ack, urg, ece, cwr, joined by `+`; `syn/syn+ack`: of these only syn"
            }
            _ => "a number, or a number and a mask, as 0xb8/0xfc",
        };
        reader.error("bad-value", span, format!("`{}` is no value of this key", short(text)), Some(help.to_owned()));
        return None;
    };
    if value & !mask != 0 {
        reader.error("match-nothing", span, "the value has bits outside of its mask: no packet can match", None);
        return None;
    }
    Some((value, mask))
}

/// Reads an address or the name of a set. `in_set`: it stands in a set, where only those count that
/// are written before.
fn address_or_set(reader: &mut Reader<'_>, span: Span, in_set: bool) -> Option<Vec<Address>> {
    let text = reader.slice(span);
    if let Some((_, addresses)) = reader.sets.get(text) {
        return Some(addresses.clone());
    }
    if !text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains(':') {
        let help = did_you_mean(text, reader.sets.keys().map(String::as_str));
        let (place, other) = if in_set {
            (" above this one", "a set holds only sets that are defined above it")
        } else {
            ("", "no `set` is defined; host names are not looked up")
        };
        let help = help.or_else(|| Some(other.to_owned()));
        reader.error("unknown-set", span, format!("there is no set `{}`{place}", short(text)), help);
        return None;
    }
    address(reader, span).map(|address| vec![address])
}

/// Reads an address, a prefix, or an address with a mask that is written as an address.
fn address(reader: &mut Reader<'_>, span: Span) -> Option<Address> {
    let text = reader.slice(span);
    let (host, mask) = match text.split_once('/') {
        Some((host, mask)) => (host, Some(mask)),
        None => (text, None),
    };
    let host_address: IpAddr = match host.parse() {
        Ok(address) => address,
        Err(_) => {
            let help = Some("as 10.1.0.0/16, 192.0.2.1 or 2001:db8::/32".to_owned());
            reader.error("bad-address", span, format!("`{}` is no address", short(text)), help);
            return None;
        }
    };
    let (v6, bits, width) = match host_address {
        IpAddr::V4(v4) => (false, u128::from(v4.to_bits()), 32),
        IpAddr::V6(v6) => (true, v6.to_bits(), 128),
    };
    let full = if v6 { u128::MAX } else { u128::from(u32::MAX) };
    let mask_bits = match mask {
        None => full,
        Some(mask) => match (mask.parse::<u32>(), mask.parse::<IpAddr>()) {
            (Ok(length), _) if length <= width => full & !(full.checked_shr(length).unwrap_or(0)),
            (_, Ok(IpAddr::V4(mask))) if !v6 => u128::from(mask.to_bits()),
            (_, Ok(IpAddr::V6(mask))) if v6 => mask.to_bits(),
            _ => {
                let message = format!("`{}` is no length of a prefix: 0 to {width}", short(mask));
                reader.error("bad-address", span, message, None);
                return None;
            }
        },
    };
    if bits & !mask_bits & full != 0 {
        let network = bits & mask_bits;
        let network = if v6 {
            Ipv6Addr::from_bits(network).to_string()
        } else {
            std::net::Ipv4Addr::from_bits(network as u32).to_string()
        };
        let help = Some(format!("write {network}/{} for the network, or {host} for the one host", mask.unwrap_or("")));
        reader.error("bad-address", span, format!("`{text}` has bits of a host behind its prefix"), help);
        return None;
    }
    Some(Address { v6, bits, mask: mask_bits })
}

/// Reads `set NAME { … }` behind the word.
pub fn read_set(reader: &mut Reader<'_>, cursor: &mut Cursor<'_>, of: (&str, Span)) {
    let Some((name, span)) = cursor.word(reader) else {
        return reader.error("missing-value", of.1, "`set` needs a name and addresses in braces", None);
    };
    if let Some(c) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !"_.-".contains(*c)) {
        reader.error("bad-name", span, format!("`{}` is no name: it holds `{c}`", short(name)), None);
    } else if name.starts_with(|c: char| c.is_ascii_digit()) {
        reader.error(
            "bad-name",
            span,
            "the name of a set does not begin with a digit: it would look like an address",
            None,
        );
    }
    let Some((inside, ..)) = cursor.group() else {
        return reader.error("missing-braces", span, format!("`set {}` needs braces", short(name)), None);
    };
    let mut addresses = Vec::new();
    for tree in inside {
        match tree.what {
            What::Word => addresses.extend(address_or_set(reader, tree.span, true).unwrap_or_default()),
            What::Comma => {}
            _ => {
                let text = reader.slice(tree.span);
                reader.error(
                    "unexpected",
                    tree.span,
                    format!("a set holds addresses and other sets, not `{}`", short(text)),
                    None,
                );
            }
        }
    }
    if inside.is_empty() {
        reader.error("empty-set", span, format!("the set `{}` is empty", short(name)), None);
    }
    if let Some((first, _)) = reader.sets.get(name) {
        let error = Diagnostic::error("duplicate-name", span, format!("there are two sets `{name}`"));
        reader.findings.push(error.label(*first, "the first"));
        return;
    }
    reader.sets.insert(name.to_owned(), (span, addresses));
}
