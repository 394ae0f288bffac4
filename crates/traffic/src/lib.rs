//! Load and latency with the kernel's own TCP and UDP, for `altq lab` in namespaces and for
//! `altq traffic` between hosts.
//!
//! ```text
//!  generators   bulk       TCP at full speed
//!               request    requests and responses over TCP
//!               udp        datagrams on a schedule
//!               echo       requests and responses over UDP
//!               flood      more datagrams than a host can forward
//!               connect    short TCP connections, one after another
//!               acceptor   accepts many connections on one thread
//!  measuring    meter      a flow's counters and times
//!               sequence   datagrams that come late or twice
//!               clock      how late threads run, and the bound for it
//!  shared       local      tells a program on the queue's host whether its packets were dropped
//!               run        the start of a run, and what a flow's threads share
//!               socket     opens and tunes sockets
//!               throttle   a rate limit for several threads
//!  two hosts    client, server, protocol, token
//!               plan       flows as client and server exchange them
//!               plan_file  flows as the user writes them
//!               report     a flow's figures from one end
//!               result     the result that `altq traffic` writes
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
pub mod local;
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
