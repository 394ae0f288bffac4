//! When a point has enough samples: `ci95(voice.p99) < 1%`.
//!
//! A rule is looked at after fixed counts of samples, in the order of the samples. So the samples
//! after which a point ends do not depend on how many runs go at once, or which of them is first.

use altq_cases::samples::Mean;
use altq_config::literal;
use serde::{Deserialize, Serialize};

/// A rule: the half width of the 95 % confidence interval of a figure's mean is below a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Until {
    /// The figure.
    pub figure: String,
    /// The limit.
    pub below: Below,
}

/// A limit of half an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Below {
    /// A part of the mean: 0.01 is 1 %.
    Part(f64),
    /// In the figure's own unit: bit/s, nanoseconds, or a number.
    Whole(f64),
}

impl Until {
    /// Reads `ci95(FIGURE) < LIMIT`. A limit is a percentage of the mean, or a rate, a time or a
    /// number.
    ///
    /// # Errors
    /// What is wrong, and what could be written instead.
    pub fn parse(word: &str) -> Result<Until, String> {
        let form = || format!("{word:?} is no rule; write it as 'ci95(voice.p99) < 1%'");
        let rest = word.trim().strip_prefix("ci95").ok_or_else(form)?.trim_start();
        let (figure, limit) = rest.strip_prefix('(').and_then(|rest| rest.rsplit_once(')')).ok_or_else(form)?;
        let limit = limit.trim_start().strip_prefix('<').ok_or_else(form)?.trim();
        let figure = figure.trim();
        if figure.is_empty() {
            return Err(form());
        }
        let below = match limit.strip_suffix('%') {
            Some(percent) => percent.trim().parse::<f64>().ok().map(|percent| Below::Part(percent / 100.0)),
            None => (limit.parse::<f64>().ok())
                .or_else(|| literal::rate_with_unit(limit).ok().map(|rate| rate.as_bit_s() as f64))
                .or_else(|| literal::time_with_unit(limit).ok().map(|time| time as f64))
                .map(Below::Whole),
        };
        match below {
            Some(Below::Part(limit) | Below::Whole(limit)) if !(limit.is_finite() && limit > 0.0) => {
                Err(format!("{word:?}: a limit is above 0"))
            }
            Some(below) => Ok(Until { figure: figure.to_owned(), below }),
            None => {
                Err(format!("{word:?}: {limit:?} is no limit: a percentage of the mean, a rate, a time or a number"))
            }
        }
    }

    /// Whether the samples of the figure are enough. Samples without a value are left out; of fewer
    /// than two there is no interval.
    pub fn holds(&self, samples: &[Option<f64>]) -> bool {
        let known: Vec<Option<f64>> = samples.iter().copied().filter(Option::is_some).collect();
        let Some(Mean { mean, half_width: Some(half) }) = Mean::of(&known) else { return false };
        let limit = match self.below {
            Below::Part(part) => part * mean.abs(),
            Below::Whole(limit) => limit,
        };
        // Equal samples have an interval of 0, also around 0.
        half == 0.0 || half < limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let rule = |word| Until::parse(word).map(|until| (until.figure, until.below));
        assert_eq!(rule("ci95(voice.p99) < 1%"), Ok(("voice.p99".into(), Below::Part(0.01))));
        assert_eq!(rule("ci95( up/voice.rate )<2kbit/s"), Ok(("up/voice.rate".into(), Below::Whole(2000.0))));
        assert_eq!(rule("ci95(a.p50) < 1.5ms"), Ok(("a.p50".into(), Below::Whole(1_500_000.0))));
        assert_eq!(rule("ci95(figure.f(x)) < 3"), Ok(("figure.f(x)".into(), Below::Whole(3.0))));
        let wrong = |word| Until::parse(word).unwrap_err();
        for word in ["voice.p99 < 1%", "ci95 voice < 1", "ci95(voice) > 1%", "ci95() < 1", "ci99(a) < 1"] {
            assert_eq!(wrong(word), format!("{word:?} is no rule; write it as 'ci95(voice.p99) < 1%'"));
        }
        assert_eq!(wrong("ci95(a) < 0%"), "\"ci95(a) < 0%\": a limit is above 0");
        assert_eq!(
            wrong("ci95(a) < soon"),
            "\"ci95(a) < soon\": \"soon\" is no limit: a percentage of the mean, a rate, a time or a number"
        );
    }

    #[test]
    fn an_interval_is_narrow_enough_or_not() {
        // Mean 3, half width 2.776 * 1.5811 / sqrt(5) = 1.963, which is 65.4 % of the mean.
        let samples = [1.0, 2.0, 3.0, 4.0, 5.0].map(Some);
        let holds = |word: &str, samples: &[Option<f64>]| Until::parse(word).unwrap().holds(samples);
        assert!(holds("ci95(a) < 66%", &samples) && !holds("ci95(a) < 65%", &samples));
        assert!(holds("ci95(a) < 1.97", &samples) && !holds("ci95(a) < 1.96", &samples));
        // A failed run has no value. One value alone has no interval.
        let mut some = samples.to_vec();
        some.insert(2, None);
        assert!(holds("ci95(a) < 66%", &some));
        assert!(!holds("ci95(a) < 66%", &[Some(1.0), None]) && !holds("ci95(a) < 1%", &[]));
        assert!(holds("ci95(a) < 1%", &[Some(0.0), Some(0.0)]));
    }
}
