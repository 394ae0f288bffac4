//! Reservations: classes that are asked for, changed and given up while a link runs.
//!
//! A reservation is a rate and a burst for some flows, kept for as long as its owner refreshes it.
//! Its service is controlled load (RFC 2211): its packets wait as little as on an unloaded link,
//! whatever others send. It has a class of its own below the policy's class for reservations: the
//! one with the word `reservations` (in altq.conf: `admission cntlload`).
//!
//! ```text
//! message   requests and answers, in the form of the control socket
//! flow      which packets: addresses, ports, protocol
//! tspec     how much: rate, burst, packet sizes; and what that costs on the link
//! place     the policy's class for reservations, and its limits
//! room      admission: what is reserved, what still fits, and what is in the way
//! table     the reservations, their keys, owners and deadlines
//! handle    carries out requests
//! install   makes changes in the engine, all or none
//! events    what happened, for clients that watch
//! state     what survives a restart
//! ```
//!
//! Nothing here reads a clock or does I/O: the caller gives the time, in nanoseconds from any
//! origin, and makes the changes in its engine.
//!
//! The time of a request grows with the logarithm of the number of reservations, and with the
//! number of its own flows. Admission works on sums; on a link with cells or blocks (ATM, PTM) it
//! also tries each size that a packet may have. But if flows change, the engine gets all its rules
//! anew, which takes time linear in all rules. For reservations that expire or are restored
//! together this is done once.

#![forbid(unsafe_code)]

mod events;
mod flow;
mod handle;
mod install;
mod message;
mod place;
mod room;
mod state;
mod table;
mod tspec;

pub use events::{Event, Happened};
pub use flow::Flow;
pub use install::Apply;
pub use message::{
    Answer, Excess, Framed, List, Listed, MOST_BYTES, MOST_FLOWS, MOST_NAME, Malformed, OnWire, Op, Reply, Request,
    Service,
};
pub use place::Place;
pub use room::Refusal;
pub use state::{FORM, Restored, Saved, State};
pub use table::{Reservation, Table};
pub use tspec::{Cost, Tspec};
