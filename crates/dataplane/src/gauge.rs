//! How much a loop has sent, and whether packets wait in it, for another thread to read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a loop says of itself at the end of every turn. Its copies show the same, at any time, and
/// the loop waits for none of their readers. While a loop sleeps nothing of it changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauge(Arc<Shown>);

#[derive(Debug, Default)]
struct Shown {
    charged: AtomicU64,
    backlogged: AtomicBool,
}

impl Gauge {
    /// Shows the bytes that the link has charged for what it has sent, and whether packets wait.
    pub fn set(&self, charged: u64, backlogged: bool) {
        // The two need not be of the same turn: they are measured over half a second.
        self.0.charged.store(charged, Ordering::Relaxed);
        self.0.backlogged.store(backlogged, Ordering::Relaxed);
    }

    /// The bytes, and whether packets wait.
    pub fn read(&self) -> (u64, bool) {
        (self.0.charged.load(Ordering::Relaxed), self.0.backlogged.load(Ordering::Relaxed))
    }
}
