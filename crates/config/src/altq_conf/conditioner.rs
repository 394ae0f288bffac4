//! Executes `conditioner IF NAME <ACTION>`: meters of the packets that arrive on an interface
//! (docs/reference/altq.md 8.2).
//!
//! A conditioner becomes a class with a meter, of a link for what arrives (`device IF ingress`)
//! that holds nothing back. Filters send packets to it; what no filter names passes.

use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::shape::meter::{COLOURS, DEEPEST, MeterSpec, Path};
use altq_engine::spec::QueueSpec;
use altq_engine::units::Rate;

use super::file::{Discipline, Draft, File, Words};
use super::words;
use crate::diagnostic::{Diagnostic, Span};
use crate::suggest::did_you_mean;

/// What an action may be.
const ACTIONS: &[&str] = &["pass", "drop", "mark", "conditioner", "tbmeter", "trtcm", "tswtcm"];
/// The most actions of a conditioner; KAME's parser wrote beyond its array with more.
const MOST_ACTIONS: usize = 16;
/// The largest bucket, as in the native language.
const MOST_BYTES: u64 = 1 << 30;
/// The packets that a conditioner holds before they pass.
pub const LIMIT: u32 = 1000;
/// The rate of a link that has conditioners only: it holds nothing back.
pub const UNSHAPED: u64 = 1_000_000_000_000;
/// The DSCPs of the colours of a `trtcm` whose actions are no marks: AF11, AF12 and AF13.
const AF1: [u64; 3] = [10, 12, 14];

/// A word, or a bracket.
type Token<'t> = (&'t str, Span);

/// What an action says.
enum Action {
    Pass,
    Drop,
    /// A DSCP.
    Mark(u64),
    /// The words of a meter at a path.
    Meter(Settings),
    /// The class of another conditioner.
    Other(usize),
}

/// The tokens of a conditioner that are not read yet.
struct Tokens<'t> {
    list: Vec<Token<'t>>,
    at: usize,
    /// For errors about what is missing.
    end: Span,
    /// Actions read.
    actions: usize,
}

impl<'t> Tokens<'t> {
    fn peek(&self) -> Option<Token<'t>> {
        self.list.get(self.at).copied()
    }

    fn next(&mut self) -> Option<Token<'t>> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }
}

impl<'a> File<'a> {
    pub(super) fn conditioner(&mut self, words: &mut Words<'_>, command: Span) {
        let Some(at) = self.interface_of(words, command) else { return };
        // Without a discipline the line of the interface had an error.
        if self.interfaces[at].discipline.is_none() {
            return;
        }
        let Some(name) = words.next() else {
            return self.error("missing-value", words.end, "a conditioner needs a name", None);
        };
        // A discipline is for what the interface sends, conditioners are for what arrives.
        let at = self.input_of(at);
        if !self.new_name(at, name, Discipline::Null) {
            return;
        }
        let mut tokens = self.tokens(words);
        let Some(action) = self.bracketed(at, &mut tokens, Path::ROOT) else { return };
        if let Some((text, span)) = tokens.next() {
            return self.error("unknown-word", span, format!("a conditioner ends with its `>`: `{text}`"), None);
        }
        let settings = match action {
            Action::Other(class) => {
                // Another name of the same conditioner.
                let name = self.slice(name).to_owned();
                self.interfaces[at].names.insert(name, class);
                return;
            }
            Action::Pass => Settings::new(),
            Action::Drop => all(Value::Choice("drop")),
            Action::Mark(dscp) => all(Value::Int(dscp)),
            Action::Meter(settings) => settings,
        };
        if let Err(error) = MeterSpec::read(&settings) {
            return self.error("bad-meter", name, error.message, error.help);
        }
        self.push_class(
            at,
            Draft {
                name: self.slice(name).to_owned(),
                span: name,
                parent: Some(0),
                bandwidth: 0,
                allocated: 0,
                settings,
                queue: Some(QueueSpec::plain(Limit::Packets(LIMIT))),
                words: vec![("meter", name)],
                queue_words: Vec::new(),
                made: false,
            },
        );
    }

    /// The words that are left, taken apart at brackets.
    fn tokens(&self, words: &mut Words<'_>) -> Tokens<'a> {
        let mut list = Vec::new();
        while let Some(span) = words.next() {
            // A `\` before a line's end is a word of its own in ALTQ, and harmless here.
            if self.slice(span) == "\\" {
                continue;
            }
            let mut start = span.start;
            while start < span.end {
                let rest = self.slice(Span { start, ..span });
                let length = match rest.find(['<', '>']) {
                    Some(0) => 1,
                    Some(length) => length,
                    None => rest.len(),
                };
                let place = Span { start, end: start + length, ..span };
                list.push((self.slice(place), place));
                start += length;
            }
        }
        Tokens { list, at: 0, end: words.end, actions: 0 }
    }

    /// Reads `<ACTION>`. `None` after an error.
    fn bracketed(&mut self, at: usize, tokens: &mut Tokens<'a>, path: Path) -> Option<Action> {
        self.angle(tokens, "<")?;
        let action = self.action(at, tokens, path)?;
        self.angle(tokens, ">")?;
        Some(action)
    }

    fn angle(&mut self, tokens: &mut Tokens<'a>, which: &str) -> Option<()> {
        match tokens.next() {
            Some((text, _)) if text == which => Some(()),
            found => {
                let (text, span) = found.unwrap_or(("", tokens.end));
                let message = match text {
                    "" => format!("the conditioner ends before `{which}`"),
                    _ => format!("`{which}` is missing before `{text}`"),
                };
                let help = "as `conditioner em0 gold <tbmeter 6M 64K <mark 0xb8><drop>>`";
                self.error("missing-value", span, message, Some(help.to_owned()));
                None
            }
        }
    }

    /// Reads an action. A meter's words are those of the meter at `path`.
    fn action(&mut self, at: usize, tokens: &mut Tokens<'a>, path: Path) -> Option<Action> {
        let Some((word, span)) = tokens.next() else {
            self.error("missing-value", tokens.end, "the conditioner ends before an action", None);
            return None;
        };
        tokens.actions += 1;
        if tokens.actions > MOST_ACTIONS {
            let message = format!("a conditioner has at most {MOST_ACTIONS} actions, as in ALTQ");
            self.error("out-of-range", span, message, None);
            return None;
        }
        match word {
            "pass" => Some(Action::Pass),
            "drop" => Some(Action::Drop),
            "mark" => {
                let (value, place) = self.number(tokens, span, "a TOS octet, as 0xb8", words::integer)?;
                if value > 0xff || value & 3 != 0 {
                    let message = "the lowest two bits of the octet are ECN's (RFC 3168), and ALTQ wrote them";
                    let help = Some(format!("write `mark {:#04x}`", value & 0xfc));
                    self.error("out-of-range", place, message, help);
                    return None;
                }
                Some(Action::Mark(value >> 2))
            }
            "conditioner" => {
                let Some((name, place)) = tokens.next() else {
                    self.error("missing-value", span, "`conditioner` needs a name", None);
                    return None;
                };
                let class = self.interfaces[at].names.get(name).copied().filter(|class| *class > 0);
                if class.is_none() {
                    let names: Vec<String> = self.interfaces[at].names.keys().cloned().collect();
                    let help = did_you_mean(name, names.iter().map(String::as_str))
                        .or_else(|| Some("a conditioner is defined before others name it".to_owned()));
                    self.error("unknown-class", place, format!("there is no conditioner `{name}`"), help);
                }
                if path != Path::ROOT {
                    // Without buckets there is nothing that would be there twice.
                    if let Some(action) = class.and_then(|class| self.without_buckets(at, class)) {
                        return Some(action);
                    }
                    let message = "a conditioner inside another one would have its buckets twice";
                    let help = Some(format!("write the actions of `{name}` in its place"));
                    self.error("not-built", place, message, help);
                    return None;
                }
                class.map(Action::Other)
            }
            "tbmeter" | "trtcm" | "tswtcm" => self.meter(at, tokens, span, path).map(Action::Meter),
            _ => {
                let help = did_you_mean(word, ACTIONS.iter().copied());
                self.error("unknown-word", span, format!("a conditioner has no action `{word}`"), help);
                None
            }
        }
    }

    /// What a conditioner does with every packet, if it has no meter.
    fn without_buckets(&self, at: usize, class: usize) -> Option<Action> {
        let settings = &self.interfaces[at].classes.get(class)?.settings;
        match (settings.choice("meter"), settings.get("meter green")) {
            (None, _) => Some(Action::Pass),
            (Some("all"), Some(Value::Choice("drop"))) => Some(Action::Drop),
            (Some("all"), Some(Value::Int(dscp))) => Some(Action::Mark(dscp)),
            _ => None,
        }
    }

    fn number(
        &mut self,
        tokens: &mut Tokens<'a>,
        of: Span,
        what: &str,
        read: impl Fn(&str) -> Option<u64>,
    ) -> Option<(u64, Span)> {
        let name = self.slice(of);
        let Some((word, span)) = tokens.next().filter(|(word, _)| !matches!(*word, "<" | ">")) else {
            self.error("missing-value", of, format!("`{name}` needs {what}"), None);
            return None;
        };
        let value = read(word);
        if value.is_none() {
            self.error("bad-value", span, format!("`{name}` needs {what}, not `{word}`"), None);
        }
        Some((value?, span))
    }

    /// Reads a meter, whose name has been read, with its actions.
    fn meter(&mut self, at: usize, tokens: &mut Tokens<'a>, of: Span, path: Path) -> Option<Settings> {
        if !path.exists() {
            let message = format!("a chain has at most {DEEPEST} meters");
            self.error("not-built", of, message, None);
            return None;
        }
        let (kind, numbers, colours): (_, &[(&str, &str)], &[usize]) = match self.slice(of) {
            "tbmeter" => ("bucket", &[("cir", "a rate"), ("cbs", "a number of bytes")], &[0, 2]),
            "trtcm" => (
                "trtcm",
                &[("cir", "a rate"), ("cbs", "a number of bytes"), ("pir", "a rate"), ("pbs", "a number of bytes")],
                &[0, 1, 2],
            ),
            _ => ("tswtcm", &[("cir", "a rate"), ("pir", "a rate"), ("window", "milliseconds")], &[0, 1, 2]),
        };
        let mut settings = Settings::new();
        settings.set(path.setting("kind")?, Value::Choice(kind));
        for (word, what) in numbers {
            let read = match *word {
                "cir" | "pir" => words::rate,
                "window" => words::integer,
                _ => words::bytes,
            };
            let (value, place) = self.number(tokens, of, what, read)?;
            if matches!(*word, "cbs" | "pbs") && !(1..=MOST_BYTES).contains(&value) {
                self.error("out-of-range", place, format!("a bucket holds 1 to {MOST_BYTES} bytes"), None);
                return None;
            }
            let value = match *word {
                "cir" | "pir" => Value::Rate(Rate::bit_s(value)),
                "window" => Value::Time(value.saturating_mul(1_000_000)),
                _ => Value::Bytes(value),
            };
            settings.set(path.setting(word)?, value);
        }
        let mut marks = AF1;
        for colour in colours {
            let value = match self.bracketed(at, tokens, path.below(*colour))? {
                Action::Pass => continue,
                Action::Drop => Value::Choice("drop"),
                Action::Mark(dscp) => {
                    marks[*colour] = dscp;
                    Value::Int(dscp)
                }
                Action::Meter(inner) => {
                    inner.iter().for_each(|(word, value)| _ = settings.set(word, value));
                    Value::Choice("meter")
                }
                // Refused inside a meter.
                Action::Other(_) => return None,
            };
            settings.set(path.setting(COLOURS[*colour])?, value);
        }
        match tokens.peek().filter(|_| kind == "trtcm") {
            Some(("colorblind", _)) => _ = tokens.next(),
            Some(("coloraware", span)) => {
                tokens.next();
                self.aware(span, marks)?;
                settings.set(path.setting("colour-aware")?, Value::Flag);
            }
            _ => {}
        }
        // KAME checked a tswtcm's rates only.
        if let Err(error) = MeterSpec::read_at(&settings, path) {
            self.error("bad-meter", of, error.message, error.help);
            return None;
        }
        Some(settings)
    }

    /// Checks that the marks of a colour-aware meter are those by which colours are known here:
    /// AFx1 for green, AFx2 for yellow, AFx3 for red.
    fn aware(&mut self, span: Span, marks: [u64; 3]) -> Option<()> {
        let class = marks[1] >> 3;
        if (1..=4).contains(&class) && marks[1] == class * 8 + 4 && marks[2] == class * 8 + 6 {
            let message = format!(
                "colours are known by the drop precedence of any AF codepoint here; ALTQ knew those of AF{class} only"
            );
            self.findings.push(Diagnostic::warning("colours", span, message));
            return Some(());
        }
        let message = "a packet's colour before the meter is the drop precedence of its AF codepoint (RFC 2597)";
        let help = "mark yellow and red packets with AFx2 and AFx3 of one class, as 0x30 and 0x38";
        self.error("not-built", span, message, Some(help.to_owned()));
        None
    }
}

/// A meter that does this with all packets.
fn all(action: Value) -> Settings {
    Settings::new().with("meter", Value::Choice("all")).with("meter green", action)
}
