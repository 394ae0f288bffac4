//! The engine in virtual time: nothing here reads a clock, so a second of a link takes as long as its packets take to count.
//!
//! - [`replay`]: one link, packets already classified, from a list (`altq replay`).
//!
//! Events at one instant have one order everywhere: transmission complete, then timers, then arrivals, then the order in which
//! they were made (published-models.md 1).

#![forbid(unsafe_code)]

pub mod literal;
mod nearest;
pub mod replay;
pub mod report;
pub mod stats;
pub mod wire;
