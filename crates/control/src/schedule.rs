//! Which policy the time of the week asks for: lines such as
//! `on weekdays 18:00-23:00 policy evening.altq`, of which the first one that fits counts, and
//! `otherwise policy day.altq`. docs/apply.md has the form.
//!
//! There is no clock here: whoever asks gives the time, as the clock on the wall shows it.

use std::collections::BTreeSet;
use std::fmt;

/// Minutes of a day, and of a week.
const DAY: u32 = 24 * 60;
const WEEK: u32 = 7 * DAY;
/// The days, Monday first.
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// The most lines of a schedule.
const MOST: usize = 1000;
/// How a line is written.
const FORM: &str = "write `on DAYS HH:MM-HH:MM policy FILE`, as `on weekdays 18:00-23:00 policy evening.altq`, or \
                    `otherwise policy FILE`";

/// The time of the week by the clock on the wall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// The day, from 0 (Monday) to 6.
    pub day: u32,
    /// Seconds since midnight.
    pub second: u32,
}

impl Local {
    fn minute(self) -> u32 {
        (self.day * DAY + self.second / 60) % WEEK
    }
}

/// As `mon 18:00`.
impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let day = DAYS.get(self.day as usize % DAYS.len()).copied().unwrap_or_default();
        write!(f, "{day} {:02}:{:02}", self.second / 3600, self.second / 60 % 60)
    }
}

/// What is wrong with a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.line, self.message, self.help)
    }
}

impl std::error::Error for Wrong {}

/// Policies for times of the week.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    lines: Vec<Line>,
    otherwise: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    number: usize,
    /// On which days it begins, Monday first.
    days: [bool; 7],
    /// When, in minutes since midnight.
    from: u32,
    /// For how many minutes it lasts, a day at most.
    length: u32,
    policy: String,
}

impl Line {
    /// Whether it fits a minute of the week.
    fn fits(&self, minute: u32) -> bool {
        let since = |day: u32| (minute + WEEK - (day * DAY + self.from) % WEEK) % WEEK;
        (0..).zip(self.days).any(|(day, on)| on && since(day) < self.length)
    }
}

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// What is wrong with the first line that cannot be read, or that never counts; or nothing is
    /// said for other times.
    pub fn read(text: &str) -> Result<Schedule, Wrong> {
        // Some editors write a byte order mark before the text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (mut lines, mut otherwise): (Vec<Line>, Option<String>) = (Vec::new(), None);
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |(message, help): (String, &str)| Wrong { line: number, message, help: help.to_owned() };
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            match words.as_slice() {
                [] => {}
                ["on", days, times, "policy", policy] => {
                    let days = days_of(days).map_err(wrong)?;
                    let (from, length) = times_of(times).map_err(wrong)?;
                    lines.push(Line { number, days, from, length, policy: (*policy).to_owned() });
                }
                ["otherwise", "policy", policy] if otherwise.is_none() => otherwise = Some((*policy).to_owned()),
                ["otherwise", "policy", _] => {
                    return Err(wrong(("`otherwise` is written twice".to_owned(), "leave one of them out")));
                }
                _ => return Err(wrong((format!("`{}` is no line of a schedule", words.join(" ")), FORM))),
            }
            if lines.len() > MOST {
                return Err(wrong((format!("there are more than {MOST} lines"), "write fewer")));
            }
        }
        let Some(otherwise) = otherwise else {
            let (line, message) = (text.lines().count().max(1), "nothing is said for other times".to_owned());
            return Err(Wrong { line, message, help: "write `otherwise policy FILE`".to_owned() });
        };
        let schedule = Schedule { lines, otherwise };
        let counts: BTreeSet<usize> = (0..WEEK).filter_map(|at| Some(schedule.line(at)?.number)).collect();
        match schedule.lines.iter().find(|line| !counts.contains(&line.number)) {
            Some(line) => Err(Wrong {
                line: line.number,
                message: "this line never counts, because lines before it fit at all of its times".to_owned(),
                help: "move it up, or leave it out".to_owned(),
            }),
            None => Ok(schedule),
        }
    }

    fn line(&self, minute: u32) -> Option<&Line> {
        self.lines.iter().find(|line| line.fits(minute))
    }

    /// The policy that a time asks for, as it is written.
    pub fn policy(&self, at: Local) -> &str {
        self.line(at.minute()).map_or(&self.otherwise, |line| &line.policy)
    }

    /// In how many seconds a line begins or ends next, on any day: a day at most. No other policy
    /// is asked for before, unless the clock is set.
    pub fn until_next(&self, at: Local) -> u32 {
        let edges = self.lines.iter().flat_map(|line| [line.from, line.from + line.length]);
        let left = edges.map(|edge| match (edge % DAY * 60 + DAY * 60 - at.second % (DAY * 60)) % (DAY * 60) {
            0 => DAY * 60,
            left => left,
        });
        left.min().unwrap_or(DAY * 60)
    }

    /// All of its policies, each once.
    pub fn policies(&self) -> BTreeSet<&str> {
        self.lines.iter().map(|line| line.policy.as_str()).chain([self.otherwise.as_str()]).collect()
    }

    /// The times of a week at which another policy is asked for than before, and which; first what
    /// it begins with, on Monday at midnight.
    pub fn week(&self) -> Vec<(Local, &str)> {
        let mut found: Vec<(Local, &str)> = Vec::new();
        for minute in 0..WEEK {
            let at = Local { day: minute / DAY, second: minute % DAY * 60 };
            let policy = self.policy(at);
            if found.last().is_none_or(|(_, last)| *last != policy) {
                found.push((at, policy));
            }
        }
        found
    }
}

/// Reads `weekdays`, `weekends`, `daily`, or days and ranges of them, as `mon,wed-fri`.
fn days_of(text: &str) -> Result<[bool; 7], (String, &'static str)> {
    const HELP: &str = "write `weekdays`, `weekends`, `daily`, or days as `mon,wed-fri`";
    let text = match text {
        "weekdays" => "mon-fri",
        "weekends" => "sat-sun",
        "daily" => "mon-sun",
        text => text,
    };
    let mut days = [false; 7];
    let place = |name: &str| {
        let found = DAYS.iter().position(|day| *day == name);
        found.ok_or_else(|| (format!("`{name}` is no day"), HELP))
    };
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (place(first)?, place(last)?);
        // From Saturday to Monday are three days.
        for at in 0..=(last + 7 - first) % 7 {
            let day = &mut days[(first + at) % 7];
            if std::mem::replace(day, true) {
                return Err((format!("`{text}` has a day twice"), HELP));
            }
        }
    }
    Ok(days)
}

/// Reads `18:00-23:00`: when it begins, in minutes since midnight, and how many minutes it lasts.
fn times_of(text: &str) -> Result<(u32, u32), (String, &'static str)> {
    const HELP: &str = "write two times of the day, as `18:00-23:00`; `22:00-06:00` ends on the next day, and \
                        `00:00-24:00` is a whole one";
    let wrong = |what: &str| (format!("`{text}` {what}"), HELP);
    let time = |word: &str| {
        let (hours, minutes) = word.split_once(':')?;
        let number = |digits: &str| {
            let plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<u32>().ok().filter(|_| plain)
        };
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        (minutes < 60).then_some(hours * 60 + minutes)
    };
    let ends = text.split_once('-').and_then(|(from, to)| Some((time(from)?, time(to)?)));
    let Some((from, to)) = ends.filter(|(from, to)| *from < DAY && *to <= DAY) else {
        return Err(wrong("are no times of the day"));
    };
    if from == to {
        return Err(wrong("is no time at all"));
    }
    Ok((from, if to > from { to - from } else { to + DAY - from }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# The line at home.
on weekdays 18:00-23:00 policy evening.altq   # everybody watches something
on sat,sun 09:30-24:00 policy weekend.altq
on fri-mon 22:00-02:00 policy night.altq

otherwise policy day.altq
";

    fn at(day: &str, hours: u32, minutes: u32) -> Local {
        let day = DAYS.iter().position(|name| *name == day).unwrap() as u32;
        Local { day, second: hours * 3600 + minutes * 60 + 7 }
    }

    #[test]
    fn the_first_line_that_fits_counts() {
        let schedule = Schedule::read(TEXT).unwrap();
        for (time, policy) in [
            (at("mon", 17, 59), "day.altq"),
            (at("mon", 18, 0), "evening.altq"),
            (at("mon", 22, 59), "evening.altq"),
            // Until two in the morning, from the day before.
            (at("mon", 23, 0), "night.altq"),
            (at("tue", 1, 59), "night.altq"),
            (at("tue", 2, 0), "day.altq"),
            (at("tue", 23, 30), "day.altq"),
            (at("sat", 1, 0), "night.altq"),
            (at("sat", 9, 29), "day.altq"),
            (at("sat", 23, 59), "weekend.altq"),
            (at("sun", 0, 0), "night.altq"),
            // Over the end of the week.
            (at("mon", 1, 59), "night.altq"),
            (at("mon", 2, 0), "day.altq"),
        ] {
            assert_eq!(schedule.policy(time), policy, "{time}");
        }
        let all: Vec<&str> = schedule.policies().into_iter().collect();
        assert_eq!(all, ["day.altq", "evening.altq", "night.altq", "weekend.altq"]);
        // The next edge is one of any day: 18:00, 23:00, 09:30, 24:00, 22:00, 02:00.
        for (time, left) in [(at("wed", 17, 0), 3593), (at("wed", 23, 0), 3593), (at("wed", 2, 0), 26_993)] {
            assert_eq!(schedule.until_next(time), left, "{time}");
        }
        assert_eq!(schedule.until_next(Local { day: 0, second: 64_800 }), 4 * 3600);
    }

    #[test]
    fn a_week_is_told() {
        let schedule = Schedule::read("on tue,thu-fri 06:00-07:00 policy b\notherwise policy a").unwrap();
        let week: Vec<String> = schedule.week().iter().map(|(at, policy)| format!("{at} {policy}")).collect();
        let expected =
            ["mon 00:00 a", "tue 06:00 b", "tue 07:00 a", "thu 06:00 b", "thu 07:00 a", "fri 06:00 b", "fri 07:00 a"];
        assert_eq!(week, expected);
        let always = Schedule::read("on daily 00:00-24:00 policy b\notherwise policy a").unwrap();
        assert_eq!(always.week(), [(Local { day: 0, second: 0 }, "b")]);
        assert_eq!(Schedule::read("otherwise policy a").unwrap().until_next(at("sun", 12, 0)), 86_400);
        assert_eq!(Schedule::read("\u{feff}otherwise policy a"), Schedule::read("otherwise policy a"));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, line, what) in [
            ("", 1, "nothing is said for other times"),
            ("on daily 01:00-02:00 policy a\n", 1, "nothing is said for other times"),
            ("otherwise policy a\n\notherwise policy b", 3, "written twice"),
            ("on mondays 01:00-02:00 policy a", 1, "`mondays` is no day"),
            ("on mon,sun-tue 01:00-02:00 policy a", 1, "has a day twice"),
            ("on mon, 01:00-02:00 policy a", 1, "`` is no day"),
            ("# a\non daily 1:00-02:00 policy a", 2, "are no times of the day"),
            ("on daily 24:00-02:00 policy a", 1, "are no times of the day"),
            ("on daily 01:00-24:01 policy a", 1, "are no times of the day"),
            ("on daily 01:60-02:00 policy a", 1, "are no times of the day"),
            ("on daily 01:00 policy a", 1, "are no times of the day"),
            ("on daily 01:00-01:00 policy a", 1, "is no time at all"),
            ("on daily 01:00-02:00 a.altq", 1, "is no line of a schedule"),
            ("on daily 01:00-03:00 policy a\non mon 02:00-03:00 policy b\notherwise policy c", 2, "never counts"),
        ] {
            let wrong = Schedule::read(text).unwrap_err();
            assert!(wrong.line == line && wrong.message.contains(what), "{text}: {wrong}");
            assert!(wrong.to_string().starts_with(&format!("{line}: ")) && !wrong.help.is_empty());
        }
        let many = "on mon 01:00-02:00 policy a\n".repeat(1001);
        assert!(Schedule::read(&many).unwrap_err().message.contains("more than 1000 lines"));
    }
}
