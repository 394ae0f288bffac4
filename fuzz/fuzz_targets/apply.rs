//! Any bytes as what clients say of the policy that runs, a request a line: `apply`, edits,
//! confirmations and steps back, with subscribers and reservations between them. The engine takes
//! every change, what is refused changes nothing, and what has to be confirmed can be taken back.

#![no_main]

use std::sync::Arc;

use altq_config::{LONGEST_NAME, Language, Link, Path, Policy, edit, parse_str};
use altq_control::Request;
use altq_control::change::disk::Disk;
use altq_control::change::{Asked, By, Changes, Clock, Text, What};
use altq_control::request;
use altq_control::request::change::{Change, GUARDS, Safe};
use altq_control::reservations::Reserve;
use altq_control::roster::Roster;
use altq_control::roster::reserved::Time;
use altq_engine::Engine;
use libfuzzer_sys::fuzz_target;

const POLICY: &str = "link down { rate 100Mbit/s  scheduler cbq
        class res { share 20%  priority 6  reservations { delay 50ms  lifetime 600s } }
        class subscribers { share 40% }
        class bulk { share 10%  borrow  scheduler drr  class a { }  class b { quantum 3000 } }
        class rest { share 20%  default }
        match dport 80 -> a  match dport 22 -> b }
    link up { rate 20Mbit/s  scheduler htb
        class homes { rate 15Mbit/s  ceil 20Mbit/s }
        class others { rate 1Mbit/s  ceil 20Mbit/s  default } }";

const SECOND: u64 = 1_000_000_000;

/// A disk that takes everything.
#[derive(Default)]
struct Memory {
    there: Option<Vec<u8>>,
    beside: Option<Vec<u8>>,
}

impl Disk for Memory {
    fn read(&mut self) -> Result<Option<Vec<u8>>, String> {
        Ok(self.there.clone())
    }

    fn write_beside(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.beside = Some(bytes.to_vec());
        Ok(())
    }

    fn sync_beside(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn rename(&mut self) -> Result<(), String> {
        self.there = self.beside.take();
        Ok(())
    }

    fn sync_folder(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// A running altq without packets.
struct World {
    roster: Roster,
    engines: Vec<(String, Engine)>,
    changes: Changes<Memory>,
    /// What runs.
    text: Text,
    at: Time,
}

impl World {
    fn new() -> World {
        let text = Text { name: "fuzz.altq".to_owned(), language: "native".to_owned(), text: POLICY.to_owned() };
        let policy = read(&text).expect("a policy");
        let engines = policy.links.iter().map(|link| (link.name.clone(), Engine::new(&link.spec).unwrap())).collect();
        let roster = Roster::new(policy.links.into_iter().map(Arc::new), 1000).unwrap();
        let (mut changes, why) = Changes::load(Memory::default());
        assert!(why.is_none());
        changes.started(&text).unwrap();
        World { roster, engines, changes, text, at: Time::default() }
    }

    fn clock(&self) -> Clock {
        Clock { unix_ns: self.at.boot, boot_ns: self.at.boot, boot_id: "fuzz".to_owned() }
    }

    /// The engine of each link takes the changes.
    fn make(&mut self, changes: altq_control::roster::Changes) {
        for (name, changes) in changes {
            let (_, engine) = self.engines.iter_mut().find(|(link, _)| *link == name).unwrap();
            for change in changes {
                engine.apply(0, &change).unwrap_or_else(|error| panic!("{name}: {change:?}: {error}"));
            }
        }
        self.check();
    }

    /// The engines have the classes of the roster's links, below the same parents; and reservations
    /// have no more than their class.
    fn check(&self) {
        for (name, engine) in &self.engines {
            let link = self.roster.link(name).unwrap();
            for (id, class) in (0..).zip(&link.classes).skip(1) {
                let expected = (!class.name.is_empty()).then(|| link.spec.classes[id as usize].parent);
                assert_eq!(engine.parent(id), expected, "{name}: class {id} `{}`", class.name);
            }
            let Some(reservations) = link.reservations.as_ref().filter(|_| !link.overcommit) else { continue };
            let res = reservations.class;
            let below = (0..).zip(&link.spec.classes).filter(|(_, spec)| spec.parent == res);
            let sum: u64 = below.map(|(class, _)| link.guarantee(class).map_or(0, |rate| rate.as_bit_s())).sum();
            assert!(sum <= link.guarantee(res).map_or(0, |rate| rate.as_bit_s()));
        }
    }

    /// The names of the classes of the policies that run.
    fn written(&self) -> Vec<String> {
        let links = self.engines.iter().filter_map(|(name, _)| self.roster.written(name));
        links.flat_map(|link| link.classes.iter().map(|class| class.name.clone()).collect::<Vec<_>>()).collect()
    }

    /// Another policy takes the place of the one that runs, or is refused.
    fn follow(&mut self, text: Text, how: &How) {
        let Some(policy) = read(&text) else { return };
        let links: Vec<Arc<Link>> = policy.links.into_iter().map(Arc::new).collect();
        // What `altq run` refuses before it asks the roster.
        let same = |link: &Arc<Link>| self.engines.iter().any(|(name, _)| *name == link.name);
        let by_kernel = |link: &Arc<Link>| link.path() == Some(Path::Kernel);
        if links.len() != self.engines.len() || !links.iter().all(same) || links.iter().any(by_kernel) {
            return;
        }
        let before = self.written();
        let Ok(prepared) = self.roster.prepare(links, how.evict) else {
            assert_eq!(self.written(), before);
            return self.check();
        };
        let back = how.safe.confirm_ns.map_or(Ok(()), |_| self.roster.can_return(&prepared));
        if how.check || back.is_err() {
            self.roster.abandon(prepared);
            assert_eq!(self.written(), before);
            return self.check();
        }
        let clock = self.clock();
        if how.what != What::Reverted {
            let asked = Asked {
                text: text.clone(),
                before: self.text.clone(),
                wait_ns: how.safe.confirm_ns,
                guards: how.safe.guards.clone(),
                what: how.what,
                by: By::default(),
                lines: Vec::new(),
            };
            if self.changes.begin(asked, &clock).is_err() {
                return self.roster.abandon(prepared);
            }
        }
        let done = self.roster.commit(self.at, prepared);
        self.make(done.changes);
        self.text = text;
        if how.what == What::Reverted {
            self.changes.reverted(&clock, "rolled back").unwrap();
        } else {
            self.changes.made(&clock).unwrap();
        }
    }

    /// Takes a change back whose time is over, or that is rolled back.
    fn back(&mut self) {
        let Some(old) = self.changes.old().cloned() else { return };
        self.follow(old.clone(), &How { what: What::Reverted, evict: true, check: false, safe: Safe::default() });
        assert_eq!((&self.text, self.changes.waits(&self.clock())), (&old, None));
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Apply(asked) => {
                within(&asked.safe);
                let text = Text { name: asked.name, language: asked.language, text: asked.text };
                self.follow(
                    text,
                    &How { what: What::Applied, evict: asked.evict, check: asked.check, safe: asked.safe },
                );
            }
            Change::Edit { link, edit: what, safe } => {
                within(&safe);
                assert!(link.len() <= LONGEST_NAME);
                if self.text.language != "native" {
                    return;
                }
                let Ok(changed) = edit(&self.text.text, &link, &what) else { return };
                let text = Text { text: changed, ..self.text.clone() };
                self.follow(text, &How { what: What::Edited, evict: false, check: false, safe });
            }
            Change::Confirm => {
                let waits = self.changes.waits(&self.clock()).is_some_and(|left| left > 0);
                assert_eq!(self.changes.confirm(&By::default(), &self.clock()).is_ok(), waits);
            }
            Change::Rollback { .. } if self.changes.old().is_some() => self.back(),
            Change::Rollback { .. } => {
                let Some(previous) = self.changes.previous().cloned() else { return };
                let what = What::RolledBack;
                self.follow(previous, &How { what, evict: false, check: false, safe: Safe::default() });
            }
            Change::History | Change::Policy | Change::Saved { .. } | Change::Runs => {}
        }
    }
}

/// How a policy is to follow.
struct How {
    what: What,
    evict: bool,
    check: bool,
    safe: Safe,
}

fn read(text: &Text) -> Option<Policy> {
    parse_str(&text.text, &text.name, text.language.parse::<Language>().ok()?).ok()
}

/// What is accepted is within the limits.
fn within(safe: &Safe) {
    assert!(safe.guards.len() <= GUARDS && (safe.guards.is_empty() || safe.confirm_ns.is_some()));
    assert!(safe.confirm_ns.is_none_or(|wait| wait > 0 && wait <= altq_control::change::LONGEST));
}

fuzz_target!(|input: &[u8]| {
    let mut world = World::new();
    for line in input.split(|byte| *byte == b'\n').take(50) {
        world.at.now += SECOND / 2;
        world.at.boot += SECOND / 2;
        if world.changes.waits(&world.clock()) == Some(0) {
            world.back();
        }
        let Ok(asked) = request::read(line) else { continue };
        let changes = match asked.request {
            Request::Change(change) => {
                world.change(change);
                continue;
            }
            Request::SetSubscribers(subscribers) => world.roster.set(subscribers).1,
            Request::DeleteSubscribers(ids) => world.roster.delete(&ids).1,
            Request::Reserve(Reserve::Ask(asked)) => {
                let over = world.roster.expire(world.at);
                world.make(over.changes);
                let done = world.roster.reserve(world.at, &asked).unwrap();
                assert!(done.said.is_empty(), "{:?}", done.said);
                done.changes
            }
            _ => continue,
        };
        world.make(changes);
    }
    // What is kept is read again.
    let disk = Memory { there: world.changes.disk().there.clone(), beside: None };
    let (again, why) = Changes::load(disk);
    assert_eq!((again.history(), why), (world.changes.history(), None));
});
