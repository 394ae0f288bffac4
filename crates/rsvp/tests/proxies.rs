//! Proxies for hosts without RSVP (RFC 5945, 5946).

use crate::support;

use altq_rsvp::node::{Event, Prefix, ProxyError, Refusal, Route, Transmit};
use altq_rsvp::wire::{
    Adspec, ErrorSpec, Flow, Flowspec, Hop, HopOffer, Message, Path, Resv, ResvErr, Style, Tspec, encode,
};
use support::router::{IN, OUT, R, Router, config, read, sender, session};
use support::{S, ip, tspec};

/// A router that answers for 10.0.2.0/24.
fn proxy() -> Router {
    let mut config = config();
    config.receiver_proxy = vec![Prefix { address: ip("10.0.2.0"), length: 24 }];
    Router::new(config, 1e6)
}

/// Path-triggered: a Path is answered by a Resv of what it announces, and goes no further.
#[test]
fn a_path_is_answered_for_its_receiver() {
    let mut router = proxy();
    let sent = router.path(session(5004), sender(4000), tspec(62_500.0, 10_000.0));
    assert_eq!((sent.len(), sent[0].interface, sent[0].destination), (1, IN, ip("10.0.1.1")));
    let Message::Resv(resv) = read(&sent[0]) else { panic!() };
    assert_eq!((resv.style, resv.hop.handle, resv.hop.address), (Style::Fixed, 3, ip("10.0.1.2")));
    let flow = Flow { flowspec: Flowspec::ControlledLoad(tspec(62_500.0, 10_000.0)), filters: vec![sender(4000)] };
    assert_eq!(resv.flows, [flow]);
    // The link to the receiver is not reserved.
    assert!(router.around.ledger.held.is_empty());
    // The sender changes its traffic: so does the reservation.
    let sent = router.path(session(5004), sender(4000), tspec(70_000.0, 10_000.0));
    let Message::Resv(resv) = read(&sent[0]) else { panic!() };
    assert_eq!(resv.flows[0].flowspec, Flowspec::ControlledLoad(tspec(70_000.0, 10_000.0)));
    // Refreshed as long as the Path is, and gone with it.
    let sent = router.until(100 * S);
    assert!(sent.iter().all(|transmit| matches!(read(transmit), Message::Resv(_))) && sent.len() >= 2);
    assert!(router.path_tear(session(5004), sender(4000)).is_empty());
    assert_eq!((router.node.sessions(), router.node.next_timeout()), (0, None));
}

/// What an application has asked for at a proxy stays when the sender's traffic changes.
#[test]
fn a_path_leaves_what_an_application_asked_for() {
    let mut router = proxy();
    router.path(session(5004), sender(4000), tspec(62_500.0, 10_000.0));
    let (filters, asked) = ([sender(4000)], (tspec(50_000.0, 10_000.0), false));
    let world = &mut router.around.world();
    router.node.reserve(0, world, session(5004), (Style::Fixed, &filters), asked).unwrap();
    let sent = router.sent();
    let Message::Resv(resv) = read(&sent[0]) else { panic!("{sent:?}") };
    let fifty = Flowspec::ControlledLoad(tspec(50_000.0, 10_000.0));
    assert_eq!((sent.len(), &resv.flows[0].flowspec), (1, &fifty));
    let sent = router.path(session(5004), sender(4000), tspec(70_000.0, 10_000.0));
    assert!(sent.is_empty(), "{sent:?}");
    assert_eq!(router.node.reservations()[0].asked.rate, 50_000.0);
    // Given up, it is the Path that says what is asked for, when that changes next.
    assert!(router.node.release(router.now, &mut router.around.world(), session(5004)));
    router.sent();
    let sent = router.path(session(5004), sender(4000), tspec(80_000.0, 10_000.0));
    let Message::Resv(resv) = read(&sent[0]) else { panic!("{sent:?}") };
    assert_eq!(resv.flows[0].flowspec, Flowspec::ControlledLoad(tspec(80_000.0, 10_000.0)));
}

/// The packets that a receiver asks for are no larger than the path carries, which its Adspec says,
/// and no smaller than the minimum policed unit, here 128 bytes.
#[test]
fn a_receiver_asks_for_packets_that_the_path_carries() {
    let mut router = proxy();
    let announced = tspec(62_500.0, 10_000.0);
    let Message::Path(path) = support::router::path(session(5004), sender(4000), announced) else { panic!() };
    for (mtu, max_packet) in [(9000, 1500), (1400, 1400), (100, 128)] {
        let adspec = Some(Adspec::new(HopOffer { bandwidth: 1e6, latency_us: 0, mtu }));
        let message = encode(&Message::Path(Path { adspec, ..path.clone() }), 64).unwrap();
        let sent = router.hear(IN, "10.0.1.1", "10.0.2.2", &message);
        assert_eq!(sent.len(), 1, "{sent:?}");
        let Message::Resv(resv) = read(&sent[0]) else { panic!("{sent:?}") };
        assert_eq!(resv.flows[0].flowspec, Flowspec::ControlledLoad(Tspec { max_packet, ..announced }));
    }
}

/// RFC 5946: what fails upstream is told to the sender by a PathErr.
#[test]
fn a_failure_is_told_to_the_sender() {
    let mut router = proxy();
    router.path(session(5004), sender(4000), tspec(62_500.0, 10_000.0));
    let error = ResvErr {
        session: session(5004),
        hop: Hop { address: ip("10.0.1.1"), handle: 3 },
        error: ErrorSpec { node: ip("10.0.0.9"), flags: 0, code: 1, value: 2 },
        scope: Vec::new(),
        style: Style::Fixed,
        flow: Flow { flowspec: Flowspec::ControlledLoad(tspec(62_500.0, 10_000.0)), filters: vec![sender(4000)] },
        passed_on: Vec::new(),
    };
    let bytes = encode(&Message::ResvErr(error), 64).unwrap();
    let sent = router.hear(IN, "10.0.1.1", "10.0.1.2", &bytes);
    assert_eq!(sent.len(), 1);
    let Message::PathErr(error) = read(&sent[0]) else { panic!("{sent:?}") };
    assert_eq!((error.error.code, error.error.value, error.error.node), (1, 2, ip("10.0.1.2")));
    assert!(router.events.iter().any(|event| matches!(event, Event::ResvError { .. })));
}

/// Application-triggered: this node announces a sender, and is asked for a reservation.
#[test]
fn a_sender_is_announced() {
    let mut router = Router::plain();
    let (session, sender) = (session(5004), sender(4000));
    let world = &mut router.around.world();
    router.node.announce(0, world, session, sender, tspec(62_500.0, 10_000.0)).unwrap();
    let sent = router.sent();
    assert_eq!((sent.len(), sent[0].interface, sent[0].ttl), (1, OUT, 64));
    assert_eq!((sent[0].source, sent[0].destination), (ip("10.0.1.1"), ip("10.0.2.2")));
    // The host's own Path would be another sender's.
    router.path(session, sender, tspec(1_000.0, 1_000.0));
    assert_eq!(router.refused(Refusal::OwnHop), 1);
    // A Resv with a wish for a confirmation ends here: it is answered.
    let resv = Resv {
        session,
        hop: Hop { address: ip("10.0.12.2"), handle: OUT },
        refresh_ms: R,
        confirm: Some(ip("10.0.2.2")),
        scope: Vec::new(),
        style: Style::Fixed,
        flows: vec![Flow { flowspec: Flowspec::ControlledLoad(tspec(50_000.0, 10_000.0)), filters: vec![sender] }],
        passed_on: Vec::new(),
    };
    let sent = router.hear(OUT, "10.0.12.2", "10.0.12.1", &encode(&Message::Resv(resv), 64).unwrap());
    assert_eq!((sent.len(), sent[0].interface, sent[0].destination), (1, OUT, ip("10.0.2.2")));
    let Message::ResvConf(conf) = read(&sent[0]) else { panic!("{sent:?}") };
    assert_eq!((conf.receiver, conf.error.code), (ip("10.0.2.2"), 0));
    assert!(sent[0].router_alert);
    assert_eq!(router.rates(OUT), [50_000.0_f32]);
    let told = Event::SenderReserved { session, sender, tspec: Some(tspec(50_000.0, 10_000.0)) };
    assert!(router.events.contains(&told));
    // Taken back: a PathTear, and the reservation goes.
    assert!(router.node.renounce(router.now, &mut router.around.world(), session, sender));
    assert!(matches!(read(&router.sent()[0]), Message::PathTear(_)));
    assert!(router.around.ledger.held.is_empty());
    assert!(!router.node.renounce(router.now, &mut router.around.world(), session, sender));
}

/// A reservation in place of a receiver, by an application.
#[test]
fn a_reservation_for_a_receiver() {
    let mut router = Router::plain();
    router.around.routes.to.insert(ip("10.0.2.2"), Route::Local);
    let (session, filters) = (session(5004), [sender(4000), sender(4001)]);
    let asked = (tspec(50_000.0, 10_000.0), false);
    let none = router.node.reserve(0, &mut router.around.world(), session, (Style::Shared, &filters), asked);
    assert_eq!(none, Err(ProxyError::NoPath));
    for sender in filters {
        assert!(router.path(session, sender, tspec(62_500.0, 10_000.0)).is_empty());
    }
    let wild = router.node.reserve(0, &mut router.around.world(), session, (Style::Wildcard, &filters), asked);
    assert_eq!(wild, Err(ProxyError::Style));
    router.node.reserve(0, &mut router.around.world(), session, (Style::Shared, &filters), asked).unwrap();
    let sent = router.sent();
    assert_eq!(sent.len(), 1);
    let Message::Resv(resv) = read(&sent[0]) else { panic!() };
    assert_eq!((resv.style, resv.flows.len(), resv.flows[0].filters.len()), (Style::Shared, 1, 2));
    let other = router.node.reserve(0, &mut router.around.world(), session, (Style::Fixed, &filters), asked);
    assert_eq!(other, Err(ProxyError::Style));
    assert!(router.node.release(0, &mut router.around.world(), session));
    let sent = router.sent();
    assert!(matches!(read(&sent[0]), Message::ResvTear(_)), "{sent:?}");
    assert!(!router.node.release(0, &mut router.around.world(), session));
}

/// A path that goes elsewhere takes along what was asked for here: nothing else would end it. When
/// it ends here again, that is told, so that it can be asked for again.
#[test]
fn a_receivers_request_goes_with_its_path() {
    let mut router = Router::plain();
    router.around.routes.to.insert(ip("10.0.2.2"), Route::Local);
    let (session, filters) = (session(5004), [sender(4000)]);
    router.path(session, sender(4000), tspec(62_500.0, 10_000.0));
    let asked = (tspec(50_000.0, 10_000.0), false);
    router.node.reserve(0, &mut router.around.world(), session, (Style::Fixed, &filters), asked).unwrap();
    assert_eq!((router.sent().len(), router.node.reservations().len()), (1, 1));
    router.around.routes.to.insert(ip("10.0.2.2"), Route::Interface(OUT));
    router.node.routes_changed(router.now, &mut router.around.world());
    let sent = router.until(2 * S);
    let tears = |transmit: &Transmit| transmit.interface == IN && matches!(read(transmit), Message::ResvTear(_));
    assert!(sent.iter().any(tears), "{sent:?}");
    assert!(router.node.reservations().is_empty());
    router.events.clear();
    router.around.routes.to.insert(ip("10.0.2.2"), Route::Local);
    router.node.routes_changed(router.now, &mut router.around.world());
    router.until(4 * S);
    assert!(router.events.iter().any(|event| matches!(event, Event::Path { .. })), "{:?}", router.events);
}

/// A Path for whose reservation there is no room is refused to its sender, once, and answered by a
/// later refresh when there is room. The limit of a neighbour is none of a receiver's here.
#[test]
fn a_path_without_room_is_answered_later() {
    let mut config = config();
    config.receiver_proxy = vec![Prefix { address: ip("10.0.2.0"), length: 24 }];
    (config.limits.reservations, config.limits.reservations_of_neighbour) = (2, 1);
    let mut router = Router::new(config, 1e6);
    let path = |router: &mut Router, port: u16| router.path(session(port), sender(4000), tspec(1_000.0, 1_000.0));
    for port in [5004, 5005] {
        assert!(matches!(read(&path(&mut router, port)[0]), Message::Resv(_)));
    }
    let sent = path(&mut router, 5006);
    let Message::PathErr(error) = read(&sent[0]) else { panic!("{sent:?}") };
    assert_eq!((sent.len(), error.error.code, error.error.node), (1, 23, ip("10.0.1.2")));
    assert!(path(&mut router, 5006).is_empty(), "it was told");
    assert_eq!(router.refused(Refusal::Limit), 2);
    router.path_tear(session(5004), sender(4000));
    let sent = path(&mut router, 5006);
    assert!(matches!(read(&sent[0]), Message::Resv(_)), "{sent:?}");
    // What was given up stays so until the sender's traffic changes.
    assert!(router.node.release(router.now, &mut router.around.world(), session(5006)));
    router.sent();
    assert!(path(&mut router, 5006).is_empty());
}

#[test]
fn calls_that_are_refused() {
    let mut router = Router::plain();
    let good = tspec(62_500.0, 10_000.0);
    let mut announce = |session, sender, tspec| {
        let result = router.node.announce(0, &mut router.around.world(), session, sender, tspec);
        router.node.invariants().unwrap();
        result.unwrap_err()
    };
    let six = altq_rsvp::wire::Sender::new(ip("2001:db8::1"), 4000);
    assert_eq!(announce(session(5004), six, good), ProxyError::Address);
    assert_eq!(announce(session(0), sender(0), good), ProxyError::Ports);
    assert_eq!(announce(session(5004), sender(4000), tspec(0.0, 1.0)), ProxyError::Values);
}
