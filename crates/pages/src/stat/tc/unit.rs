//! Prints rates, sizes, times and numbers as iproute2 does (tc/tc_util.c: the units, and the
//! thresholds at which they change).

use altq_engine::settings::{Limit, ONE, Value};

/// A rate: `32000bit`, `13333Kbit`, `1000Mbit`.
pub fn rate(bit_s: u64) -> String {
    let bits = bit_s as f64;
    match bit_s {
        0..1_000_000 => format!("{bits:.0}bit"),
        1_000_000..1_000_000_000 => format!("{:.0}Kbit", bits / 1e3),
        _ => format!("{:.0}Mbit", bits / 1e6),
    }
}

/// A size: `1600b`; `15Kb` and `2Mb` if these are nearly exact.
pub fn size(bytes: u64) -> String {
    let near = |unit: u64, slack: u64| {
        let whole = bytes.saturating_add(unit / 2) / unit;
        (bytes >= unit && (whole * unit).abs_diff(bytes) < slack).then_some(whole)
    };
    match (near(1 << 20, 1024), near(1024, 16)) {
        (Some(mega), _) => format!("{mega}Mb"),
        (None, Some(kilo)) => format!("{kilo}Kb"),
        (None, None) => format!("{bytes}b"),
    }
}

/// A time: `5ms`, `12.5ms`, `800us`, `1.5s`; below a microsecond `500ns`.
pub fn time(ns: u64) -> String {
    match ns {
        0 => "0us".into(),
        1..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{}us", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{}ms", three(ns as f64 / 1e6)),
        _ => format!("{}s", three(ns as f64 / 1e9)),
    }
}

/// Three significant digits, without zeros at the end.
fn three(value: f64) -> String {
    let text = match value {
        ..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => return format!("{value:.0}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A fraction, as C's `%g` prints it.
pub fn fraction(billionths: u32) -> String {
    fraction_of(f64::from(billionths) / f64::from(ONE))
}

/// Six significant digits, without zeros at the end.
fn fraction_of(value: f64) -> String {
    if value <= 0.0 {
        return "0".into();
    }
    let before = (value.log10().floor() as i32).clamp(-9, 5);
    let text = format!("{value:.*}", (5 - before) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A limit: `200p`, or a size.
pub fn limit(limit: Limit) -> String {
    match limit {
        Limit::Packets(packets) => format!("{packets}p"),
        Limit::Bytes(bytes) => size(u64::from(bytes)),
    }
}

/// A word's value in tc's units; a flag has none.
pub fn value(value: Value) -> String {
    match value {
        Value::Flag => String::new(),
        Value::Rate(bits) => rate(bits.as_bit_s()),
        Value::Int(n) => n.to_string(),
        Value::Bytes(bytes) => size(bytes),
        Value::Time(ns) => time(ns),
        Value::Limit(most) => limit(most),
        Value::Fraction(billionths) => fraction(billionths),
        Value::Percent(billionths) => format!("{}%", fraction_of(f64::from(billionths) / f64::from(ONE / 100))),
        Value::Curve(curve) => {
            let (m1, m2) = (rate(curve.first.as_bit_s()), rate(curve.then.as_bit_s()));
            format!("m1 {m1} d {} m2 {m2}", time(curve.until))
        }
        Value::Choice(word) => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_tc_prints() {
        // From the blocks of CeroWrt's Early_Test_Results, and iproute2's thresholds.
        assert_eq!([32_000, 13_333_000, 40_000_000].map(rate), ["32000bit", "13333Kbit", "40000Kbit"]);
        assert_eq!([264, 999_999, 1_000_000, 1_000_000_000].map(rate), ["264bit", "999999bit", "1000Kbit", "1000Mbit"]);
        assert_eq!([1514, 1600, 3000, 18_000, 13_626].map(size), ["1514b", "1600b", "3000b", "18000b", "13626b"]);
        assert_eq!([1024, 15_360, 1_048_576].map(size), ["1Kb", "15Kb", "1Mb"]);
        assert_eq!([0, 500, 5_000_000, 16_666_667, 100_000_000].map(time), ["0us", "500ns", "5ms", "16.7ms", "100ms"]);
        assert_eq!([200_000_000, 20_000_000, 1_000_000_000, 0].map(fraction), ["0.2", "0.02", "1", "0"]);
    }
}
