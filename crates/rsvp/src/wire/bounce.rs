//! What can be told from a message that cannot be read as a whole: whom it comes from, which
//! session it is about, and the error message that answers it.

use super::address::{ErrorSpec, Hop, Session};
use super::bytes::Writer;
use super::encode::{finish, write_raw};
use super::header::{Header, kind};
use super::message::Style;
use super::object::{Object, Objects, RawObject, class};

/// The first readable object of a class. The walk ends at the first fault.
fn first<'a>(message: &'a [u8], wanted: u8) -> Option<Object<'a>> {
    Objects::new(message).map_while(Result::ok).find(|object| object.class == wanted)
}

/// The hop that a message names. Only object headers before it and its own body are read, so this
/// may be asked before the message is authenticated.
pub fn peek_hop(message: &[u8]) -> Option<Hop> {
    Hop::read(&first(message, class::HOP)?).ok()
}

/// The session that a message names, as [`peek_hop`].
pub fn peek_session(message: &[u8]) -> Option<Session> {
    Session::read(&first(message, class::SESSION)?).ok().map(|(session, _)| session)
}

/// The PathErr or ResvErr that answers a Path or Resv whose objects are not all understood (RFC
/// 2205 3.10): session, error, and the sender or flow descriptor as it came. A ResvErr has one flow
/// descriptor (RFC 2205 3.1.8); of several it has the first. `hop` is this node, for a ResvErr.
///
/// None if the message is of another type, has no session, or is too damaged to be answered. The
/// answer has no objects but those named, so it is at most 12 (IPv6: 24) bytes longer than the
/// message.
pub fn bounce(message: &[u8], error: ErrorSpec, hop: Hop, send_ttl: u8) -> Option<Vec<u8>> {
    let header = Header::read(message).ok()?;
    let (answer, copied): (u8, &[u8]) = match header.kind {
        kind::PATH => (kind::PATH_ERR, &[class::SENDER_TEMPLATE, class::SENDER_TSPEC, class::ADSPEC]),
        kind::RESV => (kind::RESV_ERR, &[class::STYLE, class::FLOWSPEC, class::FILTER_SPEC]),
        _ => return None,
    };
    let (session, _) = Session::read(&first(message, class::SESSION)?).ok()?;
    // The filters of SE belong to one descriptor. Of another style each one is a descriptor.
    let style = first(message, class::STYLE).and_then(|style| style.body.last().copied());
    let shares = style.and_then(|low| Style::from_vector(u32::from(low))) == Some(Style::Shared);
    let (mut flowspecs, mut filters) = (0, 0);
    let mut objects: Vec<RawObject> = Vec::new();
    for object in Objects::new(message).map_while(Result::ok) {
        flowspecs += u32::from(object.class == class::FLOWSPEC);
        filters += u32::from(object.class == class::FILTER_SPEC);
        if flowspecs > 1 || (filters > 1 && !shares) {
            break;
        }
        if copied.contains(&object.class) {
            objects.push(object.to_raw());
        }
    }
    let mut writer = Writer::default();
    writer.u8(1 << 4);
    writer.u8(answer);
    writer.u16(0);
    writer.u8(send_ttl);
    writer.u8(0);
    writer.u16(0);
    session.write(0, &mut writer);
    if answer == kind::RESV_ERR {
        hop.write(&mut writer);
    }
    error.write(&mut writer);
    write_raw(&objects, &mut writer);
    finish(writer.bytes).ok()
}
