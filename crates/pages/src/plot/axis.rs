//! Axes: units, ranges, round ticks and their labels.

/// The unit of an axis. Values are in the base unit; the prefix is chosen to suit the largest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Time,
    /// bit/s.
    Rate,
    /// A plain number.
    Count,
    /// A number per second.
    PerSecond,
    /// A fraction of 1, shown in per cent.
    Part,
    /// Seconds from this second of a day on, shown as times of the day.
    Clock(u32),
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The label.
    pub label: String,
    /// Its unit.
    pub unit: Unit,
    /// True if it is logarithmic, false if it is linear.
    pub log: bool,
}

impl Axis {
    /// A linear axis.
    pub fn new(label: &str, unit: Unit) -> Axis {
        Axis { label: label.to_owned(), unit, log: false }
    }

    /// A logarithmic axis.
    pub fn log(label: &str, unit: Unit) -> Axis {
        Axis { log: true, ..Axis::new(label, unit) }
    }
}

impl Unit {
    /// The size and the name of the unit that is shown for values up to `most`.
    pub(super) fn scale(self, most: f64) -> (f64, &'static str) {
        match (self, most) {
            (Unit::Time, ..1e-6) => (1e-9, "ns"),
            (Unit::Time, ..1e-3) => (1e-6, "µs"),
            (Unit::Time, ..1.0) => (1e-3, "ms"),
            (Unit::Time, _) => (1.0, "s"),
            (Unit::Rate, ..1e3) => (1.0, "bit/s"),
            (Unit::Rate, ..1e6) => (1e3, "kbit/s"),
            (Unit::Rate, ..1e9) => (1e6, "Mbit/s"),
            (Unit::Rate, _) => (1e9, "Gbit/s"),
            (Unit::Count, _) => (1.0, ""),
            (Unit::PerSecond, _) => (1.0, "1/s"),
            (Unit::Part, _) => (0.01, "%"),
            (Unit::Clock(_), _) => (1.0, ""),
        }
    }
}

/// Seconds of a day.
const DAY: f64 = 86_400.0;

/// The seconds between two ticks of a scale of times of the day.
const CLOCK_STEPS: [f64; 16] =
    [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 43_200.0];

/// An axis with its range and ticks, ready to be drawn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    log: bool,
    from: f64,
    to: f64,
    /// The value of each tick, and its label.
    pub ticks: Vec<(f64, String)>,
    /// The label with its unit.
    pub label: String,
}

impl Scale {
    /// A scale for values from `least` to `most`. A linear axis begins at 0 if no value is
    /// negative, and ends with a tick.
    pub fn new(axis: &Axis, least: f64, most: f64) -> Scale {
        match axis.unit {
            Unit::Clock(zero) => Scale::clock(axis, f64::from(zero), least, most),
            _ if axis.log => Scale::logarithmic(axis, least, most),
            _ => Scale::linear(axis, least, most),
        }
    }

    /// As [`new`](Scale::new), but a linear axis ends at its largest value.
    pub fn snug(axis: &Axis, least: f64, most: f64) -> Scale {
        let mut scale = Scale::new(axis, least, most);
        if !axis.log && most > scale.from {
            scale.to = most;
            scale.ticks.retain(|(value, _)| *value <= most * (1.0 + 1e-9));
        }
        scale
    }

    fn linear(axis: &Axis, least: f64, most: f64) -> Scale {
        let (from, most) = (least.min(0.0), if most > least.min(0.0) { most } else { least.min(0.0) + 1.0 });
        let (unit, word) = axis.unit.scale(most.abs().max(from.abs()));
        let step = round_step((most - from) / unit / 7.0) * unit;
        let (first, last) = ((from / step).floor() as i64, (most / step - 1e-9).ceil() as i64);
        let decimals = decimals(step / unit);
        let ticks =
            (first..=last).map(|n| (n as f64 * step, format!("{:.decimals$}", n as f64 * step / unit))).collect();
        Scale {
            log: false,
            from: first as f64 * step,
            to: last as f64 * step,
            ticks,
            label: labelled(&axis.label, word),
        }
    }

    /// A scale of times of the day, with ticks at round ones. It ends where the values do.
    fn clock(axis: &Axis, zero: f64, least: f64, most: f64) -> Scale {
        let most = if most > least { most } else { least + 1.0 };
        let fits = |step: &f64| (most - least) / step <= 8.0;
        let step = CLOCK_STEPS.into_iter().find(fits).unwrap_or_else(|| ((most - least) / 8.0 / DAY).ceil() * DAY);
        let first = ((least + zero) / step).ceil() as i64;
        let last = ((most + zero) / step).floor() as i64;
        let tick = |n: i64| {
            let second = (n as f64 * step).rem_euclid(DAY) as u32;
            let (hour, minute, rest) = (second / 3600, second / 60 % 60, second % 60);
            let label =
                if step < 60.0 { format!("{hour:02}:{minute:02}:{rest:02}") } else { format!("{hour:02}:{minute:02}") };
            (n as f64 * step - zero, label)
        };
        let ticks = (first..=last).map(tick).collect();
        Scale { log: false, from: least, to: most, ticks, label: axis.label.clone() }
    }

    fn logarithmic(axis: &Axis, least: f64, most: f64) -> Scale {
        let most = if most > 0.0 { most } else { 1.0 };
        let least = if least > 0.0 && least < most { least } else { most / 10.0 };
        let (first, last) = ((least.log10() + 1e-9).floor() as i32, (most.log10() - 1e-9).ceil() as i32);
        // At most nine decades are shown, from the largest value down.
        let last = last.max(first + 1);
        let first = first.max(last - 9);
        let (unit, word) = axis.unit.scale(10f64.powi(last - 1));
        let tick = |n: i32| {
            let value = 10f64.powi(n);
            let label = match axis.unit {
                // Every decade has the unit that fits it: 100 µs, 1 ms, 10 ms.
                Unit::Time => {
                    let (unit, word) = axis.unit.scale(value * 1.001);
                    format!("{:.0} {word}", value / unit)
                }
                _ => {
                    let zeros = (-(value / unit).log10().round()).max(0.0) as usize;
                    format!("{:.zeros$}", value / unit)
                }
            };
            (value, label)
        };
        let label = if axis.unit == Unit::Time { axis.label.clone() } else { labelled(&axis.label, word) };
        let (from, to) = (10f64.powi(first), 10f64.powi(last));
        Scale { log: true, from, to, ticks: (first..=last).map(tick).collect(), label }
    }

    /// The place of a value between the axis's ends, from 0 to 1. Values beyond an end are placed
    /// at it.
    pub fn place(&self, value: f64) -> f64 {
        let part = if self.log {
            (value.max(self.from).log10() - self.from.log10()) / (self.to.log10() - self.from.log10())
        } else {
            (value - self.from) / (self.to - self.from)
        };
        part.clamp(0.0, 1.0)
    }
}

fn labelled(label: &str, word: &str) -> String {
    if word.is_empty() { label.to_owned() } else { format!("{label} [{word}]") }
}

/// The smallest of 1, 2, 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powi(least.log10().floor() as i32);
    let digits = [1.0, 2.0, 5.0, 10.0].into_iter().find(|d| d * power >= least * (1.0 - 1e-9)).unwrap_or(10.0);
    digits * power
}

/// The number of decimals that a step needs.
fn decimals(step: f64) -> usize {
    (-(step.log10() + 1e-9).floor()).max(0.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(axis: &Axis, least: f64, most: f64) -> (String, Vec<String>) {
        let scale = Scale::new(axis, least, most);
        (scale.label, scale.ticks.into_iter().map(|(_, text)| text).collect())
    }

    #[test]
    fn round_ticks() {
        let (label, ticks) = shown(&Axis::new("rate", Unit::Rate), 0.0, 9.7e6);
        assert_eq!((label.as_str(), ticks.join(" ").as_str()), ("rate [Mbit/s]", "0 2 4 6 8 10"));
        // If the largest value is on a tick, no further tick is added.
        assert_eq!(shown(&Axis::new("rate", Unit::Rate), 0.0, 10e6).1.join(" "), "0 2 4 6 8 10");
        let (label, ticks) = shown(&Axis::new("wait", Unit::Time), 0.001, 0.0121);
        assert_eq!((label.as_str(), ticks.join(" ").as_str()), ("wait [ms]", "0 2 4 6 8 10 12 14"));
        assert_eq!(shown(&Axis::new("part", Unit::Part), 0.0, 0.04).1.join(" "), "0 1 2 3 4");
        assert_eq!(shown(&Axis::new("", Unit::Count), 0.0, 0.9).1.join(" "), "0.0 0.2 0.4 0.6 0.8 1.0");
        let scale = Scale::snug(&Axis::new("time", Unit::Time), 0.0, 11.9);
        assert_eq!((scale.ticks.len(), scale.ticks[5].1.as_str(), scale.place(11.9)), (6, "10", 1.0));
        // An axis without values.
        assert_eq!(shown(&Axis::new("drops", Unit::PerSecond), 0.0, 0.0).1.len(), 6);
    }

    #[test]
    fn times_of_the_day() {
        // An hour from 13:47:10 on, a minute from 23:59:30 on, two days.
        let clock = |second: u32, length: f64| shown(&Axis::new("time", Unit::Clock(second)), 0.0, length);
        let (label, ticks) = clock(13 * 3600 + 47 * 60 + 10, 3600.0);
        assert_eq!((label.as_str(), ticks.join(" ").as_str()), ("time", "13:50 14:00 14:10 14:20 14:30 14:40"));
        assert_eq!(clock(86_370, 60.0).1.join(" "), "23:59:30 23:59:40 23:59:50 00:00:00 00:00:10 00:00:20 00:00:30");
        assert_eq!(clock(3600, 172_800.0).1.join(" "), "12:00 00:00 12:00 00:00");
        let scale = Scale::snug(&Axis::new("time", Unit::Clock(30)), 0.0, 90.0);
        let (value, label) = &scale.ticks[0];
        assert_eq!((label.as_str(), scale.place(*value), scale.place(90.0)), ("00:00:30", 0.0, 1.0));
    }

    #[test]
    fn logarithmic_and_places() {
        let axis = Axis::log("delay", Unit::Time);
        let (label, ticks) = shown(&axis, 0.000_25, 0.06);
        assert_eq!((label.as_str(), ticks.join(" ").as_str()), ("delay", "100 µs 1 ms 10 ms 100 ms"));
        let (label, ticks) = shown(&Axis::log("rate", Unit::Rate), 2e3, 5e6);
        assert_eq!((label.as_str(), ticks.join(" ").as_str()), ("rate [Mbit/s]", "0.001 0.01 0.1 1 10"));
        let scale = Scale::new(&axis, 0.001, 0.1);
        assert_eq!(
            [0.001, 0.01, 0.1, 5.0, 0.0].map(|v| (scale.place(v) * 100.0).round()),
            [0.0, 50.0, 100.0, 100.0, 0.0]
        );
        let scale = Scale::new(&Axis::new("", Unit::Count), 0.0, 10.0);
        assert_eq!([0.0, 2.5, 10.0, 11.0].map(|v| scale.place(v)), [0.0, 0.25, 1.0, 1.0]);
    }
}
