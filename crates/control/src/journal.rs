//! What clients have changed, so that a worker that starts anew can be given it again.
//!
//! A worker notes each change that it has made as a request, a line of JSON. Whoever keeps the
//! notes can ask for all of them later.

mod reservations;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::client::Client;
use crate::fault::Fault;
use crate::request::{self, Request, Written};
use reservations::Reservations;

pub use reservations::{gone, saved};

/// Subscribers of one request when all are given again. Even with the longest names and words they
/// are less than a line may have.
const PART: usize = 50;

/// What was changed, and still holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    rates: BTreeMap<String, u64>,
    subscribers: BTreeMap<String, Written>,
    reservations: Reservations,
}

#[derive(Serialize)]
struct SetLink<'a> {
    op: &'a str,
    link: &'a str,
    rate_bit_s: u64,
}

#[derive(Serialize)]
struct SetSubscribers<'a> {
    op: &'a str,
    subscribers: &'a [Written],
}

#[derive(Serialize)]
struct DeleteSubscribers<'a> {
    op: &'a str,
    ids: &'a [String],
}

/// The fields of a request that is sent by a [`Client`], which adds its name.
#[derive(Serialize)]
struct Rate<'a> {
    link: &'a str,
    rate_bit_s: u64,
}

#[derive(Serialize)]
struct Part<'a> {
    subscribers: &'a [Written],
}

/// A change as a line.
pub fn note(change: &Request) -> Vec<u8> {
    let made = match change {
        Request::SetLink { link, rate_bit_s } => {
            serde_json::to_vec(&SetLink { op: "link.set", link, rate_bit_s: *rate_bit_s })
        }
        Request::SetSubscribers(subscribers) => {
            let subscribers: Vec<Written> = subscribers.iter().map(Written::from).collect();
            serde_json::to_vec(&SetSubscribers { op: "subscriber.set", subscribers: &subscribers })
        }
        Request::DeleteSubscribers(ids) => serde_json::to_vec(&DeleteSubscribers { op: "subscriber.del", ids }),
        Request::Status | Request::Stat { .. } | Request::ListSubscribers => return Vec::new(),
        // What comes of such a request is noted for each reservation: `saved`, `gone`.
        Request::Reserve(_) => return Vec::new(),
    };
    // It fails only for maps with keys that are not text, of which there are none.
    let mut line = made.unwrap_or_default();
    line.push(b'\n');
    line
}

impl Journal {
    /// Takes a note. What is none is left out.
    pub fn take(&mut self, line: &[u8]) {
        if self.reservations.take(line) {
            return;
        }
        match request::read(line).map(|asked| asked.request) {
            Ok(Request::SetLink { link, rate_bit_s }) => _ = self.rates.insert(link, rate_bit_s),
            Ok(Request::SetSubscribers(subscribers)) => {
                let written = subscribers.iter().map(|one| (one.id.clone(), Written::from(one)));
                self.subscribers.extend(written);
            }
            Ok(Request::DeleteSubscribers(ids)) => ids.iter().for_each(|id| _ = self.subscribers.remove(id)),
            _ => {}
        }
    }

    /// The policy is read again: its rates hold.
    pub fn forget_rates(&mut self) {
        self.rates.clear();
    }

    /// True if nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.rates.is_empty() && self.subscribers.is_empty() && self.reservations.is_empty()
    }

    /// True if the next worker has to wait for reservations before it answers about them.
    pub fn has_reservations(&self) -> bool {
        !self.reservations.is_empty()
    }

    /// Asks for all of it again.
    ///
    /// # Errors
    /// The first fault; the rest is asked for nevertheless, as far as the connection lasts.
    pub fn give(&self, client: &mut Client) -> Result<(), Fault> {
        let mut result = Ok(());
        for (link, rate) in &self.rates {
            let asked = client.ask("link.set", &Rate { link, rate_bit_s: *rate });
            result = result.and(asked.map(drop));
        }
        let subscribers: Vec<Written> = self.subscribers.values().cloned().collect();
        for part in subscribers.chunks(PART) {
            let asked = client.ask("subscriber.set", &Part { subscribers: part });
            result = result.and(asked.map(drop));
        }
        if self.has_reservations() {
            result = result.and(self.reservations.give(client));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Request {
        request::read(text.as_bytes()).unwrap().request
    }

    #[test]
    fn what_still_holds_is_kept() {
        let mut journal = Journal::default();
        assert!(journal.is_empty());
        let set = r#"{"op":"subscriber.set","subscribers":[
            {"id":"a","addr":["10.0.0.1"],"classes":[{"link":"down","rate_bit_s":1000}]},
            {"id":"b","addr":["10.0.0.2"],"classes":[{"link":"down","words":"share 1%"}]}]}"#;
        let again = r#"{"op":"subscriber.set","subscribers":[
            {"id":"a","addr":["10.0.0.9"],"classes":[{"link":"down","rate_bit_s":2000}]}]}"#;
        let rate = r#"{"op":"link.set","link":"up","rate_bit_s":5}"#;
        for text in [set, again, r#"{"op":"subscriber.del","ids":["b","c"]}"#, rate, r#"{"op":"status"}"#] {
            let line = note(&asked(text));
            assert!(line.iter().filter(|byte| **byte == b'\n').count() <= 1);
            journal.take(&line);
        }
        journal.take(b"nonsense");
        let kept: Vec<&Written> = journal.subscribers.values().collect();
        assert_eq!((kept.len(), kept[0].addr[0].as_str()), (1, "10.0.0.9"));
        assert_eq!(journal.rates.get("up"), Some(&5));
        journal.forget_rates();
        journal.take(&note(&asked(r#"{"op":"subscriber.del","ids":["a"]}"#)));
        assert!(journal.is_empty());
    }
}
