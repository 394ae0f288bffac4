//! Reads the traces of links: files that say what a line carries over time.

use std::path::{Path, PathBuf};

use altq_engine::units::{Nanos, Rate};
use toml::Spanned;

use super::event::{TimedEvent, What};
use super::raw;
use super::wrong::{Result, bad};
use crate::built_in;

/// The most steps of a trace.
const MOST_STEPS: usize = 1_000_000;

/// The changes of rate that the traces of these links make, and the files that they are in,
/// relative to `folder`. Steps from `duration` on are left out.
pub(super) fn traces(links: &[raw::Link], folder: &Path, duration: Nanos) -> Result<(Vec<TimedEvent>, Vec<PathBuf>)> {
    let (mut events, mut files) = (Vec::new(), Vec::new());
    for (at, link) in links.iter().enumerate() {
        for (back, file) in [(false, &link.trace), (true, &link.reverse_trace)] {
            let Some(file) = file else { continue };
            if link.duplex.is_some() {
                return bad(file, "a half-duplex medium has one rate, and no trace");
            }
            for (time, rate) in read(file, folder)? {
                if time < duration {
                    let rates = if back { [None, Some(rate)] } else { [Some(rate), None] };
                    events.push(TimedEvent { at: time, what: What::LinkRate { link: at, rates } });
                }
            }
            files.push(file.get_ref().clone());
        }
    }
    Ok((events, files))
}

/// Reads a trace: on each line a time in milliseconds, a comma, and the rate from then on in bit/s.
/// Empty lines and those that begin with `#` are left out. Times rise.
fn read(file: &Spanned<PathBuf>, folder: &Path) -> Result<Vec<(Nanos, Rate)>> {
    let shown = file.get_ref().display();
    let text = match built_in::read_to_string(&folder.join(file.get_ref())) {
        Ok(text) => text,
        Err(error) => return bad(file, format!("the trace {shown} cannot be read: {error}")),
    };
    let mut steps: Vec<(Nanos, Rate)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((time, rate)) = step(line) else {
            return bad(file, format!("{shown}, line {number}: a step is a time in ms, a comma, and a rate in bit/s"));
        };
        if rate.is_zero() {
            let message = "a link at 0 bit/s carries nothing; write a low rate, as 12000, a packet a second";
            return bad(file, format!("{shown}, line {number}: {message}"));
        }
        if steps.last().is_some_and(|(before, _)| time <= *before) {
            return bad(file, format!("{shown}, line {number}: this time is not later than the one before"));
        }
        if steps.len() >= MOST_STEPS {
            return bad(file, format!("{shown} has more than {MOST_STEPS} steps"));
        }
        steps.push((time, rate));
    }
    if steps.is_empty() { bad(file, format!("the trace {shown} has no step")) } else { Ok(steps) }
}

fn step(line: &str) -> Option<(Nanos, Rate)> {
    let (time, rate) = line.split_once(',')?;
    let time = time.trim().parse::<Nanos>().ok()?.checked_mul(1_000_000)?;
    Some((time, Rate::bit_s(rate.trim().parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::step;
    use altq_engine::units::Rate;

    #[test]
    fn a_time_and_a_rate() {
        assert_eq!(step("20, 1500000"), Some((20_000_000, Rate::kbit_s(1_500))));
        for wrong in ["20", "20;1", "20,1.5", "-1,5", ",", "20,1,2", "99999999999999999,1"] {
            assert_eq!(step(wrong), None, "{wrong}");
        }
    }
}
