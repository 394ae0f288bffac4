//! The decimal number in front of a unit.

use super::wrong::{Wrong, wrong};

/// A decimal number: `mantissa / 10^decimals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    /// All digits, as one whole number.
    pub mantissa: u128,
    /// How many of the digits stand behind the point; at most 18.
    pub decimals: u32,
}

/// Why a product is not a whole number of 128 bits.
pub(super) enum Product {
    /// It has a fraction.
    Fraction,
    /// It is too large.
    TooLarge,
}

impl Decimal {
    /// The number times `factor`, if that is whole.
    pub(super) fn times(self, factor: u128) -> Result<u128, Product> {
        let product = self.mantissa.checked_mul(factor).ok_or(Product::TooLarge)?;
        let divisor = 10u128.pow(self.decimals);
        if product % divisor == 0 { Ok(product / divisor) } else { Err(Product::Fraction) }
    }

    /// This many per cent of `whole`, rounded down to a whole number. `None` if that does not fit.
    pub fn percent_of(self, whole: u64) -> Option<u64> {
        let product = self.mantissa.checked_mul(u128::from(whole))?;
        u64::try_from(product / (100 * 10u128.pow(self.decimals))).ok()
    }

    /// Whether it is more than a hundred.
    pub fn is_over_100(self) -> bool {
        self.mantissa > 100 * 10u128.pow(self.decimals)
    }
}

/// The most digits behind the point that are read.
#[derive(Clone, Copy)]
pub(super) enum Decimals {
    /// In policies: with nine, a rate in Gbit/s is exact to one bit/s.
    Nine,
    /// Elsewhere.
    Eighteen,
}

/// Splits a word into its number and its unit. `None` if it does not begin with a digit.
pub(super) fn split(word: &str, most: Decimals) -> Option<(Result<Decimal, Wrong>, &str)> {
    let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
    let (number, unit) = word.split_at(end);
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some((decimal(number, most), unit))
}

fn decimal(number: &str, most: Decimals) -> Result<Decimal, Wrong> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction_digits = fraction.trim_end_matches('0');
    if fraction.contains('.') || number.ends_with('.') {
        return wrong(
            format!("`{number}` is not a number"),
            "a number is of digits with at most one point between them",
        );
    }
    // No quantity here is as large as 10^20.
    if whole.trim_start_matches('0').len() > 20 {
        return wrong("this number is too large", "numbers here have at most 20 digits");
    }
    let (most, in_words) = match most {
        Decimals::Nine => (9, "nine"),
        Decimals::Eighteen => (18, "18"),
    };
    if fraction_digits.len() > most {
        let help = format!("at most {in_words} decimals are read; nothing is rounded in silence");
        return wrong("this number has too many decimals", help);
    }
    // At most 38 digits, which 128 bits hold.
    let digits = format!("{whole}{fraction_digits}");
    match digits.parse() {
        Ok(mantissa) => Ok(Decimal { mantissa, decimals: fraction_digits.len() as u32 }),
        Err(_) => wrong("this number is too large", "numbers here have at most 20 digits"),
    }
}
