//! The commands, a file each. Those that need the simulator, the lab or pages come with the feature
//! `experiments`: a router can do without.

#[cfg(feature = "experiments")]
pub mod bench;
pub mod check;
pub mod convert;
#[cfg(feature = "experiments")]
pub mod demo;
#[cfg(feature = "experiments")]
pub mod experiments;
#[cfg(feature = "experiments")]
pub mod lab;
#[cfg(feature = "experiments")]
pub mod replay;
#[cfg(feature = "experiments")]
pub mod report;
pub mod run;
#[cfg(feature = "experiments")]
pub mod sim;
pub mod traffic;
