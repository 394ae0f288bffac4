//! The reservations of the links in the journal. A worker sends a note whenever a reservation
//! changes or ends.

use std::collections::BTreeMap;

use altq_reserve::{FORM, Saved, State};
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::fault::Fault;
use crate::reservations::RESTORE;

/// The operation that every note about a reservation has.
const NOTE: &str = "reserve.note";
/// About as many bytes of reservations are sent in one request. A single reservation always fits
/// into a request.
const PART: usize = 1 << 18;

/// A note.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    op: String,
    link: String,
    /// What the reservation is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    saved: Option<Saved>,
    /// The number of a reservation that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gone: Option<u64>,
}

/// The note about a reservation of a link, as a line.
pub fn saved(link: &str, saved: Saved) -> Vec<u8> {
    line(Note { op: NOTE.to_owned(), link: link.to_owned(), saved: Some(saved), gone: None })
}

/// The note that a reservation of a link has ended, as a line.
pub fn gone(link: &str, id: u64) -> Vec<u8> {
    line(Note { op: NOTE.to_owned(), link: link.to_owned(), saved: None, gone: Some(id) })
}

fn line(note: Note) -> Vec<u8> {
    // It fails only for maps with keys that are not text, of which there are none.
    let mut line = serde_json::to_vec(&note).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The reservations that still hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reservations {
    links: BTreeMap<String, Link>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Link {
    saved: BTreeMap<u64, Saved>,
    /// The lowest number that the next reservation may get: no number is used twice.
    next: u64,
}

/// The fields of a request that restores some of them.
#[derive(Serialize)]
struct Part<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a State>,
    last: bool,
}

impl Reservations {
    /// Takes a note. False if the line is not a note about a reservation.
    pub fn take(&mut self, line: &[u8]) -> bool {
        if !line.starts_with(br#"{"op":"reserve."#) {
            return false;
        }
        let Ok(Note { op, link, saved, gone }) = serde_json::from_slice::<Note>(line) else { return false };
        if op != NOTE {
            return false;
        }
        let link = self.links.entry(link).or_default();
        if let Some(saved) = saved {
            link.next = link.next.max(saved.id.saturating_add(1));
            link.saved.insert(saved.id, saved);
        }
        if let Some(gone) = gone {
            link.saved.remove(&gone);
        }
        true
    }

    /// True if there have never been reservations.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// All reservations, in parts that fit into requests.
    pub fn states(&self) -> impl Iterator<Item = State> {
        self.links.iter().flat_map(|(name, link)| link.parts(name))
    }

    /// Sends all reservations to a new worker.
    ///
    /// # Errors
    /// The first fault. The rest is sent nevertheless, as long as the connection lasts.
    pub fn give(&self, client: &mut Client) -> Result<(), Fault> {
        let mut result = Ok(());
        for state in self.states() {
            let given = client.ask(RESTORE, &Part { state: Some(&state), last: false });
            result = result.and(given.map(drop));
        }
        result
    }
}

/// Tells a new worker that it has been sent all changes.
///
/// # Errors
/// It may not know.
pub fn that_is_all(client: &mut Client) -> Result<(), Fault> {
    client.ask(RESTORE, &Part { state: None, last: true }).map(drop)
}

impl Link {
    /// The reservations in parts that fit into requests, lower numbers first.
    fn parts(&self, name: &str) -> Vec<State> {
        let part = |reservations: Vec<Saved>| {
            let (form, link, next_id) = (FORM, name.to_owned(), self.next);
            State { form, link, next_id, reservations }
        };
        let (mut parts, mut some, mut bytes) = (Vec::new(), Vec::new(), 0);
        for saved in self.saved.values() {
            some.push(saved.clone());
            bytes += serde_json::to_vec(saved).map_or(0, |text| text.len());
            if bytes >= PART {
                parts.push(part(std::mem::take(&mut some)));
                bytes = 0;
            }
        }
        // The next number is sent even if there are no reservations.
        parts.push(part(some));
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reservation(id: u64, key: &str) -> Saved {
        let text = format!(
            r#"{{"id":{id},"key":"{key}","owner":null,"flows":[{{"dport":{id},"proto":"udp"}}],
            "tspec":{{"rate_bit_s":1000,"burst_bytes":1500}},"excess":"borrow","delay_ns":null,"ttl_ns":null,
            "deadline_boot_ns":7}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn what_still_holds_is_kept_with_the_number_of_the_next() {
        let mut kept = Reservations::default();
        assert!(kept.is_empty());
        for line in [
            saved("wan", reservation(1, "a")),
            saved("wan", reservation(2, "b")),
            saved("lan", reservation(1, "c")),
            saved("wan", reservation(1, "a2")),
            gone("wan", 2),
        ] {
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert!(kept.take(&line));
        }
        for line in ["", "nonsense", r#"{"op":"status"}"#, r#"{"op":"reserve.del","key":"a"}"#] {
            assert!(!kept.take(line.as_bytes()), "{line}");
        }
        let parts = kept.links["wan"].parts("wan");
        let expected = State { form: FORM, link: "wan".into(), next_id: 3, reservations: vec![reservation(1, "a2")] };
        assert_eq!(parts, [expected]);
        assert_eq!(kept.links["lan"].parts("lan").len(), 1);
    }

    #[test]
    fn many_are_given_in_parts_that_a_request_holds() {
        let mut link = Link { next: 5001, ..Link::default() };
        link.saved.extend((1..=5000).map(|id| (id, reservation(id, &"k".repeat(255)))));
        let parts = link.parts("wan");
        assert!(parts.len() > 2);
        let ids: Vec<u64> = parts.iter().flat_map(|part| &part.reservations).map(|saved| saved.id).collect();
        assert_eq!(ids, (1..=5000).collect::<Vec<u64>>());
        for part in &parts {
            assert!(serde_json::to_vec(part).unwrap().len() < crate::request::WRITE_LINE / 2);
        }
    }
}
