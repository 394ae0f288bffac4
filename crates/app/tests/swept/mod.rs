//! A folder with a case, and `altq sweep` on it.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A case of a random source on a link: some hundred packets.
pub const CASE: &str = r#"
name = "small"
description = "A random source at 80 % of its link."
duration = "1s"
policy = "link wan { rate ${rate} scheduler fifo class all { queue drop_tail { limit ${limit}packets } default } }"
hosts = [{ name = "a" }, { name = "b" }]
links = [{ name = "wan", from = "a", to = "b", policy = "wan" }]

[values]
rate = "1Mbit/s"
load = "800kbit/s"
limit = 20
shape = "poisson"

[[flows]]
name = "call"
kind = "udp"
from = "a"
to = "b"
shape = "${shape}"
size = 1000
rate = "${load}"

[[expect]]
name = "wait"
measure = "delay_p50"
class = "all"
expected = "10ms"
tolerance = "100%"
source = "any"
"#;

/// A folder of its own for a test, removed at its end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("altq-sweep-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        let folder = Folder(path);
        folder.write("case.toml", CASE);
        folder
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// `altq sweep` with these words, in the folder.
    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.arg("sweep").args(words.split_whitespace()).current_dir(&self.0);
        command
    }

    /// Runs it to its end.
    pub fn sweep(&self, words: &str) -> Output {
        self.command(words).output().unwrap()
    }

    /// Begins it.
    pub fn begin(&self, words: &str) -> Child {
        self.command(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Table and summary of a sweep.
    pub fn results(&self, out: &str) -> (Vec<u8>, Vec<u8>) {
        (self.read(&format!("{out}/table.parquet")), self.read(&format!("{out}/summary.json")))
    }

    /// The cells of a column of a CSV table.
    pub fn column(&self, out: &str, name: &str) -> Vec<String> {
        let text = String::from_utf8(self.read(&format!("{out}/table.csv"))).unwrap();
        let mut lines = text.lines();
        let header: Vec<&str> = lines.next().unwrap().split(',').collect();
        let at = header.iter().position(|own| *own == name).unwrap_or_else(|| panic!("no {name} in {header:?}"));
        lines.map(|line| line.split(',').nth(at).unwrap().to_owned()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The processes whose parent is this one.
pub fn children(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // The name of the program stands in parentheses, and may contain some; then the state, then
        // the parent. A process may have ended meanwhile.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
        let mut words = after.split(' ');
        let (state, own) = (words.next(), words.next().and_then(|word| word.parse::<u32>().ok()));
        if own == Some(parent) && state != Some("Z") {
            found.push(pid);
        }
    }
    found
}

/// Kills a process as nothing can catch it.
pub fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    // It may have ended already.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// Waits until something is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}
