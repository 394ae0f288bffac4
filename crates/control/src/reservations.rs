//! Requests about reservations in the form of the control socket (docs/reserve.md), and the
//! documents that answer them.
//!
//! `op` is `reserve.add` or `add`, and so on. On the socket `id` numbers requests, so the number of
//! a reservation is called `number` there.

use altq_reserve::{
    Answer, Event, Excess, Flow, List, MOST_BYTES, Op, Request as Asked, Restored, Service, State, Tspec,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::rights::Right;

/// The prefix of the names of requests about reservations. A client may leave it out.
const BEFORE: &str = "reserve.";
/// The request that gives a worker the reservations of the previous worker.
pub const RESTORE: &str = "reserve.restore";

/// What is asked about reservations.
#[derive(Clone, Debug, PartialEq)]
pub enum Reserve {
    /// A request that any client may send.
    Ask(Box<Asked>),
    /// A worker is given the reservations of the previous one.
    Restore(Box<Restore>),
}

// A time to live is a number of JSON, which is never NaN.
impl Eq for Reserve {}

/// The reservations of a link, or some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restore {
    /// The reservations; `None`: no more.
    pub state: Option<State>,
    /// True if nothing more comes: from now on clients are answered.
    pub last: bool,
}

impl Reserve {
    /// What it needs.
    pub fn needs(&self) -> Right {
        match self {
            Reserve::Ask(asked) if matches!(asked.op, Op::List | Op::Watch) => Right::Read,
            Reserve::Ask(_) | Reserve::Restore(_) => Right::Write,
        }
    }

    /// True if the client wants to be sent what happens from now on.
    pub fn watches(&self) -> bool {
        matches!(self, Reserve::Ask(asked) if asked.op == Op::Watch)
    }
}

/// The operation of a request with this name; `None` if it is not about reservations.
pub fn op(name: &str) -> Option<Op> {
    Some(match name.strip_prefix(BEFORE).unwrap_or(name) {
        "add" => Op::Add,
        "modify" => Op::Modify,
        "refresh" => Op::Refresh,
        "del" => Op::Del,
        "list" => Op::List,
        "watch" => Op::Watch,
        _ => return None,
    })
}

/// The name of a request.
pub fn name(op: Op) -> &'static str {
    match op {
        Op::Add => "reserve.add",
        Op::Modify => "reserve.modify",
        Op::Refresh => "reserve.refresh",
        Op::Del => "reserve.del",
        Op::List => "reserve.list",
        Op::Watch => "reserve.watch",
    }
}

/// Reads a request of this name from its line.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read(op: Op, line: &[u8]) -> Result<Reserve, Fault> {
    if line.len() > MOST_BYTES {
        return Err(Fault::usage(format!("a request about a reservation has at most {MOST_BYTES} bytes")));
    }
    let asked = fields::<Written>(line)?.request(op);
    // A list may be limited to one class; a client that watches sees all.
    let allowed = match op {
        Op::Watch => asked == Asked::new(op),
        Op::List => asked == Asked { within_class: asked.within_class.clone(), ..Asked::new(op) },
        _ => true,
    };
    if !allowed {
        return Err(Fault::usage(format!("`{}` takes none of the fields of a reservation", name(op))));
    }
    asked.check().map_err(Fault::usage)?;
    Ok(Reserve::Ask(Box::new(asked)))
}

/// Reads the request that restores reservations.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read_restore(line: &[u8]) -> Result<Reserve, Fault> {
    let WrittenRestore { state, last, .. } = fields::<WrittenRestore>(line)?;
    Ok(Reserve::Restore(Box::new(Restore { state, last })))
}

fn fields<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Result<T, Fault> {
    // Control characters in a key or a flow are not repeated in the message.
    let printable = |text: String| text.chars().filter(|c| !c.is_control()).take(200).collect::<String>();
    serde_json::from_slice(line).map_err(|error| Fault::usage(printable(error.to_string())))
}

/// A request as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "op")]
    _op: IgnoredAny,
    number: Option<u64>,
    key: Option<String>,
    owner: Option<String>,
    service: Option<Service>,
    ttl_s: Option<f64>,
    within_class: Option<String>,
    flows: Option<Vec<Flow>>,
    tspec: Option<Tspec>,
    excess: Option<Excess>,
    delay_ns: Option<u64>,
}

impl Written {
    fn request(self, op: Op) -> Asked {
        let Written { number, key, owner, service, ttl_s, within_class, flows, tspec, excess, delay_ns, .. } = self;
        Asked { op, id: number, key, owner, service, ttl_s, within_class, flows, tspec, excess, delay_ns }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRestore {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "op")]
    _op: IgnoredAny,
    state: Option<State>,
    #[serde(default)]
    last: bool,
}

/// The fields of a request, for a client, without the request's name and number.
#[derive(Clone, Debug, Serialize)]
pub struct Fields<'a> {
    /// The number of the reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<&'a str>,
    /// Its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<&'a str>,
    /// The service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Seconds until it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<f64>,
    /// The policy's class for reservations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_class: Option<&'a str>,
    /// The flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<&'a [Flow]>,
    /// How much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tspec: Option<Tspec>,
    /// What becomes of packets beyond that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excess: Option<Excess>,
    /// The longest wait, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<u64>,
}

impl<'a> From<&'a Asked> for Fields<'a> {
    fn from(asked: &'a Asked) -> Fields<'a> {
        Fields {
            number: asked.id,
            key: asked.key.as_deref(),
            owner: asked.owner.as_deref(),
            service: asked.service,
            ttl_s: asked.ttl_s,
            within_class: asked.within_class.as_deref(),
            flows: asked.flows.as_deref(),
            tspec: asked.tspec,
            excess: asked.excess,
            delay_ns: asked.delay_ns,
        }
    }
}

/// The reservations of all links: the answer to `reserve.list`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Places {
    /// A list for each class for reservations, in the order of the links.
    pub places: Vec<List>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Said {
    /// The answer to requests about one reservation.
    Answer(Box<Answer>),
    /// The answer to `reserve.list`.
    Places(Places),
}

/// The outcome of restoring reservations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Again {
    /// How many exist again.
    pub restored: usize,
    /// How many had ended in the meantime.
    pub expired: usize,
    /// Those that were refused: number and reason.
    pub refused: Vec<(u64, String)>,
}

impl From<Restored> for Again {
    fn from(from: Restored) -> Again {
        Again { restored: from.restored, expired: from.expired, refused: from.refused }
    }
}

/// An event with its link, as a line for clients that watch. Events are numbered across all links.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Told<'a> {
    #[serde(flatten)]
    pub event: Event,
    pub link: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Code;
    use crate::request;

    fn reads(text: &str) -> Reserve {
        match request::read(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error:?}")).request {
            request::Request::Reserve(asked) => asked,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn asks(text: &str) -> Asked {
        match reads(text) {
            Reserve::Ask(asked) => *asked,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// The request of an RSVP daemon (docs/reserve.md), with and without the word before its name.
    #[test]
    fn a_request_is_read_under_both_names() {
        for op in ["add", "reserve.add"] {
            let text = format!(
                r#"{{"v":1,"id":9,"op":"{op}","key":"rsvp:10.0.2.2/17/5004","owner":"rsvp:10.0.12.2",
                "service":"controlled-load","ttl_s":157.5,"within_class":"res",
                "flows":[{{"src":"10.0.1.1","sport":4000,"dst":"10.0.2.2","dport":5004,"proto":"udp"}}],
                "tspec":{{"rate_bit_s":500000,"burst_bytes":10000,"peak_bit_s":null,"min_unit_bytes":128,
                "max_packet_bytes":1500}},"excess":"borrow"}}"#
            );
            let asked = asks(&text);
            assert_eq!((asked.op, asked.id, asked.ttl_s), (Op::Add, None, Some(157.5)));
            assert_eq!(asked.tspec.map(|tspec| tspec.rate_bit_s), Some(500_000));
            // What a client writes is read as the same request.
            let written = serde_json::to_string(&Fields::from(&asked)).unwrap();
            let again = format!(r#"{{"op":"reserve.add",{}"#, &written[1..]);
            assert_eq!(asks(&again), asked);
        }
        assert_eq!(request::read(br#"{"id":9,"op":"list"}"#).unwrap().id, Some(9));
        // The client's number is not the number of the reservation.
        let gone = asks(r#"{"id":9,"op":"reserve.del","number":3}"#);
        assert_eq!((gone.op, gone.id), (Op::Del, Some(3)));
    }

    #[test]
    fn rights_by_name() {
        for (op, right) in [
            ("reserve.list", Right::Read),
            ("watch", Right::Read),
            ("reserve.add", Right::Write),
            ("modify", Right::Write),
            ("refresh", Right::Write),
            ("reserve.del", Right::Write),
            ("reserve.restore", Right::Write),
        ] {
            let asked = reads(&format!(r#"{{"op":"{op}"}}"#));
            assert_eq!((asked.needs(), asked.watches()), (right, op == "watch"), "{op}");
        }
    }

    #[test]
    fn what_is_no_request_says_why() {
        let long = format!(r#"{{"op":"add","key":"{}"}}"#, "a".repeat(MOST_BYTES));
        for (text, why) in [
            (r#"{"op":"add","key":"a","key":"b"}"#, "duplicate field"),
            (r#"{"op":"add","number":-1}"#, "invalid value"),
            (r#"{"op":"add","key":""}"#, "1 to 255 bytes"),
            (r#"{"op":"add","ttl_s":0}"#, "`ttl_s`"),
            (r#"{"op":"add","flows":[]}"#, "1 to 64 flows"),
            (r#"{"op":"add","flows":[{"proto":"tpc"}]}"#, "no protocol"),
            (r#"{"op":"add","speed":1}"#, "unknown field"),
            (r#"{"op":"watch","key":"a"}"#, "takes none"),
            (r#"{"op":"list","key":"a"}"#, "takes none"),
            (r#"{"op":"reserve.restore","state":{"form":1}}"#, "missing field"),
            (r#"{"op":"reserve.note","link":"l","gone":1}"#, "no request"),
            (r#"{"op":"reserve.adds"}"#, "no request"),
            (&long, "at most 65536 bytes"),
        ] {
            let (_, fault) = request::read(text.as_bytes()).expect_err(text);
            assert_eq!(fault.code, Code::Usage, "{text}: {fault}");
            assert!(fault.to_string().contains(why), "{text}: {fault}");
        }
        assert_eq!(asks(r#"{"op":"list","within_class":"wan/res"}"#).within_class.as_deref(), Some("wan/res"));
    }
}
