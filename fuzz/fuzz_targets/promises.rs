//! Any bytes as a policy, its traffic and changes: what `altq check` promises holds. The search
//! that climbs towards a bound is `cargo run --release -p altq-engine --example adversary`.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/engine/tests/support/adversary/mod.rs"]
mod adversary;

use adversary::random::Random;
use adversary::{all, minimise, one, schedulers};

fuzz_target!(|bytes: &[u8]| {
    let random = Random::from_bytes(bytes);
    let names = schedulers(&random, &all(), None, 3);
    if let Some(violation) = one(&random, &names) {
        let small = minimise::minimise(violation);
        panic!("{:?}\n{}\n{}", small.path, small.policy_text(), small.trace());
    }
});
