//! altq dataplane.
