//! What altq has kept of a link from before `altq web` was started (`altq.past/1`, docs/top.md).

use std::collections::{BTreeMap, HashMap};

use altq_control::client::Client;
use altq_control::{Code, Fault};
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Nanos, SECOND};
use altq_monitor::history::{Point, QUARTER, QUARTERS, SECONDS};
use serde::{Deserialize, Serialize};

use crate::frame::Classes;

/// About the most points of all links that are asked for: some 15 MB of JSON.
const POINTS: usize = 200_000;
/// Each answer translates the loop's clock into that of the day anew, and by some nanoseconds
/// differently. Moments that are nearer to each other than this are the same.
const NEAR: Nanos = SECOND / 2;

/// What altq has kept of a link, in its documents, the oldest first.
#[derive(Debug, Default)]
pub struct Earlier(Vec<Document>);

/// The parts of a document that are used.
#[derive(Debug, Deserialize)]
struct Document {
    /// By number; the first is the link itself.
    classes: Vec<Class>,
    slices: Vec<Piece>,
    next_ns: Option<Nanos>,
}

#[derive(Debug, Deserialize)]
struct Class {
    /// Empty for a number that no class has.
    name: String,
}

#[derive(Debug, Deserialize)]
struct Piece {
    from_unix_ns: u64,
    to_unix_ns: u64,
    seconds: u32,
    points: Vec<[u64; 13]>,
}

/// What classes did in a stretch of time of the loop's clock.
pub struct Stretch {
    /// When it began.
    pub from: Nanos,
    /// When it ended.
    pub to: Nanos,
    /// How often waiting packets were counted in it.
    pub seconds: u32,
    /// What they did, in the order of their numbers.
    pub points: Vec<(ClassId, Point)>,
}

#[derive(Serialize)]
struct Fields<'a> {
    link: &'a str,
    ago_s: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_ns: Option<Nanos>,
}

/// How many seconds are asked for if all links together have so many classes, up to all that altq
/// keeps.
pub fn seconds(classes: usize) -> u64 {
    let slices = POINTS / classes.max(1);
    let quarters = slices.saturating_sub(SECONDS).min(QUARTERS);
    slices.min(SECONDS) as u64 + quarters as u64 * u64::from(QUARTER)
}

impl Earlier {
    /// Asks for it, from so many seconds ago on.
    ///
    /// # Errors
    /// With [`Code::Failed`]: altq keeps nothing yet, or the connection is lost. Otherwise: there
    /// is nothing that can be read.
    pub fn ask(client: &mut Client, link: &str, ago_s: u64) -> Result<Earlier, Fault> {
        let (mut after_ns, mut earlier) = (None, Earlier::default());
        let unreadable = |error: serde_json::Error| Fault::new(Code::Unsupported, error.to_string());
        loop {
            let json = client.ask("past", &Fields { link, ago_s, after_ns })?;
            let document: Document = serde_json::from_str(&json).map_err(unreadable)?;
            // An answer that does not go on would be asked for again and again.
            let next = document.next_ns.filter(|next| after_ns.is_none_or(|after| *next > after));
            earlier.0.push(document);
            match next {
                Some(next) => after_ns = Some(next),
                None => return Ok(earlier),
            }
        }
    }

    /// What ended before a moment of the loop's clock, the oldest first. `numbers` has the numbers
    /// of the classes that there are; what others did counts for the link, without percentiles.
    /// `ahead` is the wall clock minus the loop's clock.
    pub fn stretches(&self, numbers: &HashMap<String, ClassId>, ahead: i128, until: Nanos) -> Vec<Stretch> {
        let at = |unix_ns: u64| Nanos::try_from((i128::from(unix_ns) - ahead).max(0)).unwrap_or(Nanos::MAX);
        let mut stretches: Vec<Stretch> = Vec::new();
        for document in &self.0 {
            let names = document.classes.iter().skip(1);
            let known = |class: &Class| numbers.get(&class.name).copied().unwrap_or(ROOT);
            let known: Vec<ClassId> = std::iter::once(ROOT).chain(names.map(known)).collect();
            for piece in &document.slices {
                let (mut from, mut to) = (at(piece.from_unix_ns), at(piece.to_unix_ns));
                if let Some(before) = stretches.last().filter(|before| from.abs_diff(before.to) < NEAR) {
                    from = before.to;
                }
                if to.abs_diff(until) < NEAR {
                    to = until;
                }
                let begins = stretches.last().map_or(0, |last| last.to);
                if from < begins || to <= from || to > until {
                    continue;
                }
                let mut points: BTreeMap<ClassId, Point> = BTreeMap::new();
                for (class, mut point) in piece.points.iter().map(point) {
                    let number = usize::try_from(class).ok().and_then(|class| known.get(class).copied());
                    let number = number.unwrap_or(ROOT);
                    if number == ROOT && class != u64::from(ROOT) {
                        (point.p50, point.p99) = (0, 0);
                    }
                    let sum = points.entry(number).or_default();
                    sum.add(&point);
                    if point.p99 > 0 {
                        (sum.p50, sum.p99) = (point.p50, point.p99);
                    }
                }
                stretches.push(Stretch { from, to, seconds: piece.seconds, points: points.into_iter().collect() });
            }
        }
        stretches
    }
}

/// Gives classes the percentiles of the worst of the classes below them: altq keeps those of a
/// class's own packets only.
pub fn worst_of_below(points: &mut Vec<(ClassId, Point)>, classes: &Classes, numbers: &[ClassId]) {
    let mut all: BTreeMap<ClassId, Point> = points.drain(..).collect();
    let number = |class: ClassId| numbers.get(class as usize).copied();
    // Classes come after those above them.
    for class in classes.tree.order().iter().rev() {
        let above = classes.tree.parent(*class).and_then(number);
        let (Some(own), Some(above)) = (number(*class).and_then(|own| all.get(&own).copied()), above) else { continue };
        let above = all.entry(above).or_default();
        if own.p99 > above.p99 {
            (above.p50, above.p99) = (own.p50, own.p99);
        }
    }
    points.extend(all);
}

/// A point, and the number of its class in the document.
fn point(numbers: &[u64; 13]) -> (u64, Point) {
    let [
        class,
        sent_packets,
        sent_bytes,
        wire_bytes,
        dropped_packets,
        marked_packets,
        borrowed_bytes,
        lent_bytes,
        waiting_bytes,
        p50,
        p99,
        promised_bytes,
        missed_bytes,
    ] = *numbers;
    let point = Point {
        sent_packets,
        sent_bytes,
        wire_bytes,
        dropped_packets,
        marked_packets,
        borrowed_bytes,
        lent_bytes,
        waiting_bytes,
        promised_bytes,
        missed_bytes,
        p50,
        p99,
    };
    (class, point)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use altq_monitor::tree::{Class as Node, Tree};

    use super::*;
    use crate::frame::More;
    use crate::history::Past;
    use crate::watch::Step;

    /// The wall clock is 1000 s ahead of the loop's.
    const AHEAD: u64 = 1000;

    /// A document of slices from and to a second of the loop's clock, in which the classes 1 and 2
    /// sent so many bytes. Its clock of the day is so many ns late.
    fn document(slices: &[(u64, u64, [u64; 2])], late: u64, next_ns: Option<Nanos>) -> Document {
        let point = |class: u64, bytes: u64| [class, 1, bytes, bytes, 0, 0, 0, 0, 0, 256, 512 * class, 0, 0];
        let piece = |(from, to, bytes): &(u64, u64, [u64; 2])| Piece {
            from_unix_ns: (from + AHEAD) * SECOND - late,
            to_unix_ns: (to + AHEAD) * SECOND - late,
            seconds: (to - from) as u32,
            points: vec![point(1, bytes[0]), point(2, bytes[1])],
        };
        let classes = ["wan", "gone", "a"].map(|name| Class { name: name.to_owned() });
        Document { classes: classes.into(), slices: slices.iter().map(piece).collect(), next_ns }
    }

    fn classes() -> Arc<Classes> {
        let class =
            |(name, parent): (&str, ClassId)| Node { name: name.to_owned(), parent, asked: None, ceiling: None };
        let tree = Tree::new([("wan", 0), ("a", 0), ("b", 0)].map(class).into()).unwrap();
        Arc::new(Classes { more: vec![More::default(); tree.len()], tree })
    }

    #[test]
    fn a_history_goes_on_from_what_altq_has_kept() {
        // Two quarters of a minute, of which one has a second only, because altq was started anew
        // then; 20 seconds, of which one is missing; and one that ends too late.
        let mut slices = vec![(84, 85, [8, 8]), (85, 100, [75, 150])];
        slices.extend((100..121).filter(|n| *n != 110).map(|n| (n, n + 1, [n, 10])));
        let first = document(&slices[..5], 0, Some(1));
        // What was there already is left out. Each answer has its own idea of the clock of the day.
        let second = document(&[&slices[3..12], &[]].concat(), 100, Some(2));
        let third = document(&[&slices[12..], &[(121, 123, [1000, 1000])]].concat(), 50, None);
        let until = 121 * SECOND;
        let earlier = Earlier(vec![first, second, third]);
        let mut past = Past::begun(1 << 20, &classes(), &earlier, (until, until + AHEAD * SECOND));
        // Then as ever.
        let points = [0, 0, 7].map(|bytes| Point { sent_packets: 1, wire_bytes: bytes, ..Point::default() });
        past.push(&classes(), &Step { from: until, to: until + SECOND, points: points.into() }, 1122 * SECOND);
        let series = serde_json::to_value(past.series("wan", None, (0, u64::MAX)).unwrap()).unwrap();
        let ends: Vec<u64> = [1085, 1100].into_iter().chain(1101..=1110).chain(1112..=1122).collect();
        let ends: Vec<u64> = ends.into_iter().map(|second| second * 1000).collect();
        let shown: Vec<u64> = series["unix_ms"].as_array().unwrap().iter().map(|at| at.as_u64().unwrap()).collect();
        // Behind the missing second a slice begins as late as its answer says.
        assert!(shown.len() == ends.len() && shown.iter().zip(&ends).all(|(is, end)| end - is <= 1), "{shown:?}");
        assert_eq!((&series["step_ms"][0], &series["step_ms"][1]), (&1000.into(), &15_000.into()));
        // 16 bytes in a second, 225 in 15; in the seconds n + 10; at last 7.
        let (whole, rate) = (&series["series"][0], |of: &serde_json::Value, at: usize| of["got_bit_s"][at].clone());
        assert_eq!([0, 1, 2, 22].map(|at| rate(whole, at)), [128, 120, 880, 56].map(serde_json::Value::from));
        // What the class did that is gone counts for the link, and its percentiles for none. Above
        // others a class has those of the worst.
        let a = series["series"].as_array().unwrap().iter().find(|line| line["class"] == "a").unwrap();
        assert_eq!([0, 1, 2].map(|at| rate(a, at)), [64, 80, 80].map(serde_json::Value::from));
        assert_eq!((&a["p99_ns"][2], &whole["p99_ns"][2]), (&1024.into(), &1024.into()));
        assert!(past.memory() < 10_000, "{}", past.memory());
        // Of nothing it begins with nothing.
        let past = Past::begun(1 << 20, &classes(), &Earlier::default(), (until, until));
        assert!(past.series("wan", None, (0, u64::MAX)).unwrap().is_empty());
    }

    #[test]
    fn as_much_is_asked_for_as_is_not_too_much() {
        assert_eq!((seconds(1), seconds(100)), (300 + 1440 * 15, 300 + 1440 * 15));
        assert_eq!((seconds(400), seconds(10_000), seconds(1_000_000)), (300 + 200 * 15, 20, 0));
    }
}
