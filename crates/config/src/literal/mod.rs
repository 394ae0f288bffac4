//! Literals of rates, times, sizes, limits, percentages and DSCPs, for everything in altq that
//! reads them: policies, case files, traffic plans and the command line.
//!
//! A literal is a decimal number and its unit:
//!
//! | literal | units |
//! |---|---|
//! | rate | `bit/s`, `kbit/s`, `Mbit/s`, `Gbit/s` (powers of 1000), `cells/s` (ATM cells of 53 bytes) |
//! | time | `ns`, `us`, `ms`, `s`; `min` and `h` outside of policies |
//! | size | `bytes`; outside of policies also `byte`, `kbytes` and `Mbytes` (powers of 1000) |
//! | limit | `packets`, or a size |
//!
//! A literal must come out as a whole number of bit/s, nanoseconds or bytes: only percentages are
//! rounded (down). A unit that can be read in two ways, as in `1mbps` or `64k`, is refused with
//! both readings spelled out, and so is a unit that is not known.
//!
//! There are two forms:
//!
//! - A policy writes every unit, right behind its number: `rate 5Mbit/s`. Only a size may be
//!   written as a bare number of bytes. See [`policy`].
//! - Case files, traffic plans and the command line may leave a space before the unit, and may
//!   write a bare whole number of bit/s, nanoseconds or bytes: [`rate()`], [`time()`], [`size()`],
//!   [`limit()`], [`curve()`]. Where a bare number would be mistaken, as a time in seconds on the
//!   command line, [`time_with_unit`] and [`rate_with_unit`] ask for the unit.

mod case;
mod number;
pub mod policy;
mod unit;
mod wrong;

pub use self::case::{curve, dscp, limit, part_of, rate, rate_with_unit, size, time, time_with_unit};
pub use self::number::Decimal;
pub use self::wrong::Wrong;
