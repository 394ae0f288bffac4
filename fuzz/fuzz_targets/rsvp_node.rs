//! Any sequence of messages, calls and time on an RSVP router, with IPv4 or IPv6, and with or
//! without a receiver proxy. After each step the invariants hold: no state without a timer, and the
//! sum of reservations is within the class.

#![no_main]

use std::collections::BTreeMap;
use std::net::IpAddr;

use altq_rsvp::node::{
    Admission, Arrived, Config, Granted, Interface, Limits, Neighbour, Node, Offer, Output, Prefix, Refused,
    Reservation, Route, Routes, World,
};
use altq_rsvp::wire::{
    ErrorSpec, Flow, Flowspec, Hop, Message, Path, PathErr, PathTear, Resv, ResvConf, ResvErr, ResvTear, Sender,
    Session, Style, Tspec, encode,
};
use libfuzzer_sys::fuzz_target;

const CAPACITY: f64 = 1e6;
const SECOND: u64 = 1_000_000_000;

/// Bytes of the input, one after another; zeros when they are used up.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }
}

#[derive(Default)]
struct Ledger {
    held: BTreeMap<String, Reservation>,
    broken: bool,
}

impl Ledger {
    fn put(&mut self, reservation: &Reservation) -> Result<Granted, Refused> {
        let others =
            self.held.values().filter(|held| held.interface == reservation.interface && held.key != reservation.key);
        let sum: f64 = others.map(|held| f64::from(held.tspec.rate)).sum();
        if self.broken || sum + f64::from(reservation.tspec.rate) > CAPACITY {
            return Err(Refused::bandwidth("full"));
        }
        self.held.insert(reservation.key.clone(), reservation.clone());
        Ok(Granted { class: String::new(), charged_bit_s: 0 })
    }
}

impl Admission for Ledger {
    fn add(&mut self, _: u64, reservation: &Reservation) -> Result<Granted, Refused> {
        assert!(!self.held.contains_key(&reservation.key), "added twice");
        self.put(reservation)
    }

    fn modify(&mut self, _: u64, reservation: &Reservation) -> Result<Granted, Refused> {
        self.put(reservation)
    }

    fn refresh(&mut self, _: u64, key: &str, _: u64) -> Result<(), Refused> {
        if self.held.contains_key(key) { Ok(()) } else { Err(Refused::new(22, 0, "none")) }
    }

    fn del(&mut self, _: u64, key: &str) {
        self.held.remove(key);
    }

    fn offer(&mut self, _: u32, _: &Tspec) -> Offer {
        Offer { bandwidth: 1e6, latency_us: 1 }
    }
}

struct Way(Route);

impl Routes for Way {
    fn route(&mut self, _: IpAddr) -> Route {
        self.0
    }
}

/// An address of IPv4 or IPv6: in the networks 1 to 3 that of a neighbour or, with 1, the router's
/// own; in 9 the receiver's, and in 8 the sender's.
fn at(v6: bool, network: u8, host: u8) -> IpAddr {
    match v6 {
        true => IpAddr::from([0xfd10, u16::from(network), 0, 0, 0, 0, 0, u16::from(host)]),
        false => IpAddr::from([10, 0, network, host]),
    }
}

fn node(v6: bool, proxied: bool) -> Node {
    let interface = |id: u32| Interface {
        id,
        name: format!("eth{id}"),
        addresses: vec![at(v6, id as u8, 1)],
        mtu: 1500,
        refresh_ms: 30_000,
        neighbours: vec![Neighbour {
            prefix: Prefix { address: at(v6, id as u8, 0), length: if v6 { 32 } else { 24 } },
            keys: Vec::new(),
            handshake: false,
        }],
        sign: None,
    };
    let limits = Limits { sessions: 4, senders: 4, paths_of_neighbour: 8, reservations: 12, ..Limits::default() };
    let interfaces = vec![interface(1), interface(2), interface(3)];
    let receiver_proxy = if proxied { vec![Prefix::host(at(v6, 9, 9))] } else { Vec::new() };
    Node::new(Config { interfaces, receiver_proxy, port_zero: true, first_sequence: 1, limits }).unwrap()
}

fn tspec(bytes: &mut Bytes<'_>) -> Tspec {
    let rate = f32::from(bytes.next()) * 8_000.0;
    let burst = f32::from(bytes.next()) * 100.0;
    Tspec { rate, burst, peak: f32::INFINITY, min_unit: 64, max_packet: u32::from(bytes.next()) * 8 }
}

fn session(bytes: &mut Bytes<'_>, v6: bool) -> Session {
    Session { address: at(v6, 9, 9), protocol: 17, port: u16::from(bytes.next() % 6) }
}

fn sender(bytes: &mut Bytes<'_>, v6: bool) -> Sender {
    Sender::new(at(v6, 8, 8), u16::from(bytes.next() % 5))
}

/// A message from a few bytes, from the neighbour on an interface.
fn message(bytes: &mut Bytes<'_>, v6: bool) -> (u32, Message) {
    let choice = bytes.next();
    let interface = u32::from(bytes.next() % 3) + 1;
    let address = at(v6, interface as u8, 2 + bytes.next() % 2);
    let (session, sender) = (session(bytes, v6), sender(bytes, v6));
    let tspec = tspec(bytes);
    let style = [Style::Fixed, Style::Shared, Style::Wildcard][usize::from(choice / 16 % 3)];
    let mut filters = vec![sender];
    for _ in 0..bytes.next() % 3 {
        filters.push(self::sender(bytes, v6));
    }
    let hop = Hop { address, handle: u32::from(bytes.next() % 4) };
    let refresh_ms = 1 + u32::from(bytes.next()) * 256;
    let flowspec = Flowspec::ControlledLoad(tspec);
    let flows = |filters: Vec<Sender>| match style {
        Style::Wildcard => vec![Flow { flowspec: flowspec.clone(), filters: Vec::new() }],
        Style::Shared => vec![Flow { flowspec: flowspec.clone(), filters }],
        Style::Fixed => {
            filters.iter().map(|filter| Flow { flowspec: flowspec.clone(), filters: vec![*filter] }).collect()
        }
    };
    // Admission (01) makes a blockade of a ResvErr; the flags and the node are anybody's.
    let error = |bytes: &mut Bytes<'_>| ErrorSpec {
        node: address,
        flags: bytes.next() % 4,
        code: [1, 1, 2, 12, 21, 23][usize::from(bytes.next() % 6)],
        value: u16::from(bytes.next() % 4),
    };
    let message = match choice % 16 {
        0..=3 => {
            let (session_flags, adspec, passed_on) = (0, None, Vec::new());
            Message::Path(Path { session, session_flags, hop, refresh_ms, sender, tspec, adspec, passed_on })
        }
        4 => Message::PathTear(PathTear { session, hop, sender }),
        5 => Message::ResvTear(ResvTear { session, hop, scope: Vec::new(), style, filters }),
        6 => {
            let (error, adspec, passed_on) = (error(bytes), None, Vec::new());
            Message::PathErr(PathErr { session, error, sender, tspec, adspec, passed_on })
        }
        7 | 8 => {
            let (error, scope, passed_on) = (error(bytes), Vec::new(), Vec::new());
            let flow = flows(filters).swap_remove(0);
            Message::ResvErr(ResvErr { session, hop, error, scope, style, flow, passed_on })
        }
        9 => {
            let error = error(bytes);
            Message::ResvConf(ResvConf { session, error, receiver: address, style, flows: flows(filters) })
        }
        _ => {
            let confirm = (choice & 0x80 != 0).then_some(address);
            let (scope, passed_on) = (Vec::new(), Vec::new());
            Message::Resv(Resv { session, hop, refresh_ms, confirm, scope, style, flows: flows(filters), passed_on })
        }
    };
    (interface, message)
}

/// A call of somebody who stands in for a sender or a receiver.
fn call(bytes: &mut Bytes<'_>, v6: bool, node: &mut Node, now: u64, world: &mut World<'_>) {
    let choice = bytes.next();
    let (session, sender) = (session(bytes, v6), sender(bytes, v6));
    match choice % 4 {
        0 => {
            let _refused = node.announce(now, world, session, sender, tspec(bytes));
        }
        1 => {
            node.renounce(now, world, session, sender);
        }
        2 => {
            let style = if choice & 16 == 0 { Style::Fixed } else { Style::Shared };
            let filters = [sender, self::sender(bytes, v6)];
            let _refused = node.reserve(now, world, session, (style, &filters), (tspec(bytes), choice & 32 != 0));
        }
        _ => {
            node.release(now, world, session);
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes(input);
    let first = bytes.next();
    let v6 = first & 1 != 0;
    let (mut node, mut ledger) = (node(v6, first & 6 == 0), Ledger::default());
    let mut way = Way(Route::Interface(2));
    let (mut now, mut seed) = (0_u64, 1_u64);
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed
    };
    while !bytes.0.is_empty() {
        match bytes.next() % 16 {
            0 => now += u64::from(bytes.next()) * SECOND,
            1 => {
                way.0 = [Route::Local, Route::Interface(1), Route::Interface(2), Route::Interface(3), Route::Nowhere]
                    [usize::from(bytes.next() % 5)]
            }
            2 => ledger.broken = bytes.next() % 2 == 0,
            3 => ledger.held.clear(),
            4 => {
                let mut world = World { routes: &mut way, admission: &mut ledger, random: &mut random };
                call(&mut bytes, v6, &mut node, now, &mut world);
            }
            15 => {
                // Traffic control has lost one, or none, and the node is told what is there.
                if bytes.next() % 2 == 0 {
                    ledger.held.pop_first();
                }
                let there: Vec<String> = ledger.held.keys().cloned().collect();
                let mut world = World { routes: &mut way, admission: &mut ledger, random: &mut random };
                node.reinstall(now, &mut world, &|key| there.iter().any(|there| there == key));
            }
            _ => {
                now += u64::from(bytes.next()) * SECOND / 64;
                let (interface, message) = message(&mut bytes, v6);
                let Ok(mut message) = encode(&message, 64) else { continue };
                if bytes.next() % 8 == 0 {
                    // Damaged on its way.
                    let at = usize::from(bytes.next()) % message.len();
                    message[at] ^= bytes.next();
                    message[2..4].fill(0);
                }
                let own = at(v6, interface as u8, 1);
                let to_session = message.get(1).is_some_and(|kind| *kind == 1 || *kind == 5);
                let destination = if to_session { at(v6, 9, 9) } else { own };
                let source = at(v6, interface as u8, 2);
                let arrived = Arrived { interface, source, destination, ttl: 64, message: &message };
                let mut world = World { routes: &mut way, admission: &mut ledger, random: &mut random };
                node.receive(now, &mut world, &arrived);
                check(&node, &reserved(&ledger));
            }
        }
        let mut world = World { routes: &mut way, admission: &mut ledger, random: &mut random };
        node.routes_changed(now, &mut world);
        node.handle_timeout(now, &mut world);
        while let Some(output) = node.poll() {
            if let Output::Send(transmit) = output {
                assert!(transmit.message.len() < 65_536);
            }
        }
        check(&node, &reserved(&ledger));
    }
});

/// What is reserved on each interface, bytes per second.
fn reserved(ledger: &Ledger) -> [f64; 4] {
    let mut sums = [0.0; 4];
    for held in ledger.held.values() {
        sums[held.interface as usize] += f64::from(held.tspec.rate);
    }
    sums
}

fn check(node: &Node, sums: &[f64; 4]) {
    node.invariants().unwrap();
    assert!(sums.iter().all(|sum| *sum <= CAPACITY));
}
