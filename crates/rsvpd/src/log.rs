//! What the daemon says on standard error: no more than some lines a second, because whoever sends
//! it messages makes it speak. How a line is written is the program's: it must not wait until
//! somebody reads it.

use std::time::{Duration, Instant};

/// Lines in a second.
const LINES: u32 = 20;
const SECOND: Duration = Duration::from_secs(1);

/// Writes a line, which is given without a name before it and without an end.
pub type Say = fn(&str);

/// Lines that were said, and how many were not.
#[derive(Debug)]
pub struct Log {
    say: Say,
    since: Option<Instant>,
    said: u32,
    left_out: u64,
}

impl Log {
    /// A log that has said nothing.
    pub fn new(say: Say) -> Log {
        Log { say, since: None, said: 0, left_out: 0 }
    }

    /// Says a line, if there were not too many.
    pub fn say(&mut self, line: String) {
        self.flush();
        self.since.get_or_insert_with(Instant::now);
        if self.said < LINES {
            self.said += 1;
            (self.say)(&line);
        } else {
            self.left_out += 1;
        }
    }

    /// After a second: says how many lines were left out in it.
    pub fn flush(&mut self) {
        if self.since.is_none_or(|since| since.elapsed() < SECOND) {
            return;
        }
        let anew = Log::new(self.say);
        let left_out = std::mem::replace(self, anew).left_out;
        if left_out > 0 {
            (self.say)(&format!("{left_out} more of such lines in a second are left out"));
        }
    }

    /// How long until something is to be said; None: nothing is.
    pub fn rests(&self) -> Option<Duration> {
        let since = self.since.filter(|_| self.left_out > 0)?;
        Some(SECOND.saturating_sub(since.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_cut() {
        let mut log = Log::new(|_| ());
        assert_eq!(log.rests(), None);
        for _ in 0..LINES + 5 {
            log.say("a line of a test".to_owned());
        }
        assert!(log.left_out <= 5, "{log:?}");
        if log.left_out == 5 {
            assert!(log.rests().is_some_and(|rests| rests <= SECOND));
        }
    }
}
