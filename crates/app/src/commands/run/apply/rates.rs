//! The rates that clients have set (`altq link set`) outlive a change of the policy that is taken
//! back.

use std::collections::BTreeMap;

use altq_config::Policy;
use altq_control::Request;
use altq_control::journal::note;
use altq_engine::units::Rate;

use super::super::answers::give_rate;
use super::super::heart::Wire;
use super::super::live::{Live, State};

/// The rates that clients have set and that hold again once a change is taken back, by link. `old`
/// is the policy that comes back, `before` what was set before the change, in bit/s.
pub fn rates_again(state: &State, old: &Policy, before: &BTreeMap<String, u64>) -> Vec<(String, Rate)> {
    let again = |name: &str| {
        let runs = state.roster.link(name)?.spec.rate;
        let written = (state.roster.written(name)?.spec.rate, old.link(name)?.spec.rate);
        let before = before.get(name).copied().map(Rate::bit_s);
        Some((name.to_owned(), rate_again(runs, written, before)?))
    };
    state.names().into_iter().filter_map(again).collect()
}

/// The rate that holds again for a link that has the rate `runs`; `None`: that of the policy. The
/// policy that goes and the one that comes back write the rates `written`.
pub fn rate_again(runs: Rate, written: (Rate, Rate), before: Option<Rate>) -> Option<Rate> {
    // Whoever has set a rate since the change knows the line best.
    let since = runs != written.0 && written.0 == written.1;
    if since { Some(runs) } else { before }
}

/// Gives links the rates again that clients have set. Returns remarks.
pub fn set_again(live: &Live, state: &mut State, rates: Vec<(String, Rate)>) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, rate) in rates {
        match give_rate(live, state, &name, rate) {
            Ok(false) => {}
            Ok(true) => notes.push(format!("link {name}: rate {rate} again, as it was set")),
            Err(fault) => notes.push(format!("link {name}: the rate {rate} that was set does not come back: {fault}")),
        }
    }
    for note in &notes {
        eprintln!("altq run: {note}");
    }
    notes
}

/// Reports the rates that clients have set, and that still hold, to the supervisor again: it has
/// forgotten all of them with the policy before.
pub fn keep_rates(state: &State, wire: Option<&Wire>) {
    let Some(wire) = wire else { return };
    for (link, rate_bit_s) in set_rates(state) {
        // If the supervisor is gone, this worker ends soon.
        let _ = wire.say(&note(&Request::SetLink { link, rate_bit_s }));
    }
}

/// By link, the rates that clients have set, in bit/s.
pub fn set_rates(state: &State) -> BTreeMap<String, u64> {
    let set = |name: &str| {
        let (runs, written) = (state.roster.link(name)?.spec.rate, state.roster.written(name)?.spec.rate);
        (runs != written).then(|| (name.to_owned(), runs.as_bit_s()))
    };
    state.names().into_iter().filter_map(set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line of 100 Mbit/s was set to 50 before the change, or to 70 since.
    #[test]
    fn a_rate_that_was_set_comes_back_unless_another_one_was_set_since() {
        let [fifty, seventy, hundred, other] = [50, 70, 100, 200].map(Rate::mbit_s);
        // The whole policy that goes has given the link its own rate, or a new start has.
        assert_eq!(rate_again(hundred, (hundred, hundred), Some(fifty)), Some(fifty));
        assert_eq!(rate_again(other, (other, hundred), Some(fifty)), Some(fifty));
        // One thing was changed, so the rate has held all the time.
        assert_eq!(rate_again(fifty, (hundred, hundred), Some(fifty)), Some(fifty));
        assert_eq!(rate_again(seventy, (hundred, hundred), Some(fifty)), Some(seventy));
        assert_eq!(rate_again(seventy, (hundred, hundred), None), Some(seventy));
        // It was set for a line that the policy that comes back does not know.
        assert_eq!(rate_again(seventy, (other, hundred), None), None);
        assert_eq!(rate_again(hundred, (hundred, hundred), None), None);
    }
}
