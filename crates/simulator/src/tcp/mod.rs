//! TCP without a clock, without I/O and without payload: the state machine of each end of a
//! connection.
//!
//! A [`Socket`] is one end. Its owner hands it the segments that arrive ([`Socket::received`]), and
//! calls [`Socket::timeout`] at the time that [`Socket::poll_timeout`] names. After each of these
//! the owner takes the segments that the end sends ([`Socket::poll_transmit`], until `None`). Bytes
//! are counted, not carried. Sequence numbers are 64 bits wide and begin at 0 with the SYN, so byte
//! n of the stream has number n + 1, and numbers never wrap.
//!
//! - [`config`]: the settings of an end, with presets for a Linux of today and a BSD of 1997.
//! - `sender`, `recovery`: the sending half (RFC 5681, 6582, 6675, 6937, 8985, 5682); `scoreboard`:
//!   the segments in flight.
//! - `receiver`: reassembly, acknowledgements, SACK blocks (RFC 2018, 2883), the window, and the
//!   echo of ECN marks (RFC 3168).
//! - `congestion`: Tahoe, Reno, NewReno, CUBIC (RFC 9438), HyStart (RFC 9406) and BBR; `rate` and
//!   `pacer`: the delivery rate and the pacing that BBR needs.
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
