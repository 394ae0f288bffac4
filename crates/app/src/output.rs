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

/// Prints a value as one line of JSON.
pub fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string(value)? + "\n"))
}

/// A table: columns aligned, the first to the left and all others to the right; two spaces apart.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|row| row.get(c)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[c] - cell.chars().count());
            let gap = if c == 0 { "" } else { "  " };
            line += &if c == 0 { format!("{cell}{pad}") } else { format!("{gap}{pad}{cell}") };
        }
        out += line.trim_end();
        out.push('\n');
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
