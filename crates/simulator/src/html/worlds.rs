//! The two worlds beside one another: what each class sent in virtual time, and with the kernel's own TCP.

use std::fmt::Write;

use super::text::{deviation, escaped, figure};
use super::{Source, table};
use crate::result::{CaseResult, ClassResult, World};

/// Nothing where a case was run in one world only, or where no class is in both.
pub fn section(sources: &[&Source<'_>]) -> String {
    let of = |world| sources.iter().map(|source| source.result).find(|result| result.world == world);
    let (Some(sim), Some(lab)) = (of(World::Sim), of(World::Lab)) else { return String::new() };
    let mut rows = vec![["class", "simulator", "lab", "lab off by"].map(str::to_owned).to_vec()];
    for class in sim.classes.iter().filter(|class| class.report.parent.is_some()) {
        let Some(other) = same(class, lab) else { continue };
        let (virtually, really) = (class.report.rate_bit_s, other.report.rate_bit_s);
        let names = [class.row.as_deref(), class.column.as_deref(), Some(class.report.name.as_str())];
        let error = match virtually {
            0 => "–".into(),
            rate => deviation(really as f64 / rate as f64 - 1.0),
        };
        let name = names.into_iter().flatten().collect::<Vec<_>>().join(", ");
        rows.push(vec![name, figure(virtually as f64, "bit/s"), figure(really as f64, "bit/s"), error]);
    }
    if rows.len() < 2 {
        return String::new();
    }
    let mut out = String::from("<h2>Simulator and lab</h2>\n");
    if !lab.valid {
        let _ = writeln!(out, "<p class=\"invalid\">{}</p>", escaped("INVALID (lab): its figures are not to be trusted."));
    }
    let (count, body) = (rows.len() - 1, table(&rows));
    match count {
        0..=16 => out += &body,
        _ => {
            let _ = writeln!(out, "<details><summary>All {count} classes</summary>\n{body}</details>");
        }
    }
    out + "<p class=\"quiet small\">What each class sent, from the warm-up on. What asks and waits depends on how fast the host is, and may differ.</p>\n"
}

/// The same class in the other result.
fn same<'a>(class: &ClassResult, other: &'a CaseResult) -> Option<&'a ClassResult> {
    other
        .classes
        .iter()
        .find(|c| (&c.row, &c.column, &c.link, &c.report.name) == (&class.row, &class.column, &class.link, &class.report.name))
}
