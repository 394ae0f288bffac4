//! What is wrong with a literal.

use std::fmt;

/// What is wrong with a literal, and what could be written instead. Displayed, both are on one
/// line with a semicolon between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// What is wrong. A long literal is cut short in it.
    pub message: String,
    /// What could be written instead.
    pub help: Option<String>,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.help {
            Some(help) => write!(f, "{}; {help}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Wrong {}

impl From<Wrong> for String {
    fn from(wrong: Wrong) -> String {
        wrong.to_string()
    }
}

/// An error with its help.
pub(super) fn wrong<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { message: message.into(), help: Some(help.into()) })
}

/// The error of a number that does not fit.
pub(super) fn too_large<T>(what: &str, largest: &str) -> Result<T, Wrong> {
    wrong(format!("this {what} is too large"), format!("the largest is {largest}"))
}
