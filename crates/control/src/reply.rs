//! Replies: a line of JSON for each request, in the order of the requests.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::fault::Fault;

/// The result of a request, as JSON. If several clients wait for the same document, it is in memory
/// only once. It is the buffer into which it was written, as one about 100,000 classes has 40 MB.
pub type Body = Arc<Vec<u8>>;

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

/// As [`body`], written over one that was sent before if nobody needs that any more. So the kernel
/// need not clear memory for a large document each time.
///
/// # Errors
/// As [`body`].
pub fn body_over(old: Option<Body>, document: &impl Serialize) -> serde_json::Result<Body> {
    let mut buffer = old.and_then(Arc::into_inner).unwrap_or_default();
    buffer.clear();
    serde_json::to_writer(&mut buffer, document)?;
    if buffer.len() < buffer.capacity() / 4 {
        buffer.shrink_to_fit();
    }
    Ok(Body::from(buffer))
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
    let line = str::from_utf8(line).map_err(|error| format!("this is no reply: {error}"))?;
    let reply: Reply<'_> = serde_json::from_str(line).map_err(|error| format!("this is no reply: {error}"))?;
    match (reply.ok, reply.result, reply.error) {
        (true, Some(result), None) => Ok((reply.id, Ok(result.get()))),
        (false, None, Some(fault)) => Ok((reply.id, Err(fault))),
        _ => Err("this is no reply: it has a result with `ok`, and an error without".to_owned()),
    }
}

/// As [`read`], for a line that nobody else needs: its buffer becomes the result.
///
/// # Errors
/// As [`read`].
pub fn take(mut line: Vec<u8>) -> Result<(Option<u64>, Result<String, Fault>), String> {
    let (id, result) = read(&line)?;
    let result = match result {
        Ok(json) => json.as_bytes(),
        Err(fault) => return Ok((id, Err(fault))),
    };
    // The result is a part of the line.
    let begin = result.as_ptr().addr() - line.as_ptr().addr();
    let length = result.len();
    line.drain(..begin);
    line.truncate(length);
    let json = String::from_utf8(line).map_err(|error| format!("this is no reply: {error}"))?;
    Ok((id, Ok(json)))
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
        assert_eq!(take(line), Ok((Some(7), Ok(r#"{"a":[1,2]}"#.to_owned()))));
        let loose = " { \"ok\" : true , \"result\" :  [ \"\u{e4}\" , 1 ]  , \"id\" : 9 } ";
        assert_eq!(take(loose.into()), Ok((Some(9), Ok("[ \"\u{e4}\" , 1 ]".to_owned()))));
        let wrong = Fault::new(Code::Refused, "two\nlines").help("say so");
        let line = fault(None, &wrong);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(read(&line), Ok((None, Err(wrong.clone()))));
        assert_eq!(take(line), Ok((None, Err(wrong))));
    }

    #[test]
    fn a_document_takes_the_place_of_one_that_nobody_needs() {
        let first = body(&vec!["x"; 100]).unwrap();
        let at = first.as_ptr();
        let second = body_over(Some(first), &vec!["y"; 50]).unwrap();
        assert_eq!((second.as_ptr(), &second), (at, &body(&vec!["y"; 50]).unwrap()));
        // A client still waits for the second one.
        let third = body_over(Some(second.clone()), &"z").unwrap();
        assert_eq!((&second, third.as_slice()), (&body(&vec!["y"; 50]).unwrap(), b"\"z\"".as_slice()));
        // A small document does not keep the memory of a large one.
        let large = Body::from(vec![b'1'; 100_000]);
        assert!(body_over(Some(large), &1).unwrap().capacity() < 100);
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for text in ["", "{}", r#"{"ok":true}"#, r#"{"ok":false,"result":1}"#, r#"{"ok":true,"result":1} x"#] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
            assert!(take(text.into()).is_err(), "{text}");
        }
    }
}
