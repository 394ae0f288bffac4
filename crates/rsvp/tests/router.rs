//! One router: paths, reservations, changes, tears, expiry, repair.

use crate::support;

use altq_rsvp::node::{Event, Refusal, Route, Transmit};
use altq_rsvp::wire::{Flow, Flowspec, Hop, Message, Path, Resv, Style, decode, encode, is_unicast};
use support::messages::{PATH, RESV_ERR, RESV_FF};
use support::router::{IN, OTHER, OUT, Router, read, reserved, sender, session};
use support::{S, hex, ip, tspec};

/// The only message that was sent.
fn only(sent: &[Transmit]) -> &Transmit {
    assert_eq!(sent.len(), 1, "{sent:?}");
    &sent[0]
}

fn resv_of(sent: &[Transmit]) -> Resv {
    let Message::Resv(resv) = read(only(sent)) else { panic!("{sent:?}") };
    resv
}

/// The golden Path comes from 10.0.1.1 and goes on with this router as its hop (RFC 2205 3.1.3).
#[test]
fn a_path_goes_on() {
    let mut router = Router::plain();
    let sent = router.hear(IN, "10.0.1.1", "10.0.2.2", &hex(PATH));
    let transmit = only(&sent);
    // From the sender to the session, with router alert and a TTL that is one less.
    assert_eq!((transmit.source, transmit.destination), (ip("10.0.1.1"), ip("10.0.2.2")));
    assert_eq!((transmit.interface, transmit.ttl, transmit.router_alert), (OUT, 63, true));
    let decoded = decode(&transmit.message).unwrap();
    assert_eq!(decoded.header.send_ttl, 63);
    let (Message::Path(there), Message::Path(here)) = (decoded.message, decode(&hex(PATH)).unwrap().message) else {
        panic!()
    };
    let mut adspec = here.adspec.clone().unwrap();
    // The ledger offers what is left of 1 Mbyte/s, and 100 us; the MTU is 1500.
    adspec.pass(altq_rsvp::wire::HopOffer { bandwidth: 1e6, latency_us: 100, mtu: 1500 }, false);
    let hop = Hop { address: ip("10.0.12.1"), handle: OUT };
    assert_eq!(there, Path { hop, adspec: Some(adspec), ..here });
    // A refresh of the same changes nothing, and goes on only with this router's own refreshes.
    assert!(router.hear(IN, "10.0.1.1", "10.0.2.2", &hex(PATH)).is_empty());
    assert_eq!(router.node.paths().len(), 1);
}

/// The golden Resv makes a reservation, and asks the previous hop for the same.
#[test]
fn a_resv_makes_a_reservation() {
    let mut router = Router::plain();
    router.hear(IN, "10.0.1.1", "10.0.2.2", &hex(PATH));
    let sent = router.hear(OUT, "10.0.12.2", "10.0.12.1", &hex(RESV_FF));
    let held = router.around.ledger.held.clone();
    let (held, until) = &held["rsvp:10.0.2.2/17/5004/10.0.1.1/4000#eth7"];
    // 62,500 bytes/s are 500 kbit/s.
    assert_eq!((held.rate_bit_s(), held.burst_bytes(), held.peak_bit_s()), (500_000, 10_000, None));
    assert_eq!((held.owner.as_str(), held.interface), ("rsvp:10.0.12.2", OUT));
    assert_eq!(*until, 157_500_000_000, "RFC 2205 3.7");
    let flow = held.flows[0];
    assert_eq!(
        (flow.src, flow.sport, flow.dst, flow.dport, flow.proto),
        (ip("10.0.1.1"), 4000, ip("10.0.2.2"), 5004, 17)
    );
    let transmit = only(&sent);
    assert_eq!((transmit.source, transmit.destination), (ip("10.0.1.2"), ip("10.0.1.1")));
    assert_eq!((transmit.interface, transmit.router_alert), (IN, false));
    // The previous hop gets its own handle back: 7 in the golden Path.
    let Message::Resv(golden) = decode(&hex(RESV_FF)).unwrap().message else { panic!() };
    assert_eq!(resv_of(&sent), Resv { hop: Hop { address: ip("10.0.1.2"), handle: 7 }, ..golden });
    // A refresh prolongs, and nothing is sent.
    router.now = 30 * S;
    assert!(router.hear(OUT, "10.0.12.2", "10.0.12.1", &hex(RESV_FF)).is_empty());
    assert_eq!(router.around.ledger.held.values().next().unwrap().1, 187_500_000_000);
    assert_eq!(router.around.ledger.calls["add"], 1);
}

/// Traffic control was started anew without what it had: it is asked for again at once, and where
/// there is no room any more, the next hop is told.
#[test]
fn what_traffic_control_has_lost_is_asked_for_again() {
    let mut router = Router::plain();
    router.hear(IN, "10.0.1.1", "10.0.2.2", &hex(PATH));
    router.hear(OUT, "10.0.12.2", "10.0.12.1", &hex(RESV_FF));
    assert_eq!(router.node.reinstall(router.now, &mut router.around.world(), &|_| true), 0);
    assert_eq!(router.around.ledger.calls["add"], 1);
    router.around.ledger.held.clear();
    assert_eq!(router.node.reinstall(router.now, &mut router.around.world(), &|_| false), 1);
    assert!(router.sent().is_empty(), "the neighbours need not know");
    assert_eq!(router.around.ledger.calls["add"], 2);
    assert!(router.around.ledger.held.contains_key("rsvp:10.0.2.2/17/5004/10.0.1.1/4000#eth7"));
    router.around.ledger.held.clear();
    router.around.ledger.capacity = 1000.0;
    assert_eq!(router.node.reinstall(router.now, &mut router.around.world(), &|_| false), 1);
    let kinds: Vec<u8> = router.sent().iter().map(|transmit| transmit.message[1]).collect();
    // A ResvErr to the next hop, a ResvTear to the previous one.
    assert_eq!(kinds, [4, 6]);
    assert!(router.node.reservations().is_empty());
}

/// Guaranteed service is refused by 21/02: the answer is the golden ResvErr, to the byte.
#[test]
fn guaranteed_service_is_refused_as_published() {
    let mut router = Router::plain();
    router.hear(IN, "10.0.1.1", "10.0.2.2", &hex(PATH));
    let flowspec = Flowspec::Guaranteed { tspec: tspec(62_500.0, 10_000.0), rate: 70_000.0, slack: 0 };
    let flow = Flow { flowspec, filters: vec![sender(4000)] };
    let sent = router.resv_flows(OUT, session(5004), Style::Fixed, vec![flow]);
    assert_eq!(only(&sent).message, hex(RESV_ERR));
    assert_eq!((only(&sent).interface, only(&sent).destination), (OUT, ip("10.0.12.2")));
    assert_eq!(router.refused(Refusal::Service), 1);
    assert!(router.node.reservations().is_empty());
}

/// A change beyond capacity is refused with the flag that the old reservation is in place, and it
/// is (RFC 2205 2.5).
#[test]
fn a_refused_change_keeps_the_old_reservation() {
    let mut router = Router::plain();
    router.path(session(5004), sender(4000), tspec(2e6, 10_000.0));
    let ask = |router: &mut Router, rate: f32| {
        router.resv(OUT, session(5004), Style::Fixed, &[(tspec(rate, 10_000.0), &[sender(4000)])])
    };
    ask(&mut router, 62_500.0);
    router.now = 10 * S;
    let sent = ask(&mut router, 1.5e6);
    let Message::ResvErr(error) = read(only(&sent)) else { panic!("{sent:?}") };
    assert_eq!((error.error.code, error.error.value, error.error.flags), (1, 2, 1));
    assert_eq!(router.rates(OUT), [62_500.0_f32]);
    let views = router.node.reservations();
    assert_eq!((views[0].asked.rate, views[0].expires), (62_500.0, Some(10 * S + 157_500_000_000)));
    // A change that fits is one modify, and goes upstream at once.
    router.now = 20 * S;
    let sent = ask(&mut router, 9e5);
    assert_eq!(router.rates(OUT), [9e5_f32]);
    assert_eq!(resv_of(&sent).flows[0].flowspec, Flowspec::ControlledLoad(tspec(9e5, 10_000.0)));
    assert_eq!((router.around.ledger.calls["add"], router.around.ledger.calls["modify"]), (1, 2));
    assert_eq!(router.around.ledger.calls.get("del"), None);
}

/// A new reservation that does not fit leaves nothing.
#[test]
fn a_refused_reservation_leaves_nothing() {
    let mut router = Router::new(support::router::config(), 100_000.0);
    for port in 0..2 {
        router.path(session(5004), sender(4000 + port), tspec(62_500.0, 10_000.0));
    }
    let flow = |port| (tspec(62_500.0, 10_000.0), [sender(port)]);
    let (first, second) = (flow(4000), flow(4001));
    // Both in one message: each is judged by itself.
    let sent = router.resv(OUT, session(5004), Style::Fixed, &[(first.0, &first.1), (second.0, &second.1)]);
    let errors: Vec<_> = sent.iter().filter(|transmit| transmit.interface == OUT).collect();
    assert_eq!(errors.len(), 1);
    let Message::ResvErr(error) = read(errors[0]) else { panic!() };
    assert_eq!((error.error.code, error.error.value, error.error.flags), (1, 2, 0));
    assert_eq!(error.flow.filters, [sender(4001)]);
    assert_eq!(router.rates(OUT), [62_500.0_f32]);
    assert_eq!(router.node.reservations().len(), 1);
}

/// What is installed is no more than the senders announced (RFC 2211, Ordering and Merging), and in
/// SE they share it.
#[test]
fn shared_reservations() {
    let mut router = Router::plain();
    router.path(session(5004), sender(4000), tspec(20_000.0, 5_000.0));
    let all = [sender(4000), sender(4001), sender(4002)];
    router.resv(OUT, session(5004), Style::Shared, &[(tspec(50_000.0, 20_000.0), &all)]);
    // One sender of three is there: its 20,000 bytes/s, not 50,000.
    assert_eq!(router.rates(OUT), [20_000.0_f32]);
    router.path(session(5004), sender(4001), tspec(20_000.0, 5_000.0));
    assert_eq!(router.rates(OUT), [40_000.0_f32]);
    let sent = router.path(session(5004), sender(4002), tspec(20_000.0, 5_000.0));
    assert_eq!(router.rates(OUT), [50_000.0_f32]);
    let held = router.around.ledger.held.values().next().unwrap().0.clone();
    assert_eq!((held.flows.len(), held.police.merge, held.key.as_str()), (3, true, "rsvp:10.0.2.2/17/5004#eth7"));
    // The new sender's Path goes on, and the previous hop is asked for all three.
    let asked: Vec<_> = sent.iter().filter(|transmit| transmit.interface == IN).collect();
    let Message::Resv(resv) = read(asked[0]) else { panic!() };
    assert_eq!((asked.len(), resv.flows.len(), resv.style), (1, 1, Style::Shared));
    assert_eq!(resv.flows[0].filters, all);
    // A sender that leaves takes its part along, silently; one that is torn by the receiver too.
    router.path_tear(session(5004), sender(4001));
    assert_eq!(router.rates(OUT), [40_000.0_f32]);
    router.resv_tear(OUT, session(5004), Style::Shared, &[sender(4002)]);
    assert_eq!(router.rates(OUT), [20_000.0_f32]);
    router.path_tear(session(5004), sender(4000));
    assert_eq!(router.rates(OUT), [] as [f32; 0]);
    assert!(router.node.reservations().is_empty());
}

/// Tears: a PathTear takes reservations along without a word upstream; a ResvTear goes on upstream.
#[test]
fn tears() {
    let mut router = reserved();
    let sent = router.path_tear(session(5004), sender(4000));
    assert!(matches!(read(only(&sent)), Message::PathTear(_)));
    assert_eq!(only(&sent).interface, OUT);
    assert_eq!((router.node.sessions(), router.around.ledger.held.len()), (0, 0));
    assert_eq!(router.node.next_timeout(), None, "no timer without state");

    let mut router = reserved();
    let sent = router.resv_tear(OUT, session(5004), Style::Fixed, &[sender(4000)]);
    let Message::ResvTear(tear) = read(only(&sent)) else { panic!("{sent:?}") };
    assert_eq!((only(&sent).interface, tear.hop.handle, tear.filters), (IN, 3, vec![sender(4000)]));
    assert!(router.around.ledger.held.is_empty());
    assert_eq!(router.node.paths().len(), 1);
    // Nothing is left to tear.
    router.resv_tear(OUT, session(5004), Style::Fixed, &[sender(4000)]);
    assert_eq!(router.refused(Refusal::NoState), 1);
}

/// What is not refreshed goes after 157.5 s (RFC 2205 3.7), and its neighbours are told.
#[test]
fn soft_state_expires() {
    let mut router = reserved();
    let sent = router.until(157 * S);
    let paths = sent.iter().filter(|transmit| transmit.interface == OUT).count();
    let resvs = sent.iter().filter(|transmit| transmit.interface == IN).count();
    // 157 s hold 3 to 10 refreshes of 15 to 45 s.
    assert!((3..=10).contains(&paths) && (3..=10).contains(&resvs), "{paths} {resvs}");
    assert_eq!(router.node.paths().len(), 1);
    let sent = router.until(158 * S);
    assert!(sent.iter().any(|transmit| matches!(read(transmit), Message::PathTear(_))));
    assert_eq!((router.node.sessions(), router.around.ledger.held.len()), (0, 0));
    assert!(router.events.iter().any(|event| matches!(event, Event::PathGone { .. })));
    assert_eq!(router.node.next_timeout(), None);
}

/// Changes of one reservation come once a second at most; the last one counts.
#[test]
fn a_flapping_reservation() {
    let mut router = Router::plain();
    router.path(session(5004), sender(4000), tspec(1e6, 10_000.0));
    for step in 0..10 {
        let rate = 10_000.0 * (step + 1) as f32;
        router.resv(OUT, session(5004), Style::Fixed, &[(tspec(rate, 10_000.0), &[sender(4000)])]);
        router.until(router.now + S / 20);
    }
    // Half a second has passed: the first one stands.
    assert_eq!(router.rates(OUT), [10_000.0_f32]);
    assert!(router.node.reservations()[0].changing);
    let sent = router.until(S);
    assert_eq!(router.rates(OUT), [100_000.0_f32]);
    assert_eq!(resv_of(&sent).flows[0].flowspec, Flowspec::ControlledLoad(tspec(100_000.0, 10_000.0)));
    assert_eq!(router.around.ledger.calls["modify"], 1);
}

/// The wish for a confirmation of a change that waits goes upstream with that change (RFC 2205
/// 2.6). A refresh without the wish, while it waits, does not take it back.
#[test]
fn a_change_that_waits_keeps_its_wish() {
    let mut router = Router::plain();
    router.path(session(5004), sender(4000), tspec(1e6, 10_000.0));
    let ask = |router: &mut Router, rate: f32, confirm: Option<std::net::IpAddr>| {
        let flow = Flow { flowspec: Flowspec::ControlledLoad(tspec(rate, 10_000.0)), filters: vec![sender(4000)] };
        let resv = Resv {
            session: session(5004),
            hop: Hop { address: ip("10.0.12.2"), handle: OUT },
            refresh_ms: support::router::R,
            confirm,
            scope: Vec::new(),
            style: Style::Fixed,
            flows: vec![flow],
            passed_on: Vec::new(),
        };
        router.hear(OUT, "10.0.12.2", "10.0.12.1", &encode(&Message::Resv(resv), 64).unwrap())
    };
    assert_eq!(resv_of(&ask(&mut router, 10_000.0, None)).confirm, None);
    router.now = S / 2;
    assert!(ask(&mut router, 20_000.0, Some(ip("10.0.2.2"))).is_empty());
    assert!(ask(&mut router, 20_000.0, None).is_empty());
    let sent = router.until(S);
    assert_eq!(router.rates(OUT), [20_000.0_f32]);
    assert_eq!(resv_of(&sent).confirm, Some(ip("10.0.2.2")));
}

/// Local repair (RFC 2205 3.6): W = 2 s after the route has changed the Path goes the new way. The
/// reservation upstream stays until the new one is there.
#[test]
fn local_repair() {
    let mut router = reserved();
    router.now = 5 * S;
    router.around.routes.to.insert(ip("10.0.2.2"), Route::Interface(OTHER));
    router.node.routes_changed(router.now, &mut router.around.world());
    assert!(router.until(7 * S - 1).is_empty());
    assert_eq!(router.rates(OUT), [62_500.0_f32]);
    let sent = router.until(7 * S);
    assert_eq!((only(&sent).interface, only(&sent).destination), (OTHER, ip("10.0.2.2")));
    assert_eq!((router.rates(OUT).len(), router.rates(OTHER).len()), (0, 0));
    assert_eq!(router.node.reservations().len(), 1, "the previous hop is still asked");
    // The old next hop does not know yet: it is not an error.
    let old = router.resv(OUT, session(5004), Style::Fixed, &[(tspec(62_500.0, 10_000.0), &[sender(4000)])]);
    assert!(old.is_empty());
    assert_eq!(router.refused(Refusal::Branch), 1);
    // The new one answers: the reservation is there, and upstream nothing has changed.
    let new = router.resv(OTHER, session(5004), Style::Fixed, &[(tspec(62_500.0, 10_000.0), &[sender(4000)])]);
    assert!(new.is_empty());
    assert_eq!(router.rates(OTHER), [62_500.0_f32]);
    assert_eq!(router.node.reservations().len(), 1);
    // Never out of the interface that it came by.
    router.around.routes.to.insert(ip("10.0.2.2"), Route::Interface(IN));
    router.node.routes_changed(router.now, &mut router.around.world());
    let sent = router.until(router.now + 2 * S);
    assert!(sent.is_empty(), "{sent:?}");
    assert_eq!(router.node.paths()[0].outgoing, None);
}

/// The route leads to another router by the same interface: the Path goes there as soon (RFC 2205
/// 3.6).
#[test]
fn local_repair_to_another_router_of_the_same_network() {
    let mut router = reserved();
    router.now = 5 * S;
    router.around.routes.to.insert(ip("10.0.2.2"), Route::Gateway(OUT, ip("10.0.12.3")));
    router.node.routes_changed(router.now, &mut router.around.world());
    assert!(router.until(7 * S - 1).is_empty());
    let sent = router.until(7 * S);
    assert!(matches!(read(only(&sent)), Message::Path(_)));
    assert_eq!((only(&sent).interface, router.rates(OUT)), (OUT, vec![62_500.0_f32]));
    // The same route again is no change.
    router.node.routes_changed(router.now, &mut router.around.world());
    assert!(router.until(router.now + 3 * S).is_empty());
}

/// The sender comes by another previous hop: the Resv goes there at once (RFC 2205 3.6). The old
/// one is not told: what it has times out (RFC 2205 2.3). It may still send Paths until then, and
/// with each of them a tear would go to the hop that is in use.
#[test]
fn a_new_previous_hop_gets_its_resv_at_once() {
    let mut config = support::router::config();
    let prefix = altq_rsvp::node::Prefix { address: ip("10.0.1.0"), length: 24 };
    config.interfaces[0].neighbours[0].prefix = prefix;
    let mut router = Router::new(config, 1e6);
    router.path(session(5004), sender(4000), tspec(62_500.0, 10_000.0));
    router.resv(OUT, session(5004), Style::Fixed, &[(tspec(62_500.0, 10_000.0), &[sender(4000)])]);
    let Message::Path(path) = support::router::path(session(5004), sender(4000), tspec(62_500.0, 10_000.0)) else {
        panic!()
    };
    let moved = Message::Path(Path { hop: Hop { address: ip("10.0.1.9"), handle: 11 }, ..path });
    let sent = router.hear(IN, "10.0.1.1", "10.0.2.2", &encode(&moved, 64).unwrap());
    let resv = sent.iter().find(|transmit| transmit.destination == ip("10.0.1.9")).unwrap();
    let Message::Resv(resv) = read(resv) else { panic!() };
    assert_eq!(resv.hop, Hop { address: ip("10.0.1.2"), handle: 11 });
    let tears = |sent: &[Transmit]| sent.iter().any(|transmit| matches!(read(transmit), Message::ResvTear(_)));
    assert!(!tears(&sent), "{sent:?}");
    // A tear of the old hop tears nothing.
    router.path_tear(session(5004), sender(4000));
    assert_eq!(router.rates(OUT), [62_500.0_f32]);
    // A Path that the old hop sends late asks it again, and leaves the new one what it has.
    let sent = router.path(session(5004), sender(4000), tspec(62_500.0, 10_000.0));
    assert!(sent.iter().any(|transmit| transmit.destination == ip("10.0.1.1")), "{sent:?}");
    assert!(!tears(&sent), "{sent:?}");
    assert_eq!(router.rates(OUT), [62_500.0_f32]);
    // The receiver gives up: the hop by which Paths came last is told.
    let sent = router.resv_tear(OUT, session(5004), Style::Fixed, &[sender(4000)]);
    assert!(tears(&sent) && only(&sent).destination == ip("10.0.1.1"), "{sent:?}");
}

/// Traffic control was restarted: the next refresh makes the reservation again.
#[test]
fn a_reservation_that_was_lost_comes_back() {
    let mut router = reserved();
    router.around.ledger.forget();
    router.now = 30 * S;
    router.resv(OUT, session(5004), Style::Fixed, &[(tspec(62_500.0, 10_000.0), &[sender(4000)])]);
    assert_eq!(router.rates(OUT), [62_500.0_f32]);
    assert_eq!(router.around.ledger.calls["add"], 2);
}

/// Traffic control takes a reservation away: the receiver is told by code 12, the sender's side by
/// a ResvTear.
#[test]
fn preemption() {
    let mut router = reserved();
    let key = router.node.reservations()[0].key.clone();
    router.around.ledger.forget();
    assert!(router.node.withdrawn(router.now, &mut router.around.world(), &key, 12, 0));
    let sent = router.sent();
    assert_eq!(sent.len(), 2);
    let error = sent.iter().find(|transmit| transmit.interface == OUT).unwrap();
    let Message::ResvErr(error) = read(error) else { panic!() };
    assert_eq!((error.error.code, error.error.flags), (12, 0));
    let tear = sent.iter().find(|transmit| transmit.interface == IN).unwrap();
    assert!(matches!(read(tear), Message::ResvTear(_)));
    assert!(router.node.reservations().is_empty());
    assert!(!router.node.withdrawn(router.now, &mut router.around.world(), &key, 12, 0));
}

/// A router without RSVP before this one: the general break bit (RFC 2205 3.8, RFC 2215 3.1).
#[test]
fn a_gap_is_seen() {
    let mut router = Router::plain();
    let message = hex(PATH);
    let arrived = altq_rsvp::node::Arrived {
        interface: IN,
        source: ip("10.0.1.1"),
        destination: ip("10.0.2.2"),
        ttl: 62,
        message: &message,
    };
    router.node.receive(0, &mut router.around.world(), &arrived);
    let sent = router.sent();
    assert_eq!(only(&sent).ttl, 61);
    let Message::Path(path) = read(only(&sent)) else { panic!() };
    let adspec = path.adspec.unwrap();
    assert!(adspec.services[0].broken && !adspec.services[1].broken);
    assert!(router.node.paths()[0].gap);
}

/// A thousand sessions: all of them are kept, refreshed and forgotten.
#[test]
fn a_thousand_sessions() {
    let mut router = Router::new(support::router::config(), 1e9);
    for port in 1..=1000 {
        router.now += S / 1000;
        router.path(session(port), sender(4000), tspec(1_000.0, 1_000.0));
        router.resv(OUT, session(port), Style::Fixed, &[(tspec(1_000.0, 1_000.0), &[sender(4000)])]);
    }
    assert_eq!((router.node.sessions(), router.node.reservations().len()), (1000, 1000));
    assert_eq!(router.around.ledger.held.len(), 1000);
    let end = router.now + 158 * S;
    router.now = end;
    router.node.handle_timeout(end, &mut router.around.world());
    router.sent();
    assert_eq!((router.node.sessions(), router.around.ledger.held.len()), (0, 0));
    assert_eq!(router.node.next_timeout(), None);
}

#[test]
fn unicast() {
    for address in ["0.0.0.0", "127.0.0.1", "224.0.0.14", "255.255.255.255", "::", "::1", "ff02::1"] {
        assert!(!is_unicast(ip(address)), "{address}");
    }
    assert!(is_unicast(ip("10.0.2.2")) && is_unicast(ip("2001:db8::1")));
}
