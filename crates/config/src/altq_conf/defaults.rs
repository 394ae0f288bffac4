//! Executes the lines `red` and `rio`, which change the numbers of queues made later.

use super::file::{File, Words};
use super::words;
use crate::diagnostic::Span;

impl File<'_> {
    /// Executes `red THMIN THMAX INVPMAX`, or `rio` with three times as many numbers: the numbers
    /// of queues in the lines that follow.
    pub(super) fn defaults(&mut self, words: &mut Words<'_>, command: Span, of_rio: bool) {
        let levels = if of_rio { 3 } else { 1 };
        let mut read = [[0; 3]; 3];
        for (level, row) in read.iter_mut().enumerate().take(levels) {
            for (at, what) in ["a least threshold", "a greatest threshold", "an inverse probability"].iter().enumerate()
            {
                let Some(span) = words.next() else {
                    let name = self.slice(command);
                    let message = format!("`{name}` ends before {what}: {} numbers follow it", levels * 3);
                    let help = if of_rio {
                        "as `rio 35 45 10 20 30 10 5 15 10`: low, medium, high precedence"
                    } else {
                        "as `red 5 15 10`"
                    };
                    return self.error("missing-value", words.end, message, Some(help.to_owned()));
                };
                let word = self.slice(span);
                match words::integer(word).filter(|n| (1..=65_535).contains(n)) {
                    Some(n) => row[at] = n as u32,
                    None => {
                        let message = format!("{what} is a whole number from 1 to 65535, not `{word}`");
                        return self.error("bad-value", span, message, None);
                    }
                }
                if at == 1 && row[1] <= row[0] {
                    let message = format!("the greatest threshold, {}, is not above the least, {}", row[1], row[0]);
                    return self.error("out-of-range", span, message, Some("three times as much is usual".to_owned()));
                }
            }
            if of_rio {
                self.defaults.rio[level] = *row;
            } else {
                self.defaults.red = *row;
            }
        }
        self.end(words, command);
    }

    /// Refuses words behind the last one that a line takes.
    pub(super) fn end(&mut self, words: &mut Words<'_>, command: Span) {
        if let Some(span) = words.next() {
            let message = format!("`{}` takes nothing more: `{}`", self.slice(command), self.slice(span));
            self.error("unknown-word", span, message, Some("leave it out".to_owned()));
        }
    }
}
