//! Rules of TCP, each by what its RFC says, over a link of a test's own.

mod link;

mod bulk;
mod handshake;
mod recovery;
mod rules;
