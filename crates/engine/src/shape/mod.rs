//! Rates: token buckets, meters and measured rates, and service curves.

pub mod decay;
pub mod meter;
pub mod pacer;
pub mod regulator;
pub mod service_curve;
mod sliding_window;
pub mod token_bucket;
