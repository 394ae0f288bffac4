//! Messages whose bytes were made by another encoder and accepted by tshark 4.0: they decode to
//! these fields, and the fields encode to the same bytes.

mod support;

use altq_rsvp::wire::{
    Decoded, Flow, Flowspec, Hop, IN_PLACE, Message, Sender, Session, Style, Tspec, code, decode, encode, kind,
    parameter, service, traffic,
};
use support::hex;
use support::messages::{PATH, PATH_MD5, RESV_ERR, RESV_FF, RESV_SE6};

/// Session 10.0.2.2, UDP, port 5004.
fn session() -> Session {
    Session { address: "10.0.2.2".parse().unwrap(), protocol: 17, port: 5004 }
}

/// Sender 10.0.1.1, port 4000.
fn sender() -> Sender {
    Sender::new("10.0.1.1".parse().unwrap(), 4000)
}

/// r 62,500 bytes/s, b 10,000 bytes, p infinite, m 128, M 1500.
const TSPEC: Tspec = Tspec { rate: 62_500.0, burst: 10_000.0, peak: f32::INFINITY, min_unit: 128, max_packet: 1500 };

fn read(message: &str) -> Decoded {
    let decoded = decode(&hex(message)).unwrap();
    assert_eq!(decoded.unknown, None);
    assert_eq!(decoded.header.send_ttl, 64);
    assert_eq!(decoded.header.flags, 0);
    decoded
}

/// Encodes what was decoded, and compares with the original.
fn writes_the_same(message: &str, decoded: &Decoded) {
    assert_eq!(encode(&decoded.message, decoded.header.send_ttl).unwrap(), hex(message));
}

#[test]
fn path() {
    let decoded = read(PATH);
    assert_eq!(decoded.header.kind, kind::PATH);
    assert_eq!(decoded.header.checksum, 0xb6fa);
    let Message::Path(path) = &decoded.message else { panic!("{decoded:?}") };
    assert_eq!(path.session, session());
    assert_eq!(path.session_flags, 0);
    assert_eq!(path.hop, Hop { address: "10.0.1.1".parse().unwrap(), handle: 7 });
    assert_eq!(path.refresh_ms, 30_000);
    assert_eq!(path.sender, sender());
    assert_eq!(path.tspec, TSPEC);
    assert!(path.passed_on.is_empty());
    let adspec = path.adspec.as_ref().unwrap();
    assert_eq!(adspec.word(service::GENERAL, parameter::HOPS), Some(1));
    // 1,250,000 bytes/s are 10 Mbit/s.
    assert_eq!(adspec.word(service::GENERAL, parameter::BANDWIDTH).map(f32::from_bits), Some(1_250_000.0));
    assert_eq!(adspec.word(service::GENERAL, parameter::LATENCY), Some(0));
    assert_eq!(adspec.word(service::GENERAL, parameter::MTU), Some(1500));
    let numbers: Vec<u8> = adspec.services.iter().map(|service| service.number).collect();
    assert_eq!(numbers, [service::GENERAL, service::CONTROLLED_LOAD]);
    writes_the_same(PATH, &decoded);
}

#[test]
fn resv_ff() {
    let decoded = read(RESV_FF);
    let Message::Resv(resv) = &decoded.message else { panic!("{decoded:?}") };
    assert_eq!(resv.session, session());
    assert_eq!(resv.hop, Hop { address: "10.0.12.2".parse().unwrap(), handle: 7 });
    assert_eq!(resv.refresh_ms, 30_000);
    assert_eq!((resv.confirm, resv.scope.len()), (None, 0));
    assert_eq!(resv.style, Style::Fixed);
    assert_eq!(resv.flows, [Flow { flowspec: Flowspec::ControlledLoad(TSPEC), filters: vec![sender()] }]);
    writes_the_same(RESV_FF, &decoded);
}

#[test]
fn resv_err_of_a_guaranteed_request() {
    let decoded = read(RESV_ERR);
    let Message::ResvErr(error) = &decoded.message else { panic!("{decoded:?}") };
    assert_eq!(error.session, session());
    assert_eq!(error.hop, Hop { address: "10.0.12.1".parse().unwrap(), handle: 7 });
    assert_eq!(error.error.node, "10.0.12.1".parse::<std::net::IpAddr>().unwrap());
    assert_eq!((error.error.code, error.error.value), (code::TRAFFIC_CONTROL, traffic::UNSUPPORTED));
    assert_eq!(error.error.flags & IN_PLACE, 0);
    assert_eq!(error.style, Style::Fixed);
    let flowspec = Flowspec::Guaranteed { tspec: TSPEC, rate: 70_000.0, slack: 0 };
    assert_eq!(error.flow, Flow { flowspec, filters: vec![sender()] });
    writes_the_same(RESV_ERR, &decoded);
}

#[test]
fn resv_se_ipv6() {
    let decoded = read(RESV_SE6);
    let Message::Resv(resv) = &decoded.message else { panic!("{decoded:?}") };
    let address = "2001:db8:2::2".parse().unwrap();
    assert_eq!(resv.session, Session { address, protocol: 17, port: 5004 });
    assert_eq!(resv.hop, Hop { address: "2001:db8:12::2".parse().unwrap(), handle: 7 });
    assert_eq!(resv.style, Style::Shared);
    let filters = vec![Sender::new("2001:db8:1::1".parse().unwrap(), 4000)];
    assert_eq!(resv.flows, [Flow { flowspec: Flowspec::ControlledLoad(TSPEC), filters }]);
    writes_the_same(RESV_SE6, &decoded);
}

/// A signed message has no checksum, and INTEGRITY is skipped here: `tests/integrity.rs` checks it.
#[test]
fn signed_path() {
    let decoded = read(PATH_MD5);
    assert_eq!(decoded.header.checksum, 0);
    let Message::Path(path) = &decoded.message else { panic!("{decoded:?}") };
    assert_eq!((path.session, path.sender, path.tspec), (session(), sender(), TSPEC));
    assert_eq!(path.adspec, None);
}
