//! The screen of `altq top`.
//!
//! ```text
//!  a document once a second ─► Screen ─► draw ─► a buffer of cells ─► terminal, or text
//!                      keys ─► Screen
//! ```
//!
//! [`Screen`] holds what is shown and chosen; [`draw()`] makes a buffer of it, which tests compare.
//! Neither does I/O or has a clock. Only visible rows are drawn. [`terminal`] has the loop between
//! keys, documents and the terminal.
//!
//! Every number has a place of fixed width. Colours carry no information of their own: without
//! colours and in ASCII everything is still shown.

#![forbid(unsafe_code)]

mod columns;
pub mod draw;
pub mod number;
pub mod plain;
pub mod screen;
pub mod spark;
pub mod terminal;
pub mod traffic;

pub use draw::draw;
pub use screen::{Act, Key, Look, Screen};
