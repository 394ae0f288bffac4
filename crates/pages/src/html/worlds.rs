//! The simulator and the lab: what each class sent in virtual time and with the kernel's own TCP.

use altq_cases::result::{CaseResult, ClassNames, ClassResult, World};
use maud::{Markup, html};

use super::Source;
use super::element::table;
use super::text::{deviation, figure};

/// How much a case's figures in the lab differ from those in the simulator.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Number of classes that are compared.
    pub classes: usize,
    /// The largest error of a rate in the lab, compared with the simulator, as a fraction.
    pub worst: f64,
    /// The row, column and name of the class that has it.
    pub class: String,
}

/// A class is compared only if it has at least this part of what its link carries; with fewer
/// packets the result would depend on chance.
const LEAST_PART: f64 = 0.05;

/// Compares what classes sent in a case's two results. `None` if no class can be compared.
pub fn difference(sim: &CaseResult, lab: &CaseResult) -> Option<Difference> {
    let names = ClassNames::of(&sim.classes);
    let errors = pairs(sim, lab).filter_map(|(class, other)| {
        let its_link = |root: &&ClassResult| {
            (&root.row, &root.column, &root.link) == (&class.row, &class.column, &class.link)
                && root.report.parent.is_none()
        };
        let link = sim.classes.iter().find(its_link)?.report.rate_bit_s as f64;
        let (in_sim, in_lab) = (class.report.rate_bit_s as f64, other.report.rate_bit_s as f64);
        (in_sim > 0.0 && in_sim >= LEAST_PART * link).then(|| (in_lab / in_sim - 1.0, name(class, &names)))
    });
    errors.fold(None, |so_far: Option<Difference>, (error, class)| {
        let classes = so_far.as_ref().map_or(1, |difference| difference.classes + 1);
        match so_far {
            Some(difference) if difference.worst.abs() >= error.abs() => Some(Difference { classes, ..difference }),
            _ => Some(Difference { classes, worst: error, class }),
        }
    })
}

/// The classes that are in both results, without the links themselves.
fn pairs<'a>(sim: &'a CaseResult, lab: &'a CaseResult) -> impl Iterator<Item = (&'a ClassResult, &'a ClassResult)> {
    let classes = sim.classes.iter().filter(|class| class.report.parent.is_some());
    classes.filter_map(|class| Some((class, same(class, lab)?)))
}

/// The same class in the other result.
fn same<'a>(class: &ClassResult, other: &'a CaseResult) -> Option<&'a ClassResult> {
    other.classes.iter().find(|c| {
        (&c.row, &c.column, &c.link, &c.report.name) == (&class.row, &class.column, &class.link, &class.report.name)
    })
}

/// The row, the column and the name of a class, of what of these there is.
fn name(class: &ClassResult, names: &ClassNames<'_>) -> String {
    let name = names.name(class);
    let parts = [class.row.as_deref(), class.column.as_deref(), Some(name.as_str())];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// With more classes than this, the table is folded away.
const MOST_CLASSES: usize = 16;

/// Both worlds, class by class. Empty if the case ran in one world only, or no class is in both
/// results.
pub fn section(sources: &[&Source<'_>]) -> Markup {
    let of = |world| sources.iter().map(|source| source.result).find(|result| result.world == world);
    let (Some(sim), Some(lab)) = (of(World::Sim), of(World::Lab)) else { return Markup::default() };
    let names = ClassNames::of(&sim.classes);
    let row = |(class, other): (&ClassResult, &ClassResult)| {
        let (in_sim, in_lab) = (class.report.rate_bit_s as f64, other.report.rate_bit_s as f64);
        let error = if in_sim == 0.0 { "–".into() } else { deviation(in_lab / in_sim - 1.0) };
        vec![name(class, &names), figure(in_sim, "bit/s"), figure(in_lab, "bit/s"), error]
    };
    let rows: Vec<Vec<String>> = pairs(sim, lab).map(row).collect();
    if rows.is_empty() {
        return Markup::default();
    }
    let table = table(&["class", "simulator", "lab", "lab off by"], &rows);
    html! {
        h2 { "Simulator and lab" } "\n"
        @if !lab.valid { p.invalid { "INVALID (lab): its figures are not to be trusted." } "\n" }
        @if rows.len() > MOST_CLASSES {
            details { summary { "All " (rows.len()) " classes" } "\n" (table) } "\n"
        } @else {
            (table)
        }
        p.quiet.small {
            "What each class sent, from the warm-up on. What asks and waits depends on how fast the host is, and may \
             differ."
        } "\n"
    }
}
