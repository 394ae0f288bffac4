//! Short TCP connections, one after another: each is opened, carries a few bytes to the server and
//! one byte back, and is closed.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use serde::{Deserialize, Serialize};

use crate::acceptor::{Admission, Verdict};
use crate::bulk::waiting;
use crate::error::Error;
use crate::run::Shared;
use crate::socket::{self, Tuning};

/// How the client closes a short connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Close {
    /// With RST: the port is free at once.
    #[default]
    Reset,
    /// With FIN, as most programs do: the port waits for a minute (TIME_WAIT), so about 470
    /// connections per second to one server port are possible.
    Fin,
}

/// Makes connections one after another until `end`. Each sends `first` and waits for one byte. A
/// connection that fails, or is not answered in time, is counted as failed.
///
/// # Errors
/// That of the tenth failure in a row: the host has no port or descriptor left, or nothing listens.
pub fn make(
    from: SocketAddr,
    to: SocketAddr,
    tuning: &Tuning,
    first: &[u8],
    close: Close,
    end: Instant,
    shared: &Shared,
) -> Result<(), Error> {
    let mut running = 0;
    while !shared.over(end) {
        let begin = Instant::now();
        shared.meter.sent_one();
        match one(from, to, tuning, first, close, shared) {
            Ok(true) => {
                running = 0;
                let now = Instant::now();
                let at = shared.epoch.since(now);
                shared.meter.took(at, now.duration_since(begin).as_nanos() as u64);
                // Without payload that is counted; but something was delivered now.
                shared.meter.arrived(at, 0);
                shared.meter.completed(at);
            }
            Ok(false) => return Ok(()),
            Err(_) if shared.over(end) => return Ok(()),
            Err(error) => {
                shared.meter.failed();
                running += 1;
                // Single failures are part of the measurement, for example when an accept queue
                // overflows. Ten in a row are an error.
                if running >= 10 {
                    return Err(error);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    Ok(())
}

/// Makes one connection; false if the run was over before it was done.
fn one(
    from: SocketAddr,
    to: SocketAddr,
    tuning: &Tuning,
    first: &[u8],
    close: Close,
    shared: &Shared,
) -> Result<bool, Error> {
    let mut connection = socket::connect_tcp(from, to, tuning)?;
    let io = |error: std::io::Error| Error::Io { doing: "a short connection".into(), error };
    connection.write_all(first).map_err(io)?;
    let (mut answer, begin) = ([0; 1], Instant::now());
    loop {
        match connection.read(&mut answer) {
            Ok(0) => return Err(Error::Ended("a short connection was closed before its answer".into())),
            Ok(_) => break,
            Err(_) if shared.stopped() => return Ok(false),
            Err(error) if waiting(&error) && begin.elapsed() < socket::CONNECT => {}
            Err(error) => return Err(io(error)),
        }
    }
    if close == Close::Fin {
        let _ = sockopt::set_socket_linger(connection.as_fd(), None);
        let _ = connection.shutdown(Shutdown::Write);
        // Waits for the other end's FIN, so that closing counts as part of the connection's time.
        while let Err(error) = connection.read(&mut answer) {
            if !waiting(&error) || shared.stopped() || begin.elapsed() > socket::CONNECT {
                break;
            }
        }
    }
    Ok(true)
}

/// Answers every connection. For namespaces that only this process uses.
#[derive(Debug)]
pub struct AdmitAll;

impl Admission for AdmitAll {
    fn judge(&self, _: &[u8], _: SocketAddr) -> Verdict {
        Verdict::Answer(0x41)
    }

    fn take(&self, _: TcpStream, _: &[u8], _: SocketAddr) {}
}
