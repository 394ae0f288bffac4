//! ADSPEC: what the path can do, collected hop by hop (RFC 2210 3.3, RFC 2215 3).
//!
//! It is kept as a list of services with their parameters, unknown ones included, so that what is
//! not understood goes on unchanged.

use super::bytes::{Reader, Writer};
use super::error::{Fault, WireError};
use super::intserv::{lengths, service};
use super::object::{Object, class};

/// Parameters that every service has (RFC 2215 3).
pub mod parameter {
    /// Hops that speak integrated services.
    pub const HOPS: u8 = 4;
    /// The smallest bandwidth on the path, bytes per second, a float.
    pub const BANDWIDTH: u8 = 6;
    /// The sum of the smallest latencies, microseconds.
    pub const LATENCY: u8 = 8;
    /// The smallest MTU, bytes.
    pub const MTU: u8 = 10;
}

/// A latency that is not known (RFC 2215 3.4).
pub const LATENCY_UNKNOWN: u32 = u32::MAX;

/// A value within a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its number ([`parameter`]).
    pub id: u8,
    /// Flags; bit 0x80: the value is not valid.
    pub flags: u8,
    /// Its words, as they are on the wire.
    pub words: Vec<u32>,
}

/// The values of one service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its number ([`service`]).
    pub number: u8,
    /// The break bit: a hop on the path does not offer the service, or, for service 1, does not
    /// speak RSVP.
    pub broken: bool,
    /// Its values.
    pub parameters: Vec<Parameter>,
}

/// An ADSPEC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adspec {
    /// Its services, the general one (1) first.
    pub services: Vec<Service>,
}

/// What a hop has to say of itself (RFC 2215 3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HopOffer {
    /// Bandwidth that a new reservation could get, bytes per second.
    pub bandwidth: f32,
    /// Least latency of the hop, microseconds, or [`LATENCY_UNKNOWN`].
    pub latency_us: u32,
    /// MTU, bytes from the IP header.
    pub mtu: u32,
}

impl Adspec {
    /// The ADSPEC of a sender (RFC 2210 3.3): no hop yet, and controlled load.
    pub fn new(offer: HopOffer) -> Adspec {
        let one = |id: u8, word: u32| Parameter { id, flags: 0, words: vec![word] };
        let general = Service {
            number: service::GENERAL,
            broken: false,
            parameters: vec![
                one(parameter::HOPS, 0),
                one(parameter::BANDWIDTH, offer.bandwidth.to_bits()),
                one(parameter::LATENCY, offer.latency_us),
                one(parameter::MTU, offer.mtu),
            ],
        };
        let controlled = Service { number: service::CONTROLLED_LOAD, broken: false, parameters: Vec::new() };
        Adspec { services: vec![general, controlled] }
    }

    /// The first word of a parameter of a service.
    pub fn word(&self, service: u8, id: u8) -> Option<u32> {
        let service = self.services.iter().find(|s| s.number == service)?;
        let parameter = service.parameters.iter().find(|p| p.id == id)?;
        parameter.words.first().copied()
    }

    /// Adds a hop that offers controlled load (RFC 2215 3: hops are counted, of bandwidth and MTU
    /// the smaller one stays, latencies are added up). `gap`: a router without RSVP stands between
    /// this hop and the previous one, so the general break bit is set (RFC 2205 3.8, RFC 2215 3.1).
    /// Services that this hop does not offer get their own break bit (RFC 2210 3.3).
    pub fn pass(&mut self, offer: HopOffer, gap: bool) {
        for service in &mut self.services {
            match service.number {
                service::GENERAL => service.broken |= gap,
                service::CONTROLLED_LOAD => {}
                _ => service.broken = true,
            }
            let general = service.number == service::GENERAL;
            if !general && service.number != service::CONTROLLED_LOAD {
                continue;
            }
            // Parameters of the general kind within a service override those of service 1 for it
            // (RFC 2215), and are updated likewise.
            for parameter in &mut service.parameters {
                let [word] = &mut parameter.words[..] else {
                    continue;
                };
                match parameter.id {
                    parameter::HOPS => *word = word.saturating_add(1),
                    parameter::BANDWIDTH => *word = least(f32::from_bits(*word), offer.bandwidth).to_bits(),
                    parameter::LATENCY => *word = latency(*word, offer.latency_us),
                    parameter::MTU => *word = (*word).min(offer.mtu),
                    _ => {}
                }
            }
        }
    }

    /// How many words its services take on the wire.
    pub(crate) fn words(&self) -> usize {
        self.services.iter().map(|service| 1 + words_of(service)).sum()
    }

    pub(crate) fn read(object: &Object<'_>) -> Result<Adspec, WireError> {
        let what = "ADSPEC";
        if object.ctype != 2 {
            return Err(object.unknown_type());
        }
        let mut reader = Reader::new(object.body, object.body_at());
        lengths(&mut reader, what, (object.body.len() / 4).saturating_sub(1))?;
        let mut services = Vec::new();
        while reader.left() > 0 {
            let number = reader.u8(what)?;
            let flags = reader.u8(what)?;
            let length = usize::from(reader.u16(what)?) * 4;
            let at = reader.at();
            let mut body = Reader::new(reader.take(length, what)?, at);
            let mut parameters = Vec::new();
            while body.left() > 0 {
                let id = body.u8(what)?;
                let flags = body.u8(what)?;
                let count = usize::from(body.u16(what)?);
                let at = body.at();
                let mut values = Reader::new(body.take(count * 4, what)?, at);
                let mut words = Vec::with_capacity(count);
                while values.left() > 0 {
                    words.push(values.u32(what)?);
                }
                parameters.push(Parameter { id, flags, words });
            }
            services.push(Service { number, broken: flags & 0x80 != 0, parameters });
        }
        match services.first() {
            Some(first) if first.number == service::GENERAL => Ok(Adspec { services }),
            // RFC 2210 3.3: the general parameters come first, and are always there.
            _ => Err(WireError::new(object.at, Fault::Value("an ADSPEC begins with service 1"))),
        }
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        let words = self.words();
        writer.object(class::ADSPEC, 2, |body| {
            body.u32(u32::try_from(words & 0xffff).unwrap_or(0));
            for service in &self.services {
                body.u8(service.number);
                body.u8(if service.broken { 0x80 } else { 0 });
                body.u16(u16::try_from(words_of(service)).unwrap_or(u16::MAX));
                for parameter in &service.parameters {
                    body.u8(parameter.id);
                    body.u8(parameter.flags);
                    body.u16(u16::try_from(parameter.words.len()).unwrap_or(u16::MAX));
                    for word in &parameter.words {
                        body.u32(*word);
                    }
                }
            }
        });
    }
}

/// How many words the parameters of a service take on the wire.
fn words_of(service: &Service) -> usize {
    service.parameters.iter().map(|parameter| 1 + parameter.words.len()).sum()
}

/// The smaller bandwidth. A value that is no number is no bandwidth.
fn least(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.min(b),
        (true, false) => b,
        _ => a,
    }
}

/// The sum of two latencies (RFC 2215 3.4). What is not known stays so, and a sum that is too large
/// is not known.
fn latency(a: u32, b: u32) -> u32 {
    a.saturating_add(b)
}
