//! All tests of this crate as one program, because each program of its own would have to be linked.
//! `cargo test -p altq-reserve --test all admission::` runs those of `admission.rs`.

mod admission;
mod random;
mod requests;
mod restart;
mod service;
mod support;
