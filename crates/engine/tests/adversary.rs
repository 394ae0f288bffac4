//! The adversary of `support/adversary` for some seconds: no promise is broken, a change that
//! changes nothing changes no departure. Every run has another seed.
//!
//! `ALTQ_ADVERSARY_SEED=N cargo test -p altq-engine --test all adversary` runs one again;
//! `cargo run --release -p altq-engine --example adversary -- --minutes 60` looks for longer.

use crate::support::adversary;

use std::time::{Duration, Instant, SystemTime};

use adversary::random::Random;
use adversary::{Found, minimise, schedulers, search};

/// The schedulers that are searched, alone and in one another.
const SEARCHED: &[&str] = &["cbq", "drr", "fairq", "hfsc", "htb", "priq", "wfq"];

#[test]
fn no_promise_is_broken() {
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let seed = std::env::var("ALTQ_ADVERSARY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(now);
    println!("seed {seed}; again: ALTQ_ADVERSARY_SEED={seed} cargo test -p altq-engine --test all adversary");
    let random = Random::new(seed);
    let begin = Instant::now();
    let mut found = Found::default();
    // A number of searches that takes some seconds, and no longer on a busy machine.
    for turn in 0..60 {
        if begin.elapsed() > Duration::from_secs(20) {
            break;
        }
        let about = SEARCHED[turn % SEARCHED.len()];
        found.add(search(&random, &schedulers(&random, SEARCHED, Some(about), 3), &[]));
        if let Some(violation) = found.violations.pop() {
            let small = minimise::minimise(violation);
            panic!("seed {seed}: {:?}\n{}\n{}", small.path, small.policy_text(), small.trace());
        }
    }
    println!("{} pairs; nearest: {:.3?}", found.pairs, found.nearest);
    assert!(found.pairs > 200, "{} pairs", found.pairs);
}
