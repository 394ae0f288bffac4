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
//! - `tswtcm`, a time sliding window three color marker (RFC 2859): it measures the rate over a
//!   time, and makes as many packets yellow or red, at random, as are beyond CIR and PIR.
//! - `tspec`, the policing of a reservation (RFC 2211 7; RFC 2215 3.6): a token bucket that counts
//!   a packet smaller than the minimum policed unit as one of that size. A packet larger than the
//!   largest is red. The class of a reservation has it ([`tspec`]); policies do not write it.
//! - `all`: every packet is green.
//!
//! In *colour-aware* mode a packet arrives with a colour, the drop precedence of its AF codepoint
//! (RFC 2597 6: AFx1 green, AFx2 yellow, AFx3 red; green without such a codepoint), and never gets
//! a better one. Bytes are the packet's own, from the IP header on, as in the RFCs. Tokens are
//! whole bytes, and come at multiples of a byte's time from time 0 on. This is the RFCs'
//! "incremented by one CIR times per second" to the letter, so the meters can be checked against
//! the RFCs byte by byte.
//!
//! Instead of an action a colour may have another meter, which sees the packets of that colour,
//! with that colour; behind `bucket` and `all` with the one that they came with. A chain of them
//! has at most [`DEEPEST`] meters.
//!
//! A meter's words are in the settings of its class, each with `meter` before it (`spec.rs`). No
//! scheduler reads them.

mod spec;

pub use spec::{Action, COLOURS, DEEPEST, KINDS, MeterSpec, Path, Profile, WORDS, setting, tspec};

use super::sliding_window::SlidingWindow;
use crate::packet::Packet;
use crate::random;
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

/// Tokens of whole bytes that come at a rate: byte n comes n byte times after time 0.
#[derive(Clone, Copy, Debug)]
struct Source {
    rate: u64,
    last: Nanos,
    /// What has come of the next byte until `last`: bits times [`SECOND`], less than [`PER_BYTE`].
    part: u64,
}

/// A byte, in bits times [`SECOND`].
const PER_BYTE: u64 = 8 * SECOND;

impl Source {
    fn new(rate: Rate, now: Nanos) -> Source {
        let rate = rate.as_bit_s();
        // The remainder of a division by 64 bits has 64 bits.
        let part = (u128::from(rate) * u128::from(now) % u128::from(PER_BYTE)) as u64;
        Source { rate, last: now, part }
    }

    /// The bytes that have come since the last call.
    #[inline]
    fn take(&mut self, now: Nanos) -> u64 {
        let passed = now.saturating_sub(self.last);
        self.last += passed;
        let come = u128::from(self.rate) * u128::from(passed) + u128::from(self.part);
        // A constant divides 64 bits by a multiplication.
        match u64::try_from(come) {
            Ok(come) => {
                self.part = come % PER_BYTE;
                come / PER_BYTE
            }
            Err(_) => self.take_many(come),
        }
    }

    #[cold]
    fn take_many(&mut self, come: u128) -> u64 {
        self.part = (come % u128::from(PER_BYTE)) as u64;
        u64::try_from(come / u128::from(PER_BYTE)).unwrap_or(u64::MAX)
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
    /// The meters of the packets of a colour.
    next: [Option<Box<Meter>>; 3],
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
            Profile::All => (Rate::ZERO, Rate::ZERO, [0; 2]),
        };
        let window = match spec.profile {
            Profile::Window { cir, pir, window } => Some(SlidingWindow::new(cir, pir, window, now)),
            _ => None,
        };
        let (committed, peak) = (Source::new(cir, now), Source::new(pir, now));
        let next = spec.next.clone().map(|next| next.map(|spec| Box::new(Meter::new(*spec, now))));
        Meter { spec, tokens, committed, peak, window, counts: [(0, 0); 3], next }
    }

    /// Its random numbers start anew from this seed.
    pub fn seed(&mut self, seed: u64) {
        if let Some(window) = &mut self.window {
            window.seed(seed);
        }
        for (at, next) in self.next.iter_mut().enumerate() {
            if let Some(next) = next {
                next.seed(random::mix(seed.wrapping_add(at as u64 + 1)));
            }
        }
    }

    /// Calls `counter` with everything that it and the meters inside it count, by name: `green`,
    /// `green_bytes`, …; and `red_green`, … for a meter of the red packets.
    pub fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        self.report(Path::ROOT, counter);
    }

    fn report(&self, path: Path, counter: &mut dyn FnMut(&'static str, u64)) {
        for (at, (count, next)) in self.counts.iter().zip(&self.next).enumerate() {
            if let Some([packets, bytes]) = path.counters(at) {
                counter(packets, count.0);
                counter(bytes, count.1);
            }
            if let Some(next) = next {
                next.report(path.below(at), counter);
            }
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
        self.step(now, packet, None)
    }

    /// [`apply`](Meter::apply) to a packet that comes with this colour; `None` stands for that of
    /// its codepoint, which few meters look at.
    fn step(&mut self, now: Nanos, packet: &mut Packet, own: Option<Colour>) -> Outcome {
        let came = if self.spec.aware { own.unwrap_or_else(|| precedence(packet.dscp)) } else { Colour::Green };
        let colour = match self.spec.profile {
            // The usual ones first; the others are kept out of their way.
            Profile::Bucket { cbs, .. } => self.within(now, u64::from(packet.len), cbs),
            Profile::SingleRate { .. } | Profile::TwoRate { .. } => self.colour(now, u64::from(packet.len), came),
            _ => self.other_colour(now, packet),
        };
        let (packets, bytes) = &mut self.counts[colour as usize];
        *packets += 1;
        *bytes += u64::from(packet.len);
        match self.spec.actions[colour as usize] {
            Action::Pass => Outcome::Pass,
            Action::Dscp(dscp) => {
                packet.dscp = dscp;
                Outcome::Pass
            }
            Action::Drop => Outcome::Drop,
            Action::Default => Outcome::Default,
            Action::Meter => self.go_on(now, packet, own, colour),
        }
    }

    /// Gives a packet that came with the colour `own`, and has the colour `found`, to the meter of
    /// that colour's packets. A call of its own: in one loop with [`step`](Meter::step) a packet of
    /// a single meter would pay for the chain.
    #[inline(never)]
    fn go_on(&mut self, now: Nanos, packet: &mut Packet, own: Option<Colour>, found: Colour) -> Outcome {
        let Some(next) = &mut self.next[found as usize] else { return Outcome::Pass };
        // A bucket says nothing about colours.
        let keeps = matches!(self.spec.profile, Profile::Bucket { .. } | Profile::All);
        next.step(now, packet, if keeps { own } else { Some(found) })
    }

    /// The colour of a packet of `len` bytes by one bucket of `depth` bytes.
    #[inline]
    fn within(&mut self, now: Nanos, len: u64, depth: u64) -> Colour {
        let [c, _] = &mut self.tokens;
        *c = c.saturating_add(self.committed.take(now)).min(depth);
        if *c < len {
            return Colour::Red;
        }
        *c -= len;
        Colour::Green
    }

    /// The colour of a packet by a meter for which neither [`within`](Meter::within) nor
    /// [`colour`](Meter::colour) is called directly.
    #[inline(never)]
    fn other_colour(&mut self, now: Nanos, packet: &Packet) -> Colour {
        match self.spec.profile {
            Profile::Tspec { bytes, least, largest, .. } => {
                // A super-packet is what its segments are.
                let (len, segments) = (u64::from(packet.len), u64::from(packet.segments.max(1)));
                let fits = len.div_ceil(segments) <= largest;
                if fits { self.within(now, len.max(segments.saturating_mul(least)), bytes) } else { Colour::Red }
            }
            _ => {
                let window = self.window.as_mut();
                window.map_or(Colour::Green, |window| window.colour(now, u64::from(packet.len)))
            }
        }
    }

    /// The colour of a packet of `len` bytes that arrived with the colour `came`, green in
    /// colour-blind mode, by two buckets.
    #[inline]
    fn colour(&mut self, now: Nanos, len: u64, came: Colour) -> Colour {
        let [c, e] = &mut self.tokens;
        match self.spec.profile {
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
            _ => Colour::Green,
        }
    }
}

/// The colour of an AF codepoint (RFC 2597, section 6): the class, 1 to 4, in the first three bits,
/// the drop precedence in the next two.
#[inline(never)]
fn precedence(dscp: u8) -> Colour {
    match (dscp >> 3, dscp & 7) {
        (1..=4, 4) => Colour::Yellow,
        (1..=4, 6) => Colour::Red,
        _ => Colour::Green,
    }
}
