//! HFSC: what `check` says that each class has while all have packets is what it gets.

use crate::support;
use crate::support::hfsc;

use altq_engine::schedule::find;
use altq_engine::schedule::promise::{Member, Place, Promise};
use altq_engine::settings::Settings;
use altq_engine::units::Rate;
use hfsc::{Class, MBIT, line, link, share};
use support::{S, Wire};

/// What the registry's entry says of classes on a link of 100 Mbit/s; the first is number 1.
fn said(classes: &[Class]) -> Option<Vec<u64>> {
    let settings: Vec<Settings> = classes.iter().map(Class::settings).collect();
    let member = |(at, class): (usize, &Class)| {
        let leaf = classes.iter().all(|other| other.parent as usize != at + 1);
        let parent = (class.parent as usize).checked_sub(1);
        Member { parent, settings: &settings[at], leaf, packets: leaf, holds: false }
    };
    let members: Vec<Member<'_>> = classes.iter().enumerate().map(member).collect();
    let (rate, none) = (Rate::bit_s(100 * MBIT), Settings::new());
    let place = Place { promised: Promise::new(0, rate), rate, packet: 1500, scheduler: &none, classes: &members };
    let rates = find("hfsc").unwrap().long_run.unwrap()(&place)?;
    Some(rates.into_iter().map(Rate::as_bit_s).collect())
}

fn owed(parent: u32, rate: u64) -> Class {
    Class { parent, realtime: Some(line(rate)), ..Class::default() }
}

#[test]
fn by_hand() {
    let m = |rates: &[u64]| Some(rates.iter().map(|rate| rate * MBIT).collect::<Vec<_>>());
    // Deadlines first; the rest is shared.
    assert_eq!(said(&[owed(0, 80 * MBIT), share(0, 100 * MBIT)]), m(&[80, 20]));
    // What goes by deadline counts in the share.
    let voice = share(0, 20 * MBIT).realtime(line(20 * MBIT));
    assert_eq!(said(&[voice, share(0, 80 * MBIT)]), m(&[20, 80]));
    // 60 go by deadline; of the 40 that are left 3 parts of 5 and 2 parts of 5.
    let office = [owed(0, 60 * MBIT), share(0, 50 * MBIT), share(2, 30 * MBIT), share(2, 20 * MBIT)];
    assert_eq!(said(&office), m(&[60, 40, 24, 16]));
    // A class below takes its parent's part from its sibling, and from nobody else.
    let deep =
        [share(0, 50 * MBIT), share(0, 50 * MBIT), share(1, 10 * MBIT).realtime(line(40 * MBIT)), share(1, 40 * MBIT)];
    assert_eq!(said(&deep), m(&[50, 50, 40, 10]));
    // More than the parent's part.
    let deep =
        [share(0, 50 * MBIT), share(0, 50 * MBIT), share(1, 10 * MBIT).realtime(line(70 * MBIT)), share(1, 40 * MBIT)];
    assert_eq!(said(&deep), m(&[70, 30, 70, 0]));
    assert_eq!(said(&[owed(0, 60 * MBIT), owed(0, 41 * MBIT)]), None, "nobody can say");
    assert_eq!(said(&[]), Some(Vec::new()));
}

/// Random trees in which deadlines and shares ask for more together than there is.
#[test]
fn classes_get_what_is_said() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |most: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % most
    };
    let mut less = 0;
    for round in 0..60 {
        // Two or three tops, with two or three leaves each below some of them.
        let (mut classes, mut leaves) = (Vec::new(), Vec::new());
        let tops = 2 + random(2);
        for _ in 0..tops {
            classes.push(share(0, (5 + random(90 / tops)) * MBIT));
        }
        let mut owing = 90 * MBIT;
        for top in 0..tops as u32 {
            let inner = random(2) == 0;
            let below = if inner { 2 + random(2) } else { 0 };
            let whole = classes[top as usize].share.unwrap().then.as_bit_s();
            for _ in 0..below {
                classes.push(share(top + 1, whole / below - random(whole / below / 2)));
                leaves.push(classes.len() as u32);
            }
            if !inner {
                leaves.push(top + 1);
            }
        }
        for leaf in &leaves {
            let rate = random(50) * MBIT;
            if rate > 0 && rate <= owing {
                owing -= rate;
                let class = &mut classes[*leaf as usize - 1];
                *class = class.realtime(line(rate));
                // Some go by deadline only.
                if random(4) == 0 && class.parent == 0 {
                    class.share = None;
                }
            }
        }
        // Where nobody shares, the link is not always busy.
        if classes.iter().all(|class| class.parent != 0 || class.share.is_none()) {
            continue;
        }
        let said = said(&classes).unwrap();
        let mut wire = Wire::new(&link(100 * MBIT, &classes));
        for leaf in &leaves {
            wire.greedy(*leaf, &[1500]);
        }
        wire.run(S);
        let got = wire.rates(5 * S);
        for leaf in &leaves {
            let (has, got) = (said[*leaf as usize - 1] as f64, got[*leaf as usize]);
            assert!((got - has).abs() <= 60_000.0, "round {round}: {leaf} got {got}, said {has}\n{classes:?}");
            let class = &classes[*leaf as usize - 1];
            less += u32::from(class.share.is_some_and(|share| has + 1e6 < share.then.as_bit_s() as f64));
        }
    }
    assert!(less > 20, "{less} classes had less than their words say");
}
