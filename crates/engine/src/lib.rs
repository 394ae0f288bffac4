//! The engine of altq: which packet leaves a link next, and when.
//!
//! It has no clock, does no I/O and starts no thread. Its caller, a simulator or the loop of a live
//! interface, gives it packets and the time, and asks:
//!
//! ```text
//! enqueue(now, class, packet)   a packet arrives; it is queued, or dropped with a reason
//! dequeue(now)                  the packet that leaves now, if any
//! next_wakeup()                 the earliest time at which dequeue may return a packet if nothing
//!                               else happens
//! apply(now, change)            change classes, rates, rules while packets are queued
//! ```
//!
//! The loop that takes packets out, and knows when to ask again, is in [`drive`]. The owner of an
//! engine gives it what takes the packets (a wire, a ring or a device) and says when timers can
//! fire.
//!
//! The modules stand in the order in which a packet meets them: [`packet`], [`headers`],
//! [`classify`], [`link`], [`queue`], [`schedule`], [`shape`], [`drive`], [`account`], [`trace`].
//! [`spec`] says what a link is made of, [`settings`] how schedulers and queues name their words,
//! [`random`] has the random numbers of queues, and [`sketch`] the histogram of times that data
//! plane, traffic and lab merge.

#![deny(unsafe_code)]

pub mod account;
pub mod classify;
pub mod drive;
mod engine;
pub mod headers;
pub mod link;
pub mod packet;
mod prefetch;
pub mod queue;
pub mod random;
pub mod schedule;
pub mod settings;
pub mod shape;
pub mod sketch;
pub mod spec;
pub mod trace;
pub mod units;

pub use engine::{Change, ClassShown, Departure, Drop, Engine, MAX_NESTING};
pub use packet::Packet;
