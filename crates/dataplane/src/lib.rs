//! Shapes real packets: the loop of a link, and the edges by which it receives and sends.
//!
//! One loop per shaped link receives, asks the engine, waits for timers and sends ([`shaper`]). It
//! works on an [`edge`]: the [`bridge`] between two interfaces (by packet sockets or by AF_XDP), a
//! queue of the kernel's firewall ([`nfqueue`]), or for tests the [`channel`] in memory, whose
//! clock is set by hand. Frames lie in a [`pool`]; the engine sees only descriptors. A link whose
//! rate adapts has a second thread, which probes its line.
//!
//! This is the only crate with `unsafe` code, all of it for calls to the kernel that neither the
//! standard library nor rustix has.

pub mod bridge;
pub mod census;
pub mod channel;
pub mod checksum;
pub mod confine;
pub mod drift;
pub mod edge;
mod error;
pub mod flows;
mod gauge;
pub mod inject;
pub mod kernel;
mod lock;
pub mod lookout;
pub mod netns;
pub mod nfqueue;
pub mod output;
pub mod partial;
pub mod pool;
mod probe;
pub mod remark;
pub mod routes;
mod running;
pub mod segment;
pub mod shaper;
mod snapshots;
pub mod stats;
pub mod stop;
mod sys;
pub mod tap;
pub mod verify;
pub mod vnet;
pub mod watched;
mod ways;

pub use altq_engine::sketch;
pub use error::Error;
pub use nfqueue::steer::Fail;
pub use running::{Loop, Options, Reach, Ready, Running, Xdp, fits, open, run, sweep};
pub use snapshots::Snapshots;
pub use sys::interface::Interface;
pub use sys::memory::{LargePages, give_back};
pub use sys::peer::{Credentials, credentials};
pub use sys::raw;
pub use sys::signal;
pub use sys::tcp_info::{TcpInfo, set_max_segment, tcp_info};
pub use sys::udp;
pub use ways::check;
