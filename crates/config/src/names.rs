//! Names of protocols, services, DSCPs and flags.

use altq_engine::classify::Field;

const PROTOCOLS: &[(&str, u32)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("ospf", 89),
    ("sctp", 132),
    ("udplite", 136),
    ("pim", 103),
    ("vrrp", 112),
    ("ipv6", 41),
];

/// The services that policies name, with their ports as IANA registers them.
const SERVICES: &[(&str, u32)] = &[
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("gopher", 70),
    ("finger", 79),
    ("http", 80),
    ("www", 80),
    ("kerberos", 88),
    ("pop3", 110),
    ("sunrpc", 111),
    ("auth", 113),
    ("nntp", 119),
    ("ntp", 123),
    ("imap", 143),
    ("snmp", 161),
    ("snmptrap", 162),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("submission", 587),
    ("syslog", 514),
    ("rtsp", 554),
    ("ldaps", 636),
    ("imaps", 993),
    ("pop3s", 995),
    ("socks", 1080),
    ("openvpn", 1194),
    ("nfs", 2049),
    ("mysql", 3306),
    ("rdp", 3389),
    ("sip", 5060),
    ("sips", 5061),
    ("postgresql", 5432),
    ("wireguard", 51820),
];

/// RFC 2474 4.2.2, RFC 2597 6, RFC 3246 2.7 (EF), RFC 5865 4 (VA), RFC 8622 6 (LE).
const DSCPS: &[(&str, u32)] = &[
    ("be", 0),
    ("cs0", 0),
    ("df", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

/// RFC 3168 5.
const ECNS: &[(&str, u32)] = &[("not-ect", 0), ("ect1", 1), ("ect0", 2), ("ce", 3)];

const FLAGS: &[(&str, u32)] =
    &[("fin", 1), ("syn", 2), ("rst", 4), ("psh", 8), ("ack", 16), ("urg", 32), ("ece", 64), ("cwr", 128), ("none", 0)];

const FAMILIES: &[(&str, u32)] = &[("ipv4", 4), ("ipv6", 6)];

fn table(field: Field) -> &'static [(&'static str, u32)] {
    match field {
        Field::Proto => PROTOCOLS,
        Field::SrcPort | Field::DstPort | Field::Port => SERVICES,
        Field::Dscp => DSCPS,
        Field::Ecn => ECNS,
        Field::TcpFlags => FLAGS,
        Field::Family => FAMILIES,
        _ => &[],
    }
}

/// The value that a name stands for in a field; `None` if the field has no such name. DSCPs
/// may be in capitals, as RFCs write them: `EF` is `ef`.
pub fn value(field: Field, name: &str) -> Option<u32> {
    table(field)
        .iter()
        .find(|(known, _)| *known == name || field == Field::Dscp && known.eq_ignore_ascii_case(name))
        .map(|(_, value)| *value)
}

/// The name of a value in a field: the first, where it has several.
pub fn name(field: Field, value: u32) -> Option<&'static str> {
    table(field).iter().find(|(_, known)| *known == value).map(|(name, _)| *name)
}

/// The number of an IP protocol, by its name or as a number from 0 to 255.
pub fn protocol(text: &str) -> Option<u8> {
    let named = value(Field::Proto, text).and_then(|number| u8::try_from(number).ok());
    named.or_else(|| text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit())))
}

/// The name of an IP protocol; `None` for one that policies do not name.
pub fn protocol_name(number: u8) -> Option<&'static str> {
    name(Field::Proto, u32::from(number))
}

/// All names that a field has.
pub fn all(field: Field) -> Vec<&'static str> {
    table(field).iter().map(|(name, _)| *name).collect()
}

/// The greatest value of a field that holds numbers.
pub fn greatest(field: Field) -> u32 {
    match field {
        Field::SrcPort | Field::DstPort | Field::Port => 65535,
        Field::Proto | Field::Tos | Field::TcpFlags => 255,
        Field::Dscp => 63,
        Field::Ecn => 3,
        Field::Vlan => 4095,
        Field::FlowLabel => 0xfffff,
        _ => u32::MAX,
    }
}

/// A number, decimal or hexadecimal (`0xb8`).
pub fn number(text: &str) -> Option<u64> {
    let hex = text.strip_prefix("0x");
    if text.len() > 20 || !hex.unwrap_or(text).bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    match hex {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// One value of a field: a name that the field has, TCP flags joined by `+`, or a number that is
/// not too great.
pub fn read(field: Field, text: &str) -> Option<u32> {
    if field == Field::TcpFlags && !text.starts_with(|c: char| c.is_ascii_digit()) {
        return text.split('+').try_fold(0, |flags, name| Some(flags | value(field, name)?));
    }
    let number = || number(text).filter(|number| *number <= u64::from(greatest(field))).map(|number| number as u32);
    value(field, text).or_else(number)
}
