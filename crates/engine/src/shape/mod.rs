//! Shapers: what holds traffic to a rate.

pub mod token_bucket;
