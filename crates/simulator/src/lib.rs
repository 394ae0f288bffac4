//! The engine in virtual time: nothing here reads a clock, so a second of a link takes as long as
//! its packets take to count.
//!
//! - [`replay`]: one link, packets already classified, from a list (`altq replay`).
//! - [`sim`]: hosts, links, sources and captures (`altq sim`).
//! - [`pool`]: many cases, side by side over the processors (`altq experiments`).
//! - [`tcp`]: both ends of a connection.
//! - [`wire`], [`rings`]: what a packet leaves by.
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
