//! What a running altq does, for browsers and collectors: the server of `altq web`.
//!
//! ```text
//!                    one thread, once a second       |     another thread
//!                                                    |
//!  control socket ──► feed ──► stat ──► watch ──► frame ──► events ───┐
//!  (status, stat,                         │          └────► metrics ──┼──► server ──► browsers,
//!   top, past,                            ├──► past ───────► history ─┤               collectors
//!   policy)                               ├──► flows ─────────────────┤
//!                                         └──► explain ───────────────┘
//! ```
//!
//! It is a client of the control socket (docs/control.md) and only sends requests that everybody
//! may send. So nothing that happens here affects the process that shapes. [`feed`] has the clock
//! and the socket, [`server`] the browsers; everything between them is without clock and I/O.
//!
//! docs/web.md describes the paths and their documents. Flows of a class ([`flows`]) and the policy
//! ([`explain`]) are no part of a frame: altq is asked for them only while somebody looks at that
//! class, or asks about packets.

#![forbid(unsafe_code)]

pub mod board;
pub mod changes;
pub mod earlier;
pub mod events;
pub mod explain;
pub mod feed;
pub mod flows;
pub mod frame;
pub mod history;
pub mod http;
pub mod metrics;
pub mod page;
mod parts;
pub mod server;
pub mod stat;
pub mod watch;

/// The body of a response. If several clients wait for it, it is in memory only once.
pub type Body = std::sync::Arc<[u8]>;

/// Reads an answer of altq.
fn read<T: for<'a> serde::Deserialize<'a>>(json: &str) -> Result<T, altq_control::Fault> {
    serde_json::from_str(json).map_err(|error| {
        let why = format!("altq's answer cannot be read ({error})");
        altq_control::Fault::new(altq_control::Code::Failed, why)
    })
}

/// The JSON Schemas of events (`altq.web/1`) and of the history (`altq.web-history/1`).
#[cfg(feature = "schema")]
pub fn schemas(generator: &schemars::generate::SchemaGenerator) -> [schemars::Schema; 2] {
    let generator = || generator.clone();
    [generator().into_root_schema_for::<events::Document<'_>>(), generator().into_root_schema_for::<history::Series>()]
}
