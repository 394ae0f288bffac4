//! Measures how fast a class gets its guarantee back when it has packets again after a pause.

use altq_engine::units::{Nanos, SECOND};

/// The class has its guarantee back in a window in which it gets this part of it.
const ENOUGH: f64 = 0.95;
/// Length of a window: the time in which the guarantee serves this many packets of the link's MTU.
const PACKETS: u64 = 20;
/// Shortest window: two ticks of a timer with 100 ticks per second.
const SHORTEST: Nanos = 20_000_000;
/// Number of windows for which a class is watched.
const WINDOWS: u64 = 20;
/// The most comebacks of a class that are kept.
const MOST: usize = 16;

/// The watch over one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comeback {
    guarantee: u64,
    /// Length of the windows, and of the pause that must come before.
    pub window: Nanos,
    backlog: u64,
    /// When the present backlog began: packets have waited without a break since then.
    busy_since: Nanos,
    /// When the last backlog ended that had lasted a window or longer. Shorter ones since then do
    /// not end the pause.
    silent_since: Nanos,
    /// When it had packets again, while it is watched.
    since: Option<Nanos>,
    /// What it has been given since then: times, and bytes charged.
    given: Vec<(Nanos, u32)>,
    /// For each comeback, its time, and the time until the class had its guarantee back.
    pub found: Vec<(Nanos, Option<Nanos>)>,
}

impl Comeback {
    /// For a class with this guarantee in bit/s on a link with this MTU; `None` if it has no
    /// guarantee.
    pub fn new(guarantee: u64, mtu: u32) -> Option<Comeback> {
        let serves = u128::from(PACKETS) * u128::from(mtu) * 8 * u128::from(SECOND);
        let window = u64::try_from(serves.checked_div(u128::from(guarantee))?).unwrap_or(u64::MAX).max(SHORTEST);
        let (given, found) = (Vec::new(), Vec::new());
        Some(Comeback { guarantee, window, backlog: 0, busy_since: 0, silent_since: 0, since: None, given, found })
    }

    /// Counts a packet that arrives.
    pub fn arrived(&mut self, now: Nanos) {
        if self.backlog == 0 {
            self.busy_since = now;
            let silent = now.saturating_sub(self.silent_since) >= self.window;
            self.since = Some(now).filter(|_| silent && self.found.len() < MOST);
        }
        self.backlog += 1;
    }

    /// Counts a packet that is handed over, with the bytes charged for it.
    pub fn sent(&mut self, now: Nanos, charged: u32) {
        if let Some(since) = self.since {
            self.given.push((now, charged));
            if now - since >= self.window.saturating_mul(WINDOWS) {
                self.end(now);
            }
        }
        self.gone(now);
    }

    /// Counts a packet that left or was dropped.
    pub fn gone(&mut self, now: Nanos) {
        self.backlog = self.backlog.saturating_sub(1);
        if self.backlog == 0 {
            if now - self.busy_since >= self.window {
                self.silent_since = now;
            }
            self.end(now);
        }
    }

    /// Ends a watch; also called at the end of the run.
    pub fn end(&mut self, now: Nanos) {
        let Some(since) = self.since.take() else { return };
        let given = std::mem::take(&mut self.given);
        // A class that had sent everything before a window was over shows nothing.
        if now - since < self.window {
            return;
        }
        let enough = (self.guarantee as f64 * ENOUGH / 8.0 * self.window as f64 / SECOND as f64) as u64;
        // Windows begin when the class has packets again, and whenever it is given something.
        let starts = std::iter::once(since).chain(given.iter().map(|(at, _)| *at));
        let (mut first, mut last, mut sum) = (0, 0, 0u64);
        let mut had = None;
        for start in starts.take_while(|start| now - start >= self.window) {
            while let Some((_, bytes)) = given.get(first).filter(|(at, _)| *at < start) {
                sum = sum.saturating_sub(u64::from(*bytes));
                first += 1;
            }
            while let Some((_, bytes)) = given.get(last).filter(|(at, _)| *at < start.saturating_add(self.window)) {
                sum += u64::from(*bytes);
                last += 1;
            }
            if sum >= enough {
                had = Some(start - since);
                break;
            }
        }
        self.found.push((since, had));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    /// 8 Mbit/s are 1000 bytes per millisecond, so twenty packets of 1000 bytes take 20 ms.
    fn class() -> Comeback {
        let class = Comeback::new(8_000_000, 1000).unwrap();
        assert_eq!(class.window, 20 * MS);
        class
    }

    /// From 100 ms on more packets arrive than leave. From `from` on one packet leaves every
    /// `every`.
    fn given(from: Nanos, every: Nanos, until: Nanos) -> Vec<(Nanos, Option<Nanos>)> {
        let mut class = class();
        for _ in 0..10_000 {
            class.arrived(100 * MS);
        }
        let mut now = from;
        while now < until {
            class.sent(now, 1000);
            now += every;
        }
        class.end(until);
        class.found
    }

    #[test]
    fn by_hand() {
        // It gets its full rate at once.
        assert_eq!(given(100 * MS, MS, 300 * MS), [(100 * MS, Some(0))]);
        // It gets nothing for 50 ms. The first window with 19 of 20 packets begins with the first
        // of them.
        assert_eq!(given(150 * MS, MS, 300 * MS), [(100 * MS, Some(50 * MS))]);
        // It gets half its rate, so it never has its guarantee.
        assert_eq!(given(100 * MS, 2 * MS, 300 * MS), [(100 * MS, None)]);
        // The watch is too short for a result.
        assert!(given(100 * MS, MS, 110 * MS).is_empty());
    }

    #[test]
    fn only_after_silence() {
        let mut class = class();
        for now in (100..200).map(|ms| ms * MS) {
            class.arrived(now);
            class.sent(now, 1000);
        }
        // All packets left at once, so it never lacked anything.
        assert!(class.found.is_empty());
        (0..100).for_each(|_| class.arrived(200 * MS));
        (200..300).for_each(|ms| class.sent(ms * MS, 1000));
        assert_eq!(class.found, [(200 * MS, Some(0))]);
        // Packets waited until 299 ms. A packet 16 ms later is not a comeback, one 20 ms later is.
        class.arrived(315 * MS);
        assert_eq!(class.since, None);
        class.gone(316 * MS);
        class.arrived(319 * MS);
        assert_eq!(class.since, Some(319 * MS));
        assert_eq!(Comeback::new(0, 1500), None);
    }
}
