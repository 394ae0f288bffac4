//! A worker process: takes runs by lines on its standard input, and answers with a line for each on
//! its standard output. It ends when its input does, also in the middle of a run: so no worker
//! outlives a driver that was killed.

use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use altq_simulator::sim::ReadCounters;
use serde::{Deserialize, Serialize};

use crate::figures::Figures;
use crate::run::{Job, Outcome, Runner, Runs};

/// What a worker says when it has read its job.
pub const READY: &str = "ready\n";

/// What became of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The names of the figures, if they are not those of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    names: Option<Vec<String>>,
    /// The bits of the figures: text would round them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    bits: Vec<Option<u64>>,
    /// Why there are no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Answer {
    /// The answer for a run that has no figures, for this reason.
    pub fn error(why: String) -> Answer {
        Answer { error: Some(why), ..Answer::default() }
    }
}

/// Makes answers of outcomes, and outcomes of answers. Both ends keep the names of the last one.
/// The first one has its names, so whoever begins anew in the middle is understood.
#[derive(Debug, Default)]
pub struct Names(Option<Vec<String>>);

impl Names {
    /// The answer for an outcome.
    pub fn answer(&mut self, outcome: Outcome) -> Answer {
        match outcome {
            Err(why) => Answer::error(why),
            Ok(figures) => {
                let names = (self.0.as_ref() != Some(&figures.names)).then(|| figures.names.clone());
                self.0 = Some(figures.names);
                let bits = figures.values.into_iter().map(|value| value.map(f64::to_bits)).collect();
                Answer { names, bits, error: None }
            }
        }
    }

    /// The outcome that an answer is about; `None` if it makes no sense.
    pub fn outcome(&mut self, answer: Answer) -> Option<Outcome> {
        if let Some(why) = answer.error {
            return Some(Err(why));
        }
        self.0 = answer.names.or(self.0.take());
        let names = self.0.as_ref()?;
        let values: Vec<Option<f64>> = answer.bits.into_iter().map(|bits| bits.map(f64::from_bits)).collect();
        (values.len() == names.len()).then(|| Ok(Figures { names: names.clone(), values }))
    }
}

/// Works until the input ends. The first line is the [`Job`], which is answered by [`READY`]; each
/// other one is [`Runs`].
///
/// # Errors
/// If a line is not what it should be, or the output cannot be written.
pub fn serve(
    input: impl BufRead + Send + 'static,
    mut output: impl Write,
    counters: Option<ReadCounters>,
) -> io::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, lines) = mpsc::channel();
    let flag = stop.clone();
    // The thread waits for the end of the input while a run goes on.
    std::thread::Builder::new().name("input".into()).spawn(move || {
        for line in input.lines() {
            let ends = line.is_err();
            if sender.send(line).is_err() || ends {
                break;
            }
        }
        flag.store(true, Ordering::Relaxed);
    })?;
    let Ok(first) = lines.recv() else { return Ok(()) };
    let job: Job = serde_json::from_str(&first?)?;
    let mut runner = Runner::new(job, counters, stop.clone());
    output.write_all(READY.as_bytes()).and_then(|()| output.flush())?;
    for line in lines {
        let runs: Runs = serde_json::from_str(&line?)?;
        // The answers to each line are understood alone.
        let mut names = Names::default();
        for at in 0..runs.count {
            let outcome = match runner.run(&runs.point, runs.seed.wrapping_add(u64::from(at))) {
                Err(None) => return Ok(()),
                Err(Some(why)) => Err(why),
                Ok(figures) => Ok(figures),
            };
            let mut line = serde_json::to_vec(&names.answer(outcome))?;
            line.push(b'\n');
            output.write_all(&line).and_then(|()| output.flush())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_keep_every_bit() {
        let figures = |names: &[&str], values: &[Option<f64>]| Figures {
            names: names.iter().map(|name| name.to_string()).collect(),
            values: values.to_vec(),
        };
        let (mut there, mut here) = (Names::default(), Names::default());
        for outcome in [
            Ok(figures(&["a.p99", "b.rate"], &[Some(0.1 + 0.2), None])),
            Err("no \"way\"\nout".to_owned()),
            Ok(figures(&["a.p99", "b.rate"], &[Some(1.0 / 3.0), Some(-0.0)])),
            Ok(figures(&["c"], &[Some(f64::MAX)])),
            Ok(figures(&[], &[])),
        ] {
            let line = serde_json::to_string(&there.answer(outcome.clone())).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(here.outcome(serde_json::from_str(&line).unwrap()), Some(outcome));
        }
        assert_eq!(here.outcome(Answer { bits: vec![None], ..Answer::default() }), None);
    }
}
