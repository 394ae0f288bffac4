//! Records what classes sent, and prepares it for display: the part of `altq top` without I/O.
//!
//! ```text
//!              the loop                        |  another thread, once a second
//!                                              |
//!  packets ──► departures (a class's flows) ───┼─► summary ─┐
//!              promise (how long they wait) ───┼────────────┤
//!              histograms of the engine ───────┼────────────┼─► monitor ─► frame ─► view, document
//!              counters of the engine ─────────┼────────────┘      │
//!                                              |                history
//!  keys of an interface or a file ─────────────┼─► watch: top hosts and protocols
//! ```
//!
//! There is no clock here, no I/O and no thread. The time is an argument, in nanoseconds. The loop
//! holds only [`Departures`] and [`Backlog`](promise::Backlog)s: a packet costs one hash and one
//! lookup there, and nothing is allocated after the first packets. Everything else works on what
//! the loop hands over once a second.
//!
//! Memory is bounded: flows by 64 counters for each class ([`space_saving`]), delays and flows of
//! the last minute by [`Limits`], the history by its bytes ([`history`]).
//!
//! The figures of a frame add up. A class's figures include those of the classes below it. The
//! bytes lent equal the bytes borrowed ([`ledger`]). The listed flows and "the rest" add up to what
//! a class sent.

#![deny(unsafe_code)]

pub mod amount;
mod by_class;
pub mod departures;
pub mod document;
pub mod flow;
pub mod fold;
pub mod frame;
pub mod history;
pub mod ledger;
pub mod monitor;
mod past;
pub mod prefix;
pub mod promise;
pub mod recorded;
pub mod records;
pub mod slice;
mod slices;
pub mod space_saving;
pub mod steps;
pub mod summary;
pub mod tree;
pub mod view;
pub mod waited;
pub mod watch;

pub use amount::Amount;
pub use departures::{Departures, FlowCounters};
pub use flow::FlowKey;
pub use frame::Frame;
pub use history::History;
pub use monitor::{Limits, Monitor, Second};
pub use steps::Window;
pub use summary::Summary;
pub use tree::{Class, Tree};
pub use view::View;
pub use watch::Watch;
