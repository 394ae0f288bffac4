//! From text to a checked policy: one folder a language, all lowered to the same [`Policy`].
//!
//! ```
//! use altq_config::{Language, parse_str};
//!
//! let text = "link wan {
//!     rate 10Mbit/s  scheduler cbq
//!     class voice { share 20% }
//!     class rest  { share 80%  borrow  default }
//! }";
//! let policy = parse_str(text, "doc.altq", Language::Native).unwrap();
//! assert_eq!(policy.links[0].class("rest"), Some(2));
//! ```

#![forbid(unsafe_code)]

mod altq_conf;
mod changes;
mod check;
mod class_words;
mod compared;
pub mod diagnostic;
pub mod document;
pub mod explain;
mod language;
mod limits;
pub mod literal;
mod load;
mod lower;
mod names;
pub mod native;
mod packet;
mod policy;
mod print;
mod promise;
mod render;
mod reservations;
pub mod suggest;
mod text;
pub mod wildcard;

pub use changes::{Transition, changes, renumbered, transition};
pub use check::{advice, notes};
pub use class_words::{ClassWords, scheduler_below};
pub use compared::{Differs, compared, differences};
pub use diagnostic::{Diagnostic, Severity, SourceId, Sources, Span};
pub use language::Language;
pub use limits::{LimitedBy, Used};
pub use literal::Wrong;
pub use load::{Failed, load, parse_alone, parse_bytes, parse_str};
pub use names::{protocol, protocol_name};
pub use native::{Edit, edit, edit_of};
pub use packet::Packet;
pub use policy::{Adapt, Class, Device, LONGEST_NAME, Link, Path, Policy};
pub use print::{Printed, print};
pub use promise::{DelayBound, Promises};
pub use render::render;
pub use reservations::Reservations;
pub use text::{STANDARD_INPUT, read_standard_input};
