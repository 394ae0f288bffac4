//! Errors of generators, server and client.

use std::io;

use serde::{Deserialize, Serialize};

/// Why a generator, server or client stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call to the kernel failed.
    #[error("{doing}: {error}")]
    Io {
        /// What was being done.
        doing: String,
        /// The kernel's error. The text above has it, so it is no further cause of this one.
        error: io::Error,
    },
    /// This host lacks something that is needed.
    #[error("{0}")]
    Unsupported(String),
    /// This process lacks a right that is needed.
    #[error("{0}")]
    NotPermitted(String),
    /// The server refused.
    #[error("{reason}")]
    Refused {
        /// The kind of reason.
        why: Refusal,
        /// The server's text.
        reason: String,
    },
    /// The other end does not follow the protocol.
    #[error("the other end does not speak altq traffic as it should: {0}")]
    Protocol(String),
    /// The user's input is wrong.
    #[error("{0}")]
    Wrong(String),
    /// A run ended early.
    #[error("{0}")]
    Ended(String),
}

/// Why a server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The token is not the server's.
    Token,
    /// The plan exceeds the server's limits.
    Cap,
    /// The server has as many clients as it accepts.
    Busy,
    /// The server's host lacks something that is needed.
    Unsupported,
    /// The message was malformed, or came at the wrong time.
    Message,
}

/// Adds to an error what the program was doing.
pub trait Doing<T> {
    /// The same result. An error becomes [`Error::Io`], which says that `what` was being done.
    fn doing<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T, Error> {
        self.map_err(|error| Error::Io { doing: what().into(), error: error.into() })
    }
}
