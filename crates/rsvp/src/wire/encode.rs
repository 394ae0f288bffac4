//! From a message to bytes. Objects stand in the order that RFC 2205 recommends.

use thiserror::Error;

use super::address::{Sender, write_confirm, write_scope};
use super::bytes::Writer;
use super::header::{HEADER, set_checksum};
use super::message::{Challenge, Flow, Message, Path, PathErr, Resv, ResvConf, ResvErr, Style};
use super::object::{RawObject, class};

/// A message of 64 KiB or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a message of {0} bytes; a datagram has at most 65535")]
pub struct TooLong(pub usize);

/// The bytes of a message, with its checksum. `send_ttl` is the IP TTL that it will be sent with.
/// The flags are 0: no refresh reduction.
///
/// # Errors
/// [`TooLong`] if it does not fit a datagram.
pub fn encode(message: &Message, send_ttl: u8) -> Result<Vec<u8>, TooLong> {
    let mut writer = Writer::default();
    writer.u8(1 << 4);
    writer.u8(message.kind());
    writer.u16(0);
    writer.u8(send_ttl);
    writer.u8(0);
    writer.u16(0);
    match message {
        Message::Path(path) => write_path(path, &mut writer),
        Message::Resv(resv) => write_resv(resv, &mut writer),
        Message::PathErr(error) => write_path_err(error, &mut writer),
        Message::ResvErr(error) => write_resv_err(error, &mut writer),
        Message::PathTear(tear) => {
            tear.session.write(0, &mut writer);
            tear.hop.write(&mut writer);
            tear.sender.write(class::SENDER_TEMPLATE, &mut writer);
        }
        Message::ResvTear(tear) => {
            tear.session.write(0, &mut writer);
            tear.hop.write(&mut writer);
            write_scope(&tear.scope, &mut writer);
            write_style(tear.style, &mut writer);
            write_filters(&tear.filters, &mut writer);
        }
        Message::ResvConf(conf) => write_resv_conf(conf, &mut writer),
        Message::Challenge(challenge) | Message::Response(challenge) => write_challenge(challenge, &mut writer),
    }
    finish(writer.bytes)
}

/// Length and checksum of a message whose objects are written.
pub(crate) fn finish(mut bytes: Vec<u8>) -> Result<Vec<u8>, TooLong> {
    let length = u16::try_from(bytes.len()).map_err(|_| TooLong(bytes.len()))?;
    if let Some(field) = bytes.get_mut(6..HEADER) {
        field.copy_from_slice(&length.to_be_bytes());
    }
    set_checksum(&mut bytes);
    Ok(bytes)
}

fn write_path(path: &Path, writer: &mut Writer) {
    path.session.write(path.session_flags, writer);
    path.hop.write(writer);
    write_refresh(path.refresh_ms, writer);
    write_raw(&path.passed_on, writer);
    path.sender.write(class::SENDER_TEMPLATE, writer);
    path.tspec.write_sender(writer);
    if let Some(adspec) = &path.adspec {
        adspec.write(writer);
    }
}

fn write_resv(resv: &Resv, writer: &mut Writer) {
    resv.session.write(0, writer);
    resv.hop.write(writer);
    write_refresh(resv.refresh_ms, writer);
    if let Some(receiver) = resv.confirm {
        write_confirm(receiver, writer);
    }
    write_scope(&resv.scope, writer);
    write_raw(&resv.passed_on, writer);
    write_style(resv.style, writer);
    for flow in &resv.flows {
        write_flow(flow, writer);
    }
}

fn write_path_err(error: &PathErr, writer: &mut Writer) {
    error.session.write(0, writer);
    error.error.write(writer);
    write_raw(&error.passed_on, writer);
    error.sender.write(class::SENDER_TEMPLATE, writer);
    error.tspec.write_sender(writer);
    if let Some(adspec) = &error.adspec {
        adspec.write(writer);
    }
}

fn write_resv_err(error: &ResvErr, writer: &mut Writer) {
    error.session.write(0, writer);
    error.hop.write(writer);
    error.error.write(writer);
    write_scope(&error.scope, writer);
    write_raw(&error.passed_on, writer);
    write_style(error.style, writer);
    write_flow(&error.flow, writer);
}

fn write_resv_conf(conf: &ResvConf, writer: &mut Writer) {
    conf.session.write(0, writer);
    conf.error.write(writer);
    write_confirm(conf.receiver, writer);
    write_style(conf.style, writer);
    for flow in &conf.flows {
        write_flow(flow, writer);
    }
}

/// RFC 2747 4.3: two zero bytes, the key, the cookie.
fn write_challenge(challenge: &Challenge, writer: &mut Writer) {
    writer.object(class::CHALLENGE, 1, |body| {
        body.u16(0);
        body.u48(challenge.key_id);
        body.slice(&challenge.cookie);
    });
}

fn write_flow(flow: &Flow, writer: &mut Writer) {
    flow.flowspec.write(writer);
    write_filters(&flow.filters, writer);
}

fn write_filters(filters: &[Sender], writer: &mut Writer) {
    for filter in filters {
        filter.write(class::FILTER_SPEC, writer);
    }
}

/// TIME_VALUES (RFC 2205 A.4).
fn write_refresh(refresh_ms: u32, writer: &mut Writer) {
    writer.object(class::TIME_VALUES, 1, |body| body.u32(refresh_ms));
}

/// STYLE (RFC 2205 A.7): flags, none of which is defined, and the option vector.
fn write_style(style: Style, writer: &mut Writer) {
    writer.object(class::STYLE, 1, |body| body.u32(style.vector()));
}

pub(crate) fn write_raw(objects: &[RawObject], writer: &mut Writer) {
    for object in objects {
        writer.object(object.class, object.ctype, |body| body.slice(&object.body));
    }
}
