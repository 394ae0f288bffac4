//! What a controller reports: decisions with their reasons, and what happened to reflectors.

use std::fmt;

use altq_engine::units::{Nanos, Rate};

/// A change of a link's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// When.
    pub at: Nanos,
    /// The rate up to now.
    pub before: Rate,
    /// The rate from now on.
    pub after: Rate,
    /// Why.
    pub reason: Reason,
    /// By how much longer than usual answers take, in nanoseconds. With [`Reason::Silent`] and
    /// [`Reason::Blind`] it is the time without any answer.
    pub excess: Nanos,
    /// What the link sent over the last half second.
    pub sent: Rate,
    /// Reflectors whose answers were late.
    pub late: usize,
    /// Reflectors that voted.
    pub counted: usize,
}

/// Why a rate changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Down: the answers of most reflectors are late.
    Late,
    /// Down: there are no answers, and the link is used.
    Silent,
    /// Up: the link is used, and answers are not late.
    Used,
    /// Towards the base rate: the link is not used.
    Unused,
    /// Towards the base rate: there have been no answers for so long that nothing is known.
    Blind,
    /// Down to the base rate: there are answers again after a long time without.
    Again,
}

impl Reason {
    /// The reason as one word, for logs and results: `late`, `silent`, `used`, `unused`, `blind`,
    /// `again`.
    pub const fn word(self) -> &'static str {
        match self {
            Reason::Late => "late",
            Reason::Silent => "silent",
            Reason::Used => "used",
            Reason::Unused => "unused",
            Reason::Blind => "blind",
            Reason::Again => "again",
        }
    }
}

impl fmt::Display for Decision {
    /// One line: both rates, the reason, and the figures that led to it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rate {} -> {}: ", self.before, self.after)?;
        let (excess, sent) = (millis(self.excess), self.sent);
        match self.reason {
            Reason::Late => write!(
                f,
                "answers take {excess} longer than usual ({} of {} reflectors), with {sent} sent",
                self.late, self.counted
            ),
            Reason::Silent => write!(f, "no answers for {excess}, with {sent} sent"),
            Reason::Used => write!(f, "the link is used ({sent} sent), and answers take {excess} longer than usual"),
            Reason::Unused => write!(f, "the link is not used ({sent} sent)"),
            Reason::Blind => write!(f, "no answers for {excess}: back towards the rate of the policy"),
            Reason::Again => write!(f, "answers again after a long time without"),
        }
    }
}

/// Something worth reporting that is not a change of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// When.
    pub at: Nanos,
    /// What.
    pub what: Noticed,
}

/// What a notice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noticed {
    /// No reflector answers any more.
    Silence,
    /// Reflectors answer again, after this time in nanoseconds.
    Answers(Nanos),
    /// A reflector, by its number, is in another state now.
    Reflector(usize, Health),
}

/// The state of a reflector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It has not answered yet.
    #[default]
    Unknown,
    /// It answers, and is counted.
    Good,
    /// It does not answer.
    Dead,
    /// It answers, but disagreed with the others for so long that it is not counted.
    Dropped,
}

impl Notice {
    /// The notice as one line. `reflectors`: their names, by number.
    pub fn text(&self, reflectors: &[String]) -> String {
        match self.what {
            Noticed::Silence => "no reflector answers".to_owned(),
            Noticed::Answers(after) => format!("reflectors answer again, after {}", millis(after)),
            Noticed::Reflector(at, health) => {
                let name = reflectors.get(at).map_or_else(|| format!("number {at}"), String::clone);
                match health {
                    Health::Unknown => format!("reflector {name} has not answered yet"),
                    Health::Good => format!("reflector {name} is counted"),
                    Health::Dead => format!("reflector {name} does not answer"),
                    Health::Dropped => format!("reflector {name} is dropped: it disagrees with the others"),
                }
            }
        }
    }
}

/// A time in milliseconds with one decimal, rounded down.
fn millis(time: Nanos) -> String {
    format!("{}.{} ms", time / 1_000_000, time / 100_000 % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_for_a_log() {
        let decision = Decision {
            at: 7,
            before: Rate::mbit_s(20),
            after: Rate::kbit_s(13_380),
            reason: Reason::Late,
            excess: 74_960_000,
            sent: Rate::kbit_s(19_800),
            late: 2,
            counted: 3,
        };
        assert_eq!(
            decision.to_string(),
            "rate 20Mbit/s -> 13380kbit/s: answers take 74.9 ms longer than usual (2 of 3 reflectors), with \
             19800kbit/s sent"
        );
        let names = ["1.1.1.1".to_owned()];
        let text = |what| Notice { at: 0, what }.text(&names);
        assert_eq!(text(Noticed::Answers(1_500_000_000)), "reflectors answer again, after 1500.0 ms");
        assert_eq!(text(Noticed::Reflector(0, Health::Dead)), "reflector 1.1.1.1 does not answer");
        assert_eq!(text(Noticed::Reflector(1, Health::Good)), "reflector number 1 is counted");
    }
}
