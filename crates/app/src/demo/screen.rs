//! Prints the demo's results as text of a given width, with some colour on terminals.

use std::env;
use std::fmt::Write as _;
use std::io::{IsTerminal, stdout};

use super::conf_1997::{ASKED, CONF, Conf1997, PUBLISHED};
use super::live::Live;
use super::share::{Acts, Counts, FIFO_LIMIT, Shares};
use super::traffic::STREAMS;
use altq_engine::spec::ROOT;
use altq_engine::units::{Nanos, SECOND};

/// The screen that the text is for.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// Its width in columns.
    pub width: usize,
    /// Whether to use colour.
    pub colour: bool,
}

/// On screens with fewer columns the tables of the FIFO and of altq are printed one below the
/// other.
const SIDE_BY_SIDE: usize = 79;

impl Screen {
    /// The screen of stdout. Its width is COLUMNS, or that of the terminal, or 80. There is colour
    /// only on a terminal, and not if NO_COLOR is set.
    pub fn of_stdout() -> Screen {
        let set = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let own = || {
            rustix::termios::tcgetwinsize(stdout())
                .ok()
                .map(|size| usize::from(size.ws_col))
                .filter(|columns| *columns > 0)
        };
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colour = stdout().is_terminal() && !dumb && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Screen { width: set.or_else(own).unwrap_or(80).clamp(50, 100), colour }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    fn title(&self, text: &str) -> String {
        self.paint("1", &self.fill(text))
    }

    /// Breaks a paragraph at words.
    fn fill(&self, text: &str) -> String {
        wrap(text, self.width, "")
    }

    /// The text of the first part: the tables and the bars.
    pub fn shares(&self, shares: &Shares) -> String {
        let mut out = String::new();
        let sum: f64 = shares.altq[0].iter().map(|counts| rate(counts.offered, 0)).sum();
        let _ = writeln!(
            out,
            "{}\n",
            self.fill(&format!(
                "Two companies share a {:.0} Mbit/s line: acme pays for 60 %, bolt for 40 %. Everybody sends, {sum:.1} \
                 Mbit/s in all. The same packets, once through a FIFO of {FIFO_LIMIT} packets, once through altq:",
                shares.link.spec.rate.as_bit_s() as f64 / 1e6
            ))
        );
        if self.width >= SIDE_BY_SIDE {
            out += &self.table(shares, true, true);
        } else {
            out += &self.table(shares, true, false);
            out.push('\n');
            out += &self.table(shares, false, true);
        }
        out.push('\n');
        let _ = writeln!(
            out,
            "{}\n",
            self.fill(
                "A FIFO gives most to whoever sends most, and everybody waits. CBQ keeps each class's share, and lends \
                 what a class leaves: first within its company, then to the other. Now video pauses (altq, Mbit/s, # \
                 own share, + borrowed):"
            )
        );
        out += &self.bars(shares);
        out
    }

    fn table(&self, shares: &Shares, fifo: bool, altq: bool) -> String {
        let mut out = String::new();
        let (mut head, mut words, mut units) = (format!("{:9}", ""), format!("{:9}", "class"), format!("{:9}", ""));
        let mut column = |width: usize, word: &str, unit: &str| {
            let _ = write!(words, "{word:>width$}");
            let _ = write!(units, "{unit:>width$}");
        };
        if fifo {
            column(6, "sends", "Mbit/s");
            column(8, "got", "Mbit/s");
            column(6, "p50", "ms");
            column(6, "p99", "ms");
            column(5, "lost", "%");
            let _ = write!(head, "{:6}{:^25}", "", "through a FIFO");
        }
        if altq {
            column(7, "asked", "Mbit/s");
            column(7, "got", "Mbit/s");
            column(9, "borrowed", "Mbit/s");
            column(6, "p50", "ms");
            column(6, "p99", "ms");
            column(5, "lost", "%");
            let _ = write!(head, "{:^39}", "through altq");
        }
        let _ = writeln!(out, "{}", self.paint("1", head.trim_end()));
        let _ = writeln!(out, "{words}\n{units}");
        for (id, class) in shares.link.classes.iter().enumerate().skip(1) {
            let parent = shares.link.spec.classes.get(id).map_or(ROOT, |class| class.parent);
            let depth = if parent == ROOT { 0 } else { 2 };
            let _ = write!(out, "{:9}", format!("{:depth$}{}", "", class.name));
            // The row of a company is the sum of its classes.
            let streams: Vec<usize> = (0..STREAMS.len())
                .filter(|stream| {
                    let own = STREAMS.get(*stream).and_then(|stream| shares.link.class(stream.class));
                    own.is_some_and(|own| {
                        own as usize == id
                            || shares
                                .link
                                .spec
                                .classes
                                .get(own as usize)
                                .is_some_and(|class| class.parent as usize == id)
                    })
                })
                .collect();
            let leaf = parent != ROOT;
            let sum = |acts: &Acts, what: fn(&Counts) -> u64| {
                streams.iter().filter_map(|s| acts[0].get(*s)).map(what).sum::<u64>()
            };
            let delays =
                |acts: &Acts, width: usize| match streams.first().and_then(|s| acts[0].get(*s)).filter(|_| leaf) {
                    Some(counts) => format!("{:>width$}{:>width$}", time(counts.delay(50)), time(counts.delay(99))),
                    None => format!("{:w$}", "", w = 2 * width),
                };
            let lost = |acts: &Acts| {
                100.0 * sum(acts, |counts| counts.lost) as f64 / sum(acts, |counts| counts.packets).max(1) as f64
            };
            if fifo {
                let acts = &shares.fifo;
                let _ = write!(out, "{:6.2}", rate(sum(acts, |counts| counts.offered), 0));
                let _ = write!(
                    out,
                    "{:8.2}{}{:5.0}",
                    rate(sum(acts, |counts| counts.sent), 0),
                    delays(acts, 6),
                    lost(acts)
                );
            }
            if altq {
                let acts = &shares.altq;
                let asked = shares.asked.get(id).copied().unwrap_or(0) as f64 / 1e6;
                let _ = write!(out, "{asked:7.2}");
                let got = format!("{:7.2}", rate(sum(acts, |counts| counts.sent), 0));
                let _ = write!(out, "{}", if leaf { self.paint("1", &got) } else { got });
                // A company's row shows nothing borrowed. Its classes also borrow from each other,
                // so their sum is more than the company borrowed.
                let borrowed =
                    if leaf { format!("{:.2}", rate(sum(acts, |counts| counts.borrowed), 0)) } else { String::new() };
                let _ = write!(out, "{borrowed:>9}{}{:5.0}", delays(acts, 6), lost(acts));
            }
            out.push('\n');
        }
        out
    }

    fn bars(&self, shares: &Shares) -> String {
        // A line has the name and two bars, each with its figure.
        let room = self.width.saturating_sub(9 + 2 * 7 + 2) / 2;
        let most = shares.altq.iter().flatten().map(|counts| counts.sent).max().unwrap_or(1).max(1);
        let mut out = format!("{:9}{:width$}{}\n", "", "everybody sends", "video pauses", width = room + 9);
        for (at, stream) in STREAMS.iter().enumerate() {
            let _ = write!(out, "{:9}", stream.class);
            for (act, acts) in shares.altq.iter().enumerate() {
                let Some(counts) = acts.get(at) else { continue };
                let cells = |bytes: u64| (bytes as usize * room).div_ceil(most as usize);
                let (all, own) = (cells(counts.sent), cells(counts.sent.saturating_sub(counts.borrowed)));
                let bar = format!("{}{}", self.paint("34", &"#".repeat(own)), self.paint("33", &"+".repeat(all - own)));
                let figure = format!(" {:.2}", rate(counts.sent, act));
                let gap = if act == 0 { (room + 9).saturating_sub(all + figure.len()) } else { 0 };
                let _ = write!(out, "{bar}{figure}{:gap$}", "");
            }
            out.push('\n');
        }
        out
    }

    /// The text of the second part: the configuration of 1997.
    pub fn conf_1997(&self, rates: &Conf1997) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "{}", self.title("A cbq.conf of 1997, as it was printed, runs as it is:"));
        out.push('\n');
        for line in CONF.lines() {
            let _ = writeln!(out, "{}", wrap(&format!("  {}", line.trim_end()), self.width, "      "));
        }
        out.push('\n');
        let _ = writeln!(
            out,
            "{}",
            self.fill(&format!(
                "{CLASS} may have {} Mbit/s and never more. It always has packets, and got:",
                mbit(ASKED.as_bit_s()),
                CLASS = "tcp_class"
            ))
        );
        // The published rates count the payload of TCP, 1448 bytes of a packet of 1500. CBQ counts
        // whole packets.
        let measured =
            |hz: &str, payload: u64| (format!("1997, {hz}: {} of payload, is", mbit(payload)), payload * 1500 / 1448);
        let rows = [
            measured("100 Hz", PUBLISHED[0]),
            ("estimator classic, 100 Hz".into(), rates.classic[0]),
            measured("1000 Hz", PUBLISHED[1]),
            ("estimator classic, 1000 Hz".into(), rates.classic[1]),
            ("estimator exact, 100 Hz".into(), rates.exact),
        ];
        for (what, rate) in rows {
            let room = self.width.saturating_sub(16).min(40);
            let _ = writeln!(out, "  {what:room$} {:>6} Mbit/s", mbit(rate));
        }
        out
    }

    /// The commands to try next.
    pub fn next(&self) -> String {
        let mut out = String::from("Next:\n");
        for (command, does) in [
            ("altq demo --policy > line.altq", "the policy above, to change"),
            ("altq check line.altq", "what it promises"),
        ] {
            let beside = 2 + 31 + 2 + does.len() <= self.width;
            let _ = if beside {
                writeln!(out, "  {command:31}  {does}")
            } else {
                writeln!(out, "  {command}\n      {does}")
            };
        }
        out
    }

    /// The text of the third part: real packets.
    pub fn live(&self, live: &Live) -> String {
        let mut out = String::new();
        match live {
            Live::Skipped(reason) => {
                let _ = writeln!(
                    out,
                    "{}",
                    self.fill(&format!("Skipped: the same policy on the kernel's own TCP: {reason}"))
                );
            }
            Live::Measured(rows) => {
                let _ = writeln!(
                    out,
                    "{}\n",
                    self.title("The same policy on real packets: kernel TCP in network namespaces, all at once:")
                );
                let _ = writeln!(out, "{:9}{:>7}{:>9}{:>7}{:>7}   sent by", "class", "got", "borrowed", "p50", "p99");
                let _ = writeln!(out, "{:9}{:>7}{:>9}{:>7}{:>7}", "", "Mbit/s", "Mbit/s", "ms", "ms");
                for row in rows {
                    let (p50, p99) = (time(row.delay.0), time(row.delay.1));
                    let (got, borrowed) = (mbit(row.got), mbit(row.borrowed));
                    let _ = writeln!(out, "{:9}{got:>7}{borrowed:>9}{p50:>7}{p99:>7}   {}", row.class, row.sent_by);
                }
            }
            Live::Invalid(reasons) => {
                let reasons = reasons.join("; ");
                let _ = writeln!(
                    out,
                    "{}",
                    self.fill(&format!(
                        "INVALID: the same policy on kernel TCP ran, but no figure is shown: {reasons}"
                    ))
                );
            }
        }
        out
    }
}

/// Bytes in an act as Mbit/s.
fn rate(bytes: u64, act: usize) -> f64 {
    let (from, to) = super::share::ACTS[act.min(1)];
    bytes as f64 * 8.0 / 1e6 / ((to - from) as f64 / SECOND as f64)
}

fn mbit(bit_s: u64) -> String {
    format!("{:.2}", bit_s as f64 / 1e6)
}

/// A time in milliseconds, with one decimal if it is short.
fn time(time: Option<Nanos>) -> String {
    match time {
        None => "-".into(),
        Some(time) if time < 100_000_000 => format!("{:.1}", time as f64 / 1e6),
        Some(time) => format!("{:.0}", time as f64 / 1e6),
    }
}

/// Breaks a line at words; lines after the first begin with `indent`. A word longer than the width
/// stands alone.
fn wrap(text: &str, width: usize, indent: &str) -> String {
    let lead: String = text.chars().take_while(|c| *c == ' ').collect();
    let mut out = lead.clone();
    let mut column = lead.len();
    let mut first = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !first && column + 1 + length > width {
            out.push('\n');
            out.push_str(indent);
            column = indent.len();
        } else if !first {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
        first = false;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_words() {
        assert_eq!(wrap("aa bb cc", 5, ""), "aa bb\ncc");
        assert_eq!(wrap("  aa bb cc", 7, "    "), "  aa bb\n    cc");
        assert_eq!(wrap("abcdefgh i", 4, ""), "abcdefgh\ni");
    }
}
