//! RFC 2747: digests that others computed, sequence numbers, and what a node does with what is not
//! authentic.

use crate::support;

use altq_rsvp::integrity::{
    Algorithm, IntegrityError, Key, Peers, Signature, Verdict, Window, sign, signature, verify,
};
use altq_rsvp::node::{Limits, Neighbour, Prefix, Refusal};
use altq_rsvp::wire::{Challenge, Message, Style, decode, encode};
use support::messages::{PATH, PATH_MD5, PATH_SHA256, PATH_SHA384, PATH_SHA512};
use support::router::{IN, OUT, Router, config, path, sender, session};
use support::{S, hex, ip, tspec};

fn key(algorithm: Algorithm) -> Key {
    Key { id: 1, algorithm, secret: b"secret".to_vec() }
}

const GOLDEN: [(Algorithm, &str); 4] = [
    (Algorithm::HmacMd5, PATH_MD5),
    (Algorithm::HmacSha256, PATH_SHA256),
    (Algorithm::HmacSha384, PATH_SHA384),
    (Algorithm::HmacSha512, PATH_SHA512),
];

#[test]
fn golden_digests() {
    for (algorithm, golden) in GOLDEN {
        let golden = hex(golden);
        let digest_bytes = algorithm.length();
        let expected = Signature { flags: 0, key_id: 1, sequence: 77, digest_bytes };
        assert_eq!(signature(&golden), Ok(expected));
        assert_eq!(verify(&golden, &[key(algorithm)]), Ok(expected));
        // Signing the same message gives the same bytes.
        let unsigned = encode(&decode(&golden).unwrap().message, 64).unwrap();
        assert_eq!(sign(&unsigned, &key(algorithm), 77).unwrap(), golden);
    }
}

#[test]
fn every_changed_bit_is_found() {
    let golden = hex(PATH_MD5);
    let keys = [key(Algorithm::HmacMd5)];
    for bit in 0..golden.len() * 8 {
        let mut forged = golden.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        // The checksum is not covered: it counts as zero.
        if bit / 8 == 2 || bit / 8 == 3 {
            assert!(verify(&forged, &keys).is_ok());
            assert!(decode(&forged).is_err(), "a checksum that is not zero is checked");
        } else {
            assert!(verify(&forged, &keys).is_err(), "bit {bit}");
        }
    }
}

#[test]
fn wrong_keys() {
    let golden = hex(PATH_MD5);
    let other = Key { id: 2, ..key(Algorithm::HmacMd5) };
    assert_eq!(verify(&golden, &[other]), Err(IntegrityError::UnknownKey));
    let other = Key { secret: b"Secret".to_vec(), ..key(Algorithm::HmacMd5) };
    assert_eq!(verify(&golden, &[other]), Err(IntegrityError::WrongDigest));
    assert_eq!(verify(&golden, &[key(Algorithm::HmacSha256)]), Err(IntegrityError::Malformed));
    assert_eq!(verify(&hex(PATH), &[key(Algorithm::HmacMd5)]), Err(IntegrityError::Absent));
    assert_eq!(verify(&[], &[]), Err(IntegrityError::Malformed));
    assert!(!format!("{:?}", key(Algorithm::HmacMd5)).contains("secret"));
}

#[test]
fn the_window_takes_each_number_once() {
    let mut window = Window::starting_at(100);
    assert!(!window.take(100) && !window.take(99), "older ones may be recorded");
    assert!(window.take(103) && window.take(101) && window.take(102));
    assert!(!window.take(101) && !window.take(103));
    assert!(window.take(134) && !window.take(102), "32 behind is too old");
    assert!(window.take(104), "30 behind is not");
    assert!(window.take(1000) && !window.take(134));
    assert!(window.take(u64::MAX) && window.take(u64::MAX - 31) && !window.take(u64::MAX - 32));
}

#[test]
fn a_handshake() {
    let mut peers = Peers::default();
    let (peer, other) = (ip("10.0.0.1"), ip("10.0.0.2"));
    let at = |sequence| Signature { flags: 0, key_id: 1, sequence, digest_bytes: 16 };
    let challenge = Challenge { key_id: 1, cookie: 5_u64.to_be_bytes().to_vec() };
    assert_eq!(peers.judge(0, (peer, true), &at(10), true, 5), Verdict::Challenge(challenge.clone()));
    // No flood of challenges, and no second cookie.
    assert_eq!(peers.judge(S / 2, (peer, true), &at(11), true, 6), Verdict::Refuse(IntegrityError::Handshake));
    assert_eq!(peers.judge(S, (peer, true), &at(12), true, 7), Verdict::Challenge(challenge.clone()));
    let wrong = Challenge { cookie: 6_u64.to_be_bytes().to_vec(), ..challenge.clone() };
    assert!(!peers.answered(peer, &at(13), &wrong));
    assert!(!peers.answered(other, &at(13), &challenge), "nobody asked");
    assert!(peers.answered(peer, &at(13), &challenge));
    assert!(!peers.answered(peer, &at(14), &challenge), "only once");
    assert_eq!(peers.judge(S, (peer, true), &at(12), true, 8), Verdict::Refuse(IntegrityError::Replayed));
    assert_eq!(peers.judge(S, (peer, true), &at(14), true, 8), Verdict::Accept);
    // Without a handshake the first number is believed.
    assert_eq!(peers.judge(S, (other, true), &at(3), false, 0), Verdict::Accept);
    assert_eq!(peers.judge(S, (other, true), &at(3), false, 0), Verdict::Refuse(IntegrityError::Replayed));
    // What only seems to come from a neighbour shuts nothing else of it out.
    assert_eq!(peers.judge(S, (other, false), &at(1000), false, 0), Verdict::Accept);
    assert_eq!(peers.judge(S, (other, true), &at(4), false, 0), Verdict::Accept);
}

/// A router whose neighbour on [`IN`] has a key.
fn keyed(handshake: bool) -> Router {
    let mut config = config();
    config.interfaces[0].neighbours[0].keys = vec![key(Algorithm::HmacSha256)];
    config.interfaces[0].neighbours[0].handshake = handshake;
    config.interfaces[0].sign = Some(key(Algorithm::HmacSha256));
    config.limits = Limits { known: (1000, 1000), unknown: (1000, 1000), ..Limits::default() };
    Router::new(config, 1e6)
}

fn signed(sequence: u64, port: u16) -> Vec<u8> {
    let message = encode(&path(session(5004), sender(port), tspec(62_500.0, 10_000.0)), 64).unwrap();
    sign(&message, &key(Algorithm::HmacSha256), sequence).unwrap()
}

#[test]
fn a_node_believes_a_neighbour_with_keys_only_what_is_signed() {
    let mut router = keyed(false);
    // Unsigned, by a wrong key, damaged: no effect, and counted.
    assert!(router.path(session(5004), sender(4000), tspec(62_500.0, 10_000.0)).is_empty());
    assert_eq!(router.refused(Refusal::Unsigned), 1);
    let plain = encode(&path(session(5004), sender(4000), tspec(62_500.0, 10_000.0)), 64).unwrap();
    let forged = sign(&plain, &Key { secret: b"guess".to_vec(), ..key(Algorithm::HmacSha256) }, 1).unwrap();
    assert!(router.hear(IN, "10.0.1.1", "10.0.2.2", &forged).is_empty());
    assert_eq!(router.refused(Refusal::Forged), 1);
    assert_eq!(router.node.sessions(), 0);
    // Signed: taken once.
    assert_eq!(router.hear(IN, "10.0.1.1", "10.0.2.2", &signed(5, 4000)).len(), 1);
    assert!(router.hear(IN, "10.0.1.1", "10.0.2.2", &signed(5, 4000)).is_empty());
    assert_eq!(router.refused(Refusal::Replayed), 1);
    // A tear that is recorded and sent again, or not signed, tears nothing.
    router.path_tear(session(5004), sender(4000));
    assert_eq!(router.refused(Refusal::Unsigned), 2);
    assert_eq!(router.node.paths().len(), 1);
    // What goes to this neighbour is signed, with numbers that grow.
    let resv = [(tspec(62_500.0, 10_000.0), &[sender(4000)][..])];
    let sent = router.resv(OUT, session(5004), Style::Fixed, &resv);
    let upstream = sent.iter().find(|transmit| transmit.interface == IN).unwrap();
    assert_eq!(verify(&upstream.message, &[key(Algorithm::HmacSha256)]).unwrap().sequence, 1);
}

/// A wide range without keys, listed first, does not stand in for a host with keys.
#[test]
fn the_narrowest_range_counts() {
    let mut config = config();
    config.interfaces[0].neighbours[0].keys = vec![key(Algorithm::HmacSha256)];
    let prefix = Prefix { address: ip("10.0.1.0"), length: 24 };
    config.interfaces[0].neighbours.insert(0, Neighbour { prefix, keys: Vec::new(), handshake: false });
    let mut router = Router::new(config, 1e6);
    assert!(router.path(session(5004), sender(4000), tspec(62_500.0, 10_000.0)).is_empty());
    assert_eq!((router.refused(Refusal::Unsigned), router.node.sessions()), (1, 0));
    assert_eq!(router.hear(IN, "10.0.1.1", "10.0.2.2", &signed(5, 4000)).len(), 1);
}

#[test]
fn a_node_that_has_started_challenges_its_neighbour() {
    let mut router = keyed(true);
    let sent = router.hear(IN, "10.0.1.1", "10.0.2.2", &signed(5, 4000));
    assert_eq!(router.node.sessions(), 0);
    assert_eq!((sent.len(), sent[0].destination), (1, ip("10.0.1.1")));
    let Message::Challenge(challenge) = decode(&sent[0].message).unwrap().message else { panic!() };
    let answer = encode(&Message::Response(challenge), 64).unwrap();
    // An answer that is not signed proves nothing.
    router.hear(IN, "10.0.1.1", "10.0.1.2", &answer);
    assert!(router.hear(IN, "10.0.1.1", "10.0.2.2", &signed(6, 4000)).is_empty());
    let answer = sign(&answer, &key(Algorithm::HmacSha256), 7).unwrap();
    router.hear(IN, "10.0.1.1", "10.0.1.2", &answer);
    assert!(router.hear(IN, "10.0.1.1", "10.0.2.2", &signed(6, 4000)).is_empty(), "an older number");
    assert_eq!(router.hear(IN, "10.0.1.1", "10.0.2.2", &signed(8, 4000)).len(), 1);
    assert_eq!(router.node.sessions(), 1);
}

#[test]
fn a_node_answers_a_challenge() {
    let mut router = keyed(true);
    let challenge = Challenge { key_id: 1, cookie: vec![1, 2, 3, 4, 5, 6, 7, 8] };
    let bytes = encode(&Message::Challenge(challenge.clone()), 64).unwrap();
    let sent = router.hear(IN, "10.0.1.1", "10.0.1.2", &bytes);
    assert_eq!(sent.len(), 1);
    assert!(verify(&sent[0].message, &[key(Algorithm::HmacSha256)]).is_ok());
    assert_eq!(decode(&sent[0].message).unwrap().message, Message::Response(challenge));
}

/// Both ends of a link have the same key. So a node that answered its own challenge could be given
/// its answer as the neighbour's.
#[test]
fn a_node_does_not_answer_its_own_challenge() {
    let mut router = keyed(true);
    let sent = router.hear(IN, "10.0.1.1", "10.0.2.2", &signed(5, 4000));
    let challenge = sent[0].message.clone();
    assert!(matches!(decode(&challenge).unwrap().message, Message::Challenge(_)));
    assert!(router.hear(IN, "10.0.1.1", "10.0.1.2", &challenge).is_empty());
    assert_eq!(router.refused(Refusal::Answer), 1);
}
