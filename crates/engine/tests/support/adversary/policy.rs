//! Policies of the search: trees of a few classes of any schedulers, and small changes to them.
//!
//! A policy is made as text of the native language, so that the checks of the language have read
//! it, and what breaks it is an input for `altq check` and `altq replay`.

use std::fmt::Write;

use altq_engine::schedule;
use altq_engine::settings::Kind;

use super::random::Random;

/// A link and what is below it.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Bit/s.
    pub rate: u64,
    /// The words behind `overhead`.
    pub overhead: &'static str,
    /// Packets that match nothing go to the link itself.
    pub own: bool,
    pub top: Place,
}

/// A scheduler and its classes.
#[derive(Clone, Debug)]
pub struct Place {
    pub scheduler: &'static str,
    pub words: Vec<(&'static str, &'static str)>,
    pub classes: Vec<Class>,
}

/// A class. Rates of its words are parts of what its scheduler divides.
#[derive(Clone, Debug)]
pub struct Class {
    pub words: Vec<(&'static str, Value)>,
    pub queue: &'static str,
    /// Millionths of the place that the class is given by its guarantee.
    pub part: u64,
    /// Classes below it that the same scheduler serves.
    pub below: Vec<Class>,
    /// Packets go to it although it has classes below it.
    pub own: bool,
    pub inner: Option<Place>,
}

/// The value of a word.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    Flag,
    /// Of the class's own part, thousandths.
    Part(u64),
    /// Of the whole place, thousandths.
    Whole(u64),
    /// Thousandths of the part, nanoseconds, thousandths of the part.
    Curve(u64, u64, u64),
    Number(u64),
    Text(&'static str),
}

const OVERHEADS: &[&str] =
    &["none", "none", "ethernet", "44 bytes atm", "pppoe-llcsnap", "22 bytes ptm", "8 bytes mpu 200"];
const QUEUES: &[&str] = &["drop_tail", "drop_tail", "drop_tail", "drop_head", "red", "codel", "pie", "blue", "rio"];

/// A policy with `outer` at the link and, one inside the other, `inner` in classes below it.
pub fn fresh(random: &Random, outer: &'static str, inner: &[&'static str]) -> Policy {
    let rate = match random.below(10) {
        0..=1 => random.pick(&[10_000, 64_000, 100_000, 1_000_000, 10_000_000, 1_000_000_000, 400_000_000_000]),
        // Any, every power of ten as likely as another.
        _ => {
            let digits = 10_u64.pow(4 + random.below(7) as u32);
            digits + random.below(digits * 9)
        }
    };
    let overhead = if random.chance(50) { "none" } else { random.pick(OVERHEADS) };
    Policy { rate, overhead, own: random.chance(5), top: place(random, outer, inner) }
}

fn place(random: &Random, scheduler: &'static str, inner: &[&'static str]) -> Place {
    let mut words = Vec::new();
    for word in schedule::find(scheduler).map_or(&[][..], |entry| entry.words) {
        if let Kind::Choice(choices) = word.kind
            && word.name == "excess"
            && random.chance(50)
        {
            words.push((word.name, random.pick(choices)));
        }
    }
    let n = 2 + random.below(if random.chance(70) { 3 } else { 7 }) as usize;
    let mut parts: Vec<u64> = (0..n).map(|_| 1 + random.below(if random.chance(50) { 10 } else { 100 })).collect();
    let sum: u64 = parts.iter().sum();
    let whole = if random.chance(60) { 1_000_000 } else { 100_000 + random.below(900_000) };
    parts.iter_mut().for_each(|part| *part = *part * whole / sum);
    let mut classes: Vec<Class> =
        parts.into_iter().enumerate().map(|(at, part)| class(random, scheduler, at, part, 2)).collect();
    if let Some((first, rest)) = inner.split_first() {
        let holders = if random.chance(60) { 1 } else { n };
        for class in classes.iter_mut().take(holders) {
            class.below.clear();
            class.inner = Some(place(random, first, rest));
        }
        // The one whose promise reaches down has all that its scheduler can give a class.
        if random.chance(40) {
            let first = random.below(n as u64) as usize;
            classes.swap(0, first);
        }
    }
    Place { scheduler, words, classes }
}

fn class(random: &Random, scheduler: &'static str, at: usize, part: u64, depth: u32) -> Class {
    let words = words(random, scheduler, at);
    let queue = if random.chance(70) { "drop_tail" } else { random.pick(QUEUES) };
    let mut class = Class { words, queue, part, below: Vec::new(), own: false, inner: None };
    let tree = schedule::find(scheduler).is_some_and(|entry| !entry.side_by_side && !entry.in_order)
        && matches!(scheduler, "cbq" | "hfsc" | "htb");
    if depth > 0 && tree && random.chance(12) {
        let n = 1 + random.below(3);
        class.below = (0..n).map(|at| self::class(random, scheduler, at as usize, part / n, depth - 1)).collect();
        class.own = random.chance(20);
    }
    class
}

/// Words for a class of a scheduler. One that is not in this table gets rates by the words of its
/// entry that are rates.
fn words(random: &Random, scheduler: &str, at: usize) -> Vec<(&'static str, Value)> {
    let mut words = Vec::new();
    let all = Value::Part(1000);
    match scheduler {
        "fifo" => {}
        "drr" => {
            if random.chance(80) {
                let quantum = random.pick(&[1, 100, 500, 1500, 1538, 3000, 9000]) + random.below(2000);
                words.push(("quantum", Value::Number(quantum)));
            }
        }
        "priq" => {
            let equal = random.chance(20);
            words.push(("priority", Value::Number(if equal { 7 } else { 15 - (at as u64).min(15) })));
        }
        "cbq" => {
            words.push(("rate", all));
            if random.chance(50) {
                words.push(("borrow", Value::Flag));
                if random.chance(30) {
                    words.push(("ceiling", Value::Part(1000 + random.below(2000))));
                }
            }
            if random.chance(50) {
                words.push(("priority", Value::Number(random.below(8))));
            }
            if random.chance(40) {
                words.push(("maxburst", Value::Number(1 + random.below(if random.chance(80) { 8 } else { 100 }))));
            }
            if random.chance(30) {
                words.push(("packetsize", Value::Number(random.pick(&[40, 200, 576, 1000, 1500]))));
            }
        }
        "htb" => {
            words.push(("rate", all));
            words.push((
                "ceil",
                if random.chance(50) { Value::Whole(1000) } else { Value::Part(1000 + random.below(1000)) },
            ));
            if random.chance(80) {
                let burst = random.pick(&[3000, 10_000, 60_000, 1_000_000, 20_000_000]) + random.below(3000);
                words.push(("burst", Value::Number(burst)));
                words.push(("cburst", Value::Number(if random.chance(70) { burst } else { burst / 2 })));
            }
            if random.chance(40) {
                words.push(("prio", Value::Number(random.below(4))));
            }
            if random.chance(50) {
                words.push((
                    "quantum",
                    Value::Number(random.pick(&[200, 1000, 1500, 3000, 20_000]) + random.below(500)),
                ));
            }
            if random.chance(15) {
                words.push(("overhead", Value::Number(random.below(60))));
            }
            if random.chance(15) {
                words.push(("mpu", Value::Number(random.below(1600))));
            }
        }
        "hfsc" => {
            let bent = |random: &Random| {
                let time = 1 + random.below(10_u64.pow(random.below(9) as u32));
                Value::Curve(random.below(2000), time, 1000)
            };
            let realtime = random.chance(60);
            if realtime {
                words.push(("realtime", if random.chance(60) { all } else { bent(random) }));
            }
            if !realtime || random.chance(80) {
                words.push(("linkshare", if random.chance(90) { all } else { bent(random) }));
                if random.chance(15) {
                    words.push(("upperlimit", Value::Part(1000 + random.below(2000))));
                }
            }
        }
        "wfq" => match random.below(10) {
            0..=5 => {
                words.push(("bandwidth", all));
                if random.chance(15) {
                    words.push(("shape", Value::Part(1000 + random.below(1500))));
                }
                if random.chance(5) {
                    words.push(("police", Value::Part(500 + random.below(1500))));
                }
            }
            6..=8 => {
                words.push(("low-latency", all));
                if random.chance(70) {
                    let burst = random.pick(&[1600, 3000, 10_000]) + random.below(2000);
                    words.push(("low-latency burst", Value::Number(burst)));
                }
                if random.chance(30) {
                    words.push(("level", Value::Number(2)));
                }
            }
            _ => {}
        },
        "fairq" => {
            words.push(("priority", Value::Number(7_u64.saturating_sub(at as u64))));
            words.push(("bandwidth", all));
        }
        other => {
            for word in schedule::find(other).map_or(&[][..], |entry| entry.class_words) {
                if word.kind == Kind::Rate {
                    words.push((word.name, all));
                }
            }
        }
    }
    words
}

/// Calls `with` for every class, with its scheduler.
pub fn each(place: &mut Place, with: &mut dyn FnMut(&'static str, &mut Class)) {
    fn down(scheduler: &'static str, class: &mut Class, with: &mut dyn FnMut(&'static str, &mut Class)) {
        with(scheduler, class);
        class.below.iter_mut().for_each(|below| down(scheduler, below, with));
        if let Some(inner) = &mut class.inner {
            each(inner, with);
        }
    }
    let scheduler = place.scheduler;
    place.classes.iter_mut().for_each(|class| down(scheduler, class, with));
}

impl Policy {
    fn classes(&self) -> u64 {
        let mut n = 0;
        each(&mut self.top.clone(), &mut |_, _| n += 1);
        n
    }

    /// A small change.
    pub fn mutate(&mut self, random: &Random) {
        let at = random.below(self.classes());
        let what = random.below(10);
        if what == 0 {
            self.overhead = random.pick(OVERHEADS);
            return;
        }
        let mut now = 0;
        let mut taken = 0;
        each(&mut self.top, &mut |scheduler, class| {
            if now == at {
                match what {
                    1 | 2 => class.words = words(random, scheduler, (at % 4) as usize),
                    3 => class.queue = random.pick(QUEUES),
                    4 | 5 => {
                        taken = class.part / 2;
                        class.part -= taken;
                    }
                    6 => class.part += class.part / 10,
                    _ => {
                        for (_, value) in &mut class.words {
                            if random.chance(60) {
                                *value = value.near(random);
                            }
                        }
                    }
                }
            }
            now += 1;
        });
        if taken > 0 {
            // What was taken another one gets.
            let n = self.top.classes.len() as u64;
            self.top.classes[random.below(n) as usize].part += taken;
        }
    }

    /// Gives a class, by its number, other words for what it may have beyond its guarantee. False
    /// if its scheduler has none.
    pub fn change_excess(&mut self, random: &Random, class: u32) -> bool {
        let (mut number, mut changed) = (0, false);
        each(&mut self.top, &mut |scheduler, one| {
            number += 1;
            if number != class {
                return;
            }
            let has = |words: &[(&str, Value)], word: &str| words.iter().any(|(known, _)| *known == word);
            let more = Value::Part(1000 + random.below(2000));
            let (word, value) = match scheduler {
                "cbq" if has(&one.words, "borrow") && random.chance(50) => ("ceiling", more),
                "cbq" => ("borrow", Value::Flag),
                "htb" => ("ceil", more),
                "hfsc" if has(&one.words, "linkshare") => ("upperlimit", more),
                "wfq" if has(&one.words, "bandwidth") => ("shape", more),
                _ => return,
            };
            changed = true;
            if has(&one.words, word) && random.chance(70) {
                one.words.retain(|(known, _)| *known != word && (word != "borrow" || *known != "ceiling"));
            } else {
                one.words.retain(|(known, _)| *known != word);
                one.words.push((word, value));
            }
        });
        changed
    }

    /// The policy in the native language. Classes are `c1`, `c2`, … in the order of their numbers;
    /// the link is `l`.
    pub fn text(&self) -> String {
        let own = if self.own { " default" } else { "" };
        let mut text = format!("link l {{ rate {}bit/s overhead {}{own}", self.rate, self.overhead);
        let mut rules = String::new();
        let mut number = 0;
        print(&mut text, &mut rules, &mut number, &self.top, self.rate);
        text + &rules + "}\n"
    }
}

fn print(text: &mut String, rules: &mut String, number: &mut u32, place: &Place, rate: u64) {
    let _ = write!(text, " scheduler {}", place.scheduler);
    if !place.words.is_empty() {
        text.push_str(" {");
        place.words.iter().for_each(|(word, value)| text.push_str(&format!(" {word} {value}")));
        text.push_str(" }");
    }
    text.push('\n');
    place.classes.iter().for_each(|class| print_class(text, rules, number, class, rate));
}

fn print_class(text: &mut String, rules: &mut String, number: &mut u32, class: &Class, rate: u64) {
    *number += 1;
    let name = format!("c{number}");
    let own = (u128::from(rate) * u128::from(class.part) / 1_000_000) as u64;
    let _ = write!(text, "class {name} {{");
    for (word, value) in &class.words {
        // `low-latency R burst N` is one word in the language.
        let word = word.rsplit(' ').next().unwrap_or(word);
        let _ = write!(text, " {word}{}", value.text(own, rate));
    }
    if class.own {
        let _ = writeln!(rules, "match dport {number} -> {name}");
    }
    if class.inner.is_none() {
        let _ = write!(text, " queue {} {{ limit 1000packets }}", class.queue);
    }
    if let Some(inner) = &class.inner {
        print(text, rules, number, inner, own.max(1));
    }
    for below in &class.below {
        text.push('\n');
        print_class(text, rules, number, below, rate);
    }
    text.push_str(" }\n");
}

impl Value {
    fn text(self, own: u64, whole: u64) -> String {
        let thousandths = |of: u64, n: u64| (u128::from(of) * u128::from(n) / 1000) as u64;
        match self {
            Value::Flag => String::new(),
            Value::Part(n) => format!(" {}bit/s", thousandths(own, n)),
            Value::Whole(n) => format!(" {}bit/s", thousandths(whole, n)),
            Value::Curve(first, time, then) => {
                format!(" {}bit/s for {time}ns then {}bit/s", thousandths(own, first), thousandths(own, then))
            }
            Value::Number(n) => format!(" {n}"),
            Value::Text(text) => format!(" {text}"),
        }
    }

    fn near(self, random: &Random) -> Value {
        let close = |n: u64| match random.below(4) {
            0 => n + 1,
            1 => n.saturating_sub(1).max(1),
            2 => n + n / 3,
            _ => (n - n / 4).max(1),
        };
        match self {
            Value::Part(n) if n > 1000 => Value::Part(close(n).max(1000)),
            Value::Curve(first, time, then) => Value::Curve(close(first), close(time), then),
            Value::Number(n) => Value::Number(close(n)),
            other => other,
        }
    }
}
