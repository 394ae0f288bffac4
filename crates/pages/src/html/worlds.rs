//! The two worlds beside one another: what each class sent in virtual time, and with the kernel's
//! own TCP.

use std::fmt::Write;

use altq_cases::result::{CaseResult, ClassResult, World};

use super::text::{deviation, escaped, figure};
use super::{Source, table};

/// How far the lab's figures of a case are from the simulator's.
#[derive(Clone, Debug, PartialEq)]
pub struct Apart {
    /// Classes that are compared.
    pub classes: usize,
    /// The largest error of the lab's rate against the simulator's, as a fraction, and the class:
    /// its row, column and name.
    pub worst: f64,
    /// Which class that is.
    pub class: String,
}

/// A class has at least this part of what its link carries, or it is not compared: of few packets
/// chance decides.
const PART: f64 = 0.05;

/// Compares what classes sent in a case's two results. `None` where none is in both.
pub fn apart(sim: &CaseResult, lab: &CaseResult) -> Option<Apart> {
    let errors = pairs(sim, lab).filter_map(|(class, other)| {
        let of_link = |c: &&ClassResult| {
            (&c.row, &c.column, &c.link) == (&class.row, &class.column, &class.link) && c.report.parent.is_none()
        };
        let link = sim.classes.iter().find(of_link)?.report.rate_bit_s;
        let (virtually, really) = (class.report.rate_bit_s as f64, other.report.rate_bit_s as f64);
        (virtually > 0.0 && virtually >= PART * link as f64).then(|| (really / virtually - 1.0, name(class)))
    });
    errors.fold(None, |so_far: Option<Apart>, (error, class)| {
        let classes = so_far.as_ref().map_or(1, |apart| apart.classes + 1);
        match so_far {
            Some(apart) if apart.worst.abs() >= error.abs() => Some(Apart { classes, ..apart }),
            _ => Some(Apart { classes, worst: error, class }),
        }
    })
}

/// Classes, the link's own aside, that are in both results.
fn pairs<'a>(sim: &'a CaseResult, lab: &'a CaseResult) -> impl Iterator<Item = (&'a ClassResult, &'a ClassResult)> {
    let classes = sim.classes.iter().filter(|class| class.report.parent.is_some());
    classes.filter_map(|class| Some((class, same(class, lab)?)))
}

fn name(class: &ClassResult) -> String {
    let names = [class.row.as_deref(), class.column.as_deref(), Some(class.report.name.as_str())];
    names.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Nothing where a case was run in one world only, or where no class is in both.
pub fn section(sources: &[&Source<'_>]) -> String {
    let of = |world| sources.iter().map(|source| source.result).find(|result| result.world == world);
    let (Some(sim), Some(lab)) = (of(World::Sim), of(World::Lab)) else { return String::new() };
    let mut rows = vec![["class", "simulator", "lab", "lab off by"].map(str::to_owned).to_vec()];
    for (class, other) in pairs(sim, lab) {
        let (virtually, really) = (class.report.rate_bit_s, other.report.rate_bit_s);
        let error = match virtually {
            0 => "–".into(),
            rate => deviation(really as f64 / rate as f64 - 1.0),
        };
        rows.push(vec![name(class), figure(virtually as f64, "bit/s"), figure(really as f64, "bit/s"), error]);
    }
    if rows.len() < 2 {
        return String::new();
    }
    let mut out = String::from("<h2>Simulator and lab</h2>\n");
    if !lab.valid {
        let _ =
            writeln!(out, "<p class=\"invalid\">{}</p>", escaped("INVALID (lab): its figures are not to be trusted."));
    }
    let (count, body) = (rows.len() - 1, table(&rows));
    match count {
        0..=16 => out += &body,
        _ => {
            let _ = writeln!(out, "<details><summary>All {count} classes</summary>\n{body}</details>");
        }
    }
    out + "<p class=\"quiet small\">What each class sent, from the warm-up on. What asks and waits depends on how fast \
        the host is, and may differ.</p>\n"
}

/// The same class in the other result.
fn same<'a>(class: &ClassResult, other: &'a CaseResult) -> Option<&'a ClassResult> {
    other.classes.iter().find(|c| {
        (&c.row, &c.column, &c.link, &c.report.name) == (&class.row, &class.column, &class.link, &class.report.name)
    })
}
