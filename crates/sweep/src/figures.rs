//! What the figures of a run are called. docs/sweeps.md has the list with units.
//!
//! - `voice.p99`: of a class; `up/voice.p99` where several links have a class of that name, and
//!   `wan.rate` of a link;
//! - `flow.call.rtt_p99`: of a flow;
//! - `figure.tcp`: one of the case's `[[figures]]`, in its unit;
//! - `expect.slow`: what was measured for one of its expectations.

use altq_cases::case::Case;
use altq_cases::result::{CaseResult, ClassNames, ClassResult, FlowResult, World};

/// Names and values of a run's figures; `None`: there was nothing to measure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The names.
    pub names: Vec<String>,
    /// The values, one for each name: bit/s, nanoseconds, or numbers.
    pub values: Vec<Option<f64>>,
}

impl Figures {
    /// The value of a figure.
    pub fn of(&self, name: &str) -> Option<f64> {
        let at = self.names.iter().position(|own| own == name)?;
        self.values.get(at).copied().flatten()
    }

    fn add(&mut self, kept: &dyn Fn(&str) -> bool, name: String, value: Option<f64>) {
        if kept(&name) {
            self.names.push(name);
            self.values.push(value);
        }
    }
}

/// What a class has.
fn of_class(class: &ClassResult) -> [(&'static str, Option<f64>); 11] {
    let (report, delay) = (&class.report, &class.report.delay_ns);
    let some = |number: u64| Some(number as f64);
    [
        ("rate", some(report.rate_bit_s)),
        ("mean", delay.mean.map(|ns| ns as f64)),
        ("p50", delay.p50.map(|ns| ns as f64)),
        ("p99", delay.p99.map(|ns| ns as f64)),
        ("max", delay.max.map(|ns| ns as f64)),
        ("arrived", some(report.arrived_packets)),
        ("sent", some(report.sent_packets)),
        ("dropped", some(report.dropped_packets)),
        ("queued", some(report.queued_packets)),
        ("borrowed_bytes", some(report.borrowed_bytes)),
        ("charged_bytes", class.charged_bytes.map(|bytes| bytes as f64)),
    ]
}

/// What a flow has.
fn of_flow(flow: &FlowResult) -> [(&'static str, Option<f64>); 9] {
    let count = |number: Option<u64>| number.map(|number| number as f64);
    [
        ("goodput", Some(flow.goodput_bit_s as f64)),
        ("p50", count(flow.delay_ns.p50)),
        ("p99", count(flow.delay_ns.p99)),
        ("rtt_p50", count(flow.rtt_ns.p50)),
        ("rtt_p99", count(flow.rtt_ns.p99)),
        ("transactions", flow.transactions_per_s),
        ("sent", count(flow.sent_packets)),
        ("received", count(flow.received_packets)),
        ("lost", count(flow.lost_packets)),
    ]
}

/// The figures of a case with one column. `kept`: whether a figure of this name is kept.
///
/// # Errors
/// If two figures have the same name.
pub fn of(case: &Case, result: &CaseResult, kept: &dyn Fn(&str) -> bool) -> Result<Figures, String> {
    let mut all = Figures::default();
    let names = ClassNames::of(&result.classes);
    for class in &result.classes {
        let name = names.name(class);
        of_class(class).into_iter().for_each(|(what, value)| all.add(kept, format!("{name}.{what}"), value));
    }
    for flow in &result.flows {
        of_flow(flow).into_iter().for_each(|(what, value)| all.add(kept, format!("flow.{}.{what}", flow.name), value));
    }
    for figure in &result.figures {
        all.add(kept, format!("figure.{}", figure.figure), figure.measured);
    }
    // The result has an outcome for each expectation that is about the column, in their order.
    let about = case
        .expectations
        .iter()
        .filter(|expectation| case.columns.first().is_some_and(|column| expectation.concerns(column, World::Sim)));
    for (at, (expectation, outcome)) in about.zip(&result.expectations).enumerate() {
        // With rows an expectation of a figure needs no name.
        let name = match (expectation.name.as_str(), &outcome.figure) {
            ("", Some(figure)) => figure.clone(),
            ("", None) => (at + 1).to_string(),
            (name, _) => name.to_owned(),
        };
        all.add(kept, format!("expect.{name}"), outcome.measured);
    }
    let mut seen = std::collections::HashSet::new();
    match all.names.iter().find(|name| !seen.insert(name.as_str())) {
        None => Ok(all),
        Some(twice) => Err(format!("two figures are called {twice}; give class, flow or expectation another name")),
    }
}

/// What a figure is counted in, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// bit/s.
    Rate,
    /// Nanoseconds.
    Time,
    /// A number, or what the case says.
    Plain,
}

/// What a figure is counted in.
pub fn quantity(name: &str) -> Quantity {
    if name.starts_with("figure.") || name.starts_with("expect.") {
        return Quantity::Plain;
    }
    match name.rsplit('.').next() {
        Some("rate" | "goodput") => Quantity::Rate,
        Some("mean" | "p50" | "p99" | "max" | "rtt_p50" | "rtt_p99") => Quantity::Time,
        _ => Quantity::Plain,
    }
}
