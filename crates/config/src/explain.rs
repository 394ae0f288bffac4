//! What `altq explain --json` says: which class a packet gets and why, schema `altq.explain/1`; and
//! which rules decide about the packets of a capture, schema `altq.explain_capture/1`.

use altq_engine::classify::{CacheSettings, Classifier};
use altq_engine::headers::Key;
use altq_engine::spec::{ClassId, ROOT};
use serde::Serialize;

use crate::diagnostic::Sources;
use crate::packet::Packet;
use crate::policy::Link;
use crate::promise::Promises;

/// The document `altq.explain/1`: the class of a packet, and why.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explained<'a> {
    schema: &'static str,
    /// The link whose rules were asked.
    pub link: &'a str,
    /// The packet's class; null if no rule matches and the link has no default: it is dropped.
    pub class: Option<&'a str>,
    /// The rule that decides; null if none matches.
    pub rule: Option<Place<'a>>,
    /// True if no rule matches and the packet goes into the link's default class.
    pub default: bool,
    /// What the link's rules look at and the packet does not say, with what it is taken as: `dscp
    /// 0`, `dport none`.
    pub assumed: Vec<String>,
    /// Rules that match as well, but are tried later, in that order.
    pub shadowed: Vec<Place<'a>>,
    /// What the packet's class is promised and may use at most, and then the same of each class
    /// above it, the link last. Empty without a class.
    pub limits: Vec<Limits<'a>>,
}

/// A rule of a policy.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Place<'a> {
    /// The file in which it is written.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is written there, with single spaces.
    pub text: String,
    /// The class to which it leads.
    pub class: &'a str,
}

/// The limits of a class.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limits<'a> {
    /// The class; the link itself comes last.
    pub class: &'a str,
    /// What it is guaranteed; 0 if nothing.
    pub guaranteed_bit_s: u64,
    /// The most that it may use.
    pub ceiling_bit_s: u64,
}

/// Answers which class a packet of a link gets.
pub struct Explainer<'a> {
    sources: &'a Sources,
    link: &'a Link,
    rules: &'a Rules,
}

/// The rules of a link, as an [`Explainer`] asks them.
pub struct Rules {
    classifier: Classifier,
    /// By class, what it is guaranteed and the most that it may use, in bit/s, where all of it was
    /// worked out before.
    limits: Vec<(u64, u64)>,
}

impl Rules {
    /// Of a link, for few packets.
    pub fn new(link: &Link) -> Rules {
        let settings = CacheSettings { flows: 0, ..CacheSettings::default() };
        Rules { classifier: Classifier::with(&link.spec.rules, link.spec.default, settings), limits: Vec::new() }
    }

    /// The same with the limits of all classes, which take a while to work out, so that an answer
    /// takes none.
    pub fn with_limits(link: &Link) -> Rules {
        let promises = Promises::new(link);
        let of = |class| (guaranteed(&promises, class), link.ceiling(class).as_bit_s());
        Rules { limits: (ROOT..).take(link.spec.classes.len()).map(of).collect(), ..Rules::new(link) }
    }
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("limits", &self.limits.len()).finish_non_exhaustive()
    }
}

impl<'a> Explainer<'a> {
    /// For a link of a policy that was read from `sources`, and the link's rules.
    pub fn new(sources: &'a Sources, link: &'a Link, rules: &'a Rules) -> Explainer<'a> {
        Explainer { sources, link, rules }
    }

    /// The class of a packet, and why.
    pub fn packet(&self, packet: &Packet) -> Explained<'a> {
        let link = self.link;
        let found = self.rules.classifier.explain(&packet.key(link));
        Explained {
            schema: "altq.explain/1",
            link: &link.name,
            class: found.class.map(|class| link.class_name(class)),
            rule: found.rule.and_then(|rule| self.place(rule)),
            default: found.rule.is_none() && found.class.is_some(),
            assumed: packet.missing(link),
            shadowed: found.shadowed.into_iter().filter_map(|rule| self.place(rule)).collect(),
            limits: found.class.map_or_else(Vec::new, |class| self.limits(class)),
        }
    }

    /// Which rules decide about these packets.
    pub fn packets<'k>(&self, keys: impl IntoIterator<Item = &'k Key>) -> Counted<'a> {
        let mut rules = vec![Sum::default(); self.link.spec.rules.rules.len()];
        let (mut default, mut all) = (Sum::default(), Sum::default());
        for key in keys {
            let rule = self.rules.classifier.rule(key);
            let sum = rule.and_then(|rule| rules.get_mut(rule)).unwrap_or(&mut default);
            sum.add(key);
            all.add(key);
        }
        let counted = |(rule, sum): (usize, Sum)| {
            Some(RuleCount { rule: self.place(rule)?, packets: sum.packets, bytes: sum.bytes })
        };
        Counted {
            schema: "altq.explain_capture/1",
            link: &self.link.name,
            packets: all.packets,
            bytes: all.bytes,
            rules: rules.into_iter().enumerate().filter_map(counted).collect(),
            rest: Rest {
                class: self.link.spec.default.map(|class| self.link.class_name(class)),
                packets: default.packets,
                bytes: default.bytes,
            },
        }
    }

    /// The limits of a class and of all above it.
    fn limits(&self, class: ClassId) -> Vec<Limits<'a>> {
        let link = self.link;
        let above = |class: &ClassId| {
            let spec = link.spec.classes.get(*class as usize).filter(|_| *class != ROOT);
            spec.map(|spec| spec.parent)
        };
        let known = |class: ClassId| self.rules.limits.get(class as usize).copied();
        let promises = known(class).is_none().then(|| Promises::new(link));
        let limits = |class: ClassId| {
            let worked_out =
                || (promises.as_ref().map_or(0, |all| guaranteed(all, class)), link.ceiling(class).as_bit_s());
            let (guaranteed_bit_s, ceiling_bit_s) = known(class).unwrap_or_else(worked_out);
            Limits { class: link.class_name(class), guaranteed_bit_s, ceiling_bit_s }
        };
        std::iter::successors(Some(class), above).map(limits).collect()
    }

    fn place(&self, rule: usize) -> Option<Place<'a>> {
        let (written, span) = (self.link.spec.rules.rules.get(rule)?, *self.link.rules.get(rule)?);
        let words: Vec<&str> = self.sources.slice(span).split_whitespace().collect();
        Some(Place {
            file: self.sources.path(span.source).display().to_string(),
            line: self.sources.line_column(span).0,
            text: words.join(" "),
            class: self.link.class_name(written.class),
        })
    }
}

/// The document `altq.explain_capture/1`: how many packets of a capture each rule decides about.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counted<'a> {
    schema: &'static str,
    /// The link whose rules were asked.
    pub link: &'a str,
    /// All packets.
    pub packets: u64,
    /// Their bytes at layer 3.
    pub bytes: u64,
    /// Every rule of the link, as written, also those without a packet.
    pub rules: Vec<RuleCount<'a>>,
    /// The packets that no rule matches.
    pub rest: Rest<'a>,
}

/// How many packets a rule decides about.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleCount<'a> {
    /// The rule.
    #[serde(flatten)]
    pub rule: Place<'a>,
    /// Its packets.
    pub packets: u64,
    /// Their bytes at layer 3.
    pub bytes: u64,
}

/// The packets that no rule matches.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rest<'a> {
    /// The link's default class; null without one: they are dropped.
    pub class: Option<&'a str>,
    /// How many there are.
    pub packets: u64,
    /// Their bytes at layer 3.
    pub bytes: u64,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    packets: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, key: &Key) {
        self.packets += 1;
        self.bytes += u64::from(key.length);
    }
}

fn guaranteed(promises: &Promises<'_>, class: ClassId) -> u64 {
    promises.guaranteed(class).unwrap_or_default().as_bit_s()
}
