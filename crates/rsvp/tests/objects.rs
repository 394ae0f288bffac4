//! POLICY_DATA and objects of unknown classes that a Resv carries along (RFC 2205 3.10, RFC 2750).

use crate::support;

use altq_rsvp::node::{Refusal, Transmit};
use altq_rsvp::wire::{Flow, Flowspec, Hop, Message, RawObject, Resv, Style, encode};
use support::router::{IN, OUT, R, Router, config, read, sender, session};
use support::{S, ip, tspec};

/// The router with two senders of one session.
fn with_paths(mut router: Router) -> Router {
    for port in [4000, 4001] {
        router.path(session(5004), sender(port), tspec(62_500.0, 10_000.0));
    }
    router
}

/// A Resv in FF for the sender with this port.
fn ask(router: &mut Router, port: u16, passed_on: Vec<RawObject>) -> Vec<Transmit> {
    let flow = Flow { flowspec: Flowspec::ControlledLoad(tspec(10_000.0, 1_000.0)), filters: vec![sender(port)] };
    let resv = Resv {
        session: session(5004),
        hop: Hop { address: ip("10.0.12.2"), handle: OUT },
        refresh_ms: R,
        confirm: None,
        scope: Vec::new(),
        style: Style::Fixed,
        flows: vec![flow],
        passed_on,
    };
    router.hear(OUT, "10.0.12.2", "10.0.12.1", &encode(&Message::Resv(resv), 64).unwrap())
}

/// What the last Resv to the previous hop carries, sorted: the order of objects is free.
fn carried(sent: &[Transmit]) -> Vec<RawObject> {
    let resv = |transmit: &Transmit| match read(transmit) {
        Message::Resv(resv) => Some(resv),
        _ => None,
    };
    let last = sent.iter().rev().filter(|transmit| transmit.interface == IN).find_map(resv);
    let mut objects = last.expect("a Resv to the previous hop").passed_on;
    objects.sort_unstable();
    objects
}

fn object(class: u8, body: &[u8]) -> RawObject {
    RawObject { class, ctype: 1, body: body.to_vec() }
}

/// The previous hop gets the union of what the requests carry, each object once, and with every
/// refresh again.
#[test]
fn objects_of_requests_go_upstream() {
    let mut router = with_paths(Router::plain());
    let (policy, unknown) = (object(14, &[1, 2, 3, 4]), object(0xc1, &[5, 6, 7, 8]));
    assert_eq!(carried(&ask(&mut router, 4000, vec![policy.clone()])), std::slice::from_ref(&policy));
    let both = vec![policy.clone(), unknown.clone()];
    assert_eq!(carried(&ask(&mut router, 4001, both.clone())), both);
    assert!(ask(&mut router, 4001, both.clone()).is_empty(), "a refresh of the same");
    assert_eq!(carried(&router.until(50 * S)), both);
    // A change of objects alone goes upstream at once, and changes nothing in traffic control.
    let other = object(14, &[9, 9, 9, 9]);
    assert_eq!(carried(&ask(&mut router, 4000, vec![other.clone()])), [policy.clone(), other.clone(), unknown.clone()]);
    assert_eq!(carried(&ask(&mut router, 4001, Vec::new())), [other]);
    assert_eq!(router.around.ledger.calls.get("modify"), None);
}

/// What a Resv carries along is bounded, as in a Path.
#[test]
fn what_resvs_may_carry() {
    let mut wide = config();
    for interface in &mut wide.interfaces {
        interface.mtu = 9000;
    }
    let mut router = with_paths(Router::new(wide, 1e6));
    // With its header of 4 bytes an object of 4,092 bytes is 4,096.
    let sent = ask(&mut router, 4000, vec![object(14, &[0; 4096])]);
    let [refused] = sent.as_slice() else { panic!("{sent:?}") };
    let Message::ResvErr(error) = read(refused) else { panic!("{sent:?}") };
    assert_eq!((error.error.code, error.error.value, router.refused(Refusal::Limit)), (23, 0, 1));
    assert!(router.node.reservations().is_empty());
    let largest = vec![object(14, &[0; 4092])];
    assert_eq!(carried(&ask(&mut router, 4000, largest.clone())), largest);
    // Together they are too much for one message.
    assert_eq!(carried(&ask(&mut router, 4001, vec![object(0xc1, &[0; 4])])), largest);
    assert_eq!(router.node.reservations().len(), 2);
}

/// An object that would make the Resv longer than the MTU of 1,500 is left out, because such a
/// message would not be sent. The request and smaller objects go.
#[test]
fn objects_longer_than_the_mtu_stay_here() {
    let mut router = with_paths(Router::plain());
    let small = object(0xc1, &[0; 4]);
    let sent = ask(&mut router, 4000, vec![object(14, &[0; 1600]), small.clone()]);
    assert_eq!(carried(&sent), [small]);
    assert_eq!(router.rates(OUT), [10_000.0_f32]);
}
