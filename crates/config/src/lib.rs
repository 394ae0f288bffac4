//! From text to a checked policy: one folder a language, all lowered to the same [`Policy`].

#![forbid(unsafe_code)]

pub mod diagnostic;
mod policy;

pub use diagnostic::{Diagnostic, Severity, SourceId, Sources, Span};
pub use policy::{Class, Device, Link, Policy};
