//! Shows results: pages, plots, and files and text in the form of other tools. Everything here is a
//! function from results to text; nothing runs a case.
//!
//! ```text
//!  html       a self-contained page of results       plot     charts as SVG
//!  document   EXPERIMENTS.md                         results  a folder of results, pages and an index
//!  load       results read back from JSON            flent    a run as a flent file
//!  measured   runs of `altq traffic` and `altq run`
//!  recorded   what a running altq has kept of its links
//!  stat       counters as `tc -s`, altqstat and tbrconfig print them
//! ```

#![forbid(unsafe_code)]

pub mod document;
mod fill;
pub mod flent;
pub mod html;
pub mod load;
pub mod measured;
pub mod plot;
pub mod recorded;
pub mod results;
pub mod stat;
