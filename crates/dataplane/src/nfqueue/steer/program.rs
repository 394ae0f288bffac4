//! Runs the firewalls' programs.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

/// Directories of system programs, which the PATH of a service or of a user may lack.
const SYSTEM: &str = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin";

#[cfg(test)]
thread_local! {
    /// Counts down with each program that the thread runs. The program that finds 0 fails.
    pub static UNTIL_FAULT: std::cell::Cell<i64> = const { std::cell::Cell::new(-1) };
}

/// Runs a program with this input and returns its output, or one line that says why it failed.
pub fn run(name: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    #[cfg(test)]
    if UNTIL_FAULT.replace(UNTIL_FAULT.get() - 1) == 0 {
        return Err("a fault: another app is holding the xtables lock".to_owned());
    }
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    if !path.is_empty() {
        path.push(OsString::from(":"));
    }
    path.push(SYSTEM);
    let mut child = Command::new(name)
        .args(arguments)
        .env("PATH", path)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => "not installed".to_owned(),
            _ => error.to_string(),
        })?;
    // If a program ends before it has read its input, its own message says why.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return written
            .map_err(|error| error.to_string())
            .map(|()| String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    Err(line.map_or_else(|| format!("`{name}` failed ({})", output.status), str::to_owned))
}

/// True if a program has failed because what it was asked about does not exist here: a table, the
/// firewall in the kernel, or the program itself.
pub fn is_absent(said: &str) -> bool {
    // Of nft: ENOENT; of the kernel without nf_tables: EINVAL, EPROTONOSUPPORT, EOPNOTSUPP. Of
    // iptables: a table that does not exist, that only nft can read, or for which the kernel has
    // nothing; and a lock that nobody can take.
    let words = [
        "not installed",
        "No such file",
        "does not exist",
        "not supported",
        "Invalid argument",
        "is incompatible",
        "who? (do you need",
    ];
    let no_lock = said.contains("can't open lock file") && !said.contains("Permission denied");
    no_lock || words.iter().any(|words| said.contains(words))
}

/// True if a program of iptables has failed because another one was at work, so that it may find
/// rules the next time.
pub fn is_busy(said: &str) -> bool {
    said.contains("holding the xtables lock") || said.contains("temporarily unavailable")
}
