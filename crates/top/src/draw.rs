//! Draws a [`Screen`] into a buffer of cells.

use altq_monitor::document::{Flow, Group};
use altq_monitor::frame::Row;
use altq_monitor::view::{Line, Sort};
use altq_monitor::{Frame, Window};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

use crate::columns::{NUMBERS, Widths};
use crate::number::{bytes, count, per_second, percent, rate, time};
use crate::screen::{Look, Screen};
use crate::spark;

/// Rows above the table.
pub const HEAD: u16 = 3;
/// The fewest rows for flows: a title, a head, the largest, and the rest.
const FLOWS: u16 = 5;

/// What the keys do, for the help.
const KEYS: [(&str, &str); 14] = [
    ("up down j k", "choose a class; its flows are shown below"),
    ("PgUp PgDn g G", "by pages, to the first, to the last"),
    ("Enter Space", "fold what is below the class, or unfold it"),
    ("left right", "fold, unfold"),
    ("s", "sort by the next column: policy, name, ask, got, ..."),
    ("r", "reverse the order"),
    ("/", "show only classes whose names have a text; Esc ends that"),
    ("z t", "hide idle classes; only classes without others below"),
    ("f", "flows by host, prefix, port or DSCP, or each by itself"),
    ("w", "window of 1, 10 or 60 seconds"),
    ("p", "pause"),
    ("Tab l", "the next link"),
    ("? h", "this help"),
    ("q Ctrl-C", "end"),
];

/// What the columns are, for the help.
const COLUMNS: [(&str, &str); 6] = [
    ("ASK", "guarantee, in bit/s of charged bytes"),
    ("GOT", "what the class and all below it sent"),
    ("BORR LENT", "what is beyond guarantees; guarantees that others use"),
    ("P50 P99", "how long packets waited"),
    ("DROPS QUEUE", "packets dropped a second; bytes that wait"),
    ("BY", "what keeps the class from sending more"),
];

/// The styles of what is drawn.
#[derive(Clone, Copy)]
struct Styles {
    plain: Style,
    head: Style,
    chosen: Style,
    loss: Style,
    borrowed: Style,
    line: Style,
}

impl Styles {
    fn of(look: Look) -> Styles {
        let plain = Style::new();
        let colored = |color: Color| if look.color { plain.fg(color) } else { plain };
        Styles {
            plain,
            head: plain.add_modifier(Modifier::BOLD),
            chosen: plain.add_modifier(Modifier::REVERSED),
            loss: colored(Color::LightRed),
            borrowed: colored(Color::Cyan),
            line: colored(Color::Green),
        }
    }
}

/// Draws everything. Notes in the screen how many rows are visible, so that keys can move by pages.
pub fn draw(screen: &mut Screen, buffer: &mut Buffer) {
    let area = *buffer.area();
    buffer.reset();
    if area.height <= HEAD + 1 || area.width < 20 {
        return put(buffer, area, 0, 0, "altq top: too small", Style::new());
    }
    head(screen, buffer, part(area, 0, HEAD));
    let foot = area.height - 1;
    if screen.help {
        help(screen.look, buffer, part(area, HEAD, foot - HEAD));
    } else {
        let room = foot - HEAD;
        let wanted = screen.chosen_class().map_or(0, |class| class.flows.len().max(class.groups.len()) as u16 + 3);
        // Flows get a third of the screen, or what the table leaves.
        let spare = room.saturating_sub(u16::try_from(screen.rows()).unwrap_or(u16::MAX));
        let most = (room / 3).max(FLOWS).max(spare);
        let below = if room > 2 * FLOWS { wanted.min(most) } else { 0 };
        screen.seen = usize::from(room - below);
        screen.follow();
        rows(screen, buffer, part(area, HEAD, room - below), screen.top);
        flows(screen, buffer, part(area, foot - below, below));
    }
    keys(screen, buffer, part(area, foot, 1));
}

fn part(area: Rect, from: u16, height: u16) -> Rect {
    Rect { y: area.y + from, height: height.min(area.height.saturating_sub(from)), ..area }
}

/// Writes a text at a place in an area. What does not fit is left out.
pub(crate) fn put(buffer: &mut Buffer, area: Rect, x: usize, y: u16, text: &str, style: Style) {
    let Ok(x) = u16::try_from(x) else { return };
    if x < area.width && y < area.height && !area.intersection(*buffer.area()).is_empty() {
        buffer.set_stringn(area.x + x, area.y + y, text, usize::from(area.width - x), style);
    }
}

/// A text of at most so many columns. The middle of a longer one is left out.
fn short(text: &str, width: usize, look: Look) -> String {
    let long = text.chars().count();
    if long <= width {
        return text.to_owned();
    }
    let gap = if look.ascii { "~" } else { "…" };
    let ahead = width.saturating_sub(1).div_ceil(2);
    let behind = width.saturating_sub(1 + ahead);
    let start: String = text.chars().take(ahead).collect();
    let end: String = text.chars().skip(long - behind).collect();
    start + gap + &end
}

/// The time of day in UTC.
fn clock(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000 % 86_400;
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// The two lines about the link, and the names of the columns.
pub(crate) fn head(screen: &Screen, buffer: &mut Buffer, area: Rect) {
    let styles = Styles::of(screen.look);
    let (Some(link), Some(frame)) = (screen.link(), screen.frame()) else {
        return put(buffer, area, 0, 0, "altq top: waiting for figures", styles.head);
    };
    let mut first = format!("altq top  {}", link.name);
    if let Some(asked) = link.classes.first().and_then(|class| class.asked_bit_s) {
        first += &format!("  {}bit/s", rate(asked));
    }
    first += &format!("  {}", link.state);
    first += &match link.unix_ns {
        Some(unix) => format!("  {}", clock(unix)),
        // A frame of a capture has no time of day; its time begins at 0.
        None => format!("  {} to {}", time(frame.from), time(frame.to)),
    };
    if let Some(cpu) = link.own.and_then(|own| own.cpu_percent) {
        first += &format!("  cpu {cpu:.0}%");
    }
    if screen.paused {
        first += "  PAUSED";
    }
    if screen.view.sort != Sort::Policy {
        first += &format!("  by {}{}", sort_name(screen.view.sort), if screen.view.reverse { " up" } else { "" });
    }
    if screen.view.hide_idle {
        first += "  idle hidden";
    }
    if screen.links() > 1 {
        first += &format!("  (Tab: {} more)", screen.links() - 1);
    }
    put(buffer, area, 0, 0, &first, styles.head);
    put(buffer, area, 0, 1, &second(frame), styles.plain);
    let widths = widths(screen, frame, area.width);
    let mut names = format!("  {:width$}", "CLASS", width = widths.name - 2);
    NUMBERS.iter().for_each(|name| names += &format!(" {name:>5}"));
    names += &format!(" {:width$} ", "BY", width = widths.by);
    let seconds = widths.line.min(crate::screen::LINE);
    if seconds >= 4 {
        names += &format!("{:>width$}", format!("{seconds}s"), width = widths.line);
    }
    put(buffer, area, 0, 2, &names, styles.head);
}

/// What the whole link did.
fn second(frame: &Frame) -> String {
    let total = frame.rows.first().map(|row| (row.total, row.rates)).unwrap_or_default();
    let mut text = format!(
        "sent {}bit/s {}p/s  queue {}  drops {}/s  marks {}/s  ",
        rate(total.1.sent),
        per_second(total.0.sent_packets, frame.time),
        bytes(total.0.backlog_bytes),
        per_second(total.0.dropped_packets, frame.time),
        per_second(total.0.marked_packets, frame.time),
    );
    for (window, name) in Window::ALL.iter().zip(["1s", "10s", "60s"]) {
        text += &if *window == frame.window { format!("[{name}]") } else { format!(" {name} ") };
    }
    text
}

/// The name of a column in `--sort` and on the screen.
pub fn sort_name(sort: Sort) -> &'static str {
    match sort {
        Sort::Policy => "policy",
        Sort::Name => "name",
        Sort::Asked => "ask",
        Sort::Got => "got",
        Sort::Borrowed => "borrowed",
        Sort::Lent => "lent",
        Sort::P50 => "p50",
        Sort::P99 => "p99",
        Sort::Drops => "drops",
        Sort::Backlog => "backlog",
    }
}

fn widths(screen: &Screen, frame: &Frame, width: u16) -> Widths {
    // With thousands of classes the first thousand are enough to find the longest name.
    let shown = screen.lines.iter().take(1000);
    let long = |line: &Line| line.depth as usize + frame.tree.name(line.class).chars().count() + 5;
    let longest = shown.clone().map(long).max().unwrap_or(0);
    let limits = shown.filter_map(|line| frame.row(line.class));
    let limit = limits.map(|row| row.limited_by.chars().count()).max().unwrap_or(0);
    Widths::of(usize::from(width), longest, limit)
}

/// Draws the rows of the table from row `from` on, as many as fit.
pub(crate) fn rows(screen: &Screen, buffer: &mut Buffer, area: Rect, from: usize) {
    let Some(frame) = screen.frame() else { return };
    let widths = widths(screen, frame, area.width);
    let chosen = screen.row();
    for (y, (at, line)) in (0..area.height).zip(screen.lines.iter().enumerate().skip(from)) {
        row(screen, frame, buffer, part(area, y, 1), line, widths, chosen == Some(at));
    }
}

/// The text, or `-` if there is nothing.
fn or_dash(there: bool, text: impl FnOnce() -> String) -> String {
    if there { text() } else { "-".to_owned() }
}

fn row(screen: &Screen, frame: &Frame, buffer: &mut Buffer, area: Rect, line: &Line, widths: Widths, chosen: bool) {
    let styles = Styles::of(screen.look);
    let Some(Row { total, rates, delay, limited_by, .. }) = frame.row(line.class) else { return };
    let class = frame.tree.name(line.class);
    let indent = (line.depth as usize).min(widths.name / 3);
    let hidden = if line.hidden > 0 { format!(" +{}", line.hidden) } else { String::new() };
    let room = (widths.name - 2).saturating_sub(indent + hidden.len());
    let mark = if chosen { '>' } else { ' ' };
    let style = if chosen { styles.chosen } else { styles.plain };
    put(buffer, area, 0, 0, &format!("{mark} {:indent$}{}{hidden}", "", short(class, room, screen.look)), style);
    let asked = frame.tree.classes().get(line.class as usize).and_then(|class| class.asked);
    let numbers = [
        (or_dash(asked.is_some(), || rate(asked.map_or(0, |asked| asked.as_bit_s()))), styles.plain),
        (rate(rates.got), styles.plain),
        (or_dash(rates.borrowed > 0, || rate(rates.borrowed)), styles.borrowed),
        (or_dash(rates.lent > 0, || rate(rates.lent)), styles.borrowed),
        (or_dash(delay.count > 0, || time(delay.p50)), styles.plain),
        (or_dash(delay.count > 0, || time(delay.p99)), styles.plain),
        (
            per_second(total.dropped_packets, frame.time),
            if total.dropped_packets > 0 { styles.loss } else { styles.plain },
        ),
        (bytes(total.backlog_bytes), styles.plain),
    ];
    let mut x = widths.name;
    for (text, style) in numbers {
        put(buffer, area, x, 0, &format!(" {text:>5}"), style);
        x += 6;
    }
    put(buffer, area, x + 1, 0, &short(limited_by, widths.by, screen.look), styles.plain);
    x += 1 + widths.by + 1;
    if let Some(past) = screen.past(class).filter(|_| widths.line > 0) {
        let drawn = spark::line(past.iter().copied(), widths.line.min(crate::screen::LINE), screen.look.ascii);
        let skipped = widths.line.saturating_sub(crate::screen::LINE);
        put(buffer, area, x + skipped, 0, &drawn, styles.line);
    }
}

/// A flow as text: `10.1.0.7:51222 > 192.0.2.9:443`.
fn flow_text(flow: &Flow) -> String {
    let end = |address: Option<core::net::IpAddr>, port: Option<u16>| match (address, port) {
        (Some(address), None) => address.to_string(),
        (Some(core::net::IpAddr::V6(address)), Some(port)) => format!("[{address}]:{port}"),
        (Some(address), Some(port)) => format!("{address}:{port}"),
        (None, _) => String::new(),
    };
    match flow.src {
        None => "not IP".to_owned(),
        Some(_) => format!("{} > {}", end(flow.src, flow.sport), end(flow.dst, flow.dport)),
    }
}

/// Draws the flows of the chosen class: what each has for certain, and the rest.
pub(crate) fn flows(screen: &Screen, buffer: &mut Buffer, area: Rect) {
    let (Some(class), Some(frame)) = (screen.chosen_class(), screen.frame()) else { return };
    if area.height < 3 {
        return;
    }
    let styles = Styles::of(screen.look);
    let rule = if screen.look.ascii { "-" } else { "─" };
    // Until others come, the flows of the last document stay.
    let by = screen.by.filter(|_| class.flows.is_empty());
    let title = match by {
        Some(by) => format!(" {} flows by {}", class.name, by.word()),
        None => format!(" {} flows", class.name),
    };
    let rest = usize::from(area.width).saturating_sub(title.chars().count());
    put(buffer, area, 0, 0, &format!("{}{title}", rule.repeat(rest)), styles.plain);
    let name = usize::from(area.width).saturating_sub(6 + 5 + 8 + 8 + 7).max(10);
    let (what, proto, dscp) = match by {
        Some(by) => (by.word().to_uppercase(), "", ""),
        None => ("FLOW".to_owned(), "PROTO", "DSCP"),
    };
    let head = format!("{what:name$} {proto:<5} {dscp:>4} {:>7} {:>7} {:>6}", "BIT/S", "PKT/S", "SHARE");
    put(buffer, area, 0, 1, &head, styles.head);
    let whole = class.window.sent_bytes;
    let bit_s = |bytes: u64| altq_monitor::frame::rate(bytes, frame.time);
    let line = |what: &str, [proto, dscp]: [&str; 2], sign: &str, bytes: u64, packets: u64| {
        format!(
            "{:name$} {proto:<5.5} {dscp:>4} {:>7} {:>7} {:>6}",
            short(what, name, screen.look),
            format!("{sign}{}", rate(bit_s(bytes))),
            per_second(packets, frame.time),
            percent(bytes, whole),
        )
    };
    let of_flow = |flow: &Flow| {
        let sign = if flow.error_bytes > 0 { ">=" } else { "" };
        // The registered name is longer than the column.
        let proto = flow.proto.as_deref().map_or("-", |name| if name == "ipv6-icmp" { "icmp6" } else { name });
        let dscp = flow.dscp.to_string();
        let (bytes, packets) = (flow.bytes_at_least, flow.packets_at_least);
        (line(&flow_text(flow), [proto, dscp.as_str()], sign, bytes, packets), bytes, packets)
    };
    let of_group = |group: &Group| {
        let (bytes, packets) = (group.bytes_at_least, group.packets_at_least);
        (line(&group.name, ["", ""], "", bytes, packets), bytes, packets)
    };
    // Text, bytes and packets of each.
    let all: Vec<(String, u64, u64)> = match by {
        Some(_) => class.groups.iter().map(of_group).collect(),
        None => class.flows.iter().map(of_flow).collect(),
    };
    let room = usize::from(area.height - 2);
    let shown = all.len().min(room.saturating_sub(1));
    let mut others = (class.other_bytes.unwrap_or(whole), class.window.sent_packets);
    for (y, (text, _, packets)) in (2..).zip(all.iter().take(shown)) {
        others.1 = others.1.saturating_sub(*packets);
        put(buffer, area, 0, y, text, styles.plain);
    }
    others.0 += all.iter().skip(shown).map(|(_, bytes, _)| bytes).sum::<u64>();
    let text = match class.other_bytes {
        None if screen.is_past => "the history has no flows".to_owned(),
        None => "waiting for the flows of this class".to_owned(),
        Some(_) => line("others", ["", ""], "", others.0, others.1),
    };
    put(buffer, area, 0, 2 + shown as u16, &text, styles.plain);
}

fn help(look: Look, buffer: &mut Buffer, area: Rect) {
    let styles = Styles::of(look);
    let both = KEYS.iter().chain(&COLUMNS);
    for (y, (what, does)) in (0..area.height).zip(both) {
        put(buffer, area, 1, y, what, styles.head);
        put(buffer, area, 16, y, does, styles.plain);
    }
}

/// Draws the last line: keys, what is typed, or what is wrong.
fn keys(screen: &Screen, buffer: &mut Buffer, area: Rect) {
    let styles = Styles::of(screen.look);
    let filter = &screen.view.filter;
    let (text, style) = match &screen.trouble {
        Some(trouble) => (trouble.clone(), styles.loss),
        None if screen.typing => (format!("show classes with: {filter}_"), styles.head),
        None if screen.help => ("any key goes back".to_owned(), styles.plain),
        None if !filter.is_empty() => {
            let found = count(screen.rows() as u64);
            (format!("filter: {filter} (Esc ends it)  {found} classes  ? help  q end"), styles.plain)
        }
        None => {
            let known = "j/k move  Enter fold  s sort  / filter  z idle  w window  p pause  ? help  q end";
            (known.to_owned(), styles.plain)
        }
    };
    put(buffer, area, 0, 0, &text, style);
}
