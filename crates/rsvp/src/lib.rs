//! RSVP version 1 (RFC 2205) without sockets and without a clock.
//!
//! Three parts, each of which may be used alone:
//!
//! - [`wire`]: messages and their objects, from bytes and to bytes (RFC 2205 3 and appendix A, RFC
//!   2210 3).
//! - [`integrity`]: the INTEGRITY object, its keys, its window of sequence numbers and its
//!   handshake (RFC 2747).
//! - [`node`]: the state machine of a router, and of a proxy for hosts that do not speak RSVP (RFC
//!   2205, 2209, 5945, 5946).
//!
//! The state machine does nothing by itself. Whoever runs it hands in what arrived and what time it
//! is, calls it again at [`node::Node::next_timeout`], and sends what [`node::Node::poll`] returns.
//! Routes, random numbers and the reservation of bandwidth are arguments too ([`node::World`]). So
//! the same code runs on raw sockets, in a test with a hundred routers in one thread, and in a
//! fuzzer.
//!
//! What is built: all seven messages, IPv4 and IPv6 unicast, the styles FF and SE, controlled load.
//! Guaranteed service is refused as published (error 21, value 02). WF and multicast are not built;
//! [`merge`] and the tables of the node are made so that they can be.

pub mod integrity;
pub mod merge;
pub mod node;
pub mod wire;
