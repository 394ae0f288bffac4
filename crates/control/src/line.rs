//! Cuts bytes, as they arrive, into lines.

/// Bytes that have arrived and are not handled yet. There are at most as many as the longest line
/// that is allowed, plus what arrived in one piece.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// Bytes in which no newline was found.
    searched: usize,
    /// True inside a line that was too long: the rest of it is thrown away.
    skipping: bool,
}

/// A line is longer than is allowed. It is reported once, and the line is thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Lines {
    /// Adds bytes that have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole line, without its newline; `None` if there is none yet.
    ///
    /// # Errors
    /// [`TooLong`] as soon as the line has more than `most` bytes.
    pub fn take(&mut self, most: usize) -> Result<Option<Vec<u8>>, TooLong> {
        loop {
            let unseen = self.bytes.get(self.searched..).unwrap_or_default();
            let Some(at) = unseen.iter().position(|byte| *byte == b'\n') else {
                let long = self.bytes.len() > most;
                if long || self.skipping {
                    // Frees the memory of a long line.
                    self.bytes = Vec::new();
                }
                self.searched = self.bytes.len();
                return if long && !std::mem::replace(&mut self.skipping, true) { Err(TooLong) } else { Ok(None) };
            };
            let end = self.searched + at;
            let line: Vec<u8> = self.bytes.drain(..=end).take(end).collect();
            self.searched = 0;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            return if line.len() > most { Err(TooLong) } else { Ok(Some(line)) };
        }
    }

    /// True if a whole line waits, or the end of a line that is thrown away.
    pub fn has_line(&self) -> bool {
        self.bytes.get(self.searched..).is_some_and(|rest| rest.contains(&b'\n'))
    }

    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True if no bytes wait.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out when `text` arrives in pieces of `size` bytes.
    fn cut(text: &[u8], size: usize, most: usize) -> Vec<Result<Vec<u8>, TooLong>> {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for piece in text.chunks(size) {
            lines.push(piece);
            loop {
                match lines.take(most) {
                    Ok(None) => break,
                    Ok(Some(line)) => out.push(Ok(line)),
                    Err(error) => out.push(Err(error)),
                }
            }
            assert!(lines.len() <= most, "{} bytes are held", lines.len());
        }
        out
    }

    #[test]
    fn lines_come_out_whole_whatever_the_pieces() {
        let text = b"one\n\ntwo and more\nthe half of";
        let expected = [Ok(b"one".to_vec()), Ok(Vec::new()), Ok(b"two and more".to_vec())];
        for size in 1..=text.len() {
            assert_eq!(cut(text, size, 12), expected, "pieces of {size}");
        }
    }

    #[test]
    fn a_long_line_is_said_once_and_the_next_one_is_read() {
        let text = [b"ok\n".as_slice(), &[b'x'; 1000], b"\nok\n12345678\n123456789\nok\n"].concat();
        let expected = [
            Ok(b"ok".to_vec()),
            Err(TooLong),
            Ok(b"ok".to_vec()),
            Ok(b"12345678".to_vec()),
            Err(TooLong),
            Ok(b"ok".to_vec()),
        ];
        for size in [1, 2, 3, 7, 8, 9, 10, 100, 999, 1000, 2000] {
            assert_eq!(cut(&text, size, 8), expected, "pieces of {size}");
        }
    }
}
