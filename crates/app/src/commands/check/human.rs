//! The report for people: a tree of classes with what each is promised.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use altq_config::{Device, Link, Path, Policy, Promises, Reservations};
use altq_engine::link::{Framing, Overhead};
use altq_engine::schedule::{Order, Role};
use altq_engine::settings::Limit;
use altq_engine::spec::{ClassId, ROOT, Regulator};
use altq_engine::units::{Nanos, Rate, time_text};

use crate::{output, pattern, tree};

/// What of a policy is printed.
pub struct View<'a> {
    /// Only these classes, with wildcards, what is below them and what stands above them; all if
    /// there is none.
    pub classes: &'a [String],
    /// Each class, however many are alike.
    pub all: bool,
}

/// Of classes that are alike and have one parent, the first is printed if there are so many.
const ALIKE: usize = 8;

/// What a policy is and promises.
pub fn report(policy: &Policy, view: &View<'_>) -> String {
    let mut out = String::new();
    for (at, link) in policy.links.iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        // Writing to a string does not fail.
        let _ = link_report(&mut out, link, view);
    }
    out
}

fn link_report(out: &mut String, link: &Link, view: &View<'_>) -> std::fmt::Result {
    let place = match &link.device {
        Some(Device::Interface { name, ingress: false }) => format!(", what leaves by {name}"),
        Some(Device::Interface { name, ingress: true }) => format!(", what comes in at {name}"),
        Some(Device::Bridge { from, to }) => format!(", what comes in at {from} and leaves by {to}"),
        None => String::new(),
    };
    writeln!(out, "link {}: {}{place}", link.name, rate(link.spec.rate))?;
    if let Some(adapt) = &link.adapt {
        let (from, to, target) = (rate(adapt.from), rate(adapt.to), time(adapt.target));
        let probes = adapt.reflectors.len();
        writeln!(out, "  adapts     from {from} to {to}, target {target}, reflectors: {probes}")?;
        writeln!(out, "             what is promised below holds at {}", rate(link.spec.rate))?;
    }
    let scheduler = &link.spec.scheduler;
    let mut words: Vec<String> = Vec::new();
    let variant =
        link.entry_of(ROOT).and_then(|entry| entry.words.iter().find(|word| Some(word.name) == entry.variant));
    if let Some(word) = variant.filter(|word| scheduler.settings.get(word.name).is_none()) {
        words.push(format!("{} {}", word.name, word.default));
    }
    words.extend(scheduler.settings.iter().map(|(word, value)| match value {
        altq_engine::settings::Value::Choice(choice) => format!("{word} {choice}"),
        _ => word.to_owned(),
    }));
    let words = if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) };
    writeln!(out, "  scheduler  {}{words}", scheduler.name)?;
    writeln!(out, "  mtu        {} bytes", link.spec.mtu)?;
    writeln!(out, "  overhead   {}", overhead(&link.spec.overhead, link.spec.mtu))?;
    let regulator = match (link.spec.regulator, link.bucket()) {
        (Regulator::Auto, _) => "one packet after another at the link's rate (auto)".to_owned(),
        (_, None) => "none".to_owned(),
        (Regulator::Altq, Some(depth)) => format!("a token bucket of {depth} bytes (altq)"),
        (_, Some(depth)) => format!("a token bucket of {depth} bytes"),
    };
    writeln!(out, "  regulator  {regulator}")?;
    let default =
        link.spec.default.map_or("none: packets that no rule matches are dropped", |class| link.class_name(class));
    writeln!(out, "  default    {default}")?;
    if let Some(reserved) = &link.reservations {
        let (most, buffer) = (rate(link.reservable()), link.reservation_buffer());
        let class = link.class_name(reserved.class);
        writeln!(out, "  reserved   up to {most} below {class}, bursts of {buffer} bytes{}", terms(reserved))?;
    }
    if let Some(path) = link.path() {
        path_report(out, link, path)?;
    }
    for note in &link.notes {
        writeln!(out, "  note       {note}")?;
    }
    writeln!(out)?;
    out.push_str(&table(link, view));
    served(out, link)?;
    held(out, link)
}

/// What a policy says of its reservations beside their rate and buffer.
fn terms(reserved: &Reservations) -> String {
    let mut terms = String::new();
    if let Some(delay) = reserved.delay() {
        terms += &format!("; no packet waits longer than {}", time_text(delay));
    }
    if let Some(lifetime) = reserved.lifetime() {
        terms += &format!("; they end {} after a refresh", time_text(lifetime));
    }
    let most = reserved.owner_most().map(|most| format!("{most} of them"));
    let owner: Vec<String> = reserved.owner_rate().map(rate).into_iter().chain(most).collect();
    if !owner.is_empty() {
        terms += &format!("; up to {} an owner", owner.join(" and "));
    }
    terms
}

/// What executes the link, and why; and what the kernel does differently where it does.
fn path_report(out: &mut String, link: &Link, path: Path) -> std::fmt::Result {
    let fits = altq_kernel::fits(link);
    let why = match (link.written_path, &fits) {
        (Some(_), _) => "as the policy says".to_owned(),
        (None, Ok(_)) => "altq shapes this link itself; the kernel could as well (`path kernel`)".to_owned(),
        (None, Err(errors)) => {
            let first = errors.first().map_or("", |error| error.message.as_str());
            let others = match errors.len() {
                0 | 1 => String::new(),
                2 => " (and for another reason)".to_owned(),
                count => format!(" (and for {} other reasons)", count - 1),
            };
            format!("altq shapes this link itself; `path kernel` is not possible: {first}{others}")
        }
    };
    writeln!(out, "  path       {}: {why}", path.name())?;
    if path == Path::Kernel {
        for note in fits.unwrap_or_default() {
            writeln!(out, "  kernel     {note}")?;
        }
    }
    Ok(())
}

fn overhead(overhead: &Overhead, mtu: u32) -> String {
    if *overhead == Overhead::NONE {
        return "none: packets count with their length at layer 3".to_owned();
    }
    let framing = match overhead.framing {
        Framing::Plain => "",
        Framing::Atm => ", in cells of ATM",
        Framing::Ptm => ", framed by PTM",
    };
    let mpu = if overhead.mpu > 0 { format!(", at least {}", overhead.mpu) } else { String::new() };
    format!("{} bytes a packet{mpu}{framing}: {mtu} bytes count as {}", overhead.bytes, overhead.charge(mtu))
}

/// A line of the table of classes.
struct Line {
    class: ClassId,
    depth: usize,
    /// Its columns behind the name.
    cells: Vec<String>,
    /// How many further classes have the same columns and the same parent, and are not printed.
    more: usize,
}

/// The tree of classes, in columns.
fn table(link: &Link, view: &View<'_>) -> String {
    let promises = Promises::new(link);
    let holders = link.holders();
    let head = ["class", "guarantee", "ceiling", "delay", "queue full", "queue", "priority"];
    let mut lines = Vec::new();
    // What a class had better say, below the table: a sentence does not fit a column.
    let (notes, mut beside) = (altq_config::notes(link), Vec::new());
    let mut bursts = Vec::new();
    let order = tree::of_link(link);
    let shown = shown(link, &order, view.classes);
    for (class, depth) in order.into_iter().filter(|(class, _)| shown[*class]) {
        let class = class as ClassId;
        let bound = promises.delay_bound(class);
        bursts.extend(bound.conforming.map(|_| bound.burst));
        let show = |bound: Option<Nanos>| bound.map_or_else(|| "-".to_owned(), time);
        let queue = link.queue(class).filter(|_| holders[class as usize]).map_or_else(String::new, |queue| {
            let limit = match queue.limit {
                Limit::Packets(n) => format!("{n} packets"),
                Limit::Bytes(n) => format!("{n} bytes"),
            };
            format!("{} {limit}", queue.name)
        });
        let priority = Some(class).filter(|class| *class != ROOT && holders[*class as usize]);
        let priority = priority.and_then(|class| priority_of(link, class));
        let cells = vec![
            promises.guaranteed(class).map_or_else(|| "-".to_owned(), rate),
            rate(link.ceiling(class)),
            show(bound.conforming),
            show(bound.queue_full),
            queue,
            priority.map_or_else(String::new, |priority| priority.to_string()),
        ];
        lines.push(Line { class, depth, cells, more: 0 });
        if let Some(note) = notes.get(class as usize).and_then(Option::as_ref) {
            beside.push((link.class_name(class), note.as_str()));
        }
    }
    if !view.all && view.classes.is_empty() {
        lines = folded(link, lines);
    }
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut left_out = 0;
    for line in &lines {
        let name = link.class_name(line.class);
        let made = if link.classes[line.class as usize].made { " (made)" } else { "" };
        let named = tree::name(&format!("{name}{made}"), line.depth);
        rows.push(std::iter::once(named).chain(line.cells.iter().cloned()).collect());
        if line.more > 0 {
            left_out += line.more;
            rows.push(vec![tree::name(&format!("({} more like {name})", line.more), line.depth)]);
        }
    }
    // The table is indented by two.
    let width = output::width().map(|width| width.saturating_sub(2));
    let mut out = output::table_within(&rows, width).lines().fold(String::new(), |out, line| out + "  " + line + "\n");
    if left_out > 0 {
        out += &format!(
            "\n  {left_out} classes that are like others are left out: --all\n  prints them, --class NAME one of them\n"
        );
    }
    if let (Some(least), Some(most)) = (bursts.iter().min(), bursts.iter().max()) {
        let range = if least == most { most.to_string() } else { format!("{least} to {most}") };
        out += &format!(
            "\n  delay: until the last bit has left, if the sources of a\n  class keep to its guarantee and send at \
             once at most\n  {range} bytes on the wire\n"
        );
    }
    if !beside.is_empty() {
        out += "\n  better with\n";
        for (names, note) in alike(&beside, view.all) {
            out += &format!("    {}: {note}\n", some(&names));
        }
    }
    out
}

/// Which classes are printed, by number: those that a name means, what is below them, and what
/// stands above them. All if there are no names.
fn shown(link: &Link, order: &[(usize, usize)], names: &[String]) -> Vec<bool> {
    let parent = |class: usize| link.spec.classes.get(class).map_or(0, |spec| spec.parent as usize);
    let mut shown = vec![names.is_empty(); link.classes.len()];
    // Parents stand before their children.
    for (class, _) in order {
        let name = link.class_name(*class as ClassId);
        let meant = names.iter().any(|pattern| pattern::means(pattern, &link.name, name));
        shown[*class] |= meant || *class != ROOT as usize && shown[parent(*class)];
    }
    for (class, _) in order.iter().rev().filter(|(class, _)| *class != ROOT as usize) {
        if shown[*class] {
            shown[parent(*class)] = true;
        }
    }
    shown
}

/// The lines without those of classes that are like an earlier one with the same parent, where
/// there are many. The earlier one counts them.
fn folded(link: &Link, lines: Vec<Line>) -> Vec<Line> {
    let children = link.children();
    let leaf = |line: &Line| children.get(line.class as usize).is_some_and(Vec::is_empty);
    let key = |line: &Line| {
        let parent = link.spec.classes.get(line.class as usize).map(|spec| spec.parent);
        leaf(line).then(|| (parent, line.cells.clone()))
    };
    let mut groups: HashMap<_, usize> = HashMap::new();
    for group in lines.iter().filter_map(key) {
        *groups.entry(group).or_default() += 1;
    }
    let mut kept = Vec::with_capacity(lines.len());
    for mut line in lines {
        let Some(group) = key(&line) else {
            kept.push(line);
            continue;
        };
        match groups.get_mut(&group) {
            // Printed with the first of its group.
            Some(0) => continue,
            Some(count) if *count >= ALIKE => {
                line.more = *count - 1;
                *count = 0;
            }
            _ => {}
        }
        kept.push(line);
    }
    kept
}

/// Names with the same note together, in the order of the first of each. With `each` every name is
/// alone.
fn alike<'a>(notes: &[(&'a str, &'a str)], each: bool) -> Vec<(Vec<&'a str>, &'a str)> {
    let mut groups: Vec<(Vec<&str>, &str)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (name, note) in notes {
        let place = if each { groups.len() } else { *places.entry(*note).or_insert(groups.len()) };
        match groups.get_mut(place) {
            Some((names, _)) => names.push(*name),
            None => groups.push((vec![*name], *note)),
        }
    }
    groups
}

/// The priority of a class, if its scheduler serves by priority within the guarantees.
fn priority_of(link: &Link, class: ClassId) -> Option<u64> {
    let entry = link.entry_of(class)?;
    let Order::Priority(_) = entry.order else { return None };
    entry.priority(&link.spec.classes.get(class as usize)?.settings)
}

/// Writes in which order classes are served.
fn served(out: &mut String, link: &Link) -> std::fmt::Result {
    let scheduler = &link.spec.scheduler;
    writeln!(out)?;
    let left = match link.entry_of(ROOT).map_or(Order::Name, |entry| entry.order) {
        Order::Name => return writeln!(out, "  served: {}", scheduler.name),
        Order::Said(how) => return writeln!(out, "  served: {how}"),
        Order::Priority(left) => left,
    };
    let holders = link.holders();
    let mut by_priority: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for class in 1..link.spec.classes.len() as ClassId {
        if link.scheduler_of(class) == scheduler.name && holders[class as usize] {
            by_priority.entry(priority_of(link, class).unwrap_or(0)).or_default().push(link.class_name(class));
        }
    }
    let groups: Vec<String> =
        by_priority.iter().rev().map(|(priority, names)| format!("{priority}: {}", some(names))).collect();
    if groups.is_empty() {
        return writeln!(out, "  the link is its only class");
    }
    writeln!(out, "  served first to last, within guarantee: {}", groups.join("; "))?;
    writeln!(out, "  {}", left(&scheduler.settings))
}

/// Writes which classes never get more than their rate.
fn held(out: &mut String, link: &Link) -> std::fmt::Result {
    let mut by_word: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, spec) in link.spec.classes.iter().enumerate().skip(1) {
        let class = id as ClassId;
        let borrow = link.entry_of(class).and_then(|entry| entry.word_of(Role::Borrow));
        if let Some(word) = borrow.filter(|word| !spec.settings.flag(word)) {
            by_word.entry(word).or_default().push(link.class_name(class));
        }
    }
    for (word, names) in by_word {
        let names = some(&names);
        writeln!(out, "  without `{word}`, so never beyond their rate, even on an idle link: {names}")?;
    }
    Ok(())
}

/// The first twelve of these names, and the number of the others.
fn some(names: &[&str]) -> String {
    let more = if names.len() > 12 { format!(" and {} more", names.len() - 12) } else { String::new() };
    format!("{}{more}", names[..names.len().min(12)].join(" "))
}

/// A rate in the largest unit that needs no more than three decimals to be exact.
fn rate(rate: Rate) -> String {
    let bits = rate.as_bit_s();
    for (unit, word) in [(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s")] {
        if bits >= unit && bits.is_multiple_of(unit / 1000) {
            let text = format!("{}.{:03}", bits / unit, bits % unit / (unit / 1000));
            return format!("{} {word}", text.trim_end_matches('0').trim_end_matches('.'));
        }
    }
    format!("{bits} bit/s")
}

/// A time with three digits, rounded up so that a bound stays one.
fn time(nanos: Nanos) -> String {
    for (unit, word) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if u128::from(nanos) >= unit {
            let hundredths = (u128::from(nanos) * 100).div_ceil(unit);
            return format!("{}.{:02} {word}", hundredths / 100, hundredths % 100);
        }
    }
    format!("{nanos} ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_exact_and_bounds_round_up() {
        assert_eq!(rate(Rate::bit_s(128_640_000)), "128.64 Mbit/s");
        assert_eq!(rate(Rate::bit_s(1_000_001)), "1000.001 kbit/s");
        assert_eq!(rate(Rate::bit_s(1_001_000)), "1.001 Mbit/s");
        assert_eq!(time(1_456_001), "1.46 ms");
        assert_eq!(time(999), "999 ns");
        assert_eq!(time(2_000_000_000), "2.00 s");
    }
}
