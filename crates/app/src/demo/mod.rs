//! `altq demo`: the first minute.

pub mod live;
pub mod screen;
pub mod share;
pub mod then;
pub mod traffic;
