//! The words of exact CBQ, and those that it refuses.

use crate::settings::Settings;
use crate::spec::SpecError;
use crate::units::Rate;

/// The burst, in packets, of a class without `maxburst` (docs/reference/cbq.md rule 10). With more
/// than two, shares would be off after each change of the set of busy classes, because a burst is
/// taken from the classes that did send.
const MAXBURST: u64 = 2;

/// Credit in bytes that idleness earns a class that states neither `maxburst` nor `packetsize`.
pub fn default_burst(mtu: u32) -> u32 {
    mtu.max(1).saturating_mul(MAXBURST as u32)
}

/// A class's words, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// Guarantee, weight and, without `borrow`, ceiling, in bit/s.
    pub rate: u64,
    /// May use what others leave.
    pub borrow: bool,
    /// The most that it may have with borrowing, in bit/s.
    pub ceiling: Option<u64>,
    /// 0 to 7, 7 first.
    pub priority: u8,
    /// Credit that idleness earns, in bytes.
    pub burst: u32,
}

impl Words {
    /// Reads a class's words.
    pub fn read(settings: &Settings, mtu: u32) -> Result<Words, SpecError> {
        for word in ["minburst", "maxdelay", "maxpacketsize", "control"] {
            if settings.get(word).is_some() {
                return Err(classic_only(word));
            }
        }
        let rate = settings.rate("rate").unwrap_or_default();
        let borrow = settings.flag("borrow");
        let ceiling = settings.rate("ceiling");
        if let Some(ceiling) = ceiling {
            if !borrow {
                return Err(SpecError::word("ceiling", "a ceiling limits borrowing, and the class does not borrow")
                    .help("write borrow as well, or leave the ceiling out: without borrow the rate is the ceiling"));
            }
            if ceiling < rate {
                return Err(SpecError::word("ceiling", format!("the ceiling {ceiling} is below the rate {rate}"))
                    .help("raise the ceiling, or lower the rate"));
            }
        }
        let packetsize = settings.bytes("packetsize").unwrap_or(u64::from(mtu)).max(1);
        let burst = settings.int("maxburst").unwrap_or(MAXBURST).max(1).saturating_mul(packetsize);
        Ok(Words {
            rate: rate.as_bit_s(),
            borrow,
            ceiling: ceiling.map(Rate::as_bit_s),
            priority: settings.int("priority").unwrap_or(1).min(7) as u8,
            // 65535 packets of 65535 bytes still fit.
            burst: burst.min(u64::from(u32::MAX)) as u32,
        })
    }
}

/// How bandwidth that classes leave is divided among those that borrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// All in proportion to their rates (docs/reference/cbq.md rule 4).
    Share,
    /// The lowest level first, and in it the highest priority (docs/reference/cbq.md rule 5).
    Priority,
}

/// Reads the scheduler's own words.
pub fn scheduler(settings: &Settings) -> Result<Excess, SpecError> {
    for word in ["rounds", "efficient"] {
        if settings.get(word).is_some() {
            return Err(classic_only(word));
        }
    }
    if settings.choice("link-sharing").is_some_and(|rule| rule != "formal") {
        return Err(SpecError::word(
            "link-sharing",
            "link-sharing other than formal works with the classic estimator only",
        )
        .help("write estimator classic, or leave link-sharing out"));
    }
    Ok(if settings.choice("excess") == Some("priority") { Excess::Priority } else { Excess::Share })
}

fn classic_only(word: &'static str) -> SpecError {
    SpecError::word(word, format!("{word} works with the classic estimator only"))
        .help(format!("write estimator classic, or leave {word} out"))
}
