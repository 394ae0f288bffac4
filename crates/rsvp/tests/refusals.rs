//! What a node refuses: by an answer where RFC 2205 has one, silently where an answer would help a
//! forger, and always by a counter.

use crate::support;

use altq_rsvp::integrity::{Algorithm, Key, sign};
use altq_rsvp::node::{ConfigError, Limits, Neighbour, Node, Prefix, Refusal, Transmit};
use altq_rsvp::wire::{
    Adspec, Fault, Flow, Flowspec, Hop, IN_PLACE, Message, Parameter, Path, PathErr, RawObject, ResvErr, Sender,
    Service, Session, Style, Tspec, decode, encode, set_checksum,
};
use support::messages::{PATH, RESV_FF, RESV_TEAR};
use support::router::{IN, OTHER, OUT, R, Router, config, path, read, reserved, sender, session};
use support::{S, hex, ip, tspec};

const RATE: f32 = 62_500.0;

fn usual() -> Tspec {
    tspec(RATE, 10_000.0)
}

/// The PathErr that was sent to 10.0.1.1: its code and value.
fn path_err(sent: &[Transmit]) -> (u8, u16) {
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!((sent[0].interface, sent[0].destination), (IN, ip("10.0.1.1")));
    let Message::PathErr(PathErr { error, .. }) = read(&sent[0]) else { panic!("{sent:?}") };
    assert_eq!(error.node, ip("10.0.1.2"));
    (error.code, error.value)
}

/// The ResvErr that was sent to 10.0.12.2: its code and value.
fn resv_err(sent: &[Transmit]) -> (u8, u16) {
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!((sent[0].interface, sent[0].destination), (OUT, ip("10.0.12.2")));
    let Message::ResvErr(ResvErr { error, .. }) = read(&sent[0]) else { panic!("{sent:?}") };
    assert_eq!((error.node, error.flags), (ip("10.0.12.1"), 0));
    (error.code, error.value)
}

fn resv(router: &mut Router, style: Style, tspec: Tspec, filters: &[Sender]) -> Vec<Transmit> {
    router.resv(OUT, session(5004), style, &[(tspec, filters)])
}

#[test]
fn paths_with_an_answer() {
    let mut router = Router::plain();
    // 21/04: a Tspec with values out of range.
    for bad in [f32::NAN, f32::INFINITY, 0.5, -1.0] {
        assert_eq!(path_err(&router.path(session(5004), sender(4000), tspec(bad, 10_000.0))), (21, 4));
    }
    assert_eq!((router.node.sessions(), router.refused(Refusal::Values)), (0, 4));
    // 07: port 0 beside another one, in either order.
    let mut config = config();
    config.port_zero = true;
    let mut router = Router::new(config, 1e6);
    router.path(session(5004), sender(4000), usual());
    assert_eq!(path_err(&router.path(session(0), sender(0), usual())), (7, 0));
    router.path_tear(session(5004), sender(4000));
    router.path(session(0), sender(0), usual());
    assert_eq!(path_err(&router.path(session(5004), sender(4000), usual())), (7, 0));
    // 08: a sender with port 0 beside one of the same address with another port.
    let mut router = Router::plain();
    router.path(session(5004), sender(4000), usual());
    assert_eq!(path_err(&router.path(session(5004), sender(0), usual())), (8, 0));
    // 13: an object of a class that must be understood; the value is class and C-type.
    let mut message = [&hex(PATH)[..], &hex("00087e0901020304")[..]].concat();
    message[6..8].copy_from_slice(&144_u16.to_be_bytes());
    set_checksum(&mut message);
    assert_eq!(path_err(&router.hear(IN, "10.0.1.1", "10.0.2.2", &message)), (13, 0x7e09));
    // 14: a C-type that is not known, of the SENDER_TSPEC, without which there is no Path.
    let mut message = hex(PATH);
    assert_eq!(message[54..56], [0x0c, 0x02]);
    message[55] = 9;
    set_checksum(&mut message);
    let sent = router.hear(IN, "10.0.1.1", "10.0.2.2", &message);
    assert_eq!((sent.len(), sent[0].interface), (1, IN));
    // The answer has the SENDER_TSPEC as it came, so it cannot be read as a whole either.
    let fault = decode(&sent[0].message).unwrap_err().fault;
    assert_eq!(fault, Fault::UnknownType { class: 12, ctype: 9 });
}

#[test]
fn paths_without_an_answer() {
    let mut router = Router::plain();
    let bytes = hex(PATH);
    let silent = |router: &mut Router, interface, source, destination, message: &[u8], why| {
        let before = router.refused(why);
        assert!(router.hear(interface, source, destination, message).is_empty(), "{why:?}");
        assert_eq!(router.refused(why), before + 1, "{why:?}");
        assert_eq!(router.node.sessions(), 0);
    };
    silent(&mut router, 5, "10.0.1.1", "10.0.2.2", &bytes, Refusal::Interface);
    silent(&mut router, IN, "10.0.1.1", "10.0.2.2", &bytes[..100], Refusal::Malformed);
    silent(&mut router, IN, "10.0.1.1", "10.0.2.3", &bytes, Refusal::Address);
    // The hop is not a neighbour on this interface.
    silent(&mut router, OTHER, "10.0.1.1", "10.0.2.2", &bytes, Refusal::Neighbour);
    let Message::Path(good) = path(session(5004), sender(4000), usual()) else { panic!() };
    let other = |path: Path| encode(&Message::Path(path), 64).unwrap();
    let own = Hop { address: ip("10.0.1.2"), handle: 3 };
    let message = other(Path { hop: own, ..good.clone() });
    silent(&mut router, IN, "10.0.1.1", "10.0.2.2", &message, Refusal::OwnHop);
    let multicast = Session { address: ip("224.1.2.3"), ..good.session };
    let message = other(Path { session: multicast, ..good.clone() });
    silent(&mut router, IN, "10.0.1.1", "224.1.2.3", &message, Refusal::Address);
    // RFC 2205 A.1: the protocol is not 0.
    let message = other(Path { session: Session { protocol: 0, ..good.session }, ..good.clone() });
    silent(&mut router, IN, "10.0.1.1", "10.0.2.2", &message, Refusal::Values);
    // Destination port 0 with a source port, and destination port 0 where it is not allowed.
    let message = other(Path { session: session(0), ..good.clone() });
    silent(&mut router, IN, "10.0.1.1", "10.0.2.2", &message, Refusal::Ports);
    let message = other(Path { session: session(0), sender: sender(0), ..good.clone() });
    silent(&mut router, IN, "10.0.1.1", "10.0.2.2", &message, Refusal::Ports);
    assert!(router.node.counters().refused.keys().all(|why| !why.reason().is_empty()));
}

#[test]
fn reservations_with_an_answer() {
    let mut router = Router::plain();
    // 03: no path state for the session.
    assert_eq!(resv_err(&resv(&mut router, Style::Fixed, usual(), &[sender(4000)])), (3, 0));
    router.path(session(5004), sender(4000), usual());
    router.path(session(5004), sender(4001), usual());
    // 04: none for the sender.
    assert_eq!(resv_err(&resv(&mut router, Style::Fixed, usual(), &[sender(4009)])), (4, 0));
    // 06: a style that is not offered.
    assert_eq!(resv_err(&resv(&mut router, Style::Wildcard, usual(), &[])), (6, 0));
    // 21/03: values out of range.
    assert_eq!(resv_err(&resv(&mut router, Style::Fixed, tspec(f32::NAN, 1.0), &[sender(4000)])), (21, 3));
    // 01/03: a packet larger than the MTU.
    let large = Tspec { max_packet: 1501, ..usual() };
    assert_eq!(resv_err(&resv(&mut router, Style::Fixed, large, &[sender(4000)])), (1, 3));
    assert!(router.node.reservations().is_empty() && router.around.ledger.held.is_empty());
    // 05: another style is in place; the value is its option vector, FF's 0x0a.
    resv(&mut router, Style::Fixed, usual(), &[sender(4000)]);
    assert_eq!(resv_err(&resv(&mut router, Style::Shared, usual(), &[sender(4000)])), (5, 0x0a));
    assert_eq!(router.rates(OUT), [RATE]);
    // 21/02: a service that has no name here.
    let flowspec = Flowspec::Other { service: 9, body: hex("0000000109000000") };
    let flow = Flow { flowspec, filters: vec![sender(4001)] };
    assert_eq!(resv_err(&router.resv_flows(OUT, session(5004), Style::Fixed, vec![flow])), (21, 2));
    // 14: a FLOWSPEC of another C-type.
    let mut message = hex(RESV_FF);
    message[51] = 1;
    set_checksum(&mut message);
    let sent = router.hear(OUT, "10.0.12.2", "10.0.12.1", &message);
    assert_eq!((sent.len(), sent[0].interface), (1, OUT));
    assert_eq!(router.rates(OUT), [RATE]);
}

/// A ResvErr has one flow descriptor (RFC 2205 3.1.8), whatever the Resv had.
#[test]
fn an_answer_has_one_flow_descriptor() {
    let mut router = Router::plain();
    // A second filter, and an object of a class that must be understood.
    let mut message = [&hex(RESV_FF)[..], &hex("000c0a010a00010100000fa1")[..], &hex("00087e0901020304")[..]].concat();
    // 96 + 12 + 8 bytes.
    message[6..8].copy_from_slice(&116_u16.to_be_bytes());
    set_checksum(&mut message);
    let sent = router.hear(OUT, "10.0.12.2", "10.0.12.1", &message);
    assert_eq!(resv_err(&sent), (13, 0x7e09));
    let Message::ResvErr(error) = read(&sent[0]) else { panic!("{sent:?}") };
    assert_eq!(error.flow.filters, [sender(4000)]);
    // 06: a style that RFC 2205 does not have. STYLE ends at byte 48.
    let mut message = hex(RESV_FF);
    assert_eq!(message[47], 0x0a);
    message[47] = 0x1f;
    set_checksum(&mut message);
    let sent = router.hear(OUT, "10.0.12.2", "10.0.12.1", &message);
    assert_eq!((sent.len(), sent[0].destination), (1, ip("10.0.12.2")));
    // Header, SESSION and RSVP_HOP are 32 bytes. Then ERROR_SPEC has its header, an address and
    // flags: 9 bytes.
    assert_eq!((sent[0].message[1], &sent[0].message[41..44]), (4, &[6, 0, 0][..]));
    assert_eq!(router.refused(Refusal::Style), 1);
}

/// A Resv with more flow descriptors than a session may have senders gets one answer, not one for
/// each.
#[test]
fn a_message_is_not_answered_by_hundreds() {
    let mut router = Router::plain();
    let all: Vec<Sender> = (0..500).map(sender).collect();
    let flows: Vec<(Tspec, &[Sender])> = all.chunks(1).map(|one| (usual(), one)).collect();
    assert_eq!(resv_err(&router.resv(OUT, session(5004), Style::Fixed, &flows)), (23, 0));
    assert_eq!(router.refused(Refusal::Limit), 1);
    // There is no path for any of the flows, which is said once.
    assert_eq!(router.resv(OUT, session(5004), Style::Fixed, &flows[..64]).len(), 1);
}

/// A Resv may come by another interface than its handle names (RFC 2205 A.2), but a way without
/// keys does not get around those of that interface.
#[test]
fn a_way_without_keys_does_not_get_around_keys() {
    let key = Key { id: 1, algorithm: Algorithm::HmacSha256, secret: b"secret".to_vec() };
    let mut config = config();
    config.interfaces[1].neighbours[0].keys = vec![key.clone()];
    // The same neighbour without keys, on the third interface.
    let open = Neighbour { prefix: Prefix::host(ip("10.0.12.2")), keys: Vec::new(), handshake: false };
    config.interfaces[2].neighbours.push(open);
    let mut router = Router::new(config, 1e6);
    router.path(session(5004), sender(4000), usual());
    assert!(router.hear(OTHER, "10.0.12.2", "10.0.13.1", &hex(RESV_FF)).is_empty());
    assert_eq!((router.rates(OUT).len(), router.refused(Refusal::Unsigned)), (0, 1));
    router.hear(OUT, "10.0.12.2", "10.0.12.1", &sign(&hex(RESV_FF), &key, 1).unwrap());
    assert_eq!(router.rates(OUT), [RATE]);
    router.hear(OTHER, "10.0.12.2", "10.0.13.1", &hex(RESV_TEAR));
    assert_eq!((router.rates(OUT), router.refused(Refusal::Unsigned)), (vec![RATE], 2));
}

/// A Resv with the handle of an interface where no Path went, or of none.
#[test]
fn reservations_without_an_answer() {
    let mut router = reserved();
    let sent = router.resv(OTHER, session(5004), Style::Fixed, &[(usual(), &[sender(4000)])]);
    assert!(sent.is_empty());
    assert_eq!(router.refused(Refusal::Branch), 1);
    let mut message = hex(RESV_FF);
    message[31] = 99;
    set_checksum(&mut message);
    assert!(router.hear(OUT, "10.0.12.2", "10.0.12.1", &message).is_empty());
    assert_eq!(router.refused(Refusal::Branch), 2);
    // From a neighbour of another interface.
    assert!(router.hear(IN, "10.0.12.2", "10.0.1.2", &hex(RESV_FF)).is_empty());
    assert_eq!(router.refused(Refusal::Neighbour), 1);
}

/// Forged tears and errors do nothing.
#[test]
fn forged_tears_and_errors() {
    let mut router = reserved();
    router.resv_tear(OTHER, session(5004), Style::Fixed, &[sender(4000)]);
    router.resv_tear(OUT, session(5004), Style::Shared, &[sender(4000)]);
    router.resv_tear(OUT, session(5004), Style::Fixed, &[sender(4001)]);
    assert_eq!(router.refused(Refusal::NoState), 3);
    assert_eq!(router.rates(OUT), [RATE]);
    assert_eq!(router.node.paths().len(), 1);
}

/// A message between two other nodes goes on untouched.
#[test]
fn messages_for_others_pass() {
    let mut router = Router::plain();
    let sent = router.hear(IN, "10.0.1.1", "10.0.99.1", &hex(RESV_FF));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].message, hex(RESV_FF));
    assert_eq!((sent[0].source, sent[0].destination, sent[0].ttl), (ip("10.0.1.1"), ip("10.0.99.1"), 63));
    assert_eq!(router.node.counters().passed_on, 1);
}

/// A ResvErr goes on to the next hop that asked, and makes a blockade, which ends.
#[test]
fn a_resv_err_goes_on() {
    let mut router = reserved();
    let forged = |address: &str| {
        let error = altq_rsvp::wire::ErrorSpec { node: ip("10.0.0.9"), flags: IN_PLACE, code: 1, value: 2 };
        let flow = Flow { flowspec: Flowspec::ControlledLoad(usual()), filters: vec![sender(4000)] };
        let hop = Hop { address: ip(address), handle: 3 };
        let (scope, passed_on, style) = (Vec::new(), Vec::new(), Style::Fixed);
        let message = ResvErr { session: session(5004), hop, error, scope, style, flow, passed_on };
        encode(&Message::ResvErr(message), 64).unwrap()
    };
    let sent = router.hear(IN, "10.0.1.1", "10.0.1.2", &forged("10.0.1.1"));
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].interface, sent[0].destination), (OUT, ip("10.0.12.2")));
    let Message::ResvErr(error) = read(&sent[0]) else { panic!() };
    assert_eq!((error.error.node, error.error.code, error.error.flags), (ip("10.0.0.9"), 1, IN_PLACE));
    assert_eq!(error.hop, Hop { address: ip("10.0.12.1"), handle: OUT });
    assert_eq!(router.rates(OUT), [RATE], "an error changes nothing");
    // The only request is asked for all the same.
    let sent = router.until(61 * S);
    assert!(sent.iter().any(|transmit| matches!(read(transmit), Message::Resv(_))));
    // From a node that is not the previous hop.
    router.hear(IN, "10.0.1.7", "10.0.1.2", &forged("10.0.1.7"));
    assert_eq!(router.refused(Refusal::Neighbour), 1);
}

#[test]
fn limits() {
    let mut limited = config();
    limited.limits =
        Limits { sessions: 2, senders: 2, reservations: 2, reservations_of_neighbour: 1, ..Limits::default() };
    let mut router = Router::new(limited, 1e6);
    router.path(session(1), sender(4000), usual());
    router.path(session(2), sender(4000), usual());
    assert_eq!(path_err(&router.path(session(3), sender(4000), usual())), (23, 0));
    router.path(session(1), sender(4001), usual());
    assert_eq!(path_err(&router.path(session(1), sender(4002), usual())), (23, 0));
    router.resv(OUT, session(1), Style::Fixed, &[(usual(), &[sender(4000)])]);
    assert_eq!(resv_err(&router.resv(OUT, session(2), Style::Fixed, &[(usual(), &[sender(4000)])])), (23, 0));
    // What is there can still be changed and refreshed.
    router.now = 2 * S;
    router.resv(OUT, session(1), Style::Fixed, &[(tspec(50_000.0, 1_000.0), &[sender(4000)])]);
    assert_eq!(router.rates(OUT), [50_000.0_f32]);
    assert_eq!(router.refused(Refusal::Limit), 3);
}

/// What a Path carries along is bounded, and so are the senders of all sessions together.
#[test]
fn what_paths_may_take() {
    let mut limited = config();
    limited.limits = Limits { paths: 2, ..Limits::default() };
    let mut router = Router::new(limited, 1e6);
    let Message::Path(good) = path(session(5004), sender(4000), usual()) else { panic!() };
    let hear = |router: &mut Router, path: Path| {
        router.hear(IN, "10.0.1.1", "10.0.2.2", &encode(&Message::Path(path), 64).unwrap())
    };
    // With its header of 4 bytes an object of 4,092 bytes is 4,096.
    let policy = |bytes: usize| vec![RawObject { class: 14, ctype: 1, body: vec![0; bytes] }];
    let refused = hear(&mut router, Path { passed_on: policy(4096), ..good.clone() });
    assert_eq!((path_err(&refused), router.node.paths().len()), ((23, 0), 0));
    hear(&mut router, Path { passed_on: policy(4092), ..good.clone() });
    assert_eq!(router.node.paths().len(), 1);
    let parameters = vec![Parameter { id: 4, flags: 0, words: vec![0; 200] }];
    let adspec = Adspec { services: vec![Service { number: 1, broken: false, parameters }] };
    let refused = hear(&mut router, Path { adspec: Some(adspec), ..good });
    assert_eq!(path_err(&refused), (23, 0));
    // A second sender, in another session, and no third one before another has gone.
    router.path(session(5005), sender(4000), usual());
    assert_eq!(path_err(&router.path(session(5006), sender(4000), usual())), (23, 0));
    router.path_tear(session(5005), sender(4000));
    router.path(session(5006), sender(4000), usual());
    assert_eq!((router.node.paths().len(), router.refused(Refusal::Limit)), (2, 3));
}

/// A neighbour cannot take all the room: others have some left. Neighbours without keys count
/// together, because their addresses prove nothing.
#[test]
fn a_neighbour_does_not_take_all_the_room() {
    let mut limited = config();
    limited.limits = Limits { paths: 4, paths_of_neighbour: 2, ..Limits::default() };
    let other = Neighbour { prefix: Prefix::host(ip("10.0.1.7")), keys: Vec::new(), handshake: false };
    limited.interfaces[0].neighbours.push(other);
    let mut router = Router::new(limited, 1e6);
    let by = |router: &mut Router, interface: u32, hop: &str, port: u16| {
        let Message::Path(path) = path(session(port), sender(4000), usual()) else { panic!() };
        let path = Path { hop: Hop { address: ip(hop), handle: 1 }, ..path };
        router.hear(interface, "10.0.1.1", "10.0.2.2", &encode(&Message::Path(path), 64).unwrap())
    };
    let is_refused = |sent: &[Transmit], to: &str| {
        let [only] = sent else { panic!("{sent:?}") };
        let Message::PathErr(PathErr { error, .. }) = read(only) else { panic!("{sent:?}") };
        assert_eq!((only.destination, error.code, error.value), (ip(to), 23, 0));
    };
    by(&mut router, IN, "10.0.1.1", 1);
    by(&mut router, IN, "10.0.1.7", 2);
    for hop in ["10.0.1.1", "10.0.1.7"] {
        is_refused(&by(&mut router, IN, hop, 3), hop);
    }
    // What is there is refreshed, also by another of them.
    by(&mut router, IN, "10.0.1.7", 1);
    assert_eq!((router.node.paths().len(), router.refused(Refusal::Limit)), (2, 2));
    // The neighbour at another interface has room of its own, also for senders that move there.
    by(&mut router, OTHER, "10.0.13.2", 1);
    by(&mut router, OTHER, "10.0.13.2", 4);
    is_refused(&by(&mut router, OTHER, "10.0.13.2", 2), "10.0.13.2");
    // One has moved away, which makes room here.
    by(&mut router, IN, "10.0.1.1", 3);
    assert_eq!((router.node.paths().len(), router.refused(Refusal::Limit)), (4, 3));
    router.path_tear(session(3), sender(4000));
    by(&mut router, IN, "10.0.1.7", 5);
    assert_eq!((router.node.paths().len(), router.refused(Refusal::Limit)), (4, 3));
}

/// A flood of Paths for sessions that nobody knows leaves memory bounded and other sessions alive.
#[test]
fn a_flood() {
    let mut router = reserved();
    let mut flood = hex(PATH);
    for count in 0..100_000_u32 {
        router.now += S / 100_000;
        // Another destination and port each time.
        flood[12..16].copy_from_slice(&[10, 0, 3, 3]);
        flood[18..20].copy_from_slice(&u16::try_from(1 + count % 60_000).unwrap().to_be_bytes());
        set_checksum(&mut flood);
        let arrived = altq_rsvp::node::Arrived {
            interface: IN,
            source: ip("10.0.1.1"),
            destination: ip("10.0.3.3"),
            ttl: 64,
            message: &flood,
        };
        router.node.receive(router.now, &mut router.around.world(), &arrived);
        while router.node.poll().is_some() {}
    }
    router.node.invariants().unwrap();
    // 2,000 at once and 500 a second are taken of such messages, by default. `reserved` took one.
    assert!((2_000..=2_502).contains(&router.node.sessions()), "{}", router.node.sessions());
    assert!(router.refused(Refusal::Rate) > 90_000);
    // The refreshes of the session that is known are heard.
    let before = router.node.reservations().iter().find_map(|view| view.expires).unwrap();
    router.resv(OUT, session(5004), Style::Fixed, &[(usual(), &[sender(4000)])]);
    let after = router.node.reservations().iter().find_map(|view| view.expires).unwrap();
    assert_eq!(after - before, router.now);
}

/// A neighbour may pass on what others send: refreshes of many sessions, more than its rate allows.
/// None of them costs another session its state; only what comes too often counts.
#[test]
fn refreshes_are_taken_whatever_else_a_neighbour_sends() {
    let mut config = config();
    config.limits = Limits { known: (10, 20), open: (10, 20), ..Limits::default() };
    let mut router = Router::new(config, 1e6);
    let all: Vec<_> = (1..=300).map(session).collect();
    let say = |router: &mut Router, at: u64| {
        router.until(at);
        for session in &all {
            router.path(*session, sender(4000), usual());
        }
    };
    // State lives for 157.5 s.
    for round in 0..12 {
        say(&mut router, round * u64::from(R) * 1_000_000);
        assert_eq!((router.node.sessions(), router.refused(Refusal::Rate)), (300, 0), "round {round}");
    }
    // A second later again: only what the neighbour's rate has brought since.
    let next = router.now + S;
    say(&mut router, next);
    assert_eq!(router.refused(Refusal::Rate), 290);
    // What goes the other way is heard all the same.
    router.resv(OUT, session(7), Style::Fixed, &[(usual(), &[sender(4000)])]);
    assert_eq!((router.node.reservations().len(), router.refused(Refusal::Rate)), (1, 290));
}

#[test]
fn configurations_that_do_not_work() {
    let check = |change: &dyn Fn(&mut altq_rsvp::node::Config)| {
        let mut config = config();
        change(&mut config);
        Node::new(config).err()
    };
    assert_eq!(check(&|_| {}), None);
    assert_eq!(check(&|config| config.interfaces[1].id = IN), Some(ConfigError::Number(IN)));
    assert_eq!(check(&|config| config.interfaces[1].id = 0), Some(ConfigError::Number(0)));
    assert_eq!(check(&|config| config.interfaces[0].addresses.clear()), Some(ConfigError::Address(IN)));
    assert_eq!(check(&|config| config.interfaces[0].mtu = 67), Some(ConfigError::Mtu(IN)));
    assert_eq!(check(&|config| config.interfaces[0].refresh_ms = 999), Some(ConfigError::Refresh(IN)));
    let prefix = altq_rsvp::node::Prefix { address: ip("10.0.0.0"), length: 33 };
    assert_eq!(check(&|config| config.receiver_proxy = vec![prefix]), Some(ConfigError::Prefix(33)));
    assert_eq!(check(&|config| config.limits.senders = 0), Some(ConfigError::Limit("senders")));
}

/// A change that traffic control refuses leaves the old reservation, as long as it is of use: one
/// for a sender that is gone makes room, and the next hop is told that nothing is left.
#[test]
fn a_reservation_of_senders_that_are_gone_is_not_kept() {
    let mut router = Router::plain();
    let error = |sent: &[Transmit]| {
        let errors = sent.iter().filter_map(|transmit| match read(transmit) {
            Message::ResvErr(ResvErr { error, .. }) => Some((error.code, error.value, error.flags)),
            _ => None,
        });
        errors.collect::<Vec<_>>()
    };
    router.path(session(5004), sender(4001), usual());
    resv(&mut router, Style::Shared, usual(), &[sender(4001), sender(4002)]);
    router.around.ledger.broken = true;
    // The second sender cannot be added: what is there stays (RFC 2205 2.5).
    let sent = router.path(session(5004), sender(4002), usual());
    assert_eq!((error(&sent), router.rates(OUT)), (vec![(1, 2, IN_PLACE)], vec![RATE]));
    // The first sender goes: what is there would serve nobody.
    let sent = router.path_tear(session(5004), sender(4001));
    assert_eq!((error(&sent), router.rates(OUT)), (vec![(1, 2, 0)], Vec::new()));
    // The next hop's refresh makes it anew.
    router.around.ledger.broken = false;
    resv(&mut router, Style::Shared, usual(), &[sender(4001), sender(4002)]);
    assert_eq!(router.rates(OUT), [RATE]);
}
