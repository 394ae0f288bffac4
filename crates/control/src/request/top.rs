//! The request `top`: what the classes of links do, as shown by `altq top`.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Request, name};
use crate::fault::Fault;

/// The most past seconds that a line may have.
pub const LINE: u32 = 300;
/// The most flows of a class that may be asked for. No more are kept.
pub const FLOWS: u32 = 64;
/// The default number of flows of a class.
const USUAL: u32 = 10;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Top {
    /// This link only.
    pub link: Option<String>,
    /// The window in seconds: 1, 10 or 60.
    pub window: u32,
    /// Flows of this class only.
    pub class: Option<String>,
    /// The most flows of a class.
    pub flows: u32,
    /// How many past seconds the line of each class's rate has; 0: no line.
    pub line: u32,
    /// How many seconds ago the window ended; 0: just now.
    pub ago_s: u64,
    /// The answer has this class only, without the others.
    pub alone: bool,
    /// What flows are folded by, a word of `altq top --by`; `None`: each flow by itself.
    pub by: Option<String>,
}

/// The fields of the request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "op")]
    _op: IgnoredAny,
    link: Option<String>,
    window_s: Option<u32>,
    class: Option<String>,
    flows: Option<u32>,
    line_s: Option<u32>,
    ago_s: Option<u64>,
    #[serde(default)]
    alone: bool,
    by: Option<String>,
}

impl Written {
    pub(super) fn request(self) -> Result<Request, Fault> {
        let window = self.window_s.unwrap_or(1);
        if ![1, 10, 60].contains(&window) {
            return Err(Fault::usage(format!("there is no window of {window} s")).help("`window_s` is 1, 10 or 60"));
        }
        if self.alone && self.class.is_none() {
            return Err(Fault::usage("`alone` belongs to a class").help("write `class` as well"));
        }
        let most = |what: &str, number: Option<u32>, usual: u32, most: u32| match number.unwrap_or(usual) {
            number if number <= most => Ok(number),
            number => Err(Fault::usage(format!("{number} is too much for `{what}`, which is at most {most}"))),
        };
        Ok(Request::Top(Top {
            link: self.link.map(|link| name("link", link)).transpose()?,
            window,
            class: self.class.map(|class| name("class", class)).transpose()?,
            flows: most("flows", self.flows, USUAL, FLOWS)?,
            line: most("line_s", self.line_s, 0, LINE)?,
            ago_s: self.ago_s.unwrap_or(0),
            alone: self.alone,
            by: self.by,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::read;
    use crate::rights::Right;

    #[test]
    fn requests_are_read_and_wrong_ones_refused() {
        let top = |line: &str| read(line.as_bytes()).map(|asked| asked.request);
        let usual = Top { link: None, window: 1, class: None, flows: 10, line: 0, ago_s: 0, alone: false, by: None };
        assert_eq!(top(r#"{"op":"top"}"#), Ok(Request::Top(usual.clone())));
        assert_eq!(Request::Top(usual).needs(), Right::Read);
        let all = r#"{"op":"top","link":"wan","window_s":60,"class":"web","flows":0,"line_s":300,"ago_s":600,
            "alone":true,"by":"port"}"#;
        let (link, class) = (Some("wan".into()), Some("web".into()));
        let by = Some("port".into());
        let asked = Top { link, window: 60, class, flows: 0, line: 300, ago_s: 600, alone: true, by };
        assert_eq!(top(all), Ok(Request::Top(asked)));
        for (line, word) in [
            (r#"{"op":"top","window_s":5}"#, "no window of 5 s"),
            (r#"{"op":"top","flows":65}"#, "at most 64"),
            (r#"{"op":"top","line_s":301}"#, "at most 300"),
            (r#"{"op":"top","ago_s":-1}"#, "-1"),
            (r#"{"op":"top","class":"a b"}"#, "no name of a class"),
            (r#"{"op":"top","alone":true}"#, "`alone` belongs to a class"),
            (r#"{"op":"top","windows":1}"#, "windows"),
        ] {
            let (_, fault) = top(line).unwrap_err();
            assert!(fault.to_string().contains(word), "{fault}");
        }
    }
}
