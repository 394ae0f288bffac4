//! All tests of this crate as one program, because each program of its own would have to be linked.
//! `cargo test -p altq-config --test all altq_conf::` runs those of `altq_conf.rs`.

mod altq_conf;
mod altq_conf_conditioners;
mod altq_conf_disciplines;
mod bad_input;
mod ceilings;
mod changes;
mod convert;
mod docs;
mod edits;
mod hfsc;
mod htb;
mod limits;
mod meters;
mod mutations;
mod native;
mod promise;
mod promise_words;
mod reached;
mod reservations;
