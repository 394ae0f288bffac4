//! Prints a policy in the native language.
//!
//! Reading the text gives the same [`LinkSpec`](altq_engine::spec::LinkSpec), with two exceptions.
//! Rules in ALTQ's order become rules in the order in which they were tried. What the native
//! language cannot express becomes a comment, and a line of [`Printed::left_out`].

use std::collections::HashMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use altq_engine::classify::{Address, Field, Order, Rule, Term, Values};
use altq_engine::link::{Framing, Overhead};
use altq_engine::settings::{Limit, ONE, Settings, Value};
use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::spec::{ClassId, QueueSpec, ROOT, Regulator, SchedulerSpec};
use altq_engine::units::time_text;

use crate::names;
use crate::native::{DEFAULT_MTU, KEYS};
use crate::policy::{Adapt, Device, Link, Policy};

/// A policy as text.
#[derive(Clone, Debug, Default)]
pub struct Printed {
    /// The policy in the native language.
    pub text: String,
    /// What the native language cannot express, a line each. The text has these lines as comments.
    pub left_out: Vec<String>,
}

/// Prints a policy in the native language.
pub fn print(policy: &Policy) -> Printed {
    let mut printed = Printed::default();
    for (at, link) in policy.links.iter().enumerate() {
        if at > 0 {
            printed.text.push('\n');
        }
        Printer { link, children: link.children(), name: link.name.clone(), out: &mut printed }.link();
    }
    printed
}

struct Printer<'p> {
    link: &'p Link,
    children: Vec<Vec<ClassId>>,
    /// The link's name as it is printed.
    name: String,
    out: &'p mut Printed,
}

impl Printer<'_> {
    fn line(&mut self, depth: usize, line: &str) {
        let _ = writeln!(self.out.text, "{:width$}{line}", "", width = depth * 4);
    }

    fn left_out(&mut self, what: String) {
        self.line(1, &format!("# not carried over: {what}"));
        self.out.left_out.push(what);
    }

    fn link(&mut self) {
        let link = self.link;
        let spec = &link.spec;
        for note in &link.notes {
            self.line(0, &format!("# {note}"));
        }
        // In the native language the root has the name of the link, and no other class may have it.
        while link.classes.iter().skip(1).any(|class| class.name == self.name) {
            self.name.push('_');
        }
        self.line(0, &format!("link {} {{", self.name));
        if self.name != link.name {
            self.left_out(format!("the name `{}` of the link, which a class has as well", link.name));
        }
        if link.class_name(ROOT) != link.name {
            self.left_out(format!(
                "the name `{}` of the root class: here it is that of the link",
                link.class_name(ROOT)
            ));
        }
        match &link.device {
            Some(Device::Interface { name, ingress }) => {
                self.line(1, &format!("device {name}{}", if *ingress { " ingress" } else { "" }));
            }
            Some(Device::Bridge { from, to }) => self.line(1, &format!("device bridge {from} {to}")),
            None => {}
        }
        if let Some(path) = link.written_path {
            self.line(1, &format!("path {}", path.name()));
        }
        let adapt = link.adapt.as_ref().map_or_else(String::new, |adapt| format!(" {}", adapt_words(adapt)));
        self.line(1, &format!("rate {}{adapt}", spec.rate));
        if spec.mtu != DEFAULT_MTU {
            self.line(1, &format!("mtu {}", spec.mtu));
        }
        if spec.overhead != Overhead::NONE {
            self.line(1, &format!("overhead {}", overhead(&spec.overhead)));
        }
        self.line(1, &format!("regulator {}", regulator(spec.regulator)));
        if link.overcommit {
            self.line(1, "overcommit");
        }
        self.line(1, &scheduler(&spec.scheduler));
        if let Some(queue) = spec.classes.first().and_then(|root| root.queue.as_ref()) {
            self.line(1, &queue_words(queue));
        }
        if let Some(meter) = spec.classes.first().and_then(|root| meter(&root.settings, "meter")) {
            self.line(1, &meter);
        }
        if spec.default == Some(ROOT) && spec.classes.len() > 1 {
            self.line(1, "default");
        }
        if let Some(names) = self.shuffled() {
            self.left_out(format!(
                "the order in which ALTQ's round robin served {names}: here each class stands inside its parent, \
                 which changes the order"
            ));
        }
        if spec.classes.len() > 1 {
            self.line(0, "");
        }
        self.classes(ROOT, 1);
        self.rules();
        self.line(0, "}");
    }

    /// The names of two classes of one priority whose order changes, if that matters: some
    /// schedulers serve classes of one priority in the order in which they were made, but a class
    /// is printed inside its parent.
    fn shuffled(&self) -> Option<String> {
        let mut last: HashMap<u64, ClassId> = HashMap::new();
        let mut stack = vec![ROOT];
        while let Some(class) = stack.pop() {
            stack.extend(self.children.get(class as usize).into_iter().flatten().rev());
            let spec = self.link.spec.classes.get(class as usize)?;
            let (serving, entry) = (self.link.spec.serving(class)?, self.link.entry_of(class)?);
            if class == ROOT || !(entry.order_of_making)(&serving.settings) {
                continue;
            }
            let last = last.entry(entry.priority(&spec.settings).unwrap_or(0)).or_insert(ROOT);
            if class < *last {
                return Some(format!("`{}` and `{}`", self.link.class_name(class), self.link.class_name(*last)));
            }
            *last = class;
        }
        None
    }

    fn classes(&mut self, parent: ClassId, depth: usize) {
        for id in self.children.get(parent as usize).cloned().unwrap_or_default() {
            let words = class_words(self.link, id);
            let head = format!("class {} {{", self.link.class_name(id));
            let below = self.children.get(id as usize).is_some_and(|children| !children.is_empty());
            let words = words.join("  ");
            if !below {
                self.line(depth, &if words.is_empty() { format!("{head} }}") } else { format!("{head} {words} }}") });
                continue;
            }
            self.line(depth, &head);
            if !words.is_empty() {
                self.line(depth + 1, &words);
            }
            self.classes(id, depth + 1);
            self.line(depth, "}");
        }
    }

    fn rules(&mut self) {
        let rules = &self.link.spec.rules;
        if !rules.rules.is_empty() {
            self.line(0, "");
        }
        if rules.order == Order::Altq && rules.rules.len() > 1 {
            self.line(1, "# In the order in which ALTQ tried its filters.");
        }
        for at in rules.tried() {
            let Some(rule) = rules.rules.get(at as usize) else { continue };
            match conditions(rule, &rules.interfaces) {
                Some(conditions) => self.line(1, &format!("match {conditions} -> {}", self.target(rule.class))),
                None => self.left_out(format!("a rule that leads to `{}`", self.link.class_name(rule.class))),
            }
        }
    }

    /// The name of a class after an arrow. The root has the name of the link.
    fn target(&self, class: ClassId) -> String {
        if class == ROOT { self.name.clone() } else { self.link.class_name(class).to_owned() }
    }
}

/// The words of a class with their values: first those that the scheduler above it reads, then
/// `default`, its queue, the scheduler inside it, and `reservations`.
pub(crate) fn class_words(link: &Link, id: ClassId) -> Vec<String> {
    let Some(spec) = link.spec.classes.get(id as usize) else { return Vec::new() };
    let mut words = settings(&spec.settings);
    if link.spec.default == Some(id) {
        words.push("default".to_owned());
    }
    words.extend(spec.queue.as_ref().map(queue_words));
    words.extend(spec.scheduler.as_ref().map(scheduler));
    if let Some(reservations) = link.reservations.as_ref().filter(|reserved| reserved.class == id) {
        let inside = settings(&reservations.settings).join("  ");
        let braces = if inside.is_empty() { String::new() } else { format!(" {{ {inside} }}") };
        words.push(format!("reservations{braces}"));
    }
    words
}

/// The rules of a link in the order in which they are tried, as they are printed. For a rule that
/// the native language cannot express, the line is `a rule that leads to CLASS`.
pub(crate) fn rule_lines(link: &Link) -> Vec<String> {
    let set = &link.spec.rules;
    let tried = set.tried().into_iter().filter_map(|at| set.rules.get(at as usize));
    let line = |rule: &Rule| {
        let class = link.class_name(rule.class);
        match conditions(rule, &set.interfaces) {
            Some(conditions) => format!("match {conditions} -> {class}"),
            None => format!("a rule that leads to {class}"),
        }
    };
    tried.map(line).collect()
}

/// The settings of the link itself, as printed: each item is a word and its value. The root class's
/// words are included.
pub(crate) fn link_words(link: &Link) -> Vec<String> {
    let spec = &link.spec;
    let mut words = vec![format!("rate {}", spec.rate)];
    words.extend(link.adapt.as_ref().map(adapt_words));
    words.push(format!("mtu {}", spec.mtu));
    words.push(format!("overhead {}", overhead(&spec.overhead)));
    words.push(format!("regulator {}", regulator(spec.regulator)));
    words.extend(link.overcommit.then(|| "overcommit".to_owned()));
    words.push(scheduler(&spec.scheduler));
    words.extend(class_words(link, ROOT));
    words
}

fn regulator(regulator: Regulator) -> String {
    match regulator {
        Regulator::None => "none".to_owned(),
        Regulator::Auto => "auto".to_owned(),
        Regulator::Altq => "altq".to_owned(),
        Regulator::Depth(depth) => format!("{depth}bytes"),
    }
}

fn adapt_words(adapt: &Adapt) -> String {
    let reflectors: Vec<String> = adapt.reflectors.iter().map(ToString::to_string).collect();
    let (from, to, target) = (adapt.from, adapt.to, time_text(adapt.target));
    format!("adapt {{ from {from} to {to}  target {target}  reflectors {{ {} }} }}", reflectors.join(" "))
}

fn overhead(overhead: &Overhead) -> String {
    let framing = match overhead.framing {
        Framing::Plain => "",
        Framing::Atm => " atm",
        Framing::Ptm => " ptm",
    };
    let mpu = if overhead.mpu > 0 { format!(" mpu {}", overhead.mpu) } else { String::new() };
    format!("{} bytes{framing}{mpu}", overhead.bytes)
}

fn scheduler(spec: &SchedulerSpec) -> String {
    let words = settings(&spec.settings);
    if words.is_empty() {
        format!("scheduler {}", spec.name)
    } else {
        format!("scheduler {} {{ {} }}", spec.name, words.join("  "))
    }
}

fn queue_words(queue: &QueueSpec) -> String {
    let mut words = vec![format!("limit {}", limit(queue.limit))];
    words.extend(settings(&queue.settings));
    format!("queue {} {{ {} }}", queue.name, words.join("  "))
}

fn settings(settings: &Settings) -> Vec<String> {
    let mut words = Vec::new();
    for (word, value) in settings.iter() {
        // The words of a meter are printed together, in the braces of the meter.
        if word == "meter" {
            words.extend(meter(settings, "meter"));
            continue;
        } else if word.starts_with("meter ") {
            continue;
        }
        words.push(match value {
            Value::Flag => word.to_owned(),
            Value::Rate(rate) => format!("{word} {rate}"),
            Value::Curve(curve) => format!("{word} {}", service_curve(&curve)),
            Value::Int(n) | Value::Bytes(n) => format!("{word} {n}"),
            Value::Time(nanos) => format!("{word} {}", time_text(nanos)),
            Value::Limit(value) => format!("{word} {}", limit(value)),
            Value::Fraction(billionths) => format!("{word} {}", fraction(billionths)),
            Value::Percent(billionths) => format!("{word} {}%", percent(billionths)),
            Value::Choice(choice) => format!("{word} {choice}"),
        });
    }
    words
}

/// The meter whose words begin with `prefix` in the settings of a class, as text. `None` if there
/// is none.
fn meter(settings: &Settings, prefix: &str) -> Option<String> {
    let kind = settings.choice(prefix)?;
    let mut words = Vec::new();
    for (word, value) in settings.iter() {
        let word = word.strip_prefix(prefix).and_then(|word| word.strip_prefix(' '));
        // Words behind another blank are those of a meter inside it.
        let Some(word) = word.filter(|word| !word.contains(' ')) else { continue };
        words.push(match value {
            Value::Choice("meter") => {
                format!("{word} {}", meter(settings, &format!("{prefix} {word} meter")).unwrap_or_default())
            }
            Value::Rate(rate) => format!("{word} {rate}"),
            Value::Bytes(n) => format!("{word} {n}bytes"),
            Value::Time(nanos) => format!("{word} {}", time_text(nanos)),
            Value::Choice(choice) => format!("{word} {choice}"),
            Value::Int(dscp) => {
                let name = u32::try_from(dscp).ok().and_then(|dscp| names::name(Field::Dscp, dscp));
                format!("{word} dscp {}", name.map_or_else(|| dscp.to_string(), str::to_owned))
            }
            _ => word.to_owned(),
        });
    }
    Some(format!("meter {kind} {{ {} }}", words.join("  ")))
}

fn limit(limit: Limit) -> String {
    match limit {
        Limit::Packets(n) => format!("{n}packets"),
        Limit::Bytes(n) => format!("{n}bytes"),
    }
}

/// A number from 0 to 1, given in billionths, with as many digits as it needs.
fn fraction(billionths: u32) -> String {
    let digits = format!("{:09}", billionths % ONE);
    let digits = digits.trim_end_matches('0');
    let whole = billionths / ONE;
    if digits.is_empty() { whole.to_string() } else { format!("{whole}.{digits}") }
}

fn service_curve(curve: &ServiceCurve) -> String {
    match curve.until {
        0 => curve.then.to_string(),
        until => format!("{} for {} then {}", curve.first, time_text(until), curve.then),
    }
}

/// A number from 0 to 1, given in billionths, in per cent with as many digits as it needs.
fn percent(billionths: u32) -> String {
    let (whole, rest) = (billionths / (ONE / 100), billionths % (ONE / 100));
    let digits = format!("{rest:07}");
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() { whole.to_string() } else { format!("{whole}.{digits}") }
}

/// The keys and values of a rule. `None` if the native language cannot express the rule: two lists
/// of one key must both match, or a term has no values.
fn conditions(rule: &Rule, interfaces: &[String]) -> Option<String> {
    if rule.terms.is_empty() {
        return Some("all".to_owned());
    }
    let mut out: Vec<String> = Vec::new();
    for (at, first) in rule.terms.iter().enumerate() {
        if rule.terms[..at].iter().any(|term| term.field == first.field) {
            continue;
        }
        let same: Vec<&Term> = rule.terms.iter().filter(|term| term.field == first.field).collect();
        if same.iter().filter(|term| !term.negated).count() > 1 {
            return None;
        }
        let (key, _) = KEYS.iter().find(|(_, field)| *field == first.field)?;
        let mut list = Vec::new();
        // First the plain values, then the negated ones (`!`). The parser makes terms in this
        // order.
        for negated in [false, true] {
            for term in same.iter().filter(|term| term.negated == negated) {
                let mark = if negated { "!" } else { "" };
                let values = values(term, interfaces);
                if values.is_empty() {
                    return None;
                }
                list.extend(values.into_iter().map(|value| format!("{mark}{value}")));
            }
        }
        out.push(format!("{key} {}", list.join(",")));
    }
    Some(out.join(" "))
}

fn values(term: &Term, interfaces: &[String]) -> Vec<String> {
    let named = |value: u32| match term.field {
        Field::Interface => {
            let name = interfaces.get(value as usize).map_or("", String::as_str);
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-%+*@".contains(&byte);
            // The kernel allows more characters in names of interfaces than a word has.
            if !name.is_empty() && !name.contains("->") && name.bytes().all(is_plain) {
                name.to_owned()
            } else {
                format!("\"{name}\"")
            }
        }
        // Ports are printed as numbers, which mean the same to every reader.
        Field::SrcPort | Field::DstPort | Field::Port => value.to_string(),
        field => names::name(field, value).map_or_else(|| value.to_string(), str::to_owned),
    };
    match &term.values {
        Values::Addresses(addresses) => addresses.iter().map(address).collect(),
        Values::Ranges(ranges) => {
            ranges.iter().map(|(from, to)| if from == to { named(*from) } else { format!("{from}-{to}") }).collect()
        }
        Values::Masked(masked) => masked.iter().map(|(value, mask)| format!("{value:#x}/{mask:#x}")).collect(),
    }
}

/// An address as the native language has it: alone, with its prefix length, or with its mask.
pub(crate) fn address(address: &Address) -> String {
    let width = if address.v6 { 128 } else { 32 };
    let show = |bits: u128| {
        if address.v6 { Ipv6Addr::from_bits(bits).to_string() } else { Ipv4Addr::from_bits(bits as u32).to_string() }
    };
    let host = show(address.bits);
    let length = address.mask.count_ones();
    let full = if address.v6 { u128::MAX } else { u128::from(u32::MAX) };
    let prefix = full & !full.checked_shr(length).unwrap_or(0);
    match (address.mask == prefix, length == width) {
        (true, true) => host,
        (true, false) => format!("{host}/{length}"),
        (false, _) => format!("{host}/{}", show(address.mask)),
    }
}
