//! How much a loop has sent, and whether packets wait in it, for another thread to read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a loop shows at the end of every turn. All copies show the same values. The loop never
/// waits for readers. While a loop sleeps, the values stay.
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
        // The two values need not be of the same turn, because readers look at half a second.
        self.0.charged.store(charged, Ordering::Relaxed);
        self.0.backlogged.store(backlogged, Ordering::Relaxed);
    }

    /// The bytes, and whether packets wait.
    pub fn read(&self) -> (u64, bool) {
        (self.0.charged.load(Ordering::Relaxed), self.0.backlogged.load(Ordering::Relaxed))
    }
}
