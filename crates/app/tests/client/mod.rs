//! The command as a client of a running altq.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs a command that talks to the altq at this control socket.
pub fn altq(socket: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.args(arguments).arg("--socket").arg(socket).stdin(Stdio::null()).output().unwrap()
}

/// What it printed.
pub fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it printed on standard error.
pub fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
