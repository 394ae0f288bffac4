//! What clients have changed, so that a new worker can be given the same changes.
//!
//! A worker writes each change that it has made as a request, a line of JSON (a note). The
//! supervisor keeps the notes and sends them to the next worker.

mod reservations;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use altq_config::Link;
use serde::Serialize;

use crate::client::Client;
use crate::fault::Fault;
use crate::request::{self, BULK, Request, WRITE_LINE, Written};
use crate::roster::followed::would_not_fit;
use crate::roster::reserved::Time;
use crate::roster::{Failure, Report, Roster};
use reservations::Reservations;

pub use reservations::{gone, saved, that_is_all};

/// The longest list of subscribers in one request to a new worker, in bytes of JSON. With the rest
/// of the request it fits into a line.
const PART: usize = WRITE_LINE / 2;

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

/// The fields of a request. The [`Client`] that sends it adds its name.
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
        // It is noted as the removal of those that had the address.
        Request::DeleteSubscribersAt { .. } => return Vec::new(),
        Request::Top(_) | Request::Past(_) => return Vec::new(),
        // The next worker needs neither: the supervisor tells drift again, and a tap ends with its
        // worker.
        Request::TellDrift(_) | Request::Tap(_) => return Vec::new(),
        // The outcome of such a request is noted for each reservation (`saved`, `gone`). Changes of
        // the policy are kept elsewhere (`change`).
        Request::Reserve(_) | Request::Change(_) => return Vec::new(),
    };
    // It fails only for maps with keys that are not text, of which there are none.
    let mut line = made.unwrap_or_default();
    line.push(b'\n');
    line
}

impl Journal {
    /// Takes a note. A line that is not a note is ignored.
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

    /// The policy was read again: from now on its rates hold, not those that clients have set.
    pub fn forget_rates(&mut self) {
        self.rates.clear();
    }

    /// By link, the rates that clients have set, in bit/s.
    pub fn rates(&self) -> &BTreeMap<String, u64> {
        &self.rates
    }

    /// True if nothing was changed. Otherwise the next worker must wait for the changes before it
    /// answers requests about the same things.
    pub fn is_empty(&self) -> bool {
        self.rates.is_empty() && self.subscribers.is_empty() && self.reservations.is_empty()
    }

    /// Checks that the links of another policy have room for all subscribers and reservations.
    /// `room`: how many packets the queues of all subscribers may hold in each link.
    ///
    /// # Errors
    /// Those for which there is no room, or a link that the engine refuses.
    pub fn fits(&self, links: &[Link], room: usize, at: Time) -> Result<(), Fault> {
        if self.subscribers.is_empty() && self.reservations.is_empty() {
            return Ok(());
        }
        let links = links.iter().cloned().map(Arc::new);
        let mut roster = Roster::new(links, room).map_err(|error| Fault::refused(error.message))?;
        let mut said = Vec::new();
        // One that cannot be read was not noted.
        let subscribers = self.subscribers.values().filter_map(|one| one.clone().read().ok()).collect();
        for Failure { id, error } in roster.set(subscribers).0.failed {
            said.push(format!("subscriber {id}: {}", error.message));
        }
        for state in self.reservations.states() {
            for (id, why) in roster.restore(at, Some(&state), false).result.refused {
                said.push(format!("reservation {id} of link {}: {why}", state.link));
            }
        }
        match said.is_empty() {
            true => Ok(()),
            false => Err(would_not_fit(&said)),
        }
    }

    /// The subscribers of those sent to a new worker that it has refused, by its report. They no
    /// longer exist, except those that a client has changed meanwhile.
    fn refused(&mut self, sent: &[Written], report: &str) -> Vec<Failure> {
        let failed = serde_json::from_str::<Report>(report).map(|report| report.failed).unwrap_or_default();
        for one in sent.iter().filter(|one| failed.iter().any(|failure| failure.id == one.id)) {
            if self.subscribers.get(&one.id) == Some(one) {
                self.subscribers.remove(&one.id);
            }
        }
        failed
    }

    /// The subscribers of this list that still exist, as they are now.
    fn still(&self, ids: &[String]) -> Vec<Written> {
        ids.iter().filter_map(|id| self.subscribers.get(id)).cloned().collect()
    }
}

/// Locks a journal. If a thread panicked while it had the lock, the journal is still consistent.
pub fn locked(journal: &Mutex<Journal>) -> MutexGuard<'_, Journal> {
    journal.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends all changes of the journal to a new worker. That takes a while. Until it is told the
/// [end](that_is_all), the worker lets clients change neither subscribers nor reservations.
///
/// Returns the subscribers that the worker has refused, and the first fault. The rest is sent
/// nevertheless, as long as the connection lasts.
pub fn give(journal: &Mutex<Journal>, client: &mut Client) -> (Vec<Failure>, Result<(), Fault>) {
    let links: Vec<String> = locked(journal).rates.keys().cloned().collect();
    let ids: Vec<String> = locked(journal).subscribers.keys().cloned().collect();
    let (mut refused, mut result) = (Vec::new(), Ok(()));
    // Subscribers first: they fit into the rates that the policy writes.
    for ids in ids.chunks(BULK) {
        let subscribers = locked(journal).still(ids);
        for part in parts(&subscribers) {
            match client.ask("subscriber.set", &Part { subscribers: part }) {
                Ok(report) => refused.extend(locked(journal).refused(part, &report)),
                Err(fault) => result = result.and(Err(fault)),
            }
        }
    }
    for link in &links {
        let rate = locked(journal).rates.get(link).copied();
        let Some(rate_bit_s) = rate else { continue };
        let asked = client.ask("link.set", &Rate { link, rate_bit_s });
        result = result.and(asked.map(drop));
    }
    let reservations = locked(journal).reservations.clone();
    if !reservations.is_empty() {
        result = result.and(reservations.give(client));
    }
    (refused, result)
}

/// Divides subscribers among as few requests as possible, because each request hands all rules to
/// the links anew.
fn parts(subscribers: &[Written]) -> Vec<&[Written]> {
    let (mut parts, mut rest, mut size, mut count) = (Vec::new(), subscribers, 0, 0);
    for one in subscribers {
        // It fails only for maps with keys that are not text, of which there are none.
        let more = serde_json::to_string(one).map_or(0, |text| text.len() + 1);
        if count == BULK || count > 0 && size + more > PART {
            let (part, after) = rest.split_at(count);
            parts.push(part);
            (rest, size, count) = (after, 0, 0);
        }
        (size, count) = (size + more, count + 1);
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}

#[cfg(test)]
mod tests {
    use altq_config::{Language, parse_str};

    use super::*;

    fn asked(text: &str) -> Request {
        request::read(text.as_bytes()).unwrap().request
    }

    #[test]
    fn parts_are_as_few_as_fit_into_requests() {
        let one = |id: usize, words: usize| Written {
            id: id.to_string(),
            addr: vec![format!("10.0.{}.{}", id / 256, id % 256)],
            classes: vec![
                serde_json::from_value(serde_json::json!({"link": "a", "words": "x".repeat(words)})).unwrap(),
            ],
        };
        let small: Vec<Written> = (0..2500).map(|id| one(id, 5)).collect();
        let counts = |list: &[Written]| parts(list).iter().map(|part| part.len()).collect::<Vec<usize>>();
        assert_eq!(counts(&small), [BULK, BULK, 500]);
        assert_eq!(counts(&[]), [0; 0]);
        let large: Vec<Written> = (0..2500).map(|id| one(id, 2000)).collect();
        assert_eq!(counts(&large).iter().sum::<usize>(), 2500);
        for part in parts(&large) {
            assert!(serde_json::to_string(&Part { subscribers: part }).unwrap().len() <= PART + 32);
        }
    }

    #[test]
    fn who_is_refused_is_told_and_kept_no_longer() {
        let mut journal = Journal::default();
        journal.take(
            br#"{"op":"subscriber.set","subscribers":[
            {"id":"a","addr":["10.0.0.1"],"classes":[{"link":"down","rate_bit_s":1000}]},
            {"id":"b","addr":["10.0.0.2"],"classes":[{"link":"down","rate_bit_s":1000}]},
            {"id":"c","addr":["10.0.0.3"],"classes":[{"link":"down","rate_bit_s":1000}]}]}"#,
        );
        let sent = journal.still(&["a", "b", "c"].map(str::to_owned));
        // A client changes c before the answer comes.
        journal.take(
            br#"{"op":"subscriber.set","subscribers":[
            {"id":"c","addr":["10.0.0.9"],"classes":[{"link":"down","rate_bit_s":1000}]}]}"#,
        );
        let failed = |id: &str| Failure { id: id.to_owned(), error: Fault::refused("no room") };
        let report = Report { done: 1, unchanged: 0, failed: vec![failed("b"), failed("c")] };
        let told = journal.refused(&sent, &serde_json::to_string(&report).unwrap());
        assert_eq!(told, report.failed);
        assert_eq!(journal.subscribers.keys().collect::<Vec<&String>>(), ["a", "c"]);
        assert!(journal.refused(&sent, "nonsense").is_empty());
    }

    fn links(text: &str) -> Vec<Link> {
        let policy = parse_str(text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
        policy.links
    }

    /// While no worker runs, the journal alone knows what clients have made.
    #[test]
    fn who_has_no_room_in_another_policy_is_named() {
        let policy = "link down { rate 100Mbit/s  scheduler cbq
            class subscribers { share 40% }
            class res { rate 10Mbit/s  reservations { lifetime 100s } }
            class rest { share 20%  default } }";
        let (at, mut journal) = (Time { now: 5, boot: 5 }, Journal::default());
        let fits = |journal: &Journal, text: &str, room| journal.fits(&links(text), room, at);
        assert_eq!(
            fits(&journal, "link wan { rate 1Mbit/s  scheduler cbq  class x { share 10%  default } }", 9),
            Ok(())
        );
        journal.take(
            br#"{"op":"subscriber.set","subscribers":[
            {"id":"a","addr":["10.0.0.1"],"classes":[{"link":"down","rate_bit_s":10000000}]},
            {"id":"b","addr":["10.0.0.2"],"classes":[{"link":"down","words":"share 20%"}]}]}"#,
        );
        let tspec = r#"{"rate_bit_s":3000000,"burst_bytes":1500}"#;
        let reservation = format!(
            r#"{{"id":4,"key":"k","owner":null,"flows":[{{"dport":7,"proto":"udp"}}],"tspec":{tspec},
            "excess":"borrow","delay_ns":null,"ttl_ns":null,"deadline_boot_ns":null}}"#
        );
        journal.take(&saved("down", serde_json::from_str(&reservation).unwrap()));
        assert_eq!(fits(&journal, policy, 1000), Ok(()));
        for (other, room, who) in [
            (policy.replace("share 40%", "share 25%"), 1000, "subscriber b: the classes below `subscribers`"),
            (policy.replace("10Mbit/s", "2Mbit/s"), 1000, "reservation 4 of link down: "),
            (policy.replace("reservations { lifetime 100s }", ""), 1000, "reservation 4 of link down: "),
            (policy.replace("link down", "link other"), 1000, "subscriber a: no link `down` runs here"),
            (policy.replace("class rest", "class a"), 1000, "subscriber a: the link `down` has a class `a`"),
            (policy.to_owned(), 60, "subscriber b: the queues of subscribers would hold 100 packets"),
        ] {
            let fault = fits(&journal, &other, room).unwrap_err();
            assert!(fault.message.starts_with("what came while altq ran would not fit: "), "{fault}");
            assert!(fault.message.contains(who), "{other}: {fault}");
        }
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
        // A subscriber that has gone since the list of names was made is not sent again.
        let ids = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(journal.still(&ids).iter().map(|one| one.addr[0].as_str()).collect::<Vec<&str>>(), ["10.0.0.9"]);
        journal.forget_rates();
        journal.take(&note(&asked(r#"{"op":"subscriber.del","ids":["a"]}"#)));
        assert!(journal.is_empty());
    }
}
