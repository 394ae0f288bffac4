//! Meters. A meter gives each packet of a class one of three colours, by how the traffic keeps to a
//! profile, and passes, re-marks or drops the packets of each colour.
//!
//! - `bucket`: one token bucket. A packet is green if there are tokens for all its bytes, else red.
//! - `srtcm`, a single rate three color marker (RFC 2697 3). Tokens come at CIR, first into bucket
//!   C up to CBS, then into bucket E up to EBS. A packet is green if C has tokens for it, else
//!   yellow if E has, else red.
//! - `trtcm`, a two rate three color marker (RFC 2698 3). Bucket P fills at PIR up to PBS, bucket C
//!   at CIR up to CBS. A packet is red if P has no tokens for it, else yellow if C has none, else
//!   green.
//! - `tswtcm`, a time sliding window three color marker (RFC 2859): it measures the rate over a time,
//!   and makes as many packets yellow or red, at random, as are beyond CIR and PIR.
//! - `tspec`, the policing of a reservation (RFC 2211 7; RFC 2215 3.6): a token bucket that counts
//!   a packet smaller than the minimum policed unit as one of that size. A packet larger than the
//!   largest is red. The class of a reservation has it ([`tspec`]); policies do not write it.
//!
//! In *colour-aware* mode a packet arrives with a colour, the drop precedence of its AF codepoint
//! (RFC 2597 6: AFx1 green, AFx2 yellow, AFx3 red; green without such a codepoint), and never gets
//! a better one. Bytes are the packet's own, from the IP header on, as in the RFCs. Tokens are
//! whole bytes, and come at multiples of a byte's time from time 0 on. This is the RFCs'
//! "incremented by one CIR times per second" to the letter, so the meters can be checked against
//! the RFCs byte by byte.
//!
//! A meter's words are in the settings of its class, each with `meter` before it. No scheduler
//! reads them.

use super::sliding_window::SlidingWindow;
use crate::packet::Packet;
use crate::settings::{Kind, Settings, Value, Word};
use crate::spec::SpecError;
use crate::units::{Nanos, Rate, SECOND};

/// The colour of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Colour {
    /// Within the committed rate.
    Green,
    /// Beyond it, within the excess burst or the peak rate.
    Yellow,
    /// Beyond both.
    Red,
}

impl Colour {
    /// All, in the order of the counters.
    pub const ALL: [Colour; 3] = [Colour::Green, Colour::Yellow, Colour::Red];
}

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
}

/// What becomes of a packet that a meter has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It goes on.
    Pass,
    /// It is dropped.
    Drop,
    /// It goes to the link's default class.
    Default,
}

/// The kinds of meters, as they are written.
pub const KINDS: &[&str] = &["bucket", "srtcm", "trtcm", "tswtcm"];

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

/// The word of a class's settings for a word in the meter's braces; `kind` stands for the word
/// before the braces.
pub fn setting(word: &str) -> Option<&'static str> {
    const ALL: [(&str, &str); 13] = [
        ("kind", "meter"),
        ("least", "meter least"),
        ("largest", "meter largest"),
        ("cir", "meter cir"),
        ("cbs", "meter cbs"),
        ("ebs", "meter ebs"),
        ("pir", "meter pir"),
        ("pbs", "meter pbs"),
        ("window", "meter window"),
        ("colour-aware", "meter colour-aware"),
        ("green", "meter green"),
        ("yellow", "meter yellow"),
        ("red", "meter red"),
    ];
    ALL.iter().find(|(known, _)| *known == word).map(|(_, setting)| *setting)
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterSpec {
    /// How it measures.
    pub profile: Profile,
    /// Colour-aware mode.
    pub aware: bool,
    /// The actions for green, yellow and red.
    pub actions: [Action; 3],
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
    /// of `tswtcm` the rate that it lets through of a steady load.
    /// `None` if red packets pass: then there is none.
    pub fn most(&self) -> Option<Rate> {
        let [green, yellow, red] = self.actions.map(|action| action == Action::Drop);
        match self.profile {
            _ if !red => None,
            _ if green && yellow => Some(Rate::ZERO),
            Profile::TwoRate { pir, .. } | Profile::Window { pir, .. } if !yellow => Some(pir),
            // Bucket E is filled with what bucket C has no room for, so CIR fills both together.
            Profile::Bucket { cir, .. }
            | Profile::SingleRate { cir, .. }
            | Profile::TwoRate { cir, .. }
            | Profile::Window { cir, .. } => Some(cir),
            Profile::Tspec { rate, .. } => Some(rate),
        }
    }

    /// Reads the meter from a class's settings, if they have one.
    pub fn read(settings: &Settings) -> Result<Option<MeterSpec>, SpecError> {
        let Some(kind) = settings.choice("meter") else { return Ok(None) };
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
        let cir = rate("cir")?;
        let peak = || {
            let pir = rate("pir")?;
            // RFC 2698, section 2: "The PIR must be equal to or greater than the CIR."
            if pir < cir {
                let error = SpecError::word("meter", format!("the peak rate {pir} is below the committed rate {cir}"));
                return Err(error.help("`pir` is at least `cir`"));
            }
            Ok(pir)
        };
        let profile = match kind {
            "srtcm" => Profile::SingleRate { cir, cbs: size("cbs")?, ebs: size("ebs")? },
            "trtcm" => Profile::TwoRate { cir, cbs: size("cbs")?, pir: peak()?, pbs: size("pbs")? },
            "tswtcm" => {
                let window = settings.time("meter window").unwrap_or(SECOND / 2);
                if !(SECOND / 1000..=60 * SECOND).contains(&window) {
                    let error = SpecError::word("meter", "the `window` of `tswtcm` is from 1ms to 60s");
                    return Err(error.help("as `window 500ms`"));
                }
                Profile::Window { cir, pir: peak()?, window }
            }
            "tspec" => {
                Profile::Tspec { rate: cir, bytes: size("cbs")?, least: size("least")?, largest: size("largest")? }
            }
            _ => Profile::Bucket { cir, cbs: size("cbs")? },
        };
        let used = |word: &str| match profile {
            Profile::Bucket { .. } | Profile::Tspec { .. } => {
                !matches!(word, "ebs" | "pir" | "pbs" | "window" | "yellow" | "colour-aware")
            }
            Profile::SingleRate { .. } => !matches!(word, "pir" | "pbs" | "window"),
            Profile::TwoRate { .. } => !matches!(word, "ebs" | "window"),
            Profile::Window { .. } => !matches!(word, "cbs" | "ebs" | "pbs" | "colour-aware"),
        };
        for word in ["cbs", "ebs", "pir", "pbs", "window", "yellow", "colour-aware"] {
            if !used(word) && setting(word).is_some_and(|word| settings.get(word).is_some()) {
                let error = SpecError::word("meter", format!("the meter `{kind}` knows no `{word}`"));
                return Err(error.help(match profile {
                    Profile::Window { .. } => "leave it out: `tswtcm` (RFC 2859) has no buckets and sees no colours",
                    _ => "leave it out, or use `srtcm` (RFC 2697) or `trtcm` (RFC 2698)",
                }));
            }
        }
        let mut actions = [Action::Pass; 3];
        for (action, colour) in actions.iter_mut().zip(COLOURS) {
            *action = match setting(colour).and_then(|word| settings.get(word)) {
                Some(Value::Choice("drop")) => Action::Drop,
                Some(Value::Choice("default")) => Action::Default,
                Some(Value::Int(dscp @ 0..=63)) => Action::Dscp(dscp as u8),
                Some(Value::Int(dscp)) => {
                    return Err(SpecError::word("meter", format!("{dscp} is no DSCP: they are 0 to 63")));
                }
                _ => Action::Pass,
            };
        }
        let aware = settings.flag("meter colour-aware");
        Ok(Some(MeterSpec { profile, aware, actions }))
    }
}

/// Tokens of whole bytes that come at a rate.
#[derive(Clone, Copy, Debug)]
struct Source {
    rate: u128,
    /// The bytes that have come since time 0.
    come: u64,
}

impl Source {
    fn new(rate: Rate, now: Nanos) -> Source {
        let mut source = Source { rate: u128::from(rate.as_bit_s()), come: 0 };
        source.come = source.until(now);
        source
    }

    /// The bytes that have come by `now`: byte n comes n byte times after time 0.
    fn until(&self, now: Nanos) -> u64 {
        u64::try_from(self.rate * u128::from(now) / (8 * u128::from(SECOND))).unwrap_or(u64::MAX)
    }

    /// The bytes that have come since the last call.
    fn take(&mut self, now: Nanos) -> u64 {
        let until = self.until(now).max(self.come);
        until - std::mem::replace(&mut self.come, until)
    }
}

/// A meter.
#[derive(Clone, Debug)]
pub struct Meter {
    spec: MeterSpec,
    /// Tokens in bytes: of bucket C, and of bucket E or P.
    tokens: [u64; 2],
    committed: Source,
    peak: Source,
    /// Of `tswtcm`.
    window: Option<SlidingWindow>,
    /// Packets and bytes by colour.
    counts: [(u64, u64); 3],
}

impl Meter {
    /// A meter with full buckets.
    pub fn new(spec: MeterSpec, now: Nanos) -> Meter {
        let (cir, pir, tokens) = match spec.profile {
            Profile::Bucket { cir, cbs } => (cir, cir, [cbs, 0]),
            Profile::SingleRate { cir, cbs, ebs } => (cir, cir, [cbs, ebs]),
            Profile::TwoRate { cir, cbs, pir, pbs } => (cir, pir, [cbs, pbs]),
            Profile::Tspec { rate, bytes, .. } => (rate, rate, [bytes, 0]),
            Profile::Window { cir, pir, .. } => (cir, pir, [0; 2]),
        };
        let window = match spec.profile {
            Profile::Window { cir, pir, window } => Some(SlidingWindow::new(cir, pir, window, now)),
            _ => None,
        };
        let (committed, peak) = (Source::new(cir, now), Source::new(pir, now));
        Meter { spec, tokens, committed, peak, window, counts: [(0, 0); 3] }
    }

    /// Its random numbers start anew from this seed.
    pub fn seed(&mut self, seed: u64) {
        if let Some(window) = &mut self.window {
            window.seed(seed);
        }
    }

    /// The words that it was made from.
    pub fn spec(&self) -> &MeterSpec {
        &self.spec
    }

    /// Packets and their own bytes by colour, in the order of [`Colour::ALL`].
    pub fn counts(&self) -> &[(u64, u64); 3] {
        &self.counts
    }

    /// Finds a packet's colour, counts the packet, carries out the colour's action on it, and says
    /// what becomes of it.
    pub fn apply(&mut self, now: Nanos, packet: &mut Packet) -> Outcome {
        let came = if self.spec.aware { precedence(packet.dscp) } else { Colour::Green };
        let colour = match self.spec.profile {
            Profile::Tspec { least, largest, .. } => {
                // A super-packet is what its segments are.
                let (len, segments) = (u64::from(packet.len), u64::from(packet.segments.max(1)));
                let fits = len.div_ceil(segments) <= largest;
                if fits { self.colour(now, len.max(segments.saturating_mul(least)), came) } else { Colour::Red }
            }
            _ => self.colour(now, u64::from(packet.len), came),
        };
        let (packets, bytes) = &mut self.counts[colour as usize];
        *packets += 1;
        *bytes += u64::from(packet.len);
        match self.spec.actions[colour as usize] {
            Action::Pass => {}
            Action::Dscp(dscp) => packet.dscp = dscp,
            Action::Drop => return Outcome::Drop,
            Action::Default => return Outcome::Default,
        }
        Outcome::Pass
    }

    /// The colour of a packet of `len` bytes that arrived with the colour `came`; green in
    /// colour-blind mode.
    fn colour(&mut self, now: Nanos, len: u64, came: Colour) -> Colour {
        let [c, e] = &mut self.tokens;
        match self.spec.profile {
            Profile::Window { .. } => self.window.as_mut().map_or(Colour::Green, |window| window.colour(now, len)),
            Profile::Bucket { cbs, .. } | Profile::Tspec { bytes: cbs, .. } => {
                *c = c.saturating_add(self.committed.take(now)).min(cbs);
                if *c >= len {
                    *c -= len;
                    return Colour::Green;
                }
                Colour::Red
            }
            // RFC 2697, section 3.
            Profile::SingleRate { cbs, ebs, .. } => {
                let come = self.committed.take(now);
                let into = come.min(cbs - *c);
                *c += into;
                *e = e.saturating_add(come - into).min(ebs);
                if came == Colour::Green && *c >= len {
                    *c -= len;
                    return Colour::Green;
                }
                if came <= Colour::Yellow && *e >= len {
                    *e -= len;
                    return Colour::Yellow;
                }
                Colour::Red
            }
            // RFC 2698, section 3. `e` is the bucket P.
            Profile::TwoRate { cbs, pbs, .. } => {
                *c = c.saturating_add(self.committed.take(now)).min(cbs);
                *e = e.saturating_add(self.peak.take(now)).min(pbs);
                if came == Colour::Red || *e < len {
                    return Colour::Red;
                }
                *e -= len;
                if came == Colour::Yellow || *c < len {
                    return Colour::Yellow;
                }
                *c -= len;
                Colour::Green
            }
        }
    }
}

/// The colour of an AF codepoint (RFC 2597, section 6): the class, 1 to 4, in the first three bits,
/// the drop precedence in the next two.
fn precedence(dscp: u8) -> Colour {
    match (dscp >> 3, dscp & 7) {
        (1..=4, 4) => Colour::Yellow,
        (1..=4, 6) => Colour::Red,
        _ => Colour::Green,
    }
}
