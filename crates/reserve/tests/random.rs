//! Compares random requests with a naive account of the reservations: what is granted, what is
//! listed, and that sums never exceed what the policy has. The engine accepts every change, and
//! loses no packet.

use crate::support;

use std::collections::HashMap;

use altq_engine::headers::Key;
use altq_engine::{Change, Packet};
use altq_reserve::{Answer, Op, Reply, Request, Tspec};
use support::{Random, World, flow, tspec};

/// 18 Mbit/s are for reservations: 20 minus the 2 of `fixed`.
const POLICY: &str = "link l { rate 100Mbit/s overhead ethernet scheduler cbq
    class res {
        rate 20Mbit/s  borrow
        reservations { buffer 200000bytes  most 30  lifetime 60s  owner-rate 10Mbit/s  owner-most 20 }
        class fixed { rate 2Mbit/s }
    }
    class rest { rate 80Mbit/s  borrow  default }
    match dport 53 -> fixed }";
const ROOM: u64 = 18_000_000;
const BUFFER: u64 = 200_000;
const SECOND: u64 = 1_000_000_000;

/// A reservation, as the test keeps it.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    id: u64,
    key: String,
    owner: Option<String>,
    tspec: Tspec,
    ports: Vec<u16>,
    /// In seconds.
    ttl: u64,
    deadline: u64,
}

/// The cost of a rate on an Ethernet wire in packets of the minimum unit: 38 bytes more for each
/// packet, at least 84 bytes (docs/language.md).
fn charge(tspec: &Tspec) -> u64 {
    let min = u64::from(tspec.min_unit_bytes.unwrap());
    (tspec.rate_bit_s * (min + 38).max(84)).div_ceil(min)
}

#[derive(Default)]
struct Model {
    kept: Vec<Kept>,
}

impl Model {
    fn of_key(&self, key: &str) -> Option<&Kept> {
        self.kept.iter().find(|kept| kept.key == key)
    }

    /// Whether there is room for a reservation in addition to the others.
    fn fits(&self, new: &Kept) -> bool {
        let others: Vec<&Kept> = self.kept.iter().filter(|kept| kept.id != new.id).collect();
        let sum = |list: &[&Kept]| list.iter().map(|kept| charge(&kept.tspec)).sum::<u64>() + charge(&new.tspec);
        let bursts: u64 = others.iter().map(|kept| kept.tspec.burst_bytes).sum();
        let of_owner: Vec<&Kept> = others.iter().copied().filter(|kept| kept.owner == new.owner).collect();
        let free = |port: &u16| others.iter().all(|kept| !kept.ports.contains(port));
        sum(&others) <= ROOM
            && bursts + new.tspec.burst_bytes <= BUFFER
            && others.len() < 30
            && sum(&of_owner) <= 10_000_000
            && of_owner.len() < 20
            && new.ports.iter().all(free)
            && new.tspec.max_packet_bytes.unwrap() <= 1500
    }

    fn put(&mut self, new: Kept) {
        self.kept.retain(|kept| kept.id != new.id);
        self.kept.push(new);
        self.kept.sort_by_key(|kept| kept.id);
    }
}

fn bucket(random: &mut Random) -> Tspec {
    let max = 200 + random.below(1400) as u32;
    let min = 40 + random.below(160) as u32;
    let rate = if random.chance(10) { 1 + random.below(20_000_000) } else { 1 + random.below(1_000_000) };
    tspec(rate, 1 + random.below(20_000), min, max)
}

fn ports(random: &mut Random) -> Vec<u16> {
    let first = 5000 + random.below(60) as u16;
    if random.chance(70) { vec![first] } else { vec![first, 5100 + random.below(60) as u16] }
}

/// A request, and what must come of it by the account: the answer, and the reservation after it.
fn step(random: &mut Random, model: &Model, now: u64) -> (Request, bool, Option<Kept>) {
    let key = format!("k{}", random.below(50));
    let there = model.of_key(&key).cloned();
    // In half of the cases the owner asks, if there is one.
    let asks = match &there {
        Some(there) if random.chance(50) => there.owner.clone(),
        _ => random.chance(80).then(|| format!("o{}", random.below(3))),
    };
    let mine = there.as_ref().is_none_or(|there| asks.is_none() || asks == there.owner);
    let ttl = random.chance(70).then(|| 1 + random.below(90));
    let mut request = Request { key: Some(key.clone()), owner: asks.clone(), ..Request::new(Op::Add) };
    request.ttl_s = ttl.map(|ttl| ttl as f64);
    // The policy allows 60 s.
    let live = |before: u64| ttl.map_or(before, |ttl| ttl.min(60));
    let (op, new) = match random.below(10) {
        0..=3 => {
            let (tspec, ports) = (bucket(random), ports(random));
            request.tspec = Some(tspec);
            request.flows = Some(ports.iter().map(|port| flow(*port)).collect());
            let id = there.as_ref().map_or(u64::MAX, |there| there.id);
            let owner = there.as_ref().map_or(asks, |there| there.owner.clone());
            let ttl = live(there.as_ref().map_or(60, |there| there.ttl));
            (Op::Add, Some(Kept { id, key, owner, tspec, ports, ttl, deadline: now + ttl * SECOND }))
        }
        4..=6 => {
            let new = there.map(|mut new| {
                if random.chance(80) {
                    new.tspec = bucket(random);
                    request.tspec = Some(new.tspec);
                }
                if random.chance(30) {
                    new.ports = ports(random);
                    request.flows = Some(new.ports.iter().map(|port| flow(*port)).collect());
                }
                if ttl.is_some() {
                    new.ttl = live(new.ttl);
                    new.deadline = now + new.ttl * SECOND;
                }
                new
            });
            (Op::Modify, new)
        }
        7 | 8 => {
            let new = there.map(|mut new| {
                new.ttl = live(new.ttl);
                new.deadline = now + new.ttl * SECOND;
                new
            });
            (Op::Refresh, new)
        }
        _ => (Op::Del, there),
    };
    request.op = op;
    let granted = mine
        && match (&new, op) {
            (None, _) => false,
            (Some(_), Op::Refresh | Op::Del) => true,
            (Some(new), _) => model.fits(new),
        };
    (request, granted, new)
}

/// Packets of the flows come and go. Every packet that came is sent, dropped or queued.
fn traffic(random: &mut Random, world: &mut World, model: &Model, account: &mut [u64; 3]) {
    let now = world.now;
    for _ in 0..random.below(6) {
        let port = [5000, 5100][random.below(2) as usize] + random.below(60) as u16;
        let key = Key { family: 4, proto: 17, ..Key::default() }.with_ports(9, port);
        let packet = Packet::new(account[0] as u32, 40 + random.below(1460) as u32);
        let id = model.kept.iter().find(|kept| kept.ports.contains(&port)).map(|kept| kept.id);
        let class = id.map_or(world.link.spec.default, |id| world.table.get(id).map(|there| there.class));
        assert_eq!(world.engine.classify(&key), class, "port {port}");
        world.engine.receive(now, &key, packet);
        account[0] += 1;
    }
    for _ in 0..random.below(5) {
        account[1] += u64::from(world.engine.dequeue(now).is_some());
    }
    account[2] += world.engine.drops().count() as u64;
    assert_eq!(account[0], account[1] + account[2] + u64::from(world.engine.backlog()));
}

/// Checks that the table has what the account has.
fn compare(world: &mut World, model: &Model) {
    let Reply::List(list) = world.reply(&Request::new(Op::List)) else { panic!("no list") };
    let now = world.now;
    assert!(list.charged_bit_s <= ROOM && list.burst_bytes <= BUFFER);
    assert_eq!(list.charged_bit_s, model.kept.iter().map(|kept| charge(&kept.tspec)).sum::<u64>());
    assert_eq!(list.burst_bytes, model.kept.iter().map(|kept| kept.tspec.burst_bytes).sum::<u64>());
    assert_eq!(list.reservable_bit_s, ROOM);
    assert_eq!(list.reservations.len(), model.kept.len());
    for (listed, kept) in list.reservations.iter().zip(&model.kept) {
        let flows: Vec<_> = kept.ports.iter().map(|port| flow(*port)).collect();
        assert_eq!((listed.id, &listed.key, &listed.owner), (kept.id, &Some(kept.key.clone()), &kept.owner));
        assert_eq!((listed.tspec, &listed.flows), (kept.tspec, &flows));
        assert_eq!(listed.charged_bit_s, charge(&kept.tspec));
        assert_eq!(listed.expires_s, Some((kept.deadline - now) as f64 / 1e9));
    }
    assert_eq!(world.table.next_deadline(), model.kept.iter().map(|kept| kept.deadline).min());
}

#[test]
fn random_requests_against_a_naive_account() {
    // How many were granted and refused, by operation.
    let mut seen: HashMap<(String, bool), u32> = HashMap::new();
    let mut expired = 0;
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let (mut world, mut model) = (World::new(POLICY), Model::default());
        let mut account = [0; 3];
        for _ in 0..400 {
            world.now += random.below(2 * SECOND);
            let before = model.kept.len();
            model.kept.retain(|kept| kept.deadline > world.now);
            expired += before - model.kept.len();
            let (request, granted, new) = step(&mut random, &model, world.now);
            // Reservations whose time is over are ended before any request.
            compare(&mut world, &model);
            let (saved, changes) = (world.table.save(world.now, 0), world.changes.len());
            let answer = world.ask(&request);
            assert_eq!(answer.granted, granted, "seed {seed}: {request:?}\n{answer:?}\n{model:?}", model = model.kept);
            *seen.entry((format!("{:?}", request.op), granted)).or_default() += 1;
            if !granted {
                // A refused request changes nothing, neither here nor in the engine.
                assert_eq!((world.table.save(world.now, 0), world.changes.len()), (saved, changes));
                would_fit(&world, &request, &answer);
            } else if let (Some(new), Some(id)) = (new, answer.id) {
                assert!(new.id == id || new.id == u64::MAX, "{new:?} {answer:?}");
                if request.op == Op::Del {
                    model.kept.retain(|kept| kept.id != id);
                } else {
                    model.put(Kept { id, ..new });
                }
            }
            compare(&mut world, &model);
            traffic(&mut random, &mut world, &model, &mut account);
        }
        world.changes.clear();
        end(&mut world, &mut account);
    }
    for op in ["Add", "Modify", "Refresh", "Del"] {
        for granted in [true, false] {
            let count = seen.get(&(op.to_owned(), granted)).copied().unwrap_or(0);
            assert!(count > 100, "{op} {granted}: {count} of {seen:?}");
        }
    }
    assert!(expired > 100, "{expired}");
}

/// Checks that the rate named in a refusal would have been granted, and no higher one. This is
/// tried on a table restored from the state of this one.
fn would_fit(world: &World, request: &Request, answer: &Answer) {
    let (Some(most), Some(tspec)) = (answer.would_fit_bit_s, request.tspec) else { return };
    let state = world.table.save(world.now, 0);
    for (rate, granted) in [(most, most > 0), (most + 1, false)] {
        let mut other = World::new(POLICY);
        other.now = world.now;
        let World { table, engine, now, .. } = &mut other;
        let restored = table.restore(*now, 0, &state, &mut |change: &Change| engine.apply(*now, change)).unwrap();
        assert_eq!((restored.restored, restored.refused.len()), (state.reservations.len(), 0));
        let request = Request { tspec: Some(Tspec { rate_bit_s: rate, ..tspec }), ..request.clone() };
        assert_eq!(other.ask(&request).granted, granted, "{rate}: {request:?} {answer:?}");
    }
}

/// Ends all reservations. The packets that waited in them move to the default class and are sent.
fn end(world: &mut World, account: &mut [u64; 3]) {
    world.now += 61 * SECOND;
    assert!(world.ask(&Request { key: Some("none".into()), ..Request::new(Op::Del) }).reason.is_some());
    assert_eq!(world.table.reservations().count(), 0);
    while let Some(at) = world.engine.next_wakeup() {
        world.now = world.now.max(at);
        account[1] += u64::from(world.engine.dequeue(world.now).is_some());
    }
    account[2] += world.engine.drops().count() as u64;
    assert_eq!((world.engine.backlog(), account[0]), (0, account[1] + account[2]));
    // Only the policy's classes are left in the tree.
    let classes = world.link.spec.classes.len() as u32;
    assert!((classes..classes + 40).all(|class| world.engine.parent(class).is_none()));
}
