//! What a plan says: the document `altq.plan/1`, and the report for people.

use std::collections::HashMap;

use altq_config::{Differs, Link, Promises};
use altq_engine::spec::{ClassId, ROOT};
#[cfg(feature = "experiments")]
use altq_engine::units::Nanos;
use serde::Serialize;

use crate::{output, tree};

/// The document `altq.plan/1`: what a policy would change.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Document {
    schema: &'static str,
    /// The file of the new policy.
    file: String,
    /// What it is compared with: a file, or `what runs`.
    against: String,
    /// The links of both policies.
    pub links: Vec<Planned>,
    /// It is compared with what runs.
    #[serde(skip)]
    runs: bool,
}

/// Packets for which figures are predicted.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Captured {
    /// The file of the capture; null: the link has sent them while the command ran.
    file: Option<String>,
    packets: u64,
    /// Their bytes at layer 3.
    bytes: u64,
    /// From the first packet to the last one.
    span_ns: u64,
}

/// What changes for a link.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Planned {
    link: String,
    /// What only a new start changes; null if the policies name nothing of that kind.
    new_start: Option<String>,
    changes: Vec<Change>,
    /// The packets for which figures are predicted; null if there are none.
    pub capture: Option<Captured>,
    /// The classes of the new policy and then those that are gone. The link itself is the first.
    pub classes: Vec<Class>,
    /// Packets of the capture that change their class, the most bytes first.
    pub moves: Vec<Move>,
}

/// A thing that changes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Change {
    /// The link, a class, a rule, or `rules`.
    what: String,
    /// What only the old policy says of it; null: nothing.
    before: Option<String>,
    /// What only the new policy says of it; null: nothing.
    after: Option<String>,
    #[serde(skip)]
    said: String,
}

/// A class.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Class {
    /// Its name; the link's own class has the name of the link.
    pub class: String,
    /// The class above it; null for the link's own.
    parent: Option<String>,
    /// With the old policy; null: there is no such class.
    pub before: Option<Figures>,
    /// With the new policy; null: there is no such class any more.
    pub after: Option<Figures>,
    #[serde(skip)]
    depth: usize,
    /// See [`key`].
    #[cfg(feature = "experiments")]
    #[serde(skip)]
    pub key: String,
}

/// What a class is promised, and what it would get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Figures {
    /// As `altq check` computes it; null if nothing is guaranteed.
    guaranteed_bit_s: Option<u64>,
    ceiling_bit_s: u64,
    /// The longest delay of a source that keeps to the guarantee; null if none is promised.
    delay_ns: Option<u64>,
    /// For the packets of the capture; null without one.
    pub predicted: Option<Got>,
}

/// What a class would get, of the packets of a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Got {
    arrived_packets: u64,
    /// What arrived, over the time from the first packet of the capture to the last; null if that
    /// is no time.
    asked_bit_s: Option<u64>,
    /// What was sent in this time.
    sent_bit_s: Option<u64>,
    /// Packets that were sent, also later.
    sent_packets: u64,
    dropped_packets: u64,
    /// Packets that wait for ever: their class gets nothing.
    queued_packets: u64,
    /// From arrival until the packet is handed to the wire; null if none was sent.
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
}

/// Packets that change their class.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Move {
    /// Their class with the old policy; null: they were dropped, because no rule matched.
    pub from: Option<String>,
    /// Their class with the new policy; null as above.
    pub to: Option<String>,
    pub packets: u64,
    /// Their bytes at layer 3.
    pub bytes: u64,
}

#[cfg(feature = "experiments")]
impl Captured {
    /// The packets of a file, or of a link.
    pub fn new(file: Option<String>, frames: &[altq_simulator::sim::Frame]) -> Captured {
        let bytes = frames.iter().map(|frame| u64::from(frame.key.length)).sum();
        // The first one has the time 0.
        let span_ns = frames.last().map_or(0, |frame| frame.time);
        Captured { file, packets: frames.len() as u64, bytes, span_ns }
    }
}

#[cfg(feature = "experiments")]
impl Got {
    /// Of a row of a replay, and the bytes that were sent in the time `span`, over which rates are.
    pub fn new(row: &altq_cases::report::ClassReport, sent_bytes: u64, span: Nanos) -> Got {
        let rate = |bytes: u64| {
            let bits = u128::from(bytes) * 8_000_000_000;
            bits.checked_div(u128::from(span)).map(|rate| u64::try_from(rate).unwrap_or(u64::MAX))
        };
        Got {
            arrived_packets: row.arrived_packets,
            asked_bit_s: rate(row.arrived_bytes),
            sent_bit_s: rate(sent_bytes),
            sent_packets: row.sent_packets,
            dropped_packets: row.dropped_packets,
            queued_packets: row.queued_packets,
            p50_ns: row.delay_ns.p50,
            p99_ns: row.delay_ns.p99,
        }
    }
}

/// By what a class is found in the other policy: its name. The link's own class needs none.
pub fn key(link: &Link, class: ClassId) -> &str {
    if class == ROOT { "" } else { link.class_name(class) }
}

/// The promises of each class of a link, by its key.
fn figures(link: &Link) -> HashMap<&str, Figures> {
    let promises = Promises::new(link);
    let of = |class: ClassId| Figures {
        guaranteed_bit_s: promises.guaranteed(class).map(|rate| rate.as_bit_s()).filter(|rate| *rate > 0),
        ceiling_bit_s: link.ceiling(class).as_bit_s(),
        delay_ns: promises.delay_bound(class).conforming,
        predicted: None,
    };
    let classes = 0..link.classes.len() as ClassId;
    classes.map(|class| (key(link, class), of(class))).collect()
}

/// The name of the class above a class.
fn above(link: &Link, class: usize) -> Option<String> {
    let spec = link.spec.classes.get(class).filter(|_| class != ROOT as usize)?;
    Some(link.class_name(spec.parent).to_owned())
}

impl Planned {
    /// A link of one of the policies, or of both.
    pub fn new(name: &str, before: Option<&Link>, after: Option<&Link>) -> Planned {
        let mut old = before.map_or_else(HashMap::new, figures);
        let mut new = after.map_or_else(HashMap::new, figures);
        let mut classes = Vec::new();
        for link in [after, before].into_iter().flatten() {
            for (at, depth) in tree::of_link(link) {
                let key = key(link, at as ClassId);
                let (before, after) = (old.remove(key), new.remove(key));
                // The old link has left only those that are gone.
                if before.is_some() || after.is_some() {
                    let (class, parent) = (link.class_name(at as ClassId).to_owned(), above(link, at));
                    classes.push(Class {
                        class,
                        parent,
                        before,
                        after,
                        depth,
                        #[cfg(feature = "experiments")]
                        key: key.to_owned(),
                    });
                }
            }
        }
        let (changes, moves) = (Vec::new(), Vec::new());
        Planned { link: name.to_owned(), new_start: None, changes, capture: None, classes, moves }
    }

    /// Things that change, and what of them only a new start changes.
    pub fn differs(&mut self, found: Vec<Differs>, new_start: Option<String>) {
        let change = |one: Differs| {
            let said = one.to_string();
            Change { what: one.what, before: one.before, after: one.now, said }
        };
        self.changes = found.into_iter().map(change).collect();
        self.new_start = new_start;
    }

    /// Only a new start changes this.
    pub fn restarts(&mut self, why: &str) {
        self.new_start = Some(why.to_owned());
    }

    fn is_changed(&self) -> bool {
        self.new_start.is_some() || !self.changes.is_empty()
    }
}

impl Document {
    /// Without links.
    pub fn new(file: String, against: String, runs: bool) -> Document {
        Document { schema: "altq.plan/1", file, against, links: Vec::new(), runs }
    }

    /// True if something would change.
    pub fn changes(&self) -> bool {
        self.links.iter().any(Planned::is_changed)
    }

    /// Prints it, as JSON or for people. `all`: each class, and not only those for which something
    /// changes.
    pub fn print(&self, json: bool, all: bool) -> anyhow::Result<()> {
        if json { output::print_json(self) } else { output::print(&self.report(all, output::width())) }
    }

    fn report(&self, all: bool, width: Option<usize>) -> String {
        let mut out = String::new();
        for (at, link) in self.links.iter().enumerate() {
            if at > 0 {
                out.push('\n');
            }
            out += &link.report(self, all, width);
        }
        out
    }
}

/// Two values of one thing: one text if they are the same, or there is only one.
fn both(before: Option<String>, after: Option<String>) -> String {
    match (before, after) {
        (Some(before), Some(after)) if before == after => after,
        (Some(before), Some(after)) => format!("{before} -> {after}"),
        (before, after) => after.or(before).unwrap_or_default(),
    }
}

/// The most classes of a table, unless all are asked for.
const MOST: usize = 100;

/// A column of a table: its heading, and the text of a class's figures.
type Column = (&'static str, fn(&Figures) -> String);

fn or_dash(value: Option<u64>, text: fn(u64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

const PROMISED: [Column; 3] = [
    ("guarantee", |figures| or_dash(figures.guaranteed_bit_s, output::rate)),
    ("ceiling", |figures| output::rate(figures.ceiling_bit_s)),
    ("delay at most", |figures| or_dash(figures.delay_ns, output::time)),
];

const PREDICTED: [Column; 4] = [
    ("asks", |figures| of(figures, |got| or_dash(got.asked_bit_s, output::rate))),
    ("gets", |figures| of(figures, |got| or_dash(got.sent_bit_s, output::rate))),
    ("p99 wait", |figures| of(figures, |got| or_dash(got.p99_ns, output::time))),
    ("drops", |figures| of(figures, |got| got.dropped_packets.to_string())),
];

fn of(figures: &Figures, text: impl Fn(&Got) -> String) -> String {
    figures.predicted.as_ref().map_or_else(|| "-".to_owned(), text)
}

fn count(packets: u64) -> String {
    if packets == 1 { "1 packet".to_owned() } else { format!("{packets} packets") }
}

impl Planned {
    fn report(&self, document: &Document, all: bool, width: Option<usize>) -> String {
        let changes = match self.changes.len() {
            0 if self.new_start.is_some() => String::new(),
            0 => "nothing changes".to_owned(),
            1 => "1 change".to_owned(),
            count => format!("{count} changes"),
        };
        let how = match &self.new_start {
            Some(why) => format!("a new start is needed ({why})"),
            None if self.changes.is_empty() => String::new(),
            None if document.runs && document.file != altq_config::STANDARD_INPUT => {
                format!("`altq apply {} --check` asks whether what runs can take that", document.file)
            }
            None => "no new start is needed".to_owned(),
        };
        let said: Vec<String> = [changes, how].into_iter().filter(|text| !text.is_empty()).collect();
        let mut out = format!("link {}, compared with {}: {}\n", self.link, document.against, said.join("; "));
        for change in &self.changes {
            out += &format!("  {}\n", change.said);
        }
        out += &self.table("what each class is promised", &PROMISED, all, width);
        let Some(capture) = &self.capture else { return out };
        let (packets, span) = (count(capture.packets), output::time(capture.span_ns));
        out += &match &capture.file {
            Some(file) => format!("\n  {packets} of {file}, which span {span}\n"),
            None => format!("\n  {packets} that the link has sent in {span}\n"),
        };
        for one in &self.moves {
            let name = |class: &Option<String>| class.clone().unwrap_or_else(|| "(no class: dropped)".to_owned());
            let (from, to, part) = (name(&one.from), name(&one.to), output::percent(one.bytes, capture.bytes));
            out += &format!("  {from} -> {to}: {}, {part} of the bytes\n", count(one.packets));
        }
        // The link's own class is in both policies if the link is.
        let in_both = self.classes.first().is_some_and(|link| link.before.is_some() && link.after.is_some());
        if in_both && self.moves.is_empty() && capture.packets > 0 {
            out += "  each of them keeps its class\n";
        }
        out + &self.table("what each class would get", &PREDICTED, all, width)
    }

    /// A table of the classes for which something changes, or of all.
    fn table(&self, what: &str, columns: &[Column], all: bool, width: Option<usize>) -> String {
        // A column in which nobody has anything is left out.
        let figures = || self.classes.iter().flat_map(|class| [&class.before, &class.after]).flatten();
        let columns: Vec<&Column> =
            columns.iter().filter(|(_, text)| figures().any(|figures| text(figures) != "-")).collect();
        let text = |figures: &Option<Figures>| -> Option<Vec<String>> {
            figures.as_ref().map(|figures| columns.iter().map(|(_, text)| text(figures)).collect())
        };
        let head = std::iter::once("class").chain(columns.iter().map(|(heading, _)| *heading));
        let mut rows = vec![head.map(str::to_owned).collect::<Vec<String>>()];
        let (mut same, mut more) = (0, 0);
        for class in &self.classes {
            let (before, after) = (text(&class.before), text(&class.after));
            if !all && before == after {
                same += 1;
                continue;
            }
            if !all && rows.len() > MOST {
                more += 1;
                continue;
            }
            let cell = |at: usize| {
                let one = |cells: &Option<Vec<String>>| cells.as_ref().and_then(|cells| cells.get(at).cloned());
                both(one(&before), one(&after))
            };
            let fate = match (&before, &after) {
                (None, _) => " (new)",
                (_, None) => " (gone)",
                _ => "",
            };
            let name = tree::name(&format!("{}{fate}", class.class), class.depth);
            rows.push(std::iter::once(name).chain((0..columns.len()).map(cell)).collect());
        }
        if rows.len() == 1 {
            return format!("\n  {what}: as before\n");
        }
        let table = output::table_within(&rows, width.map(|width| width.saturating_sub(2)));
        let mut out = table.lines().fold(format!("\n  {what}\n"), |out, line| {
            let line = if line.is_empty() { String::new() } else { format!("  {line}") };
            out + &line + "\n"
        });
        if more > 0 {
            out += &format!("  (and {more} more; --all prints them)\n");
        }
        if same > 0 {
            out += &match same {
                1 => "  (the other class as before)\n".to_owned(),
                count => format!("  (the {count} other classes as before)\n"),
            };
        }
        out
    }
}
