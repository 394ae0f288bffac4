//! A packet as a user writes it: `src=10.1.2.3 dst=192.0.2.1 proto=tcp sport=40000 dport=80`. The
//! keys and values are those of rules (`native/words.rs`, `names.rs`), one value each.

use std::net::IpAddr;

use altq_engine::classify::Field;
use altq_engine::headers::Key;

use crate::diagnostic::{Diagnostic, Findings, SourceId, Sources, Span, short};
use crate::names;
use crate::native::KEYS;
use crate::policy::Link;
use crate::suggest::did_you_mean;

/// The key by which a packet names the link that it comes to.
const LINK: &str = "link";
/// Protocols whose packets have ports: TCP, UDP, DCCP, SCTP and UDP-Lite.
const WITH_PORTS: [u32; 5] = [6, 17, 33, 132, 136];
/// ESP and AH, whose packets have an SPI.
const WITH_SPI: [u32; 2] = [50, 51];
const TCP: u32 = 6;

/// A packet that was read.
#[derive(Clone, Debug, Default)]
pub struct Packet {
    key: Key,
    /// The link that it names.
    link: Option<String>,
    /// The interface by which it comes.
    interface: Option<String>,
    /// The fields that it has.
    given: Vec<Field>,
}

/// What was read of a text: by field, the value and its place.
#[derive(Default)]
struct Read {
    addresses: Vec<(Field, IpAddr, Span)>,
    numbers: Vec<(Field, u32, Span)>,
    packet: Packet,
}

impl Packet {
    /// Reads a packet from a text of `sources`.
    ///
    /// # Errors
    /// What is wrong with it: unknown keys, values that a field cannot have, fields that no packet
    /// has together.
    pub fn read(sources: &Sources, source: SourceId) -> Result<Packet, Vec<Diagnostic>> {
        let (mut findings, mut read) = (Findings::default(), Read::default());
        let text = sources.text(source);
        let mut seen: Vec<&str> = Vec::new();
        for word in text.split_whitespace() {
            let start = word.as_ptr().addr() - text.as_ptr().addr();
            let span = Span { source, start, end: start + word.len() };
            let Some((key, value)) = word.split_once('=') else {
                let help = "as in `src=10.1.2.3 dst=192.0.2.1 proto=tcp sport=40000 dport=80`";
                let message = format!("`{}` is no `key=value` of a packet", short(word));
                findings.push(Diagnostic::error("unknown-word", span, message).help(help));
                continue;
            };
            if value.split_once(',').is_some_and(|(_, rest)| rest.contains('=')) {
                let error = Diagnostic::error("bad-value", span, "fields have spaces between them, not commas");
                findings.push(error.help(word.replace(',', " ")));
                continue;
            }
            if seen.contains(&key) {
                findings.push(Diagnostic::error("duplicate", span, format!("`{}` is given twice", short(key))));
                continue;
            }
            seen.push(key);
            if let Err(error) = read.word(key, value, span) {
                findings.push(error);
            }
        }
        if seen.is_empty() && !findings.has_errors() {
            let span = Span { source, start: 0, end: text.len() };
            let help = "as in `src=10.1.2.3 dst=192.0.2.1 proto=udp dport=53`";
            findings.push(Diagnostic::error("missing-value", span, "the packet has no field").help(help));
        }
        if !findings.has_errors() {
            findings.extend(read.finish());
        }
        if findings.has_errors() { Err(findings.into_list()) } else { Ok(read.packet) }
    }

    /// The link that it names, if it names one.
    pub fn link(&self) -> Option<&str> {
        self.link.as_deref()
    }

    /// The key by which the link's rules classify it.
    pub fn key(&self, link: &Link) -> Key {
        let known = &link.spec.rules.interfaces;
        let at = self.interface.as_ref().and_then(|name| known.iter().position(|known| known == name));
        let interface = at.and_then(|at| u16::try_from(at).ok()).unwrap_or(Key::NO_INTERFACE);
        Key { interface, ..self.key }
    }

    /// Fields that the link's rules look at and the packet does not have, each with what it counts
    /// as: `length 0`, `dport none`.
    pub fn missing(&self, link: &Link) -> Vec<String> {
        let has = |field: Field| self.given.contains(&field);
        let tos = has(Field::Tos);
        let missing = |field: Field| match field {
            // Packets without these match no rule about them, as the user sees in the answer.
            Field::Src | Field::Dst | Field::Host | Field::Family | Field::Proto => false,
            Field::Port => !has(Field::SrcPort) && !has(Field::DstPort),
            Field::Dscp | Field::Ecn => !tos && !has(field),
            Field::Tos => !tos && !has(Field::Dscp) && !has(Field::Ecn),
            _ => !has(field),
        };
        let mut fields: Vec<Field> =
            link.spec.rules.rules.iter().flat_map(|rule| &rule.terms).map(|term| term.field).collect();
        fields.sort_unstable();
        fields.dedup();
        let text = |field: Field| {
            let name = KEYS.iter().find(|(_, known)| *known == field).map_or("", |(name, _)| name);
            let none = matches!(
                field,
                Field::SrcPort | Field::DstPort | Field::Port | Field::Vlan | Field::Interface | Field::Spi
            );
            format!("{name} {}", if none { "none" } else { "0" })
        };
        fields.into_iter().filter(|field| missing(*field)).map(text).collect()
    }
}

impl Read {
    /// Takes in `key=value`.
    fn word(&mut self, key: &str, value: &str, span: Span) -> Result<(), Diagnostic> {
        let bad = |message: String| Diagnostic::error("bad-value", span, message);
        if key == LINK {
            self.packet.link = Some(value.to_owned());
            return Ok(());
        }
        let Some((_, field)) = KEYS.iter().find(|(known, _)| *known == key) else {
            let keys = KEYS.iter().map(|(known, _)| *known).filter(|known| !matches!(*known, "host" | "port"));
            let error = Diagnostic::error("unknown-word", span, format!("a packet has no `{}`", short(key)));
            return Err(error.help_if(did_you_mean(key, keys.chain([LINK]).collect::<Vec<_>>())));
        };
        match field {
            Field::Host | Field::Port => {
                let ends = if *field == Field::Host { "`src` and `dst`" } else { "`sport` and `dport`" };
                return Err(bad(format!("a packet has {ends}; `{key}` is for rules that mean either")));
            }
            Field::Src | Field::Dst => {
                let address: Result<IpAddr, _> = value.parse();
                let error = || bad(format!("`{}` is no address", short(value))).help("as 10.1.2.3 or 2001:db8::1");
                self.addresses.push((*field, address.map_err(|_| error())?, span));
            }
            Field::Interface => self.packet.interface = Some(value.to_owned()),
            Field::Family => {
                return Err(bad("the family of a packet is that of its addresses".to_owned()));
            }
            _ => {
                // A length may have the unit `bytes`.
                let plain = if *field == Field::Length { value.strip_suffix("bytes").unwrap_or(value) } else { value };
                let most = names::greatest(*field);
                let number = names::read(*field, plain).ok_or_else(|| {
                    let too_great = names::number(plain).is_some_and(|number| number > u64::from(most));
                    let message = if too_great {
                        format!("the greatest value of `{key}` is {most}")
                    } else {
                        format!("`{}` is no value of `{key}`", short(value))
                    };
                    bad(message).help_if(did_you_mean(plain, names::all(*field)))
                })?;
                self.numbers.push((*field, number, span));
            }
        }
        self.packet.given.push(*field);
        Ok(())
    }

    fn number(&self, field: Field) -> Option<(u32, Span)> {
        self.numbers.iter().find(|(known, ..)| *known == field).map(|(_, number, span)| (*number, *span))
    }

    /// Makes the key of what was read. Returns what does not go together.
    fn finish(&mut self) -> Vec<Diagnostic> {
        let mut wrong = Vec::new();
        let mut bad = |span: Span, message: &str| wrong.push(Diagnostic::error("bad-packet", span, message));
        let mut key = Key::default();
        match &self.addresses[..] {
            [] => {
                let ip =
                    self.numbers.iter().find(|(field, ..)| !matches!(field, Field::Length | Field::Mark | Field::Vlan));
                if let Some((.., span)) = ip {
                    bad(*span, "a packet that has this has `src` and `dst` as well");
                }
            }
            [(_, _, span)] => bad(*span, "a packet has both addresses, `src` and `dst`"),
            [(_, one, _), (_, other, span), ..] if one.is_ipv4() != other.is_ipv4() => {
                bad(*span, "one address is of IPv4 and the other of IPv6");
            }
            both => {
                for (field, address, _) in both {
                    let (family, bits) = match address {
                        IpAddr::V4(address) => (4, u128::from(address.to_bits())),
                        IpAddr::V6(address) => (6, address.to_bits()),
                    };
                    key.family = family;
                    *(if *field == Field::Src { &mut key.src } else { &mut key.dst }) = bits;
                }
            }
        }
        let protocol = self.number(Field::Proto).map(|(number, _)| number);
        let only = |field: Field, protocols: &[u32]| {
            let (_, span) = self.number(field)?;
            (!protocol.is_some_and(|protocol| protocols.contains(&protocol))).then_some(span)
        };
        if let Some(span) = only(Field::SrcPort, &WITH_PORTS).or_else(|| only(Field::DstPort, &WITH_PORTS)) {
            bad(span, "ports need a `proto` that has them: tcp, udp, udplite, sctp or dccp");
        }
        if let Some(span) = only(Field::TcpFlags, &[TCP]) {
            bad(span, "flags of TCP need `proto=tcp`");
        }
        if let Some(span) = only(Field::Spi, &WITH_SPI) {
            bad(span, "an SPI needs `proto=esp` or `proto=ah`");
        }
        if let Some((_, span)) = self.number(Field::FlowLabel).filter(|_| key.family == 4) {
            bad(span, "packets of IPv4 have no flow label");
        }
        let parts = self.number(Field::Dscp).or_else(|| self.number(Field::Ecn));
        if let Some((_, span)) = parts.filter(|_| self.number(Field::Tos).is_some()) {
            bad(span, "`tos` has DSCP and ECN in it: give either it or them");
        }
        let value = |field: Field| self.number(field).map_or(0, |(number, _)| number);
        let port = |field: Field| self.number(field).map(|(number, _)| number as u16);
        // The table of names has bounded each of them.
        key.tos = (value(Field::Tos) | value(Field::Dscp) << 2 | value(Field::Ecn)) as u8;
        key.proto = value(Field::Proto) as u8;
        key.tcp_flags = value(Field::TcpFlags) as u8;
        (key.length, key.mark) = (value(Field::Length), value(Field::Mark));
        (key.spi, key.flow_label) = (value(Field::Spi), value(Field::FlowLabel));
        self.packet.key =
            key.with_sport(port(Field::SrcPort)).with_dport(port(Field::DstPort)).with_vlan(port(Field::Vlan));
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Language, parse_str};

    fn read(text: &str) -> Result<Packet, String> {
        let mut sources = Sources::default();
        let source = sources.add("--packet".into(), text.to_owned());
        Packet::read(&sources, source).map_err(|errors| {
            let shown = errors.iter().map(|error| {
                let (line, column) = sources.line_column(error.span);
                format!("{line}:{column}: {}; {}", error.message, error.help.as_deref().unwrap_or_default())
            });
            shown.collect::<Vec<_>>().join("\n")
        })
    }

    #[test]
    fn a_packet_is_read() {
        let text = "link l { rate 1Mbit/s scheduler fifo class a { default }
            match interface eth7 -> a  match length 1-9 dscp ef port 53 -> a }";
        let policy = parse_str(text, "p.altq", Language::Native).unwrap();
        let link = &policy.links[0];
        let packet = read("src=10.1.2.3 dst=192.0.2.1 proto=tcp sport=40000 dport=http dscp=EF ecn=ce").unwrap();
        let key = packet.key(link);
        assert_eq!((key.family, key.src, key.dst, key.proto), (4, 0x0a01_0203, 0xc000_0201, 6));
        assert_eq!((key.sport(), key.dport(), key.tos, key.vlan()), (Some(40000), Some(80), 46 << 2 | 3, None));
        assert_eq!((key.interface, packet.link()), (Key::NO_INTERFACE, None));
        assert_eq!(packet.missing(link), ["length 0", "interface none"]);
        let ip = "src=2001:db8::1 dst=::1 proto=esp spi=0x10 flow-label=7 tos=0xb8";
        let packet = read(&format!("{ip} vlan=12 mark=0x1 length=90bytes\n interface=eth7 link=wan")).unwrap();
        let key = packet.key(link);
        assert_eq!((key.family, key.proto, key.spi, key.flow_label, key.tos), (6, 50, 16, 7, 0xb8));
        assert_eq!((key.vlan(), key.mark, key.length, key.interface), (Some(12), 1, 90, 0));
        assert_eq!((packet.link(), packet.missing(link).join(" ")), (Some("wan"), "port none".to_owned()));
        let flags = read("src=::1 dst=::2 proto=tcp tcp-flags=syn+ack").unwrap();
        assert_eq!((flags.key.tcp_flags, flags.key.sport()), (18, None));
        // Not IP: a frame of another protocol.
        assert_eq!(read("length=60 vlan=3").unwrap().key.family, 0);
    }

    #[test]
    fn what_no_packet_has_is_refused() {
        for (text, said) in [
            ("", "1:1: the packet has no field; as in"),
            ("src=1.2.3.4 dst=1.2.3.5 dprt=80", "1:25: a packet has no `dprt`; did you mean `dport`?"),
            ("src=1.2.3.4 dst=1.2.3.5 tcp", "1:25: `tcp` is no `key=value`"),
            ("src=1.2.3.4,dst=1.2.3.5", "1:1: fields have spaces between them, not commas"),
            ("src=1.2.3.4", "1:1: a packet has both addresses"),
            ("src=1.2.3.4 dst=::1", "1:13: one address is of IPv4"),
            ("src=1.2.3.4 src=1.2.3.5", "1:13: `src` is given twice"),
            ("src=10.0.0.0/8 dst=1.2.3.4", "1:1: `10.0.0.0/8` is no address; as 10.1.2.3"),
            ("dport=80", "1:1: a packet that has this has `src` and `dst`"),
            ("src=1.2.3.4 dst=1.2.3.5 dport=80", "1:25: ports need a `proto`"),
            ("src=1.2.3.4 dst=1.2.3.5 proto=icmp sport=1", "1:36: ports need a `proto`"),
            ("src=1.2.3.4 dst=1.2.3.5 proto=udp dport=65536", "1:35: the greatest value of `dport` is 65535"),
            ("src=1.2.3.4 dst=1.2.3.5 proto=udp tcp-flags=syn", "1:35: flags of TCP need"),
            ("src=1.2.3.4 dst=1.2.3.5 proto=tpc", "1:25: `tpc` is no value of `proto`; did you mean `tcp`?"),
            ("src=1.2.3.4 dst=1.2.3.5 dscp=64", "1:25: the greatest value of `dscp` is 63"),
            ("src=1.2.3.4 dst=1.2.3.5 dscp=1 tos=4", "1:25: `tos` has DSCP and ECN in it"),
            ("src=1.2.3.4 dst=1.2.3.5 spi=4", "1:25: an SPI needs"),
            ("src=1.2.3.4 dst=1.2.3.5 flow-label=4", "1:25: packets of IPv4 have no flow label"),
            ("src=1.2.3.4 dst=1.2.3.5 family=ipv4", "1:25: the family of a packet is that of its addresses"),
            ("host=1.2.3.4", "1:1: a packet has `src` and `dst`; `host` is for rules"),
            ("src=é dst==", "1:1: `é` is no address"),
        ] {
            let wrong = read(text).unwrap_err();
            assert!(wrong.contains(said), "{text}: {wrong}");
        }
    }
}
