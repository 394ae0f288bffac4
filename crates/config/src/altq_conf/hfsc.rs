//! Classes of HFSC: `class hfsc IF NAME PARENT`, which curves and options follow
//! (docs/reference/altq.md 3.1).

use altq_engine::settings::{Settings, Value};
use altq_engine::shape::service_curve::{ServiceCurve, excess};
use altq_engine::units::Rate;

use super::file::{Draft, File, Words};
use super::{queues, words};
use crate::diagnostic::{Diagnostic, Span};
use crate::suggest::did_you_mean;

/// Options of a class.
const OPTIONS: &[&str] =
    &["pshare", "grate", "bandwidth", "ulimit", "admission", "qlimit", "default", "red", "rio", "ecn", "cleardscp"];
/// The values of `admission`.
const ADMISSIONS: &[&str] = &["none", "cntlload", "guaranteed"];
/// The packets that a class's queue holds, without `qlimit`.
pub const LIMIT: u32 = 50;
/// The part of the interface, in per cent, that real-time curves may have together.
const REALTIME: u64 = 80;
/// The curves of a class, in the words of the native language.
const CURVES: [&str; 3] = ["realtime", "linkshare", "upperlimit"];
const NAMES: [&str; 3] = ["real-time", "link-sharing", "upper-limit"];

/// A curve as it is written: m1 and m2 in bit/s, d in milliseconds, and where.
#[derive(Clone, Copy)]
struct Curve {
    m1: u64,
    d: u64,
    m2: u64,
    at: Span,
}

/// What the words of a class say.
#[derive(Default)]
struct Options {
    words: Vec<(&'static str, Span)>,
    curves: [Option<Curve>; 3],
    queue: queues::Kind,
    limit: Option<u32>,
    default: bool,
    reserves: Option<Span>,
}

impl File<'_> {
    /// Makes a class whose name and parent are read and new.
    pub(super) fn hfsc_class(&mut self, words: &mut Words<'_>, at: usize, name: Span, parent: usize) {
        let Some(mut options) = self.hfsc_options(words, at) else { return };
        let Some((mut settings, places)) = self.curves(at, name, parent, &options) else { return };
        if !self.one_default(at, name, options.default) {
            return;
        }
        options.words.extend(places);
        options.queue.clear(&mut settings, &mut options.words);
        let limit = options.limit.unwrap_or(LIMIT);
        let mtu = u64::from(self.interfaces[at].mtu);
        let queue = options.queue.queue("drop_tail", limit, mtu, &self.defaults);
        let class = self.push_class(
            at,
            Draft {
                name: self.slice(name).to_owned(),
                span: name,
                parent: Some(parent),
                bandwidth: 0,
                allocated: 0,
                settings,
                queue: Some(queue),
                words: options.words,
                queue_words: Vec::new(),
                made: false,
            },
        );
        if options.default {
            self.interfaces[at].default = Some(class);
        }
        if let Some(span) = options.reserves {
            self.reservations(at, class, span);
        }
    }

    fn hfsc_options(&mut self, words: &mut Words<'_>, at: usize) -> Option<Options> {
        let mut options = Options::default();
        let rate = self.interfaces[at].rate;
        let mut good = true;
        while let Some(span) = words.next() {
            let word = self.slice(span);
            if word.starts_with('[') {
                good &= self.bracket(words, span, &mut options);
                continue;
            }
            let Some(option) = OPTIONS.iter().find(|option| **option == word).copied() else {
                let help = did_you_mean(word, OPTIONS.iter().copied().chain(["["]));
                self.error("unknown-word", span, format!("a class of hfsc does not know `{word}`"), help);
                good = false;
                continue;
            };
            good &= self.once(&mut options.words, option, span);
            let whole =
                |least: u64, most: u64| move |word: &str| words::integer(word).filter(|n| (least..=most).contains(n));
            good &= match option {
                "pshare" => match self.value(words, span, "whole per cent of the interface, 0 to 100", whole(0, 100)) {
                    Some((n, _)) => self.m2(&mut options, &[1], rate / 100 * n, span),
                    None => false,
                },
                "grate" | "bandwidth" | "ulimit" => {
                    let which: &[usize] = match option {
                        "grate" => &[0],
                        "bandwidth" => &[0, 1],
                        _ => &[2],
                    };
                    match self.value(words, span, "a rate in bit/s, as 1.5M", words::rate) {
                        Some((n, _)) => self.m2(&mut options, which, n, span),
                        None => false,
                    }
                }
                "admission" => {
                    let what = format!("one of {}", ADMISSIONS.join(", "));
                    match self.value(words, span, &what, |word| ADMISSIONS.iter().find(|known| **known == word)) {
                        Some((known, value)) => {
                            options.reserves = (*known != "none").then_some(value);
                            true
                        }
                        None => false,
                    }
                }
                _ => {
                    let Options { queue, limit, default, .. } = &mut options;
                    self.leaf_option(words, option, span, queue, limit, default)
                }
            };
        }
        good &= self.red_or_rio(&options.queue);
        good.then_some(options)
    }

    /// Sets m2 of curves, as `grate` and the like do. What a word before said of it is replaced, as
    /// altqd did it, with a warning.
    fn m2(&mut self, options: &mut Options, which: &[usize], m2: u64, span: Span) -> bool {
        for which in which {
            if let Some(old) = options.curves[*which] {
                let message = format!("this replaces m2 of the {} curve, {}", NAMES[*which], Rate::bit_s(old.m2));
                let warning = Diagnostic::warning("given-twice", span, message).label(old.at, "it was given here");
                self.findings.push(warning.help("write the curve once"));
            }
            let curve = options.curves[*which].get_or_insert(Curve { m1: 0, d: 0, m2, at: span });
            curve.m2 = m2;
        }
        true
    }

    /// Reads `[TYPE M1 D M2]`, where blanks may stand behind `[` and before `]`. False after an
    /// error.
    fn bracket(&mut self, words: &mut Words<'_>, open: Span, options: &mut Options) -> bool {
        let mut inside: Vec<Span> = Vec::new();
        let mut span = open;
        let mut start = 1;
        let closed = loop {
            let word = self.slice(span);
            let body = word.get(start..).unwrap_or("");
            let ends = body.ends_with(']');
            let body_span = Span { start: span.start + start, end: span.end - usize::from(ends), ..span };
            if body_span.start < body_span.end {
                inside.push(body_span);
            }
            if ends {
                break true;
            }
            start = 0;
            match words.peek(0) {
                Some(next) if inside.len() <= 4 => {
                    words.next();
                    span = next;
                }
                _ => break false,
            }
        };
        let help = Some("as `[rt 2M 10 500K]`: sc, rt, ls or ul, then m1, d in ms and m2".to_owned());
        let (true, [kind, m1, d, m2]) = (closed, &inside[..]) else {
            let message = if closed { "a curve is a type and three numbers" } else { "this `[` has no `]`" };
            self.error("bad-value", open.to(span), message, help);
            return false;
        };
        let (kind, m1, d, m2) = (*kind, *m1, *d, *m2);
        // The first letter of the type decides, in either case.
        let which: &[usize] = match self.slice(kind).bytes().next().map(|c| c.to_ascii_lowercase()) {
            Some(b's') => &[0, 1],
            Some(b'r') => &[0],
            Some(b'l') => &[1],
            Some(b'u') => &[2],
            _ => {
                let message = format!("no curve is called `{}`", self.slice(kind));
                self.error("bad-value", kind, message, help);
                return false;
            }
        };
        let rate = |file: &mut Self, at: Span| {
            let read = words::rate(file.slice(at));
            if read.is_none() {
                let message = format!("a slope is a rate in bit/s, as 1.5M, not `{}`", file.slice(at));
                file.error("bad-value", at, message, None);
            }
            read
        };
        let (Some(m1_rate), Some(m2_rate)) = (rate(self, m1), rate(self, m2)) else { return false };
        let Some(ms) = words::integer(self.slice(d)).filter(|ms| *ms <= 3_600_000) else {
            let message = format!("d is whole milliseconds, up to an hour, not `{}`", self.slice(d));
            self.error("bad-value", d, message, None);
            return false;
        };
        for which in which {
            if let Some(old) = options.curves[*which] {
                let message = format!("this replaces the {} curve", NAMES[*which]);
                let warning =
                    Diagnostic::warning("given-twice", open.to(span), message).label(old.at, "it was given here");
                self.findings.push(warning.help("write the curve once"));
            }
            options.curves[*which] = Some(Curve { m1: m1_rate, d: ms, m2: m2_rate, at: open.to(span) });
        }
        true
    }

    /// An upper limit in the words of the native language, which refuses some that altqd took: one
    /// holds back what is shared, not what goes by real-time curve. `None` if it has no effect.
    /// What differs from what is written is said by a warning.
    fn upper_limit(
        &mut self,
        at: usize,
        name: Span,
        settings: &Settings,
        (limit, place): (ServiceCurve, Span),
    ) -> Option<ServiceCurve> {
        let (name, rate) = (self.slice(name), Rate::bit_s(self.interfaces[at].rate));
        let lasting = |word: &str| settings.curve(word).filter(|curve| !curve.then.is_zero());
        let (code, message, help, kept) = match (lasting("realtime"), lasting("linkshare")) {
            // Such a class is refused.
            (None, None) => return Some(limit),
            (Some(_), None) => (
                "no-effect",
                format!("the upper limit of `{name}` has no effect: without a link-sharing curve nothing is shared"),
                "leave it out, or write `pshare`",
                None,
            ),
            (Some(realtime), _) if limit.then < realtime.then => (
                "limit-below-realtime",
                format!(
                    "the upper limit of `{name}`, {}, does not hold back its real-time curve, {}: that is its limit",
                    limit.then, realtime.then
                ),
                "write an upper limit of at least the real-time curve",
                Some(ServiceCurve::linear(realtime.then)),
            ),
            _ if limit.first.max(limit.then) > rate => {
                let kept = ServiceCurve { first: limit.first.min(rate), then: limit.then.min(rate), ..limit };
                (
                    "no-effect",
                    format!("the upper limit of `{name}` is above the interface's {rate}, which is a limit to all"),
                    "leave it out, or write less",
                    (kept.first < rate || kept.then < rate).then_some(kept),
                )
            }
            _ => return Some(limit),
        };
        self.findings.push(Diagnostic::warning(code, place, message).help(help));
        kept
    }

    /// Checks the curves as altqd did. Makes words of them, and says where each is written. `None`
    /// after an error.
    fn curves(
        &mut self,
        at: usize,
        name: Span,
        parent: usize,
        options: &Options,
    ) -> Option<(Settings, Vec<(&'static str, Span)>)> {
        let mut settings = Settings::new();
        let mut places = Vec::new();
        for (which, word) in CURVES.into_iter().enumerate() {
            let Some(Curve { m1, d, m2, at: place }) = options.curves[which] else { continue };
            if m2 == 0 && (m1 == 0 || d == 0) {
                continue;
            }
            // docs/reference/altq.md 3.1: a curve that starts slower than it goes on has m1 = 0.
            // Words behind a bracket may have replaced its m2.
            if m1 < m2 && m1 != 0 {
                let (from, to) = (Rate::bit_s(m1), Rate::bit_s(m2));
                let message = format!("a curve that starts with {from} and goes on with {to} is refused by altqd");
                self.error("refused", place, message, Some("write 0 for m1, or a rate above m2".to_owned()));
                return None;
            }
            let mut curve = ServiceCurve::linear(Rate::bit_s(m2));
            if d > 0 && m1 != m2 {
                curve = ServiceCurve { first: Rate::bit_s(m1), until: d * 1_000_000, then: curve.then };
            }
            if word == "upperlimit" {
                let Some(limit) = self.upper_limit(at, name, &settings, (curve, place)) else { continue };
                curve = limit;
            }
            settings.set(word, Value::Curve(curve));
            places.push((word, place));
        }
        if settings.curve("realtime").is_none() && settings.curve("linkshare").is_none() {
            let message =
                format!("`{}` has no real-time and no link-sharing curve: it would send nothing", self.slice(name));
            self.error("missing-word", name, message, Some("as `pshare 10`, or `grate 1M`".to_owned()));
            return None;
        }
        let interface = &self.interfaces[at];
        let is_root = parent == 0;
        for (which, word) in CURVES.into_iter().enumerate().take(2) {
            let Some(own) = settings.curve(word) else { continue };
            // docs/reference/altq.md 3.1: the curves of siblings stay under the parent's, and the
            // real-time curves under 80 % of the interface.
            let most = if which == 0 { interface.rate / 100 * REALTIME } else { interface.rate };
            let above = match is_root {
                true => Some(ServiceCurve::linear(Rate::bit_s(most))),
                false => interface.classes[parent].settings.curve(word),
            };
            let siblings = interface.classes.iter().filter(|class| class.parent == Some(parent));
            let mut curves: Vec<ServiceCurve> = siblings.filter_map(|class| class.settings.curve(word)).collect();
            curves.push(own);
            let fits = above.is_some_and(|above| excess(&curves, &above).is_none());
            if fits {
                continue;
            }
            let above_class = &interface.classes[parent];
            let (text, kind) = (self.slice(name), NAMES[which]);
            let message = match (above, is_root) {
                (None, _) => format!("`{text}` has a {kind} curve, and its parent `{}` has none", above_class.name),
                (Some(above), true) => format!(
                    "with `{text}`, the {kind} curves below the root are not under {}{}",
                    above.then,
                    if which == 0 { ", 80 % of the interface" } else { "" }
                ),
                (Some(_), false) => {
                    format!(
                        "with `{text}`, the {kind} curves below `{0}` are not under that of `{0}`",
                        above_class.name
                    )
                }
            };
            let place = places.iter().find(|(known, _)| *known == word).map_or(name, |(_, place)| *place);
            let label = above_class.span;
            let error = Diagnostic::error("over-parent", place, message).label(label, "its parent");
            let help = match above {
                Some(_) => "altqd refuses this class; give it less, or the others",
                None => "altqd refuses this class; give the parent such a curve",
            };
            self.findings.push(error.help(help));
            return None;
        }
        Some((settings, places))
    }
}
