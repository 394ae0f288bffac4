//! Printing data on stdout. It is no error if the reader of a pipe has gone.

use std::io::{self, Write};

use anyhow::Context as _;

/// Prints data on stdout.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("stdout cannot be written"),
    }
}

/// Prints a line on stdout at once. False if its reader has gone.
pub fn line(text: &str) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).context("stdout cannot be written"),
    }
}

/// Prints a value as one line of JSON.
pub fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string(value)? + "\n"))
}

/// Columns of the terminal that names of rows get at least, if they need so many.
const NAME: usize = 10;

/// The number of columns of the terminal on stdout; `None` if stdout is none.
pub fn width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// A table for stdout: columns aligned, the first to the left and all others to the right, two
/// spaces apart. On a terminal it is as narrow as that ([`table_within`]).
#[cfg(feature = "experiments")]
pub fn table(rows: &[Vec<String>]) -> String {
    table_within(rows, width())
}

/// A table that is at most `width` wide, if that is possible. If a row's name leaves too little
/// room, it gets a line of its own, above the other cells. Columns that then do not fit follow in a
/// second table with the same names.
pub fn table_within(rows: &[Vec<String>], width: Option<usize>) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest =
        |c: usize| rows.iter().filter_map(|row| row.get(c)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    let width = width.unwrap_or(usize::MAX);
    let (names, mut from, mut out) = (widths.first().copied().unwrap_or(0), 1, String::new());
    while from == 1 || from < columns {
        let (mut to, mut taken) = (from, 0);
        // At least one column, even if it is too wide.
        while to < columns && (to == from || names.min(NAME) + taken + 2 + widths[to] <= width) {
            taken += 2 + widths[to];
            to += 1;
        }
        let room = names.min(width.saturating_sub(taken).max(1));
        out += if from > 1 { "\n" } else { "" };
        for row in rows {
            let name = row.first().map_or("", String::as_str);
            let mut line = format!("{name:room$}");
            if name.chars().count() > room {
                out += name.trim_end();
                out.push('\n');
                line = " ".repeat(room);
            }
            for (cell, width) in row.iter().zip(&widths).take(to).skip(from) {
                line += &format!("  {cell:>width$}");
            }
            if line.trim_end().is_empty() && name.chars().count() > room {
                continue;
            }
            out += line.trim_end();
            out.push('\n');
        }
        from = to.max(2);
    }
    out
}

/// A rate with three significant digits: `9.87 Mbit/s`.
pub fn rate(bit_s: u64) -> String {
    rate_with(bit_s, 3)
}

/// A rate with `count` significant digits, at least 3.
pub fn rate_with(bit_s: u64, count: usize) -> String {
    let (unit, word) = match bit_s {
        0..1_000 => return format!("{bit_s} bit/s"),
        1_000..1_000_000 => (1e3, "kbit/s"),
        1_000_000..1_000_000_000 => (1e6, "Mbit/s"),
        _ => (1e9, "Gbit/s"),
    };
    format!("{} {word}", digits(bit_s as f64 / unit, count))
}

/// A time with three significant digits: `1.19 ms`.
pub fn time(ns: u64) -> String {
    time_with(ns, 3)
}

/// A time with `count` significant digits, at least 3.
pub fn time_with(ns: u64, count: usize) -> String {
    let (unit, word) = match ns {
        0..1_000 => return format!("{ns} ns"),
        // A time that three digits would round up to a thousand gets the next unit.
        1_000..999_500 => (1e3, "us"),
        999_500..999_500_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {word}", digits(ns as f64 / unit, count))
}

/// A part of a whole in percent, with at most two decimals: `20.03 %`.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".into();
    }
    format!("{:.2} %", part as f64 * 100.0 / whole as f64)
}

fn digits(value: f64, count: usize) -> String {
    let before = match value {
        ..10.0 => 1,
        10.0..100.0 => 2,
        _ => 3,
    };
    format!("{value:.*}", count.saturating_sub(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|cell| cell.to_string()).collect()).collect()
    }

    #[test]
    fn a_table_is_as_narrow_as_its_terminal() {
        let rows = rows(&[&["class", "sent", "drops"], &["  a-long-name", "12 Mbit/s", "7"], &["b", "1 bit/s", "0"]]);
        let whole =
            "class               sent  drops\n  a-long-name  12 Mbit/s      7\nb                1 bit/s      0\n";
        assert_eq!(table_within(&rows, None), whole);
        assert_eq!(table_within(&rows, Some(31)), whole);
        assert_eq!(
            table_within(&rows, Some(30)),
            "class              sent  drops\n  a-long-name\n              12 Mbit/s      7\n\
             b               1 bit/s      0\n"
        );
        assert_eq!(
            table_within(&rows, Some(22)),
            "class             sent\n  a-long-name\n             12 Mbit/s\nb              1 bit/s\n\n\
             class          drops\n  a-long-name      7\nb                  0\n"
        );
        // A table of names only, and none at all.
        assert_eq!(table_within(&[vec!["a".into()], vec!["b".into()]], Some(5)), "a\nb\n");
        assert_eq!(table_within(&[], Some(5)), "");
    }
}
