//! Any bytes as what a client says on the control socket: lines in any pieces, and the requests in
//! them. What is accepted is within the limits, and changes nothing twice.

#![no_main]

use std::sync::Arc;

use altq_config::{LONGEST_NAME, Language, parse_str};
use altq_control::Request;
use altq_control::line::Lines;
use altq_control::request::{self, BULK, EACH};
use altq_control::reservations::Reserve;
use altq_control::roster::Roster;
use altq_control::roster::reserved::Time;
use altq_engine::Engine;
use libfuzzer_sys::fuzz_target;

const POLICY: &str = "link down { rate 100Mbit/s  scheduler cbq
        class res { share 20%  priority 6  reservations { delay 50ms  lifetime 600s } }
        class subscribers { share 60% }
        class rest { share 20%  default } }
    link up { rate 20Mbit/s  scheduler htb
        class homes { rate 15Mbit/s  ceil 20Mbit/s }
        class others { rate 1Mbit/s  ceil 20Mbit/s  default } }";

fuzz_target!(|input: &[u8]| {
    let Some((first, said)) = input.split_first() else { return };
    let policy = parse_str(POLICY, "fuzz.altq", Language::Native).unwrap();
    let mut engines: Vec<(String, Engine)> =
        policy.links.iter().map(|link| (link.name.clone(), Engine::new(&link.spec).unwrap())).collect();
    let mut roster = Roster::new(policy.links.into_iter().map(Arc::new), 1000).unwrap();
    let mut lines = Lines::default();
    let mut at = Time::default();
    for piece in said.chunks(usize::from(*first) + 1) {
        lines.push(piece);
        // A line that is too long is an error, and the next one is read.
        loop {
            let line = match lines.take(1 << 16) {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(_) => continue,
            };
            let Ok(asked) = request::read(&line) else { continue };
            let changes = match asked.request {
                Request::SetSubscribers(subscribers) => {
                    assert!(subscribers.len() <= BULK);
                    for subscriber in &subscribers {
                        assert!(subscriber.id.len() <= LONGEST_NAME && subscriber.addresses.len() <= EACH);
                    }
                    let again = subscribers.clone();
                    let (report, changes) = roster.set(subscribers);
                    make(&mut engines, changes);
                    let (second, changes) = roster.set(again);
                    assert!(second.unchanged >= report.done + report.unchanged, "{report:?} {second:?}");
                    changes
                }
                Request::DeleteSubscribers(ids) => roster.delete(&ids).1,
                Request::SetLink { link, rate_bit_s } => {
                    roster.set_rate(&link, altq_engine::units::Rate::bit_s(rate_bit_s)).unwrap_or_default()
                }
                Request::Reserve(Reserve::Ask(asked)) => {
                    at.now += 500_000_000;
                    at.boot += 500_000_000;
                    let over = roster.expire(at);
                    assert!(over.said.is_empty(), "{:?}", over.said);
                    make(&mut engines, over.changes);
                    let done = roster.reserve(at, &asked).unwrap();
                    assert!(done.said.is_empty(), "{:?}", done.said);
                    done.changes
                }
                Request::Reserve(Reserve::Restore(restore)) => {
                    roster.restore(at, restore.state.as_ref(), restore.last).changes
                }
                _ => continue,
            };
            make(&mut engines, changes);
        }
    }
});

/// The engine of each link takes the changes, and has the classes of the roster's link.
fn make(engines: &mut [(String, Engine)], changes: altq_control::roster::Changes) {
    for (name, changes) in changes {
        let (_, engine) = engines.iter_mut().find(|(link, _)| *link == name).unwrap();
        changes.iter().for_each(|change| _ = engine.apply(0, change).unwrap());
    }
}
