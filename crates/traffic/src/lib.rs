//! Load and latency with the kernel's own TCP and UDP, for `altq lab` in namespaces and for
//! `altq traffic` between hosts.
//!
//! ```text
//!  generators   bulk      TCP, as much as it takes
//!               request   TCP, one question after the other
//!               udp       datagrams with a schedule
//!               echo      UDP questions, one by one or by the beat
//!               connect   short connections
//!               acceptor   takes many connections on one thread
//!  measuring    meter     what a flow has done
//!               sequence  numbers of datagrams: late, twice
//!               clock     lateness, and when it is too much
//!  plumbing     run       what a flow's threads share
//!               socket    opened, tuned, marked
//!               throttle  a rate for several
//! ```

#![forbid(unsafe_code)]

pub mod acceptor;
pub mod bulk;
pub mod client;
pub mod clock;
pub mod connect;
pub mod echo;
mod error;
pub mod flood;
pub mod meter;
pub mod plan;
pub mod plan_file;
pub mod protocol;
pub mod report;
pub mod request;
pub mod result;
pub mod run;
pub mod sequence;
pub mod server;
pub mod socket;
pub mod throttle;
pub mod token;
pub mod udp;

pub use error::{Doing, Error, Refusal};
