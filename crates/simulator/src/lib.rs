//! The engine in virtual time: nothing here reads a clock, so a second of a link takes as long as
//! its packets take to count.
//!
//! - [`replay`]: one link, packets already classified, from a list (`altq replay`).
//! - [`sim`]: hosts, links, sources and captures (`altq sim`).
//! - [`gaps`]: gaps between the packets of a flow.
//! - [`case`]: case files, for virtual time and for namespaces; [`result`]: what came out;
//!   [`html`]: pages of it.
//! - [`tcp`]: both ends of a connection.
//! - [`case`]: case files, for virtual time and for namespaces; [`result`]: what came out.
//!
//! Events at one instant have one order everywhere: transmission complete, then timers, then
//! arrivals, then the order in which they were made (published-models.md 1).

#![forbid(unsafe_code)]

pub mod case;
pub mod gaps;
pub mod html;
pub mod literal;
pub mod nearest;
pub mod plot;
pub mod replay;
pub mod report;
pub mod result;
pub mod rings;
pub mod sim;
pub mod stat;
pub mod stats;
pub mod table;
pub mod tcp;
pub mod wire;
