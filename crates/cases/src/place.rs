//! A place in a text, as messages show it: line, column, and the line with a caret below it.

use std::fmt;

/// The most characters of a line that [`Place::of`] keeps.
const LONGEST_LINE: usize = 200;

/// A place in a text. Displayed, it is the line with its number, and a caret below the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The line, or a piece of it.
    pub shown: String,
    /// Number of characters of `shown` before the place.
    pub caret: usize,
}

impl Place {
    /// The place of a byte, with up to 200 characters of its line.
    pub fn of(text: &str, byte: usize) -> Place {
        Place::cut(text, byte, usize::MAX, |_| LONGEST_LINE)
    }

    /// The place of a byte in a line that may be very long: up to 50 characters before the place,
    /// and 30 from it on.
    pub fn in_long_line(text: &str, byte: usize) -> Place {
        Place::cut(text, byte, 50, |caret| caret + 30)
    }

    /// The place of a byte, with at most `before` characters before it. `longest` returns how many
    /// characters are shown in all, for the number of those before the place.
    fn cut(text: &str, byte: usize, before: usize, longest: impl Fn(usize) -> usize) -> Place {
        let at = (0..=byte.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let begin = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let column = text[begin..at].chars().count();
        let line = text[begin..].lines().next().unwrap_or("").chars();
        let caret = column.min(before);
        Place {
            line: text[..begin].matches('\n').count() + 1,
            column: column + 1,
            shown: line.skip(column - caret).take(longest(caret)).collect(),
            caret,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        // Tabs stay tabs, so that the caret is below its letter.
        let pad: String = self.shown.chars().take(self.caret).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        write!(f, " {number} | {}\n {:width$} | {pad}^", self.shown, "", width = number.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caret_stands_below_its_letter() {
        let place = Place::of("one\n\ttwo é x", "one\n\ttwo é ".len());
        assert_eq!((place.line, place.column), (2, 8));
        assert_eq!(place.to_string(), " 2 | \ttwo é x\n   | \t      ^");
        // A byte inside a letter gives the place before the letter; one behind the end gives the
        // end.
        assert_eq!((Place::of("é", 1).column, Place::of("ab\n", 99)), (1, Place::of("ab\n", 3)));
        assert_eq!(Place::of("ab\n", 3).to_string(), " 2 | \n   | ^");
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let text = format!("{}x{}", "a".repeat(100), "b".repeat(100));
        let place = Place::in_long_line(&text, 100);
        assert_eq!((place.column, place.caret), (101, 50));
        assert_eq!(place.shown, format!("{}x{}", "a".repeat(50), "b".repeat(29)));
        assert_eq!(Place::of(&text, 0).shown.len(), 200);
    }
}
