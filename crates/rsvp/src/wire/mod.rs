//! RSVP messages on the wire (RFC 2205 3.1 and appendix A, RFC 2210 3): [`decode()`] and
//! [`encode()`].
//!
//! Reading is strict. Every length is checked before it is used, an error says which byte it is
//! about, and what follows the message in its datagram is an error too. Writing is canonical:
//! objects in the order of RFC 2205, reserved fields zero.

mod address;
mod adspec;
mod bounce;
mod bytes;
mod codes;
mod decode;
mod encode;
mod error;
mod header;
mod intserv;
mod message;
mod object;

pub use address::{ErrorSpec, Hop, IN_PLACE, NOT_GUILTY, Select, Sender, Session, is_unicast};
pub use adspec::{Adspec, HopOffer, LATENCY_UNKNOWN, Parameter, Service, parameter};
pub use bounce::{bounce, peek_hop, peek_session};
pub use codes::{admission, code, name as error_name, traffic};
pub use decode::decode;
pub use encode::{TooLong, encode};
pub use error::{Fault, WireError};
pub use header::{HEADER, Header, checksum_holds, kind, set_checksum};
pub use intserv::{Flowspec, Tspec, service};
pub use message::{
    Challenge, Decoded, Flow, Message, Path, PathErr, PathTear, Resv, ResvConf, ResvErr, ResvTear, Style,
    UnknownObject, kind_name,
};
pub use object::{MOST_OBJECTS, RawObject, Unknown, class};

pub(crate) use bytes::{Reader, Writer};
