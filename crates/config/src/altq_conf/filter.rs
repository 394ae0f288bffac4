//! `filter IF CLASS DST DPORT SRC SPORT PROTO` and `filter6`, and altqd's checks of their order
//! (docs/reference/altq.md 10.1).

use std::net::{Ipv4Addr, Ipv6Addr};

use altq_engine::classify::{Address, Field, Rule, Term, Values};

use super::file::{Discipline, File, Filter, Words};
use super::words;
use crate::check::rules::{Relation, relation};
use crate::diagnostic::{Diagnostic, Span};
use crate::lower;
use crate::names;
use crate::suggest::did_you_mean;

impl File<'_> {
    pub(super) fn filter(&mut self, words: &mut Words<'_>, command: Span, v6: bool) {
        let Some(interface) = self.interface_of(words, command) else { return };
        let Some(class_at) = words.next() else {
            return self.error("missing-value", words.end, "a filter needs a class", None);
        };
        let class_name = self.slice(class_at);
        // docs/reference/altq.md 10.1: a filter is for a class, or else for a conditioner.
        let interface = self.input_with(interface, class_name).unwrap_or(interface);
        // Without a discipline the line of the interface had an error.
        let Some(discipline) = self.interfaces[interface].discipline else { return };
        if !discipline.has_classes() && discipline != Discipline::Null {
            let (name, of) = (self.interfaces[interface].name.clone(), discipline.name());
            let message = format!("`{name}` is of `{of}`, which has no classes for filters to name");
            let help = Some("leave the filter out: all packets go to the one queue".to_owned());
            return self.error("wrong-class", class_at, message, help);
        }
        let class = self.interfaces[interface].names.get(class_name).copied();
        // The link itself is no class of priq and jobs, and no conditioner.
        let own = matches!(discipline, Discipline::Priq | Discipline::Jobs | Discipline::Null);
        let Some(class) = class.filter(|class| *class > 0 || !own) else {
            let names: Vec<String> = self.interfaces[interface].names.keys().cloned().collect();
            let help = did_you_mean(class_name, names.iter().map(String::as_str));
            let message = format!("`{}` has no class `{class_name}`", self.interfaces[interface].name);
            return self.error("unknown-class", class_at, message, help);
        };
        let Some((name, number)) = self.name_and_number(words, interface) else { return };
        let Some(mut terms) = self.five(words, v6) else { return };
        let Some(quiet) = self.filter_options(words, v6, &mut terms) else { return };
        // Without an address, the name of the command tells the family.
        if !terms.iter().any(|term| matches!(term.values, Values::Addresses(_))) {
            let family = if v6 { 6 } else { 4 };
            terms.insert(0, term(Field::Family, Values::Ranges(vec![(family, family)])));
        }
        let end = words.list.get(words.at.wrapping_sub(1)).copied().unwrap_or(command);
        let rule = Rule { terms, class: 0, number };
        let filter = Filter { rule, class, span: command.to(end), name, quiet, made: false };
        if self.in_order(interface, &filter) {
            self.interfaces[interface].filters.push(filter);
        }
    }

    /// Where the conditioners of an interface are, if one has this name and no class has it.
    fn input_with(&self, interface: usize, name: &str) -> Option<usize> {
        let input = self.interfaces[interface].input?;
        let known = |at: usize| self.interfaces[at].names.get(name).is_some_and(|class| *class > 0);
        (known(input) && !known(interface)).then_some(input)
    }

    /// Reads `[name NAME] [ruleno N]`.
    fn name_and_number(&mut self, words: &mut Words<'_>, interface: usize) -> Option<(Option<String>, u32)> {
        let (mut name, mut number, mut seen) = (None, 0, Vec::new());
        loop {
            match words.peek(0).map(|span| (span, self.slice(span))) {
                Some((span, "name")) => {
                    words.next();
                    if !self.once(&mut seen, "name", span) {
                        return None;
                    }
                    let (text, at) = self.value(words, span, "a name", |word| Some(word.to_owned()))?;
                    let first =
                        self.interfaces[interface].filters.iter().find(|filter| filter.name.as_deref() == Some(&text));
                    if let Some(first) = first {
                        let error = Diagnostic::error("duplicate-name", at, format!("there are two filters `{text}`"));
                        self.findings.push(error.label(first.span, "the first"));
                        return None;
                    }
                    name = Some(text);
                }
                Some((span, "ruleno")) => {
                    words.next();
                    if !self.once(&mut seen, "ruleno", span) {
                        return None;
                    }
                    let read = |word: &str| words::integer(word).and_then(|n| u32::try_from(n).ok());
                    number = self.value(words, span, "a number", read)?.0;
                }
                _ => return Some((name, number)),
            }
        }
    }

    /// Reads DST DPORT SRC SPORT PROTO, where 0 is any. `None` after an error.
    fn five(&mut self, words: &mut Words<'_>, v6: bool) -> Option<Vec<Term>> {
        let mut terms = Vec::new();
        for (what, field) in [
            ("DST", Field::Dst),
            ("DPORT", Field::DstPort),
            ("SRC", Field::Src),
            ("SPORT", Field::SrcPort),
            ("PROTO", Field::Proto),
        ] {
            let Some(span) = words.next() else {
                let help = Some("a filter is DST DPORT SRC SPORT PROTO, where 0 is any".to_owned());
                self.error("missing-value", words.end, format!("the filter ends before its {what}"), help);
                return None;
            };
            let word = self.slice(span);
            match field {
                Field::Dst | Field::Src => {
                    let address = if v6 { self.address6(span)? } else { self.address4(words, span)? };
                    if let Some(address) = address {
                        terms.push(term(field, Values::Addresses(vec![address])));
                    }
                }
                _ => {
                    let most = if field == Field::Proto { 255 } else { 65535 };
                    let number = words::integer(word).or_else(|| names::value(field, word).map(u64::from));
                    match number.filter(|n| *n <= most) {
                        Some(0) => {}
                        Some(n) => terms.push(term(field, Values::Ranges(vec![(n as u32, n as u32)]))),
                        None => {
                            let help = did_you_mean(word, names::all(field));
                            self.error(
                                "bad-value",
                                span,
                                format!("`{word}` is no {what}: a number up to {most}, or a name"),
                                help,
                            );
                            return None;
                        }
                    }
                }
            }
        }
        Some(terms)
    }

    /// Reads an address, perhaps with `netmask`. `Some(None)` is any address, `None` an error.
    fn address4(&mut self, words: &mut Words<'_>, span: Span) -> Option<Option<Address>> {
        let word = self.slice(span);
        let address = if word == "0" { Some(Ipv4Addr::UNSPECIFIED) } else { word.parse().ok() };
        let mut mask = u32::MAX;
        if let Some(at) = words.peek(0).filter(|at| self.slice(*at) == "netmask") {
            words.next();
            let read = |word: &str| match word.parse::<Ipv4Addr>() {
                Ok(mask) => Some(mask.to_bits()),
                Err(_) => {
                    word.starts_with("0x").then(|| words::integer(word))?.and_then(|mask| u32::try_from(mask).ok())
                }
            };
            mask = self.value(words, at, "a mask, as 255.255.0.0 or 0xffff0000", read)?.0;
        }
        let Some(address) = address else {
            let help = Some("write the address; host names are not looked up".to_owned());
            self.error("bad-address", span, format!("`{word}` is no IPv4 address"), help);
            return None;
        };
        let bits = address.to_bits();
        // The address 0 matches all addresses, whatever its mask.
        if bits == 0 {
            return Some(None);
        }
        if bits & !mask != 0 {
            let message = format!("`{word}` has bits outside of its netmask, which are not compared");
            self.findings.push(Diagnostic::warning("bad-address", span, message));
        }
        Some(Some(Address { v6: false, bits: u128::from(bits & mask), mask: u128::from(mask) }))
    }

    /// Reads `ADDR[/LEN]`. `Some(None)` is any address, `None` an error.
    fn address6(&mut self, span: Span) -> Option<Option<Address>> {
        let word = self.slice(span);
        let (host, length) = word.split_once('/').unwrap_or((word, "128"));
        let address = if host == "0" { Some(Ipv6Addr::UNSPECIFIED) } else { host.parse().ok() };
        let length = words::integer(length).filter(|length| *length <= 128);
        let (Some(address), Some(length)) = (address, length) else {
            let help = Some("as 2001:db8::/32; host names are not looked up".to_owned());
            self.error("bad-address", span, format!("`{word}` is no IPv6 address"), help);
            return None;
        };
        let mask = !u128::MAX.checked_shr(length as u32).unwrap_or(0);
        let bits = address.to_bits();
        if bits == 0 {
            return Some(None);
        }
        if bits & !mask != 0 {
            let message = format!("`{word}` has bits outside of its prefix, which are not compared");
            self.findings.push(Diagnostic::warning("bad-address", span, message));
        }
        Some(Some(Address { v6: true, bits: bits & mask, mask }))
    }

    /// Reads the options behind the protocol. Returns whether `dontwarn` is one. `None` after an
    /// error.
    fn filter_options(&mut self, words: &mut Words<'_>, v6: bool, terms: &mut Vec<Term>) -> Option<bool> {
        let mut quiet = false;
        let (mut tos, mut mask) = (None, None);
        let mut seen = Vec::new();
        let (tos_word, mask_word) = if v6 { ("tclass", "tclassmask") } else { ("tos", "tosmask") };
        let known = ["tos", "tosmask", "tclass", "tclassmask", "gpi", "flowlabel", "dontwarn"];
        while let Some(span) = words.next() {
            let word = self.slice(span);
            let fits = word == tos_word
                || word == mask_word
                || word == "gpi"
                || word == "dontwarn"
                || v6 && word == "flowlabel";
            let Some(word) = known.iter().copied().find(|known| *known == word && fits) else {
                let help = did_you_mean(
                    word,
                    known.iter().copied().filter(|known| {
                        (*known != "flowlabel" || v6)
                            && (known.starts_with(if v6 { "tc" } else { "to" }) || !known.starts_with('t'))
                    }),
                );
                self.error("unknown-word", span, format!("a filter does not know `{word}`"), help);
                return None;
            };
            if !self.once(&mut seen, word, span) {
                return None;
            }
            let number = |most: u64| move |word: &str| words::integer(word).filter(|n| *n <= most);
            match word {
                "dontwarn" => quiet = true,
                "gpi" => {
                    let (n, _) = self.value(words, span, "an SPI", number(u64::from(u32::MAX)))?;
                    // 0 matches all packets.
                    if n != 0 {
                        terms.push(term(Field::Spi, Values::Ranges(vec![(n as u32, n as u32)])));
                    }
                }
                "flowlabel" => {
                    let (n, _) = self.value(words, span, "a flow label, 0 to 0xfffff", number(0xfffff))?;
                    if n != 0 {
                        terms.push(term(Field::FlowLabel, Values::Ranges(vec![(n as u32, n as u32)])));
                    }
                }
                _ => {
                    let (n, at) = self.value(words, span, "an octet, as 0xb8", number(255))?;
                    if word == tos_word {
                        tos = Some((n as u32, at));
                    } else {
                        mask = Some((n as u32, at));
                    }
                }
            }
        }
        if let (None, Some((_, at))) = (tos, mask) {
            self.error("missing-value", at, format!("`{mask_word}` needs a `{tos_word}`"), None);
            return None;
        }
        if let Some((value, at)) = tos.filter(|(value, _)| *value != 0) {
            let mask = mask.map_or(0xff, |(mask, _)| mask);
            if value & !mask != 0 {
                self.error("match-nothing", at, "the value has bits outside of its mask: no packet can match", None);
                return None;
            }
            terms.push(term(Field::Tos, Values::Masked(vec![(value, mask)])));
        }
        Some(quiet)
    }

    /// Adds the filters that altqd gives a control class: ICMP, IGMP and RSVP, over IPv4 and IPv6.
    pub(super) fn control_filters(&mut self, interface: usize, class: usize, span: Span) {
        for rule in lower::control_rules(0) {
            self.interfaces[interface].filters.push(Filter { rule, class, span, name: None, quiet: true, made: true });
        }
    }

    /// Checks a new filter against the older ones, as altqd does. False if it is refused.
    fn in_order(&mut self, interface: usize, new: &Filter) -> bool {
        let mut found = Vec::new();
        for old in &self.interfaces[interface].filters {
            // The filter with the larger ruleno is tried first; with equal numbers the later line.
            let new_first = new.rule.number >= old.rule.number;
            let (first, second) = if new_first { (&new.rule, &old.rule) } else { (&old.rule, &new.rule) };
            let other = if new_first { "this filter" } else { "an older filter" };
            match relation(first, second) {
                Relation::Covers if old.made => {
                    let message = "this filter takes all packets of the control class";
                    found.push((Diagnostic::warning("shadowed", new.span, message), false));
                }
                Relation::Covers => {
                    let message =
                        format!("order problem: {other} is tried before the other, which could then never match");
                    let error = Diagnostic::error("shadowed", new.span, message).label(old.span, "the older one");
                    found.push((
                        error.help(
                            "general filters first, special ones behind them; or give the special one a higher ruleno",
                        ),
                        true,
                    ));
                }
                Relation::Overlap if !(new.quiet || old.quiet || new.class == old.class) => {
                    let message = format!(
                        "this filter and an older one, of another class, \
                         match some packets both; {other} is tried first"
                    );
                    let warning = Diagnostic::warning("overlap", new.span, message).label(old.span, "the older one");
                    found.push((warning.help("`dontwarn` behind the filter says that this is meant"), false));
                }
                _ => {}
            }
        }
        let refused = found.iter().any(|(_, refused)| *refused);
        // One finding for each filter is enough. An error is preferred to a warning.
        found.sort_by_key(|(_, refused)| !refused);
        if let Some((diagnostic, _)) = found.into_iter().next() {
            self.findings.push(diagnostic);
        }
        !refused
    }
}

fn term(field: Field, values: Values) -> Term {
    Term { field, negated: false, values }
}
