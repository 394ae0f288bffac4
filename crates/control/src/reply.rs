//! Replies: a line of JSON for each request, in the order of the requests.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::fault::Fault;

/// The result of a request, as JSON. If several clients wait for the same document, it is in memory
/// only once.
pub type Body = Arc<[u8]>;

/// The start of a reply.
#[derive(Serialize)]
struct Head {
    schema: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    ok: bool,
}

/// The parts of a reply before and after the body. With the body between them they are a line.
pub fn around(id: Option<u64>, ok: bool) -> (Vec<u8>, &'static [u8]) {
    // It fails only for maps with keys that are not text, of which there are none.
    let mut head = serde_json::to_vec(&Head { schema: "altq.control/1", id, ok }).unwrap_or_default();
    // The closing brace comes after the body.
    head.pop();
    head.extend_from_slice(if ok { b",\"result\":".as_slice() } else { b",\"error\":".as_slice() });
    (head, b"}\n")
}

/// The reply to a request.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[schemars(rename = "Reply")]
#[allow(dead_code, reason = "replies are written piece by piece; this is for their JSON Schema")]
pub(crate) struct Whole {
    /// `altq.control/1`.
    schema: String,
    /// The request's number; absent if it had none, or could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// Whether there is a result.
    ok: bool,
    /// The result: what docs/control.md says of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<serde_json::Value>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Fault>,
}

/// A fault as a whole reply.
pub fn fault(id: Option<u64>, fault: &Fault) -> Vec<u8> {
    let (mut line, end) = around(id, false);
    line.extend(serde_json::to_vec(fault).unwrap_or_default());
    line.extend_from_slice(end);
    line
}

/// A document as a body.
///
/// # Errors
/// That of the document's own `Serialize`.
pub fn body(document: &impl Serialize) -> serde_json::Result<Body> {
    serde_json::to_vec(document).map(Body::from)
}

/// A reply as a client sees it.
#[derive(Deserialize)]
struct Reply<'a> {
    #[serde(default)]
    id: Option<u64>,
    ok: bool,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<Fault>,
}

/// Reads a reply: its number, and the result as JSON or the fault.
///
/// # Errors
/// Why the line is not a reply.
pub fn read(line: &[u8]) -> Result<(Option<u64>, Result<&str, Fault>), String> {
    let reply: Reply<'_> = serde_json::from_slice(line).map_err(|error| format!("this is no reply: {error}"))?;
    match (reply.ok, reply.result, reply.error) {
        (true, Some(result), None) => Ok((reply.id, Ok(result.get()))),
        (false, None, Some(fault)) => Ok((reply.id, Err(fault))),
        _ => Err("this is no reply: it has a result with `ok`, and an error without".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Code;

    #[test]
    fn replies_are_lines_that_read_back() {
        let (head, end) = around(Some(7), true);
        let line = [head.as_slice(), br#"{"a":[1,2]}"#, end].concat();
        assert_eq!(line, b"{\"schema\":\"altq.control/1\",\"id\":7,\"ok\":true,\"result\":{\"a\":[1,2]}}\n");
        assert_eq!(read(&line), Ok((Some(7), Ok(r#"{"a":[1,2]}"#))));
        let wrong = Fault::new(Code::Refused, "two\nlines").help("say so");
        let line = fault(None, &wrong);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(read(&line), Ok((None, Err(wrong))));
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for text in ["", "{}", r#"{"ok":true}"#, r#"{"ok":false,"result":1}"#, r#"{"ok":true,"result":1} x"#] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
