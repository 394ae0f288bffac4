//! The words of sfq, checked.

use super::super::Context;
use super::super::flows::MOST;
use super::super::red::{Ewma, Thresholds};
use crate::settings::{ONE, Settings};
use crate::spec::SpecError;
use crate::units::{Nanos, SECOND};

/// What packets of one flow have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Flow,
    Source,
    Destination,
}

/// The parameters of the RED that every flow has.
#[derive(Clone, Copy)]
pub(super) struct Red {
    /// The most bytes of a flow.
    pub limit: u32,
    pub ewma: Ewma,
    pub thresholds: Thresholds,
    pub ecn: bool,
    pub harddrop: bool,
}

pub(super) struct Words {
    pub by: By,
    pub divisor: u32,
    pub flows: u32,
    pub depth: u32,
    pub quantum: i32,
    pub perturb: Option<Nanos>,
    pub headdrop: bool,
    /// A new flow is served next, not behind the others.
    pub front: bool,
    pub red: Option<Red>,
}

/// Words that need `redflowlimit`.
const OF_RED: [&str; 8] = ["min", "max", "probability", "ewma", "avpkt", "burst", "ecn", "harddrop"];

impl Words {
    pub fn read(context: &Context, settings: &Settings) -> Result<Words, SpecError> {
        let by = match settings.choice("hash") {
            Some("src") => By::Source,
            Some("dst") => By::Destination,
            _ => By::Flow,
        };
        let perturb = settings.time("perturb").filter(|period| *period > 0);
        if perturb.is_some_and(|period| period < SECOND) {
            return Err(
                SpecError::word("perturb", "the hash may change once a second at most").help("write perturb 10s")
            );
        }
        if perturb.is_some() && by != By::Flow {
            return Err(SpecError::word(
                "perturb",
                "a waiting packet does not carry its hosts, so they cannot be hashed again",
            )
            .help("leave it out, or keep flows apart"));
        }
        let red = match settings.bytes("redflowlimit") {
            Some(limit) => Some(Red::read(limit, settings)?),
            None => match OF_RED.iter().find(|word| settings.get(word).is_some()) {
                Some(word) => {
                    return Err(SpecError::word(
                        word,
                        format!("{word} is a word of the RED in each flow, which is off"),
                    )
                    .help("write redflowlimit, the bytes that a flow may have"));
                }
                None => None,
            },
        };
        let mtu = u64::from(context.overhead.charge(context.mtu));
        Ok(Words {
            by,
            divisor: settings.int("divisor").unwrap_or(1024).clamp(1, MOST) as u32,
            flows: settings.int("flows").unwrap_or(127).clamp(1, MOST) as u32,
            depth: settings.int("depth").unwrap_or(127).clamp(1, 127) as u32,
            quantum: settings.bytes("quantum").unwrap_or(mtu).clamp(256, 1 << 20) as i32,
            perturb,
            headdrop: settings.flag("headdrop"),
            front: settings.choice("new-flow") == Some("front"),
            red,
        })
    }

    /// Buckets of the table: one half for each of two hashes where the hash changes.
    pub fn buckets(&self) -> u32 {
        self.divisor * if self.perturb.is_some() { 2 } else { 1 }
    }
}

impl Red {
    /// Reads the words of RED, with the defaults of tc-sfq(8) and tc-red(8).
    fn read(limit: u64, settings: &Settings) -> Result<Red, SpecError> {
        let limit = limit.clamp(1, 1 << 30);
        let max = settings.bytes("max").unwrap_or(limit / 4).max(1);
        let min = settings.bytes("min").unwrap_or(max / 3).max(1);
        if max > limit {
            let message = format!("the average never reaches {max} bytes: a flow holds at most {limit}");
            return Err(SpecError::word("max", message).help("raise redflowlimit, or lower this"));
        }
        if min >= max {
            let word = ["min", "max"].into_iter().find(|word| settings.get(word).is_some()).unwrap_or("redflowlimit");
            let message = format!("min {min} is not below max {max}");
            return Err(
                SpecError::word(word, message).help("max is best three times min, and redflowlimit four times max")
            );
        }
        let probability = settings.fraction("probability").unwrap_or(ONE / 50);
        if probability == 0 {
            return Err(
                SpecError::word("probability", "with 0 nothing is dropped below max").help("write probability 0.02")
            );
        }
        let (ecn, harddrop) = (settings.flag("ecn"), settings.flag("harddrop"));
        if harddrop && !ecn {
            return Err(SpecError::word("harddrop", "without ecn no packet is marked, so harddrop changes nothing")
                .help("write ecn, or leave it out"));
        }
        let ewma = match settings.int("ewma") {
            Some(ewma) => {
                if let Some(word) = ["burst", "avpkt"].into_iter().find(|word| settings.get(word).is_some()) {
                    return Err(SpecError::word(word, "ewma already says how fast the average follows the length")
                        .help("leave one out"));
                }
                ewma as u32
            }
            None => {
                let avpkt = settings.bytes("avpkt").unwrap_or(1000).max(1);
                let burst = settings.int("burst").unwrap_or((2 * min + max) / (3 * avpkt)).max(1);
                if min < avpkt {
                    let word = ["min", "avpkt", "max"].into_iter().find(|word| settings.get(word).is_some());
                    let message = format!("min, {min} bytes, is less than a usual packet, avpkt, {avpkt} bytes");
                    return Err(SpecError::word(word.unwrap_or("redflowlimit"), message)
                        .help("min is a twelfth of redflowlimit where it is not written; raise it, or write ewma"));
                }
                weight(min, burst, avpkt).ok_or_else(|| {
                    let word = ["burst", "avpkt", "min"].into_iter().find(|word| settings.get(word).is_some());
                    let least = min.div_ceil(avpkt);
                    let message =
                        format!("a burst of {burst} packets of {avpkt} bytes is shorter than min, {min} bytes");
                    SpecError::word(word.unwrap_or("redflowlimit"), message)
                        .help(format!("write burst {least} or more, or ewma"))
                })?
            }
        };
        let thresholds = Thresholds::new(min as u32, max as u32, probability, false);
        Ok(Red { limit: limit as u32, ewma: Ewma::of_weight(ewma), thresholds, ecn, harddrop })
    }
}

/// The least W for which a burst into an empty queue leaves the average below `min`, with w = 2^-W:
/// burst + 1 - min/avpkt <= (1 - (1 - w)^burst)/w. This is equation 3 of Floyd and Jacobson 1993,
/// section 6, with burst in place of burst + 1 in the power, as in tc.
fn weight(min: u64, burst: u64, avpkt: u64) -> Option<u32> {
    let least = burst as f64 + 1.0 - min as f64 / avpkt as f64;
    if least < 1.0 {
        return None;
    }
    (1..32).find(|log| {
        let w = 1.0 / (1u64 << log) as f64;
        // (1 - w)^burst by squaring, because products are the same on every machine.
        let (mut power, mut base, mut n) = (1.0, 1.0 - w, burst);
        while n > 0 {
            if n & 1 == 1 {
                power *= base;
            }
            base *= base;
            n >>= 1;
        }
        least <= (1.0 - power) / w
    })
}

#[cfg(test)]
mod tests {
    use super::weight;

    #[test]
    fn weights_by_hand() {
        // min 5 packets, burst 50, the example of Floyd and Jacobson: 46 <= 256 (1 - (255/256)^50)
        // = 45.5 does not hold, 46 <= 512 (1 - (511/512)^50) = 47.7 does.
        assert_eq!(weight(5000, 50, 1000), Some(9));
        // burst 1, min 3 packets: 1 + 1 - 3 < 1. One packet cannot bring the average near 3.
        assert_eq!(weight(3000, 1, 1000), None);
        // burst 2, min 2 packets: 1 <= (1 - 0.25)/0.5 = 1.5 holds for W = 1.
        assert_eq!(weight(2000, 2, 1000), Some(1));
    }
}
