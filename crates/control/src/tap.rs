//! Requests about taps. A tap copies the packets that leave a link into a file that the client has
//! opened. The file's descriptor is sent along with the request (SCM_RIGHTS, unix(7)), because a
//! confined worker cannot open files.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;

/// The most bytes of a packet that a tap keeps.
pub const SNAPLEN: u32 = 65_535;
/// The fewest bytes of a file: those of its header.
const LEAST: u64 = 24;

/// A request about the tap of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tap {
    /// `tap.begin`: copies packets into the file that was sent along.
    Begin {
        /// The link.
        link: String,
        /// The class, with all below it; `None`: all classes.
        class: Option<String>,
        /// The most bytes of the file.
        size_bytes: u64,
        /// The most bytes of each packet.
        snaplen: u32,
    },
    /// `tap.look`: asks what the tap has done.
    Look(String),
    /// `tap.end`: ends the tap.
    End(String),
}

/// What a tap has done: the result of all three requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tapped {
    /// False once it has ended and everything is written.
    pub running: bool,
    /// Packets in the file.
    pub packets: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Packets that were not copied, because the file was written too slowly.
    pub missed: u64,
    /// Why it has ended: `asked`, `size`, `closed` (nobody reads any more), `left` (nobody has
    /// asked for ten seconds), or why the file cannot be written.
    pub ended: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "op")]
    _op: IgnoredAny,
    link: String,
    class: Option<String>,
    size_bytes: u64,
    snaplen: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "op")]
    _op: IgnoredAny,
    link: String,
}

/// Reads a request; `None` if it is not about taps.
pub(crate) fn read(op: &str, line: &[u8]) -> Option<Result<Tap, Fault>> {
    let wrong = |error: serde_json::Error| Fault::usage(error.to_string());
    let which = || serde_json::from_slice::<Which>(line).map_err(wrong).and_then(|which| name("link", which.link));
    match op {
        "tap.begin" => Some(serde_json::from_slice::<Begin>(line).map_err(wrong).and_then(Begin::checked)),
        "tap.look" => Some(which().map(Tap::Look)),
        "tap.end" => Some(which().map(Tap::End)),
        _ => None,
    }
}

fn name(of: &str, text: String) -> Result<String, Fault> {
    crate::request::name(of, text)
}

impl Begin {
    fn checked(self) -> Result<Tap, Fault> {
        let Begin { link, class, size_bytes, snaplen, .. } = self;
        if size_bytes < LEAST {
            return Err(Fault::usage(format!("a file of {size_bytes} bytes has no room for its header of {LEAST}")));
        }
        if !(1..=SNAPLEN).contains(&snaplen) {
            return Err(Fault::usage(format!("the length of packets is 1 to {SNAPLEN} bytes, not {snaplen}")));
        }
        let class = class.map(|class| name("class", class)).transpose()?;
        Ok(Tap::Begin { link: name("link", link)?, class, size_bytes, snaplen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_and_checked() {
        let reads = |op, text: &str| read(op, text.as_bytes()).unwrap();
        let begin = reads("tap.begin", r#"{"op":"tap.begin","link":"l","class":"c","size_bytes":24,"snaplen":65535}"#);
        let (link, class) = ("l".to_owned(), Some("c".to_owned()));
        assert_eq!(begin.unwrap(), Tap::Begin { link, class, size_bytes: 24, snaplen: 65_535 });
        assert_eq!(reads("tap.end", r#"{"op":"tap.end","id":3,"link":"l"}"#).unwrap(), Tap::End("l".to_owned()));
        for wrong in [
            r#"{"op":"tap.begin","link":"l","size_bytes":23,"snaplen":1}"#,
            r#"{"op":"tap.begin","link":"l","size_bytes":100,"snaplen":0}"#,
            r#"{"op":"tap.begin","link":"l","size_bytes":100,"snaplen":65536}"#,
            r#"{"op":"tap.begin","link":"l d","size_bytes":100,"snaplen":1}"#,
            r#"{"op":"tap.begin","link":"l"}"#,
        ] {
            assert!(reads("tap.begin", wrong).is_err(), "{wrong}");
        }
        assert!(read("status", b"{}").is_none());
    }
}
