//! What `altq check --json` says of a policy, schema `altq.check/1`. Commands and bindings write
//! the same document.

use altq_engine::link::Framing;
use altq_engine::settings::Limit;
use altq_engine::spec::{ClassId, ROOT};
use serde::Serialize;

use crate::check::notes;
use crate::diagnostic::{Diagnostic, Severity, Sources};
use crate::policy::{Link, Path, Policy};
use crate::promise::Promises;

/// What the kernel would do differently with a link that it executes, one line each; or why it
/// cannot execute it. This crate does not know the kernel: whoever writes the document passes
/// `altq_kernel::fits`.
pub type Fits = fn(&Link) -> Result<Vec<String>, Vec<Diagnostic>>;

/// The document `altq.check/1`: what is wrong with a policy, and what its links promise.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckReport<'a> {
    schema: &'static str,
    ok: bool,
    diagnostics: Vec<Finding>,
    links: Vec<LinkReport<'a>>,
}

/// A finding.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// `error` or `warning`.
    pub severity: &'static str,
    /// The kind of finding.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// The file in which it is.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LinkReport<'a> {
    name: &'a str,
    rate_bit_s: u64,
    /// How the rate follows the line; the promises hold at `rate_bit_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapt: Option<AdaptReport>,
    mtu_bytes: u32,
    overhead: Overhead,
    regulator_bytes: Option<u32>,
    default: Option<&'a str>,
    /// Where reservations go, and what there is for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    reservations: Option<Reserved<'a>>,
    notes: &'a [String],
    /// What executes the link on its device; null without one.
    path: Option<&'static str>,
    /// Why the kernel cannot execute it, if it cannot; and what it does differently, if it does.
    kernel_refuses: Vec<String>,
    kernel_differs: Vec<String>,
    classes: Vec<ClassReport<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct AdaptReport {
    from_bit_s: u64,
    to_bit_s: u64,
    target_ns: u64,
    reflectors: Vec<String>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Reserved<'a> {
    class: &'a str,
    reservable_bit_s: u64,
    buffer_bytes: u64,
    delay_ns: Option<u64>,
    lifetime_ns: Option<u64>,
    most: u64,
    owner_bit_s: Option<u64>,
    owner_most: Option<u64>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Overhead {
    bytes: i32,
    mpu_bytes: u32,
    framing: &'static str,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ClassReport<'a> {
    name: &'a str,
    parent: Option<&'a str>,
    scheduler: &'static str,
    guaranteed_bit_s: u64,
    ceiling_bit_s: u64,
    delay_bound_ns: Bound,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<Queue>,
    /// Which words should be other ones, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// True if the policy's author did not write this class; the language's reader made it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    made: bool,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Bound {
    conforming: Option<u64>,
    queue_full: Option<u64>,
    assumes: String,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Queue {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_packets: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_bytes: Option<u32>,
}

impl<'a> CheckReport<'a> {
    /// The report on a policy; `None` if it could not be read. `diagnostics` are all findings, and
    /// `sources` the texts that they lie in.
    pub fn of(
        policy: Option<&'a Policy>,
        diagnostics: &[Diagnostic],
        sources: &Sources,
        fits: Fits,
    ) -> CheckReport<'a> {
        CheckReport {
            schema: SCHEMA,
            ok: diagnostics.iter().all(|finding| finding.severity != Severity::Error),
            diagnostics: findings(diagnostics, sources),
            links: policy.iter().flat_map(|policy| &policy.links).map(|link| link_report(link, fits)).collect(),
        }
    }

    /// The report on a case, which has no links of its own.
    pub fn of_case(ok: bool, diagnostics: Vec<Finding>) -> CheckReport<'a> {
        CheckReport { schema: SCHEMA, ok, diagnostics, links: Vec::new() }
    }
}

const SCHEMA: &str = "altq.check/1";

/// The findings of a policy.
pub fn findings(diagnostics: &[Diagnostic], sources: &Sources) -> Vec<Finding> {
    let one = |finding: &Diagnostic| {
        let (line, column) = sources.line_column(finding.span);
        Finding {
            severity: finding.severity.name(),
            code: finding.code,
            message: finding.message.clone(),
            file: sources.path(finding.span.source).display().to_string(),
            line,
            column,
            help: finding.help.clone(),
        }
    };
    diagnostics.iter().map(one).collect()
}

fn link_report(link: &Link, fits: Fits) -> LinkReport<'_> {
    let promises = Promises::new(link);
    let (holders, notes) = (link.holders(), notes(link));
    let classes = (0..link.spec.classes.len() as ClassId)
        .map(|class| ClassReport {
            note: notes.get(class as usize).cloned().flatten(),
            ..class_report(link, &promises, class, holders[class as usize])
        })
        .collect();
    let overhead = link.spec.overhead;
    let (kernel_differs, kernel_refuses) = match fits(link) {
        Ok(notes) => (notes, Vec::new()),
        Err(errors) => (Vec::new(), errors.into_iter().map(|error| error.message).collect()),
    };
    LinkReport {
        name: &link.name,
        rate_bit_s: link.spec.rate.as_bit_s(),
        adapt: link.adapt.as_ref().map(|adapt| AdaptReport {
            from_bit_s: adapt.from.as_bit_s(),
            to_bit_s: adapt.to.as_bit_s(),
            target_ns: adapt.target,
            reflectors: adapt.reflectors.iter().map(ToString::to_string).collect(),
        }),
        mtu_bytes: link.spec.mtu,
        overhead: Overhead {
            bytes: overhead.bytes,
            mpu_bytes: overhead.mpu,
            framing: match overhead.framing {
                Framing::Plain => "plain",
                Framing::Atm => "atm",
                Framing::Ptm => "ptm",
            },
        },
        regulator_bytes: link.bucket(),
        default: link.spec.default.map(|class| link.class_name(class)),
        reservations: link.reservations.as_ref().map(|reserved| Reserved {
            class: link.class_name(reserved.class),
            reservable_bit_s: link.reservable().as_bit_s(),
            buffer_bytes: link.reservation_buffer(),
            delay_ns: reserved.delay(),
            lifetime_ns: reserved.lifetime(),
            most: reserved.most(),
            owner_bit_s: reserved.owner_rate().map(|rate| rate.as_bit_s()),
            owner_most: reserved.owner_most(),
        }),
        notes: &link.notes,
        path: link.path().map(Path::name),
        kernel_refuses,
        kernel_differs,
        classes,
    }
}

fn class_report<'a>(link: &'a Link, promises: &Promises<'_>, class: ClassId, holds: bool) -> ClassReport<'a> {
    let bound = promises.delay_bound(class);
    let place = link.spec.classes.get(class as usize);
    let parent = place.filter(|_| class != ROOT).map(|place| link.class_name(place.parent));
    let queue = link.queue(class).filter(|_| holds).map(|queue| Queue {
        kind: queue.name,
        limit_packets: match queue.limit {
            Limit::Packets(n) => Some(n),
            Limit::Bytes(_) => None,
        },
        limit_bytes: match queue.limit {
            Limit::Packets(_) => None,
            Limit::Bytes(n) => Some(n),
        },
    });
    ClassReport {
        name: link.class_name(class),
        parent,
        scheduler: link.scheduler_of(class),
        guaranteed_bit_s: promises.guaranteed(class).unwrap_or_default().as_bit_s(),
        ceiling_bit_s: link.ceiling(class).as_bit_s(),
        delay_bound_ns: Bound { conforming: bound.conforming, queue_full: bound.queue_full, assumes: bound.assumes },
        queue,
        note: None,
        made: link.classes.get(class as usize).is_some_and(|class| class.made),
    }
}
