//! The values of one name: `2..20Mbit/s:10` (ten values, the ends among them, equally far apart),
//! `1..100Mbit/s:3log` (each a constant multiple of the one before), or a list `a,b,c`.
//!
//! Numbers are decimal throughout, so the same words give the same values on every host. Values in
//! equal steps are exact, or refused. Those of `log` are rounded to six digits.

/// The most values of a name.
const MOST: u32 = 1_000_000;
/// Decimals of numbers.
const DECIMALS: usize = 9;
/// One, as numbers are counted here: in units of the last decimal.
const ONE: i128 = 1_000_000_000;

/// A name, and the values that it takes one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The name of a value of the case.
    pub name: String,
    /// The values, each as the case is given it.
    pub values: Vec<String>,
}

impl Axis {
    /// Reads `NAME=VALUES`.
    ///
    /// # Errors
    /// What is wrong, and what could be written instead.
    pub fn parse(word: &str) -> Result<Axis, String> {
        let Some((name, values)) = word.split_once('=') else {
            return Err(format!("{word:?} has no =; write NAME=VALUES, as in rate=2..20Mbit/s:10"));
        };
        check_name(name)?;
        Axis::list(name, values_of(values).map_err(|why| format!("{name}: {why}"))?)
    }

    /// A name and its values, one by one.
    ///
    /// # Errors
    /// What is wrong: the name, no value, or one that is there twice.
    pub fn list(name: &str, values: Vec<String>) -> Result<Axis, String> {
        check_name(name)?;
        if values.is_empty() {
            return Err(format!("{name} has no values; give it one, or leave it out"));
        }
        let mut seen = std::collections::HashSet::new();
        match values.iter().find(|value| !seen.insert(value.as_str())) {
            Some(twice) => Err(format!("{name}: {twice:?} is there twice")),
            None => Ok(Axis { name: name.to_owned(), values }),
        }
    }
}

/// Checks the name of a value, which is that of a column in the results too.
pub fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!("{name:?} is no name of a value: letters, digits, - and _"));
    }
    if crate::rows::OWN.contains(&name) {
        return Err(format!("a value of a sweep cannot be called {name}: the results have a column of that name"));
    }
    Ok(())
}

/// The values that a word stands for.
fn values_of(word: &str) -> Result<Vec<String>, String> {
    if let Some((first, rest)) = word.split_once("..")
        && first.starts_with(|c: char| c.is_ascii_digit())
        && rest.starts_with(|c: char| c.is_ascii_digit())
    {
        return range(first, rest).map_err(|why| format!("{word}: {why}"));
    }
    let values: Vec<String> = word.split(',').map(|value| value.trim().to_owned()).collect();
    match values.iter().any(String::is_empty) {
        true => Err(format!("{word:?} has an empty value; separate values by single commas")),
        false => Ok(values),
    }
}

fn range(first: &str, rest: &str) -> Result<Vec<String>, String> {
    let Some((last, steps)) = rest.rsplit_once(':') else {
        return Err("how many values? Write :10 behind it for ten of them".into());
    };
    let (count, log) = match steps.strip_suffix("log") {
        Some(count) => (count, true),
        None => (steps, false),
    };
    let count: u32 = match count.parse() {
        Ok(count) if (2..=MOST).contains(&count) => count,
        _ => return Err(format!("{steps:?} is no number of values: 2 to {MOST}, with log behind it if they multiply")),
    };
    let ((from, unit), (to, last_unit)) = (number(first)?, number(last)?);
    if !unit.is_empty() && unit != last_unit {
        return Err(format!("the ends have different units, {unit:?} and {last_unit:?}; write both in the same"));
    }
    let steps = i128::from(count) - 1;
    let value = |at: i128| -> Result<i128, String> {
        if log {
            return Ok(geometric(from, to, at as f64 / steps as f64));
        }
        let whole = from * steps + (to - from) * at;
        if whole % steps != 0 {
            let (ends, step) = (format!("{}..{}", written(from), written(to)), steps);
            return Err(format!(
                "{ends} in {step} equal steps gives no decimal numbers; choose another number of values, or write \
                 the list"
            ));
        }
        Ok(whole / steps)
    };
    if log && (from == 0 || to == 0) {
        return Err("values that multiply do not begin or end at 0".into());
    }
    (0..=steps).map(|at| Ok(format!("{}{last_unit}", written(value(at)?)))).collect()
}

/// A number with at most nine decimals, in units of the last one, and what stands behind it.
fn number(word: &str) -> Result<(i128, &str), String> {
    let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
    let (digits, unit) = word.split_at(end);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let wrong = || format!("{digits:?} is no number of at most 18 digits and {DECIMALS} decimals");
    if whole.is_empty() || whole.len() > 18 || part.len() > DECIMALS || digits.ends_with('.') || part.contains('.') {
        return Err(wrong());
    }
    let whole: i128 = whole.parse().map_err(|_| wrong())?;
    let part: i128 = format!("{part:0<DECIMALS$}").parse().map_err(|_| wrong())?;
    Ok((whole * ONE + part, unit))
}

/// A number as it is written, without needless zeros.
fn written(number: i128) -> String {
    let (whole, part) = (number / ONE, number % ONE);
    match part {
        0 => whole.to_string(),
        part => format!("{whole}.{}", format!("{part:0DECIMALS$}").trim_end_matches('0')),
    }
}

/// The value a fraction of the way from one number to another, counted in factors, with six digits.
/// Logarithms of different systems differ in a sixteenth digit at most, which does not show here.
fn geometric(from: i128, to: i128, way: f64) -> i128 {
    if way == 0.0 || way == 1.0 {
        return if way == 0.0 { from } else { to };
    }
    let value = from as f64 * (to as f64 / from as f64).powf(way);
    let digits = value.log10().floor() as i32;
    let unit = 10_i128.pow((digits - 5).clamp(0, 30) as u32);
    (value / unit as f64).round() as i128 * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(word: &str) -> Result<Vec<String>, String> {
        Axis::parse(word).map(|axis| axis.values)
    }

    #[test]
    fn lists_and_steps() {
        assert_eq!(values("rate=2..20Mbit/s:10").unwrap()[..3], ["2Mbit/s", "4Mbit/s", "6Mbit/s"]);
        assert_eq!(values("rate=2..20Mbit/s:10").unwrap()[9], "20Mbit/s");
        assert_eq!(values("x=0.1..0.3:3").unwrap(), ["0.1", "0.2", "0.3"]);
        assert_eq!(values("x=3..1:3").unwrap(), ["3", "2", "1"]);
        assert_eq!(values("x=2ms..3ms:5").unwrap(), ["2ms", "2.25ms", "2.5ms", "2.75ms", "3ms"]);
        assert_eq!(values("p=../a.altq, b.altq").unwrap(), ["../a.altq", "b.altq"]);
        // 1, 10, 100; and the square root of ten, 3.16227766.
        assert_eq!(values("r=1..100Mbit/s:3log").unwrap(), ["1Mbit/s", "10Mbit/s", "100Mbit/s"]);
        assert_eq!(values("r=1..10:3log").unwrap(), ["1", "3.16228", "10"]);
        assert_eq!(values("r=1000..1000000:3log").unwrap()[1], "31622.8");
    }

    #[test]
    fn what_is_no_grid_is_said() {
        let wrong = |word: &str| values(word).unwrap_err();
        assert_eq!(wrong("rate"), "\"rate\" has no =; write NAME=VALUES, as in rate=2..20Mbit/s:10");
        assert_eq!(wrong("a b=1"), "\"a b\" is no name of a value: letters, digits, - and _");
        assert_eq!(wrong("seed=1"), "a value of a sweep cannot be called seed: the results have a column of that name");
        assert_eq!(wrong("x=1,,2"), "x: \"1,,2\" has an empty value; separate values by single commas");
        assert_eq!(wrong("x=1,2,1"), "x: \"1\" is there twice");
        assert_eq!(wrong("x=1..2"), "x: 1..2: how many values? Write :10 behind it for ten of them");
        assert_eq!(
            wrong("x=1..2:1"),
            "x: 1..2:1: \"1\" is no number of values: 2 to 1000000, with log behind it if they multiply"
        );
        assert_eq!(
            wrong("x=1kbit/s..2Mbit/s:2"),
            "x: 1kbit/s..2Mbit/s:2: the ends have different units, \"kbit/s\" and \"Mbit/s\"; write both in the same"
        );
        assert_eq!(
            wrong("x=0..1:4"),
            "x: 0..1:4: 0..1 in 3 equal steps gives no decimal numbers; choose another number of values, or write \
             the list"
        );
        assert_eq!(wrong("x=0..1:4log"), "x: 0..1:4log: values that multiply do not begin or end at 0");
        assert_eq!(wrong("x=1.2.3..2:2"), "x: 1.2.3..2:2: \"1.2.3\" is no number of at most 18 digits and 9 decimals");
    }
}
