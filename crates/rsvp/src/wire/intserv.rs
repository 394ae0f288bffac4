//! What integrated services put into RSVP's objects (RFC 2210 3): SENDER_TSPEC and FLOWSPEC. Rates
//! are bytes per second, sizes count from the IP header (RFC 2215 3.6).

use super::bytes::{Reader, Writer};
use super::error::{Fault, WireError};
use super::object::{Object, class};

/// Service numbers (RFC 2210 3.1, RFC 2215).
pub mod service {
    /// Parameters for every service.
    pub const GENERAL: u8 = 1;
    /// Guaranteed (RFC 2212).
    pub const GUARANTEED: u8 = 2;
    /// Controlled load (RFC 2211).
    pub const CONTROLLED_LOAD: u8 = 5;
}

/// The parameter that holds a token bucket (RFC 2215 3.6).
const TOKEN_BUCKET: u8 = 127;

/// The most bytes of a FLOWSPEC's body that is kept of a service that is not known. Those that have
/// been published have 44 at most. It is repeated in the answer for each sender.
const MOST_OTHER: usize = 256;

/// The parameter that holds rate and slack of guaranteed service (RFC 2212, RFC 2210 3.2.2).
const RSPEC: u8 = 130;

/// A token bucket with peak rate, minimum policed unit and maximum packet (RFC 2215 3.6).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tspec {
    /// r, bytes per second.
    pub rate: f32,
    /// b, bytes.
    pub burst: f32,
    /// p, bytes per second; infinite if it is not known.
    pub peak: f32,
    /// m, bytes: smaller packets count as this.
    pub min_unit: u32,
    /// M, bytes: larger packets do not conform.
    pub max_packet: u32,
}

impl Tspec {
    /// Whether the values are in the ranges of RFC 2215 3.6: r and p from 1 byte/s to 40 Tbyte/s, p
    /// also infinite, b from 1 byte to 250 Gbyte, m at least 1, M at least m.
    pub fn is_legal(&self) -> bool {
        let rate = 1.0..=4e13_f32;
        rate.contains(&self.rate)
            && (1.0..=2.5e11_f32).contains(&self.burst)
            && (rate.contains(&self.peak) || self.peak == f32::INFINITY)
            && self.min_unit >= 1
            && self.max_packet >= self.min_unit
    }

    /// The parameter with its header, 24 bytes.
    fn read(reader: &mut Reader<'_>, what: &'static str) -> Result<Tspec, WireError> {
        let at = reader.at();
        let id = reader.u8(what)?;
        let _flags = reader.u8(what)?;
        let words = reader.u16(what)?;
        if id != TOKEN_BUCKET || words != 5 {
            return Err(WireError::new(at, Fault::Value("parameter 127 with 5 words expected")));
        }
        let rate = reader.f32(what)?;
        let burst = reader.f32(what)?;
        let peak = reader.f32(what)?;
        let min_unit = reader.u32(what)?;
        let max_packet = reader.u32(what)?;
        Ok(Tspec { rate, burst, peak, min_unit, max_packet })
    }

    fn write(&self, body: &mut Writer) {
        body.u8(TOKEN_BUCKET);
        body.u8(0);
        body.u16(5);
        body.f32(self.rate);
        body.f32(self.burst);
        body.f32(self.peak);
        body.u32(self.min_unit);
        body.u32(self.max_packet);
    }

    /// SENDER_TSPEC (RFC 2210 3.1).
    pub(crate) fn read_sender(object: &Object<'_>) -> Result<Tspec, WireError> {
        let what = "SENDER_TSPEC";
        if object.ctype != 2 {
            return Err(object.unknown_type());
        }
        object.sized(32)?;
        let mut reader = Reader::new(object.body, object.body_at());
        lengths(&mut reader, what, 7)?;
        let at = reader.at();
        if service_header(&mut reader, what)? != (service::GENERAL, 6) {
            return Err(WireError::new(at, Fault::Value("service 1 with 6 words expected")));
        }
        Tspec::read(&mut reader, what)
    }

    pub(crate) fn write_sender(&self, writer: &mut Writer) {
        writer.object(class::SENDER_TSPEC, 2, |body| {
            body.u32(7);
            body.u32((u32::from(service::GENERAL) << 24) | 6);
            self.write(body);
        });
    }
}

/// What a receiver asks for (RFC 2210 3.2).
#[derive(Debug, Clone, PartialEq)]
pub enum Flowspec {
    /// Controlled load (RFC 2210 3.2.1, RFC 2211).
    ControlledLoad(Tspec),
    /// Guaranteed service (RFC 2210 3.2.2, RFC 2212).
    Guaranteed {
        /// The traffic.
        tspec: Tspec,
        /// R, bytes per second.
        rate: f32,
        /// S, the slack, microseconds.
        slack: u32,
    },
    /// Another service, as it came.
    Other {
        /// Its number.
        service: u8,
        /// The whole body of the object.
        body: Vec<u8>,
    },
}

impl Flowspec {
    pub(crate) fn read(object: &Object<'_>) -> Result<Flowspec, WireError> {
        let what = "FLOWSPEC";
        if object.ctype != 2 {
            return Err(object.unknown_type());
        }
        let mut reader = Reader::new(object.body, object.body_at());
        let words = object.body.len() / 4;
        lengths(&mut reader, what, words.saturating_sub(1))?;
        let at = reader.at();
        let (number, rest) = service_header(&mut reader, what)?;
        if number != service::CONTROLLED_LOAD && number != service::GUARANTEED {
            if object.body.len() > MOST_OTHER {
                return Err(WireError::new(object.at, Fault::Value("a FLOWSPEC of more than 256 bytes")));
            }
            return Ok(Flowspec::Other { service: number, body: object.body.to_vec() });
        }
        if usize::from(rest) + 2 != words {
            return Err(WireError::new(at, Fault::Value("the service's length is not the object's")));
        }
        if number == service::CONTROLLED_LOAD {
            object.sized(32)?;
            return Ok(Flowspec::ControlledLoad(Tspec::read(&mut reader, what)?));
        }
        object.sized(44)?;
        let tspec = Tspec::read(&mut reader, what)?;
        let at = reader.at();
        let id = reader.u8(what)?;
        let _flags = reader.u8(what)?;
        if id != RSPEC || reader.u16(what)? != 2 {
            return Err(WireError::new(at, Fault::Value("parameter 130 with 2 words expected")));
        }
        let rate = reader.f32(what)?;
        let slack = reader.u32(what)?;
        Ok(Flowspec::Guaranteed { tspec, rate, slack })
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.object(class::FLOWSPEC, 2, |body| match self {
            Flowspec::ControlledLoad(tspec) => {
                body.u32(7);
                body.u32((u32::from(service::CONTROLLED_LOAD) << 24) | 6);
                tspec.write(body);
            }
            Flowspec::Guaranteed { tspec, rate, slack } => {
                body.u32(10);
                body.u32((u32::from(service::GUARANTEED) << 24) | 9);
                tspec.write(body);
                body.u32((u32::from(RSPEC) << 24) | 2);
                body.f32(*rate);
                body.u32(*slack);
            }
            Flowspec::Other { body: bytes, .. } => body.slice(bytes),
        });
    }
}

/// The first word of every object of integrated services: version 0 in 4 bits, zeros, and `words`,
/// the words that follow (RFC 2210 3.1).
pub(super) fn lengths(reader: &mut Reader<'_>, what: &'static str, words: usize) -> Result<(), WireError> {
    let at = reader.at();
    let first = reader.u32(what)?;
    if first >> 28 != 0 {
        return Err(WireError::new(at, Fault::Value("message format version 0 expected")));
    }
    if usize::try_from(first & 0xffff) != Ok(words) {
        return Err(WireError::new(at + 2, Fault::Value("the length in words is not the object's")));
    }
    Ok(())
}

/// The header of a service's data without its break bit: number and length in words.
fn service_header(reader: &mut Reader<'_>, what: &'static str) -> Result<(u8, u16), WireError> {
    let number = reader.u8(what)?;
    let _flags = reader.u8(what)?;
    Ok((number, reader.u16(what)?))
}
