//! Limits that hold wherever packets are listed or cases are written: for timers, sizes and
//! transmit queues.

use altq_engine::spec::Timer;
use altq_engine::units::SECOND;

/// The largest packet, in bytes at layer 3: IPv4's total length is 16 bits wide (RFC 791 3.1).
pub const LARGEST_PACKET: u32 = 65_535;

/// The most transmit queues of a link, because sets of queues are 64-bit words.
pub const MOST_QUEUES: usize = 64;

/// The timer with `hz` ticks per second. A tick is a whole number of nanoseconds, so `hz` must
/// divide 10^9.
pub fn tick(hz: u64) -> Result<Timer, String> {
    if hz > 0 && SECOND.is_multiple_of(hz) {
        return Ok(Timer::Tick(SECOND / hz));
    }
    // A tick is at least a nanosecond, so the nearest to all beyond that is the second's 10^9.
    let below = (1..hz.min(SECOND + 1)).rev().find(|h| SECOND.is_multiple_of(*h));
    let above = (hz.saturating_add(1)..=SECOND).find(|h| SECOND.is_multiple_of(*h));
    let near: Vec<String> = below.into_iter().chain(above).map(|h| h.to_string()).collect();
    Err(format!(
        "a tick of 1/{hz} s is not a whole number of nanoseconds; the nearest that are: {}",
        near.join(" and ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_divide_the_second() {
        assert_eq!(tick(100), Ok(Timer::Tick(10_000_000)));
        assert_eq!(tick(1024).unwrap_err().split(": ").nth(1), Some("1000 and 1250"));
        for (hz, nearest) in [(0, "1"), (2_000_000_000, "1000000000"), (u64::MAX, "1000000000")] {
            assert_eq!(tick(hz).unwrap_err().split(": ").nth(1), Some(nearest), "{hz}");
        }
    }
}
