//! Real packets: the loop of a link and the edges where it meets the world.
//!
//! One loop per egress link owns reception, engine, timers and transmission ([`shaper`]). It works
//! on an [`edge`]: the [`channel`] in memory with a clock set by hand, for tests, or the bridge
//! between two interfaces. The bytes lie in a [`pool`]; the engine sees descriptors.
//!
//! This is the only crate with `unsafe` code, all of it in the calls to the kernel that the
//! standard library and rustix do not have.

pub mod bridge;
pub mod channel;
pub mod checksum;
pub mod edge;
mod error;
pub mod host;
pub mod netns;
pub mod pacer;
pub mod pool;
pub mod remark;
pub mod segment;
pub mod shaper;
pub mod sketch;
pub mod stats;
pub mod stop;
mod sys;
pub mod vnet;

pub use error::Error;
pub use sys::memory::LargePages;
pub use sys::signal;
pub use sys::tcp_info::{TcpInfo, tcp_info};
pub use sys::udp;
