//! Reports: results read back, and what becomes of them.

pub mod export;
pub mod flent;
pub mod load;
