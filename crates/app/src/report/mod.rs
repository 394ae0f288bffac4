//! Reports: results read back, and what becomes of them.

pub mod flent;
pub mod load;
