//! The classifier against a referee that is written from the documentation of the rules, and knows
//! neither index nor cache.

use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::*;

/// Does the term hold? Straight from the documentation.
fn holds(term: &Term, key: &Key) -> bool {
    let ip = [4, 6].contains(&key.family);
    let numbers: Vec<u32> = match term.field {
        Field::Src | Field::Dst | Field::Host => vec![],
        Field::SrcPort => key.sport().map(u32::from).into_iter().collect(),
        Field::DstPort => key.dport().map(u32::from).into_iter().collect(),
        Field::Port => key.sport().into_iter().chain(key.dport()).map(u32::from).collect(),
        Field::Proto if ip => vec![key.proto.into()],
        Field::Dscp if ip => vec![u32::from(key.tos) / 4],
        Field::Ecn if ip => vec![u32::from(key.tos) % 4],
        Field::Tos if ip => vec![key.tos.into()],
        Field::TcpFlags if key.proto == 6 && key.sport().is_some() => vec![key.tcp_flags.into()],
        Field::Length => vec![key.length],
        Field::Mark => vec![key.mark],
        Field::Vlan => key.vlan().map(u32::from).into_iter().collect(),
        Field::Interface => vec![key.interface.into()],
        Field::Family if ip => vec![key.family.into()],
        Field::Spi if key.spi != 0 => vec![key.spi],
        Field::FlowLabel if key.family == 6 => vec![key.flow_label],
        _ => vec![],
    };
    let addresses: &[u128] = match term.field {
        Field::Src => &[key.src],
        Field::Dst => &[key.dst],
        Field::Host => &[key.src, key.dst],
        _ => &[],
    };
    let among = match &term.values {
        Values::Addresses(list) => list.iter().any(|a| {
            key.family == if a.v6 { 6 } else { 4 } && addresses.iter().any(|bits| bits & a.mask == a.bits & a.mask)
        }),
        Values::Ranges(list) => list.iter().any(|(first, last)| numbers.iter().any(|n| first <= n && n <= last)),
        Values::Masked(list) => list.iter().any(|(value, mask)| numbers.iter().any(|n| n & mask == *value)),
    };
    among != term.negated
}

/// The matching rules in the order in which they are tried.
fn referee(set: &RuleSet, key: &Key) -> Vec<usize> {
    let mut matching: Vec<usize> =
        (0..set.rules.len()).filter(|at| set.rules[*at].terms.iter().all(|term| holds(term, key))).collect();
    if set.order == Order::Altq {
        let hashed = |rule: &Rule| {
            rule.terms.iter().any(|term| {
                !term.negated
                    && match (&term.values, term.field) {
                        (_, Field::FlowLabel) => true,
                        (Values::Addresses(list), Field::Dst) => {
                            list.len() == 1 && !list[0].v6 && list[0].mask == u128::from(u32::MAX)
                        }
                        _ => false,
                    }
            })
        };
        // docs/reference/altq.md 10.1: hashed before others; larger numbers first; among equals the
        // later line.
        matching.sort_by(|a, b| {
            let (x, y) = (&set.rules[*a], &set.rules[*b]);
            hashed(y).cmp(&hashed(x)).then(y.number.cmp(&x.number)).then(b.cmp(a))
        });
    }
    matching
}

const V4: [u128; 4] = [0x0a00_0001, 0x0a00_0002, 0x0a01_0001, 0xc0a8_0001];
const V6: [u128; 3] = [0x2001_0db8 << 96 | 1, 0x2001_0db8 << 96 | 2, 0x2001_0db9 << 96 | 1];

fn address() -> impl Strategy<Value = Address> {
    let v4 = (
        prop::sample::select(&V4[..]),
        prop::sample::select(&[0_u32, 0xff00_0000, 0xffff_0000, 0xff00_00ff, 0xffff_ffff][..]),
    );
    let v6 = (prop::sample::select(&V6[..]), prop::sample::select(&[0_u32, 31, 32, 64, 128][..]));
    prop_oneof![
        v4.prop_map(|(bits, mask)| Address { v6: false, bits: bits & u128::from(mask), mask: mask.into() }),
        v6.prop_map(|(bits, len)| {
            let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
            Address { v6: true, bits: bits & mask, mask }
        }),
    ]
}

const ADDRESS_FIELDS: [Field; 3] = [Field::Src, Field::Dst, Field::Host];
const NUMBER_FIELDS: [Field; 15] = [
    Field::SrcPort,
    Field::DstPort,
    Field::Port,
    Field::Proto,
    Field::Dscp,
    Field::Ecn,
    Field::Tos,
    Field::TcpFlags,
    Field::Length,
    Field::Mark,
    Field::Vlan,
    Field::Interface,
    Field::Family,
    Field::Spi,
    Field::FlowLabel,
];

/// Numbers that keys have, and some that they do not.
fn number() -> impl Strategy<Value = u32> {
    prop::sample::select(&[0_u32, 1, 2, 4, 6, 17, 46, 80, 0xb8, 1500, 40000][..])
}

fn term() -> impl Strategy<Value = Term> {
    let addresses = (prop::sample::select(&ADDRESS_FIELDS[..]), prop::collection::vec(address(), 0..3))
        .prop_map(|(field, list)| (field, Values::Addresses(list)));
    let ranges = (prop::sample::select(&NUMBER_FIELDS[..]), prop::collection::vec((number(), number()), 0..3))
        .prop_map(|(field, list)| (field, Values::Ranges(list)));
    let mask = prop::sample::select(&[0_u32, 1, 3, 0xfc, 0xff, 0xffff, u32::MAX][..]);
    let masked = (prop::sample::select(&NUMBER_FIELDS[..]), prop::collection::vec((number(), mask), 0..3))
        .prop_map(|(field, list)| (field, Values::Masked(list)));
    // A quarter of the rules names the wrong kind of value; it must match nothing and harm nobody.
    let wrong = prop::sample::select(&NUMBER_FIELDS[..]).prop_map(|field| (field, Values::Addresses(vec![])));
    (prop_oneof![4 => addresses, 4 => ranges, 3 => masked, 1 => wrong], prop::bool::weighted(0.2))
        .prop_map(|((field, values), negated)| Term { field, negated, values })
}

fn rules() -> impl Strategy<Value = RuleSet> {
    let rule = |terms| (prop::collection::vec(term(), terms), 0_u32..3);
    // Few, many, and many of one term, of which some are alike.
    let all = |terms: std::ops::Range<usize>, rules| prop::collection::vec(rule(terms), rules);
    (prop_oneof![all(0..4, 0..12), all(0..4, 17..80), all(1..2, 17..200)], any::<bool>()).prop_map(|(rules, altq)| {
        RuleSet {
            rules: rules
                .into_iter()
                .enumerate()
                .map(|(class, (terms, number))| Rule { terms, class: class as u32, number })
                .collect(),
            order: if altq { Order::Altq } else { Order::First },
            interfaces: Vec::new(),
        }
    })
}

fn pick<T: Copy>(random: &mut impl Rng, from: &[T]) -> T {
    from[random.next_u32() as usize % from.len()]
}

/// A key from small pools, so that keys differ in a field or two.
fn random_key(random: &mut impl Rng) -> Key {
    let r = random;
    let six = r.next_u32().is_multiple_of(3);
    let (src, dst) = if six { (pick(r, &V6), pick(r, &V6)) } else { (pick(r, &V4), pick(r, &V4)) };
    let mut key =
        Key { src, dst, family: if six { 6 } else { 4 }, proto: pick(r, &[1, 6, 6, 17, 50]), ..Key::default() };
    key.tos = pick(r, &[0, 0, 1, 2, 0xb8, 0xb9]);
    key.length = pick(r, &[40, 80, 1500]);
    key.mark = pick(r, &[0, 0, 1, 2]);
    key = key.with_vlan(pick(r, &[None, None, Some(0), Some(1), Some(80)]));
    key.interface = pick(r, &[0, 1, 2, Key::NO_INTERFACE]);
    if key.proto == 6 || key.proto == 17 {
        let whole = !r.next_u32().is_multiple_of(4);
        key = key.with_sport(whole.then(|| pick(r, &[0, 80, 40000])));
        key = key.with_dport(whole.then(|| pick(r, &[0, 80, 1500])));
        if key.proto == 6 && whole {
            key.tcp_flags = pick(r, &[2, 16, 18]);
        }
    }
    if key.proto == 50 {
        key.spi = pick(r, &[0, 1, 1500]);
    }
    if six {
        key.flow_label = pick(r, &[0, 1, 46]);
    }
    if r.next_u32().is_multiple_of(20) {
        key = Key { length: key.length, mark: key.mark, interface: key.interface, ..Key::default() }
            .with_vlan(key.vlan());
    }
    key
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the rules, the cache's size and the seed: the answer is the referee's, at first
    /// sight, again, and in a batch.
    #[test]
    fn the_answer_is_that_of_the_rules(
        set in rules(),
        seed in any::<u64>(),
        flows in 0_usize..200,
        default in any::<bool>(),
    ) {
        let default = default.then_some(99);
        let mut classifier = Classifier::with(&set, default, CacheSettings { flows, seed });
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let keys: Vec<Key> = (0..400).map(|_| random_key(&mut random)).collect();
        let expected: Vec<_> = keys.iter().map(|key| referee(&set, key)).collect();
        for _ in 0..2 {
            for (key, matching) in keys.iter().zip(&expected) {
                let class = matching.first().map(|rule| *rule as u32).or(default);
                prop_assert_eq!(classifier.classify(key), class, "{:?}", key);
                let explained = classifier.explain(key);
                prop_assert_eq!(explained.class, class);
                prop_assert_eq!(classifier.rule(key), explained.rule);
                let named: Vec<_> = explained.rule.into_iter().chain(explained.shadowed).collect();
                prop_assert_eq!(named, matching.clone());
            }
        }
        let mut classes = Vec::new();
        classifier.classify_batch(&keys, &mut classes);
        let wanted: Vec<_> = expected.iter().map(|m| m.first().map(|rule| *rule as u32).or(default)).collect();
        prop_assert_eq!(classes, wanted);
    }
}

/// One rule a flow: source, destination, protocol and both ports, all in full.
fn five_tuples(n: u32) -> (RuleSet, Vec<Key>) {
    let keys: Vec<Key> = (0..n)
        .map(|at| {
            let (src, dst) = (0x0a00_0000 | u128::from(at % 251), 0xac10_0000 + u128::from(at));
            Key { src, dst, proto: 17, family: 4, ..Key::default() }.with_ports(1024 + (at % 60_000) as u16, 443)
        })
        .collect();
    let full = |bits| Values::Addresses(vec![Address { v6: false, bits, mask: u128::from(u32::MAX) }]);
    let is = |n: u32| Values::Ranges(vec![(n, n)]);
    let rules = keys.iter().enumerate().map(|(at, key)| {
        let terms = [
            (Field::Src, full(key.src)),
            (Field::Dst, full(key.dst)),
            (Field::Proto, is(key.proto.into())),
            (Field::SrcPort, is(key.sport.into())),
            (Field::DstPort, is(443)),
        ];
        Rule {
            terms: terms.into_iter().map(|(field, values)| Term { field, negated: false, values }).collect(),
            class: at as u32,
            number: 0,
        }
    });
    (RuleSet { rules: rules.collect(), ..RuleSet::default() }, keys)
}

#[test]
fn the_cache_grows_until_all_flows_are_in_it() {
    let (set, keys) = five_tuples(100_000);
    let mut classifier = Classifier::new(&set, None);
    for round in 0..6 {
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(classifier.classify(key), Some(at as u32), "round {round}");
        }
    }
    let before = classifier.misses();
    for key in &keys {
        classifier.classify(key);
    }
    let missed = classifier.misses() - before;
    assert!(missed < 100, "{missed} of 100,000 flows are not kept");
    // At most 2^18 entries of 32 bytes; the rules take their own.
    let cache = classifier.memory() - Classifier::new(&set, None).memory();
    assert!(cache <= 32 * (1 << 18) + 64, "{cache} bytes");
}

/// What [`CacheSettings::flows`] says of memory: four entries and more for each of few flows.
#[test]
fn a_small_cache_keeps_room() {
    for flows in [10, 64, 65, 300, 1000, 5000, 16_000] {
        let (set, keys) = five_tuples(flows);
        let mut classifier = Classifier::new(&set, None);
        let without = classifier.memory();
        keys.iter().cycle().take(8 * keys.len()).for_each(|key| _ = classifier.classify(key));
        // Seven words more are for alignment.
        let entries = (classifier.memory() - without - 7 * 8) / 32;
        let most = 1024.max(32 * flows as usize);
        assert!((4 * flows as usize..=most).contains(&entries), "{entries} entries for {flows} flows");
    }
}

#[test]
fn the_cache_keeps_to_its_limit() {
    let (set, keys) = five_tuples(20_000);
    let without = Classifier::new(&set, None).memory();
    let mut classifier = Classifier::with(&set, None, CacheSettings { flows: 5000, seed: 3 });
    for _ in 0..3 {
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(classifier.classify(key), Some(at as u32));
        }
    }
    // 5000 rounded down to 4096.
    assert_eq!(classifier.memory() - without, 4096 * 32 + 7 * 8);
}

#[test]
fn a_scan_does_not_push_out_the_flows_that_live() {
    let (set, keys) = five_tuples(600);
    let mut classifier = Classifier::with(&set, None, CacheSettings { flows: 1024, seed: 11 });
    let mut misses = 0;
    for round in 0..200_u32 {
        let before = classifier.misses();
        for key in &keys {
            classifier.classify(key);
        }
        if round > 0 {
            misses += classifier.misses() - before;
        }
        // A thousand flows that never come again.
        for at in 0..1000 {
            classifier.classify(&Key { src: u128::from(round * 1000 + at), family: 4, proto: 6, ..Key::default() });
        }
    }
    // A thousand strangers a round through a cache of a thousand: without the place on trial
    // nothing would be left. Only flows whose both sets are full of living ones may miss, one or
    // two to a set.
    let rate = misses as f64 / (199.0 * 600.0);
    assert!(rate < 0.15, "{rate} of the living flows' packets missed");
}

#[test]
fn changes_start_anew() {
    let (set, keys) = five_tuples(3);
    let mut classifier = Classifier::new(&set, Some(9));
    assert_eq!(classifier.classify(&keys[1]), Some(1));
    classifier.set_cache(CacheSettings { flows: 0, seed: 1 });
    for _ in 0..2 {
        assert_eq!(classifier.classify(&keys[1]), Some(1));
        assert_eq!(classifier.classify(&Key::default()), Some(9));
    }
    assert!(classifier.leads_to(2) && !classifier.leads_to(3));
    assert_eq!(Classifier::new(&RuleSet::default(), None).classify(&keys[0]), None);
}
