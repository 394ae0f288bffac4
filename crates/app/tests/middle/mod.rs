//! `altq run` between the two hosts of a test.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::world::World;

/// A policy in force.
pub struct Middle {
    /// `altq run --json`.
    pub child: Child,
    /// Its output behind the first line. It must stay open, because the program ends when its
    /// reader has gone; and it must be read, because the program waits when the pipe is full.
    pub out: BufReader<ChildStdout>,
    /// The first line, which not every test reads.
    #[allow(dead_code)]
    pub first: String,
}

/// Starts `altq run` with the policy and waits for its first line, after which it shapes. `None`,
/// with a message, if this host cannot run a bridge.
pub fn shape(world: &World, policy: &Path, interval: &str) -> Option<Middle> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.arg("run").arg(policy).args(["--json", "--interval", interval]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = world.middle.run(|| command.spawn().unwrap()).unwrap();
    let (mut out, mut first) = (BufReader::new(child.stdout.take().unwrap()), String::new());
    out.read_line(&mut first).unwrap();
    if !first.is_empty() {
        return Some(Middle { child, out, first });
    }
    let mut why = String::new();
    child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
    assert!(matches!(child.wait().unwrap().code(), Some(6 | 7)), "{why}");
    eprintln!("SKIPPED: this host cannot run a bridge: {why}");
    None
}
