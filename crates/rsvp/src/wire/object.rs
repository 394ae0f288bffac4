//! Objects: their headers (RFC 2205 3.1.2), class numbers, and what to do with unknown ones.

use super::error::{Fault, WireError};
use super::header::HEADER;

/// The most objects that are read in one message. A datagram of 64 KiB could hold 16,381 empty
/// ones; a real message has about ten, and one more for each filter.
pub const MOST_OBJECTS: usize = 1024;

/// Class numbers (RFC 2205 A, RFC 2747, RFC 2961).
pub mod class {
    /// Ignored.
    pub const NULL: u8 = 0;
    /// Destination, protocol and port.
    pub const SESSION: u8 = 1;
    /// The RSVP node that sent the message.
    pub const HOP: u8 = 3;
    /// A keyed digest.
    pub const INTEGRITY: u8 = 4;
    /// The refresh period.
    pub const TIME_VALUES: u8 = 5;
    /// An error, or a confirmation.
    pub const ERROR_SPEC: u8 = 6;
    /// Senders that a WF reservation is forwarded to.
    pub const SCOPE: u8 = 7;
    /// Reservation style.
    pub const STYLE: u8 = 8;
    /// What is asked for.
    pub const FLOWSPEC: u8 = 9;
    /// Which sender's packets.
    pub const FILTER_SPEC: u8 = 10;
    /// A sender.
    pub const SENDER_TEMPLATE: u8 = 11;
    /// A sender's traffic.
    pub const SENDER_TSPEC: u8 = 12;
    /// What the path can do.
    pub const ADSPEC: u8 = 13;
    /// Policy, which this crate passes on unread.
    pub const POLICY_DATA: u8 = 14;
    /// A wish for a confirmation.
    pub const RESV_CONFIRM: u8 = 15;
    /// Integrity challenge (RFC 2747).
    pub const CHALLENGE: u8 = 64;
}

/// The name of a class in RFC 2205.
pub(crate) fn name(class: u8) -> &'static str {
    match class {
        class::NULL => "NULL",
        class::SESSION => "SESSION",
        class::HOP => "RSVP_HOP",
        class::INTEGRITY => "INTEGRITY",
        class::TIME_VALUES => "TIME_VALUES",
        class::ERROR_SPEC => "ERROR_SPEC",
        class::SCOPE => "SCOPE",
        class::STYLE => "STYLE",
        class::FLOWSPEC => "FLOWSPEC",
        class::FILTER_SPEC => "FILTER_SPEC",
        class::SENDER_TEMPLATE => "SENDER_TEMPLATE",
        class::SENDER_TSPEC => "SENDER_TSPEC",
        class::ADSPEC => "ADSPEC",
        class::POLICY_DATA => "POLICY_DATA",
        class::RESV_CONFIRM => "RESV_CONFIRM",
        class::CHALLENGE => "CHALLENGE",
        _ => "an object of an unknown class",
    }
}

/// What a node does with an object of a class that it does not know (RFC 2205 3.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Class 0bbbbbbb: the message is refused with error 13.
    Reject,
    /// Class 10bbbbbb: the object is left out, silently.
    Ignore,
    /// Class 11bbbbbb: the object is passed on as it is.
    Forward,
}

impl Unknown {
    /// The rule for a class number, by its two upper bits.
    pub fn rule(class: u8) -> Unknown {
        match class >> 6 {
            0b10 => Unknown::Ignore,
            0b11 => Unknown::Forward,
            _ => Unknown::Reject,
        }
    }
}

/// An object as it came: POLICY_DATA, and unknown objects that are passed on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RawObject {
    /// Its class number.
    pub class: u8,
    /// Its C-type.
    pub ctype: u8,
    /// What follows its header of 4 bytes.
    pub body: Vec<u8>,
}

impl RawObject {
    /// Its bytes in a message, with its header.
    pub(crate) fn size(&self) -> usize {
        4 + self.body.len()
    }
}

/// An object within a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Object<'a> {
    /// Where its header begins in the message.
    pub(crate) at: usize,
    pub(crate) class: u8,
    pub(crate) ctype: u8,
    pub(crate) body: &'a [u8],
}

impl Object<'_> {
    /// Where its body begins in the message.
    pub(crate) fn body_at(&self) -> usize {
        self.at + 4
    }

    pub(crate) fn to_raw(self) -> RawObject {
        RawObject { class: self.class, ctype: self.ctype, body: self.body.to_vec() }
    }

    /// The fault that the C-type is not known.
    pub(crate) fn unknown_type(&self) -> WireError {
        WireError::new(self.at + 3, Fault::UnknownType { class: self.class, ctype: self.ctype })
    }

    /// A fault unless the body has `need` bytes.
    pub(crate) fn sized(&self, need: usize) -> Result<(), WireError> {
        if self.body.len() == need {
            return Ok(());
        }
        let (what, have) = (name(self.class), self.body.len());
        Err(WireError::new(self.at, Fault::Size { what, need, have }))
    }
}

/// The objects of a message, in order. Ends after the first fault.
#[derive(Debug, Clone)]
pub(crate) struct Objects<'a> {
    message: &'a [u8],
    at: usize,
    count: usize,
}

impl<'a> Objects<'a> {
    /// The objects behind the common header of `message`.
    pub(crate) fn new(message: &'a [u8]) -> Objects<'a> {
        Objects { message, at: HEADER, count: 0 }
    }

    fn fail(&mut self, fault: Fault) -> Option<Result<Object<'a>, WireError>> {
        let at = self.at;
        self.at = usize::MAX;
        Some(Err(WireError::new(at, fault)))
    }
}

impl<'a> Iterator for Objects<'a> {
    type Item = Result<Object<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let message: &'a [u8] = self.message;
        let rest: &'a [u8] = message.get(self.at..)?;
        if rest.is_empty() {
            return None;
        }
        self.count += 1;
        if self.count > MOST_OBJECTS {
            return self.fail(Fault::Many(MOST_OBJECTS));
        }
        let Some((head, _)) = rest.split_at_checked(4) else {
            return self.fail(Fault::Short { what: "the header of an object", need: 4, have: rest.len() });
        };
        let length = usize::from(u16::from_be_bytes([head[0], head[1]]));
        if length < 4 || !length.is_multiple_of(4) {
            return self.fail(Fault::ObjectLength(length));
        }
        let Some(whole) = rest.get(..length) else {
            return self.fail(Fault::Short { what: name(head[2]), need: length, have: rest.len() });
        };
        let object = Object { at: self.at, class: head[2], ctype: head[3], body: &whole[4..] };
        self.at += length;
        Some(Ok(object))
    }
}
