//! Tables of /proc that are read again and again.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// A table that stays open, so that a process that may not open files later can still read it.
#[derive(Debug)]
pub struct Table(Option<File>);

impl Table {
    /// Opens the table at a path. If there is none, it reads as empty.
    pub fn open(path: &str) -> Table {
        Table(File::open(path).ok())
    }

    /// The table as it is now. Empty if it cannot be read.
    pub fn read(&self) -> String {
        let Some(file) = &self.0 else { return String::new() };
        let (mut text, mut part) = (Vec::new(), [0; 16 << 10]);
        // The kernel writes the table again whenever it is read from the beginning.
        while let Ok(count @ 1..) = file.read_at(&mut part, text.len() as u64) {
            text.extend_from_slice(part.get(..count).unwrap_or_default());
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_anew_each_time() {
        let table = Table::open("/proc/self/stat");
        let times = || -> u64 {
            // Fields 14 and 15: the time that the process has run (proc_pid_stat(5)).
            let text = table.read();
            let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
            fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum()
        };
        let before = times();
        let begun = std::time::Instant::now();
        while times() == before {
            assert!(begun.elapsed() < std::time::Duration::from_secs(60), "the time stands still");
        }
        assert_eq!(Table::open("/nowhere").read(), "");
    }
}
