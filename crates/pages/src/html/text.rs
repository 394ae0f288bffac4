//! Text on a page: figures for people, paragraphs, names of files.

use maud::{Markup, html};

/// The paragraphs of a text. Line breaks inside a paragraph do not matter.
pub fn paragraphs(text: &str) -> Markup {
    let pieces = text.split("\n\n").map(|piece| piece.split_whitespace().collect::<Vec<_>>().join(" "));
    html! { @for piece in pieces.filter(|piece| !piece.is_empty()) { p { (code(&piece)) } "\n" } }
}

/// A text in which words between backticks are shown as code.
fn code(text: &str) -> Markup {
    let pieces: Vec<&str> = text.split('`').collect();
    html! {
        @for (n, piece) in pieces.iter().enumerate() {
            @if n % 2 == 0 { (piece) }
            @else if n + 1 < pieces.len() { code { (piece) } }
            // The last backtick has no partner.
            @else { "`" (piece) }
        }
    }
}

/// A number with four significant digits and without zeros at its end; large numbers in groups of
/// three digits.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let digits = match value.abs() {
        0.0 => 0,
        v => (3 - v.log10().floor() as i32).clamp(0, 6) as usize,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text };
    grouped(&text)
}

/// A number from 10,000 on in groups of three digits.
fn grouped(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("−", rest));
    let (whole, part) = rest.split_once('.').map_or((rest, String::new()), |(whole, part)| (whole, format!(".{part}")));
    if whole.len() < 5 {
        return format!("{sign}{whole}{part}");
    }
    let groups: Vec<&str> =
        whole.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or("")).collect();
    format!("{sign}{}{part}", groups.join(","))
}

/// A figure of `altq.result/1` in a unit that suits its size. `unit`: the unit of `value`.
pub fn figure(value: f64, unit: &str) -> String {
    match unit {
        "fraction" => format!("{} %", number(value * 100.0)),
        "bit/s" => scaled(value, &[(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")]),
        "ns" => time(value),
        "" => number(value),
        unit => format!("{} {unit}", number(value)),
    }
}

/// A time in nanoseconds.
pub fn time(ns: f64) -> String {
    scaled(ns, &[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")])
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let fits = units.iter().find(|(size, _)| value.abs() >= *size).or(units.last());
    fits.map_or(String::new(), |(size, word)| format!("{} {word}", number(value / size)))
}

/// A time in ns since 1970 as a date: `2026-11-23 01:53:42 UTC`.
pub fn date(unix_ns: u64) -> String {
    let mut days = unix_ns / 1_000_000_000 / 86_400;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02} {} UTC", days + 1, clock(unix_ns))
}

/// A time in ns since 1970 as a time of the day in UTC: `01:53:42`.
pub fn clock(unix_ns: u64) -> String {
    let second = unix_ns / 1_000_000_000 % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// A relative deviation with its sign: `+1.3 %`.
pub fn deviation(part: f64) -> String {
    if !part.is_finite() {
        return "–".into();
    }
    let percent = part * 100.0;
    let digits = if percent.abs() < 9.95 { 1 } else { 0 };
    let text = format!("{:.digits$}", percent.abs());
    let sign = if text.chars().all(|c| c == '0' || c == '.') {
        ""
    } else if percent < 0.0 {
        "−"
    } else {
        "+"
    };
    format!("{sign}{text} %")
}

/// A name in a form that fits links and file names.
pub fn slug(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_as_people_read_them() {
        assert_eq!(
            [9.73, 0.0, 133.58, 0.25, 1234567.0, 12.0, 1e-3].map(number),
            ["9.73", "0", "133.6", "0.25", "1,234,567", "12", "0.001"]
        );
        assert_eq!(figure(0.2, "fraction"), "20 %");
        assert_eq!(figure(9_787_000.0, "bit/s"), "9.787 Mbit/s");
        assert_eq!([0.0, 1500.0, 2_500_000.0, 3e9].map(time), ["0 ns", "1.5 µs", "2.5 ms", "3 s"]);
        assert_eq!((figure(3.5, "KB/s"), figure(7.0, "")), ("3.5 KB/s".into(), "7".into()));
        assert_eq!([0.013, -0.248, 0.0001, f64::NAN].map(deviation), ["+1.3 %", "−25 %", "0.0 %", "–"]);
    }

    #[test]
    fn dates() {
        // `date -u -d @951782400` and so on.
        for (second, expected) in [
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_795_398_822, "2026-11-23 01:53:42 UTC"),
            (1_798_761_599, "2026-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(date(second * 1_000_000_000 + 999_999_999), expected);
        }
    }

    #[test]
    fn text_is_markup() {
        assert_eq!(paragraphs("a <b>\nc\n\n\nd").into_string(), "<p>a &lt;b&gt; c</p>\n<p>d</p>\n");
        assert_eq!(paragraphs("a `b` c `d").into_string(), "<p>a <code>b</code> c `d</p>\n");
        assert_eq!(slug("a/b c"), "a_b_c");
    }
}
