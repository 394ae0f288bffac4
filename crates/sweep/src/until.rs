//! When a point has enough samples: `ci95(voice.p99) < 1%`.
//!
//! A rule is looked at after fixed counts of samples, in the order of the samples. So the samples
//! after which a point ends do not depend on how many runs go at once, or which of them is first.

use altq_cases::samples::Mean;
use altq_config::literal;
use serde::{Deserialize, Serialize};

use crate::figures::Quantity;

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
    /// bit/s.
    Rate(f64),
    /// Nanoseconds.
    Time(f64),
    /// In the figure's own unit.
    Number(f64),
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
            None => limit
                .parse::<f64>()
                .ok()
                .map(Below::Number)
                .or_else(|| literal::rate_with_unit(limit).ok().map(|rate| Below::Rate(rate.as_bit_s() as f64)))
                .or_else(|| literal::time_with_unit(limit).ok().map(|time| Below::Time(time as f64))),
        };
        match below {
            Some(Below::Part(limit) | Below::Rate(limit) | Below::Time(limit) | Below::Number(limit))
                if !(limit.is_finite() && limit > 0.0) =>
            {
                Err(format!("{word:?}: a limit is above 0"))
            }
            Some(below) => Ok(Until { figure: figure.to_owned(), below }),
            None => {
                Err(format!("{word:?}: {limit:?} is no limit: a percentage of the mean, a rate, a time or a number"))
            }
        }
    }

    /// The rule with its limit in the unit of its figure, which is `size` bit/s or ns.
    ///
    /// # Errors
    /// If the limit is a rate or a time, and the figure is not.
    pub fn in_unit(self, quantity: Quantity, size: f64) -> Result<Until, String> {
        let limit = match (self.below, quantity) {
            (Below::Part(_) | Below::Number(_), _) => return Ok(self),
            (Below::Rate(limit), Quantity::Rate) | (Below::Time(limit), Quantity::Time) => limit,
            (below, _) => {
                let limit = if matches!(below, Below::Rate(_)) { "a rate" } else { "a time" };
                let own = match quantity {
                    Quantity::Rate => "a rate",
                    Quantity::Time => "a time",
                    Quantity::Plain => "a number",
                };
                return Err(format!(
                    "the limit of ci95({0}) is {limit}, and {0} is {own}; give {own}, or a percentage of the mean",
                    self.figure
                ));
            }
        };
        Ok(Until { below: Below::Number(limit / size), ..self })
    }

    /// Whether the samples of the figure are enough. Samples without a value are left out; of fewer
    /// than two there is no interval.
    pub fn holds(&self, samples: &[Option<f64>]) -> bool {
        let known: Vec<Option<f64>> = samples.iter().copied().filter(Option::is_some).collect();
        let Some(Mean { mean, half_width: Some(half) }) = Mean::of(&known) else { return false };
        let limit = match self.below {
            Below::Part(part) => part * mean.abs(),
            Below::Rate(limit) | Below::Time(limit) | Below::Number(limit) => limit,
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
        assert_eq!(rule("ci95( up/voice.rate )<2kbit/s"), Ok(("up/voice.rate".into(), Below::Rate(2000.0))));
        assert_eq!(rule("ci95(a.p50) < 1.5ms"), Ok(("a.p50".into(), Below::Time(1_500_000.0))));
        assert_eq!(rule("ci95(figure.f(x)) < 3"), Ok(("figure.f(x)".into(), Below::Number(3.0))));
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
    fn a_limit_has_the_unit_of_its_figure() {
        let below = |word, quantity, size| Until::parse(word).unwrap().in_unit(quantity, size).map(|rule| rule.below);
        // 100 kbit/s are 0.1 Mbit/s, and 2 ms are 2,000 us.
        assert_eq!(below("ci95(figure.tcp) < 100kbit/s", Quantity::Rate, 1e6), Ok(Below::Number(0.1)));
        assert_eq!(below("ci95(figure.wait) < 2ms", Quantity::Time, 1e3), Ok(Below::Number(2_000.0)));
        assert_eq!(below("ci95(a.p99) < 2ms", Quantity::Time, 1.0), Ok(Below::Number(2_000_000.0)));
        assert_eq!(below("ci95(figure.tcp) < 0.1", Quantity::Rate, 1e6), Ok(Below::Number(0.1)));
        assert_eq!(below("ci95(a.p99) < 1%", Quantity::Time, 1.0), Ok(Below::Part(0.01)));
        assert_eq!(
            below("ci95(voice.p99) < 2Mbit/s", Quantity::Time, 1.0).unwrap_err(),
            "the limit of ci95(voice.p99) is a rate, and voice.p99 is a time; give a time, or a percentage of the mean"
        );
        assert!(below("ci95(a.sent) < 2ms", Quantity::Plain, 1.0).unwrap_err().contains("a.sent is a number"));
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
