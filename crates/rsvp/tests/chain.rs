//! A host, three routers, a host: reservations from end to end, with losses, failures and floods of
//! nothing but their own refreshes.

use crate::support;

use altq_rsvp::integrity::{Algorithm, Key};
use altq_rsvp::node::{Event, Refusal};
use altq_rsvp::wire::{parameter, service};
use support::chain::{Chain, LAST, RIGHT};
use support::{MS, S, tspec};

/// 500 kbit/s.
fn usual() -> altq_rsvp::wire::Tspec {
    tspec(62_500.0, 10_000.0)
}

/// A reservation is up after one round trip over the row, on each of the four links, for IPv4 and
/// IPv6, and is confirmed.
#[test]
fn a_reservation_from_end_to_end() {
    for v6 in [false, true] {
        let mut chain = Chain::new(1e6, 1, None);
        let (session, sender) = (Chain::session(v6, 5004), Chain::sender(v6, 4000));
        chain.announce(session, sender, usual());
        chain.until(5 * MS);
        assert_eq!(chain.nodes[LAST].paths().len(), 1, "4 links of 1 ms");
        let path = chain.nodes[LAST].paths().remove(0);
        let adspec = path.adspec.unwrap();
        assert_eq!(adspec.word(service::GENERAL, parameter::HOPS), Some(4));
        assert_eq!(adspec.word(service::GENERAL, parameter::BANDWIDTH).map(f32::from_bits), Some(1e6));
        assert_eq!(adspec.word(service::GENERAL, parameter::LATENCY), Some(400));
        assert!(!path.gap);
        assert_eq!(chain.held(), [0; LAST]);
        chain.reserve(session, sender, usual());
        chain.until(10 * MS);
        assert_eq!(chain.held(), [1; LAST], "4 links of 1 ms");
        let told = Event::SenderReserved { session, sender, tspec: Some(usual()) };
        assert!(chain.events[0].contains(&told));
        assert!(!chain.events[LAST].iter().any(|event| matches!(event, Event::Confirmed { .. })));
        chain.until(15 * MS);
        assert!(chain.events[LAST].iter().any(|event| matches!(event, Event::Confirmed { .. })));
        for node in &chain.nodes {
            assert!(node.counters().refused.is_empty(), "{:?}", node.counters());
        }
    }
}

/// An hour with nothing but refreshes: everything stays, nothing else happens.
#[test]
fn an_hour_of_refreshes() {
    let mut chain = Chain::new(1e6, 2, None);
    chain.reserved(false, 5004, usual());
    for _ in 0..3600 {
        chain.pass(S);
        assert_eq!(chain.held(), [1; LAST]);
    }
    for around in &chain.around[..LAST] {
        assert_eq!((around.ledger.calls["add"], around.ledger.calls.get("modify")), (1, None));
        assert_eq!(around.ledger.calls.get("del"), None);
    }
    // RFC 2205 3.7: R = 30 s, each interval evenly distributed in 15 to 45 s, gives 120 an hour;
    // the standard deviation of the sum of 120 is 95 s, which is 3.2 intervals.
    let sent = chain.nodes[1].counters().sent["Path"];
    assert!((107..=133).contains(&sent), "{sent}");
}

/// 30 % of all messages are lost for ten minutes. With K = 8 a lifetime has 12.75 refreshes on
/// average, of which at least 8 come (RFC 2205 3.7): that all are lost has a probability of 0.3^8 =
/// 0.007 % at most, and about 0.3^12 on average, so nothing is missing at any time.
#[test]
fn state_survives_losses() {
    for seed in 0..20 {
        let mut chain = Chain::with_k(1e6, 100 + seed, None, 8);
        chain.reserved(false, 5004, usual());
        chain.loss = 300;
        for second in 0..600 {
            chain.pass(S);
            assert_eq!(chain.held(), [1; LAST], "seed {seed}, second {second}");
        }
    }
}

/// With K = 3 a lifetime has about five refreshes. In ten minutes each of the 8 states of the row
/// (path and reservation on 4 links) is lost with a probability of about 20 · 0.3^5 = 5 %, so a
/// third of the rows loses one, and needs a minute or two to come back: 5 % of the time. All of
/// them come back.
#[test]
fn state_comes_back_after_losses() {
    let (mut there, mut seconds) = (0, 0);
    for seed in 0..20 {
        let mut chain = Chain::new(1e6, 100 + seed, None);
        chain.reserved(false, 5004, usual());
        chain.loss = 300;
        for second in 0..800 {
            chain.pass(S);
            if second == 600 {
                chain.loss = 0;
            }
            if second < 600 {
                there += chain.held().iter().sum::<usize>();
                seconds += LAST;
            }
            // The application asks again when it hears of the sender again.
            let receiver = &chain.nodes[LAST];
            if receiver.reservations().is_empty() && !receiver.paths().is_empty() {
                chain.reserve(Chain::session(false, 5004), Chain::sender(false, 5004), usual());
            }
        }
        assert_eq!(chain.held(), [1; LAST], "seed {seed}");
    }
    assert!(there * 100 >= seconds * 85, "{there} of {seconds}");
}

/// The receiver's host dies: its reservation goes within its lifetime, and the teardown runs up the
/// row at once.
#[test]
fn a_dead_receiver() {
    let mut chain = Chain::new(1e6, 3, None);
    chain.reserved(false, 5004, usual());
    chain.pass(100 * S);
    chain.dead = Some(LAST);
    chain.pass(100 * S);
    assert_eq!(chain.held(), [1; LAST], "157.5 s after the last refresh, which is at most 45 s old");
    chain.pass(58 * S);
    assert_eq!(chain.held(), [0; LAST]);
    let gone =
        Event::SenderReserved { session: Chain::session(false, 5004), sender: Chain::sender(false, 5004), tspec: None };
    assert!(chain.events[0].contains(&gone));
}

/// The sender's host dies: paths go hop by hop or by the PathTear of the first router.
#[test]
fn a_dead_sender() {
    let mut chain = Chain::new(1e6, 4, None);
    chain.reserved(false, 5004, usual());
    chain.dead = Some(0);
    chain.pass(203 * S);
    assert_eq!(chain.held()[1..], [0; LAST - 1]);
    for node in &chain.nodes[1..] {
        assert_eq!((node.sessions(), node.next_timeout()), (0, None));
    }
}

/// A router in the middle starts again without state: the refreshes of its neighbours make it
/// whole.
#[test]
fn a_router_that_restarts() {
    let mut chain = Chain::new(1e6, 5, None);
    chain.reserved(false, 5004, usual());
    let fresh = Chain::new(1e6, 77, None);
    chain.nodes[2] = fresh.nodes.into_iter().nth(2).unwrap();
    chain.around[2].ledger.forget();
    chain.pass(200 * S);
    assert_eq!(chain.held(), [1; LAST]);
}

/// A change beyond what one link has: the old reservation stays on every link, and the receiver is
/// told that it does.
#[test]
fn a_change_beyond_capacity() {
    let mut chain = Chain::new(1e6, 6, None);
    let (session, sender) = (Chain::session(false, 5004), Chain::sender(false, 4000));
    chain.around[1].ledger.capacity = 100_000.0;
    chain.announce(session, sender, tspec(500_000.0, 10_000.0));
    chain.pass(10 * MS);
    chain.reserve(session, sender, usual());
    chain.pass(5 * S);
    assert_eq!(chain.held(), [1; LAST]);
    chain.reserve(session, sender, tspec(400_000.0, 10_000.0));
    chain.pass(5 * S);
    let rate = |chain: &Chain, node: usize| chain.around[node].ledger.total(RIGHT);
    // The routers behind the narrow link have granted it; that one and those before it have not.
    assert_eq!((rate(&chain, 0), rate(&chain, 1)), (62_500.0, 62_500.0));
    assert_eq!((rate(&chain, 2), rate(&chain, 3)), (400_000.0, 400_000.0));
    let failed = chain.events[LAST].iter().find_map(|event| match event {
        Event::ResvError { error, .. } => Some(*error),
        _ => None,
    });
    let failed = failed.unwrap();
    assert_eq!((failed.code, failed.value, failed.flags), (1, 2, 1));
    assert_eq!(failed.node, support::chain::address(false, 1, 1), "the router at the narrow link");
    // It stays so with every refresh of either.
    chain.pass(600 * S);
    assert_eq!((rate(&chain, 0), rate(&chain, 1)), (62_500.0, 62_500.0));
    // The receiver asks for less: every link follows.
    chain.reserve(session, sender, tspec(50_000.0, 10_000.0));
    chain.pass(5 * S);
    assert!((0..LAST).all(|node| rate(&chain, node) == 50_000.0));
}

/// Every message is signed, and every node challenges its neighbours first: what was refused until
/// then comes again with the refreshes.
#[test]
fn signed_from_end_to_end() {
    let key = Key { id: 9, algorithm: Algorithm::HmacSha256, secret: b"a secret of the row".to_vec() };
    let mut chain = Chain::new(1e6, 7, Some(&key));
    let (session, sender) = (Chain::session(false, 5004), Chain::sender(false, 4000));
    chain.announce(session, sender, usual());
    // Four handshakes, each until the next refresh, which is at most 45 s away.
    chain.pass(181 * S);
    chain.reserve(session, sender, usual());
    chain.pass(181 * S);
    assert_eq!(chain.held(), [1; LAST]);
    for node in &chain.nodes {
        let counters = node.counters();
        let wrong = [Refusal::Forged, Refusal::Unsigned, Refusal::Answer].map(|why| counters.refused(why));
        assert_eq!(wrong, [0; 3], "{counters:?}");
    }
    chain.pass(600 * S);
    assert_eq!(chain.held(), [1; LAST]);
}
