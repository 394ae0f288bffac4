//! Authentication between neighbours (RFC 2747): the INTEGRITY object with a digest for each key,
//! the window of sequence numbers, and the handshake after a restart.
//!
//! A digest is checked before any other object is parsed: what is forged costs one HMAC, and
//! nothing behind it is looked at.

mod digest;
mod peers;
mod window;

pub use digest::{Algorithm, IntegrityError, Key, Signature, sign, signature, verify};
pub use peers::{Peers, Verdict};
pub use window::{Sequence, Window};
