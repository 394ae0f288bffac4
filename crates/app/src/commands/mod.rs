//! The commands, each in a file of its own. Those that need the simulator, the lab or pages are
//! built with the feature `experiments`, which a router does not need; `web` has a feature of its
//! own.

pub mod apply;
#[cfg(feature = "experiments")]
pub mod bench;
pub mod check;
pub mod completions;
pub mod convert;
#[cfg(feature = "experiments")]
pub mod demo;
pub mod edit;
#[cfg(feature = "experiments")]
pub mod examples;
#[cfg(feature = "experiments")]
pub mod experiments;
pub mod explain;
#[cfg(feature = "experiments")]
pub mod lab;
pub mod link;
pub mod man;
pub mod plan;
#[cfg(feature = "experiments")]
pub mod replay;
#[cfg(feature = "experiments")]
pub mod report;
pub mod reserve;
pub mod rsvp;
pub mod rsvpd;
pub mod run;
#[cfg(feature = "experiments")]
pub mod sim;
pub mod stat;
pub mod status;
pub mod stop;
pub mod subscriber;
#[cfg(feature = "sweep")]
pub mod sweep;
pub mod tap;
pub mod top;
pub mod traffic;
pub mod verify;
#[cfg(feature = "web")]
pub mod web;
