//! What a class did in the last second, ten seconds and minute, for figures that cannot be
//! subtracted: delays and flows.
//!
//! Each second's piece is kept until its step of five seconds is over. Then the step's pieces are
//! merged into one. A window is the current step and the one step (ten seconds) or the eleven steps
//! (a minute) before it. So it is one to four seconds too short, except at the end of a step.
//! Everything that is shown for a window covers the same seconds ([`Window::first`]).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Seconds in a step.
pub const STEP: u64 = 5;
/// The steps before the current one that belong to a minute.
const MINUTE: u64 = 11;

/// The time that a view shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Window {
    /// The last second.
    #[default]
    Second,
    /// The last ten seconds.
    Ten,
    /// The last minute.
    Minute,
}

impl Window {
    /// All windows, the shortest first.
    pub const ALL: [Window; 3] = [Window::Second, Window::Ten, Window::Minute];

    /// The steps before the current one that belong to it; `None`: only the last second.
    fn steps(self) -> Option<u64> {
        match self {
            Window::Second => None,
            Window::Ten => Some(1),
            Window::Minute => Some(MINUTE),
        }
    }

    /// The first second of the window when second `now` is over. Seconds count from 0. The result
    /// is the first second of a step, or `now`.
    pub fn first(self, now: u64) -> u64 {
        match self.steps() {
            None => now,
            Some(steps) => (now / STEP).saturating_sub(steps) * STEP,
        }
    }

    /// The number of seconds that the window has when second `now` is over.
    pub fn seconds(self, now: u64) -> u64 {
        now - self.first(now) + 1
    }
}

/// The pieces of one class. A piece (`T`) is what the class did in a second or in a step.
#[derive(Clone, Debug)]
pub struct Steps<T> {
    /// Seconds with their pieces, all of the current step.
    seconds: Vec<(u64, T)>,
    /// Earlier steps with their pieces, by number.
    steps: VecDeque<(u64, T)>,
}

impl<T> Default for Steps<T> {
    fn default() -> Steps<T> {
        Steps { seconds: Vec::new(), steps: VecDeque::new() }
    }
}

impl<T> Steps<T> {
    /// Adds what happened in second `now`. Seconds come in order; seconds without anything need not
    /// be added. `merge` makes one piece of several.
    pub fn push(&mut self, now: u64, piece: T, merge: impl FnOnce(&[(u64, T)]) -> T) {
        if let Some(step) = self.seconds.first().map(|(second, _)| second / STEP).filter(|step| *step != now / STEP) {
            self.steps.push_back((step, merge(&self.seconds)));
            self.seconds.clear();
        }
        while self.steps.front().is_some_and(|(step, _)| step + MINUTE < now / STEP) {
            self.steps.pop_front();
        }
        self.seconds.push((now, piece));
    }

    /// The pieces from second `first` on. It must be the first one of a step, or lie in the current
    /// step: earlier steps cannot be divided any more.
    pub fn since(&self, first: u64) -> impl Iterator<Item = &T> {
        let steps = self.steps.iter().filter(move |(step, _)| step * STEP >= first);
        let seconds = self.seconds.iter().filter(move |(second, _)| *second >= first);
        steps.chain(seconds).map(|(_, piece)| piece)
    }

    /// Bytes of memory held, without the struct itself; `of` returns what a piece holds.
    pub fn memory(&self, of: impl Fn(&T) -> usize) -> usize {
        let held: usize = self.steps.iter().chain(&self.seconds).map(|(_, piece)| of(piece)).sum();
        (self.steps.capacity() + self.seconds.capacity()) * size_of::<(u64, T)>() + held
    }

    /// True if no window needs a piece any more when second `now` is over.
    pub fn is_over(&self, now: u64) -> bool {
        self.since(Window::Minute.first(now)).next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces are lists of the seconds that they hold.
    fn steps(seconds: impl IntoIterator<Item = u64>) -> Steps<Vec<u64>> {
        let mut steps = Steps::default();
        for second in seconds {
            steps.push(second, vec![second], |all| all.iter().flat_map(|(_, piece)| piece.clone()).collect());
        }
        steps
    }

    fn held(steps: &Steps<Vec<u64>>, window: Window, now: u64) -> Vec<u64> {
        steps.since(window.first(now)).flatten().copied().collect()
    }

    #[test]
    fn a_window_has_the_seconds_that_it_says() {
        for end in 0..200 {
            let steps = steps(0..=end);
            for window in Window::ALL {
                let said: Vec<u64> = (end + 1 - window.seconds(end)..=end).collect();
                assert_eq!(held(&steps, window, end), said, "{window:?} at {end}");
            }
            assert!(steps.steps.len() <= 11 && steps.seconds.len() <= 5);
        }
        // When a step has just begun, a window is four seconds too short.
        assert_eq!((Window::Ten.seconds(9), Window::Ten.seconds(10), Window::Ten.seconds(13)), (10, 6, 9));
        assert_eq!((Window::Minute.seconds(59), Window::Minute.seconds(60), Window::Minute.seconds(3)), (60, 56, 4));
    }

    #[test]
    fn idle_seconds_leave_gaps() {
        let steps = steps([3, 4, 7, 61]);
        // The minute that ends with second 61 begins with second 5.
        assert_eq!(held(&steps, Window::Minute, 61), [7, 61]);
        assert_eq!(held(&steps, Window::Ten, 61), [61]);
        assert_eq!(held(&steps, Window::Second, 62), [] as [u64; 0]);
        assert_eq!(held(&steps, Window::Minute, 115), [61]);
        assert!(!steps.is_over(119) && steps.is_over(120));
        assert_eq!(steps.since(60).flatten().copied().collect::<Vec<_>>(), [61]);
        assert_eq!(steps.since(65).count(), 0);
    }
}
