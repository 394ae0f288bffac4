//! Any bytes as a frame: no panic, an answer that is within the frame, and a class that the rules
//! alone give as well.

#![no_main]

use altq_engine::classify::{Address, CacheSettings, Classifier, Field, Order, Rule, RuleSet, Term, Values};
use altq_engine::headers::{Encapsulation, FragmentCache, Headers, parse_ethernet, parse_ip};
use libfuzzer_sys::fuzz_target;

fn check(headers: &Headers, seen: usize, len: usize) {
    let key = &headers.key;
    let end = headers.layer3 as usize + key.length as usize;
    assert!(end <= len.max(seen));
    if let Some(at) = headers.transport {
        assert!(at > headers.layer3 && (at as usize) < seen.min(end));
    }
    assert_eq!(key.sport().is_some(), key.dport().is_some());
    assert!(key.sport().is_none() || headers.transport.is_some());
    assert!(key.tcp_flags == 0 || key.proto == 6 && key.sport().is_some());
    assert!(headers.fragment.is_none_or(|f| f.offset == 0 || headers.transport.is_none()));
    assert!([0, 4, 6].contains(&key.family));
}

/// An IP packet gives the same key behind a tag, in a PPPoE session (RFC 2516 4) and behind two
/// labels (RFC 3032 2.1) as without them.
fn wrapped(packet: &[u8], len: u32) {
    let bare = parse_ip(packet, len);
    let protocol = match bare.key.family {
        4 => 0x21,
        6 => 0x57,
        _ => return,
    };
    let wraps: [&[u8]; 4] = [
        &[0x88, 0x64, 0x11, 0, 0, 1, 0xff, 0xff, 0, protocol],
        &[0x88, 0x64, 0x11, 0, 0, 1, 0, 0, protocol],
        &[0x88, 0x47, 0, 6, 0x40, 64, 0, 1, 1, 64],
        &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 0x88, 0x64, 0x11, 0, 0, 1, 0, 0, 2, 0x81, 0, 1, 1, 64],
    ];
    for wrap in wraps {
        let frame = [&[2; 12], wrap, packet].concat();
        let before = 12 + wrap.len() as u32;
        let found = parse_ethernet(&frame, before + len);
        assert_eq!(found.key.with_vlan(None), bare.key);
        assert_eq!((found.layer3, found.fragment, found.payload), (before, bare.fragment, bare.payload));
        assert_eq!(found.transport, bare.transport.map(|at| at + before));
    }
}

/// Rules that together use every field.
fn rules(order: Order) -> RuleSet {
    let numbers = [
        (Field::SrcPort, 0, 1023),
        (Field::DstPort, 80, 80),
        (Field::Port, 5000, 6000),
        (Field::Proto, 6, 17),
        (Field::Dscp, 46, 46),
        (Field::Ecn, 3, 3),
        (Field::TcpFlags, 2, 2),
        (Field::Length, 0, 100),
        (Field::Vlan, 1, 100),
        (Field::Family, 6, 6),
        (Field::Spi, 1, 1000),
        (Field::FlowLabel, 0, 1000),
    ];
    let term = |field, values| Term { field, negated: false, values };
    let mut rules: Vec<Rule> = numbers
        .iter()
        .enumerate()
        .map(|(at, (field, first, last))| Rule {
            terms: vec![term(*field, Values::Ranges(vec![(*first, *last)]))],
            class: at as u32,
            number: at as u32 % 3,
        })
        .collect();
    let host = Address { v6: false, bits: 0xc000_0201, mask: 0xffff_ffff };
    rules.push(Rule { terms: vec![term(Field::Dst, Values::Addresses(vec![host]))], class: 90, number: 0 });
    let net = Address { v6: true, bits: 0x2001 << 112, mask: 0xffff << 112 };
    rules.push(Rule {
        terms: vec![Term { negated: true, ..term(Field::Host, Values::Addresses(vec![net])) }],
        class: 91,
        number: 0,
    });
    RuleSet { rules, order, interfaces: Vec::new() }
}

// The input: two bytes that say how many more bytes each frame has than are captured of it; then
// the frames, each behind a byte with its captured length.
fuzz_target!(|input: &[u8]| {
    let Some((more, mut rest)) = input.split_first_chunk::<2>() else { return };
    let more = u16::from_le_bytes(*more);
    let mut frames = Vec::new();
    while let Some((len, after)) = rest.split_first() {
        let (frame, after) = after.split_at(after.len().min(usize::from(*len)));
        frames.push(frame);
        rest = after;
    }
    let mut fragments = FragmentCache::new();
    let cache = CacheSettings { flows: 64, seed: u64::from(more) };
    let mut classifiers = [Order::First, Order::Altq].map(|order| Classifier::with(&rules(order), Some(99), cache));
    let mut keys = Vec::new();
    for frame in &frames {
        let len = frame.len() as u32 + u32::from(more);
        wrapped(frame, len);
        let way = Encapsulation::read(frame);
        assert!(way.layer3 == 14 || way.layer3 <= frame.len());
        for mut headers in [parse_ethernet(frame, len), parse_ip(frame, len)] {
            check(&headers, frame.len(), len as usize);
            fragments.see(&mut headers);
            keys.push(headers.key);
            for classifier in &mut classifiers {
                assert_eq!(classifier.classify(&headers.key), classifier.explain(&headers.key).class);
            }
        }
    }
    for classifier in &mut classifiers {
        let mut classes = Vec::new();
        classifier.classify_batch(&keys, &mut classes);
        let expected: Vec<_> = keys.iter().map(|key| classifier.explain(key).class).collect();
        assert_eq!(classes, expected);
    }
});
