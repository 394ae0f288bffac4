//! Where the control socket is, and how commands ask on it (docs/control.md).

use std::path::{Path, PathBuf};

use altq_control::client::Client;
use altq_control::{Code, Fault};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::exit::Exit;

/// The path where nobody says another one.
const USUAL: &str = "/run/altq/altq.sock";
/// The environment variable that has another path.
const VARIABLE: &str = "ALTQ_SOCKET";

/// The control socket.
#[derive(Clone, Debug, clap::Args)]
pub struct Socket {
    /// The control socket [default: $ALTQ_SOCKET, or else /run/altq/altq.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Socket {
    /// Its path, and whether somebody has chosen it.
    pub fn path(&self) -> (PathBuf, bool) {
        let chosen = self.socket.clone().or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from));
        match chosen.filter(|path| path != Path::new("")) {
            Some(path) => (path, true),
            None => (PathBuf::from(USUAL), false),
        }
    }

    /// Whether somebody has said where it is, on the command line.
    #[cfg(feature = "experiments")]
    pub fn is_given(&self) -> bool {
        self.socket.is_some()
    }

    /// Connects to the altq that runs there.
    ///
    /// # Errors
    /// Says why not, and what to do.
    pub fn connect(&self) -> Result<Client, Fault> {
        Client::connect(&self.path().0)
    }
}

/// Asks, and reads the answer.
///
/// # Errors
/// The fault of the one who answers, or of the connection.
pub fn ask<T: DeserializeOwned>(client: &mut Client, op: &str, fields: &impl Serialize) -> Result<T, Fault> {
    let json = client.ask(op, fields)?;
    serde_json::from_str(&json)
        .map_err(|error| Fault::new(Code::Failed, format!("altq's answer cannot be read ({error})")))
}

/// Says a fault in one line. Returns its exit code.
pub fn fail(command: &str, fault: &Fault) -> Exit {
    eprintln!("altq {command}: {fault}");
    Exit::of_fault(fault.code)
}
