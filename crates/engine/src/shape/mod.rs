//! Shapers: what holds traffic to a rate, and curves that say how much is due.

pub mod decay;
pub mod meter;
pub mod service_curve;
pub mod token_bucket;
