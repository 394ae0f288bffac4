//! One result from several: the same case at several seeds, judged by the means.
//!
//! One run of a random case is one sample. Whether a figure comes out is a question about the mean,
//! and how much chance there is in it is what the interval tells.

use crate::result::{CaseResult, Outcome};
use crate::table::ratio;

/// The mean of samples, and how far chance may have put it off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval of the mean, by Student's t; 0 if all samples
    /// are equal. `None` of one sample.
    pub half_width: Option<f64>,
}

impl Mean {
    /// The mean of `samples`; `None` if one has no value, or there is none.
    pub fn of(samples: &[Option<f64>]) -> Option<Mean> {
        let known: Vec<f64> = samples.iter().copied().collect::<Option<_>>()?;
        let n = known.len() as f64;
        let first = *known.first()?;
        // Equal samples have an interval of 0, without what rounding makes of their sum.
        if known.len() > 1 && known.iter().all(|one| *one == first) {
            return Some(Mean { mean: first, half_width: Some(0.0) });
        }
        let mean = known.iter().sum::<f64>() / n;
        let half_width = (known.len() > 1).then(|| {
            let variance = known.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (n - 1.0);
            student(known.len() - 1) * (variance / n).sqrt()
        });
        Some(Mean { mean, half_width })
    }
}

/// The 0.975 quantile of Student's t by degrees of freedom, 1 to 30 (NIST/SEMATECH e-Handbook of
/// Statistical Methods, 1.3.6.7.2).
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

fn student(freedom: usize) -> f64 {
    // Beyond 30 the first two terms of its expansion in 1/n are right to 0.002: 1.96 + (1.96³ +
    // 1.96) / 4n (Abramowitz and Stegun, 26.7.5).
    STUDENT.get(freedom.wrapping_sub(1)).copied().unwrap_or_else(|| 1.96 + 2.372 / freedom as f64)
}

/// One result of a case from its results at several seeds, in the order of the seeds.
///
/// Every expectation is judged by the mean of what was measured, every figure is the mean. Flows,
/// classes and series are those of the first seed. A single result stays as it is. `None` if there
/// is no result, or if they are not of the same case and world.
pub fn combine(results: Vec<CaseResult>) -> Option<CaseResult> {
    let mut results = results.into_iter();
    let mut whole = results.next()?;
    let rest: Vec<CaseResult> = results.collect();
    if rest.is_empty() {
        return Some(whole);
    }
    let same = |other: &CaseResult| {
        (&other.case, other.world) == (&whole.case, whole.world)
            && other.expectations.len() == whole.expectations.len()
            && other.figures.len() == whole.figures.len()
    };
    if !rest.iter().all(same) {
        return None;
    }
    let seeds: Vec<u64> = std::iter::once(whole.seed).chain(rest.iter().map(|one| one.seed)).collect();
    for (at, outcome) in whole.expectations.iter_mut().enumerate() {
        let others = rest.iter().map(|other| other.expectations[at].measured);
        outcome.samples = std::iter::once(outcome.measured).chain(others).collect();
        judge(outcome, &seeds);
    }
    for (at, figure) in whole.figures.iter_mut().enumerate() {
        let others = rest.iter().map(|other| other.figures[at].measured);
        figure.samples = std::iter::once(figure.measured).chain(others).collect();
        let mean = Mean::of(&figure.samples);
        figure.measured = mean.map(|mean| mean.mean);
        figure.half_width = mean.and_then(|mean| mean.half_width);
        figure.error = ratio(figure.measured, figure.published).map(|ratio| ratio - 1.0);
    }
    for other in rest {
        let seed = other.seed;
        for note in other.notes.into_iter().filter(|note| !whole.notes.contains(note)).collect::<Vec<_>>() {
            whole.notes.push(if other.valid { note } else { format!("seed {seed}: {note}") });
        }
        whole.valid &= other.valid;
    }
    whole.seeds = seeds;
    Some(whole)
}

fn judge(outcome: &mut Outcome, seeds: &[u64]) {
    let mean = Mean::of(&outcome.samples);
    let holds = |value: f64| outcome.bound.holds(value, outcome.expected, outcome.tolerance);
    let fails_at = seeds.iter().zip(&outcome.samples).filter(|(_, value)| !value.is_some_and(holds));
    let fails_at = fails_at.map(|(seed, _)| *seed).collect();
    outcome.pass = mean.is_some_and(|mean| holds(mean.mean));
    outcome.fails_at = fails_at;
    outcome.measured = mean.map(|mean| mean.mean);
    outcome.half_width = mean.and_then(|mean| mean.half_width);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Bound, Measure};
    use crate::result::FigureResult;
    use crate::world::World;

    #[test]
    fn the_interval_of_a_mean_by_hand() {
        // Mean 3, standard deviation 1.5811, four degrees of freedom: 2.776 * 1.5811 / sqrt(5).
        let mean = Mean::of(&[1.0, 2.0, 3.0, 4.0, 5.0].map(Some)).unwrap();
        assert_eq!(mean.mean, 3.0);
        assert!((mean.half_width.unwrap() - 1.9630).abs() < 1e-4);
        assert_eq!(Mean::of(&[0.1; 3].map(Some)), Some(Mean { mean: 0.1, half_width: Some(0.0) }));
        assert_eq!(Mean::of(&[Some(7.0)]), Some(Mean { mean: 7.0, half_width: None }));
        assert_eq!(Mean::of(&[Some(7.0), None]), None);
        assert_eq!(Mean::of(&[]), None);
        // The table of the handbook has 2.021, 2.000 and 1.984 for 40, 60 and 100.
        for (freedom, t) in [(1, 12.706), (30, 2.042), (40, 2.021), (60, 2.000), (100, 1.984)] {
            assert!((student(freedom) - t).abs() < 0.002, "{freedom}");
        }
    }

    fn result(seed: u64, measured: f64) -> CaseResult {
        let mut result = CaseResult::new("c", World::Sim, seed);
        result.expectations.push(Outcome {
            name: "c/rate".into(),
            column: None,
            row: None,
            figure: None,
            class: None,
            flow: None,
            measure: Measure::Ratio,
            unit: String::new(),
            expected: 10.0,
            tolerance: 1.0,
            bound: Bound::Within,
            measured: Some(measured),
            missing: None,
            pass: (measured - 10.0).abs() <= 1.0,
            source: "by hand".into(),
            published: false,
            samples: Vec::new(),
            half_width: None,
            fails_at: Vec::new(),
        });
        for (figure, measured, published) in [("of nothing", 0.0, 0.0), ("of ten", measured, 10.0)] {
            result.figures.push(FigureResult {
                row: None,
                column: None,
                figure: figure.into(),
                unit: String::new(),
                measured: Some(measured),
                missing: None,
                samples: Vec::new(),
                half_width: None,
                published: Some(published),
                source: None,
                error: None,
                not_reproduced: None,
            });
        }
        result
    }

    /// There is no error against 0: it would be no number, and count as the largest of a case.
    #[test]
    fn errors_are_those_of_the_means() {
        let whole = combine(vec![result(1, 10.0), result(2, 13.0)]).unwrap();
        let errors: Vec<Option<f64>> = whole.figures.iter().map(|figure| figure.error).collect();
        assert!(errors[0].is_none() && errors[1].is_some_and(|error| (error - 0.15).abs() < 1e-9), "{errors:?}");
    }

    #[test]
    fn the_mean_is_judged_and_seeds_that_fail_are_named() {
        let whole = combine(vec![result(1, 10.5), result(2, 11.5), result(3, 9.5)]).unwrap();
        let outcome = &whole.expectations[0];
        assert_eq!((outcome.measured, outcome.pass), (Some(10.5), true));
        assert_eq!((&whole.seeds, &outcome.fails_at), (&vec![1, 2, 3], &vec![2]));
        assert_eq!(outcome.samples, [Some(10.5), Some(11.5), Some(9.5)]);
        // One seed alone passes, the mean does not.
        let whole = combine(vec![result(1, 10.0), result(2, 13.0)]).unwrap();
        assert!(!whole.passed() && whole.expectations[0].fails_at == [2]);
        // A sample that cannot be trusted makes the whole so.
        let mut bad = result(2, 10.0);
        bad.invalid("late");
        let whole = combine(vec![result(1, 10.0), bad]).unwrap();
        assert!(!whole.valid && whole.notes == ["seed 2: late"]);
        assert!(combine(Vec::new()).is_none());
        assert_eq!(combine(vec![result(1, 10.0)]), Some(result(1, 10.0)));
        let mut other = result(2, 10.0);
        other.expectations.clear();
        assert!(combine(vec![result(1, 10.0), other]).is_none());
    }
}
