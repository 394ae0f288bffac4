//! HFSC: the engine against what the registry's function promises: a packet that finds so many
//! bytes waiting, itself included, has left, to its last bit, within the promise's time for them.

use crate::support;
use crate::support::hfsc;

use altq_engine::schedule::{
    self,
    promise::{Member, Place, Promise},
};
use altq_engine::settings::Settings;
use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::units::Rate;
use hfsc::{Class, MBIT, bent, line, link, share};
use support::{MS, Random, S, Wire};

/// The promise of each class of a link, by number. Packets go to leaves.
fn promises(promised: Promise, packet: u32, classes: &[Class]) -> Vec<Result<Promise, String>> {
    promises_with(promised, packet, classes, None)
}

/// The same where packets go to an inner class too.
fn promises_with(
    promised: Promise,
    packet: u32,
    classes: &[Class],
    inner: Option<usize>,
) -> Vec<Result<Promise, String>> {
    let leaf = |class: usize| !classes.iter().any(|other| other.parent as usize == class);
    let settings: Vec<Settings> = classes.iter().map(Class::settings).collect();
    let members: Vec<Member<'_>> = classes
        .iter()
        .zip(&settings)
        .enumerate()
        .map(|(at, (class, settings))| Member {
            parent: (class.parent as usize).checked_sub(1),
            settings,
            leaf: leaf(at + 1),
            packets: leaf(at + 1) || inner == Some(at + 1),
            holds: false,
        })
        .collect();
    let scheduler = Settings::new();
    let place = Place { promised, rate: promised.rate(), packet, scheduler: &scheduler, classes: &members };
    let entry = schedule::find("hfsc").unwrap();
    std::iter::once(Err("the link".to_owned())).chain((entry.promises)(&place)).collect()
}

fn alone(rate: u64, classes: &[Class]) -> Vec<Result<Promise, String>> {
    promises(Promise::new(0, Rate::bit_s(rate)), 1500, classes)
}

#[test]
fn promises_by_hand() {
    let voice = bent(2 * MBIT, 5 * MS, 64_000);
    let classes = [
        share(0, MBIT).realtime(voice),
        share(0, 6 * MBIT),
        share(0, 3 * MBIT),
        share(2, 4 * MBIT),
        share(2, 2 * MBIT),
    ];
    let got = alone(10 * MBIT, &classes);
    // One packet of 1500 bytes on the link of 10 Mbit/s.
    assert_eq!(got[1], Ok(Promise { latency: 1_200_000, curve: voice }));
    // Of 10 Mbit/s deadlines may take 64 kbit/s, and at once (2 Mbit/s - 64 kbit/s) x 5 ms = 1210
    // bytes and a packet; then three packets of siblings' and its own.
    let wait = |bytes: u64, rate: u64| (bytes * 8 * S).div_ceil(rate);
    let root = wait(1210 + 1500, 9_936_000) + wait(3 * 1500, 9_936_000);
    assert_eq!(got[3], Ok(Promise::new(root, Rate::bit_s(9_936_000 * 3 / 10))));
    let agency = 9_936_000 * 6 / 10;
    assert_eq!(got[4], Ok(Promise::new(root + wait(2 * 1500, agency), Rate::bit_s(agency * 4 / 6))));
}

/// Of a class with packets of its own, a child may have one packet of these before it. Its
/// deadlines count like those of a leaf, and take from the share that its children divide.
#[test]
fn inner_classes_with_packets_by_hand() {
    let link = Promise::new(0, Rate::bit_s(10 * MBIT));
    let classes = [share(0, 6 * MBIT), share(0, 4 * MBIT), share(1, 4 * MBIT), share(1, 2 * MBIT)];
    let got = promises_with(link, 1500, &classes, Some(1));
    let wait = |bytes: u64, rate: u64| (bytes * 8 * S).div_ceil(rate);
    let top = wait(2 * 1500, 10 * MBIT);
    assert!(got[1].as_ref().is_err_and(|said| said.contains("no class below")));
    assert_eq!(got[3], Ok(Promise::new(top + wait(3 * 1500, 6 * MBIT), Rate::bit_s(4 * MBIT))));
    let mut classes = classes;
    classes[0] = share(0, 6 * MBIT).realtime(line(3 * MBIT));
    let got = promises_with(link, 1500, &classes, Some(1));
    assert_eq!(got[1], Ok(Promise { latency: 1_200_000, curve: line(3 * MBIT) }));
    assert!(got[3].as_ref().is_err_and(|said| said.contains("class above")), "{:?}", got[3]);
    // Of 10 Mbit/s deadlines take 3, and a packet at once.
    let rate = 7 * MBIT;
    assert_eq!(got[2], Ok(Promise::new(wait(1500, rate) + wait(2 * 1500, rate), Rate::bit_s(rate * 4 / 10))));
}

#[test]
fn nothing_is_promised_where_nothing_holds() {
    let deadline = |rate: u64| Class { realtime: Some(line(rate)), ..Class::default() };
    for (classes, at, why) in [
        (vec![deadline(6 * MBIT), deadline(5 * MBIT)], 1, "more than"),
        (vec![share(0, MBIT), deadline(10 * MBIT)], 1, "may take all"),
        (vec![share(0, MBIT).limit(MBIT), share(0, MBIT)], 1, "limit"),
        (vec![share(0, MBIT), share(1, MBIT), Class { parent: 1, ..deadline(MBIT) }], 2, "class above"),
        (vec![Class { share: Some(bent(MBIT, MS, 1)), ..Class::default() }], 1, "two pieces"),
        (vec![deadline(MBIT), Class { parent: 1, ..share(0, MBIT) }], 2, "no share"),
    ] {
        let got = &alone(10 * MBIT, &classes)[at];
        assert!(got.as_ref().is_err_and(|said| said.contains(why)), "{got:?}: {why}");
    }
    // A place whose curve begins at 0 and one that is slow at first.
    let late = Promise { latency: MS, curve: ServiceCurve::latency_rate(MS, Rate::mbit_s(8)) };
    assert!(promises(late, 1500, &[deadline(MBIT)])[1].is_err());
    let slow = Promise { latency: MS, curve: bent(4 * MBIT, MS, 8 * MBIT) };
    assert_eq!(promises(slow, 1500, &[deadline(MBIT)])[1], Ok(Promise { latency: MS + 3 * MS, curve: line(MBIT) }));
    // A class that holds a scheduler: deadlines may be those of 1500 bytes, 12 ms at 1 Mbit/s.
    let (settings, scheduler) = (deadline(MBIT).settings(), Settings::new());
    let member = Member { parent: None, settings: &settings, leaf: true, packets: true, holds: true };
    let place = Place { promised: slow, rate: slow.rate(), packet: 1500, scheduler: &scheduler, classes: &[member] };
    let promise = (schedule::find("hfsc").unwrap().promises)(&place).swap_remove(0);
    assert_eq!(promise, Ok(Promise { latency: MS + 3 * MS + 12 * MS, curve: line(MBIT) }));
}

/// Random trees, all others backlogged: every burst of a class that comes out of idleness leaves
/// within its promise.
#[test]
fn bursts_leave_within_the_promise() {
    let mut random = Random::new(4);
    let (mut held, mut worst) = (0, 0.0_f64);
    for _ in 0..40 {
        let rate = 10 * MBIT;
        let mut classes: Vec<Class> = Vec::new();
        let mut grow = |parent: u32, part: u64, random: &mut Random| {
            let n = 2 + random.below(3);
            (0..n).for_each(|_| classes.push(share(parent, (part / n).max(1) + random.below(part / n / 4 + 1))));
        };
        grow(0, rate, &mut random);
        if random.chance(60) {
            grow(1, rate / 2, &mut random);
        }
        if random.chance(60) {
            grow(2, rate / 3, &mut random);
        }
        for _ in 0..random.below(3) {
            classes.push(share(0, MBIT).realtime(bent(2 * MBIT, (1 + random.below(9)) * MS, MBIT)));
        }
        let promises = alone(rate, &classes);
        let leaves: Vec<u32> =
            (1..=classes.len() as u32).filter(|id| !classes.iter().any(|class| class.parent == *id)).collect();
        for leaf in &leaves {
            let Ok(promise) = promises[*leaf as usize] else { panic!("{:?}", promises[*leaf as usize]) };
            let mut wire = Wire::new(&link(rate, &classes));
            for other in leaves.iter().filter(|other| *other != leaf) {
                wire.greedy(*other, random.pick(&[&[1500][..], &[1500, 200]]));
            }
            wire.run(random.below(S / 2));
            wire.log = Some(Vec::new());
            let (mut bytes, begun) = (0, wire.now);
            let mut bounds = Vec::new();
            for _ in 0..1 + random.below(12) {
                let size = 60 + random.below(1441) as u32;
                bytes += u64::from(size);
                wire.enqueue(*leaf, size);
                bounds.push(begun + promise.delay(bytes).unwrap());
            }
            wire.run(begun + 20 * S);
            let sent: Vec<_> = wire.log.take().unwrap_or_default();
            let own: Vec<_> = sent.iter().filter(|sent| sent.departure.class == *leaf).collect();
            assert_eq!(own.len(), bounds.len());
            for (sent, bound) in own.iter().zip(bounds) {
                let end = sent.at + u64::from(sent.departure.packet.len) * 8 * S / rate;
                assert!(end <= bound, "leaf {leaf}: {} ns beyond {promise:?}\n{classes:#?}", end - bound);
                worst = worst.max((end - begun) as f64 / (bound - begun) as f64);
                held += 1;
            }
        }
    }
    assert!(held > 1000 && worst > 0.5, "{held} packets, at most {worst} of the bound");
}

/// Half of the bound of a single packet by share is reached: n equal siblings, each with a packet
/// just queued before it.
#[test]
fn a_worst_case_by_share() {
    let rate = 10 * MBIT;
    let classes: Vec<Class> = (0..10).map(|_| share(0, MBIT)).collect();
    let promise = alone(rate, &classes)[10].clone().unwrap();
    let mut wire = Wire::new(&link(rate, &classes));
    (1..10).for_each(|class| wire.greedy(class, &[1500]));
    wire.run(0);
    wire.log = Some(Vec::new());
    wire.enqueue(10, 1500);
    wire.run(S);
    let log = wire.log.take().unwrap_or_default();
    let sent = log.iter().find(|sent| sent.departure.class == 10).unwrap();
    let wait = sent.at + 1_200_000;
    let bound = promise.delay(1500).unwrap();
    assert!(wait <= bound && wait >= bound / 2, "{wait} of {bound}");
}
