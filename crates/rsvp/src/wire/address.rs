//! Objects that hold addresses: SESSION, RSVP_HOP, ERROR_SPEC, SCOPE, FILTER_SPEC, SENDER_TEMPLATE
//! and RESV_CONFIRM (RFC 2205 A.1 to A.14). C-type 1 is IPv4, C-type 2 is IPv6.

use std::fmt;
use std::net::IpAddr;

use super::bytes::{Reader, Writer};
use super::error::{Fault, WireError};
use super::object::{Object, class};

/// What a reservation is for: packets of a protocol to a destination (RFC 2205 1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session {
    /// The destination.
    pub address: IpAddr,
    /// The IP protocol.
    pub protocol: u8,
    /// The destination port; 0 if the protocol has none, or if every port is meant.
    pub port: u16,
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.address, self.protocol, self.port)
    }
}

/// The RSVP node that a message comes from (RFC 2205 A.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// Its address.
    pub address: IpAddr,
    /// The logical interface handle: the neighbour's own number, which is returned to it unchanged.
    pub handle: u32,
}

/// What tells a sender's packets from those of another sender of the same host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Select {
    /// The source port; 0 if there is none, or if every port is meant.
    Port(u16),
    /// The flow label of IPv6, 20 bits (RFC 2205 A.9, C-type 3).
    Label(u32),
}

/// A sender: SENDER_TEMPLATE and FILTER_SPEC have the same format (RFC 2205 A.9, A.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sender {
    /// The source address.
    pub address: IpAddr,
    /// Port or flow label.
    pub select: Select,
}

impl Sender {
    /// The sender with this address and port.
    pub fn new(address: IpAddr, port: u16) -> Sender {
        Sender { address, select: Select::Port(port) }
    }

    /// The source port, if packets are told apart by it.
    pub fn port(&self) -> Option<u16> {
        match self.select {
            Select::Port(port) => Some(port),
            Select::Label(_) => None,
        }
    }
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.select {
            Select::Port(port) => write!(f, "{}/{port}", self.address),
            Select::Label(label) => write!(f, "{}/label {label}", self.address),
        }
    }
}

/// An error or a confirmation (RFC 2205 A.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorSpec {
    /// The node that found the error.
    pub node: IpAddr,
    /// [`IN_PLACE`] and [`NOT_GUILTY`].
    pub flags: u8,
    /// The error code (RFC 2205 B).
    pub code: u8,
    /// The error value, whose meaning depends on the code.
    pub value: u16,
}

/// Flag of ERROR_SPEC: a reservation was there before, and still is.
pub const IN_PLACE: u8 = 1;

/// Flag of ERROR_SPEC, in the API only: the receiver that is told did not cause the error.
pub const NOT_GUILTY: u8 = 2;

/// The C-type of an address.
fn family(address: IpAddr) -> u8 {
    if address.is_ipv6() { 2 } else { 1 }
}

/// Whether C-types 1 and 2 say IPv6, and that the body has the length for it: `other` bytes beside
/// the address.
fn v6(object: &Object<'_>, other: usize) -> Result<bool, WireError> {
    let v6 = match object.ctype {
        1 => false,
        2 => true,
        _ => return Err(object.unknown_type()),
    };
    object.sized(other + if v6 { 16 } else { 4 })?;
    Ok(v6)
}

impl Session {
    /// Session and flags (1: police at this edge). RFC 2205 A.1.
    pub(crate) fn read(object: &Object<'_>) -> Result<(Session, u8), WireError> {
        let v6 = v6(object, 4)?;
        let mut reader = Reader::new(object.body, object.body_at());
        let address = reader.address(v6, "SESSION")?;
        let protocol = reader.u8("SESSION")?;
        let flags = reader.u8("SESSION")?;
        let port = reader.u16("SESSION")?;
        Ok((Session { address, protocol, port }, flags))
    }

    pub(crate) fn write(&self, flags: u8, writer: &mut Writer) {
        writer.object(class::SESSION, family(self.address), |body| {
            body.address(self.address);
            body.u8(self.protocol);
            body.u8(flags);
            body.u16(self.port);
        });
    }
}

impl Hop {
    pub(crate) fn read(object: &Object<'_>) -> Result<Hop, WireError> {
        let v6 = v6(object, 4)?;
        let mut reader = Reader::new(object.body, object.body_at());
        Ok(Hop { address: reader.address(v6, "RSVP_HOP")?, handle: reader.u32("RSVP_HOP")? })
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.object(class::HOP, family(self.address), |body| {
            body.address(self.address);
            body.u32(self.handle);
        });
    }
}

impl ErrorSpec {
    pub(crate) fn read(object: &Object<'_>) -> Result<ErrorSpec, WireError> {
        let v6 = v6(object, 4)?;
        let mut reader = Reader::new(object.body, object.body_at());
        let node = reader.address(v6, "ERROR_SPEC")?;
        let flags = reader.u8("ERROR_SPEC")?;
        let code = reader.u8("ERROR_SPEC")?;
        let value = reader.u16("ERROR_SPEC")?;
        Ok(ErrorSpec { node, flags, code, value })
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.object(class::ERROR_SPEC, family(self.node), |body| {
            body.address(self.node);
            body.u8(self.flags);
            body.u8(self.code);
            body.u16(self.value);
        });
    }
}

impl Sender {
    /// A SENDER_TEMPLATE or FILTER_SPEC. C-type 3 has a flow label in the lower 24 bits of its last
    /// word, of which IPv6 uses 20 (RFC 2205 A.9, RFC 8200 3).
    pub(crate) fn read(object: &Object<'_>) -> Result<Sender, WireError> {
        let what = super::object::name(object.class);
        let mut reader = Reader::new(object.body, object.body_at());
        if object.ctype == 3 {
            object.sized(20)?;
            let address = reader.address(true, what)?;
            let at = reader.at();
            let label = reader.u32(what)? & 0x00ff_ffff;
            if label > 0x000f_ffff {
                return Err(WireError::new(at, Fault::Value("a flow label has 20 bits")));
            }
            return Ok(Sender { address, select: Select::Label(label) });
        }
        let v6 = v6(object, 4)?;
        let address = reader.address(v6, what)?;
        let _unused = reader.u16(what)?;
        Ok(Sender::new(address, reader.u16(what)?))
    }

    /// Writes a SENDER_TEMPLATE or FILTER_SPEC, whichever `class` says.
    pub(crate) fn write(&self, class: u8, writer: &mut Writer) {
        let ctype = if let Select::Label(_) = self.select { 3 } else { family(self.address) };
        writer.object(class, ctype, |body| {
            body.address(self.address);
            match self.select {
                Select::Port(port) => body.u32(u32::from(port)),
                Select::Label(label) => body.u32(label & 0x000f_ffff),
            }
        });
    }
}

/// SCOPE (RFC 2205 A.6): addresses of senders, of one family.
pub(crate) fn read_scope(object: &Object<'_>) -> Result<Vec<IpAddr>, WireError> {
    let v6 = match object.ctype {
        1 => false,
        2 => true,
        _ => return Err(object.unknown_type()),
    };
    let size = if v6 { 16 } else { 4 };
    let whole = object.body.len() / size * size;
    object.sized(whole)?;
    let mut reader = Reader::new(object.body, object.body_at());
    let mut senders = Vec::with_capacity(whole / size);
    while reader.left() > 0 {
        senders.push(reader.address(v6, "SCOPE")?);
    }
    Ok(senders)
}

/// Writes SCOPE. Nothing is written if there is no sender.
pub(crate) fn write_scope(senders: &[IpAddr], writer: &mut Writer) {
    if let Some(first) = senders.first() {
        writer.object(class::SCOPE, family(*first), |body| {
            for sender in senders {
                body.address(*sender);
            }
        });
    }
}

/// RESV_CONFIRM (RFC 2205 A.14): the receiver that wants to be told.
pub(crate) fn read_confirm(object: &Object<'_>) -> Result<IpAddr, WireError> {
    let v6 = v6(object, 0)?;
    Reader::new(object.body, object.body_at()).address(v6, "RESV_CONFIRM")
}

/// Writes RESV_CONFIRM.
pub(crate) fn write_confirm(receiver: IpAddr, writer: &mut Writer) {
    writer.object(class::RESV_CONFIRM, family(receiver), |body| body.address(receiver));
}

/// Whether an address may be the destination of a unicast session, or a sender: not unspecified,
/// not loopback, not multicast, not the broadcast address.
pub fn is_unicast(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(broadcast || address.is_unspecified() || address.is_loopback() || address.is_multicast())
}
