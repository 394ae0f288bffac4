//! Random sequences of messages, calls, time and failures on one router. After each step: no state
//! without a timer, no timer without state, what traffic control holds follows from requests and is
//! within the class, and a change that was refused has left what was there.

use crate::support;

use std::collections::BTreeMap;

use altq_rsvp::node::{Prefix, Route, Transmit};
use altq_rsvp::wire::{Sender, Style, Tspec, decode};
use proptest::prelude::*;
use support::messages::{PATH, PATH_ERR, PATH_TEAR, RESV_CONF, RESV_FF, RESV_TEAR};
use support::router::{IN, OTHER, OUT, Router, config, sender, session};
use support::{S, hex, ip};

/// What a class can hold, bytes per second.
const CAPACITY: f64 = 300_000.0;

#[derive(Debug, Clone)]
enum Step {
    Path { port: u16, sender: u16, rate: f32 },
    PathTear { port: u16, sender: u16 },
    Resv { out: u32, port: u16, style: Style, rate: f32, senders: Vec<u16> },
    ResvTear { out: u32, port: u16, style: Style, senders: Vec<u16> },
    Announce { port: u16, sender: u16, rate: f32 },
    Renounce { port: u16, sender: u16 },
    Wait(u64),
    Route(Route),
    Break(bool),
    Forget,
    Withdraw(usize),
    Noise { which: usize, at: usize, byte: u8 },
}

/// Messages that the router's neighbours could send, which arrive damaged: interface, source,
/// destination.
const NOISE: [(u32, &str, &str, &str); 6] = [
    (IN, "10.0.1.1", "10.0.2.2", PATH),
    (IN, "10.0.1.1", "10.0.2.2", PATH_TEAR),
    (IN, "10.0.1.1", "10.0.2.2", RESV_CONF),
    (OUT, "10.0.12.2", "10.0.12.1", RESV_FF),
    (OUT, "10.0.12.2", "10.0.12.1", RESV_TEAR),
    (OUT, "10.0.12.2", "10.0.12.1", PATH_ERR),
];

fn traffic(rate: f32) -> Tspec {
    Tspec { rate, burst: rate / 10.0 + 1.0, peak: f32::INFINITY, min_unit: 64, max_packet: 1500 }
}

fn steps() -> impl Strategy<Value = Step> {
    let port = || 5004..5007_u16;
    let name = || 4000..4004_u16;
    let rate = || 1.0_f32..200_000.0;
    let out = || prop_oneof![4 => Just(OUT), 1 => Just(OTHER)];
    let style = || prop_oneof![Just(Style::Fixed), Just(Style::Shared)];
    let some = || proptest::collection::vec(4000..4005_u16, 1..4);
    let route = prop_oneof![
        3 => Just(Route::Interface(OUT)),
        2 => Just(Route::Interface(OTHER)),
        1 => Just(Route::Interface(IN)),
        1 => Just(Route::Local),
        1 => Just(Route::Nowhere),
    ];
    prop_oneof![
        6 => (port(), name(), rate()).prop_map(|(port, sender, rate)| Step::Path { port, sender, rate }),
        1 => (port(), name()).prop_map(|(port, sender)| Step::PathTear { port, sender }),
        8 => (out(), port(), style(), rate(), some())
            .prop_map(|(out, port, style, rate, senders)| Step::Resv { out, port, style, rate, senders }),
        2 => (out(), port(), style(), some())
            .prop_map(|(out, port, style, senders)| Step::ResvTear { out, port, style, senders }),
        1 => (port(), name(), rate()).prop_map(|(port, sender, rate)| Step::Announce { port, sender, rate }),
        1 => (port(), name()).prop_map(|(port, sender)| Step::Renounce { port, sender }),
        3 => (0..3 * S).prop_map(Step::Wait),
        2 => (0..100 * S).prop_map(Step::Wait),
        1 => route.prop_map(Step::Route),
        1 => any::<bool>().prop_map(Step::Break),
        1 => Just(Step::Forget),
        1 => (0..5_usize).prop_map(Step::Withdraw),
        3 => (0..NOISE.len(), 8..200_usize, any::<u8>()).prop_map(|(which, at, byte)| Step::Noise { which, at, byte }),
    ]
}

fn named(ports: &[u16]) -> Vec<Sender> {
    let mut senders: Vec<Sender> = ports.iter().map(|port| sender(*port)).collect();
    senders.sort_unstable();
    senders.dedup();
    senders
}

/// r of every reservation, by key.
fn rates(router: &Router) -> BTreeMap<String, f32> {
    router.around.ledger.held.iter().map(|(key, (held, _))| (key.clone(), held.tspec.rate)).collect()
}

/// Takes a step; what was sent.
fn take(router: &mut Router, step: &Step) -> Vec<Transmit> {
    match step {
        Step::Path { port, sender: name, rate } => router.path(session(*port), sender(*name), traffic(*rate)),
        Step::PathTear { port, sender: name } => router.path_tear(session(*port), sender(*name)),
        Step::Resv { out, port, style, rate, senders } => {
            let senders = named(senders);
            if *style == Style::Shared {
                return router.resv(*out, session(*port), *style, &[(traffic(*rate), &senders)]);
            }
            let flows: Vec<(Tspec, &[Sender])> = senders.chunks(1).map(|one| (traffic(*rate), one)).collect();
            router.resv(*out, session(*port), *style, &flows)
        }
        Step::ResvTear { out, port, style, senders } => router.resv_tear(*out, session(*port), *style, &named(senders)),
        Step::Announce { port, sender: name, rate } => {
            let world = &mut router.around.world();
            let (session, sender) = (session(*port), sender(*name));
            let _refused_if_foreign = router.node.announce(router.now, world, session, sender, traffic(*rate));
            router.sent()
        }
        Step::Renounce { port, sender: name } => {
            let world = &mut router.around.world();
            router.node.renounce(router.now, world, session(*port), sender(*name));
            router.sent()
        }
        Step::Wait(time) => router.until(router.now + time),
        Step::Route(route) => {
            router.around.routes.to.insert(ip("10.0.2.2"), *route);
            router.node.routes_changed(router.now, &mut router.around.world());
            router.sent()
        }
        Step::Break(broken) => {
            router.around.ledger.broken = *broken;
            Vec::new()
        }
        Step::Forget => {
            router.around.ledger.forget();
            Vec::new()
        }
        Step::Withdraw(which) => {
            let key = router.node.reservations().get(*which).map(|view| view.key.clone());
            if let Some(key) = key {
                router.around.ledger.held.remove(&key);
                router.node.withdrawn(router.now, &mut router.around.world(), &key, 12, 0);
            }
            router.sent()
        }
        Step::Noise { which, at, byte } => {
            let (interface, source, destination, golden) = NOISE[*which];
            let mut message = hex(golden);
            // The header stays: another type or length would only be refused.
            let at = 8 + at % (message.len() - 8);
            message[at] ^= byte;
            message[2..4].fill(0);
            router.hear(interface, source, destination, &message)
        }
    }
}

/// Checks what holds after each step.
fn check(router: &mut Router, sent: &[Transmit]) -> Result<(), TestCaseError> {
    router.node.invariants().map_err(TestCaseError::fail)?;
    for interface in [IN, OUT, OTHER] {
        let total = router.around.ledger.total(interface);
        prop_assert!(total <= CAPACITY, "{} bytes/s on {}", total, interface);
    }
    for transmit in sent {
        let decoded = decode(&transmit.message);
        prop_assert!(decoded.is_ok(), "{:?}", decoded);
        prop_assert!(decoded.is_ok_and(|decoded| decoded.unknown.is_none()));
    }
    Ok(())
}

fn router(proxied: bool) -> Router {
    let mut config = config();
    if proxied {
        config.receiver_proxy = vec![Prefix::host(ip("10.0.2.2"))];
    }
    Router::new(config, CAPACITY)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_sequence(proxied in prop::bool::weighted(0.1), steps in proptest::collection::vec(steps(), 1..60)) {
        let mut router = router(proxied);
        for step in &steps {
            let before = rates(&router);
            let broken = router.around.ledger.broken;
            let sent = take(&mut router, step);
            // What passes by untouched, and what is repeated in an answer, may be damaged.
            let own: &[Transmit] = if matches!(step, Step::Noise { .. }) { &[] } else { &sent };
            check(&mut router, own)?;
            if broken && !matches!(step, Step::Break(_)) {
                // Traffic control refuses every change: what is there is what was there, or less.
                for (key, rate) in rates(&router) {
                    prop_assert_eq!(before.get(&key), Some(&rate), "{}", key);
                }
            }
        }
        // Left alone, everything that neighbours made goes, and what this node made stays.
        router.until(router.now + 3_200 * S);
        router.around.ledger.broken = false;
        check(&mut router, &[])?;
        prop_assert!(router.node.paths().iter().all(|path| path.previous_hop.is_none()));
        prop_assert!(router.node.reservations().iter().all(|view| view.next_hop.is_none()));
        prop_assert!(router.around.ledger.held.is_empty());
    }

    /// What traffic control has, without failures, is what was asked for last, or what was there
    /// before it was refused: never something between, and never more than the sender announced.
    #[test]
    fn a_refused_change_keeps_the_old(asked in proptest::collection::vec(1.0_f32..500_000.0, 1..30)) {
        let mut router = router(false);
        let only = session(5004);
        router.path(only, sender(4000), traffic(400_000.0));
        let mut there: Option<f32> = None;
        for rate in asked {
            router.now += 2 * S;
            router.path(only, sender(4000), traffic(400_000.0));
            router.resv(OUT, only, Style::Fixed, &[(traffic(rate), &[sender(4000)])]);
            let wanted = rate.min(400_000.0);
            if f64::from(wanted) <= CAPACITY {
                there = Some(wanted);
            }
            let held: Vec<f32> = router.rates(OUT);
            prop_assert_eq!(held, there.into_iter().collect::<Vec<f32>>());
        }
    }

    /// Any bytes from any neighbour: no panic, nothing that breaks an invariant.
    #[test]
    fn any_bytes(
        datagrams in proptest::collection::vec((1_u8..8, proptest::collection::vec(any::<u8>(), 0..120)), 1..20),
    ) {
        let mut router = router(false);
        for (kind, noise) in datagrams {
            let length = u16::try_from(8 + noise.len()).unwrap();
            let mut message = vec![0x10, kind, 0, 0, 64, 0];
            message.extend_from_slice(&length.to_be_bytes());
            message.extend_from_slice(&noise);
            router.hear(IN, "10.0.1.1", "10.0.1.2", &message);
        }
    }
}
