//! The command as a client of a running altq.

// Each file of tests uses a part of it.
#![allow(dead_code)]

#[path = "../schema/mod.rs"]
pub mod schema;

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs a command that talks to the altq at this control socket. Documents that it prints are
/// compared with their schemas.
pub fn altq(socket: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    let output = command.args(arguments).arg("--socket").arg(socket).stdin(Stdio::null()).output().unwrap();
    schema::check_lines(&output.stdout);
    output
}

/// What it printed.
pub fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it printed on standard error.
pub fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
