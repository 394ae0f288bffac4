//! Requests and answers in the form of the control socket: one JSON object each.

use std::collections::BTreeMap;
use std::fmt;

use altq_engine::link::{Framing, Overhead};
use altq_engine::units::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

use crate::flow::Flow;
use crate::room::Refusal;
use crate::tspec::{Cost, Tspec};

/// The most bytes of a request.
pub const MOST_BYTES: usize = 64 * 1024;
/// The most flows of a reservation.
pub const MOST_FLOWS: usize = 64;
/// The most bytes of a key, of an owner's name, and of the name of a class.
pub const MOST_NAME: usize = 255;
/// The longest time to live: ten years, in seconds.
const MOST_TTL_S: f64 = 315_360_000.0;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Makes a reservation. If one with this key exists, changes it like [`Op::Modify`].
    Add,
    /// Changes a reservation. What is not given stays.
    Modify,
    /// Starts the time to live anew.
    Refresh,
    /// Ends a reservation.
    Del,
    /// Lists the reservations.
    List,
    /// Sends events from now on.
    Watch,
}

/// The service that a reservation gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// RFC 2211.
    ControlledLoad,
    /// RFC 2212. It is refused.
    Guaranteed,
}

/// What becomes of packets beyond rate and burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Excess {
    /// They wait in the same queue, and are sent with bandwidth that others leave. So packets stay
    /// in order, which TCP needs.
    #[default]
    Borrow,
    /// They go to the link's default class at once. So conforming packets never wait for them,
    /// which is good for voice.
    Default,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What a request asks for.
    pub op: Op,
    /// The number of the reservation. If there is a `key`, the key counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The name that its owner gave the reservation. The same key means the same reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The owner. Only the same owner can change the reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// `None`: controlled load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Seconds until it ends unless it is refreshed. `None`: as before; for a new one, as long as
    /// the policy allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<f64>,
    /// The policy's class for reservations, `CLASS` or `LINK/CLASS`. `None`: the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_class: Option<String>,
    /// The flows that share the reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<Vec<Flow>>,
    /// Rate, burst and packet sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tspec: Option<Tspec>,
    /// What becomes of packets beyond rate and burst. `None`: as before; for a new one, they
    /// borrow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excess: Option<Excess>,
    /// The longest that a conforming packet may wait, in nanoseconds. `None`: as before; for a new
    /// one, the policy's `delay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<Nanos>,
}

/// Why a text is not a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

impl Request {
    /// A request with an operation and no other fields.
    pub fn new(op: Op) -> Request {
        Request {
            op,
            id: None,
            key: None,
            owner: None,
            service: None,
            ttl_s: None,
            within_class: None,
            flows: None,
            tspec: None,
            excess: None,
            delay_ns: None,
        }
    }

    /// Reads a request: JSON of at most [`MOST_BYTES`] bytes.
    ///
    /// # Errors
    /// What is wrong, in a line of at most 200 characters without control characters.
    pub fn parse(bytes: &[u8]) -> Result<Request, Malformed> {
        if bytes.len() > MOST_BYTES {
            return Err(Malformed(format!("a request has at most {MOST_BYTES} bytes, not {}", bytes.len())));
        }
        let printable = |text: String| text.chars().filter(|c| !c.is_control()).take(200).collect();
        let request: Request =
            serde_json::from_slice(bytes).map_err(|error| Malformed(printable(error.to_string())))?;
        request.check().map_err(Malformed)?;
        Ok(request)
    }

    /// Checks the ranges of all values.
    ///
    /// # Errors
    /// Which value is wrong.
    pub fn check(&self) -> Result<(), String> {
        for (word, text) in [("key", &self.key), ("owner", &self.owner), ("within_class", &self.within_class)] {
            let Some(text) = text else { continue };
            if text.is_empty() || text.len() > MOST_NAME || text.chars().any(char::is_control) {
                return Err(format!("`{word}` has 1 to {MOST_NAME} bytes and no control characters"));
            }
        }
        if let Some(ttl) = self.ttl_s
            && !(ttl > 0.0 && ttl <= MOST_TTL_S)
        {
            return Err(format!("`ttl_s` is more than 0 and at most {MOST_TTL_S} seconds"));
        }
        if let Some(flows) = &self.flows {
            if flows.is_empty() || flows.len() > MOST_FLOWS {
                return Err(format!("a reservation has 1 to {MOST_FLOWS} flows, not {}", flows.len()));
            }
            for (at, flow) in flows.iter().enumerate() {
                if flows[..at].contains(flow) {
                    return Err(format!("the flow {flow} is given twice"));
                }
            }
        }
        if self.delay_ns == Some(0) {
            return Err("no packet waits for no time: `delay_ns` is more than 0".to_owned());
        }
        Ok(())
    }

    /// The time to live, in nanoseconds.
    pub(crate) fn ttl(&self) -> Option<Nanos> {
        // `check` allows at most ten years, which fit into 64 bits. Less than a nanosecond counts
        // as one.
        self.ttl_s.map(|ttl| ((ttl * SECOND as f64) as Nanos).max(1))
    }
}

/// The answer to [`Op::Add`], [`Op::Modify`], [`Op::Refresh`] and [`Op::Del`].
///
/// If a change is refused, `id`, `class` and `expires_s` are those of the existing reservation, and
/// the rates are those that were asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Answer {
    /// `altq.reserve/1`.
    pub schema: &'static str,
    /// Whether the request was granted.
    pub granted: bool,
    /// The number of the reservation.
    pub id: Option<u64>,
    /// Its key.
    pub key: Option<String>,
    /// Its owner.
    pub owner: Option<String>,
    /// The name of its class.
    pub class: Option<String>,
    /// The rate, in bit/s at layer 3.
    pub rate_bit_s: Option<u64>,
    /// What the link charges for it, in bit/s.
    pub charged_bit_s: Option<u64>,
    /// Seconds until it ends; `None`: it does not end by itself.
    pub expires_s: Option<f64>,
    /// Why it is refused.
    pub reason: Option<String>,
    /// What is in the way: the name of a class, of a link, or of an owner.
    pub bottleneck: Option<String>,
    /// The highest rate that would have been granted, in bit/s at layer 3, with everything else the
    /// same. `None` if a lower rate would not help.
    pub would_fit_bit_s: Option<u64>,
    /// The error code of RFC 2205, appendix B.
    pub rsvp_code: Option<u8>,
    /// The error value that belongs to the code.
    pub rsvp_value: Option<u16>,
}

impl Answer {
    /// An answer to a request without an existing reservation.
    pub(crate) fn to(request: &Request) -> Answer {
        Answer {
            schema: "altq.reserve/1",
            granted: false,
            id: None,
            key: request.key.clone(),
            owner: request.owner.clone(),
            class: None,
            rate_bit_s: request.tspec.map(|tspec| tspec.rate_bit_s),
            charged_bit_s: None,
            expires_s: None,
            reason: None,
            bottleneck: None,
            would_fit_bit_s: None,
            rsvp_code: None,
            rsvp_value: None,
        }
    }

    /// The same answer as a refusal, with its reasons.
    pub(crate) fn refused(self, refusal: Refusal) -> Answer {
        let Refusal { code, reason, bottleneck, charged, would_fit } = refusal;
        Answer {
            granted: false,
            reason: Some(reason),
            bottleneck,
            charged_bit_s: charged,
            would_fit_bit_s: would_fit,
            rsvp_code: code.map(|(code, _)| code),
            rsvp_value: code.map(|(_, value)| value),
            ..self
        }
    }

    /// A refusal of a request that reaches no table, without a code of RSVP.
    pub fn refusing(request: &Request, why: impl Into<String>) -> Answer {
        Answer::to(request).refused(Refusal::because(why))
    }

    /// The answer to a text that is not a request.
    pub fn malformed(why: &Malformed) -> Answer {
        Answer::to(&Request::new(Op::List)).refused(Refusal::because(why.to_string()))
    }
}

/// What a link charges for a packet beyond its own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OnWire {
    /// Bytes added to every packet; may be negative.
    pub bytes: i32,
    /// The least length of a packet with these added, before framing.
    pub mpu_bytes: u32,
    /// How it is framed.
    pub framing: Framed,
}

/// Framing that packs packets into cells or blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Framed {
    /// Bytes as they are.
    Plain,
    /// Cells of ATM.
    Atm,
    /// Blocks of PTM.
    Ptm,
}

impl OnWire {
    /// The cost of a token bucket's bytes on this link.
    pub fn cost(self, tspec: &Tspec, mtu: u32) -> Cost {
        let framing = match self.framing {
            Framed::Plain => Framing::Plain,
            Framed::Atm => Framing::Atm,
            Framed::Ptm => Framing::Ptm,
        };
        Cost::of(&Overhead { bytes: self.bytes, mpu: self.mpu_bytes, framing }, tspec, mtu)
    }
}

impl From<Overhead> for OnWire {
    fn from(overhead: Overhead) -> OnWire {
        let framing = match overhead.framing {
            Framing::Plain => Framed::Plain,
            Framing::Atm => Framed::Atm,
            Framing::Ptm => Framed::Ptm,
        };
        OnWire { bytes: overhead.bytes, mpu_bytes: overhead.mpu, framing }
    }
}

/// The answer to [`Op::List`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct List {
    /// `altq.reservations/1`.
    pub schema: &'static str,
    /// The link.
    pub link: String,
    /// Its class for reservations.
    pub class: String,
    /// The link's MTU, in bytes.
    pub mtu_bytes: u32,
    /// What the link charges for a packet beyond its own bytes.
    pub overhead: OnWire,
    /// What may be reserved in all, in charged bit/s.
    pub reservable_bit_s: u64,
    /// What is reserved, in charged bit/s.
    pub charged_bit_s: u64,
    /// The most that the bursts may add up to, in bytes.
    pub buffer_bytes: u64,
    /// The sum of the bursts, in bytes.
    pub burst_bytes: u64,
    /// How many requests for a reservation, or for a change of one, were refused since the process
    /// that answers was started, by reason: `delay`, `bandwidth`, `mtu`, `policy`, `service`,
    /// `flowspec`, `system` or `request`. A reason for which none was refused is not there.
    pub refused: BTreeMap<&'static str, u64>,
    /// The reservations, by number.
    pub reservations: Vec<Listed>,
}

/// A reservation in a [`List`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Listed {
    /// Its number.
    pub id: u64,
    /// Its key.
    pub key: Option<String>,
    /// Its owner.
    pub owner: Option<String>,
    /// The name of its class.
    pub class: String,
    /// Its rate, burst and packet sizes.
    pub tspec: Tspec,
    /// What the link charges for it, in bit/s.
    pub charged_bit_s: u64,
    /// What becomes of packets beyond rate and burst.
    pub excess: Excess,
    /// The longest wait of a conforming packet that its owner asked for, in nanoseconds.
    pub delay_ns: Option<Nanos>,
    /// Seconds until it ends; `None`: it does not end by itself.
    pub expires_s: Option<f64>,
    /// Its flows.
    pub flows: Vec<Flow>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Reply {
    /// The answer to all other operations.
    Answer(Box<Answer>),
    /// The answer to [`Op::List`].
    List(List),
    /// The answer to [`Op::Watch`]: the events from this number on follow.
    Watching {
        /// The number of the first event.
        from: u64,
    },
}

/// A span of time in seconds.
pub(crate) fn seconds(span: Nanos) -> f64 {
    span as f64 / SECOND as f64
}
