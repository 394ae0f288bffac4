//! Requests: a line of JSON each. docs/control.md describes all of them with their fields.
//!
//! Reading is strict: an unknown field, a field that is given twice, or a value of the wrong kind
//! is an error, and nothing is done.

pub mod change;

use altq_config::LONGEST_NAME;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use crate::fault::{Code, Fault};
use crate::prefix::Prefix;
use crate::reservations::{self, Reserve};
use crate::rights::Right;
use crate::tap::{self, Tap};
use change::Change;

pub mod past;
pub mod top;

/// The version of the protocol. A request without `v` is of version 1.
pub const VERSION: u64 = 1;
/// The longest line of a client that may only read, in bytes.
pub const READ_LINE: usize = 4096;
/// The longest line of a client that may change things, in bytes.
pub const WRITE_LINE: usize = 1 << 20;
/// The most subscribers of one request. A client sends more in several.
pub const BULK: usize = 1000;
/// The most addresses of a subscriber, and the most links in which it has a class.
pub const EACH: usize = 16;
/// The longest name of a subscriber, in bytes. Links and classes have names as long as a policy
/// gives them, up to [`LONGEST_NAME`].
pub const ID: usize = 64;
/// The longest text of a class's words, in bytes.
pub const WORDS: usize = 512;

/// A request, with the number that its client gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The client's number, which the reply repeats.
    pub id: Option<u64>,
    /// What is asked.
    pub request: Request,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `status`: what runs, and whether it shapes.
    Status,
    /// `stat`: the counters of links.
    Stat {
        /// This link only.
        link: Option<String>,
        /// In which form.
        form: Form,
    },
    /// `top`: what classes do.
    Top(top::Top),
    /// `past`: what is kept of what they did.
    Past(past::Past),
    /// `link.set`: another rate of a link.
    SetLink {
        /// The link.
        link: String,
        /// Its rate, bit/s, at least 1.
        rate_bit_s: u64,
    },
    /// `subscriber.set`: adds subscribers or changes them.
    SetSubscribers(Vec<Subscriber>),
    /// `subscriber.del`: removes subscribers.
    DeleteSubscribers(Vec<String>),
    /// `subscriber.del` with `addr`: removes those of these subscribers that have this address.
    DeleteSubscribersAt {
        /// The subscribers.
        ids: Vec<String>,
        /// The address, or the prefix.
        addr: Prefix,
    },
    /// `subscriber.list`: the present subscribers.
    ListSubscribers,
    /// `reserve.add` and the others about reservations.
    Reserve(Reserve),
    /// `tap.begin` and the others about taps.
    Tap(Tap),
    /// `drift.tell`: by link, the differences from the policy that a supervisor has found.
    TellDrift(Vec<(String, Vec<String>)>),
    /// `apply` and the others about the policy that runs.
    Change(Change),
}

/// In which form counters are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// The document `altq.stat/1`.
    Json {
        /// With how many packets of each class waited how long.
        waited: bool,
    },
    /// A table for people.
    Table {
        /// The width.
        width: Option<u16>,
    },
    /// As another tool prints them: a name of `--stat FORMAT`. The service that answers knows which
    /// there are.
    Tool(String),
}

/// A subscriber: a class in some links, for the packets from and to some addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// Its name, and that of its classes.
    pub id: String,
    /// Its addresses.
    pub addresses: Vec<Prefix>,
    /// Its classes, at most one in a link.
    pub classes: Vec<Place>,
}

/// The class of a subscriber in a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The link.
    pub link: String,
    /// The class above it; `None`: the class `subscribers` if the link has one, otherwise the link.
    pub within: Option<String>,
    /// What it gets.
    pub gets: Gets,
}

/// What a class gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gets {
    /// This rate, guaranteed, and no more; bit/s.
    Rate(u64),
    /// What these words give it. They are the words of a class of the link's scheduler.
    Words(String),
}

impl Request {
    /// The right that it needs.
    pub fn needs(&self) -> Right {
        match self {
            Request::Status | Request::Stat { .. } | Request::ListSubscribers => Right::Read,
            Request::Top(_) | Request::Past(_) => Right::Read,
            Request::Change(Change::History | Change::Policy) => Right::Read,
            Request::SetLink { .. } | Request::SetSubscribers(_) | Request::DeleteSubscribers(_) => Right::Write,
            Request::DeleteSubscribersAt { .. } => Right::Write,
            Request::TellDrift(_) | Request::Tap(_) | Request::Change(_) => Right::Write,
            Request::Reserve(asked) => asked.needs(),
        }
    }
}

/// The fields that every request has.
#[derive(Deserialize)]
struct Envelope {
    v: Option<u64>,
    id: Option<u64>,
    op: String,
}

/// Reads a request from a line.
///
/// # Errors
/// What is wrong with it, and its number if that could be read.
pub fn read(line: &[u8]) -> Result<Asked, (Option<u64>, Fault)> {
    let malformed = |error: serde_json::Error| Fault::usage(format!("this is no request: {error}"));
    let envelope: Envelope = serde_json::from_slice(line).map_err(|error| (None, malformed(error)))?;
    let id = envelope.id;
    let version = envelope.v.unwrap_or(VERSION);
    if version != VERSION {
        let fault = Fault::new(Code::Unsupported, format!("this altq does not speak version {version}"));
        return Err((id, fault.help(format!("it speaks version {VERSION}"))));
    }
    let request = match envelope.op.as_str() {
        "status" => fields::<Nothing>(line).map(|_| Request::Status),
        "stat" => fields::<Stat>(line).and_then(Stat::request),
        "top" => fields::<top::Written>(line).and_then(top::Written::request),
        "past" => fields::<past::Written>(line).and_then(past::Written::request),
        "link.set" => fields::<SetLink>(line).and_then(SetLink::request),
        "subscriber.set" => fields::<SetSubscribers>(line).and_then(SetSubscribers::request),
        "subscriber.del" => fields::<DeleteSubscribers>(line).and_then(DeleteSubscribers::request),
        "subscriber.list" => fields::<Nothing>(line).map(|_| Request::ListSubscribers),
        "drift.tell" => fields::<TellDrift>(line).and_then(TellDrift::request),
        reservations::RESTORE => reservations::read_restore(line).map(Request::Reserve),
        op => match (reservations::op(op), change::read(op, line), tap::read(op, line)) {
            (Some(op), ..) => reservations::read(op, line).map(Request::Reserve),
            (None, Some(change), _) => change.map(Request::Change),
            (None, None, Some(tap)) => tap.map(Request::Tap),
            (None, None, None) => Err(unknown(op)),
        },
    };
    match request {
        Ok(request) => Ok(Asked { id, request }),
        Err(fault) => Err((id, fault)),
    }
}

/// Words that the protocol reserves, and that this version does not support.
const LATER: [&str; 1] = ["stop"];

fn unknown(op: &str) -> Fault {
    if LATER.contains(&op) {
        return Fault::new(Code::Unsupported, format!("this altq does not do `{op}` yet"));
    }
    let shown: String = op.chars().take(40).collect();
    Fault::usage(format!("there is no request `{shown}`")).help(
        "docs/control.md has all requests: status, stat, top, apply, link.set, subscriber.set, reserve.add and others",
    )
}

fn fields<T: DeserializeOwned>(line: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(line).map_err(|error| Fault::usage(error.to_string()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "op")]
    _op: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stat {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "op")]
    _op: IgnoredAny,
    link: Option<String>,
    format: Option<String>,
    width: Option<u16>,
    waited: Option<bool>,
}

impl Stat {
    fn request(self) -> Result<Request, Fault> {
        let link = self.link.map(|link| name("link", link)).transpose()?;
        let form = match self.format {
            None => Form::Json { waited: self.waited.unwrap_or(false) },
            Some(format) if format == "json" => Form::Json { waited: self.waited.unwrap_or(false) },
            Some(format) if format == "table" => Form::Table { width: self.width },
            Some(format) => Form::Tool(name("format", format)?),
        };
        if self.width.is_some() && !matches!(form, Form::Table { .. }) {
            return Err(Fault::usage("`width` belongs to the format `table`"));
        }
        if self.waited.is_some() && !matches!(form, Form::Json { .. }) {
            return Err(Fault::usage("`waited` belongs to the format `json`"));
        }
        Ok(Request::Stat { link, form })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetLink {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "op")]
    _op: IgnoredAny,
    link: String,
    rate_bit_s: u64,
}

impl SetLink {
    fn request(self) -> Result<Request, Fault> {
        if self.rate_bit_s == 0 {
            return Err(Fault::usage("the rate of a link is at least 1 bit/s"));
        }
        Ok(Request::SetLink { link: name("link", self.link)?, rate_bit_s: self.rate_bit_s })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetSubscribers {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "op")]
    _op: IgnoredAny,
    subscribers: Vec<Written>,
}

/// A subscriber as it is written in requests and lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Written {
    /// Its name.
    pub id: String,
    /// Its addresses and prefixes.
    pub addr: Vec<String>,
    /// Its classes.
    pub classes: Vec<WrittenPlace>,
}

/// The class of a subscriber as it is written: with either a rate or words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WrittenPlace {
    /// The link.
    pub link: String,
    /// The class above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// The rate that it gets, bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bit_s: Option<u64>,
    /// Its words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

impl From<&Subscriber> for Written {
    fn from(subscriber: &Subscriber) -> Written {
        let place = |place: &Place| {
            let (rate_bit_s, words) = match &place.gets {
                Gets::Rate(rate) => (Some(*rate), None),
                Gets::Words(words) => (None, Some(words.clone())),
            };
            WrittenPlace { link: place.link.clone(), within: place.within.clone(), rate_bit_s, words }
        };
        Written {
            id: subscriber.id.clone(),
            addr: subscriber.addresses.iter().map(Prefix::to_string).collect(),
            classes: subscriber.classes.iter().map(place).collect(),
        }
    }
}

impl SetSubscribers {
    fn request(self) -> Result<Request, Fault> {
        bulk(self.subscribers.len())?;
        let subscribers: Vec<Subscriber> = self.subscribers.into_iter().map(Written::read).collect::<Result<_, _>>()?;
        let mut ids: Vec<&str> = subscribers.iter().map(|subscriber| subscriber.id.as_str()).collect();
        twice(&mut ids)?;
        Ok(Request::SetSubscribers(subscribers))
    }
}

impl Written {
    /// Checks it as the service does, except for what only the service knows: links, and the words
    /// of classes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), Fault> {
        self.clone().read().map(drop)
    }

    /// Checks it.
    pub(crate) fn read(self) -> Result<Subscriber, Fault> {
        let id = name("subscriber", self.id)?;
        let of = |message: String| Fault::usage(format!("subscriber {id}: {message}"));
        if self.addr.is_empty() || self.addr.len() > EACH {
            return Err(of(format!("it has {} addresses; 1 to {EACH} are allowed", self.addr.len())));
        }
        if self.classes.is_empty() || self.classes.len() > EACH {
            return Err(of(format!("it has {} classes; 1 to {EACH} are allowed", self.classes.len())));
        }
        let mut addresses: Vec<Prefix> =
            self.addr.iter().map(|text| Prefix::read(text).map_err(of)).collect::<Result<_, _>>()?;
        // The order has no meaning: the same addresses in another order are the same subscriber.
        addresses.sort_unstable();
        if let Some(pair) = addresses.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(of(format!("{} is given twice", pair[0])));
        }
        let mut classes =
            self.classes.into_iter().map(WrittenPlace::read).collect::<Result<Vec<Place>, String>>().map_err(of)?;
        classes.sort_unstable_by(|a, b| a.link.cmp(&b.link));
        if let Some(pair) = classes.windows(2).find(|pair| pair[0].link == pair[1].link) {
            return Err(of(format!("it has two classes in the link `{}`", pair[0].link)));
        }
        Ok(Subscriber { id, addresses, classes })
    }
}

impl WrittenPlace {
    fn read(self) -> Result<Place, String> {
        let text = |fault: Fault| fault.to_string();
        let link = name("link", self.link).map_err(text)?;
        let within = self.within.map(|class| name("class", class)).transpose().map_err(text)?;
        let gets = match (self.rate_bit_s, self.words) {
            (Some(rate), None) if rate > 0 => Gets::Rate(rate),
            (Some(_), None) => return Err("its rate is at least 1 bit/s".to_owned()),
            (None, Some(words)) if words.len() <= WORDS => Gets::Words(words),
            (None, Some(_)) => return Err(format!("the words of a class are longer than {WORDS} bytes")),
            _ => return Err(format!("its class in `{link}` has either rate_bit_s or words")),
        };
        Ok(Place { link, within, gets })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteSubscribers {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "op")]
    _op: IgnoredAny,
    ids: Vec<String>,
    addr: Option<String>,
}

impl DeleteSubscribers {
    fn request(self) -> Result<Request, Fault> {
        bulk(self.ids.len())?;
        let ids: Vec<String> = self.ids.into_iter().map(|id| name("subscriber", id)).collect::<Result<_, _>>()?;
        twice(&mut ids.iter().map(String::as_str).collect::<Vec<&str>>())?;
        let addr = self.addr.map(|text| Prefix::read(&text)).transpose().map_err(Fault::usage)?;
        Ok(match addr {
            Some(addr) => Request::DeleteSubscribersAt { ids, addr },
            None => Request::DeleteSubscribers(ids),
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TellDrift {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "op")]
    _op: IgnoredAny,
    links: Vec<Differs>,
}

/// What differs in a link, as in the request `drift.tell`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Differs {
    /// The link.
    pub link: String,
    /// The differences, one sentence each.
    pub drift: Vec<String>,
}

impl TellDrift {
    fn request(self) -> Result<Request, Fault> {
        let read = |one: Differs| Ok((name("link", one.link)?, one.drift));
        self.links.into_iter().map(read).collect::<Result<_, Fault>>().map(Request::TellDrift)
    }
}

fn bulk(count: usize) -> Result<(), Fault> {
    if count == 0 || count > BULK {
        let fault = Fault::usage(format!("a request is about 1 to {BULK} subscribers, not {count}"));
        return Err(fault.help("send more of them in several requests"));
    }
    Ok(())
}

fn twice(ids: &mut [&str]) -> Result<(), Fault> {
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Fault::usage(format!("subscriber {} is given twice", pair[0]))),
        None => Ok(()),
    }
}

/// Checks a name: of letters, digits, `_`, `.` and `-`, as in the native language.
pub(crate) fn name(of: &str, text: String) -> Result<String, Fault> {
    let most = if of == "subscriber" { ID } else { LONGEST_NAME };
    let good = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if !text.is_empty() && text.len() <= most && text.chars().all(good) {
        return Ok(text);
    }
    let shown: String = text.chars().take(ID).collect();
    let fault = Fault::usage(format!("{shown:?} is no name of a {of}"));
    Err(fault.help(format!("a name has 1 to {most} letters, digits, `_`, `.` and `-`")))
}

#[cfg(test)]
mod tests;
