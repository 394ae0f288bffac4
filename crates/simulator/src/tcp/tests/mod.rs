//! Rules of TCP, each by what its RFC says, over a link of a test's own.

mod link;
mod script;

mod bbr;
mod bulk;
mod byhand;
mod delivery;
mod handshake;
mod recovery;
mod rules;
