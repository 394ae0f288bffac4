//! The engine in virtual time. Nothing here reads a clock, so the time that a run takes depends
//! only on the number of packets, not on the time that is simulated.
//!
//! - [`replay`]: a list of packets on one link (`altq replay`).
//! - [`sim`]: cases with hosts, links, sources and captures (`altq sim`).
//! - [`pool`]: many cases at once on several processors (`altq experiments`).
//! - [`tcp`]: the state machines at the ends of a TCP connection.
//! - [`wire`], [`rings`]: the transmitters that an engine fills: a wire, and the rings of a card.
//!
//! Events at one instant have one order everywhere: transmission complete, then timers, then
//! arrivals, then the order in which they were made (docs/reference/published-models.md 1).

#![forbid(unsafe_code)]

pub mod pool;
pub mod replay;
pub mod rings;
pub mod sim;
pub mod tcp;
pub mod wire;
