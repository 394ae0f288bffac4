//! Words that several parts of a case use: names, worlds, bounds, numbers with units.

use std::collections::{HashMap, HashSet};

use altq_config::literal;
use toml::Spanned;

use super::measure::{Bound, Shown, UNITS, Unit};
use super::raw;
use super::wrong::{Result, bad, did_you_mean};
use crate::world::World;

/// Checks that a name is not empty, and not given twice.
pub fn unique(seen: &mut HashSet<String>, name: &Spanned<String>, what: &str) -> Result<()> {
    if name.get_ref().is_empty() {
        return bad(name, format!("a {what} needs a name"));
    }
    if !seen.insert(name.get_ref().clone()) {
        return bad(name, format!("there are two {what}s called {:?}", name.get_ref()));
    }
    Ok(())
}

/// The index of a name among others. `what`: the word for what the names stand for.
pub fn find<'a>(name: &Spanned<String>, what: &str, names: impl Iterator<Item = &'a str> + Clone) -> Result<usize> {
    let word = name.get_ref();
    match names.clone().position(|known| known == word) {
        Some(at) => Ok(at),
        None => bad(name, format!("there is no {what} called {word:?}{}", did_you_mean(word, names))),
    }
}

/// Names that are looked up often: [`find`] without a walk through all of them.
pub struct Known<'a> {
    what: &'a str,
    at: HashMap<&'a str, usize>,
}

impl<'a> Known<'a> {
    /// `what`: the word for what the names stand for. No name stands twice.
    pub fn new(what: &'a str, names: impl Iterator<Item = &'a str>) -> Known<'a> {
        Known { what, at: names.zip(0..).collect() }
    }

    /// The index of a name.
    pub fn find(&self, name: &Spanned<String>) -> Result<usize> {
        let word = name.get_ref();
        match self.at.get(word.as_str()) {
            Some(at) => Ok(*at),
            None => {
                let mut names: Vec<&str> = self.at.keys().copied().collect();
                names.sort_unstable();
                bad(name, format!("there is no {} called {word:?}{}", self.what, did_you_mean(word, names)))
            }
        }
    }
}

/// A world.
pub fn world(word: &Spanned<String>) -> Result<World> {
    match word.get_ref().as_str() {
        "sim" => Ok(World::Sim),
        "lab" => Ok(World::Lab),
        _ => bad(word, "a world is \"sim\" or \"lab\""),
    }
}

/// On which side of the expected value the measured one may be.
pub fn bound(word: &Spanned<String>) -> Result<Bound> {
    match word.get_ref().as_str() {
        "within" => Ok(Bound::Within),
        "at_most" => Ok(Bound::AtMost),
        "at_least" => Ok(Bound::AtLeast),
        _ => bad(word, "a bound is \"within\", \"at_most\" or \"at_least\""),
    }
}

/// A fraction of packets, from 0 to 1.
pub fn share(raw: &Spanned<raw::Figure>) -> Result<f64> {
    match number(raw, Unit::Fraction, None)? {
        share if share <= 1.0 => Ok(share),
        _ => bad(raw, "a share is 0 to 1, or \"0%\" to \"100%\""),
    }
}

/// A figure in its measure's unit. `relative_to`: the value of 100 %; `None`: only a fraction may
/// be a percentage, which is of 1.
pub fn number(raw: &Spanned<raw::Figure>, unit: Unit, relative_to: Option<f64>) -> Result<f64> {
    let value = match raw.get_ref() {
        raw::Figure::Number(value) => *value,
        raw::Figure::Text(text) => match text.trim().strip_suffix('%') {
            Some(percent) => {
                let base = match (relative_to, unit) {
                    (Some(base), _) => base.abs(),
                    (None, Unit::Fraction) => 1.0,
                    (None, _) => return bad(raw, "a percentage of what?"),
                };
                match percent.trim().parse::<f64>() {
                    Ok(percent) => base * percent / 100.0,
                    Err(_) => return bad(raw, "that is no percentage"),
                }
            }
            None => match unit {
                Unit::Rate => kilobytes(text).map_or_else(
                    || literal::rate_with_unit(text).map(|r| r.as_bit_s() as f64).or_else(|message| bad(raw, message)),
                    Ok,
                )?,
                Unit::Time => literal::time_with_unit(text).map(|t| t as f64).or_else(|message| bad(raw, message))?,
                Unit::Fraction => return bad(raw, "a fraction is written as 0.2 or \"20%\""),
                Unit::Count => return bad(raw, "a count is a number"),
            },
        },
    };
    if !value.is_finite() || value < 0.0 {
        return bad(raw, "a figure is a number from 0");
    }
    Ok(value)
}

/// A rate in KB/s; ttcp's KB are 1024 bytes.
fn kilobytes(text: &str) -> Option<f64> {
    let shown: &Shown = UNITS.iter().find(|shown| shown.name == "KB/s")?;
    text.trim().strip_suffix(shown.name)?.trim_end().parse::<f64>().ok().map(|n| n * shown.factor)
}
