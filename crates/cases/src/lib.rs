//! Case files and their results. Both worlds, the simulator and the lab, read cases and write
//! results through this crate. It depends on neither of them, and on no device.
//!
//! ```text
//!  case     a case file: hosts, links, flows, policy, what must come out
//!  result   what came out: `altq.result/1`         table    from runs to a result
//!  series   classes and flows over time            report   counters of classes
//!  gaps     gaps between packets                   statistics   percentiles
//!  stat     a link's counters at one instant       source   when a flow of datagrams sends
//!  find     the cases of folders                   task     a case to run in a world
//!  standstill   TCP flows of which nothing is delivered for long
//!  made     how a result was made: version, files with hashes
//!  built_in   cases and examples inside the program
//! ```

#![forbid(unsafe_code)]

pub mod built_in;
pub mod case;
pub mod find;
pub mod gaps;
pub mod limits;
pub mod made;
pub mod place;
pub mod random;
pub mod report;
pub mod result;
pub mod samples;
pub mod series;
pub mod source;
pub mod standstill;
pub mod stat;
pub mod statistics;
pub mod table;
pub mod task;
pub mod world;
