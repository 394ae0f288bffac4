//! Flows: which packets belong to a reservation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use altq_config::{protocol, protocol_name};
use altq_engine::classify::{Address, Field, Term, Values};
use serde::{Deserialize, Serialize};

/// The protocols that have ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// Some fields of a packet, at least one. A field that is not given may have any value.
///
/// In JSON: `{"src":"10.0.1.1","sport":4000,"dst":"10.0.2.2","dport":5004,"proto":"udp"}`, with
/// addresses or prefixes, and a protocol by name or number. Port 0 means any port.
///
/// ```
/// let flow: altq_reserve::Flow = "proto=udp src=10.1.0.0/16 dst=10.0.2.2 dport=5004".parse().unwrap();
/// assert_eq!(flow.to_string(), "src=10.1.0.0/16 dst=10.0.2.2 dport=5004 proto=udp");
/// assert!("dport=5004 proto=icmp".parse::<altq_reserve::Flow>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "FlowText", into = "FlowText")]
pub struct Flow {
    src: Option<Address>,
    sport: Option<u16>,
    dst: Option<Address>,
    dport: Option<u16>,
    proto: Option<u8>,
}

/// A flow in the form of JSON.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct FlowText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    src: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sport: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dst: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dport: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proto: Option<Proto>,
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
enum Proto {
    Number(u8),
    Name(String),
}

impl Flow {
    /// The terms of the rule that leads the flow's packets to their class.
    pub fn terms(&self) -> Vec<Term> {
        let mut terms = Vec::with_capacity(5);
        let mut add = |field, values| terms.push(Term { field, negated: false, values });
        let number = |n: u32| Values::Ranges(vec![(n, n)]);
        if let Some(address) = self.src {
            add(Field::Src, Values::Addresses(vec![address]));
        }
        if let Some(address) = self.dst {
            add(Field::Dst, Values::Addresses(vec![address]));
        }
        if let Some(port) = self.sport {
            add(Field::SrcPort, number(u32::from(port)));
        }
        if let Some(port) = self.dport {
            add(Field::DstPort, number(u32::from(port)));
        }
        if let Some(proto) = self.proto {
            add(Field::Proto, number(u32::from(proto)));
        }
        terms
    }

    /// Refuses a flow to which no packet, or every packet, would belong.
    fn checked(self) -> Result<Flow, String> {
        let ports = self.sport.is_some() || self.dport.is_some();
        if !ports && self.src.is_none() && self.dst.is_none() && self.proto.is_none() {
            return Err("a flow needs an address, a port or a protocol".to_owned());
        }
        if let (Some(src), Some(dst)) = (self.src, self.dst)
            && src.v6 != dst.v6
        {
            return Err("one address of the flow is IPv4, the other IPv6".to_owned());
        }
        if let Some(proto) = self.proto.filter(|proto| ports && !WITH_PORTS.contains(proto)) {
            return Err(format!("packets of protocol {} have no ports", proto_text(proto)));
        }
        Ok(self)
    }
}

impl TryFrom<FlowText> for Flow {
    type Error = String;

    fn try_from(text: FlowText) -> Result<Flow, String> {
        let address = |text: Option<String>| text.map(|text| address(&text)).transpose();
        let proto = match text.proto {
            None => None,
            Some(Proto::Number(number)) => Some(number),
            Some(Proto::Name(name)) => Some(proto(&name)?),
        };
        let port = |port: Option<u16>| port.filter(|port| *port != 0);
        let (src, dst) = (address(text.src)?, address(text.dst)?);
        Flow { src, sport: port(text.sport), dst, dport: port(text.dport), proto }.checked()
    }
}

impl From<Flow> for FlowText {
    fn from(flow: Flow) -> FlowText {
        let name = |number: u8| match protocol_name(number) {
            Some(name) => Proto::Name(name.to_owned()),
            None => Proto::Number(number),
        };
        FlowText {
            src: flow.src.map(address_text),
            sport: flow.sport,
            dst: flow.dst.map(address_text),
            dport: flow.dport,
            proto: flow.proto.map(name),
        }
    }
}

impl FromStr for Flow {
    type Err = String;

    /// Reads `proto=udp src=10.0.1.1 sport=4000 dst=10.0.2.2 dport=5004`, in any order.
    fn from_str(text: &str) -> Result<Flow, String> {
        let mut flow = Flow { src: None, sport: None, dst: None, dport: None, proto: None };
        let mut seen: Vec<&str> = Vec::new();
        for word in text.split_whitespace() {
            let Some((key, value)) = word.split_once('=') else {
                return Err(format!("`{}` is no `key=value` of a flow", short(word)));
            };
            if seen.contains(&key) {
                return Err(format!("`{}` is given twice", short(key)));
            }
            seen.push(key);
            let port = |value: &str| {
                let digits = value.bytes().all(|byte| byte.is_ascii_digit());
                let number: Option<u16> = value.parse().ok().filter(|_| digits);
                number.ok_or_else(|| format!("`{}` is no port: they are 0 to 65535", short(value)))
            };
            match key {
                "src" => flow.src = Some(address(value)?),
                "dst" => flow.dst = Some(address(value)?),
                "sport" => flow.sport = Some(port(value)?).filter(|port| *port != 0),
                "dport" => flow.dport = Some(port(value)?).filter(|port| *port != 0),
                "proto" => flow.proto = Some(proto(value)?),
                _ => return Err(format!("a flow has src, sport, dst, dport and proto, no `{}`", short(key))),
            }
        }
        flow.checked()
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            self.src.map(|address| format!("src={}", address_text(address))),
            self.sport.map(|port| format!("sport={port}")),
            self.dst.map(|address| format!("dst={}", address_text(address))),
            self.dport.map(|port| format!("dport={port}")),
            self.proto.map(|number| format!("proto={}", proto_text(number))),
        ];
        f.write_str(&words.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

/// The first 40 characters of a word, for messages.
fn short(word: &str) -> &str {
    word.char_indices().nth(40).and_then(|(at, _)| word.get(..at)).unwrap_or(word)
}

fn proto(text: &str) -> Result<u8, String> {
    protocol(text).ok_or_else(|| format!("no protocol is called `{}`", short(text)))
}

fn proto_text(number: u8) -> String {
    protocol_name(number).map_or_else(|| number.to_string(), str::to_owned)
}

/// The mask that covers a whole address of the family.
fn full(v6: bool) -> u128 {
    if v6 { u128::MAX } else { u128::from(u32::MAX) }
}

/// Reads an address, or a prefix without bits set after its length.
fn address(text: &str) -> Result<Address, String> {
    let (host, length) = match text.split_once('/') {
        Some((host, length)) => (host, Some(length)),
        None => (text, None),
    };
    let wrong = || format!("`{}` is no address and no prefix", short(text));
    let (v6, bits, width) = match host.parse::<IpAddr>().map_err(|_| wrong())? {
        IpAddr::V4(address) => (false, u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (true, address.to_bits(), 128),
    };
    let length: u32 = match length {
        None => width,
        Some(text) => {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u32>().ok().filter(|length| digits && *length <= width).ok_or_else(wrong)?
        }
    };
    let mask = full(v6) & !full(v6).checked_shr(length).unwrap_or(0);
    if bits & !mask != 0 {
        return Err(format!("`{}` has bits set after the length of its prefix", short(text)));
    }
    Ok(Address { v6, bits, mask })
}

fn address_text(address: Address) -> String {
    let host = if address.v6 {
        Ipv6Addr::from_bits(address.bits).to_string()
    } else {
        Ipv4Addr::from_bits(u32::try_from(address.bits).unwrap_or(u32::MAX)).to_string()
    };
    if address.mask == full(address.v6) { host } else { format!("{host}/{}", address.mask.count_ones()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_read_and_written() {
        let flow: Flow = "dst=2001:db8::/32 sport=0 proto=132 dport=9".parse().unwrap();
        assert_eq!(flow.to_string(), "dst=2001:db8::/32 dport=9 proto=sctp");
        let json = serde_json::to_string(&flow).unwrap();
        assert_eq!(json, r#"{"dst":"2001:db8::/32","dport":9,"proto":"sctp"}"#);
        assert_eq!(serde_json::from_str::<Flow>(&json).unwrap(), flow);
        let unnamed: Flow = serde_json::from_str(r#"{"src":"10.0.0.1","proto":200}"#).unwrap();
        assert_eq!(serde_json::to_string(&unnamed).unwrap(), r#"{"src":"10.0.0.1","proto":200}"#);
    }

    #[test]
    fn what_is_no_flow() {
        for (text, why) in [
            ("", "needs"),
            ("sport=0", "needs"),
            ("src=10.0.0.1 dst=::1", "IPv6"),
            ("dport=80 proto=icmp", "no ports"),
            ("dport=80 dport=81", "twice"),
            ("dport=+80", "no port"),
            ("dport=65536", "no port"),
            ("src=10.0.0.1/8", "after the length"),
            ("src=10.0.0.0/33", "no address"),
            ("src=10.0.0.0/+8", "no address"),
            ("src=10.0.0.0/", "no address"),
            ("src=host.example", "no address"),
            ("proto=tpc", "no protocol"),
            ("proto=256", "no protocol"),
            ("color=red", "no `color`"),
            ("udp", "key=value"),
        ] {
            let error = text.parse::<Flow>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(serde_json::from_str::<Flow>(r#"{"src":"10.0.0.1","via":"x"}"#).is_err());
    }

    #[test]
    fn the_rule_of_a_flow_by_hand() {
        let flow: Flow = "src=10.1.0.0/16 dport=5004 proto=udp".parse().unwrap();
        let address = Address { v6: false, bits: 0x0a01_0000, mask: 0xffff_0000 };
        let term = |field, values| Term { field, negated: false, values };
        let expected = [
            term(Field::Src, Values::Addresses(vec![address])),
            term(Field::DstPort, Values::Ranges(vec![(5004, 5004)])),
            term(Field::Proto, Values::Ranges(vec![(17, 17)])),
        ];
        assert_eq!(flow.terms(), expected);
    }
}
