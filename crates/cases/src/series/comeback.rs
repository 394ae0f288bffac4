//! How fast a class has its share again when it comes back: the watch over one class.

use altq_engine::units::{Nanos, SECOND};

/// It has its share when it gets this part of its guarantee in a window.
const ENOUGH: f64 = 0.95;
/// Packets of the link's MTU that the guarantee serves in a window.
const PACKETS: u64 = 20;
/// A window is never shorter: twice the tick of a timer of 100 a second.
const SHORTEST: Nanos = 20_000_000;
/// It is watched for so many windows.
const WINDOWS: u64 = 20;
/// Comebacks of a class that are kept.
const MOST: usize = 16;

/// Watches a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comeback {
    guarantee: u64,
    /// Length of the windows, and of the silence before.
    pub window: Nanos,
    backlog: u64,
    /// When packets began to wait that still do.
    busy_since: Nanos,
    /// When it last had not what it asked for: when packets had waited for a window at least.
    silent_since: Nanos,
    /// When it came back, while it is watched.
    since: Option<Nanos>,
    /// What it was given since: when, and bytes charged.
    given: Vec<(Nanos, u32)>,
    /// When it came back, and after what time it had its share.
    pub found: Vec<(Nanos, Option<Nanos>)>,
}

impl Comeback {
    /// For a class of this guarantee in bit/s on a link of this MTU; `None` where nothing is
    /// guaranteed.
    pub fn new(guarantee: u64, mtu: u32) -> Option<Comeback> {
        let serves = u128::from(PACKETS) * u128::from(mtu) * 8 * u128::from(SECOND);
        let window = u64::try_from(serves.checked_div(u128::from(guarantee))?).unwrap_or(u64::MAX).max(SHORTEST);
        let (given, found) = (Vec::new(), Vec::new());
        Some(Comeback { guarantee, window, backlog: 0, busy_since: 0, silent_since: 0, since: None, given, found })
    }

    /// A packet came.
    pub fn arrived(&mut self, now: Nanos) {
        if self.backlog == 0 {
            self.busy_since = now;
            let silent = now.saturating_sub(self.silent_since) >= self.window;
            self.since = Some(now).filter(|_| silent && self.found.len() < MOST);
        }
        self.backlog += 1;
    }

    /// A packet was handed over, for which so many bytes were charged.
    pub fn sent(&mut self, now: Nanos, charged: u32) {
        if let Some(since) = self.since {
            self.given.push((now, charged));
            if now - since >= self.window.saturating_mul(WINDOWS) {
                self.end(now);
            }
        }
        self.gone(now);
    }

    /// A packet is no longer there.
    pub fn gone(&mut self, now: Nanos) {
        self.backlog = self.backlog.saturating_sub(1);
        if self.backlog == 0 {
            if now - self.busy_since >= self.window {
                self.silent_since = now;
            }
            self.end(now);
        }
    }

    /// Ends a watch: at the end of the run, too.
    pub fn end(&mut self, now: Nanos) {
        let Some(since) = self.since.take() else { return };
        let given = std::mem::take(&mut self.given);
        // Who had all that it asked for before a window was over shows nothing.
        if now - since < self.window {
            return;
        }
        let enough = (self.guarantee as f64 * ENOUGH / 8.0 * self.window as f64 / SECOND as f64) as u64;
        // Windows begin when it comes, or when it is given something.
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

    /// 8 Mbit/s: 1000 bytes a millisecond. Twenty packets of 1000 bytes take 20 ms.
    fn class() -> Comeback {
        let class = Comeback::new(8_000_000, 1000).unwrap();
        assert_eq!(class.window, 20 * MS);
        class
    }

    /// It comes at 100 ms with ever more packets than it is given one every `every` from `from` on.
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
        // At once, at its full rate.
        assert_eq!(given(100 * MS, MS, 300 * MS), [(100 * MS, Some(0))]);
        // After 50 ms of nothing: the first window with 19 of 20 packets begins with the first of
        // them.
        assert_eq!(given(150 * MS, MS, 300 * MS), [(100 * MS, Some(50 * MS))]);
        // At half its rate: never.
        assert_eq!(given(100 * MS, 2 * MS, 300 * MS), [(100 * MS, None)]);
        // Not long enough to say.
        assert!(given(100 * MS, MS, 110 * MS).is_empty());
    }

    #[test]
    fn only_after_silence() {
        let mut class = class();
        for now in (100..200).map(|ms| ms * MS) {
            class.arrived(now);
            class.sent(now, 1000);
        }
        // All that came went at once: it never lacked anything.
        assert!(class.found.is_empty());
        (0..100).for_each(|_| class.arrived(200 * MS));
        (200..300).for_each(|ms| class.sent(ms * MS, 1000));
        assert_eq!(class.found, [(200 * MS, Some(0))]);
        // Packets waited until 299 ms: 16 ms later is no coming back, 20 ms later is.
        class.arrived(315 * MS);
        assert_eq!(class.since, None);
        class.gone(316 * MS);
        class.arrived(319 * MS);
        assert_eq!(class.since, Some(319 * MS));
        assert_eq!(Comeback::new(0, 1500), None);
    }
}
