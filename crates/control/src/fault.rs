//! Why a request was not carried out: a code, a reason, and a way out.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What kind of fault it is. The numbers are the exit codes of altq's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(into = "u8", try_from = "u8")]
#[repr(u8)]
pub enum Code {
    /// It failed while it was carried out.
    Failed = 1,
    /// The request is wrong: it cannot be read, or names something that does not exist.
    Usage = 2,
    /// There is no room, a limit forbids it, or somebody else has what is asked for.
    Refused = 5,
    /// The client may not ask for this.
    NotPermitted = 6,
    /// This altq, or its host, cannot do it.
    Unsupported = 7,
}

impl From<Code> for u8 {
    fn from(code: Code) -> u8 {
        code as u8
    }
}

impl TryFrom<u8> for Code {
    type Error = String;

    fn try_from(number: u8) -> Result<Code, String> {
        [Code::Failed, Code::Usage, Code::Refused, Code::NotPermitted, Code::Unsupported]
            .into_iter()
            .find(|code| *code as u8 == number)
            .ok_or_else(|| format!("no fault has the code {number}"))
    }
}

/// The way out of a fault that passes by itself.
pub const AGAIN: &str = "ask again in a moment";

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fault {
    /// Its kind.
    pub code: Code,
    /// What is wrong, in one line.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl Fault {
    /// A fault without a way out.
    pub fn new(code: Code, message: impl Into<String>) -> Fault {
        Fault { code, message: message.into(), help: None }
    }

    /// A wrong request.
    pub fn usage(message: impl Into<String>) -> Fault {
        Fault::new(Code::Usage, message)
    }

    /// A refused request.
    pub fn refused(message: impl Into<String>) -> Fault {
        Fault::new(Code::Refused, message)
    }

    /// Adds the way out.
    pub fn help(mut self, help: impl Into<String>) -> Fault {
        self.help = Some(help.into());
        self
    }

    /// True if it passes by itself.
    pub fn passes(&self) -> bool {
        self.help.as_ref().is_some_and(|help| help.starts_with(AGAIN))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_written_as_numbers() {
        let fault = Fault::refused("no room").help("make some");
        let text = serde_json::to_string(&fault).unwrap();
        assert_eq!(text, r#"{"code":5,"message":"no room","help":"make some"}"#);
        assert_eq!(serde_json::from_str::<Fault>(&text).unwrap(), fault);
        assert!(serde_json::from_str::<Fault>(r#"{"code":3,"message":"x"}"#).is_err());
        assert_eq!(fault.to_string(), "no room; make some");
        assert!(!fault.passes() && Fault::refused("not yet").help(AGAIN).passes());
    }
}
