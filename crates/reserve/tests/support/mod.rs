//! A table of reservations with a real engine, and short ways to write requests.

use altq_config::{Language, Link, parse_str};
use altq_engine::random::SplitMix64;
use altq_engine::units::Nanos;
use altq_engine::{Change, Engine};
use altq_reserve::{Answer, Op, Place, Reply, Request, Table, Tspec};

/// A link with its reservations.
pub struct World {
    pub link: Link,
    pub table: Table,
    pub engine: Engine,
    pub now: Nanos,
    /// All changes that the engine has got.
    pub changes: Vec<Change>,
}

pub fn link(text: &str) -> Link {
    let policy = parse_str(text, "t.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
    policy.links[0].clone()
}

impl World {
    pub fn new(text: &str) -> World {
        let link = link(text);
        let table = Table::new(Place::of(&link).expect("a class for reservations"));
        let engine = Engine::new(&link.spec).expect("an engine");
        World { link, table, engine, now: 0, changes: Vec::new() }
    }

    /// The reply to a request. The engine must accept all changes.
    pub fn reply(&mut self, request: &Request) -> Reply {
        let World { table, engine, now, changes, .. } = self;
        table.handle(*now, request, &mut |change: &Change| {
            changes.push(change.clone());
            let done = engine.apply(*now, change);
            assert!(done.is_ok(), "the engine refuses {change:?}: {done:?}");
            done
        })
    }

    pub fn ask(&mut self, request: &Request) -> Answer {
        match self.reply(request) {
            Reply::Answer(answer) => *answer,
            other => panic!("{other:?}"),
        }
    }
}

/// A token bucket.
pub fn tspec(rate: u64, burst: u64, min: u32, max: u32) -> Tspec {
    Tspec {
        rate_bit_s: rate,
        burst_bytes: burst,
        peak_bit_s: None,
        min_unit_bytes: Some(min),
        max_packet_bytes: Some(max),
    }
}

/// A request for a flow of UDP to a port.
pub fn add(key: &str, port: u16, tspec: Tspec) -> Request {
    Request { flows: Some(vec![flow(port)]), tspec: Some(tspec), ..of(Op::Add, key) }
}

pub fn of(op: Op, key: &str) -> Request {
    Request { key: Some(key.to_owned()), ..Request::new(op) }
}

pub fn flow(port: u16) -> altq_reserve::Flow {
    format!("proto=udp dport={port}").parse().expect("a flow")
}

/// Code and value of a refusal.
pub fn code(answer: &Answer) -> Option<(u8, u16)> {
    answer.rsvp_code.zip(answer.rsvp_value)
}

/// Random numbers, the same on every machine.
pub struct Random(pub SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::new(seed))
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0.bits() % n.max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
