//! All cases at once: found, run side by side, written down.
//!
//! ```text
//!  find       the cases of folders and files, by name
//!  pool       what runs when, and what came of it
//!  in_lab     runs of the lab, side by side   plan   which of them when
//!  results    results on disk, pages, the index
//!  document   EXPERIMENTS.md
//! ```

pub mod document;
pub mod find;
pub mod in_lab;
pub mod plan;
pub mod pool;
pub mod results;
