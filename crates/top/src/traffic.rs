//! The traffic of an interface that nobody shapes, or of a file: the largest protocols and hosts,
//! each with a line, as in TTT (K. Cho, "Tele Traffic Tapper").

use altq_monitor::watch::{Largest, What};
use altq_monitor::{Amount, Watch, Window};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};

use crate::number::{bytes, per_second, percent, rate};
use crate::screen::{LINE, Look, Screen};
use crate::spark;

/// The most entries of a list.
const MOST: usize = 100;

/// A host or a protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What it has for certain.
    pub at_least: Amount,
    /// What it may have beyond that.
    pub error: Amount,
    /// Bytes of each of the last seconds, the oldest first.
    pub line: Vec<u64>,
}

/// The largest of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// The largest first.
    pub entries: Vec<Entry>,
    /// The sum of all.
    pub total: Amount,
    /// What is not certain to belong to an entry.
    pub others: Amount,
}

/// The traffic of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The name of the interface or file.
    pub of: String,
    /// The number of seconds in the window.
    pub seconds: u64,
    /// Protocols with their service ports.
    pub protocols: List,
    /// Hosts, as senders and receivers.
    pub hosts: List,
}

impl List {
    fn of(watch: &Watch, what: What, largest: &Largest) -> List {
        let entry = |counted: &altq_monitor::summary::Counted<altq_monitor::fold::Label>| Entry {
            name: counted.key.to_string(),
            at_least: counted.at_least,
            error: counted.error,
            line: watch.line(what, counted.key).iter().map(|amount| amount.bytes).collect(),
        };
        let entries: Vec<Entry> = largest.listed.iter().take(MOST).map(entry).collect();
        let left_out: Amount = largest.listed.iter().skip(MOST).map(|counted| counted.at_least).sum();
        List { entries, total: largest.total, others: largest.others + left_out }
    }
}

impl Traffic {
    /// What a watch has seen in a window; without a window, in all seconds that are over. `None`
    /// before the first second is over.
    pub fn of(name: &str, watch: &Watch, window: Option<Window>) -> Option<Traffic> {
        let largest = |what: What| match window {
            Some(window) => watch.largest(what, window),
            None => Some(watch.overall(what)),
        };
        let (protocols, hosts) = (largest(What::Protocols)?, largest(What::Hosts)?);
        Some(Traffic {
            of: name.to_owned(),
            seconds: protocols.seconds,
            protocols: List::of(watch, What::Protocols, &protocols),
            hosts: List::of(watch, What::Hosts, &hosts),
        })
    }
}

/// The ten largest of each list as text, in so many columns.
pub fn table(screen: &Screen, traffic: &Traffic, width: u16) -> String {
    // Two lists, one below the other, each with a head, ten entries, and the rest; and one line
    // above and one below.
    let mut buffer = Buffer::empty(Rect::new(0, 0, width.clamp(40, 119), 2 * 13 + 2));
    draw(screen, traffic, &mut buffer);
    let text = crate::plain::text(&buffer);
    // Leaves out the line of keys.
    text.lines().rev().skip(1).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// Draws two lists, side by side if there is room for that, otherwise one below the other.
pub fn draw(screen: &Screen, traffic: &Traffic, buffer: &mut Buffer) {
    let area = *buffer.area();
    buffer.reset();
    if area.height < 6 || area.width < 40 {
        return text(buffer, area, 0, 0, "altq top: too small", Style::new());
    }
    let bold = Style::new().add_modifier(Modifier::BOLD);
    text(buffer, area, 0, 0, &head(screen, traffic), bold);
    let room = area.height - 2;
    let (first, second) = if area.width >= 120 {
        let half = area.width / 2;
        let left = Rect { y: area.y + 1, height: room, width: half - 1, ..area };
        (left, Rect { x: area.x + half, width: area.width - half, ..left })
    } else {
        let above = Rect { y: area.y + 1, height: room / 2, ..area };
        (above, Rect { y: above.y + above.height, height: room - above.height, ..area })
    };
    list(screen.look, "PROTOCOL", traffic.seconds, &traffic.protocols, buffer, first);
    list(screen.look, "HOST", traffic.seconds, &traffic.hosts, buffer, second);
    let known = screen.trouble.as_deref().unwrap_or("w window  p pause  q end");
    text(buffer, area, 0, area.height - 1, known, Style::new());
}

fn head(screen: &Screen, traffic: &Traffic) -> String {
    let total = traffic.protocols.total;
    let time = traffic.seconds.max(1) * 1_000_000_000;
    let mut head = format!(
        "altq top  {}  unshaped  {}bit/s {}p/s  {} in {} s",
        traffic.of,
        rate(altq_monitor::frame::rate(total.bytes, time)),
        per_second(total.packets, time),
        bytes(total.bytes),
        traffic.seconds,
    );
    if screen.paused {
        head += "  PAUSED";
    }
    head
}

fn list(look: Look, title: &str, seconds: u64, list: &List, buffer: &mut Buffer, area: Rect) {
    let width = usize::from(area.width);
    let numbers = 8 + 7 + 7;
    let line = width.saturating_sub(numbers + 24).min(LINE);
    let name = width.saturating_sub(numbers + line + 1).max(8);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let head = format!("{title:name$}{:>8}{:>7}{:>7}", "BIT/S", "PKT/S", "SHARE");
    text(buffer, area, 0, 0, &head, bold);
    let time = seconds.max(1) * 1_000_000_000;
    let row = |what: &str, sign: &str, amount: Amount| {
        format!(
            "{:name$.name$}{:>8}{:>7}{:>7}",
            what,
            format!("{sign}{}", rate(altq_monitor::frame::rate(amount.bytes, time))),
            per_second(amount.packets, time),
            percent(amount.bytes, list.total.bytes),
        )
    };
    let room = usize::from(area.height).saturating_sub(2);
    let shown = list.entries.len().min(room);
    for (y, entry) in (1..).zip(list.entries.iter().take(shown)) {
        let sign = if entry.error.bytes > 0 { ">=" } else { "" };
        text(buffer, area, 0, y, &row(&entry.name, sign, entry.at_least), Style::new());
        if line > 3 {
            let drawn = spark::line(entry.line.iter().copied(), line, look.ascii);
            text(buffer, area, name + numbers + 1, y, &drawn, Style::new());
        }
    }
    let left_out: Amount = list.entries.iter().skip(shown).map(|entry| entry.at_least).sum();
    let others = list.others + left_out;
    if !others.is_zero() {
        text(buffer, area, 0, shown as u16 + 1, &row("others", "", others), Style::new());
    }
}

fn text(buffer: &mut Buffer, area: Rect, x: usize, y: u16, text: &str, style: Style) {
    crate::draw::put(buffer, area, x, y, text, style);
}
