//! Responses. Each forbids browsers to store it, to guess its type and to show it in a frame, and
//! ends its connection.

use std::fmt::Write;

use crate::Body;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The response has what was asked for.
    Ok,
    /// The request cannot be read.
    Bad,
    /// A page of another site has asked.
    Forbidden,
    /// There is no such path, link or class.
    NotFound,
    /// Neither GET nor HEAD.
    Method,
    /// The head did not come in time.
    TooLate,
    /// The server has no such name.
    Misdirected,
    /// The head is too long.
    TooLarge,
    /// There are no figures now, or too many clients.
    Unavailable,
}

impl Status {
    /// Its number and its name.
    pub fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::Bad => "400 Bad Request",
            Status::Forbidden => "403 Forbidden",
            Status::NotFound => "404 Not Found",
            Status::Method => "405 Method Not Allowed",
            Status::TooLate => "408 Request Timeout",
            Status::Misdirected => "421 Misdirected Request",
            Status::TooLarge => "431 Request Header Fields Too Large",
            Status::Unavailable => "503 Service Unavailable",
        }
    }
}

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// How it ended.
    pub status: Status,
    /// The type of the body.
    pub kind: &'static str,
    /// The body.
    pub body: Body,
    /// What a browser may do with it (Content-Security-Policy).
    pub policy: Option<String>,
}

/// The type of a stream of events.
pub const EVENTS: &str = "text/event-stream; charset=utf-8";
/// The type of JSON.
pub const JSON: &str = "application/json; charset=utf-8";
/// For responses that are not the page: a browser may load nothing.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

impl Response {
    /// A successful response with this body.
    pub fn ok(kind: &'static str, body: Body) -> Response {
        Response { status: Status::Ok, kind, body, policy: None }
    }

    /// A line of text that says why there is nothing.
    pub fn error(status: Status, why: &str) -> Response {
        let body = format!("{}\n", if why.is_empty() { status.line() } else { why });
        Response { status, kind: "text/plain; charset=utf-8", body: body.into_bytes().into(), policy: None }
    }

    /// The head. Without a length the body ends with the connection.
    pub fn head(&self, with_length: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {}\r\nContent-Type: {}\r\n", self.status.line(), self.kind);
        if with_length {
            _ = write!(head, "Content-Length: {}\r\n", self.body.len());
        }
        match self.status {
            Status::Method => head.push_str("Allow: GET, HEAD\r\n"),
            Status::Unavailable => head.push_str("Retry-After: 2\r\n"),
            _ => {}
        }
        let policy = self.policy.as_deref().unwrap_or(NOTHING);
        _ = write!(head, "Content-Security-Policy: {policy}\r\n");
        head.push_str(
            "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        );
        head.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_head_forbids_what_nobody_needs() {
        let all = [
            Status::Ok,
            Status::Bad,
            Status::Forbidden,
            Status::NotFound,
            Status::Method,
            Status::TooLate,
            Status::Misdirected,
            Status::TooLarge,
            Status::Unavailable,
        ];
        for status in all {
            let response = Response::error(status, "");
            let head = String::from_utf8(response.head(true)).unwrap();
            assert!(head.starts_with(&format!("HTTP/1.1 {}\r\n", status.line())), "{head}");
            for line in ["X-Content-Type-Options: nosniff", "Cache-Control: no-store", "Connection: close"] {
                assert!(head.contains(line), "{head}");
            }
            assert!(head.contains("Content-Security-Policy: default-src 'none'"), "{head}");
            let length = format!("Content-Length: {}\r\n", response.body.len());
            assert!(head.contains(&length) && head.ends_with("\r\n\r\n"), "{head}");
            assert_eq!(head.contains("Allow: GET, HEAD"), status == Status::Method);
        }
        let stream = Response::ok(EVENTS, Body::from([0_u8; 0]));
        assert!(!String::from_utf8(stream.head(false)).unwrap().contains("Content-Length"));
    }
}
