//! The columns of the table, and how wide they are.

/// The widths of the columns whose width is not fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Widths {
    /// The column of names, with two cells in front for the mark.
    pub name: usize,
    /// The column of what limits a class.
    pub by: usize,
    /// The column of lines.
    pub line: usize,
}

/// The columns of numbers: five cells each, and a space in front.
pub(crate) const NUMBERS: [&str; 8] = ["ASK", "GOT", "BORR", "LENT", "P50", "P99", "DROPS", "QUEUE"];
const NUMBER: usize = 6;

impl Widths {
    /// The widths for a screen of `width` cells. `longest`: the longest name with its indent. Spare
    /// cells go first to names, then to limits, then to lines.
    pub fn of(width: usize, longest: usize, limit: usize) -> Widths {
        let numbers = NUMBERS.len() * NUMBER;
        // The smallest widths; they fit into 80 cells.
        let (mut name, mut by, mut line) = (14, 7, 9);
        let mut left = width.saturating_sub(name + numbers + 1 + by + 1 + line);
        let mut more = |now: &mut usize, wanted: usize| {
            let more = wanted.saturating_sub(*now).min(left);
            *now += more;
            left -= more;
        };
        more(&mut name, longest.saturating_add(2).min(40));
        more(&mut by, limit.min(16));
        more(&mut line, 60);
        if width < name + numbers + 1 + by + 1 + line {
            line = width.saturating_sub(name + numbers + 1 + by + 1);
        }
        Widths { name, by, line }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighty_columns_are_enough() {
        assert_eq!(Widths::of(80, 40, 16), Widths { name: 14, by: 7, line: 9 });
        assert_eq!(Widths::of(90, 20, 8), Widths { name: 22, by: 8, line: 10 });
        assert_eq!(Widths::of(200, 20, 5), Widths { name: 22, by: 7, line: 60 });
        assert_eq!(Widths::of(60, 20, 5).line, 0);
    }
}
