//! The commands, a file each.

pub mod bench;
pub mod check;
pub mod convert;
pub mod demo;
pub mod experiments;
pub mod lab;
pub mod replay;
pub mod report;
pub mod run;
pub mod sim;
pub mod traffic;
