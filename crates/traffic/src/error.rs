//! What can go wrong.

use std::io;

use serde::{Deserialize, Serialize};

/// Why a generator, server or client gave up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call to the kernel failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// This host cannot do it.
    #[error("{0}")]
    Unsupported(String),
    /// The other end said no.
    #[error("{reason}")]
    Refused {
        /// On what grounds.
        why: Refusal,
        /// In its words.
        reason: String,
    },
    /// What came from the other end makes no sense.
    #[error("the other end does not speak altq traffic as it should: {0}")]
    Protocol(String),
    /// What was asked for cannot be meant.
    #[error("{0}")]
    Wrong(String),
    /// A run ended before its time.
    #[error("{0}")]
    Ended(String),
}

/// On what grounds a server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The token is not the server's.
    Token,
    /// It is more than the server lets a client do.
    Cap,
    /// It has as many clients as it takes.
    Busy,
    /// Its host cannot do it.
    Unsupported,
    /// It did not understand, or it was not the time for it.
    Message,
}

/// Says what was being done when something failed.
pub trait Doing<T> {
    /// The same result, with the words for what was being done.
    fn doing<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T, Error> {
        self.map_err(|error| Error::Io { doing: what().into(), source: error.into() })
    }
}
