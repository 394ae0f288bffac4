//! Messages whose bytes were made by another encoder and accepted by tshark 4.0: they decode to
//! these fields, and the fields encode to the same bytes.

use crate::support;

use altq_rsvp::wire::{
    Challenge, Decoded, ErrorSpec, Flow, Flowspec, Hop, IN_PLACE, Message, PathErr, PathTear, Resv, ResvConf, ResvTear,
    Sender, Session, Style, Tspec, code, decode, encode, kind, parameter, service, traffic,
};
use support::messages::{
    CHALLENGE, PATH, PATH_ERR, PATH_MD5, PATH_TEAR, RESV_CONF, RESV_ERR, RESV_FF, RESV_SE6, RESV_TEAR, RESV_WF,
};
use support::{hex, ip};

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

/// A signed message has no checksum. Its INTEGRITY is skipped here; other tests check it.
#[test]
fn signed_path() {
    let decoded = read(PATH_MD5);
    assert_eq!(decoded.header.checksum, 0);
    let Message::Path(path) = &decoded.message else { panic!("{decoded:?}") };
    assert_eq!((path.session, path.sender, path.tspec), (session(), sender(), TSPEC));
    assert_eq!(path.adspec, None);
}

/// A request for the golden traffic.
fn flow(filters: Vec<Sender>) -> Flow {
    Flow { flowspec: Flowspec::ControlledLoad(TSPEC), filters }
}

/// The types without a published message: bytes of another encoder, both ways.
#[test]
fn the_other_types() {
    let hop = |address: &str| Hop { address: ip(address), handle: 7 };
    let error = |node: &str, code, value| ErrorSpec { node: ip(node), flags: 0, code, value };
    let second = Sender::new(ip("10.0.1.1"), 4001);
    let path_err = PathErr {
        session: session(),
        error: error("10.0.12.2", code::TRAFFIC_CONTROL, traffic::BAD_TSPEC),
        sender: sender(),
        tspec: TSPEC,
        adspec: None,
        passed_on: Vec::new(),
    };
    let resv_tear = ResvTear {
        session: session(),
        hop: hop("10.0.12.2"),
        scope: Vec::new(),
        style: Style::Fixed,
        filters: vec![sender()],
    };
    let resv_conf = ResvConf {
        session: session(),
        error: error("10.0.1.1", code::CONFIRMATION, 0),
        receiver: ip("10.0.2.2"),
        style: Style::Shared,
        flows: vec![flow(vec![sender(), second])],
    };
    let resv_wf = Resv {
        session: session(),
        hop: hop("10.0.12.2"),
        refresh_ms: 30_000,
        confirm: Some(ip("10.0.2.2")),
        scope: vec![ip("10.0.1.1"), ip("10.0.1.2")],
        style: Style::Wildcard,
        flows: vec![flow(Vec::new())],
        passed_on: Vec::new(),
    };
    let all = [
        (PATH_ERR, Message::PathErr(path_err)),
        (PATH_TEAR, Message::PathTear(PathTear { session: session(), hop: hop("10.0.1.1"), sender: sender() })),
        (RESV_TEAR, Message::ResvTear(resv_tear)),
        (RESV_CONF, Message::ResvConf(resv_conf)),
        (RESV_WF, Message::Resv(resv_wf)),
        (CHALLENGE, Message::Challenge(Challenge { key_id: 9, cookie: vec![1, 2, 3, 4, 5, 6, 7, 8] })),
    ];
    for (bytes, message) in all {
        assert_eq!(read(bytes).message, message);
        assert_eq!(encode(&message, 64).unwrap(), hex(bytes));
    }
}
