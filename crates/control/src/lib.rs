//! How other programs talk to altq while it runs.
//!
//! docs/control.md describes the protocol for writers of clients: a Unix socket, and a line of JSON
//! for each request and for each reply. [`mod@line`] cuts what arrives into lines, [`request`]
//! reads them, [`reply`] writes answers, and [`rights`] decides who may ask for what. These have no
//! clock and do no I/O. [`server`] answers many clients in one thread with bounded memory;
//! [`client`] is the client's end.
//!
//! [`roster`] keeps the subscribers and the reservations of a running policy: classes that come,
//! change and go while packets are queued. It returns changes, which its caller makes in the links.
//! [`change`] keeps which policy runs, and which one comes back if nobody confirms the change;
//! [`schedule`] decides which one a time of the week asks for. [`runs`] describes what runs, for
//! the command that compares it with a policy. [`stat`] is the document of what classes have done.

#![forbid(unsafe_code)]

pub mod change;
pub mod client;
pub mod document;
pub mod fault;
pub mod journal;
pub mod line;
pub mod prefix;
pub mod reply;
pub mod request;
pub mod reservations;
pub mod rights;
pub mod roster;
pub mod runs;
pub mod schedule;
pub mod server;
pub mod stat;
pub mod supervision;
pub mod tap;
mod words;

pub use fault::{Code, Fault};
pub use request::{Asked, Request};

/// The JSON Schemas of a reply (`altq.control/1`) and of an event of reservations
/// (`altq.reserve-event/1`).
#[cfg(feature = "schema")]
pub fn schemas(generator: &schemars::generate::SchemaGenerator) -> [schemars::Schema; 2] {
    let generator = || generator.clone();
    [generator().into_root_schema_for::<reply::Whole>(), generator().into_root_schema_for::<reservations::Told<'_>>()]
}
