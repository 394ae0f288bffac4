//! From bytes to a message. Every length is checked before it is used, nothing outside the datagram
//! is read, and no input makes it panic.

use std::net::IpAddr;

use super::address::{ErrorSpec, Hop, Sender, Session, read_confirm, read_scope};
use super::adspec::Adspec;
use super::bytes::Reader;
use super::error::{Fault, WireError};
use super::header::{Header, checksum_holds, kind};
use super::intserv::{Flowspec, Tspec};
use super::message::{
    Challenge, Decoded, Flow, Message, Path, PathErr, PathTear, Resv, ResvConf, ResvErr, ResvTear, Style, UnknownObject,
};
use super::object::{Object, Objects, RawObject, Unknown, class, name};

/// What the objects of a message say, before it is known whether they are a message.
#[derive(Default)]
struct Parts {
    session: Option<(Session, u8)>,
    hop: Option<Hop>,
    refresh_ms: Option<u32>,
    error: Option<ErrorSpec>,
    scope: Option<Vec<IpAddr>>,
    style: Option<Style>,
    sender: Option<Sender>,
    tspec: Option<Tspec>,
    adspec: Option<Adspec>,
    confirm: Option<IpAddr>,
    challenge: Option<Challenge>,
    /// FLOWSPEC and FILTER_SPEC in their order.
    flows: Vec<FlowPart>,
    passed_on: Vec<RawObject>,
    unknown: Option<UnknownObject>,
    /// Whether an address was IPv4, and whether one was IPv6.
    families: (bool, bool),
}

enum FlowPart {
    Flowspec(usize, Flowspec),
    Filter(usize, Sender),
}

/// Reads a whole RSVP message, without the IP header.
///
/// INTEGRITY is skipped: it is to be checked before ([`crate::integrity`]). The checksum is checked
/// here; a message with INTEGRITY has none.
///
/// # Errors
/// Whatever is not as RFC 2205 has it. An unknown object is an error only if the message lacks
/// something without it; else it is in [`Decoded::unknown`].
pub fn decode(datagram: &[u8]) -> Result<Decoded, WireError> {
    let header = Header::read(datagram)?;
    if !checksum_holds(datagram) {
        return Err(WireError::new(2, Fault::Checksum));
    }
    if !matches!(header.kind, kind::PATH..=kind::RESV_CONF | kind::CHALLENGE | kind::RESPONSE) {
        return Err(WireError::new(1, Fault::Type(header.kind)));
    }
    let mut parts = Parts::default();
    for object in Objects::new(datagram) {
        parts.add(&object?)?;
    }
    if parts.families == (true, true) {
        return Err(WireError::new(0, Fault::Families));
    }
    let unknown = parts.unknown;
    let end = datagram.len();
    let message = parts.into_message(header.kind, end).map_err(|error| match unknown {
        // What is missing may be what was not understood.
        Some(unknown) => unknown.fault(),
        None => error,
    })?;
    Ok(Decoded { header, message, unknown })
}

impl UnknownObject {
    fn fault(&self) -> WireError {
        let (class, ctype) = (self.class, self.ctype);
        match self.known_class {
            true => WireError::new(self.at + 3, Fault::UnknownType { class, ctype }),
            false => WireError::new(self.at + 2, Fault::UnknownClass { class, ctype }),
        }
    }
}

/// Puts a value into its place, which must be empty.
fn once<T>(place: &mut Option<T>, object: &Object<'_>, value: T) -> Result<(), WireError> {
    if place.is_some() {
        return Err(WireError::new(object.at, Fault::Twice(name(object.class))));
    }
    *place = Some(value);
    Ok(())
}

impl Parts {
    /// Adds an object. Unknown classes and C-types follow RFC 2205 3.10.
    fn add(&mut self, object: &Object<'_>) -> Result<(), WireError> {
        match self.read(object) {
            Err(WireError { fault: Fault::UnknownType { class, ctype }, at: _ }) => {
                let unknown = UnknownObject { at: object.at, class, ctype, known_class: true };
                self.unknown.get_or_insert(unknown);
                Ok(())
            }
            other => other,
        }
    }

    fn read(&mut self, object: &Object<'_>) -> Result<(), WireError> {
        match object.class {
            class::NULL => Ok(()),
            // RFC 2747 2: INTEGRITY is the first object.
            class::INTEGRITY if object.at == super::header::HEADER => Ok(()),
            class::INTEGRITY => Err(WireError::new(object.at, Fault::Misplaced("INTEGRITY"))),
            class::SESSION => {
                let session = Session::read(object)?;
                self.family(session.0.address);
                once(&mut self.session, object, session)
            }
            class::HOP => {
                let hop = Hop::read(object)?;
                self.family(hop.address);
                once(&mut self.hop, object, hop)
            }
            class::TIME_VALUES => {
                let refresh_ms = read_refresh(object)?;
                once(&mut self.refresh_ms, object, refresh_ms)
            }
            class::ERROR_SPEC => {
                let error = ErrorSpec::read(object)?;
                self.family(error.node);
                once(&mut self.error, object, error)
            }
            class::SCOPE => {
                let scope = read_scope(object)?;
                if let Some(first) = scope.first() {
                    self.family(*first);
                }
                once(&mut self.scope, object, scope)
            }
            class::STYLE => {
                let style = read_style(object)?;
                once(&mut self.style, object, style)
            }
            class::FLOWSPEC | class::FILTER_SPEC => self.read_flow_part(object),
            class::SENDER_TEMPLATE => {
                let sender = Sender::read(object)?;
                self.family(sender.address);
                once(&mut self.sender, object, sender)
            }
            class::SENDER_TSPEC => {
                let tspec = Tspec::read_sender(object)?;
                once(&mut self.tspec, object, tspec)
            }
            class::ADSPEC => {
                let adspec = Adspec::read(object)?;
                once(&mut self.adspec, object, adspec)
            }
            class::POLICY_DATA => {
                self.passed_on.push(object.to_raw());
                Ok(())
            }
            class::RESV_CONFIRM => {
                let receiver = read_confirm(object)?;
                self.family(receiver);
                once(&mut self.confirm, object, receiver)
            }
            class::CHALLENGE => {
                let challenge = read_challenge(object)?;
                once(&mut self.challenge, object, challenge)
            }
            _ => {
                self.unknown_class(object);
                Ok(())
            }
        }
    }

    /// RFC 2205 3.1.4: STYLE comes before the flow descriptors, and nothing else among them.
    fn read_flow_part(&mut self, object: &Object<'_>) -> Result<(), WireError> {
        if self.style.is_none() && self.unknown.is_none() {
            return Err(WireError::new(object.at, Fault::Misplaced("a flow descriptor before STYLE")));
        }
        if object.class == class::FLOWSPEC {
            let flowspec = Flowspec::read(object)?;
            self.flows.push(FlowPart::Flowspec(object.at, flowspec));
        } else {
            let filter = Sender::read(object)?;
            self.family(filter.address);
            self.flows.push(FlowPart::Filter(object.at, filter));
        }
        Ok(())
    }

    fn unknown_class(&mut self, object: &Object<'_>) {
        match Unknown::rule(object.class) {
            Unknown::Ignore => {}
            Unknown::Forward => self.passed_on.push(object.to_raw()),
            Unknown::Reject => {
                let (at, class, ctype) = (object.at, object.class, object.ctype);
                self.unknown.get_or_insert(UnknownObject { at, class, ctype, known_class: false });
            }
        }
    }

    fn family(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(_) => self.families.0 = true,
            IpAddr::V6(_) => self.families.1 = true,
        }
    }

    /// The message of type `kind` that these objects are. `end` is where the message ends, which is
    /// where objects are missing.
    fn into_message(self, kind: u8, end: usize) -> Result<Message, WireError> {
        let missing = |what: &'static str| WireError::new(end, Fault::Missing(what));
        if kind == kind::CHALLENGE || kind == kind::RESPONSE {
            let challenge = self.challenge.ok_or_else(|| missing("CHALLENGE"))?;
            return Ok(if kind == kind::CHALLENGE {
                Message::Challenge(challenge)
            } else {
                Message::Response(challenge)
            });
        }
        let (session, session_flags) = self.session.ok_or_else(|| missing("SESSION"))?;
        let hop = self.hop.ok_or_else(|| missing("RSVP_HOP"));
        let error = self.error.ok_or_else(|| missing("ERROR_SPEC"));
        let sender = self.sender.ok_or_else(|| missing("SENDER_TEMPLATE"));
        let tspec = self.tspec.ok_or_else(|| missing("SENDER_TSPEC"));
        let refresh_ms = self.refresh_ms.ok_or_else(|| missing("TIME_VALUES"));
        let style = self.style.ok_or_else(|| missing("STYLE"));
        let scope = self.scope.unwrap_or_default();
        let (adspec, confirm, passed_on) = (self.adspec, self.confirm, self.passed_on);
        Ok(match kind {
            kind::PATH => Message::Path(Path {
                session,
                session_flags,
                hop: hop?,
                refresh_ms: refresh_ms?,
                sender: sender?,
                tspec: tspec?,
                adspec,
                passed_on,
            }),
            kind::PATH_TEAR => Message::PathTear(PathTear { session, hop: hop?, sender: sender? }),
            kind::PATH_ERR => {
                let (error, sender, tspec) = (error?, sender?, tspec?);
                Message::PathErr(PathErr { session, error, sender, tspec, adspec, passed_on })
            }
            kind::RESV => {
                let (style, hop, refresh_ms) = (style?, hop?, refresh_ms?);
                let flows = flows(style, self.flows, end)?;
                Message::Resv(Resv { session, hop, refresh_ms, confirm, scope, style, flows, passed_on })
            }
            kind::RESV_TEAR => {
                let filters = self.flows.into_iter().filter_map(|part| match part {
                    FlowPart::Filter(_, filter) => Some(filter),
                    FlowPart::Flowspec(..) => None,
                });
                Message::ResvTear(ResvTear { session, hop: hop?, scope, style: style?, filters: filters.collect() })
            }
            kind::RESV_ERR => {
                let (style, hop, error) = (style?, hop?, error?);
                let mut flows = flows(style, self.flows, end)?;
                if flows.len() > 1 {
                    return Err(WireError::new(end, Fault::Value("a ResvErr has one flow descriptor")));
                }
                let flow = flows.pop().ok_or_else(|| missing("a flow descriptor"))?;
                Message::ResvErr(ResvErr { session, hop, error, scope, style, flow, passed_on })
            }
            _ => {
                let (style, error) = (style?, error?);
                let receiver = confirm.ok_or_else(|| missing("RESV_CONFIRM"))?;
                let flows = flows(style, self.flows, end)?;
                Message::ResvConf(ResvConf { session, error, receiver, style, flows })
            }
        })
    }
}

/// The flow descriptor list of a style (RFC 2205 3.1.4). FF: each FILTER_SPEC has a FLOWSPEC before
/// it, which may be left out if it is the one before. SE: one FLOWSPEC, then filters. WF: one
/// FLOWSPEC.
fn flows(style: Style, parts: Vec<FlowPart>, end: usize) -> Result<Vec<Flow>, WireError> {
    let mut flows: Vec<Flow> = Vec::new();
    let mut flowspec: Option<Flowspec> = None;
    // Whether the last FLOWSPEC has a filter.
    let mut used = true;
    for part in parts {
        match (part, style) {
            (FlowPart::Flowspec(at, next), _) => {
                if !used || (style != Style::Fixed && flowspec.is_some()) {
                    return Err(WireError::new(at, Fault::Twice("FLOWSPEC")));
                }
                if style != Style::Fixed {
                    flows.push(Flow { flowspec: next.clone(), filters: Vec::new() });
                }
                flowspec = Some(next);
                used = style != Style::Fixed;
            }
            (FlowPart::Filter(at, _), Style::Wildcard) => {
                return Err(WireError::new(at, Fault::Misplaced("FILTER_SPEC in WF")));
            }
            (FlowPart::Filter(at, filter), Style::Fixed) => {
                let Some(flowspec) = &flowspec else {
                    return Err(WireError::new(at, Fault::Missing("FLOWSPEC")));
                };
                flows.push(Flow { flowspec: flowspec.clone(), filters: vec![filter] });
                used = true;
            }
            (FlowPart::Filter(at, filter), Style::Shared) => match flows.last_mut() {
                Some(flow) => flow.filters.push(filter),
                None => return Err(WireError::new(at, Fault::Missing("FLOWSPEC"))),
            },
        }
    }
    let lacks_filter = !used || (style == Style::Shared && flows.iter().any(|flow| flow.filters.is_empty()));
    if flows.is_empty() || lacks_filter {
        let what = if flows.is_empty() && !lacks_filter { "a flow descriptor" } else { "FILTER_SPEC" };
        return Err(WireError::new(end, Fault::Missing(what)));
    }
    Ok(flows)
}

/// TIME_VALUES (RFC 2205 A.4). A period of 0 would ask for refreshes without pause.
fn read_refresh(object: &Object<'_>) -> Result<u32, WireError> {
    if object.ctype != 1 {
        return Err(object.unknown_type());
    }
    object.sized(4)?;
    match Reader::new(object.body, object.body_at()).u32("TIME_VALUES")? {
        0 => Err(WireError::new(object.body_at(), Fault::Value("a refresh period of 0"))),
        refresh_ms => Ok(refresh_ms),
    }
}

/// STYLE (RFC 2205 A.7). A style that is not known is a fault of its own: it is answered with the
/// same error 06 as one that is not offered.
fn read_style(object: &Object<'_>) -> Result<Style, WireError> {
    if object.ctype != 1 {
        return Err(object.unknown_type());
    }
    object.sized(4)?;
    let vector = Reader::new(object.body, object.body_at()).u32("STYLE")? & 0x00ff_ffff;
    Style::from_vector(vector).ok_or(WireError::new(object.body_at(), Fault::UnknownStyle))
}

/// CHALLENGE (RFC 2747 4.3).
fn read_challenge(object: &Object<'_>) -> Result<Challenge, WireError> {
    if object.ctype != 1 {
        return Err(object.unknown_type());
    }
    let mut reader = Reader::new(object.body, object.body_at());
    let _reserved = reader.u16("CHALLENGE")?;
    let key_id = reader.u48("CHALLENGE")?;
    let left = reader.left();
    Ok(Challenge { key_id, cookie: reader.take(left, "CHALLENGE")?.to_vec() })
}
