//! The screen of `altq top`.
//!
//! ```text
//!  a document once a second ─► Screen ─► draw ─► a buffer of cells ─► terminal, or text
//!                      keys ─► Screen
//! ```
//!
//! [`Screen`] is what is shown and chosen; [`draw()`] makes a buffer of it, which tests compare.
//! Both do no I/O and know no time. Only rows that are seen are drawn. [`terminal`] has the loop
//! between keys, documents and the terminal.
//!
//! Every number has a place of fixed width. Nothing is told by a colour alone; without colours and
//! in ASCII the same is there.

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
