//! TCP without a clock, without I/O and without payload: what both ends decide, segment by segment.
//!
//! A [`Socket`] is one end of a connection. Whoever owns it hands it the segments that arrive
//! ([`Socket::received`]), calls it when its time has come ([`Socket::timeout`],
//! [`Socket::poll_timeout`]), and after each of these takes what it wants to send
//! ([`Socket::poll_transmit`], until `None`). Bytes are counted, not carried. Sequence numbers are
//! 64 bits wide and begin at 0 with the SYN, so byte n of the stream has number n + 1 and nothing
//! ever wraps.
//!
//! - [`config`]: what an end is like; presets for a Linux of today and a BSD of 1997.
//! - `sender`, `recovery`: the sending half (RFC 5681, 6582, 6675, 6937, 8985, 5682), `scoreboard`:
//!   what is on its way.
//! - `receiver`: reassembly, acknowledgements, SACK blocks (RFC 2018, 2883), window, ECN's echo
//!   (RFC 3168).
//! - `congestion`: Tahoe, Reno, NewReno, CUBIC (RFC 9438), slow start's end by delay (RFC 9406),
//!   BBR; `rate`, `pacer`: what BBR measures, and when it sends.
//! - `rto`: the retransmission timeout (RFC 6298).

pub mod config;
mod congestion;
mod pacer;
mod prr;
mod rack;
mod rate;
mod receiver;
mod recovery;
mod rto;
mod scoreboard;
mod segment;
mod sender;
mod socket;

pub use config::{Algorithm, Config, DelayedAck, HyStart, RtoFloor};
pub use segment::{Flags, Options, Sack, Segment};
pub use sender::Counters;
pub use socket::Socket;

#[cfg(test)]
mod tests;
