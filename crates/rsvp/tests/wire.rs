//! Reading is strict and never panics; writing is what reading takes.

use crate::support;

use altq_rsvp::wire::{
    Adspec, ErrorSpec, Fault, Flow, Flowspec, Hop, HopOffer, Message, Path, PathErr, PathTear, RawObject, Resv,
    ResvConf, ResvErr, ResvTear, Select, Sender, Session, Style, Tspec, Unknown, UnknownObject, decode, encode,
    parameter, peek_hop, peek_session, service, set_checksum,
};
use proptest::prelude::*;
use support::messages::{ALL, PATH, RESV_FF, RESV_SE6};
use support::{hex, ip, tspec};

/// A message with another object list: the header and these bytes, with length and checksum.
fn with_objects(original: &str, objects: &[u8]) -> Vec<u8> {
    let mut message = hex(original)[..8].to_vec();
    message.extend_from_slice(objects);
    let length = u16::try_from(message.len()).unwrap();
    message[6..8].copy_from_slice(&length.to_be_bytes());
    set_checksum(&mut message);
    message
}

fn fault(message: &[u8]) -> (usize, Fault) {
    let error = decode(message).unwrap_err();
    (error.at, error.fault)
}

#[test]
fn every_cut_is_an_error() {
    for message in ALL {
        let message = hex(message);
        for length in 0..message.len() {
            let error = decode(&message[..length]).unwrap_err();
            assert!(error.at <= length, "{error}");
            // The same with a length that fits: objects end early or are missing.
            let mut cut = message[..length].to_vec();
            if length >= 8 {
                cut[6..8].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
                set_checksum(&mut cut);
                if let Err(error) = decode(&cut) {
                    assert!(error.at <= length, "{error}");
                }
            }
        }
    }
}

#[test]
fn headers() {
    let path = hex(PATH);
    let changed = |at: usize, byte: u8| {
        let mut message = path.clone();
        message[at] = byte;
        message
    };
    assert_eq!(fault(&changed(0, 0x20)), (0, Fault::Version(2)));
    assert_eq!(fault(&changed(7, 0x89)), (6, Fault::Length { said: 0x89, have: 0x88 }));
    assert_eq!(fault(&changed(4, 63)), (2, Fault::Checksum));
    let mut unknown = changed(1, 12);
    set_checksum(&mut unknown);
    assert_eq!(fault(&unknown), (1, Fault::Type(12)));
    // No checksum is no error (RFC 2205 3.1.1).
    let mut unchecked = changed(4, 63);
    unchecked[2..4].fill(0);
    assert_eq!(decode(&unchecked).unwrap().header.send_ttl, 63);
    // Something behind the message.
    let mut longer = path.clone();
    longer.push(0);
    assert_eq!(fault(&longer), (6, Fault::Length { said: 0x88, have: 0x89 }));
}

#[test]
fn objects() {
    let path = hex(PATH);
    // An object of 2 bytes, and one of 14, in place of SESSION.
    for length in [0, 2, 14] {
        let mut objects = path[8..].to_vec();
        objects[..2].copy_from_slice(&u16::to_be_bytes(length));
        assert_eq!(fault(&with_objects(PATH, &objects)), (8, Fault::ObjectLength(usize::from(length))));
    }
    // SESSION with one word too many.
    let mut objects = hex("0010010100000000000000000000000000");
    objects.truncate(16);
    assert_eq!(fault(&with_objects(PATH, &objects)), (8, Fault::Size { what: "SESSION", need: 8, have: 12 }));
    // Two sessions.
    let twice = [&path[8..20], &path[8..]].concat();
    assert_eq!(fault(&with_objects(PATH, &twice)), (20, Fault::Twice("SESSION")));
    // No session.
    assert_eq!(fault(&with_objects(PATH, &path[20..])), (124, Fault::Missing("SESSION")));
    // A refresh period of 0. TIME_VALUES is at byte 32, its body at 36.
    let mut objects = path[8..].to_vec();
    objects[28..32].fill(0);
    assert_eq!(fault(&with_objects(PATH, &objects)).0, 36);
    // IPv6 beside IPv4.
    let mixed = [&hex(RESV_SE6)[8..32], &path[20..]].concat();
    assert_eq!(fault(&with_objects(PATH, &mixed)).1, Fault::Families);
    // Too many objects: 1025 NULL objects.
    let many = hex("00040001").repeat(1025);
    assert_eq!(fault(&with_objects(PATH, &many)).1, Fault::Many(1024));
}

/// RFC 2205 3.10, by the upper bits of the class number.
#[test]
fn unknown_objects() {
    assert_eq!(Unknown::rule(0x7f), Unknown::Reject);
    assert_eq!(Unknown::rule(0x80), Unknown::Ignore);
    assert_eq!(Unknown::rule(0xc0), Unknown::Forward);
    let path = hex(PATH);
    let with = |object: &str| decode(&with_objects(PATH, &[&path[8..], &hex(object)[..]].concat())).unwrap();
    // The golden message is 136 bytes long.
    let unknown = UnknownObject { at: 136, class: 0x7e, ctype: 9, known_class: false };
    assert_eq!(with("00087e0901020304").unknown, Some(unknown));
    let ignored = with("0008bf0901020304");
    assert_eq!((ignored.unknown, &ignored.message), (None, &decode(&path).unwrap().message));
    let Message::Path(forwarded) = with("0008c10901020304").message else { panic!() };
    assert_eq!(forwarded.passed_on, [RawObject { class: 0xc1, ctype: 9, body: vec![1, 2, 3, 4] }]);
    // POLICY_DATA goes on unread.
    let Message::Path(forwarded) = with("00080e01deadbeef").message else { panic!() };
    assert_eq!(forwarded.passed_on, [RawObject { class: 14, ctype: 1, body: vec![0xde, 0xad, 0xbe, 0xef] }]);
    // A C-type that is not known, of an object that the message needs: ADSPEC is not needed.
    let unknown = UnknownObject { at: 136, class: 13, ctype: 7, known_class: true };
    assert_eq!(with("00080d0701020304").unknown, Some(unknown));
    let mut objects = path[8..].to_vec();
    objects[3] = 3;
    let expected = Fault::UnknownType { class: 1, ctype: 3 };
    assert_eq!(fault(&with_objects(PATH, &objects)), (11, expected));
}

/// RFC 2205 3.1.4: in FF a FLOWSPEC that is the one before may be left out.
#[test]
fn a_flowspec_left_out() {
    let resv = hex(RESV_FF);
    let second = hex("000c0a010a00010100000fa1");
    let message = with_objects(RESV_FF, &[&resv[8..], &second[..]].concat());
    let Message::Resv(resv) = decode(&message).unwrap().message else { panic!() };
    assert_eq!(resv.flows.len(), 2);
    assert_eq!(resv.flows[0].flowspec, resv.flows[1].flowspec);
    assert_eq!(resv.flows[1].filters, [Sender::new(ip("10.0.1.1"), 4001)]);
    // A filter before any FLOWSPEC. SESSION, RSVP_HOP, TIME_VALUES and STYLE end at byte 48.
    let bare = hex(RESV_FF);
    let bare = with_objects(RESV_FF, &[&bare[8..48], &bare[84..]].concat());
    assert_eq!(fault(&bare), (48, Fault::Missing("FLOWSPEC")));
    // A FLOWSPEC without filter.
    let bare = hex(RESV_FF);
    let bare = with_objects(RESV_FF, &bare[8..84]);
    assert_eq!(fault(&bare), (84, Fault::Missing("FILTER_SPEC")));
}

#[test]
fn styles_and_services_that_are_not_known() {
    // STYLE is at byte 40, its body at 44.
    let mut message = hex(RESV_FF);
    message[47] = 0x1f;
    set_checksum(&mut message);
    assert_eq!(fault(&message), (44, Fault::UnknownStyle));
    // A FLOWSPEC of service 9, in words: how many follow, the service, and zeros.
    let golden = hex(RESV_FF);
    let of = |words: u16| {
        let mut flowspec = [(8 + 4 * words).to_be_bytes(), [9, 2], [0, 0], words.to_be_bytes()].concat();
        flowspec.extend([9, 0, 0, 0]);
        flowspec.resize(8 + 4 * usize::from(words), 0);
        with_objects(RESV_FF, &[&golden[8..48], &flowspec[..], &golden[84..]].concat())
    };
    // 63 words and the one before them are 256 bytes.
    let Message::Resv(resv) = decode(&of(63)).unwrap().message else { panic!() };
    assert!(matches!(resv.flows[0].flowspec, Flowspec::Other { service: 9, .. }));
    assert_eq!(fault(&of(64)), (48, Fault::Value("a FLOWSPEC of more than 256 bytes")));
}

#[test]
fn what_can_be_told_without_parsing() {
    let hop = Hop { address: ip("10.0.1.1"), handle: 7 };
    assert_eq!(peek_hop(&hex(PATH)), Some(hop));
    assert_eq!(peek_session(&hex(PATH)), Some(Session { address: ip("10.0.2.2"), protocol: 17, port: 5004 }));
    assert_eq!(peek_hop(&[]), None);
    assert_eq!(peek_hop(&hex(PATH)[..30]), None);
}

/// RFC 2215 3: of bandwidth and MTU the least, of latencies the sum, one hop more.
#[test]
fn a_hop_is_added_to_an_adspec() {
    let Message::Path(path) = decode(&hex(PATH)).unwrap().message else { panic!() };
    let mut adspec = path.adspec.unwrap();
    adspec.pass(HopOffer { bandwidth: 1e6, latency_us: 250, mtu: 9000 }, false);
    adspec.pass(HopOffer { bandwidth: 2e6, latency_us: 250, mtu: 1400 }, false);
    let word = |id| adspec.word(service::GENERAL, id).unwrap();
    assert_eq!(word(parameter::HOPS), 3);
    assert_eq!(f32::from_bits(word(parameter::BANDWIDTH)), 1e6_f32);
    assert_eq!(word(parameter::LATENCY), 500);
    assert_eq!(word(parameter::MTU), 1400);
    assert!(adspec.services.iter().all(|service| !service.broken));
    let mut gap = adspec.clone();
    gap.pass(HopOffer { bandwidth: 1e6, latency_us: u32::MAX, mtu: 1400 }, true);
    assert!(gap.services[0].broken && !gap.services[1].broken);
    assert_eq!(gap.word(service::GENERAL, parameter::LATENCY), Some(u32::MAX), "not known");
}

#[test]
fn ranges_of_a_token_bucket() {
    let good = tspec(62_500.0, 10_000.0);
    assert!(good.is_legal());
    assert!(Tspec { peak: 1e6, ..good }.is_legal());
    let bad = [
        Tspec { rate: f32::NAN, ..good },
        Tspec { rate: f32::INFINITY, ..good },
        Tspec { rate: -1.0, ..good },
        Tspec { rate: 5e13, ..good },
        Tspec { burst: 3e11, ..good },
        Tspec { burst: 0.0, ..good },
        Tspec { peak: f32::NAN, ..good },
        Tspec { peak: f32::NEG_INFINITY, ..good },
        Tspec { min_unit: 0, ..good },
        Tspec { max_packet: 127, ..good },
    ];
    for tspec in bad {
        assert!(!tspec.is_legal(), "{tspec:?}");
    }
}

fn address(v6: bool) -> BoxedStrategy<std::net::IpAddr> {
    if v6 {
        any::<[u8; 16]>().prop_map(std::net::IpAddr::from).boxed()
    } else {
        any::<[u8; 4]>().prop_map(std::net::IpAddr::from).boxed()
    }
}

fn buckets() -> impl Strategy<Value = Tspec> {
    let number = || -1e15_f32..1e15;
    (number(), number(), number(), any::<u32>(), any::<u32>())
        .prop_map(|(rate, burst, peak, min_unit, max_packet)| Tspec { rate, burst, peak, min_unit, max_packet })
}

fn flowspecs() -> impl Strategy<Value = Flowspec> {
    prop_oneof![
        buckets().prop_map(Flowspec::ControlledLoad),
        (buckets(), 0_f32..1e13, any::<u32>()).prop_map(|(tspec, rate, slack)| Flowspec::Guaranteed {
            tspec,
            rate,
            slack
        }),
    ]
}

fn messages(v6: bool) -> impl Strategy<Value = Message> {
    let select = move || {
        let label = if v6 { (0_u32..1 << 20).prop_map(Select::Label).boxed() } else { Just(Select::Port(1)).boxed() };
        prop_oneof![any::<u16>().prop_map(Select::Port), label]
    };
    let sender = move || (address(v6), select()).prop_map(|(address, select)| Sender { address, select });
    let session = (address(v6), any::<u8>(), any::<u16>()).prop_map(|(address, protocol, port)| Session {
        address,
        protocol,
        port,
    });
    let hop = (address(v6), any::<u32>()).prop_map(|(address, handle)| Hop { address, handle });
    let error = (address(v6), any::<u8>(), any::<u8>(), any::<u16>())
        .prop_map(|(node, flags, code, value)| ErrorSpec { node, flags, code, value });
    let raw = proptest::collection::vec(any::<u32>(), 0..4).prop_map(|words| {
        vec![RawObject { class: 14, ctype: 1, body: words.iter().flat_map(|word| word.to_be_bytes()).collect() }]
    });
    let adspec = proptest::option::of(
        (0_f32..1e12, any::<u32>(), any::<u32>())
            .prop_map(|(bandwidth, latency_us, mtu)| Adspec::new(HopOffer { bandwidth, latency_us, mtu })),
    );
    let filters = proptest::collection::vec(sender(), 1..5);
    let confirm = proptest::option::of(address(v6));
    let styles = prop_oneof![Just(Style::Wildcard), Just(Style::Fixed), Just(Style::Shared)];
    let common = (session, hop, error, 1_u32..u32::MAX, styles);
    let parts = (sender(), buckets(), adspec, raw, flowspecs(), filters, confirm);
    (0..7_u8, common, parts).prop_map(
        |(
            kind,
            (session, hop, error, refresh_ms, style),
            (sender, tspec, adspec, passed_on, flowspec, filters, confirm),
        )| {
            let scope = vec![sender.address];
            let flows: Vec<Flow> = match style {
                Style::Wildcard => vec![Flow { flowspec, filters: Vec::new() }],
                Style::Shared => vec![Flow { flowspec, filters: filters.clone() }],
                Style::Fixed => {
                    filters.iter().map(|filter| Flow { flowspec: flowspec.clone(), filters: vec![*filter] }).collect()
                }
            };
            match kind {
                0 => {
                    let session_flags = 1;
                    Message::Path(Path { session, session_flags, hop, refresh_ms, sender, tspec, adspec, passed_on })
                }
                1 => Message::Resv(Resv { session, hop, refresh_ms, confirm, scope, style, flows, passed_on }),
                2 => Message::PathErr(PathErr { session, error, sender, tspec, adspec, passed_on }),
                3 => {
                    let flow = flows[0].clone();
                    Message::ResvErr(ResvErr { session, hop, error, scope, style, flow, passed_on })
                }
                4 => Message::PathTear(PathTear { session, hop, sender }),
                5 => Message::ResvTear(ResvTear { session, hop, scope, style, filters }),
                _ => {
                    let receiver = confirm.unwrap_or(sender.address);
                    Message::ResvConf(ResvConf { session, error, receiver, style, flows })
                }
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// What is written reads back as the same message.
    #[test]
    fn round_trip(message in any::<bool>().prop_flat_map(messages), ttl in any::<u8>()) {
        let bytes = encode(&message, ttl).unwrap();
        let decoded = decode(&bytes).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(decoded.unknown, None);
        prop_assert_eq!(decoded.message, message);
        prop_assert_eq!(decoded.header.send_ttl, ttl);
    }

    /// Noise behind a header: no panic, and a fault within the datagram.
    #[test]
    fn noise(kind in 0_u8..30, noise in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut message = vec![0x10, kind, 0, 0, 64, 0, 0, 0];
        message.extend(noise);
        let length = u16::try_from(message.len()).unwrap();
        message[6..8].copy_from_slice(&length.to_be_bytes());
        if let Err(error) = decode(&message) {
            prop_assert!(error.at <= message.len(), "{}", error);
        }
    }

    /// Near misses find more than noise does.
    #[test]
    fn damaged(
        which in 0..ALL.len(),
        changes in proptest::collection::vec((8_usize..170, any::<u8>()), 1..6),
    ) {
        let mut message = hex(ALL[which]);
        for (at, byte) in changes {
            let at = 8 + at % (message.len() - 8);
            message[at] = byte;
        }
        message[2..4].fill(0);
        match decode(&message) {
            Err(error) => prop_assert!(error.at <= message.len(), "{}", error),
            // What is understood can be written, and reads back. NaN is not equal to itself.
            Ok(decoded) => {
                let again = decode(&encode(&decoded.message, 64).unwrap());
                let again = again.map_err(|error| TestCaseError::fail(error.to_string()))?;
                prop_assert_eq!(format!("{:?}", again.message), format!("{:?}", decoded.message));
            }
        }
    }
}
