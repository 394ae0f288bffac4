//! The words of meters, and what they say.

use std::sync::OnceLock;

use crate::settings::{Kind, Settings, Value, Word};
use crate::spec::SpecError;
use crate::units::{Nanos, Rate, SECOND};

/// What is done with the packets of a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// The packet goes on as it is.
    #[default]
    Pass,
    /// The packet is dropped.
    Drop,
    /// The packet goes on with this DSCP.
    Dscp(u8),
    /// The packet goes to the link's default class; where there is none, on as it is.
    Default,
    /// Another meter sees the packet: the one in [`MeterSpec::next`].
    Meter,
}

/// The kinds of meters, as they are written.
pub const KINDS: &[&str] = &["bucket", "srtcm", "trtcm", "tswtcm", "all"];

/// The colours' words.
pub const COLOURS: [&str; 3] = ["green", "yellow", "red"];

/// The largest bucket in bytes: 1 GiB.
const MOST: u64 = 1 << 30;

const fn bytes(name: &'static str, help: &'static str) -> Word {
    Word { name, kind: Kind::Bytes { min: 1, max: MOST }, help, default: "must be written" }
}

/// The words in a meter's braces, without the colours.
pub const WORDS: &[Word] = &[
    Word { name: "cir", kind: Kind::Rate, help: "committed information rate", default: "must be written" },
    bytes("cbs", "committed burst size, bytes"),
    bytes("ebs", "excess burst size, bytes: of srtcm"),
    Word {
        name: "pir",
        kind: Kind::Rate,
        help: "peak information rate: of trtcm and tswtcm",
        default: "must be written",
    },
    bytes("pbs", "peak burst size, bytes: of trtcm"),
    Word {
        name: "window",
        kind: Kind::Time,
        help: "time over which tswtcm averages the rate, 1ms to 60s",
        default: "500ms",
    },
    Word {
        name: "colour-aware",
        kind: Kind::Flag,
        help: "no packet comes out better than its AF drop precedence says",
        default: "off: colour-blind",
    },
];

/// The most meters in a chain, the first one included: as many as the 16 actions of one of ALTQ's
/// conditioners hold.
pub const DEEPEST: usize = 7;

/// The words in a meter's braces and before them, of which `kind` stands for the word before them.
const PARTS: [&str; 13] =
    ["kind", "least", "largest", "cir", "cbs", "ebs", "pir", "pbs", "window", "colour-aware", "green", "yellow", "red"];

/// Where a meter stands: of which colour's packets of which meter it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Its number among all places.
    number: usize,
    depth: usize,
}

/// How many places there are: 1, 3, 9 and so on.
const PATHS: usize = (3_usize.pow(DEEPEST as u32) - 1) / 2;

/// The words of the settings, and the names of the counters, of a meter at each place.
struct Names {
    words: [&'static str; PARTS.len()],
    counters: [[&'static str; 2]; 3],
}

/// Each made once, for the first meter at its place, and kept: words of settings and names of
/// counters are static.
static NAMES: [OnceLock<Box<Names>>; PATHS] = [const { OnceLock::new() }; PATHS];

impl Names {
    /// Those of the place with this number.
    fn of(number: usize) -> Names {
        let keep = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
        let (words, counters) = prefixes(number);
        Names {
            words: PARTS.map(|part| {
                keep(if part == "kind" { format!("{words}meter") } else { format!("{words}meter {part}") })
            }),
            counters: COLOURS
                .map(|colour| [format!("{counters}{colour}"), format!("{counters}{colour}_bytes")].map(keep)),
        }
    }
}

/// What words and names of counters of a place begin with.
fn prefixes(number: usize) -> (String, String) {
    let Some(at) = number.checked_sub(1) else { return (String::new(), String::new()) };
    let ((words, counters), colour) = (prefixes(at / 3), COLOURS[at % 3]);
    (format!("{words}meter {colour} "), format!("{counters}{colour}_"))
}

impl Path {
    /// The place of a class's meter.
    pub const ROOT: Path = Path { number: 0, depth: 1 };

    /// The place of the meter of a colour's packets, by the number of the colour.
    #[must_use]
    pub fn below(self, colour: usize) -> Path {
        Path { number: 3 * self.number + colour + 1, depth: self.depth + 1 }
    }

    /// Whether a meter here is within [`DEEPEST`].
    pub fn exists(self) -> bool {
        self.depth <= DEEPEST
    }

    /// The word of a class's settings for a word in the braces of the meter here; `kind` stands for
    /// the word before the braces.
    pub fn setting(self, word: &str) -> Option<&'static str> {
        let at = PARTS.iter().position(|part| *part == word)?;
        self.names().map(|names| names.words[at])
    }

    /// The names of the counters of a colour's packets and bytes.
    pub(super) fn counters(self, colour: usize) -> Option<[&'static str; 2]> {
        self.names()?.counters.get(colour).copied()
    }

    /// The words and names of a place that exists.
    fn names(self) -> Option<&'static Names> {
        let names = NAMES.get(self.number)?;
        Some(names.get_or_init(|| Box::new(Names::of(self.number))))
    }
}

/// [`Path::setting`] of a class's own meter.
pub fn setting(word: &str) -> Option<&'static str> {
    Path::ROOT.setting(word)
}

/// Adds the meter of a reservation to the words of its class: a token bucket of `bytes` that is
/// filled at `rate`. Packets smaller than `least` count as `least` bytes. Packets that do not
/// conform, and those larger than `largest`, go to the link's default class.
pub fn tspec(class: &mut Settings, rate: Rate, bytes: u64, least: u32, largest: u32) {
    class
        .set("meter", Value::Choice("tspec"))
        .set("meter cir", Value::Rate(rate))
        .set("meter cbs", Value::Bytes(bytes))
        .set("meter least", Value::Bytes(u64::from(least)))
        .set("meter largest", Value::Bytes(u64::from(largest)))
        .set("meter red", Value::Choice("default"));
}

/// What a meter is made from: its words, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterSpec {
    /// How it measures.
    pub profile: Profile,
    /// Colour-aware mode.
    pub aware: bool,
    /// The actions for green, yellow and red.
    pub actions: [Action; 3],
    /// The meters of those colours whose action is [`Action::Meter`].
    pub next: [Option<Box<MeterSpec>>; 3],
}

/// How a meter measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// One token bucket.
    Bucket {
        /// The rate at which tokens come.
        cir: Rate,
        /// Its depth, bytes.
        cbs: u64,
    },
    /// RFC 2697 3.
    SingleRate {
        /// Committed information rate.
        cir: Rate,
        /// Committed burst size, bytes.
        cbs: u64,
        /// Excess burst size, bytes.
        ebs: u64,
    },
    /// RFC 2698 3.
    TwoRate {
        /// Committed information rate.
        cir: Rate,
        /// Committed burst size, bytes.
        cbs: u64,
        /// Peak information rate, at least the committed one.
        pir: Rate,
        /// Peak burst size, bytes.
        pbs: u64,
    },
    /// RFC 2859.
    Window {
        /// Committed information rate.
        cir: Rate,
        /// Peak information rate, at least the committed one.
        pir: Rate,
        /// The time over which the rate is averaged.
        window: Nanos,
    },
    /// All packets are green.
    All,
    /// RFC 2211 7.
    Tspec {
        /// The rate at which tokens come.
        rate: Rate,
        /// The bucket's depth, bytes.
        bytes: u64,
        /// The minimum policed unit, bytes.
        least: u64,
        /// The largest packet that conforms, bytes.
        largest: u64,
    },
}

impl MeterSpec {
    /// A bound on the rate of the packets that it lets through in the long run, in their own bytes;
    /// of `tswtcm` the rate that it lets through of a steady load. `None` if there is none, because
    /// red packets pass.
    pub fn most(&self) -> Option<Rate> {
        let [green, yellow, _] = self.actions.map(|action| action == Action::Drop);
        let [own, last] = match self.profile {
            // All are green, and none are red.
            Profile::All => [Rate::ZERO, self.most_of(0)?],
            _ if green && yellow => [Rate::ZERO, self.most_of(2)?],
            Profile::TwoRate { pir, .. } | Profile::Window { pir, .. } if !yellow => [pir, self.most_of(2)?],
            // Bucket E is filled with what bucket C has no room for, so CIR fills both together.
            Profile::Bucket { cir, .. }
            | Profile::SingleRate { cir, .. }
            | Profile::TwoRate { cir, .. }
            | Profile::Window { cir, .. } => [cir, self.most_of(2)?],
            Profile::Tspec { rate, .. } => [rate, self.most_of(2)?],
        };
        Some(Rate::bit_s(own.as_bit_s().saturating_add(last.as_bit_s())))
    }

    /// The bytes that it lets through at once for certain, in their own bytes, if it drops some
    /// packets ([`most`](MeterSpec::most)): what its smallest bucket holds. `None` if it drops none
    /// or has no bucket.
    pub fn at_once(&self) -> Option<u64> {
        self.most()?;
        let own = match self.profile {
            Profile::All | Profile::Window { .. } => None,
            Profile::Bucket { cbs, .. } | Profile::SingleRate { cbs, .. } => Some(cbs),
            Profile::TwoRate { cbs, pbs, .. } => Some(cbs.min(pbs)),
            Profile::Tspec { bytes, .. } => Some(bytes),
        };
        // Green packets may come to another meter.
        let inside = self.next[0].as_ref().and_then(|inside| inside.at_once());
        own.into_iter().chain(inside).min()
    }

    /// A bound on the rate of a colour's packets that are let through.
    fn most_of(&self, colour: usize) -> Option<Rate> {
        match self.actions[colour] {
            Action::Drop => Some(Rate::ZERO),
            Action::Meter => self.next[colour].as_ref()?.most(),
            _ => None,
        }
    }

    /// Reads the meter from a class's settings, if they have one.
    pub fn read(settings: &Settings) -> Result<Option<MeterSpec>, SpecError> {
        MeterSpec::read_at(settings, Path::ROOT)
    }

    /// Reads the meter at a place from a class's settings, if there is one, with those inside it.
    pub fn read_at(settings: &Settings, path: Path) -> Result<Option<MeterSpec>, SpecError> {
        let setting = |word: &str| path.setting(word);
        let Some(kind) = setting("kind").and_then(|word| settings.choice(word)) else { return Ok(None) };
        let missing = |word: &str, of: &str| {
            let error = SpecError::word("meter", format!("the meter `{kind}` needs `{word}`"));
            error.help(format!("as `{word} {of}`"))
        };
        let rate = |word: &str| {
            let rate = setting(word).and_then(|word| settings.rate(word)).ok_or_else(|| missing(word, "10Mbit/s"))?;
            if rate.is_zero() {
                Err(SpecError::word("meter", format!("`{word} 0bit/s` lets nothing pass")))
            } else {
                Ok(rate)
            }
        };
        let size =
            |word: &str| setting(word).and_then(|word| settings.bytes(word)).ok_or_else(|| missing(word, "15000bytes"));
        let peak = |cir: Rate| {
            let pir = rate("pir")?;
            // RFC 2698, section 2: "The PIR must be equal to or greater than the CIR."
            if pir < cir {
                let error = SpecError::word("meter", format!("the peak rate {pir} is below the committed rate {cir}"));
                return Err(error.help("`pir` is at least `cir`"));
            }
            Ok(pir)
        };
        let profile = match kind {
            "all" => Profile::All,
            "srtcm" => Profile::SingleRate { cir: rate("cir")?, cbs: size("cbs")?, ebs: size("ebs")? },
            "trtcm" => {
                let cir = rate("cir")?;
                Profile::TwoRate { cir, cbs: size("cbs")?, pir: peak(cir)?, pbs: size("pbs")? }
            }
            "tswtcm" => {
                let window = setting("window").and_then(|word| settings.time(word)).unwrap_or(SECOND / 2);
                if !(SECOND / 1000..=60 * SECOND).contains(&window) {
                    let error = SpecError::word("meter", "the `window` of `tswtcm` is from 1ms to 60s");
                    return Err(error.help("as `window 500ms`"));
                }
                let cir = rate("cir")?;
                Profile::Window { cir, pir: peak(cir)?, window }
            }
            "tspec" => {
                let (rate, bytes) = (rate("cir")?, size("cbs")?);
                Profile::Tspec { rate, bytes, least: size("least")?, largest: size("largest")? }
            }
            _ => Profile::Bucket { cir: rate("cir")?, cbs: size("cbs")? },
        };
        let used = |word: &str| match profile {
            Profile::Bucket { .. } | Profile::Tspec { .. } => {
                !matches!(word, "ebs" | "pir" | "pbs" | "window" | "yellow" | "colour-aware")
            }
            Profile::SingleRate { .. } => !matches!(word, "pir" | "pbs" | "window"),
            Profile::TwoRate { .. } => !matches!(word, "ebs" | "window"),
            Profile::Window { .. } => !matches!(word, "cbs" | "ebs" | "pbs" | "colour-aware"),
            Profile::All => false,
        };
        for word in ["cir", "cbs", "ebs", "pir", "pbs", "window", "yellow", "red", "colour-aware"] {
            if !used(word) && setting(word).is_some_and(|word| settings.get(word).is_some()) {
                let error = SpecError::word("meter", format!("the meter `{kind}` knows no `{word}`"));
                return Err(error.help(match profile {
                    Profile::Window { .. } => "leave it out: `tswtcm` (RFC 2859) has no buckets and sees no colours",
                    Profile::All => "leave it out: all packets are `green`",
                    _ => "leave it out, or use `srtcm` (RFC 2697) or `trtcm` (RFC 2698)",
                }));
            }
        }
        let mut actions = [Action::Pass; 3];
        let mut next = [const { None }; 3];
        for (at, (action, colour)) in actions.iter_mut().zip(COLOURS).enumerate() {
            *action = match setting(colour).and_then(|word| settings.get(word)) {
                Some(Value::Choice("drop")) => Action::Drop,
                Some(Value::Choice("default")) => Action::Default,
                Some(Value::Choice("meter")) => {
                    let below = path.below(at);
                    if !below.exists() {
                        let message = format!("a chain has at most {DEEPEST} meters");
                        return Err(SpecError::word("meter", message).help("put one into the class above"));
                    }
                    next[at] = MeterSpec::read_at(settings, below)?.map(Box::new);
                    Action::Meter
                }
                Some(Value::Int(dscp @ 0..=63)) => Action::Dscp(dscp as u8),
                Some(Value::Int(dscp)) => {
                    return Err(SpecError::word("meter", format!("{dscp} is no DSCP: they are 0 to 63")));
                }
                _ => Action::Pass,
            };
        }
        let aware = setting("colour-aware").is_some_and(|word| settings.flag(word));
        Ok(Some(MeterSpec { profile, aware, actions, next }))
    }
}
