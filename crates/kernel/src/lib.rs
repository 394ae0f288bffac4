//! A link of a policy as Linux's own qdiscs, classes and filters.
//!
//! [`translate`] turns a link into a [`Tree`] in the kernel's units. Nothing is left out silently:
//! a word that the kernel's qdiscs do not have is an error with its place in the policy, and what
//! the kernel does a little differently is a note of the tree. [`commands`] prints a tree as lines
//! of tc; [`message`] writes it as netlink messages and reads the kernel's answers.
//!
//! Nothing here calls the kernel. `dataplane` sends the messages.
//!
//! ```
//! use altq_config::{Language, parse_str};
//! use altq_kernel::{Host, Place, commands, translate};
//!
//! let text = "link wan {
//!     device eth0  rate 10Mbit/s  scheduler htb
//!     class voice { rate 2Mbit/s  prio 0 }
//!     class rest  { rate 8Mbit/s  ceil 10Mbit/s  prio 1  default }
//!     match dscp ef -> voice
//! }";
//! let policy = parse_str(text, "doc.altq", Language::Native).unwrap();
//! let tree = translate(&policy.links[0], &Host::default(), Place::ROOT).unwrap();
//! let lines = commands(&tree, "eth0");
//! assert_eq!(lines[0], "qdisc add dev eth0 root handle 1: htb default 2");
//! ```

#![forbid(unsafe_code)]

mod handle;
pub mod message;
pub mod plan;
mod print;
mod translate;
mod tree;

pub use handle::Handle;
pub use print::{commands, ifb, script};
pub use translate::condition::{Condition, Family};
pub use translate::{Host, Place, assumed, fits, translate};
pub use tree::{
    Class, ClassWords, Curve, Filter, FlowerKeys, Key, Layer, Match, Protocol, Qdisc, QdiscWords, RedWords, SizeTable,
    Target, Tree,
};
