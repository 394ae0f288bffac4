//! Requests: a bounded head and no body. Only the fields that are needed are read.

use httparse::{EMPTY_HEADER, Header};

use super::response::Status;

/// The most bytes of the head of a request.
pub const MOST_BYTES: usize = 8 << 10;
/// The most fields of a head.
const MOST_FIELDS: usize = 64;

/// A request that can be answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// True if no body is wanted (HEAD).
    pub head: bool,
    /// The path, without the query.
    pub path: String,
    /// What follows the question mark.
    pub query: String,
    /// The name by which it calls the server.
    pub host: String,
    /// The types that it accepts.
    pub accept: Option<String>,
    /// The site from which the request comes (Fetch Metadata, `Sec-Fetch-Site`).
    pub site: Option<String>,
}

/// What has come so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The head is not complete.
    Partly,
    /// A request.
    Whole(Box<Request>),
    /// A request that is refused.
    Wrong(Status),
}

/// Reads the part of a request that has come.
pub fn read(bytes: &[u8]) -> Asked {
    let mut fields = [EMPTY_HEADER; MOST_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < MOST_BYTES => return Asked::Partly,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Asked::Wrong(Status::TooLarge);
        }
        Err(_) => return Asked::Wrong(Status::Bad),
    }
    match whole(&request) {
        Ok(request) => Asked::Whole(Box::new(request)),
        Err(status) => Asked::Wrong(status),
    }
}

fn whole(request: &httparse::Request<'_, '_>) -> Result<Request, Status> {
    let head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Status::Method),
    };
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    // RFC 9112 3.2: only requests to proxies have a whole address.
    if !path.starts_with('/') {
        return Err(Status::Bad);
    }
    // RFC 9112 3.2: a request without a host, or with two, is answered with 400.
    let mut hosts = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("host"));
    let (Some(host), None) = (hosts.next().and_then(text), hosts.next()) else { return Err(Status::Bad) };
    let field = |name: &str| {
        let found = request.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        found.and_then(text).map(str::to_owned)
    };
    Ok(Request {
        head,
        path: path.to_owned(),
        query: query.to_owned(),
        host: host.to_owned(),
        accept: field("accept"),
        site: field("sec-fetch-site"),
    })
}

fn text<'a>(field: &Header<'a>) -> Option<&'a str> {
    std::str::from_utf8(field.value).ok().map(str::trim)
}

impl Request {
    /// The first value of this name in the query, with `%XX` and `+` decoded.
    pub fn value(&self, name: &str) -> Option<String> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).next()
    }

    /// True if a page of another site has made a browser send this. Old browsers do not tell; they
    /// keep the answer from that page anyway.
    pub fn is_foreign(&self) -> bool {
        self.site.as_deref().is_some_and(|site| !matches!(site, "same-origin" | "none"))
    }
}

/// Decodes `+` to a space and `%XX` to a byte. Bytes that are not text become U+FFFD.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let hex = |at: usize| behind.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = behind.get(2..).unwrap_or_default();
            }
            (b'+', _, _) => {
                bytes.push(b' ');
                rest = behind;
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(text: &str) -> Request {
        match read(text.as_bytes()) {
            Asked::Whole(request) => *request,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn a_request_is_read_when_its_head_is_there() {
        let text = "GET /history.json?class=a%2Bb&link=w+n&x HTTP/1.1\r\nhost: localhost:8017 \r\nAccept: a, b\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(read(&text.as_bytes()[..end]), Asked::Partly, "{end}");
        }
        let request = whole(text);
        assert_eq!(
            (request.head, request.path.as_str(), request.host.as_str()),
            (false, "/history.json", "localhost:8017")
        );
        assert_eq!(request.value("class").as_deref(), Some("a+b"));
        assert_eq!(
            (request.value("link").as_deref(), request.value("x"), request.value("y")),
            (Some("w n"), None, None)
        );
        assert_eq!(request.accept.as_deref(), Some("a, b"));
        assert!(whole("HEAD / HTTP/1.0\r\nHost: h\r\n\r\n").head);
        assert_eq!(decoded("%zz%f%C3%A9%ff"), "%zz%fé\u{fffd}");
    }

    #[test]
    fn what_is_not_for_us_is_refused() {
        let long = format!("GET / HTTP/1.1\r\nHost: h\r\nx: {}\r\n\r\n", "y".repeat(MOST_BYTES));
        let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "x: y\r\n".repeat(MOST_FIELDS));
        for (text, status) in [
            ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", Status::Method),
            ("get / HTTP/1.1\r\nHost: h\r\n\r\n", Status::Method),
            ("GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n", Status::Bad),
            ("GET * HTTP/1.1\r\nHost: h\r\n\r\n", Status::Bad),
            ("GET / HTTP/1.1\r\n\r\n", Status::Bad),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Status::Bad),
            ("GET / HTTP/1.1\r\nHost: \u{e9}\r\nA\u{e9}: b\r\n\r\n", Status::Bad),
            ("GET / HTTP/9\r\nHost: h\r\n\r\n", Status::Bad),
            ("\u{16}\u{3}\u{1}\u{2}\0\u{1}\0", Status::Bad),
            (&long[..MOST_BYTES], Status::TooLarge),
            (&many, Status::TooLarge),
        ] {
            assert_eq!(read(text.as_bytes()), Asked::Wrong(status), "{text:.60}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_told_apart() {
        for (site, foreign) in [("same-origin", false), ("none", false), ("same-site", true), ("cross-site", true)] {
            let text = format!("GET / HTTP/1.1\r\nHost: h\r\nSec-Fetch-Site: {site}\r\n\r\n");
            assert_eq!(whole(&text).is_foreign(), foreign, "{site}");
        }
        assert!(!whole("GET / HTTP/1.1\r\nHost: h\r\n\r\n").is_foreign());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let _ = Request { query: text, ..Request::default() }.value("a");
        }
    }
}
