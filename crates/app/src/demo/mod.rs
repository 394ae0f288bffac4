//! The three parts of `altq demo` (`share`, `conf_1997`, `live`), its traffic, and how it is
//! printed.

pub mod conf_1997;
pub mod live;
pub mod screen;
pub mod share;

pub mod traffic;
