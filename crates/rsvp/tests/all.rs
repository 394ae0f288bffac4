//! All tests of this crate as one program, because each program of its own would have to be linked.
//! `cargo test -p altq-rsvp --test all chain::` runs those of `chain.rs`.

mod chain;
mod golden;
mod integrity;
mod objects;
mod properties;
mod proxies;
mod refusals;
mod router;
mod support;
mod wire;
