//! The events that browsers are sent, schema `altq.web/1` (docs/web.md). A snapshot describes all
//! classes; a change has only the figures of classes whose figures have changed.
//!
//! A client may want parts: then events of few rows follow each other instead of one with all of
//! them. A browser that reads 10,000 rows in one piece misses frames of its screen.

use std::borrow::Cow;

use altq_control::document::LinkStatus;
use altq_engine::spec::ClassId;
use altq_engine::units::{Nanos, Rate};
use serde::Serialize;

use crate::changes::Mark;
use crate::frame::{Classes, Frame, Row, Shown};

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Document<'a> {
    schema: &'static str,
    seq: u64,
    unix_ms: u64,
    error: Option<Cow<'a, str>>,
    links: Vec<Link<'a>>,
    marks: &'a [Mark],
    /// True if the next event has more rows of the same `seq`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more: bool,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Link<'a> {
    #[serde(flatten)]
    status: &'a LinkStatus,
    step_ms: u64,
    figures_unix_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    classes: Option<Vec<Class<'a>>>,
    rows: Vec<Figures<'a>>,
}

/// A class: its name, the number of the class above (null for the link itself), guarantee and
/// ceiling in bit/s, scheduler, and the longest wait of the last packet of a full queue, in ns.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Class<'a>(&'a str, Option<ClassId>, Option<u64>, Option<u64>, &'a str, Option<Nanos>);

/// A class's number and its figures: arrived, got, borrowed and lent in bit/s, p50 and p99 in ns,
/// drops and marks in the step, packets and bytes that wait, and what limited it.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Figures<'a>(ClassId, u64, u64, u64, u64, Nanos, Nanos, u64, u64, u64, u64, &'a str);

/// In what pieces a client wants the rows of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// One event with all rows.
    Whole,
    /// Events of at most [`PART`] rows.
    Parts,
}

/// The most rows of a part: some 40 kB, which a browser reads in a small part of a frame.
pub const PART: usize = 500;

/// The event with everything.
pub fn snapshot(frame: &Frame, cut: Cut) -> String {
    events("snapshot", frame, cut, |shown| (0..shown.rows.len() as ClassId).collect())
}

/// The event with what has changed since the previous frame.
pub fn change(frame: &Frame, cut: Cut) -> String {
    events("change", frame, cut, |shown| shown.changed.clone())
}

/// The events of a frame: the first one has the name, and the others, if there are any, are
/// changes.
fn events(name: &str, frame: &Frame, cut: Cut, of: impl Fn(&Shown) -> Vec<ClassId>) -> String {
    let most = match cut {
        Cut::Whole => usize::MAX,
        Cut::Parts => PART,
    };
    let classes: Vec<Vec<ClassId>> = frame.links.iter().map(of).collect();
    let mut rest: Vec<&[ClassId]> = classes.iter().map(Vec::as_slice).collect();
    let (mut text, mut name) = (String::new(), name);
    loop {
        let mut room = most;
        let mut part = Vec::with_capacity(rest.len());
        for rest in &mut rest {
            let (now, later) = rest.split_at(rest.len().min(room));
            room -= now.len();
            part.push(now);
            *rest = later;
        }
        let more = rest.iter().any(|rest| !rest.is_empty());
        text.push_str(&event(name, frame, &part, more));
        if !more {
            return text;
        }
        name = "change";
    }
}

/// An event of the stream: name, number, and a line of data. JSON has no newline of its own.
/// `rows`: the classes of each link whose figures it has.
fn event(name: &str, frame: &Frame, rows: &[&[ClassId]], more: bool) -> String {
    let links = frame.links.iter().zip(rows).map(|(shown, rows)| {
        let classes = shown.classes.as_ref().filter(|_| name == "snapshot").map(|classes| described(classes));
        let rows = rows.iter().filter_map(|&class| Some(figures(class, shown.rows.get(class as usize)?)));
        Link {
            status: &shown.status,
            step_ms: shown.step / 1_000_000,
            figures_unix_ms: shown.unix_ms,
            classes,
            rows: rows.collect(),
        }
    });
    let document = Document {
        schema: "altq.web/1",
        seq: frame.seq,
        unix_ms: frame.unix_ms,
        error: frame.fault.as_ref().map(|fault| Cow::Owned(fault.to_string())),
        links: links.collect(),
        marks: &frame.marks,
        more,
    };
    // It fails only for maps with keys that are not text, of which there are none.
    let json = serde_json::to_string(&document).unwrap_or_default();
    format!("event: {name}\nid: {}\ndata: {json}\n\n", frame.seq)
}

fn described(classes: &Classes) -> Vec<Class<'_>> {
    let all = (0..).zip(classes.tree.classes().iter().zip(&classes.more));
    all.map(|(at, (class, more))| {
        let (asked, ceiling) = (class.asked.map(Rate::as_bit_s), class.ceiling.map(Rate::as_bit_s));
        Class(&class.name, classes.tree.parent(at), asked, ceiling, &more.scheduler, more.bound.queue_full)
    })
    .collect()
}

fn figures(class: ClassId, row: &Row) -> Figures<'_> {
    Figures(
        class,
        row.received_bit_s,
        row.got_bit_s,
        row.borrowed_bit_s,
        row.lent_bit_s,
        row.p50,
        row.p99,
        row.drops,
        row.marks,
        row.backlog_packets,
        row.backlog_bytes,
        &row.limited_by,
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use altq_control::{Code, Fault};
    use altq_monitor::tree::{Class, Tree};

    use super::*;
    use crate::frame::More;
    use crate::stat::Bound;

    fn frame() -> Frame {
        let class = |name: &str, rate: Option<u64>| Class {
            name: name.to_owned(),
            parent: 0,
            asked: rate.map(Rate::bit_s),
            ceiling: rate.map(Rate::bit_s),
        };
        let tree = Tree::new(vec![class("wan", Some(1000)), class("</script>\n\"x", None)]).unwrap();
        let more = More { scheduler: "s".to_owned(), bound: Bound { conforming: Some(1), queue_full: Some(2) } };
        let row = |got| Row { got_bit_s: got, limited_by: "link".to_owned(), p99: 9, ..Row::default() };
        let status = LinkStatus {
            name: "wan".to_owned(),
            path: "bridge".to_owned(),
            state: "shaping".to_owned(),
            since_s: 4,
            reason: None,
            drift: Vec::new(),
            set_by_clients: 0,
        };
        let shown = Shown {
            status,
            classes: Some(Arc::new(Classes { tree, more: vec![more.clone(), more] })),
            rows: vec![row(7), row(8)],
            changed: vec![1],
            step: 1_000_000_000,
            unix_ms: 3,
        };
        let marks = vec![Mark { unix_ms: 1, link: "wan".to_owned(), what: "new: x".to_owned() }];
        Frame { seq: 5, unix_ms: 2, links: vec![shown], marks, ..Frame::default() }
    }

    #[test]
    fn events_are_three_lines_and_an_empty_one() {
        let around = |links: &str| {
            let start = r#"data: {"schema":"altq.web/1","seq":5,"unix_ms":2,"error":null,"links":[{"name":"wan","#;
            let status = r#""path":"bridge","state":"shaping","since_s":4,"reason":null,"drift":[],"step_ms":1000,"#;
            let marks = r#""marks":[{"unix_ms":1,"link":"wan","what":"new: x"}]}"#;
            format!(r#"{start}{status}"figures_unix_ms":3,{links}}}],{marks}"#)
        };
        let classes = r#""classes":[["wan",null,1000,1000,"s",2],["</script>\n\"x",0,null,null,"s",2]]"#;
        let rows = [r#"[0,0,7,0,0,0,9,0,0,0,0,"link"]"#, r#"[1,0,8,0,0,0,9,0,0,0,0,"link"]"#];
        let whole = around(&format!(r#"{classes},"rows":[{},{}]"#, rows[0], rows[1]));
        assert_eq!(snapshot(&frame(), Cut::Whole), format!("event: snapshot\nid: 5\n{whole}\n\n"));
        let part = around(&format!(r#""rows":[{}]"#, rows[1]));
        assert_eq!(change(&frame(), Cut::Whole), format!("event: change\nid: 5\n{part}\n\n"));
        // If the classes have changed, a change has everything.
        let mut other = frame();
        other.whole = true;
        assert!(other.change(Cut::Whole).starts_with(b"event: snapshot\n"));
        assert!(frame().change(Cut::Whole).starts_with(b"event: change\n"));
    }

    /// Parts have the rows of the whole event, each one once and in order, and the classes once.
    #[test]
    fn parts_have_together_what_the_whole_event_has() {
        let mut frame = frame();
        let (one, many) = (&frame.links[0], 2 * PART + 1);
        let rows: Vec<Row> = (0..many as u64).map(|got| Row { got_bit_s: got, ..Row::default() }).collect();
        let mut other = Shown { rows, changed: (0..many as u32).collect(), ..one.clone() };
        other.status.name = "lan".to_owned();
        frame.links.push(other);
        let read = |text: &str| -> Vec<(String, serde_json::Value)> {
            let events = text.split_terminator("\n\n").map(|event| {
                let (name, data) = event.split_once("\nid: 5\ndata: ").unwrap();
                (name.to_owned(), serde_json::from_str(data).unwrap())
            });
            events.collect()
        };
        let rows = |events: &[(String, serde_json::Value)], link: usize| -> Vec<serde_json::Value> {
            events.iter().flat_map(|(_, data)| data["links"][link]["rows"].as_array().unwrap().clone()).collect()
        };
        for (make, name) in [(snapshot as fn(&Frame, Cut) -> String, "event: snapshot"), (change, "event: change")] {
            let (whole, parts) = (read(&make(&frame, Cut::Whole)), read(&make(&frame, Cut::Parts)));
            assert_eq!((whole.len(), parts.len(), &whole[0].0, &parts[0].0), (1, 3, &name.into(), &name.into()));
            for link in 0..2 {
                assert_eq!(rows(&parts, link), rows(&whole, link));
            }
            for (at, (event, data)) in parts.iter().enumerate() {
                let count: usize = (0..2).map(|link| data["links"][link]["rows"].as_array().unwrap().len()).sum();
                assert!(count <= PART, "{count}");
                assert_eq!(data.get("more").is_some_and(|more| more == true), at < 2);
                assert_eq!(data["marks"], whole[0].1["marks"]);
                assert_eq!(data["links"][1].get("classes").is_some(), at == 0 && name.ends_with("snapshot"));
                assert!(at == 0 || event == "event: change");
            }
        }
        assert_eq!(snapshot(&Frame::default(), Cut::Parts), snapshot(&Frame::default(), Cut::Whole));
    }

    #[test]
    fn an_error_is_said() {
        let fault = Fault::new(Code::Failed, "no altq runs").help("start it");
        let said = snapshot(&Frame { fault: Some(fault), ..Frame::default() }, Cut::Whole);
        assert!(said.contains(r#""error":"no altq runs; start it","links":[]"#), "{said}");
    }
}
