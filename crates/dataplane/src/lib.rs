//! altq dataplane.

pub mod netns;
