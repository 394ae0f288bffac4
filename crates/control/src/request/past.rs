//! `past`: what is kept of what the classes of a link did, for reports.

use altq_engine::units::Nanos;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Request, name};
use crate::fault::Fault;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// The link.
    pub link: String,
    /// From so many seconds ago on; `None`: all that is kept.
    pub ago_s: Option<u64>,
    /// What is behind an earlier answer: its `next_ns`. Then `ago_s` says nothing.
    pub after_ns: Option<Nanos>,
}

/// What the request has.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "op")]
    _op: IgnoredAny,
    link: String,
    ago_s: Option<u64>,
    after_ns: Option<Nanos>,
}

impl Written {
    pub(super) fn request(self) -> Result<Request, Fault> {
        let Written { link, ago_s, after_ns, .. } = self;
        Ok(Request::Past(Past { link: name("link", link)?, ago_s, after_ns }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::read;
    use crate::rights::Right;

    #[test]
    fn requests_are_read_and_wrong_ones_refused() {
        let past = |line: &str| read(line.as_bytes()).map(|asked| asked.request);
        let all = Past { link: "wan".into(), ago_s: None, after_ns: None };
        assert_eq!(past(r#"{"op":"past","link":"wan"}"#), Ok(Request::Past(all.clone())));
        assert_eq!(Request::Past(all.clone()).needs(), Right::Read);
        assert_eq!(
            past(r#"{"op":"past","link":"wan","ago_s":3600,"after_ns":7}"#),
            Ok(Request::Past(Past { ago_s: Some(3600), after_ns: Some(7), ..all }))
        );
        for (line, word) in [
            (r#"{"op":"past"}"#, "missing field `link`"),
            (r#"{"op":"past","link":"a b"}"#, "no name of a link"),
            (r#"{"op":"past","link":"wan","ago_s":-1}"#, "-1"),
            (r#"{"op":"past","link":"wan","class":"a"}"#, "unknown field `class`"),
        ] {
            let (_, fault) = past(line).unwrap_err();
            assert!(fault.to_string().contains(word), "{fault}");
        }
    }
}
