//! The RSVP daemon: `altq rsvpd` (docs/rsvp.md).
//!
//! ```text
//! raw sockets of the listed interfaces ─► packet ─┐             ┌─► packet ─► raw sockets
//! routes and addresses, by rtnetlink ─────────────┼─► Node ─────┤
//! clients: `altq rsvp` ───────────────────────────┘  (altq-rsvp)└─► reservations, by `altq run`
//! ```
//!
//! What RSVP is, the crate `altq-rsvp` knows; which classes there are and what fits, the altq that
//! runs. [`Daemon`] is the loop between them, in one thread. [`Settings`] is its configuration
//! file, [`packet`] the IP packets around messages. All calls to the kernel that need `unsafe` code
//! are in `altq-dataplane`.

#![forbid(unsafe_code)]

pub mod clients;
mod daemon;
pub mod document;
mod log;
pub mod packet;
mod ports;
mod receivers;
pub mod request;
mod reserve;
pub mod settings;

pub use clients::Clients;
pub use daemon::Daemon;
pub use log::Say;
pub use settings::Settings;
