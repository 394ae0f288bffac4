//! As much of HTTP/1.1 (RFC 9112) as a page that is only read needs: GET and HEAD, one request to a
//! connection.

pub mod host;
pub mod request;
pub mod response;

pub use host::Hosts;
pub use request::{Asked, Request};
pub use response::{Response, Status};
