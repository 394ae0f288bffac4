//! What a running altq has kept of its links, as its control socket gives it (`altq.past/1`,
//! docs/top.md), and what was changed meanwhile.
//!
//! altq's monitor is not linked here, so that a page needs only its documents. What a page does not
//! show is left out of the types.

use std::collections::HashMap;

use serde::Deserialize;

/// All that a page is about.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The links.
    pub links: Vec<Link>,
    /// What was changed of the policy in this time, the oldest first.
    pub changes: Vec<Change>,
    /// When promises may have been changed last, in ns since 1970: in this time or before it. The
    /// confirmation of a change changes none.
    pub altered: Option<u64>,
    /// The beginning of the time that was asked for, in ns since 1970.
    pub from: u64,
    /// Its end.
    pub to: u64,
    /// What else is to be said, a sentence each.
    pub notes: Vec<String>,
    /// How the page was made: the command.
    pub command: String,
    /// The version of altq that made it.
    pub version: String,
}

/// A change of the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Its number.
    pub number: u64,
    /// When it was made, in ns since 1970.
    pub unix_ns: u64,
    /// What was done, for people.
    pub what: String,
    /// Who asked for it; empty: altq itself.
    pub by: String,
    /// What differed, a line each.
    pub lines: Vec<String>,
    /// How many more lines there were.
    pub more: usize,
}

/// What is kept of a link.
#[derive(Clone, Debug, Default)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// What executes it.
    pub path: String,
    /// Whether its rate follows the line.
    pub adapts: bool,
    /// When it was asked, in ns since 1970.
    pub now: u64,
    /// When the oldest slice began that is kept.
    pub begins: Option<u64>,
    /// Its classes as they are now; the first is the link itself.
    pub classes: Vec<Class>,
    /// What they did, the oldest first.
    pub slices: Vec<Slice>,
    /// When the last slice ended in which it had another rate than now, in ns since 1970: a client
    /// may set the rate, which is no change of the policy.
    pub rate_altered: Option<u64>,
    /// The documents, a line each.
    pub json: String,
}

/// A class, and what it is promised now.
#[derive(Clone, Debug, Default)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// The place of the class above; `None` for the link itself.
    pub parent: Option<usize>,
    /// How deep it stands; the link itself at 0.
    pub depth: usize,
    /// Whether classes are below it.
    pub is_inner: bool,
    /// The rate that it is guaranteed, bit/s.
    pub guaranteed: Option<u64>,
    /// The highest rate that it may reach, bit/s.
    pub ceiling: Option<u64>,
    /// The longest that its packets may wait.
    pub bound: Bound,
}

/// The longest that packets may wait, in ns; `None` where nothing is promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Bound {
    /// A packet of a source that keeps to the class's guarantee.
    pub conforming: Option<u64>,
    /// The last packet of a full queue.
    pub queue_full: Option<u64>,
}

/// A stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// When it began, in ns since 1970.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
    /// How often waiting packets were counted in it.
    pub seconds: u64,
    /// What the own packets of classes did, by their places.
    pub points: Vec<(usize, Point)>,
}

/// What a class's own packets did in a stretch of time, or in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Packets sent.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What the link charged for them.
    pub wire: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets marked.
    pub marked: u64,
    /// Charged bytes beyond its guarantee.
    pub borrowed: u64,
    /// Charged bytes of its guarantee that others used.
    pub lent: u64,
    /// Bytes that waited at the end of each second, added up.
    pub waiting: u64,
    /// The median wait in ns; of several stretches of time or classes the largest.
    pub p50: u64,
    /// The 99th percentile, as well.
    pub p99: u64,
    /// Charged bytes that it could claim by its guarantee.
    pub promised: u64,
    /// What of these it did not get.
    pub missed: u64,
}

impl Point {
    /// Adds what another stretch of time, or another class, did.
    pub fn add(&mut self, other: &Point) {
        for (sum, more) in [
            (&mut self.packets, other.packets),
            (&mut self.bytes, other.bytes),
            (&mut self.wire, other.wire),
            (&mut self.dropped, other.dropped),
            (&mut self.marked, other.marked),
            (&mut self.borrowed, other.borrowed),
            (&mut self.lent, other.lent),
            (&mut self.waiting, other.waiting),
            (&mut self.promised, other.promised),
            (&mut self.missed, other.missed),
        ] {
            *sum = sum.saturating_add(more);
        }
        (self.p50, self.p99) = (self.p50.max(other.p50), self.p99.max(other.p99));
    }

    fn of(numbers: &[u64; 13]) -> Point {
        let [_, packets, bytes, wire, dropped, marked, borrowed, lent, waiting, p50, p99, promised, missed] = *numbers;
        Point { packets, bytes, wire, dropped, marked, borrowed, lent, waiting, p50, p99, promised, missed }
    }
}

/// `altq.past/1`.
#[derive(Deserialize)]
struct Document {
    link: String,
    path: String,
    adapts: bool,
    now_unix_ns: u64,
    begins_unix_ns: Option<u64>,
    classes: Vec<ClassDocument>,
    slices: Vec<Piece>,
}

#[derive(Deserialize)]
struct ClassDocument {
    name: String,
    parent: Option<String>,
    guaranteed_bit_s: Option<u64>,
    ceiling_bit_s: Option<u64>,
    delay_bound_ns: Bound,
}

#[derive(Deserialize)]
struct Piece {
    from_unix_ns: u64,
    to_unix_ns: u64,
    seconds: u64,
    /// An altq of an earlier version does not tell it.
    #[serde(default)]
    rate_bit_s: Option<u64>,
    points: Vec<[u64; 13]>,
}

impl Link {
    /// Puts the documents about a link together, which follow one another. The classes are those of
    /// the last one; what others did is the link's.
    ///
    /// # Errors
    /// A document cannot be read, or there is none.
    pub fn read(documents: &[String]) -> Result<Link, String> {
        let mut link = Link::default();
        let mut read: Vec<Document> = Vec::with_capacity(documents.len());
        for json in documents {
            read.push(serde_json::from_str(json).map_err(|error| error.to_string())?);
            link.json += json;
            link.json.push('\n');
        }
        let Some(last) = read.last() else { return Err("altq has said nothing".to_owned()) };
        (link.name, link.path) = (last.link.clone(), last.path.clone());
        (link.adapts, link.now) = (last.adapts, last.now_unix_ns);
        link.begins = read.iter().filter_map(|document| document.begins_unix_ns).min();
        link.classes = classes(&last.classes);
        let mut places: HashMap<&str, usize> = HashMap::with_capacity(link.classes.len());
        for (place, class) in link.classes.iter().enumerate() {
            places.entry(class.name.as_str()).or_insert(place);
        }
        let rate = last.classes.first().and_then(|class| class.guaranteed_bit_s);
        let pieces = read.iter().flat_map(|document| &document.slices);
        let others = pieces.filter(|piece| piece.rate_bit_s.is_some() && piece.rate_bit_s != rate);
        link.rate_altered = others.map(|piece| piece.to_unix_ns).max();
        let mut slices = Vec::new();
        for document in &read {
            // A class may have the name of its link.
            let name = |class: &ClassDocument| places.get(class.name.as_str()).copied().unwrap_or(0);
            let found: Vec<usize> = document.classes.iter().map(name).collect();
            for piece in &document.slices {
                let mut points: Vec<(usize, Point)> = Vec::with_capacity(piece.points.len());
                for numbers in &piece.points {
                    let at = usize::try_from(numbers[0]).ok().and_then(|class| found.get(class).copied());
                    points.push((at.unwrap_or(0), Point::of(numbers)));
                }
                let Piece { from_unix_ns: begin, to_unix_ns: end, seconds, .. } = *piece;
                slices.push(Slice { begin, end, seconds, points });
            }
        }
        link.slices = slices;
        Ok(link)
    }
}

/// The classes that have a name, with their places in the tree, each behind the class above it.
fn classes(documents: &[ClassDocument]) -> Vec<Class> {
    let named: Vec<&ClassDocument> = documents.iter().filter(|class| !class.name.is_empty()).collect();
    let mut below: HashMap<&str, Vec<&ClassDocument>> = HashMap::new();
    for class in named.iter().skip(1) {
        below.entry(class.parent.as_deref().unwrap_or_default()).or_default().push(class);
    }
    let mut classes: Vec<Class> = Vec::with_capacity(named.len());
    let mut open: Vec<(&ClassDocument, Option<usize>)> = named.first().map(|link| (*link, None)).into_iter().collect();
    while let Some((class, parent)) = open.pop() {
        let place = classes.len();
        // Once only: a document in which classes are below each other ends as well.
        let children = below.remove(class.name.as_str()).unwrap_or_default();
        let depth = parent.and_then(|parent| classes.get(parent)).map_or(0, |above| above.depth + 1);
        classes.push(Class {
            name: class.name.clone(),
            parent,
            depth,
            is_inner: !children.is_empty(),
            guaranteed: class.guaranteed_bit_s,
            ceiling: class.ceiling_bit_s,
            bound: class.delay_bound_ns,
        });
        open.extend(children.into_iter().rev().map(|child| (child, Some(place))));
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(classes: &str, slices: &str) -> String {
        format!(
            r#"{{"schema":"altq.past/1","link":"wan","path":"bridge","adapts":false,"now_unix_ns":9,
               "begins_unix_ns":1,"classes":[{classes}],"slices":[{slices}],"next_ns":null}}"#
        )
    }

    fn class(name: &str, parent: Option<&str>) -> String {
        let parent = parent.map_or("null".to_owned(), |name| format!("{name:?}"));
        format!(
            r#"{{"name":"{name}","parent":{parent},"guaranteed_bit_s":5,"ceiling_bit_s":null,
               "delay_bound_ns":{{"conforming":null,"queue_full":7}}}}"#
        )
    }

    fn slice(from: u64, to: u64, points: &str) -> String {
        format!(r#"{{"from_unix_ns":{from},"to_unix_ns":{to},"seconds":1,"points":[{points}]}}"#)
    }

    #[test]
    fn documents_with_other_classes_become_one_link() {
        // In the first document b is class 1 and gone is class 2; in the second there are a number
        // without a class, a, b below a, and one more below the link.
        let first = [class("wan", None), class("b", Some("wan")), class("gone", Some("wan"))].join(",");
        let second =
            [class("wan", None), class("", Some("wan")), class("b", Some("a")), class("a", Some("wan"))].join(",");
        let second = second + "," + &class("c", Some("wan"));
        let one = document(&first, &slice(1, 2, "[1,3,300,310,1,2,4,5,6,70,80,9,8],[2,1,1,1,0,0,0,0,0,0,0,0,0]"));
        let two = document(&second, &slice(2, 3, "[2,1,100,110,0,0,0,0,0,90,99,0,0],[9,1,1,1,0,0,0,0,0,0,0,0,0]"));
        let link = Link::read(&[one, two]).unwrap();
        let tree: Vec<_> = link.classes.iter().map(|c| (c.name.as_str(), c.parent, c.depth, c.is_inner)).collect();
        let expected =
            [("wan", None, 0, true), ("a", Some(0), 1, true), ("b", Some(1), 2, false), ("c", Some(0), 1, false)];
        assert_eq!(tree, expected);
        assert_eq!((link.name.as_str(), link.begins, link.classes[1].bound.queue_full), ("wan", Some(1), Some(7)));
        let places: Vec<Vec<usize>> =
            link.slices.iter().map(|slice| slice.points.iter().map(|(place, _)| *place).collect()).collect();
        // What nobody knows is the link's.
        assert_eq!(places, [[2, 0], [2, 0]]);
        let mut sum = link.slices[0].points[0].1;
        let point = Point { packets: 3, bytes: 300, wire: 310, dropped: 1, marked: 2, borrowed: 4, ..sum };
        assert_eq!((sum, sum.lent, sum.waiting, sum.p50, sum.missed), (point, 5, 6, 70, 8));
        sum.add(&link.slices[1].points[0].1);
        assert_eq!((sum.packets, sum.wire, sum.p50, sum.p99, sum.promised), (4, 420, 90, 99, 9));
    }

    #[test]
    fn another_rate_than_now_is_noticed() {
        let with = |from: u64, rate: &str| {
            slice(from, from + 1, "").replace("\"points\"", &format!("\"rate_bit_s\":{rate},\"points\""))
        };
        let altered = |slices: &[String]| {
            // The link has 5 bit/s now.
            Link::read(&[document(&class("wan", None), &slices.join(","))]).unwrap().rate_altered
        };
        assert_eq!(altered(&[with(1, "5"), with(2, "4"), with(3, "6"), with(4, "5")]), Some(4));
        assert_eq!(altered(&[with(1, "5"), with(2, "null"), slice(3, 4, "")]), None);
    }

    #[test]
    fn what_is_no_document_is_said() {
        assert!(Link::read(&[]).is_err());
        assert!(Link::read(&["{}".to_owned()]).unwrap_err().contains("missing field"));
        // Classes that stand in a circle are left out.
        let circle = [class("wan", None), class("a", Some("b")), class("b", Some("a"))].join(",");
        assert_eq!(Link::read(&[document(&circle, "")]).unwrap().classes.len(), 1);
    }
}
