//! What `altq rsvp` asks the daemon: a line of JSON each, in the form of altq's control socket
//! (docs/control.md).

use std::net::SocketAddr;

use altq_control::Fault;
use altq_control::rights::Right;
use altq_reserve::Tspec as Asked;
use altq_rsvp::wire::{Sender, Session, Style, Tspec};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// M where nobody says it: what Ethernet carries.
const MAX_PACKET: u32 = 1500;

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// `rsvp.path`: all path state.
    Paths,
    /// `rsvp.resv`: all reservation requests.
    Reservations,
    /// `rsvp.neighbours`: who was heard, and counters.
    Neighbours,
    /// `rsvp.announce`: a sender, or other traffic of it.
    Announce(Session, Sender, Tspec),
    /// `rsvp.renounce`: a sender goes.
    Renounce(Session, Sender),
    /// `rsvp.reserve`: a receiver's reservation for senders, and whether it wants a confirmation.
    Reserve {
        /// The session.
        session: Session,
        /// FF or SE.
        style: Style,
        /// The senders.
        senders: Vec<Sender>,
        /// How much.
        tspec: Tspec,
    },
    /// `rsvp.release`: a receiver's reservations go.
    Release(Session),
}

impl Request {
    /// What it needs.
    pub fn needs(&self) -> Right {
        match self {
            Request::Paths | Request::Reservations | Request::Neighbours => Right::Read,
            _ => Right::Write,
        }
    }
}

/// The fields of a request about a sender or a receiver, for a client: the name and the client's
/// number come beside them.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Fields {
    /// The session's address and port.
    pub to: Option<SocketAddr>,
    /// The IP protocol.
    pub proto: Option<u8>,
    /// The senders' addresses and ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<SocketAddr>,
    /// The traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tspec: Option<Asked>,
    /// Whether the senders share one reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
}

/// A request as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    id: Option<u64>,
    op: String,
    to: Option<SocketAddr>,
    proto: Option<u8>,
    #[serde(default)]
    from: Vec<SocketAddr>,
    tspec: Option<Asked>,
    shared: Option<bool>,
}

/// Reads a request from a line, with the number that its client gave it.
///
/// # Errors
/// What is wrong with it, and its number if that could be read.
pub fn read(line: &[u8]) -> Result<(Option<u64>, Request), (Option<u64>, Fault)> {
    let malformed = |error: serde_json::Error| (None, Fault::usage(format!("this is no request: {error}")));
    let written: Written = serde_json::from_slice(line).map_err(malformed)?;
    let id = written.id;
    written.request().map(|request| (id, request)).map_err(|fault| (id, fault))
}

impl Written {
    fn request(self) -> Result<Request, Fault> {
        let bare = self.to.is_none() && self.proto.is_none() && self.from.is_empty() && self.tspec.is_none();
        match self.op.as_str() {
            "rsvp.path" | "rsvp.resv" | "rsvp.neighbours" if !bare || self.shared.is_some() => {
                Err(Fault::usage(format!("`{}` takes no fields", self.op)))
            }
            "rsvp.path" => Ok(Request::Paths),
            "rsvp.resv" => Ok(Request::Reservations),
            "rsvp.neighbours" => Ok(Request::Neighbours),
            "rsvp.announce" => {
                self.allow(true, false)?;
                Ok(Request::Announce(self.session()?, self.sender()?, self.traffic()?))
            }
            "rsvp.renounce" => {
                self.allow(false, false)?;
                Ok(Request::Renounce(self.session()?, self.sender()?))
            }
            "rsvp.reserve" => {
                let style = if self.shared == Some(true) { Style::Shared } else { Style::Fixed };
                if self.from.is_empty() {
                    return Err(Fault::usage("`from` is missing: at least one sender"));
                }
                let senders = self.from.iter().map(|from| Sender::new(from.ip(), from.port())).collect();
                Ok(Request::Reserve { session: self.session()?, style, senders, tspec: self.traffic()? })
            }
            "rsvp.release" => {
                self.allow(false, false)?;
                if !self.from.is_empty() {
                    return Err(Fault::usage("`rsvp.release` is about all senders of a session"));
                }
                Ok(Request::Release(self.session()?))
            }
            _ => {
                let fault = Fault::usage("the RSVP daemon has no such request");
                Err(fault.help("docs/rsvp.md has all: rsvp.path, rsvp.resv, rsvp.neighbours, rsvp.announce and others"))
            }
        }
    }

    fn allow(&self, tspec: bool, shared: bool) -> Result<(), Fault> {
        let wrong = (self.tspec.is_some() && !tspec) || (self.shared.is_some() && !shared);
        if wrong { Err(Fault::usage(format!("`{}` takes no such field", self.op))) } else { Ok(()) }
    }

    fn session(&self) -> Result<Session, Fault> {
        let to = self.to.ok_or_else(|| Fault::usage("`to` is missing: address and port of the receiver"))?;
        let protocol = self.proto.ok_or_else(|| Fault::usage("`proto` is missing"))?;
        Ok(Session { address: to.ip(), protocol, port: to.port() })
    }

    fn sender(&self) -> Result<Sender, Fault> {
        match self.from[..] {
            [from] => Ok(Sender::new(from.ip(), from.port())),
            _ => Err(Fault::usage("`from` has one sender: its address and port")),
        }
    }

    fn traffic(&self) -> Result<Tspec, Fault> {
        let asked = self.tspec.ok_or_else(|| Fault::usage("`tspec` is missing"))?;
        asked.check(MAX_PACKET).map_err(Fault::usage)?;
        // RSVP has 32-bit floats of bytes and bytes per second.
        let bytes = |bit_s: u64| (bit_s as f64 / 8.0) as f32;
        Ok(Tspec {
            rate: bytes(asked.rate_bit_s),
            burst: asked.burst_bytes as f32,
            peak: asked.peak_bit_s.map_or(f32::INFINITY, bytes),
            min_unit: asked.least(MAX_PACKET),
            max_packet: asked.largest(MAX_PACKET),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TSPEC: &str = r#""tspec":{"rate_bit_s":500000,"burst_bytes":10000,"min_unit_bytes":128}"#;

    #[test]
    fn requests_are_read() {
        let session = Session { address: [10, 0, 2, 2].into(), protocol: 17, port: 5004 };
        let sender = Sender::new([10, 0, 1, 1].into(), 4000);
        let tspec = Tspec { rate: 62_500.0, burst: 10_000.0, peak: f32::INFINITY, min_unit: 128, max_packet: 1500 };
        let of = r#""to":"10.0.2.2:5004","proto":17"#;
        let from = r#""from":["10.0.1.1:4000"]"#;
        for (text, expected) in [
            (r#"{"v":1,"id":3,"op":"rsvp.path"}"#.to_owned(), Request::Paths),
            (
                format!(r#"{{"id":3,"op":"rsvp.announce",{of},{from},{TSPEC}}}"#),
                Request::Announce(session, sender, tspec),
            ),
            (format!(r#"{{"id":3,"op":"rsvp.renounce",{of},{from}}}"#), Request::Renounce(session, sender)),
            (
                format!(r#"{{"id":3,"op":"rsvp.reserve",{of},{from},{TSPEC},"shared":true}}"#),
                Request::Reserve { session, style: Style::Shared, senders: vec![sender], tspec },
            ),
            (format!(r#"{{"id":3,"op":"rsvp.release",{of}}}"#), Request::Release(session)),
        ] {
            assert_eq!(read(text.as_bytes()), Ok((Some(3), expected)), "{text}");
        }
    }

    #[test]
    fn what_is_no_request_says_why() {
        for (text, why) in [
            ("{", "no request"),
            (r#"{"id":1,"op":"status"}"#, "no such request"),
            (r#"{"op":"rsvp.path","proto":17}"#, "takes no fields"),
            (r#"{"op":"rsvp.release","proto":17}"#, "`to` is missing"),
            (r#"{"op":"rsvp.release","to":"10.0.0.1:1","proto":17,"shared":true}"#, "no such field"),
            (r#"{"op":"rsvp.renounce","to":"10.0.0.1:1","proto":17}"#, "one sender"),
            (r#"{"op":"rsvp.announce","to":"10.0.0.1:1","proto":17,"from":["10.0.0.2:1"]}"#, "`tspec` is missing"),
            (r#"{"op":"rsvp.path","colour":1}"#, "unknown field"),
        ] {
            let (_, fault) = read(text.as_bytes()).expect_err(text);
            assert!(fault.to_string().contains(why), "{text}: {fault}");
        }
        let none = format!(r#"{{"op":"rsvp.announce","to":"10.0.0.1:1","proto":17,"from":["10.0.0.2:1"],{TSPEC}}}"#);
        let none = none.replace("500000", "0");
        assert!(read(none.as_bytes()).is_err());
    }
}
