//! Reservations: classes that are asked for, changed and given up while a link runs.
//!
//! A reservation is a rate and a burst for some flows, kept for as long as its owner refreshes it.
//! Its service is controlled load (RFC 2211): its packets wait as little as on an unloaded link,
//! whatever others send. It has a class of its own below the class of the policy that has the word
//! `reservations` (in altq.conf: `admission cntlload`).
//!
//! ```text
//! message   requests and answers, as they stand on the control socket
//! flow      which packets: addresses, ports, protocol
//! tspec     how much: rate, burst, packet sizes; and what that costs on the link
//! place     what the policy says of its class for reservations
//! room      admission: what is taken, what fits, and what is in the way
//! table     the reservations, their keys, owners and deadlines
//! handle    what a request does to them
//! install   the changes that the engine is given
//! events    what happened, for those who watch
//! state     what survives a restart
//! ```
//!
//! Nothing here reads a clock or does I/O: the caller gives the time, in nanoseconds from any
//! origin, and makes the changes in its engine.
//!
//! Time: a request takes time that grows with the logarithm of the number of reservations, and with
//! its own flows; admission looks at sums, and on a link of cells or blocks (ATM, PTM) at each size
//! that a packet may have. But where flows come, change or go, the engine gets all
//! its rules anew, and that is linear in all rules. Reservations that expire together, or are
//! restored together, cost that once.

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
    Answer, Excess, List, Listed, MOST_BYTES, MOST_FLOWS, MOST_NAME, Malformed, Op, Reply, Request, Service,
};
pub use place::Place;
pub use room::Refusal;
pub use state::{FORM, Restored, Saved, State};
pub use table::{Reservation, Table};
pub use tspec::{Cost, Tspec};
